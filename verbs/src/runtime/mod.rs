//! A device at work: NIC, port, lock, the thread in the background, and who hears what happens.
//!
//! The runtime knows no object of libibverbs and no pointer of C. A *front* stands on it: the objects of
//! [`objects`](crate::objects) are one, a connection manager with a queue pair of its own can be another. A front
//!
//! 1. gets a [`DeviceRuntime`] and has its threads started,
//! 2. makes an [`Owner`] for itself, and objects with a [`Listener`] each: [`State::create_cq`], [`State::create_qp`],
//!    [`State::create_srq`]; everything else it asks of the firmware ([`State::nic`]) under the unit's lock,
//! 3. posts between [`Unit::lock_to_post`] and [`Unit::done`], and takes completions by [`Unit::poll`],
//! 4. hears of completions after [`State::arm_cq`], and of asynchronous events, by its listeners,
//! 5. destroys its objects, or has [`DeviceRuntime::abandon`] stop what is left.
//!
//! Locks are taken in this order, each of which may be left out: that under which parts of completion queues change, a
//! completion queue's, that under which a unit is chosen (all in [`units`] and [`completion_queue`]), those of units by
//! their index, then whatever a listener locks. Never the other way round.

mod ack_batch;
mod answers;
mod background;
mod busy_poll;
mod cm;
mod completion_queue;
mod counters;
mod device;
mod empty_polls;
pub(crate) mod forked;
mod interface;
mod intervals;
mod listener;
mod neighbours;
mod open;
mod port;
mod presence;
mod queue;
mod slices;
mod state;
#[cfg(test)]
mod tests;
mod unit;
mod units;
mod xrc;

pub(crate) use cm::CmListener;
pub(crate) use completion_queue::CompletionQueue;
pub(crate) use device::DeviceRuntime;
pub(crate) use irnic_ports::host_now as now;
pub(crate) use listener::{Listener, Owner};
pub(crate) use queue::{EventQueue, wait};
pub(crate) use state::State;
pub(crate) use unit::Unit;
pub(crate) use units::Place;
pub(crate) use xrc::{Target, XrcDomain, XrcError};
