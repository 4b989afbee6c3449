//! A placeholder for a switch that belongs to another part of the network.

use super::{Dequeue, Switch, SwitchCtx, Verdict};
use crate::network::PacketId;
use crate::priorities::Priorities;

/// A switch simulated by another part of the network: it never receives a packet here.
#[derive(Debug)]
pub(crate) struct RemoteSwitch;

impl Switch for RemoteSwitch {
    fn enqueue(&mut self, _ctx: &mut SwitchCtx<'_>, _id: PacketId, _output: u16) -> Verdict {
        Verdict::Dropped
    }

    fn dequeue(&mut self, _ctx: &mut SwitchCtx<'_>, _output: u16, _paused: Priorities) -> Dequeue {
        Dequeue::Idle
    }

    fn backlog(&self, _output: u16) -> u64 {
        0
    }
}
