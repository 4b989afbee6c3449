//! Programs that poll memory instead of waiting for completions: the bytes they poll are written last.

use irnic_transports::config::TransportConfig;
use irnic_transports::qp::{SendOp, WcStatus};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::kit::{Case, Duo, byte, wr};

const IMPAIRMENTS: &str = "delay 5us 3us reorder 20% loss 5% duplicate 5% limit 100000";

/// A request of a program: where its bytes will be, and how many. They differ from the previous contents.
struct Request {
    op: SendOp,
    at: usize,
    len: usize,
}

/// Posts a mix of READs or WRITEs and atomics.
fn post(d: &mut Duo, rng: &mut StdRng, reads: bool) -> Vec<Request> {
    let mut at = 0;
    (0..24)
        .map(|id| {
            let op = match (reads, rng.random_range(0..4)) {
                (true, 0) => SendOp::FetchAdd { add: 1 },
                (true, _) => SendOp::Read,
                (false, _) => SendOp::Write,
            };
            let len = match (op, rng.random_range(0..4)) {
                (SendOp::FetchAdd { .. }, _) => 8,
                (_, 0) => rng.random_range(1..=8),
                (_, 1) => rng.random_range(1..=64),
                (_, 2) => rng.random_range(1..=1024),
                _ => rng.random_range(1..=5000),
            };
            let request = Request { op, at, len };
            at = (at + len).next_multiple_of(8);
            let sges = [d.sge(0, request.at as u64, len as u32)];
            let mut wr = wr(id, op, &sges, &d.mem[1]);
            wr.remote_addr += request.at as u64;
            d.net.nics[d.ends[0].nic].post_send(d.ends[0].qpn, &wr).expect("room");
            request
        })
        .collect()
}

/// Polls the memory that end `to` requested to be filled, as a program that spins on the last byte of each. Returns how
/// often a last byte was there before others.
fn too_early(d: &Duo, to: usize, requests: &[Request]) -> usize {
    let memory = d.bytes(&d.mem[to]);
    let from = 1 - to;
    let is_there = |a: &Request, k: usize| memory[a.at + k] == byte(from, a.at + k) | 1;
    let mut early = 0;
    for (n, a) in requests.iter().enumerate() {
        let seen = match a.op {
            // The previous value, which differs from the contents of the destination.
            SendOp::FetchAdd { .. } => memory[a.at..a.at + 8] != [0; 8],
            _ => is_there(a, a.len - 1),
        };
        if seen {
            let whole = |a: &Request| match a.op {
                SendOp::FetchAdd { .. } => memory[a.at..a.at + 8] != [0; 8],
                _ => (0..a.len).all(|k| is_there(a, k)),
            };
            early += requests[..=n].iter().filter(|a| !whole(a)).count();
        }
    }
    early
}

/// Runs seeds with a placement; returns how often bytes were seen too early, and how many packets arrived out of order.
fn watch(placement: &str, reads: bool) -> (usize, u64) {
    let transport: TransportConfig = format!("irn,placement={placement}").parse().expect("a transport");
    let (mut early, mut out_of_order) = (0, 0);
    for seed in 0..40 {
        let case = Case { transport: "irn", impairments: IMPAIRMENTS, seed };
        let mut d = Duo::with(&case, |c| (c.transport, c.rd_atomic) = ([transport; 2], 16));
        let to = usize::from(!reads);
        // None of the polled values is there: no byte of the source is 0 in what follows.
        for end in [0, 1] {
            let mr = d.mem[end];
            let bytes = d.net.nics[d.ends[end].nic].bytes_mut(&mr).expect("its memory");
            for (k, b) in bytes.iter_mut().enumerate() {
                *b = if end == to { 0 } else { byte(end, k) | 1 };
            }
        }
        let requests = post(&mut d, &mut StdRng::seed_from_u64(seed), reads);
        while d.net.step() {
            early += too_early(&d, to, &requests);
        }
        assert!(d.done(0).iter().all(|wc| wc.1 == WcStatus::Success));
        assert_eq!(too_early(&d, to, &requests), 0, "in the end");
        out_of_order += d.net.nics[to].counters().irn_ooo_placed;
    }
    (early, out_of_order)
}

#[test]
fn what_a_program_watches_is_there_last() {
    for reads in [false, true] {
        for placement in ["watched", "in-order"] {
            let (early, out_of_order) = watch(placement, reads);
            assert!(early == 0 && out_of_order > 100, "{placement}, {reads}: {early} of {out_of_order}");
        }
        // As in the paper.
        let (early, _) = watch("any", reads);
        assert!(early > 100, "{reads}: {early}");
    }
}
