//! What a transport needs of a NIC: the [`Setup`] of its queue pairs' state, and its own fields.

use super::{Discipline, FlowControl, Overlap, Timer, TransportConfig, WireFormat};
use crate::congestion::CongestionConfig;
use crate::edge::Edge;
use crate::footprint::{Item, Ledger, Parts, Setup, bits, footprint, instant, left, part, sequence, why};
use crate::psn::Psn;
use crate::slack::Slack;

impl TransportConfig {
    /// Returns what fields of a queue pair with packets of `mtu` bytes depend on, which may have `reads` outstanding
    /// READs and atomics as a requester, and `answers` as a responder.
    pub(crate) fn setup(&self, mtu: u32, reads: u8, answers: u8) -> Setup {
        Setup {
            irn: self.wire != WireFormat::Roce,
            plain: self.wire != WireFormat::Irn,
            mtu: mtu.into(),
            reads: reads.into(),
            answers: answers.into(),
            cap: self.cap(),
            low_levels: self.discipline.low_levels().into(),
            measures: matches!(self.timer, Timer::Estimated { .. } | Timer::Tcp { .. })
                || matches!(self.discipline, Discipline::Tlp(_)),
            probes: self.has_probes(),
            evidence: self.evidence,
            echoes: self.echoes(),
            fences: self.overlap == Overlap::Fence,
            ack_priority: self.ack_priority.is_some(),
            controlled: self.congestion != CongestionConfig::None,
            cnps: self.congestion.cnp_interval().is_some(),
            telemetry: self.congestion.uses_telemetry(),
            responses: Box::new(self.response_stream(Psn::new(0))),
        }
    }
}

footprint!(TransportConfig, |at| {
    wire => left(FIXED),
    recovery => left(FIXED),
    nak => left(FIXED),
    flow => part(flow),
    timer => part(timer),
    window => left("the length of the bitmaps"),
    nack_threshold => bits(8).when(*nack_threshold > 1, why::OFF),
    retransmit_delay => left(why::MODEL),
    evidence => left(FIXED),
    placement => left(FIXED),
    patience => left("of real time: how long software waits for a process"),
    credits => left(FIXED),
    ack_every => left(FIXED),
    ack_priority => bits(3).when(ack_priority.is_some(), why::OFF),
    overlap => left(FIXED),
    discipline => part(discipline),
    // The rule, and its time or rate.
    slack => bits(3 + 32).when(*slack != Slack::None, why::OFF),
    // The rule, and three times.
    edge => bits(2 + 3 * 32).when(*edge != Edge::Off, why::OFF),
    congestion => left("parameters of congestion control: see its page"),
    line_rate => left("the port's"),
    base_rtt => left("what congestion control starts from"),
});

/// Reason for fields of [`TransportConfig`] that select the transport.
const FIXED: &str = "which transport it is: the NIC is built for it";

impl Parts for FlowControl {
    fn list(&self, at: &Setup, ledger: &mut Ledger) {
        match self {
            FlowControl::None => ledger.enter(at, "cap", left(why::OFF)),
            FlowControl::BdpCap(_) => ledger.enter(at, "cap", sequence().is(Item::Shared)),
        }
    }
}

impl Parts for Timer {
    fn list(&self, at: &Setup, ledger: &mut Ledger) {
        match self {
            Timer::Fixed(time) => ledger.enter(at, "timeout", instant().when(time.is_some(), PER_QP)),
            Timer::Irn { .. } => {
                ledger.enter(at, "low", instant().is(Item::Shared));
                ledger.enter(at, "high", instant());
                ledger.enter(at, "n", sequence().is(Item::Shared));
            }
            Timer::Estimated { .. } => {
                ["min", "max"].into_iter().for_each(|name| ledger.enter(at, name, instant()));
                ledger.enter(at, "n", sequence());
            }
            Timer::Tcp { .. } => ["min", "max"].into_iter().for_each(|name| ledger.enter(at, name, instant())),
        }
    }
}

/// Reason for the timeout.
const PER_QP: &str = "an attribute of the queue pair";
