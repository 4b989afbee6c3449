//! The ends of connections, reported after the completions that came before them.
//!
//! With hardware, a peer's last message completes long before its disconnect request has passed the kernel. Here both
//! can arrive in one turn, while the application's thread has no core. An application that then sees the end first may
//! destroy the queue pair, and with it the completions that it has not polled (libfabric's `vrb_ep_close`). So the end
//! waits for the next poll, for a short time.

use irnic_transports::Time;
use irnic_transports::time::{MS, US};

use crate::cm::Cm;
use crate::event::{CmEvent, EventKind};
use crate::param::CmId;

/// How long an event waits for completions to be polled, ns: several time slices of a busy machine.
const PATIENCE: u64 = 50 * MS;
/// Interval of checks whether events still have to wait, ns.
const INTERVAL: u64 = 20 * US;

/// Events of connections that have ended, and all later events of the same ids.
#[derive(Debug, Default)]
pub struct Departures {
    waiting: Vec<(Time, CmEvent)>,
}

impl Departures {
    /// Takes the next event of `cm` that need not wait. `unpolled` returns whether completions of a queue pair, by its
    /// number, have not been polled yet.
    pub fn next_event(&mut self, now: Time, cm: &mut Cm, unpolled: impl Fn(u32) -> bool) -> Option<CmEvent> {
        self.retain(|id| cm.kind(id).is_ok());
        if let Some(event) = self.take(now, |id| cm.local_qpn(id).is_some_and(&unpolled)) {
            return Some(event);
        }
        while let Some(event) = cm.poll_event() {
            let passed = self.pass(now, event, |id| cm.local_qpn(id).is_some_and(&unpolled));
            if passed.is_some() {
                return passed;
            }
        }
        None
    }

    /// Returns the event, unless it has to wait. `unpolled` returns whether completions of an id's queue pair have not
    /// been polled yet.
    fn pass(&mut self, now: Time, event: CmEvent, unpolled: impl Fn(CmId) -> bool) -> Option<CmEvent> {
        let follows = self.waiting.iter().any(|(_, waiting)| waiting.id == event.id);
        if follows || event.kind == EventKind::Disconnected && unpolled(event.id) {
            self.waiting.push((now, event));
            return None;
        }
        Some(event)
    }

    /// Takes the oldest event that need not wait any more.
    fn take(&mut self, now: Time, unpolled: impl Fn(CmId) -> bool) -> Option<CmEvent> {
        let is_over = |(since, event): &(Time, CmEvent)| now.since(*since) >= PATIENCE || !unpolled(event.id);
        let at = self.waiting.iter().position(is_over)?;
        Some(self.waiting.remove(at).1)
    }

    /// Drops the events of ids that do not exist any more.
    fn retain(&mut self, exists: impl Fn(CmId) -> bool) {
        self.waiting.retain(|(_, event)| exists(event.id));
    }

    /// Returns when to look again.
    pub fn next_deadline(&self, now: Time) -> Time {
        if self.waiting.is_empty() { Time::NEVER } else { now + INTERVAL }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventParam;

    const NOW: Time = Time(MS);

    fn event(id: u64, kind: EventKind) -> CmEvent {
        CmEvent { id: CmId(id), listener: None, kind, status: 0, param: EventParam::None }
    }

    #[test]
    fn an_end_waits_until_the_completions_are_polled_and_what_follows_it_too() {
        let [end, later, other] =
            [(1, EventKind::Disconnected), (1, EventKind::TimewaitExit), (2, EventKind::Disconnected)]
                .map(|(id, kind)| event(id, kind));
        let mut departures = Departures::default();
        let of_first = |id| id == CmId(1);
        assert_eq!(departures.pass(NOW, end.clone(), of_first), None);
        assert_eq!(departures.pass(NOW, later.clone(), of_first), None);
        assert_eq!(departures.pass(NOW, other.clone(), of_first), Some(other), "all of its completions are polled");
        assert_eq!((departures.take(NOW, of_first), departures.next_deadline(NOW)), (None, NOW + INTERVAL));
        let polled = |_| false;
        assert_eq!([departures.take(NOW, polled), departures.take(NOW, polled)], [Some(end), Some(later)]);
        assert_eq!((departures.take(NOW, polled), departures.next_deadline(NOW)), (None, Time::NEVER));
    }

    #[test]
    fn an_end_waits_for_no_longer_than_its_patience_and_not_for_an_id_that_is_gone() {
        let mut departures = Departures::default();
        let all = |_| true;
        for id in [1, 2] {
            assert_eq!(departures.pass(NOW, event(id, EventKind::Disconnected), all), None);
        }
        departures.retain(|id| id == CmId(2));
        assert_eq!(departures.take(NOW + (PATIENCE - 1), all), None);
        assert_eq!(departures.take(NOW + PATIENCE, all), Some(event(2, EventKind::Disconnected)));
        assert_eq!(departures.take(NOW + PATIENCE, all), None);
    }

    #[test]
    fn only_ends_wait() {
        let established = event(1, EventKind::Established);
        assert_eq!(Departures::default().pass(NOW, established.clone(), |_| true), Some(established));
    }
}
