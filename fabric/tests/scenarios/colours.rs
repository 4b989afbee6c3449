//! Colours of packets (TLT, §4): red ones have a threshold of their own, and nobody hears of those above it.

use irnic_fabric::generator::{Gap, Stream};
use irnic_fabric::network::NetworkConfig;
use irnic_fabric::switch::{SharedBufferConfig, SharedPfc, SwitchConfig};
use irnic_transports::Colour;

use crate::kit::*;

/// Bytes of a packet, as TLT §4.2 counts them.
const PACKET: u64 = 1_500;

fn coloured(buffer: u64, colour: Option<u64>, pfc: Option<SharedPfc>) -> SharedBufferConfig {
    with! { colour, pfc, ..SharedBufferConfig::new(buffer, PACKET as u32) }
}

/// Runs streams of hosts at one switch until `until`, or to the end. The accounts hold.
fn go(rates: &[u64], switch: SharedBufferConfig, streams: Vec<Vec<Stream>>, until: u64) -> Net {
    stream_until(NetworkConfig::new(star(rates), SwitchConfig::SharedBuffer(switch)), streams, until)
}

fn stream(dst: u32, packets: u64, colour: Colour, start: u64) -> Stream {
    with! { colour, start, ..Stream::new(dst, PACKET as u32, packets, Gap::Constant(0)) }
}

/// Packets that are green and found room at each of `m` outputs, which hold all red ones that they may before.
fn green_admitted(m: u32, buffer: u64, threshold: u64) -> Vec<u64> {
    // Red packets of a length that fills the threshold to the byte.
    const RED: u64 = 1_250;
    let (red, green) = (threshold / RED + 50, 2 * buffer / PACKET / u64::from(m));
    // Links of receivers that are too slow to matter.
    let rates: Vec<u64> = (0..2 * m).map(|host| if host < m { 40 * G } else { 1_000_000 }).collect();
    let all_red = red * RED * 8 / 40 + 10_000;
    let streams = |host| match host {
        _ if host < m => vec![
            with! { wire: RED as u32, ..stream(host + m, red, Colour::Red, 0) },
            stream(host + m, green, Colour::Green, all_red),
        ],
        _ => Vec::new(),
    };
    let net = go(&rates, coloured(buffer, Some(threshold), None), (0..2 * m).map(streams).collect(), 11_000_000);
    (m..2 * m)
        .map(|receiver| {
            let counters = link(&net, 2 * m, receiver);
            assert_eq!(counters.red_peak, threshold);
            assert!(counters.red_dropped > 0 && counters.green_dropped > 0);
            green - counters.green_dropped
        })
        .collect()
}

/// TLT §4.2: 12 MB for 16 congested ports leave 705.88 KB each, 305.88 beside a threshold of 400: as many flows as
/// packets of 1.5 KB can have an important one there, 203. One port has half of the buffer: 3,733 flows.
#[test]
fn green_packets_have_what_the_dynamic_threshold_leaves_beside_red_ones() {
    const B: u64 = 12_000_000;
    const K: u64 = 400_000;
    assert_eq!((B / 17, (B / 17 - K) / PACKET, (B / 2 - K) / PACKET), (705_882, 203, 3_733));
    for admitted in green_admitted(16, B, K) {
        assert!(admitted.abs_diff(203) <= 1, "{admitted} packets of 16 ports");
    }
    let [admitted] = green_admitted(1, B, K)[..] else { panic!("one port") };
    assert!(admitted.abs_diff(3_733) <= 1, "{admitted} packets of one port");
}

/// Whatever comes in whatever order, a queue never holds more red bytes than it may, and as many if it is offered more.
#[test]
fn red_bytes_reach_the_threshold_and_no_byte_more() {
    for threshold in [1_500, 1_501, 2_999, 20_000, 65_536, 100_000] {
        // Six hosts at random times to one, half of them red, packets of different lengths.
        let mut streams: Vec<_> = (0..6u32)
            .map(|host| {
                let colour = if host % 2 == 0 { Colour::Red } else { Colour::Green };
                let wire = 1_500 - 100 * host;
                vec![with! { wire, gap: Gap::Poisson(100.0), ..stream(6, 2_000, colour, 0) }]
            })
            .collect();
        streams.push(Vec::new());
        let net = go(&[10 * G; 7], coloured(1 << 20, Some(threshold), None), streams, u64::MAX);
        let counters = link(&net, 7, 6);
        assert!(counters.red_dropped > 0, "{threshold}: {counters:?}");
        assert!(counters.red_peak <= threshold && counters.red_peak + 1_500 > threshold, "{threshold}: {counters:?}");
        let t = net.totals();
        assert_eq!((t.red_packets, t.injected_packets - t.red_packets - t.control_packets), (6_000, 6_000));
        assert_eq!(t.dropped_packets, counters.red_dropped + counters.green_dropped);
    }
}

/// A red packet above the threshold is dropped before PFC books it: what red packets alone do pauses nobody. Without
/// colours they do.
#[test]
fn red_packets_above_the_threshold_pause_nobody() {
    let pfc = || Some(shared_pfc(1.0 / 16.0, 4_096, 3_072));
    let run = |colour, threshold| {
        let mut streams: Vec<_> = (0..4).map(|_| vec![stream(4, 2_000, colour, 0)]).collect();
        streams.push(Vec::new());
        go(&[10 * G; 5], coloured(1 << 20, threshold, pfc()), streams, u64::MAX)
    };
    let net = run(Colour::Red, Some(40_000));
    assert!(net.totals().pfc_frames == 0 && link(&net, 5, 4).red_dropped > 1_000);
    for (colour, threshold) in [(Colour::Red, None), (Colour::Green, Some(40_000))] {
        let net = run(colour, threshold);
        assert!(net.totals().pfc_frames > 0 && net.totals().dropped_packets == 0, "{colour:?} {threshold:?}");
    }
}
