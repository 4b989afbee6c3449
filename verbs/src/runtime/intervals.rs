//! Times by which the threads of an application and the background thread share the work, in ns.

use irnic_transports::time::{MS, US};

/// How often the background thread looks while an application polls.
pub(super) const POLL_INTERVAL: u64 = MS;
/// How often the background thread looks when the application's last call is longer ago than ten [`POLL_INTERVAL`]s.
pub(super) const IDLE_INTERVAL: u64 = 10 * MS;
/// An application that looks all the time does so more often than this, task switches of the thread that finds out
/// included.
pub(super) const SPINNING: u64 = 20 * US;
/// An application that looked at the port within this time will do so again.
pub(super) const POLLING: u64 = 200 * US;
/// How long an application counts as one that waits in other ways than by polling, once it was seen to.
pub(super) const IDLE_HOLD: u64 = 100 * MS;
