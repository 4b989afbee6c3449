//! Queue pairs connected by rdma_cm: the same messages over queue pair 1 as of applications that use librdmacm.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};

use irnic_cm::{
    Cm, CmConfig, CmError, CmEvent, CmId, ConnParam, EventKind, EventParam, PortSpace, PrivateData, QpKind, Route,
};
use irnic_nic::Nic;
use irnic_transports::Time;
use irnic_transports::qp::{Access, QpState};
use irnic_transports::time::SEC;
use irnic_transports::wire::Mtu;

use crate::carrier::Carrier;
use crate::clock::RunClock;
use crate::endpoint::{self, Endpoint, MIN_RNR_TIMER, RNR_RETRY, refused};
use crate::error::PerfError;
use crate::pattern::mix;
use crate::plan::Plan;
use crate::run::Idle;

/// Maximum number of outstanding requests: fewer than a listener has room for.
const WINDOW: usize = 64;
/// Timeout for an answer of the peer, 1.07 s, and number of retries: code and count of IBA.
const RESPONSE_TIMEOUT: u8 = 18;
const RETRIES: u8 = 7;
/// Timeout of disconnecting, ns.
const PARTING: u64 = SEC;
/// IBA's reason for "consumer reject".
const CONSUMER: u16 = 28;

/// One end's connection manager, and the state of its queue pairs.
pub struct Connector {
    cm: Cm,
    plan: Plan,
    /// The client's route to the server; the server has none and is passive.
    route: Option<Route>,
    first_qpn: u32,
    /// Connections by queue pair.
    ids: Vec<Option<CmId>>,
    /// Numbers of queue pairs with a connection requested, established, and ended.
    requested: usize,
    established: usize,
    ended: usize,
}

fn failed(e: CmError) -> PerfError {
    PerfError::Failed(format!("rdma_cm: {e}"))
}

impl Connector {
    /// Creates the connection manager of an end. The server listens.
    pub fn new(plan: &Plan, end: &Endpoint, mtu: Mtu, own: IpAddr, peer: IpAddr) -> Result<Connector, PerfError> {
        let mut seed = [0; 32];
        for (i, word) in (0u64..).zip(seed.chunks_exact_mut(8)) {
            word.copy_from_slice(&mix(plan.seed ^ mix(u64::from(end.first_qpn) ^ i << 32)).to_le_bytes());
        }
        // Communication ids and GUID differ between the ends as queue pair numbers do.
        let config = CmConfig::new(seed, 0x0200_5eff_fe00_0000 | u64::from(end.first_qpn), end.first_qpn << 8, 1 << 20);
        let mut cm = Cm::new(config.with_mtu(mtu).with_timeouts(RESPONSE_TIMEOUT, RETRIES));
        let (here, there) = (SocketAddr::new(own, plan.tcp_port), SocketAddr::new(peer, plan.tcp_port));
        let route = if end.side == 0 {
            Some(Route::new(here, there, endpoint::path(plan, end.first_qpn, own, peer), mtu))
        } else {
            let listener = cm.create(PortSpace::Tcp, QpKind::Rc).map_err(failed)?;
            cm.bind(listener, here, false).map_err(failed)?;
            cm.listen(listener, 0).map_err(failed)?;
            None
        };
        let ids = vec![None; end.psns.len()];
        let plan = plan.clone();
        Ok(Connector { cm, plan, route, first_qpn: end.first_qpn, ids, requested: 0, established: 0, ended: 0 })
    }

    /// Whether all queue pairs are connected.
    pub fn is_established(&self) -> bool {
        self.established == self.ids.len()
    }

    /// Whether all connections have ended.
    pub fn has_parted(&self) -> bool {
        self.ended >= self.established
    }

    /// Time of the next retransmission.
    pub fn next_deadline(&self) -> Time {
        self.cm.next_deadline()
    }

    /// Receives messages, requests connections and accepts them. Returns the amount of work done.
    pub fn step(&mut self, now: Time, nic: &mut Nic) -> Result<usize, PerfError> {
        let mut moved = 0;
        while let Some(datagram) = nic.poll_mad() {
            self.cm.receive(now, &datagram.path, &datagram.mad);
            moved += 1;
        }
        if now >= self.cm.next_deadline() {
            self.cm.on_deadline(now);
        }
        while let Some(event) = self.cm.poll_event() {
            self.take(now, nic, &event)?;
            moved += 1;
        }
        while self.route.is_some() && self.requested < self.ids.len() && self.requested - self.established < WINDOW {
            self.ask(now)?;
            moved += 1;
        }
        while let Some((path, mad)) = self.cm.poll_mad() {
            // A message that does not fit is retransmitted.
            nic.post_mad(path, &mad);
            moved += 1;
        }
        Ok(moved)
    }

    fn param(&self, qp: usize) -> ConnParam {
        let mut param = ConnParam::new(self.first_qpn + qp as u32);
        (param.responder_resources, param.initiator_depth) = (self.plan.outs, self.plan.outs);
        (param.retry_count, param.rnr_retry_count) = (self.plan.retry_count, RNR_RETRY);
        param.srq = self.plan.srq;
        // Requests may be reordered: each says which queue pair it is for.
        param.private_data = PrivateData::new(&(qp as u32).to_be_bytes()).unwrap_or(PrivateData::EMPTY);
        param
    }

    /// Requests the next queue pair's connection.
    fn ask(&mut self, now: Time) -> Result<(), PerfError> {
        let Some(route) = self.route else { return Ok(()) };
        let qp = self.requested;
        let id = self.cm.create(PortSpace::Tcp, QpKind::Rc).map_err(failed)?;
        let Route { path, src, dst, .. } = route;
        let path = endpoint::path(&self.plan, self.first_qpn + qp as u32, path.src, path.dst);
        self.cm.resolve(id, Route::new(src, dst, path, route.mtu)).map_err(failed)?;
        self.prepare(id)?;
        self.cm.connect(now, id, &self.param(qp)).map_err(failed)?;
        self.ids[qp] = Some(id);
        self.requested += 1;
        Ok(())
    }

    /// Sets the options of an id.
    fn prepare(&mut self, id: CmId) -> Result<(), PerfError> {
        self.cm.set_tos(id, self.plan.traffic_class).map_err(failed)?;
        self.cm.set_ack_timeout(id, self.plan.qp_timeout).map_err(failed)
    }

    fn take(&mut self, now: Time, nic: &mut Nic, event: &CmEvent) -> Result<(), PerfError> {
        let EventParam::Conn(data) = &event.param else { return self.take_bare(event) };
        match event.kind {
            EventKind::ConnectRequest => {
                let index = data.private_data.first_chunk().map(|bytes| u32::from_be_bytes(*bytes) as usize);
                let Some(qp) = index.filter(|&qp| self.ids.get(qp).is_some_and(Option::is_none)) else {
                    return self.cm.reject(now, event.id, CONSUMER, &PrivateData::EMPTY).map_err(failed);
                };
                self.prepare(event.id)?;
                self.ids[qp] = Some(event.id);
                self.raise(nic, event.id, qp)?;
                let param = self.param(qp);
                self.cm.accept(now, event.id, Some(&param)).map_err(failed)
            }
            EventKind::ConnectResponse => {
                let qp = self.ids.iter().position(|id| *id == Some(event.id));
                let Some(qp) = qp else { return Ok(()) };
                self.raise(nic, event.id, qp)?;
                self.cm.accept(now, event.id, None).map_err(failed)?;
                self.established += 1;
                Ok(())
            }
            _ => self.take_bare(event),
        }
    }

    fn take_bare(&mut self, event: &CmEvent) -> Result<(), PerfError> {
        let gave_up = |what: &str| {
            Err(PerfError::Failed(format!(
                "rdma_cm: {what}; see that the peer runs and that nothing between the ends drops UDP port 4791"
            )))
        };
        match event.kind {
            // The client counts its own when it answers.
            EventKind::Established if self.route.is_none() => self.established += 1,
            EventKind::Disconnected => self.ended += 1,
            EventKind::Unreachable => return gave_up("the peer does not answer"),
            EventKind::ConnectError => return gave_up("the connection cannot be made"),
            EventKind::Rejected => return gave_up(&format!("the peer refuses (reason {})", event.status)),
            _ => {}
        }
        Ok(())
    }

    /// Brings a queue pair to RTS, as rdma_accept(3) and rdma_connect(3) do.
    fn raise(&mut self, nic: &mut Nic, id: CmId, qp: usize) -> Result<(), PerfError> {
        let qpn = self.first_qpn + qp as u32;
        for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
            let mut attr = self.cm.qp_attr(id, state).map_err(failed)?.attr;
            if state == QpState::Init {
                attr.access = Some(Access::ALL);
            }
            if state == QpState::Rtr {
                attr.min_rnr_timer = Some(MIN_RNR_TIMER);
            }
            nic.modify_qp(qpn, &attr).map_err(refused)?;
        }
        endpoint::limit(nic, &self.plan, qpn)
    }

    /// Ends all connections from the client's end; the server's end follows.
    pub fn part(&mut self, now: Time) {
        if self.route.is_some() {
            for id in self.ids.iter().flatten() {
                // Connections that have already ended need nothing.
                let _ = self.cm.disconnect(now, *id);
            }
        }
    }
}

/// Connects both ends of a run in this process.
pub fn both<C: Carrier>(
    carrier: &mut C,
    connectors: &mut [Connector; 2],
    clock: RunClock,
    interrupted: &AtomicBool,
) -> Result<(), PerfError> {
    drive(carrier, connectors, clock, |_, connectors| {
        if interrupted.load(Ordering::Relaxed) {
            return Err(PerfError::Interrupted);
        }
        Ok(connectors.iter().all(Connector::is_established))
    })
}

/// Ends the connections of both ends of a run in this process.
pub fn part<C: Carrier>(
    carrier: &mut C,
    connectors: &mut [Connector; 2],
    mut clock: RunClock,
) -> Result<(), PerfError> {
    let begin = clock.now();
    connectors[0].part(begin);
    drive(carrier, connectors, clock, |now, connectors| {
        Ok(connectors.iter().all(Connector::has_parted) || now.since(begin) > PARTING)
    })
}

/// Drives managers, one for each NIC of the carrier, until `done`.
pub fn drive<C: Carrier, const N: usize>(
    carrier: &mut C,
    connectors: &mut [Connector; N],
    mut clock: RunClock,
    mut done: impl FnMut(Time, &mut [Connector; N]) -> Result<bool, PerfError>,
) -> Result<(), PerfError> {
    let mut idle = Idle::new(false);
    loop {
        let now = clock.now();
        let mut moved = carrier.receive(now)?;
        let mut due = Time::NEVER;
        for (side, connector) in connectors.iter_mut().enumerate() {
            moved += connector.step(now, carrier.nic(side))?;
            due = due.min(connector.next_deadline());
        }
        moved += carrier.transmit(now)?;
        if done(now, connectors)? {
            return Ok(());
        }
        idle.after_round(moved, now, due, carrier)?;
    }
}

/// Ends the connections of one end, whose peer does so as well.
pub fn part_one<C: Carrier>(
    carrier: &mut C,
    connector: &mut [Connector; 1],
    mut clock: RunClock,
) -> Result<(), PerfError> {
    let begin = clock.now();
    connector[0].part(begin);
    drive(carrier, connector, clock, |now, connector| Ok(connector[0].has_parted() || now.since(begin) > PARTING))
}
