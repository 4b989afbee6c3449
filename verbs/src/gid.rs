//! The GID table of a port: the addresses of a network interface, in Linux's order for RoCE.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;

use irnic_transports::wire::{Headers, Mtu};

/// A GID's 16 bytes.
pub type Gid = [u8; 16];

/// Returns the GID of an address: IPv4 as IPv4-mapped IPv6 (IBA A17.4.1).
pub(crate) fn gid_of(address: IpAddr) -> Gid {
    match address {
        IpAddr::V4(a) => a.to_ipv6_mapped().octets(),
        IpAddr::V6(a) => a.octets(),
    }
}

/// Returns the address of a GID.
pub fn address_of(gid: &Gid) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from(*gid)).to_canonical()
}

/// Returns whether a GID is a multicast group.
pub(crate) fn is_multicast(gid: &Gid) -> bool {
    gid[0] == 0xff || address_of(gid).is_multicast()
}

/// Returns the IPv4 group that an IPv6 one represents: the last four bytes of ff..::ffff:a.b.c.d.
pub(crate) fn ipv4_group(group: IpAddr) -> Option<IpAddr> {
    let IpAddr::V6(group) = group else { return None };
    let o = group.octets();
    let v4 = IpAddr::from([o[12], o[13], o[14], o[15]]);
    (o[0] == 0xff && o[10..12] == [0xff, 0xff] && v4.is_multicast()).then_some(v4)
}

/// A network interface of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Interface {
    /// Name, such as `eth0`.
    pub name: String,
    /// Index (if_nametoindex(3)).
    pub index: u32,
    /// Whether the interface is up and has a carrier.
    pub up: bool,
    /// Whether it is the loopback interface.
    pub loopback: bool,
    /// MTU in bytes.
    pub mtu: u32,
    /// Hardware address, zero if it has none.
    pub mac: [u8; 6],
    /// Addresses, in the system's order.
    pub addresses: Vec<IpAddr>,
}

impl Interface {
    /// Returns the addresses in the order of a RoCE port's GID table: link-local, then IPv4, then the other IPv6 ones.
    pub fn gids(&self) -> Vec<IpAddr> {
        let rank = |a: &IpAddr| match a {
            IpAddr::V6(a) if a.is_unicast_link_local() => 0,
            IpAddr::V4(_) => 1,
            IpAddr::V6(_) => 2,
        };
        let mut gids = self.addresses.clone();
        gids.sort_by_key(rank);
        gids
    }

    /// Returns the largest path MTU whose packets fit with the longest headers: IPv6, UDP, BTH and its extensions,
    /// ICRC.
    pub fn path_mtu(&self) -> Option<Mtu> {
        Mtu::at_most((self.mtu as usize).saturating_sub(40 + 8 + Headers::MAX_DATA_LEN + 4))
    }

    /// Returns the EUI-64 of the hardware address, the node's GUID.
    pub fn guid(&self) -> u64 {
        let m = self.mac;
        u64::from_be_bytes([m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]])
    }
}

/// Flags of an interface that carries packets: up, and with a carrier (netdevice(7)), from which the kernel's drivers
/// derive whether a port is active. `IFF_RUNNING` comes later.
const CARRIES: libc::c_uint = (libc::IFF_UP | libc::IFF_LOWER_UP) as libc::c_uint;

/// Returns all interfaces of the host, by index.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let mut list = std::ptr::null_mut();
    // SAFETY: the pointer is written.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found: Vec<Interface> = Vec::new();
    let mut next = list;
    while !next.is_null() {
        // SAFETY: an element of the list, which is alive until `freeifaddrs`.
        let entry = unsafe { &*next };
        next = entry.ifa_next;
        // SAFETY: a C string of the list.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) };
        let text = name.to_string_lossy().into_owned();
        let at = found.iter().position(|i| i.name == text).unwrap_or_else(|| {
            found.push(Interface {
                // SAFETY: a C string.
                index: unsafe { libc::if_nametoindex(name.as_ptr()) },
                up: entry.ifa_flags & CARRIES == CARRIES,
                loopback: entry.ifa_flags & libc::IFF_LOOPBACK as u32 != 0,
                mtu: mtu(name),
                name: text,
                mac: [0; 6],
                addresses: Vec::new(),
            });
            found.len() - 1
        });
        // SAFETY: NULL, or a socket address of the list.
        unsafe { add_address(&mut found[at], entry.ifa_addr) };
    }
    // SAFETY: the list that `getifaddrs` returned.
    unsafe { libc::freeifaddrs(list) };
    found.sort_by_key(|i| i.index);
    Ok(found)
}

/// Adds an IP address or the hardware address to an interface. Other kinds are ignored.
///
/// # Safety
/// `address` is NULL, or a socket address as long as its family requires.
unsafe fn add_address(to: &mut Interface, address: *const libc::sockaddr) {
    if address.is_null() {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe {
        match i32::from((*address).sa_family) {
            libc::AF_INET => {
                let a = address.cast::<libc::sockaddr_in>().read_unaligned();
                to.addresses.push(IpAddr::V4(Ipv4Addr::from(a.sin_addr.s_addr.to_ne_bytes())));
            }
            libc::AF_INET6 => {
                let a = address.cast::<libc::sockaddr_in6>().read_unaligned();
                to.addresses.push(IpAddr::V6(Ipv6Addr::from(a.sin6_addr.s6_addr)));
            }
            libc::AF_PACKET => {
                let a = address.cast::<libc::sockaddr_ll>().read_unaligned();
                to.mac.copy_from_slice(&a.sll_addr[..6]);
            }
            _ => {}
        }
    }
}

/// Returns an interface's MTU in bytes. Not from /sys, which may belong to another network namespace.
fn mtu(name: &CStr) -> u32 {
    query_mtu(name).unwrap_or(1500)
}

fn query_mtu(name: &CStr) -> io::Result<u32> {
    // Any socket works.
    let socket = UnixDatagram::unbound()?;
    // SAFETY: all zeros are a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays NUL.
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(name.to_bytes()) {
        *to = *from as libc::c_char;
    }
    // SAFETY: a valid ifreq with a name, into which the kernel writes.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call above wrote this member.
    Ok(unsafe { request.ifr_ifru.ifru_mtu } as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_has_the_mtu_that_the_kernel_says() {
        // Linux's value for loopback; no Ethernet interface has it.
        assert_eq!(query_mtu(c"lo").unwrap(), 65536);
        assert!(query_mtu(c"no-such-if").is_err());
        assert_eq!(mtu(c"no-such-if"), 1500);
    }

    #[test]
    fn gids_and_addresses_are_the_same_thing() {
        for text in ["192.0.2.1", "fe80::1", "2001:db8::5"] {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(address_of(&gid_of(address)), address);
        }
        assert_eq!(gid_of("10.0.0.1".parse().unwrap())[10..], [0xff, 0xff, 10, 0, 0, 1]);
    }

    #[test]
    fn link_local_comes_first_then_ipv4() {
        let parse = |t: &str| t.parse::<IpAddr>().unwrap();
        let interface = Interface {
            name: "eth0".into(),
            index: 2,
            up: true,
            loopback: false,
            mtu: 1500,
            mac: [2, 0, 0, 0, 0, 1],
            addresses: ["192.0.2.2", "2001:db8::2", "fe80::1", "192.0.2.3"].map(parse).to_vec(),
        };
        assert_eq!(interface.gids(), ["fe80::1", "192.0.2.2", "192.0.2.3", "2001:db8::2"].map(parse));
        assert_eq!(interface.path_mtu(), Mtu::at_most(1024));
        assert_eq!(interface.guid(), 0x0000_00ff_fe00_0001);
    }

    #[test]
    fn the_loopback_interface_is_found() {
        let all = interfaces().unwrap();
        assert!(all.iter().any(|i| i.loopback && i.index != 0), "{all:?}");
    }
}
