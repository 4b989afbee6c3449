//! Buffers: what a switch admits, and to whom it is charged.

mod colour;
mod input;
mod shared;

pub(super) use colour::count_drop;
pub use input::{InputQueued, InputQueuedConfig};
pub use shared::{SharedBuffer, SharedBufferConfig, SharedPfc, headroom};
