//! The FLUSH extended transport header (IBA 1.5, A19), as in Linux's rxe (`drivers/infiniband/sw/rxe/rxe_hdr.h`).

/// The placement that a FLUSH requests, and the memory it applies to.
///
/// ```text
/// | reserved (26) | selectivity (2) | placement (4) |
/// ```
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct Feth {
    /// Required placement of earlier WRITEs when the FLUSH is answered: [`Feth::GLOBAL`], [`Feth::PERSISTENT`] or both.
    /// Four bits, of which IBA reserves the others.
    pub placement: u8,
    /// [`Feth::RANGE`] or [`Feth::REGION`]. Two bits, of which IBA reserves the other values.
    pub selectivity: u8,
}

impl Feth {
    /// Length in bytes.
    pub const LEN: usize = 4;
    /// Placement: globally visible to all readers of the memory.
    pub const GLOBAL: u8 = 1;
    /// Placement: persistent across a power failure.
    pub const PERSISTENT: u8 = 2;
    /// Selectivity: the range of the RETH.
    pub const RANGE: u8 = 0;
    /// Selectivity: the whole memory region of the RETH's key.
    pub const REGION: u8 = 1;

    /// Returns whether it uses no value that IBA reserves.
    pub const fn is_valid(&self) -> bool {
        let all = Feth::GLOBAL | Feth::PERSISTENT;
        self.placement & all != 0 && self.placement & !all == 0 && self.selectivity <= Feth::REGION
    }

    #[inline]
    pub(super) fn parse(b: &[u8; Feth::LEN]) -> Feth {
        Feth { placement: b[3] & 15, selectivity: b[3] >> 4 & 3 }
    }

    #[inline]
    pub(super) fn emit(&self) -> [u8; Feth::LEN] {
        [0, 0, 0, (self.selectivity & 3) << 4 | self.placement & 15]
    }
}
