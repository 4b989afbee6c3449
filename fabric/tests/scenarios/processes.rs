//! Endpoints whose frames come from outside while time is paced, as those of processes do: they are put in, the network
//! runs until now, they are taken out.

use std::collections::VecDeque;

use irnic_fabric::Priorities;
use irnic_fabric::network::{
    Content, Control, Endpoint, EndpointCtx, Network, NetworkConfig, Packet, PacketId, address,
};
use irnic_fabric::switch::{SharedBuffer, SharedBufferConfig, Switch, SwitchConfig, SwitchCtx, Thresholds};
use irnic_transports::wire::{Bth, Headers, Opcode};
use irnic_transports::{Path, Psn};

use crate::kit::*;

/// What stands between a process and the network: frames on their way in and out.
#[derive(Debug, Default)]
struct Process {
    out: VecDeque<(u32, Vec<u8>)>,
    received: Vec<(u64, Vec<u8>)>,
}

fn content(src: u32, dst: u32, frame: &[u8]) -> (Packet, Content) {
    let path = Path { src: address(src), dst: address(dst), udp_src: 0xc000, traffic_class: 0, hop_limit: 64 };
    let headers = Headers::new(Bth::new(Opcode::UdSendOnly, 0, Psn::new(0)));
    let content = Content { frame: Some(frame.into()), ..Content::new(headers, path, 0) };
    (Packet::new(frame.len() as u32, dst, 0, 0), content)
}

impl Endpoint for Process {
    type Shared = ();

    fn wants_tx(&mut self, paused: Priorities) -> bool {
        !self.out.is_empty() && !paused.contains(0)
    }

    fn poll_transmit(&mut self, ctx: &mut EndpointCtx<'_, ()>) -> Option<PacketId> {
        let (dst, frame) = self.out.pop_front()?;
        let (packet, content) = content(ctx.host, dst, &frame);
        Some(ctx.send(packet, content))
    }

    fn receive(&mut self, id: PacketId, ctx: &mut EndpointCtx<'_, ()>) {
        let frame = ctx.packets.content_mut(id).frame.take().expect("all have one");
        self.received.push((ctx.now, frame.into_vec()));
    }

    fn on_deadline(&mut self, _: u64) {}

    fn next_deadline(&self) -> u64 {
        u64::MAX
    }
}

fn processes(switch: SwitchConfig, hosts: usize) -> Network<Process> {
    let ends = (0..hosts).map(|_| Process::default()).collect();
    Network::new(NetworkConfig::new(star(&vec![40 * G; hosts]), switch), ends, ()).unwrap()
}

#[test]
fn frames_go_in_and_come_out_while_time_is_paced() {
    let mut net = processes(deep()[1].clone(), 3);
    // Nothing to do yet: time goes on all the same.
    assert_eq!((net.run_until(5_000), net.now()), (None, 5_000));
    let frame = |byte: u8| vec![byte; 1250];
    for byte in 0..3 {
        net.endpoint_mut(0).out.push_back((1, frame(byte)));
    }
    net.settle(0);
    // 250 ns a frame and link, 1 µs of either link: the first arrives 2500 ns later, the next two 250 ns apart.
    net.run_until(7_600);
    assert_eq!(net.endpoint(1).received, [(7_500, frame(0))]);
    net.endpoint_mut(2).out.push_back((1, frame(7)));
    net.settle(2);
    net.run_until(20_000);
    let rest = net.endpoint_mut(1).received.split_off(1);
    assert_eq!(rest, [(7_750, frame(1)), (8_000, frame(2)), (10_100, frame(7))]);
    net.check().unwrap();
}

#[test]
fn frames_with_a_stamp_arrive_by_their_stamp_however_late_they_are_seen() {
    let mut net = processes(deep()[1].clone(), 2);
    net.run_until(10_000);
    let mut put = |start, byte| {
        let (packet, content) = content(0, 1, &[byte; 1250]);
        let put = net.put(0, start, packet, content);
        (put.left, put.late)
    };
    // Of one that left 10 µs ago the best that can be done is to have it there now. One that begins at 9,350 has left
    // at 9,600, is at the switch at 10,600, and at host 1 after 250 + 1000 more; the next waits for it.
    assert_eq!(put(0, 2), (250, 8_750));
    assert_eq!(put(9_350, 1), (9_600, 0));
    assert_eq!(put(9_400, 3), (9_850, 0));
    net.run_until(30_000);
    let times: Vec<(u64, u8)> = net.endpoint(1).received.iter().map(|(at, frame)| (*at, frame[0])).collect();
    assert_eq!(times, [(11_250, 2), (11_850, 1), (12_100, 3)]);
    net.check().unwrap();
}

#[test]
fn a_process_that_is_paused_is_told() {
    let full = Thresholds { xoff: 4 * WIRE, xon: 2 * WIRE };
    let mut net = processes(input_queued(1 << 20, Some(full)), 3);
    for host in [0, 1] {
        (0..40).for_each(|n| net.endpoint_mut(host).out.push_back((2, vec![n; 1250])));
        net.settle(host);
    }
    net.run_until(6_000);
    assert!(net.port_of(0).paused().contains(0), "two send what one link takes");
    net.run_until(100_000);
    assert!(net.port_of(0).paused().is_empty());
    assert_eq!(net.endpoint(2).received.len(), 80);
    net.check().unwrap();
}

/// Gives the switch credit for each frame that it has received, and counts the credit that it gets.
#[derive(Debug, Default)]
struct Crediting {
    process: Process,
    credit: u64,
}

impl Endpoint for Crediting {
    type Shared = ();

    fn wants_tx(&mut self, paused: Priorities) -> bool {
        self.process.wants_tx(paused)
    }

    fn poll_transmit(&mut self, ctx: &mut EndpointCtx<'_, ()>) -> Option<PacketId> {
        self.process.poll_transmit(ctx)
    }

    fn receive(&mut self, id: PacketId, ctx: &mut EndpointCtx<'_, ()>) {
        ctx.control(Control::Credit { queue: 7, bytes: ctx.packets.get(id).wire });
        self.process.receive(id, ctx);
    }

    fn on_deadline(&mut self, _: u64) {}

    fn next_deadline(&self) -> u64 {
        u64::MAX
    }

    fn on_control(&mut self, control: Control, _: &mut EndpointCtx<'_, ()>) {
        let Control::Credit { bytes, queue: 7 } = control else { panic!("{control:?}") };
        self.credit += u64::from(bytes);
    }
}

/// Hands credit that comes by one port on by the other.
#[derive(Debug)]
struct Relaying(SharedBuffer);

impl Switch for Relaying {
    irnic_fabric::forward_switch!(0: enqueue, dequeue, backlog, prefetch, flush);

    fn on_control(&mut self, ctx: &mut SwitchCtx<'_>, port: u16, control: Control) {
        ctx.control(1 - port, control);
    }
}

#[test]
fn endpoints_send_and_hear_control_frames() {
    let relaying = SwitchConfig::custom(|_, ports| {
        Box::new(Relaying(SharedBuffer::new(&SharedBufferConfig::new(1 << 20, WIRE as u32), ports)))
    });
    let ends = vec![Crediting::default(), Crediting::default()];
    let mut net = Network::new(NetworkConfig::new(star(&[40 * G; 2]), relaying), ends, ()).unwrap();
    (0..5).for_each(|n| net.endpoint_mut(0).process.out.push_back((1, vec![n; 1250])));
    net.settle(0);
    net.run_until(50_000);
    net.check().unwrap();
    assert_eq!((net.endpoint(0).credit, net.endpoint(1).credit), (5 * 1250, 0));
    assert_eq!(net.totals().control_frames, 10, "five on each of two links");
}
