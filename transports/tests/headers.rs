//! `parse` and `emit` are inverses, and `parse` accepts any bytes without panicking.

use irnic_transports::Psn;
use irnic_transports::wire::{
    Aeth, AtomicEth, Bth, Cnp, Deth, FeedbackKind, Feth, Headers, Importance, IrnEth, Layout, NdpWord, Opcode,
    ParseError, Reth, pad_for, parse, parse_trimmed,
};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::RngSeed;

fn psn() -> impl Strategy<Value = Psn> {
    any::<u32>().prop_map(Psn::new)
}

fn bth(opcode: Opcode) -> impl Strategy<Value = Bth> {
    (any::<[bool; 6]>(), any::<u16>(), 0..1_u32 << 24, psn()).prop_map(move |(flags, pkey, dest_qp, psn)| Bth {
        solicited: flags[0],
        migreq: flags[1],
        pkey,
        fecn: flags[2],
        becn: flags[3],
        ack_req: flags[4],
        irn_capable: flags[5],
        ..Bth::new(opcode, dest_qp, psn)
    })
}

/// Returns the extension of this opcode, by trying all.
fn extension(opcode: Opcode, a: Psn, b: u32) -> Option<IrnEth> {
    [
        IrnEth::Send { recv_wqe_sn: a, psn_offset: b & 0xff_ffff },
        IrnEth::Write,
        IrnEth::WriteImm { recv_wqe_sn: a, psn_offset: b & 0xff_ffff },
        IrnEth::Read { read_wqe_sn: a },
        IrnEth::Ack { selective: a, run: b as u8 },
        IrnEth::Response,
        IrnEth::Clock,
        IrnEth::Feedback { kind: FeedbackKind(b as u8), subject: a, path: (b >> 8) as u8, pull: Psn::new(b >> 8) },
    ]
    .into_iter()
    .find(|irn| irn.fits(opcode))
}

/// Generates any headers that may be emitted.
fn headers() -> impl Strategy<Value = Headers> {
    let opcode = select(Opcode::ALL.to_vec());
    (opcode, any::<bool>()).prop_flat_map(|(opcode, irn)| {
        let values = (any::<[u64; 3]>(), any::<[u32; 3]>(), psn(), any::<u8>());
        (bth(opcode), values).prop_map(move |(bth, (long, word, psn, byte))| {
            let irn = extension(opcode, psn, word[2]).filter(|_| irn || opcode.needs_irn());
            let importances = [Importance::None, Importance::Important, Importance::Clock];
            let importance = irn.map_or(Importance::None, |_| importances[usize::from(byte >> 4) % 3]);
            let layout = opcode.layout(irn.is_some());
            Headers {
                bth: Bth { importance, low: irn.is_some() && byte & 4 != 0, ..bth },
                deth: layout.has(Layout::DETH).then_some(Deth { qkey: word[0], src_qp: word[1] & 0xff_ffff }),
                xrc: layout.has(Layout::XRCETH).then_some(word[2] & 0xff_ffff),
                feth: layout.has(Layout::FETH).then_some(Feth { placement: byte & 15, selectivity: byte >> 4 & 3 }),
                reth: layout.has(Layout::RETH).then_some(Reth { va: long[0], rkey: word[0], len: word[1] }),
                aeth: layout.has(Layout::AETH).then_some(Aeth { syndrome: byte, msn: psn }),
                atomic: layout.has(Layout::ATOMIC).then_some(AtomicEth {
                    va: long[0],
                    rkey: word[0],
                    swap_add: long[1],
                    compare: long[2],
                }),
                atomic_ack: layout.has(Layout::ATOMIC_ACK).then_some(long[0]),
                imm: layout.has(Layout::IMM).then_some(word[0]),
                ieth: layout.has(Layout::IETH).then_some(word[1]),
                cnp: layout.has(Layout::CNP).then_some(Cnp([byte; Cnp::LEN])).filter(|cnp| *cnp != Cnp::default()),
                irn,
                ndp: NdpWord::new(word[1], byte & 1 == 0)
                    .filter(|_| irn.is_some() && byte & 2 == 0 && opcode.may_be_pulled()),
            }
        })
    })
}

fn frame(headers: &Headers, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0xee; headers.frame_len(payload.len())];
    let len = headers.emit(&mut frame);
    assert_eq!(len, headers.len());
    frame[len..len + payload.len()].copy_from_slice(payload);
    frame
}

/// Returns the configuration: 4,096 cases, the same in every run.
fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 4096,
        rng_seed: RngSeed::Fixed(0x1b_4791),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn what_is_emitted_parses_back(mut headers in headers(), mut payload in prop::collection::vec(any::<u8>(), 0..70)) {
        prop_assert!(headers.is_consistent());
        prop_assert!(headers.len() <= Headers::MAX_LEN);
        if !headers.bth.opcode.has_payload() {
            payload.clear();
        }
        headers.bth.pad = pad_for(payload.len());
        let frame = frame(&headers, &payload);
        prop_assert_eq!(parse(&frame), Ok((headers, payload.as_slice())));
    }

    #[test]
    fn what_is_parsed_emits_back(bytes in prop::collection::vec(any::<u8>(), 16..90), opcode in select(Opcode::ALL.to_vec()), irn: bool) {
        let mut bytes = bytes;
        bytes[0] = opcode as u8;
        bytes[1] = bytes[1] & 0xf0 | u8::from(irn);
        bytes[8] = bytes[8] & !0x40 | u8::from(irn) << 6;
        if let Ok((headers, payload)) = parse(&bytes) {
            prop_assert!(headers.is_consistent());
            let again = frame(&headers, payload);
            prop_assert_eq!(again.len(), bytes.len());
            prop_assert_eq!(parse(&again), Ok((headers, payload)), "only reserved bits may differ");
        }
    }

    #[test]
    fn any_bytes_parse_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        if let Ok((headers, payload)) = parse(&bytes) {
            prop_assert_eq!(headers.frame_len(payload.len()), bytes.len());
        }
    }

    #[test]
    fn a_trimmed_frame_keeps_its_headers(headers in headers(), rest in 0_usize..70) {
        let headers = Headers { bth: Bth { pad: 3, ..headers.bth }, ..headers };
        let rest = if headers.bth.opcode.has_payload() { rest } else { 0 };
        let trimmed = frame(&Headers { bth: Bth { pad: 0, ..headers.bth }, ..headers }, &vec![7; rest]);
        // The pad count is that of the whole packet, as the ICRC covers it.
        let mut trimmed = trimmed;
        trimmed[1] |= 3 << 4;
        let expected = match headers.ndp {
            Some(_) => Ok(headers),
            None => Err(ParseError::NoPulledStream(headers.bth.opcode)),
        };
        prop_assert_eq!(parse_trimmed(&trimmed), expected);
    }

    #[test]
    fn every_cut_names_the_header_it_falls_into(headers in headers()) {
        let whole = frame(&headers, &[]);
        for have in 0..whole.len() {
            match parse(&whole[..have]) {
                Err(ParseError::TooShort { need, have: said, .. }) => prop_assert!(said == have && need > have),
                other => prop_assert!(false, "{:?}", other),
            }
        }
    }
}

/// Returns an RC SEND only with eight bytes of payload.
fn send() -> Vec<u8> {
    frame(&Headers::new(Bth::new(Opcode::RcSendOnly, 0x11, Psn::new(7))), &[1; 8])
}

#[test]
fn what_is_wrong_is_named() {
    for (at, value, expected) in [
        (0, 0x15, ParseError::UnknownOpcode(0x15)),
        (0, 0xff, ParseError::UnknownOpcode(0xff)),
        (0, 0x18, ParseError::NeedsExtension(Opcode::RcReadAcknowledge)),
        (0, 0x11, ParseError::UnexpectedPayload { opcode: Opcode::RcAcknowledge, len: 4 }),
        (0, 0x0b, ParseError::TooShort { header: "RETH", need: 32, have: 24 }),
        (1, 0x41, ParseError::Version { tver: 1, irn: false }),
        (1, 0x4f, ParseError::Version { tver: 15, irn: false }),
        (8, 0x40, ParseError::Version { tver: 0, irn: true }),
    ] {
        let mut bytes = send();
        bytes[at] = value;
        assert_eq!(parse(&bytes), Err(expected), "byte {at} = {value:#x}");
    }
    let mut bytes = send();
    bytes[1] |= 0x30;
    assert_eq!(parse(&bytes[..16]), Err(ParseError::Pad { pad: 3, len: 0 }));
    assert_eq!(parse(&bytes[..18]), Err(ParseError::Pad { pad: 3, len: 2 }));
    assert_eq!(parse(&bytes[..23]), Err(ParseError::Unaligned(7)));
    assert_eq!(parse(&[]), Err(ParseError::TooShort { header: "BTH", need: 16, have: 0 }));

    let mut uc = frame(&Headers::new(Bth::new(Opcode::UcSendOnly, 1, Psn::new(1))), &[]);
    uc[1] |= 1;
    uc[8] |= 0x40;
    assert_eq!(parse(&uc), Err(ParseError::NoExtension(Opcode::UcSendOnly)));
}

#[test]
fn reserved_bits_are_ignored() {
    let expected = send();
    let mut bytes = expected.clone();
    bytes[4] |= 0x3f;
    bytes[8] |= 0x1f;
    assert_eq!(parse(&bytes), parse(&expected));
}

/// The layout of `docs/wire.md`, byte for byte.
#[test]
fn extension_lies_between_ibas_headers_and_the_payload() {
    let bth = Bth { irn_capable: true, ..Bth::new(Opcode::RcWriteLastImm, 0x0a0b0c, Psn::new(0x010203)) };
    let headers = Headers {
        reth: Some(Reth { va: 0x1122334455667788, rkey: 0x99aabbcc, len: 4 }),
        imm: Some(0xdeadbeef),
        irn: Some(IrnEth::WriteImm { recv_wqe_sn: Psn::new(0x556677), psn_offset: 0x010203 }),
        ..Headers::new(bth)
    };
    let mut out = [0; Headers::MAX_LEN];
    let len = headers.emit(&mut out);
    #[rustfmt::skip]
    let expected = [
        0x09, 0x41, 0xff, 0xff, 0x00, 0x0a, 0x0b, 0x0c, 0x60, 0x01, 0x02, 0x03, // BTH: TVer 1, X and C
        0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0, 0, 0, 4, // RETH
        0xde, 0xad, 0xbe, 0xef, // ImmDt
        0x00, 0x55, 0x66, 0x77, // recv_WQE_SN
        0x00, 0x01, 0x02, 0x03, // PSN offset
    ];
    assert_eq!(out[..len], expected);

    let headers = Headers {
        irn: Some(IrnEth::Send { recv_wqe_sn: Psn::new(5), psn_offset: 2 }),
        ..Headers::new(Bth::new(Opcode::RcSendMiddle, 1, Psn::new(9)))
    };
    let len = headers.emit(&mut out);
    assert_eq!(out[12..len], [0, 0, 0, 5, 0, 0, 0, 2]);

    let headers = Headers {
        aeth: Some(Aeth { syndrome: 0x60, msn: Psn::new(3) }),
        irn: Some(IrnEth::Ack { selective: Psn::new(12), run: 2 }),
        ..Headers::new(Bth::new(Opcode::RcReadAcknowledge, 1, Psn::new(9)))
    };
    let len = headers.emit(&mut out);
    assert_eq!(out[12..len], [0x60, 0, 0, 3, 2, 0, 0, 12]);
}

/// NDP's part of it.
#[test]
fn feedback_and_the_word_of_pulled_streams_lie_where_the_documentation_says() {
    let mut out = [0; Headers::MAX_LEN];
    let kind = FeedbackKind::TRIMMED.and(FeedbackKind::PULL);
    let feedback = IrnEth::Feedback { kind, subject: Psn::new(0x0a0b0c), path: 9, pull: Psn::new(0x010203) };
    let headers = Headers {
        aeth: Some(Aeth { syndrome: 0x1f, msn: Psn::new(3) }),
        irn: Some(feedback),
        ..Headers::new(Bth::new(Opcode::RcFeedback, 1, Psn::new(9)))
    };
    let len = headers.emit(&mut out);
    assert_eq!(
        out[..len],
        [0x19, 0x41, 0xff, 0xff, 0, 0, 0, 1, 0x40, 0, 0, 9, 0x1f, 0, 0, 3, 6, 10, 11, 12, 9, 1, 2, 3]
    );
    let headers = Headers {
        irn: Some(IrnEth::Send { recv_wqe_sn: Psn::new(5), psn_offset: 2 }),
        ndp: NdpWord::new(0x123456, true),
        ..Headers::new(Bth::new(Opcode::RcSendOnly, 1, Psn::new(9)))
    };
    let len = headers.emit(&mut out);
    assert_eq!((out[8], &out[12..len]), (0x50, &[0, 0, 0, 5, 0, 0, 0, 2, 0x80, 0x12, 0x34, 0x56][..]));
    let mut frame = frame(&headers, &[]);
    frame[21..24].fill(0);
    assert_eq!(parse(&frame), Err(ParseError::NoSource));
    assert_eq!(parse(&frame[..26]), Err(ParseError::TooShort { header: "NDP word", need: 28, have: 26 }));
    frame[0] = Opcode::RcReadAcknowledge as u8;
    assert_eq!(parse(&frame), Err(ParseError::NoPulledStream(Opcode::RcReadAcknowledge)));
    frame[0] = Opcode::RcFeedback as u8;
    (frame[1], frame[8]) = (0x40, 0);
    assert_eq!(parse(&frame), Err(ParseError::NeedsExtension(Opcode::RcFeedback)));
}

/// TLT's part of it.
#[test]
fn clocks_and_the_bits_of_importance_lie_where_the_documentation_says() {
    let mut out = [0; Headers::MAX_LEN];
    for (opcode, byte) in [(Opcode::RcClock, 0x1b), (Opcode::RcReadClock, 0x1e)] {
        let mut headers = Headers { irn: Some(IrnEth::Clock), ..Headers::new(Bth::new(opcode, 1, Psn::new(9))) };
        headers.bth.importance = Importance::Clock;
        let len = headers.emit(&mut out);
        assert_eq!(out[..len], [byte, 0x41, 0xff, 0xff, 0, 0, 0, 1, 0x48, 0, 0, 9]);
        let mut frame = frame(&headers, &[]);
        assert_eq!((frame.len(), parse(&frame)), (16, Ok((headers, &[][..]))));
        (frame[1], frame[8]) = (0x40, 0);
        assert_eq!(parse(&frame), Err(ParseError::NeedsExtension(opcode)));
    }
    let aeth = Some(Aeth { syndrome: 0x1f, msn: Psn::new(3) });
    let plain = Headers { aeth, ..Headers::new(Bth::new(Opcode::RcAcknowledge, 1, Psn::new(9))) };
    let irn = Headers { irn: Some(IrnEth::Ack { selective: Psn::new(9), run: 0 }), ..plain };
    for (bits, importance) in [
        (0x00, Importance::None),
        (0x04, Importance::Important),
        (0x08, Importance::Clock),
        // Reserved.
        (0x0c, Importance::None),
    ] {
        let mut bytes = frame(&irn, &[]);
        bytes[8] |= bits;
        assert_eq!(parse(&bytes).map(|(headers, _)| headers.bth.importance), Ok(importance));
        // In plain RoCE they are IBA's, and reserved.
        let mut bytes = frame(&plain, &[]);
        bytes[8] |= bits;
        assert_eq!(parse(&bytes).map(|(headers, _)| headers), Ok(plain));
    }
}

/// RC3's part of it.
#[test]
fn the_bit_of_low_priority_lies_where_the_documentation_says() {
    let aeth = Some(Aeth { syndrome: 0x60, msn: Psn::new(3) });
    let plain = Headers { aeth, ..Headers::new(Bth::new(Opcode::RcAcknowledge, 1, Psn::new(9))) };
    let irn = Headers { irn: Some(IrnEth::Ack { selective: Psn::new(4), run: 0 }), ..plain };
    let low = Headers { bth: Bth { low: true, ..irn.bth }, ..irn };
    assert_eq!(frame(&low, &[])[8], frame(&irn, &[])[8] | 0x02);
    assert_eq!(parse(&frame(&low, &[])).map(|(headers, _)| headers), Ok(low));
    // In plain RoCE it is IBA's, and reserved.
    let mut bytes = frame(&plain, &[]);
    bytes[8] |= 0x02;
    assert_eq!(parse(&bytes).map(|(headers, _)| headers), Ok(plain));
}

/// Every packet of the fast path is what the general parser reads, alone and with an acknowledgement, which makes two
/// of it; it is cut short or garbled without harm.
#[test]
fn a_packet_of_the_fast_path_is_like_any_other() {
    use irnic_transports::wire::opcode::Position::{First, Last, Middle, Only};
    use irnic_transports::wire::{APART, FastAck, FastFrame, FastHead, FastOp, ICRC_LEN};

    let (to, psn, sn) = (0x77_0011, Psn::new(9), Psn::new(4));
    let aeth = Aeth { syndrome: 0x1f, msn: Psn::new(0xab_cdef) };
    let ack = FastAck { psn: Psn::new(0x12_3456), aeth, of_responses: false, first: false };
    let reth = Reth { va: 0x1122_3344_5566_7788, rkey: 0x99aa_bbcc, len: 5 };
    let atomic = AtomicEth { va: 0x1122_3344_5566_7788, rkey: 0x99aa_bbcc, swap_add: u64::MAX - 2, compare: 1 << 63 };
    let frame = |head: &FastHead, payload: &[u8]| {
        let mut frame = vec![0; head.len() + payload.len() + usize::from(head.pad) + ICRC_LEN];
        head.emit(&mut frame)[..payload.len()].copy_from_slice(payload);
        frame
    };
    let read = |headers: &Headers| match headers.irn {
        Some(IrnEth::Read { read_wqe_sn }) => read_wqe_sn,
        other => panic!("{other:?}"),
    };
    let at = |position| (to, psn, position);
    let place = |opcode: Opcode| match (opcode.is_first(), opcode.is_middle(), opcode.is_last()) {
        (true, ..) => First,
        (_, true, _) => Middle,
        (.., true) => Last,
        _ => Only,
    };
    let head = |set: &dyn Fn(&mut FastHead)| {
        let mut head = FastHead::EMPTY;
        set(&mut head);
        head
    };
    let read_ack = FastAck { of_responses: true, ..ack };
    for (plain, opcode, payload) in [
        (head(&|head| head.set_send(to, psn, true, 3, sn)), Opcode::RcSendOnly, &b"bytes"[..]),
        (head(&|head| head.set_write(to, psn, false, 3, &reth)), Opcode::RcWriteOnly, b"bytes"),
        (head(&|head| head.set_read(to, psn, &reth, sn)), Opcode::RcReadRequest, b""),
        (head(&|head| head.set_atomic(to, psn, &atomic, true, sn)), Opcode::RcCompareSwap, b""),
        (head(&|head| head.set_atomic(to, psn, &atomic, false, sn)), Opcode::RcFetchAdd, b""),
        (head(&|head| head.set_response(at(Only), 3, &aeth)), Opcode::RcReadResponseOnly, b"bytes"),
        (head(&|head| head.set_response(at(Only), 0, &aeth)), Opcode::RcReadResponseOnly, b""),
        (head(&|head| head.set_response(at(First), 0, &aeth)), Opcode::RcReadResponseFirst, b"more"),
        (head(&|head| head.set_response(at(Middle), 0, &aeth)), Opcode::RcReadResponseMiddle, b"more"),
        (head(&|head| head.set_response(at(Last), 2, &aeth)), Opcode::RcReadResponseLast, b"no"),
        (head(&|head| head.set_send_part(at(First), false, 0, (sn, 0))), Opcode::RcSendFirst, b"more"),
        (head(&|head| head.set_send_part(at(Middle), false, 0, (sn, 0x12_3456))), Opcode::RcSendMiddle, b"more"),
        (head(&|head| head.set_send_part(at(Last), true, 2, (sn, 5))), Opcode::RcSendLast, b"no"),
        (head(&|head| head.set_send_part(at(Only), true, 2, (sn, 0))), Opcode::RcSendOnly, b"no"),
        (head(&|head| head.set_write_part(at(First), false, 0, &reth)), Opcode::RcWriteFirst, b"more"),
        (head(&|head| head.set_write_part(at(Middle), false, 0, &reth)), Opcode::RcWriteMiddle, b"more"),
        (head(&|head| head.set_write_part(at(Last), true, 2, &reth)), Opcode::RcWriteLast, b"no"),
        (head(&|head| head.set_write_part(at(Only), true, 2, &reth)), Opcode::RcWriteOnly, b"no"),
        (head(&|head| head.set_atomic_ack(to, psn, &aeth, 1 << 40)), Opcode::RcAtomicAcknowledge, b""),
        (head(&|head| head.set_ack(to, &ack)), Opcode::RcAcknowledge, b""),
        (head(&|head| head.set_ack(to, &read_ack)), Opcode::RcReadAcknowledge, b""),
    ] {
        let alone = frame(&plain, payload);
        let (headers, bytes) = parse(&alone).expect("a frame");
        let parsed = FastFrame::parse(&alone).expect("a frame of the fast path");
        assert_eq!((headers.bth.opcode, bytes, parsed.payload), (opcode, payload, payload));
        assert_eq!((parsed.dest_qp, parsed.psn, parsed.ack), (headers.bth.dest_qp, headers.bth.psn, None));
        assert_eq!((parsed.solicited, parsed.irn_capable), (headers.bth.solicited, headers.bth.irn_capable));
        match parsed.op {
            FastOp::Send { recv_wqe_sn } => {
                assert_eq!(headers.irn, Some(IrnEth::Send { recv_wqe_sn, psn_offset: 0 }));
            }
            FastOp::Write(reth) => assert_eq!(headers.reth, Some(reth)),
            FastOp::SendPart { position, recv_wqe_sn, psn_offset } => {
                assert_eq!(headers.irn, Some(IrnEth::Send { recv_wqe_sn, psn_offset }));
                assert_eq!(position, place(opcode));
            }
            FastOp::WritePart { position, reth } => {
                assert_eq!((headers.reth, headers.irn), (Some(reth), Some(IrnEth::Write)));
                assert_eq!(position, place(opcode));
            }
            FastOp::Read { reth, read_wqe_sn } => assert_eq!((headers.reth, read(&headers)), (Some(reth), read_wqe_sn)),
            FastOp::Atomic { atomic, compares, read_wqe_sn } => {
                assert_eq!((headers.atomic, read(&headers)), (Some(atomic), read_wqe_sn));
                assert_eq!(compares, opcode == Opcode::RcCompareSwap);
            }
            FastOp::Response(position) => assert_eq!((headers.aeth, position), (Some(aeth), place(opcode))),
            FastOp::AtomicAck(value) => {
                assert_eq!((headers.aeth, headers.atomic_ack), (Some(aeth), Some(value)));
            }
            FastOp::Ack(parsed) => {
                let irn = IrnEth::Ack { selective: parsed.psn, run: 0 };
                assert_eq!(parsed, FastAck { of_responses: opcode == Opcode::RcReadAcknowledge, ..ack });
                assert_eq!((headers.aeth, headers.irn, headers.bth.psn), (Some(aeth), Some(irn), parsed.psn));
            }
        }
        (0..alone.len()).for_each(|len| _ = FastFrame::parse(&alone[..len]));
        for (of_responses, first) in [(false, false), (false, true), (true, false), (true, true)] {
            let ack = FastAck { of_responses, first, ..ack };
            let mut carrying = plain;
            carrying.carry(&ack);
            let whole = frame(&carrying, payload);
            assert!(carrying.carries_ack() && !plain.carries_ack() && whole.len() == alone.len() + 8);
            assert!(parse(&whole).is_err(), "it is on no wire");
            (0..whole.len()).for_each(|len| _ = FastFrame::parse(&whole[..len]));
            if !plain.may_carry(payload.len() as u32) {
                assert_eq!(
                    FastFrame::parse(&whole),
                    None,
                    "an acknowledgement carries none, nor does a part of a message"
                );
                continue;
            }
            assert_eq!(FastFrame::parse(&whole), Some(FastFrame { ack: Some(ack), ..parsed }));
            let mut parts = [alone.clone(), frame(&head(&|head| head.set_ack(to, &ack)), b"")];
            if first {
                parts.reverse();
            }
            assert_eq!(FastFrame::apart(&whole, &ack, &mut [0xaa; APART]), parts);
            let longest = [&whole[..carrying.len()], &[0; 516][..], &[0; ICRC_LEN]].concat();
            assert!(FastFrame::parse(&longest).is_none(), "it could not be taken apart");
        }
    }
}
