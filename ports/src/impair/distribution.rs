//! Quantiles of the jitter distributions, in standard deviations from the mean.
//!
//! Uses only additions, multiplications, divisions and square roots, which IEEE 754 rounds the same everywhere: the
//! same seed gives the same delays on every machine, which a C library's mathematical functions do not guarantee.

use irnic_units::math::{cube_root, logarithm};

use super::grammar::Distribution;

/// Largest deviation from the mean, in standard deviations: the range of netem's tables.
const FURTHEST: f64 = 4.0;

/// Returns the value below which a share `u` (above 0, below 1) of the distribution lies.
pub(super) fn quantile(shape: Distribution, u: f64) -> f64 {
    let value = match shape {
        // The deviation of netem's uniform jitter is half its width.
        Distribution::Uniform => 2.0 * u - 1.0,
        Distribution::Normal => normal(u),
        Distribution::Pareto => pareto(u),
        Distribution::ParetoNormal => 0.25 * normal(u) + 0.75 * pareto(u),
    };
    value.clamp(-FURTHEST, FURTHEST)
}

/// Pareto distribution with exponent 3 from 1 on: mean 3/2, variance 3/4.
fn pareto(u: f64) -> f64 {
    (1.0 / cube_root(1.0 - u) - 1.5) / 0.75f64.sqrt()
}

/// Rational approximation of the normal quantile by P. J. Acklam, relative error below 1.15e-9.
fn normal(u: f64) -> f64 {
    const A: [f64; 6] = [
        -3.969683028665376e+01,
        2.209460984245205e+02,
        -2.759285104469687e+02,
        1.38357751867269e+02,
        -3.066479806614716e+01,
        2.506628277459239e+00,
    ];
    const B: [f64; 6] = [
        -5.447609879822406e+01,
        1.615858368580409e+02,
        -1.556989798598866e+02,
        6.680131188771972e+01,
        -1.328068155288572e+01,
        1.0,
    ];
    const C: [f64; 6] = [
        -7.784894002430293e-03,
        -3.223964580411365e-01,
        -2.400758277161838e+00,
        -2.549732539343734e+00,
        4.374664141464968e+00,
        2.938163982698783e+00,
    ];
    const D: [f64; 5] =
        [7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00, 3.754408661907416e+00, 1.0];
    /// Outside it the approximation for the tails is used.
    const TAIL: f64 = 0.02425;

    let polynomial = |coefficients: &[f64], x: f64| coefficients.iter().fold(0.0, |sum, c| sum * x + c);
    let tail = |u: f64| {
        let q = (-2.0 * logarithm(u)).sqrt();
        polynomial(&C, q) / polynomial(&D, q)
    };
    if u < TAIL {
        tail(u)
    } else if u > 1.0 - TAIL {
        -tail(1.0 - u)
    } else {
        let q = u - 0.5;
        q * polynomial(&A, q * q) / polynomial(&B, q * q)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn normal_quantiles_are_those_of_the_tables() {
        for (u, z) in [(0.5, 0.0), (0.841344746, 1.0), (0.975, 1.959963985), (0.99, 2.326347874), (0.001, -3.090232306)]
        {
            assert!((normal(u) - z).abs() < 1e-6, "{u}");
        }
    }

    #[test]
    fn mean_and_deviation_are_as_announced() {
        // Cutting the Pareto tail at four deviations lowers its mean by 0.02 and its deviation by a quarter.
        for (shape, mean, deviation, tolerance) in [
            (Distribution::Uniform, 0.0, 0.577, 0.001),
            (Distribution::Normal, 0.0, 1.0, 0.001),
            (Distribution::Pareto, -0.0234, 0.737, 0.001),
            (Distribution::ParetoNormal, -0.0154, 0.782, 0.001),
        ] {
            const STEPS: u32 = 100_000;
            let values = (0..STEPS).map(|i| quantile(shape, (f64::from(i) + 0.5) / f64::from(STEPS)));
            let (sum, squares) = values.fold((0.0, 0.0), |(s, q), v| (s + v, q + v * v));
            let found = sum / f64::from(STEPS);
            let spread = (squares / f64::from(STEPS) - found * found).sqrt();
            assert!((found - mean).abs() < tolerance, "{shape:?} mean {found}");
            assert!((spread - deviation).abs() < tolerance, "{shape:?} deviation {spread}");
        }
    }

    #[test]
    fn quantiles_rise_and_stay_within_bounds() {
        for shape in [Distribution::Uniform, Distribution::Normal, Distribution::Pareto, Distribution::ParetoNormal] {
            let values: Vec<f64> = (1..10_000).map(|i| quantile(shape, f64::from(i) / 10_000.0)).collect();
            assert!(values.is_sorted(), "{shape:?}");
            for u in [f64::EPSILON / 4.0, 1.0 - f64::EPSILON / 2.0] {
                assert!(quantile(shape, u).abs() <= FURTHEST, "{shape:?}");
            }
        }
    }
}
