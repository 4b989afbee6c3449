//! States and attributes of the unreliable services.

use irnic_transports::Psn;
use irnic_transports::qp::{Access, Event, PostError, QpAttr, QpState, RecvWr, SendOp, Service, WcStatus::*};
use irnic_transports::wire::Mtu;

use crate::common::{ALL, Connection, End, Network, QKEY, attributes, create, path};
use crate::kit::Duo;
use crate::setup::{duo, empty, post, to};

fn single(service: Service) -> (Network, End, [QpAttr; 3]) {
    let c = Connection { service, mtu: Mtu::B512, ..Connection::default() };
    let mut net = Network::new(1, "delay 1us", 1, &Default::default());
    let end = create(&mut net, 0, &c, 0, None);
    (net, end, attributes(&c, end, end, 0))
}

#[test]
fn sends_are_posted_from_rts_on_and_receives_from_init_on() {
    for service in [Service::Rc, Service::Uc, Service::Ud] {
        let (mut net, end, steps) = single(service);
        let nic = &mut net.nics[0];
        let wr = irnic_transports::qp::SendWr { to: Some(to(end, end)), ..empty(SendOp::Send) };
        let recv = RecvWr { wr_id: 0, sges: &[] };
        let states = [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts];
        for (i, state) in states.into_iter().enumerate() {
            assert_eq!(nic.qp(end.qpn).unwrap().state(), state);
            let send = if state == QpState::Rts { Ok(()) } else { Err(PostError::State(state)) };
            assert_eq!(nic.post_send(end.qpn, &wr), send, "{service:?} {state:?}");
            let receive = if state == QpState::Reset { Err(PostError::State(state)) } else { Ok(()) };
            assert_eq!(nic.post_recv(end.qpn, &recv), receive, "{service:?} {state:?}");
            if let Some(attr) = steps.get(i) {
                nic.modify_qp(end.qpn, attr).unwrap();
            }
        }
    }
}

#[test]
fn attributes_are_told_back() {
    let c = Connection::default();
    for service in [Service::Rc, Service::Uc, Service::Ud] {
        let (mut net, end, steps) = single(service);
        for attr in steps {
            net.nics[0].modify_qp(end.qpn, &attr).unwrap();
        }
        let qp = net.nics[0].qp(end.qpn).unwrap();
        assert_eq!(qp.service(), service);
        let a = qp.attributes();
        let (connected, reliable) = (service != Service::Ud, service == Service::Rc);
        assert_eq!((a.state, a.port, a.pkey_index), (Some(QpState::Rts), Some(1), Some(0)));
        assert_eq!(a.access, connected.then_some(ALL));
        assert_eq!(a.qkey, (!connected).then_some(QKEY));
        assert_eq!(a.path, connected.then(|| path(0, 0)));
        assert_eq!(a.path_mtu, Some(if connected { Mtu::B512 } else { Mtu::B4096 }));
        assert_eq!(a.dest_qp, connected.then_some(end.qpn));
        assert_eq!((a.rq_psn, a.sq_psn), (connected.then_some(c.psn[1]), Some(c.psn[0])));
        assert_eq!((a.max_rd_atomic, a.max_dest_rd_atomic), (reliable.then_some(4), reliable.then_some(4)));
        let timers = (a.timeout, a.retry_cnt, a.rnr_retry, a.min_rnr_timer);
        assert_eq!(
            timers,
            (reliable.then_some(0), reliable.then_some(7), reliable.then_some(7), reliable.then_some(1))
        );
        let new = if connected {
            QpAttr { access: Some(Access(4)), ..QpAttr::default() }
        } else {
            QpAttr { qkey: Some(9), ..QpAttr::default() }
        };
        net.nics[0].modify_qp(end.qpn, &new).unwrap();
        let a = net.nics[0].qp(end.qpn).unwrap().attributes();
        assert_eq!((a.access, a.qkey), (connected.then_some(Access(4)), (!connected).then_some(9)));
    }
}

fn send(d: &mut Duo, id: u64) {
    let there = to(d.ends[0], d.ends[1]);
    post(d, id, SendOp::Send, 10, there);
}

#[test]
fn an_error_flushes_both_queues_and_reset_begins_anew() {
    for service in [Service::Uc, Service::Ud] {
        for srq in [false, true] {
            let mut d = duo(service, srq);
            d.recv(0, 100);
            send(&mut d, 1);
            d.run();
            d.recv(1, 100);
            d.recv(2, 100);
            send(&mut d, 2);
            d.to(0, QpState::Err);
            d.to(1, QpState::Err);
            send(&mut d, 3);
            d.run();
            assert_eq!(d.done(0), [(1, Success), (2, WrFlushErr), (3, WrFlushErr)]);
            let expected = if srq { vec![(0, Success)] } else { vec![(0, Success), (1, WrFlushErr), (2, WrFlushErr)] };
            assert_eq!(d.done(1), expected);
            assert_eq!(d.events(1), if srq { vec![Event::LastWqeReached(d.ends[1].qpn)] } else { vec![] });
            for end in [0, 1] {
                d.to(end, QpState::Reset);
            }
            crate::common::connect(&mut d.net, &d.connection.clone(), d.ends);
            if !srq {
                d.recv(4, 100);
            }
            send(&mut d, 5);
            d.run();
            assert_eq!((d.done(0), d.done(1)), (vec![(5, Success)], vec![(if srq { 1 } else { 4 }, Success)]));
        }
    }
}

#[test]
fn a_receiver_in_rtr_receives_and_uc_says_so_once() {
    for service in [Service::Uc, Service::Ud] {
        let c = Connection { service, mtu: Mtu::B256, ..Connection::default() };
        let mut d = duo(service, false);
        d.to(1, QpState::Reset);
        for attr in &attributes(&c, d.ends[1], d.ends[0], 1)[..2] {
            d.modify(1, *attr);
        }
        d.recv(0, 100);
        d.recv(1, 100);
        send(&mut d, 1);
        send(&mut d, 2);
        d.run();
        assert_eq!(d.done(1), [(0, Success), (1, Success)]);
        let established = Event::CommunicationEstablished(d.ends[1].qpn);
        assert_eq!(d.events(1), if service == Service::Uc { vec![established] } else { vec![] });
    }
}

#[test]
fn a_long_run_wraps_the_sequence_numbers() {
    for service in [Service::Uc, Service::Ud] {
        let mut d = duo(service, false);
        for id in 0..40 {
            d.recv(id % 16, 100);
            send(&mut d, id);
            d.run();
        }
        assert_eq!(d.done(1).len(), 40);
        let next = d.net.nics[0].qp(d.ends[0].qpn).unwrap().attributes().sq_psn;
        assert_eq!(next, Some(Psn::new(d.connection.psn[0].get() + 40)));
    }
}

#[test]
fn an_overflowing_completion_queue_ends_the_queue_pair() {
    for service in [Service::Uc, Service::Ud] {
        let mut d = duo(service, false);
        let cq = d.ends[0].cq;
        d.net.nics[0].resize_cq(cq, 3).unwrap();
        for id in 0..6 {
            send(&mut d, id);
        }
        while d.net.step() {}
        assert_eq!(d.state(0), QpState::Err);
        assert!(d.events(0).contains(&Event::CqError(cq)));
    }
}
