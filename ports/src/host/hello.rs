//! The first message on a connection between processes, and the longest record in a ring.

use crate::MAX_FRAME;
use crate::prefix::PREFIX;

/// The first message on a connection, sent with the ring or the bell: a magic, and the version of the layout of the
/// memory passed, and of the frames in it.
pub(super) const HELLO: [u8; 8] = *b"IRNICHL\x06";

/// Returns the version of the layout in a first message, if it is not this one.
pub(super) fn other_version(message: &[u8]) -> Option<u8> {
    let (version, program) = message.split_last()?;
    (program == &HELLO[..7] && message != HELLO).then_some(*version)
}

/// Longest record in a ring, in bytes.
pub(super) const RECORD: usize = PREFIX + MAX_FRAME;
