//! Hands the linker what the shared object needs beyond a plain cdylib.

use std::env;

fn main() {
    // The script declares the version nodes and puts nothing in them: `src/symbols` does, with `.symver`.
    let nodes = format!("{}/src/symbols/nodes.map", env::var("CARGO_MANIFEST_DIR").expect("set by cargo"));
    println!("cargo:rerun-if-changed={nodes}");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={nodes}");
    // rustc passes a script of its own, without a node, and GNU ld takes no other beside it. LLVM's linker does; rustc
    // brings it along for x86-64 Linux since 1.90, elsewhere it has to be installed.
    println!("cargo:rustc-cdylib-link-arg=-fuse-ld=lld");
    // Threads of the NIC run code of this object: a `dlclose` must not unmap it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
