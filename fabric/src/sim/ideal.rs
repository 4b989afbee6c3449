//! Completion time of a flow in an empty network, exact to the nanosecond.

use irnic_transports::config::WireFormat;
use irnic_transports::wire::{Bth, ICRC_LEN, NdpWord, Opcode};

use super::endpoint::MESSAGE;
use super::{ENCAPSULATION, HeaderBytes, QpSetup};
use crate::network::Port;

/// Consecutive packets of one length: bytes on the wire, and their number.
pub type Train = (u32, u64);

/// The packets of a flow, as a NIC sends it. Negotiated wire formats count as plain RoCE.
pub fn packets(bytes: u64, setup: &QpSetup, headers: HeaderBytes) -> Vec<Train> {
    let mtu = setup.mtu.bytes() as u64;
    let reliable = !setup.is_open_loop();
    let irn = reliable && setup.transport.wire == WireFormat::Irn;
    let word = if reliable && setup.transport.discipline.pull().is_some() { NdpWord::LEN } else { 0 };
    let wire = |opcode: Opcode, payload: u64| {
        setup.telemetry()
            + match headers {
                HeaderBytes::Fixed(more) => payload as u32 + more,
                HeaderBytes::Real => {
                    let frame =
                        Bth::LEN + opcode.extended_len(irn) + word + payload.next_multiple_of(4) as usize + ICRC_LEN;
                    frame as u32 + ENCAPSULATION
                }
            }
    };
    let mut trains = Vec::new();
    let mut left = bytes;
    loop {
        let message = left.min(MESSAGE);
        left -= message;
        let n = message.div_ceil(mtu).max(1);
        let (only, last) = match left {
            0 => (Opcode::RcWriteOnlyImm, Opcode::RcWriteLastImm),
            _ => (Opcode::RcWriteOnly, Opcode::RcWriteLast),
        };
        if n == 1 {
            trains.push((wire(only, message), 1));
        } else {
            trains.push((wire(Opcode::RcWriteFirst, mtu), 1));
            trains.push((wire(Opcode::RcWriteMiddle, mtu), n - 2));
            trains.push((wire(last, message - (n - 1) * mtu), 1));
        }
        if left == 0 {
            return trains;
        }
    }
}

/// Time from the first bit to the last of packets that are sent back to back over links of (bit/s, ns of delay), ns;
/// each link stores a packet before forwarding it. Times are rounded as in the simulation. The sender is not limited by
/// a window: a transport whose cap is below the bandwidth-delay product takes longer.
pub fn ideal(trains: &[Train], path: &[(u64, u64)]) -> u64 {
    let mut way: Vec<Hop> =
        path.iter().map(|&(rate, delay)| Hop { port: Port::new(0, 0, 0, 0, rate, delay, 0.0), free: 0 }).collect();
    let mut arrived = 0;
    for &(wire, n) in trains {
        arrived = send(&mut way, wire, n).unwrap_or(arrived);
    }
    arrived
}

struct Hop {
    port: Port,
    /// Time at which it has sent the last packet, ns.
    free: u64,
}

/// Sends `n` packets; returns when the last one has arrived.
fn send(way: &mut [Hop], wire: u32, mut n: u64) -> Option<u64> {
    // Over this many packets rounding cancels out on every link.
    let period = way.iter().map(|h| 1000 / gcd(1000, h.port.serialization(wire))).fold(1, |p, q| p / gcd(p, q) * q);
    let mut arrived = None;
    while n > 0 {
        let before: Vec<u64> = way.iter().map(|h| h.port.ends()).collect();
        let steps = n.min(period);
        for _ in 0..steps {
            let mut at = 0;
            for hop in way.iter_mut() {
                hop.free = hop.port.send(at.max(hop.free), wire);
                at = hop.free + hop.port.delay;
            }
            arrived = Some(at);
        }
        n -= steps;
        if n < period {
            continue;
        }
        // Repeating periods are skipped: each link keeps the pace of the one before it, or has been sending without a
        // pause and falls behind ever more.
        let took: Vec<u64> = way.iter().zip(before).map(|(hop, before)| hop.port.ends() - before).collect();
        let repeats = |h: usize| {
            let own = period * way[h].port.serialization(wire);
            took[h] == own && (h == 0 || took[h] >= took[h - 1]) || h > 0 && took[h] == took[h - 1]
        };
        if (0..way.len()).all(repeats) {
            for (hop, took) in way.iter_mut().zip(took) {
                hop.port.skip(n / period * took);
                hop.free = hop.port.ends().div_ceil(1000);
                arrived = Some(hop.free + hop.port.delay);
            }
            n %= period;
        }
    }
    arrived
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use irnic_transports::config::TransportConfig;
    use proptest::prelude::*;

    use super::*;

    const G: u64 = 1_000_000_000;

    #[test]
    fn the_ideal_is_what_one_computes_by_hand() {
        // One packet of 1000 bytes over two links of 40 Gbit/s and 2 µs: 200 + 200 + 4000.
        assert_eq!(ideal(&[(1000, 1)], &[(40 * G, 2000), (40 * G, 2000)]), 4400);
        // Ten: 10 · 200 on the first link, one more on the second.
        assert_eq!(ideal(&[(1000, 10)], &[(40 * G, 0), (40 * G, 0)]), 11 * 200);
        // The last, short packet waits behind a full one at the second link.
        assert_eq!(ideal(&[(1000, 1), (500, 1)], &[(40 * G, 0), (40 * G, 0)]), 200 + 200 + 100);
        // A slow link in the middle is the bottleneck.
        assert_eq!(ideal(&[(1000, 4)], &[(40 * G, 0), (10 * G, 0), (40 * G, 0)]), 200 + 4 * 800 + 200);
        assert_eq!(ideal(&[(1000, 1)], &[]), 0);
    }

    #[test]
    fn packets_have_the_headers_of_their_place() {
        let setup = |name| QpSetup::new(TransportConfig::preset(name).unwrap());
        let (roce, irn, ndp) = (setup("roce"), setup("irn"), setup("ndp"));
        // 46 around, BTH 12, ICRC 4: 62. RETH 16, immediate data 4; with IRN a RETH on each, and 8 with the immediate
        // data.
        let real = HeaderBytes::Real;
        assert_eq!(packets(1, &roce, real), [(62 + 20 + 4, 1)]);
        assert_eq!(packets(0, &roce, real), [(62 + 20, 1)]);
        assert_eq!(packets(3073, &roce, real), [(62 + 16 + 1024, 1), (62 + 1024, 2), (62 + 4 + 4, 1)]);
        assert_eq!(packets(3072, &irn, real), [(78 + 1024, 1), (78 + 1024, 1), (78 + 12 + 1024, 1)]);
        assert_eq!(packets(5, &irn, real), [(78 + 12 + 8, 1)]);
        // NDP's word on each packet.
        assert_eq!(packets(3072, &ndp, real), [(82 + 1024, 1), (82 + 1024, 1), (82 + 12 + 1024, 1)]);
        assert_eq!(packets(2049, &irn, HeaderBytes::Fixed(48)), [(1072, 1), (1072, 1), (49, 1)]);
        // Only the second, last message has immediate data.
        let n = MESSAGE / 1024;
        let long = [(1102, 1), (1086, n - 2), (1086, 1), (62 + 20 + 4, 1)];
        assert_eq!(packets(MESSAGE + 1, &roce, real), long);
    }

    proptest! {
        /// Compares with a simulation of every packet.
        #[test]
        fn what_repeats_itself_is_left_out_rightly(
            trains in prop::collection::vec((1u32..2000, 0u64..3000), 1..4),
            path in prop::collection::vec((prop_oneof![
                Just(10 * G), Just(25 * G), Just(40 * G), Just(100 * G), 1_000_000u64..200_000_000_000
            ], 0u64..3000), 1..7),
        ) {
            let single: Vec<Train> = trains.iter().flat_map(|&(wire, n)| (0..n).map(move |_| (wire, 1))).collect();
            prop_assert_eq!(ideal(&trains, &path), ideal(&single, &path));
        }
    }
}
