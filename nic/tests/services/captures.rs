//! Captured traffic of rxe on unreliable services is received, and resent packet for packet.

use std::fs::File;
use std::path::Path;

use irnic_nic::NicConfig;
use irnic_transports::Psn;
use irnic_transports::qp::{Address, QpAttr, SendOp, Service, WcOpcode, WcStatus};
use irnic_transports::wire::ip::parse_ethernet;
use irnic_transports::wire::{Bth, Headers, Mtu, Opcode, opcode, parse};
use pcap_file::pcap::PcapReader;

use crate::common::{Connection, Network};
use crate::kit::Duo;
use crate::setup::{to, wcs};

/// Returns packets of `service` in a capture, by destination queue pair.
fn flows(name: &str, service: opcode::Service) -> Vec<Vec<(Headers, Vec<u8>)>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/rxe-pcaps").join(name);
    let mut reader = PcapReader::new(File::open(path).expect("a readable file")).expect("a capture");
    let mut flows: Vec<Vec<(Headers, Vec<u8>)>> = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet.expect("a whole packet").data;
        let Ok(datagram) = parse_ethernet(&packet) else { continue };
        let Ok((headers, payload)) = parse(datagram.frame) else { continue };
        if headers.bth.opcode.service() != Some(service) || headers.bth.dest_qp < 2 {
            continue;
        }
        let one = (headers, payload.to_vec());
        match flows.iter_mut().find(|f| f[0].0.bth.dest_qp == headers.bth.dest_qp) {
            Some(flow) => flow.push(one),
            None => flows.push(vec![one]),
        }
    }
    assert!(!flows.is_empty(), "{name}");
    flows
}

/// Returns the parts that must be equal in both directions. rxe leaves the migration bit out, and requests
/// acknowledgements that do not exist.
fn essence(headers: &Headers, payload: &[u8]) -> (Headers, Vec<u8>) {
    let mut bth = Bth { dest_qp: 0, ack_req: false, migreq: false, ..headers.bth };
    if headers.deth.is_some() {
        // Several senders share one receiver, which ignores it.
        bth.psn = Psn::default();
    }
    let reth = headers.reth.map(|r| irnic_transports::wire::Reth { va: 0, rkey: 0, ..r });
    let deth = headers.deth.map(|d| irnic_transports::wire::Deth { src_qp: 0, ..d });
    (Headers { bth, reth, deth, ..*headers }, payload.to_vec())
}

fn operation(first: Opcode, last: &Headers) -> SendOp {
    match (first.is_write(), last.imm) {
        (false, None) => SendOp::Send,
        (false, Some(imm)) => SendOp::SendImm(imm),
        (true, None) => SendOp::Write,
        (true, Some(imm)) => SendOp::WriteImm(imm),
    }
}

/// Receives a flow as end 1, message by message, and has end 0 send the same.
fn replay(service: Service, flow: &[(Headers, Vec<u8>)]) -> usize {
    let mtu = flow
        .iter()
        .find(|(h, _)| h.bth.opcode.is_first())
        .map_or(Mtu::B4096, |(_, p)| Mtu::from_bytes(p.len()).expect("a path MTU"));
    let first_psn = flow[0].0.bth.psn;
    let c = Connection { service, mtu, psn: [first_psn; 2], ..Connection::default() };
    let net = Network::new(2, "delay 5us", 1, &NicConfig::default());
    let mut d = Duo::on(net, c, false);
    let qkey = flow[0].0.deth.map(|deth| deth.qkey);
    if let Some(qkey) = qkey {
        for end in [0, 1] {
            d.modify(end, QpAttr { qkey: Some(qkey), ..QpAttr::default() });
        }
    }
    let area = if service == Service::Ud { 40 } else { 0 };
    let mut messages = 0;
    let mut at = 0;
    while at < flow.len() {
        let n = 1 + flow[at..].iter().position(|(h, _)| h.bth.opcode.ends_message()).expect("a whole message");
        let message = &flow[at..at + n];
        at += n;
        messages += 1;
        d.recv(0, 8192);
        let bytes: Vec<u8> = message.iter().flat_map(|(_, payload)| payload.iter().copied()).collect();
        for (headers, payload) in message {
            let mut headers = *headers;
            headers.bth.dest_qp = d.ends[1].qpn;
            if let Some(reth) = &mut headers.reth {
                (reth.va, reth.rkey) = (d.mem[1].addr, d.mem[1].rkey);
            }
            d.inject(1, headers, payload);
        }
        let op = operation(message[0].0.bth.opcode, &message[n - 1].0);
        let got = wcs(&mut d, 1);
        if op == SendOp::Write {
            assert_eq!(got, []);
        } else {
            let write = matches!(op, SendOp::WriteImm(_));
            assert_eq!((got.len(), got[0].status, got[0].imm), (1, WcStatus::Success, message[n - 1].0.imm));
            assert_eq!(got[0].opcode, if write { WcOpcode::RecvRdmaWithImm } else { WcOpcode::Recv });
            assert_eq!(got[0].byte_len as usize, bytes.len() + area);
        }
        let target = if matches!(op, SendOp::Write | SendOp::WriteImm(_)) { d.mem[1] } else { d.inbox[1] };
        let offset = if target == d.inbox[1] { area } else { 0 };
        assert_eq!(d.bytes(&target)[offset..offset + bytes.len()], bytes);

        // The same message once more, in the other direction.
        let memory = d.mem[0];
        d.net.nics[0].bytes_mut(&memory).expect("own memory")[..bytes.len()].copy_from_slice(&bytes);
        let there = Address { qkey: qkey.unwrap_or(0), ..to(d.ends[0], d.ends[1]) };
        let solicited = message[n - 1].0.bth.solicited;
        d.post_with(1, op, bytes.len() as u32, |wr| (wr.to, wr.solicited) = (Some(there), solicited));
        let (now, mut sent) = (d.net.now, Vec::new());
        d.net.nics[0].poll_transmit(now, 100, |packet| {
            let mut frame = vec![0; packet.headers.frame_len(packet.payload.len())];
            irnic_nic::frame::emit_frame(packet, Some(packet.path), &mut frame);
            let (headers, payload) = parse(&frame).expect("a packet");
            sent.push(essence(&headers, payload));
            true
        });
        let expected: Vec<_> = message.iter().map(|(h, p)| essence(h, p)).collect();
        for (sent, expected) in sent.iter().zip(&expected) {
            assert_eq!(sent.0, expected.0);
        }
        assert!(sent == expected, "{} packets, not the {} of the capture", sent.len(), expected.len());
    }
    messages
}

#[test]
fn unreliable_connections_of_rxe_are_understood_and_spoken() {
    let mut messages = 0;
    for name in ["ops_uc_all.pcap", "uc_send_3001B.pcap"] {
        for flow in flows(name, opcode::Service::Uc) {
            messages += replay(Service::Uc, &flow);
        }
    }
    assert!(messages > 10, "{messages}");
}

#[test]
fn datagrams_of_rxe_are_understood_and_spoken() {
    let mut messages = 0;
    for name in ["ops_ud_all.pcap", "ud_pingpong.pcap", "ud_send_2B.pcap", "mcast_mckey.pcap"] {
        for flow in flows(name, opcode::Service::Ud) {
            messages += replay(Service::Ud, &flow);
        }
    }
    assert!(messages > 10, "{messages}");
}
