//! `irnic lab`: unmodified RDMA applications on an emulated network. [`main_with`] runs it with switches of one's own.
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
mod settings;
mod shell;
mod socket;
mod stats;
mod switchd;
pub mod top;
mod view;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use args::{LabArgs, ProgramTime, Tcp};
use error::{LabError, failed};
use file::{HostCommand, LabFile};
use files::Files;
use irnic_fabric::experiment::{Case, Extensions};
use irnic_fabric::lab::Lab;
use irnic_fabric::sim::SimConfig;
use irnic_ports::frames::FrameSpec;
use irnic_ports::host_now;
use irnic_ports::lab::{Addressing, LabServer, ServerConfig};
use irnic_report::origin::Origin;
use irnic_sim::key_args::Network;
use irnic_sim::port_capture::PortCapture;
use irnic_transports::wire::Mtu;
use irnic_verbs::config::Variables;
use keeper::{Keeper, Networks};
use pace::Clock;
use processes::{Ended, Surroundings};
use report::Report;
use serve::{Addresses, Server};
use settings::Settings;
use stats::{Board, Stats};
use switchd::Switchd;
use view::Outcome;

use irnic_launch::run::{clock_library, library};

/// The variable by which a program's clock finds the lab's (`irnic-clock`).
const PROGRAM_TIME: &str = "IRNIC_PROGRAM_TIME";

/// The lab to run.
struct Plan {
    config: SimConfig,
    settings: Settings,
    hosts: Vec<HostCommand>,
    guests: Vec<(u32, FrameSpec)>,
    addressing: Addressing,
    /// IP packets of the hosts' kernels cross the network.
    emulated: bool,
}

fn plan(args: &LabArgs, extensions: &Extensions) -> Result<Plan, LabError> {
    let LabFile { mut experiment, clock, hosts, mut guests, netns, tcp } = match &args.file {
        Some(path) => file::read(path)?,
        None => LabFile::default(),
    };
    experiment.grid.override_with(args.network.values().clone());
    let text = |e: irnic_fabric::experiment::TextError| LabError::Usage(e.to_string());
    let cases = experiment.grid.cases().map_err(text)?;
    let [case]: &[Case; 1] = cases[..]
        .try_into()
        .map_err(|_| LabError::Usage(format!("{} networks; expected one value for each option", cases.len())))?;
    let experiment = case.experiment_with(extensions).map_err(text)?;
    let config = experiment.lab(args.seed).map_err(|e| text(case.error(e)))?;
    let keys = Network::names().map(|key| (key, case.get(key).map_or_else(String::new, |value| value.text))).collect();
    let known = config.topology.hosts;
    if let Some(host) = hosts.iter().find(|host| host.host >= known) {
        return Err(LabError::Usage(format!("there is no host {}; expected 0 to {}", host.host, known - 1)));
    }
    guests.extend(args.guest.iter().cloned());
    if let Some((host, _)) = guests.iter().find(|(host, _)| *host >= known) {
        return Err(LabError::Usage(format!("there is no host {host} for a guest; expected 0 to {}", known - 1)));
    }
    let netns = netns || args.netns;
    if netns && known > namespaces::MOST {
        return Err(LabError::Usage(format!("--netns: {known} hosts; expected {} at most", namespaces::MOST)));
    }
    if hosts.is_empty() && args.command.is_empty() && !args.shell {
        let expected = "expected a command after --, --shell, or hosts in a file";
        return Err(LabError::Usage(format!("there is nothing to run; {expected}")));
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
    let emulated = args.tcp.or(tcp) == Some(Tcp::Emulated);
    if emulated && !netns {
        return Err(LabError::Usage("--tcp emulated: hosts have no IP packets of their own without --netns".into()));
    }
    if emulated && pace.clock == Clock::Virtual {
        return Err(LabError::Usage(
            "--clock virtual: kernels do not tell when they wait (--tcp emulated); expected another clock".into(),
        ));
    }
    let addressing = match (netns, guests.is_empty()) {
        (true, _) => Addressing::Namespaces,
        (false, true) => Addressing::Loopback,
        (false, false) => Addressing::Detached,
    };
    let (program_time, seed, resolved) = (args.program_time, args.seed, irnic_sim::resolved(&config));
    let settings = Settings { pace, program_time, seed, keys, resolved };
    Ok(Plan { config, settings, hosts, guests, addressing, emulated })
}

impl Plan {
    /// Creates the network, which records flows and packets as the options ask.
    fn network(&self, args: &LabArgs) -> Result<Lab, LabError> {
        let (config, addressing) = (&self.config, self.addressing);
        let mut lab = Lab::new(config.network(), config.ect)?;
        if args.compare {
            lab.keep_flows();
        }
        let ports = lab.network().ports();
        let capture = PortCapture::open(&args.pcap, &config.topology, ports, move |host| addressing.address(host));
        if let Some(capture) = capture.map_err(LabError::Usage)? {
            lab.record(capture.ports.clone(), Box::new(capture));
        }
        Ok(lab)
    }

    /// Opens the lab's socket for processes, and attaches the guests.
    fn server(&self, socket: &Path, lab: &Lab) -> Result<LabServer, LabError> {
        let Plan { settings: Settings { pace, .. }, guests, addressing, .. } = self;
        let rates = (0..lab.hosts()).map(|host| lab.network().port_of(host).rate).collect();
        let mut server = ServerConfig::new(rates);
        (server.encapsulation, server.slower, server.addressing) = (Lab::ENCAPSULATION, pace.slower, *addressing);
        server.waits = pace.clock == Clock::Virtual;
        let mut server = LabServer::open(socket, &server).map_err(failed)?;
        for (host, spec) in guests {
            server.add_guest(*host, spec).map_err(|e| LabError::Failed(format!("guest {host}={spec}: {e}")))?;
        }
        Ok(server)
    }

    /// Puts the network between the processes of the server, with the lab's clock.
    fn switchd(&self, args: &LabArgs, server: LabServer, lab: Lab) -> Switchd {
        let pace = self.settings.pace;
        let patience = (pace.clock == Clock::Virtual).then(|| Duration::from_nanos(args.virtual_patience));
        let stats = Stats::of_network(&self.config.topology, pace);
        Switchd::new(server, lab, pace, stats).patient(patience)
    }
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

/// Where the sockets of a lab are: in its own directory, or under abstract names that begin with its name.
struct Location {
    name: String,
    directory: Option<OwnDirectory>,
}

impl Location {
    /// Chooses the lab's name, and starts its keeper, which creates the hosts' networks in the directory if they have
    /// their own.
    fn open(plan: &Plan) -> Result<(Keeper, Location), LabError> {
        let name = format!("{}{}-{}", socket::PREFIX, std::process::id(), began_at());
        let directory = (plan.addressing == Addressing::Namespaces).then(|| std::env::temp_dir().join(&name));
        if directory.is_some() {
            namespaces::sweep(&std::env::temp_dir());
        }
        let (hosts, emulated) = (plan.config.topology.hosts, plan.emulated);
        let keeper = Keeper::start(directory.as_deref().map(|directory| Networks { directory, hosts, emulated }));
        let keeper = keeper.map_err(|e| match directory {
            Some(_) => LabError::Failed(format!("--netns: {e}")),
            None => LabError::Failed(format!("no process to end the others: {e}")),
        })?;
        // The keeper removes it, unless it is killed.
        let directory = directory.map(OwnDirectory::new).transpose().map_err(failed)?;
        Ok((keeper, Location { name, directory }))
    }

    /// Returns the address of the socket with a suffix: a path, or `@` and an abstract name.
    fn socket(&self, suffix: &str) -> PathBuf {
        // Abstract names are local to a network namespace.
        match &self.directory {
            Some(OwnDirectory { path, .. }) => path.join(format!("{}lab{suffix}", socket::PREFIX)),
            None => PathBuf::from(format!("@{}{suffix}", self.name)),
        }
    }
}

/// Returns the addresses of the lab's server, after a check of who can reach them.
fn addresses(args: &LabArgs) -> Result<Addresses, LabError> {
    let addresses = Addresses {
        live: args.live,
        metrics: args.metrics,
        public: args.live_public,
        polls: args.metrics.is_some() || args.json.is_some() || args.html.is_some(),
    };
    addresses.check().map_err(LabError::Usage)?;
    Ok(addresses)
}

/// Serves snapshots of the lab while it runs.
fn serve(board: Arc<Board>, place: &str, addresses: &Addresses) -> Result<(), LabError> {
    let server = Server::bind(board, place, addresses).map_err(failed)?;
    server.live().inspect(|address| eprintln!("irnic lab: live at http://{address}/"));
    server.metrics().inspect(|address| eprintln!("irnic lab: metrics at http://{address}/metrics"));
    server.start().map_err(failed)
}

/// The thread that runs the network.
struct NetworkThread {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Outcome>,
}

impl NetworkThread {
    /// Starts the thread.
    fn start(switchd: Switchd) -> Result<NetworkThread, LabError> {
        let stop = Arc::new(AtomicBool::new(false));
        let thread = {
            let stop = stop.clone();
            std::thread::Builder::new().name("switchd".into()).spawn(move || switchd.run(&stop)).map_err(failed)?
        };
        Ok(NetworkThread { stop, thread })
    }

    /// Stops the network, and returns its final state.
    fn finish(self) -> Result<Outcome, LabError> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| LabError::Failed("the emulated network failed".into()))
    }
}

/// A lab whose commands and network have ended.
struct Finished {
    outcome: Outcome,
    ended: Vec<Ended>,
    /// Elapsed time of the host, ns.
    took: u64,
}

impl Finished {
    /// Writes the report to its files, and the summary to standard error.
    fn report(&self, args: &LabArgs, plan: &Plan, files: Files) -> Result<(), LabError> {
        let comparison = if args.compare { compare::compare(&plan.config, &self.outcome)? } else { None };
        let mut faults = self.outcome.faults.clone();
        faults.sort_by_key(|(at, _)| *at);
        let origin = Origin::of_process();
        let report = Report {
            view: self.outcome.view(),
            topology: &plan.config.topology,
            settings: &plan.settings,
            took: self.took,
            ended: &self.ended,
            processes: &self.outcome.processes,
            comparison: comparison.as_ref(),
            faults: &faults,
            origin: &origin,
        };
        files.write(&report)?;
        if !args.quiet {
            // What standard error loses changes no exit status.
            let _ = std::io::stderr().write_all(report.text().as_bytes());
        }
        Ok(())
    }

    /// Checks the network's account and the lateness of frames, and returns the exit status.
    fn status(&self, args: &LabArgs, interrupted: &AtomicBool) -> Result<u8, LabError> {
        self.outcome.lab.network().check()?;
        let (late, worst) = report::lag(&self.outcome.view());
        if let Some(most) = args.max_lag.filter(|most| late > 0 && worst > *most) {
            return Err(LabError::Failed(format!(
                "a frame was {worst} ns late, which is more than --max-lag, {most} ns"
            )));
        }
        if interrupted.load(Ordering::Relaxed) {
            return Ok(130);
        }
        Ok(self.ended.iter().map(Ended::code).find(|code| *code != 0).unwrap_or(0))
    }
}

/// Runs a lab to its end. Returns the exit status.
fn run(args: &LabArgs, extensions: &Extensions) -> Result<u8, LabError> {
    let plan = plan(args, extensions)?;
    let clock = match args.program_time {
        ProgramTime::Machine => None,
        ProgramTime::Lab => Some(clock_library()?),
    };
    let variables = Variables::from_environment().map_err(|e| LabError::Usage(e.to_string()))?;
    let library = library::find(&variables)?;
    let addresses = addresses(args)?;
    let files = Files::open(args)?;
    let lab = plan.network(args)?;
    let (mut keeper, location) = Location::open(&plan)?;
    let (socket, stats_socket) = (location.socket(""), location.socket(top::SUFFIX).display().to_string());
    let mut server = plan.server(&socket, &lab)?;
    for (host, tun) in (0..).zip(keeper.take_tuns()) {
        server.add_kernel(host, tun).map_err(failed)?;
    }
    // The lab's time goes on from here.
    let (at, machines) = (i128::from(server.now()), i128::from(host_now().0));
    let epochs = [machines - at, began_at() as i128 - at];
    let place = args.control.clone().unwrap_or_else(|| location.socket(control::SUFFIX));
    let control =
        control::listen(&place, server.waker(), plan.config.topology.clone(), plan.settings.clone(), plan.addressing);
    let (mut control, control_socket) =
        control.map_err(|e| LabError::Failed(format!("--control {}: {e}", place.display())))?;
    let listeners = server.listeners();
    let planned = plan.config.changes.iter();
    control.remember(planned.map(|change| (change.at, change.describe(&plan.config.topology))));
    let interrupted = irnic_report::interrupt::flag().map_err(failed)?;

    let began = Instant::now();
    let switchd = plan.switchd(args, server, lab).controlled(control);
    serve(switchd.board(), &stats_socket, &addresses)?;
    let switchd = match args.sample.or(files.need_samples().then_some(samples::SAMPLE)) {
        Some(every) => switchd.sample(every),
        None => switchd,
    };
    let network = NetworkThread::start(switchd)?;
    let setup = &plan.config.setups[0];
    let mut environment = vec![
        ("IRNIC_TRANSPORT", setup.transport.to_string()),
        ("IRNIC_MTU", setup.mtu.bytes().to_string()),
        (control::VARIABLE, control_socket.place()),
        (top::VARIABLE, stats_socket),
    ];
    if clock.is_some() {
        let [monotonic, realtime] = epochs;
        environment.push((PROGRAM_TIME, format!("{} {monotonic} {realtime}", socket.display())));
    }
    let surroundings = Surroundings {
        socket: &socket,
        library: &library,
        preloaded: clock.as_slice(),
        variables: &environment,
        namespaces: location.directory.as_ref().map(|own| &*own.path),
        listeners,
    };
    let mut command = args.command.clone();
    if args.shell {
        command.push(std::env::current_exe().map_err(failed)?.into_os_string());
        command.extend(shell::arguments(plan.config.topology.hosts, plan.addressing));
    }
    let ended = processes::run(&surroundings, keeper, &plan.hosts, &command, &interrupted);
    let outcome = network.finish()?;
    let ended = ended?;

    let took = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let finished = Finished { outcome, ended, took };
    finished.report(args, &plan, files)?;
    finished.status(args, &interrupted)
}

/// Runs what a lab starts its own program for, if that is how this process was started: the keeper, which ends what the
/// lab has started if the lab is killed, and `ssh` and `rsh` in labs with `--netns`. A program that calls [`main_with`]
/// calls this first, and returns the status if there is one.
pub fn started_by_lab() -> Option<ExitCode> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    match &arguments[..] {
        [program, rest @ ..] if namespaces::is_agent(program) => Some(host::agent(rest)),
        [_, name, rest @ ..] if name == keeper::NAME => Some(keeper::main(rest)),
        [_, name, rest @ ..] if name == shell::NAME => Some(shell::main(rest)),
        _ => None,
    }
}

/// Runs `irnic lab`.
pub fn main(args: &LabArgs) -> ExitCode {
    main_with(args, &Extensions::default())
}

/// Entry point of a program with switches of its own: all of `irnic lab`, whose `--switch` also accepts the names of
/// `extensions`; their controllers have no effect, since congestion control is in the applications' processes. The
/// library for these is sought beside the program, as irnic does, unless `IRNIC_LIBRARY` names it. Returns the exit
/// status: that of the first command that failed, or 0; 1 for a failure of the lab, 2 for bad arguments, 130 when
/// interrupted.
pub fn main_with(args: &LabArgs, extensions: &Extensions) -> ExitCode {
    match run(args, extensions) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("irnic: {error}");
            ExitCode::from(error.status())
        }
    }
}
