//! What is printed: perftest's tables, and its JSON.

use std::collections::BTreeMap;
use std::io::Write;

use irnic_ports::impair::{self, Queue, Report};
use irnic_transports::qp::Counters;
use irnic_transports::wire::Mtu;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::PerfError;
use super::pacing::Pacing;
use super::plan::{Place, Plan, Verb};
use super::run::{Latency, Measured};
use crate::output::OutFile;

const LINE: &str = "---------------------------------------------------------------------------------------";
const MIB: f64 = (1u64 << 20) as f64;
const BW_MIB: &str = " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]";
const BW_GB: &str = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]";
const LAT: &str = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   \
                   99% percentile[usec]   99.9% percentile[usec]";

/// Counters by name.
pub type CounterMap = BTreeMap<String, u64>;

/// Counters by name, for JSON and for the other process.
pub fn counter_map(counters: &Counters) -> CounterMap {
    counters.iter().map(|(name, value, _)| (name.to_owned(), value)).collect()
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
    /// Of one end.
    pub fn of(measured: &Measured) -> Bw {
        let seconds = measured.elapsed as f64 / 1e9;
        let average = if measured.messages > 0 && seconds > 0.0 { measured.messages as f64 / seconds } else { 0.0 };
        Bw { messages: measured.messages, peak: measured.peak, average }
    }

    /// Rates of both ends add up. perftest reports the messages of one.
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
    fn of(latency: &Latency) -> Lat {
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

/// One line of results.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Line {
    Bw(Bw),
    Lat(Lat),
}

impl Line {
    /// What an end measured.
    pub fn of(measured: &Measured) -> Line {
        measured.latency.as_ref().map_or_else(|| Line::Bw(Bw::of(measured)), |latency| Line::Lat(Lat::of(latency)))
    }

    /// What the client measured, and the server beside it in a bidirectional test.
    pub fn with(self, server: Line) -> Line {
        match (self, server) {
            (Line::Bw(client), Line::Bw(server)) => Line::Bw(client.plus(server)),
            (client, _) => client,
        }
    }
}

/// The table and the JSON of a command.
pub struct Results<'a> {
    plan: &'a Plan,
    test_info: Map<String, Value>,
    results: Vec<Value>,
    network: Option<[Report; 2]>,
    began: bool,
}

impl<'a> Results<'a> {
    pub fn new(plan: &'a Plan) -> Results<'a> {
        Results { plan, test_info: Map::new(), results: Vec::new(), network: None, began: false }
    }

    /// Prints the head, once the path MTU is known.
    pub fn begin(&mut self, mtu: Mtu) {
        if std::mem::replace(&mut self.began, true) {
            return;
        }
        let plan = self.plan;
        let size = plan.sizes[0];
        let reads = matches!(plan.test.verb(), Verb::Read | Verb::Atomic);
        let both = if plan.bidirectional { "Bidirectional " } else { "" };
        let place = match &plan.place {
            Place::Here => "both ends in this process".to_owned(),
            Place::Server => "server".to_owned(),
            Place::Client(host) => format!("client of {host}"),
        };
        let or = |text: &str, none: &str| if text.is_empty() { none.to_owned() } else { text.to_owned() };
        println!("{LINE}");
        println!("                    {both}{} Test", plan.test.title(plan.atomic));
        println!(" Port            : {:<12} Device         : {place}", plan.port.name());
        println!(" Number of qps   : {:<12} Transport type : {}", plan.qps, plan.transport_text);
        println!(" Connection type : {:<12} Using SRQ      : OFF", "RC");
        println!(" TX depth        : {:<12} CQ Moderation  : {}", plan.depth(size), plan.cq_mod(size));
        println!(" Mtu             : {:<12} Link type      : Ethernet", format!("{}[B]", mtu.bytes()));
        match reads {
            true => println!(" Outstand reads  : {:<12} Verification   : {}", plan.outs, on(plan.verify)),
            false => {
                println!(
                    " Max inline data : {:<12} Verification   : {}",
                    format!("{}[B]", plan.inline),
                    on(plan.verify)
                )
            }
        }
        if !plan.impair.is_empty() {
            println!(" Impairment      : {}", plan.impair_text);
        }
        println!("{LINE}");
        println!("{}", self.header());
        for (key, value) in [
            ("test", json!(format!("{both}{} Test", plan.test.title(plan.atomic)).replace(' ', "_"))),
            ("Device", json!(plan.port.name())),
            ("Number_of_qps", json!(plan.qps)),
            ("Transport_type", json!(plan.transport_text)),
            ("Transport", json!(plan.transport.to_string())),
            ("Connection_type", json!("RC")),
            ("Using_SRQ", json!("OFF")),
            ("TX_depth", json!(plan.depth(size))),
            ("RX_depth", json!(plan.rx_depth)),
            ("Post_List", json!(plan.post_list)),
            ("CQ_Moderation", json!(plan.cq_mod(size))),
            ("Mtu", json!(mtu.bytes())),
            ("Link_type", json!("Ethernet")),
            ("Max_inline_data", json!(plan.inline)),
            ("Outstand_reads", json!(plan.outs)),
            ("Qp_timeout", json!(plan.qp_timeout)),
            ("Place", json!(place)),
            ("Verification", json!(on(plan.verify))),
            ("Impairment", json!(or(&plan.impair_text, "none"))),
            ("Seed", json!(plan.seed)),
            ("BW_unit", json!(if plan.gbits { "Gb/sec" } else { "MiB/sec" })),
        ] {
            self.test_info.insert(key.into(), value);
        }
    }

    fn header(&self) -> &'static str {
        match (self.plan.test.is_latency(), self.plan.gbits) {
            (true, _) => LAT,
            (false, false) => BW_MIB,
            (false, true) => BW_GB,
        }
    }

    /// Prints one line.
    pub fn add(&mut self, size: u32, line: &Line, counters: &CounterMap, peer_counters: &CounterMap) {
        let mut result = match line {
            Line::Bw(bw) => {
                let unit = if self.plan.gbits { 1e9 / 8.0 } else { MIB };
                let scale = f64::from(size) / unit;
                let (peak, average, rate) = (bw.peak * scale, bw.average * scale, bw.average / 1e6);
                let digits = if self.plan.gbits && average < 0.1 { 6 } else { 2 };
                println!(
                    " {size:<7}    {:<10}       {peak:<7.digits$}            {average:<7.digits$}              {rate:<7.6}",
                    bw.messages
                );
                json!({
                    "MsgSize": size, "n_iterations": bw.messages, "BW_peak": peak, "BW_average": average, "MsgRate": rate
                })
            }
            Line::Lat(lat) => {
                let Lat { samples, min, max, typical, average, stdev, p99, p999 } = lat;
                println!(
                    " {size:<7} {samples:<10}     {min:<7.2}        {max:<7.2}      {typical:<7.2}            {average:<7.2}        \
                     {stdev:<7.2}         {p99:<7.2}                {p999:<7.2}"
                );
                // perftest's JSON has percentile_99 and percentile_99.9; t_99 and t_99.9 go with the other names.
                json!({
                    "MsgSize": size, "n_iterations": samples, "t_min": min, "t_max": max, "t_typical": typical,
                    "t_avg": average, "t_stdev": stdev, "t_99": p99, "t_99.9": p999, "percentile_99": p99,
                    "percentile_99.9": p999
                })
            }
        };
        if let Some(object) = result.as_object_mut() {
            object.insert("counters".into(), json!(counters));
            object.insert("peer_counters".into(), json!(peer_counters));
        }
        self.results.push(result);
    }

    /// Notes how well a rate limit held in the run added last.
    pub fn paced(&mut self, pacing: Option<Pacing>) {
        let Some(pacing) = pacing else { return };
        let Pacing { windows, rate, mean, p99, worst } = pacing;
        let rate = rate / 1e6;
        println!(
            "   limit {rate} Mb/sec: error over 10 ms {mean:+.3} % on average, at most {p99:.3} % in 99 %, {worst:+.3} % at worst \
             ({windows} stretches)"
        );
        if let Some(result) = self.results.last_mut() {
            result["pacing"] = json!(pacing);
        }
    }

    /// Notes what the impaired network has done in all runs.
    pub fn network(&mut self, report: Option<[Report; 2]>) {
        self.network = report;
    }

    /// Ends the table, and gives all of it for JSON.
    pub fn finish(self) -> Value {
        if self.began {
            println!("{LINE}");
        }
        for (way, report) in ["sent", "received"].into_iter().zip(self.network.iter().flatten()) {
            if let Some(queue) = &report.queue {
                println!(" Queue of frames {way:<9}: {}", queue_text(queue, &report.counters));
            }
            let impair::Counters { trimmed, returned, header_drops, red_drops, .. } = report.counters;
            if let Some(Queue { frames, peak_bytes, .. }) = report.headers {
                let peak = peak_bytes as f64 / 1e3;
                println!(
                    "   headers: peak {peak:.1} KB; {frames} frames; {trimmed} payloads cut off, {returned} returned, {header_drops} lost"
                );
            }
            if let Some(Queue { frames, peak_bytes, .. }) = report.red {
                println!("   red: peak {:.1} KB; {frames} frames, {red_drops} dropped", peak_bytes as f64 / 1e3);
            }
        }
        // One size: an object, as perftest writes; several: a list of them.
        let results = match <[Value; 1]>::try_from(self.results) {
            Ok([one]) => one,
            Err(list) => Value::Array(list),
        };
        let mut whole = json!({ "test_info": self.test_info, "results": results });
        if let Some([tx, rx]) = self.network {
            let numbers = |r: Report| r.numbers().collect::<BTreeMap<_, _>>();
            whole["impairments"] = json!({ "tx": numbers(tx), "rx": numbers(rx) });
        }
        whole
    }
}

fn queue_text(queue: &Queue, counters: &impair::Counters) -> String {
    let kb = |bytes: u64| bytes as f64 / 1e3;
    let Queue { frames, mean_bytes, p50_bytes, p99_bytes, peak_bytes } = *queue;
    format!(
        "mean {:.1} KB, median {:.1}, 99% {:.1}, peak {:.1}; {frames} frames, {} marked, {} found it full",
        kb(mean_bytes),
        kb(p50_bytes),
        kb(p99_bytes),
        kb(peak_bytes),
        counters.marked,
        counters.over_limit
    )
}

fn on(is: bool) -> &'static str {
    if is { "ON" } else { "OFF" }
}

/// Writes the results of a run to a file, if one was named; not those of a run that failed, nor none at all, which are
/// not worth replacing an old file. Returns how the run ended, or why it could not be written.
pub fn write_json(file: Option<OutFile>, whole: &Value, outcome: Result<(), PerfError>) -> Result<(), PerfError> {
    let results = whole["results"].as_array().is_none_or(|list| !list.is_empty());
    match file {
        Some(file) if results && matches!(outcome, Ok(()) | Err(PerfError::Interrupted)) => {
            file.write(|to| writeln!(to, "{whole:#}")).map_err(PerfError::Failed)?;
        }
        _ => {}
    }
    outcome
}
