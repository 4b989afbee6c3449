//! Random policies and packets.

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use crate::Packet;

/// A policy of one port, with a text for each rule.
pub(super) struct Description {
    pub queues: usize,
    pub size: u64,
    pub buffer: Option<u64>,
    pub processing: &'static str,
    pub admission: Option<&'static str>,
    pub congestion: Option<String>,
    pub buffer_congestion: Option<String>,
    pub queue_order: Option<&'static str>,
    pub scheduling: Option<&'static str>,
    pub after_admission: Option<&'static str>,
    pub after_scheduling: Option<&'static str>,
    /// Whether packets without payload go to the first queue.
    pub headers: bool,
}

const ORDERS: [&str; 14] = [
    "p1.arrival < p2.arrival",
    "p1.arrival > p2.arrival",
    "p2.arrival < p1.arrival",
    "p1.processing < p2.processing",
    "p1.processing > p2.processing",
    "p1.priority > p2.priority",
    "p2.value < p1.value",
    "p1.value > p2.value || p1.value == p2.value && p1.size < p2.size",
    "p1.priority > p2.priority || p2.priority == p1.priority && (p1.slack < p2.slack)",
    "7 - p1.priority < 7 - p2.priority",
    "p1.slack + 3 * p1.processing < p2.slack + 3 * p2.processing",
    // Without keys.
    "p1.value * p2.size > p2.value * p1.size",
    "p1.value - p2.value > 0",
    "p1.value / p1.size > p2.value / p2.size",
];

const QUEUE_ORDERS: [&str; 6] = [
    "q1.currSize < q2.currSize",
    "q1.packets < q2.packets",
    "q1.i > q2.i",
    "q1.currSize < q2.currSize || q1.currSize == q2.currSize && q1.i > q2.i",
    "q1.getHOL().value > q2.getHOL().value",
    "q1.admState < q2.admState",
];

const SCHEDULES: [&str; 9] = [
    "q1.i > q2.i",
    "q1.i < q2.i",
    "q1.turn < q2.turn",
    "q1.turn.i < q2.turn.i",
    "q1.currSize > q2.currSize",
    "q1.currSize < q2.currSize",
    "q1.schedState < q2.schedState",
    "q1.getHOL().value > q2.getHOL().value",
    "q1.getHOL().slack < q2.getHOL().slack || q1.getHOL().slack == q2.getHOL().slack && q1.packets > q2.packets",
];

const AFTER_ADMISSION: [&str; 4] = [
    "(currSize > 4000, mark)",
    "(currSize - packet.size > 6000, mark).(currSize - packet.size > 2000, mark(0.25 * (currSize - packet.size - 2000) / 4KB))",
    "(packet.value > 8, modify(admState := admState + 1))",
    "(packets > 3, mark . modify(admState := packets))",
];

const AFTER_SCHEDULING: [&str; 2] = [
    "(true, modify(schedState := schedState + 1))",
    "(packet.size > 400, modify(schedState := schedState + packet.size / 100)).(true, mark)",
];

fn one_of<'t, T: ?Sized>(rng: &mut Pcg64Mcg, all: &[&'t T]) -> &'t T {
    all[rng.random_range(0..all.len())]
}

fn conditions(rng: &mut Pcg64Mcg, of_buffer: bool) -> String {
    let share = one_of(rng, &["0.5", "75%", "0.9", "1/3"]);
    let all = [
        format!("(currSize >= {share} * size, drop(1))"),
        "(currSize >= 0.95 * size, drop(1)).(currSize >= 0.90 * size, drop(0.9)).(currSize >= 0.75 * size, drop(0.5))"
            .to_owned(),
        format!("(packet.value < 4 && currSize > {share} * size, drop)"),
        "(currSize > size / 2 && packet.priority <= 3, drop(packet.processing / 16)).(currSize > 0.8 * size, drop)"
            .to_owned(),
        format!("(currSize > {share} * size, trim)"),
        format!("(packet.control == 1 && currSize > {share} * size, return).(currSize > 0.95 * size, trim)"),
        "(currSize > packet.slack, drop)".to_owned(),
        format!("(currSize > {share} * size, trim(coin))"),
        format!("(packet.control == 0 && currSize > {share} * size, trim(coin)).(currSize > 0.8 * size, return)"),
        "(packets > 3, trim(coin)).(currSize > size / 2, drop(0.5))".to_owned(),
    ];
    let text = all[rng.random_range(0..if of_buffer { 6 } else { all.len() })].clone();
    // Bytes cannot be compared with times.
    text.replace("currSize > packet.slack", "currSize > 100 * packet.value")
}

impl Description {
    pub fn draw(rng: &mut Pcg64Mcg) -> Description {
        loop {
            let description = Description::draw_any(rng);
            // A policy with both is rejected.
            let [coin, heads] = ["trim(coin)", "getHOL"].map(|what| description.text().contains(what));
            if !(coin && heads) {
                return description;
            }
        }
    }

    fn draw_any(rng: &mut Pcg64Mcg) -> Description {
        let queues = rng.random_range(1..6);
        let buffer = rng.random::<bool>().then(|| rng.random_range(2_000..12_000));
        Description {
            queues,
            size: rng.random_range(1_500..10_000),
            buffer,
            processing: one_of(rng, &ORDERS),
            admission: rng.random::<bool>().then(|| one_of(rng, &ORDERS)),
            congestion: rng.random::<bool>().then(|| conditions(rng, false)),
            buffer_congestion: (buffer.is_some() && rng.random::<bool>()).then(|| conditions(rng, true)),
            queue_order: (buffer.is_some() && rng.random::<bool>()).then(|| one_of(rng, &QUEUE_ORDERS)),
            scheduling: rng.random::<bool>().then(|| one_of(rng, &SCHEDULES)),
            after_admission: rng.random::<bool>().then(|| one_of(rng, &AFTER_ADMISSION)),
            after_scheduling: rng.random::<bool>().then(|| one_of(rng, &AFTER_SCHEDULING)),
            headers: rng.random(),
        }
    }

    pub fn text(&self) -> String {
        let mut text = format!(
            "for i in 0..{} {{ q[i] = Queue({}); }}\nout = Port(100%, q);\nqueue = {};\n",
            self.queues,
            self.size,
            if self.headers { "(control == 1, q[0]).(true, q[flow])" } else { "q[flow]" }
        );
        if let Some(buffer) = self.buffer {
            text += &format!("b = Buffer({buffer}, q);\n");
        }
        text += &format!("q.procPrio(p1, p2) = {};\n", self.processing);
        let optional = [
            ("q.admPrio(p1, p2)", self.admission),
            ("q.congestion()", self.congestion.as_deref()),
            ("b.congestion()", self.buffer_congestion.as_deref()),
            ("b.queuePrio(q1, q2)", self.queue_order),
            ("out.schedPrio(q1, q2)", self.scheduling),
            ("q.postAdmAct()", self.after_admission),
            ("out.postSchedAct()", self.after_scheduling),
        ];
        for (attribute, rule) in optional {
            if let Some(rule) = rule {
                text += &format!("{attribute} = {rule};\n");
            }
        }
        text
    }

    pub fn packet(&self, rng: &mut Pcg64Mcg, now: u64) -> Packet {
        Packet {
            arrival: now,
            size: rng.random_range(60..1_600),
            value: rng.random_range(0..20),
            processing: rng.random_range(1..9),
            slack: rng.random_range(0..30),
            flow: rng.random_range(0..12),
            input: 0,
            output: 0,
            priority: rng.random_range(0..8),
            dscp: rng.random_range(0..64),
            control: rng.random_range(0..8) == 0,
            red: false,
        }
    }
}
