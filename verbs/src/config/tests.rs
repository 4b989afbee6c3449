//! Results of files and variables, and the messages about invalid ones.

use std::path::Path;

use irnic_nic::clock::Clock;
use irnic_transports::recovery::Recovery;
use irnic_transports::wire::Mtu;

use super::error::Origin;
use super::file::{self, File};
use super::keys::{self, KEYS};
use super::{Config, PortKind, Stats, Variables};

fn variables(pairs: &[(&str, &str)]) -> Variables {
    let mut variables = Variables::default();
    for (name, value) in pairs {
        variables.set(name, value, Origin::Variable((*name).into()));
    }
    variables
}

fn load(text: &str, pairs: &[(&str, &str)]) -> Result<Config, String> {
    let file = match text {
        "" => File::default(),
        text => file::parse(Path::new("irnic.toml"), text).map_err(|e| e.to_string())?,
    };
    Config::from_layers(&file, &variables(pairs)).map_err(|e| e.to_string())
}

#[test]
fn nothing_said_is_one_device_that_talks_to_anybody() {
    let config = load("", &[]).unwrap();
    let [device] = &config.devices[..] else { panic!("{config:?}") };
    assert_eq!((device.name.as_str(), &device.port, device.mtu), ("irnic0", &PortKind::Auto, None));
    assert_eq!(
        device.transport.to_string(),
        "auto,recovery=selective,nak=per-gap,cap=4096,rto-min=250us,rto-max=64ms,window=4096,nack-threshold=1,retransmit-delay=0ns,evidence=on,placement=watched,patience=2s,credits=on,tlp=50us"
    );
    assert_eq!(config.stats, Stats::Off);
}

#[test]
fn congestion_control_has_keys_of_its_own() {
    let config = load("cc = 'timely,t-low=30us'\nbase-rtt = '50us'\n", &[("IRNIC_LINE_RATE", "10G")]).unwrap();
    let transport = config.devices[0].transport.to_string();
    assert!(transport.ends_with(",cc=timely,cc.t-low=30us,line-rate=10000000000bit,base-rtt=50us"), "{transport}");
    let said = load("\ncc = 'cubic'\n", &[]).unwrap_err();
    assert!(said.contains(":2:") && said.contains("\"cubic\" does not exist"), "{said}");
}

#[test]
fn variables_win_over_a_device_and_a_device_over_what_stands_above() {
    let text = "mtu = 1024\nport = 'shm'\nstats = true\n[[device]]\nname = 'a'\nmtu = 2048\n[[device]]\nname = 'b'\n";
    let config = load(text, &[("IRNIC_PORT", "udp")]).unwrap();
    let seen: Vec<_> = config.devices.iter().map(|d| (d.name.as_str(), d.mtu, d.port.clone())).collect();
    assert_eq!(seen, [("a", Some(Mtu::B2048), PortKind::Udp), ("b", Some(Mtu::B1024), PortKind::Udp)]);
    assert_eq!(config.stats, Stats::Text);
    assert_eq!(config.devices[0].given.get("mtu").unwrap().1.to_string(), "irnic.toml:6");
    assert_eq!(config.devices[1].given.get("mtu").unwrap().1.to_string(), "irnic.toml:1");
}

#[test]
fn a_transport_resets_the_parameters_of_weaker_sources_only() {
    let text = "recovery = 'go-back-n'\ncap = 100\n";
    let device = |pairs: &[(&str, &str)]| load(text, pairs).unwrap().devices[0].transport;
    assert_eq!((device(&[]).recovery, device(&[]).cap()), (Recovery::GoBackN, 100));
    let irn = device(&[("IRNIC_TRANSPORT", "irn"), ("IRNIC_CAP", "7")]);
    assert_eq!((irn.recovery, irn.cap()), (Recovery::Selective, 7));
}

#[test]
fn the_variable_of_the_name_chooses_one_of_several_devices() {
    let text = "[[device]]\nname = 'a'\n[[device]]\nname = 'b'\nmtu = 512\n";
    let config = load(text, &[("IRNIC_DEVICE", "b")]).unwrap();
    assert_eq!((config.devices.len(), config.devices[0].mtu), (1, Some(Mtu::B512)));
    let error = load(text, &[("IRNIC_DEVICE", "c")]).unwrap_err();
    assert_eq!(error, "IRNIC_DEVICE: name \"c\": expected a device of the file: a, b");
    assert_eq!(load("", &[("IRNIC_DEVICE", "c")]).unwrap().devices[0].name, "c");
}

#[test]
fn every_key_refuses_what_it_cannot_be_in_one_line_that_says_where_and_what_would_do() {
    // A value that is invalid for every key.
    let bad = "no such thing / 7 \u{7}";
    for key in &KEYS {
        let (value, part) = match key.name {
            "pcap" => ("/nonexistent/x", "directory that exists"),
            "stats" => ("/nonexistent/x", "on (text to standard error), or off"),
            "impair" => ("lose 1%", "expected"),
            _ => (bad, ""),
        };
        let error = load("", &[(key.variable, value)]).expect_err(key.name);
        let start = format!("{}: {} \"{value}\": ", key.variable, key.name);
        assert!(error.starts_with(&start) && error.contains(part), "{error}");
        assert!(error.contains("expected") || error.contains("choose"), "{error}");
        assert!(!error.contains('\n'), "{error}");
        let error = load(&format!("\n{} = '{}'", key.name, value.replace('\u{7}', "")), &[]).expect_err(key.name);
        assert!(error.starts_with(&format!("irnic.toml:2: {} \"", key.name)), "{error}");
    }
}

#[test]
fn the_clock_of_a_device_is_what_it_is_said_to_be() {
    let config = load("clock = '1GHz,drift=-20,offset=5'\ntimestamps = 'kernel'", &[]).expect("good values");
    let device = &config.devices[0];
    assert_eq!((device.clock, device.kernel_stamps), (Clock::new(1_000_000_000, -20.0, 5), true));
    let config = load("", &[("IRNIC_CLOCK", "2MHz")]).expect("good values");
    let device = &config.devices[0];
    assert_eq!((device.clock, device.kernel_stamps), (Clock::new(2_000_000, 0.0, 0), false));
}

#[test]
fn a_frame_port_is_described_in_its_own_words() {
    let text = "port = 'frames:dgram:local=/tmp/a,remote=/tmp/b,vlan=5'";
    let config = load(text, &[]).expect("a good value");
    let PortKind::Frames(spec) = &config.devices[0].port else { panic!("{config:?}") };
    assert_eq!((spec.to_string().as_str(), spec.vlan), ("dgram:local=/tmp/a,remote=/tmp/b,vlan=5", Some(5)));
    for (value, why) in [
        ("tcp", "expected auto, shm, udp, lab:SOCKET or frames:CARRIER such as frames:tap:tap0"),
        ("frames", "expected auto, shm, udp, lab:SOCKET or frames:CARRIER"),
        ("lab:", "expected lab:SOCKET or lab:SOCKET,host=N"),
        ("lab:/run/lab,host=x", "expected lab:SOCKET or lab:SOCKET,host=N"),
        ("frames:eth0", "frames: expected packet:INTERFACE, tap:NAME or dgram:local=PATH,remote=PATH"),
        ("frames:tap:tap0,vlan=5000", "frames: vlan=5000: expected a VLAN identifier, 1 to 4094"),
        ("frames:dgram:local=/a", "frames: remote= is missing"),
    ] {
        let said = load("", &[("IRNIC_PORT", value)]).expect_err(value);
        assert!(said.starts_with(&format!("IRNIC_PORT: port \"{value}\": {why}")), "{said}");
    }
}

#[test]
fn what_the_file_should_not_say_is_told_with_its_line() {
    for (text, error) in [
        ("tranport = 'irn'", "irnic.toml:1: there is no key \"tranport\"; did you mean \"transport\"?"),
        ("[[device]]\n\nMTU = 4096", "irnic.toml:3: there is no key \"MTU\"; did you mean \"mtu\"?"),
        ("[[device]]\nstats = 'on'", "irnic.toml:2: stats is not a device's: write it above the first [[device]]"),
        ("[device]\nmtu = 256", "irnic.toml:1: devices are tables: write [[device]]"),
        ("mtu = { a = 1 }", "irnic.toml:1: mtu is a string, a number, or on or off"),
        ("mtu = 1\nmtu = 2", "irnic.toml:2: duplicate key"),
        ("mtu = 4096\nport =", "irnic.toml:2: "),
        ("mtu = 1500", "irnic.toml:1: mtu \"1500\": expected 256, 512, 1024, 2048 or 4096 bytes"),
        ("[[device]]\nname='a'\n[[device]]\nname='a'", "irnic.toml:4: name \"a\": another device has this name"),
        ("transport='roce'\nrecovery='selective'", "irnic.toml:2: recovery \"selective\": plain RoCE can only"),
        ("rto-min='2s'\nrto-max='1s'", "irnic.toml:2: rto-max \"1s\": rto-min is longer than rto-max"),
    ] {
        let found = load(text, &[]).expect_err(text);
        assert!(found.starts_with(error), "{text:?}: {found}");
        assert!(!found.contains('\n'), "{found}");
    }
}

#[test]
fn unknown_variables_are_told() {
    let error = load("", &[("IRNIC_TRANPORT", "irn")]).unwrap_err();
    assert_eq!(error, "IRNIC_TRANPORT: there is no variable \"IRNIC_TRANPORT\"; did you mean \"IRNIC_TRANSPORT\"?");
    // Empty ones are ignored.
    assert!(load("", &[("IRNIC_MTU", "")]).is_ok());
}

#[test]
fn several_devices_cannot_all_have_one_interface() {
    let text = "[[device]]\n[[device]]\n";
    let error = load(text, &[("IRNIC_INTERFACE", "lo")]).unwrap_err();
    assert!(error.contains("IRNIC_DEVICE"), "{error}");
}

#[test]
fn what_is_printed_reads_back_the_same() {
    let text =
        "stats = 'on'\n[[device]]\nname = 'a'\nimpair = 'loss 1%'\nrto-min = '1ms'\naddresses = ['192.0.2.1', '::1']\n";
    let config = load(text, &[("IRNIC_MTU", "1024"), ("IRNIC_RATE", "40G")]).unwrap();
    let printed = config.to_toml();
    assert!(printed.contains("mtu = \"1024\"  # IRNIC_MTU\n"), "{printed}");
    assert!(printed.contains("impair = \"loss 1%\"  # irnic.toml:4\n"), "{printed}");
    let again = load(&printed, &[]).unwrap();
    assert_eq!(again.devices[0].transport, config.devices[0].transport);
    assert_eq!(again.devices[0].addresses, config.devices[0].addresses);
    assert_eq!((again.devices[0].rate, again.devices[0].mtu), (Some(40_000_000_000), Some(Mtu::B1024)));
    let json = config.to_json();
    assert_eq!(json["devices"][0]["impair"]["value"], "loss 1%");
    assert_eq!(json["devices"][0]["seed"]["origin"], "default");
}

#[test]
fn the_manual_has_the_keys_as_the_code_does() {
    const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/configuration.md");
    let manual = std::fs::read_to_string(PATH).unwrap();
    let (before, _) = manual.split_once("## Keys\n").expect("a heading");
    let right = format!("{before}## Keys\n\n{}", keys::markdown());
    if std::env::var_os("IRNIC_BLESS").is_some() {
        std::fs::write(PATH, &right).unwrap();
    }
    assert_eq!(std::fs::read_to_string(PATH).unwrap(), right, "run with IRNIC_BLESS=1 to write it anew");
}

#[test]
fn a_key_in_the_manual_of_transports_is_a_key_here() {
    for key in KEYS.iter().filter(|k| k.is_of_transport() && k.name != "transport") {
        let manual = include_str!("../../../docs/transports.md");
        assert!(manual.contains(&format!("`{}`", key.name)), "{}", key.name);
    }
}
