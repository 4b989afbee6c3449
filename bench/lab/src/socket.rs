//! Unix sockets by which a lab answers its user: at a path, or under an abstract name, `@` and the name, which vanishes
//! with its process.

use std::io;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use irnic_ports::lab::is_own_peer;

/// Prefix of the names of labs' sockets.
pub const PREFIX: &str = "irnic-lab-";

/// Listens at an unused address. Other users' processes can connect to abstract names: see [`is_own`].
pub fn listen(place: &str) -> io::Result<UnixListener> {
    if let Some(name) = place.strip_prefix('@') {
        return UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?);
    }
    let listener = UnixListener::bind(place)?;
    match std::fs::set_permissions(place, std::fs::Permissions::from_mode(0o600)) {
        Ok(()) => Ok(listener),
        Err(e) => {
            let _ = std::fs::remove_file(place);
            Err(e)
        }
    }
}

/// Connects to a process of this user.
pub fn connect(place: &str) -> io::Result<UnixStream> {
    let stream = match place.strip_prefix('@') {
        Some(name) => UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        None => UnixStream::connect(place)?,
    };
    if is_own(&stream) {
        Ok(stream)
    } else {
        Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is another user's"))
    }
}

/// Returns whether the process at the other end is this user's.
pub fn is_own(stream: &UnixStream) -> bool {
    is_own_peer(stream.as_fd())
}

/// Returns the addresses of listening sockets: abstract names, and paths by their last component, that begin with
/// `prefix` and end with `suffix`.
pub fn names(prefix: &str, suffix: &str) -> io::Result<Vec<String>> {
    let table = std::fs::read_to_string("/proc/net/unix")?;
    let name = |line: &str| line.split_whitespace().nth(7).map(str::to_owned);
    let mut names: Vec<String> = table.lines().filter_map(name).collect();
    let last =
        |name: &str| name.rsplit(['@', '/']).next().is_some_and(|own| own.starts_with(prefix) && own.ends_with(suffix));
    names.retain(|name| last(name));
    names.sort();
    // Accepted connections have the name of the listener as well.
    names.dedup();
    Ok(names)
}

/// Returns a lab's socket: the one given, else that in an environment variable, else that of the only lab of this user,
/// whose name ends with `suffix`.
///
/// # Errors
/// A text that says how to choose one of several labs, or to start one.
pub fn find(given: Option<String>, variable: &str, suffix: &str) -> Result<String, String> {
    let set = || std::env::var(variable).ok().filter(|value| !value.is_empty());
    given.or_else(set).map_or_else(|| only_lab(suffix), Ok)
}

fn only_lab(suffix: &str) -> Result<String, String> {
    let mut labs = names(PREFIX, suffix).map_err(|e| format!("/proc/net/unix: {e}"))?;
    labs.retain(|lab| connect(lab).is_ok());
    match &labs[..] {
        [lab] => Ok(lab.clone()),
        [] => Err("no lab runs; start one by irnic lab".into()),
        several => {
            let options: Vec<_> = several.iter().map(|lab| format!("  --socket {lab}")).collect();
            Err(format!("{} labs run; choose one by\n{}", several.len(), options.join("\n")))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn the_only_lab_is_found_and_several_are_listed() {
        // No other test's labs have it.
        let suffix = format!("-{}-found", std::process::id());
        let find = || find(None, "IRNIC_NO_SUCH_VARIABLE", &suffix);
        assert!(find().unwrap_err().contains("no lab runs"));
        let [first, second] = ["first", "second"].map(|name| format!("@{PREFIX}{name}{suffix}"));
        let _first = listen(&first).unwrap();
        assert_eq!(find().as_ref(), Ok(&first));
        let _second = listen(&second).unwrap();
        let several = format!("2 labs run; choose one by\n  --socket {first}\n  --socket {second}");
        assert_eq!(find(), Err(several));
        assert_eq!(super::find(Some("given".into()), "PATH", &suffix), Ok("given".into()));
        assert_eq!(super::find(None, "PATH", &suffix), Ok(std::env::var("PATH").unwrap()));
    }

    #[test]
    fn a_place_is_a_path_or_a_name_that_can_be_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s").to_str().unwrap().to_owned();
        let name = format!("@irnic-test-{}-socket", std::process::id());
        for place in [&path, &name] {
            assert!(connect(place).is_err());
            let listener = listen(place).unwrap();
            let mut client = connect(place).unwrap();
            client.write_all(b"x").unwrap();
            let (mut server, _) = listener.accept().unwrap();
            let mut byte = [0];
            server.read_exact(&mut byte).unwrap();
            assert!(byte == *b"x" && is_own(&server));
            if place == &name {
                assert_eq!(names("irnic-test-", "-socket").unwrap().iter().filter(|n| *n == place).count(), 1);
                assert!(!names("irnic-test-", "-other").unwrap().contains(place));
            }
        }
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
