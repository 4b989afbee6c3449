//! A view of a lab, while it runs and at its end.

use irnic_fabric::lab::Lab;
use irnic_ports::lab::{GuestCounters, IpCounters, Lateness, Unasked};

use crate::pairs::Pairs;
use crate::process_stats::ProcessStats;
use crate::samples::Samples;

/// The time during which frames were under way, by both clocks.
#[derive(Copy, Clone, Debug, Default)]
pub struct Busy {
    /// Lab time, ns.
    pub lab: u64,
    /// The host's time, ns.
    pub host: u64,
}

impl Busy {
    /// Returns how many times slower than the host's time the lab's was.
    pub fn slower(&self) -> Option<f64> {
        (self.lab > 0).then(|| self.host as f64 / self.lab as f64)
    }
}

/// A view of a lab at one moment.
#[derive(Copy, Clone)]
pub struct View<'a> {
    /// The network.
    pub lab: &'a Lab,
    /// Traffic between hosts.
    pub pairs: &'a Pairs,
    /// Elapsed lab time, ns.
    pub lasted: u64,
    /// The part of it during which frames were under way.
    pub busy: Busy,
    /// Lateness at processes.
    pub lateness: Lateness,
    /// Frames that reached hosts, but no process.
    pub unclaimed: u64,
    /// Hosts that are not processes.
    pub guests: &'a [GuestCounters],
    /// IP packets of hosts' kernels, if these cross the network.
    pub ip: Option<IpCounters>,
    /// Number of times that time advanced although an application had not waited, if it waits for that.
    pub unasked: Option<Unasked>,
    /// Samples of the network, at its end.
    pub samples: Option<&'a Samples>,
}

/// Final state of a lab.
pub struct Outcome {
    /// The network at its end.
    pub lab: Lab,
    /// Traffic between hosts.
    pub pairs: Pairs,
    /// Elapsed lab time, ns.
    pub lasted: u64,
    /// The part of it during which frames were under way.
    pub busy: Busy,
    /// Lateness at processes.
    pub lateness: Lateness,
    /// Frames that reached hosts, but no process.
    pub unclaimed: u64,
    /// Hosts that are not processes.
    pub guests: Vec<GuestCounters>,
    /// IP packets of hosts' kernels, if these cross the network.
    pub ip: Option<IpCounters>,
    /// Number of times that time advanced although an application had not waited, if it waits for that.
    pub unasked: Option<Unasked>,
    /// Samples of the network.
    pub samples: Option<Samples>,
    /// Final numbers of the processes.
    pub processes: Vec<ProcessStats>,
    /// Faults that were commanded, and their ends, with their times, ns.
    pub faults: Vec<(u64, String)>,
}

impl Outcome {
    /// Returns a view of it.
    pub fn view(&self) -> View<'_> {
        let Outcome { lab, pairs, lasted, busy, lateness, unclaimed, unasked, guests, ip, samples, .. } = self;
        let samples = samples.as_ref();
        View {
            lab,
            pairs,
            lasted: *lasted,
            busy: *busy,
            lateness: *lateness,
            unclaimed: *unclaimed,
            unasked: *unasked,
            guests,
            ip: *ip,
            samples,
        }
    }
}
