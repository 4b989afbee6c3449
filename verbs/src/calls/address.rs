//! Addresses out of completions, and questions about GIDs and ports that other calls answer.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;

use super::{_ibv_query_gid_ex, ibv_create_ah, ibv_query_port};
use crate::abi::consts::{IBV_GID_TYPE_ROCE_V1, IBV_GID_TYPE_ROCE_V2, IBV_WC_GRH};
use crate::abi::structs::{
    ibv_ah, ibv_ah_attr, ibv_context, ibv_gid, ibv_gid_entry, ibv_grh, ibv_pd, ibv_port_attr, ibv_wc,
};
use crate::errno::{fail, guard, set_errno};

/// `next_hdr` of a GRH before a BTH: RoCEv1.
const NEXT_HEADER_BTH: u8 = 0x1b;

/// Bytes of the IPv4 header that RoCEv2 leaves in the second half of the 40 bytes of a GRH (IBA A17.4.5.1).
const IPV4_HEADER: usize = 20;

/// The address of whoever sent the packet: what [`ibv_init_ah_from_wc`] reads out of 40 bytes.
#[derive(Debug, PartialEq, Eq)]
struct Route {
    /// Destination of the packet: the GID to look up in the port's table.
    local: [u8; 16],
    /// Source of the packet.
    remote: [u8; 16],
    gid_type: u32,
    hop_limit: u8,
    traffic_class: u8,
}

/// The IPv4-mapped GID of an address.
fn mapped(address: &[u8]) -> [u8; 16] {
    let mut gid = [0; 16];
    gid[10..12].fill(0xff);
    gid[12..].copy_from_slice(address);
    gid
}

/// Whether the header checksum is right: the ones' complement sum over all words is zero (RFC 791).
fn checksum_holds(header: &[u8]) -> bool {
    let sum: u32 = header.chunks_exact(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    (sum & 0xffff) + (sum >> 16) == 0xffff
}

/// Finds out which header the area holds, and reads it. Errors are errno values: `EPROTONOSUPPORT` for an area that is
/// neither, `EINVAL` for a packet to a multicast group, whose GID is in no table.
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

/// Asks for one entry of the GID table.
unsafe fn gid_entry(context: *mut ibv_context, port: u32, index: u32) -> Result<ibv_gid_entry, c_int> {
    let mut entry = MaybeUninit::<ibv_gid_entry>::zeroed();
    // SAFETY: the context is the caller's; the entry has the size that is told.
    let error = unsafe { _ibv_query_gid_ex(context, port, index, entry.as_mut_ptr(), 0, size_of::<ibv_gid_entry>()) };
    match error {
        // SAFETY: all zero is an entry, and the call wrote one.
        0 => Ok(unsafe { entry.assume_init() }),
        error => Err(error),
    }
}

/// Where a GID of a type stands in the port's table.
unsafe fn find_gid(context: *mut ibv_context, port: u8, gid: [u8; 16], gid_type: u32) -> Result<u8, c_int> {
    for index in 0..=u8::MAX {
        // SAFETY: the context is the caller's.
        match unsafe { gid_entry(context, port.into(), index.into()) } {
            // SAFETY: a GID is sixteen bytes in any of its forms.
            Ok(entry) if unsafe { entry.gid.raw } == gid && entry.gid_type == gid_type => return Ok(index),
            // ENODATA is a gap in the table; anything else is its end.
            Ok(_) | Err(libc::ENODATA) => {}
            Err(error) => return Err(error),
        }
    }
    Err(libc::ENOENT)
}

/// Fills `ah_attr` with the address that answers a received packet.
///
/// `grh` is the 40 bytes before the payload: a GRH, or 20 bytes of nothing and an IPv4 header. Returns 0, or -1 with
/// `errno`: `EPROTONOSUPPORT` for other bytes, `EINVAL` for a packet to a multicast group, that of the GID table where
/// the packet's destination is not in it.
pub unsafe extern "C" fn ibv_init_ah_from_wc(
    context: *mut ibv_context,
    port_num: u8,
    wc: *const ibv_wc,
    grh: *const ibv_grh,
    ah_attr: *mut ibv_ah_attr,
) -> c_int {
    guard(-1, || {
        // SAFETY: both point to one structure each, says the prototype; all zero is an address.
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
        // SAFETY: the flag says that the area was written; it has no alignment to speak of.
        let area = unsafe { grh.cast::<[u8; 40]>().read_unaligned() };
        attr.grh.flow_label = u32::from_be_bytes([0, area[1] & 0xf, area[2], area[3]]);
        let found = route(&area).and_then(|route| {
            // SAFETY: the context is the caller's.
            let index = unsafe { find_gid(context, port_num, route.local, route.gid_type) }?;
            Ok((route, index))
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
                set_errno(error);
                -1
            }
        }
    })
}

/// Creates an address handle that answers a received packet; NULL with the `errno` of [`ibv_init_ah_from_wc`] or
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

/// Asks for the MAC address and VLAN behind a GID: `-EOPNOTSUPP`. Vendor drivers ask, to build Ethernet headers; this NIC
/// leaves that to the kernel's sockets.
pub extern "C" fn ibv_resolve_eth_l2_from_gid(
    _context: *mut ibv_context,
    _attr: *mut ibv_ah_attr,
    _mac: *mut u8,
    _vlan: *mut u16,
) -> c_int {
    -fail(libc::EOPNOTSUPP)
}

/// Writes the type of a GID as sysfs counts it: 0 for InfiniBand and RoCEv1, 1 for RoCEv2. Returns 0, or -1 with `errno`.
pub unsafe extern "C" fn ibv_query_gid_type(
    context: *mut ibv_context,
    port_num: u8,
    index: u32,
    gid_type: *mut u32,
) -> c_int {
    guard(-1, || {
        // SAFETY: the context is the caller's.
        match unsafe { gid_entry(context, port_num.into(), index) } {
            Ok(entry) => {
                // SAFETY: points to an enumeration, says the prototype.
                unsafe { gid_type.write((entry.gid_type == IBV_GID_TYPE_ROCE_V2).into()) };
                0
            }
            Err(error) => {
                set_errno(error);
                -1
            }
        }
    })
}

/// Units of 100 Mbit/s per lane of an `active_speed` (IBA 14.2.5.6): SDR, DDR, QDR, FDR10, FDR, EDR, HDR, NDR, XDR.
fn lane_speed(speed: u32) -> Option<u64> {
    Some(match speed {
        1 => 25,
        2 => 50,
        4 | 8 => 100,
        16 => 140,
        32 => 250,
        64 => 500,
        128 => 1000,
        256 => 2000,
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

/// Writes the bandwidth of a port in units of 100 Mbit/s. Returns 0, or the errno value of `ibv_query_port`, or `EINVAL`
/// for a port number that is none.
pub unsafe extern "C" fn ibv_query_port_speed(context: *mut ibv_context, port_num: u32, port_speed: *mut u64) -> c_int {
    guard(libc::EIO, || {
        let Ok(port) = u8::try_from(port_num) else {
            return fail(libc::EINVAL);
        };
        let mut attr = MaybeUninit::<ibv_port_attr>::zeroed();
        // SAFETY: the context is the caller's; the structure is at least as long as the one that is written.
        let error = unsafe { ibv_query_port(context, port, attr.as_mut_ptr()) };
        if error != 0 {
            return error;
        }
        // SAFETY: all zero is a port, and the call wrote to it.
        let attr = unsafe { attr.assume_init() };
        match lane_speed(attr.active_speed.into()).zip(lanes(attr.active_width)) {
            Some((speed, lanes)) => {
                // SAFETY: points to one number, says the prototype.
                unsafe { port_speed.write(speed * lanes) };
                0
            }
            None => fail(libc::EOPNOTSUPP),
        }
    })
}
