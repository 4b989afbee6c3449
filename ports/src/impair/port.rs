//! A port behind an impaired network.

use std::collections::VecDeque;
use std::io;

use irnic_transports::wire::ip::ETHERNET_LEN;
use irnic_transports::wire::{RateNotice, icrc_append};
use irnic_transports::{Colour, Path, Time};

use super::delay_queue::{About, ECN_CE, flip, flipped, marked};
use super::direction::Direction;
use super::engine::{Counters, Frame};
use super::frame_trim;
use super::grammar::Impairments;
use super::line::Queue;
use crate::{Port, RxFrame, RxIcrc, TxFrame, forward_rest, packet_len};

/// A port that applies impairments to the frames that go through another port.
///
/// A frame is judged when the NIC sends it, or when it arrives. Delayed frames wait here, in buffers that are reused.
/// Bits are flipped after the ICRC was computed, so that the receiver detects them. Frames of a direction without
/// impairments pass straight through.
///
/// Delayed frames move in [`Port::flush`] and [`Port::receive`]; [`Port::next_deadline`] returns when to call one of
/// them, and a caller that waits must not wait longer. While the inner port has no room for a due frame, this one has
/// none either.
///
/// A line with queues, of `trim`, `prio` or a policy, holds the waiting frames. One that trims may return the headers
/// of a frame to its sender: those of received frames leave by the inner port, and those of the NIC's frames are
/// received. No other impairment applies to them.
///
/// A line with a congestion point notifies the NIC of its fair rate ([`Port::take_notices`]). Its notices are lost and
/// delayed like frames to the NIC.
///
/// With [`crate::capture::Captured`]: `Captured<Impaired<P>>` records what the NIC sent and received,
/// `Impaired<Captured<P>>` what crossed the wire.
pub struct Impaired<P> {
    port: P,
    tx: Direction,
    rx: Direction,
    /// Notices of the congestion point of `tx` in flight, first due first.
    notices: VecDeque<(Time, RateNotice)>,
}

/// Maximum number of notices in flight; further ones are dropped.
const MAX_NOTICES: usize = 1_000;

impl<P: Port> Impaired<P> {
    /// Wraps `port`. `seed` is used for directions whose description has none; `instance` separates the random numbers
    /// of ports that share seed and description.
    pub fn new(port: P, impairments: &Impairments, seed: u64, instance: u64) -> Impaired<P> {
        let buffer = port.max_frame();
        let tx = Direction::new(&impairments.tx, seed, instance.wrapping_mul(2), buffer);
        let rx = Direction::new(&impairments.rx, seed, instance.wrapping_mul(2).wrapping_add(1), buffer);
        Impaired { port, tx, rx, notices: VecDeque::new() }
    }

    /// Returns the counters of the frames that the NIC sent. A direction without impairments counts nothing.
    pub fn tx_counters(&self) -> &Counters {
        self.tx.engine.counters()
    }

    /// Returns the counters of the frames that arrived for the NIC. A direction without impairments counts nothing.
    pub fn rx_counters(&self) -> &Counters {
        self.rx.engine.counters()
    }

    /// Returns the inner port.
    pub fn inner(&self) -> &P {
        &self.port
    }

    /// Returns the inner port mutably. Frames sent or received there directly are not impaired.
    pub fn inner_mut(&mut self) -> &mut P {
        &mut self.port
    }

    /// Ends the periods of the congestion point that are over by `now`.
    #[inline]
    fn end_periods(&mut self, now: Time) {
        if self.tx.rocc.as_ref().is_some_and(|rocc| rocc.next_deadline() <= now) {
            self.notify(now);
        }
    }

    #[cold]
    fn notify(&mut self, now: Time) {
        let Impaired { tx, rx, notices, .. } = self;
        let Some(rocc) = &mut tx.rocc else { return };
        let counters = tx.engine.counters_mut();
        rocc.end_periods(now, &mut |at, notice| {
            counters.notices += 1;
            let mut send = |at| {
                if notices.len() < MAX_NOTICES {
                    notices.insert(notices.partition_point(|(due, _)| *due <= at), (at, *notice));
                }
            };
            if rx.idle {
                return send(at);
            }
            // A notice has no bits that an ICRC covers.
            let wire_bytes = (ETHERNET_LEN + RateNotice::LEN) as u32;
            let frame = Frame { bytes: 0, wire_bytes, ect: false, red: false };
            rx.engine.judge(at, frame, rx.held.len()).deliveries().for_each(|copy| send(copy.at));
        });
    }

    /// Passes due frames to the inner port. Returns false if it had no room for one.
    fn release_tx(&mut self, now: Time) -> bool {
        while let Some((_, held)) = self.tx.due(now) {
            let bytes = &held.bytes;
            if !self.port.transmit(now, &held.frame(), &mut |to| to.copy_from_slice(bytes)) {
                return false;
            }
            self.tx.drop_first();
        }
        true
    }

    /// Receives through a line with queues. All frames wait for it in order of arrival, which an inner port with
    /// several sources may not deliver them in.
    #[cold]
    fn receive_by_line(&mut self, now: Time, budget: usize, each: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        let Impaired { port, rx, .. } = self;
        let (mut taken, mut latest) = (0, Time::ZERO);
        // Ports may deliver less than they have, and earlier arrivals must be in the queue before time advances.
        let outcome = loop {
            let received = port.receive(now, budget - taken, &mut |frame| {
                latest = latest.max(frame.arrived);
                let held = rx.held.len();
                for copy in rx.engine.judge(frame.arrived, describe(&frame.path, frame.bytes.len()), held).deliveries()
                {
                    rx.hold(copy, &frame);
                }
            });
            match received {
                Ok(0) => break Ok(now),
                Ok(count) if taken + count >= budget => break Ok(latest.min(now)),
                Ok(count) => taken += count,
                Err(e) => break Err(e),
            }
        };
        let given = rx.release(*outcome.as_ref().unwrap_or(&now), usize::MAX, each);
        if rx.has_returned() && self.send_back(now) {
            self.port.flush(now)?;
        }
        outcome.map(|_| given)
    }

    /// Returns the headers of received frames to their senders. Returns whether there were any.
    #[cold]
    fn send_back(&mut self, now: Time) -> bool {
        let mut sent = false;
        while let Some(held) = self.rx.first_returned() {
            let path = frame_trim::way_back(&held.about.path);
            let dest_qp = frame_trim::source_qp(&held.bytes).unwrap_or_default();
            let icrc = held.about.icrc != RxIcrc::Absent || self.port.needs_icrc(&path, dest_qp);
            if icrc {
                icrc_append(&self.port.wire_path(&path), 0, &mut held.bytes);
            }
            let frame = TxFrame { path: &path, dest_qp, len: held.bytes.len(), icrc, irn: true };
            if !self.port.transmit(now, &frame, &mut |to| to.copy_from_slice(&held.bytes)) {
                break;
            }
            self.rx.drop_returned();
            sent = true;
        }
        sent
    }

    /// Delivers at most `budget` returned headers of the NIC's own frames to it.
    #[cold]
    fn take_back(&mut self, budget: usize, each: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        let mut given = 0;
        while given < budget
            && let Some(held) = self.tx.first_returned()
        {
            let About { path, icrc, .. } = held.about;
            let path = frame_trim::way_back(&path);
            if icrc != RxIcrc::Absent {
                icrc_append(&path, 0, &mut held.bytes);
            }
            each(RxFrame { path, bytes: &held.bytes, arrived: held.at, icrc });
            self.tx.drop_returned();
            given += 1;
        }
        given
    }
}

impl<P: Port> Port for Impaired<P> {
    /// Returns true for a port that flips bits of outgoing frames, which only an ICRC detects, or trims them.
    fn needs_icrc(&self, path: &Path, dest_qp: u32) -> bool {
        self.tx.changes_frames || self.port.needs_icrc(path, dest_qp)
    }

    fn transmit(&mut self, now: Time, frame: &TxFrame<'_>, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        if self.tx.idle {
            return self.port.transmit(now, frame, fill);
        }
        let TxFrame { path, len, .. } = *frame;
        self.end_periods(now);
        if !self.release_tx(now) {
            return false;
        }
        let verdict = self.tx.engine.judge(now, describe(path, len), self.tx.held.len());
        if let Some(copy) = verdict.only().filter(|copy| copy.at <= now && !self.tx.has_queues()) {
            let marked = TxFrame { path: &marked(path, copy), ..*frame };
            let mut filled = |to: &mut [u8]| {
                fill(to);
                flip(to, copy);
            };
            if self.port.transmit(now, &marked, &mut filled) {
                return true;
            }
        }
        let wire;
        let mut kept = *frame;
        if self.tx.has_queues() {
            // The path that its ICRC covers: it may need a new one.
            wire = self.port.wire_path(path);
            kept.path = &wire;
        }
        let held = &mut self.tx.held;
        let mut copies = verdict.deliveries().peekable();
        let mut bytes = held.buffer(len);
        fill(&mut bytes);
        if let Some(rocc) = &mut self.tx.rocc {
            let wire_bytes = describe(path, len).wire_bytes;
            verdict.deliveries().for_each(|copy| rocc.enter(now, [copy.joined, copy.at], wire_bytes, path, &bytes));
        }
        while let Some(copy) = copies.next() {
            if copies.peek().is_some() {
                let mut twin = held.buffer(len);
                twin.copy_from_slice(&bytes);
                held.push(copy, (&kept).into(), twin);
            } else {
                held.push(copy, (&kept).into(), std::mem::take(&mut bytes));
            }
        }
        held.recycle(bytes);
        self.release_tx(now);
        true
    }

    fn flush(&mut self, now: Time) -> io::Result<()> {
        self.end_periods(now);
        if self.rx.has_returned() {
            self.send_back(now);
        }
        if !self.release_tx(now) {
            self.port.flush(now)?;
            self.release_tx(now);
        }
        self.port.flush(now)
    }

    fn receive(&mut self, now: Time, budget: usize, each: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        let mut given = 0;
        if self.tx.next_deadline() <= now {
            self.flush(now)?;
        }
        if self.tx.has_returned() {
            given += self.take_back(budget, each);
        }
        if self.rx.idle {
            return Ok(given + self.port.receive(now, budget - given, each)?);
        }
        if self.rx.has_queues() {
            return Ok(given + self.receive_by_line(now, budget - given, each)?);
        }
        let Impaired { port, rx, .. } = self;
        given += rx.release(now, budget - given, each);
        if given == budget {
            return Ok(given);
        }
        port.receive(now, budget - given, &mut |frame| {
            let RxFrame { path, bytes, arrived, icrc } = frame;
            let verdict = rx.engine.judge(arrived, describe(&path, bytes.len()), rx.held.len());
            for copy in verdict.deliveries() {
                if copy.at <= arrived {
                    // Frames that fell due before this one arrived go first.
                    given += 1 + rx.release(arrived, usize::MAX, each);
                    if copy.flip_bit.is_none() {
                        each(RxFrame { path: marked(&path, copy), bytes, arrived, icrc });
                        continue;
                    }
                    let mut changed = rx.held.copy_of(bytes);
                    flip(&mut changed, copy);
                    each(RxFrame { path: marked(&path, copy), bytes: &changed, arrived, icrc: flipped(icrc) });
                    rx.held.recycle(changed);
                } else {
                    rx.hold(copy, &frame);
                }
            }
        })?;
        given += rx.release(now, budget.saturating_sub(given), each);
        Ok(given)
    }

    fn impairments(&self) -> Option<[Report; 2]> {
        Some([&self.tx, &self.rx].map(Direction::report))
    }

    fn next_deadline(&self) -> Time {
        if self.tx.has_returned() {
            return Time::ZERO;
        }
        let own = self.tx.next_deadline().min(self.rx.next_deadline());
        let notice = self.notices.front().map_or(Time::NEVER, |(at, _)| *at);
        self.port.next_deadline().min(own).min(notice)
    }

    fn gives_notices(&self) -> bool {
        self.tx.rocc.is_some() || self.port.gives_notices()
    }

    fn take_notices(&mut self, now: Time, each: &mut dyn FnMut(Time, &RateNotice)) {
        self.end_periods(now);
        while self.notices.front().is_some_and(|(at, _)| *at <= now)
            && let Some((at, notice)) = self.notices.pop_front()
        {
            each(at, &notice);
        }
        self.port.take_notices(now, each);
    }

    forward_rest!(self => self.port);
}

/// Counters and queue lengths of one direction.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct Report {
    /// Counters of all impairments.
    pub counters: Counters,
    /// Whether the line has priorities, `prio`.
    pub has_priorities: bool,
    /// Whether a policy describes the queues, `policy`.
    pub has_policy: bool,
    /// Length of the queue of `rate`; `None` without a `rate`. With `trim`, that of the frames with payload.
    pub queue: Option<Queue>,
    /// Length of the queue of frames without payload; `None` without `trim`.
    pub headers: Option<Queue>,
    /// Fair rate of the line, bit/s; `None` without `rocc`.
    pub fair_rate: Option<u64>,
    /// Length of the queue of red frames; `None` without `red`.
    pub red: Option<Queue>,
}

impl Report {
    /// Returns the names and values of all numbers; those of queues only if there are any.
    pub fn numbers(&self) -> impl Iterator<Item = (&'static str, u64)> {
        const QUEUE: [&str; 5] =
            ["queue_frames", "queue_mean_bytes", "queue_p50_bytes", "queue_p99_bytes", "queue_peak_bytes"];
        const HEADERS: [&str; 5] = [
            "header_queue_frames",
            "header_queue_mean_bytes",
            "header_queue_p50_bytes",
            "header_queue_p99_bytes",
            "header_queue_peak_bytes",
        ];
        const RED: [&str; 5] = [
            "red_queue_frames",
            "red_queue_mean_bytes",
            "red_queue_p50_bytes",
            "red_queue_p99_bytes",
            "red_queue_peak_bytes",
        ];
        const PRIORITY_FRAMES: [&str; 8] = [
            "priority_0_frames",
            "priority_1_frames",
            "priority_2_frames",
            "priority_3_frames",
            "priority_4_frames",
            "priority_5_frames",
            "priority_6_frames",
            "priority_7_frames",
        ];
        const PRIORITY_DROPS: [&str; 8] = [
            "priority_0_drops",
            "priority_1_drops",
            "priority_2_drops",
            "priority_3_drops",
            "priority_4_drops",
            "priority_5_drops",
            "priority_6_drops",
            "priority_7_drops",
        ];
        let Counters { seen, dropped, marked, duplicated, reordered, corrupted, delayed, over_limit, .. } =
            self.counters;
        let Counters { red_drops, trimmed, returned, header_drops, notices, pushed_out, .. } = self.counters;
        let counters = [
            ("seen", seen),
            ("dropped", dropped),
            ("marked", marked),
            ("duplicated", duplicated),
            ("reordered", reordered),
            ("corrupted", corrupted),
            ("delayed", delayed),
            ("over_limit", over_limit),
        ];
        let rocc = self.fair_rate.map(|rate| [("notices", notices), ("fair_rate", rate)]);
        let red = self.red.map(|_| [("red_drops", red_drops)]);
        let trim = [("trimmed", trimmed), ("returned", returned), ("header_drops", header_drops)];
        let trim = (self.headers.is_some() || self.has_policy).then_some(trim);
        let prio = [(PRIORITY_FRAMES, self.counters.priority_frames), (PRIORITY_DROPS, self.counters.priority_drops)];
        let prio = prio.into_iter().flat_map(|(names, counts)| names.into_iter().zip(counts));
        let prio = prio.filter(|_| self.has_priorities);
        let pushed_out = (self.has_priorities || self.has_policy).then_some(("pushed_out", pushed_out));
        let queues = [(self.queue, QUEUE), (self.headers, HEADERS), (self.red, RED)];
        let queues = queues.into_iter().filter_map(|(queue, names)| Some(names.into_iter().zip(queue?.numbers())));
        let own = red.into_iter().flatten().chain(rocc.into_iter().flatten()).chain(trim.into_iter().flatten());
        counters.into_iter().chain(own).chain(pushed_out).chain(prio).chain(queues.flatten())
    }
}

fn describe(path: &Path, len: usize) -> Frame {
    let bytes = |len| u32::try_from(len).unwrap_or(u32::MAX);
    Frame {
        bytes: bytes(len),
        wire_bytes: bytes(packet_len(path.dst, len)),
        ect: path.traffic_class & ECN_CE != 0,
        red: path.colour() == Colour::Red,
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
