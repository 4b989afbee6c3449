//! Priority flow control (IEEE 802.1Qbb): which neighbours have been asked to stop.

use super::SwitchCtx;
use crate::network::Pause;
use crate::priorities::Priorities;

/// When an input asks its neighbour to stop, and when to go on.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// XOFF is sent when more than so many bytes are buffered.
    pub xoff: u64,
    /// XON is sent when no more than so many are left.
    pub xon: u64,
}

/// Of each input, the priorities that its neighbour was asked to stop.
#[derive(Clone, Debug)]
pub struct Pfc {
    paused: Vec<Priorities>,
}

impl Pfc {
    /// Nobody was asked yet.
    pub fn new(inputs: usize) -> Pfc {
        Pfc { paused: vec![Priorities::NONE; inputs] }
    }

    /// `buffered` bytes of `priority` came by `input`: asks its neighbour to stop or go on, if that changes anything.
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
