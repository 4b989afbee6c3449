//! Addresses from completions, and queries about GIDs and ports that are answered by other calls.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;

use super::ah::ibv_create_ah;
use super::query::{_ibv_query_gid_ex, ibv_query_port};
use crate::abi::consts::{IBV_GID_TYPE_ROCE_V1, IBV_GID_TYPE_ROCE_V2, IBV_WC_GRH};
use crate::abi::structs::{
    ibv_ah, ibv_ah_attr, ibv_context, ibv_gid, ibv_gid_entry, ibv_grh, ibv_pd, ibv_port_attr, ibv_wc,
};
use crate::errno::{fail, guard, set_errno};
use crate::explain;

/// `next_hdr` of a GRH before a BTH: RoCEv1.
const NEXT_HEADER_BTH: u8 = 0x1b;

/// Bytes of the IPv4 header that RoCEv2 leaves in the second half of the 40 bytes of a GRH (IBA A17.4.5.1).
const IPV4_HEADER: usize = 20;

/// The sender's address of a packet: what [`ibv_init_ah_from_wc`] parses from 40 bytes.
#[derive(Debug, PartialEq, Eq)]
struct Route {
    /// Destination of the packet: the GID to find in the port's table.
    local: [u8; 16],
    /// Source of the packet.
    remote: [u8; 16],
    gid_type: u32,
    hop_limit: u8,
    traffic_class: u8,
}

/// Returns the IPv4-mapped GID of an address.
fn mapped(address: &[u8]) -> [u8; 16] {
    let mut gid = [0; 16];
    gid[10..12].fill(0xff);
    gid[12..].copy_from_slice(address);
    gid
}

/// Returns whether the header checksum is right: the ones' complement sum over all words is zero (RFC 791).
fn checksum_holds(header: &[u8]) -> bool {
    let sum: u32 = header.chunks_exact(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    (sum & 0xffff) + (sum >> 16) == 0xffff
}

/// Parses the header in the area. Errors are errno values: `EPROTONOSUPPORT` for an area that is neither header,
/// `EINVAL` for a packet to a multicast group, whose GID is in no table.
fn route(area: &[u8; 40]) -> Result<Route, c_int> {
    let ipv4 = &area[IPV4_HEADER..];
    // The first half is undefined before an IPv4 header and may look like IPv6; the checksum decides.
    let is_ipv4 = ipv4[0] >> 4 == 4 && (area[0] >> 4 != 6 || ipv4[0] & 0xf == 5 && checksum_holds(ipv4));
    if is_ipv4 {
        if ipv4[16] >> 4 == 0xe {
            return Err(libc::EINVAL);
        }
        return Ok(Route {
            local: mapped(&ipv4[16..20]),
            remote: mapped(&ipv4[12..16]),
            gid_type: IBV_GID_TYPE_ROCE_V2,
            hop_limit: ipv4[8],
            traffic_class: ipv4[1],
        });
    }
    if area[0] >> 4 != 6 {
        return Err(libc::EPROTONOSUPPORT);
    }
    if area[24] == 0xff {
        return Err(libc::EINVAL);
    }
    let gid_type = match c_int::from(area[6]) {
        libc::IPPROTO_UDP => IBV_GID_TYPE_ROCE_V2,
        next if next == c_int::from(NEXT_HEADER_BTH) => IBV_GID_TYPE_ROCE_V1,
        _ => return Err(libc::EPROTONOSUPPORT),
    };
    let gid = |at: usize| {
        let mut gid = [0; 16];
        gid.copy_from_slice(&area[at..at + 16]);
        gid
    };
    Ok(Route {
        local: gid(24),
        remote: gid(8),
        gid_type,
        hop_limit: area[7],
        traffic_class: area[0] << 4 | area[1] >> 4,
    })
}

/// Returns one entry of the GID table.
unsafe fn gid_entry(context: *mut ibv_context, port: u32, index: u32) -> Result<ibv_gid_entry, c_int> {
    let mut entry = MaybeUninit::<ibv_gid_entry>::zeroed();
    // SAFETY: the context is the caller's; the entry has the size passed.
    let error = unsafe { _ibv_query_gid_ex(context, port, index, entry.as_mut_ptr(), 0, size_of::<ibv_gid_entry>()) };
    match error {
        // SAFETY: all zero is an entry, and the call wrote one.
        0 => Ok(unsafe { entry.assume_init() }),
        error => Err(error),
    }
}

/// Returns the index of a GID of a type in a table, of which `entry` reads one entry. `ENOENT` if it is not found in a
/// table without end.
fn find_gid(gid: [u8; 16], gid_type: u32, entry: impl Fn(u32) -> Result<ibv_gid_entry, c_int>) -> Result<u8, c_int> {
    for index in 0..=u8::MAX {
        match entry(index.into()) {
            // SAFETY: a GID is sixteen bytes in any of its forms.
            Ok(entry) if unsafe { entry.gid.raw } == gid && entry.gid_type == gid_type => return Ok(index),
            // ENODATA is a gap in the table; any other error is its end.
            Ok(_) | Err(libc::ENODATA) => {}
            Err(error) => return Err(error),
        }
    }
    Err(libc::ENOENT)
}

/// Fills `ah_attr` with the address for replies to a received packet.
///
/// `grh` is the 40 bytes before the payload: a GRH, or 20 undefined bytes and an IPv4 header. Returns 0, or -1 with
/// `errno`: `EPROTONOSUPPORT` for other bytes, `EINVAL` for a packet to a multicast group, that of the GID table if the
/// packet's destination is not in it.
pub unsafe extern "C" fn ibv_init_ah_from_wc(
    context: *mut ibv_context,
    port_num: u8,
    wc: *const ibv_wc,
    grh: *const ibv_grh,
    ah_attr: *mut ibv_ah_attr,
) -> c_int {
    guard(-1, || {
        // SAFETY: both point to one structure each, per the prototype; all zero is an address.
        let (wc, attr) = unsafe {
            ah_attr.write_bytes(0, 1);
            (&*wc, &mut *ah_attr)
        };
        attr.dlid = wc.slid;
        attr.sl = wc.sl;
        attr.src_path_bits = wc.dlid_path_bits;
        attr.port_num = port_num;
        if wc.wc_flags & IBV_WC_GRH == 0 {
            return 0;
        }
        attr.is_global = 1;
        // SAFETY: the flag means that the area was written; its alignment is unknown.
        let area = unsafe { grh.cast::<[u8; 40]>().read_unaligned() };
        attr.grh.flow_label = u32::from_be_bytes([0, area[1] & 0xf, area[2], area[3]]);
        let found = route(&area).and_then(|route| {
            // SAFETY: the context is the caller's.
            let entry = |index| unsafe { gid_entry(context, port_num.into(), index) };
            find_gid(route.local, route.gid_type, entry).map(|index| (route, index))
        });
        match found {
            Ok((route, index)) => {
                attr.grh.dgid = ibv_gid { raw: route.remote };
                attr.grh.sgid_index = index;
                attr.grh.hop_limit = route.hop_limit;
                attr.grh.traffic_class = route.traffic_class;
                0
            }
            Err(error) => {
                let why = match error {
                    libc::EINVAL => "the packet came to a multicast group, or its GID type is in no table",
                    libc::ENOENT => "the address that the packet came to is not in the GID table",
                    _ => "the first 40 bytes of the buffer are the header of neither RoCEv2 nor RoCEv1",
                };
                explain::note(error, &why);
                explain::print("ibv_init_ah_from_wc", error);
                set_errno(error);
                -1
            }
        }
    })
}

/// Creates an address handle for replies to a received packet; NULL with the `errno` of [`ibv_init_ah_from_wc`] or
/// `ibv_create_ah`.
pub unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    port_num: u8,
) -> *mut ibv_ah {
    guard(ptr::null_mut(), || {
        let mut attr = MaybeUninit::<ibv_ah_attr>::uninit();
        // SAFETY: all are the caller's; the address is written before anything reads it.
        unsafe {
            match ibv_init_ah_from_wc((*pd).context, port_num, wc, grh, attr.as_mut_ptr()) {
                0 => ibv_create_ah(pd, attr.as_mut_ptr()),
                _ => ptr::null_mut(),
            }
        }
    })
}

/// Resolves the MAC address and VLAN of a GID: `-EOPNOTSUPP`. Vendor drivers need them to build Ethernet headers; this
/// NIC leaves that to the kernel's sockets.
pub extern "C" fn ibv_resolve_eth_l2_from_gid(
    _context: *mut ibv_context,
    _attr: *mut ibv_ah_attr,
    _mac: *mut u8,
    _vlan: *mut u16,
) -> c_int {
    -fail(libc::EOPNOTSUPP)
}

/// Writes the type of a GID as in sysfs: 0 for InfiniBand, RoCEv1 and an empty table entry, 1 for RoCEv2. Returns 0, or
/// -1 with `errno`.
pub unsafe extern "C" fn ibv_query_gid_type(
    context: *mut ibv_context,
    port_num: u8,
    index: u32,
    gid_type: *mut u32,
) -> c_int {
    guard(-1, || {
        // SAFETY: the context is the caller's.
        let is_v2 = match unsafe { gid_entry(context, port_num.into(), index) } {
            Ok(entry) => entry.gid_type == IBV_GID_TYPE_ROCE_V2,
            Err(libc::ENODATA) => false,
            Err(error) => {
                set_errno(error);
                return -1;
            }
        };
        // SAFETY: points to an enumeration, per the prototype.
        unsafe { gid_type.write(is_v2.into()) };
        0
    })
}

/// Units of 100 Mbit/s per lane of an `active_speed` (IBA 14.2.5.6): SDR, DDR, QDR, FDR10, FDR, EDR, HDR, NDR.
fn lane_speed(speed: u8) -> Option<u64> {
    Some(match speed {
        1 => 25,
        2 => 50,
        4 | 8 => 100,
        16 => 140,
        32 => 250,
        64 => 500,
        128 => 1000,
        _ => return None,
    })
}

/// Lanes of an `active_width`.
fn lanes(width: u8) -> Option<u64> {
    Some(match width {
        1 => 1,
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => return None,
    })
}

/// Writes the bandwidth of a port in units of 100 Mbit/s. Returns 0, or the errno value of `ibv_query_port`, or
/// `EINVAL` for an invalid port number.
pub unsafe extern "C" fn ibv_query_port_speed(context: *mut ibv_context, port_num: u32, port_speed: *mut u64) -> c_int {
    guard(libc::EIO, || {
        // Port numbers above 255 are invalid, too.
        let port = u8::try_from(port_num).unwrap_or(u8::MAX);
        let mut attr = MaybeUninit::<ibv_port_attr>::zeroed();
        // SAFETY: the context is the caller's; the structure is at least as long as the one written.
        let error = unsafe { ibv_query_port(context, port, attr.as_mut_ptr()) };
        if error != 0 {
            return error;
        }
        // SAFETY: all zero is a port, and the call wrote to it.
        let attr = unsafe { attr.assume_init() };
        match lane_speed(attr.active_speed).zip(lanes(attr.active_width)) {
            Some((speed, lanes)) => {
                // SAFETY: points to one number, per the prototype.
                unsafe { port_speed.write(speed * lanes) };
                0
            }
            None => fail(libc::EOPNOTSUPP),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4_MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

    /// Returns an IPv4 header from 10.0.0.1 to 10.0.0.2 in the second half, `first_half` before it.
    fn ipv4(first_half: u8) -> [u8; 40] {
        let mut area = [first_half; 40];
        area[20..].copy_from_slice(&[0x45, 0x9, 0, 84, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        seal(&mut area);
        area
    }

    /// Computes the checksum of the IPv4 header.
    fn seal(area: &mut [u8; 40]) {
        area[30..32].fill(0);
        let sum: u32 = area[20..].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        area[30..32].copy_from_slice(&sum.to_be_bytes());
    }

    /// Returns a GRH with traffic class 0xab and flow label 0x12345, from fe80::1 to fe80::2.
    fn ipv6(next_header: u8) -> [u8; 40] {
        let mut area = [0; 40];
        area[..8].copy_from_slice(&[0x6a, 0xb1, 0x23, 0x45, 0, 44, next_header, 63]);
        for (at, last) in [(8, 1), (24, 2)] {
            area[at..at + 2].copy_from_slice(&[0xfe, 0x80]);
            area[at + 15] = last;
        }
        area
    }

    fn gid(prefix: &[u8], rest: &[u8]) -> [u8; 16] {
        let mut gid = [0; 16];
        gid[..prefix.len()].copy_from_slice(prefix);
        gid[16 - rest.len()..].copy_from_slice(rest);
        gid
    }

    #[test]
    fn an_ipv4_header_after_twenty_zeros_is_read() {
        let expected = Route {
            local: gid(&V4_MAPPED, &[10, 0, 0, 2]),
            remote: gid(&V4_MAPPED, &[10, 0, 0, 1]),
            gid_type: IBV_GID_TYPE_ROCE_V2,
            hop_limit: 64,
            traffic_class: 9,
        };
        assert_eq!(route(&ipv4(0)), Ok(expected));
    }

    #[test]
    fn the_checksum_tells_ipv4_behind_undefined_bytes_from_ipv6() {
        assert_eq!(route(&ipv4(0x60)).map(|r| r.local), Ok(gid(&V4_MAPPED, &[10, 0, 0, 2])));
        let mut broken = ipv4(0x60);
        broken[31] ^= 1;
        broken[6] = 17;
        assert_eq!(route(&broken).map(|r| r.remote[0]), Ok(0x60));
    }

    #[test]
    fn a_grh_is_read_as_version_1_or_2_by_its_next_header() {
        let expected = |gid_type| Route {
            local: gid(&[0xfe, 0x80], &[2]),
            remote: gid(&[0xfe, 0x80], &[1]),
            gid_type,
            hop_limit: 63,
            traffic_class: 0xab,
        };
        assert_eq!(route(&ipv6(17)), Ok(expected(IBV_GID_TYPE_ROCE_V2)));
        assert_eq!(route(&ipv6(NEXT_HEADER_BTH)), Ok(expected(IBV_GID_TYPE_ROCE_V1)));
        assert_eq!(route(&ipv6(6)), Err(libc::EPROTONOSUPPORT));
    }

    #[test]
    fn multicast_destinations_and_other_bytes_are_refused() {
        let mut area = ipv4(0);
        area[36..].copy_from_slice(&[239, 1, 2, 3]);
        assert_eq!(route(&area), Err(libc::EINVAL));
        let mut area = ipv6(17);
        area[24] = 0xff;
        assert_eq!(route(&area), Err(libc::EINVAL));
        assert_eq!(route(&[0; 40]), Err(libc::EPROTONOSUPPORT));
    }

    #[test]
    fn a_gid_is_found_behind_gaps_and_other_types() {
        let wanted = gid(&V4_MAPPED, &[10, 0, 0, 2]);
        let entry = |raw, gid_type| {
            Ok(ibv_gid_entry { gid: ibv_gid { raw }, gid_index: 0, port_num: 1, gid_type, ndev_ifindex: 0 })
        };
        let table = |index| match index {
            0 => entry([1; 16], IBV_GID_TYPE_ROCE_V2),
            2 => entry(wanted, IBV_GID_TYPE_ROCE_V1),
            3 => entry(wanted, IBV_GID_TYPE_ROCE_V2),
            1 => Err(libc::ENODATA),
            _ => Err(libc::EINVAL),
        };
        assert_eq!(find_gid(wanted, IBV_GID_TYPE_ROCE_V2, table), Ok(3));
        assert_eq!(find_gid([2; 16], IBV_GID_TYPE_ROCE_V2, table), Err(libc::EINVAL));
        assert_eq!(find_gid(wanted, IBV_GID_TYPE_ROCE_V2, |_| Err(libc::ENODATA)), Err(libc::ENOENT));
    }

    #[test]
    fn four_lanes_of_edr_are_a_hundred_gigabits() {
        assert_eq!(lane_speed(32).zip(lanes(2)), Some((250, 4)));
        assert_eq!(lane_speed(3), None);
    }
}
