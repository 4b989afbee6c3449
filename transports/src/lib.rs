//! RoCEv2 and IRN transports as pure state machines: the protocol half of an RDMA NIC's firmware.
//!
//! ```text
//!   work requests        completions, events
//!        │                      ▲
//! ┌──────▼──────────────────────┴──────┐
//! │ qp::Qp    states, attributes,      │      qp::Host: the device around it
//! │           queues                   ├────▶ (memory, completion queues,
//! ├────────────────────────────────────┤      shared receive queues, counters)
//! │ rc, uc, ud     what a service does │
//! │ recovery       what goes next      │
//! │ congestion     how fast, how far   │
//! ├────────────────────────────────────┤
//! │ wire      headers, opcodes, ICRC   │
//! └──────┬──────────────────────▲──────┘
//!        ▼                      │
//!    TxPacket                RxPacket          and Time, always passed in
//! ```
//!
//! # Layers
//!
//! - [`wire`] has packet formats. It can be used alone to parse and build RoCEv2 packets: for captures, generators,
//!   fuzzers.
//! - [`recovery`] has the packet-processing modules of IRN and their go-back-N counterparts. They use only sequence
//!   numbers, and can be run against traces.
//! - [`congestion`] has the controllers, and shows how a program adds its own.
//! - [`config`] describes a transport as a composition of choices, in types and in text.
//! - [`footprint`] lists the state that a hardware NIC would keep of a queue pair, field by field.
//! - [`qp`] has the queue pair, [`qp::Qp`]. It needs a device around it, [`qp::Host`]: crate `irnic-nic` is one, and
//!   the crate to use for a whole NIC.
//!
//! # Out of scope
//!
//! The crate performs no I/O, reads no clock, starts no thread, takes no lock and keeps no global state. It owns no
//! application memory: a queue pair names keys and addresses, its device checks them. It does not compute ICRCs by
//! itself, schedule among queue pairs, or carry packets. Nothing is allocated per packet.
//!
//! # Building and parsing a packet
//!
//! ```
//! use irnic_transports::Psn;
//! use irnic_transports::wire::{Bth, Headers, Opcode, Reth, pad_for, parse};
//!
//! // An RDMA WRITE of five bytes to queue pair 17.
//! let payload = b"hello";
//! let mut headers = Headers::new(Bth::new(Opcode::RcWriteOnly, 17, Psn::new(100)));
//! headers.bth.ack_req = true;
//! headers.bth.pad = pad_for(payload.len());
//! headers.reth = Some(Reth { va: 0x1000, rkey: 0xabcd, len: 5 });
//!
//! // Headers, payload, padding, and four bytes for the ICRC.
//! let mut frame = vec![0; headers.frame_len(payload.len())];
//! let at = headers.emit(&mut frame);
//! frame[at..at + payload.len()].copy_from_slice(payload);
//! assert_eq!(frame.len(), 12 + 16 + 8 + 4);
//!
//! let (parsed, received) = parse(&frame)?;
//! assert_eq!((parsed, received), (headers, &payload[..]));
//! # Ok::<(), irnic_transports::wire::ParseError>(())
//! ```

#![deny(unsafe_code)]
#![warn(unreachable_pub)]

pub mod config;
pub mod congestion;
mod edge;
pub mod footprint;
pub mod pacer;
pub mod packet;
pub mod psn;
pub mod qp;
pub mod rc;
pub mod recovery;
pub mod room;
pub mod sideband;
mod slack;
pub mod telemetry;
pub mod time;
mod uc;
mod ud;
pub mod wire;

pub use config::TransportConfig;
pub use edge::Edge;
pub use packet::{Gather, Mark, PacketClass, Path, Payload, RxPacket, Segment, TxPacket};
pub use psn::Psn;
pub use sideband::{Colour, Sideband};
pub use slack::{Piece, Slack};
pub use time::Time;
