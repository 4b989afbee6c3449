//! Acknowledgements waiting for the link.

use crate::footprint::{bits, flag, footprint, left, maybe, why, width};
use crate::psn::Psn;
use crate::recovery::Sack;
use crate::room::boxed;
use crate::wire::Importance;

/// Maximum number of NACKs that a queue pair keeps until it may send. More are dropped with their selective
/// acknowledgements, so that packets are resent needlessly. A driver should therefore poll for output at least once per
/// this many packets.
pub const MAX_NACKS_WAITING: usize = 64;

/// Run length of an ACK whose selective sequence number names a packet received twice. Other ACKs have none.
pub(super) const DUPLICATE: u8 = 1;

/// Acknowledgements of one end of a stream. In-order acknowledgements are cumulative, so only the newest is kept; each
/// NACK carries a selective acknowledgement of its own, so each run of them is kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct AckQueue {
    cumulative: bool,
    /// A ring, empty or a power of two long, at most [`MAX_NACKS_WAITING`]: the peak number waiting so far.
    nacks: Box<[Sack]>,
    first: u8,
    count: u8,
    /// The NACK sent last, until it is sent again.
    sent: Option<Sack>,
    /// A packet received twice, to be reported; only the latest.
    duplicate: Option<Psn>,
    /// TLT: a pending echo, and the number of NACKs that precede it. With it `cumulative` is set.
    echo: Option<Echo>,
    before_echo: u8,
}

/// TLT: the response to an important packet (EuroSys 2021, §5.1).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Echo {
    /// Importance of the packet.
    pub importance: Importance,
    /// The packet, or the one requested by a clock without payload.
    pub psn: Psn,
    /// Whether it was placed: a clock without payload is not.
    pub arrived: bool,
}

/// The next acknowledgement to send.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ack {
    Cumulative,
    Selective(Sack),
    /// This packet was received twice.
    Duplicate(Psn),
    Echo(Echo),
}

impl Ack {
    /// Returns the packet named by an acknowledgement without a selective one, when everything before `expected` has
    /// arrived: the last of these, the echoed one, or with a run of 1 the one received twice.
    #[inline]
    pub(super) fn subject(&self, expected: Psn) -> Sack {
        match self {
            Ack::Echo(echo) => Sack { last: echo.psn, run: 0 },
            Ack::Duplicate(psn) => Sack { last: *psn, run: DUPLICATE },
            Ack::Cumulative | Ack::Selective(_) => Sack { last: expected.minus(1), run: 0 },
        }
    }

    /// Returns the run acknowledged selectively, if it is ahead of the expected packet.
    #[inline]
    pub(super) fn sack(&self) -> Option<Sack> {
        match self {
            Ack::Cumulative | Ack::Duplicate(_) => None,
            Ack::Selective(sack) => Some(*sack),
            Ack::Echo(echo) => echo.arrived.then_some(Sack { last: echo.psn, run: 0 }),
        }
    }
}

impl AckQueue {
    /// Initial room for NACKs.
    const FEW: usize = 4;

    /// Returns the position in the ring of the `n`-th NACK from the first.
    #[inline]
    fn place(&self, n: u8) -> usize {
        usize::from(self.first.wrapping_add(n)) & self.nacks.len().wrapping_sub(1)
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        !self.cumulative && self.count == 0 && self.duplicate.is_none()
    }

    /// Queues the report of a packet received twice, as in RFC 2883's D-SACK.
    #[cold]
    pub(super) fn push_duplicate(&mut self, psn: Psn) {
        self.duplicate = Some(psn);
    }

    #[inline]
    pub(super) fn push_cumulative(&mut self) {
        self.cumulative = true;
    }

    /// Queues the separate response to an important packet behind everything that waits: its sender treats as lost what
    /// is not acknowledged by then.
    #[cold]
    pub(super) fn push_echo(&mut self, echo: Echo) {
        self.echo = Some(echo);
        self.before_echo = self.count;
        self.cumulative = true;
    }

    #[inline]
    pub(super) fn push_selective(&mut self, psn: Psn) {
        // Consecutive packets that arrive while nothing is sent are merged.
        if self.count > 0 {
            let latest = self.place(self.count - 1);
            let latest = &mut self.nacks[latest];
            if latest.last.plus(1) == psn && latest.run < u8::MAX {
                *latest = Sack { last: psn, run: latest.run + 1 };
                return;
            }
        }
        if usize::from(self.count) < self.nacks.len() || self.grow() {
            let next = self.place(self.count);
            self.nacks[next] = Sack { last: psn, run: 0 };
            self.count += 1;
        }
    }

    /// [`Self::push_selective`] of a stream sent from its end: consecutive packets in either direction are merged.
    pub(super) fn push_run(&mut self, psn: Psn) {
        if self.count > 0 {
            let latest = self.place(self.count - 1);
            let latest = &mut self.nacks[latest];
            if psn.plus(1) == latest.last.minus(latest.run.into()) && latest.run < u8::MAX {
                latest.run += 1;
                return;
            }
        }
        self.push_selective(psn);
    }

    /// Makes room for more NACKs. Returns false if there are too many already, or there is no memory.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) -> bool {
        let len = (2 * self.nacks.len()).max(Self::FEW);
        if len > MAX_NACKS_WAITING {
            return false;
        }
        let Ok(mut nacks) = boxed(Sack { last: Psn::new(0), run: 0 }, len) else { return false };
        for n in 0..self.count {
            nacks[usize::from(n)] = self.nacks[self.place(n)];
        }
        (self.nacks, self.first) = (nacks, 0);
        true
    }

    /// Takes the next acknowledgement, NACKs first: they carry the same cumulative number. With `repeat`, a run of
    /// packets that a gap ends is sent twice: later NACKs, which repeat the packets right before their own
    /// ([`crate::recovery::Receiver::widen`]), will not include it.
    #[inline]
    pub(super) fn pop(&mut self, repeat: bool) -> Option<Ack> {
        if self.count > 0 && (self.echo.is_none() || self.before_echo > 0) {
            let sack = self.nacks[self.place(0)];
            if repeat
                && let Some(sent) = self.sent.take()
                && sent.last.plus(1).before(sack.last.minus(u32::from(sack.run)))
            {
                return Some(Ack::Selective(sent));
            }
            self.sent = Some(sack);
            self.first = self.first.wrapping_add(1);
            self.count -= 1;
            self.before_echo = self.before_echo.saturating_sub(1);
            // The cumulative number of a NACK is the newest as well.
            self.cumulative = self.echo.is_some();
            return Some(Ack::Selective(sack));
        }
        if let Some(psn) = self.duplicate.take() {
            self.cumulative = self.echo.is_some();
            return Some(Ack::Duplicate(psn));
        }
        let echo = self.echo.take();
        std::mem::take(&mut self.cumulative).then_some(echo.map_or(Ack::Cumulative, Ack::Echo))
    }

    /// Returns whether a cumulative acknowledgement waits, alone.
    #[inline]
    pub(super) fn is_cumulative(&self) -> bool {
        self.cumulative && self.count == 0 && self.duplicate.is_none() && self.echo.is_none()
    }

    /// Takes the cumulative acknowledgement.
    #[inline]
    pub(super) fn pop_cumulative(&mut self) {
        debug_assert!(self.is_cumulative(), "there is one");
        self.cumulative = false;
    }

    pub(super) fn clear(&mut self) {
        (self.cumulative, self.count, self.sent, self.echo) = (false, 0, None, None);
        self.duplicate = None;
    }
}

footprint!(AckQueue, |at| {
    cumulative => flag(),
    nacks => left(why::PORT).heap(MAX_NACKS_WAITING * size_of::<Sack>()),
    first => left(why::PORT),
    count => left(why::PORT),
    sent => maybe(width::PSN + 8).when(at.irn, why::IRN),
    duplicate => maybe(width::PSN).when(at.irn && at.evidence, why::OFF),
    echo => maybe(2 + width::PSN + 1).when(at.echoes, why::OFF),
    before_echo => bits(6).when(at.echoes, why::OFF),
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nacks_leave_in_order_however_many_wait() {
        let mut acks = AckQueue::default();
        let (mut pushed, mut popped) = (0, 0);
        // Every other packet, so that none is merged with the previous. Sixty-four have room; later ones are lost.
        for (push, pop, waiting) in [(3, 2, 1), (4, 0, 5), (10, 12, 3), (61, 0, 64), (5, 64, 0), (64, 64, 0)] {
            let room = MAX_NACKS_WAITING as u32 - (pushed - popped);
            for n in 0..push {
                acks.push_selective(Psn::new(2 * (pushed + n)));
            }
            pushed += push.min(room);
            for _ in 0..pop {
                let sack = Sack { last: Psn::new(2 * popped), run: 0 };
                assert_eq!(acks.pop(false), Some(Ack::Selective(sack)));
                popped += 1;
            }
            assert_eq!((pushed - popped, u32::from(acks.count)), (waiting, waiting));
        }
        assert!(acks.is_empty());
    }

    #[test]
    fn what_arrives_in_a_row_leaves_as_one() {
        let mut acks = AckQueue::default();
        for psn in [7, 8, 9, 11] {
            acks.push_selective(Psn::new(psn));
        }
        for (last, run) in [(9, 2), (11, 0)] {
            assert_eq!(acks.pop(false), Some(Ack::Selective(Sack { last: Psn::new(last), run })));
        }
        assert_eq!(acks.pop(false), None);
    }

    /// NACKs that wait when an important packet arrives are sent before its echo, later ones after it; however many
    /// NACKs wait, the echo is not lost.
    #[test]
    fn an_echo_keeps_its_place() {
        let nack = |psn| Some(Ack::Selective(Sack { last: Psn::new(psn), run: 0 }));
        let echo = Echo { importance: Importance::Important, psn: Psn::new(7), arrived: true };
        let mut acks = AckQueue::default();
        acks.push_cumulative();
        acks.push_selective(Psn::new(3));
        acks.push_selective(Psn::new(5));
        acks.push_echo(echo);
        acks.push_selective(Psn::new(9));
        assert_eq!([(); 5].map(|()| acks.pop(false)), [nack(3), nack(5), Some(Ack::Echo(echo)), nack(9), None]);
        for n in 0..2 * MAX_NACKS_WAITING as u32 {
            acks.push_selective(Psn::new(2 * n));
        }
        acks.push_echo(echo);
        for n in 0..MAX_NACKS_WAITING as u32 {
            assert_eq!(acks.pop(false), nack(2 * n));
        }
        assert!(!acks.is_empty());
        assert_eq!([(); 2].map(|()| acks.pop(false)), [Some(Ack::Echo(echo)), None]);
        acks.push_echo(echo);
        acks.clear();
        assert!(acks.is_empty() && acks.pop(true).is_none());
    }
}
