//! IBA's extended transport headers: fixed layouts, all big-endian.

use crate::psn::Psn;

/// RDMA extended transport header (IBA 9.3.3).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct Reth {
    /// Virtual address in the remote region. In an IRN WRITE packet, that of this packet's first byte.
    pub va: u64,
    /// Remote key.
    pub rkey: u32,
    /// Bytes of the whole request; in an IRN WRITE packet, the bytes from this packet to the end of the message.
    pub len: u32,
}

impl Reth {
    #[inline]
    pub(super) fn parse(b: &[u8; 16]) -> Reth {
        Reth { va: be64(b, 0), rkey: be32(b, 8), len: be32(b, 12) }
    }

    #[inline]
    pub(super) fn emit(&self) -> [u8; 16] {
        let mut b = [0; 16];
        b[..8].copy_from_slice(&self.va.to_be_bytes());
        b[8..12].copy_from_slice(&self.rkey.to_be_bytes());
        b[12..].copy_from_slice(&self.len.to_be_bytes());
        b
    }
}

/// Acknowledge extended transport header (IBA 9.3.5).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct Aeth {
    /// ACK with credits, RNR NAK with timer, or NAK with code (IBA 9.7.5.2.1), as on the wire; see
    /// [`Syndrome`](super::Syndrome).
    pub syndrome: u8,
    /// Message sequence number.
    pub msn: Psn,
}

impl Aeth {
    #[inline]
    pub(super) fn parse(b: &[u8; 4]) -> Aeth {
        Aeth { syndrome: b[0], msn: parse_psn(b) }
    }

    #[inline]
    pub(super) fn emit(&self) -> [u8; 4] {
        (u32::from(self.syndrome) << 24 | self.msn.get()).to_be_bytes()
    }
}

/// Atomic extended transport header (IBA 9.3.4).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct AtomicEth {
    /// Virtual address, a multiple of 8.
    pub va: u64,
    /// Remote key.
    pub rkey: u32,
    /// Value to swap in, or to add.
    pub swap_add: u64,
    /// Value to compare with.
    pub compare: u64,
}

impl AtomicEth {
    #[inline]
    pub(super) fn parse(b: &[u8; 28]) -> AtomicEth {
        AtomicEth { va: be64(b, 0), rkey: be32(b, 8), swap_add: be64(b, 12), compare: be64(b, 20) }
    }

    #[inline]
    pub(super) fn emit(&self) -> [u8; 28] {
        let mut b = [0; 28];
        b[..8].copy_from_slice(&self.va.to_be_bytes());
        b[8..12].copy_from_slice(&self.rkey.to_be_bytes());
        b[12..20].copy_from_slice(&self.swap_add.to_be_bytes());
        b[20..].copy_from_slice(&self.compare.to_be_bytes());
        b
    }
}

/// Datagram extended transport header (IBA 9.3.2).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct Deth {
    /// Queue key.
    pub qkey: u32,
    /// The sender's queue pair number, 24 bits.
    pub src_qp: u32,
}

impl Deth {
    #[inline]
    pub(super) fn parse(b: &[u8; 8]) -> Deth {
        Deth { qkey: be32(b, 0), src_qp: be32(b, 4) & 0xff_ffff }
    }

    #[inline]
    pub(super) fn emit(&self) -> [u8; 8] {
        let mut b = [0; 8];
        b[..4].copy_from_slice(&self.qkey.to_be_bytes());
        b[4..].copy_from_slice(&(self.src_qp & 0xff_ffff).to_be_bytes());
        b
    }
}

/// Returns the low 24 bits of a big-endian word.
#[inline]
pub(super) fn parse_psn(b: &[u8; 4]) -> Psn {
    Psn::new(u32::from_be_bytes(*b))
}

/// Returns the word at `at`, a constant below `N - 3`.
#[inline]
fn be32<const N: usize>(b: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

/// Returns the double word at `at`, a constant below `N - 7`.
#[inline]
fn be64<const N: usize>(b: &[u8; N], at: usize) -> u64 {
    u64::from(be32(b, at)) << 32 | u64::from(be32(b, at + 4))
}
