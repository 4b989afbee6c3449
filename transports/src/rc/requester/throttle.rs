//! Between a queue pair and its congestion controller: measures what the controller is told, and holds back what it does not allow.

use std::collections::VecDeque;

use crate::congestion::{Ack, Congestion, Controller, Line};
use crate::pacer::Pacer;
use crate::psn::Psn;
use crate::rc::TransportConfig;
use crate::rc::requester::transmit::ACK_EVERY;
use crate::recovery::Sack;
use crate::telemetry::Int;
use crate::time::Time;

/// A segment whose round trip is being measured: packets that leave in one burst (TIMELY §3.3), and were sent once. It counts from
/// when the last of them leaves: what came before them in the same burst, or kept them back here, is no queue of the network's.
#[derive(Copy, Clone, Debug)]
struct Segment {
    first: Psn,
    /// Its last packet.
    last: Psn,
    /// When that was sent, and its payload.
    sent: Time,
    payload: u32,
    /// Payload of all.
    bytes: u32,
}

/// Segments measured at a time; more are not.
const SEGMENTS: usize = 256;

/// Least bytes of a burst of packets: what a link sends between two looks at the timers, and two packets.
const BURST: u32 = 8192;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Throttle {
    controller: Congestion,
    /// Requests leave with telemetry.
    telemetry: bool,
    line: Line,
    pacer: Pacer,
    /// The rate does not allow a packet before then; never if it does.
    blocked: Time,
    /// Bytes of a segment, if round trips are of interest.
    segment: Option<u32>,
    /// bit/s at which the packets of one leave, 0 for the line's.
    pacing: u64,
    /// When what has left has done so at that rate.
    paced: Time,
    /// The one that is being sent.
    open: Option<Segment>,
    segments: VecDeque<Segment>,
    /// Packets acknowledged in all.
    acked: u64,
    /// Marks on responses are no notification before then.
    next_notice: Time,
    /// When all that was sent is paid for at the rate.
    due: Time,
    /// Since then, never before the first packet, the rate was not used for so many ns.
    since: Time,
    unused: u64,
    busy: bool,
}

impl Throttle {
    /// `None` without congestion control.
    pub fn new(config: &TransportConfig, mtu: u32) -> Option<Box<Throttle>> {
        let line = Line { rate: config.line_rate.max(1), base_rtt: config.base_rtt.max(1), mtu };
        let controller = Congestion::new(&config.congestion, &line)?;
        let segment = controller.segment();
        let pacing = controller.pacing();
        // A segment leaves when the one before it is paid for, whole, and makes up for having left late; packets of their own
        // leave as the bucket fills.
        let burst = segment.map_or(BURST.max(2 * mtu), |s| s / 2);
        let mut throttle = Box::new(Throttle {
            pacer: Pacer::new(Time::ZERO, 0, burst),
            controller,
            telemetry: config.congestion.uses_telemetry(),
            line,
            blocked: Time::NEVER,
            segment,
            pacing: if pacing < line.rate { pacing } else { 0 },
            paced: Time::ZERO,
            open: None,
            segments: VecDeque::new(),
            acked: 0,
            next_notice: Time::ZERO,
            due: Time::ZERO,
            since: Time::NEVER,
            unused: 0,
            busy: true,
        });
        throttle.set_rate(Time::ZERO);
        Some(throttle)
    }

    /// Whether the rate allows a packet now, as far as is known without looking at the time.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.blocked == Time::NEVER
    }

    /// Whether requests are to leave with telemetry.
    #[inline]
    pub fn wants_telemetry(&self) -> bool {
        self.telemetry
    }

    /// Packets that may be in flight.
    #[inline]
    pub fn window(&self) -> u32 {
        self.controller.window().max(1)
    }

    /// What of them counts; see [`Controller::counts_pipe`].
    pub fn counts_pipe(&self) -> bool {
        self.controller.counts_pipe()
    }

    /// When [`Self::on_deadline`] is due.
    #[inline]
    pub fn next_deadline(&self) -> Time {
        self.blocked.min(self.controller.next_deadline())
    }

    /// Runs what is due.
    pub fn on_deadline(&mut self, now: Time) {
        if self.controller.next_deadline() <= now {
            self.controller.on_timer(now);
            self.set_rate(now);
        }
        self.allows(now);
    }

    /// Whether a packet may go at `now`.
    #[inline]
    pub fn allows(&mut self, now: Time) -> bool {
        if self.blocked <= now {
            self.look(now);
        }
        self.is_open()
    }

    #[inline]
    fn look(&mut self, now: Time) {
        let earliest = if self.open.is_some() {
            self.paced
        } else {
            let needs = if self.segment.is_some() { 0 } else { self.line.mtu };
            self.pacer.earliest(now, needs).max(self.paced)
        };
        self.blocked = if earliest > now { earliest } else { Time::NEVER };
    }

    /// Takes over what the controller says. At the line's rate the link itself is the pacer. A segment that waits does so until the time
    /// that it was given, and the rate is looked at again then (TIMELY §5, "enforces rate updates lazily").
    fn set_rate(&mut self, now: Time) {
        let rate = self.controller.rate();
        let rate = if rate >= self.line.rate { 0 } else { rate };
        if rate != self.pacer.rate() {
            // What is not paid for yet takes the longer, the lower the new rate.
            let unpaid = u128::from(self.due.since(now)) * u128::from(self.used_rate());
            self.pacer.set_rate(now, rate);
            if unpaid > 0 {
                self.due = now + u64::try_from(unpaid / u128::from(self.used_rate())).unwrap_or(u64::MAX);
            }
            if self.segment.is_none() || self.is_open() {
                self.look(now);
            } else {
                // It is not the application that leaves the rest of the time unused.
                self.due = self.due.max(self.blocked);
            }
        }
    }

    /// bit/s.
    fn used_rate(&self) -> u64 {
        if self.pacer.rate() == 0 { self.line.rate } else { self.pacer.rate() }
    }

    /// READs were asked for, and will be again for what did not come: nothing is owed for that.
    pub fn forgive(&mut self, now: Time) {
        self.pacer.forgive(now);
        self.due = self.due.min(now);
        self.look(now);
    }

    /// When what is sent next may go, if the rate does not allow it now.
    pub fn blocked_until(&self) -> Option<Time> {
        (!self.is_open()).then_some(self.blocked)
    }

    /// Notes how much of the rate is used: each time that it was looked at for a round trip at least, and with a packet that leaves.
    fn use_rate(&mut self, now: Time, bytes: u32) {
        if self.since == Time::NEVER {
            (self.since, self.due) = (now, now);
        }
        self.unused += now.since(self.due);
        let elapsed = now.since(self.since);
        if elapsed >= self.line.base_rtt {
            self.busy = self.unused.saturating_mul(5) <= elapsed;
            (self.since, self.unused) = (now, 0);
        }
        let takes = u64::from(bytes) * 8_000_000_000 / self.used_rate();
        self.due = self.due.max(now) + takes;
    }

    /// The packet `psn` leaves, with `payload` bytes, and `bytes` that it will bring there or back; `ends`: with it ends a message.
    /// Returns whether an acknowledgement of it is needed: it ends a measurement, what may follow depends on it, or what follows
    /// comes so late that it would be missed.
    pub fn on_send(&mut self, now: Time, psn: Psn, fresh: bool, payload: u32, bytes: u32, ends: bool) -> bool {
        self.use_rate(now, bytes);
        self.controller.on_send(now, bytes);
        self.set_rate(now);
        self.pacer.spend(now, bytes);
        self.pace(now, payload);
        let measured = self.measure(now, psn, fresh, payload, ends);
        self.look(now);
        let between = self.open.is_none() && !self.is_open();
        let late = between && self.blocked.since(now).saturating_mul(ACK_EVERY.into()) > self.line.base_rtt;
        measured || late || self.controller.window() != u32::MAX
    }

    /// A packet within a segment makes up for one that left late, the first of a segment for nothing.
    fn pace(&mut self, now: Time, payload: u32) {
        if let Some(takes) = (u64::from(payload) * 8_000_000_000).checked_div(self.pacing) {
            let began = if self.open.is_some() { self.paced } else { self.paced.max(now) };
            self.paced = began + takes;
        }
    }

    fn measure(&mut self, now: Time, psn: Psn, fresh: bool, payload: u32, ends: bool) -> bool {
        let Some(length) = self.segment else { return false };
        if !fresh {
            // Which of the two an acknowledgement answers would be a guess (Karn).
            self.segments.retain(|s| psn.before(s.first) || s.last.before(psn));
            // A burst ends here: what is sent again is paid for packet by packet.
            self.open = None;
            return false;
        }
        let mut open = self.open.take().unwrap_or(Segment { first: psn, last: psn, sent: now, payload, bytes: 0 });
        (open.last, open.sent, open.payload) = (psn, now, payload);
        open.bytes = open.bytes.saturating_add(payload);
        if !ends && open.bytes.saturating_add(self.line.mtu) <= length {
            self.open = Some(open);
            return false;
        }
        if self.segments.len() < SEGMENTS {
            self.segments.push_back(open);
        }
        true
    }

    /// An acknowledgement or response arrived at `now`: everything before `acked` has arrived, of that `packets` had not been
    /// known, and on a NACK so has `sack`; `outstanding` packets were sent that have not.
    pub fn on_ack(&mut self, now: Time, acked: Psn, packets: u32, outstanding: u32, sack: Option<Sack>, marked: bool) {
        self.acked += u64::from(packets);
        let mut ack = Ack {
            packets,
            rtt: None,
            marked,
            acked: self.acked,
            sent: self.acked + u64::from(outstanding),
            busy: self.busy,
        };
        let mut told = false;
        while let Some(answered) = self.answered(acked, sack) {
            // Of several that end together the latest says most of the network as it is.
            if let Some(segment) = answered {
                ack.rtt = Some(self.round_trip(now, &segment));
                self.controller.on_ack(now, &ack);
                told = true;
                ack.packets = 0;
            }
        }
        if !told {
            self.controller.on_ack(now, &ack);
        }
        self.set_rate(now);
    }

    /// Takes out the first segment that such an acknowledgement says something of: with it if all of it, or its last packet, has
    /// arrived; without it if only later ones have.
    fn answered(&mut self, acked: Psn, sack: Option<Sack>) -> Option<Option<Segment>> {
        let last = self.segments.front()?.last;
        let reached = last.before(acked);
        if !reached && sack.is_none_or(|s| s.last.before(last)) {
            return None;
        }
        let segment = self.segments.pop_front();
        Some(segment.filter(|_| reached || sack.is_some_and(|s| s.covers(last))))
    }

    fn round_trip(&self, now: Time, segment: &Segment) -> u64 {
        let sending = u64::from(segment.payload) * 8_000_000_000 / self.line.rate;
        now.since(segment.sent).saturating_sub(sending).max(1)
    }

    /// What came with an acknowledgement, after [`Self::on_ack`].
    pub fn on_telemetry(&mut self, now: Time, int: &Int) {
        self.controller.on_telemetry(now, int);
        self.set_rate(now);
    }

    /// A congestion notification.
    pub fn on_cnp(&mut self, now: Time) {
        self.controller.on_cnp(now);
        self.set_rate(now);
    }

    /// A response to a READ has met congestion. This end is notification and reaction point at once: a notification that would have
    /// been sent, one in `interval` ns at most, if there are any, is taken as come.
    pub fn on_marked_response(&mut self, now: Time, interval: Option<u64>) {
        if let Some(interval) = interval
            && now >= self.next_notice
        {
            self.next_notice = now + interval;
            self.on_cnp(now);
        }
    }

    /// Packets were found to be lost.
    pub fn on_loss(&mut self, now: Time) {
        self.controller.on_loss(now);
        self.set_rate(now);
    }

    /// The retransmission timer ran out.
    pub fn on_timeout(&mut self, now: Time) {
        // What is sent again from here on answers for none of them.
        self.segments.clear();
        self.open = None;
        self.controller.on_timeout(now);
        self.set_rate(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{MS, US};

    const GBIT: u64 = 1_000_000_000;
    const MTU: u32 = 1000;

    /// A line of 8 Gbit/s, a byte a nanosecond, and a round trip of 10 µs.
    fn throttle(congestion: &str) -> Box<Throttle> {
        let mut config = TransportConfig::preset("irn").unwrap();
        config.congestion = congestion.parse().unwrap();
        (config.line_rate, config.base_rtt) = (8 * GBIT, 10 * US);
        Throttle::new(&config, MTU).unwrap()
    }

    /// TIMELY at the line rate, to which no round trip says anything.
    fn measuring() -> Box<Throttle> {
        throttle("timely,t-low=0,t-high=3600s,segment=4000")
    }

    /// A quarter of the line's rate, 2 Gbit/s or 4 ns a byte, in segments of 4000 bytes.
    fn quarter() -> Box<Throttle> {
        let mut t = throttle("timely,t-low=0,t-high=3600s,segment=4000,initial=0.25");
        // Nothing is left of the half segment that a flow begins with.
        t.pacer.spend(Time::ZERO, 2_000);
        t
    }

    fn psn(n: u32) -> Psn {
        Psn::new(0xff_fffe).plus(n)
    }

    /// Full packet `n`, which ends no message.
    fn send(t: &mut Throttle, now: u64, n: u32) -> bool {
        t.on_send(Time(now), psn(n), true, MTU, MTU, false)
    }

    fn again(t: &mut Throttle, now: u64, n: u32) {
        t.on_send(Time(now), psn(n), false, MTU, MTU, false);
    }

    /// What the segments that wait are: first and last packet, and bytes.
    fn waiting(t: &Throttle) -> Vec<(i32, i32, u32)> {
        t.segments.iter().map(|s| (s.first.distance(psn(0)), s.last.distance(psn(0)), s.bytes)).collect()
    }

    /// The samples that an acknowledgement of everything before `acked` brings.
    fn samples(t: &mut Throttle, now: u64, acked: u32, sack: Option<Sack>) -> Vec<u64> {
        let mut samples = Vec::new();
        while let Some(answered) = t.answered(psn(acked), sack) {
            samples.extend(answered.map(|s| t.round_trip(Time(now), &s)));
        }
        samples
    }

    fn sack(last: u32, run: u8) -> Option<Sack> {
        Some(Sack { last: psn(last), run })
    }

    #[test]
    fn segments_end_by_length_and_with_their_message() {
        let mut t = measuring();
        let ends: Vec<bool> = (0..6).map(|n| send(&mut t, u64::from(n), n)).collect();
        assert_eq!(ends, [false, false, false, true, false, false]);
        // A message ends with 1 byte: so does the segment.
        assert!(t.on_send(Time(6), psn(6), true, 1, 1, true));
        assert_eq!(waiting(&t), [(0, 3, 4000), (4, 6, 2001)]);
        // A message without bytes is one, too.
        assert!(t.on_send(Time(7), psn(7), true, 0, 0, true));
        assert_eq!(waiting(&t)[2], (7, 7, 0));
        // 999 bytes more are no full packet more: 3001 of 4000 end it.
        for n in 8..10 {
            assert!(!send(&mut t, 8, n));
        }
        assert!(!t.on_send(Time(8), psn(10), true, 1000, 1000, false));
        assert!(t.on_send(Time(8), psn(11), true, 1, 1, false));
        assert_eq!(waiting(&t)[3], (8, 11, 3001));
    }

    #[test]
    fn a_round_trip_counts_from_the_last_packet_less_what_sending_it_takes() {
        let mut t = measuring();
        for n in 0..4 {
            send(&mut t, 1_000 * u64::from(n), n);
        }
        // Three of four are no completion.
        assert_eq!(samples(&mut t, 9_000, 3, None), []);
        // Sent at 3000, of 1000 bytes that take 1000 ns: 20,000 − 3000 − 1000.
        assert_eq!(samples(&mut t, 20_000, 4, None), [16_000]);
        assert_eq!(samples(&mut t, 21_000, 4, None), [], "once");
        // A message of 100 bytes: 50,000 − 30,000 − 100.
        t.on_send(Time(30_000), psn(4), true, 100, 100, true);
        assert_eq!(samples(&mut t, 50_000, 5, None), [19_900]);
        // Never nought, whatever the clocks say.
        t.on_send(Time(60_000), psn(5), true, 1000, 1000, true);
        assert_eq!(samples(&mut t, 60_100, 6, None), [1]);
    }

    #[test]
    fn one_acknowledgement_ends_several_segments() {
        let mut t = measuring();
        for n in 0..10 {
            send(&mut t, 1_000 * u64::from(n), n);
        }
        // Packets 3 and 7 end segments; 8 and 9 are in the open one.
        assert_eq!(samples(&mut t, 20_000, 10, None), [16_000, 12_000]);
        assert!(t.open.is_some() && t.segments.is_empty());
    }

    #[test]
    fn what_is_sent_again_answers_for_no_segment() {
        let mut t = measuring();
        for n in 0..14 {
            send(&mut t, 0, n);
        }
        assert_eq!(waiting(&t), [(0, 3, 4000), (4, 7, 4000), (8, 11, 4000)]);
        again(&mut t, 100, 5);
        assert_eq!(waiting(&t), [(0, 3, 4000), (8, 11, 4000)]);
        assert!(t.open.is_none(), "no burst any more");
        // The first and the last of a segment belong to it.
        again(&mut t, 100, 0);
        again(&mut t, 100, 11);
        assert_eq!(waiting(&t), []);
        // The next new packet begins a segment of its own.
        for n in 14..18 {
            send(&mut t, 200, n);
        }
        assert_eq!(waiting(&t), [(14, 17, 4000)]);
        again(&mut t, 300, 13);
        assert_eq!(waiting(&t), [(14, 17, 4000)]);
        t.on_timeout(Time(400));
        assert_eq!(waiting(&t), []);
    }

    #[test]
    fn a_selective_acknowledgement_ends_what_it_covers() {
        let mut t = measuring();
        for n in 0..16 {
            send(&mut t, 0, n);
        }
        // 7 has come, 0 has not; segment 0..=3 is passed without an answer.
        assert_eq!(samples(&mut t, 9_000, 0, sack(6, 0)), []);
        assert_eq!(waiting(&t).len(), 3);
        assert_eq!(samples(&mut t, 9_000, 0, sack(7, 0)), [8_000]);
        // A run of 8 to 12 covers 11, which ends a segment, though it is not the last.
        assert_eq!(samples(&mut t, 10_000, 0, sack(12, 4)), [9_000]);
        // A run of one does not cover it.
        let mut t = measuring();
        for n in 0..8 {
            send(&mut t, 0, n);
        }
        assert_eq!(samples(&mut t, 10_000, 0, sack(5, 0)), []);
        assert_eq!(waiting(&t), [(4, 7, 4000)]);
    }

    #[test]
    fn no_more_segments_than_there_is_room_for() {
        let mut t = throttle("timely,t-low=0,t-high=3600s,segment=1");
        for n in 0..SEGMENTS as u32 + 10 {
            send(&mut t, 0, n);
        }
        assert_eq!(t.segments.len(), SEGMENTS);
    }

    /// Whether the rate counts as used when a segment of 4 packets leaves every `every` ns; each takes 16 µs at the rate.
    fn used(every: u64) -> bool {
        let mut t = quarter();
        for segment in 0..40 {
            for n in 0..4 {
                send(&mut t, segment * every, segment as u32 * 4 + n);
            }
        }
        t.busy
    }

    #[test]
    fn four_fifths_of_the_rate_are_most_of_it() {
        // 16,000 of every: 100 %, 81.0 %, 80 %, 79.0 %, 50 %.
        assert_eq!([16_000, 19_750, 20_000, 20_250, 32_000].map(used), [true, true, true, false, false]);
    }

    #[test]
    fn after_idle_time_the_rate_was_not_used_until_it_is_for_a_round_trip() {
        let mut t = quarter();
        assert!(t.busy, "a flow that begins");
        let mut n = 0;
        let mut segment = |t: &mut Throttle, at: u64| {
            for _ in 0..4 {
                send(t, at, n);
                n += 1;
            }
            t.busy
        };
        // The time before the first packet is none.
        assert!(segment(&mut t, 100_000) && segment(&mut t, 116_000));
        // Idle from 132,000 on.
        assert!(!segment(&mut t, 232_000));
        assert!(segment(&mut t, 248_000), "16 µs, all of them used");
    }

    #[test]
    fn a_rate_that_falls_leaves_no_idle_time() {
        // At 0 a segment, 16 µs; at 8 µs the rate is halved: the other half takes 16 µs, so that the next leaves at 24 µs. That is
        // found when it is due.
        let mut t = quarter();
        for n in 0..4 {
            send(&mut t, 0, n);
        }
        t.controller = throttle("timely,t-low=0,t-high=3600s,segment=4000,initial=0.125").controller;
        t.set_rate(Time(8_000));
        assert_eq!((t.due, t.next_deadline()), (Time(24_000), Time(16_000)));
        assert!(!t.allows(Time(16_000)));
        assert_eq!(t.next_deadline(), Time(24_000));
        send(&mut t, 24_000, 4);
        assert!(t.busy);
    }

    #[test]
    fn a_rate_that_rises_brings_no_segment_forward() {
        // At 0 a segment, 16 µs; at 8 µs the rate is doubled.
        let mut t = quarter();
        (0..4).for_each(|n| _ = send(&mut t, 0, n));
        t.controller = throttle("timely,t-low=0,t-high=3600s,segment=4000,initial=0.5").controller;
        t.set_rate(Time(8_000));
        t.on_deadline(Time(12_000));
        assert!(!t.is_open() && t.next_deadline() == Time(16_000));
        assert!(t.allows(Time(16_000)));
        // No fault of the application's; and the next one has the new rate, and what the wait has earned.
        (4..8).for_each(|n| _ = send(&mut t, 16_000, n));
        assert!(t.busy);
        assert_eq!(t.next_deadline(), Time(20_000));
    }

    #[test]
    fn a_segment_leaves_whole_and_the_next_when_it_is_paid_for() {
        let mut t = quarter();
        assert_eq!(t.pacer.rate(), 2 * GBIT);
        for n in 0..4 {
            assert!(t.allows(Time(u64::from(n) * 1_000)), "{n}");
            send(&mut t, u64::from(n) * 1_000, n);
        }
        // 4000 bytes take 16 µs from 0 on, whenever they left.
        assert!(!t.is_open());
        assert_eq!(t.next_deadline(), Time(16_000));
        t.on_deadline(Time(15_999));
        assert!(!t.is_open() && !t.allows(Time(15_999)));
        assert!(t.allows(Time(16_000)));
        // A message of one packet is a segment: 1000 bytes are 4 µs.
        t.on_send(Time(16_000), psn(4), true, MTU, MTU, true);
        assert_eq!(t.next_deadline(), Time(20_000));
        t.on_deadline(Time(20_000));
        assert!(t.is_open());
        assert_eq!(t.next_deadline(), Time::NEVER);
    }

    #[test]
    fn a_segment_that_leaves_late_makes_up_for_it() {
        let mut t = quarter();
        let segment = |t: &mut Throttle, at: u64, n: u32| {
            assert!(t.allows(Time(at)));
            (n..n + 4).for_each(|n| assert!(send(t, at, n) == (n % 4 == 3)));
            t.next_deadline().0
        };
        assert_eq!(segment(&mut t, 0, 0), 16_000);
        assert_eq!(segment(&mut t, 21_000, 4), 32_000);
        assert_eq!(segment(&mut t, 32_000, 8), 48_000);
        // For half a segment at most, and the nanosecond that the bucket has above that.
        assert_eq!(segment(&mut t, 1_000_000, 12), 1_007_999);
    }

    #[test]
    fn packets_of_a_segment_leave_at_a_rate_of_their_own() {
        // Segments of 4000 bytes at 2 Gbit/s, 16 µs; their packets at 4 Gbit/s, 2 µs.
        let mut t = throttle("timely,t-low=0,t-high=3600s,segment=4000,initial=0.25,pacing=4G");
        t.pacer.spend(Time::ZERO, 2_000);
        for n in 0..3 {
            let at = Time(2_000 * u64::from(n));
            assert!(t.allows(at), "{n}");
            assert!(!send(&mut t, at.0, n));
            assert_eq!((t.is_open(), t.next_deadline()), (false, Time(2_000 * u64::from(n + 1))));
            assert!(!t.allows(Time(at.0 + 1_999)));
        }
        // One that is late changes nothing of the next one's time, which here is that of the next segment.
        assert!(send(&mut t, 7_500, 3));
        assert_eq!(t.next_deadline(), Time(16_000));
        // Its round trip counts from when it left, less what the line takes for it: the pacer's time is none of it.
        assert_eq!(samples(&mut t, 20_000, 4, None), [11_500]);
        // Where the rate is higher, segments follow each other at the pacing.
        let mut t = throttle("timely,t-low=0,t-high=3600s,segment=4000,pacing=4G");
        (0..4).for_each(|n| assert!(send(&mut t, 2_000 * u64::from(n), n) == (n == 3)));
        assert_eq!(t.next_deadline(), Time(8_000));
        // The first packet of one that begins late makes up for nothing.
        send(&mut t, 9_000, 4);
        assert_eq!(t.next_deadline(), Time(11_000));
        // As fast as the line is no pacing.
        let mut t = throttle("timely,t-low=0,t-high=3600s,segment=4000,pacing=8G");
        send(&mut t, 0, 0);
        assert!(t.is_open());
    }

    #[test]
    fn what_is_sent_again_is_paid_for_packet_by_packet() {
        let mut t = quarter();
        send(&mut t, 0, 0);
        send(&mut t, 1_000, 1);
        assert!(t.is_open(), "in a burst");
        again(&mut t, 2_000, 0);
        assert_eq!(t.next_deadline(), Time(12_000));
        assert!(t.allows(Time(12_000)));
        again(&mut t, 12_000, 1);
        assert_eq!(t.next_deadline(), Time(16_000));
    }

    #[test]
    fn a_rate_without_segments_has_a_bucket() {
        // DCQCN at 4 Gbit/s after one notification (α = 1): 2 ns a byte, and 8192 bytes at once.
        let mut t = throttle("dcqcn");
        assert_eq!(t.pacer.rate(), 0);
        t.on_cnp(Time(0));
        assert_eq!(t.pacer.rate(), 4 * GBIT);
        for n in 0..7 {
            assert!(t.allows(Time(0)), "{n}");
            send(&mut t, 0, n);
        }
        // 192 bytes are left after the eighth; 808 more take 1616 ns.
        assert!(t.is_open());
        send(&mut t, 0, 7);
        assert_eq!(t.next_deadline(), Time(1_616));
        // Another, α still being 1.
        t.on_cnp(Time(616));
        assert_eq!(t.pacer.rate(), 2 * GBIT);
        // 308 bytes have been earned; the other 500 take 4 ns each.
        assert_eq!(t.next_deadline(), Time(616 + 2_000));
    }

    #[test]
    fn reads_that_will_be_asked_again_are_owed_no_more() {
        let mut t = quarter();
        // 1 MB is 4 ms.
        t.on_send(Time(0), psn(0), true, 0, 1_000_000, true);
        assert_eq!((t.next_deadline(), t.due), (Time(4 * MS), Time(4 * MS)));
        t.forgive(Time(1_000));
        assert!(t.is_open());
        assert_eq!(t.due, Time(1_000));
    }

    #[test]
    fn windows_are_the_controllers_and_ask_for_acknowledgements() {
        // A bandwidth-delay product of 10,000 bytes: ten packets.
        let mut t = throttle("aimd");
        assert_eq!((t.window(), t.pacer.rate()), (10, 0));
        assert!(send(&mut t, 0, 0));
        assert!(t.is_open());
        t.on_loss(Time(0));
        assert_eq!(t.window(), 5);
        t.on_timeout(Time(0));
        assert_eq!(t.window(), 1);
        assert_eq!(measuring().window(), u32::MAX);
    }

    #[test]
    fn acknowledgements_are_asked_for_when_packets_are_far_apart() {
        // Sixteen at 8 Gbit/s less than a round trip of 10 µs apart may share one: gaps of 625 ns.
        let mut t = throttle("dcqcn");
        assert!(!send(&mut t, 0, 0));
        t.on_cnp(Time(0));
        let asked: Vec<bool> = (1..9).map(|n| send(&mut t, 0, n)).collect();
        assert_eq!(asked, [false, false, false, false, false, false, false, true]);
    }
}
