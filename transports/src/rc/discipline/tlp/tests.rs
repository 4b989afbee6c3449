//! Probes on a stream alone: when one is due, which packet it is, and how its answer is evaluated.

use super::*;
use crate::recovery::Recovery;
use crate::time::US;

const SRTT: u64 = 20 * US;

/// Returns a stream of packets from 0 on of which `sent` were sent at time 0.
fn stream(nack_threshold: u32, sent: u32) -> (Tlp, Sender) {
    let mut tlp = Tlp::with(10 * US, 80 * US);
    let mut stream = Sender::new(Recovery::Selective, Psn::new(0), 64, nack_threshold);
    tlp.begin(Psn::new(0));
    for _ in 0..sent {
        send(&mut tlp, &mut stream, 0);
    }
    (tlp, stream)
}

fn send(tlp: &mut Tlp, stream: &mut Sender, at: u64) {
    assert!(stream.tx_free(Time::ZERO, true).is_some());
    tlp.sent(Time(at), true, stream, SRTT);
}

/// Acknowledges everything before `cumulative`, and `sack`.
fn ack(tlp: &mut Tlp, stream: &mut Sender, at: u64, cumulative: u32, sack: Option<u32>) {
    let (before, sack) = (stream.acked(), sack.map(|last| Sack { last: Psn::new(last), run: 0 }));
    assert!(stream.receive_acks(Time::ZERO, Psn::new(cumulative), sack));
    tlp.acknowledged(Time(at), stream, before.before(stream.acked()), sack, SRTT);
}

/// Runs the timer; returns when the probe was due, if there is one.
fn wait(tlp: &mut Tlp, stream: &Sender, round_trips: u64) -> Option<u64> {
    while tlp.deadline != Time::NEVER {
        let at = tlp.deadline;
        if tlp.expire(at, stream, SRTT, round_trips) {
            return tlp.due.then_some(at.0);
        }
    }
    None
}

#[test]
fn a_probe_is_due_two_round_trips_after_the_last_sign_of_life() {
    assert_eq!(Tlp::with(10, 80).timeout(7), 14);
    assert_eq!(Tlp::with(10, 80).timeout(4), 10);
    // Before the first measurement.
    assert_eq!(Tlp::with(10, 80).timeout(0), 160);
    let (mut tlp, mut stream) = stream(1, 3);
    send(&mut tlp, &mut stream, 5_000);
    assert_eq!(wait(&mut tlp.clone(), &stream, 1), Some(5_000 + 2 * SRTT));
    // Checked once before, the timer is postponed.
    assert_eq!(tlp.deadline, Time(2 * SRTT));
    ack(&mut tlp, &mut stream, 9_000, 1, None);
    assert_eq!(wait(&mut tlp.clone(), &stream, 1), Some(9_000 + 2 * SRTT));
    // A repeated acknowledgement does not end the silence.
    ack(&mut tlp, &mut stream, 30_000, 1, None);
    assert_eq!(wait(&mut tlp.clone(), &stream, 1), Some(9_000 + 2 * SRTT));
    // Everything has arrived.
    ack(&mut tlp, &mut stream, 40_000, 4, None);
    assert_eq!((wait(&mut tlp, &stream, 1), tlp.due), (None, false));
}

#[test]
fn it_is_the_last_packet_again_and_only_once() {
    let (mut tlp, mut stream) = stream(1, 3);
    assert!(wait(&mut tlp, &stream, 1).is_some());
    assert_eq!(tlp.next(Time::ZERO, &mut stream, false), Some(Psn::new(2)));
    assert_eq!((tlp.due, tlp.next(Time::ZERO, &mut stream, false)), (false, None));
    tlp.sent(Time(50_000), false, &stream, SRTT);
    assert_eq!((wait(&mut tlp, &stream, 2), stream.high()), (None, Psn::new(3)));
}

#[test]
fn a_new_packet_goes_first_whatever_the_window() {
    let (mut tlp, mut stream) = stream(1, 3);
    stream.set_window(3);
    assert_eq!(stream.tx_free(Time::ZERO, true), None);
    assert!(wait(&mut tlp, &stream, 1).is_some());
    assert_eq!(tlp.next(Time::ZERO, &mut stream, true), Some(Psn::new(3)));
    // The cap holds for probes, too.
    let (mut tlp, mut full) = self::stream(1, 64);
    assert!(wait(&mut tlp, &full, 1).is_some());
    assert_eq!(tlp.next(Time::ZERO, &mut full, true), Some(Psn::new(63)));
}

#[test]
fn a_round_trip_has_to_be_measured_between_two_probes() {
    let (mut tlp, mut stream) = stream(1, 3);
    assert!(wait(&mut tlp, &stream, 7).is_some());
    assert_eq!(tlp.next(Time::ZERO, &mut stream, true), Some(Psn::new(3)));
    ack(&mut tlp, &mut stream, 60_000, 4, None);
    send(&mut tlp, &mut stream, 70_000);
    assert_eq!(wait(&mut tlp.clone(), &stream, 7), None);
    assert_eq!(wait(&mut tlp, &stream, 8), Some(70_000 + 2 * SRTT));
}

#[test]
fn there_is_none_during_recovery() {
    let (mut tlp, mut stream) = stream(1, 5);
    ack(&mut tlp, &mut stream, 1_000, 1, None);
    ack(&mut tlp, &mut stream, 1_000, 1, Some(2));
    assert!(stream.is_recovering());
    assert_eq!(wait(&mut tlp, &stream, 1), None);
    assert_eq!(stream.tx_free(Time::ZERO, false), Some(Psn::new(1)));
    ack(&mut tlp, &mut stream, 2_000, 3, None);
    assert_eq!(wait(&mut tlp, &stream, 1), None);
    // After a timeout, not before everything sent before it is acknowledged.
    let (mut tlp, mut stream) = self::stream(1, 5);
    stream.timeout(false, 0);
    tlp.on_timeout(&stream);
    assert_eq!(stream.tx_free(Time::ZERO, false), Some(Psn::new(0)));
    send(&mut tlp, &mut stream, 3_000);
    ack(&mut tlp, &mut stream, 4_000, 4, None);
    assert_eq!(wait(&mut tlp.clone(), &stream, 1), None);
    ack(&mut tlp, &mut stream, 5_000, 5, None);
    assert_eq!(wait(&mut tlp, &stream, 1), Some(5_000 + 2 * SRTT));
}

#[test]
fn its_answer_starts_recovery_however_many_nacks_that_takes_otherwise() {
    let (mut tlp, mut stream) = stream(3, 4);
    ack(&mut tlp, &mut stream, 1_000, 1, None);
    assert!(wait(&mut tlp, &stream, 1).is_some());
    assert_eq!(tlp.next(Time::ZERO, &mut stream, false), Some(Psn::new(3)));
    assert_eq!(stream.losses(), 0);
    ack(&mut tlp, &mut stream, 60_000, 1, Some(3));
    assert_eq!((stream.losses(), stream.is_recovering()), (1, true));
    assert_eq!([(); 3].map(|()| stream.tx_free(Time::ZERO, false).map(Psn::get)), [Some(1), Some(2), None]);
}

/// RFC 8985 §7.4.
#[test]
fn what_it_repaired_alone_is_a_loss_unless_both_copies_arrive() {
    let probed = || {
        let (mut tlp, mut stream) = stream(1, 3);
        ack(&mut tlp, &mut stream, 1_000, 2, None);
        assert!(wait(&mut tlp, &stream, 1).is_some());
        assert_eq!(tlp.next(Time::ZERO, &mut stream, false), Some(Psn::new(2)));
        ack(&mut tlp, &mut stream, 60_000, 3, None);
        (tlp, stream)
    };
    let (mut tlp, mut stream) = probed();
    send(&mut tlp, &mut stream, 70_000);
    assert_eq!((stream.losses(), tlp.deadline), (0, Time::NEVER));
    ack(&mut tlp, &mut stream, 90_000, 4, None);
    assert_eq!((stream.losses(), tlp.probe), (1, None));

    let (mut tlp, mut stream) = probed();
    ack(&mut tlp, &mut stream, 61_000, 3, None);
    assert_eq!(tlp.probe, None);
    send(&mut tlp, &mut stream, 70_000);
    ack(&mut tlp, &mut stream, 90_000, 4, None);
    assert_eq!(stream.losses(), 0);

    // New data is acknowledged once.
    let (mut tlp, mut stream) = self::stream(1, 3);
    assert!(wait(&mut tlp, &stream, 1).is_some());
    assert_eq!(tlp.next(Time::ZERO, &mut stream, true), Some(Psn::new(3)));
    ack(&mut tlp, &mut stream, 60_000, 4, None);
    send(&mut tlp, &mut stream, 70_000);
    ack(&mut tlp, &mut stream, 90_000, 5, None);
    assert_eq!(stream.losses(), 0);
}
