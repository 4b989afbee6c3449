//! Packet capture: records the frames of a port in a pcapng file, which Wireshark decodes as RRoCE.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use irnic_transports::wire::icrc_append;
use irnic_transports::{Path, Time};

use super::pcapng::{self, Way};
use super::{MAX_FRAME, Port, RxFrame, RxIcrc, TxFrame, forward_rest};
use crate::impair::Report;

/// UDP destination port of RoCEv2.
const ROCE_V2_PORT: u16 = 4791;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const PROTOCOL_UDP: u8 = 17;
/// Don't Fragment. RoCEv2 NICs set it and leave the identification 0; the ICRC covers both.
const IPV4_DF: u16 = 0x4000;
const ETHERNET: usize = 14;
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP: usize = 8;
/// Bytes that are buffered before they are written.
const BUFFER: usize = 256 * 1024;
/// Longest time that a record waits in the buffer while [`Port::flush`] is called, in ns.
const FLUSH_INTERVAL_NS: u64 = 200_000_000;

/// A port that records the frames that go through another port.
///
/// Every frame that the inner port accepted or delivered is written with the Ethernet, IP and UDP headers that its
/// [`Path`] describes, so that addresses, ports and the ICRC over them read as on a wire. MAC addresses are derived
/// from the IP addresses; the UDP checksum is 0. `Captured<Impaired<P>>` records what the NIC sent and received,
/// `Impaired<Captured<P>>` what crossed the wire (see [`crate::impair::Impaired`]).
///
/// Records are buffered. They are written when the buffer is full, every 200 ms in [`Port::flush`], and on drop. If
/// writing fails, traffic goes on, the capture ends, and [`Captured::error`] returns the error.
pub struct Captured<P: Port, W: Write> {
    port: P,
    log: Log<W>,
}

impl<P: Port, W: Write> Captured<P, W> {
    /// Wraps `port` and records to `out`, as an interface called `name`. `epoch` is the time since 1970 at
    /// [`Time::ZERO`].
    pub fn new(port: P, out: W, name: &str, epoch: Duration) -> Captured<P, W> {
        let mut buffer = Vec::with_capacity(BUFFER + 2 * port.max_frame());
        pcapng::section_header(&mut buffer, concat!("irnic ", env!("CARGO_PKG_VERSION")));
        pcapng::interface(&mut buffer, name);
        let epoch = u64::try_from(epoch.as_nanos()).unwrap_or(u64::MAX);
        Captured { port, log: Log { out, buffer, epoch, flushed: None, state: State::Recording } }
    }

    /// Returns why the capture ended, once; `None` while it goes on.
    pub fn error(&mut self) -> Option<io::Error> {
        match &mut self.log.state {
            State::Recording => None,
            State::Failed(error) => error.take(),
        }
    }

    /// Writes what is buffered. [`Captured::error`] returns what went wrong.
    pub fn write_out(&mut self) {
        self.log.write_out();
    }

    /// Returns the inner port.
    pub fn inner(&self) -> &P {
        &self.port
    }

    /// Returns the inner port mutably. Frames sent or received there directly are not recorded.
    pub fn inner_mut(&mut self) -> &mut P {
        &mut self.port
    }
}

impl<P: Port, W: Write> Drop for Captured<P, W> {
    fn drop(&mut self) {
        self.log.write_out();
    }
}

impl<P: Port, W: Write> Port for Captured<P, W> {
    fn needs_icrc(&self, path: &Path, dest_qp: u32) -> bool {
        self.port.needs_icrc(path, dest_qp)
    }

    fn transmit(&mut self, now: Time, frame: &TxFrame<'_>, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        let log = &mut self.log;
        // What the ICRC covers, and the peer sees.
        let wire = self.port.wire_path(frame.path);
        self.port.transmit(now, frame, &mut |to| {
            fill(to);
            log.record(now, Way::Outbound, &wire, to, frame.icrc);
        })
    }

    fn flush(&mut self, now: Time) -> io::Result<()> {
        let since = *self.log.flushed.get_or_insert(now);
        if now.since(since) >= FLUSH_INTERVAL_NS {
            self.log.flushed = Some(now);
            self.log.write_out();
        }
        self.port.flush(now)
    }

    fn receive(&mut self, now: Time, budget: usize, each: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        let log = &mut self.log;
        self.port.receive(now, budget, &mut |frame| {
            log.record(frame.arrived, Way::Inbound, &frame.path, frame.bytes, frame.icrc != RxIcrc::Absent);
            each(frame);
        })
    }

    fn next_deadline(&self) -> Time {
        self.port.next_deadline()
    }

    fn impairments(&self) -> Option<[Report; 2]> {
        self.port.impairments()
    }

    forward_rest!(self => self.port);
}

enum State {
    Recording,
    /// Writing failed. Holds the error until it was returned.
    Failed(Option<io::Error>),
}

struct Log<W: Write> {
    out: W,
    buffer: Vec<u8>,
    /// Nanoseconds since 1970 at [`Time::ZERO`].
    epoch: u64,
    flushed: Option<Time>,
    state: State,
}

impl<W: Write> Log<W> {
    /// Records a frame. One without an ICRC gets the ICRC that it would have on a wire.
    fn record(&mut self, at: Time, way: Way, path: &Path, frame: &[u8], icrc: bool) {
        if matches!(self.state, State::Failed(_)) {
            return;
        }
        let mut completed = [0; MAX_FRAME];
        let frame = match completed.get_mut(..frame.len()) {
            Some(copy) if !icrc => {
                copy.copy_from_slice(frame);
                icrc_append(path, 0, copy);
                copy
            }
            _ => frame,
        };
        let mut headers = [0; ETHERNET + IPV6 + UDP];
        let len = write_headers(&mut headers, path, frame.len());
        pcapng::packet(&mut self.buffer, self.epoch.saturating_add(at.0), way, &headers[..len], frame);
        if self.buffer.len() >= BUFFER {
            self.write_out();
        }
    }

    fn write_out(&mut self) {
        if matches!(self.state, State::Failed(_)) {
            return;
        }
        if let Err(error) = self.out.write_all(&self.buffer).and_then(|()| self.out.flush()) {
            self.state = State::Failed(Some(error));
        }
        self.buffer.clear();
    }
}

/// Writes Ethernet, IP and UDP headers for `payload` bytes. Returns the length of the headers in bytes.
fn write_headers(to: &mut [u8; ETHERNET + IPV6 + UDP], path: &Path, payload: usize) -> usize {
    let udp_len = saturating_u16(UDP + payload).to_be_bytes();
    to[..6].copy_from_slice(&mac(path.dst));
    to[6..12].copy_from_slice(&mac(path.src));
    let udp = match (path.src, path.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            to[12..14].copy_from_slice(&ETHERTYPE_IPV4.to_be_bytes());
            let ip = &mut to[ETHERNET..ETHERNET + IPV4];
            ip[0] = 0x45;
            ip[1] = path.traffic_class;
            ip[2..4].copy_from_slice(&saturating_u16(IPV4 + UDP + payload).to_be_bytes());
            ip[6..8].copy_from_slice(&IPV4_DF.to_be_bytes());
            ip[8] = path.hop_limit;
            ip[9] = PROTOCOL_UDP;
            ip[12..16].copy_from_slice(&src.octets());
            ip[16..20].copy_from_slice(&dst.octets());
            let sum = checksum(ip);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            ETHERNET + IPV4
        }
        (src, dst) => {
            to[12..14].copy_from_slice(&ETHERTYPE_IPV6.to_be_bytes());
            let ip = &mut to[ETHERNET..ETHERNET + IPV6];
            ip[0] = 0x60 | path.traffic_class >> 4;
            ip[1] = path.traffic_class << 4;
            ip[4..6].copy_from_slice(&udp_len);
            ip[6] = PROTOCOL_UDP;
            ip[7] = path.hop_limit;
            ip[8..24].copy_from_slice(&ipv6(src).octets());
            ip[24..40].copy_from_slice(&ipv6(dst).octets());
            ETHERNET + IPV6
        }
    };
    to[udp..udp + 2].copy_from_slice(&path.udp_src.to_be_bytes());
    to[udp + 2..udp + 4].copy_from_slice(&ROCE_V2_PORT.to_be_bytes());
    to[udp + 4..udp + 6].copy_from_slice(&udp_len);
    udp + UDP
}

fn saturating_u16(value: usize) -> u16 {
    u16::try_from(value).unwrap_or(u16::MAX)
}

/// Returns an address as IPv6, IPv4 ones mapped: a frame may have addresses of different families if its port sees only
/// one.
fn ipv6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

/// Returns a locally administered MAC address that shows the last bytes of the IP address.
fn mac(address: IpAddr) -> [u8; 6] {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            [0x02, 0, a, b, c, d]
        }
        IpAddr::V6(v6) => {
            let [.., a, b, c, d, e] = v6.octets();
            [0x02, a, b, c, d, e]
        }
    }
}

/// Returns the Internet checksum (RFC 1071) of a header whose checksum field is 0.
fn checksum(header: &[u8]) -> u16 {
    let sum: u32 = header.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) as u16 + (sum >> 16) as u16)
}

#[cfg(test)]
mod tests;
