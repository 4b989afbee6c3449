//! Sizes at their limits, outstanding READs, duplicates, message numbers.

use std::sync::{Arc, Mutex};

use irnic_nic::loopback;
use irnic_nic::{Mr, Nic};
use irnic_transports::qp::{QpState, RecvWr, SendOp, Sge, WcStatus::*};
use irnic_transports::wire::{Headers, Opcode, parse};
use irnic_transports::{Psn, Time};

use crate::kit::{Duo, EVERYTHING, calm, completions, everywhere, wr};

#[test]
fn nothing_to_move_needs_no_key() {
    everywhere(|case| {
        for op in [SendOp::Write, SendOp::Read, SendOp::WriteImm(1)] {
            let mut d = Duo::new(case);
            d.recv(1, 0);
            let before = d.memory();
            d.post_with(1, op, 0, |wr| (wr.rkey, wr.remote_addr) = (0xdead_beef, u64::MAX));
            d.run();
            assert_eq!(d.done(0), [(1, Success)]);
            assert_eq!(d.memory(), before);
            assert_eq!(d.states(), [QpState::Rts; 2]);
        }
        let mut d = Duo::new(case);
        d.recv(1, 0);
        d.post(1, SendOp::Send, 0);
        d.run();
        assert_eq!((d.done(0), d.wcs[1][0].byte_len), (vec![(1, Success)], 0));
    });
}

#[test]
fn a_mebibyte_arrives_as_it_was() {
    calm(|case| {
        for mtu in irnic_transports::wire::Mtu::ALL {
            for op in [SendOp::Send, SendOp::Write, SendOp::Read] {
                let mut d = Duo::with(case, |c| c.mtu = mtu);
                let len = 1usize << 20;
                let big = [0, 1]
                    .map(|i| crate::common::region(&mut d.net, d.ends[i], len, |k| (k ^ ((k >> 8) * 3 + i)) as u8));
                let sges = [Sge { addr: big[0].addr, len: len as u32, lkey: big[0].lkey }];
                let recv = [Sge { addr: big[1].addr, len: len as u32, lkey: big[1].lkey }];
                d.net.nics[1].post_recv(d.ends[1].qpn, &RecvWr { wr_id: 1, sges: &recv }).unwrap();
                let w = wr(1, op, &sges, &big[1]);
                d.net.nics[0].post_send(d.ends[0].qpn, &w).unwrap();
                d.run();
                assert_eq!(d.done(0), [(1, Success)]);
                assert!(d.bytes(&big[0]) == d.bytes(&big[1]));
            }
        }
    });
}

/// Exchanges packets between two NICs without a network until neither has any.
fn exchange(a: &mut Nic, b: &mut Nic, now: Time) -> usize {
    let mut total = 0;
    loop {
        let moved = loopback(now, a, b, 256) + loopback(now, b, a, 256);
        if moved == 0 {
            return total;
        }
        total += moved;
    }
}

#[test]
fn a_gibibyte_is_one_message() {
    const GIB: u64 = 1 << 30;
    let mtus: &[_] = if cfg!(debug_assertions) { &[5] } else { &[1, 5] };
    for &mtu in mtus {
        calm(|case| {
            for op in [SendOp::Send, SendOp::Write, SendOp::Read] {
                let mut d = Duo::with(case, |c| c.mtu = irnic_transports::wire::Mtu::from_code(mtu).unwrap());
                let mr: [Mr; 2] =
                    [0, 1].map(|i| d.net.nics[i].reg_phantom_mr(d.ends[i].pd, 1 << 40, GIB, EVERYTHING).unwrap());
                let sges = [Sge { addr: mr[0].addr, len: GIB as u32, lkey: mr[0].lkey }];
                let recv = [Sge { addr: mr[1].addr, len: GIB as u32, lkey: mr[1].lkey }];
                d.net.nics[1].post_recv(d.ends[1].qpn, &RecvWr { wr_id: 1, sges: &recv }).unwrap();
                let w = wr(1, op, &sges, &mr[1]);
                d.net.nics[0].post_send(d.ends[0].qpn, &w).unwrap();
                let [a, b] = &mut d.net.nics[..] else { unreachable!() };
                let packets = exchange(a, b, Time(1_000_000));
                assert!(packets as u64 > GIB / (128 << mtu));
                let wcs = completions(&mut d.net, d.ends[0]);
                assert_eq!(
                    wcs.iter().map(|wc| (wc.wr_id, wc.status, wc.byte_len)).collect::<Vec<_>>(),
                    [(1, Success, GIB as u32)]
                );
                if op == SendOp::Send {
                    assert_eq!(completions(&mut d.net, d.ends[1])[0].byte_len, GIB as u32);
                }
            }
        });
    }
}

/// Responses of four times a GiB at the smallest MTU take all of the sequence numbers.
#[test]
fn reads_of_many_gibibytes_at_once_do_not_wrap_into_each_other() {
    if cfg!(debug_assertions) {
        return;
    }
    calm(|case| {
        let mut d = Duo::with(case, |c| c.mtu = irnic_transports::wire::Mtu::B256);
        let mr: [Mr; 2] =
            [0, 1].map(|i| d.net.nics[i].reg_phantom_mr(d.ends[i].pd, 1 << 40, 1 << 30, EVERYTHING).unwrap());
        let sges = [Sge { addr: mr[0].addr, len: 1 << 30, lkey: mr[0].lkey }];
        for id in 0..4 {
            let w = wr(id, SendOp::Read, &sges, &mr[1]);
            d.net.nics[0].post_send(d.ends[0].qpn, &w).unwrap();
        }
        let [a, b] = &mut d.net.nics[..] else { unreachable!() };
        // Enough to see that it gets started, at either end.
        let mut moved = 0;
        while moved < 50_000 {
            let more = loopback(Time(1_000_000), a, b, 256) + loopback(Time(1_000_000), b, a, 256);
            assert!(more > 0, "stuck after {moved} packets");
            moved += more;
        }
        assert_eq!(d.states(), [QpState::Rts; 2]);
    });
}

/// Frames with their senders.
type Log = Arc<Mutex<Vec<(usize, Headers, Vec<u8>)>>>;

/// Records everything that crosses the network.
fn spy(d: &mut Duo) -> Log {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    d.net.tamper = Some(Box::new(move |from, frame| {
        log.lock().unwrap().push((from, parse(frame).unwrap().0, frame.clone()));
        true
    }));
    seen
}

#[test]
fn no_more_reads_and_atomics_are_outstanding_than_the_limit() {
    everywhere(|case| {
        for limit in [1, 2, 5] {
            let mut d = Duo::with(case, |c| c.rd_atomic = limit);
            for id in 0..20 {
                match id % 3 {
                    0 => d.post(id, SendOp::Read, 3000),
                    1 => d.post(id, SendOp::FetchAdd { add: 1 }, 8),
                    _ => d.post(id, SendOp::Write, 0),
                }
            }
            let mut most = 0;
            let mut complete = 0;
            // A new request opens an operation; a completion closes it.
            let opened = Arc::new(Mutex::new(std::collections::HashSet::new()));
            let log = opened.clone();
            let irn = case.irn();
            let mut first = std::collections::HashMap::new();
            d.net.tamper = Some(Box::new(move |from, frame| {
                let (h, _) = parse(frame).unwrap();
                let request = matches!(h.bth.opcode, Opcode::RcReadRequest | Opcode::RcFetchAdd);
                if from == 0 && request {
                    // Plain READs may be resent from their middle.
                    let fresh = irn || first.values().all(|&len: &u32| len > 0);
                    let whole = h.reth.is_none_or(|r| r.len == 3000);
                    if fresh && whole {
                        first.insert(h.bth.psn.get(), 1);
                        log.lock().unwrap().insert(h.bth.psn.get());
                    }
                }
                true
            }));
            while d.net.step() {
                d.poll();
                complete += d.wcs[0].drain(..).filter(|wc| wc.wr_id % 3 < 2).count();
                most = most.max(opened.lock().unwrap().len().saturating_sub(complete));
            }
            assert_eq!(opened.lock().unwrap().len(), 14);
            assert!(most <= usize::from(limit), "{most} outstanding, {limit} allowed");
        }
    });
}

#[test]
fn without_outstanding_reads_allowed_a_read_fails_locally() {
    calm(|case| {
        for op in [SendOp::Read, SendOp::FetchAdd { add: 1 }] {
            let mut d = Duo::with(case, |c| c.rd_atomic = 0);
            d.post(0, SendOp::Write, 10);
            d.post(1, op, 8);
            d.post(2, SendOp::Write, 10);
            d.run();
            assert_eq!(d.done(0), [(0, Success), (1, LocQpOpErr), (2, WrFlushErr)]);
            assert_eq!(d.states(), [QpState::Err, QpState::Rts]);
        }
    });
}

#[test]
fn duplicates_are_answered_but_not_carried_out_again() {
    calm(|case| {
        let mut d = Duo::new(case);
        let seen = spy(&mut d);
        for id in 0..3 {
            d.recv(id, 100);
        }
        d.post(0, SendOp::Send, 10);
        d.post(1, SendOp::Write, 1000);
        d.post(2, SendOp::Read, 3000);
        d.post(3, SendOp::FetchAdd { add: 5 }, 8);
        d.post(4, SendOp::CompareSwap { compare: 0, swap: 1 }, 8);
        d.run();
        assert_eq!(d.done(0).len(), 5);
        let requests: Vec<_> =
            seen.lock().unwrap().iter().filter(|s| s.0 == 0 && s.1.bth.opcode.is_request()).cloned().collect();
        assert_eq!(requests.len(), 5);
        d.done(1);
        let memory = d.memory();
        let bodies = |d: &mut Duo, seen: &Log, frame: &[u8]| {
            seen.lock().unwrap().clear();
            let (headers, payload) = parse(frame).unwrap();
            d.inject(1, headers, payload);
            d.run();
            seen.lock()
                .unwrap()
                .iter()
                .filter(|s| s.0 == 1)
                .map(|s| (s.1.bth.opcode, s.1.atomic_ack))
                .collect::<Vec<_>>()
        };
        let responses = bodies(&mut d, &seen, &requests[2].2);
        if case.irn() {
            // The response stream has its own sequence numbers: the duplicate is acknowledged.
            assert_eq!(responses, [(Opcode::RcAcknowledge, None)]);
        } else {
            let part = |o| (o, None);
            assert_eq!(
                responses,
                [Opcode::RcReadResponseFirst, Opcode::RcReadResponseMiddle, Opcode::RcReadResponseLast].map(part)
            );
        }
        for (n, request) in requests.iter().enumerate() {
            for _ in 0..3 {
                let responses = bodies(&mut d, &seen, &request.2);
                if n >= 3 && !case.irn() {
                    // The first value, though the memory has changed.
                    assert_eq!(responses.len(), 1);
                    assert!(responses[0].1.is_some());
                }
                assert_eq!(d.done(0), []);
                assert_eq!(d.done(1), []);
            }
        }
        assert!(d.memory() == memory);
        assert_eq!(d.net.nics[1].counters().rx_atomic_requests, 2);
        assert_eq!(d.states(), [QpState::Rts; 2]);
    });
}

#[test]
fn a_replayed_atomic_returns_the_value_it_returned_before() {
    everywhere(|case| {
        let mut d = Duo::new(case);
        let mut expected = u64::from_ne_bytes(d.bytes(&d.mem[1])[..8].try_into().unwrap());
        for id in 0..30 {
            let sges = [d.sge(0, 8 * (id % 3), 8)];
            let w = wr(id, SendOp::FetchAdd { add: id + 1 }, &sges, &d.mem[1]);
            d.net.nics[0].post_send(d.ends[0].qpn, &w).unwrap();
            if id % 3 == 2 {
                d.run();
                let local = u64::from_ne_bytes(d.bytes(&d.mem[0])[16..24].try_into().unwrap());
                expected = expected.wrapping_add(id - 1).wrapping_add(id);
                assert_eq!(local, expected);
                expected = expected.wrapping_add(id + 1);
            }
        }
        let cell = u64::from_ne_bytes(d.bytes(&d.mem[1])[..8].try_into().unwrap());
        assert_eq!(cell, expected);
    });
}

#[test]
fn the_message_number_counts_every_message_once() {
    everywhere(|case| {
        let mut d = Duo::new(case);
        let seen = spy(&mut d);
        for id in 0..24 {
            d.recv(id, 4096);
            let op = [SendOp::Send, SendOp::Write, SendOp::Read, SendOp::WriteImm(1), SendOp::FetchAdd { add: 1 }];
            let op = op[id as usize % 5];
            d.post(id, op, if id % 5 == 4 { 8 } else { 2500 });
        }
        d.run();
        assert_eq!(d.done(0).len(), 24);
        let msns: Vec<Psn> = seen
            .lock()
            .unwrap()
            .iter()
            .filter(|s| s.0 == 1 && s.1.bth.opcode.is_response())
            .filter_map(|s| s.1.aeth.map(|a| a.msn))
            .collect();
        assert!(msns.is_sorted_by_key(|m| m.get()));
        assert_eq!(msns.last(), Some(&Psn::new(24)));
    });
}
