//! The NIC: queue pairs, their scheduler and timers, and the calls that a habitat makes.

mod limits;
mod objects;

use std::collections::VecDeque;
use std::net::IpAddr;

use irnic_transports::qp::{
    Counters, CqId, Host, MULTICAST_QPN, PdId, PeerProcess, PostError, Qp, QpAttr, QpConfig, QpState, RecvWr, SendWr,
    Service, SrqId, TxSlot,
};
use irnic_transports::rc::MAX_NACKS_WAITING;
use irnic_transports::room;
use irnic_transports::wire::Mtu;
use irnic_transports::{Gather, Path, Payload, RxPacket, Time, TxPacket};

use crate::clock::Clock;
use crate::cq::Cq;
use crate::device::{Device, Table};
pub use crate::error::NicError;
use crate::error::{Object, Quantity, limit};
use crate::memory::Memory;
use crate::memory::prefetch::{fetch, fetch_all};
use crate::multicast::Groups;
use crate::pacer::Pacer;
use crate::scheduler::Scheduler;
use crate::wheel::Wheel;
pub use limits::Limits;

/// Limits and settings of a NIC.
#[derive(Clone, Debug)]
pub struct NicConfig {
    /// Most queue pairs, up to 65,536.
    pub max_qps: u32,
    /// Most memory regions, up to 2²⁴ − 1.
    pub max_mrs: u32,
    /// Most completion queues; as many shared receive queues and protection domains.
    pub max_cqs: u32,
    /// First queue pair number; queue pair `n` has `first_qpn + n`. 0 and 1 are reserved by IBA.
    pub first_qpn: u32,
    /// Payload bytes of the port's largest packet: datagrams may be as long.
    pub mtu: Mtu,
    /// Packets that a queue pair may send before the next one's turn, 1 or more. Real-time ports batch better with more.
    pub quantum: u32,
    /// Where remote keys come from: secret in a NIC that others can reach, fixed in a run to be repeated.
    pub seed: [u8; 32],
    /// The hardware clock.
    pub clock: Clock,
    /// Resolution of the timers, ns.
    pub timer_tick: u64,
}

impl Default for NicConfig {
    fn default() -> Self {
        NicConfig {
            max_qps: 65_536,
            max_mrs: 1 << 20,
            max_cqs: 1 << 16,
            first_qpn: 0x11,
            mtu: Mtu::B4096,
            quantum: 1,
            seed: [0; 32],
            clock: Clock::default(),
            timer_tick: 1_000,
        }
    }
}

/// A queue pair and its place in the scheduler.
#[derive(Debug)]
struct Slot {
    qp: Qp,
    /// In the ready ring.
    ready: bool,
    /// When the wheel will look at it.
    timer: Time,
    pacer: Option<Pacer>,
}

/// An RDMA NIC: the firmware's edge. It never blocks, reads no clock and keeps no global; a habitat passes time and
/// packets in and takes packets, completions and deadlines out.
#[derive(Debug)]
pub struct Nic {
    config: NicConfig,
    qps: Vec<Option<Box<Slot>>>,
    free: VecDeque<u32>,
    pub(crate) device: Device,
    groups: Groups,
    scheduler: Scheduler,
    wheel: Wheel,
    slot: TxSlot,
}

impl Nic {
    /// Most packets to give a NIC before it is asked for answers: no queue pair can hold more that are due.
    pub const RX_BATCH: usize = MAX_NACKS_WAITING;
    /// Most work requests in a queue.
    pub const MAX_WR: u32 = 1 << 15;
    /// Queue pair numbers that rest, if there are others, before the one that has rested longest is used again.
    const RESTING: usize = 256;
    /// Most inline bytes.
    pub const MAX_INLINE: u32 = 4096;
    /// Most completions in a queue.
    pub const MAX_CQE: u32 = 1 << 22;
    /// Most multicast groups that queue pairs are attached to.
    pub const MAX_GROUPS: usize = 1 << 13;

    /// A NIC without objects.
    pub fn new(config: NicConfig) -> Nic {
        // The number above the last is everybody's (IBA 10.5).
        let max = config.max_qps.min(65_536).min(MULTICAST_QPN.saturating_sub(config.first_qpn));
        let objects = config.max_cqs as usize;
        Nic {
            qps: Vec::new(),
            free: VecDeque::new(),
            device: Device {
                memory: Memory::new(config.max_mrs as usize, config.seed),
                pds: Table::new(objects),
                cqs: Table::new(objects),
                srqs: Table::new(objects),
                events: VecDeque::new(),
                counters: Counters::default(),
                clock: config.clock,
                now: Time::ZERO,
                cq_failed: false,
            },
            groups: Groups::default(),
            scheduler: Scheduler::default(),
            wheel: Wheel::new(Time::ZERO, config.timer_tick),
            slot: TxSlot::default(),
            config: NicConfig { max_qps: max, quantum: config.quantum.max(1), ..config },
        }
    }

    // Queue pairs.

    /// A queue pair in RESET; returns its number. Queues hold up to [`Nic::MAX_WR`] work requests of up to [`Gather::MAX`] elements
    /// or [`Nic::MAX_INLINE`] inline bytes.
    pub fn create_qp(&mut self, config: &QpConfig) -> Result<u32, NicError> {
        limit(Quantity::SendWorkRequests, config.max_send_wr, Self::MAX_WR)?;
        limit(Quantity::ReceiveWorkRequests, config.max_recv_wr, Self::MAX_WR)?;
        limit(Quantity::ScatterGatherElements, config.max_send_sge, Gather::MAX as u32)?;
        limit(Quantity::ScatterGatherElements, config.max_recv_sge, Gather::MAX as u32)?;
        limit(Quantity::InlineBytes, config.max_inline, Self::MAX_INLINE)?;
        self.check_pd(config.pd)?;
        for cq in [config.send_cq, config.recv_cq] {
            self.device.cqs.get(cq.0).ok_or(NicError::NotFound(Object::CompletionQueue))?;
        }
        let mut max_recv_wr = config.max_recv_wr;
        let mut max_recv_sge = config.max_recv_sge;
        if let Some(srq) = config.srq {
            let queue = self.device.srqs.get(srq.0).ok_or(NicError::NotFound(Object::SharedReceiveQueue))?;
            if queue.pd != config.pd {
                return Err(NicError::Domain);
            }
            // As many messages may be under way at a time as the window has packets; without reliability, one.
            max_recv_wr = if config.service == Service::Rc { config.transport.window } else { 1 };
            max_recv_sge = queue.max_sge() as u32;
        }
        // A number rests before it is used again, and those that rested longest come first: late packets rarely find a
        // new owner.
        let fresh = self.free.len() < Self::RESTING && (self.qps.len() as u32) < self.config.max_qps;
        let oldest = self.free.front().copied();
        let index = if fresh { self.qps.len() as u32 } else { oldest.ok_or(NicError::Full(Object::QueuePair))? };
        let qpn = self.config.first_qpn + index;
        let qp = Qp::new(qpn, self.config.mtu, &QpConfig { max_recv_wr, max_recv_sge, ..config.clone() })?;
        room::ensure(size_of::<Slot>() + room::growth(&self.qps) + self.wheel.growth())?;
        if fresh {
            self.qps.push(None);
        } else {
            self.free.pop_front();
        }
        self.wheel.reserve(index + 1);
        self.qps[index as usize] = Some(Box::new(Slot { qp, ready: false, timer: Time::NEVER, pacer: None }));
        self.count_users(config.pd, [config.send_cq, config.recv_cq], config.srq, true);
        Ok(qpn)
    }

    fn count_users(&mut self, pd: PdId, cqs: [CqId; 2], srq: Option<SrqId>, add: bool) {
        let step = |users: &mut u32| *users = if add { *users + 1 } else { *users - 1 };
        if let Some(pd) = self.device.pds.get_mut(pd.0) {
            step(&mut pd.users);
        }
        for cq in cqs {
            if let Some(cq) = self.device.cqs.get_mut(cq.0) {
                step(&mut cq.users);
            }
        }
        if let Some(srq) = srq.and_then(|s| self.device.srqs.get_mut(s.0)) {
            step(&mut srq.users);
        }
    }

    #[inline]
    fn index(&self, qpn: u32) -> Option<usize> {
        let index = qpn.wrapping_sub(self.config.first_qpn) as usize;
        self.qps.get(index)?.as_ref().map(|_| index)
    }

    #[inline]
    fn find(&mut self, qpn: u32) -> Result<(u32, &mut Slot, &mut Device), NicError> {
        let index = self.index(qpn).ok_or(NicError::NotFound(Object::QueuePair))?;
        let slot = self.qps[index].as_mut().ok_or(NicError::NotFound(Object::QueuePair))?;
        Ok((index as u32, slot, &mut self.device))
    }

    /// Queue pairs that exist.
    pub fn qp_count(&self) -> usize {
        self.qps.len() - self.free.len()
    }

    /// A queue pair, to look at.
    pub fn qp(&self, qpn: u32) -> Option<&Qp> {
        self.qps[self.index(qpn)?].as_ref().map(|s| &s.qp)
    }

    /// Changes a queue pair's attributes and state.
    pub fn modify_qp(&mut self, qpn: u32, attr: &QpAttr) -> Result<(), NicError> {
        // A queue pair that begins to receive or to send gets what it needs for that.
        room::ensure(0)?;
        let (index, slot, device) = self.find(qpn)?;
        let cqs = slot.qp.cqs();
        slot.qp.modify(attr, device)?;
        if slot.qp.state() == QpState::Reset {
            for cq in [cqs.0, cqs.1] {
                if let Some(cq) = device.cqs.get_mut(cq.0) {
                    cq.purge(qpn);
                }
            }
        }
        self.scheduler.unpark(index);
        self.touch(index);
        self.spread_cq_failure();
        Ok(())
    }

    /// Removes a queue pair, its work requests and its completions. Fails while it is attached to a multicast group.
    pub fn destroy_qp(&mut self, qpn: u32) -> Result<(), NicError> {
        if self.groups.holds(qpn) {
            return Err(NicError::InUse(Object::QueuePair));
        }
        let (index, slot, device) = self.find(qpn)?;
        let (pd, cqs, srq) = (slot.qp.pd(), slot.qp.cqs(), slot.qp.srq());
        for cq in [cqs.0, cqs.1] {
            if let Some(cq) = device.cqs.get_mut(cq.0) {
                cq.purge(qpn);
            }
        }
        if slot.ready {
            self.scheduler.remove(index);
        }
        self.wheel.cancel(index);
        self.qps[index as usize] = None;
        self.device.memory.unbind_queue_pair(qpn);
        self.free.push_back(index);
        self.count_users(pd, [cqs.0, cqs.1], srq, false);
        Ok(())
    }

    /// Has a datagram queue pair receive what is sent to a multicast group, its own packets included if the port brings them
    /// back. Returns whether it is the first of the group here: the port must join it.
    pub fn attach_mcast(&mut self, qpn: u32, group: IpAddr) -> Result<bool, NicError> {
        if !group.is_multicast() {
            return Err(NicError::NotMulticast(group));
        }
        let service = self.qp(qpn).ok_or(NicError::NotFound(Object::QueuePair))?.service();
        if service != Service::Ud {
            return Err(NicError::Service(service));
        }
        if self.groups.members(&group).is_empty() && self.groups.len() >= Self::MAX_GROUPS {
            return Err(NicError::Full(Object::MulticastGroup));
        }
        Ok(self.groups.attach(group, qpn))
    }

    /// Ends that. Returns whether it was the last of the group here: the port may leave it.
    pub fn detach_mcast(&mut self, qpn: u32, group: IpAddr) -> Result<bool, NicError> {
        self.groups.detach(group, qpn).ok_or(NicError::NotFound(Object::MulticastMembership))
    }

    /// Paces a queue pair: `rate` in bit/s, 0 for none, in bursts of at most `burst` bytes.
    pub fn set_rate(&mut self, now: Time, qpn: u32, rate: u64, burst: u32) -> Result<(), NicError> {
        self.device.now = now;
        let (index, slot, _) = self.find(qpn)?;
        slot.pacer = (rate != 0).then(|| Pacer::new(now, rate, burst));
        self.touch(index);
        Ok(())
    }

    /// Posts a send work request.
    #[inline]
    pub fn post_send(&mut self, qpn: u32, wr: &SendWr<'_>) -> Result<Result<(), PostError>, NicError> {
        let (index, slot, device) = self.find(qpn)?;
        let posted = slot.qp.post_send(wr, device);
        self.touch(index);
        if self.device.cq_failed {
            self.spread_cq_failure();
        }
        Ok(posted)
    }

    /// Takes back the `n` send work requests that were posted last, none of which was started: nothing may have been sent
    /// since. What was flushed at once, in ERR and SQE, stays flushed.
    pub fn retract_sends(&mut self, qpn: u32, n: u32) -> Result<(), NicError> {
        let (_, slot, _) = self.find(qpn)?;
        slot.qp.retract_sends(n);
        Ok(())
    }

    /// Posts a receive work request.
    #[inline]
    pub fn post_recv(&mut self, qpn: u32, wr: &RecvWr<'_>) -> Result<Result<(), PostError>, NicError> {
        let (index, slot, device) = self.find(qpn)?;
        let posted = slot.qp.post_recv(wr, device);
        self.touch(index);
        if self.device.cq_failed {
            self.spread_cq_failure();
        }
        Ok(posted)
    }

    // Packets and time.

    /// Something is about to happen here: has the processor fetch what that will need in any case.
    #[inline]
    pub fn fetch(&self) {
        fetch(&self.qps);
        fetch(&self.scheduler);
        fetch(&self.wheel);
    }

    /// The same, for a packet to a queue pair.
    #[inline]
    pub fn fetch_qp(&self, qpn: u32) {
        if let Some(slot) = self.index(qpn).and_then(|index| self.qps[index].as_ref()) {
            fetch_all(&**slot);
        }
    }

    /// The same, for a packet from the queue pair whose turn it is.
    #[inline]
    pub fn fetch_sender(&self) {
        if let Some(slot) = self.scheduler.front().and_then(|index| self.qps[index as usize].as_ref()) {
            fetch_all(&**slot);
        }
    }

    /// A packet has arrived.
    #[inline]
    pub fn receive(&mut self, now: Time, packet: &RxPacket<'_>) {
        self.device.now = packet.arrived;
        let bth = &packet.headers.bth;
        let Ok((index, slot, device)) = self.find(bth.dest_qp) else {
            return self.receive_multicast(now, packet);
        };
        // Membership bit apart, only the default partition exists (IBA 10.9.3).
        if !slot.qp.knows(packet.path) || bth.pkey & 0x7fff != 0x7fff {
            device.counters.rx_dropped += 1;
            return;
        }
        slot.qp.receive(now, packet, device);
        self.touch(index);
        if self.device.cq_failed {
            self.spread_cq_failure();
        }
    }

    /// A packet for no queue pair in particular: copies to those of its multicast group.
    #[cold]
    fn receive_multicast(&mut self, now: Time, packet: &RxPacket<'_>) {
        let bth = &packet.headers.bth;
        let mut members = 0;
        if bth.dest_qp == MULTICAST_QPN && bth.pkey & 0x7fff == 0x7fff {
            while let Some(&qpn) = self.groups.members(&packet.path.dst).get(members) {
                members += 1;
                if let Ok((_, slot, device)) = self.find(qpn) {
                    slot.qp.receive(now, packet, device);
                }
            }
        }
        if members == 0 {
            self.device.counters.rx_dropped += 1;
        }
        if self.device.cq_failed {
            self.spread_cq_failure();
        }
    }

    /// Whether [`Self::poll_transmit`] may have a packet.
    #[inline]
    pub fn wants_tx(&self) -> bool {
        !self.scheduler.is_empty()
    }

    /// Hands packets to `sink` until it returns false (it took that packet, but wants no more), nothing is left to send, or
    /// `budget` packets are out. Queue pairs take turns of [`NicConfig::quantum`] packets, which may be spread over several calls.
    /// Returns how many packets went.
    #[inline]
    pub fn poll_transmit(&mut self, now: Time, budget: usize, mut sink: impl FnMut(&TxPacket<'_>) -> bool) -> usize {
        self.device.now = now;
        let timestamp = self.device.clock.ticks(now);
        let mut sent = 0;
        while sent < budget
            && let Some(index) = self.scheduler.pop()
        {
            let Some(slot) = self.qps[index as usize].as_mut() else { continue };
            if self.scheduler.pauses(|| slot.qp.priorities()) {
                self.scheduler.park(index);
                continue;
            }
            slot.ready = false;
            let Slot { qp, pacer, .. } = &mut **slot;
            let mtu = qp.path_mtu().bytes() as u32;
            let mut open = true;
            let mut left = self.scheduler.begin_turn(index, self.config.quantum);
            while left > 0 && open && sent < budget {
                if pacer.as_ref().is_some_and(|p| p.earliest(now, mtu) > now) {
                    break;
                }
                if !qp.poll_transmit(now, &mut self.device, &mut self.slot) {
                    break;
                }
                let Some(path) = qp.tx_path(self.slot.class) else { break };
                let gather = self.device.memory.lend(qp, &self.slot.gather);
                let headers = &self.slot.headers;
                let sideband = self.slot.sideband(qp.qpn());
                let payload = Payload::Gather(gather);
                let packet = TxPacket { headers, path, payload, timestamp, sideband };
                if let Some(pacer) = pacer {
                    pacer.spend(now, packet.payload.len() as u32);
                }
                sent += 1;
                left -= 1;
                open = sink(&packet);
            }
            self.touch(index);
            if left > 0 && (!open || sent == budget) {
                self.scheduler.interrupt_turn(index, left);
            }
            if !open {
                break;
            }
        }
        if self.device.cq_failed {
            self.spread_cq_failure();
        }
        sent
    }

    /// Priority flow control (IEEE 802.1Qbb): queue pairs that send with a priority in `stopped`, one bit each, send nothing until
    /// this says otherwise. The priority of a packet is the upper three bits of its traffic class (its class selector, RFC 2474).
    /// Datagram queue pairs, whose packets may have any, wait for all.
    pub fn set_stopped(&mut self, stopped: u8) {
        self.scheduler.set_paused(stopped);
    }

    /// When [`Self::on_deadline`] is due: never later than the earliest timer, [`Time::NEVER`] without one.
    #[inline]
    pub fn next_deadline(&self) -> Time {
        self.wheel.next_deadline()
    }

    /// Runs the timers that are due. Of peers' processes nothing is known.
    #[inline]
    pub fn on_deadline(&mut self, now: Time) {
        self.on_deadline_knowing(now, |_, _| PeerProcess::Unknown);
    }

    /// Runs the timers that are due. `process` says what is known of the process that has a queue pair number at the path's
    /// destination; it is asked before a queue pair whose retries are used up fails.
    #[inline]
    pub fn on_deadline_knowing(&mut self, now: Time, mut process: impl FnMut(&Path, u32) -> PeerProcess) {
        self.device.now = now;
        while let Some(index) = self.wheel.pop_due(now) {
            let Some(slot) = self.qps[index as usize].as_mut() else { continue };
            slot.timer = Time::NEVER;
            slot.qp.on_deadline(now, &mut self.device, &mut process);
            self.touch(index);
        }
        if self.device.cq_failed {
            self.spread_cq_failure();
        }
    }

    /// Puts a queue pair where it belongs now: into the ready ring, and onto the wheel. Deadlines that moved back are left
    /// to be found out when the wheel comes to them: acknowledgements move one back all the time.
    #[inline]
    fn touch(&mut self, index: u32) {
        let Some(slot) = self.qps[index as usize].as_mut() else { return };
        let mut deadline = slot.qp.next_deadline();
        if !slot.ready && slot.qp.wants_tx() {
            let mtu = slot.qp.path_mtu().bytes() as u32;
            match slot.pacer.as_mut().map(|p| (p.earliest(self.device.now, mtu), p)) {
                Some((at, pacer)) if at > self.device.now => {
                    pacer.hold(at);
                    deadline = deadline.min(at);
                }
                _ => {
                    slot.ready = true;
                    self.scheduler.push(index);
                }
            }
        }
        if deadline < slot.timer {
            slot.timer = deadline;
            self.wheel.schedule(index, deadline);
        }
    }

    /// Queue pairs of an overflowed completion queue go to the error state (IBA 10.2.6.4).
    fn spread_cq_failure(&mut self) {
        while std::mem::take(&mut self.device.cq_failed) {
            for index in 0..self.qps.len() {
                let Some(slot) = self.qps[index].as_mut() else { continue };
                let (send, recv) = slot.qp.cqs();
                let failed = |cq: CqId| self.device.cqs.get(cq.0).is_some_and(Cq::overflowed);
                if failed(send) || failed(recv) {
                    slot.qp.cq_failed(&mut self.device);
                    self.touch(index as u32);
                }
            }
        }
    }

    // What it knows of itself.

    /// Its counters.
    pub fn counters(&self) -> &Counters {
        &self.device.counters
    }

    /// Its counters, for what the port counts: packets malformed or with a wrong ICRC.
    pub fn counters_mut(&mut self) -> &mut Counters {
        self.device.counters()
    }

    /// Gives it another hardware clock. What was stamped before keeps its stamp.
    pub fn set_clock(&mut self, clock: Clock) {
        self.device.clock = clock;
    }

    /// Its hardware clock.
    pub fn clock(&self) -> &Clock {
        &self.device.clock
    }
}
