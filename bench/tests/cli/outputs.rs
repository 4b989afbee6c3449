//! What is at the place of a capture or of statistics already: replaced if it is an earlier one, else left as it is.
//! Pipes.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::support::{Folder, await_listener, free_port, irnic, needs, text};

/// The beginning of any pcapng file.
const CAPTURE: &[u8] =
    b"\x0a\x0d\x0d\x0a\x1c\0\0\0\x4d\x3c\x2b\x1a\x01\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\x1c\0\0\0";

fn run(folder: &Folder, args: &[&str]) -> Output {
    irnic(folder).args(args).output().expect("irnic starts")
}

fn pipe(folder: &Folder) -> PathBuf {
    let path = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&path).status().expect("mkfifo starts").success());
    path
}

/// Opens a pipe for reading, as a reader that came first has it.
fn opened(pipe: &Path) -> fs::File {
    // A pipe opened for both does not wait for the other end.
    let both = fs::File::options().read(true).write(true).open(pipe).expect("a pipe");
    let reader = fs::File::open(pipe).expect("its end");
    drop(both);
    reader
}

#[test]
fn a_file_that_is_something_else_stays_and_is_told_of() {
    let folder = Folder::new();
    for (args, start) in [
        (&["run", "--pcap", "notes", "--", "echo", "started"][..], "irnic: --pcap: pcap \"notes\": "),
        (&["run", "--stats=notes", "--", "echo", "started"], "irnic: --stats: stats \"notes\": "),
        (&["run", "--pcap", "link", "--", "echo", "started"], "irnic: --pcap: pcap \"link\": it is a symbolic link"),
        (&["perf", "write-bw", "-n", "5", "--pcap", "notes"], "irnic perf: --pcap notes: "),
    ] {
        folder.write("notes", "years of work");
        let _ = std::os::unix::fs::symlink("notes", folder.path().join("link"));
        let output = run(&folder, args);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
        assert!(error.starts_with(start) && error.contains("expected") && error.lines().count() == 1, "{error}");
        assert!(output.stdout.is_empty(), "{args:?}");
        assert_eq!(fs::read_to_string(folder.path().join("notes")).unwrap(), "years of work");
    }
}

#[test]
fn the_library_itself_leaves_what_it_did_not_write() {
    let Some(()) = needs(&["ibv_devinfo"]) else { return };
    let folder = Folder::new();
    folder.write("notes", "years of work");
    // Set after `irnic run` has checked.
    let settings = ["IRNIC_STATS=notes", "IRNIC_PCAP=notes"];
    let output = run(&folder, &[&["run", "--", "env"][..], &settings, &["ibv_devinfo"]].concat());
    assert_eq!(fs::read_to_string(folder.path().join("notes")).unwrap(), "years of work");
    let error = text(&output.stderr);
    assert!(error.starts_with("irnic: statistics: notes: ") && error.lines().count() == 1, "{error}");
}

#[test]
fn earlier_captures_and_statistics_are_replaced() {
    let Some(()) = needs(&["ibv_devinfo"]) else { return };
    let folder = Folder::new();
    let (capture, report) = (folder.path().join("c.pcapng"), folder.path().join("s.json"));
    fs::write(&capture, [CAPTURE, &[0; 100_000]].concat()).unwrap();
    for _ in 0..2 {
        let output = run(&folder, &["run", "--pcap", "c.pcapng", "--stats=s.json", "--", "ibv_devinfo"]);
        assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
        let written = fs::read(&capture).unwrap();
        assert!(written.starts_with(&CAPTURE[..4]) && written.len() < 1000, "{} bytes", written.len());
        let report: serde_json::Value = serde_json::from_slice(&fs::read(&report).unwrap()).expect("JSON");
        assert_eq!(report["command"], "ibv_devinfo");
    }
    let output = run(&folder, &["perf", "write-bw", "-n", "5", "--port", "mem", "--pcap", "c.pcapng"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(fs::read(&capture).unwrap().len() > 1000);
}

#[test]
fn a_pipe_without_a_reader_is_told_of_and_not_waited_for() {
    let folder = Folder::new();
    pipe(&folder);
    let output = run(&folder, &["perf", "write-bw", "-n", "5", "--pcap", "pipe"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).starts_with("irnic perf: --pcap pipe: no process reads from this pipe"));
    let Some(()) = needs(&["ibv_devinfo"]) else { return };
    let output = run(&folder, &["run", "--pcap", "pipe", "--", "ibv_devinfo"]);
    let error = text(&output.stderr);
    assert!(error.contains("pipe: no process reads from this pipe"), "{error}");
}

#[test]
fn a_pipe_with_a_reader_has_every_packet() {
    let folder = Folder::new();
    let file = folder.path().join("file.pcapng");
    let pipe = pipe(&folder);
    let mut end = opened(&pipe);
    let reader = std::thread::spawn(move || {
        let mut read = Vec::new();
        // Slowly at first, so that the writer has to wait.
        std::thread::sleep(Duration::from_millis(200));
        end.read_to_end(&mut read).map(|_| read)
    });
    let args = ["perf", "write-bw", "-n", "100", "-s", "64K", "--port", "mem", "--pcap"];
    let output = run(&folder, &[&args[..], &["pipe"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let read = reader.join().expect("no panic").expect("all of it");
    fs::write(&file, &read).unwrap();
    // More than a pipe holds.
    assert!(read.len() > 1 << 20, "{} bytes", read.len());
    let decoded = run(&folder, &["decode", "file.pcapng"]);
    let last = text(&decoded.stdout).lines().count();
    // 100 messages of 64 packets at least, and their acknowledgements.
    assert!(decoded.status.success() && last > 1600, "{last} lines: {}", text(&decoded.stderr));
}

#[test]
fn an_application_outlives_the_reader_of_its_capture() {
    let Some(()) = needs(&["ibv_rc_pingpong"]) else { return };
    let folder = Folder::new();
    let pipe = pipe(&folder);
    let end = opened(&pipe);
    let port = free_port();
    let start = |options: &[&str], host: &[&str]| {
        let mut command = irnic(&folder);
        command.args(["run", "--address", "127.0.0.1"]).args(options).args([
            "--",
            "ibv_rc_pingpong",
            "-g",
            "0",
            "-n",
            "2000",
        ]);
        command
            .args(["-p", &port])
            .args(host)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("irnic starts")
    };
    let server = start(&["--pcap", "pipe"], &[]);
    await_listener(&port);
    drop(end);
    let client = start(&[], &["127.0.0.1"]);
    let (client, server) = (client.wait_with_output().unwrap(), server.wait_with_output().unwrap());
    assert!(client.status.success(), "{}", text(&client.stderr));
    // Not by a signal.
    assert_eq!(server.status.code(), Some(0), "{:?} {}", server.status, text(&server.stderr));
    assert!(text(&server.stderr).contains("the capture ended early: Broken pipe"), "{}", text(&server.stderr));
}
