//! RoCEv2 and IRN transports as pure state machines.
//!
//! This crate is the protocol half of an RDMA NIC's firmware: the wire format ([`wire`]) and one queue pair's protocol
//! with its loss recovery, flow control and retransmission timer. It does no I/O, reads no clock, starts no thread, takes
//! no lock and keeps no global: time is passed in as [`Time`], packets come in as [`RxPacket`] and go out as
//! [`TxPacket`].

pub mod config;
pub mod congestion;
pub mod pacer;
pub mod packet;
pub mod psn;
pub mod qp;
pub mod rc;
pub mod recovery;
pub mod room;
pub mod sideband;
pub mod telemetry;
pub mod time;
mod uc;
mod ud;
pub mod wire;

pub use config::TransportConfig;
pub use packet::{Gather, PacketClass, Path, Payload, RxPacket, Segment, TxPacket};
pub use psn::Psn;
pub use sideband::{Colour, Sideband};
pub use time::Time;
