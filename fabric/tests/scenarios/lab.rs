//! Hosts outside the network: their frames go in with the time at which they leave, and come out with that at which
//! they arrive.

use irnic_fabric::Priorities;
use irnic_fabric::lab::{Arrival, Lab, Late, Sent, What};
use irnic_fabric::network::{Change, LinkChange, NetworkConfig};
use irnic_fabric::switch::{Ecn, SharedBufferConfig, SwitchConfig, Thresholds, TrimmingConfig};
use irnic_transports::telemetry::{Hop, Int};
use irnic_transports::wire::{Bth, Headers, Opcode};
use irnic_transports::{Mark, Path, Psn};

use crate::kit::*;

/// A frame that is `wire` bytes long on the wire.
fn frame(wire: usize, byte: u8) -> Vec<u8> {
    let headers = Headers::new(Bth::new(Opcode::UcSendOnly, 77, Psn::new(5)));
    let mut frame = vec![byte; wire - Lab::ENCAPSULATION as usize];
    headers.emit(&mut frame);
    frame
}

fn sent(start: u64, dst: u32, frame: &[u8]) -> Sent<'_> {
    Sent { start, dst, udp_src: 0xc000, traffic_class: 0, frame, telemetry: None }
}

/// What reaches hosts until a time: host, time, and the first byte of the payload, or what is paused.
fn arrivals(lab: &mut Lab, until: u64) -> Vec<(u32, u64, Result<u8, Priorities>)> {
    let mut all = Vec::new();
    lab.run_until(until, |Arrival { host, at, what }| {
        let what = match what {
            What::Frame { frame, .. } => Ok(frame[20]),
            What::Pause(paused) => Err(paused),
            What::Link { .. } => return,
        };
        all.push((host, at, what));
    });
    all
}

/// 40 Gbit/s, 1 µs each link: 250 ns for 1,250 bytes.
fn lab(hosts: usize, switch: SwitchConfig) -> Lab {
    Lab::new(NetworkConfig::new(star(&vec![40 * G; hosts]), switch), false).unwrap()
}

#[test]
fn switches_write_on_telemetry_and_carry_it() {
    let mut lab = lab(2, deep()[1].clone());
    let bytes = frame(1_250, 1);
    assert_eq!(lab.send(0, &Sent { telemetry: Some(Int::EMPTY), ..sent(5_000, 1, &bytes) }), 5_259, "1,292 bytes");
    let bare = frame(1_250, 2);
    lab.send(0, &sent(6_000, 1, &bare));
    let mut seen = Vec::new();
    lab.run_until(20_000, |arrival| {
        if let What::Frame { telemetry, .. } = arrival.what {
            seen.push((arrival.at, telemetry.map(|int| int.hops().to_vec())));
        }
    });
    let hop = Hop { rate: 40 * G, at: 6_259, sent: 0, queued: 0 };
    assert_eq!(seen, [(7_518, Some(vec![hop])), (8_500, None)]);
}

#[test]
fn frames_take_the_time_of_their_links() {
    let mut lab = lab(3, deep()[1].clone());
    // The shortest frame takes 12.8 ns.
    assert_eq!(lab.lookahead(), 1_012);
    assert_eq!(lab.send(0, &sent(5_000, 1, &frame(1_250, 1))), 5_250);
    assert_eq!(lab.send(0, &sent(5_100, 1, &frame(1_250, 2))), 5_500, "it waits for the one before");
    assert_eq!(lab.next_event(), 6_250);
    assert_eq!(arrivals(&mut lab, 7_499), []);
    assert_eq!(arrivals(&mut lab, 9_000), [(1, 7_500, Ok(1)), (1, 7_750, Ok(2))]);
    assert_eq!((lab.now(), lab.late()), (9_000, Late::default()));
    // 2 µs ago: it should have been at the switch at 8,250.
    lab.send(2, &sent(7_000, 1, &frame(1_250, 3)));
    assert_eq!(arrivals(&mut lab, 20_000), [(1, 10_250, Ok(3))]);
    assert_eq!(lab.late(), Late { frames: 1, worst: 750 });
    lab.network().check().unwrap();
}

#[test]
fn what_goes_nowhere_is_counted() {
    let mut lab = lab(2, deep()[1].clone());
    let good = frame(100, 1);
    for (dst, frame) in [(2, &good[..]), (u32::MAX, &good), (1, &good[..10]), (1, &[0xff; 60])] {
        lab.send(0, &sent(1_000, dst, frame));
    }
    assert_eq!((lab.refused(), lab.network().totals().injected_packets), (4, 0));
}

#[test]
fn nothing_comes_too_late_though_links_become_faster() {
    let mut config = NetworkConfig::new(star(&[G; 2]), deep()[1].clone());
    assert_eq!(Lab::new(config.clone(), false).unwrap().lookahead(), 1_512);
    config.changes = vec![LinkChange { at: 10_000, link: 0, what: Change::Rate(100 * G) }];
    let mut lab = Lab::new(config, false).unwrap();
    assert_eq!(lab.lookahead(), 1_005);
    arrivals(&mut lab, 21_005);
    // The shortest frame there is, from the earliest time on.
    lab.send(0, &sent(20_000, 1, &frame(64, 1)));
    assert_eq!(lab.late(), Late::default());
}

#[test]
fn what_a_host_sends_itself_crosses_no_switch() {
    let mut lab = lab(2, deep()[1].clone());
    lab.send(1, &sent(5_000, 1, &frame(1_250, 2)));
    lab.send(0, &sent(4_000, 1, &frame(1_250, 1)));
    lab.send(1, &sent(4_900, 1, &frame(1_250, 3)));
    assert_eq!(lab.next_event(), 5_250);
    // As late as it would be at the switch at the earliest.
    assert_eq!(arrivals(&mut lab, 6_012), [(1, 5_912, Ok(3)), (1, 6_012, Ok(2))]);
    assert_eq!(arrivals(&mut lab, 9_000), [(1, 6_500, Ok(1))]);
    assert_eq!((lab.late(), lab.network().totals().injected_packets), (Late::default(), 1));
}

#[test]
fn hosts_are_told_to_pause_when_the_notice_arrives() {
    let full = Thresholds { xoff: 4 * 1_250, xon: 2 * 1_250 };
    let mut lab = lab(3, input_queued(1 << 20, Some(full)));
    for n in 0..40 {
        for host in [0, 1] {
            lab.send(host, &sent(1_000 + 250 * n, 2, &frame(1_250, n as u8)));
        }
    }
    let all = arrivals(&mut lab, 100_000);
    let notices: Vec<_> = all.iter().filter_map(|(host, at, what)| Some((*host, *at, what.err()?))).collect();
    // The two take turns: more than four of an input wait when its tenth has come, at 1,000 + 10 * 250 + 1,000, and the
    // notice takes 13 ns and 1 µs.
    let first = notices.iter().find(|(host, ..)| *host == 0).unwrap();
    assert_eq!((first.2, first.1 % 250), (Priorities::of(0), 13));
    assert_eq!(notices.last().unwrap().2, Priorities::NONE);
    assert_eq!(all.iter().filter(|(host, ..)| *host == 2).count(), 80, "nothing was dropped");
    assert!(all.is_sorted_by_key(|(_, at, _)| *at));
}

#[test]
fn frames_are_marked_on_request_only() {
    let mark = || {
        let mut config = SharedBufferConfig::new(1 << 20, 1_250);
        config.ecn = Ecn::Step { k: 1 };
        SwitchConfig::SharedBuffer(config)
    };
    for (ect, class, marked) in [(false, 0x60, 0x60), (false, 0x61, 0x63), (true, 0x60, 0x63)] {
        let mut lab = Lab::new(NetworkConfig::new(star(&[40 * G; 3]), mark()), ect).unwrap();
        for host in [0, 1] {
            for n in 0..3 {
                lab.send(host, &Sent { traffic_class: class, ..sent(1_000 + n, 2, &frame(1_250, 0)) });
            }
        }
        let mut classes = Vec::new();
        lab.run_until(50_000, |arrival| {
            let What::Frame { traffic_class, .. } = arrival.what else { panic!("{:?}", arrival.what) };
            classes.push(traffic_class);
        });
        assert_eq!((classes.len(), *classes.last().unwrap()), (6, marked), "{ect} {class:#x}");
    }
}

#[test]
fn a_trimmed_frame_is_what_is_left_of_it() {
    let mut lab = lab(3, SwitchConfig::Trimming(TrimmingConfig::new(1_250)));
    let bytes = frame(1_250, 9);
    let headers = Headers::new(Bth::new(Opcode::UcSendOnly, 77, Psn::new(5))).len();
    for host in [0, 1] {
        for n in 0..4 {
            lab.send(host, &sent(1_000 + n, 2, &bytes));
        }
    }
    let mut whole = 0;
    let mut cut = 0;
    lab.run_until(100_000, |arrival| {
        let What::Frame { frame, traffic_class, .. } = arrival.what else { panic!("{:?}", arrival.what) };
        let path =
            Path { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 3].into(), udp_src: 0, traffic_class, hop_limit: 64 };
        match path.mark() {
            Mark::Whole => {
                assert_eq!(frame, bytes);
                whole += 1;
            }
            _ => {
                assert_eq!(frame, &bytes[..headers]);
                cut += 1;
            }
        }
    });
    assert_eq!(whole + cut, 8);
    assert!(cut > 0 && whole > 0, "{whole} {cut}");
}

#[test]
fn a_link_that_fails_takes_what_is_on_it_along() {
    let mut lab = lab(2, deep()[1].clone());
    lab.send(0, &sent(1_000, 1, &frame(1_250, 1)));
    assert_eq!(arrivals(&mut lab, 1_500), []);
    lab.change_link(LinkChange { at: 0, link: 0, what: Change::Down });
    lab.send(0, &sent(2_000, 1, &frame(1_250, 2)));
    assert_eq!(arrivals(&mut lab, 10_000), [(0, 1_500, Err(Priorities::NONE))]);
    lab.change_link(LinkChange { at: 0, link: 0, what: Change::Up });
    lab.send(0, &sent(11_000, 1, &frame(1_250, 3)));
    assert_eq!(arrivals(&mut lab, 20_000), [(1, 13_500, Ok(3))]);
    assert_eq!(lab.network().totals().lost_packets, 2);
    lab.network().check().unwrap();
}
