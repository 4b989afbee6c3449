//! The firmware of an RDMA NIC as a pure state machine: [`Nic`].
//!
//! ```text
//!        verbs                          completions, events
//!          │ post_send, modify_qp, …       ▲ poll_cq, poll_event
//!   ┌──────▼───────────────────────────────┴──────┐
//!   │ Nic      objects, memory, scheduler, clock  │
//!   │   Qp     one queue pair (irnic-transports)  │
//!   └──────▲───────────────────────────────┬──────┘
//!          │ receive, on_deadline          ▼ poll_transmit, next_deadline
//!       packets, time                  packets, deadlines
//! ```
//!
//! Around [`irnic_transports::qp::Qp`] the crate provides what queue pairs share: objects and their lifecycle, memory
//! protection and placement, the transmit scheduler, timers, the hardware clock. It performs no I/O and reads no clock.
//! `irnic-ports` carries its packets in real time, `irnic-fabric` in virtual time; both use [`frame`] where packets are
//! bytes.
//!
//! # Example
//!
//! An RDMA WRITE from one NIC to another over an in-memory wire, on which a frame takes 10 µs:
//!
//! ```
//! use irnic_nic::frame::{Icrc, RxFrame, RxIcrc, emit_frame, receive_frame};
//! use irnic_nic::{Nic, NicConfig, QpConfig};
//! use irnic_transports::qp::{Access, ConnectParams, SendData, SendOp, SendWr, Sge, Wc, WcStatus};
//! use irnic_transports::wire::Mtu;
//! use irnic_transports::{Path, Time, TransportConfig};
//!
//! # let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
//! # let mut ends = Vec::new();
//! # for seed in [1, 2] {
//! #     let mut nic = Nic::new(NicConfig { seed: [seed; 32], ..NicConfig::default() });
//! #     let (pd, cq) = (nic.alloc_pd()?, nic.create_cq(16)?);
//! #     let memory = nic.alloc_mr(pd, 4096, all)?;
//! #     let qpn = nic.create_qp(&QpConfig::new(pd, cq, TransportConfig::preset("irn").expect("a preset")))?;
//! #     ends.push((nic, cq, memory, qpn));
//! # }
//! # let address = |end: usize| std::net::IpAddr::from([10, 0, 0, end as u8 + 1]);
//! # for end in [0, 1] {
//! #     let (src, dst) = (address(end), address(1 - end));
//! #     let path = Path { src, dst, udp_src: 0xc000, traffic_class: 0, hop_limit: 64 };
//! #     let mut params = ConnectParams::reliable(path, Mtu::B1024, ends[1 - end].3);
//! #     params.access = all;
//! #     let (nic, _, _, qpn) = &mut ends[end];
//! #     nic.connect(*qpn, &params)?;
//! # }
//! # let [(mut a, cq, from, qpn), (mut b, _, to, _)] = <[_; 2]>::try_from(ends).expect("two ends");
//! // `a` and `b` are two NICs; `qpn` is connected; `from` and `to` are memory regions of 4096 bytes, one at each.
//! a.bytes_mut(&from).expect("memory of a").fill(7);
//! let sges = [Sge { addr: from.addr, len: 4096, lkey: from.lkey }];
//! a.post_send(qpn, &SendWr::write(1, SendData::Sges(&sges), to.addr, to.rkey))?;
//!
//! let (mut now, mut completion) = (Time::ZERO, [Wc::EMPTY]);
//! while a.poll_cq(cq, &mut completion)? == 0 {
//!     let mut wire = Vec::new();
//!     for (receiver, nic) in [(1, &mut a), (0, &mut b)] {
//!         nic.on_deadline(now);
//!         nic.poll_transmit(now, Nic::RX_BATCH, |packet| {
//!             let mut bytes = vec![0; packet.headers.frame_len(packet.payload.len())];
//!             emit_frame(packet, Some(packet.path), &mut bytes); // BTH to ICRC
//!             wire.push((receiver, *packet.path, bytes));
//!             true
//!         });
//!     }
//!     now = now + 10_000;
//!     for (receiver, path, bytes) in &wire {
//!         let frame = RxFrame { path: *path, bytes, arrived: now, icrc: RxIcrc::Exact };
//!         receive_frame([&mut a, &mut b][*receiver], now, &frame, Icrc::Checked);
//!     }
//! }
//! assert_eq!(completion[0].status, WcStatus::Success);
//! assert_eq!(b.bytes(&to).expect("memory of b"), [7; 4096]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Out of scope
//!
//! - Connecting: two ends exchange queue pair numbers, PSNs and keys by other means.
//! - Waiting and locking: a program that uses one `Nic` from several threads provides the lock.
//! - Raw packets, on-demand paging, persistent memory.

#![deny(unsafe_code)]
#![warn(unreachable_pub)]

pub mod calibration;
pub mod clock;
mod cq;
mod device;
mod error;
pub mod frame;
mod gsi;
mod loopback;
#[allow(unsafe_code, reason = "regions are the application's memory")]
mod memory;
mod multicast;
mod nic;
mod pulls;
mod scheduler;
mod srq;
mod table;
pub mod wheel;

pub use cq::Arm;
pub use device::{NicEvent, Recall};
pub use error::{NicError, Object, Quantity, RegisterError};
pub use gsi::ManagementDatagram;
pub use irnic_transports::pacer;
pub use irnic_transports::qp::QpConfig;
pub use loopback::loopback;
pub use memory::{Accelerator, CopyError, MemoryReader, Mr, MrChanges, Mw, MwKind, copy_bytes, copy_payload, prefetch};
pub use nic::{FastPacket, Limits, Nic, NicConfig, TxSink};
