//! Accounts of what came by each input with each priority: what each has for itself, what it takes of the shared part,
//! and what it has beyond its limit while its neighbour has not stopped yet.

use crate::plan::Accounts;

/// Priorities of an input.
pub(crate) const PRIORITIES: usize = 8;

/// One account, by input and priority.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    reserve: u64,
    headroom: Box<[u64]>,
    held: Box<[u64]>,
    in_headroom: Box<[u64]>,
    /// Bytes beyond reserves, headroom apart.
    shared: u64,
    /// What is shared in all.
    pool: u64,
}

impl Ledger {
    /// Accounts in a buffer of so many bytes. `links` is what the link of each input needs beyond the limit, and
    /// `priorities` how many are in use.
    pub fn new(accounts: &Accounts, size: u64, links: &[u64], priorities: u64) -> Ledger {
        let headroom: Box<[u64]> = links.iter().map(|needs| accounts.headroom.unwrap_or(*needs)).collect();
        let set_aside = priorities * (headroom.iter().sum::<u64>() + accounts.reserve * links.len() as u64);
        let places = links.len() * PRIORITIES;
        Ledger {
            reserve: accounts.reserve,
            headroom,
            held: vec![0; places].into(),
            in_headroom: vec![0; places].into(),
            shared: 0,
            pool: size.saturating_sub(set_aside),
        }
    }

    #[inline]
    pub fn free(&self) -> u64 {
        self.pool.saturating_sub(self.shared)
    }

    #[inline]
    fn common(&self, account: usize) -> u64 {
        self.held[account] - self.in_headroom[account]
    }

    /// Bytes of the shared part that an account holds.
    pub fn shared(&self, account: usize) -> u64 {
        self.common(account).saturating_sub(self.reserve)
    }

    pub fn in_headroom(&self, account: usize) -> u64 {
        self.in_headroom[account]
    }

    /// Finds room for so many bytes more, if an account may hold `limit` of the shared part.
    #[inline]
    pub fn admit(&mut self, account: usize, bytes: u64, within_limit: bool) -> bool {
        let before = self.shared(account);
        let more = (self.common(account) + bytes).saturating_sub(self.reserve) - before;
        if self.in_headroom[account] == 0 && within_limit && more <= self.free() {
            self.shared += more;
        } else if self.in_headroom[account] + bytes <= self.headroom[account / PRIORITIES] {
            self.in_headroom[account] += bytes;
        } else {
            return false;
        }
        self.held[account] += bytes;
        true
    }

    /// Books so many bytes, whether there is room or not: they are there already. What the shared part has no room for
    /// is in the headroom, as far as that goes.
    pub fn force(&mut self, account: usize, bytes: u64) {
        if self.admit(account, bytes, true) {
            return;
        }
        let before = self.shared(account);
        self.held[account] += bytes;
        self.shared += self.shared(account) - before;
    }

    /// Gives back what a packet took: headroom first.
    #[inline]
    pub fn release(&mut self, account: usize, bytes: u64) {
        let from_headroom = self.in_headroom[account].min(bytes);
        self.in_headroom[account] -= from_headroom;
        let before = self.common(account) - from_headroom;
        let after = before - (bytes - from_headroom);
        self.shared -= before.saturating_sub(self.reserve) - after.saturating_sub(self.reserve);
        self.held[account] -= bytes;
    }
}
