//! Gentle flow control (Qian et al., "Gentle Flow Control: Avoiding Deadlock in Lossless Networks", SIGCOMM 2019), with
//! buffer thresholds: a switch controls at which rate its neighbour sends instead of pausing it.

use super::SwitchCtx;
use crate::network::port::Control;

/// Parameters of GFC by thresholds of the buffer. As recalled from the paper: stage k begins at half of what was left
/// at stage k − 1, and halves the rate again.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GfcConfig {
    /// Bytes of an input at which its neighbour is first slowed down, to half the rate of its link.
    pub first: u64,
    /// Limit on the bytes of an input, more than `first`.
    pub most: u64,
    /// Number of stages, 1 to 31: the last limits to the rate of the link over two to that power, not to zero.
    pub levels: u8,
    /// Bytes left below which the last stage begins in any case: packets are not divided, and one that the neighbour
    /// has begun arrives whole.
    pub floor: u64,
}

impl GfcConfig {
    /// Stages that bring 100 Gbit/s to some 8 kbit/s.
    pub const LEVELS: u8 = 24;

    /// These thresholds, bytes, for packets of at most `longest` on the wire: [`Self::LEVELS`] stages, the last one
    /// while less than three packets' room is left.
    pub fn new(first: u64, most: u64, longest: u32) -> GfcConfig {
        GfcConfig { first, most, levels: Self::LEVELS, floor: 3 * u64::from(longest) }
    }

    /// The stage of an input that holds `bytes`; 0 is the rate of the link.
    fn stage(&self, bytes: u64) -> u8 {
        if bytes < self.first {
            return 0;
        }
        // B_k = B_m − (B_m − B_1) / 2^(k − 1).
        let (all, left) = (self.most.saturating_sub(self.first), self.most.saturating_sub(bytes));
        if left < self.floor {
            return self.levels;
        }
        let halvings = all.checked_div(left).map_or(u32::MAX, |parts| 1 + parts.max(1).ilog2());
        halvings.min(self.levels.into()) as u8
    }
}

/// Of each input, the stage last sent to its neighbour.
#[derive(Clone, Debug)]
pub(super) struct Gfc {
    config: GfcConfig,
    sent: Box<[u8]>,
}

impl Gfc {
    /// State before any stage was sent.
    pub(super) fn new(config: GfcConfig, inputs: usize) -> Gfc {
        Gfc { config, sent: vec![0; inputs].into() }
    }

    /// Whether an input that holds `bytes` may take `wire` more.
    pub(super) fn admits(&self, bytes: u64, wire: u64) -> bool {
        bytes + wire <= self.config.most
    }

    /// Sends its neighbour the stage of an input that holds `bytes`, if it changed.
    #[inline]
    pub(super) fn update(&mut self, ctx: &mut SwitchCtx<'_>, input: u16, bytes: u64) {
        let stage = self.config.stage(bytes);
        let sent = &mut self.sent[usize::from(input)];
        if *sent != stage {
            *sent = stage;
            ctx.control(input, Control::Rate { halvings: stage });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stage_takes_half_of_what_is_left() {
        // 281 and 300 KB at 10 Gbit/s.
        let config = GfcConfig::new(281_000, 300_000, 500);
        for (bytes, stage) in [
            (0, 0),
            (280_999, 0),
            (281_000, 1),
            (290_499, 1),
            (290_500, 2),
            (295_250, 3),
            (297_625, 4),
            (298_500, 4),
            (298_501, 24),
            (300_000, 24),
            (400_000, 24),
        ] {
            assert_eq!(config.stage(bytes), stage, "{bytes}");
        }
    }
}
