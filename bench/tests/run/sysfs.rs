//! `irnic run --sysfs`: applications find what a kernel driver would show, and nothing else changes.

use std::process::{Output, Stdio};

use crate::support::{Folder, await_listener, free_port, irnic, needs, text};

/// Runs a command with and without the files.
fn with(folder: &Folder, sysfs: bool, args: &[&str]) -> Output {
    let mut command = irnic(folder);
    command.arg("run").args(sysfs.then_some("--sysfs"));
    command.args(["--address", "127.0.0.1,::1", "--rate", "40G", "--"]).args(args);
    command.output().expect("irnic starts")
}

#[test]
fn files_of_the_device_are_there_only_if_asked_for() {
    let folder = Folder::new();
    let class = "/sys/class/infiniband/irnic0";
    for (file, is) in [
        ("ports/1/gid_attrs/types/0", "RoCE v2"),
        ("ports/1/gid_attrs/ndevs/1", "lo"),
        ("ports/1/gids/0", "0000:0000:0000:0000:0000:ffff:7f00:0001"),
        ("ports/1/gids/1", "0000:0000:0000:0000:0000:0000:0000:0001"),
        ("ports/1/state", "4: ACTIVE"),
        ("ports/1/rate", "40 Gb/sec (4X QDR)"),
        ("ports/1/link_layer", "Ethernet"),
        ("ports/1/pkeys/0", "0xffff"),
        ("node_type", "1: CA"),
        ("device/numa_node", "-1"),
        ("device/net/lo/dev_port", "0"),
        ("device/infiniband_verbs/uverbs_irnic0/ibdev", "irnic0"),
        ("../../net/lo/device/infiniband/irnic0/node_type", "1: CA"),
        ("../../infiniband_mad/abi_version", "5"),
        ("../../misc/rdma_cm/abi_version", "4"),
        ("ports/1/counters/port_xmit_data", "0"),
        ("../../infiniband_verbs/uverbs_irnic0/ibdev", "irnic0"),
        ("../../infiniband_verbs/abi_version", "6"),
    ] {
        let path = format!("{class}/{file}");
        let output = with(&folder, true, &["cat", &path]);
        assert_eq!(text(&output.stdout).trim_end(), is, "{file}: {}", text(&output.stderr));
        assert!(!with(&folder, false, &["cat", &path]).status.success(), "{file} without --sysfs");
    }
}

#[test]
fn the_module_for_memory_of_gpus_is_there_where_that_is_on() {
    let folder = Folder::new();
    for (gpu, found) in [("on", true), ("off", false)] {
        for file in ["/sys/module/nvidia_peermem/version", "/sys/kernel/mm/memory_peers/nv_mem/version"] {
            let mut command = irnic(&folder);
            command.env("IRNIC_GPU", gpu).args(["run", "--sysfs", "--address", "127.0.0.1", "--", "cat", file]);
            let output = command.output().expect("irnic starts");
            assert_eq!(output.status.success(), found, "{gpu}: {file}: {}", text(&output.stderr));
        }
    }
}

#[test]
fn the_device_file_is_a_character_device_that_can_be_opened() {
    let folder = Folder::new();
    let script = "d=/dev/infiniband/uverbs_irnic0; test -c $d && test -r $d && test -w $d && : <>$d && ls /dev/infiniband \
                  && ! test -e /dev/infiniband/other && ! test -e /sys/class/infiniband/other \
                  && test -c /dev/infiniband/rdma_cm && test -w /dev/infiniband/rdma_cm";
    let output = with(&folder, true, &["sh", "-c", script]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "rdma_cm\nuverbs_irnic0\n");
    assert!(!with(&folder, false, &["sh", "-c", script]).status.success());
}

#[test]
fn the_files_are_reached_by_any_path_and_none_is_written() {
    let folder = Folder::new();
    for script in [
        "cd /sys/class && cat infiniband/irnic0/node_type",
        "cd /sys/class/infiniband/irnic0/ports && cat ../node_type",
        "cd /sys/class/infiniband/irnic0/ports && cat 1/../../../irnic0/./node_type",
        "cat /sys/class/net/../infiniband/irnic0/node_type",
        "cat /sys/class//infiniband/irnic0/node_type",
        "cat $(realpath /sys/class/infiniband/irnic0/..)/irnic0/node_type",
        "python3 -c \"import os; d = os.open('/sys/class', os.O_RDONLY); \
         f = os.open('infiniband/irnic0/node_type', os.O_RDONLY, dir_fd=d); print(os.read(f, 99).decode(), end='')\"",
        "cd /sys/class/infiniband && python3 -c \"import os; print('1: CA' if os.stat('irnic0/node_type') else '')\"",
    ] {
        let output = with(&folder, true, &["sh", "-c", script]);
        assert_eq!(text(&output.stdout), "1: CA\n", "{script}: {}", text(&output.stderr));
    }
    // What is not a driver's is the kernel's, wherever it is asked for.
    let net = "ls /sys/class/net; cat /sys/class/net/lo/mtu";
    let from_within = "cd /sys/class/infiniband/irnic0 && ls ../../net && cat ../../net/lo/mtu";
    let [plain, within] = [net, from_within].map(|script| with(&folder, true, &["sh", "-c", script]));
    assert_eq!(text(&plain.stdout), text(&within.stdout), "{}", text(&within.stderr));
    for script in [
        "echo mine > /sys/class/infiniband/irnic0/node_desc",
        "cd /sys/class/infiniband/irnic0 && echo mine >> node_desc",
        "touch /sys/class/infiniband/irnic0/other",
    ] {
        let output = with(&folder, true, &["sh", "-c", script]);
        assert!(!output.status.success(), "{script}");
        assert!(text(&output.stderr).contains("ermission denied"), "{script}: {}", text(&output.stderr));
    }
}

#[test]
fn other_paths_are_left_alone() {
    let folder = Folder::new();
    folder.write("file", "content");
    let script = "cat file; test ! -e /sys/class/infiniband_else && readlink /proc/self/cwd && ls /sys/class/net";
    let [with, without] = [true, false].map(|sysfs| with(&folder, sysfs, &["sh", "-c", script]));
    assert!(with.status.success(), "{}", text(&with.stderr));
    assert_eq!((text(&with.stdout), text(&with.stderr)), (text(&without.stdout), text(&without.stderr)));
}

#[test]
fn a_preloaded_library_is_kept() {
    let folder = Folder::new();
    for (option, ours) in [(None, &["libirnic_verbs"][..]), (Some("--sysfs"), &["libirnic_verbs", "libirnic_sysfs"])] {
        let mut command = irnic(&folder);
        command.env("LD_PRELOAD", "libm.so.6").arg("run").args(option);
        let output = command.args(["--address", "127.0.0.1", "--", "sh", "-c", "echo $LD_PRELOAD"]).output().unwrap();
        let value = text(&output.stdout);
        let (preloaded, kept) = value.trim_end().rsplit_once(':').unwrap_or_default();
        let names = preloaded.split(':').map(|path| path.rsplit('/').next().unwrap().split('-').next().unwrap());
        assert!(names.eq(ours.iter().copied()) && kept == "libm.so.6", "{value}{}", text(&output.stderr));
    }
}

#[test]
fn many_launches_at_once_share_one_directory() {
    let folder = Folder::new();
    let tmp = folder.path().join("tmp");
    std::fs::create_dir(&tmp).unwrap();
    let children: Vec<_> = (0..20)
        .map(|_| {
            irnic(&folder)
                .env("TMPDIR", &tmp)
                .env_remove("XDG_RUNTIME_DIR")
                .args([
                    "run",
                    "--sysfs",
                    "--address",
                    "127.0.0.1",
                    "--",
                    "cat",
                    "/sys/class/infiniband/irnic0/node_type",
                ])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for child in children {
        assert_eq!(text(&child.wait_with_output().unwrap().stdout), "1: CA\n");
    }
    let own = std::fs::read_dir(&tmp).unwrap().next().unwrap().unwrap().path();
    assert_eq!(std::fs::read_dir(own).unwrap().count(), 1);
}

#[test]
fn ucx_lists_the_device() {
    let Some(()) = needs(&["ucx_info"]) else { return };
    let folder = Folder::new();
    let args = ["env", "UCX_TLS=rc_v,ud_v", "ucx_info", "-d"];
    // UCX passes over the loopback interface's addresses: the host's first interface is taken.
    let output = irnic(&folder).args(["run", "--sysfs", "--"]).args(args).output().unwrap();
    let out = text(&output.stdout);
    for line in ["Memory domain: irnic0", "Transport: rc_verbs", "Transport: ud_verbs", "Device: irnic0:1"] {
        assert!(out.contains(line), "{line} is not in\n{out}{}", text(&output.stderr));
    }
}

#[test]
fn ucx_talks_over_the_device() {
    let Some(()) = needs(&["ucx_perftest", "timeout"]) else { return };
    let folder = Folder::new();
    for (transport, address) in [("rc_v", "::1"), ("ud_v", "::1"), ("rc_v", "127.0.0.1"), ("ud_v", "127.0.0.1")] {
        let port = free_port();
        let start = |more: &[&str]| {
            let mut command = irnic(&folder);
            command.env("UCX_TLS", transport).args(["run", "--sysfs", "--address", address, "--"]);
            command.args(["timeout", "60", "ucx_perftest", "-p", &port]).args(more);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("irnic starts")
        };
        let server = start(&[]);
        await_listener(&port);
        let client = start(&["127.0.0.1", "-t", "tag_lat", "-n", "100", "-s", "4096"]);
        for end in [client, server] {
            let output = end.wait_with_output().unwrap();
            let printed = format!("{transport} over {address}: {}{}", text(&output.stdout), text(&output.stderr));
            assert!(output.status.success() && !printed.contains("ERROR"), "{printed}");
        }
    }
}
