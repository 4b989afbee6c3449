//! docs/stability.md: names that others rely on stay, and versions that cannot work together say so.
//!
//! `GOLDEN=write` adds new names to `fixtures/promised.json`; it takes none away.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::support::{Folder, await_listener, free_port, irnic, library, needs, text};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What is promised.
#[derive(Debug, Default, Deserialize, Serialize)]
struct Promised {
    /// Keys of irnic.toml, with the variables that set them.
    settings: BTreeSet<String>,
    /// Names of fields, by what writes them.
    json: BTreeMap<String, BTreeSet<String>>,
}

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/promised.json")
}

fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Adds the names of all fields of a value: `runs[].flows` for a field of each member of an array.
fn fields(value: &Value, path: &str, to: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => members.iter().for_each(|(name, member)| {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            to.insert(path.clone());
            fields(member, &path, to);
        }),
        Value::Array(members) => members.iter().for_each(|member| fields(member, &format!("{path}[]"), to)),
        _ => {}
    }
}

fn names(json: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    fields(&serde_json::from_str(json).expect("JSON"), "", &mut all);
    all
}

/// The fields that each command writes.
fn written() -> BTreeMap<String, BTreeSet<String>> {
    let folder = Folder::new();
    let run = |arguments: &[&str]| succeeded(&irnic(&folder).args(arguments).output().expect("it runs"));
    let file = |name: &str, arguments: &[&str]| {
        run(arguments);
        names(&std::fs::read_to_string(folder.path().join(name)).expect(name))
    };
    let mut all = BTreeMap::new();
    let mut add = |what: &str, names| all.insert(what.to_owned(), names);
    add("config --json", names(&run(&["config", "--json"])));
    add("devinfo --json", names(&run(&["devinfo", "--json"])));
    let doctor = irnic(&folder).args(["doctor", "--json"]).output().expect("it runs");
    add("doctor --json", names(&text(&doctor.stdout)));
    let sim = ["sim", "--topology", "star:hosts=4", "--duration", "100us", "--seeds", "2", "--json", "sim.json"];
    add("sim --json", file("sim.json", &sim));
    let perf = ["perf", "write-bw", "-n", "8", "-s", "64", "--out_json_file", "perf.json"];
    add("perf --out_json", file("perf.json", &perf));
    let list = ["--loss", "0,1", "-D", "0.3", "-i", "0.1", "--cpu_util", "--out_json_file", "list.json"];
    add("perf --loss --out_json", file("list.json", &[&["perf", "write-bw", "-s", "64"][..], &list].concat()));
    add(
        "perf read-lat --out_json",
        file("list.json", &[&["perf", "read-lat", "-s", "64", "-e"][..], &list[2..]].concat()),
    );
    add("rtt --json", names(&run(&["rtt", "-n", "8", "--json", "-"])));
    let lab = ["lab", "--topology", "star:hosts=2", "--json", "lab.json", "--", "true"];
    add("lab --json", file("lab.json", &lab));
    if needs(&["ib_write_bw"]).is_some() {
        let port = free_port();
        let bandwidth = ["ib_write_bw", "-d", "irnic0", "-n", "100", "-p", &port];
        let mut server = irnic(&folder);
        let server = server.args(["run", "--"]).args(bandwidth).stdout(Stdio::null()).spawn().expect("it starts");
        await_listener(&port);
        run(&[&["run", "--stats=stats.json", "--"][..], &bandwidth, &["localhost"]].concat());
        succeeded(&server.wait_with_output().expect("it ends"));
        add("run --stats=FILE", names(&std::fs::read_to_string(folder.path().join("stats.json")).expect("statistics")));
    }
    all
}

/// Keys and variables, from the table of `irnic config --help`.
fn settings() -> BTreeSet<String> {
    let folder = Folder::new();
    let help = succeeded(&irnic(&folder).args(["config", "--help"]).output().expect("it runs"));
    let words = help.lines().filter(|line| line.contains("IRNIC_")).map(str::split_whitespace);
    let pairs = words.filter_map(|mut words| match (words.next()?, words.next()) {
        (name, _) if name.starts_with("IRNIC_") => Some(name.to_owned()),
        (key, Some(name)) if name.starts_with("IRNIC_") => Some(format!("{key} {name}")),
        _ => None,
    });
    pairs.collect()
}

#[test]
fn no_setting_and_no_field_of_json_goes_away() {
    let text = std::fs::read_to_string(fixture()).unwrap_or_default();
    let mut promised: Promised =
        if text.is_empty() { Promised::default() } else { serde_json::from_str(&text).expect("the file") };
    let (settings, json) = (settings(), written());
    if irnic_testkit::golden::is_written() {
        promised.settings.extend(settings.iter().cloned());
        for (what, names) in &json {
            promised.json.entry(what.clone()).or_default().extend(names.iter().cloned());
        }
        std::fs::write(fixture(), serde_json::to_string_pretty(&promised).expect("JSON") + "\n")
            .expect("it can be written");
    }
    let missing: Vec<_> = promised.settings.difference(&settings).collect();
    assert!(missing.is_empty(), "settings that were promised: {missing:?}");
    for (what, names) in &promised.json {
        let Some(written) = json.get(what) else { continue };
        let missing: Vec<_> = names.difference(written).collect();
        assert!(missing.is_empty(), "fields of {what} that were promised: {missing:?}");
    }
    assert!(promised.settings.len() > 30 && promised.json.len() > 6, "{promised:?}");
}

/// The library as another version has it: with another number behind `name`.
fn other_version(folder: &Folder, name: &[u8; 7]) -> PathBuf {
    let mut bytes = std::fs::read(library()).expect("the library");
    let places: Vec<usize> = (0..bytes.len() - 8).filter(|at| bytes[*at..].starts_with(name)).collect();
    assert!(!places.is_empty(), "the library has its version");
    places.iter().for_each(|at| bytes[at + 7] = 0x7f);
    let path = folder.path().join("libirnic_verbs.so");
    std::fs::write(&path, bytes).expect("a file");
    path
}

#[test]
fn two_versions_on_a_host_refuse_each_other_in_one_line() {
    let Some(()) = needs(&["ib_write_bw"]) else { return };
    let folder = Folder::new();
    let other = other_version(&folder, b"IRNICHL");
    let port = free_port();
    let bandwidth = |command: &mut Command| {
        command.args(["run", "--", "ib_write_bw", "-d", "irnic0", "-n", "100", "-p", &port]);
    };
    let mut server = irnic(&folder);
    bandwidth(&mut server);
    let server = server.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    await_listener(&port);
    let mut client = irnic(&folder);
    bandwidth(client.env("IRNIC_LIBRARY", other));
    let client = client.arg("127.0.0.1").output().expect("it runs");
    let server = server.wait_with_output().expect("it ends");
    for (output, theirs) in [(client, "version 6 and not 127"), (server, "version 127 and not 6")] {
        let said = text(&output.stderr);
        let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("irnic: ")).collect();
        let [line] = lines[..] else { panic!("{said}") };
        assert!(
            !output.status.success() && line.contains("another version of irnic") && line.contains(theirs),
            "{said}"
        );
    }
}

#[test]
fn a_lab_of_another_version_is_refused_in_one_line() {
    let Some(()) = needs(&["ibv_devices"]) else { return };
    let folder = Folder::new();
    let other = other_version(&folder, b"IRNICLB");
    let mut lab = irnic(&folder);
    lab.env("IRNIC_LIBRARY", other).args(["lab", "--topology", "star:hosts=2", "--", "ibv_devices"]);
    let said = text(&lab.output().expect("it runs").stderr);
    assert!(
        said.lines().any(|line| line.starts_with("irnic: the lab at ") && line.contains("another version of irnic")),
        "{said}"
    );
}
