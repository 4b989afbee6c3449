//! Files and settings that are nested deeply, or are very long chains: an error, and no end of the stack.

use crate::support::{Folder, irnic, text};

const DEEP: usize = 100_000;

#[test]
fn what_is_nested_deeply_is_refused_by_every_reader() {
    let folder = Folder::new();
    for (name, content) in [
        ("arrays.toml", format!("seed = {}{}\n", "[".repeat(DEEP), "]".repeat(DEEP))),
        ("tables.toml", format!("seed = {}1{}\n", "{a=".repeat(DEEP), "}".repeat(DEEP))),
        ("keys.toml", format!("{} = 1\n", ["a"; DEEP].join("."))),
        ("headers.toml", format!("[{}]\n", ["a"; DEEP].join("."))),
        ("sum.oq", format!("q = Queue({}); out = Port(q);\n", ["1KB"; DEEP].join(" + "))),
        ("calls.oq", format!("q = Queue({}1{}); out = Port(q);\n", "max(1, ".repeat(DEEP), ")".repeat(DEEP))),
        ("blocks.oq", "if true { ".repeat(DEEP)),
        ("otherwise.oq", format!("{} {{ }}\n", "if false { } else ".repeat(DEEP))),
    ] {
        folder.write(name, &content);
        let readers: &[&[&str]] = if name.ends_with(".oq") {
            &[&["oq", "check"], &["sim", "--switch"], &["lab", "--topology", "star:hosts=2", "--switch"]]
        } else {
            &[&["run", "--config"], &["lab"], &["sim", "--experiment"]]
        };
        for reader in readers {
            let mut command = irnic(&folder);
            command.args(*reader).arg(name);
            match reader[0] {
                "run" => _ = command.arg("true"),
                "lab" if reader.len() > 1 => _ = command.args(["--", "true"]),
                _ => {}
            }
            let output = command.output().unwrap();
            let error = text(&output.stderr);
            let end = error.len().min(400);
            assert_eq!(output.status.code(), Some(2), "{reader:?} {name}: {}", &error[..end]);
            assert!(!error.contains("panicked"), "{reader:?} {name}: {}", &error[..end]);
        }
    }
    // As much as a variable holds.
    for impairments in ["(".repeat(DEEP), "loss 1% ".repeat(DEEP / 8), "delay 1us ".repeat(DEEP / 10)] {
        let output = irnic(&folder).env("IRNIC_IMPAIR", &impairments).args(["run", "true"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", &impairments[..20]);
    }
}
