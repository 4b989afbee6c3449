//! Counters of Escape.

use crate::switch::counters::counters;

counters! {
    /// Counters of Escape, aggregated over the switches of a network.
    pub struct EscapeCounters {
        /// Tokens originated by switches.
        tokens: sum,
        /// Tokens forwarded because no frame was found.
        forwarded: sum,
        /// Tokens that ended because an output had none left.
        exhausted: sum,
        /// Tokens that ended because there was neither a frame nor a paused upstream switch.
        unmatched: sum,
        /// Negative answers to tokens, counted once per link.
        nacks: sum,
        /// Tokens reclaimed because nothing had changed for the interval.
        reclaimed: sum,
        /// Frames that escaped.
        frames: sum,
        /// Frames that arrived by an escape queue and swapped places with an earlier one of their flow.
        swapped: sum,
        /// Frames whose slot had been reclaimed when they arrived: they waited in the regular queue.
        late: sum,
        /// Largest number of frames in an escape queue.
        peak: max,
    }
}
