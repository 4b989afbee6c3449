//! Forged packets: valid in form, biased towards what a victim might believe.

use irnic_transports::Psn;
use irnic_transports::wire::opcode::Operation;
use irnic_transports::wire::{
    Aeth, AtomicEth, Bth, FeedbackKind, Feth, Headers, Importance, IrnEth, Opcode, Reth, pad_for,
};
use rand::rngs::StdRng;
use rand::{Rng, RngExt};

/// The liar's knowledge of its victim: that of the true peer.
#[derive(Clone, Debug)]
pub struct Knowledge {
    pub qpn: u32,
    pub mtu: usize,
    /// Last sequence numbers seen: requests to the victim, and its own requests, which responses name.
    pub request: Psn,
    pub response: Psn,
    pub recv_sn: Psn,
    pub read_sn: Psn,
    /// Keys and ranges of the victim's regions, granted to the peer or not.
    pub regions: Vec<(u32, u64, u64)>,
    pub irn: bool,
    /// Whether the liar tries to stay unnoticed for long.
    pub careful: bool,
}

fn near(rng: &mut StdRng, k: &Knowledge, psn: Psn) -> Psn {
    if k.careful && rng.random_bool(0.9) {
        return psn;
    }
    match rng.random_range(0..10) {
        0..4 => psn,
        4..7 => psn.plus(rng.random_range(0..4)),
        7 => psn.minus(rng.random_range(0..40)),
        8 => psn.plus(rng.random_range(0..5000)),
        _ => Psn::new(rng.next_u32()),
    }
}

fn range(rng: &mut StdRng, k: &Knowledge, len: u32) -> (u32, u64) {
    let (key, addr, size) = k.regions[rng.random_range(0..k.regions.len())];
    let key = if rng.random_bool(0.05) { rng.next_u32() } else { key };
    let inside = addr + rng.random_range(0..=size.saturating_sub(len.into()));
    let va = match rng.random_range(0..if k.careful { 200 } else { 12 }) {
        0 => addr.wrapping_sub(rng.random_range(1..64)),
        1 => addr + size - rng.random_range(0..64).min(size),
        2 => rng.next_u64(),
        // The last byte inside, or the first ones outside.
        4 | 5 => (addr + size - u64::from(len)).wrapping_add(rng.random_range(0..3)),
        3 => u64::MAX - rng.random_range(0..4096),
        _ => inside,
    };
    (key, va)
}

/// Returns a packet to the victim: headers that fit its opcode, and a payload.
pub fn packet(rng: &mut StdRng, k: &Knowledge) -> (Headers, Vec<u8>) {
    let rc: Vec<Opcode> = Opcode::ALL.into_iter().filter(|o| o.is_rc()).collect();
    let plausible = |o: Opcode| {
        // Most regions grant little, so most requests for memory are refused.
        o.is_only() && (!k.careful || o.is_send() || o.is_response() || k.irn)
    };
    let opcode = loop {
        let opcode = if rng.random_bool(0.01) {
            Opcode::ALL[rng.random_range(0..Opcode::ALL.len())]
        } else {
            rc[rng.random_range(0..rc.len())]
        };
        if k.careful && !plausible(opcode) && rng.random_bool(0.9) {
            continue;
        }
        if !opcode.needs_irn() || k.irn {
            break opcode;
        }
    };
    let irn = opcode.is_reliable() && (opcode.needs_irn() || k.irn != rng.random_bool(0.02));
    let base = if opcode.is_response() { k.response } else { k.request };
    let mut h = Headers::new(Bth::new(opcode, k.qpn, near(rng, k, base)));
    h.bth.ack_req = rng.random_bool(0.7);
    h.bth.solicited = rng.random_bool(0.2);
    h.bth.irn_capable = k.irn != rng.random_bool(0.05);
    if irn {
        h.bth.importance = [Importance::None, Importance::Important, Importance::Clock][rng.random_range(0..3)];
    }
    if rng.random_bool(0.01) {
        h.bth.pkey = rng.next_u32() as u16;
    }
    let full = opcode.is_first() || opcode.is_middle();
    let len = match rng.random_range(0..8) {
        _ if !opcode.has_payload() => 0,
        0 if !k.careful => rng.random_range(0..=4096),
        1 => 0,
        2..6 if full => k.mtu,
        _ => rng.random_range(0..=k.mtu),
    };
    h.bth.pad = pad_for(len);
    // The opcode determines the headers; try both ways where the library decides.
    if opcode.has_reth() || (irn && opcode.operation() == Operation::Write) {
        let total = match rng.random_range(if k.careful { 3 } else { 0 }..8) {
            0 => rng.next_u32(),
            1 => 1 << 30,
            2 => rng.random_range(0..=20_000),
            _ if opcode.is_write() && (opcode.is_only() || opcode.is_last()) => len as u32,
            _ => len as u32 + rng.random_range(0..3 * k.mtu as u32),
        };
        let (rkey, va) = range(rng, k, total.min(8192));
        h.reth = Some(Reth { va, rkey, len: total });
    }
    if opcode.has_aeth() || (irn && opcode.is_read_response()) {
        let syndrome = match rng.random_range(0..10) {
            0..5 => rng.random_range(0..32),
            5 => 0x20 | rng.random_range(0..32),
            6 => 0x60,
            7 => 0x60 | rng.random_range(1..5),
            _ => rng.next_u32() as u8,
        };
        h.aeth = Some(Aeth { syndrome, msn: near(rng, k, Psn::new(0)) });
    }
    if opcode.is_atomic() {
        let (rkey, va) = range(rng, k, 8);
        let va = if rng.random_bool(0.8) { va & !7 } else { va };
        h.atomic = Some(AtomicEth { va, rkey, swap_add: rng.next_u64(), compare: 0 });
    }
    h.atomic_ack = (opcode.in_rc() == Opcode::RcAtomicAcknowledge).then(|| rng.next_u64());
    h.imm = opcode.has_imm().then(|| rng.next_u32());
    h.ieth = opcode.has_ieth().then(|| range(rng, k, 0).0);
    h.feth = (opcode.operation() == Operation::Flush)
        .then(|| Feth { placement: rng.random_range(0..16), selectivity: rng.random_range(0..4) });
    h.xrc = opcode.has_xrceth().then(|| rng.random_range(0..1 << 24));
    h.deth = opcode.has_deth().then(Default::default);
    if irn {
        let psn_offset = match rng.random_range(0..6) {
            0 => rng.next_u32() & 0xff_ffff,
            1 => rng.random_range(0..4),
            _ if opcode.is_first() || opcode.is_only() => 0,
            _ => 1,
        };
        let selective = near(rng, k, base);
        h.irn = Some(match opcode.operation() {
            Operation::Send => IrnEth::Send { recv_wqe_sn: near(rng, k, k.recv_sn), psn_offset },
            Operation::Write if opcode.has_imm() => {
                IrnEth::WriteImm { recv_wqe_sn: near(rng, k, k.recv_sn), psn_offset }
            }
            Operation::Write => IrnEth::Write,
            Operation::ReadRequest | Operation::Atomic | Operation::AtomicWrite | Operation::Flush => {
                IrnEth::Read { read_wqe_sn: near(rng, k, k.read_sn) }
            }
            Operation::Acknowledge | Operation::ReadAcknowledge => {
                IrnEth::Ack { selective, run: selective.get() as u8 }
            }
            Operation::Feedback | Operation::ReadFeedback => IrnEth::Feedback {
                kind: FeedbackKind(rng.random_range(0..32)),
                subject: selective,
                path: rng.random_range(0..4),
                pull: near(rng, k, k.read_sn),
            },
            Operation::Clock | Operation::ReadClock => IrnEth::Clock,
            _ => IrnEth::Response,
        });
    }
    (h, (0..len).map(|i| i as u8 ^ 0xa5).collect())
}
