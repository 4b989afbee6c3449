//! Which process of the host listens on a service, to deliver management datagrams.
//!
//! A service id belongs to one process of the device at a time: the first to bind the abstract name of the service.
//! While it listens, it holds two more names, one for the fact and one that contains its slot. The kernel frees them
//! however the process ends. They are datagram sockets on which nothing is ever sent: `connect` shows whether a name is
//! bound.

use std::fmt;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use irnic_transports::wire::mad::{Destination, MAD_LEN, destination};

use super::domain::Domain;
use super::slot::Slot;

/// Bytes of a frame before its management datagram: BTH and an eight-byte DETH.
const HEADERS: usize = irnic_transports::wire::Bth::LEN + 8;

/// Maximum number of services whose slot is remembered.
const REMEMBERED: usize = 64;

/// A process's claim on a service id, released on drop.
#[derive(Debug)]
pub struct ServiceClaim(Box<dyn Claim>);

/// A claim on a service, released on drop.
pub(crate) trait Claim: Send + fmt::Debug {
    /// Directs requests for the service to this process from now on.
    fn listen(&mut self) -> io::Result<()>;
}

impl ServiceClaim {
    pub(crate) fn new(claim: impl Claim + 'static) -> ServiceClaim {
        ServiceClaim(Box::new(claim))
    }

    /// Directs requests for the service to this process from now on, until the claim is dropped.
    ///
    /// # Errors
    /// The system's error, for lack of descriptors; an error if the lab of this process has ended.
    pub fn listen(&mut self) -> io::Result<()> {
        self.0.listen()
    }
}

/// A claim by abstract names.
#[derive(Debug)]
pub(super) struct Names {
    _exclusive: UnixDatagram,
    /// Names by which others find the process, and their sockets while it listens.
    names: [String; 2],
    listening: Option<[UnixDatagram; 2]>,
}

impl Names {
    /// Claims a service for the process that has `slot`. Fails with `AddrInUse` if any process of the device has it.
    pub(super) fn claim(domain: &Domain, service: u64, slot: Slot) -> io::Result<Names> {
        Ok(Names {
            _exclusive: bind(&domain.service_name(service))?,
            names: [domain.service_slot_name(service, slot), domain.service_listener_name(service)],
            listening: None,
        })
    }
}

impl Claim for Names {
    fn listen(&mut self) -> io::Result<()> {
        if self.listening.is_none() {
            let [slot, listener] = &self.names;
            // The slot's name first: a process that sees the listener's name looks for it.
            self.listening = Some([bind(slot)?, bind(listener)?]);
        }
        Ok(())
    }
}

/// Claims an abstract name. Fails with `AddrInUse` if it is bound.
fn bind(name: &str) -> io::Result<UnixDatagram> {
    UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

/// Returns whether an abstract name is bound now. The socket can be reused.
fn is_bound(probe: &UnixDatagram, name: &str) -> bool {
    SocketAddr::from_abstract_name(name).is_ok_and(|name| probe.connect_addr(&name).is_ok())
}

/// Processes of the device that receive a frame.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Receiver {
    /// The process with a slot.
    One(Slot),
    /// None was found.
    None,
    /// All: a management datagram from a sender that gave up before it had an answer names no process. The process that
    /// has its request recognizes it.
    All,
}

/// Returns the receiver of a frame to queue pair 1: the process whose slot contains its communication id, or the one
/// that listens on its service, as returned by `find`.
pub(crate) fn receiver(frame: &[u8], find: impl FnOnce(u64) -> Option<Slot>) -> Receiver {
    let to = frame.get(HEADERS..HEADERS + MAD_LEN).and_then(destination);
    let slot = match to {
        Some(Destination::Comm(0)) => return Receiver::All,
        Some(Destination::Comm(id)) => Slot::of_comm_id(id),
        Some(Destination::Service(service)) => find(service),
        None => None,
    };
    slot.map_or(Receiver::None, Receiver::One)
}

/// Finds the processes that listen on services.
#[derive(Debug, Default)]
pub(super) struct Services {
    /// Services and the slots last found for them, the latest last.
    known: Vec<(u64, Slot)>,
    /// Socket to probe names with; created on first use.
    probe: Option<UnixDatagram>,
}

impl Services {
    /// Returns the slot of the process that listens on a service.
    pub(super) fn find(&mut self, domain: &Domain, service: u64) -> Option<Slot> {
        let probe = match &self.probe {
            Some(probe) => probe,
            None => self.probe.insert(UnixDatagram::unbound().ok()?),
        };
        if let Some(at) = self.known.iter().position(|(known, _)| *known == service) {
            let (_, slot) = self.known[at];
            if is_bound(probe, &domain.service_slot_name(service, slot)) {
                return Some(slot);
            }
            self.known.remove(at);
        }
        if !is_bound(probe, &domain.service_listener_name(service)) {
            return None;
        }
        let has = |slot: &Slot| is_bound(probe, &domain.service_slot_name(service, *slot));
        let slot = (1..=Slot::MAX).filter_map(Slot::new).find(has)?;
        if self.known.len() == REMEMBERED {
            self.known.remove(0);
        }
        self.known.push((service, slot));
        Some(slot)
    }
}
