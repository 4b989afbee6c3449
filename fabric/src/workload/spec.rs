//! Workloads in text form: parts, separated by `+`, numbered as classes from 0.
//!
//! | | meaning, and keys with their defaults |
//! |---|---|
//! | `irn-heavy`, `irn-imc10`, `irn-uniform` | Poisson arrivals of [`Sizes::irn_heavy`], [`Sizes::irn_imc10`], [`Sizes::irn_uniform`]; `load`, `outside=N`: to hosts of other groups of N only |
//! | `fixed:64KB` | Poisson arrivals, all of that size; `load`, `outside` |
//! | `cdf:NAME`, `cdf:PATH` | Poisson arrivals from a distribution, one of [`cdf::NAMES`] or a file ([`cdf`]); `discrete=off`, `unit=1B` (of a file), `load`, `outside` |
//! | `rpc` | each host calls `to=any` other or one of the `farthest`, `servers=all` or a number of them, by Poisson arrivals: a `request=64KiB`, answered by a `response=64KiB`; `load`, that of requests |
//! | `incast` | `senders=30` or `all`, `flows=1`, `bytes=150MB` together or `each`, `to=0` or `random`, `start=0`, then `every=100ms`, `repeat=1`, or `load`, or `share` |
//! | `foreground` | an incast with `senders=all`, `flows=8`, `each=8KB`, `to=random`, `share=0.05` (TLT §7.1) |
//! | `permutation` | `bytes=1MB` or `endless`, `start=0` |
//! | `random` | each host sends `flows=4` of `bytes=1MB`, or `endless`, to random hosts, `start=0` |
//! | `closed-loop` | each host keeps `connections=5`; on each a flow of `cdf=NdpWeb`, a name or file, or of `bytes`, starts `gap=1ms` after the last has ended, in the median (`gaps=exponential`) or always (`constant`), or `mean` on average; `after=acknowledged` or `sent`; `from=0-59` and `to=60-89`: each of the former keeps `connections=1` with each of the latter; `discrete`, `unit` |
//! | `cm:PATH` | a connection matrix of htsim ([`matrix`]); `unit` of starts that are not 0, `ps` or `us` |
//! | `file:PATH` | a flow file of the ns-3 RDMA simulators ([`ns3`]) |

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use irnic_units as units;

use super::closed_loop::{After, ClosedLoop, Gaps, Loops, MAX_CONNECTIONS};
use super::incast::{self, Bytes, Incast, When};
use super::permutation::{self, Anywhere, Permutation};
use super::rpc::{self, Response, Rpc, To};
use super::{ENDLESS, Flow, Setting, Sizes, cdf, matrix, ns3, poisson, sort};
use crate::input::{Error, Keys};

/// Maximum number of parts of a workload.
const MAX_PARTS: usize = 16;

/// A workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Name, as written.
    pub name: String,
    /// Kinds of traffic whose flows are merged; the first is class 0.
    pub parts: Vec<Part>,
}

/// One kind of traffic.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// Poisson arrivals.
    Poisson {
        /// Distribution of flow sizes.
        sizes: Sizes,
        /// Offered share of the hosts' rate; `None`: [`Setting::load`], less the share of incasts.
        load: Option<f64>,
        /// Size of the groups of hosts, if flows only go to hosts of other groups; `None`: to any other host.
        outside: Option<u32>,
    },
    /// Calls, each answered by a response.
    Rpc(Rpc),
    /// Many to one.
    Incast(Incast),
    /// One to one.
    Permutation(Permutation),
    /// A number of flows from each host to random others.
    Anywhere(Anywhere),
    /// Closed loops.
    Loop(ClosedLoop),
    /// A connection matrix of htsim, and the unit of its starts.
    Matrix(PathBuf, Option<matrix::Unit>),
    /// A flow file of the ns-3 RDMA simulators.
    File(PathBuf),
}

impl Workload {
    /// Returns the heavy-tailed arrivals of the IRN paper.
    pub fn irn_heavy() -> Workload {
        let parts = vec![Part::Poisson { sizes: Sizes::irn_heavy(), load: None, outside: None }];
        Workload { name: "irn-heavy".to_owned(), parts }
    }

    /// All flows whose start is known before the run, by start, those of the same time by sender.
    pub fn generate(&self, setting: &Setting<'_>) -> Result<Vec<Flow>, Error> {
        let shares: f64 = self.parts.iter().map(Part::share).sum();
        let rest = Setting { load: setting.load * (1.0 - shares), ..setting.clone() };
        let mut flows = Vec::new();
        let mut last_arrival = None;
        for (class, part) in (0..).zip(&self.parts) {
            flows.extend(match part {
                Part::Poisson { sizes, load, outside } => {
                    let own = load.map(|load| Setting { load, ..setting.clone() });
                    let setting = own.as_ref().unwrap_or(&rest);
                    let arrivals = match outside {
                        Some(group) => poisson::generate_outside(*group, sizes, setting, class)?,
                        None => poisson::generate(sizes, setting, class)?,
                    };
                    last_arrival = last_arrival.max(arrivals.last().map(|flow| flow.start));
                    arrivals
                }
                Part::Rpc(of) => rpc::requests(of, setting, class)?,
                Part::Permutation(permutation) => permutation::generate(permutation, setting, class)?,
                Part::Anywhere(anywhere) => permutation::anywhere(anywhere, setting, class)?,
                Part::Matrix(path, unit) => matrix::read(path, *unit, setting, class)?,
                Part::File(path) => ns3::read(path, setting.topology, class)?,
                Part::Incast(_) | Part::Loop(_) => Vec::new(),
            });
        }
        for (class, part) in (0..).zip(&self.parts) {
            if let Part::Incast(incast) = part {
                flows.extend(incast::generate(incast, setting, last_arrival, class)?);
            }
        }
        sort(&mut flows);
        Ok(flows)
    }

    /// The closed loops, part by part.
    pub fn loops(&self, setting: &Setting<'_>) -> Result<Vec<Loops>, Error> {
        let parts = (0..).zip(&self.parts).filter_map(|(class, part)| match part {
            Part::Loop(of) => Some(Loops::new(of, setting, class)),
            _ => None,
        });
        parts.collect()
    }
}

impl Workload {
    /// The responses of servers, class by class.
    pub fn responses(&self) -> Vec<Response> {
        let parts = (0..).zip(&self.parts).filter_map(|(class, part)| match part {
            Part::Rpc(of) => Some(Response { class, bytes: of.response }),
            _ => None,
        });
        parts.collect()
    }
}

impl Part {
    /// Share of the setting's load that it takes from Poisson arrivals.
    fn share(&self) -> f64 {
        match self {
            Part::Incast(Incast { when: When::Share(share), .. }) => *share,
            _ => 0.0,
        }
    }
}

impl FromStr for Workload {
    type Err = Error;

    /// Parses a description ([`crate::workload::spec`]), and reads the distribution if it names one. Flow files are
    /// read by [`Workload::generate`].
    fn from_str(text: &str) -> Result<Workload, Error> {
        let parts: Vec<Part> = text.split('+').map(|part| part.trim().parse()).collect::<Result<_, _>>()?;
        if parts.len() > MAX_PARTS {
            return Err(Error::value("workload", "parts", parts.len(), format_args!("at most {MAX_PARTS}")));
        }
        let shares: f64 = parts.iter().map(Part::share).sum();
        if shares >= 1.0 {
            return Err(Error::value("workload", "share", shares, "below 1, all parts together"));
        }
        Ok(Workload { name: text.to_owned(), parts })
    }
}

impl FromStr for Part {
    type Err = Error;

    fn from_str(text: &str) -> Result<Part, Error> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        Ok(match kind {
            "irn-heavy" => arrivals(Sizes::irn_heavy(), &arrival_keys(kind, rest)?)?,
            "irn-imc10" => arrivals(Sizes::irn_imc10(), &arrival_keys(kind, rest)?)?,
            "irn-uniform" => arrivals(Sizes::irn_uniform(), &arrival_keys(kind, rest)?)?,
            "fixed" => {
                let (size, keys) = rest.split_once(',').unwrap_or((rest, ""));
                let wrong = || Error::value(kind, "size", size, units::SIZE);
                let sizes = Sizes::fixed(units::size(size).ok_or_else(wrong)?);
                arrivals(sizes, &arrival_keys(kind, keys)?)?
            }
            "cdf" => {
                // A file name may contain a comma.
                let whole = if Path::new(rest).exists() { None } else { rest.split_once(',') };
                let (name, keys) = whole.unwrap_or((rest, ""));
                let keys = Keys::parse(kind, keys, &["discrete", "unit", "load", "outside"])?;
                arrivals(distribution(name, &keys)?, &keys)?
            }
            "rpc" => {
                let keys = Keys::parse(kind, rest, &["request", "response", "load", "to", "servers"])?;
                let Rpc { request, response, .. } = Rpc::default();
                let to = match keys.text("to") {
                    None | Some("any") => To::Any,
                    Some("farthest") => To::Farthest,
                    Some(_) => return Err(keys.wrong("to", "any or farthest")),
                };
                let (request, response) = (keys.size("request", request)?, keys.size("response", response)?);
                let servers = match keys.text("servers") {
                    None | Some("all") => None,
                    Some(_) => Some(
                        keys.number("servers", 1, 1..=1_000_000)
                            .map_err(|_| keys.wrong("servers", "a number from 1 to 1000000, or all"))?,
                    ),
                };
                Part::Rpc(Rpc { request, response, load: load(&keys)?, to, servers })
            }
            "incast" => Part::Incast(parse_incast(kind, rest, Incast::default())?),
            "foreground" => Part::Incast(parse_incast(kind, rest, Incast::foreground())?),
            "permutation" => {
                let keys = Keys::parse(kind, rest, &["bytes", "start"])?;
                let Permutation { bytes, start } = Permutation::default();
                Part::Permutation(Permutation { bytes: endless(&keys, bytes)?, start: keys.time("start", start)? })
            }
            "random" => {
                let keys = Keys::parse(kind, rest, &["flows", "bytes", "start"])?;
                let Anywhere { flows, bytes, start } = Anywhere::default();
                Part::Anywhere(Anywhere {
                    flows: keys.number("flows", flows, 1..=100_000)?,
                    bytes: endless(&keys, bytes)?,
                    start: keys.time("start", start)?,
                })
            }
            "closed-loop" => Part::Loop(parse_loop(kind, rest)?),
            "cm" => {
                // A file name may contain a comma.
                let whole = if Path::new(rest).exists() { None } else { rest.split_once(',') };
                let (path, keys) = whole.unwrap_or((rest, ""));
                let keys = Keys::parse(kind, keys, &["unit"])?;
                let unit = match keys.text("unit") {
                    None => None,
                    Some("ps") => Some(matrix::Unit::Picoseconds),
                    Some("us") => Some(matrix::Unit::Microseconds),
                    Some(_) => return Err(keys.wrong("unit", "ps or us")),
                };
                Part::Matrix(PathBuf::from(path), unit)
            }
            "file" => Part::File(PathBuf::from(rest)),
            _ => {
                return Err(Error::Name {
                    what: "workload",
                    name: kind.to_owned(),
                    known: "irn-heavy, irn-imc10, irn-uniform, fixed:SIZE, cdf:NAME, rpc, incast, foreground, permutation, random, closed-loop, cm:PATH, file:PATH"
                        .to_owned(),
                });
            }
        })
    }
}

fn parse_loop(kind: &str, text: &str) -> Result<ClosedLoop, Error> {
    let allowed = ["connections", "from", "to", "after", "gap", "mean", "gaps", "cdf", "bytes", "discrete", "unit"];
    let keys = Keys::parse(kind, text, &allowed)?;
    let sizes = match (keys.text("bytes"), keys.text("cdf")) {
        (Some(_), None) => {
            if let Some(key) = ["discrete", "unit"].into_iter().find(|key| keys.text(key).is_some()) {
                return Err(keys.wrong(key, "a distribution beside it, cdf=NAME"));
            }
            Sizes::fixed(keys.size("bytes", 1)?)
        }
        (Some(_), Some(_)) => return Err(keys.wrong("bytes", "either bytes or cdf")),
        (None, name) => distribution(name.unwrap_or("NdpWeb"), &keys)?,
    };
    let gaps = match keys.text("gaps") {
        None | Some("exponential") => Gaps::Exponential,
        Some("constant") => Gaps::Constant,
        Some(_) => return Err(keys.wrong("gaps", "exponential or constant")),
    };
    let after = match keys.text("after") {
        None | Some("acknowledged") => After::Acknowledged,
        Some("sent") => After::Sent,
        Some(_) => return Err(keys.wrong("after", "acknowledged or sent")),
    };
    let gap = match (keys.text("mean"), gaps) {
        (Some(_), _) if keys.text("gap").is_some() => return Err(keys.wrong("mean", "either mean or gap")),
        // The median of an exponential distribution is ln 2 of its mean.
        (Some(_), Gaps::Exponential) => (keys.time("mean", 0)? as f64 * std::f64::consts::LN_2).round() as u64,
        (Some(_), Gaps::Constant) => keys.time("mean", 0)?,
        (None, _) => keys.time("gap", 1_000_000)?,
    };
    let to = hosts(&keys, "to")?;
    Ok(ClosedLoop {
        from: hosts(&keys, "from")?,
        connections: keys.number("connections", if to.is_some() { 1 } else { 5 }, 1..=MAX_CONNECTIONS)?,
        to,
        after,
        gap,
        gaps,
        sizes,
    })
}

/// Parses a host's number, or an inclusive range.
fn hosts(keys: &Keys<'_>, key: &str) -> Result<Option<RangeInclusive<u32>>, Error> {
    let Some(text) = keys.text(key) else { return Ok(None) };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range = first.parse().ok().zip(last.parse().ok()).filter(|(first, last)| first <= last);
    let range = range.map(|(first, last): (u32, u32)| first..=last);
    range.ok_or_else(|| keys.wrong(key, "a host's number or a range such as 60-89")).map(Some)
}

fn distribution(name: &str, keys: &Keys<'_>) -> Result<Sizes, Error> {
    let discrete = match keys.text("discrete") {
        None => None,
        Some("on") => Some(true),
        Some("off") => Some(false),
        Some(_) => return Err(keys.wrong("discrete", "on or off")),
    };
    if let Some(sizes) = cdf::builtin(name, discrete) {
        return match keys.text("unit") {
            None => Ok(sizes),
            Some(_) => Err(keys.wrong("unit", format!("a file; {name} is in bytes"))),
        };
    }
    if name.contains('/') || name.ends_with(".txt") || Path::new(name).exists() {
        let reading = cdf::Reading { unit: keys.size("unit", 1)?, discrete: discrete.unwrap_or(false) };
        return cdf::read(Path::new(name), reading);
    }
    let known = format!("{}, and files", cdf::NAMES.join(", "));
    Err(Error::Name { what: "distribution", name: name.to_owned(), known })
}

/// Parses a size, or `endless`.
fn endless(keys: &Keys<'_>, default: u64) -> Result<u64, Error> {
    match keys.text("bytes") {
        Some("endless") => Ok(ENDLESS),
        _ => keys.size("bytes", default),
    }
}

/// The keys of Poisson arrivals.
fn arrival_keys<'a>(kind: &'a str, text: &'a str) -> Result<Keys<'a>, Error> {
    Keys::parse(kind, text, &["load", "outside"])
}

/// Poisson arrivals with their keys.
fn arrivals(sizes: Sizes, keys: &Keys<'_>) -> Result<Part, Error> {
    let group = |_| keys.number("outside", 1, 1..=1_000_000);
    let outside = keys.text("outside").map(group).transpose()?;
    Ok(Part::Poisson { sizes, load: load(keys)?, outside })
}

fn load(keys: &Keys<'_>) -> Result<Option<f64>, Error> {
    let Some(text) = keys.text("load") else { return Ok(None) };
    poisson::load(text).ok_or_else(|| keys.wrong("load", poisson::LOAD)).map(Some)
}

fn share(keys: &Keys<'_>) -> Result<Option<f64>, Error> {
    let Some(text) = keys.text("share") else { return Ok(None) };
    let share = text.parse().ok().filter(|share| *share > 0.0 && *share < 1.0);
    share.ok_or_else(|| keys.wrong("share", "a share of --load, above 0 and below 1, such as 0.05")).map(Some)
}

fn parse_incast(kind: &str, text: &str, default: Incast) -> Result<Incast, Error> {
    let allowed = ["senders", "flows", "bytes", "each", "to", "start", "every", "repeat", "load", "share"];
    let keys = Keys::parse(kind, text, &allowed)?;
    let alone = |key: &str, others: &[&str]| match others.iter().find(|other| keys.text(other).is_some()) {
        Some(other) if keys.text(key).is_some() => Err(keys.wrong(key, format!("either {key} or {other}"))),
        _ => Ok(()),
    };
    alone("each", &["bytes"])?;
    alone("share", &["load", "every", "repeat"])?;
    alone("load", &["every", "repeat"])?;
    let senders = match keys.text("senders") {
        Some("all") => None,
        Some(_) => Some(keys.number("senders", 1, 1..=1_000_000).map_err(|_| {
            keys.wrong("senders", "a number from 1 to 1000000, or all, which is all hosts but the receiver")
        })?),
        None => default.senders,
    };
    let to = match keys.text("to") {
        Some("random") => None,
        Some(host) => Some(host.parse().map_err(|_| keys.wrong("to", "a host's number, or random"))?),
        None => default.to,
    };
    let bytes = match (keys.text("bytes"), keys.text("each")) {
        (None, None) => default.bytes,
        (Some(_), _) => Bytes::Together(keys.size("bytes", 1)?),
        (None, Some(_)) => Bytes::Each(keys.size("each", 1)?),
    };
    let when = match (load(&keys)?, share(&keys)?) {
        (Some(load), _) => When::Load(load),
        (None, Some(share)) => When::Share(share),
        (None, None) if keys.text("every").is_none() && keys.text("repeat").is_none() => default.when,
        (None, None) => {
            When::Times { every: keys.time("every", 100_000_000)?, repeat: keys.number("repeat", 1, 1..=100_000)? }
        }
    };
    Ok(Incast {
        senders,
        flows: keys.number("flows", default.flows, 1..=100_000)?,
        bytes,
        to,
        start: keys.time("start", default.start)?,
        when,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_make_what_they_say() {
        let incast =
            |senders, bytes| Incast { senders: Some(senders), bytes: Bytes::Together(bytes), ..Incast::default() };
        let poisson = |sizes| Part::Poisson { sizes, load: None, outside: None };
        let loaded = |sizes, load| Part::Poisson { sizes, load: Some(load), outside: None };
        for (text, parts) in [
            ("irn-heavy", vec![poisson(Sizes::irn_heavy())]),
            ("irn-imc10", vec![poisson(Sizes::irn_imc10())]),
            ("irn-uniform", vec![poisson(Sizes::irn_uniform())]),
            ("fixed:64K", vec![poisson(Sizes::fixed(65_536))]),
            (
                "fixed:64K,outside=10",
                vec![Part::Poisson { sizes: Sizes::fixed(65_536), load: None, outside: Some(10) }],
            ),
            ("cdf:Solar2022", vec![poisson(cdf::builtin("Solar2022", None).unwrap())]),
            ("incast", vec![Part::Incast(Incast::default())]),
            (
                "irn-heavy + incast:senders=10,bytes=1MB",
                vec![poisson(Sizes::irn_heavy()), Part::Incast(incast(10, 1_000_000))],
            ),
            (
                "incast:to=random,start=1ms,every=2ms,repeat=3",
                vec![Part::Incast(Incast {
                    to: None,
                    start: 1_000_000,
                    when: When::Times { every: 2_000_000, repeat: 3 },
                    ..Incast::default()
                })],
            ),
            (
                "irn-heavy:load=0.6+incast:senders=all,flows=2,each=1KB,load=0.05",
                vec![
                    loaded(Sizes::irn_heavy(), 0.6),
                    Part::Incast(Incast {
                        senders: None,
                        flows: 2,
                        bytes: Bytes::Each(1_000),
                        when: When::Load(0.05),
                        ..Incast::default()
                    }),
                ],
            ),
            (
                "fixed:1KB,load=0.1+cdf:WebSearch,load=1.5",
                vec![loaded(Sizes::fixed(1_000), 0.1), loaded(cdf::builtin("WebSearch", None).unwrap(), 1.5)],
            ),
            (
                "foreground+foreground:flows=4,share=0.2,to=3",
                vec![
                    Part::Incast(Incast::foreground()),
                    Part::Incast(Incast { flows: 4, to: Some(3), when: When::Share(0.2), ..Incast::foreground() }),
                ],
            ),
            (
                "foreground:repeat=2,bytes=1MB",
                vec![Part::Incast(Incast {
                    bytes: Bytes::Together(1_000_000),
                    when: When::Times { every: 100_000_000, repeat: 2 },
                    ..Incast::foreground()
                })],
            ),
            ("rpc", vec![Part::Rpc(Rpc::default())]),
            (
                "rpc:request=1KB,response=2KB,load=0.3,to=farthest,servers=8",
                vec![Part::Rpc(Rpc {
                    request: 1_000,
                    response: 2_000,
                    load: Some(0.3),
                    to: To::Farthest,
                    servers: Some(8),
                })],
            ),
            ("permutation:bytes=5KB", vec![Part::Permutation(Permutation { bytes: 5_000, start: 0 })]),
            ("permutation:bytes=endless", vec![Part::Permutation(Permutation { bytes: ENDLESS, start: 0 })]),
            ("random:flows=2,bytes=9KB", vec![Part::Anywhere(Anywhere { flows: 2, bytes: 9_000, start: 0 })]),
            ("cm:a/b.cm", vec![Part::Matrix("a/b.cm".into(), None)]),
            ("cm:b.cm,unit=ps", vec![Part::Matrix("b.cm".into(), Some(matrix::Unit::Picoseconds))]),
            ("file:a/b.txt", vec![Part::File("a/b.txt".into())]),
        ] {
            assert_eq!(text.parse::<Workload>().unwrap(), Workload { name: text.to_owned(), parts }, "{text}");
        }
    }

    #[test]
    fn a_distribution_may_come_from_a_file() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/workloads/Solar2022.txt");
        let Part::Poisson { sizes, load, .. } = format!("cdf:{path},load=0.5").parse().unwrap() else {
            panic!("not a distribution")
        };
        assert_eq!(load, Some(0.5));
        assert_eq!(sizes.mean(), cdf::builtin("Solar2022", None).unwrap().mean());
        let discrete: Part = format!("cdf:{path},discrete=on,unit=10").parse().unwrap();
        let Part::Poisson { sizes, .. } = discrete else { panic!("not a distribution") };
        let (mean, most) = (10.0 * cdf::builtin("Solar2022", Some(true)).unwrap().mean(), 10 * 262_144);
        assert!((sizes.mean() / mean - 1.0).abs() < 1e-9, "{}, not {mean}", sizes.mean());
        assert_eq!(sizes.range().1, most);
    }

    #[test]
    fn errors_say_what_there_is() {
        let kinds = "known are irn-heavy, irn-imc10, irn-uniform, fixed:SIZE, cdf:NAME, rpc, incast, foreground, permutation, random, closed-loop, cm:PATH, file:PATH";
        let load = "expected a share of the links' rate, above 0, 1 being all of it, at most 10";
        let size = "expected a size such as 1000, 150MB (decimal), 64K or 64KiB (of 1024), 1 byte to 1 TB";
        for (text, said) in [
            ("heavy", format!("unknown workload `heavy`; {kinds}")),
            ("irn-heavy+", format!("unknown workload ``; {kinds}")),
            ("irn-heavy:size=1", "irn-heavy: unknown key `size`; it takes load, outside".to_owned()),
            (
                "cdf:Websearch",
                "unknown distribution `Websearch`; known are AliStorage2019, CacheFollower, FbHdp2015, GoogleRPC2008, IMC10, NdpWeb, RoccHadoop, Solar2022, WebSearch, WebServer, and files; did you mean \"WebSearch\"?"
                    .to_owned(),
            ),
            ("irn-heavy:load=70%", format!("irn-heavy: load=70%: {load}")),
            ("fixed:1KB,load=0", format!("fixed: load=0: {load}")),
            ("cdf:WebSearch,load=11", format!("cdf: load=11: {load}")),
            ("cdf:WebSearch,lod=1", "cdf: unknown key `lod`; it takes discrete, unit, load, outside".to_owned()),
            ("cdf:WebSearch,discrete=yes", "cdf: discrete=yes: expected on or off".to_owned()),
            ("cdf:IMC10,unit=1460", "cdf: unit=1460: expected a file; IMC10 is in bytes".to_owned()),
            ("cdf:a.txt,unit=0", format!("cdf: unit=0: {size}")),
            ("incast:load=NaN", format!("incast: load=NaN: {load}")),
            ("rpc:servers=0", "rpc: servers=0: expected a number from 1 to 1000000, or all".to_owned()),
            ("rpc:to=all", "rpc: to=all: expected any or farthest".to_owned()),
            ("rpc:bytes=1", "rpc: unknown key `bytes`; it takes request, response, load, to, servers".to_owned()),
            ("incast:senders=some", "incast: senders=some: expected a number from 1 to 1000000, or all, which is all hosts but the receiver".to_owned()),
            ("incast:bytes=1MB,each=1KB", "incast: each=1KB: expected either each or bytes".to_owned()),
            ("incast:load=0.1,repeat=2", "incast: load=0.1: expected either load or repeat".to_owned()),
            ("foreground:share=0.1,load=0.1", "foreground: share=0.1: expected either share or load".to_owned()),
            ("foreground:share=1", "foreground: share=1: expected a share of --load, above 0 and below 1, such as 0.05".to_owned()),
            ("foreground:share=0.5+foreground:share=0.5", "workload: share=1: expected below 1, all parts together".to_owned()),
            ("fixed:big", format!("fixed: size=big: {size}")),
            ("incast:bytes=0", format!("incast: bytes=0: {size}")),
            ("incast:to=me", "incast: to=me: expected a host's number, or random".to_owned()),
            (
                "incast:from=2",
                "incast: unknown key `from`; it takes senders, flows, bytes, each, to, start, every, repeat, load, share"
                    .to_owned(),
            ),
        ] {
            assert_eq!(text.parse::<Workload>().unwrap_err().to_string(), said, "{text}");
        }
        assert_eq!(
            vec!["incast"; 17].join("+").parse::<Workload>().unwrap_err().to_string(),
            "workload: parts=17: expected at most 16"
        );
    }
}
