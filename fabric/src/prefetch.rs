//! Prefetching into the processor's cache. The firmware has the instructions; the network and the switches import them
//! from here, so that they depend on nothing else of it.

pub(crate) use irnic_nic::prefetch::{fetch, fetch_all, fetch_first};
