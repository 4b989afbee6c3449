//! Wireshark, the reader that others will use, dissects what our capture writer records.

use std::io::{self, Write};
use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use irnic_nic::frame::emit_frame;
use irnic_ports::capture::Captured;
use irnic_ports::{Port, RxFrame, TxFrame};
use irnic_transports::wire::{
    Aeth, AtomicEth, Bth, FeedbackKind, Feth, Headers, IrnEth, Layout, Opcode, Reth, pad_for,
};
use irnic_transports::{Path, Payload, Psn, Sideband, Time, TxPacket};

/// What `tshark` prints for `fields` of each packet of a capture, or `None` where there is no tshark.
fn dissect(capture: &[u8], fields: &[&str]) -> Option<Vec<Vec<String>>> {
    let mut file = tempfile::Builder::new().suffix(".pcapng").tempfile().expect("a temporary file");
    file.write_all(capture).expect("room for a capture");
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file.path()).args(["-T", "fields", "-E", "occurrence=f"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => panic!("tshark: {error}"),
    };
    assert!(output.status.success(), "tshark: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    Some(text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect())
}

/// Says that a test was not run, past the test harness's capture of output: nobody should take it for a success.
fn skipped(why: &str) {
    writeln!(io::stderr(), "SKIPPED {why}").expect("standard error");
}

/// A port that takes everything.
struct Sink;

impl Port for Sink {
    fn max_frame(&self) -> usize {
        4200
    }

    fn transmit(&mut self, _: Time, frame: &TxFrame<'_>, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        fill(&mut vec![0; frame.len]);
        true
    }

    fn flush(&mut self, _: Time) -> io::Result<()> {
        Ok(())
    }

    fn receive(&mut self, _: Time, _: usize, _: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        Ok(0)
    }

    fn wait(&mut self, _: Duration) -> io::Result<()> {
        Ok(())
    }
}

/// A packet of each RC opcode of IBA, or of each with the IRN extension, with distinct PSNs.
fn packets(irn: bool) -> Vec<(Headers, Vec<u8>)> {
    let rc = Opcode::ALL.into_iter().filter(|op| op.is_rc() && (irn || !op.needs_irn()));
    rc.enumerate()
        .map(|(n, opcode)| {
            let psn = Psn::new(0xff_fff0).plus(n as u32);
            let payload = if opcode.has_payload() { vec![n as u8; 60 + n] } else { Vec::new() };
            let sn = Psn::new(5);
            let extensions = [
                IrnEth::Send { recv_wqe_sn: sn, psn_offset: 1 },
                IrnEth::Write,
                IrnEth::WriteImm { recv_wqe_sn: sn, psn_offset: 1 },
                IrnEth::Read { read_wqe_sn: sn },
                IrnEth::Ack { selective: sn, run: 0 },
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
            headers.aeth = opcode.layout(irn).has(Layout::AETH).then_some(Aeth { syndrome: 0x1f, msn: Psn::new(77) });
            headers.atomic = opcode.is_atomic().then_some(AtomicEth { va: 8, rkey: 9, swap_add: 1, compare: 2 });
            headers.atomic_ack = (opcode == Opcode::RcAtomicAcknowledge).then_some(3);
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
            let Some(rows) = dissect(&capture(&packets, &path(addresses)), &FIELDS) else {
                skipped("Wireshark's reading of our captures: there is no tshark");
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
                // Wireshark does not know the extension's opcode, nor its headers where IBA has none; Wireshark 4.0 does
                // not know the opcodes of IBA 1.5 either.
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
