//! Finding processes that listen, by the kernel's tables of their network namespaces.

use std::collections::HashSet;
use std::fs;

/// Returns the ids of all processes but this one and those that have ended, and of their parents.
fn processes() -> Vec<(u32, u32)> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    let all = entries.filter_map(|entry| {
        let process = entry.ok()?.file_name().to_str()?.parse().ok()?;
        // pid (name) state ppid …
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?;
        (state != "Z").then_some((process, fields.next()?.parse().ok()?))
    });
    all.filter(|(process, _)| *process != std::process::id()).collect()
}

/// Returns the ids of a process's children, without the calling process and those that have ended.
pub fn children(of: u32) -> Vec<u32> {
    processes().into_iter().filter(|(_, parent)| *parent == of).map(|(process, _)| process).collect()
}

/// Returns the ids of a process's descendants, without the calling process and those that have ended.
pub fn descendants(of: u32) -> Vec<u32> {
    let all = processes();
    let mut found = vec![of];
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        at += 1;
        found.extend(all.iter().filter(|(_, of)| *of == parent).map(|(process, _)| *process));
    }
    found.split_off(1)
}

/// Whether a process has a socket that listens: for TCP connections, for those of rdma_cm, or under a name of the Unix
/// domain that is not one of irnic's own.
pub fn listens(process: u32) -> bool {
    let of = |table: &str| fs::read_to_string(format!("/proc/{process}/net/{table}")).unwrap_or_default();
    let mut listening = HashSet::new();
    for table in ["tcp", "tcp6"] {
        // sl local remote st queues timer retransmissions uid timeout inode …
        listening.extend(of(table).lines().filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            (fields.get(3) == Some(&"0A")).then(|| fields.get(9).map(|inode| (*inode).to_owned())).flatten()
        }));
    }
    // Num RefCount Protocol Flags Type St Inode Path, with 0x10000 in the flags of one that listens. A device listens
    // on names of its own from the beginning; that a service is listened on, a bound name says.
    listening.extend(of("unix").lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (flags, name) = (fields.get(3)?, fields.get(7).unwrap_or(&""));
        let serves = name.ends_with("/listens") || *flags == "00010000" && !name.starts_with("@irnic/1/");
        serves.then(|| fields[6].to_owned())
    }));
    let Ok(open) = fs::read_dir(format!("/proc/{process}/fd")) else { return false };
    open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok()).any(|to| {
        let to = to.to_string_lossy();
        to.strip_prefix("socket:[")
            .and_then(|rest| rest.strip_suffix(']'))
            .is_some_and(|inode| listening.contains(inode))
    })
}
