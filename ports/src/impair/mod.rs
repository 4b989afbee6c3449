//! An impaired network in front of a port, described as one would describe it to `tc netem`.
//!
//! [`grammar`] reads the description, [`engine`] decides each frame's fate from it. The grammar and what differs from netem:
//! `docs/impairments.md`.

mod distribution;
pub mod engine;
pub mod grammar;
mod line;
mod percent;
pub mod port;

pub use engine::{Counters, Delivery, Frame, Impairment, Verdict};
pub use grammar::{Impairments, ParseError, Spec};
pub use line::Queue;
pub use port::{Impaired, Report};
