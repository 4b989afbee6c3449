//! A server: a NIC at the end of a link, and the application that posts flows to it.

use irnic_nic::frame::{Icrc, RxFrame, RxIcrc, emit_frame, receive_frame_with};
use irnic_nic::{Mr, Nic, NicConfig, NicError, QpConfig};
use irnic_transports::qp::{
    Access, ConnectParams, CqId, PdId, RecvWr, SendData, SendOp, SendWr, Service, Sge, Wc, WcStatus,
};
use irnic_transports::telemetry::Int;
use irnic_transports::wire::{Headers, RateNotice};
use irnic_transports::{Path, Payload, RxPacket, Time};

use super::observe::Observer;
use super::remote_flows::RemoteFlows;
use super::{ENCAPSULATION, HeaderBytes, QpSetup};
use crate::network::{Content, Endpoint, EndpointCtx, Packet, PacketId, Recorder, Tapped, host_of, mix};
use crate::priorities::Priorities;

/// Maximum length of a message, bytes: longer flows are split into several.
pub(crate) const MESSAGE: u64 = 1 << 30;

/// Maximum length of a flow, bytes.
pub(crate) const MAX_FLOW: u64 = crate::workload::ENDLESS;

/// Phantom address space, without backing memory: flows are sent from and to its beginning.
const PHANTOM: u64 = 1 << 12;

/// A server: a NIC as used by applications, with the memory and completion queue of its flows.
#[derive(Debug)]
#[repr(C)]
pub struct NicEndpoint {
    cq: CqId,
    pd: PdId,
    /// Number of the NIC's completions that have been polled.
    polled: u64,
    pub(super) nic: Nic,
    memory: Mr,
    /// In a part of a network: this host's state of flows that end in other parts.
    pub(super) remote_flows: Option<Box<RemoteFlows>>,
}

/// State shared by all NICs of a run.
#[derive(Debug)]
pub struct NicShared {
    /// Header lengths of packets.
    pub(super) headers: HeaderBytes,
    /// Whether packets are real frames.
    pub(super) carry_bytes: bool,
    /// Whether senders choose the paths of their packets: a label is in the lower bits of the UDP source port.
    pub(super) labels: bool,
    /// Trimmed packets that reached a queue pair: NICs count them by queue pair only.
    pub(super) trimmed: u64,
    /// Flows whose last packet has left, if this is tracked: its immediate data is the flow number.
    pub(super) sent: Option<Vec<u32>>,
    pub(super) observer: Option<Box<Observer>>,
    /// Receiver of the packets of tapped ports.
    pub(super) recorder: Option<Box<dyn Recorder>>,
}

impl Endpoint for NicEndpoint {
    type Shared = NicShared;

    #[inline(always)]
    fn wants_tx(&mut self, paused: Priorities) -> bool {
        self.nic.set_stopped(paused.bits());
        self.nic.wants_tx()
    }

    #[inline]
    fn poll_transmit(&mut self, ctx: &mut EndpointCtx<'_, NicShared>) -> Option<PacketId> {
        let mut taken = None;
        self.nic.poll_transmit(Time(ctx.now), 1, |packet| {
            let payload = packet.payload.len() as u32;
            let wire = match ctx.shared.headers {
                HeaderBytes::Real => packet.headers.frame_len(payload as usize) as u32 + ENCAPSULATION,
                HeaderBytes::Fixed(bytes) => payload + bytes,
            } + packet.sideband.telemetry.map_or(0, |_| Int::LEN);
            let frame = ctx.shared.carry_bytes.then(|| {
                let mut frame = vec![0; packet.headers.frame_len(payload as usize)];
                emit_frame(packet, Some(packet.path), &mut frame);
                frame.into_boxed_slice()
            });
            let dst = host_of(packet.path.dst);
            let port = u32::from(packet.path.udp_src);
            let entropy = if ctx.shared.labels { port & 0x3fff } else { mix(ctx.host ^ mix(dst ^ mix(port))) };
            let rate = ctx.rate();
            if let (Some(sent), Some(flow)) = (&mut ctx.shared.sent, packet.headers.imm) {
                sent.push(flow);
            }
            if let Some(observer) = &mut ctx.shared.observer {
                observer.sent(ctx.now, rate, dst, packet.headers, payload);
            }
            let id = ctx.send(
                Packet::new(wire, dst, entropy, packet.path.priority()).with_sideband(&packet.sideband),
                Content {
                    headers: *packet.headers,
                    path: *packet.path,
                    payload,
                    hops: 0,
                    sent: ctx.now,
                    slack: 0,
                    frame,
                },
            );
            if let Some(int) = packet.sideband.telemetry {
                ctx.packets.set_telemetry(id, *int);
            }
            taken = Some(id);
            false
        });
        taken
    }

    fn on_tap(shared: &mut NicShared, tapped: Tapped<'_>) {
        let Some(recorder) = &mut shared.recorder else { return };
        // Without bytes there are only headers, and the length of the rest.
        let mut headers = [0; Headers::MAX_LEN];
        tapped.record(&mut **recorder, |content| match &content.frame {
            Some(frame) => (frame, frame.len()),
            None => {
                let len = content.headers.emit(&mut headers);
                (&headers[..len], content.headers.frame_len(content.payload as usize))
            }
        });
        recorder.passed(tapped.at);
    }

    #[inline]
    fn receive(&mut self, id: PacketId, ctx: &mut EndpointCtx<'_, NicShared>) {
        if let Some(notice) = ctx.packets.notice(id) {
            return self.receive_notice(Time(ctx.now), notice, ctx.shared.carry_bytes);
        }
        if let Some(remote) = &mut self.remote_flows {
            remote.resolve(ctx.packets.content(id).headers.bth.dest_qp, &mut self.nic);
        }
        let now = Time(ctx.now);
        let content = ctx.packets.content(id);
        let sideband = ctx.packets.sideband(id);
        match &content.frame {
            Some(bytes) if !sideband.trimmed => {
                let frame = RxFrame { path: content.path, bytes, arrived: now, icrc: RxIcrc::Exact };
                receive_frame_with(&mut self.nic, now, &frame, Icrc::Checked, sideband);
            }
            // The ICRC of a trimmed frame was cut off with its payload.
            _ => {
                let packet = RxPacket {
                    headers: &content.headers,
                    path: &content.path,
                    payload: Payload::Len(content.payload),
                    arrived: now,
                    sideband,
                };
                let refused = self.nic.counters().rx_dropped;
                self.nic.receive(now, &packet);
                if sideband.trimmed && self.nic.counters().rx_dropped == refused {
                    ctx.shared.trimmed += 1;
                }
            }
        }
        if let Some(observer) = &mut ctx.shared.observer {
            let marked = content.path.traffic_class & 3 == 3;
            observer.arrived(ctx.now, ctx.host, &content.headers, content.payload, marked);
        }
    }

    #[inline]
    fn on_deadline(&mut self, now: u64) {
        self.nic.on_deadline(Time(now));
    }

    #[inline]
    fn next_deadline(&self) -> u64 {
        self.nic.next_deadline().0
    }

    fn awaits(&self, content: &Content) -> Option<(u32, u32)> {
        self.remote_flows.as_ref()?.awaits(content.headers.bth.dest_qp)
    }

    #[inline]
    fn prefetch(&self) {
        self.nic.fetch();
    }

    #[inline]
    fn prefetch_receiver(&self, content: &Content) {
        self.nic.fetch_place(content.headers.bth.dest_qp);
    }

    #[inline]
    fn prefetch_sender(&self) {
        self.nic.fetch_front();
    }

    #[inline]
    fn prefetch_receive(&self, content: &Content) {
        self.nic.fetch_qp(content.headers.bth.dest_qp);
        if let Some(reth) = &content.headers.reth {
            self.nic.fetch_region(reth.rkey);
        }
    }

    #[inline]
    fn prefetch_transmit(&self) {
        self.nic.fetch_sender();
    }
}

impl NicEndpoint {
    /// Processes a switch's rate notice, as bytes if runs carry them.
    #[cold]
    fn receive_notice(&mut self, now: Time, notice: &RateNotice, in_bytes: bool) {
        let read = if in_bytes { RateNotice::parse(&notice.emit()) } else { Ok(*notice) };
        match read {
            Ok(notice) => self.nic.receive_notice(now, now, &notice),
            Err(_) => self.nic.counters_mut().rx_dropped += 1,
        }
    }

    /// A server whose NIC has no queue pair yet. No packet may cause more than `completions`: they are polled after
    /// each packet and each deadline.
    pub(super) fn new(config: NicConfig, completions: u32) -> Result<NicEndpoint, NicError> {
        let mut nic = Nic::new(config);
        let pd = nic.alloc_pd()?;
        let cq = nic.create_cq(completions)?;
        let memory = nic.reg_phantom_mr(pd, PHANTOM, MAX_FLOW, Access::ALL)?;
        Ok(NicEndpoint { nic, pd, cq, polled: 0, memory, remote_flows: None })
    }

    /// Creates a queue pair in RESET.
    pub(super) fn create_qp(&mut self, setup: &QpSetup) -> Result<u32, NicError> {
        self.nic.create_qp(&QpConfig {
            service: setup.service,
            max_send_wr: setup.depth,
            max_recv_wr: setup.depth,
            ..QpConfig::new(self.pd, self.cq, setup.transport)
        })
    }

    /// Moves a queue pair from RESET to RTS.
    pub(super) fn connect(&mut self, qpn: u32, setup: &QpSetup, path: Path, dest_qp: u32) -> Result<(), NicError> {
        let mut params = match setup.service {
            Service::Uc => ConnectParams::unreliable(path, setup.mtu, dest_qp),
            _ => ConnectParams::reliable(path, setup.mtu, dest_qp),
        };
        params.access = Access::ALL;
        // Timeouts are the transport's; a peer that is silent for long is behind a long queue, not dead.
        params.timeout = 0;
        self.nic.connect(qpn, &params)
    }

    /// Posts the receive request for the completion of a flow.
    pub(super) fn expect(&mut self, qpn: u32, flow: u32) -> Result<(), NicError> {
        let wr = RecvWr { wr_id: u64::from(flow), sges: &[] };
        self.nic.post_recv(qpn, &wr).expect("as many receive work requests as messages");
        Ok(())
    }

    /// Posts a flow: RDMA WRITEs, the last with immediate data, from `local` of this host to `to` of the receiver; or
    /// from and to phantom memory. With a `handshake` they wait for a READ of no bytes.
    pub(super) fn post(
        &mut self,
        qpn: u32,
        flow: u32,
        bytes: u64,
        to: Remote,
        local: Option<&Mr>,
        handshake: bool,
    ) -> Result<(), NicError> {
        let mr = local.unwrap_or(&self.memory);
        let (addr, lkey) = (mr.addr, mr.lkey);
        let read = SendWr {
            wr_id: u64::from(flow),
            op: SendOp::Read,
            data: SendData::Sges(&[]),
            remote_addr: to.addr,
            rkey: to.rkey,
            signaled: false,
            solicited: false,
            fence: false,
            to: None,
            remote_srqn: 0,
        };
        let fits = "no more messages than fit into the queue";
        if handshake {
            self.nic.post_send(qpn, &read).expect(fits);
        }
        let mut at = 0;
        while at < bytes || bytes == 0 {
            let len = (bytes - at).min(MESSAGE);
            let last = at + len == bytes;
            let wr = SendWr {
                op: if last { SendOp::WriteImm(flow) } else { SendOp::Write },
                data: SendData::Sges(&[Sge { addr: addr + at, len: len as u32, lkey }]),
                remote_addr: to.addr + at,
                signaled: last,
                fence: handshake && at == 0,
                ..read
            };
            self.nic.post_send(qpn, &wr).expect(fits);
            at += len;
            if last {
                break;
            }
        }
        Ok(())
    }

    /// Destination at this host of flows without bytes.
    pub(super) fn remote(&self) -> Remote {
        Remote { addr: self.memory.addr, rkey: self.memory.rkey }
    }

    /// Registers memory of `bytes` bytes.
    pub(super) fn memory(&mut self, bytes: u64) -> Result<Mr, NicError> {
        self.nic.alloc_mr(self.pd, bytes, Access::ALL)
    }

    /// Polls completions.
    #[inline]
    pub(super) fn poll(&mut self, into: &mut [Wc]) -> usize {
        // Most packets complete nothing, so the queue itself is not touched.
        let completions = self.nic.completions();
        if completions == self.polled {
            return 0;
        }
        let n = self.nic.poll_cq(self.cq, into).unwrap_or(0);
        if n < into.len() {
            self.polled = completions;
        }
        n
    }

    /// The NIC.
    pub fn nic(&self) -> &Nic {
        &self.nic
    }
}

/// Destination of a flow.
#[derive(Copy, Clone, Debug)]
pub(super) struct Remote {
    /// Address in the receiver's memory.
    pub addr: u64,
    /// Remote key of the memory.
    pub rkey: u32,
}

/// Whether a completion was successful.
pub(super) fn succeeded(wc: &Wc) -> bool {
    wc.status == WcStatus::Success
}
