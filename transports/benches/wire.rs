//! Parsing, emitting and checksumming one packet. Run with `cargo bench -p irnic-transports --bench wire`.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use irnic_transports::wire::{
    Aeth, Bth, Headers, ICRC_LEN, IrnEth, Opcode, Reth, icrc_append, icrc_check, pad_for, parse,
};
use irnic_transports::{Path, Psn};

fn path() -> Path {
    Path { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into(), udp_src: 0xc000, traffic_class: 0, hop_limit: 64 }
}

/// A SEND of plain RoCE, a WRITE with all IRN fields, and an IRN acknowledgement.
fn packets() -> [(&'static str, Headers); 3] {
    let bth = |opcode| Bth::new(opcode, 0x11, Psn::new(7));
    let reth = Some(Reth { va: 0x7f00_0000_0000, rkey: 0x1234, len: 1024 });
    [
        ("send", Headers::new(bth(Opcode::RcSendMiddle))),
        (
            "irn_write_imm",
            Headers {
                reth,
                imm: Some(1),
                irn: Some(IrnEth::WriteImm { recv_wqe_sn: Psn::new(5), psn_offset: 7 }),
                ..Headers::new(bth(Opcode::RcWriteLastImm))
            },
        ),
        (
            "irn_ack",
            Headers {
                aeth: Some(Aeth { syndrome: 0x1f, msn: Psn::new(3) }),
                irn: Some(IrnEth::Ack { selective: Psn::new(9), run: 3 }),
                ..Headers::new(bth(Opcode::RcAcknowledge))
            },
        ),
    ]
}

fn frame(headers: &Headers, payload: usize) -> Vec<u8> {
    assert_eq!(pad_for(payload), 0);
    let mut frame = vec![0x5a; headers.frame_len(payload)];
    headers.emit(&mut frame);
    frame
}

fn headers(c: &mut Criterion) {
    for (name, headers) in packets() {
        let payload = if headers.bth.opcode.has_payload() { 1024 } else { 0 };
        let mut bytes = frame(&headers, payload);
        c.bench_function(&format!("parse/{name}"), |b| {
            b.iter(|| {
                black_box(&parse(black_box(&bytes)));
            })
        });
        c.bench_function(&format!("emit/{name}"), |b| b.iter(|| black_box(&headers).emit(black_box(&mut bytes))));
    }
}

fn icrc(c: &mut Criterion) {
    let path = path();
    let mut group = c.benchmark_group("icrc");
    for (headers, payload) in
        [(packets()[2].1, 0), (packets()[0].1, 64), (packets()[0].1, 1024), (packets()[0].1, 4096)]
    {
        let mut bytes = frame(&headers, payload);
        icrc_append(&path, 0, &mut bytes);
        group.throughput(Throughput::Bytes((bytes.len() - ICRC_LEN) as u64));
        group.bench_function(format!("{payload}"), |b| b.iter(|| icrc_check(black_box(&path), 0, black_box(&bytes))));
    }
    group.finish();
}

criterion_group!(benches, headers, icrc);
criterion_main!(benches);
