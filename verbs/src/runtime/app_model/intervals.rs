//! Intervals by which application threads and the background thread share the work, in ns.

use irnic_transports::time::{MS, US};

/// Interval at which the background thread runs while an application polls.
pub(in crate::runtime) const POLL_INTERVAL: u64 = MS;
/// Interval at which the background thread runs when the application's last call is longer ago than ten
/// [`POLL_INTERVAL`]s.
pub(in crate::runtime) const IDLE_INTERVAL: u64 = 10 * MS;
/// An application that polls continuously does so at intervals below this, including task switches of the thread that
/// finds out.
pub(in crate::runtime) const SPINNING: u64 = 20 * US;
/// An application that polled the port within this time will do so again.
pub(in crate::runtime) const POLLING: u64 = 200 * US;
/// How long an application counts as one that does not wait by polling, once that was detected.
pub(in crate::runtime) const IDLE_HOLD: u64 = 100 * MS;
