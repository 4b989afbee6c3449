//! Faults of other programs, which excuse a failure of a test: it is run again.

use std::io::{self, Write};

/// How often a test is run.
pub const ATTEMPTS: u32 = 3;

/// A fault of another program, known by what that says.
#[derive(Clone, Copy, Debug)]
pub struct Premise {
    /// The tests whose names begin with this.
    pub tests: &'static str,
    pub reason: &'static str,
    /// What a failure says, all of it.
    pub words: &'static [&'static str],
}

/// Of this, a test may see one: who makes two kernels panic has found something.
pub const PANIC: Premise =
    Premise { tests: "", reason: "the guest's kernel panicked", words: &["Kernel panic - not syncing"] };

/// When the other end disconnects, rping's thread for events wakes the main thread and asks for the next event. The
/// main thread destroys the channel and returns 0 (rdma-core 44, rping.c: `cm_thread` and `main`); if the channel is
/// gone first, the other ends the program with 255. All data have come then. Later versions end the thread first.
const CHANNEL_IS_GONE: &str = "rping's thread for events outlives their channel";
const AFTER_THE_LAST_PING: &[&str] = &["\nping data: rdma-ping-9", "rdma_get_cm_event: Bad file descriptor\n"];

/// All but panics.
pub const PREMISES: [Premise; 2] = [
    Premise { tests: "rdma_cm: rping", reason: CHANNEL_IS_GONE, words: AFTER_THE_LAST_PING },
    Premise { tests: "rping", reason: CHANNEL_IS_GONE, words: AFTER_THE_LAST_PING },
];

impl Premise {
    pub fn excuses(&self, test: &str, failure: &str) -> bool {
        test.starts_with(self.tests) && self.words.iter().all(|words| failure.contains(words))
    }
}

/// The premise that excuses a failure of a test, but for a panic.
pub fn excuse(test: &str, failure: &str) -> Option<&'static Premise> {
    PREMISES.iter().find(|premise| premise.excuses(test, failure))
}

/// Says that a test is run again, past the harness's capture of output, and how it failed.
pub fn say(test: &str, premise: &Premise, failure: &str) {
    let failure: String = failure.lines().map(|line| format!("    {line}\n")).collect();
    // Standard error may share a line with the harness.
    let _ = write!(io::stderr(), "\nRETRIED {test}: {}\n{failure}", premise.reason);
}

/// Checks the table by what the programs said.
pub fn check() -> Result<(), String> {
    let pings = |last: &str| format!("ping data: rdma-ping-0: A\nping data: {last}: B\n");
    let gone = "rdma_get_cm_event: Bad file descriptor\n";
    let refused = "Event: RDMA_CM_EVENT_REJECTED; error: 8.\n";
    let (rping, perftest) = ("rdma_cm: rping -c -C 10, irnic as client", "rdma_cm: ib_send_bw -R, irnic as server");
    for (test, failure, excused) in [
        (rping, pings("rdma-ping-9") + gone, true),
        ("rping, the guest is client, no loss", pings("rdma-ping-9") + gone, true),
        (rping, pings("rdma-ping-8") + gone, false),
        (rping, pings("rdma-ping-9"), false),
        (rping, refused.into(), false),
        (perftest, refused.into(), false),
        (perftest, pings("rdma-ping-9") + gone, false),
        ("integrity, irnic as server, loss 1%", "transport retry counter exceeded".into(), false),
        ("integrity, irnic as server, loss 1%", refused.into(), false),
    ] {
        if excuse(test, &failure).is_some() != excused {
            return Err(format!("{test}, excused: {}\n{failure}", !excused));
        }
    }
    Ok(())
}
