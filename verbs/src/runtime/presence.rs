//! The application's activity, for a port whose clock waits for it ([`Timed::awaits_applications`]).
//!
//! Time stops while the application acts. It continues without it once it has completed a round of its polling loop and
//! found nothing, or sleeps. Then the poll that completed the round waits until there is a completion.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use irnic_ports::slices::Contention;
use irnic_transports::Time;
use irnic_transports::qp::CqId;

/// What is known of the application.
#[derive(Debug, Default)]
pub(super) struct Presence {
    /// A listener was notified since the last turns were settled.
    pub(super) heard: bool,
    /// Number of completions at that time.
    pub(super) completions: u64,
    /// Consecutive polls in vain.
    pub(super) round: Option<Round>,
    /// The queue that the application waits for, if it waits for no other, and the number of events that it has had.
    pub(super) queue: Option<(Arc<AtomicU64>, u64)>,
    /// Contention for cores.
    pub(super) contention: Contention,
}

/// Consecutive polls of some queues.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Round {
    /// The time of the port's clock.
    at: Time,
    first: CqId,
    last: CqId,
}

impl Presence {
    /// Records a poll in vain. Returns whether the application has polled everything that it polls: it comes back to
    /// the first queue, or stays with one.
    pub(super) fn closes_round(&mut self, cq: CqId, at: Time) -> bool {
        let round = self.round.filter(|round| round.at == at);
        self.round = Some(Round { at, first: round.map_or(cq, |round| round.first), last: cq });
        round.is_some_and(|round| round.first == cq || round.last == cq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_ends_where_it_began_or_stays() {
        let [a, b] = [CqId(1), CqId(2)];
        for (polls, closed) in [
            (vec![a, a], 1),
            (vec![a, b, a], 2),
            // The first queue was polled once before the loop.
            (vec![a, b, b], 2),
        ] {
            let mut presence = Presence::default();
            let found: Vec<bool> = polls.iter().map(|cq| presence.closes_round(*cq, Time(7))).collect();
            assert_eq!(found.iter().position(|closes| *closes), Some(closed), "{polls:?}");
        }
        let mut presence = Presence::default();
        assert!(!presence.closes_round(a, Time(7)));
        assert!(!presence.closes_round(a, Time(8)), "time has gone on in between");
        assert!(presence.closes_round(a, Time(8)));
    }
}
