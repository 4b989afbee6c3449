//! The transport `iwarp` over a wire: the times of packets. Every round trip takes 20 µs, packets take no time to send.

use std::cell::RefCell;
use std::rc::Rc;

use irnic_transports::qp::{SendData, SendWr, Sge, Wc};

use crate::common::{Connection, End, Network, pair, region};

const ROUND_TRIP: u64 = 20_000;
const MTU: usize = 1024;

/// Request packets sent: time, in ns from the first, and number.
type Left = Vec<(u64, u32)>;

/// Sends messages of these numbers of packets, each when the previous one is complete. `lost` decides, by packet and
/// its number of previous transmissions, whether it is lost.
fn run(transport: &str, messages: &[usize], lost: impl Fn(u32, usize) -> bool + 'static) -> (Network, End, Left) {
    let c = Connection { transport: [transport.parse().unwrap(); 2], ..Connection::default() };
    let (mut net, ends) = pair("delay 10us", 1, &c);
    net.byte_time = 0;
    let first = c.psn[0].get();
    let seen = Rc::new(RefCell::new(Vec::new()));
    let to = seen.clone();
    net.tamper = Some(Box::new(move |from, frame| {
        if from != 0 {
            return true;
        }
        let psn = u32::from_be_bytes([0, frame[9], frame[10], frame[11]]).wrapping_sub(first) & 0xff_ffff;
        let mut seen = to.borrow_mut();
        let before = seen.iter().filter(|&&n| n == psn).count();
        seen.push(psn);
        !lost(psn, before)
    }));
    let (a, b) = (region(&mut net, ends[0], 100 * MTU, |_| 1), region(&mut net, ends[1], 100 * MTU, |_| 2));
    let mut left = Left::new();
    let start = net.now.0;
    for &packets in messages {
        let sges = [Sge { addr: a.addr, len: (packets * MTU) as u32, lkey: a.lkey }];
        let wr = SendWr::write(0, SendData::Sges(&sges), b.addr, b.rkey);
        net.nics[0].post_send(ends[0].qpn, &wr).unwrap();
        net.send();
        let mut wcs = [Wc::EMPTY; 1];
        loop {
            let now = net.now.0 - start;
            left.extend(seen.borrow()[left.len()..].iter().map(|&psn| (now, psn)).collect::<Vec<_>>());
            if net.nics[0].poll_cq(ends[0].cq, &mut wcs).unwrap() > 0 {
                break;
            }
            assert!(net.step() && net.steps < 100_000, "{left:?}");
        }
    }
    (net, ends[0], left)
}

/// Returns the number of packets per round trip.
fn by_round(left: &Left) -> Vec<usize> {
    let rounds = left.last().map_or(0, |(at, _)| at / ROUND_TRIP + 1);
    (0..rounds).map(|round| left.iter().filter(|(at, _)| at / ROUND_TRIP == round).count()).collect()
}

#[test]
fn a_flow_starts_slowly() {
    let (.., left) = run("iwarp", &[60], |_, _| false);
    assert_eq!(by_round(&left), [4, 8, 16, 32]);
    let (.., left) = run("iwarp,cc.initial=10,cc.ssthresh=20", &[60], |_, _| false);
    // From 10 on each acknowledgement adds one up to 20; twenty count for another one.
    assert_eq!(by_round(&left), [10, 20, 21, 9]);
}

#[test]
fn a_loss_halves_the_window() {
    // The first of the 16 packets of the third round trip. Each of the first two NACKs releases a new packet, the third
    // the lost one, and the window is 16/2: without the lost one and three that arrived, 14 of 18 packets are in the
    // network, and one retransmission. The other twelve NACKs leave 3, so five more are sent.
    let (net, _, left) = run("iwarp", &[80], |psn, before| psn == 12 && before == 0);
    let rounds = by_round(&left);
    assert_eq!(rounds[..4], [4, 8, 16, 8], "{left:?}");
    assert_eq!(left[30], (3 * ROUND_TRIP, 12));
    // It ends recovery: the window is 8, and then grows by one per round trip.
    assert_eq!(rounds[4..7], [8, 9, 10], "{left:?}");
    assert_eq!((net.nics[0].counters().retransmitted_pkts, net.nics[0].counters().local_ack_timeout_err), (1, 0));
}

#[test]
fn two_that_overtake_a_packet_are_no_loss() {
    // Two NACKs are less than three: the packet waits for the timer.
    let (net, _, left) = run("iwarp,cc.initial=3", &[3], |psn, before| psn == 0 && before == 0);
    assert_eq!(net.nics[0].counters().local_ack_timeout_err, 1);
    assert_eq!(left.len(), 4);
}

#[test]
fn the_last_packet_waits_for_the_round_trip_and_four_times_its_variation() {
    // R = 20 µs after the first message: RTO = R + 4 · R/2 = 60 µs. After another loss it is doubled; as no packet sent
    // twice is measured (Karn), the next waits four times as long.
    let (net, end, left) =
        run("iwarp,rto-min=50us", &[1, 1, 1, 1], |psn, before| psn == 1 && before < 2 || psn == 2 && before < 1);
    assert_eq!(left.iter().map(|l| l.1).collect::<Vec<_>>(), [0, 1, 1, 1, 2, 2, 3]);
    let waited: Vec<u64> = left.windows(2).filter(|l| l[0].1 == l[1].1).map(|l| l[1].0 - l[0].0).collect();
    for (waited, rto) in waited.into_iter().zip([60_000, 120_000, 240_000]) {
        // The timers' resolution.
        assert!((rto..rto + 2_048).contains(&waited), "{waited}, not {rto}");
    }
    assert_eq!(net.nics[0].counters().local_ack_timeout_err, 3);
    // The last is measured again.
    assert_eq!(net.nics[0].qp(end.qpn).unwrap().smoothed_rtt(), ROUND_TRIP);
    // Before the first measurement it is the minimum: 320 µs.
    let (.., left) = run("iwarp", &[1], |_, before| before < 1);
    assert!((320_000..322_048).contains(&left[1].0), "{left:?}");
}

#[test]
fn after_a_timeout_a_flow_starts_slowly_again() {
    // All of the second round trip is lost, so that nothing comes back.
    let (net, _, left) = run("iwarp", &[40], |psn, before| (4..12).contains(&psn) && before == 0);
    assert_eq!(net.nics[0].counters().local_ack_timeout_err, 1);
    assert_eq!(left[12].1, 4, "{left:?}");
}

#[test]
fn what_is_sent_again_waits_for_the_window() {
    // Of the 16 packets of the third round trip only the last arrives, and the window is 8. A NACK reports the other 15
    // lost.
    let lost = |psn, before| (12..27).contains(&psn) && before == 0;
    let (net, _, left) = run("iwarp,nack-threshold=1", &[60], lost);
    assert_eq!(by_round(&left)[..7], [4, 8, 16, 8, 8, 8, 9], "{left:?}");
    let order: Vec<u32> = left[28..].iter().map(|l| l.1).collect();
    assert_eq!(order, (12..27).chain(28..60).collect::<Vec<_>>());
    assert_eq!(net.nics[0].counters().local_ack_timeout_err, 0);
}

#[test]
fn after_a_timeout_goes_again_as_the_window_opens_what_has_not_arrived() {
    // Of the second round trip only 8 arrives; 4 is lost twice.
    let lost = |psn, before| (4..12).contains(&psn) && psn != 8 && before == 0 || psn == 4 && before == 1;
    let (net, _, left) = run("iwarp,nack-threshold=1", &[40], lost);
    assert_eq!(net.nics[0].counters().local_ack_timeout_err, 1);
    let again: Vec<u32> = left[12..].iter().map(|l| l.1).collect();
    let expected = [4, 4, 5, 6, 7, 9, 10, 11];
    assert_eq!(again, expected.into_iter().chain(12..40).collect::<Vec<_>>());
    // One after the timeout, then two, and four are half of the eight that were in flight.
    let since = left[13].0;
    let rounds = [0, 1, 2].map(|n| left[13..].iter().filter(|l| (l.0 - since) / ROUND_TRIP == n).count());
    assert_eq!(rounds, [1, 2, 4], "{left:?}");
}

/// Runs messages with probes after at least 10 µs and timeouts of 4 ms, and without probes.
fn probed(transport: &str, messages: &[usize], lost: fn(u32, usize) -> bool) -> [(Network, Left); 2] {
    ["10us", "off"].map(|tlp| {
        let (net, _, left) = run(&format!("{transport},tlp={tlp},base-rtt=20us"), messages, lost);
        (net, left)
    })
}

/// Asserts approximately when a packet left, as timers have a resolution.
fn left_at(left: &Left, index: usize, at: u64, psn: u32) {
    assert!((at..at + 4_096).contains(&left[index].0) && left[index].1 == psn, "{psn} at {at}: {left:?}");
}

/// RFC 8985 §7: of 20 packets the last five are lost. The last is resent two round trips after the last
/// acknowledgement, and its answer shows what else is lost.
#[test]
fn a_lost_tail_is_found_by_a_probe_long_before_the_timeout() {
    for transport in [
        "iwarp,rto-min=4ms,cc.initial=20,nack-threshold=1",
        "iwarp,rto-min=4ms,cc.initial=20",
        "irn,rto=4ms",
        "irn-no-bdp,cc=dctcp,rto=4ms",
        "irn,rto-min=4ms,evidence=on",
    ] {
        let [(net, left), (without, late)] = probed(transport, &[20], |psn, before| psn >= 15 && before == 0);
        left_at(&left, 20, 3 * ROUND_TRIP, 19);
        assert_eq!(left[21..].iter().map(|l| l.1).collect::<Vec<_>>(), [15, 16, 17, 18], "{transport}");
        assert!(left[24].0 < 6 * ROUND_TRIP, "{transport}: {left:?}");
        let counters = net.nics[0].counters();
        assert_eq!((counters.tlp_probes, counters.local_ack_timeout_err), (1, 0), "{transport}");
        let counters = without.nics[0].counters();
        assert!(counters.tlp_probes == 0 && counters.local_ack_timeout_err > 0, "{transport}");
        assert!(late[20].0 > 4_000_000, "{transport}: {late:?}");
    }
}

/// A new packet serves as well, and is sent whatever the window. Before the first measurement of a round trip that of
/// an empty network is used, as TCP would have measured one by then.
#[test]
fn a_new_packet_is_a_probe_if_there_is_one() {
    let [(net, left), (without, _)] =
        probed("iwarp,rto-min=4ms,nack-threshold=1", &[8], |psn, before| psn < 4 && before == 0);
    left_at(&left, 4, 2 * ROUND_TRIP, 4);
    assert_eq!(left[5].1, 0);
    assert_eq!((net.nics[0].counters().tlp_probes, net.nics[0].counters().local_ack_timeout_err), (1, 0));
    assert_eq!(without.nics[0].counters().local_ack_timeout_err, 1);
}

/// One probe per tail: if that is lost as well, the timeout remains.
#[test]
fn a_lost_probe_leaves_the_tail_to_the_timeout() {
    let [(net, left), _] = probed("iwarp,rto-min=4ms,nack-threshold=1", &[4], |psn, before| psn == 3 && before < 2);
    left_at(&left, 4, 3 * ROUND_TRIP, 3);
    // The probe restarts the timer.
    left_at(&left, 5, 3 * ROUND_TRIP + 4_000_000, 3);
    assert_eq!((net.nics[0].counters().tlp_probes, net.nics[0].counters().local_ack_timeout_err), (1, 1));
}

/// RFC 8985 §7.4: the probe has repaired the loss that it was to detect. The window shrinks all the same.
#[test]
fn a_loss_that_the_probe_repairs_counts_as_one() {
    let second = |lost| {
        let [(net, left), _] = probed("iwarp,rto-min=4ms,nack-threshold=1", &[4, 60], lost);
        assert_eq!(net.nics[0].counters().local_ack_timeout_err, 0);
        let sent: Left = left.into_iter().filter(|l| l.1 >= 4).collect();
        by_round(&sent.iter().map(|l| (l.0 - sent[0].0, l.1)).collect())
    };
    assert_eq!(second(|_, _| false)[..3], [8, 16, 32]);
    // The first acknowledgement beyond the tail leaves seven in flight: the window is half of them, and then one more
    // per round trip.
    assert_eq!(second(|psn, before| psn == 3 && before == 0)[..3], [8, 3, 4]);
}
