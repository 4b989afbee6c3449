//! Errors of the requester: missing memory, invalid work requests.

use irnic_transports::qp::{Access, PostError, QpState, RecvWr, SendData, SendOp, Sge, WcStatus::*};

use crate::kit::{Duo, EVERYTHING, calm, everywhere, wr};

/// How a local element is made invalid.
#[derive(Copy, Clone, Debug)]
enum Spoil {
    Key,
    Below,
    Above,
    Domain,
    Right,
}

fn spoiled(d: &mut Duo, how: Spoil, len: u32) -> Sge {
    let mut sge = d.sge(0, 0, len);
    match how {
        Spoil::Key => sge.lkey ^= 0x100,
        Spoil::Below => sge.addr -= 1,
        Spoil::Above => sge.addr += d.mem[0].len - u64::from(len) + 1,
        Spoil::Domain => {
            let pd = d.net.nics[0].alloc_pd().unwrap();
            let mr = d.net.nics[0].alloc_mr(pd, 1 << 16, EVERYTHING).unwrap();
            sge = Sge { addr: mr.addr, len, lkey: mr.lkey };
        }
        Spoil::Right => {
            let mr = d.net.nics[0].alloc_mr(d.ends[0].pd, 1 << 16, Access(0)).unwrap();
            sge = Sge { addr: mr.addr, len, lkey: mr.lkey };
        }
    }
    sge
}

#[test]
fn a_bad_source_or_destination_fails_in_its_turn() {
    everywhere(|case| {
        for op in [SendOp::Send, SendOp::WriteImm(1), SendOp::Write, SendOp::Read, SendOp::FetchAdd { add: 0 }] {
            for how in [Spoil::Key, Spoil::Below, Spoil::Above, Spoil::Domain, Spoil::Right] {
                let len = if matches!(op, SendOp::FetchAdd { .. }) { 8 } else { 3000 };
                if matches!(how, Spoil::Right) && !op.is_read_or_atomic() {
                    continue;
                }
                if case.lossy() && matches!(how, Spoil::Below | Spoil::Domain) {
                    continue;
                }
                let mut d = Duo::new(case);
                d.recv(0, 4096);
                d.recv(1, 4096);
                let sges = [spoiled(&mut d, how, len)];
                d.post(0, SendOp::Read, 20_000);
                d.post(1, SendOp::Send, 10);
                let bad = wr(2, op, &sges, &d.mem[1]);
                d.net.nics[0].post_send(d.ends[0].qpn, &bad).unwrap();
                d.post(3, SendOp::Write, 10);
                let peer = d.bytes(&d.mem[1]).to_vec();
                d.run();
                assert_eq!(d.done(0), [(0, Success), (1, Success), (2, LocProtErr), (3, WrFlushErr)], "{op:?} {how:?}");
                assert_eq!(d.done(1), [(0, Success)], "the peer saw the first SEND only");
                assert_eq!(d.states(), [QpState::Err, QpState::Rts]);
                // READs and atomics fail when their response arrives: the WRITE behind them is complete by then. Of a
                // source that ends too early, the packets before its end arrive.
                let from = if op.is_read_or_atomic() || matches!(how, Spoil::Above) { 3000 } else { 0 };
                assert!(d.bytes(&d.mem[1])[from..] == peer[from..], "{op:?} {how:?}");
                assert_eq!(d.net.nics[0].counters().local_protection_errors, 1);
                assert_eq!(d.events(0), []);
            }
        }
    });
}

#[test]
fn a_source_that_goes_in_the_middle_of_a_message_fails_it() {
    everywhere(|case| {
        let mut d = Duo::new(case);
        let mr = d.net.nics[0].alloc_mr(d.ends[0].pd, 8 << 20, EVERYTHING).unwrap();
        let far = d.net.nics[1].alloc_mr(d.ends[1].pd, 8 << 20, EVERYTHING).unwrap();
        let sges = [Sge { addr: mr.addr, len: 8 << 20, lkey: mr.lkey }];
        d.post(0, SendOp::Write, 10);
        let long = wr(1, SendOp::Write, &sges, &far);
        d.net.nics[0].post_send(d.ends[0].qpn, &long).unwrap();
        d.steps(5);
        d.net.nics[0].dereg_mr(&mr).unwrap();
        d.run();
        assert_eq!(d.done(0), [(0, Success), (1, LocProtErr)]);
        assert_eq!(d.states(), [QpState::Err, QpState::Rts]);
    });
}

#[test]
fn each_kind_of_bad_work_request_is_refused_when_posted() {
    calm(|case| {
        let mut d = Duo::with(case, |c| c.depth = 4);
        let qpn = d.ends[0].qpn;
        let (mem, remote) = (d.mem[0], d.mem[1]);
        let sge = |len| Sge { addr: mem.addr, len, lkey: mem.lkey };
        let mut post = |op, data: SendData, addr| {
            let mut w = wr(9, op, &[], &remote);
            (w.data, w.remote_addr) = (data, remote.addr + addr);
            d.net.nics[0].post_send(qpn, &w)
        };
        let five = [sge(1); 5];
        let atomic = SendOp::FetchAdd { add: 1 };
        assert_eq!(post(SendOp::Send, SendData::Sges(&five), 0), Err(PostError::TooManySges { given: 5, max: 4 }));
        assert_eq!(
            post(SendOp::Write, SendData::Inline(&[0; 257]), 0),
            Err(PostError::InlineTooLong { given: 257, max: 256 })
        );
        assert_eq!(post(SendOp::Read, SendData::Inline(&[0; 8]), 0), Err(PostError::InlineOp));
        assert_eq!(post(atomic, SendData::Inline(&[0; 8]), 0), Err(PostError::InlineOp));
        let long = [sge(1 << 30), sge(1)];
        for op in [SendOp::Send, SendOp::Write, SendOp::Read] {
            assert_eq!(post(op, SendData::Sges(&long), 0), Err(PostError::MessageTooLong((1 << 30) + 1)));
        }
        let longest = [sge(u32::MAX); 4];
        let all = 4 * u64::from(u32::MAX);
        assert_eq!(post(SendOp::Send, SendData::Sges(&longest), 0), Err(PostError::MessageTooLong(all)));
        for len in [0, 7] {
            assert_eq!(post(atomic, SendData::Sges(&[sge(len)]), 0), Err(PostError::AtomicLength(len.into())));
        }
        assert_eq!(post(atomic, SendData::Sges(&[sge(8)]), 4), Err(PostError::AtomicAlignment(remote.addr + 4)));
        for _ in 0..4 {
            assert_eq!(post(SendOp::Write, SendData::Sges(&[sge(1)]), 0), Ok(()));
        }
        assert_eq!(post(SendOp::Write, SendData::Sges(&[sge(1)]), 0), Err(PostError::Full(4)));
        for n in 0..5 {
            let posted = d.net.nics[0].post_recv(qpn, &RecvWr { wr_id: n, sges: &five[..4] });
            assert_eq!(posted, if n < 4 { Ok(()) } else { Err(PostError::Full(4)) });
        }
        let qpn = d.ends[1].qpn;
        let posted = d.net.nics[1].post_recv(qpn, &RecvWr { wr_id: 1, sges: &five });
        assert_eq!(posted, Err(PostError::TooManySges { given: 5, max: 4 }));
        // None of the refused requests has left a trace.
        d.run();
        assert_eq!(d.done(0), [(9, Success); 4]);
        assert_eq!(d.states(), [QpState::Rts; 2]);
    });
}

#[test]
fn a_queue_pair_with_a_shared_receive_queue_has_none_of_its_own() {
    let net = crate::common::Network::new(2, "delay 5us", 1, &Default::default());
    let mut d = Duo::on(net, crate::kit::connection("irn"), true);
    let (qpn, srq) = (d.ends[1].qpn, d.connection.srq[1].unwrap());
    let nic = &mut d.net.nics[1];
    assert_eq!(nic.post_recv(qpn, &RecvWr { wr_id: 1, sges: &[] }), Err(PostError::HasSrq));
    let two = [Sge::default(); 2];
    let posted = nic.post_srq_recv(srq, &RecvWr { wr_id: 1, sges: &two });
    assert_eq!(posted, Err(PostError::TooManySges { given: 2, max: 1 }));
    for n in 0..65 {
        let posted = nic.post_srq_recv(srq, &RecvWr { wr_id: n, sges: &[] });
        assert_eq!(posted, if n < 64 { Ok(()) } else { Err(PostError::Full(64)) });
    }
}

#[test]
fn inline_bytes_may_change_after_posting() {
    everywhere(|case| {
        let mut d = Duo::new(case);
        let mut bytes = [1u8; 256];
        let mut w = wr(1, SendOp::Write, &[], &d.mem[1]);
        w.data = SendData::Inline(&bytes);
        d.net.nics[0].post_send(d.ends[0].qpn, &w).unwrap();
        bytes.fill(2);
        d.run();
        assert_eq!(bytes, [2; 256]);
        assert_eq!(d.done(0), [(1, Success)]);
        assert!(d.bytes(&d.mem[1])[..256].iter().all(|&b| b == 1));
    });
}
