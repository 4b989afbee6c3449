//! Packets that no honest peer sends.

use arbitrary::{Result, Unstructured};
use irnic_nic::frame::emit_frame;
use irnic_transports::wire::opcode::Operation;
use irnic_transports::wire::{Bth, FeedbackKind, Headers, Importance, IrnEth, Layout, Opcode, pad_for};
use irnic_transports::{Path, Payload, Psn, Sideband, TxPacket};

/// What a liar knows of the queue pair that it writes to.
pub struct Target {
    /// The queue pair.
    pub qpn: u32,
    /// PSNs that it may expect, or have sent.
    pub psns: [Psn; 3],
    /// It was told to speak the extension.
    pub irn: bool,
    /// Payload bytes of a full packet.
    pub mtu: usize,
    /// A remote key with the address and the length of its region.
    pub region: (u32, u64, u64),
    /// It is one end of an extended reliable connection.
    pub xrc: bool,
    /// The shared receive queue that requests name there.
    pub srqn: u32,
}

/// A number near one that matters.
fn near(u: &mut Unstructured<'_>, of: u64) -> Result<u64> {
    Ok(of.wrapping_add_signed(i64::from(u.arbitrary::<i8>()?)))
}

fn psn(u: &mut Unstructured<'_>, target: &Target) -> Result<Psn> {
    Ok(match u.int_in_range(0..=8)? {
        8 => Psn::new(u.arbitrary::<u32>()?),
        n @ 0..=2 => target.psns[n],
        n => Psn::new(near(u, u64::from(target.psns[n % 3].get()))? as u32),
    })
}

fn length(u: &mut Unstructured<'_>, target: &Target) -> Result<u32> {
    let mtu = target.mtu as u64;
    Ok(match u.int_in_range(0..=7)? {
        0 => u.arbitrary::<u32>()?,
        1 => near(u, target.region.2)? as u32,
        2 => near(u, 1 << 31)? as u32,
        n @ 3..=5 => near(u, mtu * (n - 2))? as u32,
        _ => u32::from(u.arbitrary::<u8>()?),
    })
}

fn address(u: &mut Unstructured<'_>, target: &Target) -> Result<u64> {
    let (_, addr, len) = target.region;
    Ok(match u.int_in_range(0..=7)? {
        0 => u.arbitrary::<u64>()?,
        1 => near(u, 0)?,
        2 => near(u, addr.wrapping_add(len))?,
        3 => near(u, addr)?,
        _ => addr + u64::from(u.arbitrary::<u16>()?) % len,
    })
}

/// Any opcode; to an extended reliable connection those of one.
fn opcode(u: &mut Unstructured<'_>, target: &Target) -> Result<Opcode> {
    let all = &Opcode::ALL[..Opcode::ALL.partition_point(|opcode| !opcode.is_xrc())];
    let opcode = *u.choose(all)?;
    Ok(if target.xrc { opcode.in_xrc() } else { opcode })
}

/// Gives `headers` just the extended headers that `opcode` calls for, keeping the values that are there.
fn refit(headers: &mut Headers, opcode: Opcode, irn: bool) {
    let irn = opcode.is_reliable() && (irn || opcode.needs_irn());
    let layout = opcode.layout(irn);
    let old = *headers;
    fn keep<T: Default>(wanted: bool, old: Option<T>) -> Option<T> {
        wanted.then(|| old.unwrap_or_default())
    }
    *headers = Headers {
        bth: Bth {
            opcode,
            importance: if irn { old.bth.importance } else { Importance::None },
            low: irn && old.bth.low,
            ..old.bth
        },
        deth: keep(layout.has(Layout::DETH), old.deth),
        xrc: keep(layout.has(Layout::XRCETH), old.xrc),
        feth: keep(layout.has(Layout::FETH), old.feth),
        reth: keep(layout.has(Layout::RETH), old.reth),
        aeth: keep(layout.has(Layout::AETH), old.aeth),
        atomic: keep(layout.has(Layout::ATOMIC), old.atomic),
        atomic_ack: keep(layout.has(Layout::ATOMIC_ACK), old.atomic_ack),
        imm: keep(layout.has(Layout::IMM), old.imm),
        ieth: keep(layout.has(Layout::IETH), old.ieth),
        cnp: keep(layout.has(Layout::CNP), old.cnp),
        irn: irn.then(|| old.irn.filter(|o| o.fits(opcode)).unwrap_or_else(|| extension(opcode))),
        ndp: old.ndp.filter(|_| irn && opcode.may_be_pulled()),
    };
}

fn extension(opcode: Opcode) -> IrnEth {
    let sn = Psn::default();
    match opcode.operation() {
        Operation::Send => IrnEth::Send { recv_wqe_sn: sn, psn_offset: 0 },
        Operation::Write if opcode.has_imm() => IrnEth::WriteImm { recv_wqe_sn: sn, psn_offset: 0 },
        Operation::Write => IrnEth::Write,
        Operation::ReadRequest | Operation::Atomic | Operation::AtomicWrite | Operation::Flush => {
            IrnEth::Read { read_wqe_sn: sn }
        }
        Operation::Acknowledge | Operation::ReadAcknowledge => IrnEth::Ack { selective: sn, run: 0 },
        Operation::Feedback | Operation::ReadFeedback => {
            IrnEth::Feedback { kind: FeedbackKind::default(), subject: sn, path: 0, pull: sn }
        }
        Operation::Clock | Operation::ReadClock => IrnEth::Clock,
        Operation::ReadResponse | Operation::AtomicAcknowledge | Operation::Cnp => IrnEth::Response,
    }
}

/// Changes one thing.
pub fn tamper(u: &mut Unstructured<'_>, headers: &mut Headers, target: &Target) -> Result<()> {
    let bth = &mut headers.bth;
    match u.int_in_range(0..=11)? {
        0 => {
            let opcode = opcode(u, target)?;
            refit(headers, opcode, headers.irn.is_some());
        }
        1 => {
            let opcode = bth.opcode;
            refit(headers, opcode, headers.irn.is_none());
        }
        2 => bth.psn = psn(u, target)?,
        3 => bth.dest_qp = target.qpn,
        4 => bth.ack_req ^= true,
        5 => {
            bth.solicited ^= true;
            // TLT's type, in turn: nothing, important, clock.
            bth.importance = match bth.importance {
                _ if headers.irn.is_none() => Importance::None,
                Importance::None => Importance::Important,
                Importance::Important => Importance::Clock,
                Importance::Clock => Importance::None,
            };
        }
        6 => bth.irn_capable ^= true,
        7 => (bth.pkey, bth.fecn, bth.becn) = u.arbitrary()?,
        8 | 9 => fields(u, headers, target)?,
        _ => bth.psn = Psn::new(near(u, u64::from(bth.psn.get()))? as u32),
    }
    Ok(())
}

/// Fills in whatever extended headers there are.
fn fields(u: &mut Unstructured<'_>, headers: &mut Headers, target: &Target) -> Result<()> {
    let rkey = |u: &mut Unstructured<'_>| Ok(if u.ratio(7, 8)? { target.region.0 } else { u.arbitrary()? });
    if let Some(srqn) = &mut headers.xrc {
        *srqn = if u.ratio(7, 8)? { target.srqn } else { u.arbitrary()? };
    }
    if let Some(reth) = &mut headers.reth {
        (reth.va, reth.rkey, reth.len) = (address(u, target)?, rkey(u)?, length(u, target)?);
    }
    if let Some(aeth) = &mut headers.aeth {
        (aeth.syndrome, aeth.msn) = (u.arbitrary()?, Psn::new(u32::from(u.arbitrary::<u8>()?)));
        if u.ratio(1, 8)? {
            aeth.msn = Psn::new(u.arbitrary()?);
        }
    }
    if let Some(atomic) = &mut headers.atomic {
        (atomic.va, atomic.rkey) = (address(u, target)?, rkey(u)?);
        (atomic.swap_add, atomic.compare) = (u.arbitrary()?, u64::from(u.arbitrary::<u8>()?));
        if u.ratio(3, 4)? {
            atomic.va &= !7;
        }
    }
    if let Some(value) = &mut headers.atomic_ack {
        *value = u.arbitrary()?;
    }
    if let Some(imm) = &mut headers.imm {
        *imm = u.arbitrary()?;
    }
    if let Some(key) = &mut headers.ieth {
        *key = rkey(u)?;
    }
    if let Some(irn) = &mut headers.irn {
        let small = |u: &mut Unstructured<'_>| {
            Ok(if u.ratio(7, 8)? { u32::from(u.arbitrary::<u8>()?) } else { u.arbitrary()? })
        };
        match irn {
            IrnEth::Send { recv_wqe_sn, psn_offset } | IrnEth::WriteImm { recv_wqe_sn, psn_offset } => {
                (*recv_wqe_sn, *psn_offset) = (Psn::new(small(u)?), small(u)? & 0xff_ffff);
            }
            IrnEth::Read { read_wqe_sn } => *read_wqe_sn = Psn::new(small(u)?),
            IrnEth::Ack { selective, run } => (*selective, *run) = (psn(u, target)?, u.arbitrary()?),
            IrnEth::Feedback { kind, subject, path, pull } => {
                (kind.0, *subject, *path, *pull) =
                    (u.arbitrary()?, psn(u, target)?, u.arbitrary()?, Psn::new(small(u)?));
            }
            IrnEth::Write | IrnEth::Response | IrnEth::Clock => {}
        }
    }
    Ok(())
}

/// A whole frame from nothing.
pub fn forge(u: &mut Unstructured<'_>, target: &Target, path: &Path) -> Result<Vec<u8>> {
    let opcode = opcode(u, target)?;
    let mut headers = Headers::new(Bth::new(opcode, target.qpn, psn(u, target)?));
    let flags: u8 = u.arbitrary()?;
    let bth = &mut headers.bth;
    (bth.ack_req, bth.solicited, bth.irn_capable) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
    refit(&mut headers, opcode, target.irn ^ (flags & 0xf0 == 0xf0));
    fields(u, &mut headers, target)?;
    let len = match flags >> 2 & 3 {
        _ if !opcode.has_payload() => 0,
        0 => usize::from(u.arbitrary::<u8>()?),
        1 | 2 => target.mtu,
        _ => usize::from(u.arbitrary::<u16>()?) % 4097,
    };
    Ok(frame(headers, &vec![flags; len], path))
}

/// The bytes of a packet, its ICRC 0.
pub fn frame(mut headers: Headers, payload: &[u8], path: &Path) -> Vec<u8> {
    headers.bth.pad = pad_for(payload.len());
    let mut bytes = vec![0; headers.frame_len(payload.len())];
    let packet =
        TxPacket { headers: &headers, path, payload: Payload::Bytes(payload), timestamp: 0, sideband: Sideband::NONE };
    emit_frame(&packet, None, &mut bytes);
    bytes
}
