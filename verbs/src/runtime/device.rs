//! A device of this process: what it says of itself, and the processing units that do its work.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::time::Duration;

use irnic_nic::Nic;
use irnic_nic::clock::Clock;
use irnic_nic::frame::Icrc;
use parking_lot::MutexGuard;

use super::completion_queue::CompletionQueue;
use super::listener::Owner;
use super::port::DevicePort;
use super::unit::Unit;
use super::units::{AllUnits, Open, Place, Thread, Units};
use super::xrc::{NamedDomains, XrcDomain, XrcError};
use crate::config::PortKind;
use crate::device::{DeviceInfo, Live, PortListener};
use crate::stats::DeviceStats;

/// A device at work. All contexts of a process share it.
///
/// It has one [`Unit`] or several: each has a NIC, a port with a slot of its own, a lock and a background thread. What
/// is whose follows from where an object is touched:
///
/// - *Queue pair*: in one unit, since every packet touches all of its state. Its number tells which
///   ([`Nic::qp_numbers`]): ports find the unit as they find a process, by the slot in the number's upper bits.
/// - *Completion queue*: in the unit of its queue pairs, so that polling and completing take one lock. One that serves
///   queue pairs of several units has a part in each ([`CompletionQueue`]).
/// - *Shared receive queue*: in one unit, since its queue pairs take from it with every message.
/// - *XRC domain*: in one unit, as the queues and queue pairs in it are.
/// - *Protection domain, memory region, memory window*: the device's. A peer's key names the same memory whichever
///   queue pair it is sent to. All NICs have one table ([`Nic::share_memory`]), which is changed under the locks of all
///   units and read under any.
/// - *Address handle*: nobody's; it is a path that is copied into the work request.
/// - *Multicast group*: each unit counts its own members, and its port gets its own copy of a packet.
/// - *Communication manager*: the first unit's serves the process. Those of others refuse what reaches them.
///
/// Objects hold a handle on their unit, or on the device where they are the device's, and reach the NIC by nothing
/// else.
pub(crate) struct DeviceRuntime {
    live: Arc<Live>,
    units: Units,
    xrc_domains: NamedDomains,
}

impl DeviceRuntime {
    /// Returns a device of one unit around a NIC and its port. No thread runs it before [`DeviceRuntime::start`].
    #[cfg(test)]
    pub(super) fn new(info: DeviceInfo, nic: Nic, port: Box<dyn DevicePort>, icrc: Icrc) -> io::Result<DeviceRuntime> {
        DeviceRuntime::with_units(Arc::new(Live::new(info)), (nic, port, icrc), None)
    }

    /// Returns a device whose first unit has a NIC and its port. `open` makes more; without it there is one.
    pub(super) fn with_units(
        live: Arc<Live>,
        first: (Nic, Box<dyn DevicePort>, Icrc),
        open: Option<Open>,
    ) -> io::Result<DeviceRuntime> {
        let units = Units::new(&live, first, open)?;
        Ok(DeviceRuntime { units, live, xrc_domains: NamedDomains::default() })
    }

    /// Starts the background threads, once.
    pub(crate) fn start(&self) -> io::Result<()> {
        self.units.start()
    }

    /// Returns what the device says of itself now.
    pub(crate) fn info(&self) -> &DeviceInfo {
        self.live.get()
    }

    /// Has a listener hear what happens to the device's port from now on, while it exists.
    pub(crate) fn listen(&self, listener: Weak<dyn PortListener>) {
        // Nobody holds what this locks while the process forks.
        let _locked = self.units.first().lock();
        self.live.listen(listener);
    }

    /// Returns the hardware clock, which all units show.
    pub(crate) fn clock(&self) -> &Clock {
        &self.info().config.clock
    }

    /// Returns what the hardware clock shows now.
    pub(crate) fn ticks(&self) -> u64 {
        let in_lab = matches!(self.info().config.port, PortKind::Lab(_));
        let time = if in_lab { self.units.first().lock().nic_time() } else { super::now() };
        self.clock().ticks(time)
    }

    /// Returns the unit that is there from the beginning. Connections are managed there.
    pub(crate) fn first_unit(&self) -> &Arc<Unit> {
        self.units.first()
    }

    /// Finds the unit for a shared receive queue that the calling thread makes. The queue pairs that use it are made
    /// there.
    pub(crate) fn place(&self) -> Place {
        self.units.assign(Thread::current())
    }

    /// Finds the unit for a queue pair by its completion queues: that of the first, or of the second, or that of the
    /// thread that uses the first.
    pub(crate) fn place_between(&self, send: &CompletionQueue, recv: &CompletionQueue) -> Place {
        let bound = send.unit().or_else(|| recv.unit()).and_then(|unit| self.place_in(&unit));
        bound.unwrap_or_else(|| self.units.assign(send.thread()))
    }

    /// Keeps everybody else from changing where a completion queue is.
    pub(super) fn lock_parts(&self) -> MutexGuard<'_, ()> {
        self.units.lock_parts()
    }

    /// Returns a place in a unit; `None` if it is another device's.
    pub(crate) fn place_in(&self, unit: &Arc<Unit>) -> Option<Place> {
        self.units.place_in(unit)
    }

    /// Opens an XRC domain: that of a file, or one that nobody else can have. `create`: it may be new; `exclusive`: it
    /// must.
    pub(crate) fn open_xrcd(
        &self,
        file: Option<BorrowedFd<'_>>,
        create: bool,
        exclusive: bool,
    ) -> Result<Arc<XrcDomain>, XrcError> {
        self.xrc_domains.open(|| self.place(), file, create, exclusive)
    }

    /// Tells whether `unit` is one of this device's.
    pub(crate) fn has(&self, unit: &Arc<Unit>) -> bool {
        self.units.all().any(|own| Arc::ptr_eq(own, unit))
    }

    /// Returns how many datagrams were dropped because their Q_Key was wrong.
    pub(crate) fn qkey_violations(&self) -> u64 {
        self.units.all().map(|unit| unit.lock().nic().counters().bad_qkey).sum()
    }

    /// Locks what is the device's: protection domains, memory regions and memory windows.
    pub(crate) fn lock_memory(&self) -> AllUnits<'_> {
        self.units.lock_all()
    }

    /// Prepares for the calling thread's sleep until a listener hears something, or there are other events in a
    /// `queue`; unless there is `nothing`, it does not sleep.
    pub(crate) fn prepare_to_block(&self, queue: Option<&Arc<AtomicU64>>, nothing: impl Fn() -> bool) {
        self.units.all().for_each(|unit| unit.prepare_to_block(queue, &nothing));
    }

    /// Stops what an owner has left: queue pairs go back to RESET, so that no peer reaches them, and no listener hears
    /// of anything any more. Returns whether there was anything.
    pub(crate) fn abandon(&self, owner: Owner) -> bool {
        // All of them, whatever the first has.
        self.units.all().filter(|unit| unit.lock().abandon(owner)).count() > 0
    }

    /// Writes out what would be lost with the process, and returns what the device has done. `None` if some thread is
    /// inside and does not come out in time.
    pub(crate) fn finish(&self, patience: Duration) -> Option<DeviceStats> {
        let mut total: Option<DeviceStats> = None;
        for unit in self.units.all() {
            let mut state = unit.try_lock_for(patience)?;
            let now = state.nic_time();
            state.close_cm(now);
            state.say_goodbye_to_all();
            state.send_rest();
            let stats = state.stats(self.info());
            state.tell(true);
            state.port().finish();
            match &mut total {
                Some(total) => total.add_unit(stats),
                None => total = Some(stats),
            }
        }
        total
    }

    /// Locks the device before a fork: no other thread is inside while the process is copied.
    pub(crate) fn lock_for_fork(&self) {
        self.units.lock_for_fork();
    }

    /// Unlocks the device after a fork. In the child nothing moves any more: its port and its peers are the parent's.
    ///
    /// # Safety
    /// It is called in the thread that called [`DeviceRuntime::lock_for_fork`].
    pub(crate) unsafe fn unlock_after_fork(&self, child: bool) {
        // SAFETY: the caller's promise.
        unsafe { self.units.unlock_after_fork(child) };
    }
}
