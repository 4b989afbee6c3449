//! What Escape did.

use crate::switch::counters::counters;

counters! {
    /// What Escape did in a network, added up over its switches.
    pub struct EscapeCounters {
        /// Tokens that switches sent of their own accord.
        tokens: sum,
        /// Tokens that switches passed on, for want of a frame.
        forwarded: sum,
        /// Tokens that ended where an output had none left.
        exhausted: sum,
        /// Tokens that ended where there was no frame and no paused switch to ask.
        unmatched: sum,
        /// Answers to tokens that ended so, each once for every link.
        nacks: sum,
        /// Tokens taken back because nothing had changed for long.
        reclaimed: sum,
        /// Frames that escaped.
        frames: sum,
        /// Frames that came by an escape queue and changed places with an earlier one of their flow.
        swapped: sum,
        /// Frames whose room had been given away when they came: they waited in the regular queue.
        late: sum,
        /// Most frames in an escape queue.
        peak: max,
    }
}
