//! IP packets of a host's kernel. A TUN device in the host's network namespace exchanges them with the server, which
//! sends each as a UD SEND, as IP over InfiniBand does (RFC 4391), so that it crosses the same links and switches as
//! the host's RDMA frames, and is subject to the same faults.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use irnic_transports::wire::{Bth, Deth, Headers, ICRC_LEN, Opcode, parse};
use irnic_transports::{Mark, Path, Psn};

use super::Addressing;

/// Queue pair number of the frames: one of slot 0, which no process has.
pub(super) const QPN: u32 = 2;
/// Q_Key of IP over InfiniBand's broadcast group by default (RFC 4391, 5).
const QKEY: u32 = 0x0b1b;
/// What precedes the packet: the type of IPv4, and two reserved bytes (RFC 4391, 6).
const ENCAPSULATION: [u8; 4] = [0x08, 0, 0, 0];
/// Maximum length of a packet.
pub const MTU: usize = 1_500;
/// Maximum number of packets that wait for the link, as an interface's transmit queue has.
const QUEUE: usize = 1_000;
/// Packets taken at once.
const BATCH: usize = 16;

/// Counters of IP packets of hosts' kernels.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IpCounters {
    /// Packets that hosts have sent.
    pub sent: u64,
    /// Packets delivered to hosts.
    pub received: u64,
    /// Packets that found the queue of their link full.
    pub overrun: u64,
    /// Packets that were corrupted, trimmed, not IPv4, for an address without a host, or that the device refused.
    pub dropped: u64,
}

impl IpCounters {
    /// Returns the sums.
    pub(super) fn plus(self, other: IpCounters) -> IpCounters {
        IpCounters {
            sent: self.sent + other.sent,
            received: self.received + other.received,
            overrun: self.overrun + other.overrun,
            dropped: self.dropped + other.dropped,
        }
    }
}

/// A packet for the link: destination host, UDP source port, traffic class and frame.
pub(super) struct Waiting {
    pub dst: u32,
    pub udp_src: u16,
    pub traffic_class: u8,
    pub frame: Vec<u8>,
}

/// The TUN device of a host.
pub(super) struct Tun {
    pub(super) host: u32,
    file: OwnedFd,
    addressing: Addressing,
    hosts: u32,
    queue: VecDeque<Waiting>,
    spare: Vec<Vec<u8>>,
    paused: u8,
    psn: Psn,
    counters: IpCounters,
}

impl Tun {
    pub(super) fn new(host: u32, file: OwnedFd, addressing: Addressing, hosts: u32) -> io::Result<Tun> {
        // SAFETY: an open descriptor, and no memory.
        let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
        // SAFETY: as above.
        if flags < 0 || unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let (queue, spare, counters) = (VecDeque::new(), Vec::new(), IpCounters::default());
        Ok(Tun { host, file, addressing, hosts, queue, spare, paused: 0, psn: Psn::new(0), counters })
    }

    /// Returns a descriptor that is readable while the host has sent something.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(super) fn counters(&self) -> IpCounters {
        self.counters
    }

    /// Pauses exactly these priorities on the link.
    pub(super) fn pause(&mut self, paused: u8) {
        self.paused = paused;
    }

    /// Returns whether a packet waits for the link and is not paused.
    pub(super) fn waits(&self) -> bool {
        self.queue.front().is_some_and(|waiting| self.paused >> (waiting.traffic_class >> 5) & 1 == 0)
    }

    /// Takes what the host has sent. Returns the first waiting packet if the link is `free`; its frame is returned by
    /// [`Tun::reuse`].
    pub(super) fn take(&mut self, free: bool) -> Option<Waiting> {
        let mut packet = [0; MTU];
        for _ in 0..BATCH {
            // SAFETY: a writable buffer with its length.
            let read = unsafe { libc::read(self.file.as_raw_fd(), packet.as_mut_ptr().cast(), packet.len()) };
            let Ok(len) = usize::try_from(read) else { break };
            self.enqueue(&packet[..len]);
        }
        if free && self.waits() { self.queue.pop_front() } else { None }
    }

    /// Keeps the buffer of a frame that was sent for another.
    pub(super) fn reuse(&mut self, frame: Vec<u8>) {
        self.spare.push(frame);
    }

    fn enqueue(&mut self, packet: &[u8]) {
        let dst = destination(packet).and_then(|dst| self.addressing.host_of(IpAddr::V4(dst), self.hosts));
        let Some(dst) = dst else {
            self.counters.dropped += 1;
            return;
        };
        if self.queue.len() >= QUEUE {
            self.counters.overrun += 1;
            return;
        }
        let mut frame = self.spare.pop().unwrap_or_default();
        write_frame(packet, self.psn, &mut frame);
        self.psn = self.psn.plus(1);
        self.counters.sent += 1;
        self.queue.push_back(Waiting { dst, udp_src: entropy(packet), traffic_class: packet[1], frame });
    }

    /// Delivers a frame to the host.
    pub(super) fn deliver(&mut self, traffic_class: u8, frame: &[u8], corrupted: bool) {
        let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let mark = Path { src: any, dst: any, udp_src: 0, traffic_class, hop_limit: 64 }.mark();
        let taken = mark == Mark::Whole
            && !corrupted
            && packet_in(frame).is_some_and(|packet| {
                let mut copy = [0; MTU];
                let Some(copy) = copy.get_mut(..packet.len()) else { return false };
                copy.copy_from_slice(packet);
                mark_congestion(copy, traffic_class);
                // SAFETY: a readable buffer with its length.
                let written = unsafe { libc::write(self.file.as_raw_fd(), copy.as_ptr().cast(), copy.len()) };
                written == copy.len() as isize
            });
        *(if taken { &mut self.counters.received } else { &mut self.counters.dropped }) += 1;
    }
}

/// Returns the destination of an IPv4 packet.
fn destination(packet: &[u8]) -> Option<Ipv4Addr> {
    let header = packet.first_chunk::<20>()?;
    (header[0] >> 4 == 4).then(|| Ipv4Addr::new(header[16], header[17], header[18], header[19]))
}

/// Returns a UDP source port by which switches keep the packets of a connection on one path.
fn entropy(packet: &[u8]) -> u16 {
    let header = usize::from(packet[0] & 0x0f) * 4;
    let ports = packet.get(header..header + 4).filter(|_| matches!(packet[9], 6 | 17));
    let [a, b, c, d] = ports.and_then(|ports| ports.try_into().ok()).unwrap_or([0; 4]);
    0xc000 | u16::from_be_bytes([a, b]) ^ u16::from_be_bytes([c, d]).rotate_left(5)
}

/// Writes the frame of a packet, with an ICRC of 0, which labs do not check.
pub(super) fn write_frame(packet: &[u8], psn: Psn, frame: &mut Vec<u8>) {
    let payload = ENCAPSULATION.len() + packet.len();
    let pad = payload.wrapping_neg() & 3;
    let bth = Bth { pad: pad as u8, ..Bth::new(Opcode::UdSendOnly, QPN, psn) };
    let headers = Headers { deth: Some(Deth { qkey: QKEY, src_qp: QPN }), ..Headers::new(bth) };
    frame.clear();
    frame.resize(headers.len(), 0);
    headers.emit(frame);
    frame.extend_from_slice(&ENCAPSULATION);
    frame.extend_from_slice(packet);
    frame.resize(frame.len() + pad + ICRC_LEN, 0);
}

/// Returns the packet of a frame.
fn packet_in(frame: &[u8]) -> Option<&[u8]> {
    let (headers, payload) = parse(frame).ok()?;
    let packet = payload.strip_prefix(&ENCAPSULATION)?;
    (headers.bth.opcode == Opcode::UdSendOnly && destination(packet).is_some()).then_some(packet)
}

/// Marks an ECN-capable packet if its frame was marked on the way (RFC 3168), and corrects its checksum (RFC 1624).
fn mark_congestion(packet: &mut [u8], traffic_class: u8) {
    let old = packet[1];
    if traffic_class & 3 != 3 || !matches!(old & 3, 1 | 2) {
        return;
    }
    packet[1] |= 3;
    let sum = u32::from(!u16::from_be_bytes([packet[10], packet[11]]))
        + u32::from(!u16::from_be_bytes([packet[0], old]))
        + u32::from(u16::from_be_bytes([packet[0], packet[1]]));
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    packet[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    /// A UDP packet of host 0 to host 1, with its header's checksum.
    fn packet(tos: u8, payload: usize) -> Vec<u8> {
        let mut packet = vec![0; 28 + payload];
        packet[..10].copy_from_slice(&[0x45, tos, 0, (28 + payload) as u8, 0, 1, 0, 0, 64, 17]);
        packet[12..20].copy_from_slice(&[10, 77, 0, 1, 10, 77, 0, 2]);
        packet[20..24].copy_from_slice(&[0x12, 0x34, 0, 53]);
        let sum = checksum(&packet);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    fn checksum(packet: &[u8]) -> u16 {
        let words = packet[..20].chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
        let sum: u32 = words.sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        !((sum & 0xffff) + (sum >> 16)) as u16
    }

    /// The device of a host, and the kernel's side of it.
    fn tun(host: u32) -> (Tun, UnixDatagram) {
        let (device, kernel) = UnixDatagram::pair().unwrap();
        kernel.set_nonblocking(true).unwrap();
        (Tun::new(host, device.into(), Addressing::Namespaces, 2).unwrap(), kernel)
    }

    #[test]
    fn packets_cross_the_network_as_they_are() {
        for payload in 0..8 {
            let ((mut a, kernel_a), (mut b, kernel_b)) = (tun(0), tun(1));
            let sent = packet(0, payload);
            kernel_a.send(&sent).unwrap();
            assert!(a.take(false).is_none() && a.waits(), "the link is busy");
            let Some(Waiting { dst: 1, udp_src, traffic_class: 0, frame }) = a.take(true) else { panic!("{payload}") };
            assert!(udp_src >= 0xc000 && frame.len() % 4 == 0, "{udp_src:#x} {}", frame.len());
            b.deliver(0, &frame, false);
            a.reuse(frame);
            let mut got = [0; MTU];
            let len = kernel_b.recv(&mut got).unwrap();
            assert_eq!(got[..len], sent);
            assert_eq!((a.counters().sent, b.counters().received), (1, 1));
        }
    }

    #[test]
    fn a_marked_frame_marks_a_capable_packet() {
        for (tos, marked) in [(0, 0), (1, 3), (2, 3), (3, 3), (0x62, 0x63)] {
            let mut packet = packet(tos, 4);
            mark_congestion(&mut packet, 3);
            assert_eq!((packet[1], checksum(&packet)), (marked, 0), "{tos:#x}");
        }
    }

    #[test]
    fn what_is_no_packet_for_a_host_is_dropped_and_counted() {
        let (mut a, kernel) = tun(0);
        let mut elsewhere = packet(0, 0);
        elsewhere[16] = 11;
        for bytes in [&elsewhere[..], &[0x60; 40], &[0x45], &[]] {
            kernel.send(bytes).unwrap();
        }
        assert!(a.take(true).is_none());
        let mut frame = Vec::new();
        write_frame(&packet(0, 9), Psn::new(7), &mut frame);
        a.deliver(0, &frame, true);
        a.deliver(0, &frame[..30], false);
        a.deliver(0, &[], false);
        write_frame(&[0x60; 40], Psn::new(7), &mut frame);
        a.deliver(0, &frame, false);
        assert_eq!(a.counters(), IpCounters { dropped: 8, ..IpCounters::default() });
    }

    #[test]
    fn what_waits_is_limited_and_paused_by_priority() {
        let (mut a, _kernel) = tun(0);
        for _ in 0..QUEUE + 3 {
            a.enqueue(&packet(0x60, 0));
        }
        assert_eq!((a.counters().sent, a.counters().overrun), (QUEUE as u64, 3));
        a.pause(1 << 3);
        assert!(!a.waits());
        a.pause(!(1 << 3));
        assert!(a.waits());
    }
}
