//! Claims of a paper: sentences, where they stand, whose range they are held against, and what is counted of them.

use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

#[cfg(test)]
use crate::words::Range;

/// Whose range a claim is held against.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The words of the paper, by the tables of [`crate::words`].
    #[default]
    Text,
    /// Ours: the paper has no words that give one. It does not count among the sentences that hold.
    Ours,
}

/// What is known of a cell besides its numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimed {
    /// Quotation.
    pub text: String,
    /// Where that stands: `§6.2`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Whose range it is.
    pub source: Source,
}

impl Claimed {
    /// Panics unless a range of the text is of words that are quoted with their place.
    #[cfg(test)]
    pub fn check(&self, range: &Range) {
        let quoted = range.words.is_some() && self.place.is_some() && !self.text.is_empty();
        assert!(self.source == Source::Ours || quoted, "{self:?} {range:?}");
    }
}

/// Whether our value agrees with a range.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Answer {
    /// All of its 95 % confidence interval does; with one seed, that seed's value.
    #[serde(rename = "holds")]
    Holds,
    /// Nothing of it does.
    #[serde(rename = "fails")]
    Fails,
    /// Part of it: not decided at this many seeds.
    #[serde(rename = "not decided")]
    Undecided,
}

impl Answer {
    /// Returns the answer for a value ± half of its confidence interval, 0 if there is none.
    pub fn of(ours: f64, half: f64, [least, most]: [f64; 2]) -> Answer {
        // Sums over seeds that all have the same value differ from it in the last digits.
        let half = if half <= ours.abs() * 1e-12 { 0.0 } else { half };
        if least <= ours - half && ours + half <= most {
            Answer::Holds
        } else if ours + half < least || most < ours - half || half == 0.0 {
            Answer::Fails
        } else {
            Answer::Undecided
        }
    }

    /// Returns the word in tables.
    pub fn word(self) -> &'static str {
        match self {
            Answer::Holds => "holds",
            Answer::Fails => "fails",
            Answer::Undecided => "?",
        }
    }
}

/// A cell of the results, as far as it is counted.
pub trait Judged {
    /// Returns the claim.
    fn claimed(&self) -> Option<&Claimed>;
    /// Returns whether a range is known for it.
    fn has_range(&self) -> bool;
    /// Returns what a parameter of the runs was fitted to, if this cell shows that.
    fn fitted(&self) -> Option<&str>;
    /// Returns the answer, if there is a range and a result.
    fn answer(&self) -> Option<Answer>;
    /// Returns a printed number other than 0, and ours.
    fn number(&self) -> Option<[f64; 2]>;
}

/// Numbers of answers.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// That hold.
    pub hold: usize,
    /// That fail.
    pub fail: usize,
    /// That are not decided.
    pub undecided: usize,
    /// Without a result.
    pub missing: usize,
}

impl Answers {
    fn add(&mut self, answer: Option<Answer>) {
        match answer {
            Some(Answer::Holds) => self.hold += 1,
            Some(Answer::Fails) => self.fail += 1,
            Some(Answer::Undecided) => self.undecided += 1,
            None => self.missing += 1,
        }
    }

    /// Returns the number of sentences.
    pub fn all(self) -> usize {
        self.hold + self.fail + self.undecided + self.missing
    }
}

impl Display for Answers {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} hold, {} fail", self.hold, self.fail)?;
        if self.undecided > 0 {
            write!(f, ", {} not decided at this many seeds", self.undecided)?;
        }
        if self.missing > 0 {
            write!(f, ", {} without a result", self.missing)?;
        }
        Ok(())
    }
}

/// Printed numbers by distance.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Distances {
    /// Within 5 %.
    pub near: usize,
    /// Within 25 %.
    pub within: usize,
    /// All.
    pub all: usize,
}

impl Distances {
    /// Counts numbers, each once: those that are printed alike, and are alike here, are one.
    pub fn of(numbers: impl Iterator<Item = [f64; 2]>) -> Distances {
        let mut seen: Vec<[u64; 2]> = Vec::new();
        let mut distances = Distances::default();
        for [printed, ours] in numbers {
            let number = [printed.to_bits(), ours.to_bits()];
            if !seen.contains(&number) {
                seen.push(number);
                distances.add(ours / printed);
            }
        }
        distances
    }

    fn add(&mut self, ratio: f64) {
        let off = (ratio - 1.0).abs();
        self.near += usize::from(off <= 0.05);
        self.within += usize::from(off <= 0.25);
        self.all += 1;
    }
}

/// What is counted of a paper's cells.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Sentences with a range of the text, each once: it holds if all of its cells do, and fails if one does.
    pub sentences: Answers,
    /// Sentences with a range of ours, each once.
    pub ours: Answers,
    /// Sentences that show what a parameter was fitted to, each once, whosever range it is.
    pub fitted: Answers,
    /// Printed numbers, and those that were fitted.
    pub numbers: [Distances; 2],
}

impl Tally {
    /// Counts cells.
    pub fn of<J: Judged>(cells: &[J]) -> Tally {
        let numbers = |fitted: bool| {
            let some = cells.iter().filter(|cell| cell.claimed().is_none() && cell.fitted().is_some() == fitted);
            Distances::of(some.filter_map(Judged::number))
        };
        let mut tally = Tally { numbers: [numbers(false), numbers(true)], ..Tally::default() };
        for (claimed, fitted, answer) in sentences(cells) {
            match (fitted, claimed.source) {
                (true, _) => tally.fitted.add(answer),
                (false, Source::Text) => tally.sentences.add(answer),
                (false, Source::Ours) => tally.ours.add(answer),
            }
        }
        tally
    }

    /// Returns the sentence for people: `12 of 20 sentences hold, 5 fail, 3 are not decided`.
    pub fn sentence(&self) -> String {
        let of = |answers: Answers, what: &str| format!("of {} {what} {answers}", answers.all());
        let mut all = vec![of(self.sentences, "sentences")];
        if self.ours.all() > 0 {
            all.push(of(self.ours, "with ranges of our own"));
        }
        if self.fitted.all() > 0 {
            all.push(of(self.fitted, "fitted"));
        }
        all.join("; ")
    }
}

/// Returns the sentences of cells, each once, whether what they say was fitted, and the answer of all of their cells:
/// none if one has no result, unless another fails. Cells that a text says nothing of have no answer, and no sentence.
pub fn sentences<J: Judged>(cells: &[J]) -> Vec<(&Claimed, bool, Option<Answer>)> {
    let mut all: Vec<(&Claimed, bool, Option<Answer>)> = Vec::new();
    for cell in cells.iter().filter(|cell| cell.has_range()) {
        let Some(claimed) = cell.claimed() else { continue };
        let fitted = cell.fitted().is_some();
        match all.iter_mut().find(|(said, was, _)| *said == claimed && *was == fitted) {
            None => all.push((claimed, fitted, cell.answer())),
            Some((_, _, before)) => *before = both(*before, cell.answer()),
        }
    }
    all
}

fn both(a: Option<Answer>, b: Option<Answer>) -> Option<Answer> {
    match (a, b) {
        (Some(Answer::Fails), _) | (_, Some(Answer::Fails)) => Some(Answer::Fails),
        (None, _) | (_, None) => None,
        (Some(Answer::Undecided), _) | (_, Some(Answer::Undecided)) => Some(Answer::Undecided),
        _ => Some(Answer::Holds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Cell {
        claimed: Option<Claimed>,
        fitted: bool,
        answer: Option<Answer>,
        number: Option<[f64; 2]>,
    }

    impl Judged for Cell {
        fn claimed(&self) -> Option<&Claimed> {
            self.claimed.as_ref()
        }
        fn fitted(&self) -> Option<&str> {
            self.fitted.then_some("Table 1")
        }
        fn answer(&self) -> Option<Answer> {
            self.answer
        }
        fn has_range(&self) -> bool {
            self.claimed.is_some()
        }
        fn number(&self) -> Option<[f64; 2]> {
            self.number
        }
    }

    #[test]
    fn an_interval_decides_only_as_a_whole() {
        let of = |ours, half| Answer::of(ours, half, [1.0, 2.0]);
        assert_eq!([of(1.5, 0.4), of(1.5, 0.6), of(2.5, 0.6), of(2.5, 0.4), of(0.5, 0.4)], {
            use Answer::{Fails, Holds, Undecided};
            [Holds, Undecided, Undecided, Fails, Fails]
        });
        // One seed, and seeds that agree.
        assert_eq!([of(2.0, 0.0), of(2.1, 0.0), of(2.0, 1e-16)], [Answer::Holds, Answer::Fails, Answer::Holds]);
    }

    #[test]
    fn a_sentence_counts_once_and_what_is_ours_or_fitted_apart() {
        let said = |text: &str, source| Some(Claimed { text: text.into(), place: None, source });
        let cell = |claimed, fitted, answer| Cell { claimed, fitted, answer: Some(answer), number: Some([1.0, 1.0]) };
        let cells = [
            cell(said("a", Source::Text), false, Answer::Holds),
            cell(said("a", Source::Text), false, Answer::Undecided),
            cell(said("b", Source::Text), false, Answer::Holds),
            cell(said("b", Source::Text), true, Answer::Holds),
            cell(said("c", Source::Text), false, Answer::Undecided),
            cell(said("c", Source::Text), false, Answer::Fails),
            cell(said("a", Source::Ours), false, Answer::Holds),
            Cell { number: Some([1.0, 1.04]), ..Cell::default() },
            Cell { number: Some([1.0, 1.04]), ..Cell::default() },
            Cell { number: Some([5.0, 4.0]), ..Cell::default() },
            Cell { number: Some([2.0, 4.0]), fitted: true, ..Cell::default() },
            Cell { claimed: said("without a result", Source::Text), ..Cell::default() },
        ];
        let tally = Tally::of(&cells);
        assert_eq!(tally.sentences, Answers { hold: 1, fail: 1, undecided: 1, missing: 1 });
        assert_eq!((tally.ours.all(), tally.ours.hold, tally.fitted.hold), (1, 1, 1));
        assert_eq!(tally.numbers, [Distances { near: 1, within: 2, all: 2 }, Distances { near: 0, within: 0, all: 1 }]);
        assert_eq!(
            tally.sentence(),
            "of 4 sentences 1 hold, 1 fail, 1 not decided at this many seeds, 1 without a result; of 1 with ranges of our \
             own 1 hold, 0 fail; of 1 fitted 1 hold, 0 fail"
        );
    }
}
