//! Sets of priorities.

/// A set of the eight priorities of Ethernet (IEEE 802.1Q), one bit each.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priorities(u8);

impl Priorities {
    /// Number of priorities.
    pub const COUNT: usize = 8;
    /// No priority.
    pub const NONE: Priorities = Priorities(0);
    /// Every priority.
    pub const ALL: Priorities = Priorities(0xff);

    /// The set with these bits: bit n is priority n.
    #[inline]
    pub const fn from_bits(bits: u8) -> Priorities {
        Priorities(bits)
    }

    /// The set of `priority` alone, 0 to 7.
    #[inline]
    pub const fn of(priority: u8) -> Priorities {
        Priorities(1 << priority)
    }

    /// The set as bits: bit n is priority n.
    #[inline]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether the set is empty.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `priority` is in the set.
    #[inline]
    pub const fn contains(self, priority: u8) -> bool {
        self.0 >> priority & 1 == 1
    }

    /// Adds `priority`.
    #[inline]
    pub fn insert(&mut self, priority: u8) {
        self.0 |= 1 << priority;
    }

    /// Removes `priority`.
    #[inline]
    pub fn remove(&mut self, priority: u8) {
        self.0 &= !(1 << priority);
    }

    /// The priorities of this set that are not in `other`.
    #[inline]
    #[must_use]
    pub const fn without(self, other: Priorities) -> Priorities {
        Priorities(self.0 & !other.0)
    }

    /// The union of this set and `other`.
    #[inline]
    #[must_use]
    pub const fn and(self, other: Priorities) -> Priorities {
        Priorities(self.0 | other.0)
    }

    /// The highest priority of the set.
    #[inline]
    pub const fn highest(self) -> Option<u8> {
        if self.0 == 0 { None } else { Some(7 - self.0.leading_zeros() as u8) }
    }

    /// The first priority at or above `from`, 0 to 7; if there is none, the lowest of the set.
    #[inline]
    pub const fn next_from(self, from: u8) -> Option<u8> {
        let later = self.0 & (0xffu16 << from) as u8;
        let found = if later != 0 { later } else { self.0 };
        if found == 0 { None } else { Some(found.trailing_zeros() as u8) }
    }

    /// The priorities of the set, ascending.
    pub fn iter(self) -> impl Iterator<Item = u8> {
        (0..8).filter(move |priority| self.contains(*priority))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_go_round_and_the_highest_is_the_highest() {
        let set = Priorities::from_bits(0b1000_0100);
        assert_eq!([0, 2, 3, 7].map(|from| set.next_from(from)), [2, 2, 7, 7].map(Some));
        assert_eq!(Priorities::from_bits(0b0010_0100).highest(), Some(5));
        assert_eq!((Priorities::NONE.highest(), Priorities::NONE.next_from(3)), (None, None));
        assert_eq!(set.iter().collect::<Vec<_>>(), [2, 7]);
        assert_eq!(set.without(Priorities::of(7)), Priorities::of(2));
    }
}
