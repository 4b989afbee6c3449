//! A lock-free ring of frames with one producer and one consumer, over memory that either may share with a stranger.
//!
//! Positions are bytes ever written, so they only grow; the low bits are the place in the ring. A record is a header
//! and the frame's bytes, begins on a cache line, and never wraps: what does not fit before the end leaves a skip record
//! and begins at the start. Variable-length records keep small frames in few cache lines, where fixed 4 KiB slots would
//! put every header into the same cache set. Frames that are sent together have one stamp, and only the first bears it.
//!
//! Nothing read from the ring is trusted. The other party can at worst make frames wrong or missing, or have
//! [`Corrupt`] reported; it cannot cause an access outside the ring.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use irnic_transports::Time;

use super::region::{PAGE, Region, Shared};

/// Records begin on cache lines: the producer never writes a line that the consumer still reads.
const LINE: u64 = 64;
/// Bytes of a header: a word with the frame's length in the low half and the tag in the high half, and a word with the stamp.
const HEADER: usize = 2 * WORD;
const WORD: usize = 8;
/// Set in a length: the stamp is that of the record before, 0 if there is none, and left out.
const SAME: u32 = 1 << 31;
/// Length that says: nothing more before the end of the ring.
const SKIP: u32 = u32::MAX;
/// Frames after which the producer publishes by itself. Each publication moves a cache line between the cores: at 64 B,
/// 16 gives 44 Mpps where 1 gives 29.
const PUBLISH_EVERY: u32 = 16;

/// Bytes of control words before a ring's data.
pub(super) const CONTROL: usize = PAGE;

/// What the other party wrote into the ring cannot be.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("shared ring is corrupt: {what} is {value}, the limit is {limit}")]
pub struct Corrupt {
    /// Which value.
    pub what: &'static str,
    /// What it was.
    pub value: u64,
    /// The largest that it could have been.
    pub limit: u64,
}

/// A word alone on its cache line, and on the next one, which the prefetcher fetches along.
#[repr(C, align(128))]
struct Alone(AtomicU64);

/// The positions that the two parties tell each other.
#[repr(C)]
struct Positions {
    /// Written by the producer: every record before it is complete.
    head: Alone,
    /// Written by the consumer: every byte before it may be overwritten.
    tail: Alone,
    /// 1 while the producer waits for room and wants to be told.
    wanted: Alone,
    /// Written by the consumer when it finds the ring empty: every byte before it was taken.
    emptied: Alone,
}

// SAFETY: four atomics and padding, aligned to 128.
unsafe impl Shared for Positions {}

/// Where a ring lies: control words at `offset`, `capacity` bytes of data (a power of two, at least 16 frames) after them.
#[derive(Copy, Clone, Debug)]
pub(super) struct Place {
    pub(super) offset: usize,
    pub(super) capacity: usize,
    /// Longest frame in bytes.
    pub(super) max_frame: usize,
}

impl Place {
    /// Bytes from `offset` to the end of the ring.
    pub(super) fn len(&self) -> usize {
        CONTROL + self.capacity
    }

    fn check(&self, region: &Region) {
        assert!(self.capacity.is_power_of_two() && self.capacity >= 16 * record(HEADER, self.max_frame) as usize);
        region.bytes(self.offset, self.len());
        region.object::<Positions>(self.offset);
    }
}

/// Bytes that a frame of `len` bytes takes in the ring behind a header of `header`.
fn record(header: usize, len: usize) -> u64 {
    ((header + len) as u64).next_multiple_of(LINE)
}

/// The writing end.
pub(super) struct Producer {
    region: Arc<Region>,
    place: Place,
    /// Where the next record goes.
    next: u64,
    /// What the consumer was told last.
    published: u64,
    /// The consumer's tail when last read.
    tail: u64,
    unpublished: u32,
    /// Of the last record.
    stamp: u64,
}

impl Producer {
    /// The only producer of a ring that is fresh: all zero.
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

    /// Whether a frame of the largest size fits now.
    pub(super) fn has_room(&mut self) -> Result<bool, Corrupt> {
        self.room_for(2 * record(HEADER, self.place.max_frame))
    }

    /// How many bytes the consumer was shown, and how many of them it has taken: all, if it has found the ring empty since.
    pub(super) fn progress(&self) -> (u64, u64) {
        let Positions { tail, emptied, .. } = self.positions();
        let taken = |at: &Alone| self.published.wrapping_sub(at.0.load(Ordering::Acquire));
        // By distances: what the consumer says may be anything.
        let left = taken(tail).min(taken(emptied)).min(self.place.capacity as u64);
        (self.published, self.published.saturating_sub(left))
    }

    /// Asks the consumer to tell when it has made room. Then comes a fence, and then another look at [`Self::has_room`].
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

    /// Writes one frame of `len` bytes (at most `max_frame`) by `fill`. False if there is no room.
    #[inline]
    pub(super) fn push(
        &mut self,
        len: usize,
        tag: u32,
        stamp: u64,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<bool, Corrupt> {
        assert!(len <= self.place.max_frame, "a frame of {len} bytes, {} at the most", self.place.max_frame);
        let capacity = self.place.capacity as u64;
        let (header, same) = if stamp == self.stamp { (WORD, SAME) } else { (HEADER, 0) };
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
        self.word(self.next).store(u64::from(len as u32 | same) | u64::from(tag) << 32, Ordering::Relaxed);
        if same == 0 {
            self.word(self.next + WORD as u64).store(stamp, Ordering::Relaxed);
            self.stamp = stamp;
        }
        let offset = (self.next & (capacity - 1)) as usize;
        let at = self.region.bytes(self.place.offset + CONTROL + offset + header, len);
        // SAFETY: inside the region. These bytes lie between the consumer's tail and our unpublished head, so by the ring's
        // protocol only the producer, which is `self`, touches them.
        fill(unsafe { std::slice::from_raw_parts_mut(at.as_ptr(), len) });
        self.next += size;
        self.unpublished += 1;
        if self.unpublished == PUBLISH_EVERY {
            self.publish();
        }
        Ok(true)
    }

    /// Shows the consumer all that was pushed. Returns whether there was something new.
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

/// The reading end.
pub(super) struct Consumer {
    region: Arc<Region>,
    place: Place,
    /// Where the next record begins.
    next: u64,
    /// The producer's head when last read.
    head: u64,
    /// What the producer was told last of room, and of an empty ring.
    released: u64,
    emptied: u64,
    /// Of the last record.
    stamp: u64,
    /// When the head was last read, and when it was before: then the frames up to it were not there yet.
    looked: Time,
    unseen_at: Time,
}

/// A frame in the ring, to be read before the next `release`.
pub(super) struct Record<'a> {
    pub(super) tag: u32,
    /// What the producer says of the time.
    pub(super) stamp: u64,
    /// When the ring was last looked at and it was not there; never if nobody has looked before.
    pub(super) unseen_at: Time,
    pub(super) bytes: &'a [u8],
}

impl Consumer {
    /// The only consumer of a ring that nobody has read from yet.
    pub(super) fn new(region: Arc<Region>, place: Place) -> Consumer {
        place.check(&region);
        let (looked, unseen_at) = (Time::NEVER, Time::NEVER);
        Consumer { region, place, next: 0, head: 0, released: 0, emptied: 0, stamp: 0, looked, unseen_at }
    }

    fn positions(&self) -> &Positions {
        self.region.object(self.place.offset)
    }

    /// Whether there is something to pop.
    pub(super) fn has_frames(&self) -> bool {
        self.next != self.head || self.positions().head.0.load(Ordering::Acquire) != self.next
    }

    /// The next frame, `None` if the producer has published no more.
    #[inline]
    pub(super) fn pop(&mut self, now: Time) -> Result<Option<Record<'_>>, Corrupt> {
        let capacity = self.place.capacity as u64;
        loop {
            if self.next == self.head {
                self.unseen_at = std::mem::replace(&mut self.looked, now);
                let head = self.positions().head.0.load(Ordering::Acquire);
                if head == self.next {
                    // Its own cache line: who reads it is in doubt, and nobody is who is answered.
                    if self.emptied != head {
                        self.emptied = head;
                        self.positions().emptied.0.store(head, Ordering::Release);
                    }
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
            let (header, len) = if len & SAME != 0 { (WORD, len & !SAME) } else { (HEADER, len) };
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
            let at = self.region.bytes(self.place.offset + CONTROL + offset as usize + header, len as usize);
            // SAFETY: inside the region. By the protocol the producer leaves these bytes alone until `release`, which the
            // borrow of `self` delays. A peer that breaks the protocol can change them; see `ShmPort::set_private_copy`.
            let bytes = unsafe { std::slice::from_raw_parts(at.as_ptr(), len as usize) };
            return Ok(Some(Record { tag: (what >> 32) as u32, stamp: self.stamp, unseen_at: self.unseen_at, bytes }));
        }
    }

    /// Gives the space of all popped frames back, if it is worth a cache line: an eighth of the ring. What is kept never
    /// hinders the producer of a ring that holds sixteen frames. Returns whether it was given back.
    #[inline]
    pub(super) fn release(&mut self) -> bool {
        if self.next - self.released < self.place.capacity as u64 / 8 {
            return false;
        }
        self.positions().tail.0.store(self.next, Ordering::Release);
        self.released = self.next;
        true
    }

    /// Whether the producer asked to be told of room; it has to ask again after this. To be called after a `release` that
    /// gave something back.
    pub(super) fn is_room_wanted(&self) -> bool {
        // Pairs with the fence after `want_room`: either we see the wish, or the producer sees the room.
        fence(Ordering::SeqCst);
        let wanted = &self.positions().wanted.0;
        wanted.load(Ordering::Relaxed) == 1 && wanted.swap(0, Ordering::Relaxed) == 1
    }
}

/// The word at position `at`, a multiple of 8.
fn word<'a>(region: &'a Region, place: &Place, at: u64) -> &'a AtomicU64 {
    let offset = (at & (place.capacity as u64 - 1)) as usize;
    let at = region.bytes(place.offset + CONTROL + offset, WORD);
    // SAFETY: inside the region and aligned to 8; headers are accessed only as atomics.
    unsafe { AtomicU64::from_ptr(at.as_ptr().cast()) }
}

#[cfg(test)]
mod tests;
