//! A part of a network that is cut, with the events of its nodes, which works them off at its own pace for as long as
//! nothing can come from another part.
//!
//! What crosses a cut link is mail: it arrives a propagation delay later at least, and so lies with the sender until
//! all parts have come as far ([`Network::publish`]). Then each takes in what is for it ([`Network::take_in`]), among
//! its own events where the one queue of the whole network would have it ([`super::order`]). Events that concern all
//! ([`Event::is_common`]) each part has itself.

use std::cmp::Ordering;
use std::sync::Arc;

use irnic_transports::telemetry::Int;
use irnic_transports::wire::RateNotice;

use super::agenda::{Agenda, Event};
use super::events::Waiting;
use super::order::{Origin, Record, Records};
use super::{Content, Control, Endpoint, EventQueue, Network, Packet, PacketId, Packets, PortId};
use crate::prefetch::fetch_all;
use crate::priorities::Priorities;

/// No mail.
const NONE: u32 = u32::MAX;

/// An event of a part, and its place among those of the same nanosecond.
#[derive(Copy, Clone, Debug)]
struct Placed {
    event: Event,
    /// Twice the number of the record of the event that pushed it, and one; or of a mail twice the number of records
    /// before the event that pushed it; 0 of what was settled.
    after: u32,
    /// Orders those of the same `after`.
    child: u32,
    /// Its number among the mail, or [`NONE`].
    mail: u32,
}

impl Waiting for Placed {
    const PLACED: bool = true;

    #[inline]
    fn place(&self) -> u64 {
        u64::from(self.after) << 32 | u64::from(self.child)
    }
}

/// Something that crosses a cut link.
#[derive(Clone, Debug)]
struct Mail {
    /// When it arrives, ns.
    at: u64,
    origin: Origin,
    /// The port by which it arrives, and the epoch in which it was sent.
    to: PortId,
    epoch: u16,
    what: Crossing,
}

#[derive(Clone, Debug)]
enum Crossing {
    /// The next of the packets in the outbox.
    Packet,
    Pfc(Priorities),
    Control(Control),
    /// A packet that reaches a host of the sender, known by this number.
    Announced(u32),
}

/// Mail for one part, in the order in which it was sent.
#[derive(Debug, Default)]
struct Outbox {
    mails: Vec<Mail>,
    /// Packets that have been sent and stay where they are until the mail is handed out. Then they are copied in one
    /// go, each from memory that was asked for in time.
    sent: Vec<PacketId>,
    packets: Vec<(Packet, Content)>,
    /// Of packets that have some, in their order.
    telemetry: Vec<Int>,
    notices: Vec<RateNotice>,
}

/// How many packets before its turn a packet is asked for.
const AHEAD: usize = 8;

impl Outbox {
    /// Copies what was sent. Returns how many packets that were.
    fn copy(&mut self, from: &mut Packets) -> u64 {
        for (at, &id) in self.sent.iter().enumerate() {
            if let Some(&coming) = self.sent.get(at + AHEAD) {
                fetch_all(from.get(coming));
                fetch_all(from.content(coming));
            }
            self.packets.push((*from.get(id), from.content(id).clone()));
            self.telemetry.extend(from.telemetry(id));
            self.notices.extend(from.notice(id));
            from.remove(id);
        }
        let packets = self.sent.len() as u64;
        self.sent.clear();
        packets
    }
}

/// What others need of a part to take in their mail.
#[derive(Debug, Default)]
pub(crate) struct Published {
    records: Vec<Record>,
    outboxes: Vec<Outbox>,
}

/// The events of a part.
#[derive(Debug)]
pub(crate) struct Part {
    number: u32,
    /// Of each node, the part that it belongs to.
    part_of: Arc<[u16]>,
    queue: EventQueue<Placed>,
    public: Published,
    /// The records up to here are earlier than any mail that is to come.
    since: u32,
    /// Of mail that was taken in.
    origins: Vec<Origin>,
    /// What the present event has pushed.
    child: u32,
    /// Events worked off, and those of them that all parts have.
    done: u64,
    common: u64,
    /// Those of the latter that have records.
    recorded: u32,
    /// When the first event that has a record was worked off, ns, and the last.
    begun: u64,
    ended: u64,
    /// Events that all parts have and that wait.
    waiting_common: u32,
    /// Mail that was sent, and packets that were handed out; mail that was taken in, and how much of it was packets.
    sent: (u64, u64),
    taken: (u64, u64),
    /// What was counted when the network was watched.
    moments: Vec<Moment>,
    /// Of each host, how many packets it awaits that are to be announced; those that have come; and announcements that
    /// wait.
    awaited: Vec<u32>,
    answered: Vec<(u32, u32)>,
    announced: u32,
    /// Mail that is being sorted: sending part and number.
    sorted: Vec<(u32, u32)>,
}

/// What a part counts that the whole network is judged by, at a moment that all parts have.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Moment {
    /// Packets that reached endpoints.
    pub delivered: u64,
    /// Packets under way, those that wait as mail included.
    pub packets: i64,
    /// Events that wait, mail included, but none that all parts have.
    pub events: i64,
    /// Timers of switches that wait.
    pub timers: i64,
    /// Events that wait and that all parts have: the same number everywhere. So many of them only look.
    pub common: i64,
    /// See `common`.
    pub looks: i64,
}

impl Moment {
    /// The moment of one more part.
    pub(crate) fn add(&mut self, other: &Moment) {
        self.delivered += other.delivered;
        self.packets += other.packets;
        self.events += other.events;
        self.timers += other.timers;
        (self.common, self.looks) = (other.common, other.looks);
    }
}

/// An event that waits in a part.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Next {
    /// ns.
    pub(crate) at: u64,
    event: Event,
    origin: Origin,
}

impl Next {
    /// Which of two events the one queue of the whole network would have first. What was announced is no event there,
    /// and comes after that of which it was.
    pub(crate) fn order(&self, other: &Next, records: &Records<'_>) -> Ordering {
        let announced = |next: &Next| matches!(next.event, Event::Announced(_));
        let at = self.at.cmp(&other.at).then_with(|| records.order(self.origin, other.origin));
        at.then_with(|| announced(self).cmp(&announced(other)))
    }
}

impl Part {
    /// Part `number` of a network whose nodes belong to these parts, of which there are `parts`.
    pub(crate) fn new(number: u32, part_of: Arc<[u16]>, parts: usize) -> Part {
        let mut part = Part {
            number,
            queue: EventQueue::new(),
            public: Published::default(),
            since: 0,
            origins: Vec::new(),
            child: 0,
            done: 0,
            common: 0,
            recorded: 0,
            begun: 0,
            ended: 0,
            waiting_common: 0,
            sent: (0, 0),
            taken: (0, 0),
            moments: Vec::new(),
            awaited: vec![0; part_of.len()],
            answered: Vec::new(),
            announced: 0,
            sorted: Vec::new(),
            part_of,
        };
        part.public.outboxes.resize_with(parts, Outbox::default);
        part.forget();
        part
    }

    /// Drops all records. What is pushed before the next event comes is settled.
    fn forget(&mut self) {
        self.public.records.clear();
        self.public.records.push(Record::new(0, Origin::settled(0), 0));
        self.since = 1;
        self.origins.clear();
        self.recorded = 0;
        self.begun = self.ended;
    }

    /// The part that a node belongs to.
    fn part_of(&self, node: u32) -> usize {
        usize::from(self.part_of[node as usize])
    }

    /// The number of the record of the event that is being worked off, 0 before the first.
    fn present(&self) -> u32 {
        self.public.records.len() as u32 - 1
    }

    fn origin(&self, placed: &Placed) -> Origin {
        match (placed.mail, placed.after) {
            (NONE, 0) => Origin::settled(placed.child),
            (NONE, after) => Origin::new(self.number, after / 2, placed.child),
            (mail, _) => self.origins[mail as usize],
        }
    }

    pub(crate) fn records(&self) -> &[Record] {
        &self.public.records
    }

    /// Whether the network was watched since [`Self::take_moments`].
    pub(crate) fn has_moment(&self) -> bool {
        !self.moments.is_empty()
    }

    /// What was counted when the network was watched.
    pub(crate) fn take_moments(&mut self, into: &mut Vec<Moment>) {
        into.append(&mut self.moments);
    }

    /// How many records are kept; [`usize::MAX`] if they cannot be many more.
    pub(crate) fn kept(&self) -> usize {
        if self.ended - self.begun > Record::SPAN / 2 || self.recorded > Record::COMMON / 2 {
            return usize::MAX;
        }
        self.public.records.len().max(self.origins.len())
    }

    /// A host awaits one packet more that is to be announced.
    pub(crate) fn await_at(&mut self, host: u32) {
        self.awaited[host as usize] += 1;
    }

    /// The next event.
    pub(crate) fn next(&mut self) -> Option<Next> {
        let at = self.queue.next_at()?;
        let next = self.queue.coming(0)?;
        Some(Next { at, event: next.event, origin: self.origin(&next) })
    }

    /// Takes all events out, in order, each with its origin.
    fn drain(&mut self) -> Vec<Next> {
        let all = self.queue.drain();
        all.iter().map(|&(at, placed)| Next { at, event: placed.event, origin: self.origin(&placed) }).collect()
    }

    /// Gives all events that wait in these parts a place among them, so that nobody needs the records of what pushed
    /// them any more.
    pub(crate) fn settle<'a>(parts: impl Iterator<Item = &'a mut Part>) {
        let mut parts: Vec<&mut Part> = parts.collect();
        let drained: Vec<Vec<Next>> = parts.iter_mut().map(|part| part.drain()).collect();
        let records = Records::new(parts.iter().map(|part| &part.public.records[..]).collect());
        let mut next = vec![0; parts.len()];
        let mut order = Vec::with_capacity(drained.iter().map(Vec::len).sum());
        loop {
            let heads = drained.iter().zip(&next).enumerate();
            let heads = heads.filter_map(|(part, (all, &next))| all.get(next).map(|head| (part, head)));
            let first = heads.min_by(|(_, a), (_, b)| a.order(b, &records));
            let Some((part, _)) = first else { break };
            order.push(part);
            next[part] += 1;
        }
        drop(records);
        let mut drained: Vec<_> = drained.into_iter().map(Vec::into_iter).collect();
        parts.iter_mut().for_each(|part| part.forget());
        for (place, part) in order.into_iter().enumerate() {
            if let Some(Next { at, event, .. }) = drained[part].next() {
                parts[part].queue.push(at, Placed { event, after: 0, child: place as u32, mail: NONE });
            }
        }
    }

    fn send(&mut self, at: u64, node: u32, (to, epoch): (PortId, u16), what: Crossing) -> &mut Outbox {
        self.sent.0 += 1;
        let outbox = self.post(at, node, (to, epoch), what);
        self.child += 1;
        &mut self.public.outboxes[outbox]
    }

    /// Lays something into the outbox for the part of a node, as what is pushed next; returns which that is.
    fn post(&mut self, at: u64, node: u32, (to, epoch): (PortId, u16), what: Crossing) -> usize {
        let origin = Origin::new(self.number, self.present(), self.child);
        let part = self.part_of(node);
        self.public.outboxes[part].mails.push(Mail { at, origin, to, epoch, what });
        part
    }

    /// Has an event that came by mail wait.
    fn take(&mut self, records: &Records<'_>, at: u64, origin: Origin, event: Event) {
        let (before, same) = records.before_pusher(self.number, self.since, origin);
        // Mail comes in order.
        self.since = before;
        let mail = self.origins.len() as u32;
        self.origins.push(origin);
        let (after, child) = if same { (2 * before + 1, origin.child()) } else { (2 * before, mail) };
        self.queue.insert(at, Placed { event, after, child, mail });
    }
}

impl Agenda for Part {
    const PARTED: bool = true;

    #[inline]
    fn push(&mut self, at: u64, event: Event) {
        self.waiting_common += u32::from(event.is_common());
        let present = self.present();
        let after = if present == 0 { 0 } else { 2 * present + 1 };
        self.queue.push(at, Placed { event, after, child: self.child, mail: NONE });
        self.child += 1;
    }

    #[inline]
    fn pop(&mut self, until: u64) -> Option<(u64, Event)> {
        let (at, placed) = self.queue.pop(until)?;
        if matches!(placed.event, Event::Announced(_)) {
            self.announced -= 1;
            return Some((at, placed.event));
        }
        let common = placed.event.is_common();
        self.common += u64::from(common);
        self.recorded += u32::from(common);
        self.waiting_common -= u32::from(common);
        self.ended = at;
        let origin = self.origin(&placed);
        self.public.records.push(Record::new(at, origin, if common { self.recorded } else { 0 }));
        self.child = 0;
        self.done += 1;
        Some((at, placed.event))
    }

    fn next_at(&mut self) -> Option<u64> {
        self.queue.next_at()
    }

    #[inline]
    fn coming(&self, n: usize) -> Option<Event> {
        self.queue.coming(n).map(|placed| placed.event)
    }

    fn waiting(&self) -> impl Iterator<Item = Event> {
        self.queue.iter().map(|placed| placed.event)
    }

    fn count(&self) -> usize {
        self.queue.len()
    }

    fn done(&self) -> u64 {
        self.done
    }

    fn watched(&mut self, delivered: u64, packets: usize, timers: usize, looks: usize) {
        let Part { sent, taken, waiting_common, announced, .. } = *self;
        self.moments.push(Moment {
            delivered,
            packets: packets as i64 + sent.1 as i64 - taken.1 as i64,
            events: self.queue.len() as i64 - i64::from(waiting_common + announced) + sent.0 as i64 - taken.0 as i64,
            timers: timers as i64,
            common: i64::from(waiting_common),
            looks: looks as i64,
        });
    }

    fn common(&self) -> u64 {
        self.common
    }

    fn turn(&mut self, n: u32) {
        self.child = n << 8;
    }

    #[inline]
    fn awaits(&self, host: u32) -> bool {
        self.awaited[host as usize] > 0
    }

    fn stop_awaiting(&mut self, host: u32) {
        self.awaited[host as usize] -= 1;
    }

    fn announce(&mut self, at: u64, node: u32, token: u32) {
        self.post(at, node, (0, 0), Crossing::Announced(token));
    }

    fn answer(&mut self, host: u32, qpn: u32) {
        self.answered.push((host, qpn));
    }

    #[inline]
    fn take_answered(&mut self) -> Option<(u32, u32)> {
        self.answered.pop()
    }

    #[inline]
    fn owns(&self, node: u32) -> bool {
        self.part_of(node) == self.number as usize
    }

    fn mail_packet(&mut self, at: u64, node: u32, to: (PortId, u16), id: PacketId) {
        self.send(at, node, to, Crossing::Packet).sent.push(id);
    }

    fn mail_control(&mut self, at: u64, node: u32, to: (PortId, u16), control: Control) {
        let what = match control {
            Control::Pfc(paused) => Crossing::Pfc(paused),
            other => Crossing::Control(other),
        };
        self.send(at, node, to, what);
    }
}

impl<E: Endpoint> Network<E, Part> {
    /// The part's events.
    pub(crate) fn part(&self) -> &Part {
        &self.events
    }

    /// The part's events, mutably.
    pub(crate) fn part_mut(&mut self) -> &mut Part {
        &mut self.events
    }

    /// Hands out the records and mail of the part, until [`Self::take_back`].
    pub(crate) fn publish(&mut self) -> Published {
        let Part { public, sent, .. } = &mut self.events;
        sent.1 += public.outboxes.iter_mut().map(|outbox| outbox.copy(&mut self.packets)).sum::<u64>();
        std::mem::take(public)
    }

    /// Takes back what was handed out, whose mail all have taken in.
    pub(crate) fn take_back(&mut self, mut public: Published) {
        for outbox in &mut public.outboxes {
            outbox.mails.clear();
            outbox.packets.clear();
            outbox.telemetry.clear();
            outbox.notices.clear();
        }
        self.events.since = public.records.len() as u32;
        self.events.public = public;
    }

    /// Takes in the mail of all parts for this one.
    pub(crate) fn take_in(&mut self, all: &[&Published]) {
        let me = self.events.number as usize;
        let records = Records::new(all.iter().map(|public| &public.records[..]).collect());
        let mails = |(part, at): (u32, u32)| &all[part as usize].outboxes[me].mails[at as usize];
        let mut sorted = std::mem::take(&mut self.events.sorted);
        sorted.clear();
        for (part, public) in (0u32..).zip(all) {
            sorted.extend((0..public.outboxes[me].mails.len() as u32).map(|at| (part, at)));
        }
        if sorted.first().map(|first| first.0) != sorted.last().map(|last| last.0) {
            sorted.sort_by(|a, b| records.order(mails(*a).origin, mails(*b).origin));
        }
        // Of each part, the packets, the telemetry and the notices taken.
        let mut next = vec![(0, 0, 0); all.len()];
        for &of in &sorted {
            let Mail { at, origin, to, epoch, ref what } = *mails(of);
            self.events.taken.0 += u64::from(!matches!(what, Crossing::Announced(_)));
            let event = match what {
                Crossing::Packet => {
                    let outbox = &all[of.0 as usize].outboxes[me];
                    let (packets, telemetry, notices) = &mut next[of.0 as usize];
                    let (packet, content) = &outbox.packets[*packets];
                    *packets += 1;
                    self.events.taken.1 += 1;
                    self.ledger.totals.came_over(self.now, at, packet.wire);
                    self.packets.fetch_free(AHEAD);
                    let id = self.packets.add(*packet, content.clone());
                    if packet.has_telemetry() {
                        self.packets.set_telemetry(id, outbox.telemetry[*telemetry]);
                        *telemetry += 1;
                    }
                    if packet.is_notice() {
                        self.packets.set_notice(id, outbox.notices[*notices]);
                        *notices += 1;
                    }
                    Event::Arrive(to, epoch, id)
                }
                Crossing::Announced(token) => {
                    self.events.announced += 1;
                    Event::Announced(*token)
                }
                Crossing::Pfc(paused) => Event::Pfc(to, epoch, *paused),
                Crossing::Control(control) => Event::Control(to, epoch, self.keep(*control)),
            };
            self.events.take(&records, at, origin, event);
        }
        self.events.sorted = sorted;
    }
}
