//! Shards that GNU parallel and Kubernetes start, by what irnic prints.

use std::fs;
use std::process::{Command, Stdio};

use yaml_rust2::YamlLoader;

use super::{GRID, RUNS, SHARDS, assert_merged, done, grid, kill, processes, results, said, sim, start, wait_for};
use crate::support::{Folder, needs, text};

/// A script that irnic prints, as a command in the folder.
fn printed(folder: &Folder, engine: &str) -> Command {
    let script = done(folder, &sim(&["--print", engine, "--shards", &SHARDS.to_string()]));
    let path = folder.write("job.sh", &script);
    let mut command = Command::new("sh");
    command.arg(path).current_dir(folder.path()).stdin(Stdio::null());
    for name in ["LD_LIBRARY_PATH", "LD_PRELOAD"] {
        command.env_remove(name);
    }
    command
}

/// A shard that is stopped where it has hardly begun, when others have results, and its number.
pub fn stopped_shard(folder: &Folder) -> (u32, String) {
    wait_for("results", || (results(folder) > 5).then_some(()));
    let before = processes(folder, "--shard");
    let new = || processes(folder, "--shard").into_iter().find(|shard| !before.contains(shard));
    // One that has just ended takes a signal too, as long as nobody has waited for it; then it has no command line.
    let stopped = |shard: u32| {
        let cmdline = fs::read_to_string(format!("/proc/{shard}/cmdline")).ok().filter(|_| kill(shard, "-STOP"))?;
        let alive = !fs::read(format!("/proc/{shard}/cmdline")).ok()?.is_empty();
        let number = cmdline.split('\0').skip_while(|word| *word != "--shard").nth(1)?.split_once('/')?.0;
        alive.then(|| (shard, number.to_owned()))
    };
    wait_for("another shard", || stopped(new()?))
}

#[test]
fn gnu_parallel_makes_what_a_killed_shard_did_not() {
    let Some(()) = needs(&["parallel", "sh", "seq"]) else { return };
    let folder = grid();
    let mut parallel = printed(&folder, "parallel");
    let child = start(&mut parallel);
    // In the midst of it all a shard is killed, and its workers end by themselves.
    let (shard, _) = stopped_shard(&folder);
    assert!(kill(shard, "-KILL"));
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1), "one job failed: {}", text(&output.stderr));
    assert!(results(&folder) < RUNS, "the shard was not killed in its midst");
    wait_for("end of workers", || processes(&folder, "--worker").is_empty().then_some(()));
    assert!(said(&folder, 1, &["merge", "runs"]).contains(" runs are missing: "));
    let again = printed(&folder, "parallel").output().expect("it runs");
    assert!(again.status.success(), "{}", text(&again.stderr));
    assert_merged(&folder);
}

#[test]
fn kubernetes_gets_an_indexed_job() {
    let folder = Folder::new();
    folder.write("it's a grid.toml", GRID);
    let print = ["--print", "k8s", "--shards", "7", "--run-memory", "8GB", "--jobs=3", "--threads", "2"];
    let printed = done(&folder, &[&["sim", "--experiment", "it's a grid.toml", "--out", "runs"][..], &print].concat());
    let job = YamlLoader::load_from_str(&printed).expect("YAML").remove(0);
    assert_eq!((job["apiVersion"].as_str(), job["kind"].as_str()), (Some("batch/v1"), Some("Job")));
    let spec = &job["spec"];
    assert_eq!((spec["completionMode"].as_str(), spec["completions"].as_i64()), (Some("Indexed"), Some(7)));
    let pod = &spec["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(pod["volumes"][0]["name"], container["volumeMounts"][0]["name"]);
    assert_eq!(container["resources"]["requests"]["cpu"].as_i64(), Some(6));
    // Kubernetes counts from 0.
    let command: Vec<&str> = container["command"].as_vec().expect("a list").iter().filter_map(|w| w.as_str()).collect();
    for (index, shard) in [(0, "1/7"), (6, "7/7")] {
        let script = format!("irnic() {{ printf '%s\\n' \"$@\"; }}; {}", command[2].replacen("exec ", "", 1));
        let output = Command::new(command[0])
            .args([command[1], &script])
            .env("JOB_COMPLETION_INDEX", index.to_string())
            .output()
            .expect("sh runs");
        let args = text(&output.stdout);
        let args: Vec<&str> = args.lines().collect();
        assert_eq!(args[..4], ["sim", "--experiment", "it's a grid.toml", "--out"]);
        assert_eq!(args[args.len() - 2..], ["--shard", shard], "{args:?}");
    }
}
