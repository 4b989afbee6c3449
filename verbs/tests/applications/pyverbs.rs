//! pyverbs, rdma-core's own test suite: a test for each case, and docs/conformance.md from their list.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use libtest_mimic::{Failed, Trial};

use crate::habitat::{Device, Habitat, RELIABLE, trial};
use crate::process::Process;

const PYTHON: &str = "/usr/bin/python3";
const SUITE: &str = "/usr/share/doc/rdma-core/tests";
const PYVERBS: &str = "/usr/lib/python3/dist-packages/pyverbs";
const MARK: &str = "<!-- made from fixtures/pyverbs.txt -->\n";

/// Reasons to skip a case: name, ours, and what Linux' software NIC rxe is known to do with such cases; not from a run.
const REASONS: [(&str, &str, &str); 10] = [
    ("atomic-write", "The ATOMIC WRITE opcode is not implemented, nor announced.", "runs them (Linux 6.2)"),
    ("dm", "Device memory: there is no memory on a device that is software.", "skips them"),
    ("dmabuf", "The suite allocates DMA buffers from a graphics card, which the host has to have.", "skips them"),
    ("huge-pages", "The suite needs huge pages that an administrator has reserved (vm.nr_hugepages).", "as here"),
    ("import", "Objects of one process cannot be imported into another.", "skips them"),
    (
        "odp",
        "On-demand paging is not announced: pages are the kernel's business here.",
        "runs some of them (Linux 6.13)",
    ),
    (
        "raw",
        "Raw packet queue pairs, and what is done with them (flow steering, RSS), need a NIC of Ethernet.",
        "skips them",
    ),
    (
        "rdmacm",
        "Connection management goes by librdmacm and the network interface in /sys/class/infiniband.",
        "runs them, with its kernel module",
    ),
    ("tag-matching", "Tag matching is not implemented, nor announced.", "skips them"),
    ("xrc", "Extended reliable connections are not implemented, nor announced.", "skips them"),
];

/// What a case did, and why.
type Outcomes = BTreeMap<String, (String, String)>;

fn repository(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(file)
}

/// Cases and what they should do: `pass` or `skip` and a reason.
fn expected() -> BTreeMap<String, String> {
    let text = fs::read_to_string(repository("fixtures/pyverbs.txt")).expect("the list of cases");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(' ')).map(|(case, what)| (case.to_owned(), what.to_owned())).collect()
}

/// Runs `cases`, or all there are.
fn run(habitat: &Habitat, device: Device, cases: &[String]) -> Result<Outcomes, Failed> {
    let work = habitat.dir.path().join("suite");
    fs::create_dir(&work)?;
    let mut command = habitat.command(PYTHON, device);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/applications/run_suite.py");
    command.args([script, SUITE]).arg(&work).args(cases.iter().map(|case| format!("tests.{case}")));
    let output = Process::start(&mut command)?.succeed()?;
    let outcome = |line: &str| {
        let mut words = line.strip_prefix("CASE\ttests.")?.split('\t').map(str::to_owned);
        Some((words.next()?, (words.next()?, words.next().unwrap_or_default())))
    };
    Ok(output.stdout.lines().filter_map(outcome).collect())
}

/// The run that all cases share: the suite takes two seconds, of which importing it takes most.
fn shared(habitat: &Habitat) -> Result<Arc<Outcomes>, Failed> {
    static RUN: OnceLock<Result<Arc<Outcomes>, String>> = OnceLock::new();
    let run = || run(habitat, Device::default(), &[]).map(Arc::new).map_err(|e| format!("{e:?}"));
    RUN.get_or_init(run).clone().map_err(Failed::from)
}

/// All tests of pyverbs.
pub fn trials() -> Vec<Trial> {
    let needs = [PYTHON, PYVERBS, SUITE];
    let expected = expected();
    let mut trials = Vec::new();
    for (case, what) in &expected {
        let name = format!("pyverbs: {case}");
        if what == "pass" {
            let case = case.clone();
            trials.push(trial(name, &needs, move |habitat| match shared(habitat)?.get(&case) {
                Some((outcome, _)) if outcome == "pass" => Ok(()),
                other => Err(format!("{case}: {other:?}").into()),
            }));
        } else {
            // What it should do is nothing; the next test sees to it that it does not fail.
            trials.push(Trial::test(name, || Ok(())).with_ignored_flag(true));
        }
    }
    trials.push(trial("pyverbs: nothing but what is listed, and no failure".into(), &needs, |habitat| {
        let listed = self::expected();
        let vendors = ["test_mlx5", "test_efa", "test_cuda"];
        let found = shared(habitat)?;
        let odd: Vec<_> = found
            .iter()
            .filter(|(case, (outcome, _))| {
                let word = listed.get(*case).and_then(|what| what.split(' ').next());
                // A case that passes where the host has what it needs is better than listed.
                let fine = word == Some(outcome) || (word == Some("skip") && outcome == "pass");
                !fine && (outcome == "fail" || !vendors.iter().any(|vendor| case.starts_with(vendor)))
            })
            .collect();
        if odd.is_empty() { Ok(()) } else { Err(format!("{odd:#?}").into()) }
    }));
    for (network, device) in RELIABLE {
        trials.push(trial(format!("pyverbs: reliable cases ({network})"), &needs, move |habitat| {
            let reliable = |case: &str| !["_ud", "_uc", "multicast"].iter().any(|part| case.contains(part));
            let cases = self::expected().into_iter().filter(|(case, what)| what == "pass" && reliable(case));
            let cases: Vec<String> = cases.map(|(case, _)| case).collect();
            let found = run(habitat, device, &cases)?;
            let bad: Vec<_> = cases.iter().filter(|&c| found.get(c).is_none_or(|(o, _)| o != "pass")).collect();
            if bad.is_empty() { Ok(()) } else { Err(format!("{bad:?} of {found:#?}").into()) }
        }));
    }
    trials.push(Trial::test("pyverbs: docs/conformance.md says what fixtures/pyverbs.txt says", move || {
        let file = repository("docs/conformance.md");
        let text = fs::read_to_string(&file)?;
        let (words, _) = text.split_once(MARK).ok_or("the page has lost its mark")?;
        let wanted = format!("{words}{MARK}{}", tables(&expected)?);
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&file, &wanted)?;
        } else if text != wanted {
            return Err("it does not: run it with UPDATE=1".into());
        }
        Ok(())
    }));
    trials
}

/// The tables of docs/conformance.md.
fn tables(expected: &BTreeMap<String, String>) -> Result<String, Failed> {
    let mut modules: BTreeMap<&str, [u32; 2]> = BTreeMap::new();
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (case, what) in expected {
        let counts = modules.entry(case.split('.').next().unwrap_or_default()).or_default();
        match what.split_once(' ') {
            None => counts[0] += 1,
            Some((_, reason)) => {
                counts[1] += 1;
                reasons.entry(reason).or_default().push(case.rsplit('.').next().unwrap_or_default());
            }
        }
    }
    let total = modules.values().fold([0, 0], |sum, n| [sum[0] + n[0], sum[1] + n[1]]);
    let mut text = format!("\n{} cases: {} pass, {} are skipped, none fails.\n\n", expected.len(), total[0], total[1]);
    text += "| module | pass | skipped |\n|---|---|---|\n";
    for (module, [pass, skip]) in &modules {
        writeln!(text, "| {module} | {pass} | {skip} |")?;
    }
    text += "\n| skipped | why | rxe | cases |\n|---|---|---|---|\n";
    for (reason, cases) in &reasons {
        let known = REASONS.iter().find(|(name, ..)| name == reason);
        let (_, why, rxe) = known.ok_or(format!("no words for the reason {reason}"))?;
        writeln!(text, "| {} | {why} | {rxe} | {} |", cases.len(), cases.join(", "))?;
    }
    Ok(text)
}
