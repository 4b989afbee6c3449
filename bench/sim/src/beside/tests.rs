use std::path::Path;

use super::*;

const HTSIM: &str = "\
no_of_nodes 16
ndp_0_5
Flow control is off
Flow ndp_0_5 flow_id 1000000001 finished at 1712.35 total bytes 2007040
...|....Flow Roce_12_3 77 finished at 20 total bytes 9000
Done
";

fn message<T>(parsed: Result<T, Error>) -> String {
    parsed.err().map(|e| e.to_string()).unwrap_or_default()
}

#[test]
fn lines_of_flows_are_found_in_what_htsim_prints() {
    let flow = |src, dst, end| Completed { src, dst, bytes: None, end };
    let expected = [flow(0, 5, 1_712_350.0), flow(12, 3, 20_000.0)];
    assert_eq!(htsim::parse(Path::new("f"), HTSIM).unwrap(), expected);
    for (text, found) in [
        (
            "Done\n",
            "f:2: expected a line of a flow that ended, as the programs of htsim print it, found the end of the file",
        ),
        (
            "Flow ndp finished at 3 total bytes 1",
            "f:1: expected Flow NAME_SOURCE_DESTINATION … finished at MICROSECONDS, found `Flow ndp finished at 3 total bytes 1`",
        ),
        (
            "Flow a_1_2 finished at nan us",
            "f:1: expected Flow NAME_SOURCE_DESTINATION … finished at MICROSECONDS, found `Flow a_1_2 finished at nan us`",
        ),
    ] {
        assert_eq!(message(htsim::parse(Path::new("f"), text)), found);
    }
}

#[test]
fn both_kinds_of_hosts_in_fct_files_are_read() {
    // Host 1 and 258, as HPCC and as ConWeave have them.
    let hpcc = "0b000101 0b010201 10000 100 2000 2000000000 7480 6640\n";
    let conweave = "1 258 10000 100 2000 2000000000 7480 6640 0\n";
    let expected = [Completed { src: 1, dst: 258, bytes: Some(2_000), end: 2_000_007_480.0 }];
    assert_eq!(ns3::parse(Path::new("f"), hpcc).unwrap(), expected);
    assert_eq!(ns3::parse(Path::new("f"), conweave).unwrap(), expected);
    let flow = "a flow: source, destination, two ports, bytes, start, time and ideal time in ns";
    for (text, found) in [
        ("", format!("f:1: expected {flow}, found the end of the file")),
        ("1 2 3\n", format!("f:1: expected {flow}, found `1 2 3`")),
        ("1 2 3 4 x 6 7 8", format!("f:1: expected {flow}, found `x`")),
        (
            "1 0b00zz01 3 4 5 6 7 8",
            "f:1: expected a host: an address of eight hexadecimal digits, or an id, found `0b00zz01`".to_owned(),
        ),
    ] {
        assert_eq!(message(ns3::parse(Path::new("f"), text)), found);
    }
}

#[test]
fn flows_are_matched_by_hosts_size_and_order() {
    let ours = |src, bytes, start, acknowledged| {
        let record = FlowRecord {
            delivered: acknowledged,
            acknowledged,
            ideal: 1,
            retransmitted: 0,
            timeouts: 0,
            called: None,
            setup: 0,
        };
        (Flow::new(src, 9, bytes, start), record)
    };
    let flows = [
        ours(1, 100, 1_000, Some(5_000)),
        ours(1, 100, 0, Some(3_000)),
        ours(1, 50, 0, Some(1_000)),
        ours(2, 100, 0, None),
        ours(3, ENDLESS, 0, None),
    ];
    let theirs = |src, bytes, end| Completed { src, dst: 9, bytes, end };
    let sized = [theirs(1, Some(100), 9_000.0), theirs(1, Some(100), 6_000.0), theirs(2, Some(100), 1.0)];
    let compared = Compared::of(&flows, &sized);
    assert_eq!(compared, Compared { ours: vec![3_000.0, 4_000.0], theirs: vec![6_000.0, 8_000.0], alone: [1, 1] });
    assert_eq!(compared.ratios(), [0.5, 0.5, 0.5]);
    // Without sizes all flows of two hosts are of one kind.
    let compared = Compared::of(&flows, &[theirs(1, None, 4_000.0)]);
    assert_eq!(compared, Compared { ours: vec![1_000.0], theirs: vec![4_000.0], alone: [2, 0] });
}

#[test]
fn arguments_name_a_simulator_and_a_file() {
    let other = "htsim:a:b".parse::<Other>().unwrap();
    assert_eq!((other.name(), other.path), ("htsim", PathBuf::from("a:b")));
    assert_eq!("ns3:fct.txt".parse::<Other>().unwrap().name(), "ns-3");
    assert_eq!("fct.txt".parse::<Other>(), Err("expected htsim:FILE or ns3:FILE".to_owned()));
    assert_eq!("ns3:".parse::<Other>(), Err("expected a file after the colon".to_owned()));
}
