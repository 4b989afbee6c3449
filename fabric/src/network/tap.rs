//! Capture of frames as they begin to leave by tapped ports.

use irnic_transports::wire::{Headers, ICRC_LEN, RateNotice};
use irnic_transports::{Mark, Path};

use super::{Content, PacketId, Packets, PortId};
use crate::priorities::Priorities;

/// A frame that begins to leave by a tapped port ([`super::Network::tap`]).
#[derive(Copy, Clone, Debug)]
pub struct Tapped<'a> {
    /// The port.
    pub port: PortId,
    /// Time, ns.
    pub at: u64,
    /// The packet; [`None`] is a PFC frame, which pauses [`Self::paused`].
    pub packet: Option<PacketId>,
    /// All packets of the network.
    pub packets: &'a Packets,
    /// For a PFC frame, exactly the priorities that the other end is to pause.
    pub paused: Priorities,
}

impl Tapped<'_> {
    /// Passes the frame to a recorder. `bytes` holds as many of the packet's bytes from the BTH to the ICRC as are
    /// available.
    pub(crate) fn record<'a>(
        &'a self,
        recorder: &mut dyn Recorder,
        bytes: impl FnOnce(&'a Content) -> (&'a [u8], usize),
    ) {
        let Tapped { port, at, packet, packets, paused } = *self;
        let Some(id) = packet else { return recorder.pause(port, at, paused) };
        let (content, packet) = (packets.content(id), packets.get(id));
        if let Some(notice) = packets.notice(id) {
            return recorder.notice(port, at, notice);
        }
        if packet.is_trimmed() {
            let mark = if packet.is_returned() { Mark::Returned } else { Mark::Trimmed };
            let mut headers = [0; Headers::MAX_LEN];
            let len = content.headers.emit(&mut headers);
            return recorder.packet(port, at, &content.path.with_mark(mark), &headers[..len], len + ICRC_LEN);
        }
        let (known, len) = bytes(content);
        recorder.packet(port, at, &content.path, known, len);
    }
}

/// A receiver of captured frames.
pub trait Recorder: Send + std::fmt::Debug {
    /// A packet begins to leave by a port at a time, ns. `bytes` are the first of its `len` bytes from the BTH to the
    /// ICRC.
    fn packet(&mut self, port: PortId, at: u64, path: &Path, bytes: &[u8], len: usize);

    /// A switch's notice begins to leave by a port at a time, ns.
    fn notice(&mut self, port: PortId, at: u64, notice: &RateNotice);

    /// A PFC frame begins to leave: the other end is to pause exactly these priorities.
    fn pause(&mut self, port: PortId, at: u64, paused: Priorities);

    /// No more frames from before this time, ns, will follow.
    fn passed(&mut self, at: u64);
}
