//! All connections of a manager, and their indexes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use irnic_transports::Time;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::connection::{Connection, State};

/// A peer's address, its GUID, and one of its numbers. A GUID is easily forged; answers go to the address.
type PeerKey = (IpAddr, u64, u32);

/// All connections of a manager. There is an index for each key of the peer's; timers and ownerless connections are
/// ordered by time.
#[derive(Debug)]
pub(crate) struct Connections {
    all: BTreeMap<u32, Connection>,
    /// By the peer's communication id: repeated REQs.
    by_remote_id: BTreeMap<PeerKey, u32>,
    /// By the peer's queue pair number: stale connections.
    by_remote_qpn: BTreeMap<PeerKey, u32>,
    /// By the peer's address and request id: repeated SIDR_REQs.
    by_request: BTreeMap<(IpAddr, u32), u32>,
    timers: BTreeSet<(Time, u32)>,
    /// Connections without an owner.
    ownerless: BTreeSet<(Time, u32)>,
    first: u32,
    order: Shuffled,
    /// Position in `order` of the last id allocated.
    last: u32,
}

impl Connections {
    /// Creates an empty table. Communication ids are the `count` ones from `first`, in an order that is unpredictable
    /// without the `secret`. None is reused before all others have been used.
    pub(crate) fn new(first: u32, count: u32, secret: [u8; 32]) -> Connections {
        let count = count.clamp(1, u32::MAX - first);
        Connections {
            all: BTreeMap::new(),
            by_remote_id: BTreeMap::new(),
            by_remote_qpn: BTreeMap::new(),
            by_request: BTreeMap::new(),
            timers: BTreeSet::new(),
            ownerless: BTreeSet::new(),
            first,
            order: Shuffled::new(count, secret),
            last: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Iterates over all connections by their communication ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.all.values()
    }

    pub(crate) fn get(&self, comm_id: u32) -> Option<&Connection> {
        self.all.get(&comm_id)
    }

    /// Returns a connection for changes to anything but the communication id, the owner ([`Self::disown`]) and the keys
    /// of indexes.
    pub(crate) fn get_mut(&mut self, comm_id: u32) -> Option<&mut Connection> {
        self.all.get_mut(&comm_id)
    }

    /// Adds a connection under a new communication id, `None` if all are in use. 0 means "none" on the wire, and is
    /// never used.
    pub(crate) fn add(&mut self, mut connection: Connection) -> Option<&mut Connection> {
        let count = self.order.count;
        for _ in 0..count {
            self.last = (self.last + 1) % count;
            let comm_id = self.first + self.order.at(self.last);
            if comm_id != 0 && !self.all.contains_key(&comm_id) {
                connection.comm_id = comm_id;
                return Some(self.all.entry(comm_id).or_insert(connection));
            }
            if self.all.len() as u64 >= u64::from(count) {
                break;
            }
        }
        None
    }

    pub(crate) fn remove(&mut self, comm_id: u32) -> Option<Connection> {
        let connection = self.all.remove(&comm_id)?;
        self.timers.remove(&(connection.due, comm_id));
        self.ownerless.remove(&(connection.due, comm_id));
        let c = &connection;
        remove_if(&mut self.by_remote_id, (c.path.dst, c.remote_guid, c.remote_id), comm_id);
        remove_if(&mut self.by_remote_qpn, (c.path.dst, c.remote_guid, c.remote_qpn), comm_id);
        remove_if(&mut self.by_request, (c.path.dst, c.remote_id), comm_id);
        Some(connection)
    }

    /// Returns the connection with this id, if it is with this peer: no other may affect it.
    pub(crate) fn with(&self, peer: IpAddr, comm_id: u32) -> Option<&Connection> {
        self.all.get(&comm_id).filter(|c| c.path.dst == peer)
    }

    /// Returns the connection to a peer with these ids on both sides.
    pub(crate) fn pair(&self, peer: IpAddr, comm_id: u32, remote_id: u32) -> Option<&Connection> {
        self.with(peer, comm_id).filter(|c| c.remote_id == remote_id)
    }

    pub(crate) fn by_remote_id(&self, peer: IpAddr, guid: u64, remote_id: u32) -> Option<u32> {
        self.by_remote_id.get(&(peer, guid, remote_id)).copied()
    }

    pub(crate) fn by_remote_qpn(&self, peer: IpAddr, guid: u64, qpn: u32) -> Option<u32> {
        self.by_remote_qpn.get(&(peer, guid, qpn)).copied()
    }

    pub(crate) fn by_request(&self, peer: IpAddr, request: u32) -> Option<u32> {
        self.by_request.get(&(peer, request)).copied()
    }

    /// Adds a connection to the indexes by the keys of its peer that are known.
    pub(crate) fn index(&mut self, comm_id: u32) {
        let Some(c) = self.all.get(&comm_id) else { return };
        if c.state == State::SidrReqReceived {
            self.by_request.insert((c.path.dst, c.remote_id), comm_id);
            return;
        }
        self.by_remote_id.insert((c.path.dst, c.remote_guid, c.remote_id), comm_id);
        // 0 is not an application's queue pair.
        if c.remote_qpn != 0 {
            self.by_remote_qpn.insert((c.path.dst, c.remote_guid, c.remote_qpn), comm_id);
        }
    }

    /// Releases the peer's queue pair for another connection: this one has ended.
    pub(crate) fn release_qpn(&mut self, comm_id: u32) {
        if let Some(c) = self.all.get(&comm_id) {
            remove_if(&mut self.by_remote_qpn, (c.path.dst, c.remote_guid, c.remote_qpn), comm_id);
        }
    }

    /// Sets the time of the next action for a connection.
    pub(crate) fn set_due(&mut self, comm_id: u32, due: Time) {
        let Some(c) = self.all.get_mut(&comm_id) else { return };
        if c.due != Time::NEVER {
            self.timers.remove(&(c.due, comm_id));
        }
        if c.owner.is_none() {
            self.ownerless.remove(&(c.due, comm_id));
            self.ownerless.insert((due, comm_id));
        }
        c.due = due;
        if due != Time::NEVER {
            self.timers.insert((due, comm_id));
        }
    }

    /// Removes a connection's owner.
    pub(crate) fn disown(&mut self, comm_id: u32) {
        if let Some(c) = self.all.get_mut(&comm_id) {
            c.owner = None;
            self.ownerless.insert((c.due, comm_id));
        }
    }

    /// Returns the earliest time of an action.
    pub(crate) fn next_due(&self) -> Time {
        self.timers.first().map_or(Time::NEVER, |&(due, _)| due)
    }

    /// Returns a connection with an action due.
    pub(crate) fn due(&self, now: Time) -> Option<u32> {
        self.timers.first().filter(|&&(due, _)| due <= now).map(|&(_, comm_id)| comm_id)
    }

    /// Returns the ownerless connection with the least time left, if there are more than `most`.
    pub(crate) fn surplus(&self, most: usize) -> Option<u32> {
        if self.ownerless.len() <= most { None } else { self.ownerless.first().map(|&(_, comm_id)| comm_id) }
    }
}

/// Removes an entry if it is this connection's.
fn remove_if<K: Ord>(index: &mut BTreeMap<K, u32>, key: K, comm_id: u32) {
    if index.get(&key) == Some(&comm_id) {
        index.remove(&key);
    }
}

/// A secret permutation of the numbers below `count`: a four-round Feistel network (Luby and Rackoff 1988) over the
/// next even number of bits. Results of `count` or more are permuted again.
#[derive(Debug)]
struct Shuffled {
    count: u32,
    /// Bits of half a number.
    half: u32,
    secret: [u8; 32],
}

impl Shuffled {
    fn new(count: u32, secret: [u8; 32]) -> Shuffled {
        let bits = u32::BITS - (count - 1).leading_zeros();
        Shuffled { count, half: bits.div_ceil(2).max(1), secret }
    }

    /// Returns the number at a position below `count`.
    fn at(&self, place: u32) -> u32 {
        let mut number = place;
        loop {
            number = self.permuted(number);
            if number < self.count {
                return number;
            }
        }
    }

    fn permuted(&self, number: u32) -> u32 {
        let mask = (1 << self.half) - 1;
        let (mut left, mut right) = (number >> self.half, number & mask);
        for round in 0..4 {
            (left, right) = (right, left ^ self.round(round, right) & mask);
        }
        left << self.half | right
    }

    /// Round function: looks random without the secret.
    fn round(&self, round: u32, half: u32) -> u32 {
        let mut seed = self.secret;
        for (byte, input) in seed.iter_mut().zip([half.to_le_bytes(), round.to_le_bytes()].into_iter().flatten()) {
            *byte ^= input;
        }
        StdRng::from_seed(seed).random()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_comes_once_whatever_the_count() {
        for count in [1, 2, 3, 5, 64, 100, 1000, 4097] {
            let order = Shuffled::new(count, [count as u8; 32]);
            let all: BTreeSet<u32> = (0..count).map(|place| order.at(place)).collect();
            assert_eq!((all.len() as u32, all.last()), (count, Some(&(count - 1))));
        }
    }

    #[test]
    fn a_number_says_nothing_about_the_next() {
        let order = Shuffled::new(1 << 22, [7; 32]);
        let numbers: Vec<u32> = (0..10_000).map(|place| order.at(place)).collect();
        let near = numbers.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) < 1 << 12).count();
        // About 20 of 10,000 are expected at random.
        assert!(near < 60, "{near}");
        let other = Shuffled::new(1 << 22, [8; 32]);
        assert!((0..100).filter(|&place| other.at(place) == order.at(place)).count() < 3);
    }
}
