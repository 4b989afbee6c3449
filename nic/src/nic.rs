//! The NIC: queue pairs, their scheduler and timers, and the calls made by a driver.

mod footprint;
mod limits;
mod low;
mod noticed;
mod notices;
mod objects;
mod prefetch;
mod pulled;
#[allow(unsafe_code, reason = "what makes sharing sound is the promise of its caller")]
mod sharing;
mod slot;
mod transmit;
mod xrc;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use irnic_transports::config::TransportConfig;
use irnic_transports::qp::{
    ConnectParams, Counters, CqId, Host, MULTICAST_QPN, PeerProcess, PostError, Qp, QpAttr, QpConfig, QpState, RecvWr,
    SendWr, Service, Taken, TxSlot,
};
use irnic_transports::rc::MAX_NACKS_WAITING;
use irnic_transports::room;
use irnic_transports::wire::mad::{GSI_QPN, MAD_LEN};
use irnic_transports::wire::{FastFrame, Mtu};
use irnic_transports::{Gather, Path, RxPacket, Time};

use crate::clock::Clock;
use crate::cq::Cq;
use crate::device::Device;
use crate::error::{NicError, Object, Quantity, limit};
use crate::gsi::{Gsi, ManagementDatagram};
use crate::memory::Memory;
use crate::multicast::Groups;
use crate::pacer::Pacer;
use crate::pulls::Pulls;
use crate::scheduler::Scheduler;
use crate::table::Table;
use crate::wheel::Wheel;
pub use limits::Limits;
use noticed::Noticed;
use slot::{LowSlot, PulledSlot, Slot};
pub use transmit::{FastPacket, TxSink};

/// Limits and settings of a NIC.
#[derive(Clone, Debug)]
pub struct NicConfig {
    /// Maximum number of queue pairs, up to 65,536.
    pub max_qps: u32,
    /// Maximum number of memory regions, up to 2²⁴ − 1.
    pub max_mrs: u32,
    /// Maximum number of completion queues; also of shared receive queues, protection domains and XRC domains.
    pub max_cqs: u32,
    /// First queue pair number; queue pair `n` has `first_qpn + n`. 0 and 1 are reserved by IBA.
    pub first_qpn: u32,
    /// Payload bytes of the port's largest packet, the maximum length of a datagram.
    pub mtu: Mtu,
    /// Packets that a queue pair may send per turn, 1 or more. Larger values improve batching in real-time ports.
    pub quantum: u32,
    /// Seed of remote keys: secret in a NIC reachable by others, fixed in a reproducible run.
    pub seed: [u8; 32],
    /// The hardware clock.
    pub clock: Clock,
    /// Resolution of the timers, ns.
    pub timer_tick: u64,
    /// Whether frames of small messages take the fast path ([`TxSink::takes_fast`](crate::TxSink::takes_fast),
    /// [`Nic::receive_fast`]). It has no effect but on speed.
    pub fast_path: bool,
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
            fast_path: true,
        }
    }
}

/// An RDMA NIC, as a state machine without I/O.
///
/// A `Nic` performs no I/O, reads no clock, starts no thread, takes no lock (unless it [shares its
/// memory](Self::share_memory)) and keeps no global state. Its driver passes in packets and time and takes out packets,
/// completions, events and deadlines. Sockets (`irnic-ports`), a simulated network (`irnic-fabric`) and tests are
/// drivers. The same calls with the same arguments have the same results, to the byte.
///
/// # Kinds of methods
///
/// - *Verbs* create, change and destroy objects and post work: [`create_qp`](Self::create_qp),
///   [`modify_qp`](Self::modify_qp), [`reg_mr`](Self::reg_mr), [`post_send`](Self::post_send) and so on. They may be
///   called at any time. On failure they return an error that names the object or the limit, and change nothing.
///   Posting sends nothing by itself.
/// - *Inputs* report events: [`receive`](Self::receive) (a packet arrived), [`receive_notice`](Self::receive_notice) (a
///   switch advertises a rate), [`on_deadline`](Self::on_deadline) (time has passed),
///   [`set_stopped`](Self::set_stopped) (the link partner paused priorities). They never fail: an erroneous packet is
///   counted, answered with a NAK, or ends its own queue pair.
/// - *Outputs* are taken by polling: [`poll_transmit`](Self::poll_transmit) (packets), [`poll_cq`](Self::poll_cq)
///   (completions), [`poll_event`](Self::poll_event) (completion events of armed queues, asynchronous events),
///   [`next_deadline`](Self::next_deadline) (when to call `on_deadline`).
/// - *Getters* such as [`qp`](Self::qp), [`counters`](Self::counters) and [`limits`](Self::limits) change nothing.
///
/// # Driver loop
///
/// In this order:
///
/// 1. Pass each packet that has arrived to `receive`, at most [`RX_BATCH`](Self::RX_BATCH) of them before step 4: a
///    queue pair remembers no more packets to answer.
/// 2. Call `on_deadline` if `next_deadline` is not after `now`.
/// 3. Poll completions and events, and let the application post work: its responses then leave with the
///    acknowledgements.
/// 4. Call `poll_transmit` while [`wants_tx`](Self::wants_tx) returns true and the link has room.
/// 5. Wait for the next packet, until `next_deadline` at most. Any verb or input may have moved the deadline, either
///    way.
///
/// `poll_transmit` lends each packet to a closure. The packet borrows registered memory and is valid during the call
/// only; the closure cannot call back into the `Nic`, which the borrow checker enforces.
///
/// # Time
///
/// [`Time`] is in nanoseconds since an epoch chosen by the driver. `now` must not go back from call to call; if it
/// does, timers fire late and rates are off until it has caught up, without other effects. [`RxPacket::arrived`] may be
/// before `now`: it is when the packet came in from the link, and the time that the hardware clock stamps.
///
/// # Costs
///
/// Objects allocate when they are created, and a queue pair when it begins to receive or to send; all fail with
/// [`NicError::NoMemory`] if memory runs out. Posting, transmitting and polling allocate nothing. Receiving allocates
/// only when a queue pair reaches a new peak, up to a limit each, of packets out of order, READs to answer, messages
/// into a shared receive queue or measured round trips. A packet for which there is no memory is dropped.
#[derive(Debug)]
#[repr(C)]
pub struct Nic {
    // Fields that every packet needs come first: with thousands of NICs, none are in the cache.
    qps: Vec<Option<Box<Slot>>>,
    /// [`NicConfig::first_qpn`] and [`NicConfig::quantum`].
    first_qpn: u32,
    quantum: u32,
    /// Whether management datagrams wait to be sent.
    mads_wait: bool,
    scheduler: Scheduler,
    pulls: Pulls,
    pub(crate) device: Device,
    wheel: Wheel,
    slot: TxSlot,
    config: NicConfig,
    free: VecDeque<u32>,
    /// The distinct transports of its queue pairs.
    transports: Vec<Arc<TransportConfig>>,
    groups: Groups,
    gsi: Gsi,
    noticed: Noticed,
}

impl Nic {
    /// Maximum number of packets to pass to a NIC before polling for responses: the number that a queue pair can hold.
    pub const RX_BATCH: usize = MAX_NACKS_WAITING;
    /// Maximum number of shared transports. Few NICs have more than one or two.
    const SHARED_TRANSPORTS: usize = 16;
    /// Maximum number of work requests in a queue.
    pub const MAX_WR: u32 = 1 << 15;
    /// Queue pair numbers kept unused, if there are others, before the longest unused one is reused.
    const RESTING: usize = 256;
    /// Maximum number of inline bytes.
    pub const MAX_INLINE: u32 = 4096;
    /// Maximum number of completions in a queue.
    pub const MAX_CQE: u32 = 1 << 22;
    /// Maximum number of multicast groups with attached queue pairs.
    pub const MAX_GROUPS: usize = 1 << 13;

    /// Cache lines at the beginning that hold what every packet needs.
    const HOT_LINES: usize = 5;

    /// Creates a NIC without objects.
    pub fn new(config: NicConfig) -> Nic {
        // The number above the last is the multicast one (IBA 10.5).
        let max = config.max_qps.min(65_536).min(MULTICAST_QPN.saturating_sub(config.first_qpn));
        let objects = config.max_cqs as usize;
        let quantum = config.quantum.max(1);
        Nic {
            qps: Vec::new(),
            first_qpn: config.first_qpn,
            quantum,
            free: VecDeque::new(),
            transports: Vec::new(),
            device: Device {
                memory: Memory::new(config.max_mrs as usize, objects, config.seed),
                cqs: Table::new(objects),
                completions: 0,
                srqs: Table::new(objects),
                xrcds: Table::new(objects),
                first_srqn: config.first_qpn,
                xrc_serial: 0,
                events: VecDeque::new(),
                counters: Counters::default(),
                clock: config.clock,
                now: Time::ZERO,
                cq_failed: false,
                pulls_owed: false,
                recall: None,
            },
            groups: Groups::default(),
            gsi: Gsi::default(),
            noticed: Noticed::default(),
            mads_wait: false,
            scheduler: Scheduler::default(),
            pulls: Pulls::default(),
            wheel: Wheel::new(Time::ZERO, config.timer_tick),
            slot: TxSlot::default(),
            config: NicConfig { max_qps: max, quantum, ..config },
        }
    }

    /// Sets the initial path MTU of queue pairs created from now on ([`NicConfig::mtu`]).
    pub fn set_mtu(&mut self, mtu: Mtu) {
        self.config.mtu = mtu;
    }

    // Queue pairs.

    /// Creates a queue pair in RESET and returns its number. Queues hold up to [`Nic::MAX_WR`] work requests of up to
    /// [`Gather::MAX`] elements or [`Nic::MAX_INLINE`] inline bytes.
    pub fn create_qp(&mut self, config: &QpConfig) -> Result<u32, NicError> {
        limit(Quantity::SendWorkRequests, config.max_send_wr, Self::MAX_WR)?;
        limit(Quantity::ReceiveWorkRequests, config.max_recv_wr, Self::MAX_WR)?;
        limit(Quantity::ScatterGatherElements, config.max_send_sge, Gather::MAX as u32)?;
        limit(Quantity::ScatterGatherElements, config.max_recv_sge, Gather::MAX as u32)?;
        limit(Quantity::InlineBytes, config.max_inline, Self::MAX_INLINE)?;
        let (target, xrc) = (config.service == Service::XrcTarget, config.service.is_xrc());
        if target != config.xrcd.is_some() || xrc && config.srq.is_some() {
            return Err(NicError::Queues(config.service));
        }
        if let Some(domain) = config.xrcd {
            self.device.xrcds.get(domain.0).ok_or(NicError::NotFound(Object::XrcDomain))?;
        } else {
            self.check_pd(config.pd)?;
            for cq in [config.send_cq, config.recv_cq] {
                self.device.cqs.get(cq.0).ok_or(NicError::NotFound(Object::CompletionQueue))?;
            }
        }
        let mut max_recv_wr = config.max_recv_wr;
        let mut max_recv_sge = config.max_recv_sge;
        if let Some(srq) = config.srq {
            let queue = self.device.srqs.get(srq.0).ok_or(NicError::NotFound(Object::SharedReceiveQueue))?;
            if queue.pd != config.pd {
                return Err(NicError::Domain);
            }
            // The number of messages in flight is limited by the packets in the window; without reliability, it is one.
            max_recv_wr = if config.service == Service::Rc { config.transport.tracked() } else { 1 };
            max_recv_sge = queue.max_sge() as u32;
        }
        if target {
            // Its messages name queues with any number of elements.
            (max_recv_wr, max_recv_sge) = (config.transport.window, Gather::MAX as u32);
        }
        // A freed number is not reused at once, and the longest unused one comes first, so that late packets rarely
        // find a new owner.
        let fresh = self.free.len() < Self::RESTING && (self.qps.len() as u32) < self.config.max_qps;
        let oldest = self.free.front().copied();
        let index = if fresh { self.qps.len() as u32 } else { oldest.ok_or(NicError::Full(Object::QueuePair))? };
        let qpn = self.config.first_qpn + index;
        let transport = self.transport(&config.transport)?;
        let limits = QpConfig { max_recv_wr, max_recv_sge, ..config.clone() };
        let qp = Qp::new(qpn, self.config.mtu, &limits, transport)?;
        room::ensure(size_of::<Slot>() + room::growth(&self.qps) + self.wheel.growth())?;
        if fresh {
            self.qps.push(None);
        } else {
            self.free.pop_front();
        }
        self.wheel.reserve(index + 1);
        let pulled = qp.pull_class().map(|class| PulledSlot { class, queued: false, urgent: false });
        if let Some(PulledSlot { class, .. }) = pulled {
            self.pulls.reserve(class, self.qps.len());
            self.scheduler.urgent.reserve(self.qps.len().saturating_sub(self.scheduler.urgent.len()));
        }
        let low = qp.has_low().then(LowSlot::default);
        if low.is_some() {
            self.scheduler.reserve_low(self.qps.len());
        }
        self.qps[index as usize] =
            Some(Box::new(Slot { qp, ready: false, timer: Time::NEVER, pacer: None, pulled, low }));
        self.count_users(config.pd, [config.send_cq, config.recv_cq], config.srq, true);
        if let Some(domain) = config.xrcd.and_then(|d| self.device.xrcds.get_mut(d.0)) {
            domain.users += 1;
        }
        Ok(qpn)
    }

    #[inline]
    fn index(&self, qpn: u32) -> Option<usize> {
        let index = qpn.wrapping_sub(self.first_qpn) as usize;
        self.qps.get(index)?.as_ref().map(|_| index)
    }

    #[inline]
    fn find(&mut self, qpn: u32) -> Result<(u32, &mut Slot, &mut Device), NicError> {
        let index = self.index(qpn).ok_or(NicError::NotFound(Object::QueuePair))?;
        let slot = self.qps[index].as_mut().ok_or(NicError::NotFound(Object::QueuePair))?;
        Ok((index as u32, slot, &mut self.device))
    }

    /// Returns whether a queue pair has nothing to send and no timer: until a packet for it arrives or work is posted,
    /// destroying it has no effect on others. A queue pair that does not exist is quiet.
    pub fn is_quiet(&self, qpn: u32) -> bool {
        let Some(index) = self.index(qpn) else { return true };
        let pulled = |slot: &Slot| slot.pulled.is_some_and(|pulled| pulled.queued || pulled.urgent);
        let busy = self.qps[index]
            .as_ref()
            .is_some_and(|slot| slot.ready || pulled(slot) || slot.low.is_some_and(|low| low.rings != 0));
        !busy && self.wheel.deadline(index as u32).is_none()
    }

    /// Returns the number of queue pairs that exist.
    pub fn qp_count(&self) -> usize {
        self.qps.len() - self.free.len()
    }

    /// Returns a queue pair by its number.
    pub fn qp(&self, qpn: u32) -> Option<&Qp> {
        self.qps[self.index(qpn)?].as_ref().map(|s| &s.qp)
    }

    /// Brings a queue pair from RESET to RTS, through INIT and RTR.
    pub fn connect(&mut self, qpn: u32, params: &ConnectParams) -> Result<(), NicError> {
        params.steps().iter().try_for_each(|step| self.modify_qp(qpn, step))
    }

    /// Changes a queue pair's attributes and state (IBA 11.2.5.2).
    pub fn modify_qp(&mut self, qpn: u32, attr: &QpAttr) -> Result<(), NicError> {
        // A queue pair that begins to receive or to send allocates its state for that.
        room::ensure(0)?;
        self.device.memory.settle();
        let (index, slot, device) = self.find(qpn)?;
        let cqs = slot.qp.cqs();
        let before = noticed::peer(&slot.qp);
        let resets = attr.state == Some(QpState::Reset);
        let held: Vec<_> = if resets { slot.qp.held_receives().collect() } else { Vec::new() };
        if resets && slot.qp.is_sending() {
            device.recall();
        }
        slot.qp.modify(attr, device)?;
        let peer = noticed::peer(&slot.qp);
        if resets {
            device.forget_completions(qpn, cqs, held);
        }
        self.noticed.moved(qpn, before, peer);
        self.scheduler.unpark(index);
        self.touch(index);
        self.spread_cq_failure();
        Ok(())
    }

    /// Has a queue pair repeat its last acknowledgement. For one about to be destroyed: the peer may have missed it,
    /// and its retries would get no answer.
    pub fn repeat_ack(&mut self, qpn: u32) {
        if let Ok((index, slot, _)) = self.find(qpn) {
            slot.qp.repeat_ack();
            self.touch(index);
        }
    }

    /// Removes a queue pair, its work requests and its completions. Fails while it is attached to a multicast group.
    pub fn destroy_qp(&mut self, qpn: u32) -> Result<(), NicError> {
        if self.groups.holds(qpn) {
            return Err(NicError::InUse(Object::QueuePair));
        }
        self.device.memory.settle();
        let (index, slot, device) = self.find(qpn)?;
        if slot.qp.is_sending() {
            device.recall();
        }
        let (pd, cqs, srq, xrcd) = (slot.qp.pd(), slot.qp.cqs(), slot.qp.srq(), slot.qp.xrcd());
        device.forget_completions(qpn, cqs, slot.qp.held_receives());
        let (pulled, low, peer) = (slot.pulled, slot.low, noticed::peer(&slot.qp));
        if slot.ready || pulled.is_some_and(|pulled| pulled.urgent) || low.is_some_and(|low| low.rings != 0) {
            self.scheduler.remove(index);
        }
        if pulled.is_some_and(|pulled| pulled.queued) {
            self.pulls.remove(index);
        }
        self.wheel.cancel(index);
        self.noticed.moved(qpn, peer, None);
        self.qps[index as usize] = None;
        self.device.memory.unbind_queue_pair(qpn);
        self.free.push_back(index);
        self.count_users(pd, [cqs.0, cqs.1], srq, false);
        self.leave_xrcd(xrcd);
        Ok(())
    }

    /// Attaches a datagram queue pair to a multicast group. It receives packets to the group, its own included if the
    /// port loops them back. Returns whether it is the first of the group: the port must join it.
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

    /// Detaches a datagram queue pair from a multicast group. Returns whether it was the last of the group: the port
    /// may leave it.
    pub fn detach_mcast(&mut self, qpn: u32, group: IpAddr) -> Result<bool, NicError> {
        self.groups.detach(group, qpn).ok_or(NicError::NotFound(Object::MulticastMembership))
    }

    /// Paces a queue pair: `rate` in bit/s, 0 for none, in bursts of at most `burst` bytes.
    pub fn set_rate(&mut self, now: Time, qpn: u32, rate: u64, burst: u32) -> Result<(), NicError> {
        self.device.now = now;
        room::ensure(size_of::<Pacer>())?;
        let (index, slot, _) = self.find(qpn)?;
        slot.pacer = (rate != 0).then(|| Box::new(Pacer::new(now, rate, burst)));
        self.touch(index);
        Ok(())
    }

    /// Posts a send work request.
    pub fn post_send(&mut self, qpn: u32, wr: &SendWr<'_>) -> Result<(), PostError> {
        let (index, slot, device) = self.find(qpn).map_err(|_| PostError::NoQueue)?;
        let posted = slot.qp.post_send(wr, device);
        self.touch_until(index, Time::NEVER);
        if self.device.cq_failed {
            self.spread_cq_failure();
        }
        posted
    }

    /// Retracts the last `n` posted send work requests, none of which may have been started: nothing may have been sent
    /// or [copied](Self::copy_waiting_sends) since. Those flushed at once, in ERR and SQE, stay flushed.
    pub fn retract_sends(&mut self, qpn: u32, n: u32) -> Result<(), NicError> {
        let (_, slot, _) = self.find(qpn)?;
        slot.qp.retract_sends(n);
        Ok(())
    }

    /// Copies the data of datagrams that wait in a queue pair's send queue, so that the application may reuse their
    /// memory before they complete, which IBA forbids (10.8.3.2) and hardware NICs tolerate. Data sent at once needs no
    /// copy, so this is called after [`Self::poll_transmit`].
    #[inline]
    pub fn copy_waiting_sends(&mut self, qpn: u32) {
        if let Ok((_, slot, device)) = self.find(qpn) {
            slot.qp.copy_waiting_sends(device);
        }
    }

    /// Posts a receive work request.
    pub fn post_recv(&mut self, qpn: u32, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let (index, slot, device) = self.find(qpn).map_err(|_| PostError::NoQueue)?;
        if slot.qp.post_recv(wr, device)? {
            self.touch_until(index, Time::NEVER);
        }
        if self.device.cq_failed {
            self.spread_cq_failure();
        }
        Ok(())
    }

    // Packets and time.

    /// Receives a packet. Packets for no queue pair, from a wrong address or of a partition other than the default one
    /// (IBA 10.9.3) are counted and dropped.
    pub fn receive(&mut self, now: Time, packet: &RxPacket<'_>) {
        self.device.now = packet.arrived;
        if packet.sideband.returned {
            return self.receive_returned(now, packet);
        }
        let bth = &packet.headers.bth;
        let Ok((index, slot, device)) = self.find(bth.dest_qp) else {
            return self.receive_unaddressed(now, packet);
        };
        // Membership bit apart, only the default partition exists (IBA 10.9.3).
        if !slot.qp.knows(packet.path) || bth.pkey & 0x7fff != 0x7fff {
            device.counters.rx_dropped += 1;
            return;
        }
        slot.qp.receive(now, packet, device);
        if self.device.pulls_owed {
            self.queue_pulls(now, index);
        }
        self.touch(index);
        if self.device.cq_failed {
            self.spread_cq_failure();
        }
    }

    /// Receives a frame of the fast path as [`Self::receive`] would its packet, unless that would do anything out of
    /// the ordinary: what is not taken is to be parsed in full.
    #[inline]
    pub fn receive_fast(&mut self, now: Time, path: &Path, arrived: Time, frame: &FastFrame<'_>) -> Taken {
        if !self.config.fast_path || path.is_congested() {
            return Taken::Nothing;
        }
        let Ok((index, slot, device)) = self.find(frame.dest_qp) else { return Taken::Nothing };
        if !slot.qp.knows(path) {
            return Taken::Nothing;
        }
        device.now = arrived;
        let taken = slot.qp.receive_fast(now, frame, device);
        if taken != Taken::Nothing {
            if frame.ack.is_none() && frame.op.is_request() {
                // It sets no timer.
                if !slot.ready || !slot.has_only_its_timer() {
                    self.touch_until(index, Time::NEVER);
                }
            } else {
                self.touch(index);
            }
            if self.device.cq_failed {
                self.spread_cq_failure();
            }
        }
        taken
    }

    /// Receives a packet not addressed to an application's queue pair: a management datagram, or one for the members of
    /// a multicast group.
    #[cold]
    fn receive_unaddressed(&mut self, now: Time, packet: &RxPacket<'_>) {
        let bth = &packet.headers.bth;
        let taken = bth.pkey & 0x7fff == 0x7fff
            && match bth.dest_qp {
                GSI_QPN => self.gsi.receive(packet),
                MULTICAST_QPN => self.receive_multicast(now, packet),
                _ => false,
            };
        if !taken {
            self.device.counters.rx_dropped += 1;
        }
        if self.device.cq_failed {
            self.spread_cq_failure();
        }
    }

    /// Passes a packet to the queue pairs of its multicast group. Returns whether there are any.
    fn receive_multicast(&mut self, now: Time, packet: &RxPacket<'_>) -> bool {
        let mut members = 0;
        while let Some(&qpn) = self.groups.members(&packet.path.dst).get(members) {
            members += 1;
            if let Ok((_, slot, device)) = self.find(qpn) {
                slot.qp.receive(now, packet, device);
            }
        }
        members > 0
    }

    /// Takes the oldest management datagram received by queue pair 1. Its base version, class and method are not
    /// checked. At most 1,024 wait; more are dropped and counted in [`Counters::rx_dropped`].
    pub fn poll_mad(&mut self) -> Option<ManagementDatagram> {
        self.gsi.take()
    }

    /// Returns whether [`Self::poll_mad`] would return one.
    #[inline]
    pub fn has_mads(&self) -> bool {
        self.gsi.has_arrived()
    }

    /// Sends a management datagram from queue pair 1 to queue pair 1 at `path.dst`. It leaves before packets of other
    /// queue pairs. Returns false, and drops it, if 1,024 wait.
    pub fn post_mad(&mut self, path: Path, mad: &[u8; MAD_LEN]) -> bool {
        let posted = self.gsi.post(ManagementDatagram { path, mad: *mad });
        self.mads_wait |= posted;
        posted
    }

    /// Returns when [`Self::on_deadline`] is due: never later than the earliest timer, [`Time::NEVER`] without one.
    #[inline]
    pub fn next_deadline(&self) -> Time {
        self.wheel.next_deadline().min(self.pulls.deadline())
    }

    /// Runs the timers that are due, without information about peers' processes.
    pub fn on_deadline(&mut self, now: Time) {
        self.on_deadline_knowing(now, |_, _| PeerProcess::Unknown);
    }

    /// Runs the timers that are due. `process` returns what is known of the process that has a queue pair number at the
    /// path's destination; it is called before a queue pair that has used up its retries fails.
    #[inline]
    pub fn on_deadline_knowing(&mut self, now: Time, mut process: impl FnMut(&Path, u32) -> PeerProcess) {
        self.run_timers(now, &mut process);
    }

    fn run_timers(&mut self, now: Time, mut process: &mut dyn FnMut(&Path, u32) -> PeerProcess) {
        self.device.now = now;
        while let Some(index) = self.wheel.pop_due(now) {
            let Some(slot) = self.qps[index as usize].as_mut() else { continue };
            slot.timer = Time::NEVER;
            let deadline = slot.qp.next_deadline();
            if deadline > now && slot.has_only_its_timer() {
                // It was moved back, or fell away.
                if deadline != Time::NEVER {
                    slot.timer = deadline;
                    self.wheel.schedule(index, deadline);
                }
                continue;
            }
            slot.qp.on_deadline(now, &mut self.device, &mut process);
            self.touch(index);
        }
        if self.pulls.deadline() <= now {
            self.run_pulls(now);
        }
        if self.device.cq_failed {
            self.spread_cq_failure();
        }
    }

    /// Updates a queue pair's place in the ready ring and on the wheel. Deadlines that moved back are left until the
    /// wheel reaches them: acknowledgements move one back all the time.
    #[inline]
    fn touch(&mut self, index: u32) {
        let Some(slot) = &self.qps[index as usize] else { return };
        self.touch_until(index, slot.qp.next_deadline());
    }

    /// Updates a queue pair's places, given its deadline. [`Time::NEVER`] will do after posting, which sets no timer.
    #[inline]
    fn touch_until(&mut self, index: u32, mut deadline: Time) {
        let Some(slot) = self.qps[index as usize].as_mut() else { return };
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
        if slot.pulled.is_some() {
            slot.hurry(index, &mut self.scheduler);
        }
        if slot.low.is_some() {
            deadline = deadline.min(slot.offer_low(index, self.device.now, &mut self.scheduler));
        }
        slot.set_timer(index, deadline, &mut self.wheel);
    }

    /// Moves the queue pairs of an overflowed completion queue to the error state (IBA 10.2.6.4).
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

    /// Returns the counters of all queue pairs together.
    pub fn counters(&self) -> &Counters {
        &self.device.counters
    }

    /// Returns the counters mutably, for errors found before a packet reaches [`Self::receive`]: malformed frames and
    /// wrong ICRCs.
    pub fn counters_mut(&mut self) -> &mut Counters {
        self.device.counters()
    }

    /// Replaces the hardware clock. Existing stamps are kept.
    pub fn set_clock(&mut self, clock: Clock) {
        self.device.clock = clock;
    }

    /// Returns the hardware clock.
    pub fn clock(&self) -> &Clock {
        &self.device.clock
    }
}
