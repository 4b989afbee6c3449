//! Meaning of descriptions, and which are rejected.

use irnic_transports::config::{FlowControl, Timer, TransportConfig};

use super::*;
use crate::sim::{Change, SimConfig};
use crate::switch::{
    Compute, Cut, Discipline, EscapeConfig, FlowTable, HolConfig, Order, Period, PiConfig, RoccConfig, SwitchConfig,
    Thresholds, TrimmingConfig,
};

/// Returns the only case of a command line.
fn case(pairs: &[(&'static str, &str)]) -> Case {
    let common = pairs.iter().map(|(key, text)| (*key, vec![Written::flag(key, text)])).collect();
    Grid { common, runs: Vec::new() }.cases().unwrap().remove(0)
}

fn scenario(pairs: &[(&'static str, &str)]) -> Result<SimConfig, String> {
    let case = case(pairs);
    let experiment = case.experiment().map_err(|e| e.to_string())?;
    experiment.config(1).map_err(|e| case.error(e).to_string())
}

#[test]
fn defaults_are_what_they_are_written_as() {
    let written = KEYS.iter().filter_map(|key| Some((key.name(), key.default?)));
    let read = case(&written.collect::<Vec<_>>()).experiment().unwrap();
    assert_eq!(Experiment { written: None, ..read }, Experiment::default());
}

#[test]
fn the_default_is_the_papers() {
    let config = scenario(&[("duration", "100us")]).unwrap();
    assert_eq!((config.topology.hosts, config.topology.links[0].rate), (54, 40_000_000_000));
    assert_eq!(config.setups[0].transport, TransportConfig::preset("irn").unwrap());
    let SwitchConfig::InputQueued(switch) = &config.switch else { panic!("{:?}", config.switch) };
    assert_eq!((switch.buffer, switch.pfc), (240_000, None));
    let config = scenario(&[("duration", "100us"), ("pfc", "on"), ("headers", "fixed:0")]).unwrap();
    let SwitchConfig::InputQueued(switch) = &config.switch else { panic!("{:?}", config.switch) };
    // 2 · 2 µs at 40 Gbit/s, three packets, eight PFC frames: close to the paper's 220 KB.
    assert_eq!(switch.pfc, Some(Thresholds { xoff: 216_416, xon: 216_416 - 3_072 }));
}

#[test]
fn roce_has_a_timer_only_without_pfc_and_a_window_for_its_longest_flow() {
    let roce = |more: &[(&'static str, &str)]| {
        let mut pairs = vec![("transport", "roce"), ("workload", "permutation:bytes=10MB")];
        pairs.extend(more);
        scenario(&pairs).unwrap().setups[0].transport
    };
    assert_eq!(roce(&[]).timer, Timer::Fixed(Some(320_000)));
    assert_eq!(roce(&[]).window, 16_384);
    assert_eq!(roce(&[("rto-high", "1ms")]).timer, Timer::Fixed(Some(1_000_000)));
    assert_eq!(roce(&[("pfc", "on"), ("rto-high", "1ms")]).timer, Timer::Fixed(None));
    assert_eq!(roce(&[("transport", "roce,rto=2ms"), ("pfc", "on")]).timer, Timer::Fixed(Some(2_000_000)));
    assert_eq!(roce(&[("transport", "roce,window=64")]).window, 64);
}

#[test]
fn irns_parameters_have_flags() {
    let config =
        scenario(&[("duration", "100us"), ("rto-low", "50us"), ("rto-high", "1ms"), ("n", "7"), ("cap", "20")]);
    let transport = config.unwrap().setups[0].transport;
    assert_eq!(transport.timer, Timer::Irn { low: 50_000, high: 1_000_000, n: 7 });
    assert_eq!(transport.flow, FlowControl::BdpCap(20));
}

#[test]
fn iwarp_brings_its_controller_and_its_timer() {
    let iwarp = scenario(&[("duration", "100us"), ("transport", "iwarp")]).unwrap().setups[0].transport;
    assert_eq!((iwarp.congestion.to_string(), iwarp.flow), ("tcp".to_owned(), FlowControl::None));
    assert!(matches!(iwarp.timer, Timer::Tcp { .. }));
    let other =
        scenario(&[("duration", "100us"), ("transport", "iwarp"), ("cc", "dctcp")]).unwrap().setups[0].transport;
    assert_eq!(other.congestion.to_string(), "dctcp");
    let refused = scenario(&[("duration", "100us"), ("transport", "iwarp"), ("n", "3")]).unwrap_err().to_string();
    assert!(refused.contains("iwarp has not the two timeouts of IRN"), "{refused}");
}

#[test]
fn hpccs_round_trip_is_that_of_packets() {
    // 4 µs of propagation; a packet of 1024 bytes and 62 + 42, and one without payload, on two links of 40 Gbit/s:
    // 225.6 and 20.8 ns each, rounded up on arrival.
    let base_rtt = |cc, headers| {
        let pairs = [("topology", "star:hosts=4,delay=1us"), ("duration", "1ms"), ("cc", cc), ("headers", headers)];
        scenario(&pairs).unwrap().setups[0].transport.base_rtt
    };
    assert_eq!(base_rtt("hpcc", "fixed:62"), 4_000 + 452 + 42);
    assert_eq!(base_rtt("timely", "fixed:62"), 4_000);
}

#[test]
fn link_events_name_links_by_number_and_by_nodes() {
    let config = scenario(&[
        ("topology", "star:hosts=4"),
        ("duration", "1ms"),
        ("link-event", "up:3-4@2ms, down:3@1ms,rate:4-0=10G@1.5ms,rate:4>1=1G@3ms"),
    ]);
    let changes: Vec<_> = config.unwrap().changes.iter().map(|c| (c.at, c.link, c.what)).collect();
    let expected = [
        (1_000_000, 3, Change::Down),
        (1_500_000, 0, Change::Rate(10_000_000_000)),
        (2_000_000, 3, Change::Up),
        (3_000_000, 1, Change::RateFrom { node: 4, rate: 1_000_000_000 }),
    ];
    assert_eq!(changes, expected);
}

#[test]
fn switches_that_differ_are_read() {
    let common = [("duration", "100us"), ("switch", "output-queued"), ("buffer", "300KB")];
    let differing = ("switch-at", "s0-s1=fq, s7=tail-drop,k=2,buffer=80KB");
    let config = scenario(&[&common[..], &[differing]].concat());
    let config = config.unwrap();
    let at = |node| config.differing.iter().find(|(at, _)| *at == node).map(|(_, switch)| switch);
    let Some(SwitchConfig::OutputQueued(fair)) = at(55) else { panic!("{:?}", config.differing) };
    assert_eq!((fair.buffer, &fair.discipline), (300_000, &Discipline::Fair));
    let Some(SwitchConfig::Policy(policy)) = at(61) else { panic!("{:?}", config.differing) };
    let parameters = policy.policy().parameters().into_iter().map(|p| format!("{}={}", p.name, p.value));
    assert_eq!(parameters.collect::<Vec<_>>(), ["buffer=80000", "k=2"]);
    assert_eq!(config.differing.iter().map(|(node, _)| *node).collect::<Vec<_>>(), [54, 55, 61]);
}

#[test]
fn a_ring_with_detours_and_escape_is_read() {
    let pairs = [
        ("topology", "ring:switches=3,hosts=2,rate=40G,delay=1500ns"),
        ("detour", "s0:h4=s1, 7:0=8"),
        ("deadlock", "continue"),
        ("transport", "roce"),
        ("pfc", "on"),
        ("switch", "shared-buffer"),
        ("pfc-threshold", "500KB"),
        ("xon", "10KB"),
        ("hol", "escape,pool=4,flows=16,period=5us,reclaim=1ms,nack=off,order=printed,tag=0"),
    ];
    let config = scenario(&pairs).unwrap();
    assert_eq!(config.detours, [Detour { node: 6, dst: 4, via: 7 }, Detour { node: 7, dst: 0, via: 8 }]);
    assert!(config.outlive_deadlocks);
    let mut escape = EscapeConfig::default();
    (escape.pool, escape.flows, escape.period) = (4, 16, Period::Fixed(5_000));
    (escape.reclaim, escape.nack, escape.order, escape.tag) = (Some(1_000_000), false, Order::Printed, 0);
    let SwitchConfig::SharedBuffer(switch) = &config.switch else { panic!("{:?}", config.switch) };
    let pfc = switch.pfc.as_ref().unwrap();
    assert_eq!(pfc.fixed, Some(Thresholds { xoff: 500_000, xon: 10_000 }));
    assert_eq!(pfc.margin, 4 * u64::from(switch.longest));
    assert_eq!(config.hol, Some(HolConfig::Escape(escape)));
    // Without PFC no port is blocked; by default the threshold leaves room for the neighbour's escape queue.
    let xoff = |pfc, hol| match scenario(&[("pfc", pfc), ("hol", hol)]).unwrap() {
        SimConfig { switch: SwitchConfig::InputQueued(switch), hol, .. } => {
            (switch.pfc.map(|at| at.xoff), hol.is_some())
        }
        other => panic!("{:?}", other.switch),
    };
    assert_eq!(xoff("off", "escape"), (None, false));
    assert_eq!(xoff("on", "escape"), (Some(216_134 - 8 * (1_118 + 2)), true));
}

#[test]
fn bad_values_name_flag_value_and_what_is_allowed() {
    let no_flows = "--workload: there are no flows; a longer --duration or a higher --load makes some";
    for (pairs, said) in [
        (
            &[("load", "x")][..],
            "--load x: expected a share of the links' rate, above 0: 0.7 is 70 %, 1 is all of it, at most 2",
        ),
        (&[("load", "0")], "--load 0: expected a share of the links' rate, above 0: 0.7 is 70 %"),
        (&[("load", "7")], "--load 7: expected a share of the links' rate, above 0: 0.7 is 70 %"),
        (&[("load", "0.5,0.7")], "--load 0.5,0.7: expected one value; several are --load 0.5 --load 0.7"),
        (&[("pfc", "on, off")], "--pfc on, off: expected one value; several are --pfc on --pfc off"),
        (&[("cc", "cubic")], "--cc: congestion control \"cubic\" does not exist; choose none, "),
        (&[("pfc", "yes")], "--pfc yes: expected on or off"),
        (
            &[("switch", "x")],
            "--switch x: expected input-queued, shared-buffer, trimming, output-queued, FILE.oq, or a name that irnic oq list has",
        ),
        (&[("mtu", "1500")], "--mtu 1500: expected 256, 512, 1024, 2048, 4096 or 8192 bytes of payload"),
        (&[("colour-threshold", "2KB")], "--colour-threshold: goes with --switch shared-buffer only"),
        (
            &[("switch", "trimming"), ("colour-threshold", "2KB")],
            "--colour-threshold: goes with --switch shared-buffer only",
        ),
        (
            &[("switch", "tail-drop"), ("colour-threshold", "20KB")],
            "--colour-threshold: the policy of --switch has nothing for it; its parameters are: buffer",
        ),
        (
            &[("switch", "shared-buffer.oq"), ("colour-threshold", "400")],
            "--colour-threshold 400: expected room for a packet of 1118 bytes; did you mean 400KB?",
        ),
        (&[("alpha", "2")], "--alpha: goes with --switch shared-buffer only"),
        (&[("switch", "trimming"), ("xon", "2")], "--xon: goes with --switch input-queued or shared-buffer only"),
        (
            &[("switch", "shared-buffer"), ("pfc", "on"), ("xon", "2KB")],
            "--xon: goes with --pfc-threshold; of a threshold by --pfc-alpha XON is by --pfc-resume",
        ),
        (
            &[("switch", "shared-buffer"), ("pfc", "on"), ("pfc-threshold", "9MB")],
            "--pfc-threshold 9MB: expected less than the buffer, 9000000 bytes: what is above it is never reached",
        ),
        (
            &[("switch", "shared-buffer"), ("pfc", "on"), ("pfc-threshold", "9KB"), ("xon", "10KB")],
            "--xon 10KB: expected at most the threshold, 9000 bytes",
        ),
        (&[("pfc", "on"), ("flow-control", "gfc")], "--flow-control: gfc goes with --switch shared-buffer only"),
        (
            &[("pfc", "on"), ("switch", "shared-buffer"), ("flow-control", "credits")],
            "--flow-control: credits go with --switch input-queued only",
        ),
        (
            &[("pfc", "on"), ("flow-control", "credits"), ("pfc-threshold", "100KB")],
            "--pfc-threshold: credits have no threshold and no headroom: an input is granted all it has",
        ),
        (
            &[("pfc", "on"), ("flow-control", "credits"), ("transport", "roce"), ("cc", "rocc")],
            "--flow-control: nobody has credit for the notices of rocc",
        ),
        (
            &[("pfc", "on"), ("flow-control", "credits"), ("buffer", "2000"), ("transport", "irn,ack-priority=3")],
            "--buffer 2000: expected 1118 bytes, a packet, for each priority in use; there are 1000",
        ),
        (
            &[("pfc", "on"), ("switch", "shared-buffer"), ("flow-control", "gfc")],
            "--flow-control: gfc needs b1=SIZE, or --pfc-threshold",
        ),
        (
            &[("pfc", "on"), ("switch", "shared-buffer"), ("flow-control", "gfc,b1=2KB,bm=2KB")],
            "--flow-control: bm is 2000 bytes, expected more than b1, 2000",
        ),
        (&[("flow-control", "gfc,b0=1")], "--flow-control: gfc has no b0; it takes b1, bm, levels"),
        (&[("flow-control", "off")], "--flow-control off: expected pfc, credits, or gfc and parameters as in "),
        (
            &[("hol", "on")],
            "--hol on: expected off, escape, lb or dlb, and parameters as in escape,pool=8,nack=on or lb,wait=100us",
        ),
        (&[("hol", "escape,pool=0")], "--hol: pool=0: expected a number of frames, 1 to 4096"),
        (
            &[("hol", "escape,period=0x")],
            "--hol: period=0x: expected 0.1x to 1000x, times the delay of a link, or a time",
        ),
        (
            &[("hol", "escape,size=3")],
            "--hol: escape has no size; it takes pool, flows, period, reclaim, nack, order, tag",
        ),
        (&[("hol", "escape,pool")], "--hol: pool: expected KEY=VALUE"),
        (&[("hol", "lb,pool=8")], "--hol: lb has no pool; it takes wait"),
        (&[("hol", "dlb,wait=0s")], "--hol: wait=0s: expected"),
        (&[("pfc", "on"), ("switch", "trimming"), ("hol", "dlb")], "--pfc: switches that trim pause nobody"),
        (&[("pfc", "on"), ("switch", "trimming"), ("hol", "escape")], "--pfc: switches that trim pause nobody"),
        (&[("deadlock", "on")], "--deadlock on: expected end or continue"),
        (
            &[("topology", "ring"), ("detour", "s0:h2=h1")],
            "--detour s0:h2=h1: expected NODE:DST=VIA, such as s0:h2=s1: ",
        ),
        (&[("topology", "ring"), ("detour", "s0:s2=s1")], "--detour s0:s2=s1: expected NODE:DST=VIA, such as "),
        (&[("switch", "shared-buffer"), ("speedup", "2")], "--speedup: goes with --switch input-queued only"),
        (&[("data-queue", "8")], "--data-queue: goes with --switch trimming only"),
        (
            &[("switch", "trimming"), ("data-queue", "2000")],
            "--data-queue 2000: expected 1 to 1000 full packets, or a size with its unit, such as 72KB",
        ),
        (
            &[("switch", "trimming"), ("wrr", "0")],
            "--wrr 0: expected 1 to 65536 packets without payload for each one with",
        ),
        (&[("switch", "trimming"), ("trim", "head")], "--trim head: expected coin or arriving or fifo"),
        (&[("switch", "trimming"), ("pfc", "on")], "--pfc: switches that trim pause nobody"),
        (&[("switch", "trimming"), ("cc", "dctcp")], "--transport: switches that trim do not mark"),
        (
            &[("switch", "trimming"), ("buffer", "9MB")],
            "--buffer: switches that trim have --data-queue and --header-queue for each output",
        ),
        (
            &[("switch", "trimming"), ("data-queue", "1KB")],
            "--data-queue 1KB: expected room for a packet of 1114 bytes",
        ),
        (&[("speedup", "0")], "--speedup 0: expected none, or 1 to 65535 outputs"),
        (&[("quantum", "0")], "--quantum 0: expected 1 to 65536 packets"),
        (
            &[("ecn", "red:5KB,1KB,0.1")],
            "--ecn red:5KB,1KB,0.1: expected off, step:BYTES, red:KMIN,KMAX,PMAX with PMAX from 0 to 1, or pi:QREF,GAIN,TIME such as pi:100KB,0.005,1ms",
        ),
        (
            &[("topology", "torus")],
            "--topology: unknown topology `torus`; known are star, dumbbell, leaf-spine, ring, fat-tree, internet2, file:PATH",
        ),
        (
            &[("flows", "f"), ("workload", "incast")],
            "--flows: a workload is given, too; to join them: --workload 'irn-heavy+file:PATH'",
        ),
        (&[("transport", "roce"), ("n", "3")], "--n: roce has not the two timeouts of IRN"),
        (
            &[("transport", "tcp")],
            "--transport: transport \"tcp\" does not exist; choose roce, irn, irn-go-back-n, irn-no-bdp, irn-no-sack, auto, iwarp or ndp",
        ),
        (&[("rto-low", "1ms")], "--transport: rto-low is longer than rto-high"),
        (&[("pfc", "on"), ("xon", "1MB")], "--xon 1MB: expected at most the threshold, 21"),
        (&[("pfc", "on"), ("buffer", "20KB")], "--pfc: 20000 bytes of buffer leave no room for 23"),
        (
            &[("topology", "star:hosts=2"), ("link-event", "down:2@1ms")],
            "--link-event down:2@1ms: expected down:LINK@TIME, up:LINK@TIME or rate:LINK=RATE@TIME with a rate of 1M or more, LINK being a number below 2 or two nodes such as 1-2",
        ),
        (&[("duration", "1ns")], no_flows),
        (&[("duration", "5")], "--duration 5: expected a time such as 2us, 500ns or 1.5ms, up to 3600s"),
        (
            &[("headers", "fixed")],
            "--headers fixed: expected real, or fixed: and bytes for each packet, such as fixed:62",
        ),
    ] {
        let error = scenario(pairs).unwrap_err();
        assert!(error.starts_with(said), "{pairs:?}: {error}");
    }
}

/// On a small network, unless another is given.
fn on_a_small_network(pairs: &[(&'static str, &str)]) -> Result<SimConfig, String> {
    let mut all = vec![("topology", "star:hosts=4"), ("workload", "permutation:bytes=1MB,start=1us")];
    all.retain(|(key, _)| pairs.iter().all(|(given, _)| given != key));
    all.extend(pairs);
    scenario(&all)
}

#[test]
fn what_would_never_end_or_say_nothing_is_refused_with_what_was_meant() {
    let shared = ("switch", "shared-buffer");
    for (pairs, said) in [
        (&[("buffer", "1")][..], "--buffer 1: expected room for a packet of 1114 bytes"),
        (&[("buffer", "240")], "--buffer 240: expected room for a packet of 1114 bytes; did you mean 240KB?"),
        (&[shared, ("buffer", "9")], "--buffer 9: expected room for a packet of 1114 bytes; did you mean 9KB?"),
        (&[shared, ("alpha", "1e-6")], "--alpha: 1e-6 times 9000000 bytes hold no packet of 1114 bytes"),
        (
            &[shared, ("pfc", "on"), ("buffer", "100KB")],
            "--buffer: 100000 bytes of buffer leave nothing beside 111848 of headroom and reserve for all inputs",
        ),
        (
            &[shared, ("pfc", "on"), ("pfc-reserve", "10MB")],
            "--pfc-reserve: 9000000 bytes of buffer leave nothing beside",
        ),
        (
            &[("pfc", "on"), ("pfc-threshold", "240KB")],
            "--pfc-threshold 240KB: expected less than the buffer, 240000 bytes: what is above it is never reached",
        ),
        (
            &[shared, ("colour-threshold", "400")],
            "--colour-threshold 400: expected room for a packet of 1114 bytes; did you mean 400KB?",
        ),
        (
            &[shared, ("colour-threshold", "9MB")],
            "--colour-threshold 9MB: expected less than the buffer, 9000000 bytes: more is never in a queue",
        ),
        (
            &[("transport", "irn,tlt=on"), ("routing", "spray")],
            "--routing: tlt takes packets that are overtaken for lost",
        ),
        (&[("transport", "ndp,tlt=on")], "--transport: ndp and tlt exclude each other; leave out tlt"),
        (&[("ecn", "step:120")], "--ecn: 120 bytes are less than one packet of 1114: every queue is longer"),
        (&[("ecn", "red:5,200,0.01")], "--ecn: 200 bytes are less than one packet of 1114: every queue is longer"),
        (&[("ecn", "step:1MB")], "--ecn: a queue of 1000000 bytes never comes about in 960000 bytes of buffer"),
        (
            &[("rto-low", "1us")],
            "--rto-low: the timeout is 1us, and a round trip through the empty network takes 8482ns",
        ),
        (&[("transport", "irn,rto-low=1us")], "--transport: the timeout is 1us, and a round trip"),
        (&[("transport", "roce,rto=1us")], "--transport: the timeout is 1us, and a round trip"),
        (
            &[("topology", "star:hosts=4,delay=1s")],
            "--topology: the timeout --rto-high is 320us, and a round trip through the empty network takes 4000000482ns; \
             lengthen the one or shorten the other",
        ),
        (&[("topology", "star:hosts=4,rate=25")], "--topology: star: rate=25: expected a rate of 1M or more, 25 being"),
        (
            &[("transport", "irn,line-rate=2"), ("cc", "dcqcn")],
            "--transport: line-rate is 2bit; expected a rate of 1M or more",
        ),
        (&[("link-event", "rate:1=10@1us")], "--link-event rate:1=10@1us: expected "),
        (
            &[("switch-at", "h0=tail-drop")],
            "--switch-at h0=tail-drop: expected SWITCHES=HOW, such as s0-s3=tail-drop or s2=fq",
        ),
        (&[("switch-at", "s0-s99=tail-drop")], "--switch-at s0-s99=tail-drop: expected SWITCHES=HOW, "),
        (&[("switch-at", "s0=tail-dorp")], "--switch-at: tail-dorp: expected fifo, lifo, random, "),
        (&[("switch-at", "s0=fq")], "--switch-at: orders go with --switch output-queued; with others, name a policy"),
        (&[("switch-at", "s0=tail-drop,k=2,s0=fq")], "--switch-at: switch "),
        (&[("queue-limit", "9")], "--queue-limit: goes with --switch output-queued only"),
        (&[("queue-limit", "9"), ("switch", "tail-drop")], "--queue-limit: goes with --switch output-queued only"),
        (&[("queue-limit", "0"), ("switch", "output-queued")], "--queue-limit 0: expected 1 to 1000000000 packets"),
        (
            &[("handshake", "on"), ("service", "uc"), ("quantum", "65536")],
            "--handshake: goes with --service rc and --qps ",
        ),
        (&[("handshake", "on"), ("qps", "reused")], "--handshake: goes with --service rc and --qps per-flow only"),
        (&[("handshake", "2")], "--handshake 2: expected on or off"),
        (&[("preempt", "on")], "--preempt: goes with --switch output-queued only"),
        (&[("preempt", "on"), ("switch", "shared-lqd")], "--preempt: goes with --switch output-queued only"),
        (&[("preempt", "yes")], "--preempt yes: expected on or off"),
        (
            &[("preempt", "on"), ("switch", "output-queued")],
            "--preempt: fifo has no ranks by which one packet interrupts another; expected --scheduling priority, rank, \
             lstf or edf",
        ),
        (
            &[("preempt", "on"), ("switch", "output-queued"), ("scheduling", "lstf"), ("switch-at", "s0=srpt")],
            "--preempt: srpt has no ranks by which",
        ),
        (
            &[("preempt", "on"), ("switch", "output-queued"), ("scheduling", "lstf"), ("switch-at", "s0=tail-drop")],
            "--switch-at: policies send packets in one piece, without --preempt",
        ),
        (
            &[("preempt", "on"), ("switch", "output-queued"), ("scheduling", "lstf"), ("cc", "rocc")],
            "--preempt: switches that interrupt packets have no congestion points of rocc",
        ),
        (
            &[("switch-at", "s0=tail-drop"), ("pfc", "on")],
            "--pfc: goes with switches that are all alike, without --switch-at",
        ),
        (
            &[("policy-event", "shared-lqd@1ms")],
            "--policy-event: goes with a policy for --switch, such as input-queued.oq: there is none to change from",
        ),
        (
            &[("switch", "tail-drop"), ("policy-event", "shared-ldq@1ms")],
            "--policy-event: shared-ldq: expected FILE.oq, or a name that irnic oq list has",
        ),
        (
            &[("switch", "tail-drop"), ("policy-event", "shared-lqd")],
            "--policy-event shared-lqd: expected POLICY@TIME, such as shared-lqd,buffer=480KB@5ms",
        ),
        (
            &[("switch", "tail-drop"), ("policy-event", "shared-lqd@5parsecs")],
            "--policy-event: 5parsecs: expected a time such as 5ms",
        ),
        (&[("switch", "tail-drop"), ("policy-event", "shared-lqd,room=4@5ms")], "--policy-event: "),
        (
            &[("switch", "shared-buffer.oq"), ("scheduling", "round-robin"), ("policy-event", "shared-lqd@5ms")],
            "--scheduling: the policy of --policy-event has nothing for it; its parameters are: buffer",
        ),
        (&[("sample", "1ns")], "--sample 1ns: expected 222ns or more: in less no packet passes"),
        (&[("until", "1us")], "--until 1us: expected more than 1us, when the first flow starts"),
        (
            &[("link-event", "down:1@0")],
            "--link-event: there is no way from host 1 to 0, to which a flow starts at 1us; with --until the run would end",
        ),
    ] {
        let error = on_a_small_network(pairs).expect_err(said);
        assert!(error.starts_with(said), "{pairs:?}: {error}");
    }
}

#[test]
fn what_only_looks_odd_is_run() {
    let shared = ("switch", "shared-buffer");
    for pairs in [
        &[("buffer", "1114")][..],
        &[("load", "1.5")],
        &[shared, ("pfc", "on"), ("buffer", "112KB")],
        &[("pfc", "on"), ("pfc-threshold", "1")],
        &[("ecn", "step:1114")],
        &[("rto-low", "9us"), ("rto-high", "9us")],
        &[("topology", "star:hosts=4,delay=30us")],
        // Without timeouts it may take any time.
        &[("topology", "star:hosts=4,delay=1s"), ("transport", "roce"), ("pfc", "on"), ("buffer", "100GB")],
        &[("topology", "star:hosts=4,rate=10M"), ("rto-low", "10ms"), ("rto-high", "10ms")],
        &[("link-event", "down:1@0"), ("until", "1ms")],
        &[("link-event", "down:1@0, up:1@2us")],
        // The flows began earlier.
        &[("link-event", "down:1@2us")],
    ] {
        on_a_small_network(pairs).unwrap_or_else(|error| panic!("{pairs:?}: {error}"));
    }
}

/// Three equal parts on a star, with one transport each.
const TOGETHER: [(&str, &str); 3] = [
    ("topology", "star:hosts=4,rate=10G"),
    ("workload", "permutation:bytes=90KB+permutation:bytes=90KB+permutation:bytes=90KB"),
    ("transport", "irn + roce,cc=dcqcn + iwarp"),
];

#[test]
fn each_part_of_a_workload_may_have_its_transport() {
    let config = scenario(&TOGETHER).unwrap();
    let presets = ["irn", "roce", "iwarp"].map(|name| TransportConfig::preset(name).unwrap());
    assert_eq!(config.setups.len(), 3);
    assert!(config.setups.iter().zip(presets).all(|(setup, preset)| setup.transport.wire == preset.wire));
    assert_eq!(config.flows.iter().filter(|flow| u16::from(flow.class) == flow.setup).count(), 12);
    // Derived values are derived for each transport: RoCE's timer, and the starting point of congestion control.
    assert_eq!(config.setups[1].transport.timer, Timer::Fixed(Some(320_000)));
    assert_eq!(config.setups[1].transport.line_rate, 10_000_000_000);
    // Marking follows the transport that needs it.
    assert!(matches!(config.switch, SwitchConfig::InputQueued(ref c) if matches!(c.ecn, Ecn::Red { .. })));
    // Flows and network are the same as with a single transport.
    let alone = scenario(&[TOGETHER[0], TOGETHER[1]]).unwrap();
    let same = |a: &Flow, b: &Flow| Flow { setup: 0, ..*a } == *b;
    assert!(config.flows.iter().zip(&alone.flows).all(|(a, b)| same(a, b)) && alone.setups.len() == 1);
}

#[test]
fn as_many_transports_as_parts_or_one() {
    for (pairs, said) in [
        (
            &[("transport", "irn+roce")][..],
            "--transport: 2 transports for one part of the workload; expected one, or one for each part",
        ),
        (&[("transport", "irn+tcp")], "--transport: transport \"tcp\" does not exist"),
        (&[TOGETHER[1], TOGETHER[2], ("cc", "dcqcn")], "--cc: there are several transports; write it in --transport"),
        (&[TOGETHER[1], TOGETHER[2], ("cap", "20")], "--cap: there are several transports; write it in --transport"),
    ] {
        let error = scenario(pairs).unwrap_err();
        assert!(error.starts_with(said), "{pairs:?}: {error}");
    }
}

#[test]
fn programs_are_told_keys_and_values_too() {
    let refused = |change: fn(&mut Experiment)| {
        let mut experiment = Experiment { topology: Topology::star(4, 40_000_000_000, 2_000), ..Experiment::default() };
        change(&mut experiment);
        experiment.config(1).unwrap_err().to_string()
    };
    for (said, change) in [
        (
            "buffer=9: expected room for a packet of 1114 bytes; did you mean 9KB?",
            (|e| e.buffer = Some(9)) as fn(&mut Experiment),
        ),
        ("sample=1ns: expected 222ns or more: in less no packet passes", |e| e.sample = Some(1)),
        ("until=1ns: expected more than ", |e| e.until = Some(1)),
        ("ecn=: 9 bytes are less than one packet", |e| e.ecn = Some(Ecn::Step { k: 9 })),
        ("transport=: expected one, or one for each part of the workload", |e| e.transports.clear()),
        ("topology=star-4: host 0 has 2 links; expected one", |e| e.topology.links.push(e.topology.links[0])),
    ] {
        let error = refused(change);
        assert!(error.starts_with(said), "{error}");
    }
}

#[test]
fn switches_that_trim_hold_eight_full_packets_unless_they_are_told() {
    let switch = |pairs: &[(&'static str, &str)]| {
        let mut all = vec![("switch", "trimming"), ("headers", "fixed:64")];
        all.extend(pairs);
        let SwitchConfig::Trimming(config) = on_a_small_network(&all).unwrap().switch else { panic!("another switch") };
        config
    };
    let eight = 8 * (1_024 + 64);
    assert_eq!(switch(&[]), TrimmingConfig::new(eight));
    let given = switch(&[
        ("data-queue", "6"),
        ("header-queue", "1KB"),
        ("wrr", "3"),
        ("trim", "fifo"),
        ("return-headers", "off"),
        ("mtu", "4096"),
    ]);
    let TrimmingConfig { data, headers, ratio, cut, returns, .. } = given;
    assert_eq!((data, headers, ratio, cut, returns), (6 * 4_160, 1_000, 3, Cut::InPlace, false));
    assert_eq!(switch(&[("data-queue", "72KB")]), TrimmingConfig::new(72_000));
}

#[test]
fn outputs_with_an_order_by_rank_may_interrupt_packets() {
    let preempts = |more: &[(&'static str, &str)]| {
        let config = on_a_small_network(&[&[("switch", "output-queued")], more].concat()).unwrap();
        let switches = std::iter::once(config.switch).chain(config.differing.into_iter().map(|(_, switch)| switch));
        let of = |switch| match switch {
            SwitchConfig::OutputQueued(config) => config.preempts,
            other => panic!("{other:?}"),
        };
        switches.map(of).collect::<Vec<_>>()
    };
    for order in ["priority", "rank", "lstf", "edf"] {
        assert_eq!(preempts(&[("scheduling", order), ("preempt", "on")]), [true], "{order}");
    }
    assert_eq!(preempts(&[("scheduling", "lstf"), ("preempt", "on"), ("switch-at", "s0=rank")]), [true, true]);
    assert_eq!(preempts(&[("preempt", "off")]), [false]);
    assert_eq!(preempts(&[("scheduling", "lstf")]), [false]);
}

#[test]
fn a_controller_marks_where_it_is_told_to() {
    let rule = |text: &str| on_a_small_network(&[("cc", "dcqcn"), ("ecn", text)]).map(|config| config.switch);
    let SwitchConfig::InputQueued(c) = rule("pi:50KB,0.005,1ms").unwrap() else { panic!("not the default") };
    assert_eq!(c.ecn, Ecn::Pi(PiConfig::new(50_000, 0.005, 1_000_000)));
    for wrong in ["pi:50KB", "pi:0,0.1,1ms", "pi:50KB,0,1ms", "pi:50KB,2,1ms", "pi:50KB,0.1,1", "pi:50KB,0.1,1ms,2"] {
        assert!(rule(wrong).unwrap_err().to_string().contains("or pi:QREF,GAIN,TIME"), "{wrong}");
    }
    let said = rule("pi:100,0.1,1ms").unwrap_err().to_string();
    assert!(said.contains("100 bytes are less than one packet"), "{said}");
}

#[test]
fn congestion_points_come_with_rocc() {
    let points = |options: &[(&'static str, &str)]| on_a_small_network(options).map(|config| config.rocc);
    assert_eq!(points(&[]).unwrap(), None);
    assert_eq!(points(&[("cc", "rocc")]).unwrap(), Some(RoccConfig::default()));
    let some = points(&[("cc", "rocc,recovery=137500ns"), ("rocc", "qref=30KB,t=100us,fraction=0,alpha=0.5")]);
    let some = some.unwrap().unwrap().of_link(10_000_000_000);
    assert_eq!((some.qref, some.qmid, some.qmax), (30_000, 60_000, 84_000));
    assert_eq!((some.period, some.fraction, some.alpha, some.beta), (100_000, 0, 0.5, 1.5));
    let table = |text: &str| points(&[("cc", "rocc"), ("rocc", text)]).unwrap().unwrap();
    assert_eq!((table("table=queue").table, table("table=age").table), (FlowTable::Queue, FlowTable::AGE));
    let bounded = FlowTable::Age { entries: Some(7), age: 1_000_000 };
    assert_eq!(table("table=age,entries=7,age=1ms").table, bounded);
    let trap = FlowTable::Elephant { entries: 128, sample: 0.25, age: 1_000_000 };
    assert_eq!((table("sample=1/4,table=elephant").table, table("compute=host").compute), (trap, Compute::Host));
    let said = |options: &[(&'static str, &str)]| points(options).unwrap_err().to_string();
    for (options, starts) in [
        (&[("rocc", "qref=30KB")][..], "--rocc: no transport heeds notices"),
        (&[("cc", "rocc"), ("rocc", "t=100us")], "--rocc: recovery=55us is not longer than the period t=100us"),
        (&[("cc", "rocc,recovery=40us")], "--cc: recovery=40us is not longer"),
        (&[("cc", "rocc"), ("rocc", "qmax=100KB")], "--rocc: qref, qmid and qmax of a link of"),
        (&[("cc", "rocc"), ("switch", "trimming")], "--switch: switches that trim have no congestion points"),
        (&[("cc", "rocc"), ("rocc", "qref")], "--rocc qref: expected qref, qmid"),
        (&[("cc", "rocc"), ("rocc", "beta=-1")], "--rocc: beta=-1: expected a number from 0"),
        (&[("cc", "rocc"), ("rocc", "fraction=17")], "--rocc: fraction=17: expected 0 to 16"),
        (&[("cc", "rocc"), ("rocc", "table=all")], "--rocc: table=all: expected queue, age or elephant"),
        (&[("cc", "rocc"), ("rocc", "entries=9")], "--rocc: entries, age and sample go with table=age"),
        (&[("cc", "rocc"), ("rocc", "table=age,sample=1")], "--rocc: sample goes with table=elephant"),
        (&[("cc", "rocc"), ("rocc", "table=elephant,sample=2")], "--rocc: sample=2: expected a share of the packets"),
        (&[("cc", "rocc"), ("rocc", "compute=nic")], "--rocc: compute=nic: expected switch or host"),
    ] {
        assert!(said(options).starts_with(starts), "{}", said(options));
    }
    let lab = Experiment { transports: vec!["irn,cc=rocc".parse().unwrap()], ..Experiment::default() };
    assert!(lab.lab(1).unwrap_err().to_string().contains("rocc needs switches that send notices"));
}
