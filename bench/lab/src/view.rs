//! What a lab is like at a time, and at its end.

use irnic_fabric::lab::Lab;
use irnic_ports::lab::{GuestCounters, Lateness, Unasked};

use crate::pairs::Pairs;
use crate::process_stats::ProcessStats;
use crate::samples::Samples;

/// What a lab is like at a time.
#[derive(Copy, Clone)]
pub struct View<'a> {
    /// The network.
    pub lab: &'a Lab,
    /// What hosts sent each other.
    pub pairs: &'a Pairs,
    /// Lab time that has passed, ns.
    pub lasted: u64,
    /// What was late at processes.
    pub lateness: Lateness,
    /// Frames that reached hosts, and none of their processes.
    pub unclaimed: u64,
    /// Hosts that are no processes.
    pub guests: &'a [GuestCounters],
    /// How often time went on although an application had not waited, if it waits for that.
    pub unasked: Option<Unasked>,
    /// The network over time, at its end.
    pub samples: Option<&'a Samples>,
}

/// What a lab was like.
pub struct Outcome {
    /// The network at its end.
    pub lab: Lab,
    /// What hosts sent each other.
    pub pairs: Pairs,
    /// Lab time that has passed, ns.
    pub lasted: u64,
    /// What was late at processes.
    pub lateness: Lateness,
    /// Frames that reached hosts, and none of their processes.
    pub unclaimed: u64,
    /// Hosts that are no processes.
    pub guests: Vec<GuestCounters>,
    /// How often time went on although an application had not waited, if it waits for that.
    pub unasked: Option<Unasked>,
    /// The network over time.
    pub samples: Option<Samples>,
    /// What processes have told in the end.
    pub processes: Vec<ProcessStats>,
}

impl Outcome {
    /// What there is to tell of it.
    pub fn view(&self) -> View<'_> {
        let Outcome { lab, pairs, lasted, lateness, unclaimed, unasked, guests, samples, .. } = self;
        let samples = samples.as_ref();
        View {
            lab,
            pairs,
            lasted: *lasted,
            lateness: *lateness,
            unclaimed: *unclaimed,
            unasked: *unasked,
            guests,
            samples,
        }
    }
}
