//! Tokens of an output: slots in its escape queue.

/// Slots of an escape queue by state. The three add up to its capacity at any time.
#[derive(Copy, Clone, Debug)]
pub(super) struct Pool {
    capacity: u16,
    /// T(p^E): free slots.
    free: u16,
    /// Slots reserved for frames to which tokens are on their way, or that are on their way themselves.
    out: u16,
    /// Slots taken by frames in the queue.
    taken: u16,
    /// Whether `free` has changed since the last call of [`Self::reclaim`].
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

    /// Whether tokens are out that have not come back as frames.
    pub(super) fn is_owed(&self) -> bool {
        self.out > 0
    }

    /// Notes that `free` has changed.
    #[inline]
    fn note(&mut self) {
        self.changed = true;
        debug_assert_eq!(self.free + self.out + self.taken, self.capacity, "{self:?}");
    }

    /// Reserves a slot for a token that is sent. Requires a free slot.
    pub(super) fn send(&mut self) {
        debug_assert!(self.free > 0);
        self.free -= 1;
        self.out += 1;
        self.note();
    }

    /// Takes a slot for a frame of this switch's own that is to escape. Requires a free slot.
    pub(super) fn take(&mut self) {
        debug_assert!(self.free > 0);
        self.free -= 1;
        self.taken += 1;
        self.note();
    }

    /// Takes the slot reserved for a frame that has arrived, or a free one if its own was reclaimed. Returns false if
    /// there is none.
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

    /// Frees the slot of a frame that has left the queue.
    #[inline]
    pub(super) fn leave(&mut self) {
        self.taken -= 1;
        self.free += 1;
        self.note();
    }

    /// Frees the slot of a token that is out, for which no frame will come. Returns whether there was one.
    pub(super) fn take_back(&mut self) -> bool {
        let owed = self.is_owed();
        if owed {
            self.out -= 1;
            self.free += 1;
            self.note();
        }
        owed
    }

    /// Ends an interval: reclaims a token if T has not changed in it (§4.3.3.5). Returns whether it did.
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
        // Reclaiming a token does not count as a change.
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
