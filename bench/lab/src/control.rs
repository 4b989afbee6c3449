//! The control socket of a lab: commands are lines of text, answers are lines of JSON.
//!
//! Threads of the launcher read commands ([`listen`]); the network's thread carries them out between two rounds
//! ([`Control::attend`]) and answers once they have taken effect.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded};
use irnic_fabric::lab::{Command, Lab, Plan};
use irnic_fabric::topology::Topology;
use irnic_ports::lab::{Addressing, LabServer, Unasked, Waker};
use irnic_report::origin::Origin;
use irnic_report::output::DASH;
use irnic_sim::port_capture::{PcapArgs, PortCapture};
use serde_json::{Value, json};

use crate::pairs::Pairs;
use crate::process_stats::ProcessStats;
use crate::report::Report;
use crate::rules::rules;
use crate::settings::Settings;
use crate::socket;
use crate::view::{Busy, View};

/// The environment variable with the address of the control socket.
pub const VARIABLE: &str = "IRNIC_LAB_CONTROL";
/// Suffix of the default names of control sockets.
pub const SUFFIX: &str = "-control";

/// Maximum length of a command, bytes.
const LONGEST: u64 = 4_096;
/// Maximum number of queued commands.
const WAITING: usize = 64;
/// Maximum number of faults that are remembered for reports.
const REMEMBERED: usize = 1_000;

/// A command, and the channel for its answer.
struct Request {
    text: String,
    answer: Sender<String>,
}

/// The network's end of a control socket.
pub struct Control {
    requests: Receiver<Request>,
    topology: Topology,
    settings: Settings,
    addressing: Addressing,
    began: Instant,
    /// Answers deferred to a lab time, ns.
    pending: Vec<(u64, Sender<String>, String)>,
    /// Faults, and their ends, with the lab times of their effect, ns.
    faults: Vec<(u64, String)>,
}

/// The lab being controlled.
pub struct Emulation<'a> {
    /// Its processes.
    pub server: &'a mut LabServer,
    /// Its network.
    pub lab: &'a mut Lab,
    /// Traffic between hosts.
    pub pairs: &'a Pairs,
    /// The lab's first time, ns.
    pub began: u64,
    /// The time during which frames were under way.
    pub busy: Busy,
    /// Frames that reached hosts, but no process.
    pub unclaimed: u64,
    /// Number of times that time advanced although an application had not waited, if it waits for that.
    pub unasked: Option<Unasked>,
}

/// A control socket. Dropping it removes its file.
pub struct Socket {
    place: String,
}

impl Drop for Socket {
    fn drop(&mut self) {
        if !self.place.starts_with('@') {
            let _ = std::fs::remove_file(&self.place);
        }
    }
}

impl Socket {
    /// The address for clients: a path, or `@` and an abstract name.
    pub fn place(&self) -> String {
        self.place.clone()
    }
}

/// Opens the control socket of a lab at an unused path, or at an abstract name.
///
/// # Errors
/// Those of the system.
pub fn listen(
    place: &Path,
    waker: Waker,
    topology: Topology,
    settings: Settings,
    addressing: Addressing,
) -> io::Result<(Control, Socket)> {
    let is_abstract = place.as_os_str().as_bytes().starts_with(b"@");
    let place = if is_abstract { place.to_owned() } else { std::path::absolute(place)? };
    let place = place.display().to_string();
    let listener = socket::listen(&place)?;
    // From here on there is a file of its own to remove.
    let socket = Socket { place };
    let (sender, requests) = bounded(WAITING);
    std::thread::Builder::new().name("control".into()).spawn(move || {
        for client in listener.incoming() {
            // Possibly too many open files: retry later rather than spin.
            let Ok(client) = client else {
                std::thread::sleep(std::time::Duration::from_millis(10));
                continue;
            };
            if socket::is_own(&client) {
                let (sender, waker) = (sender.clone(), waker.clone());
                let serve = move || drop(serve(&client, &sender, &waker));
                let _ = std::thread::Builder::new().name("control".into()).spawn(serve);
            }
        }
    })?;
    let control = Control {
        requests,
        topology,
        settings,
        addressing,
        began: Instant::now(),
        pending: Vec::new(),
        faults: Vec::new(),
    };
    Ok((control, socket))
}

fn refused(why: impl std::fmt::Display) -> String {
    format!("{{\"ok\":false,\"error\":{}}}", Value::from(why.to_string()))
}

/// Formats an answer that begins with `"ok":true`, whatever the order of other keys.
fn done(fields: &Value) -> String {
    match fields.to_string().strip_prefix('{') {
        Some("}") | None => "{\"ok\":true}".into(),
        Some(rest) => format!("{{\"ok\":true,{rest}"),
    }
}

/// Forwards a client's commands one by one, until it disconnects or sends one that is too long.
fn serve(client: &UnixStream, network: &Sender<Request>, waker: &Waker) -> io::Result<()> {
    let mut lines = BufReader::new(client);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut lines).take(LONGEST).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(());
        }
        let whole = line.ends_with(b"\n") || (read as u64) < LONGEST;
        let answer = if whole {
            let (answer, answers) = bounded(1);
            let text = String::from_utf8_lossy(&line).into_owned();
            let sent = network.send(Request { text, answer }).is_ok();
            waker.wake();
            answers.recv().ok().filter(|_| sent).unwrap_or_else(|| refused("the lab has ended"))
        } else {
            refused(format_args!("expected a command of at most {LONGEST} bytes"))
        };
        let mut client = client;
        client.write_all(format!("{answer}\n").as_bytes())?;
        if !whole {
            return Ok(());
        }
    }
}

impl Control {
    /// Returns whether there are commands or deferred answers.
    #[inline]
    pub fn has_news(&self) -> bool {
        !self.requests.is_empty() || !self.pending.is_empty()
    }

    /// Carries out the queued commands, and sends the deferred answers that are due.
    #[cold]
    pub fn attend(&mut self, emulation: &mut Emulation<'_>) {
        while let Ok(Request { text, answer }) = self.requests.try_recv() {
            match self.carry_out(&text, emulation) {
                Ok((Some(at), said)) => self.pending.push((at, answer, said)),
                Ok((None, said)) => drop(answer.send(said)),
                Err(why) => drop(answer.send(refused(why))),
            }
        }
        let now = emulation.lab.now();
        for (_, answer, said) in self.pending.extract_if(.., |(at, ..)| *at <= now) {
            let _ = answer.send(said);
        }
    }

    /// Carries out a command. Returns the answer, and the lab time, ns, at which it takes effect, if that is later.
    fn carry_out(&mut self, text: &str, emulation: &mut Emulation<'_>) -> Result<(Option<u64>, String), String> {
        let Emulation { server, lab, .. } = emulation;
        let now = server.now().max(lab.now());
        let faults = &mut self.faults;
        let mut remember = |at: u64, text: String| {
            if faults.len() < REMEMBERED {
                faults.push((at, text));
            }
        };
        let said = text.trim();
        let mut plan = |plan, lasts: Option<u64>| {
            let at = lab.plan(now, plan, lasts);
            remember(at, said.to_owned());
            if let Some(lasts) = lasts {
                remember(at.saturating_add(lasts), format!("end of {said}"));
            }
            Ok((Some(at), done(&json!({ "at_ns": at }))))
        };
        let fields = match Command::parse(text, &self.topology).map_err(|e| e.to_string())? {
            Command::LinkDown { link, lasts } => return plan(Plan::Down { link }, lasts),
            Command::LinkUp { link } => return plan(Plan::Up { link }, None),
            Command::Pause { priority, host, lasts } => return plan(Plan::Pause { host, priority }, lasts),
            Command::Resume { priority, host } => return plan(Plan::Resume { host, priority }, None),
            Command::Rule(rule) => {
                remember(now, said.to_owned());
                json!({ "rule": lab.add_rule(rule) })
            }
            Command::Clear(id) => match (id, lab.remove_rules(id)) {
                (Some(id), 0) => return Err(format!("there is no rule {id}; `rules` has those there are")),
                (_, cleared) => {
                    remember(now, said.to_owned());
                    json!({ "cleared": cleared })
                }
            },
            Command::Capture { file, ports } => self.capture(&file, &ports, lab)?,
            Command::CaptureOff if lab.stop_recording() => json!({}),
            Command::CaptureOff => return Err("pcap off: nothing is recorded".into()),
            Command::Rules => json!({ "rules": rules(lab.rules()) }),
            Command::Time => json!({ "ns": now }),
            Command::Stats => self.stats(emulation),
            Command::Kill { host } => match server.kill(host) {
                (killed, 0) if killed.is_empty() => return Err(format!("host {host} has no process")),
                (killed, 0) => {
                    remember(now, said.to_owned());
                    json!({ "killed": killed })
                }
                (killed, hidden) => {
                    let killed = killed.len();
                    return Err(format!(
                        "{hidden} processes of host {host} cannot be seen from here; {killed} were killed"
                    ));
                }
            },
        };
        Ok((None, done(&fields)))
    }

    /// Returns the faults that were commanded, and their ends, with the lab times of their effect, ns.
    pub fn faults(&self) -> &[(u64, String)] {
        &self.faults
    }

    /// Adds faults that were planned from the beginning.
    pub fn remember(&mut self, planned: impl IntoIterator<Item = (u64, String)>) {
        self.faults.extend(planned.into_iter().take(REMEMBERED));
    }

    /// Begins a capture. Returns the number of ports.
    fn capture(&self, file: &str, ports: &str, lab: &mut Lab) -> Result<Value, String> {
        if file == DASH {
            return Err("pcap -: expected a file; standard output is the application's".into());
        }
        if lab.is_recording() {
            return Err("pcap: packets are recorded already; `pcap off` ends that".into());
        }
        let pcap_port = ports.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let args = PcapArgs { pcap: Some(file.into()), pcap_port };
        let addressing = self.addressing;
        let network = lab.network().ports();
        let capture = PortCapture::open(&args, &self.topology, network, move |host| addressing.address(host))?;
        let ports = capture.map(|capture| {
            let ports = capture.ports.clone();
            let recorded = ports.len();
            lab.record(ports, Box::new(capture));
            recorded
        });
        Ok(json!({ "ports": ports }))
    }

    /// The counters so far, as in `--json` at the end.
    fn stats(&self, emulation: &Emulation<'_>) -> Value {
        let &Emulation { ref server, ref lab, pairs, began, busy, unclaimed, unasked } = emulation;
        let took = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let (lasted, lateness) = (server.now().saturating_sub(began), server.lateness());
        let guests: Vec<_> = server.guests().collect();
        let (guests, ip) = (&guests[..], server.ip());
        let view = View { lab, pairs, lasted, busy, lateness, unclaimed, unasked, guests, ip, samples: None };
        let processes = &ProcessStats::all(server);
        let Control { topology, settings, faults, .. } = self;
        let origin = &Origin::of_process();
        Report { view, topology, settings, took, ended: &[], processes, comparison: None, faults, origin }.json()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_begin_with_whether_it_was_done() {
        assert_eq!(done(&json!({})), "{\"ok\":true}");
        assert_eq!(done(&json!({ "at_ns": 5 })), "{\"ok\":true,\"at_ns\":5}");
        assert_eq!(refused("no \"x\""), "{\"ok\":false,\"error\":\"no \\\"x\\\"\"}");
    }
}
