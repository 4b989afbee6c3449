//! The neighbour cache: link-layer addresses of IP addresses, and requests in progress.
//!
//! Time is passed in. The table is bounded: when it is full, entries created only by other stations' requests are
//! evicted first, then the least recently used one.

use std::net::IpAddr;

use irnic_transports::Time;
use irnic_transports::time::SEC;

use super::ethernet::Mac;

/// Maximum number of neighbours that are known or asked for.
pub(super) const NEIGHBOURS: usize = 1024;

/// Time between two requests, and their number before the neighbour counts as unreachable (RFC 4861 10: RETRANS_TIMER,
/// MAX_MULTICAST_SOLICIT).
const INTERVAL: u64 = SEC;
const REQUESTS: u8 = 3;
/// Time for which an address is valid without a new request (RFC 4861 10: REACHABLE_TIME).
const REACHABLE: u64 = 30 * SEC;
/// Time for which a neighbour that has not answered is not asked again.
const SILENT: u64 = SEC;

/// Number and interval of requests to the station that has an address when another one claims it: any station can send
/// one forged answer, but cannot keep the owner from answering.
const CLAIM_REQUESTS: u8 = 3;
const CLAIM_INTERVAL: u64 = SEC / 10;

/// The state of a neighbour.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    Known(Mac),
    /// It has been asked, or will be by the next [`Neighbours::poll`].
    Pending,
    /// It was asked and has not answered.
    Unreachable,
}

/// What the caller of [`Neighbours::poll`] has to do.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Ask for this address: all stations, or the one that had it.
    Request(IpAddr, Option<Mac>),
    /// The address is not resolved: drop what waits for it.
    GiveUp(IpAddr),
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum State {
    /// Asked, not yet answered.
    Incomplete,
    /// Answered less than [`REACHABLE`] before `due`, or not needed since.
    Reachable,
    /// Used after that time: asked again, and used meanwhile.
    Probed,
    /// Did not answer; removed at `due`.
    Silent,
}

#[derive(Copy, Clone, Debug)]
struct Entry {
    address: IpAddr,
    mac: Mac,
    state: State,
    /// Time when the state ends or the next request is due.
    due: Time,
    requests: u8,
    /// Another station has claimed the address; the one that had it is asked.
    claim: Option<Mac>,
    /// Time of the last lookup; `None` for one known only from its own request.
    used: Option<Time>,
}

/// The neighbours of a port.
#[derive(Debug)]
pub(super) struct Neighbours {
    /// Sorted by address.
    entries: Vec<Entry>,
    /// Index of the last lookup, the likeliest for the next.
    last: usize,
    /// Time of the earliest request, or end of a silence.
    deadline: Time,
}

impl Neighbours {
    pub(super) fn new() -> Neighbours {
        Neighbours { entries: Vec::with_capacity(NEIGHBOURS), last: 0, deadline: Time::NEVER }
    }

    /// Returns what is known of `address`, and starts requests if that is nothing. The second value is an address
    /// evicted to make room, which is no longer asked for.
    #[inline]
    pub(super) fn lookup(&mut self, now: Time, address: IpAddr) -> (Lookup, Option<IpAddr>) {
        let found = match self.entries.get(self.last) {
            Some(entry) if entry.address == address => Ok(self.last),
            _ => self.find(address),
        };
        match found {
            Ok(at) => (self.lookup_at(now, at), None),
            Err(_) => (Lookup::Pending, self.begin(now, address)),
        }
    }

    fn find(&self, address: IpAddr) -> Result<usize, usize> {
        self.entries.binary_search_by(|entry| entry.address.cmp(&address))
    }

    #[inline]
    fn lookup_at(&mut self, now: Time, at: usize) -> Lookup {
        self.last = at;
        let entry = &mut self.entries[at];
        entry.used = Some(now);
        match entry.state {
            State::Incomplete => return Lookup::Pending,
            State::Reachable if now >= entry.due => {
                (entry.state, entry.due, entry.requests) = (State::Probed, now, 0);
                self.deadline = self.deadline.min(now);
            }
            State::Silent if now >= entry.due => {
                (entry.state, entry.due, entry.requests) = (State::Incomplete, now, 0);
                self.deadline = self.deadline.min(now);
                return Lookup::Pending;
            }
            State::Silent => return Lookup::Unreachable,
            State::Reachable | State::Probed => {}
        }
        Lookup::Known(entry.mac)
    }

    #[cold]
    fn begin(&mut self, now: Time, address: IpAddr) -> Option<IpAddr> {
        let forgotten = if self.entries.len() == NEIGHBOURS { self.forget_one(|_| true) } else { None };
        self.insert(Entry {
            address,
            mac: Mac::default(),
            state: State::Incomplete,
            due: now,
            requests: 0,
            claim: None,
            used: Some(now),
        });
        self.deadline = self.deadline.min(now);
        forgotten
    }

    fn insert(&mut self, entry: Entry) {
        if let Err(at) = self.find(entry.address) {
            self.entries.insert(at, entry);
        }
    }

    /// Removes the least recently used entry, never-used ones first, among those for which `may` returns true.
    fn forget_one(&mut self, may: impl Fn(&Entry) -> bool) -> Option<IpAddr> {
        let candidates = self.entries.iter().enumerate().filter(|(_, e)| may(e));
        let (at, _) = candidates.min_by_key(|(_, e)| (e.used, e.due))?;
        Some(self.entries.remove(at).address)
    }

    /// Records that `address` is at `mac`. An unknown neighbour is recorded only if `new`, as for the sender of a
    /// request to this station, which will be answered. An unsolicited advertisement replaces a known address only if
    /// `replaces` is set, and one in use only if the station that had the address no longer answers. Returns whether
    /// frames may have waited for this.
    pub(super) fn learn(&mut self, now: Time, address: IpAddr, mac: Mac, new: bool, replaces: bool) -> bool {
        let reachable = now + REACHABLE;
        match self.find(address) {
            Ok(at) => {
                let entry = &mut self.entries[at];
                let waited = matches!(entry.state, State::Incomplete | State::Silent);
                let is_used = entry.used.is_some_and(|used| now.since(used) < REACHABLE);
                if waited || entry.mac == mac || replaces && !is_used {
                    (entry.mac, entry.state, entry.due, entry.claim) = (mac, State::Reachable, reachable, None);
                } else if replaces && entry.claim.replace(mac).is_none() {
                    (entry.state, entry.due, entry.requests) = (State::Probed, now, 0);
                    self.deadline = self.deadline.min(now);
                }
                waited
            }
            Err(_) if new => {
                let room = self.entries.len() < NEIGHBOURS || self.forget_one(|e| e.used.is_none()).is_some();
                if room {
                    let state = State::Reachable;
                    self.insert(Entry { address, mac, state, due: reachable, requests: 0, claim: None, used: None });
                }
                false
            }
            Err(_) => false,
        }
    }

    /// Returns the time of the next work of [`Neighbours::poll`].
    pub(super) fn next_deadline(&self) -> Time {
        self.deadline
    }

    /// Passes due actions to `act`.
    #[inline]
    pub(super) fn poll(&mut self, now: Time, act: &mut dyn FnMut(Action)) {
        if now >= self.deadline {
            self.run(now, act);
        }
    }

    #[cold]
    fn run(&mut self, now: Time, act: &mut dyn FnMut(Action)) {
        self.deadline = Time::NEVER;
        self.entries.retain_mut(|entry| {
            if entry.state == State::Reachable {
                return true;
            }
            if now >= entry.due {
                match (entry.state, entry.claim) {
                    (State::Silent, _) => return false,
                    (_, Some(claimant)) => {
                        if entry.requests < CLAIM_REQUESTS {
                            act(Action::Request(entry.address, Some(entry.mac)));
                            entry.requests += 1;
                            entry.due = now + CLAIM_INTERVAL;
                        } else {
                            (entry.mac, entry.state, entry.due) = (claimant, State::Reachable, now + REACHABLE);
                            entry.claim = None;
                            return true;
                        }
                    }
                    _ if entry.requests < REQUESTS => {
                        let to = (entry.state == State::Probed).then_some(entry.mac);
                        act(Action::Request(entry.address, to));
                        entry.requests += 1;
                        entry.due = now + INTERVAL;
                    }
                    _ => {
                        act(Action::GiveUp(entry.address));
                        (entry.state, entry.due) = (State::Silent, now + SILENT);
                    }
                }
            }
            self.deadline = self.deadline.min(entry.due);
            true
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = SEC / 1000;

    fn ip(last: u16) -> IpAddr {
        let [a, b] = last.to_be_bytes();
        IpAddr::from([10, 0, a, b])
    }

    fn mac(last: u8) -> Mac {
        Mac([2, 0, 0, 0, 0, last])
    }

    fn actions(neighbours: &mut Neighbours, now: Time) -> Vec<Action> {
        let mut all = Vec::new();
        neighbours.poll(now, &mut |action| all.push(action));
        all
    }

    #[test]
    fn a_silent_neighbour_is_asked_three_times_a_second_apart_and_then_unreachable() {
        let mut neighbours = Neighbours::new();
        assert_eq!(neighbours.next_deadline(), Time::NEVER);
        for round in [0, 10 * SEC] {
            let start = Time(round);
            assert_eq!(neighbours.lookup(start, ip(2)).0, Lookup::Pending);
            for request in 0..3 {
                let due = start + request * SEC;
                assert_eq!(neighbours.next_deadline(), due);
                assert_eq!(actions(&mut neighbours, due), [Action::Request(ip(2), None)]);
                assert_eq!(actions(&mut neighbours, due + SEC / 2), []);
                assert_eq!(neighbours.lookup(due + SEC / 2, ip(2)).0, Lookup::Pending);
            }
            assert_eq!(actions(&mut neighbours, start + 3 * SEC), [Action::GiveUp(ip(2))]);
            assert_eq!(neighbours.lookup(start + 3 * SEC + MS, ip(2)).0, Lookup::Unreachable);
            // A later lookup asks again; otherwise the entry is removed.
            assert_eq!(actions(&mut neighbours, start + 4 * SEC), []);
            assert_eq!((neighbours.entries.len(), neighbours.next_deadline()), (0, Time::NEVER));
        }
    }

    #[test]
    fn one_that_is_wanted_again_after_its_silence_is_asked_again() {
        let mut neighbours = Neighbours::new();
        neighbours.lookup(Time::ZERO, ip(2));
        for second in 0..=3 {
            actions(&mut neighbours, Time(second * SEC));
        }
        assert_eq!(neighbours.lookup(Time(4 * SEC), ip(2)).0, Lookup::Pending);
        assert_eq!(actions(&mut neighbours, Time(4 * SEC)), [Action::Request(ip(2), None)]);
    }

    #[test]
    fn an_answer_holds_for_half_a_minute_and_is_then_confirmed_in_passing() {
        let mut neighbours = Neighbours::new();
        neighbours.lookup(Time::ZERO, ip(2));
        actions(&mut neighbours, Time::ZERO);
        assert!(neighbours.learn(Time(MS), ip(2), mac(2), false, true), "somebody waited for it");
        assert_eq!(neighbours.lookup(Time(MS), ip(2)).0, Lookup::Known(mac(2)));
        // The request's own deadline passes without effect.
        assert_eq!(actions(&mut neighbours, Time(SEC)), []);
        assert_eq!(neighbours.next_deadline(), Time::NEVER);
        let later = Time(31 * SEC);
        assert_eq!(neighbours.lookup(later, ip(2)).0, Lookup::Known(mac(2)));
        assert_eq!(actions(&mut neighbours, later), [Action::Request(ip(2), Some(mac(2)))]);
        assert_eq!(neighbours.lookup(later, ip(2)).0, Lookup::Known(mac(2)), "used meanwhile");
        assert!(!neighbours.learn(later, ip(2), mac(2), false, true), "nobody waited");
    }

    #[test]
    fn an_address_in_use_moves_only_if_the_station_that_had_it_is_silent() {
        for answers in [false, true] {
            let mut neighbours = Neighbours::new();
            neighbours.lookup(Time::ZERO, ip(2));
            actions(&mut neighbours, Time::ZERO);
            neighbours.learn(Time(MS), ip(2), mac(2), false, true);
            neighbours.lookup(Time(SEC), ip(2));
            // The request's own deadline passes without effect.
            assert_eq!(actions(&mut neighbours, Time(SEC)), []);
            // Forged or genuine: the station that had it is asked, and used meanwhile.
            let mut now = Time(2 * SEC);
            neighbours.learn(now, ip(2), mac(3), false, true);
            for request in 0..CLAIM_REQUESTS {
                assert_eq!(neighbours.next_deadline(), now);
                assert_eq!(actions(&mut neighbours, now), [Action::Request(ip(2), Some(mac(2)))]);
                assert_eq!(neighbours.lookup(now, ip(2)).0, Lookup::Known(mac(2)));
                // Repeating the claim changes nothing.
                neighbours.learn(now, ip(2), mac(3), false, true);
                if answers && request == 1 {
                    neighbours.learn(now, ip(2), mac(2), false, true);
                    break;
                }
                now += CLAIM_INTERVAL;
            }
            assert_eq!(actions(&mut neighbours, now), []);
            let kept = if answers { mac(2) } else { mac(3) };
            assert_eq!(neighbours.lookup(now, ip(2)).0, Lookup::Known(kept));
        }
        // An unused neighbour may announce a new address.
        let mut neighbours = Neighbours::new();
        neighbours.learn(Time::ZERO, ip(2), mac(2), true, true);
        neighbours.learn(Time::ZERO, ip(2), mac(3), false, true);
        assert_eq!(neighbours.lookup(Time::ZERO, ip(2)).0, Lookup::Known(mac(3)));
    }

    #[test]
    fn one_that_does_not_confirm_is_lost() {
        let mut neighbours = Neighbours::new();
        neighbours.lookup(Time::ZERO, ip(2));
        neighbours.learn(Time::ZERO, ip(2), mac(2), false, true);
        neighbours.lookup(Time(40 * SEC), ip(2));
        for second in 40..43 {
            assert_eq!(actions(&mut neighbours, Time(second * SEC)), [Action::Request(ip(2), Some(mac(2)))]);
        }
        assert_eq!(actions(&mut neighbours, Time(43 * SEC)), [Action::GiveUp(ip(2))]);
        assert_eq!(neighbours.lookup(Time(43 * SEC), ip(2)).0, Lookup::Unreachable);
    }

    #[test]
    fn only_who_asks_is_learnt_unasked_and_only_some_replace() {
        let mut neighbours = Neighbours::new();
        assert!(!neighbours.learn(Time::ZERO, ip(2), mac(2), false, true));
        assert_eq!(neighbours.entries.len(), 0);
        assert!(!neighbours.learn(Time::ZERO, ip(2), mac(2), true, true));
        assert_eq!(neighbours.lookup(Time::ZERO, ip(2)).0, Lookup::Known(mac(2)));
        neighbours.learn(Time::ZERO, ip(2), mac(9), false, false);
        assert_eq!(neighbours.lookup(Time::ZERO, ip(2)).0, Lookup::Known(mac(2)));
    }

    #[test]
    fn a_flood_of_requests_drives_out_nobody_who_is_used() {
        let mut neighbours = Neighbours::new();
        for i in 0..1000 {
            neighbours.lookup(Time(u64::from(i)), ip(i));
            neighbours.learn(Time(u64::from(i)), ip(i), mac(1), false, true);
        }
        for i in 1000..20_000 {
            neighbours.learn(Time(u64::from(i)), ip(i), mac(2), true, true);
        }
        assert_eq!(neighbours.entries.len(), NEIGHBOURS);
        for i in 0..1000 {
            assert_eq!(neighbours.lookup(Time(30_000), ip(i)), (Lookup::Known(mac(1)), None));
        }
        // Lookups evict the strangers first, then the least recently used.
        let strangers = NEIGHBOURS as u16 - 1000;
        for i in 0..strangers {
            neighbours.lookup(Time(40_000), ip(30_000 + i));
        }
        assert_eq!(neighbours.lookup(Time(40_000), ip(40_000)), (Lookup::Pending, Some(ip(0))));
        assert_eq!(neighbours.entries.capacity(), NEIGHBOURS, "nothing was allocated");
    }

    proptest! {
        /// In every sequence of steps, the table is sorted and bounded, its deadline is that of its entries, and no
        /// neighbour is asked more than three times in a row.
        #[test]
        fn the_table_stays_in_order(
            steps in prop::collection::vec((0..4_u8, 0..1500_u16, any::<bool>(), 0..2000_u64), 1..3000)
        ) {
            let mut neighbours = Neighbours::new();
            let mut now = Time::ZERO;
            for (what, who, flag, wait) in steps {
                now += wait * MS;
                match what {
                    0 | 1 => drop(neighbours.lookup(now, ip(who))),
                    2 => drop(neighbours.learn(now, ip(who), mac(who as u8), flag, !flag)),
                    _ => neighbours.poll(now, &mut |_| ()),
                }
                prop_assert!(neighbours.entries.len() <= NEIGHBOURS);
                prop_assert!(neighbours.entries.is_sorted_by_key(|e| e.address));
                prop_assert!(neighbours.entries.iter().all(|e| e.requests <= REQUESTS));
                let due = neighbours.entries.iter().filter(|e| e.state != State::Reachable).map(|e| e.due).min();
                prop_assert!(neighbours.next_deadline() <= due.unwrap_or(Time::NEVER));
            }
        }
    }
}
