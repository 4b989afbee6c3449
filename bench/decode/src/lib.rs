//! `irnic decode FILE`: prints the RoCEv2 packets of a capture, one line each.

#[macro_use]
extern crate irnic_report;

mod capture_file;

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use irnic_report::output::Stdout;
use irnic_transports::wire::ip::{self, Datagram, ETHERNET_LEN, IpError};
use irnic_transports::wire::mad::{GSI_QPN, Mad, Message, RejReason};
use irnic_transports::wire::{
    Cnp, FeedbackKind, Feth, Headers, ICRC_LEN, Importance, IrnEth, NoticeError, Opcode, RateNotice, Syndrome,
    icrc_of_headers, is_pulled, parse, parse_trimmed,
};
use irnic_transports::{Mark, Psn};
use thiserror::Error;

use crate::capture_file::{CaptureError, CaptureFile, Link, Packet};

/// Arguments of `irnic decode`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Print the RoCEv2 packets of a capture, including IRN headers, and check every ICRC",
    after_help = "\
Each line: seconds since the first packet, addresses, opcode, destination QP and PSN, flags, header fields, payload \
bytes, ICRC. Communication manager messages are shown with their ids. Flags: SE solicited event, A \
acknowledgement requested, C sender capable of IRN, X IRN extension, FECN, BECN, CE congestion experienced, \
trimmed, returned. Other traffic is counted, not shown.

Exit status: 0 done; 1 an ICRC is wrong, a packet does not parse, the file is truncated or output is lost; 2 the file cannot be read \
or is not a capture.

Examples:
  irnic decode fixtures/rxe-pcaps/nak_rnr.pcap
  tcpdump -i eth0 -U -w - udp port 4791 | irnic decode -"
)]
pub struct DecodeArgs {
    /// pcap or pcapng file (Ethernet, raw IP, Linux cooked); - for standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// Numbers of packets of a capture.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// RoCEv2 packets that parse, whatever their ICRC.
    pub roce: u64,
    /// Those of them with a wrong ICRC.
    pub bad_icrc: u64,
    /// Packets to RoCEv2's port that do not parse.
    pub unparsed: u64,
    /// Packets of any other kind.
    pub other: u64,
    /// Those of them with a link layer that irnic does not support.
    pub unknown_link: u64,
}

impl Summary {
    /// Whether every RoCEv2 packet parses and has a correct ICRC.
    pub fn is_clean(&self) -> bool {
        self.bad_icrc == 0 && self.unparsed == 0
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { roce, bad_icrc, unparsed, other, unknown_link } = self;
        write!(
            f,
            "{roce} RoCEv2 packets, {bad_icrc} with a wrong ICRC; {unparsed} do not parse; {other} other packets"
        )?;
        if *unknown_link > 0 {
            write!(f, ", {unknown_link} of them on a link layer unknown to irnic")?;
        }
        Ok(())
    }
}

/// An error that stopped decoding.
#[derive(Debug, Error)]
pub enum Error {
    /// The file cannot be opened.
    #[error("{}: {source}", .path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The file is no capture, or truncated.
    #[error("{}: {source}", .path.display())]
    Capture {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: CaptureError,
    },
    /// The output cannot be written.
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
}

impl Error {
    /// The exit status of the process.
    fn exit_code(&self) -> u8 {
        match self {
            Error::Capture { source: CaptureError::CutShort { .. } | CaptureError::Damaged { .. }, .. }
            | Error::Output(_) => 1,
            Error::Open { .. } | Error::Capture { .. } => 2,
        }
    }
}

/// Runs the command.
pub fn main(args: &DecodeArgs) -> ExitCode {
    let result = if io::stdout().is_terminal() {
        run(&args.file, &mut { Stdout }) // line by line, for live captures
    } else {
        let mut out = BufWriter::new(Stdout);
        let result = run(&args.file, &mut out);
        let flushed = out.flush();
        result.and_then(|summary| Ok(flushed.map(|()| summary)?))
    };
    match result {
        Ok(summary) => ExitCode::from(u8::from(!summary.is_clean())),
        // Already reported where it was detected.
        Err(Error::Output(_)) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("irnic decode: {e}");
            ExitCode::from(e.exit_code())
        }
    }
}

/// Writes a line per RoCEv2 packet of the capture at `path` and a summary line. If the file is truncated, its readable
/// part is written before the error is returned.
pub fn run(path: &Path, out: &mut impl Write) -> Result<Summary, Error> {
    if path.as_os_str() == "-" {
        return decode(path, io::stdin().lock(), out);
    }
    let file = File::open(path).map_err(|source| Error::Open { path: path.into(), source })?;
    decode(path, file, out)
}

fn decode(path: &Path, input: impl Read, out: &mut impl Write) -> Result<Summary, Error> {
    let broken = |source| Error::Capture { path: path.into(), source };
    let mut capture = CaptureFile::open(input).map_err(broken)?;
    let mut summary = Summary::default();
    let mut first = None;
    let end = loop {
        match capture.next_packet() {
            Ok(Some(packet)) => {
                let start = *first.get_or_insert(packet.time);
                packet_line(&packet, packet.time - start, &mut summary, out)?;
            }
            Ok(None) => break Ok(summary),
            Err(e) => break Err(broken(e)),
        }
    };
    writeln!(out, "{summary}")?;
    end
}

/// The datagram behind the packet's link layer, `None` if irnic does not support that.
fn datagram<'a>(packet: &Packet<'a>) -> Option<Result<Datagram<'a>, IpError>> {
    let data = packet.data;
    let cooked = |header: usize, protocol: usize| match data.get(header..) {
        Some(rest) => ip::parse_ethertype(u16::from_be_bytes([data[protocol], data[protocol + 1]]), rest),
        None => Err(IpError::TooShort { header: "Linux cooked", have: data.len() }),
    };
    Some(match packet.link {
        Link::Ethernet => ip::parse_ethernet(data),
        Link::Ip => ip::parse_ip(data),
        Link::Sll => cooked(16, 14),
        Link::Sll2 => cooked(20, 0),
        Link::Other(_) => return None,
    })
}

/// A switch's notice, if the packet is an untagged one.
fn notice(packet: &Packet<'_>) -> Option<Result<RateNotice, NoticeError>> {
    let datagram = match packet.link {
        Link::Ethernet => packet.data.get(ETHERNET_LEN..)?,
        Link::Ip => packet.data,
        _ => return None,
    };
    Some(RateNotice::parse(datagram)).filter(|read| *read != Err(NoticeError::Foreign))
}

fn packet_line(packet: &Packet<'_>, time: i128, summary: &mut Summary, out: &mut impl Write) -> io::Result<()> {
    match notice(packet) {
        None => {}
        Some(Ok(notice)) => {
            summary.other += 1;
            let RateNotice { from, port, queue, src, dst, bth, .. } = notice;
            let rate = notice.fair_rate() / 1_000;
            let (opcode, qp, psn) = (bth.opcode, bth.dest_qp, bth.psn.get());
            return writeln!(
                out,
                "{} {from} > {src}  RATE NOTICE  port={port} rate={rate}kbit/s queue={queue}  about {src} > {dst}  {opcode}  \
                 qp={qp:#08x} psn={psn}",
                Seconds(time)
            );
        }
        Some(Err(e)) => {
            summary.unparsed += 1;
            return writeln!(out, "{} packet {} does not parse: {e}", Seconds(time), packet.number);
        }
    }
    let Some(datagram) = datagram(packet) else {
        summary.other += 1;
        summary.unknown_link += 1;
        return Ok(());
    };
    let datagram = match datagram {
        Ok(datagram) => datagram,
        Err(e) if e.is_foreign() => {
            summary.other += 1;
            return Ok(());
        }
        Err(e) => {
            summary.unparsed += 1;
            write!(out, "{} packet {} does not parse: {e}", Seconds(time), packet.number)?;
            let captured = packet.data.len();
            if captured < packet.original_len {
                write!(out, " (only {captured} of {} bytes were captured)", packet.original_len)?;
            }
            return writeln!(out);
        }
    };
    let path = datagram.path;
    write!(out, "{} {} > {}  ", Seconds(time), path.src, path.dst)?;
    // The IP header marks trimmed packets; what is left of their payload is meaningless.
    let parsed = match path.mark() {
        Mark::Trimmed | Mark::Returned if is_pulled(datagram.frame) => {
            parse_trimmed(datagram.frame).map(|headers| (headers, &[][..]))
        }
        _ => parse(datagram.frame),
    };
    match parsed {
        Ok((headers, payload)) => {
            let right = datagram
                .frame
                .split_last_chunk::<ICRC_LEN>()
                .is_some_and(|(body, tail)| icrc_of_headers(datagram.headers, body) == Some(u32::from_le_bytes(*tail)));
            summary.roce += 1;
            summary.bad_icrc += u64::from(!right);
            let icrc = if right { "ok" } else { "BAD" };
            write!(out, "{}  ", Fields { headers: &headers, path: &path })?;
            if headers.bth.dest_qp == GSI_QPN
                && let Ok(mad) = Mad::parse(payload)
            {
                write!(out, "{}  ", MadFields(&mad.message))?;
            }
            writeln!(out, "payload={}  ICRC {icrc}", payload.len())
        }
        Err(e) => {
            summary.unparsed += 1;
            writeln!(out, "packet {} does not parse: {e}", packet.number)
        }
    }
}

/// Nanoseconds, displayed as seconds. Captures of several interfaces may go back in time.
struct Seconds(i128);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let ns = self.0.unsigned_abs();
        write!(f, "{sign}{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
    }
}

/// Headers in text form.
struct Fields<'a> {
    headers: &'a Headers,
    /// Has the marks of switches: ECN, and whether the packet was trimmed.
    path: &'a irnic_transports::Path,
}

impl fmt::Display for Fields<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Headers { bth, deth, xrc, feth, reth, aeth, atomic, atomic_ack, imm, ieth, cnp, irn, ndp } = self.headers;
        write!(f, "{:<28} qp={:#08x} psn={}", bth.opcode, bth.dest_qp, bth.psn)?;
        for (set, name) in [
            (bth.solicited, "SE"),
            (bth.ack_req, "A"),
            (bth.irn_capable, "C"),
            (irn.is_some(), "X"),
            (ndp.is_some(), "N"),
            (bth.importance == Importance::Important, "important"),
            (bth.importance == Importance::Clock, "clock"),
            (bth.low, "low"),
            (bth.fecn, "FECN"),
            (bth.becn, "BECN"),
            (self.path.traffic_class & 3 == 3, "CE"),
            (ndp.is_some() && self.path.mark() == Mark::Trimmed, "trimmed"),
            (ndp.is_some() && self.path.mark() == Mark::Returned, "returned"),
        ] {
            if set {
                write!(f, " {name}")?;
            }
        }
        if bth.pkey != 0xffff {
            write!(f, "  pkey={:#06x}", bth.pkey)?;
        }
        if let Some(deth) = deth {
            write!(f, "  src_qp={:#08x} qkey={:#010x}", deth.src_qp, deth.qkey)?;
        }
        if let Some(srqn) = xrc {
            write!(f, "  srqn={srqn:#08x}")?;
        }
        if let Some(aeth) = aeth {
            match Syndrome::from_u8(aeth.syndrome) {
                Some(syndrome) => write!(f, "  {syndrome} msn={}", aeth.msn)?,
                None => write!(f, "  reserved syndrome {:#04x} msn={}", aeth.syndrome, aeth.msn)?,
            }
        }
        if let Some(Feth { placement, selectivity }) = feth {
            write!(f, "  placement={placement:#x} selectivity={selectivity}")?;
        }
        if let Some(reth) = reth {
            write!(f, "  va={:#018x} rkey={:#010x} len={}", reth.va, reth.rkey, reth.len)?;
        }
        if let Some(atomic) = atomic {
            write!(f, "  va={:#018x} rkey={:#010x}", atomic.va, atomic.rkey)?;
            if bth.opcode.in_rc() == Opcode::RcCompareSwap {
                write!(f, " compare={:#x} swap={:#x}", atomic.compare, atomic.swap_add)?;
            } else {
                write!(f, " add={:#x}", atomic.swap_add)?;
            }
        }
        if let Some(value) = atomic_ack {
            write!(f, "  original={value:#x}")?;
        }
        if let Some(imm) = imm {
            write!(f, "  imm={imm:#010x}")?;
        }
        if let Some(rkey) = ieth {
            write!(f, "  invalidate={rkey:#010x}")?;
        }
        if let Some(Cnp(bytes)) = cnp {
            write!(f, "  cnp={:032x}", u128::from_be_bytes(*bytes))?;
        }
        match irn {
            Some(IrnEth::Send { recv_wqe_sn, psn_offset } | IrnEth::WriteImm { recv_wqe_sn, psn_offset }) => {
                write!(f, "  recv_wqe_sn={recv_wqe_sn} psn_offset={psn_offset}")
            }
            Some(IrnEth::Read { read_wqe_sn }) => write!(f, "  read_wqe_sn={read_wqe_sn}"),
            Some(IrnEth::Ack { selective, run: 0 }) => write!(f, "  selective={selective}"),
            Some(IrnEth::Ack { selective, run }) => write!(f, "  selective={selective} run={run}"),
            Some(IrnEth::Feedback { kind, subject, path, pull }) => write_feedback(f, *kind, *subject, *path, *pull),
            Some(IrnEth::Write | IrnEth::Response | IrnEth::Clock) | None => Ok(()),
        }?;
        match ndp {
            Some(word) => {
                write!(f, "  src_qp={:#08x}{}", word.source(), if word.is_last() { " last" } else { "" })
            }
            None => Ok(()),
        }
    }
}

fn write_feedback(f: &mut fmt::Formatter<'_>, kind: FeedbackKind, subject: Psn, path: u8, pull: Psn) -> fmt::Result {
    let answers = kind.has(FeedbackKind::ARRIVED) || kind.has(FeedbackKind::TRIMMED);
    for (bit, name) in
        [(FeedbackKind::ARRIVED, "arrived"), (FeedbackKind::TRIMMED, "trimmed"), (FeedbackKind::AGAIN, "again")]
    {
        if kind.has(bit) {
            write!(f, "  {name}")?;
        }
    }
    if answers {
        write!(f, " {subject} by path {path}")?;
    }
    if kind.has(FeedbackKind::PULL) {
        write!(f, "  pull={pull}")?;
    }
    if kind.has(FeedbackKind::OWES_NONE) { f.write_str(" owes none") } else { Ok(()) }
}

/// A message of the communication manager in text form.
struct MadFields<'a>(&'a Message);

impl fmt::Display for MadFields<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = |f: &mut fmt::Formatter<'_>, local: u32, remote: u32| {
            write!(f, " local_id={local:#010x} remote_id={remote:#010x}")
        };
        f.write_str(self.0.name())?;
        match self.0 {
            Message::Req(m) => {
                let fields = &m.fields;
                write!(f, " local_id={:#010x} service={:#018x}", fields.local_comm_id, fields.service_id)?;
                if fields.service_id >> 24 == 1 {
                    write!(f, " port={}", fields.service_id as u16)?;
                }
                write!(f, " qpn={:#08x} starting_psn={}", fields.local_qpn, fields.starting_psn)
            }
            Message::Rep(m) => {
                ids(f, m.local_comm_id, m.remote_comm_id)?;
                let qpn = if m.local_qpn == 0 { m.local_eecn } else { m.local_qpn };
                write!(f, " qpn={qpn:#08x} starting_psn={}", m.starting_psn)
            }
            Message::Rej(m) => {
                ids(f, m.local_comm_id, m.remote_comm_id)?;
                write!(f, " reason={}", RejReason(m.reason))
            }
            Message::Mra(m) => {
                ids(f, m.local_comm_id, m.remote_comm_id)?;
                write!(f, " service_timeout={}", m.service_timeout)
            }
            Message::Rtu(m) => ids(f, m.local_comm_id, m.remote_comm_id),
            Message::Dreq(m) => {
                ids(f, m.local_comm_id, m.remote_comm_id)?;
                write!(f, " qpn={:#08x}", m.remote_qpn)
            }
            Message::Drep(m) => ids(f, m.local_comm_id, m.remote_comm_id),
            Message::SidrReq(m) => {
                write!(f, " request={:#010x} service={:#018x}", m.request_id, m.service_id)?;
                if m.service_id >> 24 == 1 { write!(f, " port={}", m.service_id as u16) } else { Ok(()) }
            }
            Message::SidrRep(m) => {
                write!(f, " request={:#010x} status={} qpn={:#08x}", m.request_id, m.status, m.qpn)
            }
            Message::Lap(m) => ids(f, m.local_comm_id, m.remote_comm_id),
            Message::Apr(m) => {
                ids(f, m.local_comm_id, m.remote_comm_id)?;
                write!(f, " status={}", m.status)
            }
        }
    }
}

#[cfg(test)]
mod tests;
