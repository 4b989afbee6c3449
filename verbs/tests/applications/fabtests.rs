//! fabtests, libfabric's own tests, of its repository: messages, RMA and data in completions over connections, and
//! tagged messages over `ofi_rxm`. `TESTS_FABTESTS` names the folder with their programs, which find the libfabric that
//! they were built for.

use std::path::Path;

use libtest_mimic::{Failed, Trial};

use crate::libfabric::{ADDRESS, IP, make_interface};
use crate::process::{Ended, Process};
use crate::sandbox::{Device, LOSSLESS, RELIABLE, Sandbox, namespaces, of_sources, wait_for_service};
use crate::table::Row;

/// The folder of the programs.
const FOLDER: &str = "TESTS_FABTESTS";
const MESSAGES: &str = "verbs;ofi_rxm";
const LOOPS: &str = "-I 20 -S 65536";

/// A program, its provider and arguments, and what the report of an end has to say.
#[derive(Copy, Clone)]
struct Run {
    program: &'static str,
    provider: &'static str,
    args: &'static str,
    says: Says,
}

#[derive(Copy, Clone)]
enum Says {
    /// A row of the size and number of iterations of [`LOOPS`], at both ends.
    Loops,
    /// A line of one end.
    Line(&'static str),
    /// Nothing that could be relied on: it compares, and its exit status tells.
    Nothing,
}

const fn run(program: &'static str, provider: &'static str, args: &'static str, says: Says) -> Run {
    Run { program, provider, args, says }
}

const RUNS: &[Run] = &[
    run("fi_msg", "verbs", "", Says::Line("Data check OK")),
    run("fi_cm_data", "verbs", "", Says::Nothing),
    run("fi_cq_data", "verbs", "-e msg -o senddata", Says::Line("remote_cq_data: success")),
    run("fi_msg_pingpong", "verbs", "-v", Says::Loops),
    run("fi_msg_bw", "verbs", "-v", Says::Loops),
    run("fi_rma_bw", "verbs", "-e msg -o write", Says::Loops),
    run("fi_rma_bw", "verbs", "-e msg -o read", Says::Loops),
    run("fi_rdm_tagged_pingpong", MESSAGES, "-v", Says::Loops),
    run("fi_rdm_tagged_bw", MESSAGES, "-v", Says::Loops),
    run("fi_rdm_multi_client", MESSAGES, "-C 5 -I 5", Says::Nothing),
];

/// Lines of docs/applications.md.
pub const ROWS: &[Row] = &[
    Row { network: "shm and udp, 0 %", ..row("fi_msg, fi_cm_data -p verbs", "what both ends say") },
    row("fi_cq_data, fi_msg_{pingpong,bw} -v -p verbs", "data (`-v`), and what both ends say"),
    row("fi_rma_bw -e msg -o {write,read} -p verbs", "each iteration in the report of both ends"),
    row(
        "fi_rdm_tagged_{pingpong,bw} -v, fi_rdm_multi_client -p 'verbs;ofi_rxm'",
        "data (`-v`), and what both ends say",
    ),
];

const fn row(command: &'static str, checked: &'static str) -> Row {
    Row {
        application: "fabtests of libfabric's repository",
        package: "=2.7.0a1",
        command,
        checked,
        network: "shm and udp, 0 and 1 %",
    }
}

/// All of them, in the long form.
pub fn trials() -> Vec<Trial> {
    let of = |&run: &Run| {
        let Run { program, provider, args, .. } = run;
        let name = format!("fabtests: {program} -p {provider} {args}");
        // These disconnect at once. If the RTU is lost, the DREQ comes first, as with the kernel's CM: their servers do
        // not expect that, and free the connection twice.
        let networks = if ["fi_msg", "fi_cm_data"].contains(&program) { &LOSSLESS[..] } else { &RELIABLE };
        of_sources(FOLDER, &name, &[IP], networks, move |sandbox, folder, device| {
            if !namespaces() {
                irnic_testkit::skipped("there are no network namespaces, to make an interface in");
                return Ok(());
            }
            both_ends(sandbox, &folder.join(program), run, device)
        })
    };
    RUNS.iter().flat_map(of).collect()
}

fn both_ends(sandbox: &Sandbox, program: &Path, run: Run, device: Device) -> Result<(), Failed> {
    make_interface()?;
    let command = |peer: Option<&str>| {
        let mut command = sandbox.command(program, device);
        command.env("IRNIC_ADDRESSES", ADDRESS).args(["-p", run.provider]).args(run.args.split_whitespace());
        if let Says::Loops = run.says {
            command.args(LOOPS.split(' '));
        }
        command.args(["-s", ADDRESS]).args(peer);
        command
    };
    let mut server = Process::start(&mut command(None))?;
    wait_for_service(&mut server)?;
    let client = Process::start(&mut command(Some(ADDRESS)))?;
    let ends = Process::end_both([client, server], true)?;
    let is_right = match run.says {
        Says::Loops => ends.iter().all(reports),
        Says::Line(line) => ends.iter().any(|end| end.stdout.contains(line)),
        Says::Nothing => true,
    };
    if is_right && ends.iter().all(|end| end.status.success()) {
        Ok(())
    } else {
        Err(format!("{:?}\n{:?}", ends[0].failed("client"), ends[1].failed("server")).into())
    }
}

/// Whether a report has one row, of [`LOOPS`].
fn reports(end: &Ended) -> bool {
    let rows = end.stdout.lines().skip_while(|line| !line.starts_with("bytes")).skip(1);
    let rows: Vec<Vec<&str>> = rows.map(|row| row.split_whitespace().collect()).collect();
    matches!(&rows[..], [row] if row.starts_with(&["64k", "20"]))
}
