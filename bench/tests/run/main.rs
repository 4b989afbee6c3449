//! `irnic run`, and what applications under it see of the device.

mod allreduce;
mod applications;
mod config;
mod counters;
mod doctor;
mod explain;
mod flap;
mod launch;
mod mpi;
mod preload;
mod python;
mod pyverbs;
mod rdma;
mod scripts;
mod stats;
#[path = "../support/mod.rs"]
mod support;
mod sysfs;
