//! The examples of the text (D. Menikkumbura, Purdue 2022, chapter 2), corrected where they must be;
//! `docs/openqueue.md` lists the corrections.

use irnic_openqueue::{Engine, Host, Packet, Plan, Policy, Seen, Surroundings, Verdict, Waiting};

/// Draws from a sequence, and remembers which packets were pushed out.
struct Sequence {
    random: u64,
    pushed_out: Vec<u32>,
    links: [u32; 256],
    packets: [Packet; 256],
}

impl Default for Sequence {
    fn default() -> Sequence {
        Sequence { random: 0, pushed_out: Vec::new(), links: [0; 256], packets: [Packet::default(); 256] }
    }
}

impl Waiting for Sequence {
    fn next(&self, id: u32) -> u32 {
        self.links[id as usize]
    }

    fn seen(&self, id: u32) -> Seen {
        let Packet { size, input, priority, red, .. } = self.packets[id as usize];
        Seen { size, input, priority, red }
    }
}

/// A packet arrives.
fn arrive(engine: &mut Engine, host: &mut Sequence, id: u32, packet: &Packet) -> Verdict {
    host.packets[id as usize] = *packet;
    engine.arrive(host, id, *packet)
}

impl Host for Sequence {
    fn set_next(&mut self, id: u32, next: u32) {
        self.links[id as usize] = next;
    }

    fn random(&mut self) -> u64 {
        // Weyl's sequence by the golden ratio: evenly spread.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.random
    }

    fn mark(&mut self, _id: u32) {}

    fn pause(&mut self, _input: u16, _priority: u8, _stop: bool) {}

    fn is_sending(&self, _output: u16) -> bool {
        false
    }

    fn push_out(&mut self, id: u32) {
        self.pushed_out.push(id);
    }
}

/// Figure 2.8, and what follows in the text.
const ORDERS: &str = "
fifo(p1, p2) = (p1.arrival < p2.arrival)
rfifo(p1, p2) = (p1.arrival > p2.arrival)
srpt(p1, p2) = (p1.processing < p2.processing)
rsrpt(p1, p2) = (p1.processing > p2.processing)
tailDrop(q) = q.currSize >= q.size, drop(1)
";

/// Figure 2.9.
const SCHEDULES: &str = "
// LQF: HOL packet from Longest-Queue-First
lqf(q1, q2) = (q1.currSize > q2.currSize);
// SQF: HOL packet from Shortest-Queue-First
sqf(q1, q2) = (q1.currSize < q2.currSize);
// MAXQF: HOL packet from queue that admits max processing
maxqf(q1, q2) = (q1.schedState > q2.schedState);
// MINQF: HOL packet from queue that admits min processing
minqf(q1, q2) = (q1.schedState < q2.schedState);
// CRR: Round-Robin with per cycle resolution
crr(q1, q2) = (q1.schedState < q2.schedState);
";

fn plan(text: &str, ports: usize) -> Plan {
    let policy: Policy = text.parse().unwrap_or_else(|error| panic!("{error}\n{text}"));
    policy.plan(ports).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Runs packets of so many bytes into a policy of one port; returns which were admitted, and the order of departure.
fn run(text: &str, packets: &[Packet]) -> (Vec<u32>, Vec<u32>) {
    let mut engine = Engine::new(&plan(text, 1), &Surroundings::default());
    let mut host = Sequence::default();
    for (id, packet) in packets.iter().enumerate() {
        if arrive(&mut engine, &mut host, id as u32, packet) == Verdict::Dropped {
            host.pushed_out.push(id as u32);
        }
    }
    let order: Vec<u32> = std::iter::from_fn(|| engine.depart(&mut host, 0, 0)).collect();
    (host.pushed_out, order)
}

fn packet(arrival: u64, processing: i64) -> Packet {
    Packet { arrival, size: 1, processing, value: processing, flow: processing.unsigned_abs(), ..Packet::default() }
}

fn packets(processing: &[i64]) -> Vec<Packet> {
    processing.iter().enumerate().map(|(arrival, processing)| packet(arrival as u64, *processing)).collect()
}

#[test]
fn orders_of_figure_2_8() {
    let run = |order: &str| {
        let text = format!("{ORDERS} q = Queue(100); out = Port(100%, q); q.procPrio = {order}();");
        run(&text, &packets(&[3, 1, 2, 1])).1
    };
    assert_eq!(run("fifo"), [0, 1, 2, 3]);
    assert_eq!(run("rfifo"), [3, 2, 1, 0]);
    assert_eq!(run("srpt"), [1, 3, 2, 0]);
    assert_eq!(run("rsrpt"), [0, 2, 1, 3]);
}

/// Figure 2.3: one queue for six packets with the work that is left of each, or three queues for two each.
#[test]
fn architectures_of_figure_2_3() {
    let single = format!("{ORDERS} q = Queue(6); out = Port(100%, q); q.procPrio = srpt; q.admPrio = srpt;");
    assert_eq!(run(&single, &packets(&[3, 2, 3, 1, 2, 3, 1])), (vec![5], vec![3, 6, 1, 4, 0, 2]));
    let separate = format!(
        "{ORDERS} for k in 0..3 {{ q[k] = Queue(2); }} out = Port(100%, q); queue = q[processing - 1];
         out.schedPrio(q1, q2) = q1.getHOL().processing < q2.getHOL().processing; q.procPrio = fifo;"
    );
    assert_eq!(run(&separate, &packets(&[3, 2, 3, 1, 2, 3, 1])), (vec![5], vec![3, 6, 1, 4, 0, 2]));
}

#[test]
fn schedules_of_figure_2_9() {
    let run = |schedule: &str, more: &str| {
        let text = format!(
            "{ORDERS} {SCHEDULES} for k in 0..3 {{ q[k] = Queue(100); q[k].schedState = k; }}
             out = Port(100%, q); queue = q[flow]; q.procPrio = fifo; out.schedPrio = {schedule}(); {more}"
        );
        run(&text, &packets(&[0, 0, 0, 1, 2, 2])).1
    };
    assert_eq!(run("lqf", ""), [0, 1, 4, 2, 3, 5]);
    assert_eq!(run("sqf", ""), [3, 4, 5, 0, 1, 2]);
    assert_eq!(run("maxqf", ""), [4, 5, 3, 0, 1, 2]);
    assert_eq!(run("minqf", ""), [0, 1, 2, 3, 4, 5]);
    // Served queues have their turn later: 0 (0), 0 (1), 1 (1), then 2 (2) after what of 0 is left (2).
    let crr = run("crr", "out.postSchedAct() = (true, modify(schedState := schedState + 1));");
    assert_eq!(crr, [0, 1, 3, 2, 4, 5]);
}

/// Figure 2.10 has tail drop by admPrio = rfifo. Where the last in order goes, that drops the first that waits.
#[test]
fn queues_of_figure_2_10_at_either_end() {
    let run = |admission: &str| {
        let text = format!(
            "{ORDERS} param B = 3; param k = 2;
             for i in 0..k {{ q[i] = Queue(B); }}
             out = Port(100%, q); queue = q[flow];
             q.admPrio = {admission}(); q.procPrio = fifo(); q.congestion = tailDrop(q);"
        );
        run(&text, &packets(&[0, 0, 0, 1, 0]))
    };
    // With >= the third byte is congestion.
    assert_eq!(run("fifo"), (vec![2, 4], vec![0, 3, 1]));
    assert_eq!(run("rfifo"), (vec![0, 1], vec![2, 3, 4]));
}

#[test]
fn shared_buffer_of_figure_2_11() {
    let text = format!(
        "{ORDERS} param B = 4;
         for n in outputs {{ q[n] = Queue(B); }}
         b = Buffer(B, q);
         for n in outputs {{ out[n] = Port(q[n]); }}
         queue = q[output]; q.procPrio = fifo; b.queuePrio(q1, q2) = (q1.currSize < q2.currSize)"
    );
    let plan = plan(&text, 3);
    assert_eq!(plan.queues(), 3);
    let mut engine = Engine::new(&plan, &Surroundings::default());
    let mut host = Sequence::default();
    // Three for output 0, one for 1; then one for 2, for which the longest queue makes room.
    for (id, output) in [0, 0, 0, 1, 2].into_iter().enumerate() {
        let packet = Packet { output, ..packet(id as u64, 0) };
        assert_eq!(arrive(&mut engine, &mut host, id as u32, &packet), Verdict::Queued);
    }
    assert_eq!((host.pushed_out, engine.backlog(0), engine.backlog(2)), (vec![2], 2, 1));
}

/// Figure 2.13, with what it leaves out: where ports between queues lead.
const CROSSBAR: &str = "
    param B = 10KB; param k = 3;
    for i in 0..k, j in 0..k { voq[i][j] = Queue(B); cq[i][j] = Queue(B); }
    for j in 0..k { oq[j] = Queue(B); }
    for i in 0..k { in[i] = Port(100%, voq[i]) -> cq[i][output]; }
    for i in 0..k, j in 0..k { cp[i][j] = Port(100%, cq[i][j]) -> oq[output]; }
    for j in 0..k { out[j] = Port(100%, oq[j]); }
    queue = voq[input][output];
    admPrio(p1, p2) = p1.arrival < p2.arrival
    procPrio(p1, p2) = p1.arrival < p2.arrival
    congestion() = (currSize > size, drop(1))
    lqf(q1, q2) = q1.currSize > q2.currSize
    in.schedPrio = lqf; out.schedPrio = lqf;";

#[test]
fn crossbar_of_figure_2_13() {
    let plan = plan(CROSSBAR, 3);
    assert_eq!((plan.queues(), plan.ports(), plan.has_levels()), (21, 3, true));
    assert!(plan.to_string().contains("leads to      cq[0]["), "{plan}");
    let rates = vec![10_000_000_000; 3];
    let mut engine = Engine::new(&plan, &Surroundings { rates, ..Surroundings::default() });
    let mut host = Sequence::default();
    // Two of input 0, one of input 1, all for output 2, which take 1 µs on each line.
    for (id, input) in [0, 0, 1].into_iter().enumerate() {
        let packet = Packet { size: 1_250, input, output: 2, ..packet(0, 0) };
        assert_eq!(arrive(&mut engine, &mut host, id as u32, &packet), Verdict::Queued);
    }
    let mut went = Vec::new();
    let mut now = 0;
    while let Some(next) = engine.advance(&mut host, now) {
        assert_eq!(engine.backlog(2), 3_750 - 1_250 * went.len() as u64);
        now = next;
        engine.advance(&mut host, now);
        went.extend(engine.depart(&mut host, 2, 0).map(|id| (now, id)));
    }
    // Input 1 has a line and a crosspoint of its own; its packet comes to the output with the first of input 0.
    went.extend(std::iter::from_fn(|| engine.depart(&mut host, 2, 0)).map(|id| (now, id)));
    assert_eq!(went, [(2_000, 0), (3_000, 2), (3_000, 1)]);
    assert_eq!(engine.backlog(2), 0);
}

/// A port between queues waits until there is room where it leads; what is too large for that is dropped.
#[test]
fn ports_between_queues_wait_for_room() {
    let text = "a = Queue(10KB); b = Queue(1500); queue = a;
        way = Port(8Gbps, a) -> b; out = Port(100%, b);
        procPrio(p1, p2) = p1.arrival < p2.arrival";
    let mut engine = Engine::new(&plan(text, 1), &Surroundings::default());
    let mut host = Sequence::default();
    for (id, size) in [1_000, 1_000, 1_600, 500].into_iter().enumerate() {
        let packet = Packet { size, ..packet(0, 0) };
        assert_eq!(arrive(&mut engine, &mut host, id as u32, &packet), Verdict::Queued);
    }
    assert_eq!(engine.advance(&mut host, 0), Some(1_000));
    // The second finds no room beside the first.
    assert_eq!(engine.advance(&mut host, 1_000), None);
    assert_eq!(engine.depart(&mut host, 0, 0), Some(0));
    assert_eq!(engine.advance(&mut host, 1_500), Some(2_500));
    assert_eq!(engine.advance(&mut host, 2_500), Some(4_100));
    assert_eq!(engine.advance(&mut host, 4_100), Some(4_600));
    assert_eq!((engine.advance(&mut host, 4_600), &host.pushed_out[..]), (None, &[2][..]));
    assert_eq!([engine.depart(&mut host, 0, 0), engine.depart(&mut host, 0, 0)], [Some(1), Some(3)]);
    assert_eq!((engine.backlog(0), engine.counters().pushed_out), (0, (1, 1_600)));
}

/// Figure 2.18, without C; and the listing after it, where the selector was random: of 200 packets 140 were in the
/// first queue.
#[test]
fn policy_file_of_figure_2_18() {
    let text = "
        q1 = Queue(128); q2 = Queue(1024);
        myPort = Port(q1, q2);
        q1.admPrio(p1, p2) = p1.arrival < p2.arrival;
        q1.congestion() = (currSize >= size, drop);
        q1.procPrio(p1, p2) = p1.arrival < p2.arrival;
        // TOS field as admission priority
        q2.admPrio(p1, p2) = p1.dscp > p2.dscp;
        q2.congestion() = (currSize >= 1024, drop(0.95));
        q2.procPrio(p1, p2) = p1.arrival < p2.arrival;
        queue = (chance(0.7), q1).(true, q2);
        myPort.schedPrio(a, b) = a.turn < b.turn;";
    let mut engine = Engine::new(&plan(text, 1), &Surroundings::default());
    let mut host = Sequence::default();
    let mut counts = [0; 2];
    for id in 0..200 {
        assert_eq!(arrive(&mut engine, &mut host, id, &packet(id.into(), 0)), Verdict::Queued);
        counts[0] += engine.queue(0).1;
        counts[1] += engine.queue(1).1;
        assert_eq!(engine.depart(&mut host, 0, 0), Some(id));
    }
    assert!((135..=145).contains(&counts[0]) && counts[0] + counts[1] == 200, "{counts:?}");
}

#[test]
fn conditions_of_section_2_3_2() {
    let text = "q = Queue(1000); out = Port(100%, q);
        procPrio(p1, p2) = (p1.arrival < p2.arrival)
        congestion() =
          (currSize >= 0.95 * size, drop(1)).
          (currSize >= 0.90 * size, drop(0.9)).
          (currSize >= 0.75 * size, drop(0.5))";
    let mut engine = Engine::new(&plan(text, 1), &Surroundings::default());
    let mut host = Sequence::default();
    // The share of packets that is dropped at a length, each tried often: one comes, and if it stays it goes again.
    let mut dropped = |length: u32, tries: u32| {
        let fill = Packet { size: length - 1, ..packet(0, 0) };
        while arrive(&mut engine, &mut host, 0, &fill) == Verdict::Dropped {}
        let refused = (0..tries).filter(|_| {
            let stays = arrive(&mut engine, &mut host, 1, &packet(1, 0)) == Verdict::Queued;
            if stays {
                // First in, first out: the filling goes and comes again.
                assert_eq!(engine.depart(&mut host, 0, 0), Some(0));
                assert_eq!(engine.depart(&mut host, 0, 0), Some(1));
                while arrive(&mut engine, &mut host, 0, &fill) == Verdict::Dropped {}
            }
            !stays
        });
        let refused = refused.count();
        assert_eq!(engine.depart(&mut host, 0, 0), Some(0));
        refused as f64 / f64::from(tries)
    };
    assert_eq!(dropped(700, 100), 0.0);
    assert!((dropped(800, 4_000) - 0.5).abs() < 0.05);
    assert!((dropped(920, 4_000) - 0.9).abs() < 0.05);
    assert_eq!(dropped(950, 100), 1.0);
}

#[test]
fn levels_of_strict_priorities_by_value() {
    let text = "for i in 0..2 { q[i] = Queue(100); } out = Port(100%, q); queue = q[arrival % 2];
        q.procPrio(p1, p2) = p1.arrival < p2.arrival;
        schedPrio(q1, q2) = (q1.getHOL().value > q2.getHOL().value)";
    // An index by a time is none.
    assert!(text.parse::<Policy>().is_err());
    let text = text.replace("arrival % 2", "flow");
    assert_eq!(run(&text, &packets(&[4, 1, 2, 3])).1, [0, 2, 1, 3]);
}
