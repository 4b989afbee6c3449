//! Tables and JSON.

use std::fmt::Write;

use irnic_transports::footprint::{Footprint, Item, Per};
use serde_json::{Value, json};

use super::paper::{self, Row};
use super::{Setting, state::Transport};

/// On-chip bits of bitmaps.
fn bitmaps(footprint: &Footprint) -> u64 {
    footprint.item(Item::Received, "") + footprint.item(Item::Sacked, "")
}

/// On-chip bytes of all queue pairs and work requests of the NIC.
fn chip(footprint: &Footprint, setting: &Setting) -> f64 {
    let bits = |per| footprint.bits(per) as f64;
    let wqes = f64::from(setting.wqes) * (bits(Per::SendWqe) + bits(Per::RecvWqe));
    (f64::from(setting.qps) * bits(Per::QueuePair) + wqes + bits(Per::Nic)) / 8.0
}

/// Bytes of the same in this process's memory.
fn memory(footprint: &Footprint, setting: &Setting) -> f64 {
    let m = footprint.memory;
    f64::from(setting.qps) * m.queue_pair as f64 + f64::from(setting.wqes) * (m.send_wqe + m.recv_wqe) as f64
}

const MIB: f64 = (1 << 20) as f64;

fn percent(bytes: f64, setting: &Setting) -> f64 {
    100.0 * bytes / setting.cache as f64
}

pub(super) fn text(setting: &Setting, transports: &[Transport], fields: bool) -> String {
    let mut out = String::new();
    let rate = setting.rate as f64 / 1e9;
    let rtt = setting.rtt as f64 / 1e3;
    let (cap, mtu) = (setting.cap(), setting.mtu.bytes());
    let _ = writeln!(out, "{rate} Gbit/s, round trip {rtt} us, MTU {mtu}: a bandwidth-delay product of {cap} packets");
    overview(&mut out, setting, transports);
    if let Some((roce, irn)) = paper::pair(transports) {
        compared(&mut out, setting, &paper::compare(roce, irn, setting));
    }
    for transport in transports.iter().filter(|_| fields) {
        listed(&mut out, transport);
    }
    out
}

fn overview(out: &mut String, setting: &Setting, transports: &[Transport]) {
    let (qps, wqes) = (setting.qps, setting.wqes);
    let mut line = |what: &str, value: &dyn Fn(&Transport) -> String| {
        let _ = write!(out, "{what:<44}");
        for transport in transports {
            let width = transport.name.len().max(8);
            let _ = write!(out, "  {:>width$}", value(transport));
        }
        out.push('\n');
    };
    line("\nbits on the chip", &|t| t.name.clone());
    line("  a queue pair", &|t| t.footprint.bits(Per::QueuePair).to_string());
    line("    bitmaps among them", &|t| bitmaps(&t.footprint).to_string());
    line("      each", &|t| if bitmaps(&t.footprint) == 0 { "-".into() } else { t.window.to_string() });
    line("  a request WQE", &|t| t.footprint.bits(Per::SendWqe).to_string());
    line("  a receive WQE", &|t| t.footprint.bits(Per::RecvWqe).to_string());
    line("  parameters, once for the NIC", &|t| t.footprint.bits(Per::Nic).to_string());
    line(&format!("{qps} QPs, {wqes} WQEs each way, MiB"), &|t| format!("{:.2}", chip(&t.footprint, setting) / MIB));
    line("\nbytes in this software", &|t| t.name.clone());
    line("  a queue pair", &|t| t.footprint.memory.queue_pair.to_string());
    line("  a request WQE", &|t| t.footprint.memory.send_wqe.to_string());
    line("  a receive WQE", &|t| t.footprint.memory.recv_wqe.to_string());
    line(&format!("{qps} QPs, {wqes} WQEs each way, MiB"), &|t| format!("{:.2}", memory(&t.footprint, setting) / MIB));
}

fn compared(out: &mut String, setting: &Setting, rows: &[Row]) {
    let _ = writeln!(out, "\n{:<52}{:>8}{:>8}", "what IRN adds to RoCE, bits", "authors", "irnic");
    for row in rows {
        let paper = row.paper.map_or("-".into(), |bits| bits.to_string());
        let indent = if row.sum { "" } else { "  " };
        let _ = writeln!(out, "{:<52}{paper:>8}{:>8}", format!("{indent}{}", row.what), row.irnic);
    }
    let (paper, irnic) = paper::total(rows, setting);
    let what = format!("{} QPs, {} request WQEs, KiB", setting.qps, setting.wqes);
    let _ = writeln!(out, "{what:<52}{:>8.1}{:>8.1}", paper / 1024.0, irnic / 1024.0);
    let cache = setting.cache as f64 / MIB;
    let what = format!("of a cache of {cache} MiB, % (authors: 3-10)");
    let _ = writeln!(out, "{what:<52}{:>8.1}{:>8.1}", percent(paper, setting), percent(irnic, setting));
}

fn listed(out: &mut String, transport: &Transport) {
    let _ = writeln!(out, "\n{}", transport.name);
    for field in &transport.footprint.fields {
        let per = per(field.per);
        let _ = match field.left {
            None => writeln!(out, "  {:>6}  {per:<8}  {}", field.bits, field.name),
            Some(why) => writeln!(out, "       -  {per:<8}  {}: {why}", field.name),
        };
    }
}

fn per(per: Per) -> &'static str {
    match per {
        Per::QueuePair => "qp",
        Per::SendWqe => "send-wqe",
        Per::RecvWqe => "recv-wqe",
        Per::Nic => "nic",
    }
}

pub(super) fn json(setting: &Setting, transports: &[Transport]) -> Value {
    let one = |t: &Transport| {
        let fields = t.footprint.fields.iter().map(
            |field| json!({ "name": field.name, "per": per(field.per), "bits": field.bits, "not_on_chip": field.left }),
        );
        let memory_each = t.footprint.memory;
        json!({
            "transport": t.name,
            "preset": t.preset,
            "bitmap_bits": t.window,
            "qp_bits": t.footprint.bits(Per::QueuePair),
            "qp_bitmap_bits": bitmaps(&t.footprint),
            "send_wqe_bits": t.footprint.bits(Per::SendWqe),
            "recv_wqe_bits": t.footprint.bits(Per::RecvWqe),
            "nic_bits": t.footprint.bits(Per::Nic),
            "chip_bytes": chip(&t.footprint, setting),
            "software": {
                "qp_bytes": memory_each.queue_pair,
                "send_wqe_bytes": memory_each.send_wqe,
                "recv_wqe_bytes": memory_each.recv_wqe,
                "bytes": memory(&t.footprint, setting),
            },
            "fields": fields.collect::<Vec<_>>(),
        })
    };
    let irn = paper::pair(transports).map(|(roce, irn)| {
        let rows = paper::compare(roce, irn, setting);
        let (paper, irnic) = paper::total(&rows, setting);
        let lines = rows.iter().map(
            |row| json!({ "per": per(row.per), "what": row.what, "authors_bits": row.paper, "irnic_bits": row.irnic }),
        );
        json!({
            "rows": lines.collect::<Vec<_>>(),
            "authors_bytes": paper,
            "irnic_bytes": irnic,
            "authors_cache_percent": percent(paper, setting),
            "irnic_cache_percent": percent(irnic, setting),
        })
    });
    json!({
        "rate": setting.rate,
        "rtt_ns": setting.rtt,
        "mtu": setting.mtu.bytes(),
        "cap": setting.cap(),
        "authors_bitmap_bits": setting.bitmap(),
        "reads": setting.reads,
        "qps": setting.qps,
        "wqes": setting.wqes,
        "cache_bytes": setting.cache,
        "transports": transports.iter().map(one).collect::<Vec<_>>(),
        "irn_beside_roce": irn,
    })
}
