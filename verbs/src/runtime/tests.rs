//! Two units connected in one thread, without their background threads unless a test runs a turn of theirs.

mod answers;
mod empty_polls;
mod endings;
mod events;
mod front;
mod memory_watch;
mod panics;
mod trains;
mod wakeups;

use std::sync::Arc;
use std::time::Duration;

use irnic_nic::frame::Icrc;
use irnic_nic::{Arm, Nic, NicConfig};
use irnic_ports::host::{HostCounters, ServiceClaim};
use irnic_ports::mem::{MemPort, pair};
use irnic_transports::qp::{
    Access, Address, ConnectParams, CqId, Event, QpAttr, QpConfig, QpState, RecvWr, SendData, SendOp, SendWr, Service,
};
use irnic_transports::time::SEC;
use irnic_transports::wire::Mtu;
use irnic_transports::{Path, Time};

use super::app_model::{BusyPoll, CONVERSATION};
use super::device::DeviceRuntime;
use super::listener::{Listener, Owner};
use super::now;
use super::port::DevicePort;
use super::unit::Unit;
use crate::config::DeviceConfig;
use crate::device::DeviceInfo;
use crate::gid::Interface;

impl DevicePort for MemPort {
    fn host_counters(&self) -> HostCounters {
        HostCounters::default()
    }

    fn claim_service(&self, _service: u64) -> std::io::Result<Option<ServiceClaim>> {
        Ok(None)
    }
}

/// Ignores all events.
struct Deaf;

impl Listener for Deaf {
    fn event(&self, _event: Event) {}
}

/// One of two connected queue pairs.
struct End {
    device: DeviceRuntime,
    unit: Arc<Unit>,
    owner: Owner,
    cq: CqId,
    qpn: u32,
}

/// Returns the properties of a device on the loopback interface.
pub(super) fn info() -> DeviceInfo {
    let loopback = Interface {
        name: "lo".into(),
        index: 1,
        up: true,
        loopback: true,
        mtu: 65536,
        mac: [0; 6],
        addresses: vec!["127.0.0.1".parse().unwrap()],
    };
    DeviceInfo::new(&DeviceConfig::new("test".into()), &[loopback]).unwrap()
}

fn device(port: impl DevicePort + 'static) -> DeviceRuntime {
    DeviceRuntime::new(info(), Nic::new(NicConfig::default()), Box::new(port), Icrc::Off).unwrap()
}

/// Returns the path from this host to itself.
fn loopback() -> Path {
    Path {
        src: "127.0.0.1".parse().unwrap(),
        dst: "127.0.0.1".parse().unwrap(),
        udp_src: 0xc000,
        traffic_class: 0,
        hop_limit: 64,
    }
}

/// Returns a work request that sends a message.
fn message(data: SendData<'_>, to: Option<Address>) -> SendWr<'_> {
    SendWr { to, ..SendWr::new(0, SendOp::Send, data) }
}

impl End {
    fn new(port: MemPort) -> End {
        End::with_room(port, 16)
    }

    /// Returns an end whose send queue has room for `requests`.
    fn with_room(port: impl DevicePort + 'static, requests: u32) -> End {
        End::of(port, requests, Service::Rc)
    }

    fn of(port: impl DevicePort + 'static, requests: u32, service: Service) -> End {
        let (device, owner) = (device(port), Owner::new());
        let unit = device.first_unit().clone();
        let mut state = unit.lock();
        let transport = unit.info().config.transport;
        let pd = state.nic().alloc_pd().unwrap();
        let cq = state.create_cq(2 * requests + 32, owner, |_| Box::new(Deaf)).unwrap();
        let config = QpConfig { service, sq_sig_all: true, max_send_wr: requests, ..QpConfig::new(pd, cq, transport) };
        let qpn = state.create_qp(&config, owner, |_| Box::new(Deaf)).unwrap();
        drop(state);
        End { device, unit, owner, cq, qpn }
    }

    fn connect(&self, peer: u32) {
        let mut params = ConnectParams::reliable(loopback(), Mtu::B1024, peer);
        params.timeout = 0;
        params.access = Access::REMOTE_WRITE;
        let mut state = self.unit.lock();
        state.nic().connect(self.qpn, &params).unwrap();
        for wr_id in 0..8 {
            state.nic().post_recv(self.qpn, &RecvWr { wr_id, sges: &[] }).unwrap();
        }
    }

    fn send(&self) {
        let wr = message(SendData::Sges(&[]), None);
        let mut state = self.unit.lock_to_post();
        state.nic().post_send(self.qpn, &wr).unwrap();
        self.unit.done(state);
    }

    fn poll(&self) -> usize {
        self.unit.poll(self.cq, 16, |_| ()).unwrap()
    }

    /// Packets sent so far.
    fn sent(&self) -> u64 {
        self.unit.state.lock().nic_port.nic.counters().sent_pkts
    }
}

/// Returns two connected ends; the first has sent a message, and both know what formats their peer supports.
fn conversation() -> [End; 2] {
    let (a, b) = pair();
    let ends = [End::new(a), End::new(b)];
    ends[0].connect(ends[1].qpn);
    ends[1].connect(ends[0].qpn);
    let [a, b] = &ends;
    a.send();
    assert_eq!(b.poll(), 1);
    b.send();
    assert_eq!(a.poll(), 2, "the completion of what was sent, and what came in return");
    a.send();
    ends
}

#[test]
fn an_acknowledgement_leaves_with_the_answer() {
    let [a, b] = conversation();
    let before = b.sent();
    assert!(b.poll() > 0);
    assert_eq!(b.sent(), before, "the application has not answered yet");
    b.send();
    assert_eq!(b.sent(), before + 2);
    assert_eq!(a.poll(), 2);
}

#[test]
fn whoever_looks_again_instead_has_not_kept_the_peer_waiting() {
    let [a, b] = conversation();
    let before = b.sent();
    assert!(b.poll() > 0);
    assert_eq!((b.poll(), b.sent()), (0, before + 1));
    assert_eq!(a.poll(), 1);
}

#[test]
fn the_end_of_a_queue_pair_sends_what_was_held_back() {
    type Ending = fn(&End);
    let endings: [(&str, Ending); 4] = [
        ("destroyed", |end| end.unit.lock().destroy_qp(end.qpn).unwrap()),
        ("reset", |end| {
            let reset = QpAttr { state: Some(QpState::Reset), ..QpAttr::default() };
            end.unit.lock().nic().modify_qp(end.qpn, &reset).unwrap();
        }),
        ("closed with its context", |end| {
            assert!(end.device.abandon(end.owner));
        }),
        ("at the process's exit", |end| drop(end.unit.try_lock_for(Duration::from_secs(1)))),
    ];
    for (how, end) in endings {
        let [a, b] = conversation();
        assert!(b.poll() > 0);
        assert_eq!(a.poll(), 0, "{how}: nothing to see yet");
        end(&b);
        assert_eq!(a.poll(), 1, "{how}");
    }
}

#[test]
fn what_has_come_is_answered_before_a_queue_pair_ends() {
    let [a, b] = conversation();
    drop(b.unit.lock());
    assert_eq!(a.poll(), 0, "nobody has looked yet");
    b.unit.lock_to_end().destroy_qp(b.qpn).unwrap();
    assert_eq!(a.poll(), 1);
}

#[test]
fn an_application_that_does_not_answer_is_answered_for_and_not_waited_for_again() {
    let [a, b] = conversation();
    assert!(b.poll() > 0);
    {
        let mut state = b.unit.state.lock();
        (state.model.answers.due, state.model.answers.hold) = (now(), 1000 * SEC);
    }
    b.unit.run_once(false, &mut BusyPoll::new(Some(0)));
    assert_eq!(a.poll(), 1);
    a.send();
    assert!(b.poll() > 0);
    assert_eq!(a.poll(), 1, "now it leaves at once");
}

#[test]
fn many_packets_at_once_are_acknowledged_at_once() {
    let [a, b] = conversation();
    for _ in 0..CONVERSATION {
        a.send();
    }
    let before = b.sent();
    assert!(b.poll() > CONVERSATION);
    assert!(b.sent() > before);
}

#[test]
fn who_sleeps_on_a_channel_is_not_waited_for() {
    let [a, b] = conversation();
    b.unit.lock().arm_cq(b.cq, Arm::Next).unwrap();
    assert!(b.poll() > 0);
    assert_eq!(a.poll(), 1);
}

/// Makes empty polls sleep from the first that may.
fn oversubscribe(end: &End) {
    end.unit.state.lock().model.empty_polls.oversubscribed_until = Time::NEVER;
}

#[test]
fn a_thread_that_sleeps_finds_what_came_meanwhile() {
    let [a, b] = conversation();
    assert!(b.poll() > 0);
    oversubscribe(&b);
    std::thread::scope(|scope| {
        let polled = scope.spawn(|| std::iter::repeat_with(|| b.poll()).find(|n| *n > 0));
        while !b.unit.state.lock().model.empty_polls.any_sleeps() {
            std::thread::yield_now();
        }
        a.send();
        // As the background thread does when the port rings.
        b.unit.run_once(true, &mut BusyPoll::new(Some(0)));
        assert_eq!(polled.join().unwrap(), Some(1));
    });
    assert!(!b.unit.state.lock().model.empty_polls.any_sleeps());
}

#[test]
fn threads_that_sleep_hear_of_completions_once() {
    let [a, b] = conversation();
    assert!(b.poll() > 0);
    b.unit.state.lock().model.empty_polls.sleeping = 1;
    b.unit.run_once(true, &mut BusyPoll::new(Some(0)));
    assert!(!b.unit.state.lock().ends_sleep(), "nothing has come");
    a.send();
    let mut state = b.unit.state.lock();
    state.progress(now());
    assert!(state.ends_sleep() && !state.ends_sleep());
    state.model.empty_polls.sleeping = 0;
    drop(state);
    a.send();
    assert!(b.poll() > 0);
    assert!(!b.unit.state.lock().ends_sleep(), "nobody sleeps");
}

#[test]
fn while_a_thread_sleeps_after_empty_polls_peers_ring_as_if_on_a_channel() {
    let [a, b] = conversation();
    assert!(b.poll() > 0);
    let polls_again = |sleeping| {
        let mut state = b.unit.state.lock();
        state.model.empty_polls.sleeping = sleeping;
        // The application counts as having polled the port, whatever keeps this thread from its core.
        state.model.last_progress = Time(now().0 + SEC);
        drop(state);
        a.send();
        let sent = b.sent();
        b.unit.run_once(false, &mut BusyPoll::new(Some(0)));
        b.sent() > sent
    };
    assert!(!polls_again(0), "the polling thread finds it itself");
    assert!(polls_again(1), "nobody else looks");
}
