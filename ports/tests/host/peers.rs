//! Frames between processes of one host, and what becomes of them when one dies or stands still.

use std::time::{Duration, Instant};

use irnic_ports::Port;
use irnic_ports::host::{HostPort, HostUdp, Stall};
use irnic_transports::{Path, Time};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::child::Task;
use super::*;

fn port(domain: &str) -> HostPort {
    HostPort::open(&config(domain, LOCALHOST, 1, HostUdp::Off)).expect("a port")
}

fn way() -> Path {
    path(LOCALHOST, LOCALHOST)
}

/// Sees that a frame is whole, whatever it says.
fn read(bytes: &[u8]) {
    Note::read(bytes);
}

/// Sends a frame to an echo until its answer comes.
fn ask(port: &mut HostPort, start: Instant, note: &Note, len: usize) {
    let asked = Instant::now();
    let mut sent: Option<Instant> = None;
    let mut answered = false;
    while !answered {
        let now = since(start);
        // A process that has just come may not be known yet, and one that was killed may have taken the frame along.
        if sent.is_none_or(|sent| sent.elapsed() > Duration::from_millis(30)) && send(port, now, &way(), note, len) {
            sent = Some(Instant::now());
        }
        port.flush(now).expect("flush");
        port.wait(Duration::from_millis(5)).expect("wait");
        port.receive(since(start), 64, &mut |frame| {
            let answer = Note::read(frame.bytes);
            answered |= answer == Note { to: note.reply_to, reply_to: note.to, ..*note };
        })
        .expect("receive");
        assert!(asked.elapsed() < HANG, "no answer to {note:?}");
    }
}

fn note(number: u32, to: u16, generation: u32) -> Note {
    Note { number, to: qp_of(to), reply_to: qp_of(1), generation }
}

fn exchange(processes: u16) {
    let _alone = alone();
    let domain = fresh_domain();
    let task = |slot| Task { processes, ..Task::new("exchange", &domain, slot) };
    let mut peers: Vec<_> = (1..=processes).map(|slot| task(slot).start(None).expect("a process")).collect();
    peers.iter_mut().for_each(|peer| peer.say("go"));
    peers.iter_mut().for_each(|peer| drop(peer.hear("done")));
    peers.into_iter().for_each(|peer| peer.finish());
}

#[test]
fn two_processes_exchange_frames() {
    exchange(2);
}

#[test]
fn fifty_processes_exchange_frames() {
    exchange(50);
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("/proc").count()
}

/// The child checks that it gets no frame of the generation before its own.
#[test]
fn a_killed_process_harms_nobody_and_leaves_nothing() {
    let _alone = alone();
    let seed = 20;
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let domain = fresh_domain();
    let mut own = port(&domain);
    let mut other = Task::new("echo", &domain, 3).start(None).expect("a process");
    let start = Instant::now();
    ask(&mut own, start, &note(0, 3, 0), 64);
    let before = descriptors();
    for generation in 0..100 {
        let mut victim = Task { generation, ..Task::new("echo", &domain, 2) }.start(None).expect("a process");
        ask(&mut own, start, &note(generation, 2, generation), 64);
        // The victim dies while frames go to and fro, at any point.
        let deadline = Instant::now() + Duration::from_micros(random.random_range(0..3000));
        let mut number = 0;
        while Instant::now() < deadline {
            let len = random.random_range(HEAD..4000);
            if send(&mut own, since(start), &way(), &note(number, 2, generation), len) {
                number += 1;
            }
            if random.random_bool(0.5) {
                own.flush(since(start)).expect("flush");
            }
            own.receive(since(start), 16, &mut |frame| read(frame.bytes)).expect("receive");
        }
        victim.kill();
        // Some more than its ring holds: what nobody takes is dropped.
        let flood = Instant::now();
        for number in 0..100 {
            while !send(&mut own, since(start), &way(), &note(number, 2, generation), 4000) {
                own.flush(since(start)).expect("flush");
                own.receive(since(start), 16, &mut |frame| read(frame.bytes)).expect("receive");
                assert!(flood.elapsed() < HANG, "seed {seed}: stuck behind a dead process");
            }
        }
        own.flush(since(start)).expect("flush");
        ask(&mut own, start, &note(generation, 3, 0), 100);
    }
    // The thread that reads a dead process's output takes its time.
    let settling = Instant::now();
    while descriptors() > before {
        own.cancel_sleep();
        own.receive(since(start), 16, &mut |_| ()).expect("receive");
        assert!(settling.elapsed() < HANG, "{} descriptors, {before} before", descriptors());
    }
    other.signal(0);
    assert!(other.process.try_wait().expect("wait").is_none());
    assert_eq!(own.host_counters().links_corrupt, 0);
}

#[test]
fn a_stopped_process_stalls_nobody_else() {
    let _alone = alone();
    let domain = fresh_domain();
    let mut own = port(&domain);
    let start = Instant::now();
    let stopped = Task::new("echo", &domain, 2).start(None).expect("a process");
    let running = Task::new("echo", &domain, 3).start(None).expect("a process");
    ask(&mut own, start, &note(0, 2, 0), 64);
    stopped.signal(libc::SIGSTOP);
    // Fills the ring, and pushes on against it while another is talked to.
    let mut refused = None;
    while own.host_counters().tx_stalled == 0 {
        if !send(&mut own, since(start), &way(), &note(1, 2, 0), 4000) {
            own.flush(since(start)).expect("flush");
            refused.get_or_insert(Instant::now());
        }
        assert!(start.elapsed() < HANG, "the ring of a stopped process is waited for");
    }
    assert!(refused.is_some(), "a full ring is waited for at first");
    let error = own.flush(since(start)).expect_err("the next flush tells of it");
    let stall = Stall { process: stopped.process.id() };
    assert_eq!(error.get_ref().and_then(|e| e.downcast_ref()), Some(&stall));
    for number in 0..200 {
        assert!(send(&mut own, since(start), &way(), &note(2, 2, 0), 4000), "frame {number}");
        ask(&mut own, start, &note(number, 3, 0), 500);
    }
    assert!(own.host_counters().tx_stalled > 200);
    stopped.signal(libc::SIGCONT);
    ask(&mut own, start, &note(9, 2, 0), 64);
    running.finish();
    stopped.finish();
}

#[test]
fn another_users_process_is_not_talked_to() {
    const NOBODY: u32 = 65534;
    const TEST: &str = "another_users_process_is_not_talked_to";
    let _alone = alone();
    // SAFETY: no memory is passed.
    if unsafe { libc::geteuid() } != 0 {
        return skipped(TEST, "only root can become another user");
    }
    let domain = fresh_domain();
    let mut own = port(&domain);
    let mut foreign = match Task::new("foreign", &domain, 3).start(Some(NOBODY)) {
        Ok(peer) => peer,
        Err(e) => return skipped(TEST, &format!("user {NOBODY} cannot run this program: {e}")),
    };
    assert_eq!(foreign.hear("counters"), "1 1", "frames to nobody, connections refused");
    for number in 0..10 {
        assert!(send(&mut own, Time(number * 20_000_000), &way(), &note(number as u32, 3, 0), 64));
        own.flush(Time::ZERO).expect("flush");
        own.cancel_sleep();
        own.receive(Time::ZERO, 64, &mut |_| panic!("a frame of another user")).expect("receive");
    }
    assert_eq!(own.host_counters().tx_absent, 10);
    foreign.finish();
}

/// In a user namespace all users without a number there look like user 65534. Two who have that number themselves, each
/// in a namespace of its own, see each other as the same user, and are not.
#[test]
fn a_user_without_a_number_here_is_nobodys_own() {
    const UNMAPPED: u32 = 65534;
    const TEST: &str = "a_user_without_a_number_here_is_nobodys_own";
    let _alone = alone();
    // SAFETY: no memory is passed.
    if unsafe { libc::geteuid() } != 0 {
        return skipped(TEST, "only root can become other users");
    }
    let namespace = ["--user", "--map-user=65534", "true"];
    if !std::process::Command::new("unshare").args(namespace).status().is_ok_and(|status| status.success()) {
        return skipped(TEST, "no user namespace can be made");
    }
    let domain = fresh_domain();
    let task = |mode, slot| Task { alone_as: Some(UNMAPPED), ..Task::new(mode, &domain, slot) };
    let echo = task("echo", 1).start(Some(1)).expect("a process");
    let mut foreign = task("foreign", 3).start(Some(2)).expect("a process");
    assert_eq!(foreign.hear("counters"), "1 1", "frames to nobody, connections refused");
    foreign.finish();
    echo.finish();
}
