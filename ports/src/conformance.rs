//! The conformance suite of ports: the rules of [`Port`] as checks that panic when a port violates one.
//!
//! For the tests of ports, inside this crate and outside: `cargo test` runs [`suite`] for each port of the crate, and
//! for the one in [`Port`]'s documentation.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use irnic_transports::{Gather, Path, Segment, Time};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::{MAX_FRAME, Port, TxFrame};

#[cfg(all(test, not(loom)))]
mod more;
#[cfg(all(test, not(loom)))]
pub(crate) use self::more::{To, V4_A, V4_B, check_arrival, frames_bear_the_time_of_their_sending};

/// Two ports that reach each other, and the path between them.
pub struct Pair {
    pub(crate) a: Box<dyn Port>,
    pub(crate) b: Box<dyn Port>,
    /// The path from `a` to `b`.
    pub(crate) path: Path,
}

impl Pair {
    /// Joins port `a` at address `a_ip` and port `b` at address `b_ip`. Frames sent to an address arrive at its port.
    pub fn new(a: impl Port + 'static, a_ip: IpAddr, b: impl Port + 'static, b_ip: IpAddr) -> Pair {
        let path = Path { src: a_ip, dst: b_ip, udp_src: 0xc000, traffic_class: 0, hop_limit: 64 };
        Pair { a: Box::new(a), b: Box::new(b), path }
    }

    fn back(&self) -> Path {
        Path { src: self.path.dst, dst: self.path.src, ..self.path }
    }
}

/// Writes frame number `i`: the number, then bytes that depend on it and on the length.
pub(crate) fn write_frame(i: u32, bytes: &mut [u8]) {
    let len = bytes.len() as u32;
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = (i.wrapping_mul(31) ^ at as u32 ^ len) as u8;
    }
    bytes[..4].copy_from_slice(&i.to_le_bytes());
}

/// Returns the properties of a frame of `len` bytes to no queue pair in particular.
pub(crate) fn frame(path: &Path, len: usize) -> TxFrame<'_> {
    TxFrame { path, dest_qp: 0x100, len, icrc: true, irn: false }
}

pub(crate) fn check_frame(i: u32, bytes: &[u8]) {
    let mut expected = vec![0; bytes.len()];
    write_frame(i, &mut expected);
    assert!(bytes == expected, "frame {i} of {} bytes differs", bytes.len());
}

/// Receives `count` frames at `port` and returns them with their paths. Panics after ten seconds.
pub(crate) fn collect(port: &mut dyn Port, count: usize) -> Vec<(Path, Vec<u8>)> {
    let mut frames = Vec::new();
    let start = Instant::now();
    while frames.len() < count {
        port.receive(Time::ZERO, count - frames.len(), &mut |f| frames.push((f.path, f.bytes.to_vec()))).unwrap();
        assert!(start.elapsed() < Duration::from_secs(10), "{} of {count} frames came", frames.len());
    }
    frames
}

/// Runs every check, each on a fresh pair from `make`: sizes, order, payloads in place, independence of the directions,
/// a full port, budgets, paths, traffic classes and waiting.
///
/// # Panics
/// If a port violates a rule of [`Port`].
pub fn suite(mut make: impl FnMut() -> Pair) {
    every_size_arrives_intact(make());
    random_bursts_arrive_in_order(make());
    payloads_in_place_arrive_as_they_were(make());
    both_directions_are_independent(make());
    a_full_port_refuses_and_recovers(make());
    the_budget_is_kept(make());
    the_path_is_the_wire_path(make());
    marks_pass(make());
    waiting_ends(make());
}

fn every_size_arrives_intact(mut pair: Pair) {
    for (i, len) in (16..=4200).chain([MAX_FRAME]).enumerate() {
        assert!(pair.a.transmit(Time::ZERO, &frame(&pair.path, len), &mut |b| {
            assert_eq!(b.len(), len);
            write_frame(i as u32, b);
        }));
        pair.a.flush(Time::ZERO).unwrap();
        let frames = collect(&mut *pair.b, 1);
        assert_eq!(frames[0].1.len(), len);
        check_frame(i as u32, &frames[0].1);
    }
    assert_eq!(pair.a.counters().tx_frames, 4186);
    assert_eq!(pair.b.counters().rx_frames, 4186);
}

/// Runs of equal sizes and of arbitrary ones, many times around every ring and through every batch boundary.
fn random_bursts_arrive_in_order(mut pair: Pair) {
    let seed = 42;
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut sent = 0u32;
    for round in 0..150 {
        let mut lengths = Vec::new();
        // As much as the smallest ring holds.
        while lengths.iter().sum::<usize>() < 100_000 - 20 * MAX_FRAME {
            let len = random.random_range(16..=MAX_FRAME);
            lengths.extend(std::iter::repeat_n(len, random.random_range(1..20)));
        }
        for (i, len) in lengths.iter().enumerate() {
            let number = sent + i as u32;
            assert!(
                pair.a.transmit(Time::ZERO, &frame(&pair.path, *len), &mut |b| write_frame(number, b)),
                "seed {seed}"
            );
            if random.random_bool(0.1) {
                pair.a.flush(Time::ZERO).unwrap();
            }
        }
        pair.a.flush(Time::ZERO).unwrap();
        for (i, (_, bytes)) in collect(&mut *pair.b, lengths.len()).iter().enumerate() {
            assert_eq!(bytes.len(), lengths[i], "seed {seed}, round {round}, frame {i}");
            check_frame(sent + i as u32, bytes);
        }
        sent += lengths.len() as u32;
    }
}

/// Frames with an external payload in up to three pieces, among others. The payload changes after the flush.
fn payloads_in_place_arrive_as_they_were(mut pair: Pair) {
    let seed = 43;
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    for round in 0..40 {
        let mut payloads: Vec<Vec<u8>> = Vec::new();
        let mut lengths = Vec::new();
        // As much as the smallest ring holds.
        while lengths.iter().sum::<usize>() < 100_000 - 3 * MAX_FRAME {
            let len = if random.random_bool(0.7) { 4136 } else { random.random_range(64..=MAX_FRAME) };
            let number = lengths.len() as u32;
            let mut whole = vec![0; len];
            write_frame(number, &mut whole);
            let (at, end) = (random.random_range(16..48), len - random.random_range(4..8));
            let cuts = [random.random_range(at..=end), random.random_range(at..=end)];
            let cuts = [at, cuts[0].min(cuts[1]), cuts[0].max(cuts[1]), end];
            let pieces: Vec<Vec<u8>> = cuts.windows(2).map(|cut| whole[cut[0]..cut[1]].to_vec()).collect();
            let segments: Vec<Segment> =
                pieces.iter().map(|p| Segment { addr: p.as_ptr() as u64, len: p.len() as u32 }).collect();
            // SAFETY: the pieces stay alive and unchanged until the port is flushed.
            let payload = unsafe { Gather::new(&segments) }.with_stable(true);
            let header = frame(&pair.path, len);
            let in_place = (number % 3 < 2).then(|| {
                pair.a.transmit_in_place(Time::ZERO, &header, at, &payload, &mut |out| {
                    out[..at].copy_from_slice(&whole[..at]);
                    out[end..].copy_from_slice(&whole[end..]);
                })
            });
            let copied = || pair.a.transmit(Time::ZERO, &header, &mut |out| out.copy_from_slice(&whole));
            assert!(in_place.flatten().unwrap_or_else(copied), "seed {seed}, round {round}");
            payloads.extend(pieces);
            lengths.push(len);
        }
        pair.a.flush(Time::ZERO).unwrap();
        payloads.iter_mut().for_each(|payload| payload.fill(0xee));
        for (i, (_, bytes)) in collect(&mut *pair.b, lengths.len()).iter().enumerate() {
            assert_eq!(bytes.len(), lengths[i], "seed {seed}, round {round}, frame {i}");
            check_frame(i as u32, bytes);
        }
    }
}

fn both_directions_are_independent(mut pair: Pair) {
    let back = pair.back();
    for i in 0..500 {
        assert!(pair.a.transmit(Time::ZERO, &frame(&pair.path, 100), &mut |b| write_frame(i, b)));
        assert!(pair.b.transmit(Time::ZERO, &frame(&back, 200), &mut |b| write_frame(!i, b)));
        pair.a.flush(Time::ZERO).unwrap();
        pair.b.flush(Time::ZERO).unwrap();
        check_frame(i, &collect(&mut *pair.b, 1)[0].1);
        check_frame(!i, &collect(&mut *pair.a, 1)[0].1);
    }
}

fn a_full_port_refuses_and_recovers(mut pair: Pair) {
    let mut accepted = 0u32;
    loop {
        let mut called = false;
        let taken = pair.a.transmit(Time::ZERO, &frame(&pair.path, MAX_FRAME), &mut |b| {
            called = true;
            write_frame(accepted, b);
        });
        assert_eq!(taken, called, "fill is called if and only if the frame is taken");
        if !taken {
            break;
        }
        accepted += 1;
        assert!(accepted < 100_000, "the port never gets full");
    }
    assert!(accepted >= 16);
    pair.a.flush(Time::ZERO).unwrap();
    for (i, (_, bytes)) in collect(&mut *pair.b, accepted as usize).iter().enumerate() {
        check_frame(i as u32, bytes);
    }
    // There is room again, so this returns although no frame arrives.
    pair.a.wait(Duration::from_secs(600)).unwrap();
    assert!(pair.a.transmit(Time::ZERO, &frame(&pair.path, MAX_FRAME), &mut |b| write_frame(7, b)));
    pair.a.flush(Time::ZERO).unwrap();
    check_frame(7, &collect(&mut *pair.b, 1)[0].1);
}

fn the_budget_is_kept(mut pair: Pair) {
    for i in 0..40 {
        assert!(pair.a.transmit(Time::ZERO, &frame(&pair.path, 64), &mut |b| write_frame(i, b)));
    }
    pair.a.flush(Time::ZERO).unwrap();
    let mut next = 0;
    for budget in [0, 1, 7, 20, 100] {
        let mut got = 0;
        let count = pair.b.receive(Time::ZERO, budget, &mut |f| {
            check_frame(next, f.bytes);
            next += 1;
            got += 1;
        });
        assert_eq!(count.unwrap(), got);
        assert!(got <= budget);
    }
    assert_eq!(next, 40);
}

fn the_path_is_the_wire_path(mut pair: Pair) {
    for (src, class) in [(pair.path.src, 0), (pair.path.src, 0b0110_1010)] {
        let path = Path { src, traffic_class: class, ..pair.path };
        let wire = pair.a.wire_path(&path);
        assert_eq!((wire.dst, wire.traffic_class, wire.hop_limit), (path.dst, path.traffic_class, path.hop_limit));
        assert!(pair.a.transmit(Time::ZERO, &frame(&path, 64), &mut |b| write_frame(1, b)));
        pair.a.flush(Time::ZERO).unwrap();
        let seen = collect(&mut *pair.b, 1)[0].0;
        assert_eq!(Path { hop_limit: 0, ..seen }, Path { hop_limit: 0, ..wire });
    }
}

fn marks_pass(mut pair: Pair) {
    let classes: Vec<u8> = (0..=255).chain([2, 2, 2, 3, 3, 2]).collect();
    for (i, class) in classes.iter().enumerate() {
        let path = Path { traffic_class: *class, ..pair.path };
        assert!(pair.a.transmit(Time::ZERO, &frame(&path, 64), &mut |b| write_frame(i as u32, b)));
        if i % 50 == 49 {
            pair.a.flush(Time::ZERO).unwrap();
        }
    }
    pair.a.flush(Time::ZERO).unwrap();
    let seen: Vec<u8> = collect(&mut *pair.b, classes.len()).iter().map(|f| f.0.traffic_class).collect();
    assert_eq!(seen, classes);
}

fn waiting_ends(mut pair: Pair) {
    pair.b.wait(Duration::ZERO).unwrap();
    pair.b.wait(Duration::from_millis(2)).unwrap();
    assert!(pair.a.transmit(Time::ZERO, &frame(&pair.path, 64), &mut |b| write_frame(9, b)));
    pair.a.flush(Time::ZERO).unwrap();
    // Long enough that a wait which misses the frame fails by the test's own time limit.
    pair.b.wait(Duration::from_secs(600)).unwrap();
    check_frame(9, &collect(&mut *pair.b, 1)[0].1);
}
