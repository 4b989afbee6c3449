//! Samples of a network over time: `irnic sim --series`.

use crate::runs::{SMALL, only_run, run};
use crate::support::{Folder, csv};

#[test]
fn series_are_taken_as_often_as_was_asked() {
    let folder = Folder::new();
    run(&folder, &[&SMALL[..], &["--series", "s.csv", "--sample", "50us", "--until", "500us"]].concat());
    let series = csv(&folder, "s.csv");
    let times: Vec<&str> = series.lines().skip(1).map(|l| l.split(',').next().unwrap()).collect();
    assert_eq!(times[..3], ["50000", "100000", "150000"]);
    assert!(series.starts_with("at_ns,buffered_bytes,longest_queue_bytes,paused_ports,"), "{series}");
    assert_eq!(times.last(), Some(&"500000"), "a moment that is the last of both has one line");
    assert!(times.windows(2).all(|two| two[0] != two[1]), "{times:?}");
}

/// Columns of the last line of a series: time and flows under way.
fn last_of(series: &str) -> (u64, u64) {
    let cells: Vec<&str> = series.lines().last().unwrap().split(',').collect();
    (cells[0].parse().unwrap(), cells[4].parse().unwrap())
}

#[test]
fn series_reach_the_end_of_the_run_where_no_flow_is_under_way() {
    let folder = Folder::new();
    for threads in ["1", "2"] {
        let files = ["--series", "s.csv", "--json", "r.json", "--threads", threads];
        run(&folder, &[&["--topology", "star:hosts=4", "--duration", "200us", "--load", "0.9"][..], &files].concat());
        let ended = only_run(&folder, "r.json")["ended_ns"].as_u64().unwrap();
        assert_ne!(ended % 10_000, 0, "a run that ends between two samples");
        assert_eq!(last_of(&csv(&folder, "s.csv")), (ended, 0), "{threads} threads");
    }
    // A run that is shorter than an interval has one sample.
    let short = ["--topology", "star:hosts=2", "--workload", "permutation:bytes=1KB", "--series", "s.csv"];
    run(&folder, &[&short[..], &["--sample", "1ms"]].concat());
    let series = csv(&folder, "s.csv");
    assert_eq!((series.lines().count(), last_of(&series).1), (2, 0), "{series}");
}
