//! Low priority (RC3): sent after everything else of the NIC, and each priority is paused separately.

use irnic_nic::{Mr, NicConfig};
use irnic_transports::Time;
use irnic_transports::qp::{SendData, SendWr, Sge};

use crate::common::{Connection, End, Network, connect, create, region};

const MTU: u32 = 1024;

/// A NIC of two queue pairs with four low priorities, of 2, 20, 200 and more packets, and one without.
struct Sender {
    net: Network,
    ends: [End; 3],
    regions: Vec<[Mr; 2]>,
}

impl Sender {
    fn new() -> Sender {
        let mut net = Network::new(2, "delay 1us", 1, &NicConfig::default());
        let mut regions = Vec::new();
        let ends = ["iwarp,rc3=2,rc3-levels=4", "iwarp,rc3=2,rc3-levels=4", "iwarp"].map(|transport| {
            let c = Connection { transport: [transport.parse().unwrap(); 2], ..Connection::default() };
            let ends = [create(&mut net, 0, &c, 0, None), create(&mut net, 1, &c, 1, None)];
            connect(&mut net, &c, ends);
            regions.push([region(&mut net, ends[0], 64 * 1024, |_| 1), region(&mut net, ends[1], 64 * 1024, |_| 2)]);
            ends[0]
        });
        Sender { net, ends, regions }
    }

    fn write(&mut self, which: usize, packets: u32) {
        let [from, to] = &self.regions[which];
        let sges = [Sge { addr: from.addr, len: packets * MTU, lkey: from.lkey }];
        let wr = SendWr::write(0, SendData::Sges(&sges), to.addr, to.rkey);
        self.net.nics[0].post_send(self.ends[which].qpn, &wr).unwrap();
    }

    /// Sends `budget` packets: returns sending queue pair and priority of each.
    fn sent(&mut self, budget: usize) -> Vec<(usize, u8)> {
        let mut sent = Vec::new();
        let ends = self.ends;
        self.net.nics[0].poll_transmit(Time(1_000_000), budget, |packet| {
            let which = ends.iter().position(|end| end.qpn == packet.sideband.src_qp).unwrap();
            assert_eq!(packet.headers.bth.low, packet.path.priority() < 7 && which < 2);
            sent.push((which, packet.path.priority()));
            true
        });
        sent
    }
}

fn run(which: usize, priority: u8, n: usize) -> Vec<(usize, u8)> {
    vec![(which, priority); n]
}

#[test]
fn low_priority_leaves_when_no_queue_pair_has_anything_else() {
    let mut sender = Sender::new();
    sender.write(0, 30);
    sender.write(1, 5);
    assert_eq!(sender.sent(9), [(0, 7), (1, 7), (0, 7), (1, 7), (0, 7), (1, 7), (0, 7), (1, 7), (0, 6)]);
    // Packets within a window go first, whatever their priority in the network.
    sender.write(2, 6);
    assert_eq!(sender.sent(5), [run(2, 0, 4), run(1, 6, 1)].concat());
    // The queue pairs of one priority take turns; the next begins when it is done.
    assert_eq!(sender.sent(100), [run(0, 6, 1), run(0, 5, 20), run(0, 4, 4)].concat());
    assert!(!sender.net.nics[0].wants_tx());
}

#[test]
fn each_low_priority_is_paused_alone() {
    let mut sender = Sender::new();
    sender.write(0, 30);
    sender.net.nics[0].set_stopped(1 << 5);
    // The next packet waits, not the queue pair.
    assert_eq!(sender.sent(100), [run(0, 7, 4), run(0, 6, 2)].concat());
    assert!(!sender.net.nics[0].wants_tx());
    sender.write(1, 5);
    sender.net.nics[0].set_stopped(1 << 7);
    // A paused window does not hold back lower priorities.
    assert_eq!(sender.sent(3), [run(1, 6, 2), run(0, 5, 1)].concat());
    sender.net.nics[0].set_stopped(0);
    assert_eq!(sender.sent(100), [run(1, 7, 4), run(0, 5, 19), run(0, 4, 4)].concat());
}

#[test]
fn a_queue_pair_that_is_destroyed_leaves_nothing_behind() {
    let mut sender = Sender::new();
    sender.write(0, 30);
    assert_eq!(sender.sent(5).len(), 5);
    let nic = &mut sender.net.nics[0];
    assert!(!nic.is_quiet(sender.ends[0].qpn));
    nic.destroy_qp(sender.ends[0].qpn).unwrap();
    assert!(!nic.wants_tx());
}

#[test]
fn a_rate_limit_holds_low_priority_back_as_well() {
    let mut sender = Sender::new();
    let (now, qpn) = (Time(1_000_000), sender.ends[0].qpn);
    // A packet in 10 us.
    sender.net.nics[0].set_rate(now, qpn, u64::from(MTU) * 8 * 100_000, MTU).unwrap();
    sender.write(0, 7);
    let mut times = Vec::new();
    let mut at = now;
    while times.len() < 7 {
        let nic = &mut sender.net.nics[0];
        nic.on_deadline(at);
        nic.poll_transmit(at, 100, |packet| {
            times.push((at.0 - now.0, packet.path.priority()));
            true
        });
        at = nic.next_deadline().max(at);
    }
    let gaps: Vec<u64> = times.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    assert!(gaps.iter().all(|gap| (9_000..=11_000).contains(gap)), "{times:?}");
    assert_eq!(times.iter().map(|(_, priority)| *priority).collect::<Vec<_>>(), [7, 7, 7, 7, 6, 6, 5]);
}
