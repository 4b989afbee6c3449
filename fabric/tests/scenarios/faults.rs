//! What befalls frames, links and hosts of a lab on demand.

use irnic_fabric::Priorities;
use irnic_fabric::lab::{Action, Arrival, Lab, Plan, Rule, Sent, What};
use irnic_fabric::network::NetworkConfig;
use irnic_transports::Psn;
use irnic_transports::wire::{Bth, Headers, Opcode};

use crate::kit::*;

/// What reaches a host.
#[derive(Debug, PartialEq)]
enum Received {
    /// The fill of a frame, and whether it is as it was sent.
    Frame(u8, bool),
    Pause(Priorities),
    Link(bool),
}

/// Two hosts, 40 Gbit/s, 1 µs each link: 250 ns for 1,250 bytes.
fn lab() -> Lab {
    Lab::new(NetworkConfig::new(star(&[40 * G; 2]), deep()[1].clone()), false).unwrap()
}

fn frame(fill: u8) -> Vec<u8> {
    let mut frame = vec![fill; 1_250 - Lab::ENCAPSULATION as usize];
    Headers::new(Bth::new(Opcode::UcSendOnly, 77, Psn::new(5))).emit(&mut frame);
    frame
}

/// Sends from host 0 to host 1 at 1 µs, 2 µs and so on.
fn send(lab: &mut Lab, count: u8) {
    for n in 1..=count {
        let start = 1_000 * u64::from(n);
        lab.send(0, &Sent { start, dst: 1, udp_src: 0xc000, traffic_class: 0, frame: &frame(n), telemetry: None });
    }
}

fn received(lab: &mut Lab, until: u64) -> Vec<(u32, u64, Received)> {
    let mut all = Vec::new();
    lab.run_until(until, |Arrival { host, at, what }| {
        let what = match what {
            What::Pause(paused) => Received::Pause(paused),
            What::Link { up } => Received::Link(up),
            What::Frame { frame: bytes, corrupted, .. } => {
                assert_eq!(corrupted, bytes != frame(bytes[20]), "it is what it is said to be");
                Received::Frame(bytes[20], !corrupted)
            }
        };
        all.push((host, at, what));
    });
    all
}

#[test]
fn frames_are_lost_corrupted_doubled_and_delayed() {
    // A frame that is sent at 1,000 arrives at 3,500.
    let good = |n: u8| (1, 2_500 + 1_000 * u64::from(n), Received::Frame(n, true));
    let bad = (1, 4_500, Received::Frame(2, false));
    let (again, late) = ((1, 4_750, Received::Frame(2, true)), (1, 104_500, Received::Frame(2, true)));
    for (action, expected, lost) in [
        (Action::Drop, vec![good(1), good(3)], 1),
        (Action::Corrupt, vec![good(1), bad, good(3)], 0),
        (Action::Duplicate, vec![good(1), good(2), again, good(3)], 0),
        (Action::Delay(100_000), vec![good(1), good(3), late], 0),
    ] {
        let mut lab = lab();
        let rule = Rule { nth: 2, count: 1, ..Rule::new(action) };
        assert_eq!(lab.add_rule(rule), 1);
        send(&mut lab, 3);
        assert_eq!(received(&mut lab, 200_000), expected, "{action:?}");
        let placed = lab.rules()[0];
        assert_eq!((placed.rule, placed.matches, placed.applied), (rule, 3, 1));
        assert_eq!((lab.network().totals().lost_packets, lab.late().frames), (lost, 0), "{action:?}");
        lab.network().check().unwrap();
    }
}

#[test]
fn a_rule_that_is_taken_away_does_nothing_more() {
    let mut lab = lab();
    let id = lab.add_rule(Rule::new(Action::Corrupt));
    send(&mut lab, 1);
    assert_eq!((lab.remove_rules(Some(9)), lab.remove_rules(Some(id)), lab.rules().len()), (0, 1, 0));
    assert_eq!(received(&mut lab, 4_000), [(1, 3_500, Received::Frame(1, false))], "it was under way");
    // The same packet's number.
    let bytes = frame(9);
    lab.send(0, &Sent { start: 5_000, dst: 1, udp_src: 0xc000, traffic_class: 0, frame: &bytes, telemetry: None });
    assert_eq!(received(&mut lab, 10_000), [(1, 7_500, Received::Frame(9, true))]);
}

#[test]
fn a_link_that_fails_for_a_while_works_again() {
    let mut lab = lab();
    assert_eq!(lab.plan(2_500, Plan::Down { link: 0 }, Some(2_000)), 2_500);
    assert_eq!(lab.next_event(), 2_500);
    // The frame of 2,000 is on the link, that of 3,000 finds none, that of 5,000 goes after its return.
    let mut all = Vec::new();
    for (n, start) in (1..).zip([1_000, 2_000, 3_000, 5_000]) {
        all.append(&mut received(&mut lab, start));
        lab.send(0, &Sent { start, dst: 1, udp_src: 0xc000, traffic_class: 0, frame: &frame(n), telemetry: None });
    }
    all.append(&mut received(&mut lab, 20_000));
    let heard: Vec<_> = all.extract_if(.., |(.., received)| matches!(received, Received::Link(_))).collect();
    assert_eq!(heard, [(0, 2_500, Received::Link(false)), (0, 4_500, Received::Link(true))]);
    all.retain(|(host, ..)| *host == 1);
    assert_eq!(all, [(1, 3_500, Received::Frame(1, true)), (1, 7_500, Received::Frame(4, true))]);
    assert_eq!(lab.network().totals().lost_packets, 2);
}

#[test]
fn what_is_told_later_replaces_what_was_planned() {
    let mut lab = lab();
    lab.plan(1_000, Plan::Down { link: 0 }, Some(5_000));
    lab.plan(1_000, Plan::Pause { host: 0, priority: 0 }, None);
    received(&mut lab, 2_000);
    lab.plan(2_000, Plan::Down { link: 0 }, Some(50_000));
    assert_eq!(lab.next_event(), 2_000);
    received(&mut lab, 10_000);
    assert_eq!(lab.next_event(), 52_000, "not 6,000");
    assert_eq!(lab.plan(0, Plan::Up { link: 0 }, None), 10_000, "the past is over");
    received(&mut lab, 10_000);
    assert_eq!(lab.next_event(), u64::MAX);
}

#[test]
fn a_host_pauses_for_a_while_and_other_notices_do_not_undo_it() {
    let mut lab = lab();
    lab.plan(1_000, Plan::Pause { host: 1, priority: 3 }, Some(2_000));
    lab.plan(1_500, Plan::Pause { host: 1, priority: 5 }, None);
    // The network has its host pause nothing: its link fails.
    lab.plan(2_000, Plan::Down { link: 1 }, None);
    let (three, five) = (Priorities::of(3), Priorities::of(5));
    let pause = |at, paused| (1, at, Received::Pause(paused));
    let expected = [
        pause(1_000, three),
        pause(1_500, three.and(five)),
        (1, 2_000, Received::Link(false)),
        pause(2_000, three.and(five)),
        pause(3_000, five),
    ];
    assert_eq!(received(&mut lab, 9_000), expected);
    lab.plan(9_000, Plan::Resume { host: 1, priority: 5 }, None);
    assert_eq!(received(&mut lab, 9_000), [pause(9_000, Priorities::NONE)]);
}
