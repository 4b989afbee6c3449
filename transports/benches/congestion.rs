//! The cost of an acknowledgement to a congestion controller: handling it, and reading rate and window.
//!
//! A line of 40 Gbit/s and a round trip of 24 µs, an acknowledgement for each packet; marks, round trips, notifications
//! and queues vary, so that rates fall and rise.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use irnic_transports::Time;
use irnic_transports::congestion::{Ack, Congestion, CongestionConfig, Controller, Line, Point};
use irnic_transports::telemetry::{Hop, Int};
use irnic_transports::wire::Cnp;

const LINE: Line = Line { rate: 40_000_000_000, base_rtt: 24_000, mtu: 1024 };
/// Few enough to be in the cache, as an acknowledgement that has just arrived is.
const ACKS: u64 = 2_000;
/// Packets in flight.
const FLIGHT: u64 = 110;
/// ns between acknowledgements.
const GAP: u64 = 220;

/// An acknowledgement, its telemetry, and whether a notification and a loss come with it.
struct Event {
    at: Time,
    ack: Ack,
    int: Int,
    notified: bool,
    lost: bool,
}

fn events() -> Vec<Event> {
    (1..=ACKS)
        .map(|n| {
            let at = n * GAP;
            // Congestion for 500 of every 2000 packets.
            let congested = n % 2_000 < 500;
            let rtt = if congested { 40_000 + n % 500 * 200 } else { 30_000 + n * 7 % 5_000 };
            let ack = Ack {
                packets: 1,
                rtt: Some(rtt),
                marked: congested && n % 3 == 0,
                acked: n,
                sent: n + FLIGHT,
                busy: true,
            };
            let mut int = Int::EMPTY;
            for port in 0..Int::HOPS as u32 {
                let sent = n * GAP * if congested { 5 } else { 4 };
                int.push(port, Hop { rate: LINE.rate, at, sent, queued: if congested { n % 500 * 1_000 } else { 0 } });
            }
            Event { at: Time(at), ack, int: int.answer(), notified: congested && n % 250 == 0, lost: n % 2_000 == 0 }
        })
        .collect()
}

fn acknowledgements(c: &mut Criterion) {
    let events = events();
    let mut group = c.benchmark_group("congestion/ack");
    group.throughput(Throughput::Elements(ACKS));
    for &(name, config) in CongestionConfig::PRESETS {
        let Some(flow) = Congestion::new(&config, &LINE) else { continue };
        let telemetry = config.uses_telemetry();
        group.bench_function(name, |b| {
            b.iter_batched_ref(
                || flow.clone(),
                |flow| {
                    for event in &events {
                        if flow.next_deadline() <= event.at {
                            flow.on_timer(event.at);
                        }
                        if event.notified {
                            flow.on_cnp(event.at, &Cnp::default());
                            flow.on_fair_rate(event.at, Point(1), LINE.rate / 4);
                        }
                        flow.on_ack(event.at, &event.ack);
                        if telemetry {
                            flow.on_telemetry(event.at, &event.int);
                        }
                        if event.lost {
                            flow.on_loss(event.at);
                        }
                        black_box((flow.rate(), flow.window()));
                    }
                },
                BatchSize::SmallInput,
            )
        });
    }
    group.finish();
}

criterion_group!(benches, acknowledgements);
criterion_main!(benches);
