//! Features beyond the reliable connection: the unreliable services, memory windows, and objects that change in use.

#[path = "../common/mod.rs"]
mod common;
#[allow(dead_code)] // made for the cases of errors
#[path = "../errors/kit.rs"]
mod kit;

mod accelerator;
mod captures;
mod congestion;
mod custom;
mod gsi;
mod low;
mod multicast;
mod newer;
mod notices;
mod objects;
mod pauses;
mod pulled;
mod setup;
mod sideband;
mod slots;
mod states;
mod stats;
mod tcp;
mod tlt;
mod transfer;
mod uc;
mod ud;
mod windows;
