//! `irnic doctor`: finds problems that keep applications from running on irnic, or make them slow, with remedies.
//!
//! `device` examines settings, addresses, ports and libraries, `host` the machine, `command` a program, `stacks` its
//! communication libraries.

mod command;
mod device;
mod finding;
mod host;
mod stacks;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use irnic_verbs::config::Variables;

use irnic_report::junit;
use irnic_report::output::{self, DASH, OutFile};

use finding::{Finding, Verdict};

/// Arguments of `irnic doctor`.
#[derive(Args)]
#[command(
    about = "Diagnose problems that keep applications from running on irnic, or make them slow, and suggest fixes",
    after_help = "\
Prints a line per check: ok, note (may matter) or wrong, the finding and, after a semicolon, the fix. Settings are those \
that irnic run would use.

Exit status: 0 nothing is wrong, 1 something is wrong, 2 bad arguments.

Examples:
  irnic doctor
  irnic doctor -- ./app --its-options       also check the program, without starting it
  irnic doctor --json | jq '.[] | select(.verdict == \"wrong\")'"
)]
pub struct DoctorArgs {
    /// Print only findings that are not ok
    #[arg(short, long)]
    quiet: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Also write JUnit XML, a test case per check; - writes to standard output instead of the findings
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Program to check, with its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// The findings as test cases. Several may concern the same thing, such as two libraries: a number distinguishes them,
/// so that names are stable between runs.
fn cases(findings: &[Finding]) -> impl Iterator<Item = junit::Case> {
    findings.iter().enumerate().map(|(index, finding)| {
        let earlier = findings[..index].iter().filter(|earlier| earlier.about == finding.about).count();
        let name = if earlier == 0 { finding.about.to_owned() } else { format!("{} {}", finding.about, earlier + 1) };
        let line = finding.line().trim_end().to_owned();
        let verdict = match finding.verdict {
            Verdict::Wrong => junit::Verdict::Failed(line.clone()),
            Verdict::Ok | Verdict::Note => junit::Verdict::Passed,
        };
        junit::Case { name, verdict, output: line, took: None }
    })
}

/// Runs `irnic doctor`.
pub fn main(args: &DoctorArgs) -> ExitCode {
    // JSON is a result file as well, which must have standard output to itself.
    let json = args.json.then(|| OutFile::open(Path::new(DASH)).expect("the first of them"));
    let junit = match args.junit.as_deref().map(junit::File::open).transpose() {
        Ok(junit) => junit,
        Err(error) => {
            eprintln!("irnic doctor: --junit {error}");
            return ExitCode::from(2);
        }
    };
    let mut findings = Vec::new();
    match Variables::from_environment() {
        Ok(variables) => findings.extend(device::examine(&variables)),
        Err(error) => findings.push(Finding::wrong("settings", error.to_string(), "")),
    }
    findings.extend(host::examine());
    if let [program, ..] = &args.command[..] {
        findings.extend(command::examine(program));
    }
    let is_wrong = findings.iter().any(|finding| finding.verdict == Verdict::Wrong);
    if let Some(Err(error)) = junit.map(|file| file.write("irnic doctor", cases(&findings))) {
        eprintln!("irnic doctor: --junit {error}");
        return ExitCode::FAILURE;
    }
    findings.retain(|finding| !args.quiet || finding.verdict != Verdict::Ok);
    match json {
        // `output::finish` reports errors of standard output.
        Some(file) => {
            _ = file.write(|to| {
                serde_json::to_writer_pretty(&mut *to, &findings)?;
                writeln!(to)
            })
        }
        None => output::print(&findings.iter().map(Finding::line).collect::<String>()),
    }
    ExitCode::from(u8::from(is_wrong))
}
