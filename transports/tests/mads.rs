//! Messages of the communication manager: those of the rxe captures, and generated ones.

use std::fs::{self, File};
use std::path::Path;

use irnic_transports::wire::ip::parse_ethernet;
use irnic_transports::wire::mad::{
    Destination, GSI_QKEY, GSI_QPN, MAD_LEN, Mad, MadError, Message, RejReason, Rep, TransportType, destination,
    rejected,
};
use irnic_transports::wire::{Mtu, parse};
use pcap_file::pcap::PcapReader;
use proptest::prelude::*;

/// Returns the MADs of a capture, or of all.
fn mads(only: &str) -> Vec<(String, Vec<u8>)> {
    let mut mads = Vec::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/rxe-pcaps");
    for entry in fs::read_dir(folder).expect("the fixtures") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if !name.ends_with(".pcap") || !name.contains(only) {
            continue;
        }
        let mut reader = PcapReader::new(File::open(&path).expect("a readable file")).expect("a capture");
        while let Some(packet) = reader.next_packet() {
            let packet = packet.expect("a whole packet");
            let Ok(datagram) = parse_ethernet(&packet.data) else { continue };
            let (headers, payload) = parse(datagram.frame).expect("a packet");
            if headers.bth.dest_qp == GSI_QPN {
                assert_eq!(headers.deth.expect("a datagram").qkey, GSI_QKEY);
                mads.push((name.clone(), payload.to_vec()));
            }
        }
    }
    mads
}

fn parsed(only: &str) -> Vec<Mad> {
    mads(only).iter().map(|(name, bytes)| Mad::parse(bytes).unwrap_or_else(|e| panic!("{name}: {e}"))).collect()
}

#[test]
fn every_captured_message_is_emitted_to_the_same_bytes() {
    let mut kinds = std::collections::BTreeMap::new();
    for (name, bytes) in mads("") {
        let mad = Mad::parse(&bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(mad.to_bytes()[..], bytes[..], "{name}: {mad:?}");
        *kinds.entry(mad.message.name()).or_insert(0) += 1;
    }
    assert_eq!(kinds.values().sum::<u32>(), 24, "{kinds:?}");
    for kind in ["REQ", "REP", "RTU", "REJ", "DREQ", "DREP", "SIDR_REQ", "SIDR_REP"] {
        assert!(kinds.contains_key(kind), "{kind} in {kinds:?}");
    }
}

#[test]
fn a_real_request_says_what_rping_asked_for() {
    let [req, rep, rtu, dreq, drep] = <[Mad; 5]>::try_from(parsed("cm_rping")).expect("five messages");
    let Message::Req(req) = req.message else { panic!("{req:?}") };
    let fields = req.fields;
    assert_eq!((fields.service_id, fields.local_qpn, fields.pkey), (0x0106_1c06, 0x13, 0xffff));
    assert_eq!((fields.local_response_timeout, fields.remote_response_timeout, fields.max_cm_retries), (20, 20, 15));
    assert_eq!((fields.retry_count, fields.rnr_retry_count), (7, 7));
    assert_eq!((fields.responder_resources, fields.initiator_depth), (1, 1));
    assert_eq!((req.transport(), req.path_mtu()), (Some(TransportType::Rc), Some(Mtu::B1024)));
    let path = req.primary;
    assert_eq!((path.local_lid, path.remote_lid), (0xffff, 0xffff));
    assert_eq!(path.local_gid.to_string(), "::ffff:10.77.0.12");
    assert_eq!(path.remote_gid.to_string(), "::ffff:10.77.0.11");
    assert_eq!((path.hop_limit, path.local_ack_timeout, path.flow_label), (64, 17, 0xfcb21));
    assert_eq!(req.private_data[..4], [0, 0x40, 0x81, 0x85]);
    let Message::Rep(rep) = rep.message else { panic!("{rep:?}") };
    assert_eq!((rep.remote_comm_id, rep.target_ack_delay, rep.rnr_retry_count), (fields.local_comm_id, 15, 7));
    let Message::Rtu(rtu) = rtu.message else { panic!("{rtu:?}") };
    assert_eq!((rtu.local_comm_id, rtu.remote_comm_id), (fields.local_comm_id, rep.local_comm_id));
    let Message::Dreq(dreq) = dreq.message else { panic!("{dreq:?}") };
    assert_eq!(dreq.remote_qpn, rep.local_qpn);
    let Message::Drep(drep) = drep.message else { panic!("{drep:?}") };
    assert_eq!((drep.local_comm_id, drep.remote_comm_id), (rep.local_comm_id, fields.local_comm_id));
}

/// The receiver of a starting PSN begins to send with it: the client of this capture sends its first packets with the
/// PSN of the REP, and the server with that of the REQ.
#[test]
fn starting_psns_are_those_that_the_other_side_sends_with() {
    let messages = parsed("cm_rping");
    let (Message::Req(req), Message::Rep(rep)) = (messages[0].message, messages[1].message) else { panic!() };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/rxe-pcaps/cm_rping.pcap");
    let mut reader = PcapReader::new(File::open(folder).expect("a readable file")).expect("a capture");
    let mut first = [None; 2];
    while let Some(packet) = reader.next_packet() {
        let packet = packet.expect("a whole packet");
        let datagram = parse_ethernet(&packet.data).expect("a datagram");
        let (headers, _) = parse(datagram.frame).expect("a packet");
        // Requests only, from the client (.12) and from the server.
        if headers.bth.dest_qp != GSI_QPN && headers.aeth.is_none() {
            let from = usize::from(datagram.path.src.to_string() != "10.77.0.12");
            first[from].get_or_insert(headers.bth.psn);
        }
    }
    assert_eq!(first, [Some(rep.starting_psn), Some(req.fields.starting_psn)]);
}

#[test]
fn a_real_refusal_names_its_reason() {
    let messages = parsed("cm_reject");
    let (Message::Req(req), Message::Rej(rej)) = (messages[0].message, messages[1].message) else { panic!() };
    assert_eq!((rej.local_comm_id, rej.remote_comm_id), (0, req.fields.local_comm_id));
    assert_eq!((rej.message_rejected, RejReason(rej.reason)), (rejected::REQ, RejReason::INVALID_SERVICE_ID));
    assert_eq!(RejReason(rej.reason).to_string(), "8 (invalid service ID)");
}

#[test]
fn captured_messages_are_routed_by_what_the_addressee_chose() {
    for (name, bytes) in mads("cm_") {
        let expected = match Mad::parse(&bytes).expect("a message").message {
            Message::Req(req) => Destination::Service(req.fields.service_id),
            Message::SidrReq(req) => Destination::Service(req.service_id),
            Message::SidrRep(rep) => Destination::Comm(rep.request_id),
            Message::Rep(Rep { remote_comm_id, .. }) => Destination::Comm(remote_comm_id),
            Message::Rtu(rtu) => Destination::Comm(rtu.remote_comm_id),
            Message::Rej(rej) => Destination::Comm(rej.remote_comm_id),
            Message::Dreq(dreq) => Destination::Comm(dreq.remote_comm_id),
            Message::Drep(drep) => Destination::Comm(drep.remote_comm_id),
            other => panic!("{other:?}"),
        };
        assert_eq!(destination(&bytes), Some(expected), "{name}");
    }
}

/// Returns the header of a MAD with this attribute.
fn header(attribute: u16) -> [u8; MAD_LEN] {
    let mut bytes = [0; MAD_LEN];
    bytes[..4].copy_from_slice(&[1, 7, 2, 3]);
    bytes[16..18].copy_from_slice(&attribute.to_be_bytes());
    bytes
}

/// Returns the bits of a message that its fields cover: those preserved from all ones.
fn covered(attribute: u16) -> [u8; MAD_LEN] {
    let mut ones = header(attribute);
    ones[8..16].fill(0xff);
    ones[24..].fill(0xff);
    Mad::parse(&ones).expect("a message").to_bytes()
}

#[test]
fn fields_cover_what_the_tables_say_and_reserved_bits_are_sent_as_zero() {
    // Reserved bits of each message, counted in the tables of `ibta_vol1_c12.h`.
    for (attribute, name, reserved) in [
        (0x10, "REQ", 32 + 32 + 2 * (4 + 2 + 3 + 3)),
        (0x11, "MRA", 6 + 3),
        (0x12, "REJ", 6 + 1),
        (0x13, "REP", 8 + 8 + 8 + 4),
        (0x14, "RTU", 0),
        (0x15, "DREQ", 8),
        (0x16, "DREP", 0),
        (0x17, "SIDR_REQ", 16),
        (0x18, "SIDR_REP", 16 + 8),
        (0x19, "LAP", 32 + 3 + 32 + 4 + 2 + 3 + 3),
        (0x1a, "APR", 16),
    ] {
        let zeros: u32 = covered(attribute)[24..].iter().map(|b| b.count_zeros()).sum();
        assert_eq!(zeros, reserved, "{name}");
    }
}

#[test]
fn what_is_no_message_is_named() {
    assert_eq!(Mad::parse(&[1, 7, 2, 3]), Err(MadError::Length(4)));
    assert_eq!(Mad::parse(&[0; 257]), Err(MadError::Length(257)));
    assert_eq!(Mad::parse(&[0; MAD_LEN]), Err(MadError::Class([0; 4])));
    assert_eq!(Mad::parse(&header(0x0f)), Err(MadError::Attribute(0x0f)));
    assert_eq!(Mad::parse(&header(0x1b)), Err(MadError::Attribute(0x1b)));
}

proptest! {
    #[test]
    fn every_message_is_what_its_bytes_say_and_back(
        attribute in 0x10_u16..=0x1a,
        tid in any::<[u8; 8]>(),
        body in prop::collection::vec(any::<u8>(), MAD_LEN - 24),
    ) {
        let mut bytes = header(attribute);
        bytes[8..16].copy_from_slice(&tid);
        bytes[24..].copy_from_slice(&body);
        let mad = Mad::parse(&bytes).expect("a message");
        let again = mad.to_bytes();
        let mask = covered(attribute);
        for at in 24..MAD_LEN {
            prop_assert_eq!(again[at], bytes[at] & mask[at], "byte {}", at);
        }
        prop_assert_eq!(Mad::parse(&again), Ok(mad));
        prop_assert_eq!(mad.message.attribute(), attribute);
        prop_assert!(destination(&bytes).is_some());
    }

    #[test]
    fn no_bytes_bring_the_router_down(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert_eq!(destination(&bytes).is_some(), Mad::parse(&bytes).is_ok());
    }
}
