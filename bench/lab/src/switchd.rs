//! The emulated switches: a network in virtual time between the processes of a lab, and the lab's clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::yield_now;
use std::time::{Duration, Instant};

use irnic_fabric::lab::{Lab, Sent, What};
use irnic_ports::host_now;
use irnic_ports::lab::{Arriving, LabServer, Leaving, Unasked};
use irnic_ports::slices::{Contention, Short};
use irnic_transports::time::US;

use crate::control::{Control, Emulation};
use crate::pace::{Clock, Pace};
use crate::pairs::Pairs;
use crate::process_stats::ProcessStats;
use crate::samples::Samples;
use crate::stats::{Board, Fault, Snapshot, Stats};
use crate::view::{Busy, Outcome};

/// Rounds between checks for processes that join or leave.
const ATTEND: u32 = 1_000;
/// Interval of these checks while nothing moves.
const ATTENTION: Duration = Duration::from_millis(20);
/// Idle rounds before the thread sleeps.
const PATIENT: u32 = 100;
/// Time ahead for which it spins instead of sleeping, ns of the host's time.
const SOON: u64 = 60 * US;
/// Maximum number of faults in a snapshot.
const FAULTS: usize = 32;
/// Maximum sleep.
pub(super) const SLEEP: Duration = Duration::from_millis(100);

/// The network, the processes' ports, and the time.
pub struct Switchd {
    pub(super) server: LabServer,
    pub(super) lab: Lab,
    waits: bool,
    /// Time to wait for an application that makes no calls, if time waits for applications.
    pub(super) patience: Option<Duration>,
    contention: Contention,
    pairs: Pairs,
    /// Pending changes of when a host's link becomes free, ns.
    busy_links: Vec<(u32, u64)>,
    began: u64,
    busy: Busy,
    /// Frames have moved since both clocks were last read, at these times, ns.
    moved: bool,
    clocks: (u64, u64),
    unclaimed: u64,
    control: Option<Control>,
    samples: Option<Samples>,
    board: Arc<Board>,
    /// Constant part of the snapshots, and the start of the lab.
    stats: Stats,
    since: Instant,
}

impl Switchd {
    /// Puts a network between the processes of a server. Snapshots on [`Switchd::board`] are based on `stats`.
    pub fn new(server: LabServer, lab: Lab, pace: Pace, stats: Stats) -> Switchd {
        let began = server.now();
        Switchd {
            pairs: Pairs::new(lab.hosts()),
            server,
            lab,
            waits: pace.clock == Clock::Elastic,
            patience: None,
            contention: Contention::default(),
            busy_links: Vec::new(),
            began,
            busy: Busy::default(),
            moved: false,
            clocks: (began, host_now().0),
            unclaimed: 0,
            control: None,
            samples: None,
            board: Arc::default(),
            stats,
            since: Instant::now(),
        }
    }

    /// Has time wait for applications, with this limit for those that make no calls. This also applies to the server.
    pub fn patient(self, patience: Option<Duration>) -> Switchd {
        Switchd { patience, ..self }
    }

    /// Returns the board for snapshots of the running lab.
    pub fn board(&self) -> Arc<Board> {
        self.board.clone()
    }

    /// Samples the network every `every` ns of the lab's time.
    pub fn sample(mut self, every: u64) -> Switchd {
        self.lab.count_goodput();
        self.samples = Some(Samples::new(self.began, every, self.lab.network().ports().len()));
        self
    }

    /// Carries out commands of a control socket while the lab runs.
    pub fn controlled(self, control: Control) -> Switchd {
        Switchd { control: Some(control), ..self }
    }

    /// Runs until `stop` is set.
    pub fn run(mut self, stop: &AtomicBool) -> Outcome {
        if self.waits {
            self.server.set_limit(self.server.now());
        }
        let (mut attended, mut idle, mut seen) = (0, 0, Instant::now());
        while !stop.load(Ordering::Relaxed) {
            attended += 1;
            // On a busy machine, rounds that yield take long.
            if attended >= ATTEND || idle > 0 && seen.elapsed() >= ATTENTION {
                (attended, seen) = (0, Instant::now());
                self.server.attend();
                self.tell_rates();
                self.read_clocks();
            }
            if self.control.as_ref().is_some_and(Control::has_news) {
                self.heed();
            }
            if self.board.is_requested() {
                self.answer();
            }
            if let Some(patience) = self.patience {
                idle = if self.jump(patience) { 0 } else { idle + 1 };
                if idle >= PATIENT || idle > 0 && self.contention.is_high(host_now()) {
                    self.sleep_between_jumps(patience);
                    idle = 0;
                } else if idle > 0 {
                    self.give_way();
                }
                continue;
            }
            let (moved, next) = self.round();
            idle = if moved { 0 } else { idle + 1 };
            if idle == 0 {
                continue;
            }
            let now = host_now();
            let soon = next > self.server.now() && self.server.line().host_time(next).since(now) < SOON;
            let crowded = self.contention.is_high(now);
            if crowded || idle >= PATIENT && !soon {
                // Threads that compute give way to it when it wakes.
                let short = crowded.then(Short::begin);
                self.sleep(next);
                drop(short);
                idle = 0;
            } else {
                self.give_way();
            }
        }
        self.read_clocks();
        let lasted = self.server.now() - self.began;
        self.collect();
        let (lateness, guests, ip) = (self.server.lateness(), self.server.guests().collect(), self.server.ip());
        let unasked = self.unasked();
        self.server.close();
        let processes = ProcessStats::all(&self.server);
        let Switchd { lab, pairs, busy, unclaimed, control, mut samples, .. } = self;
        if let Some(samples) = &mut samples {
            samples.finish(&lab);
        }
        let faults = control.map_or_else(Vec::new, |control| control.faults().to_vec());
        Outcome { lab, pairs, lasted, busy, lateness, unclaimed, unasked, guests, ip, samples, processes, faults }
    }

    /// Yields the core, and notes whether other threads compute.
    fn give_way(&mut self) {
        let before = host_now();
        yield_now();
        self.contention.yielded(before, host_now());
    }

    /// Publishes a snapshot of the lab.
    #[cold]
    fn answer(&self) {
        let mut stats = self.stats.snapshot(&self.server, &self.lab);
        stats.host_ns = u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        stats.lab_ns = self.server.now() - self.began;
        stats.unclaimed_frames = self.unclaimed;
        let faults = self.control.as_ref().map_or(&[][..], Control::faults);
        let shown = faults
            .iter()
            .rev()
            .take(FAULTS)
            .map(|(at, what)| Fault { lab_ns: at.saturating_sub(self.began), what: what.clone() });
        stats.faults = shown.collect();
        stats.unasked_jumps = self.unasked().map(|unasked| unasked.jumps);
        let shown = self.server.members().map(|(_, member)| member.shown().cloned()).collect();
        self.board.answer(Snapshot { stats, shown, departed: self.server.departed().cloned().collect() });
    }

    /// Carries out commands of the control socket.
    #[cold]
    fn heed(&mut self) {
        let unasked = self.unasked();
        let Switchd { server, lab, pairs, began, busy, unclaimed, control: Some(control), .. } = self else { return };
        let (began, busy, unclaimed) = (*began, *busy, *unclaimed);
        control.attend(&mut Emulation { server, lab, pairs, began, busy, unclaimed, unasked });
    }

    fn unasked(&self) -> Option<Unasked> {
        self.patience.map(|_| self.server.unasked())
    }

    /// Informs processes of the rates of their links, which may change.
    fn tell_rates(&mut self) {
        for host in 0..self.lab.hosts() {
            let rate = self.lab.network().port_of(host).rate;
            self.server.set_rate(host, rate);
        }
    }

    /// Adds the time since the last call to that during which frames were under way, if any was.
    fn read_clocks(&mut self) {
        let (lab, host) = (self.server.now(), host_now().0);
        if std::mem::take(&mut self.moved) || !self.lab.is_idle() {
            self.busy.lab += lab.saturating_sub(self.clocks.0);
            self.busy.host += host.saturating_sub(self.clocks.1);
        }
        self.clocks = (lab, host);
    }

    /// Collects what processes have sent, and advances as far as possible. Returns whether anything moved, and the time
    /// of the next event, ns.
    fn round(&mut self) -> (bool, u64) {
        let now = self.server.now();
        let (sent, need) = self.collect();
        // All frames sent before this time have been collected.
        let known = now.min(need);
        let until = if self.waits {
            // Arrivals may be answered at once, and those answers have not been collected.
            let first = self.lab.next_event().clamp(self.lab.now(), known.max(self.lab.now()));
            known.min(first) + self.lab.lookahead()
        } else {
            now
        };
        let arrived = self.advance(until);
        if self.waits && until > self.server.limit() {
            let limit = self.server.limit();
            if self.server.unlimited() > limit {
                // Time has stood still meanwhile.
                self.server.restart_at(limit);
            }
            self.server.set_limit(until);
        }
        let needed = self.server.wake(self.server.now());
        (sent || arrived, needed.min(self.lab.next_event()))
    }

    /// Puts what processes have sent on their hosts' links. Returns whether there was anything, and the earliest time
    /// at which a process may send something else, ns.
    pub(super) fn collect(&mut self) -> (bool, u64) {
        let Switchd { server, lab, pairs, busy_links, .. } = self;
        let (mut sent, hosts) = (false, lab.hosts());
        let need = server.collect(|leaving| {
            sent = true;
            let Leaving { host, dst, start, udp_src, traffic_class, frame, telemetry, .. } = leaving;
            let mut to = |dst| {
                pairs.sent(host, dst, start);
                let left = lab.send(host, &Sent { start, dst, udp_src, traffic_class, frame, telemetry });
                busy_links.push((host, left));
            };
            match dst {
                Some(dst) => to(dst),
                None => (0..hosts).filter(|dst| *dst != host).for_each(to),
            }
        });
        busy_links.drain(..).for_each(|(host, free)| server.set_free(host, free));
        self.moved |= sent;
        (sent, need)
    }

    /// Advances the network to a time, with samples on the way. Returns whether anything reached a process.
    pub(super) fn advance(&mut self, until: u64) -> bool {
        let mut arrived = false;
        while let Some(due) = self.samples.as_ref().map(Samples::due).filter(|due| *due <= until) {
            arrived |= self.advance_to(due);
            if let Some(samples) = &mut self.samples {
                samples.sample(&self.lab);
            }
        }
        arrived | self.advance_to(until)
    }

    /// Advances the network to a time, and delivers to processes what reaches them. Returns whether anything did.
    fn advance_to(&mut self, until: u64) -> bool {
        let Switchd { server, lab, pairs, unclaimed, .. } = self;
        let mut arrived = false;
        lab.run_until(until.max(lab.now()), |arrival| {
            arrived = true;
            match arrival.what {
                What::Pause(paused) => server.pause(arrival.host, arrival.at, paused.bits()),
                What::Link { up } => server.set_link(arrival.host, arrival.at, up),
                What::Frame { src, udp_src, traffic_class, frame, telemetry, corrupted } => {
                    pairs.arrived(src, arrival.host, arrival.at, frame.len());
                    let arriving = Arriving { src, udp_src, traffic_class, frame, telemetry, corrupted };
                    if !server.deliver(arrival.host, arrival.at, &arriving) {
                        *unclaimed += 1;
                    }
                }
            }
        });
        if arrived {
            server.publish();
        }
        self.moved |= arrived;
        arrived
    }

    /// Sleeps until a process has news, or until `next`, ns. The lab's time advances until then, without the time until
    /// the process's news was noticed.
    fn sleep(&mut self, next: u64) {
        self.read_clocks();
        let before = self.server.now();
        let waiting = next <= before;
        let due = self.server.line().host_time(next).0.saturating_sub(host_now().0);
        let timeout = if waiting { SLEEP } else { SLEEP.min(Duration::from_nanos(due)) };
        let (pulls, reached) = (self.waits && !waiting, self.lab.now());
        self.server.sleep(
            timeout,
            |server| {
                let needed = server.wake(before);
                if server.has_frames() || if waiting { needed > before } else { needed < next } {
                    return true;
                }
                // Nothing happens earlier unless a process begins a turn, which stops time.
                if pulls {
                    server.set_limit(next);
                }
                false
            },
            |server, now| {
                if pulls {
                    let now = now.max(before);
                    server.restart_at(now);
                    server.set_limit(now.max(reached));
                }
            },
        );
        self.server.attend();
        self.read_clocks();
    }
}
