//! Management datagrams of the communication manager (IBA chapter 12), sent and received by queue pair 1.
//!
//! A MAD is the whole payload of a UD SEND to queue pair 1: a common header of 24 bytes and 232 bytes of message.
//! Offsets and table numbers are those of the kernel's `include/rdma/ibta_vol1_c12.h`, checked against the rxe
//! captures. Reserved bits are ignored when received and 0 when sent.
//!
//! [`destination`] returns the addressee of a MAD without parsing it.

mod field;
mod message;
mod path;
mod reason;
mod route;

use thiserror::Error;

pub use message::{
    Apr, Drep, Dreq, Lap, Message, Mra, Rej, Rep, Req, ReqFields, Rtu, SidrRep, SidrReq, TransportType, rejected,
};
pub use path::PathRecord;
pub use reason::{RejReason, SidrStatus};
pub use route::{Destination, destination};

/// Length of every MAD in bytes.
pub const MAD_LEN: usize = 256;

/// Queue pair number of the general services interface, which receives for the communication manager.
pub const GSI_QPN: u32 = 1;

/// Q_Key of the general services interface.
pub const GSI_QKEY: u32 = 0x8001_0000;

/// Base version, management class (communication management), class version, method (Send).
const CLASS: [u8; 4] = [1, 7, 2, 3];
/// Bytes of the common header.
const HEADER_LEN: usize = 24;
/// Bytes of the message behind it.
const BODY_LEN: usize = MAD_LEN - HEADER_LEN;

/// A message of the communication manager.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Mad {
    /// Transaction id: an answer has that of the message it answers.
    pub tid: u64,
    /// The message.
    pub message: Message,
}

/// Reason why bytes are not a message of the communication manager.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Error)]
pub enum MadError {
    /// The length is not that of a MAD.
    #[error("{0} bytes, a MAD has 256")]
    Length(usize),
    /// Another management class, or a version or method that the communication manager does not have.
    #[error("base version, class, class version and method {0:02x?}, not those of the communication manager")]
    Class([u8; 4]),
    /// An attribute that the communication manager does not have.
    #[error("unknown attribute {0:#06x}")]
    Attribute(u16),
}

impl Mad {
    /// Parses a MAD.
    pub fn parse(bytes: &[u8]) -> Result<Mad, MadError> {
        let mad: &[u8; MAD_LEN] = bytes.try_into().map_err(|_| MadError::Length(bytes.len()))?;
        let class = [mad[0], mad[1], mad[2], mad[3]];
        if class != CLASS {
            return Err(MadError::Class(class));
        }
        let attribute = u16::from_be_bytes([mad[16], mad[17]]);
        let body = mad[HEADER_LEN..].first_chunk::<BODY_LEN>().ok_or(MadError::Length(bytes.len()))?;
        let message = Message::parse(attribute, body).ok_or(MadError::Attribute(attribute))?;
        let tid = field::get(mad, 8, 0, 64) as u64;
        Ok(Mad { tid, message })
    }

    /// Writes all 256 bytes. Values wider than their field are truncated to the low bits.
    pub fn emit(&self, out: &mut [u8; MAD_LEN]) {
        out.fill(0);
        out[..4].copy_from_slice(&CLASS);
        out[8..16].copy_from_slice(&self.tid.to_be_bytes());
        out[16..18].copy_from_slice(&self.message.attribute().to_be_bytes());
        if let Some(body) = out.last_chunk_mut::<BODY_LEN>() {
            self.message.emit(body);
        }
    }

    /// Returns the MAD's bytes.
    pub fn to_bytes(&self) -> [u8; MAD_LEN] {
        let mut bytes = [0; MAD_LEN];
        self.emit(&mut bytes);
        bytes
    }
}
