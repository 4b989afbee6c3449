//! A part of a partitioned network, with the events of its nodes, which it processes at its own pace as long as nothing
//! can arrive from another part.
//!
//! Everything that crosses a cut link is mail: it arrives at least a propagation delay later, and so stays with the
//! sender until all parts have advanced that far ([`Network::publish`]). Then each part takes in its mail
//! ([`Network::take_in`]) and inserts it among its own events where the one queue of the whole network would have it
//! ([`super::order`]). Events that concern all parts ([`Event::is_common`]) exist in each of them.

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
    /// For a local event, twice the record number of the event that pushed it, plus one; for mail, twice the number of
    /// records before the event that pushed it; 0 if settled.
    after: u32,
    /// Orders those of the same `after`.
    child: u32,
    /// Its number among the mail, or [`NONE`] for a local event.
    mail: u32,
}

impl Waiting for Placed {
    const PLACED: bool = true;

    #[inline]
    fn place(&self) -> u64 {
        u64::from(self.after) << 32 | u64::from(self.child)
    }
}

/// A packet or frame that crosses a cut link.
#[derive(Clone, Debug)]
struct Mail {
    /// Arrival time, ns.
    at: u64,
    origin: Origin,
    /// The port of arrival, and the epoch in which it was sent.
    to: PortId,
    epoch: u16,
    what: Crossing,
}

#[derive(Clone, Debug)]
enum Crossing {
    /// The next packet of the outbox.
    Packet,
    Pfc(Priorities),
    Control(Control),
    /// A packet that reaches a host of the sender, with this token.
    Announced(u32),
}

/// Mail for one part, in the order sent.
#[derive(Debug, Default)]
struct Outbox {
    mails: Vec<Mail>,
    /// Packets that have been sent and stay in place until the mail is published. Then they are copied in one go, with
    /// prefetching.
    sent: Vec<PacketId>,
    packets: Vec<(Packet, Content)>,
    /// Telemetry of those packets that have some, in order.
    telemetry: Vec<Int>,
    notices: Vec<RateNotice>,
}

/// Number of packets ahead at which a packet is prefetched.
const AHEAD: usize = 8;

impl Outbox {
    /// Copies the packets that were sent. Returns their number.
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

/// The data of a part that others need to take in its mail.
#[derive(Debug, Default)]
pub(crate) struct Published {
    records: Vec<Record>,
    outboxes: Vec<Outbox>,
}

/// The events of a part.
#[derive(Debug)]
pub(crate) struct Part {
    number: u32,
    /// Part of each node.
    part_of: Arc<[u16]>,
    queue: EventQueue<Placed>,
    public: Published,
    /// Records before this one are earlier than any mail to come.
    since: u32,
    /// Origins of the mail that was taken in.
    origins: Vec<Origin>,
    /// Number of events pushed by the current event.
    child: u32,
    /// Number of events processed, and of those that all parts have.
    done: u64,
    common: u64,
    /// Number of the latter that have records.
    recorded: u32,
    /// Times of the first and the last processed event that have records, ns.
    begun: u64,
    ended: u64,
    /// Number of pending events that all parts have.
    waiting_common: u32,
    /// Mail sent, and packets published; mail taken in, and how much of it was packets.
    sent: (u64, u64),
    taken: (u64, u64),
    /// Counts at each standstill check.
    moments: Vec<Moment>,
    /// By host, the number of packets it awaits that are to be announced; those that have arrived; and the number of
    /// pending announcements.
    awaited: Vec<u32>,
    answered: Vec<(u32, u32)>,
    announced: u32,
    /// Scratch space for sorting mail: sending part and number.
    sorted: Vec<(u32, u32)>,
}

/// Counts of a part at a moment common to all parts, by which the whole network is checked for a standstill.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Moment {
    /// Packets that reached endpoints.
    pub delivered: u64,
    /// Packets in flight, including mail.
    pub packets: i64,
    /// Pending events, including mail, except those that all parts have.
    pub events: i64,
    /// Pending timers of switches.
    pub timers: i64,
    /// Pending events that all parts have, the same number in each.
    pub common: i64,
    /// Those of `common` that only observe.
    pub observations: i64,
}

impl Moment {
    /// Adds the moment of another part.
    pub(crate) fn add(&mut self, other: &Moment) {
        self.delivered += other.delivered;
        self.packets += other.packets;
        self.events += other.events;
        self.timers += other.timers;
        (self.common, self.observations) = (other.common, other.observations);
    }
}

/// A pending event of a part.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Next {
    /// Time, ns.
    pub(crate) at: u64,
    event: Event,
    origin: Origin,
}

impl Next {
    /// Order of two events in the one queue of the whole network. An announcement is no event there, and follows the
    /// event that it announces.
    pub(crate) fn order(&self, other: &Next, records: &Records<'_>) -> Ordering {
        let announced = |next: &Next| matches!(next.event, Event::Announced(_));
        let at = self.at.cmp(&other.at).then_with(|| records.order(self.origin, other.origin));
        at.then_with(|| announced(self).cmp(&announced(other)))
    }
}

impl Part {
    /// Part `number` of a network; `part_of` gives the part of each node, and `parts` the number of parts.
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

    /// Drops all records. Events pushed before the next one is processed count as settled.
    fn forget(&mut self) {
        self.public.records.clear();
        self.public.records.push(Record::new(0, Origin::settled(0), 0));
        self.since = 1;
        self.origins.clear();
        self.recorded = 0;
        self.begun = self.ended;
    }

    /// The part of a node.
    fn part_of(&self, node: u32) -> usize {
        usize::from(self.part_of[node as usize])
    }

    /// Record number of the event being processed, 0 before the first.
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

    /// Whether there was a standstill check since [`Self::take_moments`].
    pub(crate) fn has_moment(&self) -> bool {
        !self.moments.is_empty()
    }

    /// Moves the counts of standstill checks to `into`.
    pub(crate) fn take_moments(&mut self, into: &mut Vec<Moment>) {
        into.append(&mut self.moments);
    }

    /// Number of records kept; [`usize::MAX`] if there is not room for many more.
    pub(crate) fn kept(&self) -> usize {
        if self.ended - self.begun > Record::SPAN / 2 || self.recorded > Record::COMMON / 2 {
            return usize::MAX;
        }
        self.public.records.len().max(self.origins.len())
    }

    /// Increases the number of announced packets that a host awaits by one.
    pub(crate) fn await_at(&mut self, host: u32) {
        self.awaited[host as usize] += 1;
    }

    /// The next event.
    pub(crate) fn next(&mut self) -> Option<Next> {
        let at = self.queue.next_at()?;
        let next = self.queue.coming(0)?;
        Some(Next { at, event: next.event, origin: self.origin(&next) })
    }

    /// Removes all events, in order, each with its origin.
    fn drain(&mut self) -> Vec<Next> {
        let all = self.queue.drain();
        all.iter().map(|&(at, placed)| Next { at, event: placed.event, origin: self.origin(&placed) }).collect()
    }

    /// Assigns a settled place to all pending events of these parts, so that the records of their pushers are no longer
    /// needed.
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

    /// Puts a message into the outbox for the part of a node; returns the number of that part.
    fn post(&mut self, at: u64, node: u32, (to, epoch): (PortId, u16), what: Crossing) -> usize {
        let origin = Origin::new(self.number, self.present(), self.child);
        let part = self.part_of(node);
        self.public.outboxes[part].mails.push(Mail { at, origin, to, epoch, what });
        part
    }

    /// Inserts an event that came by mail.
    fn take(&mut self, records: &Records<'_>, at: u64, origin: Origin, event: Event) {
        let (before, same) = records.before_pusher(self.number, self.since, origin);
        // Mail is sorted.
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

    fn watched(&mut self, delivered: u64, packets: usize, timers: usize, observations: usize) {
        let Part { sent, taken, waiting_common, announced, .. } = *self;
        self.moments.push(Moment {
            delivered,
            packets: packets as i64 + sent.1 as i64 - taken.1 as i64,
            events: self.queue.len() as i64 - i64::from(waiting_common + announced) + sent.0 as i64 - taken.0 as i64,
            timers: timers as i64,
            common: i64::from(waiting_common),
            observations: observations as i64,
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

    /// Publishes the records and mail of the part, until [`Self::take_back`].
    pub(crate) fn publish(&mut self) -> Published {
        let Part { public, sent, .. } = &mut self.events;
        sent.1 += public.outboxes.iter_mut().map(|outbox| outbox.copy(&mut self.packets)).sum::<u64>();
        std::mem::take(public)
    }

    /// Takes back what was published, after all parts have taken in its mail.
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

    /// Takes in this part's mail from all parts.
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
        // By part, the numbers of packets, telemetry and notices taken.
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
                    self.ledger.totals.taken_over(self.now, at, packet.wire);
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
