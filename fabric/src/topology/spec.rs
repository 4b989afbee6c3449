//! Topologies in text form.
//!
//! | | keys and their defaults |
//! |---|---|
//! | `star` | `hosts=16`, `rate=40G`, `delay=2us` |
//! | `dumbbell` | `left=8`, `right=8`, `rate=40G`, `bottleneck=` rate, `delay=2us` |
//! | `leaf-spine` | `leaves=8`, `spines=8`, `hosts=16` for each leaf, `rate=100G`, `uplink=` rate, `delay=1us` |
//! | `ring` | `switches=3`, `hosts=1` at each, `rate=40G`, `delay=2us` |
//! | `fat-tree` | `k=6`, `rate=40G`, `delay=2us`, `oversubscription=1`: multiple of the hosts below the same switches |
//! | `internet2` | UPS's wide area ([`Topology::internet2`]): `rate=1G` of a host that core links are dimensioned for, `access=` rate, `host=` ten times as much, `core-delay=10ms`, `delay=1ms`, `edge=on` |
//! | `file:PATH`, or a path that ends in `.txt` or has a `/` | a file of the ns-3 RDMA simulators ([`ns3`]) |
//!
//! All but files take `loss=0`, the probability that a link loses a packet, such as `1%`.
//!
//! The fat-tree's defaults are IRN's (dissertation §4.3.1), which the small ones share; those of leaf and spine are
//! ConWeave's `leaf_spine_128_100G_OS2`.

use std::path::Path;
use std::str::FromStr;

use irnic_units as units;
use irnic_units::keys::words;

use super::build::most_times;
use super::{Internet2, MAX_ARITY, Topology, ns3};
use crate::input::{Error, Keys};

/// 40 Gbit/s, IRN §4.3.1.
const RATE: u64 = 40_000_000_000;
/// 2 µs, IRN §4.3.1.
const DELAY: u64 = 2_000;
/// 100 Gbit/s and 1 µs, ConWeave's leaf and spine.
const LEAF_SPINE: (u64, u64) = (100_000_000_000, 1_000);
/// Maximum number of ports of one switch, and of hosts of one description.
const MAX_PORTS: u32 = 65_535;

/// Builds a topology from the keys of its description.
type Build = fn(&str) -> Result<Topology, Error>;

const KINDS: [(&str, Build); 6] = [
    ("star", star),
    ("dumbbell", dumbbell),
    ("leaf-spine", leaf_spine),
    ("ring", ring),
    ("fat-tree", fat_tree),
    ("internet2", internet2),
];

/// Returns the names of the topologies that are built from a description.
pub fn names() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|(name, _)| *name)
}

impl FromStr for Topology {
    type Err = Error;

    /// Parses a description ([`crate::topology::spec`]), and reads the file if it names one.
    fn from_str(text: &str) -> Result<Topology, Error> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        if let Some((_, build)) = KINDS.iter().find(|(name, _)| *name == kind) {
            return build(rest);
        }
        match kind {
            "file" => ns3::read(Path::new(rest)),
            _ if text.contains('/') || text.ends_with(".txt") => ns3::read(Path::new(text)),
            _ => Err(Error::Name {
                what: "topology",
                name: kind.to_owned(),
                known: format!("{}, file:PATH", words(&KINDS).join(", ")),
            }),
        }
    }
}

/// The rate of links, bit/s.
fn rate(keys: &Keys<'_>, key: &str, default: u64) -> Result<u64, Error> {
    let rate = keys.rate(key, default)?;
    let slow = keys.text(key).and_then(|text| units::too_slow(text, rate));
    slow.map_or(Ok(rate), |expected| Err(keys.wrong(key, expected)))
}

/// Gives all links the requested loss.
fn with_loss(keys: &Keys<'_>, mut topology: Topology) -> Result<Topology, Error> {
    if let Some(text) = keys.text("loss") {
        let read = |text: &str| text.parse::<f64>().ok();
        let share = text.strip_suffix('%').map_or_else(|| read(text), |percent| Some(read(percent)? / 100.0));
        let loss = share.filter(|loss| (0.0..1.0).contains(loss));
        let loss = loss.ok_or_else(|| keys.wrong("loss", "a share below 1 of the packets on each link: 1% or 0.01"))?;
        topology.links.iter_mut().for_each(|link| link.loss = loss);
    }
    Ok(topology)
}

fn star(text: &str) -> Result<Topology, Error> {
    let keys = Keys::parse("star", text, &["hosts", "rate", "delay", "loss"])?;
    let hosts = keys.number("hosts", 16, 2..=MAX_PORTS)?;
    with_loss(&keys, Topology::star(hosts, rate(&keys, "rate", RATE)?, keys.time("delay", DELAY)?))
}

fn dumbbell(text: &str) -> Result<Topology, Error> {
    let keys = Keys::parse("dumbbell", text, &["left", "right", "rate", "bottleneck", "delay", "loss"])?;
    let left = keys.number("left", 8, 1..=MAX_PORTS - 1)?;
    let right = keys.number("right", 8, 1..=MAX_PORTS - 1)?;
    let host_rate = rate(&keys, "rate", RATE)?;
    let bottleneck = rate(&keys, "bottleneck", host_rate)?;
    with_loss(&keys, Topology::dumbbell(left, right, host_rate, bottleneck, keys.time("delay", DELAY)?))
}

fn leaf_spine(text: &str) -> Result<Topology, Error> {
    let keys = Keys::parse("leaf-spine", text, &["leaves", "spines", "hosts", "rate", "uplink", "delay", "loss"])?;
    let leaves = keys.number("leaves", 8, 1..=4096)?;
    let spines = keys.number("spines", 8, 1..=4096)?;
    let hosts = keys.number("hosts", 16, 1..=4096)?;
    if leaves * hosts > MAX_PORTS {
        let key = if keys.text("hosts").is_some() { "hosts" } else { "leaves" };
        return Err(keys.wrong(key, format!("at most {MAX_PORTS} hosts in all")));
    }
    let host_rate = rate(&keys, "rate", LEAF_SPINE.0)?;
    let (uplink, delay) = (rate(&keys, "uplink", host_rate)?, keys.time("delay", LEAF_SPINE.1)?);
    with_loss(&keys, Topology::leaf_spine(leaves, spines, hosts, host_rate, uplink, delay))
}

fn ring(text: &str) -> Result<Topology, Error> {
    let keys = Keys::parse("ring", text, &["switches", "hosts", "rate", "delay", "loss"])?;
    let switches = keys.number("switches", 3, 3..=4096)?;
    let hosts = keys.number("hosts", 1, 1..=4096)?;
    if switches * hosts > MAX_PORTS {
        let key = if keys.text("hosts").is_some() { "hosts" } else { "switches" };
        return Err(keys.wrong(key, format!("at most {MAX_PORTS} hosts in all")));
    }
    with_loss(&keys, Topology::ring(switches, hosts, rate(&keys, "rate", RATE)?, keys.time("delay", DELAY)?))
}

fn fat_tree(text: &str) -> Result<Topology, Error> {
    let keys = Keys::parse("fat-tree", text, &["k", "rate", "delay", "oversubscription", "loss"])?;
    let k = keys.number("k", 6, 2..=MAX_ARITY)?;
    if !k.is_multiple_of(2) {
        return Err(keys.wrong("k", "an even number of ports"));
    }
    let times = keys.number("oversubscription", 1, 1..=most_times(k))?;
    let (rate, delay) = (rate(&keys, "rate", RATE)?, keys.time("delay", DELAY)?);
    with_loss(&keys, Topology::oversubscribed_fat_tree(k, times, rate, delay))
}

fn internet2(text: &str) -> Result<Topology, Error> {
    let keys = Keys::parse("internet2", text, &["rate", "access", "host", "core-delay", "delay", "edge", "loss"])?;
    let default = Internet2::default();
    let made_for = rate(&keys, "rate", default.rate)?;
    let edge = match keys.text("edge") {
        None | Some("on") => true,
        Some("off") => false,
        Some(_) => return Err(keys.wrong("edge", "on or off")),
    };
    if !edge && keys.text("host").is_some() {
        return Err(keys.wrong("host", "edge=on: without edges hosts are at cores, by access"));
    }
    let net = Internet2 {
        rate: made_for,
        access: rate(&keys, "access", made_for)?,
        host: rate(&keys, "host", made_for.saturating_mul(10))?,
        core_delay: keys.time("core-delay", default.core_delay)?,
        delay: keys.time("delay", default.delay)?,
        edge,
    };
    with_loss(&keys, Topology::internet2(&net))
}

#[cfg(test)]
mod tests {
    use super::*;

    const G: u64 = 1_000_000_000;

    #[test]
    fn descriptions_build_what_they_say() {
        for (text, built) in [
            ("fat-tree", Topology::fat_tree(6, 40 * G, 2_000)),
            ("fat-tree:k=8,rate=10G,delay=500ns", Topology::fat_tree(8, 10 * G, 500)),
            ("fat-tree:k=4,oversubscription=3,rate=10G", Topology::oversubscribed_fat_tree(4, 3, 10 * G, 2_000)),
            ("fat-tree:oversubscription=1", Topology::fat_tree(6, 40 * G, 2_000)),
            ("leaf-spine", Topology::leaf_spine(8, 8, 16, 100 * G, 100 * G, 1_000)),
            (
                "leaf-spine:leaves=2,spines=3,hosts=4,rate=25G,uplink=100G,delay=1us",
                Topology::leaf_spine(2, 3, 4, 25 * G, 100 * G, 1_000),
            ),
            ("star:hosts=3", Topology::star(3, 40 * G, 2_000)),
            ("dumbbell:left=1,right=2,rate=4G", Topology::dumbbell(1, 2, 4 * G, 4 * G, 2_000)),
            ("ring", Topology::ring(3, 1, 40 * G, 2_000)),
            ("ring:switches=5,hosts=2,rate=10G,delay=1us", Topology::ring(5, 2, 10 * G, 1_000)),
            ("internet2", Topology::internet2(&Internet2::default())),
            (
                "internet2:edge=off,access=2G,delay=1us",
                Topology::internet2(&Internet2 { edge: false, access: 2 * G, delay: 1_000, ..Internet2::default() }),
            ),
            ("dumbbell:bottleneck=4G", Topology::dumbbell(8, 8, 40 * G, 4 * G, 2_000)),
        ] {
            assert_eq!(text.parse::<Topology>().unwrap(), built, "{text}");
        }
    }

    #[test]
    fn links_lose_what_they_are_said_to() {
        for (text, loss) in [
            ("star:loss=1%", 0.01),
            ("dumbbell:loss=0.001", 0.001),
            ("leaf-spine:loss=0", 0.0),
            ("fat-tree:k=4,loss=50%", 0.5),
        ] {
            let topology: Topology = text.parse().unwrap();
            assert!(topology.links.iter().all(|link| link.loss == loss), "{text}");
        }
    }

    #[test]
    fn files_are_named_with_and_without_file() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/topologies/fat_k4_100G_OS2.txt");
        let named: Topology = format!("file:{path}").parse().unwrap();
        assert_eq!(path.parse::<Topology>().unwrap(), named);
        assert_eq!(named.hosts, 32);
    }

    #[test]
    fn errors_say_what_there_is() {
        for (text, said) in [
            (
                "torus",
                "unknown topology `torus`; known are star, dumbbell, leaf-spine, ring, fat-tree, internet2, file:PATH",
            ),
            ("ring:switches=2", "ring: switches=2: expected a number from 3 to 4096"),
            ("fat-tree:arity=6", "fat-tree: unknown key `arity`; it takes k, rate, delay, oversubscription, loss"),
            ("fat-tree:k=32,oversubscription=9", "fat-tree: oversubscription=9: expected a number from 1 to 8"),
            ("fat-tree:oversubscription=0.5", "fat-tree: oversubscription=0.5: expected a number from 1 to 1213"),
            ("internet2:edge=2", "internet2: edge=2: expected on or off"),
            ("fat-tree:k=5", "fat-tree: k=5: expected an even number of ports"),
            ("fat-tree:k=66", "fat-tree: k=66: expected a number from 2 to 64"),
            ("star:hosts=1", "star: hosts=1: expected a number from 2 to 65535"),
            ("leaf-spine:hosts=4096,leaves=4096", "leaf-spine: hosts=4096: expected at most 65535 hosts in all"),
            ("star:rate=25", "star: rate=25: expected a rate of 1M or more, 25 being 25 bit/s; did you mean 25G?"),
            (
                "leaf-spine:uplink=25kbit",
                "leaf-spine: uplink=25kbit: expected a rate of 1M or more, 25kbit being 25000 bit/s",
            ),
            ("star:loss=1", "star: loss=1: expected a share below 1 of the packets on each link: 1% or 0.01"),
            ("star:delay=2", "star: delay=2: expected a time such as 2us, 500ns or 1.5ms, up to 3600s"),
        ] {
            assert_eq!(text.parse::<Topology>().unwrap_err().to_string(), said, "{text}");
        }
        assert!("missing.txt".parse::<Topology>().unwrap_err().to_string().starts_with("missing.txt: "));
    }
}
