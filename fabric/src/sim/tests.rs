//! Tests of telemetry and timing, and of faults that no configuration can cause: bytes corrupted in flight.

use irnic_transports::Colour;
use irnic_transports::config::TransportConfig;
use irnic_transports::wire::icrc_append;

use super::*;
use crate::Priorities;
use crate::network::{Fifo, NetworkError, PacketId};
use crate::switch::{Dequeue, InputQueuedConfig, Switch, SwitchConfig, SwitchCtx, Verdict};
use crate::topology::{LinkSpec, Topology};
use crate::workload::Flow;

/// Ten packets from host 0 to host 1, as frames.
fn carried() -> Simulation {
    let switch = InputQueuedConfig::new(1 << 20);
    let flow = Flow { src: 0, dst: 1, bytes: 10_000, start: 0, priority: 0, class: 0, setup: 0 };
    let irn = TransportConfig::preset("irn").expect("a preset");
    let topology = Topology::star(2, 40_000_000_000, 1_000);
    let config = SimConfig::new(topology, vec![flow], SwitchConfig::InputQueued(switch), irn);
    Simulation::new(SimConfig { carry_bytes: true, ..config }).expect("a valid configuration")
}

/// Runs until three packets are in flight, and flips a bit of the second one's payload.
fn flip(simulation: &mut Simulation, correct_icrc: bool) {
    while simulation.site.net.packets().len() < 3 {
        assert!(!simulation.run(1).expect("no error yet"), "over too early");
    }
    let content = simulation.site.net.packets_mut().content_mut(1);
    let frame = content.frame.as_mut().expect("a frame");
    frame[500] ^= 4;
    if correct_icrc {
        icrc_append(&content.path, 0, frame);
    }
}

#[test]
fn a_flipped_bit_is_caught_by_the_icrc_and_the_packet_comes_again() {
    let mut simulation = carried();
    flip(&mut simulation, false);
    let outcome = simulation.finish().expect("recovered");
    assert_eq!(outcome.ending, Ending::Complete);
    assert_eq!((outcome.nics.rx_icrc_encapsulated, outcome.nics.retransmitted_pkts), (1, 1));
}

#[test]
fn a_flipped_bit_that_the_icrc_does_not_show_is_found_at_the_end_of_the_flow() {
    let mut simulation = carried();
    flip(&mut simulation, true);
    assert_eq!(simulation.finish().unwrap_err(), SimError::Damaged(0));
}

#[test]
fn bytes_that_vanish_break_the_law() {
    let mut simulation = carried();
    while simulation.site.net.packets().len() < 3 {
        assert!(!simulation.run(1).expect("no error yet"), "over too early");
    }
    simulation.site.net.packets_mut().get_mut(1).wire -= 1;
    Arc::make_mut(&mut simulation.config).until = simulation.now();
    assert!(matches!(simulation.finish(), Err(SimError::Network(NetworkError::Invariant(_)))));
}

#[test]
fn a_packet_that_dawdles_breaks_littles_law() {
    let mut simulation = carried();
    while simulation.site.net.packets().len() < 3 {
        assert!(!simulation.run(1).expect("no error yet"), "over too early");
    }
    simulation.site.net.packets_mut().content_mut(1).sent += 1;
    let error = simulation.finish().unwrap_err().to_string();
    assert!(error.contains("byte·ns in the network"), "{error}");
}

/// Two packets of 1290 bytes, 258 ns at 40 Gbit/s and 1032 at 10, from host 0 by switches 2 and 3 to host 1; 1 µs per
/// link.
#[test]
fn switches_write_what_a_packet_leaves_behind() {
    let switch = InputQueuedConfig::new(1 << 20);
    let flow = Flow { src: 0, dst: 1, bytes: 3 * 1024, start: 0, priority: 0, class: 0, setup: 0 };
    let link = |a, b, rate| LinkSpec { a, b, rate, delay: 1_000, loss: 0.0 };
    let (fast, slow) = (40_000_000_000, 10_000_000_000);
    let links = vec![link(0, 2, fast), link(2, 3, slow), link(3, 1, fast)];
    let topology = Topology { name: "line".to_owned(), hosts: 2, switches: 2, links, ids: Vec::new() };
    let mut transport = TransportConfig::preset("irn").expect("a preset");
    transport.congestion = "hpcc".parse().expect("a controller");
    let config = SimConfig::new(topology, vec![flow], SwitchConfig::InputQueued(switch), transport);
    let mut simulation =
        Simulation::new(SimConfig { headers: HeaderBytes::Fixed(224), ..config }).expect("a valid configuration");
    let mut seen = Vec::new();
    while simulation.site.net.endpoint(1).nic().counters().rcvd_bytes < 3 * 1024 {
        assert!(!simulation.run(1).expect("no error"), "over too early");
        for id in 0..simulation.site.net.packets().len() as PacketId {
            let int = simulation.site.net.packets().telemetry(id).expect("all have some");
            let hops: Vec<_> = int.hops().iter().map(|h| (h.rate, h.at, h.sent, h.queued)).collect();
            if hops.len() == 2 && !seen.contains(&hops) {
                assert_eq!(simulation.site.net.packets().get(id).wire, 1024 + 224 + 42);
                seen.push(hops);
            }
        }
    }
    // Packet i is at switch 2 at 1258 + 258 i, leaves it from 1258 + 1032 i on, and reaches switch 3, which has no
    // queue, 1032 + 1000 later.
    assert_eq!(
        seen,
        [
            [(slow, 1_258, 0, 0), (fast, 3_290, 0, 0)],
            [(slow, 2_290, 1_290, 1_290), (fast, 4_322, 1_290, 0)],
            [(slow, 3_322, 2_580, 0), (fast, 5_354, 2_580, 0)],
        ]
    );
    let outcome = simulation.finish().expect("no error");
    assert_eq!(outcome.ending, Ending::Complete);
    // Acknowledgements have it as well: 224 and 42 bytes.
    assert_eq!(outcome.links.iter().map(|l| l.counters.bytes).sum::<u64>(), 3 * 3 * (1024 + 2 * 224 + 2 * 42));
    // The ideal time includes it as well.
    assert_eq!(outcome.records[0].ideal, outcome.records[0].fct(&outcome.flows[0]).expect("delivered"));
}

/// Setting up a connection takes a packet without payload in each direction, and changes nothing else.
#[test]
fn the_round_trips_of_a_connections_setup_add_to_completion_times() {
    let run = |rtts| {
        let switch = InputQueuedConfig::new(1 << 20);
        let irn = TransportConfig::preset("irn").expect("a preset");
        let topology = Topology::star(2, 10_000_000_000, 1_000);
        let config = SimConfig::new(topology, vec![Flow::new(0, 1, 5_000, 7)], SwitchConfig::InputQueued(switch), irn);
        let config = SimConfig { setup_rtts: rtts, ..config };
        let outcome = Simulation::new(config).expect("a network").finish().expect("no error");
        let record = outcome.records[0];
        (record.fct(&outcome.flows[0]).expect("delivered"), record.ideal, outcome.ended)
    };
    let (none, two) = (run(0), run(2));
    // Headers of 62 bytes and 12 more of a WRITE with immediate, over two links of 1 us, in each direction.
    let each = 2 * 2 * (1_000 + (62 + 16 + 4 + 8 - 4) * 8 / 10);
    assert!((two.0 - none.0).abs_diff(2 * each) < 200, "{none:?} {two:?}");
    assert_eq!((two.0 - none.0, two.2), (two.1 - none.1, none.2));
}

/// A queue for each output that checks and changes the metadata of each packet: slack and colour.
#[derive(Debug)]
struct Writing(Vec<(Fifo, u64)>);

impl Switch for Writing {
    fn enqueue(&mut self, ctx: &mut SwitchCtx<'_>, id: PacketId, output: u16) -> Verdict {
        let packet = ctx.packets.get_mut(id);
        packet.slack -= 5;
        packet.set_colour(Colour::Red);
        let (queue, bytes) = &mut self.0[usize::from(output)];
        *bytes += u64::from(packet.wire);
        queue.push(ctx.packets, id);
        Verdict::Queued
    }

    fn dequeue(&mut self, ctx: &mut SwitchCtx<'_>, output: u16, _: Priorities) -> Dequeue {
        let (queue, bytes) = &mut self.0[usize::from(output)];
        let Some(id) = queue.pop(ctx.packets) else { return Dequeue::Idle };
        *bytes -= u64::from(ctx.packets.get(id).wire);
        Dequeue::Packet(id)
    }

    fn backlog(&self, output: u16) -> u64 {
        self.0[usize::from(output)].1
    }
}

#[test]
fn what_a_nic_sends_beside_a_packet_is_there_for_switches_to_change() {
    let switch = SwitchConfig::custom(|_, ports| Box::new(Writing(vec![Default::default(); ports.len()])));
    let topology = Topology::star(2, 40_000_000_000, 1_000);
    let irn = TransportConfig::preset("irn").expect("a preset");
    let config = SimConfig::new(topology, vec![Flow::new(0, 1, 10_000, 0)], switch, irn);
    let mut simulation = Simulation::new(config).expect("a valid configuration");
    while simulation.site.net.totals().injected_packets == 0 {
        simulation.run(1).expect("no error");
    }
    let sent = simulation.site.net.packets().sideband(0);
    let sender = sent.src_qp;
    assert_eq!((sent.slack, sent.colour), (0, Colour::Green));
    assert!(simulation.site.net.endpoint(0).nic().qp(sender).is_some(), "{sender}");
    while simulation.site.net.now() < 2_000 {
        simulation.run(1).expect("no error");
    }
    let passed = simulation.site.net.packets().sideband(0);
    assert_eq!((passed.slack, passed.colour, passed.src_qp), (-5, Colour::Red, sender));
    assert_eq!(simulation.finish().expect("no error").ending, Ending::Complete);
}
