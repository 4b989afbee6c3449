//! `--pcap` of simulated and emulated networks: captures departures by ports of their nodes, as pcapng.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use irnic_fabric::Priorities;
use irnic_fabric::network::{Port, PortId, Recorder, host_of};
use irnic_fabric::topology::Topology;
use irnic_ports::capture::{Recording, ethernet};
use irnic_transports::wire::{ICRC_LEN, RateNotice};
use irnic_transports::{Path, Time};

use irnic_report::output::Stream;

/// Options of captures.
#[derive(Args, Clone, Debug, Default)]
pub struct PcapArgs {
    /// Record packets and PFC frames as pcapng, for Wireshark; - writes to standard output instead of everything else
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub pcap: Option<PathBuf>,
    /// Ports to record, separated by commas: h0-s0 (packets from host 0 to switch 0), s0 (packets that switch 0 sends
    /// and receives), all [default: packets that hosts send and receive]
    #[arg(long, value_name = "PORTS", requires = "pcap", value_delimiter = ',', help_heading = "Output")]
    pub pcap_port: Vec<String>,
}

/// A capture in progress.
pub struct PortCapture {
    /// The captured ports.
    pub ports: Vec<PortId>,
    file: Recording<Stream>,
    /// Interface number of each port.
    interfaces: Vec<u32>,
    nodes: Vec<u32>,
    /// Returns the address of a host in the file.
    address: Box<dyn Fn(u32) -> IpAddr + Send>,
    /// Records that may be later than some still to come, by time and then by number.
    waiting: BinaryHeap<Reverse<(u64, u64, Record)>>,
    records: u64,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Record {
    Packet { interface: u32, path: Fields, bytes: Vec<u8> },
    Ethernet { interface: u32, bytes: Vec<u8> },
}

/// Fields of a path of IPv4 packets.
type Fields = (IpAddr, IpAddr, u16, u8);

impl std::fmt::Debug for PortCapture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PortCapture").field("ports", &self.ports).finish_non_exhaustive()
    }
}

/// Meaning of a name.
enum Meant {
    All,
    /// Traffic from one node to another.
    Between(u32, u32),
    /// All traffic of a node.
    Of(u32),
}

impl PcapArgs {
    /// Returns the meanings of the names.
    fn meant(&self, topology: &Topology) -> Result<Vec<Meant>, String> {
        let meant = |name: &String| {
            let node = |name: &str| topology.node_named(name);
            let meant = match name.split_once('-') {
                _ if name == "all" => Some(Meant::All),
                None => node(name).map(Meant::Of),
                Some((from, to)) => node(from).zip(node(to)).and_then(|(from, to)| {
                    let joins = |a, b| (a, b) == (from, to) || (b, a) == (from, to);
                    topology.links.iter().any(|link| joins(link.a, link.b)).then_some(Meant::Between(from, to))
                }),
            };
            meant.ok_or_else(|| {
                format!("--pcap-port {name}: expected the ends of a link such as h0-s0, a node such as s0, or all")
            })
        };
        self.pcap_port.iter().map(meant).collect()
    }

    /// Checks that the network has what is to be captured.
    pub fn check(&self, topology: &Topology) -> Result<(), String> {
        self.meant(topology).map(|_| ())
    }
}

/// Returns the selected ports, in the network's order.
fn chosen(meant: &[Meant], topology: &Topology, ports: &[Port]) -> Vec<PortId> {
    let is_chosen = |port: &&Port| {
        let ends = (port.node, ports[port.peer as usize].node);
        let is = |meant: &Meant| match *meant {
            Meant::All => true,
            Meant::Between(from, to) => ends == (from, to),
            Meant::Of(node) => ends.0 == node || ends.1 == node,
        };
        // By default: traffic of hosts.
        meant.iter().any(is) || meant.is_empty() && (topology.is_host(ends.0) || topology.is_host(ends.1))
    };
    (0..).zip(ports).filter(|(_, port)| is_chosen(port)).map(|(id, _)| id).collect()
}

impl PortCapture {
    /// Creates the file, if requested. `ports` are the network's; `address` is that of a host.
    pub fn open(
        args: &PcapArgs,
        topology: &Topology,
        ports: &[Port],
        address: impl Fn(u32) -> IpAddr + Send + 'static,
    ) -> Result<Option<PortCapture>, String> {
        let Some(path) = &args.pcap else { return Ok(None) };
        let chosen = chosen(&args.meant(topology)?, topology, ports);
        let far = |id: PortId| ports[ports[id as usize].peer as usize].node;
        let name = |id: &PortId| {
            let (from, to) = (ports[*id as usize].node, far(*id));
            format!("{}-{}", topology.label(from), topology.label(to))
        };
        let names: Vec<String> = chosen.iter().map(name).collect();
        let file = Stream::capture(path).map_err(|e| format!("--pcap {e}"))?;
        let mut interfaces = vec![0; ports.len()];
        chosen.iter().zip(0..).for_each(|(id, number)| interfaces[*id as usize] = number);
        Ok(Some(PortCapture {
            ports: chosen,
            // The network's time counts as time since 1970.
            file: Recording::new(file, names.iter().map(String::as_str), Duration::ZERO),
            interfaces,
            nodes: ports.iter().map(|port| port.node).collect(),
            address: Box::new(address),
            waiting: BinaryHeap::new(),
            records: 0,
        }))
    }

    fn note(&mut self, at: u64, record: Record) {
        self.records += 1;
        self.waiting.push(Reverse((at, self.records, record)));
    }

    fn write(&mut self, at: Time, record: Record) {
        match record {
            Record::Ethernet { interface, bytes } => self.file.sent_ethernet(interface, at, &bytes),
            Record::Packet { interface, path: (src, dst, udp_src, traffic_class), bytes } => {
                let path = Path { src, dst, udp_src, traffic_class, hop_limit: 64 };
                // An existing ICRC is correct, or was corrupted on purpose.
                if bytes.ends_with(&[0; ICRC_LEN]) {
                    self.file.sent(interface, at, &path, &bytes);
                } else {
                    self.file.sent_as_is(interface, at, &path, &bytes);
                }
            }
        }
    }
}

impl Recorder for PortCapture {
    fn packet(&mut self, port: PortId, at: u64, path: &Path, bytes: &[u8], len: usize) {
        let [src, dst] = [path.src, path.dst].map(|address| (self.address)(host_of(address)));
        let path = (src, dst, path.udp_src, path.traffic_class);
        let interface = self.interfaces[port as usize];
        let mut bytes = bytes.to_vec();
        // Simulated payload has no bytes, unless it is verified.
        bytes.resize(len, 0);
        self.note(at, Record::Packet { interface, path, bytes });
    }

    fn notice(&mut self, port: PortId, at: u64, notice: &RateNotice) {
        let bytes = [&ethernet(&notice.path())[..], &notice.emit()[..]].concat();
        self.note(at, Record::Ethernet { interface: self.interfaces[port as usize], bytes });
    }

    fn pause(&mut self, port: PortId, at: u64, paused: Priorities) {
        let bytes = pfc_frame(self.nodes[port as usize], paused).to_vec();
        self.note(at, Record::Ethernet { interface: self.interfaces[port as usize], bytes });
    }

    fn passed(&mut self, at: u64) {
        while let Some(Reverse((first, ..))) = self.waiting.peek()
            && *first <= at
        {
            let Some(Reverse((first, _, record))) = self.waiting.pop() else { return };
            self.write(Time(first), record);
        }
    }
}

impl Drop for PortCapture {
    fn drop(&mut self) {
        self.passed(u64::MAX);
        self.file.write_out();
    }
}

/// Returns a PFC frame (IEEE 802.1Qbb) of a node: each priority is paused for the maximum time, or not at all.
fn pfc_frame(node: u32, paused: Priorities) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[..6].copy_from_slice(&[0x01, 0x80, 0xc2, 0x00, 0x00, 0x01]);
    frame[6..8].copy_from_slice(&[0x02, 0xff]);
    frame[8..12].copy_from_slice(&node.to_be_bytes());
    frame[12..16].copy_from_slice(&[0x88, 0x08, 0x01, 0x01]);
    frame[17] = 0xff;
    for priority in 0..8 {
        let time = if paused.contains(priority) { 0xff } else { 0 };
        frame[18 + 2 * usize::from(priority)..][..2].fill(time);
    }
    frame
}
