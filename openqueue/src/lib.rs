//! OpenQueue: a language for the buffers, queues and schedulers of switches (D. Menikkumbura, "Software-defined buffer
//! management and robust congestion control for modern datacenter networks", Purdue 2022, chapter 2), its compiler and
//! its engine.
//!
//! A [`Policy`] is a text. Its [`Plan`] for a switch with a given number of ports determines which structures keep
//! which order. An [`Engine`] runs a plan: packets are numbers with the attributes that policies read; time, links and
//! bytes are the [`Host`]'s. A simulated switch and a real-time one can thus run the same policy. Nothing is allocated
//! per packet, except when the number of queued packets reaches a new maximum.
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
