//! A congestion point at the queue before a link.

use std::fmt;

use irnic_transports::congestion::FairRateConfig;
use irnic_transports::time::{SEC, US};
use irnic_units::{Nanoseconds, tc_size, tc_time};

use super::tokens::{ParseError, Section, Token};

pub(super) const EXPECT_QUEUES: &str =
    "Q_ref, or Q_ref, Q_mid and Q_max: rising queue lengths of 1 byte to a terabyte, such as rocc 75k 150k 210k";
pub(super) const EXPECT_PERIOD: &str = "a period of 1us to 1s, such as 1ms";
pub(super) const NEED_RATE: &str = "rate beside rocc: without it there is no queue";
pub(super) const NOT_TRIM: &str = "trim or rocc, not both: a queue that trims has no fair rate";
pub(super) const ONLY_TX: &str = "rocc behind tx: notices go to this NIC, not over the network to others";

/// RoCC's congestion point (Menikkumbura et al., CoNEXT 2020, Algorithm 1): each period it computes the fair rate of
/// the link from the length of the queue before it, and notifies the flows that wait there.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct CongestionPoint {
    /// Q_ref, bytes: target length of the queue; 1 or more.
    pub qref: u64,
    /// Q_mid, bytes, above `qref`: growth of the queue in a period that halves the rate.
    pub qmid: u64,
    /// Q_max, bytes, above `qmid`: length of the queue that sets the minimum rate.
    pub qmax: u64,
    /// T, ns, from a microsecond to a second.
    pub period: u64,
}

impl CongestionPoint {
    /// Q_ref, Q_mid and Q_max of the paper's 10 Gbit/s testbed (§6.2), bytes.
    pub const QUEUES: [u64; 3] = [75_000, 150_000, 210_000];

    /// Returns the testbed's period, 100 µs, scaled to a rate in bit/s: the time that 1 Mbit takes, but at least 100
    /// µs.
    pub fn period_of(rate: u64) -> u64 {
        (1_000_000 * SEC / rate.max(1)).clamp(100 * US, SEC)
    }

    /// Returns the parameters of Algorithm 1 for a link with this rate, bit/s. Below 10 Gbit/s the minimum rate and the
    /// gains, which are in units of 10 Mbit/s, are scaled down with the rate.
    pub fn fair_rate(&self, rate: u64) -> FairRateConfig {
        const FULL: u64 = 10_000_000_000;
        let share = rate.min(FULL) as f64 / FULL as f64;
        let mut config = FairRateConfig::of_link(rate);
        config.least = (config.least as f64 * share) as u64;
        config.alpha *= share;
        config.beta *= share;
        (config.qref, config.qmid, config.qmax, config.period) = (self.qref, self.qmid, self.qmax, self.period);
        config
    }
}

impl fmt::Display for CongestionPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CongestionPoint { qref, qmid, qmax, period } = *self;
        write!(f, "rocc {qref} {qmid} {qmax} {}", Nanoseconds(period))
    }
}

/// The option in a section: the word and its values.
pub(super) struct RoccOption<'a> {
    word: Token<'a>,
    queues: [u64; 3],
    period: Option<u64>,
}

impl<'a> RoccOption<'a> {
    /// Parses the values after `word`: none, one or three queue lengths, then optionally a time.
    pub(super) fn read(word: Token<'a>, section: &mut Section<'a>) -> Result<RoccOption<'a>, ParseError> {
        let mut queues = CongestionPoint::QUEUES;
        let size = |text: &str| tc_size(text).filter(|bytes| *bytes > 0);
        if section.next_is(|text| size(text).is_some()) {
            let qref = section.take(EXPECT_QUEUES, size)?;
            let scaled = |bytes: u64| u64::try_from(u128::from(bytes) * u128::from(qref) / 75_000).unwrap_or(u64::MAX);
            queues = queues.map(scaled);
            // The defaults may not lie above a given Q_ref.
            queues[1] = queues[1].max(qref + 1);
            queues[2] = queues[2].max(queues[1] + 1);
            if section.next_is(|text| size(text).is_some()) {
                queues[1] = section.take(EXPECT_QUEUES, |text| size(text).filter(|qmid| *qmid > qref))?;
                queues[2] = section.take(EXPECT_QUEUES, |text| size(text).filter(|qmax| *qmax > queues[1]))?;
            }
        }
        let time = |text: &str| tc_time(text).filter(|ns| (US..=SEC).contains(ns));
        Ok(RoccOption { word, queues, period: section.take_if_number(EXPECT_PERIOD, time)? })
    }

    /// Returns the congestion point before a link of `rate` bit/s.
    pub(super) fn check(self, rate: Option<u64>, trims: bool, receives: bool) -> Result<CongestionPoint, ParseError> {
        if receives {
            return Err(self.word.error(ONLY_TX));
        }
        let Some(rate) = rate else { return Err(self.word.error(NEED_RATE)) };
        if trims {
            return Err(self.word.error(NOT_TRIM));
        }
        let [qref, qmid, qmax] = self.queues;
        let period = self.period.unwrap_or_else(|| CongestionPoint::period_of(rate));
        Ok(CongestionPoint { qref, qmid, qmax, period })
    }
}
