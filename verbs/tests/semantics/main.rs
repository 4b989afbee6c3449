//! What users of libibverbs rely on, call by call: return styles, errno values, states, events.
//!
//! Each test has its own context and objects; all share the process's one device, as libraries of one application do.

#[path = "../kit/mod.rs"]
mod kit;

mod channels;
mod datagrams;
mod events;
mod extended;
mod memory;
mod messages;
mod objects;
mod queries;
mod states;
mod windows;
mod xrc;

use kit::Ctx;

/// A context of this binary's device.
fn open() -> Ctx {
    kit::configure("semantics0", [71, 1]);
    Ctx::open()
}
