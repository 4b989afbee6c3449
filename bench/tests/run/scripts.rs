//! What shell scripts and diagnostic programs of the field read of a device, under `irnic run --sysfs`.

use crate::support::{Folder, irnic, needs, text};

/// As show_gids of Mellanox' OFED goes through the GID tables.
const SHOW_GIDS: &str = r#"
for d in $(ls /sys/class/infiniband/); do
    for p in $(ls /sys/class/infiniband/$d/ports/); do
        for g in $(ls /sys/class/infiniband/$d/ports/$p/gids/); do
            gid=$(cat /sys/class/infiniband/$d/ports/$p/gids/$g)
            [ "$gid" = 0000:0000:0000:0000:0000:0000:0000:0000 ] && continue
            ndev=$(cat /sys/class/infiniband/$d/ports/$p/gid_attrs/ndevs/$g 2>/dev/null)
            type=$(cat /sys/class/infiniband/$d/ports/$p/gid_attrs/types/$g 2>/dev/null)
            echo "$d $p $g $gid $type $ndev"
        done
    done
done"#;

/// As ibdev2netdev pairs devices with network interfaces, and the other way round.
const IBDEV2NETDEV: &str = r#"
for path in /sys/class/infiniband/*; do
    d=${path##*/}
    for net in $path/device/net/*; do
        port=$(($(cat $net/dev_port) + 1))
        state=$(cut -d: -f1 $path/ports/$port/state)
        echo "$d port $port ==> ${net##*/} ($state, $(cat $net/operstate))"
    done
done
for net in /sys/class/net/lo; do
    for d in $(ls $net/device/infiniband 2>/dev/null); do echo "${net##*/} has $d"; done
done"#;

/// Runs a command on a device with two addresses of the loopback interface.
fn run(folder: &Folder, args: &[&str]) -> String {
    let mut command = irnic(folder);
    let output = command.args(["run", "--sysfs", "--address", "127.0.0.1,::1", "--"]).args(args).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn scripts_find_gids_and_interfaces() {
    let folder = Folder::new();
    let gids = "irnic0 1 0 0000:0000:0000:0000:0000:ffff:7f00:0001 RoCE v2 lo\n\
                irnic0 1 1 0000:0000:0000:0000:0000:0000:0000:0001 RoCE v2 lo\n";
    let pairs = "irnic0 port 1 ==> lo (4, up)\nlo has irnic0\n";
    for (script, out) in [(SHOW_GIDS, gids), (IBDEV2NETDEV, pairs)] {
        for shell in ["sh", "bash"] {
            if needs(&[shell]).is_some() {
                assert_eq!(run(&folder, &[shell, "-c", script]), out, "{shell}");
            }
        }
    }
}

#[test]
fn the_files_are_the_same_by_whichever_way_a_script_goes() {
    let folder = Folder::new();
    for script in [
        "cat /sys/class/infiniband/irnic0/node_type",
        "cd /sys/class/infiniband/irnic0 && cat node_type",
        "cd /sys/class/infiniband && cd irnic0 && cat ./node_type",
        "cat /sys/class/infiniband_verbs/uverbs_irnic0/device/infiniband/irnic0/node_type",
        "cat /sys/class/net/lo/device/infiniband/*/node_type",
        "find /sys/class/infiniband/irnic0/ -maxdepth 1 -name node_type -exec cat {} +",
    ] {
        assert_eq!(run(&folder, &["sh", "-c", script]), "1: CA\n", "{script}");
    }
}

#[test]
fn diagnostic_programs_show_the_device() {
    let folder = Folder::new();
    if needs(&["ibstat"]).is_some() {
        let out = run(&folder, &["ibstat"]);
        for line in
            ["CA 'irnic0'", "Number of ports: 1", "State: Active", "Physical state: LinkUp", "Link layer: Ethernet"]
        {
            assert!(out.lines().any(|l| l.trim() == line), "{line} is not in\n{out}");
        }
    }
    if needs(&["ibstatus"]).is_some() {
        let out = run(&folder, &["ibstatus"]);
        assert!(out.contains("Infiniband device 'irnic0' port 1 status:") && out.contains("4: ACTIVE"), "{out}");
    }
}

/// What pyverbs 45 and later do before they connect by rdma_cm (rdma-core: tests/base.py, `get_net_name` and
/// `get_ip_mac_address`), and pyverbs 44 in its own way.
#[test]
fn pyverbs_finds_the_interface_and_its_address() {
    const SCRIPT: &str = r"
import json, os, subprocess
rows = json.loads(subprocess.check_output(['rdma', 'link', 'show', '-j']).decode())
name = [row['netdev'] for row in rows if row['ifname'] == 'irnic0' and row['port'] == 1][0]
assert os.path.exists('/sys/class/infiniband/irnic0/device/net/')
listed = subprocess.check_output(['ls', '/sys/class/infiniband/irnic0/device/net/']).decode().split('\n')[0]
assert listed == name, (listed, name)
address = json.loads(subprocess.check_output(['ip', '-j', 'addr', 'show', name]).decode())[0]
print(name, address['addr_info'][0]['local'], address['address'])
";
    let Some(()) = needs(&["python3", "ip"]) else { return };
    assert_eq!(run(&Folder::new(), &["python3", "-c", SCRIPT]), "lo 127.0.0.1 00:00:00:00:00:00\n");
}
