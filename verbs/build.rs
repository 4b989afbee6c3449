//! Hands the linker what the shared object needs beyond a plain cdylib.

use std::env;

fn main() {
    // The script declares the version nodes and puts nothing in them: `src/symbols` does, with `.symver`.
    let nodes = format!("{}/src/symbols/nodes.map", env::var("CARGO_MANIFEST_DIR").expect("set by cargo"));
    println!("cargo:rerun-if-changed={nodes}");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={nodes}");
    // Threads of the NIC run code of this object: a `dlclose` must not unmap it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
