//! Settings with their values, given or by default, for the files of results.

use std::net::IpAddr;
use std::time::Duration;

use irnic_ports::impair::grammar::{DEFAULT_LIMIT, DELAYED_LIMIT, Ecn, Red};
use irnic_ports::impair::{Impairments, Spec};
use serde_json::{Value, json};

use crate::plan::{Length, Plan, Verb};
use crate::sweep::Sweep;

/// The settings that are not in perftest's head, with their units in their names; those without effect are left out.
pub fn others(sweep: &Sweep) -> impl Iterator<Item = (&'static str, Value)> {
    let plan = sweep.first();
    let seconds = |time: Duration| json!(time.as_secs_f64());
    let (messages, times) = match plan.length {
        Length::Messages(n) => (Some(n), None),
        Length::Time { duration, margin } => (None, Some((duration, margin))),
        Length::Endless => (None, None),
    };
    let is_send = plan.test.verb() == Verb::Send;
    let address = |ip: IpAddr| json!(ip.to_string());
    [
        ("Iterations", messages.map(Value::from)),
        ("Duration_sec", times.map(|(duration, _)| seconds(duration))),
        ("Margin_sec", times.map(|(_, margin)| seconds(margin))),
        ("Interval_sec", sweep.show.interval.map(|ns| json!(ns as f64 / 1e9))),
        ("Recv_post_list", is_send.then(|| plan.recv_post_list.into())),
        ("Retry_count", plan.rdma_cm.then(|| plan.retry_count.into())),
        ("Reversed", plan.reversed.then(|| "ON".into())),
        ("MR_per_QP", plan.mr_per_qp.then(|| "ON".into())),
        ("Warm_up_messages", (plan.warm_up > 0).then(|| plan.warm_up.into())),
        ("Latency_gap_ns", (plan.gap > 0).then(|| plan.gap.into())),
        ("Link_rate_bps", plan.rate.map(Value::from)),
        ("Rate_limit_bps", plan.rate_limit.map(Value::from)),
        ("Burst_size", plan.burst.map(Value::from)),
        ("IPv6", plan.ipv6.then(|| "ON".into())),
        ("Local_address", plan.bind.map(address)),
    ]
    .into_iter()
    .filter_map(|(key, value)| Some((key, value?)))
}

/// Which frames the network marks, in each direction: by what thresholds and with what probability, or none.
pub fn marking(network: &Impairments) -> String {
    let of = |spec: &Spec| match spec.ecn {
        None => "off".to_owned(),
        Some(Ecn::Lost) => "what would be lost".to_owned(),
        Some(Ecn::Queue(Red { min, max, probability })) => {
            format!("RED, kmin {min} bytes, kmax {max} bytes, pmax {probability}")
        }
    };
    match (of(&network.tx), of(&network.rx)) {
        (sent, received) if sent == received => sent,
        (sent, received) => format!("sent: {sent}; received: {received}"),
    }
}

/// The impairments with all their parameters, apart from losses that are listed; empty if there are none.
pub fn network(plan: &Plan) -> String {
    let mut network = plan.impair.clone();
    for spec in [&mut network.tx, &mut network.rx] {
        if plan.loss.is_some() {
            spec.loss = None;
        }
        if !spec.is_empty() {
            spec.limit.get_or_insert(if spec.prio.is_some() { DELAYED_LIMIT } else { DEFAULT_LIMIT });
        }
    }
    network.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::PerfArgs;

    #[test]
    fn thresholds_and_limits_are_told_whether_given_or_not() {
        let plan = |network: &str| {
            PerfArgs::plan_of(&["write-bw", "--loss", "1", "--transport", "irn,cc=dcqcn", "--impair", network])
                .expect("a plan")
        };
        let of = |text: &str| (marking(&plan(text).impair), network(&plan(text)));
        let red = "RED, kmin 30720 bytes, kmax 102400 bytes, pmax 50%";
        for (text, marks, resolved) in [
            ("delay 5us", "off".to_owned(), "delay 5us limit 1000"),
            (
                "tx rate 1gbit ecn 30k 100k 50%",
                format!("sent: {red}; received: off"),
                "tx ecn 30720 102400 50% rate 1gbit limit 1000",
            ),
            (
                "rate 1gbit ecn 30k limit 50",
                "RED, kmin 30720 bytes, kmax 30720 bytes, pmax 100%".to_owned(),
                "ecn 30720 rate 1gbit limit 50",
            ),
        ] {
            assert_eq!(of(text), (marks, resolved.to_owned()), "{text}");
        }
    }
}
