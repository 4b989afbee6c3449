//! One end in this process, the other in another.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use irnic_nic::frame::Icrc;
use irnic_nic::{Nic, NicConfig};
use irnic_ports::NicPort;
use irnic_ports::shm::{ShmConfig, ShmPort};
use irnic_ports::udp::UdpPort;
use irnic_ports::{MAX_FRAME, Port};
use irnic_transports::Time;
use irnic_transports::time::MS;
use irnic_transports::wire::Mtu;

use super::PerfError;
use super::bandwidth::Bandwidth;
use super::carrier::{Carrier, icrc_in_memory, mtu_of, open_udp, tap};
use super::clock::RunClock;
use super::endpoint::Endpoint;
use super::exchange::{Control, Hello, Message, Report, unexpected};
use super::latency::LatencyEnd;
use super::local::ADDRESSES;
use super::plan::{Place, Plan, PortKind};
use super::progress::Progress;
use super::report::{CounterMap, Line, Results, counter_map};
use super::run::{End, Idle};

/// Between two looks at the TCP connection while packets flow, in ns.
const LOOK: u64 = MS;

/// Meets the peer, and runs every size of the plan with it.
pub fn main<'p>(plan: &'p Plan, interrupted: &AtomicBool, results: &mut Results<'p>) -> Result<(), PerfError> {
    let side = usize::from(plan.place == Place::Server);
    let mut control = match &plan.place {
        Place::Client(host) => Control::connect(host, plan.tcp_port, interrupted)?,
        _ => {
            println!("\n************************************\n* Waiting for client to connect... *");
            println!("************************************");
            Control::accept(plan.tcp_port, interrupted)?
        }
    };
    let mut session = Session { plan, side, control: &mut control, interrupted, clock: RunClock::new(), results };
    let outcome = session.meet();
    if let Err(e) = &outcome {
        // Best effort: the peer may be what failed.
        let _ = control.send(&Message::Failed(e.to_string()));
    }
    outcome
}

struct Session<'a, 'p> {
    plan: &'p Plan,
    side: usize,
    control: &'a mut Control,
    interrupted: &'a AtomicBool,
    clock: RunClock,
    results: &'a mut Results<'p>,
}

/// What is known once both have greeted.
struct Met {
    own: IpAddr,
    peer: IpAddr,
    mtu: Mtu,
    icrc: Icrc,
}

enum Opened {
    Udp(Box<UdpPort>),
    /// The server's ring.
    Shm(Box<ShmPort>),
    /// The client waits for it.
    ShmAwaited,
}

impl Session<'_, '_> {
    fn meet(&mut self) -> Result<(), PerfError> {
        let plan = self.plan;
        let (mut own, mut udp_port, mut shm, mut max_frame) = (ADDRESSES[1 - self.side], 0, None, MAX_FRAME);
        let opened = match plan.port {
            PortKind::Shm if self.side == 1 => {
                let (port, path) = ShmPort::create(&ShmConfig::new(own, ADDRESSES[self.side]))?;
                shm = Some(path);
                Opened::Shm(Box::new(port))
            }
            PortKind::Shm => Opened::ShmAwaited,
            PortKind::Udp | PortKind::Mem => {
                own = plan.bind.map_or_else(|| self.control.local_ip(), Ok)?;
                let port = open_udp(own, plan)?;
                udp_port = port.local_addr().port();
                max_frame = port.max_frame_to(own)?;
                Opened::Udp(Box::new(port))
            }
        };
        let mtu = match plan.mtu {
            Some(mtu) => mtu,
            None => mtu_of(max_frame)?,
        };
        let hello = Hello {
            options: Hello::options(plan),
            wire: Hello::wire(plan.transport.wire),
            ip: own,
            udp_port,
            shm,
            mtu: mtu.bytes() as u16,
            tapped: plan.tapped(),
        };
        self.control.send(&Message::Hello(hello.clone()))?;
        let Message::Hello(peer) = self.control.receive(self.interrupted)? else { return Err(unexpected()) };
        hello.agrees(&peer)?;
        let icrc = match plan.port {
            PortKind::Shm => icrc_in_memory(hello.tapped || peer.tapped),
            PortKind::Udp | PortKind::Mem => Icrc::Checked,
        };
        let mut met =
            Met { own, peer: peer.ip, mtu: Mtu::from_bytes(peer.mtu.into()).ok_or_else(unexpected)?.min(mtu), icrc };
        match opened {
            Opened::Udp(mut port) => {
                port.set_remote_port(peer.udp_port);
                // The route to the peer may be narrower than this host's own.
                if plan.mtu.is_none() {
                    met.mtu = met.mtu.min(mtu_of(port.max_frame_to(peer.ip)?)?);
                }
                self.with_port(*port, &met)
            }
            Opened::Shm(port) => self.with_port(*port, &met),
            Opened::ShmAwaited => {
                let path = peer.shm.ok_or_else(unexpected)?;
                let port = ShmPort::open(&path).map_err(|e| {
                    PerfError::Failed(format!(
                        "cannot open the server's ring {}: {e}; shm joins processes of one host and user",
                        path.display()
                    ))
                })?;
                self.with_port(port, &met)
            }
        }
    }

    fn with_port<P: Port + 'static>(&mut self, port: P, met: &Met) -> Result<(), PerfError> {
        if self.plan.tapped() {
            let port = tap(port, self.plan, self.clock)?;
            self.all(port, met)
        } else {
            self.all(port, met)
        }
    }

    fn all<P: Port>(&mut self, port: P, met: &Met) -> Result<(), PerfError> {
        let nic = Nic::new(NicConfig { max_qps: 0, ..NicConfig::default() });
        let mut carrier = NicPort::new(nic, port, met.icrc);
        // Path MTUs may have been found to differ by route: the smaller one holds at both ends.
        let mut mtu = met.mtu;
        for (run, &size) in self.plan.sizes.iter().enumerate() {
            let (nic, mut end, info) = Endpoint::new(self.plan, self.side, run, size)?;
            carrier.nic = nic;
            self.control.send(&Message::Ends(info, mtu.bytes() as u16))?;
            let Message::Ends(peer, bytes) = self.control.receive(self.interrupted)? else { return Err(unexpected()) };
            mtu = mtu.min(Mtu::from_bytes(bytes.into()).ok_or_else(unexpected)?);
            end.connect(&mut carrier.nic, self.plan, mtu, met.own, met.peer, peer)?;
            self.results.begin(mtu);
            let mut progress = Progress::new(format!("{} {size} B", self.plan.test.name()), self.plan.duration);
            if self.plan.test.is_latency() {
                let end = LatencyEnd::new(self.plan, size, end, &mut carrier.nic)?;
                self.run(&mut carrier, size, end, &mut progress)?;
            } else {
                let end = Bandwidth::new(self.plan, size, end, &mut carrier.nic)?;
                self.run(&mut carrier, size, end, &mut progress)?;
            }
        }
        self.results.network(carrier.impairments());
        Ok(())
    }

    /// One run. Partial results are told if it was interrupted.
    fn run<P: Port, E: End>(
        &mut self,
        carrier: &mut NicPort<P>,
        size: u32,
        mut end: E,
        progress: &mut Progress,
    ) -> Result<(), PerfError> {
        self.control.send(&Message::Ready)?;
        let Message::Ready = self.control.receive(self.interrupted)? else { return Err(unexpected()) };
        let outcome = self.drive(carrier, &mut end, progress);
        let measured = end.measured();
        let own = Line::of(&measured);
        let counters = counter_map(carrier.nic.counters());
        match outcome {
            Ok(peer) => {
                let line = if self.side == 0 { own.with(peer.line) } else { peer.line.with(own) };
                self.results.add(size, &line, &counters, &peer.counters);
                self.results.paced(measured.pacing);
                Ok(())
            }
            Err(PerfError::Interrupted) => {
                self.results.add(size, &own, &counters, &CounterMap::new());
                Err(PerfError::Interrupted)
            }
            Err(PerfError::Failed(why)) => Err(self.why(why)),
            Err(e) => Err(e),
        }
    }

    /// Why the run failed: the peer may have said more over TCP than the port can tell.
    fn why(&mut self, here: String) -> PerfError {
        std::thread::sleep(std::time::Duration::from_millis(100));
        match self.control.poll() {
            Err(PerfError::Failed(said)) if said.starts_with("the peer gave up") => PerfError::Failed(said),
            _ => PerfError::Failed(here),
        }
    }

    fn drive<P: Port, E: End>(
        &mut self,
        carrier: &mut NicPort<P>,
        end: &mut E,
        progress: &mut Progress,
    ) -> Result<Report, PerfError> {
        let mut idle = Idle::default();
        let mut look_at = Time::ZERO;
        let (mut told_finished, mut told_report) = (false, false);
        let mut peer_sent = None;
        let mut report = None;
        let mut long = true;
        loop {
            let mut now = self.clock.round(long);
            let received = carrier.receive(now);
            if matches!(received, Ok(1..)) {
                now = self.clock.now();
            }
            let mut moved = end.step(now, carrier.nic(0))?;
            if !told_finished && end.finished() {
                self.control.send(&Message::Finished(end.sent()))?;
                told_finished = true;
            }
            if let Some(sent) = peer_sent
                && told_finished
                && !told_report
                && end.received(sent)
            {
                let line = Line::of(&end.measured());
                let counters = counter_map(carrier.nic.counters());
                self.control.send(&Message::Report(Report { line, counters }))?;
                told_report = true;
            }
            if now >= look_at {
                look_at = now + if told_report { LOOK / 16 } else { LOOK };
                match self.control.poll()? {
                    None => {}
                    Some(Message::Finished(sent)) => peer_sent = Some(sent),
                    Some(Message::Report(said)) => report = Some(said),
                    Some(_) => return Err(unexpected()),
                }
                if self.interrupted.load(Ordering::Relaxed) {
                    return Err(PerfError::Interrupted);
                }
            }
            if told_report && let Some(report) = report.take() {
                return Ok(report);
            }
            progress.update(now, || end.progress());
            match received.and_then(|n| Ok(n + carrier.transmit(now)?)) {
                Ok(packets) => moved += packets,
                // The peer has what it wanted and closed its port: its last word is on its way over TCP.
                Err(_) if told_report => match self.control.receive(self.interrupted)? {
                    Message::Report(report) => return Ok(report),
                    _ => return Err(unexpected()),
                },
                Err(e) => return Err(e.into()),
            }
            long = idle.after_round(moved, now, carrier)?;
        }
    }
}
