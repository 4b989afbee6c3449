//! Unreliable connections: messages that arrive whole are delivered in order, others leave no trace.

use irnic_transports::Psn;
use irnic_transports::qp::{Access, PostError, QpAttr, QpState, SendOp, Service, Sge, WcOpcode, WcStatus::*};
use irnic_transports::wire::{Bth, Headers, Opcode, Reth};

use crate::kit::{Duo, byte, wr};
use crate::setup::{MTU, duo, empty, lose, wcs};

fn uc() -> Duo {
    duo(Service::Uc, false)
}

/// Returns the first `len` bytes that end 0 sends.
fn sent(len: usize) -> Vec<u8> {
    (0..len).map(|i| byte(0, i)).collect()
}

#[test]
fn every_operation_of_every_size_arrives() {
    for op in [SendOp::Send, SendOp::SendImm(7), SendOp::Write, SendOp::WriteImm(9)] {
        for len in [0, 1, MTU - 1, MTU, MTU + 1, 3 * MTU, 16 * MTU - 1] {
            let mut d = uc();
            d.recv(0, 4096);
            d.post_with(1, op, len, |wr| wr.solicited = true);
            d.run();
            assert_eq!(d.done(0), [(1, Success)], "{op:?} {len}");
            let target = if matches!(op, SendOp::Write | SendOp::WriteImm(_)) { d.mem[1] } else { d.inbox[1] };
            assert_eq!(d.bytes(&target)[..len as usize], sent(len as usize), "{op:?} {len}");
            let got = wcs(&mut d, 1);
            if op == SendOp::Write {
                assert_eq!(got, []);
                continue;
            }
            let imm = match op {
                SendOp::SendImm(i) | SendOp::WriteImm(i) => Some(i),
                _ => None,
            };
            let opcode = if op == SendOp::WriteImm(9) { WcOpcode::RecvRdmaWithImm } else { WcOpcode::Recv };
            let wc = got[0];
            assert_eq!((wc.status, wc.opcode, wc.byte_len, wc.imm), (Success, opcode, len, imm), "{op:?} {len}");
            assert!(wc.solicited && !wc.grh && got.len() == 1);
        }
    }
}

#[test]
fn a_mebibyte_arrives() {
    let mut d = uc();
    let len = 1 << 20;
    let (from, to) = (d.ends[0], d.ends[1]);
    let source = crate::common::region(&mut d.net, from, len, |i| (i * 31 / 7) as u8);
    let target = crate::common::region(&mut d.net, to, len, |_| 0);
    let sges = [Sge { addr: source.addr, len: len as u32, lkey: source.lkey }];
    d.net.nics[0].post_send(from.qpn, &wr(1, SendOp::Write, &sges, &target)).unwrap();
    d.run();
    assert_eq!(d.done(0), [(1, Success)]);
    assert!(d.net.nics[1].bytes(&target) == d.net.nics[0].bytes(&source));
}

#[test]
fn a_message_that_loses_any_packet_is_not_delivered_and_its_buffer_serves_the_next() {
    for srq in [false, true] {
        for (lost, op) in (0..4).flat_map(|n| [(n, SendOp::Send), (n, SendOp::SendImm(3))]) {
            let mut d = duo(Service::Uc, srq);
            for id in 0..3 {
                d.recv(id, 4096);
            }
            // Packet 0 is a message of its own, then four follow, then one.
            lose(&mut d, move |n| n == 1 + lost);
            d.post(1, SendOp::Send, 10);
            d.post(2, op, 4 * MTU);
            d.post(3, SendOp::Send, 20);
            d.run();
            assert_eq!(d.done(0), [(1, Success), (2, Success), (3, Success)], "nobody tells the sender");
            let got: Vec<_> = wcs(&mut d, 1).iter().map(|wc| (wc.wr_id, wc.byte_len)).collect();
            assert_eq!(got, [(0, 10), (1, 20)], "packet {lost} of {op:?}");
            assert_eq!(d.bytes(&d.inbox[1])[4096..4096 + 20], sent(20), "from the buffer's start");
        }
    }
}

#[test]
fn a_shared_receive_that_is_too_short_completes_in_error() {
    for (room, len) in [(0, 1), (20, 50), (MTU + 10, 2 * MTU), (3 * MTU, 5 * MTU)] {
        let mut d = duo(Service::Uc, true);
        d.recv(0, room);
        d.recv(1, 4096);
        d.post(1, SendOp::Send, len);
        d.post(2, SendOp::Send, 30);
        d.run();
        assert_eq!((d.done(1), d.state(1)), (vec![(0, LocLenErr), (1, Success)], QpState::Rts), "{len} bytes");
        assert_eq!(d.net.nics[1].counters().rx_dropped_messages, 1);
    }
}

#[test]
fn a_write_that_loses_a_packet_leaves_what_came_before_and_tells_nobody() {
    for lost in 0..4usize {
        for op in [SendOp::Write, SendOp::WriteImm(5)] {
            let mut d = uc();
            d.recv(0, 64);
            let before = d.bytes(&d.mem[1]).to_vec();
            lose(&mut d, move |n| n == lost);
            d.post(1, op, 4 * MTU);
            d.run();
            assert_eq!((d.done(0), d.done(1)), (vec![(1, Success)], vec![]));
            let whole = lost * MTU as usize;
            assert_eq!(d.bytes(&d.mem[1])[..whole], sent(whole));
            assert_eq!(d.bytes(&d.mem[1])[whole..], before[whole..], "nothing after the gap");
            d.post(2, SendOp::SendImm(1), 8);
            d.run();
            assert_eq!(d.done(1), [(0, Success)]);
        }
    }
}

#[test]
fn a_lost_tail_and_a_lost_head_do_not_make_a_message() {
    let mut d = uc();
    d.recv(0, 4096);
    // The last of one and the first of the next are lost.
    lose(&mut d, |n| n == 2 || n == 3);
    d.post(1, SendOp::Send, 3 * MTU);
    d.post(2, SendOp::Send, 3 * MTU);
    d.run();
    assert_eq!(d.done(1), []);
    assert_eq!(d.net.nics[1].counters().rx_dropped_messages, 1, "what is lost in one go counts once");
}

#[test]
fn what_comes_late_or_twice_is_not_delivered_again() {
    let mut d = uc();
    for id in 0..4 {
        d.recv(id, 4096);
    }
    let only = |psn| Headers::new(Bth::new(Opcode::UcSendOnly, 0, psn));
    let first = d.connection.psn[0];
    for (psn, byte) in [(1, 1), (0, 2), (1, 3), (3, 4), (2, 5), (4, 6)] {
        let mut headers = only(first.plus(psn));
        (headers.bth.dest_qp, headers.bth.pad) = (d.ends[1].qpn, 3);
        d.inject(1, headers, &[byte]);
    }
    assert_eq!(d.done(1), [(0, Success), (1, Success), (2, Success)]);
    let inbox = d.bytes(&d.inbox[1]);
    assert_eq!([inbox[0], inbox[4096], inbox[8192]], [1, 4, 6]);
    assert_eq!(d.net.nics[1].counters().duplicate_request, 3);
}

#[test]
fn a_message_cut_short_by_the_next_is_dropped() {
    let mut d = uc();
    d.recv(0, 4096);
    let psn = d.connection.psn[0];
    let headers = |opcode, n: u32| {
        let mut h = Headers::new(Bth::new(opcode, d.ends[1].qpn, psn.plus(n)));
        h.bth.pad = 0;
        h
    };
    let (first, only) = (headers(Opcode::UcSendFirst, 0), headers(Opcode::UcSendOnly, 1));
    d.inject(1, first, &[9; 256]);
    d.inject(1, only, &[4; 8]);
    let got = wcs(&mut d, 1);
    assert_eq!((got.len(), got[0].wr_id, got[0].byte_len), (1, 0, 8));
    assert_eq!(d.bytes(&d.inbox[1])[..8], [4; 8]);
}

#[test]
fn without_a_receive_the_message_is_dropped_whole() {
    for op in [SendOp::Send, SendOp::WriteImm(1)] {
        let mut d = uc();
        d.post(1, op, 3 * MTU);
        d.steps(2);
        // Too late for the first message, whatever remains of it.
        d.recv(0, 4096);
        d.run();
        d.post(2, SendOp::SendImm(2), 10);
        d.run();
        assert_eq!(d.done(0), [(1, Success), (2, Success)]);
        if op == SendOp::Send {
            let got = wcs(&mut d, 1);
            assert_eq!((got.len(), got[0].byte_len, got[0].imm), (1, 10, Some(2)));
            assert_eq!(d.net.nics[1].counters().out_of_buffer, 1);
        }
    }
}

#[test]
fn a_message_too_long_for_its_buffer_is_dropped_and_the_next_takes_the_buffer() {
    for (room, len) in [(100, 101), (MTU + 10, 3 * MTU), (0, 1)] {
        let mut d = uc();
        d.recv(0, room);
        d.post(1, SendOp::Send, len);
        d.post(2, SendOp::Send, room);
        d.run();
        assert_eq!(d.done(0), [(1, Success), (2, Success)]);
        assert_eq!((d.done(1), d.states()), (vec![(0, Success)], [QpState::Rts; 2]));
    }
}

#[test]
fn a_write_without_right_changes_nothing_and_the_connection_stays() {
    for case in 0..5 {
        let mut d = uc();
        let before = d.bytes(&d.mem[1]).to_vec();
        if case == 0 {
            d.modify(1, QpAttr { access: Some(Access(0)), ..QpAttr::default() });
        }
        d.recv(0, 4096);
        for op in [SendOp::Write, SendOp::WriteImm(2)] {
            d.post_with(1, op, 3 * MTU, |wr| match case {
                0 => {}
                1 => wr.rkey ^= 1,
                2 => wr.remote_addr -= 1,
                3 => wr.remote_addr += (1 << 17) - 3 * u64::from(MTU) + 1,
                _ => wr.rkey = 0,
            });
        }
        d.post(2, SendOp::Send, 5);
        d.run();
        assert_eq!(d.done(0), [(1, Success), (1, Success), (2, Success)]);
        assert_eq!((d.done(1), d.states()), (vec![(0, Success)], [QpState::Rts; 2]), "case {case}");
        assert!(d.bytes(&d.mem[1]) == before);
        assert_eq!(d.net.nics[1].counters().resp_remote_access_errors, 2);
    }
}

#[test]
fn packets_of_impossible_lengths_drop_their_message() {
    let reth = |d: &Duo, len| Some(Reth { va: d.mem[1].addr, rkey: d.mem[1].rkey, len });
    for (opcode, payload, announced) in [
        (Opcode::UcSendFirst, 255, None),
        (Opcode::UcSendOnly, 257, None),
        (Opcode::UcWriteOnly, 10, Some(11)),
        (Opcode::UcWriteOnly, 10, Some(9)),
        (Opcode::UcWriteFirst, 256, Some(256)),
        (Opcode::UcSendLast, 10, None),
        (Opcode::UcWriteMiddle, 256, None),
    ] {
        let mut d = uc();
        d.recv(0, 4096);
        let before = d.memory();
        let mut headers = Headers::new(Bth::new(opcode, d.ends[1].qpn, d.connection.psn[0]));
        headers.reth = announced.and_then(|len| reth(&d, len));
        d.inject(1, headers, &vec![0xaa; payload]);
        assert_eq!((d.done(1), d.net.nics[1].counters().rx_dropped_messages), (vec![], 1), "{opcode:?}");
        assert!(d.memory() == before, "{opcode:?}");
        assert_eq!(d.state(1), QpState::Rts);
    }
}

#[test]
fn a_bad_local_key_ends_in_sqe_and_the_queue_pair_can_go_on() {
    let mut d = uc();
    for id in 0..3 {
        d.recv(id, 4096);
    }
    d.try_post(1, 50, SendOp::Send, 10, |_| ()).unwrap();
    d.post(1, SendOp::Send, 10);
    let bad = [Sge { addr: d.mem[0].addr, len: 10, lkey: d.mem[0].lkey ^ 1 }];
    let mem = d.mem[1];
    d.net.nics[0].post_send(d.ends[0].qpn, &wr(2, SendOp::Send, &bad, &mem)).unwrap();
    d.post_with(3, SendOp::Send, 10, |wr| wr.signaled = false);
    d.run();
    assert_eq!(d.done(0), [(1, Success), (2, LocProtErr), (3, WrFlushErr)]);
    assert_eq!(d.state(0), QpState::Sqe);
    d.post(4, SendOp::Send, 10);
    assert_eq!(d.done(0), [(4, WrFlushErr)]);
    // Receiving continues.
    let sges = [d.sge(0, 0, 100)];
    let end = d.ends[0];
    crate::setup::recv_at(&mut d, end, 60, &sges);
    d.try_post(1, 51, SendOp::Send, 10, |_| ()).unwrap();
    d.run();
    assert_eq!(d.done(0), [(60, Success)]);
    d.to(0, QpState::Rts);
    d.post(5, SendOp::Send, 10);
    d.run();
    assert_eq!(d.done(0), [(5, Success)]);
    let mut peer = d.done(1);
    peer.sort_unstable_by_key(|wc| wc.0);
    assert_eq!(peer, [(0, Success), (1, Success), (50, Success), (51, Success)]);
}

#[test]
fn an_error_in_the_middle_of_a_message_costs_that_message_only() {
    let mut d = uc();
    d.recv(0, 4096);
    let (good, mem) = (d.sge(0, 0, 2 * MTU), d.mem[1]);
    let sges = [good, Sge { lkey: good.lkey ^ 1, ..good }];
    d.net.nics[0].post_send(d.ends[0].qpn, &wr(1, SendOp::Send, &sges, &mem)).unwrap();
    d.run();
    assert_eq!((d.done(0), d.state(0)), (vec![(1, LocProtErr)], QpState::Sqe));
    d.to(0, QpState::Rts);
    d.post(2, SendOp::Send, 30);
    d.run();
    let got = wcs(&mut d, 1);
    assert_eq!((got.len(), got[0].wr_id, got[0].byte_len), (1, 0, 30));
}

#[test]
fn a_bad_receive_buffer_ends_the_receiver() {
    let mut d = uc();
    let mut sge = d.sge(1, 0, 100);
    sge.lkey ^= 1;
    let end = d.ends[1];
    crate::setup::recv_at(&mut d, end, 1, &[sge]);
    crate::setup::recv_at(&mut d, end, 2, &[sge]);
    d.post(1, SendOp::Send, 10);
    d.run();
    assert_eq!((d.done(1), d.state(1)), (vec![(1, LocProtErr), (2, WrFlushErr)], QpState::Err));
}

#[test]
fn reads_atomics_and_remote_invalidation_are_refused() {
    let d = &mut uc();
    for op in [
        SendOp::Read,
        SendOp::FetchAdd { add: 1 },
        SendOp::CompareSwap { compare: 0, swap: 1 },
        SendOp::SendInvalidate(7),
    ] {
        let posted = d.net.nics[0].post_send(d.ends[0].qpn, &empty(op));
        assert_eq!(posted, Err(PostError::Service(Service::Uc)), "{op:?}");
    }
}

#[test]
fn a_local_invalidation_happens_in_its_turn() {
    let mut d = uc();
    let rkey = d.window(0);
    d.post(1, SendOp::Write, 3 * MTU);
    d.post(2, SendOp::LocalInvalidate(rkey), 0);
    d.post(3, SendOp::LocalInvalidate(rkey), 0);
    d.run();
    assert_eq!(d.done(0), [(1, Success), (2, Success), (3, LocQpOpErr)]);
    assert_eq!(d.state(0), QpState::Sqe);
}

#[test]
fn a_drained_send_queue_ends_its_message_and_begins_no_other() {
    let mut d = uc();
    d.recv(0, 4096);
    d.recv(1, 4096);
    d.post(1, SendOp::Send, 4 * MTU);
    d.post(2, SendOp::Send, 10);
    // One packet is sent; the rest of the message has to follow.
    let mut frames = Vec::new();
    let now = d.net.now;
    d.net.nics[0].poll_transmit(now, 1, |p| {
        frames.push(p.headers.bth.opcode);
        true
    });
    assert_eq!(frames, [Opcode::UcSendFirst]);
    d.modify(0, QpAttr { state: Some(QpState::Sqd), sqd_event: true, ..QpAttr::default() });
    assert_eq!(d.events(0), []);
    d.run();
    assert_eq!(d.done(0), [(1, Success)]);
    assert_eq!(d.events(0), [irnic_transports::qp::Event::SqDrained(d.ends[0].qpn)]);
    d.to(0, QpState::Rts);
    d.run();
    assert_eq!(d.done(0), [(2, Success)]);
    assert_eq!(d.done(1), [(0, Success)], "of the first its first packet never came");
}

#[test]
fn other_services_and_strangers_are_not_heard() {
    let mut d = uc();
    d.recv(0, 4096);
    for opcode in [Opcode::RcSendOnly, Opcode::UdSendOnly, Opcode::RcAcknowledge] {
        let mut headers = Headers::new(Bth::new(opcode, d.ends[1].qpn, d.connection.psn[0]));
        headers.aeth = (opcode == Opcode::RcAcknowledge).then(Default::default);
        headers.deth = (opcode == Opcode::UdSendOnly).then(Default::default);
        d.inject(1, headers, &[]);
    }
    assert_eq!((d.done(1), d.net.nics[1].counters().rx_dropped), (vec![], 3));
    let psn = |d: &Duo| d.net.nics[1].qp(d.ends[1].qpn).unwrap().attributes().rq_psn;
    assert_eq!(psn(&d), Some(d.connection.psn[0]));
    d.post(1, SendOp::Send, 2 * MTU);
    d.run();
    assert_eq!(psn(&d), Some(Psn::new(d.connection.psn[0].get() + 2)));
}
