//! Floating-point functions that give the same bits on every machine.
//!
//! They use only addition, multiplication, division and square root, which IEEE 754 rounds identically everywhere. The
//! C library's mathematical functions, and so `f64::ln` and `f64::powf`, do not guarantee that.

/// Returns the natural logarithm of a positive normal number, with an error of at most 1e-13 relative to the larger of
/// the result and 1.
pub fn logarithm(x: f64) -> f64 {
    const EXPONENT_SHIFT: u32 = 52;
    const BIAS: i32 = 1023;
    let exponent = (x.to_bits() >> EXPONENT_SHIFT) as i32 - BIAS;
    let mantissa = f64::from_bits(x.to_bits() & ((1 << EXPONENT_SHIFT) - 1) | (BIAS as u64) << EXPONENT_SHIFT);
    // ln m = 2 artanh((m - 1) / (m + 1)), whose argument is at most 1/3: the remainder after 31 powers is below 1e-16.
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let series = (0..16).rev().fold(0.0, |sum, k| sum * s * s + 1.0 / f64::from(2 * k + 1));
    2.0 * s * series + f64::from(exponent) * std::f64::consts::LN_2
}

/// Returns the cube root of a positive number, by Newton's method starting from a third of the exponent.
pub fn cube_root(x: f64) -> f64 {
    const GUESS: u64 = 0x2a9f_7893_0000_0000;
    let mut y = f64::from_bits(x.to_bits() / 3 + GUESS);
    for _ in 0..5 {
        y -= (y * y * y - x) / (3.0 * y * y);
    }
    y
}

/// Raises `base` to an integer power, by squaring.
pub fn power(mut base: f64, mut exponent: u64) -> f64 {
    let mut product = 1.0;
    while exponent > 0 {
        if exponent & 1 == 1 {
            product *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_agree_with_the_library() {
        for i in 1..10_000 {
            let x = f64::from(i) / 10_000.0;
            for x in [x, x * 1e-6, x * 1e-15] {
                assert!((logarithm(x) - x.ln()).abs() < 1e-13 * x.ln().abs().max(1.0), "{x}");
                assert!((cube_root(x) / x.cbrt() - 1.0).abs() < 1e-14, "{x}");
            }
        }
    }

    #[test]
    fn powers_are_products() {
        for (base, exponent, product) in
            [(0.5, 0, 1.0), (0.5, 1, 0.5), (0.5, 7, 0.0078125), (3.0, 10, 59_049.0), (1.0, u64::MAX, 1.0)]
        {
            assert_eq!(power(base, exponent), product, "{base} {exponent}");
        }
    }
}
