use std::collections::{BTreeSet, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::recovery::{Class, Receiver};

const FIRST: u32 = 0xff_fff0;

fn psn(n: u32) -> Psn {
    Psn::new(FIRST).plus(n)
}

fn stream(window: u32) -> Pulled {
    Pulled::new(psn(0), window, 256, 0).unwrap()
}

/// Sends everything that may be sent now; returns the positions in the stream.
fn send(s: &mut Pulled, more: u32) -> Vec<u32> {
    let mut sent = Vec::new();
    while let Some(turn) = s.tx_free(Time(0), s.high().before(psn(more)), 0) {
        sent.push(turn.psn.distance(psn(0)) as u32);
    }
    sent
}

fn hear(s: &mut Pulled, cumulative: u32, answer: Option<(u32, Answer)>, pull: Option<u32>) {
    let answer = answer.map(|(n, answer)| (psn(n), answer));
    s.receive(&Feedback { cumulative: psn(cumulative), answer, pull: pull.map(Psn::new), owes_none: false }).unwrap();
}

const ARRIVED: Answer = Answer::Arrived { again: false };

#[test]
fn the_first_window_goes_unasked_and_then_a_packet_for_each_pull() {
    let mut s = stream(3);
    assert_eq!(send(&mut s, 100), [0, 1, 2]);
    hear(&mut s, 1, Some((0, ARRIVED)), None);
    assert_eq!(send(&mut s, 100), [] as [u32; 0], "an answer alone lets nothing go");
    hear(&mut s, 1, None, Some(1));
    assert_eq!(send(&mut s, 100), [3]);
    // Answer and pull in one; then a pull that shows that another was lost.
    hear(&mut s, 2, Some((1, ARRIVED)), Some(2));
    assert_eq!(send(&mut s, 100), [4]);
    hear(&mut s, 3, Some((2, ARRIVED)), None);
    hear(&mut s, 4, Some((3, ARRIVED)), None);
    hear(&mut s, 4, None, Some(4));
    hear(&mut s, 4, None, Some(3));
    assert_eq!(send(&mut s, 100), [5, 6]);
    assert_eq!(s.in_use(), 3);
}

#[test]
fn what_was_trimmed_goes_before_what_is_new_and_not_before_it_is_pulled() {
    let mut s = stream(4);
    assert_eq!(send(&mut s, 100), [0, 1, 2, 3]);
    hear(&mut s, 0, Some((2, Answer::Trimmed)), None);
    hear(&mut s, 0, Some((1, Answer::Trimmed)), None);
    assert_eq!(send(&mut s, 100), [] as [u32; 0]);
    hear(&mut s, 0, None, Some(2));
    assert_eq!(send(&mut s, 100), [2, 1]);
    hear(&mut s, 1, Some((0, ARRIVED)), Some(3));
    assert_eq!(send(&mut s, 100), [4]);
    // A forged or late NACK of a packet that has arrived has no effect.
    hear(&mut s, 1, Some((0, Answer::Trimmed)), None);
    assert_eq!((send(&mut s, 100), s.in_use()), (vec![], 4));
}

#[test]
fn a_pull_that_overtook_its_answer_is_kept_until_there_is_something_to_send() {
    let mut s = stream(2);
    assert_eq!(send(&mut s, 2), [0, 1]);
    hear(&mut s, 0, None, Some(1));
    assert_eq!((send(&mut s, 2), s.in_use()), (vec![], 2));
    hear(&mut s, 0, Some((0, Answer::Trimmed)), None);
    assert_eq!(send(&mut s, 2), [0]);
    assert_eq!(s.in_use(), 2);
}

#[test]
fn one_that_was_sent_back_waits_for_a_pull_unless_none_will_come() {
    let mut s = stream(3);
    assert_eq!(send(&mut s, 100), [0, 1, 2]);
    assert_eq!(s.returned(psn(1)), Some(0));
    assert_eq!(s.returned(psn(1)), None, "once");
    assert_eq!(send(&mut s, 100), [] as [u32; 0], "0 and 2 may bring pulls");
    s.returned(psn(0));
    assert_eq!(send(&mut s, 100), [] as [u32; 0]);
    s.returned(psn(2));
    // All of them were returned: one is sent, and no more.
    assert_eq!(send(&mut s, 100), [2]);
    hear(&mut s, 0, Some((2, ARRIVED)), Some(1));
    assert_eq!(send(&mut s, 100), [0]);
    hear(&mut s, 1, Some((0, ARRIVED)), Some(2));
    assert_eq!(send(&mut s, 100), [1]);
    hear(&mut s, 3, Some((1, ARRIVED)), Some(3));
    // Nothing is left of it. New packets are sent as pulled.
    assert_eq!(send(&mut s, 4), [3]);
    s.mark_last();
    hear(&mut s, 4, Some((3, ARRIVED)), None);
    // Everything has arrived: the window is whole again.
    assert_eq!(send(&mut s, 100), [4, 5, 6]);
}

#[test]
fn one_that_was_sent_back_goes_at_once_where_most_arrive() {
    let mut s = stream(5);
    assert_eq!(send(&mut s, 100), [0, 1, 2, 3, 4]);
    for n in 0..3 {
        hear(&mut s, n + 1, Some((n, ARRIVED)), None);
    }
    s.returned(psn(4));
    assert_eq!(send(&mut s, 100), [4]);
    assert_eq!(s.in_use(), 5);
}

/// Of a window most of which was returned, one slot is left. When its packets have arrived, the rest must not follow at
/// once as before: it was too much for the network.
#[test]
fn a_window_that_was_sent_back_does_not_go_at_once_a_second_time() {
    let mut s = stream(8);
    assert_eq!(send(&mut s, 100).len(), 8);
    (1..8).for_each(|n| assert!(s.returned(psn(n)).is_some()));
    hear(&mut s, 0, Some((0, Answer::Trimmed)), None);
    let mut sent = Vec::new();
    for pull in 1..=12 {
        hear(&mut s, 0, None, Some(pull));
        let now = send(&mut s, 100);
        assert_eq!(now.len(), 1, "pull {pull}");
        let arrived = now[0];
        sent.extend(now);
        s.receive(&Feedback {
            cumulative: s.acked(),
            answer: Some((psn(arrived), ARRIVED)),
            pull: None,
            owes_none: false,
        })
        .unwrap();
    }
    sent.sort_unstable();
    assert_eq!((sent, s.in_use()), ((0..12).collect(), 8));
    // Pulls that arrive together with the answers to their packets: there is room. The slots are used again, one by
    // one.
    let mut flying = 0;
    let mut next = 12;
    for pull in 13..=40 {
        if flying > 0 {
            let answer = Some((psn(next), ARRIVED));
            s.receive(&Feedback { cumulative: psn(next + 1), answer, pull: Some(Psn::new(pull)), owes_none: true })
                .unwrap();
            next += 1;
            flying -= 1;
        } else {
            hear(&mut s, 12, None, Some(pull));
        }
        flying += send(&mut s, 1_000).len();
        assert!(flying <= 8 && s.in_use() == 8, "{flying} {}", s.in_use());
    }
    assert_eq!(flying, 8);
}

#[test]
fn what_has_no_answer_goes_again_unasked_by_another_way() {
    let mut s = Pulled::new(psn(0), 3, 64, 1_000 * US).unwrap();
    assert_eq!(s.next_deadline(), Time::NEVER);
    for path in 5..8 {
        assert!(s.tx_free(Time(u64::from(path) * 100 * US), true, path).unwrap().fresh);
    }
    hear(&mut s, 1, Some((0, ARRIVED)), None);
    let at = s.next_deadline();
    assert_eq!(at, Time(1_500 * US));
    assert_eq!(s.on_deadline(at), 0);
    let at = s.next_deadline();
    assert_eq!((at, s.on_deadline(at)), (Time(1_600 * US), 1));
    let turn = s.tx_free(at, true, 9).unwrap();
    assert_eq!(turn, Turn { psn: psn(1), fresh: false, lost_on: Some(6) });
    assert_eq!(s.tx_free(at, true, 9), None);
    assert_eq!((s.next_deadline(), s.in_use()), (Time(1_700 * US), 3));
}

#[test]
fn what_comes_after_the_last_goes_unasked() {
    let mut s = stream(2);
    assert_eq!(send(&mut s, 2), [0, 1]);
    s.mark_last();
    assert!(s.is_last(psn(1)) && !s.is_last(psn(0)));
    hear(&mut s, 1, Some((0, ARRIVED)), None);
    assert_eq!(send(&mut s, 4), [] as [u32; 0]);
    hear(&mut s, 2, Some((1, ARRIVED)), None);
    assert_eq!(send(&mut s, 4), [2, 3], "the receiver owes no pull any more");
}

#[test]
fn an_answer_stands_for_those_that_were_lost_before_it() {
    let mut s = stream(4);
    send(&mut s, 100);
    hear(&mut s, 4, Some((3, ARRIVED)), Some(4));
    assert_eq!((send(&mut s, 100), s.acked()), (vec![4, 5, 6, 7], psn(4)));
}

#[test]
fn feedback_that_cannot_be_is_refused() {
    let mut s = stream(4);
    send(&mut s, 100);
    let before = format!("{s:?}");
    for feedback in [
        Feedback { cumulative: psn(5), answer: None, pull: None, owes_none: false },
        Feedback { cumulative: psn(0), answer: Some((psn(4), Answer::Trimmed)), pull: None, owes_none: false },
        Feedback { cumulative: psn(0), answer: None, pull: Some(Psn::new(257)), owes_none: false },
        Feedback { cumulative: psn(0).minus(1 << 20), answer: None, pull: None, owes_none: false },
    ] {
        assert_eq!(s.receive(&feedback), Err(Unexpected), "{feedback:?}");
    }
    assert_eq!((s.returned(psn(4)), s.returned(psn(0).minus(1))), (None, None));
    assert_eq!(format!("{s:?}"), before);
}

#[test]
fn after_an_error_everything_that_has_not_arrived_goes_again() {
    let mut s = stream(3);
    send(&mut s, 100);
    hear(&mut s, 0, Some((1, ARRIVED)), None);
    s.go_back();
    assert_eq!(send(&mut s, 100), [0, 2]);
    assert_eq!(s.in_use(), 3);
}

/// A network that trims, returns, loses, repeats and reorders at random, and a receiver that owes a pull for each first
/// arrival.
struct Net {
    random: u32,
    forward: Vec<(u32, bool)>,
    back: VecDeque<Feedback>,
    returned: Vec<Psn>,
    receiver: Receiver,
    got: BTreeSet<u32>,
    owed: u32,
    pulls: u32,
    made: u32,
}

impl Net {
    fn below(&mut self, limit: usize) -> usize {
        self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((u64::from(self.random >> 8) * limit as u64) >> 24) as usize
    }

    fn answer(&mut self, n: u32, whole: bool, last: Option<u32>) {
        let had = self.got.contains(&n);
        let answer = match (had, whole) {
            (true, _) => Answer::Arrived { again: true },
            (false, true) => {
                self.got.insert(n);
                self.receiver.receive_data(psn(n), Class::Middle);
                ARRIVED
            }
            (false, false) => Answer::Trimmed,
        };
        if !had {
            self.owed += 1;
            self.made += 1;
        }
        if last.is_some_and(|last| !self.receiver.expected().before(psn(last))) {
            self.owed = 0;
        }
        self.back.push_back(Feedback {
            cumulative: self.receiver.expected(),
            answer: Some((psn(n), answer)),
            pull: None,
            owes_none: false,
        });
    }

    /// Sends a pull that is owed, or with `again` the latest.
    fn pull(&mut self, again: bool) {
        if self.owed > 0 || again {
            self.pulls += u32::from(self.owed > 0);
            self.owed = self.owed.saturating_sub(1);
            let pull = Some(Psn::new(self.pulls));
            self.back.push_back(Feedback {
                cumulative: self.receiver.expected(),
                answer: None,
                pull,
                owes_none: self.owed == 0,
            });
        }
    }
}

fn brief(s: &Pulled) -> String {
    let Pulled { next, acked, flying, owed, credits, held, waiting, overdue_count, .. } = s;
    format!(
        "next {next}, acked {acked}, {flying} flying, {owed} owed, {credits} credits, {held} held, {waiting} lost, \
         {overdue_count} overdue"
    )
}

fn go(packets: u32, window: u32, seed: u32, trim: usize, back: usize, lose: usize) -> (u32, u32) {
    let rto = if lose > 0 { 1_000 * US } else { 0 };
    let mut s = Pulled::new(psn(0), window, 1024, rto).unwrap();
    let receiver = Receiver::new(psn(0), Psn::new(0), 1024);
    let (got, returned) = (BTreeSet::new(), Vec::new());
    let mut net = Net {
        random: seed,
        forward: Vec::new(),
        back: VecDeque::new(),
        returned,
        receiver,
        got,
        owed: 0,
        pulls: 0,
        made: 0,
    };
    let (mut now, mut sent, mut timeouts, mut answers) = (Time(0), 0, 0, 0);
    for step in 0.. {
        assert!(step < 200_000, "stalled: {}, {} pulls owed", brief(&s), net.owed);
        if s.acked() == psn(packets) {
            break;
        }
        now += 2 * US;
        let more = s.high().before(psn(packets));
        assert_eq!(s.wants_tx(more), s.clone().tx_free(now, more, 0).is_some());
        if let Some(turn) = s.tx_free(now, more, 0) {
            sent += 1;
            if turn.fresh && s.high() == psn(packets) {
                s.mark_last();
            }
            let fate = net.below(100);
            let n = turn.psn.distance(psn(0)) as u32;
            if fate < trim {
                net.forward.push((n, false));
            } else if fate < trim + back {
                net.returned.push(turn.psn);
            } else if fate >= trim + back + lose {
                net.forward.push((n, true));
            }
        }
        assert!(s.in_use() <= window as i32 && s.flying() <= window, "{}", brief(&s));
        let last = s.is_last(psn(packets - 1)).then_some(packets);
        for _ in 0..net.below(3) {
            if !net.forward.is_empty() {
                let at = net.below(net.forward.len());
                let (n, whole) = net.forward.swap_remove(at);
                net.answer(n, whole, last);
                answers += 1;
            }
        }
        let idle = net.forward.is_empty() && net.back.is_empty() && net.owed == 0;
        if lose > 0 && idle && step % 500 == 0 {
            net.pull(true);
        }
        if net.below(2) == 0 {
            net.pull(false);
        }
        if net.below(3) == 0 && !net.returned.is_empty() {
            let at = net.below(net.returned.len());
            s.returned(net.returned.swap_remove(at));
        }
        for _ in 0..net.below(3) {
            if !net.back.is_empty() {
                let at = net.below(net.back.len());
                let feedback = net.back.remove(at).unwrap();
                let lost = net.below(100) < lose;
                // Sometimes twice.
                for _ in 0..if lost { 0 } else { 1 + usize::from(net.below(10) == 0) } {
                    let was = brief(&s);
                    let heard = s.receive(&feedback);
                    assert!(heard.is_ok(), "{feedback:?}: {was}, {:?}", s.last_pull);
                    assert!(s.in_use() <= window as i32 && s.flying() <= window, "{}", brief(&s));
                }
            }
        }
        if now >= s.next_deadline() {
            timeouts += s.on_deadline(now);
        }
    }
    assert_eq!(net.got.len() as u32, packets);
    if lose == 0 && back == 0 {
        assert_eq!(net.made, answers, "a pull for each arrival, all of which are first ones");
        assert_eq!(sent, answers, "nothing goes twice but what was trimmed");
    }
    (sent, timeouts)
}

proptest! {
    #[test]
    fn streams_end_without_timers_however_packets_are_trimmed_and_sent_back(
        packets in 1u32..300, window in 1u32..40, seed: u32, trim in 0usize..60, back in 0usize..35
    ) {
        go(packets, window, seed, trim, back, 0);
    }

    #[test]
    fn streams_end_however_much_is_lost(
        packets in 1u32..200, window in 1u32..40, seed: u32, trim in 0usize..40, back in 0usize..20, lose in 1usize..20
    ) {
        go(packets, window, seed, trim, back, lose);
    }
}

#[test]
fn a_timer_is_needed_for_losses_only() {
    assert_eq!(go(200, 20, 1, 0, 0, 0), (200, 0));
    assert!(go(200, 20, 1, 0, 0, 10).1 > 5);
}
