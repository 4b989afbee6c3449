//! What a look at memory shows of links.

use super::super::inbound::Inbound;
use super::Links;
use crate::Watched;

impl Links {
    /// Returns whether there are frames to take, or frames that wait for room.
    #[inline]
    pub(in crate::host) fn may_receive(&self) -> bool {
        !self.blocked.is_empty() || !self.waiting.is_empty() || self.inbound.iter().any(Inbound::has_frames)
    }

    /// Returns a word that changes with the next frame; `None` unless frames come through one ring.
    pub(in crate::host) fn watched(&self) -> Option<Watched> {
        if let [only] = &self.inbound[..] { Some(only.watched()) } else { None }
    }
}
