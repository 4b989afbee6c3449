//! irnic against the Linux rxe driver, in both roles: unmodified programs of rdma-core and perftest on either side, and a program
//! that checks every byte.
//!
//! The driver runs in a virtual machine (tools/rxe), a TAP device in a network namespace of this process's own is the wire, and
//! irnic's UDP sockets are the kernel's. Words of the command line choose cases by their names.

mod case;
mod guest;
mod host;
mod namespace;
#[path = "../support/mod.rs"]
mod support;

use std::env;
use std::process::ExitCode;
use std::time::Instant;

use case::{Case, Role, cases};
use guest::Guest;
use host::Host;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let filters: Vec<&String> = arguments.iter().filter(|a| !a.starts_with('-')).collect();
    let chosen: Vec<Case> =
        cases().into_iter().filter(|c| filters.is_empty() || filters.iter().any(|f| c.name().contains(*f))).collect();
    if arguments.iter().any(|a| a == "--list") {
        chosen.iter().for_each(|c| println!("{}: test", c.name()));
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", chosen.len());
    let begin = Instant::now();
    let mut failures = Vec::new();
    let mut passed = 0;
    if !chosen.is_empty() {
        match prepare() {
            Err(Unprepared::NotPermitted(why)) => {
                let _ = support::skipped::<()>(&format!("irnic against rxe: {why}"));
                // As a test counts that said so and returned.
                passed = 1;
            }
            Err(Unprepared::Failed(why)) => failures.push(("the virtual machine".to_owned(), why)),
            Ok((host, guest)) => {
                let mut path_mtu = 0;
                for (number, case) in chosen.iter().enumerate() {
                    let result = set_mtu(&host, &guest, case, &mut path_mtu)
                        .and_then(|()| run(&host, &guest, case, 20_000 + number as u16));
                    println!("test {} ... {}", case.name(), if result.is_ok() { "ok" } else { "FAILED" });
                    match result {
                        Ok(()) => passed += 1,
                        Err(why) => failures.push((case.name(), why)),
                    }
                }
            }
        }
    }
    for (name, why) in &failures {
        println!("\n---- {name} ----\n{why}");
    }
    println!(
        "\ntest result: {}. {passed} passed; {} failed; 0 ignored; 0 measured; {} filtered out; finished in {:.2}s\n",
        if failures.is_empty() { "ok" } else { "FAILED" },
        failures.len(),
        cases().len() - chosen.len(),
        begin.elapsed().as_secs_f64()
    );
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Why there is nothing to test against.
enum Unprepared {
    /// This user may not make namespaces or TAP devices here.
    NotPermitted(String),
    /// What has to work did not.
    Failed(String),
}

fn prepare() -> Result<(Host, Guest), Unprepared> {
    let host = Host::new().map_err(Unprepared::Failed)?;
    namespace::enter(&host).map_err(Unprepared::NotPermitted)?;
    let guest = Guest::boot(&host).map_err(Unprepared::Failed)?;
    println!("{}", guest.description());
    Ok((host, guest))
}

/// Gives both ends the interface MTU that makes the path MTU of `case`.
fn set_mtu(host: &Host, guest: &Guest, case: &Case, current: &mut u32) -> Result<(), String> {
    if *current == case.path_mtu {
        return Ok(());
    }
    let mtu = case.interface_mtu();
    host.ip(&format!("link set {} mtu {mtu}", namespace::DEVICE))?;
    guest.run(&format!("ip link set eth0 mtu {mtu}"))?.success()?;
    *current = case.path_mtu;
    Ok(())
}

/// The server first, on whichever side, then the client. Both must end well.
fn run(host: &Host, guest: &Guest, case: &Case, port: u16) -> Result<(), String> {
    let on_host = case.command(&host.device(case), port, (case.role == Role::Client).then_some(guest::IPV4));
    let on_guest = case.command(&guest.device(case)?, port, (case.role == Role::Server).then_some(namespace::IPV4));
    let (ours, theirs) = match case.role {
        Role::Client => {
            let server = guest.start(&on_guest)?;
            let listening = guest.wait_for_listener(port);
            let ours = listening.and_then(|()| host.start(case, &on_host)).map(host::Running::finish);
            if !ours.as_ref().is_ok_and(host::Outcome::is_success) {
                guest.kill(case.program());
            }
            (ours?, server.finish()?)
        }
        Role::Server => {
            let mut server = host.start(case, &on_host)?;
            server.wait_for_listener(port)?;
            let theirs = guest.start(&on_guest)?.finish()?;
            if !theirs.is_success() {
                server.kill();
            }
            (server.finish(), theirs)
        }
    };
    if ours.is_success() && theirs.is_success() {
        return Ok(());
    }
    Err(format!("irnic: {on_host}\n{}\nrxe: {on_guest}\n{}", ours.describe(), theirs.describe()))
}
