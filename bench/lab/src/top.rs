//! `irnic top`: displays a running lab in the terminal.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Read, Write};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::Args;
use irnic_report::output::Stdout;

use crate::process_stats::{Figures, ProcessState, ProcessStats, QueuePair};
use crate::socket::{connect, find};
use crate::stats::{PortStats, Stats};

/// The environment variable with the socket of a process's lab.
pub const VARIABLE: &str = "IRNIC_LAB";
/// Suffix of the names of its sockets.
pub(crate) const SUFFIX: &str = "-stats";
/// Refresh interval.
const REFRESH: Duration = Duration::from_millis(500);
/// Time for a lab to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Default lines and columns of a terminal of unknown size.
const SCREEN: (usize, usize) = (24, 80);
/// Maximum length of a bar.
const BAR: usize = 20;

const AFTER_HELP: &str = "\
Rates are in lab time: a busy link shows 100 %, however slowly lab time advances. Exit status: 0, also when the lab
ends; 1 no lab found, or it does not answer; 2 bad options.

Examples:
  irnic top                        the only lab of this user, refreshed until Ctrl-C
  irnic top --once                 print once, over half a second
  irnic top --once --json          one snapshot, for programs";

/// Show a running lab: processes and queue pairs, traffic of hosts, queues, drops and pauses.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP, disable_version_flag = true)]
pub struct TopArgs {
    /// Statistics socket of the lab [default: IRNIC_LAB, which is set for a lab's processes; else the only lab of this
    /// user]
    #[arg(long, value_name = "SOCKET")]
    socket: Option<String>,
    /// Print once and exit; always so if output is not a terminal
    #[arg(long)]
    once: bool,
    /// Print the snapshot as JSON, with counters since the start of the lab
    #[arg(long, requires = "once")]
    json: bool,
}

/// Returns the body of a lab's answer.
fn get(socket: &str) -> io::Result<Vec<u8>> {
    let mut stream = connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET /stats.json HTTP/1.1\r\nConnection: close\r\n\r\n")?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply)?;
    let wrong = || io::Error::other("no answer of a lab");
    let end = reply.windows(4).position(|four| four == b"\r\n\r\n").ok_or_else(wrong)?;
    if !reply.starts_with(b"HTTP/1.1 200 ") {
        return Err(io::Error::other(String::from_utf8_lossy(&reply[end + 4..]).trim().to_owned()));
    }
    Ok(reply.split_off(end + 4))
}

fn stats(socket: &str) -> io::Result<Stats> {
    serde_json::from_slice(&get(socket)?).map_err(io::Error::other)
}

/// Returns lines and columns of the terminal.
fn screen() -> (usize, usize) {
    // SAFETY: all-zero bytes are a valid winsize.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: a writable winsize.
    let known = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) } == 0;
    match (size.ws_row, size.ws_col) {
        (lines, columns) if known && lines > 0 && columns > 0 => (lines.into(), columns.into()),
        _ => SCREEN,
    }
}

/// Activity of a port between two snapshots.
struct Course<'a> {
    port: &'a PortStats,
    /// Rate in bit/s of the lab's time, and the share of the link's rate.
    bps: f64,
    load: f64,
    /// Packets dropped or lost, and marked.
    dropped: u64,
    marked: u64,
    /// Share of the time for which it was paused.
    paused: f64,
}

fn courses<'a>(before: &'a Stats, now: &'a Stats) -> Vec<Course<'a>> {
    let passed = now.lab_ns.saturating_sub(before.lab_ns) as f64 / 1e9;
    let share = |amount: f64| if passed > 0.0 { amount / passed } else { 0.0 };
    let course = |(old, port): (&PortStats, &'a PortStats)| {
        let bps = share(port.bytes.saturating_sub(old.bytes) as f64 * 8.0);
        Course {
            port,
            bps,
            load: bps / port.rate_bps.max(1) as f64,
            dropped: (port.dropped + port.lost).saturating_sub(old.dropped + old.lost),
            marked: port.marked.saturating_sub(old.marked),
            paused: share(port.paused_ns.saturating_sub(old.paused_ns) as f64 / 1e9),
        }
    };
    before.ports.iter().zip(&now.ports).map(course).collect()
}

/// Activity of a queue pair between two snapshots.
struct QpCourse<'a> {
    process: &'a ProcessStats,
    qp: &'a QueuePair,
    /// Payload, bit/s of the lab's time: sent, without retransmissions, and received.
    sends: f64,
    receives: f64,
    /// Packets retransmitted per second of the lab's time.
    retransmits: f64,
}

/// Live queue pairs, by current goodput, then by total payload.
fn queue_pairs<'a>(before: &'a Stats, now: &'a Stats) -> Vec<QpCourse<'a>> {
    let key = |process: &ProcessStats, number| (process.host, process.pid, process.slot, number);
    let all = |stats: &'a Stats| {
        stats.processes.iter().flat_map(|process| process.queue_pairs.iter().map(move |qp| (process, qp)))
    };
    let old: HashMap<_, (&ProcessStats, &QueuePair)> =
        all(before).map(|(process, qp)| (key(process, qp.number), (process, qp))).collect();
    let none = (&ProcessStats::default(), &QueuePair::default());
    let mut courses: Vec<QpCourse<'_>> = all(now)
        .filter(|(_, qp)| !qp.destroyed)
        .map(|(process, qp)| {
            let known = old.get(&key(process, qp.number));
            let (old_process, old_qp) = *known.unwrap_or(&none);
            // A new one began after the previous snapshot.
            let from = if known.is_some() { old_process.at_ns } else { before.lab_ns.min(process.at_ns) };
            let passed = process.at_ns.saturating_sub(from) as f64 / 1e9;
            let by_second = |of: fn(&Figures) -> u64| {
                let more = of(&qp.figures).saturating_sub(of(&old_qp.figures)) as f64;
                if passed > 0.0 { more / passed } else { 0.0 }
            };
            QpCourse {
                process,
                qp,
                sends: by_second(|f| f.counts.sent_once()) * 8.0,
                receives: by_second(|f| f.counts.rcvd_bytes) * 8.0,
                retransmits: by_second(|f| f.counts.retransmitted),
            }
        })
        .collect();
    let carried = |c: &QpCourse<'_>| c.qp.figures.counts.sent_once() + c.qp.figures.counts.rcvd_bytes;
    courses.sort_by(|a, b| (b.sends + b.receives).total_cmp(&(a.sends + a.receives)).then(carried(b).cmp(&carried(a))));
    courses
}

/// Formats ns compactly; `samples` of 0 means that nothing was measured.
fn time(ns: u64, samples: u64) -> String {
    match ns {
        _ if samples == 0 => "-".into(),
        ns if ns >= 10_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        ns => format!("{:.1} us", ns as f64 / 1e3),
    }
}

/// A bar for a share.
fn bar(share: f64) -> String {
    let full = (share.clamp(0.0, 1.0) * BAR as f64).round() as usize;
    format!("{}{}", "#".repeat(full), ".".repeat(BAR - full))
}

/// Formats bit/s compactly.
fn rate(bps: f64) -> String {
    match bps {
        bps if bps >= 1e9 => format!("{:.2} Gbit/s", bps / 1e9),
        bps if bps >= 1e6 => format!("{:.2} Mbit/s", bps / 1e6),
        bps => format!("{:.1} kbit/s", bps / 1e3),
    }
}

/// Appends a list of at most `room` lines: the last one says how many are omitted.
fn list(text: &mut String, lines: Vec<String>, room: usize) {
    let shown = if lines.len() > room { room.saturating_sub(1) } else { lines.len() };
    lines.iter().take(shown).for_each(|line| text.extend([line.as_str(), "\n"]));
    if shown < lines.len() {
        let _ = writeln!(text, "  and {} more", lines.len() - shown);
    }
}

/// Renders the activity between two snapshots in at most `lines` lines.
fn show(before: &Stats, now: &Stats, lines: usize) -> String {
    let mut text = summary(before, now);
    // Four lists, with their headings, share the rest.
    let room = (lines.saturating_sub(4 + 4 * 2) / 4).max(3);
    list_processes(&mut text, now, room);
    list_queue_pairs(&mut text, before, now, room);
    let courses = courses(before, now);
    list_hosts(&mut text, now, &courses, room);
    list_ports(&mut text, now, &courses, room);
    text
}

/// Renders the lab's network, its time, the lateness of frames, and the sums over all ports.
fn summary(before: &Stats, now: &Stats) -> String {
    let mut text = String::new();
    let [host, lab] = [now.host_ns, now.lab_ns].map(|ns| ns as f64 / 1e9);
    let passed = (now.host_ns.saturating_sub(before.host_ns) as f64, now.lab_ns.saturating_sub(before.lab_ns) as f64);
    let slower = match passed {
        (_, 0.0) => "it stands still".to_owned(),
        (host, lab) if host < lab => format!("{:.2} times faster", lab / host),
        (host, lab) => format!("{:.2} times slower", host / lab),
    };
    let _ = writeln!(text, "irnic lab, process {}: {}", now.pid, now.topology);
    let _ = writeln!(text, "time: {lab:.3} s of the lab's in {host:.3} s; now {slower}, {}", now.clock);
    let _ = match now.unasked_jumps {
        None => Ok(()),
        Some(jumps) => writeln!(text, "virtual time: {jumps} jumps without a poll"),
    };
    let _ = match now.late_frames {
        0 => writeln!(text, "fidelity: no frame was late"),
        late => writeln!(text, "fidelity: {late} frames late, the worst by {:.1} us", now.worst_lag_ns as f64 / 1e3),
    };
    let sum = |of: fn(&PortStats) -> u64| now.ports.iter().map(of).sum::<u64>();
    let delivered = now.delivered_bytes.saturating_sub(before.delivered_bytes) as f64 * 8e9;
    let _ = writeln!(
        text,
        "payload: {}; in queues {:.1} KB; dropped {}, lost {}, marked {}, pauses {}",
        rate(if passed.1 > 0.0 { delivered / passed.1 } else { 0.0 }),
        sum(|p| p.queue_bytes) as f64 / 1e3,
        sum(|p| p.dropped),
        sum(|p| p.lost),
        sum(|p| p.marked),
        sum(|p| p.pauses)
    );
    text
}

/// Appends the list of processes.
fn list_processes(text: &mut String, now: &Stats, room: usize) {
    let _ = writeln!(text, "\n{:>5} {:>8} {:>5}  PROCESSES", "HOST", "PID", "SLOT");
    let line = |p: &ProcessStats| {
        let state = match p.state {
            ProcessState::Runs => "",
            ProcessState::Silent => "  (does not answer)",
            ProcessState::Ended => "  (exited)",
            ProcessState::Gone => "  (gone)",
        };
        format!("{:>5} {:>8} {:>5}  {}{state}", format!("h{}", p.host), p.pid, p.slot, printable(&p.name))
    };
    // Those that have left recently come last.
    list(text, now.processes.iter().chain(now.ended.iter().rev()).map(line).collect(), room);
}

/// Appends the list of queue pairs.
fn list_queue_pairs(text: &mut String, before: &Stats, now: &Stats, room: usize) {
    let _ = writeln!(
        text,
        "\n{:>5} {:>8} {:>8} {:>4} {:>13} {:>13} {:>13} {:>8} {:>8} {:>9} {:>9}  QUEUE PAIRS",
        "HOST", "PID", "QPN", "TYPE", "PEER", "SENDS", "RECEIVES", "RESENT/s", "TIMEOUTS", "RTT", "RTT p99"
    );
    let line = |c: &QpCourse<'_>| {
        let peer = c.qp.peer.as_ref();
        let peer = peer.map_or("-".into(), |peer| format!("{} {:#08x}", peer.place(now.hosts), peer.number));
        let (figures, rtt) = (&c.qp.figures, &c.qp.figures.rtt_ns);
        format!(
            "{:>5} {:>8} {:#08x} {:>4} {:>13} {:>13} {:>13} {:>8.0} {:>8} {:>9} {:>9}",
            format!("h{}", c.process.host),
            c.process.pid,
            c.qp.number,
            printable(&c.qp.service),
            printable(&peer),
            rate(c.sends),
            rate(c.receives),
            c.retransmits,
            figures.counts.timeouts,
            time(rtt.mean, rtt.samples),
            time(rtt.p99, rtt.samples)
        )
    };
    list(text, queue_pairs(before, now).iter().map(line).collect(), room);
}

/// Appends the list of hosts with traffic, by the load of their links.
fn list_hosts(text: &mut String, now: &Stats, courses: &[Course<'_>], room: usize) {
    let _ = writeln!(text, "\n{:>5} {:>16} {:>16} {:>8}  LOAD OF HOSTS", "HOST", "SENDS", "RECEIVES", "PAUSED");
    let mut of_host: Vec<(f64, String)> = Vec::new();
    for host in 0..now.hosts {
        let name = format!("h{host}");
        let sends = courses.iter().find(|c| c.port.from == name);
        let receives = courses.iter().find(|c| c.port.to == name);
        let (Some(sends), Some(receives)) = (sends, receives) else { continue };
        let load = sends.load.max(receives.load);
        if load > 0.0 {
            let line = format!(
                "{name:>5} {:>16} {:>16} {:>6.1} %  {}",
                rate(sends.bps),
                rate(receives.bps),
                sends.paused * 100.0,
                bar(load)
            );
            of_host.push((load, line));
        }
    }
    of_host.sort_by(|a, b| b.0.total_cmp(&a.0));
    list(text, of_host.into_iter().map(|(_, line)| line).collect(), room);
}

/// Appends the list of ports that queue, drop, mark or are paused, by the length of their queues.
fn list_ports(text: &mut String, now: &Stats, courses: &[Course<'_>], room: usize) {
    let _ = writeln!(
        text,
        "\n{:>13} {:>12} {:>8} {:>8} {:>8}  QUEUES OF PORTS",
        "PORT", "QUEUED", "DROPPED", "MARKED", "PAUSED"
    );
    let mut fullest: Vec<&Course<'_>> = courses.iter().collect();
    fullest.retain(|c| c.port.queue_bytes > 0 || c.dropped > 0 || c.marked > 0 || c.paused > 0.0);
    fullest.sort_by_key(|c| std::cmp::Reverse((c.port.queue_bytes, c.dropped, c.marked)));
    let peak = now.ports.iter().map(|p| p.peak_bytes).max().unwrap_or(0).max(1);
    let line = |c: &&Course<'_>| {
        format!(
            "{:>13} {:>9.1} KB {:>8} {:>8} {:>6.1} %  {}",
            format!("{} to {}", c.port.from, c.port.to),
            c.port.queue_bytes as f64 / 1e3,
            c.dropped,
            c.marked,
            c.paused * 100.0,
            bar(c.port.queue_bytes as f64 / peak as f64)
        )
    };
    list(text, fullest.iter().map(line).collect(), room);
}

/// Removes control characters.
fn printable(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Truncates lines to the width of a terminal.
fn cut(text: &str, columns: usize) -> String {
    text.lines().map(|line| line.chars().take(columns).collect::<String>() + "\x1b[K\r\n").collect()
}

fn run(args: &TopArgs) -> Result<(), String> {
    let socket = find(args.socket.clone(), VARIABLE, SUFFIX)?;
    let failed = |e: io::Error| format!("{socket}: {e}");
    if args.json {
        let mut text = get(&socket).map_err(failed)?;
        text.push(b'\n');
        return Stdout.write_all(&text).map_err(|e| e.to_string());
    }
    let mut before = stats(&socket).map_err(failed)?;
    let interrupted = irnic_report::interrupt::flag().map_err(|e| e.to_string())?;
    let once = args.once || !io::stdout().is_terminal();
    if !once {
        let _ = Stdout.write_all(b"\x1b[2J");
    }
    loop {
        std::thread::sleep(REFRESH);
        if interrupted.load(Ordering::Relaxed) {
            return Ok(());
        }
        let Ok(now) = stats(&socket) else {
            println!("the lab has ended");
            return Ok(());
        };
        if once {
            return Stdout.write_all(show(&before, &now, usize::MAX).as_bytes()).map_err(|e| e.to_string());
        }
        let (lines, columns) = screen();
        let text: String = show(&before, &now, lines - 1).lines().take(lines - 1).map(|l| format!("{l}\n")).collect();
        let whole = format!("\x1b[H{}\x1b[J", cut(&text, columns));
        let shown = Stdout.write_all(whole.as_bytes()).and_then(|()| Stdout.flush());
        shown.map_err(|e| e.to_string())?;
        before = now;
    }
}

/// Runs `irnic top`.
pub fn main(args: &TopArgs) -> ExitCode {
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("irnic top: {why}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use irnic_transports::qp::QpCounts;

    use super::*;
    use crate::process_stats::{Peer, Rtt};

    fn queue_pair(number: u32, bytes: u64) -> QueuePair {
        let counts = QpCounts {
            sent_bytes: bytes + bytes / 4,
            retransmitted_bytes: bytes / 4,
            retransmitted: bytes / 1_000_000,
            timeouts: 6,
            ..QpCounts::default()
        };
        let figures = Figures { counts, rtt_ns: Rtt { samples: 2, mean: 81_500, p99: 99_900, ..Rtt::default() } };
        let peer = Some(Peer { number: 0x1_4002, address: "127.77.0.2".into() });
        QueuePair { number, service: "RC".into(), peer, figures, ..QueuePair::default() }
    }

    fn snapshot(at: u64, bytes: u64, queue_bytes: u64) -> Stats {
        let port = |from: &str, to: &str, bytes, queue_bytes| PortStats {
            from: from.into(),
            to: to.into(),
            rate_bps: 1_000_000_000,
            bytes,
            queue_bytes,
            peak_bytes: 40_000,
            dropped: queue_bytes / 10_000,
            ..PortStats::default()
        };
        let ports = vec![
            port("h0", "s0", bytes, 0),
            port("h1", "s0", 0, 0),
            port("s0", "h0", 0, 0),
            port("s0", "h1", bytes / 2, queue_bytes),
        ];
        let process = |host: u32| ProcessStats {
            host,
            pid: 4_242 + host,
            slot: 3,
            name: "ib\x1b[2J".into(),
            at_ns: at,
            queue_pairs: vec![queue_pair(0xc001 + host, bytes / u64::from(host + 1))],
            ..ProcessStats::default()
        };
        Stats {
            hosts: 2,
            host_ns: 2 * at,
            lab_ns: at,
            ports,
            processes: vec![process(0), process(1)],
            ..Stats::default()
        }
    }

    #[test]
    fn the_screen_has_rates_of_the_labs_time_and_the_fullest_queue() {
        let (before, now) = (snapshot(1_000_000_000, 0, 0), snapshot(1_500_000_000, 31_250_000, 20_000));
        let text = show(&before, &now, 50);
        let line =
            |of: &str| text.lines().find(|l| l.contains(of)).unwrap_or_else(|| panic!("{of}: {text}")).to_owned();
        assert!(line("time: ").contains("1.500 s of the lab's in 3.000 s; now 2.00 times slower"), "{text}");
        // The list of queue pairs is before the hosts. Goodput is without retransmissions.
        let first = text.lines().skip_while(|l| !l.contains("QUEUE PAIRS")).nth(1).unwrap();
        for part in
            ["h0", "4242", "0x00c001", "RC", "h1 0x014002", "500.00 Mbit/s", " 62 ", " 6 ", "81.5 us", "99.9 us"]
        {
            assert!(first.contains(part), "{part}: {text}");
        }
        let hosts = text[text.find("LOAD OF HOSTS").unwrap()..].to_owned();
        let line =
            |of: &str| hosts.lines().find(|l| l.contains(of)).unwrap_or_else(|| panic!("{of}: {text}")).to_owned();
        assert!(line(" 500.00 Mbit/s").contains("h0"), "{text}");
        assert!(line(" 500.00 Mbit/s").ends_with("##########.........."), "{text}");
        assert!(line(" 250.00 Mbit/s").contains("h1"), "{text}");
        let queue = line("s0 to h1");
        assert!(
            queue.contains("20.0 KB") && queue.contains(" 2 ") && queue.ends_with("##########.........."),
            "{queue}"
        );
        let processes = text.lines().find(|l| l.contains("4243")).unwrap();
        assert!(processes.contains("h1") && !text.contains('\x1b'), "{text}");
    }

    #[test]
    fn what_has_no_room_is_counted() {
        let mut now = snapshot(2, 1, 1);
        now.processes = (0..30).map(|host| ProcessStats { host, ..ProcessStats::default() }).collect();
        let text = show(&snapshot(1, 0, 0), &now, 24);
        assert!(text.contains("and 28 more") && text.lines().count() <= 24, "{text}");
        assert!(!show(&snapshot(1, 0, 0), &now, usize::MAX).contains("more"));
    }

    #[test]
    fn a_lab_that_stands_still_has_no_rates() {
        let text = show(&snapshot(5, 7, 0), &snapshot(5, 9, 0), 24);
        assert!(text.contains("it stands still") && !text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}
