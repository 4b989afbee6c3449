//! Acknowledgements that wait for the reply of an application that polls memory, not only completions.

use super::*;

/// Posts an RDMA WRITE. Without data it needs neither keys nor the peer's permission.
fn write(end: &End) {
    let mut state = end.unit.lock_to_post();
    state.nic().post_send(end.qpn, &SendWr::write(0, SendData::Sges(&[]), 0, 0)).unwrap();
    end.unit.posted(state, end.qpn, false);
}

/// Runs a turn of the background thread, as when the port rings. The application's last call was at `called`.
fn background(end: &End, called: Time) {
    end.unit.state.lock().model.last_call = called;
    end.unit.run_once(true, &mut BusyPoll::new(Some(0)));
}

/// Returns the time of a recent call of the application, whatever keeps this thread from its core.
fn lately() -> Time {
    Time(now().0 + SEC)
}

/// Gives an application unlimited time to reply.
fn wait_long(end: &End) {
    let answers = &mut end.unit.state.lock().model.answers;
    if answers.due > Time::ZERO {
        answers.due = Time::NEVER;
    }
    answers.hold = 1000 * SEC;
}

/// Returns two ends without pending acknowledgements.
fn quiet() -> [End; 2] {
    let [a, b] = conversation();
    // Messages, acknowledgements, and empty polls that send what was deferred.
    for _ in 0..4 {
        a.poll();
        b.poll();
    }
    let mut state = b.unit.state.lock();
    (state.model.answers.due, state.model.answers.in_time) = (Time::ZERO, 0);
    drop(state);
    [a, b]
}

#[test]
fn what_was_written_to_memory_is_acknowledged_with_the_answer() {
    let [a, b] = quiet();
    write(&a);
    let before = b.sent();
    background(&b, lately());
    wait_long(&b);
    assert_eq!((b.sent(), a.poll()), (before, 0), "the application has not answered yet");
    b.unit.state.lock().model.last_progress = lately();
    b.unit.run_once(false, &mut BusyPoll::new(Some(0)));
    assert_eq!(b.sent(), before, "it still may");
    write(&b);
    assert_eq!((b.sent(), a.poll()), (before + 2, 1));
    assert_eq!(b.unit.state.lock().model.answers.in_time, 1);
}

#[test]
fn an_application_that_looks_at_memory_and_does_not_answer_is_answered_for() {
    let [a, b] = quiet();
    write(&a);
    let before = b.sent();
    background(&b, lately());
    wait_long(&b);
    b.unit.state.lock().model.answers.due = now();
    b.unit.run_once(false, &mut BusyPoll::new(Some(0)));
    assert_eq!((b.sent(), a.poll()), (before + 1, 1));
    write(&a);
    background(&b, lately());
    assert_eq!((b.sent(), a.poll()), (before + 2, 1), "it is not waited for again");
}

#[test]
fn nobody_waits_for_an_application_that_was_not_here_lately() {
    let [a, b] = quiet();
    write(&a);
    background(&b, Time::ZERO);
    assert_eq!(a.poll(), 1);
}

#[test]
fn many_packets_at_once_are_acknowledged_by_the_background_thread() {
    let [a, b] = quiet();
    for _ in 0..=CONVERSATION {
        write(&a);
    }
    background(&b, lately());
    assert_eq!(a.poll(), CONVERSATION + 1);
}

#[test]
fn who_was_found_not_to_poll_is_waited_for_once_he_has_answered() {
    let [a, b] = quiet();
    b.unit.state.lock().model.idle_until = Time::NEVER;
    let request = |answers| {
        a.send();
        let before = b.sent();
        assert!(b.poll() > 0);
        wait_long(&b);
        assert_eq!((b.sent() == before, b.unit.state.lock().model.answers.in_time), (answers > 0, answers));
        write(&b);
        while a.poll() > 0 {}
    };
    request(0);
    request(1);
    request(2);
}

#[test]
fn who_is_only_acknowledged_has_nothing_to_answer() {
    let [a, b] = quiet();
    write(&b);
    while a.poll() > 0 {}
    a.unit.run_once(true, &mut BusyPoll::new(Some(0)));
    assert_eq!(b.poll(), 1);
    let state = b.unit.state.lock();
    assert!(!state.ack_deferred && state.model.answers.due == Time::ZERO);
}

#[test]
fn long_answers_are_not_waited_for() {
    let [a, b] = quiet();
    let mut state = b.unit.lock_to_post();
    for _ in 0..=CONVERSATION + 1 {
        state.nic().post_send(b.qpn, &SendWr::write(0, SendData::Sges(&[]), 0, 0)).unwrap();
    }
    b.unit.posted(state, b.qpn, false);
    let left = |packets: usize| {
        for _ in 0..4 {
            a.poll();
            b.poll();
        }
        write(&a);
        let before = b.sent();
        background(&b, lately());
        wait_long(&b);
        assert_eq!(b.sent() == before, packets == 1, "after {packets}");
        write(&b);
    };
    left(CONVERSATION + 2);
    left(1);
}
