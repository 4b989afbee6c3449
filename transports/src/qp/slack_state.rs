//! Slack state of a queue pair, boxed, since most have none.

use super::context::QpContext;
use crate::config::TransportConfig;
use crate::edge::{Judge, Verdict};
use crate::packet::RxPacket;
use crate::slack::Assignment;
use crate::time::Time;

/// State of slack and edge.
#[derive(Clone, Debug)]
pub(super) struct SlackState {
    /// Computes the slack of its packets, if they carry slack.
    pub assignment: Option<Assignment>,
    /// Judges arriving packets, if enabled.
    judge: Option<Judge>,
}

impl SlackState {
    /// Creates the state for a transport; `None` if it does not use slack.
    pub(super) fn new(transport: &TransportConfig) -> Option<Box<SlackState>> {
        let assignment = Assignment::new(transport.slack, transport.base_rtt);
        let judge = Judge::new(transport.edge);
        (assignment.is_some() || judge.is_some()).then(|| Box::new(SlackState { assignment, judge }))
    }

    /// Resets to the state before the first packet.
    pub(super) fn reset(&mut self) {
        self.assignment.iter_mut().for_each(Assignment::reset);
        self.judge.iter_mut().for_each(Judge::reset);
    }

    /// Decides about a packet that has arrived. Packets without payload are accepted.
    pub(super) fn judge(&mut self, now: Time, packet: &RxPacket<'_>, c: &QpContext) -> Verdict {
        let Some(judge) = self.judge.as_mut().filter(|_| !packet.payload.is_empty()) else { return Verdict::Take };
        let full = || u64::from(c.mtu) * 8_000_000_000 / c.config.line_rate.max(1);
        judge.of(now, packet.sideband.waited, full)
    }

    /// Returns the bits of its state: the slack and time of the previous packet, and CoDel's state.
    pub(super) fn bits(&self) -> u32 {
        let remembers = self.assignment.as_ref().is_some_and(Assignment::remembers);
        u32::from(remembers) * 2 * 48 + self.judge.as_ref().map_or(0, Judge::bits)
    }
}
