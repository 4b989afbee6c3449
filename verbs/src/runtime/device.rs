//! A device of this process: its properties, and the processing units that do its work.

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

/// A running device. All contexts of a process share it.
///
/// It has one [`Unit`] or several: each has a NIC, a port with its own slot, a lock and a background thread. Where an
/// object is depends on how it is accessed:
///
/// - *Queue pair*: in one unit, since every packet accesses all of its state. Its number identifies the unit
///   ([`Nic::qp_numbers`]): ports find the unit as they find a process, by the slot in the number's upper bits.
/// - *Completion queue*: in the unit of its queue pairs, so that polling and completing take one lock. One that serves
///   queue pairs of several units has a part in each ([`CompletionQueue`]).
/// - *Shared receive queue*: in one unit, since its queue pairs take from it with every message.
/// - *XRC domain*: in one unit, like the queues and queue pairs in it.
/// - *Protection domain, memory region, memory window*: in the device. A peer's key refers to the same memory whichever
///   queue pair it is sent to. All NICs have one table ([`Nic::share_memory`]), which is changed under the locks of all
///   units and read under any.
/// - *Address handle*: in none; it is a path that is copied into the work request.
/// - *Multicast group*: each unit counts its own members, and its port gets its own copy of a packet.
/// - *Communication manager*: that of the first unit serves the process. The others reject what reaches them.
///
/// Objects hold a handle on their unit, or on the device if they belong to it, and reach the NIC only through it.
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

    /// Returns a device whose first unit has a NIC and its port. `open` creates those of further units; without it
    /// there is only one.
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

    /// Returns the current properties of the device.
    pub(crate) fn info(&self) -> &DeviceInfo {
        self.live.get()
    }

    /// Adds a listener for events of the device's port from now on, while it exists.
    pub(crate) fn listen(&self, listener: Weak<dyn PortListener>) {
        // No thread holds the lock taken here while the process forks.
        let _locked = self.units.first().lock();
        self.live.listen(listener);
    }

    /// Returns the hardware clock, common to all units.
    pub(crate) fn clock(&self) -> &Clock {
        &self.info().config.clock
    }

    /// Returns the current reading of the hardware clock.
    pub(crate) fn ticks(&self) -> u64 {
        let in_lab = matches!(self.info().config.port, PortKind::Lab(_));
        let time = if in_lab { self.units.first().lock().nic_time() } else { super::now() };
        self.clock().ticks(time)
    }

    /// Returns the unit that exists from the beginning. Connections are managed there.
    pub(crate) fn first_unit(&self) -> &Arc<Unit> {
        self.units.first()
    }

    /// Finds the unit for a shared receive queue created by the calling thread. The queue pairs that use it are created
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

    /// Locks the placement of completion queues.
    pub(super) fn lock_parts(&self) -> MutexGuard<'_, ()> {
        self.units.lock_parts()
    }

    /// Returns a place in a unit; `None` if it belongs to another device.
    pub(crate) fn place_in(&self, unit: &Arc<Unit>) -> Option<Place> {
        self.units.place_in(unit)
    }

    /// Opens an XRC domain: that of a file, or a private one. `create`: it may be new; `exclusive`: it must be new.
    pub(crate) fn open_xrcd(
        &self,
        file: Option<BorrowedFd<'_>>,
        create: bool,
        exclusive: bool,
    ) -> Result<Arc<XrcDomain>, XrcError> {
        self.xrc_domains.open(|| self.place(), file, create, exclusive)
    }

    /// Returns whether `unit` belongs to this device.
    pub(crate) fn has(&self, unit: &Arc<Unit>) -> bool {
        self.units.all().any(|own| Arc::ptr_eq(own, unit))
    }

    /// Returns the number of datagrams dropped because of a wrong Q_Key.
    pub(crate) fn qkey_violations(&self) -> u64 {
        self.units.all().map(|unit| unit.lock().nic().counters().bad_qkey).sum()
    }

    /// Locks the device's objects: protection domains, memory regions and memory windows.
    pub(crate) fn lock_memory(&self) -> AllUnits<'_> {
        self.units.lock_all()
    }

    /// Prepares for the calling thread's sleep until a listener is notified, or a `queue` gets other events; unless
    /// there is `nothing`, it does not sleep.
    pub(crate) fn prepare_to_block(&self, queue: Option<&Arc<AtomicU64>>, nothing: impl Fn() -> bool) {
        self.units.all().for_each(|unit| unit.prepare_to_block(queue, &nothing));
    }

    /// Stops an owner's remaining objects: queue pairs are reset, so that no peer reaches them, and listeners are no
    /// longer notified. Returns whether there were any.
    pub(crate) fn abandon(&self, owner: Owner) -> bool {
        // All units, whatever the first returns.
        self.units.all().filter(|unit| unit.lock().abandon(owner)).count() > 0
    }

    /// Writes out what would be lost with the process, and returns the device's statistics. `None` if another thread
    /// stays inside the device for too long.
    pub(crate) fn finish(&self, patience: Duration) -> Option<DeviceStats> {
        let mut total: Option<DeviceStats> = None;
        for unit in self.units.all() {
            let mut state = unit.try_lock_for(patience)?;
            let now = state.nic_time();
            state.close_cm(now);
            state.say_goodbye_to_all();
            state.send_rest();
            state.explain();
            let stats = state.stats(self.info());
            state.publish(true);
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

    /// Unlocks the device after a fork. In the child all activity stops: its port and its peers are the parent's.
    ///
    /// # Safety
    /// Must be called in the thread that called [`DeviceRuntime::lock_for_fork`].
    pub(crate) unsafe fn unlock_after_fork(&self, child: bool) {
        // SAFETY: the caller's promise.
        unsafe { self.units.unlock_after_fork(child) };
    }
}
