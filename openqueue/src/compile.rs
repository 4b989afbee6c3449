//! Compilation of expressions to programs.

use std::collections::BTreeMap;

use crate::ast::{Binary, Expr, ExprKind, Path};
use crate::error::{Place, PolicyError, Result, alternatives};
use crate::number::{Dimension, Ratio, gcd};
use crate::program::{LONGEST, Operand, Operation, Operator, Program, QUOTIENT_BITS};
use crate::source::{self, PacketField, QueueField, Source, row};

/// The value of a parameter or of an index.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) enum Constant {
    Number(Ratio, Dimension),
    Bool(bool),
}

/// Parameters and indices by their names.
pub(crate) type Constants = BTreeMap<String, Constant>;

/// The context of an expression, which gives names their meaning.
#[derive(Copy, Clone, Debug)]
pub(crate) enum About<'a> {
    /// Parameters and numbers only.
    Nothing,
    /// A packet being classified.
    Classified,
    /// Two packets with these names.
    Packets(&'a str, &'a str),
    /// One of the queues being compared, by its name, and the names of its indices.
    Queue(&'a str, &'a [String]),
    /// The queue, buffer or port of a condition; the name that stands for it, if any; and the indices of the queue.
    Condition(Subject, Option<&'a str>, &'a [String]),
}

/// The object of a condition.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Queue,
    Buffer,
    Port,
}

/// An intermediate value.
#[derive(Copy, Clone, Debug)]
enum Value {
    Known(Constant),
    Number { operand: Operand, denominator: i64, dimension: Dimension },
    Bool(Operand),
}

pub(crate) struct Compiler<'a> {
    pub constants: &'a Constants,
    pub about: About<'a>,
    operations: Vec<Operation>,
}

/// Largest denominator of a fraction in a program: with it, sizes of some MB still fit.
const FINEST: i64 = 1 << 40;

impl<'a> Compiler<'a> {
    pub fn new(constants: &'a Constants, about: About<'a>) -> Compiler<'a> {
        Compiler { constants, about, operations: Vec::new() }
    }

    /// Compiles a number, and returns its dimension.
    pub fn number(mut self, expr: &Expr) -> Result<(Program, Dimension)> {
        let value = self.value(expr)?;
        let (operand, denominator, dimension) = self.as_number(expr, value)?;
        let program = Program { operations: self.operations.into(), result: operand, denominator };
        Ok((program, dimension))
    }

    /// Compiles a predicate.
    pub fn predicate(mut self, expr: &Expr) -> Result<Program> {
        let value = self.value(expr)?;
        let result = self.as_bool(expr, value)?;
        Ok(Program { operations: self.operations.into(), result, denominator: 1 })
    }

    /// Evaluates a constant expression.
    pub fn constant(mut self, expr: &Expr) -> Result<Constant> {
        match self.value(expr)? {
            Value::Known(constant) => Ok(constant),
            _ => Err(PolicyError::new(expr.at, "expected numbers and parameters only")),
        }
    }

    fn emit(&mut self, at: Place, operator: Operator, a: Operand, b: Operand) -> Result<Operand> {
        if self.operations.len() == LONGEST {
            return Err(PolicyError::new(at, format_args!("an expression has at most {LONGEST} operations")));
        }
        self.operations.push(Operation { operator, a, b });
        Ok(Operand::Register(self.operations.len() as u8 - 1))
    }

    fn as_number(&self, expr: &Expr, value: Value) -> Result<(Operand, i64, Dimension)> {
        match value {
            Value::Known(Constant::Number(number, dimension)) => {
                Ok((Operand::Constant(number.above), number.below, dimension))
            }
            Value::Number { operand, denominator, dimension } => Ok((operand, denominator, dimension)),
            Value::Known(Constant::Bool(_)) | Value::Bool(_) => {
                Err(PolicyError::new(expr.at, "expected a number, found a condition"))
            }
        }
    }

    fn as_bool(&self, expr: &Expr, value: Value) -> Result<Operand> {
        match value {
            Value::Known(Constant::Bool(truth)) => Ok(Operand::Constant(truth.into())),
            Value::Bool(operand) => Ok(operand),
            _ => Err(PolicyError::new(expr.at, "expected a condition such as currSize > 10KB, found a number")),
        }
    }

    fn value(&mut self, expr: &Expr) -> Result<Value> {
        match &expr.kind {
            ExprKind::Number(number, dimension) => Ok(Value::Known(Constant::Number(*number, *dimension))),
            ExprKind::Bool(truth) => Ok(Value::Known(Constant::Bool(*truth))),
            ExprKind::Path(path) => self.path(path),
            ExprKind::Not(inner) => {
                let value = self.value(inner)?;
                match self.as_bool(inner, value)? {
                    Operand::Constant(truth) => Ok(Value::Known(Constant::Bool(truth == 0))),
                    operand => self.emit(expr.at, Operator::Not, operand, Operand::Constant(0)).map(Value::Bool),
                }
            }
            ExprKind::Negative(inner) => {
                let value = self.value(inner)?;
                let zero = Value::Known(Constant::Number(Ratio::ZERO, Dimension::Plain));
                self.arithmetic(expr, Binary::Minus, (inner, zero), (inner, value))
            }
            ExprKind::Binary(operator, left, right) => match operator {
                Binary::Or | Binary::And => self.logic(expr.at, *operator, left, right),
                Binary::Plus | Binary::Minus | Binary::Times | Binary::Over | Binary::Modulo => {
                    let (a, b) = (self.value(left)?, self.value(right)?);
                    self.arithmetic(expr, *operator, (left, a), (right, b))
                }
                _ => self.comparison(expr.at, *operator, left, right),
            },
            ExprKind::Call(name, arguments) => self.call(name, arguments),
        }
    }

    fn logic(&mut self, at: Place, operator: Binary, left: &Expr, right: &Expr) -> Result<Value> {
        let value = self.value(left)?;
        let a = self.as_bool(left, value)?;
        let settles = i64::from(operator == Binary::Or);
        // The irrelevant operand is compiled anyway, to find errors, but leaves no operations.
        let before = self.operations.len();
        let value = self.value(right)?;
        let b = self.as_bool(right, value)?;
        match (a, b) {
            (Operand::Constant(truth), _) if truth == settles => {
                self.operations.truncate(before);
                Ok(Value::Known(Constant::Bool(truth != 0)))
            }
            (Operand::Constant(_), Operand::Constant(truth)) => Ok(Value::Known(Constant::Bool(truth != 0))),
            (Operand::Constant(_), other) => Ok(Value::Bool(other)),
            (_, Operand::Constant(truth)) if truth == settles => Ok(Value::Known(Constant::Bool(truth != 0))),
            (other, Operand::Constant(_)) => Ok(Value::Bool(other)),
            (a, b) => {
                let operator = if operator == Binary::Or { Operator::Or } else { Operator::And };
                self.emit(at, operator, a, b).map(Value::Bool)
            }
        }
    }

    fn comparison(&mut self, at: Place, operator: Binary, left: &Expr, right: &Expr) -> Result<Value> {
        let (a, b) = (self.value(left)?, self.value(right)?);
        if let (Value::Bool(_) | Value::Known(Constant::Bool(_)), Binary::Equal | Binary::Unequal) = (a, operator) {
            let (a, b) = (self.as_bool(left, a)?, self.as_bool(right, b)?);
            return self.compare(at, operator, a, b);
        }
        let (a, a_below, a_counts) = self.as_number(left, a)?;
        let (b, b_below, b_counts) = self.as_number(right, b)?;
        if a_counts.joined(b_counts).is_none() {
            return Err(PolicyError::new(at, format_args!("{a_counts} is compared with {b_counts}")));
        }
        let common = self.common(at, a_below, b_below)?;
        let a = self.scaled(at, a, common / a_below)?;
        let b = self.scaled(at, b, common / b_below)?;
        self.compare(at, operator, a, b)
    }

    fn compare(&mut self, at: Place, operator: Binary, a: Operand, b: Operand) -> Result<Value> {
        let (operator, a, b, inverted) = match operator {
            Binary::Less => (Operator::Less, a, b, false),
            Binary::Greater => (Operator::Less, b, a, false),
            Binary::AtMost => (Operator::AtMost, a, b, false),
            Binary::AtLeast => (Operator::AtMost, b, a, false),
            Binary::Equal => (Operator::Equal, a, b, false),
            _ => (Operator::Equal, a, b, true),
        };
        if let (Operand::Constant(a), Operand::Constant(b)) = (a, b) {
            return Ok(Value::Known(Constant::Bool((operator.apply(a, b) != 0) != inverted)));
        }
        let result = self.emit(at, operator, a, b)?;
        if inverted {
            return self.emit(at, Operator::Not, result, Operand::Constant(0)).map(Value::Bool);
        }
        Ok(Value::Bool(result))
    }

    fn common(&self, at: Place, a: i64, b: i64) -> Result<i64> {
        let divisor = gcd(a.unsigned_abs().into(), b.unsigned_abs().into()) as i64;
        (a / divisor)
            .checked_mul(b)
            .filter(|common| *common <= FINEST.max(a).max(b))
            .ok_or_else(|| PolicyError::new(at, format_args!("fractions of {a} and {b} are too fine for each other")))
    }

    fn scaled(&mut self, at: Place, operand: Operand, factor: i64) -> Result<Operand> {
        match operand {
            _ if factor == 1 => Ok(operand),
            Operand::Constant(value) => match value.checked_mul(factor) {
                Some(value) => Ok(Operand::Constant(value)),
                None => Err(PolicyError::new(at, "a number does not fit")),
            },
            _ => self.emit(at, Operator::Times, operand, Operand::Constant(factor)),
        }
    }

    fn arithmetic(
        &mut self,
        expr: &Expr,
        operator: Binary,
        left: (&Expr, Value),
        right: (&Expr, Value),
    ) -> Result<Value> {
        let at = expr.at;
        let overflow = || PolicyError::new(at, "a number does not fit");
        let (a, a_below, a_counts) = self.as_number(left.0, left.1)?;
        let (b, b_below, b_counts) = self.as_number(right.0, right.1)?;
        let dimension = counts(at, operator, a_counts, b_counts)?;
        if let (Operand::Constant(a), Operand::Constant(b)) = (a, b) {
            let (a, b) = (Ratio { above: a, below: a_below }, Ratio { above: b, below: b_below });
            let result = match operator {
                Binary::Plus => a.plus(b),
                Binary::Minus => a.minus(b),
                Binary::Times => a.times(b),
                Binary::Over if b.above == 0 => return Err(PolicyError::new(right.0.at, "a division by zero")),
                Binary::Over => a.over(b),
                _ => match (a.as_whole(), b.as_whole()) {
                    (Some(_), Some(0)) => return Err(PolicyError::new(right.0.at, "a division by zero")),
                    (Some(a), Some(b)) => Some(Ratio::whole(a.wrapping_rem_euclid(b))),
                    _ => return Err(PolicyError::new(at, "'%' is of whole numbers")),
                },
            };
            return Ok(Value::Known(Constant::Number(result.ok_or_else(overflow)?, dimension)));
        }
        let (operand, denominator) = match operator {
            Binary::Plus | Binary::Minus => {
                let common = self.common(at, a_below, b_below)?;
                let a = self.scaled(at, a, common / a_below)?;
                let b = self.scaled(at, b, common / b_below)?;
                let operator = if operator == Binary::Plus { Operator::Plus } else { Operator::Minus };
                (if b == Operand::Constant(0) { a } else { self.emit(at, operator, a, b)? }, common)
            }
            Binary::Times => {
                let below = self.product(at, a_below, b_below)?;
                match (a, b) {
                    (Operand::Constant(1), other) | (other, Operand::Constant(1)) => (other, below),
                    _ => (self.emit(at, Operator::Times, a, b)?, below),
                }
            }
            // Division by a constant: exact.
            Binary::Over if matches!(b, Operand::Constant(_)) => {
                let Operand::Constant(b) = b else { return Err(overflow()) };
                let by = Ratio { above: b_below, below: 1 };
                let factor = Ratio::new(by.above.into(), b.into());
                let factor = factor.ok_or_else(|| PolicyError::new(right.0.at, "a division by zero"))?;
                let below = self.product(at, a_below, factor.below)?;
                match factor.above {
                    1 => (a, below),
                    above => (self.emit(at, Operator::Times, a, Operand::Constant(above))?, below),
                }
            }
            Binary::Over => {
                // (a / A) / (b / B) = a·B / (b·A)
                let a = self.scaled(at, a, b_below)?;
                let b = self.scaled(at, b, a_below)?;
                (self.emit(at, Operator::Over, a, b)?, 1 << QUOTIENT_BITS)
            }
            _ if a_below == 1 && b_below == 1 => (self.emit(at, Operator::Modulo, a, b)?, 1),
            _ => return Err(PolicyError::new(at, "'%' is of whole numbers")),
        };
        Ok(Value::Number { operand, denominator, dimension })
    }

    fn product(&self, at: Place, a: i64, b: i64) -> Result<i64> {
        a.checked_mul(b)
            .filter(|below| *below <= FINEST.max(1 << QUOTIENT_BITS))
            .ok_or_else(|| PolicyError::new(at, format_args!("fractions of {a} and {b} are too fine for each other")))
    }

    fn call(&mut self, name: &crate::ast::Name, arguments: &[Expr]) -> Result<Value> {
        if matches!(self.about, About::Packets(..) | About::Queue(..)) {
            let what = format!("{}(…): comparators call no functions", name.text);
            return Err(PolicyError::new(name.at, what));
        }
        let operator = match name.text.as_str() {
            "min" => Operator::Min,
            "max" => Operator::Max,
            other => {
                return Err(PolicyError::new(
                    name.at,
                    format_args!("there is no function {other}; there are min and max"),
                ));
            }
        };
        let [left, right] = arguments else {
            return Err(PolicyError::new(name.at, format_args!("{} has two arguments", name.text)));
        };
        let (a, b) = (self.value(left)?, self.value(right)?);
        let (a, a_below, a_counts) = self.as_number(left, a)?;
        let (b, b_below, b_counts) = self.as_number(right, b)?;
        let Some(dimension) = a_counts.joined(b_counts) else {
            return Err(PolicyError::new(name.at, format_args!("{} of {a_counts} and {b_counts}", name.text)));
        };
        let common = self.common(name.at, a_below, b_below)?;
        let a = self.scaled(name.at, a, common / a_below)?;
        let b = self.scaled(name.at, b, common / b_below)?;
        if let (Operand::Constant(a), Operand::Constant(b)) = (a, b) {
            let number = Ratio::new(operator.apply(a, b).into(), common.into()).unwrap_or(Ratio::ZERO);
            return Ok(Value::Known(Constant::Number(number, dimension)));
        }
        Ok(Value::Number { operand: self.emit(name.at, operator, a, b)?, denominator: common, dimension })
    }

    fn path(&mut self, path: &Path) -> Result<Value> {
        let name = path.name.text.as_str();
        if let Some(index) = path.indices.first() {
            let at = match index {
                crate::ast::Index::One(expr) => expr.at,
                crate::ast::Index::All => path.name.at,
            };
            return Err(PolicyError::new(
                at,
                format_args!("{name}[…]: expected a number; objects have none of their own"),
            ));
        }
        let load = |(source, dimension)| Value::Number { operand: Operand::Load(source), denominator: 1, dimension };
        if let Some(found) = self.field(path)? {
            return Ok(load(found));
        }
        match (self.constants.get(name), path.fields.first()) {
            (Some(constant), None) => Ok(Value::Known(*constant)),
            (Some(_), Some(field)) => {
                Err(PolicyError::new(field.at, format_args!("{name} is a number, and has no field {}", field.text)))
            }
            (None, _) => Err(self.unknown(path)),
        }
    }

    /// The error for an unknown name.
    fn unknown(&self, path: &Path) -> PolicyError {
        let name = &path.name.text;
        let expected = match self.about {
            About::Nothing => "a parameter".to_owned(),
            About::Classified => {
                format!("a parameter or a field of the packet: {}", alternatives(&source::names(&source::PACKET)))
            }
            About::Packets(a, b) => {
                let changing = ["queue", "buffer", "port", "ingress", "currSize"].contains(&name.as_str());
                if changing {
                    let what =
                        format!("{name} changes while packets wait: a comparator of packets looks at {a} and {b} only");
                    return PolicyError::new(path.name.at, what);
                }
                format!("a parameter, {a} or {b}")
            }
            About::Queue(a, _) => format!("a parameter or the queues compared, such as {a}"),
            About::Condition(subject, formal, _) => {
                let own = match (subject, formal) {
                    (_, Some(formal)) => formal.to_owned(),
                    (Subject::Queue, None) => format!("a field: {}", alternatives(&source::names(&source::QUEUE))),
                    (Subject::Buffer, None) => format!("a field: {}", alternatives(&source::names(&source::BUFFER))),
                    (Subject::Port, None) => format!("a field: {}", alternatives(&source::names(&source::PORT))),
                };
                format!("a parameter, packet, queue, buffer, port, ingress, or {own}")
            }
        };
        PolicyError::new(path.name.at, format_args!("{name}: expected {expected}"))
    }

    /// The source that a path reads, if its first name has fields.
    fn field(&self, path: &Path) -> Result<Option<(Source, Dimension)>> {
        let name = path.name.text.as_str();
        match self.about {
            About::Nothing => Ok(None),
            About::Classified => {
                let Some((field, dimension)) = row(&source::PACKET, name) else { return Ok(None) };
                match path.fields.first() {
                    None => Ok(Some((Source::Packet(field), dimension))),
                    Some(more) => Err(no_more(&path.name, more)),
                }
            }
            About::Packets(first, second) if name == first || name == second => {
                let (field, dimension) = packet_field(path, 0)?;
                Ok(Some((if name == first { Source::Packet(field) } else { Source::Second(field) }, dimension)))
            }
            About::Packets(..) => Ok(None),
            About::Queue(queue, indices) if name == queue => queue_field(path, 1, indices).map(Some),
            About::Queue(..) => Ok(None),
            About::Condition(subject, formal, indices) => self.of_condition(path, subject, formal, indices),
        }
    }

    fn of_condition(
        &self,
        path: &Path,
        subject: Subject,
        formal: Option<&str>,
        indices: &[String],
    ) -> Result<Option<(Source, Dimension)>> {
        let name = path.name.text.as_str();
        let own = |place: usize| match subject {
            Subject::Queue => queue_field(path, place, indices),
            Subject::Buffer => {
                object_field(path, place, "a buffer", &source::BUFFER).map(|(f, d)| (Source::Buffer(f), d))
            }
            Subject::Port => object_field(path, place, "a port", &source::PORT).map(|(f, d)| (Source::Port(f), d)),
        };
        if formal == Some(name) {
            return own(1).map(Some);
        }
        let source = match name {
            "packet" => packet_field(path, 0).map(|(f, d)| (Source::Packet(f), d)),
            "queue" => queue_field(path, 1, indices),
            "buffer" => object_field(path, 1, "a buffer", &source::BUFFER).map(|(f, d)| (Source::Buffer(f), d)),
            "port" => object_field(path, 1, "a port", &source::PORT).map(|(f, d)| (Source::Port(f), d)),
            "ingress" => object_field(path, 1, "ingress", &source::INGRESS).map(|(f, d)| (Source::Ingress(f), d)),
            // A parameter hides a field of its name, as does an index.
            _ if self.constants.contains_key(name) => return Ok(None),
            // For a scheduling condition, these are the states of the queue that was served.
            "admState" | "schedState" | "weightAdm" | "weightSched" if subject == Subject::Port => {
                queue_field(path, 0, indices)
            }
            _ => {
                let known = match subject {
                    Subject::Queue => {
                        row(&source::QUEUE, name).is_some() || name == "getHOL" || indices.iter().any(|i| i == name)
                    }
                    Subject::Buffer => row(&source::BUFFER, name).is_some(),
                    Subject::Port => row(&source::PORT, name).is_some(),
                };
                if !known {
                    return Ok(None);
                }
                own(0)
            }
        };
        source.map(Some)
    }
}

/// The dimension of a sum, product, … of two numbers.
fn counts(at: Place, operator: Binary, a: Dimension, b: Dimension) -> Result<Dimension> {
    let joined = match operator {
        Binary::Plus | Binary::Minus | Binary::Modulo => a.joined(b),
        Binary::Times if a == Dimension::Plain || b == Dimension::Plain => a.joined(b),
        Binary::Over if a == b => Some(Dimension::Plain),
        Binary::Over if b == Dimension::Plain => Some(a),
        // A quotient of a plain number, such as value per byte.
        Binary::Over if a == Dimension::Plain => Some(Dimension::Plain),
        _ => None,
    };
    joined.ok_or_else(|| {
        let verb = match operator {
            Binary::Plus => "added to",
            Binary::Minus => "subtracted from",
            Binary::Times => "multiplied by",
            _ => "divided by",
        };
        let (a, b) = if operator == Binary::Minus { (b, a) } else { (a, b) };
        PolicyError::new(at, format_args!("{a} is {verb} {b}"))
    })
}

fn no_more(name: &crate::ast::Name, more: &crate::ast::Name) -> PolicyError {
    PolicyError::new(more.at, format_args!("{} is a number, and has no field {}", name.text, more.text))
}

/// The `place`th name of a path; 0 is the first.
fn nth(path: &Path, place: usize) -> Option<&crate::ast::Name> {
    if place == 0 { Some(&path.name) } else { path.fields.get(place - 1) }
}

/// The packet field named by the `place`th name of the path.
fn packet_field(path: &Path, place: usize) -> Result<(PacketField, Dimension)> {
    object_field(path, place + 1, "a packet", &source::PACKET)
}

fn object_field<T: Copy>(
    path: &Path,
    place: usize,
    of: &str,
    rows: &[(&'static str, T, Dimension)],
) -> Result<(T, Dimension)> {
    let expected = || alternatives(&source::names(rows));
    let Some(name) = nth(path, place) else {
        return Err(PolicyError::new(
            path.name.at,
            format_args!("{}: expected a field of {of}: {}", path.name.text, expected()),
        ));
    };
    let Some(found) = row(rows, &name.text) else {
        let what = format!("{of} has no field {}; expected {}", name.text, expected());
        return Err(PolicyError::new(name.at, what));
    };
    match nth(path, place + 1) {
        None => Ok(found),
        Some(more) => Err(no_more(name, more)),
    }
}

fn queue_field(path: &Path, place: usize, indices: &[String]) -> Result<(Source, Dimension)> {
    if let Some(name) = nth(path, place) {
        if name.text == "getHOL" {
            return packet_field(path, place)
                .map(|(field, dimension)| (Source::Queue(QueueField::Hol(field)), dimension));
        }
        if name.text == "turn" {
            let what = "turn goes alone, as in q1.turn < q2.turn or q1.turn.priority < q2.turn.priority";
            return Err(PolicyError::new(name.at, what));
        }
        if let Some(index) = indices.iter().position(|index| *index == name.text)
            && nth(path, place + 1).is_none()
        {
            return Ok((Source::Queue(QueueField::Index(index as u8)), Dimension::Plain));
        }
    }
    object_field(path, place, "a queue", &source::QUEUE).map(|(field, dimension)| (Source::Queue(field), dimension))
}
