//! A model of what the application does, learnt from its calls, and the schedule that follows from it.
//!
//! | the application | shows it by | then |
//! |---|---|---|
//! | polls a completion queue in a loop | polls less than 200 us apart | peers do not ring, the background thread leaves the work to it |
//! | sleeps on a completion channel | an armed queue | peers ring, acknowledgements leave at once |
//! | replies to each message | posts within 100 us of an arrival | acknowledgements leave with the reply |
//! | looks at memory for arrivals | posts soon after arrivals that no poll has found | acknowledgements wait for the reply; a poll that takes completions waits for the arrival |
//! | posts and leaves | packets that lie for 200 us, twice in a row | peers ring after each of its calls, for 100 ms |
//! | has more busy threads than cores | empty polls while other threads compute | its polls yield the core, or sleep |
//!
//! The model is pure: it reads no clock, and touches neither NIC nor port. Those who own them report what has happened,
//! and when, and carry out what it decides.

mod ack_batch;
mod answers;
mod busy_poll;
mod empty_polls;
mod intervals;
mod memory_watch;
#[cfg(test)]
mod tests;

use irnic_nic::Nic;
use irnic_transports::Time;
use irnic_transports::time::{SEC, US};

use ack_batch::AckBatch;
use answers::Answers;
use empty_polls::EmptyPolls;
use intervals::{IDLE_HOLD, POLLING, SPINNING};
use memory_watch::MemoryWatch;

pub(super) use answers::CONVERSATION;
pub(super) use busy_poll::BusyPoll;
pub(super) use empty_polls::{SLEEP, Usage};
pub(super) use intervals::{IDLE_INTERVAL, POLL_INTERVAL};

/// Number of completions that may be taken without polling the port.
const TAKEN_WITHOUT_POLL: u32 = 32;
/// How long an application may post and take completions without polling the port, ns: before the background thread
/// takes it for one that does not poll.
const UNSEEN: u64 = 50 * US;
/// An application that polls the port `OFTEN` times in `A_WHILE` ns polls continuously.
const OFTEN: u32 = 20;
const A_WHILE: u64 = 200 * US;
/// An application that made a call within this time, ns, may be looking at memory for arrivals.
const LATELY: u64 = 200 * US;
/// Number of packets that are acknowledged at once: half of what a NIC takes before its acknowledgements are sent.
const ENOUGH_UNANSWERED: usize = Nic::RX_BATCH / 2;
/// How long packets wait to leave with others, ns.
const LONGEST_WAIT: u64 = 200 * US;
/// Number of packets of one call whose sending time matters.
const BULK: usize = 8;
/// How long after the application's last call the background thread still wakes periodically, ns. Then it sleeps until
/// it is woken.
const WATCHFUL: u64 = SEC;

/// What is known of the application, and when the background thread runs next.
#[derive(Debug)]
pub(super) struct AppModel {
    /// When the background thread runs next in any case.
    pub(super) next_run: Time,
    /// Number of completion queues that are armed.
    pub(super) waiting_cqs: u32,
    /// Time of the application's last call.
    pub(super) last_call: Time,
    /// Time of its last poll of the port.
    pub(super) last_progress: Time,
    /// Number of such polls, and their number at the beginning of an interval of [`A_WHILE`].
    polls: u32,
    while_before: (Time, u32),
    /// It polled often in the last whole interval.
    polls_often: bool,
    /// Time of the last post whose end counts as a poll of the port.
    last_post_poll: Time,
    /// Number of completions taken since the last poll of the port.
    taken: u32,
    /// Empty polls since the last other call, and threads that sleep after them.
    pub(super) empty_polls: EmptyPolls,
    pub(super) answers: Answers,
    pub(super) memory_watch: MemoryWatch,
    ack_batch: AckBatch,
    /// Until when peers ring after each call except empty polls: the application was found not to wait by polling.
    pub(super) idle_until: Time,
    /// The background thread last found work that the application had left.
    found_lying: bool,
    /// Until when no acknowledgement or packet waits: the application was found not to reply.
    defer_from: Time,
}

impl AppModel {
    /// Returns the model of an application that makes its first call `now`.
    pub(super) fn new(now: Time) -> AppModel {
        AppModel {
            next_run: Time::ZERO,
            waiting_cqs: 0,
            last_call: now,
            last_progress: Time::ZERO,
            polls: 0,
            while_before: (Time::ZERO, 0),
            polls_often: false,
            last_post_poll: Time::ZERO,
            taken: 0,
            empty_polls: EmptyPolls::default(),
            answers: Answers::default(),
            memory_watch: MemoryWatch::default(),
            ack_batch: AckBatch::new(),
            idle_until: Time::ZERO,
            found_lying: false,
            defer_from: Time::ZERO,
        }
    }

    // Calls.

    /// Records a call other than an empty poll. Returns whether peers have to ring from now on.
    #[inline]
    pub(super) fn called(&mut self, now: Time) -> bool {
        self.last_call = now;
        self.empty_polls.end();
        now < self.idle_until || self.needs_wakeup(now)
    }

    /// Records a post. Returns whether it has to poll the port as well: the application has not done so for some time.
    #[inline]
    pub(super) fn posted(&mut self, now: Time) -> bool {
        self.answers.posted(now);
        self.memory_watch.posted(now);
        now.since(self.last_poll()) >= UNSEEN
    }

    /// Records the number of packets that a post has sent. Returns whether the time that took was not the
    /// application's: [`AppModel::post_ended`] records its end.
    #[inline]
    pub(super) fn sent(&mut self, packets: usize) -> bool {
        self.answers.long = packets > CONVERSATION + 1;
        packets >= BULK
    }

    /// Records the end of a post that polled the port, or sent many packets.
    #[inline]
    pub(super) fn post_ended(&mut self, now: Time) {
        self.last_post_poll = now;
    }

    /// Records that a poll has taken `n` completions. Returns whether it need not poll the port.
    #[inline]
    pub(super) fn took(&mut self, n: usize) -> bool {
        self.taken += n as u32;
        // Without reading the clock.
        let seen = self.last_call.since(self.last_poll()) < UNSEEN;
        let enough = n > 0 && seen && self.taken < TAKEN_WITHOUT_POLL;
        if enough {
            self.empty_polls.end();
            self.memory_watch.took(self.last_call);
        }
        enough
    }

    /// Records that a poll polls the port. Returns whether peers need not ring meanwhile, although they were asked to.
    #[inline]
    pub(super) fn polls(&mut self, now: Time) -> bool {
        self.taken = 0;
        self.last_progress = now;
        self.polls = self.polls.wrapping_add(1);
        now < self.idle_until && self.empty_polls.are_repeated()
    }

    /// Records an empty poll. Returns whether polling counts as persistent from this one on.
    #[inline]
    pub(super) fn polled_empty(&mut self, now: Time) -> bool {
        self.last_call = now;
        self.empty_polls.note(now) && self.waiting_cqs == 0
    }

    // Whether it polls.

    /// Returns when the application last polled the port, or was busy sending.
    #[inline]
    fn last_poll(&self) -> Time {
        self.last_progress.max(self.last_post_poll)
    }

    /// Returns whether threads wait for completions in other ways than by polling.
    #[inline]
    pub(super) fn is_awaited(&self) -> bool {
        self.waiting_cqs > 0 || self.empty_polls.any_sleeps()
    }

    /// Returns whether no thread will poll soon on its own if the application makes no further call: peers then have to
    /// ring.
    #[inline]
    pub(super) fn needs_wakeup(&self, now: Time) -> bool {
        self.is_awaited() || self.sleeps_long(now)
    }

    /// Returns whether the background thread sleeps for longer than while an application polls.
    #[inline]
    pub(super) fn sleeps_long(&self, now: Time) -> bool {
        self.next_run > now + POLL_INTERVAL
    }

    /// Returns whether the application has polled recently, and will again.
    #[inline]
    pub(super) fn is_polling(&self, now: Time) -> bool {
        now.since(self.last_progress) < POLLING && !self.is_awaited()
    }

    /// Returns whether the application was found not to wait by polling.
    #[inline]
    pub(super) fn is_idle(&self, now: Time) -> bool {
        now < self.idle_until
    }

    /// Returns how long ago, in ns, the application's last poll must be to show that it does not wait by polling. An
    /// application that polls continuously looks late to a thread that has just taken its core.
    pub(super) fn patience(&mut self, now: Time) -> u64 {
        let (before, polls) = self.while_before;
        if now.since(before) >= A_WHILE {
            self.polls_often = self.polls.wrapping_sub(polls) >= OFTEN;
            self.while_before = (now, self.polls);
        }
        if self.polls_often { POLLING } else { SPINNING }
    }

    /// Records that the background thread found packets at `now`, with the patience of that time. If the application
    /// had left them, twice in a row, since it may only have been preempted, it does not wait by polling. Returns
    /// whether that was found.
    pub(super) fn found(&mut self, now: Time, patience: u64) -> bool {
        let limit = if self.is_idle(now) { patience } else { POLLING };
        let lay = now.since(self.last_poll()) >= limit;
        let idle = lay && self.found_lying;
        if idle {
            self.idle_until = now + IDLE_HOLD;
        }
        self.found_lying = lay;
        idle
    }

    /// Returns how long the background thread may sleep if nothing is due, ns.
    pub(super) fn interval(&self, now: Time) -> u64 {
        match now.since(self.last_call) {
            i if i < 10 * POLL_INTERVAL => POLL_INTERVAL,
            i if i < WATCHFUL => IDLE_INTERVAL,
            _ => u64::MAX,
        }
    }

    // What may wait for its next call.

    /// Returns whether the acknowledgements of `received` packets may wait for the reply of the application, which is
    /// about to get their completions: without a reply the background thread runs soon. `unanswered` packets are not
    /// acknowledged yet.
    #[inline]
    pub(super) fn may_defer_acks(&self, received: usize, unanswered: usize, now: Time) -> bool {
        let polls = !self.is_idle(now) || (self.answers.in_time > 0 && !self.answers.long);
        self.are_worth_an_answer(received, unanswered, now) && polls && !self.needs_wakeup(now)
    }

    /// Returns the same of packets that the background thread has received, for an application that made a call
    /// recently: it may be looking at the memory that they were written to.
    #[inline]
    pub(super) fn may_leave_acks(&self, received: usize, unanswered: usize, now: Time) -> bool {
        let lately = now.since(self.last_call) < LATELY;
        self.are_worth_an_answer(received, unanswered, now) && lately && !self.answers.long && !self.is_awaited()
    }

    #[inline]
    fn are_worth_an_answer(&self, received: usize, unanswered: usize, now: Time) -> bool {
        (1..=CONVERSATION).contains(&received) && unanswered < ENOUGH_UNANSWERED && now >= self.defer_from
    }

    /// Records that the acknowledgements wait no longer for a reply.
    pub(super) fn give_up_answer(&mut self, now: Time) {
        // Packets that wait for a full send were posted in time.
        if let Some(hold) = self.answers.give_up() {
            self.defer_from = now + hold;
        }
    }

    /// Returns whether the acknowledgements of `unanswered` packets may wait for further packets of a stream, after the
    /// background thread has received `received` of them, of `bytes`.
    #[inline]
    pub(super) fn batches_acks(&mut self, received: usize, bytes: usize, unanswered: usize, now: Time) -> bool {
        self.ack_batch.waits(received, bytes, unanswered, now)
    }

    /// Returns until when packets of a post may wait to leave with those of the next one; `None` if the application may
    /// not make another call soon.
    #[inline]
    pub(super) fn packets_may_wait(&self, now: Time) -> Option<Time> {
        let polls = now.since(self.last_call) < LONGEST_WAIT && now >= self.defer_from.max(self.idle_until);
        polls.then_some(now + LONGEST_WAIT)
    }

    /// Records that packets have waited until `now`. If the application has made no call meanwhile, none waits for some
    /// time.
    pub(super) fn packets_waited(&mut self, now: Time) {
        if now.since(self.last_call) >= LONGEST_WAIT {
            self.defer_from = now + IDLE_HOLD;
        }
    }
}
