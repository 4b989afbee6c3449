//! Each package, installed into a Debian system that has nothing of irnic's, without a network, and used there by
//! somebody who is not root.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

use crate::kubernetes;
use crate::support::{Folder, long_form, needs, skipped, text};

/// perftest between two processes, both on irnic.
const TRANSFER: &str = "
    bandwidth='irnic run -- ib_write_bw -d irnic0 -n 100 -s 4096'
    $bandwidth >/tmp/server.txt &
    until grep -q ':4853 [^ ]* 0A ' /proc/net/tcp /proc/net/tcp6; do sleep 0.1; done
    $bandwidth 127.0.0.1 >/tmp/client.txt 2>/tmp/errors.txt || { cat /tmp/errors.txt; exit 1; }
    wait
    grep -E '^ *4096 +100 ' /tmp/client.txt
    irnic doctor --quiet -- ib_write_bw
";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the repository")
}

/// Where cargo builds.
fn target() -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_irnic"));
    program.ancestors().nth(2).expect("TARGET/PROFILE/irnic").to_owned()
}

fn succeeds(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    let said = text(&output.stdout);
    assert!(output.status.success(), "{command:?}: {said}{}", text(&output.stderr));
    said
}

/// A system of Debian's with Python, perftest and pyverbs. Made once, and kept.
fn debian() -> Option<&'static Path> {
    static MADE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        if std::env::var("IRNIC_APPLICATIONS").as_deref() != Ok("long") {
            long_form("the packages, which are built first");
            return None;
        }
        needs(&["mmdebstrap", "unshare", "ip", "cargo", "strip"])?;
        // SAFETY: has no precondition.
        if unsafe { libc::geteuid() } != 0 {
            skipped("the packages, which are installed by root");
            return None;
        }
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages/debian");
        if root.join("made").exists() {
            return Some(root);
        }
        let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
        let suite = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME=")).unwrap_or("bookworm");
        let lists = ["/etc/apt/sources.list", "/etc/apt/sources.list.d/debian.sources"];
        let sources: Vec<&str> = lists.into_iter().filter(|list| Path::new(list).is_file()).collect();
        // What apt was told here about proxies and dates holds for it there.
        let mut command = Command::new("mmdebstrap");
        command.args(["--variant=minbase", "--quiet", "--dpkgopt=path-exclude=/usr/share/locale/*"]);
        command.arg("--include=perftest,ibverbs-utils,python3-venv,python3-pip,python3-pyverbs,python3-pytest");
        for part in std::fs::read_dir("/etc/apt/apt.conf.d").into_iter().flatten().flatten() {
            if std::fs::read_to_string(part.path()).is_ok_and(|text| text.contains("Acquire::")) {
                command.arg("--aptopt").arg(part.path());
            }
        }
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(root.parent().expect("a parent")).expect("a folder");
        let output = command.arg(suite).arg(&root).args(sources).output().expect("it starts");
        if !output.status.success() {
            skipped(&format!("the packages: mmdebstrap: {}", text(&output.stderr).lines().last().unwrap_or_default()));
            return None;
        }
        std::fs::write(root.join("made"), "").expect("a file");
        Some(root)
    });
    made.as_deref()
}

/// A system in which irnic is installed.
struct Installed {
    folder: Folder,
}

impl Installed {
    /// Has `fill` make the system in an empty folder, and adds a user.
    fn new(fill: impl FnOnce(&Path)) -> Installed {
        let system = Installed { folder: Folder::new() };
        let root = system.root();
        std::fs::create_dir(&root).expect("a folder");
        fill(&root);
        std::fs::create_dir_all(root.join("home/user")).expect("a home");
        std::os::unix::fs::chown(root.join("home/user"), Some(1000), Some(1000)).expect("its owner");
        system
    }

    fn copy_of(debian: &Path) -> Installed {
        Installed::new(|root| {
            succeeds(Command::new("cp").args(["--archive", "--reflink=auto"]).arg(debian.join(".")).arg(root));
        })
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    fn copy(&self, from: &Path, to: &str) {
        let to = self.root().join(to);
        std::fs::create_dir_all(to.parent().expect("a folder")).expect("folders");
        succeeds(Command::new("cp").arg("--recursive").arg(from).arg(&to));
    }

    /// Runs a script there, in namespaces of its own: no network, no process of the outside.
    fn run(&self, user: &str, path: &str, script: &str) -> String {
        let prepare = "set -e
            ip link set lo up
            mount --rbind /dev \"$1/dev\"
            mount -t tmpfs tmpfs \"$1/dev/shm\"
            mount -t proc proc \"$1/proc\"
            exec chroot --userspec=\"$2\" \"$1\" env -i HOME=/home/user PATH=\"$3:/usr/bin:/bin:/usr/sbin:/sbin\" sh -ec \"$4\"";
        let mut command = Command::new("unshare");
        command.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", prepare, "sh"]);
        succeeds(command.arg(self.root()).args([user, path, script]))
    }

    fn as_root(&self, script: &str) -> String {
        self.run("0:0", "/usr/bin", script)
    }

    /// Checks that perftest runs, for somebody who is not root.
    fn transfers(&self, path: &str) {
        let said = self.run("1000:1000", path, &format!("cd ~; irnic --version; {TRANSFER}"));
        assert!(said.starts_with(concat!("irnic ", env!("CARGO_PKG_VERSION"))), "{said}");
    }
}

/// What packaging/build.sh writes.
fn built(kind: &str, more: &[(&str, &str)]) -> PathBuf {
    // One build at a time: they share a folder.
    static BUILDING: Mutex<()> = Mutex::new(());
    let _alone = BUILDING.lock();
    let mut command = Command::new(repository().join("packaging/build.sh"));
    // What `cargo install` builds, so that nothing is built twice.
    command.args([kind]).env("PROFILE", "release").env("FEATURES", "default").env("CARGO_TARGET_DIR", target());
    command.envs(more.iter().copied());
    PathBuf::from(succeeds(&mut command).lines().last().expect("the file's name").to_owned())
}

#[test]
fn deb() {
    let Some(debian) = debian() else { return };
    let system = Installed::copy_of(debian);
    system.copy(&built("deb", &[]), "irnic.deb");
    system.as_root("dpkg --install /irnic.deb");
    system.transfers("/usr/bin");
    let said = system.run(
        "1000:1000",
        "/usr/bin",
        "cd ~
        bash -c '. /usr/share/bash-completion/completions/irnic; complete -p irnic'
        gzip -dc /usr/share/man/man1/irnic-sim.1.gz | head -n 3
        IRNIC_CONFIG=/usr/share/doc/irnic/examples/irnic.toml irnic config
        test -s /usr/share/irnic/irnic.lua
        test -s /usr/lib/irnic/libirnic_clock.so
        irnic devinfo
        irnic doctor | grep library",
    );
    assert!(said.contains("-F _irnic irnic\n") && said.contains(".TH irnic-sim 1"), "{said}");
    assert!(
        ["verbs", "sysfs"].iter().all(|name| said.contains(&format!("/usr/lib/irnic/libirnic_{name}.so"))),
        "{said}"
    );
    let left = system
        .as_root("dpkg --purge irnic >/dev/null; find / -xdev -name '*irnic*' ! -path '/proc/*' ! -path /irnic.deb");
    assert!(left.lines().all(|path| path.starts_with("/tmp/irnic-1000") || path.starts_with("/var/log")), "{left}");
}

#[test]
fn tarball() {
    let Some(debian) = debian() else { return };
    let system = Installed::copy_of(debian);
    let packed = built("tarball", &[]);
    succeeds(Command::new("tar").arg("-xf").arg(&packed).arg("-C").arg(system.root().join("opt")));
    system.transfers("/opt/irnic/bin");
}

#[test]
fn wheel() {
    let Some(debian) = debian() else { return };
    let system = Installed::copy_of(debian);
    let wheel = built("wheel", &[]);
    let name = wheel.file_name().expect("a name").to_str().expect("text").to_owned();
    system.copy(&wheel, &name);
    system.copy(&repository().join("bench/examples/python"), "home/user/sample");
    system.copy(&repository().join("packaging/python/tests"), "home/user/tests");
    let script = format!(
        "cd ~; python3 -m venv --system-site-packages env; env/bin/pip install --no-index /{name}
        cd sample; irnic run --sysfs -- python -m unittest 2>&1; irnic doctor | grep library
        cd ../tests; python -m pytest -p no:cacheprovider 2>&1"
    );
    let system_root = system.root();
    for folder in ["sample", "tests"] {
        let folder = system_root.join("home/user").join(folder);
        std::os::unix::fs::lchown(folder, Some(1000), Some(1000)).expect("its owner");
    }
    let said = system.run("1000:1000", "/home/user/env/bin", &script);
    assert!(said.contains(" 7 passed"), "{said}");
    assert!(said.contains("\nOK") && said.contains("/home/user/env/lib/irnic/libirnic_verbs.so"), "{said}");
    system.transfers("/home/user/env/bin");
    let left = "env/bin/pip uninstall --yes irnic >/dev/null; find env -name '*irnic*'";
    assert_eq!(system.run("1000:1000", "/home/user/env/bin", &format!("cd ~; {left}")), "");
}

#[test]
fn cargo_install() {
    let Some(debian) = debian() else { return };
    let system = Installed::copy_of(debian);
    let place = Folder::new();
    let mut command = Command::new("cargo");
    command.args(["install", "--quiet", "--locked", "--path", "bench", "--no-track", "--root"]).arg(place.path());
    succeeds(command.current_dir(repository()).env("CARGO_TARGET_DIR", target()));
    // The program, and nothing else.
    system.copy(&place.path().join("bin/irnic"), "home/user/.cargo/bin/irnic");
    system.transfers("/home/user/.cargo/bin");
    let said =
        system.run("1000:1000", "/home/user/.cargo/bin", "cd ~; irnic doctor | grep library; find .cache | wc -l");
    assert!(said.contains("/home/user/.cache/irnic/"), "{said}");
    // Where nothing can be written in the home directory.
    let said =
        system.run("1000:1000", "/home/user/.cargo/bin", "cd /; export HOME=/nonexistent; irnic doctor | grep library");
    assert!(said.contains("/tmp/irnic-1000/"), "{said}");
}

#[test]
fn image() {
    let Some(debian) = debian() else { return };
    let Some(()) = needs(&["podman"]) else { return };
    let podman = |arguments: &[&str]| succeeds(Command::new("podman").args(arguments));
    let base = "localhost/irnic-test-base:latest";
    let folder = Folder::new();
    let tar = folder.path().join("image.tar");
    let tar = tar.to_str().expect("text");
    succeeds(Command::new("tar").args(["-cf", tar, "-C"]).arg(debian).arg("."));
    podman(&["import", "--quiet", tar, base]);
    // What a container may do depends on the machine, and on where podman runs itself. So the image is built without
    // one, and what is in it runs as the other packages do.
    built("image", &[("BASE", base), ("BUILDAH_ISOLATION", "chroot")]);
    let image = concat!("localhost/irnic:", env!("CARGO_PKG_VERSION"));
    let container = podman(&["create", "--quiet", image]);
    podman(&["export", "--output", tar, container.trim()]);
    let starts = podman(&["inspect", "--format", "{{.Config.Entrypoint}} {{.Config.Cmd}}", "localhost/irnic:latest"]);
    assert_eq!(starts.trim(), "[irnic] [doctor]");
    podman(&["rm", container.trim()]);
    // It has perftest.
    podman(&["tag", base, "localhost/rdma-app"]);
    kubernetes::podman_plays_the_manifests();
    podman(&["rmi", "--force", image, "localhost/irnic:latest", "localhost/rdma-app", base]);
    let system = Installed::new(|root| {
        succeeds(Command::new("tar").args(["-xf", tar, "-C"]).arg(root));
    });
    system.transfers("/usr/bin");
    assert!(system.run("1000:1000", "/usr/bin", "irnic doctor").contains("/usr/lib/irnic/libirnic_verbs.so"));
    // What `podman run --rm irnic perf` starts, for less time.
    let said = system.run("0:0", "/usr/bin", "irnic perf write-bw -n 100");
    assert!(said.contains("65536"), "{said}");
}
