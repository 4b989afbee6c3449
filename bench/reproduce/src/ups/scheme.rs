//! Schemes: switch and sender configurations of runs with transports (§5.2, §5.3).

use irnic_fabric::experiment::Transport;
use irnic_fabric::switch::{Discipline, Ecn, OutputQueuedConfig, SwitchConfig};
use irnic_transports::Slack;

use super::network::{G, PAPERS, PAYLOAD, Wire};

/// Bytes around the payload, and length of an acknowledgement: the same share of a packet as 40 of 1510.
pub const HEADER: u32 = 28;
/// A packet of TCP, with 40 bytes of headers and 10 of timestamps in the authors' simulator.
pub const TCPS: Wire = Wire { text: PAPERS + 50, here: PAYLOAD + HEADER };
/// A packet of other transports, which have no headers there.
pub const OTHERS: Wire = Wire { text: PAPERS, ..TCPS };
/// TCP as in the authors' scripts: an initial window of two packets, a minimum timeout of 200 ms.
pub const TCP: &str = "iwarp,cc.initial=2,rto-min=200ms,rto-max=60s";
/// DCTCP, equal to TCP except for its reaction to marks; the text does not give timeouts of the datacenter.
const DCTCP: &str = "iwarp,cc=dctcp,cc.initial=2,cc.ssthresh=65536,rto-min=1ms,rto-max=60s";
/// Parameter of both, for windows that the handshake's answer opens by one.
const AFTER_HANDSHAKE: &str = ",cc.initial=1";
/// Slack larger than any queueing delay, ns.
const LONG: u64 = G;
/// Queue length without marks, packets (Table 5.4).
const K: u64 = 15;
/// Unlimited buffer, bytes.
pub const ROOM: u64 = 1 << 40;

/// A configuration of switches and senders.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Scheme {
    Fifo,
    Fq,
    /// Shortest remaining first, with the packets of a flow in order.
    Srpt,
    /// Shortest job first, by priorities.
    Sjf,
    /// LSTF with slack by flow size.
    Size,
    /// LSTF with equal slack.
    Constant,
    /// LSTF with fair slack at this rate, Mbit/s.
    Fair(u64),
    /// FQ with CoDel in switches.
    FqCodel,
    /// FQ, and Edge-CoDel with this refresh threshold, ms.
    FqEdge(u64),
    /// [`Scheme::Fair`], and Edge-CoDel with this refresh threshold, ms.
    FairEdge(u64, u64),
    /// DCTCP without marks.
    Unmarked,
    /// DCTCP with FIFO switches that mark.
    Marked,
    /// DCTCP, and LSTF with equal slack; the receiver marks.
    EdgeEcn,
}

impl Scheme {
    /// The discipline of the switches.
    pub fn discipline(self) -> Discipline {
        match self {
            Scheme::Fifo | Scheme::Unmarked | Scheme::Marked => Discipline::Fifo,
            Scheme::Fq | Scheme::FqEdge(_) => Discipline::Fair,
            Scheme::FqCodel => Discipline::FairCodel,
            Scheme::Srpt => Discipline::ShortestFlow,
            Scheme::Sjf => Discipline::Rank,
            Scheme::Size | Scheme::Constant | Scheme::Fair(_) | Scheme::FairEdge(..) | Scheme::EdgeEcn => {
                Discipline::LeastSlack
            }
        }
    }

    /// Name in plots.
    pub fn name(self) -> String {
        match self {
            Scheme::Fifo => "FIFO".into(),
            Scheme::Fq => "FQ".into(),
            Scheme::Srpt => "SRPT".into(),
            Scheme::Sjf => "SJF".into(),
            Scheme::Size | Scheme::Constant => "LSTF".into(),
            Scheme::Fair(mbps) => format!("LSTF, {mbps} Mbit/s"),
            Scheme::FqCodel => "FQ-CoDel".into(),
            Scheme::FqEdge(_) => "FQ, Edge-CoDel".into(),
            Scheme::FairEdge(..) => "LSTF, Edge-CoDel".into(),
            Scheme::Unmarked => "DCTCP without ECN".into(),
            Scheme::Marked => "DCTCP".into(),
            Scheme::EdgeEcn => "DCTCP, Edge-ECN".into(),
        }
    }

    /// Slack set by senders.
    pub fn slack(self) -> Slack {
        match self {
            Scheme::Srpt => Slack::Remaining(LONG),
            Scheme::Sjf | Scheme::Size => Slack::Size(LONG),
            Scheme::Constant | Scheme::EdgeEcn => Slack::Constant(LONG),
            // Slack counts payload, which is all of a packet in the text.
            Scheme::Fair(mbps) | Scheme::FairEdge(mbps, _) => {
                Slack::Fair(mbps * 1_000_000 * u64::from(PAYLOAD) / u64::from(PAPERS))
            }
            _ => Slack::None,
        }
    }

    /// Transmission time of a packet at the rate of fair slack, ns.
    pub fn spacing(self) -> Option<i64> {
        match self {
            Scheme::Fair(mbps) | Scheme::FairEdge(mbps, _) => Some((u64::from(PAPERS) * 8_000 / mbps) as i64),
            _ => None,
        }
    }

    /// Switches with a limit of `packets` per port, or unlimited.
    pub fn switches(self, packets: Option<u32>) -> SwitchConfig {
        let mut config = OutputQueuedConfig::new(ROOM, self.discipline());
        config.packets = packets;
        if self == Scheme::Marked {
            config.ecn = Ecn::Step { k: K * u64::from(TCPS.here) };
        }
        SwitchConfig::OutputQueued(config)
    }

    /// The transport `text` with the parameters of the scheme.
    pub fn transport(self, text: &str) -> Result<Transport, String> {
        let text = match self {
            Scheme::FqEdge(refresh) | Scheme::FairEdge(_, refresh) => {
                format!("{text},edge=codel:5ms:100ms:{refresh}ms")
            }
            // A packet takes 1.168 µs.
            Scheme::EdgeEcn => format!("{text},edge=ecn:{}ns", K * 1_168),
            _ => text.to_owned(),
        };
        let mut transport: Transport = text.parse().map_err(|e| format!("{text}: {e}"))?;
        transport.config.slack = self.slack();
        Ok(transport)
    }

    /// TCP or DCTCP with the parameters of the scheme, with or without a handshake through the network.
    pub fn tcp(self, handshake: bool) -> Result<Transport, String> {
        let marks = matches!(self, Scheme::Unmarked | Scheme::Marked | Scheme::EdgeEcn);
        let initial = if handshake { AFTER_HANDSHAKE } else { "" };
        self.transport(&format!("{}{initial}", if marks { DCTCP } else { TCP }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_fair_slack_are_as_far_apart_as_the_texts() {
        // Like packets of 1460 bytes at 100 Mbit/s.
        let Slack::Fair(bps) = Scheme::Fair(100).slack() else { panic!("no rate") };
        assert_eq!(u64::from(PAYLOAD) * 8 * G / bps, 116_800);
    }
}
