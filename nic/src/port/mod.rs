//! What carries packets in real time: memory, UDP sockets, shared-memory rings, and the wrappers around them (impairment,
//! capture).
//!
//! A port moves *frames*: the bytes from the BTH to the ICRC, with the IP and UDP fields beside them as a
//! [`Path`]. It knows nothing of queue pairs.

pub mod capture;
mod pcapng;

use std::io;
use std::time::Duration;

use irnic_transports::{Path, Time};

/// A frame that arrived.
#[derive(Copy, Clone, Debug)]
pub struct RxFrame<'a> {
    /// IP and UDP fields as they arrived (what the port cannot see is zero).
    pub path: Path,
    /// BTH to ICRC.
    pub bytes: &'a [u8],
    /// When it arrived, on the clock that `now` came from.
    pub arrived: Time,
}

/// Something that carries frames between NICs.
pub trait Port {
    /// The largest frame in bytes, BTH to ICRC.
    fn max_frame(&self) -> usize;

    /// Queues one frame of exactly `len` bytes to `path.dst`; `fill` writes it straight into the port's own buffer.
    /// Returns false, without calling `fill`, if there is no room now: flush, and try again later.
    fn transmit(&mut self, now: Time, path: &Path, len: usize, fill: &mut dyn FnMut(&mut [u8])) -> bool;

    /// Hands what was queued to the carrier. Call once per batch.
    fn flush(&mut self, now: Time) -> io::Result<()>;

    /// Takes frames that have arrived, about `budget` of them at the most, and gives each to `each`. Never blocks. Returns how many.
    fn receive(&mut self, now: Time, budget: usize, each: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize>;

    /// When the port itself next has something to do (a delayed frame falls due), [`Time::NEVER`] if nothing.
    fn next_deadline(&self) -> Time {
        Time::NEVER
    }

    /// Sleeps until a frame may have arrived or `timeout` has passed.
    fn wait(&mut self, timeout: Duration) -> io::Result<()>;
}
