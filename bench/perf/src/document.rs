//! Results in machine-readable form: JSON with everything, CSV with a line for each run. Fields with the same name have
//! the same meaning.

use std::io::{self, Write};
use std::path::Path;

use irnic_report::csv::field;
use irnic_report::origin::Origin;
use irnic_report::output::OutFile;
use serde_json::{Map, Value, json};

use crate::args::PerfArgs;
use crate::error::PerfError;
use crate::figures::{Bw, Lat, Line, Unit, lat_fields};
use crate::pictures;
use crate::plan::Plan;
use crate::report;
use crate::results::{Ran, Results};
use crate::sweep::{Spread, Turn};

/// Result files: opened as soon as it is known that they will be written.
pub struct Files {
    json: Option<OutFile>,
    csv: Option<OutFile>,
    svg: Option<OutFile>,
    html: Option<OutFile>,
}

impl Files {
    /// Opens them, which detects those that cannot be written.
    pub fn open(args: &PerfArgs) -> Result<Files, PerfError> {
        let open = |path: Option<&Path>| path.map(OutFile::open).transpose().map_err(PerfError::Usage);
        Ok(Files {
            json: open(args.json().as_deref())?,
            csv: open(args.csv.as_deref())?,
            svg: open(args.svg.as_deref())?,
            html: open(args.html.as_deref())?,
        })
    }

    /// Writes them. Results of a failed single run, or no results, do not replace an old file; of several runs, those
    /// that did not fail are written. Returns the outcome of the runs, or the error of writing.
    pub fn write(self, results: &mut Results<'_>, outcome: Result<(), PerfError>) -> Result<(), PerfError> {
        if matches!(outcome, Err(PerfError::Interrupted | PerfError::PeerInterrupted)) {
            results.test_info.insert("Interrupted".into(), json!(true));
        }
        let results = &*results;
        let worth =
            results.compares || matches!(outcome, Ok(()) | Err(PerfError::Interrupted | PerfError::PeerInterrupted));
        if !worth || !results.has_some() {
            return outcome;
        }
        let written = [
            self.json.map(|file| file.write(|to| writeln!(to, "{:#}", document(results)))),
            self.csv.map(|file| file.write(|to| csv(to, results))),
            self.svg.map(|file| file.write(|to| to.write_all(pictures::svg(results).as_bytes()))),
            self.html.map(|file| file.write(|to| pictures::html(to, results))),
        ];
        let failed: Vec<String> = written.into_iter().flatten().filter_map(Result::err).collect();
        match outcome {
            Ok(()) if !failed.is_empty() => Err(PerfError::Failed(failed.join("\n"))),
            Err(PerfError::Failed(why)) if !failed.is_empty() => {
                Err(PerfError::Failed(format!("{why}\n{}", failed.join("\n"))))
            }
            outcome => {
                failed.iter().for_each(|why| eprintln!("irnic perf: {why}"));
                outcome
            }
        }
    }
}

/// The fields of a line in perftest's JSON, in the unit of the table, and all of it by names with units.
fn fields(line: &Line, size: u32, unit: Unit) -> Map<String, Value> {
    let mut all = match line {
        Line::Bw(bw) => {
            let perftest = json!({
                "MsgSize": size,
                "n_iterations": bw.messages,
                "BW_peak": unit.of(bw.peak, size),
                "BW_average": unit.of(bw.average, size),
                "MsgRate": bw.average / 1e6,
            });
            object(perftest)
        }
        Line::Lat(lat) => {
            let Lat { samples, min, max, typical, average, stdev, p99, p999 } = lat;
            // perftest's JSON has percentile_99 and percentile_99.9; t_99 and t_99.9 match the other names.
            object(json!({
                "MsgSize": size, "n_iterations": samples, "t_min": min, "t_max": max, "t_typical": typical,
                "t_avg": average, "t_stdev": stdev, "t_99": p99, "t_99.9": p999, "percentile_99": p99,
                "percentile_99.9": p999
            }))
        }
    };
    all.extend(with_units(line, size));
    all
}

/// A line under names with units.
fn with_units(line: &Line, size: u32) -> Map<String, Value> {
    match line {
        Line::Bw(bw) => {
            Bw::fields("peak", bw.peak, size).into_iter().chain(Bw::fields("average", bw.average, size)).collect()
        }
        Line::Lat(lat) => lat_fields(lat),
    }
}

fn object(value: Value) -> Map<String, Value> {
    if let Value::Object(map) = value { map } else { Map::new() }
}

/// The fields of a run in addition to its line.
fn details(ran: &Ran, size: u32, unit: Unit) -> Map<String, Value> {
    let mut all = Map::new();
    let mut add = |name: &str, value: Value| drop(all.insert(name.to_owned(), value));
    add("seconds", json!(ran.seconds));
    add("counters", json!(ran.counters));
    add("peer_counters", json!(ran.peer_counters));
    if let Some(pacing) = ran.pacing {
        add("pacing", json!(pacing));
    }
    if let Some(each) = ran.each {
        for (end, bw) in ["sent_by_client", "sent_by_server"].into_iter().zip(each) {
            add(end, Value::Object(fields(&Line::Bw(bw), size, unit)));
        }
    }
    if let Some(cpu) = ran.cpu {
        // perftest's name.
        add("CPU_util", json!(cpu));
    }
    if let Some(events) = ran.events {
        add("cq_events", json!(events));
    }
    if !ran.intervals.is_empty() {
        add("intervals", ran.intervals.iter().map(|interval| interval.json(size)).collect());
    }
    if let Some(network) = &ran.network {
        add("impairments", report::network(network));
    }
    all
}

/// The JSON document. A command with one run has an object for its results, as in perftest, others a list of them.
pub fn document(results: &Results<'_>) -> Value {
    let sweep = results.sweep;
    let unit = sweep.show.unit();
    let list: Vec<Value> = if results.compares {
        (0..sweep.plans.len()).filter_map(|case| compared(results, case)).collect()
    } else {
        let of_run = |(turn, outcome): &(Turn, Result<Ran, String>)| {
            let (ran, size) = (outcome.as_ref().ok()?, sweep.plans[turn.case].size);
            let mut all = fields(&ran.line, size, unit);
            all.extend(details(ran, size, unit));
            Some(Value::Object(all))
        };
        results.runs.iter().filter_map(of_run).collect()
    };
    let list = match <[Value; 1]>::try_from(list) {
        Ok([one]) if !results.compares => one,
        Ok(one) => Value::Array(one.into()),
        Err(list) => Value::Array(list),
    };
    let Origin { command, irnic } = &results.origin;
    let mut whole = json!({ "irnic": irnic, "command": command, "test_info": results.test_info, "results": list });
    if let Some(network) = &results.network {
        whole["impairments"] = report::network(network);
    }
    whole
}

/// The results of a plan: medians of its runs with minimum and maximum, sums of counters, and every run.
fn compared(results: &Results<'_>, case: usize) -> Option<Value> {
    let sweep = results.sweep;
    let (plan, unit) = (&sweep.plans[case], sweep.show.unit());
    let size = plan.size;
    let failures: Vec<&String> =
        results.runs.iter().filter(|(turn, _)| turn.case == case).filter_map(|(_, r)| r.as_ref().err()).collect();
    let mut all = Map::new();
    let mut add = |name: &str, value: Value| drop(all.insert(name.to_owned(), value));
    add("transport", json!(plan.label));
    add("Transport", json!(plan.transport.to_string()));
    if let Some(loss) = plan.loss {
        add("loss", json!(loss.to_string()));
        add("loss_percent", json!(percent(plan)));
    }
    add("MsgSize", json!(size));
    let runs: Vec<(Turn, &Ran)> = results.of_case(case).collect();
    if !failures.is_empty() {
        add("failed", json!(failures));
    }
    if runs.is_empty() {
        return (!failures.is_empty()).then_some(Value::Object(all));
    }
    add("repetitions", json!(runs.len()));
    add("n_iterations", json!(runs.iter().map(|(_, ran)| ran.line.iterations()).sum::<u64>()));
    let spread = |of: &dyn Fn(&Ran) -> f64| results.spread(case, of);
    let mut spreads: Vec<(String, Option<Spread>)> = Vec::new();
    for name in fields(&runs[0].1.line, size, unit).keys() {
        if name != "MsgSize" && name != "n_iterations" {
            let value = |ran: &Ran| fields(&ran.line, size, unit).get(name).and_then(Value::as_f64).unwrap_or(0.0);
            spreads.push((name.clone(), spread(&value)));
        }
    }
    for (name, spread) in spreads {
        if let Some(Spread { median, min, max }) = spread {
            add(&name, json!(median));
            add(&format!("{name}_min"), json!(min));
            add(&format!("{name}_max"), json!(max));
        }
    }
    if let Some(relative) = results.relative(case) {
        add("relative", json!(relative));
    }
    let sum = |of: &dyn Fn(&Ran) -> &report::CounterMap| {
        let mut sums = report::CounterMap::new();
        for (_, ran) in &runs {
            for (name, value) in of(ran) {
                *sums.entry(name.clone()).or_default() += value;
            }
        }
        sums
    };
    let count = |name: &str| runs.iter().map(|(_, ran)| ran.count(name)).sum::<u64>();
    add("retransmitted_pkts", json!(count("retransmitted_pkts")));
    add("timeouts", json!(count("local_ack_timeout_err")));
    add("counters", json!(sum(&|ran| &ran.counters)));
    add("peer_counters", json!(sum(&|ran| &ran.peer_counters)));
    let of_run = |(turn, ran): &(Turn, &Ran)| {
        let mut run = fields(&ran.line, size, unit);
        run.extend(details(ran, size, unit));
        run.insert("repetition".into(), json!(turn.repetition + 1));
        run.insert("Seed".into(), json!(sweep.plan(*turn).seed));
        Value::Object(run)
    };
    add("runs", runs.iter().map(of_run).collect());
    Some(Value::Object(all))
}

/// The loss of a plan, %; 0 if it has none of its own.
pub fn percent(plan: &Plan) -> f64 {
    // Rounded to eight digits: the value as written, without the error of the multiplication.
    plan.loss.map_or(0.0, |loss| (loss.share() * 1e8).round() / 1e6)
}

/// CSV columns before those of the line, and after.
const BEFORE: [&str; 8] =
    ["test", "transport", "loss_percent", "MsgSize", "repetition", "Seed", "n_iterations", "seconds"];
const AFTER: [&str; 4] = ["retransmitted_pkts", "timeouts", "sent_pkts", "CPU_util"];

/// Writes how to get the results again, and a line for each run, in the order of execution.
pub fn csv(to: &mut impl Write, results: &Results<'_>) -> io::Result<()> {
    to.write_all(results.origin.comment().as_bytes())?;
    let mut is_first = true;
    for (turn, outcome) in &results.runs {
        let Ok(ran) = outcome else { continue };
        let plan = &results.sweep.plan(*turn);
        let units = with_units(&ran.line, plan.size);
        if std::mem::take(&mut is_first) {
            let names: Vec<&str> = BEFORE.into_iter().chain(units.keys().map(String::as_str)).chain(AFTER).collect();
            writeln!(to, "{}", names.join(","))?;
        }
        let loss = plan.loss.map_or_else(String::new, |_| percent(plan).to_string());
        let before = [
            plan.test.name(),
            field(&plan.label).into_owned(),
            loss,
            plan.size.to_string(),
            (turn.repetition + 1).to_string(),
            plan.seed.to_string(),
            ran.line.iterations().to_string(),
            ran.seconds.to_string(),
        ];
        let after = [
            ran.count("retransmitted_pkts").to_string(),
            ran.count("local_ack_timeout_err").to_string(),
            ran.count("sent_pkts").to_string(),
            ran.cpu.map_or_else(String::new, |cpu| cpu.to_string()),
        ];
        let numbers = units.values().map(Value::to_string);
        let cells: Vec<String> = before.into_iter().chain(numbers).chain(after).collect();
        writeln!(to, "{}", cells.join(","))?;
    }
    Ok(())
}
