//! Result of sending packets.

/// Result of sending packets.
#[derive(Debug, Default)]
pub(super) struct Sent {
    /// The carrier has no room now.
    pub(super) full: bool,
    /// Bytes and error number of the first packet that can never be sent.
    pub(super) failed: Option<(usize, i32)>,
}
