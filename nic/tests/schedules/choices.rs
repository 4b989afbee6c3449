//! Random choices of the network and of transports.

use irnic_transports::config::{TransportConfig, WireFormat};
use irnic_transports::congestion::CongestionConfig;
use irnic_transports::recovery::Recovery;
use rand::RngExt;
use rand::rngs::StdRng;

pub fn impairments(rng: &mut StdRng) -> String {
    let mut options = Vec::new();
    match rng.random_range(0..6) {
        0 => {}
        1 | 2 => options.push(format!("loss {}%", rng.random_range(1..=30))),
        3 => options.push(format!("loss {}%", [0.1, 0.5, 1.0, 2.0][rng.random_range(0..4)])),
        _ => options.push(format!("loss gemodel {}% {}% 80% 0.5%", rng.random_range(1..=5), rng.random_range(20..=60))),
    }
    if rng.random_bool(0.8) {
        let delay = rng.random_range(1..=60);
        let jitter = if rng.random_bool(0.4) { rng.random_range(0..=delay) } else { 0 };
        options.push(format!("delay {delay}us {jitter}us"));
        if rng.random_bool(0.4) {
            options.push(format!("reorder {}%", rng.random_range(1..=40)));
        }
    }
    if rng.random_bool(0.3) {
        options.push(format!("duplicate {}%", rng.random_range(1..=20)));
    }
    if rng.random_bool(0.3) {
        options.push(format!("corrupt {}%", rng.random_range(1..=10)));
    }
    options.push("limit 100000".into());
    options.join(" ")
}

pub fn transport(rng: &mut StdRng) -> [TransportConfig; 2] {
    let preset = |name: &str, rng: &mut StdRng| {
        let mut c = TransportConfig::preset(name).unwrap();
        if rng.random_bool(0.5) {
            c.set("window", ["64", "128", "1024"][rng.random_range(0..3)]).unwrap();
        }
        if c.cap() < c.window && rng.random_bool(0.5) {
            c.set("cap", &rng.random_range(1..=110).to_string()).unwrap();
        }
        if rng.random_bool(0.3) {
            c.set("nack-threshold", &rng.random_range(1..=4).to_string()).unwrap();
        }
        c.set("evidence", if rng.random_bool(0.5) { "on" } else { "off" }).unwrap();
        c.set("credits", if rng.random_bool(0.5) { "on" } else { "off" }).unwrap();
        match rng.random_range(0..3) {
            0 => c.set("rto", "300us").unwrap(),
            1 => {
                c.set("rto-min", "80us").unwrap();
                c.set("rto-max", "5ms").unwrap();
            }
            _ if c.timer == irnic_transports::config::Timer::Fixed(None) => c.set("rto", "320us").unwrap(),
            _ => {}
        }
        if rng.random_bool(0.25) {
            c.set("retransmit-delay", ["1ns", "2us", "400us"][rng.random_range(0..3)]).unwrap();
        }
        c
    };
    let [a, b] = match rng.random_range(0..10) {
        0 | 1 => ["roce", "roce"],
        2 | 3 => ["irn", "irn"],
        4 => ["irn-go-back-n", "irn-go-back-n"],
        5 => ["irn-no-bdp", "irn-no-bdp"],
        6 => ["irn-no-sack", "irn-no-sack"],
        7 => ["auto", "auto"],
        8 => [["auto", "roce"], ["roce", "auto"], ["auto", "irn"], ["irn", "auto"]][rng.random_range(0..4)],
        _ => [["irn", "irn-go-back-n"], ["irn-no-sack", "irn"], ["irn-go-back-n", "auto"]][rng.random_range(0..3)],
    };
    let (mut a, mut b) = (preset(a, rng), preset(b, rng));
    // Each end must be able to track what the other may send.
    a.window = a.window.max(b.window);
    b.window = a.window;
    [a, b]
}

/// Chooses NDP at both ends.
pub fn pulled(rng: &mut StdRng) -> [TransportConfig; 2] {
    let mut c = TransportConfig::preset("ndp").unwrap();
    let window = ["64", "128", "1024"][rng.random_range(0..3)];
    std::array::from_fn(|_| {
        for (key, value) in [
            ("iw", ["1", "2", "7", "30"][rng.random_range(0..4)]),
            ("paths", ["1", "2", "16"][rng.random_range(0..3)]),
            ("penalty", ["on", "off", "exclude"][rng.random_range(0..3)]),
            ("rts", ["on", "on", "on", "off"][rng.random_range(0..4)]),
            ("pull-class", ["0", "3", "7"][rng.random_range(0..3)]),
            ("line-rate", ["100M", "1G", "40G"][rng.random_range(0..3)]),
            ("credits", ["on", "off"][rng.random_range(0..2)]),
            ("rto", ["300us", "1ms", "3ms"][rng.random_range(0..3)]),
            ("window", window),
        ] {
            c.set(key, value).unwrap();
        }
        c
    })
}

/// Chooses TLT at one end or at both, or tail loss probes instead. Clocks that never repair anything would loop in a
/// network without delay.
pub fn marked(rng: &mut StdRng) -> [TransportConfig; 2] {
    let name = ["irn", "irn", "irn-no-bdp", "irn-go-back-n", "roce"][rng.random_range(0..5)];
    let cap = ["1", "2", "5", "16", "none"][rng.random_range(0..5)];
    let rto = ["300us", "1ms", "3ms"][rng.random_range(0..3)];
    let mut ends = std::array::from_fn(|_| {
        let mut c = TransportConfig::preset(name).unwrap();
        for (key, value) in [
            ("cap", cap),
            ("rto", rto),
            ("evidence", ["on", "off"][rng.random_range(0..2)]),
            ("nack-threshold", ["1", "1", "3"][rng.random_range(0..3)]),
            ("tlt", ["on", "on", "rate", "off"][rng.random_range(0..4)]),
        ] {
            c.set(key, value).unwrap();
        }
        if c.discipline.tlt().is_some() {
            c.set("tlt-clock", ["adaptive", "mtu"][rng.random_range(0..2)]).unwrap();
            c.set("tlt-first", ["window", "packet"][rng.random_range(0..2)]).unwrap();
            c.set("tlt-every", ["none", "1", "4", "96"][rng.random_range(0..4)]).unwrap();
        } else if c.wire == WireFormat::Irn && c.recovery == Recovery::Selective {
            // Also a round trip, and less.
            c.set("tlp", ["off", "1us", "40us", "1ms"][rng.random_range(0..4)]).unwrap();
        }
        c
    });
    congestion(rng, &mut ends);
    for c in &ends {
        c.check().unwrap();
    }
    ends
}

/// Chooses RC3 at one end or at both, with windows that hold packets back.
pub fn low(rng: &mut StdRng) -> [TransportConfig; 2] {
    let window = ["64", "128", "1024"][rng.random_range(0..3)];
    let mut ends = std::array::from_fn(|_| {
        let mut c = TransportConfig::preset(["iwarp", "irn", "irn-no-bdp"][rng.random_range(0..3)]).unwrap();
        for (key, value) in [
            ("cap", ["1", "2", "5", "16", "none"][rng.random_range(0..5)]),
            ("rto", ["300us", "1ms", "3ms"][rng.random_range(0..3)]),
            ("evidence", ["on", "off"][rng.random_range(0..2)]),
            ("credits", ["on", "off"][rng.random_range(0..2)]),
            ("nack-threshold", ["1", "1", "3"][rng.random_range(0..3)]),
            ("overlap", ["application", "fence"][rng.random_range(0..2)]),
            ("window", window),
        ] {
            c.set(key, value).unwrap();
        }
        if rng.random_bool(0.9) {
            c.set("rc3", ["1", "2", "40"][rng.random_range(0..3)]).unwrap();
            c.set("rc3-levels", ["1", "3", "7"][rng.random_range(0..3)]).unwrap();
            c.set("rc3-reach", window).unwrap();
        }
        c
    });
    congestion(rng, &mut ends);
    for c in &ends {
        c.check().unwrap();
    }
    ends
}

/// Occasionally chooses one of the controllers, at a line rate that need not be the network's.
pub fn congestion(rng: &mut StdRng, transport: &mut [TransportConfig; 2]) {
    for c in transport {
        if rng.random_bool(0.4) {
            // This network has no switches that send notices.
            let presets = CongestionConfig::PRESETS.iter().filter(|(_, preset)| !preset.uses_fair_rate());
            c.congestion = presets.clone().nth(rng.random_range(0..presets.count())).expect("one of them").1;
            c.line_rate = [100_000_000, 1_000_000_000, 40_000_000_000][rng.random_range(0..3)];
            c.base_rtt = rng.random_range(1..=200_000);
        }
    }
}
