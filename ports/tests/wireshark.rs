//! Wireshark, the reader that others will use, dissects what our capture writer records: by itself what IBA knows, with
//! `bench/wireshark/irnic.lua` the rest.

mod support;

use std::io::{self, Write};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use irnic_nic::frame::emit_frame;
use irnic_ports::capture::Captured;
use irnic_ports::{Port, TxFrame};
use irnic_transports::wire::{
    Aeth, AtomicEth, Bth, FeedbackKind, Feth, Headers, Importance, IrnEth, Layout, NdpWord, Opcode, Reth, pad_for,
};
use irnic_transports::{Mark, Path, Payload, Psn, Sideband, Time, TxPacket};
use support::Sink;

/// The dissector of what irnic adds.
fn script() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../bench/wireshark/irnic.lua"))
}

/// What `tshark` prints for `fields` of each packet of a capture, or `None` where there is no tshark.
fn dissect(capture: &[u8], fields: &[&str], with_script: bool) -> Option<Vec<Vec<String>>> {
    let mut file = tempfile::Builder::new().suffix(".pcapng").tempfile().expect("a temporary file");
    file.write_all(capture).expect("room for a capture");
    let mut command = Command::new("tshark");
    if with_script {
        command.arg("-X").arg(format!("lua_script:{}", script().display()));
    }
    command.arg("-r").arg(file.path()).args(["-T", "fields", "-E", "occurrence=f"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => panic!("tshark: {error}"),
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("Lua"), "tshark: {said}");
    let text = String::from_utf8(output.stdout).expect("text");
    Some(text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect())
}

/// A packet of each RC opcode of IBA, or of each with the IRN extension, with distinct PSNs.
fn packets(irn: bool) -> Vec<(Headers, Vec<u8>)> {
    packets_of(Opcode::ALL.into_iter().filter(|op| op.is_rc() && (irn || !op.needs_irn())), irn)
}

/// A packet of each of these opcodes, with distinct PSNs.
fn packets_of(opcodes: impl Iterator<Item = Opcode>, irn: bool) -> Vec<(Headers, Vec<u8>)> {
    opcodes
        .enumerate()
        .map(|(n, opcode)| {
            let psn = Psn::new(0xff_fff0).plus(n as u32);
            let payload = if opcode.has_payload() { vec![n as u8; 60 + n] } else { Vec::new() };
            let sn = Psn::new(5);
            let extensions = [
                IrnEth::Send { recv_wqe_sn: sn, psn_offset: 1 },
                IrnEth::Write,
                IrnEth::WriteImm { recv_wqe_sn: sn, psn_offset: 1 },
                IrnEth::Read { read_wqe_sn: sn },
                IrnEth::Ack { selective: sn, run: 200 },
                IrnEth::Response,
                IrnEth::Clock,
                IrnEth::Feedback { kind: FeedbackKind::PULL, subject: sn, path: 3, pull: sn },
            ];
            let mut headers = Headers::new(Bth { pad: pad_for(payload.len()), ..Bth::new(opcode, 0x1234, psn) });
            headers.irn = extensions.into_iter().find(|e| irn && e.fits(opcode));
            let reth = opcode.has_reth() || irn && opcode.is_write();
            headers.reth = reth.then_some(Reth { va: 0x7f00_1234_5678, rkey: 0xabcd_ef01, len: 4096 });
            headers.feth = opcode
                .layout(irn)
                .has(Layout::FETH)
                .then_some(Feth { placement: Feth::GLOBAL, selectivity: Feth::RANGE });
            headers.xrc = opcode.layout(irn).has(Layout::XRCETH).then_some(0x4321);
            headers.aeth = opcode.layout(irn).has(Layout::AETH).then_some(Aeth { syndrome: 0x1f, msn: Psn::new(77) });
            headers.atomic = opcode.is_atomic().then_some(AtomicEth { va: 8, rkey: 9, swap_add: 1, compare: 2 });
            headers.atomic_ack = (opcode.in_rc() == Opcode::RcAtomicAcknowledge).then_some(3);
            headers.imm = opcode.has_imm().then_some(0x0102_0304);
            headers.ieth = opcode.has_ieth().then_some(0x0506_0708);
            assert!(headers.is_consistent(), "{headers:?}");
            (headers, payload)
        })
        .collect()
}

fn capture(packets: &[(Headers, Vec<u8>)], path: &Path) -> Vec<u8> {
    let mut file = Vec::new();
    let mut port = Captured::new(Sink, &mut file, "irnic0", Duration::from_secs(1_700_000_000));
    for (n, (headers, payload)) in packets.iter().enumerate() {
        let packet =
            TxPacket { headers, path, payload: Payload::Bytes(payload), timestamp: 0, sideband: Sideband::NONE };
        let len = headers.frame_len(payload.len());
        assert!(port.transmit(
            Time(n as u64),
            &TxFrame { path, dest_qp: 0x100, len, icrc: true, irn: false },
            &mut |out| { emit_frame(&packet, Some(path), out) }
        ));
    }
    drop(port);
    file
}

fn path(addresses: [&str; 2]) -> Path {
    let [src, dst] = addresses.map(|a| a.parse::<IpAddr>().expect("an address"));
    Path { src, dst, udp_src: 0xc001, traffic_class: 0x0a, hop_limit: 64 }
}

const FIELDS: [&str; 8] = [
    "frame.protocols",
    "infiniband.bth.opcode",
    "infiniband.bth.psn",
    "infiniband.bth.destqp",
    "infiniband.bth.padcnt",
    "infiniband.reth.r_key",
    "infiniband.aeth.msn",
    "_ws.malformed",
];

/// A number as Wireshark prints it, decimal or 0x; `None` if there is no such field.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

#[test]
fn wireshark_reads_plain_roce_and_knows_irn_packets_by_their_bth() {
    for addresses in [["10.0.0.1", "10.0.0.2"], ["fd00::1", "fd00::2"]] {
        for irn in [false, true] {
            let packets = packets(irn);
            let Some(rows) = dissect(&capture(&packets, &path(addresses)), &FIELDS, false) else {
                irnic_testkit::skipped("Wireshark's reading of our captures: there is no tshark");
                return;
            };
            assert_eq!(rows.len(), packets.len());
            for (row, (headers, _)) in rows.iter().zip(&packets) {
                let what = format!("{} (IRN: {irn}): {row:?}", headers.bth.opcode);
                let [protocols, opcode, psn, qp, pad, rkey, msn, malformed] = &row[..] else { panic!("{what}") };
                assert!(protocols.contains("udp:infiniband") || protocols.contains("udp:rroce"), "{what}");
                assert_eq!(number(opcode), Some(headers.bth.opcode as u64), "{what}");
                assert_eq!(number(psn), Some(headers.bth.psn.get().into()), "{what}");
                assert_eq!(number(qp), Some(headers.bth.dest_qp.into()), "{what}");
                assert_eq!(number(pad), Some(headers.bth.pad.into()), "{what}");
                // Wireshark does not know the extension's opcode, nor its headers where IBA has none; Wireshark 4.0
                // does not know the opcodes of IBA 1.5 either.
                if !irn && !matches!(headers.bth.opcode, Opcode::RcFlush | Opcode::RcAtomicWrite) {
                    // An AtomicETH's key goes by the RETH's name there.
                    let key = headers.reth.map(|r| r.rkey).or(headers.atomic.map(|a| a.rkey));
                    assert_eq!(number(rkey), key.map(u64::from), "{what}");
                    assert_eq!(number(msn), headers.aeth.map(|a| a.msn.get().into()), "{what}");
                    assert_eq!(malformed, "", "{what}");
                }
            }
        }
    }
}

/// Fields of irnic's dissector, and what they have to be; `None`: the packet has no such field.
fn fields_of(headers: &Headers, payload: usize) -> [(&'static str, Option<u64>); 28] {
    let Headers { bth, reth, atomic, aeth, feth, irn, .. } = headers;
    let (mut sn, mut offset, mut read, mut ack, mut feedback) = (None, None, None, None, None);
    match *irn {
        Some(IrnEth::Send { recv_wqe_sn, psn_offset } | IrnEth::WriteImm { recv_wqe_sn, psn_offset }) => {
            (sn, offset) = (Some(recv_wqe_sn.get()), Some(psn_offset));
        }
        Some(IrnEth::Read { read_wqe_sn }) => read = Some(read_wqe_sn.get()),
        Some(IrnEth::Ack { selective, run }) => ack = Some((selective.get(), run)),
        Some(IrnEth::Feedback { kind, subject, path, pull }) => feedback = Some((kind, subject, path, pull)),
        Some(IrnEth::Write | IrnEth::Response | IrnEth::Clock) | None => {}
    }
    let flag = |kind| feedback.map(|(has, ..)| u64::from(has.has(kind)));
    [
        ("irnic.capable", Some(bth.irn_capable.into())),
        ("irnic.irn", Some(1)),
        ("irnic.ndp", Some(headers.ndp.is_some().into())),
        ("irnic.tlt", Some(bth.importance as u64)),
        ("irnic.rc3", Some(bth.low.into())),
        ("irnic.qp", Some(bth.dest_qp.into())),
        ("irnic.psn", Some(bth.psn.get().into())),
        ("irnic.srqn", headers.xrc.map(u64::from)),
        ("irnic.syndrome", aeth.map(|aeth| aeth.syndrome.into())),
        ("irnic.msn", aeth.map(|aeth| aeth.msn.get().into())),
        ("irnic.va", reth.map(|reth| reth.va).or(atomic.map(|atomic| atomic.va))),
        ("irnic.rkey", reth.map(|reth| reth.rkey).or(atomic.map(|atomic| atomic.rkey)).map(u64::from)),
        ("irnic.length", reth.map(|reth| reth.len.into())),
        ("irnic.swap_add", atomic.map(|atomic| atomic.swap_add)),
        ("irnic.compare", atomic.map(|atomic| atomic.compare)),
        ("irnic.original", headers.atomic_ack),
        ("irnic.immdt", headers.imm.map(u64::from)),
        ("irnic.invalidate", headers.ieth.map(u64::from)),
        ("irnic.flush.placement", feth.map(|feth| feth.placement.into())),
        ("irnic.recv_wqe_sn", sn.map(u64::from)),
        ("irnic.psn_offset", offset.map(u64::from)),
        ("irnic.read_wqe_sn", read.map(u64::from)),
        ("irnic.run", ack.map(|(_, run)| run.into())),
        ("irnic.selective", ack.map(|(selective, _)| selective.into())),
        ("irnic.feedback.pull", flag(FeedbackKind::PULL)),
        ("irnic.pulls", feedback.map(|(.., pull)| pull.get().into())),
        ("irnic.source_qp", headers.ndp.map(|word| word.source().into())),
        ("irnic.payload", Some(payload as u64)),
    ]
}

#[test]
fn the_dissector_names_every_field_that_irnic_adds() {
    let mut packets = packets_of(Opcode::ALL.into_iter().filter(|op| op.is_reliable()), true);
    for (headers, payload) in packets.clone() {
        let pulled = Headers { ndp: NdpWord::new(0x765, true), ..headers };
        if headers.bth.opcode.may_be_pulled() && pulled.is_consistent() {
            packets.push((pulled, payload.clone()));
        }
        let bth = Bth { importance: Importance::Clock, low: true, irn_capable: true, ..headers.bth };
        packets.push((Headers { bth, ..headers }, payload));
    }
    assert!(packets.iter().filter(|(headers, _)| headers.ndp.is_some()).count() > 20);
    let capture = capture(&packets, &path(["10.0.0.1", "10.0.0.2"]));
    let names = fields_of(&packets[0].0, 0).map(|(name, _)| name);
    let Some(rows) = dissect(&capture, &names, true) else {
        return irnic_testkit::skipped("the dissector of what irnic adds: there is no tshark");
    };
    assert_eq!(rows.len(), packets.len());
    for (row, (headers, payload)) in rows.iter().zip(&packets) {
        for (text, (name, expected)) in row.iter().zip(fields_of(headers, payload.len())) {
            // Wireshark 4.0 prints 1 and 0, 4.2 and later True and False.
            let found = match text.as_str() {
                "True" => Some(1),
                "False" => Some(0),
                text => number(text),
            };
            assert_eq!(found, expected, "{name} of {headers:?}");
        }
    }
}

#[test]
fn the_dissector_takes_whatever_bytes_there_are() {
    // Of a packet of each opcode each length, and headers that say what they do not hold.
    let mut frames = Vec::new();
    for (headers, _) in packets_of(Opcode::ALL.into_iter().filter(|op| op.is_reliable()), true) {
        let mut whole = vec![0; headers.len()];
        headers.emit(&mut whole);
        frames.extend((0..whole.len()).map(|len| whole[..len].to_vec()));
        for at in 0..12 {
            let mut changed = whole.clone();
            changed[at] ^= 0xff;
            frames.push(changed);
        }
    }
    let mut file = Vec::new();
    let mut port = Captured::new(Sink, &mut file, "irnic0", Duration::ZERO);
    for (n, frame) in frames.iter().enumerate() {
        let mark = [Mark::Whole, Mark::Trimmed, Mark::Returned][n % 3];
        let path = path(["10.0.0.1", "10.0.0.2"]).with_mark(mark);
        let sent = TxFrame { path: &path, dest_qp: 0x100, len: frame.len(), icrc: true, irn: false };
        port.transmit(Time(n as u64), &sent, &mut |out| out.copy_from_slice(frame));
    }
    drop(port);
    let Some(rows) = dissect(&file, &["_ws.lua.error", "irnic.opcode"], true) else {
        return irnic_testkit::skipped("the dissector of what irnic adds: there is no tshark");
    };
    assert_eq!(rows.len(), frames.len());
    assert!(rows.iter().all(|row| row[0].is_empty()), "{rows:?}");
    let known = rows.iter().filter(|row| row.get(1).is_some_and(|opcode| !opcode.is_empty())).count();
    assert!(known > frames.len() / 2, "{known} of {}", frames.len());
}
