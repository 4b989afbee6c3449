//! Conditions in executable form. Most compare weighted sums of sizes with a bound, and are evaluated as such
//! ([`World::holds`](super::state::World::holds)), without interpreting their programs.

use crate::plan::{Condition, Deed, PlanCase};
use crate::program::{Operand, Operator, Program};
use crate::source::{BufferField, IngressField, PacketField, PortField, QueueField, Source};

/// Limit on weights, and on constants in units of the largest size, so that sums of sizes do not overflow, in any order
/// of addition.
const HEAVIEST: i64 = 1 << 19;
/// Limit on sizes for the same purpose.
const LARGEST: u64 = 1 << 40;

/// The terms of a sum, by their index among the weights.
pub(super) const PACKET: usize = 0;
pub(super) const QUEUE: usize = 1;
pub(super) const QUEUE_SIZE: usize = 2;
pub(super) const PORT: usize = 3;
pub(super) const BUFFER: usize = 4;
pub(super) const BUFFER_SIZE: usize = 5;
pub(super) const FREE: usize = 6;
pub(super) const INGRESS: usize = 7;
pub(super) const HEADROOM: usize = 8;
pub(super) const SENDING: usize = 9;
const TERMS: usize = 10;

/// A weighted sum of sizes, plus a constant.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(super) weights: [i64; TERMS],
    pub(super) constant: i64,
}

/// The test of a case.
#[derive(Clone, Debug)]
pub(crate) enum Test {
    Always,
    Never,
    /// The sum is above 0.
    Above(Sum),
    /// One of the sums is above 0.
    AnyAbove(Box<[Sum]>),
    Holds(Program),
}

/// A case of a condition.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub when: Test,
    pub deeds: Box<[Deed]>,
}

/// A condition.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    pub cases: Box<[Case]>,
    /// Whether its only effect is to pause and resume neighbours.
    pub only_notifies: bool,
    /// Number of cases that matter while the neighbour of the packet is not paused, and while it is: requests for the
    /// current state have no effect.
    pub while_going: usize,
    pub while_stopped: usize,
}

/// The result of an operation.
enum Left {
    Sum(Sum),
    /// Whether one of the sums is above 0.
    Truth(Vec<Sum>),
}

impl Sum {
    const fn of_one(term: usize) -> Sum {
        let mut weights = [0; TERMS];
        weights[term] = 1;
        Sum { weights, constant: 0 }
    }

    const fn constant(constant: i64) -> Sum {
        Sum { weights: [0; TERMS], constant }
    }

    fn times(self, factor: i64) -> Option<Sum> {
        let mut all = self;
        for weight in all.weights.iter_mut().chain([&mut all.constant]) {
            *weight = weight.checked_mul(factor)?;
        }
        Some(all)
    }

    fn plus(self, other: Sum) -> Option<Sum> {
        let mut all = self;
        for (weight, more) in all.weights.iter_mut().zip(other.weights) {
            *weight = weight.checked_add(more)?;
        }
        all.constant = all.constant.checked_add(other.constant)?;
        Some(all)
    }

    fn as_constant(self) -> Option<i64> {
        (self.weights == [0; TERMS]).then_some(self.constant)
    }

    fn if_light(self) -> Option<Sum> {
        let light = self.weights.iter().all(|weight| (-HEAVIEST..=HEAVIEST).contains(weight))
            && self.constant.unsigned_abs() <= LARGEST * HEAVIEST as u64;
        light.then_some(self)
    }
}

impl Left {
    fn of(operand: Operand, before: &[Left]) -> Option<Sum> {
        let term = match operand {
            Operand::Constant(constant) => return Some(Sum::constant(constant)),
            Operand::Register(register) => match before.get(usize::from(register))? {
                Left::Sum(sum) => return Some(*sum),
                Left::Truth(_) => return None,
            },
            Operand::Load(Source::Packet(PacketField::Size)) => PACKET,
            Operand::Load(Source::Queue(QueueField::CurrSize)) => QUEUE,
            Operand::Load(Source::Queue(QueueField::Size)) => QUEUE_SIZE,
            Operand::Load(Source::Queue(QueueField::Sending)) => SENDING,
            Operand::Load(Source::Port(PortField::CurrSize)) => PORT,
            Operand::Load(Source::Buffer(BufferField::CurrSize)) => BUFFER,
            Operand::Load(Source::Buffer(BufferField::Size)) => BUFFER_SIZE,
            Operand::Load(Source::Buffer(BufferField::Free)) => FREE,
            Operand::Load(Source::Ingress(IngressField::CurrSize)) => INGRESS,
            Operand::Load(Source::Ingress(IngressField::Headroom)) => HEADROOM,
            Operand::Load(_) => return None,
        };
        Some(Sum::of_one(term))
    }

    fn truth(operand: Operand, before: &[Left]) -> Option<Vec<Sum>> {
        match operand {
            Operand::Register(register) => match before.get(usize::from(register))? {
                Left::Truth(sums) => Some(sums.clone()),
                Left::Sum(_) => None,
            },
            _ => None,
        }
    }
}

impl Test {
    fn of(program: &Program) -> Test {
        match (program.as_constant(), Test::sums(program)) {
            (Some(0), _) => Test::Never,
            (Some(_), _) => Test::Always,
            (None, Some(sums)) => match sums[..] {
                [sum] => Test::Above(sum),
                _ => Test::AnyAbove(sums.into()),
            },
            (None, None) => Test::Holds(program.clone()),
        }
    }

    /// The sums one of which is above 0 if and only if a program holds, if it can be expressed so.
    fn sums(program: &Program) -> Option<Vec<Sum>> {
        let mut left: Vec<Left> = Vec::new();
        for operation in &program.operations {
            let number = |operand| Left::of(operand, &left);
            let next = match operation.operator {
                Operator::Or => {
                    let mut sums = Left::truth(operation.a, &left)?;
                    sums.extend(Left::truth(operation.b, &left)?);
                    Left::Truth(sums)
                }
                operator => {
                    let (a, b) = (number(operation.a)?, number(operation.b)?);
                    let difference = b.plus(a.times(-1)?)?;
                    match (operator, a.as_constant(), b.as_constant()) {
                        (Operator::Plus, ..) => Left::Sum(a.plus(b)?.if_light()?),
                        (Operator::Minus, ..) => Left::Sum(difference.times(-1)?.if_light()?),
                        (Operator::Times, Some(factor), _) => Left::Sum(b.times(factor)?.if_light()?),
                        (Operator::Times, _, Some(factor)) => Left::Sum(a.times(factor)?.if_light()?),
                        (Operator::Less, ..) => Left::Truth(vec![difference.if_light()?]),
                        // For whole numbers.
                        (Operator::AtMost, ..) => Left::Truth(vec![difference.plus(Sum::constant(1))?.if_light()?]),
                        _ => return None,
                    }
                }
            };
            left.push(next);
        }
        Left::truth(program.result, &left)
    }
}

impl Prepared {
    /// Prepares a condition of a plan whose queues and buffers hold at most `sizes` bytes.
    pub fn of(condition: &Condition, sizes: u64) -> Prepared {
        let case = |case: &PlanCase| Case {
            when: if sizes <= LARGEST { Test::of(&case.when) } else { Test::Holds(case.when.clone()) },
            deeds: case.deeds.clone().into(),
        };
        let up_to = |has: fn(&Deed) -> bool| condition.iter().rposition(|case| case.deeds.iter().any(has));
        let notifies = |deed: &Deed| matches!(deed, Deed::Stop | Deed::Resume);
        Prepared {
            cases: condition.iter().map(case).collect(),
            only_notifies: condition.iter().flat_map(|case| &case.deeds).all(notifies),
            while_going: up_to(|deed| *deed == Deed::Stop).map_or(0, |last| last + 1),
            while_stopped: up_to(|deed| *deed == Deed::Resume).map_or(0, |last| last + 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Plan, Policy};

    fn plan(text: &str) -> Plan {
        let around = "out = Port(100%, q); b = Buffer(90KB, q); queue = q;
            fifo(p1, p2) = p1.arrival < p2.arrival q.procPrio = fifo;";
        let policy: Policy = format!("q = Queue(90KB); {around} {text}").parse().expect("a policy");
        policy.plan(2).expect("a plan")
    }

    fn tests(text: &str) -> Vec<Test> {
        let plan = plan(text);
        let prepared = plan.conditions.iter().map(|condition| Prepared::of(condition, 90_000));
        prepared.flat_map(|prepared| prepared.cases.into_vec()).map(|case| case.when).collect()
    }

    #[test]
    fn sums_of_sizes_are_weighed() {
        let [Test::Above(sum)] = tests("q.congestion(q) = (q.currSize > 3/2 * (buffer.free + packet.size), drop);")[..]
        else {
            panic!("no sum");
        };
        assert_eq!((sum.weights[QUEUE], sum.weights[FREE], sum.weights[PACKET], sum.constant), (2, -3, -3, 0));
        let all = tests("b.postAdmAct(b) = (ingress.headroom > 0 || ingress.currSize >= 2KB, notify(xoff));");
        let [Test::AnyAbove(sums)] = &all[..] else { panic!("{all:?}") };
        assert_eq!((sums[0].weights[HEADROOM], sums[0].constant), (1, 0));
        assert_eq!((sums[1].weights[INGRESS], sums[1].constant), (1, -1_999));
    }

    #[test]
    fn what_is_being_sent_is_weighed() {
        let [Test::Above(sum)] = tests("q.congestion(q) = (q.currSize + q.sending > q.size, trim);")[..] else {
            panic!("no sum");
        };
        assert_eq!((sum.weights[QUEUE], sum.weights[SENDING], sum.weights[QUEUE_SIZE]), (1, 1, -1));
    }

    #[test]
    fn what_is_no_sum_runs_its_program() {
        for condition in [
            "q.currSize * packet.priority > 10KB",
            "max(q.currSize, packet.size) > 10",
            "q.currSize > 1KB && packet.size > 100",
            "q.schedState > 1",
            // The weights are too large for a sum.
            "q.currSize * 1000000 > packet.size",
        ] {
            let all = tests(&format!("q.congestion(q) = ({condition}, drop);"));
            assert!(matches!(all[..], [Test::Holds(_)]), "{condition}: {all:?}");
        }
        let huge = Prepared::of(&plan("q.congestion(q) = (q.currSize > 1KB, drop);").conditions[0], LARGEST + 1);
        assert!(matches!(huge.cases[0].when, Test::Holds(_)));
    }

    #[test]
    fn what_has_no_effect_is_not_looked_at() {
        let text = "b.postAdmAct(b) = (ingress.currSize > 2KB, notify(xoff)).(ingress.currSize < 1KB, notify(xon));";
        let prepared = Prepared::of(&plan(text).conditions[0], 90_000);
        assert!(prepared.only_notifies);
        assert_eq!((prepared.while_going, prepared.while_stopped), (1, 2));
    }
}
