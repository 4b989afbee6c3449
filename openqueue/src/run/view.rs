//! Values that programs read.

use super::items::{Packet, Seen};
use crate::program::Program;
use crate::source::{PacketField, Source};

impl Packet {
    /// A packet with no other fields known.
    pub(crate) fn of(seen: Seen) -> Packet {
        Packet { size: seen.size, input: seen.input, priority: seen.priority, red: seen.red, ..Packet::default() }
    }

    #[inline]
    pub(crate) fn seen(&self) -> Seen {
        Seen { size: self.size, input: self.input, priority: self.priority, red: self.red }
    }

    #[inline]
    pub(crate) fn field(&self, field: PacketField) -> i64 {
        match field {
            PacketField::Arrival => self.arrival as i64,
            PacketField::Size => self.size.into(),
            PacketField::Value => self.value,
            PacketField::Processing => self.processing,
            PacketField::Slack => self.slack,
            PacketField::Flow => self.flow as i64,
            PacketField::Priority => self.priority.into(),
            PacketField::Dscp => self.dscp.into(),
            PacketField::Input => self.input.into(),
            PacketField::Output => self.output.into(),
            PacketField::Control => self.control.into(),
            PacketField::Red => self.red.into(),
        }
    }

    pub(crate) fn set(&mut self, field: PacketField, value: i64) {
        match field {
            PacketField::Value => self.value = value,
            PacketField::Processing => self.processing = value,
            PacketField::Slack => self.slack = value,
            PacketField::Flow => self.flow = value as u64,
            _ => {}
        }
    }
}

/// The value that a program about one packet reads.
#[inline]
pub(crate) fn of_packet(packet: &Packet, source: Source) -> i64 {
    match source {
        Source::Packet(field) | Source::Second(field) => packet.field(field),
        _ => 0,
    }
}

/// Whether a comparator orders the first of two packets first.
pub(crate) fn compare(program: &Program, first: &Packet, second: &Packet) -> bool {
    let load = |source| match source {
        Source::Packet(field) => first.field(field),
        Source::Second(field) => second.field(field),
        _ => 0,
    };
    program.run(load) != 0
}
