//! What a queue pair has for slack: beside it, since most have none.

use super::context::QpContext;
use crate::config::TransportConfig;
use crate::edge::{Judge, Verdict};
use crate::packet::RxPacket;
use crate::slack::Assignment;
use crate::time::Time;

/// State of what goes by slack.
#[derive(Clone, Debug)]
pub(super) struct SlackState {
    /// What its packets' slack follows from, if they have some.
    pub assignment: Option<Assignment>,
    /// What it judges arriving packets by, if it does.
    judge: Option<Judge>,
}

impl SlackState {
    /// That of a transport; `None` if nothing goes by slack.
    pub(super) fn new(transport: &TransportConfig) -> Option<Box<SlackState>> {
        let assignment = Assignment::new(transport.slack, transport.base_rtt);
        let judge = Judge::new(transport.edge);
        (assignment.is_some() || judge.is_some()).then(|| Box::new(SlackState { assignment, judge }))
    }

    /// Nothing was sent or received yet.
    pub(super) fn reset(&mut self) {
        self.assignment.iter_mut().for_each(Assignment::reset);
        self.judge.iter_mut().for_each(Judge::reset);
    }

    /// Says what becomes of a packet that has arrived. What has no payload is taken.
    pub(super) fn judge(&mut self, now: Time, packet: &RxPacket<'_>, c: &QpContext) -> Verdict {
        let Some(judge) = self.judge.as_mut().filter(|_| !packet.payload.is_empty()) else { return Verdict::Take };
        let full = || u64::from(c.mtu) * 8_000_000_000 / c.config.line_rate.max(1);
        judge.of(now, packet.sideband.waited, full)
    }

    /// Bits of what it has to remember: the slack of the packet before, and when it went; what CoDel knows.
    pub(super) fn bits(&self) -> u32 {
        let remembers = self.assignment.as_ref().is_some_and(Assignment::remembers);
        u32::from(remembers) * 2 * 48 + self.judge.as_ref().map_or(0, Judge::bits)
    }
}
