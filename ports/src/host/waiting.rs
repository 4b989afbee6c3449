//! Frames that arrived by UDP for other processes and wait for room in the rings to them.

use std::collections::VecDeque;

use irnic_transports::Path;

use super::slot::Slot;
use crate::RxIcrc;

/// A frame without its bytes.
struct Frame {
    stamp: u64,
    path: Path,
    icrc: RxIcrc,
    len: usize,
}

/// The frames for one process, in order.
struct Line {
    to: Slot,
    frames: VecDeque<Frame>,
    /// Their bytes, one frame after the other.
    bytes: VecDeque<u8>,
}

/// Waiting frames by destination process. Only processes that have fallen behind have any.
#[derive(Default)]
pub(super) struct Waiting {
    lines: Vec<Line>,
    bytes: usize,
}

impl Waiting {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Returns the number of bytes that wait.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether frames for this process wait.
    #[inline]
    pub(super) fn is_for(&self, to: Slot) -> bool {
        self.lines.iter().any(|line| line.to == to)
    }

    /// Returns the number of bytes that wait for this process.
    pub(super) fn bytes_for(&self, to: Slot) -> u64 {
        self.lines.iter().find(|line| line.to == to).map_or(0, |line| line.bytes.len() as u64)
    }

    #[cold]
    pub(super) fn push(&mut self, to: Slot, stamp: u64, path: &Path, icrc: RxIcrc, bytes: &[u8]) {
        let at = self.lines.iter().position(|line| line.to == to).unwrap_or_else(|| {
            self.lines.push(Line { to, frames: VecDeque::new(), bytes: VecDeque::new() });
            self.lines.len() - 1
        });
        let line = &mut self.lines[at];
        line.frames.push_back(Frame { stamp, path: *path, icrc, len: bytes.len() });
        line.bytes.extend(bytes);
        self.bytes += bytes.len();
    }

    /// Passes the frames for each process in order to `push`, until it returns false. It gets the process, the frame's
    /// stamp, path, ICRC and length, and a function that writes its bytes.
    pub(super) fn retry(
        &mut self,
        mut push: impl FnMut(Slot, u64, (&Path, RxIcrc), usize, &mut dyn FnMut(&mut [u8])) -> bool,
    ) {
        let left = &mut self.bytes;
        self.lines.retain_mut(|line| {
            while let Some(Frame { stamp, path, icrc, len }) = line.frames.front() {
                let (first, second) = line.bytes.as_slices();
                let fill = &mut |out: &mut [u8]| {
                    let here = first.len().min(out.len());
                    out[..here].copy_from_slice(&first[..here]);
                    let rest = out.len() - here;
                    out[here..].copy_from_slice(&second[..rest]);
                };
                if !push(line.to, *stamp, (path, *icrc), *len, fill) {
                    return true;
                }
                *left -= len;
                line.bytes.drain(..len);
                line.frames.pop_front();
            }
            false
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_process_gets_its_frames_in_order_as_there_is_room() {
        let path =
            Path { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into(), udp_src: 7, traffic_class: 0, hop_limit: 64 };
        let [a, b] = [1, 2].map(|n| Slot::new(n).unwrap());
        let mut waiting = Waiting::default();
        let (mut pushed, mut total) = (0u8, 0);
        let mut seen = [Vec::new(), Vec::new()];
        // Number of frames of each process that the rings have room for, each time after three more of both.
        for room in [[1, 0], [2, 5], [4, 4], [0, 0], [9, 9]] {
            for _ in 0..3 {
                for to in [a, b] {
                    let bytes = vec![pushed; 100 + usize::from(pushed)];
                    total += bytes.len();
                    waiting.push(to, pushed.into(), &path, RxIcrc::Exact, &bytes);
                }
                pushed += 1;
            }
            assert_eq!(waiting.bytes(), total);
            assert_eq!(waiting.bytes_for(a) + waiting.bytes_for(b), total as u64);
            let mut room = room;
            waiting.retry(|to, stamp, (of, _), len, fill| {
                let which = usize::from(to == b);
                if room[which] == 0 {
                    return false;
                }
                room[which] -= 1;
                let mut bytes = vec![0; len];
                fill(&mut bytes);
                assert_eq!((of.udp_src, len), (7, 100 + stamp as usize));
                assert!(bytes.iter().all(|byte| u64::from(*byte) == stamp), "{stamp}");
                seen[which].push(stamp as u8);
                total -= len;
                true
            });
            assert_eq!(waiting.bytes(), total);
        }
        assert!(waiting.is_empty() && !waiting.is_for(a) && !waiting.is_for(b));
        assert_eq!(seen, [(0..pushed).collect::<Vec<_>>(), (0..pushed).collect()]);
    }
}
