//! Remote invalid request and remote operational errors.

use irnic_transports::Psn;
use irnic_transports::qp::{Event, QpState, RecvWr, SendOp, Sge, WcStatus::*};
use irnic_transports::wire::{AtomicEth, Bth, Headers, IrnEth, Opcode, Reth};

use crate::kit::{Case, Duo, calm, everywhere};

#[test]
fn a_message_longer_than_its_receive_wqe_fails_at_both_ends() {
    everywhere(|case| {
        for (room, len) in [(0, 1), (99, 100), (1024, 1025), (3000, 5000), (4999, 5000)] {
            let mut d = Duo::new(case);
            d.recv(1, 16);
            d.recv(2, room);
            d.recv(4, 8192);
            let inbox = d.inbox[1];
            d.post(1, SendOp::Send, 16);
            d.post(2, SendOp::Send, len);
            d.post(3, SendOp::Send, 1);
            d.run();
            assert_eq!(d.done(0), [(1, Success), (2, RemInvReqErr), (3, WrFlushErr)]);
            assert_eq!(d.done(1), [(1, Success), (2, LocLenErr), (4, WrFlushErr)]);
            assert_eq!(d.states(), [QpState::Err; 2]);
            // Nothing beyond the receive WQE's end. In IRN the message after it may be in place by now.
            assert!(d.bytes(&inbox)[2 * 4096 + room as usize..4 * 4096].iter().all(|&b| b == 0));
            assert!(d.bytes(&inbox)[4 * 4096 + 1..].iter().all(|&b| b == 0));
        }
    });
}

#[test]
fn a_receive_wqe_with_a_bad_key_is_an_operational_error() {
    everywhere(|case| {
        for (spoil, len) in [(0, 100), (1, 5000), (2, 100)] {
            let mut d = Duo::new(case);
            let mut sge = Sge { addr: d.inbox[1].addr, len: 8192, lkey: d.inbox[1].lkey };
            match spoil {
                0 => sge.lkey ^= 1,
                1 => sge.addr += d.inbox[1].len - 4096,
                _ => {
                    // Readable only.
                    let pd = d.ends[1].pd;
                    let mr = d.net.nics[1].alloc_mr(pd, 8192, irnic_transports::qp::Access(0)).unwrap();
                    sge = Sge { addr: mr.addr, len: 8192, lkey: mr.lkey };
                }
            }
            let qpn = d.ends[1].qpn;
            d.recv(0, 100);
            d.net.nics[1].post_recv(qpn, &RecvWr { wr_id: 1, sges: &[sge] }).unwrap();
            d.recv(2, 100);
            d.post(0, SendOp::Send, 10);
            d.post(1, SendOp::Send, len);
            d.post(2, SendOp::Write, 10);
            d.run();
            assert_eq!(d.done(0), [(0, Success), (1, RemOpErr), (2, WrFlushErr)]);
            assert_eq!(d.done(1), [(0, Success), (1, LocProtErr), (2, WrFlushErr)]);
            assert_eq!(d.states(), [QpState::Err; 2]);
            assert!(d.net.nics[1].counters().local_protection_errors > 0);
        }
    });
}

#[test]
fn no_read_or_atomic_is_served_without_resources() {
    everywhere(|case| {
        for op in [SendOp::Read, SendOp::FetchAdd { add: 1 }, SendOp::CompareSwap { compare: 0, swap: 1 }] {
            let mut d = Duo::new(case);
            // The responder is configured with 0, the requester with 4.
            reconnect(&mut d, 0);
            let before = d.memory();
            d.post(1, SendOp::Write, 0);
            d.post(2, op, 8);
            d.post(3, SendOp::Write, 8);
            d.run();
            assert_eq!(d.done(0), [(1, Success), (2, RemInvReqErr), (3, WrFlushErr)]);
            assert_eq!(d.events(1), [Event::QpRequestError(d.ends[1].qpn)]);
            assert_eq!(d.states(), [QpState::Err; 2]);
            if !case.irn() {
                assert_eq!(d.memory(), before);
            }
        }
    });
}

/// Reconnects, with `depth` READs allowed at end 1.
fn reconnect(d: &mut Duo, depth: u8) {
    for i in [0, 1] {
        d.to(i, QpState::Reset);
        for mut attr in crate::common::attributes(&d.connection, d.ends[i], d.ends[1 - i], i) {
            if i == 1 {
                attr.max_dest_rd_atomic = attr.max_dest_rd_atomic.map(|_| depth);
            }
            d.modify(i, attr);
        }
    }
}

#[test]
fn more_reads_than_agreed_are_an_invalid_request() {
    calm(|case| {
        let mut d = Duo::new(case);
        reconnect(&mut d, 2);
        for id in 0..4 {
            d.post(id, SendOp::Read, 1 << 17);
        }
        // All four requests at once, before the responder runs.
        let [a, b] = &mut d.net.nics[..] else { unreachable!() };
        irnic_nic::loopback(d.net.now, a, b, 10);
        d.run();
        let done = d.done(0);
        assert_eq!(done.iter().map(|&(id, _)| id).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(done[2..], [(2, RemInvReqErr), (3, WrFlushErr)], "{done:?}");
        assert_eq!(d.states(), [QpState::Err; 2]);
        assert_eq!(d.events(1), [Event::QpRequestError(d.ends[1].qpn)]);
    });
}

/// Returns the next request of end 0 that end 1 expects, as headers.
fn forged(d: &Duo, case: &Case, opcode: Opcode) -> Headers {
    let mut h = Headers::new(Bth::new(opcode, d.ends[1].qpn, d.connection.psn[0]));
    h.bth.irn_capable = case.irn();
    if case.irn() {
        h.irn = Some(match opcode.operation() {
            irnic_transports::wire::opcode::Operation::Send => IrnEth::Send { recv_wqe_sn: Psn::new(0), psn_offset: 0 },
            irnic_transports::wire::opcode::Operation::Write if opcode.has_imm() => {
                IrnEth::WriteImm { recv_wqe_sn: Psn::new(0), psn_offset: 0 }
            }
            irnic_transports::wire::opcode::Operation::Write => IrnEth::Write,
            _ => IrnEth::Read { read_wqe_sn: Psn::new(0) },
        });
    }
    h
}

fn invalid(case: &Case, make: impl FnOnce(&Duo) -> (Headers, Vec<u8>)) {
    let mut d = Duo::new(case);
    d.recv(1, 8192);
    let before = d.memory();
    let (headers, payload) = make(&d);
    d.inject(1, headers, &payload);
    assert_eq!(d.state(1), QpState::Err, "{headers:?}");
    assert_eq!(d.done(1), [(1, WrFlushErr)]);
    assert_eq!(d.events(1), [Event::QpRequestError(d.ends[1].qpn)]);
    assert_eq!(d.memory(), before);
}

#[test]
fn malformed_requests_are_invalid() {
    calm(|case| {
        let reth = |d: &Duo, len| Some(Reth { va: d.mem[1].addr, rkey: d.mem[1].rkey, len });
        for opcode in [Opcode::RcCompareSwap, Opcode::RcFetchAdd] {
            invalid(case, |d| {
                let mut h = forged(d, case, opcode);
                h.atomic = Some(AtomicEth { va: d.mem[1].addr + 4, rkey: d.mem[1].rkey, swap_add: 1, compare: 0 });
                (h, vec![])
            });
        }
        for (opcode, len) in
            [(Opcode::RcSendFirst, 1000), (Opcode::RcSendFirst, 0), (Opcode::RcSendOnly, 1028), (Opcode::RcSendLast, 0)]
        {
            invalid(case, |d| (forged(d, case, opcode), vec![1; len]));
        }
        for (opcode, len, total) in [
            (Opcode::RcWriteFirst, 1024, 1024),
            (Opcode::RcWriteFirst, 1000, 2000),
            (Opcode::RcWriteOnly, 100, 99),
            (Opcode::RcWriteOnly, 100, 101),
            (Opcode::RcWriteOnly, 1028, 1028),
        ] {
            invalid(case, |d| {
                let mut h = forged(d, case, opcode);
                h.reth = reth(d, total);
                (h, vec![1; len])
            });
        }
        invalid(case, |d| {
            let mut h = forged(d, case, Opcode::RcReadRequest);
            h.reth = reth(d, (1 << 30) + 1);
            (h, vec![])
        });
        if !case.irn() {
            // The middle of no message.
            for opcode in [Opcode::RcSendMiddle, Opcode::RcSendLast, Opcode::RcWriteMiddle, Opcode::RcWriteLast] {
                invalid(case, |d| (forged(d, case, opcode), vec![1; 1024]));
            }
        } else {
            // A packet that claims to start a message in its middle, or the reverse; a receive WQE out of order.
            for (opcode, sn, offset) in
                [(Opcode::RcSendFirst, 0, 1), (Opcode::RcSendMiddle, 0, 0), (Opcode::RcSendFirst, 1, 0)]
            {
                invalid(case, |d| {
                    let mut h = forged(d, case, opcode);
                    h.irn = Some(IrnEth::Send { recv_wqe_sn: Psn::new(sn), psn_offset: offset });
                    (h, vec![1; 1024])
                });
            }
            invalid(case, |d| {
                let mut h = forged(d, case, Opcode::RcReadRequest);
                h.reth = reth(d, 10);
                h.irn = Some(IrnEth::Read { read_wqe_sn: Psn::new(1) });
                (h, vec![])
            });
        }
    });
}

/// Two messages interleaved (plain): the second cannot start within the first.
#[test]
fn a_message_within_a_message_is_invalid() {
    let case = Case { transport: "roce", impairments: "delay 5us", seed: 1 };
    let mut d = Duo::new(&case);
    d.recv(1, 8192);
    d.inject(1, forged(&d, &case, Opcode::RcSendFirst), &[1; 1024]);
    assert_eq!(d.state(1), QpState::Rts);
    let mut second = forged(&d, &case, Opcode::RcSendOnly);
    second.bth.psn = second.bth.psn.plus(1);
    d.inject(1, second, &[1; 10]);
    assert_eq!(d.state(1), QpState::Err);
    assert_eq!(d.done(1), [(1, WrFlushErr)]);
}
