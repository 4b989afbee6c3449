//! What commands write, to the byte: `fixtures/golden/commands.toml` has hashes.
//!
//! `GOLDEN=write` writes the file anew, and keeps its comments and arguments.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{Folder, irnic, text};
use serde::Deserialize;
use sha2::{Digest, Sha256};

/// One command and the hashes of what it writes.
#[derive(Debug, Deserialize)]
struct Golden {
    args: Vec<String>,
    #[serde(flatten)]
    hashes: toml::Table,
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures")
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").expect("a string takes everything");
        hex
    })
}

/// Runs a command with `more` options, and returns the hash of each thing it writes, by the name of its option.
fn outputs(args: &[String], more: &[&str]) -> Vec<(&'static str, String)> {
    let written: &[&str] = match args[0].as_str() {
        "sim" => &["per-flow", "json", "series"],
        "reproduce" => &["json"],
        _ => &["stdout"],
    };
    let folder = Folder::new();
    let mut command = irnic(&folder);
    command.current_dir(fixtures()).args(args).args(more);
    for output in written.iter().filter(|o| **o != "stdout") {
        command.arg(format!("--{output}")).arg(folder.path().join(output));
    }
    let ran = command.output().expect("irnic runs");
    assert!(ran.status.success(), "irnic {args:?}: {}", text(&ran.stderr));
    let read = |output: &&'static str| match *output {
        "stdout" => (*output, hash(&ran.stdout)),
        // The version of irnic is no result.
        _ => {
            let written = text(&std::fs::read(folder.path().join(output)).expect(output));
            let version = env!("CARGO_PKG_VERSION");
            let without =
                written.replace(&format!("\"{version}\""), "\"\"").replace(&format!("(irnic {version})"), "()");
            (*output, hash(without.as_bytes()))
        }
    };
    written.iter().map(read).collect()
}

/// Calls `each` for all `items`, two at a time.
fn in_parallel<T: Sync>(items: &[T], each: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            each(item);
        }
    };
    std::thread::scope(|scope| {
        let threads = [scope.spawn(work), scope.spawn(work)];
        threads.into_iter().for_each(|t| t.join().expect("a thread that ends"));
    });
}

#[test]
fn commands_write_what_they_wrote_before() {
    let path = fixtures().join("golden/commands.toml");
    let file = std::fs::read_to_string(&path).expect("commands.toml");
    let table: toml::Table = file.parse().expect("TOML");
    let all: Vec<(String, Golden)> =
        table.into_iter().map(|(name, golden)| (name, golden.try_into().expect("args and hashes"))).collect();
    let anew = irnic_testkit::golden::is_written();
    let text = Mutex::new(file);
    let wrong = Mutex::new(Vec::new());
    in_parallel(&all, |(name, golden)| {
        for (output, hash) in outputs(&golden.args, &[]) {
            let before = golden.hashes.get(output).and_then(|v| v.as_str()).unwrap_or("nothing");
            if before == hash {
                continue;
            }
            if anew {
                set(&mut text.lock().expect("no panic"), name, output, &hash);
            }
            let line = format!("{name}: {output}: {before} before, {hash} now: irnic {}", golden.args.join(" "));
            wrong.lock().expect("no panic").push(line);
        }
    });
    let wrong = wrong.into_inner().expect("no panic");
    if anew {
        std::fs::write(&path, text.into_inner().expect("no panic")).expect("commands.toml");
    }
    assert!(wrong.is_empty(), "{} outputs have changed:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn simulations_write_the_same_with_several_threads() {
    let file = std::fs::read_to_string(fixtures().join("golden/commands.toml")).expect("commands.toml");
    let table: toml::Table = file.parse().expect("TOML");
    let all: Vec<Golden> = table.into_iter().map(|(_, golden)| golden.try_into().expect("args and hashes")).collect();
    let simulations = all.iter().filter(|golden| golden.args[0] == "sim");
    for (golden, threads) in simulations.zip(["2", "3", "7"].iter().cycle()) {
        for (output, hash) in outputs(&golden.args, &["--threads", threads]) {
            let one = golden.hashes.get(output).and_then(|v| v.as_str());
            assert_eq!(one, Some(&*hash), "{output} with {threads} threads: irnic {}", golden.args.join(" "));
        }
    }
}

/// Sets the hash of one output in the text of the file.
fn set(file: &mut String, name: &str, output: &str, hash: &str) {
    let section = file.find(&format!("[{name}]\n")).expect("its section");
    let end = file[section..].find("\n\n").map_or(file.len(), |at| section + at + 1);
    let key = format!("\n{output} = \"");
    match file[section..end].find(&key) {
        Some(at) => {
            let from = section + at + key.len();
            file.replace_range(from..from + hash.len(), hash);
        }
        None => file.insert_str(end, &format!("{output} = \"{hash}\"\n")),
    }
}
