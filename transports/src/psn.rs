//! 24-bit sequence numbers and their serial arithmetic (IBA 9.7.2).

use std::fmt;

/// A 24-bit sequence number: a packet sequence number (PSN), and with the same arithmetic an MSN, an SSN, or one of
/// IRN's WQE sequence numbers. It wraps; compare only numbers less than 2²³ apart, by their distance.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Default)]
pub struct Psn(u32);

impl Psn {
    const MASK: u32 = 0xff_ffff;

    /// Returns the low 24 bits of `value` as a number.
    #[inline]
    pub const fn new(value: u32) -> Psn {
        Psn(value & Self::MASK)
    }

    /// Returns the number, below 2²⁴.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the number `n` later.
    #[inline]
    #[must_use]
    pub const fn plus(self, n: u32) -> Psn {
        Psn(self.0.wrapping_add(n) & Self::MASK)
    }

    /// Returns the number `n` earlier.
    #[inline]
    #[must_use]
    pub const fn minus(self, n: u32) -> Psn {
        Psn(self.0.wrapping_sub(n) & Self::MASK)
    }

    /// Returns how far `self` lies after `earlier`, from −2²³ to 2²³ − 1.
    #[inline]
    pub const fn distance(self, earlier: Psn) -> i32 {
        ((self.0.wrapping_sub(earlier.0) << 8) as i32) >> 8
    }

    /// Returns the later of two.
    #[inline]
    pub(crate) const fn later(self, other: Psn) -> Psn {
        if self.before(other) { other } else { self }
    }

    /// Returns whether `self` is before `other`.
    #[inline]
    pub const fn before(self, other: Psn) -> bool {
        self.distance(other) < 0
    }
}

impl fmt::Debug for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_is_signed_and_wraps() {
        for (a, b, d) in [
            (0, 0, 0),
            (1, 0, 1),
            (0, 1, -1),
            (0, 0xff_ffff, 1),
            (0xff_ffff, 0, -1),
            (0x7f_ffff, 0, 0x7f_ffff),
            (0x80_0000, 0, -0x80_0000),
        ] {
            assert_eq!(Psn::new(a).distance(Psn::new(b)), d, "{a:#x} after {b:#x}");
        }
        assert_eq!(Psn::new(0xff_ffff).plus(2), Psn::new(1));
        assert_eq!(Psn::new(1).minus(2), Psn::new(0xff_ffff));
        assert!(Psn::new(0xff_fff0).before(Psn::new(5)));
    }
}
