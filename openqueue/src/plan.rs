//! A policy compiled for a switch with a given number of ports: its queues, buffers and ports, and their rules.

use std::any::Any;
use std::sync::{Arc, OnceLock};

use crate::number::Ratio;
use crate::order::{PacketOrder, QueueOrder};
use crate::program::Program;
use crate::source::{PacketField, QueueField, Source};

/// The probability of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Probability {
    /// Always, without a random number.
    Always,
    /// The value of a program; below 0 is never, above 1 always. A random number is drawn in any case.
    Of(Program),
}

/// A state that actions may change.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    QueueAdm,
    QueueSched,
    WeightAdm,
    WeightSched,
    BufferAdm,
    PortSched,
}

/// The packet that `trim` cuts.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The arriving one.
    Arriving,
    /// The arriving one or the last in the queue, with equal probability.
    Coin,
}

/// An action of a case of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    Drop(Probability),
    Mark(Probability),
    /// Like [`Deed::Drop`], but returns the packet to its sender if possible.
    Return,
    Trim(Cut),
    Stop,
    Resume,
    Modify(State, Program),
}

/// A case of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlanCase {
    /// Value 0 if it does not hold.
    pub when: Program,
    pub deeds: Vec<Deed>,
}

impl When {
    fn program(&self) -> Option<&Program> {
        match self {
            When::Always => None,
            When::Holds(program) | When::Chance(program) => Some(program),
        }
    }
}

impl PlanCase {
    /// All programs of the case.
    fn programs(&self) -> impl Iterator<Item = &Program> {
        let of_deeds = self.deeds.iter().filter_map(|deed| match deed {
            Deed::Drop(Probability::Of(p)) | Deed::Mark(Probability::Of(p)) | Deed::Modify(_, p) => Some(p),
            _ => None,
        });
        std::iter::once(&self.when).chain(of_deeds)
    }
}

/// A condition: its cases, of which the first that holds applies.
pub(crate) type Condition = Vec<PlanCase>;

/// Index in [`Plan::conditions`].
pub(crate) type ConditionId = u16;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct QueueSpec {
    pub name: String,
    pub size: u64,
    pub buffer: Option<u32>,
    pub port: u32,
    pub indices: Vec<i64>,
    pub processing: u16,
    pub admission: u16,
    pub congestion: Option<ConditionId>,
    pub after_admission: Option<ConditionId>,
    /// Initial values of admState, schedState, weightAdm, weightSched.
    pub states: [i64; 4],
    /// The priority of all its packets, if the classifier guarantees it.
    pub priority: Option<u8>,
}

/// Ingress accounts by input and priority, where neighbours are paused before the buffer overflows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Accounts {
    /// Bytes reserved for each.
    pub reserve: u64,
    /// Headroom of each beyond the limit, bytes; `None`: what its link needs.
    pub headroom: Option<u64>,
    /// Limit of each on the shared part, bytes.
    pub limit: Program,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BufferSpec {
    pub name: String,
    pub size: u64,
    pub queues: Vec<u32>,
    pub order: Option<QueueOrder>,
    pub congestion: Option<ConditionId>,
    pub after_admission: Option<ConditionId>,
    pub accounts: Option<Accounts>,
}

/// The rate of a port between queues.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// As a share of the fastest link of the switch.
    Share(Ratio),
    /// In bit/s.
    Rate(u64),
}

/// The target of a port between queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    pub pace: Pace,
    pub target: Target,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PortSpec {
    pub name: String,
    pub queues: Vec<u32>,
    pub order: QueueOrder,
    pub after_scheduling: Option<ConditionId>,
    /// Its target, if it leads to queues; otherwise it has a link.
    pub way: Option<Way>,
}

/// When a case of the classifier holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum When {
    Always,
    Holds(Program),
    Chance(Program),
}

/// The number of a queue: `base + Σ (index mod count) · stride`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub base: u32,
    pub terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Term {
    pub index: Program,
    pub count: u32,
    pub stride: u32,
}

/// Classification of arriving packets.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Classifier {
    pub queue: Vec<(When, Target)>,
    pub fields: Vec<(PacketField, Vec<(When, Program)>)>,
}

/// A policy compiled for a switch with a given number of ports: its queues, buffers and ports, the structures that keep
/// them in order, and the programs of its rules. [`crate::Engine`] runs it. Its text, as printed by `irnic oq check`,
/// states the cost of each operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Number of copies of all objects: one per output, if the policy is a single port's.
    pub(crate) copies: usize,
    pub(crate) ports_in_all: usize,
    pub(crate) queues: Vec<QueueSpec>,
    pub(crate) buffers: Vec<BufferSpec>,
    /// Ports, those with links first.
    pub(crate) ports: Vec<PortSpec>,
    pub(crate) orders: Vec<PacketOrder>,
    pub(crate) conditions: Vec<Condition>,
    pub(crate) classifier: Classifier,
    pub(crate) derived: Derived,
}

/// What engines derive from a plan and share, computed on first use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Derived(OnceLock<Arc<dyn Any + Send + Sync>>);

impl Derived {
    /// Returns what `make` returned at the first call. All callers want the same type.
    pub fn get_or_init<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let derived = self.0.get_or_init(|| Arc::new(make())).clone();
        derived.downcast().expect("the type of the first call")
    }
}

impl PartialEq for Derived {
    fn eq(&self, _other: &Derived) -> bool {
        true
    }
}

impl Plan {
    /// Number of queues of the switch.
    pub fn queues(&self) -> usize {
        self.queues.len() * self.copies
    }

    /// Number of ports that the plan is for.
    pub fn ports(&self) -> usize {
        self.ports_in_all
    }

    /// All programs of the plan.
    fn programs(&self) -> impl Iterator<Item = &Program> {
        let deeds = self.conditions.iter().flatten().flat_map(PlanCase::programs);
        let orders = self.orders.iter().flat_map(|order| match order {
            PacketOrder::Keys(keys) => keys.iter().map(|key| &key.program).collect::<Vec<_>>(),
            PacketOrder::Comparator(program) => vec![program],
            PacketOrder::Arrival | PacketOrder::Reverse => Vec::new(),
        });
        let of_queues = self.ports.iter().map(|p| &p.order).chain(self.buffers.iter().filter_map(|b| b.order.as_ref()));
        let of_queues = of_queues.flat_map(|order| {
            order.0.iter().filter_map(|key| match key {
                crate::order::QueueKey::Number(key) => Some(&key.program),
                crate::order::QueueKey::Turn(_) => None,
            })
        });
        let limits = self.buffers.iter().filter_map(|b| b.accounts.as_ref().map(|a| &a.limit));
        deeds.chain(orders).chain(of_queues).chain(limits)
    }

    /// Number of ports of each copy with a link.
    pub(crate) fn linked(&self) -> usize {
        self.ports.iter().take_while(|port| port.way.is_none()).count()
    }

    /// Whether packets move from queue to queue, since ports lead to queues.
    pub fn has_levels(&self) -> bool {
        self.linked() < self.ports.len()
    }

    /// Whether packet fields are read after admission.
    pub(crate) fn keeps_fields(&self) -> bool {
        if self.has_levels() {
            return true;
        }
        self.orders.iter().any(|order| matches!(order, PacketOrder::Comparator(_)))
            || self.reads_heads()
            || self.queues.iter().any(|queue| self.tosses_coin(queue))
            || self.ports.iter().filter_map(|port| port.after_scheduling).any(|id| {
                let own = |field| matches!(field, PacketField::Size | PacketField::Input | PacketField::Priority);
                self.conditions[usize::from(id)].iter().flat_map(PlanCase::programs).any(|program| {
                    program.sources().any(|source| matches!(source, Source::Packet(field) if !own(field)))
                })
            })
    }

    /// Whether head-of-line packets are read.
    pub(crate) fn reads_heads(&self) -> bool {
        let hol = |source| matches!(source, Source::Queue(QueueField::Hol(_)));
        self.programs().any(|program| program.sources().any(hol))
    }

    /// Whether the last packet of a queue may be trimmed.
    pub(crate) fn tosses_coin(&self, queue: &QueueSpec) -> bool {
        let condition = queue.congestion.map(|id| &self.conditions[usize::from(id)]);
        let mut deeds = condition.into_iter().flatten().flat_map(|case| &case.deeds);
        deeds.any(|deed| *deed == Deed::Trim(Cut::Coin))
    }

    /// Whether the class or the flow of packets is read.
    pub fn reads_dscp(&self) -> bool {
        let of_classes = self.classifier.fields.iter().flat_map(|(_, cases)| cases);
        let of_classes = of_classes.flat_map(|(when, program)| [when.program(), Some(program)]);
        let of_queues = self
            .classifier
            .queue
            .iter()
            .flat_map(|(when, target)| target.terms.iter().map(|term| Some(&term.index)).chain([when.program()]));
        let ways = self.ports.iter().filter_map(|port| port.way.as_ref());
        let ways = ways.flat_map(|way| way.target.terms.iter().map(|term| &term.index));
        let all = self.programs().chain(of_classes.flatten()).chain(of_queues.flatten()).chain(ways);
        let is = |source| {
            matches!(
                source,
                Source::Packet(PacketField::Dscp)
                    | Source::Second(PacketField::Dscp)
                    | Source::Queue(QueueField::Hol(PacketField::Dscp))
            )
        };
        all.into_iter().any(|program| program.sources().any(is))
    }

    /// Whether the bytes of red packets in queues are read.
    pub fn reads_red_sizes(&self) -> bool {
        self.programs()
            .any(|program| program.sources().any(|source| matches!(source, Source::Queue(QueueField::RedSize))))
    }

    /// Whether the packet in transmission by a port is read.
    pub(crate) fn reads_sending(&self) -> bool {
        self.programs()
            .any(|program| program.sources().any(|source| matches!(source, Source::Queue(QueueField::Sending))))
    }

    /// Whether two plans are equal except for the names of their objects, and so equivalent.
    pub fn does_as(&self, other: &Plan) -> bool {
        let nameless = |plan: &Plan| {
            let mut plan = plan.clone();
            plan.queues.iter_mut().for_each(|queue| queue.name.clear());
            plan.buffers.iter_mut().for_each(|buffer| buffer.name.clear());
            plan.ports.iter_mut().for_each(|port| port.name.clear());
            plan
        };
        nameless(self) == nameless(other)
    }

    /// Whether ingress bytes are read.
    pub(crate) fn has_ingress(&self) -> bool {
        self.buffers.iter().any(|buffer| buffer.accounts.is_some())
            || self.programs().any(|program| program.sources().any(|source| matches!(source, Source::Ingress(_))))
    }

    /// Whether queued packets can be dropped.
    pub fn pushes_out(&self) -> bool {
        let arriving_first = |queue: &QueueSpec| self.orders[usize::from(queue.admission)] != PacketOrder::Arrival;
        self.queues.iter().any(arriving_first) || self.buffers.iter().any(|buffer| buffer.order.is_some())
    }

    /// Whether neighbours are paused.
    pub fn pauses(&self) -> bool {
        let mut deeds = self.conditions.iter().flatten().flat_map(|case| &case.deeds);
        deeds.any(|deed| *deed == Deed::Stop)
    }
}
