//! Threads that process the parts of a network, window by window.
//!
//! A window begins with the earliest event of all parts and is as long as the shortest link: its effects reach other
//! parts only after its end. Then each part publishes its records and mail, and takes in those of all others.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use super::super::{SimError, Site};
use super::barrier::{Barrier, Broken};
use super::{Limits, Stop, Watch};
use crate::network::{Moment, Part, Published};

/// State shared by the threads.
#[derive(Debug)]
pub(super) struct Crew {
    barrier: Barrier,
    desks: Vec<Desk>,
}

/// State that one part reports.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Desk {
    /// Time of its next event, ns.
    next: AtomicU64,
    /// Events processed; flows that have arrived; records kept.
    done: AtomicU64,
    arrived: AtomicUsize,
    kept: AtomicUsize,
    /// Whether an error occurred.
    failed: AtomicBool,
    moments: Mutex<Vec<Moment>>,
    mail: RwLock<(Published, Vec<u32>)>,
}

impl Crew {
    pub(super) fn new(parts: usize) -> Crew {
        Crew { barrier: Barrier::new(parts), desks: (0..parts).map(|_| Desk::default()).collect() }
    }

    /// Processes part `me` until there is a reason to stop, the same for all.
    pub(super) fn work(&self, me: usize, site: &mut Site<Part>, limits: &Limits, watch: Watch) -> (Stop, Watch) {
        // A panic is propagated by the thread that joins.
        let site = &mut Unless { site, barrier: &self.barrier };
        self.windows(me, site.site, limits, watch).unwrap_or((Stop::Alone, watch))
    }

    fn windows(
        &self,
        me: usize,
        site: &mut Site<Part>,
        limits: &Limits,
        mut watch: Watch,
    ) -> Result<(Stop, Watch), Broken> {
        let config = site.config.clone();
        let mut first = true;
        let mut failed = false;
        let mut moments = Vec::new();
        loop {
            self.tell(me, site, failed, &mut moments);
            self.barrier.wait()?;
            if !std::mem::take(&mut first) {
                take_back(site, &mut self.desks[me].mail.write().unwrap_or_else(PoisonError::into_inner));
            }
            let begin = self.desks.iter().map(|desk| desk.next.load(Ordering::Relaxed)).min().unwrap_or(u64::MAX);
            if let Some(stop) = self.reason(begin, limits, &mut watch) {
                return Ok((stop, watch));
            }
            let end = begin.saturating_add(limits.window).min(limits.until.saturating_add(1));
            if site.flows.are_to_prepare(end) {
                failed |= site.flows.prepare(end, &config, &mut site.net).is_err();
                self.barrier.wait()?;
            }
            if run(site, end).is_err() {
                failed = true;
                site.flows.give_up();
            }
            *self.desks[me].mail.write().unwrap_or_else(PoisonError::into_inner) = hand_out(site);
            self.barrier.wait()?;
            let all: Vec<_> =
                self.desks.iter().map(|d| d.mail.read().unwrap_or_else(PoisonError::into_inner)).collect();
            take_in(site, all.iter().map(|mail| &**mail));
        }
    }

    /// Reports the progress of this part to the others.
    fn tell(&self, me: usize, site: &mut Site<Part>, failed: bool, moments: &mut Vec<Moment>) {
        let desk = &self.desks[me];
        desk.next.store(site.net.next_event(), Ordering::Relaxed);
        desk.done.store(site.net.events().1, Ordering::Relaxed);
        desk.arrived.store(site.flows.arrived, Ordering::Relaxed);
        desk.kept.store(site.net.part().kept(), Ordering::Relaxed);
        desk.failed.store(failed, Ordering::Relaxed);
        moments.clear();
        site.net.part_mut().take_moments(moments);
        desk.moments.lock().unwrap_or_else(PoisonError::into_inner).clone_from(moments);
    }

    /// Whether to stop before the window that begins at `begin`, ns. All threads come to the same decision.
    fn reason(&self, begin: u64, limits: &Limits, watch: &mut Watch) -> Option<Stop> {
        let sum = |of: &dyn Fn(&Desk) -> u64| self.desks.iter().map(of).sum::<u64>();
        let desks = &self.desks;
        if desks.iter().any(|desk| desk.failed.load(Ordering::Relaxed)) {
            return Some(Stop::Alone);
        }
        let checks = desks[0].moments.lock().unwrap_or_else(PoisonError::into_inner).len();
        for check in 0..checks {
            let mut whole = Moment::default();
            for desk in desks {
                let moments = desk.moments.lock().unwrap_or_else(PoisonError::into_inner);
                moments.get(check).into_iter().for_each(|moment| whole.add(moment));
            }
            if watch.stands_still(&whole) {
                return Some(Stop::Alone);
            }
        }
        if begin > limits.until {
            return Some(Stop::TimeUp);
        }
        if sum(&|desk| desk.arrived.load(Ordering::Relaxed) as u64) == limits.flows as u64 {
            return Some(Stop::Arrived);
        }
        if sum(&|desk| desk.done.load(Ordering::Relaxed)) >= limits.events {
            return Some(Stop::Events);
        }
        if desks.iter().any(|desk| desk.kept.load(Ordering::Relaxed) > limits.records) {
            return Some(Stop::Settle);
        }
        None
    }
}

/// Releases the other threads if this one panics.
struct Unless<'a> {
    site: &'a mut Site<Part>,
    barrier: &'a Barrier,
}

impl Drop for Unless<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.site.flows.give_up();
            self.barrier.abandon();
        }
    }
}

/// Processes a part's events before `end`, ns.
fn run(site: &mut Site<Part>, end: u64) -> Result<(), SimError> {
    loop {
        let step = site.net.step(end - 1);
        if !site.answer(step)? {
            return Ok(());
        }
    }
}

/// Publishes the mail and news of a part.
pub(super) fn hand_out(site: &mut Site<Part>) -> (Published, Vec<u32>) {
    (site.net.publish(), site.flows.take_news())
}

/// Takes in a part's mail and news from all parts.
pub(super) fn take_in<'a>(site: &mut Site<Part>, all: impl Iterator<Item = &'a (Published, Vec<u32>)> + Clone) {
    let published: Vec<&Published> = all.clone().map(|mail| &mail.0).collect();
    site.net.take_in(&published);
    all.for_each(|mail| site.flows.hear(&mail.1, &mut site.net));
    site.flows.resolve(&mut site.net);
}

/// Returns to a part what it had published.
pub(super) fn take_back(site: &mut Site<Part>, mail: &mut (Published, Vec<u32>)) {
    site.net.take_back(std::mem::take(&mut mail.0));
    site.flows.give_back(std::mem::take(&mut mail.1));
}
