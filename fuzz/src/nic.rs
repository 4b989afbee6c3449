//! Two NICs, queue pairs of every transport between them, and somebody in the middle who owns the network.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};

use arbitrary::{Result, Unstructured};
use irnic_nic::frame::{Icrc, emit_frame, receive_frame};
use irnic_nic::frame::{RxFrame, RxIcrc};
use irnic_nic::{Arm, Nic, NicConfig, QpConfig};
use irnic_transports::config::{TransportConfig, WireFormat};
use irnic_transports::congestion::CongestionConfig;
use irnic_transports::qp::{
    Access, Address, ConnectParams, Counters, CqId, PdId, QpAttr, QpState, RecvWr, SendData, SendOp, SendWr, Service,
    Sge, SrqId, Wc, WcOpcode, WcStatus, XrcdId,
};
use irnic_transports::recovery::Recovery;
use irnic_transports::wire::{ICRC_LEN, Mtu, parse, parse_trimmed};
use irnic_transports::{Mark, Path, Psn, Time};

use super::arena::Arena;
use super::forge::{Target, forge, frame, tamper};

/// Connections between the two NICs: reliable ones, of transports that the input chooses, an unreliable one, queue
/// pairs that send each other datagrams, an extended reliable connection each way, a reliable one whose streams are
/// pulled, and one whose messages end at low priority first.
const PAIRS: usize = 9;
const SERVICES: [Service; PAIRS] = [
    Service::Rc,
    Service::Rc,
    Service::Rc,
    Service::Uc,
    Service::Ud,
    Service::XrcInitiator,
    Service::XrcTarget,
    Service::Rc,
    Service::Rc,
];
/// Pairs whose transports the input chooses.
const CHOSEN: usize = 3;
/// Transports it chooses from: those before iwarp, which is irn with what `shape` chooses.
const PRESETS: usize = 6;
/// What the input does not choose of the others, see [`Host::end`]: preset, and shape. Small packets; datagrams come
/// from the shared receive queue.
const FIXED: [(&str, u16); PAIRS - CHOSEN] = [
    ("roce", 1 << 9),
    ("roce", 1 << 9 | 1 << 7),
    ("irn", 1 << 9 | 1 << 2),
    ("roce", 1 << 9 | 1 << 2),
    ("ndp", 1 << 9 | 1 << 2),
    ("irn", 1 << 11 | 1 << 9 | 1 << 3 | 1 << 2),
];
const QKEY: u32 = 7;
/// Frames that wait for one NIC at most; what is sent beyond them is lost.
const IN_FLIGHT: usize = 192;
/// Packets that a NIC may send without time passing: several times what windows and outstanding READs allow.
const BURST: usize = 50_000;
/// Steps of one input.
const STEPS: usize = 1000;

/// Runs what `data` describes: work requests, frames delivered, lost, repeated, altered or forged, time, and changes of
/// objects in use, in any order.
///
/// Nothing panics or runs for ever, no byte outside a region and none that may not be written changes, no work request
/// completes twice or before one posted earlier, and deadlines move on.
///
/// Returns what the NICs counted, which tells how far an input got.
pub fn nic_receive(data: &[u8]) -> Vec<Counters> {
    let mut u = Unstructured::new(data);
    // An input that ends early is as good as any other.
    let Ok(mut world) = World::new(&mut u) else { return Vec::new() };
    _ = world.run(&mut u);
    world.settle();
    world.check_memory();
    world.hosts.iter().map(|h| *h.nic.counters()).collect()
}

/// One end of a connection.
struct End {
    service: Service,
    qpn: u32,
    /// The queue pair it is connected to.
    peer: u32,
    cqs: [CqId; 2],
    srq: Option<SrqId>,
    transport: TransportConfig,
    mtu: Mtu,
    rd_atomic: u8,
    first_psn: Psn,
    /// PSN of the last packet it sent.
    sent: Psn,
    /// PSN that somebody who forges its peer's packets one after the other uses next.
    forged: Psn,
    /// Highest work request number completed so far, send queue and receive queue.
    completed: [u64; 2],
    timeout: u8,
    retries: u8,
}

struct Host {
    nic: Nic,
    arena: Arena,
    pd: PdId,
    cqs: Vec<CqId>,
    srq: SrqId,
    xrcd: XrcdId,
    xrc_srq: SrqId,
    /// Services of its ends: the other host has the other end of each extended reliable connection.
    services: [Service; PAIRS],
    ends: Vec<End>,
    /// Frames on their way here.
    coming: Vec<Vec<u8>>,
    srq_completed: HashSet<u64>,
}

struct World {
    hosts: [Host; 2],
    now: Time,
    /// Numbers of work requests; the lowest bit is set for receives.
    next_wr: u64,
    /// Packets of pulled streams that have arrived: of eight, a switch cuts the payload off one and sends one back.
    pulled: u32,
}

fn address(host: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, host as u8 + 1))
}

/// Packets have the highest priority, below which RC3 has its own.
fn path(from: usize) -> Path {
    Path { src: address(from), dst: address(1 - from), udp_src: 0xc000, traffic_class: 7 << 5, hop_limit: 64 }
}

impl Host {
    fn new(u: &mut Unstructured<'_>, key: u8) -> Result<Host> {
        let shape: u8 = u.arbitrary()?;
        let mut nic = Nic::new(NicConfig {
            max_qps: 16,
            seed: [key; 32],
            quantum: u32::from(shape & 3) * 5 + 1,
            fast_path: shape & 4 == 0,
            ..NicConfig::default()
        });
        let pds = [nic.alloc_pd().expect("a PD"), nic.alloc_pd().expect("a PD")];
        let cqs = [256, 256, 8].map(|entries| nic.create_cq(entries).expect("a CQ")).to_vec();
        let srq = nic.create_srq(pds[0], 16, 4).expect("an SRQ");
        let xrcd = nic.alloc_xrcd().expect("an XRC domain");
        let xrc_srq = nic.create_xrc_srq(pds[0], xrcd, cqs[1], 16, 4).expect("an SRQ");
        let arena = Arena::new(&mut nic, pds);
        let mut services = SERVICES;
        if key == 2 {
            services.swap(5, 6);
        }
        let mut host = Host {
            nic,
            arena,
            pd: pds[0],
            cqs,
            srq,
            xrcd,
            xrc_srq,
            services,
            ends: Vec::new(),
            coming: Vec::new(),
            srq_completed: HashSet::new(),
        };
        for pair in 0..PAIRS {
            let end = host.end(u, pair)?;
            host.ends.push(end);
        }
        Ok(host)
    }

    /// A queue pair in RESET, as the input wants it.
    fn end(&mut self, u: &mut Unstructured<'_>, pair: usize) -> Result<End> {
        // Neighbours in the table of presets understand each other often enough.
        let service = self.services[pair];
        let (preset, shape) = if pair < CHOSEN {
            let preset = TransportConfig::PRESETS[(pair * 2 + u.int_in_range(0..=2)?) % PRESETS];
            (preset, u.arbitrary()?)
        } else {
            FIXED[pair - CHOSEN]
        };
        let mut transport = TransportConfig::preset(preset).expect("a preset");
        let bit = |n: u16| shape >> n & 1 != 0;
        transport.window = if bit(0) { 64 } else { 128 };
        transport.credits = bit(1);
        transport.nack_threshold = if bit(2) { 1 } else { 3 };
        if bit(3) {
            transport.set("cap", "4").expect("a cap");
        }
        if bit(4) {
            transport.set("rto-min", "50us").expect("a timer");
        }
        if pair < CHOSEN
            && let Some((_, congestion)) = CongestionConfig::PRESETS.get(usize::from(shape >> 13))
        {
            transport.congestion = *congestion;
        }
        if pair < CHOSEN && transport.wire != WireFormat::Auto && transport.discipline.pull().is_none() && bit(9) {
            transport.set("tlt", "on").expect("TLT");
            transport.check().expect("choices that go together");
        } else if transport.wire == WireFormat::Irn
            && transport.recovery == Recovery::Selective
            && transport.discipline.pull().is_none()
        {
            let (key, value) = if bit(11) { ("rc3", "2") } else { ("tlp", "1us") };
            transport.set(key, value).expect("a parameter");
            transport.check().expect("choices that go together");
        }
        let cqs = if bit(5) { [self.cqs[0], self.cqs[0]] } else { [self.cqs[1], self.cqs[usize::from(bit(6)) * 2]] };
        let srq = bit(7).then_some(self.srq);
        let target = service == Service::XrcTarget;
        let qpn = self.nic.create_qp(&QpConfig {
            service,
            xrcd: target.then_some(self.xrcd),
            pd: self.pd,
            send_cq: cqs[0],
            recv_cq: cqs[1],
            srq,
            max_send_wr: 12,
            max_recv_wr: 12,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline: 64,
            sq_sig_all: bit(8),
            transport,
        });
        let first_psn = Psn::new(0xff_ffff - u32::from(shape >> 9));
        Ok(End {
            service,
            qpn: qpn.expect("a QP"),
            peer: 0,
            cqs,
            srq: if target { Some(self.xrc_srq) } else { srq },
            transport,
            mtu: if bit(9) { Mtu::B256 } else { Mtu::B1024 },
            rd_atomic: if bit(10) { 1 } else { 5 },
            first_psn,
            sent: first_psn,
            forged: Psn::default(),
            completed: [0; 2],
            timeout: if bit(11) { 1 } else { 10 },
            retries: if bit(12) { 1 } else { 7 },
        })
    }

    fn srq_number(&self) -> u32 {
        self.nic.srq_number(self.xrc_srq).expect("it is in a domain")
    }

    /// Destroys the shared receive queue that requests name, perhaps in the midst of messages, and makes another with
    /// the same number.
    fn replace_xrc_srq(&mut self) {
        self.nic.destroy_srq(self.xrc_srq).expect("no queue pair holds it");
        self.xrc_srq = self.nic.create_xrc_srq(self.pd, self.xrcd, self.cqs[1], 16, 4).expect("an SRQ");
        for end in self.ends.iter_mut().filter(|end| end.service == Service::XrcTarget) {
            end.srq = Some(self.xrc_srq);
        }
    }

    /// Takes what there is to send.
    fn transmit(&mut self, now: Time, budget: usize, to: &mut Vec<Vec<u8>>) {
        let mut left = BURST;
        let ends = &mut self.ends;
        self.nic.poll_transmit(now, budget, |packet| {
            left = left.checked_sub(1).expect("a NIC stops sending when no time passes");
            if let Some(end) = ends.iter_mut().find(|e| e.peer == packet.headers.bth.dest_qp) {
                end.sent = packet.headers.bth.psn;
            }
            let len = packet.headers.frame_len(packet.payload.len());
            assert!(packet.payload.len() <= 4096, "{:?} with {} bytes", packet.headers, packet.payload.len());
            assert!(packet.headers.is_consistent(), "{:?}", packet.headers);
            let mut bytes = vec![0; len];
            emit_frame(packet, None, &mut bytes);
            assert!(parse(&bytes).is_ok(), "{:?}", packet.headers);
            if to.len() < IN_FLIGHT {
                to.push(bytes);
            }
            true
        });
        assert!(budget < BURST || !self.nic.wants_tx(), "a NIC with room to send leaves something");
    }

    /// Runs the timers that are due, until none is.
    fn timers(&mut self, now: Time) {
        for _ in 0..1000 {
            self.nic.on_deadline(now);
            if self.nic.next_deadline() > now {
                return;
            }
        }
        panic!("deadlines do not move on: {:?} at {now:?}", self.nic.next_deadline());
    }

    fn poll(&mut self, cq: CqId, next_wr: u64) {
        let mut wcs = [Wc::EMPTY; 16];
        // An overflowed queue says so when it is empty.
        while let Ok(n @ 1..) = self.nic.poll_cq(cq, &mut wcs) {
            for wc in &wcs[..n] {
                let end = self.ends.iter_mut().find(|e| e.qpn == wc.qp_num).expect("a completion of a queue pair");
                assert!(wc.wr_id < next_wr, "{wc:?} was never posted");
                let receive = wc.wr_id & 1 != 0;
                if wc.status == WcStatus::Success {
                    assert_eq!(receive, matches!(wc.opcode, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm), "{wc:?}");
                }
                if receive && end.srq.is_some() {
                    assert!(self.srq_completed.insert(wc.wr_id), "{wc:?} for the second time");
                    continue;
                }
                let last = &mut end.completed[usize::from(receive)];
                assert!(wc.wr_id > *last, "{wc:?} after {last}");
                *last = wc.wr_id;
            }
        }
    }
}

impl World {
    fn new(u: &mut Unstructured<'_>) -> Result<World> {
        let hosts = [Host::new(u, 1)?, Host::new(u, 2)?];
        let mut world = World { hosts, now: Time(1_000_000), next_wr: 2, pulled: 0 };
        for (pair, service) in SERVICES.into_iter().enumerate() {
            let up: u8 = if service == Service::Rc { u.arbitrary()? } else { 0 };
            for host in 0..2 {
                // Most reach RTS, some stay in RTR.
                world.connect(host, pair, if up >> (4 * host) & 15 == 15 { 2 } else { 3 });
            }
        }
        Ok(world)
    }

    /// Takes a queue pair in RESET through the first `steps` steps to RTS.
    fn connect(&mut self, host: usize, pair: usize, steps: usize) {
        let peer = &self.hosts[1 - host].ends[pair];
        let (dest_qp, rq_psn) = (peer.qpn, peer.first_psn);
        let Host { nic, ends, .. } = &mut self.hosts[host];
        let end = &mut ends[pair];
        (end.peer, end.forged) = (dest_qp, rq_psn);
        let mut params = match end.service {
            Service::Rc => ConnectParams::reliable(path(host), end.mtu, dest_qp),
            Service::Uc => ConnectParams::unreliable(path(host), end.mtu, dest_qp),
            Service::Ud => ConnectParams::datagram(QKEY),
            Service::XrcInitiator => ConnectParams::xrc_initiator(path(host), end.mtu, dest_qp),
            Service::XrcTarget => ConnectParams::xrc_target(path(host), end.mtu, dest_qp),
        };
        (params.access, params.rd_atomic) = (Access::ALL | Access::FLUSH_GLOBAL, end.rd_atomic);
        (params.rq_psn, params.sq_psn) = (rq_psn, end.first_psn);
        (params.timeout, params.retry_cnt, params.rnr_retry) = (end.timeout, end.retries, end.retries);
        for attr in &params.steps()[..steps] {
            nic.modify_qp(end.qpn, attr).expect("a legal transition");
        }
    }

    fn run(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        for step in 0..STEPS {
            if u.is_empty() {
                break;
            }
            let which: u8 = u.arbitrary()?;
            let (host, pair) = (usize::from(which >> 7), [0, 1, 2, 3, 4, 5, 6, 2][usize::from(which >> 4 & 7)]);
            self.step(u, which & 15, host, pair)?;
            if step % 32 == 31 {
                self.check_memory();
            }
        }
        Ok(())
    }

    fn step(&mut self, u: &mut Unstructured<'_>, what: u8, host: usize, pair: usize) -> Result<()> {
        match what {
            0 | 1 => self.post_send(u, host, pair)?,
            2 => self.post_recv(u, host, pair)?,
            3 => self.transmit(host, 1 + usize::from(u.arbitrary::<u8>()?)),
            4 | 5 => self.deliver(u, host, pair, false)?,
            6 | 7 => self.deliver(u, host, pair, true)?,
            8 | 9 => {
                let target = self.target(u, host, pair)?;
                let bytes = forge(u, &target, &path(1 - host))?;
                let end = &mut self.hosts[host].ends[pair];
                end.forged = end.forged.plus(1);
                self.arrive(host, &bytes);
            }
            10 => {
                let len = usize::from(u.arbitrary::<u8>()?).min(u.len());
                let mut bytes = u.bytes(len)?.to_vec();
                if let Some(qpn) = bytes.get_mut(5..8) {
                    qpn.copy_from_slice(&self.hosts[host].ends[pair].qpn.to_be_bytes()[1..]);
                }
                self.arrive(host, &bytes);
            }
            11 => self.pass_time(u)?,
            12 => self.poll(u, host, pair)?,
            13 => self.exchange(u)?,
            14 => self.change(u, host, pair)?,
            _ => self.arm(u, host, pair)?,
        }
        Ok(())
    }

    fn check_memory(&self) {
        self.hosts.iter().for_each(|h| h.arena.check());
    }

    fn sges<'a>(&self, u: &mut Unstructured<'_>, host: usize, out: &'a mut [Sge; 4]) -> Result<&'a [Sge]> {
        let shape: u8 = u.arbitrary()?;
        let n = usize::from(shape & 7).min(4);
        for sge in &mut out[..n] {
            let area =
                if shape >> 3 < 28 { usize::from(shape >> 3 & 1) } else { u.int_in_range(0..=Arena::AREAS - 1)? };
            let mr = self.hosts[host].arena.mr(area);
            let offset = u64::from(u.arbitrary::<u16>()?) % (mr.len + 1);
            let len = u64::from(u.arbitrary::<u16>()?);
            // Most lie inside the region.
            let len = if shape >> 3 == 31 { len } else { len.min(mr.len - offset) };
            *sge = Sge { addr: mr.addr + offset, len: len as u32, lkey: mr.lkey };
        }
        Ok(&out[..n])
    }

    fn post_send(&mut self, u: &mut Unstructured<'_>, host: usize, pair: usize) -> Result<()> {
        let (kind, flags): (u8, u8) = u.arbitrary()?;
        let area = if kind >> 4 < 13 { 0 } else { u.int_in_range(0..=Arena::AREAS - 1)? };
        let remote = self.hosts[1 - host].arena.mr(area);
        let rkey = if flags & 0xc0 == 0xc0 { u.arbitrary()? } else { remote.rkey };
        let mut remote_addr = remote.addr + u64::from(u.arbitrary::<u16>()?) % (remote.len + 1);
        let mut list = [Sge::default(); 4];
        let mut op = match kind & 15 {
            0 | 1 => SendOp::Send,
            2 => SendOp::SendImm(7),
            3 => SendOp::SendInvalidate(rkey),
            4..=6 => SendOp::Write,
            7 => SendOp::WriteImm(8),
            8..=11 => SendOp::Read,
            12 => SendOp::FetchAdd { add: 3 },
            13 => SendOp::CompareSwap { compare: 0, swap: 1 },
            14 if flags & 0x10 == 0 => SendOp::AtomicWrite([0xa5; 8]),
            14 => SendOp::Flush { len: u32::from(flags), placement: 1, selectivity: flags >> 5 & 1 },
            _ => SendOp::LocalInvalidate(self.hosts[host].arena.mr(area).rkey),
        };
        if kind == 255 {
            op = SendOp::LocalInvalidate(rkey);
        }
        let inline = [0x5a; 64];
        let atomic = matches!(op, SendOp::FetchAdd { .. } | SendOp::CompareSwap { .. });
        let data = if op.is_newer() {
            remote_addr &= !7;
            SendData::Sges(&[])
        } else if atomic {
            remote_addr &= if flags & 0x30 == 0x30 { !0 } else { !7 };
            let mr = self.hosts[host].arena.mr(1);
            list[0] = Sge { addr: mr.addr, len: 8, lkey: mr.lkey };
            SendData::Sges(&list[..1])
        } else if flags & 0x30 == 0x20 {
            SendData::Inline(&inline[..usize::from(kind) % 65])
        } else {
            SendData::Sges(self.sges(u, host, &mut list)?)
        };
        let qkey = if flags & 8 == 0 { QKEY } else { QKEY + 1 };
        let to = Address { path: path(host), qpn: self.hosts[host].ends[pair].peer, qkey };
        let wr = SendWr {
            wr_id: self.next_wr,
            op,
            data,
            remote_addr,
            rkey,
            signaled: flags & 1 != 0,
            solicited: flags & 2 != 0,
            fence: flags & 4 != 0,
            to: Some(to),
            // Now and then that of the other shared receive queue, which is in no domain.
            remote_srqn: if flags & 0xc0 == 0x80 { 0x11 } else { self.hosts[1 - host].srq_number() },
        };
        self.next_wr += 2;
        let Host { nic, ends, .. } = &mut self.hosts[host];
        // Refusals are fine: what is refused must not complete, which the numbers tell.
        _ = nic.post_send(ends[pair].qpn, &wr);
        Ok(())
    }

    fn post_recv(&mut self, u: &mut Unstructured<'_>, host: usize, pair: usize) -> Result<()> {
        let mut list = [Sge::default(); 4];
        let wr = RecvWr { wr_id: self.next_wr | 1, sges: self.sges(u, host, &mut list)? };
        self.next_wr += 2;
        let Host { nic, ends, .. } = &mut self.hosts[host];
        _ = match ends[pair].srq {
            Some(srq) => nic.post_srq_recv(srq, &wr),
            None => nic.post_recv(ends[pair].qpn, &wr),
        };
        Ok(())
    }

    fn transmit(&mut self, host: usize, budget: usize) {
        let [a, b] = &mut self.hosts;
        let (from, to) = if host == 0 { (a, b) } else { (b, a) };
        from.transmit(self.now, budget, &mut to.coming);
    }

    fn arrive(&mut self, host: usize, bytes: &[u8]) {
        let way_back = path(host).with_mark(Mark::Returned);
        // Every eighth packet of a queue pair has met congestion.
        let congested = bytes.get(11).is_some_and(|psn| psn & 7 == 7);
        let path = Path { traffic_class: if congested { 3 } else { 0 }, ..path(1 - host) };
        if let Ok(headers) = parse_trimmed(bytes) {
            self.pulled += 1;
            let headers = &bytes[..headers.len() + ICRC_LEN];
            match self.pulled % 8 {
                3 => return self.hand_over(host, path.with_mark(Mark::Trimmed), headers),
                // Whoever sent it.
                6 => return self.hand_over(1 - host, way_back, headers),
                _ => {}
            }
        }
        self.hand_over(host, path, bytes);
    }

    fn hand_over(&mut self, host: usize, path: Path, bytes: &[u8]) {
        let frame = RxFrame { path, bytes, arrived: self.now, icrc: RxIcrc::Exact };
        receive_frame(&mut self.hosts[host].nic, self.now, &frame, Icrc::Off);
    }

    /// One of the frames on their way arrives, perhaps altered, perhaps to come again.
    fn deliver(&mut self, u: &mut Unstructured<'_>, host: usize, pair: usize, altered: bool) -> Result<()> {
        let which: u8 = u.arbitrary()?;
        let coming = &mut self.hosts[host].coming;
        if coming.is_empty() {
            return Ok(());
        }
        let at = usize::from(which & 31).min(coming.len() - 1);
        let mut bytes = if which >> 5 == 7 { coming[at].clone() } else { coming.remove(at) };
        if altered {
            let target = self.target(u, host, pair)?;
            if let Ok((mut headers, payload)) = parse(&bytes) {
                let cut = if which >> 5 == 6 { usize::from(u.arbitrary::<u8>()?) } else { 0 };
                for _ in 0..=(which >> 5 & 1) {
                    tamper(u, &mut headers, &target)?;
                }
                let payload = if headers.bth.opcode.has_payload() { &payload[cut.min(payload.len())..] } else { &[] };
                bytes = frame(headers, payload, &path(1 - host));
            }
        }
        self.arrive(host, &bytes);
        Ok(())
    }

    /// What one can know who watches the network in front of `host`.
    fn target(&self, u: &mut Unstructured<'_>, host: usize, pair: usize) -> Result<Target> {
        let (me, peer) = (&self.hosts[host].ends[pair], &self.hosts[1 - host].ends[pair]);
        let speaks = self.hosts[host].nic.qp(me.qpn).is_some_and(|qp| qp.speaks_irn());
        let area = if u.ratio(7, 8)? { 0 } else { u.int_in_range(0..=Arena::AREAS - 1)? };
        let mr = self.hosts[host].arena.mr(area);
        Ok(Target {
            qpn: me.qpn,
            psns: [me.forged, me.sent, peer.sent],
            irn: speaks || me.transport.knows_irn() && u.ratio(1, 2)?,
            mtu: me.mtu.bytes(),
            region: (mr.rkey, mr.addr, mr.len),
            xrc: me.service.is_xrc(),
            srqn: self.hosts[host].srq_number(),
        })
    }

    fn pass_time(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let how: u8 = u.arbitrary()?;
        let next = self.hosts.iter().map(|h| h.nic.next_deadline()).fold(Time::NEVER, Time::min);
        self.now = match how {
            // 2³⁹ ns are nine minutes.
            0..40 => self.now + (1 << how),
            _ if next == Time::NEVER => self.now,
            _ => self.now.max(next),
        };
        self.hosts.iter_mut().for_each(|h| h.timers(self.now));
        Ok(())
    }

    fn poll(&mut self, u: &mut Unstructured<'_>, host: usize, pair: usize) -> Result<()> {
        let cqs = self.hosts[host].ends[pair].cqs;
        let cq = cqs[usize::from(u.arbitrary::<bool>()?)];
        self.hosts[host].poll(cq, self.next_wr);
        while self.hosts[host].nic.poll_event().is_some() {}
        Ok(())
    }

    /// Some rounds of an ordinary network that loses the frames whose bit is set.
    fn exchange(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let (rounds, lost): (u8, u16) = u.arbitrary()?;
        for round in 0..usize::from(rounds & 15) {
            self.round(lost.rotate_left(round as u32));
        }
        Ok(())
    }

    fn round(&mut self, lost: u16) {
        for host in 0..2 {
            self.transmit(host, usize::MAX);
        }
        for host in 0..2 {
            for (at, bytes) in std::mem::take(&mut self.hosts[host].coming).into_iter().enumerate() {
                if lost >> (at % 16) & 1 == 0 {
                    self.arrive(host, &bytes);
                }
            }
        }
    }

    /// What an application changes while packets are under way.
    fn change(&mut self, u: &mut Unstructured<'_>, host: usize, pair: usize) -> Result<()> {
        let what: u8 = u.arbitrary()?;
        let now = self.now;
        if what & 15 == 10 && self.hosts[host].services[pair] == Service::XrcTarget {
            self.hosts[host].replace_xrc_srq();
            return Ok(());
        }
        let Host { nic, arena, ends, srq, .. } = &mut self.hosts[host];
        let qpn = ends[pair].qpn;
        let mut modify = |state| _ = nic.modify_qp(qpn, &QpAttr { state: Some(state), ..QpAttr::default() });
        match what & 15 {
            0 => modify(QpState::Err),
            1 | 2 => modify(QpState::Sqd),
            3 | 4 => modify(QpState::Rts),
            5 => _ = nic.modify_qp(qpn, &QpAttr { min_rnr_timer: Some(what >> 4), ..QpAttr::default() }),
            6 => _ = nic.modify_qp(qpn, &QpAttr { access: Some(Access(u32::from(what >> 4))), ..QpAttr::default() }),
            7 | 8 => nic.set_rate(now, qpn, u64::from(what >> 4) * 1_000_000_000, 2048).expect("a queue pair"),
            9 => arena.toggle(nic, usize::from(what >> 4) % Arena::AREAS),
            10 => nic.modify_srq(*srq, None, Some(u32::from(what >> 4))).expect("an SRQ"),
            11 => {
                nic.destroy_qp(qpn).expect("a queue pair");
                let completed = ends[pair].completed;
                let end = self.hosts[host].end(u, pair)?;
                self.hosts[host].ends[pair] = End { completed, ..end };
                self.connect(host, pair, 3);
            }
            _ => {
                modify(QpState::Reset);
                self.connect(host, pair, if what >> 4 == 0 { 2 } else { 3 });
            }
        }
        Ok(())
    }

    fn arm(&mut self, u: &mut Unstructured<'_>, host: usize, pair: usize) -> Result<()> {
        let how: u8 = u.arbitrary()?;
        let Host { nic, ends, .. } = &mut self.hosts[host];
        let arm = if how & 1 == 0 { Arm::Next } else { Arm::Solicited };
        nic.arm_cq(ends[pair].cqs[usize::from(how >> 1 & 1)], arm).expect("a CQ");
        Ok(())
    }

    /// The network becomes perfect, time passes, everything is polled.
    fn settle(&mut self) {
        for _ in 0..24 {
            self.round(0);
            let next = self.hosts.iter().map(|h| h.nic.next_deadline()).fold(Time::NEVER, Time::min);
            if next != Time::NEVER {
                self.now = self.now.max(next);
                self.hosts.iter_mut().for_each(|h| h.timers(self.now));
            }
        }
        let next_wr = self.next_wr;
        for host in &mut self.hosts {
            for cq in host.cqs.clone() {
                host.poll(cq, next_wr);
            }
        }
    }
}
