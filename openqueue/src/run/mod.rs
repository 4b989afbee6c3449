//! Execution of a plan: packets arrive, wait and leave; time and links are the host's.

mod accounts;
mod admission;
pub(crate) mod build;
mod departure;
mod engine;
mod evaluate;
mod handover;
mod heap;
mod host;
mod items;
mod levels;
mod orders;
pub(crate) mod schedule;
pub(crate) mod state;
pub(crate) mod store;
mod transit;
pub(crate) mod view;
mod weigh;

pub use engine::Engine;
pub use handover::{Booked, Stopped};
pub use host::{Counters, Host, Surroundings, Verdict, Waiting};
pub use items::{Packet, Seen};
