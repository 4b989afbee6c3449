//! Applications in Rust, on the `ibverbs` crate: `bench/examples/ibverbs`, built as its users would build it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use libtest_mimic::{Failed, Trial};

use crate::habitat::{Device, Habitat, RELIABLE, free_port, isolated, missing, skipped, wait_for_listener};
use crate::process::Process;

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

/// What came of building it: the folder of its programs, why they are not to be had, or what is wrong with them.
enum Built {
    Programs(PathBuf),
    Unavailable(String),
    Broken(String),
}

/// All tests of crates.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (network, device) in RELIABLE {
        trials.push(example("echo", network, move |habitat, program| echo(habitat, program, device)));
        trials.push(example("loopback", network, move |habitat, program| {
            let end = Process::start(&mut habitat.command(program, device))?.succeed()?;
            if end.stdout.contains("arrived as they were sent") { Ok(()) } else { Err(end.failed("it says otherwise")) }
        }));
    }
    trials
}

/// A test of one program of the example.
fn example(
    program: &'static str,
    network: &str,
    test: impl FnOnce(&Habitat, &Path) -> Result<(), Failed> + Send + 'static,
) -> Trial {
    let name = format!("crates: {program} over ibverbs ({network})");
    if let Some(why) = missing(&NEEDS) {
        return skipped(name, &why);
    }
    if !libclang() {
        return skipped(name, "there is no libclang");
    }
    Trial::test(name.clone(), move || match build() {
        Built::Programs(folder) => isolated(move |habitat| test(habitat, &folder.join(program))),
        Built::Unavailable(why) => {
            eprintln!("SKIPPED {name}: {why}");
            Ok(())
        }
        Built::Broken(why) => Err(why.as_str().into()),
    })
}

/// Whether bindgen would find libclang where distributions put it.
fn libclang() -> bool {
    let holds = |dir: PathBuf| {
        let files = fs::read_dir(dir).into_iter().flatten().flatten();
        files.into_iter().any(|file| file.file_name().to_string_lossy().starts_with("libclang.so"))
    };
    let llvm = fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|dir| dir.path().join("lib"));
    let others = ["/usr/lib", "/usr/lib64"].map(PathBuf::from);
    std::env::var_os("LIBCLANG_PATH").is_some() || llvm.chain(others).any(holds)
}

/// Builds the example, once. Not in a test's namespace: the crates may have to be fetched.
fn build() -> &'static Built {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| {
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../bench/examples/ibverbs/Cargo.toml");
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ibverbs");
        let cargo = |words: &[&str]| {
            let mut command = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
            command.args(words).args(["--locked", "--manifest-path", manifest]).env("CARGO_TARGET_DIR", &target);
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

fn echo(habitat: &Habitat, program: &Path, device: Device) -> Result<(), Failed> {
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    let mut server = Process::start(habitat.command(program, device).args(["server", &address]))?;
    wait_for_listener(&mut server, port)?;
    let client = Process::start(habitat.command(program, device).args(["client", &address]))?.end()?;
    let server = server.end()?;
    if client.status.success() && server.status.success() && client.stdout.lines().count() == 6 {
        return Ok(());
    }
    Err(format!("{:?}\n{:?}", client.failed("client"), server.failed("server")).into())
}
