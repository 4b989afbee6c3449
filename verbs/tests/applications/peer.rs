//! Pairs of a small C program that knows its peer from its standard input only: they have no connection but the queue
//! pair.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};

use crate::process::{Ended, Process};
use crate::sandbox::{Device, Sandbox, reliable, trial};

/// What the program needs to be built.
pub const NEEDS: [&str; 3] = ["/usr/bin/cc", "/usr/include/infiniband/verbs.h", "/usr/bin/ibv_devinfo"];

/// The program, compiled and linked against the library.
pub fn build(sandbox: &Sandbox) -> Result<PathBuf, Failed> {
    let program = sandbox.dir.path().join("peer");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/applications/peer.c");
    let mut cc = Command::new("/usr/bin/cc");
    cc.args(["-Wall", "-Wextra", "-Werror", "-O2", source, "-o"]).arg(&program);
    Process::start(cc.arg("-L").arg(sandbox.libraries()).arg("-libverbs"))?.succeed()?;
    Ok(program)
}

/// Two peers, and the threads that tell each what the other says.
pub struct Pair {
    peers: Vec<Process>,
    relays: Vec<JoinHandle<(String, ChildStdin)>>,
    lines: Arc<[AtomicUsize; 2]>,
}

impl Pair {
    /// Starts two peers and introduces them.
    pub fn start(
        sandbox: &Sandbox,
        program: &Path,
        device: Device,
        what: &str,
        seed: u64,
        gid: &str,
    ) -> Result<Pair, Failed> {
        let lines = Arc::new([const { AtomicUsize::new(0) }; 2]);
        let mut peers = Vec::new();
        for _ in 0..2 {
            let mut command = sandbox.command(program, device);
            peers.push(Process::start_piped(command.args([what, &seed.to_string(), gid]))?);
        }
        let mut stdins: Vec<ChildStdin> =
            peers.iter_mut().map(|p| p.child.stdin.take().expect("its input is a pipe")).collect();
        let mut relays = Vec::new();
        for (n, peer) in peers.iter_mut().enumerate() {
            let from = BufReader::new(peer.child.stdout.take().expect("its output is a pipe"));
            let mut to = stdins.pop().expect("two pipes, the other's first");
            let lines = lines.clone();
            relays.push(thread::spawn(move || {
                let mut text = String::new();
                for line in from.lines().map_while(Result::ok) {
                    // An error means that the other one has ended.
                    let _ = writeln!(to, "{line}");
                    text += &line;
                    text.push('\n');
                    lines[n].fetch_add(1, Ordering::Release);
                }
                // The input stays open: its end must not tell that this peer has gone.
                (text, to)
            }));
        }
        Ok(Pair { peers, relays, lines })
    }

    /// Waits until both have said `n` lines.
    pub fn wait_for_lines(&mut self, n: usize) -> Result<(), Failed> {
        let start = Instant::now();
        while self.lines.iter().any(|lines| lines.load(Ordering::Acquire) < n) {
            if start.elapsed() > irnic_testkit::wait::HANG || !self.peers.iter_mut().all(Process::runs) {
                let text: String = self.peers.iter().map(Process::text).collect();
                return Err(format!("the peers do not get as far as line {n}: {text}").into());
            }
            thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    /// Sends a peer a signal.
    pub fn signal(&self, n: usize, signal: libc::c_int) {
        self.peers[n].signal(signal);
    }

    /// Whether neither has ended.
    pub fn runs(&mut self) -> bool {
        self.peers.iter_mut().all(Process::runs)
    }

    /// Waits for both, and returns how they ended and what they said.
    pub fn end(self) -> Result<Vec<(Ended, String)>, Failed> {
        let ended: Result<Vec<Ended>, Failed> = self.peers.into_iter().map(Process::end).collect();
        let said = self.relays.into_iter().map(|relay| relay.join().expect("a relay does not panic").0);
        Ok(ended?.into_iter().zip(said).collect())
    }
}

/// Every operation of RC between two processes; both compare every byte.
pub fn verify(sandbox: &Sandbox, program: &Path, device: Device, seed: u64) -> Result<(), Failed> {
    let gid = sandbox.gid_index()?;
    for (end, said) in Pair::start(sandbox, program, device, "verify", seed, &gid)?.end()? {
        if !end.status.success() || !said.ends_with("verified\n") {
            return Err(end.failed(&format!("seed {seed}: it said {said}")));
        }
    }
    Ok(())
}

/// All tests of data.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for seed in 1..=4 {
        for &(network, device) in reliable(seed as usize) {
            let name = format!("peers: every byte of SEND, WRITE, READ and FETCH_AND_ADD, seed {seed} ({network})");
            trials.push(trial(name, &NEEDS, move |sandbox| verify(sandbox, &build(sandbox)?, device, seed)));
        }
    }
    trials
}
