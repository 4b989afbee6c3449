//! Managers joined by a seeded network in virtual time, which loses, repeats, delays and reorders MADs.

#![allow(dead_code)] // each test file uses a part

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use irnic_cm::{Cm, CmConfig, CmEvent, CmId, ConnParam, EventKind, PortSpace, PrivateData, QpKind, Route};
use irnic_transports::time::{MS, SEC, US};
use irnic_transports::wire::Mtu;
use irnic_transports::wire::mad::{MAD_LEN, Mad, Message};
use irnic_transports::{Path, Time};

/// A random number generator that is the same everywhere (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Returns a number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// True once in 1000 / `permille` times.
    pub fn chance(&mut self, permille: u64) -> bool {
        self.below(1000) < permille
    }
}

/// Faults of the network.
#[derive(Copy, Clone, Debug)]
pub struct Faults {
    /// MADs lost, per thousand.
    pub loss: u64,
    /// MADs delivered twice, per thousand.
    pub repeat: u64,
    /// Minimum and maximum delay, ns.
    pub delay: (u64, u64),
}

impl Faults {
    pub const NONE: Faults = Faults { loss: 0, repeat: 0, delay: (10 * US, 10 * US) };
}

/// Managers and the network between them.
#[derive(Debug)]
pub struct Net {
    pub cms: Vec<Cm>,
    pub now: Time,
    pub faults: Faults,
    pub random: Random,
    /// All MADs sent, with the sender.
    pub sent: Vec<(usize, Path, [u8; MAD_LEN])>,
    keep_sent: bool,
    under_way: BTreeMap<(Time, u64), (Path, [u8; MAD_LEN])>,
    number: u64,
}

/// Returns the address of a manager's port.
pub fn address(end: usize) -> IpAddr {
    IpAddr::from([10, 0, (end >> 8) as u8, end as u8 + 1])
}

pub fn socket(end: usize, port: u16) -> SocketAddr {
    SocketAddr::new(address(end), port)
}

pub fn path(from: usize, to: usize) -> Path {
    Path { src: address(from), dst: address(to), udp_src: 0xc001, traffic_class: 0, hop_limit: 64 }
}

pub fn route(from: usize, to: usize, port: u16) -> Route {
    Route::new(socket(from, 40_000), socket(to, port), path(from, to), Mtu::B1024)
}

pub fn config(end: usize) -> CmConfig {
    CmConfig::new([end as u8 + 1; 32], 0x1_0000 + end as u64, (end as u32 + 1) << 22, 1 << 22)
}

pub fn data(bytes: &[u8]) -> PrivateData {
    PrivateData::new(bytes).expect("short enough")
}

/// Returns parameters like perftest's: one READ in each direction.
pub fn param(qpn: u32, bytes: &[u8]) -> ConnParam {
    let mut param = ConnParam::new(qpn);
    (param.responder_resources, param.initiator_depth) = (1, 1);
    param.private_data = data(bytes);
    param
}

impl Net {
    pub fn new(configs: &[CmConfig], seed: u64, faults: Faults) -> Net {
        Net {
            cms: configs.iter().map(|&config| Cm::new(config)).collect(),
            now: Time(SEC),
            faults,
            random: Random(seed),
            sent: Vec::new(),
            keep_sent: true,
            under_way: BTreeMap::new(),
            number: 0,
        }
    }

    /// Creates two managers and a network without faults.
    pub fn pair() -> Net {
        Net::new(&[config(0), config(1)], 1, Faults::NONE)
    }

    pub fn without_record(mut self) -> Net {
        self.keep_sent = false;
        self
    }

    /// Sends a MAD without faults.
    pub fn inject(&mut self, path: Path, mad: [u8; MAD_LEN]) {
        self.number += 1;
        self.under_way.insert((self.now, self.number), (path, mad));
    }

    /// Takes the MADs that the managers have to send.
    pub fn take(&mut self) {
        for end in 0..self.cms.len() {
            while let Some((path, mad)) = self.cms[end].poll_mad() {
                if self.keep_sent {
                    self.sent.push((end, path, mad));
                }
                let copies = 1 + u64::from(self.random.chance(self.faults.repeat));
                for _ in 0..copies {
                    let (least, most) = self.faults.delay;
                    let delay = least + self.random.below(most - least + 1);
                    if !self.random.chance(self.faults.loss) {
                        self.number += 1;
                        self.under_way.insert((self.now + delay, self.number), (path, mad));
                    }
                }
            }
        }
    }

    /// Returns the time of the next event.
    pub fn next(&self) -> Time {
        let arrival = self.under_way.first_key_value().map_or(Time::NEVER, |(&(at, _), _)| at);
        self.cms.iter().map(Cm::next_deadline).min().map_or(arrival, |deadline| deadline.min(arrival))
    }

    /// Advances to the next event, if that is before `until`.
    pub fn step(&mut self, until: Time) -> bool {
        self.take();
        let next = self.next();
        if next > until || next == Time::NEVER {
            if until != Time::NEVER {
                self.now = self.now.max(until);
            }
            return false;
        }
        self.now = self.now.max(next);
        while let Some(entry) = self.under_way.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let (path, mad) = entry.remove();
            if let Some(end) = (0..self.cms.len()).find(|&end| address(end) == path.dst) {
                self.cms[end].receive(self.now, &path, &mad);
            }
        }
        for cm in &mut self.cms {
            cm.on_deadline(self.now);
        }
        true
    }

    /// Runs until nothing happens any more, or until a time.
    pub fn run(&mut self, until: Time) {
        while self.step(until) {}
    }

    /// Runs for `ns`.
    pub fn run_for(&mut self, ns: u64) {
        self.run(self.now + ns);
    }

    /// Runs until a manager has an event, and returns it.
    pub fn event(&mut self, end: usize) -> CmEvent {
        loop {
            if let Some(event) = self.cms[end].poll_event() {
                return event;
            }
            assert!(self.step(Time::NEVER), "nothing happens any more");
        }
    }

    /// Runs until a manager has an event, which must be of this kind.
    pub fn expect(&mut self, end: usize, kind: EventKind) -> CmEvent {
        let event = self.event(end);
        assert_eq!(event.kind, kind, "{event:?}");
        event
    }

    /// Returns all events of a manager that are there now.
    pub fn events(&mut self, end: usize) -> Vec<CmEvent> {
        std::iter::from_fn(|| self.cms[end].poll_event()).collect()
    }

    /// A listener at a port of a manager's address.
    pub fn listen(&mut self, end: usize, port: u16) -> CmId {
        let id = self.cms[end].create(PortSpace::Tcp, QpKind::Rc).expect("an id");
        self.cms[end].bind(id, socket(end, port), false).expect("bound");
        self.cms[end].listen(id, 0).expect("listening");
        id
    }

    /// A connect that is under way.
    pub fn connect(&mut self, from: usize, to: usize, port: u16, param: &ConnParam) -> CmId {
        let now = self.now;
        let cm = &mut self.cms[from];
        let id = cm.create(PortSpace::Tcp, QpKind::Rc).expect("an id");
        cm.resolve(id, route(from, to, port)).expect("resolved");
        cm.connect(now, id, param).expect("under way");
        id
    }

    /// A connection from manager 0 to manager 1, which listens at port 7 and has accepted; manager 0 has not confirmed.
    /// Returns the ids of both ends.
    pub fn accepted(&mut self) -> (CmId, CmId) {
        let active = self.connect(0, 1, 7, &param(0x11, b"hello"));
        let passive = self.expect(1, EventKind::ConnectRequest).id;
        self.cms[1].accept(self.now, passive, Some(&param(0x22, b"welcome"))).expect("accepted");
        assert_eq!(self.expect(0, EventKind::ConnectResponse).id, active);
        (active, passive)
    }

    /// A connection from manager 0 to manager 1, which listens at port 7: the ids of both ends.
    pub fn connected(&mut self) -> (CmId, CmId) {
        let (active, passive) = self.accepted();
        self.cms[0].accept(self.now, active, None).expect("confirmed");
        assert_eq!(self.expect(1, EventKind::Established).id, passive);
        (active, passive)
    }

    /// Names of all messages sent so far, with their senders.
    pub fn names(&self) -> Vec<(usize, &'static str)> {
        self.sent.iter().map(|(end, _, mad)| (*end, message(mad).name())).collect()
    }
}

pub fn message(mad: &[u8]) -> Message {
    Mad::parse(mad).expect("a message").message
}

/// A little longer than timewait at packet lifetime 16.
pub const TIMEWAIT: u64 = 600 * MS;
