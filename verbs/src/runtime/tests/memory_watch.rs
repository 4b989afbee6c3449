//! Applications that look for arrivals in memory after they have taken completions.

use super::*;

fn unreliable_pair() -> [End; 2] {
    let (a, b) = pair();
    let ends = [End::of(a, 16, Service::Uc), End::of(b, 16, Service::Uc)];
    for (end, peer) in [(&ends[0], &ends[1]), (&ends[1], &ends[0])] {
        let mut params = ConnectParams::unreliable(loopback(), Mtu::B1024, peer.qpn);
        params.access = Access::REMOTE_WRITE;
        end.unit.lock().nic().connect(end.qpn, &params).unwrap();
    }
    ends
}

/// Writes no bytes: that needs neither memory nor a receive request.
fn write(end: &End) {
    let wr = SendWr::write(0, SendData::Sges(&[]), 0, 0);
    let mut state = end.unit.lock_to_post();
    state.nic().post_send(end.qpn, &wr).unwrap();
    end.unit.posted(state, end.qpn, false);
}

/// Writes, and takes the completion.
fn write_and_poll(end: &End) {
    write(end);
    assert_eq!(end.poll(), 1);
}

fn received(end: &End) -> u64 {
    end.unit.state.lock().nic_port.nic.counters().rcvd_pkts
}

fn is_shown(end: &End) -> bool {
    end.unit.state.lock().model.memory_watch.is_shown()
}

#[test]
fn a_poll_that_completes_a_write_also_takes_the_answer_that_the_application_looks_for() {
    let [a, b] = unreliable_pair();
    for n in 0..8 {
        assert!(!is_shown(&a), "{n}");
        write(&a);
        write_and_poll(&b);
        assert_eq!((a.poll(), received(&a)), (1, n), "it completes when it leaves");
        a.unit.run_once(true, &mut BusyPoll::new(Some(0)));
        assert_eq!(received(&a), n + 1);
    }
    write(&a);
    assert!(is_shown(&a));
    for n in 9..100 {
        write_and_poll(&b);
        assert_eq!((a.poll(), received(&a)), (1, n));
        write(&a);
    }
    // Nothing comes: it does not wait for ever, and not again at once.
    assert_eq!((a.poll(), received(&a)), (1, 99));
    write(&a);
    write_and_poll(&b);
    assert_eq!((a.poll(), received(&a)), (1, 99));
}
