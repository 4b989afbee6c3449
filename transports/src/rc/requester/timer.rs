//! The requester's deadlines: RNR waits, retransmission timeouts, and those of congestion control.

use super::{Format, Requester};
use crate::qp::context::{QpContext, QpFailure};
use crate::qp::host::{Host, PeerProcess};
use crate::qp::work::WcStatus;
use crate::rc::discipline::{Due, Hooks};
use crate::rc::timer::Expiry;
use crate::time::Time;

impl Requester {
    /// Returns when [`Self::on_deadline`] is due, except for the discipline.
    #[inline]
    pub(crate) fn next_deadline(&self) -> Time {
        let deadline = self.rnr_until.unwrap_or(Time::NEVER).min(self.timer.deadline()).min(self.fetch.deadline());
        let deadline = deadline.min(self.stream.deadline());
        match &self.throttle {
            None => deadline,
            Some(throttle) => deadline.min(throttle.next_deadline()),
        }
    }

    /// Returns when [`Self::on_deadline`] is due for the discipline.
    pub(crate) fn rare_deadline(&self) -> Time {
        self.discipline.next_deadline()
    }

    /// Runs timers that are due; `process` returns what is known of the peer's process.
    pub(crate) fn on_deadline(
        &mut self,
        now: Time,
        c: &QpContext,
        host: &mut impl Host,
        mut process: impl FnMut() -> PeerProcess,
    ) -> Result<(), QpFailure> {
        if self.rnr_until.is_some_and(|t| t <= now) {
            self.rnr_until = None;
        }
        self.fetch.on_deadline(now);
        self.find_lost(now);
        if let Some(throttle) = &mut self.throttle {
            throttle.on_deadline(now);
            self.stream.set_window(throttle.window());
        }
        if !self.discipline.is_plain() {
            self.run_discipline(now, c, host);
        }
        if self.timer.deadline() > now {
            return Ok(());
        }
        if let Some(until) = self.throttle.as_ref().and_then(|t| t.blocked_until())
            && self.fetch.wants_tx(&self.stream, false)
        {
            self.timer.hold(now, until, c);
            return Ok(());
        }
        let (quick, n) = match self.timer.expired(now, c, &mut process) {
            Expiry::Nothing => return Ok(()),
            Expiry::Probe => {
                // A READ of plain RoCE is requested again for the missing part of its response.
                let first = self.format != Format::Irn && !self.reads.is_empty();
                host.counters().tlp_probes += u64::from(self.stream.probe(first));
                self.fetch.observe(now, &self.stream);
                return Ok(());
            }
            Expiry::Timeout { quick, n } => (quick, n),
        };
        if !(quick && self.stream.in_flight() > n) && self.puts_off_timeout(now, c) {
            return Ok(());
        }
        let extend = self.stream.outstanding() && !self.discipline.recovers() && self.stream.timeout(quick, n);
        self.fetch.observe(now, &self.stream);
        if !extend {
            self.discipline.on_timeout(&self.stream);
        }
        if extend {
            self.timer.extend(now, c);
            host.counters().irn_timeouts_extended += 1;
            return Ok(());
        }
        self.went_back_at = None;
        if !self.discipline.recovers() {
            host.counters().local_ack_timeout_err += 1;
            self.tally.timeouts += 1;
        }
        if let Some(throttle) = &mut self.throttle {
            throttle.on_timeout(now);
            self.stream.set_window(throttle.window());
        }
        if self.stream.outstanding() {
            self.cancel_debt(now);
        }
        if self.timer.timed_out(now, true, c, process) {
            if !self.stream.outstanding() && !self.reads.is_empty() {
                // IRN: only responses are missing, which the responder's timer recovers (§4.4.2). If it has given up,
                // or is in the error state and its NAK was lost, it reports that only on a packet from us.
                self.read_acks.push_cumulative();
                self.probe = true;
            }
            return Ok(());
        }
        host.counters().retry_exceeded_err += 1;
        self.complete(c, host)?;
        Err(QpFailure::Send(WcStatus::RetryExcErr))
    }

    /// RACK: detects packets that are lost by the passing of time.
    fn find_lost(&mut self, now: Time) {
        if self.stream.deadline() > now {
            return;
        }
        let losses = self.stream.losses();
        self.stream.on_deadline(now);
        self.fetch.observe(now, &self.stream);
        if let Some(throttle) = &mut self.throttle
            && self.stream.losses() != losses
        {
            throttle.on_loss(now);
            self.stream.set_window(throttle.window());
            self.cancel_debt(now);
        }
    }

    /// Runs the discipline's timers.
    fn run_discipline(&mut self, now: Time, c: &QpContext, host: &mut impl Host) {
        let due = self.discipline.on_deadline(now, &self.stream, self.timer.srtt(), self.rtt.count());
        let Due { late, restart, hold } = due;
        self.tally.timeouts += u64::from(late);
        host.counters().local_ack_timeout_err += u64::from(late);
        if hold && self.timer.deadline() <= now && self.reads.is_empty() {
            self.timer.hold(now, now, c);
        }
        if restart {
            self.timer.restart(now, c);
        }
    }

    /// Returns whether the discipline puts off a timeout.
    #[cold]
    fn puts_off_timeout(&mut self, now: Time, c: &QpContext) -> bool {
        let puts_off = self.discipline.puts_off_timeout(&self.stream, self.rtt.count());
        if puts_off {
            self.timer.restart(now, c);
        }
        puts_off
    }
}
