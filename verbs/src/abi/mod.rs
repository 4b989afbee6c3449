//! What libibverbs' headers say: structures and constants.

pub mod consts;
pub mod structs;

// Sizes on 64-bit Linux; the whole comparison is in `tests/layout`.
const _: () = assert!(size_of::<structs::ibv_context>() == 328);
const _: () = assert!(size_of::<structs::verbs_context>() == 696);
const _: () = assert!(size_of::<structs::ibv_device>() == 664);
const _: () = assert!(size_of::<structs::ibv_cq>() == 128);
const _: () = assert!(size_of::<structs::ibv_cq_ex>() == 288);
const _: () = assert!(size_of::<structs::ibv_qp>() == 160);
const _: () = assert!(size_of::<structs::ibv_qp_ex>() == 360);
const _: () = assert!(size_of::<structs::ibv_wc>() == 48);
const _: () = assert!(size_of::<structs::ibv_send_wr>() == 128);
const _: () = assert!(size_of::<structs::ibv_qp_attr>() == 144);
const _: () = assert!(size_of::<structs::ibv_device_attr_ex>() == 400);
const _: () = assert!(size_of::<structs::ibv_port_attr>() == 56);
