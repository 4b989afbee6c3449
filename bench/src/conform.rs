//! `irnic conform`: replays event traces through the loss-recovery modules used by queue pairs, in the output format of
//! IRN's reference modules (dissertation §4.5.2).

use std::fmt;
use std::io::{self, BufRead, BufWriter, Write};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use irnic_transports::config::paper;
use irnic_transports::recovery::{Class, Receiver, Recovery, Sender};
use irnic_transports::wire::Opcode;
use irnic_transports::{Psn, Time};

use irnic_report::output::Stdout;

/// Replay an event trace through the production IRN modules, from standard input to standard output.
///
/// irn-recv reads `qid opcode psn` per line and prints `nack next_expected sack_psn msn cqes`; irn-send reads `qid 0`
/// (txFree), `qid 1 cumulative sack nack` (receiveAck) or `qid 2 quick` (timeout) and prints the sender's registers.
/// The first line is the number of events. Bitmaps have 128 bits, the BDP cap is 111 packets, N is 3, a QP has 2,807
/// packets to send: the settings of the reference modules.
#[derive(Args)]
#[command(
    after_help = "Example:\n  irnic conform irn-recv < loss-1pct-recv-input.txt | diff - loss-1pct-recv-output.txt"
)]
pub struct ConformArgs {
    /// Module to run: receiver (irn-recv) or sender (irn-send)
    #[arg(value_enum)]
    module: Module,
}

#[derive(Copy, Clone, ValueEnum)]
enum Module {
    IrnRecv,
    IrnSend,
}

/// Settings of the reference modules.
const BITMAP: u32 = 128;
const CAP: u32 = 111;
const PACKETS: u32 = 2807;
/// Number of queue pairs of the reference test bench.
const MAX_QPS: u32 = 1000;

/// An error of a trace.
#[derive(Debug)]
enum TraceError {
    /// Reading standard input failed.
    Read(io::Error),
    /// Writing standard output failed, which is reported where it is detected.
    Output(io::Error),
    /// Line number, and what was expected there.
    Line(usize, &'static str),
    /// Numbers of events announced and found.
    Count(usize, usize),
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceError::Read(e) | TraceError::Output(e) => write!(f, "{e}"),
            TraceError::Line(line, expected) => write!(f, "line {line}: expected {expected}"),
            TraceError::Count(announced, found) => {
                write!(f, "the first line announces {announced} events, {found} follow")
            }
        }
    }
}

impl From<io::Error> for TraceError {
    fn from(e: io::Error) -> Self {
        TraceError::Output(e)
    }
}

/// Entry point of the subcommand.
pub fn main(args: &ConformArgs) -> ExitCode {
    let mut out = BufWriter::new(Stdout);
    let input = io::stdin().lock();
    let result = match args.module {
        Module::IrnRecv => replay(input, |event| receive(event, &mut out)),
        Module::IrnSend => replay(input, |event| send(event, &mut out)),
    };
    match result.and_then(|()| Ok(out.flush()?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(TraceError::Output(_)) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("irnic conform: {e}");
            ExitCode::from(2)
        }
    }
}

/// An event: the QP's state, and the numbers of its line.
struct Event<'a, S> {
    qp: &'a mut S,
    numbers: &'a [u32],
    line: usize,
}

/// State of one queue pair of a replay.
trait QpState {
    fn new() -> Self;
}

impl QpState for Receiver {
    fn new() -> Receiver {
        Receiver::new(Psn::new(0), Psn::new(0), BITMAP)
    }
}

impl QpState for Sender {
    fn new() -> Sender {
        Sender::new(Recovery::Selective, Psn::new(0), CAP, 1)
    }
}

fn replay<S: QpState>(
    input: impl BufRead,
    mut each: impl FnMut(Event<'_, S>) -> Result<(), TraceError>,
) -> Result<(), TraceError> {
    let mut lines = input.lines().enumerate();
    let (_, first) = lines.next().ok_or(TraceError::Line(1, "the number of events"))?;
    let announced =
        first.map_err(TraceError::Read)?.trim().parse().map_err(|_| TraceError::Line(1, "the number of events"))?;
    let mut qps: Vec<S> = Vec::new();
    let mut numbers = Vec::new();
    let mut found = 0;
    for (line, text) in lines {
        let (text, line) = (text.map_err(TraceError::Read)?, line + 1);
        if text.trim().is_empty() {
            continue;
        }
        numbers.clear();
        for word in text.split_ascii_whitespace() {
            numbers.push(word.parse().map_err(|_| TraceError::Line(line, "numbers separated by spaces"))?);
        }
        let qid = numbers[0];
        if qid >= MAX_QPS {
            return Err(TraceError::Line(line, "a queue pair below 1000"));
        }
        while qps.len() <= qid as usize {
            qps.push(S::new());
        }
        each(Event { qp: &mut qps[qid as usize], numbers: &numbers[1..], line })?;
        found += 1;
    }
    if found == announced { Ok(()) } else { Err(TraceError::Count(announced, found)) }
}

fn receive(event: Event<'_, Receiver>, out: &mut impl Write) -> Result<(), TraceError> {
    let &[opcode, psn] = event.numbers else { return Err(TraceError::Line(event.line, "qid opcode psn")) };
    let opcode = u8::try_from(opcode).ok().filter(|&o| o < 32).and_then(Opcode::from_u8);
    let opcode = opcode.ok_or(TraceError::Line(event.line, "the low five bits of an RC opcode"))?;
    let qp = event.qp;
    let psn = Psn::new(psn);
    let (nack, cqes) = qp.receive_data(psn, Class::of(opcode));
    writeln!(out, "{} {} {psn} {} {cqes}", u8::from(nack), qp.expected(), qp.msn())?;
    Ok(())
}

fn send(event: Event<'_, Sender>, out: &mut impl Write) -> Result<(), TraceError> {
    let qp = event.qp;
    match *event.numbers {
        [0] => {
            let sent = qp.tx_free(Time::ZERO, qp.next().get() < PACKETS);
            write!(out, "0 {} {} ", u8::from(sent.is_some()), sent.unwrap_or_default())?;
        }
        [1, cumulative, sack, nack @ (0 | 1)] => {
            qp.receive_ack(Time::ZERO, Psn::new(cumulative), (nack == 1).then_some(Psn::new(sack)));
            write!(out, "1 ")?;
        }
        [2, quick @ (0 | 1)] => {
            let extend = qp.timeout(quick == 1, paper::N);
            write!(out, "2 {} ", u8::from(extend))?;
        }
        _ => return Err(TraceError::Line(event.line, "qid 0, qid 1 cumulative sack nack, or qid 2 quick")),
    }
    let s = qp.state();
    writeln!(
        out,
        "{} {} {} {} {} {} {}",
        s.next,
        s.acked,
        s.retransmit,
        s.recovery,
        u8::from(s.do_retransmit),
        u8::from(s.in_recovery),
        u8::from(s.find_new_hole)
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(module: Module, input: &str) -> Result<String, String> {
        let mut out = Vec::new();
        let result = match module {
            Module::IrnRecv => replay(input.as_bytes(), |e| receive(e, &mut out)),
            Module::IrnSend => replay(input.as_bytes(), |e| send(e, &mut out)),
        };
        result.map(|()| String::from_utf8(out).unwrap()).map_err(|e| e.to_string())
    }

    /// Every committed trace, to the last line.
    #[test]
    fn the_modules_answer_as_the_reference_does() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/irn-traces/");
        for trace in ["loss-1pct", "loss-5pct"] {
            for (module, kind) in [(Module::IrnRecv, "recv"), (Module::IrnSend, "send")] {
                let read = |end| {
                    let file = std::fs::File::open(format!("{dir}{trace}-{kind}-{end}.txt.gz")).unwrap();
                    io::read_to_string(flate2::read::GzDecoder::new(file)).unwrap()
                };
                let ours = run(module, &read("input")).unwrap();
                let reference = read("output");
                for (n, (a, b)) in ours.lines().zip(reference.lines()).enumerate() {
                    assert_eq!(a, b, "{trace}-{kind}, event {}", n + 1);
                }
                assert_eq!(ours.len(), reference.len(), "{trace}-{kind}");
            }
        }
    }

    #[test]
    fn errors_name_the_line() {
        for (input, error) in [
            ("", "line 1: expected the number of events"),
            ("x\n", "line 1: expected the number of events"),
            ("1\n0 1\n", "line 2: expected qid opcode psn"),
            ("1\n0 21 0\n", "line 2: expected the low five bits of an RC opcode"),
            ("1\n0 -1 0\n", "line 2: expected numbers separated by spaces"),
            ("1\n5000 1 0\n", "line 2: expected a queue pair below 1000"),
            ("2\n0 1 0\n", "the first line announces 2 events, 1 follow"),
        ] {
            assert_eq!(run(Module::IrnRecv, input), Err(error.into()));
        }
    }
}
