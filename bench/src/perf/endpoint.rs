//! One end of a run: a NIC's queue pairs, completion queues and memory, made and connected.

use std::net::IpAddr;

use irnic_nic::{Mr, Nic, NicConfig, NicError, QpConfig};
use irnic_transports::qp::{Access, ConnectParams, CqId, PostError, RecvWr, SendWr, Service, Sge, Wc, WcStatus};
use irnic_transports::wire::Mtu;
use irnic_transports::{Path, Psn, Time};
use serde::{Deserialize, Serialize};

use super::PerfError;
use super::layout::Layout;
use super::pattern::mix;
use super::plan::{Plan, Verb};

/// What an end tells the other before a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndInfo {
    /// Number and first PSN of each queue pair.
    pub qps: Vec<(u32, u32)>,
    /// Where peers write to and read from.
    pub addr: u64,
    /// The key to it.
    pub rkey: u32,
}

/// Control messages that may be under way on a queue pair, each way.
pub const CONTROLS: u32 = 8;

/// Completions taken at a time.
pub const BATCH: usize = 64;

/// A wait of 640 µs after an RNR NAK: perftest's code.
const MIN_RNR_TIMER: u8 = 12;
const RETRY_CNT: u8 = 7;
/// For ever.
const RNR_RETRY: u8 = 7;

/// What a queue pair with a rate limit may send at once after it was idle: so many µs of its rate, at most what verbs
/// gives it.
const BURST_US: u64 = 100;
const MAX_BURST: u32 = 16 << 10;

/// One end's objects.
#[derive(Debug)]
pub struct Endpoint {
    /// 0 the client, 1 the server.
    pub side: usize,
    pub first_qpn: u32,
    pub psns: Vec<u32>,
    pub send_cq: CqId,
    pub recv_cq: CqId,
    /// Local buffers of what is sent, or of what READs and atomics return.
    pub local: Mr,
    /// Buffers of what arrives: the target of peers' operations, or of receives.
    pub remote: Mr,
    /// The other end's `remote`.
    pub peer: EndInfo,
}

fn refused(e: NicError) -> PerfError {
    PerfError::Failed(format!("the NIC refused: {e}"))
}

impl Endpoint {
    /// The NIC of side `side` in the `run`-th run, with its objects, and what the other end must know of it. Each run
    /// has queue pair numbers of its own, so that late packets of another go astray.
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
            let bytes = |needed: bool, bytes: u64| if needed { bytes * u64::from(qps) } else { 0 };
            let local = nic.alloc_mr(pd, bytes(initiator, layout.local_bytes()), write)?;
            let remote = nic.alloc_mr(pd, bytes(target, layout.remote_bytes()), all)?;
            for mr in [&local, &remote] {
                // Touched now, not while the time runs; 0x5a is no message's content.
                nic.bytes_mut(mr).into_iter().for_each(|bytes| bytes.fill(0x5a));
            }
            let verb = plan.test.verb();
            let depth = plan.depth(size).max(4);
            let receives = if verb == Verb::Send { layout.receives } else { CONTROLS };
            let send_cq = nic.create_cq((qps * (depth + CONTROLS)).min(Nic::MAX_CQE))?;
            let recv_cq = nic.create_cq((qps * receives).min(Nic::MAX_CQE))?;
            let config = QpConfig {
                service: Service::Rc,
                pd,
                send_cq,
                recv_cq,
                srq: None,
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
            Ok((send_cq, recv_cq, local, remote))
        };
        let (send_cq, recv_cq, local, remote) = make().map_err(refused)?;
        let psn = |qp: usize| mix(plan.seed ^ mix((qp * 1024 + run * 2 + side) as u64 ^ 0xbeef)) as u32 & 0xff_ffff;
        let psns: Vec<u32> = (0..plan.qps).map(psn).collect();
        let info = EndInfo {
            qps: psns.iter().zip(first_qpn..).map(|(&psn, qpn)| (qpn, psn)).collect(),
            addr: remote.addr,
            rkey: remote.rkey,
        };
        let end = Endpoint { side, first_qpn, psns, send_cq, recv_cq, local, remote, peer: info.clone() };
        Ok((nic, end, info))
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
        if peer.qps.len() != self.psns.len() {
            return Err(PerfError::failed("the peer has another number of queue pairs"));
        }
        for (i, &(qpn, psn)) in peer.qps.iter().enumerate() {
            let here = self.first_qpn + i as u32;
            let path = Path {
                src: own,
                dst: other,
                // One of the ports that RoCEv2 recommends, by queue pair.
                udp_src: 0xc000 | (here as u16 & 0x3fff),
                traffic_class: 2,
                hop_limit: 64,
            };
            let mut params = ConnectParams::reliable(path, mtu, qpn);
            params.access = Access::ALL;
            params.rq_psn = Psn::new(psn);
            params.sq_psn = Psn::new(self.psns[i]);
            params.rd_atomic = plan.outs;
            params.min_rnr_timer = MIN_RNR_TIMER;
            params.timeout = plan.qp_timeout;
            params.retry_cnt = RETRY_CNT;
            params.rnr_retry = RNR_RETRY;
            nic.connect(here, &params).map_err(refused)?;
            if let Some(rate) = plan.rate_limit {
                let burst = u32::try_from(rate / 8 * BURST_US / 1_000_000).unwrap_or(u32::MAX);
                nic.set_rate(Time::ZERO, here, rate, burst.min(MAX_BURST)).map_err(refused)?;
            }
        }
        self.peer = peer;
        Ok(())
    }

    /// Takes completions; the index of each one's queue pair is `wc.qp_num - first_qpn`. One in error ends the run.
    #[inline]
    pub fn poll(&self, nic: &mut Nic, cq: CqId, out: &mut [Wc; BATCH]) -> Result<usize, PerfError> {
        let n = nic.poll_cq(cq, out).map_err(refused)?;
        for wc in &out[..n] {
            if wc.status != WcStatus::Success {
                return Err(self.explain(wc));
            }
        }
        Ok(n)
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
        let sges = [Sge { addr, len, lkey: self.remote.lkey }];
        let wr = RecvWr { wr_id, sges: if len == 0 { &[] } else { &sges } };
        match posted(nic.post_recv(self.first_qpn + qp as u32, &wr))? {
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
