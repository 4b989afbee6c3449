//! Network emulation: a port behind an impaired network, described as for `tc netem`.
//!
//! [`grammar`] parses the description, [`engine`] decides the fate of each frame, and [`port`] applies it to a port.
//! docs/impairments.md has the grammar and the differences from netem.
//!
//! ```
//! use irnic_ports::impair::{Frame, Impairment, Impairments};
//! use irnic_transports::Time;
//!
//! let impairments: Impairments = "tx loss 10% delay 100us; rx corrupt 1%".parse()?;
//! assert_eq!(impairments.to_string(), "tx loss 10% delay 100us; rx corrupt 1%");
//!
//! // The verdicts on 10,000 frames that the NIC sends, one each microsecond. Seed 7 gives the same ones every time.
//! let mut tx = Impairment::new(&impairments.tx, 7, 0);
//! let frame = Frame { bytes: 1058, wire_bytes: 1100, ect: true, red: false };
//! for i in 0..10_000 {
//!     let now = Time(i * 1_000);
//!     let verdict = tx.judge(now, frame, 0); // 0 frames are waiting
//!     assert!(verdict.is_drop() || verdict.only().is_some_and(|copy| copy.at == now + 100_000));
//! }
//! assert!((900..1_100).contains(&tx.counters().dropped));
//! # Ok::<(), irnic_ports::impair::ParseError>(())
//! ```

mod delay_queue;
mod direction;
mod distribution;
pub mod engine;
pub(crate) mod frame_trim;
pub mod grammar;
mod line;
mod percent;
mod policy;
pub mod port;
mod rocc;
mod trimming;

pub use engine::{Counters, Delivery, Frame, Impairment, Verdict};
pub use grammar::{Impairments, ParseError, Spec};
pub use line::Queue;
pub use percent::Percent;
pub use port::{Impaired, Report};
