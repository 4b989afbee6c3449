//! Schedules: when each packet entered a network and when it left, recorded in one network and replayed in another with
//! different schedulers (Mittal, UCB/EECS-2018-103, §5.1.1).
//!
//! A run with [`crate::sim::SimConfig::schedule`] records one, which [`Replay`] replays.

mod journal;
mod replay;
mod vector;

pub(crate) use journal::Journal;
pub use replay::{Counts, Header, Replay, ReplayError, Replayed};

/// Level of detail of a recording.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Times at which packets entered and left.
    Ends,
    /// Also the times at which each switch began to send them.
    Hops,
}

/// A packet that crossed a network.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Scheduled {
    /// Flow; for a packet of an unknown flow, the number of the queue pair that sent it.
    pub flow: u32,
    /// Packet sequence number.
    pub psn: u32,
    /// Source host.
    pub src: u32,
    /// Destination host.
    pub dst: u32,
    /// Bytes on the wire when it was sent.
    pub wire: u32,
    /// Input of the ECMP hash.
    pub entropy: u32,
    /// Time at which its first bit left the host, ns: i(p). The host's own queue does not count.
    pub sent: u64,
    /// Time at which its last bit arrived at the other host, ns: o(p).
    pub left: u64,
    /// Time that it takes over the same links when idle, ns: t_min(p), with transmission and propagation rounded as in
    /// the network ([`crate::sim::ideal`]).
    pub ideal: u64,
    /// Number of switches on its path.
    pub hops: u8,
    /// Congestion points: switches in which it found other packets queued for the same output.
    pub points: u8,
    /// Switches in which it waited at all, even for the rest of a transmission.
    pub waits: u8,
}

impl Scheduled {
    /// Time that the packet waited in switches, ns. For back-to-back packets, transmission is rounded up less than in
    /// [`Self::ideal`]: by up to 1 ns per link.
    pub fn queueing(&self) -> i64 {
        self.left as i64 - self.sent as i64 - self.ideal as i64
    }
}

/// The packets of a run that reached their hosts, in the order sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    packets: Vec<Scheduled>,
    /// Switches and the times at which they began to send packets, ns, contiguous for each packet; and the start of
    /// each packet's entries.
    starts: Vec<(u32, u64)>,
    first: Vec<u32>,
}

impl Schedule {
    /// A schedule of these packets, in order of [`Scheduled::sent`], without times at switches.
    pub fn new(packets: Vec<Scheduled>) -> Schedule {
        Schedule { packets, ..Schedule::default() }
    }

    /// A schedule of these packets, with the switches of each and the times at which they began to send it, ns:
    /// [`Scheduled::hops`] entries for each, in the order of the packets. If the number of entries is wrong, they are
    /// dropped.
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

    /// The switches of a packet, by node number, and the times at which they began to send it, ns. Empty without
    /// [`Detail::Hops`].
    pub fn starts(&self, packet: usize) -> &[(u32, u64)] {
        let Some(&first) = self.first.get(packet) else { return &[] };
        let hops = usize::from(self.packets[packet].hops);
        self.starts.get(first as usize..first as usize + hops).unwrap_or_default()
    }

    /// Whether there are times at switches ([`Detail::Hops`]).
    pub fn has_starts(&self) -> bool {
        self.first.len() == self.packets.len()
    }

    /// Share of the packets with each number of congestion points, from 0.
    pub fn by_points(&self) -> Vec<f64> {
        self.shares(|packet| packet.points)
    }

    /// Share of the packets that waited in each number of switches, from 0.
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
