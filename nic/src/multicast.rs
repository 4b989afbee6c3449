//! Multicast groups: the queue pairs that receive a copy of a packet to a group.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// The multicast groups of a device by address, each with its queue pairs in the order of attachment.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    members: BTreeMap<IpAddr, Vec<u32>>,
}

impl Groups {
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns the numbers of the queue pairs in a group.
    #[inline]
    pub(crate) fn members(&self, group: &IpAddr) -> &[u32] {
        self.members.get(group).map_or(&[], Vec::as_slice)
    }

    /// Returns whether the queue pair is in any group.
    pub(crate) fn holds(&self, qpn: u32) -> bool {
        self.members.values().any(|m| m.contains(&qpn))
    }

    /// Adds a queue pair to a group; adding it again has no effect (IBA 10.5). Returns whether it is the group's first.
    pub(crate) fn attach(&mut self, group: IpAddr, qpn: u32) -> bool {
        let members = self.members.entry(group).or_default();
        let first = members.is_empty();
        if !members.contains(&qpn) {
            members.push(qpn);
        }
        first
    }

    /// Removes a queue pair from a group. Returns `None` if it is not in the group, otherwise whether it was the last.
    pub(crate) fn detach(&mut self, group: IpAddr, qpn: u32) -> Option<bool> {
        let members = self.members.get_mut(&group)?;
        let at = members.iter().position(|&m| m == qpn)?;
        members.remove(at);
        let last = members.is_empty();
        if last {
            self.members.remove(&group);
        }
        Some(last)
    }
}
