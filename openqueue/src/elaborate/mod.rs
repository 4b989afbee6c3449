//! Elaboration of statements into a plan: loops are unrolled, objects created, attributes set, and everything is
//! checked.

mod classify;
mod levels;
mod rules;

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::ast::{Expr, ExprKind, Index, Name, ObjectKind, Path, Range, Rule, Setting, Statement};
use crate::compile::{About, Compiler, Constant, Constants};
use crate::error::{Place, PolicyError, Result, alternatives};
use crate::number::{Dimension, Ratio};
use crate::order::{PacketOrder, QueueKey, QueueOrder};
use crate::plan::{Accounts, BufferSpec, Condition, ConditionId, Pace, Plan, PortSpec, QueueSpec};

/// Limit on the total number of loop iterations, so that elaboration terminates quickly.
const STEPS: usize = 1 << 20;
/// Maximum number of indices of an array.
const DEPTH: usize = 4;
/// Names that set the default for all objects.
const DEFAULTS: [&str; 7] =
    ["procPrio", "admPrio", "congestion", "postAdmAct", "queuePrio", "schedPrio", "postSchedAct"];

/// Parameters set by the user, by name.
pub(crate) type Settings = BTreeMap<String, Constant>;

/// A named rule, with the constants in scope at its definition.
#[derive(Clone)]
struct Defined {
    rule: Rc<Rule>,
    constants: Constants,
}

/// An array of objects of a kind; a single one has no indices.
struct Array {
    kind: ObjectKind,
    at: Place,
    /// Names of the indices in the loop that created the objects; empty if they have none.
    indices: Vec<String>,
    /// Numbers of the objects among all of the kind.
    objects: BTreeMap<Vec<i64>, u32>,
    /// The index by which queues are numbered first.
    outermost: Option<usize>,
}

struct Queue {
    spec: QueueSpec,
    array: String,
    at: Place,
    on_port: Option<u32>,
}

pub(crate) struct Elaborator<'s> {
    ports: usize,
    settings: &'s Settings,
    constants: Constants,
    parameters: Vec<String>,
    defined: BTreeMap<String, Defined>,
    arrays: BTreeMap<String, Array>,
    queues: Vec<Queue>,
    buffers: Vec<BufferSpec>,
    port_specs: Vec<(PortSpec, Place)>,
    /// Rate and target of each port that leads to queues.
    ways: Vec<Option<Leads>>,
    /// Attributes that were set, by kind, object and name; their rules are compiled once all objects are known.
    attributes: Vec<(ObjectKind, Vec<u32>, Name, Assigned)>,
    classes: Vec<Classes>,
    orders: Vec<PacketOrder>,
    conditions: Vec<Condition>,
    steps: usize,
}

/// A classified packet field: its cases, and the constants in scope.
type Classes = (Name, Vec<(Option<Expr>, Expr)>, Constants);

/// Rate and target of a port that leads to queues, and the constants in scope.
type Leads = (Pace, Expr, Constants);

/// The value assigned to an attribute.
#[derive(Clone)]
enum Assigned {
    Rule(Defined),
    Number(Expr, Constants),
}

/// Builds the plan of a policy for a switch with this many ports.
pub(crate) fn plan(statements: &[Statement], settings: &Settings, ports: usize) -> Result<Plan> {
    let mut elaborator = Elaborator::new(settings, ports);
    elaborator.statements(statements, true)?;
    elaborator.finish()
}

/// Number of ports of a policy that does not adapt to the switch.
pub(crate) fn fixed_ports(statements: &[Statement], settings: &Settings) -> Option<usize> {
    let count = |ports| {
        let mut elaborator = Elaborator::new(settings, ports);
        elaborator.statements(statements, true).ok()?;
        (!elaborator.is_of_one_port()).then_some(elaborator.linked())
    };
    let ports = count(2)?;
    (ports > 0 && count(3)? == ports).then_some(ports)
}

fn error<T>(at: Place, what: impl std::fmt::Display) -> Result<T> {
    Err(PolicyError::new(at, what))
}

impl<'s> Elaborator<'s> {
    fn new(settings: &'s Settings, ports: usize) -> Elaborator<'s> {
        Elaborator {
            ports,
            settings,
            constants: Constants::new(),
            parameters: Vec::new(),
            defined: BTreeMap::new(),
            arrays: BTreeMap::new(),
            queues: Vec::new(),
            buffers: Vec::new(),
            port_specs: Vec::new(),
            ways: Vec::new(),
            attributes: Vec::new(),
            classes: Vec::new(),
            orders: vec![PacketOrder::Arrival],
            conditions: Vec::new(),
            steps: 0,
        }
    }

    fn statements(&mut self, statements: &[Statement], outermost: bool) -> Result<()> {
        statements.iter().try_for_each(|statement| self.statement(statement, outermost))
    }

    fn statement(&mut self, statement: &Statement, outermost: bool) -> Result<()> {
        self.steps += 1;
        match statement {
            Statement::Param(name, value) => {
                if !outermost {
                    return error(name.at, "parameters stand outside of loops and conditions");
                }
                self.param(name, value)
            }
            Statement::For(binders, body) => self.each(binders, body),
            Statement::If(condition, then, otherwise) => {
                match Compiler::new(&self.constants, About::Nothing).constant(condition)? {
                    Constant::Bool(true) => self.statements(then, false),
                    Constant::Bool(false) => self.statements(otherwise, false),
                    Constant::Number(..) => error(condition.at, "expected on or off, found a number"),
                }
            }
            Statement::Create(path, kind, arguments, to) => self.create(path, *kind, arguments, to.as_ref()),
            Statement::Define(name, rule) => {
                if self.defined.contains_key(&name.text) {
                    return error(name.at, format_args!("{} is defined twice", name.text));
                }
                let defined = Defined { rule: Rc::new(rule.clone()), constants: self.constants.clone() };
                self.defined.insert(name.text.clone(), defined);
                Ok(())
            }
            Statement::Set(path, attribute, setting) => self.set(path, attribute, setting),
            Statement::Classify(field, classes) => {
                if self.classes.iter().any(|(name, ..)| name.text == field.text) {
                    return error(field.at, format_args!("{} is classified twice", field.text));
                }
                self.classes.push((field.clone(), classes.clone(), self.constants.clone()));
                Ok(())
            }
        }
    }

    fn param(&mut self, name: &Name, value: &Expr) -> Result<()> {
        if self.constants.contains_key(&name.text) {
            return error(name.at, format_args!("{} is a parameter already", name.text));
        }
        let default = Compiler::new(&self.constants, About::Nothing).constant(value)?;
        let value = match (self.settings.get(&name.text), default) {
            (None, default) => default,
            (Some(Constant::Bool(truth)), Constant::Bool(_)) => Constant::Bool(*truth),
            (Some(Constant::Number(number, given)), Constant::Number(_, expected)) => {
                match given.joined(expected).filter(|_| *given == expected || *given == Dimension::Plain) {
                    Some(dimension) => Constant::Number(*number, dimension),
                    None => return error(name.at, format_args!("{} is {expected}, and set to {given}", name.text)),
                }
            }
            (Some(_), Constant::Bool(_)) => return error(name.at, format_args!("{} is on or off", name.text)),
            (Some(_), _) => return error(name.at, format_args!("{} is a number", name.text)),
        };
        self.parameters.push(name.text.clone());
        self.constants.insert(name.text.clone(), value);
        Ok(())
    }

    fn each(&mut self, binders: &[(Name, Range)], body: &[Statement]) -> Result<()> {
        let Some(((name, range), rest)) = binders.split_first() else { return self.statements(body, false) };
        let whole = |expr: &Expr| match Compiler::new(&self.constants, About::Nothing).constant(expr)? {
            Constant::Number(number, _) => match number.as_whole() {
                Some(number) if (0..=1 << 20).contains(&number) => Ok(number),
                _ => error(expr.at, "expected a whole number from 0 to 1048576"),
            },
            Constant::Bool(_) => error(expr.at, "expected a whole number"),
        };
        let values = match range {
            Range::Inputs | Range::Outputs => 0..self.ports as i64,
            Range::Priorities => 0..8,
            Range::Numbers(from, to) => whole(from)?..whole(to)?,
        };
        if self.constants.contains_key(&name.text) {
            return error(
                name.at,
                format_args!("{} has a meaning already; an index needs a name of its own", name.text),
            );
        }
        for value in values {
            self.steps += 1;
            if self.steps > STEPS {
                return error(name.at, format_args!("loops take more than {STEPS} steps"));
            }
            self.constants.insert(name.text.clone(), Constant::Number(Ratio::whole(value), Dimension::Plain));
            let done = self.each(rest, body);
            self.constants.remove(&name.text);
            done?;
        }
        Ok(())
    }

    /// Evaluates indices, which may be loop indices or any constants.
    fn numbers(&self, indices: &[Index]) -> Result<Vec<Option<i64>>> {
        let one = |index: &Index| match index {
            Index::All => Ok(None),
            Index::One(expr) => match Compiler::new(&self.constants, About::Nothing).constant(expr)? {
                Constant::Number(number, _) if number.as_whole().is_some_and(|n| n >= 0) => Ok(number.as_whole()),
                _ => error(expr.at, "an index is a whole number, 0 or more"),
            },
        };
        indices.iter().map(one).collect()
    }

    fn create(&mut self, path: &Path, kind: ObjectKind, arguments: &[Expr], to: Option<&Expr>) -> Result<()> {
        let name = &path.name;
        if self.constants.contains_key(&name.text) || self.defined.contains_key(&name.text) {
            return error(name.at, format_args!("{} has a meaning already", name.text));
        }
        if ["packet", "queue", "buffer", "port", "ingress"].contains(&name.text.as_str()) {
            return error(
                name.at,
                format_args!("{} stands for the {0} that a condition is about: choose another name", name.text),
            );
        }
        if path.indices.len() > DEPTH {
            return error(name.at, format_args!("an array has at most {DEPTH} indices"));
        }
        let Some(numbers) = self.numbers(&path.indices)?.into_iter().collect::<Option<Vec<i64>>>() else {
            return error(name.at, "an object that is made has indices, not '*'");
        };
        let object = match kind {
            ObjectKind::Queue => self.make_queue(name, &numbers, arguments)?,
            ObjectKind::Buffer => self.make_buffer(name, &numbers, arguments)?,
            ObjectKind::Port => self.make_port(name, &numbers, arguments, to)?,
        };
        let indices = path.indices.iter().map(|index| match index {
            Index::One(Expr { kind: ExprKind::Path(path), .. }) => path.name.text.clone(),
            _ => String::new(),
        });
        let array = self.arrays.entry(name.text.clone()).or_insert_with(|| Array {
            kind,
            at: name.at,
            indices: indices.collect(),
            objects: BTreeMap::new(),
            outermost: None,
        });
        if array.kind != kind {
            return error(name.at, format_args!("{} is a {} already", name.text, array.kind.name()));
        }
        if array.indices.len() != numbers.len() {
            let what =
                format!("{} has {} indices elsewhere, and {} here", name.text, array.indices.len(), numbers.len());
            return error(name.at, what);
        }
        if array.objects.insert(numbers.clone(), object).is_some() {
            return error(name.at, format_args!("{} is made twice", title(&name.text, &numbers)));
        }
        Ok(())
    }

    fn size(&self, of: &str, at: Place, argument: Option<&Expr>) -> Result<u64> {
        let Some(argument) = argument else { return error(at, format_args!("a {of} has a size: expected {of}(SIZE)")) };
        match Compiler::new(&self.constants, About::Nothing).constant(argument)? {
            Constant::Number(number, Dimension::Bytes | Dimension::Plain)
                if number.as_whole().is_some_and(|n| n > 0) =>
            {
                Ok(number.above.unsigned_abs())
            }
            _ => error(argument.at, "expected a size in whole bytes, above 0"),
        }
    }

    fn make_queue(&mut self, name: &Name, numbers: &[i64], arguments: &[Expr]) -> Result<u32> {
        let size = self.size("Queue", name.at, arguments.first())?;
        if let Some(more) = arguments.get(1) {
            return error(more.at, "a Queue has a size, and nothing else");
        }
        let spec = QueueSpec {
            name: title(&name.text, numbers),
            size,
            buffer: None,
            port: 0,
            indices: numbers.to_vec(),
            processing: 0,
            admission: u16::MAX,
            congestion: None,
            after_admission: None,
            states: [0, 0, 1, 1],
            priority: None,
        };
        self.queues.push(Queue { spec, array: name.text.clone(), at: name.at, on_port: None });
        Ok(self.queues.len() as u32 - 1)
    }

    fn make_buffer(&mut self, name: &Name, numbers: &[i64], arguments: &[Expr]) -> Result<u32> {
        let size = self.size("Buffer", name.at, arguments.first())?;
        let queues = self.members("Buffer", name.at, &arguments[1..])?;
        let place = self.buffers.len() as u32;
        for queue in &queues {
            let queue = &mut self.queues[*queue as usize].spec;
            if queue.buffer.replace(place).is_some() {
                return error(name.at, format_args!("{} is in two buffers", queue.name));
            }
        }
        let name = title(&name.text, numbers);
        let (order, congestion, after_admission, accounts) = (None, None, None, None);
        self.buffers.push(BufferSpec { name, size, queues, order, congestion, after_admission, accounts });
        Ok(place)
    }

    fn make_port(&mut self, name: &Name, numbers: &[i64], arguments: &[Expr], to: Option<&Expr>) -> Result<u32> {
        let rate = match arguments.first() {
            Some(first) if !self.is_object(first) => Some(first),
            _ => None,
        };
        let leads = match to {
            Some(to) => Some((self.pace(rate)?, to.clone(), self.constants.clone())),
            None => None,
        };
        self.ways.push(leads);
        if let (Some(rate), None) = (rate, to) {
            let full = Constant::Number(Ratio::ONE, Dimension::Plain);
            if Compiler::new(&self.constants, About::Nothing).constant(rate)? != full {
                return error(rate.at, "a port sends at the rate of its link: expected 100%");
            }
        }
        let queues = self.members("Port", name.at, &arguments[usize::from(rate.is_some())..])?;
        let place = self.port_specs.len() as u32;
        for queue in &queues {
            let queue = &mut self.queues[*queue as usize];
            if queue.on_port.replace(place).is_some() {
                return error(name.at, format_args!("{} is at two ports", queue.spec.name));
            }
            queue.spec.port = place;
        }
        let spec = PortSpec {
            name: title(&name.text, numbers),
            queues,
            order: QueueOrder(vec![QueueKey::Turn(None)]),
            after_scheduling: None,
            way: None,
        };
        self.port_specs.push((spec, name.at));
        Ok(place)
    }

    fn is_object(&self, expr: &Expr) -> bool {
        matches!(&expr.kind, ExprKind::Path(path) if self.arrays.contains_key(&path.name.text))
    }

    /// The queues that a buffer or a port consists of.
    fn members(&self, of: &str, at: Place, arguments: &[Expr]) -> Result<Vec<u32>> {
        let mut members = Vec::new();
        for argument in arguments {
            let ExprKind::Path(path) = &argument.kind else {
                return error(argument.at, format_args!("a {of} is made of queues: expected the name of one"));
            };
            let (kind, objects) = self.objects(path)?;
            if kind != ObjectKind::Queue {
                return error(
                    argument.at,
                    format_args!("a {of} is made of queues, and {} is a {}", path.name.text, kind.name()),
                );
            }
            if let Some(field) = path.fields.first() {
                return error(field.at, "expected a queue, found a field");
            }
            members.extend(objects);
        }
        if members.is_empty() {
            return error(at, format_args!("a {of} has one queue at least"));
        }
        Ok(members)
    }

    /// The objects that a path names: for an array, all that begin with its indices.
    fn objects(&self, path: &Path) -> Result<(ObjectKind, Vec<u32>)> {
        let name = &path.name;
        let Some(array) = self.arrays.get(&name.text) else {
            let names: Vec<&String> = self.arrays.keys().collect();
            let expected = if names.is_empty() { "none yet".into() } else { alternatives(&names) };
            return error(name.at, format_args!("there is no {}; objects are: {expected}", name.text));
        };
        let numbers = self.numbers(&path.indices)?;
        if numbers.len() > array.indices.len() {
            return error(name.at, format_args!("{} has {} indices", name.text, array.indices.len()));
        }
        let wanted = |key: &Vec<i64>| key.iter().zip(&numbers).all(|(key, number)| number.is_none_or(|n| n == *key));
        let objects: Vec<u32> =
            array.objects.iter().filter(|(key, _)| wanted(key)).map(|(_, object)| *object).collect();
        if objects.is_empty() {
            return error(name.at, format_args!("there is no such {}", name.text));
        }
        Ok((array.kind, objects))
    }

    fn set(&mut self, path: &Path, attribute: &Name, setting: &Setting) -> Result<()> {
        let (kind, objects) = self.objects(path)?;
        if let Some(field) = path.fields.first() {
            return error(field.at, format_args!("{} has no field {} with fields", path.name.text, field.text));
        }
        let assigned = match setting {
            Setting::Number(expr) => Assigned::Number(expr.clone(), self.constants.clone()),
            Setting::Written(rule) => {
                Assigned::Rule(Defined { rule: Rc::new(rule.clone()), constants: self.constants.clone() })
            }
            Setting::Named(name) => match self.defined.get(&name.text) {
                Some(defined) => Assigned::Rule(defined.clone()),
                None => {
                    let path = Path { name: name.clone(), indices: Vec::new(), fields: Vec::new() };
                    Assigned::Number(Expr { at: name.at, kind: ExprKind::Path(path) }, self.constants.clone())
                }
            },
        };
        self.attributes.push((kind, objects, attribute.clone(), assigned));
        Ok(())
    }
}

/// The name of an array element.
fn title(name: &str, indices: &[i64]) -> String {
    indices.iter().fold(name.to_owned(), |name, index| format!("{name}[{index}]"))
}

impl Elaborator<'_> {
    fn finish(mut self) -> Result<Plan> {
        let end = Place { line: 1, column: 1 };
        if let Some(unknown) = self.settings.keys().find(|key| !self.parameters.contains(key)) {
            let expected =
                if self.parameters.is_empty() { "it has none".into() } else { alternatives(&self.parameters) };
            return error(end, format_args!("the policy has no parameter {unknown}; expected {expected}"));
        }
        if self.linked() == 0 {
            return error(end, "a policy has a port at least: expected NAME = Port(100%, QUEUE, …)");
        }
        if let Some(queue) = self.queues.iter().find(|queue| queue.on_port.is_none()) {
            return error(queue.at, format_args!("{} is at no port", queue.spec.name));
        }
        let copies = self.copies()?;
        self.links_first();
        self.defaults()?;
        for (kind, objects, name, assigned) in std::mem::take(&mut self.attributes) {
            self.assign(kind, &objects, &name, &assigned)?;
        }
        for queue in &mut self.queues {
            // Without an admission order, the packet least valuable to process is dropped first.
            if queue.spec.admission == u16::MAX {
                queue.spec.admission = queue.spec.processing;
            }
        }
        let classifier = self.classifier(copies)?;
        self.levels(copies)?;
        let places: Vec<Place> = self.port_specs.iter().map(|(_, at)| *at).collect();
        let places_of_queues: Vec<Place> = self.queues.iter().map(|queue| queue.at).collect();
        let plan = Plan {
            copies,
            ports_in_all: self.ports,
            queues: self.queues.into_iter().map(|queue| queue.spec).collect(),
            buffers: self.buffers,
            ports: self.port_specs.into_iter().map(|(port, _)| port).collect(),
            orders: self.orders,
            conditions: self.conditions,
            classifier,
            derived: crate::plan::Derived::default(),
        };
        if let Err((port, why)) = crate::run::build::arrangements(&plan) {
            return error(places[port], format_args!("{}: {why}", plan.ports[port].name));
        }
        if let Err((queue, why)) = coins(&plan) {
            return error(places_of_queues[queue], format_args!("{}: trim(coin) {why}", plan.queues[queue].name));
        }
        Ok(plan)
    }

    /// Number of copies of the objects: one if they are a whole switch's, one per output if they are a single port's.
    fn copies(&self) -> Result<usize> {
        match self.linked() {
            1 if self.is_of_one_port() => Ok(self.ports),
            ports if ports == self.ports => Ok(1),
            ports => {
                let what = format!(
                    "the policy has {ports} ports, and the switch {}; with for output in outputs {{ … }} there are as \
                     many, and ports between queues say where they lead: Port(…) -> QUEUE",
                    self.ports
                );
                let first = self.ways.iter().position(Option::is_none).unwrap_or(0);
                error(self.port_specs[first].1, what)
            }
        }
    }

    /// Whether the policy describes a single port, which the switch has for each output.
    fn is_of_one_port(&self) -> bool {
        let linked = |port: &u32| self.ways[*port as usize].is_none();
        let single = |array: &Array| {
            array.kind == ObjectKind::Port && array.indices.is_empty() && array.objects.values().any(linked)
        };
        self.linked() == 1 && self.arrays.values().any(single)
    }

    fn defaults(&mut self) -> Result<()> {
        let all = |n: usize| (0..n as u32).collect::<Vec<u32>>();
        let mut first = Vec::new();
        for name in DEFAULTS {
            let Some(defined) = self.defined.get(name) else { continue };
            let (kind, objects) = match name {
                "queuePrio" => (ObjectKind::Buffer, all(self.buffers.len())),
                "schedPrio" | "postSchedAct" => (ObjectKind::Port, all(self.port_specs.len())),
                _ => (ObjectKind::Queue, all(self.queues.len())),
            };
            let at = defined.rule.at;
            first.push((kind, objects, Name { text: name.into(), at }, Assigned::Rule(defined.clone())));
        }
        first.append(&mut self.attributes);
        self.attributes = first;
        Ok(())
    }

    fn assign(&mut self, kind: ObjectKind, objects: &[u32], name: &Name, assigned: &Assigned) -> Result<()> {
        match assigned {
            Assigned::Number(expr, constants) => self.assign_number(kind, objects, name, expr, constants),
            Assigned::Rule(defined) => self.assign_rule(kind, objects, name, defined),
        }
    }

    fn assign_number(
        &mut self,
        kind: ObjectKind,
        objects: &[u32],
        name: &Name,
        expr: &Expr,
        constants: &Constants,
    ) -> Result<()> {
        let state = ["admState", "schedState", "weightAdm", "weightSched"].iter().position(|s| *s == name.text);
        match (kind, name.text.as_str(), state) {
            (ObjectKind::Queue, _, Some(state)) => {
                let number = match Compiler::new(constants, About::Nothing).constant(expr)? {
                    Constant::Number(number, _) if number.as_whole().is_some() => number.above,
                    _ => return error(expr.at, "expected a whole number"),
                };
                objects.iter().for_each(|queue| self.queues[*queue as usize].spec.states[state] = number);
                Ok(())
            }
            (ObjectKind::Buffer, "reserve" | "headroom" | "ingressLimit", _) => {
                objects.iter().try_for_each(|buffer| self.account(*buffer, name, expr, constants))
            }
            _ if self.attributes_of(kind).contains(&name.text.as_str()) => {
                error(expr.at, format_args!("{}: expected the name of a rule; there is none of this name", name.text))
            }
            _ => self.no_attribute(kind, name),
        }
    }

    fn account(&mut self, buffer: u32, name: &Name, expr: &Expr, constants: &Constants) -> Result<()> {
        let about = About::Condition(crate::compile::Subject::Buffer, None, &[]);
        let accounts = self.buffers[buffer as usize].accounts.get_or_insert_with(|| Accounts {
            reserve: 0,
            headroom: None,
            limit: crate::program::Program::constant(i64::MAX, 1),
        });
        if name.text == "ingressLimit" {
            let (program, counts) = Compiler::new(constants, about).number(expr)?;
            if counts.joined(Dimension::Bytes).is_none() {
                return error(expr.at, format_args!("expected bytes, found {counts}"));
            }
            accounts.limit = program;
            return Ok(());
        }
        // What each link needs is known to the switch, not to the policy.
        if matches!(&expr.kind, ExprKind::Path(path) if path.name.text == "links") && name.text == "headroom" {
            accounts.headroom = None;
            return Ok(());
        }
        let bytes = match Compiler::new(constants, About::Nothing).constant(expr)? {
            Constant::Number(number, Dimension::Bytes | Dimension::Plain) => number.as_whole(),
            _ => None,
        };
        let Some(bytes) = bytes.and_then(|bytes| u64::try_from(bytes).ok()) else {
            return error(expr.at, "expected a size in whole bytes");
        };
        if name.text == "reserve" {
            accounts.reserve = bytes;
        } else {
            accounts.headroom = Some(bytes);
        }
        Ok(())
    }

    fn attributes_of(&self, kind: ObjectKind) -> &'static [&'static str] {
        match kind {
            ObjectKind::Queue => &[
                "procPrio",
                "admPrio",
                "congestion",
                "postAdmAct",
                "admState",
                "schedState",
                "weightAdm",
                "weightSched",
            ],
            ObjectKind::Buffer => &["queuePrio", "congestion", "postAdmAct", "reserve", "headroom", "ingressLimit"],
            ObjectKind::Port => &["schedPrio", "postSchedAct"],
        }
    }

    fn no_attribute<T>(&self, kind: ObjectKind, name: &Name) -> Result<T> {
        let expected = alternatives(self.attributes_of(kind));
        error(name.at, format_args!("a {} has no attribute {} to set; expected {expected}", kind.name(), name.text))
    }

    fn remember(&mut self, condition: Condition) -> ConditionId {
        let place = self.conditions.iter().position(|known| *known == condition).unwrap_or_else(|| {
            self.conditions.push(condition);
            self.conditions.len() - 1
        });
        place as ConditionId
    }
}

/// Checks that `trim(coin)` is used only where the queued packet can be offered again; otherwise returns the queue and
/// the reason.
fn coins(plan: &Plan) -> std::result::Result<(), (usize, &'static str)> {
    let Some(queue) = plan.queues.iter().position(|queue| plan.tosses_coin(queue)) else { return Ok(()) };
    let lossless = |queue: &QueueSpec| {
        let buffer = queue.buffer.map(|buffer| &plan.buffers[buffer as usize]);
        plan.tosses_coin(queue) && buffer.is_some_and(|buffer| buffer.accounts.is_some())
    };
    if plan.has_levels() {
        return Err((queue, "goes with policies whose ports all have links"));
    }
    if plan.reads_heads() {
        return Err((queue, "goes with policies that do not look at getHOL()"));
    }
    match plan.queues.iter().position(lossless) {
        Some(queue) => Err((queue, "goes with buffers without reserve, headroom and ingressLimit: those lose nothing")),
        None => Ok(()),
    }
}
