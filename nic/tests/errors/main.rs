//! Every way in which a work request can fail, and the state that must be preserved: statuses at both ends, order,
//! flushes, states, events, memory. Each case runs over plain RoCE and IRN, most also on networks that lose a tenth of
//! the packets.

#[path = "../common/mod.rs"]
mod common;
mod kit;

mod access;
mod auto;
mod completion;
mod evidence;
mod fetch;
mod forged;
mod invalid;
mod invalidate;
mod irn;
mod limits;
mod local;
mod lost;
mod overlap;
mod rnr;
mod states;
mod timeout;
mod watched;
