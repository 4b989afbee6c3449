//! Which process of the host listens on a service, so that management datagrams find it.
//!
//! A service id belongs to one process of the device at a time: whoever binds the abstract name of the service first.
//! While it listens it has two more names, one that says so and one with its slot in it. The kernel frees them however
//! the process ends. They are datagram sockets on which nothing is ever sent: `connect` says whether somebody has a
//! name.

use std::fmt;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use irnic_transports::wire::mad::{Destination, MAD_LEN, destination};

use super::slot::{Domain, Slot};

/// Bytes of a frame before its management datagram: BTH and an eight-byte DETH.
const HEADERS: usize = irnic_transports::wire::Bth::LEN + 8;

/// Most services whose slot is remembered.
const REMEMBERED: usize = 64;

/// A process's claim on a service id. Dropping it gives the service up.
#[derive(Debug)]
pub struct ServiceClaim(Box<dyn Claim>);

/// How a service is claimed and given up, when it is dropped.
pub(crate) trait Claim: Send + fmt::Debug {
    /// Has requests for the service come to this process from now on.
    fn listen(&mut self) -> io::Result<()>;
}

impl ServiceClaim {
    pub(crate) fn new(claim: impl Claim + 'static) -> ServiceClaim {
        ServiceClaim(Box::new(claim))
    }

    /// Has requests for the service come to this process from now on, until the claim is dropped.
    ///
    /// # Errors
    /// The system's, for want of descriptors; if the lab that the process is in has ended.
    pub fn listen(&mut self) -> io::Result<()> {
        self.0.listen()
    }
}

/// A claim by abstract names.
#[derive(Debug)]
pub(super) struct Names {
    _exclusive: UnixDatagram,
    /// The names by which others find the process, and their sockets while it listens.
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
            // The slot's first: who sees that somebody listens looks for it.
            self.listening = Some([bind(slot)?, bind(listener)?]);
        }
        Ok(())
    }
}

/// Claims an abstract name. Fails with `AddrInUse` if somebody has it.
fn bind(name: &str) -> io::Result<UnixDatagram> {
    UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

/// Returns whether somebody has an abstract name now. The socket may be used for this again and again.
fn is_bound(probe: &UnixDatagram, name: &str) -> bool {
    SocketAddr::from_abstract_name(name).is_ok_and(|name| probe.connect_addr(&name).is_ok())
}

/// Which of the device's processes get a frame.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Receiver {
    /// The process with a slot.
    One(Slot),
    /// None that could be found.
    Nobody,
    /// All: a management datagram whose sender gave up before it had an answer names nobody. Whoever has its request
    /// knows.
    All,
}

/// Returns who gets a frame to queue pair 1: the process in whose slot the communication id is that it names, or that
/// listens on its service, which `find` finds.
pub(crate) fn receiver(frame: &[u8], find: impl FnOnce(u64) -> Option<Slot>) -> Receiver {
    let to = frame.get(HEADERS..HEADERS + MAD_LEN).and_then(destination);
    let slot = match to {
        Some(Destination::Comm(0)) => return Receiver::All,
        Some(Destination::Comm(id)) => Slot::of_comm_id(id),
        Some(Destination::Service(service)) => find(service),
        None => None,
    };
    slot.map_or(Receiver::Nobody, Receiver::One)
}

/// Finds the processes that listen on services.
#[derive(Debug, Default)]
pub(super) struct Services {
    /// Services and who had them when last looked, the latest last.
    known: Vec<(u64, Slot)>,
    /// Asks whether somebody has a name; made when it is first needed.
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
