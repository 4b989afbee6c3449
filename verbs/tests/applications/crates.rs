//! Applications in Rust, on the `ibverbs` and `rdma-sys` crates: `bench/examples/ibverbs` and `bench/examples/rdma-cm`,
//! built as their users would build them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use libtest_mimic::{Failed, Trial};

use crate::process::Process;
use crate::sandbox::{
    Device, RELIABLE, Sandbox, all, free_port, isolated, missing, skipped, wait_for_listener, wait_for_service,
};

/// What the crate's build needs: it builds an rdma-core of its own, then takes the installed headers and library.
const NEEDS: [&str; 7] = [
    "/usr/bin/cmake",
    "/usr/bin/cc",
    "/usr/bin/pkg-config",
    "/usr/bin/python3",
    "/usr/include/infiniband/verbs.h",
    "/usr/include/libnl3/netlink/netlink.h",
    "/usr/include/libnl3/netlink/route/rtnl.h",
];

/// What the other example's build needs.
pub const CM_NEEDS: [&str; 4] =
    ["/usr/bin/cc", "/usr/bin/pkg-config", "/usr/include/infiniband/verbs.h", "/usr/include/rdma/rdma_cma.h"];

/// An example, a workspace of its own.
struct Example {
    /// In `bench/examples`.
    folder: &'static str,
    /// The crate that it shows.
    over: &'static str,
    needs: &'static [&'static str],
    built: OnceLock<Built>,
}

static IBVERBS: Example = Example { folder: "ibverbs", over: "ibverbs", needs: &NEEDS, built: OnceLock::new() };
static RDMA_CM: Example = Example { folder: "rdma-cm", over: "rdma-sys", needs: &CM_NEEDS, built: OnceLock::new() };

/// What came of building it: the folder of its programs, why they are not to be had, or what is wrong with them.
enum Built {
    Programs(PathBuf),
    Unavailable(String),
    Broken(String),
}

/// All tests of crates. The builds are long: all of it belongs to the long form.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    if !all() {
        return trials;
    }
    for (network, device) in RELIABLE {
        trials.push(example(&IBVERBS, "echo", network, move |sandbox, program| echo(sandbox, program, device)));
        trials.push(example(&IBVERBS, "loopback", network, move |sandbox, program| {
            let end = Process::start(&mut sandbox.command(program, device))?.succeed()?;
            if end.stdout.contains("arrived as they were sent") { Ok(()) } else { Err(end.failed("it says otherwise")) }
        }));
        trials.push(example(&RDMA_CM, "cm-echo", network, move |sandbox, program| cm_echo(sandbox, program, device)));
    }
    trials
}

/// A test of one program of an example.
fn example(
    of: &'static Example,
    program: &'static str,
    network: &str,
    test: impl FnOnce(&Sandbox, &Path) -> Result<(), Failed> + Send + 'static,
) -> Trial {
    let name = format!("crates: {program} over {} ({network})", of.over);
    if let Some(why) = missing(of.needs) {
        return skipped(name, &why);
    }
    if !libclang() {
        return skipped(name, "there is no libclang");
    }
    Trial::test(name.clone(), move || match build(of) {
        Built::Programs(folder) => isolated(name, move |sandbox| test(sandbox, &folder.join(program))),
        Built::Unavailable(why) => {
            irnic_testkit::skipped(&format!("{name}: {why}"));
            Ok(())
        }
        Built::Broken(why) => Err(why.as_str().into()),
    })
}

/// Whether bindgen would find libclang where distributions put it.
pub fn libclang() -> bool {
    let holds = |dir: PathBuf| {
        let files = fs::read_dir(dir).into_iter().flatten().flatten();
        files.into_iter().any(|file| file.file_name().to_string_lossy().starts_with("libclang.so"))
    };
    let llvm = fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|dir| dir.path().join("lib"));
    let others = ["/usr/lib", "/usr/lib64"].map(PathBuf::from);
    std::env::var_os("LIBCLANG_PATH").is_some() || llvm.chain(others).any(holds)
}

/// Builds an example, once. Not in a test's namespace: the crates may have to be fetched.
fn build(example: &'static Example) -> &'static Built {
    example.built.get_or_init(|| {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/examples");
        let manifest = examples.join(example.folder).join("Cargo.toml");
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(example.folder);
        let cargo = |args: &[&str]| {
            let mut command = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
            command.args(args).args(["--locked", "--manifest-path"]).arg(&manifest).env("CARGO_TARGET_DIR", &target);
            match command.stdin(Stdio::null()).output() {
                Ok(output) if output.status.success() => Ok(()),
                Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
                Err(e) => Err(format!("{command:?}: {e}")),
            }
        };
        if let Err(why) = cargo(&["fetch"]) {
            let line = why.lines().find(|line| line.starts_with("error")).unwrap_or_default();
            return Built::Unavailable(format!("its crates cannot be fetched: {line}"));
        }
        cargo(&["build", "--release"]).map_or_else(Built::Broken, |()| Built::Programs(target.join("release")))
    })
}

fn echo(sandbox: &Sandbox, program: &Path, device: Device) -> Result<(), Failed> {
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    let mut server = Process::start(sandbox.command(program, device).args(["server", &address]))?;
    wait_for_listener(&mut server, port)?;
    let client = Process::start(sandbox.command(program, device).args(["client", &address]))?.end()?;
    let server = server.end()?;
    if client.status.success() && server.status.success() && client.stdout.lines().count() == 6 {
        return Ok(());
    }
    Err(format!("{:?}\n{:?}", client.failed("client"), server.failed("server")).into())
}

fn cm_echo(sandbox: &Sandbox, program: &Path, device: Device) -> Result<(), Failed> {
    let port = free_port().to_string();
    let mut server = Process::start(sandbox.command(program, device).args(["server", "127.0.0.1", &port]))?;
    wait_for_service(&mut server)?;
    let client = Process::start(sandbox.command(program, device).args(["client", "127.0.0.1", &port]))?.end()?;
    let server = server.end()?;
    // It compares what comes back, in six sizes.
    if client.status.success() && server.status.success() && client.stdout.lines().count() == 6 {
        return Ok(());
    }
    Err(format!("{:?}\n{:?}", client.failed("client"), server.failed("server")).into())
}
