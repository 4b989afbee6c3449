//! Mutable state of a running policy, and how programs read it.

use std::sync::Arc;

use super::accounts::Ledger;
use super::heap::Entry;
use super::items::{Items, Packet};
use super::levels::Levels;
use super::schedule::{Arrangement, Bits, Tournament};
use super::store::Store;
use super::weigh::Prepared;
use crate::order::{PacketOrder, SortKey};
use crate::plan::{Classifier, ConditionId, State, Target};
use crate::program::Program;
use crate::source::{BufferField, IngressField, PacketField, PortField, QueueField, Source};

/// The packet that a queue drops.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Victim {
    /// The newest, which is the arriving one if it is of this queue.
    Newest,
    /// The oldest, in a list.
    Oldest,
    /// The last in processing order.
    LastProcessed,
    /// The last in the second store.
    OfSecond,
}

/// Rules shared by many queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    pub processing: u16,
    pub admission: u16,
    pub victim: Victim,
}

/// Stands for no condition.
pub(crate) const NO_CONDITION: ConditionId = ConditionId::MAX;

/// A queue: what every packet needs, in one cache line.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct QueueState {
    pub store: Store,
    pub bytes: u64,
    pub size: u64,
    pub packets: u32,
    pub buffer: u32,
    pub port: u32,
    /// Position among the queues of its port.
    pub place: u16,
    /// Group, and position in it, if the port has bitmaps.
    pub slot: (u16, u16),
    pub rules: u16,
    pub congestion: ConditionId,
    pub after_admission: ConditionId,
    /// Whether it is a list from which only the first is ever removed.
    pub plain: bool,
    /// Whether the bitmaps of its port fit one word each.
    pub small: bool,
    /// Whether changes must be reported to more than its port.
    pub watched: bool,
    /// Whether its buffer selects among its queues.
    pub ranked: bool,
    /// Whether it has changed since the buffer last examined it.
    pub noted: bool,
    /// Whether its second store holds its packets: always, or since one had to be dropped.
    pub doubled: bool,
}

const _: () = assert!(size_of::<QueueState>() == 64);

#[derive(Clone, Debug)]
pub(crate) struct BufferState {
    pub bytes: u64,
    pub size: u64,
    pub adm_state: i64,
    pub congestion: ConditionId,
    pub after_admission: ConditionId,
    pub ledger: Option<Box<Ledger>>,
    /// Selection of the queue that drops a packet.
    pub worst: Option<Box<Worst>>,
    /// Index in the plan.
    pub spec: u32,
}

/// Selects the queue of a buffer that drops a packet.
#[derive(Clone, Debug)]
pub(crate) struct Worst {
    pub tournament: Tournament,
    pub queues: Box<[u32]>,
    /// Queues that have changed since the tournament was updated; each once.
    pub changed: Vec<u32>,
}

#[derive(Clone, Debug)]
pub(crate) enum Scheduling {
    Bits(Bits),
    Tournament(Box<Tournament>),
}

#[derive(Clone, Debug)]
pub(crate) struct PortState {
    pub bytes: u64,
    pub scheduling: Scheduling,
    pub sched_state: i64,
    pub rate: u64,
    pub first_queue: u32,
    /// Number of queues.
    pub queues: u32,
    /// The only queued packet, if it is in no queue's order: as long as no other packet arrives before it departs, no
    /// order need be touched.
    pub only: u32,
    /// Its queue.
    pub only_queue: u32,
    /// Whether this port uses that.
    pub keeps_only: bool,
    /// Whether the order that it may be added to later needs more fields than the host keeps.
    pub keeps_packet: bool,
    pub arrangement: u16,
    pub after_scheduling: Option<ConditionId>,
}

/// A packet in transmission by a port: its queue, and its bytes, 0 once it has left.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Sent {
    pub queue: u32,
    pub bytes: u32,
}

/// All mutable state.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub queues: Box<[QueueState]>,
    pub buffers: Box<[BufferState]>,
    pub ports: Box<[PortState]>,
    /// By port and position there, the queue.
    pub of_ports: Box<[u32]>,
    /// By queue: admState, schedState, weightAdm, weightSched.
    pub states: Box<[[i64; 4]]>,
    /// By queue, its indices.
    pub indices: Box<[[i64; 4]]>,
    /// By queue, its position among the queues of its buffer, if its buffer selects among them.
    pub buffer_places: Box<[u32]>,
    /// By queue, the second store, if it has one.
    pub seconds: Box<[Option<Store>]>,
    pub items: Items,
    /// Fields of all packets, if they are read.
    pub fields: Vec<Packet>,
    pub keeps_fields: bool,
    /// Whether head-of-line packets are read.
    pub reads_heads: bool,
    /// By packet number, its entry in a second store that is only built once a packet has to be dropped.
    pub later: Vec<Entry>,
    /// Scratch space for the packet numbers of a queue.
    pub listed: Vec<u32>,
    /// By port, the packet that is alone there, if [`PortState::keeps_packet`].
    pub alone: Box<[Packet]>,
    /// Bytes of red packets by queue, if they are read.
    pub red: Box<[u64]>,
    /// By port, their maximum in one queue.
    pub red_peaks: Box<[u64]>,
    /// By port, the packet sent last, if it is read.
    pub sent: Box<[Sent]>,
    /// Bytes by input and priority, if they are read.
    pub ingress: Box<[u64]>,
    /// Packets in transit, if ports lead to queues.
    pub levels: Option<Box<Levels>>,
    /// By input, the priorities that neighbours were asked to pause.
    pub stopped: Box<[u8]>,
    pub shared: Arc<Shared>,
}

/// Immutable state, shared by all engines of a plan, so that it is in the processor's cache once.
#[derive(Debug)]
pub(crate) struct Shared {
    pub orders: Box<[PacketOrder]>,
    pub rules: Box<[Rules]>,
    pub conditions: Box<[Prepared]>,
    pub arrangements: Box<[Arrangement]>,
    /// By buffer of the plan, the limit of each account on the shared part.
    pub limits: Box<[Option<Program>]>,
    /// By buffer of the plan, the keys by which it selects among its queues.
    pub buffer_keys: Box<[Vec<SortKey>]>,
    pub classifier: Classifier,
    /// Targets of the plan's ports that lead to queues.
    pub targets: Box<[Target]>,
}

/// The objects that a program reads.
#[derive(Copy, Clone)]
pub(crate) struct Scene<'a> {
    pub queue: usize,
    pub packet: &'a Packet,
}

impl World {
    #[inline]
    pub fn load(&self, scene: Scene<'_>, source: Source) -> i64 {
        match source {
            Source::Packet(field) | Source::Second(field) => scene.packet.field(field),
            Source::Queue(field) => self.of_queue(scene.queue, field),
            Source::Buffer(field) => self.of_buffer(scene.queue, field),
            Source::Port(field) => {
                let port = &self.ports[self.queues[scene.queue].port as usize];
                match field {
                    PortField::Rate => port.rate as i64,
                    PortField::CurrSize => port.bytes as i64,
                    PortField::SchedState => port.sched_state,
                }
            }
            Source::Ingress(field) => self.of_ingress(scene, field),
        }
    }

    #[inline]
    fn of_queue(&self, queue: usize, field: QueueField) -> i64 {
        match field {
            QueueField::Size => self.queues[queue].size as i64,
            QueueField::CurrSize => self.queues[queue].bytes as i64,
            QueueField::RedSize => self.red.get(queue).copied().unwrap_or(0) as i64,
            QueueField::Sending => self.sending(queue).into(),
            QueueField::Packets => self.queues[queue].packets.into(),
            QueueField::AdmState => self.states[queue][0],
            QueueField::SchedState => self.states[queue][1],
            QueueField::WeightAdm => self.states[queue][2],
            QueueField::WeightSched => self.states[queue][3],
            QueueField::Index(place) => self.indices[queue][usize::from(place) % 4],
            QueueField::Hol(field) => self.of_first(queue, field),
        }
    }

    /// Bytes of the packet of a queue that its port is transmitting.
    #[inline]
    pub fn sending(&self, queue: usize) -> u32 {
        let sent = self.sent.get(self.queues[queue].port as usize);
        sent.filter(|sent| sent.queue as usize == queue).map_or(0, |sent| sent.bytes)
    }

    fn of_first(&self, queue: usize, field: PacketField) -> i64 {
        let state = &self.queues[queue];
        let first =
            state.store.first(&self.shared.orders[usize::from(self.shared.rules[usize::from(state.rules)].processing)]);
        first.and_then(|id| self.fields.get(id as usize)).map_or(0, |packet| packet.field(field))
    }

    #[inline]
    fn of_buffer(&self, queue: usize, field: BufferField) -> i64 {
        let Some(buffer) = self.buffers.get(self.queues[queue].buffer as usize) else { return 0 };
        match field {
            BufferField::Size => buffer.size as i64,
            BufferField::CurrSize => buffer.bytes as i64,
            BufferField::Free => match &buffer.ledger {
                Some(ledger) => ledger.free() as i64,
                None => buffer.size as i64 - buffer.bytes as i64,
            },
            BufferField::AdmState => buffer.adm_state,
        }
    }

    fn of_ingress(&self, scene: Scene<'_>, field: IngressField) -> i64 {
        let account = account(scene.packet.input, scene.packet.priority);
        let ledger = self.buffers.get(self.queues[scene.queue].buffer as usize).and_then(|b| b.ledger.as_ref());
        match (field, ledger) {
            (IngressField::CurrSize, _) => self.ingress.get(account).copied().unwrap_or(0) as i64,
            (IngressField::Shared, Some(ledger)) => ledger.shared(account) as i64,
            (IngressField::Headroom, Some(ledger)) => ledger.in_headroom(account) as i64,
            (_, None) => 0,
        }
    }

    /// Changes a state.
    pub fn modify(&mut self, queue: usize, state: State, value: i64) {
        match state {
            State::QueueAdm => self.states[queue][0] = value,
            State::QueueSched => self.states[queue][1] = value,
            State::WeightAdm => self.states[queue][2] = value,
            State::WeightSched => self.states[queue][3] = value,
            State::BufferAdm => {
                if let Some(buffer) = self.buffers.get_mut(self.queues[queue].buffer as usize) {
                    buffer.adm_state = value;
                }
            }
            State::PortSched => self.ports[self.queues[queue].port as usize].sched_state = value,
        }
    }
}

/// Index of the account of an input and a priority.
#[inline]
pub(crate) fn account(input: u16, priority: u8) -> usize {
    usize::from(input) * super::accounts::PRIORITIES + usize::from(priority % 8)
}
