//! The processing units of a device: their number, and which one a queue belongs to.

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use irnic_nic::Nic;
use irnic_nic::frame::Icrc;
use parking_lot::{Mutex, MutexGuard};

use super::port::DevicePort;
use super::state::State;
use super::unit::Unit;
use super::{counters, forked, now};
use crate::config::{MAX_UNITS, Units as Setting};
use crate::device::Live;

/// Number of threads whose units are remembered.
const REMEMBERED: usize = 256;
/// Time after a failure to create a unit during which no other is tried, ns: short-lived threads would try each time.
const AFTER_FAILURE: u64 = 1_000_000_000;

/// A NIC and its port, for a unit.
pub(super) type Parts = (Nic, Box<dyn DevicePort>, Icrc);
/// Creates the parts of another unit.
pub(super) type Open = Box<dyn Fn() -> io::Result<Parts> + Send + Sync>;

/// A thread that creates or polls queues.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Thread(pub(super) u32);

impl Thread {
    /// Returns the calling thread.
    #[inline]
    pub(super) fn current() -> Thread {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        thread_local! {
            static OWN: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
        }
        let mut number = OWN.get();
        if number == 0 {
            number = NEXT.fetch_add(1, Ordering::Relaxed);
            OWN.set(number);
        }
        Thread(number)
    }
}

/// A device's units. There is one initially; more are created when other threads have their own queue pairs.
pub(super) struct Units {
    list: [OnceLock<Arc<Unit>>; MAX_UNITS],
    /// Number of units. Incremented with all of them locked.
    count: AtomicUsize,
    /// Maximum number of units.
    limit: usize,
    /// Queues are assigned to units round robin, not by thread.
    in_turn: bool,
    /// Creates the parts of the next unit.
    open: Option<Open>,
    started: AtomicBool,
    /// Held while a completion queue's parts change, before that queue's own lock: none is held when the process forks.
    parts: Mutex<()>,
    loads: Arc<Mutex<Loads>>,
}

/// Use of the units.
struct Loads {
    /// Queues in each unit.
    queues: [u32; MAX_UNITS],
    /// Threads and their units, the latest last.
    threads: VecDeque<(Thread, usize)>,
    /// No unit is created before this time, in ns.
    not_before: u64,
}

/// A unit for a queue, which counts as one of the unit's queues until this is dropped.
pub(crate) struct Place {
    unit: Arc<Unit>,
    index: usize,
    loads: Arc<Mutex<Loads>>,
}

impl Place {
    /// Returns the unit.
    pub(crate) fn unit(&self) -> &Arc<Unit> {
        &self.unit
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.loads.lock().queues[self.index] -= 1;
    }
}

/// All units, locked: the device's memory objects may be changed.
pub(crate) struct AllUnits<'a> {
    first: MutexGuard<'a, State>,
    _others: Vec<MutexGuard<'a, State>>,
}

impl AllUnits<'_> {
    /// Returns a NIC, all of which know the device's protection domains, regions and windows.
    pub(crate) fn nic(&mut self) -> &mut Nic {
        self.first.nic()
    }
}

/// Returns the maximum number of units of a device.
fn limit(setting: Setting) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    match setting {
        Setting::Auto => cores().clamp(1, MAX_UNITS),
        Setting::Number(n) => n.clamp(1, MAX_UNITS),
    }
}

impl Units {
    /// Returns one unit. Without `open` it stays the only one.
    pub(super) fn new(live: &Arc<Live>, first: Parts, open: Option<Open>) -> io::Result<Units> {
        let (nic, port, icrc) = first;
        let setting = live.get().config.units;
        let units = Units {
            list: Default::default(),
            count: AtomicUsize::new(1),
            limit: if open.is_some() { limit(setting) } else { 1 },
            in_turn: matches!(setting, Setting::Number(_)),
            open,
            started: AtomicBool::new(false),
            parts: Mutex::default(),
            loads: Arc::new(Mutex::new(Loads { queues: [0; MAX_UNITS], threads: VecDeque::new(), not_before: 0 })),
        };
        let first = Unit::new(live.clone(), nic, port, icrc)?;
        units.list[0].get_or_init(|| first);
        Ok(units)
    }

    /// Starts the background threads, once.
    pub(super) fn start(&self) -> io::Result<()> {
        self.started.store(true, Ordering::Release);
        for unit in self.all() {
            unit.start()?;
            counters::serve(unit);
        }
        Ok(())
    }

    /// Returns the first unit, which exists from the beginning.
    pub(super) fn first(&self) -> &Arc<Unit> {
        self.list[0].get().expect("made with the device")
    }

    /// Iterates over all units, in the order in which they are locked.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Unit>> {
        self.list[..self.count.load(Ordering::Acquire)].iter().filter_map(OnceLock::get)
    }

    /// Locks all units.
    pub(super) fn lock_all(&self) -> AllUnits<'_> {
        // While the first is locked, none is added.
        let first = self.first().lock();
        let others = self.all().skip(1).map(|unit| unit.lock()).collect();
        AllUnits { first, _others: others }
    }

    /// Locks the placement of completion queues; the process cannot fork meanwhile.
    pub(super) fn lock_parts(&self) -> MutexGuard<'_, ()> {
        self.parts.lock()
    }

    /// Finds a unit for queues that `thread` uses: its own, or one without queues, or a new one, or the one with the
    /// fewest queues.
    pub(super) fn assign(&self, thread: Thread) -> Place {
        let mut loads = self.loads.lock();
        let index = self.choose(&mut loads, thread);
        self.place(&mut loads, index)
    }

    /// Returns a place in a given unit; `None` if it belongs to another device.
    pub(super) fn place_in(&self, unit: &Arc<Unit>) -> Option<Place> {
        let index = self.all().position(|own| Arc::ptr_eq(own, unit))?;
        Some(self.place(&mut self.loads.lock(), index))
    }

    fn place(&self, loads: &mut Loads, index: usize) -> Place {
        loads.queues[index] += 1;
        let unit = self.list[index].get().unwrap_or_else(|| self.first()).clone();
        Place { unit, index, loads: self.loads.clone() }
    }

    fn choose(&self, loads: &mut Loads, thread: Thread) -> usize {
        if self.limit == 1 {
            return 0;
        }
        if !self.in_turn {
            let own = loads.threads.iter().rposition(|(known, _)| *known == thread);
            if let Some((_, index)) = own.and_then(|at| loads.threads.remove(at))
                && loads.queues[index] > 0
            {
                loads.threads.push_back((thread, index));
                return index;
            }
        }
        let count = self.count.load(Ordering::Acquire);
        let fewest = (0..count).min_by_key(|&index| loads.queues[index]).unwrap_or(0);
        let index = if loads.queues[fewest] == 0 || !self.grow(loads) { fewest } else { count };
        if loads.threads.len() == REMEMBERED {
            loads.threads.pop_front();
        }
        loads.threads.push_back((thread, index));
        index
    }

    /// Creates another unit. Returns false if the limit is reached or the system lacks resources: the existing ones are
    /// then used.
    fn grow(&self, loads: &mut Loads) -> bool {
        let count = self.count.load(Ordering::Acquire);
        let time = now().0;
        if count >= self.limit || time < loads.not_before {
            return false;
        }
        let grown = self.try_grow(count).is_ok();
        if !grown {
            loads.not_before = time + AFTER_FAILURE;
        }
        grown
    }

    fn try_grow(&self, count: usize) -> io::Result<()> {
        let open = self.open.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let (nic, port, icrc) = open()?;
        let unit = Unit::new(self.first().live().clone(), nic, port, icrc)?;
        let started = self.started.load(Ordering::Acquire);
        if started {
            unit.start()?;
        }
        let mut all = self.lock_all();
        // SAFETY: the new unit has no objects yet, and both NICs are locked. From now on the memory objects are changed
        // only by `lock_all`, and every NIC is accessed only through its lock.
        unsafe { unit.lock().nic().share_memory(all.nic()) };
        self.list[count].get_or_init(|| unit.clone());
        self.count.store(count + 1, Ordering::Release);
        drop(all);
        if started {
            counters::serve(&unit);
        }
        Ok(())
    }

    /// Locks all units, and the choice among them, until [`Units::unlock_after_fork`].
    pub(super) fn lock_for_fork(&self) {
        std::mem::forget(self.parts.lock());
        std::mem::forget(self.loads.lock());
        self.all().for_each(|unit| unit.lock_for_fork());
    }

    /// Unlocks after [`Units::lock_for_fork`].
    ///
    /// # Safety
    /// Must be called in the thread that called [`Units::lock_for_fork`].
    pub(super) unsafe fn unlock_after_fork(&self, child: bool) {
        for unit in self.all() {
            // SAFETY: the caller's promise.
            unsafe { unit.unlock_after_fork(child) };
        }
        // SAFETY: this thread holds both locks.
        unsafe {
            forked::unlock(&self.loads, child);
            forked::unlock(&self.parts, child);
        }
    }
}

#[cfg(test)]
mod tests {
    use irnic_nic::NicConfig;
    use irnic_ports::host::Slot;
    use irnic_ports::mem::pair;

    use super::super::tests::info;
    use super::*;

    /// Returns units of a device of which the n-th has the n-th slot, at most `limit`.
    fn units(limit: usize, in_turn: bool) -> Units {
        let made = AtomicU32::new(0);
        let open = move || {
            let first_qpn = u32::from(Slot::FIRST.number()) * Slot::QPS * (2 + made.fetch_add(1, Ordering::Relaxed));
            Ok((Nic::new(NicConfig { first_qpn, ..NicConfig::default() }), Box::new(pair().0) as _, Icrc::Off))
        };
        let first: Parts = (Nic::new(NicConfig::default()), Box::new(pair().0), Icrc::Off);
        Units { limit, in_turn, ..Units::new(&Arc::new(Live::new(info())), first, Some(Box::new(open))).unwrap() }
    }

    fn index(units: &Units, place: &Place) -> usize {
        units.all().position(|unit| Arc::ptr_eq(unit, place.unit())).unwrap()
    }

    #[test]
    fn one_thread_has_one_unit() {
        let units = units(4, false);
        let places: Vec<Place> = (0..10).map(|_| units.assign(Thread(7))).collect();
        assert!(places.iter().all(|place| index(&units, place) == 0));
        drop(places);
        // Another thread, after the first.
        assert_eq!(index(&units, &units.assign(Thread(8))), 0);
        assert_eq!(units.all().count(), 1);
    }

    #[test]
    fn each_thread_has_a_unit_of_its_own_until_there_are_no_more() {
        let units = units(3, false);
        let mut places: Vec<Place> = (0..3).map(|thread| units.assign(Thread(thread))).collect();
        places.extend((0..3).rev().map(|thread| units.assign(Thread(thread))));
        let indices = |places: &[Place]| places.iter().map(|place| index(&units, place)).collect::<Vec<_>>();
        assert_eq!(indices(&places), [0, 1, 2, 2, 1, 0]);
        places.push(units.assign(Thread(1)));
        // Units 0 and 2 have fewer queues.
        places.push(units.assign(Thread(3)));
        places.push(units.assign(Thread(4)));
        assert_eq!(indices(&places[7..]), [0, 2]);
        // A unit without queues is free for any thread.
        places.retain(|place| index(&units, place) != 1);
        assert_eq!(index(&units, &units.assign(Thread(5))), 1);
    }

    #[test]
    fn in_turn_threads_make_no_difference() {
        let units = units(3, true);
        let places: Vec<Place> = (0..6).map(|_| units.assign(Thread(7))).collect();
        assert_eq!(places.iter().map(|place| index(&units, place)).collect::<Vec<_>>(), [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn those_that_there_are_do_where_no_other_can_be_made() {
        let first: Parts = (Nic::new(NicConfig::default()), Box::new(pair().0), Icrc::Off);
        let attempts = Arc::new(AtomicU32::new(0));
        let count = attempts.clone();
        let open = move || {
            count.fetch_add(1, Ordering::Relaxed);
            Err(io::Error::from_raw_os_error(libc::EMFILE))
        };
        let units =
            Units { limit: 4, ..Units::new(&Arc::new(Live::new(info())), first, Some(Box::new(open))).unwrap() };
        let _places: Vec<Place> = (0..20).map(|thread| units.assign(Thread(thread))).collect();
        assert_eq!((units.all().count(), attempts.load(Ordering::Relaxed)), (1, 1), "asked once in a while");
    }

    #[test]
    fn memory_is_every_units() {
        let units = units(2, true);
        let (first, second) = (units.assign(Thread(1)), units.assign(Thread(1)));
        assert!(!Arc::ptr_eq(first.unit(), second.unit()));
        let mut all = units.lock_all();
        let pd = all.nic().alloc_pd().unwrap();
        assert!(units.all().all(|unit| unit.state.try_lock().is_none()), "all are locked meanwhile");
        drop(all);
        for place in [&first, &second] {
            place.unit().lock().nic().create_srq(pd, 1, 1).unwrap();
        }
        assert!(units.lock_all().nic().dealloc_pd(pd).is_err());
    }
}
