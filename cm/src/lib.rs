//! The communication manager of an RDMA NIC as a pure state machine: [`Cm`].
//!
//! ```text
//!       rdma_cm's calls                       events
//!   create, bind, listen, connect, …      ▲ poll_event
//!   ┌──────────▼──────────────────────────┴──────┐
//!   │ Cm    ids, listeners, port spaces          │  what the kernel's cma.c does
//!   │       connections (REQ … DREP), SIDR,      │  IBA chapter 12, the kernel's cm.c
//!   │       timers, timewait, duplicates         │
//!   └──────────▲──────────────────────────┬──────┘
//!              │ receive, on_deadline     ▼ poll_mad, next_deadline
//!        MADs of queue pair 1, time
//! ```
//!
//! A [`Cm`] represents one port of a NIC. It performs no I/O, reads no clock and starts no thread: MADs and [`Time`]
//! are passed in, MADs and deadlines come out. It knows queue pairs only by number: [`Cm::qp_attr`] returns the
//! attributes for their owner to set.
//!
//! [`Time`]: irnic_transports::Time

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod attributes;
mod calls;
mod cm;
mod config;
mod connection;
mod connections;
mod dead_peers;
mod deadline;
mod departures;
mod error;
mod event;
mod id;
mod ip;
mod known_peers;
mod param;
mod receive;
mod request;
mod service;

pub use attributes::QpAttributes;
pub use cm::Cm;
pub use config::CmConfig;
pub use departures::Departures;
pub use error::CmError;
pub use event::{CmEvent, ConnData, EventKind, EventParam, UdData};
pub use param::{Addresses, CmId, ConnParam, PrivateData, QpKind, Route};
pub use service::{PortSpace, service_id};
