//! RC3 between two queue pairs without a network: packets and their acknowledgements are passed by the tests.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use irnic_transports::qp::{
    Access, AtomicOp, Caller, ConnectParams, Counters, CqId, Event, Frees, GatherList, Host, MemError, MwBind, PdId,
    PeerProcess, Qp, QpConfig, RecvWqe, SendData, SendOp, SendWr, Sge, SrqId, TxSlot, Wc, WcStatus, XrcSrq, XrcdId,
};
use irnic_transports::time::{MS, US};
use irnic_transports::wire::{Headers, Mtu, NakCode, Opcode, Syndrome};
use irnic_transports::{Path, Payload, Piece, Psn, RxPacket, Sideband, Time, TransportConfig};
use proptest::prelude::*;

const MTU: u64 = 1024;
/// Priority of both queue pairs.
const PRIORITY: u8 = 7;

/// Memory that has only lengths, and counts the bytes placed at each address.
#[derive(Default)]
struct Device {
    counters: Counters,
    completed: Vec<u64>,
    placed: BTreeMap<u64, u32>,
}

impl Host for Device {
    fn gather_local(&mut self, _: PdId, _: &[Sge], _: u64, len: u32, out: &mut GatherList) -> Result<(), MemError> {
        out.push(0, len);
        Ok(())
    }

    fn read_local(&mut self, _: PdId, _: &[Sge], _: &mut [u8]) -> Result<(), MemError> {
        Err(MemError::Key(0))
    }

    fn gather_remote(&mut self, _: Caller, key: u32, _: u64, _: Piece, _: &mut GatherList) -> Result<(), MemError> {
        Err(MemError::Key(key))
    }

    fn gather_again(&mut self, _: Caller, key: u32, _: u64, _: u32, _: &mut GatherList) -> Result<(), MemError> {
        Err(MemError::Key(key))
    }

    fn place_local(&mut self, _: PdId, _: &[Sge], _: u64, _: &Payload<'_>) -> Result<(), MemError> {
        Err(MemError::Key(0))
    }

    fn place_remote(&mut self, _: Caller, _: u32, va: u64, _: u64, payload: &Payload<'_>) -> Result<(), MemError> {
        assert_eq!((payload.len() as u64, va % MTU), (MTU, 0));
        *self.placed.entry(va / MTU).or_default() += 1;
        Ok(())
    }

    fn place_late(&mut self, _: bool) {}

    fn check_remote(&mut self, _: Caller, key: u32, _: u64, _: u64, _: Access) -> Result<(), MemError> {
        Err(MemError::Key(key))
    }

    fn check_key(&mut self, _: Caller, _: u32, _: Access) -> Result<(), MemError> {
        Ok(())
    }

    fn atomic(&mut self, _: Caller, key: u32, _: u64, _: AtomicOp) -> Result<u64, MemError> {
        Err(MemError::Key(key))
    }

    fn eight_bytes(&self, _: &Payload<'_>) -> [u8; 8] {
        [0; 8]
    }

    fn invalidate(&mut self, _: Caller, key: u32) -> Result<(), MemError> {
        Err(MemError::Key(key))
    }

    fn bind_mw(&mut self, _: Caller, _: &MwBind) -> Result<(), MemError> {
        Err(MemError::Window("none here"))
    }

    fn srq_take(&mut self, _: SrqId, _: &mut [Sge]) -> Option<RecvWqe> {
        None
    }

    fn xrc_srq(&self, _: XrcdId, _: u32) -> Option<XrcSrq> {
        None
    }

    fn xrc_take(&mut self, _: SrqId, _: u32, _: &mut [Sge]) -> Option<RecvWqe> {
        None
    }

    fn complete(&mut self, _: CqId, wc: Wc, _: Frees) {
        assert_eq!(wc.status, WcStatus::Success);
        self.completed.push(wc.wr_id);
    }

    fn event(&mut self, _: Event) {}

    fn owes_pulls(&mut self) {}

    fn counters(&mut self) -> &mut Counters {
        &mut self.counters
    }
}

/// A packet in flight.
#[derive(Clone, Debug)]
struct Packet {
    headers: Headers,
    path: Path,
    len: u32,
}

impl Packet {
    fn low(&self) -> bool {
        self.headers.bth.low
    }

    /// Returns the number of the packet, from 1 on as in the dissertation.
    fn number(&self) -> u32 {
        self.headers.bth.psn.get().wrapping_sub(FIRST).wrapping_add(1) & 0xff_ffff
    }
}

/// First sequence number: numbers wrap.
const FIRST: u32 = 0xff_fff0;

struct End {
    qp: Qp,
    device: Device,
    slot: TxSlot,
}

impl End {
    fn new(address: u8, peer: u8, config: &str) -> End {
        let config: TransportConfig = config.parse().expect("a transport");
        let (src, dst) = (IpAddr::from([10, 0, 0, address]), IpAddr::from([10, 0, 0, peer]));
        let path = Path { src, dst, udp_src: 0xc000, traffic_class: PRIORITY << 5, hop_limit: 64 };
        let qp_config = QpConfig { max_send_wr: 64, ..QpConfig::new(PdId(0), CqId(0), config) };
        let qp = Qp::new(17, Mtu::B1024, &qp_config, Arc::new(config)).expect("memory");
        let mut end = End { qp, device: Device::default(), slot: TxSlot::default() };
        let mut params = ConnectParams::reliable(path, Mtu::B1024, 17);
        params.access = Access::REMOTE_WRITE;
        (params.rq_psn, params.sq_psn) = (Psn::new(FIRST), Psn::new(FIRST));
        for step in params.steps() {
            end.qp.modify(&step, &mut end.device).expect("a step to RTS");
        }
        end
    }

    /// Posts a WRITE of `packets` packets, behind the `before` packets already posted.
    fn write(&mut self, packets: u64, before: u64) {
        let sge = [Sge { addr: 0, len: (packets * MTU) as u32, lkey: 1 }];
        let wr =
            SendWr { remote_addr: before * MTU, rkey: 1, ..SendWr::new(before, SendOp::Write, SendData::Sges(&sge)) };
        self.qp.post_send(&wr, &mut self.device).expect("room");
    }

    fn taken(&self, priority: u8) -> Packet {
        let path = self.qp.path().expect("a path").with_priority(priority);
        Packet { headers: self.slot.headers, path, len: self.slot.gather.len() as u32 }
    }

    /// Returns the packet that the link would take next: low priority last.
    fn send(&mut self, now: Time) -> Option<Packet> {
        if self.qp.poll_transmit(now, &mut self.device, &mut self.slot) {
            return Some(self.taken(PRIORITY));
        }
        while let Some(expected) = self.qp.low_priority() {
            if let Some(priority) = self.qp.poll_low(&mut self.device, &mut self.slot) {
                assert_eq!(expected, priority);
                return Some(self.taken(priority));
            }
        }
        None
    }

    fn receive(&mut self, now: Time, packet: &Packet) {
        let rx = RxPacket {
            headers: &packet.headers,
            path: &packet.path,
            payload: Payload::Len(packet.len),
            arrived: now,
            sideband: Sideband::NONE,
        };
        self.qp.receive(now, &rx, &mut self.device);
    }

    fn window(&self) -> u32 {
        self.qp.controller_metrics().expect("congestion control").window
    }
}

/// The example of §2.1.2, Figure 2.3: 66 packets, of which the network takes 50 in a round trip; those numbered 21 and
/// 22 are lost at their low priority. Deliveries of a round are acknowledged before the next begins.
#[test]
fn sixty_six_packets_take_three_round_trips() {
    let config = "iwarp,rc3=40";
    let (mut a, mut b) = (End::new(1, 2, config), End::new(2, 1, config));
    a.write(66, 0);
    let now = Time(0);
    let mut rounds = Vec::new();
    while a.device.completed.is_empty() {
        let sent: Vec<Packet> = std::iter::from_fn(|| a.send(now)).take(50).collect();
        rounds.push(sent.iter().map(|p| (p.path.priority(), p.number())).collect::<Vec<_>>());
        assert!(rounds.len() < 9, "{rounds:?}");
        let mut acks = Vec::new();
        for packet in sent.iter().filter(|p| !(p.low() && [21, 22].contains(&p.number()))) {
            b.receive(now, packet);
            acks.extend(std::iter::from_fn(|| b.send(now)));
        }
        // At the priority of the packets acknowledged.
        let (low, high): (Vec<_>, Vec<_>) = acks.into_iter().partition(Packet::low);
        assert!(high.iter().all(|ack| ack.path.priority() == PRIORITY));
        let classes =
            |packets: &mut dyn Iterator<Item = u8>| packets.fold([0; 8], |mut n, p| (n[usize::from(p)] += 1, n).1);
        let data = sent.iter().filter(|p| p.low() && ![21, 22].contains(&p.number()));
        assert_eq!(classes(&mut low.iter().map(|p| p.path.priority())), classes(&mut data.map(|p| p.path.priority())));
        for ack in low.iter().chain(&high) {
            let before = (a.window(), a.qp.in_flight());
            a.receive(now, ack);
            assert!(!ack.low() || (a.window(), a.qp.in_flight()) == before);
        }
    }
    let run = |priority: u8, from: u32, to: u32| -> Vec<(u8, u32)> {
        if from <= to {
            (from..=to).map(|n| (priority, n)).collect()
        } else {
            (to..=from).rev().map(|n| (priority, n)).collect()
        }
    };
    let expected = [
        [run(7, 1, 4), run(6, 66, 27), run(5, 26, 21)].concat(),
        [run(7, 5, 12), run(5, 20, 13)].concat(),
        run(7, 21, 22),
    ];
    assert_eq!(rounds, expected);
    assert_eq!(rounds.iter().map(Vec::len).sum::<usize>(), 68);
    assert!((0..66).all(|n| b.device.placed.get(&n) == Some(&1)));
    // Slow start: one more for each of the 4, 8 and 2 acknowledgements, whatever else is known to have arrived.
    assert_eq!(a.window(), 4 + 4 + 8 + 2);
    let counters = a.device.counters;
    assert_eq!((counters.rc3_low_pkts, counters.rc3_low_acked, counters.rc3_sent_twice), (54, 52, 2));
    assert_eq!((counters.rc3_crossings, counters.retransmitted_pkts, counters.local_ack_timeout_err), (1, 0, 0));
}

/// Without RC3 the same takes five: 4, 8, 16, 32 and 6.
#[test]
fn without_low_priority_it_is_slow_start() {
    let (mut a, mut b) = (End::new(1, 2, "iwarp"), End::new(2, 1, "iwarp"));
    a.write(66, 0);
    let mut rounds = Vec::new();
    while a.device.completed.is_empty() {
        let sent: Vec<Packet> = std::iter::from_fn(|| a.send(Time(0))).take(50).collect();
        rounds.push(sent.len());
        let mut acks = Vec::new();
        for packet in &sent {
            assert!(!packet.low());
            b.receive(Time(0), packet);
            acks.extend(std::iter::from_fn(|| b.send(Time(0))));
        }
        acks.iter().for_each(|ack| a.receive(Time(0), ack));
    }
    assert_eq!(rounds, [4, 8, 16, 32, 6]);
}

/// An acknowledgement at low priority names the block around its packet, and the contents of a lost one are repeated by
/// the next.
#[test]
fn an_answer_names_the_block_around_its_packet() {
    let (mut a, mut b) = (End::new(1, 2, "iwarp,rc3=on"), End::new(2, 1, "iwarp,rc3=on"));
    a.write(12, 0);
    let sent: Vec<Packet> = std::iter::from_fn(|| a.send(Time(0))).collect();
    // Four in order, eight from the end.
    assert_eq!(sent.iter().map(Packet::number).collect::<Vec<_>>(), [1, 2, 3, 4, 12, 11, 10, 9, 8, 7, 6, 5]);
    let mut answers = Vec::new();
    for n in [4, 5, 7, 6, 0, 1, 2, 3, 8, 9, 10, 11] {
        b.receive(Time(0), &sent[n]);
        let ack = b.send(Time(0)).expect("an answer");
        let (selective, run) = match ack.headers.irn {
            Some(irnic_transports::wire::IrnEth::Ack { selective, run }) => (selective, run),
            other => panic!("{other:?}"),
        };
        let first = selective.distance(Psn::new(FIRST)) + 1;
        let nak = Syndrome::from_u8(ack.headers.aeth.expect("an AETH").syndrome)
            == Some(Syndrome::Nak(NakCode::PsnSequenceError));
        assert_eq!((ack.headers.bth.opcode, run), (Opcode::RcAcknowledge, 0));
        answers.push((ack.low(), nak, first, ack.number()));
    }
    let expected = [
        (true, true, 12, 12),
        (true, true, 11, 12),
        (true, true, 9, 9),
        (true, true, 9, 12),
        (false, false, 1, 1),
        (false, false, 2, 2),
        (false, false, 3, 3),
        (false, false, 4, 4),
        (true, true, 8, 12),
        (true, true, 7, 12),
        (true, true, 6, 12),
        // Everything has arrived.
        (true, false, 12, 12),
    ];
    assert_eq!(answers, expected);
}

/// A network of one link each way, which loses and delays packets.
#[derive(Debug, Clone)]
struct Network {
    config: String,
    /// Packets of each WRITE, and the time it is posted.
    writes: Vec<(u64, u64)>,
    /// Of 256 packets and acknowledgements, the number lost: at the stream's priority, and below.
    loss: [u8; 2],
    /// Delay, and the maximum additional delay below that priority.
    delay: u64,
    late: u64,
    seed: u32,
}

struct Outcome {
    a: End,
    b: End,
    /// Number of transmissions of each packet at low priority.
    twice: bool,
}

impl Network {
    fn run(&self) -> Result<Outcome, TestCaseError> {
        let (mut a, mut b) = (End::new(1, 2, &self.config), End::new(2, 1, &self.config));
        let mut random = self.seed | 1;
        let mut draw = |limit: u64| {
            random ^= random << 13;
            random ^= random >> 17;
            random ^= random << 5;
            u64::from(random >> 8) % limit.max(1)
        };
        let mut under_way: [VecDeque<(u64, Packet)>; 2] = Default::default();
        let (mut low, mut twice, mut posted) = (HashSet::new(), false, 0);
        let total: u64 = self.writes.iter().map(|(packets, _)| packets).sum();
        let mut writes = self.writes.iter().peekable();
        let lossless = self.loss == [0, 0];
        for tick in 0..4_000_000u64 {
            if a.device.completed.len() == self.writes.len() {
                return Ok(Outcome { a, b, twice });
            }
            let now = Time(tick * US);
            while let Some((packets, _)) = writes.next_if(|(_, at)| *at <= tick) {
                a.write(*packets, posted);
                posted += packets;
            }
            for (end, to) in [(&mut a, 0), (&mut b, 1)] {
                if end.qp.next_deadline() <= now {
                    end.qp.on_deadline(now, &mut end.device, &mut |_, _| PeerProcess::Unknown);
                }
                let Some(packet) = end.send(now) else { continue };
                if to == 0 && packet.low() {
                    twice |= !low.insert(packet.number());
                    prop_assert!(u64::from(packet.number()) <= total && packet.path.priority() < PRIORITY);
                }
                let late = if packet.low() { draw(self.late + 1) } else { 0 };
                if draw(256) >= u64::from(self.loss[usize::from(packet.low())]) {
                    under_way[to].push_back((tick + self.delay + late, packet));
                }
            }
            for (to, under_way) in under_way.iter_mut().enumerate() {
                let (due, later) = under_way.drain(..).partition(|(at, _)| *at <= tick);
                *under_way = later;
                let due: VecDeque<(u64, Packet)> = due;
                for (_, packet) in due {
                    let end = if to == 0 { &mut b } else { &mut a };
                    let before = (end.window(), end.qp.in_flight(), end.qp.counts().timeouts);
                    end.receive(now, &packet);
                    let after = (end.window(), end.qp.in_flight(), end.qp.counts().timeouts);
                    if to == 1 && packet.low() {
                        // Nothing that affects congestion control, the window or the timer.
                        prop_assert_eq!(before, after);
                    } else if to == 1 && lossless && after.0 < 65_536 {
                        prop_assert!(after.0 == before.0 || after.0 == before.0 + 1);
                    }
                }
            }
        }
        prop_assert!(false, "{} of {total} packets have arrived", b.device.placed.len());
        unreachable!()
    }
}

fn networks(lossless: bool) -> impl Strategy<Value = Network> {
    let loss = if lossless { Just([0, 0]).boxed() } else { [0u8..40, 0u8..120].boxed() };
    let transport = prop_oneof!["iwarp", "irn-no-bdp,cc=tcp", "irn,cap=20,cc=tcp", "iwarp,evidence=on"];
    let rc3 = prop_oneof![
        "rc3=on",
        "rc3=2,rc3-levels=3",
        "rc3=5,rc3-levels=1,rc3-reach=64,window=64",
        "rc3=1,rc3-levels=7,rc3-reach=128"
    ];
    let writes = prop::collection::vec((1u64..200, 0u64..300), 1..6);
    (transport, rc3, writes, loss, 1u64..60, 0u64..200, any::<u32>()).prop_map(
        |(transport, rc3, mut writes, loss, delay, late, seed)| {
            writes.sort_by_key(|(_, at)| *at);
            let config = format!("{transport},{rc3},rto-min=2ms,rto-max=8ms");
            Network { config, writes, loss, delay, late, seed }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Whatever is lost: everything arrives, completions are in order, nothing is sent twice at low priority, and
    /// acknowledgements at low priority change nothing that the primary loop depends on.
    #[test]
    fn low_priority_changes_nothing_but_what_need_not_be_sent(network in networks(false)) {
        let Outcome { a, b, twice } = network.run()?;
        let total: u64 = network.writes.iter().map(|(packets, _)| packets).sum();
        prop_assert!(!twice);
        prop_assert!((0..total).all(|n| b.device.placed.get(&n) == Some(&1)));
        prop_assert!(a.device.completed.is_sorted());
        prop_assert_eq!(a.device.counters.rx_unexpected + b.device.counters.rx_unexpected, 0);
    }

    /// Without loss there is no recovery: an acknowledgement from the end is no sign of loss, whatever it overtook.
    #[test]
    fn without_loss_nothing_is_recovered(network in networks(true)) {
        let Outcome { a, b, twice } = network.run()?;
        prop_assert!(!twice);
        let counters = a.device.counters;
        prop_assert_eq!((counters.retransmitted_pkts, counters.local_ack_timeout_err), (0, 0));
        let total: u64 = network.writes.iter().map(|(packets, _)| packets).sum();
        prop_assert!(counters.rc3_low_acked <= counters.rc3_low_pkts && counters.rc3_low_pkts <= total);
        prop_assert!((0..total).all(|n| b.device.placed.get(&n) == Some(&1)));
    }
}

/// It takes a priority below the stream's.
#[test]
fn at_the_lowest_priority_there_is_none_below() {
    let mut a = End::new(1, 2, "iwarp,rc3=on");
    let path = Path { traffic_class: 0, ..*a.qp.path().expect("a path") };
    let mut params = ConnectParams::reliable(path, Mtu::B1024, 17);
    params.access = Access::REMOTE_WRITE;
    let config: TransportConfig = "iwarp,rc3=on,rto=100ms".parse().expect("a transport");
    let qp_config = QpConfig::new(PdId(0), CqId(0), config);
    a.qp = Qp::new(17, Mtu::B1024, &qp_config, Arc::new(config)).expect("memory");
    for step in params.steps() {
        a.qp.modify(&step, &mut a.device).expect("a step to RTS");
    }
    a.write(20, 0);
    assert_eq!(std::iter::from_fn(|| a.send(Time(MS))).count(), 4);
}
