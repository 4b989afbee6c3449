//! What a switch may read and do while it handles a packet, a frame or a timer.

use irnic_transports::Psn;
use irnic_transports::wire::ip::ETHERNET_LEN;
use irnic_transports::wire::{Bth, Headers, Opcode, RateNotice};
use rand_pcg::Pcg64Mcg;

use crate::network::{Content, Control, Packet, PacketId, Packets, Pause, Port, Totals, host_of, mix};

/// The context of a switch: the current time, the packets, its own ports, its random numbers, and its requests to the
/// network. Requests are carried out as soon as the call returns, in the order in which they were made.
#[derive(Debug)]
pub struct SwitchCtx<'a> {
    /// Current time, ns.
    pub now: u64,
    /// All packets of the network.
    pub packets: &'a mut Packets,
    /// The switch's own ports, by port number.
    pub ports: &'a mut [Port],
    /// Random numbers of this switch only, the same in every run with the same seed.
    pub rng: &'a mut Pcg64Mcg,
    pub(crate) ledger: &'a mut Ledger,
}

/// The totals, and the requests of switches.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub totals: Totals,
    pub effects: Vec<Effect>,
}

/// A request of a switch to the network.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Effect {
    /// Ask the upstream neighbour of an input to pause or resume.
    RequestPause(u16, Pause),
    /// Let the upstream neighbour of an input send this many more bytes of a priority.
    ReturnCredit(u16, u8, u32),
    /// Send a control frame by a port.
    Control(u16, Control),
    /// Offer a packet to the switch, as if it had just arrived.
    Submit(PacketId, Via),
    /// Check whether an output has something to send.
    Poll(u16),
    /// Call [`super::Switch::on_timer`].
    WakeAt(u64),
}

/// The output for a packet that a switch sends.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Via {
    /// The output that the routes give for its destination.
    Route,
    /// The output of this port.
    Port(u16),
}

impl SwitchCtx<'_> {
    /// Drops a packet that was admitted before (push-out). The switch has taken it out of its queues. To drop the
    /// arriving packet, return [`super::Verdict::Dropped`] instead.
    pub fn drop(&mut self, id: PacketId) {
        let input = usize::from(self.packets.get(id).input);
        if let Some(port) = self.ports.get_mut(input) {
            port.counters.dropped += 1;
        }
        self.ledger.totals.dropped(self.now, self.packets.content(id).sent, self.packets.get(id).wire);
        self.packets.remove(id);
    }

    /// Cuts the payload off a packet in, or on its way into, the queues of `output`: only its headers remain, its
    /// length on the wire shrinks accordingly, and it arrives marked as trimmed. Returns the bytes cut, which the
    /// switch subtracts from its own counts if the packet was queued.
    pub fn trim(&mut self, id: PacketId, output: u16) -> u32 {
        let cut = self.packets.trim(id);
        self.ledger.totals.trimmed(self.now, self.packets.content(id).sent, cut);
        self.ports[usize::from(output)].counters.trimmed += 1;
        cut
    }

    /// Returns to its sender a packet for `output` that is not, or no longer, in its queues: addresses are swapped, it
    /// is marked as returned, and is offered to [`super::Switch::enqueue`] of this switch for the output that leads
    /// there.
    pub fn return_to_sender(&mut self, id: PacketId, output: u16) {
        self.packets.turn_back(id);
        self.ledger.totals.returned_packets += 1;
        self.ports[usize::from(output)].counters.returned += 1;
        self.submit(id, Via::Route);
    }

    /// Counts a packet that leaves under a policy that has been replaced.
    pub(crate) fn count_drained(&mut self, id: PacketId) {
        self.ledger.totals.drained_packets += 1;
        self.ledger.totals.drained_bytes += u64::from(self.packets.get(id).wire);
    }

    /// Makes a packet `bytes` longer on the wire, for a tag that switches insert. The switch adds them to its own
    /// counts if the packet was queued.
    pub fn grow(&mut self, id: PacketId, bytes: u32) {
        self.packets.get_mut(id).wire += bytes;
        self.ledger.totals.grown(self.now, self.packets.content(id).sent, bytes);
    }

    /// Makes a packet `bytes` shorter on the wire again: undoes [`Self::grow`]. The switch subtracts them from its own
    /// counts if the packet was queued.
    pub fn shrink(&mut self, id: PacketId, bytes: u32) {
        self.packets.get_mut(id).wire -= bytes;
        self.ledger.totals.shrunk(self.now, self.packets.content(id).sent, bytes);
    }

    /// Sends a packet that the switch created: it is offered to [`super::Switch::enqueue`] of this switch for the
    /// output that `via` names, charged to the buffer of the port that [`Packet::input`] names. Without a route it is
    /// dropped.
    pub fn emit(&mut self, packet: Packet, content: Content, via: Via) -> PacketId {
        self.ledger.totals.emitted(self.now, packet.wire);
        let id = self.packets.add(packet, Content { sent: self.now, slack: packet.slack, ..content });
        self.submit(id, via);
        id
    }

    /// Sends a notice to the sender of the packet that it quotes, with the highest priority. [`Packets::notice`]
    /// identifies it.
    pub fn emit_notice(&mut self, notice: RateNotice) -> PacketId {
        const FCS: usize = 4;
        let path = notice.path();
        let dst = host_of(path.dst);
        let entropy = mix(notice.from.to_bits() ^ mix(dst ^ mix(notice.udp_src.into())));
        let wire = (ETHERNET_LEN + notice.datagram_len() + FCS) as u32;
        let mut packet = Packet::new(wire, dst, entropy, path.priority());
        packet.input = notice.port;
        // Its headers, where present, are those of a CNP for no queue pair.
        let headers = Headers::new(Bth::new(Opcode::Cnp, 0, Psn::new(0)));
        let id = self.emit(packet, Content::new(headers, path, 0), Via::Route);
        self.packets.set_notice(id, notice);
        id
    }

    /// Offers a packet that was admitted before, and that the switch has taken out of its queues, to
    /// [`super::Switch::enqueue`] of this switch again: for another output, or with another destination.
    pub fn submit(&mut self, id: PacketId, via: Via) {
        self.ledger.effects.push(Effect::Submit(id, via));
    }

    /// Asks the upstream neighbour of `input` to pause or resume a priority, by a PFC frame.
    pub fn request_pause(&mut self, input: u16, pause: Pause) {
        self.ledger.effects.push(Effect::RequestPause(input, pause));
    }

    /// Lets the upstream neighbour of `input` send `bytes` more of a priority: its packets have left the switch, or the
    /// input has more room. For switches that grant credits ([`super::SwitchConfig::credits`]).
    pub(crate) fn return_credit(&mut self, input: u16, priority: u8, bytes: u32) {
        self.ledger.effects.push(Effect::ReturnCredit(input, priority, bytes));
    }

    /// Sends a control frame by `port`, before any packet. For PFC, use [`Self::request_pause`].
    pub fn control(&mut self, port: u16, control: Control) {
        self.ledger.effects.push(match control {
            Control::Pfc(_) => return debug_assert!(false, "PFC frames are made by request_pause"),
            other => Effect::Control(port, other),
        });
    }

    /// Has [`super::Switch::dequeue`] called for `output`, if its link is free. For calls for one output that make
    /// packets of another ready to send.
    pub fn poll(&mut self, output: u16) {
        self.ledger.effects.push(Effect::Poll(output));
    }

    /// Has [`super::Switch::on_timer`] called at `at`, ns. The earliest of several requests counts; the switch requests
    /// the others again in [`super::Switch::on_timer`].
    pub fn wake_at(&mut self, at: u64) {
        self.ledger.effects.push(Effect::WakeAt(at.max(self.now)));
    }
}
