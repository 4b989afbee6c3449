//! Serialization and propagation to the nanosecond, and the ideal that they make.

use irnic_fabric::sim::HeaderBytes;
use irnic_fabric::topology::Topology;
use irnic_transports::wire::Mtu;

use crate::kit::*;

const PRESETS: [&str; 5] = ["roce", "irn", "irn-go-back-n", "irn-no-bdp", "irn-no-sack"];

/// (bit/s, or Gbit/s, and ns) each.
type Links<'a> = &'a [(u64, u64)];

/// A chain of links with a host at either end.
fn chain(links: Links<'_>) -> Topology {
    let n = links.len() as u32;
    let node = |at: u32| {
        if at == 0 {
            0
        } else if at == n {
            1
        } else {
            1 + at
        }
    };
    let links: Vec<_> = (0..).zip(links).map(|(at, &(rate, delay))| (node(at), node(at + 1), rate, delay)).collect();
    network(2, n - 1, &links)
}

#[test]
fn packets_arrive_when_the_clock_says() {
    // 10,000 bits: 1000, 400, 250, 100 ns at 10, 25, 40, 100 Gbit/s. Half a packet of payload is 738 bytes: 147.6 ns at
    // 40.
    let cases: &[(Links<'_>, u64, u64)] = &[
        // One link of 40 Gbit/s and 2 µs: 250 + 2000.
        (&[(40, 2000)], 1024, 2250),
        // Ten packets: 10 · 250 + 2000.
        (&[(40, 2000)], 10_240, 4500),
        // Two links: stored and forwarded, 250 more.
        (&[(40, 2000), (40, 2000)], 1024, 4500),
        (&[(40, 2000), (40, 2000)], 10_240, 6750),
        // Nine and a half: the last has left the first link after 9 · 250 + 147.6 ns and waits there for the ninth,
        // which ends at 10 · 250: 2500 + 147.6, rounded up, and the delays.
        (&[(40, 2000), (40, 2000)], 9 * 1024 + 512, 2648 + 4000),
        // Four and six links of the fat-tree.
        (&[(40, 2000); 4], 1024, 4 * 2250),
        (&[(40, 2000); 6], 1024, 6 * 2250),
        (&[(40, 2000); 6], 10_240, 6 * 2250 + 9 * 250),
        // The slowest link sets the pace: the first packet takes 100 + 1000 + 250 + 100, nine more come 1000 apart.
        (&[(100, 500), (10, 7), (40, 1000), (100, 3)], 10_240, 1450 + 9000 + 1510),
        // Slower link by link, the last sets the pace: 100 + 250 + 400 + 1000, and 4 · 1000.
        (&[(100, 1), (40, 1), (25, 1), (10, 1)], 5 * 1024, 1750 + 4000 + 4),
        // Faster and faster: 1000 + 400 + 250 + 100.
        (&[(10, 1), (25, 1), (40, 1), (100, 1)], 5 * 1024, 5000 + 750 + 4),
        // One byte: 227 bytes are 45.4 ns at 40 Gbit/s, rounded up at each switch.
        (&[(40, 10), (40, 10)], 1, 46 + 10 + 46 + 10),
    ];
    for (links, bytes, expected) in cases {
        let links: Vec<_> = links.iter().map(|&(rate, delay)| (rate * G, delay)).collect();
        for preset in PRESETS {
            for switch in deep() {
                let mut flow = flow(0, 1, 1);
                flow.bytes = *bytes;
                let outcome = complete(config(chain(&links), vec![flow], switch, preset));
                assert_eq!(fcts(&outcome), [*expected], "{preset}, {bytes} bytes over {links:?}");
                assert_eq!(ideals(&outcome), [*expected], "{preset}, {bytes} bytes over {links:?}");
            }
        }
    }
}

#[test]
fn real_headers_take_their_bytes() {
    // Around a packet: Ethernet 14 + IPv4 20 + UDP 8 + BTH 12 + ICRC 4 + frame check sequence 4 = 62. At 8 Gbit/s a
    // byte is 1 ns.
    let roce = 62 + 16 + 1024 + (62 + 1024) + (62 + 4 + 104);
    let irn = 78 + 1024 + 78 + 1024 + (78 + 8 + 4 + 104);
    for (preset, expected) in [("roce", roce), ("irn", irn)] {
        let mut flow = flow(0, 1, 1);
        // The last packet has 101 bytes, padded to 104.
        flow.bytes = 2 * 1024 + 101;
        let c = with! {
            headers: HeaderBytes::Real,
            ..config(chain(&[(8 * G, 0)]), vec![flow], deep()[0].clone(), preset)
        };
        assert_eq!(fcts(&complete(c)), [expected], "{preset}");
    }
}

/// The closed form of `ideal` against the simulation, where both have to round: odd rates, all headers, all MTUs.
#[test]
fn an_empty_network_is_ideal() {
    let ways: [Links<'_>; 6] = [
        &[(40 * G, 2000); 2],
        &[(100 * G, 1000); 4],
        &[(100 * G, 600); 6],
        &[(10 * G, 13), (100 * G, 1), (25 * G, 999), (40 * G, 0)],
        &[(3_000_000_007, 5), (2_999_999_999, 5), (100 * G, 5)],
        &[(100 * G, 100), (33_333_333_333, 100), (100 * G, 100), (40 * G, 7)],
    ];
    for links in ways {
        for preset in PRESETS {
            // Caps below the bandwidth-delay product would make the sender wait, which the ideal leaves out.
            let preset = if preset.contains("bdp") || preset == "roce" {
                preset.to_owned()
            } else {
                format!("{preset},cap=4096")
            };
            for headers in [HeaderBytes::Real, HeaderBytes::Fixed(0), HeaderBytes::Fixed(48)] {
                for mtu in [Mtu::B256, Mtu::B1024, Mtu::B4096] {
                    for bytes in [0, 1, 255, 1024, 1025, 30_000, 99_999, 300_000] {
                        let mut flow = flow(0, 1, 1);
                        (flow.bytes, flow.start) = (bytes, 12_345);
                        let mut c = config(chain(links), vec![flow], deep()[0].clone(), &preset);
                        (c.headers, c.setups[0].mtu) = (headers, mtu);
                        if headers == HeaderBytes::Fixed(0) && bytes == 0 {
                            continue;
                        }
                        let outcome = complete(c);
                        assert_eq!(fcts(&outcome), ideals(&outcome), "{preset} {headers:?} {mtu:?} {bytes} {links:?}");
                        assert_eq!(outcome.records[0].retransmitted, 0);
                    }
                }
            }
        }
    }
}

#[test]
fn a_cap_below_the_bandwidth_delay_product_takes_longer_than_the_ideal() {
    // A round trip: 250 there, 45.2 back (226 bytes), rounded up, and 2 · 10,000 ns: 20,296. A cap of 10 sends as many
    // in each, so that 40 packets end after three round trips, ten packets and a delay: 3 · 20,296 + 2500 + 10,000.
    let outcome = complete(config(chain(&[(40 * G, 10_000)]), vec![flow(0, 1, 40)], deep()[0].clone(), "irn,cap=10"));
    assert_eq!((fcts(&outcome), ideals(&outcome)), (vec![73_388], vec![20_000]));
}

#[test]
fn a_change_of_rate_holds_from_the_next_packet_on() {
    use irnic_fabric::sim::{Change, LinkChange};
    // At 40 Gbit/s packets end at 250, 500 … The fifth, begun at 1000, ends at 1250; five more take 1000 each at 10
    // Gbit/s.
    let mut c = config(chain(&[(40 * G, 100)]), vec![flow(0, 1, 10)], deep()[0].clone(), "roce");
    c.changes = vec![LinkChange { at: 1_100, link: 0, what: Change::Rate(10 * G) }];
    assert_eq!(fcts(&complete(c)), [1250 + 5 * 1000 + 100]);
}

#[test]
fn an_input_sends_to_as_many_outputs_at_a_time_as_its_crossbar_allows() {
    // By 40 Gbit/s come three packets, for three outputs of 10 Gbit/s, each of which takes 1000 ns for one.
    for (speedup, expected) in [
        (None, [3250, 3500, 3750]),
        (Some(3), [3250, 3500, 3750]),
        // The third waits for the first.
        (Some(2), [3250, 3500, 4250]),
        (Some(1), [3250, 4250, 5250]),
    ] {
        let mut switch = input_queued(DEEP, None);
        let irnic_fabric::switch::SwitchConfig::InputQueued(c) = &mut switch else { unreachable!() };
        c.speedup = speedup;
        let flows = (1..4).map(|dst| flow(0, dst, 1)).collect();
        let outcome = complete(config(star(&[40 * G, 10 * G, 10 * G, 10 * G]), flows, switch, "roce"));
        assert_eq!(fcts(&outcome), expected, "{speedup:?}");
    }
}

#[test]
fn an_input_that_is_busy_does_not_keep_an_output_from_another() {
    // Host 0 keeps output 2 busy for 1000 ns a packet; what host 1 has for output 3 need not wait, and what host 0 has
    // for it must.
    let mut switch = input_queued(DEEP, None);
    let irnic_fabric::switch::SwitchConfig::InputQueued(c) = &mut switch else { unreachable!() };
    c.speedup = Some(1);
    let late = |start, flow| irnic_fabric::workload::Flow { start, ..flow };
    let flows = vec![flow(0, 2, 1), late(100, flow(0, 3, 1)), late(500, flow(1, 3, 1))];
    let outcome = complete(config(star(&[40 * G, 40 * G, 10 * G, 10 * G]), flows, switch, "roce"));
    // The third is there at 500 + 1250 and goes at once, until 2750; the second may go from 2250 on, when output 3 is
    // busy.
    assert_eq!(fcts(&outcome), [3250, 4750 - 100, 3750 - 500]);
}

#[test]
fn a_queue_pair_sends_a_quantum_in_its_turn() {
    // Two of four packets each, A being in the ring again when B comes: AAAABBBB, AAABBBAB, AABABABB. A's last is the
    // 4th, 7th, 6th.
    for (quantum, first) in [(4, 4), (3, 7), (1, 6)] {
        let c = config(star(&[40 * G; 3]), vec![flow(0, 1, 4), flow(0, 2, 4)], input_queued(DEEP, None), "roce");
        let outcome = complete(with! { quantum, ..c });
        assert_eq!(fcts(&outcome), [first * 250 + 2250, 8 * 250 + 2250], "{quantum}");
    }
}
