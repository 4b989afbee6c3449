//! Buffers of a frame port, allocated when it is opened: packets to be sent, packets that wait for an address, and
//! frames to this station itself.

use std::collections::VecDeque;
use std::net::IpAddr;

use irnic_transports::wire::ip::MAX_HEADERS_LEN;
use irnic_transports::{Path, Time};

use super::ethernet::MAX_HEADER;
use crate::{MAX_FRAME, RxIcrc};

/// Bytes of the longest packet.
pub(super) const MAX_PACKET: usize = MAX_HEADER + MAX_HEADERS_LEN + MAX_FRAME;

/// Bytes and packets of the transmit queue: with the kernel's overhead per packet, they fit into a socket buffer of the
/// default size, 212992 bytes.
const TX_BYTES: usize = 104 << 10;
const TX_PACKETS: usize = 128;

/// Packets to be sent, in order.
#[derive(Debug)]
pub(super) struct TxQueue {
    arena: Box<[u8]>,
    /// End of each packet in the arena, and whether it is a frame of the NIC. It begins where the one before ends.
    ends: Vec<(usize, bool)>,
    /// Number of packets that the carrier has accepted.
    sent: usize,
}

impl TxQueue {
    pub(super) fn new() -> TxQueue {
        TxQueue { arena: vec![0; TX_BYTES].into(), ends: Vec::with_capacity(TX_PACKETS), sent: 0 }
    }

    /// Returns whether there is room for a packet of `len` bytes.
    #[inline]
    pub(super) fn has_room(&self, len: usize) -> bool {
        self.ends.len() < TX_PACKETS && self.end() + len <= TX_BYTES
    }

    fn end(&self) -> usize {
        self.ends.last().map_or(0, |(end, _)| *end)
    }

    /// Appends a packet of `len` bytes, for the caller to write; `frame` is whether it has a frame of the NIC. `None`
    /// if there is no room.
    #[inline]
    pub(super) fn push(&mut self, len: usize, frame: bool) -> Option<&mut [u8]> {
        let start = self.end();
        if !self.has_room(len) {
            return None;
        }
        self.ends.push((start + len, frame));
        Some(&mut self.arena[start..start + len])
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns packets to be sent, in order.
    pub(super) fn pending(&self) -> impl Iterator<Item = &[u8]> {
        let ends = || self.ends.iter().map(|(end, _)| *end);
        std::iter::once(0).chain(ends()).zip(ends()).skip(self.sent).map(|(start, end)| &self.arena[start..end])
    }

    /// Returns the number of packets to be sent.
    pub(super) fn len(&self) -> usize {
        self.ends.len() - self.sent
    }

    /// Removes the first `count` packets and returns how many of them have frames of the NIC. There is room again once
    /// all are removed.
    pub(super) fn advance(&mut self, count: usize) -> u64 {
        let frames = self.ends.iter().skip(self.sent).take(count).filter(|(_, frame)| *frame).count();
        self.sent += count;
        if self.sent >= self.ends.len() {
            self.ends.clear();
            self.sent = 0;
        }
        frames as u64
    }
}

/// Maximum number of waiting packets, for all neighbours together and for one.
const WAITING: usize = 64;
const WAITING_FOR_ONE: usize = 16;

/// Packets whose destination's link-layer address is not known yet.
#[derive(Debug)]
pub(super) struct Waiting {
    slots: Box<[u8]>,
    /// Slots that are free.
    free: Vec<usize>,
    /// Destination, slot and length of each packet, in order.
    packets: Vec<(IpAddr, usize, usize)>,
}

impl Waiting {
    pub(super) fn new() -> Waiting {
        Waiting {
            slots: vec![0; WAITING * MAX_PACKET].into(),
            free: (0..WAITING).collect(),
            packets: Vec::with_capacity(WAITING),
        }
    }

    /// Appends a packet of `len` bytes to `dst`, for the caller to write; `None` if there is no room.
    pub(super) fn push(&mut self, dst: IpAddr, len: usize) -> Option<&mut [u8]> {
        if self.packets.iter().filter(|(to, ..)| *to == dst).count() >= WAITING_FOR_ONE {
            return None;
        }
        let slot = self.free.pop()?;
        self.packets.push((dst, slot, len));
        Some(&mut self.slots[slot * MAX_PACKET..][..len])
    }

    /// Removes the packets to `dst` and passes them to `each`, in order. Returns their number.
    pub(super) fn take(&mut self, dst: IpAddr, mut each: impl FnMut(&mut [u8])) -> u64 {
        let mut count = 0;
        let Waiting { slots, free, packets } = self;
        packets.retain(|&(to, slot, len)| {
            if to == dst {
                each(&mut slots[slot * MAX_PACKET..][..len]);
                free.push(slot);
                count += 1;
            }
            to != dst
        });
        count
    }
}

/// Maximum number of frames to this station that it has not received yet.
const LOOPED: usize = 64;

/// A frame from this station to itself.
#[derive(Copy, Clone, Debug)]
struct Own {
    path: Path,
    sent: Time,
    icrc: RxIcrc,
    slot: usize,
    len: usize,
}

/// Frames from this station to itself.
#[derive(Debug)]
pub(super) struct Looped {
    slots: Box<[u8]>,
    free: Vec<usize>,
    frames: VecDeque<Own>,
}

impl Looped {
    pub(super) fn new() -> Looped {
        Looped {
            slots: vec![0; LOOPED * MAX_FRAME].into(),
            free: (0..LOOPED).collect(),
            frames: VecDeque::with_capacity(LOOPED),
        }
    }

    /// Appends a frame of `len` bytes, for the caller to write; `None` if there is no room.
    pub(super) fn push(&mut self, path: &Path, sent: Time, icrc: RxIcrc, len: usize) -> Option<&mut [u8]> {
        let slot = self.free.pop()?;
        self.frames.push_back(Own { path: *path, sent, icrc, slot, len });
        Some(&mut self.slots[slot * MAX_FRAME..][..len])
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Removes the first frame and passes its path, time of sending, ICRC and bytes to `each`. Returns false if there
    /// is none.
    pub(super) fn pop(&mut self, each: impl FnOnce(Path, Time, RxIcrc, &[u8])) -> bool {
        let Some(Own { path, sent, icrc, slot, len }) = self.frames.pop_front() else { return false };
        each(path, sent, icrc, &self.slots[slot * MAX_FRAME..][..len]);
        self.free.push(slot);
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn packets_leave_in_order_and_room_returns_with_the_last() {
        let mut queue = TxQueue::new();
        let mut count = 0_u8;
        while let Some(bytes) = queue.push(4000, count.is_multiple_of(2)) {
            bytes.fill(count);
            count += 1;
        }
        assert_eq!(usize::from(count), TX_BYTES / 4000);
        assert_eq!(queue.advance(5), 3, "every other one has a frame");
        assert!(!queue.has_room(4000));
        let rest: Vec<u8> = queue.pending().map(|packet| packet[0]).collect();
        assert_eq!(rest, (5..count).collect::<Vec<_>>());
        assert!(queue.pending().all(|packet| packet.len() == 4000));
        queue.advance(rest.len());
        assert!(queue.is_empty() && queue.has_room(4000));
        for _ in 0..TX_PACKETS {
            queue.push(1, true).unwrap();
        }
        assert!(queue.push(1, true).is_none());
    }

    #[test]
    fn what_waits_is_bounded_for_each_and_for_all_and_leaves_in_order() {
        let mut waiting = Waiting::new();
        for dst in 1..=4 {
            for i in 0..WAITING_FOR_ONE as u8 {
                waiting.push(ip(dst), 10 + usize::from(i)).unwrap().fill(i);
            }
            assert!(waiting.push(ip(dst), 10).is_none());
        }
        assert!(waiting.push(ip(5), 10).is_none(), "all slots are taken");
        let mut seen = Vec::new();
        assert_eq!(waiting.take(ip(2), |packet| seen.push((packet[0], packet.len()))), 16);
        assert_eq!(seen, (0..16).map(|i| (i, 10 + usize::from(i))).collect::<Vec<_>>());
        assert_eq!(waiting.take(ip(2), |_| ()), 0);
        waiting.push(ip(5), MAX_PACKET).unwrap();
    }

    #[test]
    fn a_frame_to_oneself_arrives_as_it_was_sent() {
        let path = Path { src: ip(1), dst: ip(1), udp_src: 0xc000, traffic_class: 2, hop_limit: 3 };
        let mut looped = Looped::new();
        for round in 0..3 {
            for i in 0..LOOPED {
                looped.push(&path, Time(i as u64), RxIcrc::Absent, 20).unwrap().fill(i as u8 + round);
            }
            assert!(looped.push(&path, Time::ZERO, RxIcrc::Absent, 20).is_none());
            for i in 0..LOOPED {
                assert!(looped.pop(|seen, at, icrc, bytes| {
                    assert_eq!((seen, at, icrc), (path, Time(i as u64), RxIcrc::Absent));
                    assert_eq!(bytes, [i as u8 + round; 20]);
                }));
            }
            assert!(looped.is_empty() && !looped.pop(|_, _, _, _| ()));
        }
    }
}
