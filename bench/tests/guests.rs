//! The Linux rxe driver in a virtual machine (tools/rxe) as a host of a lab, in both roles: its packets, and those to
//! it, cross emulated switches.

#![allow(dead_code, reason = "the machinery is that of the tests against rxe")]

#[path = "../../verbs/tests/rxe/case.rs"]
mod case;
#[path = "../../verbs/tests/rxe/connecting.rs"]
mod connecting;
#[path = "../../verbs/tests/rxe/guest.rs"]
mod guest;
#[path = "../../verbs/tests/rxe/host.rs"]
mod host;
#[path = "../../verbs/tests/rxe/namespace.rs"]
mod namespace;
#[path = "../../verbs/tests/support/mod.rs"]
mod support;

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use guest::Guest;
use host::{Host, PATIENCE};
use irnic_testkit::{retry, sharing};
use libtest_mimic::{Arguments, Failed};
use serde_json::Value;

/// The guest is host 2 of a star, a process host 0.
const GUEST: u32 = 2;
const GUEST_ADDRESS: &str = "10.77.0.3";
const PROCESS_ADDRESS: &str = "10.77.0.1";

/// A program on both sides: `{device}`, `{gid}`, `{port}`, `{network}`, and in a client's line the server's addresses:
/// `{tcp}` for what is not RDMA, and `{rdma}`.
#[derive(Copy, Clone, Debug)]
struct Program {
    server: &'static str,
    client: &'static str,
    /// Frames that the data take in one direction at least, whoever sends them.
    frames: u64,
    /// Its server listens to TCP, not by rdma_cm.
    tcp: bool,
}

const PROGRAMS: [Program; 3] = [
    Program {
        server: "integrity {device} {gid} 1024 {port} {network}",
        client: "integrity {device} {gid} 1024 {port} {network} {tcp}",
        frames: 2_000,
        tcp: true,
    },
    Program {
        server: "ib_write_bw -s 65536 -n 30 -F -u 16 -d {device} -x {gid} -p {port}",
        client: "ib_write_bw -s 65536 -n 30 -F -u 16 -d {device} -x {gid} -p {port} {tcp}",
        frames: 30 * 64,
        tcp: true,
    },
    Program {
        server: "rping -s -a {rdma} -p {port} -C 10 -S 1000 -v",
        client: "rping -c -a {rdma} -p {port} -C 10 -S 1000 -v",
        frames: 20,
        tcp: false,
    },
];

/// What is run.
#[derive(Copy, Clone, Debug)]
struct LabCase {
    program: &'static Program,
    guest_serves: bool,
    loss: bool,
    port: u16,
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let bench = Arc::new(Mutex::new(None));
    let all = std::env::var_os("IRNIC_APPLICATIONS").is_some();
    let mut cases: Vec<sharing::Case> = Vec::new();
    for loss in [false, true] {
        for program in PROGRAMS.iter().filter(|program| !loss || program.tcp) {
            for guest_serves in [false, true] {
                // Without IRNIC_APPLICATIONS integrity in both roles, the others in one each, and with loss one case.
                let integrity = program.server.starts_with("integrity");
                if !all && (guest_serves == program.tcp && !integrity || loss && !(integrity && guest_serves)) {
                    continue;
                }
                let (bench, role) = (bench.clone(), if guest_serves { "server" } else { "client" });
                let case = LabCase { program, guest_serves, loss, port: 21_000 + cases.len() as u16 };
                let network = if loss { "1 % loss" } else { "no loss" };
                let name = format!("{}, the guest is {role}, {network}", case.name());
                cases.push((name.clone(), Box::new(move || run(&bench, &case, &name))));
            }
        }
    }
    let conclusion = libtest_mimic::run(&arguments, sharing::trials("every case, on one guest", cases));
    // With it goes the guest.
    drop(bench);
    conclusion.exit_code()
}

/// What the cases share, made for the first of them.
enum Bench {
    Ready {
        host: Host,
        guest: Guest,
        gid: String,
    },
    /// This user may not make namespaces or TAP devices here.
    NotPermitted(String),
    /// What has to work did not.
    Failed(String),
}

fn prepare() -> Bench {
    let host = match Host::new() {
        Ok(host) => host,
        Err(why) => return Bench::Failed(why),
    };
    if let Err(why) = namespace::enter(&host) {
        return Bench::NotPermitted(why);
    }
    let boot = || {
        let guest = Guest::boot(&host)?;
        let gids = "/sys/class/infiniband/rxe0/ports/1/gids";
        // GIDs are there some time after addresses.
        let find = format!(
            "ip addr add {GUEST_ADDRESS}/16 dev eth0; until grep -l ffff:0a4d:0003 {gids}/*; do usleep 20000; done"
        );
        let found = guest.run(&find)?.success()?;
        let gid = found.lines().find_map(|line| line.rsplit_once("/gids/")).map(|(_, index)| index.trim().to_owned());
        Ok::<_, String>((guest, gid.ok_or("no GID")?))
    };
    match boot() {
        Ok((guest, gid)) => Bench::Ready { host, guest, gid },
        Err(why) => Bench::Failed(why),
    }
}

/// Runs a case, again while a premise excuses how it fails.
fn run(bench: &Mutex<Option<Bench>>, case: &LabCase, name: &str) -> Result<(), Failed> {
    let mut bench = bench.lock().map_err(|e| e.to_string())?;
    match bench.get_or_insert_with(prepare) {
        Bench::Ready { host, guest, gid } => {
            let mut attempt = 1;
            while let Err(why) = case.run(host, guest, gid) {
                let premise = retry::failed_premise(name, &why).filter(|_| attempt < retry::ATTEMPTS);
                retry::say(name, premise.ok_or_else(|| why.clone())?, &why);
                attempt += 1;
            }
            Ok(())
        }
        Bench::NotPermitted(why) => {
            let _ = support::skipped::<()>(&format!("{}: {why}", case.name()));
            Ok(())
        }
        Bench::Failed(why) => Err(std::mem::replace(why, "no guest: the first case says why".into()).into()),
    }
}

/// A running lab. It is killed if it is not waited for.
struct Lab(Child);

impl Drop for Lab {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl LabCase {
    fn name(&self) -> &'static str {
        self.program.server.split(' ').next().unwrap_or_default()
    }

    /// The command line of an end, with the server's addresses.
    fn line(&self, line: &str, (device, gid): (&str, &str)) -> String {
        let [tcp, rdma] =
            if self.guest_serves { [guest::IPV4, GUEST_ADDRESS] } else { [namespace::IPV4, PROCESS_ADDRESS] };
        let values = [
            ("{device}", device),
            ("{gid}", gid),
            ("{port}", &self.port.to_string()),
            ("{network}", if self.loss { "lossy" } else { "calm" }),
            ("{tcp}", tcp),
            ("{rdma}", rdma),
        ];
        values.into_iter().fold(line.to_owned(), |line, (name, value)| line.replace(name, value))
    }

    fn run(&self, host: &Host, guest: &Guest, gid: &str) -> Result<(), String> {
        let Program { server, client, .. } = self.program;
        let (of_process, of_guest) = if self.guest_serves { (client, server) } else { (server, client) };
        let (of_process, of_guest) = (self.line(of_process, ("irnic0", "0")), self.line(of_guest, ("rxe0", gid)));
        let (name, options) = of_process.split_once(' ').ok_or("no options")?;
        let program = match name {
            "integrity" => host.file(name).into_os_string(),
            name => host.command(name).get_program().to_owned(),
        };
        let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
        let [listens, parted] = ["listens", "parted"].map(|name| folder.path().join(name));
        let mut of_process = format!("{} {options} >> process.txt 2>&1", program.display());
        let session = match self.guest_serves {
            true => {
                let session = guest.start(&of_guest)?;
                guest.wait_for_listener(self.port, self.program.tcp)?;
                // What the process has sent last needs the network until the guest has it.
                of_process += &format!(" && until [ -e {} ]; do sleep 0.02; done", parted.display());
                Some(session)
            }
            false => {
                let preloaded = host.file("listens.so");
                let environment =
                    format!("LD_PRELOAD={}:$LD_PRELOAD LISTENS={}", preloaded.display(), listens.display());
                of_process = format!("{environment} {of_process}");
                None
            }
        };
        let mut lab = self.start(host, folder.path(), &of_process)?;
        let theirs = match session {
            Some(session) => std::thread::scope(|scope| {
                let theirs = scope.spawn(|| {
                    let theirs = session.finish();
                    std::fs::write(&parted, "").map_err(|e| e.to_string()).and(theirs)
                });
                let ended = ended(&mut lab.0);
                if ended.is_err() {
                    guest.kill(name);
                }
                let theirs = theirs.join().map_err(|_| "the thread panicked")??;
                ended.map_err(|why| format!("{why}\n{}", theirs.describe())).and(Ok(theirs))
            }),
            None => self.await_listener(&mut lab.0, &listens).and_then(|()| guest.start(&of_guest)?.finish()).and_then(
                |theirs| match theirs.is_success() {
                    true => ended(&mut lab.0).and(Ok(theirs)),
                    false => Ok(theirs),
                },
            ),
        };
        drop(lab);
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
        let ours = || format!("{}\n{}", read("process.txt"), read("lab.txt"));
        theirs.map_err(|why| format!("{why}\n{}", ours()))?.success().map_err(|why| format!("{why}\n{}", ours()))?;
        self.check(&serde_json::from_str(&read("lab.json")).map_err(|e| format!("{e}: {}", ours()))?)
    }

    /// Until the process on host 0 listens: to TCP, in this network namespace, or by rdma_cm, which a file shows.
    fn await_listener(&self, lab: &mut Child, file: &Path) -> Result<(), String> {
        let wanted = format!(":{:04X} ", self.port);
        let is_in = |table: &str| {
            let table = std::fs::read_to_string(table).unwrap_or_default();
            table.lines().any(|line| line.contains(&wanted) && line.split_whitespace().nth(3) == Some("0A"))
        };
        let listens = || match self.program.tcp {
            true => ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"].into_iter().any(is_in),
            false => file.exists(),
        };
        let until = Instant::now() + PATIENCE;
        while !listens() {
            if Instant::now() >= until || lab.try_wait().ok().flatten().is_some() {
                return Err("the process on host 0 does not listen".into());
            }
            sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn start(&self, host: &Host, folder: &Path, command: &str) -> Result<Lab, String> {
        let [guests, irnics] = host.sockets();
        let loss = if self.loss { ",loss=0.5%" } else { "" };
        let file = format!(
            "topology = 'star:hosts=3,rate=200M,delay=5us{loss}'\ntransport = 'roce,rto=local-ack-timeout'\n[[host]]\nhost = {GUEST}\nframes = \
             'dgram:local={},remote={}'\n[[host]]\nhost = 0\ncommand = \"\"\"{command}\"\"\"\n",
            irnics.display(),
            guests.display()
        );
        std::fs::write(folder.join("lab.toml"), file).map_err(|e| e.to_string())?;
        let mut lab = Command::new(env!("CARGO_BIN_EXE_irnic"));
        for (variable, _) in std::env::vars_os().filter(|(v, _)| v.to_string_lossy().starts_with("IRNIC_")) {
            lab.env_remove(variable);
        }
        let said = std::fs::File::create(folder.join("lab.txt")).map_err(|e| e.to_string())?;
        lab.args(["lab", "lab.toml", "--json", "lab.json"]).current_dir(folder).env("HOME", folder);
        let unpacked = host.command("ib_write_bw");
        let libraries = unpacked.get_envs().find(|(name, _)| *name == "LD_LIBRARY_PATH").and_then(|(_, value)| value);
        lab.env("LD_LIBRARY_PATH", libraries.unwrap_or_default())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said);
        lab.process_group(0).spawn().map(Lab).map_err(|e| format!("irnic lab: {e}"))
    }

    /// All of it went through the switch, and what was lost was lost on links.
    fn check(&self, lab: &Value) -> Result<(), String> {
        let number = |of: &Value, key: &str| of[key].as_u64().unwrap_or_default();
        let arrived = |from: u32, to: u32| {
            let pairs = lab["pairs"].as_array().into_iter().flatten();
            pairs
                .filter(|pair| pair["from"] == from && pair["to"] == to)
                .map(|pair| number(pair, "arrived"))
                .sum::<u64>()
        };
        let (to, from) = (arrived(0, GUEST), arrived(GUEST, 0));
        let right = to.max(from) >= self.program.frames
            && to.min(from) > 0
            && (number(lab, "lost") > 0) == self.loss
            && number(lab, "dropped") == 0
            && lab["guests"].as_array().is_some_and(|guests| {
                guests.iter().all(|guest| [number(guest, "host"), number(guest, "icrc_errors")] == [GUEST.into(), 0])
            });
        if right { Ok(()) } else { Err(format!("{to} frames to the guest, {from} from it: {lab}")) }
    }
}

/// Waits until a lab ends well, or has run too long.
fn ended(lab: &mut Child) -> Result<(), String> {
    let until = Instant::now() + PATIENCE;
    loop {
        match lab.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("irnic lab: {status}")),
            Ok(None) if Instant::now() < until => sleep(Duration::from_millis(5)),
            Ok(None) => return Err(format!("irnic lab: not done after {PATIENCE:?}")),
            Err(e) => return Err(e.to_string()),
        }
    }
}
