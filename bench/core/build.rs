//! Tells a release build which commit it is of, as `irnic`'s does.

#[path = "../build/version.rs"]
mod version;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=../build/version.rs");
    version::tell();
}
