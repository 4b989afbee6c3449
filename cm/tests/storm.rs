//! A connection storm in the simulated network: many hosts connect to one server at once, over links that lose packets.

use std::collections::{BTreeMap, VecDeque};

use irnic_cm::{Cm, CmConfig, CmId, ConnParam, EventKind, PortSpace, QpKind, Route};
use irnic_fabric::Priorities;
use irnic_fabric::network::{Content, Endpoint, EndpointCtx, Network, NetworkConfig, Packet, PacketId, address};
use irnic_fabric::sim::ENCAPSULATION;
use irnic_fabric::switch::{InputQueuedConfig, SwitchConfig};
use irnic_fabric::topology::{LinkSpec, Topology};
use irnic_transports::time::{SEC, US};
use irnic_transports::wire::mad::{GSI_QPN, MAD_LEN};
use irnic_transports::wire::{Bth, Headers, Mtu, Opcode};
use irnic_transports::{Path, Psn, Time};

const G: u64 = 1_000_000_000;
const PORT: u16 = 7;
/// Time that the server's application takes for a request.
const SERVICE: u64 = 20 * US;

/// State of a connection in an application.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// Undecided.
    Open,
    Established,
    /// Refused, with the reason.
    Rejected(i32),
    Unreachable,
    /// Ended after it was established.
    Disconnected,
}

/// A host: its manager, its application, and the MADs that wait for the link.
#[derive(Debug)]
struct Host {
    cm: Cm,
    number: u32,
    out: VecDeque<(Path, [u8; MAD_LEN])>,
    outcomes: BTreeMap<CmId, Outcome>,
    /// Clients: connects not begun yet, and when the next one does.
    to_start: u32,
    start: Time,
    /// The server: requests that wait for the application, and when it has finished the previous one.
    requests: VecDeque<CmId>,
    free: Time,
    next_qpn: u32,
    server: u32,
}

impl Host {
    fn new(number: u32, server: u32, connects: u32) -> Host {
        let mut config = CmConfig::new([number as u8; 32], 0x100 + u64::from(number), (number + 1) << 22, 1 << 22);
        config.seed[31] = (number >> 8) as u8;
        let mut cm = Cm::new(config);
        if number == server {
            let id = cm.create(PortSpace::Tcp, QpKind::Rc).expect("an id");
            cm.bind(id, (address(server), PORT).into(), false).expect("bound");
            cm.listen(id, 128).expect("listening");
        }
        Host {
            cm,
            number,
            out: VecDeque::new(),
            outcomes: BTreeMap::new(),
            to_start: connects,
            start: Time(u64::from(number)),
            requests: VecDeque::new(),
            free: Time::ZERO,
            next_qpn: 0x100,
            server,
        }
    }

    fn connect(&mut self, now: Time) {
        self.to_start -= 1;
        let (own, peer) = (address(self.number), address(self.server));
        let path = Path { src: own, dst: peer, udp_src: 0xc000, traffic_class: 0, hop_limit: 64 };
        let port = 40_000 + self.to_start as u16;
        let id = self.cm.create(PortSpace::Tcp, QpKind::Rc).expect("an id");
        let route = Route::new((own, port).into(), (peer, PORT).into(), path, Mtu::B1024);
        self.cm.resolve(id, route).expect("resolved");
        self.cm.connect(now, id, &ConnParam::new(2 + self.to_start)).expect("under way");
        self.outcomes.insert(id, Outcome::Open);
    }

    /// Lets the application handle its events and make its calls.
    fn settle(&mut self, now: Time) {
        while self.to_start > 0 && self.start <= now {
            self.connect(now);
            self.start = now + 5 * US;
        }
        while let Some(event) = self.cm.poll_event() {
            let id = event.id;
            let outcome = match event.kind {
                EventKind::ConnectRequest => {
                    self.requests.push_back(id);
                    Outcome::Open
                }
                EventKind::ConnectResponse => {
                    self.cm.accept(now, id, None).expect("confirmed");
                    Outcome::Established
                }
                EventKind::Established => Outcome::Established,
                EventKind::Rejected => Outcome::Rejected(event.status),
                EventKind::Unreachable => Outcome::Unreachable,
                EventKind::Disconnected => Outcome::Disconnected,
                EventKind::TimewaitExit => continue,
                kind => panic!("{kind:?}"),
            };
            self.outcomes.insert(id, outcome);
        }
        while self.free <= now
            && let Some(id) = self.requests.pop_front()
        {
            self.next_qpn += 1;
            // The client may have given up.
            _ = self.cm.accept(now, id, Some(&ConnParam::new(self.next_qpn)));
            self.free = now + SERVICE;
        }
        while let Some(mad) = self.cm.poll_mad() {
            self.out.push_back(mad);
        }
    }
}

impl Endpoint for Host {
    type Shared = ();

    fn wants_tx(&mut self, _: Priorities) -> bool {
        !self.out.is_empty()
    }

    fn poll_transmit(&mut self, ctx: &mut EndpointCtx<'_, ()>) -> Option<PacketId> {
        let (path, mad) = self.out.pop_front()?;
        let dst = irnic_fabric::network::host_of(path.dst);
        let headers = Headers::new(Bth::new(Opcode::UdSendOnly, GSI_QPN, Psn::new(0)));
        let wire = headers.frame_len(MAD_LEN) as u32 + ENCAPSULATION;
        let content = Content { frame: Some(mad.into()), ..Content::new(headers, path, MAD_LEN as u32) };
        Some(ctx.send(Packet::new(wire, dst, 0, 0), content))
    }

    fn receive(&mut self, id: PacketId, ctx: &mut EndpointCtx<'_, ()>) {
        let content = ctx.packets.content_mut(id);
        let mad = content.frame.take().expect("all have one");
        self.cm.receive(Time(ctx.now), &content.path, &mad);
        self.settle(Time(ctx.now));
    }

    fn on_deadline(&mut self, now: u64) {
        self.cm.on_deadline(Time(now));
        self.settle(Time(now));
    }

    fn next_deadline(&self) -> u64 {
        let start = if self.to_start > 0 { self.start } else { Time::NEVER };
        let busy = if self.requests.is_empty() { Time::NEVER } else { self.free };
        self.cm.next_deadline().min(start).min(busy).0
    }
}

/// Runs `hosts` clients with `connects` connects each, over links that lose a share `loss`.
fn storm(hosts: u32, connects: u32, loss: f64, seed: u64) -> Network<Host> {
    let links = (0..=hosts).map(|host| LinkSpec { a: host, b: hosts + 1, rate: 10 * G, delay: 5 * US, loss }).collect();
    let topology = Topology { name: "storm".to_owned(), hosts: hosts + 1, switches: 1, links, ids: Vec::new() };
    let ends = (0..=hosts).map(|n| Host::new(n, hosts, if n < hosts { connects } else { 0 })).collect();
    let mut config = NetworkConfig::new(topology, SwitchConfig::InputQueued(InputQueuedConfig::new(1 << 30)));
    config.seed = seed;
    Network::new(config, ends, ()).expect("a network")
}

/// Counts the outcomes, of the clients and of the server.
fn outcomes(net: &Network<Host>, hosts: u32) -> [BTreeMap<Outcome, usize>; 2] {
    let count = |hosts: &mut dyn Iterator<Item = u32>| {
        let mut counts = BTreeMap::new();
        hosts.flat_map(|host| net.endpoint(host).outcomes.values()).for_each(|&o| *counts.entry(o).or_insert(0) += 1);
        counts
    };
    [count(&mut (0..hosts)), count(&mut (hosts..hosts + 1))]
}

#[test]
fn thousands_of_connects_at_a_server_with_a_backlog_of_128_all_succeed_under_loss() {
    for (hosts, connects, loss) in [(40, 50, 0.0), (40, 50, 0.05), (100, 100, 0.01)] {
        let all = (hosts * connects) as usize;
        let mut net = storm(hosts, connects, loss, 3);
        net.run_until(20 * SEC);
        net.check().expect("the network's accounts");
        let [clients, server] = outcomes(&net, hosts);
        assert_eq!(clients.get(&Outcome::Established), Some(&all), "loss {loss}: {clients:?}");
        assert_eq!(server.get(&Outcome::Established), Some(&all), "loss {loss}: {server:?}");
        // They disconnect, all at once.
        for host in 0..hosts {
            let now = Time(net.now());
            let end = net.endpoint_mut(host);
            let ids: Vec<CmId> = end.outcomes.keys().copied().collect();
            ids.into_iter().for_each(|id| end.cm.disconnect(now, id).expect("under way"));
            end.settle(now);
            net.settle(host);
        }
        net.run_until(net.now() + 200 * SEC);
        for (who, counts) in ["clients", "server"].iter().zip(outcomes(&net, hosts)) {
            assert_eq!(counts, BTreeMap::from([(Outcome::Disconnected, all)]), "loss {loss}: {who}");
        }
        let left: usize = (0..=hosts).map(|host| net.endpoint(host).cm.connection_count()).sum();
        assert_eq!(left, 0);
    }
}

/// Three of ten packets are lost on every link, so that half of all messages do not arrive.
#[test]
fn a_storm_is_the_same_every_time_and_whoever_fails_knows_why() {
    let run = || {
        let mut net = storm(30, 20, 0.3, 9);
        net.run_until(400 * SEC);
        net.check().expect("the network's accounts");
        let all: Vec<_> = (0..=30).map(|host| format!("{:?}", net.endpoint(host).outcomes)).collect();
        (outcomes(&net, 30), all)
    };
    let (first, again) = (run(), run());
    assert_eq!(first, again);
    let ([clients, server], _) = first;
    assert!(!clients.contains_key(&Outcome::Open), "{clients:?}");
    let established = |counts: &BTreeMap<Outcome, usize>| counts.get(&Outcome::Established).copied();
    assert_eq!(established(&clients), established(&server), "{clients:?} {server:?}");
    assert!(established(&clients) > Some(550), "{clients:?}");
}
