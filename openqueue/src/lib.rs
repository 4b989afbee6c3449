//! OpenQueue: a language for the buffers, queues and schedulers of switches (D. Menikkumbura, "Software-defined buffer
//! management and robust congestion control for modern datacenter networks", Purdue 2022, chapter 2), its compiler, and
//! what runs it.
//!
//! A [`Policy`] is a text. Its [`Plan`] for a switch with so many ports says which structures keep which order. An
//! [`Engine`] runs a plan: packets are numbers with the attributes that policies look at; time, links and bytes are the
//! [`Host`]'s. So a simulated switch and a line in real time can run the same policy. Nothing is allocated per packet
//! once there was room for as many as wait at a time.
//!
//! `docs/openqueue.md` is the language's reference.

#![forbid(unsafe_code)]

mod ast;
mod compile;
mod describe;
mod elaborate;
mod error;
mod lex;
mod named;
mod number;
#[cfg(test)]
mod oracle;
mod order;
mod parse;
mod plan;
mod policy;
mod program;
mod run;
mod shipped;
mod source;

pub use error::{Place, PolicyError};
pub use named::{NameError, NamedPolicy};
pub use plan::Plan;
pub use policy::{Parameter, ParameterError, Policy};
pub use run::{Booked, Counters, Engine, Host, Packet, Seen, Stopped, Surroundings, Verdict, Waiting};
pub use shipped::{SHIPPED, Shipped};
