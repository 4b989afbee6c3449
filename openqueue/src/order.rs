//! What comparators say: keys where there are any, and with them the structure that keeps a queue in order.

use crate::ast::{Binary, Body, Expr, ExprKind, Path, Rule};
use crate::compile::{About, Compiler, Constants};
use crate::error::{PolicyError, Result};
use crate::program::{Operand, Operator, Program};
use crate::source::{PacketField, QueueField, Source};

/// Keys that a comparator may have, one deciding between equals of the one before.
pub(crate) const KEYS: usize = 2;

/// One key of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SortKey {
    pub program: Program,
    /// Whether larger ones come first.
    pub descending: bool,
}

/// The order of packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PacketOrder {
    /// As they came.
    Arrival,
    /// The last that came first.
    Reverse,
    /// By keys, and then as they came.
    Keys(Vec<SortKey>),
    /// By a comparator that has no keys, and then as they came.
    Comparator(Program),
}

/// One key of an order of queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum QueueKey {
    /// By a number of the queue's.
    Number(SortKey),
    /// By how soon it is the queue's turn: of an index, or of all.
    Turn(Option<u8>),
}

/// The order of queues.
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

/// Reads a comparator of packets.
pub(crate) fn of_packets(rule: &Rule, constants: &Constants) -> Result<PacketOrder> {
    let (first, second) = formals(rule, "packets")?;
    let expr = predicate(rule)?;
    let names = Names { first: &first, second: &second, constants };
    // Errors of fields are those of the comparator as a whole.
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
            // Nothing comes after it: no two packets come at once.
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

/// Reads a comparator of queues, whose indices have these names.
pub(crate) fn of_queues(rule: &Rule, constants: &Constants, indices: &[String]) -> Result<QueueOrder> {
    let (first, second) = formals(rule, "queues")?;
    let expr = predicate(rule)?;
    let names = Names { first: &first, second: &second, constants };
    strict(expr)?;
    let Some(keys) = names.keys(expr) else {
        // What is wrong with a field says more than that there is no key.
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

/// The turn that an expression is: `q1.turn`, or `q1.turn.input`.
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

/// The program of a key, about the only packet there is then.
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

/// Refuses what is true of a packet and itself.
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

/// A key as it stands there, of the packet or queue of a name.
struct Key<'a> {
    expr: &'a Expr,
    name: &'a str,
    descending: bool,
}

impl Names<'_> {
    /// The keys of a predicate, if it is `k(x) < k(y)`, or `k(x) < k(y) || k(x) == k(y) && …`.
    fn keys<'a>(&'a self, expr: &'a Expr) -> Option<Vec<Key<'a>>> {
        match &expr.kind {
            ExprKind::Binary(Binary::Or, left, right) => {
                // A parameter that is on or off may choose.
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

    /// Whether an expression mentions the first, and the second.
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

    /// Whether two expressions are the same but for which of the two they are about.
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
    /// The numbers that the key can have, if they are few: the smallest and how many.
    pub fn range(&self) -> Option<(i64, i64)> {
        match (&self.program.operations[..], self.program.result) {
            ([], Operand::Load(Source::Packet(field))) => field.values().map(|values| (0, values)),
            ([], Operand::Constant(value)) => Some((value, 1)),
            // The same, moved or turned round.
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
