//! What expressions may look at: fields of packets, queues, buffers, ports and ingress accounts.

use crate::number::Dimension;

/// A field of a packet. None changes while the packet waits.
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
    /// Bytes of its packet that its port is sending.
    Sending,
    Packets,
    AdmState,
    SchedState,
    WeightAdm,
    WeightSched,
    /// Index of the queue in its array, by the place of the index.
    Index(u8),
    /// A field of the packet that goes next; 0 of an empty queue.
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

/// A field of the account of what came by an input with a priority.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum IngressField {
    CurrSize,
    Shared,
    Headroom,
}

/// What one load of a program reads.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Of the packet that a condition is about, or the first of a comparator.
    Packet(PacketField),
    /// Of a comparator's second packet.
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

/// The row of a name.
pub(crate) fn row<T: Copy>(rows: &[Row<T>], name: &str) -> Option<(T, Dimension)> {
    rows.iter().find(|(row, ..)| *row == name).map(|(_, field, dimension)| (*field, *dimension))
}

/// All names of rows, for messages.
pub(crate) fn names<T>(rows: &[Row<T>]) -> Vec<&'static str> {
    rows.iter().map(|(name, ..)| *name).collect()
}

impl PacketField {
    /// The values that the field can have, if they are few: so many from 0.
    pub fn values(self) -> Option<i64> {
        match self {
            PacketField::Priority => Some(8),
            PacketField::Dscp => Some(64),
            PacketField::Control | PacketField::Red => Some(2),
            _ => None,
        }
    }
}
