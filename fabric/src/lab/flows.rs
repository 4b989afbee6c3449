//! Flows between queue pairs, reconstructed from frames.

use std::collections::BTreeMap;

use irnic_transports::Psn;
use irnic_transports::wire::{Headers, parse};

/// The payload that one queue pair has sent to another: of requests, or of responses to READs and atomics.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SeenFlow {
    /// The sending host.
    pub src: u32,
    /// The receiving host.
    pub dst: u32,
    /// The receiving queue pair's number, 24 bits.
    pub dest_qp: u32,
    /// Bytes of payload, without retransmissions.
    pub bytes: u64,
    /// Bytes of payload sent again.
    pub again: u64,
    /// Time at which the first packet began to leave, ns.
    pub start: u64,
    /// Arrival time of the last packet with payload, ns; 0 if none arrived.
    pub end: u64,
    /// The next packet sequence number to be sent.
    next: Psn,
}

/// All flows, by sender, receiver and the receiving queue pair.
#[derive(Debug, Default)]
pub(super) struct FlowLog(BTreeMap<(u32, u32, u32), SeenFlow>);

impl FlowLog {
    /// Records a frame that begins to leave at `at`, ns.
    pub(super) fn sent(&mut self, src: u32, dst: u32, at: u64, headers: &Headers, payload: u32) {
        if payload == 0 || !headers.bth.opcode.is_reliable() {
            return;
        }
        let (dest_qp, psn) = (headers.bth.dest_qp, headers.bth.psn);
        let begun = SeenFlow { src, dst, dest_qp, bytes: 0, again: 0, start: at, end: 0, next: psn };
        let flow = self.0.entry((src, dst, dest_qp)).or_insert(begun);
        if psn.before(flow.next) {
            flow.again += u64::from(payload);
        } else {
            flow.bytes += u64::from(payload);
            flow.next = psn.plus(1);
        }
    }

    /// Records a frame that has arrived at `at`, ns.
    pub(super) fn arrived(&mut self, src: u32, dst: u32, at: u64, frame: &[u8]) {
        let Ok((headers, payload)) = parse(frame) else { return };
        if let Some(flow) = self.0.get_mut(&(src, dst, headers.bth.dest_qp)).filter(|_| !payload.is_empty()) {
            flow.end = at;
        }
    }

    /// Returns all flows in order of their start.
    pub(super) fn all(&self) -> Vec<SeenFlow> {
        let mut all: Vec<SeenFlow> = self.0.values().copied().collect();
        all.sort_by_key(|flow| flow.start);
        all
    }
}
