//! NICs on the ports of two processes: an ICRC only where bits can change.

use std::io;
use std::time::{Duration, Instant};

use irnic_nic::NicConfig;
use irnic_nic::frame::Icrc;
use irnic_ports::NicPort;
use irnic_ports::Port;
use irnic_ports::capture::Captured;
use irnic_ports::host::{HostConfig, HostPort, HostUdp, Slot};
use irnic_ports::impair::Impaired;
use irnic_transports::qp::{SendData, SendWr, Sge, Wc, WcStatus};
use irnic_transports::wire::{icrc_check, parse};

use super::common::{Connection, Network, address, connect, create, region};
use super::*;

const BYTES: usize = 300_000;

/// Writes `BYTES` bytes from a NIC in slot 1 to one in slot 2, whose port `wrap` changes. Returns the frames whose ICRC
/// was wrong.
fn write_between_slots<P: Port>(wrap: impl Fn(HostPort) -> P) -> [u64; 2] {
    let config = |number| NicConfig { first_qpn: slot(number).first_qpn(), ..NicConfig::default() };
    let mut net = Network::new(2, "", 1, &config(1));
    net.nics[1] = Network::new(1, "", 2, &config(2)).nics.remove(0);
    let c = Connection::default();
    let ends = [create(&mut net, 0, &c, 0, None), create(&mut net, 1, &c, 1, None)];
    assert_eq!(ends.map(|end| Slot::of(end.qpn)), [Some(slot(1)), Some(slot(2))]);
    connect(&mut net, &c, ends);
    let from = region(&mut net, ends[0], BYTES, |i| (i * 7 + i / 256) as u8);
    let to = region(&mut net, ends[1], BYTES, |_| 0);
    let domain = fresh_domain();
    let open = |number| {
        let config = HostConfig::new(&*domain, vec![address(0), address(1)]);
        HostPort::open(&config.with_slot(Some(slot(number))).with_udp(HostUdp::Off)).expect("a port")
    };
    let [first, second] = [net.nics.remove(0), net.nics.remove(0)];
    let mut a = NicPort::new(first, open(1), Icrc::Needed);
    let mut b = NicPort::new(second, wrap(open(2)), Icrc::Needed);
    let sges = [Sge { addr: from.addr, len: BYTES as u32, lkey: from.lkey }];
    let wr = SendWr::write(7, SendData::Sges(&sges), to.addr, to.rkey);
    a.nic.post_send(ends[0].qpn, &wr).expect("room");
    let start = Instant::now();
    let mut wc = [Wc::EMPTY];
    while a.nic.poll_cq(ends[0].cq, &mut wc) == Ok(0) {
        a.poll(since(start)).expect("poll");
        b.poll(since(start)).expect("poll");
        assert!(start.elapsed() < HANG);
    }
    assert_eq!(wc[0].status, WcStatus::Success);
    assert_eq!(b.nic.bytes(&to), a.nic.bytes(&from));
    [a.nic.counters().rx_icrc_encapsulated, b.nic.counters().rx_icrc_encapsulated]
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
