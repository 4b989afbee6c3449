//! Shared objects that tests preload into other programs; `tools/rxe/*.c` describe them.

use std::path::PathBuf;
use std::process::Command;

/// Builds `tools/rxe/NAME.c`, once per test run. Returns the shared object.
///
/// # Errors
///
/// If it cannot be compiled, with the compiler's output.
pub fn build(name: &str) -> Result<PathBuf, String> {
    let object = format!("{name}.so");
    let folder = crate::once::folder(&object, |folder| {
        let source = format!("{}/../tools/rxe/{name}.c", env!("CARGO_MANIFEST_DIR"));
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror", &source, "-o"]).arg(folder.join(&object));
        let output = cc.output().map_err(|e| format!("cc: {e}"))?;
        if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
    })?;
    Ok(folder.join(object))
}
