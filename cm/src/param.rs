//! Parameters of calls: ids, addresses, connection parameters.

use std::fmt;
use std::net::SocketAddr;
use std::ops::Deref;

use irnic_transports::Path;
use irnic_transports::wire::Mtu;

/// A handle on one of a [`Cm`](crate::Cm)'s ids. Handles are never reused within the lifetime of a `Cm`.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CmId(pub(crate) u64);

/// The kind of queue pair of an id.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum QpKind {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram: addresses are resolved by SIDR, without a connection.
    Ud,
    /// Extended reliable connection, sending side (`IBV_QPT_XRC_SEND`).
    XrcSend,
    /// Extended reliable connection, receiving side (`IBV_QPT_XRC_RECV`).
    XrcRecv,
}

/// Private data of a message: 0 to 224 bytes. On the wire it is zero-padded to the message's capacity; received data
/// has that length.
#[derive(Copy, Clone)]
pub struct PrivateData {
    len: u8,
    bytes: [u8; PrivateData::MAX],
}

impl PrivateData {
    /// The most bytes that any message can hold (RTU, DREP).
    pub const MAX: usize = 224;
    /// The user's part of a REQ behind the IP header.
    pub const REQ: usize = 56;
    /// A REQ without the IP header (`AF_IB`).
    pub const REQ_IB: usize = 92;
    /// REP.
    pub const REP: usize = 196;
    /// REJ.
    pub const REJ: usize = 148;
    /// The user's part of a SIDR_REQ behind the IP header.
    pub const SIDR_REQ: usize = 180;
    /// A SIDR_REQ without the IP header (`AF_IB`).
    pub const SIDR_REQ_IB: usize = 216;
    /// SIDR_REP.
    pub const SIDR_REP: usize = 136;

    /// No private data.
    pub const EMPTY: PrivateData = PrivateData { len: 0, bytes: [0; PrivateData::MAX] };

    /// Returns a copy of the bytes, `None` if there are more than [`PrivateData::MAX`].
    pub fn new(bytes: &[u8]) -> Option<PrivateData> {
        let mut data = PrivateData::EMPTY;
        data.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        data.len = bytes.len() as u8;
        Some(data)
    }

    /// Copies the first [`PrivateData::MAX`] bytes.
    pub(crate) fn of(bytes: &[u8]) -> PrivateData {
        PrivateData::new(&bytes[..bytes.len().min(PrivateData::MAX)]).unwrap_or(PrivateData::EMPTY)
    }
}

impl Default for PrivateData {
    fn default() -> PrivateData {
        PrivateData::EMPTY
    }
}

impl Deref for PrivateData {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl PartialEq for PrivateData {
    fn eq(&self, other: &PrivateData) -> bool {
        **self == **other
    }
}

impl Eq for PrivateData {}

impl fmt::Debug for PrivateData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = self.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1);
        write!(f, "{} bytes: {:02x?}", self.len, &self[..used])
    }
}

/// The route to an id's peer: the result of `rdma_resolve_addr` and `rdma_resolve_route`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Route {
    /// This side's socket address, with the port that the id is bound to.
    pub src: SocketAddr,
    /// The peer's socket address.
    pub dst: SocketAddr,
    /// Path of MADs and of the queue pair's packets. Its addresses, of the devices, may differ from those of the
    /// sockets: 127.0.0.1 stands for a device.
    pub path: Path,
    /// The device's path MTU.
    pub mtu: Mtu,
    /// Packet lifetime code: 4.096 µs · 2ⁿ. 16, as in rxe's connections.
    pub packet_lifetime: u8,
    /// Service id to connect to, without IP addresses in the private data (`AF_IB`); `None` for that of `dst`'s port.
    pub service_id: Option<u64>,
}

impl Route {
    /// Returns a route with packet lifetime 16, to the service of `dst`'s port.
    pub const fn new(src: SocketAddr, dst: SocketAddr, path: Path, mtu: Mtu) -> Route {
        Route { src, dst, path, mtu, packet_lifetime: 16, service_id: None }
    }
}

/// Parameters of a connection, `struct rdma_conn_param`.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnParam {
    /// This side's queue pair number, 24 bits.
    pub qpn: u32,
    /// Q_Key of this side's datagrams (UD); `None` for 0x01234567.
    pub qkey: Option<u32>,
    /// Whether the queue pair receives from a shared receive queue.
    pub srq: bool,
    /// READs and atomics that the peer may have outstanding here.
    pub responder_resources: u8,
    /// READs and atomics outstanding at the peer.
    pub initiator_depth: u8,
    /// Whether to use hardware flow control.
    pub flow_control: bool,
    /// Retries after a timeout; values above 7 are treated as 7.
    pub retry_count: u8,
    /// Retries after an RNR NAK; values above 7 are treated as 7, for ever.
    pub rnr_retry_count: u8,
    /// Private data for the peer.
    pub private_data: PrivateData,
}

impl ConnParam {
    /// Returns parameters for queue pair `qpn`: no READs or atomics, no private data, 7 retries of either kind.
    pub fn new(qpn: u32) -> ConnParam {
        ConnParam { qpn, retry_count: 7, rnr_retry_count: 7, ..ConnParam::default() }
    }
}

/// Socket addresses of an id's two ends, `None` where not known yet. For an id connected by service id they are the
/// devices', with port 0.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// This side's.
    pub local: Option<SocketAddr>,
    /// The peer's.
    pub peer: Option<SocketAddr>,
}
