//! Whether the application replies to what has arrived: its acknowledgement then leaves with the reply, in one call and
//! one datagram, and the peer receives both at once.

use irnic_transports::Time;
use irnic_transports::time::{MS, US};

/// Maximum number of packets received together for which a reply is waited for: a message, and the acknowledgement of
/// the one before.
pub(in crate::runtime) const CONVERSATION: usize = 2;
/// How long an acknowledgement waits for the reply, ns: a task switch to an application that polls memory, and its
/// processing.
const PATIENCE: u64 = 100 * US;
/// How long replies are not waited for after the first that was missed, and at most, ns.
const FIRST_HOLD: u64 = 5 * MS;
const LONGEST_HOLD: u64 = 640 * MS;
/// Number of consecutive replies that reset the next hold to the first.
const RELIABLE: u8 = 8;

/// What is known of the application's replies.
#[derive(Clone, Debug)]
pub(in crate::runtime) struct Answers {
    /// When the reply to the last arrival is late; 0 if none is due. Deferred acknowledgements leave when the
    /// background thread runs after that.
    pub(in crate::runtime) due: Time,
    /// Consecutive replies in time; halved by each one for which an acknowledgement waited in vain.
    pub(in crate::runtime) in_time: u8,
    /// How long replies are not waited for after the next one missed, ns.
    pub(in crate::runtime) hold: u64,
    /// The last post sent many packets. An acknowledgement goes with the first of such a reply, too late for the peer
    /// to wake up while the others leave, and too early to keep it polling for them.
    pub(in crate::runtime) long: bool,
}

impl Default for Answers {
    fn default() -> Answers {
        Answers { due: Time::ZERO, in_time: 0, hold: FIRST_HOLD, long: false }
    }
}

impl Answers {
    /// Records a post of the application: the reply, if one is due.
    #[inline]
    pub(super) fn posted(&mut self, now: Time) {
        let due = std::mem::replace(&mut self.due, Time::ZERO);
        if due > Time::ZERO {
            self.in_time = if now < due { self.in_time.saturating_add(1) } else { 0 };
            if self.in_time == RELIABLE {
                self.hold = FIRST_HOLD;
            }
        }
    }

    /// Expects a reply to what has just arrived.
    #[inline]
    pub(in crate::runtime) fn expect(&mut self, now: Time) {
        self.due = now + PATIENCE;
    }

    /// Records that acknowledgements leave without the reply. Returns how long replies are not waited for, ns, if one
    /// was due.
    pub(super) fn give_up(&mut self) -> Option<u64> {
        let due = std::mem::replace(&mut self.due, Time::ZERO);
        (due > Time::ZERO).then(|| self.missed())
    }

    /// Records that a reply did not come in time. Returns how long replies are not waited for, ns: longer each time if
    /// none comes in between.
    fn missed(&mut self) -> u64 {
        self.in_time /= 2;
        if self.in_time > 0 {
            return 0;
        }
        let hold = self.hold;
        self.hold = (2 * hold).min(LONGEST_HOLD);
        hold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_answer_is_waited_for_less_and_less_often() {
        let mut answers = Answers::default();
        let holds: Vec<_> = (0..9).map(|_| answers.missed() / MS).collect();
        assert_eq!(holds, [5, 10, 20, 40, 80, 160, 320, 640, 640]);
        for _ in 0..RELIABLE {
            answers.due = Time(2);
            answers.posted(Time(1));
        }
        assert_eq!(answers.in_time, RELIABLE);
        assert_eq!([0; 4].map(|_| answers.missed() / MS), [0, 0, 0, 5], "an exception is none");
    }

    #[test]
    fn only_what_is_posted_in_time_is_an_answer() {
        let mut answers = Answers::default();
        answers.posted(Time(1));
        assert_eq!(answers.in_time, 0, "none was due");
        answers.due = Time(2);
        answers.posted(Time(1));
        answers.posted(Time(1));
        assert_eq!(answers.in_time, 1, "one was due");
        answers.due = Time(2);
        answers.posted(Time(2));
        assert_eq!(answers.in_time, 0);
    }
}
