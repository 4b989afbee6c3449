//! A switch that trims: instead of dropping a packet that finds the queue full it cuts the payload off and forwards the
//! headers before everything else, so that the receiver soon knows what is missing (NDP §3.1).

use irnic_fabric::Priorities;
use irnic_fabric::network::{Fifo, PacketId, Packets, Port};
use irnic_fabric::switch::{CustomSwitch, Dequeue, Switch, SwitchCtx, Verdict};

/// Data packets that wait for an output at most (NDP §3.1).
const DATA: u32 = 8;
/// Headers that wait for an output at most: as many bytes as eight packets of 9 kB (NDP §3.2.4).
const HEADERS: u32 = 1_125;

/// A queue and what is in it.
#[derive(Clone, Debug, Default)]
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

    /// Takes the first packet, unless its priority is paused.
    fn pop(&mut self, packets: &Packets, paused: Priorities) -> Option<PacketId> {
        self.fifo.first().filter(|first| !paused.contains(packets.get(*first).priority))?;
        let id = self.fifo.pop(packets)?;
        self.packets -= 1;
        self.bytes -= u64::from(packets.get(id).wire);
        Some(id)
    }
}

/// What waits for one output: packets with payload, and headers and acknowledgements, which go first.
#[derive(Clone, Debug, Default)]
struct Output {
    data: Queue,
    headers: Queue,
}

/// A trimming switch.
#[derive(Debug)]
pub struct Trimming(Vec<Output>);

/// Makes the switches of a network.
pub fn factory() -> CustomSwitch {
    CustomSwitch::new(|_node: u32, ports: &[Port]| -> Box<dyn Switch> {
        Box::new(Trimming(vec![Output::default(); ports.len()]))
    })
}

impl Switch for Trimming {
    fn enqueue(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId, output: u16) -> Verdict {
        let Output { data, headers } = &mut self.0[usize::from(output)];
        let has_payload = ctx.packets.content(id).payload > 0;
        if has_payload && data.packets < DATA {
            data.push(ctx.packets, id);
            return Verdict::Queued;
        }
        if headers.packets == HEADERS {
            return Verdict::Dropped;
        }
        let cut = if has_payload { ctx.trim(id, output) } else { 0 };
        headers.push(ctx.packets, id);
        if has_payload { Verdict::Trimmed { cut } } else { Verdict::Queued }
    }

    fn dequeue(&mut self, ctx: &mut SwitchCtx<'_>, output: u16, paused: Priorities) -> Dequeue {
        let Output { data, headers } = &mut self.0[usize::from(output)];
        let next = headers.pop(ctx.packets, paused).or_else(|| data.pop(ctx.packets, paused));
        next.map_or(Dequeue::Idle, Dequeue::Packet)
    }

    fn backlog(&self, output: u16) -> u64 {
        let Output { data, headers } = &self.0[usize::from(output)];
        data.bytes + headers.bytes
    }
}
