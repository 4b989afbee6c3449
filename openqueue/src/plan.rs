//! A policy for a switch with so many ports: which queues, buffers and ports there are, and what decides about them.

use std::sync::{Arc, OnceLock};

use crate::number::Ratio;
use crate::order::{PacketOrder, QueueOrder};
use crate::program::Program;
use crate::run::state::Shared;
use crate::source::{PacketField, QueueField, Source};

/// With what probability something happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Chance {
    /// Without asking chance.
    Always,
    /// The number that a program computes; below 0 is never, above 1 always. Chance is asked all the same.
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

/// Which packet `trim` cuts.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The one that arrives.
    Arriving,
    /// That or the last that waits, by the toss of a coin.
    Coin,
}

/// What a case of a condition does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    Drop(Chance),
    Mark(Chance),
    /// As [`Deed::Drop`], but sends it back if it may go.
    Return,
    Trim(Cut),
    Stop,
    Resume,
    Modify(State, Program),
}

/// A case of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlanCase {
    /// 0 if it does not hold.
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
    /// Every program of the case.
    fn programs(&self) -> impl Iterator<Item = &Program> {
        let of_deeds = self.deeds.iter().filter_map(|deed| match deed {
            Deed::Drop(Chance::Of(p)) | Deed::Mark(Chance::Of(p)) | Deed::Modify(_, p) => Some(p),
            _ => None,
        });
        std::iter::once(&self.when).chain(of_deeds)
    }
}

/// A condition: the first case that holds.
pub(crate) type Condition = Vec<PlanCase>;

/// Where a condition is in [`Plan::conditions`].
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
    /// admState, schedState, weightAdm, weightSched at first.
    pub states: [i64; 4],
    /// The priority of all its packets, if the classifier sees to that.
    pub priority: Option<u8>,
}

/// Accounts of what came by each input with each priority, where neighbours are stopped before there is no room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Accounts {
    /// Bytes that each has for itself.
    pub reserve: u64,
    /// Bytes that each has beyond the limit; `None`: what its link needs.
    pub headroom: Option<u64>,
    /// What each may take of the shared part, bytes.
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

/// How fast a port between queues is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// As a share of the fastest link of the switch.
    Share(Ratio),
    /// bit/s.
    Rate(u64),
}

/// Where a port between queues leads.
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
    /// Where it leads, if to queues. Else it has a link.
    pub way: Option<Way>,
}

/// When a case of the classifier holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum When {
    Always,
    Holds(Program),
    Chance(Program),
}

/// The place of a queue: `base + Σ (index mod count) · stride`.
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

/// What a packet is given when it arrives.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Classifier {
    pub queue: Vec<(When, Target)>,
    pub fields: Vec<(PacketField, Vec<(When, Program)>)>,
}

/// A policy for a switch with so many ports: its queues, buffers and ports, the structures that keep them in order, and
/// the programs that decide. [`crate::Engine`] runs it. Its text, as `irnic oq check` prints it, says what each
/// operation costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// How often all objects are there: for each output, if the policy is one port's.
    pub(crate) copies: usize,
    pub(crate) ports_in_all: usize,
    pub(crate) queues: Vec<QueueSpec>,
    pub(crate) buffers: Vec<BufferSpec>,
    /// Those with links first.
    pub(crate) ports: Vec<PortSpec>,
    pub(crate) orders: Vec<PacketOrder>,
    pub(crate) conditions: Vec<Condition>,
    pub(crate) classifier: Classifier,
    pub(crate) shared: Kept,
}

/// What engines of a plan share, once it was asked for. It follows from the rest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept(pub OnceLock<Arc<Shared>>);

impl PartialEq for Kept {
    fn eq(&self, _other: &Kept) -> bool {
        true
    }
}

impl Plan {
    /// Queues of the switch.
    pub fn queues(&self) -> usize {
        self.queues.len() * self.copies
    }

    /// Ports that the plan is for.
    pub fn ports(&self) -> usize {
        self.ports_in_all
    }

    /// Every program of the plan.
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

    /// How many ports of each copy have a link.
    pub(crate) fn linked(&self) -> usize {
        self.ports.iter().take_while(|port| port.way.is_none()).count()
    }

    /// Whether packets go from queue to queue: ports lead to queues.
    pub fn has_levels(&self) -> bool {
        self.linked() < self.ports.len()
    }

    /// Whether something looks at packets after they have been taken in.
    pub(crate) fn keeps_fields(&self) -> bool {
        if self.has_levels() {
            return true;
        }
        self.orders.iter().any(|order| matches!(order, PacketOrder::Comparator(_)))
            || self.looks_at_heads()
            || self.queues.iter().any(|queue| self.tosses_coin(queue))
            || self.ports.iter().filter_map(|port| port.after_scheduling).any(|id| {
                let own = |field| matches!(field, PacketField::Size | PacketField::Input | PacketField::Priority);
                self.conditions[usize::from(id)].iter().flat_map(PlanCase::programs).any(|program| {
                    program.sources().any(|source| matches!(source, Source::Packet(field) if !own(field)))
                })
            })
    }

    /// Whether something looks at the packets that go next.
    pub(crate) fn looks_at_heads(&self) -> bool {
        let hol = |source| matches!(source, Source::Queue(QueueField::Hol(_)));
        self.programs().any(|program| program.sources().any(hol))
    }

    /// Whether the last packet that waits in a queue may lose its payload.
    pub(crate) fn tosses_coin(&self, queue: &QueueSpec) -> bool {
        let condition = queue.congestion.map(|id| &self.conditions[usize::from(id)]);
        let mut deeds = condition.into_iter().flatten().flat_map(|case| &case.deeds);
        deeds.any(|deed| *deed == Deed::Trim(Cut::Coin))
    }

    /// Whether something looks at the class of packets, or the flow.
    pub fn looks_at_dscp(&self) -> bool {
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

    /// Whether something looks at the bytes of red packets in queues.
    pub fn looks_at_red_sizes(&self) -> bool {
        self.programs()
            .any(|program| program.sources().any(|source| matches!(source, Source::Queue(QueueField::RedSize))))
    }

    /// Whether something looks at the packet that a port is sending.
    pub(crate) fn looks_at_sending(&self) -> bool {
        self.programs()
            .any(|program| program.sources().any(|source| matches!(source, Source::Queue(QueueField::Sending))))
    }

    /// Whether two plans are the same but for the names of their objects: then they do the same.
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

    /// Whether something looks at what came by inputs.
    pub(crate) fn has_ingress(&self) -> bool {
        self.buffers.iter().any(|buffer| buffer.accounts.is_some())
            || self.programs().any(|program| program.sources().any(|source| matches!(source, Source::Ingress(_))))
    }

    /// Whether packets can be dropped that were taken in before.
    pub fn pushes_out(&self) -> bool {
        let arriving_first = |queue: &QueueSpec| self.orders[usize::from(queue.admission)] != PacketOrder::Arrival;
        self.queues.iter().any(arriving_first) || self.buffers.iter().any(|buffer| buffer.order.is_some())
    }

    /// Whether neighbours are asked to stop sending.
    pub fn pauses(&self) -> bool {
        let mut deeds = self.conditions.iter().flatten().flat_map(|case| &case.deeds);
        deeds.any(|deed| *deed == Deed::Stop)
    }
}
