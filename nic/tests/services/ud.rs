//! Unreliable datagrams.

use irnic_nic::frame::emit_frame;
use irnic_transports::qp::{
    Address, PostError, QpAttr, QpState, RecvWr, SendData, SendOp, Service, Sge, WcOpcode, WcStatus::*,
};
use irnic_transports::wire::{Grh, Headers, parse};

use crate::common::{QKEY, address};
use crate::kit::{Duo, byte};
use crate::setup::{MTU, another, duo, empty, post, recv_at, to, wcs};

fn ud() -> Duo {
    duo(Service::Ud, false)
}

#[test]
fn a_datagram_arrives_behind_forty_bytes_that_say_whence() {
    for srq in [false, true] {
        for len in [0, 1, 3, MTU - 1, MTU] {
            for op in [SendOp::Send, SendOp::SendImm(0xabcd)] {
                let mut d = duo(Service::Ud, srq);
                d.recv(0, 40 + len);
                let there = to(d.ends[0], d.ends[1]);
                d.post_with(1, op, len, |wr| (wr.to, wr.solicited) = (Some(there), true));
                d.run();
                assert_eq!(d.done(0), [(1, Success)]);
                let wc = wcs(&mut d, 1)[0];
                assert_eq!((wc.wr_id, wc.status, wc.opcode), (0, Success, WcOpcode::Recv));
                assert_eq!((wc.byte_len, wc.src_qp, wc.qp_num), (40 + len, d.ends[0].qpn, d.ends[1].qpn));
                assert!(wc.grh && wc.solicited);
                assert_eq!(wc.imm, (op != SendOp::Send).then_some(0xabcd));
                let inbox = d.bytes(&d.inbox[1]);
                let headers = 12 + 8 + if op == SendOp::Send { 0 } else { 4 };
                let frame = headers + len.next_multiple_of(4) as usize + 4;
                assert_eq!(inbox[..40], Grh::receive_area(&there.path, frame));
                let expected: Vec<u8> = (0..len as usize).map(|i| byte(0, i)).collect();
                assert_eq!(inbox[40..40 + len as usize], expected);
            }
        }
    }
}

#[test]
fn each_datagram_goes_where_its_work_request_says() {
    let mut d = ud();
    let (same, own) = (d.ends[0], another(&mut d, 0));
    let sges = [d.sge(0, 4096, 400)];
    recv_at(&mut d, same, 8, &sges);
    d.recv(0, 400);
    let (a, b) = (to(d.ends[0], d.ends[1]), to(d.ends[0], d.ends[0]));
    post(&mut d, 1, SendOp::Send, 10, a);
    post(&mut d, 2, SendOp::Send, 20, b);
    post(&mut d, 3, SendOp::Send, 10, to(same, own));
    d.run();
    assert_eq!(d.done(1), [(0, Success)]);
    let mut mine = d.done(0);
    mine.sort_unstable_by_key(|wc| wc.0);
    assert_eq!(mine, [(1, Success), (2, Success), (3, Success), (8, Success)]);
    assert_eq!(d.net.nics[0].counters().out_of_buffer, 1, "nothing was posted at the last");
}

#[test]
fn a_wrong_q_key_is_dropped_and_counted() {
    let mut d = ud();
    d.recv(0, 400);
    let there = to(d.ends[0], d.ends[1]);
    post(&mut d, 1, SendOp::Send, 10, Address { qkey: QKEY + 1, ..there });
    d.run();
    assert_eq!((d.done(0), d.done(1)), (vec![(1, Success)], vec![]));
    assert_eq!((d.net.nics[1].counters().bad_qkey, d.state(1)), (1, QpState::Rts));
    // With the highest bit set, the queue pair's own.
    post(&mut d, 2, SendOp::Send, 10, Address { qkey: 0x8000_0000, ..there });
    d.run();
    assert_eq!(d.done(1), [(0, Success)]);
    for (end, qkey) in [(0, 0x8001_0000), (1, 0x8001_0000)] {
        d.modify(end, QpAttr { qkey: Some(qkey), ..QpAttr::default() });
    }
    d.recv(1, 400);
    d.recv(2, 400);
    post(&mut d, 3, SendOp::Send, 10, Address { qkey: 0xffff_ffff, ..there });
    post(&mut d, 4, SendOp::Send, 10, there);
    d.run();
    assert_eq!(d.done(1), [(1, Success)]);
}

#[test]
fn a_datagram_longer_than_the_mtu_cannot_be_posted() {
    let mut d = ud();
    let there = to(d.ends[0], d.ends[1]);
    let posted = d.try_post(0, 1, SendOp::Send, MTU + 1, |wr| wr.to = Some(there));
    assert_eq!(posted, Err(PostError::DatagramTooLong { len: 257, mtu: 256 }));
    let inline = [0; 257];
    let wr = irnic_transports::qp::SendWr { data: SendData::Inline(&inline), to: Some(there), ..empty(SendOp::Send) };
    let posted = d.net.nics[0].post_send(d.ends[0].qpn, &wr);
    assert_eq!(posted, Err(PostError::DatagramTooLong { len: 257, mtu: 256 }));
    assert_eq!(d.try_post(0, 1, SendOp::Send, MTU, |_| ()), Err(PostError::NoAddress));
    for op in [SendOp::Write, SendOp::Read, SendOp::WriteImm(1), SendOp::LocalInvalidate(3), SendOp::SendInvalidate(1)]
    {
        assert_eq!(d.try_post(0, 1, op, 8, |wr| wr.to = Some(there)), Err(PostError::Service(Service::Ud)), "{op:?}");
    }
    assert!(!d.net.nics[0].wants_tx());
}

#[test]
fn inline_data_and_gathered_data_arrive_the_same() {
    let mut d = ud();
    d.recv(0, 400);
    d.recv(1, 400);
    let there = to(d.ends[0], d.ends[1]);
    let bytes: Vec<u8> = (0..100).map(|i| byte(0, i)).collect();
    let inline = irnic_transports::qp::SendWr {
        wr_id: 1,
        data: SendData::Inline(&bytes),
        to: Some(there),
        ..empty(SendOp::Send)
    };
    let parts = [d.sge(0, 0, 33), d.sge(0, 33, 0), d.sge(0, 33, 67)];
    let gathered = irnic_transports::qp::SendWr { wr_id: 2, data: SendData::Sges(&parts), ..inline };
    for wr in [inline, gathered] {
        d.net.nics[0].post_send(d.ends[0].qpn, &wr).unwrap();
    }
    d.run();
    assert_eq!(d.done(1), [(0, Success), (1, Success)]);
    let inbox = d.bytes(&d.inbox[1]);
    assert_eq!((&inbox[40..140], &inbox[4136..4236]), (&bytes[..], &bytes[..]));
}

#[test]
fn a_datagram_that_finds_no_room_is_dropped_and_its_buffer_serves_the_next() {
    for room in [0, 39, 40, 49] {
        let mut d = ud();
        let there = to(d.ends[0], d.ends[1]);
        post(&mut d, 0, SendOp::Send, 10, there);
        d.run();
        assert_eq!(d.net.nics[1].counters().out_of_buffer, 1);
        d.recv(7, room);
        post(&mut d, 1, SendOp::Send, 10, there);
        d.run();
        assert_eq!((d.done(1), d.state(1)), (vec![], QpState::Rts), "room {room}");
        assert_eq!(d.net.nics[1].counters().rx_dropped_messages, 2);
        if room >= 40 {
            post(&mut d, 2, SendOp::Send, room - 40, there);
            d.run();
            assert_eq!(d.done(1), [(7, Success)]);
        }
    }
}

/// It would otherwise be the next receive for all, and never take a message.
#[test]
fn a_shared_receive_that_is_too_short_completes_in_error() {
    for room in [0, 39, 40, 49] {
        let mut d = duo(Service::Ud, true);
        let there = to(d.ends[0], d.ends[1]);
        d.recv(7, room);
        d.recv(8, 400);
        for id in 0..2 {
            post(&mut d, id, SendOp::Send, 10, there);
        }
        d.run();
        assert_eq!((d.done(1), d.state(1)), (vec![(7, LocLenErr), (8, Success)], QpState::Rts), "room {room}");
        assert_eq!(d.net.nics[1].counters().rx_dropped_messages, 1);
    }
}

#[test]
fn a_bad_local_key_ends_in_sqe_and_the_queue_pair_can_go_on() {
    let mut d = ud();
    d.recv(0, 400);
    d.recv(1, 400);
    let there = to(d.ends[0], d.ends[1]);
    post(&mut d, 1, SendOp::Send, 10, there);
    let bad = [Sge { addr: d.mem[0].addr, len: 10, lkey: d.mem[0].lkey ^ 1 }];
    let wr =
        irnic_transports::qp::SendWr { wr_id: 2, data: SendData::Sges(&bad), to: Some(there), ..empty(SendOp::Send) };
    d.net.nics[0].post_send(d.ends[0].qpn, &wr).unwrap();
    post(&mut d, 3, SendOp::Send, 10, there);
    d.run();
    assert_eq!(d.done(0), [(1, Success), (2, LocProtErr), (3, WrFlushErr)]);
    assert_eq!(d.state(0), QpState::Sqe);
    d.to(0, QpState::Rts);
    post(&mut d, 4, SendOp::Send, 10, there);
    d.run();
    assert_eq!((d.done(0), d.done(1)), (vec![(4, Success)], vec![(0, Success), (1, Success)]));
}

#[test]
fn a_bad_receive_buffer_ends_the_receiver() {
    for at in [0, 1] {
        let mut d = ud();
        let mut sges = [d.sge(1, 0, 40), d.sge(1, 40, 100)];
        sges[at].lkey ^= 1;
        let end = d.ends[1];
        d.net.nics[1].post_recv(end.qpn, &RecvWr { wr_id: 1, sges: &sges }).unwrap();
        let there = to(d.ends[0], end);
        post(&mut d, 1, SendOp::Send, 10, there);
        d.run();
        assert_eq!((d.done(1), d.state(1)), (vec![(1, LocProtErr)], QpState::Err));
    }
}

#[test]
fn anybody_may_send_to_it() {
    let mut d = ud();
    d.recv(0, 400);
    let mut taken: Vec<Headers> = Vec::new();
    let now = d.net.now;
    let there = to(d.ends[0], d.ends[1]);
    post(&mut d, 1, SendOp::Send, 4, there);
    d.net.nics[0].poll_transmit(now, 9, |p| {
        assert_eq!(*p.path, there.path);
        taken.push(*p.headers);
        true
    });
    let mut frame = vec![0; taken[0].frame_len(4)];
    taken[0].emit(&mut frame);
    let (headers, payload) = parse(&frame).unwrap();
    let path = irnic_transports::Path { src: address(77), ..there.path };
    let payload = irnic_transports::Payload::Bytes(payload);
    let packet = irnic_transports::RxPacket {
        headers: &headers,
        path: &path,
        payload,
        arrived: now,
        sideband: Default::default(),
    };
    d.net.nics[1].receive(now, &packet);
    assert_eq!(d.done(1), [(0, Success)]);
}

#[test]
fn sends_complete_whatever_becomes_of_them() {
    let mut d = ud();
    crate::setup::lose(&mut d, |_| true);
    let nowhere = Address { qpn: 0x1234, ..to(d.ends[0], d.ends[1]) };
    for id in 0..50 {
        post(&mut d, id, SendOp::Send, 10, nowhere);
    }
    d.run();
    assert_eq!(d.done(0), (0..50).map(|id| (id, Success)).collect::<Vec<_>>());
}

/// Returns the contents of the datagrams that end 0 sends now, each the same byte throughout: that and its length.
fn sent(d: &mut Duo, budget: usize) -> Vec<(u8, u32)> {
    let mut sent = Vec::new();
    d.net.nics[0].poll_transmit(d.net.now, budget, |packet| {
        let (len, headers) = (packet.payload.len(), packet.headers.len());
        let mut frame = vec![0; packet.headers.frame_len(len)];
        emit_frame(packet, None, &mut frame);
        let payload = &frame[headers..headers + len];
        let first = payload.first().copied().unwrap_or(0);
        assert_eq!(payload, vec![first; len], "one datagram's bytes");
        sent.push((first, len as u32));
        true
    });
    sent
}

/// Posts a datagram whose bytes are all the same, inline or not.
fn say(d: &mut Duo, said: u8, len: u32, inline: bool) {
    let there = to(d.ends[0], d.ends[1]);
    let mr = d.mem[0];
    d.net.nics[0].bytes_mut(&mr).unwrap()[..len as usize].fill(said);
    let bytes = vec![said; len as usize];
    // Elements of one byte, of none, and of the rest.
    let parts = [d.sge(0, 0, len.min(1)), d.sge(0, 9, 0), d.sge(0, len.min(1).into(), len - len.min(1))];
    let data = if inline { SendData::Inline(&bytes) } else { SendData::Sges(&parts) };
    let wr = irnic_transports::qp::SendWr { data, to: Some(there), ..empty(SendOp::Send) };
    d.net.nics[0].post_send(d.ends[0].qpn, &wr).unwrap();
}

#[test]
fn datagrams_that_wait_say_what_they_said_when_they_were_copied() {
    let mut d = ud();
    let qpn = d.ends[0].qpn;
    let (mut said, mut expected) = (0u8, std::collections::VecDeque::new());
    // The queue grows and shrinks, and wraps.
    for (posted, left) in [(1, 0), (3, 1), (7, 5), (30, 2), (1, 0), (12, 11), (40, 0), (61, 0)] {
        for n in 0..posted {
            said = said.wrapping_add(1);
            let len = [100, MTU, 1, 0][usize::from(said) % 4];
            say(&mut d, said, len, n % 5 == 4);
            expected.push_back((if len == 0 { 0 } else { said }, len));
            d.net.nics[0].copy_waiting_sends(qpn);
        }
        let mr = d.mem[0];
        d.net.nics[0].bytes_mut(&mr).unwrap().fill(0xff);
        let n = expected.len() - left;
        assert_eq!(sent(&mut d, n), expected.drain(..n).collect::<Vec<_>>());
        d.poll();
    }
    assert!(!d.net.nics[0].wants_tx());
    assert!(d.wcs[0].iter().all(|wc| wc.status == Success));
}

#[test]
fn copies_of_requests_that_were_flushed_are_not_sent() {
    let mut d = ud();
    let qpn = d.ends[0].qpn;
    for said in [1, 2, 3] {
        say(&mut d, said, 50, false);
        d.net.nics[0].copy_waiting_sends(qpn);
    }
    assert_eq!(sent(&mut d, 1), [(1, 50)]);
    d.to(0, QpState::Err);
    assert_eq!(d.done(0).iter().map(|wc| wc.1).collect::<Vec<_>>(), [Success, WrFlushErr, WrFlushErr]);
    d.to(0, QpState::Reset);
    for attr in crate::common::attributes(&d.connection, d.ends[0], d.ends[1], 0) {
        d.net.nics[0].modify_qp(qpn, &attr).unwrap();
    }
    for said in [4, 5] {
        say(&mut d, said, 60, false);
        d.net.nics[0].copy_waiting_sends(qpn);
    }
    assert_eq!(sent(&mut d, 9), [(4, 60), (5, 60)]);
}

#[test]
fn memory_that_is_not_the_senders_is_found_in_its_turn() {
    let mut d = ud();
    let there = to(d.ends[0], d.ends[1]);
    let sges = [Sge { lkey: d.mem[0].lkey ^ 1, ..d.sge(0, 0, 8) }];
    let wr =
        irnic_transports::qp::SendWr { data: SendData::Sges(&sges), to: Some(there), wr_id: 2, ..empty(SendOp::Send) };
    say(&mut d, 1, 50, false);
    d.net.nics[0].post_send(d.ends[0].qpn, &wr).unwrap();
    d.net.nics[0].copy_waiting_sends(d.ends[0].qpn);
    assert_eq!((sent(&mut d, 9), d.done(0)), (vec![(1, 50)], vec![(0, Success), (2, LocProtErr)]));
}
