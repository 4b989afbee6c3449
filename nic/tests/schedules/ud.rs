//! Schedules of datagrams between many queue pairs, some to groups. Every send completes, in order. A datagram reaches
//! only its addressees, is whole, and arrives once unless the network repeats it.

use std::collections::HashMap;
use std::net::IpAddr;

use irnic_nic::{Mr, NicConfig};
use irnic_transports::Path;
use irnic_transports::qp::{
    Address, MULTICAST_QPN, RecvWr, SendData, SendOp, SendWr, Service, Sge, SrqId, Wc, WcOpcode, WcStatus,
};
use irnic_transports::wire::{Grh, Mtu};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::choices::impairments;
use crate::common::{Connection, End, Network, QKEY, attributes, create, path, region};
use crate::model::{elements, pattern};
use crate::unreliable::Outcome;

const GRH: usize = 40;
const GUARD: usize = 16;

struct Peer {
    end: End,
    groups: Vec<usize>,
    memory: Mr,
    buffers: Mr,
    slot: usize,
    srq: Option<SrqId>,
    recv_posted: usize,
    received: usize,
    /// Numbers of the datagrams sent, in order, and how many completed.
    sent: Vec<u32>,
    completed: usize,
}

struct Datagram {
    from: usize,
    to: Address,
    len: usize,
    imm: bool,
    salt: u64,
}

fn group(n: usize) -> IpAddr {
    IpAddr::from([239, 0, 0, n as u8])
}

impl Datagram {
    /// Returns the bytes of a datagram, its number first: one too short for that has it as its immediate data.
    fn bytes(&self, number: u32) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..self.len).map(|k| pattern(self.salt, k)).collect();
        if let Some(start) = bytes.first_chunk_mut::<4>() {
            *start = number.to_le_bytes();
        }
        bytes
    }
}

/// Runs a schedule; panics with the reason if it breaks a rule.
pub fn run(seed: u64, verbose: bool) -> Outcome {
    let mut rng = StdRng::seed_from_u64(seed);
    let network = impairments(&mut rng);
    let mtu = Mtu::ALL[rng.random_range(0..5)];
    let config = NicConfig { mtu, quantum: rng.random_range(1..=16), ..Default::default() };
    let mut net = Network::new(3, &network, seed, &config);
    net.byte_time = rng.random_range(8..=800);
    net.batch = [1, 4, 64][rng.random_range(0..3)];
    if verbose {
        println!("UD {mtu:?}, network: {network}");
    }
    let mut peers: Vec<Peer> = (0..rng.random_range(2..=6)).map(|_| peer(&mut rng, &mut net, mtu.bytes())).collect();
    let mut datagrams: Vec<Datagram> = Vec::new();
    let mut copies: HashMap<(usize, u32), u32> = HashMap::new();
    let repeats = network.contains("duplicate");
    let total = rng.random_range(1..=150);
    let mut delivered = 0;
    loop {
        for i in 0..peers.len() {
            receive(&mut rng, &mut net, &mut peers[i]);
            while datagrams.len() < total && rng.random_bool(0.4) {
                if !send(&mut rng, &mut net, &mut peers, i, mtu.bytes(), &mut datagrams) {
                    break;
                }
            }
        }
        let more = net.step();
        for i in 0..peers.len() {
            delivered += poll(&mut net, &mut peers, i, &datagrams, &mut copies, repeats);
        }
        if !more && datagrams.len() == total {
            break;
        }
        assert!(net.steps < 1_000_000, "no end");
    }
    for p in &peers {
        assert_eq!(p.completed, p.sent.len(), "a send without completion");
        for slot in net.nics[p.end.nic].bytes(&p.buffers).unwrap().chunks(p.slot) {
            assert!(slot[p.slot - GUARD..].iter().all(|&b| b == 0xee), "bytes behind a receive buffer");
        }
    }
    let mut o = Outcome::of(&net);
    (o.messages, o.delivered) = (total as u64, delivered);
    o
}

fn peer(rng: &mut StdRng, net: &mut Network, mtu: usize) -> Peer {
    let nic = rng.random_range(0..net.nics.len());
    let pd = net.nics[nic].alloc_pd().unwrap();
    let cq = net.nics[nic].create_cq(4096).unwrap();
    let srq = rng.random_bool(0.3).then(|| net.nics[nic].create_srq(pd, 64, 4).unwrap());
    let c = Connection { service: Service::Ud, depth: rng.random_range(1..=32), srq: [srq; 2], ..Default::default() };
    let end = create(net, nic, &c, 0, Some((pd, cq)));
    for attr in attributes(&c, end, end, 0) {
        net.nics[nic].modify_qp(end.qpn, &attr).unwrap();
    }
    let mut groups = Vec::new();
    for n in 0..2 {
        if rng.random_bool(0.5) {
            net.nics[nic].attach_mcast(end.qpn, group(n)).unwrap();
            groups.push(n);
        }
    }
    let slot = GRH + mtu + GUARD;
    let memory = region(net, end, mtu, |_| 0);
    let buffers = region(net, end, 64 * slot, |_| 0xee);
    Peer { end, groups, memory, buffers, slot, srq, recv_posted: 0, received: 0, sent: Vec::new(), completed: 0 }
}

/// Posts receives: 64 buffers in turn, each reusable once polled.
fn receive(rng: &mut StdRng, net: &mut Network, p: &mut Peer) {
    let mut sges: Vec<Sge> = Vec::new();
    while p.recv_posted < p.received + 64 && rng.random_bool(0.6) {
        let at = p.recv_posted % 64 * p.slot;
        elements(p.buffers.addr + at as u64, (p.slot - GUARD) as u32, p.buffers.lkey, 1 + at % 4, &mut sges);
        let wr = RecvWr { wr_id: p.recv_posted as u64, sges: &sges };
        let nic = &mut net.nics[p.end.nic];
        let posted = match p.srq {
            Some(srq) => nic.post_srq_recv(srq, &wr),
            None => nic.post_recv(p.end.qpn, &wr),
        };
        if posted.is_err() {
            break;
        }
        p.recv_posted += 1;
    }
}

/// Posts a datagram to a random peer, whose bytes are erased from the sender's memory when it completes; returns false
/// if there is no room.
fn send(
    rng: &mut StdRng,
    net: &mut Network,
    peers: &mut [Peer],
    from: usize,
    mtu: usize,
    datagrams: &mut Vec<Datagram>,
) -> bool {
    // The memory serves one datagram at a time.
    if peers[from].completed < peers[from].sent.len() {
        return false;
    }
    let number = datagrams.len() as u32;
    let target = &peers[rng.random_range(0..peers.len())].end;
    let me = peers[from].end;
    let mut to = Address { path: path(me.nic, target.nic), qpn: target.qpn, qkey: QKEY };
    if rng.random_bool(0.3) {
        to.path = Path { dst: group(rng.random_range(0..2)), ..to.path };
        to.qpn = MULTICAST_QPN;
    }
    match rng.random_range(0..10) {
        0 => to.qkey = QKEY + 1,
        1 => to.qkey = 1 << 31,
        _ => {}
    }
    let len = [0, mtu, rng.random_range(0..=mtu), rng.random_range(0..=8)][rng.random_range(0..4)];
    let datagram = Datagram { from, to, len, imm: len < 4 || rng.random_bool(0.5), salt: u64::from(number) };
    let bytes = datagram.bytes(number);
    let nic = &mut net.nics[me.nic];
    let memory = peers[from].memory;
    nic.bytes_mut(&memory).unwrap()[..len].copy_from_slice(&bytes);
    let mut sges = Vec::new();
    elements(memory.addr, len as u32, memory.lkey, rng.random_range(1..=4), &mut sges);
    let inline = len <= 256 && rng.random_bool(0.3);
    let wr = SendWr {
        wr_id: u64::from(number),
        op: if datagram.imm { SendOp::SendImm(number) } else { SendOp::Send },
        data: if inline { SendData::Inline(&bytes) } else { SendData::Sges(&sges) },
        remote_addr: 0,
        rkey: 0,
        signaled: true,
        solicited: false,
        fence: false,
        to: Some(to),
        remote_srqn: 0,
    };
    nic.post_send(me.qpn, &wr).unwrap();
    // Some senders reuse the memory at once.
    if number % 2 == 1 {
        nic.copy_waiting_sends(me.qpn);
        nic.bytes_mut(&memory).unwrap()[..len].fill(0xdd);
    }
    peers[from].sent.push(number);
    datagrams.push(datagram);
    true
}

fn poll(
    net: &mut Network,
    peers: &mut [Peer],
    i: usize,
    datagrams: &[Datagram],
    copies: &mut HashMap<(usize, u32), u32>,
    repeats: bool,
) -> u64 {
    let mut wcs = [Wc::EMPTY; 16];
    let mut delivered = 0;
    let end = peers[i].end;
    while let Ok(n @ 1..) = net.nics[end.nic].poll_cq(end.cq, &mut wcs) {
        for wc in &wcs[..n] {
            assert_eq!((wc.status, wc.qp_num), (WcStatus::Success, end.qpn), "{wc:?}");
            if wc.opcode == WcOpcode::Send {
                let p = &mut peers[i];
                assert_eq!(Some(&(wc.wr_id as u32)), p.sent.get(p.completed), "out of order");
                p.completed += 1;
                continue;
            }
            delivered += 1;
            let p = &mut peers[i];
            assert_eq!(wc.wr_id, p.received as u64, "receive WQEs out of order");
            let buffer = &net.nics[end.nic].bytes(&p.buffers).unwrap()[p.received % 64 * p.slot..];
            p.received += 1;
            assert!(wc.grh && wc.byte_len as usize >= GRH);
            let payload = &buffer[GRH..wc.byte_len as usize];
            let number = wc.imm.unwrap_or_else(|| u32::from_le_bytes(*payload.first_chunk().unwrap()));
            let d = &datagrams[number as usize];
            assert_eq!((payload, wc.imm.is_some()), (&d.bytes(number)[..], d.imm));
            let frame = 12 + 8 + if d.imm { 4 } else { 0 } + d.len.next_multiple_of(4) + 4;
            assert_eq!(buffer[..GRH], Grh::receive_area(&d.to.path, frame));
            assert_eq!(wc.src_qp, peers[d.from].end.qpn);
            assert_ne!(d.to.qkey, QKEY + 1, "a wrong Q_Key");
            let p = &peers[i];
            let mine = if d.to.qpn == MULTICAST_QPN {
                p.groups.iter().any(|&g| group(g) == d.to.path.dst)
            } else {
                d.to.qpn == end.qpn && d.to.path.dst == path(end.nic, end.nic).dst
            };
            assert!(mine, "a datagram for somebody else");
            let copies = copies.entry((i, number)).or_default();
            *copies += 1;
            assert!(*copies == 1 || repeats, "a datagram delivered twice");
        }
    }
    delivered
}
