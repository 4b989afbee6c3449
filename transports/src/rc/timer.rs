//! The retransmission timer of a stream: when silence means loss, and when it means that the peer is dead.

use crate::config::{Timer, TransportConfig};
use crate::footprint::{Item, bits, flag, footprint, instant, left, maybe, why, width};
use crate::psn::Psn;
use crate::qp::context::QpContext;
use crate::qp::host::{PeerProcess, Reader};
use crate::recovery::{Sack, Sender};
use crate::time::{MS, Time};

/// Number of times a peer's process must have been found to have read retransmissions before its silence counts. It may
/// be descheduled between reading and answering; but before it reads more, it answers what it has read.
const MAX_READS: u8 = 3;

/// Result of the expiry of a [`RetransmitTimer`]'s deadline.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Expiry {
    /// Something was received or sent since it was set: there is a later one.
    Nothing,
    /// A tail loss probe is due (RFC 8985 §7).
    Probe,
    /// A timeout: whether it is RTO_low's, and the N that applies to it.
    Timeout { quick: bool, n: u32 },
}

/// Time for which data in a host's buffers is not considered lost, and the longest interval between checks of it, ns.
const STUCK: u64 = 100 * MS;

/// During a silence, whether the peer has answered what it had not when the silence was noticed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Reading {
    /// Not checked yet.
    Unchecked,
    /// It has not yet answered [`RetransmitTimer::unanswered`] bytes in total.
    Behind,
    /// A process that forwards to it has read everything, and it has not yet answered
    /// [`RetransmitTimer::unanswered`] bytes in total.
    BehindForwarder,
    /// It has answered everything: the last answer may be in flight.
    Done,
}

/// What is known of a silent peer's answers.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Answers {
    /// Nothing.
    Unknown,
    /// One is due, or in flight.
    Due,
    /// None will come: the peer has answered all that has reached it.
    None,
}

/// The timer of one stream: deadlines, round-trip samples, consecutive timeouts.
#[derive(Clone, Debug)]
pub(crate) struct RetransmitTimer {
    deadline: Time,
    /// Whether it is [`Timer::Estimated`].
    estimated: bool,
    /// Whether the deadline is RTO_low's, to be checked against N when it expires.
    quick: bool,
    /// Whether RTO_low was extended to RTO_high, until there is progress.
    extended: bool,
    /// Timeouts since the last sample: each doubles the next. With the literal timers progress alone gives no round
    /// trip, where everything is retransmitted (Karn). Estimated: since the last packet received.
    back_off: u8,
    /// Timeouts since progress, and the time of that.
    timeouts: u8,
    last_progress: Time,
    /// Probes since the last sample: each doubles the time to the next, or a round trip that is longer than that, of
    /// which each packet is probed, would never be measured (Karn).
    unsampled: u8,
    /// Estimated: whether there are tail loss probes.
    probes: bool,
    /// Whether the deadline is a probe's.
    probing: bool,
    /// Whether that deadline allows for acknowledgements that the peer holds back (RFC 8985's max_ack_delay): nothing
    /// but its packets is known of it.
    ack_delay: bool,
    /// Whether a probe was sent, or a timeout occurred, and nothing was received since.
    probed: bool,
    /// Time of the last transmission.
    last_sent: Time,
    /// Whether the timer was run late, and is to be run once more.
    late: bool,
    /// Whether the stream measures round trips.
    fed: bool,
    /// Estimated: start of the silence, when the peer was last heard from, or the oldest outstanding packet was last
    /// sent.
    since: Time,
    /// Time since progress in which the timer was overdue but not run, ns.
    absent: u64,
    /// Once retries are used up and the peer's process is alive: bytes passed to it at the last check that counts, and
    /// the number of checks that count, including the first: those at which it had answered more than had been passed
    /// to it at the previous one. 0: no check yet.
    doubt: u64,
    checks: u8,
    /// Estimated: whether it was known at the last check what the peer itself had answered.
    direct: bool,
    /// Estimated: whether the peer has answered the data passed to it when the silence was first noticed.
    reading: Reading,
    /// The total bytes passed to it at that time.
    unanswered: u64,
    srtt: u64,
    rttvar: u64,
    /// A packet sent once, and when: its acknowledgement gives the next sample (Karn's rule).
    timed: Option<(Psn, Time)>,
}

impl RetransmitTimer {
    pub(super) fn new(config: &TransportConfig) -> RetransmitTimer {
        let estimated = matches!(config.timer, Timer::Estimated { .. });
        RetransmitTimer {
            deadline: Time::NEVER,
            estimated,
            unsampled: 0,
            probes: config.timer_probe() > 0,
            probing: false,
            ack_delay: false,
            probed: false,
            last_sent: Time::ZERO,
            late: false,
            fed: false,
            quick: false,
            extended: false,
            back_off: 0,
            timeouts: 0,
            last_progress: Time::ZERO,
            since: Time::ZERO,
            absent: 0,
            doubt: 0,
            checks: 0,
            direct: false,
            reading: Reading::Unchecked,
            unanswered: 0,
            srtt: 0,
            rttvar: 0,
            timed: None,
        }
    }

    #[inline]
    pub(super) fn deadline(&self) -> Time {
        self.deadline
    }

    /// Returns the smoothed round trip in ns, 0 before the first sample.
    pub(super) fn srtt(&self) -> u64 {
        self.srtt
    }

    /// Has `stream` measure round trips if it can: [`Self::measured`] takes them.
    pub(super) fn follow(&mut self, stream: &Sender) {
        self.fed = self.estimated && stream.measures();
    }

    /// Processes the stream's sample, and returns it.
    #[inline]
    pub(super) fn measured(&mut self, now: Time, stream: &mut Sender, c: &QpContext) -> Option<u64> {
        if !self.fed {
            return None;
        }
        let rtt = stream.take_sample()?;
        self.sample(rtt);
        self.hasten(now, c);
        Some(rtt)
    }

    /// Shortens the deadline after a sample, to what it now requires.
    fn hasten(&mut self, now: Time, c: &QpContext) {
        if self.deadline == Time::NEVER || !self.estimated {
            return;
        }
        let Some((low, high, _)) = self.times(c.config.timer, c.local_ack_timeout()) else { return };
        let wait = match () {
            () if self.probing => self.probe_timeout(low, c),
            () if self.quick => low,
            () => high,
        };
        self.deadline = self.deadline.min(now + wait);
    }

    pub(super) fn stop(&mut self) {
        self.deadline = Time::NEVER;
        self.timeouts = 0;
        self.timed = None;
    }

    /// Handles the completion of everything; `outstanding` keeps the timer running for packets that nothing depends on.
    pub(super) fn idle(&mut self, outstanding: bool) {
        if !outstanding {
            self.stop();
        }
    }

    /// Returns (low, high, n) in ns, ns and packets; `None`: never.
    fn times(&self, kind: Timer, local_ack_timeout: Option<u64>) -> Option<(u64, u64, u32)> {
        match kind {
            Timer::Fixed(Some(t)) => Some((t, t, 0)),
            Timer::Fixed(None) => local_ack_timeout.map(|t| (t, t, 0)),
            Timer::Irn { low, high, n } => Some((low, high, n)),
            Timer::Tcp { min, max } => {
                let rto = if self.srtt == 0 { min } else { self.srtt + 4 * self.rttvar };
                let t = (rto.max(min) << self.back_off.min(10)).min(max);
                Some((t, t, 0))
            }
            Timer::Estimated { min, max, n, .. } => {
                if self.srtt == 0 {
                    // Before the first sample: well beyond any round trip of a local network, well below `max`.
                    let t = (16 * min).min(max) << self.back_off.min(10);
                    return Some((t.min(max), t.min(max), n));
                }
                // The variance has a minimum, as in Linux (tcp_rtt_estimator): round trips that were steady may not
                // stay so. Where it is known what the peer has answered, they need not.
                let min = if self.direct { min.min(self.srtt) } else { min };
                let rto = |least: u64| (self.srtt + (4 * self.rttvar).max(least)) << self.back_off.min(15);
                Some((rto(min).min(max), rto(2 * min).min(max), n))
            }
        }
    }

    /// Returns the time from the last packet received to a probe, ns (TLP_calc_PTO): at most the timeout.
    fn probe_timeout(&self, timeout: u64, c: &QpContext) -> u64 {
        let least = if c.config.patience == 0 || self.ack_delay { c.config.timer_probe() } else { 0 };
        // Before the first sample the timeout is sixteen times the minimum.
        let wait = if self.srtt == 0 { timeout / 4 } else { (2 * self.srtt).max(least) };
        (wait << self.unsampled.min(10)).min(timeout)
    }

    /// Returns when a probe is due that is sent after a silence of `wait` ns.
    fn probe_due(&self, wait: u64, timeout: u64) -> Time {
        (self.since.max(self.last_sent) + wait).min(self.since + timeout)
    }

    fn arm(&mut self, now: Time, c: &QpContext) {
        match self.times(c.config.timer, c.local_ack_timeout()) {
            Some((low, high, _)) => {
                self.quick = low < high;
                self.extended = false;
                (self.probing, self.ack_delay) = (self.probes && !self.probed, false);
                self.deadline = now + if self.probing { self.probe_timeout(low, c) } else { low };
            }
            None => self.deadline = Time::NEVER,
        }
    }

    /// Restarts the timer, without progress: another packet has requested an answer.
    pub(super) fn restart(&mut self, now: Time, c: &QpContext) {
        self.arm(now, c);
    }

    /// Starts afresh.
    pub(super) fn resume(&mut self, now: Time, c: &QpContext) {
        self.timeouts = 0;
        self.mark_progress(now);
        self.arm(now, c);
    }

    #[inline]
    fn mark_progress(&mut self, now: Time) {
        (self.last_progress, self.since, self.absent, self.checks) = (now, now, 0, 0);
        self.reading = Reading::Unchecked;
    }

    /// Handles a retransmission of the oldest outstanding packet, or the arrival of others: not silence, though no
    /// progress either. The literal timers count from progress alone.
    #[inline]
    pub(super) fn alive(&mut self, now: Time) {
        if self.estimated {
            self.since = now;
        }
    }

    /// Handles new information from the peer, or an answer to a retransmission: it ends the silence, and resets the
    /// timeout (RFC 6298, as in Linux).
    #[inline]
    pub(super) fn news(&mut self, now: Time, c: &QpContext) {
        self.alive(now);
        self.reading = Reading::Unchecked;
        if self.estimated && (self.probed || self.back_off > 0) && self.deadline != Time::NEVER {
            (self.probed, self.back_off) = (false, 0);
            self.arm(now, c);
        }
    }

    /// Handles any answer from the peer: it is alive, whether or not there is progress.
    #[inline]
    pub(super) fn heard(&mut self, now: Time) {
        self.timeouts = 0;
        self.mark_progress(now);
    }

    /// Handles the departure of a packet.
    #[inline]
    pub(super) fn sent(&mut self, now: Time, psn: Psn, fresh: bool, c: &QpContext) {
        self.last_sent = now;
        if self.deadline == Time::NEVER {
            self.probed = false;
            self.mark_progress(now);
            self.arm(now, c);
        }
        match self.timed {
            None if fresh && !self.fed => self.timed = Some((psn, now)),
            // It would be ambiguous which transmission an acknowledgement answers.
            Some((timed, _)) if timed == psn => self.timed = None,
            _ => {}
        }
    }

    /// Handles a selective acknowledgement. Without these a lossy path would only be measured while nothing is lost,
    /// before its queues are full. Returns the round trip in ns if one was measured.
    #[inline]
    pub(super) fn arrived(&mut self, now: Time, sack: Sack, c: &QpContext) -> Option<u64> {
        if let Some((timed, sent)) = self.timed
            && sack.covers(timed)
        {
            self.timed = None;
            let rtt = self.sample(now.since(sent).max(1));
            self.hasten(now, c);
            return Some(rtt);
        }
        None
    }

    /// Handles progress: `acked` moved to `acked`, or a response arrived; `waiting`: more is outstanding. Returns a
    /// round trip in ns if one was measured.
    #[inline]
    pub(super) fn progress(&mut self, now: Time, waiting: bool, acked: Psn, c: &QpContext) -> Option<u64> {
        let mut sample = None;
        self.timeouts = 0;
        self.mark_progress(now);
        if let Some((psn, sent)) = self.timed
            && psn.before(acked)
        {
            self.timed = None;
            sample = Some(self.sample(now.since(sent).max(1)));
            self.hasten(now, c);
        }
        let quiet = self.estimated && (self.probed || self.back_off > 0);
        if quiet {
            (self.probed, self.back_off) = (false, 0);
        }
        if !waiting {
            self.deadline = Time::NEVER;
        } else if quiet {
            self.arm(now, c);
        } else if sample.is_some() && matches!(c.config.timer, Timer::Tcp { .. }) {
            // RFC 6298, rule 5.3: the timer must not expire later than a shortened timeout.
            self.arm(now, c);
        } else if self.extended && self.deadline != Time::NEVER {
            self.arm(now, c);
        }
        // Otherwise restarted lazily: `expired` checks `last_progress` first.
        sample
    }

    fn sample(&mut self, rtt: u64) -> u64 {
        (self.back_off, self.unsampled) = (0, 0);
        // RFC 6298: gains 1/8 and 1/4.
        if self.srtt == 0 {
            (self.srtt, self.rttvar) = (rtt, rtt / 2);
        } else {
            self.rttvar = (3 * self.rttvar + self.srtt.abs_diff(rtt)) / 4;
            self.srtt = (7 * self.srtt + rtt) / 8;
        }
        rtt
    }

    /// Handles the expiry of the deadline. `process` returns what is known of the peer's process.
    pub(super) fn expired(&mut self, now: Time, c: &QpContext, process: impl FnOnce() -> PeerProcess) -> Expiry {
        let Some((low, high, n)) = self.times(c.config.timer, c.local_ack_timeout()) else {
            self.deadline = Time::NEVER;
            return Expiry::Nothing;
        };
        let estimated = self.estimated;
        let mut wait = if self.quick { low } else { high };
        let mut due = if estimated { self.since } else { self.last_progress } + wait;
        if self.probing {
            wait = self.probe_timeout(low, c);
            due = self.probe_due(wait, low);
        }
        if (estimated || self.timeouts == 0) && now < due {
            (self.deadline, self.late) = (due, false);
            if self.reading == Reading::Done {
                // Something was sent since.
                self.reading = Reading::Unchecked;
            }
            return Expiry::Nothing;
        }
        if estimated && self.excuses(now, due, wait) {
            return Expiry::Nothing;
        }
        match if estimated { self.check_answers(now, wait, c, process) } else { Answers::None } {
            Answers::Due => return Expiry::Nothing,
            Answers::Unknown if self.probing && !self.ack_delay => {
                self.ack_delay = true;
                let due = self.probe_due(self.probe_timeout(low, c), low);
                if now < due {
                    self.deadline = due;
                    return Expiry::Nothing;
                }
            }
            Answers::Unknown | Answers::None => {}
        }
        if std::mem::take(&mut self.probing) {
            // The timeout counts from the probe (§7.3).
            (self.probed, self.since) = (true, now);
            self.unsampled = self.unsampled.saturating_add(1);
            let (low, high, _) = self.times(c.config.timer, c.local_ack_timeout()).unwrap_or((low, high, n));
            (self.quick, self.deadline) = (low < high, now + low);
            return Expiry::Probe;
        }
        Expiry::Timeout { quick: self.quick, n }
    }

    /// Returns whether the timer, due at `due` after a silence of `wait`, was run so late that the silence proves
    /// nothing: a host without CPU time for the timer may have had none for reading answers either. The timer is then
    /// run once more.
    fn excuses(&mut self, now: Time, due: Time, wait: u64) -> bool {
        let late = now.since(due);
        if std::mem::take(&mut self.late) || late <= wait / 4 {
            return false;
        }
        self.late = true;
        self.absent = self.absent.saturating_add(late);
        self.deadline = now + late.min(wait);
        true
    }

    /// Extends RTO_low to RTO_high: too much is in flight.
    pub(super) fn extend(&mut self, now: Time, c: &QpContext) {
        let (low, high, _) = self.times(c.config.timer, c.local_ack_timeout()).unwrap_or_default();
        (self.quick, self.extended) = (false, true);
        self.deadline = now + high.saturating_sub(low);
    }

    /// Holds the timer while retransmissions may not be sent before `until`: none can be answered earlier.
    pub(super) fn hold(&mut self, now: Time, until: Time, c: &QpContext) {
        self.absent = self.absent.saturating_add(until.since(self.deadline));
        self.since = until.max(now);
        self.arm(until.max(now), c);
    }

    /// Checks, after a silence of `wait`, whether the peer owes an answer to data passed to it when the silence was
    /// first noticed, or has only just answered. Then there is no evidence of a loss, and the timer continues.
    fn check_answers(&mut self, now: Time, wait: u64, c: &QpContext, process: impl FnOnce() -> PeerProcess) -> Answers {
        if c.config.patience == 0 {
            return Answers::Unknown;
        }
        let silence = now.since(self.last_progress);
        let mut forwarded = false;
        let (handed, answered, direct) = match process() {
            PeerProcess::Alive { handed, answered } => (handed, answered, true),
            PeerProcess::Buffered { handed, answered, reader } if silence < STUCK => {
                forwarded = reader == Reader::ForwarderThenPeer;
                (handed, answered, reader != Reader::Forwarder)
            }
            _ => {
                (self.reading, self.direct) = (Reading::Unchecked, false);
                return Answers::Unknown;
            }
        };
        self.direct = direct;
        let mut next = wait;
        self.reading = match self.reading {
            Reading::Unchecked if answered < handed => {
                self.unanswered = handed;
                Reading::Behind
            }
            // Its last answer has not come, or has arrived since arrivals were last read.
            Reading::Unchecked if direct => {
                next = self.srtt.clamp(1, wait);
                Reading::Done
            }
            Reading::Behind | Reading::BehindForwarder if answered < self.unanswered => {
                next = wait.max((silence / 2).min(STUCK));
                self.reading
            }
            // What was passed on in the meantime is among what it has not answered now.
            Reading::Behind if forwarded && answered < handed => {
                self.unanswered = handed;
                Reading::BehindForwarder
            }
            Reading::Behind | Reading::BehindForwarder => Reading::Done,
            Reading::Unchecked | Reading::Done => {
                self.reading = Reading::Unchecked;
                return if direct { Answers::None } else { Answers::Unknown };
            }
        };
        self.deadline = now + next;
        self.since = now + next - wait;
        Answers::Due
    }

    /// Handles a timeout. Returns false when both retries and patience are used up: the peer is dead. Patience is the
    /// time that IBA's retries take, however short the timer, so that a slow peer is not declared dead; `for_ever` says
    /// whether a Local ACK Timeout of 0 makes it endless. The state of the peer's process is checked when they are used
    /// up: if unknown, patience is at least the one configured; a process that is alive and has not read what was sent
    /// is waited for.
    #[must_use]
    pub(super) fn timed_out(
        &mut self,
        now: Time,
        for_ever: bool,
        c: &QpContext,
        process: impl FnOnce() -> PeerProcess,
    ) -> bool {
        self.timeouts = self.timeouts.saturating_add(1);
        self.back_off = self.back_off.saturating_add(1);
        self.probed = true;
        self.timed = None;
        self.absent += now.since(self.deadline);
        self.since = now;
        self.arm(now, c);
        let retries = c.retry_cnt;
        let Some(patience) = c.local_ack_timeout().map(|t| t * (u64::from(retries) + 1)) else {
            return for_ever || self.timeouts <= retries;
        };
        let silence = now.since(self.last_progress + self.absent);
        if self.timeouts <= retries || silence < patience {
            return true;
        }
        if c.config.patience == 0 {
            return false;
        }
        match process() {
            PeerProcess::Dead => false,
            PeerProcess::Unknown | PeerProcess::Buffered { .. } => silence < c.config.patience,
            PeerProcess::Alive { handed, answered } => {
                if self.checks == 0 {
                    (self.doubt, self.checks) = (handed, 1);
                }
                // More than before: something that was retransmitted since.
                if answered > self.doubt {
                    (self.doubt, self.checks) = (handed, self.checks + 1);
                }
                self.checks <= MAX_READS
            }
        }
    }
}

footprint!(RetransmitTimer, |at| {
    deadline => instant().is(Item::Deadline),
    estimated => left(why::SHARED),
    quick => flag().when(at.irn, why::IRN).is(Item::Flags),
    extended => flag().when(at.irn, why::IRN).is(Item::Flags),
    back_off => bits(4).when(at.measures, why::OFF),
    // Retries, of which there are up to seven.
    timeouts => bits(3),
    last_progress => instant(),
    unsampled => left("of real time: probes"),
    probes => left(why::SHARED),
    probing => flag().when(*probes, why::OFF),
    ack_delay => left("of real time: processes of hosts"),
    probed => flag().when(*probes, why::OFF),
    last_sent => instant().when(*probes, why::OFF),
    late => left("software that nobody has run"),
    fed => left(why::SHARED),
    since => instant().when(at.measures, why::OFF),
    absent => left("software that nobody has run"),
    doubt => left("of real time: processes of hosts"),
    checks => left("of real time: processes of hosts"),
    direct => left("of real time: processes of hosts"),
    reading => left("of real time: processes of hosts"),
    unanswered => left("of real time: processes of hosts"),
    srtt => instant().when(at.measures, why::STATISTICS),
    rttvar => instant().when(at.measures, why::STATISTICS),
    timed => maybe(width::PSN + width::TIME).when(at.measures, why::STATISTICS),
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::US;

    const TCP: Timer = Timer::Tcp { min: 100 * US, max: MS };

    fn timeout(timer: &RetransmitTimer) -> u64 {
        let (low, high, _) = timer.times(TCP, None).expect("it runs");
        assert_eq!(low, high);
        low
    }

    /// RFC 6298, rules 2.2 to 2.5 and 5.5.
    #[test]
    fn tcps_timeout_follows_the_round_trip() {
        let config = TransportConfig { timer: TCP, ..TransportConfig::preset("irn").unwrap() };
        let mut timer = RetransmitTimer::new(&config);
        // Before the first measurement.
        assert_eq!(timeout(&timer), 100 * US);
        // SRTT = R, RTTVAR = R/2: R + 4 · R/2.
        timer.sample(80_000);
        assert_eq!((timer.srtt, timer.rttvar, timeout(&timer)), (80_000, 40_000, 240_000));
        // RTTVAR = 3/4 · 40 + 1/4 · |80 − 160| = 50, SRTT = 7/8 · 80 + 1/8 · 160 = 90.
        timer.sample(160_000);
        assert_eq!((timer.srtt, timer.rttvar, timeout(&timer)), (90_000, 50_000, 290_000));
        // Each timeout doubles it, up to the maximum; a measurement resets that.
        for expected in [580_000, MS, MS] {
            timer.back_off += 1;
            assert_eq!(timeout(&timer), expected);
        }
        // RTTVAR = 37.5 + 1/4 · 80, SRTT = 78.75 + 1.25.
        timer.sample(10_000);
        assert_eq!((timer.srtt, timer.rttvar, timeout(&timer)), (80_000, 57_500, 310_000));
        // A steady round trip leaves the lower bound.
        for _ in 0..100 {
            timer.sample(10_000);
        }
        assert_eq!(timeout(&timer), 100 * US);
    }
}
