//! Communication libraries that a program has: which version, and what each needs to run on irnic.

use std::path::{Path, PathBuf};

use object::{Object, ObjectSection, ReadCache};

use super::finding::Finding;

/// A library.
struct Stack {
    name: &'static str,
    /// Prefixes of its packages for Python.
    packages: &'static [&'static str],
    /// Its shared object, without `.so`.
    object: &'static str,
    release: Release,
    /// What it needs, by its version.
    needs: fn(&str) -> Need,
}

/// Where a shared object has the version that its library was released as.
enum Release {
    /// Nowhere: only its package's metadata have it.
    Package,
    /// In its name, or else after these bytes.
    Name(&'static str),
    /// In a string of its own: its name has the version of the interface.
    Alone,
}

/// What a library needs.
enum Need {
    /// What makes it run on irnic.
    This(&'static str),
    /// Without this it fails: what happens, and the remedy.
    Trap(&'static str, &'static str),
}

const LAUNCH: &str = "irnic launch -n RANKS -- sets what it needs (docs/ai.md)";
const FILES: &str = "irnic run --sysfs: it looks for devices under /sys";

const STACKS: [Stack; 6] = [
    Stack {
        name: "NCCL",
        packages: &["nvidia_nccl_"],
        object: "libnccl",
        release: Release::Name("NCCL version "),
        needs: nccl,
    },
    Stack {
        name: "NVSHMEM",
        packages: &["nvidia_nvshmem_"],
        object: "libnvshmem_host",
        release: Release::Name("NVSHMEM v"),
        needs: |_| {
            Need::This(
                "irnic run --sysfs with NVSHMEM_IB_DISABLE_DMABUF=1, which irnic launch sets; IBRC, its default between hosts, \
                 and not IBGDA, which drives an mlx5 device from the GPU",
            )
        },
    },
    Stack {
        name: "NIXL",
        packages: &["nixl", "nixl_cu12", "nixl_cu13"],
        object: "libnixl",
        release: Release::Package,
        needs: |_| Need::This(FILES),
    },
    Stack {
        name: "Mooncake",
        packages: &["mooncake_transfer_engine"],
        object: "libtransfer_engine",
        release: Release::Package,
        needs: |_| Need::This(FILES),
    },
    Stack {
        name: "UCX",
        packages: &["libucx_", "ucx_py"],
        object: "libucp",
        release: Release::Alone,
        needs: |_| Need::This("irnic run --sysfs, with UCX_TLS=rc_v,self"),
    },
    Stack {
        name: "libfabric",
        packages: &[],
        object: "libfabric",
        release: Release::Alone,
        needs: |_| Need::This("provider verbs;ofi_rxm, and an address that is not loopback's, as in irnic lab --netns"),
    },
];

fn nccl(version: &str) -> Need {
    // 2.28.3 has no GIN yet; 2.29.2 falls back to its proxy.
    if ["2.28.7", "2.28.9"].contains(&version) {
        Need::Trap(
            "it crashes where a NIC is not mlx5 (net.cc)",
            "NCCL_GIN_ENABLE=0 NCCL_GIN_TYPE=2, which irnic launch sets with all else that it needs",
        )
    } else {
        Need::This(LAUNCH)
    }
}

/// The version of three numbers with which a text begins.
fn version_at(text: &[u8]) -> Option<&str> {
    let end = text.iter().position(|c| !c.is_ascii_digit() && *c != b'.').unwrap_or(text.len());
    let version = std::str::from_utf8(&text[..end]).ok()?;
    let is_version = version.split('.').count() == 3 && version.split('.').all(|number| !number.is_empty());
    is_version.then_some(version)
}

impl Release {
    /// Returns the version in a shared object's constants, if there is just one that can be it.
    fn within(&self, constants: &[u8]) -> Option<String> {
        let mut found: Option<&str> = None;
        for string in constants.split(|c| *c == 0) {
            let version = match self {
                Release::Package => None,
                Release::Name(mark) => string.strip_prefix(mark.as_bytes()).and_then(version_at),
                // A number may be in front of it, which is no text.
                Release::Alone => {
                    let begin = string.iter().rposition(|c| !c.is_ascii_digit() && *c != b'.').map_or(0, |at| at + 1);
                    version_at(&string[begin..]).filter(|_| begin == 0 || !string[..begin].is_ascii())
                }
            };
            let Some(version) = version else { continue };
            if found.is_some_and(|other| other != version) {
                return None;
            }
            found = Some(version);
        }
        found.map(str::to_owned)
    }

    /// Returns the version of a shared object, of which `rest` is what its name has after `.so`.
    fn of(&self, path: &Path, rest: &str) -> Option<String> {
        if let (Release::Name(_), Some(version)) = (self, version_at(rest.trim_start_matches('.').as_bytes())) {
            return Some(version.to_owned());
        }
        let cache = ReadCache::new(std::fs::File::open(path).ok()?);
        let file = object::File::parse(&cache).ok()?;
        self.within(file.section_by_name(".rodata")?.data().ok()?)
    }
}

impl Stack {
    fn finding(&self, version: &str, place: &Path) -> Finding {
        let known = if version.is_empty() { self.name.to_owned() } else { format!("{} {version}", self.name) };
        let found = format!("{known}, {}", place.display());
        match (self.needs)(version) {
            Need::This(remedy) => Finding::note("stack", found, remedy),
            Need::Trap(what, remedy) => Finding::note("stack", format!("{found}: {what}"), remedy),
        }
    }
}

/// Returns findings about shared objects: paths with their links resolved. Copies in wheels have a hash in their names.
pub fn of_objects(objects: impl Iterator<Item = PathBuf>) -> Vec<Finding> {
    let of = |path: PathBuf| {
        let (name, rest) = path.file_name()?.to_str()?.split_once(".so")?;
        let is = |stack: &&Stack| {
            name.strip_prefix(stack.object).is_some_and(|hash| hash.is_empty() || hash.starts_with('-'))
        };
        let stack = STACKS.iter().find(is)?;
        Some(stack.finding(&stack.release.of(&path, rest).unwrap_or_default(), &path))
    };
    objects.filter_map(of).collect()
}

/// Returns findings about packages for Python in these folders, by the names of their metadata.
pub fn of_packages(folders: impl Iterator<Item = PathBuf>) -> Vec<Finding> {
    let entries = folders.flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten());
    let of = |path: PathBuf| {
        // NAME-VERSION.dist-info, in which a name has no hyphen.
        let (package, version) = path.file_name()?.to_str()?.strip_suffix(".dist-info")?.split_once('-')?;
        let is = |name: &&str| if name.ends_with('_') { package.starts_with(*name) } else { package == *name };
        let stack = STACKS.iter().find(|stack| stack.packages.iter().any(&is))?;
        Some(stack.finding(version, &path))
    };
    let mut findings: Vec<Finding> = entries.filter_map(|entry| of(entry.path())).collect();
    findings.sort_by(|a, b| a.found.cmp(&b.found));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_known_by_their_metadata() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in [
            "nvidia_nccl_cu12-2.28.9.dist-info",
            "nvidia_nccl_cu12",
            "nixl-1.5.0.dist-info",
            "nixl_cu12-1.5.0.dist-info",
            "mooncake_transfer_engine-0.3.13.dist-info",
            "numpy-2.1.0.dist-info",
            "nixlike-1.0.dist-info",
        ] {
            std::fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        let lines: Vec<String> =
            of_packages([folder.path().to_owned()].into_iter()).iter().map(Finding::line).collect();
        let begins = ["Mooncake 0.3.13, ", "NCCL 2.28.9, ", "NIXL 1.5.0, ", "NIXL 1.5.0, "];
        assert_eq!(lines.len(), begins.len(), "{lines:?}");
        for (line, begins) in lines.iter().zip(begins) {
            assert!(line.contains(&format!("stack         {begins}")), "{line}");
        }
        assert!(lines[1].contains("crashes where a NIC is not mlx5 (net.cc); NCCL_GIN_ENABLE=0"), "{lines:?}");
    }

    #[test]
    fn the_crash_of_gin_is_that_of_two_versions() {
        let crashes = |version: &str| matches!(nccl(version), Need::Trap(..));
        assert!(["2.28.7", "2.28.9"].iter().all(|version| crashes(version)));
        assert!(!["2.27.7", "2.28.3", "2.29.2", "2.30.7", ""].iter().any(|version| crashes(version)));
    }

    #[test]
    fn versions_are_read_from_constants() {
        let nccl = Release::Name("NCCL version ");
        assert_eq!(nccl.within(b"x\x002.1.0\0NCCL version 2.28.9+cuda12.9\0"), Some("2.28.9".into()));
        assert_eq!(nccl.within(b"NCCL version mismatch\0"), None);
        // The bytes of 25.6 are in front of it; addresses are no versions.
        let alone = |constants: &[u8]| Release::Alone.within(constants);
        assert_eq!(alone(b"127.0.0.1\0usage: a 9.9.9\0e\xcd\xcdA1.13.1\0%d.%d\0"), Some("1.13.1".into()));
        assert_eq!(alone(b"1.17.0\0x\x001.17.0\0"), Some("1.17.0".into()));
        assert_eq!(alone(b"1.17.0\x001.2.3\0"), None, "which one is it?");
        assert_eq!(alone(b"1.17\0"), None);
    }

    #[test]
    fn objects_are_known_by_their_names() {
        let paths = [
            "/lib/libnccl.so.2.27.3",
            "/lib/libnvshmem_host.so.3.4.5",
            "/app.libs/libucp-98ab.so.0.0.0",
            "/lib/libfabric.so.1.20.0",
            "/lib/libfabricated.so.1",
            "/lib/libm.so.6",
        ];
        let found: Vec<String> =
            of_objects(paths.map(PathBuf::from).into_iter()).into_iter().map(|f| f.found).collect();
        // Names of the last two have versions of interfaces.
        assert_eq!(
            found,
            [
                "NCCL 2.27.3, /lib/libnccl.so.2.27.3",
                "NVSHMEM 3.4.5, /lib/libnvshmem_host.so.3.4.5",
                "UCX, /app.libs/libucp-98ab.so.0.0.0",
                "libfabric, /lib/libfabric.so.1.20.0"
            ]
        );
    }
}
