//! Workloads as users write them: parts, joined by `+`, numbered as classes from 0.
//!
//! | | what, and keys with what they are without |
//! |---|---|
//! | `irn-heavy`, `irn-uniform` | Poisson arrivals of [`Sizes::irn_heavy`], [`Sizes::irn_uniform`] |
//! | `fixed:64KB` | Poisson arrivals, all of that size |
//! | `cdf:NAME`, `cdf:PATH` | Poisson arrivals from a distribution, one of [`cdf::NAMES`] or a file |
//! | `incast` | `senders=30`, `bytes=150MB`, `to=0` or `to=random`, `start=0`, `every=100ms`, `repeat=1` |
//! | `permutation` | `bytes=1MB`, `start=0` |
//! | `file:PATH` | a flow file of the ns-3 RDMA simulators ([`ns3`]) |

use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::incast::{self, Incast};
use super::permutation::{self, Permutation};
use super::{Flow, Setting, Sizes, cdf, ns3, poisson, sort};
use crate::input::{Error, Keys, units};

/// The most parts of a workload.
const MAX_PARTS: usize = 16;

/// What to send.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// As it is written.
    pub name: String,
    /// Their flows, merged; the first is class 0.
    pub parts: Vec<Part>,
}

/// One kind of traffic.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// Poisson arrivals of flows of these sizes.
    Poisson(Sizes),
    /// Many to one.
    Incast(Incast),
    /// One to one.
    Permutation(Permutation),
    /// A flow file of the ns-3 RDMA simulators.
    File(PathBuf),
}

impl Workload {
    /// All flows, by start, those of the same time by sender.
    pub fn generate(&self, setting: &Setting<'_>) -> Result<Vec<Flow>, Error> {
        let mut flows = Vec::new();
        for (class, part) in (0..).zip(&self.parts) {
            flows.extend(part.generate(setting, class)?);
        }
        sort(&mut flows);
        Ok(flows)
    }
}

impl Part {
    fn generate(&self, setting: &Setting<'_>, class: u8) -> Result<Vec<Flow>, Error> {
        match self {
            Part::Poisson(sizes) => poisson::generate(sizes, setting, class),
            Part::Incast(incast) => incast::generate(incast, setting, class),
            Part::Permutation(permutation) => permutation::generate(permutation, setting, class),
            Part::File(path) => ns3::read(path, setting.topology, class),
        }
    }
}

impl FromStr for Workload {
    type Err = Error;

    /// Reads a description ([`crate::workload::spec`]), and the distribution if it names one. Flow files are read by
    /// [`Workload::generate`].
    fn from_str(text: &str) -> Result<Workload, Error> {
        let parts: Vec<Part> = text.split('+').map(|part| part.trim().parse()).collect::<Result<_, _>>()?;
        if parts.len() > MAX_PARTS {
            let (key, value) = ("parts".to_owned(), parts.len().to_string());
            let expected = format!("at most {MAX_PARTS}");
            return Err(Error::Value { of: "workload".to_owned(), key, value, expected });
        }
        Ok(Workload { name: text.to_owned(), parts })
    }
}

impl FromStr for Part {
    type Err = Error;

    fn from_str(text: &str) -> Result<Part, Error> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        Ok(match kind {
            "irn-heavy" => {
                Keys::parse(kind, rest, &[])?;
                Part::Poisson(Sizes::irn_heavy())
            }
            "irn-uniform" => {
                Keys::parse(kind, rest, &[])?;
                Part::Poisson(Sizes::irn_uniform())
            }
            "fixed" => {
                let wrong = || Error::Value {
                    of: kind.to_owned(),
                    key: "size".to_owned(),
                    value: rest.to_owned(),
                    expected: units::SIZE.to_owned(),
                };
                Part::Poisson(Sizes::fixed(units::size(rest).ok_or_else(wrong)?))
            }
            "cdf" => Part::Poisson(distribution(rest)?),
            "incast" => Part::Incast(parse_incast(rest)?),
            "permutation" => {
                let keys = Keys::parse(kind, rest, &["bytes", "start"])?;
                let Permutation { bytes, start } = Permutation::default();
                Part::Permutation(Permutation { bytes: keys.size("bytes", bytes)?, start: keys.time("start", start)? })
            }
            "file" => Part::File(PathBuf::from(rest)),
            _ => {
                return Err(Error::Name {
                    what: "workload",
                    name: kind.to_owned(),
                    known: "irn-heavy, irn-uniform, fixed:SIZE, cdf:NAME, incast, permutation, file:PATH".to_owned(),
                });
            }
        })
    }
}

fn distribution(name: &str) -> Result<Sizes, Error> {
    if let Some(sizes) = cdf::builtin(name) {
        return Ok(sizes);
    }
    if name.contains('/') || name.ends_with(".txt") || Path::new(name).exists() {
        return cdf::read(Path::new(name));
    }
    let known = format!("{}, and files", cdf::NAMES.join(", "));
    Err(Error::Name { what: "distribution", name: name.to_owned(), known })
}

fn parse_incast(text: &str) -> Result<Incast, Error> {
    let keys = Keys::parse("incast", text, &["senders", "bytes", "to", "start", "every", "repeat"])?;
    let default = Incast::default();
    let to = match keys.text("to") {
        Some("random") => None,
        Some(host) => Some(host.parse().map_err(|_| keys.wrong("to", "a host's number, or random"))?),
        None => default.to,
    };
    Ok(Incast {
        senders: keys.number("senders", default.senders, 1..=1_000_000)?,
        bytes: keys.size("bytes", default.bytes)?,
        to,
        start: keys.time("start", default.start)?,
        every: keys.time("every", default.every)?,
        repeat: keys.number("repeat", default.repeat, 1..=100_000)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_make_what_they_say() {
        let incast = |senders, bytes| Incast { senders, bytes, ..Incast::default() };
        for (text, parts) in [
            ("irn-heavy", vec![Part::Poisson(Sizes::irn_heavy())]),
            ("irn-uniform", vec![Part::Poisson(Sizes::irn_uniform())]),
            ("fixed:64K", vec![Part::Poisson(Sizes::fixed(65_536))]),
            ("cdf:Solar2022", vec![Part::Poisson(cdf::builtin("Solar2022").unwrap())]),
            ("incast", vec![Part::Incast(Incast::default())]),
            (
                "irn-heavy + incast:senders=10,bytes=1MB",
                vec![Part::Poisson(Sizes::irn_heavy()), Part::Incast(incast(10, 1_000_000))],
            ),
            (
                "incast:to=random,start=1ms,every=2ms,repeat=3",
                vec![Part::Incast(Incast {
                    to: None,
                    start: 1_000_000,
                    every: 2_000_000,
                    repeat: 3,
                    ..Incast::default()
                })],
            ),
            ("permutation:bytes=5KB", vec![Part::Permutation(Permutation { bytes: 5_000, start: 0 })]),
            ("file:a/b.txt", vec![Part::File("a/b.txt".into())]),
        ] {
            assert_eq!(text.parse::<Workload>().unwrap(), Workload { name: text.to_owned(), parts }, "{text}");
        }
    }

    #[test]
    fn a_distribution_may_come_from_a_file() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/workloads/Solar2022.txt");
        let Part::Poisson(read) = format!("cdf:{path}").parse().unwrap() else { panic!("not a distribution") };
        assert_eq!(read.mean(), cdf::builtin("Solar2022").unwrap().mean());
    }

    #[test]
    fn errors_say_what_there_is() {
        let kinds = "known are irn-heavy, irn-uniform, fixed:SIZE, cdf:NAME, incast, permutation, file:PATH";
        let size = "expected a size such as 1000, 150MB (decimal), 64K or 64KiB (of 1024), 1 byte to 1 TB";
        for (text, said) in [
            ("heavy", format!("unknown workload `heavy`; {kinds}")),
            ("irn-heavy+", format!("unknown workload ``; {kinds}")),
            ("irn-heavy:load=1", "irn-heavy: unknown key `load`; it takes none".to_owned()),
            (
                "cdf:WebSearch",
                "unknown distribution `WebSearch`; known are AliStorage2019, FbHdp2015, GoogleRPC2008, Solar2022, and files"
                    .to_owned(),
            ),
            ("fixed:big", format!("fixed: size=big: {size}")),
            ("incast:bytes=0", format!("incast: bytes=0: {size}")),
            ("incast:to=me", "incast: to=me: expected a host's number, or random".to_owned()),
            (
                "incast:from=2",
                "incast: unknown key `from`; it takes senders, bytes, to, start, every, repeat".to_owned(),
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
