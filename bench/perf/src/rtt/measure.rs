//! Measurement of round trips by three clocks at once.
//!
//! Two NICs on two ports, run by their own thread as hardware would be: it is awake before a segment is posted and
//! until its completion, which it passes to the application, which sleeps. Between segments it sleeps as well.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use irnic_nic::calibration::Calibration;
use irnic_nic::clock::Clock;
use irnic_nic::frame::Icrc;
use irnic_ports::NicPort;
use irnic_ports::shm::{ShmConfig, ShmPort};
use irnic_ports::udp::{Segmentation, UdpConfig, UdpPort};
use irnic_ports::{Port, RxFrame, TxFrame};
use irnic_transports::qp::{SendData, SendOp, SendWr, Sge, Wc};
use irnic_transports::wire::Mtu;
use irnic_transports::{Path, Time};

use super::RttPlan;
use super::tcp::Tcp;
use crate::PerfArgs;
use crate::endpoint::{BATCH, Endpoint};
use crate::error::PerfError;
use crate::local::ADDRESSES;

/// Pause between two segments: the network drains, and a thread with real-time priority stays within its share of a
/// processor.
pub const PAUSE: Duration = Duration::from_millis(1);
/// Timeout of a completion.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Number of initial segments that are not counted: caches are cold, and the clock regression has few points.
pub const WARM_UP: u64 = 16;

/// Round trips under one load, ns.
pub struct Case {
    /// Number of computing threads.
    pub load: usize,
    pub nic: Histogram<u64>,
    pub calibrated: Histogram<u64>,
    pub software: Histogram<u64>,
    /// Measured drift of the NIC's clock, parts per million; positive if fast.
    pub drift_ppm: f64,
    /// Whether the NICs' thread had real-time priority.
    pub real_time: bool,
    /// The kernel's TCP under the same load, if requested.
    pub tcp: Option<Tcp>,
}

impl Case {
    /// Names of the clocks, with the round trips by each.
    pub fn clocks(&self) -> Vec<(&'static str, &Histogram<u64>)> {
        let nic = [("NIC", &self.nic), ("calibrated", &self.calibrated), ("software", &self.software)];
        let tcp = self.tcp.iter().flat_map(|tcp| [("TCP stack", &tcp.kernel), ("TCP ping", &tcp.application)]);
        nic.into_iter().chain(tcp).collect()
    }
}

/// A port that records when it handed batches to the carrier: the transmit timestamps of their packets.
struct Stamped<P> {
    port: P,
    start: Instant,
    queued: bool,
    /// Timestamps since the last segment was posted.
    stamps: Vec<Time>,
}

impl<P: Port> Port for Stamped<P> {
    fn max_frame(&self) -> usize {
        self.port.max_frame()
    }

    fn wire_path(&self, path: &Path) -> Path {
        self.port.wire_path(path)
    }

    fn needs_icrc(&self, path: &Path, dest_qp: u32) -> bool {
        self.port.needs_icrc(path, dest_qp)
    }

    fn transmit(&mut self, now: Time, frame: &TxFrame<'_>, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        let taken = self.port.transmit(now, frame, fill);
        self.queued |= taken;
        taken
    }

    fn flush(&mut self, now: Time) -> io::Result<()> {
        if std::mem::take(&mut self.queued) {
            self.stamps.push(since(self.start));
        }
        self.port.flush(now)
    }

    fn receive(&mut self, now: Time, budget: usize, each: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        self.port.receive(now, budget, each)
    }

    fn next_deadline(&self) -> Time {
        self.port.next_deadline()
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.port.wait(timeout)
    }
}

type BoxedPort = Box<dyn Port + Send>;

fn since(start: Instant) -> Time {
    Time(start.elapsed().as_nanos() as u64)
}

/// The two NICs; the client's has the clock.
struct Hardware {
    client: NicPort<Stamped<BoxedPort>>,
    server: NicPort<BoxedPort>,
    end: Endpoint,
    /// Polling interval of the client for packets while a segment is in flight, ns, and the time of the next poll.
    poll_interval: u64,
    next_poll: Time,
    wcs: [Wc; BATCH],
}

impl Hardware {
    fn open(plan: &RttPlan, start: Instant) -> Result<Hardware, PerfError> {
        let size = plan.size.to_string();
        let perf = PerfArgs::plan_of(&["write-bw", "-s", &size, "-t", "4", "-n", "5", "--no-verify"])?;
        let [a, b] = if plan.udp { udp(plan.kernel_stamps)? } else { shm()? };
        let (mut nic_a, mut client, info_a) = Endpoint::new(&perf, 0, 0, plan.size)?;
        let (mut nic_b, mut server, info_b) = Endpoint::new(&perf, 1, 0, plan.size)?;
        nic_a.set_clock(plan.clock);
        let [own, other] = ADDRESSES;
        client.connect(&mut nic_a, &perf, Mtu::B4096, own, other, info_b)?;
        server.connect(&mut nic_b, &perf, Mtu::B4096, other, own, info_a)?;
        let port = Stamped { port: a, start, queued: false, stamps: Vec::new() };
        let icrc = if plan.udp { Icrc::Checked } else { Icrc::Off };
        Ok(Hardware {
            client: NicPort::new(nic_a, port, icrc),
            server: NicPort::new(nic_b, b, icrc),
            end: client,
            poll_interval: plan.poll_interval,
            next_poll: Time::ZERO,
            wcs: [Wc::EMPTY; BATCH],
        })
    }

    /// Posts a segment.
    fn post(&mut self, size: u32, now: Time) -> Result<(), PerfError> {
        self.next_poll = now + self.poll_interval;
        let Hardware { client, end, .. } = self;
        let sges = [Sge { addr: end.local(0).addr, len: size, lkey: end.local(0).lkey }];
        let wr = SendWr {
            wr_id: 0,
            op: SendOp::Write,
            data: SendData::Sges(&sges),
            remote_addr: end.target(0).0,
            rkey: end.target(0).1,
            signaled: true,
            solicited: false,
            fence: false,
            to: None,
            remote_srqn: 0,
        };
        if !end.post_send(&mut client.nic, 0, &wr)? {
            return Err(PerfError::failed("the send queue is full"));
        }
        client.port.stamps.clear();
        client.transmit(now)?;
        Ok(())
    }

    /// Runs one round of both NICs. Returns the round trip of a completed segment by the client's clock: the times at
    /// which its last packet left and the acknowledgement arrived, in ticks. Retransmissions by a client that polls
    /// late do not count.
    fn round(&mut self, start: Instant) -> Result<Option<[u64; 2]>, PerfError> {
        self.server.receive(since(start))?;
        self.server.transmit(since(start))?;
        let now = since(start);
        if now >= self.next_poll {
            self.next_poll = now + self.poll_interval;
            self.client.receive(now)?;
        }
        self.client.transmit(now)?;
        if self.end.poll(&mut self.client.nic, self.end.send_cq, &mut self.wcs)? == 0 {
            return Ok(None);
        }
        let (clock, arrived) = (self.client.nic.clock(), self.wcs[0].timestamp);
        let sent = self.client.port.stamps.iter().map(|stamp| clock.ticks(*stamp)).rfind(|sent| *sent <= arrived);
        Ok(Some([sent.unwrap_or(arrived), arrived]))
    }
}

fn udp(kernel_stamps: bool) -> Result<[BoxedPort; 2], PerfError> {
    let open = |ip: IpAddr| {
        let config = UdpConfig::new(ip).with_local(SocketAddr::new(ip, 0)).with_segmentation(Segmentation::On);
        UdpPort::open(&config.with_kernel_stamps(kernel_stamps))
    };
    let [mut a, mut b] = [open(ADDRESSES[0])?, open(ADDRESSES[1])?];
    a.set_remote_port(b.local_addr().port());
    b.set_remote_port(a.local_addr().port());
    Ok([Box::new(a), Box::new(b)])
}

fn shm() -> Result<[BoxedPort; 2], PerfError> {
    let (a, b) = ShmPort::pair(&ShmConfig::new(ADDRESSES[0], ADDRESSES[1]))?;
    Ok([Box::new(a), Box::new(b)])
}

/// State shared by application and hardware.
struct Shared {
    start: Instant,
    hardware: Mutex<Hardware>,
    /// One of the states below.
    state: AtomicU8,
    stop: AtomicBool,
}

/// State of the hardware's thread: asleep; to be woken; awake; with a segment in flight.
const ASLEEP: u8 = 0;
const WANTED: u8 = 1;
const AWAKE: u8 = 2;
const BUSY: u8 = 3;

impl Shared {
    fn hardware(&self) -> MutexGuard<'_, Hardware> {
        self.hardware.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The hardware's thread.
    fn run(&self, done: &Sender<Result<[u64; 2], PerfError>>) {
        while !self.over() {
            match self.state.load(Ordering::Acquire) {
                ASLEEP => thread::park(),
                WANTED => self.state.store(AWAKE, Ordering::Release),
                // The application may be about to post: it must not find the lock taken.
                AWAKE => std::hint::spin_loop(),
                _ => {
                    // The application holds it while posting.
                    let Ok(mut hardware) = self.hardware.try_lock() else {
                        std::hint::spin_loop();
                        continue;
                    };
                    let completed = match hardware.round(self.start) {
                        Ok(None) => continue,
                        Ok(Some(ticks)) => Ok(ticks),
                        Err(e) => Err(e),
                    };
                    self.state.store(ASLEEP, Ordering::Release);
                    if done.send(completed).is_err() {
                        return;
                    }
                }
            }
        }
    }
}

/// Gives the calling thread the lowest real-time priority. Returns whether that was permitted.
fn real_time() -> bool {
    // SAFETY: all zero is a valid value of this plain structure; the call reads it.
    unsafe {
        let mut parameters: libc::sched_param = std::mem::zeroed();
        parameters.sched_priority = 1;
        libc::sched_setscheduler(0, libc::SCHED_RR, &parameters) == 0
    }
}

/// Starts threads that compute until `stop`.
pub fn computing<'scope>(scope: &'scope thread::Scope<'scope, '_>, load: usize, stop: &'scope AtomicBool) {
    for _ in 0..load {
        scope.spawn(|| {
            let mut x = 1u64;
            while !stop.load(Ordering::Relaxed) {
                x = std::hint::black_box(x.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(7));
            }
        });
    }
}

/// Measures while `load` threads compute.
pub fn run(plan: &RttPlan, load: usize, interrupted: &AtomicBool) -> Result<Case, PerfError> {
    let start = Instant::now();
    let shared = Shared {
        start,
        hardware: Mutex::new(Hardware::open(plan, start)?),
        state: AtomicU8::new(ASLEEP),
        stop: AtomicBool::new(false),
    };
    let (done, completions) = channel();
    let (report, reported) = channel();
    thread::scope(|scope| {
        let hardware = scope.spawn(|| {
            let _ = report.send(real_time());
            shared.run(&done);
        });
        computing(scope, load, &shared.stop);
        let real_time = reported.recv().unwrap_or(false);
        let result = application(plan, &shared, hardware.thread(), &completions, interrupted);
        shared.stop.store(true, Ordering::Relaxed);
        hardware.thread().unpark();
        result.map(|case| Case { load, real_time, ..case })
    })
}

/// The application: posts, sleeps, wakes up, reads the clock.
fn application(
    plan: &RttPlan,
    shared: &Shared,
    hardware: &Thread,
    completions: &Receiver<Result<[u64; 2], PerfError>>,
    interrupted: &AtomicBool,
) -> Result<Case, PerfError> {
    let histogram = || Histogram::new(3).map_err(PerfError::failed);
    let mut case = Case {
        load: 0,
        nic: histogram()?,
        calibrated: histogram()?,
        software: histogram()?,
        drift_ppm: 0.0,
        real_time: false,
        tcp: None,
    };
    let clock = plan.clock;
    let mut calibration = Calibration::new(clock.nominal_hz());
    let now = || since(shared.start).0;
    for round in 0..plan.iters + WARM_UP {
        thread::sleep(PAUSE);
        if interrupted.load(Ordering::Relaxed) {
            return Err(PerfError::Interrupted);
        }
        compare(&mut calibration, &clock, now);
        // Hardware does not sleep: wake it before it is needed.
        shared.state.store(WANTED, Ordering::Release);
        hardware.unpark();
        while shared.state.load(Ordering::Acquire) != AWAKE {
            thread::yield_now();
        }
        let mut posting = shared.hardware();
        shared.state.store(BUSY, Ordering::Release);
        let before = now();
        posting.post(plan.size, Time(before))?;
        drop(posting);
        let [sent, arrived] = match completions.recv_timeout(PATIENCE) {
            Ok(completed) => completed?,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                return Err(PerfError::failed("a completion did not come; this is a bug"));
            }
        };
        let after = now();
        if round < WARM_UP {
            continue;
        }
        record(&mut case.nic, clock.to_nominal_ns(arrived.wrapping_sub(sent)))?;
        let mapped = calibration.host_ns(arrived).unwrap_or(before);
        record(&mut case.calibrated, mapped.saturating_sub(before))?;
        record(&mut case.software, after.saturating_sub(before))?;
    }
    case.drift_ppm = calibration.drift_ppm();
    Ok(case)
}

/// Reads the NIC's clock between two readings of the host's.
fn compare(calibration: &mut Calibration, clock: &Clock, now: impl Fn() -> u64) {
    let before = now();
    let ticks = clock.ticks(Time(now()));
    calibration.observe(before, ticks, now());
}

pub fn record(histogram: &mut Histogram<u64>, ns: u64) -> Result<(), PerfError> {
    histogram.record(ns.max(1)).map_err(PerfError::failed)
}
