//! Congestion notification packet: the bytes after its BTH.

/// The 16 bytes after the BTH of a congestion notification packet (IBA A17.9.3). IBA reserves them: notification points
/// send zeros, which is the default. Algorithms whose notification points send more use them, for instance for the rate
/// computed by a switch; both ends have to agree on the meaning.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Cnp(pub [u8; Cnp::LEN]);

impl Cnp {
    /// Length in bytes.
    pub const LEN: usize = 16;

    /// Parses the bytes; `None` for zeros.
    #[inline]
    pub(super) fn parse(bytes: &[u8; Cnp::LEN]) -> Option<Cnp> {
        Some(Cnp(*bytes)).filter(|cnp| *cnp != Cnp::default())
    }
}
