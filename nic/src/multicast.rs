//! Multicast groups: which queue pairs take a copy of what is sent to one.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// The groups of a device, by address, with the queue pairs attached to each in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    members: BTreeMap<IpAddr, Vec<u32>>,
}

impl Groups {
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Queue pair numbers that take copies.
    #[inline]
    pub fn members(&self, group: &IpAddr) -> &[u32] {
        self.members.get(group).map_or(&[], Vec::as_slice)
    }

    /// Whether the queue pair is in any group.
    pub fn holds(&self, qpn: u32) -> bool {
        self.members.values().any(|m| m.contains(&qpn))
    }

    /// Adds a queue pair; once is enough (IBA 10.5). Whether it is the first of its group.
    pub fn attach(&mut self, group: IpAddr, qpn: u32) -> bool {
        let members = self.members.entry(group).or_default();
        let first = members.is_empty();
        if !members.contains(&qpn) {
            members.push(qpn);
        }
        first
    }

    /// Removes a queue pair; `None` if it is not in the group, else whether it was the last.
    pub fn detach(&mut self, group: IpAddr, qpn: u32) -> Option<bool> {
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
