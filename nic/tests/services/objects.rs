//! Regions and queues that change while in use.

use irnic_nic::{Arm, Mr, MrChanges, NicError, NicEvent, Object, Quantity, RegisterError};
use irnic_transports::qp::{Access, RecvWr, SendData, SendOp, SendWr, Service, Sge, WcStatus::*};

use crate::kit::{Duo, EVERYTHING};
use crate::setup::{duo, empty};

fn rc() -> Duo {
    duo(Service::Rc, false)
}

/// WRITEs 8 bytes from end 0 and returns the status.
fn write(d: &mut Duo, addr: u64, rkey: u32) -> irnic_transports::qp::WcStatus {
    d.post_with(1, SendOp::Write, 8, |wr| (wr.remote_addr, wr.rkey) = (addr, rkey));
    d.run();
    d.done(0)[0].1
}

/// Registers memory of a test's own, on NIC 1.
fn external(d: &mut Duo, bytes: &mut [u64], iova: u64, access: Access) -> Mr {
    let (pd, len) = (d.ends[1].pd, size_of_val(bytes) as u64);
    // SAFETY: every caller keeps `bytes` until the network is dropped, and reads it only in between.
    unsafe { d.net.nics[1].reg_mr(pd, bytes.as_mut_ptr().cast(), len, iova, access) }.unwrap()
}

#[test]
fn a_region_answers_to_the_address_that_it_was_given() {
    let mut bytes = vec![0u64; 16];
    for (iova, access) in [(0x10_0000, EVERYTHING), (0, EVERYTHING), (0x777_0000, EVERYTHING | Access::ZERO_BASED)] {
        bytes.fill(0);
        let mut d = rc();
        let mr = external(&mut d, &mut bytes, iova, access);
        let first = if access == EVERYTHING { iova } else { 0 };
        assert_eq!((mr.addr, mr.len), (first, 128));
        assert_eq!(write(&mut d, first + 8, mr.rkey), Success);
        assert_eq!(bytes[1].to_ne_bytes()[..], d.bytes(&d.mem[0])[..8]);
        // Receives name it by that address too.
        let sges = [Sge { addr: first + 64, len: 32, lkey: mr.lkey }];
        let end = d.ends[1];
        crate::setup::recv_at(&mut d, end, 4, &sges);
        d.post(2, SendOp::Send, 32);
        d.run();
        assert_eq!((d.done(0), d.done(1)), (vec![(2, Success)], vec![(4, Success)]));
        assert_eq!(bytes[8].to_ne_bytes()[..], d.bytes(&d.mem[0])[..8]);
        let real = bytes.as_ptr() as u64;
        assert_eq!(write(&mut d, real, mr.rkey), RemAccessErr, "the application's own address means nothing");
    }
}

#[test]
fn an_atomic_on_bytes_that_are_not_aligned_is_refused_whatever_its_address() {
    let mut bytes = vec![0u64; 4];
    let mut d = rc();
    let pd = d.ends[1].pd;
    let odd = bytes.as_mut_ptr().cast::<u8>().wrapping_add(4);
    // SAFETY: within `bytes`, which outlives the network.
    let mr = unsafe { d.net.nics[1].reg_mr(pd, odd, 16, 0x1000, EVERYTHING) }.unwrap();
    d.post_with(1, SendOp::FetchAdd { add: 1 }, 8, |wr| (wr.remote_addr, wr.rkey) = (0x1000, mr.rkey));
    d.run();
    assert_eq!(d.done(0), [(1, RemInvReqErr)]);
    assert_eq!(bytes, [0; 4]);
}

#[test]
fn a_region_can_be_moved_lent_and_restricted() {
    let (mut old, mut new) = (vec![0u64; 8], vec![0u64; 8]);
    let mut d = rc();
    let mr = external(&mut d, &mut old, 0x1000, EVERYTHING);
    let translation = Some((new.as_mut_ptr().cast::<u8>(), 64, 0x2000));
    // SAFETY: `new` outlives the network.
    let moved = unsafe { d.net.nics[1].rereg_mr(&mr, MrChanges { translation, ..Default::default() }) }.unwrap();
    assert_eq!((moved.addr, moved.len), (0x2000, 64));
    assert_eq!((moved.lkey, moved.rkey), (mr.lkey, mr.rkey), "the keys stay");
    assert_eq!(write(&mut d, 0x2000, moved.rkey), Success);
    assert!(old[0] == 0 && new[0] != 0);
    let changes = MrChanges { access: Some(Access::REMOTE_READ), ..Default::default() };
    // SAFETY: there is no new range.
    let restricted = unsafe { d.net.nics[1].rereg_mr(&moved, changes) }.unwrap();
    assert_eq!((restricted.addr, restricted.len), (0x2000, 64), "the rest stays");
    assert_eq!(write(&mut d, 0x2000, restricted.rkey), RemAccessErr);
    let mut d = rc();
    let mr = external(&mut d, &mut old, 0x1000, EVERYTHING);
    let pd = d.net.nics[1].alloc_pd().unwrap();
    // SAFETY: there is no new range.
    let lent = unsafe { d.net.nics[1].rereg_mr(&mr, MrChanges { pd: Some(pd), ..Default::default() }) }.unwrap();
    assert_eq!(write(&mut d, 0x1000, lent.rkey), RemAccessErr);
    assert_eq!(d.net.nics[1].dealloc_pd(pd), Err(NicError::InUse(Object::ProtectionDomain)));
}

#[test]
fn a_change_that_is_refused_changes_nothing() {
    let mut bytes = vec![0u64; 8];
    let mut d = rc();
    let mr = external(&mut d, &mut bytes, 0x1000, EVERYTHING);
    let none = MrChanges::default();
    let at = bytes.as_mut_ptr().cast::<u8>();
    for (changes, error) in [
        (MrChanges { access: Some(Access::REMOTE_WRITE), ..none }, NicError::Register(RegisterError::Access)),
        (
            MrChanges { translation: Some((at, 64, u64::MAX)), ..none },
            NicError::Register(RegisterError::Range { addr: u64::MAX, len: 64 }),
        ),
        (MrChanges { pd: Some(irnic_transports::qp::PdId(99)), ..none }, NicError::NotFound(Object::ProtectionDomain)),
    ] {
        // SAFETY: the range is as before.
        assert_eq!(unsafe { d.net.nics[1].rereg_mr(&mr, changes) }, Err(error));
    }
    let unknown = Mr { lkey: mr.lkey ^ 1, ..mr };
    // SAFETY: there is no new range.
    assert!(unsafe { d.net.nics[1].rereg_mr(&unknown, none) }.is_err());
    assert_eq!(write(&mut d, 0x1000, mr.rkey), Success);
}

#[test]
fn a_completion_queue_grows_and_shrinks_around_what_waits_in_it() {
    let mut d = duo(Service::Uc, false);
    let cq = d.ends[0].cq;
    for id in 0..5 {
        d.post(id, SendOp::Write, 0);
    }
    while d.net.step() {}
    let nic = &mut d.net.nics[0];
    assert_eq!(nic.cq_len(cq), Ok(5));
    let error = NicError::Limit { what: Quantity::CompletionsWaiting, value: 5, limit: 4 };
    assert_eq!(nic.resize_cq(cq, 4), Err(error));
    assert_eq!((nic.resize_cq(cq, 5), nic.cq_len(cq)), (Ok(()), Ok(5)));
    assert_eq!((nic.resize_cq(cq, 100), nic.cq_len(cq)), (Ok(()), Ok(5)));
    nic.arm_cq(cq, Arm::Next).unwrap();
    assert_eq!(nic.poll_event(), None, "what is there already raises no event");
    d.post(5, SendOp::Write, 0);
    while d.net.step() {}
    assert_eq!(d.net.nics[0].poll_event(), Some(NicEvent::Completion(cq)));
    assert_eq!(d.done(0), (0..6).map(|id| (id, Success)).collect::<Vec<_>>());
    let missing = NicError::NotFound(Object::CompletionQueue);
    assert_eq!(d.net.nics[0].cq_len(irnic_transports::qp::CqId(77)), Err(missing));
}

#[test]
fn a_shared_receive_queue_keeps_its_order_when_its_size_changes() {
    let mut d = duo(Service::Uc, true);
    let srq = d.connection.srq[1].unwrap();
    // Past the end of the ring and around.
    for id in 0..40 {
        d.recv(id % 16, 100);
        d.post(id, SendOp::Send, 1);
        d.run();
    }
    for id in 0..6 {
        d.recv(id, 100);
    }
    let nic = &mut d.net.nics[1];
    assert_eq!(nic.query_srq(srq), Ok((64, 1, 0)));
    let waiting = NicError::Limit { what: Quantity::WorkRequestsWaiting, value: 6, limit: 5 };
    assert_eq!(nic.modify_srq(srq, Some(5), None), Err(waiting));
    assert_eq!(nic.modify_srq(srq, Some(7), Some(3)), Ok(()));
    assert_eq!(nic.query_srq(srq), Ok((7, 1, 3)));
    assert!(nic.modify_srq(srq, None, Some(8)).is_err());
    d.wcs = [vec![], vec![]];
    for id in 0..6 {
        d.post(id, SendOp::Send, 1);
    }
    d.run();
    let order: Vec<u64> = d.done(1).iter().map(|wc| wc.0).collect();
    assert_eq!(order, [0, 1, 2, 3, 4, 5]);
    assert_eq!(d.events(1), [irnic_transports::qp::Event::SrqLimitReached(srq)]);
    assert_eq!(d.net.nics[1].query_srq(srq), Ok((7, 1, 0)), "the event sets the limit back");
    assert_eq!(d.net.nics[1].modify_srq(srq, Some(200), None), Ok(()));
    for id in 0..200 {
        let wr = RecvWr { wr_id: id, sges: &[] };
        d.net.nics[1].post_srq_recv(srq, &wr).unwrap();
    }
}

#[test]
fn elements_are_limited_apart_for_sends_and_receives() {
    let mut d = rc();
    let nic = &mut d.net.nics[0];
    let (pd, cq) = (d.ends[0].pd, d.ends[0].cq);
    let qpn = nic
        .create_qp(&irnic_nic::QpConfig {
            service: Service::Rc,
            pd,
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            xrcd: None,
            max_send_wr: 4,
            max_recv_wr: 4,
            max_send_sge: 1,
            max_recv_sge: 3,
            max_inline: 0,
            sq_sig_all: false,
            transport: d.connection.transport[0],
        })
        .unwrap();
    for attr in crate::common::attributes(&d.connection, d.ends[0], d.ends[1], 0) {
        nic.modify_qp(qpn, &attr).unwrap();
    }
    let sges = [Sge::default(); 4];
    let post = |nic: &mut irnic_nic::Nic, n: usize| {
        let send = SendWr { data: SendData::Sges(&sges[..n]), ..empty(SendOp::Send) };
        let send = nic.post_send(qpn, &send).is_ok();
        (send, nic.post_recv(qpn, &RecvWr { wr_id: 0, sges: &sges[..n] }).is_ok())
    };
    assert_eq!([1, 2, 3, 4].map(|n| post(nic, n)), [(true, true), (false, true), (false, true), (false, false)]);
}

#[test]
fn a_queue_pair_number_rests_before_it_is_used_again() {
    let mut d = rc();
    let nic = &mut d.net.nics[0];
    let (pd, cq) = (d.ends[0].pd, d.ends[0].cq);
    let config = irnic_nic::QpConfig {
        service: Service::Rc,
        pd,
        send_cq: cq,
        recv_cq: cq,
        srq: None,
        xrcd: None,
        max_send_wr: 1,
        max_recv_wr: 1,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline: 0,
        sq_sig_all: false,
        transport: d.connection.transport[0],
    };
    let first = nic.create_qp(&config).unwrap();
    nic.destroy_qp(first).unwrap();
    for _ in 0..255 {
        let next = nic.create_qp(&config).unwrap();
        assert_ne!(next, first);
        nic.destroy_qp(next).unwrap();
    }
    assert_eq!(nic.create_qp(&config).unwrap(), first);
}
