//! The receiving side of a link from another process, or from this one.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use irnic_nic::copy_bytes;
use irnic_transports::Time;

use super::fetch::{Fetch, Sender};
use super::hello::{HELLO, RECORD, other_version};
use super::outbound::place;
use super::reference::{FOLLOWS, Probe};
use super::sys;
use crate::link::RING_BYTES;
use crate::prefix::Untagger;
use crate::region::Region;
use crate::ring::{CONTROL, Consumer, Corrupt};
use crate::stamp::RingClock;
use crate::{RxFrame, Watched};

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

/// Copies of frames on their way from the rings of a port to the NIC.
pub(super) struct Copies {
    frame: Box<[u8; RECORD]>,
    fetch: Fetch,
    /// Frames whose payload could no longer be read.
    pub(super) unreadable: u64,
}

impl Default for Copies {
    fn default() -> Copies {
        Copies { frame: Box::new([0; RECORD]), fetch: Fetch::default(), unreadable: 0 }
    }
}

pub(super) struct Inbound {
    /// Identifies the link in events. Successive processes in one slot have different ids.
    pub(super) id: u32,
    /// `None` for the link of this process to itself, and after the sender has ended.
    connection: Option<OwnedFd>,
    ring: Consumer,
    untagger: Untagger,
    /// The process that references lead into, once it has offered them and its memory was found readable.
    sender: Option<Sender>,
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
        Inbound { id, connection, ring, untagger: Untagger::default(), sender: None, ended: false }
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

    /// Reads one wake-up byte or offer from the sender; further ones are reported again later. `follows`: offers of
    /// references are accepted.
    pub(super) fn listen(&mut self, follows: bool) -> Heard {
        let Some(connection) = &self.connection else { return Heard::Nothing };
        // One more byte, to detect a longer message.
        let mut bytes = [0; Probe::LEN + 1];
        match sys::receive(connection.as_fd(), &mut bytes) {
            Ok(sys::Message { len: 1, .. }) => Heard::WakeUp,
            Ok(sys::Message { len, fd: None }) => {
                let Some(probe) = Probe::parse(&bytes[..len]) else { return Heard::End };
                self.sender = follows.then(|| Sender::reached_by(&probe, connection.as_fd())).flatten();
                if self.sender.is_some() {
                    // Otherwise it goes on copying.
                    let _ = sys::send(connection.as_fd(), FOLLOWS, &[]);
                }
                Heard::Nothing
            }
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

    /// Returns a word that changes when there are frames to take, if there are none now.
    pub(super) fn watched(&self) -> Watched {
        self.ring.watched()
    }

    /// Records that all frames taken so far are answered.
    #[inline]
    pub(super) fn mark_answered(&mut self) {
        self.ring.mark_answered();
    }

    /// Passes up to `budget` frames to `each`. Every frame is copied first, so that the sender can no longer change it.
    /// After an error the link has to be closed.
    #[inline]
    pub(super) fn receive(
        &mut self,
        now: Time,
        budget: usize,
        clock: &mut RingClock,
        copies: &mut Copies,
        each: &mut dyn FnMut(RxFrame<'_>),
    ) -> Result<usize, Corrupt> {
        // `referred`: payloads are still to be copied.
        let (mut frames, mut referred) = (0, false);
        while frames < budget {
            let Some(record) = self.ring.pop(now)? else { break };
            let tag = record.tag;
            let arrived = clock.arrival(now, record.stamp, record.unseen_at);
            frames += 1;
            if record.by_reference {
                let len = record.bytes.len() as u64;
                // Those before it may be of a link that was closed.
                if !referred {
                    copies.fetch.clear();
                }
                if !copies.fetch.add(tag, arrived, record.bytes) {
                    return Err(Corrupt { what: "the length of a reference", value: len, limit: RECORD as u64 });
                }
                referred = copies.fetch.has_room();
                if !referred {
                    copies.unreadable += self.follow(&mut copies.fetch, each);
                }
            } else {
                let copy = &mut copies.frame[..record.bytes.len()];
                copy_bytes(record.bytes, copy);
                if referred {
                    referred = false;
                    copies.unreadable += self.follow(&mut copies.fetch, each);
                }
                if let Some(frame) = self.untagger.untag(tag, copy, arrived) {
                    each(frame);
                }
            }
            if self.ring.release() && self.ring.is_room_wanted() {
                // A failure to notify is the sender's problem.
                let _ = self.connection().map(|connection| sys::send(connection, ROOM, &[]));
            }
        }
        if referred {
            copies.unreadable += self.follow(&mut copies.fetch, each);
        }
        Ok(frames)
    }

    /// Copies the payloads that frames refer to, and passes the frames to `each`. Returns the number of those that are
    /// dropped because their payload may have changed or could not be read.
    #[inline(never)]
    fn follow(&mut self, fetch: &mut Fetch, each: &mut dyn FnMut(RxFrame<'_>)) -> u64 {
        let read = self.sender.as_ref().is_some_and(|sender| fetch.read(sender));
        if !read {
            self.ring.refuse_references();
        }
        let recalls = self.ring.recalls();
        let mut dropped = 0;
        for (frame, record) in fetch.frames() {
            let Some(untagged) = self.untagger.untag(frame.tag, record, frame.arrived) else { continue };
            if read && frame.recalls == recalls {
                each(untagged);
            } else {
                dropped += 1;
            }
        }
        dropped
    }
}
