//! RoCC's congestion points: a switch around another that computes the fair rate of each of its ports, and notifies the
//! flows that wait there ([`FairRate`]).

mod flows;

use std::net::{IpAddr, Ipv4Addr};

use irnic_transports::congestion::{FairRate, FairRateConfig};

use super::{Dequeue, Switch, SwitchCtx, Verdict};
use crate::network::{Control, Fifo, PacketId, Packets, Port, address};
use crate::priorities::Priorities;
pub use flows::FlowTable;
use flows::Flows;

/// Parameters of RoCC's congestion points. `None` stands for the paper's value at the rate of each link
/// ([`FairRateConfig::of_link`]).
#[derive(Copy, Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct RoccConfig {
    /// Q_ref, bytes.
    pub qref: Option<u64>,
    /// Q_mid, bytes. Default: scaled from Q_ref as in the paper.
    pub qmid: Option<u64>,
    /// Q_max, bytes. Default: scaled from Q_ref as in the paper.
    pub qmax: Option<u64>,
    /// ΔQ, bytes.
    pub chunk: Option<u64>,
    /// α̃.
    pub alpha: Option<f64>,
    /// β̃.
    pub beta: Option<f64>,
    /// T, ns, the same for all links.
    pub period: Option<u64>,
    /// Fractional bits of the rate.
    pub fraction: Option<u32>,
    /// Which flows are notified.
    pub table: FlowTable,
    /// Where rates are computed.
    pub compute: Compute,
}

/// Where the rates of flows are computed (§3.3.6 of the dissertation).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Compute {
    /// In switches; notices carry the rates.
    #[default]
    Switch,
    /// In hosts, from F and the queue of the last period, the current queue and the parameters, all carried by notices,
    /// with the same results. Links of 656 Gbit/s and more exceed the fields of notices: their switches compute the
    /// rates.
    Host,
}

impl RoccConfig {
    /// Returns the parameters of a port with this rate, bit/s.
    pub fn of_link(&self, rate: u64) -> FairRateConfig {
        let mut config = FairRateConfig::of_link(rate);
        let paper = config;
        let qref = self.qref.unwrap_or(paper.qref);
        let scaled = |bytes: u64| (u128::from(bytes) * u128::from(qref) / u128::from(paper.qref)) as u64;
        config.qref = qref;
        config.qmid = self.qmid.unwrap_or(scaled(paper.qmid));
        config.qmax = self.qmax.unwrap_or(scaled(paper.qmax));
        config.chunk = self.chunk.unwrap_or(paper.chunk);
        config.alpha = self.alpha.unwrap_or(paper.alpha);
        config.beta = self.beta.unwrap_or(paper.beta);
        config.period = self.period();
        config.fraction = self.fraction.unwrap_or(paper.fraction);
        config
    }

    /// T, ns.
    pub fn period(&self) -> u64 {
        self.period.unwrap_or(FairRateConfig::of_link(0).period).max(1)
    }
}

/// Limit on the bytes of notices queued for an output: those of one period with 700 flows. Further notices are dropped.
const NOTICES: u64 = 64 << 10;
/// Periods without arrivals or departures after which a queue gets no more notices: its port may be paused for good,
/// and notices would hide the standstill from deadlock detection.
const STILL: u32 = 25;

/// State of one port.
#[derive(Debug)]
struct Output {
    point: FairRate,
    /// Rate of the link that `point` was built for, bit/s.
    rate: u64,
    /// Flows with packets in the queue.
    flows: Flows,
    /// Periods since a packet last joined or left the queue.
    still: u32,
    /// Notices of any switch that leave by this port, sent before all else.
    notices: Fifo,
    notice_bytes: u64,
}

impl Output {
    fn new(config: &RoccConfig, rate: u64) -> Output {
        let law = config.of_link(rate);
        let flows = Flows::new(config.table, law.rate, law.least);
        Output { point: FairRate::new(&law), rate, flows, still: 0, notices: Fifo::default(), notice_bytes: 0 }
    }
}

/// See the module. Its timer fires at multiples of the period, as long as a port has a queue that moves, or a rate
/// below that of its link. Notices have queues of their own, which go first and are neither paused nor charged to a
/// buffer.
///
/// The inner switch admits or drops whole packets on arrival; what it drops later or cuts off counts as waiting until
/// its output is empty.
#[derive(Debug)]
pub(crate) struct Rocc {
    inner: Box<dyn Switch>,
    config: RoccConfig,
    address: Ipv4Addr,
    outputs: Box<[Output]>,
    /// End of the current period, ns; [`u64::MAX`] if there is nothing to do then.
    next: u64,
}

impl Rocc {
    /// Wraps the switch of `node` in congestion points.
    pub(crate) fn around(inner: Box<dyn Switch>, config: &RoccConfig, node: u32, ports: &[Port]) -> Rocc {
        let address = match address(node) {
            IpAddr::V4(address) => address,
            IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
        };
        let outputs = ports.iter().map(|port| Output::new(config, port.rate)).collect();
        Rocc { inner, config: *config, address, outputs, next: u64::MAX }
    }

    /// Puts a notice into its queue.
    #[cold]
    fn queue_notice(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId, output: u16) -> Verdict {
        let out = &mut self.outputs[usize::from(output)];
        let wire = u64::from(ctx.packets.get(id).wire);
        if out.notice_bytes + wire > NOTICES {
            return Verdict::Dropped;
        }
        out.notice_bytes += wire;
        out.notices.push(ctx.packets, id);
        Verdict::Queued
    }

    /// Arms the period timer if it was idle.
    #[inline]
    fn keep_time(&mut self, ctx: &mut SwitchCtx<'_>) {
        if self.next == u64::MAX {
            let period = self.config.period();
            self.next = (ctx.now / period + 1) * period;
            ctx.wake_at(self.next);
        }
    }

    /// Ends a period: computes the new rate of each port and notifies all flows that wait there. Returns whether the
    /// next period has anything to do.
    fn notify(&mut self, ctx: &mut SwitchCtx<'_>) -> bool {
        let mut more = false;
        for (port, out) in (0u16..).zip(&mut self.outputs) {
            let rate = ctx.ports[usize::from(port)].rate;
            if rate != out.rate {
                (out.point, out.rate) = (FairRate::new(&self.config.of_link(rate)), rate);
            }
            let queue = self.inner.backlog(port);
            if queue == 0 {
                out.flows.emptied();
                if out.point.is_at_rest() {
                    continue;
                }
            } else if out.still == STILL {
                continue;
            }
            out.still = (out.still + 1).min(STILL);
            more = true;
            let history = (self.config.compute == Compute::Host).then(|| out.point.history()).flatten();
            let rate = u32::try_from(out.point.step(queue) / 1_000).unwrap_or(u32::MAX);
            let rate = if history.is_some() { 0 } else { rate };
            for notice in out.flows.waiting(ctx.now) {
                let (from, queue) = (self.address, queue.try_into().unwrap_or(u32::MAX));
                (notice.from, notice.port, notice.rate, notice.queue) = (from, port, rate, queue);
                notice.history = history;
                ctx.emit_notice(*notice);
            }
        }
        more
    }
}

impl Switch for Rocc {
    fn enqueue(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId, output: u16) -> Verdict {
        if ctx.packets.notice(id).is_some() {
            return self.queue_notice(ctx, id, output);
        }
        let verdict = self.inner.enqueue(ctx, id, output);
        if verdict == Verdict::Queued && !ctx.packets.get(id).is_control() {
            let out = &mut self.outputs[usize::from(output)];
            out.flows.enter(ctx.packets, id, ctx.now, ctx.rng);
            out.still = 0;
            self.keep_time(ctx);
        }
        verdict
    }

    fn dequeue(&mut self, ctx: &mut SwitchCtx<'_>, output: u16, paused: Priorities) -> Dequeue {
        let out = &mut self.outputs[usize::from(output)];
        if let Some(id) = out.notices.pop(ctx.packets) {
            out.notice_bytes -= u64::from(ctx.packets.get(id).wire);
            return Dequeue::Packet(id);
        }
        let next = self.inner.dequeue(ctx, output, paused);
        if let Dequeue::Packet(id) = next
            && !ctx.packets.get(id).is_control()
        {
            out.flows.leave(ctx.packets, id);
            out.still = 0;
            self.keep_time(ctx);
        }
        next
    }

    #[inline]
    fn backlog(&self, output: u16) -> u64 {
        self.inner.backlog(output) + self.outputs[usize::from(output)].notice_bytes
    }

    fn on_timer(&mut self, ctx: &mut SwitchCtx<'_>) {
        self.inner.on_timer(ctx);
        if ctx.now >= self.next {
            self.next = if self.notify(ctx) { ctx.now + self.config.period() } else { u64::MAX };
        }
        if self.next != u64::MAX {
            ctx.wake_at(self.next);
        }
    }

    fn flush(&mut self, ctx: &mut SwitchCtx<'_>, output: u16, lost: &mut Vec<PacketId>) {
        self.inner.flush(ctx, output, lost);
        let out = &mut self.outputs[usize::from(output)];
        lost.extend(std::iter::from_fn(|| out.notices.pop(ctx.packets)));
        out.notice_bytes = 0;
        out.flows.clear();
    }

    fn on_control(&mut self, ctx: &mut SwitchCtx<'_>, port: u16, control: Control) {
        self.inner.on_control(ctx, port, control);
    }

    fn extract(
        &mut self,
        ctx: &mut SwitchCtx<'_>,
        output: u16,
        wanted: &mut dyn FnMut(&Packets, PacketId) -> bool,
    ) -> Option<PacketId> {
        self.inner.extract(ctx, output, wanted)
    }

    fn paused_upstreams(&self) -> Vec<(u16, u8)> {
        self.inner.paused_upstreams()
    }

    fn blocks(&self, packets: &Packets, input: u16, priority: u8, output: u16) -> bool {
        self.inner.blocks(packets, input, priority, output)
    }

    fn prefetch(&self, packets: &Packets, id: PacketId, input: u16, output: u16) {
        self.inner.prefetch(packets, id, input, output);
    }

    fn prefetch_output(&self, packets: &Packets, output: u16, step: usize) {
        self.inner.prefetch_output(packets, output, step);
    }
}
