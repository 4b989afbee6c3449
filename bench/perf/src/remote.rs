//! Runs with one end in this process, and the other in another.

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

use crate::bandwidth::Bandwidth;
use crate::carrier::{Carrier, icrc_in_memory, mtu_of, open_udp, tap};
use crate::clock::RunClock;
use crate::connector::{self, Connector};
use crate::cpu::Ticks;
use crate::end::{End, Seen};
use crate::endpoint::Endpoint;
use crate::error::PerfError;
use crate::exchange::{Control, Hello, Message, Report, unexpected};
use crate::figures::Line;
use crate::latency::LatencyEnd;
use crate::local::memory_addresses;
use crate::plan::{Place, Plan, PortKind};
use crate::progress::Progress;
use crate::report::counter_map;
use crate::results::{Ran, Results};
use crate::run::Idle;
use crate::sweep::{Sweep, Turn};

/// Interval of polling the TCP connection while packets flow, ns.
const POLL_INTERVAL: u64 = MS;

/// Connects to the peer, and runs everything with it.
pub fn main(sweep: &Sweep, interrupted: &AtomicBool, results: &mut Results<'_>) -> Result<(), PerfError> {
    let plan = sweep.first();
    let side = usize::from(plan.place == Place::Server);
    let mut control = match &plan.place {
        Place::Client(host) => Control::connect(plan, host, interrupted)?,
        _ => {
            if sweep.show.only.is_none() {
                println!("\n************************************\n* Waiting for client to connect... *");
                println!("************************************");
            }
            Control::accept(plan, interrupted)?
        }
    };
    let bar = sweep.bar();
    for turns in sweep.groups() {
        bar.set_message(sweep.name(turns[0]));
        // Everything but the size is the same for all of a group.
        let plan = &sweep.plan(turns[0]);
        let clock = RunClock::new();
        let mut session =
            Session { sweep, plan, turns: &turns, side, control: &mut control, interrupted, clock, results };
        let outcome = session.meet();
        // Best effort: the peer may be what failed.
        match &outcome {
            Ok(()) | Err(PerfError::PeerInterrupted) => {}
            Err(PerfError::Interrupted) => drop(control.send(&Message::Interrupted)),
            Err(e) => drop(control.send(&Message::Failed(e.to_string()))),
        }
        outcome?;
        bar.inc(1);
    }
    Ok(())
}

/// A group of runs, on their own port.
struct Session<'a, 'r> {
    sweep: &'a Sweep,
    plan: &'a Plan,
    turns: &'a [Turn],
    side: usize,
    control: &'a mut Control,
    interrupted: &'a AtomicBool,
    clock: RunClock,
    results: &'a mut Results<'r>,
}

/// State after both ends have greeted.
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
    /// The ring, which the client waits for.
    ShmAwaited,
}

impl Session<'_, '_> {
    fn meet(&mut self) -> Result<(), PerfError> {
        let plan = self.plan;
        let memory = memory_addresses(plan);
        let (mut own, mut udp_port, mut shm, mut max_frame) = (memory[self.side], 0, None, MAX_FRAME);
        let opened = match plan.port {
            PortKind::Shm if self.side == 1 => {
                let (port, path) = ShmPort::create(&ShmConfig::new(own, memory[0]))?;
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
            options: Hello::options(self.sweep),
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
                // The route to the peer may have a smaller MTU than this host's own.
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
        // Path MTUs may have been found to differ by route: the smaller one applies at both ends.
        let mut mtu = met.mtu;
        for &turn in self.turns {
            let plan = &self.sweep.plan(turn);
            let size = plan.size;
            let (nic, mut end, info) = Endpoint::new(plan, self.side, turn.number, size)?;
            carrier.nic = nic;
            self.control.send(&Message::Ends(info, mtu.bytes() as u16))?;
            let Message::Ends(peer, bytes) = self.control.receive(self.interrupted)? else { return Err(unexpected()) };
            mtu = mtu.min(Mtu::from_bytes(bytes.into()).ok_or_else(unexpected)?);
            let mut connector = None;
            if plan.rdma_cm {
                end.meet(peer)?;
                connector = Some(self.connect(&mut carrier, &end, plan, mtu, met)?);
            } else {
                end.connect(&mut carrier.nic, plan, mtu, met.own, met.peer, peer)?;
            }
            self.results.begin(mtu);
            self.results.announce(turn);
            if plan.test.is_latency() {
                let end = LatencyEnd::new(plan, size, end, &mut carrier.nic)?;
                self.run(&mut carrier, plan, turn, end)?;
            } else {
                let end = Bandwidth::new(plan, size, end, &mut carrier.nic)?;
                self.run(&mut carrier, plan, turn, end)?;
            }
            if let Some(connector) = &mut connector {
                // The run is over, even if disconnecting fails.
                let _ = connector::part_one(&mut carrier, connector, self.clock);
            }
        }
        if !self.results.compares {
            self.results.network = carrier.impairments();
        }
        irnic_report::interrupt::sleep(self.sweep.linger, self.interrupted);
        Ok(())
    }

    /// Connects this end's queue pairs by rdma_cm, and waits until the other end has confirmed it.
    fn connect<P: Port>(
        &mut self,
        carrier: &mut NicPort<P>,
        end: &Endpoint,
        plan: &Plan,
        mtu: Mtu,
        met: &Met,
    ) -> Result<[Connector; 1], PerfError> {
        let mut connector = [Connector::new(plan, end, mtu, met.own, met.peer)?];
        let (mut sent_ready, mut peer_ready, mut next_poll) = (false, false, Time::ZERO);
        let (control, interrupted) = (&mut *self.control, self.interrupted);
        connector::drive(carrier, &mut connector, self.clock, |now, connector| {
            if !sent_ready && connector[0].is_established() {
                control.send(&Message::Ready)?;
                sent_ready = true;
            }
            if now >= next_poll {
                next_poll = now + POLL_INTERVAL;
                if interrupted.load(Ordering::Relaxed) {
                    return Err(PerfError::Interrupted);
                }
                match if peer_ready { None } else { control.poll()? } {
                    None => {}
                    Some(Message::Ready) => peer_ready = true,
                    Some(_) => return Err(unexpected()),
                }
            }
            Ok(sent_ready && peer_ready)
        })?;
        Ok(connector)
    }

    /// Performs one run. Partial results are kept if it was interrupted.
    fn run<P: Port, E: End>(
        &mut self,
        carrier: &mut NicPort<P>,
        plan: &Plan,
        turn: Turn,
        mut end: E,
    ) -> Result<(), PerfError> {
        self.control.send(&Message::Ready)?;
        let Message::Ready = self.control.receive(self.interrupted)? else { return Err(unexpected()) };
        // A passive end has nothing to count.
        let initiates = if plan.test.is_latency() { self.side == 0 } else { plan.roles(self.side).0 };
        let mut progress = if initiates { self.sweep.progress(turn) } else { Progress::quiet() };
        let then = Ticks::now();
        let outcome = match self.drive(carrier, &mut end, &mut progress) {
            // The port may have failed because the peer closed its own.
            Err(here @ PerfError::Failed(_)) => Err(self.control.reason(here)),
            outcome => outcome,
        };
        let measured = end.measured();
        let own = Line::of(&measured);
        let counters = counter_map(carrier.nic.counters());
        let ran = Ran {
            intervals: progress.intervals(),
            cpu: self.sweep.show.cpu.then(|| Ticks::now().busy_since(then)),
            network: carrier.impairments().filter(|_| self.results.compares),
            ..Ran::of(&measured, counters)
        };
        match outcome {
            Ok(peer) => {
                let (client, server) = if self.side == 0 { (own, peer.line) } else { (peer.line, own) };
                let seconds = ran.seconds.max(peer.seconds);
                let ran =
                    Ran { peer_counters: peer.counters, seconds, ..ran.with_both(client, server, plan.bidirectional) };
                self.results.add(turn, ran);
                Ok(())
            }
            Err(e @ (PerfError::Interrupted | PerfError::PeerInterrupted)) => {
                // In a comparison, a run that this end has not seen would count as one without progress.
                if !self.results.compares || ran.line.iterations() > 0 {
                    self.results.add(turn, ran);
                }
                Err(e)
            }
            Err(e) => Err(e),
        }
    }

    fn drive<P: Port, E: End>(
        &mut self,
        carrier: &mut NicPort<P>,
        end: &mut E,
        progress: &mut Progress,
    ) -> Result<Report, PerfError> {
        let mut idle = Idle::new(self.plan.events);
        let mut next_poll = Time::ZERO;
        let (mut sent_finished, mut sent_report) = (false, false);
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
            if !sent_finished && end.finished() {
                self.control.send(&Message::Finished(end.sent()))?;
                sent_finished = true;
            }
            if let Some(sent) = peer_sent
                && sent_finished
                && !sent_report
                && end.received(sent)
            {
                progress.end(now, || Seen::of(end, &carrier.nic));
                let measured = end.measured();
                let (line, seconds) = (Line::of(&measured), measured.elapsed as f64 / 1e9);
                let counters = counter_map(carrier.nic.counters());
                self.control.send(&Message::Report(Report { line, seconds, counters }))?;
                sent_report = true;
            }
            if now >= next_poll {
                next_poll = now + if sent_report { POLL_INTERVAL / 16 } else { POLL_INTERVAL };
                match self.control.poll().inspect_err(|_| progress.end(now, || Seen::of(end, &carrier.nic)))? {
                    None => {}
                    Some(Message::Finished(sent)) => peer_sent = Some(sent),
                    Some(Message::Report(said)) => report = Some(said),
                    Some(_) => return Err(unexpected()),
                }
                if self.interrupted.load(Ordering::Relaxed) {
                    progress.end(now, || Seen::of(end, &carrier.nic));
                    return Err(PerfError::Interrupted);
                }
            }
            if sent_report && let Some(report) = report.take() {
                return Ok(report);
            }
            if !sent_report {
                progress.update(now, || Seen::of(end, &carrier.nic));
            }
            match received.and_then(|n| Ok(n + carrier.transmit(now)?)) {
                Ok(packets) => moved += packets,
                // The peer is done and has closed its port: its last message is on its way over TCP.
                Err(_) if sent_report => match self.control.receive(self.interrupted)? {
                    Message::Report(report) => return Ok(report),
                    _ => return Err(unexpected()),
                },
                Err(e) => return Err(e.into()),
            }
            long = idle.after_round(moved, now, end.due(), carrier)?;
        }
    }
}
