//! Ingress accounts by input and priority: reserve, use of the shared part, and headroom beyond the limit until the
//! neighbour has paused.

use crate::plan::Accounts;

/// Number of priorities of an input.
pub(crate) const PRIORITIES: usize = 8;

/// The accounts of a buffer, by input and priority.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    reserve: u64,
    headroom: Box<[u64]>,
    held: Box<[u64]>,
    in_headroom: Box<[u64]>,
    /// Bytes beyond reserves, without headroom.
    shared: u64,
    /// Size of the shared part.
    pool: u64,
}

impl Ledger {
    /// Accounts in a buffer of `size` bytes. `links` has the headroom that each input's link needs, and `priorities` is
    /// the number in use.
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

    /// Finds room for `bytes` more; `within_limit`: the account may use the shared part.
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

    /// Accounts for `bytes` that have arrived already, whether there is room or not. What does not fit the shared part
    /// counts as headroom, as far as that reaches.
    pub fn force(&mut self, account: usize, bytes: u64) {
        if self.admit(account, bytes, true) {
            return;
        }
        let before = self.shared(account);
        self.held[account] += bytes;
        self.shared += self.shared(account) - before;
    }

    /// Releases the bytes of a packet: headroom first.
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
