//! Lines with strict priorities that drop from below (RC3 §2.4.1).

use std::collections::BTreeMap;

use super::*;

/// A byte takes a microsecond.
const RATE: &str = "rate 8mbit";
const US: u64 = 1_000;
/// Ethernet, IP and UDP.
const HEADERS: usize = 42;

/// A frame of a test: its arrival in µs, its priority, and its bytes on the line.
type Coming = (u64, u8, usize);

/// Sends frames, numbered from 0, and lets the line run empty. Returns the frames that leave, in order, with the time
/// of their last bit in µs.
fn run(port: &mut Impaired<Wire>, frames: &[Coming]) -> Vec<(u64, u32)> {
    for (tag, (at, priority, bytes)) in (0u32..).zip(frames) {
        drain(port, Time(at * US));
        let path = path().with_priority(*priority);
        let frame = TxFrame { path: &path, dest_qp: 0x100, len: bytes - HEADERS, icrc: true, irn: false };
        assert!(port.transmit(Time(at * US), &frame, &mut |to| {
            to.fill(0);
            to[..4].copy_from_slice(&tag.to_be_bytes());
        }));
    }
    drain(port, Time(u64::MAX - 1));
    sent(port).into_iter().map(|(at, tag)| (at / US, tag)).collect()
}

/// Makes the line do due work by `now`, each at its time.
fn drain(port: &mut Impaired<Wire>, now: Time) {
    while port.next_deadline() <= now {
        let at = port.next_deadline();
        port.flush(at).unwrap();
    }
}

/// A straightforward implementation of RC3's strict priorities (§2.4.1). Returns the frames that leave, and those
/// dropped by tag, with whether they had waited.
fn naive(room: impl Fn(&[(u32, Coming)]) -> bool, frames: &[Coming]) -> (Vec<(u64, u32)>, BTreeMap<u32, bool>) {
    let (mut left, mut dropped) = (Vec::new(), BTreeMap::new());
    let mut waiting: Vec<(u32, Coming)> = Vec::new();
    let mut line: Option<(u64, u32)> = None;
    let ends = [(u64::MAX, 0, 0)];
    for (tag, coming) in (0u32..).zip(frames.iter().chain(&ends)) {
        let (now, priority, _) = *coming;
        while let Some((end, _)) = line.filter(|(end, _)| *end <= now) {
            left.extend(line.take());
            let first = (0..waiting.len()).max_by_key(|i| (waiting[*i].1.1, usize::MAX - i));
            line = first.map(|i| waiting.remove(i)).map(|(tag, (.., bytes))| (end + bytes as u64, tag));
        }
        if now == u64::MAX {
            break;
        }
        waiting.push((tag, *coming));
        // A frame that does not fit among those of its priority alone pushes nothing out.
        let equals: Vec<_> = waiting.iter().copied().filter(|frame| frame.1.1 == priority).collect();
        if room(&equals) {
            while !room(&waiting) {
                let lowest = waiting.iter().map(|frame| frame.1.1).min().unwrap();
                let victim = waiting.iter().rposition(|frame| frame.1.1 == lowest).unwrap();
                let (victim, _) = waiting.remove(victim);
                dropped.insert(victim, victim != tag);
                if victim == tag {
                    break;
                }
                assert!(lowest < priority);
            }
        } else {
            waiting.pop();
            dropped.insert(tag, false);
        }
        if line.is_none() && !waiting.is_empty() {
            let (tag, (.., bytes)) = waiting.remove(0);
            line = Some((now + bytes as u64, tag));
        }
    }
    (left, dropped)
}

/// Sends frames at time 0, the first of which goes on the line at once; returns those that leave.
fn order(impairment: &str, frames: &[(u8, usize)]) -> Vec<u32> {
    let frames: Vec<Coming> = frames.iter().map(|(priority, bytes)| (0, *priority, *bytes)).collect();
    let mut port = impaired(&format!("tx {RATE} {impairment}"));
    run(&mut port, &frames).into_iter().map(|(_, tag)| tag).collect()
}

#[test]
fn the_highest_priority_goes_first_and_each_in_order() {
    let frames = [0, 3, 7, 0, 3, 7, 1, 6].map(|priority| (priority, 100));
    // The first was on the line when the others arrived: it is not preempted.
    assert_eq!(order("prio", &frames), [0, 2, 5, 7, 1, 4, 6, 3]);
}

#[test]
fn a_full_queue_gives_up_the_newest_of_the_lowest_priority_below_the_arriving_one() {
    for (frames, left) in [
        // The newest of the lowest, then the one before it.
        (&[(7, 100), (1, 100), (1, 100), (2, 100), (3, 100)][..], &[0, 4, 3, 1][..]),
        (&[(7, 100), (1, 100), (1, 100), (2, 100), (3, 100), (3, 100)], &[0, 4, 5, 3]),
        // Of equal priority, and of a lower one, the arriving frame goes.
        (&[(7, 100), (2, 100), (2, 100), (2, 100), (2, 100), (1, 100)], &[0, 1, 2, 3]),
        (&[(7, 100), (0, 100), (0, 100), (0, 100), (0, 100)], &[0, 1, 2, 3]),
        // The frame on the line does not count as waiting.
        (&[(0, 100), (1, 100), (1, 100), (1, 100), (2, 100)], &[0, 4, 1, 2]),
    ] {
        assert_eq!(order("prio 3", frames), left, "{frames:?}");
        assert_eq!(order("prio 300b", frames), left, "{frames:?}");
    }
}

#[test]
fn room_in_bytes_takes_as_many_frames_as_a_long_one_needs() {
    let short = [(0, 100), (1, 100), (2, 100), (3, 100), (4, 100)];
    let with = |priority, bytes| order("prio 400b", &[&short[..], &[(priority, bytes)]].concat());
    assert_eq!(with(7, 300), [0, 5, 4]);
    assert_eq!(with(3, 200), [0, 4, 3, 5]);
    // Frames pushed out in vain are lost (as in the authors' simulator).
    assert_eq!(with(3, 300), [0, 4, 3]);
    assert_eq!(with(1, 50), [0, 4, 3, 2, 1]);
    // Longer than the room: it pushes nothing out.
    assert_eq!(with(7, 401), [0, 4, 3, 2, 1]);
    // In frames a long one is one.
    let frames = [&short[..], &[(7, 4000)]].concat();
    assert_eq!(order("prio 4", &frames), [0, 5, 4, 3, 2]);
}

#[test]
fn the_room_is_that_of_limit_unless_it_is_given() {
    let frames: Vec<(u8, usize)> = (0..30).map(|i| (i % 8, 100)).collect();
    assert_eq!(order("prio limit 5", &frames), order("prio 5", &frames));
    assert_eq!(order("prio 5", &frames).len(), 6);
    let many = vec![(3, 100); 2_000];
    assert_eq!(order("prio", &many).len(), 1_001);
    for most in ["prio 1000000".to_owned(), format!("prio {}b", irnic_units::MAX_BYTES)] {
        assert_eq!(order(&most, &many).len(), 2_000, "{most}");
    }
    assert_eq!(order("prio 1", &frames), [0, 7]);
}

#[test]
fn what_delay_holds_back_is_as_much_as_a_window_unless_limit_is_given() {
    let frames = vec![(3, 100); 3_000];
    assert_eq!(order("delay 1ms prio 5000", &frames).len(), 3_000);
    assert_eq!(order("delay 1ms prio 5000 limit 1000", &frames).len(), 1_000);
    assert_eq!(order("delay 1ms", &frames).len(), 1_000);
}

#[test]
fn counters_say_what_went_and_what_was_dropped_by_priority() {
    let mut port = impaired(&format!("tx {RATE} prio 2"));
    let frames = [(0, 0), (0, 1), (0, 1), (0, 7), (0, 1), (500, 5)].map(|(at, priority)| (at, priority, 100));
    assert_eq!(run(&mut port, &frames), [(100, 0), (200, 3), (300, 1), (600, 5)]);
    let [report, other] = port.impairments().unwrap();
    let numbers: BTreeMap<_, _> = report.numbers().collect();
    let of = |name: &str| numbers[name];
    assert_eq!((of("seen"), of("over_limit"), of("pushed_out"), of("delayed")), (6, 2, 1, 4));
    assert_eq!([0, 1, 5, 7].map(|p| of(&format!("priority_{p}_frames"))), [1, 1, 1, 1]);
    assert_eq!([0, 1, 5, 7].map(|p| of(&format!("priority_{p}_drops"))), [0, 2, 0, 0]);
    assert_eq!((of("queue_frames"), of("queue_peak_bytes")), (5, 300));
    // A line without priorities has no such numbers.
    assert!(other.numbers().all(|(name, _)| !name.contains("priority") && name != "pushed_out"));
}

#[test]
fn what_is_received_waits_too() {
    let mut port = impaired(&format!("rx {RATE} delay 1ms prio 2"));
    for priority in [0, 1, 1, 6, 7] {
        let path = path().with_priority(priority);
        port.inner_mut().incoming.push_back((Time::ZERO, path, vec![0; 100 - HEADERS]));
    }
    let mut arrived = Vec::new();
    for at in 0..20 {
        let mut each = |frame: RxFrame<'_>| arrived.push((frame.arrived.0 / US, frame.path.priority()));
        port.receive(Time(at * 100 * US), 64, &mut each).unwrap();
    }
    assert_eq!(arrived, [(1100, 0), (1200, 7), (1300, 6)]);
}

/// The counterpart of figures 2.16 and 2.17: a stream of high priority and one of low through one line. The high one
/// gets what it asks for while it sends, the low one the rest, and everything before and after.
#[test]
fn a_stream_of_high_priority_has_the_line_and_one_of_low_what_is_left() {
    const BYTES: usize = 1_000;
    for share in [30u64, 60, 100] {
        let mut port = impaired(&format!("tx {RATE} prio 20k"));
        // Low: as much as the line takes, at all times. High: a share of that, in the middle third.
        let mut frames: Vec<Coming> = (0..300).map(|i| (i * 1_000, 2, BYTES)).collect();
        frames.extend((0..share).map(|i| (100_000 + i * 100_000 / share, 7, BYTES)));
        frames.sort_by_key(|(at, ..)| *at);
        let left = run(&mut port, &frames);
        let third = |of: std::ops::Range<u64>, priority: u8| {
            let is = |(at, tag): &&(u64, u32)| of.contains(at) && frames[*tag as usize].1 == priority;
            left.iter().filter(is).count() as u64
        };
        assert_eq!((third(1..100_001, 2), third(1..100_001, 7)), (100, 0));
        // The line is never idle, and what is on it stays there: one frame more or less.
        let (low, high) = (third(100_001..200_001, 2), third(100_001..200_001, 7));
        assert_eq!(low + high, 100, "{share}");
        assert!(high.abs_diff(share) <= 1, "{share}: {high}");
        let after = third(200_001..300_001, 2);
        assert!(after >= 99, "{share}: {after}");
        let Counters { priority_drops, priority_frames, .. } = *port.tx_counters();
        assert_eq!((priority_drops[7], priority_frames[7]), (0, share));
        assert!(priority_drops[2] > 0);
    }
}

fn comings() -> impl Strategy<Value = Vec<Coming>> {
    let one = (0..150u64, 0..8u8, 46..400usize);
    prop::collection::vec(one, 1..200).prop_map(|mut frames| {
        let mut now = 0;
        for (at, ..) in &mut frames {
            now += *at;
            *at = now;
        }
        frames
    })
}

proptest! {
    /// Every frame has left or was dropped, as the text describes.
    #[test]
    fn a_line_is_what_the_text_says(frames in comings(), room in 1..20u32, by_bytes: bool) {
        let limit = if by_bytes { u64::from(room) * 100 } else { room.into() };
        let has_room = |waiting: &[(u32, Coming)]| {
            let bytes = waiting.iter().map(|(_, (.., bytes))| *bytes as u64).sum();
            (if by_bytes { bytes } else { waiting.len() as u64 }) <= limit
        };
        let (left, dropped) = naive(has_room, &frames);
        let unit = if by_bytes { "b" } else { "" };
        let mut port = impaired(&format!("tx {RATE} prio {limit}{unit}"));
        prop_assert_eq!(&run(&mut port, &frames), &left);
        prop_assert_eq!(left.len() + dropped.len(), frames.len());
        let Counters { over_limit, pushed_out, priority_frames, priority_drops, .. } = *port.tx_counters();
        prop_assert_eq!(over_limit, dropped.len() as u64);
        prop_assert_eq!(pushed_out, dropped.values().filter(|waited| **waited).count() as u64);
        for priority in 0..8u8 {
            let is = |tag: &u32| frames[*tag as usize].1 == priority;
            let count = |n: usize| n as u64;
            let sent = left.iter().filter(|(_, tag)| is(tag)).count();
            prop_assert_eq!(priority_frames[usize::from(priority)], count(sent));
            prop_assert_eq!(priority_drops[usize::from(priority)], count(dropped.keys().filter(|tag| is(tag)).count()));
        }
    }
}
