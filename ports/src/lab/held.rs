//! Frames that wait until their time has come.

/// A frame for a guest or a kernel. Processes have the time of each frame, and wait until it has come; these take what
/// they are given, and the network is ahead of time by up to the time that a frame takes to the first switch.
pub(super) struct Held {
    pub at: u64,
    pub host: u32,
    pub src: u32,
    pub udp_src: u16,
    pub traffic_class: u8,
    pub corrupted: bool,
    pub frame: Vec<u8>,
}
