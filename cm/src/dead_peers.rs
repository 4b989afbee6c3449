//! Peers that died without a message.

use irnic_transports::Time;
use irnic_transports::wire::mad::RejReason;

use crate::connection::{Connection, State};
use crate::{Cm, ConnData, EventKind, EventParam};

impl Cm {
    /// Returns the communication ids of connections whose peers' processes are dead. `is_dead` is called with the
    /// peer's address and communication id.
    ///
    /// Nothing is known of peers on other hosts, which may lose power without a message: their loss is detected by the
    /// queue pairs.
    pub fn with_dead_peers(&self, mut is_dead: impl FnMut(std::net::IpAddr, u32) -> bool) -> Vec<u32> {
        let dead = |c: &&Connection| match c.state {
            // A peer that asked for more time has died meanwhile.
            State::MraReqReceived => c.mra_id != 0 && is_dead(c.path.dst, c.mra_id),
            _ => c.state.knows_peer() && c.remote_id != 0 && is_dead(c.path.dst, c.remote_id),
        };
        self.connections.iter().filter(dead).map(|c| c.comm_id).collect()
    }

    /// Returns whether a peer that was unknown until then has asked for more time (MRA) since the last call. Its
    /// process may have died, and that have been noticed, before the MRA was received: [`Self::with_dead_peers`] has
    /// to be called again.
    pub fn take_mra(&mut self) -> bool {
        std::mem::take(&mut self.mra_arrived)
    }

    /// Ends those of the connections `dead`, whose peers' processes are dead, that have not ended yet, as if the peers'
    /// kernels had sent a DREQ for established ones, a REJ for others.
    ///
    /// What the peers sent before they died should be received between [`Self::with_dead_peers`] and this call:
    /// messages from a new process with the numbers of the dead one may have arrived with it.
    pub fn end_dead_peers(&mut self, now: Time, dead: &[u32]) {
        for &comm_id in dead {
            let Some((state, owner)) = self.connections.get(comm_id).map(|c| (c.state, c.owner)) else { continue };
            match state {
                _ if !state.knows_peer() && state != State::MraReqReceived => {}
                State::Established | State::DreqSent => self.set_disconnected(now, comm_id, 0),
                _ => {
                    let reason =
                        if state == State::ReqReceived { RejReason::TIMEOUT } else { RejReason::CONSUMER_DEFINED };
                    if state == State::RepReceived {
                        self.enter_timewait(now, comm_id);
                    } else {
                        self.end(now, comm_id, None);
                    }
                    if let Some(id) = owner {
                        let param = EventParam::Conn(ConnData::default());
                        self.raise(id, EventKind::Rejected, i32::from(reason.0), param);
                    }
                }
            }
        }
    }

    /// Destroys all ids when their process ends. Peers are notified once.
    pub fn destroy_all(&mut self, now: Time) {
        let ids: Vec<_> = self.ids.keys().copied().collect();
        for id in ids {
            // Ids of a listener's requests are destroyed with it.
            let _ = self.destroy(now, id);
        }
    }
}
