//! Copies of datagrams that could not be sent when they were posted.
//!
//! By IBA the memory belongs to the NIC until the work request is complete (10.8.3.2). Applications that learn a
//! datagram's fate otherwise, from the peer's answer, reuse it before that, which works because hardware NICs have read
//! a short datagram long before. UCX 1.13 does so while it connects.

use std::collections::VecDeque;

use super::Ud;
use crate::qp::Host;
use crate::qp::context::QpContext;
use crate::room::{boxed, reserve};

/// A copy: the index of its work request, and a buffer for a datagram.
type Copy = (u32, Box<[u8]>);

/// Copies of the data of waiting work requests, in their order. Buffers are kept, up to the peak number of copies.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiting {
    /// The first `used` have data.
    copies: VecDeque<Copy>,
    used: usize,
    /// Work requests before this one were examined already.
    seen: u32,
}

impl Waiting {
    /// Returns the copy of a work request's data, `len` bytes long. It is unchanged until the next copy is made.
    pub(super) fn take(&mut self, index: u32, len: u32) -> Option<&[u8]> {
        while self.used > 0 {
            self.used -= 1;
            self.copies.rotate_left(1);
            if self.copies.back().is_some_and(|copy| copy.0 == index) {
                break;
            }
        }
        self.copies.back().filter(|copy| copy.0 == index)?.1.get(..len as usize)
    }

    /// Returns a buffer for another copy, after the existing ones; `None` if there is no memory.
    fn room(&mut self, mtu: usize) -> Option<&mut Copy> {
        if self.used == self.copies.len() {
            let room = boxed(0, mtu).ok()?;
            if !reserve(&mut self.copies) {
                return None;
            }
            self.copies.push_back((0, room));
        }
        let copy = &mut self.copies[self.used];
        if copy.1.len() < mtu {
            copy.1 = boxed(0, mtu).ok()?;
        }
        Some(copy)
    }

    /// Discards all copies.
    pub(super) fn clear(&mut self) {
        self.used = 0;
    }
}

impl Ud {
    /// Copies the data of waiting work requests not examined yet. If one cannot be copied, because of an error that its
    /// turn will report, or for lack of memory, its data is read in its turn.
    #[cold]
    pub(super) fn copy_what_waits(&mut self, c: &QpContext, host: &mut impl Host) {
        let Ud { sq, waiting, .. } = self;
        let unseen = sq.tail.wrapping_sub(waiting.seen).min(sq.len());
        for back in (1..=unseen).rev() {
            let index = sq.tail.wrapping_sub(back);
            let wqe = sq.get(index);
            if wqe.is_inline() || wqe.is_copied() || wqe.len == 0 {
                continue;
            }
            let Some((of, room)) = waiting.room(c.mtu as usize) else { break };
            // A change of the MTU may have left it too short.
            let Some(room) = room.get_mut(..wqe.len as usize) else { continue };
            if host.read_local(c.pd, sq.sges(index), room).is_ok() {
                *of = index;
                waiting.used += 1;
                sq.get_mut(index).set_copied();
            }
        }
        waiting.seen = sq.tail;
    }
}
