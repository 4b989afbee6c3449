//! A path between two ports as described by a REQ (IBA table 106): 44 bytes.

use std::net::Ipv6Addr;

use super::BODY_LEN;
use super::field::{Field, get, put};

/// A path between two ports as described by a REQ. "Local" is the sender of the REQ.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PathRecord {
    /// LID of the sender; 0xffff, the permissive one, in RoCE.
    pub local_lid: u16,
    /// LID of the receiver; 0xffff in RoCE.
    pub remote_lid: u16,
    /// GID of the sender; an IPv4 address is mapped.
    pub local_gid: Ipv6Addr,
    /// GID of the receiver.
    pub remote_gid: Ipv6Addr,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Packet rate, 6 bits (IBA's code, `enum ib_rate`).
    pub packet_rate: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Service level, 4 bits.
    pub service_level: u8,
    /// Both ports are in one subnet.
    pub subnet_local: bool,
    /// Local ACK Timeout code, 5 bits.
    pub local_ack_timeout: u8,
}

impl PathRecord {
    /// No path: all zeros.
    pub const NONE: PathRecord = PathRecord {
        local_lid: 0,
        remote_lid: 0,
        local_gid: Ipv6Addr::UNSPECIFIED,
        remote_gid: Ipv6Addr::UNSPECIFIED,
        flow_label: 0,
        packet_rate: 0,
        traffic_class: 0,
        hop_limit: 0,
        service_level: 0,
        subnet_local: false,
        local_ack_timeout: 0,
    };

    /// Parses the record at byte `at` of a message.
    pub(super) fn parse(body: &[u8; BODY_LEN], at: usize) -> PathRecord {
        PathRecord {
            local_lid: get(body, at, 0, 16) as u16,
            remote_lid: get(body, at + 2, 0, 16) as u16,
            local_gid: Ipv6Addr::from_bits(get(body, at + 4, 0, 128)),
            remote_gid: Ipv6Addr::from_bits(get(body, at + 20, 0, 128)),
            flow_label: get(body, at + 36, 0, 20) as u32,
            packet_rate: get(body, at + 39, 2, 6) as u8,
            traffic_class: get(body, at + 40, 0, 8) as u8,
            hop_limit: get(body, at + 41, 0, 8) as u8,
            service_level: get(body, at + 42, 0, 4) as u8,
            subnet_local: get(body, at + 42, 4, 1) != 0,
            local_ack_timeout: get(body, at + 43, 0, 5) as u8,
        }
    }

    /// Writes the record to byte `at` of a message.
    pub(super) fn emit(&self, body: &mut [u8; BODY_LEN], at: usize) {
        put(body, at, 0, 16, self.local_lid.bits());
        put(body, at + 2, 0, 16, self.remote_lid.bits());
        put(body, at + 4, 0, 128, self.local_gid.bits());
        put(body, at + 20, 0, 128, self.remote_gid.bits());
        put(body, at + 36, 0, 20, self.flow_label.bits());
        put(body, at + 39, 2, 6, self.packet_rate.bits());
        put(body, at + 40, 0, 8, self.traffic_class.bits());
        put(body, at + 41, 0, 8, self.hop_limit.bits());
        put(body, at + 42, 0, 4, self.service_level.bits());
        put(body, at + 42, 4, 1, self.subnet_local.bits());
        put(body, at + 43, 0, 5, self.local_ack_timeout.bits());
    }
}
