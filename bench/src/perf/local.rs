//! Both ends in this process, on one thread.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::AtomicBool;

use irnic_nic::frame::Icrc;
use irnic_nic::{Nic, NicConfig};
use irnic_ports::NicPort;
use irnic_ports::mem;
use irnic_ports::shm::{ShmConfig, ShmPort};
use irnic_ports::udp::{Segmentation, UdpConfig, UdpPort};
use irnic_ports::{MAX_FRAME, Port};
use irnic_transports::qp::Counters;
use irnic_transports::wire::Mtu;

use super::PerfError;
use super::bandwidth::Bandwidth;
use super::carrier::{Carrier, Direct, Pair, icrc_in_memory, mtu_of, tap};
use super::clock::RunClock;
use super::endpoint::Endpoint;
use super::latency::LatencyEnd;
use super::plan::{Plan, PortKind};
use super::progress::Progress;
use super::report::{Line, Results, counter_map};
use super::run::{self, End, Measured};

/// Addresses of client and server.
pub const ADDRESSES: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2))];

/// A carrier without its NICs: each run brings its own.
fn no_nic() -> Nic {
    Nic::new(NicConfig { max_qps: 0, ..NicConfig::default() })
}

/// Two NICs on two ports.
fn pair<P: Port>(a: P, b: P, icrc: Icrc) -> Pair<P> {
    Pair([NicPort::new(no_nic(), a, icrc), NicPort::new(no_nic(), b, icrc)])
}

/// Two ports, of which the client's is tapped: what it sends goes to the server, what it receives comes from there.
fn tapped<P: Port + 'static>(a: P, b: P, plan: &Plan, clock: RunClock) -> Result<Pair<Box<dyn Port>>, PerfError> {
    Ok(pair(tap(a, plan, clock)?, Box::new(b), Icrc::Checked))
}

fn udp_ports(plan: &Plan) -> Result<(UdpPort, UdpPort), PerfError> {
    let open = |ip: IpAddr| {
        let config = UdpConfig::new(ip).with_local(SocketAddr::new(ip, 0)).with_kernel_stamps(plan.kernel_stamps());
        UdpPort::open(&config.with_segmentation(Segmentation::On))
    };
    let [client, server] = addresses(plan);
    let (mut a, mut b) = (open(client)?, open(server)?);
    a.set_remote_port(b.local_addr().port());
    b.set_remote_port(a.local_addr().port());
    Ok((a, b))
}

fn addresses(plan: &Plan) -> [IpAddr; 2] {
    plan.bind.map_or(ADDRESSES, |ip| [ip, ip])
}

/// Runs every size of the plan.
pub fn main<'p>(plan: &'p Plan, interrupted: &AtomicBool, results: &mut Results<'p>) -> Result<(), PerfError> {
    let clock = RunClock::new();
    let mut runs = Runs { plan, clock, interrupted, results, mtu: mtu_of(MAX_FRAME)?, addresses: ADDRESSES };
    let shm = || ShmPort::pair(&ShmConfig::new(ADDRESSES[0], ADDRESSES[1]));
    match (plan.port, plan.tapped()) {
        (PortKind::Mem, false) => runs.all(&mut Direct([no_nic(), no_nic()])),
        (PortKind::Mem, true) => {
            let (a, b) = mem::pair();
            runs.all(&mut tapped(a, b, plan, clock)?)
        }
        (PortKind::Shm, is_tapped) => {
            let (a, b) = shm()?;
            match is_tapped {
                false => runs.all(&mut pair(a, b, icrc_in_memory(false))),
                true => runs.all(&mut tapped(a, b, plan, clock)?),
            }
        }
        (PortKind::Udp, is_tapped) => {
            let (a, b) = udp_ports(plan)?;
            runs.addresses = addresses(plan);
            runs.mtu = mtu_of(a.max_frame_to(runs.addresses[1])?)?;
            match is_tapped {
                false => runs.all(&mut pair(a, b, Icrc::Checked)),
                true => runs.all(&mut tapped(a, b, plan, clock)?),
            }
        }
    }
}

struct Runs<'a, 'p> {
    plan: &'p Plan,
    clock: RunClock,
    interrupted: &'a AtomicBool,
    results: &'a mut Results<'p>,
    mtu: Mtu,
    addresses: [IpAddr; 2],
}

impl Runs<'_, '_> {
    fn all<C: Carrier>(&mut self, carrier: &mut C) -> Result<(), PerfError> {
        let mtu = self.plan.mtu.unwrap_or(self.mtu);
        self.results.begin(mtu);
        for (run, &size) in self.plan.sizes.iter().enumerate() {
            let job = Job { plan: self.plan, run, size, mtu, addresses: self.addresses, clock: self.clock };
            let mut progress = Progress::new(format!("{} {size} B", self.plan.test.name()), self.plan.duration);
            let (measured, outcome) = job.run(carrier, self.interrupted, &mut progress);
            drop(progress);
            if let Some([client, server]) = measured
                && (outcome.is_ok() || matches!(outcome, Err(PerfError::Interrupted)))
            {
                let line = Line::of(&client).with(Line::of(&server));
                let counters = [0, 1].map(|side| counter_map(carrier.nic(side).counters()));
                self.results.add(size, &line, &counters[0], &counters[1]);
                self.results.paced(client.pacing);
            }
            outcome?;
        }
        self.results.network(carrier.impairments());
        Ok(())
    }
}

/// One run: one size.
pub struct Job<'p> {
    pub plan: &'p Plan,
    /// Number of the run, for queue pair numbers.
    pub run: usize,
    pub size: u32,
    pub mtu: Mtu,
    pub addresses: [IpAddr; 2],
    pub clock: RunClock,
}

/// What both ends measured, if it came to that, and how the run ended.
pub type Outcome = (Option<[Measured; 2]>, Result<(), PerfError>);

impl Job<'_> {
    /// Puts NICs of its own into the carrier, where they stay, and runs both ends.
    pub fn run<C: Carrier>(&self, carrier: &mut C, interrupted: &AtomicBool, progress: &mut Progress) -> Outcome {
        let mut go = || -> Result<Outcome, PerfError> {
            let [client, server] = self.connect(carrier)?;
            let (plan, size) = (self.plan, self.size);
            if plan.test.is_latency() {
                let mut ends = [
                    LatencyEnd::new(plan, size, client, carrier.nic(0))?,
                    LatencyEnd::new(plan, size, server, carrier.nic(1))?,
                ];
                Ok(self.drive(carrier, &mut ends, interrupted, progress))
            } else {
                let mut ends = [
                    Bandwidth::new(plan, size, client, carrier.nic(0))?,
                    Bandwidth::new(plan, size, server, carrier.nic(1))?,
                ];
                Ok(self.drive(carrier, &mut ends, interrupted, progress))
            }
        };
        go().unwrap_or_else(|e| (None, Err(e)))
    }

    fn drive<C: Carrier, E: End>(
        &self,
        carrier: &mut C,
        ends: &mut [E; 2],
        interrupted: &AtomicBool,
        progress: &mut Progress,
    ) -> Outcome {
        let outcome = run::both(carrier, ends, self.clock, interrupted, progress);
        (Some([ends[0].measured(), ends[1].measured()]), outcome)
    }

    fn connect<C: Carrier>(&self, carrier: &mut C) -> Result<[Endpoint; 2], PerfError> {
        let Job { plan, run, size, mtu, addresses, .. } = self;
        let (mut nic_a, mut a, info_a) = Endpoint::new(plan, 0, *run, *size)?;
        let (mut nic_b, mut b, info_b) = Endpoint::new(plan, 1, *run, *size)?;
        a.connect(&mut nic_a, plan, *mtu, addresses[0], addresses[1], info_b)?;
        b.connect(&mut nic_b, plan, *mtu, addresses[1], addresses[0], info_a)?;
        *carrier.nic(0) = nic_a;
        *carrier.nic(1) = nic_b;
        Ok([a, b])
    }
}

/// Both NICs' counters together.
pub fn counters<C: Carrier>(carrier: &mut C) -> [Counters; 2] {
    [0, 1].map(|side| *carrier.nic(side).counters())
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Duration;

    use irnic_nic::Mr;
    use irnic_transports::Time;

    use super::super::args::PerfArgs;
    use super::*;

    /// Changes a byte of a region after packets have moved for a while.
    struct Flipping {
        direct: Direct,
        side: usize,
        mr: Mr,
        rounds: u32,
    }

    impl Carrier for Flipping {
        fn nic(&mut self, side: usize) -> &mut Nic {
            self.direct.nic(side)
        }

        fn receive(&mut self, now: Time) -> io::Result<usize> {
            self.direct.receive(now)
        }

        fn transmit(&mut self, now: Time) -> io::Result<usize> {
            let moved = self.direct.transmit(now)?;
            self.rounds += 1;
            if self.rounds > 3 && moved > 0 {
                // Not the same bit twice in a row: a message may take two rounds.
                let bits = self.rounds as u8;
                self.direct.nic(self.side).bytes_mut(&self.mr).into_iter().for_each(|bytes| bytes[1] ^= bits);
            }
            Ok(moved)
        }

        fn next_deadline(&self) -> Time {
            self.direct.next_deadline()
        }

        fn wait(&mut self, timeout: Duration) -> io::Result<()> {
            self.direct.wait(timeout)
        }
    }

    fn run_flipping<E: End>(
        words: &[&str],
        side: usize,
        make: impl Fn(&Plan, u32, Endpoint, &mut Nic) -> Result<E, PerfError>,
    ) -> Result<(), PerfError> {
        let plan = PerfArgs::plan_of(words)?;
        let size = plan.sizes[0];
        let (mtu, clock) = (Mtu::B1024, RunClock::new());
        let job = Job { plan: &plan, run: 0, size, mtu, addresses: ADDRESSES, clock };
        let mut direct = Direct([no_nic(), no_nic()]);
        let [client, server] = job.connect(&mut direct)?;
        let mr = if side == 0 { client.local } else { server.remote };
        let mut ends = [make(&plan, size, client, direct.nic(0))?, make(&plan, size, server, direct.nic(1))?];
        let mut carrier = Flipping { direct, side, mr, rounds: 0 };
        let mut quiet = Progress::new(String::new(), None);
        run::both(&mut carrier, &mut ends, clock, &AtomicBool::new(false), &mut quiet)
    }

    #[test]
    fn a_changed_byte_fails_every_bandwidth_test() {
        for (test, side) in [("send-bw", 1), ("write-bw", 1), ("read-bw", 0), ("atomic-bw", 0)] {
            let words = [test, "-t", "1", "-n", "50"];
            let outcome = run_flipping(&words, side, Bandwidth::new);
            let error = outcome.expect_err(test).to_string();
            assert!(error.contains("the first wrong byte is at offset 1 of"), "{test}: {error}");
        }
    }

    #[test]
    fn a_changed_byte_fails_latency_tests() {
        for (test, side) in [("send-lat", 1), ("read-lat", 0), ("atomic-lat", 0)] {
            let size = ["-s", "64"];
            let size = if test == "atomic-lat" { &[][..] } else { &size };
            let words = [&[test, "-n", "50"], size].concat();
            let error = run_flipping(&words, side, LatencyEnd::new).expect_err(test).to_string();
            assert!(error.contains("the first wrong byte is at offset 1 of"), "{test}: {error}");
        }
    }
}
