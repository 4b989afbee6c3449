//! `irnic footprint`: the state of a NIC, beside what IRN's authors count.

use std::process::{Command, Output};

use serde_json::Value;

fn irnic(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_irnic")).arg("footprint").args(args).output().expect("irnic starts")
}

fn json(args: &[&str]) -> Value {
    let output = irnic(&[args, &["--json"]].concat());
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Bits of a row of the comparison: the authors', and irnic's.
fn row(document: &Value, what: &str) -> (Option<u64>, u64) {
    let rows = document["irn_beside_roce"]["rows"].as_array().expect("rows");
    let row = rows.iter().find(|row| row["what"] == what).unwrap_or_else(|| panic!("{what}: {rows:?}"));
    (row["authors_bits"].as_u64(), row["irnic_bits"].as_u64().expect("bits"))
}

/// Dissertation §4.5.1: 104 bits at both ends and 56 for READs, five bitmaps of 128 bits, 3 bytes a WQE, 10 bytes
/// shared.
#[test]
fn the_authors_figures_stand_beside_irnics() {
    let document = json(&[]);
    assert_eq!((&document["cap"], &document["authors_bitmap_bits"]), (&110.into(), &128.into()));
    for (what, authors, irnic) in [
        ("packets to retransmit and to recover, both ends", Some(96), 96),
        ("flags, both ends", Some(8), 10),
        ("responder's timer, READ in progress", Some(56), 56),
        ("bitmaps of requests received, responder", Some(256), 256),
        // One of both planes is of no use to it.
        ("bitmap of READ responses, requester", Some(128), 256),
        ("bitmaps of selective acknowledgements, both", Some(256), 256),
        ("WQE sequence number", Some(24), 24),
        ("BDP cap, RTO_low, N", Some(80), 80),
    ] {
        assert_eq!(row(&document, what), (authors, irnic), "{what}");
    }
    assert_eq!(row(&document, "a queue pair, in all").0, Some(160 + 640));
    // 2,000 queue pairs of 100 bytes, 20,000 WQEs of 3.
    let paper = document["irn_beside_roce"]["authors_bytes"].as_f64();
    assert_eq!(paper, Some(2000.0 * 100.0 + 20_000.0 * 3.0 + 10.0));
}

#[test]
fn bitmaps_follow_the_bandwidth_delay_product() {
    for (args, cap, authors, irnic) in [
        (&["--rate", "100gbps"][..], 276, 288, 512),
        (&["--rate", "100gbps", "--mtu", "4096"], 72, 96, 128),
        (&["--rate", "10G", "--rtt", "5us"], 5, 32, 64),
    ] {
        let document = json(args);
        assert_eq!((&document["cap"], &document["authors_bitmap_bits"]), (&cap.into(), &authors.into()), "{args:?}");
        assert_eq!(row(&document, "a queue pair, in all").0, Some(160 + 5 * authors), "{args:?}");
        assert_eq!(row(&document, "bitmaps of requests received, responder"), (Some(2 * authors), 2 * irnic));
        assert_eq!(document["transports"][1]["bitmap_bits"], irnic, "{args:?}");
    }
    // A cap of one's own stays; without one the window of the transport holds.
    let document = json(&["--rate", "100gbps", "--transport", "irn,cap=110", "--transport", "irn-no-bdp"]);
    let of = |n: usize| document["transports"][n]["bitmap_bits"].as_u64();
    assert_eq!((of(0), of(1)), (Some(128), Some(4096)));
}

#[test]
fn every_field_has_bits_or_a_reason_and_sums_are_theirs() {
    let document = json(&["--transport", "ndp", "--transport", "roce,cc=dcqcn", "--transport", "irn,cc=timely,tlt=on"]);
    for transport in document["transports"].as_array().expect("transports") {
        let fields = transport["fields"].as_array().expect("fields");
        let odd: Vec<_> = fields.iter().filter(|f| (f["bits"] == 0) != f["not_on_chip"].is_string()).collect();
        assert!(odd.is_empty() && fields.len() > 150, "{odd:?}");
        let sum: u64 = fields.iter().filter(|f| f["per"] == "qp").filter_map(|f| f["bits"].as_u64()).sum();
        assert_eq!(transport["qp_bits"].as_u64(), Some(sum));
        assert!(transport["software"]["qp_bytes"].as_u64().is_some_and(|bytes| bytes > sum / 8), "{transport}");
    }
    let has = |n: usize, name: &str| {
        let fields = document["transports"][n]["fields"].as_array().expect("fields");
        fields.iter().any(|f| f["name"].as_str().is_some_and(|f| f.contains(name)) && f["bits"] != 0)
    };
    assert!(has(0, "pulls.rings") && has(0, "pulled.send.stream.slots") && !has(1, "pull"));
    assert!(has(1, "controller.alpha") && has(2, "controller.rtt_diff") && has(2, "tlt.sent") && !has(1, "tlt"));
    assert!(!has(1, "bitmap") && !has(1, "sacks") && has(2, "sacks"));
}

#[test]
fn more_reads_and_queue_pairs_take_more() {
    let bits = |args: &[&str]| json(args)["transports"][1]["qp_bits"].as_u64().expect("bits");
    assert!(bits(&["--reads", "1"]) < bits(&["--reads", "16"]));
    let chip = |args: &[&str]| json(args)["transports"][1]["chip_bytes"].as_f64().expect("bytes");
    let (one, two) = (chip(&["--qps", "1", "--wqes", "0"]), chip(&["--qps", "2", "--wqes", "0"]));
    assert!((two - one - bits(&[]) as f64 / 8.0).abs() < 1e-6, "{one} {two}");
}

#[test]
fn bad_arguments_are_named() {
    for (args, expected) in [
        (&["--rate", "fast"][..], "--rate fast: expected a rate such as"),
        (&["--rate", "40"], "--rate 40: expected a rate of 1M or more, 40 being 40 bit/s; did you mean 40G?"),
        (&["--rtt", "0"], "--rtt 0: expected a time such as"),
        (&["--mtu", "1000"], "--mtu 1000: expected 256, 512, 1024"),
        (&["--transport", "tcp"], "--transport tcp: transport \"tcp\" does not exist"),
        (&["--transport", "irn,cap=0"], "--transport irn,cap=0: transport parameter cap=0"),
        (&["--rate", "100T", "--rtt", "1s"], "a bandwidth-delay product of"),
    ] {
        let output = irnic(args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(expected) && said.lines().count() == 1, "{args:?}: {said}");
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
}
