//! IRN's additional state as counted by its authors (dissertation, §4.5.1), item by item, compared with irnic's.

use irnic_transports::footprint::{Footprint, Item, Per};

use super::Setting;
use super::state::Transport;

/// A line of the comparison, in bits.
#[derive(Copy, Clone, Debug)]
pub(super) struct Row {
    pub(super) per: Per,
    pub(super) what: &'static str,
    /// `None`: not counted by the dissertation.
    pub(super) paper: Option<u64>,
    pub(super) irnic: u64,
    /// Whether it is the sum of the preceding lines.
    pub(super) sum: bool,
}

/// IRN's list compared with irnic's, with irnic's additional state, and the sums of each kind.
pub(super) fn compare(roce: &Footprint, irn: &Footprint, setting: &Setting) -> Vec<Row> {
    use Item::*;
    let item = |item, within| irn.item(item, within);
    let bitmap = setting.bitmap();
    let mut rows = Vec::new();
    let mut kind = |per, all, listed: &[(&'static str, u64, u64)]| {
        let row = |&(what, paper, irnic)| Row { per, what, paper: Some(paper), irnic, sum: false };
        rows.extend(listed.iter().map(row));
        let more = more(roce, irn, per);
        let counted: u64 = listed.iter().map(|(_, _, irnic)| irnic).sum();
        let beyond = more.saturating_sub(counted);
        rows.push(Row { per, what: "not in their list", paper: None, irnic: beyond, sum: false });
        let paper = listed.iter().map(|(_, paper, _)| paper).sum();
        rows.push(Row { per, what: all, paper: Some(paper), irnic: more, sum: true });
    };
    let queue_pair = [
        ("packets to retransmit and to recover, both ends", 96, item(Retransmit, "") + item(Recovery, "")),
        ("flags, both ends", 8, item(Flags, "")),
        ("responder's timer, READ in progress", 56, item(Deadline, "responder") + item(ReadProgress, "")),
        ("bitmaps of requests received, responder", 2 * bitmap, item(Received, "responder")),
        ("bitmap of READ responses, requester", bitmap, item(Received, "requester")),
        ("bitmaps of selective acknowledgements, both", 2 * bitmap, item(Sacked, "")),
    ];
    kind(Per::QueuePair, "a queue pair, in all", &queue_pair);
    let wqe = [("WQE sequence number", 24, item(WqeNumber, ""))];
    kind(Per::SendWqe, "a request WQE, in all", &wqe);
    kind(Per::Nic, "the NIC, in all", &[("BDP cap, RTO_low, N", 80, item(Shared, ""))]);
    let per = Per::QueuePair;
    rows.push(Row { per, what: "of plain RoCE, not needed", paper: None, irnic: more(irn, roce, per), sum: false });
    rows
}

/// Additional bits of one transport over another, field by field.
fn more(less: &Footprint, more: &Footprint, per: Per) -> u64 {
    let bits_in_less = |name: &str| less.fields.iter().find(|field| field.name == name).map_or(0, |field| field.bits);
    let of = more.fields.iter().filter(|field| field.per == per);
    of.map(|field| field.bits.saturating_sub(bits_in_less(&field.name))).sum()
}

/// `roce` and `irn`, if both are among the transports.
pub(super) fn pair(transports: &[Transport]) -> Option<(&Footprint, &Footprint)> {
    let find = |name| transports.iter().find(|t| t.name == name).map(|t| &t.footprint);
    find("roce").zip(find("irn"))
}

/// Bytes of all queue pairs and WQEs of a NIC by the sums of these rows: the authors', and irnic's.
pub(super) fn total(rows: &[Row], setting: &Setting) -> (f64, f64) {
    let count = |per| match per {
        Per::QueuePair => f64::from(setting.qps),
        Per::SendWqe | Per::RecvWqe => f64::from(setting.wqes),
        Per::Nic => 1.0,
    };
    let bytes = |bits: u64, per| bits as f64 / 8.0 * count(per);
    let sums = rows.iter().filter(|row| row.sum);
    sums.fold((0.0, 0.0), |(paper, irnic), row| {
        (paper + bytes(row.paper.unwrap_or(0), row.per), irnic + bytes(row.irnic, row.per))
    })
}
