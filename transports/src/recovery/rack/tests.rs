//! The rules of RFC 8985 on a stream alone: times are chosen so that each loss is found at a known one.

use super::super::{Recovery, Sack, Sender};
use crate::psn::Psn;
use crate::time::{MS, Time, US};

/// Round trip of these tests.
const RTT: u64 = 100 * US;

struct Stream {
    sender: Sender,
    now: u64,
}

impl Stream {
    /// Creates a stream from 0 on of which the first packet was acknowledged after a round trip, and then `packets`
    /// more were sent, a microsecond apart.
    fn new(nack_threshold: u32, packets: u32) -> Stream {
        let sender = Sender::new(Recovery::Selective, Psn::new(0), 256, nack_threshold).with_evidence(true);
        let mut stream = Stream { sender, now: 0 };
        assert_eq!(stream.send(true), Some(0));
        stream.ack(RTT, 1, None);
        assert_eq!(stream.sender.take_sample(), Some(RTT));
        for _ in 0..packets {
            stream.now += US;
            assert!(stream.send(true).is_some());
        }
        stream
    }

    fn send(&mut self, more: bool) -> Option<u32> {
        assert!(self.sender.wants_tx(more) || self.sender.clone().tx_free(Time(self.now), more).is_none());
        self.sender.tx_free(Time(self.now), more).map(Psn::get)
    }

    /// Returns all retransmissions now.
    fn again(&mut self) -> Vec<u32> {
        std::iter::from_fn(|| self.send(false)).collect()
    }

    /// Acknowledges everything before `cumulative`, and the packets `sack`.
    fn ack(&mut self, at: u64, cumulative: u32, sack: Option<std::ops::RangeInclusive<u32>>) {
        self.now = self.now.max(at);
        let sack = sack.map(|run| Sack { last: Psn::new(*run.end()), run: (run.end() - run.start()) as u8 });
        assert!(self.sender.receive_acks(Time(self.now), Psn::new(cumulative), sack));
    }

    /// Runs the reordering timer, if it is due by then. Returns when it was.
    fn wait(&mut self, until: u64) -> Option<u64> {
        let at = self.sender.deadline();
        (at <= Time(until)).then(|| {
            self.now = self.now.max(at.0);
            self.sender.on_deadline(at);
            at.0
        })
    }
}

#[test]
fn a_gap_is_a_loss_at_once_as_long_as_no_reordering_was_seen() {
    let mut s = Stream::new(1, 10);
    s.ack(s.now + RTT, 3, None);
    assert_eq!(s.again(), []);
    s.ack(s.now + US, 3, Some(4..=4));
    assert_eq!((s.again(), s.sender.losses()), (vec![3], 1));
    s.ack(s.now + US, 3, Some(7..=8));
    assert_eq!((s.again(), s.sender.losses()), (vec![5, 6], 1));
    assert_eq!((s.sender.is_recovering(), s.sender.deadline()), (true, Time::NEVER));
    s.ack(s.now + RTT, 11, None);
    assert_eq!((s.sender.is_recovering(), s.again()), (false, vec![]));
}

/// Times are those of a call: all packets sent by one call have the same.
#[test]
fn what_was_sent_at_the_same_time_before_it_does_not_make_a_repeated_packet_lost() {
    let mut s = Stream::new(1, 10);
    s.now += RTT;
    assert_eq!(s.send(true), Some(11));
    s.ack(s.now, 3, Some(4..=10));
    assert_eq!((s.again(), s.send(true)), (vec![3], Some(12)));
    s.ack(s.now + RTT, 3, Some(11..=11));
    assert_eq!((s.again(), s.sender.deadline()), (vec![], Time::NEVER));
    // This one followed it.
    s.ack(s.now, 3, Some(12..=12));
    assert_eq!(s.again(), [3]);
}

/// §6.2, step 4: before DupThresh packets are selectively acknowledged, the wait is a quarter of the minimum round
/// trip.
#[test]
fn fewer_packets_than_the_threshold_are_waited_for_a_quarter_of_a_round_trip() {
    let mut s = Stream::new(3, 10);
    s.ack(s.now + RTT, 3, Some(4..=4));
    let sacked = s.now;
    assert_eq!(s.again(), []);
    // 3 was sent a microsecond before 4.
    assert_eq!(s.wait(sacked + RTT), Some(sacked + RTT / 4 - US));
    assert_eq!(s.again(), [3]);
    let mut s = Stream::new(3, 10);
    s.ack(s.now + RTT, 3, Some(4..=6));
    assert_eq!((s.again(), s.sender.deadline()), (vec![3], Time::NEVER));
}

/// §6.2, step 3. A packet that arrives after one sent later, and was not retransmitted.
#[test]
fn once_reordering_was_seen_packets_may_come_late() {
    let mut s = Stream::new(3, 20);
    s.ack(s.now + RTT, 3, Some(4..=4));
    s.ack(s.now + US, 5, None);
    for threshold in [1, 4] {
        let sacks = 10 + threshold;
        s.ack(s.now + US, 5, Some(6..=sacks));
    }
    let latest = s.now;
    assert_eq!(s.again(), []);
    let due = s.wait(latest + RTT).expect("the reordering timer runs");
    assert!(due > latest && due <= latest + RTT / 4, "{latest} {due}");
    assert_eq!(s.again(), [5]);
}

/// §6.2, step 4: each round with duplicates widens the window by a quarter of the minimum round trip, up to the
/// smoothed one, and sixteen recoveries without one end that.
#[test]
fn duplicates_widen_the_window() {
    let window = |duplicates: u32| {
        let mut s = Stream::new(3, 3);
        for n in 0..duplicates {
            s.sender.receive_duplicate(Psn::new(1));
            // Once per round.
            s.sender.receive_duplicate(Psn::new(1));
            s.now += US;
            let (next, now) = (s.sender.high().get(), s.now);
            s.ack(now + RTT, next, None);
            s.send(true);
            assert_eq!(s.sender.high().get(), next + 1, "{n}");
        }
        for _ in 0..3 {
            s.now += US;
            s.send(true);
        }
        let first = s.sender.acked().get();
        s.ack(s.now + RTT, first, Some(first + 1..=first + 1));
        (s.sender.deadline().0 - s.now).next_multiple_of(RTT / 8)
    };
    assert_eq!([0, 1, 2, 3, 9].map(window), [1, 2, 3, 4, 4].map(|quarters| quarters * RTT / 4));
}

#[test]
fn a_packet_sent_again_and_lost_again_is_found_by_what_was_sent_later() {
    let mut s = Stream::new(1, 10);
    s.ack(s.now + RTT, 3, Some(4..=10));
    for _ in 0..5 {
        assert_eq!(s.again(), [3]);
        // New packets follow it, of which the first arrives.
        s.now += US;
        let next = s.send(true).expect("a new packet");
        s.now += US;
        s.send(true);
        // An acknowledgement of one sent before it says nothing.
        s.ack(s.now + US, 3, Some(next - 1..=next - 1));
        assert_eq!(s.again(), []);
        s.ack(s.now + RTT, 3, Some(next..=next));
    }
    assert_eq!(s.again(), [3]);
    s.ack(s.now + RTT, 3, Some(s.sender.high().get() - 1..=s.sender.high().get() - 1));
    assert_eq!(s.again(), [], "nothing was sent after it");
}

/// §7.3: the probe's acknowledgement has everything before it found, whatever was lost.
#[test]
fn a_probe_finds_the_lost_tail() {
    let mut s = Stream::new(3, 10);
    s.ack(s.now + RTT, 4, None);
    s.now += 2 * RTT;
    assert!(s.sender.probe(false) && !s.sender.probe(false));
    assert_eq!(s.again(), [10]);
    s.ack(s.now + RTT, 4, Some(10..=10));
    assert_eq!(s.again(), [4, 5, 6, 7, 8, 9]);
    s.ack(s.now + RTT, 11, None);
    assert_eq!((s.sender.losses(), s.sender.spurious(), s.sender.is_recovering()), (1, 0, false));
}

/// §7.4.2.
#[test]
fn what_the_probe_repaired_alone_is_a_loss_unless_both_copies_arrive() {
    for spurious in [false, true] {
        let mut s = Stream::new(1, 3);
        s.ack(s.now + RTT, 3, None);
        assert!(s.sender.probe(false));
        assert_eq!(s.again(), [3]);
        s.ack(s.now + RTT, 4, None);
        if spurious {
            s.sender.receive_duplicate(Psn::new(3));
        }
        assert_eq!(s.sender.losses(), 0);
        s.send(true);
        s.ack(s.now + RTT, 5, None);
        let expected = if spurious { (0, 1) } else { (1, 0) };
        assert_eq!((s.sender.losses(), s.sender.spurious()), expected);
    }
}

#[test]
fn during_recovery_a_probe_asks_for_what_is_missing() {
    let mut s = Stream::new(1, 6);
    s.ack(s.now + RTT, 3, Some(4..=6));
    assert_eq!(s.again(), [3]);
    // It is lost again, with nothing behind it.
    s.now += 2 * RTT;
    assert!(s.sender.probe(false));
    assert_eq!(s.again(), [3]);
    s.ack(s.now + RTT, 7, None);
    assert!(!s.sender.is_recovering() && !s.sender.outstanding() && !s.sender.probe(false));
}

/// §6.3, including the effect of the first packet's acknowledgement.
#[test]
fn after_a_timeout_the_first_packet_goes_and_its_acknowledgement_has_the_others_follow() {
    let mut s = Stream::new(1, 8);
    s.ack(s.now + RTT, 2, None);
    s.now += MS;
    s.sender.timeout(false, 0);
    assert_eq!(s.again(), [2]);
    let sent = s.now;
    s.ack(s.now + RTT, 3, None);
    assert_eq!(s.again(), []);
    // A round trip later there is no sign that the others are only late.
    let due = s.wait(s.now + 2 * RTT).expect("the reordering timer runs");
    assert!((sent + 2 * RTT..sent + 2 * RTT + 2 * US).contains(&due), "{sent} {due}");
    assert_eq!(s.again(), [3, 4, 5, 6, 7, 8]);
}

/// F-RTO (RFC 5682).
#[test]
fn a_timeout_that_came_too_early_costs_one_packet() {
    // The originals are acknowledged one by one, or at once; the answer to the copy comes last.
    for at_once in [false, true] {
        let mut s = Stream::new(1, 8);
        s.now += MS;
        s.sender.timeout(false, 0);
        assert_eq!(s.again(), [1]);
        s.now += 2 * RTT;
        if !at_once {
            s.ack(s.now, 2, None);
            s.ack(s.now + US, 3, None);
        }
        s.ack(s.now + US, 9, None);
        assert_eq!((s.again(), s.sender.deadline()), (vec![], Time::NEVER));
        s.sender.receive_duplicate(Psn::new(1));
        assert_eq!((s.sender.spurious(), s.sender.losses()), (1, 0));
    }
}

#[test]
fn one_round_trip_is_measured_a_round_trip_even_while_packets_are_lost() {
    let mut s = Stream::new(1, 0);
    for n in 0..10 {
        // Of every four packets the first is lost, and its retransmission arrives.
        let first = s.sender.acked().get();
        for _ in 0..4 {
            s.now += US;
            s.send(true);
        }
        s.ack(s.now + RTT, first, Some(first + 1..=first + 3));
        assert!(s.sender.take_sample().is_some());
        assert_eq!(s.again(), [first]);
        s.ack(s.now + RTT, first + 4, None);
        assert_eq!(s.sender.take_sample(), None, "{n}: sent twice (Karn)");
    }
}

/// A receiver that goes back N names in its NACK the packet that it waits for.
#[test]
fn a_receiver_that_keeps_nothing_gets_everything_again_once() {
    let mut s = Stream::new(1, 8);
    s.ack(s.now + RTT, 3, Some(3..=3));
    // It answers each packet like this.
    s.ack(s.now + US, 3, Some(3..=3));
    assert_eq!(s.again(), [3, 4, 5, 6, 7, 8]);
    s.ack(s.now + US, 3, Some(3..=3));
    assert_eq!(s.again(), []);
    s.ack(s.now + RTT, 9, None);
    assert!(!s.sender.outstanding());
}

#[test]
fn going_back_forgets_what_was_known() {
    let mut s = Stream::new(1, 8);
    s.ack(s.now + RTT, 3, Some(5..=6));
    s.sender.go_back();
    assert_eq!(s.again(), [3, 4, 5, 6, 7, 8]);
    s.ack(s.now + RTT, 3, Some(4..=8));
    assert_eq!(s.again(), [3]);
    s.ack(s.now + RTT, 9, None);
    assert!(!s.sender.outstanding() && !s.sender.is_recovering());
}

mod random {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::super::super::{Class, Receiver};
    use super::*;

    proptest! {
        /// A stream and its receiver over a path that loses, duplicates and delays: everything arrives, and without
        /// reordering no retransmission is spurious unless an acknowledgement was lost or a timer expired.
        #[test]
        fn everything_arrives(
            losses in prop::collection::vec(prop::bool::weighted(0.15), 400),
            ack_losses in prop::collection::vec(prop::bool::weighted(0.1), 400),
            threshold in 1u32..5,
            jitter in prop_oneof![Just(0u64), 0u64..30 * US],
            cap in prop_oneof![Just(1u32), 2u32..64],
        ) {
            const PACKETS: u32 = 150;
            let first = Psn::new(0xff_ffc0);
            let mut tx = Sender::new(Recovery::Selective, first, cap, threshold).with_evidence(true);
            let mut rx = Receiver::new(first, Psn::new(0), 64);
            let (mut now, mut sent, mut acked) = (0u64, 0usize, 0usize);
            let (mut data, mut acks) = (VecDeque::new(), VecDeque::new());
            let (mut again, mut duplicates, mut lost, mut timers, mut acks_lost) = (0u32, 0u32, 0u32, 0u32, 0u32);
            let mut steps = 0;
            while tx.acked() != first.plus(PACKETS) {
                steps += 1;
                prop_assert!(steps < 100_000, "no end: {:?}", tx.state());
                let more = |tx: &Sender| tx.high() != first.plus(PACKETS);
                while tx.wants_tx(more(&tx)) {
                    let high = tx.high();
                    let Some(psn) = tx.tx_free(Time(now), more(&tx)) else { continue };
                    again += u32::from(psn.before(high));
                    now += US;
                    let is_lost = losses.get(sent).copied().unwrap_or(false);
                    sent += 1;
                    lost += u32::from(is_lost);
                    if !is_lost {
                        let late = if jitter > 0 && sent % 3 == 0 { jitter } else { 0 };
                        data.push_back((now + 50 * US + late, psn));
                    }
                }
                data.make_contiguous().sort_by_key(|(at, _)| *at);
                let next = |queue: &VecDeque<(u64, _)>| queue.front().map_or(u64::MAX, |(at, _)| *at);
                let next_ack = acks.front().map_or(u64::MAX, |(at, ..): &(u64, Psn, Option<Psn>)| *at);
                let next_data = next(&data);
                let timer = now + MS;
                let at = next_data.min(next_ack).min(tx.deadline().0).min(timer);
                now = now.max(at);
                if at == timer {
                    timers += 1;
                    if timers % 2 == 0 || !tx.probe(false) {
                        tx.timeout(false, 0);
                    }
                } else if at == next_data {
                    let (_, psn) = data.pop_front().unwrap();
                    let old = psn.before(rx.expected()) || rx.locate(psn) == super::super::super::Arrival::Duplicate;
                    duplicates += u32::from(old);
                    if !old {
                        rx.receive_data(psn, Class::Middle);
                    }
                    let is_lost = ack_losses.get(acked).copied().unwrap_or(false);
                    acked += 1;
                    acks_lost += u32::from(is_lost);
                    if !is_lost {
                        let nack = (!psn.before(rx.expected())).then_some(psn);
                        acks.push_back((now + 50 * US, rx.expected(), nack));
                    }
                } else if at == next_ack {
                    let (_, cumulative, nack) = acks.pop_front().unwrap();
                    prop_assert!(tx.receive_ack(Time(now), cumulative, nack));
                    let _ = tx.take_sample();
                } else {
                    tx.on_deadline(Time(now));
                }
            }
            prop_assert!(again >= duplicates);
            if jitter == 0 && acks_lost == 0 {
                prop_assert!(duplicates <= timers, "{duplicates} of {again} for nothing; {lost} lost, {timers} timers");
            }
        }
    }
}
