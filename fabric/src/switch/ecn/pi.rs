//! Marks by a proportional-integral controller (Hollot et al., INFOCOM 2001), which holds a queue at a reference
//! whatever the load: DCQCN+PI of "ECN or Delay" (Zhu et al., CoNEXT 2016).

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

/// Parameters of a PI controller.
#[derive(Copy, Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PiConfig {
    /// Reference length of the queue, bytes, 1 or more.
    pub reference: u64,
    /// Immediate increase of the marking probability when a queue grows by `reference`. Longer queues count as twice
    /// the reference, so that the effect of one burst does not take as long to decay.
    pub gain: f64,
    /// Time in which a queue that is off by some amount raises the probability by the same again, ns, 1 or more.
    pub reset: u64,
}

impl PiConfig {
    /// Returns a controller with these parameters.
    pub fn new(reference: u64, gain: f64, reset: u64) -> PiConfig {
        PiConfig { reference: reference.max(1), gain, reset: reset.max(1) }
    }
}

/// Minimum time between two steps of a controller, ns.
const PERIOD: u64 = 40_000;

/// The controller of one queue, which steps when packets join the queue.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Pi {
    /// Marking probability, 0 to 1.
    probability: f64,
    /// Queue length at the last step, bytes, and the time of that step, ns.
    before: f64,
    at: u64,
}

impl Pi {
    /// Returns whether to mark a packet that meets `queued` bytes at `now`, ns.
    pub(super) fn marks(&mut self, config: &PiConfig, now: u64, queued: u64, rng: &mut Pcg64Mcg) -> bool {
        if now >= self.at + PERIOD {
            self.step(config, now, queued);
        }
        self.probability > 0.0 && rng.random::<f64>() < self.probability
    }

    fn step(&mut self, config: &PiConfig, now: u64, queued: u64) {
        let reference = config.reference as f64;
        let queue = (queued as f64).min(2.0 * reference);
        let time = (now - self.at) as f64 / config.reset as f64;
        let change = (queue - self.before + time * (queue - reference)) / reference;
        self.probability = (self.probability + config.gain * change).clamp(0.0, 1.0);
        (self.before, self.at) = (queue, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: PiConfig = PiConfig { reference: 1_000, gain: 0.1, reset: 400_000 };

    /// The probability after these queue lengths, one period apart.
    fn after(queues: &[u64]) -> f64 {
        let mut pi = Pi::default();
        let steps = (1..).zip(queues);
        steps.for_each(|(n, queue)| pi.step(&CONFIG, n * PERIOD, *queue));
        pi.probability
    }

    #[test]
    fn growth_counts_at_once_and_distance_for_as_long_as_it_lasts() {
        // A tenth for growth by the reference, and nothing for staying there.
        assert!((after(&[1_000]) - 0.1).abs() < 1e-12);
        assert!((after(&[1_000, 1_000]) - 0.1).abs() < 1e-12);
        // Two tenths for the growth, plus a tenth of a tenth for each period at twice the reference.
        assert!((after(&[2_000]) - 0.21).abs() < 1e-12);
        assert!((after(&[2_000; 10]) - 0.3).abs() < 1e-12);
        // Longer queues count as twice the reference, and the probability is at most one.
        assert_eq!((after(&[0; 5]), after(&[u64::MAX]), after(&[2_000; 200])), (0.0, after(&[2_000]), 1.0));
    }

    #[test]
    fn it_marks_with_its_probability_and_steps_once_a_period() {
        let (mut pi, mut rng) = (Pi::default(), Pcg64Mcg::new(7));
        let marked = (0..100_000).filter(|_| pi.marks(&CONFIG, PERIOD, 2_000, &mut rng)).count() as f64 / 1e5;
        assert!((marked - 0.21).abs() < 0.005, "{marked}");
        assert!(!Pi::default().marks(&CONFIG, PERIOD - 1, 1 << 40, &mut rng));
    }
}
