//! A network of this process's own: nothing of the host's is touched, and all of it is gone when the process is.

use std::{fs, io};

use crate::host::Host;

/// The TAP device that the guest's Ethernet device is the other end of.
pub const DEVICE: &str = "tap0";
pub const IPV4: &str = "10.78.0.1";
pub const IPV6: &str = "fd77::1";
/// irnic's, where it is a station of its own.
pub const STATION: &str = "10.78.0.2,fd77::2";

/// Moves this process, which must have one thread only, into a network namespace with a TAP device. The error tells
/// what is not permitted.
pub fn enter(host: &Host) -> Result<(), String> {
    unshare().map_err(|e| format!("a network namespace: {e}"))?;
    host.ip("link set lo up")?;
    host.ip(&format!("tuntap add dev {DEVICE} mode tap"))?;
    host.ip(&format!("link set {DEVICE} up"))?;
    host.ip(&format!("addr add {IPV4}/24 dev {DEVICE}"))?;
    // Without nodad the address cannot be used for two seconds.
    host.ip(&format!("addr add {IPV6}/64 dev {DEVICE} nodad"))
}

/// As root, or as root of a user namespace.
fn unshare() -> io::Result<()> {
    // SAFETY: neither call takes memory.
    let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
    // SAFETY: as above.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0 {
        return Ok(());
    }
    // SAFETY: as above.
    if unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET) } != 0 {
        return Err(io::Error::last_os_error());
    }
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1"))
}
