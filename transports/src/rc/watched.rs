//! Bytes that an application may poll in memory, held back until everything before them has arrived.
//!
//! Packets of IRN are placed in order of arrival (§4.4.3). Programs that poll memory instead of a completion queue rely
//! on the last bytes of a message, or an atomic's result, being written last, as in plain RoCE: then all of that
//! message and of those before it are in place. So the end of a message that arrives early waits, and the rest does
//! not.

use crate::config::Placement;
use crate::packet::Payload;
use crate::psn::Psn;

/// The end of a message that has arrived, and belongs at `to`.
#[derive(Clone, Debug)]
struct End<T> {
    psn: Psn,
    to: T,
    bytes: Vec<u8>,
}

/// Held ends of messages. Their memory is reused.
#[derive(Clone, Debug)]
pub(super) struct Held<T> {
    ends: Vec<End<T>>,
    /// The first `waiting` of `ends` are valid.
    waiting: usize,
}

impl<T> Default for Held<T> {
    fn default() -> Held<T> {
        Held { ends: Vec::new(), waiting: 0 }
    }
}

/// Returns how many bytes at the end of an out-of-order packet are held; `ends`: it ends its message.
pub(super) fn kept(placement: Placement, ends: bool, payload: &Payload<'_>) -> usize {
    // Other payloads did not come from a network, or have no bytes.
    let Payload::Bytes(bytes) = payload else { return 0 };
    match placement {
        Placement::Any => 0,
        Placement::Watched if ends => bytes.len().min(Placement::WATCHED),
        Placement::Watched => 0,
        Placement::InOrder => bytes.len(),
    }
}

impl<T: Copy> Held<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Holds bytes of the packet `psn`, to be placed at `to`. Returns false if there is no memory for them.
    pub(super) fn keep(&mut self, psn: Psn, to: T, bytes: &[u8]) -> bool {
        if self.waiting == self.ends.len() {
            if self.ends.try_reserve(1).is_err() {
                return false;
            }
            self.ends.push(End { psn, to, bytes: Vec::new() });
        }
        let end = &mut self.ends[self.waiting];
        end.bytes.clear();
        if end.bytes.try_reserve(bytes.len()).is_err() {
            return false;
        }
        end.bytes.extend_from_slice(bytes);
        (end.psn, end.to) = (psn, to);
        self.waiting += 1;
        true
    }

    /// Passes the bytes of packets before `expected` to `place`, in their order.
    pub(super) fn release(&mut self, expected: Psn, mut place: impl FnMut(Psn, T, &[u8])) {
        loop {
            let due = self.ends[..self.waiting].iter().enumerate().filter(|(_, end)| end.psn.before(expected));
            let Some((first, end)) = due.reduce(|a, b| if b.1.psn.before(a.1.psn) { b } else { a }) else { return };
            place(end.psn, end.to, &end.bytes);
            self.waiting -= 1;
            self.ends.swap(first, self.waiting);
        }
    }

    /// Discards everything.
    pub(super) fn clear(&mut self) {
        self.waiting = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_placed_in_order_and_none_before_its_time() {
        let mut held = Held::default();
        for psn in [7, 3, 9, 5] {
            assert!(held.keep(Psn::new(psn), psn, &[psn as u8; 4]));
        }
        let placed = |held: &mut Held<u32>, expected: u32| {
            let mut placed = Vec::new();
            held.release(Psn::new(expected), |_, to, bytes| {
                assert_eq!(bytes, [to as u8; 4]);
                placed.push(to);
            });
            placed
        };
        assert!(placed(&mut held, 3).is_empty() && !held.is_empty());
        assert_eq!(placed(&mut held, 8), [3, 5, 7]);
        // Their memory is reused.
        assert!(held.keep(Psn::new(8), 8, &[8; 4]) && held.ends.len() == 4);
        assert_eq!(placed(&mut held, 10), [8, 9]);
        assert!(held.is_empty());
    }

    #[test]
    fn what_is_watched_is_the_end_of_a_message() {
        let bytes = [0; 1000];
        let payload = Payload::Bytes(&bytes);
        assert_eq!([true, false].map(|ends| kept(Placement::Watched, ends, &payload)), [64, 0]);
        assert_eq!([true, false].map(|ends| kept(Placement::InOrder, ends, &payload)), [1000, 1000]);
        assert_eq!([true, false].map(|ends| kept(Placement::Any, ends, &payload)), [0, 0]);
        assert_eq!(kept(Placement::Watched, true, &Payload::Bytes(&bytes[..10])), 10);
        assert_eq!(kept(Placement::InOrder, true, &Payload::Len(10)), 0);
    }
}
