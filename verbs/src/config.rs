//! What devices there are and what they are made of: `IRNIC_*` variables.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use irnic_nic::impair::Impairments;
use irnic_transports::rc::TransportConfig;
use irnic_transports::wire::Mtu;

/// What carries packets.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum PortKind {
    /// Shared memory within the host, UDP beyond it.
    Auto,
    /// Shared memory only.
    Shm,
    /// UDP, within the host as well.
    Udp,
}

/// One device.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// Its name.
    pub name: String,
    /// The network interface whose addresses it has; `None`: the first that is up.
    pub interface: Option<String>,
    /// Its addresses, in place of the interface's.
    pub addresses: Vec<IpAddr>,
    /// What carries packets.
    pub port: PortKind,
    /// The largest path MTU; `None`: what the interface carries.
    pub mtu: Option<Mtu>,
    /// The link's rate in bit/s, as it is reported.
    pub rate: Option<u64>,
    /// The transport of RC queue pairs.
    pub transport: TransportConfig,
    /// What the emulated network does to packets.
    pub impair: Impairments,
    /// Seed of what is drawn at random.
    pub seed: u64,
    /// Where to write a capture.
    pub pcap: Option<PathBuf>,
}

/// All devices.
#[derive(Clone, Debug)]
pub struct Config {
    /// In the order in which applications see them.
    pub devices: Vec<DeviceConfig>,
}

/// A setting that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Which setting.
    pub key: String,
    /// Its value.
    pub value: String,
    /// What would make sense.
    pub expected: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}: {}", self.key, self.value, self.expected)
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// What the environment says.
    pub fn from_environment() -> Result<Config, ConfigError> {
        Config::from_lookup(|key| std::env::var(key).ok())
    }

    fn from_lookup(get: impl Fn(&str) -> Option<String>) -> Result<Config, ConfigError> {
        let bad =
            |key: &str, value: &str, expected: String| ConfigError { key: key.into(), value: value.into(), expected };
        let transport = get("IRNIC_TRANSPORT").unwrap_or_else(|| "auto".into());
        let transport =
            TransportConfig::parse(&transport, true).map_err(|e| bad("IRNIC_TRANSPORT", &transport, e.to_string()))?;
        let impair = get("IRNIC_IMPAIR").unwrap_or_default();
        let impair =
            impair.parse().map_err(|e: irnic_nic::impair::ParseError| bad("IRNIC_IMPAIR", &impair, e.to_string()))?;
        let port = match get("IRNIC_PORT").as_deref() {
            None | Some("auto") => PortKind::Auto,
            Some("shm") => PortKind::Shm,
            Some("udp") => PortKind::Udp,
            Some(other) => return Err(bad("IRNIC_PORT", other, "expected auto, shm or udp".into())),
        };
        let addresses = get("IRNIC_ADDRESSES").unwrap_or_default();
        let addresses = addresses
            .split(',')
            .filter(|a| !a.is_empty())
            .map(|a| {
                a.trim()
                    .parse()
                    .map_err(|_| bad("IRNIC_ADDRESSES", a, "expected IP addresses with commas between".into()))
            })
            .collect::<Result<Vec<IpAddr>, _>>()?;
        let mtu = get("IRNIC_MTU")
            .map(|m| {
                let mtu = m.parse().ok().and_then(Mtu::from_bytes);
                mtu.ok_or_else(|| bad("IRNIC_MTU", &m, "expected 256, 512, 1024, 2048 or 4096".into()))
            })
            .transpose()?;
        let seed = get("IRNIC_SEED").unwrap_or_else(|| "1".into());
        let seed = seed.parse().map_err(|_| bad("IRNIC_SEED", &seed, "expected a number".into()))?;
        Ok(Config {
            devices: vec![DeviceConfig {
                name: get("IRNIC_DEVICE").unwrap_or_else(|| "irnic0".into()),
                interface: get("IRNIC_INTERFACE"),
                addresses,
                port,
                mtu,
                rate: None,
                transport,
                impair,
                seed,
                pcap: get("IRNIC_PCAP").map(PathBuf::from),
            }],
        })
    }
}
