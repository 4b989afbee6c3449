//! State of a device while its network interface changes: goes down and up, changes its MTU, loses and gains addresses,
//! is removed.

use std::net::IpAddr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::DeviceInfo;
use crate::config::{GidLayout, PortKind};
use crate::gid::{Gid, Interface, address_of, gid_of};

/// An event of a device's port.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum PortEvent {
    /// It is down: packets to other hosts are lost.
    Down,
    /// It is up again.
    Up,
    /// The GID table has changed.
    Gids,
    /// The interface has a new link-layer address, as for a bond whose active link has failed.
    Moved,
    /// The interface was removed.
    Removed,
}

/// Receives the events of a device's port.
pub(crate) trait PortListener: Send + Sync {
    /// Called with the device locked: it must not call back.
    fn port_event(&self, event: PortEvent);
}

/// The current state of a device, and the listeners notified of changes.
///
/// Both are changed under the lock of a unit, so that no thread holds them while the process forks.
pub(crate) struct Live {
    /// One of `said`.
    current: AtomicPtr<DeviceInfo>,
    /// Every state ever set, since threads of the application may be reading it. Repeated states are stored once.
    said: Mutex<Vec<Arc<DeviceInfo>>>,
    listeners: Mutex<Vec<Weak<dyn PortListener>>>,
}

impl Live {
    /// Creates it with an initial state.
    pub(crate) fn new(info: DeviceInfo) -> Live {
        let info = Arc::new(info);
        let current = AtomicPtr::new(Arc::as_ptr(&info).cast_mut());
        Live { current, said: Mutex::new(vec![info]), listeners: Mutex::default() }
    }

    /// Returns the current state of the device.
    #[inline]
    pub(crate) fn get(&self) -> &DeviceInfo {
        // SAFETY: it points into one of `said`, which is never written or removed while `self` exists.
        unsafe { &*self.current.load(Ordering::Acquire) }
    }

    /// Adds a listener, notified of all events from now on while it exists.
    pub(crate) fn listen(&self, listener: Weak<dyn PortListener>) {
        let mut listeners = self.listeners.lock();
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(listener);
    }

    /// Removes all listeners: in the child of a fork they belong to the parent.
    pub(crate) fn forget_listeners(&self) {
        self.listeners.lock().clear();
    }

    /// Applies changes of the host's interfaces, and notifies listeners.
    pub(crate) fn follow(&self, interfaces: &[Interface]) {
        let old = self.get();
        self.change_to(old.after(interfaces));
    }

    /// Applies a change of a link that has no interface of the host.
    pub(crate) fn set_up(&self, up: bool) {
        self.change_to(DeviceInfo { up, ..self.get().clone() });
    }

    fn change_to(&self, new: DeviceInfo) {
        let mut said = self.said.lock();
        let old = self.get();
        if new.says_the_same(old) {
            return;
        }
        let events = events(old, &new);
        let known = said.iter().find(|known| new.says_the_same(known)).cloned();
        let new = known.unwrap_or_else(|| {
            said.push(Arc::new(new));
            said[said.len() - 1].clone()
        });
        self.current.store(Arc::as_ptr(&new).cast_mut(), Ordering::Release);
        drop(said);
        for listener in self.listeners.lock().iter().filter_map(Weak::upgrade) {
            events.iter().for_each(|event| listener.port_event(*event));
        }
    }
}

/// Returns the events between `old` and `new`, in the order of notification.
fn events(old: &DeviceInfo, new: &DeviceInfo) -> Vec<PortEvent> {
    let removed = new.removed && !old.removed;
    [
        (old.interface.mac != new.interface.mac && !new.removed, PortEvent::Moved),
        (old.up && !new.up, PortEvent::Down),
        (old.gids != new.gids || old.places != new.places, PortEvent::Gids),
        (!old.up && new.up, PortEvent::Up),
        (removed, PortEvent::Removed),
    ]
    .into_iter()
    .filter_map(|(happened, event)| happened.then_some(event))
    .collect()
}

impl DeviceInfo {
    /// Returns whether the device is on an interface of the kernel.
    pub(crate) fn has_interface(&self) -> bool {
        !matches!(self.config.port, PortKind::Lab(_)) && self.interface.index != 0
    }

    /// Returns the state of the device for these interfaces of the host.
    fn after(&self, interfaces: &[Interface]) -> DeviceInfo {
        let mut new = self.clone();
        if !self.has_interface() {
            return new;
        }
        let found = interfaces.iter().find(|interface| interface.name == self.interface.name);
        new.removed = found.is_none();
        let Some(found) = found else {
            new.up = false;
            new.set_gids(&[]);
            return new;
        };
        new.up = found.up || found.loopback;
        if matches!(self.config.port, PortKind::Frames(_)) {
            // It has its own addresses.
            new.interface.mtu = found.mtu;
        } else {
            new.interface = found.clone();
        }
        new.mtu = new.active_mtu();
        if self.config.addresses.is_empty() {
            new.set_gids(&found.gids());
        }
        new
    }

    /// Returns whether this equals another state of the device.
    fn says_the_same(&self, other: &DeviceInfo) -> bool {
        let what = |info: &DeviceInfo| (info.up, info.mtu, info.removed);
        what(self) == what(other)
            && self.gids == other.gids
            && self.places == other.places
            && self.interface == other.interface
    }

    /// Puts these addresses into the GID table: known ones keep their places, the others get the first free ones, as in
    /// Linux.
    pub(super) fn set_gids(&mut self, addresses: &[IpAddr]) {
        let gids: Vec<Gid> = addresses.iter().copied().map(gid_of).collect();
        let mut table: Vec<(usize, Gid)> = self.places.iter().copied().zip(self.gids.iter().copied()).collect();
        table.retain(|(_, gid)| gids.contains(gid));
        for gid in &gids {
            if table.iter().any(|(_, known)| known == gid) {
                continue;
            }
            // mlx5's first place is reserved for a link-local address.
            let first = usize::from(self.config.gid_layout == GidLayout::Mlx5 && !is_link_local(gid));
            let place = (first..).find(|place| table.iter().all(|(taken, _)| taken != place)).unwrap_or(first);
            table.push((place, *gid));
        }
        table.sort_unstable();
        (self.places, self.gids) = table.into_iter().unzip();
    }
}

/// Returns whether a GID is a link-local IPv6 address.
fn is_link_local(gid: &Gid) -> bool {
    matches!(address_of(gid), IpAddr::V6(ip) if ip.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::DeviceConfig;
    use irnic_transports::wire::Mtu;

    fn interface(addresses: &[&str]) -> Interface {
        Interface {
            name: "eth0".into(),
            index: 7,
            up: true,
            loopback: false,
            mtu: 9000,
            mac: [0x52, 0x54, 0, 0, 0, 1],
            addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
        }
    }

    #[derive(Default)]
    struct Heard(Mutex<Vec<PortEvent>>);

    impl PortListener for Heard {
        fn port_event(&self, event: PortEvent) {
            self.0.lock().push(event);
        }
    }

    /// Returns a device with these settings on an interface, and the events that it reports.
    fn device(config: DeviceConfig, on: &Interface) -> (Live, Arc<Heard>) {
        let live = Live::new(DeviceInfo::new(&config, std::slice::from_ref(on)).unwrap());
        let heard = Arc::new(Heard::default());
        let listener: Arc<dyn PortListener> = heard.clone();
        live.listen(Arc::downgrade(&listener));
        (live, heard)
    }

    fn table(live: &Live) -> Vec<(usize, String)> {
        live.get().gid_table().map(|(index, gid)| (index, address_of(gid).to_string())).collect()
    }

    fn named(table: &[(usize, &str)]) -> Vec<(usize, String)> {
        table.iter().map(|(index, address)| (*index, (*address).to_owned())).collect()
    }

    #[test]
    fn a_port_follows_its_interface() {
        let mut eth0 = interface(&["10.0.0.9"]);
        let (live, heard) = device(DeviceConfig::new("test".into()), &eth0);
        let heard = || std::mem::take(&mut *heard.0.lock());
        let mut follow = |change: &dyn Fn(&mut Interface)| {
            change(&mut eth0);
            live.follow(std::slice::from_ref(&eth0));
            heard()
        };
        assert!(follow(&|_| ()).is_empty());
        assert_eq!(follow(&|i| i.up = false), [PortEvent::Down]);
        assert!(!live.get().up);
        assert_eq!(follow(&|i| i.up = true), [PortEvent::Up]);
        assert_eq!((follow(&|i| i.mtu = 1500), live.get().mtu), (vec![], Mtu::B1024));
        assert_eq!(follow(&|i| i.mac[5] = 2), [PortEvent::Moved]);
        // The events of adding and removing a link-local address.
        let local: IpAddr = "fe80::1".parse().unwrap();
        assert_eq!(follow(&|i| i.addresses.push(local)), [PortEvent::Gids]);
        assert_eq!(
            follow(&|i| {
                i.up = false;
                i.addresses.pop();
            }),
            [PortEvent::Down, PortEvent::Gids]
        );
        live.follow(&[]);
        assert_eq!(heard(), [PortEvent::Gids, PortEvent::Removed]);
        assert!(live.get().gids.is_empty());
        live.follow(&[interface(&["10.0.0.9"])]);
        assert_eq!(heard(), [PortEvent::Moved, PortEvent::Gids, PortEvent::Up]);
    }

    #[test]
    fn gids_keep_their_places_in_the_table() {
        for layout in [GidLayout::Dense, GidLayout::Mlx5] {
            let index = |place: usize| if layout == GidLayout::Dense { place } else { 2 * place + 1 };
            let mut config = DeviceConfig::new("test".into());
            config.gid_layout = layout;
            let (live, _) = device(config, &interface(&["fe80::1", "10.0.0.1", "10.0.0.2"]));
            live.follow(&[interface(&["fe80::1", "10.0.0.2"])]);
            assert_eq!(table(&live), named(&[(index(0), "fe80::1"), (index(2), "10.0.0.2")]));
            assert_eq!(live.get().gid_at(index(1)), None);
            live.follow(&[interface(&["fe80::1", "10.0.0.2", "10.0.0.3", "10.0.0.4"])]);
            let all = [(0, "fe80::1"), (1, "10.0.0.3"), (2, "10.0.0.2"), (3, "10.0.0.4")];
            assert_eq!(table(&live), named(&all.map(|(place, address)| (index(place), address))));
        }
    }

    #[test]
    fn addresses_that_were_configured_stay() {
        let mut config = DeviceConfig::new("test".into());
        config.addresses = vec!["10.0.0.1".parse().unwrap()];
        let mut eth0 = interface(&["10.0.0.1"]);
        let (live, heard) = device(config, &eth0);
        eth0.addresses.clear();
        live.follow(std::slice::from_ref(&eth0));
        assert_eq!((live.get().gids.len(), heard.0.lock().len()), (1, 0));
    }

    #[test]
    fn what_is_said_again_takes_no_more_memory() {
        let mut eth0 = interface(&["10.0.0.9"]);
        let (live, heard) = device(DeviceConfig::new("test".into()), &eth0);
        for flap in 0..100 {
            eth0.up = flap % 2 == 1;
            live.follow(std::slice::from_ref(&eth0));
        }
        assert_eq!((live.said.lock().len(), heard.0.lock().len()), (2, 100));
    }
}
