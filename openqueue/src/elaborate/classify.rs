//! The classifier: the queue of a packet, and its value.

use super::{Elaborator, error};
use crate::ast::{Expr, ExprKind, Index, Name, ObjectKind, Path};
use crate::compile::{About, Compiler, Constants};
use crate::error::{Place, Result};
use crate::number::Dimension;
use crate::plan::{Classifier, Target, Term, When};
use crate::program::{Operand, Program};
use crate::source::{PACKET, PacketField, Source, row};

impl Elaborator<'_> {
    pub(super) fn classifier(&mut self, copies: usize) -> Result<Classifier> {
        let mut classifier = Classifier::default();
        for (field, classes, constants) in std::mem::take(&mut self.classes) {
            if field.text == "queue" {
                self.number_queues(&classes);
                for (when, target) in &classes {
                    let when = self.when(when.as_ref(), &constants)?;
                    let target = self.target(target, &constants, copies)?;
                    if let ([_], Expr { kind: ExprKind::Path(path), .. }) = (&classes[..], &classes[0].1) {
                        self.note_priority(&path.name.text, &target.terms);
                    }
                    classifier.queue.push((when, target));
                }
                continue;
            }
            let Some((packet_field, counts)) = row(&PACKET, &field.text) else { continue };
            let mut cases = Vec::new();
            for (when, value) in &classes {
                let (program, found) = Compiler::new(&constants, About::Classified).number(value)?;
                if counts.joined(found).is_none() {
                    return error(value.at, format_args!("{} is {counts}, not {found}", field.text));
                }
                cases.push((self.when(when.as_ref(), &constants)?, program));
            }
            classifier.fields.push((packet_field, cases));
        }
        if classifier.queue.is_empty() {
            if self.queues.len() > 1 {
                let at = self.queues[1].at;
                return error(at, "there are several queues: expected a classifier, queue = …");
            }
            classifier.queue.push((When::Always, Target { base: 0, terms: Vec::new() }));
        }
        Ok(classifier)
    }

    fn when(&self, when: Option<&Expr>, constants: &Constants) -> Result<When> {
        let Some(expr) = when else { return Ok(When::Always) };
        if let ExprKind::Call(Name { text, at }, arguments) = &expr.kind
            && text == "chance"
        {
            let [share] = &arguments[..] else { return error(*at, "chance has one argument: a probability") };
            let (program, counts) = Compiler::new(constants, About::Nothing).number(share)?;
            let within = program.as_constant().is_some_and(|share| (0..=program.denominator).contains(&share));
            if counts != Dimension::Plain || !within {
                return error(share.at, "a probability is from 0 to 1");
            }
            return Ok(When::Chance(program));
        }
        let program = Compiler::new(constants, About::Classified).predicate(expr)?;
        Ok(if program.as_constant() == Some(1) { When::Always } else { When::Holds(program) })
    }

    /// Numbers the queues of each array consecutively, in the order of their indices, with that of the priority
    /// outermost, since most networks use one, whose queues are then contiguous.
    fn number_queues(&mut self, classes: &[(Option<Expr>, Expr)]) {
        let mut places = vec![0; self.queues.len()];
        let mut next = 0;
        for (name, array) in self.arrays.iter_mut().filter(|(_, array)| array.kind == ObjectKind::Queue) {
            let first = classes.iter().find_map(|(_, target)| by_priority(target, name));
            let mut objects: Vec<(&Vec<i64>, &mut u32)> = array.objects.iter_mut().collect();
            objects.sort_by_key(|(indices, _)| first.and_then(|first| indices.get(first).copied()));
            for (_, place) in objects {
                places[*place as usize] = next;
                *place = next;
                next += 1;
            }
            array.outermost = first.filter(|first| *first < array.indices.len());
        }
        let mut queues: Vec<_> = std::mem::take(&mut self.queues).into_iter().zip(&places).collect();
        queues.sort_by_key(|(_, place)| **place);
        self.queues = queues.into_iter().map(|(queue, _)| queue).collect();
        let members =
            self.buffers.iter_mut().map(|b| &mut b.queues).chain(self.port_specs.iter_mut().map(|p| &mut p.0.queues));
        members.flatten().for_each(|queue| *queue = places[*queue as usize]);
    }

    pub(super) fn target(&mut self, expr: &Expr, constants: &Constants, copies: usize) -> Result<Target> {
        let ExprKind::Path(path) = &expr.kind else { return error(expr.at, "expected a queue") };
        let Path { name, indices, fields } = path;
        let Some(array) = self.arrays.get(&name.text).filter(|array| array.kind == ObjectKind::Queue) else {
            return error(name.at, format_args!("there is no queue {}", name.text));
        };
        if let Some(field) = fields.first() {
            return error(field.at, "expected a queue, found a field");
        }
        if indices.len() != array.indices.len() {
            let what = format!("{} has {} indices, and {} are given", name.text, array.indices.len(), indices.len());
            return error(name.at, what);
        }
        let counts = dimensions(array.objects.keys(), indices.len());
        if counts.iter().product::<i64>() != array.objects.len() as i64 {
            return error(
                array.at,
                format_args!("{} has gaps: queues that a classifier chooses among are a whole array", name.text),
            );
        }
        let mut terms = Vec::new();
        let mut strides = vec![1; indices.len()];
        let mut stride = 1;
        let inner = (0..indices.len()).rev().filter(|place| Some(*place) != array.outermost);
        for place in inner.chain(array.outermost) {
            strides[place] = stride;
            stride *= counts[place] as u32;
        }
        for (place, index) in indices.iter().enumerate() {
            let Index::One(index) = index else { return error(name.at, "a packet goes to one queue, not to '*'") };
            let (program, counted) = Compiler::new(constants, About::Classified).number(index)?;
            if program.denominator != 1 || counted != Dimension::Plain {
                return error(index.at, "an index is a whole number");
            }
            terms.push(Term { index: program, count: counts[place] as u32, stride: strides[place] });
        }
        let base = array.objects.values().next().copied().unwrap_or(0);
        self.check_output(name.at, &name.text, &terms, copies)?;
        Ok(Target { base, terms })
    }

    /// Rejects a classifier that could put a packet into a queue of another output.
    fn check_output(&self, at: Place, name: &str, terms: &[Term], copies: usize) -> Result<()> {
        let array = &self.arrays[name];
        if copies > 1 || self.ports == 1 {
            return Ok(());
        }
        let by_output = terms.iter().position(|term| is_field(&term.index, PacketField::Output));
        // Queues whose port leads to others may hold packets for all outputs.
        let linked = self.linked();
        let right = array.objects.iter().all(|(indices, queue)| {
            let port = self.queues[*queue as usize].spec.port;
            port as usize >= linked || by_output.is_some_and(|place| i64::from(port) == indices[place])
        });
        if right {
            return Ok(());
        }
        let what = format!(
            "packets for one output would come to queues of another: {name} needs the index output, by which its queues \
             are at their ports"
        );
        error(at, what)
    }

    /// Notes the priority of all packets of a queue, if its index determines it.
    fn note_priority(&mut self, name: &str, terms: &[Term]) {
        let Some(place) = terms.iter().position(|term| is_field(&term.index, PacketField::Priority)) else { return };
        if terms[place].count != 8 {
            return;
        }
        for (indices, queue) in &self.arrays[name].objects {
            self.queues[*queue as usize].spec.priority = Some(indices[place] as u8);
        }
    }
}

/// The index of an array that a target derives from the priority.
fn by_priority(target: &Expr, array: &str) -> Option<usize> {
    let ExprKind::Path(path) = &target.kind else { return None };
    let is = |index: &Index| match index {
        Index::One(Expr { kind: ExprKind::Path(index), .. }) => {
            index.name.text == "priority" && index.fields.is_empty()
        }
        _ => false,
    };
    if path.name.text == array { path.indices.iter().position(is) } else { None }
}

/// The size of each index range, from 0.
fn dimensions<'a>(keys: impl Iterator<Item = &'a Vec<i64>>, depth: usize) -> Vec<i64> {
    let mut counts = vec![0; depth];
    for key in keys {
        counts.iter_mut().zip(key).for_each(|(count, index)| *count = (*count).max(index + 1));
    }
    counts
}

fn is_field(program: &Program, field: PacketField) -> bool {
    program.operations.is_empty() && program.result == Operand::Load(Source::Packet(field))
}
