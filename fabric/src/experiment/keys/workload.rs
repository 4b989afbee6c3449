//! Keys of the workload: the flows to be sent.

use irnic_units::keys::{Value, ValueError};

use super::key::Key;
use super::parse::{parse, positive_time};
use crate::experiment::{Experiment, checks};
use crate::workload::poisson;

pub(super) static KEYS: [Key; 5] = [
    Key::new("workload", "SPEC", "Traffic to generate", |e, v| parse(v).map(|workload| e.workload = workload))
        .default("irn-heavy")
        .sim_only()
        .bare(),
    Key::new(
        "load",
        "SHARE",
        "Offered load of Poisson arrivals as a share of the hosts' rate, unless their part of the workload has its own",
        |e, v| v.read(checks::load, checks::LOAD).map(|load| e.load = load),
    )
    .default("0.7")
    .sim_only(),
    Key::new("duration", "TIME", "Duration of Poisson arrivals, incasts by load and closed loops", |e, v| {
        positive_time(v).map(|ns| e.duration = Some(ns))
    })
    .unset("10ms, without --flows-count")
    .sim_only(),
    Key::new(
        "flows-count",
        "N",
        "Maximum number of flows per part of the workload, of Poisson arrivals and closed loops",
        |e, v| {
            let expected = "a number of flows, 1 to 100,000,000";
            v.number(1..=poisson::MAX_FLOWS, expected).map(|n| e.arrivals = Some(n))
        },
    )
    .sim_only(),
    Key::new("flows", "FILE", "Read flows from this file instead of generating a workload", flows).sim_only(),
];

fn flows(experiment: &mut Experiment, value: &Value<'_>) -> Result<(), ValueError> {
    if experiment.is_given("workload") {
        return Err(value.refuse("a workload is given, too; to join them: --workload 'irn-heavy+file:PATH'"));
    }
    let file = format!("file:{}", value.text);
    experiment.workload = file.parse().map_err(|error| value.refuse(error))?;
    Ok(())
}
