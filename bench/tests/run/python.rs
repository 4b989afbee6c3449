//! The Python package of irnic, by its own tests.

use std::path::Path;

use crate::support::{Folder, irnic, needs, text};

#[test]
fn labs_and_programs_from_python() {
    if needs(&["python3", "ib_write_bw"]).is_none() {
        return;
    }
    let folder = Folder::new();
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/python");
    let of_irnic = irnic(&folder);
    let mut python = std::process::Command::new("python3");
    for (name, value) in of_irnic.get_envs() {
        match value {
            Some(value) => python.env(name, value),
            None => python.env_remove(name),
        };
    }
    python.env("IRNIC", of_irnic.get_program()).env("PYTHONPATH", &package).env("PYTHONDONTWRITEBYTECODE", "1");
    python.args(["-W", "error", "-m", "unittest", "test_irnic"]).current_dir(package.join("tests"));
    let output = python.output().expect("python3 starts");
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stderr).contains("Ran 5 tests"), "{}", text(&output.stderr));
}
