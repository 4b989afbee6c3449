//! The examples of libibverbs: ping-pong over each service, and the programs that show devices and events.

use irnic_testkit::retry;
use libtest_mimic::{Failed, Trial};

use crate::process::{Ended, Process};
use crate::sandbox::{Device, Sandbox, free_port, installed, reliable, trial, wait_for_listener};

/// Ping-pong programs, their options, and whether what they do is reliable. All check what they receive.
const PINGPONG: [(&str, &[&str], bool); 4] = [
    ("ibv_rc_pingpong", &["", "-e", "-t", "-N", "-N -t", "-e -s 100000 -n 50", "-m 4096"], true),
    ("ibv_srq_pingpong", &["", "-e"], true),
    ("ibv_uc_pingpong", &["", "-e"], false),
    ("ibv_ud_pingpong", &["", "-e"], false),
];

/// All tests of the examples.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let clean = [("no loss", Device::default())];
    for (tool, options, over_rc) in PINGPONG {
        let program = format!("/usr/bin/{tool}");
        for (row, args) in options.iter().enumerate() {
            for &(network, device) in if over_rc { reliable(row) } else { &clean } {
                let name = format!("examples: {tool} -c {args} ({network})");
                trials.push(trial(name, &[&program, "/usr/bin/ibv_devinfo"], move |sandbox| {
                    pingpong(sandbox, tool, args, device, over_rc)
                }));
            }
        }
    }
    for (row, args) in ["-n 300", "-n 300 -e", "-n 50 -s 100000"].into_iter().enumerate() {
        for &(network, device) in reliable(row) {
            let needs = ["/usr/bin/ibv_xsrq_pingpong", "/usr/bin/ibv_devinfo"];
            trials.push(trial(format!("examples: ibv_xsrq_pingpong {args} ({network})"), &needs, move |sandbox| {
                xsrq_pingpong(sandbox, args, device)
            }));
        }
    }
    trials.push(trial("examples: ibv_devices".into(), &["/usr/bin/ibv_devices"], |sandbox| {
        let output = Process::start(&mut sandbox.command(installed("ibv_devices")?, Device::default()))?.succeed()?;
        if output.stdout.contains("irnic0") { Ok(()) } else { Err(output.failed("no irnic0")) }
    }));
    trials.push(trial("examples: ibv_devinfo -v".into(), &["/usr/bin/ibv_devinfo"], |sandbox| {
        let output =
            Process::start(sandbox.command(installed("ibv_devinfo")?, Device::default()).arg("-v"))?.succeed()?;
        let missing = ["irnic0", "PORT_ACTIVE", "Ethernet", "RoCE v2"].iter().find(|w| !output.stdout.contains(**w));
        missing.map_or(Ok(()), |word| Err(output.failed(&format!("no {word}"))))
    }));
    for (signal, name) in [(libc::SIGTERM, "SIGTERM"), (libc::SIGINT, "SIGINT")] {
        let name = format!("examples: ibv_asyncwatch until {name}");
        trials.push(trial(name, &["/usr/bin/ibv_asyncwatch"], move |sandbox| {
            let mut command = sandbox.command(installed("ibv_asyncwatch")?, Device::default());
            let mut watch = Process::start(&mut command)?;
            // It says so when it is ready, into a buffer; so wait for its state instead: asleep, reading.
            let syscall = format!("/proc/{}/syscall", watch.child.id());
            watch.await_condition("it reads", |_| {
                let call = std::fs::read_to_string(&syscall).unwrap_or_default();
                call.starts_with(&format!("{} ", libc::SYS_read))
            })?;
            watch.signal(signal);
            let end = watch.end()?;
            let signalled = std::os::unix::process::ExitStatusExt::signal(&end.status) == Some(signal);
            if signalled && end.stderr.is_empty() { Ok(()) } else { Err(end.failed("it ended otherwise")) }
        }));
    }
    trials
}

/// Ping-pong over extended reliable connections. Both ends wait for each other before they leave.
fn xsrq_pingpong(sandbox: &Sandbox, args: &str, device: Device) -> Result<(), Failed> {
    let program = installed("ibv_xsrq_pingpong")?;
    let gid = sandbox.gid_index()?;
    let port = free_port();
    let command = |peer: Option<&str>| {
        let mut command = sandbox.command(&program, device);
        command.args(["-g", &gid, "-p", &port.to_string()]).args(args.split_whitespace()).args(peer);
        command
    };
    let mut server = Process::start(&mut command(None))?;
    wait_for_listener(&mut server, port)?;
    let client = Process::start(&mut command(Some("127.0.0.1")))?;
    let [client, server] = Process::end_both([client, server], true)?;
    if client.status.success() && server.status.success() {
        Ok(())
    } else {
        Err(format!("{:?}\n{:?}", client.failed("client"), server.failed("server")).into())
    }
}

fn pingpong(sandbox: &Sandbox, tool: &str, args: &str, device: Device, reliable: bool) -> Result<(), Failed> {
    let program = installed(tool)?;
    let gid = sandbox.gid_index()?;
    let [client, server] = retry::attempts(&sandbox.test, || {
        let port = free_port();
        let command = |peer: Option<&str>| {
            let mut command = sandbox.command(&program, device);
            command.args(["-c", "-g", &gid, "-p", &port.to_string(), "-n", "300"]);
            command.args(args.split_whitespace()).args(peer);
            command
        };
        let mut server = Process::start(&mut command(None))?;
        wait_for_listener(&mut server, port)?;
        let client = Process::start(&mut command(Some("127.0.0.1")))?;
        Process::end_both([client, server], reliable)
    })?;
    let good = |end: &Ended| {
        // What does not match is said and not counted as an error.
        end.status.success() && end.stdout.contains("iters in") && !end.stdout.contains("invalid data")
    };
    // These programs leave when they have all that they wait for. If the network takes the acknowledgement of the last
    // message, its sender is alone, and has to say so.
    let left_alone = |end: &Ended| {
        !device.impair.is_empty() && end.stderr.contains("transport retry counter exceeded (12) for wr_id 2")
    };
    match (good(&client), good(&server)) {
        (true, true) => Ok(()),
        (true, false) if left_alone(&server) => Ok(()),
        (false, true) if left_alone(&client) => Ok(()),
        _ => Err(format!("{:?}\n{:?}", client.failed("client"), server.failed("server")).into()),
    }
}
