//! Sources that expressions can read: fields of packets, queues, buffers, ports and ingress accounts.

use crate::number::Dimension;

/// A field of a packet. Constant while the packet is queued.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum PacketField {
    Arrival,
    Size,
    Value,
    Processing,
    Slack,
    Flow,
    Priority,
    Dscp,
    Input,
    Output,
    Control,
    Red,
}

/// A field of a queue.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum QueueField {
    Size,
    CurrSize,
    /// Bytes of red packets.
    RedSize,
    /// Bytes of its packet that its port is transmitting.
    Sending,
    Packets,
    AdmState,
    SchedState,
    WeightAdm,
    WeightSched,
    /// An index of the queue in its array, by position.
    Index(u8),
    /// A field of the head-of-line packet; 0 for an empty queue.
    Hol(PacketField),
}

/// A field of a buffer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum BufferField {
    Size,
    CurrSize,
    Free,
    AdmState,
}

/// A field of a port.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum PortField {
    Rate,
    CurrSize,
    SchedState,
}

/// A field of the account of an input and priority.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum IngressField {
    CurrSize,
    Shared,
    Headroom,
}

/// The source of a load.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The packet of a condition, or the first of a comparator.
    Packet(PacketField),
    /// The second packet of a comparator.
    Second(PacketField),
    Queue(QueueField),
    Buffer(BufferField),
    Port(PortField),
    Ingress(IngressField),
}

type Row<T> = (&'static str, T, Dimension);

pub(crate) const PACKET: [Row<PacketField>; 12] = [
    ("arrival", PacketField::Arrival, Dimension::Time),
    ("size", PacketField::Size, Dimension::Bytes),
    ("value", PacketField::Value, Dimension::Plain),
    ("processing", PacketField::Processing, Dimension::Plain),
    ("slack", PacketField::Slack, Dimension::Time),
    ("flow", PacketField::Flow, Dimension::Plain),
    ("priority", PacketField::Priority, Dimension::Plain),
    ("dscp", PacketField::Dscp, Dimension::Plain),
    ("input", PacketField::Input, Dimension::Plain),
    ("output", PacketField::Output, Dimension::Plain),
    ("control", PacketField::Control, Dimension::Plain),
    ("red", PacketField::Red, Dimension::Plain),
];

pub(crate) const QUEUE: [Row<QueueField>; 9] = [
    ("size", QueueField::Size, Dimension::Bytes),
    ("currSize", QueueField::CurrSize, Dimension::Bytes),
    ("redSize", QueueField::RedSize, Dimension::Bytes),
    ("sending", QueueField::Sending, Dimension::Bytes),
    ("packets", QueueField::Packets, Dimension::Plain),
    ("admState", QueueField::AdmState, Dimension::Plain),
    ("schedState", QueueField::SchedState, Dimension::Plain),
    ("weightAdm", QueueField::WeightAdm, Dimension::Plain),
    ("weightSched", QueueField::WeightSched, Dimension::Plain),
];

pub(crate) const BUFFER: [Row<BufferField>; 4] = [
    ("size", BufferField::Size, Dimension::Bytes),
    ("currSize", BufferField::CurrSize, Dimension::Bytes),
    ("free", BufferField::Free, Dimension::Bytes),
    ("admState", BufferField::AdmState, Dimension::Plain),
];

pub(crate) const PORT: [Row<PortField>; 3] = [
    ("rate", PortField::Rate, Dimension::Rate),
    ("currSize", PortField::CurrSize, Dimension::Bytes),
    ("schedState", PortField::SchedState, Dimension::Plain),
];

pub(crate) const INGRESS: [Row<IngressField>; 3] = [
    ("currSize", IngressField::CurrSize, Dimension::Bytes),
    ("shared", IngressField::Shared, Dimension::Bytes),
    ("headroom", IngressField::Headroom, Dimension::Bytes),
];

/// The row with this name.
pub(crate) fn row<T: Copy>(rows: &[Row<T>], name: &str) -> Option<(T, Dimension)> {
    rows.iter().find(|(row, ..)| *row == name).map(|(_, field, dimension)| (*field, *dimension))
}

/// All names of rows, for messages.
pub(crate) fn names<T>(rows: &[Row<T>]) -> Vec<&'static str> {
    rows.iter().map(|(name, ..)| *name).collect()
}

impl PacketField {
    /// The number of values of the field, counted from 0, if it is small.
    pub fn values(self) -> Option<i64> {
        match self {
            PacketField::Priority => Some(8),
            PacketField::Dscp => Some(64),
            PacketField::Control | PacketField::Red => Some(2),
            _ => None,
        }
    }
}
