//! Switches that trim (NDP §3.1), and ways that senders choose, on networks small enough to be worked out by hand.

use irnic_fabric::generator::{Gap, Generator, Received, Stream};
use irnic_fabric::network::{Network, NetworkConfig, Routing};
use irnic_fabric::switch::{Cut, SwitchConfig, TrimmingConfig};
use irnic_fabric::topology::Topology;

use crate::kit::*;

/// Bytes of a full packet, and of one without its payload: 46 around, BTH, DETH and ICRC.
const FULL: u32 = 9_070;
const HEADER: u32 = 70;

fn trimming(data: u64, headers: u64) -> TrimmingConfig {
    with! { headers, ..TrimmingConfig::new(data) }
}

/// Runs streams of hosts at one switch until `until`, or to the end. The accounts hold.
fn go(topology: Topology, switch: TrimmingConfig, streams: Vec<Vec<Stream>>, seed: u64, until: u64) -> Net {
    stream_until(with! { seed, ..NetworkConfig::new(topology, SwitchConfig::Trimming(switch)) }, streams, until)
}

fn at_line_rate(dst: u32, packets: u64) -> Stream {
    Stream::new(dst, FULL, packets, Gap::Constant(0))
}

/// `n` hosts that send to host `n`, which sends nothing, at 10 Gbit/s.
fn incast(n: u32, packets: u64, switch: TrimmingConfig, seed: u64, until: u64) -> Net {
    let mut streams: Vec<_> = (0..n).map(|_| vec![at_line_rate(n, packets)]).collect();
    streams.push(Vec::new());
    go(star(&vec![10 * G; n as usize + 1]), switch, streams, seed, until)
}

#[test]
fn what_does_not_fit_loses_its_payload_and_arrives_all_the_same() {
    for cut in [Cut::Coin, Cut::Arriving, Cut::InPlace] {
        let switch = with! { cut, ..TrimmingConfig::new(8 * u64::from(FULL)) };
        let net = incast(2, 100, switch, 1, u64::MAX);
        let (t, r) = (net.totals(), *net.endpoint(2).received());
        assert_eq!((r.packets, t.dropped_packets, t.returned_packets), (200, 0, 0), "{cut:?}");
        // Two come for each that goes; eight wait at the end.
        let whole = |host| net.endpoint(2).whole_from(host);
        assert_eq!((whole(0) + whole(1), whole(2)), (200 - r.trimmed, 0), "{cut:?}");
        assert!((88..=96).contains(&t.trimmed_packets) && r.trimmed == t.trimmed_packets, "{cut:?}: {t:?}");
        assert_eq!(t.trimmed_bytes, t.trimmed_packets * u64::from(FULL - HEADER));
        let counters = link(&net, 3, 2);
        assert_eq!((counters.trimmed, counters.packets), (t.trimmed_packets, 200));
        assert!(counters.peak <= 8 * u64::from(FULL) + 100 * u64::from(HEADER));
    }
}

/// The queue has its length with the packet that is being sent: a burst of twenty meets room for eight, of which the
/// first leaves at once and so makes room only when it has left.
#[test]
fn a_queue_counts_the_packet_that_is_being_sent() {
    // Twenty hosts, a packet each, all at the switch at the same time.
    let switch = with! { cut: Cut::Arriving, ..TrimmingConfig::new(8 * u64::from(FULL)) };
    let net = incast(20, 1, switch, 1, u64::MAX);
    assert_eq!(net.endpoint(20).received().trimmed, 12);
    let one_less = with! { cut: Cut::Arriving, ..trimming(8 * u64::from(FULL) - 1, 1 << 20) };
    assert_eq!(incast(20, 1, one_less, 1, u64::MAX).endpoint(20).received().trimmed, 13);
}

/// Ten headers for each full packet while both wait, by packets and not by bytes.
#[test]
fn headers_have_ten_turns_of_eleven() {
    for (ratio, n) in [(10, 200), (3, 60)] {
        // So many senders that headers always wait, until they stop: what goes is by turns.
        let switch = with! { ratio, returns: false, ..trimming(8 * u64::from(FULL), 1 << 40) };
        let net = incast(n, 200, switch, 1, 1_400_000);
        let r = net.endpoint(n).received();
        let full = (r.packets - r.trimmed) as f64;
        let headers = r.trimmed as f64 / full;
        assert!((headers / f64::from(ratio) - 1.0).abs() < 0.02, "{headers} for each packet, not {ratio}");
    }
}

/// What unresponsive senders leave of a link (NDP figure 2): with headers in the queue of the packets it goes to
/// nothing as they become more, by (P − n·h) / (P − h), and with a queue of their own it does not.
#[test]
fn goodput_collapses_with_headers_in_the_same_queue_only() {
    let goodput = |n: u32, cut| {
        let switch = with! { cut, returns: false, ..trimming(8 * u64::from(FULL), 8 * u64::from(FULL)) };
        // Senders that do not keep step.
        let ns = u64::from(FULL) * 8 / 10;
        let mut streams: Vec<_> = (0..n)
            .map(|host| vec![with! { start: u64::from(host) * ns / u64::from(n), ..at_line_rate(n, 1_000) }])
            .collect();
        streams.push(Vec::new());
        let net = go(star(&vec![10 * G; n as usize + 1]), switch, streams, 3, 4_000_000);
        let r: &Received = net.endpoint(n).received();
        let line = 10e9 * 4e-3 / 8.0 / f64::from(FULL);
        (r.packets - r.trimmed) as f64 / line
    };
    let (p, h) = (f64::from(FULL), f64::from(HEADER));
    for n in [20, 60, 100] {
        let share = (p - f64::from(n) * h) / (p - h);
        let cp = goodput(n, Cut::InPlace);
        assert!((cp - share).abs() < 0.03, "{n} senders: {cp}, not {share}");
        // At worst ten headers go with each packet.
        let ndp = goodput(n, Cut::Coin);
        assert!(ndp > p / (p + 10.0 * h) - 0.02, "{n} senders: {ndp}");
    }
}

/// What arrives whole of each of four senders that keep step, whose packets come one after the other at the same time.
fn survivors(cut: Cut, seed: u64) -> [u64; 4] {
    let switch = with! { cut, ..TrimmingConfig::new(8 * u64::from(FULL)) };
    // Four receivers behind one slow link, so that they can be told apart.
    let mut links = vec![(8, 9, 10 * G, 0)];
    links.extend((0..4).map(|host| (host, 8, 10 * G, 0)));
    links.extend((4..8).map(|host| (host, 9, 10 * G, 0)));
    let streams = (0..8).map(|host| if host < 4 { vec![at_line_rate(host + 4, 1_000)] } else { vec![] }).collect();
    let net = go(network(8, 2, &links), switch, streams, seed, u64::MAX);
    [4, 5, 6, 7].map(|host| {
        let r = net.endpoint(host).received();
        r.packets - r.trimmed
    })
}

/// The last of `n` survives one toss of the coin, the one before it two, and so on: nobody is shut out. If always the
/// arriving packet loses, only the first ever gets through.
#[test]
fn a_coin_shuts_out_no_sender_that_keeps_step() {
    let coin = survivors(Cut::Coin, 5);
    let all: u64 = coin.iter().sum();
    for (got, share) in coin.into_iter().zip([0.125, 0.125, 0.25, 0.5]) {
        let got = got as f64 / all as f64;
        assert!((got - share).abs() < 0.04, "{coin:?}: {got}, not {share}");
    }
    let arriving = survivors(Cut::Arriving, 5);
    assert!(arriving[0] > 950 && arriving[1..].iter().all(|n| *n < 20), "{arriving:?}");
}

/// A header that finds no room goes back once, with its addresses exchanged; what does not fit then is dropped.
#[test]
fn headers_without_room_go_back_to_their_sender() {
    // Room for four headers.
    let switch = with! { cut: Cut::Arriving, ..trimming(8 * u64::from(FULL), 4 * u64::from(HEADER)) };
    let net = incast(20, 1, switch.clone(), 1, u64::MAX);
    let t = net.totals();
    let back: u64 = (0..20).map(|host| net.endpoint(host).received().packets).sum();
    assert_eq!((net.endpoint(20).received().packets, back), (12, 8));
    assert_eq!((t.returned_packets, t.dropped_packets, link(&net, 21, 20).returned), (8, 0, 8));
    assert!((0..20).all(|host| net.endpoint(host).received().packets <= 1), "each to its sender");
    let off = with! { returns: false, ..switch };
    let net = incast(20, 1, off, 1, u64::MAX);
    assert_eq!((net.totals().returned_packets, net.totals().dropped_packets), (0, 8));
}

/// Packets without payload are control, whoever sends them: they go before data, and never go back.
#[test]
fn what_has_no_payload_is_never_sent_back() {
    let switch = trimming(8 * u64::from(FULL), 4 * u64::from(HEADER));
    let short = |dst| Stream::new(dst, HEADER, 1, Gap::Constant(0));
    let mut streams: Vec<_> = (0..20).map(|_| vec![short(20)]).collect();
    streams.push(Vec::new());
    let net = go(star(&[10 * G; 21]), switch, streams, 1, u64::MAX);
    assert_eq!((net.totals().returned_packets, net.totals().dropped_packets), (0, 16));
}

#[test]
fn chance_decides_the_same_way_in_every_run_of_a_seed() {
    assert_eq!(survivors(Cut::Coin, 1), survivors(Cut::Coin, 1));
    assert_ne!(survivors(Cut::Coin, 1), survivors(Cut::Coin, 2));
}

/// A fat-tree's 9 ways between pods: each label is another, all are used alike.
#[test]
fn labels_name_ways() {
    let packets = 900;
    let run = |routing| {
        let topology = Topology::fat_tree(6, 40 * G, 1_000);
        let last = topology.hosts - 1;
        let mut streams: Vec<Vec<Stream>> = (0..topology.hosts).map(|_| Vec::new()).collect();
        // A generator's label is the number of its stream, below: nine streams, as many ways.
        streams[0] = (0..9).map(|_| Stream::new(last, 1_250, packets / 9, Gap::Constant(0))).collect();
        let hosts = streams.into_iter().map(|streams| Generator::labelling(streams, 1)).collect();
        let switch = deep()[0].clone();
        let config = with! { routing, ..NetworkConfig::new(topology, switch) };
        let mut net = Network::new(config, hosts, ()).unwrap();
        net.run_until(u64::MAX);
        net.check().unwrap();
        assert_eq!(net.endpoint(last).received().packets, packets);
        // What each core has passed on.
        let first_core = 54 + 36;
        let mut by_core = [0u64; 9];
        net.links()
            .filter(|l| l.from >= first_core)
            .for_each(|l| by_core[(l.from - first_core) as usize] += l.counters.packets);
        by_core
    };
    assert_eq!(run(Routing::Source), [100; 9], "each label goes another way");
    let random = run(Routing::Random);
    assert!(random.iter().all(|n| (60..=140).contains(n)) && random != [100; 9], "{random:?}");
}
