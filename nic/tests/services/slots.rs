//! Slots of queues: taken when a work request is posted, freed when a completion at or after it is polled.

use irnic_transports::qp::{PostError, QpState, RecvWr, SendOp, Service, Sge};

use crate::common::{Connection, Network};
use crate::kit::{Duo, completions};
use crate::setup::to;
use irnic_nic::NicConfig;

/// Returns a pair whose queues have as many slots as its connection specifies.
fn pair(service: Service, srq: bool) -> Duo {
    let c = Connection { service, depth: 4, ..Connection::default() };
    Duo::on(Network::new(2, "delay 5us limit 10000", 1, &NicConfig::default()), c, srq)
}

/// Posts sends until one is refused, at most ten. Returns how many were accepted.
fn fill(d: &mut Duo, signaled: bool) -> u64 {
    let there = to(d.ends[0], d.ends[1]);
    let op = if d.connection.service == Service::Ud { SendOp::Send } else { SendOp::Write };
    let mut taken = 0;
    while taken < 10 {
        match d.try_post(0, taken, op, 8, |wr| (wr.signaled, wr.to) = (signaled, Some(there))) {
            Ok(()) => taken += 1,
            Err(e) => {
                assert_eq!(e, PostError::Full(4));
                break;
            }
        }
        // Each is complete long before the next.
        while d.net.step() {}
    }
    taken
}

/// Takes one completion of an end.
fn poll_one(d: &mut Duo, end: usize) {
    let mut wcs = [irnic_transports::qp::Wc::EMPTY; 1];
    let end = d.ends[end];
    assert_eq!(d.net.nics[end.nic].poll_cq(end.cq, &mut wcs), Ok(1));
}

#[test]
fn sends_keep_their_slots_until_their_completions_are_polled() {
    for service in [Service::Rc, Service::Uc, Service::Ud] {
        let mut d = pair(service, false);
        assert_eq!(fill(&mut d, true), 4, "{service:?}");
        poll_one(&mut d, 0);
        assert_eq!(fill(&mut d, true), 1, "{service:?}");
        assert_eq!(completions(&mut d.net, d.ends[0]).len(), 4);
        assert_eq!(fill(&mut d, true), 4, "{service:?}");
    }
}

#[test]
fn a_queue_that_nobody_signals_stays_full() {
    for service in [Service::Rc, Service::Uc, Service::Ud] {
        let mut d = pair(service, false);
        assert_eq!((fill(&mut d, false), fill(&mut d, false)), (4, 0), "{service:?}");
        // The signaled one frees those before it.
        let mut d = pair(service, false);
        let there = to(d.ends[0], d.ends[1]);
        let op = if service == Service::Ud { SendOp::Send } else { SendOp::Write };
        for id in 0..4 {
            d.try_post(0, id, op, 8, |wr| (wr.signaled, wr.to) = (id == 2, Some(there))).unwrap();
        }
        d.net.step();
        while d.net.step() {}
        poll_one(&mut d, 0);
        assert_eq!(fill(&mut d, true), 3, "{service:?}");
    }
}

#[test]
fn receives_keep_their_slots_until_their_completions_are_polled() {
    for (service, srq) in [Service::Rc, Service::Uc, Service::Ud].into_iter().flat_map(|s| [(s, false), (s, true)]) {
        let mut d = pair(service, srq);
        let limit = if srq { 64 } else { 4 };
        let there = to(d.ends[0], d.ends[1]);
        let received = |d: &mut Duo| {
            let mut taken = 0;
            loop {
                let sges = [Sge { addr: d.inbox[1].addr, len: 128, lkey: d.inbox[1].lkey }];
                let wr = RecvWr { wr_id: taken, sges: &sges };
                let nic = &mut d.net.nics[1];
                let posted = match d.connection.srq[1] {
                    Some(srq) => nic.post_srq_recv(srq, &wr),
                    None => nic.post_recv(d.ends[1].qpn, &wr),
                };
                if posted == Err(PostError::Full(limit)) {
                    return taken;
                }
                assert_eq!(posted, Ok(()));
                taken += 1;
                assert!(taken < 100, "{service:?} {srq}");
                d.try_post(0, 0, SendOp::Send, 8, |wr| wr.to = Some(there)).unwrap();
                while d.net.step() {}
                assert_eq!(completions(&mut d.net, d.ends[0]).len(), 1);
            }
        };
        assert_eq!(received(&mut d), limit as u64, "{service:?} {srq}");
        poll_one(&mut d, 1);
        assert_eq!(received(&mut d), 1, "{service:?} {srq}");
        // A queue pair that is reset loses its completions, and frees their slots.
        d.to(1, QpState::Reset);
        let posted = (0..100).take_while(|_| {
            let wr = RecvWr { wr_id: 0, sges: &[] };
            d.connection.srq[1].is_some_and(|srq| d.net.nics[1].post_srq_recv(srq, &wr).is_ok())
        });
        assert_eq!(posted.count(), if srq { 64 } else { 0 });
    }
}
