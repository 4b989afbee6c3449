//! Buffers: admission and accounting of packets.

mod colour;
mod input;
mod shared;

pub(super) use colour::count_drop;
pub use input::{InputQueued, InputQueuedConfig};
pub use shared::{SharedBuffer, SharedBufferConfig, SharedPfc, headroom};
