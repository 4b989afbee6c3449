use std::process::{Command, Stdio};
use std::time::Duration;

use super::super::conformance::{self, Pair, V4_A, V4_B, check_frame, collect, frame, write_frame};
use super::super::host_now;
use super::super::link::LinkError;
use super::*;

fn config() -> ShmConfig {
    ShmConfig { ring_bytes: 128 << 10, ..ShmConfig::new(V4_A.parse().unwrap(), V4_B.parse().unwrap()) }
}

fn error<T: std::error::Error + Clone + 'static>(e: &io::Error) -> T {
    e.get_ref().and_then(|e| e.downcast_ref::<T>()).unwrap_or_else(|| panic!("not the expected type: {e}")).clone()
}

fn open_error(path: &FilePath) -> ShmError {
    error(&ShmPort::open(path).err().expect("open must fail"))
}

#[test]
fn passes_the_conformance_suite() {
    conformance::suite(|| pair(true));
}

#[test]
fn passes_the_conformance_suite_without_private_copies() {
    conformance::suite(|| pair(false));
}

#[test]
fn frames_bear_the_time_of_their_sending() {
    conformance::frames_bear_the_time_of_their_sending(pair(true));
}

fn pair(private_copy: bool) -> Pair {
    let (a, mut b) = ShmPort::pair(&config()).unwrap();
    b.set_private_copy(private_copy);
    let (a_ip, b_ip) = (a.local_addr(), b.local_addr());
    Pair::new(a, a_ip, b, b_ip)
}

#[test]
fn addresses_come_from_the_creator() {
    for (local, remote) in [("10.0.0.1", "10.0.0.2"), ("2001:db8::1", "2001:db8::2")] {
        let config = ShmConfig { local: local.parse().unwrap(), remote: remote.parse().unwrap(), ..config() };
        let (a, b) = ShmPort::pair(&config).unwrap();
        assert_eq!((a.local_addr(), a.remote_addr()), (config.local, config.remote));
        assert_eq!((b.local_addr(), b.remote_addr()), (config.remote, config.local));
    }
}

#[test]
fn a_link_is_opened_once_only() {
    let (_a, path) = ShmPort::create(&config()).unwrap();
    let _b = ShmPort::open(&path).unwrap();
    assert_eq!(open_error(&path), ShmError::InUse { path, process: std::process::id() });
}

#[test]
fn the_path_ends_with_the_creator() {
    let (a, path) = ShmPort::create(&config()).unwrap();
    drop(a);
    assert!(ShmPort::open(&path).is_err());
}

#[test]
fn a_file_that_could_shrink_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(region_len(128 << 10) as u64).unwrap();
    assert!(matches!(open_error(file.path()), ShmError::Seals { .. }));
}

#[test]
fn a_wrong_header_is_refused() {
    type Spoil = fn(&Header);
    let cases: [(&str, Spoil); 3] = [
        ("the magic", |h| h.magic.store(MAGIC + 1, Ordering::Relaxed)),
        ("the ring size", |h| h.ring_bytes.store(1 << 40, Ordering::Relaxed)),
        ("the largest frame", |h| h.max_frame.store(u64::MAX, Ordering::Relaxed)),
    ];
    for (field, spoil) in cases {
        let (a, path) = ShmPort::create(&config()).unwrap();
        spoil(a.link.header());
        let ShmError::Header { what, .. } = open_error(&path) else { panic!("{field}: wrong error") };
        assert_eq!(what, field);
    }
}

#[test]
fn a_corrupt_ring_is_an_error_from_then_on() {
    let (mut a, mut b) = ShmPort::pair(&config()).unwrap();
    let path = Path { src: a.local, dst: b.local, udp_src: 0, traffic_class: 0, hop_limit: 0 };
    assert!(a.transmit(Time::ZERO, &frame(&path, 64), &mut |b| b.fill(0xff)));
    a.flush(Time::ZERO).unwrap();
    // The first word of the creator's ring is the producer's position, one page after the header.
    let spoiled = a.link.region().object::<Header>(super::super::region::PAGE);
    spoiled.magic.store(u64::MAX - 1, Ordering::Release);
    for _ in 0..2 {
        let e = b.receive(Time::ZERO, 10, &mut |_| panic!("a frame from a corrupt ring")).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::InvalidData);
        assert!(matches!(error(&e), LinkError::Corrupt(_)), "{e}");
    }
    assert!(b.flush(Time::ZERO).is_err());
    b.wait(Duration::from_secs(600)).unwrap();
}

#[test]
fn a_closed_peer_is_reported_after_its_last_frame() {
    let (mut a, mut b) = ShmPort::pair(&config()).unwrap();
    let path = Path { src: a.local, dst: b.local, udp_src: 0, traffic_class: 0, hop_limit: 0 };
    assert!(a.transmit(Time::ZERO, &frame(&path, 64), &mut |b| write_frame(3, b)));
    drop(a);
    b.wait(Duration::from_secs(600)).unwrap();
    check_frame(3, &collect(&mut b, 1)[0].1);
    let e = b.receive(Time::ZERO, 10, &mut |_| ()).unwrap_err();
    assert_eq!(error::<LinkError>(&e), LinkError::Closed);
}

/// A sleeper is woken by a frame, and a sender by room, from another thread.
#[test]
fn sleepers_are_woken() {
    let (mut a, mut b) = ShmPort::pair(&config()).unwrap();
    a.set_spin(0);
    b.set_spin(0);
    const FRAMES: u32 = 5_000;
    let path = Path { src: a.local, dst: b.local, udp_src: 0, traffic_class: 0, hop_limit: 0 };
    let sender = std::thread::spawn(move || {
        for i in 0..FRAMES {
            while !a.transmit(Time::ZERO, &frame(&path, 4000), &mut |b| write_frame(i, b)) {
                a.flush(Time::ZERO).unwrap();
                a.wait(Duration::from_secs(600)).unwrap();
            }
            if i % 9 == 0 {
                a.flush(Time::ZERO).unwrap();
            }
        }
        a.flush(Time::ZERO).unwrap();
    });
    let mut next = 0;
    while next < FRAMES {
        b.wait(Duration::from_secs(600)).unwrap();
        b.receive(Time::ZERO, 64, &mut |f| {
            check_frame(next, f.bytes);
            next += 1;
        })
        .unwrap();
    }
    sender.join().unwrap();
}

const CHILD_PATH: &str = "IRNIC_SHM_TEST_PATH";
const CHILD_MODE: &str = "IRNIC_SHM_TEST_MODE";

/// The other process of the tests below; passes at once when run as a test itself.
#[test]
fn child_process() {
    let Some(path) = std::env::var_os(CHILD_PATH) else { return };
    let mut port = ShmPort::open(FilePath::new(&path)).unwrap();
    let reply = Path { src: port.local, dst: port.remote, udp_src: 0, traffic_class: 0, hop_limit: 0 };
    match std::env::var(CHILD_MODE).as_deref() {
        Ok("die") => std::process::abort(),
        // Two frames with the host's time, before the first was sent and after.
        Ok("tell the time") => {
            let start = host_now();
            for _ in 0..2 {
                let sent_at = host_now().0.to_le_bytes();
                let now = Time(host_now().since(start));
                assert!(port.transmit(now, &frame(&reply, sent_at.len()), &mut |b| b.copy_from_slice(&sent_at)));
                port.flush(now).unwrap();
            }
            return;
        }
        _ => {}
    }
    for i in 0..2_000 {
        while !port.link_has_frames() {
            port.wait(Duration::from_secs(10)).unwrap();
        }
        let bytes = collect(&mut port, 1).remove(0).1;
        check_frame(i, &bytes);
        assert!(port.transmit(Time::ZERO, &frame(&reply, bytes.len()), &mut |b| write_frame(!i, b)));
        port.flush(Time::ZERO).unwrap();
    }
}

/// Runs [`child_process`] in a separate process.
fn child(path: &FilePath, mode: &str) -> std::process::Child {
    // The harness's test names omit the crate.
    let (_, module) = module_path!().split_once("::").unwrap();
    let test = format!("{module}::child_process");
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &test, "--nocapture"])
        .env(CHILD_PATH, path)
        .env(CHILD_MODE, mode)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn two_processes_exchange_frames() {
    let (mut port, path) = ShmPort::create(&config()).unwrap();
    let mut child = child(&path, "echo");
    let to = Path { src: port.local, dst: port.remote, udp_src: 0, traffic_class: 0, hop_limit: 0 };
    for i in 0..2_000u32 {
        let len = 16 + (i as usize * 97) % 4000;
        assert!(port.transmit(Time::ZERO, &frame(&to, len), &mut |b| write_frame(i, b)));
        port.flush(Time::ZERO).unwrap();
        while !port.link_has_frames() {
            port.wait(Duration::from_secs(10)).unwrap();
        }
        check_frame(!i, &collect(&mut port, 1)[0].1);
    }
    assert!(child.wait().unwrap().success());
}

#[test]
fn frames_of_another_process_bear_the_time_of_their_sending() {
    let (mut port, path) = ShmPort::create(&config()).unwrap();
    let start = host_now();
    let mut child = child(&path, "tell the time");
    assert!(child.wait().unwrap().success());
    std::thread::sleep(Duration::from_millis(20));
    let polled = host_now();
    let read = Time(host_now().since(start));
    let mut frames = Vec::new();
    let each = &mut |f: RxFrame<'_>| {
        frames.push((f.arrived, Time(u64::from_le_bytes(f.bytes.try_into().unwrap()))));
    };
    assert_eq!(port.receive(read, 8, each).unwrap(), 2);
    let unsure = host_now().since(polled);
    let [(arrived, before), (_, after)] = frames[..] else { panic!("{frames:?}") };
    conformance::check_arrival(start + arrived.0, before, after, unsure);
}

#[test]
fn a_dead_peer_is_noticed() {
    let (mut port, path) = ShmPort::create(&config()).unwrap();
    let mut child = child(&path, "die");
    let dead = loop {
        if let Err(e) = port.wait(Duration::from_secs(10)) {
            break e;
        }
    };
    assert_eq!(dead.kind(), io::ErrorKind::ConnectionReset);
    assert_eq!(error::<LinkError>(&dead), LinkError::Dead(child.id()));
    assert!(!child.wait().unwrap().success());
    assert!(port.flush(Time::ZERO).is_err());
}

impl ShmPort {
    fn link_has_frames(&self) -> bool {
        self.link.has_frames()
    }
}
