//! Rounds of a sender, as TCP counts them: a round ends with the acknowledgement of what had been sent when it began.

use std::collections::VecDeque;

use irnic_transports::Psn;

/// Measurements of a sender in one round.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// Packets acknowledged.
    pub packets: u32,
    /// Those of them that switches had marked with congestion experienced.
    pub marked: u32,
    /// The shortest round trip, ns.
    pub least: u64,
}

/// The rounds of one sender.
#[derive(Clone, Debug, Default)]
pub(super) struct Rounds {
    /// The last packet acknowledged when the round began, and the last sent by then.
    round: Option<(Psn, Psn)>,
    /// Marked packets that have arrived and are not acknowledged yet.
    marked: VecDeque<Psn>,
    seen: u32,
    least: Option<u64>,
}

impl Rounds {
    /// Records the arrival of a marked packet.
    pub(super) fn marked(&mut self, psn: Psn) {
        self.marked.push_back(psn);
    }

    /// Records the acknowledgement of all packets up to `psn`, of those up to `high` that were sent; the last one with
    /// round trip `trip`, ns. Returns the round, if this ends it.
    pub(super) fn acknowledged(&mut self, psn: Psn, high: Psn, trip: Option<u64>) -> Option<Round> {
        while self.marked.front().is_some_and(|marked| !psn.before(*marked)) {
            self.marked.pop_front();
            self.seen += 1;
        }
        self.least = self.least.into_iter().chain(trip).min();
        let (begun, end) = *self.round.get_or_insert((psn, high));
        if psn.before(end) {
            return None;
        }
        self.round = Some((psn, high));
        let packets = psn.distance(begun) as u32;
        let (marked, least) = (std::mem::take(&mut self.seen), self.least.take());
        Some(Round { packets, marked: marked.min(packets), least: least? }).filter(|round| round.packets > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_ends_with_what_was_sent_when_it_began() {
        let psn = Psn::new;
        let mut rounds = Rounds::default();
        // Four packets are in flight when the first is acknowledged: the round is from the second to the fourth.
        assert_eq!(rounds.acknowledged(psn(0), psn(3), Some(90)), None);
        rounds.marked(psn(2));
        rounds.marked(psn(4));
        assert_eq!(rounds.acknowledged(psn(1), psn(5), Some(70)), None);
        assert_eq!(rounds.acknowledged(psn(2), psn(6), None), None);
        let first = Round { packets: 3, marked: 1, least: 70 };
        assert_eq!(rounds.acknowledged(psn(3), psn(7), Some(80)), Some(first));
        // The next one ends with the eighth, and includes a marked one.
        assert_eq!(rounds.acknowledged(psn(6), psn(9), Some(60)), None);
        let second = Round { packets: 4, marked: 1, least: 60 };
        assert_eq!(rounds.acknowledged(psn(7), psn(11), Some(65)), Some(second));
    }
}
