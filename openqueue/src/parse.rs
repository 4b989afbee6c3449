//! Recursive-descent parser, with one function per rule of the grammar in `docs/openqueue.md`.

use crate::ast::{
    Action, ActionKind, Binary, Body, Case, Expr, ExprKind, Index, Name, ObjectKind, Path, Range, Rule, Setting,
    Statement,
};
use crate::error::{Place, PolicyError, Result};
use crate::lex::{Token, tokens};

/// Maximum nesting of parentheses, loops and conditions, so that a text cannot exhaust the stack.
const DEEPEST: u32 = 48;

/// Maximum number of operands of an expression: a chain of operators is a tree as deep as the chain is long.
const MOST_OPERANDS: u32 = 256;

/// Packet fields that a classifier assigns.
pub(crate) const CLASSIFIED: [&str; 5] = ["queue", "value", "processing", "slack", "flow"];

/// Parses a policy.
pub(crate) fn parse(text: &str) -> Result<Vec<Statement>> {
    let mut parser = Parser { tokens: tokens(text)?, next: 0, depth: 0, operands: 0 };
    let statements = parser.statements()?;
    match parser.peek() {
        Token::End => Ok(statements),
        other => Err(parser.error(format_args!("expected a statement, found {other}"))),
    }
}

struct Parser {
    tokens: Vec<(Token, Place)>,
    next: usize,
    depth: u32,
    /// Number of operands of the current expression so far.
    operands: u32,
}

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.next].0
    }

    fn after(&self, tokens: usize) -> &Token {
        &self.tokens[(self.next + tokens).min(self.tokens.len() - 1)].0
    }

    fn at(&self) -> Place {
        self.tokens[self.next].1
    }

    fn advance(&mut self) {
        self.next = (self.next + 1).min(self.tokens.len() - 1);
    }

    fn error(&self, what: impl std::fmt::Display) -> PolicyError {
        PolicyError::new(self.at(), what)
    }

    fn is(&self, sign: &str) -> bool {
        matches!(self.peek(), Token::Sign(s) if *s == sign)
    }

    fn is_name(&self, name: &str) -> bool {
        matches!(self.peek(), Token::Name(n) if n == name)
    }

    fn skip(&mut self, sign: &str) -> bool {
        let is = self.is(sign);
        if is {
            self.advance();
        }
        is
    }

    fn expect(&mut self, sign: &str) -> Result<()> {
        if self.skip(sign) {
            return Ok(());
        }
        Err(self.error(format_args!("expected '{sign}', found {}", self.peek())))
    }

    fn name(&mut self, what: &str) -> Result<Name> {
        let at = self.at();
        match self.peek() {
            Token::Name(text) => {
                let text = text.clone();
                self.advance();
                Ok(Name { text, at })
            }
            other => Err(self.error(format_args!("expected {what}, found {other}"))),
        }
    }

    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == DEEPEST {
            return Err(self.error(format_args!("nested deeper than {DEEPEST}")));
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    fn statements(&mut self) -> Result<Vec<Statement>> {
        let mut statements = Vec::new();
        loop {
            while self.skip(";") {}
            if !matches!(self.peek(), Token::Name(_)) {
                return Ok(statements);
            }
            statements.push(self.nested(Self::statement)?);
        }
    }

    fn block(&mut self) -> Result<Vec<Statement>> {
        self.expect("{")?;
        let statements = self.statements()?;
        if !self.is("}") {
            return Err(self.error(format_args!("expected a statement or '}}', found {}", self.peek())));
        }
        self.advance();
        Ok(statements)
    }

    fn statement(&mut self) -> Result<Statement> {
        let first = self.name("a statement")?;
        match (first.text.as_str(), self.peek()) {
            ("param", Token::Name(_)) => {
                let name = self.name("a name")?;
                self.expect("=")?;
                Ok(Statement::Param(name, self.expr()?))
            }
            ("for", Token::Name(_)) => self.for_loop(),
            ("if", _) => {
                let condition = self.expr()?;
                let then = self.block()?;
                let otherwise = if self.is_name("else") {
                    self.advance();
                    if self.is_name("if") { vec![self.nested(Self::statement)?] } else { self.block()? }
                } else {
                    Vec::new()
                };
                Ok(Statement::If(condition, then, otherwise))
            }
            ("import" | "inline", _) => {
                let what = format!("{} is C's: conditions and comparators are written here as expressions", first.text);
                Err(PolicyError::new(first.at, what))
            }
            (_, Token::Sign("(")) => self.definition(first),
            ("Queue" | "Buffer" | "Port", Token::Name(_)) => {
                let what = format!("names have no types: write NAME = {}(…)", first.text);
                Err(PolicyError::new(first.at, what))
            }
            _ => self.assignment(first),
        }
    }

    fn for_loop(&mut self) -> Result<Statement> {
        let mut binders = Vec::new();
        loop {
            let name = self.name("the name of an index")?;
            if !self.is_name("in") {
                return Err(self.error(format_args!("expected 'in', found {}", self.peek())));
            }
            self.advance();
            binders.push((name, self.range()?));
            if !self.skip(",") {
                break;
            }
        }
        Ok(Statement::For(binders, self.block()?))
    }

    fn range(&mut self) -> Result<Range> {
        let named = match self.peek() {
            Token::Name(name) => match name.as_str() {
                "inputs" => Some(Range::Inputs),
                "outputs" => Some(Range::Outputs),
                "priorities" => Some(Range::Priorities),
                _ => None,
            },
            _ => None,
        };
        if let Some(named) = named {
            self.advance();
            return Ok(named);
        }
        let from = self.expr()?;
        if !self.is("..") {
            return Err(self.error(format_args!(
                "expected inputs, outputs, priorities or numbers such as 0..8, found {}",
                self.peek()
            )));
        }
        self.advance();
        Ok(Range::Numbers(from, self.expr()?))
    }

    /// `name(x, y) = body`
    fn definition(&mut self, name: Name) -> Result<Statement> {
        let rule = self.rule(name.at)?;
        Ok(Statement::Define(name, rule))
    }

    /// `(x, y) = body`
    fn rule(&mut self, at: Place) -> Result<Rule> {
        self.expect("(")?;
        let mut formals = Vec::new();
        while !self.is(")") {
            formals.push(self.name("a formal parameter")?);
            if !self.is(")") {
                self.expect(",")?;
            }
        }
        self.expect(")")?;
        self.expect("=")?;
        Ok(Rule { at, formals, body: self.body()? })
    }

    fn body(&mut self) -> Result<Body> {
        if self.is("(")
            && let Some(cases) = self.cases()?
        {
            return Ok(Body::Cases(cases));
        }
        let when = self.expr()?;
        if self.skip(",") {
            return Ok(Body::Cases(vec![Case { when, actions: self.actions()? }]));
        }
        Ok(Body::Predicate(when))
    }

    /// `(b, action)·(b, action)…`, or `None` if this is a predicate in parentheses.
    fn cases(&mut self) -> Result<Option<Vec<Case>>> {
        let begin = self.next;
        let mut cases = Vec::new();
        loop {
            self.expect("(")?;
            let when = self.expr()?;
            if cases.is_empty() && !self.is(",") {
                self.next = begin;
                return Ok(None);
            }
            self.expect(",")?;
            let actions = self.actions()?;
            self.expect(")")?;
            cases.push(Case { when, actions });
            if !(self.skip(".") || self.skip("\u{b7}")) {
                return Ok(Some(cases));
            }
        }
    }

    fn actions(&mut self) -> Result<Vec<Action>> {
        let mut actions = vec![self.action()?];
        while (self.is(".") || self.is("\u{b7}")) && matches!(self.after(1), Token::Name(_)) {
            self.advance();
            actions.push(self.action()?);
        }
        Ok(actions)
    }

    fn action(&mut self) -> Result<Action> {
        const ACTIONS: &str = "an action: drop, mark, trim, return, notify or modify";
        let name = self.name(ACTIONS)?;
        let kind = match name.text.as_str() {
            "drop" => ActionKind::Drop(self.argument()?),
            "mark" => ActionKind::Mark(self.argument()?),
            "trim" => {
                let mut which = None;
                if self.skip("(") && !self.skip(")") {
                    which = Some(self.name("coin or arriving")?);
                    self.expect(")")?;
                }
                ActionKind::Trim(which)
            }
            "return" => ActionKind::Return,
            "notify" => {
                self.expect("(")?;
                let what = self.name("xoff, xon or rate")?;
                let value = if self.skip(",") { Some(self.expr()?) } else { None };
                self.expect(")")?;
                ActionKind::Notify(what, value)
            }
            "modify" => {
                self.expect("(")?;
                let name = self.name("what to modify")?;
                let path = self.path(name)?;
                self.expect(":=")?;
                let value = self.expr()?;
                self.expect(")")?;
                ActionKind::Modify(path, value)
            }
            _ => return Err(PolicyError::new(name.at, format_args!("expected {ACTIONS}, found '{}'", name.text))),
        };
        Ok(Action { at: name.at, kind })
    }

    fn argument(&mut self) -> Result<Option<Expr>> {
        if !self.skip("(") {
            return Ok(None);
        }
        if self.skip(")") {
            return Ok(None);
        }
        let argument = self.expr()?;
        self.expect(")")?;
        Ok(Some(argument))
    }

    /// A statement that begins with a name that is no keyword: it creates an object, sets an attribute, or classifies
    /// packets.
    fn assignment(&mut self, first: Name) -> Result<Statement> {
        let mut path = self.path(first)?;
        if let Token::Sign("(") = self.peek()
            && let Some(attribute) = path.fields.pop()
        {
            let rule = self.rule(attribute.at)?;
            return Ok(Statement::Set(path, attribute, Setting::Written(rule)));
        }
        if !self.is("=") {
            return Err(self.error(format_args!("expected '=', found {}", self.peek())));
        }
        self.advance();
        let kind = match (self.peek(), self.after(1)) {
            (Token::Name(name), Token::Sign("(")) => match name.as_str() {
                "Queue" => Some(ObjectKind::Queue),
                "Buffer" => Some(ObjectKind::Buffer),
                "Port" => Some(ObjectKind::Port),
                _ => None,
            },
            _ => None,
        };
        if let Some(kind) = kind {
            if let Some(field) = path.fields.first() {
                return Err(PolicyError::new(field.at, format_args!("a {} has a name of its own", kind.name())));
            }
            self.advance();
            let arguments = self.arguments(Self::expr)?;
            if !self.is("->") {
                return Ok(Statement::Create(path, kind, arguments, None));
            }
            if kind != ObjectKind::Port {
                return Err(self.error(format_args!("only a Port leads to a queue, not a {}", kind.name())));
            }
            self.advance();
            return Ok(Statement::Create(path, kind, arguments, Some(self.expr()?)));
        }
        match path.fields.pop() {
            Some(attribute) => {
                let setting = self.setting()?;
                Ok(Statement::Set(path, attribute, setting))
            }
            None if CLASSIFIED.contains(&path.name.text.as_str()) && path.indices.is_empty() => {
                Ok(Statement::Classify(path.name, self.classes()?))
            }
            None => Err(self.error(format_args!("expected Queue(…), Buffer(…) or Port(…), found {}", self.peek()))),
        }
    }

    /// The name of a rule, with or without parentheses, cases, or a number.
    fn setting(&mut self) -> Result<Setting> {
        let at = self.at();
        if let Token::Name(name) = self.peek() {
            let name = Name { text: name.clone(), at };
            match self.after(1) {
                Token::Sign("(") => {
                    self.advance();
                    self.arguments(Self::expr)?;
                    return Ok(Setting::Named(name));
                }
                Token::Sign(";" | "}") | Token::End | Token::Name(_) => {
                    self.advance();
                    return Ok(Setting::Named(name));
                }
                _ => {}
            }
        }
        Ok(match self.body()? {
            Body::Predicate(expr) => Setting::Number(expr),
            body => Setting::Written(Rule { at, formals: Vec::new(), body }),
        })
    }

    fn arguments(&mut self, read: fn(&mut Self) -> Result<Expr>) -> Result<Vec<Expr>> {
        self.expect("(")?;
        let mut arguments = Vec::new();
        while !self.is(")") {
            arguments.push(read(self)?);
            if !self.is(")") {
                self.expect(",")?;
            }
        }
        self.expect(")")?;
        Ok(arguments)
    }

    /// `(b, target)·(b, target)…`, or one target.
    fn classes(&mut self) -> Result<Vec<(Option<Expr>, Expr)>> {
        let begin = self.next;
        let mut classes = Vec::new();
        while self.skip("(") {
            let when = self.expr()?;
            if classes.is_empty() && !self.is(",") {
                self.next = begin;
                break;
            }
            self.expect(",")?;
            classes.push((Some(when), self.expr()?));
            self.expect(")")?;
            if !(self.skip(".") || self.skip("\u{b7}")) {
                return Ok(classes);
            }
        }
        Ok(vec![(None, self.expr()?)])
    }

    fn expr(&mut self) -> Result<Expr> {
        self.operands = 0;
        self.subexpr()
    }

    /// A nested expression: in parentheses, an argument or an index.
    fn subexpr(&mut self) -> Result<Expr> {
        self.nested(|parser| parser.binary(0))
    }

    fn binary(&mut self, loosest: u8) -> Result<Expr> {
        let mut left = self.unary()?;
        while let Some(operator) = self.operator().filter(|operator| operator.binding() >= loosest) {
            self.advance();
            let right = self.binary(operator.binding() + 1)?;
            if operator.binding() == 2
                && let Some(chained) = self.operator().filter(|operator| operator.binding() == 2)
            {
                return Err(self
                    .error(format_args!("comparisons are not chained: write a {s} b && b {s} c", s = chained.sign())));
            }
            left = Expr { at: left.at, kind: ExprKind::Binary(operator, Box::new(left), Box::new(right)) };
        }
        Ok(left)
    }

    fn operator(&self) -> Option<Binary> {
        const ALL: [Binary; 13] = [
            Binary::Or,
            Binary::And,
            Binary::Equal,
            Binary::Unequal,
            Binary::Less,
            Binary::AtMost,
            Binary::Greater,
            Binary::AtLeast,
            Binary::Plus,
            Binary::Minus,
            Binary::Times,
            Binary::Over,
            Binary::Modulo,
        ];
        ALL.into_iter().find(|operator| self.is(operator.sign()))
    }

    fn unary(&mut self) -> Result<Expr> {
        let at = self.at();
        self.operands += 1;
        if self.operands > MOST_OPERANDS {
            return Err(self.error(format_args!("an expression has at most {MOST_OPERANDS} operands")));
        }
        if self.skip("!") {
            let inner = self.nested(Self::unary)?;
            return Ok(Expr { at, kind: ExprKind::Not(Box::new(inner)) });
        }
        if self.skip("-") {
            let inner = self.nested(Self::unary)?;
            return Ok(Expr { at, kind: ExprKind::Negative(Box::new(inner)) });
        }
        self.primary()
    }

    fn primary(&mut self) -> Result<Expr> {
        let at = self.at();
        let kind = match self.peek() {
            Token::Number(value, dimension) => {
                let kind = ExprKind::Number(*value, *dimension);
                self.advance();
                kind
            }
            Token::Sign("(") => {
                self.advance();
                let inner = self.subexpr()?;
                self.expect(")")?;
                inner.kind
            }
            Token::Name(name) => {
                let name = Name { text: name.clone(), at };
                self.advance();
                match name.text.as_str() {
                    "on" | "true" => ExprKind::Bool(true),
                    "off" | "false" => ExprKind::Bool(false),
                    _ if self.is("(") => ExprKind::Call(name, self.arguments(Self::subexpr)?),
                    _ => ExprKind::Path(self.path(name)?),
                }
            }
            other => return Err(self.error(format_args!("expected an expression, found {other}"))),
        };
        Ok(Expr { at, kind })
    }

    /// The rest of a path: `[i][*].field.getHOL().value`.
    fn path(&mut self, name: Name) -> Result<Path> {
        let mut path = Path { name, indices: Vec::new(), fields: Vec::new() };
        while self.skip("[") {
            path.indices.push(if self.skip("*") { Index::All } else { Index::One(self.subexpr()?) });
            self.expect("]")?;
        }
        while self.is(".") && matches!(self.after(1), Token::Name(_)) {
            self.advance();
            let field = self.name("a field")?;
            if field.text == "getHOL" && self.skip("(") {
                self.expect(")")?;
            }
            path.fields.push(field);
        }
        Ok(path)
    }
}
