use std::net::IpAddr;
use std::time::Duration;

use super::*;
use irnic_transports::wire::{icrc_append, icrc_check};
use proptest::prelude::*;
use std::collections::VecDeque;

mod line;
mod policy;
mod prio;
mod rocc;

/// A port that sends into a list and receives what the test inserts.
#[derive(Default)]
struct Wire {
    sent: Vec<(Time, Path, Vec<u8>)>,
    /// Frames it still has room for.
    room: Option<usize>,
    incoming: VecDeque<(Time, Path, Vec<u8>)>,
    flushes: usize,
    /// Maximum number of frames delivered at a time, whatever the budget; 0 for no limit.
    portion: usize,
}

impl Port for Wire {
    fn max_frame(&self) -> usize {
        4200
    }

    fn transmit(&mut self, now: Time, frame: &TxFrame<'_>, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        if self.room == Some(0) {
            return false;
        }
        self.room = self.room.map(|room| room - 1);
        let mut bytes = vec![0; frame.len];
        fill(&mut bytes);
        self.sent.push((now, *frame.path, bytes));
        true
    }

    fn flush(&mut self, _: Time) -> io::Result<()> {
        self.flushes += 1;
        Ok(())
    }

    fn receive(&mut self, now: Time, budget: usize, each: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        let budget = if self.portion > 0 { budget.min(self.portion) } else { budget };
        let mut given = 0;
        while given < budget && self.incoming.front().is_some_and(|(arrived, ..)| *arrived <= now) {
            let (arrived, path, bytes) = self.incoming.pop_front().expect("there is a front");
            each(RxFrame { path, bytes: &bytes, arrived, icrc: RxIcrc::Exact });
            given += 1;
        }
        Ok(given)
    }

    fn wait(&mut self, _: Duration) -> io::Result<()> {
        Ok(())
    }
}

fn frame(path: &Path) -> TxFrame<'_> {
    TxFrame { path, dest_qp: 0x100, len: 100, icrc: true, irn: false }
}

fn path() -> Path {
    Path {
        src: IpAddr::from([10, 0, 0, 1]),
        dst: IpAddr::from([10, 0, 0, 2]),
        udp_src: 0xc000,
        traffic_class: 0b10,
        hop_limit: 64,
    }
}

fn impaired(text: &str) -> Impaired<Wire> {
    let impairments = text.parse().unwrap_or_else(|e: crate::impair::ParseError| panic!("{e}"));
    Impaired::new(Wire::default(), &impairments, 1, 0)
}

fn send(port: &mut impl Port, now: Time, tag: u32) -> bool {
    port.transmit(now, &frame(&path()), &mut |to| {
        to.fill(0xee);
        to[..4].copy_from_slice(&tag.to_be_bytes());
    })
}

fn tag(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn sent(port: &Impaired<Wire>) -> Vec<(u64, u32)> {
    port.inner().sent.iter().map(|(now, _, bytes)| (now.0, tag(bytes))).collect()
}

/// Inserts frames that arrive at these times, tagged 0, 1, 2 and so on.
fn arrive(port: &mut Impaired<Wire>, times: &[u64]) {
    for (tag, arrived) in times.iter().enumerate() {
        let mut bytes = vec![0xee; 100];
        bytes[..4].copy_from_slice(&(tag as u32).to_be_bytes());
        port.inner_mut().incoming.push_back((Time(*arrived), path(), bytes));
    }
}

fn receive(port: &mut Impaired<Wire>, now: u64, budget: usize) -> Vec<(u64, u32)> {
    let mut got = Vec::new();
    let given = port.receive(Time(now), budget, &mut |frame| got.push((frame.arrived.0, tag(frame.bytes)))).unwrap();
    assert_eq!(given, got.len());
    got
}

#[test]
fn without_impairments_both_directions_go_straight_through() {
    let mut port = impaired("seed 5 limit 1");
    assert!(send(&mut port, Time(5), 0));
    arrive(&mut port, &[7]);
    assert_eq!(receive(&mut port, 7, 8), [(7, 0)]);
    assert_eq!(sent(&port), [(5, 0)]);
    assert_eq!(port.next_deadline(), Time::NEVER);
    assert_eq!(port.tx_counters().seen + port.rx_counters().seen, 0);
}

#[test]
fn each_direction_has_its_own() {
    let mut port = impaired("tx loss 100%; rx delay 10ns");
    assert!(send(&mut port, Time(5), 0));
    arrive(&mut port, &[7]);
    assert_eq!(receive(&mut port, 7, 8), []);
    assert_eq!(receive(&mut port, 17, 8), [(17, 0)]);
    assert_eq!(sent(&port), []);
    assert_eq!((port.tx_counters().dropped, port.rx_counters().delayed), (1, 1));
}

#[test]
fn a_delayed_frame_leaves_when_it_is_due_and_next_deadline_says_when() {
    let mut port = impaired("tx delay 1us");
    send(&mut port, Time(100), 0);
    send(&mut port, Time(300), 1);
    assert_eq!(port.next_deadline(), Time(1100));
    port.flush(Time(1099)).unwrap();
    assert_eq!(sent(&port), []);
    port.flush(Time(1100)).unwrap();
    assert_eq!(sent(&port), [(1100, 0)]);
    // Receiving moves it too, and flushes what it moved.
    let before = port.inner().flushes;
    receive(&mut port, 1300, 8);
    assert_eq!(sent(&port), [(1100, 0), (1300, 1)]);
    assert_eq!(port.inner().flushes, before + 1);
    assert_eq!(port.next_deadline(), Time::NEVER);
}

#[test]
fn frames_due_at_the_same_time_keep_their_order() {
    let mut port = impaired("tx delay 1us");
    for tag in 0..50 {
        send(&mut port, Time(0), tag);
    }
    port.flush(Time(1000)).unwrap();
    assert_eq!(sent(&port), (0..50).map(|tag| (1000, tag)).collect::<Vec<_>>());
}

#[test]
fn a_frame_that_skips_the_delay_overtakes() {
    let mut port = impaired("tx delay 1us reorder 100% gap 3");
    for tag in 0..3 {
        send(&mut port, Time(0), tag);
    }
    port.flush(Time(1000)).unwrap();
    assert_eq!(sent(&port), [(0, 2), (1000, 0), (1000, 1)]);
}

#[test]
fn frames_overtake_on_the_way_in_even_if_they_are_fetched_together() {
    let mut port = impaired("rx delay 100ns reorder 100% gap 3");
    arrive(&mut port, &[0, 0, 50, 200, 200, 250]);
    assert_eq!(receive(&mut port, 1000, 16), [(50, 2), (100, 0), (100, 1), (250, 5), (300, 3), (300, 4)]);
}

#[test]
fn a_budget_bounds_what_is_given_and_the_rest_stays_due() {
    let mut port = impaired("rx delay 100ns");
    arrive(&mut port, &[0, 1, 2, 3, 4]);
    assert_eq!(receive(&mut port, 10, 16), []);
    assert_eq!(receive(&mut port, 200, 2), [(100, 0), (101, 1)]);
    assert_eq!(port.next_deadline(), Time(102));
    assert_eq!(receive(&mut port, 200, 16), [(102, 2), (103, 3), (104, 4)]);
}

#[test]
fn duplicates_go_out_twice_and_come_in_twice() {
    let mut port = impaired("duplicate 100%");
    send(&mut port, Time(1), 7);
    assert_eq!(sent(&port), [(1, 7), (1, 7)]);
    arrive(&mut port, &[3]);
    assert_eq!(receive(&mut port, 3, 8), [(3, 0), (3, 0)]);
}

#[test]
fn corruption_flips_exactly_one_bit_either_way() {
    for text in ["corrupt 100%", "corrupt 100% delay 10ns", "corrupt 100% duplicate 100%"] {
        let mut port = impaired(text);
        let clean: Vec<u8> = std::iter::chain([0, 0, 0, 0], std::iter::repeat_n(0xee, 96)).collect();
        let flipped = |bytes: &[u8]| clean.iter().zip(bytes).map(|(a, b)| (a ^ b).count_ones()).sum::<u32>();
        send(&mut port, Time(0), 0);
        port.flush(Time(10)).unwrap();
        assert!(port.inner().sent.iter().all(|(_, _, bytes)| flipped(bytes) == 1), "{text}");
        arrive(&mut port, &[0]);
        let mut received = 0;
        for now in [0, 10] {
            port.receive(Time(now), 8, &mut |frame| {
                assert_eq!(flipped(frame.bytes), 1, "{text}");
                received += 1;
            })
            .unwrap();
        }
        assert_eq!(received, port.inner().sent.len(), "{text}");
    }
}

#[test]
fn ecn_marks_the_traffic_class() {
    let mut port = impaired("loss 100% ecn");
    send(&mut port, Time(0), 0);
    assert_eq!(port.inner().sent[0].1.traffic_class, 0b11);
    arrive(&mut port, &[0]);
    port.receive(Time(0), 8, &mut |frame| assert_eq!(frame.path.traffic_class, 0b11)).unwrap();
    assert_eq!(port.rx_counters().marked, 1);
}

#[test]
fn a_long_queue_marks_the_traffic_class_and_the_icrc_stays_right() {
    // 142 bytes on the line take 142 ns.
    let mut port = impaired("tx rate 8gbit ecn 100");
    for now in [0, 0, 300] {
        port.transmit(Time(now), &frame(&path()), &mut |to| icrc_append(&path(), 0, to));
    }
    port.flush(Time(1000)).unwrap();
    let marked: Vec<u8> = port.inner().sent.iter().map(|(_, path, _)| path.traffic_class).collect();
    assert_eq!(marked, [0b10, 0b11, 0b10]);
    assert!(port.inner().sent.iter().all(|(_, path, bytes)| icrc_check(path, 0, bytes)));
    let [tx, rx] = port.impairments().unwrap();
    assert_eq!((tx.counters.marked, tx.queue.map(|q| (q.frames, q.peak_bytes)), rx.queue), (1, Some((3, 142)), None));
    assert!(tx.numbers().any(|number| number == ("queue_peak_bytes", 142)));
    assert!(rx.numbers().all(|(name, _)| !name.starts_with("queue")));
}

#[test]
fn the_rate_counts_ethernet_ip_and_udp_headers() {
    // 100 bytes and 42 of headers at one byte a nanosecond.
    let mut port = impaired("tx rate 8gbit");
    send(&mut port, Time(0), 0);
    send(&mut port, Time(0), 1);
    assert_eq!(port.next_deadline(), Time(142));
    port.flush(Time(300)).unwrap();
    let path = Path { src: "fd00::1".parse().unwrap(), dst: "fd00::2".parse().unwrap(), ..path() };
    port.transmit(Time(1000), &frame(&path), &mut |_| {});
    assert_eq!(port.next_deadline(), Time(1162));
}

#[test]
fn no_room_behind_is_no_room_here_and_loses_nothing() {
    let mut port = impaired("tx corrupt 0.0001% duplicate 0%");
    port.inner_mut().room = Some(1);
    assert!(send(&mut port, Time(0), 0));
    // Judged already, so it is kept.
    assert!(send(&mut port, Time(0), 1));
    assert!(!send(&mut port, Time(1), 2));
    assert_eq!(port.tx_counters().seen, 2);
    port.inner_mut().room = None;
    assert!(send(&mut port, Time(2), 2));
    assert_eq!(sent(&port), [(0, 0), (2, 1), (2, 2)]);
}

#[test]
fn what_exceeds_the_limit_is_dropped_and_buffers_are_used_again() {
    let mut port = impaired("tx delay 1us limit 10");
    for round in 0..100 {
        let now = Time(round * 10_000);
        for tag in 0..20 {
            assert!(send(&mut port, now, tag));
        }
        port.flush(now + 1000).unwrap();
    }
    assert_eq!(port.inner().sent.len(), 1000);
    assert_eq!(port.tx_counters().over_limit, 1000);
    assert!(port.tx.held.free.len() <= 11, "{}", port.tx.held.free.len());
}

proptest! {
    #[test]
    fn every_frame_is_accounted_for_and_intact(
        text in prop::sample::select(vec![
            "loss 20% delay 1us 2us 30%",
            "loss gemodel 5% 20% delay 3us reorder 30% 10% gap 2 duplicate 20%",
            "duplicate 50% rate 1gbit limit 5",
            "delay 1us 1us distribution pareto duplicate 10% loss 5% 50%",
            "loss 30% ecn duplicate 30% limit 3 rate 10gbit delay 500ns",
        ]),
        seed: u64,
        room in prop::option::of(0..40usize),
        pauses in prop::collection::vec(0..3000u64, 1..100),
    ) {
        let run = || {
            let impairments = text.parse().unwrap();
            let mut port = Impaired::new(Wire { room, ..Wire::default() }, &impairments, seed, 3);
            let (mut now, mut taken, mut got) = (Time::ZERO, 0u32, Vec::new());
            for pause in &pauses {
                now += *pause;
                taken += u32::from(send(&mut port, now, taken));
                port.inner_mut().incoming.push_back((now, path(), vec![1; 64]));
                port.receive(now, 4, &mut |frame| got.push((frame.arrived, frame.bytes.to_vec()))).unwrap();
            }
            port.inner_mut().room = None;
            while port.next_deadline() != Time::NEVER || !port.inner().incoming.is_empty() {
                now = if port.next_deadline() == Time::NEVER { now } else { now.max(port.next_deadline()) };
                port.receive(now, 4, &mut |frame| got.push((frame.arrived, frame.bytes.to_vec()))).unwrap();
            }
            (taken, port, got)
        };
        let (taken, port, got) = run();
        let arrived = |c: &Counters| c.seen + c.duplicated - c.dropped - c.over_limit;
        prop_assert_eq!(port.tx_counters().seen, u64::from(taken));
        prop_assert_eq!(port.rx_counters().seen, pauses.len() as u64);
        prop_assert_eq!(arrived(port.tx_counters()), port.inner().sent.len() as u64);
        prop_assert_eq!(arrived(port.rx_counters()), got.len() as u64);
        prop_assert!(port.inner().sent.iter().all(|(_, _, bytes)| tag(bytes) < taken && bytes[4..].iter().all(|b| *b == 0xee)));
        prop_assert!(got.iter().all(|(_, bytes)| *bytes == [1; 64]));
        prop_assert!(port.inner().sent.is_sorted_by_key(|(now, ..)| *now));
        let again = run();
        prop_assert_eq!(&again.1.inner().sent, &port.inner().sent);
        prop_assert_eq!(again.2, got);
    }
}
