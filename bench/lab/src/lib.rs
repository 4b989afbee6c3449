//! `irnic lab`: unmodified RDMA applications on an emulated network.
//!
//! `args` and `file` describe the network and the hosts, `switchd` is the network and the time, `processes` has the
//! applications, `control` receives commands of tests, `report` writes the results.

#[macro_use]
extern crate irnic_report;

mod args;
mod compare;
mod control;
pub mod ctl;
mod error;
mod file;
mod files;
pub mod host;
mod html;
mod http;
mod jumps;
mod keeper;
mod metrics;
mod namespaces;
mod pace;
mod pairs;
mod process_stats;
mod processes;
mod report;
mod rules;
mod samples;
mod serve;
mod socket;
mod stats;
mod switchd;
pub mod top;
mod view;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use args::LabArgs;
use error::{LabError, failed};
use file::{HostCommand, LabFile};
use files::Files;
use irnic_fabric::experiment::Case;
use irnic_fabric::lab::Lab;
use irnic_fabric::sim::SimConfig;
use irnic_ports::frames::FrameSpec;
use irnic_ports::lab::{Addressing, LabServer, ServerConfig};
use irnic_sim::port_capture::PortCapture;
use irnic_transports::wire::Mtu;
use irnic_verbs::config::Variables;
use keeper::Keeper;
pub use keeper::{NAME as KEEPER, main as keep};
pub use namespaces::is_agent;
use pace::{Clock, Pace};
use processes::{Ended, Surroundings};
use report::Report;
use serve::{Addresses, Server};
use stats::{Board, Stats};
use switchd::Switchd;
use view::Outcome;

use irnic_launch::run::library;

/// The lab to run.
struct Plan {
    config: SimConfig,
    pace: Pace,
    hosts: Vec<HostCommand>,
    guests: Vec<(u32, FrameSpec)>,
    addressing: Addressing,
}

fn plan(args: &LabArgs) -> Result<Plan, LabError> {
    let LabFile { mut experiment, clock, hosts, mut guests, netns } = match &args.file {
        Some(path) => file::read(path)?,
        None => LabFile::default(),
    };
    experiment.grid.override_with(args.network.values());
    let text = |e: irnic_fabric::experiment::TextError| LabError::Usage(e.to_string());
    let cases = experiment.grid.cases().map_err(text)?;
    let [case]: &[Case; 1] = cases[..]
        .try_into()
        .map_err(|_| LabError::Usage(format!("{} networks; expected one value for each option", cases.len())))?;
    let experiment = case.experiment().map_err(text)?;
    let config = experiment.lab(args.seed).map_err(|e| text(case.error(e)))?;
    let known = config.topology.hosts;
    if let Some(host) = hosts.iter().find(|host| host.host >= known) {
        return Err(LabError::Usage(format!("there is no host {}; expected 0 to {}", host.host, known - 1)));
    }
    guests.extend(args.guest.iter().cloned());
    let netns = netns || args.netns;
    if netns && known > namespaces::MOST {
        return Err(LabError::Usage(format!("--netns: {known} hosts; expected {} at most", namespaces::MOST)));
    }
    if hosts.is_empty() && args.command.is_empty() {
        return Err(LabError::Usage("there is nothing to run; expected a command after --, or hosts in a file".into()));
    }
    if config.setups[0].mtu == Mtu::B8192 {
        return Err(LabError::Usage("--mtu: expected 256 to 4096, which verbs know".into()));
    }
    let pace = clock.unwrap_or(args.clock);
    if pace.clock == Clock::Virtual && !guests.is_empty() {
        return Err(LabError::Usage(
            "--clock virtual: a guest does not tell when it waits; expected another clock".into(),
        ));
    }
    let addressing = match (netns, guests.is_empty()) {
        (true, _) => Addressing::Namespaces,
        (false, true) => Addressing::Loopback,
        (false, false) => Addressing::Detached,
    };
    Ok(Plan { pace, config, hosts, guests, addressing })
}

/// Returns ns since 1970, which distinguishes this lab from others with the same process id.
fn began_at() -> u128 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_nanos())
}

/// The directory of a lab whose hosts have their own networks. Removed on drop.
struct OwnDirectory {
    path: PathBuf,
    _in_use: namespaces::InUse,
}

impl OwnDirectory {
    fn new(path: PathBuf) -> std::io::Result<OwnDirectory> {
        Ok(OwnDirectory { _in_use: namespaces::InUse::new(&path)?, path })
    }
}

impl Drop for OwnDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Serves snapshots of the lab while it runs.
fn serve(board: Arc<Board>, place: &str, addresses: &Addresses) -> Result<(), LabError> {
    let server = Server::bind(board, place, addresses).map_err(failed)?;
    server.live().inspect(|address| eprintln!("irnic lab: live at http://{address}/"));
    server.metrics().inspect(|address| eprintln!("irnic lab: metrics at http://{address}/metrics"));
    server.start().map_err(failed)
}

fn run(args: &LabArgs) -> Result<u8, LabError> {
    let Plan { config, pace, hosts, guests, addressing } = plan(args)?;
    let variables = Variables::from_environment().map_err(|e| LabError::Usage(e.to_string()))?;
    let library = library::find(&variables)?;
    let addresses = Addresses {
        live: args.live,
        metrics: args.metrics,
        public: args.live_public,
        looks: args.metrics.is_some() || args.json.is_some() || args.html.is_some(),
    };
    addresses.check().map_err(LabError::Usage)?;
    let files = Files::open(args)?;
    let mut lab = Lab::new(config.network(), config.ect)?;
    if args.compare {
        lab.keep_flows();
    }
    let ports = lab.network().ports();
    let capture = PortCapture::open(&args.pcap, &config.topology, ports, move |host| addressing.address(host));
    if let Some(capture) = capture.map_err(LabError::Usage)? {
        lab.record(capture.ports.clone(), Box::new(capture));
    }
    let name = format!("{}{}-{}", top::PREFIX, std::process::id(), began_at());
    let directory = (addressing == Addressing::Namespaces).then(|| std::env::temp_dir().join(&name));
    if directory.is_some() {
        namespaces::sweep(&std::env::temp_dir());
    }
    let keeper = Keeper::start(directory.as_deref().map(|directory| (directory, config.topology.hosts)));
    let keeper = keeper.map_err(|e| match directory {
        Some(_) => LabError::Failed(format!("--netns: {e}")),
        None => LabError::Failed(format!("no process to end the others: {e}")),
    })?;
    // The keeper removes it, unless it is killed.
    let directory = directory.map(OwnDirectory::new).transpose().map_err(failed)?;
    // Abstract names are local to a network namespace.
    let place = |what: &str| match &directory {
        Some(OwnDirectory { path, .. }) => path.join(format!("{}lab{what}", top::PREFIX)),
        None => PathBuf::from(format!("@{name}{what}")),
    };
    let (socket, asked) = (place(""), place(top::SUFFIX).display().to_string());
    let rates = (0..lab.hosts()).map(|host| lab.network().port_of(host).rate).collect();
    let mut server = ServerConfig::new(rates);
    (server.encapsulation, server.slower, server.addressing) = (Lab::ENCAPSULATION, pace.slower, addressing);
    server.waits = pace.clock == Clock::Virtual;
    let mut server = LabServer::open(&socket, &server).map_err(failed)?;
    for (host, spec) in &guests {
        server.add_guest(*host, spec).map_err(|e| LabError::Failed(format!("guest {host}={spec}: {e}")))?;
    }
    let place = args.control.clone().unwrap_or_else(|| place("-control"));
    let control = control::listen(&place, server.waker(), config.topology.clone(), pace);
    let (control, control_socket) =
        control.map_err(|e| LabError::Failed(format!("--control {}: {e}", place.display())))?;
    let interrupted = irnic_report::interrupt::flag().map_err(failed)?;

    let patience = (pace.clock == Clock::Virtual).then(|| Duration::from_nanos(args.virtual_patience));
    let (stop, began) = (Arc::new(AtomicBool::new(false)), Instant::now());
    let network = {
        let stop = stop.clone();
        let stats = Stats::of_network(&config.topology, pace);
        let switchd = Switchd::new(server, lab, pace, stats).controlled(control).patient(patience);
        serve(switchd.board(), &asked, &addresses)?;
        let switchd = match args.sample.or(files.need_samples().then_some(samples::SAMPLE)) {
            Some(every) => switchd.sample(every),
            None => switchd,
        };
        std::thread::Builder::new().name("switchd".into()).spawn(move || switchd.run(&stop)).map_err(failed)?
    };
    let setup = &config.setups[0];
    let environment = [
        ("IRNIC_TRANSPORT", setup.transport.to_string()),
        ("IRNIC_MTU", setup.mtu.bytes().to_string()),
        (control::VARIABLE, control_socket.place()),
        (top::VARIABLE, asked),
    ];
    let surroundings = Surroundings {
        socket: &socket,
        library: &library,
        variables: &environment,
        namespaces: directory.as_ref().map(|own| &*own.path),
    };
    let ended = processes::run(&surroundings, keeper, &hosts, &args.command, &interrupted);
    stop.store(true, Ordering::Relaxed);
    let outcome: Outcome = network.join().map_err(|_| LabError::Failed("the emulated network failed".into()))?;
    let ended: Vec<Ended> = ended?;

    let took = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let comparison = if args.compare { compare::compare(&config, &outcome)? } else { None };
    let report = Report {
        view: outcome.view(),
        topology: &config.topology,
        pace,
        took,
        ended: &ended,
        processes: &outcome.processes,
        comparison: comparison.as_ref(),
    };
    files.write(&report)?;
    if !args.quiet {
        eprint!("{}", report.text());
    }
    outcome.lab.network().check()?;
    let (late, worst) = report::lag(&outcome.view());
    if let Some(most) = args.max_lag.filter(|most| late > 0 && worst > *most) {
        return Err(LabError::Failed(format!("a frame was {worst} ns late, which is more than --max-lag, {most} ns")));
    }
    if interrupted.load(Ordering::Relaxed) {
        return Ok(130);
    }
    Ok(ended.iter().map(Ended::code).find(|code| *code != 0).unwrap_or(0))
}

/// Runs `irnic lab`.
pub fn main(args: &LabArgs) -> ExitCode {
    match run(args) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("irnic: {error}");
            ExitCode::from(error.status())
        }
    }
}
