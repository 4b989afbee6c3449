//! The device selected by `-d` and `-x`, as applications see it.

use std::net::IpAddr;

use irnic_verbs::config::{Config, PortKind as DevicePort, Variables};
use irnic_verbs::device::{self, DeviceInfo};
use irnic_verbs::gid::address_of;

use crate::error::PerfError;
use crate::plan::PortKind;

/// A device, with one of its addresses.
pub struct Chosen {
    pub info: DeviceInfo,
    pub address: IpAddr,
}

/// The device called `name`, or the first, and its address at `index` of the GID table, or the first of the IP version.
pub fn choose(name: Option<&str>, index: Option<usize>, ipv6: bool) -> Result<Chosen, PerfError> {
    let config = Variables::from_environment().and_then(|variables| Config::load(&variables));
    let config = config.map_err(|e| PerfError::Usage(e.to_string()))?;
    config.report_ignored();
    let infos = device::infos(&config).map_err(PerfError::Usage)?;
    let names: Vec<&str> = infos.iter().map(|info| info.name.as_str()).collect();
    let place = match name {
        None => Some(0),
        Some(name) => names.iter().position(|known| *known == name),
    };
    let Some(info) = place.and_then(|place| infos.get(place)) else {
        let name = name.unwrap_or_default();
        return Err(PerfError::Usage(format!(
            "--ib-dev {name}: there is no such device; there are {}",
            names.join(", ")
        )));
    };
    let addresses: Vec<IpAddr> = info.gids.iter().map(address_of).collect();
    let address = match index {
        Some(index) => addresses.get(index),
        None if ipv6 => addresses.iter().find(|address| address.is_ipv6()),
        // Applications use the IPv4 address if there is one.
        None => addresses.iter().find(|address| address.is_ipv4()).or(addresses.first()),
    };
    match address {
        Some(&address) => Ok(Chosen { info: info.clone(), address }),
        None => {
            let option = index.map_or("--ipv6".to_owned(), |index| format!("--gid-index {index}"));
            let list: Vec<String> = addresses.iter().enumerate().map(|(i, a)| format!("{i} {a}")).collect();
            Err(PerfError::Usage(format!("{option}: {} has no such address; it has {}", info.name, list.join(", "))))
        }
    }
}

impl Chosen {
    /// The carrier of its packets, if perf supports it.
    pub fn port(&self) -> Result<PortKind, PerfError> {
        match &self.info.config.port {
            DevicePort::Auto | DevicePort::Udp => Ok(PortKind::Udp),
            DevicePort::Shm => Ok(PortKind::Shm),
            DevicePort::Frames(_) | DevicePort::Lab(_) => Err(PerfError::Usage(format!(
                "--ib-dev {}: its port is neither udp nor shm; irnic run -- ib_write_bw runs perftest itself over it",
                self.info.name
            ))),
        }
    }
}
