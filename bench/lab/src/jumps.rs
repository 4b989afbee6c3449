//! Time that jumps: it stands still while an application acts, and goes on to what happens next once all poll in vain
//! or sleep.

use std::time::Duration;

use irnic_ports::lab::Standing;

use crate::switchd::{SLEEP, Switchd};

impl Switchd {
    /// Tells whether something is going to happen that a process may wait for.
    fn is_awaited(&mut self) -> bool {
        self.server.has_frames() || self.server.earliest() < u64::MAX || !self.lab.is_idle()
    }

    /// Has time go on to the next thing that happens to a process, if nothing keeps it. An application that calls
    /// nothing is waited for for `patience`. Returns whether it went on.
    pub(super) fn jump(&mut self, patience: Duration) -> bool {
        let now = self.server.now();
        let wait = match self.is_awaited() {
            false => Standing::Working,
            true => self.server.standing(now, patience),
        };
        let goes_on = matches!(wait, Standing::Ready | Standing::Acting(Duration::ZERO)) && self.server.try_hold(now);
        if !goes_on {
            self.server.wake(now);
            return false;
        }
        // All that was sent is here, and nobody sends anything meanwhile.
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

    /// Sleeps until a process has news, or one has been waited for in vain.
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
            |_| (),
        );
        self.server.attend();
    }
}
