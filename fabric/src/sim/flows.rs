//! The application on all servers: starts flows when it is time and notes when they end.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use irnic_nic::Mr;
use irnic_transports::Path;

use super::endpoint::{MESSAGE, Remote};
use super::{FlowRecord, LOOP, Net, Observed, QpPolicy, QpSetup, SimConfig, SimError};
use crate::network::{Routing, address, mix};
use crate::workload::{Flow, Loops};

/// A pair of connected queue pairs.
#[derive(Debug)]
struct Connection {
    /// Numbers at source and destination.
    qps: [u32; 2],
    /// Messages posted whose flows are not yet acknowledged.
    posted: u32,
    /// Flows that find no room in the send queue.
    backlog: VecDeque<u32>,
}

/// Memory of a flow whose bytes are real.
#[derive(Debug)]
struct Memory {
    source: Mr,
    sink: Mr,
}

/// The flows of a run, their queue pairs and what became of them.
#[derive(Debug)]
pub(super) struct Flows {
    flows: Vec<Flow>,
    pub(super) records: Vec<FlowRecord>,
    /// Flows whose start was known before the run: those of closed loops come after them.
    listed: usize,
    /// The listed flow that starts next.
    next: usize,
    /// The flow that started last.
    newest: Option<u32>,
    loops: Vec<Loops>,
    /// When the next flow of a connection starts: time, loop and connection. None of those with a flow under way.
    to_come: BinaryHeap<Reverse<(u64, u32, u32)>>,
    /// Loop and connection of each flow that is not listed.
    of_loop: Vec<(u32, u32)>,
    /// Flows that are acknowledged.
    pub(super) done: usize,
    connections: Vec<Connection>,
    free: Vec<u32>,
    /// Connection of each flow that is under way.
    of_flow: Vec<u32>,
    /// With queue pairs reused: by source, destination and setup.
    by_pair: BTreeMap<(u32, u32, u16), u32>,
    memory: BTreeMap<u32, Memory>,
    policy: QpPolicy,
    carry: bool,
    setups: Vec<QpSetup>,
    /// Messages that a send queue of several flows holds.
    depth: u32,
}

/// Messages that may be in one send queue, with queue pairs reused; more, if one flow has more.
const SHARED_DEPTH: u32 = 64;

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
            to_come: BinaryHeap::new(),
            of_loop: Vec::new(),
            done: 0,
            connections: Vec::new(),
            free: Vec::new(),
            of_flow: vec![u32::MAX; n],
            by_pair: BTreeMap::new(),
            memory: BTreeMap::new(),
            policy: config.qps,
            carry: config.carry_bytes,
            setups: config.setups.clone(),
            depth: config.longest_flows().map(|(_, bytes)| messages(bytes)).fold(SHARED_DEPTH, u32::max),
        }
    }

    /// Most completions that one packet can lead to: all of both queues of its queue pair.
    pub(super) fn completions(&self) -> u32 {
        2 * self.depth
    }

    pub(super) fn len(&self) -> usize {
        self.flows.len()
    }

    /// Flows that have started and are not complete.
    pub(super) fn active(&self) -> u32 {
        (self.next + self.of_loop.len() - self.done) as u32
    }

    pub(super) fn flow(&self, flow: usize) -> &Flow {
        &self.flows[flow]
    }

    /// The flow that started last, and the queue pairs at its ends, each with its host.
    pub(super) fn newest(&self) -> Option<(u32, [(u32, u32); 2])> {
        let id = self.newest?;
        let flow = &self.flows[id as usize];
        let [source, sink] = self.connections[self.of_flow[id as usize] as usize].qps;
        Some((id, [(flow.src, source), (flow.dst, sink)]))
    }

    /// When the next listed flow starts, ns.
    pub(super) fn next_start(&self) -> Option<u64> {
        self.flows[..self.listed].get(self.next).map(|f| f.start)
    }

    /// Starts the next listed flow if it is time; returns its source.
    pub(super) fn start_next(&mut self, config: &SimConfig, net: &mut Net) -> Result<Option<u32>, SimError> {
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

    /// Flows in all, as far as one can say.
    pub(super) fn expected(&self, now: u64) -> usize {
        let begun = self.of_loop.len();
        let last = |loops: &Loops| match loops.end() {
            u64::MAX => begun + loops.left() as usize,
            end => (begun as u128 * u128::from(end) / u128::from(now.clamp(1, end))) as usize,
        };
        self.listed + self.loops.iter().map(last).max().unwrap_or(0).max(begun)
    }

    /// Sees to it that the first flow of each connection of the closed loops starts.
    pub(super) fn begin_loops(&mut self, net: &mut Net) {
        for of in 0..self.loops.len() {
            for connection in 0..self.loops[of].pairs().count() as u32 {
                let first = self.loops[of].first(connection);
                self.comes(of as u32, connection, first, net);
            }
        }
    }

    /// The next flow of a connection starts at a time, if there is one.
    fn comes(&mut self, of: u32, connection: u32, at: Option<u64>, net: &mut Net) {
        if let Some(at) = at {
            self.to_come.push(Reverse((at, of, connection)));
            net.call_at(at, LOOP);
        }
    }

    /// Starts the next flow of a closed loop if it is time; returns its source.
    pub(super) fn start_of_loop(&mut self, config: &SimConfig, net: &mut Net) -> Result<Option<u32>, SimError> {
        while let Some(&Reverse((at, of, connection))) = self.to_come.peek().filter(|next| next.0.0 <= net.now()) {
            self.to_come.pop();
            if let Some(flow) = self.loops[of as usize].start(connection, at) {
                let id = self.flows.len() as u32;
                self.flows.push(flow);
                self.records.push(FlowRecord::default());
                self.of_flow.push(u32::MAX);
                self.of_loop.push((of, connection));
                return self.start(id, config, net).map(Some);
            }
        }
        Ok(None)
    }

    /// All flows and what became of them and of what was observed, by start, those of the same time by sender.
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
    fn start(&mut self, id: u32, config: &SimConfig, net: &mut Net) -> Result<u32, SimError> {
        let flow = self.flows[id as usize];
        self.newest = Some(id);
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

    fn connect(&mut self, id: u32, flow: &Flow, config: &SimConfig, net: &mut Net) -> Result<u32, SimError> {
        let depth = match self.policy {
            QpPolicy::PerFlow => messages(flow.bytes),
            QpPolicy::Reused => self.depth,
        };
        let mut setup = QpSetup { depth, ..self.setups[usize::from(flow.setup)] };
        let (src, dst) = (flow.src, flow.dst);
        if let Some(pull) = &mut setup.transport.pull
            && pull.paths == 0
        {
            // Senders choose among ways only where the network lets them.
            let ways = if config.routing == Routing::Source { net.routes().ways(src, dst) } else { 1 };
            pull.paths = ways.clamp(1, 256) as u16;
        }
        let qps = [net.endpoint_mut(src).create_qp(&setup)?, net.endpoint_mut(dst).create_qp(&setup)?];
        let ports = mix(id ^ mix(config.seed as u32 ^ 0x9e37_79b9));
        let path = |from, to, udp_src: u32| Path {
            src: address(from),
            dst: address(to),
            udp_src: 0xc000 | (udp_src & 0x3fff) as u16,
            traffic_class: flow.priority << 5 | if config.ect { 2 } else { 0 },
            hop_limit: 64,
        };
        net.endpoint_mut(src).connect(qps[0], &setup, path(src, dst, ports), qps[1])?;
        net.endpoint_mut(dst).connect(qps[1], &setup, path(dst, src, ports >> 14), qps[0])?;
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

    fn post(&mut self, id: u32, net: &mut Net) -> Result<(), SimError> {
        let flow = self.flows[id as usize];
        let connection = &mut self.connections[self.of_flow[id as usize] as usize];
        connection.posted += messages(flow.bytes);
        let [source, sink] = connection.qps;
        let mut to = net.endpoint_mut(flow.dst).remote();
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
        net.endpoint_mut(flow.dst).expect(sink, id)?;
        let local = self.memory.get(&id).map(|m| &m.source);
        net.endpoint_mut(flow.src).post(source, id, flow.bytes, to, local)?;
        Ok(())
    }

    /// The sender gives a flow up, unless it is complete: its queue pair is gone, and what is under way is the last
    /// that comes.
    pub(super) fn quit(&mut self, id: u32, net: &mut Net) -> Result<(), SimError> {
        let record = &mut self.records[id as usize];
        if record.acknowledged.is_none() {
            let source = self.connections[self.of_flow[id as usize] as usize].qps[0];
            let nic = &mut net.endpoint_mut(self.flows[id as usize].src).nic;
            record.note(nic, source);
            nic.destroy_qp(source)?;
        }
        Ok(())
    }

    /// The next flow that waits for room in a send queue, if there is enough now.
    fn fitting(&mut self, connection: u32) -> Option<u32> {
        let c = &mut self.connections[connection as usize];
        let room = self.depth - c.posted;
        let fits = c.backlog.front().is_some_and(|next| messages(self.flows[*next as usize].bytes) <= room);
        if fits { c.backlog.pop_front() } else { None }
    }

    /// Connections whose queue pairs exist.
    pub(super) fn open_connections(&self) -> usize {
        self.connections.len() - self.free.len()
    }

    /// The receiver has all of a flow.
    pub(super) fn delivered(&mut self, id: u32, now: u64, net: &mut Net) -> Result<(), SimError> {
        self.records[id as usize].delivered = Some(now);
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
        Ok(())
    }

    /// The sender knows that the receiver has all of a flow.
    pub(super) fn acknowledged(&mut self, id: u32, now: u64, net: &mut Net) -> Result<(), SimError> {
        self.records[id as usize].acknowledged = Some(now);
        self.done += 1;
        let flow = self.flows[id as usize];
        let place = self.of_flow[id as usize];
        if let Some(&(of, connection)) = (id as usize).checked_sub(self.listed).and_then(|at| self.of_loop.get(at)) {
            let next = self.loops[of as usize].next(connection, now);
            self.comes(of, connection, next, net);
        }
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
                net.endpoint_mut(flow.dst).nic.destroy_qp(sink)?;
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
