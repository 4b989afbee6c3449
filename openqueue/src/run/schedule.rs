//! Selection of the first among several queues, updated as queues change: bitmaps where the order is fixed except for
//! round robin, a tournament otherwise.

use crate::order::{QueueKey, QueueOrder, SortKey};
use crate::plan::QueueSpec;
use crate::program::Operand;
use crate::source::{QueueField, Source};

/// Selection at one level of the bitmaps.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The first non-empty one.
    Strict,
    /// The first after the one selected last.
    InTurn,
}

/// Positions of a port's queues, for an order that is fixed except for round robin: group, and position in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Levels {
    choices: [Choice; 2],
    groups: usize,
    within: usize,
    /// By queue of the port: group and position in it.
    pub places: Vec<(u16, u16)>,
    /// By group and position, the queue of the port.
    queues: Vec<u16>,
    /// By group, the priority of all its packets, if it is known.
    priorities: Vec<Option<u8>>,
    /// Whether groups, and positions in them, fit one word of bits each.
    pub small: bool,
}

/// The implementation of an order of queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Arrangement {
    Levels(Levels),
    /// Sorted by numbers that change.
    Tournament(Vec<SortKey>),
}

/// The value of a fixed key.
fn fixed(key: &SortKey, queue: &QueueSpec) -> i64 {
    let value = key.program.run(|source| match source {
        Source::Queue(QueueField::Index(place)) => queue.indices.get(usize::from(place)).copied().unwrap_or(0),
        Source::Queue(QueueField::Size) => queue.size as i64,
        _ => 0,
    });
    if key.descending { value.saturating_neg() } else { value }
}

/// The rank of each value, with equal ranks for equal values, and the number of ranks.
fn ranks<T: Ord + Clone>(values: &[T]) -> (Vec<u16>, usize) {
    let mut sorted = values.to_vec();
    sorted.sort();
    sorted.dedup();
    let rank = |value: &T| sorted.binary_search(value).unwrap_or(0) as u16;
    (values.iter().map(rank).collect(), sorted.len())
}

impl Arrangement {
    /// Implements an order of these queues; the error is the reason why that is impossible.
    pub fn of(order: &QueueOrder, queues: &[&QueueSpec]) -> Result<Arrangement, String> {
        if !order.0.iter().all(QueueKey::is_fixed) {
            let keys = order.0.iter().filter_map(|key| match key {
                QueueKey::Number(key) => Some(key.clone()),
                QueueKey::Turn(_) => None,
            });
            return Ok(Arrangement::Tournament(keys.collect()));
        }
        // Consecutive fixed keys are merged.
        let mut levels: Vec<(Choice, Vec<Vec<i64>>)> = Vec::new();
        for key in &order.0 {
            let (choice, values): (_, Vec<i64>) = match key {
                QueueKey::Number(key) => (Choice::Strict, queues.iter().map(|queue| fixed(key, queue)).collect()),
                QueueKey::Turn(None) => (Choice::InTurn, (0..queues.len() as i64).collect()),
                QueueKey::Turn(Some(index)) => {
                    let of = |queue: &&QueueSpec| queue.indices.get(usize::from(*index)).copied().unwrap_or(0);
                    (Choice::InTurn, queues.iter().map(of).collect())
                }
            };
            match levels.last_mut() {
                Some((Choice::Strict, last)) if choice == Choice::Strict => {
                    last.iter_mut().zip(values).for_each(|(all, value)| all.push(value));
                }
                _ => levels.push((choice, values.into_iter().map(|value| vec![value]).collect())),
            }
        }
        // Remaining ties are broken by the order in which the queues were named.
        let tells_all = |values: &[Vec<i64>]| ranks(values).1 == queues.len();
        if levels.len() == 1 && tells_all(&levels[0].1) {
            levels.insert(0, (Choice::Strict, vec![vec![0]; queues.len()]));
        }
        if levels.len() == 1 {
            levels.push((Choice::Strict, (0..queues.len() as i64).map(|place| vec![place]).collect()));
        }
        let [(first, groups), (second, within)] = &levels[..] else {
            return Err("an order with turns has at most two levels".into());
        };
        let ((groups, group_count), (within, within_count)) = (ranks(groups), ranks(within));
        let places: Vec<(u16, u16)> = groups.into_iter().zip(within).collect();
        let mut by_place = vec![u16::MAX; group_count * within_count];
        for (queue, (group, place)) in places.iter().enumerate() {
            let at = usize::from(*group) * within_count + usize::from(*place);
            if by_place[at] != u16::MAX {
                let (a, b) = (&queues[usize::from(by_place[at])].name, &queues[queue].name);
                return Err(format!("the order does not tell {a} from {b}"));
            }
            by_place[at] = queue as u16;
        }
        let priority = |group: usize| {
            let mut of_group = places.iter().zip(queues).filter(|(place, _)| usize::from(place.0) == group);
            let first = of_group.next()?.1.priority?;
            of_group.all(|(_, queue)| queue.priority == Some(first)).then_some(first)
        };
        Ok(Arrangement::Levels(Levels {
            choices: [*first, *second],
            groups: group_count,
            within: within_count,
            small: group_count <= 64 && within_count <= 64,
            priorities: (0..group_count).map(priority).collect(),
            places,
            queues: by_place,
        }))
    }

    /// The cost of a selection, and of recording a change.
    pub fn cost(&self) -> (&'static str, &'static str) {
        match self {
            Arrangement::Levels(_) => ("bitmap", "O(1)"),
            Arrangement::Tournament(keys)
                if keys.iter().all(|key| matches!(key.program.result, Operand::Constant(_))) =>
            {
                ("first named", "O(1)")
            }
            Arrangement::Tournament(_) => ("tournament", "O(log k)"),
        }
    }
}

/// Bitmaps and round-robin state of a port whose order is otherwise fixed.
#[derive(Clone, Debug)]
pub(crate) struct Bits {
    /// Non-empty groups, then the non-empty positions of each group.
    bits: Box<[u64]>,
    turn: u16,
    turns: Box<[u16]>,
}

fn words(bits: usize) -> usize {
    bits.div_ceil(64)
}

/// The first set bit at or after `from`, otherwise the first.
#[inline]
pub(crate) fn next_bit(words: &[u64], from: u16) -> Option<u16> {
    let (start, bit) = (usize::from(from) / 64, from % 64);
    let of = |word: usize, bits: u64| (bits != 0).then(|| (word * 64) as u16 + bits.trailing_zeros() as u16);
    if let Some(found) = words.get(start).and_then(|word| of(start, word & (u64::MAX << bit))) {
        return Some(found);
    }
    (0..words.len()).find_map(|word| of(word, words[word]))
}

impl Bits {
    pub fn new(levels: &Levels) -> Bits {
        Bits {
            bits: vec![0; words(levels.groups) + levels.groups * words(levels.within)].into(),
            turn: 0,
            turns: vec![0; levels.groups].into(),
        }
    }

    #[inline]
    fn group(&self, levels: &Levels, group: usize) -> std::ops::Range<usize> {
        let each = words(levels.within);
        let first = words(levels.groups) + group * each;
        first..first + each
    }

    /// Records whether a queue has packets, if groups and positions fit one word of bits each.
    #[inline]
    pub fn note(&mut self, (group, place): (u16, u16), filled: bool) {
        let of_group = &mut self.bits[1 + usize::from(group)];
        let bit = 1 << (place % 64);
        *of_group = if filled { *of_group | bit } else { *of_group & !bit };
        let (any, bit) = (*of_group != 0, 1 << (group % 64));
        self.bits[0] = if any { self.bits[0] | bit } else { self.bits[0] & !bit };
    }

    /// The first group and position in it, if each fit one word of bits.
    #[inline]
    pub fn first_small(&self, levels: &Levels) -> Option<(u16, u16)> {
        let next = |word: u64, choice: Choice, turn: u16| {
            let ahead = if choice == Choice::InTurn { word & u64::MAX << (turn % 64) } else { word };
            if ahead != 0 { ahead.trailing_zeros() } else { word.trailing_zeros() }
        };
        if self.bits[0] == 0 {
            return None;
        }
        let group = next(self.bits[0], levels.choices[0], self.turn) as u16;
        let place = next(self.bits[1 + usize::from(group)], levels.choices[1], self.turns[usize::from(group)]) as u16;
        Some((group, place))
    }

    #[inline]
    pub fn set(&mut self, levels: &Levels, queue: usize) {
        let (group, place) = levels.places[queue];
        self.bits[usize::from(group) / 64] |= 1 << (group % 64);
        let range = self.group(levels, group.into());
        self.bits[range][usize::from(place) / 64] |= 1 << (place % 64);
    }

    #[inline]
    pub fn clear(&mut self, levels: &Levels, queue: usize) {
        let (group, place) = levels.places[queue];
        let range = self.group(levels, group.into());
        let of_group = &mut self.bits[range];
        of_group[usize::from(place) / 64] &= !(1 << (place % 64));
        if of_group.iter().all(|word| *word == 0) {
            self.bits[usize::from(group) / 64] &= !(1 << (group % 64));
        }
    }

    /// The first queue, without advancing round robin, of those not stopped, either by `paused` priorities or
    /// individually.
    #[inline]
    pub fn first(&self, levels: &Levels, paused: Option<u8>, stopped: impl Fn(usize) -> bool) -> Option<usize> {
        if paused == Some(0) {
            let groups = &self.bits[..words(levels.groups)];
            let group = next_bit(groups, if levels.choices[0] == Choice::InTurn { self.turn } else { 0 })?;
            return self.within(levels, group);
        }
        self.first_going(levels, paused, stopped)
    }

    /// The queue of a group and a position in it.
    #[inline]
    pub fn queue_at(levels: &Levels, (group, place): (u16, u16)) -> usize {
        levels.queues[usize::from(group) * levels.within + usize::from(place)].into()
    }

    #[inline]
    fn within(&self, levels: &Levels, group: u16) -> Option<usize> {
        let turn = if levels.choices[1] == Choice::InTurn { self.turns[usize::from(group)] } else { 0 };
        let place = next_bit(&self.bits[self.group(levels, group.into())], turn)?;
        Some(levels.queues[usize::from(group) * levels.within + usize::from(place)].into())
    }

    /// The first queue in service order, if some are stopped.
    #[inline(never)]
    fn first_going(&self, levels: &Levels, paused: Option<u8>, stopped: impl Fn(usize) -> bool) -> Option<usize> {
        let start = if levels.choices[0] == Choice::InTurn { self.turn } else { 0 };
        let in_order = |from: u16, n: usize| (0..n as u16).map(move |i| (from + i) % n as u16);
        for group in in_order(start % levels.groups as u16, levels.groups) {
            if self.bits[usize::from(group) / 64] >> (group % 64) & 1 == 0 {
                continue;
            }
            match (levels.priorities[usize::from(group)], paused) {
                (Some(priority), Some(paused)) if paused >> priority & 1 == 1 => continue,
                (Some(_), Some(_)) => return self.within(levels, group),
                _ => {}
            }
            let turn = if levels.choices[1] == Choice::InTurn { self.turns[usize::from(group)] } else { 0 };
            let of_group = &self.bits[self.group(levels, group.into())];
            for place in in_order(turn % levels.within as u16, levels.within) {
                let queue = levels.queues[usize::from(group) * levels.within + usize::from(place)];
                if of_group[usize::from(place) / 64] >> (place % 64) & 1 == 1 && !stopped(queue.into()) {
                    return Some(queue.into());
                }
            }
        }
        None
    }

    /// Advances round robin after a queue has been served.
    #[inline]
    pub fn turn(&mut self, levels: &Levels, (group, place): (u16, u16)) {
        self.turn = if usize::from(group) + 1 == levels.groups { 0 } else { group + 1 };
        self.turns[usize::from(group)] = if usize::from(place) + 1 == levels.within { 0 } else { place + 1 };
    }
}

/// A tournament tree of queues. A queue that changes replays its matches.
#[derive(Clone, Debug)]
pub(crate) struct Tournament {
    /// By queue, its keys, the smaller the better; `None` if it does not compete.
    keys: Vec<Option<[i64; 2]>>,
    /// Whether the order is reversed, so that the last wins.
    reversed: bool,
    /// Whether keys depend on states only, which change by rules and not by arrivals and departures.
    steady: bool,
    /// Winners, the final first; the leaves are the queues.
    winners: Vec<u32>,
    leaves: usize,
}

impl Tournament {
    pub fn new(queues: usize, reversed: bool) -> Tournament {
        let leaves = queues.next_power_of_two();
        let winners = (0..2 * leaves as u32).map(|node| node.saturating_sub(leaves as u32)).collect();
        let mut tournament = Tournament { keys: vec![None; leaves], reversed, steady: false, winners, leaves };
        for node in (1..leaves).rev() {
            tournament.winners[node] = tournament.winners[2 * node];
        }
        tournament
    }

    /// Sets the keys.
    pub fn by(mut self, keys: &[SortKey]) -> Tournament {
        let of_states = |source| {
            matches!(
                source,
                Source::Queue(
                    QueueField::AdmState
                        | QueueField::SchedState
                        | QueueField::WeightAdm
                        | QueueField::WeightSched
                        | QueueField::Index(_)
                        | QueueField::Size
                )
            )
        };
        self.steady = keys.iter().all(|key| key.program.sources().all(of_states));
        self
    }

    /// Whether nothing changes for a queue that competes or does not, unless a rule has changed its states.
    #[inline]
    pub fn is_settled(&self, queue: usize, plays: bool) -> bool {
        self.steady && self.keys[queue].is_some() == plays
    }

    /// Whether one queue comes before another; of equals, the one named first.
    fn before(&self, a: u32, b: u32) -> bool {
        match (self.keys[a as usize], self.keys[b as usize]) {
            (None, None) => a < b,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(x), Some(y)) if self.reversed => (y, b) < (x, a),
            (Some(x), Some(y)) => (x, a) < (y, b),
        }
    }

    pub fn update(&mut self, queue: usize, keys: Option<[i64; 2]>) {
        if self.keys[queue] == keys {
            return;
        }
        self.keys[queue] = keys;
        let mut node = (self.leaves + queue) / 2;
        while node > 0 {
            let (a, b) = (self.winners[2 * node], self.winners[2 * node + 1]);
            let winner = if self.before(a, b) { a } else { b };
            if winner == self.winners[node] && winner != queue as u32 {
                return;
            }
            self.winners[node] = winner;
            node /= 2;
        }
    }

    pub fn first(&self) -> Option<usize> {
        let winner = if self.leaves == 1 { 0 } else { self.winners[1] as usize };
        self.keys[winner].map(|_| winner)
    }

    /// The first of those that are not stopped, by linear search.
    pub fn first_going(&self, stopped: impl Fn(usize) -> bool) -> Option<usize> {
        let playing = (0..self.keys.len()).filter(|queue| self.keys[*queue].is_some() && !stopped(*queue));
        playing.reduce(|a, b| if self.before(b as u32, a as u32) { b } else { a })
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    #[test]
    fn a_tournament_knows_the_first_and_the_last() {
        let mut rng = Pcg64Mcg::seed_from_u64(5);
        for queues in [1, 2, 3, 7, 8, 20] {
            for reversed in [false, true] {
                let mut tournament = Tournament::new(queues, reversed);
                let mut keys = vec![None; queues];
                for _ in 0..2_000 {
                    let queue = rng.random_range(0..queues);
                    keys[queue] = rng.random::<bool>().then(|| [rng.random_range(0..4), rng.random_range(0..2)]);
                    tournament.update(queue, keys[queue]);
                    let playing = (0..queues).filter(|queue| keys[*queue].is_some());
                    let order = |queue: &usize| (keys[*queue], *queue);
                    let first = if reversed { playing.max_by_key(order) } else { playing.min_by_key(order) };
                    assert_eq!(tournament.first(), first);
                    assert_eq!(tournament.first_going(|_| false), first);
                }
            }
        }
    }

    #[test]
    fn turns_go_round() {
        assert_eq!(next_bit(&[0b1010], 0), Some(1));
        assert_eq!(next_bit(&[0b1010], 4), Some(1));
        assert_eq!(next_bit(&[0, 1 << 5], 70), Some(69));
        assert_eq!(next_bit(&[1, 0], 64), Some(0));
        assert_eq!(next_bit(&[0, 0], 3), None);
    }
}
