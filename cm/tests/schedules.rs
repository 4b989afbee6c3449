//! Random calls of two applications over a network that loses, repeats, delays and reorders: in any case, both sides of
//! a connection end in the same state or with a named error, no id and no connection is left, and every timer ends.
//!
//! A failing seed is printed; `CM_SEED=n cargo test -p irnic-cm --test schedules` runs it alone, `CM_SEEDS=n` more
//! seeds.

mod common;

use std::collections::BTreeMap;

use common::*;
use irnic_cm::{CmEvent, CmId, EventKind, PortSpace, PrivateData, QpKind};
use irnic_transports::Time;
use irnic_transports::time::{MS, SEC, US};

/// An application's record of an id.
#[derive(Clone, Debug, Default)]
struct Known {
    /// The number of the connection.
    tag: u64,
    passive: bool,
    /// Kinds of events, in their order.
    events: Vec<EventKind>,
    /// Calls that succeeded.
    accepted: bool,
    rejected: bool,
    datagrams: bool,
    /// Whether the application called for the end, or took more than half a minute to answer.
    unwilling: bool,
    last_event: Time,
}

impl Known {
    fn had(&self, kind: EventKind) -> bool {
        self.events.contains(&kind)
    }

    /// Returns whether the connection has ended in a way that has a name.
    fn ended(&self) -> bool {
        self.rejected
            || [EventKind::Rejected, EventKind::Unreachable, EventKind::Disconnected].iter().any(|&kind| self.had(kind))
    }

    /// Returns whether this side considers the connection established.
    fn stands(&self) -> bool {
        let established = if self.passive { self.had(EventKind::Established) } else { self.accepted };
        established && !self.ended()
    }

    /// Checks that events come in an order that an application expects.
    fn check(&self, seed: u64) {
        let order = |kind: &EventKind| match kind {
            EventKind::ConnectRequest => 0,
            EventKind::ConnectResponse => 1,
            EventKind::Established => 2,
            EventKind::Rejected | EventKind::Unreachable | EventKind::Disconnected | EventKind::ConnectError => 3,
            EventKind::TimewaitExit => 4,
        };
        let sorted = self.events.windows(2).all(|pair| order(&pair[0]) < order(&pair[1]));
        assert!(sorted, "seed {seed}: {self:?}");
        assert!(!self.had(EventKind::TimewaitExit) || self.had(EventKind::Disconnected), "seed {seed}: {self:?}");
        assert_eq!(self.passive, self.had(EventKind::ConnectRequest), "seed {seed}: {self:?}");
    }
}

/// Two applications.
struct Run {
    seed: u64,
    net: Net,
    random: Random,
    ids: [BTreeMap<CmId, Known>; 2],
    /// Ids that were destroyed, with their records.
    destroyed: [Vec<Known>; 2],
    /// Calls that an application makes later.
    later: BTreeMap<(Time, u64), (usize, CmId, Call)>,
    number: u64,
    /// Whether applications answer all requests.
    diligent: bool,
}

#[derive(Copy, Clone, Debug)]
enum Call {
    Accept,
    Reject,
    Disconnect,
    Destroy,
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut random = Random(seed);
        let faults = Faults {
            loss: random.below(4) * 40,
            repeat: random.below(4) * 50,
            delay: (10 * US, [10 * US, MS, 40 * MS, 400 * MS][random.below(4) as usize]),
        };
        let mut configs = [config(0), config(1)];
        configs[0].seed[0] = seed as u8;
        if random.chance(300) {
            configs[1].first_comm_id = 0;
            configs[1].comm_ids = 40;
        }
        let mut net = Net::new(&configs, random.next(), faults).without_record();
        net.listen(1, 7);
        net.listen(0, 7);
        let udp = net.cms[1].create(PortSpace::Udp, QpKind::Ud).expect("an id");
        net.cms[1].bind(udp, socket(1, 7), false).expect("bound");
        net.cms[1].listen(udp, 0).expect("listening");
        Run {
            seed,
            net,
            random,
            ids: Default::default(),
            destroyed: Default::default(),
            later: BTreeMap::new(),
            number: 0,
            diligent: false,
        }
    }

    /// Schedules a call of an application after up to `within` ns.
    fn plan(&mut self, end: usize, id: CmId, call: Call, within: u64) {
        self.number += 1;
        let at = self.net.now + self.random.below(within);
        self.later.insert((at, self.number), (end, id, call));
    }

    fn connect(&mut self, tag: u64) {
        let from = usize::from(self.random.chance(300));
        let datagrams = from == 0 && self.random.chance(150);
        let (space, kind) = if datagrams { (PortSpace::Udp, QpKind::Ud) } else { (PortSpace::Tcp, QpKind::Rc) };
        let port = if self.random.chance(50) { 99 } else { 7 };
        let now = self.net.now;
        let cm = &mut self.net.cms[from];
        let Ok(id) = cm.create(space, kind) else { return };
        cm.resolve(id, route(from, 1 - from, port)).expect("resolved");
        if cm.connect(now, id, &param(tag as u32 + 1, &tag.to_be_bytes())).is_err() {
            cm.destroy(now, id).expect("destroyed");
            return;
        }
        self.ids[from].insert(id, Known { tag, datagrams, ..Known::default() });
        if self.random.chance(150) {
            let within = [MS, 300 * MS, 100 * SEC][self.random.below(3) as usize];
            self.plan(from, id, Call::Destroy, within);
        }
    }

    fn call(&mut self, end: usize, id: CmId, call: Call) {
        let now = self.net.now;
        let Some(known) = self.ids[end].get_mut(&id) else { return };
        known.unwilling |= !matches!(call, Call::Accept) || now.since(known.last_event) > 30 * SEC;
        let cm = &mut self.net.cms[end];
        match call {
            Call::Accept => {
                let param = param(known.tag as u32 + 0x1000, b"yes");
                let param = known.passive.then_some(&param);
                known.accepted |= cm.accept(now, id, param).is_ok();
            }
            Call::Reject => known.rejected |= cm.reject(now, id, 28, &PrivateData::EMPTY).is_ok(),
            Call::Disconnect => cm.disconnect(now, id).expect("never fails"),
            Call::Destroy => {
                cm.destroy(now, id).expect("destroyed");
                let known = self.ids[end].remove(&id).expect("known");
                self.destroyed[end].push(known);
            }
        }
    }

    fn on_event(&mut self, end: usize, event: &CmEvent) {
        let id = event.id;
        if event.kind == EventKind::ConnectRequest {
            let tag = match &event.param {
                irnic_cm::EventParam::Conn(conn) => &conn.private_data,
                irnic_cm::EventParam::Ud(ud) => &ud.private_data,
                irnic_cm::EventParam::None => panic!("{event:?}"),
            };
            let tag = u64::from_be_bytes(*tag.first_chunk().expect("eight bytes"));
            let datagrams = matches!(event.param, irnic_cm::EventParam::Ud(_));
            let known = Known { tag, passive: true, datagrams, ..Known::default() };
            assert!(self.ids[end].insert(id, known).is_none(), "seed {}: {id:?} is new", self.seed);
        }
        let known = self.ids[end].get_mut(&id);
        let known = known.unwrap_or_else(|| panic!("seed {}: {event:?} of an id that is gone", self.seed));
        known.events.push(event.kind);
        known.last_event = self.net.now;
        known.check(self.seed);
        let datagrams = known.datagrams;
        if matches!(event.kind, EventKind::ConnectRequest | EventKind::ConnectResponse) {
            let call = match self.random.below(20) {
                0 | 1 => Call::Reject,
                2 if !self.diligent => Call::Destroy,
                3 if !self.diligent => return,
                _ => Call::Accept,
            };
            let within = [1, 30 * MS, 300 * MS, 20 * SEC][self.random.below(4) as usize];
            self.plan(end, id, call, within);
            if !datagrams && self.random.chance(300) {
                let call = if self.random.chance(500) { Call::Disconnect } else { Call::Destroy };
                let within = [MS, 100 * MS, SEC, 200 * SEC][self.random.below(4) as usize];
                self.plan(end, id, call, within);
            }
        }
    }

    /// Takes all events; returns whether there were any.
    fn take_events(&mut self) -> bool {
        let mut any = false;
        for end in [0, 1] {
            while let Some(event) = self.net.cms[end].poll_event() {
                self.on_event(end, &event);
                any = true;
            }
        }
        any
    }

    /// Runs until nothing happens any more, or until a time.
    fn run(&mut self, until: Time) {
        loop {
            // Applications handle their events at random times, and before nothing happens any more.
            if !self.random.chance(400) {
                self.take_events();
            }
            self.net.take();
            let call = self.later.first_key_value().map_or(Time::NEVER, |(&(at, _), _)| at);
            let next = self.net.next().min(call);
            if next == Time::NEVER || next > until {
                if self.take_events() {
                    continue;
                }
                self.net.step(until);
                return;
            }
            self.net.step(until.min(call));
            while let Some(entry) = self.later.first_entry().filter(|entry| entry.key().0 <= self.net.now) {
                let (end, id, call) = entry.remove();
                self.call(end, id, call);
            }
        }
    }

    /// Checks the result of a connection: both sides agree, or each has a name for the error.
    fn check_agreement(&self) {
        let sides: BTreeMap<u64, Vec<(usize, &Known)>> = [0, 1]
            .iter()
            .flat_map(|&end| self.ids[end].values().map(move |known| (end, known)))
            .fold(BTreeMap::new(), |mut map, (end, known)| {
                map.entry(known.tag).or_insert_with(Vec::new).push((end, known));
                map
            });
        let mut requests: Vec<u64> = (0..2)
            .flat_map(|end| self.ids[end].values().chain(&self.destroyed[end]))
            .filter(|known| known.passive)
            .map(|known| known.tag)
            .collect();
        requests.sort_unstable();
        assert!(requests.is_sorted_by(|a, b| a < b), "seed {}: a request was raised twice: {requests:?}", self.seed);
        for (tag, sides) in sides {
            let seed = self.seed;
            for (_, known) in &sides {
                assert!(
                    known.datagrams || known.stands() || known.ended(),
                    "seed {seed}, {tag}: nothing is open: {sides:?}"
                );
            }
            let standing = sides.iter().filter(|(_, known)| known.stands() && !known.datagrams).count();
            assert!(standing == 0 || standing == 2, "seed {seed}, {tag}: {sides:?}");
            assert!(sides.iter().filter(|(_, known)| !known.passive).count() <= 1, "seed {seed}: {sides:?}");
            // Repeats make up for losses: a connection that both want is established.
            let willing = sides.len() == 2 && sides.iter().all(|(_, known)| known.accepted && !known.unwilling);
            assert!(!willing || standing == 2, "seed {seed}, {tag}: {sides:?}");
        }
    }

    fn go(mut self) -> u64 {
        for tag in 0..30 {
            self.connect(tag);
            let until = self.net.now + self.random.below(200 * MS);
            self.run(until);
        }
        // Pending requests are answered now, and everything in progress ends.
        self.diligent = true;
        self.run(Time::NEVER);
        for end in [0, 1] {
            let open: Vec<CmId> = self.ids[end]
                .iter()
                .filter(|(_, known)| !known.accepted && !known.ended())
                .map(|(&id, _)| id)
                .collect();
            open.into_iter().for_each(|id| self.plan(end, id, Call::Accept, SEC));
        }
        self.run(Time::NEVER);
        self.check_agreement();
        let standing = self.ids.iter().flat_map(BTreeMap::values).filter(|known| known.stands()).count();
        // Everything is destroyed.
        for end in [0, 1] {
            let ids: Vec<CmId> = self.ids[end].keys().copied().collect();
            ids.into_iter().for_each(|id| self.plan(end, id, Call::Destroy, SEC));
        }
        self.run(Time::NEVER);
        for (end, listeners) in [(0, 1), (1, 2)] {
            let cm = &mut self.net.cms[end];
            assert!(cm.poll_event().is_none());
            assert_eq!((cm.id_count(), cm.connection_count()), (listeners, 0), "seed {}", self.seed);
            assert_eq!(cm.next_deadline(), Time::NEVER, "seed {}", self.seed);
        }
        standing as u64
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name}={value}: a number")))
}

#[test]
fn both_sides_agree_whatever_happens() {
    if let Some(seed) = number("CM_SEED") {
        Run::new(seed).go();
        return;
    }
    let seeds = number("CM_SEEDS").unwrap_or(400);
    let standing: u64 = (0..seeds).map(|seed| Run::new(seed).go()).sum();
    assert!(standing > seeds, "connections are made: {standing}");
}

#[test]
fn a_schedule_is_the_same_every_time() {
    let trace = |seed| {
        let mut run = Run::new(seed);
        let mut trace = Vec::new();
        for tag in 0..10 {
            run.connect(tag);
            let until = run.net.now + 100 * MS;
            run.run(until);
            trace.push(format!("{:?} {:?}", run.net.next(), run.ids));
        }
        trace
    };
    assert_eq!(trace(7), trace(7));
}
