use super::*;
use crate::impair::Impaired;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::blocks::section_header::SectionHeaderOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use proptest::prelude::*;
use std::fs::File;
use std::io::ErrorKind;

/// A port that loops sent frames back after the next flush, if there is room.
#[derive(Default)]
struct Loop {
    frames: Vec<(Path, Vec<u8>)>,
    full: bool,
}

impl Port for Loop {
    fn max_frame(&self) -> usize {
        4200
    }

    fn transmit(&mut self, _: Time, frame: &TxFrame<'_>, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        if self.full {
            return false;
        }
        let mut bytes = vec![0; frame.len];
        fill(&mut bytes);
        self.frames.push((*frame.path, bytes));
        true
    }

    fn flush(&mut self, _: Time) -> io::Result<()> {
        Ok(())
    }

    fn receive(&mut self, now: Time, _: usize, each: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        let given = self.frames.len();
        for (path, bytes) in self.frames.drain(..) {
            each(RxFrame { path, bytes: &bytes, arrived: now, icrc: RxIcrc::Exact });
        }
        Ok(given)
    }

    fn wait(&mut self, _: Duration) -> io::Result<()> {
        Ok(())
    }
}

const EPOCH: Duration = Duration::from_secs(1_700_000_000);

fn path(src: &str, dst: &str) -> Path {
    let address = |text: &str| text.parse().expect("an address");
    Path { src: address(src), dst: address(dst), udp_src: 0xc144, traffic_class: 0, hop_limit: 64 }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).expect("hex")).collect()
}

fn send(port: &mut impl Port, now: Time, path: &Path, frame: &[u8]) -> bool {
    let len = frame.len();
    port.transmit(now, &TxFrame { path, dest_qp: 0x100, len, icrc: true, irn: false }, &mut |to| {
        to.copy_from_slice(frame)
    })
}

fn receive(port: &mut impl Port, now: Time) -> Vec<Vec<u8>> {
    let mut got = Vec::new();
    port.receive(now, 64, &mut |frame| got.push(frame.bytes.to_vec())).expect("receive");
    got
}

/// Nanoseconds since 1970, flags, bytes.
fn packets(file: &[u8]) -> Vec<(u64, u32, Vec<u8>)> {
    let mut reader = PcapNgReader::new(file).expect("a section header");
    let mut found = Vec::new();
    while let Some(block) = reader.next_block() {
        if let Block::EnhancedPacket(packet) = block.expect("a block") {
            let flags = packet.options.iter().find_map(|option| match option {
                EnhancedPacketOption::Flags(flags) => Some(*flags),
                _ => None,
            });
            assert_eq!(packet.original_len as usize, packet.data.len());
            found.push((packet.timestamp.as_nanos() as u64, flags.expect("flags"), packet.data.into_owned()));
        }
    }
    found
}

#[test]
fn another_implementation_reads_the_file_back() {
    let mut file = Vec::new();
    let mut port = Captured::new(Loop::default(), &mut file, "irnic0", EPOCH);
    let frame: Vec<u8> = (0..33).collect();
    assert!(send(&mut port, Time(5), &path("10.0.0.1", "10.0.0.2"), &frame));
    assert_eq!(receive(&mut port, Time(1_234_567_891)), std::slice::from_ref(&frame));
    drop(port);

    let mut reader = PcapNgReader::new(&file[..]).unwrap();
    let application = SectionHeaderOption::UserApplication(concat!("irnic ", env!("CARGO_PKG_VERSION")).into());
    assert_eq!(reader.section().options, [application]);
    let Some(Ok(Block::InterfaceDescription(interface))) = reader.next_block() else { panic!("no interface") };
    assert_eq!(interface.linktype, pcap_file::DataLink::ETHERNET);
    assert_eq!(
        interface.options,
        [InterfaceDescriptionOption::IfName("irnic0".into()), InterfaceDescriptionOption::IfTsResol(9)]
    );

    let found = packets(&file);
    let base = EPOCH.as_nanos() as u64;
    assert_eq!(
        found.iter().map(|(at, flags, _)| (at - base, *flags)).collect::<Vec<_>>(),
        [(5, 2), (1_234_567_891, 1)]
    );
    assert!(found.iter().all(|(_, _, bytes)| bytes.len() == 42 + 33 && bytes[42..] == frame));
}

#[test]
fn ipv4_headers_are_those_that_a_roce_nic_sends() {
    // An acknowledgement by Linux rxe, with its MAC addresses and identification replaced.
    let frame = hex("1100ffff00000012002a08291f00000176c0d330");
    let expected = hex("02000a4d000c 02000a4d000b 0800 4500003000004000 4011260d 0a4d000b0a4d000c c14412b7001c0000
         1100ffff00000012002a08291f00000176c0d330");
    let mut file = Vec::new();
    send(&mut Captured::new(Loop::default(), &mut file, "", EPOCH), Time(0), &path("10.77.0.11", "10.77.0.12"), &frame);
    assert_eq!(packets(&file)[0].2, expected);
}

#[test]
fn ipv6_headers_carry_class_hop_limit_and_lengths() {
    let path = Path { traffic_class: 0x6b, hop_limit: 3, ..path("fd00::1", "fd00::abcd") };
    let mut file = Vec::new();
    send(&mut Captured::new(Loop::default(), &mut file, "", EPOCH), Time(0), &path, &[0x11; 20]);
    let expected = hex("02000000abcd 020000000001 86dd 66b00000 001c 11 03 fd000000000000000000000000000001
         fd00000000000000000000000000abcd c14412b7001c0000 1111111111111111111111111111111111111111");
    assert_eq!(packets(&file)[0].2, expected);
}

#[test]
fn what_the_port_refused_is_not_recorded() {
    let mut file = Vec::new();
    let mut port = Captured::new(Loop { full: true, ..Loop::default() }, &mut file, "", EPOCH);
    assert!(!send(&mut port, Time(0), &path("10.0.0.1", "10.0.0.2"), &[0; 20]));
    drop(port);
    assert_eq!(packets(&file), []);
}

#[test]
fn around_impairments_it_records_what_the_nic_sent_and_within_them_what_crossed_the_wire() {
    let lossy = "tx loss 100%; rx duplicate 100%".parse().unwrap();
    let path = path("10.0.0.1", "10.0.0.2");
    let deliver = |port: &mut Loop| port.frames.push((path, vec![7; 20]));
    let flags = |file: &[u8]| packets(file).iter().map(|(_, flags, _)| *flags).collect::<Vec<_>>();

    let mut file = Vec::new();
    let mut port = Captured::new(Impaired::new(Loop::default(), &lossy, 1, 0), &mut file, "", EPOCH);
    assert!(send(&mut port, Time(0), &path, &[1; 20]));
    deliver(port.inner_mut().inner_mut());
    assert_eq!(receive(&mut port, Time(1)).len(), 2);
    drop(port);
    assert_eq!(flags(&file), [2, 1, 1]);

    let mut file = Vec::new();
    let mut port = Impaired::new(Captured::new(Loop::default(), &mut file, "", EPOCH), &lossy, 1, 0);
    assert!(send(&mut port, Time(0), &path, &[1; 20]));
    deliver(port.inner_mut().inner_mut());
    assert_eq!(receive(&mut port, Time(1)).len(), 2);
    drop(port);
    assert_eq!(flags(&file), [1]);
}

#[test]
fn records_reach_the_file_at_intervals_and_on_request() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let recorded = || packets(&std::fs::read(file.path()).unwrap()).len();
    let mut port = Captured::new(Loop::default(), File::create(file.path()).unwrap(), "", EPOCH);
    let path = path("10.0.0.1", "10.0.0.2");
    port.write_out();
    port.flush(Time(0)).unwrap();
    send(&mut port, Time(1), &path, &[0; 20]);
    port.flush(Time(FLUSH_INTERVAL_NS - 1)).unwrap();
    assert_eq!(recorded(), 0);
    port.flush(Time(FLUSH_INTERVAL_NS)).unwrap();
    assert_eq!(recorded(), 1);
    send(&mut port, Time(2), &path, &[0; 20]);
    port.write_out();
    assert_eq!(recorded(), 2);
    // More than the buffer holds.
    for _ in 0..200 {
        send(&mut port, Time(3), &path, &[0; 4000]);
    }
    assert!(recorded() > 100);
    drop(port);
    assert_eq!(recorded(), 202);
}

/// A disk with limited space left.
struct Disk(usize);

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        if taken == 0 { Err(ErrorKind::StorageFull.into()) } else { Ok(taken) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_ends_the_capture_and_not_the_traffic() {
    let mut port = Captured::new(Loop::default(), Disk(10_000), "", EPOCH);
    let path = path("10.0.0.1", "10.0.0.2");
    for i in 0..1000 {
        assert!(send(&mut port, Time(i), &path, &[0; 2000]));
        assert_eq!(receive(&mut port, Time(i)).len(), 1);
        port.flush(Time(i)).unwrap();
    }
    assert_eq!(port.error().map(|error| error.kind()), Some(ErrorKind::StorageFull));
    assert!(port.error().is_none());
    assert!(port.log.buffer.is_empty());
}

proptest! {
    #[test]
    fn whatever_is_sent_reads_back(
        frames in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..300), 0..u64::MAX >> 1, any::<[u8; 2]>()), 1..20),
        v6: bool,
    ) {
        let (src, dst) = if v6 { ("fe80::1", "10.0.0.2") } else { ("10.0.0.1", "10.0.0.2") };
        let mut file = Vec::new();
        let mut port = Captured::new(Loop::default(), &mut file, "x", Duration::ZERO);
        for (frame, at, [traffic_class, hop_limit]) in &frames {
            send(&mut port, Time(*at), &Path { traffic_class: *traffic_class, hop_limit: *hop_limit, ..path(src, dst) }, frame);
        }
        drop(port);
        let found = packets(&file);
        prop_assert_eq!(found.len(), frames.len());
        for ((frame, at, _), (stamp, _, bytes)) in frames.iter().zip(&found) {
            prop_assert_eq!(stamp, at);
            prop_assert_eq!(&bytes[if v6 { 62 } else { 42 }..], &frame[..]);
            prop_assert!(v6 || ip::ipv4_checksum(&bytes[14..34]) == 0);
        }
    }
}
