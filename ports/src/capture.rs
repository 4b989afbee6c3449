//! Packet capture: records the frames of a port in a pcapng file, which Wireshark decodes as RRoCE.

use std::io::{self, Write};
use std::time::Duration;

use irnic_transports::wire::ip::{self, ETHERNET_LEN, MAX_HEADERS_LEN, emit_ethernet};
use irnic_transports::wire::{RateNotice, icrc_append};
use irnic_transports::{Path, Time};

use super::pcapng::{self, Direction, Seen};
use super::prefix::sent_icrc;
use super::{MAX_FRAME, Port, RxFrame, RxIcrc, TxFrame, forward_rest};
use crate::frames::Mac;
use crate::impair::Report;

/// Bytes buffered before a write.
const BUFFER: usize = 256 * 1024;
/// Longest time that a record stays in the buffer while [`Port::flush`] is called, in ns.
const FLUSH_INTERVAL_NS: u64 = 200_000_000;

/// A port that records the frames that go through another port.
///
/// Every frame that the inner port accepted or delivered is written with the Ethernet, IP and UDP headers that its
/// [`Path`] describes, so that addresses, ports and the ICRC over them read as on a wire. MAC addresses are derived
/// from the IP addresses; the UDP checksum is 0. `Captured<Impaired<P>>` records what the NIC sent and received,
/// `Impaired<Captured<P>>` what crossed the wire (see [`crate::impair::Impaired`]).
///
/// Records are buffered. They are written when the buffer is full, every 200 ms in [`Port::flush`], and on drop. If a
/// write fails, traffic continues, the capture ends, and [`Captured::error`] returns the error.
pub struct Captured<P: Port, W: Write> {
    port: P,
    log: Recording<W>,
    flushed: Option<Time>,
}

impl<P: Port, W: Write> Captured<P, W> {
    /// Wraps `port` and records to `out`, as an interface called `name`. `epoch` is the time since 1970 at
    /// [`Time::ZERO`].
    pub fn new(port: P, out: W, name: &str, epoch: Duration) -> Captured<P, W> {
        Captured { port, log: Recording::new(out, [name], epoch), flushed: None }
    }

    /// Returns the error that ended the capture, once; `None` while it continues.
    pub fn error(&mut self) -> Option<io::Error> {
        self.log.error()
    }

    /// Writes the buffered records. [`Captured::error`] returns the error if this fails.
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
        // The path that the ICRC covers and that the peer sees.
        let wire = self.port.wire_path(frame.path);
        self.port.transmit(now, frame, &mut |to| {
            fill(to);
            log.frame(0, now, Direction::Outbound, &wire, to, sent_icrc(frame));
        })
    }

    fn flush(&mut self, now: Time) -> io::Result<()> {
        let since = *self.flushed.get_or_insert(now);
        if now.since(since) >= FLUSH_INTERVAL_NS {
            self.flushed = Some(now);
            self.log.write_out();
        }
        self.port.flush(now)
    }

    fn receive(&mut self, now: Time, budget: usize, each: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        let log = &mut self.log;
        self.port.receive(now, budget, &mut |frame| {
            log.frame(0, frame.arrived, Direction::Inbound, &frame.path, frame.bytes, frame.icrc);
            each(frame);
        })
    }

    fn gives_notices(&self) -> bool {
        self.port.gives_notices()
    }

    fn take_notices(&mut self, now: Time, each: &mut dyn FnMut(Time, &RateNotice)) {
        let log = &mut self.log;
        self.port.take_notices(now, &mut |at, notice| {
            log.append(0, at, Direction::Inbound, &ethernet(&notice.path()), &notice.emit());
            each(at, notice);
        });
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
    /// A write failed. Holds the error until it has been returned.
    Failed(Option<io::Error>),
}

/// A pcapng file of one or more interfaces.
///
/// Records are buffered: [`Recording::write_out`] writes them. If writing fails, no more is recorded, and
/// [`Recording::error`] returns the error.
pub struct Recording<W: Write> {
    out: W,
    buffer: Vec<u8>,
    /// Nanoseconds since 1970 at [`Time::ZERO`].
    epoch: u64,
    state: State,
}

impl<W: Write> Recording<W> {
    /// Begins a file. `interfaces` are names, in the order of their numbers; `epoch` is the time since 1970 at
    /// [`Time::ZERO`].
    pub fn new<'a>(out: W, interfaces: impl IntoIterator<Item = &'a str>, epoch: Duration) -> Recording<W> {
        let mut buffer = Vec::with_capacity(BUFFER + 2 * MAX_FRAME);
        pcapng::section_header(&mut buffer, concat!("irnic ", env!("CARGO_PKG_VERSION")));
        interfaces.into_iter().for_each(|name| pcapng::interface(&mut buffer, name));
        let epoch = u64::try_from(epoch.as_nanos()).unwrap_or(u64::MAX);
        Recording { out, buffer, epoch, state: State::Recording }
    }

    /// Returns the error that ended recording, once; `None` while there is none.
    pub fn error(&mut self) -> Option<io::Error> {
        match &mut self.state {
            State::Recording => None,
            State::Failed(error) => error.take(),
        }
    }

    /// Records a frame. One without an ICRC gets the ICRC that it would have on the wire.
    fn frame(&mut self, interface: u32, at: Time, direction: Direction, path: &Path, frame: &[u8], icrc: RxIcrc) {
        let mut completed = [0; MAX_FRAME];
        let frame = match completed.get_mut(..frame.len()) {
            Some(copy) if icrc == RxIcrc::Absent && matches!(self.state, State::Recording) => {
                copy.copy_from_slice(frame);
                icrc_append(path, 0, copy);
                copy
            }
            _ => frame,
        };
        let ip_id = if let RxIcrc::Ipv4 { identification, .. } = icrc { identification } else { 0 };
        self.packet(interface, at, direction, path, ip_id, frame);
    }

    /// Records an outgoing frame, BTH to ICRC, with an ICRC that covers `path`.
    pub fn sent(&mut self, interface: u32, at: Time, path: &Path, frame: &[u8]) {
        self.frame(interface, at, Direction::Outbound, path, frame, RxIcrc::Absent);
    }

    /// Records an outgoing frame, BTH to ICRC, unchanged.
    pub fn sent_as_is(&mut self, interface: u32, at: Time, path: &Path, frame: &[u8]) {
        self.packet(interface, at, Direction::Outbound, path, 0, frame);
    }

    /// Records an outgoing Ethernet frame, from its destination address to the last byte before the frame check
    /// sequence.
    pub fn sent_ethernet(&mut self, interface: u32, at: Time, frame: &[u8]) {
        self.append(interface, at, Direction::Outbound, &[], frame);
    }

    fn packet(&mut self, interface: u32, at: Time, direction: Direction, path: &Path, ip_id: u16, frame: &[u8]) {
        let mut headers = [0; ETHERNET_LEN + MAX_HEADERS_LEN];
        let len = write_headers(&mut headers, path, ip_id, frame.len());
        self.append(interface, at, direction, &headers[..len], frame);
    }

    fn append(&mut self, interface: u32, at: Time, direction: Direction, headers: &[u8], frame: &[u8]) {
        if matches!(self.state, State::Failed(_)) {
            return;
        }
        let seen = Seen { interface, at: self.epoch.saturating_add(at.0), direction };
        pcapng::packet(&mut self.buffer, seen, headers, frame);
        if self.buffer.len() >= BUFFER {
            self.write_out();
        }
    }

    /// Writes the buffered records.
    pub fn write_out(&mut self) {
        if matches!(self.state, State::Failed(_)) {
            return;
        }
        if let Err(error) = self.out.write_all(&self.buffer).and_then(|()| self.out.flush()) {
            self.state = State::Failed(Some(error));
        }
        self.buffer.clear();
    }
}

/// Returns an Ethernet header for a capture, with MAC addresses derived from the IP addresses.
pub fn ethernet(path: &Path) -> [u8; ETHERNET_LEN] {
    let [src, dst] = [path.src, path.dst].map(|address| Mac::derived(address).0);
    emit_ethernet(path, src, dst)
}

/// Writes Ethernet, IP and UDP headers for a frame of `frame_len` bytes. Returns their length in bytes.
fn write_headers(to: &mut [u8; ETHERNET_LEN + MAX_HEADERS_LEN], path: &Path, ip_id: u16, frame_len: usize) -> usize {
    let (start, rest) = to.split_at_mut(ETHERNET_LEN);
    start.copy_from_slice(&ethernet(path));
    ETHERNET_LEN + ip::emit(path, ip_id, frame_len, rest)
}

#[cfg(all(test, not(loom)))]
mod tests;
