//! The variable of atomic operations, predicted by the requester.

use irnic_transports::qp::SendOp;

use crate::pattern::Stream;
use crate::plan::Atomic;

/// The 64-bit variable of one queue pair. Atomics of a queue pair are executed in order and exactly once, so every
/// returned value is known in advance.
#[derive(Clone, Debug)]
pub struct Variable {
    stream: Stream,
    atomic: Atomic,
    posted: u64,
    completed: u64,
    /// The value that the next operation to post will find, and that the next one to complete must have found.
    found_posted: u64,
    found_completed: u64,
}

impl Variable {
    /// The variable that the requester of `stream` changes.
    pub fn new(stream: Stream, atomic: Atomic) -> Variable {
        let first = Variable::first(stream);
        Variable { stream, atomic, posted: 0, completed: 0, found_posted: first, found_completed: first }
    }

    /// Returns the first value of the variable of `stream`, which the target writes.
    pub fn first(stream: Stream) -> u64 {
        stream.word(0)
    }

    fn next(&self, number: u64, value: u64) -> u64 {
        match self.atomic {
            Atomic::CompareSwap => self.stream.word(number + 1),
            Atomic::FetchAdd => value.wrapping_add(self.stream.word(number + 1)),
        }
    }

    /// The next operation to post.
    pub fn post(&mut self) -> SendOp {
        let value = self.found_posted;
        let next = self.next(self.posted, value);
        self.posted += 1;
        self.found_posted = next;
        match self.atomic {
            Atomic::CompareSwap => SendOp::CompareSwap { compare: value, swap: next },
            Atomic::FetchAdd => SendOp::FetchAdd { add: next.wrapping_sub(value) },
        }
    }

    /// The value that the next operation to complete must have returned.
    pub fn complete(&mut self) -> u64 {
        let value = self.found_completed;
        self.found_completed = self.next(self.completed, value);
        self.completed += 1;
        value
    }

    /// The final value, once everything is complete.
    pub fn last(&self) -> u64 {
        self.found_completed
    }
}

/// State of the final read of the variable after the last operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum FinalRead {
    Due,
    Posted,
    Done,
}

impl FinalRead {
    /// Due if it is wanted at all.
    pub fn of(wanted: bool) -> FinalRead {
        if wanted { FinalRead::Due } else { FinalRead::Done }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_what_a_memory_would() {
        for atomic in [Atomic::CompareSwap, Atomic::FetchAdd] {
            let stream = Stream::new(9, 0, 1);
            let mut variable = Variable::new(stream, atomic);
            let mut memory = Variable::first(stream);
            for _ in 0..100 {
                let found = memory;
                match variable.post() {
                    SendOp::CompareSwap { compare, swap } if compare == memory => memory = swap,
                    SendOp::FetchAdd { add } => memory = memory.wrapping_add(add),
                    other => panic!("{other:?} finds {memory}"),
                }
                assert_eq!(variable.complete(), found);
            }
            assert_eq!(variable.last(), memory);
        }
    }
}
