//! Presets, and transports as text.

use super::*;
use crate::congestion::FairRateConfig;

#[test]
fn presets_are_compositions() {
    let irn = TransportConfig::preset("irn").unwrap();
    assert_eq!((irn.recovery, irn.cap()), (Recovery::Selective, 110));
    assert_eq!(irn.timer, Timer::Irn { low: 100 * US, high: 320 * US, n: 3 });
    for (name, recovery, cap, wire) in [
        ("roce", Recovery::GoBackN, 4096, WireFormat::Roce),
        ("irn-go-back-n", Recovery::GoBackN, 110, WireFormat::Irn),
        ("irn-no-bdp", Recovery::Selective, 4096, WireFormat::Irn),
        ("irn-no-sack", Recovery::SelectiveWithoutSack, 110, WireFormat::Irn),
        ("auto", Recovery::Selective, 110, WireFormat::Auto),
        ("iwarp", Recovery::Selective, 4096, WireFormat::Irn),
    ] {
        let c = TransportConfig::preset(name).unwrap();
        assert_eq!((c.recovery, c.cap(), c.wire), (recovery, cap, wire), "{name}");
    }
}

#[test]
fn display_parses_back() {
    for name in TransportConfig::PRESETS {
        assert_eq!(TransportConfig::preset(name).map(|c| c.patience), Some(0), "virtual time has IBA's letter");
        assert_eq!(TransportConfig::parse(&format!("{name},patience=iba"), true).map(|c| c.patience), Ok(0));
        let delay = if name == "ndp" { 0 } else { 2 * US };
        for real_time in [false, true] {
            let c = TransportConfig::parse(&format!("{name},retransmit-delay={}us", delay / US), real_time).unwrap();
            assert_eq!(c.patience, if real_time { 2 * SEC } else { 0 });
            assert_eq!(c.retransmit_delay, delay);
            assert_eq!(TransportConfig::parse(&c.to_string(), real_time), Ok(c), "{c}");
        }
    }
    for (text, parameter) in
        [("irn,cc=dcqcn", ",cc.g="), ("roce,cc=dcqcn-vendor,cc.f=3", ",cc.g="), ("irn,cc=timely", ",cc.t-low=")]
    {
        let c = TransportConfig::parse(text, true).unwrap();
        let all = format!("{c:#}");
        assert_eq!(TransportConfig::parse(&all, true), Ok(c), "{all}");
        assert!(all.contains(parameter), "{all}");
    }
}

#[test]
fn pulls_have_parameters_and_go_with_nothing_that_they_replace() {
    let text = "ndp,iw=23,paths=16,penalty=off,rts=off,pull-rate=0.95,pull-class=3,line-rate=10G";
    let config = TransportConfig::parse(text, true).unwrap();
    let expected = PullConfig { window: 23, paths: 16, penalty: Penalty::Off, returns: false, rate: 950, class: 3 };
    assert_eq!((config.discipline, config.line_rate), (Discipline::Pull(expected), 10_000_000_000));
    assert_eq!(TransportConfig::parse(&config.to_string(), true), Ok(config), "{config}");
    let read = |text| TransportConfig::parse(text, false).err().map(|e| e.to_string());
    for (text, why) in [
        ("irn,iw=23", "transport parameter iw needs ndp"),
        ("ndp,cc=timely", "ndp has no congestion control but its pulls; leave out cc"),
        ("ndp,retransmit-delay=2us", "ndp sends packets again at once; leave out retransmit-delay"),
        ("ndp,iw=0", "transport parameter iw=0: expected 1 to 4096 packets"),
        ("ndp,paths=257", "transport parameter paths=257: expected auto, or 1 to 256 ways"),
        ("ndp,pull-rate=0", "transport parameter pull-rate=0: expected a part of the line's rate, 0.001 to 2"),
        ("ndp,pull-class=8", "transport parameter pull-class=8: expected a class, 0 to 7"),
    ] {
        assert_eq!(read(text).as_deref(), Some(why), "{text}");
    }
}

#[test]
fn congestion_control_is_a_parameter_like_others() {
    let text = "irn,cc=timely-patched,cc.t-low=30us,line-rate=10G,base-rtt=40us";
    let config = TransportConfig::parse(text, true).unwrap();
    let mut expected: CongestionConfig = "timely-patched".parse().unwrap();
    expected.set("t-low", "30us").unwrap();
    assert_eq!((config.congestion, config.line_rate, config.base_rtt), (expected, 10_000_000_000, 40 * US));
    assert_eq!(TransportConfig::parse(&config.to_string(), true), Ok(config), "{config}");
}

#[test]
fn overlapping_requests_are_the_applications_unless_told_otherwise() {
    let read = |text| TransportConfig::parse(text, true).map(|c| c.overlap);
    assert_eq!((read("irn"), read("auto,overlap=fence")), (Ok(Overlap::Application), Ok(Overlap::Fence)));
    let config = TransportConfig::parse("irn,overlap=fence", true).unwrap();
    assert_eq!(TransportConfig::parse(&config.to_string(), true), Ok(config), "{config}");
    let why = |text| TransportConfig::parse(text, true).err().map(|e| e.to_string());
    for (text, expected) in [
        ("irn,overlap=on", "transport parameter overlap=on: expected application or fence"),
        ("roce,overlap=fence", "plain RoCE places requests in order; leave out overlap=fence, or use an irn transport"),
    ] {
        assert_eq!(why(text).as_deref(), Some(expected));
    }
}

#[test]
fn plain_roce_requests_acknowledgements_at_an_interval_or_at_the_end() {
    let read = |text| TransportConfig::parse(text, false).map(|c| c.ack_every);
    assert_eq!((read("roce"), read("auto,ack-every=none")), (Ok(Some(16)), Ok(None)));
    assert_eq!(read("roce,ack-every=none,ack-every=4"), Ok(Some(4)));
    for every in ["none", "4"] {
        let config = TransportConfig::parse(&format!("roce,ack-every={every}"), true).unwrap();
        assert_eq!(TransportConfig::parse(&config.to_string(), true), Ok(config));
    }
    assert!(matches!(read("roce,ack-every=0"), Err(ConfigError::Value(_))));
    assert_eq!(read("irn,ack-every=4"), Err(ConfigError::IrnAcks));
}

#[test]
fn acknowledgements_have_the_priority_of_the_rest_unless_told_otherwise() {
    let read = |text| TransportConfig::parse(text, false).map(|c| c.ack_priority);
    assert_eq!((read("irn"), read("irn,ack-priority=7")), (Ok(None), Ok(Some(7))));
    assert_eq!(read("irn,ack-priority=7,ack-priority=same"), Ok(None));
    let config = TransportConfig::parse("irn,ack-priority=7", true).unwrap();
    assert_eq!(TransportConfig::parse(&config.to_string(), true), Ok(config), "{config}");
    assert!(matches!(read("irn,ack-priority=8"), Err(ConfigError::Value(_))));
}

#[test]
fn a_receiver_answers_each_gap_once_unless_told_otherwise() {
    for name in TransportConfig::PRESETS {
        assert_eq!(TransportConfig::preset(name).unwrap().nak, Nak::PerGap, "{name}");
    }
    let config: TransportConfig = "roce,nak=per-packet".parse().unwrap();
    assert_eq!((config.nak, config.to_string().parse()), (Nak::PerPacket, Ok(config)));
}

#[test]
fn iwarp_is_tcp_on_irns_packets() {
    let iwarp = TransportConfig::preset("iwarp").unwrap();
    assert_eq!((iwarp.nack_threshold, iwarp.flow), (3, FlowControl::None));
    assert_eq!(iwarp.congestion, CongestionConfig::Tcp(TcpConfig::RFC));
    assert_eq!(iwarp.timer, Timer::Tcp { min: 320 * US, max: 64 * MS });
    let other: TransportConfig = "iwarp,rto-min=50us,rto-max=1s,cc.initial=10".parse().unwrap();
    assert_eq!(other.timer, Timer::Tcp { min: 50 * US, max: SEC });
    assert_eq!((other.congestion.to_string(), other.to_string().parse()), ("tcp,initial=10".to_owned(), Ok(other)));
    // The timer works with other transports, too.
    assert_eq!("irn,rto=rfc6298".parse::<TransportConfig>().unwrap().timer, iwarp.timer);
    assert!("iwarp,rto-min=1s".parse::<TransportConfig>().is_err());
}

#[test]
fn what_needs_telemetry_is_for_networks_that_have_it() {
    let hpcc = TransportConfig::parse("irn,cc=hpcc", true).unwrap();
    assert_eq!(hpcc.check_without_telemetry(), Err(ConfigError::NoTelemetry));
    let rocc = TransportConfig::parse("irn,cc=rocc", true).unwrap();
    assert_eq!((rocc.check_without_telemetry(), rocc.check_without_notices()), (Ok(()), Err(ConfigError::NoNotices)));
    let slack: TransportConfig = "irn,slack=constant:2ms".parse().unwrap();
    assert_eq!(
        (slack.check_without_telemetry(), slack.check_without_notices()),
        (Err(ConfigError::NoSlack), Err(ConfigError::NoSlack))
    );
    let edge: TransportConfig = "irn,edge=codel".parse().unwrap();
    assert_eq!(edge.check_without_telemetry(), Err(ConfigError::NoEdge));
    assert_eq!(edge.to_string().parse(), Ok(edge));
    let timely = TransportConfig::parse("irn,cc=timely", true).unwrap();
    assert_eq!((timely.check_without_telemetry(), timely.check_without_notices()), (Ok(()), Ok(())));
}

#[test]
fn a_reaction_point_is_fitted_to_the_congestion_point() {
    let mut point = FairRateConfig::of_link(1_000_000_000);
    (point.period, point.least) = (1_000_000, 10_000_000);
    let fitted = |text: &str| {
        let mut transport = TransportConfig::parse(text, true).unwrap();
        transport.fit_to_notices(Some(&point)).map(|()| transport.congestion.to_string())
    };
    let same = |text: &str| Ok(TransportConfig::parse(text, true).unwrap().congestion.to_string());
    assert_eq!(fitted("irn,cc=rocc"), same("irn,cc=rocc,cc.recovery=1375us,cc.min-rate=10M"));
    assert_eq!(
        fitted("irn,cc=rocc,cc.recovery=2ms,cc.min-rate=50M"),
        same("irn,cc=rocc,cc.recovery=2ms,cc.min-rate=50M")
    );
    let short = fitted("irn,cc=rocc,cc.recovery=1ms").unwrap_err().to_string();
    assert_eq!(short, "rocc: recovery=1ms is no longer than the period of notices, 1ms; expected 1.375 of it");
    assert_eq!(fitted("irn,cc=timely"), same("irn,cc=timely"));
    let mut rocc = TransportConfig::parse("irn,cc=rocc", true).unwrap();
    assert_eq!(rocc.fit_to_notices(None), Err(ConfigError::NoNotices));
}

#[test]
fn tlt_follows_windows_or_rates() {
    for (text, window, rate) in [
        ("irn", false, false),
        ("irn,tlt=off", false, false),
        ("irn,tlt=on", true, false),
        ("irn-no-bdp,cc=hpcc,tlt=on,tlt-clock=mtu,tlt-first=packet", true, false),
        ("iwarp,tlt=on,tlt-clock=probe", true, false),
        ("irn-no-bdp,tlt=rate", false, true),
        ("irn-go-back-n,tlt=on", false, true),
        ("roce,cc=dcqcn,tlt=on,tlt-every=none", false, true),
        ("roce,tlt=on,tlt-every=200", false, true),
    ] {
        let config: TransportConfig = text.parse().unwrap();
        assert_eq!((config.has_tlt_window(), config.has_tlt_rate()), (window, rate), "{text}");
        assert_eq!(config.to_string().parse(), Ok(config), "{config}");
    }
    assert!(!TransportConfig::preset("irn").unwrap().to_string().contains("tlt"));
}

#[test]
fn probes_are_of_windows() {
    for (text, discipline) in [
        ("irn", Discipline::None),
        ("irn,tlp=off", Discipline::None),
        ("irn,tlp=10us", Discipline::Tlp(10 * US)),
        ("iwarp,tlp=1ms,base-rtt=80us", Discipline::Tlp(MS)),
    ] {
        let config: TransportConfig = text.parse().unwrap();
        assert_eq!(config.discipline, discipline, "{text}");
        assert_eq!(config.to_string().parse(), Ok(config), "{config}");
    }
    assert!(!TransportConfig::preset("irn").unwrap().to_string().contains("tlp"));
}

#[test]
fn probes_of_the_real_time_timer_go_with_it() {
    let probe = |text, real_time| match TransportConfig::parse(text, real_time).unwrap().timer {
        Timer::Estimated { probe, .. } => Some(probe),
        _ => None,
    };
    for (text, in_real_time, in_virtual_time) in [
        ("irn", Some(50 * US), None),
        ("irn,rto=1ms", None, None),
        ("irn,rto-min=1ms", Some(50 * US), Some(0)),
        ("irn,tlp=off,rto-min=1ms", Some(0), Some(0)),
        ("irn,tlp=2us,rto-min=1ms", Some(2000), Some(2000)),
        ("roce,tlp=2us,rto-min=1ms,tlt=on", Some(2000), Some(2000)),
        ("ndp,rto-min=1ms", Some(0), Some(0)),
    ] {
        assert_eq!((probe(text, true), probe(text, false)), (in_real_time, in_virtual_time), "{text}");
    }
}

#[test]
fn errors_name_what_is_wrong() {
    for (text, part) in [
        ("roce,nak=twice", "nak=twice: expected per-gap or per-packet"),
        ("tcp", "\"tcp\" does not exist"),
        ("irn,cap", "parameter=value"),
        ("irn,cap=0", "cap=0: expected none, or 1 to 65536"),
        ("irn,window=100", "power of two"),
        ("irn,colour=red", "\"colour\" does not exist"),
        ("irn,colour=red", ", rc3-reach, slack, edge, cc, line-rate, base-rtt or cc.PARAMETER"),
        ("irn,rto-low=1s", "rto-low is longer than rto-high"),
        ("roce,recovery=selective", "go-back-n"),
        ("irn,rto-high=5", "such as 320us"),
        ("irn,rto-low=0", "such as 320us"),
        ("roce,rto=0ns", "such as 320us"),
        ("irn,retransmit-delay=2", "retransmit-delay=2: expected 0, or a time of at most 1s such as 2us"),
        ("irn,retransmit-delay=2s", "at most 1s"),
        ("irn,patience=0", "patience=0: expected iba, or a time such as 2s"),
        ("irn,patience=long", "expected iba"),
        ("irn,cc=cubic", "congestion control \"cubic\" does not exist; choose none, aimd"),
        ("irn,cc.t-low=1us", "\"t-low\" does not exist"),
        ("irn,cc=timely,cc.t-low=x", "t-low=x: expected"),
        ("irn,line-rate=fast", "such as 40G"),
        ("roce,tlp=10us", "tlp needs the packets of IRN and recovery=selective"),
        ("auto,tlp=10us", "tlp needs the packets of IRN and recovery=selective"),
        ("irn-no-sack,tlp=10us", "tlp needs the packets of IRN and recovery=selective"),
        ("ndp,tlp=10us", "ndp and tlp exclude each other; leave out tlp"),
        ("irn,tlt=on,tlp=10us", "tlt and tlp exclude each other; leave out tlp"),
        ("irn,tlp=10us,retransmit-delay=2us", "leave out retransmit-delay"),
        ("irn,tlp=soon", "tlp=soon: expected off, or a time such as 10us"),
        ("ndp,tlt=on", "ndp and tlt exclude each other; leave out tlt"),
        ("auto,tlt=on", "tlt marks packets from the first on"),
        ("roce,tlt=window", "tlt=window needs the packets of IRN and recovery=selective"),
        ("irn-no-sack,tlt=window", "tlt=window needs the packets of IRN and recovery=selective"),
        ("irn,tlt=on,retransmit-delay=2us", "leave out retransmit-delay"),
        ("irn,tlt-clock=mtu", "tlt-clock needs tlt=on"),
        ("irn,rc3-reach=64", "rc3-reach needs rc3=on"),
        ("irn,rc3=on,tlt=rate", "rc3 and tlt exclude each other; leave out tlt"),
        ("irn,tlt=maybe", "tlt=maybe: expected off or on or window or rate"),
        ("roce,tlt=on,tlt-every=0", "tlt-every=0: expected none, or 1 to 65536 packets"),
    ] {
        let e = TransportConfig::parse(text, false).unwrap_err().to_string();
        assert!(e.contains(part), "{text}: {e}");
    }
}

#[test]
fn what_was_given_is_remembered() {
    let parsed: ParsedTransport = "irn, window = 256,cc=tcp,cc.initial=10,rto-low=50us".parse().unwrap();
    assert_eq!(parsed.preset, "irn");
    assert_eq!((parsed.config.window, parsed.config.timer), (256, Timer::Irn { low: 50 * US, high: 320 * US, n: 3 }));
    assert_eq!(parsed.given.iter().collect::<Vec<_>>(), ["window", "cc", "cc.initial", "rto-low"]);
    assert!(["window", "rto-low", "cc.initial"].iter().all(|key| parsed.given.has(key)) && parsed.given.has_timer());
    // Values and presets that look like parameter names are not counted.
    assert!(["cap", "rto", "initial", "base-rtt"].iter().all(|key| !parsed.given.has(key)));
    let parsed: ParsedTransport = "roce,window=64".parse().unwrap();
    assert_eq!((parsed.preset, parsed.given.has_timer()), ("roce", false));
    for preset in TransportConfig::PRESETS {
        let parsed = ParsedTransport::parse(preset, true).unwrap();
        assert_eq!((parsed.preset, parsed.given), (preset, GivenKeys::default()));
    }
}
