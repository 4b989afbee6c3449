//! Time that waits for applications: what holds it up, and how it advances.

use std::time::{Duration, Instant};

use super::clock::Line;
use super::member::{ACTS, HELD, POLLS, SLEEPS, words};
use super::server::{LabServer, Member};
use crate::stamp::host_now;
use crate::sync::Ordering;

/// Minimum patience with an application, however often waiting for it timed out.
const LEAST_PATIENCE: Duration = Duration::from_micros(100);

/// State of a process's application.
#[derive(Debug, Default)]
pub(super) struct Presence {
    /// Its call count as last read.
    calls: u64,
    /// It acted at that time, and was waited for.
    acted: bool,
    /// Waiting for it timed out, and it has not made a call since.
    away: bool,
    /// Number of such timeouts.
    times_away: u32,
    /// Its activity before it was held.
    held: Option<u32>,
}

/// How often time advanced although an application had neither polled in vain nor gone to sleep.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Unasked {
    /// Number of such advances.
    pub jumps: u64,
    /// Lab time of the first one, ns. Before it nothing depended on the speed of a process.
    pub first: Option<u64>,
}

/// Time of the last call of an application, and how often time advanced without one.
#[derive(Debug)]
pub(super) struct Jumps {
    heard: Instant,
    unasked: Unasked,
}

impl Default for Jumps {
    fn default() -> Jumps {
        Jumps { heard: Instant::now(), unasked: Unasked::default() }
    }
}

/// What time is waiting for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// All applications poll in vain or sleep, or are away.
    Ready,
    /// A NIC is working, or has work due.
    Working,
    /// An application acts. It is waited for this long.
    Acting(Duration),
}

impl Member {
    fn doing(&self) -> u32 {
        words(self.region()).doing.0.load(Ordering::SeqCst)
    }

    fn hold(&mut self) -> bool {
        let doing = &words(self.region()).doing.0;
        let was = doing.load(Ordering::Relaxed);
        let held = matches!(was, ACTS | POLLS | SLEEPS)
            && (was != ACTS || self.presence.away)
            && doing.compare_exchange(was, HELD, Ordering::SeqCst, Ordering::Relaxed).is_ok();
        if held {
            self.presence.held = Some(was);
        }
        held
    }
}

impl LabServer {
    /// Returns what time is waiting for, at the lab's time `now`, ns. An application that has made no call for
    /// `patience`, while no other has either, counts as away until its next call; each time the wait for it halves.
    pub fn standing(&mut self, now: u64, patience: Duration) -> Standing {
        let (mut news, mut working, mut acting) = (false, false, None);
        for member in self.alive() {
            let calls = words(member.region()).calls.load(Ordering::Acquire);
            if calls != member.presence.calls {
                (member.presence.calls, member.presence.away, news) = (calls, false, true);
            }
            let doing = member.doing();
            member.presence.acted = doing == ACTS && !member.presence.away;
            match doing {
                _ if member.need() <= now => working = true,
                POLLS | SLEEPS => {}
                ACTS if member.presence.away => {}
                ACTS => {
                    let patience = (patience / (1 << member.presence.times_away.min(16))).max(LEAST_PATIENCE);
                    acting = acting.max(Some(patience));
                }
                _ => working = true,
            }
        }
        if news {
            self.jumps.heard = Instant::now();
        }
        match acting {
            _ if working => Standing::Working,
            None => Standing::Ready,
            Some(patience) => Standing::Acting(patience.saturating_sub(self.jumps.heard.elapsed())),
        }
    }

    /// Keeps all processes from acting at the lab's time `now`, ns, until [`LabServer::release`]. Returns false if one
    /// is active. If the wait for those that acted at [`LabServer::standing`] has `timed_out`, the ones that have made
    /// no call since count as away from now on.
    pub fn try_hold(&mut self, now: u64, timed_out: bool) -> bool {
        let mut unasked = false;
        let mut held = true;
        for member in self.alive() {
            let calls = words(member.region()).calls.load(Ordering::Acquire);
            let presence = &member.presence;
            if timed_out && presence.acted && calls == presence.calls && member.doing() == ACTS {
                unasked = true;
                member.presence.away = true;
                member.presence.times_away += 1;
            }
            held &= member.hold();
        }
        // No process begins a turn any more, but one may have begun one before it was held.
        held = held && self.alive().all(|member| member.need() > now);
        if !held {
            self.release();
        }
        if unasked {
            self.jumps.unasked.jumps += 1;
            self.jumps.unasked.first.get_or_insert(now);
        }
        held
    }

    /// Restores what processes were doing before [`LabServer::try_hold`].
    pub fn release(&mut self) {
        for member in self.alive() {
            if let Some(was) = member.presence.held.take() {
                words(member.region()).doing.0.store(was, Ordering::SeqCst);
            }
        }
        self.jumps.heard = Instant::now();
    }

    /// Sets the lab's time to `now`, ns, until it is set again. All processes are held.
    pub fn set_now(&self, now: u64) {
        // The line is what continues when the server ends.
        self.set_line(Line::new(now, host_now(), 1.0));
        self.set_limit(now);
    }

    /// Returns how often time advanced although an application had not waited.
    pub fn unasked(&self) -> Unasked {
        self.jumps.unasked
    }
}
