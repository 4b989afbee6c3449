//! Capture of frames as they begin to leave by tapped ports.

use irnic_transports::wire::{Headers, ICRC_LEN, RateNotice};
use irnic_transports::{Mark, Path};

use super::preempt::Preemption;
use super::{Agenda, Content, Control, Endpoint, Network, PacketId, Packets, Port, PortId, Put, SwitchNode};
use crate::priorities::Priorities;
use crate::schedule::{Detail, Journal};

/// A frame that begins to leave by a tapped port ([`Network::tap`]).
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

impl<E: Endpoint, A: Agenda> Network<E, A> {
    /// Enables [`Endpoint::on_tap`] for frames that leave by a port from now on.
    pub fn tap(&mut self, port: PortId) {
        self.ports[port as usize].tap();
    }

    /// Calls [`Endpoint::on_tap`] for a packet that was put on a host's link.
    #[cold]
    pub(crate) fn show_put(&mut self, host: u32, put: &Put) {
        let port = self.hosts[self.place_of(host)].port;
        let tapped =
            Tapped { port, at: put.began, packet: Some(put.id), packets: &self.packets, paused: Priorities::NONE };
        E::on_tap(&mut self.shared, tapped);
    }

    /// From now on, records when each packet enters, passes switches, and arrives.
    pub(crate) fn keep_journal(&mut self, detail: Detail) {
        self.journal = Some(Box::new(Journal::new(detail)));
        self.ports.iter_mut().for_each(Port::note);
    }

    /// The journal, if there is one.
    pub(crate) fn journal_mut(&mut self) -> &mut Option<Box<Journal>> {
        &mut self.journal
    }

    /// Records the output by which a packet is to leave a switch.
    #[cold]
    pub(super) fn note_queued(&mut self, place: usize, id: PacketId, output: u16) {
        let SwitchNode { ref switch, first, .. } = self.switches[place];
        let port = &self.ports[(first + u32::from(output)) as usize];
        let waits = switch.backlog(output) > 0 || port.preemption().is_some_and(Preemption::has_rests);
        if let Some(journal) = &mut self.journal {
            journal.queued(id, waits);
        }
    }

    /// Reports a packet that begins to leave by a tapped port.
    #[cold]
    pub(super) fn show(&mut self, port: PortId, packet: PacketId) {
        if let Some(journal) = &mut self.journal {
            let (by, seen) = (&self.ports[port as usize], self.packets.get(packet));
            if by.node < self.all_hosts {
                let psn = self.packets.content(packet).headers.bth.psn.get();
                journal.enters(self.now, packet, seen, psn, by);
            } else {
                journal.departs(self.now, packet, seen.wire, by);
            }
        }
        if !self.ports[port as usize].is_tapped() {
            return;
        }
        let tapped =
            Tapped { port, at: self.now, packet: Some(packet), packets: &self.packets, paused: Priorities::NONE };
        E::on_tap(&mut self.shared, tapped);
    }

    pub(super) fn show_control(&mut self, port: PortId, control: Control) {
        if let Control::Pfc(paused) = control {
            let tapped = Tapped { port, at: self.now, packet: None, packets: &self.packets, paused };
            E::on_tap(&mut self.shared, tapped);
        }
    }
}
