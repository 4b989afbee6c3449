//! What Escape did.

/// What Escape did in a network, added up over its switches.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct EscapeCounters {
    /// Tokens that switches sent of their own accord.
    pub tokens: u64,
    /// Tokens that switches passed on, for want of a frame.
    pub forwarded: u64,
    /// Tokens that ended where an output had none left.
    pub exhausted: u64,
    /// Tokens that ended where there was no frame and no paused switch to ask.
    pub unmatched: u64,
    /// Answers to tokens that ended so, each once for every link.
    pub nacks: u64,
    /// Tokens taken back because nothing had changed for long.
    pub reclaimed: u64,
    /// Frames that escaped.
    pub frames: u64,
    /// Frames that came by an escape queue and changed places with an earlier one of their flow.
    pub swapped: u64,
    /// Frames whose room had been given away when they came: they waited in the regular queue.
    pub late: u64,
    /// Most frames in an escape queue.
    pub peak: u64,
}

impl EscapeCounters {
    /// Adds those of another part of the network.
    pub(crate) fn add(&mut self, other: &EscapeCounters) {
        self.tokens += other.tokens;
        self.forwarded += other.forwarded;
        self.exhausted += other.exhausted;
        self.unmatched += other.unmatched;
        self.nacks += other.nacks;
        self.reclaimed += other.reclaimed;
        self.frames += other.frames;
        self.swapped += other.swapped;
        self.late += other.late;
        self.peak = self.peak.max(other.peak);
    }

    /// The counters with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("tokens", self.tokens),
            ("forwarded", self.forwarded),
            ("exhausted", self.exhausted),
            ("unmatched", self.unmatched),
            ("nacks", self.nacks),
            ("reclaimed", self.reclaimed),
            ("frames", self.frames),
            ("swapped", self.swapped),
            ("late", self.late),
            ("peak", self.peak),
        ]
        .into_iter()
    }
}
