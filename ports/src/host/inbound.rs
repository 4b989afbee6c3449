//! The receiving end of a link from another process, or from this one.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use irnic_transports::Time;

use super::outbound::place;
use super::{HELLO, RECORD, sys};
use crate::RxFrame;
use crate::link::RING_BYTES;
use crate::prefix::Untagger;
use crate::region::Region;
use crate::ring::{CONTROL, Consumer, Corrupt};
use crate::stamp::RingClock;

/// The byte that tells a sender that there is room again.
const ROOM: &[u8] = b"r";

/// What a new connection has come to.
pub(super) enum Greeting {
    /// It has not said yet what it wants.
    Silent(OwnedFd),
    /// It has passed its ring.
    Link(Inbound),
    /// It is gone, or what it said is not to be accepted.
    Refused,
}

pub(super) struct Inbound {
    /// Tells links apart in events; a slot may have several, of processes one after the other.
    pub(super) id: u32,
    /// `None` from this process itself, and once the sender is gone.
    connection: Option<OwnedFd>,
    ring: Consumer,
    untagger: Untagger,
    /// The sender is gone: the link ends when what it sent has been taken.
    ended: bool,
}

/// Hears what a new connection says.
pub(super) fn greet(connection: OwnedFd, id: u32) -> Greeting {
    // One more, so that a longer message is not taken for this one.
    let mut bytes = [0; HELLO.len() + 1];
    let message = match sys::receive(connection.as_fd(), &mut bytes) {
        Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return Greeting::Silent(connection),
        Ok(message) if bytes[..message.len] == HELLO => message,
        _ => return Greeting::Refused,
    };
    let Some(memory) = message.fd else { return Greeting::Refused };
    match ring(&memory) {
        Some(ring) => Greeting::Link(Inbound::new(id, Some(connection), ring)),
        None => Greeting::Refused,
    }
}

/// The ring in a file that a peer passed; `None` if it cannot be one.
fn ring(memory: &OwnedFd) -> Option<Consumer> {
    let len = super::sealed_len(memory.as_fd())?;
    let capacity = len.checked_sub(CONTROL)?;
    if !RING_BYTES.contains(&capacity) || !capacity.is_power_of_two() {
        return None;
    }
    Some(Consumer::new(Arc::new(Region::map(memory.as_fd(), len).ok()?), place(capacity)))
}

impl Inbound {
    fn new(id: u32, connection: Option<OwnedFd>, ring: Consumer) -> Inbound {
        Inbound { id, connection, ring, untagger: Untagger::default(), ended: false }
    }

    /// The link of this process to itself.
    pub(super) fn loopback(ring: Consumer, id: u32) -> Inbound {
        Inbound::new(id, None, ring)
    }

    pub(super) fn connection(&self) -> Option<BorrowedFd<'_>> {
        self.connection.as_ref().map(AsFd::as_fd)
    }

    /// Gives the sender this process's bell. Returns whether it took it.
    pub(super) fn give_bell(&self, bell: BorrowedFd<'_>) -> bool {
        self.connection().is_some_and(|connection| sys::send(connection, &HELLO, &[bell]).is_ok())
    }

    /// Reads one byte that the sender said to wake this process: one that says more is heard again later. Returns whether it
    /// still lives.
    pub(super) fn listen(&self) -> bool {
        let Some(connection) = self.connection() else { return true };
        match sys::receive(connection, &mut [0; HELLO.len() + 1]) {
            Ok(message) => message.len == 1,
            Err(e) => matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted),
        }
    }

    /// The sender is gone: its connection leaves the set that it is in. What it sent is still there to be taken.
    pub(super) fn end(&mut self, epoll: &sys::Epoll) {
        if let Some(connection) = self.connection.take() {
            epoll.remove(connection.as_fd());
        }
        self.ended = true;
    }

    /// Whether the link has ended and everything was taken.
    pub(super) fn is_over(&self) -> bool {
        self.ended && !self.ring.has_frames()
    }

    #[inline]
    pub(super) fn has_frames(&self) -> bool {
        self.ring.has_frames()
    }

    /// Gives up to `budget` frames to `each`, every one copied first, so that the sender cannot change it any more.
    #[inline]
    pub(super) fn receive(
        &mut self,
        now: Time,
        budget: usize,
        clock: &mut RingClock,
        copy: &mut [u8; RECORD],
        each: &mut dyn FnMut(RxFrame<'_>),
    ) -> Result<usize, Corrupt> {
        let mut frames = 0;
        while frames < budget {
            let Some(record) = self.ring.pop(now)? else { break };
            let copy = &mut copy[..record.bytes.len()];
            copy.copy_from_slice(record.bytes);
            let tag = record.tag;
            let arrived = clock.arrival(now, record.stamp, record.unseen_at);
            frames += 1;
            if let Some((path, icrc, at)) = self.untagger.untag(tag, copy) {
                each(RxFrame { path, bytes: &copy[at], arrived, icrc });
            }
            if self.ring.release() && self.ring.is_room_wanted() {
                // Whether it hears is its own affair.
                let _ = self.connection().map(|connection| sys::send(connection, ROOM, &[]));
            }
        }
        Ok(frames)
    }
}
