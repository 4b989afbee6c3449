//! What happens because time passes.

use irnic_transports::Time;
use irnic_transports::wire::mad::{MAD_LEN, RejReason};
use rand::RngExt;

use crate::connection::{State, nanos};
use crate::{Cm, EventKind, EventParam};

/// The status of what took too long: Linux's ETIMEDOUT, negated as rdma_cm has it.
const TIMED_OUT: i32 = -110;

impl Cm {
    /// Does what is due: repeats, timeouts, ends of timewait. Too early does no harm.
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

    /// Nothing is repeated: timewait has ended, or the time for which an answer was remembered.
    fn on_end(&mut self, comm_id: u32) {
        let Some(c) = self.connections.remove(comm_id) else { return };
        if let Some(id) = c.owner
            && c.state == State::Timewait
            && c.disconnected
        {
            self.raise(id, EventKind::TimewaitExit, 0, EventParam::None);
        }
    }

    /// The peer does not answer.
    fn on_timeout(&mut self, now: Time, comm_id: u32) {
        let Some(c) = self.connections.get(comm_id) else { return };
        let (state, owner) = (c.state, c.owner);
        match state {
            State::DreqSent => return self.set_disconnected(now, comm_id, TIMED_OUT),
            State::RepSent | State::MraRepReceived => self.refuse(now, comm_id, RejReason::TIMEOUT, &[]),
            // A REJ that was sent a few times.
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

    /// Gives up an accepted request that its peer does not confirm, before its time. A peer that is there after all is
    /// told.
    pub(crate) fn give_up(&mut self, now: Time, comm_id: u32) {
        let Some(owner) = self.connections.get(comm_id).map(|c| c.owner) else { return };
        self.refuse_once(now, comm_id, RejReason::TIMEOUT, &[]);
        if let Some(id) = owner {
            self.raise(id, EventKind::Unreachable, TIMED_OUT, EventParam::None);
        }
    }

    /// Ends a connection that never stood. It is remembered for as long as the peer may ask again, and whoever asked
    /// may have done so in a message that is late: the answer, or silence.
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

    /// A connection has ended: its packets are to die out before its queue pair has another.
    pub(crate) fn enter_timewait(&mut self, now: Time, comm_id: u32) {
        self.confirmed(comm_id);
        self.connections.release_qpn(comm_id);
        let Some(c) = self.connections.get_mut(comm_id) else { return };
        (c.state, c.repeat) = (State::Timewait, None);
        let end = now + nanos(c.ack_timeout);
        self.connections.set_due(comm_id, end);
    }

    /// Forgets connections that nobody owns, those first that have the least time left, if there are too many.
    pub(crate) fn limit_ended(&mut self) {
        while let Some(comm_id) = self.connections.surplus(self.config.max_ended) {
            self.connections.remove(comm_id);
        }
    }
}
