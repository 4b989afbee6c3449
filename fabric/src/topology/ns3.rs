//! Topology files of the ns-3 RDMA simulators (HPCC, TLT, ConWeave), unmodified.
//!
//! The first line has the number of nodes, of switches and of links, the second the ids of the switches; then a line
//! for each link: two ids, rate, delay, probability of loss. The rest is ignored, since those simulators read no
//! further.

use std::path::Path;

use irnic_units::{self as units, MAX_NS, Unit, with_unit};

use super::{LinkSpec, Topology};
use crate::input::{Error, Line, Lines};

/// Maximum number of nodes; the largest fat-tree that irnic builds has 70,656.
const MAX_NODES: u32 = 100_000;
/// Maximum number of links.
const MAX_LINKS: u32 = 10_000_000;
/// Maximum number of links of one node: ports have 16 bits.
const MAX_PORTS: u32 = 1 << 16;

/// In ns. As everywhere in ns-3, a number without a unit is in seconds.
const TIMES: [Unit; 5] = [("", 1_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

/// Reads a topology file. Hosts, and switches after them, are numbered in the order of their ids, which are kept in
/// [`Topology::ids`].
pub fn read(path: &Path) -> Result<Topology, Error> {
    parse(path, &Lines::read(path)?)
}

/// Parses `text` like [`read`]; `path` is for messages and gives the topology its name.
pub fn parse(path: &Path, text: &str) -> Result<Topology, Error> {
    let mut lines = Lines::new(path, text);

    const COUNTS: &str = "the numbers of nodes, switches and links";
    let line = lines.expect(COUNTS)?;
    if line.columns.len() != 3 {
        return Err(line.wrong_line(COUNTS));
    }
    let nodes = line.below(0, MAX_NODES + 1, "at most 100,000 nodes")?;
    let switches: u32 = line.below(1, u32::MAX, "a number of switches")?;
    let links = line.below(2, MAX_LINKS + 1, "at most 10,000,000 links")?;
    if switches >= nodes {
        return Err(line.wrong("fewer switches than nodes: the others are hosts", line.columns[1]));
    }
    let hosts = nodes - switches;

    let mut is_switch = vec![false; nodes as usize];
    let mut named = 0;
    // No switches, or an empty or missing second line.
    while named < switches {
        let line = lines.expect("the ids of the switches")?;
        for at in 0..line.columns.len() {
            let id: u32 = line.below(at, nodes, &format!("the id of a switch, below {nodes}"))?;
            if named == switches || std::mem::replace(&mut is_switch[id as usize], true) {
                return Err(line.wrong(format!("{switches} different ids of switches"), line.columns[at]));
            }
            named += 1;
        }
    }
    let mut ids: Vec<u32> = (0..nodes).filter(|id| !is_switch[*id as usize]).collect();
    ids.extend((0..nodes).filter(|id| is_switch[*id as usize]));
    let mut node_of = vec![0; nodes as usize];
    for (node, id) in ids.iter().enumerate() {
        node_of[*id as usize] = node as u32;
    }

    let mut specs = Vec::new();
    let mut ports = vec![0; nodes as usize];
    for number in 1..=links {
        let line = lines.expect(&format!("link {number} of {links}"))?;
        let link = link(&line, &node_of)?;
        for (at, node) in [link.a, link.b].into_iter().enumerate() {
            ports[node as usize] += 1;
            if ports[node as usize] > MAX_PORTS {
                return Err(line.wrong("at most 65,536 links of one node", line.columns[at]));
            }
        }
        specs.push(link);
    }
    if ids.iter().enumerate().all(|(node, id)| node as u32 == *id) {
        ids.clear();
    }
    let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    Ok(Topology { name, hosts, switches, links: specs, ids })
}

fn link(line: &Line<'_>, node_of: &[u32]) -> Result<LinkSpec, Error> {
    if line.columns.len() != 5 {
        return Err(line.wrong_line("a link: source, destination, rate, delay and probability of loss"));
    }
    let nodes = node_of.len() as u32;
    let end = |at| line.below(at, nodes, &format!("the id of a node, below {nodes}")).map(|id| node_of[id as usize]);
    let (a, b) = (end(0)?, end(1)?);
    if a == b {
        return Err(line.wrong("a link between two nodes", line.columns[1]));
    }
    let time = |text: &str| with_unit(text, &TIMES).filter(|ns| *ns <= MAX_NS);
    let share = |text: &str| text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    let rate = line.column(2, units::rate, units::RATE)?;
    if let Some(expected) = units::too_slow(line.columns[2], rate) {
        return Err(line.wrong(expected, line.columns[2]));
    }
    Ok(LinkSpec {
        a,
        b,
        rate,
        delay: line.column(3, time, units::TIME)?,
        loss: line.column(4, share, "a probability of loss, 0 to 1")?,
    })
}

#[cfg(test)]
mod tests {
    use super::super::Routes;
    use super::*;

    fn fixture(name: &str) -> Topology {
        read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/topologies").join(name)).unwrap()
    }

    #[test]
    fn files_of_the_simulators_are_read_as_they_are() {
        for (name, hosts, switches, links, longest) in [
            ("leaf_spine_128_100G_OS2.txt", 128, 16, 192, 4),
            ("fat_k4_100G_OS2.txt", 32, 20, 64, 6),
            ("fat_k8_100G_OS2.txt", 256, 80, 512, 6),
        ] {
            let net = fixture(name);
            assert_eq!((net.hosts, net.switches, net.links.len()), (hosts, switches, links), "{name}");
            assert!(net.links.iter().all(|l| (l.rate, l.delay, l.loss) == (100_000_000_000, 1_000, 0.0)), "{name}");
            assert_eq!(net.name, name.trim_end_matches(".txt"));
            assert_eq!(net.ids, []);
            let routes = Routes::compute(&net, &|_| false);
            let lengths = (1..hosts).map(|host| routes.path(0, host).expect("connected").len());
            assert_eq!(lengths.max(), Some(longest), "{name}");
        }
    }

    #[test]
    fn hosts_are_numbered_in_the_order_of_their_ids() {
        // Switches first, as in TLT's file, with the trailing comments of such files.
        let net = parse(
            Path::new("t.txt"),
            "5 2 4\n1 3\n0 1 40Gbps 0.001ms 0\n2 1 40Gbps 0.001ms 0\n3 4 10Gbps 1us 0.5\n1 3 40Gbps 0.000001 0\n\nFirst line: \n",
        )
        .unwrap();
        assert_eq!((net.hosts, net.switches), (3, 2));
        assert_eq!(net.ids, [0, 2, 4, 1, 3]);
        let ends: Vec<_> = net.links.iter().map(|l| (l.a, l.b, l.delay)).collect();
        assert_eq!(ends, [(0, 3, 1000), (1, 3, 1000), (4, 2, 1000), (3, 4, 1000)]);
        assert_eq!(net.links[2].loss, 0.5);
        assert_eq!((net.id(1), net.host_with_id(4), net.host_with_id(3)), (2, Some(2), None));
    }

    #[test]
    fn errors_name_file_line_and_what_was_expected() {
        for (text, said) in [
            ("", "t.txt:1: expected the numbers of nodes, switches and links, found the end of the file"),
            ("3 1\n", "t.txt:1: expected the numbers of nodes, switches and links, found `3 1`"),
            ("100001 1 1\n", "t.txt:1: expected at most 100,000 nodes, found `100001`"),
            ("3 x 1\n", "t.txt:1: expected a number of switches, found `x`"),
            ("3 3 1\n", "t.txt:1: expected fewer switches than nodes: the others are hosts, found `3`"),
            ("3 4 1\n", "t.txt:1: expected fewer switches than nodes: the others are hosts, found `4`"),
            ("3 1 1\n", "t.txt:2: expected the ids of the switches, found the end of the file"),
            ("3 1 1\n3\n", "t.txt:2: expected the id of a switch, below 3, found `3`"),
            ("3 2 1\n1 1\n", "t.txt:2: expected 2 different ids of switches, found `1`"),
            ("3 1 1\n1 2\n", "t.txt:2: expected 1 different ids of switches, found `2`"),
            ("3 1 1\n0\n", "t.txt:3: expected link 1 of 1, found the end of the file"),
            (
                "3 1 1\n0\n\n0 1 1Gbps 1us\n",
                "t.txt:4: expected a link: source, destination, rate, delay and probability of loss, found `0 1 1Gbps 1us`",
            ),
            ("3 1 1\n0\n0 3 1Gbps 1us 0\n", "t.txt:3: expected the id of a node, below 3, found `3`"),
            ("3 1 1\n0\n0 0 1Gbps 1us 0\n", "t.txt:3: expected a link between two nodes, found `0`"),
            (
                "3 1 1\n0\n0 1 1GBps 1us 0\n",
                "t.txt:3: expected a rate such as 40G, 100Gbps or 2500Mbit, up to 1000T, found `1GBps`",
            ),
            (
                "3 1 1\n0\n0 1 1Gbps 1min 0\n",
                "t.txt:3: expected a time such as 2us, 500ns or 1.5ms, up to 3600s, found `1min`",
            ),
            (
                "3 1 1\n0\n0 1 25 1us 0\n",
                "t.txt:3: expected a rate of 1M or more, 25 being 25 bit/s; did you mean 25G?, found `25`",
            ),
            ("3 1 1\n0\n0 1 1Gbps 1us 2\n", "t.txt:3: expected a probability of loss, 0 to 1, found `2`"),
            ("3 1 1\n0\n0 1 1Gbps 1us NaN\n", "t.txt:3: expected a probability of loss, 0 to 1, found `NaN`"),
        ] {
            let error = parse(Path::new("t.txt"), text).unwrap_err();
            assert_eq!(error.to_string(), said, "{text:?}");
        }
    }

    #[test]
    fn a_node_has_as_many_links_as_ports_can_be_numbered() {
        let text = |links: u32| format!("2 1 {links}\n0\n") + &"0 1 1G 1us 0\n".repeat(links as usize);
        let net = parse(Path::new("t"), &text(65_536)).unwrap();
        assert_eq!(Routes::compute(&net, &|_| false).ports(1, 0).len(), 65_536);
        let error = parse(Path::new("t"), &text(65_537)).unwrap_err();
        assert_eq!(error.to_string(), "t:65539: expected at most 65,536 links of one node, found `0`");
    }

    #[test]
    fn a_missing_file_is_named() {
        let said = read(Path::new("/nowhere/t.txt")).unwrap_err().to_string();
        assert!(said.starts_with("/nowhere/t.txt: "), "{said}");
    }
}
