//! Fault rules about frames that hosts send to a [`Lab`](super::Lab): a match and an action.

use std::collections::HashSet;
use std::fmt;

use irnic_transports::wire::opcode::Operation;
use irnic_transports::wire::{Aeth, Headers, Syndrome};

use crate::network::PacketId;

/// The fault applied to a frame.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is lost on the link of the host that sent it.
    Drop,
    /// A bit is flipped, so that the ICRC is wrong.
    Corrupt,
    /// It is sent twice, back to back.
    Duplicate,
    /// It is delayed by this many ns on its way to the first switch. Other frames may overtake it.
    Delay(u64),
}

/// Kinds of frames, by opcode and syndrome.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Every frame.
    Any,
    /// SEND, RDMA WRITE and READ response.
    Data,
    /// SEND, on any service.
    Send,
    /// RDMA WRITE.
    Write,
    /// RDMA READ request.
    ReadRequest,
    /// RDMA READ response.
    ReadResponse,
    /// Compare-and-swap, fetch-and-add, ATOMIC WRITE.
    Atomic,
    /// Response to an atomic request.
    AtomicResponse,
    /// Positive acknowledgement, of READ responses (IRN) as well.
    Ack,
    /// NAK or NACK: packets are missing, or the request was refused.
    Nak,
    /// The receiver is not ready.
    Rnr,
    /// Congestion notification.
    Cnp,
}

impl Kind {
    /// All kinds and their names.
    pub const NAMES: [(&'static str, Kind); 12] = [
        ("any", Kind::Any),
        ("data", Kind::Data),
        ("send", Kind::Send),
        ("write", Kind::Write),
        ("read-request", Kind::ReadRequest),
        ("read-response", Kind::ReadResponse),
        ("atomic", Kind::Atomic),
        ("atomic-response", Kind::AtomicResponse),
        ("ack", Kind::Ack),
        ("nak", Kind::Nak),
        ("rnr", Kind::Rnr),
        ("cnp", Kind::Cnp),
    ];

    /// Returns whether a packet with these headers is of this kind.
    pub fn has(self, headers: &Headers) -> bool {
        let says = |aeth: Option<Aeth>| {
            aeth.map_or(Some(Kind::Ack), |aeth| {
                Syndrome::from_u8(aeth.syndrome).map(|syndrome| match syndrome {
                    Syndrome::Ack { .. } => Kind::Ack,
                    Syndrome::Nak(_) => Kind::Nak,
                    Syndrome::Rnr { .. } => Kind::Rnr,
                })
            })
        };
        let kind = match headers.bth.opcode.operation() {
            Operation::Send => Some(Kind::Send),
            Operation::Write => Some(Kind::Write),
            Operation::ReadRequest => Some(Kind::ReadRequest),
            Operation::ReadResponse => Some(Kind::ReadResponse),
            Operation::Atomic | Operation::AtomicWrite => Some(Kind::Atomic),
            Operation::AtomicAcknowledge => Some(Kind::AtomicResponse),
            Operation::Acknowledge | Operation::ReadAcknowledge => says(headers.aeth),
            Operation::Cnp => Some(Kind::Cnp),
            Operation::Feedback | Operation::ReadFeedback => None,
            Operation::Clock | Operation::ReadClock | Operation::Flush => None,
        };
        match self {
            Kind::Any => true,
            Kind::Data => matches!(kind, Some(Kind::Send | Kind::Write | Kind::ReadResponse)),
            _ => kind == Some(self),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Kind::NAMES.iter().find(|(_, kind)| kind == self).map_or("", |(name, _)| name);
        f.pad(name)
    }
}

/// A rule about frames.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The fault to apply.
    pub action: Action,
    /// Kind of frames to match.
    pub kind: Kind,
    /// Sending host, [`None`] for any.
    pub from: Option<u32>,
    /// Destination host, [`None`] for any.
    pub to: Option<u32>,
    /// Destination queue pair number, [`None`] for any.
    pub qp: Option<u32>,
    /// First matching frame to apply the fault to, counted from 1.
    pub nth: u64,
    /// Number of frames to apply it to from then on; [`u64::MAX`] for all.
    pub count: u64,
}

impl Rule {
    /// Returns the rule that applies an action to every frame.
    pub const fn new(action: Action) -> Rule {
        Rule { action, kind: Kind::Any, from: None, to: None, qp: None, nth: 1, count: u64::MAX }
    }

    /// Returns whether the rule matches a frame from one host to another.
    pub fn is_about(&self, from: u32, to: u32, headers: &Headers) -> bool {
        self.from.is_none_or(|host| host == from)
            && self.to.is_none_or(|host| host == to)
            && self.qp.is_none_or(|qp| qp == headers.bth.dest_qp)
            && self.kind.has(headers)
    }
}

/// In the syntax of [`Command::parse`](super::Command::parse).
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.action {
            Action::Drop => write!(f, "drop")?,
            Action::Corrupt => write!(f, "corrupt")?,
            Action::Duplicate => write!(f, "duplicate")?,
            Action::Delay(ns) => write!(f, "delay {ns}ns")?,
        }
        write!(f, " {}", self.kind)?;
        for (word, number) in [("from", self.from), ("to", self.to), ("qp", self.qp)] {
            if let Some(number) = number {
                write!(f, " {word} {number}")?;
            }
        }
        write!(f, " nth {}", self.nth)?;
        if self.count == u64::MAX { write!(f, " count all") } else { write!(f, " count {}", self.count) }
    }
}

/// A rule in force, with its counters.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Number of the rule, from 1 in order of addition.
    pub id: u32,
    /// The rule.
    pub rule: Rule,
    /// Frames that matched.
    pub matches: u64,
    /// Frames to which the fault was applied.
    pub applied: u64,
}

/// The faults applied to one frame.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    pub lost: bool,
    pub corrupted: bool,
    pub twice: bool,
    /// Additional delay, ns.
    pub later: u64,
}

/// The rules of a lab.
#[derive(Debug, Default)]
pub(super) struct Faults {
    rules: Vec<Placed>,
    last_id: u32,
    /// Corrupted packets in flight.
    corrupted: HashSet<PacketId>,
}

impl Faults {
    pub(super) fn add(&mut self, rule: Rule) -> u32 {
        self.last_id += 1;
        self.rules.push(Placed { id: self.last_id, rule, matches: 0, applied: 0 });
        self.last_id
    }

    /// Removes a rule, or all of them. Returns the number of rules removed.
    pub(super) fn remove(&mut self, id: Option<u32>) -> usize {
        let before = self.rules.len();
        self.rules.retain(|placed| id.is_some_and(|id| placed.id != id));
        before - self.rules.len()
    }

    pub(super) fn rules(&self) -> &[Placed] {
        &self.rules
    }

    /// Returns the fault for a frame: that of the first rule that applies. All matching rules count it.
    #[cold]
    pub(super) fn judge(&mut self, from: u32, to: u32, headers: &Headers) -> Verdict {
        let mut action = None;
        for placed in self.rules.iter_mut().filter(|placed| placed.rule.is_about(from, to, headers)) {
            placed.matches += 1;
            if action.is_none() && placed.matches >= placed.rule.nth && placed.applied < placed.rule.count {
                placed.applied += 1;
                action = Some(placed.rule.action);
            }
        }
        let none = Verdict::default();
        match action {
            None => none,
            Some(Action::Drop) => Verdict { lost: true, ..none },
            Some(Action::Corrupt) => Verdict { corrupted: true, ..none },
            Some(Action::Duplicate) => Verdict { twice: true, ..none },
            Some(Action::Delay(ns)) => Verdict { later: ns, ..none },
        }
    }

    /// Records whether an entering packet is corrupted; its number may be reused.
    #[cold]
    pub(super) fn note(&mut self, id: PacketId, corrupted: bool) {
        if corrupted {
            self.corrupted.insert(id);
        } else if !self.corrupted.is_empty() {
            self.corrupted.remove(&id);
        }
    }

    /// Returns whether a packet that arrived is corrupted.
    #[cold]
    pub(super) fn arrived(&mut self, id: PacketId) -> bool {
        !self.corrupted.is_empty() && self.corrupted.remove(&id)
    }
}

#[cfg(test)]
mod tests {
    use irnic_transports::Psn;
    use irnic_transports::wire::{Bth, NakCode, Opcode};
    use proptest::prelude::*;

    use super::*;

    fn headers(opcode: Opcode, qp: u32, syndrome: Option<Syndrome>) -> Headers {
        let aeth = syndrome.map(|syndrome| Aeth { syndrome: syndrome.to_u8(), msn: Psn::new(0) });
        Headers { aeth, ..Headers::new(Bth::new(opcode, qp, Psn::new(0))) }
    }

    #[test]
    fn kinds_are_told_by_opcode_and_syndrome() {
        let ack = Syndrome::Ack { credits: irnic_transports::wire::Credits::INVALID };
        let rnr = Syndrome::from_u8(0x21);
        let nak = Syndrome::Nak(NakCode::PsnSequenceError);
        let cases = [
            (Opcode::RcSendMiddle, None, "send data"),
            (Opcode::UdSendOnly, None, "send data"),
            (Opcode::XrcWriteLastImm, None, "write data"),
            (Opcode::RcReadRequest, None, "read-request"),
            (Opcode::RcReadResponseLast, Some(ack), "read-response data"),
            (Opcode::RcFetchAdd, None, "atomic"),
            (Opcode::RcAtomicWrite, None, "atomic"),
            (Opcode::RcAtomicAcknowledge, Some(ack), "atomic-response"),
            (Opcode::RcAcknowledge, Some(ack), "ack"),
            (Opcode::RcAcknowledge, Some(nak), "nak"),
            (Opcode::XrcAcknowledge, rnr, "rnr"),
            (Opcode::RcReadAcknowledge, Some(nak), "nak"),
            (Opcode::Cnp, None, "cnp"),
            (Opcode::RcClock, None, ""),
        ];
        for (opcode, syndrome, names) in cases {
            let headers = headers(opcode, 5, syndrome);
            for (name, kind) in Kind::NAMES {
                let expected = name == "any" || names.split(' ').any(|other| other == name);
                assert_eq!(kind.has(&headers), expected, "{opcode:?} {name}");
            }
        }
    }

    #[test]
    fn the_first_rule_that_is_for_a_frame_has_it_and_all_count_it() {
        let mut faults = Faults::default();
        faults.add(Rule { nth: 2, count: 1, ..Rule::new(Action::Drop) });
        faults.add(Rule { count: 2, ..Rule::new(Action::Delay(7)) });
        faults.add(Rule { to: Some(3), ..Rule::new(Action::Corrupt) });
        let headers = headers(Opcode::RcSendOnly, 5, None);
        let (drop, delay) = (Verdict { lost: true, ..Verdict::default() }, Verdict { later: 7, ..Verdict::default() });
        let seen: Vec<Verdict> = (0..4).map(|_| faults.judge(0, 1, &headers)).collect();
        assert_eq!(seen, [delay, drop, delay, Verdict::default()]);
        let counts: Vec<_> = faults.rules().iter().map(|p| (p.id, p.matches, p.applied)).collect();
        assert_eq!(counts, [(1, 4, 1), (2, 4, 2), (3, 0, 0)]);
        assert!(faults.judge(0, 3, &headers).corrupted);
        assert_eq!((faults.remove(Some(2)), faults.remove(Some(2)), faults.remove(None)), (1, 0, 2));
        assert_eq!(faults.add(Rule::new(Action::Drop)), 4, "numbers are not used again");
    }

    fn maybe(of: impl Strategy<Value = u32>) -> impl Strategy<Value = Option<u32>> {
        proptest::option::of(of)
    }

    proptest! {
        #[test]
        fn a_rule_is_for_the_frames_from_its_nth_match_on(
            (from, to, qp) in (maybe(0..3u32), maybe(0..3u32), maybe(4..6u32)),
            kind in 0..Kind::NAMES.len(),
            (nth, count) in (1..5u64, prop_oneof![1..5u64, Just(u64::MAX)]),
            frames in proptest::collection::vec((0..3u32, 0..3u32, 4..6u32, 0..Opcode::ALL.len()), 0..60),
        ) {
            let kind = Kind::NAMES[kind].1;
            let mut faults = Faults::default();
            faults.add(Rule { action: Action::Drop, kind, from, to, qp, nth, count });
            let mut matches = 0;
            for (src, dst, number, opcode) in frames {
                let headers = headers(Opcode::ALL[opcode], number, None);
                let about = from.unwrap_or(src) == src && to.unwrap_or(dst) == dst && qp.unwrap_or(number) == number
                    && kind.has(&headers);
                matches += u64::from(about);
                let lost = about && matches >= nth && matches - nth < count;
                prop_assert_eq!(faults.judge(src, dst, &headers).lost, lost);
            }
            let placed = faults.rules()[0];
            prop_assert_eq!(placed.matches, matches);
            prop_assert_eq!(placed.applied, matches.saturating_sub(nth - 1).min(count));
        }
    }
}
