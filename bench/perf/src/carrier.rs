//! Carriers of packets: directly between two NICs, through two ports of this process, or through one to another
//! process.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use irnic_nic::Nic;
use irnic_nic::frame::Icrc;
use irnic_nic::loopback;
use irnic_ports::NicPort;
use irnic_ports::Port;
use irnic_ports::capture::Captured;
use irnic_ports::impair::{Impaired, Report};
use irnic_ports::paced::Paced;
use irnic_ports::udp::{Segmentation, UdpConfig, UdpPort};
use irnic_report::output::Stream;
use irnic_transports::Time;
use irnic_transports::wire::{Headers, Mtu};

use crate::clock::RunClock;
use crate::error::PerfError;
use crate::plan::Plan;

/// Drives the NICs of this process, and moves packets.
pub trait Carrier {
    /// The NIC of an end: 0 the client's, 1 the server's. If only one is in this process, that one.
    fn nic(&mut self, side: usize) -> &mut Nic;
    /// Receives packets and runs timers. Returns the number of packets received.
    fn receive(&mut self, now: Time) -> io::Result<usize>;
    /// Sends what is ready. Returns the number of packets sent.
    fn transmit(&mut self, now: Time) -> io::Result<usize>;
    /// Time of the next round if nothing arrives.
    fn next_deadline(&self) -> Time;
    /// Sleeps until something may have arrived, at most `timeout`.
    fn wait(&mut self, timeout: Duration) -> io::Result<()>;
    /// What the impaired network has done to frames sent and received by this process, or its client.
    fn impairments(&self) -> Option<[Report; 2]> {
        None
    }
}

/// Length of the ICRC, bytes.
const ICRC: usize = 4;
/// Maximum number of packets taken from a NIC at a time.
const BATCH: usize = 256;
/// Minimum sleep: waking up takes about as long.
const SHORTEST_NAP: Duration = Duration::from_micros(200);

/// Two NICs with nothing in between: payload is copied once, from region to region.
pub struct Direct(pub [Nic; 2]);

impl Carrier for Direct {
    #[inline]
    fn nic(&mut self, side: usize) -> &mut Nic {
        &mut self.0[side]
    }

    #[inline]
    fn receive(&mut self, now: Time) -> io::Result<usize> {
        self.0.iter_mut().for_each(|nic| nic.on_deadline(now));
        Ok(0)
    }

    #[inline]
    fn transmit(&mut self, now: Time) -> io::Result<usize> {
        let [a, b] = &mut self.0;
        let mut moved = 0;
        if a.wants_tx() {
            moved += loopback(now, a, b, BATCH);
        }
        if b.wants_tx() {
            moved += loopback(now, b, a, BATCH);
        }
        Ok(moved)
    }

    fn next_deadline(&self) -> Time {
        self.0[0].next_deadline().min(self.0[1].next_deadline())
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        nap(timeout);
        Ok(())
    }
}

/// Two NICs on two ports, driven alternately.
pub struct Pair<P>(pub [NicPort<P>; 2]);

impl<P: Port> Carrier for Pair<P> {
    #[inline]
    fn nic(&mut self, side: usize) -> &mut Nic {
        &mut self.0[side].nic
    }

    #[inline]
    fn receive(&mut self, now: Time) -> io::Result<usize> {
        let [a, b] = &mut self.0;
        Ok(a.receive(now)? + b.receive(now)?)
    }

    #[inline]
    fn transmit(&mut self, now: Time) -> io::Result<usize> {
        let [a, b] = &mut self.0;
        Ok(a.transmit(now)? + b.transmit(now)?)
    }

    fn next_deadline(&self) -> Time {
        self.0[0].next_deadline().min(self.0[1].next_deadline())
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        nap(timeout);
        Ok(())
    }

    fn impairments(&self) -> Option<[Report; 2]> {
        self.0[0].port.impairments()
    }
}

/// Sleeps for most of `timeout`: both ends are here, so nothing can arrive meanwhile.
fn nap(timeout: Duration) {
    if timeout > SHORTEST_NAP {
        std::thread::sleep(timeout - SHORTEST_NAP / 2);
    }
}

impl<P: Port> Carrier for NicPort<P> {
    #[inline]
    fn nic(&mut self, _side: usize) -> &mut Nic {
        &mut self.nic
    }

    #[inline]
    fn receive(&mut self, now: Time) -> io::Result<usize> {
        NicPort::receive(self, now)
    }

    #[inline]
    fn transmit(&mut self, now: Time) -> io::Result<usize> {
        NicPort::transmit(self, now)
    }

    fn next_deadline(&self) -> Time {
        NicPort::next_deadline(self)
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        if !timeout.is_zero() && !self.busy() {
            self.port.wait(timeout)?;
        }
        Ok(())
    }

    fn impairments(&self) -> Option<[Report; 2]> {
        self.port.impairments()
    }
}

/// Wraps a port in what the plan asks for: an impaired network, a link with a rate, a capture.
pub fn tap<P: Port + 'static>(port: P, plan: &Plan, mut clock: RunClock) -> Result<Box<dyn Port>, PerfError> {
    let mut port: Box<dyn Port> = Box::new(Impaired::new(port, &plan.impair, plan.seed, 0));
    if let Some(rate) = plan.rate {
        port = Box::new(Paced::new(port, rate));
    }
    let Some(path) = &plan.pcap else { return Ok(port) };
    let file = Stream::capture(path).map_err(|e| PerfError::Usage(format!("--pcap {e}")))?;
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let epoch = since_1970.saturating_sub(Duration::from_nanos(clock.now().0));
    Ok(Box::new(Captured::new(port, file, "irnic0", epoch)))
}

/// The largest path MTU for frames of `max_frame` bytes.
pub fn mtu_of(max_frame: usize) -> Result<Mtu, PerfError> {
    Mtu::at_most(max_frame.saturating_sub(Headers::MAX_DATA_LEN + ICRC)).ok_or_else(|| {
        PerfError::Failed(format!("frames of {max_frame} bytes are too small for RoCE: raise the interface's MTU"))
    })
}

/// Handling of ICRCs on a memory carrier: none, unless frames are captured or may be corrupted.
pub fn icrc_in_memory(tapped: bool) -> Icrc {
    if tapped { Icrc::Checked } else { Icrc::Off }
}

/// A UDP port at `ip`: RoCE's own, or, if that is in use, any other, of which the peer is informed.
pub fn open_udp(ip: IpAddr, plan: &Plan) -> Result<UdpPort, PerfError> {
    // The peer is another irnic: its receiver accepts trains of frames with any transport.
    let config = UdpConfig::new(ip).with_segmentation(Segmentation::On).with_kernel_stamps(plan.kernel_stamps());
    UdpPort::open(&config)
        .or_else(|_| UdpPort::open(&config.with_local(SocketAddr::new(ip, 0))))
        .map_err(|e| PerfError::Failed(format!("{e}; --bind chooses another of this host's addresses")))
}
