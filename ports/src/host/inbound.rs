//! The receiving side of a link from another process, or from this one.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use irnic_nic::copy_bytes;
use irnic_transports::Time;

use super::hello::{HELLO, RECORD, other_version};
use super::outbound::place;
use super::sys;
use crate::RxFrame;
use crate::link::RING_BYTES;
use crate::prefix::Untagger;
use crate::region::Region;
use crate::ring::{CONTROL, Consumer, Corrupt};
use crate::stamp::RingClock;

/// Byte that notifies a sender that there is room again.
const ROOM: &[u8] = b"r";

/// Maximum number of messages after the first that are read from a refused connection.
const WAKE_UPS: usize = 8;

/// Result of the first message of a new connection.
pub(super) enum Greeting {
    /// No message has arrived yet.
    Pending(OwnedFd),
    /// A link whose ring was passed and accepted.
    Link(Inbound),
    /// The connection has ended or its message is invalid.
    Refused,
    /// The peer process has this other version of the layout.
    OtherVersion(OwnedFd, u8),
}

/// Result of reading from a sender.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    WakeUp,
    Nothing,
    /// The connection has ended, or a message was invalid.
    End,
}

pub(super) struct Inbound {
    /// Identifies the link in events. Successive processes in one slot have different ids.
    pub(super) id: u32,
    /// `None` for the link of this process to itself, and after the sender has ended.
    connection: Option<OwnedFd>,
    ring: Consumer,
    untagger: Untagger,
    /// The sender has ended: the link is closed once its frames have been taken.
    ended: bool,
}

/// Reads the first message of a new connection.
pub(super) fn greet(connection: OwnedFd, id: u32) -> Greeting {
    // One more byte, to detect a longer message.
    let mut bytes = [0; HELLO.len() + 1];
    let message = match sys::receive(connection.as_fd(), &mut bytes) {
        Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return Greeting::Pending(connection),
        Ok(message) if bytes[..message.len] == HELLO => message,
        Ok(message) => {
            let Some(theirs) = other_version(&bytes[..message.len]) else { return Greeting::Refused };
            // Notifies the peer, which may have ended. Closing a connection with unread data discards what was sent on
            // it, so wake-ups are read first.
            let _ = sys::send(connection.as_fd(), &HELLO, &[]);
            let _ = (0..WAKE_UPS).try_for_each(|_| sys::receive(connection.as_fd(), &mut bytes).map(drop));
            return Greeting::OtherVersion(connection, theirs);
        }
        Err(_) => return Greeting::Refused,
    };
    let Some(memory) = message.fd else { return Greeting::Refused };
    match ring(&memory) {
        Some(ring) => Greeting::Link(Inbound::new(id, Some(connection), ring)),
        None => Greeting::Refused,
    }
}

/// Maps the ring in a file that a peer passed; `None` if the file cannot hold one.
fn ring(memory: &OwnedFd) -> Option<Consumer> {
    let len = sys::sealed_len(memory.as_fd())?;
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

    /// Creates the link of this process to itself.
    pub(super) fn loopback(ring: Consumer, id: u32) -> Inbound {
        Inbound::new(id, None, ring)
    }

    pub(super) fn connection(&self) -> Option<BorrowedFd<'_>> {
        self.connection.as_ref().map(AsFd::as_fd)
    }

    /// Passes this process's bell to the sender. Returns whether that succeeded.
    pub(super) fn give_bell(&self, bell: BorrowedFd<'_>) -> bool {
        self.connection().is_some_and(|connection| sys::send(connection, &HELLO, &[bell]).is_ok())
    }

    /// Reads one wake-up byte from the sender; further ones are reported again later.
    pub(super) fn listen(&self) -> Heard {
        let Some(connection) = self.connection() else { return Heard::Nothing };
        match sys::receive(connection, &mut [0; HELLO.len() + 1]) {
            Ok(sys::Message { len: 1, .. }) => Heard::WakeUp,
            Err(e) if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted) => {
                Heard::Nothing
            }
            _ => Heard::End,
        }
    }

    /// Marks the link as ended and removes its connection from the epoll set. Frames in the ring can still be taken.
    pub(super) fn end(&mut self, epoll: &sys::Epoll) {
        if let Some(connection) = self.connection.take() {
            epoll.remove(connection.as_fd());
        }
        self.ended = true;
    }

    /// Returns whether the link has ended and its ring is empty.
    pub(super) fn is_drained(&self) -> bool {
        self.ended && !self.ring.has_frames()
    }

    #[inline]
    pub(super) fn has_frames(&self) -> bool {
        self.ring.has_frames()
    }

    /// Records that all frames taken so far are answered.
    #[inline]
    pub(super) fn mark_answered(&mut self) {
        self.ring.mark_answered();
    }

    /// Passes up to `budget` frames to `each`. Every frame is copied first, so that the sender can no longer change it.
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
            copy_bytes(record.bytes, copy);
            let tag = record.tag;
            let arrived = clock.arrival(now, record.stamp, record.unseen_at);
            frames += 1;
            if let Some((path, icrc, at)) = self.untagger.untag(tag, copy) {
                each(RxFrame { path, bytes: &copy[at], arrived, icrc });
            }
            if self.ring.release() && self.ring.is_room_wanted() {
                // A failure to notify is the sender's problem.
                let _ = self.connection().map(|connection| sys::send(connection, ROOM, &[]));
            }
        }
        Ok(frames)
    }
}
