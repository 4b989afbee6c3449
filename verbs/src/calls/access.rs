//! Conversion of access rights from C.

use std::ffi::c_int;

use irnic_transports::qp::Access;

use crate::abi::consts::*;
use crate::errno::{Result, unsupported};

/// Rights and properties that irnic knows.
const KNOWN: u32 = IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_MW_BIND
    | IBV_ACCESS_FLUSH_GLOBAL
    | IBV_ACCESS_ZERO_BASED;
/// Hints that a device may ignore: huge pages, and the range that libibverbs reserves for optional flags.
const IGNORED: u32 = IBV_ACCESS_HUGETLB | 0x3ff0_0000;

/// Returns the NIC's rights for `ibv_access_flags`.
pub(super) fn access(flags: c_int) -> Result<Access> {
    let flags = flags as u32 & !IGNORED;
    if flags & !KNOWN != 0 {
        Err(unsupported!("access flags {:#x} are not there", flags & !KNOWN))
    } else {
        Ok(Access(flags))
    }
}
