//! What is sent: flows, from generators and files.
//!
//! A [`Workload`] is written as in [`spec`] and generates its flows for a [`Setting`]. Everything is drawn from PCGs of
//! one seed, one for each host and purpose, with integer and IEEE 754 arithmetic only: the same seed gives the same
//! flows on any machine, and a host sends the same whether there are others or not.

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

/// Payload bytes of a flow without an end: the most that a flow can have. Runs of such flows end by their time.
pub const ENDLESS: u64 = 1 << 40;

/// One transfer from host to host.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Sending host.
    pub src: u32,
    /// Receiving host, another.
    pub dst: u32,
    /// Payload bytes, up to 2⁴⁰. A flow without any is one packet.
    pub bytes: u64,
    /// When the application posts it, ns.
    pub start: u64,
    /// Priority of its packets, 0 to 7.
    pub priority: u8,
    /// Which part of the workload it belongs to, for separate statistics: 0, 1 …
    pub class: u8,
    /// How its queue pairs are set up: an index into [`crate::sim::SimConfig::setups`], 0 unless runs have several.
    pub setup: u16,
}

impl Flow {
    /// `bytes` from host `src` to host `dst` from `start` on, ns: priority 0, class 0, the first setup.
    pub fn new(src: u32, dst: u32, bytes: u64, start: u64) -> Flow {
        Flow { src, dst, bytes, start, priority: 0, class: 0, setup: 0 }
    }
}

/// What a workload is generated for.
#[derive(Clone, Debug)]
pub struct Setting<'a> {
    /// Whose hosts send.
    pub topology: &'a Topology,
    /// Same seed, same flows.
    pub seed: u64,
    /// Of Poisson arrivals and requests that have no load of their own, and of incasts that take a share of it: the
    /// share of the rate of its links that each host offers to send, headers included. Above 0, at most
    /// [`poisson::MAX_LOAD`].
    pub load: f64,
    /// Of Poisson arrivals, incasts by load and closed loops: none start at this time or later, ns.
    pub duration: Option<u64>,
    /// Of Poisson arrivals and closed loops: how many flows there are at most, of all hosts together.
    pub flows: Option<u64>,
    /// Payload bytes of a full packet, 1 or more.
    pub mtu: u32,
    /// Bytes of headers and trailers that every packet adds on the wire.
    pub header: u32,
    /// Priority of generated flows, 0 to 7. Files bring their own.
    pub priority: u8,
}

impl Setting<'_> {
    /// Bytes on the wire of a flow of so many payload bytes, if no packet is sent twice.
    pub fn wire_bytes(&self, bytes: u64) -> u64 {
        bytes + bytes.div_ceil(self.mtu.into()) * u64::from(self.header)
    }

    /// There must be somebody to send to.
    fn needs_two_hosts(&self, of: &str) -> Result<(), Error> {
        if self.topology.hosts < 2 {
            return Err(Error::value(of, "hosts", self.topology.hosts, "two hosts or more"));
        }
        Ok(())
    }
}

/// The order of all flows: by start, then by sender.
fn sort(flows: &mut [Flow]) {
    flows.sort_by_key(|flow| (flow.start, flow.src));
}
