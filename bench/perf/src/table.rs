//! A table of everything compared: a line for each combination of transport, size and loss.

use irnic_report::table::align;

use crate::figures::Line;
use crate::results::Results;

/// Prints it, followed by errors.
pub fn print(results: &Results<'_>) {
    irnic_report::output::print(&text(results));
}

fn text(results: &Results<'_>) -> String {
    let lines = lines(results);
    let mut out = String::new();
    align(&mut out, &lines);
    out = out.lines().map(|line| format!(" {line}\n")).collect();
    if results.sweep.repeat > 1 && lines.len() > 1 {
        out.push_str(" numbers are medians of runs in turn, with the least and the most; counts are sums\n");
    }
    out
}

/// The heading, and a line for each plan with results.
pub fn lines(results: &Results<'_>) -> Vec<Vec<String>> {
    let sweep = results.sweep;
    let show = &sweep.show;
    let unit = show.unit();
    let plan = sweep.first();
    let (is_latency, repeats, has_loss) = (plan.test.is_latency(), sweep.repeat > 1, plan.loss.is_some());
    let number = if is_latency { "t_typical[usec]".to_owned() } else { format!("BW average[{}]", unit.name()) };
    let relative = has_loss && !is_latency && (0..sweep.plans.len()).any(|case| results.relative(case).is_some());

    let mut head = vec!["transport"];
    head.extend(has_loss.then_some("loss"));
    head.push("#bytes");
    head.extend(repeats.then_some("runs"));
    head.extend(["#iterations", &number]);
    head.extend(repeats.then_some(["min", "max"]).into_iter().flatten());
    head.extend(is_latency.then_some("99%[usec]"));
    head.extend((!is_latency).then_some("MsgRate[Mpps]"));
    head.extend(relative.then_some("of its own at 0%"));
    head.extend(["retransmitted", "timeouts"]);
    head.extend(show.cpu.then_some("CPU_Util[%]"));
    head.extend(show.counters.iter().map(String::as_str));

    let mut lines = vec![head.into_iter().map(str::to_owned).collect::<Vec<String>>()];
    for (case, plan) in sweep.plans.iter().enumerate() {
        let Some(spread) = results.main_number(case, unit) else { continue };
        let two = |value: f64| format!("{value:.2}");
        let sum = |of: &dyn Fn(&super::results::Ran) -> u64| results.of_case(case).map(|(_, ran)| of(ran)).sum::<u64>();
        let median = |of: &dyn Fn(&super::results::Ran) -> f64| results.spread(case, of).map_or(0.0, |s| s.median);
        let mut line = vec![plan.label.clone()];
        line.extend(plan.loss.map(|loss| loss.to_string()));
        line.push(plan.size.to_string());
        line.extend(repeats.then(|| results.of_case(case).count().to_string()));
        line.push(sum(&|ran| ran.line.iterations()).to_string());
        line.push(two(spread.median));
        line.extend(repeats.then(|| [two(spread.min), two(spread.max)]).into_iter().flatten());
        line.push(match is_latency {
            true => two(median(&|ran| if let Line::Lat(lat) = ran.line { lat.p99 } else { 0.0 })),
            false => format!("{:.6}", median(&|ran| if let Line::Bw(bw) = ran.line { bw.average / 1e6 } else { 0.0 })),
        });
        line.extend(
            relative.then(|| results.relative(case).map_or_else(String::new, |share| format!("{:.0}%", share * 100.0))),
        );
        line.push(sum(&|ran| ran.count("retransmitted_pkts")).to_string());
        line.push(sum(&|ran| ran.count("local_ack_timeout_err")).to_string());
        line.extend(show.cpu.then(|| two(median(&|ran| ran.cpu.unwrap_or(0.0)))));
        line.extend(
            show.counters.iter().map(|name| sum(&|ran| ran.counters.get(name).copied().unwrap_or(0)).to_string()),
        );
        lines.push(line);
    }
    lines
}
