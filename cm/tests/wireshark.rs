//! Wireshark dissects every kind of message that a manager sends, without a complaint.

mod common;

use std::fs::File;
use std::io;
use std::process::Command;
use std::time::Duration;

use common::*;
use irnic_cm::{EventKind, PortSpace, PrivateData, QpKind};
use irnic_transports::time::SEC;
use irnic_transports::wire::mad::{GSI_QKEY, GSI_QPN, Lap, MAD_LEN, Mad};
use irnic_transports::wire::{Bth, Deth, Headers, ICRC_LEN, Opcode, icrc_append, ip};
use irnic_transports::{Path, Psn};
use pcap_file::pcap::{PcapPacket, PcapWriter};

/// Returns an Ethernet packet with a MAD in it.
fn packet(path: &Path, mad: &[u8; MAD_LEN]) -> Vec<u8> {
    let mut headers = Headers::new(Bth::new(Opcode::UdSendOnly, GSI_QPN, Psn::new(0)));
    headers.deth = Some(Deth { qkey: GSI_QKEY, src_qp: GSI_QPN });
    let mut frame = vec![0; headers.frame_len(MAD_LEN)];
    let at = headers.emit(&mut frame);
    frame[at..at + MAD_LEN].copy_from_slice(mad);
    assert_eq!(frame.len(), at + MAD_LEN + ICRC_LEN);
    icrc_append(path, 0, &mut frame);
    let mut bytes = ip::emit_ethernet(path, [2; 6], [4; 6]).to_vec();
    let mut around = [0; ip::MAX_HEADERS_LEN];
    let len = ip::emit(path, 0, frame.len(), &mut around);
    bytes.extend(&around[..len]);
    bytes.extend(frame);
    bytes
}

/// Returns all messages of managers, each at least once.
fn everything() -> Net {
    let mut net = Net::pair();
    let listener = net.listen(1, 7);
    // MRA, and a REJ of either side.
    let active = net.connect(0, 1, 7, &param(1, b"again"));
    net.run_for(SEC / 2);
    let passive = net.expect(1, EventKind::ConnectRequest).id;
    net.cms[1].reject(net.now, passive, 28, &data(b"no")).expect("refused");
    net.expect(0, EventKind::Rejected);
    net.cms[0].destroy(net.now, active).expect("destroyed");
    let abandoned = net.connect(0, 1, 7, &param(1, b""));
    net.cms[0].destroy(net.now, abandoned).expect("destroyed");
    net.run_for(SEC);
    net.events(1);
    // LAP and APR; DREQ and DREP.
    let (active, _) = net.connected();
    let rtu = net.sent.iter().rfind(|(_, _, mad)| message(mad).name() == "RTU").expect("an RTU").2;
    let id = |at: usize| u32::from_be_bytes([rtu[at], rtu[at + 1], rtu[at + 2], rtu[at + 3]]);
    let lap = Lap { local_comm_id: id(24), remote_comm_id: id(28), ..Lap::default() };
    let lap = Mad { tid: 1, message: lap.into() }.to_bytes();
    net.sent.push((0, path(0, 1), lap));
    net.inject(path(0, 1), lap);
    net.run_for(SEC);
    net.cms[0].disconnect(net.now, active).expect("under way");
    net.cms[1].destroy(net.now, listener).expect("destroyed");
    net.run_for(SEC);
    // SIDR.
    let listener = net.cms[1].create(PortSpace::Udp, QpKind::Ud).expect("an id");
    net.cms[1].bind(listener, socket(1, 7), false).expect("bound");
    net.cms[1].listen(listener, 0).expect("listening");
    net.events(1);
    let id = net.cms[0].create(PortSpace::Udp, QpKind::Ud).expect("an id");
    net.cms[0].resolve(id, route(0, 1, 7)).expect("resolved");
    net.cms[0].connect(net.now, id, &param(0, b"")).expect("under way");
    let request = net.expect(1, EventKind::ConnectRequest).id;
    net.cms[1].reject(net.now, request, 28, &PrivateData::EMPTY).expect("refused");
    net.run_for(SEC);
    net
}

#[test]
fn wireshark_understands_every_message() {
    let net = everything();
    let file = tempfile::Builder::new().suffix(".pcap").tempfile().expect("a temporary file");
    let mut writer = PcapWriter::new(File::create(file.path()).expect("a file")).expect("a capture");
    for (n, (_, path, mad)) in (0..).zip(&net.sent) {
        let bytes = packet(path, mad);
        let packet = PcapPacket::new(Duration::from_millis(n), bytes.len() as u32, &bytes);
        writer.write_packet(&packet).expect("written");
    }
    drop(writer);
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file.path()).args([
        "-T",
        "fields",
        "-e",
        "infiniband.mad.attributeid",
        "-e",
        "_ws.malformed",
    ]);
    let output = match command.output() {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            irnic_testkit::skipped("wireshark_understands_every_message: no tshark");
            return;
        }
        Err(error) => panic!("tshark: {error}"),
    };
    assert!(output.status.success(), "tshark: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(lines.len(), net.sent.len());
    let mut attributes = Vec::new();
    for (line, (_, _, mad)) in lines.iter().zip(&net.sent) {
        let expected = format!("{:#06x}", message(mad).attribute());
        assert_eq!(line[..], [expected.as_str(), ""], "{:?}", message(mad));
        attributes.push(message(mad).attribute());
    }
    attributes.sort_unstable();
    attributes.dedup();
    assert_eq!(attributes, (0x10..=0x1a).collect::<Vec<u16>>(), "each kind is there");
}
