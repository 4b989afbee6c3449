//! A network whose hosts are outside: their frames come with the time at which they began to leave, and go with the time
//! at which they arrive.
//!
//! Whoever has the hosts drives it: [`Lab::send`] for each frame that a host has sent, [`Lab::run_until`] for what
//! happens up to a time. What a host sends at a time reaches a switch [`Lab::lookahead`] later at the earliest, so that
//! nothing comes too late as long as the network is no further ahead than that of the slowest host (conservative
//! synchronization: Chandy and Misra, 1979).

mod flows;

use irnic_transports::wire::parse;
use irnic_transports::{Mark, Path};

use crate::network::{
    Content, Endpoint, EndpointCtx, LinkChange, Network, NetworkConfig, NetworkError, Packet, PacketId, Port, address,
    host_of, mix,
};
use crate::priorities::Priorities;
use crate::sim::ENCAPSULATION;

use flows::FlowLog;
pub use flows::SeenFlow;

/// Bytes on the wire of the shortest Ethernet frame.
const SHORTEST: u32 = 64;

/// A network between hosts that are outside.
#[derive(Debug)]
pub struct Lab {
    network: Network<Station>,
    lookahead: u64,
    ect: bool,
    late: Late,
    refused: u64,
    flows: Option<Box<FlowLog>>,
}

/// Frames that came after they should have been at the first switch.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Late {
    /// How many.
    pub frames: u64,
    /// By how much the worst did, ns.
    pub worst: u64,
}

/// What a host sends.
#[derive(Copy, Clone, Debug)]
pub struct Sent<'a> {
    /// When the frame begins to leave, ns. It waits for those that the host has sent before.
    pub start: u64,
    /// The host that it goes to, another one.
    pub dst: u32,
    /// UDP source port, by which switches choose among ways.
    pub udp_src: u16,
    /// IP's traffic class: the priority in the upper three bits, ECN in the lower two.
    pub traffic_class: u8,
    /// From the BTH to the ICRC.
    pub frame: &'a [u8],
}

/// What reaches a host.
#[derive(Copy, Clone, Debug)]
pub struct Arrival<'a> {
    /// The host.
    pub host: u32,
    /// When it has arrived whole, ns.
    pub at: u64,
    /// What it is.
    pub what: What<'a>,
}

/// A frame, or news from the switch.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum What<'a> {
    /// A frame.
    Frame {
        /// The host that sent it.
        src: u32,
        /// As it was sent.
        udp_src: u16,
        /// With what switches have written.
        traffic_class: u8,
        /// From the BTH to the ICRC; of a trimmed frame what is left.
        frame: &'a [u8],
    },
    /// The host is to pause these priorities, and no others.
    Pause(Priorities),
}

/// A frame that arrived, or [`None`] and what is paused.
#[derive(Copy, Clone, Debug)]
struct Delivery {
    host: u32,
    at: u64,
    frame: Option<(PacketId, Path, usize)>,
    paused: Priorities,
}

/// The bytes of frames under way by the numbers of their packets, and what has arrived in the present run.
#[derive(Debug, Default)]
struct Frames {
    bytes: Vec<Vec<u8>>,
    arrived: Vec<Delivery>,
}

/// The end of a host's link. What the host sends comes from outside ([`Network::put`]).
#[derive(Debug)]
struct Station;

impl Endpoint for Station {
    type Shared = Frames;

    fn wants_tx(&mut self, _: Priorities) -> bool {
        false
    }

    fn poll_transmit(&mut self, _: &mut EndpointCtx<'_, Frames>) -> Option<PacketId> {
        None
    }

    fn receive(&mut self, id: PacketId, ctx: &mut EndpointCtx<'_, Frames>) {
        let content = ctx.packets.content(id);
        // Packets that switches make have no frame.
        if content.frame.is_none() {
            return;
        }
        let len = match ctx.packets.get(id).is_trimmed() {
            true => content.headers.len(),
            false => ctx.shared.bytes[id as usize].len(),
        };
        let packet = ctx.packets.get(id);
        let path = match (packet.is_trimmed(), packet.is_returned()) {
            (false, _) => content.path,
            (true, false) => content.path.with_mark(Mark::Trimmed),
            (true, true) => content.path.with_mark(Mark::Returned),
        };
        let frame = Some((id, path, len));
        ctx.shared.arrived.push(Delivery { host: ctx.host, at: ctx.now, frame, paused: Priorities::NONE });
    }

    fn on_pause(&mut self, paused: Priorities, ctx: &mut EndpointCtx<'_, Frames>) {
        ctx.shared.arrived.push(Delivery { host: ctx.host, at: ctx.now, frame: None, paused });
    }

    fn on_deadline(&mut self, _: u64) {}

    fn next_deadline(&self) -> u64 {
        u64::MAX
    }
}

impl Lab {
    /// Bytes on the wire around a frame: Ethernet, IPv4 and UDP.
    pub const ENCAPSULATION: u32 = ENCAPSULATION;

    /// Makes the network. `ect`: what hosts send is ECN-capable, whatever its traffic class says.
    ///
    /// # Errors
    /// What makes no sense in the configuration.
    pub fn new(config: NetworkConfig, ect: bool) -> Result<Lab, NetworkError> {
        let hosts = config.topology.hosts;
        let network = Network::new(config, (0..hosts).map(|_| Station).collect(), Frames::default())?;
        let shortest = |host| {
            let port: &Port = network.port_of(host);
            port.delay + port.serialization(SHORTEST) / 1_000
        };
        let lookahead = (0..hosts).map(shortest).min().unwrap_or(0).max(1);
        Ok(Lab { network, lookahead, ect, late: Late::default(), refused: 0, flows: None })
    }

    /// Returns the number of hosts.
    pub fn hosts(&self) -> u32 {
        self.network.endpoints().count() as u32
    }

    /// Returns the time that has been reached, ns.
    pub fn now(&self) -> u64 {
        self.network.now()
    }

    /// Returns how long after it began to leave a frame is at a switch at the earliest, ns: the least there is of the
    /// delay of a host's link and the time of the shortest frame on it.
    pub fn lookahead(&self) -> u64 {
        self.lookahead
    }

    /// Returns when the network next has something to do, ns; [`u64::MAX`] if nothing is under way.
    pub fn next_event(&mut self) -> u64 {
        self.network.next_event()
    }

    /// Takes a frame of a host. Returns when its last bit has left the host, ns. What has no destination, or is no frame
    /// of RoCE, is counted and goes no further.
    pub fn send(&mut self, host: u32, sent: &Sent<'_>) -> u64 {
        let wire = sent.frame.len() as u32 + ENCAPSULATION;
        let parsed = parse(sent.frame).ok().filter(|_| sent.dst < self.hosts() && sent.dst != host);
        let Some((headers, payload)) = parsed else {
            self.refused += 1;
            return sent.start;
        };
        // ECN-capable transport (RFC 3168).
        let capable = if self.ect && sent.traffic_class & 3 == 0 { 2 } else { 0 };
        let path = Path {
            src: address(host),
            dst: address(sent.dst),
            udp_src: sent.udp_src,
            traffic_class: sent.traffic_class | capable,
            hop_limit: 64,
        };
        let entropy = mix(host ^ mix(sent.dst ^ mix(u32::from(sent.udp_src))));
        let mut packet = Packet::new(wire, sent.dst, entropy, path.priority());
        packet.set_colour(path.colour());
        let content = Content { frame: Some(Box::default()), ..Content::new(headers, path, payload.len() as u32) };
        if let Some(flows) = &mut self.flows {
            flows.sent(host, sent.dst, sent.start, &headers, payload.len() as u32);
        }
        let put = self.network.put(host, sent.start, packet, content);
        if put.late > 0 {
            self.late.frames += 1;
            self.late.worst = self.late.worst.max(put.late);
        }
        let frames = &mut self.network.shared_mut().bytes;
        let place = put.id as usize;
        if frames.len() <= place {
            frames.resize_with(place + 1, Vec::new);
        }
        frames[place].clear();
        frames[place].extend_from_slice(sent.frame);
        put.left
    }

    /// Lets happen what happens until `until`, ns. `each` gets what reaches hosts, in order of time.
    pub fn run_until(&mut self, until: u64, mut each: impl FnMut(Arrival<'_>)) {
        self.network.run_until(until);
        let frames = self.network.shared_mut();
        for Delivery { host, at, frame, paused } in frames.arrived.drain(..) {
            let what = match frame {
                None => What::Pause(paused),
                Some((id, path, len)) => What::Frame {
                    src: host_of(path.src),
                    udp_src: path.udp_src,
                    traffic_class: path.traffic_class,
                    frame: &frames.bytes[id as usize][..len],
                },
            };
            if let (Some(flows), What::Frame { src, frame, .. }) = (&mut self.flows, what) {
                flows.arrived(src, host, at, frame);
            }
            each(Arrival { host, at, what });
        }
    }

    /// Keeps account of flows from now on, for [`Lab::flows`].
    pub fn keep_flows(&mut self) {
        self.flows = Some(Box::default());
    }

    /// Returns what queue pairs have sent each other, in the order in which they began.
    pub fn flows(&self) -> Vec<SeenFlow> {
        self.flows.as_ref().map_or_else(Vec::new, |flows| flows.all())
    }

    /// Changes a link now.
    pub fn change_link(&mut self, change: LinkChange) {
        self.network.change_link(change);
    }

    /// Returns the frames that came too late.
    pub fn late(&self) -> Late {
        self.late
    }

    /// Returns how many frames had no destination or were none of RoCE.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns the network, to look at.
    pub fn network(&self) -> &Network<impl Endpoint> {
        &self.network
    }
}
