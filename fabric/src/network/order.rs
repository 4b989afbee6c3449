//! Which of two events that parts of a network have at the same nanosecond one queue of the whole network would have
//! had first.
//!
//! A queue has events of one nanosecond in the order in which they were pushed. So of two events, that comes first which
//! was pushed earlier; of those pushed in the same nanosecond, that whose pusher came first, and so on, back to a time
//! at which the two lines differ, to an event that pushed both, or to the numbers that [`Origin::settled`] had given.
//! Each part keeps a record of each event that it has worked off ([`Record`]), by which it can be told.

use std::cmp::Ordering;

/// Instead of a part: the order was settled before, and [`Origin::child`] is the place in it.
const SETTLED: u32 = u32::MAX;

/// Who pushed an event.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The part.
    part: u32,
    /// The number of the pushing event's record there.
    pusher: u32,
    /// How many events the pusher had pushed before.
    child: u32,
}

/// An event that was worked off.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Record {
    /// ns.
    at: u64,
    origin: Origin,
    /// Which of the events that all parts have it was, from 1 on; 0 if it was none.
    common: u32,
}

impl Origin {
    /// An event that a part pushed.
    pub(crate) fn new(part: u32, pusher: u32, child: u32) -> Origin {
        Origin { part, pusher, child }
    }

    /// How many events the pusher had pushed before.
    pub(crate) fn child(&self) -> u32 {
        self.child
    }

    /// An event with a place among all that are older than the records.
    pub(crate) fn settled(place: u32) -> Origin {
        Origin { part: SETTLED, pusher: 0, child: place }
    }
}

impl Record {
    /// An event of `at` ns; of those that all parts have, the `common`-th.
    pub(crate) fn new(at: u64, origin: Origin, common: u32) -> Record {
        Record { at, origin, common }
    }
}

/// The records of all parts, by which order can be told.
#[derive(Debug)]
pub(crate) struct Records<'a>(Vec<&'a [Record]>);

impl<'a> Records<'a> {
    pub(crate) fn new(parts: Vec<&'a [Record]>) -> Records<'a> {
        Records(parts)
    }

    /// The order of two events of the same nanosecond, or of two pushes.
    pub(crate) fn order(&self, mut a: Origin, mut b: Origin) -> Ordering {
        loop {
            match (a.part == SETTLED, b.part == SETTLED) {
                (true, true) => return a.child.cmp(&b.child),
                (true, false) => return Ordering::Less,
                (false, true) => return Ordering::Greater,
                (false, false) => {}
            }
            if a.part == b.part {
                return (a.pusher, a.child).cmp(&(b.pusher, b.child));
            }
            let (by_a, by_b) = (self.pusher(a), self.pusher(b));
            if by_a.at != by_b.at {
                return by_a.at.cmp(&by_b.at);
            }
            if by_a.common != 0 && by_b.common != 0 {
                return (by_a.common, a.child).cmp(&(by_b.common, b.child));
            }
            (a, b) = (by_a.origin, by_b.origin);
        }
    }

    /// How many of a part's records are before the pusher of `origin`, which is of another part, and whether the next
    /// is the pusher itself: an event that both parts have. Records before `first` are known to be earlier.
    pub(crate) fn before_pusher(&self, part: u32, first: u32, origin: Origin) -> (u32, bool) {
        let pusher = self.pusher(origin);
        let records = self.0[part as usize];
        let earlier = records[first as usize..].partition_point(|record| match record.at.cmp(&pusher.at) {
            Ordering::Equal if record.common != 0 && pusher.common != 0 => record.common < pusher.common,
            Ordering::Equal => self.order(record.origin, pusher.origin) == Ordering::Less,
            at => at == Ordering::Less,
        });
        let at = first + earlier as u32;
        let same = pusher.common != 0 && records.get(at as usize).is_some_and(|next| next.common == pusher.common);
        (at, same)
    }

    fn pusher(&self, origin: Origin) -> &Record {
        &self.0[origin.part as usize][origin.pusher as usize]
    }
}
