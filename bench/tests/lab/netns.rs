//! `irnic lab --netns`: each host has a network of its own for what is not RDMA, and nothing of it stays behind.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Folder, irnic, needs, skipped, text};
use irnic_testkit::{shim, wait};
use serde_json::Value;

/// Whether this user may have what is needed. If not, the test is skipped.
pub fn permitted() -> Option<()> {
    needs(&["ip", "unshare"])?;
    let tried = Command::new("unshare").args(["--map-root-user", "--net", "--mount", "true"]).output().unwrap();
    if !tried.status.success() {
        skipped(&format!("there are no namespaces: {}", text(&tried.stderr).trim()));
        return None;
    }
    Some(())
}

/// Runs a lab with these options, and returns what it and `lab.json` say.
fn lab(folder: &Folder, mut command: Command, options: &[&str]) -> (Output, Value) {
    // A launcher of parallel jobs refuses to be run by root, as in containers and user namespaces, unless told twice.
    command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
    // UCX gives up on a peer that says nothing for 30 s, which a crowded machine may make of a rank that spins.
    command.envs([("UCX_UD_VERBS_TIMEOUT", "300s"), ("UCX_KEEPALIVE_INTERVAL", "inf")]);
    let output = command.args(["lab", "--json", "lab.json"]).args(options).output().unwrap();
    let json = std::fs::read(folder.path().join("lab.json")).unwrap_or_default();
    let json = serde_json::from_slice(&json).unwrap_or_default();
    (output, json)
}

/// Runs a script in the launcher's namespace of a lab of so many hosts; `$IRNIC` is the program.
fn script(folder: &Folder, hosts: u32, script: &str) -> (String, Value) {
    let mut command = irnic(folder);
    command.env("IRNIC", env!("CARGO_BIN_EXE_irnic"));
    let topology = format!("leaf-spine:leaves={hosts},spines=1,hosts=1,rate=10G,delay=2us");
    let (output, json) = lab(folder, command, &["--netns", "--topology", &topology, "--", "sh", "-ec", script]);
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}");
    assert_eq!(json["late_frames"], 0, "{json}");
    (said, json)
}

/// Frames that one host has sent another, as far as these arrived.
fn arrived(json: &Value, from: u32, to: u32) -> u64 {
    let mut pairs = json["pairs"].as_array().unwrap_or_else(|| panic!("{json}")).iter();
    let pair = pairs.find(|pair| pair["from"] == from && pair["to"] == to);
    pair.map_or(0, |pair| pair["arrived"].as_u64().unwrap())
}

/// Each of so many hosts has sent each other frames.
fn assert_all_to_all(json: &Value, hosts: u32) {
    let pairs = || (0..hosts).flat_map(|from| (0..hosts).map(move |to| (from, to))).filter(|(from, to)| from != to);
    let missing: Vec<_> = pairs().filter(|(from, to)| arrived(json, *from, *to) < 100).collect();
    assert!(missing.is_empty(), "{missing:?}: {json}");
}

/// perftest's port.
const PORT: u16 = 18515;

/// A server on host 0 and a client on host 1, by addresses of their namespaces. Only host 0 sees that its server
/// listens; hosts share the folder.
fn pair_of(program: &str) -> String {
    format!(
        "netns = true\ntopology = 'leaf-spine:leaves=2,spines=1,hosts=1,rate=10G,delay=2us'\n[[host]]\nhost = 0\ncommand = \
         '''{{ {} && touch ready; }} & exec {program} > server.txt'''\n[[host]]\nhost = 1\ncommand = '''{}; {program} \
         10.77.0.1 > client.txt 2>&1'''\n",
        wait::shell_for_listener(PORT),
        wait::shell_until("[ -e ready ]")
    )
}

/// What a server is started with that connects by rdma_cm: the file `listens` gets a byte each time that it listens.
fn tells_when_it_listens() -> String {
    let shim = shim::build("listens").expect("a compiler");
    format!("env LD_PRELOAD={}:$LD_PRELOAD LISTENS=$PWD/listens", shim.display())
}

/// A server on host 0 and a client on host 1 that connect by rdma_cm. perftest connects twice, and waits here until the
/// server listens again.
fn pair_by_rdma_cm(program: &str) -> String {
    let shim = shim::build("patience").expect("a compiler");
    format!(
        "netns = true\ntopology = 'leaf-spine:leaves=2,spines=1,hosts=1,rate=10G,delay=2us'\n[[host]]\nhost = 0\ncommand = \
         '''{{ {} && touch granted; }} & exec {} {program} > server.txt'''\n[[host]]\nhost = 1\ncommand = '''{}; env \
         LD_PRELOAD={}:$LD_PRELOAD GRANTED=$PWD/granted {program} 10.77.0.1 > client.txt 2>&1'''\n",
        wait::shell_until("[ \"$(cat listens 2>/dev/null)\" = ll ]"),
        tells_when_it_listens(),
        wait::shell_until("[ -e listens ]"),
        shim.display()
    )
}

fn write_through_three_switches(folder: &Folder, command: Command) {
    folder.write("lab.toml", &pair_of("ib_write_bw -d irnic0 -n 100"));
    let (output, json) = lab(folder, command, &["lab.toml"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!((arrived(&json, 1, 0), &json["late_frames"]), (6_400, &0.into()), "{json}");
    let full = |port: &&Value| port["bytes"].as_u64().unwrap() > 6_400 * 1_024;
    assert_eq!(json["ports"].as_array().unwrap().iter().filter(full).count(), 4, "host, leaf, spine, leaf: {json}");
    let client = std::fs::read_to_string(folder.path().join("client.txt")).unwrap();
    assert!(client.contains("10:77:00:02") && client.contains("10:77:00:01"), "GIDs are the addresses: {client}");
}

#[test]
fn hosts_have_addresses_of_their_own_for_tcp_and_rdma() {
    let (Some(()), Some(())) = (permitted(), needs(&["ib_write_bw"])) else { return };
    let folder = Folder::new();
    write_through_three_switches(&folder, irnic(&folder));
}

#[test]
fn a_lab_with_namespaces_needs_no_root() {
    let (Some(()), Some(())) = (permitted(), needs(&["ib_write_bw", "setpriv"])) else { return };
    let folder = Folder::new();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let of_irnic = irnic(&folder);
    let mut command = Command::new("setpriv");
    // A user that nobody has, where this one may choose.
    let ids = Command::new("id").arg("-u").output().unwrap();
    if text(&ids.stdout).trim() == "0" {
        command.args(["--reuid=54321", "--regid=54321", "--clear-groups"]);
    }
    command.args(["--bounding-set=-all", "unshare", "--map-root-user", "--net", "--mount", "true"]);
    command.stdin(Stdio::null());
    if !command.output().is_ok_and(|tried| tried.status.success()) {
        return skipped("another user may not make user namespaces");
    }
    let mut command = Command::new("setpriv");
    if text(&ids.stdout).trim() == "0" {
        command.args(["--reuid=54321", "--regid=54321", "--clear-groups"]);
    }
    command.arg("--bounding-set=-all").arg(of_irnic.get_program()).current_dir(folder.path()).stdin(Stdio::null());
    for (key, value) in of_irnic.get_envs() {
        match value {
            Some(value) => command.env(key, value),
            None => command.env_remove(key),
        };
    }
    command.env("HOME", folder.path()).env_remove("XDG_RUNTIME_DIR").env_remove("XDG_CACHE_HOME");
    write_through_three_switches(&folder, command);
}

#[test]
fn connections_are_made_by_the_addresses_of_namespaces() {
    let (Some(()), Some(())) = (permitted(), needs(&["rping", "ib_write_bw", "cc"])) else { return };
    let folder = Folder::new();
    // rping's server may outlast its client: it waits for a completion that its other thread has taken.
    let (_, json) = script(
        &folder,
        2,
        &format!(
            "ssh h0 {} rping -s -a 10.77.0.1 -C 10 -S 1000 -v > server.txt & {}
            ssh h1 rping -c -a h0 -C 10 -S 1000 -v > client.txt; kill %1 || true",
            tells_when_it_listens(),
            wait::shell_until("[ -e listens ]")
        ),
    );
    let client = std::fs::read_to_string(folder.path().join("client.txt")).unwrap();
    assert!(client.contains("rdma-ping-9: ") && arrived(&json, 0, 1) > 40, "{client} {json}");
    let folder = Folder::new();
    folder.write("lab.toml", &pair_by_rdma_cm("ib_write_bw -R -d irnic0 -n 100"));
    let (output, json) = lab(&folder, irnic(&folder), &["lab.toml"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(arrived(&json, 1, 0) > 6_400, "{json}");
}

#[test]
fn libfabric_finds_interfaces_and_peers() {
    let (Some(()), Some(())) = (permitted(), needs(&["fi_pingpong"])) else { return };
    for (provider, endpoint) in [("verbs", "msg"), ("verbs;ofi_rxm", "rdm")] {
        let folder = Folder::new();
        let program = format!("fi_pingpong -p '{provider}' -e {endpoint} -c -S 65536 -I 20");
        let (_, json) = script(
            &folder,
            2,
            &format!(
                "$IRNIC host 0 -- {program} > server.txt 2>&1 & ssh h0 '{}'
                $IRNIC host h1 -- {program} h0 > client.txt; wait",
                wait::shell_for_listener(47_592)
            ),
        );
        let client = std::fs::read_to_string(folder.path().join("client.txt")).unwrap();
        assert!(client.contains("64k     20      =20 "), "{client}");
        // 64 KiB twenty times, in packets of 1,024 bytes.
        assert!(arrived(&json, 0, 1) >= 1_280 && arrived(&json, 1, 0) >= 1_280, "{json}");
    }
}

/// All-to-all, whose data are checked.
const LOOPS: &str = include_str!("../run/mpi/loops.c");

fn ranks(compiler: &str, mpirun: &str) {
    let (Some(()), Some(())) = (permitted(), needs(&[compiler, mpirun.split(' ').next().unwrap()])) else { return };
    let folder = Folder::new();
    folder.write("loops.c", LOOPS);
    let built = Command::new(compiler).args(["-o", "loops", "loops.c"]).current_dir(folder.path()).output().unwrap();
    assert!(built.status.success(), "{}", text(&built.stderr));
    // Nothing says how the ranks get to their hosts: launchers look for ssh.
    let run = format!("{mpirun} sh -c 'hostname >> hosts.txt; exec $IRNIC run --sysfs -- ./loops'");
    let (said, json) = script(&folder, 4, &run);
    assert!(said.contains("4 ranks are right"), "{said}");
    let hosts = std::fs::read_to_string(folder.path().join("hosts.txt")).unwrap();
    let mut hosts: Vec<&str> = hosts.lines().collect();
    hosts.sort_unstable();
    assert_eq!(hosts, ["h0", "h1", "h2", "h3"]);
    assert_all_to_all(&json, 4);
}

#[test]
fn open_mpi_has_a_rank_in_each_namespace() {
    ranks("mpicc.openmpi", "mpirun.openmpi --host h0,h1,h2,h3 --mca pml ucx -x UCX_TLS=rc_v,self -x IRNIC");
}

#[test]
fn open_mpi_over_libfabric_has_a_rank_in_each_namespace() {
    let ofi = "--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include 'verbs;ofi_rxm' -x IRNIC";
    ranks("mpicc.openmpi", &format!("mpirun.openmpi --host h0,h1,h2,h3 {ofi}"));
}

#[test]
fn mpich_has_a_rank_in_each_namespace() {
    ranks("mpicc.mpich", "mpirun.mpich -hosts h0,h1,h2,h3 -n 4 -genv UCX_TLS rc_v,self");
}

#[test]
fn a_process_outside_its_namespace_is_told_the_way() {
    let Some(()) = permitted() else { return };
    let folder = Folder::new();
    let (said, _) = script(
        &folder,
        2,
        "hostname; IRNIC_LAB_HOST=1 $IRNIC devinfo 2>&1 || true; ssh -x root@h1 hostname; ssh h1 $IRNIC devinfo
        $IRNIC top --once --json | head -c 10; $IRNIC ctl time; ssh h0 $IRNIC ctl time
        ! ssh example.org true; ! $IRNIC host 2 true; ! IRNIC_LAB=@x $IRNIC host 1 true; $IRNIC host 1 sh -c 'exit 3' || echo is $?",
    );
    for line in [
        "lab\n",
        "to be host 1 of the lab, and is not in its network namespace, which has 10.77.0.2: irnic host 1 -- COMMAND",
        "h1\n",
        "10.77.0.2",
        "{\"irnic\":\"",
        "{\"ok\":true,\"ns\":",
        "in a lab ssh and rsh reach its hosts only: \"example.org\": expected the number of a host",
        "has no host 2, or has ended",
        "the lab at @x has no network namespaces: irnic lab --netns",
        "is 3\n",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    let mut many = irnic(&folder);
    many.args(["lab", "--netns", "--topology", "star:hosts=1001", "--", "true"]);
    let output = many.output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("--netns: 1001 hosts; expected 1000 at most"), "{said}");
}

/// What refers to one of these namespaces, as /proc/PID/ns/net has them: processes in them, and descriptors.
fn references(namespaces: &[String]) -> Vec<PathBuf> {
    let numbers = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit())));
    let links = numbers.flat_map(|process| {
        let descriptors = std::fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
        let descriptors: Vec<_> = descriptors.map(|entry| entry.path()).collect();
        descriptors.into_iter().chain([process.path().join("ns/net")])
    });
    let is_of_these = |path: &PathBuf| {
        std::fs::read_link(path)
            .is_ok_and(|target| namespaces.iter().any(|namespace| target.as_os_str() == &**namespace))
    };
    links.filter(is_of_these).collect()
}

#[test]
fn nothing_of_the_namespaces_stays_when_the_lab_is_killed() {
    let Some(()) = permitted() else { return };
    // However it ends: by itself, by SIGKILL.
    for killed in [false, true] {
        let folder = Folder::new();
        let note = "readlink /proc/self/ns/net > $(hostname).new; mv $(hostname).new $(hostname).txt";
        // Processes that leave their process group and close what they have.
        let script = format!(
            "for h in h0 h1; do ssh $h '{note}; setsid sleep 1000 > /dev/null 2>&1 < /dev/null &'; done; {note}; {}",
            if killed { "sleep 1000" } else { "true" }
        );
        let mut lab = irnic(&folder)
            .env("TMPDIR", folder.path())
            .args(["lab", "-q", "--netns", "--topology", "star:hosts=2", "--", "sh", "-ec", &script])
            .spawn()
            .unwrap();
        let files = ["h0", "h1", "lab"].map(|name| folder.path().join(format!("{name}.txt")));
        let until = Instant::now() + irnic_testkit::wait::HANG;
        while !files.iter().all(|file| file.exists()) {
            if Instant::now() >= until {
                lab.kill().unwrap();
                panic!("the hosts do not run");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let namespaces = files.map(|file| std::fs::read_to_string(file).unwrap().trim().to_owned());
        if killed {
            assert!(references(&namespaces).len() > 3, "they are there: {namespaces:?}");
            lab.kill().unwrap();
        }
        lab.wait().unwrap();
        let directories = || {
            let entries = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
            entries.filter(|name| name.to_string_lossy().starts_with("irnic-lab-")).count()
        };
        while !references(&namespaces).is_empty() || directories() > 0 {
            assert!(Instant::now() < until, "{:?}, {} directories", references(&namespaces), directories());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The directories of labs below a folder.
fn directories(folder: &Folder) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder.path().join("tmp")).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("irnic-lab-")).collect()
}

#[test]
fn the_directory_of_a_lab_whose_keeper_is_killed_does_not_stay() {
    let Some(()) = permitted() else { return };
    let folder = Folder::new();
    std::fs::create_dir(folder.path().join("tmp")).unwrap();
    let start = |command: &str| {
        let mut lab = irnic(&folder);
        lab.env("TMPDIR", folder.path().join("tmp")).stdout(Stdio::null()).stderr(Stdio::null());
        lab.args(["lab", "--netns", "--topology", "star:hosts=2", "--", "sh", "-c", command]).spawn().unwrap()
    };
    let keeper_of = |lab: u32| {
        let found = Command::new("pgrep").args(["-P", &lab.to_string(), "-f", "lab-keeper"]).output().unwrap();
        text(&found.stdout).trim().to_owned()
    };
    let kill = |process: &str| assert!(Command::new("kill").args(["-9", process]).status().unwrap().success());
    // The keeper is killed, and the lab goes on.
    let mut lab = start("touch began; exec sleep 300");
    wait::until("the lab", || folder.path().join("began").exists());
    assert_eq!(directories(&folder).len(), 1);
    kill(&keeper_of(lab.id()));
    Command::new("kill").args(["-INT", &lab.id().to_string()]).status().unwrap();
    lab.wait().unwrap();
    assert!(directories(&folder).is_empty());
    // Both are killed: the next lab removes what they have left, once it is too old to be a lab that begins.
    std::fs::remove_file(folder.path().join("began")).unwrap();
    let mut lab = start("touch began; exec sleep 5");
    wait::until("the lab", || folder.path().join("began").exists());
    let keeper = keeper_of(lab.id());
    // The keeper must not see the lab's end.
    kill(&keeper);
    kill(&lab.id().to_string());
    lab.wait().unwrap();
    let left = directories(&folder);
    assert_eq!(left.len(), 1);
    assert!(start("true").wait().unwrap().success());
    assert_eq!(directories(&folder), left, "it may be a lab that begins");
    Command::new("touch").args(["-d", "1 minute ago"]).arg(&left[0]).status().unwrap();
    assert!(start("true").wait().unwrap().success());
    assert!(directories(&folder).is_empty());
}
