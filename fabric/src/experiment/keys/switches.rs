//! Keys of the switches: buffers, marking, flow control, order.

use irnic_openqueue::NameError;
use irnic_units::keys::{Value, ValueError, words};
use irnic_units::{self as units, MAX_BYTES, MAX_NS, SIZE, quotient};

use super::key::Key;
use super::parse::size;
use super::rocc::points;
use crate::experiment::hol::{FLOW_CONTROLS, REMEDIES, flow_control, hol};
use crate::experiment::{
    Buffers, Experiment, InputBuffers, QueueLength, SharedBuffers, TrimmingBuffers, differing, policies,
};
use crate::switch::{Cut, Discipline, Ecn, PiConfig, Scheduling};

pub(super) static KEYS: [Key; 26] = [
    Key::new(
        "switch",
        "KIND|POLICY",
        "Switch model: input-queued, shared-buffer, trimming, output-queued, or a policy: FILE.oq or a name from irnic oq \
         list, with parameters as in shared-lqd,buffer=480KB",
        switch,
    )
    .default("input-queued")
    .words(|| words(&KINDS)),
    Key::new(
        "buffer",
        "SIZE",
        "Buffer size, per input (input-queued), shared by all ports (shared-buffer) or per output (output-queued)",
        |e, v| size(v).map(|bytes| e.buffer = Some(bytes)),
    )
    .unset("240KB, 9MB or 5MB, respectively"),
    Key::on_off("pfc", "Priority flow control: on or off", |e, v| v.switch().map(|on| e.pfc = on)).default("off"),
    Key::new(
        "ecn",
        "RULE",
        "ECN marking: off, step:SIZE, red:KMIN,KMAX,PMAX or pi:QREF,GAIN,TIME",
        |e, v| v.read(ecn, ECN).map(|rule| e.ecn = Some(rule)),
    )
    .unset("off, unless --cc needs it")
    .words(|| words(&RULES)),
    Key::new(
        "scheduling",
        "HOW",
        "Scheduling among priorities: strict or round-robin [default: strict]; with output-queued: fifo, lifo, random, \
         priority, fq, fq-codel, rank, srpt, lstf or edf [default: fifo]",
        scheduling,
    )
    .default("strict")
    .words(|| [words(&SCHEDULING), words(&Discipline::NAMES)].concat()),
    Key::new(
        "switch-at",
        "SWITCHES=HOW",
        "Configure some switches differently: a policy as for --switch or, with output-queued, a scheduler as for \
         --scheduling, as in s0-s3=tail-drop or s2=fq. May be repeated",
        |e, v| differing::read(v, &e.topology).map(|differing| e.differing = differing),
    )
    .joined(),
    Key::new(
        "policy-event",
        "POLICY@TIME",
        "Change the policy of the switches at this time, as in shared-lqd@5ms; packets already queued leave under the old \
         policy. Only with a policy for --switch. May be repeated",
        |e, v| policies::changes(v).map(|changes| e.policy_changes = changes),
    )
    .joined(),
    Key::new(
        "queue-limit",
        "N",
        "output-queued: maximum number of packets queued per output, in addition to --buffer",
        |e, v| v.read(packets, "1 to 1000000000 packets").map(|n| e.queue_limit = Some(n)),
    )
    .unset("no limit"),
    Key::on_off(
        "preempt",
        "output-queued with priority, rank, lstf or edf: let a packet that is ahead in the order interrupt the one being \
         sent, whose rest is sent later: on or off",
        |e, v| v.switch().map(|on| e.preempt = on),
    )
    .unset("off"),
    Key::new(
        "speedup",
        "N",
        "input-queued: maximum number of outputs that an input sends to at a time, or none for no limit",
        |e, v| input(e, v).and_then(|input| speedup(v).map(|outputs| input.speedup = outputs)),
    )
    .unset("none"),
    Key::new(
        "flow-control",
        "HOW",
        "Flow control of --pfc on: pfc; credits, as in InfiniBand, which announce how much a neighbour may send \
         (input-queued); or gfc, which slows neighbours down instead of stopping them, with parameters as in \
         gfc,b1=281KB,bm=300KB (shared-buffer)",
        |e, v| flow_control(v).map(|how| e.flow_control = how),
    )
    .unset("pfc")
    .words(|| words(&FLOW_CONTROLS)),
    Key::new("pfc-threshold", "SIZE", "Send XOFF when an input holds more bytes than this", xoff)
        .unset("input-queued: buffer minus headroom; shared-buffer: by --pfc-alpha"),
    Key::new(
        "xon",
        "SIZE",
        "Send XON when an input has drained to this many bytes; shared-buffer: only with --pfc-threshold",
        xon,
    )
    .unset("3 KiB below the threshold"),
    Key::new("pfc-headroom", "SIZE", "Headroom for packets that arrive after XOFF", |e, v| {
        size(v).map(|bytes| e.headroom = Some(bytes))
    })
    .unset("from rate, delay and longest packet of the links"),
    Key::new(
        "hol",
        "HOW",
        "Remedy for head-of-line blocking and deadlocks of PFC: off; escape, with parameters as in \
         escape,pool=8,period=2x,nack=on; or lb or dlb, which detect deadlocks with tokens and drop frames (lb) or let \
         each switch of the loop send one (dlb), as in lb,wait=100us",
        |e, v| hol(v).map(|hol| e.hol = hol),
    )
    .unset("off")
    .words(|| words(&REMEDIES)),
    Key::new("alpha", "X", "shared-buffer: limit each queue to X times the free buffer", |e, v| {
        shared(e, v).and_then(|shared| positive(v).map(|alpha| shared.alpha = alpha))
    })
    .unset("1"),
    Key::new(
        "colour-threshold",
        "SIZE",
        "shared-buffer, or a policy with colours: maximum bytes of red packets per queue (TLT)",
        |e, v| {
            let threshold = if e.policy.is_some() { &mut e.policy_colour } else { &mut shared(e, v)?.colour };
            *threshold = Some(size(v)?);
            Ok(())
        },
    )
    .unset("ignore colours"),
    Key::new(
        "pfc-alpha",
        "X",
        "shared-buffer: send XOFF when an input holds more than X times the free buffer",
        |e, v| shared_pfc(e, v, positive, |shared, alpha| shared.pfc_alpha = alpha),
    )
    .unset("1/16"),
    Key::new(
        "pfc-reserve",
        "SIZE",
        "shared-buffer: guaranteed bytes per input, used before the shared pool",
        |e, v| shared_pfc(e, v, size, |shared, bytes| shared.reserve = bytes),
    )
    .unset("4096"),
    Key::new(
        "pfc-resume",
        "SIZE",
        "shared-buffer: send XON this many bytes below the XOFF threshold",
        |e, v| shared_pfc(e, v, size, |shared, bytes| shared.resume = bytes),
    )
    .unset("3072"),
    Key::new(
        "data-queue",
        "N|SIZE",
        "trimming: capacity of each output for packets with payload, in full packets or as a size",
        |e, v| trimming(e, v).and_then(|t| queue(v).map(|data| t.data = Some(data))),
    )
    .unset("8"),
    Key::new(
        "header-queue",
        "SIZE",
        "trimming: capacity of each output for packets without payload",
        |e, v| trimming(e, v).and_then(|t| size(v).map(|bytes| t.headers = Some(bytes))),
    )
    .unset("as many bytes as --data-queue"),
    Key::new("wrr", "N", "trimming: headers sent per data packet when both queues are backlogged", |e, v| {
        let expected = "1 to 65536 packets without payload for each one with";
        trimming(e, v).and_then(|t| v.number(1..=65_536, expected).map(|ratio| t.ratio = ratio))
    })
    .unset("10"),
    Key::new(
        "trim",
        "WHICH",
        "trimming: packet that loses its payload: the arriving one or the last in the queue, at random (coin), the \
         arriving one (arriving), or the arriving one with its header queued in its place (fifo)",
        |e, v| trimming(e, v).and_then(|t| v.word(&CUTS).map(|cut| t.cut = cut)),
    )
    .unset("coin")
    .words(|| words(&CUTS)),
    Key::on_off(
        "return-headers",
        "trimming: return headers that do not fit to their sender: on or off",
        |e, v| trimming(e, v).and_then(|t| v.switch().map(|on| t.returns = on)),
    )
    .unset("on"),
    Key::new(
        "rocc",
        "KEY=VALUE,…",
        "Switch parameters of --cc rocc: qref, qmid, qmax, chunk, alpha, beta, t, fraction, such as qref=75KB,t=100us",
        |e, v| points(v).map(|points| e.rocc = Some(points)),
    )
    .unset("the paper's for the rate of each link")
    .sim_only(),
];

/// Constructor of a type of buffers.
type Make = fn() -> Buffers;

const KINDS: [(&str, Make); 4] = [
    ("input-queued", || Buffers::InputQueued(InputBuffers::default())),
    ("shared-buffer", || Buffers::Shared(SharedBuffers::default())),
    ("trimming", || Buffers::Trimming(TrimmingBuffers::default())),
    ("output-queued", || Buffers::OutputQueued(Discipline::Fifo)),
];

const SCHEDULING: [(&str, Scheduling); 2] = [("strict", Scheduling::Strict), ("round-robin", Scheduling::RoundRobin)];

const CUTS: [(&str, Cut); 3] = [("coin", Cut::Coin), ("arriving", Cut::Arriving), ("fifo", Cut::InPlace)];

/// Parses the type of buffers, or a policy in their place.
fn switch(experiment: &mut Experiment, value: &Value<'_>) -> Result<(), ValueError> {
    if let Some(own) = experiment.extensions.switch(value.text) {
        experiment.buffers = Buffers::Custom(own.clone());
        return Ok(());
    }
    if let Some((_, buffers)) = KINDS.iter().find(|(kind, _)| *kind == value.text) {
        experiment.buffers = buffers();
        return Ok(());
    }
    match value.text.parse() {
        Ok(policy) => {
            experiment.policy = Some(policy);
            Ok(())
        }
        Err(NameError::Unknown { expected, .. }) => {
            Err(value.wrong(format_args!("{}, {expected}", words(&KINDS).join(", "))))
        }
        Err(error) => Err(value.refuse(error)),
    }
}

const ECN: &str =
    "off, step:BYTES, red:KMIN,KMAX,PMAX with PMAX from 0 to 1, or pi:QREF,GAIN,TIME such as pi:100KB,0.005,1ms";

/// Parser of the parameters of a rule.
type ReadRule = fn(&str) -> Option<Ecn>;

const RULES: [(&str, ReadRule); 4] = [
    ("off", |rest| rest.is_empty().then_some(Ecn::Off)),
    ("step:", |k| units::size(k).map(|k| Ecn::Step { k })),
    ("red:", red),
    ("pi:", pi),
];

fn ecn(text: &str) -> Option<Ecn> {
    RULES.iter().find_map(|(rule, read)| read(text.strip_prefix(rule)?))
}

fn red(text: &str) -> Option<Ecn> {
    let parts: Vec<&str> = text.split(',').collect();
    let [kmin, kmax, pmax] = parts[..] else { return None };
    let (kmin, kmax) = (units::size(kmin)?, units::size(kmax)?);
    let pmax = pmax.parse().ok().filter(|p| (0.0..=1.0).contains(p))?;
    (kmin < kmax && kmax < MAX_BYTES).then_some(Ecn::Red { kmin, kmax, pmax })
}

fn pi(text: &str) -> Option<Ecn> {
    let parts: Vec<&str> = text.split(',').collect();
    let [reference, gain, reset] = parts[..] else { return None };
    let reference = units::size(reference).filter(|bytes| (1..=MAX_BYTES).contains(bytes))?;
    let gain = gain.parse().ok().filter(|gain| *gain > 0.0 && *gain <= 1.0)?;
    let reset = units::time(reset).filter(|ns| (1_000..=MAX_NS).contains(ns))?;
    Some(Ecn::Pi(PiConfig::new(reference, gain, reset)))
}

fn positive(value: &Value<'_>) -> Result<f64, ValueError> {
    let read = |text: &str| quotient(text).filter(|alpha| *alpha > 0.0 && *alpha <= 1e6);
    value.read(read, "a number above 0, such as 1, 0.125 or 1/16")
}

/// Parses the length of a queue: a plain number of packets, or a size.
fn packets(text: &str) -> Option<u32> {
    text.parse().ok().filter(|n| (1..=1_000_000_000).contains(n))
}

fn queue(value: &Value<'_>) -> Result<QueueLength, ValueError> {
    const PACKETS: u64 = 1_000;
    let read = |text: &str| match text.parse::<u64>() {
        Ok(n) => (1..=PACKETS).contains(&n).then_some(QueueLength::Packets(n)),
        Err(_) => units::size(text).filter(|bytes| (1..=MAX_BYTES).contains(bytes)).map(QueueLength::Bytes),
    };
    value.read(read, "1 to 1000 full packets, or a size with its unit, such as 72KB")
}

/// Returns the parameters of input queues, if the switches have them.
fn input<'e>(experiment: &'e mut Experiment, value: &Value<'_>) -> Result<&'e mut InputBuffers, ValueError> {
    match &mut experiment.buffers {
        Buffers::InputQueued(input) => Ok(input),
        _ => Err(value.refuse("goes with --switch input-queued only")),
    }
}

/// Returns the parameters of shared buffers, if the switches have them.
fn shared<'e>(experiment: &'e mut Experiment, value: &Value<'_>) -> Result<&'e mut SharedBuffers, ValueError> {
    match &mut experiment.buffers {
        Buffers::Shared(shared) => Ok(shared),
        _ => Err(value.refuse("goes with --switch shared-buffer only")),
    }
}

/// Returns the parameters of trimming, if the switches trim.
fn trimming<'e>(experiment: &'e mut Experiment, value: &Value<'_>) -> Result<&'e mut TrimmingBuffers, ValueError> {
    match &mut experiment.buffers {
        Buffers::Trimming(trimming) => Ok(trimming),
        _ => Err(value.refuse("goes with --switch trimming only")),
    }
}

fn speedup(value: &Value<'_>) -> Result<Option<u16>, ValueError> {
    match value.text {
        "none" => Ok(None),
        _ => value.number(1..=u16::MAX, "none, or 1 to 65535 outputs").map(Some),
    }
}

/// Sets a parameter of PFC in shared buffers. Ignored without PFC.
fn shared_pfc<T>(
    experiment: &mut Experiment,
    value: &Value<'_>,
    read: fn(&Value<'_>) -> Result<T, ValueError>,
    set: fn(&mut SharedBuffers, T),
) -> Result<(), ValueError> {
    let pfc = experiment.pfc;
    let shared = shared(experiment, value)?;
    if pfc { read(value).map(|number| set(shared, number)) } else { Ok(()) }
}

/// Parses XOFF's threshold. Ignored without PFC.
fn xoff(experiment: &mut Experiment, value: &Value<'_>) -> Result<(), ValueError> {
    let pfc = experiment.pfc;
    let at = thresholds(experiment, value)?;
    *at.0 = if pfc { Some(size(value)?) } else { None };
    Ok(())
}

/// Returns the thresholds of PFC, if the switches have them: XOFF's and XON's.
fn thresholds<'e>(
    experiment: &'e mut Experiment,
    value: &Value<'_>,
) -> Result<(&'e mut Option<u64>, &'e mut Option<u64>), ValueError> {
    match &mut experiment.buffers {
        Buffers::InputQueued(InputBuffers { xoff, xon, .. }) | Buffers::Shared(SharedBuffers { xoff, xon, .. }) => {
            Ok((xoff, xon))
        }
        Buffers::Trimming(_) | Buffers::OutputQueued(_) | Buffers::Custom(_) => {
            Err(value.refuse("goes with --switch input-queued or shared-buffer only"))
        }
    }
}

/// Parses XON's threshold, which is at most XOFF's. Ignored without PFC.
fn xon(experiment: &mut Experiment, value: &Value<'_>) -> Result<(), ValueError> {
    let (&mut xoff, _) = thresholds(experiment, value)?;
    if experiment.pfc {
        let shared = matches!(experiment.buffers, Buffers::Shared(_));
        if shared && xoff.is_none() {
            return Err(value.refuse("goes with --pfc-threshold; of a threshold by --pfc-alpha XON is by --pfc-resume"));
        }
        let xoff = xoff.map_or_else(|| experiment.xoff(experiment.longest_packet()?), Ok)?;
        let bytes = value.size(1..=MAX_BYTES, format_args!("at most the threshold, {xoff} bytes: {SIZE}"))?;
        *thresholds(experiment, value)?.1 = Some(bytes);
    }
    Ok(())
}

/// Parses the order in which outputs send: the choice among priorities, or, for output-queued switches, any discipline.
fn scheduling(experiment: &mut Experiment, value: &Value<'_>) -> Result<(), ValueError> {
    if let Buffers::OutputQueued(discipline) = &mut experiment.buffers {
        let all = Discipline::NAMES;
        let names = all.each_ref().map(|(name, chosen)| (*name, chosen));
        return value.word(&names).map(|chosen| discipline.clone_from(chosen));
    }
    if Discipline::NAMES.iter().any(|(name, _)| *name == value.text) {
        return Err(value.refuse(format!("{} goes with --switch output-queued only", value.text)));
    }
    value.word(&SCHEDULING).map(|scheduling| experiment.scheduling = scheduling)
}
