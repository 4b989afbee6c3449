//! Output that is lost, by every subcommand: to a device that is full, to a pipe that nobody reads, to a file that
//! cannot be written; and output to `-`, which is standard output.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use flate2::read::GzDecoder;

use crate::support::{Folder, irnic, text};

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
    let command = |args: &&[&str]| {
        let mut command = irnic(folder);
        command.args(*args);
        if args[0] == "conform" {
            let packed = File::open(fixture("irn-traces/loss-1pct-recv-input.txt.gz")).expect("a trace");
            let mut trace = tempfile::tempfile().expect("a file");
            io::copy(&mut GzDecoder::new(packed), &mut trace).expect("a trace");
            trace.rewind().expect("a file");
            command.stdin(trace);
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
    let shown = format!("{command:?}");
    // With it goes this process's end of a pipe.
    drop(command);
    meanwhile();
    let patience = Instant::now() + irnic_testkit::wait::HANG;
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            return status;
        }
        if Instant::now() > patience {
            child.kill().expect("a child");
            child.wait().expect("a child");
            panic!("{shown} goes on");
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
    for args in long {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let mut command = irnic(&folder);
        command.args(args).stdout(writer);
        let leave = || {
            // By then the run is under way, most likely.
            std::thread::sleep(Duration::from_millis(300));
            drop(reader);
        };
        assert_eq!(ends(command, leave).signal(), Some(SIGPIPE), "{args:?}");
    }
}

/// Commands that write a file, but for its name.
fn writing() -> Vec<Vec<&'static str>> {
    let sim = |option| [&SMALL[..], &[option]].concat();
    let rtt = |option| vec!["rtt", "-n", "5", "-s", "64", "--port", "shm", option];
    vec![
        sim("--json"),
        sim("--csv"),
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
    for args in writing() {
        let ended = irnic(&folder).args(&args).arg("/dev/full").output().expect("irnic runs");
        assert_eq!(ended.status.code(), Some(1), "{args:?}: {}", text(&ended.stderr));
        let said = text(&ended.stderr);
        assert!(said.ends_with("/dev/full: No space left on device (os error 28)\n"), "{args:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{args:?}: {said}");
        assert!(text(&ended.stdout).lines().count() > 3, "{args:?}: {}", text(&ended.stdout));
    }
}

#[test]
fn a_file_that_cannot_be_written_is_found_before_the_run() {
    let folder = Folder::new();
    for args in writing().into_iter().chain([vec!["perf", "--out_json_file"]]) {
        // These would go on for hours.
        let long: &[&str] = match args[0] {
            "perf" if args.len() > 2 => &["perf", "write-bw", "-D", "10000"],
            "sim" => &["sim", "--workload", "permutation:bytes=100GB"],
            "rtt" => &["rtt", "-n", "1000000", "--port", "shm"],
            "reproduce" => &["reproduce", "irn", "--seeds", "1000"],
            _ => &args[..1],
        };
        let mut command = irnic(&folder);
        command.args(long).arg(args[args.len() - 1]).arg("no/such/folder/file");
        command.stderr(Stdio::null());
        assert_eq!(ends(command, || ()).code(), Some(2), "{args:?}");
        let ended = irnic(&folder).args(&args).arg("no/such/folder/file").output().expect("irnic runs");
        let said = text(&ended.stderr);
        assert!(said.ends_with("no/such/folder/file: No such file or directory (os error 2)\n"), "{args:?}: {said}");
        assert_eq!((said.lines().count(), ended.stdout.len()), (1, 0), "{args:?}: {said}");
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

/// Runs irnic with `args`, which must succeed. Returns standard output and standard error.
fn run(folder: &Folder, args: &[&str]) -> (Vec<u8>, String) {
    let ended = irnic(folder).args(args).output().expect("irnic runs");
    assert!(ended.status.success(), "{args:?}: {}", text(&ended.stderr));
    (ended.stdout, text(&ended.stderr))
}

/// Panics unless a file is as its option says.
#[track_caller]
fn check_kind(option: &str, bytes: &[u8], args: &[&str]) {
    let out = text(bytes);
    let is_right = match option {
        "--json" | "--out_json_file" => serde_json::from_slice::<serde_json::Value>(bytes).is_ok(),
        "--junit" => out.starts_with("<?xml") && out.trim_end().ends_with("</testsuites>"),
        "--svg" => out.starts_with("<svg") && out.trim_end().ends_with("</svg>"),
        "--html" => out.to_lowercase().starts_with("<!doctype html>") && out.trim_end().ends_with("</html>"),
        "--pcap" => bytes.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]),
        // CSV: how to get it again, and the columns.
        _ => {
            let columns = out.lines().find(|line| !line.starts_with('#'));
            let commas = columns.map_or(0, |columns| columns.matches(',').count());
            out.starts_with("# again: irnic ") && commas > 1 && out.ends_with('\n')
        }
    };
    assert!(is_right, "{args:?}: {}", out.chars().take(2_000).collect::<String>());
}

/// Every option of every command that names a file of results, last.
fn results() -> Vec<Vec<&'static str>> {
    let more = |args: &[&'static str], options: &[&'static str]| -> Vec<Vec<&'static str>> {
        options.iter().map(|option| [args, &[*option]].concat()).collect()
    };
    let irn = ["reproduce", "irn", "--only", "table4.2/70%/no-cc/irn/avg_slowdown", "--arrivals", "100us"];
    let perf = ["perf", "write-bw", "-n", "5"];
    let mut all = more(&SMALL, &["--json", "--csv", "--per-flow", "--series", "--html", "--record", "--pcap"]);
    all.extend(more(&irn, &["--json", "--csv", "--junit"]));
    all.extend(more(&["merge", "runs"], &["--json", "--csv", "--per-flow", "--series", "--html"]));
    all.extend(more(&["merge", "cells"], &["--json", "--csv", "--junit"]));
    all.extend(more(&["rtt", "-n", "5", "-s", "64", "--port", "shm"], &["--json", "--svg"]));
    all.extend(more(&perf, &["--out_json_file", "--csv", "--pcap"]));
    all.extend(more(&[&perf[..], &["--loss", "0,1"]].concat(), &["--svg", "--html"]));
    all.push(vec!["doctor", "--junit"]);
    all
}

/// A folder with results for `irnic merge`, and what lies in it.
fn with_runs() -> (Folder, Vec<String>) {
    let folder = Folder::new();
    run(&folder, &[&SMALL[..], &["--out", "runs"]].concat());
    let irn = ["reproduce", "irn", "--only", "table4.2/70%/no-cc/irn/avg_slowdown", "--arrivals", "100us"];
    run(&folder, &[&irn[..], &["--out", "cells"]].concat());
    let names = names(&folder);
    (folder, names)
}

fn names(folder: &Folder) -> Vec<String> {
    let entries = std::fs::read_dir(folder.path()).expect("a folder");
    let mut names: Vec<String> = entries.map(|e| e.expect("an entry").file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_file_by_the_name_of_a_dash_is_standard_output_and_has_it_alone() {
    let (folder, before) = with_runs();
    for args in results() {
        let option = args[args.len() - 1];
        let ended = irnic(&folder).args(&args).arg("-").output().expect("irnic runs");
        // What irnic doctor finds wrong here is no matter.
        assert!(ended.status.success() || args[0] == "doctor", "{args:?}: {}", text(&ended.stderr));
        check_kind(option, &ended.stdout, &args);
        assert_eq!(names(&folder), before, "{args:?}");
        // Where the same run has the same results, they are those of a file.
        if ["sim", "reproduce", "merge"].contains(&args[0]) && option != "--junit" {
            run(&folder, &[&args[..], &["file"]].concat());
            let mut file = std::fs::read(folder.path().join("file")).expect("a file");
            if option == "--record" {
                // The file's name is part of the command.
                file = text(&file).replacen("--record file", "--record -", 1).into();
            }
            assert!(file == ended.stdout, "{args:?}: another file than {} bytes", file.len());
            std::fs::remove_file(folder.path().join("file")).unwrap();
        }
    }
}

#[test]
fn a_replayed_schedule_has_its_results_on_standard_output_as_well() {
    let folder = Folder::new();
    run(&folder, &[&SMALL[..], &["--record", "schedule.csv"]].concat());
    let (out, _) = run(&folder, &["sim", "--topology", "star:hosts=4", "--replay", "schedule.csv", "--json", "-"]);
    check_kind("--json", &out, &["--replay"]);
    assert_eq!(names(&folder), ["schedule.csv"]);
}

#[test]
fn a_lab_that_has_standard_output_for_a_file_sends_what_commands_print_to_standard_error() {
    let folder = Folder::new();
    for option in ["--json", "--csv", "--junit", "--series", "--port-series", "--html", "--pcap"] {
        let args = ["lab", "--topology", "star:hosts=2", option, "-", "--", "sh", "-c", "sleep 0.1; echo said"];
        let (out, err) = run(&folder, &args);
        check_kind(option, &out, &args);
        assert!(err.lines().any(|line| line == "said"), "{args:?}: {err}");
        assert_eq!(names(&folder), [""; 0], "{args:?}");
    }
}

#[test]
fn two_files_on_standard_output_are_refused_with_one_line_before_the_run() {
    let (folder, before) = with_runs();
    let pairs: [&[&str]; 8] = [
        &["sim", "--workload", "permutation:bytes=100GB", "--json", "-", "--series", "-"],
        &["lab", "--topology", "star:hosts=2", "--json", "-", "--pcap", "-", "--", "sleep", "1000"],
        &["reproduce", "irn", "--seeds", "1000", "--json", "-", "--junit", "-"],
        &["merge", "runs", "--per-flow", "-", "--html", "-"],
        &["rtt", "-n", "1000000", "--port", "shm", "--json", "-", "--svg", "-"],
        &["perf", "write-bw", "-D", "10000", "--out_json_file", "-", "--csv", "-"],
        &["lab", "--topology", "star:hosts=2", "--json", "-", "--junit", "-", "--", "sleep", "1000"],
        &["doctor", "--json", "--junit", "-"],
    ];
    for args in pairs {
        let ended = irnic(&folder).args(args).output().expect("irnic runs");
        let said = text(&ended.stderr);
        assert_eq!((ended.status.code(), text(&ended.stdout).as_str()), (Some(2), ""), "{args:?}: {said}");
        assert!(said.ends_with("-: standard output has the content of another file already\n"), "{args:?}: {said}");
        assert_eq!((said.lines().count(), names(&folder)), (1, before.clone()), "{args:?}: {said}");
    }
}

#[test]
fn a_folder_by_the_name_of_a_dash_is_refused() {
    let folder = Folder::new();
    let lines: [&[&str]; 2] = [
        &["reproduce", "timely", "--only", "figure15/64KB", "--svg", "-"],
        &["sim", "--topology", "star:hosts=4", "--out", "-"],
    ];
    for args in lines {
        let ended = irnic(&folder).args(args).output().expect("irnic runs");
        let said = text(&ended.stderr);
        assert!(said.ends_with("-: expected a folder, which standard output is not\n"), "{args:?}: {said}");
        assert_eq!((ended.status.code(), said.lines().count()), (Some(2), 1), "{args:?}: {said}");
        assert_eq!(names(&folder), [""; 0], "{args:?}");
    }
}

#[test]
fn files_beside_an_application_are_not_its_standard_output() {
    let folder = Folder::new();
    for option in ["--pcap=-", "--stats=-"] {
        let ended = irnic(&folder).args(["run", option, "--", "echo", "said"]).output().expect("irnic runs");
        let said = text(&ended.stderr);
        assert!(said.contains("expected the name of a file: standard output is the application's"), "{option}: {said}");
        assert_eq!((ended.status.code(), text(&ended.stdout).as_str()), (Some(2), ""), "{option}: {said}");
        assert_eq!(names(&folder), [""; 0], "{option}");
    }
}
