//! A packet socket on a network interface (packet(7)).

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use irnic_transports::wire::ROCE_PORT;

use super::sys;
use crate::PortCounters;
use crate::frames::ethernet::Mac;
use crate::frames::queue::TxQueue;
use crate::frames::sent::Sent;
use crate::udp::sys::set_option;

/// From <linux/if_packet.h>.
const PACKET_ADD_MEMBERSHIP: libc::c_int = 1;
const PACKET_DROP_MEMBERSHIP: libc::c_int = 2;
const PACKET_MR_MULTICAST: u16 = 0;
const PACKET_MR_PROMISC: u16 = 1;
const PACKET_MR_UNICAST: u16 = 3;
const PACKET_OUTGOING: u32 = 4;

/// `struct packet_mreq` of <linux/if_packet.h>.
#[derive(Copy, Clone)]
#[repr(C)]
struct Membership {
    index: libc::c_int,
    kind: u16,
    len: u16,
    address: [u8; 8],
}

/// An open packet socket.
pub(in super::super) struct Interface {
    socket: OwnedFd,
    index: libc::c_int,
    mtu: usize,
}

impl Interface {
    pub(super) fn open(name: &str, mac: Mac, socket_buffer: usize) -> io::Result<Interface> {
        // Receives nothing before it is bound.
        let socket = sys::socket(libc::AF_PACKET, libc::SOCK_RAW)?;
        let text = CString::new(name).map_err(io::Error::other)?;
        // SAFETY: a C string.
        let index = unsafe { libc::if_nametoindex(text.as_ptr()) };
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        let index = index as libc::c_int;
        let fd = socket.as_fd();
        let mtu = sys::interface_mtu(fd, name)?;
        set_filter(fd, mac)?;
        sys::enable_tag_reports(fd)?;
        set_option(fd, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1 as libc::c_int)?;
        sys::set_buffers(fd, socket_buffer)?;
        // SAFETY: all zeros are a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index;
        // SAFETY: a valid address of the length given.
        let bound = unsafe {
            libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as libc::socklen_t)
        };
        if bound < 0 {
            return Err(io::Error::last_os_error());
        }
        let interface = Interface { socket, index, mtu };
        // A device that cannot filter for one more address is set to promiscuous mode.
        interface.member(PACKET_MR_UNICAST, mac, true).or_else(|_| interface.member(PACKET_MR_PROMISC, mac, true))?;
        Ok(interface)
    }

    pub(super) fn mtu(&self) -> usize {
        self.mtu
    }

    /// Starts or stops receiving packets to a group.
    pub(super) fn membership(&self, group: Mac, member: bool) -> io::Result<()> {
        self.member(PACKET_MR_MULTICAST, group, member)
    }

    fn member(&self, kind: u16, mac: Mac, member: bool) -> io::Result<()> {
        let [a, b, c, d, e, f] = mac.0;
        let len = mac.0.len() as u16;
        let membership = Membership { index: self.index, kind, len, address: [a, b, c, d, e, f, 0, 0] };
        let option = if member { PACKET_ADD_MEMBERSHIP } else { PACKET_DROP_MEMBERSHIP };
        set_option(self.as_fd(), libc::SOL_PACKET, option, membership)
    }

    pub(super) fn send(&mut self, queue: &mut TxQueue, counters: &mut PortCounters) -> Sent {
        let mut outcome = Sent::default();
        while !queue.is_empty() {
            match sys::send(self.socket.as_fd(), queue.pending(), queue.len(), counters) {
                Ok(count) => counters.tx_frames += queue.advance(count),
                Err(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => {
                    outcome.full = true;
                    break;
                }
                Err(error) => {
                    let len = queue.pending().next().map_or(0, <[u8]>::len);
                    outcome.failed.get_or_insert((len, error));
                    counters.tx_dropped += queue.advance(1);
                }
            }
        }
        outcome
    }
}

impl AsFd for Interface {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Instructions of the kernel's packet filter, as <linux/filter.h> and <linux/bpf_common.h> number them.
mod bpf {
    pub(super) const LOAD_WORD: u16 = 0x20;
    pub(super) const LOAD_HALF: u16 = 0x28;
    pub(super) const LOAD_BYTE: u16 = 0x30;
    /// X: the length of the IPv4 header at an offset.
    pub(super) const LOAD_HEADER_LEN: u16 = 0xb1;
    /// A: the half word at X and an offset.
    pub(super) const LOAD_HALF_INDEXED: u16 = 0x48;
    pub(super) const JUMP: u16 = 0x05;
    pub(super) const JUMP_EQUAL: u16 = 0x15;
    pub(super) const JUMP_SET: u16 = 0x45;
    pub(super) const RETURN: u16 = 0x06;
}

/// Returns the filter of a station: packets to it or to groups that are ARP, ICMPv6, UDP to port 4791 or a later
/// fragment. Other packets on the interface, and those sent by this host, are not copied.
fn filter(mac: Mac) -> Vec<libc::sock_filter> {
    use bpf::*;
    let [a, b, c, d, e, f] = mac.0;
    let (high, low) = (u32::from_be_bytes([a, b, c, d]), u32::from(u16::from_be_bytes([e, f])));
    let packet_type = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32;
    let port = u32::from(ROCE_PORT);
    let step = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
    // Jumps count the instructions skipped. The last two instructions accept and reject.
    const ACCEPT: u8 = 24;
    const REFUSE: u8 = 25;
    let to = |from: u8, target: u8| target - from - 1;
    vec![
        step(LOAD_WORD, packet_type, 0, 0),
        step(JUMP_EQUAL, PACKET_OUTGOING, to(1, REFUSE), 0),
        step(LOAD_BYTE, 0, 0, 0),
        step(JUMP_SET, 1, to(3, 8), 0),
        step(LOAD_WORD, 0, 0, 0),
        step(JUMP_EQUAL, high, 0, to(5, REFUSE)),
        step(LOAD_HALF, 4, 0, 0),
        step(JUMP_EQUAL, low, 0, to(7, REFUSE)),
        // 8: the EtherType.
        step(LOAD_HALF, 12, 0, 0),
        step(JUMP_EQUAL, 0x0806, to(9, ACCEPT), 0),
        step(JUMP_EQUAL, 0x0800, to(10, 17), 0),
        step(JUMP_EQUAL, 0x86dd, 0, to(11, REFUSE)),
        // 12: IPv6.
        step(LOAD_BYTE, 20, 0, 0),
        step(JUMP_EQUAL, 58, to(13, ACCEPT), 0),
        step(JUMP_EQUAL, 17, 0, to(14, REFUSE)),
        step(LOAD_HALF, 56, 0, 0),
        step(JUMP, to(16, 23).into(), 0, 0),
        // 17: IPv4. Later fragments have no port.
        step(LOAD_BYTE, 23, 0, 0),
        step(JUMP_EQUAL, 17, 0, to(18, REFUSE)),
        step(LOAD_HALF, 20, 0, 0),
        step(JUMP_SET, 0x1fff, to(20, ACCEPT), 0),
        step(LOAD_HEADER_LEN, 14, 0, 0),
        step(LOAD_HALF_INDEXED, 16, 0, 0),
        // 23: the UDP port.
        step(JUMP_EQUAL, port, to(23, ACCEPT), to(23, REFUSE)),
        // 24 and 25: the whole packet, and nothing.
        step(RETURN, u32::MAX, 0, 0),
        step(RETURN, 0, 0, 0),
    ]
}

fn set_filter(socket: BorrowedFd<'_>, mac: Mac) -> io::Result<()> {
    let mut filter = filter(mac);
    let program = libc::sock_fprog { len: filter.len() as libc::c_ushort, filter: filter.as_mut_ptr() };
    // The kernel copies the program.
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, program)
}
