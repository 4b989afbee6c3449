//! A running device: NIC, port, lock, background thread and listeners.
//!
//! The runtime does not know the objects of libibverbs or C pointers. A *front* is built on it: the objects of
//! [`objects`](crate::objects) are one, a connection manager with its own queue pair can be another. A front
//!
//! 1. gets a [`DeviceRuntime`] and has its threads started,
//! 2. creates an [`Owner`] for itself, and objects with a [`Listener`] each: [`State::create_cq`],
//!    [`State::create_qp`], [`State::create_srq`]; for everything else it calls the firmware ([`State::nic`]) under the
//!    unit's lock,
//! 3. posts between [`Unit::lock_to_post`] and [`Unit::done`], and takes completions by [`Unit::poll`],
//! 4. is notified of completions after [`State::arm_cq`], and of asynchronous events, by its listeners,
//! 5. destroys its objects, or has [`DeviceRuntime::abandon`] stop the remaining ones.
//!
//! Locks are taken in this order, each of which may be omitted: that of changes of completion queues' parts, a
//! completion queue's, that of the choice of a unit (all in [`units`] and [`completion_queue`]), those of units by
//! their index, then those taken by a listener. Never in the opposite order.

mod acks;
mod app_model;
mod background;
mod cm;
mod completion_queue;
mod counters;
mod device;
pub(crate) mod forked;
mod interface;
mod lab_time;
mod listener;
mod manager;
mod neighbours;
mod netlink;
mod open;
mod port;
mod presence;
mod queue;
mod sleepers;
mod state;
#[cfg(test)]
mod tests;
mod unheard;
mod unit;
mod units;
mod waiting;
mod xrc;

pub(crate) use completion_queue::CompletionQueue;
pub(crate) use device::DeviceRuntime;
pub(crate) use irnic_ports::host_now as now;
pub(crate) use listener::{Listener, Owner};
pub(crate) use manager::CmListener;
pub(crate) use queue::{EventQueue, wait};
pub(crate) use state::State;
pub(crate) use unit::{Look, Unit};
pub(crate) use units::Place;
pub(crate) use xrc::{Target, XrcDomain, XrcError};
