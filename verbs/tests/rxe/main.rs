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

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use case::{Case, Condition, Role, wanted};
use guest::Guest;
use host::Host;
use libtest_mimic::{Arguments, Failed, Trial};
use parking_lot::Mutex;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // There is one guest, and only a process with one thread may enter a user namespace.
    arguments.test_threads = Some(1);
    let bench = Arc::new(Mutex::new(Bench::Unused));
    let mut trials = Vec::new();
    for (case, port) in wanted().into_iter().zip(20_000..) {
        if trials.is_empty() {
            let bench = bench.clone();
            let name = format!("a guest whose kernel panics is replaced: {}", case.name());
            trials.push(Trial::test(name, move || bench.lock().run(&case, port - 1, true)));
        }
        let bench = bench.clone();
        trials.push(Trial::test(case.name(), move || bench.lock().run(&case, port, false)));
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
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
                    ready.guest.panic();
                }
                Ok(ready.run_on_a_guest(case, port)?)
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
    /// Runs a case, on a fresh guest if the kernel of the one that there is panics or no longer answers. One that does
    /// that to two has found something.
    fn run_on_a_guest(&mut self, case: &Case, port: u16) -> Result<(), String> {
        let Some(why) = self.run(case, port).err() else { return Ok(()) };
        if !self.is_gone(&why) {
            return Err(why);
        }
        let console = self.replace()?;
        let _ = writeln!(io::stderr(), "AGAIN {}: the guest's kernel is gone, {}", case.name(), console.display());
        let Some(why) = self.run(case, port).err() else { return Ok(()) };
        if !self.is_gone(&why) {
            return Err(why);
        }
        let again = self.replace()?;
        Err(format!("the kernels of two guests panicked or hung: {} and {}", console.display(), again.display()))
    }

    /// Whether the guest's kernel has panicked or, as a case says, no longer answers.
    fn is_gone(&mut self, why: &str) -> bool {
        self.guest.has_panicked() || why.contains(guest::SILENT)
    }

    /// Boots another guest; returns where the console of the one before is kept.
    fn replace(&mut self) -> Result<PathBuf, String> {
        self.panics += 1;
        let kept = self.host.kept(&format!("rxe-panic-{}", self.panics));
        std::fs::copy(Guest::console(&self.host), &kept).map_err(|e| format!("the guest's console: {e}"))?;
        self.guest.end();
        self.guest = Guest::boot(&self.host)?;
        self.path_mtu = 0;
        Ok(kept)
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

/// Runs a case in the company that it asks for.
fn run(host: &Host, guest: &Guest, case: &Case, port: u16) -> Result<(), String> {
    if case.connecting.is_some() {
        // perftest connects twice, and does not tell its client when it listens for the second.
        return run_again_if(host, guest, case, port, |why| why.contains("RDMA_CM_EVENT_REJECTED; error: 8"));
    }
    if case.condition != Condition::SecondProcess {
        // With loss, rxe as requester gives up now and then under emulation: repeating 1 MB outlasts its retries.
        let lossy = case.name().contains("loss 1%") && case.role == Role::Server;
        return run_again_if(host, guest, case, port, |why| lossy && why.contains("transport retry counter exceeded"));
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

/// Runs a case up to three times, while it fails for a reason that is not irnic's.
fn run_again_if(
    host: &Host,
    guest: &Guest,
    case: &Case,
    port: u16,
    excused: impl Fn(&str) -> bool,
) -> Result<(), String> {
    const TRIES: u32 = 3;
    let mut result = run_alone(host, guest, case, port);
    for _ in 1..TRIES {
        let Err(why) = &result else { break };
        if !excused(why) {
            break;
        }
        let _ = writeln!(io::stderr(), "AGAIN {}: {why}", case.name());
        result = run_alone(host, guest, case, port);
    }
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
    let drain = if program.is_hasty() && server { "env LD_PRELOAD=/usr/lib/drain.so " } else { "" };
    Ok([on_host, format!("{drain}{on_guest}")])
}

/// The server first, on whichever side, then the client. Both must end well, and what irnic's connection manager said
/// must be readable.
fn run_alone(host: &Host, guest: &Guest, case: &Case, port: u16) -> Result<(), String> {
    let port = case.connecting.and_then(|program| program.port).unwrap_or(port);
    let [on_host, on_guest] = commands(host, guest, case, port)?;
    let (ours, theirs) = match case.role {
        Role::Client => {
            let server = guest.start(&on_guest)?;
            let listening = guest.wait_for_server(case, port);
            let ours = listening.and_then(|()| host.start(case, &on_host)).map(host::Running::finish);
            if !ours.as_ref().is_ok_and(host::Outcome::is_success) {
                guest.kill(case.program());
            }
            (ours?, server.finish()?)
        }
        Role::Server => {
            let mut server = host.start(case, &on_host)?;
            server.wait_until_ready(host, case, port)?;
            let theirs = guest.start(&on_guest)?.finish()?;
            if !theirs.is_success() {
                server.kill();
            }
            (server.finish(), theirs)
        }
    };
    if ours.is_success() && theirs.is_success() {
        let Some(program) = case.connecting else { return Ok(()) };
        // Groups are joined without a word to anybody.
        let connects = program.ready == connecting::Ready::Listens;
        return connecting::read_capture(&host.capture(), host::address(case), connects);
    }
    Err(format!("irnic: {on_host}\n{}\nrxe: {on_guest}\n{}", ours.describe(), theirs.describe()))
}
