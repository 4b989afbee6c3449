//! Controlled delay (RFC 8289): drops from the front of a queue in which packets have waited too long for too long.

/// Acceptable waiting time, ns (RFC 8289 §4.4).
const TARGET: u64 = 5_000_000;
/// Time for which waiting times may exceed it, ns (RFC 8289 §4.3).
const INTERVAL: u64 = 100_000_000;

/// The previous decision, if the next call is for the same departure.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
enum After {
    #[default]
    Departure,
    /// The first packet of a series was dropped; the next one is sent.
    First,
    /// Another packet of a series was dropped.
    Another,
}

/// The state of one queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Codel {
    /// Time at which waiting times will have exceeded the target for an interval, ns; 0: the last one did not exceed
    /// it.
    first_above: u64,
    /// Time of the next drop, if dropping, ns.
    next: u64,
    /// Packets dropped in this series, and the count with which it began.
    count: u32,
    last_count: u32,
    dropping: bool,
    after: After,
}

impl Codel {
    /// Returns whether to drop the first packet, which has waited for `waited` ns. Called for one packet after the
    /// other until one may be sent. `few`: at most one packet's worth is queued behind it.
    pub(super) fn drops(&mut self, now: u64, waited: u64, few: bool) -> bool {
        let too_long = self.is_too_long(now, waited, few);
        let after = std::mem::take(&mut self.after);
        if after == After::First {
            return false;
        }
        if !self.dropping {
            if too_long {
                self.begin(now);
            }
            return too_long;
        }
        if !too_long {
            self.dropping = false;
            return false;
        }
        if after == After::Another {
            self.next = by_law(self.next, self.count);
        }
        let drops = now >= self.next;
        if drops {
            self.count += 1;
            self.after = After::Another;
        }
        drops
    }

    /// Notes that the queue is empty.
    pub(super) fn empty(&mut self) {
        self.first_above = 0;
        if std::mem::take(&mut self.after) != After::First {
            self.dropping = false;
        }
    }

    fn is_too_long(&mut self, now: u64, waited: u64, few: bool) -> bool {
        if waited < TARGET || few {
            self.first_above = 0;
            return false;
        }
        if self.first_above == 0 {
            self.first_above = now + INTERVAL;
        }
        now >= self.first_above
    }

    /// Starts dropping: at about the rate at which the last series ended, if that was recent.
    fn begin(&mut self, now: u64) {
        self.dropping = true;
        let of_last = self.count - self.last_count;
        let lately = now.saturating_sub(self.next) < 16 * INTERVAL;
        self.count = if of_last > 1 && lately { of_last } else { 1 };
        self.last_count = self.count;
        self.next = by_law(now, self.count);
        self.after = After::First;
    }
}

/// Time of the next drop by the control law: the interval shrinks with the count (RFC 8289 §5.4).
fn by_law(from: u64, count: u32) -> u64 {
    from + (INTERVAL as f64 / f64::from(count).sqrt()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Times at which packets that have waited for `waited` are dropped, one reaching the front every millisecond.
    fn dropped(codel: &mut Codel, from: u64, to: u64, waited: u64) -> Vec<u64> {
        let mut at = Vec::new();
        for now in from..to {
            while codel.drops(now * MS, waited, false) {
                at.push(now);
            }
        }
        at
    }

    #[test]
    fn drops_come_sooner_and_sooner() {
        let mut codel = Codel::default();
        assert_eq!(dropped(&mut codel, 1, 500, TARGET - 1), [0; 0]);
        // The first drop comes an interval after the first long wait, then 100 ms / sqrt(n) after the one before.
        let times = dropped(&mut codel, 500, 1_000, TARGET);
        assert_eq!(times, [600, 700, 771, 829, 879, 924, 964]);
        // A short wait ends the series.
        assert_eq!(dropped(&mut codel, 1_000, 1_010, 0), [0; 0]);
        // Soon after: six more had been dropped than at the beginning, so the second of this series comes early.
        assert_eq!(dropped(&mut codel, 1_010, 1_160, TARGET), [1_110, 1_151]);
    }

    #[test]
    fn the_last_packet_is_not_dropped() {
        let mut codel = Codel::default();
        assert!((1..500).all(|now| !codel.drops(now * MS, 50 * MS, true)));
    }

    #[test]
    fn an_empty_queue_begins_anew() {
        let mut codel = Codel::default();
        assert_eq!(dropped(&mut codel, 1, 103, TARGET), [101]);
        codel.empty();
        assert_eq!(dropped(&mut codel, 103, 203, TARGET), [0; 0]);
    }
}
