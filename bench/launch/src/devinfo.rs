//! `irnic devinfo`: prints the devices as applications see them.

use std::fmt::Write;
use std::process::ExitCode;

use clap::Args;
use irnic_verbs::config::{Config, Variables};

use irnic_verbs::device::{self, DeviceInfo, device_attr, port_attr};
use irnic_verbs::gid::address_of;
use serde_json::{Value, json};

use irnic_report::output::print;

/// Print the devices as an application would see them, like ibv_devinfo -v.
#[derive(Args, Clone, Debug)]
#[command(disable_version_flag = true)]
pub struct DevinfoArgs {
    /// Print only this device
    #[arg(short = 'd', long = "device", value_name = "NAME")]
    device: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The GID type of every entry, as in sysfs.
const GID_TYPE: &str = "RoCE v2";

fn guid(guid: u64) -> String {
    format!("{:04x}:{:04x}:{:04x}:{:04x}", guid >> 48, guid >> 32 & 0xffff, guid >> 16 & 0xffff, guid & 0xffff)
}

/// The limits relevant to applications, by their names in C.
fn limits(info: &DeviceInfo) -> [(&'static str, u64); 15] {
    let a = device_attr(info);
    [
        ("max_qp", a.max_qp as u64),
        ("max_qp_wr", a.max_qp_wr as u64),
        ("max_sge", a.max_sge as u64),
        ("max_cq", a.max_cq as u64),
        ("max_cqe", a.max_cqe as u64),
        ("max_mr", a.max_mr as u64),
        ("max_mr_size", a.max_mr_size),
        ("max_mw", a.max_mw as u64),
        ("max_pd", a.max_pd as u64),
        ("max_srq", a.max_srq as u64),
        ("max_srq_wr", a.max_srq_wr as u64),
        ("max_ah", a.max_ah as u64),
        ("max_qp_rd_atom", a.max_qp_rd_atom as u64),
        ("max_mcast_grp", a.max_mcast_grp as u64),
        ("max_msg_sz", port_attr(info).max_msg_sz.into()),
    ]
}

fn state(info: &DeviceInfo) -> &'static str {
    if info.up { "PORT_ACTIVE" } else { "PORT_DOWN" }
}

fn text(infos: &[DeviceInfo]) -> String {
    let mut out = String::new();
    for info in infos {
        let mut line = |indent: usize, name: &str, value: &str| {
            let _ = writeln!(out, "{:indent$}{:<24}{value}", "", format!("{name}:"));
        };
        line(0, "hca_id", &info.name);
        line(4, "node_guid", &guid(info.guid));
        for (name, value) in limits(info) {
            line(4, name, &value.to_string());
        }
        line(4, "transport", &info.config.transport.to_string());
        line(4, "port", "1");
        line(8, "state", state(info));
        line(8, "link_layer", "Ethernet");
        line(8, "netdev", &info.interface.name);
        line(8, "active_mtu", &info.mtu.bytes().to_string());
        line(8, "rate", &format!("{} Gb/sec", info.rate as f64 / 1e9));
        for (index, gid) in info.gid_table() {
            line(8, &format!("GID[{index}]"), &format!("{}, {GID_TYPE}", address_of(gid)));
        }
    }
    out
}

fn json(infos: &[DeviceInfo]) -> Value {
    let one = |info: &DeviceInfo| {
        let gids = info.gid_table().map(|(index, gid)| {
            let raw = std::net::Ipv6Addr::from(*gid).to_string();
            json!({ "index": index, "gid": raw, "address": address_of(gid).to_string(), "type": GID_TYPE })
        });
        let limits: serde_json::Map<_, _> =
            limits(info).into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        json!({
            "name": info.name,
            "node_guid": guid(info.guid),
            "transport": info.config.transport.to_string(),
            "state": state(info),
            "netdev": info.interface.name,
            "active_mtu": info.mtu.bytes(),
            "rate": info.rate,
            "gids": gids.collect::<Vec<_>>(),
            "limits": limits,
        })
    };
    infos.iter().map(one).collect()
}

/// Runs `irnic devinfo`.
pub fn main(args: &DevinfoArgs) -> ExitCode {
    let loaded = Variables::from_environment().and_then(|variables| Config::load(&variables));
    let infos = loaded.map_err(|e| e.to_string()).and_then(|config| {
        config.report_ignored();
        device::infos(&config)
    });
    let chosen = infos.and_then(|mut infos| {
        let names: Vec<String> = infos.iter().map(|i| i.name.clone()).collect();
        infos.retain(|i| args.device.as_ref().is_none_or(|name| *name == i.name));
        match &args.device {
            Some(name) if infos.is_empty() => Err(format!("there is no device {name}; there are {}", names.join(", "))),
            _ => Ok(infos),
        }
    });
    match chosen {
        Ok(infos) => {
            print(&if args.json { format!("{:#}\n", json(&infos)) } else { text(&infos) });
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("irnic: {e}");
            ExitCode::from(2)
        }
    }
}
