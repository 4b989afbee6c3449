//! The communication of a lab's process and its server, under every order in which a weakly ordered machine may make it
//! visible. Both behave here like `LabPort` and `LabServer`, without their sockets.

use std::sync::Arc;

use irnic_transports::Time;
use loom::thread;

use super::clock::{BrakePage, Line, Page};
use super::member::{REGION, Words, place, words};
use crate::region::{PAGE, Region};
use crate::ring::{CONTROL, Consumer, Producer};
use crate::sync::{Ordering, fence};

/// Minimum time of a frame to another host, ns.
const LOOKAHEAD: u64 = 10;

/// One side's view of the shared memory. Lab time is always at the limit.
struct View {
    page: Page,
    brake: BrakePage,
    member: Arc<Region>,
}

impl View {
    /// Creates the memory, with a limit of 10 ns.
    fn new() -> (View, impl Fn() -> View) {
        let (clock, brake, member) = (Region::heap(2 * PAGE), Region::heap(PAGE), Arc::new(Region::heap(REGION)));
        let view = move || {
            let page = Page::on(clock.clone(), 1);
            // A failed read then has an earlier line to fall back on.
            page.line();
            View { page, brake: BrakePage::on(brake.clone()), member: member.clone() }
        };
        let first = view();
        first.page.set_line(Line { lab: 0, host: 0, rate: 1 << 48 });
        first.page.set_limit(10);
        first.brake.release();
        first.words().need.store(u64::MAX, Ordering::Relaxed);
        // The cache lines of future records.
        for line in (0..4).map(|line| place(true).offset + CONTROL + 64 * line) {
            // SAFETY: in the ring; no other view of the region exists yet.
            unsafe {
                first.member.word(line);
                first.member.word(line + 8);
                first.member.slice(line, 64);
            }
        }
        (first, view)
    }

    fn words(&self) -> &Words {
        words(&self.member)
    }

    fn producer(&self) -> Producer {
        Producer::new(self.member.clone(), place(true))
    }

    fn consumer(&self) -> Consumer {
        Consumer::new(self.member.clone(), place(true))
    }

    fn port_time(&self) -> u64 {
        self.page.braked_now(&self.brake)
    }

    /// As `LabPort::begin`.
    fn begin(&self) -> (u64, bool) {
        let (now, stopped) = self.words().begin(|| self.page.stopped_now(&self.brake));
        self.words().need.store(now, Ordering::Release);
        (now, stopped)
    }

    /// As the first half of `LabServer::sleep`.
    fn fall_asleep(&self) {
        self.brake.release();
        self.page.set_asleep(true);
        fence(Ordering::SeqCst);
    }

    /// As the second half. Returns the time from which the lab continues.
    fn wake_up(&self) -> u64 {
        let now = self.brake.stop(|| self.page.now());
        self.page.set_limit(now);
        self.page.note_wake();
        self.page.set_asleep(false);
        self.brake.release();
        now
    }
}

fn send(tx: &mut Producer, start: u64) {
    assert!(tx.push(8, 0, start, &mut |bytes| bytes.fill(1)).unwrap());
    tx.publish();
}

fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

#[test]
fn a_line_is_never_a_mixture_of_two() {
    check(2, || {
        let (server, view) = View::new();
        let lines = [1, 2].map(|n| Line { lab: n, host: n, rate: n });
        server.page.set_line(lines[0]);
        let port = view();
        let reader = thread::spawn(move || {
            let (first, second) = (port.page.line(), port.page.line());
            assert!(lines.contains(&first) && lines.contains(&second), "{first:?}, {second:?}");
            assert!(first.lab <= second.lab, "{first:?} after {second:?}");
        });
        server.page.set_line(lines[1]);
        reader.join().unwrap();
    });
}

/// A line that has run past the limit is reset before the limit is: no process sees the old line with the new limit.
#[test]
fn time_that_stood_still_goes_on_from_there() {
    check(3, || {
        let (server, view) = View::new();
        let port = view();
        let process = thread::spawn(move || {
            let (first, second) = (port.page.now(), port.page.now());
            assert_eq!((first, second), (10, 10));
        });
        // As `LabServer::restart_at`; this line has not begun yet.
        server.page.set_line(Line { lab: 10, host: u64::MAX, rate: 1 });
        server.page.set_limit(30);
        process.join().unwrap();
    });
}

/// A port's turn sends nothing earlier than the time that the server considered settled when it let time advance.
#[test]
fn nobody_sends_earlier_than_the_server_lets_the_network_go() {
    check(3, || {
        let (server, view) = View::new();
        let port = view();
        let (mut tx, mut rx) = (server.producer(), server.consumer());
        let process = thread::spawn(move || {
            let (now, _) = port.begin();
            send(&mut tx, now);
            port.words().end(u64::MAX, 0);
        });
        let mut known = 0;
        for _ in 0..3 {
            let now = server.page.now();
            fence(Ordering::SeqCst);
            let (need, _) = server.words().published();
            while let Some(record) = rx.pop(Time::ZERO).unwrap() {
                assert!(record.stamp >= known, "sent at {}, and the network knows of {known}", record.stamp);
            }
            known = known.max(now.min(need));
            server.page.set_limit(known + LOOKAHEAD);
        }
        process.join().unwrap();
        while let Some(record) = rx.pop(Time::ZERO).unwrap() {
            assert!(record.stamp >= known, "sent at {}, and the network knows of {known}", record.stamp);
        }
    });
}

#[test]
fn a_server_that_sleeps_when_something_is_sent_is_woken() {
    check(3, || {
        let (server, view) = View::new();
        let port = view();
        let (mut tx, rx) = (server.producer(), server.consumer());
        let process = thread::spawn(move || {
            port.begin();
            send(&mut tx, 10);
            port.words().end(20, 0);
            fence(Ordering::SeqCst);
            port.page.is_asleep()
        });
        server.fall_asleep();
        let sleeps = !rx.has_frames() && server.words().published().0 == u64::MAX;
        let rung = process.join().unwrap();
        assert!(rung || !sleeps, "the server sleeps for ever");
    });
}

/// A server that waits for the end of a turn is woken by it, even if the turn changes nothing.
#[test]
fn a_server_that_waits_for_a_turn_is_woken() {
    check(3, || {
        let (server, view) = View::new();
        let port = view();
        port.words().need.store(20, Ordering::Relaxed);
        let process = thread::spawn(move || {
            port.begin();
            port.words().end(20, 0);
            fence(Ordering::SeqCst);
            port.page.is_asleep()
        });
        if server.words().published().0 <= 10 {
            server.fall_asleep();
            let sleeps = server.words().published().0 <= 10;
            let rung = process.join().unwrap();
            assert!(rung || !sleeps, "the server sleeps for ever");
        }
    });
}

#[test]
fn a_process_that_sleeps_when_its_time_comes_is_woken() {
    check(3, || {
        let (server, view) = View::new();
        let port = view();
        port.words().need.store(20, Ordering::Relaxed);
        let process = thread::spawn(move || {
            port.words().asleep.0.request();
            fence(Ordering::SeqCst);
            port.port_time() < 20
        });
        server.page.set_limit(20);
        // Like `LabServer::wake`, for the time that the limit allows.
        fence(Ordering::SeqCst);
        let rung = server.words().published().0 <= server.page.now() && server.words().asleep.0.ring();
        let sleeps = process.join().unwrap();
        assert!(rung || !sleeps, "the process sleeps for ever");
    });
}

/// While the server sleeps, time goes on from 10 to 100 ns. All turns that begin before it is awake have the same time,
/// and it continues from there.
#[test]
fn all_turns_while_the_server_sleeps_have_the_same_time() {
    check(2, || {
        let (server, view) = View::new();
        let other = View { member: Arc::new(Region::heap(REGION)), ..view() };
        other.words().need.store(u64::MAX, Ordering::Relaxed);
        let needs = [server.member.clone(), other.member.clone()];
        let turns = [view(), other].map(|port| thread::spawn(move || port.begin().0));
        server.fall_asleep();
        if needs.iter().all(|member| words(member).published().0 == u64::MAX) {
            server.page.set_limit(100);
        }
        let now = server.wake_up();
        for turn in turns {
            assert_eq!(turn.join().unwrap(), now);
        }
    });
}

/// Nor does a process that takes no turn see a later time than that.
#[test]
fn nobody_sees_a_time_that_the_server_takes_back() {
    check(2, || {
        let (server, view) = View::new();
        let (port, reader) = (view(), view());
        let turn = thread::spawn(move || port.begin().0);
        let reads = thread::spawn(move || reader.port_time());
        server.fall_asleep();
        if server.words().published().0 == u64::MAX {
            server.page.set_limit(100);
        }
        let now = server.wake_up();
        let read = reads.join().unwrap();
        assert!(read <= now, "{read}, {now}");
        turn.join().unwrap();
    });
}
