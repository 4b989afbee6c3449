//! The application on all servers: starts flows when they are due and records when they end.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use irnic_nic::Mr;
use irnic_transports::Path;

use super::endpoint::{MESSAGE, Remote};
use super::remote_flows::Answers;
use super::{FlowRecord, LOOP, Net, Observed, QpPolicy, QpSetup, SimConfig, SimError};
use crate::network::{Agenda, Part, Routing, address, mix};
use crate::workload::closed_loop::After;
use crate::workload::{Flow, Loops};

/// A pair of connected queue pairs.
#[derive(Debug)]
struct Connection {
    /// Queue pair numbers at source and destination.
    qps: [u32; 2],
    /// Posted messages whose flows are not yet acknowledged.
    posted: u32,
    /// Flows that do not fit the send queue yet.
    backlog: VecDeque<u32>,
}

/// Memory of a flow with real bytes.
#[derive(Debug)]
struct Memory {
    source: Mr,
    sink: Mr,
}

/// The flows of a run, their queue pairs and their records.
#[derive(Debug)]
pub(super) struct Flows {
    flows: Vec<Flow>,
    pub(super) records: Vec<FlowRecord>,
    /// Number of flows known before the run; those of closed loops follow them.
    listed: usize,
    /// The next listed flow to start.
    next: usize,
    /// The flow started last.
    newest: Option<u32>,
    loops: Vec<Loops>,
    /// Classes of flows that are requests.
    answered: Vec<u8>,
    /// Number of listed flows of those classes.
    requests: usize,
    /// Start times of the next flows of connections without a flow in progress: time, loop and connection. For a
    /// response, time, [`RESPONSE`] and its request.
    to_come: BinaryHeap<Reverse<(u64, u32, u32)>>,
    /// Loop and connection of each flow that is not listed; for a response [`RESPONSE`] and its request.
    of_loop: Vec<(u32, u32)>,
    /// Whether the successor of each of those has been scheduled.
    followed: Vec<bool>,
    /// Flows with their source in this part of the network: those started, and those acknowledged.
    begun: usize,
    pub(super) done: usize,
    /// Flows that have arrived at this part of the network.
    pub(super) arrived: usize,
    /// Existing queue pairs of this part that are not to be destroyed.
    pub(super) queue_pairs: usize,
    connections: Vec<Connection>,
    free: Vec<u32>,
    /// Connection of each flow in progress.
    of_flow: Vec<u32>,
    /// If queue pairs are reused: by source, destination and setup.
    by_pair: BTreeMap<(u32, u32, u16), u32>,
    memory: BTreeMap<u32, Memory>,
    policy: QpPolicy,
    carry: bool,
    handshake: bool,
    setups: Vec<QpSetup>,
    /// Number of messages that the send queue of a shared queue pair holds.
    depth: u32,
    /// In a part of a network: the state of the other parts.
    pub(super) others: Option<Others>,
}

/// A part's knowledge of flow ends in other parts of the network.
#[derive(Debug)]
pub(super) struct Others {
    /// Queue pair numbers, assigned before flows start.
    numbers: Arc<Numbers>,
    /// The next flow for which to create queue pairs.
    next: usize,
    /// Destinations of flows, by host.
    remotes: Arc<[Remote]>,
    answers: Arc<Answers>,
    /// Flows that have arrived here, to be reported to their senders in other parts.
    news: Vec<u32>,
    /// By flow, the number of announced packets.
    heard: Vec<u16>,
    /// Flows with an announced packet since the last [`Flows::resolve`].
    doubted: Vec<u32>,
    /// A flow that its sender has just found complete, while its receiver has not.
    acknowledged: Option<u32>,
}

/// Queue pair numbers at source and destination of each flow.
#[derive(Debug)]
pub(super) struct Numbers(Vec<[AtomicU32; 2]>);

impl Others {
    pub(super) fn new(numbers: Arc<Numbers>, remotes: Arc<[Remote]>, answers: Arc<Answers>) -> Others {
        Others {
            heard: vec![0; numbers.0.len()],
            numbers,
            next: 0,
            remotes,
            answers,
            news: Vec::new(),
            doubted: Vec::new(),
            acknowledged: None,
        }
    }
}

impl Numbers {
    /// For this many flows.
    pub(super) fn new(flows: usize) -> Numbers {
        Numbers((0..flows).map(|_| Default::default()).collect())
    }

    fn of(&self, flow: u32) -> [u32; 2] {
        self.0[flow as usize].each_ref().map(|number| number.load(Ordering::Relaxed))
    }
}

/// Number of messages that a send queue holds if queue pairs are reused; more, if one flow has more.
const SHARED_DEPTH: u32 = 64;

/// Marks a response to a request, in place of a closed loop.
const RESPONSE: u32 = u32::MAX;

fn messages(bytes: u64) -> u32 {
    bytes.div_ceil(MESSAGE).max(1) as u32
}

impl Flows {
    pub(super) fn new(config: &SimConfig) -> Flows {
        let n = config.flows.len();
        Flows {
            flows: config.flows.clone(),
            records: vec![FlowRecord::default(); n],
            listed: n,
            next: 0,
            newest: None,
            loops: config.loops.clone(),
            requests: config.flows.iter().filter(|flow| config.response_to(flow).is_some()).count(),
            answered: config.responses.iter().map(|response| response.class).collect(),
            to_come: BinaryHeap::new(),
            of_loop: Vec::new(),
            followed: Vec::new(),
            begun: 0,
            done: 0,
            arrived: 0,
            queue_pairs: 0,
            connections: Vec::new(),
            free: Vec::new(),
            of_flow: vec![u32::MAX; n],
            by_pair: BTreeMap::new(),
            memory: BTreeMap::new(),
            policy: config.qps,
            carry: config.carry_bytes,
            handshake: config.handshake,
            setups: config.setups.clone(),
            depth: config.longest_flows().map(|(_, bytes)| messages(bytes)).fold(SHARED_DEPTH, u32::max),
            others: None,
        }
    }

    /// Maximum number of completions caused by one packet: all of both queues of its queue pair.
    pub(super) fn completions(&self) -> u32 {
        2 * self.depth
    }

    pub(super) fn len(&self) -> usize {
        self.flows.len()
    }

    /// Flows with their source in this part of the network that have started and are not complete.
    pub(super) fn active(&self) -> u32 {
        (self.begun - self.done) as u32
    }

    pub(super) fn flow(&self, flow: usize) -> &Flow {
        &self.flows[flow]
    }

    /// The flow started last, and the queue pairs at its ends, each with its host.
    pub(super) fn newest(&self) -> Option<(u32, [(u32, u32); 2])> {
        let id = self.newest?;
        let flow = &self.flows[id as usize];
        let [source, sink] = self.connections[self.of_flow[id as usize] as usize].qps;
        Some((id, [(flow.src, source), (flow.dst, sink)]))
    }

    /// Start time of the next listed flow, ns.
    pub(super) fn next_start(&self) -> Option<u64> {
        self.flows[..self.listed].get(self.next).map(|f| f.start)
    }

    /// Starts the next listed flow if it is due; returns its source.
    pub(super) fn start_next(
        &mut self,
        config: &SimConfig,
        net: &mut Net<impl Agenda>,
    ) -> Result<Option<u32>, SimError> {
        if self.next_start().is_none_or(|start| start > net.now()) {
            return Ok(None);
        }
        self.next += 1;
        self.start(self.next as u32 - 1, config, net).map(Some)
    }

    /// Whether connections of closed loops wait for their next flow.
    pub(super) fn are_to_come(&self) -> bool {
        !self.to_come.is_empty()
    }

    /// Estimate of the total number of flows.
    pub(super) fn expected(&self, now: u64) -> usize {
        let begun = self.of_loop.len();
        let last = |loops: &Loops| match loops.end() {
            u64::MAX => begun + loops.left() as usize,
            end => (begun as u128 * u128::from(end) / u128::from(now.clamp(1, end))) as usize,
        };
        self.listed + self.requests + self.loops.iter().map(last).max().unwrap_or(0).max(begun)
    }

    /// Schedules the first flow of each connection of the closed loops.
    pub(super) fn begin_loops(&mut self, net: &mut Net<impl Agenda>) {
        for of in 0..self.loops.len() {
            for connection in 0..self.loops[of].pairs().count() as u32 {
                let first = self.loops[of].first(connection);
                self.comes(of as u32, connection, first, net);
            }
        }
    }

    /// Schedules the next flow of a connection, if there is one.
    fn comes(&mut self, of: u32, connection: u32, at: Option<u64>, net: &mut Net<impl Agenda>) {
        if let Some(at) = at {
            self.to_come.push(Reverse((at, of, connection)));
            net.call_at(at, LOOP);
        }
    }

    /// Starts the next flow of a closed loop if it is due; returns its source.
    pub(super) fn start_of_loop(
        &mut self,
        config: &SimConfig,
        net: &mut Net<impl Agenda>,
    ) -> Result<Option<u32>, SimError> {
        while let Some(&Reverse((at, of, connection))) = self.to_come.peek().filter(|next| next.0.0 <= net.now()) {
            self.to_come.pop();
            let (flow, called) = if of == RESPONSE {
                let Flow { src, dst, start, .. } = self.flows[connection as usize];
                let bytes = config.response_to(&self.flows[connection as usize]);
                let turned = Flow { src: dst, dst: src, start: at, ..self.flows[connection as usize] };
                (bytes.map(|bytes| Flow { bytes, ..turned }), Some(start))
            } else {
                (self.loops[of as usize].start(connection, at), None)
            };
            if let Some(flow) = flow {
                let id = self.flows.len() as u32;
                self.flows.push(flow);
                self.records.push(FlowRecord { called, ..FlowRecord::default() });
                self.of_flow.push(u32::MAX);
                self.of_loop.push((of, connection));
                self.followed.push(false);
                return self.start(id, config, net).map(Some);
            }
        }
        Ok(None)
    }

    /// All flows with their records and observations, by start, those of the same time by sender.
    pub(super) fn take(&mut self, observed: Option<&mut Observed>) -> (Vec<Flow>, Vec<FlowRecord>) {
        let (flows, records) = (std::mem::take(&mut self.flows), std::mem::take(&mut self.records));
        if self.of_loop.is_empty() {
            return (flows, records);
        }
        let mut order: Vec<usize> = (0..flows.len()).collect();
        order.sort_by_key(|at| (flows[*at].start, flows[*at].src));
        if let Some(observed) = observed {
            observed.bytes.resize(flows.len(), 0);
            observed.intervals.resize(flows.len(), Vec::new());
            observed.bytes = order.iter().map(|at| observed.bytes[*at]).collect();
            observed.intervals = order.iter().map(|at| std::mem::take(&mut observed.intervals[*at])).collect();
        }
        order.iter().map(|at| (flows[*at], records[*at])).unzip()
    }

    /// Starts a flow; returns its source.
    fn start(&mut self, id: u32, config: &SimConfig, net: &mut Net<impl Agenda>) -> Result<u32, SimError> {
        let flow = self.flows[id as usize];
        self.newest = Some(id);
        if !net.owns(flow.src) && !net.owns(flow.dst) {
            return Ok(flow.src);
        }
        self.begun += usize::from(net.owns(flow.src));
        let connection = match (self.policy, self.by_pair.get(&(flow.src, flow.dst, flow.setup))) {
            (QpPolicy::Reused, Some(&c)) => c,
            _ => self.connect(id, &flow, config, net)?,
        };
        self.of_flow[id as usize] = connection;
        let c = &mut self.connections[connection as usize];
        let full = !c.backlog.is_empty() || c.posted + messages(flow.bytes) > self.depth;
        if self.policy == QpPolicy::Reused && full {
            c.backlog.push_back(id);
        } else {
            self.post(id, net)?;
        }
        Ok(flow.src)
    }

    /// The setup of a flow's queue pairs.
    fn setup(&self, flow: &Flow, config: &SimConfig, net: &Net<impl Agenda>) -> QpSetup {
        let depth = match self.policy {
            QpPolicy::PerFlow => messages(flow.bytes) + u32::from(config.handshake),
            QpPolicy::Reused => self.depth,
        };
        let mut setup = QpSetup { depth, ..self.setups[usize::from(flow.setup)] };
        if let Some(pull) = setup.transport.discipline.pull_mut()
            && pull.paths == 0
        {
            // Senders choose among paths only if the network lets them.
            let ways = if config.routing == Routing::Source { net.routes().ways(flow.src, flow.dst) } else { 1 };
            pull.paths = ways.clamp(1, 256) as u16;
        }
        setup
    }

    /// In a part of a network: whether queue pairs must be created for flows that start before `until`, ns.
    pub(super) fn are_to_prepare(&self, until: u64) -> bool {
        let next = self.others.as_ref().and_then(|others| self.flows.get(others.next));
        next.is_some_and(|flow| flow.start < until)
    }

    /// News for other parts, to be returned by [`Self::give_back`].
    pub(super) fn take_news(&mut self) -> Vec<u32> {
        self.others.as_mut().map(|others| std::mem::take(&mut others.news)).unwrap_or_default()
    }

    /// Takes back the buffer of news that others have processed.
    pub(super) fn give_back(&mut self, mut news: Vec<u32>) {
        news.clear();
        if let Some(others) = &mut self.others {
            others.news = news;
        }
    }

    /// In a part of a network: creates its queue pairs of the flows that start before `until`, ns.
    pub(super) fn prepare(
        &mut self,
        until: u64,
        config: &SimConfig,
        net: &mut Net<impl Agenda>,
    ) -> Result<(), SimError> {
        let Some(mut others) = self.others.take() else { return Ok(()) };
        while let Some(flow) = self.flows.get(others.next).filter(|flow| flow.start < until) {
            for (end, host) in [flow.src, flow.dst].into_iter().enumerate() {
                if net.owns(host) {
                    let setup = self.setup(flow, config, net);
                    let number = net.endpoint_mut(host).create_qp(&setup)?;
                    others.numbers.0[others.next][end].store(number, Ordering::Relaxed);
                }
            }
            others.next += 1;
        }
        self.others = Some(others);
        Ok(())
    }

    fn connect(
        &mut self,
        id: u32,
        flow: &Flow,
        config: &SimConfig,
        net: &mut Net<impl Agenda>,
    ) -> Result<u32, SimError> {
        let setup = self.setup(flow, config, net);
        let (src, dst) = (flow.src, flow.dst);
        let qps = match &self.others {
            Some(others) => others.numbers.of(id),
            None => [net.endpoint_mut(src).create_qp(&setup)?, net.endpoint_mut(dst).create_qp(&setup)?],
        };
        let ports = mix(id ^ mix(config.seed as u32 ^ 0x9e37_79b9));
        let path = |from, to, udp_src: u32| Path {
            src: address(from),
            dst: address(to),
            udp_src: 0xc000 | (udp_src & 0x3fff) as u16,
            traffic_class: flow.priority << 5 | if config.ect { 2 } else { 0 },
            hop_limit: 64,
        };
        for (host, qp, path, peer) in
            [(src, qps[0], path(src, dst, ports), qps[1]), (dst, qps[1], path(dst, src, ports >> 14), qps[0])]
        {
            if net.owns(host) {
                net.endpoint_mut(host).connect(qp, &setup, path, peer)?;
                self.queue_pairs += 1;
            }
        }
        let connection = Connection { qps, posted: 0, backlog: VecDeque::new() };
        let place = match self.free.pop() {
            Some(place) => {
                self.connections[place as usize] = connection;
                place
            }
            None => {
                self.connections.push(connection);
                self.connections.len() as u32 - 1
            }
        };
        if self.policy == QpPolicy::Reused {
            self.by_pair.insert((src, dst, flow.setup), place);
        }
        Ok(place)
    }

    fn post(&mut self, id: u32, net: &mut Net<impl Agenda>) -> Result<(), SimError> {
        let flow = self.flows[id as usize];
        let connection = &mut self.connections[self.of_flow[id as usize] as usize];
        connection.posted += messages(flow.bytes);
        let [source, sink] = connection.qps;
        let mut to = match &self.others {
            Some(others) => others.remotes[flow.dst as usize],
            None => net.endpoint(flow.dst).remote(),
        };
        if self.carry {
            let memory = Memory {
                source: net.endpoint_mut(flow.src).memory(flow.bytes.max(1))?,
                sink: net.endpoint_mut(flow.dst).memory(flow.bytes.max(1))?,
            };
            to = Remote { addr: memory.sink.addr, rkey: memory.sink.rkey };
            if let Some(bytes) = net.endpoint_mut(flow.src).nic.bytes_mut(&memory.source) {
                (0u64..).zip(bytes).for_each(|(at, byte)| *byte = pattern(id, at));
            }
            self.memory.insert(id, memory);
        }
        if net.owns(flow.dst) {
            net.endpoint_mut(flow.dst).expect(sink, id)?;
        }
        if net.owns(flow.src) {
            let local = self.memory.get(&id).map(|m| &m.source);
            net.endpoint_mut(flow.src).post(source, id, flow.bytes, to, local, self.handshake)?;
        }
        Ok(())
    }

    /// Aborts a flow at the sender, unless it is complete: its queue pair is destroyed, and only packets in flight
    /// still arrive.
    pub(super) fn quit(&mut self, id: u32, net: &mut Net<impl Agenda>) -> Result<(), SimError> {
        let record = &mut self.records[id as usize];
        if record.acknowledged.is_none() && net.owns(self.flows[id as usize].src) {
            let source = self.connections[self.of_flow[id as usize] as usize].qps[0];
            let nic = &mut net.endpoint_mut(self.flows[id as usize].src).nic;
            record.note(nic, source);
            nic.destroy_qp(source)?;
            self.queue_pairs -= 1;
        }
        Ok(())
    }

    /// The next flow that waits for room in a send queue, if it fits now.
    fn fitting(&mut self, connection: u32) -> Option<u32> {
        let c = &mut self.connections[connection as usize];
        let room = self.depth - c.posted;
        let fits = c.backlog.front().is_some_and(|next| messages(self.flows[*next as usize].bytes) <= room);
        if fits { c.backlog.pop_front() } else { None }
    }

    /// Processes flows that have arrived in another part of the network: those sent from this one will be acknowledged.
    pub(super) fn hear(&mut self, news: &[u32], net: &mut Net<Part>) {
        for &flow in news {
            let Flow { src, dst, .. } = self.flows[flow as usize];
            if net.owns(src) && self.records[flow as usize].acknowledged.is_none() {
                let source = self.connections[self.of_flow[flow as usize] as usize].qps[0];
                net.part_mut().await_at(src);
                let remote = &mut net.endpoint_mut(src).remote_flows;
                remote.iter_mut().for_each(|remote| remote.expect(source, flow, dst));
            }
        }
    }

    /// Handles the announcement of a packet that reaches the sender of a flow and may acknowledge it.
    pub(super) fn announced(&mut self, flow: u32, net: &mut Net<impl Agenda>) {
        let Some(others) = &mut self.others else { return };
        others.heard[flow as usize] += 1;
        let n = others.heard[flow as usize];
        let place = self.of_flow[flow as usize];
        if place == u32::MAX {
            return;
        }
        others.doubted.push(flow);
        let sink = self.connections[place as usize].qps[1];
        let endpoint = net.endpoint_mut(self.flows[flow as usize].dst);
        if let Some(remote) = &mut endpoint.remote_flows {
            remote.doubt(sink, flow, n, &mut endpoint.nic);
        }
    }

    /// Settles the doubtful flows, once all parts have advanced as far as this one.
    pub(super) fn resolve(&mut self, net: &mut Net<impl Agenda>) {
        let Some(others) = &mut self.others else { return };
        while let Some(flow) = others.doubted.pop() {
            let place = self.of_flow[flow as usize];
            if place == u32::MAX {
                continue;
            }
            let sink = self.connections[place as usize].qps[1];
            let endpoint = net.endpoint_mut(self.flows[flow as usize].dst);
            if let Some(remote) = &mut endpoint.remote_flows {
                remote.resolve_all(&mut endpoint.nic);
            }
            if endpoint.nic.qp(sink).is_none() {
                self.queue_pairs -= 1;
                self.free.push(place);
                self.of_flow[flow as usize] = u32::MAX;
            }
        }
    }

    /// Answers announced packets that have arrived. Returns whether no flow was acknowledged except by one of those.
    pub(super) fn answer(&mut self, net: &mut Net<impl Agenda>) -> bool {
        while let Some((host, qpn)) = net.take_answered() {
            let Some(remote) = &mut net.endpoint_mut(host).remote_flows else { continue };
            if let (Some(flow), Some(others)) = (remote.flow_of(qpn), &mut self.others) {
                let complete = others.acknowledged == Some(flow);
                others.answers.say(flow, complete);
                if complete {
                    others.acknowledged = None;
                    remote.forget(flow);
                    net.stop_awaiting(host);
                }
            }
        }
        self.others.as_ref().is_none_or(|others| others.acknowledged.is_none())
    }

    /// Releases the parts that wait: none will continue.
    pub(super) fn give_up(&self) {
        self.others.iter().for_each(|others| others.answers.give_up());
    }

    /// Handles a flow whose receiver has all of it.
    pub(super) fn delivered(&mut self, id: u32, now: u64, net: &mut Net<impl Agenda>) -> Result<(), SimError> {
        self.records[id as usize].delivered = Some(now);
        self.arrived += 1;
        let flow = &self.flows[id as usize];
        if (id as usize) < self.listed && self.answered.contains(&flow.class) {
            self.comes(RESPONSE, id, Some(now), net);
        }
        if let Some(others) = &mut self.others
            && !net.owns(self.flows[id as usize].src)
        {
            others.news.push(id);
        }
        if let Some(memory) = self.memory.get(&id) {
            let nic = &net.endpoint(self.flows[id as usize].dst).nic;
            let bytes = nic.bytes(&memory.sink).unwrap_or_default();
            let intact = bytes.len() as u64 >= self.flows[id as usize].bytes
                && (0u64..)
                    .zip(bytes)
                    .take(self.flows[id as usize].bytes as usize)
                    .all(|(at, b)| *b == pattern(id, at));
            if !intact {
                return Err(SimError::Damaged(id));
            }
        }
        if self.is_open_loop(id) { self.left_behind(id, net) } else { Ok(()) }
    }

    /// Whether a flow's sender gets no acknowledgement.
    fn is_open_loop(&self, id: u32) -> bool {
        self.setups[usize::from(self.flows[id as usize].setup)].is_open_loop()
    }

    /// Handles the complete arrival of an open-loop flow, whose sender is already done.
    fn left_behind(&mut self, id: u32, net: &mut Net<impl Agenda>) -> Result<(), SimError> {
        self.done += 1;
        let flow = self.flows[id as usize];
        let place = self.of_flow[id as usize];
        if let Some(memory) = self.memory.remove(&id) {
            net.endpoint_mut(flow.src).nic.dereg_mr(&memory.source)?;
            net.endpoint_mut(flow.dst).nic.dereg_mr(&memory.sink)?;
        }
        let [_, sink] = self.connections[place as usize].qps;
        net.endpoint_mut(flow.dst).nic.destroy_qp(sink)?;
        self.queue_pairs -= 1;
        self.free.push(place);
        Ok(())
    }

    /// Handles the departure of a flow's last packet.
    pub(super) fn sent(&mut self, id: u32, now: u64, net: &mut Net<impl Agenda>) {
        self.over(id, After::Sent, now, net);
    }

    /// Handles one of the ends of a flow. If its loop continues on this one, schedules the next flow, once.
    fn over(&mut self, id: u32, what: After, now: u64, net: &mut Net<impl Agenda>) {
        let Some(at) = (id as usize).checked_sub(self.listed) else { return };
        let Some(&(of, connection)) = self.of_loop.get(at) else { return };
        if of != RESPONSE && self.loops[of as usize].after() == what && !std::mem::replace(&mut self.followed[at], true)
        {
            let next = self.loops[of as usize].next(connection, now);
            self.comes(of, connection, next, net);
        }
    }

    /// Handles a flow whose sender knows that the receiver has all of it, or, if open-loop, has sent all of it.
    pub(super) fn acknowledged(&mut self, id: u32, now: u64, net: &mut Net<impl Agenda>) -> Result<(), SimError> {
        self.records[id as usize].acknowledged = Some(now);
        let flow = self.flows[id as usize];
        let place = self.of_flow[id as usize];
        self.over(id, After::Acknowledged, now, net);
        if self.is_open_loop(id) {
            let [source, _] = self.connections[place as usize].qps;
            net.endpoint_mut(flow.src).nic.destroy_qp(source)?;
            self.queue_pairs -= 1;
            return Ok(());
        }
        self.done += 1;
        if let Some(memory) = self.memory.remove(&id) {
            net.endpoint_mut(flow.src).nic.dereg_mr(&memory.source)?;
            net.endpoint_mut(flow.dst).nic.dereg_mr(&memory.sink)?;
        }
        let connection = &mut self.connections[place as usize];
        connection.posted -= messages(flow.bytes);
        match self.policy {
            QpPolicy::PerFlow => {
                let [source, sink] = connection.qps;
                self.records[id as usize].note(&net.endpoint(flow.src).nic, source);
                net.endpoint_mut(flow.src).nic.destroy_qp(source)?;
                self.queue_pairs -= 1;
                match &mut self.others {
                    Some(others) if !net.owns(flow.dst) => others.acknowledged = Some(id),
                    _ => {
                        net.endpoint_mut(flow.dst).nic.destroy_qp(sink)?;
                        self.queue_pairs -= 1;
                    }
                }
                self.free.push(place);
            }
            QpPolicy::Reused => {
                while let Some(next) = self.fitting(place) {
                    self.post(next, net)?;
                }
            }
        }
        Ok(())
    }
}

/// Byte `at` of a flow.
fn pattern(flow: u32, at: u64) -> u8 {
    (mix(flow ^ mix(at as u32 >> 2)) >> (8 * (at & 3))) as u8
}
