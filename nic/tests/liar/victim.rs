//! A live connection with a liar in the middle, and the invariants that must hold whatever the liar sends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use irnic_nic::frame::{Icrc, receive_frame};
use irnic_nic::frame::{RxFrame, RxIcrc};
use irnic_nic::{Mr, NicConfig};
use irnic_transports::config::{TransportConfig, WireFormat};
use irnic_transports::qp::{Access, QpAttr, QpState, RecvWr, SendData, SendOp, SendWr, Sge, Wc, WcOpcode, WcStatus};
use irnic_transports::wire::opcode::Operation;
use irnic_transports::wire::{Headers, IrnEth, icrc_append, parse};
use irnic_transports::{Path, Psn};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::common::{Connection, End, Network, address, connect, create, path};
use crate::forge::{self, Knowledge};

/// Sums over seeds.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub forged: u64,
    pub accepted: u64,
    pub survived: u64,
    pub broken: u64,
    pub written: u64,
}

impl Outcome {
    pub fn add(&mut self, o: &Outcome) {
        self.forged += o.forged;
        self.accepted += o.accepted;
        self.survived += o.survived;
        self.broken += o.broken;
        self.written += o.written;
    }
}

/// Bytes of a region, and of its registered middle part; the rest guards it.
const BLOCK: usize = 48 << 10;
const INSIDE: std::ops::Range<usize> = (16 << 10)..(32 << 10);
const GUARD: u8 = 0xc3;

/// Application memory of which only the middle is registered.
struct Block {
    bytes: Box<[u8]>,
    mr: Mr,
    access: Access,
    other_domain: bool,
    before: Vec<u8>,
}

struct Victim {
    net: Network,
    ends: [End; 2],
    connection: Connection,
    blocks: Vec<Block>,
    /// Work requests posted at end 1 and not yet complete: sends, receives. Identifiers are never reused.
    sends: HashMap<u64, ()>,
    receives: HashMap<u64, ()>,
    next_id: u64,
    /// The true peer's memory, without bytes.
    peer_region: Mr,
    knowledge: Arc<Mutex<Knowledge>>,
}

const RIGHTS: [(Access, bool); 6] = [
    (Access::ALL, false),
    (Access(1), false),
    (Access(1 | 4), false),
    (Access(1 | 8), false),
    (Access(0), false),
    (Access::ALL, true),
];

impl Victim {
    fn new(rng: &mut StdRng, seed: u64) -> Victim {
        let presets = [["roce"; 2], ["irn"; 2], ["auto"; 2], ["roce", "auto"], ["irn", "auto"], ["irn-go-back-n"; 2]];
        // With TLT half of the time, if the format is known: echoes and clocks can be forged, too.
        let tlt = ["", ",tlt=on"][rng.random_range(0..2)];
        let names = presets[rng.random_range(0..presets.len())].map(|name| match name {
            "auto" => name.to_owned(),
            name => format!("{name}{tlt}"),
        });
        let mut c = Connection {
            transport: names.each_ref().map(|name| name.parse::<TransportConfig>().unwrap()),
            timeout: 6,
            rnr_retry: 3,
            depth: 16,
            psn: [Psn::new(0xff_fff0), Psn::new(rng.random())],
            ..Connection::default()
        };
        c.transport.iter_mut().for_each(|t| t.window = 256);
        let impairments = ["delay 5us limit 10000", "delay 5us 4us loss 5% limit 10000"][rng.random_range(0..2)];
        let mut net = Network::new(2, impairments, seed, &NicConfig::default());
        let pd = net.nics[1].alloc_pd().unwrap();
        let cq = net.nics[1].create_cq(4096).unwrap();
        let shared = rng.random_bool(0.3);
        c.srq[1] = shared.then(|| net.nics[1].create_srq(pd, 64, 2).unwrap());
        let ends = [create(&mut net, 0, &c, 0, None), create(&mut net, 1, &c, 1, Some((pd, cq)))];
        connect(&mut net, &c, ends);
        let stranger = net.nics[1].alloc_pd().unwrap();
        let blocks = RIGHTS
            .into_iter()
            .map(|(access, other_domain)| {
                let mut bytes = vec![GUARD; BLOCK].into_boxed_slice();
                let domain = if other_domain { stranger } else { pd };
                let at = bytes[INSIDE].as_mut_ptr();
                // SAFETY: the block lives in the victim, after its NIC in no case dropped, and is only read by the test
                // between calls.
                let mr = unsafe { net.nics[1].reg_mr(domain, at, INSIDE.len() as u64, at as u64, access) }.unwrap();
                let before = bytes.to_vec();
                Block { bytes, mr, access, other_domain, before }
            })
            .collect::<Vec<_>>();
        let knowledge = Arc::new(Mutex::new(Knowledge {
            qpn: ends[1].qpn,
            mtu: c.mtu.bytes(),
            request: c.psn[0],
            response: c.psn[1],
            recv_sn: Psn::new(0),
            read_sn: Psn::new(0),
            regions: blocks.iter().map(|b: &Block| (b.mr.rkey, b.mr.addr, b.mr.len)).collect(),
            irn: names[0].starts_with("irn"),
            careful: rng.random_bool(0.5),
        }));
        let learned = knowledge.clone();
        net.tamper = Some(Box::new(move |from, frame| {
            let (h, _) = parse(frame).unwrap();
            let mut k = learned.lock().unwrap();
            match (from, h.bth.opcode.is_request()) {
                (0, true) => learn(&mut k, &h),
                // Responses to these are accepted by the victim.
                (1, true) => k.response = h.bth.psn,
                _ => {}
            }
            true
        }));
        let (sends, receives) = (HashMap::new(), HashMap::new());
        let peer_region = net.nics[0].reg_phantom_mr(ends[0].pd, 1 << 40, 1 << 16, Access::ALL).unwrap();
        Victim { net, ends, connection: c, blocks, sends, receives, next_id: 0, peer_region, knowledge }
    }

    fn state(&self) -> QpState {
        self.net.nics[1].qp(self.ends[1].qpn).unwrap().state()
    }

    /// Posts some work for the victim, and for its true peer.
    fn work(&mut self, rng: &mut StdRng) {
        let mr = self.blocks[1].mr;
        let me = self.ends[1];
        for _ in 0..rng.random_range(0..4) {
            let id = self.next_id;
            self.next_id += 1;
            let sges =
                [Sge { addr: mr.addr + rng.random_range(0..8192), len: rng.random_range(0..5000), lkey: mr.lkey }];
            let wr = RecvWr { wr_id: id, sges: &sges };
            let nic = &mut self.net.nics[1];
            let posted = match self.connection.srq[1] {
                Some(srq) => nic.post_srq_recv(srq, &wr),
                None => nic.post_recv(me.qpn, &wr),
            };
            if posted.is_ok() {
                self.receives.insert(id, ());
            }
        }
        let op = [SendOp::Send, SendOp::Write, SendOp::Read, SendOp::FetchAdd { add: 1 }][rng.random_range(0..4)];
        let len = if matches!(op, SendOp::FetchAdd { .. }) { 8 } else { rng.random_range(0..5000) };
        let sges = [Sge { addr: mr.addr + 8192, len, lkey: mr.lkey }];
        let remote = self.peer_region;
        let mut wr = SendWr {
            remote_addr: remote.addr,
            rkey: remote.rkey,
            ..SendWr::new(self.next_id, op, SendData::Sges(&sges))
        };
        self.next_id += 1;
        if rng.random_bool(0.7) && self.net.nics[1].post_send(me.qpn, &wr).is_ok() {
            self.sends.insert(wr.wr_id, ());
        }
        if rng.random_bool(0.6) {
            let target = self.blocks[0].mr;
            let sges = [Sge { addr: remote.addr, len, lkey: remote.lkey }];
            wr.data = SendData::Sges(&sges);
            (wr.remote_addr, wr.rkey) = (target.addr, target.rkey);
            let peer = self.ends[0];
            let _ = self.net.nics[0].post_send(peer.qpn, &wr);
        }
    }

    /// Checks that in the error state every work request has its completion.
    fn flushed(&self) {
        assert!(self.sends.is_empty(), "send work requests without a completion: {:?}", self.sends);
        let own = self.connection.srq[1].is_none();
        assert!(!own || self.receives.is_empty(), "receives without a completion: {:?}", self.receives);
    }

    /// Takes both ends through RESET: the liar has another try.
    fn reconnect(&mut self) {
        for end in self.ends {
            let reset = QpAttr { state: Some(QpState::Reset), ..QpAttr::default() };
            self.net.nics[end.nic].modify_qp(end.qpn, &reset).unwrap();
        }
        connect(&mut self.net, &self.connection, self.ends);
        let mut k = self.knowledge.lock().unwrap();
        (k.request, k.response) = (self.connection.psn[0], self.connection.psn[1]);
        (k.recv_sn, k.read_sn) = (Psn::new(0), Psn::new(0));
        k.irn = self.connection.transport[0].wire == WireFormat::Irn;
    }

    fn lie(&mut self, rng: &mut StdRng, from: Path) {
        let (headers, payload) = forge::packet(rng, &self.knowledge.lock().unwrap());
        assert!(headers.is_consistent(), "{headers:?}");
        let mut frame = vec![0; headers.frame_len(payload.len())];
        let at = headers.emit(&mut frame);
        frame[at..at + payload.len()].copy_from_slice(&payload);
        icrc_append(&from, 0, &mut frame);
        let now = self.net.now;
        let frame = RxFrame { path: from, bytes: &frame, arrived: now, icrc: RxIcrc::Exact };
        receive_frame(&mut self.net.nics[1], now, &frame, Icrc::Checked);
        if headers.bth.opcode.is_request() {
            // The liar continues from its own packet.
            let mut k = self.knowledge.lock().unwrap();
            if headers.bth.psn == k.request {
                learn(&mut k, &headers);
            }
        }
    }

    /// Checks the invariants that must hold after every packet.
    fn check(&mut self, outcome: &mut Outcome) {
        for block in &mut self.blocks {
            let remote = block.access.allows(Access::REMOTE_WRITE) || block.access.allows(Access::REMOTE_ATOMIC);
            let grants = !block.other_domain && remote;
            // The victim's own receives and READs go to block 1.
            let own = block.access == Access::LOCAL_WRITE;
            let (guards, inside) = (0..INSIDE.start, INSIDE.end..BLOCK);
            assert!(block.bytes[guards].iter().all(|&b| b == GUARD), "memory before a region changed");
            assert!(block.bytes[inside].iter().all(|&b| b == GUARD), "memory behind a region changed");
            if block.bytes[INSIDE] != block.before[INSIDE] {
                assert!(grants || own, "a region that grants nothing changed: {:?}", block.access);
                outcome.written += u64::from(grants);
                block.before.copy_from_slice(&block.bytes);
            }
        }
        let mut wcs = [Wc::EMPTY; 32];
        while let Ok(n) = self.net.nics[1].poll_cq(self.ends[1].cq, &mut wcs)
            && n > 0
        {
            for wc in &wcs[..n] {
                let receive = matches!(wc.opcode, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm);
                let posted = if receive { &mut self.receives } else { &mut self.sends };
                assert!(posted.remove(&wc.wr_id).is_some(), "completed twice, or never posted: {wc:?}");
                outcome.accepted += u64::from(receive && wc.status == WcStatus::Success);
            }
        }
        assert!(self.net.in_flight() < 4000, "{} frames in flight", self.net.in_flight());
    }
}

/// Updates the next request that the victim expects after `h`.
fn learn(k: &mut Knowledge, h: &Headers) {
    let ends = h.bth.opcode.is_only() || h.bth.opcode.is_last();
    k.irn = h.irn.is_some();
    let covers = match (h.bth.opcode.operation(), h.irn, h.reth) {
        (Operation::ReadRequest, None, Some(reth)) => reth.len.div_ceil(k.mtu as u32).max(1),
        _ => 1,
    };
    k.request = h.bth.psn.plus(covers);
    match h.irn {
        Some(IrnEth::Send { recv_wqe_sn, .. } | IrnEth::WriteImm { recv_wqe_sn, .. }) => {
            k.recv_sn = recv_wqe_sn.plus(ends.into())
        }
        Some(IrnEth::Read { read_wqe_sn }) => k.read_sn = read_wqe_sn.plus(1),
        _ => {}
    }
}

/// Runs a connection at work, with lies in between; then silence must follow.
pub fn run(seed: u64) -> Outcome {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut v = Victim::new(&mut rng, seed);
    let mut outcome = Outcome::default();
    let eagerness = [0.05, 0.3, 0.9][rng.random_range(0..3)];
    for _ in 0..rng.random_range(1..60) {
        v.work(&mut rng);
        for _ in 0..rng.random_range(0..12) {
            v.net.step();
            if rng.random_bool(eagerness) {
                v.lie(&mut rng, path(0, 1));
                outcome.forged += 1;
            }
            v.check(&mut outcome);
        }
        if v.state() == QpState::Err {
            v.check(&mut outcome);
            v.flushed();
            v.reconnect();
            outcome.broken += 1;
        }
    }
    let mut steps = 0;
    while v.net.step() {
        steps += 1;
        assert!(steps < 100_000, "no silence after the lies");
        v.check(&mut outcome);
    }
    if v.state() == QpState::Err {
        v.flushed();
        outcome.broken += 1;
    } else {
        outcome.survived += 1;
    }
    // In any case the queue pair can be destroyed.
    v.net.nics[1].destroy_qp(v.ends[1].qpn).unwrap();
    outcome
}

/// Runs a schedule of `seed` without lies, and with lies from an address that is not the peer's: both end alike.
pub fn strangers(seed: u64) {
    let play = |lies: bool| {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut liar = StdRng::seed_from_u64(seed);
        let mut v = Victim::new(&mut rng, seed);
        let mut outcome = Outcome::default();
        for _ in 0..20 {
            v.work(&mut rng);
            for _ in 0..8 {
                v.net.step();
                if lies {
                    let src = address(liar.random_range(2..200));
                    v.lie(&mut liar, Path { src, ..path(0, 1) });
                }
                v.check(&mut outcome);
            }
        }
        while v.net.step() {
            v.check(&mut outcome);
        }
        let counters = irnic_transports::qp::Counters { rx_dropped: 0, ..*v.net.nics[1].counters() };
        let memory: Vec<u8> = v.blocks.iter().flat_map(|b| b.bytes.iter().copied()).collect();
        (counters, memory, v.net.now, v.sends.len(), v.receives.len(), v.state())
    };
    assert!(play(true) == play(false), "seed {seed}");
}
