//! Empty polls that only read memory find whatever has come since the previous poll, whichever thread received it.

use irnic_transports::Time;
use irnic_transports::qp::SendData;

use super::super::now;
use super::super::state::State;
use super::{End, conversation, message};

/// Has the next empty polls only read memory, as polls in a tight loop do.
fn only_read(state: &mut State, now: Time) {
    for _ in 0..80 {
        state.model.empty_polls.note(now);
    }
    assert!(state.model.empty_polls.looks() > 0);
}

fn poll_in_vain(end: &End) {
    assert_eq!(end.poll(), 0);
    let mut state = end.unit.state.lock();
    only_read(&mut state, now());
    assert!(state.looks_in_vain(end.cq), "nothing has come");
    assert!(state.looks_in_vain(end.cq), "nothing has come since");
}

#[test]
fn a_poll_finds_what_came_after_the_previous_one() {
    type Change = fn(&End, &End);
    let changes: [(&str, Change); 4] = [
        ("a frame that nobody has read", |a, _| a.send()),
        ("a completion that another thread has received", |a, b| {
            a.send();
            b.unit.state.lock().receive(now());
        }),
        ("an acknowledgement to be sent", |a, b| {
            a.send();
            let mut state = b.unit.state.lock();
            state.receive(now());
            state.take(b.cq, 16, &mut |_| ()).unwrap();
        }),
        ("a posted message", |_, b| {
            let mut state = b.unit.state.lock();
            state.nic().post_send(b.qpn, &message(SendData::Sges(&[]), None)).unwrap();
        }),
    ];
    for (what, change) in changes {
        let [a, b] = conversation();
        assert!(b.poll() > 0);
        poll_in_vain(&b);
        change(&a, &b);
        let mut state = b.unit.state.lock();
        only_read(&mut state, now());
        assert!(!state.looks_in_vain(b.cq), "{what}");
    }
}

#[test]
fn an_empty_queue_says_nothing_of_another() {
    let [a, b] = conversation();
    assert!(b.poll() > 0);
    let other = b.unit.lock().create_cq(4, b.owner, |_| Box::new(super::Deaf)).unwrap();
    poll_in_vain(&b);
    a.send();
    b.unit.state.lock().receive(now());
    let mut state = b.unit.state.lock();
    state.transmit(now());
    only_read(&mut state, now());
    assert!(state.looks_in_vain(other), "it is empty");
    assert!(!state.looks_in_vain(b.cq));
}
