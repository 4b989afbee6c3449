//! Output that is lost, by every subcommand: to a device that is full, to a pipe that nobody reads, to a file that
//! cannot be written.

mod support;

use std::fs::{File, OpenOptions};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use support::{Folder, irnic, text};

const SIGPIPE: i32 = 13;
const SMALL: [&str; 5] = ["sim", "--topology", "star:hosts=4", "--duration", "50us"];

fn fixture(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures").join(name).display().to_string()
}

/// Every subcommand that prints, and every way in which one prints.
fn printing(folder: &Folder) -> Vec<Command> {
    let capture = fixture("rxe-pcaps/nak_rnr.pcap");
    let rtt = ["rtt", "-n", "5", "-s", "64", "--port", "shm"];
    let figure = ["reproduce", "timely", "--only", "figure15/64KB", "--warm-up", "100us", "--time", "1ms"];
    let table = ["reproduce", "irn", "--only", "table4.2/70%/no-cc/irn/avg_slowdown", "--arrivals", "100us"];
    let lines: [&[&str]; 20] = [
        &["--help"],
        &["--version"],
        &["help", "perf"],
        &["sim", "--help"],
        &["perf", "write-bw", "-n", "5"],
        &["perf", "write-lat", "-n", "5"],
        &["perf", "write-bw", "-n", "5", "--out_json_file", "-"],
        &SMALL,
        &[&SMALL[..], &["--seeds", "2"]].concat(),
        &figure,
        &table,
        &rtt,
        &[&rtt[..], &["--json", "-"]].concat(),
        &["decode", &capture],
        &["conform", "irn-recv"],
        &["devinfo"],
        &["devinfo", "--json"],
        &["config"],
        &["footprint"],
        &["footprint", "--json"],
    ];
    let command = |words: &&[&str]| {
        let mut command = irnic(folder);
        command.args(*words);
        if words[0] == "conform" {
            command.stdin(File::open(fixture("irn-traces/loss-1pct-recv-input.txt")).expect("a trace"));
        }
        command
    };
    lines.iter().map(command).collect()
}

fn full() -> File {
    OpenOptions::new().write(true).open("/dev/full").expect("/dev/full")
}

/// A pipe whose reader has gone.
fn unread() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

fn output(command: &mut Command) -> Output {
    command.stderr(Stdio::piped()).spawn().expect("irnic starts").wait_with_output().expect("irnic ends")
}

#[test]
fn a_full_device_fails_every_command_with_one_line() {
    let folder = Folder::new();
    for mut command in printing(&folder) {
        let ended = output(command.stdout(full()));
        assert_eq!(ended.status.code(), Some(1), "{command:?}: {}", text(&ended.stderr));
        let said = "irnic: standard output: No space left on device (os error 28)\n";
        assert_eq!(text(&ended.stderr), said, "{command:?}");
    }
}

#[test]
fn every_command_ends_quietly_when_nobody_reads_it() {
    let folder = Folder::new();
    for mut command in printing(&folder) {
        let ended = output(command.stdout(unread()));
        assert_eq!(ended.status.signal(), Some(SIGPIPE), "{command:?}: {:?} {}", ended.status, text(&ended.stderr));
        assert_eq!(text(&ended.stderr), "", "{command:?}");
    }
}

/// Starts what would run for hours by itself, does something, and waits for the end.
fn ends(mut command: Command, meanwhile: impl FnOnce()) -> ExitStatus {
    let mut child = command.spawn().expect("irnic starts");
    let words = format!("{command:?}");
    // With it goes this process's end of a pipe.
    drop(command);
    meanwhile();
    let patience = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            return status;
        }
        if Instant::now() > patience {
            child.kill().expect("a child");
            child.wait().expect("a child");
            panic!("{words} goes on");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_run_that_prints_at_its_end_does_not_go_on_when_its_reader_has_gone() {
    let folder = Folder::new();
    let long: [&[&str]; 3] = [
        &["perf", "write-bw", "-D", "10000"],
        &["perf", "write-bw", "--server", "-p", "0"],
        &["sim", "--topology", "star:hosts=4", "--workload", "permutation:bytes=100GB"],
    ];
    for words in long {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let mut command = irnic(&folder);
        command.args(words).stdout(writer);
        let leave = || {
            // By then the run is under way, most likely.
            std::thread::sleep(Duration::from_millis(300));
            drop(reader);
        };
        assert_eq!(ends(command, leave).signal(), Some(SIGPIPE), "{words:?}");
    }
}

/// Commands that write a file, but for its name.
fn writing() -> Vec<Vec<&'static str>> {
    let sim = |option| [&SMALL[..], &[option]].concat();
    let rtt = |option| vec!["rtt", "-n", "5", "-s", "64", "--port", "shm", option];
    vec![
        sim("--json"),
        sim("--per-flow"),
        sim("--series"),
        sim("--html"),
        rtt("--json"),
        rtt("--svg"),
        vec!["perf", "write-bw", "-n", "5", "--out_json_file"],
        vec!["perf", "write-bw", "-n", "5", "--csv"],
        vec!["perf", "write-bw", "-n", "5", "--loss", "0,1", "--svg"],
        vec!["perf", "write-bw", "-n", "5", "--loss", "0,1", "--html"],
        vec!["perf", "write-bw", "-n", "5", "--pcap"],
        vec!["reproduce", "irn", "--only", "table4.2/70%/no-cc/irn/avg_slowdown", "--arrivals", "100us", "--json"],
        vec!["reproduce", "timely", "--only", "figure15/64KB", "--warm-up", "100us", "--time", "1ms", "--json"],
    ]
}

#[test]
fn a_file_on_a_full_device_fails_the_run_with_one_line_and_the_table_is_told() {
    let folder = Folder::new();
    for words in writing() {
        let ended = irnic(&folder).args(&words).arg("/dev/full").output().expect("irnic runs");
        assert_eq!(ended.status.code(), Some(1), "{words:?}: {}", text(&ended.stderr));
        let said = text(&ended.stderr);
        assert!(said.ends_with("/dev/full: No space left on device (os error 28)\n"), "{words:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{words:?}: {said}");
        assert!(text(&ended.stdout).lines().count() > 3, "{words:?}: {}", text(&ended.stdout));
    }
}

#[test]
fn a_file_that_cannot_be_written_is_found_before_the_run() {
    let folder = Folder::new();
    for words in writing().into_iter().chain([vec!["perf", "--out_json_file"]]) {
        // These would go on for hours.
        let long: &[&str] = match words[0] {
            "perf" if words.len() > 2 => &["perf", "write-bw", "-D", "10000"],
            "sim" => &["sim", "--workload", "permutation:bytes=100GB"],
            "rtt" => &["rtt", "-n", "1000000", "--port", "shm"],
            "reproduce" => &["reproduce", "irn", "--seeds", "1000"],
            _ => &words[..1],
        };
        let mut command = irnic(&folder);
        command.args(long).arg(words[words.len() - 1]).arg("no/such/folder/file");
        command.stderr(Stdio::null());
        assert_eq!(ends(command, || ()).code(), Some(2), "{words:?}");
        let ended = irnic(&folder).args(&words).arg("no/such/folder/file").output().expect("irnic runs");
        let said = text(&ended.stderr);
        assert!(said.ends_with("no/such/folder/file: No such file or directory (os error 2)\n"), "{words:?}: {said}");
        assert_eq!((said.lines().count(), ended.stdout.len()), (1, 0), "{words:?}: {said}");
    }
}

#[test]
fn a_run_that_fails_leaves_old_files_alone_and_makes_no_new_ones() {
    let folder = Folder::new();
    folder.write("old", "old");
    // Nothing gets through.
    let failing = ["perf", "write-bw", "-n", "5", "--impair", "loss 100%", "--out_json_file"];
    for name in ["old", "new"] {
        let ended = irnic(&folder).args(failing).arg(name).output().expect("irnic runs");
        assert_eq!(ended.status.code(), Some(1), "{}", text(&ended.stderr));
    }
    let read = |name| std::fs::read_to_string(folder.path().join(name)).ok();
    assert_eq!((read("old").as_deref(), read("new")), (Some("old"), None));
}

#[test]
fn json_goes_to_standard_output_under_the_name_of_a_dash() {
    let folder = Folder::new();
    let ended =
        irnic(&folder).args(["perf", "write-bw", "-n", "5", "--out_json_file", "-"]).output().expect("irnic runs");
    let out = text(&ended.stdout);
    let json = &out[out.find('{').expect("JSON")..];
    assert!(serde_json::from_str::<serde_json::Value>(json).is_ok(), "{out}");
    assert!(!folder.path().join("-").exists());
}
