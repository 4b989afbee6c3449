//! Hands the linker what the shared object needs beyond a plain cdylib.

use std::path::PathBuf;
use std::process::Command;
use std::{env, str};

fn main() {
    // The script declares the version nodes and puts nothing in them: `src/symbols` does, with `.symver`.
    let nodes = format!("{}/src/symbols/nodes.map", env::var("CARGO_MANIFEST_DIR").expect("set by cargo"));
    println!("cargo:rerun-if-changed={nodes}");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={nodes}");
    // rustc passes a script of its own, without a node, and GNU ld takes no other beside it. LLVM's linker does.
    println!("cargo:rustc-cdylib-link-arg=-fuse-ld=lld");
    if let Some(place) = lld() {
        println!("cargo:rustc-cdylib-link-arg=-B{}", place.display());
    }
    // Threads of the NIC run code of this object: a `dlclose` must not unmap it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}

/// Returns the folder of the LLVM linker that rustup's toolchains bring along, under the name by which compilers look
/// for it. rustc itself names it for few targets; where there is none the system's is taken.
fn lld() -> Option<PathBuf> {
    let sysroot = Command::new(env::var_os("RUSTC")?).args(["--print", "sysroot"]).output().ok()?;
    let sysroot = PathBuf::from(str::from_utf8(&sysroot.stdout).ok()?.trim_end());
    let place = sysroot.join("lib/rustlib").join(env::var_os("HOST")?).join("bin/gcc-ld");
    place.join("ld.lld").exists().then_some(place)
}
