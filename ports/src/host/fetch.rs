//! How a receiver copies the payloads that frames refer to ([`super::reference`]), many by one system call.

use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};

use irnic_transports::{Segment, Time};

use super::hello::RECORD;
use super::reference::{Probe, Reference};
use super::sys;

/// Maximum number of frames whose payloads are copied at once.
const FRAMES: usize = sys::MAX_PIECES;
/// Bytes of the frames whose payloads are copied at once: they stay in the second-level cache.
const ROOM: usize = 144 << 10;

/// A process whose memory can be read.
#[derive(Debug)]
pub(super) struct Sender {
    process: u32,
    /// Becomes readable when the process ends.
    end: OwnedFd,
}

impl Sender {
    /// Returns the process at the other end of a connection if its word can be read.
    pub(super) fn reached_by(probe: &Probe, connection: BorrowedFd<'_>) -> Option<Sender> {
        let process = sys::peer_process(connection)?;
        let sender = Sender { process, end: sys::watch(process).ok()? };
        let mut word = [0; 8];
        let all = 0..word.len();
        let there = sender.read(&[Segment { addr: probe.addr, len: 8 }], &mut word, &[all]);
        (there && u64::from_ne_bytes(word) == probe.value).then_some(sender)
    }

    /// Copies memory of the process into ranges of `to`. Returns whether all was read, and was that process's.
    fn read(&self, from: &[Segment], to: &mut [u8], ranges: &[Range<usize>]) -> bool {
        let bytes: usize = ranges.iter().map(ExactSizeIterator::len).sum();
        // Another process can have its id only if it has ended.
        sys::read_process(self.process, from, to, ranges).is_ok_and(|read| read == bytes) && !sys::has_ended(&self.end)
    }
}

/// A frame whose payload is to be copied.
#[derive(Debug)]
pub(super) struct Referred {
    pub(super) tag: u32,
    pub(super) arrived: Time,
    pub(super) recalls: u64,
    /// Its place, with what precedes the frame in its record.
    pub(super) record: Range<usize>,
}

/// Frames whose payloads are copied together.
#[derive(Debug, Default)]
pub(super) struct Fetch {
    bytes: Vec<u8>,
    frames: Vec<Referred>,
    from: Vec<Segment>,
    to: Vec<Range<usize>>,
}

impl Fetch {
    /// Returns whether another frame fits.
    pub(super) fn has_room(&self) -> bool {
        self.frames.len() < FRAMES && self.frames.last().is_none_or(|last| last.record.end + RECORD <= ROOM)
    }

    /// Adds the frame of a record. Returns false if no correct peer writes such a record.
    pub(super) fn add(&mut self, tag: u32, arrived: Time, record: &[u8]) -> bool {
        let Some((before, Reference { payload, rest, recalls })) = Reference::split(record) else { return false };
        let (len, rest) = (payload.len as usize, rest as usize);
        if len == 0 || len.saturating_add(rest).saturating_add(before.len()) > RECORD {
            return false;
        }
        self.bytes.resize(ROOM, 0);
        let start = self.frames.last().map_or(0, |last| last.record.end);
        let at = start + before.len();
        let end = at + len + rest;
        self.bytes[start..at].copy_from_slice(before);
        self.bytes[at + len..end].fill(0);
        match self.from.last_mut() {
            // The packets of a message follow each other in memory.
            Some(last) if last.addr.wrapping_add(last.len.into()) == payload.addr => last.len += payload.len,
            _ => self.from.push(payload),
        }
        self.to.push(at..at + len);
        self.frames.push(Referred { tag, arrived, recalls, record: start..end });
        true
    }

    /// Copies all payloads. Returns whether that succeeded.
    pub(super) fn read(&mut self, sender: &Sender) -> bool {
        sender.read(&self.from, &mut self.bytes, &self.to)
    }

    /// Returns the frames and the bytes of their records.
    pub(super) fn frames(&self) -> impl Iterator<Item = (&Referred, &[u8])> {
        self.frames.iter().map(|frame| (frame, &self.bytes[frame.record.clone()]))
    }

    /// Forgets all frames.
    pub(super) fn clear(&mut self) {
        self.frames.clear();
        self.from.clear();
        self.to.clear();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn impossible_references_are_refused_and_neighbours_read_together() {
        let record = |addr, len, rest| {
            let mut record = [7; 8 + Reference::LEN];
            Reference { payload: Segment { addr, len }, rest, recalls: 0 }.write(&mut record[8..]);
            record
        };
        let mut fetch = Fetch::default();
        let limit = RECORD as u32 - 8;
        for (len, rest) in [(0, 4), (limit + 1, 0), (limit, 1), (4096, u32::MAX), (u32::MAX, u32::MAX)] {
            assert!(!fetch.add(0, Time::ZERO, &record(4096, len, rest)), "{len} and {rest}");
        }
        assert!(!fetch.add(0, Time::ZERO, &[0; Reference::LEN - 1]));
        assert!(fetch.add(0, Time::ZERO, &record(u64::MAX, 1, 4)) && fetch.add(0, Time::ZERO, &record(0, limit, 0)));
        assert_eq!((fetch.from.len(), fetch.to.len()), (1, 2), "addresses wrap, and the kernel refuses them");
        fetch.clear();
        let mut added = 0;
        while fetch.has_room() {
            assert!(fetch.add(0, Time::ZERO, &record(4096 + 4096 * added, 4096, 4)));
            added += 1;
        }
        assert_eq!((added, fetch.from.len()), (FRAMES as u64, 1));
        fetch.clear();
        while fetch.has_room() {
            assert!(fetch.add(0, Time::ZERO, &record(1 << 20, limit, 0)));
        }
        assert!(fetch.frames.last().is_some_and(|last| last.record.end <= ROOM));
    }
}
