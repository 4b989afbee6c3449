//! Runs with both ends in this process, on one thread.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::AtomicBool;

use irnic_nic::frame::Icrc;
use irnic_nic::{Nic, NicConfig};
use irnic_ports::NicPort;
use irnic_ports::mem;
use irnic_ports::shm::{ShmConfig, ShmPort};
use irnic_ports::udp::{Segmentation, UdpConfig, UdpPort};
use irnic_ports::{MAX_FRAME, Port};
use irnic_transports::wire::Mtu;

use crate::bandwidth::Bandwidth;
use crate::carrier::{Carrier, Direct, Pair, icrc_in_memory, mtu_of, tap};
use crate::clock::RunClock;
use crate::connector::{self, Connector};
use crate::cpu::Ticks;
use crate::end::{End, Measured};
use crate::endpoint::Endpoint;
use crate::error::PerfError;
use crate::figures::Line;
use crate::latency::LatencyEnd;
use crate::plan::{Plan, PortKind};
use crate::progress::Progress;
use crate::report::counter_map;
use crate::results::{Ran, Results};
use crate::run;
use crate::sweep::{Sweep, Turn};

/// Addresses of client and server.
pub const ADDRESSES: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2))];
/// Addresses of client and server in IPv6, where only the NICs use them.
const ADDRESSES_V6: [IpAddr; 2] =
    [IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1)), IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2))];

/// Addresses of client and server on a memory port.
pub fn memory_addresses(plan: &Plan) -> [IpAddr; 2] {
    if plan.ipv6 { ADDRESSES_V6 } else { ADDRESSES }
}

/// A placeholder NIC of a carrier: each run brings its own.
fn no_nic() -> Nic {
    Nic::new(NicConfig { max_qps: 0, ..NicConfig::default() })
}

/// Two NICs on two ports.
fn pair<P: Port>(a: P, b: P, icrc: Icrc) -> Pair<P> {
    Pair([NicPort::new(no_nic(), a, icrc), NicPort::new(no_nic(), b, icrc)])
}

/// Two ports, with a tap on the client's: packets it sends go to the server, packets it receives come from there.
fn tapped<P: Port + 'static>(a: P, b: P, plan: &Plan, clock: RunClock) -> Result<Pair<Box<dyn Port>>, PerfError> {
    Ok(pair(tap(a, plan, clock)?, Box::new(b), Icrc::Checked))
}

fn udp_ports(plan: &Plan) -> Result<(UdpPort, UdpPort), PerfError> {
    let open = |ip: IpAddr| {
        let config = UdpConfig::new(ip).with_local(SocketAddr::new(ip, 0)).with_kernel_stamps(plan.kernel_stamps());
        UdpPort::open(&config.with_segmentation(Segmentation::On))
    };
    let [client, server] = udp_addresses(plan);
    let (mut a, mut b) = (open(client)?, open(server)?);
    a.set_remote_port(b.local_addr().port());
    b.set_remote_port(a.local_addr().port());
    Ok((a, b))
}

fn udp_addresses(plan: &Plan) -> [IpAddr; 2] {
    match plan.bind {
        Some(ip) => [ip, ip],
        None if plan.ipv6 => [Ipv6Addr::LOCALHOST.into(); 2],
        None => ADDRESSES,
    }
}

/// Runs everything. A failed run does not end a comparison.
pub fn main(sweep: &Sweep, interrupted: &AtomicBool, results: &mut Results<'_>) -> Result<(), PerfError> {
    let bar = sweep.bar();
    let mut failed = Vec::new();
    for turns in sweep.groups() {
        bar.set_message(sweep.name(turns[0]));
        match group(sweep, &turns, interrupted, results) {
            Err(PerfError::Failed(why)) if results.compares => {
                failed.push(format!("{}: {why}", sweep.name(turns[0])));
                results.failed(turns[0], why);
            }
            outcome => outcome?,
        }
        bar.inc(1);
    }
    if failed.is_empty() { Ok(()) } else { Err(PerfError::Failed(failed.join("\n"))) }
}

/// Runs a group, on its own ports.
fn group(sweep: &Sweep, turns: &[Turn], interrupted: &AtomicBool, results: &mut Results<'_>) -> Result<(), PerfError> {
    // Everything but the size is the same for all of a group.
    let plan = &sweep.plan(turns[0]);
    let clock = RunClock::without_stalls(plan.longest_step);
    let (mtu, addresses) = (mtu_of(MAX_FRAME)?, memory_addresses(plan));
    let mut runs = Runs { sweep, turns, clock, interrupted, results, mtu, addresses };
    let shm = || ShmPort::pair(&ShmConfig::new(addresses[0], addresses[1]));
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
            runs.addresses = udp_addresses(plan);
            runs.mtu = mtu_of(a.max_frame_to(runs.addresses[1])?)?;
            match is_tapped {
                false => runs.all(&mut pair(a, b, Icrc::Checked)),
                true => runs.all(&mut tapped(a, b, plan, clock)?),
            }
        }
    }
}

struct Runs<'a, 'r> {
    sweep: &'a Sweep,
    turns: &'a [Turn],
    clock: RunClock,
    interrupted: &'a AtomicBool,
    results: &'a mut Results<'r>,
    mtu: Mtu,
    addresses: [IpAddr; 2],
}

impl Runs<'_, '_> {
    fn all<C: Carrier>(&mut self, carrier: &mut C) -> Result<(), PerfError> {
        for &turn in self.turns {
            self.one(carrier, turn)?;
        }
        if !self.results.compares {
            self.results.network = carrier.impairments();
        }
        irnic_report::interrupt::sleep(self.sweep.linger, self.interrupted);
        Ok(())
    }

    fn one<C: Carrier>(&mut self, carrier: &mut C, turn: Turn) -> Result<(), PerfError> {
        let plan = &self.sweep.plan(turn);
        let mtu = plan.mtu.unwrap_or(self.mtu);
        self.results.begin(mtu);
        self.results.announce(turn);
        let (run, size) = (turn.number, plan.size);
        let job = Job { plan, run, size, mtu, addresses: self.addresses, clock: self.clock };
        let mut progress = self.sweep.progress(turn);
        let then = Ticks::now();
        let (measured, outcome) = job.run(carrier, self.interrupted, &mut progress);
        if let Some([client, server]) = measured
            && matches!(outcome, Ok(()) | Err(PerfError::Interrupted))
        {
            let [counters, peer_counters] = [0, 1].map(|side| counter_map(carrier.nic(side).counters()));
            let initiator = if plan.reversed { &server } else { &client };
            let events = client.events.zip(server.events).map(|(client, server)| client + server);
            let ran = Ran {
                peer_counters,
                events,
                intervals: progress.intervals(),
                cpu: self.sweep.show.cpu.then(|| Ticks::now().busy_since(then)),
                network: carrier.impairments().filter(|_| self.results.compares),
                ..Ran::of(initiator, counters).with_both(Line::of(&client), Line::of(&server), plan.bidirectional)
            };
            self.results.add(turn, ran);
        }
        outcome
    }
}

/// One run.
pub struct Job<'p> {
    pub plan: &'p Plan,
    /// Number of the run, for queue pair numbers.
    pub run: usize,
    pub size: u32,
    pub mtu: Mtu,
    pub addresses: [IpAddr; 2],
    pub clock: RunClock,
}

/// Measurements of both ends, if available, and the outcome of the run.
pub type Outcome = (Option<[Measured; 2]>, Result<(), PerfError>);

impl Job<'_> {
    /// Puts its NICs into the carrier, where they stay, and runs both ends.
    pub fn run<C: Carrier>(&self, carrier: &mut C, interrupted: &AtomicBool, progress: &mut Progress) -> Outcome {
        let mut go = || -> Result<Outcome, PerfError> {
            let (plan, size) = (self.plan, self.size);
            let ([client, server], mut connectors) = self.connect(carrier, interrupted)?;
            if plan.test.is_latency() {
                let mut ends = [
                    LatencyEnd::new(plan, size, client, carrier.nic(0))?,
                    LatencyEnd::new(plan, size, server, carrier.nic(1))?,
                ];
                Ok(self.drive(carrier, &mut ends, &mut connectors, interrupted, progress))
            } else {
                let mut ends = [
                    Bandwidth::new(plan, size, client, carrier.nic(0))?,
                    Bandwidth::new(plan, size, server, carrier.nic(1))?,
                ];
                Ok(self.drive(carrier, &mut ends, &mut connectors, interrupted, progress))
            }
        };
        go().unwrap_or_else(|e| (None, Err(e)))
    }

    fn drive<C: Carrier, E: End>(
        &self,
        carrier: &mut C,
        ends: &mut [E; 2],
        connectors: &mut Option<[Connector; 2]>,
        interrupted: &AtomicBool,
        progress: &mut Progress,
    ) -> Outcome {
        let outcome = run::both(carrier, ends, self.clock, self.plan.events, interrupted, progress);
        let measured = [ends[0].measured(), ends[1].measured()];
        if let Some(connectors) = connectors {
            // The outcome matters more than a failed disconnect.
            let _ = connector::part(carrier, connectors, self.clock);
        }
        (Some(measured), outcome)
    }

    fn connect<C: Carrier>(
        &self,
        carrier: &mut C,
        interrupted: &AtomicBool,
    ) -> Result<([Endpoint; 2], Option<[Connector; 2]>), PerfError> {
        let Job { plan, run, size, mtu, addresses, clock } = *self;
        let (mut nic_a, mut a, info_a) = Endpoint::new(plan, 0, run, size)?;
        let (mut nic_b, mut b, info_b) = Endpoint::new(plan, 1, run, size)?;
        if plan.rdma_cm {
            a.meet(info_b)?;
            b.meet(info_a)?;
            (*carrier.nic(0), *carrier.nic(1)) = (nic_a, nic_b);
            let [client, server] = addresses;
            let mut connectors =
                [Connector::new(plan, &a, mtu, client, server)?, Connector::new(plan, &b, mtu, server, client)?];
            connector::both(carrier, &mut connectors, clock, interrupted)?;
            return Ok(([a, b], Some(connectors)));
        }
        a.connect(&mut nic_a, plan, mtu, addresses[0], addresses[1], info_b)?;
        b.connect(&mut nic_b, plan, mtu, addresses[1], addresses[0], info_a)?;
        (*carrier.nic(0), *carrier.nic(1)) = (nic_a, nic_b);
        Ok(([a, b], None))
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Duration;

    use irnic_nic::Mr;
    use irnic_transports::Time;

    use super::*;
    use crate::args::PerfArgs;

    /// A carrier that flips a byte of a region after some rounds with packets.
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
        arguments: &[&str],
        side: usize,
        make: impl Fn(&Plan, u32, Endpoint, &mut Nic) -> Result<E, PerfError>,
    ) -> Result<(), PerfError> {
        let plan = PerfArgs::plan_of(arguments)?;
        let size = plan.size;
        let (mtu, clock) = (Mtu::B1024, RunClock::new());
        let job = Job { plan: &plan, run: 0, size, mtu, addresses: ADDRESSES, clock };
        let mut direct = Direct([no_nic(), no_nic()]);
        let ([client, server], _) = job.connect(&mut direct, &AtomicBool::new(false))?;
        let mr = if side == 0 { *client.local(0) } else { *server.remote(0) };
        let mut ends = [make(&plan, size, client, direct.nic(0))?, make(&plan, size, server, direct.nic(1))?];
        let mut carrier = Flipping { direct, side, mr, rounds: 0 };
        run::both(&mut carrier, &mut ends, clock, false, &AtomicBool::new(false), &mut Progress::quiet())
    }

    #[test]
    fn a_changed_byte_fails_every_bandwidth_test() {
        for (test, side) in [("send-bw", 1), ("write-bw", 1), ("read-bw", 0), ("atomic-bw", 0)] {
            let arguments = [test, "-t", "1", "-n", "50"];
            let outcome = run_flipping(&arguments, side, Bandwidth::new);
            let error = outcome.expect_err(test).to_string();
            assert!(error.contains("the first wrong byte is at offset 1 of"), "{test}: {error}");
        }
    }

    #[test]
    fn a_changed_byte_fails_latency_tests() {
        for (test, side) in [("send-lat", 1), ("read-lat", 0), ("atomic-lat", 0)] {
            let size = ["-s", "64"];
            let size = if test == "atomic-lat" { &[][..] } else { &size };
            let arguments = [&[test, "-n", "50"], size].concat();
            let error = run_flipping(&arguments, side, LatencyEnd::new).expect_err(test).to_string();
            assert!(error.contains("the first wrong byte is at offset 1 of"), "{test}: {error}");
        }
    }
}
