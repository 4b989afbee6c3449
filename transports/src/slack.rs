//! Slack: the time that each packet may wait in queues. Switches that schedule by least slack time first then implement
//! the policy of the assignment here (Mittal's dissertation, chapter 5: universal packet scheduling).

use std::fmt;
use std::str::FromStr;

use irnic_units::{BitRate, MAX_NS, MAX_RATE, Nanoseconds, rate, time};

use crate::time::Time;

/// Assignment of slack to a queue pair's packets. Packets without payload have none, and so are most urgent everywhere.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Slack {
    /// No assignment: 0 for all.
    #[default]
    None,
    /// This many ns for each full packet of the message: shortest job first, for the mean flow completion time
    /// (§5.2.1).
    Size(u64),
    /// This many ns for each full packet of the message from this one to the last: shortest remaining processing time
    /// (§5.2.1).
    Remaining(u64),
    /// A constant in ns: FIFO+, for the tail of delays (§5.2.2).
    Constant(u64),
    /// As if each packet were served at this rate, bit/s: virtual clock, for fairness (§5.2.3). A queue pair's weight
    /// is in proportion to its rate.
    Fair(u64),
    /// Time left until this many ns after the message's first packet was sent, minus half of the round trip of an empty
    /// network (§5.1.1).
    Deadline(u64),
}

/// Slack per packet of a flow, where 1 s is longer than any queueing delay (§5.2.1, §5.2.2).
const LONG: u64 = 1_000_000_000;

/// Valid values, for messages.
pub(crate) const EXPECTED: &str = "none, fct, srpt or constant and a time such as constant:1s, fair and a rate such as \
                                   fair:100M, or deadline and a time such as deadline:2ms";

impl FromStr for Slack {
    type Err = ();

    fn from_str(text: &str) -> Result<Slack, ()> {
        let (name, value) = text.split_once(':').map_or((text, None), |(name, value)| (name, Some(value)));
        let given = |text| time(text).filter(|ns| (1..=MAX_NS).contains(ns)).ok_or(());
        let or_long = || value.map_or(Ok(LONG), given);
        match name {
            "none" if value.is_none() => Ok(Slack::None),
            "fct" => or_long().map(Slack::Size),
            "srpt" => or_long().map(Slack::Remaining),
            "constant" => or_long().map(Slack::Constant),
            "fair" => value.and_then(rate).filter(|bps| (1..=MAX_RATE).contains(bps)).map(Slack::Fair).ok_or(()),
            "deadline" => value.ok_or(()).and_then(given).map(Slack::Deadline),
            _ => Err(()),
        }
    }
}

impl fmt::Display for Slack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Slack::None => f.write_str("none"),
            Slack::Size(ns) => write!(f, "fct:{}", Nanoseconds(ns)),
            Slack::Remaining(ns) => write!(f, "srpt:{}", Nanoseconds(ns)),
            Slack::Constant(ns) => write!(f, "constant:{}", Nanoseconds(ns)),
            Slack::Fair(bps) => write!(f, "fair:{}", BitRate(bps)),
            Slack::Deadline(ns) => write!(f, "deadline:{}", Nanoseconds(ns)),
        }
    }
}

/// Position of a packet in its message.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// Bytes of the message.
    pub of: u32,
    /// Bytes of it before this packet.
    pub at: u32,
    /// Bytes of this packet.
    pub len: u32,
}

/// State of a queue pair's slack assignment.
#[derive(Clone, Debug)]
pub(crate) struct Assignment {
    slack: Slack,
    /// Half a round trip of the empty network, ns.
    way: u64,
    /// Slack and departure time of the previous packet. With deadlines: departure of the message's first packet.
    last: Option<(i64, Time)>,
}

impl Assignment {
    /// Creates the state for a transport; `None` if its packets carry no slack.
    pub(crate) fn new(slack: Slack, base_rtt: u64) -> Option<Assignment> {
        (slack != Slack::None).then_some(Assignment { slack, way: base_rtt / 2, last: None })
    }

    /// Returns whether slack depends on earlier packets.
    pub(crate) fn remembers(&self) -> bool {
        matches!(self.slack, Slack::Fair(_) | Slack::Deadline(_))
    }

    /// Resets to the state before the first packet.
    pub(crate) fn reset(&mut self) {
        self.last = None;
    }

    /// Returns the slack of a packet that leaves now, ns. `mtu`: bytes of a full packet.
    pub(crate) fn of(&mut self, now: Time, piece: Piece, mtu: u32) -> i64 {
        let signed = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
        let each = |bytes: u32, ns: u64| signed(u64::from(bytes.div_ceil(mtu).max(1)).saturating_mul(ns));
        match self.slack {
            Slack::None => 0,
            Slack::Size(ns) => each(piece.of, ns),
            Slack::Remaining(ns) => each(piece.of - piece.at, ns),
            Slack::Constant(ns) => signed(ns),
            Slack::Fair(bps) => {
                let takes = u64::from(piece.len).saturating_mul(8_000_000_000) / bps;
                let slack = self.last.map_or(0, |(slack, at)| slack + signed(takes) - signed(now.0 - at.0)).max(0);
                self.last = Some((slack, now));
                slack
            }
            Slack::Deadline(ns) => {
                let begun = self.last.filter(|_| piece.at > 0).map_or(now, |(_, begun)| begun);
                self.last = Some((0, begun));
                signed(ns) - signed(now.0 - begun.0) - signed(self.way)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assignment(text: &str) -> Assignment {
        Assignment::new(text.parse().unwrap(), 10_000).unwrap()
    }

    /// A packet of 1000 bytes, one of ten.
    fn piece(n: u32) -> Piece {
        Piece { of: 9_500, at: n * 1_000, len: 1_000 }
    }

    #[test]
    fn flows_are_worth_their_packets() {
        let of = |text: &str, n| assignment(text).of(Time(5), piece(n), 1_000);
        assert_eq!([of("fct", 0), of("fct:2us", 9)], [10_000_000_000, 20_000]);
        assert_eq!([of("srpt", 0), of("srpt:1us", 9)], [10_000_000_000, 1_000]);
        assert_eq!([of("constant", 0), of("constant:3ms", 9)], [1_000_000_000, 3_000_000]);
        assert_eq!(Assignment::new(Slack::None, 0).map(|_| ()), None);
    }

    #[test]
    fn a_fair_flow_gains_what_its_packets_take_at_its_rate_and_loses_the_time_between_them() {
        // 1 Gbit/s: 8 µs a packet. Two at once, one on time, one much later: that has none again.
        let mut fair = assignment("fair:1G");
        let slacks = [0, 0, 8_000, 90_000, 90_001].map(|at| fair.of(Time(at), piece(0), 1_000));
        assert_eq!(slacks, [0, 8_000, 8_000, 0, 7_999]);
    }

    #[test]
    fn a_deadline_is_counted_from_the_first_packet_of_each_message() {
        let mut deadline = assignment("deadline:100us");
        let slacks =
            [(50, 0), (1_050, 1), (200_050, 2), (300_000, 0)].map(|(at, n)| deadline.of(Time(at), piece(n), 1_000));
        assert_eq!(slacks, [95_000, 94_000, -105_000, 95_000]);
    }

    #[test]
    fn slack_is_read_as_it_is_written() {
        for text in ["none", "fct:1s", "srpt:2us", "constant:1ms", "fair:100Mbit", "deadline:2ms"] {
            let slack: Slack = text.parse().unwrap();
            assert_eq!(slack.to_string().parse(), Ok(slack), "{text}: {slack}");
        }
        for text in ["", "none:1s", "fct:", "fct:0", "fair", "fair:0", "deadline", "constant:1h", "random"] {
            assert_eq!(text.parse::<Slack>(), Err(()), "{text}");
        }
    }
}
