//! Delivery of management datagrams to their destination process.

use irnic_transports::wire::mad::{GSI_QPN, MAD_LEN};

use super::*;

/// Bytes of a frame before the management datagram, and after it.
const BEFORE: usize = 20;
const AFTER: usize = 4;

/// Attributes of messages of the connection manager.
const REQ: u8 = 0x10;
const REP: u8 = 0x13;

/// Returns a frame with a message: its attribute, the field at offset 28 (a REP's remote communication id) and its
/// service id (a REQ's, at offset 32).
fn frame(attribute: u8, remote: u32, service: u64) -> Vec<u8> {
    let mut frame = vec![0; BEFORE + MAD_LEN + AFTER];
    frame[0] = 0x64;
    frame[5..8].copy_from_slice(&GSI_QPN.to_be_bytes()[1..]);
    let mad = &mut frame[BEFORE..];
    (mad[0], mad[1], mad[2], mad[3], mad[17]) = (1, 7, 2, 3, attribute);
    if attribute == REQ {
        mad[32..40].copy_from_slice(&service.to_be_bytes());
    } else {
        mad[28..32].copy_from_slice(&remote.to_be_bytes());
    }
    frame
}

fn send_frame(port: &mut HostPort, bytes: &[u8]) {
    let frame = TxFrame { path: &PATH, dest_qp: GSI_QPN, len: bytes.len(), icrc: false, irn: false };
    assert!(port.transmit(Time::ZERO, &frame, &mut |to| to.copy_from_slice(bytes)));
    port.flush(Time::ZERO).unwrap();
}

/// Claims a service for a process that listens on it.
fn listen(port: &HostPort, service: u64) -> ServiceClaim {
    let mut claim = port.claim_service(service).unwrap();
    claim.listen().unwrap();
    claim
}

#[test]
fn requests_go_to_the_process_that_listens() {
    let domain = fresh_domain();
    let (mut a, mut b, mut c) = (open(&domain, 1), open(&domain, 2), open(&domain, 3));
    let mut claim = b.claim_service(0x0106_1c06).unwrap();
    let request = frame(REQ, 0, 0x0106_1c06);
    send_frame(&mut a, &request);
    assert_eq!((take(&mut a).len(), take(&mut b).len()), (1, 0), "it does not listen yet");
    for _ in 0..2 {
        claim.listen().unwrap();
    }
    for _ in 0..2 {
        send_frame(&mut a, &request);
        assert_eq!(take(&mut b), std::slice::from_ref(&request));
    }
    let refused = c.claim_service(0x0106_1c06).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
    // Another process has it next, and the sender no longer asks the first.
    drop(claim);
    let _claim = listen(&c, 0x0106_1c06);
    send_frame(&mut a, &request);
    assert_eq!((take(&mut b).len(), take(&mut c)), (0, vec![request]));
}

#[test]
fn a_process_sends_requests_to_itself() {
    let mut a = open(&fresh_domain(), 1);
    let _claim = listen(&a, 7);
    send_frame(&mut a, &frame(REQ, 0, 7));
    assert_eq!(take(&mut a), [frame(REQ, 0, 7)]);
}

#[test]
fn what_is_for_nobody_comes_back_to_be_refused() {
    let domain = fresh_domain();
    let (mut a, mut b) = (open(&domain, 1), open(&domain, 2));
    for odd in [frame(REQ, 0, 8), frame(0xff, 0, 0), vec![0x64; 30]] {
        send_frame(&mut a, &odd);
        assert_eq!((take(&mut a), take(&mut b).len()), (vec![odd], 0));
    }
}

#[test]
fn answers_go_to_the_process_whose_communication_id_they_name() {
    let domain = fresh_domain();
    let (mut a, mut b) = (open(&domain, 1), open(&domain, 2));
    let answer = frame(REP, 2 << 22 | 5, 0);
    send_frame(&mut a, &answer);
    assert_eq!((take(&mut a).len(), take(&mut b)), (0, vec![answer]));
    // The destination does not exist and its peer does not wait for an answer: this process answers.
    let answer = frame(REP, 9 << 22, 0);
    send_frame(&mut a, &answer);
    assert_eq!((take(&mut a), a.host_counters().tx_absent), (vec![answer], 0));
}

/// A process may get the slot of one that has just ended, to which frames were still sent.
#[test]
fn an_answer_reaches_a_process_whose_slot_was_empty_a_moment_ago() {
    for udp in [HostUdp::Off, HostUdp::Only] {
        let domain = fresh_domain();
        let with = |number| HostPort::open(&HostConfig { udp, ..config(&domain, number) }).unwrap();
        let mut a = with(1);
        assert!(a.links.push(Time::ZERO, slot(2), (&PATH, RxIcrc::Absent), 64, &mut |to| write_frame(0, to)));
        assert_eq!(a.host_counters().tx_absent, 1);
        let mut b = with(2);
        let answer = frame(REP, 2 << 22 | 5, 0);
        let to = a.links.mad_receiver(&answer);
        a.links.watch(slot(2));
        assert_eq!(a.links.or_own(to), Receiver::One(slot(2)), "{udp:?}");
        assert!(!a.take_lost(), "{udp:?}: nobody has ended");
        if udp == HostUdp::Off {
            send_frame(&mut a, &answer);
            assert_eq!((take(&mut a).len(), take(&mut b)), (0, vec![answer]));
        }
    }
}

#[test]
fn the_owner_of_the_udp_port_passes_datagrams_of_other_hosts_on() {
    let domain = fresh_domain();
    let udp = |number| HostConfig { udp: HostUdp::On, addresses: vec![ADDRESS], ..config(&domain, number) };
    const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 41, 1));
    let (mut owner, mut other) = (HostPort::open(&udp(1)).unwrap(), HostPort::open(&udp(2)).unwrap());
    if !owner.owns_udp(ADDRESS) {
        return skipped("mads of other hosts", "UDP port 4791 of 127.0.41.1 is taken");
    }
    let _claim = listen(&other, 7);
    let peer = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    for (bytes, for_other) in [
        (frame(REQ, 0, 7), true),
        (frame(REP, 2 << 22, 0), true),
        (frame(REQ, 0, 8), false),
        (frame(REP, 9 << 22, 0), false),
    ] {
        peer.send_to(&bytes, (ADDRESS, 4791)).unwrap();
        let start = Instant::now();
        let (mut owners, mut others) = (Vec::new(), Vec::new());
        while owners.is_empty() && others.is_empty() && start.elapsed().as_secs() < 30 {
            owners = take(&mut owner);
            others = take(&mut other);
        }
        assert_eq!((owners.len(), others.len()), if for_other { (0, 1) } else { (1, 0) });
    }
}

#[test]
fn a_refusal_that_names_nobody_goes_to_everybody() {
    let domain = fresh_domain();
    let (mut a, mut b, mut c) = (open(&domain, 1), open(&domain, 2), open(&domain, 3));
    const REJ: u8 = 0x12;
    send_frame(&mut a, &frame(REJ, 0, 0));
    for port in [&mut a, &mut b, &mut c] {
        assert_eq!(take(port), [frame(REJ, 0, 0)]);
    }
}

#[test]
fn the_end_of_a_process_is_noticed() {
    for udp in [HostUdp::Off, HostUdp::Only] {
        let domain = fresh_domain();
        let with = |number| HostPort::open(&HostConfig { udp, ..config(&domain, number) }).unwrap();
        let (mut a, mut b) = (with(1), with(2));
        let ids = [1, 2].map(|number: u32| number << 22 | 7);
        send_frame(&mut a, &frame(REP, ids[1], 0));
        take(&mut b);
        assert!(!a.take_lost() && !a.peer_ended(PATH.dst, ids[1]) && !a.peer_ended(PATH.dst, ids[0]));
        drop(b);
        take(&mut a);
        assert!(a.take_lost() && a.peer_ended(PATH.dst, ids[1]), "{udp:?}");
        assert!(!a.take_lost(), "reported once");
        a.look_again();
        assert!(a.take_lost() && a.peer_ended(PATH.dst, ids[1]) && !a.take_lost(), "and once more on request");
        assert!(!a.peer_ended(Ipv4Addr::new(192, 0, 2, 1).into(), ids[1]), "nothing is known of other hosts");
    }
}

#[test]
fn a_process_that_ended_before_it_got_an_answer_is_noticed() {
    for udp in [HostUdp::Off, HostUdp::Only] {
        let domain = fresh_domain();
        let with = |number| HostPort::open(&HostConfig { udp, ..config(&domain, number) }).unwrap();
        let (mut a, b) = (with(1), with(2));
        let id = 2 << 22 | 7;
        drop(b);
        take(&mut a);
        assert!(!a.take_lost(), "no link has ended");
        send_frame(&mut a, &frame(REP, id, 0));
        assert!(a.take_lost() && a.peer_ended(PATH.dst, id), "{udp:?}");
    }
}
