//! Exact numbers of policies, with dimensions.

use std::fmt;

use irnic_units::{decimal, rate, size, time};

/// The dimension of a number.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Dimension {
    /// Dimensionless: a factor, a count, a class.
    Plain,
    /// Bytes.
    Bytes,
    /// Nanoseconds.
    Time,
    /// Bits per second.
    Rate,
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Dimension::Plain => "a plain number",
            Dimension::Bytes => "bytes",
            Dimension::Time => "a time",
            Dimension::Rate => "a rate",
        })
    }
}

impl Dimension {
    /// The dimension of a sum, a difference or a comparison of two numbers. A plain number is compatible with all.
    pub(crate) fn joined(self, other: Dimension) -> Option<Dimension> {
        match (self, other) {
            (a, b) if a == b => Some(a),
            (Dimension::Plain, other) | (other, Dimension::Plain) => Some(other),
            _ => None,
        }
    }
}

/// An exact fraction.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Ratio {
    /// Numerator.
    pub above: i64,
    /// Denominator, 1 or more.
    pub below: i64,
}

impl Ratio {
    /// Zero.
    pub const ZERO: Ratio = Ratio::whole(0);
    /// One.
    pub const ONE: Ratio = Ratio::whole(1);

    /// A whole number.
    pub const fn whole(number: i64) -> Ratio {
        Ratio { above: number, below: 1 }
    }

    /// `above / below` in lowest terms; `None` if `below` is 0, or either does not fit.
    pub fn new(above: i128, below: i128) -> Option<Ratio> {
        if below == 0 {
            return None;
        }
        let divisor = gcd(above.unsigned_abs(), below.unsigned_abs()) as i128 * below.signum();
        let (above, below) = (i64::try_from(above / divisor).ok()?, i64::try_from(below / divisor).ok()?);
        Some(Ratio { above, below })
    }

    /// The sum, if it fits.
    pub fn plus(self, other: Ratio) -> Option<Ratio> {
        Ratio::new(self.cross(other)? + other.cross(self)?, i128::from(self.below) * i128::from(other.below))
    }

    /// The difference, if it fits.
    pub fn minus(self, other: Ratio) -> Option<Ratio> {
        self.plus(Ratio { above: other.above.checked_neg()?, ..other })
    }

    /// The product, if it fits.
    pub fn times(self, other: Ratio) -> Option<Ratio> {
        let above = i128::from(self.above) * i128::from(other.above);
        Ratio::new(above, i128::from(self.below) * i128::from(other.below))
    }

    /// The quotient, if it fits; `None` for division by 0.
    pub fn over(self, other: Ratio) -> Option<Ratio> {
        Ratio::new(self.cross(other)?, other.cross(self)?)
    }

    /// The number, if it is whole.
    pub fn as_whole(self) -> Option<i64> {
        (self.below == 1).then_some(self.above)
    }

    fn cross(self, other: Ratio) -> Option<i128> {
        i128::from(self.above).checked_mul(i128::from(other.below))
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.below {
            1 => write!(f, "{}", self.above),
            below => write!(f, "{}/{below}", self.above),
        }
    }
}

/// The greatest common divisor; of two zeros, 1.
pub(crate) fn gcd(a: u128, b: u128) -> u128 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.max(1)
}

/// The syntax of numbers with units, for messages.
pub(crate) const NUMBER: &str = "a number such as 12 or 0.95, a share such as 75%, a size such as 240KB or 64K, a time such as \
                          2us, or a rate such as 10Gbps";

/// Parses a number in policy syntax: plain, with `%`, or with a unit.
pub(crate) fn read(text: &str) -> Option<(Ratio, Dimension)> {
    const PLACES: u32 = 12;
    const ONE: i128 = 1_000_000_000_000;
    let (value, unit) = decimal(text, PLACES)?;
    let value = i128::try_from(value).ok()?;
    let whole = |number: u64| i64::try_from(number).ok().map(Ratio::whole);
    match unit {
        "" => Some((Ratio::new(value, ONE)?, Dimension::Plain)),
        "%" => Some((Ratio::new(value, 100 * ONE)?, Dimension::Plain)),
        _ => time(text)
            .map(|ns| (ns, Dimension::Time))
            .or_else(|| size(text).map(|bytes| (bytes, Dimension::Bytes)))
            .or_else(|| rate(text).map(|rate| (rate, Dimension::Rate)))
            .and_then(|(number, dimension)| Some((whole(number)?, dimension)))
            // Zero sizes and rates are written with a unit as well.
            .or_else(|| (value == 0 && is_unit(unit)).then_some((Ratio::ZERO, Dimension::Bytes))),
    }
}

fn is_unit(unit: &str) -> bool {
    size(&format!("1{unit}")).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact() {
        let number = |text| read(text).map(|(n, d)| (n.above, n.below, d));
        assert_eq!(number("0.95"), Some((19, 20, Dimension::Plain)));
        assert_eq!(number("75%"), Some((3, 4, Dimension::Plain)));
        assert_eq!(number("240KB"), Some((240_000, 1, Dimension::Bytes)));
        assert_eq!(number("64K"), Some((65_536, 1, Dimension::Bytes)));
        assert_eq!(number("0KB"), Some((0, 1, Dimension::Bytes)));
        assert_eq!(number("1.5us"), Some((1_500, 1, Dimension::Time)));
        assert_eq!(number("10Gbps"), Some((10_000_000_000, 1, Dimension::Rate)));
        assert_eq!((number("5parsecs"), number("0.5ns"), number("1..2")), (None, None, None));
    }

    #[test]
    fn arithmetic_is_in_lowest_terms_and_never_overflows() {
        let half = Ratio { above: 1, below: 2 };
        assert_eq!(half.plus(half), Some(Ratio::ONE));
        assert_eq!(half.minus(Ratio::ONE), Some(Ratio { above: -1, below: 2 }));
        assert_eq!(half.over(Ratio::ZERO), None);
        assert_eq!(Ratio::whole(-3).over(Ratio::whole(-6)), Some(half));
        assert_eq!(Ratio::whole(i64::MAX).times(Ratio::whole(2)), None);
    }
}
