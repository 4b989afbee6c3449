//! pyverbs, rdma-core's own test suite: a test for each case, and docs/conformance.md from their list.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use irnic_testkit::once;
use libtest_mimic::{Failed, Trial};

use crate::process::Process;
use crate::sandbox::{Device, RELIABLE, Sandbox, all, trial};

const PYTHON: &str = "/usr/bin/python3";
const SUITE: &str = "/usr/share/doc/rdma-core/tests";
const PYVERBS: &str = "/usr/lib/python3/dist-packages/pyverbs";
const MARK: &str = "<!-- made from fixtures/pyverbs.txt and fixtures/pyverbs-rxe.txt -->\n";
/// How many huge pages there shall be.
const HUGE_PAGES: &str = "/proc/sys/vm/nr_hugepages";

/// Why cases are skipped, by name.
const REASONS: [(&str, &str); 6] = [
    ("dm", "Device memory: there is no memory on a device that is software."),
    ("dmabuf", "The suite allocates DMA buffers from a graphics card, which the host has to have."),
    ("import", "Objects of one process cannot be imported into another."),
    ("odp", "On-demand paging is not announced: pages are the kernel's business here."),
    ("raw", "Raw packet queue pairs, and what is done with them (flow steering, RSS), need a NIC of Ethernet."),
    ("tag-matching", "Tag matching is not implemented, nor announced."),
];

/// What a case did, and why.
type Outcomes = BTreeMap<String, (String, String)>;

fn repository(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(file)
}

/// Cases and what they do, from a file.
fn listed(file: &str) -> BTreeMap<String, String> {
    let text = fs::read_to_string(repository(file)).expect("the list of cases");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(' ')).map(|(case, what)| (case.to_owned(), what.to_owned())).collect()
}

/// Cases and what they should do: `pass`, `pass` where the host has something, or `skip` and a reason.
fn expected() -> BTreeMap<String, String> {
    listed("fixtures/pyverbs.txt")
}

/// Two more huge pages while this lives, one for each end, if this process may ask for them.
struct HugePages(Option<u64>);

impl HugePages {
    fn reserve() -> HugePages {
        let before = fs::read_to_string(HUGE_PAGES).ok().and_then(|text| text.trim().parse().ok());
        HugePages(before.filter(|n: &u64| fs::write(HUGE_PAGES, (n + 2).to_string()).is_ok()))
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        if let Some(before) = self.0 {
            fs::write(HUGE_PAGES, before.to_string()).expect("what could be raised can be lowered");
        }
    }
}

/// A case that passes with huge pages, on a host that has none to give.
fn lacks_huge_pages(what: &str, (outcome, reason): &(String, String)) -> bool {
    what == "pass huge-pages" && outcome == "skip" && reason.contains("huge pages")
}

/// Runs `cases`, or all there are, and returns what the script printed of them.
fn print(sandbox: &Sandbox, device: Device, cases: &[String]) -> Result<String, Failed> {
    let work = sandbox.dir.path().join("suite");
    fs::create_dir(&work)?;
    // Cases of rdma_cm ask for the network interface before they connect.
    let mut command = sandbox.command_with_sysfs(PYTHON, device);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/applications/run_suite.py");
    command.args([script, SUITE]).arg(&work).args(cases.iter().map(|case| format!("tests.{case}")));
    Ok(Process::start(&mut command)?.succeed()?.stdout)
}

/// What cases did, by what the script printed.
fn outcomes(printed: &str) -> Outcomes {
    let outcome = |line: &str| {
        let mut fields = line.strip_prefix("CASE\ttests.")?.split('\t').map(str::to_owned);
        Some((fields.next()?, (fields.next()?, fields.next().unwrap_or_default())))
    };
    printed.lines().filter_map(outcome).collect()
}

/// Runs `cases`, or all there are.
fn run(sandbox: &Sandbox, device: Device, cases: &[String]) -> Result<Outcomes, Failed> {
    Ok(outcomes(&print(sandbox, device, cases)?))
}

/// The run that all cases share: the suite takes two seconds, of which importing it takes most.
fn shared(sandbox: &Sandbox) -> Result<Outcomes, Failed> {
    let folder = once::folder("pyverbs", |folder| {
        let _pages = HugePages::reserve();
        let printed = print(sandbox, Device::default(), &[]).map_err(|e| format!("{e:?}"))?;
        fs::write(folder.join("printed"), printed).map_err(|e| e.to_string())
    })?;
    Ok(outcomes(&fs::read_to_string(folder.join("printed"))?))
}

/// All tests of pyverbs.
pub fn trials() -> Vec<Trial> {
    let needs = [PYTHON, PYVERBS, SUITE];
    let expected = expected();
    let mut trials = Vec::new();
    for (case, what) in &expected {
        let name = format!("pyverbs: {case}");
        if what.starts_with("pass") {
            let (case, what) = (case.clone(), what.clone());
            trials.push(trial(name, &needs, move |sandbox| match shared(sandbox)?.get(&case) {
                Some((outcome, _)) if outcome == "pass" => Ok(()),
                Some(found) if lacks_huge_pages(&what, found) => {
                    irnic_testkit::skipped(&format!("pyverbs: {case}: no huge pages, and no right to reserve any"));
                    Ok(())
                }
                other => Err(format!("{case}: {other:?}").into()),
            }));
        } else {
            // What it should do is nothing; the next test sees to it that it does not fail.
            trials.push(Trial::test(name, || Ok(())).with_ignored_flag(true));
        }
    }
    trials.push(trial("pyverbs: nothing but what is listed, and no failure".into(), &needs, |sandbox| {
        let listed = self::expected();
        let vendors = ["test_mlx5", "test_efa", "test_cuda"];
        let found = shared(sandbox)?;
        let odd: Vec<_> = found
            .iter()
            .filter(|(case, found)| {
                let outcome = &found.0;
                let what = listed.get(*case);
                let word = what.and_then(|what| what.split(' ').next());
                // A case that passes where the host has what it needs is better than listed.
                let fine = word == Some(outcome)
                    || (word == Some("skip") && outcome == "pass")
                    || what.is_some_and(|what| lacks_huge_pages(what, found));
                !fine && (outcome == "fail" || !vendors.iter().any(|vendor| case.starts_with(vendor)))
            })
            .collect();
        if odd.is_empty() { Ok(()) } else { Err(format!("{odd:#?}").into()) }
    }));
    // The cases above are run on irn without loss.
    for (network, device) in RELIABLE.into_iter().filter(|(network, _)| all() || *network == "roce, 1 % loss") {
        trials.push(trial(format!("pyverbs: reliable cases ({network})"), &needs, move |sandbox| {
            // A rejection is not acknowledged (IBA 12.6.7). If it is lost, and its sender has ended when the request is
            // repeated, nobody knows the private data that the case expects.
            let lossy = network.contains("loss").then_some("async_reject");
            let left_out: Vec<_> = ["_ud", "_uc", "multicast"].into_iter().chain(lossy).collect();
            let reliable = |case: &str| !left_out.iter().any(|part| case.contains(part));
            let cases = self::expected().into_iter().filter(|(case, what)| what == "pass" && reliable(case));
            let cases: Vec<String> = cases.map(|(case, _)| case).collect();
            let found = run(sandbox, device, &cases)?;
            let bad: Vec<_> = cases.iter().filter(|&c| found.get(c).is_none_or(|(o, _)| o != "pass")).collect();
            if bad.is_empty() { Ok(()) } else { Err(format!("{bad:?} of {found:#?}").into()) }
        }));
    }
    trials.push(Trial::test("pyverbs: docs/conformance.md says what the lists of cases say", move || {
        let file = repository("docs/conformance.md");
        let text = fs::read_to_string(&file)?;
        let (head, _) = text.split_once(MARK).ok_or("the page has lost its mark")?;
        let wanted = format!("{head}{MARK}{}", tables(&expected)?);
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&file, &wanted)?;
        } else if text != wanted {
            return Err("it does not: run it with UPDATE=1".into());
        }
        Ok(())
    }));
    trials
}

/// How many cases do what.
#[derive(Copy, Clone, Default)]
struct Counts {
    pass: u32,
    skip: u32,
    /// How many fail or hang, always or now and then.
    fail: u32,
}

impl Counts {
    fn of<'a>(outcomes: impl IntoIterator<Item = &'a String>) -> Counts {
        let mut counts = Counts::default();
        for what in outcomes {
            match what.split(' ').next() {
                Some("pass") => counts.pass += 1,
                Some("skip") => counts.skip += 1,
                _ => counts.fail += 1,
            }
        }
        counts
    }

    fn row(&self) -> String {
        format!("{} | {} | {}", self.pass, self.skip, self.fail)
    }
}

/// The tables of docs/conformance.md.
fn tables(irnic: &BTreeMap<String, String>) -> Result<String, Failed> {
    const RXE: &str = "fixtures/pyverbs-rxe.txt";
    let rxe = listed(RXE);
    if !irnic.keys().eq(rxe.keys()) {
        return Err(format!("{RXE} has other cases: run tools/rxe/pyverbs.sh").into());
    }
    let file = fs::read_to_string(repository(RXE))?;
    let versions: Vec<_> = file.lines().skip(1).map_while(|line| line.strip_prefix("# ")).collect();
    let totals = |cases: &BTreeMap<String, String>| {
        let Counts { pass, skip, fail } = Counts::of(cases.values());
        format!("{pass} pass, {skip} are skipped, {fail} fail")
    };
    let mut text = format!("\n{} cases. irnic: {}. rxe: {}", irnic.len(), totals(irnic), totals(&rxe));
    write!(text, " ({}).\n\n", versions.join(", "))?;
    text += "| | irnic passes | skips | fails | rxe passes | skips | fails |\n|---|---|---|---|---|---|---|\n";
    let module = |case: &str| case.split('.').next().unwrap_or_default().to_owned();
    let modules: BTreeSet<String> = irnic.keys().map(|case| module(case)).collect();
    for name in &modules {
        let count = |cases: &BTreeMap<String, String>| {
            Counts::of(cases.iter().filter(|(case, _)| module(case) == *name).map(|(_, what)| what)).row()
        };
        writeln!(text, "| {name} | {} | {} |", count(irnic), count(&rxe))?;
    }

    text += "\n| skipped | why | rxe passes | skips | fails | cases |\n|---|---|---|---|---|---|\n";
    let mut skipped: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (case, what) in irnic {
        if let Some(reason) = what.strip_prefix("skip ") {
            skipped.entry(reason).or_default().push(case);
        }
    }
    for (reason, cases) in &skipped {
        let known = REASONS.iter().find(|(name, _)| name == reason);
        let (_, why) = known.ok_or(format!("no words for the reason {reason}"))?;
        let theirs = Counts::of(cases.iter().map(|&case| &rxe[case])).row();
        writeln!(text, "| {} | {why} | {theirs} | {} |", cases.len(), names(cases))?;
    }

    text += "\nWhere they differ:\n\n| irnic | rxe | cases |\n|---|---|---|\n";
    let mut different: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for (case, what) in irnic {
        let (ours, theirs) = (what.split(' ').next().unwrap_or_default(), rxe[case].as_str());
        if theirs.split(' ').next() != Some(ours) {
            different.entry((ours, theirs)).or_default().push(case);
        }
    }
    for ((ours, theirs), cases) in &different {
        let theirs = theirs.replacen(' ', ": ", 1);
        writeln!(text, "| {ours} | {theirs} | {} |", names(cases))?;
    }
    Ok(text)
}

/// Without their modules and classes.
fn names(cases: &[&str]) -> String {
    let names: Vec<&str> = cases.iter().filter_map(|case| case.rsplit('.').next()).collect();
    names.join(", ")
}
