//! A server: a NIC at the end of a link, and the application that posts flows to it.

use std::net::{IpAddr, Ipv4Addr};

use irnic_nic::{Mr, Nic, NicConfig, NicError, QpConfig};
use irnic_transports::config::TransportConfig;
use irnic_transports::qp::{
    Access, ConnectParams, CqId, PdId, RecvWr, SendData, SendOp, SendWr, Service, Sge, Wc, WcStatus,
};
use irnic_transports::telemetry::Int;
use irnic_transports::wire::Mtu;
use irnic_transports::{Path, Time};

use crate::port::PortId;

/// Longest message of a flow, bytes: longer flows are several.
pub const MESSAGE: u64 = 1 << 30;

/// Bytes of the longest flow.
pub const MAX_FLOW: u64 = 1 << 40;

/// Address space that exists only as numbers: flows are sent from and to its beginning.
const PHANTOM: u64 = 1 << 12;

/// One server.
#[derive(Debug)]
pub struct Host {
    /// Its NIC: the same that applications run on.
    pub nic: Nic,
    /// Its only port.
    pub port: PortId,
    /// When the earliest `Deadline` event for it is, ns.
    pub wakes: u64,
    pd: PdId,
    cq: CqId,
    memory: Mr,
}

/// How queue pairs of a run are set up.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct QpSetup {
    /// Loss recovery, flow control, timers.
    pub transport: TransportConfig,
    /// Payload bytes of a full packet.
    pub mtu: Mtu,
    /// Most messages in a send queue.
    pub depth: u32,
}

impl QpSetup {
    /// Bytes of telemetry on a request.
    pub fn telemetry(&self) -> u32 {
        if self.transport.congestion.uses_telemetry() { Int::LEN } else { 0 }
    }
}

/// Address of a host.
pub fn address(host: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0001 + host))
}

/// The host with an address.
#[inline]
pub fn host_of(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(v4) => v4.to_bits().wrapping_sub(0x0a00_0001),
        IpAddr::V6(_) => u32::MAX,
    }
}

impl Host {
    /// A server whose NIC has no queue pair yet. No packet may lead to more than so many `completions`: they are looked at after
    /// each packet and each deadline.
    pub fn new(config: NicConfig, port: PortId, completions: u32) -> Result<Host, NicError> {
        let mut nic = Nic::new(config);
        let pd = nic.alloc_pd()?;
        let cq = nic.create_cq(completions)?;
        let memory = nic.reg_phantom_mr(pd, PHANTOM, MAX_FLOW, Access::ALL)?;
        Ok(Host { nic, port, wakes: u64::MAX, pd, cq, memory })
    }

    /// A queue pair in RESET.
    pub fn create_qp(&mut self, setup: &QpSetup) -> Result<u32, NicError> {
        self.nic.create_qp(&QpConfig {
            service: Service::Rc,
            pd: self.pd,
            send_cq: self.cq,
            recv_cq: self.cq,
            srq: None,
            max_send_wr: setup.depth,
            max_recv_wr: setup.depth,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline: 0,
            sq_sig_all: false,
            transport: setup.transport,
        })
    }

    /// Takes a queue pair from RESET to RTS.
    pub fn connect(&mut self, qpn: u32, setup: &QpSetup, path: Path, dest_qp: u32) -> Result<(), NicError> {
        let mut params = ConnectParams::reliable(path, setup.mtu, dest_qp);
        params.access = Access::ALL;
        // The timer is the transport's; a peer that is silent for long is behind a long queue, not dead.
        params.timeout = 0;
        self.nic.connect(qpn, &params)
    }

    /// Posts what receives the completion of a flow.
    pub fn expect(&mut self, qpn: u32, flow: u32) -> Result<(), NicError> {
        let wr = RecvWr { wr_id: u64::from(flow), sges: &[] };
        self.nic.post_recv(qpn, &wr)?.expect("as many receive work requests as messages");
        Ok(())
    }

    /// Posts a flow: RDMA WRITEs, the last with immediate data, from `local` of this host's to `remote` of the receiver's, which
    /// has the key `rkey`; or from and to memory that has no bytes.
    pub fn post(&mut self, qpn: u32, flow: u32, bytes: u64, to: Remote, local: Option<&Mr>) -> Result<(), NicError> {
        let mr = local.unwrap_or(&self.memory);
        let (addr, lkey) = (mr.addr, mr.lkey);
        let mut at = 0;
        while at < bytes || bytes == 0 {
            let len = (bytes - at).min(MESSAGE);
            let last = at + len == bytes;
            let sge = [Sge { addr: addr + at, len: len as u32, lkey }];
            let wr = SendWr {
                wr_id: u64::from(flow),
                op: if last { SendOp::WriteImm(flow) } else { SendOp::Write },
                data: SendData::Sges(&sge),
                remote_addr: to.addr + at,
                rkey: to.rkey,
                signaled: last,
                solicited: false,
                fence: false,
                to: None,
            };
            self.nic.post_send(qpn, &wr)?.expect("no more messages than fit into the queue");
            at += len;
            if last {
                break;
            }
        }
        Ok(())
    }

    /// Where flows to this host go if they have no bytes.
    pub fn remote(&self) -> Remote {
        Remote { addr: self.memory.addr, rkey: self.memory.rkey }
    }

    /// Memory of `bytes` bytes.
    pub fn memory(&mut self, bytes: u64) -> Result<Mr, NicError> {
        self.nic.alloc_mr(self.pd, bytes, Access::ALL)
    }

    /// Completions.
    #[inline]
    pub fn poll(&mut self, into: &mut [Wc]) -> usize {
        self.nic.poll_cq(self.cq, into).unwrap_or(0)
    }

    /// Runs the timers that are due.
    pub fn on_deadline(&mut self, now: u64) {
        self.nic.on_deadline(Time(now));
    }
}

/// Where a flow is written to.
#[derive(Copy, Clone, Debug)]
pub struct Remote {
    /// Address at the receiver.
    pub addr: u64,
    /// Key.
    pub rkey: u32,
}

/// Whether a completion says that all is well.
pub fn succeeded(wc: &Wc) -> bool {
    wc.status == WcStatus::Success
}
