//! Keys of the network: topology, routes, links.

use irnic_units as units;
use irnic_units::keys::{Value, ValueError, words};

use super::key::Key;
use super::parse::parse;
use crate::experiment::checks;
use crate::sim::{Change, Detour, LinkChange, Routing};
use crate::topology::{self, Topology};

pub(super) static KEYS: [Key; 4] = [
    Key::new("topology", "SPEC|FILE", "Topology: a description or a file", |e, v| {
        parse(v).map(|topology| e.topology = topology)
    })
    .default("fat-tree:k=6,rate=40G,delay=2us")
    .words(|| topology::names().collect())
    .bare(),
    Key::new(
        "routing",
        "HOW",
        "Choice among equal-cost paths: ecmp, spray, random, source, static or lowest",
        |e, v| v.word(&ROUTING).map(|routing| e.routing = routing),
    )
    .default("ecmp")
    .words(|| words(&ROUTING)),
    Key::new(
        "detour",
        "NODE:DST=VIA",
        "Override the route to DST at NODE: via the neighbour VIA, even if other paths are shorter, as in s0:h2=s1. May \
         be repeated",
        |e, v| detours(v, &e.topology).map(|detours| e.detours = detours),
    )
    .joined(),
    Key::new(
        "link-event",
        "EVENT",
        "Change a link during the run: down:LINK@TIME, up:LINK@TIME or rate:LINK=RATE@TIME; LINK is a number or two \
         nodes, A-B. May be repeated",
        |e, v| link_events(v, &e.topology).map(|changes| e.changes = changes),
    )
    .joined(),
];

const ROUTING: [(&str, Routing); 6] = [
    ("ecmp", Routing::Ecmp),
    ("spray", Routing::Spray),
    ("random", Routing::Random),
    ("source", Routing::Source),
    ("static", Routing::Static),
    ("lowest", Routing::Lowest),
];

/// Parses `down:LINK@1ms`, `up:LINK@2ms` and `rate:LINK=10G@1ms`, separated by commas. A link is a number, counted from
/// 0 in the order of the topology, or its two nodes, `A-B`. `rate:A>B=10G@1ms` applies to one direction.
fn link_events(value: &Value<'_>, topology: &Topology) -> Result<Vec<LinkChange>, ValueError> {
    let mut changes = Vec::new();
    for event in value.text.split(',') {
        let expected = format!(
            "down:LINK@TIME, up:LINK@TIME or rate:LINK=RATE@TIME with a rate of 1M or more, LINK being a number below {} \
             or two nodes such as {}",
            topology.links.len(),
            topology.links.last().map_or_else(String::new, |l| format!("{}-{}", topology.id(l.a), topology.id(l.b))),
        );
        changes.push(link_event(event.trim(), topology).ok_or_else(|| value.wrong(expected))?);
    }
    changes.sort_by_key(|c| c.at);
    Ok(changes)
}

fn link_event(text: &str, topology: &Topology) -> Option<LinkChange> {
    let (what, at) = text.split_once('@')?;
    let (kind, link) = what.split_once(':')?;
    let node = |name: &str| topology.node_named(name);
    let (link, what) = match kind {
        "down" => (link, Change::Down),
        "up" => (link, Change::Up),
        "rate" => {
            let (link, rate) = link.split_once('=')?;
            let rate = checks::rate(rate)?;
            match link.split_once('>') {
                None => (link, Change::Rate(rate)),
                Some((from, _)) => (link, Change::RateFrom { node: node(from)?, rate }),
            }
        }
        _ => return None,
    };
    let link = link_named(&link.replacen('>', "-", 1), topology)?;
    Some(LinkChange { at: units::time(at)?, link, what })
}

/// Parses `NODE:DST=VIA`, separated by commas: the switch NODE forwards packets for the host DST, and for all behind
/// the same switch, to its neighbour VIA. Nodes are given by their ids, or by their names in results.
fn detours(value: &Value<'_>, topology: &Topology) -> Result<Vec<Detour>, ValueError> {
    let each = value.text.split(',').map(|text| detour(text.trim(), topology));
    let expected =
        "NODE:DST=VIA, such as s0:h2=s1: the switch NODE hands what is for the host DST to its neighbour VIA";
    each.collect::<Option<_>>().ok_or_else(|| value.wrong(expected))
}

fn detour(text: &str, topology: &Topology) -> Option<Detour> {
    let (node, rest) = text.split_once(':')?;
    let (dst, via) = rest.split_once('=')?;
    let node = topology.node_named(node).filter(|node| !topology.is_host(*node))?;
    let dst = topology.node_named(dst).filter(|dst| topology.is_host(*dst))?;
    let via = topology.node_named(via).filter(|via| !topology.is_host(*via))?;
    topology.ports(node).iter().any(|(_, peer)| *peer == via).then_some(Detour { node, dst, via })
}

/// Returns the number of a link, given by its number or its two nodes, `A-B`. Nodes are given by their ids, or by their
/// names in results, `h0` and `s0`.
pub fn link_named(name: &str, topology: &Topology) -> Option<u32> {
    let link = match name.split_once('-') {
        None => name.parse().ok().filter(|n| *n < topology.links.len())?,
        Some((a, b)) => {
            let ends = (topology.node_named(a)?, topology.node_named(b)?);
            topology.links.iter().position(|l| (l.a, l.b) == ends || (l.b, l.a) == ends)?
        }
    };
    u32::try_from(link).ok()
}
