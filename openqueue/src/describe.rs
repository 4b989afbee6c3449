//! A description of a plan: its structures, and the cost of each operation.

use std::fmt::{self, Write as _};

use crate::order::{PacketOrder, QueueKey, QueueOrder, SortKey};
use crate::plan::{Condition, Cut, Deed, Pace, Plan, Probability, QueueSpec, Target, When};
use crate::run::build::{arrangements, shapes, victim};
use crate::run::state::Victim;
use crate::run::store::Shape;

impl Shape {
    fn name(self) -> String {
        match self {
            Shape::List => "list".into(),
            Shape::Buckets(count) => format!("{count} buckets and a bitmap"),
            Shape::Heap => "heap of four children, with places".into(),
            Shape::TwoEnded => "heap with two ends".into(),
        }
    }

    fn cost(self) -> &'static str {
        match self {
            Shape::List | Shape::Buckets(_) => "O(1)",
            Shape::Heap | Shape::TwoEnded => "O(log n)",
        }
    }
}

fn key(key: &SortKey) -> String {
    format!("{} {}", if key.descending { "largest" } else { "smallest" }, key.program)
}

fn packet_order(order: &PacketOrder) -> String {
    match order {
        PacketOrder::Arrival => "first in, first out".into(),
        PacketOrder::Reverse => "last in, first out".into(),
        PacketOrder::Keys(keys) => keys.iter().map(key).collect::<Vec<_>>().join(", then "),
        PacketOrder::Comparator(program) => format!("comparator {program}"),
    }
}

fn queue_order(order: &QueueOrder) -> String {
    let one = |each: &QueueKey| match each {
        QueueKey::Number(number) => key(number),
        QueueKey::Turn(None) => "in turn".into(),
        QueueKey::Turn(Some(index)) => format!("in turn by index {index}"),
    };
    order.0.iter().map(one).collect::<Vec<_>>().join(", then ")
}

fn probability(probability: &Probability) -> String {
    match probability {
        Probability::Always => String::new(),
        Probability::Of(program) => format!(" with probability {program}"),
    }
}

fn condition(condition: &Condition) -> String {
    let deed = |deed: &Deed| match deed {
        Deed::Drop(share) => format!("drop{}", probability(share)),
        Deed::Mark(share) => format!("mark{}", probability(share)),
        Deed::Return => "return".into(),
        Deed::Trim(Cut::Arriving) => "trim".into(),
        Deed::Trim(Cut::Coin) => "trim by the toss of a coin".into(),
        Deed::Stop => "notify xoff".into(),
        Deed::Resume => "notify xon".into(),
        Deed::Modify(state, program) => format!("{state:?} := {program}"),
    };
    let cases = condition.iter().map(|case| {
        let deeds: Vec<String> = case.deeds.iter().map(deed).collect();
        format!("if {} then {}", case.when, deeds.join(" and "))
    });
    cases.collect::<Vec<_>>().join("; else ")
}

/// The name of the array of an object: the part before the first index.
fn array(name: &str) -> &str {
    name.split('[').next().unwrap_or(name)
}

fn count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {}, {}",
            count(self.ports_in_all, "port"),
            count(self.queues(), "queue"),
            count(self.buffers.len() * self.copies, "buffer"),
        )?;
        self.show_queues(f)?;
        for (place, buffer) in self.buffers.iter().enumerate() {
            let known = self.buffers[..place].iter().any(|other| array(&other.name) == array(&buffer.name));
            if known {
                continue;
            }
            let alike = self.buffers.iter().filter(|other| array(&other.name) == array(&buffer.name)).count();
            let (name, alike) = (array(&buffer.name), count(alike * self.copies, "buffer"));
            writeln!(f, "{name}: {alike} of {} bytes for {}", buffer.size, count(buffer.queues.len(), "queue"))?;
            match &buffer.order {
                None => writeln!(f, "  gives up      what the queue of the arriving packet does   O(1)")?,
                Some(order) => writeln!(
                    f,
                    "  gives up      what the last queue by {} does   tournament, O(log {})",
                    queue_order(order),
                    buffer.queues.len()
                )?,
            }
            if let Some(accounts) = &buffer.accounts {
                let headroom = accounts.headroom.map_or("what links need".into(), |bytes| format!("{bytes} bytes"));
                writeln!(
                    f,
                    "  accounts      {} bytes of reserve, {headroom} of headroom for each input and priority",
                    accounts.reserve
                )?;
            }
            self.show_condition(f, "congestion", buffer.congestion)?;
            self.show_condition(f, "after", buffer.after_admission)?;
        }
        let arrangements = arrangements(self).unwrap_or_default();
        for (place, (port, arrangement)) in self.ports.iter().zip(&arrangements).enumerate() {
            if self.ports[..place].iter().any(|other| array(&other.name) == array(&port.name)) {
                continue;
            }
            let alike = self.ports.iter().filter(|other| array(&other.name) == array(&port.name)).count();
            let (name, alike) = (array(&port.name), count(alike * self.copies, "port"));
            writeln!(f, "{name}: {alike} of {}", count(port.queues.len(), "queue"))?;
            let (structure, cost) = arrangement.cost();
            let cost = cost.replace('k', &port.queues.len().to_string());
            writeln!(f, "  serves        {}   {structure}, {cost}", queue_order(&port.order))?;
            if let Some(way) = &port.way {
                let pace = match way.pace {
                    Pace::Share(share) => format!("{share} of the fastest link"),
                    Pace::Rate(rate) => format!("{rate} bit/s"),
                };
                writeln!(f, "  leads to      {}   {pace}", self.target(&way.target))?;
            }
            self.show_condition(f, "after", port.after_scheduling)?;
        }
        self.show_classifier(f)
    }
}

impl Plan {
    fn show_condition(&self, f: &mut fmt::Formatter<'_>, name: &str, id: Option<u16>) -> fmt::Result {
        match id {
            None => Ok(()),
            Some(id) => writeln!(f, "  {name:<13} {}", condition(&self.conditions[usize::from(id)])),
        }
    }

    fn show_queues(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let alike = |a: &QueueSpec, b: &QueueSpec| {
            array(&a.name) == array(&b.name)
                && (a.size, a.processing, a.admission, a.congestion, a.after_admission)
                    == (b.size, b.processing, b.admission, b.congestion, b.after_admission)
        };
        for (place, queue) in self.queues.iter().enumerate() {
            if self.queues[..place].iter().any(|other| alike(other, queue)) {
                continue;
            }
            let all = self.queues.iter().filter(|other| alike(other, queue)).count() * self.copies;
            writeln!(f, "{}: {} of {} bytes", array(&queue.name), count(all, "queue"), queue.size)?;
            let (shape, second) = shapes(self, queue);
            let order = packet_order(&self.orders[usize::from(queue.processing)]);
            writeln!(f, "  processes     {order}   {}, {}", shape.name(), shape.cost())?;
            let gives_up = match victim(self, queue) {
                Victim::Newest => "the last that came   the same structure, O(1)".into(),
                Victim::Oldest => "the first that came   the same structure, O(1)".into(),
                Victim::LastProcessed => format!("the last to be processed   the same structure, {}", shape.cost()),
                Victim::OfSecond => {
                    let order = packet_order(&self.orders[usize::from(queue.admission)]);
                    let second = second.unwrap_or(Shape::List);
                    format!("the last by {order}   {}, {}", second.name(), second.cost())
                }
            };
            writeln!(f, "  gives up      {gives_up}")?;
            self.show_condition(f, "congestion", queue.congestion)?;
            self.show_condition(f, "after", queue.after_admission)?;
        }
        Ok(())
    }

    fn target(&self, target: &Target) -> String {
        let name = self.queues.get(target.base as usize).map_or("", |queue| array(&queue.name));
        target.terms.iter().fold(name.to_owned(), |mut text, term| {
            let _ = write!(text, "[{}]", term.index);
            text
        })
    }

    fn show_classifier(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let when = |when: &When| match when {
            When::Always => String::new(),
            When::Holds(program) => format!("if {program} "),
            When::Chance(program) => format!("with probability {program} "),
        };
        writeln!(f, "packets")?;
        for (field, cases) in &self.classifier.fields {
            let cases: Vec<String> = cases.iter().map(|(case, value)| format!("{}{value}", when(case))).collect();
            writeln!(f, "  {:<13} {}", format!("{field:?}").to_lowercase(), cases.join("; else "))?;
        }
        let cases: Vec<String> =
            self.classifier.queue.iter().map(|(case, to)| format!("{}{}", when(case), self.target(to))).collect();
        writeln!(f, "  {:<13} {}", "queue", cases.join("; else "))
    }
}
