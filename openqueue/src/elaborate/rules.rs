//! Comparators and conditions of objects.

use super::{Defined, Elaborator, error};
use crate::ast::{Action, ActionKind, Body, Expr, Name, ObjectKind, Path, Rule};
use crate::compile::{About, Compiler, Constants, Subject};
use crate::error::{PolicyError, Result, alternatives};
use crate::number::Dimension;
use crate::order::{self, PacketOrder, QueueKey};
use crate::plan::{Condition, Cut, Deed, PlanCase, Probability, State};
use crate::program::Program;
use crate::source::Source;

impl Elaborator<'_> {
    /// Compiles the rule assigned to an attribute of these objects.
    pub(super) fn assign_rule(
        &mut self,
        kind: ObjectKind,
        objects: &[u32],
        name: &Name,
        defined: &Defined,
    ) -> Result<()> {
        match (kind, name.text.as_str()) {
            (ObjectKind::Queue, "procPrio" | "admPrio") => self.packet_order(objects, name, defined),
            (ObjectKind::Queue, "congestion") => self.queue_condition(objects, defined, Stage::Congestion),
            (ObjectKind::Queue, "postAdmAct") => self.queue_condition(objects, defined, Stage::Admission),
            (ObjectKind::Buffer, "queuePrio" | "admPrio") => self.buffer_order(objects, defined),
            (ObjectKind::Buffer, "congestion") => self.buffer_condition(objects, defined, Stage::Congestion),
            (ObjectKind::Buffer, "postAdmAct") => self.buffer_condition(objects, defined, Stage::Admission),
            (ObjectKind::Port, "schedPrio") => self.port_order(objects, defined),
            (ObjectKind::Port, "postSchedAct") => self.port_condition(objects, defined),
            _ => self.no_attribute(kind, name),
        }
    }

    /// Sets the processing or the admission order of queues, whichever has this name.
    fn packet_order(&mut self, queues: &[u32], name: &Name, defined: &Defined) -> Result<()> {
        let order = self.order(order::of_packets(&defined.rule, &defined.constants)?);
        for queue in queues {
            let spec = &mut self.queues[*queue as usize].spec;
            *if name.text == "procPrio" { &mut spec.processing } else { &mut spec.admission } = order;
        }
        Ok(())
    }

    /// Sets the condition of queues that is evaluated on congestion, or after admission; those of an array share it.
    fn queue_condition(&mut self, queues: &[u32], defined: &Defined, when: Stage) -> Result<()> {
        let mut compiled: Option<(String, u16)> = None;
        for &queue in queues {
            let array = self.queues[queue as usize].array.clone();
            let id = match &compiled {
                Some((of, id)) if *of == array => *id,
                _ => {
                    let indices = self.arrays[&array].indices.clone();
                    let condition = self.condition(defined, Subject::Queue, &indices, when)?;
                    self.remember(condition)
                }
            };
            compiled = Some((array, id));
            let spec = &mut self.queues[queue as usize].spec;
            *if when == Stage::Congestion { &mut spec.congestion } else { &mut spec.after_admission } = Some(id);
            self.has_buffer(queue, id, defined.rule.at)?;
        }
        Ok(())
    }

    /// Sets the order of the queues of buffers, of which the last gives up a packet.
    fn buffer_order(&mut self, buffers: &[u32], defined: &Defined) -> Result<()> {
        for &buffer in buffers {
            let indices = self.indices_of(&self.buffers[buffer as usize].queues.clone());
            let order = order::of_queues(&defined.rule, &defined.constants, &indices)?;
            if order.0.iter().any(|key| matches!(key, QueueKey::Turn(_))) {
                return error(defined.rule.at, "turns are of ports: queuePrio compares numbers");
            }
            self.queues_only(&order, defined)?;
            self.buffers[buffer as usize].order = Some(order);
        }
        Ok(())
    }

    /// Sets the condition of buffers that is evaluated on congestion, or after admission.
    fn buffer_condition(&mut self, buffers: &[u32], defined: &Defined, when: Stage) -> Result<()> {
        for &buffer in buffers {
            let indices = self.indices_of(&self.buffers[buffer as usize].queues.clone());
            let condition = self.condition(defined, Subject::Buffer, &indices, when)?;
            let id = self.remember(condition);
            let spec = &mut self.buffers[buffer as usize];
            *if when == Stage::Congestion { &mut spec.congestion } else { &mut spec.after_admission } = Some(id);
        }
        Ok(())
    }

    /// Sets the order of the queues of ports, of which the first is served.
    fn port_order(&mut self, ports: &[u32], defined: &Defined) -> Result<()> {
        for &port in ports {
            let indices = self.indices_of(&self.port_specs[port as usize].0.queues.clone());
            let order = order::of_queues(&defined.rule, &defined.constants, &indices)?;
            let turns = order.0.iter().any(|key| matches!(key, QueueKey::Turn(_)));
            if turns && !order.0.iter().all(QueueKey::is_fixed) {
                let what = "turns go with numbers that never change, such as the indices of queues";
                return error(defined.rule.at, what);
            }
            self.queues_only(&order, defined)?;
            self.port_specs[port as usize].0.order = order;
        }
        Ok(())
    }

    /// Sets the condition of ports that is evaluated after scheduling.
    fn port_condition(&mut self, ports: &[u32], defined: &Defined) -> Result<()> {
        for &port in ports {
            let queues = self.port_specs[port as usize].0.queues.clone();
            let indices = self.indices_of(&queues);
            let condition = self.condition(defined, Subject::Port, &indices, Stage::Scheduling)?;
            let id = self.remember(condition);
            self.port_specs[port as usize].0.after_scheduling = Some(id);
            queues.iter().try_for_each(|queue| self.has_buffer(*queue, id, defined.rule.at))?;
        }
        Ok(())
    }

    fn order(&mut self, order: PacketOrder) -> u16 {
        let place = self.orders.iter().position(|known| *known == order).unwrap_or_else(|| {
            self.orders.push(order);
            self.orders.len() - 1
        });
        place as u16
    }

    /// The names of the queues' indices, if they are of one array.
    fn indices_of(&self, queues: &[u32]) -> Vec<String> {
        let mut arrays = queues.iter().map(|queue| &self.queues[*queue as usize].array);
        let Some(first) = arrays.next() else { return Vec::new() };
        if arrays.all(|array| array == first) { self.arrays[first].indices.clone() } else { Vec::new() }
    }

    /// Rejects an order of queues with more than [`order::KEYS`] keys, unless all are fixed.
    fn queues_only(&self, order: &order::QueueOrder, defined: &Defined) -> Result<()> {
        if order.0.len() > order::KEYS && !order.0.iter().all(QueueKey::is_fixed) {
            return error(
                defined.rule.at,
                format_args!("an order of queues has at most {} keys that change", order::KEYS),
            );
        }
        Ok(())
    }

    /// Rejects a condition that reads the buffer of a queue without one.
    fn has_buffer(&self, queue: u32, id: u16, at: crate::error::Place) -> Result<()> {
        let spec = &self.queues[queue as usize].spec;
        let sources = |program: &Program| program.sources().any(|source| matches!(source, Source::Buffer(_)));
        if spec.buffer.is_none() && self.conditions[usize::from(id)].iter().any(|case| sources(&case.when)) {
            return error(at, format_args!("the condition looks at the buffer of {}, which is in none", spec.name));
        }
        Ok(())
    }

    fn condition(&self, defined: &Defined, subject: Subject, indices: &[String], stage: Stage) -> Result<Condition> {
        let Rule { at, formals, body } = &*defined.rule;
        let formal = match &formals[..] {
            [] => None,
            [one] => Some(one.text.as_str()),
            _ => return error(*at, "a condition is about one object: expected one name in parentheses, or none"),
        };
        let Body::Cases(cases) = body else {
            return error(*at, "expected cases: (CONDITION, ACTION).(CONDITION, ACTION)…");
        };
        let about = About::Condition(subject, formal, indices);
        let mut condition = Condition::new();
        for case in cases {
            let when = Compiler::new(&defined.constants, about).predicate(&case.when)?;
            let deeds = case.actions.iter().map(|action| deed(action, &defined.constants, about, subject, stage));
            let deeds = deeds.collect::<Result<Vec<Deed>>>()?;
            match when.as_constant() {
                Some(0) => continue,
                Some(_) => {
                    condition.push(PlanCase { when, deeds });
                    break;
                }
                None => condition.push(PlanCase { when, deeds }),
            }
        }
        Ok(condition)
    }
}

/// When a condition is evaluated.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Stage {
    Congestion,
    Admission,
    Scheduling,
}

fn probability(argument: Option<&Expr>, constants: &Constants, about: About<'_>) -> Result<Probability> {
    let Some(expr) = argument else { return Ok(Probability::Always) };
    let (program, counts) = Compiler::new(constants, about).number(expr)?;
    if counts != Dimension::Plain {
        return error(expr.at, format_args!("a probability is a plain number, not {counts}"));
    }
    if let Some(value) = program.as_constant() {
        if value == program.denominator {
            return Ok(Probability::Always);
        }
        if !(0..program.denominator).contains(&value) {
            return error(expr.at, "a probability is from 0 to 1");
        }
    }
    Ok(Probability::Of(program))
}

fn deed(action: &Action, constants: &Constants, about: About<'_>, subject: Subject, stage: Stage) -> Result<Deed> {
    let only = |wanted: bool, what: &str, here: &str| {
        if wanted { Ok(()) } else { Err(PolicyError::new(action.at, format_args!("{what} goes with {here} only"))) }
    };
    match &action.kind {
        ActionKind::Drop(argument) => {
            only(stage == Stage::Congestion, "drop", "congestion")?;
            probability(argument.as_ref(), constants, about).map(Deed::Drop)
        }
        ActionKind::Return => {
            only(stage == Stage::Congestion, "return", "congestion")?;
            Ok(Deed::Return)
        }
        ActionKind::Trim(which) => {
            only(stage == Stage::Congestion, "trim", "congestion")?;
            match which.as_ref().map(|which| (which.at, which.text.as_str())) {
                None | Some((_, "arriving")) => Ok(Deed::Trim(Cut::Arriving)),
                Some((_, "coin")) if subject == Subject::Queue => Ok(Deed::Trim(Cut::Coin)),
                Some((at, "coin")) => error(
                    at,
                    "it is the last packet of a queue that is cut: trim(coin) goes with the congestion of queues",
                ),
                Some((at, other)) => error(at, format_args!("expected coin or arriving, found '{other}'")),
            }
        }
        ActionKind::Mark(argument) => {
            only(stage != Stage::Congestion, "mark", "postAdmAct and postSchedAct")?;
            probability(argument.as_ref(), constants, about).map(Deed::Mark)
        }
        ActionKind::Notify(what, value) => {
            only(stage != Stage::Congestion, "notify", "postAdmAct and postSchedAct")?;
            if let Some(value) = value {
                return error(value.at, format_args!("notify({}) says nothing more", what.text));
            }
            match what.text.as_str() {
                "xoff" => Ok(Deed::Stop),
                "xon" => Ok(Deed::Resume),
                "rate" => error(
                    what.at,
                    "rates are notified of by congestion points (irnic sim --rocc); expected xoff or xon",
                ),
                _ => error(what.at, format_args!("expected xoff or xon, found '{}'", what.text)),
            }
        }
        ActionKind::Modify(path, value) => {
            only(stage != Stage::Congestion, "modify", "postAdmAct and postSchedAct")?;
            let state = state(path, about, subject)?;
            let (program, _) = Compiler::new(constants, about).number(value)?;
            Ok(Deed::Modify(state, program))
        }
    }
}

/// The state that `modify` changes.
fn state(path: &Path, about: About<'_>, subject: Subject) -> Result<State> {
    const ALL: [&str; 4] = ["admState", "schedState", "weightAdm", "weightSched"];
    let About::Condition(_, formal, _) = about else { return error(path.name.at, "nothing can be modified here") };
    let (of, name) = match &path.fields[..] {
        // In a port's condition, the state of the queue that was served: a scheduler changes its weights.
        [] if subject == Subject::Port => (Subject::Queue, &path.name),
        [] => (subject, &path.name),
        [field] => {
            let of = match path.name.text.as_str() {
                own if Some(own) == formal => subject,
                "queue" => Subject::Queue,
                "buffer" => Subject::Buffer,
                "port" => Subject::Port,
                _ => return error(path.name.at, "expected queue, buffer or port"),
            };
            (of, field)
        }
        [_, more, ..] => return error(more.at, "expected the state of an object"),
    };
    match (of, name.text.as_str()) {
        (Subject::Queue, "admState") => Ok(State::QueueAdm),
        (Subject::Queue, "schedState") => Ok(State::QueueSched),
        (Subject::Queue, "weightAdm") => Ok(State::WeightAdm),
        (Subject::Queue, "weightSched") => Ok(State::WeightSched),
        (Subject::Buffer, "admState") => Ok(State::BufferAdm),
        (Subject::Port, "schedState") => Ok(State::PortSched),
        (Subject::Queue, other) => {
            error(name.at, format_args!("{other} cannot be modified; expected {}", alternatives(&ALL)))
        }
        (Subject::Buffer, other) => error(name.at, format_args!("{other} cannot be modified; expected admState")),
        (Subject::Port, other) => error(name.at, format_args!("{other} cannot be modified; expected schedState")),
    }
}
