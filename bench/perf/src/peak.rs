//! The peak of a bandwidth test, as perftest defines it: the best rate of any interval, from posting one message to
//! completing it or a later one.

use irnic_transports::Time;

/// Maximum number of messages of a run for which perftest computes the peak.
const MESSAGES: u64 = 20_000;

/// Times at which each message was posted and completed.
#[derive(Clone, Debug, Default)]
pub struct Peak {
    wanted: bool,
    posted: Vec<Time>,
    completed: Vec<Time>,
}

impl Peak {
    /// For a run of this many messages. Long runs, and those that end by time, have no peak.
    pub fn new(messages: Option<u64>) -> Peak {
        match messages.filter(|&n| n <= MESSAGES) {
            Some(n) => {
                let stamps = || Vec::with_capacity(n as usize);
                Peak { wanted: true, posted: stamps(), completed: stamps() }
            }
            None => Peak::default(),
        }
    }

    /// Records a posted message.
    #[inline]
    pub fn posted(&mut self, now: Time) {
        if self.wanted {
            self.posted.push(now);
        }
    }

    /// Records that `count` messages are complete.
    #[inline]
    pub fn completed(&mut self, now: Time, count: u64) {
        if self.wanted {
            self.completed.resize(count as usize, now);
        }
    }

    /// Messages per second of the best interval, 0 if not measured.
    pub fn per_second(&self) -> f64 {
        // Of those posted in the same round, the first; of those completed in the same round, the last.
        let (posted, completed) = (&self.posted, &self.completed);
        let firsts = (0..posted.len()).filter(|&i| i == 0 || posted[i] != posted[i - 1]);
        let lasts: Vec<usize> =
            (0..completed.len()).filter(|&j| completed.get(j + 1).is_none_or(|next| *next != completed[j])).collect();
        let mut best = 0.0f64;
        for i in firsts {
            for &j in &lasts[lasts.partition_point(|&j| j < i)..] {
                let time = completed[j].since(posted[i]);
                if time > 0 {
                    best = best.max((j - i + 1) as f64 / time as f64);
                }
            }
        }
        best * 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_stretch_counts() {
        let mut peak = Peak::new(Some(6));
        for (posted, completed) in [(0, 100), (0, 110), (50, 120), (1000, 1010), (1000, 1010), (1000, 1020)] {
            peak.posted(Time(posted));
            let count = peak.completed.len() as u64 + 1;
            peak.completed(Time(completed), count);
        }
        // Two messages in 10 ns; three in 20 are a lower rate.
        assert_eq!(peak.per_second(), 2.0 / 10.0 * 1e9);
        assert_eq!(Peak::new(None).per_second(), 0.0);
        assert_eq!(Peak::new(Some(MESSAGES + 1)).per_second(), 0.0);
    }
}
