//! Comparators: their sort keys, if they have any, which determine the structure that keeps a queue in order.

use crate::ast::{Binary, Body, Expr, ExprKind, Path, Rule};
use crate::compile::{About, Compiler, Constants};
use crate::error::{PolicyError, Result};
use crate::program::{Operand, Operator, Program};
use crate::source::{PacketField, QueueField, Source};

/// Maximum number of keys of a comparator, each deciding between equals of the one before.
pub(crate) const KEYS: usize = 2;

/// A sort key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SortKey {
    pub program: Program,
    /// Whether larger values come first.
    pub descending: bool,
}

/// An order of packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PacketOrder {
    /// FIFO.
    Arrival,
    /// LIFO.
    Reverse,
    /// By keys, then FIFO.
    Keys(Vec<SortKey>),
    /// By a comparator without keys, then FIFO.
    Comparator(Program),
}

/// A sort key of queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum QueueKey {
    /// A number of the queue.
    Number(SortKey),
    /// Round robin: over an index, or over all queues.
    Turn(Option<u8>),
}

/// An order of queues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueueOrder(pub Vec<QueueKey>);

fn formals(rule: &Rule, of: &str) -> Result<(String, String)> {
    let [first, second] = &rule.formals[..] else {
        return Err(PolicyError::new(
            rule.at,
            format_args!("a comparator compares two {of}: expected two names in parentheses"),
        ));
    };
    if first.text == second.text {
        return Err(PolicyError::new(second.at, "the two names of a comparator are different"));
    }
    Ok((first.text.clone(), second.text.clone()))
}

fn predicate(rule: &Rule) -> Result<&Expr> {
    match &rule.body {
        Body::Predicate(expr) => Ok(expr),
        Body::Cases(_) => Err(PolicyError::new(rule.at, "expected a comparator, found a condition with actions")),
    }
}

/// Compiles a comparator of packets.
pub(crate) fn of_packets(rule: &Rule, constants: &Constants) -> Result<PacketOrder> {
    let (first, second) = formals(rule, "packets")?;
    let expr = predicate(rule)?;
    let names = Names { first: &first, second: &second, constants };
    // Errors in fields are reported for the comparator as a whole.
    let whole = Compiler::new(constants, About::Packets(&first, &second)).predicate(expr)?;
    strict(expr)?;
    if let Some(truth) = whole.as_constant() {
        let what = if truth == 0 { "never" } else { "always" };
        return Err(PolicyError::new(expr.at, format_args!("{what} true: a comparator tells two packets apart")));
    }
    let Some(keys) = names.keys(expr) else { return Ok(PacketOrder::Comparator(whole)) };
    let mut compiled = Vec::new();
    for key in keys {
        let (program, _) = Compiler::new(constants, About::Packets(&first, &second)).number(key.expr)?;
        let program = about_one(program);
        if program.result == Operand::Load(Source::Packet(PacketField::Arrival)) && program.operations.is_empty() {
            // Nothing follows it: no two packets arrive at once.
            match (compiled.is_empty(), key.descending) {
                (true, false) => return Ok(PacketOrder::Arrival),
                (true, true) => return Ok(PacketOrder::Reverse),
                (false, false) => return Ok(PacketOrder::Keys(compiled)),
                (false, true) => {}
            }
        }
        compiled.push(SortKey { program, descending: key.descending });
    }
    if compiled.len() > KEYS {
        return Ok(PacketOrder::Comparator(whole));
    }
    Ok(PacketOrder::Keys(compiled))
}

/// Compiles a comparator of queues, whose indices have these names.
pub(crate) fn of_queues(rule: &Rule, constants: &Constants, indices: &[String]) -> Result<QueueOrder> {
    let (first, second) = formals(rule, "queues")?;
    let expr = predicate(rule)?;
    let names = Names { first: &first, second: &second, constants };
    strict(expr)?;
    let Some(keys) = names.keys(expr) else {
        // An error in a field says more than the absence of a key.
        names.check(expr, indices)?;
        let what = format!(
            "expected a key of each queue compared, as in {first}.currSize < {second}.currSize, and others between \
             equals: KEY({first}) < KEY({second}) || KEY({first}) == KEY({second}) && …"
        );
        return Err(PolicyError::new(expr.at, what));
    };
    let mut compiled = Vec::new();
    for key in keys {
        let about = About::Queue(key.name, indices);
        if let Some(turn) = turn(key.expr, indices)? {
            if key.descending {
                return Err(PolicyError::new(
                    key.expr.at,
                    "the queue whose turn is soonest comes first: write turn < turn",
                ));
            }
            compiled.push(QueueKey::Turn(turn));
            continue;
        }
        let (program, _) = Compiler::new(constants, about).number(key.expr)?;
        compiled.push(QueueKey::Number(SortKey { program, descending: key.descending }));
    }
    Ok(QueueOrder(compiled))
}

/// Parses a turn: `q1.turn`, or `q1.turn.input`.
fn turn(expr: &Expr, indices: &[String]) -> Result<Option<Option<u8>>> {
    let ExprKind::Path(Path { fields, .. }) = &expr.kind else { return Ok(None) };
    match &fields[..] {
        [turn] if turn.text == "turn" => Ok(Some(None)),
        [turn, index] if turn.text == "turn" => match indices.iter().position(|name| *name == index.text) {
            Some(place) => Ok(Some(Some(place as u8))),
            None => {
                let expected = if indices.is_empty() { "none".into() } else { crate::error::alternatives(indices) };
                Err(PolicyError::new(
                    index.at,
                    format_args!("queues have no index {}; there is {expected}", index.text),
                ))
            }
        },
        _ => Ok(None),
    }
}

/// Rewrites the program of a key for a single packet.
fn about_one(program: Program) -> Program {
    let one = |operand| match operand {
        Operand::Load(Source::Second(field)) => Operand::Load(Source::Packet(field)),
        other => other,
    };
    let operations = program.operations.iter().map(|operation| {
        let mut operation = *operation;
        (operation.a, operation.b) = (one(operation.a), one(operation.b));
        operation
    });
    Program { operations: operations.collect(), result: one(program.result), denominator: program.denominator }
}

/// Rejects a comparator that holds between a packet and itself.
fn strict(expr: &Expr) -> Result<()> {
    match &expr.kind {
        ExprKind::Binary(operator @ (Binary::AtMost | Binary::AtLeast), ..) => {
            let strict = &operator.sign()[..1];
            let what = format!(
                "'{}' is true of equals: a comparator says which of two comes before the other; write '{strict}'",
                operator.sign()
            );
            Err(PolicyError::new(expr.at, what))
        }
        _ => Ok(()),
    }
}

struct Names<'a> {
    first: &'a str,
    second: &'a str,
    constants: &'a Constants,
}

/// A key as written, for the packet or queue of this name.
struct Key<'a> {
    expr: &'a Expr,
    name: &'a str,
    descending: bool,
}

impl Names<'_> {
    /// The keys of a predicate of the form `k(x) < k(y)`, or `k(x) < k(y) || k(x) == k(y) && …`.
    fn keys<'a>(&'a self, expr: &'a Expr) -> Option<Vec<Key<'a>>> {
        match &expr.kind {
            ExprKind::Binary(Binary::Or, left, right) => {
                // A boolean parameter may choose between two comparators.
                match (self.known(left), self.known(right)) {
                    (Some(false), _) => return self.keys(right),
                    (_, Some(false)) => return self.keys(left),
                    _ => {}
                }
                let mut keys = self.keys(left)?;
                let [only] = &keys[..] else { return None };
                let ExprKind::Binary(Binary::And, equal, rest) = &right.kind else { return None };
                let rest = match &equal.kind {
                    ExprKind::Binary(Binary::Equal, a, b) => {
                        let is =
                            |a: &Expr, b: &Expr| self.same(only.expr, a) && self.same(a, b) && self.is_of_one(a, b);
                        is(a, b).then(|| self.keys(rest))?
                    }
                    _ => None,
                }?;
                keys.extend(rest);
                Some(keys)
            }
            ExprKind::Binary(Binary::And, left, right) => match (self.known(left), self.known(right)) {
                (Some(true), _) => self.keys(right),
                (_, Some(true)) => self.keys(left),
                _ => None,
            },
            ExprKind::Binary(operator @ (Binary::Less | Binary::Greater), left, right) => {
                if !self.same(left, right) {
                    return None;
                }
                let swapped = match (self.mentions(left), self.mentions(right)) {
                    ((true, false), (false, true)) => false,
                    ((false, true), (true, false)) => true,
                    _ => return None,
                };
                let name = if swapped { self.second } else { self.first };
                Some(vec![Key { expr: left, name, descending: (*operator == Binary::Greater) != swapped }])
            }
            _ => None,
        }
    }

    fn known(&self, expr: &Expr) -> Option<bool> {
        match Compiler::new(self.constants, About::Nothing).constant(expr) {
            Ok(crate::compile::Constant::Bool(truth)) => Some(truth),
            _ => None,
        }
    }

    fn is_of_one(&self, a: &Expr, b: &Expr) -> bool {
        matches!((self.mentions(a), self.mentions(b)), ((true, false), (false, true)) | ((false, true), (true, false)))
    }

    /// Whether an expression mentions the first, and the second of the two.
    fn mentions(&self, expr: &Expr) -> (bool, bool) {
        match &expr.kind {
            ExprKind::Number(..) | ExprKind::Bool(_) => (false, false),
            ExprKind::Path(path) => (path.name.text == self.first, path.name.text == self.second),
            ExprKind::Call(_, arguments) => arguments
                .iter()
                .map(|argument| self.mentions(argument))
                .fold((false, false), |a, b| (a.0 | b.0, a.1 | b.1)),
            ExprKind::Not(inner) | ExprKind::Negative(inner) => self.mentions(inner),
            ExprKind::Binary(_, left, right) => {
                let (a, b) = (self.mentions(left), self.mentions(right));
                (a.0 | b.0, a.1 | b.1)
            }
        }
    }

    /// Whether two expressions are the same except for which of the two they refer to.
    fn same(&self, a: &Expr, b: &Expr) -> bool {
        match (&a.kind, &b.kind) {
            (ExprKind::Number(a, _), ExprKind::Number(b, _)) => a == b,
            (ExprKind::Bool(a), ExprKind::Bool(b)) => a == b,
            (ExprKind::Path(a), ExprKind::Path(b)) => {
                let subject = |name: &str| name == self.first || name == self.second;
                let (x, y) = (a.name.text.as_str(), b.name.text.as_str());
                (x == y || subject(x) && subject(y))
                    && a.indices.is_empty()
                    && b.indices.is_empty()
                    && a.fields.len() == b.fields.len()
                    && a.fields.iter().zip(&b.fields).all(|(a, b)| a.text == b.text)
            }
            (ExprKind::Not(a), ExprKind::Not(b)) | (ExprKind::Negative(a), ExprKind::Negative(b)) => self.same(a, b),
            (ExprKind::Binary(x, a, b), ExprKind::Binary(y, c, d)) => x == y && self.same(a, c) && self.same(b, d),
            _ => false,
        }
    }

    /// Checks the fields of both queues.
    fn check(&self, expr: &Expr, indices: &[String]) -> Result<()> {
        match &expr.kind {
            ExprKind::Number(..) | ExprKind::Bool(_) => Ok(()),
            ExprKind::Path(path) => {
                let name = if path.name.text == self.second { self.second } else { self.first };
                if turn(expr, indices)?.is_some() {
                    return Ok(());
                }
                Compiler::new(self.constants, About::Queue(name, indices)).number(expr).map(|_| ())
            }
            ExprKind::Call(name, _) => {
                Err(PolicyError::new(name.at, format_args!("{}(…): comparators call no functions", name.text)))
            }
            ExprKind::Not(inner) | ExprKind::Negative(inner) => self.check(inner, indices),
            ExprKind::Binary(_, left, right) => {
                self.check(left, indices)?;
                self.check(right, indices)
            }
        }
    }
}

impl SortKey {
    /// The range of the key, if it is small: the smallest value and the number of values.
    pub fn range(&self) -> Option<(i64, i64)> {
        match (&self.program.operations[..], self.program.result) {
            ([], Operand::Load(Source::Packet(field))) => field.values().map(|values| (0, values)),
            ([], Operand::Constant(value)) => Some((value, 1)),
            // The same, shifted or negated.
            ([one], Operand::Register(0)) => {
                let Operand::Load(Source::Packet(field)) = (match (one.a, one.b) {
                    (load @ Operand::Load(_), Operand::Constant(_))
                    | (Operand::Constant(_), load @ Operand::Load(_)) => load,
                    _ => return None,
                }) else {
                    return None;
                };
                let values = field.values()?;
                let at = |value: i64| {
                    let read = |operand| if let Operand::Constant(constant) = operand { constant } else { value };
                    one.operator.apply(read(one.a), read(one.b))
                };
                if !matches!(
                    one.operator,
                    Operator::Plus
                        | Operator::Minus
                        | Operator::Times
                        | Operator::Less
                        | Operator::AtMost
                        | Operator::Equal
                        | Operator::Modulo
                ) {
                    return None;
                }
                let (least, most) = (0..values).map(at).fold((i64::MAX, i64::MIN), |(l, m), v| (l.min(v), m.max(v)));
                let count = most.checked_sub(least)?.checked_add(1)?;
                (count <= 64).then_some((least, count))
            }
            _ => None,
        }
    }
}

impl QueueKey {
    /// The key, if it is a number.
    pub fn as_number(&self) -> Option<&SortKey> {
        match self {
            QueueKey::Number(key) => Some(key),
            QueueKey::Turn(_) => None,
        }
    }

    /// Whether the key never changes.
    pub fn is_fixed(&self) -> bool {
        match self {
            QueueKey::Turn(_) => true,
            QueueKey::Number(key) => key
                .program
                .sources()
                .all(|source| matches!(source, Source::Queue(QueueField::Index(_) | QueueField::Size))),
        }
    }
}
