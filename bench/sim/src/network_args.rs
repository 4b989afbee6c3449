//! Options that say what a network is, and what is at its ends: keys of experiments.

use clap::Args;
use irnic_fabric::experiment::{Values, Written, find};

/// Returns the values of the keys of experiments that were given.
pub fn given(options: &[(&str, &[String])]) -> Values {
    let given = options.iter().filter(|(_, texts)| !texts.is_empty()).filter_map(|(name, texts)| {
        let key = find(name)?.name();
        Some((key, texts.iter().map(|text| Written::flag(key, text)).collect()))
    });
    given.collect()
}

/// The network of `irnic sim` and `irnic lab`. Where several values make a grid, options may be repeated.
#[derive(Args, Clone, Debug)]
pub struct NetworkArgs {
    /// Network: a description or a file [default: fat-tree:k=6,rate=40G,delay=2us]
    #[arg(long, value_name = "SPEC|FILE", help_heading = "Network and traffic")]
    topology: Vec<String>,
    /// Priority of generated flows, 0 to 7 [default: 0]
    #[arg(long, value_name = "N", help_heading = "Network and traffic")]
    priority: Vec<String>,
    /// down:LINK@TIME, up:LINK@TIME or rate:LINK=RATE@TIME; LINK is a number or two nodes, A-B. May be repeated
    #[arg(long, value_name = "EVENT", help_heading = "Network and traffic")]
    link_event: Vec<String>,
    /// NODE:DST=VIA: a switch hands what is for a host to this neighbour, whatever way is shorter, as in s0:h2=s1. May
    /// be repeated
    #[arg(long, value_name = "NODE:DST=VIA", help_heading = "Network and traffic")]
    detour: Vec<String>,
    /// Loss recovery, flow control and timers: roce, irn, irn-go-back-n, irn-no-bdp, irn-no-sack, auto, iwarp or ndp,
    /// and parameters as in irn,cap=110; joined by + one for each part of the workload [default: irn]
    #[arg(long, value_name = "NAME", help_heading = "NICs")]
    transport: Vec<String>,
    /// Congestion control: none, aimd, timely, timely-patched, fast, dcqcn, dcqcn-vendor, dctcp, hpcc or tcp, and
    /// parameters as in timely,t-low=50us [default: none, but for iwarp's tcp]
    #[arg(long, value_name = "NAME", help_heading = "NICs")]
    cc: Vec<String>,
    /// How long packets may wait, for switches that schedule by least slack: none; fct, srpt or constant, and a time as
    /// in fct:1s, for each packet that the flow has or has left, or for all; fair and a rate for each queue pair, as in
    /// fair:100M; deadline and a time for each flow, as in deadline:2ms [default: none]
    #[arg(long, value_name = "HOW", help_heading = "NICs")]
    slack: Vec<String>,
    /// Most packets in flight of a queue pair, or none [default: the transport's; 110 for irn]
    #[arg(long, value_name = "PACKETS", help_heading = "NICs")]
    cap: Vec<String>,
    /// IRN's timeout while few packets are in flight [default: 100us]
    #[arg(long, value_name = "TIME", help_heading = "NICs")]
    rto_low: Vec<String>,
    /// IRN's other timeout, and the only one of RoCE without PFC; with PFC, RoCE has none [default: 320us]
    #[arg(long, value_name = "TIME", help_heading = "NICs")]
    rto_high: Vec<String>,
    /// Packets in flight up to which --rto-low holds [default: 3]
    #[arg(long, value_name = "PACKETS", help_heading = "NICs")]
    n: Vec<String>,
    /// Round trips of an empty network that setting up a connection takes, which add to completion times [default: 0]
    #[arg(long, value_name = "N", help_heading = "NICs")]
    setup_rtts: Vec<String>,
    /// Have flows begin with a packet without payload there and one back, through the network: on or off [default: off]
    #[arg(long, value_name = "on|off", help_heading = "NICs")]
    handshake: Vec<String>,
    /// Packets that a NIC sends of a queue pair before it is the next one's turn [default: 1]
    #[arg(long, value_name = "PACKETS", help_heading = "NICs")]
    quantum: Vec<String>,
    /// Payload bytes of a full packet: 256, 512, 1024, 2048, 4096 or 8192 [default: 1024]
    #[arg(long, value_name = "BYTES", help_heading = "NICs")]
    mtu: Vec<String>,
    /// input-queued, shared-buffer, trimming, output-queued, or a policy: FILE.oq or a name of irnic oq list, and
    /// parameters as in shared-lqd,buffer=480KB [default: input-queued]
    #[arg(long, value_name = "KIND|POLICY", help_heading = "Switches")]
    switch: Vec<String>,
    /// SWITCHES=HOW: switches that differ from the others: a policy as for --switch, or with output-queued an order as
    /// for --scheduling, as in s0-s3=tail-drop or s2=fq. May be repeated
    #[arg(long, value_name = "SWITCHES=HOW", help_heading = "Switches")]
    switch_at: Vec<String>,
    /// POLICY@TIME: the switches run this policy from then on, as in shared-lqd@5ms; what waits leaves by the policy by
    /// which it came. With a policy for --switch. May be repeated
    #[arg(long, value_name = "POLICY@TIME", help_heading = "Switches")]
    policy_event: Vec<String>,
    /// Buffer of each input, shared by all ports, or of each output [default: 240KB, 9MB, or 5MB]
    #[arg(long, value_name = "SIZE", help_heading = "Switches")]
    buffer: Vec<String>,
    /// output-queued: packets that wait for an output at most, beside --buffer [default: not counted]
    #[arg(long, value_name = "N", help_heading = "Switches")]
    queue_limit: Vec<String>,
    /// input-queued: outputs that an input sends to at a time, or none for no limit [default: none]
    #[arg(long, value_name = "N", help_heading = "Switches")]
    speedup: Vec<String>,
    /// Priority flow control: on or off [default: off]
    #[arg(long, value_name = "on|off", help_heading = "Switches")]
    pfc: Vec<String>,
    /// XOFF above so many bytes of an input [default: input-queued: buffer less headroom; shared-buffer: by
    /// --pfc-alpha]
    #[arg(long, value_name = "SIZE", help_heading = "Switches")]
    pfc_threshold: Vec<String>,
    /// XON at so many bytes; of a shared buffer with --pfc-threshold [default: 3 KiB below the threshold]
    #[arg(long, value_name = "SIZE", help_heading = "Switches")]
    xon: Vec<String>,
    /// Room for what arrives after XOFF [default: by rate, delay and longest packet of the links]
    #[arg(long, value_name = "SIZE", help_heading = "Switches")]
    pfc_headroom: Vec<String>,
    /// With --pfc on: pfc; credits, InfiniBand's, by which neighbours know how much they may send (input-queued); or
    /// gfc, which slows neighbours down instead of stopping them, and parameters as in gfc,b1=281KB,bm=300KB
    /// (shared-buffer) [default: pfc]
    #[arg(long, value_name = "HOW", help_heading = "Switches")]
    flow_control: Vec<String>,
    /// Against head-of-line blocking by PFC and its deadlocks: off, escape and parameters as in
    /// escape,pool=8,period=2x,nack=on, or lb or dlb, which find deadlocks by tokens and drop frames (lb) or send one
    /// on each (dlb), as in lb,wait=100us [default: off]
    #[arg(long, value_name = "HOW", help_heading = "Switches")]
    hol: Vec<String>,
    /// shared-buffer: a queue holds at most so many times what is free [default: 1]
    #[arg(long, value_name = "X", help_heading = "Switches")]
    alpha: Vec<String>,
    /// shared-buffer, or a policy with colours: a queue holds at most so many bytes of red packets (TLT) [default:
    /// colours do not matter]
    #[arg(long, value_name = "SIZE", help_heading = "Switches")]
    colour_threshold: Vec<String>,
    /// shared-buffer: XOFF when an input holds more than so many times what is free [default: 1/16]
    #[arg(long, value_name = "X", help_heading = "Switches")]
    pfc_alpha: Vec<String>,
    /// shared-buffer: what each input has before it takes from the shared part [default: 4096]
    #[arg(long, value_name = "SIZE", help_heading = "Switches")]
    pfc_reserve: Vec<String>,
    /// shared-buffer: XON so many bytes below the threshold [default: 3072]
    #[arg(long, value_name = "SIZE", help_heading = "Switches")]
    pfc_resume: Vec<String>,
    /// trimming: what an output holds of packets with payload, in full packets or as a size [default: 8]
    #[arg(long, value_name = "N|SIZE", help_heading = "Switches")]
    data_queue: Vec<String>,
    /// trimming: what an output holds of packets without payload [default: as many bytes]
    #[arg(long, value_name = "SIZE", help_heading = "Switches")]
    header_queue: Vec<String>,
    /// trimming: packets without payload for each one with, while both wait [default: 10]
    #[arg(long, value_name = "N", help_heading = "Switches")]
    wrr: Vec<String>,
    /// trimming: the arriving packet or the last in the queue loses its payload (coin), the arriving one (arriving), or
    /// that and its headers wait in its place (fifo) [default: coin]
    #[arg(long, value_name = "WHICH", help_heading = "Switches")]
    trim: Vec<String>,
    /// trimming: headers that find no room go back to their sender: on or off [default: on]
    #[arg(long, value_name = "on|off", help_heading = "Switches")]
    return_headers: Vec<String>,
    /// Marking: off, step:SIZE, red:KMIN,KMAX,PMAX or pi:QREF,GAIN,TIME [default: off, unless --cc needs it]
    #[arg(long, value_name = "RULE", help_heading = "Switches")]
    ecn: Vec<String>,
    /// Choice among priorities: strict or round-robin [default: strict]; output-queued: fifo, lifo, random, priority,
    /// fq, fq-codel, rank, srpt, lstf or edf [default: fifo]
    #[arg(long, value_name = "HOW", help_heading = "Switches")]
    scheduling: Vec<String>,
    /// output-queued with priority, rank, lstf or edf: a packet that goes before the one that is being sent interrupts
    /// it, and the rest is sent later: on or off [default: off]
    #[arg(long, value_name = "on|off", help_heading = "Switches")]
    preempt: Vec<String>,
    /// Choice among equally short ways: ecmp, spray, random, source, static or lowest [default: ecmp]
    #[arg(long, value_name = "HOW", help_heading = "Switches")]
    routing: Vec<String>,
}

impl NetworkArgs {
    /// Returns the values that were given.
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
