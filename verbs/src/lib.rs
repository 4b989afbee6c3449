//! libibverbs' public ABI on irnic, for unmodified RDMA applications.
//!
//! The cdylib of this crate replaces `libibverbs.so.1`. It converts C calls to calls on an [`irnic_nic::Nic`] in the
//! application's process, moves packets through [`irnic_ports`], and does not deal with headers on the wire. An
//! application gets it by `irnic run`, or by `LD_LIBRARY_PATH`.
//!
//! # Layers
//!
//! ```text
//!             application (C, verbs.h)
//!        by symbol  |            | by function table
//!                   v            |
//!   symbols   names and versions |      ibv_alloc_pd@@IBVERBS_1.1 -> calls
//!                   |            v
//!   calls     extern "C" functions, tables()           arguments of C in, errno out
//!                   |
//!   ucma      /dev/infiniband/rdma_cm for librdmacm    commands in, events out
//!                   |
//!   objects   Context Pd Cq Qp Srq Ah Mr Mw Channel    what stands behind each C pointer
//!                   |
//!   runtime   DeviceRuntime, Unit, Listener            NIC + port + lock + thread; no C
//!                   |
//!   device  config  gid  stats  errno  explain  abi
//!                   |
//!             irnic-nic, irnic-ports, irnic-transports
//! ```
//!
//! Arrows point downwards only. Upward calls take two ways: applications call through function tables, and the runtime
//! notifies listeners. `symbols` holds only names; `calls` converts; `objects` are structures that C has pointers to;
//! `runtime` serves `ucma` as well.
//!
//! # Users
//!
//! - *Applications* use the shared object by its symbols. Nothing else of it is visible.
//! - *Programs in Rust* may use [`config`] (settings), [`device`] and [`gid`] (the devices of this host and their
//!   properties), as do `irnic devinfo` and `irnic run`. None of these opens a device.
//! - *Tests* call [`calls`] with the structures of [`abi`], as C would.
//!
//! # What it does not do
//!
//! - Devices of vendors: `libmlx5` and others load, register their drivers, and find no device.
//! - Raw packet queue pairs, device memory, dma-bufs, flow steering, on-demand paging, ECE: `EOPNOTSUPP`.
//! - A process that forks keeps its queue pairs; its child starts without any.
//!
//! # Example
//!
//! The devices that a configuration defines on this host, and their `ibv_query_device` attributes:
//!
//! ```
//! use irnic_verbs::config::{Config, Origin, Variables};
//! use irnic_verbs::device::{self, device_attr, port_attr};
//!
//! let mut variables = Variables::default();
//! for (name, value) in [("IRNIC_CONFIG", "/dev/null"), ("IRNIC_INTERFACE", "lo"), ("IRNIC_MTU", "1024")] {
//!     variables.set(name, value, Origin::Variable(name.into()));
//! }
//! let config = Config::load(&variables)?;
//! for info in device::infos(&config)? {
//!     let (device, port) = (device_attr(&info), port_attr(&info));
//!     println!("{}: up to {} queue pairs, GIDs {:?}", info.name, device.max_qp, info.gids);
//!     assert_eq!(port.active_mtu, irnic_verbs::abi::consts::IBV_MTU_1024);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![warn(unreachable_pub)]

pub mod abi;
pub mod calls;
pub mod config;
pub mod device;
mod errno;
mod explain;
pub mod gid;
mod gpu;
mod objects;
mod runtime;
pub mod stats;
mod symbols;
mod ucma;

#[cfg(fuzzing)]
pub use ucma::forged_commands;
