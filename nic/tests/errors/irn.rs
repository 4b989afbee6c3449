//! Features of IRN only (§4.4.3, §4.4.4, §4.6).

use irnic_transports::Psn;
use irnic_transports::qp::{QpState, SendOp, WcStatus::*};
use irnic_transports::wire::{Bth, Headers, IrnEth, Opcode, Reth, parse};

use crate::common::Network;
use crate::kit::{Case, Duo, connection};

const IRN: Case = Case { transport: "irn", impairments: "delay 5us", seed: 1 };

/// Drops the first `n` frames of end 0 selected by `which`.
fn lose(d: &mut Duo, n: usize, which: impl Fn(&irnic_transports::wire::Headers) -> bool + 'static) {
    let mut left = n;
    d.net.tamper = Some(Box::new(move |from, frame| {
        if from == 0 && left > 0 && which(&parse(frame).unwrap().0) {
            left -= 1;
            return false;
        }
        true
    }));
}

/// §4.4.4: one receive WQE, two SENDs, the first lost: the second is dropped, not placed and not refused.
#[test]
fn a_probe_out_of_order_is_dropped_not_refused() {
    let mut d = Duo::new(&IRN);
    d.recv(1, 4096);
    let first = d.connection.psn[0];
    lose(&mut d, 1, move |h| h.bth.psn == first);
    d.post(1, SendOp::Send, 100);
    d.post_with(2, SendOp::Send, 50, |_| ());
    d.run_for(15_000);
    assert_eq!(d.net.nics[1].counters().irn_ooo_dropped, 1);
    assert_eq!(d.net.nics[1].counters().out_of_buffer, 0);
    assert!(d.bytes(&d.inbox[1]).iter().all(|&b| b == 0));
    d.recv(2, 4096);
    d.run();
    assert_eq!(d.done(0), [(1, Success), (2, Success)]);
    assert_eq!(d.done(1), [(1, Success), (2, Success)]);
}

/// §4.4.4, "NACKs due to other errors": an error out of order is not reported, and occurs when the gap is closed.
#[test]
fn an_error_out_of_order_is_silent_until_its_turn() {
    for (op, status) in [(SendOp::Write, RemAccessErr), (SendOp::Read, RemAccessErr), (SendOp::Send, RemInvReqErr)] {
        let mut d = Duo::new(&IRN);
        d.recv(0, 4096);
        d.recv(1, 4);
        let first = d.connection.psn[0];
        lose(&mut d, 1, move |h| h.bth.psn == first);
        d.post(0, SendOp::Send, 1000);
        d.post_with(1, op, 1000, |wr| wr.rkey ^= 1);
        d.run_for(15_000);
        assert_eq!(d.states(), [QpState::Rts; 2]);
        assert_eq!(d.net.nics[1].counters().resp_remote_errors, 0);
        assert_eq!(d.net.nics[1].counters().irn_ooo_dropped, 1);
        d.run();
        assert_eq!(d.done(0), [(0, Success), (1, status)]);
        assert_eq!(d.done(1)[0], (0, Success));
        assert_eq!(d.states(), [QpState::Err; 2]);
    }
}

#[test]
fn a_premature_completion_waits_for_what_comes_before_it() {
    for op in [SendOp::Send, SendOp::WriteImm(5)] {
        for lost in 0..6 {
            let mut d = Duo::new(&IRN);
            for id in 0..3 {
                d.recv(id, 4096);
            }
            let psn = d.connection.psn[0].plus(lost);
            lose(&mut d, 1, move |h| h.bth.psn == psn);
            for id in 0..3 {
                d.post(id, op, 2000);
            }
            d.run_for(12_000);
            let early = d.done(1);
            assert_eq!(early.len(), lost as usize / 2, "only what lies before the gap");
            assert!(d.net.nics[1].counters().irn_ooo_placed > 0 || lost == 5);
            d.run();
            let all: Vec<_> = early.into_iter().chain(d.done(1)).collect();
            assert_eq!(all, [0, 1, 2].map(|id| (id, Success)));
        }
    }
}

/// §4.4.4's example: number 0 in order, then number 4 out of order takes four WQEs from the shared queue.
#[test]
fn shared_receive_wqes_are_numbered_as_they_are_taken() {
    let mut d = Duo::on(Network::new(2, "delay 5us", 1, &Default::default()), connection("irn"), true);
    let srq = d.connection.srq[1].unwrap();
    for id in 0..6 {
        d.recv(id, 4096);
    }
    // Room for two more would be below a limit of 2 only once five are taken.
    d.net.nics[1].modify_srq(srq, None, Some(2)).unwrap();
    lose(&mut d, 3, |h| matches!(h.irn, Some(IrnEth::Send { recv_wqe_sn, .. }) if (1..4).contains(&recv_wqe_sn.get())));
    for id in 0..5 {
        d.post_with(id, SendOp::Send, 100 + id as u32, |_| ());
    }
    d.run_for(12_000);
    assert_eq!(d.done(1), [(0, Success)]);
    assert_eq!(d.events(1).len(), 1, "five of six are taken");
    // The fourth WQE taken has the message.
    let inbox = d.bytes(&d.inbox[1]);
    assert!(inbox[4 * 4096..][..104].iter().any(|&b| b != 0));
    assert!(inbox[4096..4 * 4096].iter().all(|&b| b == 0));
    d.run();
    d.poll();
    let got: Vec<_> = d.wcs[1].iter().map(|wc| (wc.wr_id, wc.byte_len)).collect();
    assert_eq!(got, [(1, 101), (2, 102), (3, 103), (4, 104)]);
}

/// A WRITE with immediate expires the first outstanding WQE, whether or not a SEND has taken it from the shared queue.
#[test]
fn writes_with_immediate_take_shared_receive_wqes_in_order() {
    for lost in 0..4 {
        let mut d = Duo::on(Network::new(2, "delay 5us", 1, &Default::default()), connection("irn"), true);
        for id in 0..4 {
            d.recv(id, 4096);
        }
        let psn = d.connection.psn[0].plus(lost);
        lose(&mut d, 1, move |h| h.bth.psn == psn);
        for (id, op) in (0..).zip([SendOp::WriteImm(10), SendOp::Send, SendOp::WriteImm(12), SendOp::SendImm(13)]) {
            d.post(id, op, 10);
        }
        d.run();
        let got: Vec<_> = d.wcs[1].iter().map(|wc| (wc.wr_id, wc.imm)).collect();
        assert_eq!(got, [(0, Some(10)), (1, None), (2, Some(12)), (3, Some(13))], "lost {lost}");
    }
}

/// §4.6: up to a threshold, NACKs are attributed to reordering.
#[test]
fn a_nack_threshold_delays_recovery() {
    for (threshold, reordered_by, retransmitted) in [(1, 3, true), (4, 3, false), (4, 8, true)] {
        let mut c = connection("irn");
        c.transport[0].nack_threshold = threshold;
        let mut d = Duo::on(Network::new(2, "delay 5us", 1, &Default::default()), c, false);
        let first = d.connection.psn[0];
        lose(&mut d, 1, move |h| h.bth.psn == first);
        d.post(1, SendOp::Write, 1024 * (reordered_by + 1));
        // Only NACKs, no timer yet.
        d.run_for(60_000);
        assert_eq!(d.net.nics[0].counters().retransmitted_pkts > 0, retransmitted, "threshold {threshold}");
        d.run();
        assert_eq!(d.done(0), [(1, Success)]);
    }
}

#[test]
fn one_loss_is_one_retransmission() {
    for lost in 0..20 {
        let mut d = Duo::new(&IRN);
        let psn = d.connection.psn[0].plus(lost);
        lose(&mut d, 1, move |h| h.bth.psn == psn);
        d.post(1, SendOp::Write, 20 * 1024);
        d.run();
        assert_eq!(d.done(0), [(1, Success)]);
        assert_eq!(d.net.nics[0].counters().retransmitted_pkts, 1, "packet {lost}");
    }
}

/// A tail loss after an extended timer is recovered by RTO_low again (§4.2.1: low while few packets are in flight).
#[test]
fn progress_brings_the_low_timeout_back() {
    // A round trip of 150 µs: RTO_low comes first, finds 20 packets in flight and is extended.
    let mut d = Duo::new(&Case { impairments: "delay 75us", ..IRN });
    let last = d.connection.psn[0].plus(19);
    lose(&mut d, 1, move |h| h.bth.psn == last);
    d.post(1, SendOp::Write, 20 * 1024);
    let start = d.net.now;
    while d.wcs[0].is_empty() {
        d.steps(1);
    }
    assert_eq!(d.done(0), [(1, Success)]);
    assert_eq!(d.net.nics[0].counters().irn_timeouts_extended, 1);
    // One round trip, RTO_low, one round trip; with RTO_high it would be 620 µs.
    assert!(d.net.now.since(start) < 450_000, "{}", d.net.now.since(start));
}

/// §4.4.4: no WRITE may find its window invalidated because the SEND with invalidate overtook it.
#[test]
fn send_with_invalidate_is_fenced() {
    for lost in 0..10 {
        for op in [SendOp::Write, SendOp::Read] {
            let mut d = Duo::new(&IRN);
            let rkey = d.window(1);
            d.recv(1, 100);
            let mut left = 1;
            let mut n = 0;
            d.net.tamper = Some(Box::new(move |from, frame| {
                let h = parse(frame).unwrap().0;
                let data = from == 0 && h.bth.opcode.is_write() || from == 1 && h.bth.opcode.is_read_response();
                if data {
                    n += 1;
                }
                if data && n == lost + 1 && left > 0 {
                    left -= 1;
                    return false;
                }
                true
            }));
            d.post_with(1, op, 10 * 1024, |wr| wr.rkey = rkey);
            d.post(2, SendOp::SendInvalidate(rkey), 10);
            d.post(3, SendOp::Send, 10);
            d.recv(2, 100);
            d.run();
            assert_eq!(d.done(0), [1, 2, 3].map(|id| (id, Success)), "{op:?}, packet {lost} lost");
            assert_eq!(d.done(1), [(1, Success), (2, Success)]);
            assert_eq!(d.states(), [QpState::Rts; 2]);
        }
    }
}

/// A READ whose acknowledgements are lost: its responses are not resent through an invalidated window.
#[test]
fn an_invalidated_window_is_not_read_again() {
    let mut d = Duo::new(&IRN);
    let rkey = d.window(1);
    d.recv(1, 100);
    let mut left = 3;
    d.net.tamper = Some(Box::new(move |_, frame| {
        let ack = Opcode::from_u8(frame[0]) == Some(Opcode::RcReadAcknowledge);
        if ack && left > 0 {
            left -= 1;
            return false;
        }
        true
    }));
    d.post_with(1, SendOp::Read, 3000, |wr| wr.rkey = rkey);
    d.post(2, SendOp::SendInvalidate(rkey), 10);
    d.run();
    assert_eq!(d.done(0), [(1, Success), (2, Success)]);
    assert_eq!(d.done(1), [(1, Success)]);
    assert_eq!(d.states(), [QpState::Rts; 2]);
    assert_eq!(d.net.next(), irnic_transports::Time::NEVER);
}

/// The invalidation fails in order, though a later message had arrived before it: that one is not delivered.
#[test]
fn the_failed_message_is_named_though_later_ones_have_arrived() {
    let mut d = Duo::new(&IRN);
    let rkey = d.mem[1].rkey ^ 1;
    for id in 0..3 {
        d.recv(id, 100);
    }
    lose(&mut d, 1, |h| h.bth.opcode == Opcode::RcSendOnlyInvalidate);
    d.post(0, SendOp::SendInvalidate(rkey), 10);
    d.post(1, SendOp::Send, 10);
    d.post(2, SendOp::Send, 10);
    d.run();
    assert_eq!(d.done(0), [(0, RemAccessErr), (1, WrFlushErr), (2, WrFlushErr)]);
    assert_eq!(d.done(1), [(0, RemInvReqErr), (1, WrFlushErr), (2, WrFlushErr)]);
}

/// Two messages that name the same receive WQE: the second is dropped before any of it is placed.
#[test]
fn a_receive_wqe_is_claimed_by_one_message() {
    for opcode in [Opcode::RcSendOnly, Opcode::RcWriteOnlyImm] {
        let mut d = Duo::new(&IRN);
        for id in 0..3 {
            d.recv(id, 100);
        }
        for (n, bytes) in [(2, [1; 64]), (3, [2; 64])] {
            let mut h = Headers::new(Bth::new(opcode, d.ends[1].qpn, d.connection.psn[0].plus(n)));
            let recv_wqe_sn = Psn::new(1);
            h.irn = Some(IrnEth::Send { recv_wqe_sn, psn_offset: 0 });
            if opcode == Opcode::RcWriteOnlyImm {
                h.irn = Some(IrnEth::WriteImm { recv_wqe_sn, psn_offset: 0 });
                h.reth = Some(Reth { va: d.mem[1].addr, rkey: d.mem[1].rkey, len: 64 });
                h.imm = Some(n);
            }
            d.inject(1, h, &bytes);
        }
        assert_eq!(d.net.nics[1].counters().irn_ooo_placed, 1);
        assert_eq!(d.net.nics[1].counters().irn_ooo_dropped, 1);
        let place = if opcode == Opcode::RcSendOnly { &d.bytes(&d.inbox[1])[4096..] } else { d.bytes(&d.mem[1]) };
        assert_eq!(place[..64], [1; 64]);
    }
}
