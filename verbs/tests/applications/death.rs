//! Processes killed or stopped in the middle, and many processes at once.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};

use crate::peer::{self, Pair};
use crate::process::Process;
use crate::sandbox::{
    Device, Sandbox, all, free_port, free_ports, installed, trial, wait_for_connection, wait_for_listener,
};

/// Pairs of peers of which one is killed, in each of the tests.
const KILLED_PEERS: u64 = 20;
/// Pairs of perftest programs of which one is killed, in each of the tests.
const KILLED_PERFTESTS: u64 = 10;
/// Pairs at once.
const CROWD: usize = 100;
/// Processes that do nothing but take the cores from such a crowd.
const SPINNERS: usize = 6;
/// How long one of two peers is stopped, in ms. The retries of the other take 268 ms.
const STOPS: [u64; 6] = [1, 50, 300, 800, 2000, 10_000];

/// The last of them in the long form only.
fn stops() -> &'static [u64] {
    if all() { &STOPS } else { &STOPS[..5] }
}

/// A number from a seed (SplitMix64).
fn random(seed: u64) -> u64 {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Files where programs leave some. What has nothing to do with irnic may be somebody else's.
fn files() -> BTreeSet<String> {
    let runtime = std::env::var("XDG_RUNTIME_DIR").unwrap_or_default();
    let directories = ["/dev/shm", "/tmp", "/run", &runtime];
    let names = directories.iter().filter_map(|d| fs::read_dir(d).ok()).flatten().flatten();
    names.map(|entry| entry.path().display().to_string()).filter(|name| name.contains("irnic")).collect()
}

/// All tests of death and crowds.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let devices = ["irn", "roce"].map(|transport| Device { transport, ..Device::default() });
    for device in devices {
        for first in (0..if all() { 4 } else { 1 }).map(|round| round * KILLED_PEERS) {
            let name = format!(
                "death: {KILLED_PEERS} peers killed, each told by its own completion, seeds {first}… ({})",
                device.transport
            );
            trials.push(trial(name, &peer::NEEDS, move |sandbox| {
                let program = peer::build(sandbox)?;
                let before = files();
                for seed in first..first + KILLED_PEERS {
                    kill_peer(sandbox, &program, device, seed)?;
                }
                nothing_left(sandbox, &before, &["lib", "peer"])?;
                peer::verify(sandbox, &program, device, first)
            }));
        }
        for tool in ["ib_write_bw", "ib_read_bw"] {
            let name = format!("death: {KILLED_PERFTESTS} of {tool} killed ({})", device.transport);
            let path = format!("/usr/bin/{tool}");
            trials.push(trial(name, &[&path], move |sandbox| {
                let before = files();
                for seed in 0..KILLED_PERFTESTS {
                    kill_perftest(sandbox, tool, device, seed)?;
                }
                nothing_left(sandbox, &before, &["lib"])
            }));
        }
    }
    for device in devices {
        let name =
            format!("stopped: a peer that stands still for {:?} ms is waited for ({})", stops(), device.transport);
        trials.push(trial(name, &peer::NEEDS, move |sandbox| {
            let program = peer::build(sandbox)?;
            stop_peers(sandbox, &program, device)
        }));
    }
    let needs = ["/usr/bin/ibv_rc_pingpong", "/usr/bin/ibv_devinfo"];
    trials.push(trial(format!("crowd: {CROWD} pairs of ibv_rc_pingpong on one device"), &needs, |sandbox| {
        crowd(sandbox, 0)
    }));
    let name = format!("crowd: {CROWD} pairs of ibv_rc_pingpong on one device, {SPINNERS} processes that spin");
    trials.push(trial(name, &needs, |sandbox| crowd(sandbox, SPINNERS)));
    trials
}

/// Kills one of two peers; the other's next completion has to fail with 12, IBV_WC_RETRY_EXC_ERR.
fn kill_peer(sandbox: &Sandbox, program: &Path, device: Device, seed: u64) -> Result<(), Failed> {
    let gid = sandbox.gid_index()?;
    let mut pair = Pair::start(sandbox, program, device, "until-error", seed, &gid)?;
    // Address, ready, posted.
    pair.wait_for_lines(3)?;
    thread::sleep(Duration::from_micros(random(seed) % 5000));
    let victim = random(!seed) as usize % 2;
    pair.signal(victim, libc::SIGKILL);
    let (end, said) = pair.end()?.swap_remove(1 - victim);
    if end.status.success() && said.ends_with("status 12\n") {
        return Ok(());
    }
    Err(end.failed(&format!("seed {seed}: the survivor said {said}")))
}

/// Stops one of two peers and has it go on, for longer each time; nothing may fail until one is killed.
fn stop_peers(sandbox: &Sandbox, program: &Path, device: Device) -> Result<(), Failed> {
    let gid = sandbox.gid_index()?;
    let mut pair = Pair::start(sandbox, program, device, "until-error", 7, &gid)?;
    pair.wait_for_lines(3)?;
    for (round, ms) in stops().iter().copied().enumerate() {
        let stopped = round % 2;
        thread::sleep(Duration::from_micros(random(ms) % 5000));
        pair.signal(stopped, libc::SIGSTOP);
        thread::sleep(Duration::from_millis(ms));
        pair.signal(stopped, libc::SIGCONT);
        // Whoever had given up would have said so by now.
        thread::sleep(Duration::from_millis(300));
        if !pair.runs() {
            let said = pair.end()?.into_iter().map(|(end, said)| format!("{:?}: {said}", end.status));
            return Err(format!("after {ms} ms: {}", said.collect::<Vec<_>>().join("; ")).into());
        }
    }
    pair.signal(0, libc::SIGKILL);
    let (end, said) = pair.end()?.swap_remove(1);
    if end.status.success() && said.ends_with("status 12\n") {
        return Ok(());
    }
    Err(end.failed(&format!("the survivor said {said}")))
}

/// Kills one end of a perftest; the other has to notice by its completions or its TCP connection.
fn kill_perftest(sandbox: &Sandbox, tool: &str, device: Device, seed: u64) -> Result<(), Failed> {
    let program = installed(tool)?;
    let port = free_port();
    let mut command = sandbox.command(&program, device);
    let mut server = Process::start(command.args(["-F", "-n", "1000000", "-u", "12", "-p", &port.to_string()]))?;
    wait_for_listener(&mut server, port)?;
    let client = Process::start(command.arg("127.0.0.1"))?;
    // Before that, a server that loses its client just goes on listening.
    wait_for_connection(&mut server, port)?;
    thread::sleep(Duration::from_micros(random(seed) % 100_000));
    let (victim, survivor) = if random(!seed).is_multiple_of(2) { (server, client) } else { (client, server) };
    victim.signal(libc::SIGKILL);
    let end = survivor.end()?;
    if end.status.code().is_some_and(|code| code != 0) {
        return Ok(());
    }
    Err(end.failed(&format!("seed {seed}: the survivor noticed nothing")))
}

/// No file was left behind, where files usually are or in the directory of the test.
fn nothing_left(sandbox: &Sandbox, before: &BTreeSet<String>, own: &[&str]) -> Result<(), Failed> {
    let mut left: Vec<String> = files().difference(before).cloned().collect();
    let names = fs::read_dir(sandbox.dir.path())?.flatten().map(|e| e.file_name().to_string_lossy().into_owned());
    left.extend(names.filter(|name| !own.contains(&name.as_str())));
    if left.is_empty() { Ok(()) } else { Err(format!("left behind: {left:?}").into()) }
}

/// Many pairs at once, beside `spinners` processes that only take the cores from them.
fn crowd(sandbox: &Sandbox, spinners: usize) -> Result<(), Failed> {
    let spin = || Process::start(Command::new("/bin/sh").args(["-c", "while :; do :; done"]));
    let _spinning = (0..spinners).map(|_| spin()).collect::<Result<Vec<_>, _>>()?;
    let gid = sandbox.gid_index()?;
    let program = installed("ibv_rc_pingpong")?;
    let ports = free_ports(CROWD);
    let start = |port: u16, peer: Option<&str>| {
        let mut command = sandbox.command(&program, Device::default());
        command.args(["-c", "-e", "-n", "50", "-g", &gid, "-p", &port.to_string()]).args(peer);
        Process::start(&mut command)
    };
    let mut servers = ports.iter().map(|&port| start(port, None)).collect::<Result<Vec<_>, _>>()?;
    for (server, &port) in servers.iter_mut().zip(&ports) {
        wait_for_listener(server, port)?;
    }
    let clients = ports.iter().map(|&port| start(port, Some("127.0.0.1"))).collect::<Result<Vec<_>, _>>()?;
    for end in servers.into_iter().chain(clients) {
        let end = end.succeed()?;
        if !end.stdout.contains("iters in") || end.stdout.contains("invalid data") {
            return Err(end.failed("no good"));
        }
    }
    Ok(())
}
