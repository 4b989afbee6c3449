//! Options that describe a network and its ends: keys of experiments.

use clap::Args;
use irnic_fabric::experiment::{Values, Written, find};
use irnic_fabric::switch::Discipline;
use irnic_fabric::topology;
use irnic_report::words::{on_or_off, words};
use irnic_transports::config::TransportConfig;
use irnic_transports::congestion::CongestionConfig;

/// Returns the values of the given keys of experiments.
pub fn given(options: &[(&str, &[String])]) -> Values {
    let given = options.iter().filter(|(_, texts)| !texts.is_empty()).filter_map(|(name, texts)| {
        let key = find(name)?.name();
        Some((key, texts.iter().map(|text| Written::flag(key, text)).collect()))
    });
    given.collect()
}

/// Returns the names of schedulers: of priorities, and of output-queued switches.
fn schedulers() -> impl Iterator<Item = &'static str> {
    ["strict", "round-robin"].into_iter().chain(Discipline::NAMES.iter().map(|(name, _)| *name))
}

/// The network of `irnic sim` and `irnic lab`. Where several values make a grid, options may be repeated.
#[derive(Args, Clone, Debug)]
pub struct NetworkArgs {
    /// Topology: a description or a file [default: fat-tree:k=6,rate=40G,delay=2us]
    #[arg(long, value_name = "SPEC|FILE", help_heading = "Network")]
    #[arg(value_parser = words(topology::NAMES), hide_possible_values = true)]
    topology: Vec<String>,
    /// Choice among equal-cost paths: ecmp, spray, random, source, static or lowest [default: ecmp]
    #[arg(long, value_name = "HOW", help_heading = "Network")]
    #[arg(value_parser = words(["ecmp", "spray", "random", "source", "static", "lowest"]), hide_possible_values = true)]
    routing: Vec<String>,
    /// Override the route to DST at NODE: via the neighbour VIA, even if other paths are shorter, as in s0:h2=s1. May
    /// be repeated
    #[arg(long, value_name = "NODE:DST=VIA", help_heading = "Network")]
    detour: Vec<String>,
    /// Change a link during the run: down:LINK@TIME, up:LINK@TIME or rate:LINK=RATE@TIME; LINK is a number or two
    /// nodes, A-B. May be repeated
    #[arg(long, value_name = "EVENT", help_heading = "Network")]
    link_event: Vec<String>,
    /// Switch model: input-queued, shared-buffer, trimming, output-queued, or a policy: FILE.oq or a name from irnic oq
    /// list, with parameters as in shared-lqd,buffer=480KB [default: input-queued]
    #[arg(long, value_name = "KIND|POLICY", help_heading = "Switches")]
    #[arg(value_parser = words(["input-queued", "shared-buffer", "trimming", "output-queued"]), hide_possible_values = true)]
    switch: Vec<String>,
    /// Buffer size, per input (input-queued), shared by all ports (shared-buffer) or per output (output-queued)
    /// [default: 240KB, 9MB or 5MB, respectively]
    #[arg(long, value_name = "SIZE", help_heading = "Switches")]
    buffer: Vec<String>,
    /// Priority flow control: on or off [default: off]
    #[arg(long, value_name = "on|off", help_heading = "Switches")]
    #[arg(value_parser = on_or_off(), hide_possible_values = true)]
    pfc: Vec<String>,
    /// ECN marking: off, step:SIZE, red:KMIN,KMAX,PMAX or pi:QREF,GAIN,TIME [default: off, unless --cc needs it]
    #[arg(long, value_name = "RULE", help_heading = "Switches")]
    #[arg(value_parser = words(["off", "step:", "red:", "pi:"]), hide_possible_values = true)]
    ecn: Vec<String>,
    /// Scheduling among priorities: strict or round-robin [default: strict]; with output-queued: fifo, lifo, random,
    /// priority, fq, fq-codel, rank, srpt, lstf or edf [default: fifo]
    #[arg(long, value_name = "HOW", help_heading = "Switches")]
    #[arg(value_parser = words(schedulers()), hide_possible_values = true)]
    scheduling: Vec<String>,
    /// Configure some switches differently: a policy as for --switch or, with output-queued, a scheduler as for
    /// --scheduling, as in s0-s3=tail-drop or s2=fq. May be repeated
    #[arg(long, value_name = "SWITCHES=HOW", help_heading = "Switches")]
    switch_at: Vec<String>,
    /// Change the policy of the switches at this time, as in shared-lqd@5ms; packets already queued leave under the old
    /// policy. Only with a policy for --switch. May be repeated
    #[arg(long, value_name = "POLICY@TIME", help_heading = "Switches")]
    policy_event: Vec<String>,
    /// output-queued: maximum number of packets queued per output, in addition to --buffer [default: no limit]
    #[arg(long, value_name = "N", help_heading = "Switches")]
    queue_limit: Vec<String>,
    /// output-queued with priority, rank, lstf or edf: let a packet that is ahead in the order interrupt the one being
    /// sent, whose rest is sent later: on or off [default: off]
    #[arg(long, value_name = "on|off", help_heading = "Switches")]
    #[arg(value_parser = on_or_off(), hide_possible_values = true)]
    preempt: Vec<String>,
    /// input-queued: maximum number of outputs that an input sends to at a time, or none for no limit [default: none]
    #[arg(long, value_name = "N", help_heading = "Switches")]
    speedup: Vec<String>,
    /// Flow control of --pfc on: pfc; credits, as in InfiniBand, which announce how much a neighbour may send
    /// (input-queued); or gfc, which slows neighbours down instead of stopping them, with parameters as in
    /// gfc,b1=281KB,bm=300KB (shared-buffer) [default: pfc]
    #[arg(long, value_name = "HOW", help_heading = "Switches")]
    #[arg(value_parser = words(["pfc", "credits", "gfc"]), hide_possible_values = true)]
    flow_control: Vec<String>,
    /// Send XOFF when an input holds more bytes than this [default: input-queued: buffer minus headroom; shared-buffer:
    /// by --pfc-alpha]
    #[arg(long, value_name = "SIZE", help_heading = "Switches")]
    pfc_threshold: Vec<String>,
    /// Send XON when an input has drained to this many bytes; shared-buffer: only with --pfc-threshold [default: 3 KiB
    /// below the threshold]
    #[arg(long, value_name = "SIZE", help_heading = "Switches")]
    xon: Vec<String>,
    /// Headroom for packets that arrive after XOFF [default: from rate, delay and longest packet of the links]
    #[arg(long, value_name = "SIZE", help_heading = "Switches")]
    pfc_headroom: Vec<String>,
    /// Remedy for head-of-line blocking and deadlocks of PFC: off; escape, with parameters as in
    /// escape,pool=8,period=2x,nack=on; or lb or dlb, which detect deadlocks with tokens and drop frames (lb) or let
    /// each switch of the loop send one (dlb), as in lb,wait=100us [default: off]
    #[arg(long, value_name = "HOW", help_heading = "Switches")]
    hol: Vec<String>,
    /// shared-buffer: limit each queue to X times the free buffer [default: 1]
    #[arg(long, value_name = "X", help_heading = "Switches")]
    alpha: Vec<String>,
    /// shared-buffer, or a policy with colours: maximum bytes of red packets per queue (TLT) [default: ignore colours]
    #[arg(long, value_name = "SIZE", help_heading = "Switches")]
    colour_threshold: Vec<String>,
    /// shared-buffer: send XOFF when an input holds more than X times the free buffer [default: 1/16]
    #[arg(long, value_name = "X", help_heading = "Switches")]
    pfc_alpha: Vec<String>,
    /// shared-buffer: guaranteed bytes per input, used before the shared pool [default: 4096]
    #[arg(long, value_name = "SIZE", help_heading = "Switches")]
    pfc_reserve: Vec<String>,
    /// shared-buffer: send XON this many bytes below the XOFF threshold [default: 3072]
    #[arg(long, value_name = "SIZE", help_heading = "Switches")]
    pfc_resume: Vec<String>,
    /// trimming: capacity of each output for packets with payload, in full packets or as a size [default: 8]
    #[arg(long, value_name = "N|SIZE", help_heading = "Switches")]
    data_queue: Vec<String>,
    /// trimming: capacity of each output for packets without payload [default: as many bytes as --data-queue]
    #[arg(long, value_name = "SIZE", help_heading = "Switches")]
    header_queue: Vec<String>,
    /// trimming: headers sent per data packet when both queues are backlogged [default: 10]
    #[arg(long, value_name = "N", help_heading = "Switches")]
    wrr: Vec<String>,
    /// trimming: packet that loses its payload: the arriving one or the last in the queue, at random (coin), the
    /// arriving one (arriving), or the arriving one with its header queued in its place (fifo) [default: coin]
    #[arg(long, value_name = "WHICH", help_heading = "Switches")]
    trim: Vec<String>,
    /// trimming: return headers that do not fit to their sender: on or off [default: on]
    #[arg(long, value_name = "on|off", help_heading = "Switches")]
    #[arg(value_parser = on_or_off(), hide_possible_values = true)]
    return_headers: Vec<String>,
    /// Transport (loss recovery, flow control and timers): roce, irn, irn-go-back-n, irn-no-bdp, irn-no-sack, auto,
    /// iwarp or ndp, with parameters as in irn,cap=110; several joined by +, one per part of the workload [default:
    /// irn]
    #[arg(long, value_name = "NAME", help_heading = "Transport")]
    #[arg(value_parser = words(TransportConfig::PRESETS), hide_possible_values = true)]
    transport: Vec<String>,
    /// Congestion control: none, aimd, timely, timely-patched, fast, dcqcn, dcqcn-vendor, dctcp, hpcc or tcp, with
    /// parameters as in timely,t-low=50us [default: none; tcp for iwarp]
    #[arg(long, value_name = "NAME", help_heading = "Transport")]
    #[arg(value_parser = words(CongestionConfig::PRESETS.iter().map(|(name, _)| *name)), hide_possible_values = true)]
    cc: Vec<String>,
    /// Payload bytes of a full packet: 256, 512, 1024, 2048, 4096 or 8192 [default: 1024]
    #[arg(long, value_name = "BYTES", help_heading = "Transport")]
    #[arg(value_parser = words(["256", "512", "1024", "2048", "4096", "8192"]), hide_possible_values = true)]
    mtu: Vec<String>,
    /// Maximum packets in flight per queue pair, or none [default: the transport's; 110 for irn]
    #[arg(long, value_name = "PACKETS", help_heading = "Transport")]
    cap: Vec<String>,
    /// RTO_low of IRN, the timeout while few packets are in flight [default: 100us]
    #[arg(long, value_name = "TIME", help_heading = "Transport")]
    rto_low: Vec<String>,
    /// RTO_high of IRN; RTO of RoCE without PFC (with PFC, RoCE has no timeout) [default: 320us]
    #[arg(long, value_name = "TIME", help_heading = "Transport")]
    rto_high: Vec<String>,
    /// Use --rto-low up to this many packets in flight [default: 3]
    #[arg(long, value_name = "PACKETS", help_heading = "Transport")]
    n: Vec<String>,
    /// Initial slack of packets, for least-slack scheduling: none; fct:TIME or srpt:TIME, TIME for each packet that the
    /// flow has (fct) or has left (srpt); constant:TIME; fair:RATE, RATE for each queue pair; or deadline:TIME, TIME
    /// for each flow; as in fct:1s, fair:100M or deadline:2ms [default: none]
    #[arg(long, value_name = "HOW", help_heading = "Transport")]
    slack: Vec<String>,
    /// Round-robin quantum of a NIC, in packets per queue pair [default: 1]
    #[arg(long, value_name = "PACKETS", help_heading = "Transport")]
    quantum: Vec<String>,
    /// Priority of generated flows, 0 to 7 [default: 0]
    #[arg(long, value_name = "N", help_heading = "Transport")]
    priority: Vec<String>,
    /// Round trips of connection setup, in an idle network, to add to completion times [default: 0]
    #[arg(long, value_name = "N", help_heading = "Transport")]
    setup_rtts: Vec<String>,
    /// Start each flow with a one-round-trip handshake through the network: on or off [default: off]
    #[arg(long, value_name = "on|off", help_heading = "Transport")]
    #[arg(value_parser = on_or_off(), hide_possible_values = true)]
    handshake: Vec<String>,
}

impl NetworkArgs {
    /// Returns the given values.
    pub fn values(&self) -> Values {
        let joined = |all: &[String]| if all.is_empty() { Vec::new() } else { vec![all.join(",")] };
        let (events, detours) = (joined(&self.link_event), joined(&self.detour));
        let (policies, differing) = (joined(&self.policy_event), joined(&self.switch_at));
        given(&[
            ("topology", &self.topology),
            ("priority", &self.priority),
            ("link-event", &events),
            ("detour", &detours),
            ("transport", &self.transport),
            ("cc", &self.cc),
            ("slack", &self.slack),
            ("cap", &self.cap),
            ("rto-low", &self.rto_low),
            ("rto-high", &self.rto_high),
            ("n", &self.n),
            ("setup-rtts", &self.setup_rtts),
            ("handshake", &self.handshake),
            ("quantum", &self.quantum),
            ("mtu", &self.mtu),
            ("switch", &self.switch),
            ("switch-at", &differing),
            ("policy-event", &policies),
            ("buffer", &self.buffer),
            ("queue-limit", &self.queue_limit),
            ("speedup", &self.speedup),
            ("pfc", &self.pfc),
            ("pfc-threshold", &self.pfc_threshold),
            ("xon", &self.xon),
            ("pfc-headroom", &self.pfc_headroom),
            ("flow-control", &self.flow_control),
            ("hol", &self.hol),
            ("alpha", &self.alpha),
            ("colour-threshold", &self.colour_threshold),
            ("pfc-alpha", &self.pfc_alpha),
            ("pfc-reserve", &self.pfc_reserve),
            ("pfc-resume", &self.pfc_resume),
            ("data-queue", &self.data_queue),
            ("header-queue", &self.header_queue),
            ("wrr", &self.wrr),
            ("trim", &self.trim),
            ("return-headers", &self.return_headers),
            ("ecn", &self.ecn),
            ("scheduling", &self.scheduling),
            ("preempt", &self.preempt),
            ("routing", &self.routing),
        ])
    }
}
