//! Remote access errors: the requester lacks the required access to the peer's memory (IBA 9.7.5.2.4).

use irnic_nic::Mr;
use irnic_transports::Psn;
use irnic_transports::qp::{Access, Event, QpState, SendOp, WcStatus::*};

use crate::common::attributes;
use crate::kit::{Case, Duo, calm, everywhere};

const OPS: [(SendOp, u32); 5] = [
    (SendOp::Write, 3000),
    (SendOp::WriteImm(5), 3000),
    (SendOp::Read, 3000),
    (SendOp::FetchAdd { add: 1 }, 8),
    (SendOp::CompareSwap { compare: 0, swap: 1 }, 8),
];

/// A good WRITE, the bad request, a good WRITE: requests before succeed, those after are flushed, nothing else changes.
fn refused(case: &Case, op: SendOp, len: u32, prepare: impl FnOnce(&mut Duo) -> (u64, u32)) {
    let mut d = Duo::new(case);
    refused_on(&mut d, op, len, prepare);
}

fn refused_on(d: &mut Duo, op: SendOp, len: u32, prepare: impl FnOnce(&mut Duo) -> (u64, u32)) {
    d.recv(1, 4096);
    d.recv(2, 4096);
    let (addr, rkey) = prepare(d);
    let before = d.memory();
    d.post(0, SendOp::Send, 10);
    d.post_with(1, op, len, |wr| (wr.remote_addr, wr.rkey) = (addr, rkey));
    d.post(2, SendOp::Write, 10);
    d.post(3, SendOp::Read, 10);
    d.run();
    assert_eq!(d.done(0), [(0, Success), (1, RemAccessErr), (2, WrFlushErr), (3, WrFlushErr)], "{op:?}");
    assert_eq!(d.done(1), [(1, Success), (2, WrFlushErr)], "{op:?}");
    assert_eq!(d.states(), [QpState::Err; 2]);
    assert_eq!(d.events(1), [Event::QpAccessError(d.ends[1].qpn)]);
    assert_eq!(d.events(0), []);
    let after = d.memory();
    let changed: Vec<usize> = (0..before.len()).filter(|&i| before[i] != after[i]).collect();
    // Ten bytes of the SEND, in the inbox of end 1.
    let inbox = before.len() - before.len() / 4 + 4096;
    let legal = inbox..inbox + 10;
    // IRN may place the WRITE that follows before it learns of the refusal (§4.4.3).
    let early = before.len() / 4..before.len() / 4 + 10;
    let may = |i: &usize| legal.contains(i) || (d.connection.transport[0].knows_irn() && early.contains(i));
    assert!(changed.iter().all(may), "{op:?} changed memory at {:?}", changed.iter().find(|i| !may(i)));
    assert_eq!(d.net.nics[0].counters().req_remote_errors, 1);
}

#[test]
fn an_unknown_rkey_is_refused() {
    everywhere(|case| {
        for (op, len) in OPS {
            refused(case, op, len, |d| (d.mem[1].addr, d.mem[1].rkey ^ 1));
        }
    });
}

#[test]
fn a_region_of_another_protection_domain_is_refused() {
    calm(|case| {
        for (op, len) in OPS {
            refused(case, op, len, |d| {
                let pd = d.net.nics[1].alloc_pd().unwrap();
                let mr = d.net.nics[1].alloc_mr(pd, 1 << 16, crate::kit::EVERYTHING).unwrap();
                (mr.addr, mr.rkey)
            });
        }
    });
}

#[test]
fn one_byte_out_of_bounds_is_refused_at_both_ends() {
    calm(|case| {
        for (op, len) in OPS {
            let step = if len == 8 { 8 } else { 1 };
            refused(case, op, len, |d| (d.mem[1].addr - step, d.mem[1].rkey));
            refused(case, op, len, |d| (d.mem[1].addr + d.mem[1].len - u64::from(len) + step, d.mem[1].rkey));
            // The end of the address space.
            refused(case, op, len, |d| (u64::MAX - 7, d.mem[1].rkey));
            // The last bytes inside are valid.
            let mut d = Duo::new(case);
            d.recv(1, 4096);
            let addr = d.mem[1].addr + d.mem[1].len - u64::from(len);
            d.post_with(1, op, len, |wr| wr.remote_addr = addr);
            d.run();
            assert_eq!(d.done(0), [(1, Success)]);
        }
    });
}

/// Returns the right that the peer must grant for an operation.
fn right_for(op: SendOp) -> Access {
    match op {
        SendOp::Write | SendOp::WriteImm(_) => Access::REMOTE_WRITE,
        SendOp::Read => Access::REMOTE_READ,
        _ => Access::REMOTE_ATOMIC,
    }
}

#[test]
fn each_operation_needs_its_right_on_the_region() {
    calm(|case| {
        for (op, len) in OPS {
            let right = right_for(op);
            let only = |d: &mut Duo, access: Access| -> Mr {
                let pd = d.ends[1].pd;
                d.net.nics[1].alloc_mr(pd, 4096, access | Access::LOCAL_WRITE).unwrap()
            };
            refused(case, op, len, |d| {
                let mr = only(d, Access(14 & !right.0));
                (mr.addr, mr.rkey)
            });
            let mut d = Duo::new(case);
            d.recv(1, 4096);
            let mr = only(&mut d, right);
            d.post_with(1, op, len, |wr| (wr.remote_addr, wr.rkey) = (mr.addr, mr.rkey));
            d.run();
            assert_eq!(d.done(0), [(1, Success)], "{op:?}");
        }
    });
}

#[test]
fn the_queue_pair_itself_must_allow_the_operation() {
    calm(|case| {
        for (op, len) in OPS {
            let right = right_for(op);
            let mut d = Duo::with(case, |c| c.access = Access(15 & !right.0));
            d.recv(1, 4096);
            d.post(1, op, len);
            d.run();
            assert_eq!(d.done(0), [(1, RemInvReqErr)]);
            assert_eq!(d.done(1), [(1, WrFlushErr)]);
            assert_eq!(d.states(), [QpState::Err; 2]);
            // Rights are revoked and restored in RTS.
            let mut d = Duo::with(case, |c| c.access = Access(0));
            d.modify(1, irnic_transports::qp::QpAttr { access: Some(right), ..Default::default() });
            d.recv(1, 4096);
            d.post(1, op, len);
            d.run();
            assert_eq!(d.done(0), [(1, Success)]);
        }
    });
}

#[test]
fn a_region_that_was_deregistered_is_refused() {
    everywhere(|case| {
        for (op, len) in OPS {
            refused(case, op, len, |d| {
                let pd = d.ends[1].pd;
                let mr = d.net.nics[1].alloc_mr(pd, 4096, crate::kit::EVERYTHING).unwrap();
                d.net.nics[1].dereg_mr(&mr).unwrap();
                (mr.addr, mr.rkey)
            });
        }
    });
}

/// The request has arrived; the region is deregistered before all of the response is sent.
#[test]
fn a_read_whose_region_goes_between_request_and_response_is_refused() {
    everywhere(|case| {
        let mut d = Duo::new(case);
        let pd = d.ends[1].pd;
        let mr = d.net.nics[1].alloc_mr(pd, 1 << 18, crate::kit::EVERYTHING).unwrap();
        let target = d.net.nics[0].alloc_mr(d.ends[0].pd, 1 << 18, crate::kit::EVERYTHING).unwrap();
        let sges = [irnic_transports::qp::Sge { addr: target.addr, len: 1 << 18, lkey: target.lkey }];
        d.post(0, SendOp::Read, 2000);
        let wr = crate::kit::wr(1, SendOp::Read, &sges, &mr);
        d.net.nics[0].post_send(d.ends[0].qpn, &wr).unwrap();
        d.post(2, SendOp::Write, 5);
        // Long enough that the cap (IRN), or a slow port (plain), holds part of the response back.
        d.net.send();
        let mut held = 0;
        while d.net.nics[1].counters().rx_read_requests < 2 {
            d.net.step();
            held += 1;
            assert!(held < 100_000);
        }
        if !case.irn() {
            // Plain RoCE has sent everything by now; lose packets in flight, so that it is requested again.
            d.net.tamper = Some(Box::new(|from, _| from == 0));
        }
        d.net.nics[1].dereg_mr(&mr).unwrap();
        d.steps(20);
        d.net.tamper = None;
        d.run();
        let done = d.done(0);
        let last: Vec<_> = done.iter().map(|&(_, s)| s).collect();
        // Plain: all of it may have been sent before deregistration.
        let arrived = !case.irn() && last == [Success, Success, Success];
        assert!(arrived || (last[1] == RemAccessErr && last[2] == WrFlushErr), "{done:?}");
        assert!(arrived || d.state(0) == QpState::Err);
        if case.irn() && !case.lossy() {
            assert_eq!(d.states(), [QpState::Err; 2]);
            assert_eq!(d.events(1), [Event::QpAccessError(d.ends[1].qpn)]);
            assert_eq!(last[0], Success);
        }
    });
}

/// A READ is complete for the requester when its last response has arrived, though the responder may not know yet.
/// Deregistering the region is then no error.
#[test]
fn a_region_may_go_once_the_requester_has_what_it_asked_for() {
    for seed in 0..if cfg!(debug_assertions) { 10 } else { 100 } {
        let case = Case { transport: "irn", impairments: "delay 5us 4us loss 30% limit 10000", seed };
        let mut d = Duo::with(&case, |c| c.timeout = 12);
        let pd = d.ends[1].pd;
        let mr = d.net.nics[1].alloc_mr(pd, 8192, crate::kit::EVERYTHING).unwrap();
        d.post_with(0, SendOp::Read, 5000, |wr| (wr.remote_addr, wr.rkey) = (mr.addr, mr.rkey));
        while d.done(0).is_empty() {
            assert!(d.net.step());
        }
        d.net.nics[1].dereg_mr(&mr).unwrap();
        d.run();
        d.recv(1, 100);
        d.post(1, SendOp::Send, 10);
        d.post(2, SendOp::Read, 3000);
        d.run();
        assert_eq!(d.done(0), [(1, Success), (2, Success)], "seed {seed}");
        assert_eq!(d.done(1), [(1, Success)]);
        assert_eq!(d.states(), [QpState::Rts; 2]);
    }
}

/// The refusal must reach the requester, however often it is lost.
#[test]
fn a_lost_refusal_is_repeated() {
    calm(|case| {
        for (op, len) in OPS {
            let mut d = Duo::with(case, |c| c.timeout = 6);
            d.recv(1, 4096);
            let mut naks = 0;
            d.net.tamper = Some(Box::new(move |from, frame| {
                let (h, _) = irnic_transports::wire::parse(frame).unwrap();
                if from == 1 && h.aeth.is_some_and(|a| a.syndrome & 0x60 == 0x60 && a.syndrome & 0x1f != 0) {
                    naks += 1;
                    return naks > 4;
                }
                true
            }));
            d.post_with(1, op, len, |wr| wr.rkey ^= 1);
            d.run();
            assert_eq!(d.done(0), [(1, RemAccessErr)]);
        }
    });
}

/// READs and atomics accepted before the refused request are answered first (IBA 9.7.4.1.2: in order).
#[test]
fn what_was_asked_before_the_refused_request_is_answered_first() {
    everywhere(|case| {
        for len in [1000, 100_000] {
            let mut d = Duo::new(case);
            d.post(0, SendOp::Read, len);
            d.post(1, SendOp::Read, 5000);
            d.post_with(2, SendOp::Write, 10, |wr| wr.rkey ^= 1);
            d.post(3, SendOp::Read, 10);
            d.run();
            let done = d.done(0);
            assert_eq!(d.states(), [QpState::Err; 2]);
            assert_eq!(done[2..], [(2, RemAccessErr), (3, WrFlushErr)]);
            if case.lossy() && !case.irn() && done[1].1 == WrFlushErr {
                // Plain responses are not retransmitted on their own: a lost one is lost with the queue pair.
                continue;
            }
            assert_eq!(done[..2], [(0, Success), (1, Success)]);
            let data = d.bytes(&d.mem[0])[..len as usize].to_vec();
            assert_eq!(data[5000.min(len as usize)..], d.bytes(&d.mem[1])[5000.min(len as usize)..len as usize]);
        }
    });
}

#[test]
fn a_refusal_is_final_until_the_queue_pair_is_reset() {
    calm(|case| {
        let mut d = Duo::new(case);
        d.post_with(1, SendOp::Write, 10, |wr| wr.rkey ^= 1);
        d.run();
        assert_eq!(d.done(0), [(1, RemAccessErr)]);
        d.connection.psn = [Psn::new(0x123456), Psn::new(0xff_ffff)];
        for i in [0, 1] {
            d.to(i, QpState::Reset);
        }
        for i in [0, 1] {
            for attr in attributes(&d.connection, d.ends[i], d.ends[1 - i], i) {
                d.modify(i, attr);
            }
        }
        d.recv(5, 100);
        d.post(2, SendOp::Write, 5000);
        d.post(3, SendOp::Read, 5000);
        d.post(4, SendOp::Send, 50);
        d.run();
        assert_eq!(d.done(0), [(2, Success), (3, Success), (4, Success)]);
        assert_eq!(d.done(1), [(5, Success)]);
    });
}
