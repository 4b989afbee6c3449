//! Receivers that are not ready: RNR NAKs, retries, credits, probes.

use irnic_transports::qp::{QpState, SendOp, WcStatus::*};
use irnic_transports::wire::{Opcode, RnrTimer, Syndrome};

use crate::kit::{Case, Duo, calm, everywhere};

#[test]
fn a_send_that_found_no_receive_wqe_succeeds_once_there_is_one() {
    everywhere(|case| {
        for op in [SendOp::Send, SendOp::SendImm(9), SendOp::WriteImm(9)] {
            for len in [0, 100, 5000] {
                let mut d = Duo::new(case);
                d.post(1, op, len);
                d.run_for(300_000);
                assert_eq!((d.done(0), d.done(1)), (vec![], vec![]));
                d.recv(7, 8192);
                d.run();
                assert_eq!((d.done(0), d.done(1)), (vec![(1, Success)], vec![(7, Success)]));
                assert!(case.lossy() || d.net.nics[0].counters().rnr_nak_retry_err > 0);
                assert_eq!(d.states(), [QpState::Rts; 2]);
            }
        }
    });
}

#[test]
fn rnr_retries_are_as_many_as_the_attribute_says() {
    calm(|case| {
        for rnr_retry in 0..7 {
            let mut d = Duo::with(case, |c| c.rnr_retry = rnr_retry);
            d.recv(1, 100);
            d.post(0, SendOp::Write, 3000);
            d.post(1, SendOp::Send, 100);
            d.post(2, SendOp::Send, 100);
            d.post(3, SendOp::Read, 100);
            let start = d.net.now;
            d.run();
            assert_eq!(
                d.done(0),
                [(0, Success), (1, Success), (2, RnrRetryExcErr), (3, WrFlushErr)],
                "retries {rnr_retry}"
            );
            assert_eq!(d.done(1), [(1, Success)]);
            assert_eq!(d.states(), [QpState::Err, QpState::Rts]);
            assert_eq!(d.net.nics[1].counters().out_of_buffer, u64::from(rnr_retry) + 1);
            assert_eq!(d.net.nics[0].counters().rnr_retry_exceeded_err, 1);
            // Each retry waits as long as the NAK says.
            assert!(d.net.now.since(start) >= u64::from(rnr_retry) * RnrTimer::new(3).nanos());
            assert_eq!(d.events(0), []);
        }
    });
}

#[test]
fn seven_rnr_retries_are_for_ever() {
    everywhere(|case| {
        let mut d = Duo::new(case);
        d.post(1, SendOp::Send, 100);
        d.run_for(60 * RnrTimer::new(3).nanos());
        assert!(case.lossy() || d.net.nics[0].counters().rnr_nak_retry_err > 20);
        assert_eq!(d.states(), [QpState::Rts; 2]);
        d.recv(1, 100);
        d.run();
        assert_eq!((d.done(0), d.done(1)), (vec![(1, Success)], vec![(1, Success)]));
    });
}

#[test]
fn rnr_retries_count_afresh_after_progress() {
    calm(|case| {
        let mut d = Duo::with(case, |c| c.rnr_retry = 6);
        for id in 0..5 {
            d.post(id, SendOp::Send, 100);
        }
        for id in 0..5 {
            // Some of six retries are used up each time.
            d.run_for(2 * RnrTimer::new(3).nanos() + 25_000);
            assert_eq!(d.state(0), QpState::Rts);
            d.recv(id, 100);
            d.run_for(RnrTimer::new(3).nanos() + 25_000);
            assert_eq!(d.done(0), [(id, Success)]);
        }
    });
}

#[test]
fn a_read_under_way_still_completes_when_rnr_retries_run_out() {
    calm(|case| {
        let mut d = Duo::with(case, |c| c.rnr_retry = 0);
        d.post(1, SendOp::Read, 1 << 16);
        d.post(2, SendOp::Send, 10);
        d.post(3, SendOp::Write, 10);
        d.run();
        assert_eq!(d.done(0), [(1, Success), (2, RnrRetryExcErr), (3, WrFlushErr)]);
    });
}

#[test]
fn an_exhausted_shared_receive_queue_is_not_ready() {
    for transport in ["roce", "irn"] {
        let net = crate::common::Network::new(2, "delay 5us", 1, &Default::default());
        let mut d = Duo::on(net, crate::kit::connection(transport), true);
        d.recv(0, 100);
        for id in 0..3 {
            d.post(id, SendOp::Send, 100);
        }
        d.run_for(200_000);
        assert_eq!(d.done(0), [(0, Success)]);
        assert!(d.net.nics[1].counters().out_of_buffer > 0);
        d.recv(1, 100);
        d.recv(2, 100);
        d.run();
        assert_eq!(d.done(0), [(1, Success), (2, Success)]);
        assert_eq!(d.done(1), [(0, Success), (1, Success), (2, Success)]);
    }
}

/// Records the opcodes that end 0 has sent.
fn spy(d: &mut Duo) -> std::sync::Arc<std::sync::Mutex<Vec<Opcode>>> {
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let log = seen.clone();
    d.net.tamper = Some(Box::new(move |from, frame| {
        if from == 0 {
            log.lock().unwrap().push(Opcode::from_u8(frame[0]).unwrap());
        }
        true
    }));
    seen
}

fn credit_case(case: &Case) -> Duo {
    let mut d = Duo::with(case, |c| c.min_rnr_timer = 0);
    d.recv(0, 8192);
    d.post(0, SendOp::Send, 10);
    d.run();
    assert_eq!(d.done(0), [(0, Success)]);
    d
}

#[test]
fn a_requester_without_credit_sends_a_probe_only() {
    calm(|case| {
        for (op, len, packets) in [(SendOp::Send, 5000, 1), (SendOp::WriteImm(3), 5000, 5), (SendOp::Send, 10, 1)] {
            let mut d = credit_case(case);
            let seen = spy(&mut d);
            d.post(1, op, len);
            d.post(2, op, len);
            d.run_for(100_000);
            assert_eq!(seen.lock().unwrap().len(), packets, "{op:?} of {len} bytes");
            // The RNR NAK asked for 655 ms; without one the credit update alone has to wake the requester.
            d.recv(1, 8192);
            d.recv(2, 8192);
            d.run();
            assert_eq!(d.done(0), [(1, Success), (2, Success)]);
            assert_eq!(d.done(1), [(0, Success), (1, Success), (2, Success)]);
        }
    });
}

#[test]
fn a_credit_update_wakes_a_requester_that_waits_for_credit() {
    calm(|case| {
        let mut d = Duo::with(case, |c| c.min_rnr_timer = 1);
        d.recv(0, 8192);
        d.post(0, SendOp::Send, 10);
        d.run();
        let naks = |d: &Duo| d.net.nics[0].counters().rnr_nak_retry_err;
        // A long WRITE first, so that a SEND behind it waits for credit instead of being the one probe.
        d.post(1, SendOp::Write, 100_000);
        d.post(2, SendOp::Write, 100);
        d.post(3, SendOp::Send, 10);
        d.steps(4);
        assert_eq!(naks(&d), 0);
        d.recv(1, 100);
        d.run();
        assert_eq!(naks(&d), 0, "the SEND went with credit");
        assert_eq!(d.done(0), [(0, Success), (1, Success), (2, Success), (3, Success)]);
    });
}

#[test]
fn acknowledgements_carry_the_credits_that_are_left() {
    calm(|case| {
        let mut d = Duo::new(case);
        let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let log = seen.clone();
        d.net.tamper = Some(Box::new(move |from, frame| {
            let (headers, _) = irnic_transports::wire::parse(frame).unwrap();
            if from == 1
                && let Some(Syndrome::Ack { credits }) = headers.aeth.and_then(|a| Syndrome::from_u8(a.syndrome))
            {
                log.lock().unwrap().push((credits.count(), headers.aeth.unwrap().msn.get()));
            }
            true
        }));
        for id in 0..4 {
            d.recv(id, 100);
        }
        for id in 0..4 {
            d.post(id, SendOp::Send, 1);
            d.run();
        }
        assert_eq!(*seen.lock().unwrap(), [(Some(3), 1), (Some(2), 2), (Some(1), 3), (Some(0), 4)]);
    });
}
