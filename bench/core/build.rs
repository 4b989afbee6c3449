//! Gives a release build its commit, as `irnic`'s build script does.

#[path = "../build/version.rs"]
mod version;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=../build/version.rs");
    version::emit();
}
