//! The retransmission timer of a stream: when silence means loss, and when it means that the peer is gone.

use crate::config::{Timer, TransportConfig};
use crate::footprint::{Item, bits, flag, footprint, instant, left, maybe, why, width};
use crate::psn::Psn;
use crate::qp::context::QpContext;
use crate::qp::host::PeerProcess;
use crate::recovery::{Sack, Sender};
use crate::time::{MS, Time};

/// How often a peer's process must have been found to have taken what was sent again before its silence counts. It may
/// have lost its core between taking and answering; but before it takes more, it answers what it has.
const LOOKS: u8 = 3;

/// When the deadline of a [`RetransmitTimer`] has come.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Expiry {
    /// Something was heard or sent since it was set: there is a later one.
    Nothing,
    /// A tail loss probe is due (RFC 8985 §7).
    Probe,
    /// A timeout: whether it is RTO_low's, and the N that goes with it.
    Timeout { quick: bool, n: u32 },
}

/// How long what is in a host's buffers is not taken for lost, and the longest time between two looks at it, ns.
const STUCK: u64 = 100 * MS;

/// What is known in a silence of what the peer had not read when it was noticed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Reading {
    /// Nobody has looked.
    Unasked,
    /// It has not taken [`RetransmitTimer::unread`] bytes in all yet.
    Behind,
    /// It has taken them since: its answer may be on its way.
    Done,
}

/// The timer of one stream: deadlines, round-trip samples, timeouts in a row.
#[derive(Clone, Debug)]
pub(crate) struct RetransmitTimer {
    deadline: Time,
    /// It is [`Timer::Estimated`].
    estimated: bool,
    /// The deadline is RTO_low's, to be checked against N when it comes.
    quick: bool,
    /// RTO_low was extended to RTO_high: until there is progress.
    extended: bool,
    /// Timeouts since the last sample: each doubles the next. By the literal timers progress alone says nothing about
    /// the round trip, where everything is sent again (Karn). Estimated: since anything was heard.
    back_off: u8,
    /// Timeouts since progress, and when that was.
    timeouts: u8,
    last_progress: Time,
    /// Estimated: there are tail loss probes.
    probes: bool,
    /// The deadline is a probe's.
    probing: bool,
    /// A probe was sent, or a timeout was, and nothing was heard since.
    probed: bool,
    /// When anything was last sent.
    last_sent: Time,
    /// The timer was run late, and is given another look.
    late: bool,
    /// Round trips are measured by the stream.
    fed: bool,
    /// Estimated: when the peer was last heard of, or the packet that is waited for was last sent; silence counts from
    /// here.
    since: Time,
    /// Time since progress in which nobody ran this timer although it was due, ns.
    absent: u64,
    /// Retries are used up, and the peer's process lives: bytes that it had been handed at the last look that counts,
    /// and how many count, the first included: those at which it had taken more than it had been handed at the one
    /// before. 0: there was no look.
    doubt: u64,
    looks: u8,
    /// Estimated: whether the peer has read what it had been handed when the silence was first noticed.
    reading: Reading,
    /// What that was, in bytes since the beginning.
    unread: u64,
    srtt: u64,
    rttvar: u64,
    /// A packet sent once, and when: its acknowledgement is the next sample (Karn's rule).
    timed: Option<(Psn, Time)>,
}

impl RetransmitTimer {
    pub(super) fn new(config: &TransportConfig) -> RetransmitTimer {
        let estimated = matches!(config.timer, Timer::Estimated { .. });
        RetransmitTimer {
            deadline: Time::NEVER,
            estimated,
            probes: config.probes_with_timer(),
            probing: false,
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
            looks: 0,
            reading: Reading::Unasked,
            unread: 0,
            srtt: 0,
            rttvar: 0,
            timed: None,
        }
    }

    #[inline]
    pub(super) fn deadline(&self) -> Time {
        self.deadline
    }

    /// Smoothed round trip in ns, 0 before the first sample.
    pub(super) fn srtt(&self) -> u64 {
        self.srtt
    }

    /// Has `stream` measure round trips if it does: [`Self::measured`] takes them.
    pub(super) fn follow(&mut self, stream: &Sender) {
        self.fed = self.estimated && stream.measures();
    }

    /// Takes over what the stream has measured. Returns it.
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

    /// A round trip was measured: silence is not to last longer than that asks for from now on.
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

    /// Everything is complete; `outstanding` keeps the timer running for packets that nobody waits for.
    pub(super) fn idle(&mut self, outstanding: bool) {
        if !outstanding {
            self.stop();
        }
    }

    /// (low, high, n) in ns, ns and packets; `None`: never.
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
            Timer::Estimated { min, max, n } => {
                if self.srtt == 0 {
                    // Before the first sample: well beyond any round trip of a local network, well below `max`.
                    let t = (16 * min).min(max) << self.back_off.min(10);
                    return Some((t.min(max), t.min(max), n));
                }
                // The variance has a least value, as Linux's has (tcp_rtt_estimator): a steady round trip is no
                // promise.
                let rto = |least: u64| (self.srtt + (4 * self.rttvar).max(least)) << self.back_off.min(10);
                Some((rto(min).min(max), rto(2 * min).min(max), n))
            }
        }
    }

    /// Time from the last sign of life to a probe, ns (TLP_calc_PTO): no longer than the timeout.
    fn probe_timeout(&self, timeout: u64, c: &QpContext) -> u64 {
        // Before the first sample the timeout is sixteen times the least.
        if self.srtt == 0 { timeout / 4 } else { (2 * self.srtt).max(c.config.tlp).min(timeout) }
    }

    fn arm(&mut self, now: Time, c: &QpContext) {
        match self.times(c.config.timer, c.local_ack_timeout()) {
            Some((low, high, _)) => {
                self.quick = low < high;
                self.extended = false;
                self.probing = self.probes && !self.probed;
                self.deadline = now + if self.probing { self.probe_timeout(low, c) } else { low };
            }
            None => self.deadline = Time::NEVER,
        }
    }

    /// Counts from now on, without progress: something else has asked for a sign of life.
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
        (self.last_progress, self.since, self.absent, self.looks) = (now, now, 0, 0);
        self.reading = Reading::Unasked;
    }

    /// The packet that is waited for was sent once more, or others have arrived: not silence, though no progress
    /// either. The literal timers count from progress alone.
    #[inline]
    pub(super) fn alive(&mut self, now: Time) {
        if self.estimated {
            self.since = now;
        }
    }

    /// The peer says something new, or answers what was sent again: the next silence is another, and the timeout as at
    /// first (RFC 6298, as Linux has it).
    #[inline]
    pub(super) fn news(&mut self, now: Time, c: &QpContext) {
        self.alive(now);
        self.reading = Reading::Unasked;
        if self.estimated && (self.probed || self.back_off > 0) && self.deadline != Time::NEVER {
            (self.probed, self.back_off) = (false, 0);
            self.arm(now, c);
        }
    }

    /// The peer has answered something: it is there, whether or not there is progress.
    #[inline]
    pub(super) fn heard(&mut self, now: Time) {
        self.timeouts = 0;
        self.mark_progress(now);
    }

    /// A packet went out.
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
            // Which of the two an acknowledgement answers would be a guess.
            Some((timed, _)) if timed == psn => self.timed = None,
            _ => {}
        }
    }

    /// Packets have arrived, as a selective acknowledgement says. Without these a lossy path would only be measured
    /// while nothing is lost, before its queues are full. Returns the round trip in ns if one was measured.
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

    /// `acked` moved to `acked`, or a response came; `waiting`: for more. Returns a round trip in ns if one was
    /// measured.
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
            // RFC 6298, rule 5.3: a shorter timeout is no later found out than it runs out.
            self.arm(now, c);
        } else if self.extended && self.deadline != Time::NEVER {
            self.arm(now, c);
        }
        // Otherwise restarted lazily: `expired` looks at `last_progress` first.
        sample
    }

    fn sample(&mut self, rtt: u64) -> u64 {
        self.back_off = 0;
        // RFC 6298: gains 1/8 and 1/4.
        if self.srtt == 0 {
            (self.srtt, self.rttvar) = (rtt, rtt / 2);
        } else {
            self.rttvar = (3 * self.rttvar + self.srtt.abs_diff(rtt)) / 4;
            self.srtt = (7 * self.srtt + rtt) / 8;
        }
        rtt
    }

    /// The deadline has come: what that means. `process` says what is known of the peer's.
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
            due = (self.since.max(self.last_sent) + wait).min(self.since + low);
        }
        if (estimated || self.timeouts == 0) && now < due {
            (self.deadline, self.late) = (due, false);
            return Expiry::Nothing;
        }
        if estimated && (self.excuses(now, due, wait) || self.awaits_reading(now, wait, c, process)) {
            return Expiry::Nothing;
        }
        if std::mem::take(&mut self.probing) {
            // The timeout counts from the probe (§7.3).
            (self.probed, self.since) = (true, now);
            (self.quick, self.deadline) = (low < high, now + low);
            return Expiry::Probe;
        }
        Expiry::Timeout { quick: self.quick, n }
    }

    /// Returns whether the timer, due at `due` after a silence of `wait`, was run so late that the silence says
    /// nothing: a host without a core for the timer may have had none for reading answers either. The timer is then run
    /// once more.
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

    /// Too much is in flight for RTO_low: RTO_high holds.
    pub(super) fn extend(&mut self, now: Time, c: &QpContext) {
        let (low, high, _) = self.times(c.config.timer, c.local_ack_timeout()).unwrap_or_default();
        (self.quick, self.extended) = (false, true);
        self.deadline = now + high.saturating_sub(low);
    }

    /// What is to be sent again may not go before `until`: that long nobody can answer it.
    pub(super) fn hold(&mut self, now: Time, until: Time, c: &QpContext) {
        self.absent = self.absent.saturating_add(until.since(self.deadline));
        self.since = until.max(now);
        self.arm(until.max(now), c);
    }

    /// Returns whether the peer has not even read what it had been handed when a silence of `wait` was first noticed,
    /// or has only read it since. Then nothing tells of a loss, and the timer goes on.
    fn awaits_reading(&mut self, now: Time, wait: u64, c: &QpContext, process: impl FnOnce() -> PeerProcess) -> bool {
        if c.config.patience == 0 {
            return false;
        }
        let silence = now.since(self.last_progress);
        let (handed, taken) = match process() {
            PeerProcess::Alive { handed, taken } => (handed, taken),
            PeerProcess::Buffered { handed, taken } if silence < STUCK => (handed, taken),
            _ => {
                self.reading = Reading::Unasked;
                return false;
            }
        };
        let mut next = wait;
        self.reading = match self.reading {
            Reading::Unasked if taken < handed => {
                self.unread = handed;
                Reading::Behind
            }
            Reading::Behind if taken < self.unread => {
                next = wait.max((silence / 2).min(STUCK));
                Reading::Behind
            }
            Reading::Behind => Reading::Done,
            Reading::Unasked | Reading::Done => {
                self.reading = Reading::Unasked;
                return false;
            }
        };
        self.deadline = now + next;
        self.since = now + (next - wait);
        true
    }

    /// A timeout. Returns false when both retries and patience are used up: the peer is gone. Patience is the time that
    /// IBA's retries take, however short the timer, so that a peer that is only slow is not declared dead; `for_ever`
    /// says whether a Local ACK Timeout of 0 makes it endless. What is known of the peer's process is asked when they
    /// are used up: where nothing is, patience is at least the one configured, and who lives and has not taken what was
    /// sent is waited for.
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
            PeerProcess::Gone => false,
            PeerProcess::Unknown | PeerProcess::Buffered { .. } => silence < c.config.patience,
            PeerProcess::Alive { handed, taken } => {
                if self.looks == 0 {
                    (self.doubt, self.looks) = (handed, 1);
                }
                // More than before: something that was sent again since.
                if taken > self.doubt {
                    (self.doubt, self.looks) = (handed, self.looks + 1);
                }
                self.looks <= LOOKS
            }
        }
    }
}

footprint!(RetransmitTimer, |at| {
    deadline => instant().is(Item::Deadline),
    estimated => left(why::SHARED),
    quick => flag().when(at.irn, why::IRN).is(Item::Flags),
    extended => flag().when(at.irn, why::IRN).is(Item::Flags),
    back_off => bits(4).when(at.measures(), why::OFF),
    // Retries, of which there are up to seven.
    timeouts => bits(3),
    last_progress => instant(),
    probes => left(why::SHARED),
    probing => flag().when(*probes, why::OFF),
    probed => flag().when(*probes, why::OFF),
    last_sent => instant().when(*probes, why::OFF),
    late => left("software that nobody has run"),
    fed => left(why::SHARED),
    since => instant().when(at.measures(), why::OFF),
    absent => left("software that nobody has run"),
    doubt => left("of real time: processes of hosts"),
    looks => left("of real time: processes of hosts"),
    reading => left("of real time: processes of hosts"),
    unread => left("of real time: processes of hosts"),
    srtt => instant().when(at.measures(), why::STATISTICS),
    rttvar => instant().when(at.measures(), why::STATISTICS),
    timed => maybe(width::PSN + width::TIME).when(at.measures(), why::STATISTICS),
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
        // Each timeout doubles it, up to the most; a measurement ends that.
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
