//! Diagnosis of a device before it is opened: what others hold of it.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use irnic_transports::wire::ROCE_PORT;

use super::domain::Domain;
use super::holder::Holder;
use super::sys;

/// Names and ports of a device that other users or programs hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Addresses whose UDP port 4791 is neither free nor held by a process of this user's devices, and its holder.
    pub ports: Vec<(IpAddr, Holder)>,
    /// Processes of other users that hold slots of the device.
    pub slots: Vec<Holder>,
}

impl Taken {
    /// Checks what a device with these addresses would find, without claiming anything. `domain` is as for
    /// [`HostConfig::new`](super::HostConfig::new).
    ///
    /// # Errors
    /// If `domain` is invalid, or port 4791 cannot be probed.
    pub fn probe(domain: &str, addresses: &[IpAddr]) -> io::Result<Taken> {
        let domain = Domain::new(domain)?;
        let mut taken = Taken::default();
        for &address in addresses {
            let owner = Holder::of_name(&domain.udp_name(address));
            let place = SocketAddr::new(address, ROCE_PORT);
            match owner {
                Holder::Process { user, .. } if sys::is_own_user(user) => {}
                Holder::Process { .. } => taken.ports.push((address, owner)),
                // Binding would need the interface.
                _ if matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local()) => {
                    let holder = Holder::of_udp(place);
                    taken.ports.extend((holder != Holder::Unknown).then_some((address, holder)));
                }
                _ => match UdpSocket::bind(place) {
                    Ok(_) => {}
                    Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
                        taken.ports.push((address, Holder::of_udp(place)))
                    }
                    Err(e) => return Err(e),
                },
            }
        }
        let holders = domain.live_slots().into_iter().map(|slot| Holder::of_name(&domain.slot_name(slot)));
        taken.slots = holders.filter(Holder::is_another_user).collect();
        Ok(taken)
    }
}
