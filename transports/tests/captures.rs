//! Every packet of the rxe captures parses, is emitted as the same bytes, and has the ICRC that we compute.

use std::fs::{self, File};
use std::path::Path;

use irnic_transports::wire::ip::{IpError, parse_ethernet};
use irnic_transports::wire::{Headers, ICRC_LEN, Opcode, icrc_append, icrc_check, icrc_of_headers, parse};
use pcap_file::pcap::PcapReader;

/// Calls `each` with the file's name and each packet in it.
fn for_each_packet(mut each: impl FnMut(&str, &[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/rxe-pcaps");
    for entry in fs::read_dir(folder).expect("the fixtures") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|e| e == "pcap") {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            let mut reader = PcapReader::new(File::open(&path).expect("a readable file")).expect("a capture");
            while let Some(packet) = reader.next_packet() {
                each(&name, &packet.expect("a whole packet").data);
            }
        }
    }
}

#[test]
fn every_packet_parses_and_every_icrc_is_right() {
    let (mut roce, mut foreign) = (0, 0);
    let mut seen = [false; 256];
    for_each_packet(|name, bytes| {
        let datagram = match parse_ethernet(bytes) {
            Ok(datagram) => datagram,
            Err(IpError::Protocol(2)) => {
                foreign += 1; // IGMP in addition to the multicast
                return;
            }
            Err(e) => panic!("{name}: {e}"),
        };
        roce += 1;
        let frame = datagram.frame;
        let (headers, payload) = parse(frame).unwrap_or_else(|e| panic!("{name}: {e}"));
        seen[headers.bth.opcode as usize] = true;

        let (body, tail) = frame.split_last_chunk::<ICRC_LEN>().expect("an ICRC");
        assert_eq!(icrc_of_headers(datagram.headers, body), Some(u32::from_le_bytes(*tail)), "{name}");
        assert!(icrc_check(&datagram.path, datagram.ip_id, frame), "{name}");

        let mut again = vec![0; headers.frame_len(payload.len())];
        let len = headers.emit(&mut again);
        again[len..len + payload.len()].copy_from_slice(payload);
        icrc_append(&datagram.path, datagram.ip_id, &mut again);
        assert_eq!(again, frame, "{name}: {headers:?}");
    });
    assert_eq!((roce, foreign), (2396, 6));
    // rxe has no XRC.
    let unseen: Vec<Opcode> = Opcode::ALL.into_iter().filter(|op| !op.is_xrc() && !seen[*op as usize]).collect();
    assert_eq!(
        unseen,
        [
            Opcode::RcSendLastInvalidate,
            Opcode::RcReadAcknowledge,
            Opcode::RcFeedback,
            Opcode::RcReadFeedback,
            Opcode::RcClock,
            Opcode::RcFlush,
            Opcode::RcAtomicWrite,
            Opcode::RcReadClock,
            Opcode::UcSendOnly,
            Opcode::UcSendOnlyImm,
            Opcode::UcWriteOnly,
            Opcode::UcWriteOnlyImm,
            Opcode::Cnp,
        ]
    );
}

/// A parser must survive damaged real packets as well as random bytes, which rarely get past the opcode.
#[test]
fn damaged_packets_are_parsed_or_refused() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for_each_packet(|_, bytes| {
        let mut bytes = bytes.to_vec();
        for _ in 0..8 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (state >> 33) as usize % bytes.len().min(90);
            bytes[at] ^= 1 << (state >> 60 & 7);
            let cut = bytes.len() - (state >> 50) as usize % bytes.len().min(9);
            for slice in [&bytes[..], &bytes[..cut]] {
                if let Ok(datagram) = parse_ethernet(slice)
                    && let Ok((headers, payload)) = parse(datagram.frame)
                {
                    assert_eq!(headers.frame_len(payload.len()), datagram.frame.len());
                    assert!(headers.len() <= Headers::MAX_LEN);
                }
            }
        }
    });
}
