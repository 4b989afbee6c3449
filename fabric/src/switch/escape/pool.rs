//! Tokens of an output: room in its escape queue.

/// What the room in an escape queue is for. The three add up to its capacity at any time.
#[derive(Copy, Clone, Debug)]
pub(super) struct Pool {
    capacity: u16,
    /// T(p^E): for nobody yet.
    free: u16,
    /// For frames to which tokens are on their way, or that are on their way themselves.
    out: u16,
    /// For frames that are in the queue.
    taken: u16,
    /// Whether `free` has changed since [`Self::reclaim`] last looked.
    changed: bool,
}

impl Pool {
    pub(super) fn new(capacity: u16) -> Pool {
        Pool { capacity, free: capacity, out: 0, taken: 0, changed: false }
    }

    /// T(p^E).
    pub(super) fn free(&self) -> u16 {
        self.free
    }

    /// Frames in the queue.
    pub(super) fn taken(&self) -> u16 {
        self.taken
    }

    /// Whether tokens have gone out that have not come back as frames.
    pub(super) fn is_owed(&self) -> bool {
        self.out > 0
    }

    /// `free` has changed.
    #[inline]
    fn note(&mut self) {
        self.changed = true;
        debug_assert_eq!(self.free + self.out + self.taken, self.capacity, "{self:?}");
    }

    /// Sets room aside for a token that leaves. Only where there is some.
    pub(super) fn send(&mut self) {
        debug_assert!(self.free > 0);
        self.free -= 1;
        self.out += 1;
        self.note();
    }

    /// Takes room for a frame of this switch's own that is to escape. Only where there is some.
    pub(super) fn take(&mut self) {
        debug_assert!(self.free > 0);
        self.free -= 1;
        self.taken += 1;
        self.note();
    }

    /// Takes the room that was set aside for a frame that has come. Returns false if there is none, nor any other: its
    /// own was taken back.
    pub(super) fn arrive(&mut self) -> bool {
        let room = if self.out > 0 { &mut self.out } else { &mut self.free };
        if *room == 0 {
            return false;
        }
        *room -= 1;
        self.taken += 1;
        self.note();
        true
    }

    /// A frame has left the queue.
    #[inline]
    pub(super) fn leave(&mut self) {
        self.taken -= 1;
        self.free += 1;
        self.note();
    }

    /// No frame will come for one of the tokens that are out. Returns whether there was one.
    pub(super) fn take_back(&mut self) -> bool {
        let owed = self.is_owed();
        if owed {
            self.out -= 1;
            self.free += 1;
            self.note();
        }
        owed
    }

    /// An interval is over: takes a token back if T has not changed in it (§4.3.3.5). Returns whether it did.
    pub(super) fn reclaim(&mut self) -> bool {
        let reclaimed = !self.changed && self.take_back();
        self.changed = false;
        reclaimed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_set_aside_taken_and_given_back() {
        let mut pool = Pool::new(2);
        pool.send();
        pool.take();
        assert_eq!((pool.free(), pool.taken(), pool.is_owed()), (0, 1, true));
        assert!(pool.arrive() && !pool.arrive());
        pool.leave();
        pool.leave();
        assert_eq!((pool.free(), pool.taken(), pool.take_back()), (2, 0, false));
    }

    #[test]
    fn a_token_is_taken_back_after_an_interval_without_a_change() {
        let mut pool = Pool::new(3);
        pool.send();
        pool.send();
        assert!(!pool.reclaim(), "it has changed");
        assert!(pool.reclaim(), "it has not");
        // Taking one back is no change.
        assert!(pool.reclaim() && !pool.reclaim());
        assert_eq!(pool.free(), 3);
    }

    #[test]
    fn a_change_counts_although_as_many_are_free_as_before() {
        let mut pool = Pool::new(2);
        pool.send();
        assert!(!pool.reclaim());
        assert!(pool.take_back());
        pool.send();
        assert!(!pool.reclaim() && pool.reclaim());
    }
}
