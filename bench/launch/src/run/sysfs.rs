//! The devices' entries of a kernel driver under /sys and /dev, as a directory for `irnic-sysfs`.
//!
//! The directory's name is a hash of its contents: launches with the same configuration share it, and it never changes.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use irnic_verbs::device::{DeviceInfo, counter_files, counter_socket, device_attr, port_attr};

use super::error::RunError;
use super::links::runtime_directory;
use crate::rdma;

/// An entry at a path.
#[derive(Hash)]
enum Entry {
    /// A file with this text.
    File(String),
    /// A symbolic link to this path.
    Link(String),
}

/// Entries by path, without the leading slash.
type Tree = BTreeMap<String, Entry>;

/// `libibverbs` 1.x accepts the kernel's versions 3 to 6.
const VERBS_ABI: &str = "6";
/// The kernel's version of rdma_cm's commands (rdma_user_cm.h), and of MADs from user space (ib_user_mad.h).
const CM_ABI: &str = "4";
const MAD_ABI: &str = "5";
/// Character devices of the kernel's uverbs.
const MAJOR: u32 = 231;
const FIRST_MINOR: u32 = 192;

/// Formats a GUID or GID as in sysfs.
fn groups(bytes: &[u8]) -> String {
    let groups: Vec<String> = bytes.chunks(2).map(|pair| format!("{:02x}{:02x}", pair[0], pair[1])).collect();
    groups.join(":")
}

/// A CPU mask of all processors: words of 32 bits, the highest first.
fn processors() -> String {
    // SAFETY: has no precondition.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }.clamp(1, 1 << 16) as u32;
    let word = |index: u32| match count - index * 32 {
        n if n >= 32 => u32::MAX,
        n => (1 << n) - 1,
    };
    let words: Vec<String> = (0..count.div_ceil(32)).rev().map(|index| format!("{:08x}", word(index))).collect();
    words.join(",")
}

/// The link's rate, width and speed (IBA 14.2.5.6).
fn rate(info: &DeviceInfo) -> String {
    let port = port_attr(info);
    let width = match port.active_width {
        1 => "1X",
        2 => "4X",
        4 => "8X",
        _ => "12X",
    };
    let speed = match port.active_speed {
        1 => "SDR",
        2 => "DDR",
        4 => "QDR",
        8 => "FDR10",
        16 => "FDR",
        32 => "EDR",
        64 => "HDR",
        _ => "NDR",
    };
    format!("{} Gb/sec ({width} {speed})", info.rate as f64 / 1e9)
}

fn add_device(tree: &mut Tree, index: usize, info: &DeviceInfo) {
    let (name, uverbs) = (&info.name, info.uverbs());
    let class = format!("sys/class/infiniband/{name}");
    let guid = groups(&info.guid.to_be_bytes());
    let attr = device_attr(info);
    let firmware: String =
        attr.fw_ver.iter().take_while(|c| **c != 0).map(|c| char::from(c.to_ne_bytes()[0])).collect();
    let numa = fs::read_to_string(format!("/sys/class/net/{}/device/numa_node", info.interface.name));
    let up = info.up;
    let mut put = |path: String, text: &str| {
        tree.insert(path, Entry::File(format!("{}\n", text.trim_end())));
    };
    for (file, text) in [
        ("node_type", "1: CA"),
        ("node_guid", &guid),
        ("sys_image_guid", &guid),
        ("node_desc", name),
        ("fw_ver", &firmware),
        ("hca_type", "irnic"),
        ("board_id", "irnic"),
        ("hw_rev", "0"),
        ("ports/1/state", if up { "4: ACTIVE" } else { "1: DOWN" }),
        ("ports/1/phys_state", if up { "5: LinkUp" } else { "3: Disabled" }),
        ("ports/1/rate", &rate(info)),
        ("ports/1/link_layer", "Ethernet"),
        ("ports/1/lid", "0x0"),
        ("ports/1/lid_mask_count", "0"),
        ("ports/1/sm_lid", "0x0"),
        ("ports/1/sm_sl", "0"),
        ("ports/1/cap_mask", &format!("{:#010x}", port_attr(info).port_cap_flags)),
        ("ports/1/pkeys/0", "0xffff"),
        ("ports/1/has_smi", "0"),
    ] {
        put(format!("{class}/{file}"), text);
    }
    for (index, gid) in info.gid_table() {
        put(format!("{class}/ports/1/gids/{index}"), &groups(gid));
        put(format!("{class}/ports/1/gid_attrs/types/{index}"), "RoCE v2");
        put(format!("{class}/ports/1/gid_attrs/ndevs/{index}"), &info.interface.name);
    }
    // Their values are generated when they are read (irnic-sysfs).
    for file in counter_files() {
        put(format!("{class}/ports/1/{file}"), "0");
    }
    put(format!("irnic/{name}"), &counter_socket(info));
    let verbs = format!("sys/class/infiniband_verbs/{uverbs}");
    put(format!("{verbs}/dev"), &format!("{MAJOR}:{}", FIRST_MINOR as usize + index));
    put(format!("{verbs}/ibdev"), name);
    put(format!("{verbs}/abi_version"), "1");
    // In the kernel, one is a link to the other; two directories suffice.
    for parent in [&class, &verbs] {
        for (file, text) in [
            ("numa_node", numa.as_deref().unwrap_or("-1")),
            ("local_cpus", &processors()),
            ("vendor", "0x0000"),
            ("device", "0x0000"),
            ("class", "0x020000"),
        ] {
            put(format!("{parent}/device/{file}"), text);
        }
        for (file, text) in [
            ("address", mac(info.interface.mac)),
            ("ifindex", info.interface.index.to_string()),
            ("mtu", info.interface.mtu.to_string()),
            ("operstate", if up { "up" } else { "down" }.into()),
            ("dev_id", "0x0".into()),
            ("dev_port", "0".into()),
        ] {
            put(format!("{parent}/device/net/{}/{file}", info.interface.name), &text);
        }
    }
    put(format!("dev/infiniband/{uverbs}"), "");
    add_links(tree, info);
}

/// Files by which NCCL, UCX and NVSHMEM know that a NIC can be given memory of a GPU.
const GPU_MODULES: [&str; 3] = [
    "sys/module/nvidia_peermem/version",
    "sys/kernel/mm/memory_peers/nv_mem/version",
    "sys/kernel/mm/memory_peers/amdkfd/version",
];

/// Adds links to a device from other places.
fn add_links(tree: &mut Tree, info: &DeviceInfo) {
    let (name, uverbs) = (&info.name, info.uverbs());
    let (class, verbs) = (format!("infiniband/{name}"), format!("infiniband_verbs/{uverbs}"));
    for parent in [class.clone(), verbs.clone(), format!("net/{}", info.interface.name)] {
        for child in [&class, &verbs] {
            // From …/sys/class/PARENT/device/infiniband to …/sys/class.
            tree.insert(format!("sys/class/{parent}/device/{child}"), Entry::Link(format!("../../../../{child}")));
        }
    }
}

fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|b| format!("{b:02x}")).join(":")
}

/// The subdirectory of programs that replace others.
pub const PROGRAMS: &str = "bin";

fn tree(infos: &[DeviceInfo]) -> Tree {
    let versions = [("infiniband_verbs", VERBS_ABI), ("infiniband_mad", MAD_ABI), ("misc/rdma_cm", CM_ABI)];
    let version = |(class, text)| (format!("sys/class/{class}/abi_version"), Entry::File(format!("{text}\n")));
    let mut tree: Tree = versions.map(version).into();
    tree.insert("dev/infiniband/rdma_cm".into(), Entry::File(String::new()));
    if let Some(own) = std::env::current_exe().ok().and_then(|path| path.into_os_string().into_string().ok()) {
        tree.insert(format!("{PROGRAMS}/{}", rdma::NAME), Entry::Link(own));
    }
    if infos.iter().any(|info| info.config.gpu.is_on()) {
        tree.extend(GPU_MODULES.map(|file| (file.into(), Entry::File("irnic\n".into()))));
    }
    infos.iter().enumerate().for_each(|(index, info)| add_device(&mut tree, index, info));
    tree
}

fn write(tree: &Tree, root: &Path) -> io::Result<()> {
    for (path, entry) in tree {
        let path = root.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        match entry {
            Entry::File(text) => fs::write(path, text)?,
            Entry::Link(to) => symlink(to, path)?,
        }
    }
    Ok(())
}

/// Creates or finds the directory for these devices.
pub fn directory(infos: &[DeviceInfo]) -> Result<PathBuf, RunError> {
    let tree = tree(infos);
    let mut hash = DefaultHasher::new();
    tree.hash(&mut hash);
    let made = runtime_directory().and_then(|runtime| {
        let directory = runtime.join(format!("sysfs-{:016x}", hash.finish()));
        if !directory.is_dir() {
            let draft = runtime.join(format!(".sysfs-{:016x}-{}", hash.finish(), std::process::id()));
            let moved = write(&tree, &draft).and_then(|()| fs::rename(&draft, &directory));
            if moved.is_err() {
                let _ = fs::remove_dir_all(&draft);
            }
            // Another launch may have created it first.
            if !directory.is_dir() {
                moved?;
            }
        }
        Ok(directory)
    });
    made.map_err(|e| {
        RunError::Failed(format!("no place for the files of --sysfs: {e}; set TMPDIR to a directory of yours"))
    })
}
