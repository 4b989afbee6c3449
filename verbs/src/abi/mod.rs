//! libibverbs' public ABI: structures and constants.

pub mod consts;
pub mod structs;

/// Bytes of a mutex of the C library: 40 on x86-64, 48 on aarch64.
const MUTEX: usize = size_of::<libc::pthread_mutex_t>();

// Sizes on 64-bit Linux; `tests/layout` compares everything.
const _: () = assert!(size_of::<structs::ibv_context>() == 288 + MUTEX);
const _: () = assert!(size_of::<structs::verbs_context>() == 656 + MUTEX);
const _: () = assert!(size_of::<structs::ibv_device>() == 664);
const _: () = assert!(size_of::<structs::ibv_cq>() == 88 + MUTEX);
const _: () = assert!(size_of::<structs::ibv_cq_ex>() == 248 + MUTEX);
const _: () = assert!(size_of::<structs::ibv_qp>() == 120 + MUTEX);
const _: () = assert!(size_of::<structs::ibv_qp_ex>() == 320 + MUTEX);
const _: () = assert!(size_of::<structs::ibv_wc>() == 48);
const _: () = assert!(size_of::<structs::ibv_send_wr>() == 128);
const _: () = assert!(size_of::<structs::ibv_qp_attr>() == 144);
const _: () = assert!(size_of::<structs::ibv_device_attr_ex>() == 400);
const _: () = assert!(size_of::<structs::ibv_port_attr>() == 56);
