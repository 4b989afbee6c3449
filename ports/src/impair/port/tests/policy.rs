//! Lines with queues described by a policy.

use super::*;

/// Frames of 100 bytes are 142 on the line, and take a millisecond.
const RATE: &str = "rate 1136kbit";
const MS: u64 = 1_000_000;

/// Sends frames at once, each with a tag and a priority, and returns the order in which they leave, with times.
fn order(port: &mut Impaired<Wire>, frames: &[(u32, u8)]) -> Vec<(u64, u32)> {
    for (tag, priority) in frames {
        let path = Path { traffic_class: priority << 5 | 0b10, ..path() };
        assert!(port.transmit(Time::ZERO, &frame(&path), &mut |to| {
            to.fill(0);
            to[12..16].copy_from_slice(&tag.to_be_bytes());
        }));
    }
    for at in 1..=20 {
        port.flush(Time(at * MS)).unwrap();
    }
    let tag = |bytes: &[u8]| u32::from_be_bytes(bytes[12..16].try_into().unwrap());
    port.inner().sent.iter().map(|(at, _, bytes)| (at.0 / MS, tag(bytes))).collect()
}

/// Returns a policy's file, and its impairment.
fn of_text(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("p.oq");
    std::fs::write(&file, text).unwrap();
    let impairment = format!("tx {RATE} policy {}", file.display());
    (folder, impairment)
}

#[test]
fn one_queue_in_order_is_a_line_without_a_policy() {
    let frames: Vec<(u32, u8)> = (0..10).map(|tag| (tag, 0)).collect();
    let (_folder, fifo) = of_text("q = Queue(1MB); out = Port(100%, q); q.procPrio(p1, p2) = p1.arrival < p2.arrival;");
    let plain = order(&mut impaired(&format!("tx {RATE}")), &frames);
    assert_eq!(plain, (0..10).map(|tag| (tag + 1, tag as u32)).collect::<Vec<_>>());
    let mut port = impaired(&fifo);
    assert_eq!(order(&mut port, &frames), plain);
    let [report, _] = port.impairments().unwrap();
    let queue = report.queue.unwrap();
    // The first is on the line when the second arrives.
    assert_eq!((queue.frames, queue.peak_bytes, report.counters.over_limit), (10, 9 * 142, 0));
}

#[test]
fn priorities_go_first_and_what_is_worth_least_is_pushed_out() {
    let (_folder, text) = of_text(
        "q = Queue(568B); out = Port(100%, q); byValue(p1, p2) = p1.value > p2.value;
         q.procPrio = byValue; q.admPrio = byValue;",
    );
    let mut port = impaired(&text);
    // The first is on the line; of the others four have room.
    let frames = [(0, 0), (1, 3), (2, 1), (3, 7), (4, 5), (5, 6), (6, 0)];
    assert_eq!(order(&mut port, &frames), [(1, 0), (2, 3), (3, 5), (4, 4), (5, 1)]);
    let [report, _] = port.impairments().unwrap();
    assert_eq!((report.counters.over_limit, report.counters.seen), (2, 7));
    let counters: Vec<(&str, u64)> =
        report.numbers().filter(|(name, _)| ["pushed_out", "trimmed"].contains(name)).collect();
    assert_eq!(counters, [("trimmed", 0), ("pushed_out", 1)]);
}

#[test]
fn what_meets_a_long_queue_is_marked() {
    let (_folder, text) = of_text(
        "q = Queue(1MB); out = Port(100%, q); q.procPrio(p1, p2) = p1.arrival < p2.arrival;
         q.postAdmAct() = (currSize > 300B, mark);",
    );
    let mut port = impaired(&text);
    order(&mut port, &(0..6).map(|tag| (tag, 0)).collect::<Vec<_>>());
    let marked: Vec<bool> = port.inner().sent.iter().map(|(_, path, _)| path.traffic_class & 3 == 3).collect();
    assert_eq!(marked, [false, false, false, true, true, true]);
    assert_eq!(port.tx_counters().marked, 3);
}

#[test]
fn what_is_received_waits_too() {
    let (_folder, text) =
        of_text("q = Queue(300B); out = Port(100%, q); q.procPrio(p1, p2) = p1.arrival < p2.arrival;");
    let mut port = impaired(&text.replace("tx", "rx"));
    for _ in 0..5 {
        port.inner_mut().incoming.push_back((Time::ZERO, path(), vec![0; 100]));
    }
    let mut arrived = Vec::new();
    for at in 0..10 {
        port.receive(Time(at * MS), 64, &mut |frame| arrived.push(frame.arrived.0 / MS)).unwrap();
    }
    assert_eq!(arrived, [1, 2, 3]);
    assert_eq!(port.rx_counters().over_limit, 2);
}

#[test]
fn policies_that_make_no_sense_before_a_line_are_refused() {
    let wrong = |text: &str| text.parse::<crate::impair::Impairments>().unwrap_err().to_string();
    assert!(wrong("policy shared-lqd").ends_with("expected rate beside policy: without it there is no queue"));
    assert!(wrong("rate 1gbit policy").contains("ends at column 18: expected a policy"));
    assert!(wrong("rate 1gbit policy shared-lqd red 3").contains("expected policy without trim, red, rocc"));
    assert!(
        wrong("rate 1gbit policy none")
            .contains("expected a policy: none: expected FILE.oq, or a name that irnic oq list has")
    );
    assert!(wrong("rate 1gbit policy shared-lqd,buffer=x").contains("buffer=x: expected"));
    assert!(wrong("rate 1gbit policy input-queued,pfc=on").contains("asks no neighbour to stop"));
    let (_folder, text) = of_text("q = Queue(1MB);\nout = Port(100%, q); q.prio = 3;");
    assert!(wrong(&text).contains("p.oq:2:"), "{}", wrong(&text));
    let known = "tx rate 1gbit policy shared-lqd,buffer=480KB limit 9".parse::<crate::impair::Impairments>().unwrap();
    assert_eq!(known.to_string().parse(), Ok(known));
}
