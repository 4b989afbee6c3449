//! Waiting for a condition, with a deadline.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// Time after which anything counts as hung. Nothing should come close, even on a busy machine.
pub const HANG: Duration = Duration::from_secs(900);
/// Polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Waits until `is` holds.
///
/// # Errors
///
/// If it still does not hold after [`HANG`], or if `may` reports that it can no longer hold.
pub fn while_alive(what: &str, mut may: impl FnMut() -> bool, mut is: impl FnMut() -> bool) -> Result<(), String> {
    let start = Instant::now();
    loop {
        // In this order: `is` may have become true before `may` became false.
        let goes_on = may();
        if is() {
            return Ok(());
        }
        if !goes_on {
            return Err(format!("who should see to it has ended: {what}"));
        }
        if start.elapsed() > HANG {
            return Err(format!("not after {HANG:?}: {what}"));
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Waits until `is` holds.
///
/// # Panics
///
/// If it still does not hold after [`HANG`].
#[track_caller]
pub fn until(what: &str, is: impl FnMut() -> bool) {
    if let Err(why) = while_alive(what, || true, is) {
        panic!("{why}");
    }
}

/// Waits until a socket of this thread's network namespace listens on a TCP port.
///
/// # Panics
///
/// If there is none after [`HANG`].
#[track_caller]
pub fn for_listener(port: u16) {
    until(&format!("a listener on TCP port {port}"), || socket(port, Socket::Listening));
}

/// State of a socket.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Socket {
    /// A TCP socket that listens.
    Listening,
    /// A TCP socket with a connection.
    Connected,
    /// A UDP socket that is bound.
    Bound,
}

/// Whether this thread's network namespace has a socket on a port in this state. Reads the kernel's tables, without
/// connecting.
pub fn socket(port: u16, does: Socket) -> bool {
    // sl local_address rem_address st …, in hexadecimal.
    let (tables, state) = match does {
        Socket::Listening => (["tcp", "tcp6"], "0A"),
        Socket::Connected => (["tcp", "tcp6"], "01"),
        Socket::Bound => (["udp", "udp6"], "07"),
    };
    let local = format!(":{port:04X}");
    tables.into_iter().any(|table| {
        let text = fs::read_to_string(format!("/proc/thread-self/net/{table}")).unwrap_or_default();
        text.lines().any(|line| {
            let mut fields = line.split_whitespace().skip(1);
            fields.next().is_some_and(|address| address.ends_with(&local)) && fields.nth(1) == Some(state)
        })
    })
}

/// A shell command that waits until something listens on a TCP port of its network namespace, and fails after
/// [`HANG`]. It contains no apostrophes.
pub fn shell_for_listener(port: u16) -> String {
    shell_until(&format!("grep -qE \" [0-9A-F]+:{port:04X} [^ ]+ 0A \" /proc/net/tcp /proc/net/tcp6"))
}

/// A shell command that waits until a command succeeds, and fails after [`HANG`].
pub fn shell_until(command: &str) -> String {
    let polls = HANG.as_millis() / 20;
    format!("{{ n=0; until {command}; do n=$((n + 1)); [ $n -lt {polls} ] || exit 99; sleep 0.02; done; }}")
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};
    use std::process::Command;

    use super::*;

    #[test]
    fn sockets_are_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        for_listener(port);
        assert!(Command::new("sh").args(["-ec", &shell_for_listener(port)]).status().unwrap().success());
        assert!(!socket(port, Socket::Connected));
        let udp = UdpSocket::bind("[::1]:0").unwrap();
        assert!(socket(udp.local_addr().unwrap().port(), Socket::Bound));
        drop(listener);
        assert!(!socket(port, Socket::Listening));
    }

    #[test]
    fn what_cannot_come_any_more_is_not_waited_for() {
        let error = while_alive("rain", || false, || false).unwrap_err();
        assert_eq!(error, "who should see to it has ended: rain");
        assert_eq!(while_alive("rain", || false, || true), Ok(()));
    }
}
