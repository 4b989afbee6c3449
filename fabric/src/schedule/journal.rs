//! What a network notes of the packets in it.

use std::collections::BTreeMap;

use super::{Detail, Schedule, Scheduled};
use crate::network::{Packet, PacketId, Port};

/// Notes when packets enter a network, begin to leave its switches, and arrive.
#[derive(Debug)]
pub(crate) struct Journal {
    /// Packets in the order in which they were sent. Those that have not arrived left at no time.
    packets: Vec<Scheduled>,
    /// Of packets that have arrived, with [`Detail::Hops`].
    starts: Vec<(u32, u64)>,
    first: Vec<u32>,
    detail: Detail,
    /// Of packets that are under way, by their numbers.
    ways: Vec<Way>,
    /// Flows by host and number of the queue pair.
    flows: BTreeMap<(u32, u32), u32>,
}

/// A packet under way.
#[derive(Clone, Debug, Default)]
struct Way {
    /// Its place among all.
    packet: usize,
    /// When it is at the node that it is on the way to or in, ns.
    arrived: u64,
    /// It has waited in the switch that it left last.
    waited: bool,
    starts: Vec<(u32, u64)>,
}

/// A packet that is not there.
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

    /// A flow is sent by a host's queue pair from now on.
    pub(crate) fn connected(&mut self, src: u32, qpn: u32, flow: u32) {
        self.flows.insert((src, qpn), flow);
    }

    /// A host begins to send a packet.
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

    /// A packet is there and wants to leave a switch by an output, for which others wait or not.
    pub(crate) fn queued(&mut self, id: PacketId, others: bool) {
        // What a switch has made itself is not among the packets.
        let Some(way) = self.ways.get(id as usize) else { return };
        let points = &mut self.packets[way.packet].points;
        *points = points.saturating_add(u8::from(others));
    }

    /// A switch begins to send a packet.
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

    /// The last bit of a packet that was interrupted leaves a switch so many ns later than was said.
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

    /// A packet has arrived.
    pub(crate) fn arrives(&mut self, now: u64, id: PacketId) {
        let Some(way) = self.ways.get(id as usize) else { return };
        self.packets[way.packet].left = now;
        if self.detail == Detail::Hops {
            self.first[way.packet] = self.starts.len() as u32;
            self.starts.extend_from_slice(&way.starts);
        }
    }

    /// What is known of packets that have arrived.
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
