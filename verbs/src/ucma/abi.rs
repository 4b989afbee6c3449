//! Commands and replies of librdmacm on `/dev/infiniband/rdma_cm`: the kernel's `rdma/rdma_user_cm.h`, ABI version 4,
//! with structures of `rdma/ib_user_verbs.h` and `rdma/ib_user_sa.h`.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use crate::errno::{Errno, Result};

/// Maximum private data in a structure; a MAD has less room.
pub(super) const MAX_PRIVATE_DATA: usize = 256;

/// Commands.
pub(super) mod command {
    pub(crate) const CREATE_ID: u32 = 0;
    pub(crate) const DESTROY_ID: u32 = 1;
    pub(crate) const RESOLVE_ROUTE: u32 = 4;
    pub(crate) const CONNECT: u32 = 6;
    pub(crate) const LISTEN: u32 = 7;
    pub(crate) const ACCEPT: u32 = 8;
    pub(crate) const REJECT: u32 = 9;
    pub(crate) const DISCONNECT: u32 = 10;
    pub(crate) const INIT_QP_ATTR: u32 = 11;
    pub(crate) const GET_EVENT: u32 = 12;
    pub(crate) const SET_OPTION: u32 = 14;
    pub(crate) const NOTIFY: u32 = 15;
    pub(crate) const LEAVE_MCAST: u32 = 17;
    pub(crate) const MIGRATE_ID: u32 = 18;
    pub(crate) const QUERY: u32 = 19;
    pub(crate) const BIND: u32 = 20;
    pub(crate) const RESOLVE_ADDR: u32 = 21;
    pub(crate) const JOIN_MCAST: u32 = 22;
}

/// Events (enum rdma_cm_event_type).
pub(super) mod event {
    pub(crate) const ADDR_RESOLVED: u32 = 0;
    pub(crate) const ADDR_ERROR: u32 = 1;
    pub(crate) const ROUTE_RESOLVED: u32 = 2;
    pub(crate) const CONNECT_REQUEST: u32 = 4;
    pub(crate) const CONNECT_RESPONSE: u32 = 5;
    pub(crate) const CONNECT_ERROR: u32 = 6;
    pub(crate) const UNREACHABLE: u32 = 7;
    pub(crate) const REJECTED: u32 = 8;
    pub(crate) const ESTABLISHED: u32 = 9;
    pub(crate) const DISCONNECTED: u32 = 10;
    pub(crate) const DEVICE_REMOVAL: u32 = 11;
    pub(crate) const MULTICAST_JOIN: u32 = 12;
    pub(crate) const ADDR_CHANGE: u32 = 14;
    pub(crate) const TIMEWAIT_EXIT: u32 = 15;
}

/// Options of QUERY.
pub(super) mod query {
    pub(crate) const ADDR: u32 = 0;
    pub(crate) const PATH: u32 = 1;
    pub(crate) const GID: u32 = 2;
}

/// Levels and names of options.
pub(super) mod option {
    pub(crate) const LEVEL_ID: u32 = 0;
    pub(crate) const LEVEL_IB: u32 = 1;
    pub(crate) const ID_TOS: u32 = 0;
    pub(crate) const ID_REUSEADDR: u32 = 1;
    pub(crate) const ID_AFONLY: u32 = 2;
    pub(crate) const ID_ACK_TIMEOUT: u32 = 3;
    pub(crate) const IB_PATH: u32 = 1;
}

/// Flags of a path record: for management datagrams, the first, in both directions.
pub(super) const PATH_FLAGS: u32 = 1 | 1 << 1 | 1 << 3 | 1 << 5;

/// The Q_Key of datagram ids in the port spaces UDP and IPoIB (RDMA_UDP_QKEY).
pub(super) const UDP_QKEY: u32 = 0x0123_4567;

/// A structure of integers and arrays of them, without significant padding.
///
/// # Safety
/// Every bit pattern is a valid value of the type.
pub(super) unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($(#[$doc:meta])* struct $name:ident { $($field:ident: $type:ty,)* } $size:literal)*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Copy, Clone, Debug)]
            pub(super) struct $name {
                $(pub(super) $field: $type,)*
            }

            // SAFETY: integers, arrays of them, and structures that are Plain.
            unsafe impl Plain for $name {}

            const _: () = assert!(size_of::<$name>() == $size);
        )*
    };
}

plain! {
    /// Header of every command: its number, the length of its body, and the size of the reply buffer.
    struct Header {
        cmd: u32,
        input: u16,
        output: u16,
    } 8

    struct CreateId {
        uid: u64,
        response: u64,
        ps: u16,
        qp_type: u8,
        reserved: [u8; 5],
    } 24

    /// A command with only an id, followed by LISTEN's backlog, RESOLVE_ROUTE's timeout or NOTIFY's event.
    struct OfId {
        id: u32,
        value: u32,
    } 8

    /// DESTROY_ID, LEAVE_MCAST, MIGRATE_ID (`value` is the id's old file), INIT_QP_ATTR (the state) and QUERY (the
    /// option).
    struct IdRequest {
        response: u64,
        id: u32,
        value: u32,
    } 16

    struct Bind {
        id: u32,
        addr_size: u16,
        reserved: u16,
        addr: [u8; 128],
    } 136

    struct ResolveAddr {
        id: u32,
        timeout_ms: u32,
        src_size: u16,
        dst_size: u16,
        reserved: u32,
        src_addr: [u8; 128],
        dst_addr: [u8; 128],
    } 272

    struct JoinMcast {
        response: u64,
        uid: u64,
        id: u32,
        addr_size: u16,
        join_flags: u16,
        addr: [u8; 128],
    } 152

    struct QueryAddrResp {
        node_guid: u64,
        port_num: u8,
        reserved: u8,
        pkey: u16,
        src_size: u16,
        dst_size: u16,
        src_addr: [u8; 128],
        dst_addr: [u8; 128],
        ibdev_index: u32,
        reserved1: u32,
    } 280

    struct QueryPathResp {
        num_paths: u32,
        reserved: u32,
        flags: u32,
        reserved1: u32,
        path: PathRecord,
    } 80

    /// struct ibv_path_record of `infiniband/sa.h`, numbers in network order.
    struct PathRecord {
        service_id: [u8; 8],
        dgid: [u8; 16],
        sgid: [u8; 16],
        dlid: u16,
        slid: u16,
        flowlabel_hoplimit: u32,
        tclass: u8,
        reversible_numpath: u8,
        pkey: u16,
        qosclass_sl: u16,
        mtu: u8,
        rate: u8,
        packetlifetime: u8,
        preference: u8,
        reserved: [u8; 6],
    } 64

    struct ConnParam {
        qp_num: u32,
        qkey: u32,
        private_data: [u8; MAX_PRIVATE_DATA],
        private_data_len: u8,
        srq: u8,
        responder_resources: u8,
        initiator_depth: u8,
        flow_control: u8,
        retry_count: u8,
        rnr_retry_count: u8,
        valid: u8,
    } 272

    struct UdParam {
        qp_num: u32,
        qkey: u32,
        ah_attr: AhAttr,
        private_data: [u8; MAX_PRIVATE_DATA],
        private_data_len: u8,
        reserved: [u8; 7],
    } 304

    struct Connect {
        conn_param: ConnParam,
        id: u32,
        reserved: u32,
        ece: [u32; 2],
    } 288

    struct Accept {
        uid: u64,
        conn_param: ConnParam,
        id: u32,
        reserved: u32,
        ece: [u32; 2],
    } 296

    struct Reject {
        id: u32,
        private_data_len: u8,
        reason: u8,
        reserved: [u8; 2],
        private_data: [u8; MAX_PRIVATE_DATA],
    } 264

    struct SetOption {
        optval: u64,
        id: u32,
        level: u32,
        optname: u32,
        optlen: u32,
    } 24

    /// An event. `param` is a [`ConnParam`] and padding, or a [`UdParam`].
    struct EventResp {
        uid: u64,
        id: u32,
        event: u32,
        status: u32,
        param: [u8; 304],
        reserved: u32,
        ece: [u32; 2],
    } 336

    struct GlobalRoute {
        dgid: [u8; 16],
        flow_label: u32,
        sgid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
        reserved: u8,
    } 24

    struct AhAttr {
        grh: GlobalRoute,
        dlid: u16,
        sl: u8,
        src_path_bits: u8,
        static_rate: u8,
        is_global: u8,
        port_num: u8,
        reserved: u8,
    } 32

    struct QpAttr {
        qp_attr_mask: u32,
        qp_state: u32,
        cur_qp_state: u32,
        path_mtu: u32,
        path_mig_state: u32,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        dest_qp_num: u32,
        qp_access_flags: u32,
        ah_attr: AhAttr,
        alt_ah_attr: AhAttr,
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
        pkey_index: u16,
        alt_pkey_index: u16,
        en_sqd_async_notify: u8,
        sq_draining: u8,
        max_rd_atomic: u8,
        max_dest_rd_atomic: u8,
        min_rnr_timer: u8,
        port_num: u8,
        timeout: u8,
        retry_cnt: u8,
        rnr_retry: u8,
        alt_port_num: u8,
        alt_timeout: u8,
        reserved: [u8; 5],
    } 144
}

/// An option's value.
// SAFETY: a number.
unsafe impl Plain for u8 {}

/// An option's value.
// SAFETY: a number.
unsafe impl Plain for i32 {}

/// The reply of CREATE_ID, JOIN_MCAST (an id), DESTROY_ID, LEAVE_MCAST and MIGRATE_ID (the number of reported events).
// SAFETY: a number.
unsafe impl Plain for u32 {}

/// The address for GET_EVENT's reply.
// SAFETY: a number.
unsafe impl Plain for u64 {}

/// Returns a structure of zeros.
pub(super) fn zeroed<T: Plain>() -> T {
    // SAFETY: zeros are a valid value of the type.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// Reads a structure from the start of `bytes`; missing bytes at its end are 0, as in older versions of it.
pub(super) fn read<T: Plain>(bytes: &[u8]) -> T {
    let mut value = zeroed::<T>();
    let len = bytes.len().min(size_of::<T>());
    // SAFETY: both are `len` bytes long, and any bytes are a valid value.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), (&raw mut value).cast(), len) };
    value
}

/// Writes a structure over the start of `bytes`, which must be at least as long.
pub(super) fn put<T: Plain>(bytes: &mut [u8], value: &T) {
    let bytes = &mut bytes[..size_of::<T>()];
    // SAFETY: as many bytes as the structure has. Padding, if there is any, is between integers that were zeroed.
    unsafe { std::ptr::copy_nonoverlapping((&raw const *value).cast(), bytes.as_mut_ptr(), bytes.len()) };
}

/// Buffer for the reply of a command.
#[derive(Copy, Clone, Debug)]
pub(super) struct Answer {
    /// Size in bytes, from the command's header.
    pub(super) room: u16,
}

impl Answer {
    /// Returns ENOSPC if a reply of at least `least` bytes does not fit.
    pub(super) fn needs(self, least: usize) -> Result<()> {
        if usize::from(self.room) < least { Err(Errno(libc::ENOSPC)) } else { Ok(()) }
    }

    /// Writes a reply to the caller's address, truncated to the buffer.
    ///
    /// # Safety
    /// `at` is the address of a buffer of the size in the command's header.
    pub(super) unsafe fn write<T: Plain>(self, at: u64, value: &T) -> Result<()> {
        let len = size_of::<T>().min(self.room.into());
        let from = libc::iovec { iov_base: (&raw const *value).cast_mut().cast(), iov_len: len };
        let to = libc::iovec { iov_base: at as *mut c_void, iov_len: len };
        // SAFETY: the caller's promise.
        unsafe { copy(libc::process_vm_writev, from, to, |from, to| (from, to)) }
    }
}

/// Reads a value from the caller's address.
///
/// # Safety
/// `at` is the address of a value, or not mapped.
pub(super) unsafe fn fetch<T: Plain>(at: u64) -> Result<T> {
    let mut value = zeroed::<T>();
    let to = libc::iovec { iov_base: (&raw mut value).cast(), iov_len: size_of::<T>() };
    let from = libc::iovec { iov_base: at as *mut c_void, iov_len: size_of::<T>() };
    // SAFETY: the caller's promise, and any bytes are a valid value.
    unsafe { copy(libc::process_vm_readv, to, from, |to, from| (from, to)) }?;
    Ok(value)
}

/// process_vm_writev(2) or process_vm_readv(2).
type Transfer = unsafe extern "C" fn(
    libc::pid_t,
    *const libc::iovec,
    libc::c_ulong,
    *const libc::iovec,
    libc::c_ulong,
    libc::c_ulong,
) -> libc::ssize_t;

/// Copies between `own` memory and the caller's like a kernel: `EFAULT` if that is not mapped. In a sandbox that
/// forbids a process to do that to itself the caller is trusted. `way` selects which of them is the source.
///
/// # Safety
/// Both are memory of the same length, or the caller's is not mapped.
unsafe fn copy(
    transfer: Transfer,
    own: libc::iovec,
    callers: libc::iovec,
    way: fn(*mut c_void, *mut c_void) -> (*mut c_void, *mut c_void),
) -> Result<()> {
    // SAFETY: lists of one; the kernel checks that the memory is mapped.
    let copied = unsafe { transfer(libc::getpid(), &own, 1, &callers, 1, 0) };
    if copied == own.iov_len as isize {
        return Ok(());
    }
    let refused = std::io::Error::last_os_error().raw_os_error();
    if copied >= 0 || callers.iov_base.is_null() || !matches!(refused, Some(libc::EPERM | libc::ENOSYS | libc::EACCES))
    {
        return Err(Errno(libc::EFAULT));
    }
    let (from, to) = way(own.iov_base, callers.iov_base);
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast(), own.iov_len) };
    Ok(())
}
