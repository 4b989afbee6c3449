//! How the network has frames captured ([`Tapped`]).

use super::preempt::Preemption;
use super::{Agenda, Control, Endpoint, Network, PacketId, Port, PortId, Put, SwitchNode, Tapped};
use crate::priorities::Priorities;
use crate::schedule::{Detail, Journal};

impl<E: Endpoint, A: Agenda> Network<E, A> {
    /// Enables [`Endpoint::on_tap`] for frames that leave by a port from now on.
    pub fn tap(&mut self, port: PortId) {
        self.ports[port as usize].tap();
    }

    /// Disables [`Endpoint::on_tap`] for all ports.
    pub fn untap(&mut self) {
        self.ports.iter_mut().for_each(Port::untap);
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
