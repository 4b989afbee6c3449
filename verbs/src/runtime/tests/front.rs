//! A front other than libibverbs: an agent that exchanges datagrams of 256 bytes, like a connection manager its MADs
//! (IBA 13.4.1). It sleeps until its listeners are notified.

use irnic_nic::Mr;
use irnic_transports::qp::{PdId, Sge, SrqId, Wc, WcOpcode, WcStatus};
use parking_lot::{Condvar, Mutex};

use super::*;

/// Bytes of a MAD.
const MAD: usize = 256;
/// Bytes before a datagram in its receive buffer: a GRH, or 20 undefined bytes and an IPv4 header.
const GRH: usize = 40;
/// The Q_Key of QP1 (IBA 10.2.5).
const QKEY: u32 = 0x8001_0000;
/// Time limit of a test's waits.
const PATIENCE: Duration = Duration::from_secs(30);

/// Notification of an agent's listener.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Notification {
    Completion,
    Event(Event),
}

/// Pending notifications, and the condition to wait for them.
#[derive(Default)]
struct Inbox {
    notifications: Mutex<Vec<Notification>>,
    arrived: Condvar,
}

impl Inbox {
    fn put(&self, notification: Notification) {
        self.notifications.lock().push(notification);
        self.arrived.notify_one();
    }
}

/// Puts notifications into an agent's inbox.
struct Ear(Arc<Inbox>);

impl Listener for Ear {
    fn completion(&self) {
        self.0.put(Notification::Completion);
    }

    fn event(&self, event: Event) {
        self.0.put(Notification::Event(event));
    }
}

/// A datagram queue pair with its own queues, each with a listener.
struct Agent {
    unit: Arc<Unit>,
    owner: Owner,
    inbox: Arc<Inbox>,
    pd: PdId,
    cq: CqId,
    srq: SrqId,
    qpn: u32,
    room: Mr,
}

impl Agent {
    /// Creates an agent on a device, with one receive buffer posted.
    fn new(device: &DeviceRuntime) -> Agent {
        let (unit, owner, inbox) = (device.first_unit().clone(), Owner::new(), Arc::<Inbox>::default());
        let (pd, room) = {
            let mut memory = device.lock_memory();
            let pd = memory.nic().alloc_pd().unwrap();
            (pd, memory.nic().alloc_mr(pd, (GRH + MAD) as u64, Access::LOCAL_WRITE).unwrap())
        };
        let mut state = unit.lock();
        let cq = state.create_cq(16, owner, |_| Box::new(Ear(inbox.clone()))).unwrap();
        let srq = state.create_srq(pd, None, 4, 1, owner, |_| Box::new(Ear(inbox.clone()))).unwrap();
        let config = QpConfig {
            xrcd: None,
            service: Service::Ud,
            pd,
            send_cq: cq,
            recv_cq: cq,
            srq: Some(srq),
            max_send_wr: 4,
            max_recv_wr: 0,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline: MAD as u32,
            sq_sig_all: false,
            transport: device.info().config.transport,
        };
        let qpn = state.create_qp(&config, owner, |_| Box::new(Ear(inbox.clone()))).unwrap();
        state.nic().connect(qpn, &ConnectParams::datagram(QKEY)).unwrap();
        let sges = [Sge { addr: room.addr, len: (GRH + MAD) as u32, lkey: room.lkey }];
        state.nic().post_srq_recv(srq, &RecvWr { wr_id: 7, sges: &sges }).unwrap();
        drop(state);
        Agent { unit, owner, inbox, pd, cq, srq, qpn, room }
    }

    fn send(&self, to: u32, mad: &[u8; MAD]) {
        let address = Address { path: loopback(), qpn: to, qkey: QKEY };
        let wr = message(SendData::Inline(mad), Some(address));
        let mut state = self.unit.lock_to_post();
        state.nic().post_send(self.qpn, &wr).unwrap();
        self.unit.done(state);
    }

    /// Sleeps until a listener is notified, and returns all notifications.
    fn sleep(&self, device: &DeviceRuntime) -> Vec<Notification> {
        device.prepare_to_block(None, || true);
        let mut notifications = self.inbox.notifications.lock();
        while notifications.is_empty() {
            assert!(!self.inbox.arrived.wait_for(&mut notifications, PATIENCE).timed_out(), "nobody heard anything");
        }
        std::mem::take(&mut *notifications)
    }

    fn arm(&self) {
        let mut state = self.unit.lock();
        state.arm_cq(self.cq, Arm::Next).unwrap();
        self.unit.done(state);
    }

    fn poll(&self) -> Option<Wc> {
        let mut found = None;
        self.unit.poll(self.cq, 1, |wc| found = Some(*wc)).unwrap();
        found
    }
}

#[test]
fn a_front_in_rust_moves_a_message_and_hears_of_completions_and_events() {
    let (a, b) = pair();
    let devices = [device(a), device(b)];
    devices.iter().for_each(|device| device.start().unwrap());
    let [a, b] = [Agent::new(&devices[0]), Agent::new(&devices[1])];
    assert!(b.unit.lock().nic().qp_numbers().contains(&b.qpn));
    b.unit.lock().nic().modify_srq(b.srq, None, Some(1)).unwrap();
    b.arm();
    let mad = std::array::from_fn(|i| i as u8);
    a.send(b.qpn, &mad);

    let mut notifications = b.sleep(&devices[1]);
    while notifications.len() < 2 {
        notifications.extend(b.sleep(&devices[1]));
    }
    notifications.sort_by_key(|notification| *notification == Notification::Completion);
    assert_eq!(notifications, [Notification::Event(Event::SrqLimitReached(b.srq)), Notification::Completion]);
    let wc = b.poll().unwrap();
    assert_eq!((wc.wr_id, wc.status, wc.opcode), (7, WcStatus::Success, WcOpcode::Recv));
    assert_eq!((wc.byte_len as usize, wc.src_qp), (GRH + MAD, a.qpn));
    assert_eq!(b.unit.lock().nic().bytes(&b.room).unwrap()[GRH..], mad);

    // An event of a queue pair, raised by a call of the front's own.
    let mut state = a.unit.lock();
    let drain = QpAttr { state: Some(QpState::Sqd), sqd_event: true, ..QpAttr::default() };
    state.nic().modify_qp(a.qpn, &drain).unwrap();
    a.unit.done(state);
    assert_eq!(a.sleep(&devices[0]), [Notification::Event(Event::SqDrained(a.qpn))]);
}

#[test]
fn what_one_front_leaves_stops_without_touching_another() {
    let (port, _peer) = pair();
    let device = device(port);
    let [leaves, stays] = [Agent::new(&device), Agent::new(&device)];
    leaves.arm();
    stays.arm();
    assert!(device.abandon(leaves.owner));
    assert!(!device.abandon(leaves.owner), "it has nothing any more");
    let mut state = stays.unit.lock();
    let [reset, ready] = [&leaves, &stays].map(|agent| state.nic().qp(agent.qpn).unwrap().state());
    assert_eq!((reset, ready), (QpState::Reset, QpState::Rts));
    // Completions of both: a queue pair in ERR flushes what is posted to it.
    for agent in [&leaves, &stays] {
        let to = QpAttr { state: Some(QpState::Err), ..QpAttr::default() };
        state.nic().modify_qp(agent.qpn, &to).unwrap();
    }
    drop(state);
    leaves.send(stays.qpn, &[0; MAD]);
    stays.send(leaves.qpn, &[0; MAD]);
    assert_eq!(*leaves.inbox.notifications.lock(), []);
    assert!(stays.inbox.notifications.lock().contains(&Notification::Completion));
    assert_eq!(stays.unit.state.lock().model.waiting_cqs, 0, "both have stopped waiting");
}

#[test]
fn an_object_that_is_destroyed_is_heard_of_no_more() {
    let (port, _peer) = pair();
    let device = device(port);
    let agent = Agent::new(&device);
    agent.arm();
    let mut state = agent.unit.lock();
    state.destroy_qp(agent.qpn).unwrap();
    state.destroy_srq(agent.srq).unwrap();
    state.destroy_cq(agent.cq).unwrap();
    assert_eq!(state.model.waiting_cqs, 0);
    drop(state);
    let mut memory = device.lock_memory();
    memory.nic().dereg_mr(&agent.room).unwrap();
    memory.nic().dealloc_pd(agent.pd).unwrap();
    drop(memory);
    assert!(!device.abandon(agent.owner));
    assert_eq!(Arc::strong_count(&agent.inbox), 1, "its listeners are gone with it");
}
