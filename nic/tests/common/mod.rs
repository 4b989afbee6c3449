//! The deterministic harness: NICs joined by a seeded network in virtual time.
#![allow(dead_code)] // each test crate uses its part

pub mod seeds;

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{IpAddr, Ipv4Addr};

use irnic_nic::frame::{Icrc, emit_fast, emit_frame, fast_len, receive_frame};
use irnic_nic::frame::{RxFrame, RxIcrc};
use irnic_nic::{FastPacket, Mr, MwKind, Nic, NicConfig, QpConfig, TxSink};
use irnic_ports::impair::{Frame, Impairment, Impairments};
use irnic_transports::config::TransportConfig;
use irnic_transports::qp::{
    Access, ConnectParams, CqId, MwBind, PdId, PeerProcess, QpAttr, SendData, SendWr, Service, SrqId, Wc, WcStatus,
};
use irnic_transports::wire::{APART, FastFrame, ICRC_LEN, Mtu, icrc_append, is_pulled, parse};
use irnic_transports::{Colour, Mark, Path, Psn, Time, TxPacket};

/// Time for which frames accumulate before they are taken, if they are taken in batches, ns.
const PILE_UP: u64 = 20_000;

/// Q_Key of datagram queue pairs.
pub const QKEY: u32 = 0x1111_1111;

/// Every right on a connection.
pub const ALL: Access = Access(Access::ALL.0 | Access::FLUSH_GLOBAL.0);

/// A frame in flight: arrival time, order of sending, receiver, path, bytes.
type Flying = (Time, u64, usize, Path, Vec<u8>);

/// Called with every frame before the network, and its sender; may change it, or drop it by returning false.
type Tamper = Box<dyn FnMut(usize, &mut Vec<u8>) -> bool>;

/// Called with every frame sent, its sender and its addresses.
type Watch = Box<dyn FnMut(usize, &Path, &[u8])>;

/// A network of NICs: a frame reaches the NIC with the destination address, if and when the impairment says so. Frames
/// are real bytes with a real ICRC.
pub struct Network {
    pub nics: Vec<Nic>,
    links: Vec<Impairment>,
    flying: BinaryHeap<Reverse<Flying>>,
    sent: u64,
    pub now: Time,
    /// Virtual time that a byte takes on the wire, ns · 2⁻⁸.
    pub byte_time: u64,
    /// Number of frames received before anything is sent: a port takes all that has accumulated at once.
    pub batch: usize,
    pub steps: u64,
    pub tamper: Option<Tamper>,
    /// What ports report of the peers' processes, unless these are known to be alive and to have `read`.
    pub process: PeerProcess,
    /// Whether ports know what the peers' processes have read.
    pub knows_reading: bool,
    /// Bytes passed to each NIC, and the number of them read.
    read: Vec<(u64, u64)>,
    /// Until this time each NIC's process is not scheduled: nothing is taken, sent or timed.
    pub absent: Vec<Time>,
    /// Whether timers run after each batch of frames, even if more have arrived.
    pub hasty: bool,
    pub watch: Option<Watch>,
    /// Percentage of pulled streams' packets that lose their payload; every fourth of them is returned.
    pub trims: u32,
    /// Percentage of red packets that are dropped.
    pub red_loss: u32,
    /// CRC-32 of all frames put onto wires, with sender and time.
    crc: crc32fast::Hasher,
    /// Number of frames sent by the fast path.
    pub fast: u64,
    carry: Carry,
    /// Number of acknowledgements that requests carried.
    pub carried: u64,
}

/// Whether requests carry acknowledgements, and who takes them apart.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Carry {
    #[default]
    No,
    /// The sender does: the network sees the same frames.
    ApartWhenSent,
    /// The receiver's port does: the NIC sees two frames.
    ApartOnArrival,
    /// The receiver's NIC does.
    Whole,
}

thread_local! {
    /// Whether requests carry acknowledgements in this thread's next networks; by default some are taken apart when
    /// sent.
    pub static CARRY: Cell<Option<Carry>> = const { Cell::new(None) };
    /// Whether the NICs of this thread's next networks have the fast path; by default some do, by their seed.
    pub static FAST_PATH: Cell<Option<bool>> = const { Cell::new(None) };
}

/// Frames that a NIC has to send, with their paths, and how many of them took the fast path.
#[derive(Default)]
struct Frames {
    frames: Vec<(Path, Vec<u8>)>,
    fast: u64,
    carry: Carry,
    carried: u64,
}

impl TxSink for Frames {
    fn packet(&mut self, packet: &TxPacket<'_>) -> bool {
        let mut frame = vec![0; packet.headers.frame_len(packet.payload.len())];
        emit_frame(packet, Some(packet.path), &mut frame);
        self.frames.push((*packet.path, frame));
        true
    }

    fn takes_fast(&self) -> bool {
        true
    }

    fn carries_acks(&self, _path: &Path, _dest_qp: u32) -> bool {
        self.carry != Carry::No
    }

    fn fast(&mut self, packet: &FastPacket<'_>) -> bool {
        // Nothing of it may be left.
        let mut frame = vec![0xaa; fast_len(packet)];
        emit_fast(packet, Some(packet.path), &mut frame);
        self.fast += 1;
        let ack = FastFrame::parse(&frame).and_then(|parsed| parsed.ack);
        assert_eq!(ack.is_some(), packet.head.carries_ack());
        self.carried += u64::from(ack.is_some());
        match ack {
            Some(ack) if self.carry == Carry::ApartWhenSent => {
                for part in FastFrame::apart(&frame, &ack, &mut [0xaa; APART]) {
                    icrc_append(packet.path, 0, part);
                    self.frames.push((*packet.path, part.to_vec()));
                }
            }
            _ => self.frames.push((*packet.path, frame)),
        }
        true
    }
}

pub fn address(nic: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, nic as u8 + 1))
}

pub fn path(from: usize, to: usize) -> Path {
    Path { src: address(from), dst: address(to), udp_src: 0xc000, traffic_class: 0, hop_limit: 64 }
}

impl Network {
    pub fn new(nics: usize, impairments: &str, seed: u64, config: &NicConfig) -> Network {
        let spec: Impairments = impairments.parse().unwrap_or_else(|e| panic!("{impairments}: {e}"));
        Network {
            nics: (0..nics)
                .map(|i| {
                    let mut key = [i as u8; 32];
                    key[..8].copy_from_slice(&seed.to_le_bytes());
                    let fast_path = FAST_PATH.get().unwrap_or(!(seed ^ i as u64).is_multiple_of(3));
                    Nic::new(NicConfig { seed: key, fast_path, ..config.clone() })
                })
                .collect(),
            links: (0..nics).map(|i| Impairment::new(&spec.tx, seed, i as u64)).collect(),
            flying: BinaryHeap::new(),
            sent: 0,
            now: Time(1_000_000),
            byte_time: 51,
            batch: 1,
            steps: 0,
            tamper: None,
            process: PeerProcess::Unknown,
            knows_reading: false,
            read: vec![(0, 0); nics],
            absent: vec![Time::ZERO; nics],
            hasty: false,
            watch: None,
            trims: 0,
            red_loss: 0,
            crc: crc32fast::Hasher::new(),
            fast: 0,
            carry: CARRY.get().unwrap_or(if seed.is_multiple_of(2) { Carry::ApartWhenSent } else { Carry::No }),
            carried: 0,
        }
    }

    /// Takes the frames that the NICs have to send.
    pub fn send(&mut self) {
        for from in 0..self.nics.len() {
            let mut line = self.now;
            while self.absent[from] <= self.now && self.nics[from].wants_tx() {
                let mut sink = Frames { carry: self.carry, ..Frames::default() };
                self.nics[from].poll_transmit_into(self.now, 64, &mut sink);
                let Frames { frames, fast, carried, .. } = sink;
                self.fast += fast;
                self.carried += carried;
                if frames.is_empty() {
                    continue;
                }
                for (path, mut frame) in frames {
                    line += (frame.len() as u64 * self.byte_time) >> 8;
                    if let Some(watch) = &mut self.watch {
                        watch(from, &path, &frame);
                    }
                    if let Some(tamper) = &mut self.tamper
                        && !tamper(from, &mut frame)
                    {
                        continue;
                    }
                    self.launch(from, line, path, frame);
                }
            }
        }
    }

    /// Puts a frame onto the wire of NIC `from`.
    pub fn launch(&mut self, from: usize, at: Time, path: Path, frame: Vec<u8>) {
        self.crc.update(&[from as u8, path.traffic_class]);
        self.crc.update(&at.0.to_le_bytes());
        self.crc.update(&frame);
        // A frame to a group reaches all NICs, including the sender.
        let group = path.dst.is_multicast();
        let receivers: Vec<usize> = (0..self.nics.len()).filter(|&n| group || address(n) == path.dst).collect();
        for to in receivers {
            self.fly(from, to, at, path, &frame);
        }
    }

    fn fly(&mut self, from: usize, to: usize, at: Time, path: Path, frame: &[u8]) {
        let bytes = frame.len() as u32;
        let class = path.traffic_class;
        if self.red_loss > 0 && path.colour() == Colour::Red {
            self.sent += 1;
            if self.draw() % 100 < self.red_loss {
                return;
            }
        }
        let frame_of = Frame { bytes, wire_bytes: bytes + 42, ect: class & 3 != 0, red: path.colour() == Colour::Red };
        let verdict = self.links[from].judge(at, frame_of, self.flying.len());
        for copy in verdict.deliveries() {
            let mut frame = frame.to_vec();
            let (mut to, mut path) = (to, path);
            if self.trims > 0 && is_pulled(&frame) {
                to = self.trim(from, to, &mut path, &mut frame);
            }
            let path = Path { traffic_class: path.traffic_class | if copy.mark_ce { 3 } else { 0 }, ..path };
            if let Some(bit) = copy.flip_bit {
                // It may have lost its payload.
                let at = bit as usize / 8 % frame.len();
                frame[at] ^= 1 << (bit % 8);
            }
            self.sent += 1;
            self.read[to].0 += frame.len() as u64;
            self.flying.push(Reverse((copy.at, self.sent, to, path, frame)));
        }
    }

    /// Returns a pseudorandom number, different for each packet.
    fn draw(&self) -> u32 {
        (self.sent as u32).wrapping_mul(0x9e37_79b9) >> 8
    }

    /// Applies a switch's options to a packet of a pulled stream. Returns the NIC that receives it.
    fn trim(&mut self, from: usize, to: usize, path: &mut Path, frame: &mut Vec<u8>) -> usize {
        let draw = self.draw();
        let Ok((headers, payload)) = parse(frame) else { return to };
        if draw % 100 >= self.trims || payload.is_empty() {
            return to;
        }
        // Part of the payload may remain.
        frame.truncate(headers.len() + draw as usize % payload.len());
        frame.extend([0; ICRC_LEN]);
        let returned = draw.is_multiple_of(4);
        *path = path.with_mark(if returned { Mark::Returned } else { Mark::Trimmed });
        if returned {
            (path.src, path.dst) = (path.dst, path.src);
        }
        icrc_append(path, 0, frame);
        if returned { from } else { to }
    }

    /// Returns the time of the next event, [`Time::NEVER`] if the network is silent.
    pub fn next(&self) -> Time {
        let arrival = self.flying.peek().map_or(Time::NEVER, |Reverse((at, ..))| *at);
        let deadline = |(nic, absent): (&Nic, &Time)| {
            // Pending transmissions wait for the core as well.
            let sends = if nic.wants_tx() { *absent } else { Time::NEVER };
            nic.next_deadline().max(*absent).min(sends)
        };
        self.nics.iter().zip(&self.absent).map(deadline).fold(arrival, Time::min)
    }

    /// Delays arrivals at NICs whose processes are not scheduled.
    fn put_off(&mut self) {
        while let Some(Reverse((due, _, to, ..))) = self.flying.peek()
            && *due < self.absent[*to]
        {
            let Some(Reverse((_, order, to, path, frame))) = self.flying.pop() else { unreachable!() };
            self.flying.push(Reverse((self.absent[to], order, to, path, frame)));
        }
    }

    fn run_timers(&mut self) {
        let Network { nics, absent, now, .. } = self;
        let (read, knows, process) = (&self.read, self.knows_reading, self.process);
        for (nic, _) in nics.iter_mut().zip(absent).filter(|(_, absent)| **absent <= *now) {
            nic.on_deadline_knowing(*now, |path, _| {
                let (handed, answered) = (0..read.len()).find(|n| address(*n) == path.dst).map_or((0, 0), |n| read[n]);
                if knows { PeerProcess::Alive { handed, answered } } else { process }
            });
        }
    }

    /// Sends, and advances to the next event: an arrival, or a timer, which is answered. Returns false if there is
    /// none.
    pub fn step(&mut self) -> bool {
        self.send();
        let any = self.receive();
        if any {
            self.send();
        }
        any
    }

    /// Advances to the next event without sending. Returns false if there is none.
    pub fn receive(&mut self) -> bool {
        let at = self.next();
        if at == Time::NEVER {
            return false;
        }
        self.steps += 1;
        self.now = self.now.max(at);
        self.put_off();
        if self.flying.peek().is_some_and(|Reverse((due, ..))| *due <= self.now) {
            if self.batch > 1 {
                self.now += PILE_UP;
            }
            for _ in 0..self.batch {
                self.put_off();
                if self.flying.peek().is_none_or(|Reverse((due, ..))| *due > self.now) {
                    break;
                }
                let Some(Reverse((due, _, to, path, frame))) = self.flying.pop() else { unreachable!() };
                self.read[to].1 += frame.len() as u64;
                let frame = RxFrame { path, bytes: &frame, arrived: due, icrc: RxIcrc::Exact };
                self.arrive(to, &frame);
            }
            if self.hasty {
                self.run_timers();
            }
        } else {
            self.run_timers();
        }
        true
    }

    /// Passes a frame to a NIC. One that carries an acknowledgement is without an ICRC in a host's memory, but not
    /// here.
    fn arrive(&mut self, to: usize, frame: &RxFrame<'_>) {
        let (nic, now) = (&mut self.nics[to], self.now);
        let ack = FastFrame::parse(frame.bytes).and_then(|parsed| parsed.ack);
        let Some(ack) = ack.filter(|_| frame.icrc.is_right(&frame.path, frame.bytes)) else {
            return receive_frame(nic, now, frame, Icrc::Checked);
        };
        let whole = RxFrame { icrc: RxIcrc::Absent, ..*frame };
        if self.carry == Carry::Whole {
            return receive_frame(nic, now, &whole, Icrc::Needed);
        }
        for bytes in FastFrame::apart(frame.bytes, &ack, &mut [0xaa; APART]) {
            receive_frame(nic, now, &RxFrame { bytes, ..whole }, Icrc::Needed);
        }
    }

    /// Returns the CRC-32 of all frames sent so far: equal for runs that sent the same bytes at the same times.
    pub fn crc(&self) -> u32 {
        self.crc.clone().finalize()
    }

    /// Returns the number of frames in flight.
    pub fn in_flight(&self) -> usize {
        self.flying.len()
    }

    /// Returns whether nothing is in flight and no NIC has anything to do.
    pub fn silent(&self) -> bool {
        self.flying.is_empty() && self.nics.iter().all(|n| !n.wants_tx())
    }
}

/// Parameters of a pair of connected queue pairs.
#[derive(Clone, Debug)]
pub struct Connection {
    pub service: Service,
    pub mtu: Mtu,
    pub transport: [TransportConfig; 2],
    pub psn: [Psn; 2],
    pub rd_atomic: u8,
    pub depth: u32,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub min_rnr_timer: u8,
    pub srq: [Option<SrqId>; 2],
    pub access: Access,
    pub sq_sig_all: bool,
}

impl Default for Connection {
    fn default() -> Self {
        let irn = TransportConfig::preset("irn").unwrap();
        Connection {
            service: Service::Rc,
            mtu: Mtu::B1024,
            transport: [irn; 2],
            psn: [Psn::new(0xff_fff0), Psn::new(7)],
            rd_atomic: 4,
            depth: 64,
            timeout: 0,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 1,
            srq: [None; 2],
            access: ALL,
            sq_sig_all: false,
        }
    }
}

/// One end of a connection.
#[derive(Copy, Clone, Debug)]
pub struct End {
    pub nic: usize,
    pub pd: PdId,
    pub cq: CqId,
    pub qpn: u32,
}

/// Creates a queue pair on `nic` in RESET, with a protection domain and a completion queue of its own unless given.
pub fn create(net: &mut Network, nic: usize, c: &Connection, which: usize, given: Option<(PdId, CqId)>) -> End {
    let n = &mut net.nics[nic];
    let (pd, cq) = given.unwrap_or_else(|| (n.alloc_pd().unwrap(), n.create_cq(4096).unwrap()));
    let qpn = n
        .create_qp(&QpConfig {
            service: c.service,
            pd,
            send_cq: cq,
            recv_cq: cq,
            srq: c.srq[which],
            xrcd: None,
            max_send_wr: c.depth,
            max_recv_wr: c.depth,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline: 256,
            sq_sig_all: c.sq_sig_all,
            transport: c.transport[which],
        })
        .unwrap();
    End { nic, pd, cq, qpn }
}

/// Takes two queue pairs to RTS.
pub fn connect(net: &mut Network, c: &Connection, ends: [End; 2]) {
    for i in [0, 1] {
        for attr in attributes(c, ends[i], ends[1 - i], i) {
            net.nics[ends[i].nic].modify_qp(ends[i].qpn, &attr).unwrap();
        }
    }
}

/// Returns the three steps from RESET to RTS of end `which`, with its service's attributes.
pub fn attributes(c: &Connection, me: End, peer: End, which: usize) -> [QpAttr; 3] {
    let mut way = path(me.nic, peer.nic);
    if c.transport[which].discipline.rc3().is_some() {
        // There have to be lower priorities.
        way = way.with_priority(7);
    }
    let mut params = match c.service {
        Service::Rc => ConnectParams::reliable(way, c.mtu, peer.qpn),
        Service::Uc => ConnectParams::unreliable(way, c.mtu, peer.qpn),
        Service::Ud => ConnectParams::datagram(QKEY),
        Service::XrcInitiator => ConnectParams::xrc_initiator(way, c.mtu, peer.qpn),
        Service::XrcTarget => ConnectParams::xrc_target(way, c.mtu, peer.qpn),
    };
    (params.rq_psn, params.sq_psn) = (c.psn[1 - which], c.psn[which]);
    (params.access, params.rd_atomic, params.min_rnr_timer) = (c.access, c.rd_atomic, c.min_rnr_timer);
    (params.timeout, params.retry_cnt, params.rnr_retry) = (c.timeout, c.retry_cnt, c.rnr_retry);
    params.steps()
}

/// Creates two NICs and a connection between them.
pub fn pair(impairments: &str, seed: u64, c: &Connection) -> (Network, [End; 2]) {
    let mut net = Network::new(2, impairments, seed, &NicConfig::default());
    let ends = [create(&mut net, 0, c, 0, None), create(&mut net, 1, c, 1, None)];
    connect(&mut net, c, ends);
    (net, ends)
}

/// Registers a region of `len` bytes with every right, which windows may be bound to, filled by `byte(offset)`.
pub fn region(net: &mut Network, end: End, len: usize, byte: impl Fn(usize) -> u8) -> Mr {
    let nic = &mut net.nics[end.nic];
    let mr = nic.alloc_mr(end.pd, len as u64, Access(ALL.0 | Access::MW_BIND.0)).unwrap();
    for (i, b) in nic.bytes_mut(&mr).unwrap().iter_mut().enumerate() {
        *b = byte(i);
    }
    mr
}

/// Returns the key of a type 2 window on a whole region, which a queue pair with nothing to send binds at once.
pub fn window(net: &mut Network, end: End, mr: &Mr) -> u32 {
    let nic = &mut net.nics[end.nic];
    let mw = nic.alloc_mw(end.pd, MwKind::Type2).unwrap().handle;
    let access = Access(ALL.0 & !Access::LOCAL_WRITE.0);
    let rkey = nic.next_mw_rkey(mw).unwrap();
    let (op, remote_addr, rkey) = MwBind { mw, rkey, lkey: mr.lkey, addr: mr.addr, len: mr.len, access }.work_request();
    let wr = SendWr { remote_addr, rkey, ..SendWr::new(0, op, SendData::Sges(&[])) };
    nic.post_send(end.qpn, &wr).unwrap();
    nic.poll_transmit(net.now, 1, |_| panic!("a binding sends nothing"));
    let mut wcs = [Wc::EMPTY; 2];
    assert_eq!(nic.poll_cq(end.cq, &mut wcs), Ok(1));
    assert_eq!(wcs[0].status, WcStatus::Success);
    rkey
}
