//! The port of a device, and its functions other than carrying packets.

use std::io;
use std::net::IpAddr;

use irnic_ports::Port;
use irnic_ports::capture::Captured;
use irnic_ports::frames::{FrameCounters, FramePort};
use irnic_ports::host::{HostCounters, HostPort, ServiceClaim};
use irnic_ports::impair::Impaired;
use irnic_ports::lab::LabPort;
use irnic_ports::paced::Paced;
use irnic_ports::sheet::Sheet;

use irnic_ports::output::Output;

/// A port inside the wrappers that are configured.
pub(crate) trait DevicePort: Port + Send {
    /// Returns the counters of links to other processes of the host.
    fn host_counters(&self) -> HostCounters;

    /// Claims a service id among the processes of the device; `None` if no other process can have it. Fails with
    /// `AddrInUse` if another has it.
    fn claim_service(&self, service: u64) -> io::Result<Option<ServiceClaim>>;

    /// Returns whether the link is up, for a port without an interface of the host.
    fn link_is_up(&self) -> bool {
        true
    }

    /// Adds an address to the device. Does nothing if the port has it already, or its addresses are not an interface's.
    fn add_address(&mut self, _address: IpAddr) {}

    /// Returns the counters of a frame port; `None` for other ports.
    fn frame_counters(&self) -> Option<FrameCounters> {
        None
    }

    /// Returns whether processes of the device may have ended since the last call.
    fn take_lost(&mut self) -> bool {
        false
    }

    /// Has [`Self::take_lost`] return true once more, for a process that has become known since.
    fn look_again(&mut self) {}

    /// Returns whether the process that a communication id of `address` belongs to has ended, as far as known.
    fn peer_ended(&self, _address: IpAddr, _comm_id: u32) -> bool {
        false
    }

    /// Passes a sheet of this process to the owner of the network, and the abstract name at which it can be requested.
    fn show(&self, _sheet: &Sheet, _name: &str) -> io::Result<()> {
        Ok(())
    }

    /// Returns a seed for random choices of its process, if they have to be reproducible.
    fn seed(&self) -> Option<[u8; 32]> {
        None
    }

    /// Writes out what would be lost with the process.
    fn finish(&mut self) {}
}

/// Returns a seed for random choices behind a port. Without entropy keys and numbers can be guessed, which has no other
/// consequences.
pub(super) fn seed_at(port: &dyn DevicePort) -> [u8; 32] {
    port.seed().unwrap_or_else(|| {
        let mut seed = [0; 32];
        // SAFETY: 32 bytes are written.
        unsafe { libc::getrandom(seed.as_mut_ptr().cast(), seed.len(), 0) };
        seed
    })
}

impl DevicePort for FramePort {
    fn host_counters(&self) -> HostCounters {
        HostCounters::default()
    }

    fn claim_service(&self, _service: u64) -> io::Result<Option<ServiceClaim>> {
        Ok(None)
    }

    fn frame_counters(&self) -> Option<FrameCounters> {
        Some(FramePort::frame_counters(self))
    }

    fn finish(&mut self) {
        self.clean_up();
    }
}

impl DevicePort for LabPort {
    fn host_counters(&self) -> HostCounters {
        HostCounters::default()
    }

    fn claim_service(&self, service: u64) -> io::Result<Option<ServiceClaim>> {
        LabPort::claim_service(self, service).map(Some)
    }

    fn link_is_up(&self) -> bool {
        LabPort::link_is_up(self)
    }

    fn show(&self, sheet: &Sheet, name: &str) -> io::Result<()> {
        LabPort::show(self, sheet, name)
    }

    fn seed(&self) -> Option<[u8; 32]> {
        LabPort::seed(self)
    }
}

impl DevicePort for HostPort {
    fn host_counters(&self) -> HostCounters {
        HostPort::host_counters(self)
    }

    fn claim_service(&self, service: u64) -> io::Result<Option<ServiceClaim>> {
        HostPort::claim_service(self, service).map(Some)
    }

    fn add_address(&mut self, address: IpAddr) {
        HostPort::add_address(self, address);
    }

    fn take_lost(&mut self) -> bool {
        HostPort::take_lost(self)
    }

    fn look_again(&mut self) {
        HostPort::look_again(self);
    }

    fn peer_ended(&self, address: IpAddr, comm_id: u32) -> bool {
        HostPort::peer_ended(self, address, comm_id)
    }

    fn finish(&mut self) {
        self.pass_on_rest();
    }
}

/// Implements [`DevicePort`] for a wrapper by its inner port. `$finish` runs before the inner port is finished.
macro_rules! wrapper {
    ($wrapper:ty, $finish:expr) => {
        impl<P: DevicePort> DevicePort for $wrapper {
            irnic_units::delegate!((self.inner()):
                fn host_counters(&self) -> HostCounters;
                fn claim_service(&self, service: u64) -> io::Result<Option<ServiceClaim>>;
                fn link_is_up(&self) -> bool;
                fn peer_ended(&self, address: IpAddr, comm_id: u32) -> bool;
                fn frame_counters(&self) -> Option<FrameCounters>;
                fn show(&self, sheet: &Sheet, name: &str) -> io::Result<()>;
                fn seed(&self) -> Option<[u8; 32]>;
            );
            irnic_units::delegate!((self.inner_mut()):
                fn add_address(&mut self, address: IpAddr);
                fn take_lost(&mut self) -> bool;
                fn look_again(&mut self);
            );

            fn finish(&mut self) {
                $finish(self);
                self.inner_mut().finish();
            }
        }
    };
}

wrapper!(Impaired<P>, |_: &mut Self| ());
wrapper!(Paced<P>, |_: &mut Self| ());
wrapper!(Captured<P, Output>, |capture: &mut Self| {
    capture.write_out();
    if let Some(error) = capture.error() {
        eprintln!("irnic: the capture ended early: {error}");
    }
});

impl<P: DevicePort + ?Sized> DevicePort for Box<P> {
    fn host_counters(&self) -> HostCounters {
        (**self).host_counters()
    }

    fn claim_service(&self, service: u64) -> io::Result<Option<ServiceClaim>> {
        (**self).claim_service(service)
    }

    fn link_is_up(&self) -> bool {
        (**self).link_is_up()
    }

    fn add_address(&mut self, address: IpAddr) {
        (**self).add_address(address);
    }

    fn take_lost(&mut self) -> bool {
        (**self).take_lost()
    }

    fn look_again(&mut self) {
        (**self).look_again();
    }

    fn peer_ended(&self, address: IpAddr, comm_id: u32) -> bool {
        (**self).peer_ended(address, comm_id)
    }

    fn frame_counters(&self) -> Option<FrameCounters> {
        (**self).frame_counters()
    }

    fn show(&self, sheet: &Sheet, name: &str) -> io::Result<()> {
        (**self).show(sheet, name)
    }

    fn seed(&self) -> Option<[u8; 32]> {
        (**self).seed()
    }

    fn finish(&mut self) {
        (**self).finish();
    }
}
