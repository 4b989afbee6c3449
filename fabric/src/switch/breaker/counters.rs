//! What breakers of loops did.

use crate::switch::counters::counters;

counters! {
    /// What breakers of loops did in a network, added up over its switches.
    pub struct BreakerCounters {
        /// Tokens that suspected ports sent of their own accord.
        tokens: sum,
        /// Tokens that switches passed on, each once for every link.
        forwarded: sum,
        /// Tokens that came back to their port: loops found.
        loops: sum,
        /// Frames dropped ([`super::Remedy::Drop`]).
        dropped: sum,
        /// Times that the frames of a loop moved on all the way round ([`super::Remedy::Rotate`]).
        rotations: sum,
        /// Frames that moved on so in spite of a pause, of whole rotations and of others.
        moved: sum,
    }
}
