//! Results of a command: recorded run by run, printed as they come or as one table, written to files at the end.

use irnic_ports::impair::Report;
use irnic_report::origin::Origin;
use irnic_transports::wire::Mtu;
use serde_json::{Map, Value};

use crate::args::Only;
use crate::end::Measured;
use crate::error::PerfError;
use crate::figures::{Bw, Line, Unit};
use crate::intervals::Interval;
use crate::pacing::Pacing;
use crate::report::{self, CounterMap, LINE};
use crate::sweep::{Sorted, Spread, Sweep, Turn};
use crate::table;

/// Results of a run.
#[derive(Clone, Debug)]
pub struct Ran {
    pub line: Line,
    /// Results of client and server, of a bidirectional test.
    pub each: Option<[Bw; 2]>,
    /// Time from the first post to the last completion, s.
    pub seconds: f64,
    pub counters: CounterMap,
    pub peer_counters: CounterMap,
    pub pacing: Option<Pacing>,
    /// Number of completion events, if they were waited for.
    pub events: Option<u64>,
    /// Every sample of latency, ns, if they are to be printed.
    pub samples: Vec<u64>,
    pub intervals: Vec<Interval>,
    /// Utilization of the host's processors, %.
    pub cpu: Option<f64>,
    /// Counters of an impaired network, for runs that had one to themselves.
    pub network: Option<[Report; 2]>,
}

impl Ran {
    /// Results of this process's end; those of others are added later.
    pub fn of(measured: &Measured, counters: CounterMap) -> Ran {
        let samples = measured.latency.as_ref().and_then(|latency| latency.all.clone());
        Ran {
            line: Line::of(measured),
            each: None,
            seconds: measured.elapsed as f64 / 1e9,
            counters,
            peer_counters: CounterMap::new(),
            pacing: measured.pacing,
            events: measured.events,
            samples: samples.unwrap_or_default(),
            intervals: Vec::new(),
            cpu: None,
            network: None,
        }
    }

    /// Combines the measurements of both ends.
    pub fn with_both(mut self, client: Line, server: Line, bidirectional: bool) -> Ran {
        if let (true, Line::Bw(client), Line::Bw(server)) = (bidirectional, client, server) {
            self.each = Some([client, server]);
        }
        self.line = client.with(server);
        self
    }

    /// Sum of a counter over both NICs.
    pub fn count(&self, name: &str) -> u64 {
        [&self.counters, &self.peer_counters].into_iter().filter_map(|counters| counters.get(name)).sum()
    }

    /// Returns the share of packets sent again, 0 to 1: of those that both ends sent, acknowledgements apart.
    pub fn retransmitted_share(&self) -> f64 {
        let sent = self.count("sent_pkts").saturating_sub(self.count("sent_acks"));
        self.count("retransmitted_pkts") as f64 / sent.max(1) as f64
    }
}

/// Results so far.
pub struct Results<'a> {
    pub sweep: &'a Sweep,
    /// Whether results are printed as one table, at the end.
    pub compares: bool,
    pub test_info: Map<String, Value>,
    /// Ended runs, with their results or the error.
    pub runs: Vec<(Turn, Result<Ran, String>)>,
    pub network: Option<[Report; 2]>,
    /// How to get the results again.
    pub origin: Origin,
    began: bool,
}

impl<'a> Results<'a> {
    pub fn new(sweep: &'a Sweep) -> Results<'a> {
        let (test_info, compares) = (Map::new(), sweep.compares());
        let origin = Origin::of_process();
        Results { sweep, compares, test_info, runs: Vec::new(), network: None, origin, began: false }
    }

    /// Whether only a single number is printed.
    fn is_terse(&self) -> bool {
        self.sweep.show.only.is_some()
    }

    /// Prints the head, once the path MTU is known.
    pub fn begin(&mut self, mtu: Mtu) {
        if std::mem::replace(&mut self.began, true) {
            return;
        }
        let (lines, info) = report::head(self.sweep, mtu);
        // Known values are more specific.
        for (name, value) in info {
            self.test_info.entry(name).or_insert(value);
        }
        if self.is_terse() || !self.test_info.contains_key("test") {
            return;
        }
        println!("{LINE}");
        for line in lines {
            println!("{line}");
        }
        println!(" Command         : {}\n Version         : {}\n{LINE}", self.origin.command, self.origin.irnic);
        if !self.compares && self.sweep.show.interval.is_none() {
            println!("{}", report::columns(self.sweep.first(), &self.sweep.show));
        }
    }

    /// Prints the name of a run before its intervals.
    pub fn announce(&self, turn: Turn) {
        if self.sweep.show.interval.is_some() && (self.compares || self.sweep.plans.len() > 1) {
            println!(" {}", self.sweep.name(turn));
        }
    }

    /// Records the results of a run, and prints them.
    pub fn add(&mut self, turn: Turn, ran: Ran) {
        if !self.compares && !self.is_terse() {
            self.print(turn, &ran);
        }
        self.runs.push((turn, Ok(ran)));
    }

    /// Records the error of a run.
    pub fn failed(&mut self, turn: Turn, why: String) {
        self.runs.push((turn, Err(why)));
    }

    fn print(&self, turn: Turn, ran: &Ran) {
        let (plan, show) = (&self.sweep.plans[turn.case], &self.sweep.show);
        if show.interval.is_some() {
            println!("{LINE}\n{}", report::columns(plan, show));
        }
        println!("{}", report::row(plan.size, &ran.line, show, ran.cpu));
        if let (true, Some(each)) = (show.both_ways, ran.each) {
            let unit = show.unit();
            let [client, server] = each.map(|bw| unit.of(bw.average, plan.size));
            println!("   sent by the client {client:.2} {0}, by the server {server:.2} {0}", unit.name());
        }
        if let Some(pacing) = &ran.pacing {
            println!("{}", report::paced(pacing));
        }
        for name in &show.counters {
            println!("   {name} {}", ran.counters.get(name).copied().unwrap_or(0));
        }
        if let Some(sorted) = show.samples.filter(|_| !ran.samples.is_empty()) {
            let mut samples = ran.samples.clone();
            if sorted == Sorted::Yes {
                samples.sort_unstable();
            }
            println!("#, usec");
            for (number, ns) in samples.into_iter().enumerate() {
                println!("{}, {:.3}", number + 1, ns as f64 / 1e3);
            }
        }
    }

    /// The runs of a plan with results.
    pub fn of_case(&self, case: usize) -> impl Iterator<Item = (Turn, &Ran)> {
        let of_case = self.runs.iter().filter(move |(turn, _)| turn.case == case);
        of_case.filter_map(|(turn, outcome)| Some((*turn, outcome.as_ref().ok()?)))
    }

    /// The spread of a number over the runs of a plan.
    pub fn spread(&self, case: usize, of: impl Fn(&Ran) -> f64) -> Option<Spread> {
        Spread::of(self.of_case(case).map(|(_, ran)| of(ran)))
    }

    /// The bandwidth of a plan in a unit, or its latency in microseconds.
    pub fn main_number(&self, case: usize, unit: Unit) -> Option<Spread> {
        let size = self.sweep.plans[case].size;
        self.spread(case, |ran| match &ran.line {
            Line::Bw(bw) => unit.of(bw.average, size),
            Line::Lat(lat) => lat.typical,
        })
    }

    /// The result of a plan's runs relative to the same transport without loss; `None` if that was not measured.
    pub fn relative(&self, case: usize) -> Option<f64> {
        let plan = &self.sweep.plans[case];
        let is_lossless = |loss: irnic_ports::impair::Percent| loss == irnic_ports::impair::Percent::ZERO;
        let lossless = self.sweep.plans.iter().position(|other| {
            other.label == plan.label && other.size == plan.size && other.loss.is_some_and(is_lossless)
        })?;
        let of = |case| self.main_number(case, Unit::Gigabits).map(|spread| spread.median);
        Some(of(case)? / of(lossless)?).filter(|share| share.is_finite())
    }

    /// Whether there is anything to write.
    pub fn has_some(&self) -> bool {
        self.runs.iter().any(|(_, outcome)| outcome.is_ok())
    }

    /// Prints what has not been printed yet, and ends the table.
    pub fn finish(&self) {
        let show = &self.sweep.show;
        if let Some(only) = show.only {
            for case in 0..self.sweep.plans.len() {
                let number = self.spread(case, |ran| match (&ran.line, only) {
                    (Line::Bw(bw), Only::MessageRate) => bw.average / 1e6,
                    (Line::Bw(bw), _) => show.unit().of(bw.average, self.sweep.plans[case].size),
                    (Line::Lat(lat), _) => lat.average,
                });
                if let Some(Spread { median, .. }) = number {
                    println!("{median:.6}");
                }
            }
            return;
        }
        if self.compares {
            table::print(self);
        }
        if self.began {
            println!("{LINE}");
        }
        for line in self.network.iter().flat_map(report::queues) {
            println!("{line}");
        }
    }

    /// Checks whether results meet the requirements.
    pub fn suffice(&self) -> Result<(), PerfError> {
        let show = &self.sweep.show;
        let unit = show.unit();
        for (case, plan) in self.sweep.plans.iter().enumerate() {
            let (Some(bw), Some(rate)) = (
                self.main_number(case, unit),
                self.spread(case, |ran| if let Line::Bw(bw) = ran.line { bw.average / 1e6 } else { f64::MAX }),
            ) else {
                continue;
            };
            let size = plan.size;
            let short = |flag: &str, found: f64, least: f64, unit: &str| {
                Err(PerfError::Failed(format!("{flag} {least}: {size} B reached {found:.6} {unit}")))
            };
            match (show.least_bw, show.least_rate) {
                (Some(least), _) if bw.median < least => return short("--limit_bw", bw.median, least, unit.name()),
                (_, Some(least)) if rate.median < least => return short("--limit_msgrate", rate.median, least, "Mpps"),
                _ => {}
            }
        }
        Ok(())
    }
}
