//! Timers of the manager.

use irnic_transports::Time;
use irnic_transports::wire::mad::{MAD_LEN, RejReason};
use rand::RngExt;

use crate::connection::{State, nanos};
use crate::{Cm, EventKind, EventParam};

/// Status of a timeout: Linux's ETIMEDOUT, negated as in rdma_cm.
const TIMED_OUT: i32 = -110;

impl Cm {
    /// Runs the timers that are due: repeats, timeouts, ends of timewait. Calling it early is harmless.
    pub fn on_deadline(&mut self, now: Time) {
        while let Some(comm_id) = self.connections.due(now) {
            self.on_due(now, comm_id);
        }
    }

    fn on_due(&mut self, now: Time, comm_id: u32) {
        let jitter = self.random.random();
        let Some(c) = self.connections.get_mut(comm_id) else { return };
        let Some(repeat) = &mut c.repeat else {
            return self.on_end(comm_id);
        };
        match repeat.poll(now, jitter) {
            Some(again) => {
                let (path, mad, due) = (c.path, repeat.mad, repeat.due());
                self.connections.set_due(comm_id, due);
                if again {
                    self.send(path, mad);
                }
            }
            None => self.on_timeout(now, comm_id),
        }
    }

    /// Handles a timer without a repeat: the end of timewait, or of the time for which an answer is remembered.
    fn on_end(&mut self, comm_id: u32) {
        let Some(c) = self.connections.remove(comm_id) else { return };
        if let Some(id) = c.owner
            && c.state == State::Timewait
            && c.disconnected
        {
            self.raise(id, EventKind::TimewaitExit, 0, EventParam::None);
        }
    }

    /// Handles a peer that does not answer.
    fn on_timeout(&mut self, now: Time, comm_id: u32) {
        let Some(c) = self.connections.get_mut(comm_id) else { return };
        let (state, owner) = (c.state, c.owner);
        match state {
            // The RTU was sent several times.
            State::Established => {
                c.repeat = None;
                return self.connections.set_due(comm_id, Time::NEVER);
            }
            State::DreqSent => return self.set_disconnected(now, comm_id, TIMED_OUT),
            State::RepSent | State::MraRepReceived => self.refuse(now, comm_id, RejReason::TIMEOUT, &[]),
            // The REJ was sent several times.
            State::Ended => {
                let answer = c.answer;
                return self.end(now, comm_id, answer);
            }
            _ => self.end(now, comm_id, None),
        }
        if let Some(id) = owner {
            self.raise(id, EventKind::Unreachable, TIMED_OUT, EventParam::None);
        }
    }

    /// Gives up an accepted request that its peer does not confirm, before its timeout. A peer that is alive after all
    /// is notified.
    pub(crate) fn give_up(&mut self, now: Time, comm_id: u32) {
        let Some(owner) = self.connections.get(comm_id).map(|c| c.owner) else { return };
        self.refuse_once(now, comm_id, RejReason::TIMEOUT, &[]);
        if let Some(id) = owner {
            self.raise(id, EventKind::Unreachable, TIMED_OUT, EventParam::None);
        }
    }

    /// Ends a connection that was never established. It is remembered for as long as the peer may repeat its request,
    /// possibly in a late message: to that, the reply is `answer`, or silence.
    pub(crate) fn end(&mut self, now: Time, comm_id: u32, answer: Option<[u8; MAD_LEN]>) {
        self.confirmed(comm_id);
        self.connections.release_qpn(comm_id);
        let Some(c) = self.connections.get_mut(comm_id) else { return };
        if answer.is_none() && !c.passive {
            self.connections.remove(comm_id);
            return;
        }
        (c.state, c.repeat, c.answer) = (State::Ended, None, answer);
        let remembered = now + c.interval * (1 + u64::from(c.max_retries));
        self.connections.set_due(comm_id, remembered);
    }

    /// Enters timewait: a connection has ended, and its packets must die out before its queue pair is reused.
    pub(crate) fn enter_timewait(&mut self, now: Time, comm_id: u32) {
        self.confirmed(comm_id);
        self.connections.release_qpn(comm_id);
        let Some(c) = self.connections.get_mut(comm_id) else { return };
        (c.state, c.repeat) = (State::Timewait, None);
        let end = now + nanos(c.ack_timeout);
        self.connections.set_due(comm_id, end);
    }

    /// Removes ownerless connections, those with the least time left first, if there are too many.
    pub(crate) fn limit_ended(&mut self) {
        while let Some(comm_id) = self.connections.surplus(self.config.max_ended) {
            self.connections.remove(comm_id);
        }
    }
}
