//! Bandwidths and latencies: units, results of a run, field names.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::end::{Latency, Measured};

/// Unit of bandwidth.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Unit {
    Mebibytes,
    Gigabits,
}

impl Unit {
    pub const ALL: [Unit; 2] = [Unit::Mebibytes, Unit::Gigabits];

    /// Name in headings.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Mebibytes => "MiB/sec",
            Unit::Gigabits => "Gb/sec",
        }
    }

    /// Suffix of field names.
    pub fn suffix(self) -> &'static str {
        match self {
            Unit::Mebibytes => "MiB_sec",
            Unit::Gigabits => "Gb_sec",
        }
    }

    /// The bandwidth of `rate` messages of `size` bytes per second.
    pub fn of(self, rate: f64, size: u32) -> f64 {
        let bytes = match self {
            Unit::Mebibytes => f64::from(1 << 20),
            Unit::Gigabits => 1e9 / 8.0,
        };
        rate * f64::from(size) / bytes
    }
}

/// Results of a bandwidth test, both directions together.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bw {
    pub messages: u64,
    /// Messages per second.
    pub peak: f64,
    pub average: f64,
}

impl Bw {
    /// Results of one end.
    pub fn of(measured: &Measured) -> Bw {
        let seconds = measured.elapsed as f64 / 1e9;
        let average = if measured.messages > 0 && seconds > 0.0 { measured.messages as f64 / seconds } else { 0.0 };
        Bw { messages: measured.messages, peak: measured.peak, average }
    }

    /// The fields of a rate of messages of `size` bytes, in both units; the average also in messages.
    pub fn fields(what: &str, rate: f64, size: u32) -> Map<String, Value> {
        let bandwidth = Unit::ALL.map(|unit| (format!("BW_{what}_{}", unit.suffix()), json!(unit.of(rate, size))));
        let messages = (what == "average").then(|| ("MsgRate_Mpps".to_owned(), json!(rate / 1e6)));
        bandwidth.into_iter().chain(messages).collect()
    }

    /// Adds the rates of both ends. perftest reports the messages of one.
    pub fn plus(self, other: Bw) -> Bw {
        Bw { messages: self.messages, peak: self.peak + other.peak, average: self.average + other.average }
    }
}

/// Results of a latency test, in microseconds.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lat {
    pub samples: u64,
    pub min: f64,
    pub max: f64,
    pub typical: f64,
    pub average: f64,
    pub stdev: f64,
    pub p99: f64,
    pub p999: f64,
}

impl Lat {
    /// Computes the results from samples.
    pub fn of(latency: &Latency) -> Lat {
        let samples = &latency.samples;
        let n = samples.len();
        // The histogram rounds up, past the largest sample.
        let at = |quantile: f64| samples.value_at_quantile(quantile).min(latency.max) as f64 / 1e3;
        Lat {
            samples: n,
            min: if n == 0 { 0.0 } else { latency.min as f64 / 1e3 },
            max: latency.max as f64 / 1e3,
            typical: at(0.5),
            average: if n == 0 { 0.0 } else { samples.mean() / 1e3 },
            stdev: if n == 0 { 0.0 } else { samples.stdev() / 1e3 },
            p99: at(0.99),
            p999: at(0.999),
        }
    }
}

/// Latencies by field name, in microseconds.
pub fn lat_fields(lat: &Lat) -> Map<String, Value> {
    let Lat { min, max, typical, average, stdev, p99, p999, samples: _ } = *lat;
    [
        ("t_min_usec", min),
        ("t_max_usec", max),
        ("t_typical_usec", typical),
        ("t_avg_usec", average),
        ("t_stdev_usec", stdev),
        ("t_99_usec", p99),
        ("t_99.9_usec", p999),
    ]
    .map(|(name, value)| (name.to_owned(), json!(value)))
    .into_iter()
    .collect()
}

/// One line of results.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Line {
    Bw(Bw),
    Lat(Lat),
}

impl Line {
    /// Number of messages, or samples.
    pub fn iterations(&self) -> u64 {
        match self {
            Line::Bw(bw) => bw.messages,
            Line::Lat(lat) => lat.samples,
        }
    }

    /// The line of an end's measurements.
    pub fn of(measured: &Measured) -> Line {
        measured.latency.as_ref().map_or_else(|| Line::Bw(Bw::of(measured)), |latency| Line::Lat(Lat::of(latency)))
    }

    /// Combines the client's results with the server's: in a bidirectional test their sum, in a reversed one the
    /// server's.
    pub fn with(self, server: Line) -> Line {
        match (self, server) {
            (Line::Bw(client), Line::Bw(server)) if client.messages == 0 => Line::Bw(server),
            (Line::Bw(client), Line::Bw(server)) => Line::Bw(client.plus(server)),
            (client, _) => client,
        }
    }
}
