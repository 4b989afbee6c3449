//! ATOMIC WRITE and FLUSH (IBA 1.5): executed once, in order, and refused if rights or values are wrong.

use irnic_transports::Psn;
use irnic_transports::qp::{Access, Event, PostError, QpState, SendData, SendOp, WcStatus};
use irnic_transports::wire::{Bth, Feth, Headers, IrnEth, Opcode, Reth};

use crate::common::ALL;
use crate::kit::{Case, Duo, calm, everywhere, wr};

const FLUSH: SendOp = SendOp::Flush { len: 8, placement: Feth::GLOBAL, selectivity: Feth::RANGE };

/// Posts an operation without data; `tweak` may change its address and key.
fn post(d: &mut Duo, id: u64, op: SendOp, tweak: impl FnOnce(&mut u64, &mut u32)) {
    d.post_with(id, op, 0, |wr| {
        wr.data = SendData::Sges(&[]);
        tweak(&mut wr.remote_addr, &mut wr.rkey);
    });
}

/// Posts an operation that writes eight bytes to `offset`.
fn post_into(d: &mut Duo, id: u64, op: SendOp, offset: u64) {
    let sges = [d.sge(0, offset, 8)];
    let wr = wr(id, op, &sges, &d.mem[1]);
    d.net.nics[0].post_send(d.ends[0].qpn, &wr).unwrap();
}

fn cell(d: &Duo, i: usize) -> u64 {
    u64::from_ne_bytes(d.bytes(&d.mem[1])[8 * i..8 * i + 8].try_into().unwrap())
}

#[test]
fn an_atomic_write_happens_once_though_it_is_sent_again() {
    everywhere(|case| {
        let mut d = Duo::with(case, |c| c.depth = 256);
        // Between any two writes the cell is changed otherwise: a write executed twice would show.
        for k in 0..40 {
            post(&mut d, 2 * k, SendOp::AtomicWrite((1000 * k).to_ne_bytes()), |_, _| ());
            post_into(&mut d, 2 * k + 1, SendOp::FetchAdd { add: 1 }, 8 * k);
            d.run();
        }
        d.run();
        assert_eq!(d.done(0), (0..80).map(|id| (id, WcStatus::Success)).collect::<Vec<_>>());
        assert_eq!(cell(&d, 0), 39_001);
        let before: Vec<u64> =
            d.bytes(&d.mem[0])[..320].chunks(8).map(|b| u64::from_ne_bytes(b.try_into().unwrap())).collect();
        assert_eq!(before, (0..40).map(|k| 1000 * k).collect::<Vec<u64>>());
    });
}

#[test]
fn many_under_way_come_in_order_with_everything_else() {
    everywhere(|case| {
        let mut d = Duo::with(case, |c| (c.depth, c.rd_atomic) = (256, 3));
        for k in 0..30u64 {
            post(&mut d, 4 * k, SendOp::AtomicWrite((7 * k).to_ne_bytes()), |_, _| ());
            post_into(&mut d, 4 * k + 1, SendOp::FetchAdd { add: 0 }, 8 * k);
            d.post_with(4 * k + 2, SendOp::Write, 3000, |wr| wr.remote_addr += 4096);
            post(&mut d, 4 * k + 3, FLUSH, |addr, _| *addr += 4096);
        }
        d.run();
        assert_eq!(d.done(0), (0..120).map(|id| (id, WcStatus::Success)).collect::<Vec<_>>());
        // Each atomic saw the write before it, and not the one after.
        let read: Vec<u64> =
            d.bytes(&d.mem[0])[..240].chunks(8).map(|b| u64::from_ne_bytes(b.try_into().unwrap())).collect();
        assert_eq!(read, (0..30).map(|k| 7 * k).collect::<Vec<u64>>());
    });
}

/// Checks how an operation ends, at the requester and in the responder's events.
fn refused(
    case: &Case,
    access: Access,
    op: SendOp,
    tweak: impl Fn(&Duo, &mut u64, &mut u32),
) -> (WcStatus, Vec<Event>) {
    let mut d = Duo::with(case, |c| c.access = access);
    let (mut addr, mut rkey) = (d.mem[1].addr, d.mem[1].rkey);
    tweak(&d, &mut addr, &mut rkey);
    let before = d.memory();
    post(&mut d, 1, op, |a, k| (*a, *k) = (addr, rkey));
    d.run();
    let (done, events) = (d.done(0), d.events(1));
    assert_eq!(done.len(), 1);
    let status = done[0].1;
    assert_eq!(d.memory() == before, status != WcStatus::Success || !matches!(op, SendOp::AtomicWrite(_)));
    assert_eq!(d.state(1) == QpState::Err, status != WcStatus::Success, "{status:?}");
    (status, events.into_iter().filter(|e| !matches!(e, Event::CommunicationEstablished(_))).collect())
}

#[test]
fn rights_and_ranges_are_those_of_queue_pair_and_region() {
    let write = SendOp::AtomicWrite([0xff; 8]);
    let persistent = SendOp::Flush { len: 8, placement: Feth::PERSISTENT, selectivity: Feth::RANGE };
    let region = SendOp::Flush { len: 0, placement: Feth::GLOBAL, selectivity: Feth::REGION };
    let all_and = |bits: u32| Access(ALL.0 | bits);
    calm(|case| {
        let status = |access, op, tweak: fn(&Duo, &mut u64, &mut u32)| refused(case, access, op, tweak).0;
        let (ok, invalid, denied) = (WcStatus::Success, WcStatus::RemInvReqErr, WcStatus::RemAccessErr);
        for (what, access, op, tweak, expected) in [
            ("as granted", ALL, write, (|_, _, _| ()) as fn(&Duo, &mut u64, &mut u32), ok),
            ("needs no atomics", Access::REMOTE_WRITE, write, |_, _, _| (), ok),
            ("queue pair without writes", Access::REMOTE_ATOMIC, write, |_, _, _| (), invalid),
            (
                "region without remote writes",
                ALL,
                write,
                |d, a, k| (*a, *k) = (d.inbox[1].addr, d.inbox[1].rkey),
                denied,
            ),
            ("behind the region", ALL, write, |d, a, _| *a += d.mem[1].len, denied),
            ("wrong key", ALL, write, |_, _, k| *k ^= 1, denied),
            ("flush", ALL, FLUSH, |_, _, _| (), ok),
            ("flush needs no writes", Access::FLUSH_GLOBAL, FLUSH, |_, _, _| (), ok),
            ("queue pair without flush", Access::ALL, FLUSH, |_, _, _| (), invalid),
            ("region without flush", ALL, FLUSH, |d, a, k| (*a, *k) = (d.inbox[1].addr, d.inbox[1].rkey), denied),
            ("flush behind the region", ALL, FLUSH, |d, a, _| *a += d.mem[1].len - 7, denied),
            ("of the whole region", ALL, region, |_, a, _| *a = 0, ok),
            ("of no region", ALL, region, |_, _, k| *k ^= 1, denied),
            ("persistence that the queue pair does not grant", ALL, persistent, |_, _, _| (), invalid),
            ("persistence that no region grants", all_and(0x200), persistent, |_, _, _| (), denied),
        ] {
            assert_eq!(status(access, op, tweak), expected, "{what}");
        }
        let (_, events) = refused(case, ALL, write, |_, _, k| *k ^= 1);
        assert!(matches!(events[..], [Event::QpAccessError(_)]), "{events:?}");
    });
}

#[test]
fn requests_that_no_requester_makes_are_invalid() {
    calm(|case| {
        for (va, len, payload, feth) in [
            (4, 8, 8, None),
            (0, 4, 8, None),
            (0, 8, 4, None),
            (0, 8, 16, None),
            (0, 8, 0, Some((0, 0))),
            (0, 8, 0, Some((4, 0))),
            (0, 8, 0, Some((1, 2))),
        ] {
            let mut d = Duo::new(case);
            // The responder learns its peer's format from the first request.
            post(&mut d, 1, FLUSH, |_, _| ());
            d.run();
            let opcode = if feth.is_some() { Opcode::RcFlush } else { Opcode::RcAtomicWrite };
            let psn = d.net.nics[1].qp(d.ends[1].qpn).unwrap().attributes().rq_psn.unwrap();
            let mut headers = Headers::new(Bth::new(opcode, d.ends[1].qpn, psn));
            headers.bth.irn_capable = case.irn();
            headers.reth = Some(Reth { va: d.mem[1].addr + va, rkey: d.mem[1].rkey, len });
            headers.feth = feth.map(|(placement, selectivity)| Feth { placement, selectivity });
            headers.irn = case.irn().then_some(IrnEth::Read { read_wqe_sn: Psn::new(1) });
            let before = d.memory();
            d.inject(1, headers, &vec![0xee; payload]);
            d.run();
            assert_eq!(d.state(1), QpState::Err, "{va} {len} {payload} {feth:?}");
            assert!(d.events(1).iter().any(|e| matches!(e, Event::QpRequestError(_))));
            assert!(d.memory() == before);
        }
    });
}

#[test]
fn posting_refuses_what_could_not_be_sent_and_waits_for_room_among_reads() {
    calm(|case| {
        let mut d = Duo::with(case, |c| c.rd_atomic = 0);
        let mut refusal = |op, len, addr: u64| d.try_post(0, 9, op, len, |wr| wr.remote_addr += addr).unwrap_err();
        assert_eq!(refusal(SendOp::AtomicWrite([0; 8]), 8, 0), PostError::NoData(8));
        assert_eq!(refusal(FLUSH, 1, 0), PostError::NoData(1));
        assert!(matches!(refusal(SendOp::AtomicWrite([0; 8]), 0, 4), PostError::AtomicAlignment(_)));
        // Where no READ may be outstanding, neither may these.
        post(&mut d, 1, FLUSH, |_, _| ());
        d.run();
        assert_eq!(d.done(0), [(1, WcStatus::LocQpOpErr)]);
        // They count as READs do: of nine, two are outstanding at a time.
        let mut d = Duo::with(case, |c| c.rd_atomic = 2);
        for id in 0..9 {
            let op = if id % 2 == 0 { SendOp::AtomicWrite([id as u8; 8]) } else { FLUSH };
            post(&mut d, id, op, |_, _| ());
        }
        let requests = std::rc::Rc::new(std::cell::Cell::new(0));
        let seen = requests.clone();
        d.net.watch = Some(Box::new(move |from, _, frame| {
            let answered = Opcode::from_u8(frame[0]).is_some_and(Opcode::is_answered);
            seen.set(seen.get() + usize::from(from == 0 && answered));
        }));
        d.net.send();
        assert_eq!(requests.get(), 2);
        d.run();
        assert_eq!(d.done(0).len(), 9);
        assert_eq!(cell(&d, 0), u64::from_ne_bytes([8; 8]));
    });
}
