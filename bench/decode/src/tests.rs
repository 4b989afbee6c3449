use std::borrow::Cow;
use std::fs;
use std::time::Duration;

use irnic_transports::wire::{Aeth, Bth, Importance, Reth, icrc_append, pad_for};
use irnic_transports::{Path as NetPath, Psn};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use pcap_file::{DataLink, Endianness};

use super::*;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/rxe-pcaps")
}

fn fixture(name: &str) -> Vec<u8> {
    fs::read(fixtures().join(name)).expect("a fixture")
}

fn text(bytes: &[u8]) -> (Result<Summary, Error>, String) {
    let mut out = Vec::new();
    let result = decode(Path::new("test.pcap"), bytes, &mut out);
    (result, String::from_utf8(out).expect("text"))
}

fn exit_code(result: &Result<Summary, Error>) -> u8 {
    match result {
        Ok(summary) => u8::from(!summary.is_clean()),
        Err(e) => e.exit_code(),
    }
}

#[test]
fn every_fixture_is_clean() {
    let mut total = Summary::default();
    for entry in fs::read_dir(fixtures()).expect("the fixtures") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|e| e == "pcap") {
            let mut out = Vec::new();
            let summary = run(&path, &mut out).expect("a whole capture");
            assert!(summary.is_clean(), "{}: {summary}", path.display());
            let lines = String::from_utf8(out).expect("text");
            assert_eq!(lines.lines().count() as u64, summary.roce + 1);
            assert_eq!(lines.lines().filter(|l| l.ends_with("ICRC ok")).count() as u64, summary.roce);
            total.roce += summary.roce;
            total.other += summary.other;
        }
    }
    assert_eq!((total.roce, total.other), (2396, 6));
}

#[test]
fn lines_say_what_the_packets_say() {
    for (file, said) in [
        ("nak_rnr.pcap", "RC Acknowledge"),
        ("nak_rnr.pcap", "RNR NAK "),
        ("nak_write_badrkey.pcap", "NAK remote access error msn="),
        ("rc_atomic_faa.pcap", "RC Fetch Add                 qp="),
        ("rc_atomic_faa.pcap", " original=0x"),
        ("ops_rc_all_64B.pcap", " imm=0x"),
        ("ops_rc_all_64B.pcap", " invalidate=0x"),
        ("ops_rc_all_64B.pcap", " compare=0x"),
        ("ud_pingpong.pcap", " qkey=0x11111111"),
        ("rc_read_8B.pcap", " len=8  payload=0  ICRC ok"),
        ("mcast_mckey.pcap", "6 other packets"),
        (
            "cm_rping.pcap",
            "  REQ local_id=0xb1852907 service=0x0000000001061c06 port=7174 qpn=0x000013 starting_psn=10498688  ",
        ),
        (
            "cm_rping.pcap",
            "  REP local_id=0x8ba74b6b remote_id=0xb1852907 qpn=0x000013 starting_psn=13330248  payload=256",
        ),
        ("cm_rping.pcap", "  DREQ local_id=0xb1852907 remote_id=0x8ba74b6b qpn=0x000013  payload=256  ICRC ok"),
        ("cm_reject.pcap", "  REJ local_id=0x00000000 remote_id=0x200be43e reason=8 (invalid service ID)  "),
        ("cm_udaddy_sidr.pcap", "  SIDR_REP request=0x230be43e status=0 qpn=0x000026  "),
    ] {
        let (result, out) = text(&fixture(file));
        assert!(result.is_ok() && out.contains(said), "{file} should say {said:?}:\n{out}");
    }
}

#[test]
fn wrong_icrc_is_reported() {
    let mut bytes = fixture("rc_send_2B.pcap");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    let (result, out) = text(&bytes);
    assert_eq!(result.as_ref().map(|s| (s.bad_icrc, s.unparsed)).ok(), Some((1, 0)));
    assert!(out.contains("ICRC BAD\n"));
    assert_eq!(exit_code(&result), 1);
}

#[test]
fn packets_that_do_not_parse_are_reported() {
    let mut bytes = fixture("rc_send_2B.pcap");
    bytes[24 + 16 + 42] = 0x1f;
    let (result, out) = text(&bytes);
    assert_eq!(result.as_ref().map(|s| (s.bad_icrc, s.unparsed)).ok(), Some((0, 1)));
    assert!(out.contains("packet 1 does not parse: unknown opcode 0x1f"), "{out}");
    assert_eq!(exit_code(&result), 1);
}

#[test]
fn file_cut_short_gives_what_it_has_and_says_where() {
    let bytes = fixture("rc_send_2B.pcap");
    let (whole, lines) = text(&bytes);
    let packets = whole.expect("a whole capture").roce;
    let (result, out) = text(&bytes[..bytes.len() - 1]);
    assert_eq!(exit_code(&result), 1);
    let e = result.expect_err("cut short").to_string();
    assert!(e.contains(&format!("ends at byte {}, inside packet {packets}", bytes.len() - 1)), "{e}");
    let read: Vec<&str> = lines.lines().take(packets as usize - 1).collect();
    assert!(out.starts_with(&read.join("\n")), "{out}");

    for n in 4..400 {
        let (result, _) = text(&bytes[..n]);
        assert!(exit_code(&result) <= 1, "{n}: {result:?}");
    }
}

#[test]
fn other_files_are_refused() {
    for bytes in [&b""[..], b"a", b"not a capture at all", &[0; 4096]] {
        let (result, out) = text(bytes);
        assert_eq!(exit_code(&result), 2);
        assert!(result.expect_err("refused").to_string().starts_with("test.pcap: not a pcap or pcapng file: it "));
        assert_eq!(out, "");
    }
    let result = run(Path::new("/nonexistent/file"), &mut Vec::new());
    assert_eq!(exit_code(&result), 2);
}

#[test]
fn garbage_behind_a_good_header_is_survived() {
    let mut state = 1_u64;
    let mut garbage: Vec<u8> = (0..4096)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect();
    for header in [&fixture("rc_send_2B.pcap")[..24], &pcapng(&[], DataLink::ETHERNET, Endianness::Big)] {
        let (result, _) = text(&[header, &garbage].concat());
        assert_eq!(exit_code(&result), 1, "{result:?}");
    }
    for magic in [[0xd4, 0xc3, 0xb2, 0xa1], [0x0a, 0x0d, 0x0d, 0x0a]] {
        garbage[..4].copy_from_slice(&magic);
        let (result, _) = text(&garbage);
        assert!(result.is_err());
    }
}

#[test]
fn endless_packet_is_refused_before_memory_fills() {
    let mut input = fixture("rc_send_2B.pcap")[..24].to_vec();
    input.extend([0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    let result = decode(Path::new("test.pcap"), input.as_slice().chain(io::repeat(0)), &mut io::sink());
    assert_eq!(exit_code(&result), 1);
    assert!(result.expect_err("refused").to_string().contains("packet 1 at byte 24: it would be longer than"));
}

/// A capture whose packets are a microsecond apart, with nanosecond timestamps.
fn pcapng(packets: &[Vec<u8>], link: DataLink, endianness: Endianness) -> Vec<u8> {
    let mut writer = PcapNgWriter::with_endianness(Vec::new(), endianness).expect("a writer");
    let mut interface = InterfaceDescriptionBlock::new(link, 0);
    interface.options.push(InterfaceDescriptionOption::IfTsResol(9));
    writer.write_pcapng_block(interface).expect("an interface");
    for (i, data) in (1..).zip(packets) {
        let packet = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: Duration::from_micros(i),
            original_len: data.len() as u32,
            data: Cow::Borrowed(data),
            options: Vec::new(),
        };
        writer.write_pcapng_block(packet).expect("a packet");
    }
    writer.into_inner()
}

/// An IP packet around a frame with these headers.
fn ip_packet(mut headers: Headers, payload: &[u8], v6: bool) -> Vec<u8> {
    let address = |last: u16| if v6 { [0xfd00, 0, 0, 0, 0, 0, 0, last].into() } else { [10, 0, 0, last as u8].into() };
    let path = NetPath { src: address(1), dst: address(2), udp_src: 0xc000, traffic_class: 3, hop_limit: 9 };
    headers.bth.pad = pad_for(payload.len());
    let mut frame = vec![0; headers.frame_len(payload.len())];
    let at = headers.emit(&mut frame);
    frame[at..at + payload.len()].copy_from_slice(payload);
    icrc_append(&path, 0, &mut frame);
    let mut packet = vec![0; ip::headers_len(&path)];
    ip::emit(&path, 0, frame.len(), &mut packet);
    packet.extend(frame);
    packet
}

fn irn_packets() -> Vec<Headers> {
    let bth = |opcode, psn| Bth { irn_capable: true, ..Bth::new(opcode, 0x12, Psn::new(psn)) };
    let reth = Some(Reth { va: 0x1000, rkey: 0xabc, len: 5 });
    let recv_wqe_sn = Psn::new(4);
    vec![
        Headers { irn: Some(IrnEth::Send { recv_wqe_sn, psn_offset: 3 }), ..Headers::new(bth(Opcode::RcSendLast, 7)) },
        Headers {
            reth,
            imm: Some(9),
            irn: Some(IrnEth::WriteImm { recv_wqe_sn, psn_offset: 0 }),
            ..Headers::new(bth(Opcode::RcWriteOnlyImm, 8))
        },
        Headers {
            aeth: Some(Aeth { syndrome: 0x60, msn: Psn::new(2) }),
            irn: Some(IrnEth::Ack { selective: Psn::new(11), run: 0 }),
            ..Headers::new(bth(Opcode::RcReadAcknowledge, 10))
        },
    ]
}

#[test]
fn irn_headers_read_back_from_pcapng_of_every_link_type() {
    let sll = |ethertype: [u8; 2]| [&[0; 14][..], &ethertype].concat();
    let sll2 = |ethertype: [u8; 2]| [&ethertype[..], &[0; 18]].concat();
    let ethernet = |ethertype: [u8; 2]| [&[2; 12][..], &ethertype].concat();
    for (v6, ethertype) in [(false, [8, 0]), (true, [0x86, 0xdd])] {
        for (link, header) in [
            (DataLink::ETHERNET, ethernet(ethertype)),
            (DataLink::RAW, vec![]),
            (DataLink::LINUX_SLL, sll(ethertype)),
            (DataLink::LINUX_SLL2, sll2(ethertype)),
        ] {
            for endianness in [Endianness::Big, Endianness::Little] {
                let packets: Vec<Vec<u8>> = irn_packets()
                    .into_iter()
                    .map(|headers| {
                        let payload: &[u8] = if headers.bth.opcode.has_payload() { b"hello" } else { b"" };
                        [&header[..], &ip_packet(headers, payload, v6)].concat()
                    })
                    .collect();
                let (result, out) = text(&pcapng(&packets, link, endianness));
                let (a, b) = if v6 { ("fd00::1", "fd00::2") } else { ("10.0.0.1", "10.0.0.2") };
                let expected = format!(
                    "\
0.000000000 {a} > {b}  RC Send Last                 qp=0x000012 psn=7 C X CE  recv_wqe_sn=4 psn_offset=3  payload=5  ICRC ok
0.000001000 {a} > {b}  RC RDMA Write Only Immediate qp=0x000012 psn=8 C X CE  va=0x0000000000001000 rkey=0x00000abc len=5  imm=0x00000009  recv_wqe_sn=4 psn_offset=0  payload=5  ICRC ok
0.000002000 {a} > {b}  RC Read Acknowledge          qp=0x000012 psn=10 C X CE  NAK PSN sequence error msn=2  selective=11  payload=0  ICRC ok
3 RoCEv2 packets, 0 with a wrong ICRC; 0 do not parse; 0 other packets
"
                );
                assert_eq!(out, expected);
                assert!(result.is_ok_and(|summary| summary.is_clean()));
            }
        }
    }
}

#[test]
fn packets_cut_by_the_capture_are_reported_as_such() {
    let bytes = fixture("rc_send_3001B.pcap");
    // Header, then the first record truncated to 64 bytes, as `tcpdump -s 64` writes it.
    let mut cut = bytes[..24 + 16 + 64].to_vec();
    let original = u32::from_le_bytes(bytes[36..40].try_into().expect("four bytes"));
    cut[32..36].copy_from_slice(&64_u32.to_le_bytes());
    let (result, out) = text(&cut);
    assert_eq!(exit_code(&result), 1);
    assert!(out.contains(&format!("(only 64 of {original} bytes were captured)")), "{out}");
}

#[test]
fn unknown_link_layers_are_counted() {
    let (result, out) = text(&pcapng(&[vec![0; 60]], DataLink::IEEE802_11, Endianness::Big));
    assert_eq!(result.ok(), Some(Summary { other: 1, unknown_link: 1, ..Summary::default() }));
    assert!(out.contains("1 of them on a link layer unknown to irnic"));
}

#[test]
fn queues_that_requests_name_and_what_a_flush_is_to_reach_are_told() {
    let bth = |opcode| Bth::new(opcode, 0x12, Psn::new(7));
    let reth = Some(Reth { va: 0x1000, rkey: 0xabc, len: 64 });
    for (headers, expected) in [
        (Headers { xrc: Some(0x4711), ..Headers::new(bth(Opcode::XrcSendOnly)) }, "srqn=0x004711"),
        (
            Headers { feth: Some(Feth { placement: 1, selectivity: 0 }), reth, ..Headers::new(bth(Opcode::RcFlush)) },
            "placement=0x1 selectivity=0  va=0x0000000000001000 rkey=0x00000abc len=64",
        ),
        (
            Headers {
                irn: Some(IrnEth::Clock),
                ..Headers::new(Bth { importance: Importance::Clock, ..bth(Opcode::RcClock) })
            },
            "RC Clock                     qp=0x000012 psn=7 X clock",
        ),
        (
            Headers {
                irn: Some(IrnEth::Write),
                reth,
                ..Headers::new(Bth { importance: Importance::Important, ..bth(Opcode::RcWriteOnly) })
            },
            "psn=7 X important  va=0x0000000000001000 rkey=0x00000abc len=64",
        ),
    ] {
        let [src, dst] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(Into::into);
        let path = irnic_transports::Path { src, dst, udp_src: 0xc000, traffic_class: 0, hop_limit: 64 };
        let text = Fields { headers: &headers, path: &path }.to_string();
        assert!(text.ends_with(expected), "{text}");
    }
}
