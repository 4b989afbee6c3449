//! Commands to a lab, as text: faults and queries.

use crate::experiment::link_named;
use crate::lab::faults::{Action, Kind, Rule};
use crate::topology::Topology;

/// A command to a lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A rule about frames.
    Rule(Rule),
    /// Removes the rule with this number, or all.
    Clear(Option<u32>),
    /// Queries the rules and their counters.
    Rules,
    /// A link fails.
    LinkDown {
        /// Number of the link in the topology.
        link: u32,
        /// Duration of the failure, ns; [`None`] until [`Command::LinkUp`].
        lasts: Option<u64>,
    },
    /// A link works again.
    LinkUp {
        /// Number of the link in the topology.
        link: u32,
    },
    /// A host stops sending a priority.
    Pause {
        /// 0 to 7.
        priority: u8,
        /// The host.
        host: u32,
        /// Duration, ns; [`None`] until [`Command::Resume`].
        lasts: Option<u64>,
    },
    /// A host resumes sending a priority.
    Resume {
        /// 0 to 7.
        priority: u8,
        /// The host.
        host: u32,
    },
    /// The processes of a host are killed.
    Kill {
        /// The host.
        host: u32,
    },
    /// Packets are captured from now on.
    Capture {
        /// File name.
        file: String,
        /// Names of ports, separated by commas; empty: those of hosts.
        ports: String,
    },
    /// A capture ends.
    CaptureOff,
    /// Queries the counters.
    Stats,
    /// Queries the lab's time.
    Time,
}

/// An invalid command: what is wrong, and what was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CommandError(String);

const COMMANDS: &str = "drop, corrupt, duplicate, delay, link, pause, resume, kill, pcap, rules, clear, stats or time";

/// Longest text that errors quote, characters.
const QUOTED: usize = 40;

fn wrong(word: &str, expected: impl std::fmt::Display) -> CommandError {
    let short: String = word.chars().take(QUOTED).flat_map(char::escape_debug).collect();
    CommandError(match word {
        "" => format!("the command ends too early: expected {expected}"),
        _ => format!("\"{short}\": expected {expected}"),
    })
}

/// The words of a command, and the network that it applies to.
struct Words<'a> {
    words: std::str::SplitWhitespace<'a>,
    topology: &'a Topology,
}

impl<'a> Words<'a> {
    /// Returns the next word, an empty one at the end.
    fn word(&mut self) -> &'a str {
        self.words.next().unwrap_or("")
    }

    /// Parses the word `name`.
    fn keyword(&mut self, name: &str) -> Result<(), CommandError> {
        let word = self.word();
        if word == name { Ok(()) } else { Err(wrong(word, name)) }
    }

    fn end(&mut self) -> Result<(), CommandError> {
        self.words.next().map_or(Ok(()), |word| Err(wrong(word, "nothing more")))
    }

    fn number(&mut self, range: std::ops::RangeInclusive<u64>, expected: &str) -> Result<u64, CommandError> {
        let word = self.word();
        let number = match word.strip_prefix("0x") {
            // `from_str_radix` accepts signs.
            Some(digits) if !digits.starts_with(['+', '-']) => u64::from_str_radix(digits, 16).ok(),
            Some(_) => None,
            None => word.parse().ok(),
        };
        number.filter(|number| range.contains(number)).ok_or_else(|| wrong(word, expected))
    }

    fn host(&mut self) -> Result<u32, CommandError> {
        let word = self.word();
        let host = word.strip_prefix('h').unwrap_or(word).parse().ok().filter(|host| *host < self.topology.hosts);
        host.ok_or_else(|| wrong(word, format_args!("a host, 0 to {}", self.topology.hosts.saturating_sub(1))))
    }

    fn time(&mut self) -> Result<u64, CommandError> {
        let word = self.word();
        irnic_units::time(word).filter(|ns| *ns > 0).ok_or_else(|| wrong(word, irnic_units::TIME))
    }

    fn link(&mut self) -> Result<u32, CommandError> {
        let (word, topology) = (self.word(), self.topology);
        link_named(word, topology).ok_or_else(|| {
            let last = topology.links.last();
            let two = last.map_or_else(String::new, |l| format!("{}-{}", topology.label(l.a), topology.label(l.b)));
            wrong(word, format_args!("a link, a number below {} or two nodes such as {two}", topology.links.len()))
        })
    }

    fn priority(&mut self) -> Result<u8, CommandError> {
        self.number(0..=7, "a priority, 0 to 7").map(|priority| priority as u8)
    }

    /// Parses `for TIME`, if there are more words.
    fn lasts(&mut self) -> Result<Option<u64>, CommandError> {
        match self.word() {
            "" => Ok(None),
            "for" => self.time().map(Some),
            word => Err(wrong(word, "for TIME, or nothing more")),
        }
    }

    /// Parses what follows the action of a rule.
    fn rule(&mut self, action: Action) -> Result<Command, CommandError> {
        let mut rule = Rule::new(action);
        let (mut nth, mut count, mut kind) = (None, None, None);
        while let Some(word) = self.words.next() {
            let twice = || wrong(word, "each word once");
            let known = Kind::NAMES.iter().find(|(name, _)| *name == word);
            let first = match word {
                "from" => rule.from.replace(self.host()?).is_none(),
                "to" => rule.to.replace(self.host()?).is_none(),
                "qp" => {
                    let number = self.number(0..=0xff_ffff, "the number of a queue pair, 0 to 0xffffff")?;
                    rule.qp.replace(number as u32).is_none()
                }
                "nth" => nth.replace(self.number(1..=u64::MAX, "a number from 1 on")?).is_none(),
                "count" => {
                    let all = self.words.clone().next() == Some("all");
                    let number = if all {
                        self.keyword("all")?;
                        u64::MAX
                    } else {
                        self.number(1..=u64::MAX, "a number from 1 on, or all")?
                    };
                    count.replace(number).is_none()
                }
                _ => match known {
                    Some((_, known)) => kind.replace(*known).is_none(),
                    None => {
                        let kinds: Vec<_> = Kind::NAMES.iter().map(|(name, _)| *name).collect();
                        let expected = format!("from, to, qp, nth, count, or a kind of frame: {}", kinds.join(", "));
                        return Err(wrong(word, expected));
                    }
                },
            };
            if !first {
                return Err(twice());
            }
        }
        rule.kind = kind.unwrap_or(Kind::Any);
        rule.nth = nth.unwrap_or(1);
        // "The third" is one frame.
        rule.count = count.unwrap_or(if nth.is_some() { 1 } else { u64::MAX });
        Ok(Command::Rule(rule))
    }
}

impl Command {
    /// Parses a command for a network:
    ///
    /// ```text
    /// drop|corrupt|duplicate|delay TIME  [KIND] [from HOST] [to HOST] [qp NUMBER] [nth N] [count N|all]
    /// link down LINK [for TIME]    link up LINK
    /// pause PRIORITY host HOST [for TIME]    resume PRIORITY host HOST
    /// kill HOST    pcap FILE [PORTS]    pcap off    rules    clear [RULE]    stats    time
    /// ```
    ///
    /// `nth` without `count` is one frame; with neither, a rule applies to every frame. Times are the lab's.
    ///
    /// # Errors
    /// The error states what is wrong, and what was expected in its place.
    pub fn parse(text: &str, topology: &Topology) -> Result<Command, CommandError> {
        let mut words = Words { words: text.split_whitespace(), topology };
        let first = words.word();
        let command = match first {
            "drop" => words.rule(Action::Drop)?,
            "corrupt" => words.rule(Action::Corrupt)?,
            "duplicate" => words.rule(Action::Duplicate)?,
            "delay" => {
                let time = words.time()?;
                words.rule(Action::Delay(time))?
            }
            "link" => match words.word() {
                "down" => Command::LinkDown { link: words.link()?, lasts: words.lasts()? },
                "up" => Command::LinkUp { link: words.link()? },
                other => return Err(wrong(other, "down or up")),
            },
            "pause" | "resume" => {
                let priority = words.priority()?;
                words.keyword("host")?;
                let host = words.host()?;
                if first == "pause" {
                    Command::Pause { priority, host, lasts: words.lasts()? }
                } else {
                    Command::Resume { priority, host }
                }
            }
            "kill" => Command::Kill { host: words.host()? },
            "pcap" => match words.word() {
                "" => return Err(wrong("", "a file and perhaps ports such as s0-h1, or off")),
                "off" => Command::CaptureOff,
                file => Command::Capture { file: file.to_owned(), ports: words.word().to_owned() },
            },
            "rules" => Command::Rules,
            "clear" if words.words.clone().next().is_none() => Command::Clear(None),
            "clear" => {
                let number = words.number(1..=u64::from(u32::MAX), "the number of a rule, as `rules` has it")?;
                Command::Clear(Some(number as u32))
            }
            "stats" => Command::Stats,
            "time" => Command::Time,
            other => return Err(wrong(other, COMMANDS)),
        };
        words.end()?;
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::topology::LinkSpec;

    /// Four hosts, two switches, a link between these.
    fn topology() -> Topology {
        let link = |a, b| LinkSpec { a, b, rate: 1_000_000_000, delay: 1_000, loss: 0.0 };
        let links = vec![link(0, 4), link(1, 4), link(2, 5), link(3, 5), link(4, 5)];
        Topology { name: "two".into(), hosts: 4, switches: 2, links, ids: Vec::new() }
    }

    fn parse(text: &str) -> Result<Command, CommandError> {
        Command::parse(text, &topology())
    }

    #[test]
    fn commands_are_read() {
        let drop = Rule::new(Action::Drop);
        let one = |rule: Rule| Rule { count: 1, ..rule };
        for (text, is) in [
            ("drop", Command::Rule(drop)),
            (
                "drop ack from 0 to 1 nth 3",
                Command::Rule(one(Rule { kind: Kind::Ack, from: Some(0), to: Some(1), nth: 3, ..drop })),
            ),
            (
                "corrupt read-response from h1 count 1",
                Command::Rule(one(Rule { action: Action::Corrupt, kind: Kind::ReadResponse, from: Some(1), ..drop })),
            ),
            (
                "delay 50us write to 2",
                Command::Rule(Rule { action: Action::Delay(50_000), kind: Kind::Write, to: Some(2), ..drop }),
            ),
            (
                "  duplicate qp 0x11 nth 2 count all ",
                Command::Rule(Rule { action: Action::Duplicate, qp: Some(17), nth: 2, ..drop }),
            ),
            ("link down 4 for 2s", Command::LinkDown { link: 4, lasts: Some(2_000_000_000) }),
            ("link down h1-s0", Command::LinkDown { link: 1, lasts: None }),
            ("link up 1-s0", Command::LinkUp { link: 1 }),
            ("link up 5-3", Command::LinkUp { link: 3 }),
            ("link up s1-s0", Command::LinkUp { link: 4 }),
            ("pause 3 host 1 for 2ms", Command::Pause { priority: 3, host: 1, lasts: Some(2_000_000) }),
            ("pause 0 host 3", Command::Pause { priority: 0, host: 3, lasts: None }),
            ("resume 0 host 3", Command::Resume { priority: 0, host: 3 }),
            ("kill 2", Command::Kill { host: 2 }),
            ("pcap a.pcapng", Command::Capture { file: "a.pcapng".into(), ports: String::new() }),
            ("pcap a.pcapng s0-h1,s1", Command::Capture { file: "a.pcapng".into(), ports: "s0-h1,s1".into() }),
            ("pcap off", Command::CaptureOff),
            ("rules", Command::Rules),
            ("clear", Command::Clear(None)),
            ("clear 7", Command::Clear(Some(7))),
            ("stats", Command::Stats),
            ("time", Command::Time),
        ] {
            assert_eq!(parse(text), Ok(is), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_what_was_expected() {
        for (text, why) in [
            ("", "the command ends too early: expected drop, corrupt, "),
            ("lose ack", "\"lose\": expected drop, corrupt, "),
            ("drop acks", "\"acks\": expected from, to, qp, nth, count, or a kind of frame: any, data, send, "),
            ("drop from", "the command ends too early: expected a host, 0 to 3"),
            ("drop from 4", "\"4\": expected a host, 0 to 3"),
            ("drop from 1 from 2", "\"from\": expected each word once"),
            ("drop ack nak", "\"nak\": expected each word once"),
            ("drop nth 0", "\"0\": expected a number from 1 on"),
            ("drop count some", "\"some\": expected a number from 1 on, or all"),
            ("drop qp 0x1000000", "\"0x1000000\": expected the number of a queue pair, 0 to 0xffffff"),
            ("delay ack", "\"ack\": expected a time such as 2us"),
            ("delay 0 ack", "\"0\": expected a time such as 2us"),
            ("link", "the command ends too early: expected down or up"),
            ("link down 5", "\"5\": expected a link, a number below 5 or two nodes such as s0-s1"),
            ("link down 0-s1", "\"0-s1\": expected a link, "),
            ("link down 0-s0 2s", "\"2s\": expected for TIME, or nothing more"),
            ("link up 0-s0 for 2s", "\"for\": expected nothing more"),
            ("pause 8 host 1", "\"8\": expected a priority, 0 to 7"),
            ("pause 3 1", "\"1\": expected host"),
            ("kill", "the command ends too early: expected a host, 0 to 3"),
            ("pcap", "the command ends too early: expected a file and perhaps ports"),
            ("pcap off s0", "\"s0\": expected nothing more"),
            ("clear all", "\"all\": expected the number of a rule, as `rules` has it"),
            ("time now", "\"now\": expected nothing more"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.starts_with(why), "{text}: {error}");
        }
    }

    #[test]
    fn errors_stay_short_and_printable() {
        let error = parse(&"\u{1b}x\u{202e}".repeat(10_000)).unwrap_err().to_string();
        assert!(error.len() < 500 && !error.contains(char::is_control), "{error}");
    }

    fn rules() -> impl Strategy<Value = Rule> {
        let action = prop_oneof![
            Just(Action::Drop),
            Just(Action::Corrupt),
            Just(Action::Duplicate),
            (1..=irnic_units::MAX_NS).prop_map(Action::Delay),
        ];
        let host = || proptest::option::of(0..4u32);
        let numbers = (1..=u64::MAX, 1..=u64::MAX);
        (action, 0..Kind::NAMES.len(), host(), host(), proptest::option::of(0..=0xff_ffffu32), numbers).prop_map(
            |(action, kind, from, to, qp, (nth, count))| Rule {
                action,
                kind: Kind::NAMES[kind].1,
                from,
                to,
                qp,
                nth,
                count,
            },
        )
    }

    proptest! {
        #[test]
        fn rules_are_written_as_they_are_read(rule in rules()) {
            prop_assert_eq!(parse(&rule.to_string()), Ok(Command::Rule(rule)), "{}", rule);
        }

        #[test]
        fn any_line_is_a_command_or_an_error(text in "\\PC*") {
            let _ = parse(&text);
        }

        #[test]
        fn any_words_are_a_command_or_an_error(words in proptest::collection::vec(
            prop_oneof![
                proptest::sample::select(&[
                    "drop", "corrupt", "duplicate", "delay", "link", "down", "up", "pause", "resume", "host", "kill",
                    "rules", "clear", "stats", "time", "ack", "any", "from", "to", "qp", "nth", "count", "all", "for",
                    "0-s0", "s0-s1", "-", "s", "h", "0x", "0x-1", "0", "1", "99999999999999999999", "2ms", "-1s", "1e999s",
                ][..]).prop_map(str::to_owned),
                any::<String>(),
            ],
            0..9,
        )) {
            if let Err(error) = parse(&words.join(" ")) {
                prop_assert!(error.to_string().contains("expected "), "{}", error);
            }
        }
    }
}
