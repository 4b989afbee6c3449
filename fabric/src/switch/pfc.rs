//! Priority flow control (IEEE 802.1Qbb): which neighbours have been asked to stop.

use super::Surroundings;
use crate::port::Pause;

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
    stopped: Vec<u8>,
}

impl Pfc {
    /// Nobody was asked yet.
    pub fn new(inputs: usize) -> Pfc {
        Pfc { stopped: vec![0; inputs] }
    }

    /// `buffered` bytes of `priority` came by `input`: asks, if that changes anything.
    #[inline]
    pub fn update(&mut self, s: &mut Surroundings<'_>, input: u16, priority: u8, buffered: u64, at: Thresholds) {
        let stopped = &mut self.stopped[usize::from(input)];
        let bit = 1 << priority;
        if *stopped & bit == 0 {
            if buffered > at.xoff {
                *stopped |= bit;
                s.asks.push((input, Pause { priority, stop: true }));
            }
        } else if buffered <= at.xon {
            *stopped &= !bit;
            s.asks.push((input, Pause { priority, stop: false }));
        }
    }

    /// Inputs and priorities that are stopped.
    pub fn stopping(&self) -> Vec<(u16, u8)> {
        let bits =
            |(input, &mask): (usize, &u8)| (0..8).filter(move |p| mask >> p & 1 == 1).map(move |p| (input as u16, p));
        self.stopped.iter().enumerate().flat_map(bits).collect()
    }
}
