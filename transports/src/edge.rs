//! Active queue management from the edge (Mittal, UCB/EECS-2018-103, §5.3): the receiving NIC drops or marks packets by
//! the time they have waited in the network, known from the slack in their headers.

use std::fmt;
use std::str::FromStr;

use irnic_units::{MAX_NS, Nanoseconds, time};

use crate::time::Time;

/// Treatment of packets that have waited long in switches. Packets without payload always pass.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Edge {
    /// Packets are neither dropped nor marked.
    #[default]
    Off,
    /// Edge-CoDel (§5.3.1): drops some packets before the transport sees them, by CoDel's law (RFC 8289).
    Codel {
        /// Time that packets may wait, ns.
        target: u64,
        /// Time for which waits may exceed the target, ns.
        interval: u64,
        /// Time between the sending of two consecutive packets that restarts the interval, ns; above `target`.
        refresh: u64,
    },
    /// Edge-ECN (§5.3.2): marks packets that have waited longer than this many full packets take at the line rate.
    EcnPackets(u32),
    /// Edge-ECN: marks packets that have waited longer than this, ns.
    EcnTime(u64),
}

impl Edge {
    /// Edge-CoDel with the constants of §5.3.1: 5 ms, 100 ms, 20 ms.
    pub const CODEL: Edge = Edge::Codel { target: 5_000_000, interval: 100_000_000, refresh: 20_000_000 };
}

/// Valid values, for messages.
pub(crate) const EXPECTED: &str = "off, codel, codel and its target, interval and refresh (above the target) such as \
                                   codel:5ms:100ms:20ms, or ecn and packets or a time such as ecn:15 or ecn:18us";

impl FromStr for Edge {
    type Err = ();

    fn from_str(text: &str) -> Result<Edge, ()> {
        let given = |text| time(text).filter(|ns| (1..=MAX_NS).contains(ns)).ok_or(());
        let (name, value) = text.split_once(':').map_or((text, None), |(name, value)| (name, Some(value)));
        match (name, value) {
            ("off", None) => Ok(Edge::Off),
            ("codel", None) => Ok(Edge::CODEL),
            ("codel", Some(value)) => {
                let times = value.split(':').map(given).collect::<Result<Vec<u64>, ()>>()?;
                let [target, interval, refresh] = *times else { return Err(()) };
                if refresh > target { Ok(Edge::Codel { target, interval, refresh }) } else { Err(()) }
            }
            ("ecn", Some(value)) => match value.parse() {
                Ok(packets @ 1..=65_536) => Ok(Edge::EcnPackets(packets)),
                Ok(_) => Err(()),
                Err(_) => given(value).map(Edge::EcnTime),
            },
            _ => Err(()),
        }
    }
}

impl fmt::Display for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Edge::Off => f.write_str("off"),
            Edge::Codel { target, interval, refresh } => {
                write!(f, "codel:{}:{}:{}", Nanoseconds(target), Nanoseconds(interval), Nanoseconds(refresh))
            }
            Edge::EcnPackets(packets) => write!(f, "ecn:{packets}"),
            Edge::EcnTime(ns) => write!(f, "ecn:{}", Nanoseconds(ns)),
        }
    }
}

/// Treatment of a packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Take,
    Mark,
    Drop,
}

/// State by which a queue pair judges the packets of its peer.
#[derive(Clone, Debug)]
pub(crate) struct Judge {
    edge: Edge,
    codel: Codel,
}

/// State of CoDel.
#[derive(Clone, Debug, Default)]
struct Codel {
    /// Time at which packets will have waited too long for an interval; `None` if the last one has not.
    first_above: Option<u64>,
    /// Sending time of the last packet, minus the delay of the empty path, ns.
    last_sent: Option<i64>,
    /// Time of the next drop while dropping, ns.
    next: u64,
    /// Approximate number of packets dropped in this series.
    count: u32,
    dropping: bool,
    dropped_last: bool,
}

impl Judge {
    /// Creates the state for a transport; `None` if it never acts.
    pub(crate) fn new(edge: Edge) -> Option<Judge> {
        (edge != Edge::Off).then(|| Judge { edge, codel: Codel::default() })
    }

    /// Resets to the state before the first packet.
    pub(crate) fn reset(&mut self) {
        self.codel = Codel::default();
    }

    /// Returns the bits of its state.
    pub(crate) fn bits(&self) -> u32 {
        match self.edge {
            Edge::Codel { .. } => 3 * 48 + 32 + 2,
            _ => 0,
        }
    }

    /// Decides about a packet with payload that arrives now and has waited `waited` ns. `packet`: ns that a full packet
    /// takes.
    pub(crate) fn of(&mut self, now: Time, waited: i64, packet: impl Fn() -> u64) -> Verdict {
        let waited = u64::try_from(waited).unwrap_or(0);
        let mark = |above: u64| if waited > above { Verdict::Mark } else { Verdict::Take };
        match self.edge {
            Edge::Off => Verdict::Take,
            Edge::EcnTime(ns) => mark(ns),
            Edge::EcnPackets(packets) => mark(packet().saturating_mul(packets.into())),
            Edge::Codel { target, interval, refresh } => {
                let drops = self.codel.drops(now.0, waited, [target, interval, refresh]);
                if drops { Verdict::Drop } else { Verdict::Take }
            }
        }
    }
}

impl Codel {
    fn drops(&mut self, now: u64, waited: u64, [target, interval, refresh]: [u64; 3]) -> bool {
        // The interval between sending times is that between arrivals, minus the second packet's additional wait.
        let sent = now as i64 - waited as i64;
        if self.last_sent.is_some_and(|last| sent - last >= refresh as i64) {
            self.first_above = None;
        }
        self.last_sent = Some(sent);
        let too_long = waited >= target && now >= *self.first_above.get_or_insert(now + interval);
        if waited < target {
            self.first_above = None;
        }
        let after = |from: u64, count: u32| from + (interval as f64 / f64::from(count).sqrt()) as u64;
        if !self.dropping {
            if too_long {
                // Resumes near the rate at which the last series ended, if that was recently.
                let lately = now.saturating_sub(self.next) < 8 * interval;
                self.count = if self.count > 2 && lately { self.count - 2 } else { 1 };
                (self.dropping, self.dropped_last) = (true, false);
                self.next = after(now, self.count);
            }
            return too_long;
        }
        if !too_long {
            (self.dropping, self.dropped_last) = (false, false);
            return false;
        }
        if self.dropped_last {
            self.count += 1;
            self.next = after(self.next, self.count);
        }
        self.dropped_last = now >= self.next;
        self.dropped_last
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    fn judge(text: &str) -> Judge {
        Judge::new(text.parse().unwrap()).unwrap()
    }

    /// Returns the drop times, in ms, of packets that arrive every ms and have waited for `waited`.
    fn dropped(judge: &mut Judge, ms: std::ops::Range<u64>, waited: u64) -> Vec<u64> {
        ms.filter(|now| judge.of(Time(now * MS), waited as i64, || 0) == Verdict::Drop).collect()
    }

    #[test]
    fn drops_come_sooner_and_sooner_while_packets_wait_too_long() {
        let mut judge = judge("codel");
        assert_eq!(dropped(&mut judge, 1..500, 5 * MS - 1), [0; 0]);
        // An interval after the first that waited too long, then 100 ms, and 100 ms / sqrt(n) after the one before.
        let times = dropped(&mut judge, 500..1_000, 5 * MS);
        assert_eq!(times, [600, 700, 771, 829, 879, 924, 964]);
        assert_eq!(dropped(&mut judge, 1_000..1_010, 0), [0; 0]);
        // Recently: the series resumes two drops back.
        assert_eq!(dropped(&mut judge, 1_010..1_200, 5 * MS), [1_110, 1_155, 1_196]);
        // Not recently.
        assert_eq!(dropped(&mut judge, 1_200..2_200, 0), [0; 0]);
        assert_eq!(dropped(&mut judge, 2_200..2_450, 5 * MS), [2_300, 2_400]);
    }

    #[test]
    fn a_silence_begins_a_new_interval() {
        let every = |gap: u64| {
            let mut judge = judge("codel");
            (0..20).filter(|n| judge.of(Time((1 + n * gap) * MS), 6 * MS as i64, || 0) == Verdict::Drop).count()
        };
        assert!(every(19) > 0);
        assert_eq!(every(20), 0);
        // The time between sendings counts: of packets that arrive together one was sent long before.
        let mut judge = judge("codel:5ms:10ms:20ms");
        let mut of = |now: u64, waited: u64| judge.of(Time(now * MS), (waited * MS) as i64, || 0);
        assert_eq!([of(100, 6), of(109, 6), of(110, 6)], [Verdict::Take, Verdict::Take, Verdict::Drop]);
        assert_eq!([of(200, 80), of(201, 6)], [Verdict::Drop, Verdict::Take]);
    }

    #[test]
    fn marks_follow_from_what_a_packet_has_waited() {
        for text in ["ecn:15", "ecn:15us"] {
            let mut judge = judge(text);
            let mut of = |waited| judge.of(Time(1), waited, || 1_000);
            assert_eq!([of(15_000), of(15_001), of(-1)], [Verdict::Take, Verdict::Mark, Verdict::Take], "{text}");
        }
        assert!(Judge::new(Edge::Off).is_none());
    }

    /// The law as a list of packets, computed anew from the text for each: `times` of arrival, `waits`, ns.
    fn plain(packets: &[(u64, u64)], [target, interval, refresh]: [u64; 3]) -> Vec<bool> {
        let mut verdicts: Vec<bool> = Vec::new();
        // The current series: packets that it has dropped, where counting begins, and when the next is due.
        let (mut series, mut last_count, mut due) = (None::<(f64, bool)>, 0.0_f64, 0.0);
        for (at, &(now, waited)) in packets.iter().enumerate() {
            // Since when all packets have waited too long without a silence.
            let mut since = None;
            for k in (0..=at).rev() {
                let (then, wait) = packets[k];
                if wait < target {
                    break;
                }
                since = Some(then);
                let sent = |p: (u64, u64)| p.0 as i64 - p.1 as i64;
                if k > 0 && sent(packets[k]) - sent(packets[k - 1]) >= refresh as i64 {
                    break;
                }
            }
            let too_long = waited >= target && since.is_some_and(|since| now - since >= interval);
            let mut drop = false;
            match (&mut series, too_long) {
                (None, false) => {}
                (None, true) => {
                    let lately = now as f64 - due < 8.0 * interval as f64;
                    last_count = if last_count > 2.0 && lately { last_count - 2.0 } else { 1.0 };
                    due = now as f64 + (interval as f64 / last_count.sqrt()).floor();
                    series = Some((last_count, false));
                    drop = true;
                }
                (Some(_), false) => series = None,
                (Some((count, dropped)), true) => {
                    if *dropped {
                        *count += 1.0;
                        due += (interval as f64 / count.sqrt()).floor();
                    }
                    drop = now as f64 >= due;
                    *dropped = drop;
                    last_count = *count;
                }
            }
            verdicts.push(drop);
        }
        verdicts
    }

    proptest! {
        #[test]
        fn the_law_is_that_of_a_plain_calculation(steps in prop::collection::vec((0u64..60, 0u64..12, 1usize..40), 1..40)) {
            let times = [6, 40, 50];
            let mut codel = Codel::default();
            let (mut now, mut packets, mut ours) = (1, Vec::new(), Vec::new());
            for (gap, waited, repeat) in steps {
                now += gap;
                for _ in 0..repeat {
                    now += 1 + gap / 8;
                    packets.push((now, waited));
                    ours.push(codel.drops(now, waited, times));
                }
            }
            prop_assert_eq!(ours, plain(&packets, times));
        }
    }

    #[test]
    fn it_is_read_as_it_is_written() {
        for text in ["off", "codel", "codel:1ms:20ms:3ms", "ecn:15", "ecn:18us", "ecn:65536"] {
            let edge: Edge = text.parse().unwrap();
            assert_eq!(edge.to_string().parse(), Ok(edge), "{text}: {edge}");
        }
        let wrong = ["", "on", "codel:", "codel:5ms", "codel:5ms:100ms:5ms", "codel:1ms:2ms:3ms:4ms", "ecn", "ecn:0"];
        for text in wrong.into_iter().chain(["ecn:65537", "off:1", "codel:5:100ms"]) {
            assert_eq!(text.parse::<Edge>(), Err(()), "{text}");
        }
    }
}
