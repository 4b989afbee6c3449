//! Contents of messages: bytes derived from seed, queue pair and message number, so that a receiver knows what to
//! expect, and detects an earlier or shifted message.

/// 2⁶⁴ divided by the golden ratio: the step from word to word, and SplitMix64's.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64's output function: a bijection that spreads every bit.
pub fn mix(value: u64) -> u64 {
    let z = value.wrapping_add(STEP);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A stream of messages: everything but the message number.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Stream(u64);

impl Stream {
    /// The messages that end `from` (0 client, 1 server) sends on its queue pair `qp`, counted from 0.
    pub fn new(seed: u64, from: usize, qp: usize) -> Stream {
        Stream(mix(mix(seed) ^ (qp as u64) << 1 ^ from as u64))
    }

    /// The first word of message `number`.
    #[inline]
    pub fn word(self, number: u64) -> u64 {
        mix(self.0 ^ number.wrapping_mul(STEP))
    }

    /// Writes message `number`.
    #[inline]
    pub fn fill(self, number: u64, to: &mut [u8]) {
        let mut word = self.word(number);
        let (words, rest) = to.as_chunks_mut::<8>();
        for bytes in words {
            *bytes = word.to_le_bytes();
            word = word.wrapping_add(STEP);
        }
        let len = rest.len();
        rest.copy_from_slice(&word.to_le_bytes()[..len]);
    }

    /// Compares `bytes` with message `number`: the offset of the first byte that differs.
    #[inline]
    pub fn check(self, number: u64, bytes: &[u8]) -> Result<(), usize> {
        /// Number of words between checks for an early exit.
        const BLOCK: usize = 512;
        let mut word = self.word(number);
        let (words, rest) = bytes.as_chunks::<8>();
        let mut same = true;
        for block in words.chunks(BLOCK) {
            let mut different = 0;
            for bytes in block {
                different |= u64::from_le_bytes(*bytes) ^ word;
                word = word.wrapping_add(STEP);
            }
            same = different == 0;
            if !same {
                break;
            }
        }
        if same && *rest == word.to_le_bytes()[..rest.len()] { Ok(()) } else { self.first_difference(number, bytes) }
    }

    #[cold]
    fn first_difference(self, number: u64, bytes: &[u8]) -> Result<(), usize> {
        let first = self.word(number);
        let wrong = bytes.iter().enumerate().position(|(i, &byte)| {
            let word = first.wrapping_add(((i / 8) as u64).wrapping_mul(STEP));
            byte != word.to_le_bytes()[i % 8]
        });
        wrong.map_or(Ok(()), Err)
    }
}

/// A mismatch of content.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "message {number} of queue pair {qp} arrived corrupted: the first wrong byte is at offset {offset} of {len}; this is a \
     bug, please report it with the command line and the seed"
)]
pub struct Corrupted {
    /// Index of the queue pair.
    pub qp: usize,
    /// Number of the message, from 0.
    pub number: u64,
    /// Offset of the first wrong byte.
    pub offset: usize,
    /// Bytes of the message.
    pub len: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_filled_passes() {
        let stream = Stream::new(1, 0, 3);
        for len in [0, 1, 7, 8, 9, 4095, 4096, 4097, 65536, 100_001] {
            let mut bytes = vec![0; len];
            stream.fill(7, &mut bytes);
            assert_eq!(stream.check(7, &bytes), Ok(()), "{len} bytes");
        }
    }

    #[test]
    fn the_first_wrong_byte_is_named() {
        let stream = Stream::new(1, 0, 3);
        for (len, at) in [(1, 0), (9, 8), (100, 0), (100, 99), (65536, 4096), (65536, 65535), (10_003, 10_001)] {
            let mut bytes = vec![0; len];
            stream.fill(7, &mut bytes);
            bytes[at] ^= 0x10;
            if at + 1 < len {
                bytes[len - 1] ^= 1;
            }
            assert_eq!(stream.check(7, &bytes), Err(at), "{len} bytes, {at} changed");
        }
    }

    #[test]
    fn no_other_message_passes() {
        let mut bytes = vec![0; 64];
        Stream::new(1, 0, 0).fill(5, &mut bytes);
        for (seed, from, qp, number) in [(2, 0, 0, 5), (1, 1, 0, 5), (1, 0, 1, 5), (1, 0, 0, 6), (1, 0, 0, 4)] {
            assert!(Stream::new(seed, from, qp).check(number, &bytes).is_err(), "{seed} {from} {qp} {number}");
        }
        assert!(Stream::new(1, 0, 0).check(5, &bytes[8..]).is_err(), "shifted by a word");
        assert!(Stream::new(1, 0, 0).check(5, &[0; 64]).is_err(), "never written");
    }
}
