//! Virtual time: it stands still while an application acts, and jumps to the next event once all poll in vain or sleep.

use std::time::Duration;

use irnic_ports::lab::Standing;

use crate::switchd::{SLEEP, Switchd};

impl Switchd {
    /// Returns whether an event is due that a process may wait for.
    fn is_awaited(&mut self) -> bool {
        self.server.has_frames() || self.server.earliest() < u64::MAX || !self.lab.is_idle()
    }

    /// Advances time to the next event of a process, if no application is acting. Applications that make no calls are
    /// waited for up to `patience`. Returns whether time advanced.
    pub(super) fn jump(&mut self, patience: Duration) -> bool {
        let now = self.server.now();
        let wait = match self.is_awaited() {
            false => Standing::Working,
            true => self.server.standing(now, patience),
        };
        let timed_out = wait == Standing::Acting(Duration::ZERO);
        let goes_on = (timed_out || wait == Standing::Ready) && self.server.try_hold(now, timed_out);
        if !goes_on {
            self.server.wake(now);
            return false;
        }
        // All frames have been collected, and no process sends meanwhile.
        let (_, need) = self.collect();
        let mut next = None;
        while need < u64::MAX || !self.lab.is_idle() {
            let at = need.min(self.lab.next_event());
            if self.advance(at) || at == need {
                next = Some(at);
                break;
            }
        }
        if let Some(next) = next {
            self.server.set_now(next);
        }
        self.server.release();
        self.server.wake(self.server.now());
        next.is_some()
    }

    /// Sleeps until a process has news, or the wait for one has timed out.
    pub(super) fn sleep_between_jumps(&mut self, patience: Duration) {
        let now = self.server.now();
        let awaited = self.is_awaited();
        let timeout = match self.server.standing(now, patience) {
            Standing::Acting(left) if awaited => left.min(SLEEP),
            _ => SLEEP,
        };
        self.server.sleep(
            timeout,
            |server| {
                server.wake(now);
                awaited && server.standing(now, patience) == Standing::Ready
            },
            |_, _| (),
        );
        self.server.attend();
    }
}
