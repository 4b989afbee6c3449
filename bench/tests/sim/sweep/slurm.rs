//! Shards that Slurm starts, by what irnic prints.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::engines::stopped_shard;
use super::{RUNS, SHARDS, assert_merged, done, grid, kill, results, sim, wait_for};
use crate::support::{Folder, free_ports, long_form, needs, skipped, text};

/// Slurm on this host, for as long as the value lives, in a folder of its own.
struct Slurm {
    folder: Folder,
    daemons: Vec<Child>,
}

impl Drop for Slurm {
    fn drop(&mut self) {
        for daemon in self.daemons.iter_mut().rev() {
            kill(daemon.id(), "-TERM");
            let patience = Instant::now() + Duration::from_secs(10);
            while daemon.try_wait().is_ok_and(|ended| ended.is_none()) && Instant::now() < patience {
                std::thread::sleep(Duration::from_millis(20));
            }
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

impl Slurm {
    /// Starts it. A node of two processors, whatever the host has.
    fn start(folder: Folder) -> Slurm {
        let place = fs::canonicalize(folder.path()).expect("a folder");
        let at = |name: &str| place.join(name).display().to_string();
        let host = text(&Command::new("hostname").arg("-s").output().expect("hostname runs").stdout).trim().to_owned();
        let [controller, node] = free_ports();
        let conf = format!(
            "ClusterName=irnic\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser=root\nSlurmdUser=root\n\
             AuthType=auth/munge\nAuthInfo=socket={},cred_expire=5\nSlurmctldPort={controller}\nSlurmdPort={node}\n\
             StateSaveLocation={}\nSlurmdSpoolDir={}\nSlurmctldPidFile={}\nSlurmdPidFile={}\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSelectType=select/cons_tres\n\
             SelectTypeParameters=CR_CPU\nSlurmdParameters=config_overrides\nReturnToService=2\nJobRequeue=1\n\
             MpiDefault=none\nNodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN\n\
             PartitionName=all Nodes={host} Default=YES State=UP\n",
            at("munge.sock"),
            at("state"),
            at("spool"),
            at("slurmctld.pid"),
            at("slurmd.pid"),
        );
        folder.write("slurm.conf", &conf);
        // What munged takes for a key, it wants for itself.
        folder.write("munge.key", &"irnic, on one host, for a minute".repeat(32));
        for (name, mode) in [("munge.key", 0o400), (".", 0o755)] {
            fs::set_permissions(place.join(name), PermissionsExt::from_mode(mode)).expect("permissions");
        }
        ["state", "spool"].iter().for_each(|name| fs::create_dir(place.join(name)).expect("a folder"));
        let mut slurm = Slurm { folder, daemons: Vec::new() };
        let munge = ["key-file=munge.key", "socket=munge.sock", "pid-file=munge.pid", "seed-file=munge.seed"];
        let mut munged = slurm.command("munged");
        munged.arg("--foreground").args(munge.iter().map(|option| {
            let (name, file) = option.split_once('=').expect("a file");
            format!("--{name}={}", at(file))
        }));
        slurm.daemon(munged);
        wait_for("munged", || place.join("munge.sock").exists().then_some(()));
        for name in ["slurmctld", "slurmd"] {
            let mut daemon = slurm.command(name);
            daemon.arg("-D");
            slurm.daemon(daemon);
        }
        wait_for("idle node", || {
            let idle = slurm.command("sinfo").args(["-h", "-o", "%T"]).output().expect("sinfo runs");
            (text(&idle.stdout).trim() == "idle").then_some(())
        });
        slurm
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command.env("SLURM_CONF", self.folder.path().join("slurm.conf")).current_dir(self.folder.path());
        command.env_remove("LD_LIBRARY_PATH").stdin(Stdio::null());
        command
    }

    fn daemon(&mut self, mut command: Command) {
        let log = fs::OpenOptions::new().append(true).create(true).open(self.folder.path().join("daemons.log"));
        let log = log.expect("a log");
        command.stdout(log.try_clone().expect("a log")).stderr(log);
        self.daemons.push(command.spawn().expect("a daemon starts"));
    }

    fn ask(&self, name: &str, args: &[&str]) -> String {
        let output = self.command(name).args(args).output().expect("it runs");
        assert!(output.status.success(), "{name} {args:?}: {}", text(&output.stderr));
        text(&output.stdout).trim().to_owned()
    }
}

#[test]
fn slurm_makes_what_a_killed_task_did_not() {
    if std::env::var("IRNIC_APPLICATIONS").as_deref() != Ok("long") {
        return long_form("a Slurm of its own, for half a minute");
    }
    let Some(()) = needs(&["sbatch", "hostname"]) else { return };
    // Daemons are in /usr/sbin, where users do not look.
    for daemon in ["/usr/sbin/munged", "/usr/sbin/slurmctld", "/usr/sbin/slurmd"] {
        if !Path::new(daemon).exists() {
            return skipped(&format!("{daemon} is not installed"));
        }
    }
    if fs::metadata("/proc/self").map(|process| process.uid()).ok() != Some(0) {
        return skipped("a Slurm of its own: not root");
    }
    let slurm = Slurm::start(grid());
    let folder = &slurm.folder;
    let script = done(folder, &sim(&["--print", "slurm", "--shards", &SHARDS.to_string()]));
    folder.write("job.sh", &script);
    let job = slurm.ask("sbatch", &["--parsable", "job.sh"]);
    // The process of a task is killed without a warning, and the task put back into the queue.
    let (_, task) = stopped_shard(folder);
    slurm.ask("scancel", &["--full", "--signal", "KILL", &format!("{job}_{task}")]);
    wait_for("end of the other tasks", || slurm.ask("squeue", &["-h"]).is_empty().then_some(()));
    assert!(results(folder) < RUNS, "task {task} was not killed in its midst");
    slurm.ask("scontrol", &["requeue", &format!("{job}_{task}")]);
    wait_for("end of the task", || slurm.ask("squeue", &["-h"]).is_empty().then_some(()));
    assert_merged(folder);
}
