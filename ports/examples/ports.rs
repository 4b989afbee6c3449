//! The ports beside the raw paths of this machine, in one run: `cargo run --release -p irnic-ports --example ports`.
//!
//! One thread sends frames (flushing when the port is full), another receives them, each on a core of its own; every
//! frame is copied from a 64 KiB buffer and into one. No queue pair takes part. Arguments choose lines that contain one
//! of them.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use irnic_ports::host::{HostConfig, HostPort, HostUdp, Slot};
use irnic_ports::mem::{self, MemPort};
use irnic_ports::raw::{self, MESSAGE, Rate, RoundTrip};
use irnic_ports::shm::{ShmConfig, ShmPort};
use irnic_ports::udp::{Segmentation, UdpConfig, UdpPort};
use irnic_ports::{MAX_FRAME, Port, TxFrame};
use irnic_transports::{Path, Time};

const TIME: Duration = Duration::from_millis(100);
const RUNS: usize = 9;
const ROUNDS: usize = 20_000;
/// Header bytes of a frame in the ports' measurements: payload counts, as in the raw ones.
const HEADERS: usize = 32;

fn addresses() -> (IpAddr, IpAddr) {
    (IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2]))
}

fn path() -> Path {
    let (src, dst) = addresses();
    Path { src, dst, udp_src: 0xc000, traffic_class: 2, hop_limit: 64 }
}

/// Goes to a queue pair of the second slot from the first address, and of the first slot from the second.
fn frame(path: &Path, len: usize) -> TxFrame<'_> {
    let dest_qp = if path.src == addresses().0 { 2 * Slot::QPS } else { Slot::QPS };
    TxFrame { path, dest_qp, len, icrc: true, irn: false }
}

fn bandwidth<P: Port + Send>((mut a, mut b): (P, P), payload: usize) -> io::Result<Rate> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stop = &stop;
        let sender = scope.spawn(move || -> io::Result<()> {
            raw::pin(0)?;
            let buffer = vec![3u8; MESSAGE];
            let path = path();
            while !stop.load(Ordering::Relaxed) {
                for chunk in buffer.chunks(payload) {
                    let mut fill = |bytes: &mut [u8]| {
                        bytes[..HEADERS].fill(7);
                        bytes[HEADERS..].copy_from_slice(chunk);
                    };
                    while !a.transmit(Time::ZERO, &frame(&path, HEADERS + chunk.len()), &mut fill) {
                        a.flush(Time::ZERO)?;
                        if stop.load(Ordering::Relaxed) {
                            return Ok(());
                        }
                    }
                }
            }
            Ok(())
        });
        let receiver = scope.spawn(move || -> io::Result<Rate> {
            raw::pin(1)?;
            let mut buffer = vec![0u8; MESSAGE + MAX_FRAME];
            let (mut frames, mut at) = (0, 0);
            let start = Instant::now();
            while start.elapsed() < TIME {
                frames += b.receive(Time::ZERO, 64, &mut |frame| {
                    let payload = &frame.bytes[HEADERS..];
                    buffer[at..at + payload.len()].copy_from_slice(payload);
                    at = (at + payload.len()) % MESSAGE;
                })?;
            }
            stop.store(true, Ordering::Relaxed);
            Ok(Rate::new(frames as u64, payload, start.elapsed()))
        });
        let rate = receiver.join().expect("receiver");
        stop.store(true, Ordering::Relaxed);
        sender.join().expect("sender")?;
        rate
    })
}

fn round_trip<P: Port + Send>((mut a, mut b): (P, P)) -> io::Result<RoundTrip> {
    fn send<P: Port>(port: &mut P, path: &Path) -> io::Result<()> {
        while !port.transmit(Time::ZERO, &frame(path, 2), &mut |bytes| bytes.fill(5)) {
            port.flush(Time::ZERO)?;
        }
        port.flush(Time::ZERO)
    }
    fn receive<P: Port>(port: &mut P) -> io::Result<()> {
        while port.receive(Time::ZERO, 16, &mut |frame| assert_eq!(frame.bytes, [5, 5]))? == 0 {
            std::hint::spin_loop();
        }
        Ok(())
    }
    std::thread::scope(|scope| {
        let far = scope.spawn(move || -> io::Result<P> {
            raw::pin(1)?;
            let path = Path { src: path().dst, dst: path().src, ..path() };
            for _ in 0..ROUNDS {
                receive(&mut b)?;
                send(&mut b, &path)?;
            }
            Ok(b)
        });
        let near = scope.spawn(move || -> io::Result<RoundTrip> {
            raw::pin(0)?;
            let mut ends = Vec::with_capacity(ROUNDS);
            for _ in 0..ROUNDS {
                send(&mut a, &path())?;
                receive(&mut a)?;
                ends.push(Instant::now());
            }
            Ok(RoundTrip::from_instants(&ends))
        });
        let _open = far.join().expect("echo")?;
        near.join().expect("pinger")
    })
}

fn udp(segmentation: Segmentation) -> io::Result<(UdpPort, UdpPort)> {
    udp_of(|ip| UdpConfig::new(ip).with_segmentation(segmentation))
}

fn udp_of(config: impl Fn(IpAddr) -> UdpConfig) -> io::Result<(UdpPort, UdpPort)> {
    let (a, b) = addresses();
    let open = |ip| UdpPort::open(&config(ip).with_local(SocketAddr::new(ip, 0)));
    let (mut a, mut b) = (open(a)?, open(b)?);
    a.set_remote_port(b.local_addr().port());
    b.set_remote_port(a.local_addr().port());
    Ok((a, b))
}

fn shm(ring_bytes: usize, private_copy: bool) -> io::Result<(ShmPort, ShmPort)> {
    let (local, remote) = addresses();
    let (mut a, mut b) = ShmPort::pair(&ShmConfig::new(local, remote).with_ring_bytes(ring_bytes))?;
    a.set_private_copy(private_copy);
    b.set_private_copy(private_copy);
    Ok((a, b))
}

fn host(ring_bytes: usize) -> io::Result<(HostPort, HostPort)> {
    let (a, b) = addresses();
    let domain = format!("ports-{}", std::process::id());
    let open = |slot| {
        let config = HostConfig::new(&*domain, vec![a, b]);
        HostPort::open(&config.with_slot(Slot::new(slot)).with_ring_bytes(ring_bytes).with_udp(HostUdp::Off))
    };
    Ok((open(1)?, open(2)?))
}

fn memory(ring_bytes: usize) -> io::Result<(MemPort, MemPort)> {
    Ok(mem::pair_with(ring_bytes))
}

enum Outcome {
    Rate(Rate),
    Trip(RoundTrip),
}

/// One line of the table.
struct Row {
    name: String,
    frame: usize,
    measure: Box<dyn Fn() -> io::Result<Outcome>>,
}

fn rate(name: impl Into<String>, frame: usize, measure: impl Fn() -> io::Result<Rate> + 'static) -> Row {
    Row { name: name.into(), frame, measure: Box::new(move || measure().map(Outcome::Rate)) }
}

fn trip(name: &str, measure: impl Fn() -> io::Result<RoundTrip> + 'static) -> Row {
    Row { name: name.into(), frame: 2, measure: Box::new(move || measure().map(Outcome::Trip)) }
}

fn rows() -> Vec<Row> {
    let mut rows = vec![rate("raw copy", MESSAGE, || Ok(raw::copy_bandwidth(MESSAGE, TIME)))];
    for frame in [4096, 1024, 64] {
        for ring in [256 << 10, 512 << 10, 1 << 20, 4 << 20] {
            let size = ring >> 10;
            rows.push(rate(format!("raw ring {size} KiB"), frame, move || raw::ring_bandwidth(frame, ring, TIME)));
            rows.push(rate(format!("shm {size} KiB"), frame, move || bandwidth(shm(ring, true)?, frame)));
            rows.push(rate(format!("shm {size} KiB, no private copy"), frame, move || {
                bandwidth(shm(ring, false)?, frame)
            }));
            rows.push(rate(format!("host {size} KiB"), frame, move || bandwidth(host(ring)?, frame)));
            rows.push(rate(format!("mem {size} KiB"), frame, move || bandwidth(memory(ring)?, frame)));
        }
        rows.push(rate("raw udp", frame, move || raw::udp_bandwidth(frame, TIME)));
        rows.push(rate("udp", frame, move || bandwidth(udp(Segmentation::On)?, frame)));
        rows.push(rate("udp without segmentation", frame, move || bandwidth(udp(Segmentation::Off)?, frame)));
    }
    rows.push(trip("raw ring", || raw::ring_rtt(ROUNDS)));
    rows.push(trip("shm", || round_trip(shm(512 << 10, true)?)));
    rows.push(trip("host", || round_trip(host(512 << 10)?)));
    rows.push(trip("mem", || round_trip(memory(512 << 10)?)));
    rows.push(trip("raw udp", || raw::udp_rtt(ROUNDS)));
    rows.push(trip("udp", || round_trip(udp(Segmentation::On)?)));
    let stamped = |ip| UdpConfig::new(ip).with_segmentation(Segmentation::On).with_kernel_stamps(true);
    rows.push(trip("udp with kernel stamps", move || round_trip(udp_of(stamped)?)));
    rows
}

/// Every path takes its turn in each of several rounds, so that a slow stretch of the machine falls on all of them
/// alike.
fn main() -> io::Result<()> {
    let filters: Vec<String> = std::env::args().skip(1).collect();
    let chosen =
        |row: &Row| filters.is_empty() || filters.iter().any(|f| format!("{} {}", row.name, row.frame).contains(f));
    let rows: Vec<Row> = rows().into_iter().filter(chosen).collect();
    let mut outcomes: Vec<Vec<Outcome>> = rows.iter().map(|_| Vec::new()).collect();
    for _ in 0..RUNS {
        for (row, outcomes) in rows.iter().zip(&mut outcomes) {
            outcomes.push((row.measure)()?);
        }
    }
    println!("{:<30} {:>7}   median and best of {RUNS}", "path", "bytes");
    for (row, outcomes) in rows.iter().zip(&mut outcomes) {
        outcomes.sort_by(|a, b| match (a, b) {
            (Outcome::Rate(a), Outcome::Rate(b)) => b.bytes_per_second.total_cmp(&a.bytes_per_second),
            (Outcome::Trip(a), Outcome::Trip(b)) => a.median.cmp(&b.median),
            _ => std::cmp::Ordering::Equal,
        });
        print!("{:<30} {:>7}  ", row.name, row.frame);
        match (&outcomes[RUNS / 2], &outcomes[0]) {
            (Outcome::Rate(median), Outcome::Rate(best)) => println!(
                "{:>7.2} {:>7.2} GB/s {:>7.2} Mpps",
                median.gigabytes(),
                best.gigabytes(),
                median.frames_per_second / 1e6
            ),
            (Outcome::Trip(median), Outcome::Trip(best)) => {
                println!("{:>7} {:>7} ns   99 % {:>6} ns", median.median, best.median, median.p99);
            }
            _ => {}
        }
    }
    Ok(())
}
