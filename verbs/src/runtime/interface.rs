//! A device that follows its network interface.

use irnic_transports::wire::Mtu;

use super::state::State;
use super::unit::Unit;
use crate::gid::{address_of, interfaces};

impl State {
    /// Makes future queue pairs and connections use an interface's MTU.
    fn follow_mtu(&mut self, mtu: Mtu) {
        self.nic().set_mtu(mtu);
        self.manager.set_mtu(mtu);
    }

    /// Updates the device from the link of a port that knows it.
    pub(super) fn follow_link(&mut self) {
        let up = self.port().link_is_up();
        if up != self.live.get().up {
            self.presence.heard = true;
            self.live.set_up(up);
        }
    }
}

impl Unit {
    /// Updates the device from its interface, and the unit's port from the device's addresses.
    pub(super) fn follow_interface(&self) {
        let Some(watch) = &self.watch else { return };
        // First, so that changes after the read are reported.
        watch.take();
        // Without memory or descriptors the state is kept until the next change.
        let Ok(interfaces) = interfaces() else { return };
        let mut state = self.state.lock();
        self.live().follow(&interfaces);
        let info = self.info();
        state.follow_mtu(info.mtu);
        for gid in &info.gids {
            state.port().add_address(address_of(gid));
        }
        self.unlock(state);
    }
}
