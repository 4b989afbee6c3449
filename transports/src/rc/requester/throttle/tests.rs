use super::*;
use crate::time::{MS, US};

const GBIT: u64 = 1_000_000_000;
const MTU: u32 = 1000;

/// A line of 8 Gbit/s, one byte per nanosecond, and a round trip of 10 µs.
fn throttle(congestion: &str) -> Box<Throttle> {
    let mut config = TransportConfig::preset("irn").unwrap();
    config.congestion = congestion.parse().unwrap();
    (config.line_rate, config.base_rtt) = (8 * GBIT, 10 * US);
    Throttle::new(&config, MTU).unwrap()
}

/// TIMELY at the line rate, unaffected by any round trip.
fn measuring() -> Box<Throttle> {
    throttle("timely,t-low=0,t-high=3600s,segment=4000")
}

/// A quarter of the line rate, 2 Gbit/s or 4 ns per byte, in segments of 4000 bytes.
fn quarter() -> Box<Throttle> {
    let mut t = throttle("timely,t-low=0,t-high=3600s,segment=4000,initial=0.25");
    // Uses up the half segment that a flow begins with.
    t.pacer.spend(Time::ZERO, 2_000);
    t
}

fn psn(n: u32) -> Psn {
    Psn::new(0xff_fffe).plus(n)
}

/// Full packet `n`, which ends no message.
fn send(t: &mut Throttle, now: u64, n: u32) -> bool {
    t.on_send(Time(now), psn(n), true, MTU, MTU, false)
}

fn again(t: &mut Throttle, now: u64, n: u32) {
    t.on_send(Time(now), psn(n), false, MTU, MTU, false);
}

/// Returns the waiting segments: first and last packet, and bytes.
fn waiting(t: &Throttle) -> Vec<(i32, i32, u32)> {
    t.segments.iter().map(|s| (s.first.distance(psn(0)), s.last.distance(psn(0)), s.bytes)).collect()
}

/// Returns the samples of an acknowledgement of everything before `acked`.
fn samples(t: &mut Throttle, now: u64, acked: u32, sack: Option<Sack>) -> Vec<u64> {
    let mut samples = Vec::new();
    while let Some(answered) = t.answered(psn(acked), sack) {
        samples.extend(answered.map(|s| t.round_trip(Time(now), &s)));
    }
    samples
}

fn sack(last: u32, run: u8) -> Option<Sack> {
    Some(Sack { last: psn(last), run })
}

#[test]
fn segments_end_by_length_and_with_their_message() {
    let mut t = measuring();
    let ends: Vec<bool> = (0..6).map(|n| send(&mut t, u64::from(n), n)).collect();
    assert_eq!(ends, [false, false, false, true, false, false]);
    // A message ends with 1 byte, and the segment with it.
    assert!(t.on_send(Time(6), psn(6), true, 1, 1, true));
    assert_eq!(waiting(&t), [(0, 3, 4000), (4, 6, 2001)]);
    // A message without bytes counts, too.
    assert!(t.on_send(Time(7), psn(7), true, 0, 0, true));
    assert_eq!(waiting(&t)[2], (7, 7, 0));
    // 999 more bytes are less than a full packet: 3001 of 4000 end it.
    for n in 8..10 {
        assert!(!send(&mut t, 8, n));
    }
    assert!(!t.on_send(Time(8), psn(10), true, 1000, 1000, false));
    assert!(t.on_send(Time(8), psn(11), true, 1, 1, false));
    assert_eq!(waiting(&t)[3], (8, 11, 3001));
}

#[test]
fn a_round_trip_counts_from_the_last_packet_less_what_sending_it_takes() {
    let mut t = measuring();
    for n in 0..4 {
        send(&mut t, 1_000 * u64::from(n), n);
    }
    // Three of four do not complete it.
    assert_eq!(samples(&mut t, 9_000, 3, None), Vec::<u64>::new());
    // Sent at 3000, of 1000 bytes that take 1000 ns: 20,000 − 3000 − 1000.
    assert_eq!(samples(&mut t, 20_000, 4, None), [16_000]);
    assert_eq!(samples(&mut t, 21_000, 4, None), Vec::<u64>::new(), "once");
    // A message of 100 bytes: 50,000 − 30,000 − 100.
    t.on_send(Time(30_000), psn(4), true, 100, 100, true);
    assert_eq!(samples(&mut t, 50_000, 5, None), [19_900]);
    // Never zero, whatever the clocks say.
    t.on_send(Time(60_000), psn(5), true, 1000, 1000, true);
    assert_eq!(samples(&mut t, 60_100, 6, None), [1]);
}

#[test]
fn one_acknowledgement_ends_several_segments() {
    let mut t = measuring();
    for n in 0..10 {
        send(&mut t, 1_000 * u64::from(n), n);
    }
    // Packets 3 and 7 end segments; 8 and 9 are in the open one.
    assert_eq!(samples(&mut t, 20_000, 10, None), [16_000, 12_000]);
    assert!(t.open.is_some() && t.segments.is_empty());
}

#[test]
fn what_is_sent_again_answers_for_no_segment() {
    let mut t = measuring();
    for n in 0..14 {
        send(&mut t, 0, n);
    }
    assert_eq!(waiting(&t), [(0, 3, 4000), (4, 7, 4000), (8, 11, 4000)]);
    again(&mut t, 100, 5);
    assert_eq!(waiting(&t), [(0, 3, 4000), (8, 11, 4000)]);
    assert!(t.open.is_none(), "no burst any more");
    // The first and the last of a segment belong to it.
    again(&mut t, 100, 0);
    again(&mut t, 100, 11);
    assert_eq!(waiting(&t), []);
    // The next new packet begins a segment of its own.
    for n in 14..18 {
        send(&mut t, 200, n);
    }
    assert_eq!(waiting(&t), [(14, 17, 4000)]);
    again(&mut t, 300, 13);
    assert_eq!(waiting(&t), [(14, 17, 4000)]);
    t.on_timeout(Time(400));
    assert_eq!(waiting(&t), []);
}

#[test]
fn a_selective_acknowledgement_ends_what_it_covers() {
    let mut t = measuring();
    for n in 0..16 {
        send(&mut t, 0, n);
    }
    // 7 has arrived, 0 has not; segment 0..=3 is skipped without a sample.
    assert_eq!(samples(&mut t, 9_000, 0, sack(6, 0)), Vec::<u64>::new());
    assert_eq!(waiting(&t).len(), 3);
    assert_eq!(samples(&mut t, 9_000, 0, sack(7, 0)), [8_000]);
    // A run of 8 to 12 covers 11, which ends a segment, though it is not the last.
    assert_eq!(samples(&mut t, 10_000, 0, sack(12, 4)), [9_000]);
    // A run of one does not cover it.
    let mut t = measuring();
    for n in 0..8 {
        send(&mut t, 0, n);
    }
    assert_eq!(samples(&mut t, 10_000, 0, sack(5, 0)), Vec::<u64>::new());
    assert_eq!(waiting(&t), [(4, 7, 4000)]);
}

#[test]
fn no_more_segments_than_there_is_room_for() {
    let mut t = throttle("timely,t-low=0,t-high=3600s,segment=1");
    for n in 0..SEGMENTS as u32 + 10 {
        send(&mut t, 0, n);
    }
    assert_eq!(t.segments.len(), SEGMENTS);
}

/// Returns whether the rate counts as used when a segment of 4 packets leaves every `every` ns; each takes 16 µs at the
/// rate.
fn used(every: u64) -> bool {
    let mut t = quarter();
    for segment in 0..40 {
        for n in 0..4 {
            send(&mut t, segment * every, segment as u32 * 4 + n);
        }
    }
    t.busy
}

#[test]
fn four_fifths_of_the_rate_are_most_of_it() {
    // 16,000 of every: 100 %, 81.0 %, 80 %, 79.0 %, 50 %.
    assert_eq!([16_000, 19_750, 20_000, 20_250, 32_000].map(used), [true, true, true, false, false]);
}

#[test]
fn after_idle_time_the_rate_was_not_used_until_it_is_for_a_round_trip() {
    let mut t = quarter();
    assert!(t.busy, "a flow that begins");
    let mut n = 0;
    let mut segment = |t: &mut Throttle, at: u64| {
        for _ in 0..4 {
            send(t, at, n);
            n += 1;
        }
        t.busy
    };
    // The time before the first packet does not count.
    assert!(segment(&mut t, 100_000) && segment(&mut t, 116_000));
    // Idle from 132,000 on.
    assert!(!segment(&mut t, 232_000));
    assert!(segment(&mut t, 248_000), "16 µs, all of them used");
}

#[test]
fn a_rate_that_falls_leaves_no_idle_time() {
    // At 0 a segment, 16 µs; at 8 µs the rate is halved: the other half takes 16 µs, so that the next leaves at 24 µs.
    // That is determined when it is due.
    let mut t = quarter();
    for n in 0..4 {
        send(&mut t, 0, n);
    }
    t.controller = throttle("timely,t-low=0,t-high=3600s,segment=4000,initial=0.125").controller;
    t.set_rate(Time(8_000));
    assert_eq!((t.due, t.next_deadline()), (Time(24_000), Time(16_000)));
    assert!(!t.allows(Time(16_000)));
    assert_eq!(t.next_deadline(), Time(24_000));
    send(&mut t, 24_000, 4);
    assert!(t.busy);
}

#[test]
fn a_rate_that_rises_brings_no_segment_forward() {
    // At 0 a segment, 16 µs; at 8 µs the rate is doubled.
    let mut t = quarter();
    (0..4).for_each(|n| _ = send(&mut t, 0, n));
    t.controller = throttle("timely,t-low=0,t-high=3600s,segment=4000,initial=0.5").controller;
    t.set_rate(Time(8_000));
    t.on_deadline(Time(12_000));
    assert!(!t.is_open() && t.next_deadline() == Time(16_000));
    assert!(t.allows(Time(16_000)));
    // Not the application's fault; and the next one has the new rate, and the tokens earned by the wait.
    (4..8).for_each(|n| _ = send(&mut t, 16_000, n));
    assert!(t.busy);
    assert_eq!(t.next_deadline(), Time(20_000));
}

#[test]
fn a_segment_leaves_whole_and_the_next_when_it_is_paid_for() {
    let mut t = quarter();
    assert_eq!(t.pacer.rate(), 2 * GBIT);
    for n in 0..4 {
        assert!(t.allows(Time(u64::from(n) * 1_000)), "{n}");
        send(&mut t, u64::from(n) * 1_000, n);
    }
    // 4000 bytes take 16 µs from 0 on, whenever they left.
    assert!(!t.is_open());
    assert_eq!(t.next_deadline(), Time(16_000));
    t.on_deadline(Time(15_999));
    assert!(!t.is_open() && !t.allows(Time(15_999)));
    assert!(t.allows(Time(16_000)));
    // A message of one packet is a segment: 1000 bytes are 4 µs.
    t.on_send(Time(16_000), psn(4), true, MTU, MTU, true);
    assert_eq!(t.next_deadline(), Time(20_000));
    t.on_deadline(Time(20_000));
    assert!(t.is_open());
    assert_eq!(t.next_deadline(), Time::NEVER);
}

#[test]
fn a_segment_that_leaves_late_makes_up_for_it() {
    let mut t = quarter();
    let segment = |t: &mut Throttle, at: u64, n: u32| {
        assert!(t.allows(Time(at)));
        (n..n + 4).for_each(|n| assert!(send(t, at, n) == (n % 4 == 3)));
        t.next_deadline().0
    };
    assert_eq!(segment(&mut t, 0, 0), 16_000);
    assert_eq!(segment(&mut t, 21_000, 4), 32_000);
    assert_eq!(segment(&mut t, 32_000, 8), 48_000);
    // By half a segment at most, and the nanosecond that the bucket has above that.
    assert_eq!(segment(&mut t, 1_000_000, 12), 1_007_999);
}

#[test]
fn packets_of_a_segment_leave_at_a_rate_of_their_own() {
    // Segments of 4000 bytes at 2 Gbit/s, 16 µs; their packets at 4 Gbit/s, 2 µs.
    let mut t = throttle("timely,t-low=0,t-high=3600s,segment=4000,initial=0.25,pacing=4G");
    t.pacer.spend(Time::ZERO, 2_000);
    for n in 0..3 {
        let at = Time(2_000 * u64::from(n));
        assert!(t.allows(at), "{n}");
        assert!(!send(&mut t, at.0, n));
        assert_eq!((t.is_open(), t.next_deadline()), (false, Time(2_000 * u64::from(n + 1))));
        assert!(!t.allows(Time(at.0 + 1_999)));
    }
    // A late packet does not affect the next one's time, here that of the next segment.
    assert!(send(&mut t, 7_500, 3));
    assert_eq!(t.next_deadline(), Time(16_000));
    // Its round trip counts from its departure, minus its serialization delay: the pacer's delay is not included.
    assert_eq!(samples(&mut t, 20_000, 4, None), [11_500]);
    // If the rate is higher, segments follow each other at the pacing.
    let mut t = throttle("timely,t-low=0,t-high=3600s,segment=4000,pacing=4G");
    (0..4).for_each(|n| assert!(send(&mut t, 2_000 * u64::from(n), n) == (n == 3)));
    assert_eq!(t.next_deadline(), Time(8_000));
    // The first packet of a late segment makes up for nothing.
    send(&mut t, 9_000, 4);
    assert_eq!(t.next_deadline(), Time(11_000));
    // The line rate means no pacing.
    let mut t = throttle("timely,t-low=0,t-high=3600s,segment=4000,pacing=8G");
    send(&mut t, 0, 0);
    assert!(t.is_open());
}

#[test]
fn what_is_sent_again_is_paid_for_packet_by_packet() {
    let mut t = quarter();
    send(&mut t, 0, 0);
    send(&mut t, 1_000, 1);
    assert!(t.is_open(), "in a burst");
    again(&mut t, 2_000, 0);
    assert_eq!(t.next_deadline(), Time(12_000));
    assert!(t.allows(Time(12_000)));
    again(&mut t, 12_000, 1);
    assert_eq!(t.next_deadline(), Time(16_000));
}

#[test]
fn a_rate_without_segments_has_a_bucket() {
    // DCQCN at 4 Gbit/s after one notification (α = 1): 2 ns per byte, and 8192 bytes at once.
    let mut t = throttle("dcqcn");
    assert_eq!(t.pacer.rate(), 0);
    t.on_cnp(Time(0), &Cnp::default());
    assert_eq!(t.pacer.rate(), 4 * GBIT);
    for n in 0..7 {
        assert!(t.allows(Time(0)), "{n}");
        send(&mut t, 0, n);
    }
    // 192 bytes are left after the eighth; 808 more take 1616 ns.
    assert!(t.is_open());
    send(&mut t, 0, 7);
    assert_eq!(t.next_deadline(), Time(1_616));
    // Another, α still being 1.
    t.on_cnp(Time(616), &Cnp::default());
    assert_eq!(t.pacer.rate(), 2 * GBIT);
    // 308 bytes have been earned; the other 500 take 4 ns each.
    assert_eq!(t.next_deadline(), Time(616 + 2_000));
}

#[test]
fn reads_that_will_be_asked_again_are_owed_no_more() {
    let mut t = quarter();
    // 1 MB is 4 ms.
    t.on_send(Time(0), psn(0), true, 0, 1_000_000, true);
    assert_eq!((t.next_deadline(), t.due), (Time(4 * MS), Time(4 * MS)));
    t.cancel_debt(Time(1_000));
    assert!(t.is_open());
    assert_eq!(t.due, Time(1_000));
}

#[test]
fn windows_are_the_controllers_and_ask_for_acknowledgements() {
    // A bandwidth-delay product of 10,000 bytes: ten packets.
    let mut t = throttle("aimd");
    assert_eq!((t.window(), t.pacer.rate()), (10, 0));
    assert!(send(&mut t, 0, 0));
    assert!(t.is_open());
    t.on_loss(Time(0));
    assert_eq!(t.window(), 5);
    t.on_timeout(Time(0));
    assert_eq!(t.window(), 1);
    assert_eq!(measuring().window(), u32::MAX);
}

#[test]
fn acknowledgements_are_asked_for_when_packets_are_far_apart() {
    // Sixteen at 8 Gbit/s less than a round trip of 10 µs apart may share one: gaps of 625 ns.
    let mut t = throttle("dcqcn");
    assert!(!send(&mut t, 0, 0));
    t.on_cnp(Time(0), &Cnp::default());
    let requested: Vec<bool> = (1..9).map(|n| send(&mut t, 0, n)).collect();
    assert_eq!(requested, [false, false, false, false, false, false, false, true]);
}
