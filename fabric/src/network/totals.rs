//! The totals of a network: what entered, what left and how, and the bytes in flight over time.

use irnic_transports::Colour;

use super::Packet;
use crate::switch::{BreakerCounters, EscapeCounters};

/// Totals of a network since its beginning. Everything that entered is accounted for: see
/// [`crate::network::Network::check`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Totals {
    /// Packets that endpoints sent.
    pub injected_packets: u64,
    /// Bytes on the wire of packets that endpoints sent.
    pub injected_bytes: u64,
    /// Red packets that endpoints sent, which are dropped first.
    pub red_packets: u64,
    /// Bytes on the wire of red packets that endpoints sent.
    pub red_bytes: u64,
    /// Of those, packets without payload, all of them green.
    pub control_packets: u64,
    /// Bytes of these.
    pub control_bytes: u64,
    /// Packets created by switches.
    pub emitted_packets: u64,
    /// Bytes on the wire of packets created by switches.
    pub emitted_bytes: u64,
    /// Packets that reached endpoints.
    pub delivered_packets: u64,
    /// Bytes on the wire of packets that reached endpoints, on arrival.
    pub delivered_bytes: u64,
    /// Payload bytes of packets that reached endpoints, including duplicates.
    pub payload_bytes: u64,
    /// Packets that switches dropped.
    pub dropped_packets: u64,
    /// Bytes on the wire of packets that switches dropped.
    pub dropped_bytes: u64,
    /// Packets lost on links.
    pub lost_packets: u64,
    /// Bytes on the wire of packets lost on links.
    pub lost_bytes: u64,
    /// Packets trimmed by switches.
    pub trimmed_packets: u64,
    /// Bytes trimmed from packets by switches.
    pub trimmed_bytes: u64,
    /// Packets returned to their sender by switches.
    pub returned_packets: u64,
    /// Packets that left switches under a policy that had been replaced.
    pub drained_packets: u64,
    /// Bytes on the wire of these.
    pub drained_bytes: u64,
    /// Bytes that switches added to packets.
    pub grown_bytes: u64,
    /// Of those, bytes that switches removed again.
    pub shrunk_bytes: u64,
    /// Counters of Escape.
    pub escape: EscapeCounters,
    /// Counters of loop breakers.
    pub breaker: BreakerCounters,
    /// PFC frames that arrived.
    pub pfc_frames: u64,
    /// PFC frames that arrived from the time set by the owner of the network.
    pub late_pfc_frames: u64,
    /// Control frames that arrived, without PFC.
    pub control_frames: u64,
    /// Bytes in the network since `since`, ns, and their integral over time before that.
    level: u64,
    since: u64,
    byte_time: u128,
    /// Time that packets spent in the network until they left it, times their bytes. It wraps below 0 while a packet
    /// that has grown is in flight.
    stay: u128,
}

impl Totals {
    /// Integral over time of the bytes in the network, until the last event that changed them, byte · ns.
    pub fn byte_time(&self) -> u128 {
        self.byte_time
    }

    /// Total time that bytes spent in the network until they left it, byte · ns.
    pub fn stay(&self) -> u128 {
        self.stay
    }

    /// Advances [`Self::byte_time`] to `now`.
    #[inline]
    pub(crate) fn integrate(&mut self, now: u64) {
        self.byte_time = self.byte_time.wrapping_add(u128::from(self.level) * u128::from(now - self.since));
        self.since = now;
    }

    /// Adds the stay of a packet of `wire` bytes that is still in flight at `now`.
    pub(crate) fn still_here(&mut self, now: u64, sent: u64, wire: u32) {
        self.stay = self.stay.wrapping_add(u128::from(wire) * u128::from(now - sent));
    }

    /// Accounts for bytes that leave the network at `now` and entered it at `sent`.
    #[inline]
    fn left(&mut self, now: u64, sent: u64, bytes: u32) {
        self.integrate(now);
        self.level -= u64::from(bytes);
        self.stay = self.stay.wrapping_add(u128::from(bytes) * u128::from(now - sent));
    }

    #[inline]
    fn entered(&mut self, now: u64, bytes: u32) {
        self.integrate(now);
        self.level += u64::from(bytes);
    }

    /// Hands a packet of `wire` bytes to another part of the network at `now`, where it arrives at `at`. Until then its
    /// time counts here.
    pub(crate) fn handed_over(&mut self, now: u64, at: u64, wire: u32) {
        self.integrate(now);
        self.level -= u64::from(wire);
        self.byte_time = self.byte_time.wrapping_add(u128::from(wire) * u128::from(at - now));
    }

    /// Takes over a packet of `wire` bytes from another part of the network at `now`. Its time counts here from its
    /// arrival at `at`, later than now.
    pub(crate) fn taken_over(&mut self, now: u64, at: u64, wire: u32) {
        self.integrate(now);
        self.level += u64::from(wire);
        self.byte_time = self.byte_time.wrapping_sub(u128::from(wire) * u128::from(at - now));
    }

    /// Adds the totals of another part of the network at the same time.
    pub(crate) fn add(&mut self, other: &Totals) {
        self.injected_packets += other.injected_packets;
        self.injected_bytes += other.injected_bytes;
        self.red_packets += other.red_packets;
        self.red_bytes += other.red_bytes;
        self.control_packets += other.control_packets;
        self.control_bytes += other.control_bytes;
        self.emitted_packets += other.emitted_packets;
        self.emitted_bytes += other.emitted_bytes;
        self.delivered_packets += other.delivered_packets;
        self.delivered_bytes += other.delivered_bytes;
        self.payload_bytes += other.payload_bytes;
        self.dropped_packets += other.dropped_packets;
        self.dropped_bytes += other.dropped_bytes;
        self.lost_packets += other.lost_packets;
        self.lost_bytes += other.lost_bytes;
        self.trimmed_packets += other.trimmed_packets;
        self.trimmed_bytes += other.trimmed_bytes;
        self.returned_packets += other.returned_packets;
        self.drained_packets += other.drained_packets;
        self.drained_bytes += other.drained_bytes;
        self.grown_bytes += other.grown_bytes;
        self.shrunk_bytes += other.shrunk_bytes;
        self.escape.add(&other.escape);
        self.breaker.add(&other.breaker);
        self.pfc_frames += other.pfc_frames;
        self.late_pfc_frames += other.late_pfc_frames;
        self.control_frames += other.control_frames;
        self.level += other.level;
        self.byte_time = self.byte_time.wrapping_add(other.byte_time);
        self.stay = self.stay.wrapping_add(other.stay);
    }

    #[inline]
    pub(crate) fn injected(&mut self, now: u64, packet: &Packet, payload: u32) {
        let wire = u64::from(packet.wire);
        self.entered(now, packet.wire);
        self.injected_packets += 1;
        self.injected_bytes += wire;
        if payload == 0 {
            self.control_packets += 1;
            self.control_bytes += wire;
        }
        if packet.colour() == Colour::Red {
            self.injected_red(wire);
        }
    }

    #[cold]
    fn injected_red(&mut self, wire: u64) {
        self.red_packets += 1;
        self.red_bytes += wire;
    }

    pub(crate) fn emitted(&mut self, now: u64, wire: u32) {
        self.entered(now, wire);
        self.emitted_packets += 1;
        self.emitted_bytes += u64::from(wire);
    }

    #[inline]
    pub(crate) fn delivered(&mut self, now: u64, sent: u64, wire: u32, payload: u32) {
        self.left(now, sent, wire);
        self.delivered_packets += 1;
        self.delivered_bytes += u64::from(wire);
        self.payload_bytes += u64::from(payload);
    }

    pub(crate) fn dropped(&mut self, now: u64, sent: u64, wire: u32) {
        self.left(now, sent, wire);
        self.dropped_packets += 1;
        self.dropped_bytes += u64::from(wire);
    }

    pub(crate) fn lost(&mut self, now: u64, sent: u64, wire: u32) {
        self.left(now, sent, wire);
        self.lost_packets += 1;
        self.lost_bytes += u64::from(wire);
    }

    /// Accounts for a packet that was trimmed by `bytes`.
    pub(crate) fn trimmed(&mut self, now: u64, sent: u64, bytes: u32) {
        self.left(now, sent, bytes);
        self.trimmed_packets += 1;
        self.trimmed_bytes += u64::from(bytes);
    }

    /// Accounts for a packet, `sent` into the network, that is longer by `bytes` from `now` on.
    pub(crate) fn grown(&mut self, now: u64, sent: u64, bytes: u32) {
        self.entered(now, bytes);
        self.grown_bytes += u64::from(bytes);
        // They will be counted as if they had been there since the packet was sent.
        self.stay = self.stay.wrapping_sub(u128::from(bytes) * u128::from(now - sent));
    }

    /// Accounts for a packet, `sent` into the network, that is shorter by `bytes` from `now` on.
    pub(crate) fn shrunk(&mut self, now: u64, sent: u64, bytes: u32) {
        self.left(now, sent, bytes);
        self.shrunk_bytes += u64::from(bytes);
    }

    pub(crate) fn pfc_arrived(&mut self, late: bool) {
        self.pfc_frames += 1;
        self.late_pfc_frames += u64::from(late);
    }
}
