//! Credit-based flow control (InfiniBand; IBTA volume 1, clause 7.9): the receiving end of a link grants a number of
//! bytes, which the sending end never exceeds.
//! ("flow control total bytes sent") and FCCL ("flow control credit limit") do, here in bytes modulo 2^32 instead of
//! blocks of 64 bytes modulo 2^12. A credit lost with its link is made good by the next; a lost packet is credited as
//! if it had been received, which InfiniBand learns from the next FCTBS.

use crate::priorities::Priorities;

/// Credits that a switch grants to each of its neighbours.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct CreditConfig {
    /// Buffer of an input for each priority, bytes on the wire: at least `longest`, below 2^31.
    pub each: u32,
    /// Length of the longest packet, bytes on the wire. A neighbour with less credit waits.
    pub longest: u32,
}

/// Counts per priority.
type Each = [u32; Priorities::COUNT];

/// Credit state of one end of a link.
#[derive(Clone, Debug, Default)]
pub(super) struct Credits {
    /// As a sender: bytes sent and allowed, and the longest packet. `None`: no limit.
    budget: Option<Budget>,
    /// As a receiver: bytes granted, and the priorities whose grant the other end has yet to learn. Priorities never
    /// granted are not limited.
    granted: Option<Each>,
    owed: Priorities,
}

#[derive(Copy, Clone, Debug)]
struct Budget {
    longest: u32,
    sent: Each,
    limit: Each,
}

impl Budget {
    /// Whether the credit may be too small for a packet.
    fn is_short(&self, priority: u8) -> bool {
        let priority = usize::from(priority);
        self.limit[priority].wrapping_sub(self.sent[priority]) < self.longest
    }
}

impl Credits {
    /// Has the other end limit this one.
    pub(super) fn limit(&mut self, config: CreditConfig) {
        let limit = [config.each; Priorities::COUNT];
        self.budget = Some(Budget { longest: config.longest, sent: [0; Priorities::COUNT], limit });
    }

    /// Has this end limit the other.
    pub(super) fn grant_all(&mut self, config: CreditConfig) {
        self.granted = Some([config.each; Priorities::COUNT]);
    }

    /// Counts `bytes` of a priority as sent; returns whether that exhausts its credit.
    pub(super) fn spend(&mut self, priority: u8, bytes: u32) -> bool {
        let Some(budget) = &mut self.budget else { return false };
        let sent = &mut budget.sent[usize::from(priority)];
        *sent = sent.wrapping_add(bytes);
        budget.is_short(priority)
    }

    /// Sets the limit of a priority, in bytes from the beginning; returns whether a packet fits.
    pub(super) fn allow(&mut self, priority: u8, limit: u32) -> bool {
        let Some(budget) = &mut self.budget else { return true };
        budget.limit[usize::from(priority)] = limit;
        !budget.is_short(priority)
    }

    /// Priorities without credit.
    pub(super) fn short(&self) -> Priorities {
        let Some(budget) = &self.budget else { return Priorities::NONE };
        let mut short = Priorities::NONE;
        (0..Priorities::COUNT as u8).filter(|p| budget.is_short(*p)).for_each(|p| short.insert(p));
        short
    }

    /// Grants `bytes` more of a priority.
    pub(super) fn grant(&mut self, priority: u8, bytes: u32) {
        if let Some(granted) = &mut self.granted {
            let granted = &mut granted[usize::from(priority)];
            *granted = granted.wrapping_add(bytes);
            self.owed.insert(priority);
        }
    }

    /// Marks all grants to be sent to the other end again.
    pub(super) fn repeat(&mut self) {
        self.owed = if self.granted.is_some() { Priorities::ALL } else { Priorities::NONE };
    }

    /// Whether a grant is to be sent to the other end.
    pub(super) fn is_owed(&self) -> bool {
        !self.owed.is_empty()
    }

    /// The next grant to send to the other end: a priority, and its limit in bytes from the beginning.
    pub(super) fn next(&mut self) -> Option<(u8, u32)> {
        let priority = self.owed.highest()?;
        self.owed.remove(priority);
        self.granted.map(|granted| (priority, granted[usize::from(priority)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_stops_with_credit_for_less_than_a_packet_and_goes_on_when_there_is_more() {
        let mut credits = Credits::default();
        assert!(!credits.spend(3, 9_000), "nobody limits it");
        credits.limit(CreditConfig { each: 3_000, longest: 1_000 });
        assert_eq!([1_000, 999, 2].map(|bytes| credits.spend(3, bytes)), [false, false, true]);
        assert_eq!((credits.short(), credits.spend(4, 2_000)), (Priorities::of(3), false));
        assert_eq!([3_000, 3_001].map(|limit| credits.allow(3, limit)), [false, true]);
        assert_eq!(credits.short(), Priorities::NONE);
    }

    #[test]
    fn counts_wrap() {
        let mut credits = Credits::default();
        credits.limit(CreditConfig { each: 2_000, longest: 1_000 });
        let mut granted = Credits::default();
        granted.grant_all(CreditConfig { each: 2_000, longest: 1_000 });
        for _ in 0..5_000_000 {
            assert!(credits.spend(0, 1_001));
            granted.grant(0, 1_001);
            assert_eq!(granted.next().map(|(priority, limit)| credits.allow(priority, limit)), Some(true));
        }
    }

    #[test]
    fn what_is_granted_is_told_once_and_again_when_asked() {
        let mut credits = Credits::default();
        credits.grant_all(CreditConfig { each: 500, longest: 100 });
        credits.grant(1, 10);
        credits.grant(6, 20);
        credits.grant(1, 10);
        assert_eq!([credits.next(), credits.next(), credits.next()], [Some((6, 520)), Some((1, 520)), None]);
        credits.repeat();
        let granted = std::iter::from_fn(|| credits.next());
        assert_eq!(granted.map(|(_, limit)| limit).collect::<Vec<_>>(), [500, 520, 500, 500, 500, 500, 520, 500]);
    }
}
