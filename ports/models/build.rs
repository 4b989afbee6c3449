//! Has irnic-ports compiled with the words of loom in place of the processor's.

fn main() {
    println!("cargo::rustc-cfg=loom");
    println!("cargo::rerun-if-changed=build.rs");
}
