//! Packets in transit between queues.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::items::Packet;

/// State of packets in transit between queues.
#[derive(Clone, Debug)]
pub(crate) struct Levels {
    /// Number of ports with a link, which come first.
    pub linked: usize,
    /// Ports that lead to queues.
    pub lines: Box<[Line]>,
    /// By queue, bytes in transit to it.
    pub(super) coming: Box<[u64]>,
    /// By queue, the queues whose first packet waits for room there.
    pub(super) waiting: Box<[VecDeque<u32>]>,
    /// Lines to be served, each once.
    pub(super) pending: VecDeque<u32>,
    /// Arrival times of packets at their queues, ps, and the lines.
    pub(super) due: BinaryHeap<Reverse<(u64, u32)>>,
    /// By output, bytes for it that are queued or in transit.
    pub backlog: Box<[u64]>,
}

/// A port that leads to queues.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// Index of the target among those of the plan.
    pub target: u32,
    /// Rate, bit/s.
    pub rate: u64,
    /// End of the last packet, ps.
    pub(super) ends: u64,
    pub(super) pending: bool,
    pub(super) carried: Option<Carried>,
}

/// A packet in transit to a queue.
#[derive(Clone, Debug)]
pub(super) struct Carried {
    pub(super) id: u32,
    pub(super) queue: u32,
    pub(super) packet: Packet,
}

impl Line {
    pub fn new(target: u32, rate: u64) -> Line {
        Line { target, rate, ends: 0, pending: false, carried: None }
    }
}

impl Levels {
    pub fn new(linked: usize, lines: Vec<Line>, queues: usize) -> Levels {
        let n = lines.len();
        Levels {
            linked,
            lines: lines.into(),
            coming: vec![0; queues].into(),
            waiting: vec![VecDeque::new(); queues].into(),
            pending: VecDeque::with_capacity(n),
            due: BinaryHeap::with_capacity(n),
            backlog: vec![0; linked].into(),
        }
    }

    pub(super) fn ask(&mut self, line: usize) {
        if !std::mem::replace(&mut self.lines[line].pending, true) {
            self.pending.push_back(line as u32);
        }
    }

    /// Whether a packet of an input and a priority for an output is in transit.
    pub fn carries(&self, input: u16, priority: u8, output: u16) -> bool {
        let is = |packet: &Packet| (packet.input, packet.priority, packet.output) == (input, priority, output);
        self.lines.iter().filter_map(|line| line.carried.as_ref()).any(|carried| is(&carried.packet))
    }
}
