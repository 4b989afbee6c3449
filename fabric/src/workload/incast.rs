//! Many to one: data striped over hosts that all send at once (IRN §4.3.4, "Incast"), or short answers that come
//! together (TLT §7.1, "Benchmark workloads").

use super::poisson::MAX_FLOWS;
use super::random::{Purpose, Random};
use super::{Flow, Setting, sort};
use crate::input::Error;

/// An incast, once or repeatedly.
#[derive(Clone, Debug, PartialEq)]
pub struct Incast {
    /// Number of sending hosts, drawn anew for each repetition, 1 or more; `None`: all but the receiver.
    pub senders: Option<u32>,
    /// Number of flows of each sender, 1 or more.
    pub flows: u32,
    /// Sizes of the flows.
    pub bytes: Bytes,
    /// The receiver; `None`: drawn anew for each repetition.
    pub to: Option<u32>,
    /// Start of the first incast, ns; with [`When::Load`] and [`When::Share`], one interval later.
    pub start: u64,
    /// Times of the following ones.
    pub when: When,
}

/// Size of an incast.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Bytes {
    /// All flows of one repetition together, at least one byte each. The first ones get the remainder of the division.
    Together(u64),
    /// Each flow.
    Each(u64),
}

/// Repetition of an incast.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum When {
    /// A fixed number of times.
    Times {
        /// Time from the start of one to the start of the next, ns.
        every: u64,
        /// Number of incasts, 1 or more.
        repeat: u32,
    },
    /// At a rate that offers this share of all hosts' rate, headers included, until the workload's duration ends, or
    /// without one until the last Poisson arrival.
    Load(f64),
    /// At a rate that offers this share of the setting's load, below 1; it is deducted from Poisson arrivals without a
    /// load of their own.
    Share(f64),
}

impl Default for Incast {
    /// 150 MB from 30 hosts (IRN §4.3.4) to host 0, once; repeated, every 100 ms, which at 10 Gbit/s is not yet enough.
    fn default() -> Incast {
        Incast {
            senders: Some(30),
            flows: 1,
            bytes: Bytes::Together(150_000_000),
            to: Some(0),
            start: 0,
            when: When::Times { every: 100_000_000, repeat: 1 },
        }
    }
}

impl Incast {
    /// TLT's foreground traffic (§7.1): eight flows of 8 kB from every other host to one drawn anew, 5 % of all
    /// traffic.
    pub fn foreground() -> Incast {
        Incast { senders: None, flows: 8, bytes: Bytes::Each(8_000), to: None, start: 0, when: When::Share(0.05) }
    }
}

/// Start times of repetitions, by number.
struct Schedule {
    first: f64,
    every: f64,
    times: u64,
}

/// Draws senders and receivers. `end`: end of repetitions by load if the setting has no duration.
pub fn generate(incast: &Incast, setting: &Setting<'_>, end: Option<u64>, class: u8) -> Result<Vec<Flow>, Error> {
    let wrong = |key: &str, value: u64, expected: String| Err(Error::value("incast", key, value, expected));
    setting.needs_two_hosts("incast")?;
    let hosts = setting.topology.hosts;
    let senders = incast.senders.unwrap_or(hosts - 1);
    if !(1..hosts).contains(&senders) {
        return wrong("senders", senders.into(), format!("1 to {}, all hosts but the receiver", hosts - 1));
    }
    let count = u64::from(senders) * u64::from(incast.flows);
    if let Bytes::Together(bytes) = incast.bytes
        && bytes < count
    {
        let of = if incast.flows == 1 { "senders" } else { "flows" };
        return wrong("bytes", bytes, format!("at least one for each of {count} {of}"));
    }
    if let Some(to) = incast.to.filter(|to| *to >= hosts) {
        return wrong("to", to.into(), format!("a host, 0 to {}", hosts - 1));
    }
    let schedule = schedule(incast, setting, end, count)?;
    if schedule.times.saturating_mul(count) > MAX_FLOWS {
        return wrong(
            "flows",
            schedule.times.saturating_mul(count),
            format!("at most {MAX_FLOWS}, all repetitions together"),
        );
    }

    let mut flows = Vec::new();
    for repetition in 0..schedule.times {
        let mut random = Random::new(setting.seed, Purpose::Incast, class, repetition as u32);
        let dst = incast.to.unwrap_or_else(|| random.below(hosts.into()) as u32);
        let mut others: Vec<u32> = (0..hosts).filter(|host| *host != dst).collect();
        let start = incast.start + (schedule.first + repetition as f64 * schedule.every) as u64;
        for chosen in 0..senders as usize {
            let with = chosen + random.below((others.len() - chosen) as u64) as usize;
            others.swap(chosen, with);
            for nth in 0..u64::from(incast.flows) {
                let bytes = flow_bytes(incast, count, nth * u64::from(senders) + chosen as u64);
                flows.push(Flow {
                    src: others[chosen],
                    dst,
                    bytes,
                    start,
                    priority: setting.priority,
                    class,
                    setup: 0,
                });
            }
        }
    }
    sort(&mut flows);
    Ok(flows)
}

/// Payload of the flow with this number, of `count`.
fn flow_bytes(incast: &Incast, count: u64, number: u64) -> u64 {
    match incast.bytes {
        Bytes::Together(bytes) => bytes / count + u64::from(number < bytes % count),
        Bytes::Each(bytes) => bytes,
    }
}

fn schedule(incast: &Incast, setting: &Setting<'_>, end: Option<u64>, count: u64) -> Result<Schedule, Error> {
    let load = match incast.when {
        When::Times { every, repeat } => {
            return Ok(Schedule { first: 0.0, every: every as f64, times: repeat.into() });
        }
        When::Load(load) => load,
        When::Share(share) => share * setting.load,
    };
    let wire: u64 = match incast.bytes {
        Bytes::Each(bytes) => count * setting.wire_bytes(bytes),
        Bytes::Together(_) => (0..count).map(|n| setting.wire_bytes(flow_bytes(incast, count, n))).sum(),
    };
    let rate: f64 = setting.topology.host_rates().iter().map(|rate| *rate as f64).sum();
    let every = 8e9 * wire as f64 / (rate * load);
    let Some(end) = setting.duration.or(end) else {
        let expected = "a duration, or Poisson arrivals beside it, to say how long";
        return Err(Error::value("incast", "load", load, expected));
    };
    let time = end.saturating_sub(incast.start) as f64;
    // One interval passes before the first, as in TLT's simulator; an incast exactly at the end is excluded.
    let times = ((time / every).ceil() - 1.0).max(0.0);
    Ok(Schedule { first: every, every, times: times as u64 })
}
