//! Socket addresses in their C form, and the devices for them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};

use irnic_transports::Path;

use crate::device::DeviceInfo;
use crate::errno::{Errno, Result};
use crate::gid::{Gid, address_of, gid_of};
use crate::objects::devices;

const AF_INET: u16 = libc::AF_INET as u16;
const AF_INET6: u16 = libc::AF_INET6 as u16;
/// Addresses of InfiniBand: struct sockaddr_ib of `rdma/ib.h`.
const AF_IB: u16 = 27;
/// Bytes of a sockaddr_ib.
const IB_LEN: usize = 48;

/// UDP source port of management datagrams: the first of those recommended by RoCEv2.
const UDP_SRC: u16 = 0xc000;
const HOP_LIMIT: u8 = 64;
/// A port to which nothing is sent: only used to query the kernel's choice of a source address.
const DISCARD: u16 = 9;

/// An address in `AF_IB`: a GID and a service.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct IbAddress {
    pub(super) pkey: u16,
    pub(super) gid: Gid,
    pub(super) service: u64,
    pub(super) mask: u64,
}

/// A socket address.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    Ip(SocketAddr),
    Ib(IbAddress),
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("as many bytes as asked for")
}

impl Address {
    /// Parses a socket address of `size` bytes. `None` for no address: a size of 0.
    pub(super) fn parse(bytes: &[u8; 128], size: u16) -> Result<Option<Address>> {
        let size = usize::from(size);
        if size == 0 {
            return Ok(None);
        }
        let family = u16::from_ne_bytes(bytes_at(bytes, 0));
        let port = u16::from_be_bytes(bytes_at(bytes, 2));
        Ok(Some(match family {
            AF_INET if size >= 16 => Address::Ip(SocketAddr::new(Ipv4Addr::from(bytes_at::<4>(bytes, 4)).into(), port)),
            AF_INET6 if size >= 28 => {
                let scope = u32::from_ne_bytes(bytes_at(bytes, 24));
                Address::Ip(SocketAddrV6::new(Ipv6Addr::from(bytes_at::<16>(bytes, 8)), port, 0, scope).into())
            }
            AF_IB if size >= IB_LEN => Address::Ib(IbAddress {
                pkey: port,
                gid: bytes_at(bytes, 8),
                service: u64::from_be_bytes(bytes_at(bytes, 24)),
                mask: u64::from_be_bytes(bytes_at(bytes, 32)),
            }),
            // rsockets resolves without a source: a zeroed address of the right size.
            0 => return Ok(None),
            _ => return Err(Errno(libc::EINVAL)),
        }))
    }

    /// Writes a socket address. Returns its size.
    pub(super) fn emit(self, out: &mut [u8; 128]) -> u16 {
        *out = [0; 128];
        match self {
            Address::Ip(address) => {
                out[2..4].copy_from_slice(&address.port().to_be_bytes());
                match address {
                    SocketAddr::V4(v4) => {
                        out[..2].copy_from_slice(&AF_INET.to_ne_bytes());
                        out[4..8].copy_from_slice(&v4.ip().octets());
                        16
                    }
                    SocketAddr::V6(v6) => {
                        out[..2].copy_from_slice(&AF_INET6.to_ne_bytes());
                        out[8..24].copy_from_slice(&v6.ip().octets());
                        out[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
                        28
                    }
                }
            }
            Address::Ib(IbAddress { pkey, gid, service, mask }) => {
                out[..2].copy_from_slice(&AF_IB.to_ne_bytes());
                out[2..4].copy_from_slice(&pkey.to_be_bytes());
                out[8..24].copy_from_slice(&gid);
                out[24..32].copy_from_slice(&service.to_be_bytes());
                out[32..40].copy_from_slice(&mask.to_be_bytes());
                IB_LEN as u16
            }
        }
    }
}

/// Returns the device that has an address, by its index in the list.
fn device_of(address: IpAddr) -> Option<usize> {
    devices().iter().position(|device| device.info().gids.contains(&gid_of(address)))
}

/// Returns whether an address refers to this host's device without being one of its own: the wildcard, and loopback
/// addresses on a host whose devices have none.
fn means_the_device(address: IpAddr) -> bool {
    let mut gids = devices().iter().flat_map(|device| &device.info().gids);
    address.is_unspecified()
        || address.is_loopback() && !gids.any(|gid| address_of(gid).is_loopback())
        || address == IpAddr::from([127, 0, 0, 1]) && device_of(address).is_none()
        || address == IpAddr::from(Ipv6Addr::LOCALHOST)
}

/// Returns the address of a device, one of its GIDs, to be used for `like`: itself, one of its family, or any.
pub(super) fn address_on(info: &DeviceInfo, like: IpAddr) -> Option<IpAddr> {
    let addresses = || info.gids.iter().map(address_of);
    let link_local = |ip: &IpAddr| matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
    let of_family = |ip: &IpAddr| ip.is_ipv4() == like.is_ipv4();
    addresses()
        .find(|ip| *ip == like)
        .or_else(|| addresses().find(|ip| of_family(ip) && link_local(ip) == link_local(&like)))
        .or_else(|| addresses().find(of_family))
        .or_else(|| addresses().next())
}

/// Returns the device that an id is bound to when it is bound to an address: `None` if that leaves the device open, as
/// for the wildcard and a loopback address that is not a device's (the kernel's `cma_any_addr`). EADDRNOTAVAIL if no
/// device has it.
pub(super) fn bound_device(address: IpAddr) -> Result<Option<usize>> {
    if address.is_unspecified() {
        return Ok(None);
    }
    match device_of(address) {
        Some(device) => Ok(Some(device)),
        None if means_the_device(address) && !devices().is_empty() => Ok(None),
        None => Err(Errno(libc::EADDRNOTAVAIL)),
    }
}

/// How a destination is reached.
#[derive(Copy, Clone, Debug)]
pub(super) struct Found {
    /// The device, by its index in the list.
    pub(super) device: usize,
    /// This side's socket address, without a port.
    pub(super) src: IpAddr,
    /// The peer's socket address.
    pub(super) dst: SocketAddr,
    /// Both devices' addresses.
    pub(super) path: Path,
}

/// Finds the device and the source address from which a destination is reached, for `rdma_resolve_addr`. `src` is an
/// address requested by the caller, `bound` a device that the id has already.
///
/// # Errors
/// The kernel's error if it has no route (ENETUNREACH, EHOSTUNREACH); ENODEV if the route leads over an interface
/// without a device; EADDRNOTAVAIL if no device has `src`.
pub(super) fn find(dst: SocketAddr, src: Option<IpAddr>, bound: Option<usize>) -> Result<Found> {
    let wanted = src.filter(|ip| !ip.is_unspecified());
    let bound = match wanted {
        Some(ip) => bound_device(ip)?.or(bound),
        None => bound,
    };
    let local = |device: usize, dst: SocketAddr| {
        let info = devices().get(device).ok_or(Errno(libc::ENODEV))?.info();
        let own = address_on(info, dst.ip()).ok_or(Errno(libc::ENODEV))?;
        let dst = if dst.ip().is_unspecified() { SocketAddr::new(own, dst.port()) } else { dst };
        Ok(Found { device, src: wanted.unwrap_or(dst.ip()), dst, path: path(own, own, 0) })
    };
    if means_the_device(dst.ip()) {
        return local(bound.unwrap_or(0), dst);
    }
    if let Some(device) = device_of(dst.ip()) {
        return local(device, dst);
    }
    let (device, src) = match (bound, wanted) {
        (Some(device), Some(wanted)) => (device, wanted),
        (Some(device), None) => (device, dst.ip()),
        (None, _) => source(dst)?,
    };
    let info = devices().get(device).ok_or(Errno(libc::ENODEV))?.info();
    let own = address_on(info, src).filter(|own| own.is_ipv4() == dst.is_ipv4()).ok_or(Errno(libc::ENETUNREACH))?;
    Ok(Found { device, src: wanted.unwrap_or(own), dst, path: path(own, dst.ip(), 0) })
}

/// Returns the path of management datagrams, and of connections, between two devices.
pub(super) fn path(src: IpAddr, dst: IpAddr, traffic_class: u8) -> Path {
    Path { src, dst, udp_src: UDP_SRC, traffic_class, hop_limit: HOP_LIMIT }
}

/// Returns the device from which a destination is reached, and its address.
fn source(dst: SocketAddr) -> Result<(usize, IpAddr)> {
    // If the kernel has no route, or none over a device, a station on an Ethernet may know a neighbour.
    match station(dst.ip()) {
        Some(station) if devices().iter().all(|device| device.info().is_station()) => Ok(station),
        station => kernel_route(dst).or_else(|e| station.ok_or(e)),
    }
}

/// Returns the first device with its own link layer and an address of a destination's family.
fn station(dst: IpAddr) -> Option<(usize, IpAddr)> {
    let own = |info: &DeviceInfo| address_on(info, dst).filter(|own| own.is_ipv4() == dst.is_ipv4());
    let stations = devices().iter().enumerate().filter(|(_, device)| device.info().is_station());
    stations.filter_map(|(at, device)| Some((at, own(device.info())?))).next()
}

/// Returns the device with the source address, or on the interface, of the kernel's route to a destination.
fn kernel_route(dst: SocketAddr) -> Result<(usize, IpAddr)> {
    let ip = kernel_source(dst).map_err(|e| Errno(e.raw_os_error().unwrap_or(libc::EHOSTUNREACH)))?;
    let on_interface = || devices().iter().position(|device| device.info().interface.addresses.contains(&ip));
    device_of(ip).or_else(on_interface).map(|device| (device, ip)).ok_or(Errno(libc::ENODEV))
}

fn kernel_source(dst: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = if dst.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    let mut to = dst;
    to.set_port(DISCARD);
    socket.connect(to)?;
    socket.local_addr().map(|local| local.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_as_they_were() {
        let ib = IbAddress { pkey: 0xffff, gid: [7; 16], service: 0x0106_1c06, mask: u64::MAX };
        for address in [
            Address::Ip("192.0.2.1:7174".parse().unwrap()),
            Address::Ip("[2001:db8::1]:7174".parse().unwrap()),
            Address::Ip(SocketAddrV6::new("fe80::1".parse().unwrap(), 1, 0, 3).into()),
            Address::Ib(ib),
        ] {
            let mut bytes = [0xff; 128];
            let size = address.emit(&mut bytes);
            assert_eq!(Address::parse(&bytes, size), Ok(Some(address)));
            assert_eq!(Address::parse(&bytes, size - 1), Err(Errno(libc::EINVAL)), "{address:?}, a byte short");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_or_none() {
        let mut bytes = [0; 128];
        assert_eq!(Address::parse(&bytes, 0), Ok(None));
        assert_eq!(Address::parse(&bytes, 16), Ok(None));
        bytes[0] = 1;
        assert_eq!(Address::parse(&bytes, 110), Err(Errno(libc::EINVAL)), "a unix address");
    }
}
