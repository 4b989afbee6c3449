//! The command line as a whole, files that commands write, and what is installed.

mod ci;
mod circles;
mod deep;
mod footprint;
mod kubernetes;
mod mechanisms;
mod output;
mod outputs;
mod packages;
mod shell;
mod stability;
#[path = "../support/mod.rs"]
mod support;
