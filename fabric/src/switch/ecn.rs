//! Marking packets with congestion experienced (RFC 3168).

mod pi;

pub use pi::PiConfig;

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::SwitchCtx;
use crate::network::packet::PacketId;
use pi::Pi;

/// A marking rule, applied to the queue length that a packet meets when it joins.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub enum Ecn {
    /// No marks.
    #[default]
    Off,
    /// Every packet that meets more than `k` bytes (DCTCP).
    Step {
        /// Longest queue without a mark, bytes.
        k: u64,
    },
    /// With a probability that rises from 0 at `kmin` to `pmax` at `kmax`, and 1 beyond (RED as DCQCN uses it).
    Red {
        /// Queue length up to which no packet is marked, bytes.
        kmin: u64,
        /// Queue length beyond which every packet is marked, bytes.
        kmax: u64,
        /// Probability at `kmax`, 0 to 1.
        pmax: f64,
    },
    /// With a probability that holds the queue at a reference. It depends on the history of each queue, which the
    /// switch keeps.
    Pi(PiConfig),
}

impl Ecn {
    /// Marks a packet that meets `queued` bytes on its way to `output`, if the rule says so and the packet is
    /// ECN-capable.
    #[inline]
    pub fn apply(&self, ctx: &mut SwitchCtx<'_>, id: PacketId, output: u16, queued: u64) {
        if self.marks(queued, ctx.rng) && ctx.packets.mark(id) {
            ctx.ports[usize::from(output)].counters.marked += 1;
        }
    }

    /// Whether a packet that meets `queued` bytes is marked.
    #[inline]
    pub fn marks(&self, queued: u64, rng: &mut Pcg64Mcg) -> bool {
        match *self {
            Ecn::Off | Ecn::Pi(_) => false,
            Ecn::Step { k } => queued > k,
            Ecn::Red { kmin, kmax, pmax } => {
                if queued <= kmin {
                    false
                } else if queued > kmax {
                    true
                } else {
                    let p = pmax * (queued - kmin) as f64 / (kmax - kmin) as f64;
                    rng.random::<f64>() < p
                }
            }
        }
    }
}

/// A marking rule and its state for each queue of a switch.
#[derive(Clone, Debug)]
pub(super) struct Marker {
    rule: Ecn,
    /// By queue; empty for rules without state.
    controllers: Box<[Pi]>,
}

impl Marker {
    /// Creates the marker of a switch with this many queues.
    pub(super) fn new(rule: Ecn, queues: usize) -> Marker {
        let queues = if matches!(rule, Ecn::Pi(_)) { queues } else { 0 };
        Marker { rule, controllers: vec![Pi::default(); queues].into() }
    }

    /// Marks a packet that meets `queued` bytes in a queue on its way to `output`, as [`Ecn::apply`] does.
    #[inline(always)]
    pub(super) fn apply(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId, output: u16, queue: usize, queued: u64) {
        if !matches!(self.rule, Ecn::Off) {
            self.decide(ctx, id, output, queue, queued);
        }
    }

    #[inline(never)]
    fn decide(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId, output: u16, queue: usize, queued: u64) {
        match (&self.rule, self.controllers.get_mut(queue)) {
            (Ecn::Pi(config), Some(pi)) => {
                if pi.marks(config, ctx.now, queued, ctx.rng) && ctx.packets.mark(id) {
                    ctx.ports[usize::from(output)].counters.marked += 1;
                }
            }
            (rule, _) => rule.apply(ctx, id, output, queued),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn red_marks_as_often_as_it_should() {
        let mut rng = Pcg64Mcg::new(7);
        let red = Ecn::Red { kmin: 100, kmax: 300, pmax: 0.4 };
        for (queued, expected) in [(0, 0.0), (100, 0.0), (150, 0.1), (200, 0.2), (300, 0.4), (301, 1.0)] {
            let marked = (0..100_000).filter(|_| red.marks(queued, &mut rng)).count() as f64 / 1e5;
            assert!((marked - expected).abs() < 0.005, "{queued}: {marked}");
        }
    }

    #[test]
    fn a_step_is_a_step() {
        let mut rng = Pcg64Mcg::new(7);
        let step = Ecn::Step { k: 100 };
        assert!(!step.marks(100, &mut rng) && step.marks(101, &mut rng) && !Ecn::Off.marks(u64::MAX, &mut rng));
    }
}
