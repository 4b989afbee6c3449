//! What breakers of loops did.

/// What breakers of loops did in a network, added up over its switches.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct BreakerCounters {
    /// Tokens that suspected ports sent of their own accord.
    pub tokens: u64,
    /// Tokens that switches passed on, each once for every link.
    pub forwarded: u64,
    /// Tokens that came back to their port: loops found.
    pub loops: u64,
    /// Frames dropped ([`super::Remedy::Drop`]).
    pub dropped: u64,
    /// Times that the frames of a loop moved on all the way round ([`super::Remedy::Rotate`]).
    pub rotations: u64,
    /// Frames that moved on so in spite of a pause, of whole rotations and of others.
    pub moved: u64,
}

impl BreakerCounters {
    /// Adds those of another part of the network.
    pub(crate) fn add(&mut self, other: &BreakerCounters) {
        self.tokens += other.tokens;
        self.forwarded += other.forwarded;
        self.loops += other.loops;
        self.dropped += other.dropped;
        self.rotations += other.rotations;
        self.moved += other.moved;
    }

    /// The counters with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("tokens", self.tokens),
            ("forwarded", self.forwarded),
            ("loops", self.loops),
            ("dropped", self.dropped),
            ("rotations", self.rotations),
            ("moved", self.moved),
        ]
        .into_iter()
    }
}
