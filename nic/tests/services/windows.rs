//! Memory windows: the access they grant, to which peers, and for how long.

use irnic_nic::{Mr, MrChanges, Mw, MwKind, NicError, Object};
use irnic_transports::qp::{Access, MwBind, PdId, PostError, QpState, SendOp, Service, WcStatus, WcStatus::*};

use crate::common::{End, connect, create};
use crate::kit::{Duo, EVERYTHING, completions};
use crate::setup::{duo, empty};

const BINDABLE: Access = Access(EVERYTHING.0 | Access::MW_BIND.0);
const READ_WRITE: Access = Access(Access::REMOTE_WRITE.0 | Access::REMOTE_READ.0);

/// Windows are on end 1's memory, end 0 uses them.
struct Scene {
    d: Duo,
    mr: Mr,
    mw: Mw,
}

fn scene(service: Service, kind: MwKind) -> Scene {
    let mut d = duo(service, false);
    let pd = d.ends[1].pd;
    let mr = d.net.nics[1].alloc_mr(pd, 4096, BINDABLE).unwrap();
    d.net.nics[1].bytes_mut(&mr).unwrap().fill(0xee);
    let mw = d.net.nics[1].alloc_mw(pd, kind).unwrap();
    Scene { d, mr, mw }
}

impl Scene {
    /// Returns the next key, and a binding of bytes 1000 to 2000 to it.
    fn binding(&mut self) -> MwBind {
        let rkey = self.d.net.nics[1].next_mw_rkey(self.mw.handle).unwrap();
        let (addr, lkey) = (self.mr.addr + 1000, self.mr.lkey);
        MwBind { mw: self.mw.handle, rkey, lkey, addr, len: 1000, access: READ_WRITE }
    }

    fn bind(&mut self, bind: MwBind) -> WcStatus {
        let (op, addr, rkey) = bind.work_request();
        self.carry_out(op, addr, rkey)
    }

    /// Executes a local operation at end 1.
    fn local(&mut self, op: SendOp) -> WcStatus {
        self.carry_out(op, 0, 0)
    }

    fn carry_out(&mut self, op: SendOp, addr: u64, rkey: u32) -> WcStatus {
        self.d.try_post(1, 90, op, 0, |wr| (wr.remote_addr, wr.rkey) = (addr, rkey)).unwrap();
        self.d.run();
        let done = self.d.done(1);
        assert_eq!((done.len(), done[0].0), (1, 90), "{done:?}");
        done[0].1
    }

    /// WRITEs from end 0; on an unreliable connection success is judged by the change.
    fn write(&mut self, addr: u64, len: u32, rkey: u32) -> WcStatus {
        let before = self.d.net.nics[1].bytes(&self.mr).unwrap().to_vec();
        self.d.post_with(1, SendOp::Write, len, |wr| (wr.remote_addr, wr.rkey) = (addr, rkey));
        self.d.run();
        let status = self.d.done(0)[0].1;
        let changed = self.d.net.nics[1].bytes(&self.mr).unwrap() != before;
        if self.d.connection.service == Service::Uc {
            return if changed { Success } else { RemAccessErr };
        }
        assert_eq!(changed, status == Success);
        if status != Success {
            self.revive();
        } else {
            self.d.net.nics[1].bytes_mut(&self.mr).unwrap().copy_from_slice(&before);
        }
        status
    }

    fn revive(&mut self) {
        for end in [0, 1] {
            self.d.to(end, QpState::Reset);
        }
        connect(&mut self.d.net, &self.d.connection.clone(), self.d.ends);
        self.d.poll();
        self.d.wcs = [vec![], vec![]];
    }
}

#[test]
fn a_window_grants_its_range_and_its_rights_and_no_more() {
    for service in [Service::Rc, Service::Uc] {
        for kind in [MwKind::Type1, MwKind::Type2] {
            let mut s = scene(service, kind);
            let (addr, unbound) = (s.mr.addr, s.mw.rkey);
            assert_eq!(s.write(addr + 1000, 8, unbound), RemAccessErr, "not bound yet");
            let bind = s.binding();
            assert_eq!(s.bind(bind), Success);
            for (from, len, expected) in [
                (1000, 1000, Success),
                (1999, 1, Success),
                (999, 1, RemAccessErr),
                (1000, 1001, RemAccessErr),
                (2000, 1, RemAccessErr),
                (0, 8, RemAccessErr),
            ] {
                assert_eq!(s.write(addr + from, len, bind.rkey), expected, "{service:?} {kind:?} {from} {len}");
            }
            assert_eq!(s.write(addr + 1000, 8, bind.rkey ^ 0x80), RemAccessErr);
            assert_eq!(s.write(addr + 1000, 8, unbound), RemAccessErr, "the key before");
        }
    }
}

#[test]
fn rights_of_the_window_hold_whatever_the_region_grants() {
    let mut s = scene(Service::Rc, MwKind::Type2);
    let pd = s.d.ends[1].pd;
    // The region itself grants nothing remote.
    s.mr = s.d.net.nics[1].alloc_mr(pd, 4096, Access::LOCAL_WRITE | Access::MW_BIND).unwrap();
    let bind = MwBind { access: Access::REMOTE_WRITE, ..s.binding() };
    assert_eq!(s.bind(bind), Success);
    let (addr, rkey) = (s.mr.addr, s.mr.rkey);
    assert_eq!(s.write(addr + 1000, 8, rkey), RemAccessErr);
    assert_eq!(s.write(addr + 1000, 8, bind.rkey), Success);
    s.d.post_with(5, SendOp::Read, 8, |wr| (wr.remote_addr, wr.rkey) = (addr + 1000, bind.rkey));
    s.d.run();
    assert_eq!(s.d.done(0), [(5, RemAccessErr)]);
}

#[test]
fn reads_and_atomics_go_through_windows() {
    let mut s = scene(Service::Rc, MwKind::Type1);
    let bind = MwBind { access: Access(EVERYTHING.0 & !Access::LOCAL_WRITE.0), ..s.binding() };
    assert_eq!(s.bind(bind), Success);
    let addr = s.mr.addr;
    for (id, op, len) in [(1, SendOp::Read, 1000), (2, SendOp::FetchAdd { add: 5 }, 8)] {
        s.d.post_with(id, op, len, |wr| (wr.remote_addr, wr.rkey) = (addr + 1000, bind.rkey));
        s.d.run();
        assert_eq!(s.d.done(0), [(id, Success)]);
    }
    let sum = u64::from_ne_bytes([0xee; 8]) + 5;
    assert_eq!(s.d.net.nics[1].bytes(&s.mr).unwrap()[1000..1008], sum.to_ne_bytes());
}

#[test]
fn bindings_that_break_a_rule_are_refused() {
    let stranger = |s: &mut Scene| s.d.net.nics[1].alloc_pd().unwrap();
    type Break = fn(&mut Scene, &mut MwBind, PdId);
    let cases: [(&str, Break); 10] = [
        ("the upper bits of the key", |_, b, _| b.rkey ^= 0x100),
        ("no such window", |_, b, _| b.mw += 1),
        ("no such region", |_, b, _| b.lkey ^= 0x80),
        ("before the region", |s, b, _| b.addr = s.mr.addr - 1),
        ("behind the region", |_, b, _| b.len = 3097),
        ("around the address space", |_, b, _| b.len = u64::MAX),
        ("a region without the right", |s, b, _| {
            let mr = s.d.net.nics[1].alloc_mr(s.d.ends[1].pd, 4096, EVERYTHING).unwrap();
            (b.lkey, b.addr) = (mr.lkey, mr.addr);
        }),
        ("write rights on what the NIC may not write to", |s, b, _| {
            let mr = s.d.net.nics[1].alloc_mr(s.d.ends[1].pd, 4096, Access::MW_BIND).unwrap();
            (b.lkey, b.addr) = (mr.lkey, mr.addr);
        }),
        ("a region of another domain", |s, b, pd| {
            let mr = s.d.net.nics[1].alloc_mr(pd, 4096, BINDABLE).unwrap();
            (b.lkey, b.addr) = (mr.lkey, mr.addr);
        }),
        ("a window of another domain", |s, b, pd| {
            let mw = s.d.net.nics[1].alloc_mw(pd, MwKind::Type2).unwrap();
            (b.mw, b.rkey) = (mw.handle, mw.rkey + 1);
        }),
    ];
    for service in [Service::Rc, Service::Uc] {
        for kind in [MwKind::Type1, MwKind::Type2] {
            for (name, spoil) in cases {
                let mut s = scene(service, kind);
                let pd = stranger(&mut s);
                let mut bind = s.binding();
                spoil(&mut s, &mut bind, pd);
                assert_eq!(s.bind(bind), MwBindErr, "{name}");
                let state = if service == Service::Rc { QpState::Err } else { QpState::Sqe };
                assert_eq!(s.d.state(1), state, "{name}");
                let mr = s.mr;
                assert_eq!(s.d.net.nics[1].dereg_mr(&mr), Ok(()), "{name}: nothing is bound");
            }
        }
    }
}

#[test]
fn a_type_1_window_moves_with_each_binding_and_an_empty_one_frees_it() {
    let mut s = scene(Service::Rc, MwKind::Type1);
    let (first, second) = (s.binding(), s.binding());
    assert_ne!(first.rkey, second.rkey);
    assert_eq!(s.bind(first), Success);
    let addr = s.mr.addr;
    assert_eq!(s.bind(MwBind { addr: addr + 3000, len: 10, ..second }), Success);
    assert_eq!(s.write(addr + 1000, 8, first.rkey), RemAccessErr);
    assert_eq!(s.write(addr + 1000, 8, second.rkey), RemAccessErr);
    assert_eq!(s.write(addr + 3000, 8, second.rkey), Success);
    let mr = s.mr;
    assert_eq!(s.d.net.nics[1].dereg_mr(&mr), Err(NicError::InUse(Object::MemoryRegion)));
    let empty = MwBind { len: 0, ..s.binding() };
    assert_eq!(s.bind(empty), Success);
    assert_eq!(s.write(addr + 3000, 8, second.rkey), RemAccessErr);
    assert_eq!(s.write(addr + 3000, 8, empty.rkey), RemAccessErr);
    assert_eq!(s.d.net.nics[1].dereg_mr(&mr), Ok(()));
}

#[test]
fn a_type_2_window_is_bound_once_until_it_is_invalidated() {
    let mut s = scene(Service::Rc, MwKind::Type2);
    let bind = s.binding();
    assert_eq!(s.bind(MwBind { len: 0, ..bind }), MwBindErr, "an empty binding");
    s.revive();
    assert_eq!(s.bind(bind), Success);
    let again = s.binding();
    assert_eq!(s.bind(again), MwBindErr, "bound twice");
    s.revive();
    let addr = s.mr.addr;
    assert_eq!(s.write(addr + 1000, 8, bind.rkey), Success, "the first binding holds");
    assert_eq!(s.local(SendOp::LocalInvalidate(bind.rkey)), Success);
    assert_eq!(s.write(addr + 1000, 8, bind.rkey), RemAccessErr);
    assert_eq!(s.local(SendOp::LocalInvalidate(bind.rkey)), LocQpOpErr, "invalidated twice");
    s.revive();
    let mr = s.mr;
    assert_eq!(s.bind(again), Success);
    assert_eq!(s.d.net.nics[1].dereg_mr(&mr), Err(NicError::InUse(Object::MemoryRegion)));
}

#[test]
fn the_peer_invalidates_a_type_2_window_but_none_of_type_1() {
    for (kind, sender, receiver) in [(MwKind::Type2, Success, Success), (MwKind::Type1, RemAccessErr, RemInvReqErr)] {
        let mut s = scene(Service::Rc, kind);
        let bind = s.binding();
        assert_eq!(s.bind(bind), Success);
        s.d.recv(1, 64);
        s.d.post(7, SendOp::SendInvalidate(bind.rkey), 8);
        s.d.run();
        assert_eq!((s.d.done(0), s.d.done(1)), (vec![(7, sender)], vec![(1, receiver)]), "{kind:?}");
    }
    let mut s = scene(Service::Rc, MwKind::Type1);
    let bind = s.binding();
    assert_eq!(s.bind(bind), Success);
    assert_eq!(s.local(SendOp::LocalInvalidate(bind.rkey)), LocQpOpErr);
}

/// Creates a second connection between the same NICs and domains.
fn second(d: &mut Duo) -> [End; 2] {
    let c = d.connection.clone();
    let given = [0, 1].map(|i| {
        let cq = d.net.nics[i].create_cq(64).unwrap();
        Some((d.ends[i].pd, cq))
    });
    let ends = [create(&mut d.net, 0, &c, 0, given[0]), create(&mut d.net, 1, &c, 1, given[1])];
    connect(&mut d.net, &c, ends);
    ends
}

#[test]
fn a_type_2_window_serves_the_queue_pair_that_bound_it_and_a_type_1_window_all_of_the_domain() {
    for (kind, expected) in [(MwKind::Type1, Success), (MwKind::Type2, RemAccessErr)] {
        let mut s = scene(Service::Rc, kind);
        let other = second(&mut s.d);
        let bind = s.binding();
        assert_eq!(s.bind(bind), Success);
        let addr = s.mr.addr;
        assert_eq!(s.write(addr + 1000, 8, bind.rkey), Success);
        let sges = [s.d.sge(0, 0, 8)];
        let mut wr = crate::kit::wr(3, SendOp::Write, &sges, &s.mr);
        (wr.remote_addr, wr.rkey) = (addr + 1000, bind.rkey);
        s.d.net.nics[0].post_send(other[0].qpn, &wr).unwrap();
        s.d.run();
        let wcs = completions(&mut s.d.net, other[0]);
        assert_eq!((wcs[0].wr_id, wcs[0].status), (3, expected), "{kind:?}");
    }
}

#[test]
fn a_window_does_not_outlive_the_queue_pair_that_bound_it() {
    let mut s = scene(Service::Rc, MwKind::Type2);
    let bind = s.binding();
    assert_eq!(s.bind(bind), Success);
    let (qpn, mr) = (s.d.ends[1].qpn, s.mr);
    s.d.net.nics[1].destroy_qp(qpn).unwrap();
    assert_eq!(s.d.net.nics[1].dereg_mr(&mr), Ok(()));
}

#[test]
fn a_freed_window_is_gone_and_its_domain_can_go() {
    for kind in [MwKind::Type1, MwKind::Type2] {
        let mut s = scene(Service::Rc, kind);
        let bind = s.binding();
        assert_eq!(s.bind(bind), Success);
        let addr = s.mr.addr;
        let nic = &mut s.d.net.nics[1];
        assert_eq!(nic.dealloc_mw(s.mw.handle), Ok(()));
        assert!(nic.dealloc_mw(s.mw.handle).is_err() && nic.next_mw_rkey(s.mw.handle).is_err());
        assert_eq!(s.write(addr + 1000, 8, bind.rkey), RemAccessErr);
        let nic = &mut s.d.net.nics[1];
        let pd = nic.alloc_pd().unwrap();
        let mw = nic.alloc_mw(pd, kind).unwrap();
        assert_eq!(nic.dealloc_pd(pd), Err(NicError::InUse(Object::ProtectionDomain)));
        nic.dealloc_mw(mw.handle).unwrap();
        assert_eq!(nic.dealloc_pd(pd), Ok(()));
    }
}

#[test]
fn a_zero_based_window_counts_from_its_first_byte() {
    let mut s = scene(Service::Rc, MwKind::Type2);
    let bind = MwBind { access: READ_WRITE | Access::ZERO_BASED, ..s.binding() };
    assert_eq!(s.bind(bind), Success);
    assert_eq!(s.write(0, 1000, bind.rkey), Success);
    assert_eq!(s.write(1, 1000, bind.rkey), RemAccessErr);
    let mut s = scene(Service::Rc, MwKind::Type1);
    let bind = MwBind { access: READ_WRITE | Access::ZERO_BASED, ..s.binding() };
    assert_eq!(s.bind(bind), MwBindErr);
}

#[test]
fn bindings_wait_for_what_was_posted_before() {
    let mut s = scene(Service::Rc, MwKind::Type2);
    let bind = s.binding();
    let mem = s.d.mem[0];
    s.d.try_post(1, 1, SendOp::Read, 4000, |_| ()).unwrap();
    let (op, addr, rkey) = bind.work_request();
    s.d.try_post(1, 2, op, 0, |wr| (wr.remote_addr, wr.rkey) = (addr, rkey)).unwrap();
    s.d.try_post(1, 3, SendOp::LocalInvalidate(bind.rkey), 0, |_| ()).unwrap();
    s.d.try_post(1, 4, op, 0, |wr| (wr.remote_addr, wr.rkey) = (addr, rkey)).unwrap();
    s.d.try_post(1, 5, SendOp::Write, 10, |wr| wr.rkey = mem.rkey).unwrap();
    s.d.run();
    assert_eq!(s.d.done(1), (1..=5).map(|id| (id, Success)).collect::<Vec<_>>());
    let addr = s.mr.addr;
    assert_eq!(s.write(addr + 1000, 8, bind.rkey), Success);
}

#[test]
fn a_region_with_windows_is_not_changed_and_datagrams_bind_none() {
    let mut s = scene(Service::Rc, MwKind::Type1);
    let bind = s.binding();
    assert_eq!(s.bind(bind), Success);
    let changes = MrChanges { access: Some(BINDABLE), ..MrChanges::default() };
    let mr = s.mr;
    // SAFETY: there is no new range.
    let changed = unsafe { s.d.net.nics[1].rereg_mr(&mr, changes) };
    assert_eq!(changed, Err(NicError::InUse(Object::MemoryRegion)));
    let mut d = duo(Service::Ud, false);
    let posted = d.net.nics[0].post_send(d.ends[0].qpn, &empty(bind.work_request().0));
    assert_eq!(posted, Err(PostError::Service(Service::Ud)));
}

#[test]
fn keys_of_windows_and_regions_never_meet() {
    let mut d = duo(Service::Uc, false);
    let pd = d.ends[0].pd;
    let nic = &mut d.net.nics[0];
    let windows: Vec<u32> = (0..300).map(|_| nic.alloc_mw(pd, MwKind::Type2).unwrap().rkey >> 8).collect();
    let regions: Vec<u32> =
        (0..3000).map(|i| nic.reg_phantom_mr(pd, 4096 * i, 16, EVERYTHING).unwrap().rkey >> 8).collect();
    let mut distinct = windows.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), 300);
    assert!(regions.iter().all(|r| distinct.binary_search(r).is_err()));
}
