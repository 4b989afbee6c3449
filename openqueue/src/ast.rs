//! The abstract syntax tree of a policy.

use crate::error::Place;
use crate::number::{Dimension, Ratio};

/// A name and its place.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub text: String,
    pub at: Place,
}

/// An expression and its place.
#[derive(Clone, Debug)]
pub(crate) struct Expr {
    pub at: Place,
    pub kind: ExprKind,
}

#[derive(Clone, Debug)]
pub(crate) enum ExprKind {
    Number(Ratio, Dimension),
    Bool(bool),
    Path(Path),
    Call(Name, Vec<Expr>),
    Not(Box<Expr>),
    Negative(Box<Expr>),
    Binary(Binary, Box<Expr>, Box<Expr>),
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Or,
    And,
    Equal,
    Unequal,
    Less,
    AtMost,
    Greater,
    AtLeast,
    Plus,
    Minus,
    Times,
    Over,
    Modulo,
}

impl Binary {
    pub fn sign(self) -> &'static str {
        match self {
            Binary::Or => "||",
            Binary::And => "&&",
            Binary::Equal => "==",
            Binary::Unequal => "!=",
            Binary::Less => "<",
            Binary::AtMost => "<=",
            Binary::Greater => ">",
            Binary::AtLeast => ">=",
            Binary::Plus => "+",
            Binary::Minus => "-",
            Binary::Times => "*",
            Binary::Over => "/",
            Binary::Modulo => "%",
        }
    }

    /// Precedence; looser operators are lower.
    pub fn binding(self) -> u8 {
        match self {
            Binary::Or => 0,
            Binary::And => 1,
            Binary::Equal | Binary::Unequal | Binary::Less | Binary::AtMost | Binary::Greater | Binary::AtLeast => 2,
            Binary::Plus | Binary::Minus => 3,
            Binary::Times | Binary::Over | Binary::Modulo => 4,
        }
    }
}

/// `name[index]…field…`: an object, a parameter, a field.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub name: Name,
    pub indices: Vec<Index>,
    pub fields: Vec<Name>,
}

#[derive(Clone, Debug)]
pub(crate) enum Index {
    /// `*`: all indices.
    All,
    One(Expr),
}

/// The body of a comparator or a condition.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// The predicate of a comparator.
    Predicate(Expr),
    /// The cases of a condition.
    Cases(Vec<Case>),
}

#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub when: Expr,
    pub actions: Vec<Action>,
}

#[derive(Clone, Debug)]
pub(crate) struct Action {
    pub at: Place,
    pub kind: ActionKind,
}

#[derive(Clone, Debug)]
pub(crate) enum ActionKind {
    /// The probability; `None`: always.
    Drop(Option<Expr>),
    Mark(Option<Expr>),
    /// `coin`, `arriving`; `None`: arriving.
    Trim(Option<Name>),
    Return,
    Notify(Name, Option<Expr>),
    Modify(Path, Expr),
}

/// A comparator or condition with its formal parameters.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub at: Place,
    pub formals: Vec<Name>,
    pub body: Body,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum ObjectKind {
    Queue,
    Buffer,
    Port,
}

impl ObjectKind {
    pub fn name(self) -> &'static str {
        match self {
            ObjectKind::Queue => "Queue",
            ObjectKind::Buffer => "Buffer",
            ObjectKind::Port => "Port",
        }
    }
}

/// The value of an attribute.
#[derive(Clone, Debug)]
pub(crate) enum Setting {
    /// A named rule.
    Named(Name),
    /// An inline rule.
    Written(Rule),
    /// A number.
    Number(Expr),
}

#[derive(Clone, Debug)]
pub(crate) enum Range {
    Inputs,
    Outputs,
    Priorities,
    Numbers(Expr, Expr),
}

#[derive(Clone, Debug)]
pub(crate) enum Statement {
    Param(Name, Expr),
    For(Vec<(Name, Range)>, Vec<Statement>),
    If(Expr, Vec<Statement>, Vec<Statement>),
    /// Creates an object; for a port that leads to queues, with its target.
    Create(Path, ObjectKind, Vec<Expr>, Option<Expr>),
    Define(Name, Rule),
    Set(Path, Name, Setting),
    /// Classifies packets: a field, and its cases, of which the first that holds applies.
    Classify(Name, Vec<(Option<Expr>, Expr)>),
}
