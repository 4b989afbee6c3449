//! Workloads: flows, from generators and files.
//!
//! A [`Workload`] is parsed as in [`spec`] and generates its flows for a [`Setting`]. Everything is drawn from PCGs of
//! one seed, one for each host and purpose, with integer and IEEE 754 arithmetic only: the same seed gives the same
//! flows on any machine, and a host's flows do not depend on the other hosts.

pub mod cdf;
pub mod closed_loop;
pub mod incast;
pub mod matrix;
pub mod ns3;
pub mod permutation;
pub mod poisson;
pub(crate) mod random;
pub mod rpc;
pub mod sizes;
pub mod spec;
#[cfg(test)]
mod tests;

pub use closed_loop::Loops;
pub use rpc::Response;
pub use sizes::Sizes;
pub use spec::Workload;

use crate::input::Error;
use crate::topology::Topology;

/// Payload bytes of a flow without an end: the maximum size of a flow. Runs of such flows end at a given time.
pub const ENDLESS: u64 = 1 << 40;

/// A transfer from host to host.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Sending host.
    pub src: u32,
    /// Receiving host, different from `src`.
    pub dst: u32,
    /// Payload bytes, up to 2⁴⁰. A flow of 0 bytes is one packet.
    pub bytes: u64,
    /// Time at which the application posts it, ns.
    pub start: u64,
    /// Priority of its packets, 0 to 7.
    pub priority: u8,
    /// Index of its part of the workload, for separate statistics: 0, 1 …
    pub class: u8,
    /// Setup of its queue pairs: an index into [`crate::sim::SimConfig::setups`], 0 unless runs have several.
    pub setup: u16,
}

impl Flow {
    /// `bytes` from host `src` to host `dst` from `start` on, ns: priority 0, class 0, the first setup.
    pub fn new(src: u32, dst: u32, bytes: u64, start: u64) -> Flow {
        Flow { src, dst, bytes, start, priority: 0, class: 0, setup: 0 }
    }
}

/// The parameters that a workload is generated for.
#[derive(Clone, Debug)]
pub struct Setting<'a> {
    /// The topology, whose hosts send.
    pub topology: &'a Topology,
    /// Seed; the same seed gives the same flows.
    pub seed: u64,
    /// For Poisson arrivals and requests without a load of their own, and for incasts that take a share of it: the
    /// share of its links' rate that each host offers, headers included. Above 0, at most [`poisson::MAX_LOAD`].
    pub load: f64,
    /// For Poisson arrivals, incasts by load and closed loops: no flows start at this time or later, ns.
    pub duration: Option<u64>,
    /// For Poisson arrivals and closed loops: maximum number of flows of all hosts together.
    pub flows: Option<u64>,
    /// Payload bytes of a full packet, 1 or more.
    pub mtu: u32,
    /// Bytes of headers and trailers that every packet adds on the wire.
    pub header: u32,
    /// Priority of generated flows, 0 to 7. Files bring their own.
    pub priority: u8,
}

impl Setting<'_> {
    /// Bytes on the wire of a flow of this many payload bytes, without retransmissions.
    pub fn wire_bytes(&self, bytes: u64) -> u64 {
        bytes + bytes.div_ceil(self.mtu.into()) * u64::from(self.header)
    }

    /// Rejects topologies with fewer than two hosts.
    fn needs_two_hosts(&self, of: &str) -> Result<(), Error> {
        if self.topology.hosts < 2 {
            return Err(Error::value(of, "hosts", self.topology.hosts, "two hosts or more"));
        }
        Ok(())
    }
}

/// Sorts flows by start, then by sender.
fn sort(flows: &mut [Flow]) {
    flows.sort_by_key(|flow| (flow.start, flow.src));
}
