//! The port of a device, and what is asked of it beside carrying packets.

use irnic_ports::Port;
use irnic_ports::capture::Captured;
use irnic_ports::host::{HostCounters, HostPort};
use irnic_ports::impair::Impaired;
use irnic_ports::paced::Paced;

use crate::output::Output;

/// A port under the wrappers that the configuration asks for.
pub trait Carrier: Port + Send {
    /// What became of links to other processes.
    fn host_counters(&self) -> HostCounters;

    /// Writes out what would be lost with the process.
    fn finish(&mut self) {}
}

impl Carrier for HostPort {
    fn host_counters(&self) -> HostCounters {
        HostPort::host_counters(self)
    }
}

impl<P: Carrier> Carrier for Impaired<P> {
    fn host_counters(&self) -> HostCounters {
        self.inner().host_counters()
    }

    fn finish(&mut self) {
        self.inner_mut().finish();
    }
}

impl<P: Carrier> Carrier for Paced<P> {
    fn host_counters(&self) -> HostCounters {
        self.inner().host_counters()
    }

    fn finish(&mut self) {
        self.inner_mut().finish();
    }
}

impl<P: Carrier> Carrier for Captured<P, Output> {
    fn host_counters(&self) -> HostCounters {
        self.inner().host_counters()
    }

    fn finish(&mut self) {
        self.write_out();
        if let Some(error) = self.error() {
            eprintln!("irnic: the capture ended early: {error}");
        }
        self.inner_mut().finish();
    }
}

impl<P: Carrier + ?Sized> Carrier for Box<P> {
    fn host_counters(&self) -> HostCounters {
        (**self).host_counters()
    }

    fn finish(&mut self) {
        (**self).finish();
    }
}
