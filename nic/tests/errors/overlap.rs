//! Requests to overlapping remote memory (IRN §4.4.3): ordered by the application or by the NIC, according to
//! `overlap`.

use irnic_transports::TransportConfig;
use irnic_transports::qp::{SendData, SendOp, SendWr, Sge, WcStatus::Success};
use irnic_transports::wire::parse;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::kit::{Case, Duo};

const CASE: Case = Case { transport: "irn", impairments: "delay 5us", seed: 1 };

/// Creates two ends, the first with this transport.
fn duo(transport: &str, case: &Case) -> Duo {
    let transport = TransportConfig::parse(transport, false).expect("a transport");
    Duo::with(case, |c| c.transport = [transport; 2])
}

/// Loses the first frame from `from` that matches.
fn lose(d: &mut Duo, from: usize, which: impl Fn(&irnic_transports::wire::Headers) -> bool + 'static) {
    let mut lost = false;
    d.net.tamper = Some(Box::new(move |sender, frame| {
        let this = !lost && sender == from && which(&parse(frame).expect("a frame").0);
        lost |= this;
        !this
    }));
}

/// Posts a WRITE of `len` bytes from `source` of the own region to `target` of the peer's.
fn write(d: &mut Duo, id: u64, source: u64, target: u64, len: u32) {
    let sges = [d.sge(0, source, len)];
    let wr = SendWr::write(id, SendData::Sges(&sges), d.mem[1].addr + target, d.mem[1].rkey);
    d.net.nics[0].post_send(d.ends[0].qpn, &wr).expect("room");
}

fn fences(d: &Duo) -> u64 {
    d.net.nics[0].counters().overlap_fences
}

/// The first WRITE is lost, and arrives after the second one.
#[test]
fn a_write_that_is_sent_again_overwrites_a_later_one_unless_that_is_fenced() {
    for (transport, second_stays, fenced) in [("irn", false, 0), ("irn,overlap=fence", true, 1)] {
        let mut d = duo(transport, &CASE);
        let first = d.connection.psn[0];
        lose(&mut d, 0, move |h| h.bth.psn == first);
        write(&mut d, 1, 0, 0, 1000);
        write(&mut d, 2, 5000, 500, 1000);
        d.run();
        assert_eq!(d.done(0), [(1, Success), (2, Success)], "{transport}");
        let (own, theirs) = (d.bytes(&d.mem[0]), d.bytes(&d.mem[1]));
        assert_eq!(theirs[..500], own[..500]);
        assert_eq!(theirs[500..1500] == own[5000..6000], second_stays, "{transport}");
        assert_eq!(fences(&d), fenced);
    }
}

/// A READ's response is lost, and read again from memory.
#[test]
fn a_read_brings_what_was_there_before_a_later_write_if_that_is_fenced() {
    for (transport, returns_old, fenced) in [("irn", false, 0), ("irn,overlap=fence", true, 1)] {
        let mut d = duo(transport, &CASE);
        lose(&mut d, 1, |h| h.bth.opcode.is_read_response());
        let old = d.bytes(&d.mem[1])[..1000].to_vec();
        let sges = [d.sge(0, 20_000, 1000)];
        let read = SendWr {
            remote_addr: d.mem[1].addr,
            rkey: d.mem[1].rkey,
            ..SendWr::new(1, SendOp::Read, SendData::Sges(&sges))
        };
        d.net.nics[0].post_send(d.ends[0].qpn, &read).expect("room");
        write(&mut d, 2, 5000, 0, 1000);
        d.run();
        assert_eq!(d.done(0), [(1, Success), (2, Success)]);
        assert_eq!(d.bytes(&d.mem[0])[20_000..21_000] == old[..], returns_old, "{transport}");
        assert_eq!(d.bytes(&d.mem[1])[..1000], d.bytes(&d.mem[0])[5000..6000]);
        assert_eq!(fences(&d), fenced);
    }
}

/// Only those pairs wait whose order the responder does not keep itself.
#[test]
fn only_what_could_overwrite_waits() {
    use SendOp::*;
    let add = FetchAdd { add: 1 };
    let swap = CompareSwap { compare: 0, swap: 1 };
    for (first, second, apart, fenced) in [
        (Write, Write, 0, 1),
        (Write, Write, 7, 1),
        (Write, Write, 8, 0),
        (Write, WriteImm(1), 0, 1),
        (Read, Write, 0, 1),
        (add, Write, 0, 1),
        (Read, add, 0, 1),
        (Read, AtomicWrite([1; 8]), 0, 1),
        (Write, Read, 0, 0),
        (Read, Read, 0, 0),
        (Write, add, 0, 0),
        (add, swap, 0, 0),
        (add, Read, 0, 0),
        (Send, Write, 0, 0),
        (Write, Send, 0, 0),
    ] {
        let mut d = duo("irn,overlap=fence", &CASE);
        d.recv(1, 100);
        let len = |op| if matches!(op, AtomicWrite(_)) { 0 } else { 8 };
        d.post(1, first, len(first));
        d.post_with(2, second, len(second), |wr| wr.remote_addr += apart);
        d.run();
        assert_eq!(d.done(0), [(1, Success), (2, Success)], "{first:?}, {second:?}");
        assert_eq!(fences(&d), fenced, "{first:?}, {second:?} {apart} bytes behind");
        // One posted when that is complete waits for nothing.
        d.post(3, Write, 8);
        d.run();
        assert_eq!((d.done(0).len(), fences(&d)), (1, fenced));
    }
}

/// The one before, by its address, too; a message without bytes overlaps nothing.
#[test]
fn ranges_meet_from_either_side() {
    for (from, len, fenced) in
        [(0, 100, 0), (0, 101, 1), (150, 10, 1), (199, 1, 1), (200, 50, 0), (150, 0, 0), (50, 300, 1)]
    {
        let mut d = duo("irn,overlap=fence", &CASE);
        write(&mut d, 1, 0, 100, 100);
        write(&mut d, 2, 5000, from, len);
        d.run();
        assert_eq!((d.done(0).len(), fences(&d)), (2, fenced), "{from} {len}");
    }
}

/// If more requests are outstanding than are compared, one of the others is assumed to overlap.
#[test]
fn the_cost_of_posting_is_bounded_and_nothing_is_missed() {
    let mut d = Duo::with(&CASE, |c| {
        c.transport = [TransportConfig::parse("irn,overlap=fence", false).expect("a transport"); 2];
        c.depth = 256;
    });
    let first = d.connection.psn[0];
    lose(&mut d, 0, move |h| h.bth.psn == first);
    for id in 0..100 {
        write(&mut d, id, id * 16, if id == 99 { 0 } else { id * 16 }, 16);
    }
    d.run();
    assert_eq!(d.done(0).len(), 100);
    assert_eq!(d.bytes(&d.mem[1])[..16], d.bytes(&d.mem[0])[99 * 16..100 * 16]);
    // Those from the 66th on have more than 64 before them.
    assert_eq!(fences(&d), 35);
}

/// Posts WRITEs to few places, over a network that loses and reorders; returns whether memory is as if they were in
/// order.
fn in_order(transport: &str, seed: u64) -> bool {
    let case = Case { transport: "irn", impairments: "delay 5us 4us loss 5% limit 100000", seed };
    let mut d = duo(transport, &case);
    let mut random = StdRng::seed_from_u64(seed);
    let mut model = d.bytes(&d.mem[1]).to_vec();
    let (mut posted, mut done) = (0, 0);
    while done < 60 {
        while posted < 60 && posted - done < 16 {
            let (source, target) = (random.random_range(0..60_000), random.random_range(0..8) * 700);
            let len = random.random_range(1..3000);
            write(&mut d, posted, source, target, len);
            let bytes = &d.bytes(&d.mem[0])[source as usize..][..len as usize];
            let bytes = bytes.to_vec();
            model[target as usize..][..len as usize].copy_from_slice(&bytes);
            posted += 1;
        }
        d.steps(1);
        done += d.done(0).iter().filter(|(_, status)| *status == Success).count() as u64;
    }
    d.bytes(&d.mem[1]) == model
}

#[test]
fn with_fences_overlapping_writes_have_their_order_on_every_network() {
    let seeds = 0..if cfg!(debug_assertions) { 12 } else { 100 };
    for transport in ["irn,overlap=fence", "auto,overlap=fence", "irn-go-back-n,overlap=fence", "ndp,overlap=fence"] {
        for seed in seeds.clone() {
            assert!(in_order(transport, seed), "{transport}, seed {seed}");
        }
    }
    let wrong = seeds.clone().filter(|seed| !in_order("irn", *seed)).count();
    assert!(wrong > seeds.end as usize / 2, "{wrong} of {} networks mix them up without", seeds.end);
}

/// The awaited request fails.
#[test]
fn a_fence_ends_with_an_error_before_it() {
    let mut d = duo("irn,overlap=fence", &CASE);
    let bad = d.mem[1].rkey ^ 1;
    let sges = [Sge { addr: d.mem[0].addr, len: 100, lkey: d.mem[0].lkey }];
    let wr = SendWr::write(1, SendData::Sges(&sges), d.mem[1].addr, bad);
    d.net.nics[0].post_send(d.ends[0].qpn, &wr).expect("room");
    write(&mut d, 2, 0, 0, 100);
    d.run();
    let done = d.done(0);
    assert_eq!(done.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 2]);
    assert!(done.iter().all(|(_, status)| *status != Success), "{done:?}");
}
