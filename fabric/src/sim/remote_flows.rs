//! Completion of flows whose ends are in different parts of a network.
//!
//! When a sender learns that its flow is complete, the receiver's queue pair is destroyed at that instant, which lies
//! in a window that the receiver's part may have processed already, or only half of it. So the sender's part announces
//! every packet that may complete the flow a window ahead ([`crate::network::Endpoint::awaits`]); once that instant has
//! come at the receiver, a thread that needs to know whether the queue pair still exists waits until the sender's part
//! has advanced that far and reports it ([`Answers`]).

use std::hint;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use irnic_nic::Nic;

/// Number of spins before a thread yields its core.
const SPINS: usize = 200;

/// By flow, the number of announced packets that have arrived, and after how many of them it was complete.
#[derive(Debug)]
pub(super) struct Answers {
    /// The former in the lower half, the latter in the upper; 0 if not complete.
    flows: Vec<AtomicU32>,
    given_up: AtomicBool,
}

impl Answers {
    /// For this many flows.
    pub(super) fn new(flows: usize) -> Answers {
        Answers { flows: (0..flows).map(|_| AtomicU32::new(0)).collect(), given_up: AtomicBool::new(false) }
    }

    /// Counts an announced packet that has arrived and has completed the flow, or has not.
    pub(super) fn say(&self, flow: u32, complete: bool) {
        let answer = &self.flows[flow as usize];
        let (arrived, before) = halves(answer.load(Ordering::Relaxed));
        let arrived = arrived + 1;
        let after = if complete && before == 0 { arrived } else { before };
        answer.store(u32::from(after) << 16 | u32::from(arrived), Ordering::Release);
    }

    /// Whether a flow was complete with the `n`-th announced packet or before. Waits until that one has arrived, unless
    /// the run has been given up.
    fn is_complete(&self, flow: u32, n: u16) -> bool {
        let mut spins = 0;
        loop {
            let (arrived, after) = halves(self.flows[flow as usize].load(Ordering::Acquire));
            let complete = after != 0 && after <= n;
            // Packets of a complete flow are no longer counted.
            if complete || arrived >= n || self.given_up.load(Ordering::Relaxed) {
                return complete;
            }
            spins += 1;
            if spins < SPINS {
                hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
    }

    /// Releases waiting threads: no more answers will come.
    pub(super) fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }
}

fn halves(answer: u32) -> (u16, u16) {
    (answer as u16, (answer >> 16) as u16)
}

/// A host's state of flows that end in other parts.
#[derive(Debug)]
pub(super) struct RemoteFlows {
    answers: Arc<Answers>,
    /// Flows sent from here that have arrived, but are not yet known to be complete at this host.
    awaited: Vec<Awaited>,
    /// Queue pairs here of flows that may be complete.
    doubts: Vec<Doubt>,
}

/// A flow that has arrived and is about to be acknowledged.
#[derive(Copy, Clone, Debug)]
struct Awaited {
    qpn: u32,
    flow: u32,
    /// Receiving host.
    dst: u32,
}

/// A queue pair that no longer exists if the flow was complete with the `n`-th announced packet.
#[derive(Copy, Clone, Debug)]
struct Doubt {
    qpn: u32,
    flow: u32,
    n: u16,
}

impl RemoteFlows {
    pub(super) fn new(answers: Arc<Answers>) -> RemoteFlows {
        RemoteFlows { answers, awaited: Vec::new(), doubts: Vec::new() }
    }

    /// Notes that a flow of this host's queue pair has arrived at `dst`.
    pub(super) fn expect(&mut self, qpn: u32, flow: u32, dst: u32) {
        self.awaited.push(Awaited { qpn, flow, dst });
    }

    /// The awaited flow of a queue pair.
    pub(super) fn flow_of(&self, qpn: u32) -> Option<u32> {
        self.awaited.iter().find(|awaited| awaited.qpn == qpn).map(|awaited| awaited.flow)
    }

    /// The host to notify of a packet for a queue pair, the receiver of its flow, and the flow.
    pub(super) fn awaits(&self, qpn: u32) -> Option<(u32, u32)> {
        self.awaited.iter().find(|awaited| awaited.qpn == qpn).map(|awaited| (awaited.dst, awaited.flow))
    }

    /// Stops awaiting a flow.
    pub(super) fn forget(&mut self, flow: u32) {
        self.awaited.retain(|awaited| awaited.flow != flow);
    }

    /// Notes that from now on a flow may be complete, and its queue pair destroyed. If the queue pair may act on its
    /// own, the doubt is resolved at once.
    pub(super) fn doubt(&mut self, qpn: u32, flow: u32, n: u16, nic: &mut Nic) {
        self.doubts.push(Doubt { qpn, flow, n });
        if !nic.is_quiet(qpn) {
            self.resolve(qpn, nic);
        }
    }

    /// Resolves doubts about a queue pair for which a packet has arrived.
    #[inline]
    pub(super) fn resolve(&mut self, qpn: u32, nic: &mut Nic) {
        if !self.doubts.is_empty() {
            self.resolve_those(nic, |doubt| doubt.qpn == qpn);
        }
    }

    /// Resolves all doubts, once all parts have advanced as far as this one.
    pub(super) fn resolve_all(&mut self, nic: &mut Nic) {
        self.resolve_those(nic, |_| true);
    }

    #[cold]
    fn resolve_those(&mut self, nic: &mut Nic, those: impl Fn(&Doubt) -> bool) {
        let answers = &self.answers;
        self.doubts.retain(|doubt| {
            if !those(doubt) {
                return true;
            }
            if answers.is_complete(doubt.flow, doubt.n) {
                // An earlier doubt may have destroyed it.
                let _ = nic.destroy_qp(doubt.qpn);
            }
            false
        });
    }
}
