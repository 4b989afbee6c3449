//! The interpreter.

use std::cmp::Ordering;

use super::random::Description;
use crate::ast::{ActionKind, Binary, Body, Case, Expr, ExprKind, Path, Setting, Statement};
use crate::program::QUOTIENT_BITS;
use crate::{Host, Packet, Verdict};

/// A queued packet: number, order of arrival, fields.
type Waiting = (u32, u64, Packet);

#[derive(Default)]
struct Queue {
    packets: Vec<Waiting>,
    adm_state: i64,
    sched_state: i64,
}

pub(super) struct Naive {
    queues: Vec<Queue>,
    size: u64,
    buffer: Option<u64>,
    processing: Body,
    admission: Body,
    congestion: Vec<Case>,
    buffer_congestion: Vec<Case>,
    queue_order: Option<Body>,
    scheduling: Option<Body>,
    after_admission: Vec<Case>,
    after_scheduling: Vec<Case>,
    headers: bool,
    /// A queued packet whose bytes are not counted, to check whether there would be room without it.
    absent: Option<u32>,
    arrived: u64,
    turn: usize,
}

/// Result of offering a packet to its queue.
enum Offered {
    TakenIn,
    Dropped,
    /// Dropped; it may be returned to its sender.
    Refused,
    /// To be trimmed.
    Cut,
}

pub(super) fn rule(text: &str) -> Body {
    let mut statements = crate::parse::parse(&format!("x.a(a, b) = {text};")).expect("a rule");
    match statements.pop() {
        Some(Statement::Set(_, _, Setting::Written(rule))) => rule.body,
        other => panic!("{other:?}"),
    }
}

fn cases(text: Option<&str>) -> Vec<Case> {
    match text.map(rule) {
        None => Vec::new(),
        Some(Body::Cases(cases)) => cases,
        Some(Body::Predicate(expr)) => panic!("{expr:?}"),
    }
}

/// A fraction, or a boolean as 1 or 0.
type Number = (i128, i128);

pub(super) fn packet_field(packet: &Packet, name: &str) -> Number {
    let value: i128 = match name {
        "arrival" => packet.arrival.into(),
        "size" => packet.size.into(),
        "value" => packet.value.into(),
        "processing" => packet.processing.into(),
        "slack" => packet.slack.into(),
        "flow" => packet.flow.into(),
        "priority" => packet.priority.into(),
        "control" => packet.control.into(),
        other => panic!("{other}"),
    };
    (value, 1)
}

pub(super) fn evaluate(expr: &Expr, read: &dyn Fn(&Path) -> Number) -> Number {
    let truth = |truth: bool| (i128::from(truth), 1);
    match &expr.kind {
        ExprKind::Number(number, _) => (number.above.into(), number.below.into()),
        ExprKind::Bool(value) => truth(*value),
        ExprKind::Path(path) => read(path),
        ExprKind::Not(inner) => truth(evaluate(inner, read).0 == 0),
        ExprKind::Negative(inner) => {
            let (above, below) = evaluate(inner, read);
            (-above, below)
        }
        ExprKind::Call(name, _) => panic!("{}", name.text),
        ExprKind::Binary(operator, left, right) => {
            let ((a, b), (c, d)) = (evaluate(left, read), evaluate(right, read));
            match operator {
                Binary::Or => truth(a != 0 || c != 0),
                Binary::And => truth(a != 0 && c != 0),
                Binary::Equal => truth(a * d == c * b),
                Binary::Unequal => truth(a * d != c * b),
                Binary::Less => truth(a * d < c * b),
                Binary::AtMost => truth(a * d <= c * b),
                Binary::Greater => truth(a * d > c * b),
                Binary::AtLeast => truth(a * d >= c * b),
                Binary::Plus => (a * d + c * b, b * d),
                Binary::Minus => (a * d - c * b, b * d),
                Binary::Times => (a * c, b * d),
                // By a non-constant, in units of 2⁻¹⁶.
                Binary::Over if is_known(right) => (a * d, b * c),
                Binary::Over => (((a * d) << QUOTIENT_BITS) / (c * b), 1 << QUOTIENT_BITS),
                Binary::Modulo => ((a / b).rem_euclid(c / d), 1),
            }
        }
    }
}

fn is_known(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Number(..) => true,
        ExprKind::Binary(_, left, right) => is_known(left) && is_known(right),
        _ => false,
    }
}

/// Compares two by a comparator, and by `otherwise` if equal.
fn order<T>(
    body: &Body,
    a: &T,
    b: &T,
    read: impl Fn(&T, &[crate::ast::Name]) -> Number,
    otherwise: Ordering,
) -> Ordering {
    let Body::Predicate(expr) = body else { panic!("{body:?}") };
    let before = |first: &T, second: &T| {
        let of = |path: &Path| read(if path.name.text.ends_with('1') { first } else { second }, &path.fields);
        evaluate(expr, &of).0 != 0
    };
    if before(a, b) {
        Ordering::Less
    } else if before(b, a) {
        Ordering::Greater
    } else {
        otherwise
    }
}

pub(super) fn of_packets(body: &Body, a: &Waiting, b: &Waiting) -> Ordering {
    // Two may arrive at the same time: a packet, and the rest of one that was trimmed for it.
    let field = |waiting: &Waiting, name: &str| match name {
        "arrival" => (waiting.1.into(), 1),
        _ => packet_field(&waiting.2, name),
    };
    order(body, a, b, |waiting, fields| field(waiting, &fields[0].text), a.1.cmp(&b.1))
}

impl Naive {
    pub fn new(description: &Description) -> Naive {
        let processing = rule(description.processing);
        Naive {
            queues: (0..description.queues).map(|_| Queue::default()).collect(),
            size: description.size,
            buffer: description.buffer,
            admission: description.admission.map_or(processing.clone(), rule),
            processing,
            congestion: cases(description.congestion.as_deref()),
            buffer_congestion: cases(description.buffer_congestion.as_deref()),
            queue_order: description.queue_order.map(rule),
            scheduling: description.scheduling.map(rule),
            after_admission: cases(description.after_admission),
            after_scheduling: cases(description.after_scheduling),
            headers: description.headers,
            absent: None,
            arrived: 0,
            turn: 0,
        }
    }

    /// Bytes and packets of each queue.
    pub fn queues(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.queues.iter().map(|queue| {
            let there = queue.packets.iter().filter(|(id, ..)| self.absent != Some(*id));
            there.fold((0, 0), |(bytes, packets), (.., packet)| (bytes + u64::from(packet.size), packets + 1))
        })
    }

    fn of(&self, queue: usize) -> (u64, u32) {
        self.queues().nth(queue).expect("a queue")
    }

    fn queue_field(&self, queue: usize, fields: &[crate::ast::Name]) -> Number {
        let state = &self.queues[queue];
        let value: i128 = match fields[0].text.as_str() {
            "currSize" => self.of(queue).0.into(),
            "size" => self.size.into(),
            "packets" => self.of(queue).1.into(),
            "i" => queue as i128,
            "admState" => state.adm_state.into(),
            "schedState" => state.sched_state.into(),
            "turn" => ((queue + self.queues.len() - self.turn) % self.queues.len()) as i128,
            "getHOL" => {
                let Some(first) = self.first(queue) else { return (0, 1) };
                return packet_field(&first.2, &fields[1].text);
            }
            other => panic!("{other}"),
        };
        (value, 1)
    }

    fn first(&self, queue: usize) -> Option<&Waiting> {
        self.queues[queue].packets.iter().min_by(|a, b| of_packets(&self.processing, a, b))
    }

    fn of_queues(&self, body: &Body, a: usize, b: usize) -> Ordering {
        order(body, &a, &b, |queue, fields| self.queue_field(*queue, fields), a.cmp(&b))
    }

    fn holds(&self, cases: &[Case], of_buffer: bool, queue: usize, packet: &Packet) -> Option<usize> {
        cases.iter().position(|case| self.evaluate(&case.when, of_buffer, queue, packet).0 != 0)
    }

    fn evaluate(&self, expr: &Expr, of_buffer: bool, queue: usize, packet: &Packet) -> Number {
        let read = |path: &Path| match (path.name.text.as_str(), &path.fields[..]) {
            ("packet", [field]) => packet_field(packet, &field.text),
            ("currSize", []) if of_buffer => (self.queues().map(|(bytes, _)| i128::from(bytes)).sum(), 1),
            ("size", []) if of_buffer => (self.buffer.unwrap_or(0).into(), 1),
            (_, []) => self.queue_field(queue, std::slice::from_ref(&path.name)),
            _ => panic!("{path:?}"),
        };
        evaluate(expr, &read)
    }

    fn draw(
        &self,
        host: &mut impl Host,
        probability: Option<&Expr>,
        of_buffer: bool,
        queue: usize,
        packet: &Packet,
    ) -> bool {
        let Some(expr) = probability else { return true };
        if is_known(expr) && self.evaluate(expr, of_buffer, queue, packet) == (1, 1) {
            return true;
        }
        let (above, below) = self.evaluate(expr, of_buffer, queue, packet);
        i128::from(host.random() >> 11) * below < above << 53
    }

    /// Handles an arrival. Returns the results for the packet, and for one that is trimmed for it.
    pub fn arrive(&mut self, host: &mut impl Host, id: u32, packet: &Packet) -> Verdict {
        let mut cut = None;
        let verdict = match self.offer(host, id, packet, &mut cut) {
            Offered::TakenIn => Verdict::Queued,
            Offered::Dropped => Verdict::Dropped,
            Offered::Refused if host.turn_back(id) => Verdict::Returned,
            Offered::Refused => Verdict::Dropped,
            Offered::Cut => self.cut(host, id, *packet),
        };
        if let Some((id, waiting)) = cut
            && self.cut(host, id, Packet { arrival: packet.arrival, ..waiting }) == Verdict::Dropped
        {
            host.push_out(id);
        }
        verdict
    }

    /// Admits the rest of a trimmed packet.
    fn cut(&mut self, host: &mut impl Host, id: u32, mut packet: Packet) -> Verdict {
        let Some(cut) = host.trim(id) else { return Verdict::Dropped };
        packet.size -= cut;
        packet.control = true;
        match self.offer(host, id, &packet, &mut None) {
            Offered::TakenIn => Verdict::Trimmed(cut),
            Offered::Refused if host.turn_back(id) => Verdict::Returned,
            Offered::Dropped | Offered::Refused | Offered::Cut => Verdict::Dropped,
        }
    }

    fn offer(&mut self, host: &mut impl Host, id: u32, packet: &Packet, cut: &mut Option<(u32, Packet)>) -> Offered {
        let to_headers = self.headers && packet.control;
        let queue = if to_headers { 0 } else { packet.flow as usize % self.queues.len() };
        let size = u64::from(packet.size);
        if size > self.size || self.buffer.is_some_and(|buffer| size > buffer) {
            return Offered::Dropped;
        }
        self.arrived += 1;
        self.queues[queue].packets.push((id, self.arrived, *packet));
        for of_buffer in [false, true] {
            if of_buffer && self.buffer.is_none() {
                continue;
            }
            let cases = if of_buffer { self.buffer_congestion.clone() } else { self.congestion.clone() };
            let mut decided = Vec::new();
            'asking: loop {
                let (mut drops, mut returns) = (self.is_over(of_buffer, queue), false);
                if let Some(case) = self.holds(&cases, of_buffer, queue, packet) {
                    for action in &cases[case].actions {
                        match &action.kind {
                            ActionKind::Trim(_) if !host.can_trim(id) => drops = true,
                            ActionKind::Trim(which) => {
                                let tossed = which.as_ref().is_some_and(|which| which.text == "coin") && host.coin();
                                if tossed && cut.is_none() {
                                    *cut = self.last_but(host, queue, (id, packet), &cases[case]);
                                    if cut.is_some() {
                                        continue 'asking;
                                    }
                                }
                                self.remove(queue, id);
                                return Offered::Cut;
                            }
                            ActionKind::Return => (drops, returns) = (true, true),
                            ActionKind::Drop(probability) => {
                                let always = probability.as_ref().is_none_or(|expr| {
                                    is_known(expr) && self.evaluate(expr, of_buffer, queue, packet) == (1, 1)
                                });
                                if always {
                                    drops = true;
                                } else if !decided.contains(&case) {
                                    decided.push(case);
                                    drops |= self.draw(host, probability.as_ref(), of_buffer, queue, packet);
                                }
                            }
                            other => panic!("{other:?}"),
                        }
                    }
                }
                if !drops {
                    break;
                }
                let mut from = queue;
                if of_buffer && let Some(order) = &self.queue_order {
                    let filled = (0..self.queues.len()).filter(|queue| !self.queues[*queue].packets.is_empty());
                    from = filled.max_by(|a, b| self.of_queues(order, *a, *b)).expect("the arriving packet's");
                }
                let packets = &self.queues[from].packets;
                let last = packets.iter().max_by(|a, b| of_packets(&self.admission, a, b)).expect("a packet").0;
                self.remove(from, last);
                if last == id {
                    return if returns { Offered::Refused } else { Offered::Dropped };
                }
                if !(returns && host.turn_back(last)) {
                    host.push_out(last);
                }
            }
        }
        let cases = self.after_admission.clone();
        self.act(host, &cases, queue, id, packet);
        Offered::TakenIn
    }

    fn is_over(&self, of_buffer: bool, queue: usize) -> bool {
        if of_buffer {
            self.queues().map(|(bytes, _)| bytes).sum::<u64>() > self.buffer.unwrap_or(0)
        } else {
            self.of(queue).0 > self.size
        }
    }

    fn remove(&mut self, queue: usize, id: u32) {
        self.queues[queue].packets.retain(|(other, ..)| *other != id);
    }

    /// Removes the last packet of a queue other than the arriving one, if it can be trimmed and there is room then.
    fn last_but(
        &mut self,
        host: &impl Host,
        queue: usize,
        (id, packet): (u32, &Packet),
        case: &Case,
    ) -> Option<(u32, Packet)> {
        let others = self.queues[queue].packets.iter().filter(|(other, ..)| *other != id);
        let (last, _, waiting) = *others.max_by(|a, b| of_packets(&self.admission, a, b))?;
        if !host.can_trim(last) {
            return None;
        }
        self.absent = Some(last);
        let more = self.is_over(false, queue) || self.evaluate(&case.when, false, queue, packet).0 != 0;
        self.absent = None;
        if more {
            return None;
        }
        self.remove(queue, last);
        Some((last, waiting))
    }

    fn act(&mut self, host: &mut impl Host, cases: &[Case], queue: usize, id: u32, packet: &Packet) {
        let Some(case) = self.holds(cases, false, queue, packet) else { return };
        for action in &cases[case].actions {
            match &action.kind {
                ActionKind::Mark(probability) => {
                    if self.draw(host, probability.as_ref(), false, queue, packet) {
                        host.mark(id);
                    }
                }
                ActionKind::Modify(path, value) => {
                    let (above, below) = self.evaluate(value, false, queue, packet);
                    let value = above.div_euclid(below) as i64;
                    match path.name.text.as_str() {
                        "admState" => self.queues[queue].adm_state = value,
                        _ => self.queues[queue].sched_state = value,
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }

    pub fn depart(&mut self, host: &mut impl Host, paused: u8) -> Option<u32> {
        let going = (0..self.queues.len())
            .filter(|queue| self.first(*queue).is_some_and(|(_, _, packet)| paused >> packet.priority & 1 == 0));
        let turn = rule("q1.turn < q2.turn");
        let order = self.scheduling.as_ref().unwrap_or(&turn);
        let queue = going.min_by(|a, b| self.of_queues(order, *a, *b))?;
        self.turn = (queue + 1) % self.queues.len();
        let (id, _, packet) = *self.first(queue)?;
        self.queues[queue].packets.retain(|(other, ..)| *other != id);
        let cases = self.after_scheduling.clone();
        self.act(host, &cases, queue, id, &packet);
        Some(id)
    }
}
