//! irnic against the Linux rxe driver, in both roles: unmodified programs of rdma-core and perftest on either side, and
//! a program that checks every byte.
//!
//! The driver runs in a virtual machine (tools/rxe), a TAP device in a network namespace of this process's own is the
//! wire, and irnic's UDP sockets are the kernel's.

mod case;
mod connecting;
mod guest;
mod host;
mod namespace;
#[path = "../support/mod.rs"]
mod support;

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use case::{Case, Condition, Role, wanted};
use guest::Guest;
use host::{Host, Outcome};
use irnic_testkit::{retry, rxe, sharing};
use libtest_mimic::{Arguments, Failed};
use parking_lot::{Condvar, Mutex};

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // There is one guest, and only a process with one thread may enter a user namespace.
    arguments.test_threads = Some(1);
    let bench = Arc::new(Mutex::new(Bench::Unused));
    let mut cases: Vec<sharing::Case> = Vec::new();
    for (case, port) in wanted().into_iter().zip(20_000..) {
        // Two guests boot for it.
        if cases.is_empty() && std::env::var_os("IRNIC_APPLICATIONS").is_some() {
            let bench = bench.clone();
            let name = format!("a guest whose kernel panics is replaced: {}", case.name());
            cases.push((name, Box::new(move || bench.lock().run(&case, port - 1, true))));
        }
        let bench = bench.clone();
        cases.push((case.name(), Box::new(move || bench.lock().run(&case, port, false))));
    }
    let conclusion = libtest_mimic::run(&arguments, sharing::trials("every case, on one guest", cases));
    // With it goes the guest.
    drop(bench);
    conclusion.exit_code()
}

/// What the cases share, made for the first of them.
enum Bench {
    Unused,
    Ready(Ready),
    /// This user may not make namespaces or TAP devices here.
    NotPermitted(String),
    /// What has to work did not.
    Failed(String),
}

struct Ready {
    host: Host,
    guest: Guest,
    /// Of the case before.
    path_mtu: u32,
    /// Guests whose kernels panicked or hung.
    panics: u32,
}

impl Bench {
    /// Runs a case, with a panic of the guest first if asked.
    fn run(&mut self, case: &Case, port: u16, panic: bool) -> Result<(), Failed> {
        if matches!(self, Bench::Unused) {
            *self = Bench::prepare();
        }
        match self {
            Bench::Ready(ready) => {
                if panic {
                    ready.guest.panic()?;
                }
                Ok(ready.run_on_a_guest(case, port, panic)?)
            }
            Bench::NotPermitted(why) => {
                let _ = support::skipped::<()>(&format!("{}: {why}", case.name()));
                Ok(())
            }
            Bench::Failed(why) => Err(std::mem::replace(why, "no guest: the first case says why".into()).into()),
            Bench::Unused => Err("not prepared".into()),
        }
    }

    fn prepare() -> Bench {
        let host = match Host::new() {
            Ok(host) => host,
            Err(why) => return Bench::Failed(why),
        };
        if let Err(why) = namespace::enter(&host) {
            return Bench::NotPermitted(why);
        }
        match Guest::boot(&host) {
            Ok(guest) => Bench::Ready(Ready { host, guest, path_mtu: 0, panics: 0 }),
            Err(why) => Bench::Failed(why),
        }
    }
}

impl Ready {
    /// Runs a case, again while a premise excuses how it fails, and on a fresh guest if the kernel of the one that is
    /// there panics or no longer answers. One panic is excused, and besides it one that is expected.
    fn run_on_a_guest(&mut self, case: &Case, port: u16, mut panic_expected: bool) -> Result<(), String> {
        let mut attempt = 1;
        let mut panicked = false;
        while let Err(mut why) = self.run(case, port) {
            let mut premise = retry::failed_premise(&case.name(), &why);
            if self.is_down(&why) {
                let (console, said) = self.replace()?;
                why = format!("{why}\nthe guest is gone: {}\n{said}", console.display());
                premise = retry::failed_premise(&case.name(), &said).filter(|_| !panicked);
                if premise.is_some() && std::mem::take(&mut panic_expected) {
                    continue;
                }
                panicked = true;
            }
            let premise = premise.filter(|_| attempt < retry::ATTEMPTS).ok_or_else(|| why.clone())?;
            retry::say(&case.name(), premise, &why);
            attempt += 1;
        }
        Ok(())
    }

    /// Whether the guest's kernel has panicked or, as a case says, no longer answers.
    fn is_down(&mut self, why: &str) -> bool {
        self.guest.has_panicked(Duration::from_secs(2)) || why.contains(guest::SILENT)
    }

    /// Boots another guest; returns what the console of the one before has, and where that is kept.
    fn replace(&mut self) -> Result<(PathBuf, String), String> {
        self.panics += 1;
        let kept = self.host.kept(&format!("rxe-panic-{}", self.panics));
        let console = std::fs::read(Guest::console(&self.host)).map_err(|e| format!("the guest's console: {e}"))?;
        std::fs::write(&kept, &console).map_err(|e| format!("{}: {e}", kept.display()))?;
        self.guest.end();
        self.guest = Guest::boot(&self.host)?;
        self.path_mtu = 0;
        Ok((kept, String::from_utf8_lossy(&console).into_owned()))
    }

    fn run(&mut self, case: &Case, port: u16) -> Result<(), String> {
        if self.path_mtu != case.path_mtu {
            let mtu = case.interface_mtu();
            self.host.ip(&format!("link set {} mtu {mtu}", namespace::DEVICE))?;
            self.guest.run(&format!("ip link set eth0 mtu {mtu}"))?.success()?;
            self.path_mtu = case.path_mtu;
        }
        run(&self.host, &self.guest, case, port)
    }
}

/// Runs a case, in the company that it asks for.
fn run(host: &Host, guest: &Guest, case: &Case, port: u16) -> Result<(), String> {
    if case.condition != Condition::SecondProcess {
        return run_alone(host, guest, case, port);
    }
    // A server that nobody comes to has the device open.
    let owner_port = port + 10_000;
    let mut owner = host.start(case, &format!("ibv_rc_pingpong -d irnic0 -g 0 -p {owner_port}"))?;
    owner.wait_for_listener(owner_port)?;
    let result = run_alone(host, guest, case, port);
    owner.kill();
    // Killed, as asked.
    let _ = owner.finish();
    result
}

/// The command lines of irnic's side and the guest's.
fn commands(host: &Host, guest: &Guest, case: &Case, port: u16) -> Result<[String; 2], String> {
    let (client, server) = (case.role == Role::Client, case.role == Role::Server);
    let Some(program) = case.connecting else {
        let on_host = case.command(&host.device(case), port, client.then_some(guest::IPV4));
        let on_guest = case.command(&guest.device(case)?, port, server.then_some(namespace::IPV4));
        return Ok([on_host, on_guest]);
    };
    let (ours, theirs) = (host::address(case), guest::address(case));
    let on_host = program.command(port, ours, client.then_some(theirs));
    let on_guest = program.command(port, theirs, server.then_some(ours));
    Ok([on_host, format!("{}{on_guest}", program.environment_in_the_guest(client))])
}

/// Runs both ends. A client that connects twice does so when the server listens for the second time.
fn run_alone(host: &Host, guest: &Guest, case: &Case, port: u16) -> Result<(), String> {
    if !case.connecting.is_some_and(|program| program.is_impatient()) {
        return run_ends(host, guest, case, port);
    }
    // Of the case before; there may be none.
    let _ = std::fs::remove_file(host.listens());
    guest.run(&format!("rm -f {} {}", connecting::LISTENS, connecting::GRANTED))?.success()?;
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                let times = match case.role {
                    Role::Client => guest.size_of(connecting::LISTENS),
                    Role::Server => std::fs::metadata(host.listens()).map_or(0, |file| file.len()),
                };
                if times >= 2 {
                    // If that fails the client waits until it has run too long.
                    return match case.role {
                        Role::Client => drop(std::fs::write(host.granted(), "")),
                        Role::Server => drop(guest.run(&format!("touch {}", connecting::GRANTED))),
                    };
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let result = run_ends(host, guest, case, port);
        ended.store(true, Ordering::Relaxed);
        result
    })
}

/// The server first, on whichever side, then the client. Both must end well, and what irnic's connection manager said
/// must be readable.
fn run_ends(host: &Host, guest: &Guest, case: &Case, port: u16) -> Result<(), String> {
    let port = case.connecting.and_then(|program| program.port).unwrap_or(port);
    let [on_host, on_guest] = commands(host, guest, case, port)?;
    let watch = Watch::default();
    let ends = std::thread::scope(|scope| {
        scope.spawn(|| watch.diagnose(guest, case));
        let ends = both_ends(host, guest, case, port, [&on_host, &on_guest], &watch);
        watch.end();
        ends
    });
    let (ours, theirs) = ends?;
    if ours.is_success() && theirs.is_success() {
        let Some(program) = case.connecting else { return Ok(()) };
        // Groups are joined without a word to anybody.
        let connects = program.ready == connecting::Ready::Listens;
        return connecting::read_capture(&host.capture(), host::address(case), connects);
    }
    let found = watch.found();
    Err(format!("irnic: {on_host}\n{}\nrxe: {on_guest}\n{}{found}", ours.describe(), theirs.describe()))
}

/// Runs both ends to their end, and tells `watch` of irnic's process.
fn both_ends(
    host: &Host,
    guest: &Guest,
    case: &Case,
    port: u16,
    [on_host, on_guest]: [&str; 2],
    watch: &Watch,
) -> Result<(Outcome, Outcome), String> {
    Ok(match case.role {
        Role::Client => {
            let server = guest.start(on_guest)?;
            let listening = guest.wait_for_server(case, port);
            let ours = listening.and_then(|()| host.start(case, on_host)).map(|ours| watch.running(ours).finish());
            if !ours.as_ref().is_ok_and(host::Outcome::is_success) {
                guest.kill(case.program());
            }
            (ours?, server.finish()?)
        }
        Role::Server => {
            let mut server = watch.running(host.start(case, on_host)?);
            server.wait_until_ready(host, case, port)?;
            let theirs = guest.start(on_guest)?.finish()?;
            if !theirs.is_success() {
                server.kill();
            }
            (server.finish(), theirs)
        }
    })
}

/// A look at both ends of a case that takes far longer than any should, for its error.
#[derive(Default)]
struct Watch {
    process: AtomicU32,
    ended: Mutex<bool>,
    changed: Condvar,
    found: Mutex<String>,
}

impl Watch {
    /// Takes note of irnic's process.
    fn running(&self, ours: host::Running) -> host::Running {
        self.process.store(ours.id(), Ordering::Relaxed);
        ours
    }

    fn end(&self) {
        *self.ended.lock() = true;
        self.changed.notify_all();
    }

    /// Waits for the end; after half the patience writes down what both ends do.
    fn diagnose(&self, guest: &Guest, case: &Case) {
        let mut ended = self.ended.lock();
        self.changed.wait_while_for(&mut ended, |ended| !*ended, host::PATIENCE / 2);
        if *ended {
            return;
        }
        drop(ended);
        let process = self.process.load(Ordering::Relaxed).to_string();
        let stacks =
            Command::new("gdb").args(["-p", &process, "-batch", "-ex", "thread apply all backtrace 12"]).output();
        let stacks = stacks.map_or_else(|e| e.to_string(), |out| String::from_utf8_lossy(&out.stdout).into_owned());
        // Counters twice, which shows whether packets still come.
        let script = "for i in 1 2; do grep . /sys/class/infiniband/rxe0/ports/1/hw_counters/*; \
            for p in $(pidof PROGRAM); do cat /proc/$p/wchan; echo; cat /proc/$p/stat; done; sleep 3; done; ip -6 neigh; \
            grep -v :0000:0000:0000$ /sys/class/infiniband/rxe0/ports/1/gids/*; cat /proc/net/tcp";
        let script = script.replace("PROGRAM", case.program());
        let before = sockets_of(&process);
        let theirs = guest.run(&script).map_or_else(|e| e, |outcome| outcome.describe());
        let after = sockets_of(&process);
        let idle = rxe::requester_is_idle(case.program(), &theirs) && case.role == Role::Server;
        let idle = if idle { rxe::REQUESTER_IDLE } else { "" };
        *self.found.lock() = format!(
            "\nafter {:?}, irnic:\n{stacks}\n{before}\nthe guest:\n{theirs}\nirnic again:\n{after}\n{idle}",
            host::PATIENCE / 2
        );
    }

    fn found(&self) -> String {
        std::mem::take(&mut *self.found.lock())
    }
}

/// Returns what the kernel knows of a process: the system calls in which its threads sleep, with arguments (`ppoll`
/// without limit has 0 as its third), what its epoll sets watch, the queues of its UDP sockets, and its neighbours.
fn sockets_of(process: &str) -> String {
    let script = "cd /proc/PROCESS && grep -H . task/*/syscall; grep -H ^tfd: fdinfo/*; \
        ls -l fd | grep -e socket: -e eventpoll | tr -s ' ' | cut -d ' ' -f 9-; \
        cat net/udp net/udp6; grep -i -e ^udp -e neigh net/snmp net/snmp6; ip -6 neigh";
    let output = Command::new("sh").args(["-c", &script.replace("PROCESS", process)]).output();
    output.map_or_else(|e| e.to_string(), |output| String::from_utf8_lossy(&output.stdout).into_owned())
}
