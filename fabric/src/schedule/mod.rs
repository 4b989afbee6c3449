//! Schedules: when each packet entered a network and when it left, recorded of one network and replayed on another
//! whose switches have other schedulers (Mittal, UCB/EECS-2018-103, §5.1.1).
//!
//! A run with [`crate::sim::SimConfig::schedule`] records one, which [`Replay`] replays.

mod journal;
mod replay;
mod vector;

pub(crate) use journal::Journal;
pub use replay::{Counts, Header, Replay, ReplayError, Replayed};

/// What is recorded of each packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Detail {
    /// When it entered and left.
    Ends,
    /// When each switch began to send it as well.
    Hops,
}

/// A packet that went through a network.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Scheduled {
    /// Its flow; of a packet of which nobody knows the flow the number of the queue pair that sent it.
    pub flow: u32,
    /// Packet sequence number.
    pub psn: u32,
    /// Host that sent it.
    pub src: u32,
    /// Host that it was for.
    pub dst: u32,
    /// Bytes on the wire when it was sent.
    pub wire: u32,
    /// What ECMP hashes.
    pub entropy: u32,
    /// When its first bit left the host, ns: i(p). The host's own queue does not count.
    pub sent: u64,
    /// When its last bit was at the other host, ns: o(p).
    pub left: u64,
    /// What it takes through the same links when they are idle, ns: t_min(p), transmission and propagation rounded as
    /// the network rounds them ([`crate::sim::ideal`]).
    pub ideal: u64,
    /// Switches that it passed.
    pub hops: u8,
    /// Congestion points: switches that it found other packets waiting in, for the same output.
    pub points: u8,
    /// Switches in which it waited at all, be it for the rest of a packet that was being sent.
    pub waits: u8,
}

impl Scheduled {
    /// Time that the packet waited in switches, ns. Where packets follow each other closely, transmission is rounded
    /// less than [`Self::ideal`] has it: up to 1 ns less for each link.
    pub fn queueing(&self) -> i64 {
        self.left as i64 - self.sent as i64 - self.ideal as i64
    }
}

/// The packets of a run that reached their hosts, in the order in which they were sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    packets: Vec<Scheduled>,
    /// Switches and when they began to send packets, ns, those of a packet in a row; and where they begin, by packet.
    starts: Vec<(u32, u64)>,
    first: Vec<u32>,
}

impl Schedule {
    /// A schedule of these packets, in order of [`Scheduled::sent`], without what happened at switches.
    pub fn new(packets: Vec<Scheduled>) -> Schedule {
        Schedule { packets, ..Schedule::default() }
    }

    /// A schedule of these packets, with the switches by which each went and when they began to send it, ns: as many as
    /// its [`Scheduled::hops`], in the order of the packets. Without them if they are too few or too many.
    pub fn with_starts(packets: Vec<Scheduled>, starts: Vec<(u32, u64)>) -> Schedule {
        let mut begin = 0;
        let mut first = Vec::with_capacity(packets.len());
        for packet in &packets {
            first.push(begin);
            begin += u32::from(packet.hops);
        }
        if begin as usize != starts.len() {
            return Schedule::new(packets);
        }
        Schedule { packets, starts, first }
    }

    /// The packets.
    pub fn packets(&self) -> &[Scheduled] {
        &self.packets
    }

    /// The switches by which a packet went, by the numbers of their nodes, and when each began to send it, ns. Nothing
    /// without [`Detail::Hops`].
    pub fn starts(&self, packet: usize) -> &[(u32, u64)] {
        let Some(&first) = self.first.get(packet) else { return &[] };
        let hops = usize::from(self.packets[packet].hops);
        self.starts.get(first as usize..first as usize + hops).unwrap_or_default()
    }

    /// Whether there is what [`Detail::Hops`] adds.
    pub fn has_starts(&self) -> bool {
        self.first.len() == self.packets.len()
    }

    /// Share of the packets with each number of congestion points, from 0 on.
    pub fn by_points(&self) -> Vec<f64> {
        self.shares(|packet| packet.points)
    }

    /// Share of the packets that waited in each number of switches, from 0 on.
    pub fn by_waits(&self) -> Vec<f64> {
        self.shares(|packet| packet.waits)
    }

    fn shares(&self, of: impl Fn(&Scheduled) -> u8) -> Vec<f64> {
        let mut counts = Vec::new();
        for packet in &self.packets {
            let at = usize::from(of(packet));
            if counts.len() <= at {
                counts.resize(at + 1, 0u64);
            }
            counts[at] += 1;
        }
        counts.iter().map(|count| *count as f64 / self.packets.len().max(1) as f64).collect()
    }
}
