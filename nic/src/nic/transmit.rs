//! Transmission and turns of queue pairs.

use irnic_transports::qp::Fast;
use irnic_transports::wire::FastHead;
use irnic_transports::{Gather, Path, Payload, Time, TxPacket};

use super::Nic;
use super::pulled::own_path;
use super::slot::Slot;
use crate::device::Device;

/// Takes the packets that a NIC sends ([`Nic::poll_transmit_into`]).
pub trait TxSink {
    /// Takes a packet. Returns false if it wants no more.
    fn packet(&mut self, packet: &TxPacket<'_>) -> bool;

    /// Returns whether it takes packets of the fast path by [`Self::fast`].
    fn takes_fast(&self) -> bool {
        false
    }

    /// Returns whether a packet of the fast path to a queue pair may carry an acknowledgement
    /// ([`FastHead::carry`]).
    fn carries_acks(&self, _path: &Path, _dest_qp: u32) -> bool {
        false
    }

    /// Takes a packet of the fast path. Returns false if it wants no more.
    fn fast(&mut self, _packet: &FastPacket<'_>) -> bool {
        true
    }
}

/// A packet of the fast path: its headers are bytes, and it carries nothing out of band.
#[derive(Copy, Clone, Debug)]
pub struct FastPacket<'a> {
    /// BTH and extended headers; the pad count is set.
    pub head: &'a FastHead,
    /// IP and UDP fields.
    pub path: &'a Path,
    /// Destination queue pair number, 24 bits.
    pub dest_qp: u32,
    /// Payload without padding: at most one segment.
    pub payload: Gather<'a>,
    /// It is of the same message as the packet of the fast path before.
    pub follows: bool,
}

/// A sink of packets alone.
struct Packets<F>(F);

impl<F: FnMut(&TxPacket<'_>) -> bool> TxSink for Packets<F> {
    fn packet(&mut self, packet: &TxPacket<'_>) -> bool {
        self.0(packet)
    }
}

impl Nic {
    /// Returns whether [`Self::poll_transmit`] may have a packet.
    #[inline]
    pub fn wants_tx(&self) -> bool {
        !self.scheduler.is_empty() || self.mads_wait
    }

    /// Passes packets to `sink` until it returns false (it took that packet, but wants no more), nothing is left to
    /// send, or `budget` packets are out. Queue pairs take turns of [`quantum`](super::NicConfig::quantum) packets,
    /// which may be spread over several calls. Low-priority packets (RC3) go when no others may. Returns the number of
    /// packets sent.
    #[inline]
    pub fn poll_transmit(&mut self, now: Time, budget: usize, sink: impl FnMut(&TxPacket<'_>) -> bool) -> usize {
        self.poll_transmit_into(now, budget, &mut Packets(sink))
    }

    /// Passes packets to `sink` as [`Self::poll_transmit`] does.
    // Neither generic nor inlined, like all calls on the packet and work path: the NIC is compiled once, in this crate.
    pub fn poll_transmit_into(&mut self, now: Time, budget: usize, sink: &mut dyn TxSink) -> usize {
        let fast = self.config.fast_path && sink.takes_fast();
        self.device.now = now;
        self.device.memory.settle();
        // Computed where it is needed: not on the fast path.
        let timestamp = |device: &Device| device.clock.ticks(now);
        let mut sent = 0;
        if self.mads_wait {
            let (mads, open) = self.gsi.transmit(timestamp(&self.device), budget, &mut |packet| sink.packet(packet));
            self.mads_wait = self.gsi.wants_tx();
            sent = mads;
            if !open {
                return sent;
            }
        }
        if !self.scheduler.urgent.is_empty() {
            let (answers, open) =
                self.transmit_feedback(timestamp(&self.device), budget - sent, &mut |packet| sink.packet(packet));
            sent += answers;
            if !open {
                return sent;
            }
        }
        let mut open = true;
        while sent < budget
            && let Some(index) = self.scheduler.pop()
        {
            let Some(slot) = self.qps[index as usize].as_mut() else { continue };
            if self.scheduler.pauses(|| slot.qp.priorities()) {
                self.scheduler.park(index);
                continue;
            }
            slot.ready = false;
            let Slot { qp, pacer, .. } = &mut **slot;
            let mtu = qp.path_mtu().bytes() as u32;
            let mut left = self.scheduler.begin_turn(index, self.quantum);
            // Nothing is left to send.
            let mut done = false;
            self.slot.rest = false;
            while left > 0 && open && sent < budget {
                if pacer.as_ref().is_some_and(|p| p.earliest(now, mtu) > now) {
                    break;
                }
                let follows = self.slot.rest;
                let made = if !fast {
                    Fast::FullPath
                } else if follows {
                    qp.poll_fast_rest(now, &mut self.device, &mut self.slot)
                } else {
                    // A pacer lets packets out one by one.
                    let two = pacer.is_none() && left > 1 && sent + 1 < budget;
                    let carries = |path: &Path, dest_qp| two && sink.carries_acks(path, dest_qp);
                    qp.poll_fast(now, &mut self.device, &mut self.slot, carries)
                };
                done = made == Fast::Nothing;
                if done || made == Fast::FullPath && !qp.poll_transmit(now, &mut self.device, &mut self.slot) {
                    break;
                }
                let Some(path) = qp.tx_path(self.slot.class) else { break };
                let own;
                let path = if self.slot.takes_usual_path() {
                    path
                } else {
                    own = own_path(path, &self.slot);
                    &own
                };
                let gather = self.device.memory.lend(qp, &self.slot.gather);
                let payload = Payload::Gather(gather);
                if let Some(pacer) = pacer {
                    pacer.spend(now, payload.len() as u32);
                }
                sent += 1;
                left -= 1;
                if made == Fast::FullPath {
                    let (headers, sideband) = (&self.slot.headers, self.slot.sideband(qp.qpn()));
                    let timestamp = timestamp(&self.device);
                    open = sink.packet(&TxPacket { headers, path, payload, timestamp, sideband });
                    continue;
                }
                let (head, dest_qp) = (&self.slot.fast, qp.dest_qp());
                open = sink.fast(&FastPacket { head, path, dest_qp, payload: gather, follows });
                if self.slot.fast.carries_ack() {
                    sent += 1;
                    left -= 1;
                }
                if self.slot.is_last {
                    done = true;
                    break;
                }
            }
            if done && slot.has_only_its_timer() {
                debug_assert!(!slot.qp.wants_tx(), "the fast path says that nothing is left");
                slot.set_timer(index, slot.qp.next_deadline(), &mut self.wheel);
            } else {
                self.touch(index);
            }
            if left > 0 && (!open || sent == budget) {
                self.scheduler.interrupt_turn(index, left);
            }
            if !open {
                break;
            }
        }
        if open && sent < budget && self.scheduler.has_low() {
            sent += self.transmit_low(now, timestamp(&self.device), budget - sent, &mut |packet| sink.packet(packet));
        }
        if self.device.cq_failed {
            self.spread_cq_failure();
        }
        sent
    }

    /// Pauses priorities (priority flow control, IEEE 802.1Qbb): queue pairs that send with a priority in `stopped`,
    /// one bit each, send nothing until the next call; low-priority packets each have their own. The priority of a
    /// packet is the upper three bits of its traffic class (its class selector, RFC 2474). Datagram queue pairs, whose
    /// packets may have any, wait for all.
    #[inline]
    pub fn set_stopped(&mut self, stopped: u8) {
        self.scheduler.set_paused(stopped);
    }
}
