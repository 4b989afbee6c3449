//! `irnic doctor`: each line, under the condition that it is about.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::{Folder, irnic, needs, skipped, text};
use irnic_testkit::wait;
use serde_json::Value;

/// What the doctor says of a matter, as verdict and text, and its exit status.
fn said(output: &Output, about: &str) -> (Vec<(String, String)>, i32) {
    let findings: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&output.stderr)));
    let findings = findings.as_array().expect("a list").iter().filter(|finding| finding["about"] == about);
    let word = |finding: &Value, key: &str| finding[key].as_str().unwrap_or_default().to_owned();
    let line = |finding: &Value| (word(finding, "verdict"), word(finding, "found") + "; " + &word(finding, "remedy"));
    (findings.map(line).collect(), output.status.code().expect("an exit status"))
}

/// Runs the doctor behind other programs, such as `taskset -c 0`.
fn behind(folder: &Folder, before: &[&str], arguments: &[&OsStr]) -> Output {
    let doctor = irnic(folder);
    let mut command = match before {
        [] => irnic(folder),
        [program, rest @ ..] => {
            let mut command = Command::new(program);
            command.args(rest).arg(doctor.get_program()).current_dir(folder.path());
            for (name, value) in doctor.get_envs() {
                match value {
                    Some(value) => command.env(name, value),
                    None => command.env_remove(name),
                };
            }
            command
        }
    };
    command.args(["doctor", "--json"]).args(arguments).stdin(Stdio::null()).output().expect("it runs")
}

#[track_caller]
fn finds(output: &Output, about: &str, verdict: &str, part: &str) {
    let (lines, status) = said(output, about);
    assert!(lines.iter().any(|(is, line)| is == verdict && line.contains(part)), "{about}: {part}: {lines:?}");
    assert_eq!(status, i32::from(text(&output.stdout).contains("\"wrong\"")), "{}", text(&output.stdout));
}

/// A shell's commands in a network namespace of their own, in which `lo` is up.
fn in_namespace(commands: &str) -> Option<[String; 5]> {
    let may = Command::new("unshare").args(["-rn", "true"]).stderr(Stdio::null()).status();
    if !may.is_ok_and(|status| status.success()) {
        skipped("the doctor in a network namespace: this user may make none");
        return None;
    }
    needs(&["ip"])?;
    let script = format!("ip link set lo up; {commands}\nexec \"$@\"");
    Some(["unshare", "-rn", "sh", "-c", &script].map(str::to_owned))
}

fn in_shell(command: &[String; 5]) -> Vec<&str> {
    // What the shell calls $0.
    command.iter().map(String::as_str).chain(["sh"]).collect()
}

#[test]
fn settings_and_libraries_are_looked_at_as_irnic_run_would() {
    let folder = Folder::new();
    let with = |name: &str, value: &str| {
        irnic(&folder).env(name, value).args(["doctor", "--json"]).output().expect("irnic runs")
    };
    finds(&with("IRNIC_TRANPORT", "irn"), "settings", "wrong", "did you mean \"IRNIC_TRANSPORT\"?");
    finds(&with("IRNIC_MTU", "1500"), "settings", "wrong", "expected 256, 512");
    finds(&with("IRNIC_LIBRARY", "/nonexistent"), "library", "wrong", "there is no such file");
    finds(&with("IRNIC_INTERFACE", "nix0"), "device", "wrong", "nix0");
    finds(&with("IRNIC_INTERFACE", "lo"), "device", "note", "this machine only");
    let lines = irnic(&folder).args(["doctor", "--quiet"]).env("IRNIC_MTU", "9").output().expect("irnic runs");
    let lines = text(&lines.stdout);
    assert!(lines.contains("wrong settings") && !lines.contains("ok "), "{lines}");
}

#[test]
fn interfaces_have_to_be_up_with_an_address_and_room_for_packets() {
    let folder = Folder::new();
    let dummy = "ip link add d0 type veth peer name d1; ip link set d1 up; export IRNIC_INTERFACE=d0";
    for (commands, about, verdict, part) in [
        (format!("{dummy}; ip addr add 10.9.9.1/24 dev d0"), "device", "wrong", "d0 is down"),
        (
            format!("{dummy}; sysctl -q net.ipv6.conf.d0.disable_ipv6=1; ip link set d0 up"),
            "device",
            "wrong",
            "ip addr add",
        ),
        (format!("{dummy}; ip addr add 10.9.9.1/24 dev d0; ip link set d0 up mtu 700"), "MTU", "note", "mtu 1500"),
    ] {
        let Some(command) = in_namespace(&commands) else { return };
        finds(&behind(&folder, &in_shell(&command), &[]), about, verdict, part);
    }
}

#[test]
fn port_4791_may_be_somebody_elses() {
    let Some(()) = needs(&["python3"]) else { return };
    let folder = Folder::new();
    let holder = "python3 -c \"
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('127.0.0.1', 4791))
open('bound', 'w').close(); time.sleep(60)\" & while [ ! -e bound ]; do sleep 0.01; done; export IRNIC_INTERFACE=lo
trap 'kill $!' EXIT; \"$@\"; exit";
    let Some(command) = in_namespace(holder) else { return };
    finds(&behind(&folder, &in_shell(&command), &[]), "UDP port 4791", "wrong", "127.0.0.1: a socket of user 0 has it");
    let Some(command) = in_namespace("export IRNIC_INTERFACE=lo") else { return };
    finds(&behind(&folder, &in_shell(&command), &[]), "UDP port 4791", "ok", "free");
}

#[test]
fn another_user_may_have_the_device() {
    let Some(()) = needs(&["ibv_rc_pingpong", "setpriv", "unshare"]) else { return };
    // SAFETY: no memory is passed.
    if unsafe { libc::getuid() } != 0 {
        return skipped("another user's device: that wants root");
    }
    // Where another user reaches the program and its library.
    let folder = Folder::new();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).expect("permissions");
    for (from, to) in
        [(Path::new(env!("CARGO_BIN_EXE_irnic")), "irnic"), (&crate::support::library(), "libirnic_verbs.so")]
    {
        std::fs::copy(from, folder.path().join(to)).expect("a copy");
    }
    let running = wait::shell_until("grep -q irnic/1/irnic0 /proc/net/unix");
    let script = format!(
        "ip link set lo up; export IRNIC_INTERFACE=lo XDG_RUNTIME_DIR=
        setpriv --reuid 65533 --clear-groups env TMPDIR=/tmp ./irnic run -- ibv_rc_pingpong -d irnic0 -g 0 >/dev/null 2>said &
        other=$!; trap 'kill $other; wait' EXIT
        {running}; \"$@\"; exit"
    );
    let output = behind(&folder, &["unshare", "-n", "sh", "-c", &script, "sh"], &[]);
    finds(&output, "other users", "wrong", "of user 65533 has irnic0 as well");
}

#[test]
fn limits_of_the_process_are_told() {
    let folder = Folder::new();
    let Some(()) = needs(&["taskset", "prlimit"]) else { return };
    finds(&behind(&folder, &["taskset", "-c", "0"], &[]), "processors", "note", "IRNIC_SPIN=0");
    finds(&behind(&folder, &["prlimit", "--memlock=65536:65536"], &[]), "memlock", "note", "64 KiB");
}

/// Mounts something over a file, for one command.
fn with_mount(mount: &str) -> Option<[String; 5]> {
    let script = format!("{mount} || exit 99\nexec \"$@\"");
    let command = ["unshare", "-rm", "sh", "-c", &script].map(str::to_owned);
    let may = Command::new(&command[0]).args(&command[1..]).args(["sh", "true"]).stderr(Stdio::null()).status();
    if !may.is_ok_and(|status| status.success()) {
        skipped(&format!("the doctor behind {mount}: this user may not mount"));
        return None;
    }
    Some(command)
}

#[test]
fn a_slow_clock_and_a_missing_library_are_told() {
    let folder = Folder::new();
    folder.write("clock", "acpi_pm\n");
    let place = folder.path().join("clock");
    let clock = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    if let Some(command) = with_mount(&format!("mount --bind {} {clock}", place.display())) {
        finds(&behind(&folder, &in_shell(&command), &[]), "clock", "note", "acpi_pm: each look at the clock");
    }
    let list = Command::new("ldconfig").arg("-p").output().map(|output| text(&output.stdout)).unwrap_or_default();
    let library = list.lines().find_map(|line| line.trim().strip_prefix("librdmacm.so.1 ")?.split(" => ").nth(1));
    let Some(library) = library else { return skipped("librdmacm is not installed") };
    let Some(command) = with_mount(&format!("mount --bind /dev/null {library}")) else { return };
    finds(&behind(&folder, &in_shell(&command), &[]), "librdmacm", "note", "librdmacm1");
    // A program that needs it does not start then.
    let output = behind(&folder, &in_shell(&command), &["--".as_ref(), "ib_write_bw".as_ref()]);
    let (lines, _) = said(&output, "program");
    assert!(!lines.is_empty(), "{}", text(&output.stdout));
}

#[test]
fn calls_that_seccomp_refuses_are_told() {
    let Some(()) = needs(&["python3"]) else { return };
    let folder = Folder::new();
    // A filter of one comparison: memfd_create (319 on x86-64, 279 on aarch64) fails with EPERM.
    folder.write(
        "filter.py",
        "import ctypes, os, platform, struct, sys
number = {'x86_64': 319, 'aarch64': 279}[platform.machine()]
code = struct.pack('HBBIHBBIHBBIHBBI', 0x20, 0, 0, 0, 0x15, 0, 1, number, 0x06, 0, 0, 0x50001, 0x06, 0, 0, 0x7fff0000)
held = ctypes.create_string_buffer(code)
program = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', 4, ctypes.addressof(held)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, program, 0, 0) == 0, os.strerror(ctypes.get_errno())
os.execvp(sys.argv[1], sys.argv[1:])
",
    );
    let output = behind(&folder, &["python3", "filter.py"], &[]);
    finds(&output, "system calls", "wrong", "memfd_create: Operation not permitted");
}

/// Compiles a C program; `None` if there is no compiler, or it lacks what it takes.
fn compiled(folder: &Folder, source: &str, options: &[&str]) -> Option<()> {
    needs(&["cc"])?;
    folder.write("program.c", source);
    let built = Command::new("cc")
        .current_dir(folder.path())
        .args(["program.c", "-o", "program"])
        .args(options)
        .output()
        .expect("cc runs");
    if !built.status.success() {
        skipped(&format!("cc {}: {}", options.join(" "), text(&built.stderr)));
        return None;
    }
    Some(())
}

fn of_program(folder: &Folder) -> Output {
    behind(folder, &[], &["--".as_ref(), "./program".as_ref(), "--its".as_ref()])
}

#[test]
fn programs_out_of_reach_are_named_with_the_reason() {
    const MAIN: &str = "int main(void) { return 0; }\n";
    let folder = Folder::new();
    if compiled(&folder, MAIN, &["-static"]).is_some() {
        finds(&of_program(&folder), "program", "wrong", "linked statically");
    }
    let defined = "int ibv_open_device(void) { return 0; }\nint main(void) { return ibv_open_device(); }\n";
    if compiled(&folder, defined, &[]).is_some() {
        finds(&of_program(&folder), "program", "wrong", "linked into it");
    }
    if compiled(&folder, MAIN, &[]).is_some() {
        finds(&of_program(&folder), "program", "ok", "./program");
        // SAFETY: no memory is passed.
        if unsafe { libc::getuid() } == 0 {
            let program = folder.path().join("program");
            std::os::unix::fs::chown(&program, Some(65533), None).expect("root");
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).expect("permissions");
            finds(&of_program(&folder), "program", "wrong", "setuid");
        } else {
            skipped("a setuid program of another user: that wants root");
        }
    }
    let output = behind(&folder, &[], &["--".as_ref(), "./nothing".as_ref()]);
    finds(&output, "program", "wrong", "./nothing: No such file");
    let script = |contents: &[u8], mode| {
        let path = folder.path().join("program.sh");
        std::fs::write(&path, contents).expect("a file");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("permissions");
        behind(&folder, &[], &["--".as_ref(), "./program.sh".as_ref()])
    };
    finds(&script(b"#!/bin/sh\n", 0o755), "program", "ok", "a script");
    finds(&script(b"#!/bin/sh\n", 0o644), "program", "wrong", "is not executable");
    finds(
        &script(b"#! /no/such/python3 -u\n", 0o755),
        "program",
        "wrong",
        "its interpreter, /no/such/python3, is not there",
    );
    finds(&script(b"\x7fELF\x02\x01\x01", 0o755), "program", "wrong", "is damaged");
}

#[test]
fn what_a_program_loads_is_told() {
    let folder = Folder::new();
    let uses = "int ibv_open_device(void);\nint main(void) { return ibv_open_device(); }\n";
    folder.write("own.c", "int ibv_open_device(void) { return 0; }\n");
    let Some(()) = needs(&["cc"]) else { return };
    let made = Command::new("cc")
        .current_dir(folder.path())
        .args(["-shared", "-fPIC", "own.c", "-o", "libibverbs-12ab.so.1", "-Wl,-soname,libibverbs-12ab.so.1"])
        .status();
    assert!(made.expect("cc runs").success());
    if compiled(&folder, uses, &["./libibverbs-12ab.so.1", "-Wl,-rpath,$ORIGIN"]).is_some() {
        finds(&of_program(&folder), "vendored", "note", "libibverbs-12ab.so.1");
        std::fs::remove_file(folder.path().join("libibverbs-12ab.so.1")).expect("it was there");
        finds(&of_program(&folder), "program", "wrong", "libibverbs-12ab.so.1, which is not found");
    }
    if compiled(&folder, "int main(void) { return 0; }\n", &["-fsanitize=address"]).is_some() {
        finds(&of_program(&folder), "sanitizer", "ok", "AddressSanitizer");
    }
    // A virtual environment with a wheel that brings a libibverbs.
    let libs = folder.path().join("venv/lib/python3.11/site-packages/app.libs");
    std::fs::create_dir_all(&libs).expect("folders");
    std::fs::create_dir_all(folder.path().join("venv/bin")).expect("folders");
    std::fs::write(libs.join("libibverbs-98.so.1"), "").expect("a file");
    std::os::unix::fs::symlink("/bin/true", folder.path().join("venv/bin/python3")).expect("a link");
    let output = behind(&folder, &[], &["--".as_ref(), "venv/bin/python3".as_ref()]);
    finds(&output, "vendored", "note", "libibverbs-98.so.1 comes with a wheel");
}

/// What dpkg says of an installed package, without Debian's revision: 1.17.0 of 1.17.0-3.
fn installed(package: &str) -> Option<String> {
    let output = Command::new("dpkg-query").args(["-W", "-f", "${Version}", package]).output().ok()?;
    let version = output.status.success().then(|| text(&output.stdout))?;
    Some(version.split('-').next()?.to_owned())
}

#[test]
fn versions_of_communication_libraries_are_those_of_their_releases() {
    let folder = Folder::new();
    for (program, package, name) in [("ucx_info", "libucx0", "UCX"), ("fi_info", "libfabric1", "libfabric")] {
        let Some(()) = needs(&[program]) else { continue };
        let Some(version) = installed(package) else { continue };
        let output = behind(&folder, &[], &["--".as_ref(), program.as_ref()]);
        finds(&output, "stack", "note", &format!("{name} {version}, /"));
    }
}

#[test]
fn packages_are_sought_where_python_looks_for_them() {
    let Some(()) = needs(&["python3"]) else { return };
    let folder = Folder::new();
    let packages = folder.path().join("elsewhere");
    for name in ["nvidia_nccl_cu12-2.28.9.dist-info", "nvidia_nvshmem_cu12-3.4.5.dist-info", "nixl_cu12.libs"] {
        std::fs::create_dir_all(packages.join(name)).expect("folders");
    }
    folder.write("elsewhere/nixl_cu12.libs/libucp-12ab.so.0.0.0", "");
    folder.write("train", "#!/usr/bin/env python3\n");
    let train = folder.path().join("train");
    std::fs::set_permissions(train, std::fs::Permissions::from_mode(0o755)).expect("permissions");
    for program in ["python3", "./train"] {
        let mut doctor = irnic(&folder);
        doctor.env("PYTHONPATH", &packages).args(["doctor", "--json", "--", program]);
        let output = doctor.output().expect("irnic runs");
        finds(
            &output,
            "stack",
            "note",
            "it crashes where a NIC is not mlx5 (net.cc); NCCL_GIN_ENABLE=0 NCCL_GIN_TYPE=2",
        );
        finds(&output, "stack", "note", "NVSHMEM_IB_DISABLE_DMABUF=1");
        finds(&output, "stack", "note", "/libucp-12ab.so.0.0.0; irnic run --sysfs");
    }
}

#[test]
fn a_healthy_device_has_nothing_wrong() {
    let folder = Folder::new();
    let output = irnic(&folder).args(["doctor", "--json"]).env("IRNIC_INTERFACE", "lo").output().expect("irnic runs");
    for about in ["library", "settings", "system calls", "segmentation"] {
        finds(&output, about, "ok", "");
    }
}
