//! The FLUSH extended transport header (IBA 1.5, A19), as Linux's rxe has it (`drivers/infiniband/sw/rxe/rxe_hdr.h`).

/// What a FLUSH is to reach, and how much of the memory.
///
/// ```text
/// | reserved (26) | selectivity (2) | placement (4) |
/// ```
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct Feth {
    /// Where earlier WRITEs have to be when the FLUSH is answered: [`Feth::GLOBAL`], [`Feth::PERSISTENT`] or both. Four
    /// bits, of which IBA reserves the others.
    pub placement: u8,
    /// [`Feth::RANGE`] or [`Feth::REGION`]. Two bits, of which IBA reserves the other values.
    pub selectivity: u8,
}

impl Feth {
    /// Length in bytes.
    pub const LEN: usize = 4;
    /// Placement: visible to everybody who reads the memory.
    pub const GLOBAL: u8 = 1;
    /// Placement: kept when the power fails.
    pub const PERSISTENT: u8 = 2;
    /// Selectivity: the range that the RETH names.
    pub const RANGE: u8 = 0;
    /// Selectivity: the whole memory region of the RETH's key.
    pub const REGION: u8 = 1;

    /// Whether it says nothing that IBA reserves.
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
