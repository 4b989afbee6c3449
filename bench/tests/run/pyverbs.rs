//! rdma-core's own tests of rdma_cm, in Python, which look for the network interface before they connect.

use std::path::Path;
use std::process::Stdio;

use crate::support::{Folder, irnic, needs, skipped, text};

const PYTHON: &str = "/usr/bin/python3";
/// Debian's python3-pyverbs and rdma-core.
const PYVERBS: &str = "/usr/lib/python3/dist-packages/pyverbs";
const SUITE: &str = "/usr/share/doc/rdma-core/tests";

#[test]
fn every_case_of_rdma_cm_passes_with_the_files() {
    let Some(()) = needs(&["timeout", "ip"]) else { return };
    if let Some(missing) = [PYTHON, PYVERBS, SUITE].iter().find(|path| !Path::new(path).exists()) {
        skipped(&format!("pyverbs: there is no {missing}"));
        return;
    }
    let folder = Folder::new();
    let work = folder.path().join("suite");
    std::fs::create_dir(&work).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../verbs/tests/applications/run_suite.py");
    let mut command = irnic(&folder);
    command.args(["run", "--sysfs", "--interface", "lo", "--", "timeout", "300", PYTHON, script, SUITE]).arg(&work);
    let output = command.arg("tests.test_rdmacm").stdin(Stdio::null()).output().expect("irnic starts");
    let out = text(&output.stdout);
    let printed = format!("{out}\n{}", text(&output.stderr));
    let cases: Vec<_> = out.lines().filter_map(|line| line.strip_prefix("CASE\ttests.test_rdmacm.")).collect();
    assert!(cases.len() >= 10, "{printed}");
    for case in cases {
        assert_eq!(case.split('\t').nth(1), Some("pass"), "{case}\n{printed}");
    }
}
