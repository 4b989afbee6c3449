//! Intervals of a run, with a line each, as printed by iperf3 every second.

use irnic_transports::Time;
use serde_json::{Map, Value, json};

use crate::end::{Latency, Seen};
use crate::figures::{Bw, Lat, Unit, lat_fields};

/// An interval of a run.
#[derive(Clone, Debug)]
pub struct Interval {
    /// Time from the start of the run, s.
    pub from: f64,
    pub to: f64,
    pub messages: u64,
    /// Packets retransmitted, and retransmission timeouts.
    pub retransmitted: u64,
    pub timeouts: u64,
    pub lat: Option<Lat>,
}

impl Interval {
    /// Messages per second.
    pub fn rate(&self) -> f64 {
        self.messages as f64 / (self.to - self.from).max(1e-9)
    }

    fn line(&self, size: u32, unit: Unit) -> String {
        let Interval { from, to, messages, retransmitted, timeouts, lat } = self;
        let times = format!("{from:.2}-{to:.2}");
        match lat {
            None => {
                let (bw, rate) = (unit.of(self.rate(), size), self.rate() / 1e6);
                format!(" {times:<16} {messages:<13} {bw:<22.2} {rate:<15.6} {retransmitted:<15} {timeouts}")
            }
            Some(Lat { min, typical, average, p99, max, .. }) => format!(
                " {times:<16} {messages:<13} {min:<14.2} {typical:<16.2} {average:<13.2} {p99:<22.2} {max:<13.2} \
                 {retransmitted:<15} {timeouts}"
            ),
        }
    }

    /// Returns the interval as JSON.
    pub fn json(&self, size: u32) -> Value {
        let mut all = Map::new();
        for (name, value) in [("from_sec", self.from), ("to_sec", self.to)] {
            all.insert(name.into(), json!(value));
        }
        all.insert("n_iterations".into(), json!(self.messages));
        match &self.lat {
            None => all.extend(Bw::fields("average", self.rate(), size)),
            Some(lat) => all.extend(lat_fields(lat)),
        }
        all.insert("retransmitted_pkts".into(), json!(self.retransmitted));
        all.insert("timeouts".into(), json!(self.timeouts));
        Value::Object(all)
    }
}

/// The heading of the lines.
fn head(latency: bool, unit: Unit) -> String {
    if latency {
        return format!(
            " {:<16} {:<13} {:<14} {:<16} {:<13} {:<22} {:<13} {:<15} timeouts",
            "interval[sec]",
            "#iterations",
            "t_min[usec]",
            "t_typical[usec]",
            "t_avg[usec]",
            "99% percentile[usec]",
            "t_max[usec]",
            "retransmitted"
        );
    }
    let average = format!("BW average[{}]", unit.name());
    format!(
        " {:<16} {:<13} {average:<22} {:<15} {:<15} timeouts",
        "interval[sec]", "#iterations", "MsgRate[Mpps]", "retransmitted"
    )
}

/// The intervals of one run.
#[derive(Debug)]
pub struct Intervals {
    /// Length, ns.
    every: u64,
    size: u32,
    unit: Unit,
    /// Start of the run, start of the current interval, and state at that time.
    start: Option<Time>,
    since: Time,
    before: Option<Seen>,
    all: Vec<Interval>,
}

impl Intervals {
    /// Intervals of `every` ns, for messages of `size` bytes.
    pub fn new(every: u64, size: u32, unit: Unit) -> Intervals {
        Intervals { every, size, unit, start: None, since: Time::ZERO, before: None, all: Vec::new() }
    }

    /// Prints the interval that has ended by `now`, if one has. Returns the time of the next call.
    pub fn update(&mut self, now: Time, seen: &Seen) -> Time {
        let Some(start) = self.start else {
            (self.start, self.since, self.before) = (Some(now), now, Some(seen.clone()));
            println!("{}", head(seen.latency.is_some(), self.unit));
            return now + self.every;
        };
        // A late call makes this interval longer; later ones keep their boundaries.
        let n = now.since(start) / self.every;
        if n > self.since.since(start) / self.every {
            self.add(now, seen);
        }
        start + (n + 1) * self.every
    }

    /// Prints the rest.
    pub fn end(&mut self, now: Time, seen: &Seen) {
        if now > self.since && self.before.as_ref().is_some_and(|before| seen.done > before.done) {
            self.add(now, seen);
        }
    }

    fn add(&mut self, now: Time, seen: &Seen) {
        let (Some(start), Some(before)) = (self.start, &self.before) else { return };
        let seconds = |at: Time| at.since(start) as f64 / 1e9;
        let lat = seen.latency.as_ref().zip(before.latency.as_ref()).map(|(now, before)| Lat::of(&newer(now, before)));
        let interval = Interval {
            from: seconds(self.since),
            to: seconds(now),
            messages: seen.done - before.done,
            retransmitted: seen.retransmitted - before.retransmitted,
            timeouts: seen.timeouts - before.timeouts,
            lat,
        };
        println!("{}", interval.line(self.size, self.unit));
        self.all.push(interval);
        (self.since, self.before) = (now, Some(seen.clone()));
    }

    /// All intervals, in order.
    pub fn into_all(self) -> Vec<Interval> {
        self.all
    }
}

/// The samples since `before`.
fn newer(now: &Latency, before: &Latency) -> Latency {
    let mut samples = now.samples.clone();
    // One is contained in the other, so this cannot fail.
    let _ = samples.subtract(&before.samples);
    let (min, max) = (samples.min(), samples.max());
    Latency { min, max, samples, all: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_follow_each_other_without_gaps() {
        const MS: u64 = 1_000_000;
        let seen = |done, retransmitted| Seen { done, total: None, retransmitted, timeouts: 0, latency: None };
        let mut intervals = Intervals::new(100 * MS, 1000, Unit::Gigabits);
        let mut next = intervals.update(Time(5 * MS), &seen(0, 0));
        assert_eq!(next, Time(105 * MS));
        for (at, done, again) in [(106, 10, 1), (230, 40, 1), (306, 50, 4)] {
            assert!(Time(at * MS) >= next);
            next = intervals.update(Time(at * MS), &seen(done, again));
        }
        intervals.end(Time(350 * MS), &seen(55, 4));
        let all = intervals.into_all();
        let of = |i: &Interval| ((i.from * 1e3).round(), (i.to * 1e3).round(), i.messages, i.retransmitted);
        let expected = [(0.0, 101.0, 10, 1), (101.0, 225.0, 30, 0), (225.0, 301.0, 10, 3), (301.0, 345.0, 5, 0)];
        assert_eq!(all.iter().map(of).collect::<Vec<_>>(), expected);
        assert_eq!(all[0].json(1000)["retransmitted_pkts"], 1);
        assert!((all[3].rate() - 5.0 / 0.044).abs() < 1e-6);
    }
}
