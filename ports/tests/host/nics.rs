//! NICs on the ports of two processes: an ICRC only where bits can change.

use std::io;
use std::time::{Duration, Instant};

use irnic_nic::frame::Icrc;
use irnic_nic::{Mr, Nic, NicConfig};
use irnic_ports::NicPort;
use irnic_ports::Port;
use irnic_ports::capture::Captured;
use irnic_ports::host::{CrossMemory, HostConfig, HostPort, HostUdp, Slot};
use irnic_ports::impair::Impaired;
use irnic_transports::qp::{QpAttr, QpState, SendData, SendWr, Sge, Wc, WcStatus};
use irnic_transports::wire::{icrc_check, parse};

use super::common::{Connection, End, Network, address, connect, create, region};
use super::*;

const BYTES: usize = 300_000;

/// A NIC in slot 1 that writes to one in slot 2.
struct Slots<P> {
    a: NicPort<HostPort>,
    b: NicPort<P>,
    ends: [End; 2],
    from: Mr,
    to: Mr,
    start: Instant,
}

/// Connects two NICs, of which the second has a port that `wrap` changes.
fn connected<P: Port>(cross_memory: CrossMemory, wrap: impl Fn(HostPort) -> P) -> Slots<P> {
    let config = |number| NicConfig { first_qpn: slot(number).first_qpn(), ..NicConfig::default() };
    let mut net = Network::new(2, "", 1, &config(1));
    net.nics[1] = Network::new(1, "", 2, &config(2)).nics.remove(0);
    let c = Connection::default();
    let ends = [create(&mut net, 0, &c, 0, None), create(&mut net, 1, &c, 1, None)];
    assert_eq!(ends.map(|end| Slot::of(end.qpn)), [Some(slot(1)), Some(slot(2))]);
    connect(&mut net, &c, ends);
    let from = region(&mut net, ends[0], BYTES, |_| 0);
    let to = region(&mut net, ends[1], BYTES, |_| 0);
    let domain = fresh_domain();
    let open = |number| {
        let config = HostConfig::new(&*domain, vec![address(0), address(1)]);
        let config = config.with_slot(Some(slot(number))).with_udp(HostUdp::Off).with_cross_memory(cross_memory);
        HostPort::open(&config).expect("a port")
    };
    let [first, second] = [net.nics.remove(0), net.nics.remove(0)];
    let a = NicPort::new(first, open(1), Icrc::Needed);
    let b = NicPort::new(second, wrap(open(2)), Icrc::Needed);
    Slots { a, b, ends, from, to, start: Instant::now() }
}

impl<P: Port> Slots<P> {
    fn post(&mut self) {
        let sges = [Sge { addr: self.from.addr, len: BYTES as u32, lkey: self.from.lkey }];
        let wr = SendWr::write(7, SendData::Sges(&sges), self.to.addr, self.to.rkey);
        self.a.nic.post_send(self.ends[0].qpn, &wr).expect("room");
    }

    /// Writes `BYTES` bytes that depend on `key`, and checks what has arrived.
    fn write(&mut self, key: u8) {
        let memory = self.a.nic.bytes_mut(&self.from).expect("memory");
        memory.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i * 7 + i / 256) as u8 ^ key);
        self.post();
        let mut wc = [Wc::EMPTY];
        while self.a.nic.poll_cq(self.ends[0].cq, &mut wc) == Ok(0) {
            self.a.poll(since(self.start)).expect("poll");
            self.b.poll(since(self.start)).expect("poll");
            assert!(self.start.elapsed() < HANG);
        }
        assert_eq!(wc[0].status, WcStatus::Success);
        assert!(self.b.nic.bytes(&self.to) == self.a.nic.bytes(&self.from), "what was written differs");
    }
}

/// Writes between two slots. Returns the frames whose ICRC was wrong.
fn write_between_slots<P: Port>(wrap: impl Fn(HostPort) -> P) -> [u64; 2] {
    let mut slots = connected(CrossMemory::Off, wrap);
    slots.write(0);
    [slots.a.nic.counters().rx_icrc_encapsulated, slots.b.nic.counters().rx_icrc_encapsulated]
}

#[test]
fn nics_of_two_slots_need_no_icrc() {
    assert_eq!(write_between_slots(|port| port), [0, 0]);
}

/// Frames that are corrupted on their way in have no ICRC, those on their way out have one; all are noticed.
#[test]
fn corruption_is_noticed_with_and_without_an_icrc() {
    let spec = "tx corrupt 20% seed 3; rx corrupt 5% seed 4".parse();
    let spec: irnic_ports::impair::Impairments = spec.expect("impairments");
    let [there, here] = write_between_slots(|port| Impaired::new(port, &spec, 1, 0));
    assert!(there > 0 && here > 0, "{there} and {here} frames with a wrong ICRC");
}

#[test]
fn payloads_that_stay_in_place_arrive_whole() {
    let mut slots = connected(CrossMemory::On, |port| port);
    (0..10).for_each(|key| slots.write(key));
    let [here, there] = [slots.a.port.host_counters(), slots.b.port.host_counters()];
    assert!(here.tx_by_reference > 0, "{here:?}");
    assert_eq!(there.rx_unreadable, 0);
}

/// Once its work requests have failed, an application may reuse their memory: nothing of that may arrive.
#[test]
fn payloads_of_failed_work_requests_do_not_arrive() {
    const REUSED: u8 = 0xee;
    let end: [fn(&mut Nic, u32); 3] = [
        |nic, qpn| nic.destroy_qp(qpn).expect("a queue pair"),
        |nic, qpn| {
            nic.modify_qp(qpn, &QpAttr { state: Some(QpState::Err), ..QpAttr::default() }).expect("a queue pair")
        },
        |nic, qpn| {
            nic.modify_qp(qpn, &QpAttr { state: Some(QpState::Reset), ..QpAttr::default() }).expect("a queue pair")
        },
    ];
    for end in end {
        let mut slots = connected(CrossMemory::On, |port| port);
        // The first frames go before the receiver's answer to the offer.
        while slots.a.port.host_counters().tx_by_reference == 0 {
            slots.write(0);
        }
        let before = slots.a.port.host_counters().tx_by_reference;
        slots.b.nic.bytes_mut(&slots.to).expect("memory").fill(0);
        slots.post();
        slots.a.poll(since(slots.start)).expect("poll");
        assert!(slots.a.port.host_counters().tx_by_reference > before, "nothing is on its way");
        end(&mut slots.a.nic, slots.ends[0].qpn);
        slots.a.nic.bytes_mut(&slots.from).expect("memory").fill(REUSED);
        for _ in 0..10 {
            slots.b.poll(since(slots.start)).expect("poll");
        }
        assert!(slots.b.port.host_counters().rx_unreadable > 0);
        assert!(!slots.b.nic.bytes(&slots.to).expect("memory").contains(&REUSED));
    }
}

/// A writer that the test looks at while the capture goes on.
#[derive(Clone, Default)]
struct Shared(std::rc::Rc<std::cell::RefCell<Vec<u8>>>);

impl io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_capture_shows_the_icrc_that_frames_in_memory_do_not_have() {
    let log = Shared::default();
    write_between_slots(|port| Captured::new(port, log.clone(), "irnic0", Duration::ZERO));
    let bytes = log.0.borrow();
    let mut reader = pcap_file::pcapng::PcapNgReader::new(&bytes[..]).expect("a capture");
    let mut frames = 0;
    while let Some(block) = reader.next_block() {
        if let pcap_file::pcapng::Block::EnhancedPacket(packet) = block.expect("a block") {
            let datagram = irnic_transports::wire::ip::parse_ethernet(&packet.data).expect("a RoCEv2 packet");
            assert!(parse(datagram.frame).is_ok() && icrc_check(&datagram.path, 0, datagram.frame));
            frames += 1;
        }
    }
    assert!(frames > BYTES / 1024);
}
