//! Peers that have ended without a word.

use irnic_transports::Time;
use irnic_transports::wire::mad::RejReason;

use crate::connection::State;
use crate::{Cm, ConnData, EventKind, EventParam};

impl Cm {
    /// Ends connections whose peers' processes are known to have ended, as if the peers' kernels had said so: one that
    /// stands by a DREQ, one that is being made by a REJ. `gone` is asked with the peer's address and communication id.
    ///
    /// A host that loses its power says nothing either: of peers on other hosts nothing is known, and the queue pairs
    /// find out.
    pub fn peers_gone(&mut self, now: Time, mut gone: impl FnMut(std::net::IpAddr, u32) -> bool) {
        let ended: Vec<u32> = self
            .connections
            .iter()
            .filter(|c| match c.state {
                // A peer that has said it takes a while has ended meanwhile.
                State::MraReqReceived => c.mra_id != 0 && gone(c.path.dst, c.mra_id),
                _ => c.state.knows_peer() && c.remote_id != 0 && gone(c.path.dst, c.remote_id),
            })
            .map(|c| c.comm_id)
            .collect();
        for comm_id in ended {
            let Some((state, owner)) = self.connections.get(comm_id).map(|c| (c.state, c.owner)) else { continue };
            match state {
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

    /// Destroys all ids: their process ends. Peers are told once.
    pub fn destroy_all(&mut self, now: Time) {
        let ids: Vec<_> = self.ids.keys().copied().collect();
        for id in ids {
            // Those that a listener takes along have gone already.
            let _ = self.destroy(now, id);
        }
    }
}
