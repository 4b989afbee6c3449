//! Shared objects that tests preload into other programs: `tools/rxe/*.c` says what each does.

use std::path::PathBuf;
use std::process::Command;

/// Builds `tools/rxe/NAME.c`, once in a run of the tests. Returns the shared object.
///
/// # Errors
///
/// If it cannot be compiled, with what the compiler says.
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
