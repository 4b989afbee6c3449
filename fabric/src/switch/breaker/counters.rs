//! Counters of loop breakers.

use crate::switch::counters::counters;

counters! {
    /// Counters of loop breakers, summed over the switches of a network.
    pub struct BreakerCounters {
        /// Tokens originated by suspected ports.
        tokens: sum,
        /// Tokens forwarded, counted once per link.
        forwarded: sum,
        /// Tokens that returned to their port: loops found.
        loops: sum,
        /// Frames dropped ([`super::Remedy::Drop`]).
        dropped: sum,
        /// Rotations in which each switch of a loop sent one frame on ([`super::Remedy::Rotate`]).
        rotations: sum,
        /// Frames sent on in spite of a pause, in complete rotations and others.
        moved: sum,
    }
}
