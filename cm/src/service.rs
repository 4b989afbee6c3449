//! Port spaces and the service ids of the IP connection manager.

/// A port space, as in `rdma_create_id`. The values are librdmacm's `RDMA_PS_*`.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum PortSpace {
    /// IP over InfiniBand (`RDMA_PS_IPOIB`): datagrams.
    Ipoib = 0x0002,
    /// Connections (`RDMA_PS_TCP`).
    Tcp = 0x0106,
    /// Datagrams (`RDMA_PS_UDP`).
    Udp = 0x0111,
    /// Any (`RDMA_PS_IB`).
    Ib = 0x013f,
}

impl PortSpace {
    /// Returns the port space with this value.
    pub fn from_code(code: u16) -> Option<PortSpace> {
        [PortSpace::Ipoib, PortSpace::Tcp, PortSpace::Udp, PortSpace::Ib]
            .into_iter()
            .find(|&space| space as u16 == code)
    }
}

/// Returns the service id of a port: 0x01, the IP protocol, the port (`rdma_get_service_id` in the kernel).
pub const fn service_id(space: PortSpace, port: u16) -> u64 {
    (space as u64) << 16 | port as u64
}
