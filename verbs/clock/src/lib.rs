//! For `LD_PRELOAD`: gives an application that runs in a lab the lab's time (`irnic lab --program-time lab`).
//!
//! The clocks of the C library return the lab's time, in nanoseconds since the epoch and since boot, so that they agree
//! between the processes of a lab. Absolute timeouts are converted: they end after as much of the machine's time as
//! they are ahead of the lab's. Relative ones, sleeps and timers are of the machine's time. On x86, the time stamp
//! counter follows the lab's time too, in threads that are created after the first device was opened, and in the one
//! that opened it (`tsc`).
//!
//! irnic's own libraries in the process get the machine's time: functions that they call examine their return address
//! (`objects`). A statically linked program, and one that reads the vDSO by itself, gets the machine's time.

#[cfg(target_arch = "x86_64")]
mod actions;
mod calls;
mod deadlines;
#[cfg(target_arch = "x86_64")]
mod exec;
mod next;
mod objects;
mod seen;
mod time;
#[cfg(target_arch = "x86_64")]
mod tsc;
