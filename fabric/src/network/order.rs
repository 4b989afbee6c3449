//! Order of simultaneous events in different parts of a network: the order that one queue of the whole network would
//! have given them.
//! time at which the two chains differ, to an event that pushed both, or to numbers assigned by [`Origin::settled`].
//! Each part keeps a record of each event that it has processed ([`Record`]), from which this is decided.

use std::cmp::Ordering;

/// Stands for a part: the order was settled before, and [`Origin::child`] is the position in it.
const SETTLED: u32 = u32::MAX;

const _: () = assert!(size_of::<Record>() == 16);

/// The pusher of an event.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Part of the pusher.
    part: u32,
    /// Number of the pusher's record in that part.
    pusher: u32,
    /// Number of events that the pusher had pushed before.
    child: u32,
}

/// A processed event, in 16 bytes: there are many.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Record {
    /// ns, modulo 2³²: see [`Record::SPAN`].
    at: u32,
    pusher: u32,
    child: u32,
    /// Part of the pusher in the lowest byte; above it the number of the event among those that all parts have, from 1,
    /// or 0 if it is none of them.
    part_and_common: u32,
}

impl Origin {
    /// The origin of an event that a part pushed.
    pub(crate) fn new(part: u32, pusher: u32, child: u32) -> Origin {
        Origin { part, pusher, child }
    }

    /// Number of events that the pusher had pushed before.
    pub(crate) fn child(&self) -> u32 {
        self.child
    }

    /// The origin of an event with a settled position, before all records.
    pub(crate) fn settled(place: u32) -> Origin {
        Origin { part: SETTLED, pusher: 0, child: place }
    }
}

impl Record {
    /// Upper bound of the number of parts, exclusive.
    pub(crate) const PARTS: usize = 255;
    /// Maximum time span of the records of one part, ns.
    pub(crate) const SPAN: u64 = 1 << 31;
    /// Maximum number of events that all parts have.
    pub(crate) const COMMON: u32 = (1 << 24) - 1;

    /// The record of an event at `at` ns; if all parts have it, `common` is its number among those.
    pub(crate) fn new(at: u64, origin: Origin, common: u32) -> Record {
        let Origin { part, pusher, child } = origin;
        Record { at: at as u32, pusher, child, part_and_common: common << 8 | part & 0xff }
    }

    fn origin(&self) -> Origin {
        let part = self.part_and_common & 0xff;
        Origin { part: if part == SETTLED & 0xff { SETTLED } else { part }, pusher: self.pusher, child: self.child }
    }

    fn common(&self) -> u32 {
        self.part_and_common >> 8
    }

    fn compare_times(&self, other: &Record) -> Ordering {
        (self.at.wrapping_sub(other.at) as i32).cmp(&0)
    }
}

/// The records of all parts, from which the order is decided.
#[derive(Debug)]
pub(crate) struct Records<'a>(Vec<&'a [Record]>);

impl<'a> Records<'a> {
    pub(crate) fn new(parts: Vec<&'a [Record]>) -> Records<'a> {
        Records(parts)
    }

    /// Compares two events of the same nanosecond, or two pushes.
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
            match by_a.compare_times(by_b) {
                Ordering::Equal => {}
                different => return different,
            }
            if by_a.common() != 0 && by_b.common() != 0 {
                return (by_a.common(), a.child).cmp(&(by_b.common(), b.child));
            }
            (a, b) = (by_a.origin(), by_b.origin());
        }
    }

    /// Number of a part's records before the pusher of `origin`, which is of another part, and whether the next is the
    /// pusher itself: an event that both parts have. Records before `first` are known to be earlier; the search is
    /// fastest if the pusher is near it.
    pub(crate) fn before_pusher(&self, part: u32, first: u32, origin: Origin) -> (u32, bool) {
        let pusher = self.pusher(origin);
        let records = self.0[part as usize];
        let is_earlier = |record: &Record| match record.compare_times(pusher) {
            Ordering::Equal if record.common() != 0 && pusher.common() != 0 => record.common() < pusher.common(),
            Ordering::Equal => self.order(record.origin(), pusher.origin()) == Ordering::Less,
            at => at == Ordering::Less,
        };
        // Gallops, which touches few cache lines, then bisects the last stride.
        let (mut from, mut stride) = (first as usize, 1);
        while records.get(from + stride - 1).is_some_and(is_earlier) {
            from += stride;
            stride *= 2;
        }
        let to = (from + stride - 1).min(records.len());
        let at = from + records[from..to].partition_point(is_earlier);
        let common = pusher.common();
        let same = common != 0 && records.get(at).is_some_and(|next| next.common() == common);
        (at as u32, same)
    }

    fn pusher(&self, origin: Origin) -> &Record {
        &self.0[origin.part as usize][origin.pusher as usize]
    }
}
