//! The state protected by a unit's lock: the NIC on its port, listeners, and the schedule of polls.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use irnic_nic::calibration::Calibration;
use irnic_nic::frame::Icrc;
use irnic_nic::{Arm, Nic, NicError, NicEvent, QpConfig};
use irnic_ports::{Moved, NicPort, Port, TimedNicPort, Watched, host_now as now};
use irnic_transports::Time;
use irnic_transports::qp::{CqId, Event, PdId, QpAttr, QpState, SrqId, Wc, WcStatus, XrcdId};
use irnic_transports::time::MS;

use super::app_model::{AppModel, POLL_INTERVAL};
use super::listener::{Listener, Owner, Registry};
use super::manager::Manager;
use super::port::{DevicePort, seed_at};
use super::presence::Presence;
use super::unheard::Unheard;
use crate::device::{DeviceInfo, Live};
use crate::stats::page::OwnPage;
use crate::stats::{self, DeviceStats, Ledger, QpRecord};

/// Packets in flight that keep the peer busy for some time: four trains of full packets.
const BUSY: u32 = 64;
/// How long a process that ends waits for room in its port, and its polling interval.
const LINGER: Duration = Duration::from_millis(250);
const LINGER_INTERVAL: Duration = Duration::from_micros(100);
/// How often the last acknowledgement is repeated when a queue pair is destroyed: with a loss of one packet in ten, one
/// peer in a thousand does not receive it.
const FAREWELLS: usize = 2;
/// Interval of readings of the NIC's clock and the host's for [`State::wall_clock`], ns: those kept then span half a
/// second.
const COMPARE_INTERVAL: u64 = 10 * MS;

/// The state protected by the lock of a [`Unit`](super::Unit).
pub(crate) struct State {
    pub(super) nic_port: NicPort<Box<dyn DevicePort>>,
    /// The port has a clock of its own.
    pub(super) timed: bool,
    pub(super) manager: Manager,
    pub(super) cqs: Registry,
    srqs: Registry,
    qps: Registry,
    /// Statistics of destroyed queue pairs.
    ledger: Ledger,
    /// The page for other processes, if they may read it.
    pub(super) page: Option<Box<OwnPage>>,
    /// Peers do not ring although requested: packets kept arriving.
    unarmed: bool,
    pub(super) model: AppModel,
    /// The application's activity, for a clock that waits for it.
    pub(super) presence: Presence,
    /// Packets received since the NIC's acknowledgements were last sent.
    pub(super) unanswered: usize,
    /// Acknowledgements wait to leave with the application's reply.
    pub(super) ack_deferred: bool,
    /// Packets wait in the port to leave with others: their queue pair, and until when.
    pub(super) waits: Option<(u32, Time)>,
    /// The NIC's clock against the host's real-time clock, and when they are next compared.
    wall: Calibration,
    compare_at: Time,
    /// The queue that a poll found empty, with nothing to send: neither changes until this is reset.
    quiet: CqId,
    /// What shows in place of the port's own look whether something has arrived since then.
    watched: Option<Watched>,
    /// This process is a fork of the one that owns the unit: all activity has stopped.
    pub(super) forked: bool,
    /// The last error of the port, reported once.
    last_error: Option<String>,
    /// What was explained of packets that did not reach their peer.
    pub(super) unheard: Unheard,
    /// The state of the device.
    pub(super) live: Arc<Live>,
}

fn since_1970() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl State {
    pub(super) fn new(live: &Arc<Live>, nic: Nic, mut port: Box<dyn DevicePort>, icrc: Icrc) -> State {
        State {
            wall: Calibration::new(nic.clock().nominal_hz()),
            compare_at: Time::ZERO,
            cqs: Registry::new(0),
            srqs: Registry::new(0),
            qps: Registry::new(nic.qp_numbers().start),
            manager: Manager::new(live.get(), &nic, seed_at(&*port)),
            live: live.clone(),
            timed: port.timed().is_some(),
            nic_port: NicPort::new(nic, port, icrc),
            ledger: Ledger::default(),
            page: None,
            unarmed: false,
            model: AppModel::new(now()),
            presence: Presence::default(),
            unanswered: 0,
            ack_deferred: false,
            waits: None,
            quiet: CqId::NONE,
            watched: None,
            forked: false,
            last_error: None,
            unheard: Unheard::default(),
        }
    }

    /// Returns the firmware.
    #[inline]
    pub(crate) fn nic(&mut self) -> &mut Nic {
        self.quiet = CqId::NONE;
        &mut self.nic_port.nic
    }

    /// Performs what is due on a port with its own clock.
    fn turn(&mut self) -> io::Result<Moved> {
        TimedNicPort::new(&mut self.nic_port).turn(self.manager.next_deadline())
    }

    /// Returns the NIC's time at the host's `now`.
    #[inline]
    fn time(&mut self, now: Time) -> Time {
        if self.timed { self.nic_port.port.timed().map_or(now, |port| port.clock()) } else { now }
    }

    /// Returns the NIC's time: the host's, or that of an emulated network.
    pub(crate) fn nic_time(&mut self) -> Time {
        self.time(now())
    }

    /// Returns the port.
    pub(crate) fn port(&mut self) -> &mut dyn DevicePort {
        &mut *self.nic_port.port
    }

    /// Returns the time since 1970, ns, at which the NIC's clock showed `ticks`, by linear extrapolation from readings
    /// of both clocks.
    pub(crate) fn wall_clock(&mut self, ticks: u64) -> u64 {
        let time = now();
        if time >= self.compare_at {
            let before = since_1970();
            let shown = self.nic_time();
            let shown = self.nic().clock().ticks(shown);
            self.wall.observe(before, shown, since_1970());
            self.compare_at = time + COMPARE_INTERVAL;
        }
        // There is a reading: the first was due at once.
        self.wall.host_ns(ticks).unwrap_or_else(since_1970)
    }

    // Objects with listeners.

    /// Creates a completion queue. The listener returned by `listen` is notified of completions after
    /// [`State::arm_cq`], and when the queue overflows.
    pub(crate) fn create_cq(
        &mut self,
        entries: u32,
        owner: Owner,
        listen: impl FnOnce(CqId) -> Box<dyn Listener>,
    ) -> Result<CqId, NicError> {
        self.cqs.reserve()?;
        let cq = self.nic().create_cq(entries)?;
        self.cqs.insert(cq.0, owner, listen(cq));
        Ok(cq)
    }

    /// Destroys a completion queue that no queue pair uses.
    pub(crate) fn destroy_cq(&mut self, cq: CqId) -> Result<(), NicError> {
        self.nic().destroy_cq(cq)?;
        self.unregister_cq(cq);
        Ok(())
    }

    fn unregister_cq(&mut self, cq: CqId) {
        if self.cqs.remove(cq.0).is_some_and(|cq| cq.armed) {
            self.model.waiting_cqs -= 1;
        }
    }

    /// Requests one [`Listener::completion`] at the next completion: to miss none, poll once more after arming.
    pub(crate) fn arm_cq(&mut self, cq: CqId, arm: Arm) -> Result<(), NicError> {
        self.nic().arm_cq(cq, arm)?;
        if let Some(registered) = self.cqs.get_mut(cq.0)
            && !std::mem::replace(&mut registered.armed, true)
        {
            self.model.waiting_cqs += 1;
            self.arm_wakeup();
        }
        Ok(())
    }

    /// Creates a queue pair in RESET and returns its number. The listener returned by `listen` is notified of its
    /// asynchronous events.
    pub(crate) fn create_qp(
        &mut self,
        config: &QpConfig,
        owner: Owner,
        listen: impl FnOnce(u32) -> Box<dyn Listener>,
    ) -> Result<u32, NicError> {
        self.qps.reserve()?;
        let number = self.nic().create_qp(config)?;
        self.qps.insert(number, owner, listen(number));
        Ok(number)
    }

    /// Acknowledges what has arrived for queue pairs that are about to be destroyed, several times, so that peers
    /// receive it: without the last acknowledgement they would retransmit in vain.
    pub(crate) fn say_goodbye(&mut self, numbers: &[u32]) {
        // In virtual time it would depend on the machine which peers still receive it.
        if self.forked || self.timed {
            return;
        }
        for _ in 0..FAREWELLS {
            numbers.iter().for_each(|&number| self.nic().repeat_ack(number));
            self.transmit(now());
        }
    }

    /// Acknowledges for all queue pairs, because the process ends.
    pub(super) fn say_goodbye_to_all(&mut self) {
        let numbers: Vec<u32> = self.qps.handles().collect();
        self.say_goodbye(&numbers);
    }

    /// Destroys a queue pair that is in no multicast group.
    pub(crate) fn destroy_qp(&mut self, number: u32) -> Result<(), NicError> {
        self.say_goodbye(&[number]);
        let remembers = stats::are_wanted() || self.page.is_some();
        let record = remembers.then(|| QpRecord::of(&self.nic_port.nic, number, true)).flatten();
        self.nic().destroy_qp(number)?;
        if let Some(record) = record {
            self.page.iter_mut().for_each(|page| page.remember(&record.stats));
            self.ledger.remember(record);
        }
        self.qps.remove(number);
        Ok(())
    }

    /// Transfers a queue pair to another owner.
    pub(super) fn give_qp(&mut self, number: u32, owner: Owner) {
        if let Some(registered) = self.qps.get_mut(number) {
            registered.owner = owner;
        }
    }

    /// Creates a shared receive queue, in an XRC domain if that and a completion queue are given. The listener returned
    /// by `listen` is notified when it falls below its limit.
    pub(crate) fn create_srq(
        &mut self,
        pd: PdId,
        xrc: Option<(XrcdId, CqId)>,
        max_wr: u32,
        max_sge: u32,
        owner: Owner,
        listen: impl FnOnce(SrqId) -> Box<dyn Listener>,
    ) -> Result<SrqId, NicError> {
        self.srqs.reserve()?;
        let srq = match xrc {
            None => self.nic().create_srq(pd, max_wr, max_sge)?,
            Some((xrcd, cq)) => self.nic().create_xrc_srq(pd, xrcd, cq, max_wr, max_sge)?,
        };
        self.srqs.insert(srq.0, owner, listen(srq));
        Ok(srq)
    }

    /// Destroys a shared receive queue that no queue pair uses.
    pub(crate) fn destroy_srq(&mut self, srq: SrqId) -> Result<(), NicError> {
        self.nic().destroy_srq(srq)?;
        self.srqs.remove(srq.0);
        Ok(())
    }

    /// Stops an owner's remaining objects: resets queue pairs and removes listeners. The objects stay and may be
    /// destroyed. Returns whether there were any.
    pub(super) fn abandon(&mut self, owner: Owner) -> bool {
        let (qps, cqs, srqs) = (self.qps.handles_of(owner), self.cqs.handles_of(owner), self.srqs.handles_of(owner));
        self.say_goodbye(&qps);
        for &number in &qps {
            let reset = QpAttr { state: Some(QpState::Reset), ..QpAttr::default() };
            // RESET can be reached from any state.
            let _ = self.nic().modify_qp(number, &reset);
            self.qps.remove(number);
        }
        cqs.iter().for_each(|&cq| self.unregister_cq(CqId(cq)));
        for &srq in &srqs {
            self.srqs.remove(srq);
        }
        !(qps.is_empty() && cqs.is_empty() && srqs.is_empty())
    }

    /// Returns the unit's statistics so far.
    pub(super) fn stats(&self, info: &DeviceInfo) -> DeviceStats {
        let NicPort { nic, port, .. } = &self.nic_port;
        let mut stats = DeviceStats {
            name: info.name.clone(),
            transport: info.config.transport.to_string(),
            counters: *nic.counters(),
            port: port.counters(),
            host: port.host_counters(),
            frames: port.frame_counters(),
            impairments: port.impairments(),
            queue_pairs: Vec::new(),
            others: Default::default(),
        };
        stats.add_queue_pairs(&self.ledger, nic, self.qps.handles());
        stats
    }

    /// Writes the unit's statistics so far to the page for other processes, if there is one; `last`: for the last time.
    pub(super) fn publish(&mut self, last: bool) {
        if self.forked {
            return;
        }
        let at = self.nic_time();
        let State { nic_port: NicPort { nic, port, .. }, page: Some(page), qps, ledger, .. } = self else { return };
        page.write((nic, &port.counters()), (qps.handles(), ledger), at, last);
    }

    // Packets and events.

    /// Receives and sends what there is. Returns the number of packets moved.
    #[inline]
    pub(super) fn progress(&mut self, now: Time) -> usize {
        let received = self.receive(now);
        received + self.answer(received, now)
    }

    /// Sends what is ready after `received` packets were taken at time `at`: the time that took has passed when their
    /// acknowledgements leave. Packets that wait to leave with others continue to wait as long as they may.
    #[inline]
    pub(super) fn answer(&mut self, received: usize, at: Time) -> usize {
        if self.waits.is_some_and(|(number, until)| at < until && self.keeps_line_busy(number)) && !self.nic_port.busy()
        {
            self.unanswered = 0;
            self.dispatch();
            return 0;
        }
        self.transmit(if received > 0 { now() } else { at })
    }

    /// Takes what has arrived, and runs timers. Returns the number of packets received.
    #[inline]
    pub(super) fn receive(&mut self, now: Time) -> usize {
        if self.forked {
            return 0;
        }
        self.quiet = CqId::NONE;
        let budget = Nic::RX_BATCH.saturating_sub(self.unanswered);
        let received = match self.timed {
            true => self.turn().map(|moved| moved.received),
            false => self.nic_port.receive_some(now, budget),
        };
        let received = match received {
            Ok(n) => n,
            Err(e) => self.report(&e),
        };
        self.unanswered += received;
        let cm_time = self.time(now);
        if self.manager.has_ids() && self.nic_port.port.take_lost() {
            self.drop_peers(cm_time);
        } else if self.nic_port.nic.has_mads()
            || self.manager.waits_for_neighbours()
            || cm_time >= self.manager.next_deadline()
        {
            self.run_cm(cm_time);
        }
        received
    }

    /// Returns when the unit next has work if nothing arrives.
    #[inline]
    pub(super) fn next_deadline(&self) -> Time {
        // A port with its own clock knows the others.
        match self.timed {
            true => self.nic_port.port.next_deadline(),
            false => self.nic_port.next_deadline().min(self.manager.next_deadline()),
        }
    }

    /// Sends packets that have waited long enough to leave with others.
    pub(super) fn send_if_overdue(&mut self, now: Time) {
        if self.waits.is_some_and(|(_, until)| now >= until) {
            self.model.packets_waited(now);
            self.transmit(now);
        }
    }

    /// Returns whether a queue pair has enough in flight to keep its peer busy for some time.
    #[inline]
    fn keeps_line_busy(&self, number: u32) -> bool {
        self.nic_port.nic.qp(number).is_some_and(|qp| qp.in_flight() >= BUSY)
    }

    /// Sends what was posted to a queue pair. While it keeps the line busy and the application polls, packets that do
    /// not fill a send wait for those of later work requests, as in Nagle's algorithm (RFC 896). Returns the number of
    /// packets passed to the port.
    #[inline]
    pub(super) fn transmit_posted(&mut self, number: u32, now: Time) -> usize {
        let overdue = self.forked || self.waits.is_some_and(|(_, until)| now >= until);
        let Some(until) = self.model.packets_may_wait(now).filter(|_| !overdue && self.keeps_line_busy(number)) else {
            return self.transmit(now);
        };
        (self.unanswered, self.quiet) = (0, CqId::NONE);
        let sent = match self.timed {
            true => self.turn().map(|moved| (moved.sent, false)),
            false => self.nic_port.transmit_full(now),
        };
        let sent = match sent {
            Ok((sent, waits)) => {
                let until = self.waits.map_or(until, |(_, until)| until);
                self.waits = waits.then_some((number, until));
                self.ack_deferred &= waits;
                sent
            }
            Err(e) => self.report(&e),
        };
        self.dispatch();
        sent
    }

    /// Sends what is ready, and notifies listeners.
    #[inline]
    pub(super) fn transmit(&mut self, now: Time) -> usize {
        if self.forked {
            return 0;
        }
        (self.ack_deferred, self.waits, self.unanswered, self.quiet) = (false, None, 0, CqId::NONE);
        let sent = match self.timed {
            true => self.turn().map(|moved| moved.sent),
            false => self.nic_port.transmit(now),
        };
        let sent = match sent {
            Ok(n) => n,
            Err(e) => self.report(&e),
        };
        self.dispatch();
        sent
    }

    /// Sends what the NIC has ready, for up to [`LINGER`] if the port has no room at once: the process ends, and peers
    /// wait for the last acknowledgement, or for the end of a connection.
    #[cold]
    pub(super) fn send_rest(&mut self) {
        let end = Instant::now() + LINGER;
        while self.nic_port.busy() && !self.forked && Instant::now() < end {
            self.sleeps_if(None, || true);
            self.transmit(now());
            if self.nic_port.busy() {
                std::thread::sleep(LINGER_INTERVAL);
            }
        }
    }

    /// Reports an error of the port to the user, once: for the queue pairs it is a lost packet, which they recover.
    /// Returns 0, the number of packets moved.
    #[cold]
    fn report(&mut self, error: &io::Error) -> usize {
        let text = error.to_string();
        if self.last_error.as_ref() != Some(&text) {
            eprintln!("irnic: {text}");
            self.last_error = Some(text);
        }
        0
    }

    /// Passes events to listeners.
    #[inline]
    pub(crate) fn dispatch(&mut self) {
        while let Some(event) = self.nic_port.nic.poll_event() {
            match event {
                NicEvent::Completion(cq) => self.completion_event(cq),
                NicEvent::Async(event) => self.async_event(event),
            }
        }
        if self.timed {
            self.follow_link();
            self.settle();
        }
    }

    fn completion_event(&mut self, cq: CqId) {
        // A queue of a former owner has no listener.
        if let Some(registered) = self.cqs.get_mut(cq.0) {
            if std::mem::take(&mut registered.armed) {
                self.model.waiting_cqs -= 1;
            }
            self.presence.heard = true;
            registered.listener.completion();
        }
    }

    #[cold]
    fn async_event(&mut self, event: Event) {
        let registered = match event {
            Event::QpRequestError(number)
            | Event::QpAccessError(number)
            | Event::QpFatal(number)
            | Event::CommunicationEstablished(number)
            | Event::SqDrained(number)
            | Event::LastWqeReached(number) => self.qps.get(number),
            Event::CqError(cq) => self.cqs.get(cq.0),
            Event::SrqLimitReached(srq) => self.srqs.get(srq.0),
        };
        // An object destroyed meanwhile has no listener.
        if let Some(registered) = registered {
            self.presence.heard = true;
            registered.listener.event(event);
        }
    }

    /// Takes up to `max` completions of `cq`; `each` gets them in order.
    #[inline]
    pub(super) fn take(&mut self, cq: CqId, max: usize, each: &mut impl FnMut(&Wc)) -> Result<usize, NicError> {
        if self.nic_port.nic.has_nothing_in(cq) { Ok(0) } else { self.take_some(cq, max, each) }
    }

    fn take_some(&mut self, cq: CqId, max: usize, each: &mut impl FnMut(&Wc)) -> Result<usize, NicError> {
        let mut failed = false;
        let n = self.nic_port.nic.poll_cq_each(cq, max, |wc| {
            failed |= wc.status != WcStatus::Success;
            each(wc);
        })?;
        if failed && self.waits.is_some() {
            // The application is about to get an error, and may release memory that the port has yet to read.
            self.send_deferred();
        }
        Ok(n)
    }

    /// Returns whether an empty poll need only look at memory, and that shows no completion in `cq`, nothing to send,
    /// and nothing in the port.
    #[inline]
    pub(super) fn looks_in_vain(&mut self, cq: CqId) -> bool {
        if self.model.empty_polls.looks() == 0 {
            return false;
        }
        let nothing = self.is_quiet(cq);
        self.model.empty_polls.looked(nothing);
        nothing
    }

    /// Does the same where one word of memory shows it: false also if there is no such word.
    #[inline(always)]
    pub(super) fn sees_no_change(&mut self, cq: CqId) -> bool {
        let sees = self.model.empty_polls.looks() > 0
            && self.quiet == cq
            && self.watched.as_ref().is_some_and(Watched::is_unchanged);
        if sees {
            self.model.empty_polls.looked(true);
        }
        sees
    }

    /// Returns whether there is no completion in `cq`, nothing to send, and nothing in the port.
    fn is_quiet(&mut self, cq: CqId) -> bool {
        if self.quiet != cq {
            let nothing_left = !self.ack_deferred && self.waits.is_none() && !self.nic_port.busy();
            if !nothing_left || !self.nic_port.nic.has_nothing_in(cq) {
                return false;
            }
            // Polls of several queues in turn share what is watched.
            if std::mem::replace(&mut self.quiet, cq) == CqId::NONE {
                self.watched = self.nic_port.port.watched(self.model.empty_polls.looks());
            }
        }
        self.watched.as_ref().is_some_and(Watched::is_unchanged) || !self.nic_port.port.may_receive()
    }

    // Schedule of polls.

    /// Records a call other than an empty poll.
    #[inline]
    pub(super) fn called(&mut self, now: Time) {
        let rings = self.model.called(now);
        self.acts();
        if rings {
            self.arm_wakeup();
        }
    }

    /// Records an empty poll. Returns whether the background thread should be woken.
    #[inline]
    pub(super) fn polled_empty(&mut self, now: Time) -> bool {
        let persistent = self.model.polled_empty(now);
        if !self.model.needs_wakeup(now) {
            return false;
        }
        self.arm_wakeup();
        persistent || self.oversleeps(now)
    }

    /// Returns whether the background thread has to be woken in case the application makes no further call: it sleeps
    /// past a deadline by more than a [`POLL_INTERVAL`], or peers do not ring for the next packet. The caller wakes it.
    #[inline]
    pub(super) fn oversleeps(&mut self, now: Time) -> bool {
        if !self.model.sleeps_long(now) {
            return false;
        }
        let oversleeps = self.unarmed || self.model.next_run > self.next_deadline() + POLL_INTERVAL;
        if oversleeps {
            // Once is enough.
            self.model.next_run = now;
        }
        oversleeps
    }

    /// Asks peers to ring until the port is next polled, after processing earlier packets. Returns false if packets
    /// keep arriving: then a thread has to poll without being woken.
    pub(super) fn arm_wakeup(&mut self) -> bool {
        self.unarmed = !self.try_arm_wakeup();
        !self.unarmed
    }

    fn try_arm_wakeup(&mut self) -> bool {
        if self.forked {
            return true;
        }
        if self.waits.is_some() {
            self.transmit(now());
        }
        for _ in 0..3 {
            if self.nic_port.port.prepare_sleep() {
                return true;
            }
            // Not the caller's time: packets that arrive meanwhile would seem to have taken no time.
            self.progress(now());
        }
        false
    }
}
