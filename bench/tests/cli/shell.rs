//! `irnic completions`, `irnic man` and `irnic --version`, as shells, man(1) and people read them.

use std::process::Command;

use crate::support::{Folder, irnic, needs, text};

#[test]
fn bash_completes_commands_and_options() {
    let Some(()) = needs(&["bash"]) else { return };
    let folder = Folder::new();
    let script = irnic(&folder).args(["completions", "bash"]).output().expect("irnic runs");
    assert!(script.status.success(), "{}", text(&script.stderr));
    folder.write("irnic.bash", &text(&script.stdout));
    let completed = |words: &[&str]| {
        let (last, before) = (words[words.len() - 1], words[words.len() - 2]);
        let ask = format!(
            "source irnic.bash; COMP_WORDS=({}); COMP_CWORD={}; _irnic irnic '{last}' '{before}'; echo \"${{COMPREPLY[@]}}\"",
            words.join(" "),
            words.len() - 1
        );
        let output = Command::new("bash").current_dir(folder.path()).args(["-c", &ask]).output().expect("bash runs");
        assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
        text(&output.stdout).trim().to_owned()
    };
    assert_eq!(completed(&["irnic", "dec"]), "decode");
    assert_eq!(completed(&["irnic", "lab", "--topo"]), "--topology");
    assert_eq!(completed(&["irnic", "reproduce", "ti"]), "timely");
    for (words, expected) in [
        (["irnic", "lab", "--transport", "irn-g"], "irn-go-back-n"),
        (["irnic", "sim", "--cc", "dcq"], "dcqcn dcqcn-vendor"),
        (["irnic", "sim", "--switch", "trim"], "trimming"),
        (["irnic", "sim", "--topology", "leaf"], "leaf-spine"),
        (["irnic", "lab", "--clock", "v"], "virtual"),
        (["irnic", "run", "--port", "sh"], "shm"),
        (["irnic", "perf", "--transport", "ro"], "roce"),
        (["irnic", "sim", "--pfc", "o"], "on off"),
        (["irnic", "sim", "--deadlock", "c"], "continue"),
    ] {
        assert_eq!(completed(&words), expected, "{words:?}");
    }
    for shell in ["zsh", "fish"] {
        let script = irnic(&folder).args(["completions", shell]).output().expect("irnic runs");
        assert!(script.status.success() && text(&script.stdout).contains("topology"), "{shell}");
    }
}

#[test]
fn every_command_has_a_page_that_man_reads_without_a_warning() {
    let folder = Folder::new();
    let made = irnic(&folder).args(["man", "man1"]).output().expect("irnic runs");
    assert!(made.status.success(), "{}", text(&made.stderr));
    let help = text(&irnic(&folder).arg("--help").output().expect("irnic runs").stdout);
    let commands =
        help.split("Commands:").nth(1).expect("commands").lines().skip(1).take_while(|l| l.starts_with("  "));
    let commands: Vec<String> = commands
        .filter(|l| !l.starts_with("   "))
        .filter_map(|l| l.split_whitespace().next())
        .map(str::to_owned)
        .collect();
    assert!(commands.contains(&"lab".into()), "{commands:?}");
    let page = |name: &str| folder.path().join("man1").join(name);
    for command in commands.iter().filter(|command| *command != "help") {
        let text = std::fs::read_to_string(page(&format!("irnic-{command}.1"))).expect(command);
        assert!(text.contains(".SH OPTIONS") && text.contains(&format!("irnic {command}")), "{text}");
    }
    let printed = irnic(&folder).args(["man", "--page", "lab"]).output().expect("irnic runs").stdout;
    assert_eq!(text(&printed), std::fs::read_to_string(page("irnic-lab.1")).expect("a page"));
    let Some(()) = needs(&["groff"]) else { return };
    for entry in std::fs::read_dir(folder.path().join("man1")).expect("the folder") {
        let path = entry.expect("a page").path();
        let read = Command::new("groff").args(["-k", "-man", "-Tutf8", "-ww"]).arg(&path).output().expect("groff runs");
        assert!(read.status.success() && read.stderr.is_empty(), "{}: {}", path.display(), text(&read.stderr));
    }
}

#[test]
fn what_cannot_be_written_is_told_in_one_line() {
    let folder = Folder::new();
    folder.write("file", "");
    for (arguments, expected) in [
        (&["man", "file"][..], "irnic man: file: "),
        (&["man", "--page", "nix"], "irnic man: --page nix: expected one of completions, config, "),
        (&["man"], "irnic: the following required arguments"),
        (&["completions", "dash"], "irnic: invalid value 'dash'"),
    ] {
        let output = irnic(&folder).args(arguments).output().expect("irnic runs");
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.starts_with(expected) && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn a_version_is_told() {
    let folder = Folder::new();
    let said = text(&irnic(&folder).arg("--version").output().expect("irnic runs").stdout);
    let version = said.trim_end().strip_prefix(concat!("irnic ", env!("CARGO_PKG_VERSION"))).expect(&said);
    // A release build says which commit it is of, and of when: (0123456789ab 2026-01-31).
    let commit = version.strip_prefix(" (").and_then(|rest| rest.strip_suffix(')'));
    let parts = commit.and_then(|commit| commit.split_once(' '));
    let named = parts.is_some_and(|(hash, date)| {
        hash.len() >= 12 && hash.bytes().all(|c| c.is_ascii_hexdigit()) && date.split('-').count() == 3
    });
    assert!(version.is_empty() || named, "{said}");
}
