//! Completion queues: a ring, an arming state, and what happens when it overflows.

use irnic_transports::rc::{Wc, WcStatus};

/// When an armed completion queue raises an event (IBA 11.4.2.2).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Arm {
    /// At the next completion.
    Next,
    /// At the next solicited completion, or one in error.
    Solicited,
}

/// A completion queue.
#[derive(Debug)]
pub(crate) struct Cq {
    ring: Box<[Option<Wc>]>,
    head: u32,
    tail: u32,
    limit: u32,
    armed: Option<Arm>,
    overflowed: bool,
    /// Queue pairs whose completions come here.
    pub users: u32,
}

/// What a completion leads to.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    Quiet,
    /// The queue was armed for this.
    Event,
    /// There was no room: the completion is lost and the queue in error, now for the first time.
    Overflow,
}

impl Cq {
    pub fn new(limit: u32) -> Cq {
        let slots = limit.max(1).next_power_of_two() as usize;
        Cq {
            ring: vec![None; slots].into_boxed_slice(),
            head: 0,
            tail: 0,
            limit,
            armed: None,
            overflowed: false,
            users: 0,
        }
    }

    #[inline]
    pub fn len(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }

    pub fn overflowed(&self) -> bool {
        self.overflowed
    }

    #[inline]
    pub fn push(&mut self, wc: Wc) -> Pushed {
        if self.len() >= self.limit {
            return if std::mem::replace(&mut self.overflowed, true) { Pushed::Quiet } else { Pushed::Overflow };
        }
        let slot = self.tail as usize & (self.ring.len() - 1);
        self.ring[slot] = Some(wc);
        self.tail = self.tail.wrapping_add(1);
        let event = match self.armed {
            None => false,
            Some(Arm::Next) => true,
            Some(Arm::Solicited) => wc.solicited || wc.status != WcStatus::Success,
        };
        if event {
            self.armed = None;
            return Pushed::Event;
        }
        Pushed::Quiet
    }

    #[inline]
    pub fn pop(&mut self) -> Option<Wc> {
        if self.head == self.tail {
            return None;
        }
        let slot = self.head as usize & (self.ring.len() - 1);
        self.head = self.head.wrapping_add(1);
        self.ring[slot].take()
    }

    /// Arms for the next completion to come, not for those that are there (IBA 11.4.2.2). An armed queue stays at least as
    /// easily woken as it was.
    pub fn arm(&mut self, arm: Arm) {
        self.armed = Some(if self.armed == Some(Arm::Next) { Arm::Next } else { arm });
    }

    /// Removes the completions of a destroyed queue pair.
    pub fn purge(&mut self, qpn: u32) {
        let mut kept = self.head;
        for i in 0..self.len() {
            let slot = |n: u32| n as usize & (self.ring.len() - 1);
            let from = slot(self.head.wrapping_add(i));
            if self.ring[from].is_some_and(|wc| wc.qp_num != qpn) {
                let to = slot(kept);
                self.ring.swap(from, to);
                kept = kept.wrapping_add(1);
            }
        }
        self.tail = kept;
    }
}
