//! Which file of settings counts, and what is said of one that does not.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::support::{Folder, irnic, text};

/// A user who is nobody's: not the caller.
const OTHER: u32 = 65_530;

/// Whether the test may make files for others.
fn is_root() -> bool {
    // SAFETY: has no precondition.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        crate::support::skipped("only root makes files for other users");
    }
    root
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("permissions");
}

/// Standard output and standard error of a command that succeeds.
fn output_of(command: &mut Command) -> (String, String) {
    let output = command.output().expect("irnic starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}

/// A directory of somebody else, in whose `irnic.toml` captures and statistics go to files of the caller.
fn foreign(folder: &Folder) -> (std::path::PathBuf, std::path::PathBuf) {
    let precious = folder.write("precious", "years of work");
    let theirs = folder.path().join("theirs");
    fs::create_dir(&theirs).unwrap();
    let file = theirs.join("irnic.toml");
    fs::write(&file, format!("pcap = '{0}'\nstats = '{0}'\n", precious.display())).unwrap();
    mode(folder.path(), 0o755);
    mode(&theirs, 0o755);
    mode(&file, 0o644);
    (theirs, precious)
}

#[test]
fn a_file_in_a_directory_of_somebody_else_is_told_of_and_ignored() {
    if !is_root() {
        return;
    }
    let folder = Folder::new();
    let (theirs, precious) = foreign(&folder);
    for (owner_of_directory, owner_of_file, part) in [
        (OTHER, OTHER, "its directory belongs to user 65530, neither you (0) nor root"),
        (OTHER, 0, "its directory belongs to user 65530"),
        (0, OTHER, "it belongs to user 65530, neither you (0) nor root"),
    ] {
        chown(&theirs, Some(owner_of_directory), None).unwrap();
        chown(theirs.join("irnic.toml"), Some(owner_of_file), None).unwrap();
        for args in [&["config"][..], &["devinfo"], &["run", "--", "sh", "-c", "echo $IRNIC_CONFIG"]] {
            let (out, err) = output_of(irnic(&folder).current_dir(&theirs).args(args));
            assert!(err.starts_with("irnic: irnic.toml is ignored: ") && err.contains(part), "{args:?}: {err}");
            assert_eq!(err.lines().count(), 1, "{err}");
            assert!(!out.contains("precious"), "{out}");
            if args[0] == "run" {
                // Nor is it looked for again by whatever the application starts.
                assert_eq!(out, "/dev/null\n");
            }
        }
        assert_eq!(fs::read_to_string(&precious).unwrap(), "years of work");
    }
    // What the caller names is the caller's decision.
    let (out, err) = output_of(irnic(&folder).current_dir(&theirs).env("IRNIC_CONFIG", "irnic.toml").arg("config"));
    assert!(out.contains("precious") && err.is_empty(), "{out}{err}");
}

#[test]
fn a_file_that_others_may_write_is_ignored_and_the_next_one_counts() {
    let folder = Folder::new();
    mode(folder.path(), 0o700);
    let file = folder.write("irnic.toml", "mtu = 256\n");
    // The user's own, which `support::irnic` puts into this folder.
    fs::create_dir(folder.path().join("irnic")).unwrap();
    mode(&folder.path().join("irnic"), 0o755);
    let users = folder.write("irnic/irnic.toml", "mtu = 512\n");
    mode(&users, 0o644);
    let mtu = |of_file: u32, of_folder: u32| {
        mode(&file, of_file);
        mode(folder.path(), of_folder);
        let (out, err) = output_of(irnic(&folder).arg("config"));
        let line = out.lines().find(|l| l.starts_with("mtu = ")).unwrap_or_else(|| panic!("{out}"));
        (line.split('"').nth(1).unwrap().to_owned(), err)
    };
    assert_eq!(mtu(0o644, 0o755), ("256".into(), String::new()));
    for (of_file, of_folder, part) in [
        (0o664, 0o755, "it can be written by others (mode 0664"),
        (0o646, 0o755, "it can be written by others (mode 0646"),
        (0o644, 0o775, "its directory can be written by others (mode 0775"),
        (0o644, 0o1777, "its directory can be written by others (mode 1777"),
    ] {
        let (value, err) = mtu(of_file, of_folder);
        assert!(value == "512" && err.contains(part) && err.lines().count() == 1, "{value} {err}");
    }
}

#[test]
fn a_program_with_more_rights_than_its_caller_takes_neither_variables_nor_files() {
    if !is_root() {
        return;
    }
    let folder = Folder::new();
    mode(folder.path(), 0o755);
    let file = folder.write("irnic.toml", "mtu = 256\n");
    mode(&file, 0o644);
    let program = folder.path().join("setuid");
    fs::copy(env!("CARGO_BIN_EXE_irnic"), &program).unwrap();
    mode(&program, 0o4755);
    let run = |uid: u32, variable: &str| {
        let mut command = Command::new(&program);
        command.env_clear().env("IRNIC_MTU", variable).env("IRNIC_CONFIG", "").current_dir(folder.path());
        output_of(command.uid(uid).gid(uid).arg("config"))
    };
    let (out, err) = run(0, "512");
    assert!(out.contains("mtu = \"512\"") && out.contains("# file: irnic.toml") && err.is_empty(), "{out}{err}");
    let (out, err) = run(OTHER, "512");
    assert!(out.contains("# mtu: ") && out.contains("# no file"), "{out}");
    assert!(
        err.starts_with("irnic: IRNIC_* variables and irnic.toml are ignored") && err.lines().count() == 1,
        "{err}"
    );
}
