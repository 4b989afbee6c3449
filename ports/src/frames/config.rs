//! The configuration string of a frame port: `dgram:local=A,remote=B,vlan=5`.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use irnic_units::keys::{Key, Value, ValueError, pairs};

use super::ethernet::Mac;

/// Longest path of a unix socket, in bytes (unix(7)).
const MAX_PATH: usize = 107;

/// The link that carries packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// A packet socket on this network interface (AF_PACKET). Needs CAP_NET_RAW.
    Packet(String),
    /// The TAP device of this name, with the kernel as the other station. If it does not exist, it is created for as
    /// long as the port is open, which needs CAP_NET_ADMIN.
    Tap(String),
    /// A unix datagram socket at `local`, whose peer is at `remote`: one datagram is one packet, as in QEMU's `-netdev
    /// dgram`. Needs no privileges.
    Dgram {
        /// Path of the port's own socket.
        local: PathBuf,
        /// Path of the peer's socket.
        remote: PathBuf,
    },
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Carrier::Packet(interface) => write!(f, "packet:{interface}"),
            Carrier::Tap(name) => write!(f, "tap:{name}"),
            Carrier::Dgram { local, remote } => {
                write!(f, "dgram:local={},remote={}", local.display(), remote.display())
            }
        }
    }
}

/// A frame port as configured by users. Parses from, and formats as, a carrier and parameters: `packet:eth0`,
/// `tap:tap0,vlan=5`, `dgram:local=/tmp/a,remote=/tmp/b,mac=02:00:00:00:00:01,dscp=46`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FrameSpec {
    /// The carrier.
    pub carrier: Carrier,
    /// Link-layer address. Default: [`Mac::derived`] from the first IP address.
    pub mac: Option<Mac>,
    /// VLAN identifier, 1 to 4094. If set, packets are sent with its tag and only those with it are received; the tag's
    /// priority is the upper three bits of the traffic class. Default: none.
    pub vlan: Option<u16>,
    /// DSCP, 0 to 63, of frames whose traffic class sets none. Default: 0.
    pub dscp: u8,
}

/// All forms of a configuration string, for messages.
const EXPECTED: &str = "packet:INTERFACE, tap:NAME or dgram:local=PATH,remote=PATH, then ,mac=ADDRESS ,vlan=ID ,dscp=N";

impl FrameSpec {
    /// Returns the configuration of a port with a carrier and the default parameters.
    pub fn new(carrier: Carrier) -> FrameSpec {
        FrameSpec { carrier, mac: None, vlan: None, dscp: 0 }
    }

    /// Returns the configuration with another link-layer address.
    #[must_use]
    pub fn with_mac(self, mac: Option<Mac>) -> FrameSpec {
        FrameSpec { mac, ..self }
    }

    /// Returns the configuration with another VLAN.
    #[must_use]
    pub fn with_vlan(self, vlan: Option<u16>) -> FrameSpec {
        FrameSpec { vlan, ..self }
    }

    /// Returns the configuration with another DSCP.
    #[must_use]
    pub fn with_dscp(self, dscp: u8) -> FrameSpec {
        FrameSpec { dscp, ..self }
    }

    /// Returns the link-layer address of a port with these IP addresses.
    pub fn mac_for(&self, addresses: &[IpAddr]) -> Mac {
        self.mac.unwrap_or_else(|| addresses.first().map_or(Mac::default(), |a| Mac::derived(*a)))
    }
}

impl fmt::Display for FrameSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.carrier)?;
        if let Some(mac) = self.mac {
            write!(f, ",mac={mac}")?;
        }
        if let Some(vlan) = self.vlan {
            write!(f, ",vlan={vlan}")?;
        }
        if self.dscp != 0 {
            write!(f, ",dscp={}", self.dscp)?;
        }
        Ok(())
    }
}

/// Why a configuration string is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseFrameSpecError {
    /// It names no carrier.
    #[error("expected {EXPECTED}")]
    Carrier,
    /// The name of an interface is empty, too long, or contains invalid characters.
    #[error("{0:?} is no name of a network interface: expected 1 to 15 characters without '/' and blanks")]
    Interface(String),
    /// A part is not a parameter.
    #[error("{0:?} is no parameter: expected {1}, each as KEY=VALUE")]
    Parameter(String, &'static str),
    /// A parameter is given twice.
    #[error("{0} is given twice")]
    Twice(String),
    /// A socket path is missing.
    #[error("{0}= is missing: expected dgram:local=PATH,remote=PATH")]
    Missing(&'static str),
    /// Both paths are the same.
    #[error("local and remote are the same path: expected the peer's own socket as remote")]
    SamePath,
    /// A value is invalid.
    #[error("{0}")]
    Value(ValueError),
}

/// The parameters as parsed.
#[derive(Default)]
struct Parameters {
    local: Option<PathBuf>,
    remote: Option<PathBuf>,
    mac: Option<Mac>,
    vlan: Option<u16>,
    dscp: u8,
}

/// All parameters. The paths, valid only for `dgram`, come first.
const KEYS: [Key<Parameters>; 5] = [
    Key::new("local", |p, value| path(value).map(|path| p.local = Some(path))),
    Key::new("remote", |p, value| path(value).map(|path| p.remote = Some(path))),
    Key::new("mac", |p, value| {
        let mac = value.text.parse::<Mac>().map_err(|e| value.refuse(e))?;
        if !mac.is_unicast() {
            return Err(value.wrong("the address of one station: not zero, and an even first byte"));
        }
        p.mac = Some(mac);
        Ok(())
    }),
    Key::new("vlan", |p, value| value.number(1..=4094, "a VLAN identifier, 1 to 4094").map(|id| p.vlan = Some(id))),
    Key::new("dscp", |p, value| value.number(0..=63, "a DSCP, 0 to 63").map(|dscp| p.dscp = dscp)),
];

/// Parses the path of a socket, made independent of the working directory.
fn path(value: &Value<'_>) -> Result<PathBuf, ValueError> {
    let wrong = || value.wrong(format_args!("the path of a socket, at most {MAX_PATH} bytes"));
    let path = std::path::absolute(Path::new(value.text)).map_err(|_| wrong())?;
    if value.text.ends_with('/') || path.as_os_str().len() > MAX_PATH || value.text.contains('\0') {
        return Err(wrong());
    }
    Ok(path)
}

impl Parameters {
    fn read(&mut self, text: &str, keys: &[Key<Parameters>], names: &'static str) -> Result<(), ParseFrameSpecError> {
        let mut seen: Vec<&str> = Vec::new();
        for value in pairs(text) {
            let unknown = |part: &str| ParseFrameSpecError::Parameter(part.to_owned(), names);
            let value = value.map_err(unknown)?;
            let key = keys.iter().find(|k| k.name == value.key).ok_or_else(|| unknown(value.key))?;
            if seen.contains(&key.name) {
                return Err(ParseFrameSpecError::Twice(key.name.to_owned()));
            }
            seen.push(key.name);
            (key.set)(self, &value).map_err(ParseFrameSpecError::Value)?;
        }
        Ok(())
    }
}

fn interface(name: &str) -> Result<String, ParseFrameSpecError> {
    let fine = !name.is_empty() && name.len() < libc::IFNAMSIZ && !name.contains(|c: char| c == '/' || c <= ' ');
    if fine { Ok(name.to_owned()) } else { Err(ParseFrameSpecError::Interface(name.to_owned())) }
}

impl FromStr for FrameSpec {
    type Err = ParseFrameSpecError;

    fn from_str(text: &str) -> Result<FrameSpec, ParseFrameSpecError> {
        let (kind, rest) = text.split_once(':').ok_or(ParseFrameSpecError::Carrier)?;
        let mut parameters = Parameters::default();
        let carrier = match kind {
            "packet" | "tap" => {
                let (name, rest) = rest.split_once(',').map_or((rest, None), |(name, rest)| (name, Some(rest)));
                if let Some(rest) = rest {
                    parameters.read(rest, &KEYS[2..], "mac, vlan or dscp")?;
                }
                let name = interface(name.trim())?;
                if kind == "tap" { Carrier::Tap(name) } else { Carrier::Packet(name) }
            }
            "dgram" => {
                parameters.read(rest, &KEYS, "local, remote, mac, vlan or dscp")?;
                let local = parameters.local.take().ok_or(ParseFrameSpecError::Missing("local"))?;
                let remote = parameters.remote.take().ok_or(ParseFrameSpecError::Missing("remote"))?;
                if local == remote {
                    return Err(ParseFrameSpecError::SamePath);
                }
                Carrier::Dgram { local, remote }
            }
            _ => return Err(ParseFrameSpecError::Carrier),
        };
        let Parameters { mac, vlan, dscp, .. } = parameters;
        Ok(FrameSpec { carrier, mac, vlan, dscp })
    }
}

/// Configuration of a frame port. [`FrameConfig::new`] makes one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FrameConfig {
    /// Carrier and parameters.
    pub spec: FrameSpec,
    /// IP addresses of the station. No other station on the link, the kernel included, may have any of them.
    pub addresses: Vec<IpAddr>,
    /// Socket buffer to request, in bytes per direction. Default: 8 MiB.
    pub socket_buffer: usize,
}

impl FrameConfig {
    /// Returns the default configuration of a station.
    pub fn new(spec: FrameSpec, addresses: Vec<IpAddr>) -> FrameConfig {
        FrameConfig { spec, addresses, socket_buffer: 8 << 20 }
    }

    /// Returns the configuration with another size of the socket buffers to request, in bytes per direction.
    #[must_use]
    pub fn with_socket_buffer(self, socket_buffer: usize) -> FrameConfig {
        FrameConfig { socket_buffer, ..self }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn descriptions_read_as_they_are_written() {
        for text in [
            "packet:eth0",
            "tap:tap0,vlan=5",
            "dgram:local=/tmp/a,remote=/tmp/b",
            "dgram:local=/tmp/a,remote=/tmp/b,mac=02:00:00:00:00:01,vlan=4094,dscp=46",
        ] {
            let spec: FrameSpec = text.parse().unwrap();
            assert_eq!(spec.to_string(), text);
        }
        let spec: FrameSpec = "dgram:remote=b, local=a".parse().unwrap();
        let Carrier::Dgram { local, remote } = spec.carrier else { panic!("{spec}") };
        let here = std::env::current_dir().unwrap();
        assert_eq!((local, remote), (here.join("a"), here.join("b")), "relative paths are made absolute");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let long = format!("dgram:local=/{},remote=b", "a".repeat(MAX_PATH));
        for (text, error) in [
            ("", "expected packet:INTERFACE, tap:NAME or dgram:"),
            ("eth0", "expected packet:INTERFACE"),
            ("raw:eth0", "expected packet:INTERFACE"),
            ("packet:", "\"\" is no name of a network interface"),
            ("tap:a-name-of-sixteen", "\"a-name-of-sixteen\" is no name"),
            ("packet:eth0,", "\"\" is no parameter: expected mac, vlan or dscp, each as KEY=VALUE"),
            ("packet:eth0,local=/a", "\"local\" is no parameter: expected mac, vlan or dscp"),
            ("packet:eth0,vlan=0", "vlan=0: expected a VLAN identifier, 1 to 4094"),
            ("packet:eth0,vlan=4095", "vlan=4095: expected"),
            ("tap:t,dscp=64", "dscp=64: expected a DSCP, 0 to 63"),
            ("tap:t,mac=01:00:00:00:00:01", "mac=01:00:00:00:00:01: expected the address of one station"),
            ("tap:t,mac=1:2", "mac=1:2: expected six bytes such as"),
            ("tap:t,vlan=1,vlan=2", "vlan is given twice"),
            ("dgram:local=/a", "remote= is missing"),
            ("dgram:remote=/a", "local= is missing"),
            ("dgram:local=/a,remote=/a", "local and remote are the same path"),
            ("dgram:/a,/b", "\"/a\" is no parameter: expected local, remote, mac, vlan or dscp"),
            ("dgram:local=,remote=/b", "local=: expected the path of a socket"),
            (&long, "local=/"),
        ] {
            let found = text.parse::<FrameSpec>().unwrap_err().to_string();
            assert!(found.starts_with(error), "{text:?}: {found}");
        }
    }

    #[test]
    fn the_link_layer_address_follows_from_the_first_ip_address_unless_given() {
        let spec: FrameSpec = "tap:t".parse().unwrap();
        let addresses = ["10.0.0.2", "fd77::2"].map(|a| a.parse().unwrap());
        assert_eq!(spec.mac_for(&addresses), Mac([2, 0, 10, 0, 0, 2]));
        let given = Mac([0x52, 0x54, 0, 0, 0, 1]);
        assert_eq!(spec.with_mac(Some(given)).mac_for(&addresses), given);
    }
}
