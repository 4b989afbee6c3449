//! Running applications: `irnic run`, `irnic launch`, `irnic doctor`, `irnic devinfo`, `irnic config`, and `rdma` of
//! iproute2.

#[macro_use]
extern crate irnic_report;

pub mod config;
pub mod devinfo;
pub mod doctor;
pub mod listening;
pub mod ranks;
pub mod rdma;
pub mod run;
