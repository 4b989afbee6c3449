//! What is refused, with an error that names what is wrong.

use std::fs;

use crate::runs::{refused, sim};
use crate::support::{Folder, text};

#[test]
fn a_misspelt_value_gets_the_one_that_was_meant() {
    let folder = Folder::new();
    for (args, meant) in [
        (["--cc", "timley"], "timely"),
        (["--cc", "timely,gian=1"], "gain"),
        (["--transport", "irm"], "irn"),
        (["--transport", "irn,cpa=3"], "cap"),
        (["--topology", "leafspine:leaves=2"], "leaf-spine"),
        (["--workload", "cdf:websearch"], "WebSearch"),
    ] {
        let output = sim(&folder, &args);
        let said = text(&output.stderr);
        assert!(
            !output.status.success() && said.ends_with(&format!("; did you mean \"{meant}\"?\n")),
            "{args:?}: {said}"
        );
    }
}

#[test]
fn files_that_describe_a_run_are_not_replaced() {
    let folder = Folder::new();
    for (name, contents, args) in [
        ("topology.txt", "3 1 2\n2\n0 2 40Gbps 1us 0\n1 2 40Gbps 1us 0\n", &["--topology", "topology.txt"][..]),
        ("flows.txt", "1\n0 1 3 1000 2.0\n", &["--topology", "star:hosts=3,rate=10G", "--flows", "flows.txt"]),
        ("sizes.txt", "0 0\n10000 100\n", &["--topology", "star:hosts=3,rate=10G", "--workload", "cdf:sizes.txt"]),
    ] {
        folder.write(name, contents);
        for output in ["--json", "--per-flow"] {
            let output = sim(&folder, &[args, &[output, name]].concat());
            let said = text(&output.stderr);
            assert!(output.status.code() == Some(2) && said.contains(": it would be read and written"), "{said}");
            assert_eq!(fs::read_to_string(folder.path().join(name)).unwrap(), contents);
        }
    }
}

#[test]
fn errors_name_what_is_wrong_and_what_would_be_right() {
    let folder = Folder::new();
    folder.write("t.txt", "3 1 2\n2\n0 2 40Gbps 1us 0\n1 2 40Gbps one 0\n");
    folder.write("slow.txt", "3 1 2\n2\n0 2 25 1us 0\n1 2 25 1us 0\n");
    folder.write("few.toml", "buffer = 1\n");
    folder.write("f.txt", "1\n0 1 3 many 2.0\n");
    folder.write("e.toml", "load = 0.5\n[[run]]\npfc = \"maybe\"\n");
    for (args, said) in [
        (&["--load", "2%"][..], "--load 2%: expected a share of the links' rate"),
        (&["--cc", "cubic"], "--cc: congestion control \"cubic\" does not exist; choose none, "),
        (&["--topology", "t.txt"], "--topology: t.txt:4: expected a time such as 2us"),
        (&["--topology", "star", "--flows", "f.txt"], "--flows: f.txt:2: expected a number of bytes"),
        (&["--flows", "none.txt"], "--flows: none.txt: "),
        (&["--experiment", "e.toml"], "e.toml:3: pfc = \"maybe\": expected on or off"),
        (&["--experiment", "none.toml"], "none.toml: "),
        (&["--seed", "one"], "--seed one: expected a seed"),
        (&["--seeds", "0"], "--seeds 0: expected a number of seeds"),
        (&["--seed", "1", "--seed", "2", "--seeds", "3"], "--seeds: several seeds are given already"),
        (&["--jobs", "0"], "--jobs 0: expected 1 to 1024 runs at a time"),
        (&["--threads", "0"], "--threads 0: expected 1 to 255 threads for a run"),
        (&["--jobs", "1025"], "--jobs 1025: expected 1 to 1024 runs at a time"),
        (&["--buffer", "240"], "--buffer 240: expected room for a packet of 1114 bytes; did you mean 240KB?"),
        (&["--load", "7"], "--load 7: expected a share of the links' rate, above 0: 0.7 is 70 %"),
        (
            &["--topology", "slow.txt"],
            "--topology: slow.txt:3: expected a rate of 1M or more, 25 being 25 bit/s; did you mean 25G?",
        ),
        (&["--experiment", "few.toml"], "few.toml:1: buffer = \"1\": expected room for a packet of 1114 bytes"),
        (&["--json", "no/such/folder.json"], "no/such/folder.json: "),
    ] {
        refused(&folder, args, said);
    }
    let unknown = sim(&folder, &["--colour", "red"]);
    assert_eq!(unknown.status.code(), Some(2));
}
