//! Colours of packets (TLT, EuroSys 2021, §4): red ones have a threshold of their own in each queue.

use irnic_transports::Colour;

use crate::network::{Packet, PacketId};
use crate::switch::SwitchCtx;

/// The bytes of red packets in each queue, and their limit.
#[derive(Clone, Debug)]
pub(super) struct Colours {
    /// K of TLT §4.1.
    most: u64,
    /// By queue.
    red: Box<[u64]>,
}

impl Colours {
    /// For this many queues, all empty.
    pub(super) fn new(most: u64, queues: usize) -> Colours {
        Colours { most, red: vec![0; queues].into() }
    }

    /// Whether a packet's colour admits it to the other limits of the queue. Drops are counted.
    #[inline(never)]
    pub(super) fn admits(&self, ctx: &mut SwitchCtx<'_>, id: PacketId, output: u16, queue: usize) -> bool {
        let packet = ctx.packets.get(id);
        let admitted = packet.colour() == Colour::Green || self.red[queue] + u64::from(packet.wire) <= self.most;
        ctx.ports[usize::from(output)].counters.red_dropped += u64::from(!admitted);
        admitted
    }

    /// Accounts for an admitted packet.
    #[inline(never)]
    pub(super) fn enter(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId, output: u16, queue: usize) {
        let packet = ctx.packets.get(id);
        if packet.colour() == Colour::Red {
            let red = &mut self.red[queue];
            *red += u64::from(packet.wire);
            debug_assert!(*red <= self.most);
            let counters = &mut ctx.ports[usize::from(output)].counters;
            counters.red_peak = counters.red_peak.max(*red);
        }
    }

    /// Accounts for a packet that leaves.
    #[inline(never)]
    pub(super) fn leave(&mut self, packet: &Packet, queue: usize) {
        if packet.colour() == Colour::Red {
            self.red[queue] -= u64::from(packet.wire);
        }
    }
}

/// Counts the drop of a packet that its colour admitted, but for which there was no room.
#[cold]
pub(in crate::switch) fn count_drop(ctx: &mut SwitchCtx<'_>, id: PacketId, output: u16) {
    let packet = ctx.packets.get(id);
    let counters = &mut ctx.ports[usize::from(output)].counters;
    match packet.colour() {
        Colour::Red => counters.red_dropped += 1,
        Colour::Green if packet.is_control() => counters.control_dropped += 1,
        Colour::Green => counters.green_dropped += 1,
    }
}
