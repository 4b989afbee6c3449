//! Sweeps: runs in shards, by engines, interrupted and killed, come to what one process shows, byte for byte.

mod engines;
mod slurm;

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Folder, irnic, ring, skipped, text};
use irnic_testkit::once;
use serde_json::Value;

/// 200 runs of some milliseconds each.
const GRID: &str = "topology = \"star:hosts=4\"\nworkload = \"fixed:10KB\"\nduration = \"100us\"\n\
                    load = [0.3, 0.5, 0.7, 0.9]\nseeds = 25\n\
                    [[run]]\nname = \"IRN\"\ntransport = \"irn\"\n[[run]]\ntransport = \"roce\"\npfc = \"on\"\n";
const RUNS: usize = 200;
const SHARDS: usize = 7;

#[cfg(feature = "parquet")]
const FLOWS: &str = "flows.parquet";
#[cfg(not(feature = "parquet"))]
const FLOWS: &str = "flows.csv";

/// All that can be written of an experiment.
const FILES: [&str; 10] =
    ["--json", "s.json", "--csv", "s.csv", "--html", "r.html", "--per-flow", FLOWS, "--series", "q.csv"];

fn grid() -> Folder {
    let folder = Folder::new();
    folder.write("grid.toml", GRID);
    folder
}

fn run(folder: &Folder, args: &[&str]) -> Output {
    irnic(folder).args(args).output().expect("irnic runs")
}

/// What it prints, if it ends well.
fn done(folder: &Folder, args: &[&str]) -> String {
    let output = run(folder, args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// What it says on standard error, if it ends so.
fn said(folder: &Folder, status: i32, args: &[&str]) -> String {
    let output = run(folder, args);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{args:?}: {said}");
    said
}

const SIM: [&str; 5] = ["sim", "--experiment", "grid.toml", "--out", "runs"];

fn sim<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&SIM[..], more].concat()
}

/// Standard output and files of results.
#[derive(PartialEq)]
struct Results(Vec<(String, Vec<u8>)>);

impl Results {
    fn names() -> impl Iterator<Item = &'static str> {
        std::iter::once("standard output").chain(FILES.iter().skip(1).step_by(2).copied())
    }

    /// Of a command with all files.
    fn of(folder: &Folder, args: &[&str]) -> Results {
        let mut out = Some(done(folder, &[args, &FILES].concat()).into_bytes());
        let bytes = |name: &str| out.take().unwrap_or_else(|| fs::read(folder.path().join(name)).expect("a file"));
        Results(Results::names().map(str::to_owned).zip(Results::names().map(bytes)).collect())
    }

    fn assert_same(&self, other: &Results) {
        for ((name, one), (_, two)) in self.0.iter().zip(&other.0) {
            assert!(one == two, "{name}: {} bytes and {}", one.len(), two.len());
        }
    }
}

/// What one process shows of the grid, found out once for all tests.
fn one_process() -> Results {
    let folder = once::folder("sweep", |folder| {
        for (name, bytes) in Results::of(&grid(), &["sim", "--experiment", "grid.toml"]).0 {
            fs::write(folder.join(name), bytes).map_err(|e| e.to_string())?;
        }
        Ok(())
    });
    let folder = folder.expect("a run of one process");
    let read = |name: &str| (name.to_owned(), fs::read(folder.join(name)).expect("a file"));
    Results(Results::names().map(read).collect())
}

fn assert_merged(folder: &Folder) {
    one_process().assert_same(&Results::of(folder, &["merge", "runs"]));
}

/// Files of a folder of results that end so.
fn files(folder: &Folder, end: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder.path().join("runs")) else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = paths.filter(|path| path.to_string_lossy().ends_with(end)).collect();
    files.retain(|path| !path.ends_with("sweep.json"));
    files.sort();
    files
}

fn results(folder: &Folder) -> usize {
    files(folder, ".json").len()
}

/// Processes of irnic in the folder that have an option.
fn processes(folder: &Folder, option: &str) -> Vec<u32> {
    let here = fs::canonicalize(folder.path()).expect("a folder");
    let is_one = |process: &u32| {
        let place = PathBuf::from(format!("/proc/{process}"));
        let args = fs::read(place.join("cmdline")).unwrap_or_default();
        let args: Vec<&[u8]> = args.split(|byte| *byte == 0).collect();
        args.first().is_some_and(|word| word.ends_with(b"irnic"))
            && args.contains(&option.as_bytes())
            && fs::read_link(place.join("cwd")).is_ok_and(|cwd| cwd == here)
    };
    let all = fs::read_dir("/proc").expect("/proc").flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_one).collect()
}

fn kill(process: u32, signal: &str) -> bool {
    let mut kill = Command::new("kill");
    kill.args([signal, &process.to_string()]).stderr(Stdio::null()).status().expect("kill runs").success()
}

/// Waits until there is something.
fn wait_for<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let patience = Instant::now() + irnic_testkit::wait::HANG;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < patience, "no {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn start(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
}

#[test]
fn shards_come_to_what_one_process_shows() {
    let folder = grid();
    let shard = |number: usize| format!("{number}/{SHARDS}");
    let mut sizes = Vec::new();
    for number in 1..=SHARDS {
        let before = results(&folder);
        let said = said(&folder, 0, &sim(&["--shard", &shard(number)]));
        sizes.push(results(&folder) - before);
        assert!(said.starts_with(&format!("irnic sim: shard {number}/{SHARDS}: ")), "{said}");
        if number == SHARDS - 1 {
            let missing = self::said(&folder, 1, &["merge", "runs", "--json", "s.json"]);
            assert!(missing.contains(" of 200 runs are missing: ") && missing.contains(" more\n"), "{missing}");
            assert!(missing.contains("irnic merge: irnic sim --experiment grid.toml --out /"), "{missing}");
            assert!(!folder.path().join("s.json").exists());
            let partial = done(&folder, &["merge", "runs", "--partial", "--json", "s.json"]);
            assert!(partial.contains(" missing"), "{partial}");
        }
    }
    assert_eq!(sizes.iter().sum::<usize>(), RUNS);
    assert!(sizes.iter().all(|n| (20..40).contains(n)), "{sizes:?}");
    assert_merged(&folder);

    // All there is to do is to show it, wherever the folder is and whatever became of the experiment.
    let times = || files(&folder, ".json").iter().map(|path| path.metadata().unwrap().modified().unwrap()).max();
    let before = times();
    one_process().assert_same(&Results::of(&folder, &SIM));
    assert_eq!(times(), before);
    fs::remove_file(folder.path().join("grid.toml")).unwrap();
    let other = Folder::new();
    fs::rename(folder.path().join("runs"), other.path().join("runs")).unwrap();
    assert_merged(&other);
}

#[test]
fn double_starts_and_overlapping_shards_are_harmless() {
    let folder = grid();
    let shards = ["1/2", "1/2", "2/2", "2/3"].map(|shard| start(irnic(&folder).args(sim(&["--shard", shard]))));
    for child in shards {
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    assert_eq!(fs::read_dir(folder.path().join("runs")).unwrap().count(), RUNS + 1);
    assert_merged(&folder);
}

#[test]
fn a_worker_that_is_killed_from_outside_is_replaced_and_one_that_crashes_is_told() {
    let folder = grid();
    let child = start(irnic(&folder).args(sim(&["--jobs", "1"])));
    wait_for("worker", || processes(&folder, "--worker").into_iter().find(|worker| kill(*worker, "-KILL")));
    let output = child.wait_with_output().expect("it ends");
    let said = text(&output.stderr);
    assert!(output.status.success() && said.contains(": killed from outside; once more\n"), "{said}");
    assert_merged(&folder);

    let folder = grid();
    let child = start(irnic(&folder).args(sim(&["--shard", "1/1", "--jobs", "1"])));
    wait_for("worker", || processes(&folder, "--worker").into_iter().find(|worker| kill(*worker, "-ABRT")));
    let output = child.wait_with_output().expect("it ends");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("its process ended: signal: 6 (SIGABRT)"), "{said}");
    assert_eq!((results(&folder), files(&folder, ".failed").len()), (RUNS - 1, 1), "the others went on");
    assert!(self::said(&folder, 1, &["merge", "runs"]).contains("its process ended: signal: 6"));
    done(&folder, &sim(&["--resume", "--retry-failed"]));
    assert!(files(&folder, ".failed").is_empty());
    assert_merged(&folder);
}

/// Short runs and one without an end.
const HANGS: &str = "topology = \"star:hosts=4\"\nduration = \"50us\"\nworkload = \"fixed:10KB\"\nseeds = 2\n\
                     [[run]]\nname = \"short\"\n\
                     [[run]]\nname = \"long\"\nworkload = \"permutation:bytes=100GB\"\nlink-event = \"down:0@1ms,up:0@2ms\"\n";

#[test]
fn a_run_that_takes_too_long_or_too_much_fails_and_is_final_the_second_time() {
    let folder = Folder::new();
    folder.write("grid.toml", HANGS);
    let limit = ["--run-timeout", "300ms", "--jobs", "2"];
    let first = said(&folder, 1, &sim(&[&limit[..], &["--shard", "1/1"]].concat()));
    let message = "--run-timeout 300ms: it takes longer than it may";
    assert!(first.contains(&format!("irnic sim: long seed=1: {message}; alone: irnic sim --topology")), "{first}");
    assert!(first.contains("4 runs: 2 made, 2 failed; "), "{first}");
    assert!(first.ends_with("irnic sim: 2 runs failed\n"), "{first}");
    let failed = files(&folder, ".failed");
    let failure: Value = serde_json::from_slice(&fs::read(&failed[0]).unwrap()).expect("JSON");
    assert_eq!((failed.len(), &failure["message"]), (2, &message.into()));
    let replay = failure["replay"].as_str().expect("a command line");
    let seed = failure["seed"].as_u64().expect("a seed");
    assert_eq!(
        replay,
        format!(
            "irnic sim --topology star:hosts=4 --workload permutation:bytes=100GB --duration 50us \
             --link-event down:0@1ms,up:0@2ms --seed {seed}"
        )
    );
    // As the shell reads it, as long as that takes.
    let script = format!("irnic() {{ '{}' \"$@\" --until 1ms; }}; {replay}", env!("CARGO_BIN_EXE_irnic"));
    let replayed = Command::new("sh").args(["-c", &script]).current_dir(folder.path()).output().expect("sh runs");
    assert!(text(&replayed.stdout).contains("time-up"), "{}", text(&replayed.stderr));

    // Not again unless it is asked for, and then once: what happens twice happens always.
    for (more, made, said) in [
        (&[][..], false, "2 failed; 0.0 s of core time; --retry-failed makes 2 once more\n"),
        (&["--retry-failed"], true, "2 failed, 2 of them twice with the same message; "),
        (&["--retry-failed"], false, "2 failed, 2 of them twice with the same message; "),
    ] {
        let again = self::said(&folder, 1, &sim(&[&limit[..], &["--shard", "1/1", "--resume"], more].concat()));
        assert!(again.contains("4 runs: 0 made, 2 there before, ") && again.contains(said), "{again}");
        assert_eq!(again.contains("; alone: "), made, "{again}");
    }
    // What is shown tells them, and has the others.
    let output = run(&folder, &["merge", "runs", "--json", "s.json"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains(&format!("irnic merge: long seed=2: {message}\n")),
        "{}",
        text(&output.stderr)
    );
    let json: Value = serde_json::from_slice(&fs::read(folder.path().join("s.json")).unwrap()).expect("JSON");
    assert_eq!(json["cases"][1]["runs"][0]["error"], message);
    assert_eq!(json["cases"][0]["runs"][1]["ending"], "complete");

    let folder = grid();
    for twice in [false, true] {
        let limit = ["--seeds", "1", "--run-memory", "1MB", "--shard", "1/4", "--retry-failed"];
        let large = said(&folder, 1, &sim(&limit));
        assert!(large.contains("--run-memory 1000000: it takes more memory than it may; alone: "), "{large}");
        assert_eq!(large.contains("twice with the same message"), twice, "{large}");
    }
    assert_eq!((results(&folder), files(&folder, ".failed").len()), (0, 2));
    // With another limit it is another matter.
    done(&folder, &sim(&["--seeds", "1", "--run-memory", "8GB", "--retry-failed"]));
    assert_eq!((results(&folder), files(&folder, ".failed").len()), (8, 0));
}

#[test]
fn ctrl_c_keeps_what_was_done() {
    let folder = grid();
    let child = start(irnic(&folder).args(sim(&["--jobs", "1", "--json", "s.json"])));
    wait_for("results", || (results(&folder) > 5).then_some(()));
    assert!(kill(child.id(), "-INT"));
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains(" never begun; the results are those of runs that were done\n"));
    let there = results(&folder);
    assert!((6..RUNS).contains(&there), "{there}");
    assert_eq!(fs::read_dir(folder.path().join("runs")).unwrap().count(), there + 1, "nothing half-written is left");
    assert!(folder.path().join("s.json").exists());
    one_process().assert_same(&Results::of(&folder, &sim(&["--resume"])));
}

#[test]
fn an_experiment_that_changes_meanwhile_ends_the_sweep() {
    for (changed, expected) in
        [(GRID.replace("100us", "101us"), ""), ("load =\n".to_owned(), "irnic sim: grid.toml:1: ")]
    {
        let folder = grid();
        let child = start(irnic(&folder).args(sim(&["--jobs", "1", "--shard", "1/1"])));
        wait_for("results", || (results(&folder) > 5).then_some(()));
        folder.write("grid.toml", &changed);
        wait_for("worker", || processes(&folder, "--worker").into_iter().find(|worker| kill(*worker, "-KILL")));
        let output = child.wait_with_output().expect("it ends");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.ends_with("irnic sim: the experiment has changed since the runs began\n"), "{said}");
        assert!(said.contains(expected) && files(&folder, ".failed").is_empty(), "{said}");
        // As it was, it goes on.
        folder.write("grid.toml", GRID);
        one_process().assert_same(&Results::of(&folder, &SIM));
    }
}

#[test]
fn a_file_by_the_name_of_the_description_is_left_alone() {
    let folder = grid();
    let foreign = "{\"my\": \"sweep\"}";
    fs::create_dir(folder.path().join("mine")).unwrap();
    folder.write("mine/sweep.json", foreign);
    for more in [&[][..], &["--resume"]] {
        let output = run(&folder, &[&["sim", "--topology", "star:hosts=3,rate=10G", "--out", "mine"], more].concat());
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains("mine/sweep.json: damaged: "), "{said}");
        assert_eq!(fs::read_to_string(folder.path().join("mine/sweep.json")).unwrap(), foreign);
    }
    // Nor is what describes the runs replaced by their results.
    let before = fs::read_to_string(folder.path().join("grid.toml")).unwrap();
    let output = run(&folder, &["sim", "--experiment", "grid.toml", "--json", "grid.toml"]);
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("grid.toml: it would be read and written"), "{said}");
    assert_eq!(fs::read_to_string(folder.path().join("grid.toml")).unwrap(), before);
}

#[test]
fn damaged_results_are_told_and_made_again() {
    let folder = grid();
    let small = sim(&["--seeds", "2"]);
    let whole = done(&folder, &small);
    let all = files(&folder, ".json");
    let (cut, changed, other) = (&all[0], &all[1], &all[2]);
    let content = fs::read_to_string(cut).unwrap();
    fs::write(cut, &content[..content.len() / 2]).unwrap();
    let content = fs::read_to_string(changed).unwrap();
    let ended = content.replacen("\"ended\":", "\"ended\":1", 1);
    assert_ne!(ended, content);
    fs::write(changed, ended).unwrap();
    fs::copy(&all[3], other).unwrap();
    let said = said(&folder, 1, &["merge", "runs"]);
    assert_eq!(said.matches(": damaged: ").count(), 3, "{said}");
    assert!(said.contains("3 of 16 runs are missing: "), "{said}");
    let output = run(&folder, &small);
    let printed = text(&output.stderr);
    assert!(output.status.success() && printed.matches(" is made again\n").count() == 3, "{printed}");
    assert!(printed.contains("16 runs: 3 made, 13 there before; "), "{printed}");
    assert_eq!(text(&output.stdout), whole);
    assert_eq!(done(&folder, &["merge", "runs"]), whole);
}

/// Another version of irnic.
const OTHER: &str = "0.0.7 (5d0c9d9a1b2c 2026-01-31)";

/// Writes results as another version of irnic would have.
fn of_another_version(files: &[PathBuf]) {
    use sha2::{Digest, Sha256};
    for path in files {
        let text = fs::read_to_string(path).unwrap();
        let json: Value = serde_json::from_str(&text).unwrap();
        let ours = json["irnic"].as_str().expect("a version");
        let mut hash = Sha256::new();
        for part in [json["run"].as_str().expect("a hash"), OTHER] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let name: String = hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let text = text.replacen(&format!("\"irnic\":\"{ours}\""), &format!("\"irnic\":\"{OTHER}\""), 1);
        fs::write(path.with_file_name(format!("{name}.json")), text).unwrap();
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn versions_are_not_mixed_unless_that_is_asked_for() {
    let folder = grid();
    let small = sim(&["--seeds", "1"]);
    let whole = done(&folder, &small);
    let all = files(&folder, ".json");
    of_another_version(&all[..3]);
    let mixed = said(&folder, 1, &["merge", "runs"]);
    assert!(mixed.contains(&format!("5 by irnic {}, 3 by irnic {OTHER}", env!("CARGO_PKG_VERSION"))), "{mixed}");
    // The text ends with the version that performed the runs.
    let by = |version: &str| whole.replace(concat!("(irnic ", env!("CARGO_PKG_VERSION")), &format!("(irnic {version}"));
    let both = &format!("{OTHER}+{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(done(&folder, &["merge", "runs", "--mixed-versions", "--json", "m.json"]), by(both));
    let json: Value = serde_json::from_slice(&fs::read(folder.path().join("m.json")).unwrap()).expect("JSON");
    assert_eq!(json["irnic"], *both);
    // Those of one version alone are not mixed, whichever it is; and this one has none of its own then.
    of_another_version(&all[3..]);
    assert_eq!(done(&folder, &["merge", "runs"]), by(OTHER));
    assert!(said(&folder, 0, &small).contains("8 runs: 8 made; "));
}

#[test]
fn a_folder_is_of_one_sweep_unless_it_is_told_to_go_on_with_another() {
    let folder = grid();
    done(&folder, &sim(&["--seeds", "1"]));
    let other = said(&folder, 2, &sim(&["--seeds", "2"]));
    let expected =
        "irnic sim: --out: the folder has runs of another sweep, irnic sim --experiment grid.toml --seeds 1; ";
    assert!(other.starts_with(expected), "{other}");
    let more = said(&folder, 0, &sim(&["--seeds", "2", "--resume"]));
    assert!(more.contains("16 runs: 8 made, 8 there before; "), "{more}");
    folder.write("grid.toml", &GRID.replace("0.3, ", ""));
    assert!(said(&folder, 2, &sim(&["--seeds", "2"])).contains(" with another experiment file; "));
}

#[test]
fn files_that_a_workload_names_are_a_part_of_what_a_run_is() {
    let folder = Folder::new();
    let args = ["sim", "--topology", "star:hosts=3", "--workload", "file:flows.txt", "--out", "runs"];
    for (flow, made) in
        [("0 1 3 20000 0.0", "1 made"), ("0 1 3 20000 0.0", "1 there before"), ("0 1 3 30000 0.0", "1 made")]
    {
        folder.write("flows.txt", &format!("1\n{flow}\n"));
        let said = said(&folder, 0, &args);
        assert!(said.contains(made), "{flow}: {said}");
    }
    // They are found from elsewhere, too.
    let runs = folder.path().join("runs").display().to_string();
    assert_eq!(done(&Folder::new(), &["merge", &runs]), done(&folder, &args));
}

#[test]
fn a_deadlock_is_a_result_and_summaries_are_enough_for_tables() {
    let folder = Folder::new();
    ring(&folder);
    let network =
        ["sim", "--topology", "ring.txt", "--flows", "flows.txt", "--transport", "irn", "--transport", "roce"];
    let one = done(&folder, &[&network[..], &["--pfc", "on", "--json", "one.json"]].concat());
    assert!(one.contains("roce: deadlock, each node waits for the next: "), "{one}");
    for more in [&[][..], &["--summaries-only"]] {
        let out = format!("runs{}", more.len());
        let shard = |shard| [&network[..], &["--pfc", "on", "--out", &out, "--shard", shard], more].concat();
        ["1/2", "2/2"].iter().for_each(|of| _ = done(&folder, &shard(of)));
        assert_eq!(done(&folder, &["merge", &out, "--json", "merged.json"]), one);
        let [one, merged] = ["one.json", "merged.json"].map(|name| fs::read(folder.path().join(name)).expect(name));
        assert!(one == merged, "{more:?}");
    }
    let size = |out: &str| -> u64 {
        let files = fs::read_dir(folder.path().join(out)).unwrap().flatten();
        files.map(|entry| entry.metadata().unwrap().len()).sum()
    };
    assert!(size("runs1") < size("runs0") / 2, "{} and {}", size("runs1"), size("runs0"));
}

#[test]
fn what_makes_no_sense_is_refused_in_one_line() {
    let folder = grid();
    folder.write("bad.toml", "load = 0.5\nlaod = 1\n");
    folder.write("nonsense.toml", "buffer = 1\n");
    folder.write("file", "");
    let with = |more: &[&'static str]| [&["sim", "--topology", "star:hosts=3", "--out", "out"][..], more].concat();
    for (args, expected) in [
        (
            with(&["--shard", "0/7"]),
            "irnic: invalid value '0/7' for '--shard <I/N>': shards are counted from 1: expected 1/7 to 7/7",
        ),
        (with(&["--shard", "8/7"]), "irnic: invalid value '8/7' for '--shard <I/N>': expected I/N, I being 1 to N"),
        (
            with(&["--run-timeout", "soon"]),
            "irnic: invalid value 'soon' for '--run-timeout <TIME>': expected a time such as 90s",
        ),
        (with(&["--print", "slurm"]), "irnic: the following required arguments were not provided: --shards <N>"),
        (
            with(&["--shard", "1/2", "--json", "a.json"]),
            "irnic sim: --json: a shard has a part of the results; `irnic merge`",
        ),
        (with(&["--summaries-only", "--html", "a.html"]), "irnic sim: --html: there are no flows and no samples with"),
        (with(&["--pcap", "a.pcapng"]), "irnic sim: --pcap: packets are not kept in --out"),
        (with(&["--experiment", "bad.toml"]), "irnic sim: bad.toml:2: unknown key \"laod\""),
        (
            with(&["--experiment", "nonsense.toml"]),
            "irnic sim: nonsense.toml:1: buffer = \"1\": expected room for a packet",
        ),
        (vec!["sim", "--shard", "1/2"], "irnic: the following required arguments were not provided: --out <DIR>"),
        (vec!["sim", "--topology", "star:hosts=3", "--out", "file"], "irnic sim: --out file: File exists"),
        (vec!["sim", "--topology", "star:hosts=3", "--out", "/proc/runs"], "irnic sim: --out /proc/runs: "),
        (vec!["merge", "nowhere"], "irnic merge: nowhere: no sweep.json; expected a folder of --out"),
    ] {
        let said = said(&folder, 2, &args);
        assert!(said.starts_with(expected) && said.lines().count() == 1, "{args:?}: {said}");
        assert!(!folder.path().join("out").exists(), "{args:?} leaves a folder");
    }
    done(&folder, &["sim", "--topology", "star:hosts=3", "--out", "out", "--summaries-only"]);
    let flows = said(&folder, 2, &["merge", "out", "--per-flow", "f.csv"]);
    assert!(flows.starts_with("irnic merge: --per-flow: there are no flows and no samples with"), "{flows}");
    let svg = said(&folder, 2, &["merge", "out", "--svg", "f"]);
    assert!(svg.starts_with("irnic merge: unexpected argument '--svg' found; out: of irnic sim --topology"), "{svg}");
}

/// A full disk ends a sweep: what there is is whole, and with room again it goes on.
#[test]
fn a_full_disk_is_told_and_loses_nothing() {
    let folder = grid();
    let runs = folder.path().join("runs");
    fs::create_dir(&runs).unwrap();
    let mount = |options: &str| {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&runs).stderr(Stdio::null());
        mount.status().is_ok_and(|status| status.success())
    };
    if !mount("size=64k") {
        return skipped("a file system of 64 KB: mount refuses it");
    }
    let full = said(&folder, 1, &sim(&["--shard", "1/1"]));
    let (there, failed) = (results(&folder), files(&folder, ".failed").len());
    let enlarged = mount("remount,size=64m");
    let resumed = enlarged.then(|| run(&folder, &sim(&["--shard", "1/1"])));
    let merged = enlarged.then(|| run(&folder, &["merge", "runs"]));
    let left = fs::read_dir(&runs).unwrap().count();
    assert!(Command::new("umount").arg(&runs).status().expect("umount runs").success());
    assert!(full.contains(": No space left on device (os error 28)\n"), "{full}");
    assert!(there > 0 && there < RUNS && failed == 0, "{there} {failed}: {full}");
    let (resumed, merged) = (resumed.expect("room"), merged.expect("room"));
    assert!(resumed.status.success(), "{}", text(&resumed.stderr));
    assert_eq!((text(&merged.stdout).into_bytes(), left), (one_process().0[0].1.clone(), RUNS + 1));
}

#[test]
fn the_papers_are_reproduced_in_shards() {
    let folder = Folder::new();
    let papers: [(&str, &[&str]); 4] = [
        ("irn", &["--only", "table4.2/70%/no-cc", "--seeds", "2", "--arrivals", "200us"]),
        (
            "timely",
            &["--only", "figure9", "--only", "figure18/hai", "--warm-up", "5ms", "--time", "10ms", "--svg", "svg"],
        ),
        ("ndp", &["--only", "figure16/ndp/1", "--only", "figure11"]),
        ("tlt", &["--only", "figure6/irn", "--flows", "50"]),
    ];
    for (paper, args) in papers {
        let command = [&["reproduce", paper], args].concat();
        let results = |args: &[&str]| {
            let out = run(&folder, &[args, &["--json", "cells.json"]].concat());
            let json = fs::read(folder.path().join("cells.json")).expect("cells.json");
            let pictures = fs::read_dir(folder.path().join("svg")).into_iter().flatten().flatten();
            let mut pictures: Vec<_> = pictures.map(|e| (e.file_name(), fs::read(e.path()).unwrap())).collect();
            pictures.sort();
            let _ = fs::remove_dir_all(folder.path().join("svg"));
            (text(&out.stdout), text(&json), pictures, out.status.code())
        };
        let one = results(&command);
        assert!(one.2.is_empty() != args.contains(&"--svg") && one.3.is_some_and(|status| status < 2), "{paper}");
        let bare: Vec<&str> = command.iter().copied().filter(|word| !["--svg", "svg"].contains(word)).collect();
        let out = format!("runs-{paper}");
        for shard in ["2/3", "1/3", "3/3"] {
            let output = run(&folder, &[&bare[..], &["--out", &out, "--shard", shard]].concat());
            assert!(output.status.success(), "{paper}: {}", text(&output.stderr));
        }
        let mut merge = vec!["merge", &out];
        merge.extend(args.iter().filter(|word| ["--svg", "svg"].contains(*word)));
        assert!(one == results(&merge), "{paper}");
        assert!(one == results(&[&command[..], &["--out", &out, "--resume"]].concat()), "{paper}");
    }
}
