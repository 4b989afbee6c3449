//! What a switch may look at and do while it handles a packet, a frame or a timer.

use irnic_transports::Psn;
use irnic_transports::wire::ip::ETHERNET_LEN;
use irnic_transports::wire::{Bth, Headers, Opcode, RateNotice};
use rand_pcg::Pcg64Mcg;

use crate::network::{Content, Control, Packet, PacketId, Packets, Pause, Port, Totals, host_of, mix};

/// What a switch works with: the present time, the packets, its own ports, its random numbers, and what it can have the
/// network do. What it asks of the network is done as soon as the call returns, in the order in which it was asked for.
#[derive(Debug)]
pub struct SwitchCtx<'a> {
    /// ns.
    pub now: u64,
    /// All packets of the network.
    pub packets: &'a mut Packets,
    /// The switch's own ports, by their numbers here.
    pub ports: &'a mut [Port],
    /// Random numbers for this switch alone, the same in every run with the same seed.
    pub rng: &'a mut Pcg64Mcg,
    pub(crate) ledger: &'a mut Ledger,
}

/// The accounts, and what switches have asked for.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub totals: Totals,
    pub effects: Vec<Effect>,
}

/// Something that a switch has asked the network to do.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Effect {
    /// Ask the upstream neighbour of an input to stop or go on.
    RequestPause(u16, Pause),
    /// Let the upstream neighbour of an input send so many more bytes of a priority.
    ReturnCredit(u16, u8, u32),
    /// Send a control frame by a port.
    Control(u16, Control),
    /// Offer a packet to the switch, as if it had just arrived.
    Submit(PacketId, Via),
    /// See whether an output has something to send.
    Poll(u16),
    /// Call [`super::Switch::on_timer`].
    WakeAt(u64),
}

/// The output by which a packet that a switch sends leaves it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Via {
    /// The output that the routes say for its destination.
    Route,
    /// The output of this port.
    Port(u16),
}

impl SwitchCtx<'_> {
    /// Drops a packet that was admitted before (push-out). The switch has taken it out of its queues. The arriving
    /// packet is dropped by answering [`super::Verdict::Dropped`] instead.
    pub fn drop(&mut self, id: PacketId) {
        let input = usize::from(self.packets.get(id).input);
        if let Some(port) = self.ports.get_mut(input) {
            port.counters.dropped += 1;
        }
        self.ledger.totals.dropped(self.now, self.packets.content(id).sent, self.packets.get(id).wire);
        self.packets.remove(id);
    }

    /// Cuts the payload off a packet in, or on its way into, the queues of `output`: it has its headers from now on, as
    /// long on the wire as they are, and arrives marked as trimmed. Returns the bytes cut, which the switch takes off
    /// its own counts of a packet that was queued.
    pub fn trim(&mut self, id: PacketId, output: u16) -> u32 {
        let cut = self.packets.trim(id);
        self.ledger.totals.trimmed(self.now, self.packets.content(id).sent, cut);
        self.ports[usize::from(output)].counters.trimmed += 1;
        cut
    }

    /// Sends a packet for `output` that is not, or no longer, in its queues back to its sender: addresses change
    /// places, it arrives marked as returned, and is offered to [`super::Switch::enqueue`] of this switch for the
    /// output that leads there.
    pub fn return_to_sender(&mut self, id: PacketId, output: u16) {
        self.packets.turn_back(id);
        self.ledger.totals.returned_packets += 1;
        self.ports[usize::from(output)].counters.returned += 1;
        self.submit(id, Via::Route);
    }

    /// Counts a packet that leaves by a policy that another has taken the place of.
    pub(crate) fn count_drained(&mut self, id: PacketId) {
        self.ledger.totals.drained_packets += 1;
        self.ledger.totals.drained_bytes += u64::from(self.packets.get(id).wire);
    }

    /// Makes a packet `bytes` longer on the wire, for a tag that switches put in. The switch adds them to its own
    /// counts of a packet that was queued.
    pub fn grow(&mut self, id: PacketId, bytes: u32) {
        self.packets.get_mut(id).wire += bytes;
        self.ledger.totals.grown(self.now, self.packets.content(id).sent, bytes);
    }

    /// Makes a packet `bytes` shorter on the wire again: a tag that [`Self::grow`] was for is gone. The switch takes
    /// them off its own counts of a packet that was queued.
    pub fn shrink(&mut self, id: PacketId, bytes: u32) {
        self.packets.get_mut(id).wire -= bytes;
        self.ledger.totals.shrunk(self.now, self.packets.content(id).sent, bytes);
    }

    /// Sends a packet of the switch's own making: it is offered to [`super::Switch::enqueue`] of this switch for the
    /// output that `via` names, charged to the buffer of the port that [`Packet::input`] names. Without a route it is
    /// dropped.
    pub fn emit(&mut self, packet: Packet, content: Content, via: Via) -> PacketId {
        self.ledger.totals.emitted(self.now, packet.wire);
        let id = self.packets.add(packet, Content { sent: self.now, slack: packet.slack, ..content });
        self.submit(id, via);
        id
    }

    /// Sends a notice to the sender of the packet that it quotes, with the highest priority. [`Packets::notice`] tells
    /// it from other packets.
    pub fn emit_notice(&mut self, notice: RateNotice) -> PacketId {
        const FCS: usize = 4;
        let path = notice.path();
        let dst = host_of(path.dst);
        let entropy = mix(notice.from.to_bits() ^ mix(dst ^ mix(notice.udp_src.into())));
        let wire = (ETHERNET_LEN + notice.datagram_len() + FCS) as u32;
        let mut packet = Packet::new(wire, dst, entropy, path.priority());
        packet.input = notice.port;
        // Where there is a BTH it is said to be a notification, for no queue pair.
        let headers = Headers::new(Bth::new(Opcode::Cnp, 0, Psn::new(0)));
        let id = self.emit(packet, Content::new(headers, path, 0), Via::Route);
        self.packets.set_notice(id, notice);
        id
    }

    /// Has a packet that was admitted before, and that the switch has taken out of its queues, offered to
    /// [`super::Switch::enqueue`] of this switch again: to another output, or with another destination.
    pub fn submit(&mut self, id: PacketId, via: Via) {
        self.ledger.effects.push(Effect::Submit(id, via));
    }

    /// Has the upstream neighbour of `input` asked to stop or go on sending a priority, by a PFC frame.
    pub fn request_pause(&mut self, input: u16, pause: Pause) {
        self.ledger.effects.push(Effect::RequestPause(input, pause));
    }

    /// Lets the upstream neighbour of `input` send `bytes` more of a priority: what came from there has left the
    /// switch, or the input has more room. For switches that grant credits ([`super::SwitchConfig::credits`]).
    pub(crate) fn return_credit(&mut self, input: u16, priority: u8, bytes: u32) {
        self.ledger.effects.push(Effect::ReturnCredit(input, priority, bytes));
    }

    /// Sends a control frame by `port`, before any packet. For PFC see [`Self::request_pause`].
    pub fn control(&mut self, port: u16, control: Control) {
        self.ledger.effects.push(match control {
            Control::Pfc(_) => return debug_assert!(false, "PFC frames are made by request_pause"),
            other => Effect::Control(port, other),
        });
    }

    /// Has [`super::Switch::dequeue`] called for `output`, if its link is free: after a call about one output made
    /// packets of another ready to go.
    pub fn poll(&mut self, output: u16) {
        self.ledger.effects.push(Effect::Poll(output));
    }

    /// Has [`super::Switch::on_timer`] called at `at`, ns. Of several times the earliest counts; the switch asks again
    /// in [`super::Switch::on_timer`] for those that remain.
    pub fn wake_at(&mut self, at: u64) {
        self.ledger.effects.push(Effect::WakeAt(at.max(self.now)));
    }
}
