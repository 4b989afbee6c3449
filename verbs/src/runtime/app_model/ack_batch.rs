//! When the background thread delays acknowledgements, so that one covers several trains of packets.
//!
//! An acknowledgement costs its sender as much as the reception of a whole train. In a steady stream of full packets
//! the peer does not wait for it; at the end of a burst it may. The packets do not show which it is, so it is learnt:
//! after each wait in vain, the next stream has to last twice as long before acknowledgements are delayed.

use irnic_transports::Time;
use irnic_transports::time::US;

/// Packets covered by one acknowledgement. A NIC takes at most 64 before its acknowledgements are sent.
const ENOUGH: usize = 48;
/// Longest pause within a stream, ns: the time of several trains.
const PAUSE: u64 = 50 * US;
/// Mean length from which packets count as full, bytes: those of bulk data, not requests for it.
const FULL: usize = 1024;
/// Consecutive receptions without a pause that make a stream: initially, and at most.
const STREAM: u32 = 16;
const LONGEST_STREAM: u32 = 4096;

/// The learnt state of the algorithm.
#[derive(Clone, Debug)]
pub(in crate::runtime) struct AckBatch {
    /// Receptions since the last pause.
    run: u32,
    /// Number of receptions that make a stream.
    needed: u32,
    last: Time,
}

impl AckBatch {
    pub(in crate::runtime) fn new() -> AckBatch {
        AckBatch { run: 0, needed: STREAM, last: Time::ZERO }
    }

    /// Returns whether the acknowledgements of `unanswered` packets may wait, after `received` packets of `bytes` have
    /// just arrived, or none.
    #[inline]
    pub(in crate::runtime) fn waits(&mut self, received: usize, bytes: usize, unanswered: usize, now: Time) -> bool {
        let pause = now.since(self.last) >= PAUSE;
        if received == 0 {
            if unanswered > 0 && pause {
                self.needed = (2 * self.needed).min(LONGEST_STREAM);
                self.run = 0;
            }
            return unanswered > 0 && !pause;
        }
        self.last = now;
        if pause || bytes < received * FULL {
            self.run = 0;
            return false;
        }
        self.run += 1;
        if self.run >= 2 * LONGEST_STREAM {
            // A long stream resets what was learnt.
            (self.run, self.needed) = (LONGEST_STREAM, STREAM);
        }
        self.run > self.needed && unanswered < ENOUGH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Receives trains at intervals of `gap` ns; returns the number after which the first wait begins.
    fn first_wait(batch: &mut AckBatch, now: &mut Time, gap: u64) -> Option<u32> {
        (0..10_000).find(|_| {
            *now += gap;
            batch.waits(15, 15 * 4096, 15, *now)
        })
    }

    #[test]
    fn in_a_stream_acknowledgements_wait_until_there_are_enough() {
        let (mut batch, mut now) = (AckBatch::new(), Time(1_000_000));
        assert_eq!(first_wait(&mut batch, &mut now, 10 * US), Some(STREAM + 1));
        for (unanswered, waits) in [(30, true), (45, true), (48, false), (60, false), (15, true)] {
            now += US;
            assert_eq!(batch.waits(15, 15 * 4096, unanswered, now), waits, "{unanswered}");
        }
    }

    #[test]
    fn short_packets_and_pauses_make_no_stream() {
        let (mut batch, mut now) = (AckBatch::new(), Time(1_000_000));
        assert_eq!(first_wait(&mut batch, &mut now, PAUSE), None);
        for _ in 0..100 {
            now += US;
            assert!(!batch.waits(15, 15 * 64, 15, now));
        }
    }

    #[test]
    fn a_wait_in_vain_doubles_what_makes_a_stream() {
        let (mut batch, mut now) = (AckBatch::new(), Time(1_000_000));
        for doubled in 0..4 {
            assert_eq!(first_wait(&mut batch, &mut now, US), Some((STREAM << doubled) + 1));
            assert!(batch.waits(0, 0, 15, now + (PAUSE - 1)));
            now += PAUSE;
            assert!(!batch.waits(0, 0, 15, now));
            assert!(!batch.waits(0, 0, 0, now));
        }
        // A very long stream resets everything.
        for _ in 0..4 * LONGEST_STREAM {
            now += US;
            batch.waits(15, 15 * 4096, 15, now);
        }
        assert_eq!(batch.needed, STREAM);
    }
}
