//! Switches whose buffers, queues and schedulers a policy describes ([`irnic_openqueue`], `docs/openqueue.md`).

mod config;
mod known;
mod successive;

pub use config::PolicySwitch;
use successive::Successive;

use irnic_openqueue::{Engine, Host, Plan, Seen, Surroundings, Verdict as Admission, Waiting};
use irnic_transports::Colour;
use rand::RngExt;

use super::buffer::count_drop;
use super::{Dequeue, Switch, SwitchCtx, Verdict, headroom};
use crate::network::{PacketId, Packets, Pause, Port};
use crate::prefetch::fetch;
use crate::priorities::Priorities;

/// A switch that runs a plan.
#[derive(Debug)]
pub struct Planned {
    engine: Engine,
    reads_dscp: bool,
    /// Whether the policy counts red packets.
    counts_red: bool,
    /// The wake-up last requested for packets that move between inner queues, ns.
    wakes: u64,
}

impl Planned {
    /// An empty switch for packets of at most `longest` bytes on the wire, with this number of priorities in use.
    pub fn new(plan: &Plan, ports: &[Port], longest: u32, priorities: u8) -> Planned {
        Planned::around(plan, &Planned::surroundings(ports, longest, priorities))
    }

    fn surroundings(ports: &[Port], longest: u32, priorities: u8) -> Surroundings {
        Surroundings {
            rates: ports.iter().map(|port| port.rate).collect(),
            headroom: ports.iter().map(|port| headroom(port.rate, port.delay, longest)).collect(),
            priorities,
        }
    }

    fn around(plan: &Plan, surroundings: &Surroundings) -> Planned {
        Planned {
            engine: Engine::new(plan, surroundings),
            reads_dscp: plan.reads_dscp(),
            counts_red: plan.reads_red_sizes(),
            wakes: u64::MAX,
        }
    }
}

/// The network as a policy acts on it.
struct Doing<'c, 's> {
    ctx: &'c mut SwitchCtx<'s>,
    output: u16,
}

/// Packets of the network as a policy sees them in its queues.
struct Under<'p>(&'p Packets);

impl Waiting for Under<'_> {
    #[inline]
    fn next(&self, id: PacketId) -> PacketId {
        self.0.link(id)
    }

    #[inline]
    fn seen(&self, id: PacketId) -> Seen {
        let packet = self.0.get(id);
        let red = packet.colour() == Colour::Red;
        Seen { size: packet.wire, input: packet.input, priority: packet.priority, red }
    }
}

impl Waiting for Doing<'_, '_> {
    #[inline]
    fn next(&self, id: PacketId) -> PacketId {
        Under(self.ctx.packets).next(id)
    }

    #[inline]
    fn seen(&self, id: PacketId) -> Seen {
        Under(self.ctx.packets).seen(id)
    }
}

impl Host for Doing<'_, '_> {
    #[inline]
    fn set_next(&mut self, id: PacketId, next: PacketId) {
        self.ctx.packets.set_link(id, next);
    }

    #[inline]
    fn random(&mut self) -> u64 {
        self.ctx.rng.random()
    }

    #[inline]
    fn mark(&mut self, id: PacketId) {
        if self.ctx.packets.mark(id) {
            self.ctx.ports[usize::from(self.output)].counters.marked += 1;
        }
    }

    #[inline]
    fn pause(&mut self, input: u16, priority: u8, stop: bool) {
        self.ctx.request_pause(input, Pause { priority, stop });
    }

    fn turn_to(&mut self, output: u16) {
        self.output = output;
    }

    fn is_sending(&self, output: u16) -> bool {
        self.ctx.ports[usize::from(output)].is_busy(self.ctx.now)
    }

    #[inline]
    fn push_out(&mut self, id: PacketId) {
        self.ctx.drop(id);
    }

    #[inline]
    fn coin(&mut self) -> bool {
        self.ctx.rng.random()
    }

    fn can_trim(&self, id: PacketId) -> bool {
        !self.ctx.packets.get(id).is_control()
    }

    fn trim(&mut self, id: PacketId) -> Option<u32> {
        Some(self.ctx.trim(id, self.output))
    }

    fn turn_back(&mut self, id: PacketId) -> bool {
        let packet = self.ctx.packets.get(id);
        let goes = packet.is_trimmed() && !packet.is_returned();
        if goes {
            self.ctx.return_to_sender(id, self.output);
        }
        goes
    }
}

impl Planned {
    /// A packet in the form that policies see.
    #[inline]
    fn seen(&self, ctx: &SwitchCtx<'_>, id: PacketId, output: u16) -> irnic_openqueue::Packet {
        let packet = ctx.packets.get(id);
        irnic_openqueue::Packet {
            arrival: ctx.now,
            size: packet.wire,
            value: packet.priority.into(),
            processing: 1,
            slack: packet.slack,
            flow: u64::from(packet.src_qp) << 32 | u64::from(packet.entropy),
            input: packet.input,
            output,
            priority: packet.priority,
            dscp: if self.reads_dscp { ctx.packets.content(id).path.traffic_class >> 2 } else { 0 },
            control: packet.is_control(),
            red: packet.colour() == Colour::Red,
        }
    }

    #[inline(never)]
    fn count_colours(&self, ctx: &mut SwitchCtx<'_>, id: PacketId, output: u16, admission: Admission) {
        if admission == Admission::Dropped {
            count_drop(ctx, id, output);
        } else if let Some(peak) = self.engine.red_peak(output) {
            let counters = &mut ctx.ports[usize::from(output)].counters;
            counters.red_peak = counters.red_peak.max(peak);
        }
    }

    /// Moves packets that are due from queue to queue.
    #[inline]
    fn advance(&mut self, ctx: &mut SwitchCtx<'_>) {
        if self.engine.has_levels() {
            self.go_on(ctx);
        }
    }

    #[inline(never)]
    fn go_on(&mut self, ctx: &mut SwitchCtx<'_>) {
        let now = ctx.now;
        if let Some(at) = self.engine.advance(&mut Doing { ctx, output: 0 }, now)
            && at != self.wakes
        {
            self.wakes = at;
            ctx.wake_at(at);
        }
    }

    /// Counts the result of an arrival, and reports it to the network.
    #[inline]
    fn admitted(&self, ctx: &mut SwitchCtx<'_>, id: PacketId, output: u16, admission: Admission) -> Verdict {
        if self.counts_red {
            self.count_colours(ctx, id, output, admission);
        }
        let verdict = match admission {
            Admission::Queued | Admission::Returned => Verdict::Queued,
            Admission::Trimmed(cut) => Verdict::Trimmed { cut },
            Admission::Dropped => return Verdict::Dropped,
        };
        let counters = &mut ctx.ports[usize::from(output)].counters;
        counters.peak = counters.peak.max(self.engine.backlog(output));
        verdict
    }
}

impl Switch for Planned {
    #[inline]
    fn enqueue(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId, output: u16) -> Verdict {
        let packet = self.seen(ctx, id, output);
        let admission = self.engine.arrive(&mut Doing { ctx, output }, id, packet);
        let verdict = self.admitted(ctx, id, output, admission);
        self.advance(ctx);
        verdict
    }

    #[inline]
    fn dequeue(&mut self, ctx: &mut SwitchCtx<'_>, output: u16, paused: Priorities) -> Dequeue {
        let next = self.engine.depart(&mut Doing { ctx, output }, output, paused.bits());
        self.advance(ctx);
        next.map_or(Dequeue::Idle, Dequeue::Packet)
    }

    #[inline]
    fn backlog(&self, output: u16) -> u64 {
        self.engine.backlog(output)
    }

    fn on_timer(&mut self, ctx: &mut SwitchCtx<'_>) {
        self.wakes = u64::MAX;
        self.advance(ctx);
    }

    fn flush(&mut self, ctx: &mut SwitchCtx<'_>, output: u16, lost: &mut Vec<PacketId>) {
        self.engine.flush(&mut Doing { ctx, output }, output, lost);
        self.advance(ctx);
    }

    fn paused_upstreams(&self) -> Vec<(u16, u8)> {
        self.engine.stopped().collect()
    }

    fn blocks(&self, packets: &Packets, input: u16, priority: u8, output: u16) -> bool {
        self.engine.waits(&Under(packets), input, priority, output)
    }

    fn prefetch(&self, _packets: &Packets, id: PacketId, input: u16, output: u16) {
        let (port, queue) = self.engine.places_of_arrival(input, output);
        fetch(port);
        if let Some(queue) = queue {
            fetch(queue);
        }
        if let Some((item, later)) = self.engine.places_of_packet(id) {
            fetch(item);
            if let Some(later) = later {
                fetch(later);
            }
        }
    }

    fn prefetch_output(&self, packets: &Packets, output: u16, step: usize) {
        match step {
            0 => fetch(self.engine.place_of_port(output)),
            1 => {
                if let Some(queue) = self.engine.place_of_next_queue(&Under(packets), output) {
                    fetch(queue);
                }
            }
            _ => {
                if let Some(id) = self.engine.next_of(&Under(packets), output) {
                    fetch(packets.get(id));
                }
            }
        }
    }
}
