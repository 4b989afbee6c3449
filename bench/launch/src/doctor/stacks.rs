//! Communication libraries that a program has: what each needs to run on irnic.

use std::path::{Path, PathBuf};

use super::finding::Finding;

/// A library: its name, prefixes of its packages for Python and of its shared object, and what it needs.
struct Stack {
    name: &'static str,
    packages: &'static [&'static str],
    object: &'static str,
    needs: fn(&str) -> Need,
}

/// What a library needs, by its version.
enum Need {
    /// What makes it run on irnic.
    This(&'static str),
    /// Without this it fails: what happens, and the remedy.
    Trap(&'static str, &'static str),
}

const LAUNCH: &str = "irnic launch -n RANKS -- sets what it needs (docs/ai.md)";
const FILES: &str = "irnic run --sysfs: it looks for devices under /sys";

const STACKS: [Stack; 6] = [
    Stack { name: "NCCL", packages: &["nvidia_nccl_"], object: "libnccl.so", needs: nccl },
    Stack {
        name: "NVSHMEM",
        packages: &["nvidia_nvshmem_"],
        object: "libnvshmem_host.so",
        needs: |_| Need::Trap("it registers GPU memory, which irnic refuses", "use its transports within a machine"),
    },
    Stack {
        name: "NIXL",
        packages: &["nixl", "nixl_cu12", "nixl_cu13"],
        object: "libnixl.so",
        needs: |_| Need::This(FILES),
    },
    Stack {
        name: "Mooncake",
        packages: &["mooncake_transfer_engine"],
        object: "libtransfer_engine.so",
        needs: |_| Need::This(FILES),
    },
    Stack {
        name: "UCX",
        packages: &["libucx_", "ucx_py"],
        object: "libucp.so",
        needs: |_| Need::This("irnic run --sysfs, with UCX_TLS=rc_v,self"),
    },
    Stack {
        name: "libfabric",
        packages: &[],
        object: "libfabric.so",
        needs: |_| Need::This("provider verbs;ofi_rxm, and an address that is not loopback's, as in irnic lab --netns"),
    },
];

fn nccl(version: &str) -> Need {
    if version.starts_with("2.28.") {
        Need::Trap(
            "it crashes where a NIC is not mlx5 (net.cc)",
            "NCCL_GIN_ENABLE=0 NCCL_GIN_TYPE=2, which irnic launch sets with all else that it needs",
        )
    } else {
        Need::This(LAUNCH)
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

/// Returns findings about shared objects: paths with their links resolved, whose names may end with a version.
pub fn of_objects(objects: impl Iterator<Item = PathBuf>) -> Vec<Finding> {
    let of = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.to_owned();
        let (stack, rest) = STACKS.iter().find_map(|stack| Some((stack, name.strip_prefix(stack.object)?)))?;
        // libucp.so.0.0.0 has the version of its interface.
        let version = rest.trim_start_matches('.');
        let version = if version.matches('.').count() == 2 && !version.starts_with('0') { version } else { "" };
        Some(stack.finding(version, &path))
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
    fn objects_are_known_by_their_names() {
        let paths = ["/lib/libnccl.so.2.27.3", "/lib/libucp.so.0.0.0", "/lib/libfabric.so.1.19.1", "/lib/libm.so.6"];
        let found: Vec<String> =
            of_objects(paths.map(PathBuf::from).into_iter()).into_iter().map(|f| f.found).collect();
        assert_eq!(
            found,
            [
                "NCCL 2.27.3, /lib/libnccl.so.2.27.3",
                "UCX, /lib/libucp.so.0.0.0",
                "libfabric 1.19.1, /lib/libfabric.so.1.19.1"
            ]
        );
    }
}
