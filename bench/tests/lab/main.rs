//! `irnic lab`: applications on an emulated network.

mod applications;
mod faults;
mod hosts;
mod kills;
mod libraries;
mod live;
mod netns;
mod outputs;
mod program_time;
mod shell;
#[path = "../support/mod.rs"]
mod support;
mod virtual_time;
