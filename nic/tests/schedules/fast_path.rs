//! The fast path of small messages does what the path of all others does: the same schedules with and without it send
//! the same bytes at the same times, and end with the same counters.

use irnic_nic::NicConfig;
use irnic_transports::config::TransportConfig;
use irnic_transports::qp::{Access, RecvWr, SendData, SendOp, SendWr, Sge, Wc, WcOpcode, WcStatus};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::choices::impairments;
use crate::common::seeds::sweep;
use crate::common::{ALL, CARRY, Carry, Connection, FAST_PATH, Network, connect, create};
use crate::model::{self, Outcome};

/// Messages of each end of a conversation, and the room for each.
const MESSAGES: usize = 60;
const ROOM: usize = 512;

/// Runs a schedule with the fast path or without it, or at some ends only.
fn run(seed: u64, run: fn(u64, bool) -> Outcome, fast: Option<bool>, carry: Carry) -> Outcome {
    FAST_PATH.set(fast);
    CARRY.set(Some(carry));
    let outcome = run(seed, false);
    FAST_PATH.set(None);
    CARRY.set(None);
    outcome
}

/// Compares schedules of a kind that run in two ways. Returns the sum of the outcomes of the first.
fn compare(count: u64, kind: fn(u64, bool) -> Outcome, [one, other]: [(Option<bool>, Carry); 2]) -> Outcome {
    let both = |seed| {
        let [one, other] = [one, other].map(|(fast, carry)| run(seed, kind, fast, carry));
        let same = |outcome: &Outcome| Outcome { fast: 0, carried: 0, ..outcome.clone() };
        assert_eq!(same(&one), same(&other));
        one
    };
    sweep("schedules", 1, count, both, Outcome::add)
}

#[test]
fn schedules_are_the_same_with_and_without_it() {
    let count = crate::how_many(2_000);
    let ways = [(Some(true), Carry::No), (Some(false), Carry::No)];
    assert!(compare(count, model::run, ways).fast > count);
    assert!(compare(count / 4, model::run_newer, ways).fast > 0);
}

/// What a message of a conversation is.
#[derive(Copy, Clone, PartialEq)]
enum Kind {
    Send,
    Write,
    Read,
    FetchAdd,
    CompareSwap,
}

/// Two ends that send each other small messages and read each other's memory, and post between taking what has arrived
/// and answering it.
fn conversation(seed: u64, _verbose: bool) -> Outcome {
    let mut rng = StdRng::seed_from_u64(seed);
    let preset = |name| TransportConfig::preset(name).expect("a preset");
    let transport = [preset(["irn", "auto"][rng.random_range(0..2)]), preset("irn")];
    let rd_atomic = rng.random_range(1..=4);
    let c = Connection { transport, rd_atomic, sq_sig_all: true, ..Connection::default() };
    let config = NicConfig { quantum: [2, 16][rng.random_range(0..2)], ..NicConfig::default() };
    let mut net = Network::new(2, &impairments(&mut rng), seed, &config);
    let ends = [create(&mut net, 0, &c, 0, None), create(&mut net, 1, &c, 1, None)];
    connect(&mut net, &c, ends);
    // Frames name addresses, which are the same each time.
    let rights = Access(ALL.0 | Access::ZERO_BASED.0);
    let mut memory = |len| ends.map(|end| net.nics[end.nic].alloc_mr(end.pd, len as u64, rights).expect("memory"));
    let (from, to) = (memory(MESSAGES * ROOM), memory(MESSAGES * ROOM));
    // What an end reads, and what its peer's atomics count.
    let (back, counter) = (memory(MESSAGES * ROOM), memory(8));
    for (nic, mr) in net.nics.iter_mut().zip(&from) {
        let bytes = nic.bytes_mut(mr).expect("memory").iter_mut();
        bytes.enumerate().for_each(|(i, byte)| *byte = (i * 7 + i / ROOM + mr.lkey as usize) as u8);
    }
    let lens: [Vec<u32>; 2] = ends.map(|_| (0..MESSAGES).map(|_| rng.random_range(0..=ROOM as u32)).collect());
    let mut kind = || match rng.random_range(0..8) {
        0..3 => Kind::Send,
        3..5 => Kind::Write,
        5 => Kind::FetchAdd,
        6 => Kind::CompareSwap,
        _ => Kind::Read,
    };
    let kinds: [Vec<Kind>; 2] = ends.map(|_| (0..MESSAGES).map(|_| kind()).collect());
    for (i, end) in ends.iter().enumerate() {
        for at in (0..MESSAGES).filter(|at| kinds[1 - i][*at] == Kind::Send) {
            let sges = [Sge { addr: to[i].addr + (at * ROOM) as u64, len: ROOM as u32, lkey: to[i].lkey }];
            net.nics[i].post_recv(end.qpn, &RecvWr { wr_id: 0, sges: &sges }).expect("room");
        }
    }
    let (mut posted, mut done, mut counted) = ([0; 2], [0; 2], [0; 2]);
    for _ in 0..100_000 {
        for i in [0, 1] {
            let most = rng.random_range(1..=4);
            while posted[i] < MESSAGES && posted[i] - done[i] < most {
                let (at, kind) = (posted[i], kinds[i][posted[i]]);
                let place = (at * ROOM) as u64;
                let (local, remote, len) = match kind {
                    Kind::Send | Kind::Write => (&from[i], to[1 - i].addr + place, lens[i][at]),
                    Kind::Read => (&back[i], from[1 - i].addr + place, lens[i][at]),
                    Kind::FetchAdd | Kind::CompareSwap => (&back[i], counter[1 - i].addr, 8),
                };
                let op = match kind {
                    Kind::Send => SendOp::Send,
                    Kind::Write => SendOp::Write,
                    Kind::Read => SendOp::Read,
                    Kind::FetchAdd => SendOp::FetchAdd { add: 1 },
                    Kind::CompareSwap => SendOp::CompareSwap { compare: counted[i], swap: counted[i] + 1 },
                };
                let rkey = match kind {
                    Kind::Send | Kind::Write => to[1 - i].rkey,
                    Kind::Read => from[1 - i].rkey,
                    Kind::FetchAdd | Kind::CompareSwap => counter[1 - i].rkey,
                };
                counted[i] += u64::from(matches!(kind, Kind::FetchAdd | Kind::CompareSwap));
                let sges = [Sge { addr: local.addr + place, len, lkey: local.lkey }];
                let wr = SendWr { remote_addr: remote, rkey, ..SendWr::new(1, op, SendData::Sges(&sges)) };
                net.nics[i].post_send(ends[i].qpn, &wr).expect("room");
                posted[i] += 1;
            }
        }
        if rng.random_bool(0.7) {
            net.send();
        }
        net.receive();
        for i in [0, 1] {
            let mut wcs = [Wc::EMPTY; 16];
            let n = net.nics[i].poll_cq(ends[i].cq, &mut wcs).expect("a queue");
            assert!(wcs[..n].iter().all(|wc| wc.status == WcStatus::Success), "{:?}", &wcs[..n]);
            done[i] += wcs[..n].iter().filter(|wc| wc.opcode != WcOpcode::Recv).count();
        }
        if done == [MESSAGES; 2] {
            break;
        }
    }
    assert_eq!(done, [MESSAGES; 2], "all has arrived");
    for i in [0, 1] {
        let memory = |nic: usize, mr| net.nics[nic].bytes(mr).expect("memory");
        let mut counts = 0;
        for at in 0..MESSAGES {
            let range = at * ROOM..at * ROOM + lens[i][at] as usize;
            match kinds[i][at] {
                // SENDs take the receive buffers in order, which are at the places of the SENDs.
                Kind::Send | Kind::Write => {
                    assert_eq!(memory(i, &from[i])[range.clone()], memory(1 - i, &to[1 - i])[range], "{at} of {i}");
                }
                Kind::Read => {
                    assert_eq!(memory(1 - i, &from[1 - i])[range.clone()], memory(i, &back[i])[range], "{at} of {i}");
                }
                Kind::FetchAdd | Kind::CompareSwap => {
                    let before = memory(i, &back[i])[at * ROOM..][..8].try_into().expect("8 bytes");
                    assert_eq!(u64::from_ne_bytes(before), counts, "{at} of {i}");
                    counts += 1;
                }
            }
        }
        assert_eq!(memory(1 - i, &counter[1 - i]), counts.to_ne_bytes());
    }
    Outcome::of(&net, 2 * MESSAGES as u64, 0)
}

#[test]
fn a_packet_that_carries_an_acknowledgement_stands_for_the_two_frames() {
    type Kind = fn(u64, bool) -> Outcome;
    for (kind, count, least) in [(conversation as Kind, crate::how_many(1_000), 2), (model::run, 500, 0)] {
        // For the network: the same bytes at the same times.
        let ways = [(None, Carry::ApartWhenSent), (None, Carry::No)];
        let mut carried = compare(count, kind, ways).carried;
        // For the receiver, with and without a fast path of its own: where both are lost, marked or delayed together.
        let ways = [(None, Carry::Whole), (None, Carry::ApartOnArrival)];
        carried = carried.min(compare(count, kind, ways).carried);
        assert!(carried >= least * count, "{carried} in {count} schedules");
    }
}
