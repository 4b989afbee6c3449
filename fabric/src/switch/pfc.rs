//! Priority flow control (IEEE 802.1Qbb): which neighbours have been asked to pause.

use super::SwitchCtx;
use crate::network::Pause;
use crate::priorities::Priorities;

/// Thresholds at which an input asks its neighbour to pause and resume.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// XOFF is sent when more than this many bytes are buffered.
    pub xoff: u64,
    /// XON is sent when at most this many bytes are left.
    pub xon: u64,
}

/// Of each input, the priorities that its neighbour was asked to pause.
#[derive(Clone, Debug)]
pub struct Pfc {
    paused: Vec<Priorities>,
}

impl Pfc {
    /// State in which no neighbour is paused.
    pub fn new(inputs: usize) -> Pfc {
        Pfc { paused: vec![Priorities::NONE; inputs] }
    }

    /// Takes note of the `buffered` bytes of `priority` from `input`, and asks the neighbour to pause or resume if that
    /// changes.
    #[inline]
    pub fn update(&mut self, ctx: &mut SwitchCtx<'_>, input: u16, priority: u8, buffered: u64, at: Thresholds) {
        let paused = &mut self.paused[usize::from(input)];
        if !paused.contains(priority) {
            if buffered > at.xoff {
                paused.insert(priority);
                ctx.request_pause(input, Pause { priority, stop: true });
            }
        } else if buffered <= at.xon {
            paused.remove(priority);
            ctx.request_pause(input, Pause { priority, stop: false });
        }
    }

    /// Inputs whose neighbours are paused, each with the priority.
    pub fn paused_upstreams(&self) -> Vec<(u16, u8)> {
        let each = |(input, set): (usize, &Priorities)| set.iter().map(move |priority| (input as u16, priority));
        self.paused.iter().enumerate().flat_map(each).collect()
    }
}
