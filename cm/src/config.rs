//! Configuration of a manager.

use irnic_transports::time::MS;
use irnic_transports::wire::Mtu;

/// Configuration of a [`Cm`](crate::Cm).
#[derive(Copy, Clone, Debug)]
#[non_exhaustive]
pub struct CmConfig {
    /// Seed of communication ids, starting PSNs and flow labels.
    pub seed: [u8; 32],
    /// The device's GUID (`node_guid`), not 0.
    pub ca_guid: u64,
    /// First communication id. Its upper bits, above the count, identify the process within the host, as in queue pair
    /// numbers.
    pub first_comm_id: u32,
    /// Number of communication ids: 1 to 2³² − `first_comm_id`.
    pub comm_ids: u32,
    /// The device's path MTU, an upper limit for connections from peers.
    pub mtu: Mtu,
    /// Response timeout, advertised and used, code 0 to 31: 4.096 µs · 2ⁿ. 20 is 4.3 s, as in the kernel.
    pub response_timeout: u8,
    /// Retries, advertised and used for the time after which a peer is considered unreachable: 0 to 15. The kernel has
    /// 15, which makes 74 s with a response timeout of 20.
    pub max_cm_retries: u8,
    /// The device's ACK delay code (`local_ca_ack_delay`), 0 to 31. 15, as in rxe.
    pub ack_delay: u8,
    /// Delay before a message is first repeated, ns. It doubles with each repeat, up to the advertised time. Each delay
    /// is lengthened at random by up to a half.
    pub first_repeat: u64,
    /// Maximum backlog of a listener, in requests that wait for the application; also the default. Also the maximum
    /// number of a listener's accepted requests that wait for their peers' confirmation.
    pub max_backlog: u32,
    /// Maximum number of ids, listeners and connections of peers included.
    pub max_ids: usize,
    /// Maximum number of ended connections that are remembered, so that late messages get an answer.
    pub max_ended: usize,
    /// Maximum number of MADs that wait for [`Cm::poll_mad`](crate::Cm::poll_mad). More are dropped: all that matter
    /// are repeated.
    pub max_mads: usize,
}

impl CmConfig {
    /// Returns a configuration with the kernel's values, and repeats starting at 50 ms.
    pub const fn new(seed: [u8; 32], ca_guid: u64, first_comm_id: u32, comm_ids: u32) -> CmConfig {
        CmConfig {
            seed,
            ca_guid,
            first_comm_id,
            comm_ids,
            mtu: Mtu::B4096,
            response_timeout: 20,
            max_cm_retries: 15,
            ack_delay: 15,
            first_repeat: 50 * MS,
            max_backlog: 1024,
            max_ids: 1 << 16,
            max_ended: 1 << 14,
            max_mads: 1 << 12,
        }
    }

    /// Sets the device's path MTU.
    #[must_use]
    pub const fn with_mtu(self, mtu: Mtu) -> CmConfig {
        CmConfig { mtu, ..self }
    }

    /// Sets response timeout and retries.
    #[must_use]
    pub const fn with_timeouts(self, response_timeout: u8, max_cm_retries: u8) -> CmConfig {
        CmConfig { response_timeout, max_cm_retries, ..self }
    }
}
