//! Connecting a queue pair: from RESET to RTS in the three usual steps.

use super::Service;
use super::access::Access;
use super::attr::{QpAttr, QpState};
use crate::packet::Path;
use crate::psn::Psn;
use crate::wire::Mtu;

/// Attributes of a queue pair from RESET to RTS (IBA table 91), with defaults for those that the ends need not agree
/// on.
///
/// [`ConnectParams::steps`] returns the changes of attributes to make, in order.
#[derive(Copy, Clone, Debug)]
#[non_exhaustive]
pub struct ConnectParams {
    /// Service of the queue pair. Attributes of other services are ignored.
    pub service: Service,
    /// Access granted to the peer: none by default.
    pub access: Access,
    /// Q_Key, for datagram queue pairs.
    pub qkey: u32,
    /// Addresses of both ends, for connections.
    pub path: Option<Path>,
    /// Payload bytes of a full packet, the same at both ends.
    pub path_mtu: Mtu,
    /// The peer's queue pair number, 24 bits.
    pub dest_qp: u32,
    /// First PSN expected from the peer: its `sq_psn`. 0 by default.
    pub rq_psn: Psn,
    /// First PSN sent: the peer's `rq_psn`. 0 by default.
    pub sq_psn: Psn,
    /// READs and atomics outstanding, in either role. 1 by default.
    pub rd_atomic: u8,
    /// RNR NAK timer code sent to the peer. 1, 10 µs, by default (IBA table 46).
    pub min_rnr_timer: u8,
    /// Local ACK Timeout code. 14, 67 ms, by default (IBA 9.7.6.1.3).
    pub timeout: u8,
    /// Retries after a timeout. 7, the maximum, by default.
    pub retry_cnt: u8,
    /// Retries after an RNR NAK. 7, for ever, by default.
    pub rnr_retry: u8,
}

impl ConnectParams {
    const DEFAULT: ConnectParams = ConnectParams {
        service: Service::Rc,
        access: Access(0),
        qkey: 0,
        path: None,
        path_mtu: Mtu::B1024,
        dest_qp: 0,
        rq_psn: Psn::new(0),
        sq_psn: Psn::new(0),
        rd_atomic: 1,
        min_rnr_timer: 1,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
    };

    /// Returns the parameters of a reliable connection to the queue pair `dest_qp` at the destination of `path`.
    pub fn reliable(path: Path, path_mtu: Mtu, dest_qp: u32) -> ConnectParams {
        ConnectParams { path: Some(path), path_mtu, dest_qp, ..Self::DEFAULT }
    }

    /// Returns the parameters of an unreliable connection to the queue pair `dest_qp` at the destination of `path`.
    pub fn unreliable(path: Path, path_mtu: Mtu, dest_qp: u32) -> ConnectParams {
        ConnectParams { service: Service::Uc, ..Self::reliable(path, path_mtu, dest_qp) }
    }

    /// Returns the parameters of an XRC initiator that sends to the target `dest_qp` at the destination of `path`.
    pub fn xrc_initiator(path: Path, path_mtu: Mtu, dest_qp: u32) -> ConnectParams {
        ConnectParams { service: Service::XrcInitiator, ..Self::reliable(path, path_mtu, dest_qp) }
    }

    /// Returns the parameters of an XRC target of the initiator `dest_qp` at the destination of `path`.
    pub fn xrc_target(path: Path, path_mtu: Mtu, dest_qp: u32) -> ConnectParams {
        ConnectParams { service: Service::XrcTarget, ..Self::reliable(path, path_mtu, dest_qp) }
    }

    /// Returns the parameters of a datagram queue pair.
    pub fn datagram(qkey: u32) -> ConnectParams {
        ConnectParams { service: Service::Ud, qkey, ..Self::DEFAULT }
    }

    /// Returns the changes that bring a queue pair from RESET to INIT, RTR and RTS.
    pub fn steps(&self) -> [QpAttr; 3] {
        [QpAttr::to_init(self), QpAttr::to_rtr(self), QpAttr::to_rts(self)]
    }

    fn connected(&self) -> bool {
        self.service != Service::Ud
    }

    fn requests(&self) -> bool {
        matches!(self.service, Service::Rc | Service::XrcInitiator)
    }

    fn responds(&self) -> bool {
        matches!(self.service, Service::Rc | Service::XrcTarget)
    }
}

impl QpAttr {
    /// Returns the attributes for the transition from RESET to INIT.
    pub fn to_init(params: &ConnectParams) -> QpAttr {
        QpAttr {
            state: Some(QpState::Init),
            pkey_index: Some(0),
            port: Some(1),
            access: params.connected().then_some(params.access),
            qkey: (!params.connected()).then_some(params.qkey),
            ..QpAttr::default()
        }
    }

    /// Returns the attributes for the transition from INIT to RTR, where it can receive.
    pub fn to_rtr(params: &ConnectParams) -> QpAttr {
        let (connected, responds) = (params.connected(), params.responds());
        QpAttr {
            state: Some(QpState::Rtr),
            path: params.path.filter(|_| connected),
            path_mtu: connected.then_some(params.path_mtu),
            dest_qp: connected.then_some(params.dest_qp),
            rq_psn: connected.then_some(params.rq_psn),
            max_dest_rd_atomic: responds.then_some(params.rd_atomic),
            min_rnr_timer: responds.then_some(params.min_rnr_timer),
            ..QpAttr::default()
        }
    }

    /// Returns the attributes for the transition from RTR to RTS, where it can send.
    pub fn to_rts(params: &ConnectParams) -> QpAttr {
        let requests = params.requests();
        QpAttr {
            state: Some(QpState::Rts),
            sq_psn: Some(params.sq_psn),
            max_rd_atomic: requests.then_some(params.rd_atomic),
            timeout: params.service.is_reliable().then_some(params.timeout),
            retry_cnt: requests.then_some(params.retry_cnt),
            rnr_retry: requests.then_some(params.rnr_retry),
            ..QpAttr::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_service_takes_its_steps() {
        let local = std::net::IpAddr::from([10, 0, 0, 1]);
        let path = Path { src: local, dst: local, udp_src: 0xc000, traffic_class: 0, hop_limit: 64 };
        for params in [
            ConnectParams::reliable(path, Mtu::B4096, 17),
            ConnectParams::unreliable(path, Mtu::B4096, 17),
            ConnectParams::datagram(5),
            ConnectParams::xrc_initiator(path, Mtu::B4096, 17),
            ConnectParams::xrc_target(path, Mtu::B4096, 17),
        ] {
            let mut state = QpState::Reset;
            for step in params.steps() {
                state = step.check(params.service, state).unwrap();
            }
            assert_eq!(state, QpState::Rts);
        }
        let [init, rtr, _] = ConnectParams::reliable(path, Mtu::B4096, 17).steps();
        assert_eq!((init.access, init.qkey), (Some(Access(0)), None));
        assert_eq!((rtr.path, rtr.path_mtu, rtr.dest_qp), (Some(path), Some(Mtu::B4096), Some(17)));
        assert_eq!(ConnectParams::datagram(5).steps()[0].qkey, Some(5));
    }
}
