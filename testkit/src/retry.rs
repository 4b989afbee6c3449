//! Retries of tests, and their permitted reasons.
//!
//! A test of two programs rests on premises that neither irnic nor the test can establish: that the machine gives each
//! process a core now and then, that the other program has no race of its own. If a premise fails, a run proves
//! nothing. [`PREMISES`] lists all of them, with the output of the other program, or the library's own warning, that
//! shows that one failed. Tests that do not depend on time, and processes that end by a fault, are never run again.

use std::fmt::Debug;
use std::io::{self, Write};

/// A premise of a test that may fail.
#[derive(Debug, PartialEq, Eq)]
pub struct Premise {
    /// Why a run without it proves nothing, and what is at fault.
    pub reason: &'static str,
    /// The tests that depend on it; `*` stands for any characters.
    pub tests: &'static [&'static str],
    /// Output that shows that it failed: all words of one of these.
    pub signs: &'static [&'static [&'static str]],
}

/// All premises.
pub const PREMISES: &[Premise] = &[
    Premise {
        reason: "a process had no core for so long that its packets were dropped, on a service that does not repeat them",
        tests: &[
            "perftest: * -c UC *",
            "perftest: * -c UD *",
            "examples: ibv_uc_pingpong *",
            "examples: ibv_ud_pingpong *",
            "rdmacm: mckey *",
            "rdmacm: udaddy *",
            "rdmacm: udpong *",
        ],
        signs: &[&["has taken no packet for"]],
    },
    // It reads a clock and the counter one after the other, 200 times; in a lab's time (`--program-time lab`), where
    // reading the counter takes a hundred times as long, it loses the core between them more often.
    Premise {
        reason: "perftest could not fit a line to the processor's counter: it lost the core while it measured",
        tests: &["perftest: *", "lab: perftest in the lab's time", "docs/lab.md", "README.md"],
        signs: &[&["Correlation coefficient r^2"]],
    },
    Premise {
        reason: "ib_send_lat -e took the event of the peer's answer for one of its own sends, and read a status it never got",
        tests: &["perftest: ib_send_lat * -e * % loss)"],
        signs: &[&["scnt=1, ccnt=1"]],
    },
    Premise {
        reason: "libfabric destroyed the queue pair before it polled the last completion (prov/verbs/src/verbs_ep.c, 1.17)",
        tests: &["libfabric: fi_pingpong * -e rdm *"],
        signs: &[&["cq_readerr: Work Request Flushed Error"]],
    },
    Premise {
        reason: "tgt ended a connection whose first command overtook the acknowledgement of its login (iser_rx_handler_non_ff)",
        tests: &["iser: *"],
        signs: &[&["non-login pdu during login phase"]],
    },
    // When the other end disconnects, rping's thread for events wakes the main thread and asks for the next event. The
    // main thread destroys the channel and returns 0 (rdma-core 44, rping.c: `cm_thread` and `main`); if the channel is
    // destroyed first, the other thread ends the program with 255. All data have arrived by then. Later versions end
    // the thread first.
    Premise {
        reason: "rping's thread for events outlives their channel (rdma-core 44, rping.c)",
        tests: &[
            "rdma_cm: rping *",
            "rping, the guest is *",
            "rdmacm: rping (*",
            "docs/howto-applications.md",
            "docs/rdma_cm.md",
        ],
        signs: &[&["\nping data: rdma-ping-9", "rdma_get_cm_event: Bad file descriptor\n"]],
    },
    // Seen with 6.12: two minutes after the beginning of a test its program waited for the completion of a request, and
    // the driver sent nothing.
    Premise {
        reason: "rxe's requester stopped: it repeats an unanswered request no more, whatever its timeout",
        tests: &["integrity, irnic as server*"],
        signs: &[&[crate::rxe::REQUESTER_IDLE]],
    },
    // A test may see one of these: a test that makes two kernels panic has found a bug.
    Premise {
        reason: "the guest's kernel panicked",
        tests: &["*, irnic as client*", "*, irnic as server*"],
        signs: &[&["Kernel panic - not syncing"]],
    },
];

/// Maximum number of attempts of a test.
pub const ATTEMPTS: u32 = 3;

/// Output of a run by which it is decided whether a premise failed.
pub trait Output {
    /// Whether the output contains `text`. Always false if a process ended by a fault (SIGSEGV and the like).
    fn says(&self, text: &str) -> bool;
}

impl Output for str {
    fn says(&self, text: &str) -> bool {
        self.contains(text) && !self.contains(crate::crash::FAULT)
    }
}

impl Output for String {
    fn says(&self, text: &str) -> bool {
        self.as_str().says(text)
    }
}

impl<T: Output, const N: usize> Output for [T; N] {
    fn says(&self, text: &str) -> bool {
        self.iter().any(|part| part.says(text))
    }
}

/// Runs a test, up to three times as long as a premise on which it depends fails, and reports that. Returns the result
/// of the last run.
pub fn attempts<T: Output, E: Debug>(test: &str, run: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    attempts_reporting(test, |premise, failure| say(test, premise, failure), run)
}

fn attempts_reporting<T: Output, E: Debug>(
    test: &str,
    report: impl Fn(&Premise, &str),
    mut run: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    for _ in 1..ATTEMPTS {
        let result = run();
        let failure = result.as_ref().err().map(|e| format!("{e:?}").replace("\\n", "\n")).unwrap_or_default();
        let premise = match &result {
            Ok(found) => failed_premise(test, found),
            Err(_) => failed_premise(test, &failure),
        };
        let Some(premise) = premise else { return result };
        report(premise, &failure);
    }
    run()
}

/// The failed premise of a test, by the output of a run.
pub fn failed_premise(test: &str, output: &(impl Output + ?Sized)) -> Option<&'static Premise> {
    let rests = |premise: &&Premise| premise.tests.iter().any(|pattern| matches(pattern, test));
    let shown = |premise: &&Premise| premise.signs.iter().any(|sign| sign.iter().all(|text| output.says(text)));
    PREMISES.iter().filter(rests).find(shown)
}

/// Reports on standard error, bypassing the test harness's capture of output, that a test is retried: `RETRIED`, the
/// test's name and the reason on a line, then how it failed.
pub fn say(test: &str, premise: &Premise, failure: &str) {
    let failure: String = failure.lines().map(|line| format!("    {line}\n")).collect();
    // The harness may have left an unfinished line.
    write!(io::stderr(), "\nRETRIED {test}: {}\n{failure}", premise.reason).expect("standard error");
}

/// Whether a text matches a pattern in which `*` stands for any characters.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|text| {
            (0..=text.len()).filter(|&at| text.is_char_boundary(at)).any(|at| matches(rest, &text[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of runs of a test whose every run ends like this.
    fn runs(test: &str, result: &Result<String, String>) -> u32 {
        let (mut runs, reports) = (0, std::cell::Cell::new(0));
        // Nothing is written to standard error: a summary would count it.
        let report = |_: &Premise, _: &str| reports.set(reports.get() + 1);
        let last = attempts_reporting(test, report, || {
            runs += 1;
            result.clone()
        });
        assert_eq!((&last, reports.get()), (result, runs - 1));
        runs
    }

    #[test]
    fn a_test_is_run_again_for_its_own_premises_only() {
        let early = "non-login pdu during login phase";
        assert_eq!(runs("iser: tgt's disk and back (shm, no loss)", &Err(early.into())), 3);
        assert_eq!(runs("iser: tgt's disk and back (shm, no loss)", &Ok(early.into())), 3);
        assert_eq!(runs("iser: tgt's disk and back (shm, no loss)", &Err("wrong data".into())), 1);
        assert_eq!(runs("fio: read of 65536 bytes (irn)", &Err(early.into())), 1);
        assert_eq!(runs("golden", &Err("a hash differs".into())), 1);
    }

    #[test]
    fn what_repeats_its_packets_may_not_lose_any() {
        let starved = Ok("process 1 has taken no packet for 100 ms".to_owned());
        assert_eq!(runs("perftest: ib_send_bw -c UD -s 1024 -e -n 1000 (no loss)", &starved), 3);
        assert_eq!(runs("perftest: ib_send_bw -c RC -e -n 200 (irn)", &starved), 1);
    }

    #[test]
    fn a_fault_is_never_excused() {
        let text = format!("{}: signal 11 (SIGSEGV): non-login pdu during login phase", crate::crash::FAULT);
        assert_eq!(runs("iser: tgt's disk and back (shm, no loss)", &Err(text)), 1);
    }

    #[test]
    fn every_sign_has_to_be_there() {
        let pings = |last: &str| format!("ping data: rdma-ping-0: A\nping data: {last}: B\n");
        let closed = "rdma_get_cm_event: Bad file descriptor\n";
        let refused = "Event: RDMA_CM_EVENT_REJECTED; error: 8.\n";
        let (rping, perftest) = ("rdma_cm: rping -c -C 10, irnic as client", "rdma_cm: ib_send_bw -R, irnic as server");
        for (test, failure, excused) in [
            (rping, pings("rdma-ping-9") + closed, true),
            ("rping, the guest is client, no loss", pings("rdma-ping-9") + closed, true),
            ("rdmacm: rping (IPv6, udp, 1 % loss)", pings("rdma-ping-9") + closed, true),
            ("docs/rdma_cm.md", pings("rdma-ping-9") + closed, true),
            ("docs/howto-applications.md", pings("rdma-ping-9") + closed, true),
            ("docs/lab.md", pings("rdma-ping-9") + closed, false),
            ("docs/lab.md", "Correlation coefficient r^2: 0.88 < 0.9\nCan't produce a report\n".into(), true),
            ("docs/tutorial.md", "Correlation coefficient r^2: 0.88 < 0.9\nCan't produce a report\n".into(), false),
            (rping, pings("rdma-ping-8") + closed, false),
            (rping, pings("rdma-ping-9"), false),
            (rping, refused.into(), false),
            (perftest, refused.into(), false),
            (perftest, pings("rdma-ping-9") + closed, false),
            ("integrity, irnic as server, loss 1%", "transport retry counter exceeded".into(), false),
            ("integrity, irnic as server, loss 1%", refused.into(), false),
            ("integrity, irnic as server, loss 1%", "Kernel panic - not syncing".into(), true),
            ("integrity, the guest is server, no loss", "Kernel panic - not syncing".into(), false),
        ] {
            assert_eq!(failed_premise(test, &failure).is_some(), excused, "{test}: {failure}");
        }
    }

    #[test]
    fn patterns() {
        assert!(matches("a * c *", "a b c d") && matches("*", "") && matches("a*", "a"));
        assert!(!matches("a * c", "a b c d") && !matches("a", "ab") && !matches("a *", "b a "));
    }
}
