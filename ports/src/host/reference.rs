//! References to payloads: large payloads can stay in their sender's memory until the receiver's process copies them
//! (cross memory attach, process_vm_readv(2)).
//!
//! Where two cores share no cache, copying a payload into a ring takes several times as long as copying it once: each
//! line has to be fetched from the receiver's core before it is overwritten. A reference takes a line or two of the
//! ring. Its payload must not change before the packet is acknowledged, as verbs demand of send buffers anyway. When
//! they return to the application early, because the queue pair fails or is destroyed, all references are recalled:
//! the receiver drops what it has read by one that was recalled meanwhile.
//!
//! A sender that could use references offers them by passing the address and the value of a word ([`Probe`]). A
//! receiver whose kernel lets it read the word accepts by [`FOLLOWS`].

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use irnic_transports::Segment;

use super::config::CrossMemory;
use super::sys;
use crate::ring::RingRecall;

/// Byte by which a receiver accepts references.
pub(super) const FOLLOWS: &[u8] = b"f";

/// Shortest payload that is worth a reference, in bytes.
pub(super) const SHORTEST: u32 = 1024;

/// Number of payloads of which one is copied all the same while payloads are left in place, to see what it costs.
const STILL_COPIED: u32 = 128;
/// Number of copies of which one is timed.
const TIMED: u32 = 16;
/// Time to copy 4 KiB into a ring, in ns, above which payloads are left in place, and below which they are copied
/// again. process_vm_readv(2) takes 600 to 800 ns for 4 KiB of a batch.
const SLOW: u64 = 800;
const FAST: u64 = 600;
/// Longest time for 4 KiB that counts, ns: more means that the thread lost its core.
const LONGEST: u64 = 8_000;

/// Where a payload is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Reference {
    pub(super) payload: Segment,
    /// Bytes of the frame after the payload: padding and ICRC, which are 0.
    pub(super) rest: u32,
    /// Number of recalls before it was written.
    pub(super) recalls: u64,
}

impl Reference {
    /// Length in bytes, at the end of a record.
    pub(super) const LEN: usize = 24;

    pub(super) fn write(&self, to: &mut [u8]) {
        to[..8].copy_from_slice(&self.payload.addr.to_le_bytes());
        to[8..16].copy_from_slice(&self.recalls.to_le_bytes());
        to[16..20].copy_from_slice(&self.payload.len.to_le_bytes());
        to[20..Self::LEN].copy_from_slice(&self.rest.to_le_bytes());
    }

    /// Splits a record into what precedes the payload, and the reference to it; `None` if it is too short.
    pub(super) fn split(record: &[u8]) -> Option<(&[u8], Reference)> {
        let (before, end) = record.split_last_chunk::<{ Self::LEN }>()?;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| end[at + i]));
        let (addr, recalls, lengths) = (word(0), word(8), word(16));
        let payload = Segment { addr, len: lengths as u32 };
        Some((before, Reference { payload, rest: (lengths >> 32) as u32, recalls }))
    }
}

/// A word of the sender's memory by which a receiver finds out whether it can read it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Probe {
    pub(super) addr: u64,
    pub(super) value: u64,
}

impl Probe {
    /// Length of the message in bytes.
    pub(super) const LEN: usize = 17;

    /// Returns that of this process; `None` if there is no randomness for it.
    pub(super) fn own() -> Option<Probe> {
        static WORD: OnceLock<u64> = OnceLock::new();
        if WORD.get().is_none() {
            let _ = WORD.set(sys::random().ok()?);
        }
        WORD.get().map(|word| Probe { addr: std::ptr::from_ref(word).addr() as u64, value: *word })
    }

    pub(super) fn message(&self) -> [u8; Self::LEN] {
        let mut message = [b'p'; Self::LEN];
        message[1..9].copy_from_slice(&self.addr.to_le_bytes());
        message[9..].copy_from_slice(&self.value.to_le_bytes());
        message
    }

    pub(super) fn parse(message: &[u8]) -> Option<Probe> {
        let (b'p', words) = message.split_first()? else { return None };
        let (addr, value) = words.split_first_chunk()?;
        Some(Probe { addr: u64::from_le_bytes(*addr), value: u64::from_le_bytes(value.try_into().ok()?) })
    }
}

/// Whether payloads are copied into a ring or better left in place, by what the copies cost.
#[derive(Debug)]
pub(super) struct Choice {
    mode: CrossMemory,
    refers: bool,
    /// The next copy is timed: [`Self::copied`] wants to know.
    pub(super) timed: bool,
    payloads: u32,
    /// Average time of a copy of 4 KiB, ns.
    average: u64,
}

impl Choice {
    pub(super) fn new(mode: CrossMemory) -> Choice {
        Choice { mode, refers: mode == CrossMemory::On, timed: false, payloads: 0, average: (SLOW + FAST) / 2 }
    }

    /// Returns whether the next payload is better left in place.
    #[inline]
    pub(super) fn refers(&mut self) -> bool {
        if self.mode != CrossMemory::Auto {
            return self.refers;
        }
        self.payloads = self.payloads.wrapping_add(1);
        if self.refers {
            self.timed = self.payloads.is_multiple_of(STILL_COPIED);
            return !self.timed;
        }
        self.timed = self.payloads.is_multiple_of(TIMED);
        false
    }

    /// Records that a copy of `bytes` took `ns`.
    #[cold]
    pub(super) fn copied(&mut self, bytes: usize, ns: u64) {
        self.timed = false;
        let ns = (ns.saturating_mul(4096) / bytes.max(1) as u64).min(LONGEST);
        self.average = (3 * self.average + ns) / 4;
        self.refers = self.average > if self.refers { FAST } else { SLOW };
    }
}

/// The rings of a port whose references can be recalled.
#[derive(Clone, Default)]
pub(super) struct Recalls(Arc<Mutex<Vec<RingRecall>>>);

impl Recalls {
    /// Adds a ring.
    pub(super) fn add(&self, ring: RingRecall) {
        let mut rings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rings.retain(RingRecall::is_open);
        rings.push(ring);
    }

    /// Recalls all references.
    pub(super) fn recall(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(RingRecall::recall);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn references_and_probes_are_read_as_written() {
        let reference = Reference { payload: Segment { addr: 0x7f12_3456_789a, len: 4096 }, rest: 7, recalls: 1 << 40 };
        let mut record = [9; 30];
        reference.write(&mut record[6..]);
        assert_eq!(Reference::split(&record), Some((&[9; 6][..], reference)));
        assert_eq!(Reference::split(&record[..23]), None);
        let probe = Probe::own().unwrap();
        assert_eq!(Some(probe), Probe::own());
        let message = probe.message();
        assert_eq!(Probe::parse(&message), Some(probe));
        assert!([&message[..16], &message[1..], &[0; 17]].iter().all(|odd| Probe::parse(odd).is_none()));
    }

    /// Returns how many of 1,000 payloads are left in place if copying 4 KiB takes `ns`.
    fn left(choice: &mut Choice, ns: u64) -> usize {
        let mut left = 0;
        for _ in 0..1_000 {
            left += usize::from(choice.refers());
            if choice.timed {
                choice.copied(2048, ns / 2);
            }
        }
        left
    }

    #[test]
    fn payloads_are_left_in_place_while_copies_are_slow() {
        let mut auto = Choice::new(CrossMemory::Auto);
        assert_eq!(left(&mut auto, 300), 0);
        assert!(left(&mut auto, 2_000) > 900);
        assert!(left(&mut auto, 700) > 900, "between the limits nothing changes");
        assert!(left(&mut auto, 300) < 500);
        assert_eq!(left(&mut auto, 700), 0);
        // One copy for which the thread lost its core.
        auto.copied(4096, 50_000_000);
        auto.refers = false;
        left(&mut auto, 300);
        assert_eq!(left(&mut auto, 300), 0);
        let (mut on, mut off) = (Choice::new(CrossMemory::On), Choice::new(CrossMemory::Off));
        assert_eq!((left(&mut on, 100), left(&mut off, 5_000)), (1_000, 0));
    }
}
