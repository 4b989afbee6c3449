//! A ring of flags over the window of sequence numbers that starts at the head.

use crate::footprint::{Ledger, Parts, Setup, bits, left, why};
use crate::room::boxed;

/// `PLANES` parallel bitmaps over one window. Bit `i` stands for the sequence number `i` after the head; advancing the
/// head shifts nothing (IRN §4.5.2 keeps its bitmaps as ring buffers for the same reason).
///
/// Its memory covers the highest offset set so far, rounded up to a power of two: most streams are idle or lose
/// nothing.
#[derive(Clone, Debug)]
pub struct Bitmap<const PLANES: usize> {
    /// Empty, or a power of two of them, at most the window's.
    words: Box<[[u64; PLANES]]>,
    /// Size of the window in bits.
    bits: u32,
    /// Position of the head, in bits.
    start: u32,
    /// One more than the highest offset whose bit is set in any plane, 0 if none is.
    end: u32,
}

impl<const PLANES: usize> Bitmap<PLANES> {
    /// Largest window.
    pub const MAX_BITS: u32 = 1 << 16;

    /// Creates an empty bitmap of at least `bits` bits: rounded up to a power of two, from 64 to [`Self::MAX_BITS`]. It
    /// takes no memory yet.
    pub fn new(bits: u32) -> Self {
        let bits = bits.clamp(64, Self::MAX_BITS).next_power_of_two();
        Bitmap { words: Box::default(), bits, start: 0, end: 0 }
    }

    /// Returns the size of the window in bits.
    #[inline]
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// Allocates memory for the bit at `offset`, so that [`Self::set`] can set it. Returns false, and changes nothing,
    /// if the offset is outside the window, or there is no memory.
    #[inline]
    pub fn reserve(&mut self, offset: u32) -> bool {
        offset < self.words.len() as u32 * 64 || self.grow(offset)
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, offset: u32) -> bool {
        if offset >= self.bits {
            return false;
        }
        let len = (offset as usize / 64 + 1).next_power_of_two();
        let Ok(mut words) = boxed([0; PLANES], len) else { return false };
        // Words keep their positions modulo either length, except those that the ring wrapped: the bits set are between
        // head and end, counted from the head.
        let mut left = self.end;
        let mut position = self.start;
        while left > 0 {
            let (from, to) = (self.word(position), (position / 64) as usize & (len - 1));
            let take = left.min(64 - position % 64);
            let mask = (u64::MAX >> (64 - take)) << (position % 64);
            for (new, old) in words[to].iter_mut().zip(self.words[from]) {
                *new |= old & mask;
            }
            position = position.wrapping_add(take);
            left -= take;
        }
        self.words = words;
        true
    }

    /// Returns the word of a position, if there is any.
    #[inline]
    fn word(&self, position: u32) -> usize {
        (position / 64) as usize & self.words.len().wrapping_sub(1)
    }

    /// Returns whether no bit is set.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.end == 0
    }

    /// Returns one more than the highest offset whose bit is set, 0 if none is.
    #[inline]
    pub fn end(&self) -> u32 {
        self.end
    }

    #[inline]
    fn locate(&self, offset: u32) -> (usize, u32) {
        let position = self.start.wrapping_add(offset);
        (self.word(position), position % 64)
    }

    /// Sets the bit at `offset` in each plane whose flag is true. Offsets outside the window, or without memory, are
    /// ignored.
    #[inline]
    pub fn set(&mut self, offset: u32, planes: [bool; PLANES]) {
        if !self.reserve(offset) {
            return;
        }
        let (word, bit) = self.locate(offset);
        for (w, on) in self.words[word].iter_mut().zip(planes) {
            *w |= u64::from(on) << bit;
        }
        self.end = self.end.max(offset + 1);
    }

    /// Returns whether the bit at `offset` is set in any plane.
    #[inline]
    pub fn any(&self, offset: u32) -> bool {
        if offset >= self.end {
            return false;
        }
        let (word, bit) = self.locate(offset);
        self.words[word].iter().fold(0, |a, w| a | w) >> bit & 1 == 1
    }

    /// Returns the first offset from `from` on that is set in no plane.
    #[inline]
    pub fn first_clear(&self, from: u32) -> u32 {
        let mut offset = from;
        while offset < self.end {
            let (word, bit) = self.locate(offset);
            let any = self.words[word].iter().fold(0, |a, w| a | w) >> bit;
            let ones = any.trailing_ones();
            if ones < 64 - bit {
                // A window that begins within a word ends in it, so the search continues into its own head.
                return (offset + ones).min(self.end);
            }
            offset += 64 - bit;
        }
        // In a window that is full, the search continues into its own head.
        offset.min(self.end).max(from)
    }

    /// Returns the number of consecutive offsets right before `to` that are set in some plane.
    #[inline]
    pub fn run_before(&self, to: u32) -> u32 {
        if to > self.end {
            return 0;
        }
        let mut offset = to;
        while offset > 0 {
            let (word, bit) = self.locate(offset - 1);
            let here = (bit + 1).min(offset);
            let any = self.words[word].iter().fold(0, |a, w| a | w) << (63 - bit);
            let ones = any.leading_ones().min(here);
            offset -= ones;
            if ones < here {
                break;
            }
        }
        to - offset
    }

    /// Returns the number of offsets before `to` that are set in some plane.
    pub fn ones(&self, to: u32) -> u32 {
        let to = to.min(self.end);
        let (mut offset, mut ones) = (0, 0);
        while offset < to {
            let (word, bit) = self.locate(offset);
            let take = (to - offset).min(64 - bit);
            let any = self.words[word].iter().fold(0, |a, w| a | w) >> bit << (64 - take);
            ones += any.count_ones();
            offset += take;
        }
        ones
    }

    /// Sets the bits of `n` offsets from `from` on in all planes. Returns how many of them were set in none.
    pub fn fill(&mut self, from: u32, n: u32) -> u32 {
        if n == 0 || !self.reserve(from + n - 1) {
            return 0;
        }
        let (mut offset, to, mut news) = (from, from + n, 0);
        while offset < to {
            let (word, bit) = self.locate(offset);
            let take = (to - offset).min(64 - bit);
            let mask = (u64::MAX >> (64 - take)) << bit;
            let any = self.words[word].iter().fold(0, |a, w| a | w);
            news += (mask & !any).count_ones();
            for w in &mut self.words[word] {
                *w |= mask;
            }
            offset += take;
        }
        self.end = self.end.max(to);
        news
    }

    /// Advances the head by `n`; bits that leave the window are cleared, and passed to `out` as masked words of all
    /// planes.
    #[inline]
    pub fn advance(&mut self, n: u32, mut out: impl FnMut([u64; PLANES])) {
        let mut left = n.min(self.end);
        let mut position = self.start;
        while left > 0 {
            let word = self.word(position);
            let bit = position % 64;
            let take = left.min(64 - bit);
            let mask = (u64::MAX >> (64 - take)) << bit;
            let w = &mut self.words[word];
            out(w.map(|x| x & mask));
            for x in w {
                *x &= !mask;
            }
            position = position.wrapping_add(take);
            left -= take;
        }
        self.start = self.start.wrapping_add(n);
        self.end = self.end.saturating_sub(n);
    }

    /// Clears every bit.
    pub fn clear(&mut self) {
        let n = self.end;
        self.advance(n, |_| ());
    }
}

impl<const PLANES: usize> Parts for Bitmap<PLANES> {
    fn list(&self, at: &Setup, ledger: &mut Ledger) {
        let Bitmap { words: _, bits: len, start: _, end: _ } = self;
        let planes = PLANES as u64;
        let heap = (*len as usize).div_ceil(64) * size_of::<[u64; PLANES]>();
        ledger.enter(at, "words", bits(planes * u64::from(*len)).heap(heap));
        ledger.enter(at, "bits", left(why::SHARED));
        ledger.enter(at, "start", left("the low bits of the number that the window starts with"));
        ledger.enter(at, "end", left(why::FOLLOWS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_last_offset_is_not_joined_to_the_first() {
        // Both in one word, the last right before the first.
        let mut map = Bitmap::<1>::new(64);
        map.advance(30, |_| ());
        map.set(0, [true]);
        map.set(63, [true]);
        assert_eq!((map.first_clear(63), map.first_clear(0)), (64, 1));
    }

    #[test]
    fn its_memory_follows_the_highest_offset() {
        let mut map = Bitmap::<1>::new(4096);
        map.advance(1000, |_| ());
        for (offset, words) in [(1, 1), (63, 1), (64, 2), (3, 2), (500, 8), (4095, 64)] {
            map.set(offset, [true]);
            assert_eq!(map.words.len(), words, "{offset}");
        }
        assert!([1, 3, 63, 64, 500, 4095].map(|offset| map.any(offset)).iter().all(|on| *on));
        assert_eq!(map.ones(4096), 6);
        assert!(!map.reserve(4096));
    }

    proptest! {
        #[test]
        fn behaves_like_a_vector_of_flags(
            bits in prop_oneof![Just(64u32), Just(128), Just(4096)],
            ops in prop::collection::vec((0u8..4, 0u32..5000, any::<[bool; 2]>()), 1..300),
        ) {
            let mut map = Bitmap::<2>::new(bits);
            let mut model = vec![[false; 2]; bits as usize];
            for (op, n, planes) in ops {
                match op {
                    0 => {
                        let n = n % (bits + 10);
                        map.set(n, planes);
                        if n < bits {
                            for p in 0..2 { model[n as usize][p] |= planes[p]; }
                        }
                    }
                    1 => {
                        let n = n % (bits / 2);
                        let mut ones = [0; 2];
                        map.advance(n, |w| for p in 0..2 { ones[p] += w[p].count_ones() });
                        for p in 0..2 {
                            prop_assert_eq!(ones[p] as usize, model[..n as usize].iter().filter(|b| b[p]).count());
                        }
                        model.drain(..n as usize);
                        model.resize(bits as usize, [false; 2]);
                    }
                    2 => {
                        let from = n % bits;
                        let count = (n / 7 % 200).min(bits - from);
                        let run = &mut model[from as usize..(from + count) as usize];
                        let clear = run.iter().filter(|b| **b == [false; 2]).count();
                        run.fill([true; 2]);
                        prop_assert_eq!(map.fill(from, count) as usize, clear);
                    }
                    _ => {
                        let n = n % bits;
                        let clear = (n..bits).find(|&i| model[i as usize] == [false; 2]).unwrap_or(bits);
                        prop_assert_eq!(map.first_clear(n), clear);
                        let run = model[..n as usize].iter().rev().take_while(|b| **b != [false; 2]).count();
                        prop_assert_eq!(map.run_before(n) as usize, run);
                        let ones = model[..n as usize].iter().filter(|b| **b != [false; 2]).count();
                        prop_assert_eq!(map.ones(n) as usize, ones);
                    }
                }
                for (i, b) in model.iter().enumerate() {
                    prop_assert_eq!(map.any(i as u32), b[0] || b[1]);
                }
            }
        }
    }
}
