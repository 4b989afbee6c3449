//! Which process of a host listens on a service. A connection to the server is a claim: it ends with its process,
//! however and wherever that ends.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::hello::{Request, Wish, greet, hello, next_message};
use crate::host::services::{Claim, ServiceClaim};
use crate::host::slot::Slot;
use crate::host::sys;

/// A service of a host.
type Service = (u32, u64);

/// The server's answers, and the message of a process that starts to listen.
const DONE: u8 = 1;
const TAKEN: u8 = 2;
const LISTENS: u8 = 3;

/// The process's end of a claim.
#[derive(Debug)]
struct Claimed {
    connection: OwnedFd,
    listens: bool,
}

impl Claim for Claimed {
    fn listen(&mut self) -> io::Result<()> {
        if !self.listens {
            sys::send(self.connection.as_fd(), &[LISTENS], &[])?;
            answer(&self.connection)?;
            self.listens = true;
        }
        Ok(())
    }
}

/// Waits for the server's answer.
fn answer(connection: &OwnedFd) -> io::Result<()> {
    let mut bytes = [0; 256];
    let message = next_message(connection, &mut bytes)?;
    match &bytes[..message.len] {
        [DONE] => Ok(()),
        [TAKEN] => Err(io::ErrorKind::AddrInUse.into()),
        [] => Err(io::Error::new(io::ErrorKind::NotConnected, "the lab has ended")),
        why => Err(io::Error::other(String::from_utf8_lossy(why).into_owned())),
    }
}

/// Claims a service for the process of a host that has `slot`. Fails with `AddrInUse` if another has it.
pub(super) fn claim(server: &Path, host: u32, slot: Slot, service: u64) -> io::Result<ServiceClaim> {
    let request = Request::Service { slot: slot.number(), service };
    let connection = greet(server, &hello(request, Wish::Host(host)))?;
    answer(&connection)?;
    Ok(ServiceClaim::new(Claimed { connection, listens: false }))
}

/// The processes of a lab that listen for connections of the communication manager (rdma_cm), for other threads.
#[derive(Clone, Debug, Default)]
pub struct Listeners(Arc<Mutex<BTreeSet<u32>>>);

impl Listeners {
    /// Returns whether the process with this id listens.
    pub fn contains(&self, process: u32) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&process)
    }

    fn set(&self, processes: BTreeSet<u32>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = processes;
    }
}

/// The owner of a service.
struct Owner {
    slot: Slot,
    process: u32,
    listens: bool,
}

/// The server's table of claims.
#[derive(Default)]
pub(super) struct Claims {
    services: BTreeMap<Service, Owner>,
    /// By token of the connection.
    connections: BTreeMap<u64, (OwnedFd, Service)>,
    listeners: Listeners,
}

impl Claims {
    /// Returns whether a connection is a claim.
    pub(super) fn has(&self, token: u64) -> bool {
        self.connections.contains_key(&token)
    }

    /// Returns the processes that listen, from now on.
    pub(super) fn listeners(&self) -> Listeners {
        self.listeners.clone()
    }

    /// Registers a connection as the claim of a process, and answers. Returns it if another process has the service.
    pub(super) fn add(
        &mut self,
        token: u64,
        connection: OwnedFd,
        service: Service,
        (slot, process): (Slot, u32),
    ) -> Option<OwnedFd> {
        if self.services.contains_key(&service) {
            let _ = sys::send(connection.as_fd(), &[TAKEN], &[]);
            return Some(connection);
        }
        let _ = sys::send(connection.as_fd(), &[DONE], &[]);
        self.services.insert(service, Owner { slot, process, listens: false });
        self.connections.insert(token, (connection, service));
        None
    }

    /// Reads a process's message about its claim. Returns the connection if it releases the service.
    pub(super) fn hear(&mut self, token: u64) -> Option<OwnedFd> {
        let (connection, service) = self.connections.get(&token)?;
        match sys::receive(connection.as_fd(), &mut [0; 8]) {
            Ok(message) if message.len > 0 => {
                if let Some(owner) = self.services.get_mut(service) {
                    owner.listens = true;
                }
                let _ = sys::send(connection.as_fd(), &[DONE], &[]);
                self.publish();
                None
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => None,
            _ => {
                let (connection, service) = self.connections.remove(&token)?;
                self.services.remove(&service);
                self.publish();
                Some(connection)
            }
        }
    }

    /// Removes the claims of a process that has ended, whose connections a child may still hold. Returns the
    /// connections.
    pub(super) fn forget(&mut self, host: u32, slot: Slot) -> Vec<OwnedFd> {
        self.services.retain(|(of, _), owner| (*of, owner.slot) != (host, slot));
        self.publish();
        let Claims { services, connections, .. } = self;
        let released = |(_, service): &(OwnedFd, (u32, u64))| !services.contains_key(service);
        let tokens: Vec<_> = connections.iter().filter(|(_, claim)| released(claim)).map(|(token, _)| *token).collect();
        tokens.iter().filter_map(|token| connections.remove(token)).map(|(connection, _)| connection).collect()
    }

    /// Returns the slot of the process of a host that listens on a service.
    pub(super) fn listener(&self, host: u32, service: u64) -> Option<Slot> {
        self.services.get(&(host, service)).filter(|owner| owner.listens).map(|owner| owner.slot)
    }

    fn publish(&self) {
        self.listeners.set(self.services.values().filter(|owner| owner.listens).map(|owner| owner.process).collect());
    }
}
