//! Diagnosis of an address at which no UDP socket can be opened.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, UdpSocket};

/// Why no UDP socket can be opened at an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SocketFault {
    /// No interface has the address.
    #[error("it is not an address of this host")]
    NotHere,
    /// Duplicate address detection of the kernel is still running (RFC 4862 §5.4); it needs a link that is up.
    #[error(
        "the kernel is still checking it for duplicates (tentative, as `ip -6 addr` shows); it is tried again until then"
    )]
    Tentative,
    /// Duplicate address detection found another host on the link with the address (RFC 4862 §5.4).
    #[error("another host on the link has it too (dadfailed, as `ip -6 addr` shows)")]
    Duplicate,
    /// The process or the system is out of file descriptors. Holds the system error message.
    #[error("{0}; raise the limit (ulimit -n)")]
    Descriptors(String),
    /// Any other error. Holds the system error message.
    #[error("{0}")]
    Other(String),
}

/// Flag of an address whose duplicate address detection failed (linux/if_addr.h). /proc/net/if_inet6 shows the lower
/// eight bits of the flags.
const IFA_F_DADFAILED: u8 = 0x08;
const IFA_F_TENTATIVE: u8 = 0x40;

impl SocketFault {
    /// Tries to bind a socket at `address`, to any port, and returns the fault.
    pub(super) fn of(mut address: SocketAddr) -> SocketFault {
        address.set_port(0);
        match UdpSocket::bind(address) {
            Err(e) => {
                SocketFault::from_error(&e, address, &std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default())
            }
            Ok(_) => SocketFault::Other("it could not be a moment ago, and is tried again".into()),
        }
    }

    /// Returns the cause of `error`. `table` holds /proc/net/if_inet6.
    fn from_error(error: &io::Error, address: SocketAddr, table: &str) -> SocketFault {
        match (error.raw_os_error(), address) {
            (Some(libc::EMFILE | libc::ENFILE), _) => SocketFault::Descriptors(error.to_string()),
            (Some(libc::EADDRNOTAVAIL), SocketAddr::V6(v6)) => match flags(*v6.ip(), table) {
                Some(flags) if flags & IFA_F_DADFAILED != 0 => SocketFault::Duplicate,
                Some(flags) if flags & IFA_F_TENTATIVE != 0 => SocketFault::Tentative,
                Some(_) => SocketFault::Other(error.to_string()),
                None => SocketFault::NotHere,
            },
            (Some(libc::EADDRNOTAVAIL), _) => SocketFault::NotHere,
            _ => SocketFault::Other(error.to_string()),
        }
    }
}

/// Returns the flags of an address: the fifth word of its line, after address, interface, prefix length and scope, all
/// hexadecimal.
fn flags(address: Ipv6Addr, table: &str) -> Option<u8> {
    let wanted = format!("{:032x}", u128::from(address));
    let line = table.lines().find(|line| line.starts_with(&wanted))?;
    u8::from_str_radix(line.split_whitespace().nth(4)?, 16).ok()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_follows_from_the_error_and_the_kernels_table() {
        let table = "fe800000000000000000000000000001 02 40 20 80     eth0\n\
                     20010db8000000000000000000000007 03 40 00 c0       v0\n\
                     20010db8000000000000000000000008 03 40 00 48       v0\n\
                     00000000000000000000000000000001 01 80 10 80       lo\n";
        let of = |code, address: &str| {
            let address = SocketAddr::new(address.parse().expect("an address"), 0);
            SocketFault::from_error(&io::Error::from_raw_os_error(code), address, table)
        };
        let absent = libc::EADDRNOTAVAIL;
        assert_eq!(of(absent, "2001:db8::7"), SocketFault::Tentative);
        assert_eq!(of(absent, "2001:db8::8"), SocketFault::Duplicate);
        assert_eq!(of(absent, "2001:db8::9"), SocketFault::NotHere);
        assert_eq!(of(absent, "192.0.2.1"), SocketFault::NotHere);
        assert!(matches!(of(absent, "::1"), SocketFault::Other(_)));
        for code in [libc::EMFILE, libc::ENFILE] {
            assert!(of(code, "2001:db8::9").to_string().contains("ulimit -n"));
        }
        assert!(matches!(of(libc::EACCES, "192.0.2.1"), SocketFault::Other(_)));
    }
}
