//! Copies of datagrams that could not leave when they were posted.
//!
//! IBA has memory belong to the NIC until the work request is complete (10.8.3.2). Applications that know a datagram's
//! fate otherwise, by the peer's answer, use it again before, and get away with it: a NIC in hardware has read a short
//! datagram long before. UCX 1.13 does so while it connects.

use std::collections::VecDeque;

use super::Ud;
use crate::qp::Host;
use crate::qp::context::QpContext;
use crate::room::{boxed, reserve};

/// A copy: of which work request, and room for a datagram.
type Copy = (u32, Box<[u8]>);

/// Copies of the data of work requests that wait, in the order of these. Their room stays: there is as much as there
/// were copies at a time.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiting {
    /// The first `used` have data.
    copies: VecDeque<Copy>,
    used: usize,
    /// Work requests before this one were looked at already.
    seen: u32,
}

impl Waiting {
    /// Returns the copy that a work request has, and `len` bytes long. It stays as it is until the next is made.
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

    /// Returns room for another copy, after those that there are; `None` if there is no memory.
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

    /// Forgets all copies.
    pub(super) fn clear(&mut self) {
        self.used = 0;
    }
}

impl Ud {
    /// Copies what waits and was not looked at yet. Where that cannot be, the work request's turn shows why, or there
    /// is no memory: its data is then read in its turn.
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
            // A change of the MTU may have left it behind.
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
