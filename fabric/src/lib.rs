//! A simulated datacenter network: the other habitat of the firmware. Links, switches and topologies in virtual time carry packets
//! between the very NICs that applications run on.
//!
//! Everything is deterministic: the same topology, flows and seed give the same bytes, on any machine.

pub mod agenda;
pub mod experiment;
pub mod host;
pub mod input;
pub mod packet;
pub mod port;
pub mod sim;
pub mod summary;
pub mod switch;
pub mod topology;
pub mod workload;
