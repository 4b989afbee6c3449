//! Slots: how the processes of a device divide the queue pair numbers among them.

use std::fmt;

/// A process's share of the 24-bit queue pair numbers: those with the same upper ten bits.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u16);

impl Slot {
    /// Queue pair numbers per slot.
    pub const QPS: u32 = 1 << 14;
    /// The largest slot. Reserved are slot 0, which contains the queue pair numbers 0 (SMI) and 1 (GSI), and slot 1023,
    /// which contains the multicast number 0xffffff (IBA).
    pub const MAX: u16 = 1022;
    /// The first slot that a process may have.
    pub const FIRST: Slot = Slot(1);
    /// Communication ids per slot: those with the same upper ten of 32 bits.
    pub const COMM_IDS: u32 = 1 << 22;

    /// Returns slot `number`; `None` unless it is 1 to [`Slot::MAX`].
    pub fn new(number: u16) -> Option<Slot> {
        (1..=Slot::MAX).contains(&number).then_some(Slot(number))
    }

    /// Returns the slot that a queue pair number belongs to; `None` for reserved numbers.
    #[inline]
    pub fn of(qpn: u32) -> Option<Slot> {
        u16::try_from(qpn / Slot::QPS).ok().and_then(Slot::new)
    }

    /// Returns the slot that a communication id belongs to; `None` for reserved ids.
    #[inline]
    pub fn of_comm_id(id: u32) -> Option<Slot> {
        u16::try_from(id / Slot::COMM_IDS).ok().and_then(Slot::new)
    }

    /// Returns the slot's number, 1 to [`Slot::MAX`].
    #[inline]
    pub fn number(self) -> u16 {
        self.0
    }

    /// Returns the first of the slot's [`Slot::QPS`] queue pair numbers.
    pub fn first_qpn(self) -> u32 {
        u32::from(self.0) * Slot::QPS
    }

    /// Returns the first of the slot's [`Slot::COMM_IDS`] communication ids.
    pub fn first_comm_id(self) -> u32 {
        u32::from(self.0) * Slot::COMM_IDS
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_queue_pair_number_has_one_slot_or_none() {
        for (qpn, slot) in [
            (0, None),
            (1, None),
            (0x3fff, None),
            (0x4000, Some(1)),
            (0x7fff, Some(1)),
            (0x8000, Some(2)),
            (0xff_bfff, Some(1022)),
            (0xff_c000, None),
            (0xff_ffff, None),
            (0x100_4000, None),
            (u32::MAX, None),
        ] {
            assert_eq!(Slot::of(qpn).map(Slot::number), slot, "{qpn:#x}");
        }
        for number in 1..=Slot::MAX {
            let slot = Slot::new(number).unwrap();
            assert_eq!(Slot::of(slot.first_qpn()), Some(slot));
            assert_eq!(Slot::of(slot.first_qpn() + Slot::QPS - 1), Some(slot));
        }
        assert_eq!((Slot::new(0), Slot::new(1023)), (None, None));
    }

    #[test]
    fn every_communication_id_has_one_slot_or_none() {
        for (id, slot) in [
            (0, None),
            (0x3f_ffff, None),
            (0x40_0000, Some(1)),
            (0xffbf_ffff, Some(1022)),
            (0xffc0_0000, None),
            (u32::MAX, None),
        ] {
            assert_eq!(Slot::of_comm_id(id).map(Slot::number), slot, "{id:#x}");
        }
        for number in 1..=Slot::MAX {
            let slot = Slot::new(number).unwrap();
            assert_eq!(Slot::of_comm_id(slot.first_comm_id()), Some(slot));
            assert_eq!(Slot::of_comm_id(slot.first_comm_id() + (Slot::COMM_IDS - 1)), Some(slot));
        }
    }
}
