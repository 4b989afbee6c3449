//! The lists of state, taken from queue pairs connected as by an application.

use irnic_nic::{Nic, NicConfig, QpConfig};
use irnic_transports::Path;
use irnic_transports::TransportConfig;
use irnic_transports::config::{FlowControl, ParsedTransport};
use irnic_transports::footprint::Footprint;
use irnic_transports::qp::ConnectParams;

use super::Setting;

/// A transport and its state.
#[derive(Clone, Debug)]
pub(super) struct Transport {
    /// Name, as given.
    pub(super) name: String,
    pub(super) preset: &'static str,
    /// Length of its bitmaps, bits.
    pub(super) window: u32,
    pub(super) footprint: Footprint,
}

/// Transports by name, by default all presets except `auto`, whose state is that of `roce` and `irn`.
pub(super) fn all(names: &[String], setting: &Setting) -> Result<Vec<Transport>, String> {
    let presets = TransportConfig::PRESETS.into_iter().filter(|name| *name != "auto").map(String::from);
    let names: Vec<String> = if names.is_empty() { presets.collect() } else { names.to_vec() };
    names.into_iter().map(|name| one(name, setting)).collect()
}

fn one(name: String, setting: &Setting) -> Result<Transport, String> {
    let of = |e: String| format!("--transport {name}: {e}");
    let parsed = ParsedTransport::parse(&name, false).map_err(|e| of(e.to_string()))?;
    let mut config = parsed.config;
    if let FlowControl::BdpCap(cap) = &mut config.flow {
        if !parsed.given.has("cap") {
            *cap = setting.cap() as u32;
        }
        if !parsed.given.has("window") {
            config.window = (*cap).next_power_of_two().max(64);
        }
    }
    config.check().map_err(|e| of(e.to_string()))?;
    let footprint = of_connected(config, setting).map_err(of)?;
    Ok(Transport { name, preset: parsed.preset, window: config.window, footprint })
}

fn of_connected(config: TransportConfig, setting: &Setting) -> Result<Footprint, String> {
    let mut nic = Nic::new(NicConfig { mtu: setting.mtu, ..NicConfig::default() });
    let error = |e: &dyn std::fmt::Display| e.to_string();
    let pd = nic.alloc_pd().map_err(|e| error(&e))?;
    let cq = nic.create_cq(1).map_err(|e| error(&e))?;
    let qpn = nic.create_qp(&QpConfig::new(pd, cq, config)).map_err(|e| error(&e))?;
    let (src, dst) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let path = Path { src, dst, udp_src: 0xc000, traffic_class: 0, hop_limit: 64 };
    let mut params = ConnectParams::reliable(path, setting.mtu, qpn);
    params.rd_atomic = setting.reads;
    for step in params.steps() {
        nic.modify_qp(qpn, &step).map_err(|e| error(&e))?;
    }
    nic.footprint(qpn).ok_or_else(|| "no reliable connection".into())
}
