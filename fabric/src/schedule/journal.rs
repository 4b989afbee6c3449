//! A record of the packets in a network.

use std::collections::BTreeMap;

use super::{Detail, Schedule, Scheduled};
use crate::network::{Packet, PacketId, Port};

/// Records when packets enter a network, begin to leave its switches, and arrive.
#[derive(Debug)]
pub(crate) struct Journal {
    /// Packets in the order sent. Those that have not arrived have no time of leaving.
    packets: Vec<Scheduled>,
    /// Start times at switches, with [`Detail::Hops`].
    starts: Vec<(u32, u64)>,
    first: Vec<u32>,
    detail: Detail,
    /// Packets in flight, by number.
    ways: Vec<Way>,
    /// Flows by host and queue pair number.
    flows: BTreeMap<(u32, u32), u32>,
}

/// A packet in flight.
#[derive(Clone, Debug, Default)]
struct Way {
    /// Index of the packet.
    packet: usize,
    /// Arrival time at the current or next node, ns.
    arrived: u64,
    /// Whether it waited in the last switch.
    waited: bool,
    starts: Vec<(u32, u64)>,
}

/// Marks a packet that has not arrived.
const NEVER: u64 = u64::MAX;

impl Journal {
    pub(crate) fn new(detail: Detail) -> Journal {
        Journal {
            packets: Vec::new(),
            starts: Vec::new(),
            first: Vec::new(),
            detail,
            ways: Vec::new(),
            flows: BTreeMap::new(),
        }
    }

    /// Associates a host's queue pair with a flow from now on.
    pub(crate) fn connected(&mut self, src: u32, qpn: u32, flow: u32) {
        self.flows.insert((src, qpn), flow);
    }

    /// Records that a host begins to send a packet.
    pub(crate) fn enters(&mut self, now: u64, id: PacketId, packet: &Packet, psn: u32, port: &Port) {
        let flow = self.flows.get(&(port.node, packet.src_qp)).copied().unwrap_or(packet.src_qp);
        let place = id as usize;
        if self.ways.len() <= place {
            self.ways.resize(place + 1, Way::default());
        }
        let way = &mut self.ways[place];
        way.packet = self.packets.len();
        way.starts.clear();
        self.packets.push(Scheduled {
            flow,
            psn,
            src: port.node,
            dst: packet.dst,
            wire: packet.wire,
            entropy: packet.entropy,
            sent: now,
            left: NEVER,
            ..Scheduled::default()
        });
        if self.detail == Detail::Hops {
            self.first.push(0);
        }
        self.crosses(now, id, packet.wire, port);
    }

    /// Records that a packet has arrived at a switch and is to leave by an output, with `others` queued for it or not.
    pub(crate) fn queued(&mut self, id: PacketId, others: bool) {
        // Packets created by switches are not recorded.
        let Some(way) = self.ways.get(id as usize) else { return };
        let points = &mut self.packets[way.packet].points;
        *points = points.saturating_add(u8::from(others));
    }

    /// Records that a switch begins to send a packet.
    pub(crate) fn departs(&mut self, now: u64, id: PacketId, wire: u32, port: &Port) {
        let Some(way) = self.ways.get_mut(id as usize) else { return };
        let packet = &mut self.packets[way.packet];
        packet.hops = packet.hops.saturating_add(1);
        way.waited = now > way.arrived;
        packet.waits = packet.waits.saturating_add(u8::from(way.waited));
        if self.detail == Detail::Hops {
            way.starts.push((port.node, now));
        }
        self.crosses(now, id, wire, port);
    }

    /// Records that the last bit of an interrupted packet leaves a switch `by` ns later than recorded.
    pub(crate) fn delayed(&mut self, id: PacketId, by: u64) {
        let Some(way) = self.ways.get_mut(id as usize) else { return };
        way.arrived += by;
        if by > 0 && !std::mem::replace(&mut way.waited, true) {
            let waits = &mut self.packets[way.packet].waits;
            *waits = waits.saturating_add(1);
        }
    }

    fn crosses(&mut self, now: u64, id: PacketId, wire: u32, port: &Port) {
        let way = &mut self.ways[id as usize];
        self.packets[way.packet].ideal += port.serialization(wire).div_ceil(1000) + port.delay;
        way.arrived = port.would_end(now, wire).div_ceil(1000) + port.delay;
    }

    /// Records that a packet has arrived.
    pub(crate) fn arrives(&mut self, now: u64, id: PacketId) {
        let Some(way) = self.ways.get(id as usize) else { return };
        self.packets[way.packet].left = now;
        if self.detail == Detail::Hops {
            self.first[way.packet] = self.starts.len() as u32;
            self.starts.extend_from_slice(&way.starts);
        }
    }

    /// Returns the schedule of the packets that have arrived.
    pub(crate) fn finish(mut self) -> Schedule {
        if self.detail == Detail::Hops {
            let arrived = self.packets.iter().map(|packet| packet.left != NEVER);
            let first = self.first.iter().zip(arrived).filter_map(|(first, arrived)| arrived.then_some(*first));
            self.first = first.collect();
        }
        self.packets.retain(|packet| packet.left != NEVER);
        Schedule { packets: self.packets, starts: self.starts, first: self.first }
    }
}
