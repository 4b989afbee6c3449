//! A queue pair's states, attributes, and the transitions between them (IBA 10.3.1, table 91).

use super::Service;
use super::access::Access;
use crate::packet::Path;
use crate::psn::Psn;
use crate::wire::Mtu;

/// States of a queue pair.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum QpState {
    /// Created; nothing may be posted.
    Reset,
    /// Receives may be posted.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to send.
    Rts,
    /// Send queue drained: work requests in progress complete, no new one starts.
    Sqd,
    /// Send queue error (unreliable services only).
    Sqe,
    /// Everything is flushed.
    Err,
}

/// Attributes to change; `None` leaves one unchanged.
#[derive(Copy, Clone, Debug, Default)]
pub struct QpAttr {
    /// Next state.
    pub state: Option<QpState>,
    /// Access granted to the peer.
    pub access: Option<Access>,
    /// Partition key index; only 0 exists (0xffff).
    pub pkey_index: Option<u16>,
    /// Port; only 1 exists.
    pub port: Option<u8>,
    /// Q_Key required of received datagrams, and sent in datagrams whose work request has a Q_Key with the highest bit
    /// set (UD).
    pub qkey: Option<u32>,
    /// Addresses of both ends.
    pub path: Option<Path>,
    /// Payload bytes of a full packet.
    pub path_mtu: Option<Mtu>,
    /// The peer's queue pair number, 24 bits.
    pub dest_qp: Option<u32>,
    /// First PSN expected from the peer.
    pub rq_psn: Option<Psn>,
    /// First PSN sent.
    pub sq_psn: Option<Psn>,
    /// READs and atomics that the peer may have outstanding here, 0 to [`MAX_RD_ATOMIC`].
    pub max_dest_rd_atomic: Option<u8>,
    /// READs and atomics outstanding at the peer, 0 to [`MAX_RD_ATOMIC`].
    pub max_rd_atomic: Option<u8>,
    /// RNR NAK timer code sent to the peer, 0 to 31 (IBA table 46).
    pub min_rnr_timer: Option<u8>,
    /// Local ACK Timeout code, 0 (infinite) to 31: 4.096 µs · 2ⁿ (IBA 9.7.6.1.3).
    pub timeout: Option<u8>,
    /// Retries after a timeout, 0 to 7.
    pub retry_cnt: Option<u8>,
    /// Retries after an RNR NAK, 0 to 6, 7 is for ever.
    pub rnr_retry: Option<u8>,
    /// With `state` = SQD: whether to raise an event when drained.
    pub sqd_event: bool,
}

/// Maximum number of READs and atomics outstanding on a queue pair, in either role.
pub const MAX_RD_ATOMIC: u8 = 128;

/// Error of a modification, which has changed nothing.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModifyError {
    /// There is no such transition.
    #[error("a QP cannot go from {from:?} to {to:?}")]
    #[allow(missing_docs)]
    Transition { from: QpState, to: QpState },
    /// A transition lacks an attribute.
    #[error("{from:?} to {to:?} needs {attribute}")]
    #[allow(missing_docs)]
    Missing { from: QpState, to: QpState, attribute: &'static str },
    /// An attribute cannot be set in this transition.
    #[error("{from:?} to {to:?} does not take {attribute}")]
    #[allow(missing_docs)]
    NotAllowed { from: QpState, to: QpState, attribute: &'static str },
    /// A value out of range.
    #[error("{attribute} = {value}: expected {expected}")]
    #[allow(missing_docs)]
    Range { attribute: &'static str, value: u64, expected: &'static str },
}

/// Attribute names as bits, for the tables below.
mod bit {
    pub(super) const ACCESS: u16 = 1;
    pub(super) const PKEY: u16 = 1 << 1;
    pub(super) const PORT: u16 = 1 << 2;
    pub(super) const PATH: u16 = 1 << 3;
    pub(super) const MTU: u16 = 1 << 4;
    pub(super) const DEST_QP: u16 = 1 << 5;
    pub(super) const RQ_PSN: u16 = 1 << 6;
    pub(super) const SQ_PSN: u16 = 1 << 7;
    pub(super) const MAX_DEST: u16 = 1 << 8;
    pub(super) const MAX_RD: u16 = 1 << 9;
    pub(super) const RNR_TIMER: u16 = 1 << 10;
    pub(super) const TIMEOUT: u16 = 1 << 11;
    pub(super) const RETRY: u16 = 1 << 12;
    pub(super) const RNR_RETRY: u16 = 1 << 13;
    pub(super) const QKEY: u16 = 1 << 14;
    pub(super) const NAMES: [&str; 15] = [
        "access flags",
        "P_Key index",
        "port number",
        "address vector",
        "path MTU",
        "destination QP number",
        "RQ PSN",
        "SQ PSN",
        "max_dest_rd_atomic",
        "max_rd_atomic",
        "minimum RNR timer",
        "timeout",
        "retry count",
        "RNR retry count",
        "Q_Key",
    ];
}

/// Returns the required and optional attributes of a transition (IBA table 91); `None` if there is no such transition.
/// Attributes of alternate paths and of migration, which irnic does not support, are left out.
fn transition(service: Service, from: QpState, to: QpState) -> Option<(u16, u16)> {
    use QpState::*;
    use bit::*;
    let ud = service == Service::Ud;
    // Attributes that may change at any time between INIT and an error.
    let running = match service {
        Service::Rc | Service::XrcTarget => ACCESS | RNR_TIMER,
        Service::Uc | Service::XrcInitiator => ACCESS,
        Service::Ud => QKEY,
    };
    // RC attributes of each end of XRC: Linux's qp_state_table (drivers/infiniband/core/verbs.c).
    let requests = match service {
        Service::Rc | Service::XrcInitiator => TIMEOUT | RETRY | RNR_RETRY | MAX_RD,
        Service::XrcTarget => TIMEOUT,
        Service::Uc | Service::Ud => 0,
    };
    let responds = match service {
        Service::Rc | Service::XrcTarget => MAX_DEST | RNR_TIMER,
        _ => 0,
    };
    let basic = PKEY | PORT | if ud { QKEY } else { ACCESS };
    Some(match (from, to) {
        (_, Reset | Err) => (0, 0),
        (Reset, Init) => (basic, 0),
        (Init, Init) => (0, basic),
        (Init, Rtr) if ud => (0, PKEY | QKEY),
        (Init, Rtr) => (PATH | MTU | DEST_QP | RQ_PSN | responds, PKEY | ACCESS),
        (Rtr, Rts) => (SQ_PSN | requests, running),
        (Rts | Sqe | Sqd, Rts) => (0, running),
        (Rts, Sqd) => (0, 0),
        (Sqd, Sqd) if ud => (0, PKEY | QKEY),
        (Sqd, Sqd) if service.is_reliable() => (0, PORT | PATH | requests | responds | PKEY | running),
        (Sqd, Sqd) => (0, PATH | PKEY | running),
        _ => return None,
    })
}

impl QpAttr {
    fn present(&self) -> u16 {
        use bit::*;
        let mut mask = 0;
        for (bit, is) in [
            (ACCESS, self.access.is_some()),
            (PKEY, self.pkey_index.is_some()),
            (PORT, self.port.is_some()),
            (PATH, self.path.is_some()),
            (MTU, self.path_mtu.is_some()),
            (DEST_QP, self.dest_qp.is_some()),
            (RQ_PSN, self.rq_psn.is_some()),
            (SQ_PSN, self.sq_psn.is_some()),
            (MAX_DEST, self.max_dest_rd_atomic.is_some()),
            (MAX_RD, self.max_rd_atomic.is_some()),
            (RNR_TIMER, self.min_rnr_timer.is_some()),
            (TIMEOUT, self.timeout.is_some()),
            (RETRY, self.retry_cnt.is_some()),
            (RNR_RETRY, self.rnr_retry.is_some()),
            (QKEY, self.qkey.is_some()),
        ] {
            mask |= if is { bit } else { 0 };
        }
        mask
    }

    /// Checks a change of a queue pair in state `from`; returns the resulting state.
    pub fn check(&self, service: Service, from: QpState) -> Result<QpState, ModifyError> {
        let to = self.state.unwrap_or(from);
        let (required, optional) = transition(service, from, to).ok_or(ModifyError::Transition { from, to })?;
        let present = self.present();
        let name = |mask: u16| bit::NAMES[mask.trailing_zeros() as usize];
        let missing = required & !present;
        if missing != 0 {
            return Err(ModifyError::Missing { from, to, attribute: name(missing) });
        }
        let extra = present & !(required | optional);
        if extra != 0 {
            return Err(ModifyError::NotAllowed { from, to, attribute: name(extra) });
        }
        let range = |attribute, value: Option<u64>, max: u64, expected| match value {
            Some(value) if value > max => Err(ModifyError::Range { attribute, value, expected }),
            _ => Ok(()),
        };
        let rd = u64::from(MAX_RD_ATOMIC);
        range("P_Key index", self.pkey_index.map(u64::from), 0, "0, the only one")?;
        range("port number", self.port.map(|p| u64::from(p).wrapping_sub(1)), 0, "1, the only one")?;
        range("destination QP number", self.dest_qp.map(u64::from), 0xff_ffff, "24 bits")?;
        range("max_dest_rd_atomic", self.max_dest_rd_atomic.map(u64::from), rd, "0 to 128")?;
        range("max_rd_atomic", self.max_rd_atomic.map(u64::from), rd, "0 to 128")?;
        range("minimum RNR timer", self.min_rnr_timer.map(u64::from), 31, "0 to 31")?;
        range("timeout", self.timeout.map(u64::from), 31, "0 to 31")?;
        range("retry count", self.retry_cnt.map(u64::from), 7, "0 to 7")?;
        range("RNR retry count", self.rnr_retry.map(u64::from), 7, "0 to 7")?;
        Ok(to)
    }
}

#[cfg(test)]
mod tests {
    use super::QpState::*;
    use super::*;
    use Service::*;
    use bit::*;

    const ALL: [QpState; 7] = [Reset, Init, Rtr, Rts, Sqd, Sqe, Err];

    #[test]
    fn only_the_transitions_of_the_specification_exist() {
        let legal = [
            (Reset, Init),
            (Init, Init),
            (Init, Rtr),
            (Rtr, Rts),
            (Rts, Rts),
            (Rts, Sqd),
            (Sqd, Sqd),
            (Sqd, Rts),
            (Sqe, Rts),
        ];
        for service in [Rc, Uc, Ud, XrcInitiator, XrcTarget] {
            for from in ALL {
                for to in ALL {
                    let expected = matches!(to, Reset | Err) || legal.contains(&(from, to));
                    assert_eq!(transition(service, from, to).is_some(), expected, "{service:?} {from:?} to {to:?}");
                }
            }
        }
    }

    /// Returns all attributes, in the order of the bits.
    fn full() -> QpAttr {
        let local = std::net::IpAddr::from([10, 0, 0, 1]);
        QpAttr {
            state: None,
            access: Some(Access(0)),
            pkey_index: Some(0),
            port: Some(1),
            qkey: Some(7),
            path: Some(Path { src: local, dst: local, udp_src: 0xc000, traffic_class: 0, hop_limit: 64 }),
            path_mtu: Some(Mtu::B1024),
            dest_qp: Some(2),
            rq_psn: Some(Psn::new(3)),
            sq_psn: Some(Psn::new(4)),
            max_dest_rd_atomic: Some(1),
            max_rd_atomic: Some(1),
            min_rnr_timer: Some(1),
            timeout: Some(1),
            retry_cnt: Some(1),
            rnr_retry: Some(1),
            sqd_event: false,
        }
    }

    fn only(mask: u16) -> QpAttr {
        let a = full();
        fn keep<T>(mask: u16, bit: u16, value: Option<T>) -> Option<T> {
            value.filter(|_| mask & bit != 0)
        }
        QpAttr {
            state: None,
            access: keep(mask, ACCESS, a.access),
            pkey_index: keep(mask, PKEY, a.pkey_index),
            port: keep(mask, PORT, a.port),
            qkey: keep(mask, QKEY, a.qkey),
            path: keep(mask, PATH, a.path),
            path_mtu: keep(mask, MTU, a.path_mtu),
            dest_qp: keep(mask, DEST_QP, a.dest_qp),
            rq_psn: keep(mask, RQ_PSN, a.rq_psn),
            sq_psn: keep(mask, SQ_PSN, a.sq_psn),
            max_dest_rd_atomic: keep(mask, MAX_DEST, a.max_dest_rd_atomic),
            max_rd_atomic: keep(mask, MAX_RD, a.max_rd_atomic),
            min_rnr_timer: keep(mask, RNR_TIMER, a.min_rnr_timer),
            timeout: keep(mask, TIMEOUT, a.timeout),
            retry_cnt: keep(mask, RETRY, a.retry_cnt),
            rnr_retry: keep(mask, RNR_RETRY, a.rnr_retry),
            sqd_event: false,
        }
    }

    #[test]
    fn each_service_requires_and_takes_the_attributes_of_its_table() {
        let sqd_ini = PORT | PATH | TIMEOUT | RETRY | RNR_RETRY | MAX_RD | PKEY | ACCESS;
        let sqd_tgt = PORT | PATH | TIMEOUT | MAX_DEST | PKEY | ACCESS | RNR_TIMER;
        let sqd_rc = PORT | PATH | TIMEOUT | RETRY | RNR_RETRY | MAX_RD | MAX_DEST | PKEY | ACCESS | RNR_TIMER;
        for (service, from, to, required, optional) in [
            (Rc, Reset, Init, PKEY | PORT | ACCESS, 0),
            (Uc, Reset, Init, PKEY | PORT | ACCESS, 0),
            (Ud, Reset, Init, PKEY | PORT | QKEY, 0),
            (Rc, Init, Init, 0, PKEY | PORT | ACCESS),
            (Uc, Init, Init, 0, PKEY | PORT | ACCESS),
            (Ud, Init, Init, 0, PKEY | PORT | QKEY),
            (Rc, Init, Rtr, PATH | MTU | DEST_QP | RQ_PSN | MAX_DEST | RNR_TIMER, PKEY | ACCESS),
            (Uc, Init, Rtr, PATH | MTU | DEST_QP | RQ_PSN, PKEY | ACCESS),
            (XrcInitiator, Reset, Init, PKEY | PORT | ACCESS, 0),
            (XrcInitiator, Init, Rtr, PATH | MTU | DEST_QP | RQ_PSN, PKEY | ACCESS),
            (XrcInitiator, Rtr, Rts, TIMEOUT | RETRY | RNR_RETRY | SQ_PSN | MAX_RD, ACCESS),
            (XrcInitiator, Rts, Rts, 0, ACCESS),
            (XrcInitiator, Sqd, Sqd, 0, sqd_ini),
            (XrcTarget, Init, Rtr, PATH | MTU | DEST_QP | RQ_PSN | MAX_DEST | RNR_TIMER, PKEY | ACCESS),
            (XrcTarget, Rtr, Rts, TIMEOUT | SQ_PSN, ACCESS | RNR_TIMER),
            (XrcTarget, Rts, Rts, 0, ACCESS | RNR_TIMER),
            (XrcTarget, Sqd, Sqd, 0, sqd_tgt),
            (Ud, Init, Rtr, 0, PKEY | QKEY),
            (Rc, Rtr, Rts, TIMEOUT | RETRY | RNR_RETRY | SQ_PSN | MAX_RD, ACCESS | RNR_TIMER),
            (Uc, Rtr, Rts, SQ_PSN, ACCESS),
            (Ud, Rtr, Rts, SQ_PSN, QKEY),
            (Rc, Rts, Rts, 0, ACCESS | RNR_TIMER),
            (Uc, Rts, Rts, 0, ACCESS),
            (Ud, Rts, Rts, 0, QKEY),
            (Uc, Sqe, Rts, 0, ACCESS),
            (Ud, Sqe, Rts, 0, QKEY),
            (Rc, Rts, Sqd, 0, 0),
            (Ud, Rts, Sqd, 0, 0),
            (Rc, Sqd, Rts, 0, ACCESS | RNR_TIMER),
            (Uc, Sqd, Rts, 0, ACCESS),
            (Ud, Sqd, Rts, 0, QKEY),
            (Rc, Sqd, Sqd, 0, sqd_rc),
            (Uc, Sqd, Sqd, 0, PATH | PKEY | ACCESS),
            (Ud, Sqd, Sqd, 0, PKEY | QKEY),
            (Ud, Rts, Err, 0, 0),
            (Uc, Err, Reset, 0, 0),
        ] {
            let check = |mask| QpAttr { state: Some(to), ..only(mask) }.check(service, from);
            let name = format!("{service:?} {from:?} to {to:?}");
            assert_eq!(check(required), Ok(to), "{name}");
            assert_eq!(check(required | optional), Ok(to), "{name}");
            for (i, attribute) in NAMES.into_iter().enumerate() {
                let bit = 1 << i;
                let expected = if required & bit != 0 {
                    Result::Err(ModifyError::Missing { from, to, attribute })
                } else if optional & bit != 0 {
                    Ok(to)
                } else {
                    Result::Err(ModifyError::NotAllowed { from, to, attribute })
                };
                assert_eq!(check(required ^ bit), expected, "{name}, {attribute}");
            }
        }
    }

    #[test]
    fn values_out_of_range_are_named() {
        let init = QpAttr { state: Some(Init), ..only(PKEY | PORT | ACCESS) };
        for (attr, name) in [
            (QpAttr { port: Some(0), ..init }, "port number"),
            (QpAttr { port: Some(2), ..init }, "port number"),
            (QpAttr { pkey_index: Some(1), ..init }, "P_Key index"),
        ] {
            assert!(
                matches!(attr.check(Rc, Reset), Result::Err(ModifyError::Range { attribute, .. }) if attribute == name)
            );
        }
        assert_eq!(init.check(Rc, Reset), Ok(Init));
    }
}
