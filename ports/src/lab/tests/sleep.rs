//! What wakes a server that sleeps, and time meanwhile.

use super::*;

#[test]
fn a_server_that_sleeps_is_woken_by_news_and_time_stands_still_meanwhile() {
    let mut bench = bench(&[1_000_000_000]);
    let mut port = bench.enter(0);
    port.begin();
    port.end(Time(5_000), Time::NEVER);
    bench.server.set_limit(u64::MAX);
    let (mut turns, mut woken) = (Vec::new(), (false, Time::ZERO));
    let begun = Instant::now();
    bench.server.sleep(
        Duration::from_secs(60),
        |_| {
            // The server is about to sleep: this wakes it.
            let turn = port.begin();
            send(&mut port, turn.now.0, address(0), &frame_to(1, 54));
            // Nothing will follow on its own, and everything was published.
            port.flush(turn.now).unwrap();
            port.end(turn.now, Time::NEVER);
            std::thread::sleep(Duration::from_millis(2));
            turns.push(turn.now);
            turns.push(port.begin().now);
            port.end(turn.now, Time(turn.now.0 + 900));
            false
        },
        |server, now| woken = (server.has_frames(), Time(now)),
    );
    assert_eq!(woken, (true, turns[0]));
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert_eq!(turns[0], turns[1], "until the server is awake");
    assert!(port.begin().now > turns[1]);
}

/// A process that begins a turn while the server sleeps, and then has no core, finds nobody ahead of it.
#[test]
fn the_first_turn_stops_time_for_all_while_the_server_sleeps() {
    let mut bench = bench(&[1_000_000_000; 2]);
    let (mut first, mut second) = (bench.enter(0), bench.enter(1));
    bench.server.set_limit(u64::MAX);
    let (mut turns, mut woken) = ([Time::ZERO; 3], 0);
    bench.server.sleep(
        Duration::from_secs(60),
        |_| {
            let turn = first.begin();
            std::thread::sleep(Duration::from_millis(2));
            turns = [turn.now, second.begin().now, second.clock()];
            second.end(turn.now, Time::NEVER);
            // It has nothing to send, and wakes the server nevertheless.
            first.end(turn.now, Time::NEVER);
            false
        },
        |_, now| woken = now,
    );
    assert_eq!(turns, [Time(woken); 3]);
}

/// A look at the clock does not stop it, so that a process that polls in vain does not.
#[test]
fn a_process_with_nothing_to_do_takes_no_turn() {
    let mut bench = bench(&[1_000_000_000; 2]);
    let mut port = bench.enter(0);
    bench.server.set_limit(u64::MAX);
    port.begin();
    port.end(Time(5_000), Time(u64::MAX - 7));
    assert!(port.is_idle(Time(u64::MAX - 7)));
    assert!(!port.is_idle(Time::NEVER), "the server would not hear of it");
    bench.server.sleep(
        Duration::from_millis(1),
        |_| {
            let before = port.clock();
            assert!(port.is_idle(Time(u64::MAX - 7)));
            while port.clock() == before {}
            false
        },
        |_, _| (),
    );
    bench.server.deliver(0, bench.server.now(), &arriving(0, &frame_to(port.slot().first_qpn(), 54)));
    bench.server.publish();
    assert!(!port.is_idle(Time(u64::MAX - 7)), "something has arrived");
}

#[test]
fn when_no_process_has_woken_a_server_none_sees_a_later_time_than_it_does() {
    let mut bench = bench(&[1_000_000_000]);
    let mut port = bench.enter(0);
    bench.server.set_limit(u64::MAX);
    bench.server.waker().wake();
    bench.server.sleep(
        Duration::from_secs(60),
        |_| false,
        |_, now| {
            std::thread::sleep(Duration::from_millis(2));
            let turn = port.begin();
            assert!(turn.now.0 <= now, "{turn:?} {now}");
            port.end(turn.now, Time::NEVER);
        },
    );
}

#[test]
fn a_server_that_waits_for_a_turn_is_woken_by_its_end_even_if_nothing_has_changed() {
    let mut bench = bench(&[1_000_000_000]);
    let mut port = bench.enter(0);
    port.begin();
    port.end(Time(5_000), Time(7_000));
    let turn = port.begin();
    let rung = port.counters().tx_syscalls;
    bench.server.sleep(
        Duration::from_secs(60),
        |server| {
            assert_eq!(server.wake(5_000), 5_000);
            port.end(turn.now, Time(7_000));
            assert_eq!(server.wake(5_000), 7_000);
            false
        },
        |_, _| (),
    );
    assert_eq!(port.counters().tx_syscalls, rung + 1);
}
