//! A simulated datacenter network in virtual time: links, switches, topologies and workloads, with the same NICs at its
//! ends that applications run on.
//!
//! ```text
//!   workload        what is sent: flows by distribution, pattern or file
//!      |
//!   sim             Simulation: flows between NICs, to the end, checked     generator   packets without a transport
//!      |  NicEndpoint                                                          |        ... or an Endpoint of your own
//!      +-----------------------------+-----------------------------------------+
//!                                    |  trait Endpoint
//!   network         Network<E>: event queue, ports, packets, routes, accounts
//!                                    |  trait Switch
//!   switch          buffer x scheduler x marking                            ... or a Switch of your own
//!      |
//!   topology        who is connected to whom: star, dumbbell, leaf-spine, fat-tree, or a file
//! ```
//!
//! For flow completion times, use [`sim`]. For other endpoints (processes, models, plain load), use [`network`] with an
//! [`network::Endpoint`]. To replay the packets of a run through other switches, use [`schedule`]. To try out a switch,
//! implement [`switch::Switch`]; its documentation has a complete one.
//!
//! Everything is deterministic: the same topology, flows and seed give the same bytes, on any machine. At the end of
//! every run the accounts are checked: bytes are conserved, Little's law holds exactly, NICs and the network have
//! counted the same.
//!
//! The crate has no clocks or sockets of its own, and no threads except those that share one network
//! ([`sim::Parallel`]); concurrent runs, tables and plots are provided by the command `irnic sim`.
//!
//! # Two flows to one host
//!
//! ```
//! use irnic_fabric::sim::{SimConfig, Simulation};
//! use irnic_fabric::switch::{InputQueuedConfig, SwitchConfig};
//! use irnic_fabric::topology::Topology;
//! use irnic_fabric::workload::Flow;
//! use irnic_transports::config::TransportConfig;
//!
//! // Three hosts, links of 40 Gbit/s and 1 us, a switch with 240 kB of buffer for each input.
//! let star = Topology::star(3, 40_000_000_000, 1_000);
//! let switch = SwitchConfig::InputQueued(InputQueuedConfig::new(240_000));
//! // 1 MB each from hosts 0 and 1 to host 2.
//! let flows = vec![Flow::new(0, 2, 1_000_000, 0), Flow::new(1, 2, 1_000_000, 0)];
//! let irn = TransportConfig::preset("irn").expect("a preset of this name");
//!
//! let outcome = Simulation::new(SimConfig::new(star, flows, switch, irn))?.finish()?;
//! for (flow, record) in outcome.flows.iter().zip(&outcome.records) {
//!     let fct = record.fct(flow).expect("all flows are complete");
//!     println!("{} -> {}: {fct} ns, {:.2} times the ideal", flow.src, flow.dst, record.slowdown(flow).unwrap());
//!     // 200 us alone, and twice as long for both.
//!     assert!((200_000..450_000).contains(&fct));
//! }
//! # Ok::<(), irnic_fabric::sim::SimError>(())
//! ```

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

pub mod experiment;
pub mod generator;
pub mod input;
pub mod lab;
pub mod network;
mod prefetch;
mod priorities;
pub mod schedule;
pub mod sim;
pub mod summary;
pub mod switch;
pub mod topology;
pub mod workload;

pub use priorities::Priorities;

// Of `forward_switch!`.
#[doc(hidden)]
pub use irnic_units::delegate;
