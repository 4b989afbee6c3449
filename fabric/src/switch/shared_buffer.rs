//! An output-queued switch whose ports share one buffer with dynamic thresholds (Choudhury and Hahne): what a queue may hold is α
//! times what is free. The switch of TLT (§7.1), HPCC and ConWeave.

use irnic_nic::prefetch::fetch;

use super::{Ecn, Pfc, Scheduling, Surroundings, Switch, Thresholds};
use crate::packet::{Fifo, PacketId, Packets};
use crate::port::Port;

/// Parameters of PFC in a shared buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedPfc {
    /// XOFF when an input's priority holds more than α times what is free.
    pub alpha: f64,
    /// Bytes that each input and priority has for itself before it takes from the shared part.
    pub reserve: u64,
    /// XON when it is so many bytes below the threshold again.
    pub resume: u64,
    /// Bytes for what is under way when XOFF is sent, for each input and priority in use; `None`: from the link's rate and delay
    /// and the longest packets ([`headroom`]).
    pub headroom: Option<u64>,
    /// Priorities in use, 1 to 8: for so many, reserve and headroom of each input are set aside.
    pub priorities: u8,
}

/// See [`SharedBuffer`].
#[derive(Clone, Debug, PartialEq)]
pub struct SharedBufferConfig {
    /// Bytes of buffer in all.
    pub buffer: u64,
    /// A queue holds at most α times what is free; with PFC there is no such limit.
    pub alpha: f64,
    /// PFC, by input and priority.
    pub pfc: Option<SharedPfc>,
    /// Bytes on the wire of the longest packet, for the headroom.
    pub longest: u32,
    /// Marking, by the bytes in the packet's queue.
    pub ecn: Ecn,
    /// Choice among priorities.
    pub scheduling: Scheduling,
}

const PRIORITIES: usize = 8;

/// Bytes of one priority that may need room beyond a threshold: what is sent while XOFF waits for the packet before it, is sent and
/// travels, behind those of other priorities; the packet that the neighbour has begun; what is on the link by then; and before all
/// that the packet at which XOFF is decided on, if other inputs have taken what it would have been let in by.
pub fn headroom(rate: u64, delay: u64, longest: u32) -> u64 {
    let flying = (u128::from(rate) * u128::from(2 * delay)).div_ceil(8_000_000_000) as u64;
    flying + 3 * u64::from(longest) + PRIORITIES as u64 * u64::from(crate::port::PFC_FRAME)
}

/// What waits for one output with one priority, and its bytes.
#[derive(Copy, Clone, Debug, Default)]
struct Queue {
    packets: Fifo,
    bytes: u64,
}

/// See the module.
#[derive(Debug)]
pub struct SharedBuffer {
    config: SharedBufferConfig,
    /// By output and priority.
    queues: Vec<Queue>,
    /// Bytes by output.
    outputs: Vec<u64>,
    priority_turn: Vec<u8>,
    /// Bytes by input and priority: in all, and of those in headroom.
    inputs: Vec<[u64; PRIORITIES]>,
    in_headroom: Vec<[u64; PRIORITIES]>,
    headroom: Vec<u64>,
    /// Bytes of inputs beyond their reserve, headroom apart.
    shared: u64,
    /// What of the buffer is shared.
    pool: u64,
    buffered: u64,
    pfc: Pfc,
}

impl SharedBuffer {
    /// An empty one.
    pub fn new(config: &SharedBufferConfig, ports: &[Port]) -> SharedBuffer {
        let n = ports.len();
        let headroom: Vec<u64> = ports
            .iter()
            .map(|p| match &config.pfc {
                None => 0,
                Some(pfc) => pfc.headroom.unwrap_or_else(|| self::headroom(p.rate, p.delay, config.longest)),
            })
            .collect();
        let reserve = config.pfc.as_ref().map_or(0, |p| p.reserve) * n as u64;
        let priorities = config.pfc.as_ref().map_or(0, |p| u64::from(p.priorities));
        SharedBuffer {
            pool: config.buffer.saturating_sub(priorities * (headroom.iter().sum::<u64>() + reserve)),
            config: config.clone(),
            queues: vec![Queue::default(); n * PRIORITIES],
            outputs: vec![0; n],
            priority_turn: vec![0; n],
            inputs: vec![[0; PRIORITIES]; n],
            in_headroom: vec![[0; PRIORITIES]; n],
            headroom,
            shared: 0,
            buffered: 0,
            pfc: Pfc::new(n),
        }
    }

    fn free(&self) -> u64 {
        self.pool.saturating_sub(self.shared)
    }

    fn update_pfc(&mut self, s: &mut Surroundings<'_>, input: u16, priority: u8) {
        let Some(pfc) = &self.config.pfc else { return };
        let (i, p) = (usize::from(input), usize::from(priority));
        let limit = pfc.reserve + (pfc.alpha * self.free() as f64) as u64;
        let at = Thresholds { xoff: limit, xon: limit.saturating_sub(pfc.resume) };
        // Headroom is only used beyond XOFF, and empty again before XON.
        let buffered = if self.in_headroom[i][p] > 0 { u64::MAX } else { self.inputs[i][p] };
        self.pfc.update(s, input, priority, buffered, at);
    }

    /// Finds room for a packet and books it.
    fn admit(&mut self, input: usize, priority: usize, output: u16, wire: u64) -> bool {
        let held = self.inputs[input][priority] - self.in_headroom[input][priority];
        match &self.config.pfc {
            None => {
                let queue = &self.queues[usize::from(output) * PRIORITIES + priority];
                let limit = (self.config.alpha * self.free() as f64) as u64;
                if queue.bytes + wire > limit || wire > self.free() {
                    return false;
                }
                self.shared += wire;
            }
            Some(pfc) => {
                let before = held.saturating_sub(pfc.reserve);
                let more = (held + wire).saturating_sub(pfc.reserve) - before;
                let limit = (pfc.alpha * self.free() as f64) as u64;
                if self.in_headroom[input][priority] == 0 && before <= limit && more <= self.free() {
                    self.shared += more;
                } else {
                    if self.in_headroom[input][priority] + wire > self.headroom[input] {
                        return false;
                    }
                    self.in_headroom[input][priority] += wire;
                }
            }
        }
        self.inputs[input][priority] += wire;
        self.buffered += wire;
        true
    }

    /// Gives back what a packet took: headroom first.
    fn release(&mut self, input: usize, priority: usize, wire: u64) {
        let from_headroom = self.in_headroom[input][priority].min(wire);
        self.in_headroom[input][priority] -= from_headroom;
        let rest = wire - from_headroom;
        let held = self.inputs[input][priority] - self.in_headroom[input][priority] - from_headroom;
        let reserve = self.config.pfc.as_ref().map_or(0, |p| p.reserve);
        self.shared -= held.saturating_sub(reserve) - (held - rest).saturating_sub(reserve);
        self.inputs[input][priority] -= wire;
        self.buffered -= wire;
    }

    fn take(&mut self, s: &mut Surroundings<'_>, output: u16, priority: u8) -> Option<PacketId> {
        let queue = &mut self.queues[usize::from(output) * PRIORITIES + usize::from(priority)];
        let id = queue.packets.pop(s.packets)?;
        let (wire, input) = (u64::from(s.packets.get(id).wire), s.packets.get(id).input);
        queue.bytes -= wire;
        self.outputs[usize::from(output)] -= wire;
        self.release(usize::from(input), usize::from(priority), wire);
        self.update_pfc(s, input, priority);
        Some(id)
    }
}

impl Switch for SharedBuffer {
    #[inline]
    fn arrive(&mut self, s: &mut Surroundings<'_>, id: PacketId, output: u16) -> bool {
        let (wire, input, priority) = {
            let p = s.packets.get(id);
            (u64::from(p.wire), p.input, p.priority)
        };
        if !self.admit(usize::from(input), usize::from(priority), output, wire) {
            return false;
        }
        let queue = usize::from(output) * PRIORITIES + usize::from(priority);
        if self.config.ecn.marks(self.queues[queue].bytes, s.chance) && s.packets.mark(id) {
            s.ports[usize::from(output)].counters.marked += 1;
        }
        self.queues[queue].packets.push(s.packets, id);
        self.queues[queue].bytes += wire;
        let waiting = &mut self.outputs[usize::from(output)];
        *waiting += wire;
        let counters = &mut s.ports[usize::from(output)].counters;
        counters.peak = counters.peak.max(*waiting);
        self.update_pfc(s, input, priority);
        true
    }

    #[inline]
    fn next(&mut self, s: &mut Surroundings<'_>, output: u16, stopped: u8) -> Option<PacketId> {
        let first = usize::from(output) * PRIORITIES;
        let waiting = |p: &u8| !self.queues[first + usize::from(*p)].packets.is_empty();
        let allowed = |p: &u8| stopped >> p & 1 == 0;
        let turn = self.priority_turn[usize::from(output)];
        let priority = match self.config.scheduling {
            Scheduling::Strict => (0..8).rev().find(|p| allowed(p) && waiting(p)),
            Scheduling::RoundRobin => (turn..8).chain(0..turn).find(|p| allowed(p) && waiting(p)),
        }?;
        self.priority_turn[usize::from(output)] = (priority + 1) % 8;
        self.take(s, output, priority)
    }

    fn queued(&self, output: u16) -> u64 {
        self.outputs[usize::from(output)]
    }

    fn buffered(&self) -> u64 {
        self.buffered
    }

    fn stopping(&self) -> Vec<(u16, u8)> {
        self.pfc.stopping()
    }

    fn waits(&self, packets: &Packets, input: u16, priority: u8, output: u16) -> bool {
        let queue = &self.queues[usize::from(output) * PRIORITIES + usize::from(priority)];
        queue.packets.iter(packets).any(|packet| packet.input == input)
    }

    fn fetch(&self, input: u16, output: u16) {
        fetch(&self.queues[usize::from(output) * PRIORITIES]);
        fetch(&self.outputs[usize::from(output)]);
        fetch(&self.inputs[usize::from(input)]);
    }

    fn flush(&mut self, s: &mut Surroundings<'_>, output: u16, each: &mut dyn FnMut(&mut Packets, PacketId)) {
        for priority in 0..PRIORITIES as u8 {
            while let Some(id) = self.take(s, output, priority) {
                each(s.packets, id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use irnic_transports::wire::{Bth, Headers, Opcode};
    use irnic_transports::{Path, Psn};
    use rand_pcg::Pcg64Mcg;

    use super::*;
    use crate::packet::{Content, Packet};

    fn packet(packets: &mut Packets, input: u16) -> PacketId {
        let address = crate::host::address(0);
        let path = Path { src: address, dst: address, udp_src: 0, traffic_class: 0, hop_limit: 64 };
        let headers = Headers::new(Bth::new(Opcode::RcSendOnly, 0, Psn::new(0)));
        let content = Content { headers, path, payload: 0, sent: 0, frame: None };
        let mut packet = Packet::new(100, 0, 0, 0);
        packet.input = input;
        packets.add(packet, content)
    }

    #[test]
    fn an_input_waits_for_the_outputs_that_its_own_packets_wait_for() {
        let config = SharedBufferConfig {
            buffer: 1 << 20,
            alpha: 1.0,
            pfc: None,
            longest: 1_000,
            ecn: Ecn::Off,
            scheduling: Scheduling::Strict,
        };
        let mut ports: Vec<Port> = (0..4).map(|local| Port::new(0, local, 0, 0, 1, 1, 0.0)).collect();
        let mut switch = SharedBuffer::new(&config, &ports);
        let (mut packets, mut chance, mut asks) = (Packets::default(), Pcg64Mcg::new(1), Vec::new());
        // By input 0 to output 2, by input 1 to output 3: both inputs and both outputs have packets.
        let ids = [(0, 2), (1, 3)].map(|(input, output)| (packet(&mut packets, input), output));
        let mut s = Surroundings {
            now: 0,
            packets: &mut packets,
            ports: &mut ports,
            chance: &mut chance,
            asks: &mut asks,
            again: None,
        };
        for (id, output) in ids {
            assert!(switch.arrive(&mut s, id, output));
        }
        let waits = |switch: &SharedBuffer, packets: &Packets| -> Vec<(u16, u16)> {
            let pairs = (0..4).flat_map(|input| (0..4).map(move |output| (input, output)));
            pairs.filter(|&(input, output)| switch.waits(packets, input, 0, output)).collect()
        };
        assert_eq!(waits(&switch, s.packets), [(0, 2), (1, 3)]);
        assert_eq!(switch.next(&mut s, 2, 0), Some(ids[0].0));
        assert_eq!(waits(&switch, s.packets), [(1, 3)]);
    }
}
