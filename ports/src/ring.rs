//! A lock-free single-producer, single-consumer ring of frames, in memory that may be shared with an untrusted process.
//!
//! Positions count the bytes written so far and only grow; the low bits are the place in the ring. A record is a header
//! and the bytes of one frame. It begins on a cache line and never wraps: if it does not fit before the end of the
//! ring, a skip record fills the rest and it begins at the start. Variable-length records keep small frames in few
//! cache lines, whereas fixed 4 KiB slots would put every header into the same cache set. Frames sent together share
//! one stamp, which only the first carries.
//!
//! Nothing read from the ring is trusted. A malicious peer can garble or lose its own frames, or cause a [`Corrupt`]
//! error; it cannot cause an access outside the ring.

use std::sync::{Arc, Weak};

use irnic_transports::Time;

use super::region::{PAGE, Region, Shared};
use super::sync::{AtomicU64, Ordering, fence};
use super::watched::Watched;

/// Alignment of records: one cache line, so that the producer never writes a line that the consumer still reads.
const LINE: u64 = 64;
/// Bytes of a header: one word with the frame's length in the low half and its tag in the high half, one word with its
/// stamp.
const HEADER: usize = 2 * WORD;
const WORD: usize = 8;
/// Flag in a length: the stamp equals that of the record before (0 if there is none) and is omitted.
const SAME_STAMP: u32 = 1 << 31;
/// Flag in a length: the payload is not in the ring ([`Record::by_reference`]).
const BY_REFERENCE: u32 = 1 << 30;
/// Length of a skip record, which fills the rest of the ring.
const SKIP: u32 = u32::MAX;
/// Frames after which the producer publishes on its own. Each publication moves a cache line between the cores: with
/// frames of 64 bytes, 16 gives 44 Mpps where 1 gives 29.
const PUBLISH_EVERY: u32 = 16;

/// Bytes of control words before a ring's data.
pub(super) const CONTROL: usize = PAGE;

/// A value in a shared ring that a correct peer cannot have written.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("shared ring is corrupt: {what} is {value}, the limit is {limit}")]
pub struct Corrupt {
    /// Name of the value.
    pub what: &'static str,
    /// The value found.
    pub value: u64,
    /// The largest valid value.
    pub limit: u64,
}

/// A word alone in its cache line and in the adjacent one, which the hardware prefetcher fetches with it.
#[derive(Default)]
#[repr(C, align(128))]
struct CacheAligned(AtomicU64);

/// Positions that the two sides publish to each other.
#[derive(Default)]
#[repr(C)]
struct Positions {
    /// Written by the producer: every record before this position is complete.
    head: CacheAligned,
    /// Written by the consumer: every byte before this position may be overwritten.
    tail: CacheAligned,
    /// 1 while the producer waits for room and wants a wake-up.
    wanted: CacheAligned,
    /// Written by the consumer once it has sent its answers: every byte before this position was taken and answered.
    answered: CacheAligned,
    /// Written by the producer: how many times it has recalled its references.
    recalls: CacheAligned,
    /// 1 once the consumer could not follow a reference.
    refused: CacheAligned,
}

// SAFETY: six atomics and padding, aligned to 128.
unsafe impl Shared for Positions {}

/// Location of a ring: control words at `offset`, followed by `capacity` bytes of data (a power of two, at least 16
/// frames).
#[derive(Copy, Clone, Debug)]
pub(super) struct Place {
    pub(super) offset: usize,
    pub(super) capacity: usize,
    /// Longest frame in bytes.
    pub(super) max_frame: usize,
}

impl Place {
    /// Returns the bytes from `offset` to the end of the ring.
    pub(super) fn len(&self) -> usize {
        CONTROL + self.capacity
    }

    fn check(&self, region: &Region) {
        assert!(self.capacity.is_power_of_two() && self.capacity >= 16 * record(HEADER, self.max_frame) as usize);
        assert!(self.offset + self.len() <= region.len(), "a ring of {} bytes at {}", self.len(), self.offset);
        region.object::<Positions>(self.offset);
    }

    /// Returns the offset of position `at` in the region.
    #[inline]
    fn data(&self, at: u64) -> usize {
        self.offset + CONTROL + (at & (self.capacity as u64 - 1)) as usize
    }
}

/// Returns the bytes that a frame of `len` bytes takes in the ring with a header of `header` bytes.
fn record(header: usize, len: usize) -> u64 {
    ((header + len) as u64).next_multiple_of(LINE)
}

/// The writing side of a ring.
pub(super) struct Producer {
    region: Arc<Region>,
    place: Place,
    /// Position of the next record.
    next: u64,
    /// Position last published to the consumer.
    published: u64,
    /// The consumer's tail when last read.
    tail: u64,
    unpublished: u32,
    /// Stamp of the last record.
    stamp: u64,
}

impl Producer {
    /// Creates the only producer of a fresh (zeroed) ring.
    pub(super) fn new(region: Arc<Region>, place: Place) -> Producer {
        place.check(&region);
        Producer { region, place, next: 0, published: 0, tail: 0, unpublished: 0, stamp: 0 }
    }

    fn positions(&self) -> &Positions {
        self.region.object(self.place.offset)
    }

    fn word(&self, at: u64) -> &AtomicU64 {
        word(&self.region, &self.place, at)
    }

    /// Returns whether a frame of the largest size fits now.
    pub(super) fn has_room(&mut self) -> Result<bool, Corrupt> {
        self.room_for(2 * record(HEADER, self.place.max_frame))
    }

    /// Returns how many bytes were published and how many of them the consumer has answered. What it published before
    /// it said so is visible to the caller.
    pub(super) fn progress(&self) -> (u64, u64) {
        // Computed as a distance: the consumer's value is untrusted.
        let left = self.published.wrapping_sub(self.positions().answered.0.load(Ordering::Acquire));
        (self.published, self.published.saturating_sub(left.min(self.place.capacity as u64)))
    }

    /// Requests a wake-up from the consumer when it has made room. The caller must issue a fence and then check
    /// [`Self::has_room`] again.
    pub(super) fn want_room(&self) {
        self.positions().wanted.0.store(1, Ordering::Relaxed);
    }

    #[inline]
    fn room_for(&mut self, bytes: u64) -> Result<bool, Corrupt> {
        let capacity = self.place.capacity as u64;
        if capacity - (self.next - self.tail) >= bytes {
            return Ok(true);
        }
        let tail = self.positions().tail.0.load(Ordering::Acquire);
        if self.next.wrapping_sub(tail) > capacity {
            return Err(Corrupt { what: "the consumer's position", value: tail, limit: self.next });
        }
        self.tail = tail;
        Ok(capacity - (self.next - tail) >= bytes)
    }

    /// Returns what recalls this ring's references.
    pub(super) fn recall(&self) -> RingRecall {
        RingRecall { region: Arc::downgrade(&self.region), place: self.place }
    }

    /// Returns the number of recalls of references so far.
    pub(super) fn recalls(&self) -> u64 {
        self.positions().recalls.0.load(Ordering::Relaxed)
    }

    /// Returns whether the consumer follows references, as far as it has reported.
    pub(super) fn takes_references(&self) -> bool {
        self.positions().refused.0.load(Ordering::Relaxed) == 0
    }

    /// Writes one frame of `len` bytes (at most `max_frame`) by calling `fill`. Returns false if there is no room.
    #[inline]
    pub(super) fn push(
        &mut self,
        len: usize,
        tag: u32,
        stamp: u64,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<bool, Corrupt> {
        self.push_record(0, len, tag, stamp, fill)
    }

    /// Writes a record of `len` bytes that refers to its frame's payload.
    pub(super) fn push_reference(
        &mut self,
        len: usize,
        tag: u32,
        stamp: u64,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<bool, Corrupt> {
        self.push_record(BY_REFERENCE, len, tag, stamp, fill)
    }

    #[inline(always)]
    fn push_record(
        &mut self,
        flag: u32,
        len: usize,
        tag: u32,
        stamp: u64,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<bool, Corrupt> {
        assert!(len <= self.place.max_frame, "a frame of {len} bytes, {} at the most", self.place.max_frame);
        let capacity = self.place.capacity as u64;
        let (header, same) = if stamp == self.stamp { (WORD, SAME_STAMP) } else { (HEADER, 0) };
        let size = record(header, len);
        let to_end = capacity - (self.next & (capacity - 1));
        let skip = if size > to_end { to_end } else { 0 };
        if !self.room_for(skip + size)? {
            return Ok(false);
        }
        if skip > 0 {
            self.word(self.next).store(u64::from(SKIP), Ordering::Relaxed);
            self.next += skip;
        }
        self.word(self.next).store(u64::from(len as u32 | same | flag) | u64::from(tag) << 32, Ordering::Relaxed);
        if same == 0 {
            self.word(self.next + WORD as u64).store(stamp, Ordering::Relaxed);
            self.stamp = stamp;
        }
        // SAFETY: these bytes lie between the consumer's tail and our unpublished head, and do not cross the end of the
        // ring, so by the ring's protocol only the producer, which is `self`, accesses them.
        unsafe { self.region.write(self.place.data(self.next) + header, len, fill) };
        self.next += size;
        self.unpublished += 1;
        if self.unpublished == PUBLISH_EVERY {
            self.publish();
        }
        Ok(true)
    }

    /// Publishes everything that was pushed. Returns whether there was anything new.
    #[inline]
    pub(super) fn publish(&mut self) -> bool {
        if self.published == self.next {
            return false;
        }
        self.positions().head.0.store(self.next, Ordering::Release);
        self.published = self.next;
        self.unpublished = 0;
        true
    }
}

/// The reading side of a ring.
pub(super) struct Consumer {
    region: Arc<Region>,
    place: Place,
    /// Position of the next record.
    next: u64,
    /// The producer's head when last read.
    head: u64,
    /// Positions last published to the producer: for room, and of what was answered.
    released: u64,
    answered: u64,
    /// Stamp of the last record.
    stamp: u64,
    /// Times of the last read of the head and of the one before: at the earlier one the frames up to the head were not
    /// there yet.
    read_at: Time,
    unseen_at: Time,
}

/// A frame in the ring. Must be read before the next `release`.
pub(super) struct Record<'a> {
    pub(super) tag: u32,
    /// The producer's time stamp, untrusted.
    pub(super) stamp: u64,
    /// When the ring was last read without this frame in it; [`Time::NEVER`] if it was not read before.
    pub(super) unseen_at: Time,
    /// The payload stays in the producer's memory; the bytes say where.
    pub(super) by_reference: bool,
    pub(super) bytes: &'a [u8],
}

impl Consumer {
    /// Creates the only consumer of a ring that has not been read from yet.
    pub(super) fn new(region: Arc<Region>, place: Place) -> Consumer {
        place.check(&region);
        let (read_at, unseen_at) = (Time::NEVER, Time::NEVER);
        Consumer { region, place, next: 0, head: 0, released: 0, answered: 0, stamp: 0, read_at, unseen_at }
    }

    fn positions(&self) -> &Positions {
        self.region.object(self.place.offset)
    }

    /// Returns whether there is a frame to pop.
    pub(super) fn has_frames(&self) -> bool {
        self.next != self.head || self.positions().head.0.load(Ordering::Acquire) != self.next
    }

    /// Returns the word that changes with the next frame, for a ring without frames.
    pub(super) fn watched(&self) -> Watched {
        Watched::new(self.region.clone(), |region| &region.object::<Positions>(self.place.offset).head.0, self.next)
    }

    /// Returns the stamp of the next frame, untrusted like everything in the ring; `None` if there is none.
    pub(super) fn next_stamp(&self) -> Option<u64> {
        if !self.has_frames() {
            return None;
        }
        let load = |at: u64| word(&self.region, &self.place, at).load(Ordering::Relaxed);
        let capacity = self.place.capacity as u64;
        let at = match load(self.next) as u32 {
            SKIP => self.next - (self.next & (capacity - 1)) + capacity,
            _ => self.next,
        };
        let same = load(at) as u32 & SAME_STAMP != 0;
        Some(if same { self.stamp } else { load(at + WORD as u64) })
    }

    /// Takes the next frame; `None` if the producer has published no more.
    #[inline]
    pub(super) fn pop(&mut self, now: Time) -> Result<Option<Record<'_>>, Corrupt> {
        let capacity = self.place.capacity as u64;
        loop {
            if self.next == self.head {
                self.unseen_at = std::mem::replace(&mut self.read_at, now);
                let head = self.positions().head.0.load(Ordering::Acquire);
                if head == self.next {
                    return Ok(None);
                }
                if head.wrapping_sub(self.released) > capacity || head.wrapping_sub(self.next) > capacity {
                    let limit = self.released + capacity;
                    return Err(Corrupt { what: "the producer's position", value: head, limit });
                }
                self.head = head;
            }
            let offset = self.next & (capacity - 1);
            let to_end = capacity - offset;
            let what = word(&self.region, &self.place, self.next).load(Ordering::Relaxed);
            let len = what as u32;
            if len == SKIP {
                // A skip at the ring's start would be followed by another, and so on.
                if offset == 0 || to_end > self.head - self.next {
                    let limit = self.head - self.next;
                    return Err(Corrupt { what: "the length of a skip record", value: to_end, limit });
                }
                self.next += to_end;
                continue;
            }
            let by_reference = len & BY_REFERENCE != 0;
            let header = if len & SAME_STAMP != 0 { WORD } else { HEADER };
            let len = len & !(SAME_STAMP | BY_REFERENCE);
            let size = record(header, len as usize);
            let limit = to_end.min(self.head - self.next);
            if len as usize > self.place.max_frame || size > limit {
                let limit = (self.place.max_frame as u64).min(limit.saturating_sub(header as u64));
                return Err(Corrupt { what: "the length of a frame", value: u64::from(len), limit });
            }
            if header == HEADER {
                self.stamp = word(&self.region, &self.place, self.next + WORD as u64).load(Ordering::Relaxed);
            }
            self.next += size;
            // SAFETY: they end before the ring does. By the protocol the producer leaves them alone until `release`,
            // which the borrow of `self` delays. A peer that breaks the protocol can change them; see
            // `ShmPort::set_private_copy`.
            let bytes =
                unsafe { self.region.slice(self.place.offset + CONTROL + offset as usize + header, len as usize) };
            let (tag, stamp, unseen_at) = ((what >> 32) as u32, self.stamp, self.unseen_at);
            return Ok(Some(Record { tag, stamp, unseen_at, by_reference, bytes }));
        }
    }

    /// Returns the space of all popped frames to the producer once it is an eighth of the ring, so that the update is
    /// worth a cache line. The space withheld never blocks the producer of a ring that holds sixteen frames. Returns
    /// whether space was returned.
    #[inline]
    pub(super) fn release(&mut self) -> bool {
        if self.next - self.released < self.place.capacity as u64 / 8 {
            return false;
        }
        self.positions().tail.0.store(self.next, Ordering::Release);
        self.released = self.next;
        true
    }

    /// Records that all popped frames are answered, and the answers published.
    #[inline]
    pub(super) fn mark_answered(&mut self) {
        // On a cache line of its own: only a producer that doubts its peer reads it, not one that gets answers.
        if self.answered != self.next {
            self.answered = self.next;
            self.positions().answered.0.store(self.next, Ordering::Release);
        }
    }

    /// Returns how many times the producer has recalled its references. What was read before this call, by a reference
    /// with the same number, had not changed.
    pub(super) fn recalls(&self) -> u64 {
        fence(Ordering::SeqCst);
        self.positions().recalls.0.load(Ordering::Acquire)
    }

    /// Reports that references cannot be followed.
    pub(super) fn refuse_references(&self) {
        self.positions().refused.0.store(1, Ordering::Relaxed);
    }

    /// Returns whether the producer asked for a wake-up, and clears the request. Call it after a `release` that
    /// returned space.
    pub(super) fn is_room_wanted(&self) -> bool {
        // Pairs with the fence after `want_room`: either we see the request, or the producer sees the room.
        fence(Ordering::SeqCst);
        let wanted = &self.positions().wanted.0;
        wanted.load(Ordering::Relaxed) == 1 && wanted.swap(0, Ordering::Relaxed) == 1
    }
}

/// A ring whose references can be recalled.
pub(super) struct RingRecall {
    region: Weak<Region>,
    place: Place,
}

impl RingRecall {
    /// Returns whether the ring is still in use.
    pub(super) fn is_open(&self) -> bool {
        self.region.strong_count() > 0
    }

    /// Recalls all references written so far: their payloads may change from now on.
    pub(super) fn recall(&self) {
        if let Some(region) = self.region.upgrade() {
            region.object::<Positions>(self.place.offset).recalls.0.fetch_add(1, Ordering::SeqCst);
            fence(Ordering::SeqCst);
        }
    }
}

/// Returns the word at position `at`, a multiple of 8, of a ring in the region.
fn word<'a>(region: &'a Region, place: &Place, at: u64) -> &'a AtomicU64 {
    // SAFETY: in the ring, which is in the region (`Place::check`). Headers are accessed only as atomics.
    unsafe { region.word(place.data(at)) }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod model;
