//! Parameters of loop breakers.

/// What to do about a detected loop.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// LB as the dissertation evaluates it (§4.6.4): the master drops frames that wait in the loop until its neighbour
    /// may send again. Loop Breaker itself (Shpiner et al., HotNets 2016) reroutes flows instead.
    Drop,
    /// DLB, Deadlock Breaker: each switch of the loop has room for one more frame, so that all send one on.
    Rotate,
}

/// Parameters of loop breakers. The dissertation gives no values.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BreakerConfig {
    /// What to do about a loop.
    pub remedy: Remedy,
    /// Time for which a port is paused before it is suspected and sends a token, and interval of further tokens, ns; 1
    /// or more.
    pub wait: u64,
    /// Room for a frame of the loop at each input, bytes: the longest packet on the wire. Used by [`Remedy::Rotate`]
    /// only.
    pub place: u32,
}

impl BreakerConfig {
    /// 100 µs, and room for the longest packet of InfiniBand's largest MTU.
    pub fn new(remedy: Remedy) -> BreakerConfig {
        BreakerConfig { remedy, wait: 100_000, place: 4_096 + 128 }
    }

    /// Bytes that an input needs in addition to the headroom of PFC, for frames of at most `longest` bytes on the wire.
    pub fn margin(&self, longest: u32) -> u64 {
        match self.remedy {
            Remedy::Drop => 0,
            Remedy::Rotate => longest.into(),
        }
    }
}
