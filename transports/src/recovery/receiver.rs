//! receiveData: which packets of a stream have arrived, and which messages that completes.

use super::{Bitmap, Sack};
use crate::footprint::{Item, bits, footprint, part, sequence, why};
use crate::psn::Psn;
use crate::wire::Opcode;

/// Effect of a packet on the message count once everything before it has arrived (IRN §4.4.3, "last packet issues").
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Class {
    /// A packet that ends nothing.
    Middle,
    /// The end of a message that consumes no receive WQE: last or only WRITE, READ or ATOMIC request.
    Last,
    /// The end of a message that consumes a receive WQE: last or only SEND, WRITE with immediate.
    LastWithCqe,
}

impl Class {
    /// Returns the class of a request packet.
    #[inline]
    pub fn of(opcode: Opcode) -> Class {
        use Opcode::*;
        match opcode.in_rc() {
            RcSendLast | RcSendLastImm | RcSendOnly | RcSendOnlyImm | RcSendLastInvalidate | RcSendOnlyInvalidate
            | RcWriteLastImm | RcWriteOnlyImm => Class::LastWithCqe,
            RcWriteLast | RcWriteOnly | RcReadRequest | RcCompareSwap | RcFetchAdd | RcAtomicWrite | RcFlush => {
                Class::Last
            }
            _ => Class::Middle,
        }
    }
}

/// Position of a packet in the stream.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The expected one.
    InOrder,
    /// Ahead of the expected one by this many places, not seen before.
    OutOfOrder(u32),
    /// Behind the expected one, or ahead of it and seen before.
    Duplicate,
    /// Too far ahead to be tracked. Must not be acknowledged.
    OutOfWindow,
}

/// What was reported to the peer about the packet expected now.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Reported {
    Nothing,
    /// It is missing.
    Missing,
    /// It arrived, and is to be resent when there is room for it.
    NotReady,
}

/// The receiving end of a stream: IRN's 2-bitmap, expected sequence number and MSN.
#[derive(Clone, Debug)]
pub struct Receiver {
    expected: Psn,
    msn: Psn,
    /// What the peer knows of the packet expected now.
    reported: Reported,
    /// Plane 0: arrived, and either ends no message or completes a receive WQE. Plane 1: arrived and ends a message.
    arrived: Bitmap<2>,
}

impl Receiver {
    /// Creates a stream whose next packet is `expected`, with room for `window` packets out of order.
    pub fn new(expected: Psn, msn: Psn, window: u32) -> Receiver {
        Receiver { expected, msn, reported: Reported::Nothing, arrived: Bitmap::new(window) }
    }

    /// Returns the next sequence number in order: everything before it has arrived.
    #[inline]
    pub fn expected(&self) -> Psn {
        self.expected
    }

    /// Returns the number of messages completed in order so far.
    #[inline]
    pub fn msn(&self) -> Psn {
        self.msn
    }

    /// Returns whether packets ahead of the expected one have arrived.
    #[inline]
    pub fn has_gap(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// Returns the position of `psn`, and makes room to track it; changes nothing else. Without memory for that it
    /// counts as outside the window.
    #[inline]
    pub fn locate(&mut self, psn: Psn) -> Arrival {
        let ahead = psn.distance(self.expected);
        if ahead == 0 {
            Arrival::InOrder
        } else if ahead < 0 {
            Arrival::Duplicate
        } else if !self.arrived.reserve(ahead as u32) {
            Arrival::OutOfWindow
        } else if self.arrived.any(ahead as u32) {
            Arrival::Duplicate
        } else {
            Arrival::OutOfOrder(ahead as u32)
        }
    }

    /// Records that `psn` has arrived. Returns whether it was ahead of the expected one (so that a NACK is due), and
    /// how many receive WQEs are complete now that were not before.
    #[inline]
    pub fn receive_data(&mut self, psn: Psn, class: Class) -> (bool, u32) {
        let ahead = psn.distance(self.expected);
        if ahead < 0 {
            return (false, 0);
        }
        if ahead > 0 {
            self.arrived.set(ahead as u32, [class != Class::Last, class != Class::Middle]);
            return (true, 0);
        }
        let mut messages = u32::from(class != Class::Middle);
        let mut cqes = u32::from(class == Class::LastWithCqe);
        let mut run = 1;
        if !self.arrived.is_empty() {
            // Offset 0, the packet just received, was never set.
            run = self.arrived.first_clear(1);
            self.arrived.advance(run, |[data, end]| {
                messages += end.count_ones();
                cqes += (data & end).count_ones();
            });
        }
        self.reported = Reported::Nothing;
        self.expected = self.expected.plus(run);
        self.msn = self.msn.plus(messages);
        (false, cqes)
    }

    /// Handles an out-of-order packet that is not kept: returns whether the one expected now is to be NACKed. Once per
    /// gap (IBA 9.7.5.2.3), or `each` time; but not if the peer knows that it is missing.
    #[inline]
    pub fn nacks(&mut self, each: bool) -> bool {
        match self.reported {
            Reported::Nothing => {
                self.reported = Reported::Missing;
                true
            }
            Reported::Missing => each,
            Reported::NotReady => false,
        }
    }

    /// Records that the packet expected now arrived, and the peer was asked to resend it later: the following ones are
    /// thereby out of order.
    #[inline]
    pub fn not_ready(&mut self) {
        self.reported = Reported::NotReady;
    }

    /// Extends a selective acknowledgement by all packets right before it that have arrived at any time, to repeat the
    /// contents of lost acknowledgements.
    #[inline]
    pub fn widen(&self, sack: Sack) -> Sack {
        let ahead = sack.last.distance(self.expected).max(0) as u32;
        Sack { last: sack.last, run: self.arrived.run_before(ahead).min(255) as u8 }
    }

    /// Returns the first and the last of the consecutive packets around `psn`, which is ahead of the expected one, that
    /// have arrived.
    pub fn block(&self, psn: Psn) -> (Psn, Psn) {
        let ahead = psn.distance(self.expected).max(0) as u32;
        let (first, end) = (ahead - self.arrived.run_before(ahead), self.arrived.first_clear(ahead));
        (self.expected.plus(first), self.expected.plus(end.max(ahead + 1) - 1))
    }

    /// Records `packets` packets and `messages` messages as arrived in order: plain RoCE's in-order path, where a READ
    /// request takes as many sequence numbers as its response has packets (IBA 9.7.3.1). Only without a gap.
    #[inline]
    pub fn skip(&mut self, packets: u32, messages: u32) {
        debug_assert!(!self.has_gap());
        self.reported = Reported::Nothing;
        self.expected = self.expected.plus(packets);
        self.msn = self.msn.plus(messages);
    }
}

footprint!(Receiver, |at| {
    expected => sequence(),
    msn => sequence(),
    reported => bits(2),
    arrived => part(arrived).is(Item::Received).when(at.irn, why::ORDER),
});

#[cfg(test)]
mod tests {
    use super::*;

    fn receiver() -> Receiver {
        Receiver::new(Psn::new(0xff_fffe), Psn::new(0), 128)
    }

    #[test]
    fn a_gap_completes_messages_only_when_it_closes() {
        let mut r = receiver();
        let p = |n| Psn::new(0xff_fffe).plus(n);
        assert_eq!(r.receive_data(p(2), Class::LastWithCqe), (true, 0));
        assert_eq!(r.receive_data(p(3), Class::Last), (true, 0));
        assert_eq!(r.receive_data(p(1), Class::Middle), (true, 0));
        assert_eq!((r.expected(), r.msn()), (p(0), Psn::new(0)));
        assert_eq!(r.receive_data(p(0), Class::LastWithCqe), (false, 2));
        assert_eq!((r.expected(), r.msn()), (p(4), Psn::new(3)));
        assert!(!r.has_gap());
    }

    #[test]
    fn a_gap_is_told_once_or_each_time_and_one_the_peer_knows_of_not_at_all() {
        for each in [false, true] {
            let mut r = receiver();
            assert_eq!([(); 3].map(|()| r.nacks(each)), [true, each, each]);
            r.skip(1, 0);
            assert!(r.nacks(each));
            r.not_ready();
            assert!(!r.nacks(each));
            r.skip(1, 0);
            assert!(r.nacks(each));
        }
    }

    #[test]
    fn locates_duplicates_and_what_lies_out_of_the_window() {
        let mut r = receiver();
        let p = |n| Psn::new(0xff_fffe).plus(n);
        r.receive_data(p(5), Class::Middle);
        for (psn, arrival) in [
            (p(0), Arrival::InOrder),
            (p(1), Arrival::OutOfOrder(1)),
            (p(5), Arrival::Duplicate),
            (p(127), Arrival::OutOfOrder(127)),
            (p(128), Arrival::OutOfWindow),
            (p(0).minus(1), Arrival::Duplicate),
        ] {
            assert_eq!(r.locate(psn), arrival, "{psn:?}");
        }
    }
}
