//! Payload that reaches hosts for the first time, by the sequence numbers of packets.

use std::collections::BTreeMap;

use irnic_transports::Psn;
use irnic_transports::wire::parse;

/// Sequence numbers that are remembered: as many as the largest window has. One that lies further back begins another
/// connection of the queue pair.
const REMEMBERED: u32 = 1 << 16;

/// Maximum number of streams whose numbers are remembered, 8 KiB each; of others every packet counts. Frames of
/// applications may name any queue pair.
const STREAMS: usize = 1 << 14;

/// Which of the last [`REMEMBERED`] sequence numbers have arrived, in a ring of bits (as in RFC 6479).
#[derive(Clone, Debug)]
struct Arrived {
    newest: Psn,
    bits: Box<[u64]>,
}

impl Arrived {
    /// Nothing but `first` has arrived.
    fn new(first: Psn) -> Arrived {
        let mut arrived = Arrived { newest: first, bits: vec![0; REMEMBERED as usize / 64].into() };
        arrived.take(first);
        arrived
    }

    /// Notes a number. Returns whether it had not arrived before.
    fn take(&mut self, psn: Psn) -> bool {
        let place = |psn: Psn| ((psn.get() % REMEMBERED / 64) as usize, 1u64 << (psn.get() % 64));
        let ahead = psn.distance(self.newest);
        if ahead.unsigned_abs() >= REMEMBERED {
            self.bits.fill(0);
            self.newest = psn;
        }
        // The places on the way have numbers of a window ago.
        while self.newest.before(psn) {
            self.newest = self.newest.plus(1);
            let (word, bit) = place(self.newest);
            self.bits[word] &= !bit;
        }
        let (word, bit) = place(psn);
        let is_first = self.bits[word] & bit == 0;
        self.bits[word] |= bit;
        is_first
    }
}

/// Packets that are numbered together: sender, receiver, the receiving queue pair, and whether they are responses.
type Stream = (u32, u32, u32, bool);

/// The payload that has reached hosts, without repetitions.
#[derive(Debug, Default)]
pub(super) struct Goodput {
    pub(super) bytes: u64,
    streams: BTreeMap<Stream, Arrived>,
}

impl Goodput {
    /// Counts a frame that has arrived intact.
    pub(super) fn arrived(&mut self, src: u32, dst: u32, frame: &[u8]) {
        let Ok((headers, payload)) = parse(frame) else { return };
        let (bth, bytes) = (&headers.bth, payload.len() as u64);
        if bytes == 0 {
            return;
        }
        // Unreliable services repeat nothing.
        let mut is_first = true;
        if bth.opcode.is_reliable() {
            let stream = (src, dst, bth.dest_qp, bth.opcode.is_response());
            let has_room = self.streams.len() < STREAMS;
            match self.streams.get_mut(&stream) {
                Some(arrived) => is_first = arrived.take(bth.psn),
                None if has_room => drop(self.streams.insert(stream, Arrived::new(bth.psn))),
                None => {}
            }
        }
        self.bytes += if is_first { bytes } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of these numbers arrive for the first time.
    fn firsts(numbers: &[u32]) -> Vec<bool> {
        let mut arrived = Arrived::new(Psn::new(numbers[0]));
        let rest = numbers[1..].iter().map(|psn| arrived.take(Psn::new(*psn)));
        std::iter::once(true).chain(rest).collect()
    }

    #[test]
    fn a_number_counts_once_in_whatever_order() {
        assert_eq!(firsts(&[7, 8, 9, 8, 7, 10]), [true, true, true, false, false, true]);
        // Those that overtook others, and those that were overtaken.
        assert_eq!(firsts(&[5, 9, 6, 9, 7, 8, 6]), [true, true, true, false, true, true, false]);
        // Before the first that arrived, and across the end of the numbers.
        assert_eq!(firsts(&[1, 0, 0xff_ffff, 0, 0xff_ffff, 2]), [true, true, true, false, false, true]);
    }

    #[test]
    fn numbers_of_an_earlier_window_count_again() {
        let window = REMEMBERED;
        assert_eq!(firsts(&[3, window + 2, 3, window + 3, 4]), [true, true, false, true, true]);
        // A queue pair that begins anew, ahead or behind.
        assert_eq!(firsts(&[3, 5 * window, 3, 5 * window, 3]), [true; 5]);
    }
}
