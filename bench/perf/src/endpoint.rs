//! One end of a run: creation and connection of a NIC's queue pairs, completion queues and memory.

use std::cell::Cell;
use std::net::IpAddr;

use irnic_nic::{Arm, Mr, Nic, NicConfig, NicError, NicEvent, QpConfig};
use irnic_transports::qp::{Access, ConnectParams, CqId, PostError, RecvWr, SendWr, Service, Sge, SrqId, Wc, WcStatus};
use irnic_transports::wire::Mtu;
use irnic_transports::{Path, Psn, Time};
use serde::{Deserialize, Serialize};

use crate::error::PerfError;
use crate::layout::Layout;
use crate::pattern::mix;
use crate::plan::{Plan, Verb};

/// Parameters of an end, sent to the other before a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndInfo {
    /// Number and first PSN of each queue pair.
    pub qps: Vec<(u32, u32)>,
    /// Address and key of memory for peers: of all queue pairs, or of each.
    pub regions: Vec<(u64, u32)>,
}

/// Maximum number of control messages in flight on a queue pair, in each direction.
pub const CONTROLS: u32 = 8;

/// Maximum number of completions polled at a time.
pub const BATCH: usize = 64;

/// RNR NAK delay of 640 µs: perftest's code.
pub const MIN_RNR_TIMER: u8 = 12;
/// Infinite retries.
pub const RNR_RETRY: u8 = 7;

/// Default burst of a queue pair with a rate limit after idling, in µs of its rate; at most the limit of verbs.
const BURST_US: u64 = 100;
const MAX_BURST: u32 = 16 << 10;

/// The verbs objects of one end.
#[derive(Debug)]
pub struct Endpoint {
    /// 0 the client, 1 the server.
    pub side: usize,
    pub first_qpn: u32,
    pub psns: Vec<u32>,
    pub send_cq: CqId,
    pub recv_cq: CqId,
    /// The shared receive queue of all queue pairs, if they share one.
    pub srq: Option<SrqId>,
    /// Regions of all queue pairs, or of each.
    local: Vec<Mr>,
    remote: Vec<Mr>,
    /// The other end.
    peer: EndInfo,
    /// Completion events, if they are used.
    events: Option<Events>,
}

/// State of completion events: for sends, and for receives.
#[derive(Debug, Default)]
struct Events {
    /// Whether one has arrived, so that there may be completions.
    come: [Cell<bool>; 2],
    taken: Cell<u64>,
}

/// Wraps an error of the NIC.
pub fn refused(e: NicError) -> PerfError {
    PerfError::Failed(format!("the NIC refused: {e}"))
}

/// The path of queue pair `qpn`'s packets.
pub fn path(plan: &Plan, qpn: u32, src: IpAddr, dst: IpAddr) -> Path {
    Path {
        src,
        dst,
        // One of the ports that RoCEv2 recommends, by queue pair.
        udp_src: 0xc000 | (qpn as u16 & 0x3fff),
        traffic_class: plan.traffic_class,
        hop_limit: plan.hop_limit,
    }
}

/// Sets the rate limit of a queue pair, if the plan has one.
pub fn limit(nic: &mut Nic, plan: &Plan, qpn: u32) -> Result<(), PerfError> {
    let Some(rate) = plan.rate_limit else { return Ok(()) };
    let saturated = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
    let burst = match plan.burst {
        Some(messages) => saturated(u64::from(messages) * u64::from(plan.size)),
        None => saturated(rate / 8 * BURST_US / 1_000_000).min(MAX_BURST),
    };
    nic.set_rate(Time::ZERO, qpn, rate, burst).map_err(refused)
}

impl Endpoint {
    /// The NIC of end `side` in the `run`-th run, with its objects, and its parameters for the other end. Each run has
    /// its own queue pair numbers, so that late packets of another run are not delivered.
    pub fn new(plan: &Plan, side: usize, run: usize, size: u32) -> Result<(Nic, Endpoint, EndInfo), PerfError> {
        let first_qpn = 0x100 + (side as u32) * 0x80_0000 + (run as u32 % 256) * 0x4000;
        let mut seed = [0; 32];
        for (i, word) in seed.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&mix(plan.seed ^ mix((run * 8 + side * 4 + i) as u64)).to_le_bytes());
        }
        let mut nic = Nic::new(NicConfig { first_qpn, quantum: 16, seed, ..NicConfig::default() });
        let mut make = || -> Result<_, NicError> {
            let qps = plan.qps as u32;
            let layout = Layout::new(plan, size);
            let pd = nic.alloc_pd()?;
            let write = Access::LOCAL_WRITE;
            let all = write | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
            let (initiator, target) = plan.roles(side);
            let regions = if plan.mr_per_qp { qps } else { 1 };
            let mut alloc = |needed: bool, bytes: u64, access| -> Result<Vec<Mr>, NicError> {
                let bytes = if needed { bytes / u64::from(regions) } else { 0 };
                (0..regions).map(|_| nic.alloc_mr(pd, bytes, access)).collect()
            };
            let local = alloc(initiator, layout.local_bytes(plan.qps), write)?;
            let remote = alloc(target, layout.remote_bytes(plan.qps), all)?;
            for mr in local.iter().chain(&remote) {
                // Touched now, outside the measurement; 0x5a is no message's content.
                nic.bytes_mut(mr).into_iter().for_each(|bytes| bytes.fill(0x5a));
            }
            let verb = plan.test.verb();
            let depth = plan.depth(size).max(4);
            let receives = if verb == Verb::Send { layout.receives } else { CONTROLS };
            let send_cq = nic.create_cq((qps * (depth + 2 * CONTROLS)).min(Nic::MAX_CQE))?;
            let recv_cq = nic.create_cq((qps * receives).min(Nic::MAX_CQE))?;
            let srq = plan.srq.then(|| nic.create_srq(pd, receives, 1)).transpose()?;
            let config = QpConfig {
                service: Service::Rc,
                pd,
                send_cq,
                recv_cq,
                srq,
                xrcd: None,
                max_send_wr: depth + 2 * CONTROLS,
                max_recv_wr: receives,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline: if size <= plan.inline { size } else { 0 },
                sq_sig_all: false,
                transport: plan.transport,
            };
            for i in 0..qps {
                let qpn = nic.create_qp(&config)?;
                debug_assert_eq!(qpn, first_qpn + i);
            }
            Ok((send_cq, recv_cq, srq, local, remote))
        };
        let (send_cq, recv_cq, srq, local, remote) = make().map_err(refused)?;
        let psn = |qp: usize| mix(plan.seed ^ mix((qp * 1024 + run * 2 + side) as u64 ^ 0xbeef)) as u32 & 0xff_ffff;
        let psns: Vec<u32> = (0..plan.qps).map(psn).collect();
        let info = EndInfo {
            qps: psns.iter().zip(first_qpn..).map(|(&psn, qpn)| (qpn, psn)).collect(),
            regions: remote.iter().map(|mr| (mr.addr, mr.rkey)).collect(),
        };
        let events = plan.events.then(Events::default);
        if events.is_some() {
            nic.arm_cq(send_cq, Arm::Next).and_then(|()| nic.arm_cq(recv_cq, Arm::Next)).map_err(refused)?;
        }
        let end = Endpoint { side, first_qpn, psns, send_cq, recv_cq, srq, local, remote, peer: info.clone(), events };
        Ok((nic, end, info))
    }

    /// The region of a queue pair with data to be sent, or returned by READs and atomics.
    #[inline]
    pub fn local(&self, qp: usize) -> &Mr {
        &self.local[if self.local.len() > 1 { qp } else { 0 }]
    }

    /// The region of a queue pair for data that arrives: the target of peers' operations, or of receives.
    #[inline]
    pub fn remote(&self, qp: usize) -> &Mr {
        &self.remote[if self.remote.len() > 1 { qp } else { 0 }]
    }

    /// Address and key of the other end's `remote`.
    #[inline]
    pub fn target(&self, qp: usize) -> (u64, u32) {
        self.peer.regions[if self.peer.regions.len() > 1 { qp } else { 0 }]
    }

    /// Stores the parameters of the other end.
    pub fn meet(&mut self, peer: EndInfo) -> Result<(), PerfError> {
        if peer.qps.len() != self.psns.len() || peer.regions.len() != self.remote.len() {
            return Err(PerfError::failed("the peer has another number of queue pairs or memory regions"));
        }
        self.peer = peer;
        Ok(())
    }

    /// Brings every queue pair to RTS.
    pub fn connect(
        &mut self,
        nic: &mut Nic,
        plan: &Plan,
        mtu: Mtu,
        own: IpAddr,
        other: IpAddr,
        peer: EndInfo,
    ) -> Result<(), PerfError> {
        self.meet(peer)?;
        for (i, &(qpn, psn)) in self.peer.qps.iter().enumerate() {
            let here = self.first_qpn + i as u32;
            let path = path(plan, here, own, other);
            let mut params = ConnectParams::reliable(path, mtu, qpn);
            params.access = Access::ALL;
            params.rq_psn = Psn::new(psn);
            params.sq_psn = Psn::new(self.psns[i]);
            params.rd_atomic = plan.outs;
            params.min_rnr_timer = MIN_RNR_TIMER;
            params.timeout = plan.qp_timeout;
            params.retry_cnt = plan.retry_count;
            params.rnr_retry = RNR_RETRY;
            nic.connect(here, &params).map_err(refused)?;
            limit(nic, plan, here)?;
        }
        Ok(())
    }

    /// Polls completions; the index of each one's queue pair is `wc.qp_num - first_qpn`. An error completion ends the
    /// run.
    #[inline]
    pub fn poll(&self, nic: &mut Nic, cq: CqId, out: &mut [Wc; BATCH]) -> Result<usize, PerfError> {
        let n = match &self.events {
            None => nic.poll_cq(cq, out).map_err(refused)?,
            Some(events) => self.poll_by_events(nic, events, cq, out)?,
        };
        for wc in &out[..n] {
            if wc.status != WcStatus::Success {
                return Err(self.explain(wc));
            }
        }
        Ok(n)
    }

    /// Polls completions of a queue that has raised an event. The next event is requested before the queue is polled,
    /// so that none is missed, as ibv_req_notify_cq(3) recommends.
    fn poll_by_events(
        &self,
        nic: &mut Nic,
        events: &Events,
        cq: CqId,
        out: &mut [Wc; BATCH],
    ) -> Result<usize, PerfError> {
        while let Some(event) = nic.poll_event() {
            if let NicEvent::Completion(raised) = event {
                nic.arm_cq(raised, Arm::Next).map_err(refused)?;
                events.come[usize::from(raised == self.recv_cq)].set(true);
                events.taken.set(events.taken.get() + 1);
            }
        }
        let come = &events.come[usize::from(cq == self.recv_cq)];
        if !come.get() {
            return Ok(0);
        }
        let n = nic.poll_cq(cq, out).map_err(refused)?;
        // A full batch may have left some.
        come.set(n == out.len());
        Ok(n)
    }

    /// Number of completion events; `None` if completions were polled.
    pub fn events(&self) -> Option<u64> {
        self.events.as_ref().map(|events| events.taken.get())
    }

    #[cold]
    fn explain(&self, wc: &Wc) -> PerfError {
        let advice = match wc.status {
            WcStatus::RetryExcErr => {
                "the peer did not answer: see that it runs, that both ends use the same --transport, and that nothing \
                 between them drops UDP port 4791; under heavy loss or delay raise -u"
            }
            WcStatus::RnrRetryExcErr => "the peer posts no receives: raise --rx-depth",
            WcStatus::RemAccessErr | WcStatus::RemInvReqErr | WcStatus::RemOpErr => {
                "the peer refused the request: start both ends anew, with the same options"
            }
            _ => "this is a bug: please report it with the command line and the seed",
        };
        let side = if self.side == 0 { "client" } else { "server" };
        PerfError::Failed(format!("queue pair {:#x} of the {side}: {}; {advice}", wc.qp_num, wc.status.as_str()))
    }

    /// Posts a send work request; false if the queue is full.
    #[inline]
    pub fn post_send(&self, nic: &mut Nic, qp: usize, wr: &SendWr<'_>) -> Result<bool, PerfError> {
        posted(nic.post_send(self.first_qpn + qp as u32, wr))
    }

    /// Posts a receive work request of `len` bytes at `addr`.
    #[inline]
    pub fn post_recv(&self, nic: &mut Nic, qp: usize, wr_id: u64, addr: u64, len: u32) -> Result<(), PerfError> {
        let sges = [Sge { addr, len, lkey: self.remote(qp).lkey }];
        let wr = RecvWr { wr_id, sges: if len == 0 { &[] } else { &sges } };
        let outcome = match self.srq {
            None => nic.post_recv(self.first_qpn + qp as u32, &wr),
            Some(srq) => nic.post_srq_recv(srq, &wr),
        };
        match posted(outcome)? {
            true => Ok(()),
            false => Err(PerfError::failed("the receive queue is full")),
        }
    }
}

#[inline]
fn posted(result: Result<(), PostError>) -> Result<bool, PerfError> {
    match result {
        Ok(()) => Ok(true),
        Err(PostError::Full(_)) => Ok(false),
        Err(e) => Err(PerfError::Failed(format!("the queue pair refused a work request: {e}"))),
    }
}
