//! A completion queue of a device, in the units of its queue pairs.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use irnic_nic::{Arm, NicError};
use irnic_transports::qp::{CqId, Event, Wc};
use parking_lot::{Mutex, MutexGuard};

use super::device::DeviceRuntime;
use super::listener::{Listener, Owner};
use super::state::State;
use super::unit::{Look, Unit};
use super::units::{Place, Thread};

/// A completion queue. It moves to a unit with its first queue pair, and has a part in each unit with queue pairs that
/// use it: one, unless the application combines, by a queue pair, a shared receive queue or an XRC domain, objects
/// created by different threads. All of a queue pair's completions are in one part, so they stay in order; IBA
/// guarantees no order between queue pairs.
///
/// Polling and arming take no lock except a unit's, unless there are several parts.
pub(crate) struct CompletionQueue {
    device: Arc<DeviceRuntime>,
    owner: Owner,
    /// The parts; null before the first queue pair. Valid as long as the queue exists.
    parts: AtomicPtr<Vec<Part>>,
    /// Counter for the part that is polled first.
    turn: AtomicUsize,
    /// The thread that last polled before the first queue pair was created, or else the one that created the queue.
    thread: AtomicU32,
    inner: Mutex<Inner>,
}

/// Completions of the queue pairs in one unit.
#[derive(Clone)]
struct Part {
    unit: Arc<Unit>,
    id: CqId,
}

struct Inner {
    entries: u32,
    /// The queue before its first queue pair, in the device's first unit.
    unused: Option<CqId>,
    /// All lists of parts so far, the valid one last: threads may be polling with an earlier one.
    lists: Vec<Arc<Vec<Part>>>,
    /// Counts the queue as a user of the first part's unit.
    place: Option<Place>,
    /// For a queue of several parts: whether none has reported its event since the last arming.
    silent: Option<Arc<AtomicBool>>,
}

/// The state under a queue's lock, locked.
struct Locked<'a> {
    inner: MutexGuard<'a, Inner>,
    _parts: MutexGuard<'a, ()>,
}

impl Deref for Locked<'_> {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.inner
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Inner {
        &mut self.inner
    }
}

impl Inner {
    fn parts(&self) -> &[Part] {
        self.lists.last().map_or(&[], |parts| parts.as_slice())
    }
}

/// Forwards one event of all parts for each time that the queue is armed.
struct Once {
    silent: Arc<AtomicBool>,
    listener: Box<dyn Listener>,
}

impl Listener for Once {
    fn completion(&self) {
        if self.silent.swap(false, Ordering::AcqRel) {
            self.listener.completion();
        }
    }

    fn event(&self, event: Event) {
        self.listener.event(event);
    }
}

/// Ignores all events.
struct Deaf;

impl Listener for Deaf {
    fn event(&self, _event: Event) {}
}

impl CompletionQueue {
    /// Returns a queue for `entries` completions that is in no NIC yet.
    pub(crate) fn new(device: Arc<DeviceRuntime>, entries: u32, owner: Owner) -> CompletionQueue {
        let inner = Inner { entries, unused: None, lists: Vec::new(), place: None, silent: None };
        CompletionQueue {
            device,
            owner,
            parts: AtomicPtr::default(),
            turn: AtomicUsize::new(0),
            thread: AtomicU32::new(Thread::current().0),
            inner: Mutex::new(inner),
        }
    }

    fn lock(&self) -> Locked<'_> {
        let parts = self.device.lock_parts();
        Locked { inner: self.inner.lock(), _parts: parts }
    }

    /// Creates the queue. Returns its handle, which is independent of its later unit.
    pub(crate) fn open(&self, listener: Box<dyn Listener>) -> Result<CqId, NicError> {
        let mut inner = self.lock();
        let id = self.device.first_unit().lock().create_cq(inner.entries, self.owner, |_| listener)?;
        inner.unused = Some(id);
        Ok(id)
    }

    /// Returns the device.
    pub(crate) fn device(&self) -> &Arc<DeviceRuntime> {
        &self.device
    }

    /// Returns the unit of its queue pairs, or of the first of them; `None` before there was any.
    pub(crate) fn unit(&self) -> Option<Arc<Unit>> {
        self.lock().parts().first().map(|part| part.unit.clone())
    }

    /// Returns the thread that uses the queue, as far as known before there are queue pairs.
    pub(super) fn thread(&self) -> Thread {
        Thread(self.thread.load(Ordering::Relaxed))
    }

    /// Returns the queue's handle in a unit, for a queue pair there. `listen` returns a listener like the one that the
    /// queue was created with.
    pub(crate) fn join(&self, unit: &Arc<Unit>, listen: impl FnOnce() -> Box<dyn Listener>) -> Result<CqId, NicError> {
        let mut inner = self.lock();
        if let Some(part) = inner.parts().iter().find(|part| Arc::ptr_eq(&part.unit, unit)) {
            return Ok(part.id);
        }
        match inner.unused {
            Some(id) => {
                let id = self.settle(unit, id, inner.entries, listen)?;
                inner.unused = None;
                inner.place = self.device.place_in(unit);
                self.publish(&mut inner, vec![Part { unit: unit.clone(), id }]);
                Ok(id)
            }
            None => self.add_part(&mut inner, unit, listen()),
        }
    }

    /// Moves an unused queue to its unit. Returns its handle there.
    fn settle(
        &self,
        unit: &Arc<Unit>,
        unused: CqId,
        entries: u32,
        listen: impl FnOnce() -> Box<dyn Listener>,
    ) -> Result<CqId, NicError> {
        let first = self.device.first_unit();
        if Arc::ptr_eq(first, unit) {
            return Ok(unused);
        }
        let id = unit.lock().create_cq(entries, self.owner, |_| listen())?;
        let mut state = first.lock();
        let armed = state.is_armed(unused);
        // It is unused and has no completions.
        let _ = state.destroy_cq(unused);
        drop(state);
        if armed {
            // It may have been armed for less: one event too many does no harm.
            unit.lock().arm_cq(id, Arm::Next)?;
        }
        Ok(id)
    }

    /// Creates another part. All forward their events through one gate from then on.
    #[cold]
    fn add_part(&self, inner: &mut Inner, unit: &Arc<Unit>, listener: Box<dyn Listener>) -> Result<CqId, NicError> {
        let silent = inner.silent.get_or_insert_with(|| Arc::new(AtomicBool::new(true))).clone();
        let once = |listener| Box::new(Once { silent: silent.clone(), listener }) as Box<dyn Listener>;
        let id = unit.lock().create_cq(inner.entries, self.owner, |_| once(listener))?;
        let old = inner.parts().to_vec();
        if let [only] = &*old {
            only.unit.lock().replace_cq_listener(only.id, once);
        }
        let new = Part { unit: unit.clone(), id };
        self.publish(inner, old.iter().cloned().chain([new]).collect());
        let armed = old.iter().filter(|part| part.unit.lock().is_armed(part.id)).count() > 0;
        if armed {
            unit.lock().arm_cq(id, Arm::Next)?;
        }
        Ok(id)
    }

    fn publish(&self, inner: &mut Inner, parts: Vec<Part>) {
        let parts = Arc::new(parts);
        self.parts.store(Arc::as_ptr(&parts).cast_mut(), Ordering::Release);
        inner.lists.push(parts);
    }

    /// Looks at one word of memory in place of a poll.
    #[inline(always)]
    pub(crate) fn look(&self) -> Look<'_> {
        // SAFETY: as in `poll`.
        match unsafe { self.parts.load(Ordering::Acquire).as_ref() }.map(Vec::as_slice) {
            Some([only]) => only.unit.look(only.id),
            _ => Look::Blind,
        }
    }

    /// Returns whether a poll finds nothing, as far as memory shows after a look with a [`Look::Change`].
    pub(crate) fn finds_nothing(&self, state: Option<MutexGuard<'_, State>>) -> bool {
        // SAFETY: as in `poll`.
        match unsafe { self.parts.load(Ordering::Acquire).as_ref() }.map(Vec::as_slice) {
            Some([only]) => only.unit.finds_nothing(state, only.id),
            _ => false,
        }
    }

    /// Takes up to `max` completions; `each` gets them in order.
    #[inline]
    pub(crate) fn poll(&self, max: usize, each: impl FnMut(&Wc)) -> Result<(), NicError> {
        // SAFETY: a published list is neither changed nor freed as long as the queue exists.
        match unsafe { self.parts.load(Ordering::Acquire).as_ref() }.map(Vec::as_slice) {
            Some([only]) => only.unit.poll(only.id, max, each).map(|_| ()),
            Some(parts) => self.poll_all(parts, max, each),
            None => {
                self.poll_unused();
                Ok(())
            }
        }
    }

    /// Polls all parts, starting with a different one each time.
    #[cold]
    fn poll_all(&self, parts: &[Part], max: usize, mut each: impl FnMut(&Wc)) -> Result<(), NicError> {
        let start = self.turn.fetch_add(1, Ordering::Relaxed) % parts.len().max(1);
        let mut done = 0;
        for part in parts[start..].iter().chain(&parts[..start]) {
            if done < max {
                done += part.unit.poll(part.id, max - done, &mut each)?;
            }
        }
        Ok(())
    }

    /// Polls before there is a queue pair. There are no completions, but a thread that polls now will do so later.
    #[cold]
    fn poll_unused(&self) {
        self.thread.store(Thread::current().0, Ordering::Relaxed);
    }

    /// Requests one event at the next completion.
    pub(crate) fn arm(&self, arm: Arm) -> Result<(), NicError> {
        let parts = self.parts.load(Ordering::Acquire);
        // SAFETY: as in `poll`.
        if let Some([only]) = unsafe { parts.as_ref() }.map(Vec::as_slice) {
            arm_in(&only.unit, only.id, arm)?;
            // Whoever adds a part checks whether the first is armed after publishing the new one.
            if self.parts.load(Ordering::Acquire) == parts {
                return Ok(());
            }
        }
        let inner = self.lock();
        if let Some(silent) = &inner.silent {
            silent.store(true, Ordering::Release);
        }
        match inner.unused {
            Some(id) => arm_in(self.device.first_unit(), id, arm),
            None => inner.parts().iter().try_for_each(|part| arm_in(&part.unit, part.id, arm)),
        }
    }

    /// Changes the capacity of each part. On an error some may be larger than requested, and none is too small for its
    /// contents.
    pub(crate) fn resize(&self, entries: u32) -> Result<(), NicError> {
        let mut inner = self.lock();
        match inner.unused {
            Some(id) => self.device.first_unit().lock().nic().resize_cq(id, entries)?,
            None => inner.parts().iter().try_for_each(|p| p.unit.lock().nic().resize_cq(p.id, entries))?,
        }
        inner.entries = entries;
        Ok(())
    }

    /// Destroys the queue, unless a queue pair uses it. Unused parts are destroyed in any case.
    pub(crate) fn destroy(&self) -> Result<(), NicError> {
        let mut inner = self.lock();
        if let Some(id) = inner.unused {
            self.device.first_unit().lock().destroy_cq(id)?;
            inner.unused = None;
            return Ok(());
        }
        let mut used = None;
        let mut kept = Vec::new();
        for part in inner.parts() {
            if let Err(e) = part.unit.lock().destroy_cq(part.id) {
                used = Some(e);
                kept.push(part.clone());
            }
        }
        let Some(error) = used else {
            inner.place = None;
            return Ok(());
        };
        if kept.len() < inner.parts().len() {
            inner.place = self.device.place_in(&kept[0].unit);
            self.publish(&mut inner, kept);
        }
        Err(error)
    }

    /// Returns the time since 1970, ns, at which the NIC's clock showed `ticks`.
    pub(crate) fn wall_clock(&self, ticks: u64) -> u64 {
        self.device.first_unit().lock().wall_clock(ticks)
    }
}

fn arm_in(unit: &Unit, id: CqId, arm: Arm) -> Result<(), NicError> {
    let mut state = unit.lock();
    state.arm_cq(id, arm)?;
    unit.done(state);
    Ok(())
}

impl State {
    /// Returns whether the next completion of a queue is waited for.
    fn is_armed(&self, cq: CqId) -> bool {
        self.cqs.get(cq.0).is_some_and(|registered| registered.armed)
    }

    /// Replaces the listener of a queue by one derived from it.
    fn replace_cq_listener(&mut self, cq: CqId, make: impl FnOnce(Box<dyn Listener>) -> Box<dyn Listener>) {
        if let Some(registered) = self.cqs.get_mut(cq.0) {
            let old = std::mem::replace(&mut registered.listener, Box::new(Deaf));
            registered.listener = make(old);
        }
    }
}
