//! `irnic lab` as a user runs it: unmodified applications on an emulated network. Times of the network are not those of
//! this machine, so that nothing here depends on how fast that is.

use std::io::BufRead;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use crate::support::{Folder, free_port, irnic, listens, needs, text};
use irnic_testkit::wait;
use serde_json::Value;

/// A host of a lab file that runs a program.
fn host(number: u32, service: bool, command: &str) -> String {
    format!("[[host]]\nhost = {number}\nservice = {service}\ncommand = '''{command}'''\n")
}

/// A client's command, once its server listens.
fn client(port: &str, command: &str) -> String {
    format!("{}; {command} > client.txt 2>&1", listens(port))
}

/// A sender on host 1 whose link is ten times as fast as the one between the switches to host 0: that one decides,
/// whenever anything happens.
fn bottleneck(settings: &str, options: &str) -> String {
    let port = free_port();
    let program = format!("ib_write_bw -d irnic0 -p {port} {options}");
    format!("topology = 'dumbbell:left=1,right=1,rate=10G,bottleneck=1G,delay=2us'\n{settings}\n")
        + &host(0, false, &format!("{program} > server.txt"))
        + &host(1, false, &client(&port, &format!("{program} 127.77.0.1")))
}

fn lab(folder: &Folder, file: &str) -> (Output, Value) {
    folder.write("lab.toml", file);
    let output = irnic(folder).args(["lab", "lab.toml", "--json", "lab.json"]).output().unwrap();
    let json = std::fs::read(folder.path().join("lab.json")).unwrap_or_default();
    let json = serde_json::from_slice(&json).unwrap_or_else(|e| panic!("{e}: {}", text(&output.stderr)));
    (output, json)
}

#[track_caller]
fn succeeded(folder: &Folder, output: &Output) {
    let said = |entry: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(entry.unwrap().path()).unwrap();
    if !output.status.success() {
        let files: Vec<String> = std::fs::read_dir(folder.path()).unwrap().map(said).collect();
        panic!("{}\n{}", text(&output.stderr), files.join("\n"));
    }
}

fn number(json: &Value, key: &str) -> u64 {
    json[key].as_u64().unwrap_or_else(|| panic!("no {key} in {json}"))
}

/// Frames that one host has sent another, and how many of them arrived.
fn pair(json: &Value, from: u32, to: u32) -> (u64, u64) {
    let pairs = json["pairs"].as_array().unwrap();
    let pair = pairs.iter().find(|pair| pair["from"] == from && pair["to"] == to);
    pair.map_or((0, 0), |pair| (number(pair, "sent"), number(pair, "arrived")))
}

#[test]
fn frames_cross_three_switches_and_none_is_late() {
    let Some(()) = needs(&["ib_write_bw"]) else { return };
    let folder = Folder::new();
    let port = free_port();
    let program = format!("ib_write_bw -d irnic0 -p {port} -n 100");
    let file = "topology = 'leaf-spine:leaves=2,spines=1,hosts=1,rate=10G,delay=2us'\n".to_owned()
        + &host(0, false, &format!("{program} > server.txt"))
        + &host(1, false, &client(&port, &format!("{program} 127.77.0.1")));
    let (output, json) = lab(&folder, &file);
    succeeded(&folder, &output);
    // 100 messages of 64 KiB, in packets of 1,024 bytes.
    assert_eq!((pair(&json, 1, 0), number(&json, "late_frames")), ((6_400, 6_400), 0), "{json}");
    assert_eq!((number(&json, "dropped"), number(&json, "unclaimed_frames")), (0, 0), "{json}");
    let through = json["ports"].as_array().unwrap().iter().filter(|port| number(port, "bytes") > 6_400 * 1_024).count();
    assert_eq!(through, 4, "host, leaf, spine, leaf: {json}");
    let summary = text(&output.stderr);
    assert!(summary.contains("fidelity: no frame was late"), "{summary}");
    let [busy, took] = ["lab_ns", "host_ns"].map(|clock| number(&json["busy"], clock));
    assert!(busy > 0 && busy <= number(&json, "lab_ns") && took <= number(&json, "host_ns"), "{json}");
    assert_eq!(summary.contains("rates that programs print"), took as f64 >= 1.1 * busy as f64, "{summary}");
    let client = std::fs::read_to_string(folder.path().join("client.txt")).unwrap();
    assert!(client.contains("127:77:00:02"), "the client is host 1: {client}");
}

#[test]
fn what_switches_drop_is_sent_again() {
    let Some(()) = needs(&["ib_write_bw"]) else { return };
    let folder = Folder::new();
    let (output, json) = lab(&folder, &bottleneck("buffer = '30KB'", "-n 40"));
    succeeded(&folder, &output);
    let dropped = number(&json, "dropped");
    let (sent, arrived) = pair(&json, 1, 0);
    assert!(dropped > 0, "{json}");
    assert_eq!((arrived + dropped, number(&json, "late_frames")), (sent, 0), "{json}");
    assert!(arrived >= 40 * 64, "all of it: {json}");
}

#[test]
fn pauses_reach_the_nics_of_processes() {
    let Some(()) = needs(&["ib_write_bw"]) else { return };
    let folder = Folder::new();
    let settings = "transport = 'roce'\npfc = 'on'\nbuffer = '60KB'";
    let (output, json) = lab(&folder, &bottleneck(settings, "-n 40"));
    succeeded(&folder, &output);
    assert_eq!((number(&json, "dropped"), number(&json, "late_frames")), (0, 0), "{json}");
    assert!(number(&json, "pauses") > 0 && number(&json, "paused_ns") > 0, "{json}");
    assert_eq!(pair(&json, 1, 0), (2_560, 2_560), "nothing is sent twice: {json}");
}

#[test]
fn marks_reach_the_rate_control_of_processes() {
    let Some(()) = needs(&["ib_write_bw"]) else { return };
    let run = |settings: &str| {
        let folder = Folder::new();
        let (output, json) = lab(&folder, &bottleneck(settings, "-n 200"));
        succeeded(&folder, &output);
        assert_eq!(number(&json, "late_frames"), 0, "{json}");
        let queue = json["ports"].as_array().unwrap().iter().map(|port| number(port, "peak_bytes")).max();
        (number(&json, "marked"), number(&json, "dropped"), queue)
    };
    // Without a cap the sender fills the buffer, unless the marks tell it not to.
    let (marked, dropped, _) = run("transport = 'irn-no-bdp'\ncc = 'dcqcn'");
    let (unmarked, more, _) = run("transport = 'irn-no-bdp'");
    assert!(marked > 0 && unmarked == 0, "{marked} {unmarked}");
    assert!(dropped < more, "{dropped} {more}");
}

#[test]
fn telemetry_reaches_the_rate_control_of_processes() {
    let Some(()) = needs(&["ib_write_bw"]) else { return };
    let longest = |settings: &str| {
        let folder = Folder::new();
        let (output, json) = lab(&folder, &bottleneck(settings, "-n 100"));
        succeeded(&folder, &output);
        assert_eq!(number(&json, "late_frames"), 0, "{json}");
        json["ports"].as_array().unwrap().iter().map(|port| number(port, "peak_bytes")).max().unwrap()
    };
    let (with, without) = (longest("transport = 'irn-no-bdp'\ncc = 'hpcc'"), longest("transport = 'irn-no-bdp'"));
    assert!(with * 4 < without, "the sender keeps the queue short: {with} {without}");
}

#[test]
fn a_terminal_is_the_commands() {
    let Some(()) = needs(&["python3"]) else { return };
    let folder = Folder::new();
    let program = env!("CARGO_BIN_EXE_irnic");
    let command = format!("['{program}', 'lab', '--quiet', '--', 'sh', '-c', 'read x; echo got $x']");
    // `pty.spawn` passes on what it reads; a command in the background would be stopped.
    let script = format!("import pty, sys; sys.exit(pty.spawn({command}) >> 8)");
    let mut python = irnic(&folder);
    let environment: Vec<_> = python.get_envs().map(|(k, v)| (k.to_owned(), v.map(ToOwned::to_owned))).collect();
    python = Command::new("python3");
    environment.into_iter().for_each(|(k, v)| _ = v.map(|v| python.env(k, v)));
    let mut python = python.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(python.stdin.as_mut().unwrap(), b"this\n").unwrap();
    let output = python.wait_with_output().unwrap();
    assert!(text(&output.stdout).contains("got this"), "{}", text(&output.stdout));
}

#[test]
fn a_process_that_is_stopped_has_no_timeout() {
    let Some(()) = needs(&["ib_write_bw"]) else { return };
    let folder = Folder::new();
    let port = free_port();
    let program = format!("ib_write_bw -d irnic0 -p {port} -n 1000");
    // The one that receives is stopped while packets come, for far longer than any timeout; the lab stands still.
    let ctl = format!("'{}' ctl", env!("CARGO_BIN_EXE_irnic"));
    let stops = format!(
        "{program} > server.txt & until {ctl} stats | grep -q arrived.:[0-9][0-9][0-9][0-9]; do sleep 0.02; done; \
         kill -STOP $!; sleep 0.5; {ctl} time > before.json; sleep 2; {ctl} time > after.json; kill -CONT $!; wait $!"
    );
    let file = "topology = 'star:hosts=2,rate=1G,delay=2us'\n".to_owned()
        + &host(0, false, &stops)
        + &host(1, false, &client(&port, &format!("IRNIC_STATS=stats.json {program} 127.77.0.1")));
    let (output, json) = lab(&folder, &file);
    succeeded(&folder, &output);
    assert_eq!((pair(&json, 1, 0), number(&json, "late_frames")), ((64_000, 64_000), 0), "sent once: {json}");
    let time = |name: &str| {
        let said = std::fs::read(folder.path().join(name)).unwrap();
        number(&serde_json::from_slice(&said).unwrap(), "ns")
    };
    let passed = time("after.json") - time("before.json");
    assert!(passed < 1_000_000, "{passed} ns of the lab's time have passed in 2 s");
    let stats: Value = serde_json::from_slice(&std::fs::read(folder.path().join("stats.json")).unwrap()).unwrap();
    let queue_pairs = stats["devices"][0]["queue_pairs"].as_array().unwrap_or_else(|| panic!("{stats}"));
    assert!(!queue_pairs.is_empty() && queue_pairs.iter().all(|qp| number(qp, "timeouts") == 0), "{stats}");
}

/// Starts a lab with a transfer that would take for ever, and a client that stays when that ends, and waits until
/// frames flow.
fn endless(folder: &Folder) -> Child {
    let port = free_port();
    let program = format!("ib_write_bw -d irnic0 -p {port} --run_infinitely -D 1");
    let file = "topology = 'star:hosts=2,rate=1G,delay=2us'\n".to_owned()
        + &host(0, false, &format!("echo $$ > server.pid; exec {program} > server.txt 2>&1"))
        + &host(1, false, &format!("{}; exec sleep 1000", client(&port, &format!("{program} 127.77.0.1"))));
    folder.write("lab.toml", &file);
    let mut command = irnic(folder);
    command.args(["lab", "lab.toml", "--json", "lab.json"]).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    await_text(&folder.path().join("client.txt"), "65536  ");
    child
}

#[track_caller]
fn await_text(file: &Path, part: &str) {
    let says = || std::fs::read_to_string(file).unwrap_or_default();
    wait::until(&format!("{} says {part}", file.display()), || says().contains(part));
}

/// Processes that have this folder as theirs.
fn left_in(folder: &Folder) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok).map(|entry| entry.path());
    let here = |path: &std::path::PathBuf| std::fs::read_link(path.join("cwd")).is_ok_and(|cwd| cwd == folder.path());
    let zombie =
        |path: &std::path::PathBuf| std::fs::read_to_string(path.join("stat")).is_ok_and(|stat| stat.contains(") Z "));
    let name = |path: std::path::PathBuf| std::fs::read_to_string(path.join("cmdline")).unwrap_or_default();
    processes.filter(here).filter(|path| !zombie(path)).map(name).collect()
}

#[track_caller]
fn await_all_ended(folder: &Folder) {
    wait::until("all processes have ended", || left_in(folder).is_empty());
}

#[test]
fn a_lab_goes_on_without_a_host_that_is_killed() {
    let Some(()) = needs(&["ib_write_bw"]) else { return };
    let folder = Folder::new();
    let lab = endless(&folder);
    let server = std::fs::read_to_string(folder.path().join("server.pid")).unwrap();
    assert!(Command::new("kill").args(["-9", server.trim()]).status().unwrap().success());
    // The client's packets are no longer answered: transport retry counter exceeded.
    await_text(&folder.path().join("client.txt"), "Failed status 12");
    assert!(Command::new("kill").arg(lab.id().to_string()).status().unwrap().success());
    let output = lab.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("exit status 137"), "{}", text(&output.stderr));
    await_all_ended(&folder);
}

#[test]
fn nothing_is_left_of_a_lab_that_is_killed() {
    let Some(()) = needs(&["ib_write_bw"]) else { return };
    let folder = Folder::new();
    let mut lab = endless(&folder);
    lab.kill().unwrap();
    lab.wait().unwrap();
    await_all_ended(&folder);
    let names = std::fs::read_to_string("/proc/net/unix").unwrap();
    assert!(!names.contains(&format!("@irnic-lab-{}-", lab.id())), "{names}");
}

#[test]
fn processes_are_hosts_by_number_and_rank() {
    let Some(()) = needs(&["ibv_devinfo"]) else { return };
    let folder = Folder::new();
    let script = "ibv_devinfo -v | grep 'GID\\['; IRNIC_LAB_HOST=3 ibv_devinfo -v | grep 'GID\\['; \
                  OMPI_COMM_WORLD_RANK=6 ibv_devinfo -v | grep 'GID\\['; IRNIC_LAB_HOST=4 ibv_devinfo";
    let output = irnic(&folder)
        .args(["lab", "--topology", "star:hosts=4", "--quiet", "--", "sh", "-c", script])
        .output()
        .unwrap();
    let said = text(&output.stdout);
    let addresses: Vec<&str> = said.lines().filter_map(|line| line.split("::ffff:").nth(1)).collect();
    assert!(addresses.iter().zip(["127.77.0.1", "127.77.0.4", "127.77.0.3"]).all(|(a, b)| a.starts_with(b)), "{said}");
    assert_eq!(addresses.len(), 3, "{said}");
    let error = text(&output.stderr);
    assert!(error.contains("there is no host 4; expected 0 to 3"), "{error}");
}

/// However long the server takes to its start, and whatever else listens there.
#[test]
fn a_command_can_wait_for_a_server_that_listens() {
    let Some(()) = needs(&["ib_write_bw"]) else { return };
    let folder = Folder::new();
    let perftest = format!("ib_write_bw -d irnic0 -n 100 -p {}", free_port());
    let by_rdma_cm = format!("ib_write_bw -R -d irnic0 -n 100 -p {}", free_port());
    let file = format!(
        "topology = 'star:hosts=3,rate=10G,delay=2us'\n\
         [[host]]\nhost = 0\nservice = true\ncommand = 'sleep 3; exec {perftest} > server.txt'\n\
         [[host]]\nhost = 1\nafter = 'h0'\ncommand = '{perftest} 127.77.0.1 > client.txt'\n\
         [[host]]\nhost = 2\nafter = 'h2'\nservice = true\ncommand = 'exec {by_rdma_cm} > /dev/null'\n\
         [[host]]\nhost = 1\nafter = 'h2'\ncommand = '{by_rdma_cm} 127.77.0.3 > by-rdma-cm.txt'\n",
    );
    let run = |file: &str| {
        folder.write("waits.toml", file);
        irnic(&folder).args(["lab", "waits.toml"]).output().unwrap()
    };
    let refused = text(&run(&file).stderr);
    assert!(
        refused.contains("waits.toml:10: after = \"h2\": host 2 has a command that waits for this one"),
        "{refused}"
    );
    let output = run(&file.replacen("'h2'", "'h0'", 1));
    let error = text(&output.stderr);
    assert!(output.status.success(), "{error}");
    assert!(error.contains("irnic lab: waiting until the commands of host 0 listen, or end"), "{error}");
    for name in ["client.txt", "by-rdma-cm.txt"] {
        let client = std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(client.contains("65536"), "{name}: {client}");
    }
}

#[test]
fn what_an_interrupt_keeps_from_starting_has_not_passed() {
    let folder = Folder::new();
    folder.write(
        "waits.toml",
        "topology = 'star:hosts=2'\n[[host]]\nhost = 0\ncommand = 'exec sleep 1000'\n\
         [[host]]\nhost = 1\nafter = 'h0'\ncommand = 'true'\n",
    );
    let mut lab = irnic(&folder);
    lab.args(["lab", "waits.toml", "--junit", "junit.xml", "--json", "lab.json"]).stderr(Stdio::piped());
    let mut lab = lab.spawn().unwrap();
    let said = std::io::BufReader::new(lab.stderr.take().unwrap());
    let said = said.lines().map(Result::unwrap).inspect(|line| {
        if line.contains("irnic lab: waiting until the commands of host 0 listen") {
            // SAFETY: no memory is passed; the process has not been waited for.
            unsafe { libc::kill(lab.id() as libc::pid_t, libc::SIGINT) };
        }
    });
    let said: Vec<String> = said.collect();
    assert_eq!(lab.wait().unwrap().code(), Some(130), "{said:?}");
    let junit = std::fs::read_to_string(folder.path().join("junit.xml")).unwrap();
    assert!(junit.contains("failures=\"1\"") && junit.contains("<skipped"), "{junit}");
    let json: Value = serde_json::from_slice(&std::fs::read(folder.path().join("lab.json")).unwrap()).unwrap();
    let statuses: Vec<_> = json["commands"].as_array().unwrap().iter().map(|one| one["status"].as_u64()).collect();
    assert_eq!(statuses, [Some(143), None]);
}

#[test]
fn a_control_socket_replaces_no_file_and_removes_none() {
    let folder = Folder::new();
    folder.write("precious", "precious");
    let output = irnic(&folder).args(["lab", "--quiet", "--control", "precious", "--", "true"]).output().unwrap();
    let error = text(&output.stderr);
    assert!(output.status.code() == Some(1) && error.contains("precious: Address already in use"), "{error}");
    assert_eq!(std::fs::read_to_string(folder.path().join("precious")).unwrap(), "precious");
}

#[test]
fn the_exit_status_is_the_commands() {
    let folder = Folder::new();
    let output = irnic(&folder).args(["lab", "--quiet", "--", "sh", "-c", "echo said; exit 7"]).output().unwrap();
    assert_eq!(
        (output.status.code(), text(&output.stdout), text(&output.stderr)),
        (Some(7), "said\n".into(), "".into())
    );
    let output = irnic(&folder).args(["lab", "--", "/nonexistent/program"]).output().unwrap();
    assert_eq!(output.status.code(), Some(127), "{}", text(&output.stderr));
    // Also if the summary is lost.
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let status = irnic(&folder).args(["lab", "--", "sh", "-c", "exit 7"]).stderr(full).status().unwrap();
    assert_eq!(status.code(), Some(7));
}

#[test]
fn what_makes_no_sense_is_told_in_one_line_before_anything_starts() {
    let folder = Folder::new();
    folder.write("host.toml", "topology = 'star:hosts=2'\n[[host]]\nhost = 2\ncommand = 'touch started'\n");
    folder.write("key.toml", "[[host]]\nhost = 0\ncomand = 'touch started'\n");
    folder.write("none.toml", "[[host]]\nhost = 0\n");
    folder.write("clock.toml", "clock = 'slow'\n");
    folder.write("hots.toml", "[[hots]]\nhost = 0\n");
    folder.write("when.toml", "[[host]]\nhost = 0\ncommand = 'x'\nafter = 'soon'\n");
    folder.write("never.toml", "[[host]]\nhost = 0\ncommand = 'touch started'\nafter = 'h1'\n");
    let touch = ["--", "touch", "started"];
    for (arguments, part) in [
        (vec!["--topology", "torus:hosts=3"], "star, dumbbell"),
        (vec!["--topology", "star:hosts=2", "--topology", "star:hosts=3"], "2 networks"),
        (vec!["--clock", "slow"], "expected elastic, realtime"),
        (vec!["--clock", "virtaul"], "; did you mean \"virtual\"?"),
        (vec!["hots.toml"], "hots.toml:1: unknown key \"hots\"; known are topology, "),
        (vec!["hots.toml"], ", clock, netns, tcp, [[host]]; did you mean \"host\"?"),
        (vec!["--max-lag", "x"], "a time such as"),
        (vec!["--sample", "0"], "expected a time of at least 1 ns"),
        (vec!["--topology", "star:hosts=2", "--guest", "2=tap:x"], "there is no host 2 for a guest; expected 0 to 1"),
        (vec!["--json", "a", "--csv", "./a"], "./a: it has the content of another file already"),
        (vec!["--mtu", "8192"], "256 to 4096"),
        (vec!["host.toml"], "there is no host 2; expected 0 to 1"),
        (vec!["key.toml"], "key.toml:3: unknown key \"comand\" of a host; known are host, command, "),
        (vec!["key.toml"], "; did you mean \"command\"?"),
        (vec!["none.toml"], "none.toml:1: a host has a command"),
        (vec!["clock.toml"], "clock.toml:1: clock = \"slow\": expected elastic"),
        (vec!["when.toml"], "when.toml:4: after = \"soon\": expected a time"),
        (vec!["never.toml"], "never.toml:1: after = \"h1\": host 1 has no command"),
        (vec!["missing.toml"], "missing.toml: No such file"),
    ] {
        let output = irnic(&folder).arg("lab").args(&arguments).args(touch).output().unwrap();
        let error = text(&output.stderr);
        assert_eq!((output.status.code(), error.lines().count()), (Some(2), 1), "{arguments:?}: {error}");
        assert!(error.starts_with("irnic: ") && error.contains(part), "{arguments:?}: {error}");
        assert!(!folder.path().join("started").exists(), "{arguments:?}");
    }
    let output = irnic(&folder).arg("lab").output().unwrap();
    assert!(text(&output.stderr).contains("there is nothing to run"), "{}", text(&output.stderr));
}
