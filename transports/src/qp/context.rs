//! State shared by the halves of one queue pair: its attributes, and its failures.

use crate::footprint::{bits, flag, footprint, left, part, why, width};
use std::sync::Arc;

use super::Service;
use super::access::Access;
use super::host::{Caller, CqId, Host, PdId, XrcSrq, XrcdId};
use super::work::WcStatus;
use crate::config::{Discipline, TransportConfig};
use crate::packet::{PacketClass, Path};
use crate::psn::Psn;
use crate::wire::opcode::Position;
use crate::wire::{AckTimeout, Bth, Headers, Mtu, Opcode};

/// Attributes of a queue pair that both halves read.
#[derive(Clone, Debug)]
pub(crate) struct QpContext {
    pub service: Service,
    pub qpn: u32,
    pub pd: PdId,
    pub send_cq: CqId,
    pub recv_cq: CqId,
    /// Domain of an XRC target.
    pub xrcd: Option<XrcdId>,
    pub config: Arc<TransportConfig>,
    /// Values of `config` that every packet needs: [`TransportConfig::knows_irn`], `evidence` and `credits`.
    pub knows_irn: bool,
    pub evidence: bool,
    pub credits: bool,
    /// Whether packets carry slack.
    pub slack: bool,
    pub access: Access,
    pub paths: Option<ClassPaths>,
    pub path_mtu: Mtu,
    /// `path_mtu` in bytes.
    pub mtu: u32,
    pub dest_qp: u32,
    pub qkey: u32,
    pub min_rnr_timer: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    /// Whether the peer has shown that it supports the IRN extension.
    pub peer_capable: bool,
}

impl QpContext {
    /// Returns the Local ACK Timeout (IBA 9.7.6.1.3): 4.096 µs · 2ⁿ, 0 is never.
    #[inline]
    pub(crate) fn local_ack_timeout(&self) -> Option<u64> {
        AckTimeout::new(self.timeout).nanos()
    }

    /// Returns its discipline: extended reliable connections have none but tail loss probes, which are not included.
    #[inline]
    pub(crate) fn discipline(&self) -> &Discipline {
        if self.service == Service::Rc { &self.config.discipline } else { &Discipline::None }
    }

    /// Returns the number of packets of a message of `len` bytes: at least one.
    #[inline]
    pub(crate) fn packets(&self, len: u32) -> u32 {
        self.path_mtu.packets(len)
    }

    /// Returns its identity for memory protection.
    #[inline]
    pub(crate) fn caller(&self) -> Caller {
        Caller { pd: self.pd, qpn: self.qpn }
    }

    /// XRC: returns whether a shared receive queue that was found before still exists.
    pub(crate) fn finds(&self, srq: &XrcSrq, host: &impl Host) -> bool {
        self.xrcd.is_some_and(|domain| host.xrc_srq(domain, srq.number).as_ref() == Some(srq))
    }

    /// Returns the addresses of both ends, once known: the path of data.
    #[inline]
    pub(crate) fn path(&self) -> Option<&Path> {
        self.paths.as_ref().map(|paths| paths.of(PacketClass::Data))
    }

    /// RC3: returns the priority `level` below that of data, or 0, the lowest. `None` if there is none below.
    pub(crate) fn low_priority(&self, level: u8) -> Option<u8> {
        let priority = self.path()?.priority();
        (priority > 0).then(|| priority.saturating_sub(level))
    }

    /// Returns whether the queue pair is connected to itself.
    pub(crate) fn is_own_peer(&self) -> bool {
        self.dest_qp == self.qpn && self.path().is_some_and(|p| p.src == p.dst)
    }

    /// Returns headers with only a BTH to the peer. `opcode` is RC's; an extended reliable connection has its own.
    #[inline]
    pub(crate) fn headers(&self, opcode: Opcode, psn: Psn) -> Headers {
        let opcode = if self.service.is_xrc() { opcode.in_xrc() } else { opcode };
        Headers::new(Bth { irn_capable: self.knows_irn, ..Bth::new(opcode, self.dest_qp, psn) })
    }
}

/// The paths of a connection, by packet class. All have the same addresses.
#[derive(Clone, Debug)]
pub(crate) struct ClassPaths {
    paths: [Path; 2],
    /// Index of each class into `paths`.
    index: [u8; PacketClass::COUNT],
}

impl ClassPaths {
    /// Assigns `path` to all packets. With `ack_priority`, those that may overtake others have that priority.
    pub(crate) fn new(path: Path, ack_priority: Option<u8>) -> ClassPaths {
        let Some(priority) = ack_priority else {
            return ClassPaths { paths: [path; 2], index: [0; PacketClass::COUNT] };
        };
        let mut index = [0; PacketClass::COUNT];
        index[PacketClass::Ack as usize] = 1;
        index[PacketClass::Cnp as usize] = 1;
        ClassPaths { paths: [path, path.with_priority(priority)], index }
    }

    /// Returns the path of packets of a class.
    #[inline]
    pub(crate) fn of(&self, class: PacketClass) -> &Path {
        &self.paths[usize::from(self.index[class as usize]) & 1]
    }

    /// Returns the priorities that packets may have, one bit each.
    #[inline]
    pub(crate) fn priorities(&self) -> u8 {
        self.paths.iter().fold(0, |all, path| all | 1 << path.priority())
    }
}

/// A cause of an error state: [`QpState::Err`](super::QpState::Err), or with [`QpFailure::Send`] on an unreliable
/// service [`QpState::Sqe`](super::QpState::Sqe).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum QpFailure {
    /// The oldest work request of the send queue completes with this status.
    Send(WcStatus),
    /// The oldest receive WQE completes with this status; the peer was notified.
    Recv(WcStatus),
    /// The peer's request was invalid; the peer was notified.
    Request,
    /// The peer's request violated memory protection; the peer was notified.
    Access,
}

/// Returns the position of the `k`-th of `n` packets of a message.
#[inline]
pub(crate) fn position(k: u32, n: u32) -> Position {
    match (k == 0, k + 1 == n) {
        (true, true) => Position::Only,
        (true, false) => Position::First,
        (false, false) => Position::Middle,
        (false, true) => Position::Last,
    }
}

/// Returns whether a packet at this position ends its message.
#[inline]
pub(crate) fn ends(position: Position) -> bool {
    matches!(position, Position::Only | Position::Last)
}

footprint!(QpContext, |at| {
    service => bits(3),
    qpn => left("the place of the queue pair"),
    pd => bits(width::HANDLE),
    send_cq => bits(width::HANDLE),
    recv_cq => bits(width::HANDLE),
    xrcd => left("of XRC"),
    config => left(why::SHARED),
    knows_irn => left(why::SHARED),
    evidence => left(why::SHARED),
    credits => left(why::SHARED),
    slack => left(why::SHARED),
    // Remote rights: WRITE, READ, atomics, two of FLUSH.
    access => bits(5),
    paths => paths.as_ref().map_or(left("not connected"), |paths| part(paths)),
    path_mtu => bits(3),
    mtu => left(why::FOLLOWS),
    dest_qp => bits(24),
    qkey => left("of datagrams"),
    min_rnr_timer => bits(5),
    timeout => bits(5),
    retry_cnt => bits(3),
    rnr_retry => bits(3),
    max_rd_atomic => bits(8),
    max_dest_rd_atomic => bits(8),
    peer_capable => flag().when(at.irn && at.plain, why::OFF),
});

footprint!(ClassPaths, |at| {
    // Two addresses, UDP source port, traffic class, hop limit; and the traffic class of packets that may overtake.
    paths => bits(2 * 128 + 16 + 8 + 8 + if at.ack_priority { 8 } else { 0 }),
    index => left(why::SHARED),
});

#[cfg(test)]
mod tests {
    use super::*;
    use PacketClass::*;

    #[test]
    fn the_class_of_a_packet_decides_its_priority() {
        let local = std::net::IpAddr::from([10, 0, 0, 1]);
        let path = Path { src: local, dst: local, udp_src: 0xc000, traffic_class: 3 << 5 | 2, hop_limit: 64 };
        for (ack_priority, acks, all) in [(None, 3, 1 << 3), (Some(5), 5, 1 << 3 | 1 << 5), (Some(3), 3, 1 << 3)] {
            let paths = ClassPaths::new(path, ack_priority);
            for (class, priority) in [(Data, 3), (Retransmission, 3), (OrderedAck, 3), (Ack, acks), (Cnp, acks)] {
                let expected = Path { traffic_class: priority << 5 | 2, ..path };
                assert_eq!(*paths.of(class), expected, "{class:?}");
            }
            assert_eq!(paths.priorities(), all);
        }
    }
}
