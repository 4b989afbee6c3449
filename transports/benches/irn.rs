//! The four packet-processing modules of IRN per event, to compare with the FPGA's throughput (dissertation, Table
//! 4.9): receiveData 45.45, txFree 47.17, receiveAck 46.99, timeout 318.47 Mpps.
//!
//! Each measures whole windows of events on one QP, with 128-bit bitmaps and a BDP cap of 111 packets, as in the
//! reference modules: without loss, and with every tenth packet lost, so that bitmaps, holes and NACKs are in use.
//! `irn/65536` has that many QPs, and each event is of another one, at random.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use irnic_transports::recovery::{Class, Receiver, Recovery, Sender};
use irnic_transports::{Psn, Time};

const WINDOW: u32 = 128;
const CAP: u32 = 111;
/// Windows in one measurement.
const ROUNDS: u32 = 64;

/// Returns the arrivals of `ROUNDS` windows: every tenth packet arrives after its window.
fn arrivals(lossy: bool) -> Vec<(Psn, Class)> {
    let mut events = Vec::new();
    for round in 0..ROUNDS {
        let psn = |i: u32| Psn::new(0xff_f000).plus(round * 100 + i);
        let class = |i: u32| match i % 4 {
            3 => Class::LastWithCqe,
            1 => Class::Last,
            _ => Class::Middle,
        };
        let lost = |i: u32| lossy && i.is_multiple_of(10);
        events.extend((0..100).filter(|&i| !lost(i)).map(|i| (psn(i), class(i))));
        events.extend((0..100).filter(|&i| lost(i)).map(|i| (psn(i), class(i))));
    }
    events
}

fn receive_data(c: &mut Criterion) {
    let mut group = c.benchmark_group("irn/receiveData");
    for (name, lossy) in [("in order", false), ("10 % lost", true)] {
        let events = arrivals(lossy);
        group.throughput(Throughput::Elements(events.len() as u64));
        group.bench_function(name, |b| {
            b.iter_batched_ref(
                || Receiver::new(Psn::new(0xff_f000), Psn::new(0), WINDOW),
                |receiver| {
                    for &(psn, class) in &events {
                        black_box(receiver.receive_data(psn, class));
                    }
                },
                BatchSize::SmallInput,
            )
        });
    }
    group.finish();
}

fn sender() -> Sender {
    Sender::new(Recovery::Selective, Psn::new(0xff_f000), CAP, 1)
}

/// A sender's events: (txFree, or receiveAck with cumulative and selective acknowledgement).
#[derive(Copy, Clone)]
enum Event {
    TxFree,
    Ack(Psn, Option<Psn>),
}

/// Returns the events of a sender whose receiver loses every tenth packet the first time.
fn dialogue(lossy: bool) -> Vec<Event> {
    let mut events = Vec::new();
    let (mut tx, mut rx) = (sender(), Receiver::new(Psn::new(0xff_f000), Psn::new(0), WINDOW));
    let mut sent = 0u32;
    for _ in 0..ROUNDS {
        let mut flight = Vec::new();
        for _ in 0..100 {
            events.push(Event::TxFree);
            let high = tx.high();
            if let Some(psn) = tx.tx_free(Time::ZERO, true) {
                sent += u32::from(psn == high);
                if !(lossy && psn == high && sent.is_multiple_of(10)) {
                    flight.push(psn);
                }
            }
        }
        for psn in flight {
            let (nack, _) = rx.receive_data(psn, Class::Middle);
            let nack = nack.then_some(psn);
            tx.receive_ack(Time::ZERO, rx.expected(), nack);
            events.push(Event::Ack(rx.expected(), nack));
        }
    }
    events
}

fn sender_modules(c: &mut Criterion) {
    let mut group = c.benchmark_group("irn/txFree+receiveAck");
    for (name, lossy) in [("in order", false), ("10 % lost", true)] {
        let events = dialogue(lossy);
        group.throughput(Throughput::Elements(events.len() as u64));
        group.bench_function(name, |b| {
            b.iter_batched_ref(
                sender,
                |tx| {
                    for event in &events {
                        match *event {
                            Event::TxFree => {
                                black_box(tx.tx_free(Time::ZERO, true));
                            }
                            Event::Ack(cumulative, nack) => {
                                black_box(tx.receive_ack(Time::ZERO, cumulative, nack));
                            }
                        }
                    }
                },
                BatchSize::SmallInput,
            )
        });
    }
    group.finish();

    // Each module alone: runs of the same event, from the state that the dialogue leads to.
    let mut group = c.benchmark_group("irn/txFree");
    group.throughput(Throughput::Elements(u64::from(CAP)));
    group.bench_function("new packets", |b| {
        b.iter_batched_ref(
            sender,
            |tx| {
                for _ in 0..CAP {
                    black_box(tx.tx_free(Time::ZERO, true));
                }
            },
            BatchSize::SmallInput,
        )
    });
    let mut holes = sender();
    for _ in 0..CAP {
        holes.tx_free(Time::ZERO, true);
    }
    for i in (1..CAP).step_by(2) {
        holes.receive_ack(Time::ZERO, Psn::new(0xff_f000), Some(Psn::new(0xff_f000).plus(i)));
    }
    group.throughput(Throughput::Elements(u64::from(CAP / 2)));
    group.bench_function("holes", |b| {
        b.iter_batched_ref(
            || holes.clone(),
            |tx| {
                for _ in 0..CAP / 2 {
                    black_box(tx.tx_free(Time::ZERO, true));
                }
            },
            BatchSize::SmallInput,
        )
    });
    group.finish();

    let mut group = c.benchmark_group("irn/receiveAck");
    let mut full = sender();
    for _ in 0..CAP {
        full.tx_free(Time::ZERO, true);
    }
    group.throughput(Throughput::Elements(u64::from(CAP)));
    group.bench_function("in order", |b| {
        b.iter_batched_ref(
            || full.clone(),
            |tx| {
                for i in 1..=CAP {
                    black_box(tx.receive_ack(Time::ZERO, Psn::new(0xff_f000).plus(i), None));
                }
            },
            BatchSize::SmallInput,
        )
    });
    group.throughput(Throughput::Elements(u64::from(CAP - 1)));
    group.bench_function("selective", |b| {
        b.iter_batched_ref(
            || full.clone(),
            |tx| {
                for i in 1..CAP {
                    black_box(tx.receive_ack(Time::ZERO, Psn::new(0xff_f000), Some(Psn::new(0xff_f000).plus(i))));
                }
            },
            BatchSize::SmallInput,
        )
    });
    group.finish();

    let mut group = c.benchmark_group("irn/timeout");
    group.throughput(Throughput::Elements(1000));
    group.bench_function("quick and not", |b| {
        b.iter_batched_ref(
            || full.clone(),
            |tx| {
                for i in 0..1000 {
                    black_box(tx.timeout(black_box(i % 2 == 0), black_box(3)));
                }
            },
            BatchSize::SmallInput,
        )
    });
    group.finish();
}

const QPS: usize = 1 << 16;

/// Returns all QPs in random order.
fn order() -> Vec<u32> {
    let mut order: Vec<u32> = (0..QPS as u32).collect();
    let mut random = 0x2545_f491_u32;
    for last in (1..QPS).rev() {
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        order.swap(last, ((u64::from(random) * (last as u64 + 1)) >> 32) as usize);
    }
    order
}

fn many_queue_pairs(c: &mut Criterion) {
    let order = order();
    let mut group = c.benchmark_group("irn/65536");
    group.throughput(Throughput::Elements(QPS as u64));
    let mut receivers = vec![Receiver::new(Psn::new(0xff_f000), Psn::new(0), WINDOW); QPS];
    group.bench_function("receiveData", |b| {
        b.iter(|| {
            for &qp in &order {
                let receiver = &mut receivers[qp as usize];
                black_box(receiver.receive_data(receiver.expected(), Class::Middle));
            }
        })
    });
    let mut senders = vec![sender(); QPS];
    group.throughput(Throughput::Elements(2 * QPS as u64));
    group.bench_function("txFree, then receiveAck", |b| {
        b.iter(|| {
            for &qp in &order {
                black_box(senders[qp as usize].tx_free(Time::ZERO, true));
            }
            for &qp in &order {
                let sender = &mut senders[qp as usize];
                black_box(sender.receive_ack(Time::ZERO, sender.high(), None));
            }
        })
    });
    for sender in &mut senders {
        (0..3).for_each(|_| _ = sender.tx_free(Time::ZERO, true));
    }
    group.throughput(Throughput::Elements(QPS as u64));
    group.bench_function("timeout", |b| {
        b.iter(|| {
            for &qp in &order {
                black_box(senders[qp as usize].timeout(black_box(false), black_box(3)));
            }
        })
    });
    group.finish();
}

criterion_group!(benches, receive_data, sender_modules, many_queue_pairs);
criterion_main!(benches);
