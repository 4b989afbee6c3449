//! A device's processing unit: the NIC, its port, one lock, and who runs it.
//!
//! The thread that polls or posts runs the unit itself, to completion. When no thread does, the unit's own background
//! thread (`background.rs`) takes over: it sleeps until the port's bell rings, a timer is due, or a beat has passed. Peers ring the bell only
//! while it is *armed*; an application that polls in a loop disarms it, so that nobody pays for waking a thread that has
//! nothing to do.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use irnic_nic::calibration::Calibration;
use irnic_nic::frame::Icrc;
use irnic_nic::{Nic, NicEvent};
use irnic_ports::NicPort;
use irnic_ports::Port;
pub use irnic_ports::host_now as now;
use irnic_transports::Time;
use irnic_transports::qp::{CqId, Event, QpAttr, QpState, SrqId, Wc};
use irnic_transports::time::{MS, US};
use parking_lot::{Mutex, MutexGuard};

use crate::abi::structs::ibv_context;
use crate::carrier::Carrier;
use crate::cq::Cq;
use crate::device::DeviceInfo;
use crate::errno::Result;
use crate::event;
use crate::qp::Qp;
use crate::srq::Srq;
use crate::stats::{self, DeviceStats, Ledger, QpRecord};

mod background;
#[cfg(test)]
mod tests;

/// How often the background thread looks while an application polls.
const BEAT: u64 = MS;
/// The same when the application's last call is longer ago than ten beats.
const SLOW_BEAT: u64 = 10 * MS;
/// An application that looks all the time does so more often than this.
const SPINNING: u64 = 10 * US;
/// How long an application counts as one that waits in other ways than by polling, once it was seen to.
const AWAY: u64 = 100 * MS;
/// An answer is worth waiting for when no more packets than this came together: a message, and the acknowledgement of the one before.
const CONVERSATION: usize = 2;
/// Empty polls in a row after which it is worth a system call to have the bell disarmed.
const PERSISTENT: u32 = 64;
/// Completions taken without a look at the port.
const TAKEN_WITHOUT_PROGRESS: u32 = 32;
/// Completions taken from the NIC at a time.
const SCRATCH: usize = 32;

/// The carrier of a device's packets.
pub type DevicePort = Box<dyn Carrier>;

/// A processing unit.
pub struct Unit {
    info: DeviceInfo,
    inner: Mutex<Inner>,
    /// Wakes the background thread.
    kick: OwnedFd,
    port_fd: Option<RawFd>,
    running: AtomicBool,
    /// The application waits in other ways than by polling, or did lately.
    away: AtomicBool,
}

/// What the lock protects.
pub struct Inner {
    attached: NicPort<DevicePort>,
    cqs: Vec<*mut Cq>,
    srqs: Vec<*mut Srq>,
    qps: HashMap<u32, *mut Qp>,
    scratch: Box<[Wc; SCRATCH]>,
    /// What queue pairs that are no more have done.
    ledger: Ledger,
    /// When the background thread looks next, whatever happens.
    until: Time,
    /// Completion queues that applications wait for by their channel.
    notified: u32,
    /// The application's last call.
    last_call: Time,
    /// The application's last look at the port.
    last_look: Time,
    /// Empty polls since the last call that was not one.
    streak: u32,
    /// Completions taken since the last look at the port.
    taken: u32,
    /// Until when the bell is armed after each call that is no empty poll.
    away_until: Time,
    /// Acknowledgements wait for the application's answer, to leave with it.
    held: bool,
    /// None are held back until then: the application was found not to answer.
    hold_from: Time,
    /// The NIC's clock beside the host's that counts from 1970, and when they are next compared.
    wall: Calibration,
    compare_at: Time,
    /// This process is a fork of the one whose unit it is: nothing moves any more.
    dead: bool,
    /// The last thing that went wrong with the port, said once.
    complaint: Option<String>,
}

// SAFETY: the raw pointers name objects that unregister under the lock before they are freed.
unsafe impl Send for Inner {}

/// Between two readings of the NIC's clock and the host's for [`Inner::wall_clock`], ns: those that count then span half a second.
const COMPARE_EVERY: u64 = 10 * MS;

fn since_1970() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Unit {
    /// A unit around a NIC and its port.
    pub fn new(info: DeviceInfo, nic: Nic, port: DevicePort, icrc: Icrc) -> io::Result<Arc<Unit>> {
        // SAFETY: no memory is passed.
        let kick = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if kick < 0 {
            return Err(io::Error::last_os_error());
        }
        let port_fd = port.wait_fd();
        let wall = Calibration::new(nic.clock().nominal_hz());
        let inner = Inner {
            attached: NicPort::new(nic, port, icrc),
            wall,
            compare_at: Time::ZERO,
            cqs: Vec::new(),
            srqs: Vec::new(),
            qps: HashMap::new(),
            scratch: Box::new([Wc::EMPTY; SCRATCH]),
            ledger: Ledger::default(),
            until: Time::ZERO,
            notified: 0,
            last_call: now(),
            last_look: Time::ZERO,
            streak: 0,
            taken: 0,
            away_until: Time::ZERO,
            held: false,
            hold_from: Time::ZERO,
            dead: false,
            complaint: None,
        };
        Ok(Arc::new(Unit {
            info,
            inner: Mutex::new(inner),
            // SAFETY: a new descriptor that nobody else owns.
            kick: unsafe { OwnedFd::from_raw_fd(kick) },
            port_fd,
            running: AtomicBool::new(false),
            away: AtomicBool::new(false),
        }))
    }

    /// What the device says of itself.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// The unit, for calls that change objects. What was held back has left: the call may be the end of a queue pair.
    /// Whatever it makes ready is sent when the guard is given to [`Unit::done`].
    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.inner.lock();
        inner.release();
        inner
    }

    /// The same, for a caller who cannot wait for ever.
    pub(crate) fn try_lock_for(&self, patience: Duration) -> Option<MutexGuard<'_, Inner>> {
        let mut inner = self.inner.try_lock_for(patience)?;
        inner.release();
        Some(inner)
    }

    /// The unit, for posting: what is posted may be the answer that something was held back for.
    #[inline]
    pub fn lock_to_post(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Ends a call that may have given the NIC something to send.
    #[inline]
    pub fn done(&self, mut inner: MutexGuard<'_, Inner>) {
        let now = now();
        inner.transmit(now);
        inner.called(now);
        let late = inner.until > inner.attached.next_deadline() + SLOW_BEAT;
        drop(inner);
        if late {
            self.kick();
        }
    }

    /// Takes up to `max` completions of `cq`; `each` gets them in order.
    #[inline]
    pub fn poll(&self, cq: CqId, max: usize, mut each: impl FnMut(&Wc)) -> Result<usize> {
        let mut inner = self.inner.lock();
        let mut n = inner.take(cq, max, &mut each)?;
        inner.taken += n as u32;
        if n > 0 && inner.taken < TAKEN_WITHOUT_PROGRESS {
            inner.streak = 0;
            return Ok(n);
        }
        let now = now();
        inner.taken = 0;
        inner.last_look = now;
        let received = inner.receive(now);
        if n == 0 {
            n = inner.take(cq, max, &mut each)?;
        }
        if n > 0 && inner.may_hold(received, now) {
            inner.held = true;
            inner.dispatch();
        } else {
            inner.answer(received, now);
            if n == 0 {
                n = inner.take(cq, max, &mut each)?;
            }
        }
        if n > 0 {
            inner.called(now);
            return Ok(n);
        }
        if inner.polled_in_vain(now) {
            drop(inner);
            self.kick();
        }
        Ok(0)
    }

    /// The calling thread is about to sleep until the unit has an event.
    pub fn leave(&self) {
        let mut inner = self.inner.lock();
        let now = now();
        inner.progress(now);
        inner.arm();
        let late = inner.until > inner.attached.next_deadline() + BEAT;
        drop(inner);
        if late {
            self.kick();
        }
    }

    /// An application waits for a completion queue by its channel (`true`), or got what it waited for.
    pub fn notify(&self, inner: &mut Inner, waits: bool) {
        if waits {
            inner.notified += 1;
            inner.arm();
        } else {
            inner.notified = inner.notified.saturating_sub(1);
        }
    }

    /// Stops what a context that is being closed has left: queue pairs go back to RESET, and no event finds its way to
    /// anything of it. Returns whether there was anything.
    pub fn abandon(&self, context: *mut ibv_context) -> bool {
        let mut inner = self.lock();
        // SAFETY: what is registered is alive.
        let of_qp = |qp: *mut Qp| unsafe { (*qp).ex.qp_base.context };
        // SAFETY: as above.
        let of_cq = |cq: *mut Cq| unsafe { (*cq).ex.context };
        // SAFETY: as above.
        let of_srq = |srq: *mut Srq| unsafe { (*srq).context() };
        let left: Vec<u32> = inner.qps.iter().filter(|(_, qp)| of_qp(**qp) == context).map(|(&qpn, _)| qpn).collect();
        let cqs: Vec<*mut Cq> = inner.cqs.iter().copied().filter(|&cq| !cq.is_null() && of_cq(cq) == context).collect();
        let srqs: Vec<*mut Srq> =
            inner.srqs.iter().copied().filter(|&srq| !srq.is_null() && of_srq(srq) == context).collect();
        for &qpn in &left {
            let reset = QpAttr { state: Some(QpState::Reset), ..QpAttr::default() };
            // From any state there is a way to RESET.
            let _ = inner.nic().modify_qp(qpn, &reset);
            inner.set_qp(qpn, std::ptr::null_mut());
        }
        for &cq in &cqs {
            // SAFETY: alive, and under the lock.
            let (id, armed) = unsafe { ((*cq).id, (*cq).disarm()) };
            inner.set_cq(id, std::ptr::null_mut());
            if armed {
                self.notify(&mut inner, false);
            }
        }
        for &srq in &srqs {
            // SAFETY: alive.
            inner.set_srq(unsafe { (*srq).id }, std::ptr::null_mut());
        }
        !(left.is_empty() && cqs.is_empty() && srqs.is_empty())
    }

    /// Locks the unit until [`Unit::thaw`].
    pub(crate) fn freeze(&self) {
        std::mem::forget(self.inner.lock());
    }

    /// Unlocks a unit that is frozen; in the child of a fork it is dead.
    ///
    /// # Safety
    /// In the thread that froze it.
    pub(crate) unsafe fn thaw(&self, child: bool) {
        // SAFETY: this thread holds the lock.
        unsafe {
            (*self.inner.data_ptr()).dead |= child;
            self.inner.force_unlock();
        }
    }

    fn kick(&self) {
        let one = 1u64;
        // SAFETY: eight bytes are read. A full counter wakes as well.
        unsafe { libc::write(self.kick.as_raw_fd(), (&raw const one).cast(), 8) };
    }
}

impl Inner {
    /// The firmware.
    #[inline]
    pub fn nic(&mut self) -> &mut Nic {
        &mut self.attached.nic
    }

    /// The port.
    pub fn port(&mut self) -> &mut DevicePort {
        &mut self.attached.port
    }

    /// The time since 1970, ns, at which the NIC's clock showed `ticks`, by a line through readings of both clocks.
    pub fn wall_clock(&mut self, ticks: u64) -> u64 {
        let time = now();
        if time >= self.compare_at {
            let before = since_1970();
            let shown = self.nic().clock().ticks(now());
            self.wall.observe(before, shown, since_1970());
            self.compare_at = time + COMPARE_EVERY;
        }
        // There is a reading: the first was due at once.
        self.wall.host_ns(ticks).unwrap_or_else(since_1970)
    }

    /// What a queue pair has done, if anybody wants to know; for [`Inner::remember`] once it is destroyed.
    pub fn record(&self, number: u32) -> Option<QpRecord> {
        stats::are_wanted().then(|| QpRecord::of(&self.attached.nic, number, true))?
    }

    /// Keeps what a queue pair has done that is no more.
    pub fn remember(&mut self, record: Option<QpRecord>) {
        record.into_iter().for_each(|r| self.ledger.remember(r));
    }

    /// What all has been done so far.
    pub fn stats(&self, info: &DeviceInfo) -> DeviceStats {
        let NicPort { nic, port, .. } = &self.attached;
        let mut stats = DeviceStats {
            name: info.name.clone(),
            transport: info.config.transport.to_string(),
            counters: *nic.counters(),
            port: port.counters(),
            host: port.host_counters(),
            impairments: port.impairments(),
            queue_pairs: Vec::new(),
            others: Default::default(),
        };
        stats.add_queue_pairs(&self.ledger, nic, self.qps.keys().copied());
        stats
    }

    /// Takes and sends what there is. Returns how many packets moved.
    #[inline]
    fn progress(&mut self, now: Time) -> usize {
        let received = self.receive(now);
        received + self.answer(received, now)
    }

    /// Sends what is ready after `received` packets were taken `at` some time: what that took has passed when their answers leave.
    #[inline]
    fn answer(&mut self, received: usize, at: Time) -> usize {
        self.transmit(if received > 0 { now() } else { at })
    }

    /// Takes what has arrived, and runs timers. Returns how many packets came.
    #[inline]
    fn receive(&mut self, now: Time) -> usize {
        if self.dead {
            return 0;
        }
        match self.attached.receive(now) {
            Ok(n) => n,
            Err(e) => self.complain(&e),
        }
    }

    /// Whether what the NIC has to say to `received` packets may wait for the answer that the application, which is about to
    /// get their completions, will give: the background thread looks soon, should there be none.
    #[inline]
    fn may_hold(&self, received: usize, now: Time) -> bool {
        (1..=CONVERSATION).contains(&received) && now >= self.hold_from.max(self.away_until) && !self.unwatched(now)
    }

    /// Sends what was held back.
    #[inline]
    fn release(&mut self) {
        if self.held {
            self.transmit(now());
        }
    }

    /// Sends what is ready, and tells applications what happened.
    #[inline]
    fn transmit(&mut self, now: Time) -> usize {
        if self.dead {
            return 0;
        }
        self.held = false;
        let sent = match self.attached.transmit(now) {
            Ok(n) => n,
            Err(e) => self.complain(&e),
        };
        self.dispatch();
        sent
    }

    /// What a port cannot do is a lost packet for the queue pairs, which know how to live with it; the user is told once.
    #[cold]
    fn complain(&mut self, error: &io::Error) -> usize {
        let text = error.to_string();
        if self.complaint.as_ref() != Some(&text) {
            eprintln!("irnic: {text}");
            self.complaint = Some(text);
        }
        0
    }

    /// Makes room in a send queue that is full, if acknowledgements wait at the port.
    #[cold]
    pub fn relieve(&mut self) {
        let now = now();
        self.last_look = now;
        self.progress(now);
    }

    /// Gives events to those who wait for them.
    #[inline]
    pub fn dispatch(&mut self) {
        while let Some(event) = self.attached.nic.poll_event() {
            match event {
                NicEvent::Completion(cq) => {
                    self.notified = self.notified.saturating_sub(1);
                    if let Some(cq) = self.cq(cq) {
                        // SAFETY: registered, hence alive.
                        unsafe { Cq::completion_event(cq) };
                    }
                }
                NicEvent::Async(event) => self.raise(event),
            }
        }
    }

    #[cold]
    fn raise(&mut self, event: Event) {
        event::raise(self, event);
    }

    #[inline]
    fn take(&mut self, cq: CqId, max: usize, each: &mut impl FnMut(&Wc)) -> Result<usize> {
        let mut done = 0;
        while done < max {
            let want = (max - done).min(SCRATCH);
            let n = self.attached.nic.poll_cq(cq, &mut self.scratch[..want])?;
            self.scratch[..n].iter().for_each(&mut *each);
            done += n;
            if n < want {
                break;
            }
        }
        Ok(done)
    }

    /// A call other than an empty poll.
    #[inline]
    fn called(&mut self, now: Time) {
        self.last_call = now;
        self.streak = 0;
        if now < self.away_until || self.unwatched(now) {
            self.arm();
        }
    }

    /// An empty poll. Returns whether the background thread should be kicked.
    #[inline]
    fn polled_in_vain(&mut self, now: Time) -> bool {
        self.last_call = now;
        self.streak = self.streak.saturating_add(1);
        if !self.unwatched(now) {
            return false;
        }
        self.arm();
        self.streak == PERSISTENT && self.notified == 0
    }

    /// Whether nobody looks soon of his own accord, should the application not come back: peers have to ring then.
    #[inline]
    fn unwatched(&self, now: Time) -> bool {
        self.notified > 0 || self.until > now + BEAT
    }

    /// Has peers ring until the port is next looked at; what came before is dealt with. False if it does not end.
    fn arm(&mut self) -> bool {
        if self.dead {
            return true;
        }
        for _ in 0..3 {
            if self.attached.port.prepare_sleep() {
                return true;
            }
            // Not the caller's time: what arrives meanwhile would seem to have taken none.
            self.progress(now());
        }
        false
    }

    // Which C object a handle of the NIC belongs to.

    /// The completion queue behind a handle.
    pub fn cq(&self, id: CqId) -> Option<*mut Cq> {
        self.cqs.get(id.0 as usize).copied().filter(|c| !c.is_null())
    }

    /// The shared receive queue behind a handle.
    pub fn srq(&self, id: SrqId) -> Option<*mut Srq> {
        self.srqs.get(id.0 as usize).copied().filter(|s| !s.is_null())
    }

    /// The queue pair with a number.
    pub fn qp(&self, qpn: u32) -> Option<*mut Qp> {
        self.qps.get(&qpn).copied()
    }

    /// Registers a completion queue, or with null removes it.
    pub fn set_cq(&mut self, id: CqId, cq: *mut Cq) {
        set(&mut self.cqs, id.0, cq);
    }

    /// Registers a shared receive queue, or with null removes it.
    pub fn set_srq(&mut self, id: SrqId, srq: *mut Srq) {
        set(&mut self.srqs, id.0, srq);
    }

    /// Registers a queue pair, or with null removes it.
    pub fn set_qp(&mut self, qpn: u32, qp: *mut Qp) {
        if qp.is_null() {
            self.qps.remove(&qpn);
        } else {
            self.qps.insert(qpn, qp);
        }
    }
}

fn set<T>(table: &mut Vec<*mut T>, id: u32, object: *mut T) {
    let id = id as usize;
    if table.len() <= id {
        table.resize(id + 1, std::ptr::null_mut());
    }
    table[id] = object;
}
