//! The processor's cache, where it is known in advance what will be needed. The firmware has the instructions; the
//! network and the switches take them from here, so that they name nothing else of it.

pub(crate) use irnic_nic::prefetch::{fetch, fetch_all, fetch_first};
