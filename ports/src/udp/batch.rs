//! The transmit queue of a UDP port, laid out so that one system call takes many frames: UDP_SEGMENT requires segments
//! of equal size, except that the last may be shorter, to one destination, contiguous in memory.

use std::net::IpAddr;

use irnic_transports::{Gather, Path};

/// Largest UDP payload over IPv4, segmented or not.
pub(super) const MAX_DATAGRAM: usize = 65507;

/// Maximum number of batches in the queue, and of messages of one sendmmsg.
pub(super) const MAX_BATCHES: usize = 128;

/// Bytes of the queue: four full batches. More would leave the L2 cache between filling and sending.
const ARENA: usize = 256 << 10;

/// Properties common to all frames of a batch.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) dst: IpAddr,
    pub(super) src: IpAddr,
    pub(super) traffic_class: u8,
    pub(super) hop_limit: u8,
}

impl From<&Path> for Target {
    #[inline]
    fn from(path: &Path) -> Target {
        Target { dst: path.dst, src: path.src, traffic_class: path.traffic_class, hop_limit: path.hop_limit }
    }
}

/// Consecutive frames sent together.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) target: Target,
    /// Range of the batch in the arena: its start and its length in bytes.
    pub(super) start: usize,
    pub(super) len: usize,
    /// Size of each frame except the last, which may be shorter.
    pub(super) segment: usize,
    pub(super) frames: usize,
    /// Number of its stretches that are still in the application's memory.
    left_out: usize,
    open: bool,
    /// There was credit for it.
    admitted: bool,
}

impl Batch {
    /// Returns the number of pieces that it consists of.
    pub(super) fn pieces(&self) -> usize {
        2 * self.left_out + 1
    }
}

/// A stretch of a batch that is still in the application's memory, with a place reserved in the arena.
#[derive(Copy, Clone, Debug)]
struct LeftOut {
    /// Offset of its place in the arena.
    start: usize,
    len: usize,
    addr: u64,
}

/// The buffers from which the kernel gathers a send. Nothing is kept here between calls.
#[derive(Default)]
pub(super) struct Pieces(Vec<libc::iovec>);

// SAFETY: the addresses are used only by the call that wrote them.
unsafe impl Send for Pieces {}

impl Pieces {
    fn push(&mut self, bytes: &[u8]) {
        self.0.push(libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() });
    }

    /// Returns the pieces, grouped by batch.
    pub(super) fn as_slice(&self) -> &[libc::iovec] {
        &self.0
    }
}

/// The transmit queue.
pub(super) struct TxQueue {
    /// Used as a ring: batches are adjacent, and none wraps around its end.
    arena: Box<[u8]>,
    /// Batches still to be sent.
    batches: Vec<Batch>,
    /// Their stretches in the application's memory, in order.
    left_out: Vec<LeftOut>,
    /// End of the last batch.
    end: usize,
    /// Maximum number of frames in one batch: 1 without UDP_SEGMENT.
    max_frames: usize,
    /// Maximum number of bytes of one batch of several frames.
    longest: usize,
}

impl TxQueue {
    pub(super) fn new(max_frames: usize) -> TxQueue {
        let arena = vec![1u8; ARENA].into_boxed_slice();
        let batches = Vec::with_capacity(MAX_BATCHES);
        TxQueue { arena, batches, left_out: Vec::new(), end: 0, max_frames, longest: MAX_DATAGRAM }
    }

    /// Sets the maximum number of bytes of a batch of several frames.
    pub(super) fn set_longest(&mut self, bytes: usize) {
        self.longest = bytes.min(MAX_DATAGRAM);
    }

    /// Calls `admit` for each of the first `count` batches that it has not admitted before, until it refuses one.
    /// Returns the number of admitted ones.
    pub(super) fn admit(&mut self, count: usize, mut admit: impl FnMut(&Batch) -> bool) -> usize {
        let refused = self.batches[..count].iter_mut().position(|batch| {
            batch.admitted = batch.admitted || admit(batch);
            !batch.admitted
        });
        refused.unwrap_or(count)
    }

    pub(super) fn max_frames(&self) -> usize {
        self.max_frames
    }

    /// Limits new batches to `frames` frames. Queued batches are unchanged.
    pub(super) fn set_max_frames(&mut self, frames: usize) {
        self.max_frames = frames;
        self.close();
    }

    /// Reserves room for a frame of `len` bytes to `target`, in a batch of its own if `alone`. Returns `None` if there
    /// is none until something has been sent.
    #[inline]
    pub(super) fn reserve(&mut self, target: &Target, len: usize, alone: bool) -> Option<&mut [u8]> {
        let start = match self.batches.last_mut() {
            Some(b)
                if b.open
                    && !alone
                    && len <= b.segment
                    && b.len + len <= self.longest
                    && len > 0
                    && b.target == *target =>
            {
                b.len += len;
                b.frames += 1;
                b.open = len == b.segment && b.frames < self.max_frames;
                self.end
            }
            _ => {
                let start = self.room()?;
                let open = !alone && self.max_frames > 1 && len > 0;
                let target = *target;
                let batch = Batch { target, start, len, segment: len, frames: 1, left_out: 0, open, admitted: false };
                self.batches.push(batch);
                start
            }
        };
        self.end = start + len;
        Some(&mut self.arena[start..start + len])
    }

    /// Sends the payload of the last reserved frame of `len` bytes, after its first `at` bytes, from its place in
    /// memory. It must stay there until it is sent, or until [`TxQueue::settle`].
    pub(super) fn leave_out(&mut self, len: usize, at: usize, payload: &Gather<'_>) {
        let Some(batch) = self.batches.last_mut() else { return };
        let mut start = self.end - len + at;
        for segment in payload.segments().iter().filter(|s| s.len > 0) {
            let len = segment.len as usize;
            assert!(start + len <= self.end, "a payload longer than its frame");
            self.left_out.push(LeftOut { start, len, addr: segment.addr });
            batch.left_out += 1;
            start += len;
        }
    }

    /// Copies everything left in place to the arena, while it is still there.
    pub(super) fn settle(&mut self) {
        for LeftOut { start, len, addr } in self.left_out.drain(..) {
            let place = &mut self.arena[start..start + len];
            // SAFETY: the caller of `leave_out` keeps it readable until now, and it is not in the arena.
            unsafe { std::ptr::copy_nonoverlapping(addr as *const u8, place.as_mut_ptr(), len) };
        }
        self.batches.iter_mut().for_each(|batch| batch.left_out = 0);
    }

    /// Returns where a batch may begin: with room for a whole one, since partial ones would cost a send each.
    #[inline]
    fn room(&self) -> Option<usize> {
        if self.batches.len() == MAX_BATCHES {
            return None;
        }
        let Some(first) = self.batches.first().map(|b| b.start) else { return Some(0) };
        let limit = if self.end > first { self.arena.len() } else { first };
        if self.end + MAX_DATAGRAM <= limit {
            Some(self.end)
        } else {
            (self.end > first && MAX_DATAGRAM <= first).then_some(0)
        }
    }

    /// Closes the last batch to further frames: it is being sent.
    pub(super) fn close(&mut self) {
        if let Some(last) = self.batches.last_mut() {
            last.open = false;
        }
    }

    /// Returns the batches to be sent, in order.
    pub(super) fn pending(&self) -> &[Batch] {
        &self.batches
    }

    /// Returns the number of batches that no further full-size frame can join.
    pub(super) fn closed(&self) -> usize {
        let joinable = |b: &Batch| b.open && b.len + b.segment <= self.longest;
        self.batches.len() - usize::from(self.batches.last().is_some_and(joinable))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Returns the bytes of a batch that is entirely in the arena.
    fn bytes(&self, batch: &Batch) -> &[u8] {
        debug_assert_eq!(batch.left_out, 0);
        &self.arena[batch.start..batch.start + batch.len]
    }

    /// Lists the pieces of the first `count` pending batches, [`Batch::pieces`] of each.
    pub(super) fn list(&self, count: usize, pieces: &mut Pieces) {
        pieces.0.clear();
        let mut left_out = self.left_out.iter();
        for batch in &self.batches[..count] {
            let mut at = batch.start;
            for stretch in left_out.by_ref().take(batch.left_out) {
                pieces.push(&self.arena[at..stretch.start]);
                pieces.0.push(libc::iovec { iov_base: stretch.addr as *mut libc::c_void, iov_len: stretch.len });
                at = stretch.start + stretch.len;
            }
            pieces.push(&self.arena[at..batch.start + batch.len]);
        }
    }

    /// Lists the frames of the first pending batch, which is entirely in the arena, one piece each.
    pub(super) fn list_frames(&self, pieces: &mut Pieces) {
        pieces.0.clear();
        if let Some(first) = self.batches.first() {
            self.bytes(first).chunks(first.segment).for_each(|frame| pieces.push(frame));
        }
    }

    /// Removes the first `count` pending batches.
    pub(super) fn advance(&mut self, count: usize) {
        let left_out: usize = self.batches.drain(..count).map(|batch| batch.left_out).sum();
        self.left_out.drain(..left_out);
    }

    /// Removes the first `frames` frames of the first pending batch.
    pub(super) fn advance_within(&mut self, frames: usize) {
        let Some(batch) = self.batches.first_mut() else { return };
        if frames >= batch.frames {
            return self.advance(1);
        }
        batch.start += frames * batch.segment;
        batch.len -= frames * batch.segment;
        batch.frames -= frames;
        batch.open = false;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use irnic_transports::Segment;

    use super::*;

    fn target(last: u8) -> Target {
        Target { dst: [10, 0, 0, last].into(), src: [10, 0, 0, 1].into(), traffic_class: 0, hop_limit: 64 }
    }

    fn shape(queue: &TxQueue) -> Vec<(usize, usize, usize)> {
        queue.pending().iter().map(|b| (b.segment, b.frames, b.len)).collect()
    }

    #[test]
    fn a_batch_ends_where_segmentation_would_cut_wrongly() {
        type Case = (&'static str, Vec<usize>, Vec<(usize, usize, usize)>);
        let cases: Vec<Case> = vec![
            ("equal frames share a batch", vec![100, 100, 100], vec![(100, 3, 300)]),
            ("a shorter one is the last", vec![100, 60, 100], vec![(100, 2, 160), (100, 1, 100)]),
            ("two short ones need two batches", vec![100, 60, 60], vec![(100, 2, 160), (60, 1, 60)]),
            ("a longer one begins anew", vec![60, 100, 100], vec![(60, 1, 60), (100, 2, 200)]),
            ("the segment limit", vec![8; 130], vec![(8, 128, 1024), (8, 2, 16)]),
            ("the datagram limit", vec![4200; 16], vec![(4200, 15, 63000), (4200, 1, 4200)]),
            ("an empty frame goes alone", vec![8, 0, 8], vec![(8, 1, 8), (0, 1, 0), (8, 1, 8)]),
        ];
        for (name, frames, expected) in cases {
            let mut queue = TxQueue::new(128);
            for len in frames {
                assert_eq!(queue.reserve(&target(2), len, false).unwrap().len(), len);
            }
            assert_eq!(shape(&queue), expected, "{name}");
        }
    }

    #[test]
    fn another_destination_class_or_hop_limit_begins_a_batch() {
        let mut queue = TxQueue::new(128);
        let a = target(2);
        for t in [a, a, target(3), a, Target { traffic_class: 2, ..a }, Target { hop_limit: 1, ..a }] {
            queue.reserve(&t, 10, false).unwrap();
        }
        assert_eq!(shape(&queue).iter().map(|b| b.1).collect::<Vec<_>>(), [2, 1, 1, 1, 1]);
    }

    #[test]
    fn without_segmentation_each_frame_is_a_batch() {
        let mut queue = TxQueue::new(1);
        for _ in 0..3 {
            queue.reserve(&target(2), 50, false).unwrap();
        }
        assert_eq!(shape(&queue), [(50, 1, 50); 3]);
    }

    #[test]
    fn a_frame_that_goes_alone_neither_joins_a_batch_nor_begins_one() {
        let mut queue = TxQueue::new(128);
        for alone in [false, false, true, true, false, false] {
            queue.reserve(&target(2), 100, alone).unwrap();
        }
        assert_eq!(shape(&queue), [(100, 2, 200), (100, 1, 100), (100, 1, 100), (100, 2, 200)]);
    }

    #[test]
    fn a_full_queue_refuses_until_something_is_sent() {
        let mut queue = TxQueue::new(128);
        let mut frames = 0;
        while queue.reserve(&target(2), 4000, false).is_some() {
            frames += 1;
        }
        assert_eq!(frames, 4 * 16);
        queue.close();
        let pending = queue.pending().len();
        queue.advance(1);
        assert!(queue.reserve(&target(2), 4000, false).is_none(), "there is no room for a whole batch");
        queue.advance(pending - 2);
        assert!(queue.reserve(&target(2), 4000, false).is_some());
        queue.advance(2);
        assert!(queue.is_empty() && queue.reserve(&target(2), 4000, false).is_some());

        let mut queue = TxQueue::new(1);
        for _ in 0..MAX_BATCHES {
            queue.reserve(&target(2), 1, false).unwrap();
        }
        assert!(queue.reserve(&target(2), 1, false).is_none());
    }

    #[test]
    fn a_batch_is_closed_when_no_frame_of_full_size_fits() {
        let mut queue = TxQueue::new(128);
        for frames in 1..=32 {
            queue.reserve(&target(2), 4200, false).unwrap();
            assert_eq!(queue.closed(), frames / 15, "{frames}");
        }
        queue.close();
        assert_eq!(queue.closed(), 3);
    }

    #[test]
    fn batches_never_overlap_however_many_are_sent_in_between() {
        let mut queue = TxQueue::new(128);
        for i in 0..10_000u64 {
            let len = 1000 + (i * 7919 % 61 * 50) as usize;
            if queue.reserve(&target(2), len, false).is_none() {
                queue.advance(1 + (i % queue.pending().len() as u64) as usize);
                continue;
            }
            let ranges = queue.pending().iter().map(|b| b.start..b.start + b.len);
            let mut ranges: Vec<_> = ranges.collect();
            ranges.sort_by_key(|r| r.start);
            assert!(ranges.windows(2).all(|w| w[0].end <= w[1].start) && ranges.last().unwrap().end <= ARENA, "{i}");
            if i % 3 == 0 {
                queue.advance(queue.closed());
            }
        }
    }

    /// Returns the contents of the pieces of the first `count` batches, concatenated.
    fn listed(queue: &TxQueue, count: usize) -> Vec<u8> {
        let mut pieces = Pieces::default();
        queue.list(count, &mut pieces);
        assert_eq!(pieces.as_slice().len(), queue.pending()[..count].iter().map(Batch::pieces).sum::<usize>());
        // SAFETY: the pieces are those of the queue and of payloads that the test still holds.
        let bytes = |p: &libc::iovec| unsafe { std::slice::from_raw_parts(p.iov_base.cast::<u8>(), p.iov_len) };
        pieces.as_slice().iter().flat_map(bytes).copied().collect()
    }

    #[test]
    fn what_is_left_out_is_listed_where_it_is_until_it_is_settled() {
        let mut queue = TxQueue::new(128);
        let mut payloads = [vec![2u8; 6], vec![5; 3], vec![6; 3]];
        let segment = |payload: &Vec<u8>| Segment { addr: payload.as_ptr() as u64, len: payload.len() as u32 };
        // 1222222333, then 4555666777 in two segments, then one entirely in the arena, then one to another target.
        for (fill, at, left_out) in [([1, 3], 1, 0..1), ([4, 7], 1, 1..3)] {
            let out = queue.reserve(&target(2), 10, false).unwrap();
            out[..at].fill(fill[0]);
            out[7..].fill(fill[1]);
            let segments: Vec<Segment> = payloads[left_out].iter().map(segment).collect();
            // SAFETY: the payloads outlive the queue.
            queue.leave_out(10, at, &unsafe { Gather::new(&segments) });
        }
        queue.reserve(&target(2), 10, false).unwrap().fill(8);
        queue.reserve(&target(3), 4, false).unwrap().fill(9);
        assert_eq!(shape(&queue), [(10, 3, 30), (4, 1, 4)]);
        let whole =
            [1, 2, 2, 2, 2, 2, 2, 3, 3, 3, 4, 5, 5, 5, 6, 6, 6, 7, 7, 7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 9, 9, 9, 9];
        assert_eq!(listed(&queue, 1), whole[..30]);
        assert_eq!(listed(&queue, 2), whole);
        queue.settle();
        payloads.iter_mut().for_each(|payload| payload.fill(0xee));
        assert_eq!(listed(&queue, 2), whole);
        let mut pieces = Pieces::default();
        queue.list_frames(&mut pieces);
        assert_eq!(pieces.as_slice().len(), 3);
    }

    #[test]
    fn batches_that_are_sent_take_what_they_left_out_along() {
        let mut queue = TxQueue::new(128);
        let payloads = [[7u8; 8], [8; 8], [9; 8]];
        for (last, payload) in payloads.iter().enumerate() {
            queue.reserve(&target(last as u8), 10, false).unwrap().fill(last as u8);
            let segments = [Segment { addr: payload.as_ptr() as u64, len: 8 }];
            // SAFETY: the payloads outlive the queue.
            queue.leave_out(10, 1, &unsafe { Gather::new(&segments) });
        }
        queue.advance(2);
        assert_eq!(listed(&queue, 1), [2, 9, 9, 9, 9, 9, 9, 9, 9, 2]);
        queue.advance(1);
        assert!(queue.is_empty() && queue.left_out.is_empty());
    }

    #[test]
    fn a_batch_that_was_sent_in_part_keeps_the_rest() {
        let mut queue = TxQueue::new(128);
        for i in [1u8, 2, 3] {
            queue.reserve(&target(2), if i == 3 { 4 } else { 10 }, false).unwrap().fill(i);
        }
        queue.advance_within(2);
        assert_eq!(shape(&queue), [(10, 1, 4)]);
        assert_eq!(queue.bytes(&queue.pending()[0]), [3; 4]);
        queue.reserve(&target(2), 10, false).unwrap();
        assert_eq!(queue.pending().len(), 2, "a batch in sending takes no more frames");
        queue.advance_within(1);
        assert_eq!(queue.pending().len(), 1);
    }
}
