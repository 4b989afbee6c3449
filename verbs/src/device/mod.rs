//! The devices that a configuration defines on the host's interfaces, and their properties. None is opened here.

mod asked;
mod attributes;
mod counters;
mod live;

use std::net::IpAddr;

use irnic_nic::NicConfig;
use irnic_ports::frames::{Carrier, FrameSpec, Mac};
use irnic_ports::host::domain;
use irnic_ports::lab::{Addressing, Assignment, LabSpec};
use irnic_transports::wire::Mtu;

pub(crate) use asked::asked;
pub(crate) use attributes::{DEFAULT_PKEY, GID_TABLE, PKEY_TABLE};
pub use attributes::{device_attr, port_attr};
pub(crate) use counters::{Counted, counter_value};
pub use counters::{counter_files, counter_socket};
pub(crate) use live::{Live, PortEvent, PortListener};

use crate::config::{Config, DeviceConfig, GidLayout, PortKind};
use crate::gid::{self, Gid, Interface};

/// Maximum number of queue pairs of one process: those numbered by the lower bits of a queue pair number.
const MAX_QPS: u32 = 1 << 14;
/// Number of packets that a queue pair sends before the next one's turn: what UDP sends as one train.
const QUANTUM: u32 = 16;

/// Properties of a device.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Name, such as `irnic0`.
    pub name: String,
    /// The node's GUID.
    pub guid: u64,
    /// The GIDs, in the order of the GID table: see [`DeviceInfo::gid_at`].
    pub gids: Vec<Gid>,
    /// Their places in the table, in ascending order.
    places: Vec<usize>,
    /// The network interface.
    pub interface: Interface,
    /// The largest path MTU.
    pub mtu: Mtu,
    /// Whether the interface is up.
    pub up: bool,
    /// The interface was removed.
    removed: bool,
    /// The link's rate, bit/s.
    pub rate: u64,
    /// The settings of the device.
    pub config: DeviceConfig,
}

impl DeviceInfo {
    /// Applies a configuration to a host with these interfaces. Returns one line that explains the error if it is
    /// invalid there.
    pub fn new(config: &DeviceConfig, interfaces: &[Interface]) -> Result<DeviceInfo, String> {
        if let PortKind::Lab(spec) = &config.port {
            return in_lab(config, spec, interfaces);
        }
        let interface = match &config.port {
            PortKind::Frames(spec) => station_of(config, spec, interfaces)?,
            _ => interface_of(config, interfaces)?.clone(),
        };
        let addresses = if config.addresses.is_empty() { interface.gids() } else { config.addresses.clone() };
        let mut info = DeviceInfo {
            name: config.name.clone(),
            guid: guid(config, &interface),
            gids: Vec::new(),
            places: Vec::new(),
            mtu: Mtu::B256,
            up: interface.up || interface.loopback,
            removed: false,
            interface,
            rate: config.rate.unwrap_or(100_000_000_000),
            config: config.clone(),
        };
        info.mtu = info.active_mtu();
        info.set_gids(&addresses);
        Ok(info)
    }

    /// Returns the path MTU of the settings, or that of the interface.
    fn active_mtu(&self) -> Mtu {
        // Shared memory carries any packet, whatever the interface's MTU.
        let widest = || match self.config.port {
            PortKind::Shm => Some(Mtu::B4096),
            _ => self.interface.path_mtu(),
        };
        self.config.mtu.or_else(widest).unwrap_or(Mtu::B256)
    }

    /// Returns the name under which processes of this host that open the same device find each other: without
    /// configured addresses it is derived from the interface, whose addresses come and go, otherwise from the
    /// addresses.
    pub fn domain(&self) -> String {
        match self.config.addresses.as_slice() {
            [] => domain(&format!("{} {}", self.name, self.interface.name), &[]),
            addresses => domain(&self.name, addresses),
        }
    }

    /// Returns the GID at an index of the GID table; `None` if there is none.
    pub fn gid_at(&self, index: usize) -> Option<&Gid> {
        self.gid_table().find_map(|(at, gid)| (at == index).then_some(gid))
    }

    /// Returns the index in the GID table of one of [`DeviceInfo::gids`].
    pub fn gid_index(&self, at: usize) -> usize {
        self.index_of(self.places.get(at).copied().unwrap_or(at))
    }

    /// Returns the GIDs with their indices in the GID table.
    pub fn gid_table(&self) -> impl Iterator<Item = (usize, &Gid)> {
        self.places.iter().map(|place| self.index_of(*place)).zip(&self.gids)
    }

    /// Returns the number of indices of the GID table.
    pub(crate) fn gid_table_len(&self) -> usize {
        self.index_of(self.places.last().map_or(0, |last| last + 1)).max(GID_TABLE)
    }

    /// Returns the index of a place in the GID table: mlx5 has RoCE v1 at the even ones.
    fn index_of(&self, place: usize) -> usize {
        match self.config.gid_layout {
            GidLayout::Dense => place,
            GidLayout::Mlx5 => 2 * place + 1,
        }
    }

    /// Returns whether the device is a station on an Ethernet, whose addresses and neighbours the kernel does not know.
    pub(crate) fn is_station(&self) -> bool {
        matches!(self.config.port, PortKind::Frames(_)) || self.interface.index == 0
    }

    /// Returns the name that the kernel would give the character device.
    pub fn uverbs(&self) -> String {
        format!("uverbs_{}", self.name)
    }

    /// Returns the configuration of the device's NIC, except what is decided when it is opened: queue pair numbers and
    /// the seed of remote keys.
    pub(crate) fn nic_config(&self) -> NicConfig {
        NicConfig {
            max_qps: MAX_QPS,
            quantum: if matches!(self.config.port, PortKind::Lab(_)) { 1 } else { QUANTUM },
            clock: self.config.clock,
            mtu: self.mtu,
            ..NicConfig::default()
        }
    }
}

/// Applies a configuration in a lab: the device has its host's address, on the interface with that address.
fn in_lab(config: &DeviceConfig, spec: &LabSpec, interfaces: &[Interface]) -> Result<DeviceInfo, String> {
    for (key, given) in [
        ("addresses", !config.addresses.is_empty()),
        ("interface", config.interface.is_some()),
        ("impair", !config.impair.is_empty()),
        ("rate", config.rate.is_some()),
    ] {
        if given {
            return Err(wrong(config, key, "the device is in a lab, which decides that; expected nothing".into()));
        }
    }
    let Assignment { host, rate, addressing, .. } = spec.assign().map_err(|e| e.to_string())?;
    let mut config = config.clone();
    let address = addressing.address(host);
    config.port = PortKind::Lab(LabSpec { host: Some(host), ..spec.clone() });
    config.addresses = vec![address];
    let has = |interface: &&Interface| interface.addresses.contains(&address);
    let interface = match addressing {
        Addressing::Namespaces => interfaces.iter().find(has).cloned().ok_or_else(|| {
            format!(
                "this process is to be host {host} of the lab, and is not in its network namespace, which has {address}: \
                 irnic host {host} -- COMMAND puts it there"
            )
        })?,
        Addressing::Loopback => interface_of(&config, interfaces)?.clone(),
        Addressing::Detached => Interface {
            name: "lab".into(),
            index: 0,
            up: true,
            loopback: false,
            mtu: ETHERNET_MTU,
            mac: Mac::derived(address).0,
            addresses: vec![address],
        },
    };
    let mut info = DeviceInfo {
        name: config.name.clone(),
        guid: guid(&config, &interface),
        gids: Vec::new(),
        places: Vec::new(),
        mtu: config.mtu.unwrap_or(Mtu::B4096),
        up: true,
        removed: false,
        interface,
        rate,
        config,
    };
    info.set_gids(&[address]);
    Ok(info)
}

/// Returns the node's GUID. Devices with their own addresses on the loopback interface represent different hosts, and
/// their GUIDs differ like the addresses: peers distinguish connections by them.
fn guid(config: &DeviceConfig, interface: &Interface) -> u64 {
    let own = match config.addresses.first() {
        Some(IpAddr::V4(v4)) if interface.loopback => v4.octets(),
        Some(IpAddr::V6(v6)) if interface.loopback => *v6.octets().last_chunk().expect("16 bytes"),
        _ => return interface.guid(),
    };
    let [a, b, c, d] = own.map(u64::from);
    interface.guid() ^ (a << 40 | b << 16 | c << 8 | d)
}

/// Returns the interface of a configuration, by its name or one of its addresses; else the first suitable one.
fn interface_of<'a>(config: &DeviceConfig, interfaces: &'a [Interface]) -> Result<&'a Interface, String> {
    if let Some(name) = &config.interface {
        return interfaces.iter().find(|i| i.name == *name).ok_or_else(|| {
            let names: Vec<_> = interfaces.iter().map(|i| i.name.as_str()).collect();
            wrong(config, "interface", format!("there is no such interface; expected {}", names.join(", ")))
        });
    }
    if let Some(address) = config.addresses.first() {
        // An address of the loopback network exists without being configured.
        let found = interfaces
            .iter()
            .find(|i| i.addresses.contains(address))
            .or_else(|| interfaces.iter().find(|i| i.loopback && address.is_loopback()));
        return found.ok_or_else(|| {
            let own: Vec<_> = interfaces.iter().flat_map(|i| &i.addresses).map(IpAddr::to_string).collect();
            wrong(config, "addresses", format!("{address} is not this host's; expected {}", own.join(", ")))
        });
    }
    let usable = |i: &&Interface| i.up && !i.addresses.is_empty();
    let v4 = |i: &&Interface| i.addresses.iter().any(|a| a.is_ipv4());
    interfaces
        .iter()
        .filter(usable)
        .find(|i| !i.loopback && v4(i))
        .or_else(|| interfaces.iter().filter(usable).find(|i| !i.loopback))
        .or_else(|| interfaces.iter().find(|i| i.loopback))
        .ok_or_else(|| "this host has no network interface".into())
}

/// Payload bytes of an Ethernet packet unless its interface has another MTU.
const ETHERNET_MTU: u32 = 1500;

/// Returns the interface of a device with a frame port: it has its own addresses, and the MTU of the kernel's
/// interface, if there is one.
fn station_of(config: &DeviceConfig, spec: &FrameSpec, interfaces: &[Interface]) -> Result<Interface, String> {
    if config.addresses.is_empty() {
        let why = "a frame port has addresses of its own; expected them in addresses, such as 10.77.0.2,fd77::2";
        return Err(wrong(config, "port", why.into()));
    }
    if config.interface.is_some() {
        let why = "a frame port is its own interface; expected port to name what carries it";
        return Err(wrong(config, "interface", why.into()));
    }
    let name = match &spec.carrier {
        Carrier::Packet(name) | Carrier::Tap(name) => name.as_str(),
        Carrier::Dgram { .. } => "frames",
    };
    let below = interfaces.iter().find(|i| i.name == name && !matches!(spec.carrier, Carrier::Dgram { .. }));
    if below.is_none() && matches!(spec.carrier, Carrier::Packet(_)) {
        let names: Vec<_> = interfaces.iter().map(|i| i.name.as_str()).collect();
        return Err(wrong(config, "port", format!("there is no interface {name}; expected {}", names.join(", "))));
    }
    Ok(Interface {
        name: name.into(),
        index: below.map_or(0, |i| i.index),
        up: true,
        loopback: false,
        mtu: below.map_or(ETHERNET_MTU, |i| i.mtu),
        mac: spec.mac_for(&config.addresses).0,
        addresses: config.addresses.clone(),
    })
}

/// Returns the message about a setting that is invalid on this host.
fn wrong(config: &DeviceConfig, key: &str, why: String) -> String {
    config.given.error(key, why.as_str()).map_or(why, |e| e.to_string())
}

/// Returns all devices of a configuration on this host, or one line that explains why there are none.
pub fn infos(config: &Config) -> Result<Vec<DeviceInfo>, String> {
    let interfaces = gid::interfaces().map_err(|e| format!("cannot list network interfaces: {e}"))?;
    config.devices.iter().map(|d| DeviceInfo::new(d, &interfaces)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gid::{Gid, gid_of};

    fn interfaces() -> [Interface; 2] {
        let interface = |name: &str, mtu, address: &str| Interface {
            name: name.into(),
            index: 7,
            up: true,
            loopback: false,
            mtu,
            mac: [0x52, 0x54, 0, 0, 0, 1],
            addresses: vec![address.parse().unwrap()],
        };
        [interface("eth0", 9000, "10.0.0.9"), interface("frames", 9000, "10.0.0.8")]
    }

    fn station(port: &str, addresses: &[&str]) -> DeviceConfig {
        let mut config = DeviceConfig::new("test".into());
        config.port = PortKind::Frames(port.parse().unwrap());
        config.addresses = addresses.iter().map(|a| a.parse().unwrap()).collect();
        config
    }

    #[test]
    fn a_station_has_addresses_of_its_own_and_the_interfaces_mtu() {
        let addresses = ["10.77.0.2", "fd77::2"];
        for (port, name, index, mtu) in [
            ("packet:eth0", "eth0", 7, Mtu::B4096),
            ("tap:eth0", "eth0", 7, Mtu::B4096),
            ("tap:tap9", "tap9", 0, Mtu::B1024),
            ("dgram:local=/tmp/a,remote=/tmp/b", "frames", 0, Mtu::B1024),
        ] {
            let info = DeviceInfo::new(&station(port, &addresses), &interfaces()).unwrap();
            let Interface { name: named, index: numbered, up, mac, .. } = &info.interface;
            assert_eq!((named.as_str(), *numbered, *up, info.mtu), (name, index, true, mtu), "{port}");
            assert_eq!(*mac, [2, 0, 10, 77, 0, 2]);
            assert_eq!(info.gids, addresses.map(|a| -> Gid { gid_of(a.parse().unwrap()) }));
            // ff:fe in the middle of the link-layer address, its locally administered bit flipped.
            assert_eq!(info.guid, 0x0000_0aff_fe4d_0002);
        }
    }

    #[test]
    fn the_gid_table_is_dense_or_as_mlx5s() {
        let table = |layout, addresses: &[&str]| {
            let mut config = DeviceConfig::new("test".into());
            config.gid_layout = layout;
            let [mut eth0, _] = interfaces();
            eth0.addresses = addresses.iter().map(|a| a.parse().unwrap()).collect();
            let info = DeviceInfo::new(&config, &[eth0]).unwrap();
            let found: Vec<usize> = (0..info.gid_table_len()).filter(|index| info.gid_at(*index).is_some()).collect();
            assert_eq!(found, info.gid_table().map(|(index, _)| index).collect::<Vec<_>>());
            assert!(found.iter().zip(&info.gids).all(|(index, gid)| info.gid_at(*index) == Some(gid)));
            found
        };
        let (local, others) = (["fe80::1", "192.0.2.2", "2001:db8::2"], ["192.0.2.2", "192.0.2.3"]);
        assert_eq!((table(GidLayout::Dense, &local), table(GidLayout::Dense, &others)), (vec![0, 1, 2], vec![0, 1]));
        assert_eq!((table(GidLayout::Mlx5, &local), table(GidLayout::Mlx5, &others)), (vec![1, 3, 5], vec![3, 5]));
    }

    #[test]
    fn devices_with_addresses_of_their_own_on_the_loopback_interface_have_guids_of_their_own() {
        let mut lo = interfaces()[0].clone();
        (lo.loopback, lo.mac) = (true, [0; 6]);
        let guid = |addresses: &[&str]| {
            let mut config = DeviceConfig::new("test".into());
            config.addresses = addresses.iter().map(|a| a.parse().unwrap()).collect();
            super::guid(&config, &lo)
        };
        assert_eq!(guid(&[]), 0x0200_00ff_fe00_0000);
        let all = [guid(&[]), guid(&["127.77.0.3"]), guid(&["127.77.0.4", "::1"]), guid(&["fd77::3"])];
        assert!((0..4).all(|i| !all[..i].contains(&all[i])), "{all:x?}");
    }

    #[test]
    fn what_a_station_lacks_is_named() {
        let said = |config| DeviceInfo::new(&config, &interfaces()).unwrap_err();
        let none = said(station("packet:eth0", &[]));
        assert!(none.contains("a frame port has addresses of its own; expected them in addresses"), "{none}");
        let missing = said(station("packet:eth7", &["10.77.0.2"]));
        assert_eq!(missing, "there is no interface eth7; expected eth0, frames");
        let mut both = station("tap:tap9", &["10.77.0.2"]);
        both.interface = Some("eth0".into());
        assert!(said(both).contains("expected port to name what carries it"));
    }
}
