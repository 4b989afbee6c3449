//! Checks of settings, addresses, ports and libraries.

use std::net::IpAddr;

use irnic_ports::host::Taken;
use irnic_transports::wire::Mtu;
use irnic_verbs::config::{Config, PortKind, Variables};
use irnic_verbs::device::{self, DeviceInfo};
use irnic_verbs::gid::address_of;

use super::finding::Finding;
use crate::run::library;

/// Examines what `irnic run` would pass to an application.
pub fn examine(variables: &Variables) -> Vec<Finding> {
    let mut findings = libraries(variables);
    let config = match Config::load(variables) {
        Ok(config) => config,
        // The error says what was expected.
        Err(error) => return [findings, vec![Finding::wrong("settings", error.to_string(), "")]].concat(),
    };
    let source = config.file.as_ref().map_or_else(|| "no file".into(), |file| file.display().to_string());
    findings.push(Finding::ok("settings", source));
    findings.extend(config.ignored.iter().map(|ignored| Finding::note("settings", ignored.to_string(), "")));
    match device::infos(&config) {
        Ok(infos) => infos.iter().for_each(|info| findings.extend(one(info))),
        Err(error) => findings.push(Finding::wrong("device", error, "name an interface or addresses that are up")),
    }
    findings
}

fn libraries(variables: &Variables) -> Vec<Finding> {
    let finding = |found: Result<std::path::PathBuf, crate::run::RunError>| match found {
        Ok(path) => Finding::ok("library", path.display().to_string()),
        Err(error) => Finding::wrong("library", error.to_string(), ""),
    };
    let found = [library::find(variables), library::installed(library::SYSFS)].map(finding);
    let distrusted = [library::VERBS, library::SYSFS].into_iter().flat_map(library::distrusted);
    let notes = distrusted.map(|file| Finding::note("library", file.to_string(), "let nobody else write it"));
    found.into_iter().chain(notes).collect()
}

fn one(info: &DeviceInfo) -> Vec<Finding> {
    let addresses: Vec<IpAddr> = info.gids.iter().map(address_of).collect();
    let list = addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ");
    let (name, interface) = (&info.name, &info.interface.name);
    let mut findings = vec![match (info.up, addresses.is_empty()) {
        (_, true) => Finding::wrong(
            "device",
            format!("{name}: {interface} has no address, and so there is no GID"),
            format!("ip addr add … dev {interface}, or set IRNIC_ADDRESSES"),
        ),
        (false, _) => Finding::wrong(
            "device",
            format!("{name}: {interface} is down"),
            format!("ip link set {interface} up, or name another in IRNIC_INTERFACE"),
        ),
        (true, false) if info.interface.loopback => Finding::note(
            "device",
            format!("{name}: {list} on {interface}, the loopback interface: it reaches this machine only"),
            "IRNIC_INTERFACE names another",
        ),
        (true, false) => Finding::ok("device", format!("{name}: {list} on {interface}")),
    }];
    let beyond = matches!(info.config.port, PortKind::Auto | PortKind::Udp);
    if beyond && info.mtu < Mtu::B1024 {
        findings.push(Finding::note(
            "MTU",
            format!(
                "{name}: packets have {} bytes of payload, since {interface} has an MTU of {}",
                info.mtu.bytes(),
                info.interface.mtu
            ),
            format!("programs that ask for more fail; ip link set {interface} mtu 1500, or 4400 for 4096 bytes"),
        ));
    } else if beyond {
        findings.push(Finding::ok("MTU", format!("{name}: {} bytes of payload", info.mtu.bytes())));
    }
    if beyond {
        findings.extend(taken(info, &addresses));
    }
    findings
}

fn taken(info: &DeviceInfo, addresses: &[IpAddr]) -> Vec<Finding> {
    let taken = match Taken::probe(&info.domain(), addresses) {
        Ok(taken) => taken,
        Err(error) => return vec![Finding::wrong("UDP port 4791", error.to_string(), "")],
    };
    let mut findings: Vec<Finding> = taken
        .ports
        .iter()
        .map(|(address, holder)| {
            let found = format!("{address}: {holder} has it, so {} reaches this machine only", info.name);
            Finding::wrong("UDP port 4791", found, "end that, or run in a network namespace: unshare -rn")
        })
        .collect();
    if findings.is_empty() {
        findings.push(Finding::ok("UDP port 4791", format!("free for {}, or its own", info.name)));
    }
    if let Some(holder) = taken.slots.first() {
        let found = format!("{holder} has {} as well: neither reaches the other", info.name);
        findings.push(Finding::wrong(
            "other users",
            found,
            "give this one a name of its own (IRNIC_DEVICE), or a network namespace",
        ));
    }
    findings
}
