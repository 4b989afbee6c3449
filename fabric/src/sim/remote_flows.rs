//! Flows whose ends are in different parts of a network, at their end.
//!
//! When a sender learns that its flow is complete, the receiver's queue pair is destroyed in the same moment, which
//! lies within a window that the receiver's part may have worked off already, or only half of it. So the sender's part
//! announces every packet by which it could learn that, a window ahead ([`crate::network::Endpoint::awaits`]); and once
//! that moment has come at the receiver, whoever needs to know whether the queue pair is still there waits until the
//! sender's part has come as far and says it ([`Answers`]).

use std::hint;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use irnic_nic::Nic;

/// So often a thread looks before it lets others have its core.
const SPINS: usize = 200;

/// Of each flow, how many packets that were announced have come, and after how many of them it was complete.
#[derive(Debug)]
pub(super) struct Answers {
    /// The former in the lower half, the latter in the upper; 0 if it is not complete.
    flows: Vec<AtomicU32>,
    given_up: AtomicBool,
}

impl Answers {
    /// Of so many flows.
    pub(super) fn new(flows: usize) -> Answers {
        Answers { flows: (0..flows).map(|_| AtomicU32::new(0)).collect(), given_up: AtomicBool::new(false) }
    }

    /// A packet that was announced has come, with which the flow was complete or was not.
    pub(super) fn say(&self, flow: u32, complete: bool) {
        let answer = &self.flows[flow as usize];
        let (came, before) = halves(answer.load(Ordering::Relaxed));
        let came = came + 1;
        let after = if complete && before == 0 { came } else { before };
        answer.store(u32::from(after) << 16 | u32::from(came), Ordering::Release);
    }

    /// Whether a flow was complete with the `n`-th packet that was announced or before. Waits until that has come,
    /// unless the run has been given up.
    fn is_complete(&self, flow: u32, n: u16) -> bool {
        let mut spins = 0;
        loop {
            let (came, after) = halves(self.flows[flow as usize].load(Ordering::Acquire));
            let complete = after != 0 && after <= n;
            // Of a complete flow nobody counts any more.
            if complete || came >= n || self.given_up.load(Ordering::Relaxed) {
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

    /// No more answers will come.
    pub(super) fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }
}

fn halves(answer: u32) -> (u16, u16) {
    (answer as u16, (answer >> 16) as u16)
}

/// What a host has to do with flows that end in other parts.
#[derive(Debug)]
pub(super) struct RemoteFlows {
    answers: Arc<Answers>,
    /// Flows from here that have arrived, and of which this host does not know it yet.
    awaited: Vec<Awaited>,
    /// Queue pairs here of flows that may be complete.
    doubts: Vec<Doubt>,
}

/// A flow whose sender is about to learn that it has arrived.
#[derive(Copy, Clone, Debug)]
struct Awaited {
    qpn: u32,
    flow: u32,
    /// Its receiver.
    dst: u32,
}

/// A queue pair that is there no more if the flow was complete with the `n`-th packet that was announced.
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

    /// A flow of this host's queue pair has arrived at `dst`.
    pub(super) fn expect(&mut self, qpn: u32, flow: u32, dst: u32) {
        self.awaited.push(Awaited { qpn, flow, dst });
    }

    /// The flow of a queue pair that is awaited.
    pub(super) fn flow_of(&self, qpn: u32) -> Option<u32> {
        self.awaited.iter().find(|awaited| awaited.qpn == qpn).map(|awaited| awaited.flow)
    }

    /// Whom to tell of a packet for a queue pair: the receiver of its flow, and which that is.
    pub(super) fn awaits(&self, qpn: u32) -> Option<(u32, u32)> {
        self.awaited.iter().find(|awaited| awaited.qpn == qpn).map(|awaited| (awaited.dst, awaited.flow))
    }

    /// A flow is awaited no more.
    pub(super) fn forget(&mut self, flow: u32) {
        self.awaited.retain(|awaited| awaited.flow != flow);
    }

    /// From now on a flow may be complete, and its queue pair gone. One that may do something by itself is looked after
    /// at once.
    pub(super) fn doubt(&mut self, qpn: u32, flow: u32, n: u16, nic: &mut Nic) {
        self.doubts.push(Doubt { qpn, flow, n });
        if !nic.is_quiet(qpn) {
            self.resolve(qpn, nic);
        }
    }

    /// A packet has come for a queue pair: if it may be gone, finds out.
    #[inline]
    pub(super) fn resolve(&mut self, qpn: u32, nic: &mut Nic) {
        if !self.doubts.is_empty() {
            self.resolve_those(nic, |doubt| doubt.qpn == qpn);
        }
    }

    /// All parts are as far as this one: finds out what is left.
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
                // It may be gone since an earlier doubt.
                let _ = nic.destroy_qp(doubt.qpn);
            }
            false
        });
    }
}
