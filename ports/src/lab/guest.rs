//! A host of a lab that is not a process but a station on an Ethernet, such as a virtual machine whose kernel speaks
//! RoCE. The server is the link of its NIC: it answers ARP for all other hosts, and exchanges whole packets.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;

use irnic_transports::wire::icrc_append;
use irnic_transports::{Mark, Path};

use super::Addressing;
use crate::frames::{FrameConfig, FrameCounters, FramePort, FrameSpec};
use crate::stamp::host_now;
use crate::{Port, RxFrame, TxFrame};

/// Counters of a guest's packets between it and the network.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GuestCounters {
    /// Host number of the guest.
    pub host: u32,
    /// RoCE packets that the guest has sent.
    pub sent: u64,
    /// RoCE packets delivered to the guest.
    pub received: u64,
    /// Packets of the guest whose ICRC was wrong.
    pub rx_icrc: u64,
    /// Packets of the guest that found the queue of its link full.
    pub overrun: u64,
    /// Packets for which the guest had no room, or that it would not understand (trimmed ones).
    pub dropped: u64,
    /// Its other packets, and its neighbours.
    pub frames: FrameCounters,
}

/// Maximum number of packets that wait for a guest's link. A virtual machine is not blocked instead: QEMU would then
/// retry continuously and do nothing else.
const QUEUE: usize = 1_000;
/// Packets taken at once.
const BATCH: usize = 16;

/// A guest.
pub(super) struct Guest {
    pub(super) host: u32,
    port: FramePort,
    addressing: Addressing,
    hosts: u32,
    /// Packets that wait for the link, which has one queue for all priorities; and buffers for more.
    queue: VecDeque<(u32, Path, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
    paused: u8,
    counters: GuestCounters,
}

impl Guest {
    pub(super) fn open(host: u32, spec: &FrameSpec, addressing: Addressing, hosts: u32) -> io::Result<Guest> {
        let others = (0..hosts).filter(|other| *other != host).map(|other| addressing.address(other)).collect();
        let mut port = FramePort::open(&FrameConfig::new(spec.clone(), others))?;
        // A guest that knows its neighbours from before does not ask for them.
        port.resolve(host_now(), addressing.address(host));
        let counters = GuestCounters { host, ..GuestCounters::default() };
        Ok(Guest { host, port, addressing, hosts, queue: VecDeque::new(), spare: Vec::new(), paused: 0, counters })
    }

    /// Returns a descriptor that becomes readable when the guest has sent something.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.port.descriptor()
    }

    /// Takes what the guest has sent. If its link is `free`, passes the first waiting packet to `each`: destination
    /// host, path and frame.
    pub(super) fn take(&mut self, free: bool, each: &mut dyn FnMut(u32, &Path, &[u8])) {
        let Guest { port, queue, spare, counters, addressing, hosts, .. } = self;
        // A carrier that has failed recovers with its guest.
        let _ = port.receive(host_now(), BATCH, &mut |frame: RxFrame<'_>| {
            let RxFrame { path, bytes, icrc, .. } = frame;
            let Some(dst) = addressing.host_of(path.dst, *hosts) else { return };
            if !icrc.is_right(&path, bytes) {
                counters.rx_icrc += 1;
            } else if queue.len() >= QUEUE {
                counters.overrun += 1;
            } else {
                counters.sent += 1;
                let mut buffer = spare.pop().unwrap_or_default();
                buffer.clear();
                buffer.extend_from_slice(bytes);
                queue.push_back((dst, path, buffer));
            }
        });
        if free
            && self.waits()
            && let Some((dst, path, bytes)) = self.queue.pop_front()
        {
            each(dst, &path, &bytes);
            self.spare.push(bytes);
        }
    }

    /// Returns whether a packet waits for the link and is not paused.
    pub(super) fn waits(&self) -> bool {
        self.queue.front().is_some_and(|(_, path, _)| self.paused >> path.priority() & 1 == 0)
    }

    /// Delivers a frame to the guest, with the ICRC for its addresses.
    pub(super) fn deliver(&mut self, src: u32, (udp_src, traffic_class): (u16, u8), frame: &[u8], corrupted: bool) {
        let Guest { port, addressing, host, counters, .. } = self;
        let (src, dst) = (addressing.address(src), addressing.address(*host));
        let path = Path { src, dst, udp_src, traffic_class, hop_limit: 64 };
        let wire = port.wire_path(&path);
        let whole = TxFrame { path: &path, dest_qp: 0, len: frame.len(), icrc: true, irn: false };
        let taken = path.mark() == Mark::Whole
            && port.transmit(host_now(), &whole, &mut |to| {
                to.copy_from_slice(frame);
                icrc_append(&wire, 0, to);
                if let Some(last) = to.last_mut() {
                    *last ^= u8::from(corrupted);
                }
            });
        *(if taken { &mut counters.received } else { &mut counters.dropped }) += 1;
    }

    /// Pauses exactly these priorities on the link.
    pub(super) fn pause(&mut self, paused: u8) {
        self.paused = paused;
    }

    /// Sends what waits to the guest. What has no room is sent later; a dead guest gets nothing.
    pub(super) fn publish(&mut self) {
        let _ = self.port.flush(host_now());
    }

    /// Returns whether the server may sleep until the guest's descriptor is readable.
    pub(super) fn may_sleep(&mut self) -> bool {
        self.port.prepare_sleep()
    }

    pub(super) fn counters(&self) -> GuestCounters {
        GuestCounters { frames: self.port.frame_counters(), ..self.counters }
    }
}
