use super::*;
use irnic_units::{MAX_BYTES, MAX_NS, MAX_RATE};
use proptest::prelude::*;

fn parse(text: &str) -> Impairments {
    text.parse().unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

#[test]
fn what_is_written_prints_in_canonical_form() {
    for (text, canonical) in [
        ("", ""),
        (" \t;; ", ""),
        ("loss 1%", "loss 1%"),
        ("loss random 1% 25%", "loss 1% 25%"),
        ("drop .5", "loss 0.5%"),
        ("loss gemodel 1% 10% 70% 0.1%", "loss gemodel 1% 10% 70% 0.1%"),
        ("loss gemodel 1%", "loss gemodel 1% 99% 100% 0%"),
        ("ecn loss 5%", "loss 5% ecn"),
        ("rate 1gbit ecn 100k", "ecn 102400 rate 1gbit"),
        ("rate 1gbit ecn 5kb 200k 1%", "ecn 5120 204800 1% rate 1gbit"),
        ("rate 1gbit ecn 1m 1m 100%", "ecn 1048576 rate 1gbit"),
        ("ecn 0 loss 1% rate 1gbit", "loss 1% ecn 0 rate 1gbit"),
        ("delay 100us 10us 25% distribution normal", "delay 100us 10us 25% distribution normal"),
        ("distribution uniform latency 1ms 100", "delay 1ms 100us"),
        ("delay 10us 0 50%", "delay 10us 0ns 50%"),
        ("reorder 25% 50% gap 5 delay 10ms", "delay 10ms reorder 25% 50% gap 5"),
        ("delay 1ms reorder 3% gap 1", "delay 1ms reorder 3%"),
        ("duplicate 1% corrupt 0.1% 5%", "duplicate 1% corrupt 0.1% 5%"),
        ("rate 10Gbit 24 limit 500 seed 42", "rate 10gbit 24 limit 500 seed 42"),
        ("rate 1mbps -14", "rate 8mbit -14"),
        ("rate 1gbit trim 8", "rate 1gbit trim 8"),
        ("rx rate 1gbit trim 8 headers 8k wrr 10 return", "rx rate 1gbit trim 8 headers 8192 return"),
        ("return wrr 3 headers 32k trim 8 rate 1gbit", "rate 1gbit trim 8 wrr 3 return"),
        ("trim 9kb headers 9k rate 1gbit", "rate 1gbit trim 9216b"),
        ("trim 500B headers 9k rate 1gbit", "rate 1gbit trim 500b headers 9216"),
        ("loss 1% ecn rate 1gbit trim 1", "loss 1% ecn rate 1gbit trim 1"),
        ("rate 1gbit prio", "rate 1gbit prio 1000"),
        ("prio 5m delay 10ms rate 1gbit", "delay 10ms rate 1gbit prio 5242880b"),
        ("rx rate 1gbit prio limit 4096", "rx rate 1gbit prio 4096 limit 4096"),
        ("rate 1gbit prio 8 limit 9 loss 1% ecn", "loss 1% ecn rate 1gbit prio 8 limit 9"),
        ("tx rate 1gbit limit 1000 red 300", "tx rate 1gbit red 300 limit 1000"),
        ("rate 1gbit red 300k ecn 100k", "ecn 102400 rate 1gbit red 307200b"),
        ("tx rate 1gbit rocc", "tx rate 1gbit rocc 75000 150000 210000 1ms"),
        ("tx rocc 150000 rate 40gbit limit 9", "tx rate 40gbit rocc 150000 300000 420000 100us limit 9"),
        ("tx rocc 75k 150k 210k 2ms rate 1mbit", "tx rate 1mbit rocc 76800 153600 215040 2ms"),
        ("tx rate 1mbit rocc 3ms; rx loss 1%", "tx rate 1mbit rocc 75000 150000 210000 3ms; rx loss 1%"),
        ("tx rate 1mbit rocc 1b", "tx rate 1mbit rocc 1 2 3 1s"),
        ("tx loss 1% delay 10us; rx loss 2%", "tx loss 1% delay 10us; rx loss 2%"),
        ("rx loss 2%;tx loss 1%", "tx loss 1%; rx loss 2%"),
        ("tx loss 1%;", "tx loss 1%"),
        ("rx corrupt 1%", "rx corrupt 1%"),
        ("rx loss 1%; tx loss 1%", "loss 1%"),
    ] {
        let spec = parse(text);
        assert_eq!(spec.to_string(), canonical, "{text}");
        assert_eq!(parse(canonical), spec, "{text}");
    }
}

#[test]
fn loss_is_added_both_ways_and_never_to_other_loss() {
    let half = Percent::parse("0.5").expect("a percentage");
    let of = |text: &str| parse(text).with_loss(half).map(|all| all.to_string());
    assert_eq!(of("delay 50us").as_deref(), Some(parse("delay 50us loss 0.5%").to_string().as_str()));
    assert_eq!(of("tx delay 1us").as_deref(), Some(parse("tx loss 0.5% delay 1us; rx loss 0.5%").to_string().as_str()));
    assert_eq!(of("rx loss 1%"), None);
}

#[test]
fn errors_name_the_token_its_place_and_what_was_expected() {
    for (text, token, column, expected) in [
        ("loose 1%", "loose", 1, EXPECT_OPTION),
        ("loss", "", 5, EXPECT_LOSS),
        ("loss ; rx loss 1%", "", 6, EXPECT_LOSS),
        ("loss x", "x", 6, EXPECT_LOSS),
        ("loss 101%", "101%", 6, EXPECT_PERCENT),
        ("loss 1% 2x", "2x", 9, EXPECT_PERCENT),
        ("loss 1% -2%", "-2%", 9, EXPECT_PERCENT),
        ("loss gemodel", "", 13, EXPECT_PERCENT),
        ("loss 1% 2% 3%", "3%", 12, EXPECT_OPTION),
        ("loss 1% loss 2%", "loss", 9, EXPECT_ONCE),
        ("delay 5parsec", "5parsec", 7, EXPECT_TIME),
        ("delay", "", 6, EXPECT_TIME),
        ("delay 10us distribution gamma", "gamma", 25, EXPECT_DISTRIBUTION),
        ("delay 10us distribution normal", "distribution", 12, NEED_JITTER),
        ("reorder 25%", "reorder", 1, NEED_DELAY),
        ("delay 0 reorder 25%", "reorder", 9, NEED_DELAY),
        ("delay 1ms gap 5", "gap", 11, NEED_REORDER),
        ("delay 1ms reorder 5% gap 0", "0", 26, EXPECT_GAP),
        ("ecn", "ecn", 1, NEED_LOSS),
        ("rate 1gbit ecn", "ecn", 12, NEED_LOSS),
        ("loss 1% ecn 100k", "ecn", 9, NEED_RATE),
        ("rate 1gbit ecn 100x", "100x", 16, EXPECT_MIN),
        ("rate 1gbit ecn 100k 50k 1%", "50k", 21, EXPECT_MAX),
        ("rate 1gbit ecn 5k 200k", "", 23, EXPECT_PERCENT),
        ("rate fast", "fast", 6, EXPECT_RATE),
        ("rate 10", "10", 6, EXPECT_RATE),
        ("rate 1gbit 99999", "99999", 12, EXPECT_OVERHEAD),
        ("limit 0", "0", 7, EXPECT_LIMIT),
        ("rate 1gbit trim", "", 16, EXPECT_ROOM),
        ("rate 1gbit trim 0", "0", 17, EXPECT_ROOM),
        ("rate 1gbit trim 0k", "0k", 17, EXPECT_ROOM),
        ("rate 1gbit trim 1.5", "1.5", 17, EXPECT_ROOM),
        ("rate 1gbit trim 1000001", "1000001", 17, EXPECT_ROOM),
        ("rate 1gbit trim 8 headers 0", "0", 27, room::EXPECT_HEADERS),
        ("rate 1gbit trim 8 wrr 0", "0", 23, room::EXPECT_RATIO),
        ("rate 1gbit trim 8 trim 8", "trim", 19, EXPECT_ONCE),
        ("rate 1gbit trim 8 return return", "return", 26, EXPECT_ONCE),
        ("trim 8", "trim", 1, room::NEED_RATE),
        ("rate 1gbit headers 8k", "headers", 12, room::NEED_TRIM),
        ("rate 1gbit wrr 10", "wrr", 12, room::NEED_TRIM),
        ("return", "return", 1, room::NEED_TRIM),
        ("prio", "prio", 1, room::PRIO_NEEDS_RATE),
        ("rate 1gbit prio 0", "0", 17, EXPECT_ROOM),
        ("rate 1gbit prio 1.5", "1.5", 17, EXPECT_ROOM),
        ("rate 1gbit prio eight", "eight", 17, EXPECT_OPTION),
        ("rate 1gbit prio 8 prio", "prio", 19, EXPECT_ONCE),
        ("rate 1gbit prio trim 8", "prio", 12, room::PRIO_ALONE),
        ("rate 1gbit red 8 prio", "prio", 18, room::PRIO_ALONE),
        ("tx rate 1gbit rocc prio", "prio", 20, room::PRIO_ALONE),
        ("rate 1gbit ecn 30k prio", "prio", 20, room::PRIO_ALONE),
        ("rate 1gbit policy shared-lqd prio", "prio", 30, room::PRIO_ALONE),
        ("rate 1gbit trim 8 ecn 30k", "ecn", 19, NO_ECN),
        ("rate 1gbit trim 8 red 30k", "red", 19, NO_RED),
        ("red 300", "red", 1, NEED_RATE_FOR_RED),
        ("rate 1gbit red", "", 15, EXPECT_ROOM),
        ("rate 1gbit red 30x", "30x", 16, EXPECT_ROOM),
        ("rate 1gbit rocc", "rocc", 12, rocc::ONLY_TX),
        ("rx rate 1gbit rocc", "rocc", 15, rocc::ONLY_TX),
        ("tx rocc", "rocc", 4, rocc::NEED_RATE),
        ("tx rate 1gbit trim 8 rocc", "rocc", 22, rocc::NOT_TRIM),
        ("tx rate 1gbit rocc 75k 150k", "", 28, rocc::EXPECT_QUEUES),
        ("tx rate 1gbit rocc 75k 75k 210k", "75k", 24, rocc::EXPECT_QUEUES),
        ("tx rate 1gbit rocc 75k 150k 150k", "150k", 29, rocc::EXPECT_QUEUES),
        ("tx rate 1gbit rocc 2s", "2s", 20, rocc::EXPECT_PERIOD),
        ("tx rate 1gbit rocc rocc", "rocc", 20, EXPECT_ONCE),
        ("seed -1", "-1", 6, EXPECT_SEED),
        ("tx loss 1%; tx loss 2%", "tx", 13, EXPECT_SECTION),
        ("loss 1%; rx loss 2%", "rx", 10, EXPECT_SECTION),
        ("tx loss 1%; loss 2%", "loss", 13, EXPECT_SECTION),
        ("verlüst loss x", "verlüst", 1, EXPECT_OPTION),
        ("loss 1% ü x", "ü", 9, EXPECT_OPTION),
    ] {
        let error = text.parse::<Impairments>().expect_err(text);
        assert_eq!((error.token.as_str(), error.column, error.expected.as_ref()), (token, column, expected), "{text}");
    }
}

#[test]
fn a_message_is_one_line_however_odd_the_text() {
    let error = "loss \u{1b}[31m\u{7}".parse::<Impairments>().unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"impairment "\u{1b}[31m\u{7}" at column 6: expected a percentage such as 0.1%, or random, or gemodel"#
    );
    let long = "x".repeat(10_000).parse::<Impairments>().unwrap_err();
    assert!(long.to_string().len() < 300);
    let end = "delay".parse::<Impairments>().unwrap_err();
    assert!(end.to_string().starts_with("impairment ends at column 6: expected a time"));
}

fn percent() -> impl Strategy<Value = Percent> {
    prop_oneof![Just(Percent::ZERO), Just(Percent::HUNDRED), (0.0..1.0).prop_map(Percent::from_share)]
}

fn probability() -> impl Strategy<Value = Probability> {
    (percent(), percent()).prop_map(|(percent, correlation)| Probability { percent, correlation })
}

fn loss() -> impl Strategy<Value = Loss> {
    prop_oneof![
        probability().prop_map(Loss::Random),
        (percent(), percent(), percent(), percent()).prop_map(|(p, r, bad, good)| Loss::GilbertElliott {
            p,
            r,
            bad,
            good
        }),
    ]
}

fn span() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 1..2_000u64, (1..5_000u64).prop_map(|us| us * 1000), 0..=MAX_NS]
}

fn delay() -> impl Strategy<Value = Delay> {
    (span(), span(), percent(), 0..4usize).prop_map(|(ns, jitter_ns, correlation, shape)| {
        let shape = if ns > 0 && jitter_ns > 0 { shape } else { 0 };
        Delay { ns, jitter_ns, correlation, distribution: Distribution::NAMES[shape].1 }
    })
}

fn ecn() -> impl Strategy<Value = Ecn> {
    let red = (0..1u64 << 40, 0..1u64 << 30, percent()).prop_map(|(min, more, probability)| {
        let max = (min + more).min(MAX_BYTES);
        Ecn::Queue(Red { min: min.min(max), max, probability })
    });
    prop_oneof![Just(Ecn::Lost), red]
}

fn room() -> impl Strategy<Value = Room> {
    prop_oneof![(1..=MAX_PACKETS).prop_map(Room::Packets), (1..=MAX_BYTES).prop_map(Room::Bytes)]
}

fn trim() -> impl Strategy<Value = Trim> {
    (room(), prop::option::of(1..=MAX_BYTES), 1..=MAX_PACKETS, any::<bool>()).prop_map(
        |(data, headers, ratio, returns)| {
            let default = Trim::new(data);
            Trim { headers: headers.unwrap_or(default.headers), ratio, returns, ..default }
        },
    )
}

fn point() -> impl Strategy<Value = CongestionPoint> {
    (prop::array::uniform3(1..MAX_BYTES / 3), 1_000..=1_000_000_000u64).prop_map(|([qref, more, most], period)| {
        CongestionPoint { qref, qmid: qref + more, qmax: qref + more + most, period }
    })
}

fn spec() -> impl Strategy<Value = Spec> {
    let reorder = (probability(), 1..10u32).prop_map(|(probability, gap)| Reorder { probability, gap });
    let rate = (1..=MAX_RATE, -MAX_OVERHEAD..=MAX_OVERHEAD).prop_map(|(bits, overhead)| Rate { bits, overhead });
    (
        (prop::option::of(loss()), prop::option::of(ecn())),
        (prop::option::of(delay()), prop::option::of(reorder)),
        prop::option::of(probability()),
        prop::option::of(probability()),
        (prop::option::of(rate), prop::option::of(trim()), prop::option::of(room()), prop::option::of(point())),
        prop::option::of(room()),
        prop::option::of(1..=MAX_LIMIT),
        prop::option::of(any::<u64>()),
    )
        .prop_map(
            |((loss, ecn), (delay, reorder), duplicate, corrupt, (rate, trim, red, rocc), prio, limit, seed)| {
                let trim = trim.filter(|_| rate.is_some());
                let prio = prio.filter(|_| rate.is_some() && trim.is_none());
                let marks = rate.is_some() && trim.is_none() && prio.is_none();
                Spec {
                    loss,
                    ecn: ecn.filter(|ecn: &Ecn| if *ecn == Ecn::Lost { loss.is_some() } else { marks }),
                    delay,
                    reorder: reorder.filter(|_| delay.is_some_and(|d| d.ns > 0)),
                    duplicate,
                    corrupt,
                    rate,
                    trim,
                    colour: red.filter(|_| marks),
                    rocc: rocc.filter(|_| marks),
                    prio,
                    policy: None,
                    limit,
                    seed,
                }
            },
        )
}

proptest! {
    #[test]
    fn what_is_printed_reads_back_the_same(tx in spec(), mut rx in spec(), same: bool) {
        rx.rocc = None;
        let same = same && tx.rocc.is_none();
        let impairments = Impairments { rx: if same { tx.clone() } else { rx }, tx };
        let text = impairments.to_string();
        prop_assert_eq!(text.parse::<Impairments>(), Ok(impairments), "{}", text);
    }

    #[test]
    fn no_text_panics(text: String) {
        let _ = text.parse::<Impairments>().map_err(|error| error.to_string());
    }

    #[test]
    fn no_salad_of_words_panics(words in prop::collection::vec(prop_oneof![
        Just("loss"), Just("random"), Just("gemodel"), Just("delay"), Just("distribution"), Just("normal"), Just("reorder"),
        Just("gap"), Just("duplicate"), Just("corrupt"), Just("rate"), Just("limit"), Just("seed"), Just("ecn"), Just("tx"),
        Just("trim"), Just("headers"), Just("wrr"), Just("return"), Just("red"), Just("prio"), Just("8"), Just("8k"),
        Just("rx"), Just(";"), Just("1%"), Just("10us"), Just("1gbit"), Just("30k"), Just("7"), Just("-3"), Just("."), Just("é%"),
    ], 0..12)) {
        let text = words.join(" ");
        match text.parse::<Impairments>() {
            Ok(spec) => prop_assert_eq!(spec.to_string().parse(), Ok(spec)),
            Err(error) => {
                prop_assert!(error.column <= text.chars().count() + 1);
                prop_assert!(!error.to_string().contains('\n'));
            }
        }
    }
}
