//! `irnic launch`: the ranks of a parallel job on one machine, each with a NIC of its own, started as torchrun does.

use std::io;
use std::net::TcpListener;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::Args;
use irnic_verbs::config::Origin;

use crate::listening::{children, descendants};
use crate::run::{RunArgs, RunError, command};

/// Interval of checks for the end of ranks.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time between terminating and killing ranks.
const GRACE: Duration = Duration::from_secs(5);

/// Settings of NCCL and NVSHMEM, of those that the environment does not have: InfiniBand between ranks, found at the
/// loopback interface. NCCL's device API looks for hardware that is not there (NCCL 2.28: net.cc); NVSHMEM asks for
/// dma-buf, which has no pointer.
const SETTINGS: [(&str, &str); 8] = [
    ("NCCL_NET", "IB"),
    ("NCCL_IB_HCA", "irnic"),
    ("NCCL_SOCKET_IFNAME", "lo"),
    ("NCCL_P2P_DISABLE", "1"),
    ("NCCL_SHM_DISABLE", "1"),
    ("NCCL_GIN_ENABLE", "0"),
    ("NCCL_GIN_TYPE", "2"),
    ("NVSHMEM_IB_DISABLE_DMABUF", "1"),
];

const AFTER_HELP: &str = "\
Each rank has RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as from torchrun. Ranks of one host share a
NIC, at 127.0.0.1 for the first host, 127.0.0.2 for the second and so on; in a lab, at the lab's hosts. NCCL_HOSTID names the host; NCCL_NET=IB,
NCCL_IB_HCA=irnic, NCCL_SOCKET_IFNAME=lo, NCCL_P2P_DISABLE=1, NCCL_SHM_DISABLE=1, NCCL_GIN_ENABLE=0, NCCL_GIN_TYPE=2 and
NVSHMEM_IB_DISABLE_DMABUF=1 are set unless the environment has them. If a rank fails, the others are terminated. Exit status: that of
the first rank that failed, or 0; others as for irnic run.

Examples:
  irnic launch -n 2 -- python3 train.py
  irnic launch -n 4 --transport irn --impair 'loss 0.1%' -- python3 train.py
  irnic launch -n 8 --per-host 2 -- ./app                              four hosts
  irnic lab --topology leaf-spine:leaves=2,spines=2,hosts=2 -- irnic launch -n 4 -- python3 train.py";

/// Run the ranks of a parallel job, each on a software NIC of its own.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP, disable_version_flag = true)]
pub struct LaunchArgs {
    /// Number of ranks
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    ranks: u32,
    /// Ranks on each host
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    per_host: u32,
    /// Port at which rank 0 may listen [default: MASTER_PORT, else a free one]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    master_port: Option<u16>,
    #[command(flatten)]
    run: RunArgs,
}

/// Returns MASTER_PORT; empty counts as not set.
fn given_port() -> Result<Option<u16>, RunError> {
    let Some(given) = std::env::var_os("MASTER_PORT").filter(|given| !given.is_empty()) else { return Ok(None) };
    match given.to_str().and_then(|text| text.parse().ok()) {
        None | Some(0) => Err(RunError::Usage(format!("MASTER_PORT={}: expected a port, 1 to 65535", given.display()))),
        port => Ok(port),
    }
}

/// Returns a port that is free now.
fn free_port() -> Result<u16, RunError> {
    let port = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    port.map(|address| address.port()).map_err(|e| RunError::Failed(format!("no free port: {e}")))
}

impl LaunchArgs {
    /// Returns the command of a rank.
    fn rank(&self, rank: u32, port: u16) -> Result<Command, RunError> {
        let (host, local) = (rank / self.per_host, rank % self.per_host);
        let mut variables = self.run.variables()?;
        let in_lab = variables.get("IRNIC_PORT").is_some_and(|(port, _)| port.starts_with("lab:"));
        if !in_lab && variables.get("IRNIC_ADDRESSES").is_none() {
            // From 127.0.0.1 on, all of which Linux answers.
            let address = std::net::Ipv4Addr::from_bits(std::net::Ipv4Addr::LOCALHOST.to_bits() + host);
            variables.set("IRNIC_ADDRESSES", &address.to_string(), Origin::Flag("launch".into()));
        }
        let mut command = command(&self.run, &variables, true)?;
        let on_host = self.per_host.min(self.ranks - host * self.per_host);
        let numbers = [
            ("RANK", rank),
            ("WORLD_SIZE", self.ranks),
            ("LOCAL_RANK", local),
            ("LOCAL_WORLD_SIZE", on_host),
            ("GROUP_RANK", host),
            ("MASTER_PORT", port.into()),
        ];
        command.envs(numbers.map(|(name, number)| (name, number.to_string())));
        let unset = |name: &str| std::env::var_os(name).is_none();
        command.envs([("MASTER_ADDR", "127.0.0.1")].into_iter().filter(|(name, _)| unset(name)));
        command.envs(SETTINGS.into_iter().filter(|(name, _)| unset(name)));
        command.envs([("NCCL_HOSTID", format!("h{host}"))].into_iter().filter(|(name, _)| unset(name)));
        if in_lab {
            command.env("IRNIC_LAB_HOST", host.to_string());
        }
        if rank > 0 {
            command.stdin(Stdio::null());
        }
        // SAFETY: a system call without memory.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
                Ok(())
            });
        }
        Ok(command)
    }

    /// Runs the ranks. Returns the exit status.
    fn run(&self) -> Result<u8, RunError> {
        let port = match self.master_port {
            Some(port) => port,
            None => given_port()?.map_or_else(free_port, Ok)?,
        };
        let interrupted = irnic_report::interrupt::flag().map_err(|e| RunError::Failed(e.to_string()))?;
        let mut ranks = Ranks::new().map_err(|e| RunError::Failed(format!("prctl: {e}")))?;
        for rank in 0..self.ranks {
            let mut command = self.rank(rank, port)?;
            let child = command.spawn();
            let child = child.map_err(|error| RunError::Exec { command: command.get_program().to_owned(), error })?;
            ranks.running.push((rank, child));
        }
        while !ranks.running.is_empty() {
            if interrupted.load(Ordering::Relaxed) {
                return Ok(130);
            }
            for (rank, status) in ranks.ended() {
                let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
                if code != 0 {
                    eprintln!("irnic: rank {rank}: exit status {code}");
                    return Ok(u8::try_from(code).unwrap_or(1));
                }
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        ranks.succeeded = true;
        Ok(0)
    }
}

/// Ranks that run. On drop they are terminated, with all that they and those that have ended have started, unless all
/// succeeded.
struct Ranks {
    running: Vec<(u32, Child)>,
    succeeded: bool,
    /// Processes that were there before.
    others: Vec<u32>,
}

impl Ranks {
    /// No ranks yet. From now on this process is the parent of what they leave behind.
    fn new() -> io::Result<Ranks> {
        // SAFETY: a system call without memory.
        match unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) } {
            0 => Ok(Ranks { running: Vec::new(), succeeded: false, others: descendants(std::process::id()) }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Returns the processes of these that the ranks are, or have started.
    fn of_ranks(&self, mut processes: Vec<u32>) -> Vec<u32> {
        processes.retain(|process| !self.others.contains(process));
        processes
    }

    /// Returns all of them.
    fn left(&self) -> Vec<u32> {
        self.of_ranks(descendants(std::process::id()))
    }

    /// Takes turns until nothing is left, or [`GRACE`] is over.
    fn until_gone(&mut self, mut turn: impl FnMut(&Ranks)) {
        let until = Instant::now() + GRACE;
        loop {
            turn(self);
            if self.left().is_empty() || Instant::now() >= until {
                return;
            }
            std::thread::sleep(POLL_INTERVAL);
            self.ended();
        }
    }

    /// Returns those that have ended since the last call.
    fn ended(&mut self) -> Vec<(u32, ExitStatus)> {
        let mut ended = Vec::new();
        self.running.retain_mut(|(rank, child)| match child.try_wait() {
            Ok(Some(status)) => {
                ended.push((*rank, status));
                false
            }
            _ => true,
        });
        ended
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        if self.succeeded {
            return;
        }
        // The ranks, and then what they leave behind, which is this process's child.
        let mut terminated = Vec::new();
        self.until_gone(|ranks| {
            for child in ranks.of_ranks(children(std::process::id())) {
                if !terminated.contains(&child) {
                    signal(child, libc::SIGTERM);
                    terminated.push(child);
                }
            }
        });
        // In turns: some may start others meanwhile.
        self.until_gone(|ranks| ranks.left().into_iter().for_each(|process| signal(process, libc::SIGKILL)));
    }
}

fn signal(process: u32, signal: i32) {
    // SAFETY: no memory is passed.
    unsafe { libc::kill(process as libc::pid_t, signal) };
}

/// Runs `irnic launch`.
pub fn main(args: &LaunchArgs) -> ExitCode {
    match args.run() {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("irnic: {error}");
            ExitCode::from(error.status())
        }
    }
}
