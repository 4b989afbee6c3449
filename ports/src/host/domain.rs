//! Domains: how the processes of a device claim their slots and find each other.
//!
//! A process claims a slot by listening on an abstract unix socket named after the domain and the slot (unix(7)). The
//! kernel frees the name when the process ends, in whatever way, and nothing is left in a file system. Abstract names
//! belong to a network namespace, as addresses do.

use std::hash::Hasher;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use super::error::HostError;
use super::holder::Holder;
use super::slot::Slot;
use super::sys;

/// Prefix of every abstract name: the program, and the protocol version of these sockets.
const PREFIX: &str = "irnic/1/";

/// Longest domain in bytes. A slot or an IPv6 address with its scope follows it in a name.
const MAX_DOMAIN: usize = 40;

/// The abstract names of one domain, that is, of the processes that share a device.
#[derive(Clone, Debug)]
pub(crate) struct Domain {
    prefix: String,
}

/// Returns the domain of a device and its addresses, for [`HostConfig::domain`](super::HostConfig): every process that
/// opens the same device with the same addresses gets the same text.
pub fn domain(device: &str, addresses: &[IpAddr]) -> String {
    let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
    hash.write(device.as_bytes());
    let mut addresses: Vec<String> = addresses.iter().map(|a| format!(" {a}")).collect();
    addresses.sort_unstable();
    addresses.iter().for_each(|a| hash.write(a.as_bytes()));
    let device: String = device.chars().filter(char::is_ascii_alphanumeric).take(16).collect();
    format!("{device}-{:016x}", hash.finish())
}

/// FNV-1a, 64 bits. Unlike the hashes of the standard library, it gives the same value in every process.
struct Fnv(u64);

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Domain {
    pub(crate) fn new(domain: &str) -> Result<Domain, HostError> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        if domain.is_empty() || domain.len() > MAX_DOMAIN || !domain.bytes().all(allowed) {
            return Err(HostError::Domain { domain: domain.to_owned(), longest: MAX_DOMAIN });
        }
        Ok(Domain { prefix: format!("{PREFIX}{domain}/") })
    }

    /// Returns the name on which the process in `slot` listens.
    pub(super) fn slot_name(&self, slot: Slot) -> String {
        format!("{}{slot}", self.prefix)
    }

    /// Returns the name on which the owner of UDP port 4791 of `address` listens.
    pub(super) fn udp_name(&self, address: IpAddr) -> String {
        format!("{}udp/{address}", self.prefix)
    }

    /// Returns the name bound by the process that has a service id.
    pub(super) fn service_name(&self, service: u64) -> String {
        format!("{}cm/{service:x}", self.prefix)
    }

    /// Returns the name bound by the process that listens on a service id.
    pub(super) fn service_listener_name(&self, service: u64) -> String {
        format!("{}cm/{service:x}/listens", self.prefix)
    }

    /// Returns the name bound by the process in `slot` while it listens on a service id.
    pub(super) fn service_slot_name(&self, service: u64, slot: Slot) -> String {
        format!("{}cm/{service:x}/{slot}", self.prefix)
    }

    /// Claims `wanted`, or else a free slot. The search begins at random, so that numbers of an ended process are not
    /// reused while packets to them may be in flight.
    pub(super) fn claim(&self, wanted: Option<Slot>) -> io::Result<(Slot, OwnedFd)> {
        let count = u64::from(Slot::MAX);
        let start = sys::random()? % count;
        let candidates = match wanted {
            Some(slot) => slot.number() - 1..slot.number(),
            None => 0..Slot::MAX,
        };
        let start = if wanted.is_some() { 0 } else { start };
        for candidate in candidates {
            let Some(slot) = Slot::new(1 + ((u64::from(candidate) + start) % count) as u16) else { continue };
            match sys::listen(&self.slot_name(slot)) {
                Ok(listener) => return Ok((slot, listener)),
                Err(e) if e.kind() == io::ErrorKind::AddrInUse => {}
                Err(e) => return Err(e),
            }
        }
        Err(match wanted {
            Some(slot) => HostError::SlotTaken(slot, Holder::of_name(&self.slot_name(slot))).into(),
            None => self.who_has_all().into(),
        })
    }

    fn who_has_all(&self) -> HostError {
        let slots = || (1..=Slot::MAX).filter_map(Slot::new);
        let holders = || slots().map(|slot| Holder::of_name(&self.slot_name(slot)));
        let others: Vec<Holder> = holders().filter(Holder::is_another_user).collect();
        let example = others.first().copied().or_else(|| holders().next()).unwrap_or(Holder::Unknown);
        HostError::NoSlot { others: others.len(), example }
    }

    /// Returns the slots on which a process listens now, as the kernel lists them. Empty without /proc.
    pub(super) fn live_slots(&self) -> Vec<Slot> {
        // Columns: Num RefCount Protocol Flags Type St Inode Path; an abstract name begins with '@' in place of NUL.
        const LISTENING: u32 = 0x1_0000;
        let Ok(table) = std::fs::read_to_string("/proc/self/net/unix") else { return Vec::new() };
        let slot = |line: &str| {
            let mut columns = line.split_ascii_whitespace();
            let flags = u32::from_str_radix(columns.nth(3)?, 16).ok()?;
            let name = columns.nth(3)?.strip_prefix('@')?.strip_prefix(&self.prefix)?;
            (flags & LISTENING != 0).then(|| name.parse().ok().and_then(Slot::new)).flatten()
        };
        table.lines().filter_map(slot).collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_domain_tells_devices_and_addresses_apart_whatever_their_order() {
        let ip = |s: &str| s.parse::<IpAddr>().unwrap();
        let (a, b) = (ip("10.0.0.1"), ip("2001:db8::1"));
        assert_eq!(domain("irnic0", &[a, b]), domain("irnic0", &[b, a]));
        let all = [domain("irnic0", &[a, b]), domain("irnic0", &[a]), domain("irnic1", &[a, b]), domain("irnic0", &[])];
        for (i, text) in all.iter().enumerate() {
            assert!(Domain::new(text).is_ok(), "{text}");
            assert!(!all[..i].contains(text));
        }
        assert!(Domain::new(&domain("a/device\0with an unusual and rather long name", &[a])).is_ok());
    }

    #[test]
    fn names_fit_and_odd_domains_are_refused() {
        let longest = Domain::new(&"x".repeat(MAX_DOMAIN)).unwrap();
        let address: IpAddr = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff".parse().unwrap();
        assert!(longest.udp_name(address).len() <= sys::MAX_NAME);
        for odd in ["", "a b", "a/b", "a\0b", "ä", &"x".repeat(MAX_DOMAIN + 1)] {
            assert!(Domain::new(odd).is_err(), "{odd:?}");
        }
    }

    #[test]
    fn who_has_all_slots_is_told() {
        let domain = Domain::new(&format!("full-test-{}", std::process::id())).unwrap();
        let all: Vec<_> = (0..Slot::MAX).map(|_| domain.claim(None).unwrap()).collect();
        let refused = domain.claim(None).unwrap_err().to_string();
        let own = format!("taken, 0 of them by other users, one by process {} of user ", std::process::id());
        assert!(refused.contains(&own), "{refused}");
        drop(all);
        assert!(domain.claim(None).is_ok());
    }

    #[test]
    fn a_slot_has_one_owner_until_it_ends() {
        let domain = Domain::new(&format!("slot-test-{}", std::process::id())).unwrap();
        let slot = Slot::new(7).unwrap();
        let (claimed, listener) = domain.claim(Some(slot)).unwrap();
        assert_eq!(claimed, slot);
        let refused = domain.claim(Some(slot)).unwrap_err().to_string();
        assert!(
            refused.starts_with(&format!("slot 7 is taken by process {} of user ", std::process::id())),
            "{refused}"
        );
        let (other, _listener) = domain.claim(None).unwrap();
        assert_ne!(other, slot);
        let mut live = domain.live_slots();
        live.sort_unstable();
        let mut expected = vec![slot, other];
        expected.sort_unstable();
        assert_eq!(live, expected);
        drop(listener);
        assert_eq!(domain.live_slots(), [other]);
        assert!(domain.claim(Some(slot)).is_ok());
    }
}
