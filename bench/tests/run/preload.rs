//! `irnic run` reaches programs that have a libibverbs of their own, and harms none that have nothing to do with RDMA.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::support::wheels::wheel;
use crate::support::{Folder, irnic, needs, skipped, text, with_sessions};

/// The header that the programs in C include.
const HEADER: &str = "/usr/include/infiniband/verbs.h";

/// The smallest wheel that is known to bring a libibverbs under another name, found by RPATH: 23 MB.
const BUNDLED: &str = "nixl==0.6.1";
/// A wheel with a program that transfers data: 46 MB.
const MOONCAKE: &str = "mooncake-transfer-engine-non-cuda==0.3.13.post1";

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

/// Whether programs in C can be built. If not, the test is skipped.
fn builds() -> Option<()> {
    needs(&["gcc"])?;
    if !Path::new(HEADER).exists() {
        skipped(&format!("there is no {HEADER}"));
        return None;
    }
    Some(())
}

/// Runs gcc in the folder.
fn gcc(folder: &Folder, args: &[&str]) {
    let output = Command::new("gcc").current_dir(folder.path()).args(args).output().expect("gcc starts");
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
}

/// Runs a command on irnic, with options.
fn run(folder: &Folder, options: &[&str], args: &[&str]) -> Output {
    irnic(folder)
        .args(["run", "--address", "127.0.0.1"])
        .args(options)
        .arg("--")
        .args(args)
        .output()
        .expect("it starts")
}

/// Sees that a program opens irnic's device, with the files under /sys and without.
fn assert_opens(folder: &Folder, args: &[&str]) {
    for options in [&[][..], &["--sysfs"]] {
        let output = run(folder, options, args);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success() && out == "irnic0 opened\n" && err.is_empty(), "{args:?}: {out}{err}");
    }
}

#[test]
fn programs_with_a_libibverbs_of_their_own_get_irnics() {
    let Some(()) = builds() else { return };
    let folder = Folder::new();
    let map = format!("-Wl,--version-script={}", source("own.map").display());
    let (own, lists) = (source("own.c"), source("lists.c"));
    // As auditwheel names it, and under its own name: an RPATH counts before LD_LIBRARY_PATH.
    for name in ["libibverbs-1de1263b.so.1.14.48.0", "libibverbs.so.1"] {
        std::fs::create_dir_all(folder.path().join("libs")).unwrap();
        let file = format!("libs/{name}");
        let soname = format!("-Wl,-soname,{name}");
        gcc(&folder, &["-shared", "-fPIC", "-o", &file, &soname, &map, own.to_str().unwrap()]);
        let rpath = "-Wl,--disable-new-dtags,-rpath,$ORIGIN/libs";
        gcc(&folder, &["-o", "program", rpath, lists.to_str().unwrap(), &file]);
        // Its own library finds nothing.
        let program = folder.path().join("program");
        assert_eq!(Command::new(&program).status().unwrap().code(), Some(3));
        assert_opens(&folder, &["./program"]);
        assert_opens(&folder, &["sh", "-c", "./program"]);
    }
}

#[test]
fn programs_that_load_libibverbs_while_they_run_get_irnics() {
    let Some(()) = builds() else { return };
    let folder = Folder::new();
    gcc(&folder, &["-o", "program", source("loads.c").to_str().unwrap(), "-ldl"]);
    assert_eq!(text(&run(&folder, &[], &["./program"]).stdout), "1 devices\n");
}

#[test]
fn programs_with_sanitizers_get_irnics() {
    let Some(()) = builds() else { return };
    let folder = Folder::new();
    let lists = source("lists.c");
    for (sanitizer, more) in [("address", ""), ("address", "-static-libasan"), ("undefined", ""), ("leak", "")] {
        let mut command = Command::new("gcc");
        command.current_dir(folder.path()).arg(format!("-fsanitize={sanitizer}"));
        command.args((!more.is_empty()).then_some(more)).args(["-o", "program"]).arg(&lists).arg("-libverbs");
        if !command.output().expect("gcc starts").status.success() {
            skipped(&format!("gcc has no -fsanitize={sanitizer} {more} here"));
            continue;
        }
        assert_opens(&folder, &["./program"]);
        // Test runners set options of their own for their children.
        assert_opens(&folder, &["sh", "-c", "ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1 ./program"]);
    }
}

#[test]
fn a_program_of_another_c_library_is_told_of_and_started() {
    let Some(()) = needs(&["musl-gcc"]) else { return };
    let folder = Folder::new();
    folder.write("seven.c", "int main(void) { return 7; }\n");
    let built = Command::new("musl-gcc").current_dir(folder.path()).args(["-o", "seven", "seven.c"]).output().unwrap();
    assert!(built.status.success(), "{}", text(&built.stderr));
    for options in [&[][..], &["--sysfs"]] {
        let output = run(&folder, options, &["./seven"]);
        let said = text(&output.stderr);
        assert!(said.starts_with("irnic: ./seven does not run on irnic: its C library is musl"), "{said}");
        assert_eq!((output.status.code(), said.lines().count()), (Some(7), 1), "{said}");
    }
}

/// The files of a directory whose names begin so.
fn files(directory: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))).collect()
}

#[test]
fn a_wheels_own_libibverbs_gives_way() {
    let Some(()) = builds().and(needs(&["python3"])) else { return };
    let Some(home) = wheel(BUNDLED, |line| line.contains("nixl.libs/libibverbs-")) else { return };
    let folder = Folder::new();
    let libs = home.join("nixl.libs");
    let [library] = &files(&libs, "libibverbs-")[..] else { panic!("one libibverbs in {}", libs.display()) };
    let rpath = format!("-Wl,--disable-new-dtags,-rpath,{}", libs.display());
    let (lists, library) = (source("lists.c"), library.to_str().unwrap());
    gcc(&folder, &["-o", "program", &rpath, lists.to_str().unwrap(), library, "-Wl,--allow-shlib-undefined"]);
    let needed = Command::new("ldd").arg(folder.path().join("program")).output().expect("ldd starts");
    assert!(text(&needed.stdout).contains(library), "{}", text(&needed.stdout));
    assert_opens(&folder, &["./program"]);
}

#[test]
fn mooncakes_benchmark_transfers_over_irnic() {
    let Some(()) = needs(&["python3", "ldd", "timeout"]) else { return };
    let Some(home) = wheel(MOONCAKE, |line| line.contains("mooncake/transfer_engine_bench")) else { return };
    let program = home.join("mooncake/transfer_engine_bench");
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let missing = text(&Command::new("ldd").arg(&program).output().expect("ldd starts").stdout);
    if let Some(line) = missing.lines().find(|line| line.contains("not found")) {
        skipped(&format!("{MOONCAKE}: {}", line.trim()));
        return;
    }
    let folder = Folder::new();
    let start = |mode: &str, more: &[&str]| {
        let log = folder.path().join(mode);
        let mut command = irnic(&folder);
        command.args(["run", "--sysfs", "--", "timeout", "120"]).arg(&program).arg(format!("-mode={mode}"));
        command.args(["-metadata_server=P2PHANDSHAKE", "-protocol=rdma", "-device_name=irnic0", "-threads=1"]);
        command.args(["-local_server_name=127.0.0.1", "-buffer_size=16777216"]).args(more);
        let to = std::fs::File::create(&log).unwrap();
        (command.stderr(to.try_clone().unwrap()).stdout(to).spawn().expect("irnic starts"), log)
    };
    let (mut target, log) = start("target", &[]);
    // The target says where it listens.
    let listens = || {
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        let (_, rest) = said.split_once("listening on ")?;
        let (address, _) = rest.split_once('\n')?;
        said.contains("DRAM is used").then(|| address.trim().to_owned())
    };
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let mut address = None;
    while address.is_none() && std::time::Instant::now() < until && matches!(target.try_wait(), Ok(None)) {
        std::thread::sleep(std::time::Duration::from_millis(20));
        address = listens();
    }
    let said = |log: &Path| std::fs::read_to_string(log).unwrap_or_default();
    let mut outcomes = Vec::new();
    for operation in address.iter().flat_map(|_| ["read", "write"]) {
        let (segment, operation) =
            (format!("-segment_id={}", address.as_deref().unwrap_or_default()), format!("-operation={operation}"));
        let more = [&segment, &operation, "-duration=1", "-batch_size=8", "-block_size=65536"];
        let (mut initiator, log) = start("initiator", &more);
        let status = initiator.wait().unwrap();
        outcomes.push((operation, status.success(), said(&log)));
    }
    // SAFETY: the process is a child that was not waited for.
    unsafe { libc::kill(target.id() as libc::pid_t, libc::SIGTERM) };
    target.wait().unwrap();
    assert_eq!(outcomes.len(), 2, "the target does not listen: {}", said(&log));
    for (operation, success, said) in outcomes {
        let batches = said.split_once("batch count ").and_then(|(_, rest)| rest.split(',').next()?.parse::<u64>().ok());
        assert!(success && batches.is_some_and(|n| n > 0), "{operation}: {said}");
        assert!(!said.lines().any(|line| line.starts_with('E')), "{operation}: {said}");
    }
}

#[test]
fn programs_without_rdma_notice_nothing() {
    let folder = Folder::new();
    let script =
        "ls /proc/self/fd /proc/self/task | grep -v '^[0-9]*$'; echo $$ >/dev/null; ls /nosuch; printf done; exit 5";
    let plain = Command::new("sh").args(["-c", script]).env("LC_ALL", "C").stdin(Stdio::null()).output().unwrap();
    for options in [&[][..], &["--sysfs"]] {
        let output = run(&folder, options, &["sh", "-c", script]);
        assert_eq!(output.status.code(), Some(5));
        assert_eq!(text(&output.stdout), text(&plain.stdout));
        assert_eq!(text(&output.stderr), text(&plain.stderr));
    }
}

#[test]
fn preloading_starts_nothing() {
    let folder = Folder::new();
    // Of a shell that is itself on irnic: its threads, its descriptors, and which of irnic's files it has.
    let script = "set -- /proc/$$/task/*; echo $#; set -- /proc/$$/fd/*; echo $#; while read a b c d e f; do case $f in \
                  *libirnic_*) echo ${f##*/};; esac; done </proc/$$/maps";
    let lines = |output: Output| text(&output.stdout).lines().map(str::to_owned).collect::<Vec<_>>();
    let mut plain = Command::new("sh");
    let plain = lines(plain.args(["-c", script]).stdin(Stdio::null()).output().unwrap());
    let output = lines(run(&folder, &[], &["sh", "-c", script]));
    assert_eq!(plain.len(), 2, "{plain:?}");
    assert_eq!(output[..2], plain[..]);
    // The proof that it was preloaded at all.
    assert!(output.len() > 2 && output[2..].iter().all(|file| file == "libirnic_verbs.so"), "{output:?}");
}

#[test]
fn settings_matter_to_programs_that_open_a_device_only() {
    let folder = Folder::new();
    for setting in
        ["IRNIC_PORT=tcp", "IRNIC_CONFIG=/nosuch", "IRNIC_NOSUCH=1", "IRNIC_PCAP=/nosuch/x", "IRNIC_SYSFS=/nosuch"]
    {
        for args in [&["true"][..], &["sh", "-c", "ls >/dev/null; :"]] {
            let output = run(&folder, &["--sysfs"], &[&["env", setting], args].concat());
            assert!(output.status.success() && output.stderr.is_empty(), "{setting}: {}", text(&output.stderr));
        }
    }
}

#[test]
fn interpreters_and_launchers_work_as_ever() {
    let folder = Folder::new();
    let python = "import subprocess, threading, sys; t = threading.Thread(target=lambda: print('thread')); t.start(); t.join(); \
                  print(subprocess.check_output(['sh', '-c', 'echo child']).decode(), end='')";
    let shell = "echo thread; echo child | cat";
    for args in [
        &["bash", "-c", shell][..],
        &["python3", "-c", python],
        &["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "1", "sh", "-c", shell],
    ] {
        let needed = args[0];
        let Some(()) = needs(&[needed]) else { continue };
        let mut plain = Command::new(needed);
        let plain = with_sessions(&mut plain, &folder)
            .args(&args[1..])
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let output = run(&folder, &["--sysfs"], args);
        assert_eq!(text(&output.stdout), "thread\nchild\n", "{needed}: {}", text(&output.stderr));
        assert_eq!(text(&output.stderr), text(&plain.stderr), "{needed}");
    }
}
