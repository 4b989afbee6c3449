//! Invalidation, by the peer with a SEND and locally.

use irnic_transports::qp::{QpState, SendOp, WcStatus::*};

use crate::kit::{Duo, EVERYTHING, calm, everywhere};

#[test]
fn send_with_invalidate_takes_the_key_away_before_the_completion() {
    everywhere(|case| {
        let mut d = Duo::new(case);
        let rkey = d.window(1);
        d.recv(1, 8192);
        for id in 0..20 {
            d.post_with(id, SendOp::Write, 3000, |wr| (wr.remote_addr, wr.rkey) = (wr.remote_addr + 3000 * id, rkey));
        }
        d.post(20, SendOp::SendInvalidate(rkey), 3000);
        d.run();
        assert_eq!(d.done(0), (0..21).map(|id| (id, Success)).collect::<Vec<_>>());
        let wc = d.wcs[1].remove(0);
        assert_eq!((wc.wr_id, wc.status, wc.invalidated, wc.byte_len), (1, Success, Some(rkey), 3000));
        d.post_with(21, SendOp::Write, 10, |wr| wr.rkey = rkey);
        d.run();
        assert_eq!(d.done(0), [(21, RemAccessErr)]);
    });
}

#[test]
fn invalidating_a_wrong_key_fails_at_both_ends() {
    everywhere(|case| {
        for double in [false, true] {
            let mut d = Duo::new(case);
            let rkey = d.window(1);
            for id in 0..4 {
                d.recv(id, 4096);
            }
            if double {
                d.post(0, SendOp::SendInvalidate(rkey), 10);
            } else {
                d.post(0, SendOp::Send, 10);
            }
            d.post(1, SendOp::SendInvalidate(if double { rkey } else { rkey ^ 1 }), 10);
            d.post(2, SendOp::Send, 10);
            d.post(3, SendOp::Send, 10);
            d.run();
            assert_eq!(d.done(0), [(0, Success), (1, RemAccessErr), (2, WrFlushErr), (3, WrFlushErr)]);
            assert_eq!(d.done(1), [(0, Success), (1, RemInvReqErr), (2, WrFlushErr), (3, WrFlushErr)]);
            assert_eq!(d.states(), [QpState::Err; 2]);
        }
    });
}

/// A peer cannot revoke the key of a region, on which others rely.
#[test]
fn a_regions_key_is_invalidated_by_nobody() {
    everywhere(|case| {
        let mut d = Duo::new(case);
        let rkey = d.mem[1].rkey;
        d.recv(1, 64);
        d.post(1, SendOp::SendInvalidate(rkey), 10);
        d.run();
        assert_eq!((d.done(0), d.done(1)), (vec![(1, RemAccessErr)], vec![(1, RemInvReqErr)]));
        let mut d = Duo::new(case);
        let rkey = d.mem[0].rkey;
        d.post(1, SendOp::LocalInvalidate(rkey), 0);
        d.run();
        assert_eq!((d.done(0), d.state(0)), (vec![(1, LocQpOpErr)], QpState::Err));
    });
}

#[test]
fn a_key_of_another_domain_cannot_be_invalidated() {
    calm(|case| {
        let mut d = Duo::new(case);
        let pd = d.net.nics[1].alloc_pd().unwrap();
        let mr = d.net.nics[1].alloc_mr(pd, 64, EVERYTHING).unwrap();
        d.recv(1, 64);
        d.post(1, SendOp::SendInvalidate(mr.rkey), 10);
        d.run();
        assert_eq!((d.done(0), d.done(1)), (vec![(1, RemAccessErr)], vec![(1, RemInvReqErr)]));
    });
}

#[test]
fn a_local_invalidation_waits_for_everything_before_it() {
    everywhere(|case| {
        let mut d = Duo::new(case);
        let rkey = d.window(0);
        d.post(0, SendOp::Read, 30_000);
        d.post(1, SendOp::LocalInvalidate(rkey), 0);
        d.post(2, SendOp::LocalInvalidate(rkey ^ 1), 0);
        d.post(3, SendOp::Write, 10);
        d.run();
        assert_eq!(d.done(0), [(0, Success), (1, Success), (2, LocQpOpErr), (3, WrFlushErr)]);
        assert_eq!(d.state(0), QpState::Err);
    });
}

#[test]
fn a_key_invalidated_locally_is_of_no_use_to_the_peer() {
    everywhere(|case| {
        let mut d = Duo::new(case);
        let rkey = d.window(0);
        d.try_post(1, 7, SendOp::Write, 10, |wr| wr.rkey = rkey).unwrap();
        d.run();
        d.post_with(1, SendOp::LocalInvalidate(rkey), 0, |wr| wr.signaled = false);
        d.post(2, SendOp::Write, 10);
        d.run();
        // Local use continues.
        assert_eq!(d.done(0), [(2, Success)]);
        d.try_post(1, 8, SendOp::Write, 10, |wr| wr.rkey = rkey).unwrap();
        d.run();
        assert_eq!(d.done(1), [(7, Success), (8, RemAccessErr)]);
    });
}

#[test]
fn a_fence_waits_for_reads_and_atomics() {
    everywhere(|case| {
        for op in [SendOp::Read, SendOp::FetchAdd { add: 1 }] {
            for fenced in [SendOp::Write, SendOp::Send, SendOp::SendInvalidate(0)] {
                let mut d = Duo::new(case);
                let rkey = d.window(1);
                let fenced = if let SendOp::SendInvalidate(_) = fenced { SendOp::SendInvalidate(rkey) } else { fenced };
                d.recv(1, 8192);
                let len = if op == SendOp::Read { 5000 } else { 8 };
                let expected = d.bytes(&d.mem[1])[..len as usize].to_vec();
                d.post(1, op, len);
                // The data of the READ, or the previous value, is sent again.
                d.post_with(2, fenced, len, |wr| {
                    wr.fence = true;
                    wr.remote_addr += 50_000;
                });
                d.run();
                assert_eq!(d.done(0), [(1, Success), (2, Success)]);
                let got = if fenced == SendOp::Write {
                    d.bytes(&d.mem[1])[50_000..][..len as usize].to_vec()
                } else {
                    d.bytes(&d.inbox[1])[4096..][..len as usize].to_vec()
                };
                if op == SendOp::Read {
                    assert_eq!(got, expected);
                } else {
                    assert_eq!(got, expected, "the value before the addition");
                }
            }
        }
    });
}
