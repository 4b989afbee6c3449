//! The neighbour cache: which link-layer address an IP address has, and who is being asked.
//!
//! Time is passed in. The table is bounded: where it is full, entries that only others wanted go first, then the one
//! whose last use is the longest ago.

use std::net::IpAddr;

use irnic_transports::Time;
use irnic_transports::time::SEC;

use super::ethernet::Mac;

/// Most neighbours that are known or asked for.
pub(super) const NEIGHBOURS: usize = 1024;

/// Time between two requests, and how often one is sent before the neighbour counts as unreachable (RFC 4861 10:
/// RETRANS_TIMER, MAX_MULTICAST_SOLICIT).
const INTERVAL: u64 = SEC;
const REQUESTS: u8 = 3;
/// How long an address holds without a question (RFC 4861 10: REACHABLE_TIME).
const REACHABLE: u64 = 30 * SEC;
/// How long a neighbour that has not answered is not asked again.
const SILENT: u64 = SEC;

/// How often, and how far apart, the station that has an address is asked when another one claims it: anybody can send
/// one forged answer, but not keep a station from answering.
const CLAIM_REQUESTS: u8 = 3;
const CLAIM_INTERVAL: u64 = SEC / 10;

/// What is known of a neighbour.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    Known(Mac),
    /// It has been asked, or will be with the next [`Neighbours::poll`].
    Pending,
    /// It was asked and has not answered.
    Unreachable,
}

/// What [`Neighbours::poll`] has to be done.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Ask all stations for this address, or the one that had it.
    Ask(IpAddr, Option<Mac>),
    /// Nobody has it: drop what waits for it.
    GiveUp(IpAddr),
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum State {
    /// Asked, never answered.
    Incomplete,
    /// Answered less than [`REACHABLE`] before `due`, or not needed since.
    Reachable,
    /// Used beyond that: asked again, and used meanwhile.
    Probed,
    /// Did not answer; forgotten when `due`.
    Silent,
}

#[derive(Copy, Clone, Debug)]
struct Entry {
    address: IpAddr,
    mac: Mac,
    state: State,
    /// When the state ends or the next request is due.
    due: Time,
    requests: u8,
    /// Another station has said that it has the address; the one that had it is asked.
    claim: Option<Mac>,
    /// Last lookup; `None` for one whom only its own request made known.
    used: Option<Time>,
}

/// The neighbours of a port.
#[derive(Debug)]
pub(super) struct Neighbours {
    /// Sorted by address.
    entries: Vec<Entry>,
    /// Index of the last lookup, the likeliest of the next.
    last: usize,
    /// Earliest request, or end of a silence.
    deadline: Time,
}

impl Neighbours {
    pub(super) fn new() -> Neighbours {
        Neighbours { entries: Vec::with_capacity(NEIGHBOURS), last: 0, deadline: Time::NEVER }
    }

    /// Returns what is known of `address`, and begins to ask if it is nothing. The second value is an address that had
    /// to make room; nobody is asked for it any more.
    #[inline]
    pub(super) fn lookup(&mut self, now: Time, address: IpAddr) -> (Lookup, Option<IpAddr>) {
        let found = match self.entries.get(self.last) {
            Some(entry) if entry.address == address => Ok(self.last),
            _ => self.find(address),
        };
        match found {
            Ok(at) => (self.look_at(now, at), None),
            Err(_) => (Lookup::Pending, self.begin(now, address)),
        }
    }

    fn find(&self, address: IpAddr) -> Result<usize, usize> {
        self.entries.binary_search_by(|entry| entry.address.cmp(&address))
    }

    #[inline]
    fn look_at(&mut self, now: Time, at: usize) -> Lookup {
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

    /// Removes the entry among those that `may` go which was used the longest ago, if at all.
    fn forget_one(&mut self, may: impl Fn(&Entry) -> bool) -> Option<IpAddr> {
        let candidates = self.entries.iter().enumerate().filter(|(_, e)| may(e));
        let (at, _) = candidates.min_by_key(|(_, e)| (e.used, e.due))?;
        Some(self.entries.remove(at).address)
    }

    /// Notes that `address` is at `mac`. One of whom nothing was known is noted only if `new`, as the sender of a
    /// request to this station is: it will be answered. What a neighbour says unasked replaces what was known only if
    /// it `replaces` it, and where that is in use only if the station that had the address does not answer any more.
    /// Returns whether frames may have waited for this.
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

    /// Returns when [`Neighbours::poll`] has something to do.
    pub(super) fn next_deadline(&self) -> Time {
        self.deadline
    }

    /// Passes what is due to `act`.
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
                            act(Action::Ask(entry.address, Some(entry.mac)));
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
                        act(Action::Ask(entry.address, to));
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
                assert_eq!(actions(&mut neighbours, due), [Action::Ask(ip(2), None)]);
                assert_eq!(actions(&mut neighbours, due + SEC / 2), []);
                assert_eq!(neighbours.lookup(due + SEC / 2, ip(2)).0, Lookup::Pending);
            }
            assert_eq!(actions(&mut neighbours, start + 3 * SEC), [Action::GiveUp(ip(2))]);
            assert_eq!(neighbours.lookup(start + 3 * SEC + MS, ip(2)).0, Lookup::Unreachable);
            // Whoever wants it after that asks anew; otherwise it is forgotten.
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
        assert_eq!(actions(&mut neighbours, Time(4 * SEC)), [Action::Ask(ip(2), None)]);
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
        assert_eq!(actions(&mut neighbours, later), [Action::Ask(ip(2), Some(mac(2)))]);
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
            // Forged, or true: the one that had it is asked, and used meanwhile.
            let mut now = Time(2 * SEC);
            neighbours.learn(now, ip(2), mac(3), false, true);
            for request in 0..CLAIM_REQUESTS {
                assert_eq!(neighbours.next_deadline(), now);
                assert_eq!(actions(&mut neighbours, now), [Action::Ask(ip(2), Some(mac(2)))]);
                assert_eq!(neighbours.lookup(now, ip(2)).0, Lookup::Known(mac(2)));
                // Saying it again changes nothing.
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
        // One that nobody uses may say where it is.
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
            assert_eq!(actions(&mut neighbours, Time(second * SEC)), [Action::Ask(ip(2), Some(mac(2)))]);
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
        // Own use drives out the strangers first, then who was used the longest ago.
        let strangers = NEIGHBOURS as u16 - 1000;
        for i in 0..strangers {
            neighbours.lookup(Time(40_000), ip(30_000 + i));
        }
        assert_eq!(neighbours.lookup(Time(40_000), ip(40_000)), (Lookup::Pending, Some(ip(0))));
        assert_eq!(neighbours.entries.capacity(), NEIGHBOURS, "nothing was allocated");
    }

    proptest! {
        /// Whatever happens, the table is sorted and bounded, its deadline is that of its entries, and nobody is asked
        /// more than three times in a row.
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
