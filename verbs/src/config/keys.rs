//! All settings: name, variable, values, default and meaning of each. Help and docs/configuration.md are generated from
//! this.

use irnic_transports::config::ConfigError as TransportError;

use irnic_units::keys::{Value, ValueError};

use super::value;
use super::{Config, DeviceConfig};

/// Target of a setting.
pub(super) enum Set {
    /// A device.
    Device(fn(&mut DeviceConfig, &Value<'_>) -> Result<(), ValueError>),
    /// A parameter of a device's transport, by its name in the transport.
    Transport(&'static str),
    /// The process.
    Process(fn(&mut Config, &Value<'_>) -> Result<(), ValueError>),
}

/// A setting.
pub struct Key {
    /// Name in `irnic.toml`.
    pub name: &'static str,
    /// Environment variable.
    pub variable: &'static str,
    /// Valid values.
    pub values: &'static str,
    /// Default if it is not set.
    pub default: &'static str,
    /// Meaning.
    pub about: &'static str,
    pub(super) set: Set,
}

impl Key {
    /// Returns whether the setting belongs to a device, not to the process.
    pub(super) fn is_of_device(&self) -> bool {
        !matches!(self.set, Set::Process(_))
    }

    /// Returns whether the setting is a parameter of the transport.
    pub(super) fn is_of_transport(&self) -> bool {
        matches!(self.set, Set::Transport(_))
    }
}

/// A device's setting, with a parser that names the field.
macro_rules! field {
    ($field:ident = $parse:path) => {
        Set::Device(|device, value| {
            device.$field = $parse(value)?.into();
            Ok(())
        })
    };
}

/// Returns the setting of a transport's parameter.
const fn parameter(
    name: &'static str,
    variable: &'static str,
    values: &'static str,
    default: &'static str,
    about: &'static str,
) -> Key {
    Key { name, variable, values, default, about, set: Set::Transport(name) }
}

/// All settings. Later ones depend on earlier ones: a transport's parameters follow it.
pub static KEYS: [Key; 43] = [
    Key {
        name: "name",
        variable: "IRNIC_DEVICE",
        values: "letters, digits, `-`, `_`, `.`",
        default: "`irnic0`, `irnic1`, …",
        about: "Device name. If the file has several devices, the variable selects one",
        set: field!(name = value::name),
    },
    Key {
        name: "interface",
        variable: "IRNIC_INTERFACE",
        values: "a network interface",
        default: "the first that is up",
        about: "Network interface whose addresses the device uses",
        set: field!(interface = value::interface),
    },
    Key {
        name: "addresses",
        variable: "IRNIC_ADDRESSES",
        values: "IP addresses",
        default: "the interface's",
        about: "Addresses of the GID table, in this order",
        set: field!(addresses = value::addresses),
    },
    Key {
        name: "port",
        variable: "IRNIC_PORT",
        values: "`auto`, `shm`, `udp`, `frames:packet:IFACE`, `frames:tap:NAME`, `frames:dgram:local=PATH,remote=PATH`; `frames` with \
                 `,mac=ADDRESS`, `,vlan=ID`, `,dscp=N`; `lab:SOCKET[,host=N]`",
        default: "`auto`",
        about: "Carrier of packets: `auto` uses shared memory within the host and UDP to other hosts; `frames` is an Ethernet on \
                which the device has its own addresses (frames.md); `lab` is an emulated network (lab.md)",
        set: field!(port = value::port),
    },
    Key {
        name: "mtu",
        variable: "IRNIC_MTU",
        values: "`256`, `512`, `1024`, `2048`, `4096`",
        default: "what the interface carries",
        about: "The largest path MTU, bytes",
        set: field!(mtu = value::mtu),
    },
    Key {
        name: "rate",
        variable: "IRNIC_RATE",
        values: "`1M` to `1T`, such as `40G` or `2.5gbit`",
        default: "not limited, reported as 100G",
        about: "Link rate, bit/s: reported to applications, and the limit of what a process sends",
        set: field!(rate = value::rate),
    },
    Key {
        name: "transport",
        variable: "IRNIC_TRANSPORT",
        values: "`roce`, `irn`, `irn-go-back-n`, `irn-no-bdp`, `irn-no-sack`, `auto`, `iwarp`, `ndp`, then `,PARAMETER=VALUE`…",
        default: "`auto`",
        about: "Transport of RC queue pairs (transports.md). It resets the parameters below that come from a source of lower precedence",
        set: Set::Transport("transport"),
    },
    parameter(
        "recovery",
        "IRNIC_RECOVERY",
        "`go-back-n`, `selective`, `selective-no-sack`",
        "the transport's",
        "Packets retransmitted after a loss",
    ),
    parameter(
        "cap",
        "IRNIC_CAP",
        "`none`, `1` to `65536`",
        "the transport's",
        "Maximum number of packets in flight (BDP-FC)",
    ),
    parameter("window", "IRNIC_WINDOW", "a power of two, `64` to `65536`", "`4096`", "Packets tracked out of order"),
    parameter(
        "rto",
        "IRNIC_RTO",
        "a time, `local-ack-timeout`, `rfc6298`",
        "the transport's",
        "One fixed retransmission timeout, or TCP's",
    ),
    parameter(
        "rto-low",
        "IRNIC_RTO_LOW",
        "a time",
        "the transport's",
        "RTO_low: timeout while at most `n` are in flight",
    ),
    parameter("rto-high", "IRNIC_RTO_HIGH", "a time", "the transport's", "RTO_high: timeout while more than `n` are"),
    parameter(
        "n",
        "IRNIC_N",
        "`0` to `65536`",
        "`3`",
        "Packets in flight up to which RTO_low applies. Any of these three selects IRN's two timeouts",
    ),
    parameter(
        "rto-min",
        "IRNIC_RTO_MIN",
        "a time",
        "`250us`",
        "Minimum of the timeout that follows the measured round trip",
    ),
    parameter("rto-max", "IRNIC_RTO_MAX", "a time", "`64ms`", "Maximum of that timeout"),
    parameter(
        "nack-threshold",
        "IRNIC_NACK_THRESHOLD",
        "`1` to `65536`",
        "`1`",
        "NACKs without progress before loss recovery starts",
    ),
    parameter(
        "retransmit-delay",
        "IRNIC_RETRANSMIT_DELAY",
        "`0`, a time up to `1s`",
        "`0`",
        "Time from when a packet is detected as lost to when it may be sent again",
    ),
    parameter(
        "evidence",
        "IRNIC_EVIDENCE",
        "`on`, `off`",
        "`on`",
        "Whether selective recovery requires evidence of a loss before it retransmits a packet",
    ),
    parameter(
        "placement",
        "IRNIC_PLACEMENT",
        "`any`, `watched`, `in-order`",
        "`watched`",
        "What is placed at once of packets out of order: everything, everything but what programs poll on in memory, nothing",
    ),
    parameter(
        "patience",
        "IRNIC_PATIENCE",
        "`iba`, time",
        "`2s`",
        "How long a peer on another host may be silent before it counts as dead, if its retries take less time; a peer on this \
         host is waited for while its process exists and does not run. `iba`: only the retries count",
    ),
    parameter(
        "ack-every",
        "IRNIC_ACK_EVERY",
        "`1` to `65536`, `none`",
        "`16`",
        "Packets of a plain RoCE message between requests for an acknowledgement. `none`: the last packet alone requests one",
    ),
    parameter("credits", "IRNIC_CREDITS", "`on`, `off`", "`on`", "Whether acknowledgements carry end-to-end credits"),
    parameter(
        "cc",
        "IRNIC_CC",
        "`none`, `timely`, `dcqcn`, …, with parameters (congestion.md)",
        "`none`",
        "Congestion control, such as `timely,t-low=30us`",
    ),
    parameter("line-rate", "IRNIC_LINE_RATE", "a rate", "`40G`", "Link rate at which congestion control starts"),
    parameter(
        "base-rtt",
        "IRNIC_BASE_RTT",
        "a time",
        "`24us`",
        "Round trip of an empty network, for congestion control",
    ),
    parameter(
        "ack-priority",
        "IRNIC_ACK_PRIORITY",
        "`same`, or 0 to 7",
        "`same`",
        "Priority of acknowledgements and congestion notifications (the upper three bits of the traffic class)",
    ),
    parameter(
        "overlap",
        "IRNIC_OVERLAP",
        "`application`, `fence`",
        "`application`",
        "What orders requests to overlapping remote memory, which IRN places in the order of arrival: the application, or a fence \
         on each request that could overwrite an outstanding one",
    ),
    Key {
        name: "impair",
        variable: "IRNIC_IMPAIR",
        values: "words of `tc netem` (impairments.md)",
        default: "nothing",
        about: "Impairments of the emulated network, such as `loss 1% delay 50us`",
        set: Set::Device(|device, value| {
            let refuse = |e: irnic_ports::impair::ParseError| value.refuse(e);
            device.impair = value.text.parse().map_err(refuse)?;
            Ok(())
        }),
    },
    Key {
        name: "seed",
        variable: "IRNIC_SEED",
        values: "a number",
        default: "`1`",
        about: "Seed of the impairments",
        set: field!(seed = value::seed),
    },
    Key {
        name: "pcap",
        variable: "IRNIC_PCAP",
        values: "a file",
        default: "none",
        about: "Records packets as pcapng. `%p` is the process id; without it, a process that finds a capture there adds its id",
        set: field!(pcap = value::output),
    },
    Key {
        name: "segmentation",
        variable: "IRNIC_SEGMENTATION",
        values: "`auto`, `on`, `off`",
        default: "`auto`",
        about: "Packets that share a system call (UDP_SEGMENT): `auto` those for which IRN's format, IPv6 or a receiver on this host makes it safe, `on` all, `off` none. Over IPv4, peers other than irnic drop such packets",
        set: field!(segmentation = value::segmentation),
    },
    Key {
        name: "socket-buffer",
        variable: "IRNIC_SOCKET_BUFFER",
        values: "`64K` to `1G`",
        default: "`8M`",
        about: "Requested UDP socket buffer, bytes each way",
        set: field!(socket_buffer = value::socket_buffer),
    },
    Key {
        name: "ring",
        variable: "IRNIC_RING",
        values: "`128K` to `64M`",
        default: "`512K`",
        about: "Ring to another process of the host, bytes, rounded to a power of two",
        set: field!(ring = value::ring),
    },
    Key {
        name: "cross-memory",
        variable: "IRNIC_CROSS_MEMORY",
        values: "`auto`, `on`, `off`",
        default: "`auto`",
        about: "Payloads that a process of the host copies out of the sender's memory (process_vm_readv) instead of a ring, from messages of several packets: `auto` while copying into the ring is slow, as between cores without a common cache",
        set: field!(cross_memory = value::cross_memory),
    },
    Key {
        name: "spin",
        variable: "IRNIC_SPIN",
        values: "`auto`, `0`, or a time up to `1s`",
        default: "`auto`",
        about: "How long the background thread polls after the last packet before it sleeps. `auto`: up to 200 µs while packets arrive at shorter intervals and no other thread needs the core",
        set: field!(spin = value::spin),
    },
    Key {
        name: "units",
        variable: "IRNIC_UNITS",
        values: "`auto`, `1` to `16`",
        default: "`auto`",
        about: "Number of processing units, each with its own lock, that serve a process's threads (processes.md): `auto` one for each \
                thread with its own queue pairs and completion queues, up to the number of processors; a number: at most this many, \
                assigned to completion queues in turn. One with `frames`, `impair`, `rate` or `pcap`",
        set: field!(units = value::units),
    },
    Key {
        name: "gid-layout",
        variable: "IRNIC_GID_LAYOUT",
        values: "`dense`, `mlx5`",
        default: "`dense`",
        about: "Indices of the addresses in the GID table: from 0 on, or as with mlx5, whose indices 1, 3, 5 and so on are RoCE v2: the \
                link-local IPv6 address at 1, the others from 3 on",
        set: field!(gid_layout = value::gid_layout),
    },
    Key {
        name: "clock",
        variable: "IRNIC_CLOCK",
        values: "`1Hz` to `10GHz`, then `,drift=PPM`, `,offset=TICKS`",
        default: "`156.25MHz`",
        about: "The NIC's clock, which stamps completions: nominal frequency, drift in parts per million, and its value at the host's time 0",
        set: field!(clock = value::clock),
    },
    Key {
        name: "timestamps",
        variable: "IRNIC_TIMESTAMPS",
        values: "`poll`, `kernel`",
        default: "`poll`",
        about: "Arrival time of packets from UDP: when irnic polled, or when the kernel received them (SO_TIMESTAMPNS), which does not depend on when the process runs",
        set: field!(kernel_stamps = value::timestamps),
    },
    Key {
        name: "gpu",
        variable: "IRNIC_GPU",
        values: "`auto`, `on`, `off`",
        default: "`auto`",
        about: "Whether memory of GPUs can be registered (ai.md), if the application has loaded the GPU's driver. `on`: `--sysfs` also \
                shows the kernel module that programs look for, as `auto` does where the host has such a driver",
        set: field!(gpu = value::gpu),
    },
    Key {
        name: "stats",
        variable: "IRNIC_STATS",
        values: "`off`, `on`, a file",
        default: "`off`",
        about: "Statistics when the application ends: `on` as text to standard error, to a file as JSON (`%p` is the process id)",
        set: Set::Process(|config, value| {
            config.stats = value::stats(value)?;
            Ok(())
        }),
    },
    Key {
        name: "explain",
        variable: "IRNIC_EXPLAIN",
        values: "`on`, `off`",
        default: "`off`",
        about: "Print to standard error why a call was refused, each reason once: such as which attribute of ibv_modify_qp, and its valid values",
        set: Set::Process(|config, value| {
            config.explain = value::switch(value)?;
            Ok(())
        }),
    },
];

/// Variables that are not settings: name and meaning.
pub(super) const OTHER_VARIABLES: [(&str, &str); 7] = [
    ("IRNIC_CONFIG", "Settings file; else `./irnic.toml`, else `$XDG_CONFIG_HOME/irnic/irnic.toml` (`~/.config`)"),
    ("IRNIC_LAB_CONTROL", "Control socket of a lab, for `irnic ctl`; set by `irnic lab` (lab-faults.md)"),
    ("IRNIC_LAB", "Socket at which the lab of a process answers `irnic top`; set by `irnic lab` (lab-live.md)"),
    ("IRNIC_LAB_HOST", "Number of the lab host that a process belongs to (lab.md)"),
    ("IRNIC_LIBRARY", "Shared object that `irnic run` gives to applications, instead of the installed one"),
    ("IRNIC_PROGRAM_TIME", "Lab whose time programs see; set by `irnic lab --program-time lab` (lab.md)"),
    ("IRNIC_SYSFS", "Directory that replaces /sys and /dev; set by `irnic run --sysfs`"),
];

/// Returns the setting with a name.
pub fn key(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|k| k.name == name)
}

/// Returns the settings as the table of docs/configuration.md.
#[cfg(test)]
pub(super) fn markdown() -> String {
    let mut text = String::from("| key | variable | values | default | meaning |\n|---|---|---|---|---|\n");
    for k in &KEYS {
        text += &format!("| `{}` | `{}` | {} | {} | {}. |\n", k.name, k.variable, k.values, k.default, k.about);
    }
    text += "\n| other variable | meaning |\n|---|---|\n";
    for (name, about) in OTHER_VARIABLES {
        text += &format!("| `{name}` | {about}. |\n");
    }
    text
}

/// Returns the settings for a terminal: two lines each.
pub fn help() -> String {
    let mut text = String::new();
    for k in &KEYS {
        let plain = |t: &str| t.replace('`', "");
        text += &format!("  {:<15} {:<21} {} [default: {}]\n", k.name, k.variable, plain(k.values), plain(k.default));
        text += &format!("  {:<15} {}\n", "", plain(k.about));
    }
    for (name, about) in OTHER_VARIABLES {
        text += &format!("  {:<15} {:<21} {}\n", "", name, about.replace('`', ""));
    }
    text
}

/// Returns the error of a transport's parameter, without its name.
pub(super) fn why(error: &TransportError) -> String {
    match error {
        TransportError::Value(error) => error.why.to_string(),
        other => other.to_string(),
    }
}
