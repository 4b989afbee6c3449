//! Exact percentages.

use std::fmt;

use irnic_units::decimal;

/// A percentage, exact to a millionth of a percent.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Percent(u32);

impl Percent {
    /// Decimal places.
    const PLACES: u32 = 6;
    /// 0 %.
    pub const ZERO: Percent = Percent(0);
    /// 100 %.
    pub const HUNDRED: Percent = Percent(100_000_000);

    /// Converts a fraction (0.0 to 1.0, clamped), rounded to the resolution.
    pub fn from_share(share: f64) -> Percent {
        Percent((share.clamp(0.0, 1.0) * f64::from(Percent::HUNDRED.0)).round() as u32)
    }

    /// Returns the percentage as a fraction, 0.0 to 1.0.
    pub fn share(self) -> f64 {
        f64::from(self.0) / f64::from(Percent::HUNDRED.0)
    }

    /// Returns 100 % minus this percentage.
    pub fn complement(self) -> Percent {
        Percent(Percent::HUNDRED.0 - self.0)
    }

    /// Returns the percentage as a 64-bit threshold: the probability that a uniform `u64` lies below it. `None` is 100
    /// %.
    pub(crate) fn threshold(self) -> Option<u64> {
        let scaled = (u128::from(self.0) << 64) / u128::from(Percent::HUNDRED.0);
        u64::try_from(scaled).ok()
    }

    /// Parses `1`, `1%` or `0.25%`. Returns `None` for anything else.
    pub fn parse(text: &str) -> Option<Percent> {
        let (value, unit) = decimal(text, Percent::PLACES)?;
        let value = u32::try_from(value).ok().filter(|v| *v <= Percent::HUNDRED.0)?;
        matches!(unit, "" | "%").then_some(Percent(value))
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = 10u32.pow(Percent::PLACES);
        write!(f, "{}", self.0 / one)?;
        if !self.0.is_multiple_of(one) {
            let places = format!("{:06}", self.0 % one);
            write!(f, ".{}", places.trim_end_matches('0'))?;
        }
        f.write_str("%")
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_exact_decimals() {
        for (text, printed) in [
            ("1%", Some("1%")),
            ("1", Some("1%")),
            ("0.1%", Some("0.1%")),
            (".5%", Some("0.5%")),
            ("5.%", Some("5%")),
            ("100%", Some("100%")),
            ("0.000001%", Some("0.000001%")),
            ("33.333333%", Some("33.333333%")),
            ("0.0000001%", None),
            ("100.000001%", None),
            ("-1%", None),
            ("1%%", None),
            ("1.2.3%", None),
            (".", None),
            ("%", None),
            ("nan", None),
            ("1e3%", None),
            ("99999999999999999999999999999999%", None),
        ] {
            assert_eq!(Percent::parse(text).map(|p| p.to_string()).as_deref(), printed, "{text}");
        }
    }

    #[test]
    fn thresholds_split_the_range_of_a_draw() {
        assert_eq!(Percent::ZERO.threshold(), Some(0));
        assert_eq!(Percent::from_share(0.5).threshold(), Some(1 << 63));
        assert_eq!(Percent::HUNDRED.threshold(), None);
    }
}
