//! Programs compiled from expressions: flat lists of operations on integers, without jumps, calls or memory. Fractions
//! are whole numbers over a denominator known at compile time.

use std::fmt;

use crate::source::Source;

/// Maximum number of operations of a program, and thus of registers.
pub(crate) const LONGEST: usize = 64;

/// Fractional bits of a quotient of two fields.
pub(crate) const QUOTIENT_BITS: u32 = 16;

/// An operand of an operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    Constant(i64),
    /// The result of an earlier operation.
    Register(u8),
    Load(Source),
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Plus,
    Minus,
    Times,
    /// In units of 2⁻¹⁶; division by zero yields the largest number.
    Over,
    Modulo,
    Min,
    Max,
    Less,
    AtMost,
    Equal,
    And,
    Or,
    Not,
}

/// An operation. Its result goes to the register with its own number. True is 1.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    pub operator: Operator,
    pub a: Operand,
    pub b: Operand,
}

/// A program: its operations, its result, and the denominator of the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    pub operations: Box<[Operation]>,
    pub result: Operand,
    pub denominator: i64,
}

impl Operator {
    /// Total on all operands: sums and products saturate.
    #[inline]
    pub fn apply(self, a: i64, b: i64) -> i64 {
        match self {
            Operator::Plus => a.saturating_add(b),
            Operator::Minus => a.saturating_sub(b),
            Operator::Times => a.saturating_mul(b),
            Operator::Over if b == 0 => i64::MAX,
            Operator::Over => {
                let quotient = (i128::from(a) << QUOTIENT_BITS) / i128::from(b);
                quotient.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
            }
            Operator::Modulo if b == 0 => 0,
            Operator::Modulo => a.wrapping_rem_euclid(b),
            Operator::Min => a.min(b),
            Operator::Max => a.max(b),
            Operator::Less => i64::from(a < b),
            Operator::AtMost => i64::from(a <= b),
            Operator::Equal => i64::from(a == b),
            Operator::And => a & b,
            Operator::Or => a | b,
            Operator::Not => a ^ 1,
        }
    }
}

impl Program {
    /// A constant program.
    pub fn constant(value: i64, denominator: i64) -> Program {
        Program { operations: Box::default(), result: Operand::Constant(value), denominator }
    }

    /// Runs the program; `load` reads sources. Most keys are a field, or a field and a number, and use no registers.
    #[inline]
    pub fn run(&self, load: impl Fn(Source) -> i64) -> i64 {
        let read = |operand: Operand, before: i64| match operand {
            Operand::Constant(value) => value,
            Operand::Register(_) => before,
            Operand::Load(source) => load(source),
        };
        match &self.operations[..] {
            [] => read(self.result, 0),
            [only] => read(self.result, only.operator.apply(read(only.a, 0), read(only.b, 0))),
            operations if operations.len() <= 8 => self.run_with::<8>(load),
            _ => self.run_with::<LONGEST>(load),
        }
    }

    /// Runs the program with `REGISTERS` registers.
    #[inline(never)]
    fn run_with<const REGISTERS: usize>(&self, load: impl Fn(Source) -> i64) -> i64 {
        let mut registers = [0; REGISTERS];
        let read = |operand: Operand, registers: &[i64; REGISTERS]| match operand {
            Operand::Constant(value) => value,
            Operand::Register(register) => registers[usize::from(register) % REGISTERS],
            Operand::Load(source) => load(source),
        };
        for (register, operation) in self.operations.iter().enumerate() {
            let (a, b) = (read(operation.a, &registers), read(operation.b, &registers));
            registers[register % REGISTERS] = operation.operator.apply(a, b);
        }
        read(self.result, &registers)
    }

    /// All sources that the program reads.
    pub fn sources(&self) -> impl Iterator<Item = Source> + '_ {
        let operands = self.operations.iter().flat_map(|operation| [operation.a, operation.b]);
        operands.chain([self.result]).filter_map(|operand| match operand {
            Operand::Load(source) => Some(source),
            _ => None,
        })
    }

    /// The value, if it is constant.
    pub fn as_constant(&self) -> Option<i64> {
        match self.result {
            Operand::Constant(value) => Some(value),
            _ => None,
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operand = |operand: Operand| match operand {
            Operand::Constant(value) => value.to_string(),
            Operand::Register(register) => format!("r{register}"),
            Operand::Load(source) => format!("{source:?}"),
        };
        for (register, operation) in self.operations.iter().enumerate() {
            let Operation { operator, a, b } = *operation;
            match operator {
                Operator::Not => write!(f, "r{register} = Not {}; ", operand(a))?,
                _ => write!(f, "r{register} = {} {operator:?} {}; ", operand(a), operand(b))?,
            }
        }
        f.write_str(&operand(self.result))?;
        if self.denominator == 1 { Ok(()) } else { write!(f, " / {}", self.denominator) }
    }
}
