//! Diagnosis of a name or port that is already in use: its holder.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use super::sys;

/// Holder of a slot, of the name of an address's owner, or of its UDP port.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A process.
    Process {
        /// User id that it runs as.
        user: u32,
        /// Process id, if it has one in this pid namespace.
        process: Option<u32>,
    },
    /// The owner of a socket, whose process is unknown.
    Socket {
        /// User id of the socket's creator.
        user: u32,
    },
    /// A driver in the kernel.
    Kernel,
    /// The holder cannot be determined.
    Unknown,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holder::Process { user, process: Some(process) } => write!(f, "process {process} of user {user}"),
            Holder::Process { user, process: None } => write!(f, "a process of user {user}"),
            Holder::Socket { user } => write!(f, "a socket of user {user}"),
            Holder::Kernel => f.write_str("a kernel driver, such as rxe"),
            Holder::Unknown => f.write_str("something else"),
        }
    }
}

impl Holder {
    /// Returns whether the holder is known to be another user.
    pub fn is_another_user(&self) -> bool {
        matches!(self, Holder::Process { user, .. } | Holder::Socket { user } if !sys::is_own_user(*user))
    }

    /// Returns the process that listens on an abstract name.
    pub(crate) fn of_name(name: &str) -> Holder {
        sys::connect(name).map_or(Holder::Unknown, |connection| Holder::of_peer(connection.as_fd()))
    }

    /// Returns the process at the other end of a connection.
    pub(super) fn of_peer(connection: BorrowedFd<'_>) -> Holder {
        let process = sys::peer_process(connection);
        sys::peer_user(connection).map_or(Holder::Unknown, |user| Holder::Process { user, process })
    }

    /// Returns the holder of the UDP port of `address`, at that address or at all addresses.
    pub(super) fn of_udp(address: SocketAddr) -> Holder {
        let table = if address.is_ipv4() { "/proc/net/udp" } else { "/proc/net/udp6" };
        std::fs::read_to_string(table).map_or(Holder::Unknown, |table| Holder::in_table(address, &table))
    }

    /// Returns the holder of `address` in `table`, /proc/net/udp or udp6. Columns: number, local address and port,
    /// remote ones, state, queues, timer, retransmissions, user, timeout, inode.
    fn in_table(address: SocketAddr, table: &str) -> Holder {
        // Words of 32 bits, each in native byte order.
        let word = |b: &[u8; 4]| format!("{:08X}", u32::from_ne_bytes(*b));
        let ip: String = match address.ip() {
            IpAddr::V4(v4) => word(&v4.octets()),
            IpAddr::V6(v6) => v6.octets().as_chunks::<4>().0.iter().map(word).collect(),
        };
        let port = format!("{:04X}", address.port());
        let holder = |line: &str| {
            let mut fields = line.split_ascii_whitespace();
            let (local_ip, local_port) = fields.nth(1)?.split_once(':')?;
            if local_port != port || local_ip != ip && local_ip.bytes().any(|b| b != b'0') {
                return None;
            }
            let user = fields.nth(5)?.parse().ok()?;
            Some(if fields.nth(1)? == "0" { Holder::Kernel } else { Holder::Socket { user } })
        };
        table.lines().find_map(holder).unwrap_or(Holder::Unknown)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_owner_of_a_port_is_in_the_kernels_table() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref\n\
             12: 0100007F:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 4711 2 0 0\n\
             13: 0200007F:12B8 00000000:0000 07 00000000:00000000 00:00000000 00000000    12        0 4712 2 0 0\n\
             14: 00000000:12B9 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 0 2 0 0\n";
        for (address, holder) in [
            ("127.0.0.1:4791", Holder::Socket { user: 1000 }),
            ("127.0.0.2:4791", Holder::Unknown),
            ("127.0.0.2:4792", Holder::Socket { user: 12 }),
            ("127.0.0.1:4793", Holder::Kernel),
            ("127.0.0.1:4794", Holder::Unknown),
        ] {
            assert_eq!(Holder::in_table(address.parse().unwrap(), table), holder, "{address}");
        }
    }

    #[test]
    fn this_process_finds_itself() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(socket) = std::net::UdpSocket::bind(address) else { continue };
            let holder = Holder::of_udp(socket.local_addr().unwrap());
            assert!(matches!(holder, Holder::Socket { .. }), "{holder:?}");
        }
        let name = format!("irnic-holder-test-{}", std::process::id());
        let _listener = sys::listen(&name).unwrap();
        assert!(
            matches!(Holder::of_name(&name), Holder::Process { process, .. } if process == Some(std::process::id()))
        );
        assert_eq!(Holder::of_name("irnic-holder-test-nobody"), Holder::Unknown);
    }
}
