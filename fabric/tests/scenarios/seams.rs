//! What switches of one's own can do, each shown by one that does nothing else: trim, push out, emit, send control
//! frames, keep time, build on a switch of the library. The accounts hold for all of them ([`Network::check`]).

use std::collections::VecDeque;

use irnic_fabric::Priorities;
use irnic_fabric::generator::{Gap, Generator, Stream};
use irnic_fabric::network::{
    Content, Control, Fifo, Network, NetworkConfig, Packet, PacketId, Packets, Port, Standstill, host_of,
};
use irnic_fabric::switch::{
    CustomScheduler, Dequeue, InputQueued, InputQueuedConfig, Scheduler, SharedBuffer, SharedBufferConfig, Switch,
    SwitchConfig, SwitchCtx, Verdict, Via,
};
use irnic_fabric::topology::Topology;

use crate::kit::*;

type Net = Network<Generator>;

/// A network whose hosts send these streams, watched.
fn net(topology: Topology, switch: SwitchConfig, streams: Vec<Vec<Stream>>) -> Net {
    let hosts = streams.into_iter().map(|streams| Generator::new(streams, 1)).collect();
    let mut net = Network::new(NetworkConfig::new(topology, switch), hosts, ()).unwrap();
    net.watch();
    net
}

/// Runs to the end, in which nothing is under way any more and all that was sent is accounted for.
fn finish(mut net: Net) -> Net {
    assert_eq!(net.run_until(u64::MAX), Some(Standstill::Stuck), "nothing is left to do");
    assert!(net.packets().is_empty());
    net.check().unwrap();
    net
}

fn all_at_once(dst: u32, packets: u64) -> Stream {
    Stream::new(dst, WIRE as u32, packets, Gap::Constant(0))
}

/// One queue for each output.
#[derive(Debug, Default, Clone)]
struct Queue {
    fifo: Fifo,
    packets: u32,
    bytes: u64,
}

impl Queue {
    fn push(&mut self, packets: &mut Packets, id: PacketId) {
        self.packets += 1;
        self.bytes += u64::from(packets.get(id).wire);
        self.fifo.push(packets, id);
    }

    fn left(&mut self, packets: &Packets, id: PacketId) -> PacketId {
        self.packets -= 1;
        self.bytes -= u64::from(packets.get(id).wire);
        id
    }

    fn pop(&mut self, packets: &Packets) -> Option<PacketId> {
        let id = self.fifo.pop(packets)?;
        Some(self.left(packets, id))
    }
}

/// Holds four packets and any number of headers. Cuts the payload off the packet that waits last, and queues the
/// arriving one.
#[derive(Debug)]
struct Trimming {
    data: Vec<Queue>,
    headers: Vec<Queue>,
}

impl Switch for Trimming {
    fn enqueue(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId, output: u16) -> Verdict {
        let (data, headers) = (&mut self.data[usize::from(output)], &mut self.headers[usize::from(output)]);
        if data.packets == 4 {
            let victim = data.fifo.pop_back(ctx.packets).expect("four wait");
            data.left(ctx.packets, victim);
            ctx.trim(victim, output);
            headers.push(ctx.packets, victim);
        }
        data.push(ctx.packets, id);
        Verdict::Queued
    }

    fn dequeue(&mut self, ctx: &mut SwitchCtx<'_>, output: u16, _: Priorities) -> Dequeue {
        let [headers, data] = [&mut self.headers, &mut self.data].map(|queues| &mut queues[usize::from(output)]);
        headers.pop(ctx.packets).or_else(|| data.pop(ctx.packets)).map_or(Dequeue::Idle, Dequeue::Packet)
    }

    fn backlog(&self, output: u16) -> u64 {
        self.data[usize::from(output)].bytes + self.headers[usize::from(output)].bytes
    }
}

#[test]
fn a_switch_trims_packets_that_it_admitted_before() {
    let trimming = SwitchConfig::custom(|_, ports| {
        let queues = vec![Queue::default(); ports.len()];
        Box::new(Trimming { data: queues.clone(), headers: queues })
    });
    let net =
        finish(net(star(&[40 * G; 3]), trimming, vec![vec![all_at_once(2, 50)], vec![all_at_once(2, 50)], vec![]]));
    let (t, r) = (net.totals(), net.endpoint(2).received());
    assert_eq!((r.packets, t.dropped_packets), (100, 0));
    assert!(t.trimmed_packets > 20 && r.trimmed == t.trimmed_packets, "{t:?}");
    assert_eq!(t.trimmed_bytes, t.trimmed_packets * (WIRE - 70), "all but 46 around, BTH, DETH and ICRC");
    assert_eq!(r.bytes + t.trimmed_bytes, 100 * WIRE);
    let by_port: Vec<u64> = net.links().map(|l| l.counters.trimmed).collect();
    assert_eq!(by_port.iter().sum::<u64>(), t.trimmed_packets);
    let towards = net.links().find(|l| (l.from, l.to) == (3, 2)).unwrap();
    assert_eq!(towards.counters.trimmed, t.trimmed_packets, "at the output that is too slow");
}

/// Least slack first; gives up the packet with the most.
#[derive(Debug, Default)]
struct BySlack(Vec<(i64, PacketId)>);

impl Scheduler for BySlack {
    fn push(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId) {
        let slack = ctx.packets.get(id).slack;
        let at = self.0.partition_point(|(other, _)| *other <= slack);
        self.0.insert(at, (slack, id));
    }

    fn pop(&mut self, ctx: &mut SwitchCtx<'_>, paused: Priorities) -> Option<PacketId> {
        let at = self.0.iter().position(|&(_, id)| !paused.contains(ctx.packets.get(id).priority))?;
        Some(self.0.remove(at).1)
    }

    fn evict(&mut self, ctx: &mut SwitchCtx<'_>, arriving: PacketId) -> Option<PacketId> {
        let worse = |(slack, _): &&(i64, PacketId)| *slack > ctx.packets.get(arriving).slack;
        self.0.last().filter(worse)?;
        self.0.pop().map(|(_, id)| id)
    }
}

#[test]
fn a_scheduler_of_ones_own_pushes_out_what_was_admitted() {
    let delivered = |scheduler: Option<CustomScheduler>| {
        let SwitchConfig::SharedBuffer(buffer) = shared(10 * WIRE, 1e6, None) else { unreachable!() };
        let switch = SwitchConfig::SharedBuffer(with! { scheduler: scheduler.clone(), ..buffer.clone() });
        // The patient packets come earlier.
        let mut patient = all_at_once(2, 100);
        patient.slack = 1_000_000;
        let mut urgent = all_at_once(3, 100);
        urgent.start = 1_000;
        let streams = vec![vec![patient], vec![urgent], vec![], vec![]];
        // Hosts 2 and 3 are behind one slow link.
        let slow = network(
            4,
            2,
            &[(0, 4, 40 * G, 0), (1, 4, 40 * G, 0), (4, 5, 10 * G, 0), (2, 5, 40 * G, 0), (3, 5, 40 * G, 0)],
        );
        let net = finish(net(slow, switch, streams));
        let received = [2, 3].map(|host| net.endpoint(host).received().packets);
        let t = net.totals();
        assert_eq!(received.iter().sum::<u64>() + t.dropped_packets, 200);
        let dropped: Vec<u64> = net.ports().iter().map(|p| p.counters.dropped).collect();
        assert_eq!(dropped.iter().sum::<u64>(), t.dropped_packets, "each at the port by which it came");
        received
    };
    let fifo = delivered(None);
    let by_slack = delivered(Some(CustomScheduler::new(|_: &Port| Box::new(BySlack::default()))));
    assert!(by_slack[1] > fifo[1] + 5 && by_slack[0] < fifo[0], "{by_slack:?} {fifo:?}");
}

/// A switch of the library that tells the sender of each packet that meets more than two full packets, and lengthens
/// every packet by a tag of two bytes.
#[derive(Debug)]
struct Telling(SharedBuffer);

impl Switch for Telling {
    fn enqueue(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId, output: u16) -> Verdict {
        let (packet, content) = (*ctx.packets.get(id), ctx.packets.content(id).clone());
        if self.0.backlog(output) > 2 * WIRE && packet.priority < 7 {
            let mut notice = Packet::new(64, host_of(content.path.src), packet.entropy, 7);
            notice.input = output;
            ctx.emit(notice, Content { payload: 0, ..content }, Via::Route);
        }
        ctx.grow(id, 2);
        self.0.enqueue(ctx, id, output)
    }

    irnic_fabric::forward_switch!(0: dequeue, backlog, prefetch, flush);
}

#[test]
fn a_switch_sends_packets_of_its_own_and_tags_those_of_others() {
    let SwitchConfig::SharedBuffer(config) = shared(DEEP, 1e6, None) else { unreachable!() };
    let telling = SwitchConfig::custom(move |_, ports| Box::new(Telling(SharedBuffer::new(&config, ports))));
    let net =
        finish(net(star(&[40 * G; 3]), telling, vec![vec![all_at_once(2, 40)], vec![all_at_once(2, 40)], vec![]]));
    let t = net.totals();
    let [a, b, sink] = [0, 1, 2].map(|host| *net.endpoint(host).received());
    assert_eq!((sink.packets, sink.bytes), (80, 80 * (WIRE + 2)));
    // Two arrive for each that leaves: of 80, all but the first few meet more than two.
    assert!(t.emitted_packets > 60 && t.emitted_packets == a.packets + b.packets, "{t:?}");
    assert_eq!(t.emitted_bytes, 64 * t.emitted_packets);
    assert_eq!(t.grown_bytes, 2 * (80 + t.emitted_packets), "notices pass the switch like others");
    assert_eq!((t.injected_packets, t.delivered_packets), (80, 80 + t.emitted_packets));
}

/// Sends to another switch only what that has credit for, and gives credit for what leaves it.
#[derive(Debug)]
struct Credits {
    queues: Vec<Queue>,
    /// By output, packets that the other end has room for; hosts take everything.
    credits: Vec<u32>,
    is_host: Vec<bool>,
}

const ROOM: u32 = 3;

impl Switch for Credits {
    fn enqueue(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId, output: u16) -> Verdict {
        let queue = &mut self.queues[usize::from(output)];
        queue.push(ctx.packets, id);
        let counters = &mut ctx.ports[usize::from(output)].counters;
        counters.peak = counters.peak.max(queue.bytes);
        Verdict::Queued
    }

    fn dequeue(&mut self, ctx: &mut SwitchCtx<'_>, output: u16, _: Priorities) -> Dequeue {
        let out = usize::from(output);
        if self.credits[out] == 0 {
            return Dequeue::Idle;
        }
        let Some(id) = self.queues[out].pop(ctx.packets) else { return Dequeue::Idle };
        if !self.is_host[out] {
            self.credits[out] -= 1;
        }
        let input = ctx.packets.get(id).input;
        if !self.is_host[usize::from(input)] {
            ctx.control(input, Control::Credit { queue: 0, bytes: WIRE as u32 });
        }
        Dequeue::Packet(id)
    }

    fn backlog(&self, output: u16) -> u64 {
        self.queues[usize::from(output)].bytes
    }

    fn on_control(&mut self, _: &mut SwitchCtx<'_>, port: u16, control: Control) {
        let Control::Credit { bytes, .. } = control else { panic!("{control:?}") };
        self.credits[usize::from(port)] += bytes / WIRE as u32;
    }
}

#[test]
fn switches_tell_each_other_what_they_like() {
    // Hosts 0 and 1 at switch 2 and 3, in a row; the last link is slow.
    let line = network(2, 2, &[(0, 2, 40 * G, 1_000), (2, 3, 40 * G, 1_000), (3, 1, 10 * G, 1_000)]);
    let by_credit = SwitchConfig::custom(|node, ports| {
        // Port 0 of switch 2 and port 1 of switch 3 lead to hosts.
        let is_host: Vec<bool> = (0..ports.len()).map(|port| port == usize::from(node == 3)).collect();
        let credits = vec![ROOM; ports.len()];
        Box::new(Credits { queues: vec![Queue::default(); ports.len()], credits, is_host })
    });
    let net = finish(net(line, by_credit, vec![vec![all_at_once(1, 60)], vec![]]));
    assert_eq!(net.endpoint(1).received().packets, 60);
    assert_eq!(net.totals().control_frames, 60, "a credit for each packet");
    let peak = |from, to| net.links().find(|l| (l.from, l.to) == (from, to)).unwrap().counters.peak;
    assert!(peak(3, 1) <= u64::from(ROOM) * WIRE && peak(2, 3) > 40 * WIRE, "{} {}", peak(3, 1), peak(2, 3));
}

/// Lets a packet go every 10 µs, by a timer, and goes on keeping time when none is left.
#[derive(Debug)]
struct Ticking {
    queues: Vec<Queue>,
    may_go: VecDeque<u16>,
    running: bool,
}

const TICK: u64 = 10_000;

impl Switch for Ticking {
    fn enqueue(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId, output: u16) -> Verdict {
        if !std::mem::replace(&mut self.running, true) {
            // Of two the earlier counts.
            ctx.wake_at(ctx.now + 2 * TICK);
            ctx.wake_at(ctx.now + TICK);
        }
        self.queues[usize::from(output)].push(ctx.packets, id);
        Verdict::Queued
    }

    fn dequeue(&mut self, ctx: &mut SwitchCtx<'_>, output: u16, _: Priorities) -> Dequeue {
        match self.may_go.front() {
            Some(&next) if next == output => {
                self.may_go.pop_front();
                self.queues[usize::from(output)].pop(ctx.packets).map_or(Dequeue::Idle, Dequeue::Packet)
            }
            _ => Dequeue::Idle,
        }
    }

    fn backlog(&self, output: u16) -> u64 {
        self.queues[usize::from(output)].bytes
    }

    fn on_timer(&mut self, ctx: &mut SwitchCtx<'_>) {
        self.may_go.extend((0..self.queues.len() as u16).find(|o| self.queues[usize::from(*o)].packets > 0));
        ctx.wake_at(ctx.now + TICK);
    }
}

#[test]
fn a_switch_keeps_time() {
    let ticking = SwitchConfig::custom(|_, ports| {
        let (queues, may_go) = (vec![Queue::default(); ports.len()], VecDeque::new());
        Box::new(Ticking { queues, may_go, running: false })
    });
    // The watch finds out that nothing is left to do although the timer goes on for ever.
    let net = finish(net(star(&[40 * G; 2]), ticking, vec![vec![all_at_once(1, 5)], vec![]]));
    // The first is there at 1250; it and four more go 10 µs apart, take 250 ns and 1 µs.
    assert_eq!(net.endpoint(1).received().last, 1_250 + 5 * TICK + 1_250);
}

/// A switch of the library.
/// Lets packets of flow 1 go by output 2, one every 5 µs, wherever they stand in the queues of the switch within, and
/// no others.
#[derive(Debug)]
struct Escaping {
    inner: Box<dyn Switch>,
    /// Whether the timer has allowed a packet of output 2.
    may_escape: bool,
}

impl Switch for Escaping {
    fn enqueue(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId, output: u16) -> Verdict {
        if output == 2 && self.backlog(2) == 0 {
            ctx.wake_at(ctx.now + 5_000);
        }
        self.inner.enqueue(ctx, id, output)
    }

    fn dequeue(&mut self, ctx: &mut SwitchCtx<'_>, output: u16, paused: Priorities) -> Dequeue {
        if output != 2 {
            return self.inner.dequeue(ctx, output, paused);
        }
        if !std::mem::take(&mut self.may_escape) {
            return Dequeue::Idle;
        }
        // Slack is a number of the flow here.
        let id = self.inner.extract(ctx, 2, &mut |packets, id| packets.get(id).slack == 1);
        id.map_or(Dequeue::Idle, Dequeue::Packet)
    }

    fn backlog(&self, output: u16) -> u64 {
        self.inner.backlog(output)
    }

    fn on_timer(&mut self, ctx: &mut SwitchCtx<'_>) {
        self.may_escape = true;
        ctx.wake_at(ctx.now + 5_000);
    }
}

#[test]
fn a_switch_takes_packets_out_of_the_middle_of_a_librarys_queues() {
    for input in [true, false] {
        let escaping = SwitchConfig::custom(move |_, ports| {
            let inner: Box<dyn Switch> = if input {
                Box::new(InputQueued::new(&InputQueuedConfig::new(DEEP), ports))
            } else {
                Box::new(SharedBuffer::new(&SharedBufferConfig::new(DEEP, WIRE as u32), ports))
            };
            Box::new(Escaping { inner, may_escape: false })
        });
        // Host 0 sends packets of flow 0 and then of flow 1 to host 2; those of flow 1 escape, and those of flow 0
        // stay.
        let [first, mut second] = [all_at_once(2, 6), all_at_once(2, 4)];
        second.slack = 1;
        second.priority = 3;
        let streams = vec![vec![first, second], vec![], vec![]];
        let hosts = streams.into_iter().map(|streams| Generator::new(streams, 1)).collect();
        let mut net = Network::new(NetworkConfig::new(star(&[40 * G; 3]), escaping), hosts, ()).unwrap();
        net.run_until(100_000);
        net.check().unwrap();
        assert_eq!((net.endpoint(2).received().packets, net.backlog()), (4, (6 * WIRE, 6 * WIRE)));
    }
}
