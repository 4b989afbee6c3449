//! Multicast: a copy for every member.

use std::net::{IpAddr, Ipv4Addr};

use irnic_nic::{NicError, Object};
use irnic_transports::qp::{Address, MULTICAST_QPN, SendOp, Service, WcStatus::*};

use crate::common::End;
use crate::kit::{Duo, completions};
use crate::setup::{another, duo, post, recv_at, redirect, to};

const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 1, 2, 3));
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 1, 2, 4));

fn group(d: &Duo) -> Address {
    let one = to(d.ends[0], d.ends[1]);
    Address { path: redirect(one.path, GROUP), qpn: MULTICAST_QPN, ..one }
}

/// Posts a receive in memory of the end's own.
fn recv(d: &mut Duo, end: End, id: u64) {
    let mr = crate::common::region(&mut d.net, end, 400, |_| 0);
    recv_at(d, end, id, &[irnic_transports::qp::Sge { addr: mr.addr, len: 400, lkey: mr.lkey }]);
}

#[test]
fn every_member_gets_a_copy_the_sender_too() {
    let mut d = duo(Service::Ud, false);
    let (third, outsider) = (another(&mut d, 1), another(&mut d, 1));
    let ends = [d.ends[0], d.ends[1], third];
    for (end, first) in ends.into_iter().zip([true, true, false]) {
        assert_eq!(d.net.nics[end.nic].attach_mcast(end.qpn, GROUP), Ok(first));
    }
    for end in [d.ends[0], d.ends[1], third, outsider] {
        recv(&mut d, end, 5);
        recv(&mut d, end, 6);
    }
    let address = group(&d);
    post(&mut d, 1, SendOp::SendImm(4), 30, address);
    d.run();
    assert_eq!(d.done(0), [(1, Success), (5, Success)]);
    assert_eq!(d.done(1), [(5, Success)]);
    let copy = completions(&mut d.net, third);
    assert_eq!((copy.len(), copy[0].byte_len, copy[0].src_qp, copy[0].imm), (1, 70, d.ends[0].qpn, Some(4)));
    assert_eq!(completions(&mut d.net, outsider), []);
}

#[test]
fn a_group_is_joined_by_its_first_and_left_by_its_last() {
    let mut d = duo(Service::Ud, false);
    let third = another(&mut d, 1);
    let (a, b) = (d.ends[1].qpn, third.qpn);
    let nic = &mut d.net.nics[1];
    assert_eq!(nic.attach_mcast(a, GROUP), Ok(true));
    assert_eq!(nic.attach_mcast(a, GROUP), Ok(false), "twice is once");
    assert_eq!(nic.attach_mcast(b, GROUP), Ok(false));
    assert_eq!(nic.attach_mcast(b, OTHER), Ok(true));
    assert_eq!(nic.destroy_qp(b), Err(NicError::InUse(Object::QueuePair)));
    assert_eq!(nic.detach_mcast(a, GROUP), Ok(false));
    assert_eq!(nic.detach_mcast(a, GROUP), Err(NicError::NotFound(Object::MulticastMembership)));
    assert_eq!(nic.detach_mcast(b, GROUP), Ok(true));
    assert_eq!(nic.detach_mcast(b, OTHER), Ok(true));
    assert_eq!(nic.destroy_qp(b), Ok(()));
}

#[test]
fn only_datagram_queue_pairs_join_and_only_groups_are_joined() {
    let mut d = duo(Service::Ud, false);
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    assert_eq!(d.net.nics[0].attach_mcast(d.ends[0].qpn, here), Err(NicError::NotMulticast(here)));
    assert_eq!(d.net.nics[0].attach_mcast(9999, GROUP), Err(NicError::NotFound(Object::QueuePair)));
    let uc = duo(Service::Uc, false);
    let mut nic = uc.net.nics.into_iter().next().unwrap();
    assert_eq!(nic.attach_mcast(uc.ends[0].qpn, GROUP), Err(NicError::Service(Service::Uc)));
}

#[test]
fn what_is_sent_to_a_group_that_nobody_joined_is_dropped() {
    let mut d = duo(Service::Ud, false);
    let address = group(&d);
    d.recv(0, 400);
    post(&mut d, 1, SendOp::Send, 30, address);
    d.run();
    assert_eq!(d.done(1), []);
    assert_eq!(d.net.nics[1].counters().rx_dropped, 1);
}

#[test]
fn members_with_another_q_key_or_without_a_buffer_get_nothing() {
    let mut d = duo(Service::Ud, false);
    let third = another(&mut d, 1);
    for end in [d.ends[1], third] {
        d.net.nics[1].attach_mcast(end.qpn, GROUP).unwrap();
    }
    recv(&mut d, third, 1);
    let address = Address { qkey: 5, ..group(&d) };
    post(&mut d, 1, SendOp::Send, 30, address);
    let address = group(&d);
    post(&mut d, 2, SendOp::Send, 31, address);
    d.run();
    let counters = *d.net.nics[1].counters();
    assert_eq!((counters.bad_qkey, counters.out_of_buffer), (2, 1));
    assert_eq!(completions(&mut d.net, third)[0].byte_len, 71);
}
