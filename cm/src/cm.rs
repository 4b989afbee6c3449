//! The manager, its ids and its queues.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use irnic_transports::wire::Mtu;
use irnic_transports::wire::mad::{MAD_LEN, Mad, Message};
use irnic_transports::{Path, Psn, Time};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::connection::Connection;
use crate::connections::Connections;
use crate::id::{Binding, Id, Listener};
use crate::known_peers::KnownPeers;
use crate::{Addresses, CmConfig, CmError, CmEvent, CmId, EventKind, EventParam, PortSpace, QpKind, Route};

/// The communication manager of one port of a NIC.
///
/// After each call except getters (`&self`) there may be MADs to send ([`Cm::poll_mad`]), events ([`Cm::poll_event`])
/// and an earlier deadline ([`Cm::next_deadline`]). `now` never goes back.
///
/// Ids follow the calls of librdmacm. Active side: `create`, `resolve`, `connect`, then after `ConnectResponse`
/// `accept` without parameters. Passive side: `create`, `bind`, `listen`, then for the new id of a `ConnectRequest`
/// `accept` with parameters, or `reject`. `destroy` is valid in any state.
#[derive(Debug)]
pub struct Cm {
    pub(crate) config: CmConfig,
    pub(crate) ids: BTreeMap<CmId, Id>,
    next_id: u64,
    /// Listeners in the order in which they started.
    pub(crate) listeners: Vec<CmId>,
    pub(crate) connections: Connections,
    /// Number of accepted requests.
    pub(crate) accepted: u64,
    pub(crate) random: StdRng,
    /// Requests that were turned away, and peers that have confirmed a connection.
    pub(crate) seen: KnownPeers,
    mads: VecDeque<(Path, [u8; MAD_LEN])>,
    pub(crate) events: VecDeque<CmEvent>,
    /// An MRA has arrived since [`Cm::take_mra`].
    pub(crate) mra_arrived: bool,
}

impl Cm {
    /// Creates a manager without ids.
    pub fn new(config: CmConfig) -> Cm {
        let mut random = StdRng::from_seed(config.seed);
        let secret = random.random();
        Cm {
            config,
            ids: BTreeMap::new(),
            next_id: 0,
            listeners: Vec::new(),
            connections: Connections::new(config.first_comm_id, config.comm_ids, secret),
            accepted: 0,
            random,
            seen: KnownPeers::new(u64::from_le_bytes(std::array::from_fn(|i| config.seed[i]))),
            mads: VecDeque::new(),
            events: VecDeque::new(),
            mra_arrived: false,
        }
    }

    /// Limits the path MTU of connections established from now on ([`CmConfig::mtu`]).
    pub fn set_mtu(&mut self, mtu: Mtu) {
        self.config.mtu = mtu;
    }

    /// Takes the next MAD to be sent to queue pair 1 at `path.dst`. The destination may be this port.
    pub fn poll_mad(&mut self) -> Option<(Path, [u8; MAD_LEN])> {
        self.mads.pop_front()
    }

    /// Takes the next event. Events of an id come in order; none comes after the id is destroyed.
    pub fn poll_event(&mut self) -> Option<CmEvent> {
        let event = self.events.pop_front()?;
        if let Some(id) = self.ids.get_mut(&event.id) {
            id.pending -= 1;
        }
        Some(event)
    }

    /// Creates an id.
    pub fn create(&mut self, space: PortSpace, kind: QpKind) -> Result<CmId, CmError> {
        self.add_id(space, kind).ok_or(CmError::Resources)
    }

    pub(crate) fn add_id(&mut self, space: PortSpace, kind: QpKind) -> Option<CmId> {
        if self.ids.len() >= self.config.max_ids {
            return None;
        }
        let id = CmId(self.next_id);
        self.next_id += 1;
        let (psn, flow_label) = (Psn::new(self.random.random()), self.random.random::<u32>() & 0xf_ffff);
        self.ids.insert(id, Id::new(space, kind, psn, flow_label));
        Some(id)
    }

    /// Binds an id to an address with a port. The unspecified address matches all. Ids that all set `reuse` may share
    /// an address as long as none of them listens.
    ///
    /// Only ids of this manager are checked: conflicts between processes are the caller's concern.
    pub fn bind(&mut self, id: CmId, addr: SocketAddr, reuse: bool) -> Result<(), CmError> {
        let own = self.unbound(id, "bind")?;
        if addr.port() == 0 {
            return Err(CmError::NoPort);
        }
        let (space, afonly) = (own.space, own.leaves_other_family(addr));
        self.check_address(id, space, addr, afonly, reuse)?;
        let own = self.id_mut(id)?;
        (own.binding, own.reuse) = (Some(Binding::Addr(addr)), reuse);
        Ok(())
    }

    /// Binds an id to all service ids equal to `service` in the bits set in `mask` (`AF_IB`).
    pub fn bind_service(&mut self, id: CmId, service: u64, mask: u64) -> Result<(), CmError> {
        self.unbound(id, "bind")?.binding = Some(Binding::Service(service & mask, mask));
        Ok(())
    }

    /// Sets whether an id bound to the unspecified address excludes the other family (`RDMA_OPTION_ID_AFONLY`). By
    /// default IPv4's does, and IPv6's does not.
    pub fn set_afonly(&mut self, id: CmId, afonly: bool) -> Result<(), CmError> {
        let own = self.id_mut(id)?;
        if own.listener.is_some() || own.used {
            return Err(CmError::State { call: "set_afonly", state: own.state_name() });
        }
        own.afonly = Some(afonly);
        Ok(())
    }

    /// Listens on the id's binding. `backlog` is the number of requests that may wait for the application, neither
    /// accepted nor rejected; 0, or a value above the configured maximum, selects the maximum. Requests beyond it are
    /// dropped without an answer, as in the kernel: their senders repeat them. While requests are being dropped, only
    /// repeated ones and those of peers that have connected before are admitted; forged ones are neither.
    pub fn listen(&mut self, id: CmId, backlog: u32) -> Result<(), CmError> {
        let ceiling = self.config.max_backlog.max(1);
        let own = self.id_mut(id)?;
        if own.listener.is_some() || own.route.is_some() || own.used {
            return Err(CmError::State { call: "listen", state: own.state_name() });
        }
        match own.binding {
            Some(Binding::Addr(addr)) => {
                let (space, afonly) = (own.space, own.leaves_other_family(addr));
                self.check_address(id, space, addr, afonly, false)?;
            }
            Some(Binding::Service(service, _)) => {
                let taken = |other: &CmId| self.ids.get(other).is_some_and(|other| other.serves(service));
                if self.listeners.iter().any(taken) {
                    return Err(CmError::ServiceInUse(service));
                }
            }
            None => return Err(CmError::NotBound),
        }
        let backlog = if backlog == 0 { ceiling } else { backlog.min(ceiling) };
        self.id_mut(id)?.listener = Some(Listener { backlog, ..Listener::default() });
        self.listeners.push(id);
        Ok(())
    }

    /// Sets the route to the peer. The id counts as bound to `route.src` from then on, without a check.
    pub fn resolve(&mut self, id: CmId, route: Route) -> Result<(), CmError> {
        let own = self.id_mut(id)?;
        if own.listener.is_some() || own.used {
            return Err(CmError::State { call: "resolve", state: own.state_name() });
        }
        own.binding.get_or_insert(Binding::Addr(route.src));
        own.route = Some(route);
        Ok(())
    }

    /// Sets the traffic class of an id's packets (`RDMA_OPTION_ID_TOS`), MADs included. Before `connect`.
    pub fn set_tos(&mut self, id: CmId, traffic_class: u8) -> Result<(), CmError> {
        self.id_mut(id)?.traffic_class = Some(traffic_class);
        Ok(())
    }

    /// Sets the Local ACK Timeout code of an id's queue pair, 0 to 31 (`RDMA_OPTION_ID_ACK_TIMEOUT`).
    pub fn set_ack_timeout(&mut self, id: CmId, code: u8) -> Result<(), CmError> {
        if code > 31 {
            return Err(CmError::Range("ACK timeout"));
        }
        self.id_mut(id)?.ack_timeout = Some(code);
        Ok(())
    }

    /// Returns the id's port space and kind of queue pair.
    pub fn kind(&self, id: CmId) -> Result<(PortSpace, QpKind), CmError> {
        self.id(id).map(|own| (own.space, own.kind))
    }

    /// Returns the number of the queue pair of this side of the id's connection; `None` if there is none.
    pub fn local_qpn(&self, id: CmId) -> Option<u32> {
        let connection = self.connections.get(self.id(id).ok()?.connection?)?;
        (connection.local_qpn != 0).then_some(connection.local_qpn)
    }

    /// Returns the socket addresses of both ends.
    pub fn addresses(&self, id: CmId) -> Result<Addresses, CmError> {
        let own = self.id(id)?;
        let bound = match own.binding {
            Some(Binding::Addr(addr)) => Some(addr),
            _ => None,
        };
        let local = own.route.map(|route| route.src).or(bound);
        Ok(Addresses { local, peer: own.route.map(|route| route.dst) })
    }

    /// Returns the route to the peer: that of [`Cm::resolve`], or the one by which the request arrived. `None` if there
    /// is none yet.
    pub fn route(&self, id: CmId) -> Result<Option<Route>, CmError> {
        self.id(id).map(|own| own.route)
    }

    /// Returns the number of ids.
    pub fn id_count(&self) -> usize {
        self.ids.len()
    }

    /// Returns the number of connections whose state is kept, including those in timewait and rejected ones.
    pub fn connection_count(&self) -> usize {
        self.connections.len()
    }

    /// Returns the configuration.
    pub fn config(&self) -> &CmConfig {
        &self.config
    }

    pub(crate) fn id(&self, id: CmId) -> Result<&Id, CmError> {
        self.ids.get(&id).ok_or(CmError::UnknownId)
    }

    pub(crate) fn id_mut(&mut self, id: CmId) -> Result<&mut Id, CmError> {
        self.ids.get_mut(&id).ok_or(CmError::UnknownId)
    }

    /// Returns an id that is not bound yet.
    fn unbound(&mut self, id: CmId, call: &'static str) -> Result<&mut Id, CmError> {
        let own = self.id_mut(id)?;
        match own.binding {
            None if !own.used => Ok(own),
            _ => Err(CmError::State { call, state: own.state_name() }),
        }
    }

    /// Checks an id's address against those of the other ids (`cma_check_port` in the kernel).
    fn check_address(
        &self,
        id: CmId,
        space: PortSpace,
        addr: SocketAddr,
        afonly: bool,
        reuse: bool,
    ) -> Result<(), CmError> {
        let owner = self.ids.iter().find(|&(&other, own)| {
            let shared = reuse && own.reuse && own.listener.is_none();
            // Ids of requests have their listener's address and do not conflict.
            other != id && own.space == space && own.overlaps(addr, afonly) && !shared
        });
        let everywhere = |binding| matches!(binding, Some(Binding::Addr(addr)) if addr.ip().is_unspecified());
        match owner {
            None => Ok(()),
            Some((_, own)) if addr.ip().is_unspecified() || everywhere(own.binding) => Err(CmError::AddrOverlaps(addr)),
            Some(_) => Err(CmError::AddrInUse(addr)),
        }
    }

    /// Returns an id's connection.
    pub(crate) fn connection(&mut self, id: CmId, call: &'static str) -> Result<&mut Connection, CmError> {
        let own = self.ids.get(&id).ok_or(CmError::UnknownId)?;
        let state = own.state_name();
        own.connection.and_then(|comm_id| self.connections.get_mut(comm_id)).ok_or(CmError::State { call, state })
    }

    /// Queues a MAD; drops it if too many wait.
    pub(crate) fn send(&mut self, path: Path, mad: [u8; MAD_LEN]) {
        if self.mads.len() < self.config.max_mads {
            self.mads.push_back((path, mad));
        }
    }

    /// Queues a message and returns its bytes.
    pub(crate) fn send_message(&mut self, path: Path, tid: u64, message: impl Into<Message>) -> [u8; MAD_LEN] {
        let mad = Mad { tid, message: message.into() }.to_bytes();
        self.send(path, mad);
        mad
    }

    /// Queues an event about an id.
    pub(crate) fn raise(&mut self, id: CmId, kind: EventKind, status: i32, param: EventParam) {
        self.raise_event(CmEvent { id, listener: None, kind, status, param });
    }

    pub(crate) fn raise_event(&mut self, event: CmEvent) {
        if let Some(id) = self.ids.get_mut(&event.id) {
            id.pending += 1;
            self.events.push_back(event);
        }
    }

    /// Returns when [`Cm::on_deadline`] is due, [`Time::NEVER`] if there is no deadline.
    pub fn next_deadline(&self) -> Time {
        self.connections.next_due()
    }
}
