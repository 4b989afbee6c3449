//! Measurements of a run, and their lines in perftest's format.

use std::collections::BTreeMap;

use irnic_ports::impair::{self, Queue, Report};
use irnic_transports::qp::Counters;
use irnic_transports::wire::Mtu;
use serde_json::{Map, Value, json};

use crate::figures::{Lat, Line};
use crate::pacing::Pacing;
use crate::plan::{Place, Plan, Verb};
use crate::settings::{self, marking};
use crate::sweep::{Show, Sweep};

pub const LINE: &str = "---------------------------------------------------------------------------------------";
const LAT: &str = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   \
                   99% percentile[usec]   99.9% percentile[usec]";

/// Counters by name.
pub type CounterMap = BTreeMap<String, u64>;

/// Counters by name, for JSON and for the other process.
pub fn counter_map(counters: &Counters) -> CounterMap {
    counters.named().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The lines printed before the results, and their JSON: what was run. `mtu`: the path MTU.
pub fn head(sweep: &Sweep, mtu: Mtu) -> (Vec<String>, Map<String, Value>) {
    let plan = sweep.first();
    let size = plan.size;
    let reads = matches!(plan.test.verb(), Verb::Read | Verb::Atomic);
    let both = if plan.bidirectional { "Bidirectional " } else { "" };
    let place = match &plan.place {
        Place::Here => "both ends in this process".to_owned(),
        Place::Server => "server".to_owned(),
        Place::Client(host) => format!("client of {host}"),
    };
    let or = |text: &str, none: &str| if text.is_empty() { none.to_owned() } else { text.to_owned() };
    let texts = sweep.transports().join(", ");
    let losses: Vec<String> = sweep.losses().iter().flatten().map(ToString::to_string).collect();
    let mut lines = vec![
        format!("                    {both}{} Test", plan.test.title(plan.atomic)),
        format!(" Port            : {:<12} Device         : {place}", plan.port.name()),
        format!(" Number of qps   : {:<12} Transport type : {texts}", plan.qps),
        format!(" Connection type : {:<12} Using SRQ      : {}", "RC", on(plan.srq)),
        format!(" TX depth        : {:<12} CQ Moderation  : {}", plan.depth(size), plan.cq_mod(size)),
        format!(" Mtu             : {:<12} Link type      : Ethernet", format!("{}[B]", mtu.bytes())),
    ];
    let verification = on(plan.verify);
    lines.push(match reads {
        true => format!(" Outstand reads  : {:<12} Verification   : {verification}", plan.outs),
        false => {
            format!(" Max inline data : {:<12} Verification   : {verification}", format!("{}[B]", plan.inline))
        }
    });
    lines.push(format!(" rdma_cm QPs     : {:<12} CQ events      : {}", on(plan.rdma_cm), on(plan.events)));
    if !plan.impair_text.is_empty() {
        lines.push(format!(" Impairment      : {}", plan.impair_text));
    }
    if !losses.is_empty() {
        lines.push(format!(" Loss each way   : {}", losses.join(", ")));
    }
    let marking = marking(&plan.impair);
    if marking != "off" || sweep.plans.iter().any(|plan| plan.transport.congestion.uses_ecn()) {
        lines.push(format!(" ECN marking     : {marking}"));
    }
    let resolved = sweep.resolved();
    lines.extend(resolved.iter().map(|text| format!(" Transport       : {text}")));
    let mut info: Map<String, Value> = [
        ("test", json!(format!("{both}{} Test", plan.test.title(plan.atomic)).replace(' ', "_"))),
        ("Device", json!(plan.port.name())),
        ("Number_of_qps", json!(plan.qps)),
        ("Transport_type", json!(texts)),
        ("Transport", json!(plan.transport.to_string())),
        ("Transports", json!(resolved)),
        ("Connection_type", json!("RC")),
        ("Using_SRQ", json!(on(plan.srq))),
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
        ("Verification", json!(verification)),
        ("Impairment", json!(or(&plan.impair_text, "none"))),
        ("Impairment_resolved", json!(or(&settings::network(plan), "none"))),
        ("ECN_marking", json!(marking)),
        ("Seed", json!(plan.seed)),
        ("BW_unit", json!(sweep.show.unit().name())),
        ("Latency_unit", json!("usec")),
        ("Rdma_cm_QPs", json!(on(plan.rdma_cm))),
        ("CQ_events", json!(on(plan.events))),
        ("Traffic_class", json!(plan.traffic_class)),
        ("Hop_limit", json!(plan.hop_limit)),
        ("Repetitions", json!(sweep.repeat)),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect();
    if !losses.is_empty() {
        info.insert("Loss_each_way".into(), json!(losses));
    }
    info.extend(settings::others(sweep).map(|(key, value)| (key.to_owned(), value)));
    (lines, info)
}

/// The heading of perftest's table.
pub fn columns(plan: &Plan, show: &Show) -> String {
    let cpu = if show.cpu { "    CPU_Util[%]" } else { "" };
    if plan.test.is_latency() {
        return format!("{LAT}{cpu}");
    }
    let unit = show.unit().name();
    format!(" #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]{cpu}")
}

/// A line of perftest's table.
pub fn row(size: u32, line: &Line, show: &Show, cpu: Option<f64>) -> String {
    let row = match line {
        Line::Bw(bw) => {
            let unit = show.unit();
            let (peak, average, rate) = (unit.of(bw.peak, size), unit.of(bw.average, size), bw.average / 1e6);
            let digits = if show.gbits && average < 0.1 { 6 } else { 2 };
            format!(
                " {size:<7}    {:<10}       {peak:<7.digits$}            {average:<7.digits$}              {rate:<7.6}",
                bw.messages
            )
        }
        Line::Lat(Lat { samples, min, max, typical, average, stdev, p99, p999 }) => format!(
            " {size:<7} {samples:<10}     {min:<7.2}        {max:<7.2}      {typical:<7.2}            {average:<7.2}        \
             {stdev:<7.2}         {p99:<7.2}                {p999:<7.2}"
        ),
    };
    match cpu {
        Some(cpu) => format!("{row}     {cpu:.2}"),
        None => row,
    }
}

/// Accuracy of a rate limit.
pub fn paced(pacing: &Pacing) -> String {
    let Pacing { windows, rate, mean, p99, worst } = *pacing;
    let rate = rate / 1e6;
    format!(
        "   limit {rate} Mb/sec: error over 10 ms {mean:+.3} % on average, at most {p99:.3} % in 99 %, {worst:+.3} % at worst \
         ({windows} stretches)"
    )
}

/// Queue statistics of an impaired network.
pub fn queues(reports: &[Report; 2]) -> Vec<String> {
    let mut lines = Vec::new();
    for (way, report) in ["sent", "received"].into_iter().zip(reports) {
        if let Some(queue) = &report.queue {
            lines.push(format!(" Queue of frames {way:<9}: {}", queue_text(queue, &report.counters)));
        }
        let impair::Counters { trimmed, returned, header_drops, red_drops, notices, pushed_out, .. } = report.counters;
        if let Some(Queue { frames, peak_bytes, .. }) = report.headers {
            let peak = peak_bytes as f64 / 1e3;
            lines.push(format!(
                "   headers: peak {peak:.1} KB; {frames} frames; {trimmed} payloads cut off, {returned} returned, {header_drops} lost"
            ));
        }
        if let Some(Queue { frames, peak_bytes, .. }) = report.red {
            lines.push(format!("   red: peak {:.1} KB; {frames} frames, {red_drops} dropped", peak_bytes as f64 / 1e3));
        }
        if report.has_policy {
            lines.push(format!("   policy: {pushed_out} pushed out, {trimmed} payloads cut off, {returned} returned"));
        }
        if report.has_priorities {
            lines.push(priorities_text(&report.counters));
        }
        if let Some(rate) = report.fair_rate {
            lines.push(format!("   rocc: fair rate {:.3} Gb/sec at the end; {notices} notices", rate as f64 / 1e9));
        }
    }
    lines
}

/// Counters of an impaired network, as JSON.
pub fn network(reports: &[Report; 2]) -> Value {
    let [tx, rx] = reports.map(|report| report.numbers().collect::<BTreeMap<_, _>>());
    json!({ "tx": tx, "rx": rx })
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

/// Frames that left a `prio` line, and those dropped, from the highest priority down.
fn priorities_text(counters: &impair::Counters) -> String {
    let each = counters.priority_frames.into_iter().zip(counters.priority_drops).enumerate().rev();
    let met = each.filter(|(_, (frames, drops))| frames + drops > 0);
    let parts: Vec<String> =
        met.map(|(priority, (frames, drops))| format!("{priority}: {frames} sent, {drops} dropped")).collect();
    format!("   priority {}; {} pushed out", parts.join("; "), counters.pushed_out)
}

fn on(is: bool) -> &'static str {
    if is { "ON" } else { "OFF" }
}
