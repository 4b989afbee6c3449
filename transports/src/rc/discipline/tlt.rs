//! TLT on a stream with a window (EuroSys 2021, §5.1, Appendix A): one packet of the stream at a time is important, and
//! in the network on its way there and back. Its echo shows which packets sent before it are lost.
//!
//! This layer sits between [`Sender`], whose rules are unchanged, and the queue pair. Each transmission has a number.
//! Paths keep packets in order, so the echo of an important one settles all those with lower numbers: any that are then
//! neither acknowledged nor retransmitted since are lost. The paper's two lists of unimportant segments, of this round
//! and of the previous one, are equivalent.

mod rate;

pub(super) use rate::TltRate;

use super::hooks::{Acknowledged, Chosen, Departure, Hooks, Turn};
use crate::config::{TltClock, TltFirst};
use crate::footprint::{bits, flag, footprint, left, maybe, sequence, times, why, width};
use crate::packet::PacketClass;
use crate::psn::Psn;
use crate::qp::Counters;
use crate::qp::context::QpContext;
use crate::qp::host::{Host, TxSlot};
use crate::rc::fetch::Fetch;
use crate::recovery::Sender;
use crate::sideband::Colour;
use crate::time::Time;
use crate::wire::{Importance, IrnEth, Opcode};

/// Counts an acknowledgement that echoes a mark: any end sends them.
pub(in crate::rc) fn count_echo(counters: &mut Counters) {
    counters.tlt_echoes += 1;
}

/// The latest transmission of a packet.
#[derive(Copy, Clone, Debug, Default)]
struct Sent {
    number: u32,
    /// Whether it was found to be lost, and waits for retransmission.
    lost: bool,
    /// Whether it was a retransmission.
    again: bool,
}

/// Kind of the next packet (Appendix A: sendState).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Next {
    /// In the initial window: important if it fills the window, or nothing follows.
    Initial,
    /// Unimportant: an important one is in the network.
    Unimportant,
    /// Important: none is in the network.
    Important,
}

/// An important packet in the network.
#[derive(Copy, Clone, Debug)]
struct Flight {
    number: u32,
    /// For a clock without payload, the packet that it requests.
    psn: Psn,
    importance: Importance,
}

/// TLT state of a stream; see the module.
#[derive(Clone, Debug)]
pub(in crate::rc) struct Tlt {
    clock: TltClock,
    first: TltFirst,
    next: Next,
    flight: Option<Flight>,
    /// Number of the next transmission, and that of the latest important one whose echo has arrived.
    number: u32,
    echoed: u32,
    /// By sequence number, up to the peak number in flight; a power of two.
    sent: Vec<Sent>,
    /// Number of packets that wait for retransmission, none before `scan`.
    lost: u32,
    scan: Psn,
    /// Whether the packet last selected is a clock.
    clocking: bool,
    /// Whether memory ran out: nothing is marked any more.
    off: bool,
}

impl Tlt {
    /// Returns `None` unless the transport has TLT on streams with a window.
    pub(in crate::rc) fn new(c: &QpContext) -> Option<Tlt> {
        let tlt = c.discipline().tlt().filter(|_| c.config.has_tlt_window())?;
        Some(Tlt {
            clock: tlt.clock,
            first: tlt.first,
            next: Next::Initial,
            flight: None,
            number: 0,
            echoed: 0,
            sent: Vec::new(),
            lost: 0,
            scan: Psn::new(0),
            clocking: false,
            off: false,
        })
    }

    /// Begins a stream.
    fn begin(&mut self, first: Psn) {
        (self.next, self.flight) = (Next::Initial, None);
        (self.number, self.echoed) = (1, 0);
        self.sent.fill(Sent::default());
        (self.lost, self.scan, self.clocking) = (0, first, false);
    }

    #[inline]
    fn place(&self, psn: Psn) -> usize {
        psn.get() as usize & self.sent.len().wrapping_sub(1)
    }

    /// Selects a lost packet, one of the stream, or an important one that keeps the ACK clock running; for a clock
    /// without payload, [`Chosen::Built`].
    fn select(&mut self, now: Time, fetch: &mut Fetch, stream: &mut Sender, more: bool) -> Chosen {
        if std::mem::take(&mut self.clocking) {
            // The last clock selected could not be built.
            self.next = Next::Unimportant;
            return Chosen::Nothing;
        }
        if self.lost > 0
            && stream.has_room_for_lost(self.lost)
            && let Some(psn) = self.take_lost(stream)
        {
            return Chosen::Packet(psn);
        }
        while fetch.wants_tx(stream, more) {
            let high = stream.high();
            if let Some(psn) = fetch.tx_free(now, stream, more)
                && !(psn.before(high) && self.is_on_its_way(psn))
            {
                return Chosen::Packet(psn);
            }
        }
        if self.next == Next::Unimportant || self.off || !stream.outstanding() {
            return Chosen::Nothing;
        }
        // Important ACK-clocking, whatever the window (§5.1).
        self.clocking = true;
        let lost = match self.clock {
            TltClock::Probe => None,
            TltClock::Adaptive | TltClock::Mtu => self.take_lost(stream).or_else(|| stream.lost()),
        };
        match lost {
            Some(psn) => Chosen::Packet(psn),
            None if self.clock == TltClock::Mtu => Chosen::Packet(stream.acked()),
            None => Chosen::Built,
        }
    }

    /// Returns whether a packet was retransmitted after the latest important one whose echo has arrived: it is not
    /// known to be lost.
    fn is_on_its_way(&self, psn: Psn) -> bool {
        self.clock != TltClock::Probe
            && self.sent.get(self.place(psn)).is_some_and(|sent| sent.again && is_after(sent.number, self.echoed))
    }

    /// Removes the first lost packet.
    fn take_lost(&mut self, stream: &Sender) -> Option<Psn> {
        self.forget_arrived(stream);
        while self.lost > 0 && self.scan.before(stream.high()) {
            let (psn, place) = (self.scan, self.place(self.scan));
            self.scan = psn.plus(1);
            if std::mem::take(&mut self.sent[place].lost) {
                self.lost -= 1;
                return Some(psn);
            }
        }
        self.lost = 0;
        None
    }

    /// Removes packets that were considered lost and have arrived after all.
    fn forget_arrived(&mut self, stream: &Sender) {
        let mut psn = self.scan;
        while self.lost > 0 && psn.before(stream.high()) {
            let place = self.place(psn);
            if self.sent[place].lost && stream.has_arrived(psn) {
                self.sent[place].lost = false;
                self.lost -= 1;
            }
            psn = psn.plus(1);
        }
        if self.scan.before(stream.acked()) {
            self.scan = stream.acked();
        }
    }

    /// Handles the departure of the packet last selected. `fresh`: it is new. `follows`: another one may go right after
    /// it. Returns its importance.
    fn sent(&mut self, psn: Psn, fresh: bool, stream: &Sender, follows: bool) -> Importance {
        let clocking = std::mem::take(&mut self.clocking);
        if self.off || !self.make_room(psn, stream) {
            return Importance::None;
        }
        let importance = match self.next {
            Next::Unimportant => Importance::None,
            Next::Initial if fresh && follows && self.first == TltFirst::Window => Importance::None,
            Next::Initial | Next::Important if clocking => Importance::Clock,
            Next::Initial | Next::Important => Importance::Important,
        };
        let place = self.place(psn);
        self.lost = self.lost.saturating_sub(u32::from(self.sent[place].lost));
        self.sent[place] = Sent { number: self.number, lost: false, again: !fresh };
        self.fly(psn, importance);
        importance
    }

    /// Builds a clock without payload, as selected by [`Self::select`], for the first unacknowledged packet.
    fn probe(&mut self, opcode: Opcode, psn: Psn, c: &QpContext, host: &mut impl Host, out: &mut TxSlot) {
        self.sent_probe(psn);
        out.gather.clear();
        out.class = PacketClass::Data;
        out.headers = c.headers(opcode, psn);
        out.headers.bth.importance = Importance::Clock;
        out.headers.irn = Some(IrnEth::Clock);
        count(host, out);
    }

    /// Handles the departure of a clock without payload, as selected by [`Self::select`].
    fn sent_probe(&mut self, psn: Psn) {
        self.clocking = false;
        self.fly(psn, Importance::Clock);
    }

    fn fly(&mut self, psn: Psn, importance: Importance) {
        if importance != Importance::None {
            debug_assert!(self.flight.is_none(), "two important packets of a stream are in the network: {self:?}");
            self.flight = Some(Flight { number: self.number, psn, importance });
            self.next = Next::Unimportant;
        }
        self.number = self.number.wrapping_add(1);
    }

    /// Makes room to track a packet. Returns false if there is no memory.
    fn make_room(&mut self, psn: Psn, stream: &Sender) -> bool {
        let ahead = psn.distance(stream.acked()).max(0) as usize;
        if ahead < self.sent.len() {
            return true;
        }
        let len = (ahead + 1).next_power_of_two().max(16);
        let mut sent = Vec::new();
        if sent.try_reserve_exact(len).is_err() {
            (self.off, self.lost) = (true, 0);
            return false;
        }
        sent.resize(len, Sent::default());
        for back in 0..self.sent.len() as u32 {
            let old = stream.acked().plus(back);
            sent[old.get() as usize & (len - 1)] = self.sent[self.place(old)];
        }
        self.sent = sent;
        true
    }

    /// Returns the number of packets that an echo shows to be lost.
    fn echo(&mut self, stream: &mut Sender, importance: Importance, psn: Psn) -> u32 {
        // Late echoes are of packets that are not awaited any more.
        let awaited = |flight: &Flight| flight.importance == importance && flight.psn == psn;
        let Some(flight) = self.flight.filter(awaited) else { return 0 };
        self.flight = None;
        self.echoed = flight.number;
        self.next = Next::Important;
        if self.clock == TltClock::Probe {
            return 0;
        }
        let mut found = 0;
        let mut psn = stream.acked();
        while psn.before(stream.high()) {
            let sent = self.sent[self.place(psn)];
            if !sent.lost
                && is_after(flight.number, sent.number)
                && !stream.has_arrived(psn)
                && !stream.will_resend(psn)
            {
                let place = self.place(psn);
                self.sent[place].lost = true;
                if self.lost == 0 || psn.before(self.scan) {
                    self.scan = psn;
                }
                self.lost += 1;
                found += 1;
            }
            psn = psn.plus(1);
        }
        if found > 0 {
            stream.count_loss();
        }
        found
    }

    /// Resets the state when everything is acknowledged: the next packet begins anew.
    fn rest(&mut self) {
        (self.next, self.flight, self.lost) = (Next::Initial, None, 0);
    }
}

impl Hooks for Tlt {
    fn start(&mut self, first: Psn, _c: &QpContext) {
        self.begin(first);
    }

    fn stop(&mut self, end: Psn) {
        self.begin(end);
    }

    /// Besides the stream's own there may be a lost packet to send, or a clock.
    fn wants_tx(&self, fetch: &Fetch, stream: &Sender, more: bool) -> bool {
        fetch.wants_tx(stream, more)
            || self.lost > 0 && stream.has_room_for_lost(self.lost)
            || self.next != Next::Unimportant && !self.off && stream.outstanding()
    }

    fn choose(&mut self, turn: Turn<'_>, c: &QpContext, host: &mut impl Host, out: &mut TxSlot) -> Chosen {
        let Turn { now, fetch, stream, more, clock } = turn;
        let chosen = self.select(now, fetch, stream, more);
        if chosen == Chosen::Built {
            self.probe(clock, stream.acked(), c, host, out);
        }
        chosen
    }

    fn mark(
        &mut self,
        sent: &Departure,
        stream: &Sender,
        _c: &QpContext,
        host: &mut impl Host,
        out: &mut TxSlot,
    ) -> bool {
        let importance = self.sent(sent.psn, sent.is_fresh(), stream, sent.follows);
        out.headers.bth.importance = importance;
        if importance == Importance::None && !self.off {
            out.colour = Colour::Red;
        } else {
            count(host, out);
        }
        true
    }

    fn on_ack(&mut self, ack: &Acknowledged, stream: &mut Sender, host: &mut impl Host) {
        if self.lost > 0 {
            self.forget_arrived(stream);
        }
        let echo = ack.echo.filter(|(importance, _)| *importance != Importance::None && !self.off);
        if let Some((importance, psn)) = echo {
            host.counters().tlt_losses_found += u64::from(self.echo(stream, importance, psn));
        } else if self.next == Next::Initial && ack.news {
            // The initial window is over, even if it was never full.
            self.next = Next::Important;
        }
        if !stream.outstanding() {
            self.rest();
        }
    }

    /// Any important packet is lost.
    fn on_timeout(&mut self, stream: &Sender) {
        self.flight = None;
        self.echoed = self.number.wrapping_sub(1);
        self.next = if stream.outstanding() { Next::Important } else { Next::Initial };
    }

    fn go_back(&mut self, stream: &mut Sender) {
        stream.go_back();
        self.on_timeout(stream);
        self.lost = 0;
        self.sent.iter_mut().for_each(|sent| sent.lost = false);
    }
}

/// Counts an important packet.
fn count(host: &mut impl Host, out: &TxSlot) {
    let clock = out.headers.bth.importance == Importance::Clock;
    let counters = host.counters();
    counters.tlt_important_pkts += 1;
    counters.tlt_clock_pkts += u64::from(clock);
    counters.tlt_clock_bytes += if clock { out.headers.frame_len(out.gather.len()) as u64 } else { 0 };
}

/// Returns whether a transmission was later than another. Numbers wrap.
#[inline]
fn is_after(number: u32, other: u32) -> bool {
    (number.wrapping_sub(other) as i32) > 0
}

footprint!(Tlt, |at| {
    clock => left(why::SHARED),
    first => left(why::SHARED),
    next => bits(2),
    flight => maybe(NUMBER + width::PSN + 2),
    number => bits(NUMBER),
    echoed => bits(NUMBER),
    sent => times(at.cap.next_power_of_two().into(), Sent::default())
        .heap(at.cap.next_power_of_two() as usize * size_of::<Sent>()),
    lost => bits(width::COUNT),
    scan => sequence(),
    clocking => flag(),
    off => left("for want of memory"),
});

footprint!(Sent, |at| {
    number => bits(NUMBER),
    lost => flag(),
    again => flag(),
});

/// Bits of a transmission's number.
const NUMBER: u64 = 32;
