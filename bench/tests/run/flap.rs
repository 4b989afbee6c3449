//! Applications whose link fails and returns, between two network namespaces, or whose interface changes and goes.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::support::wheels::wheel;
use crate::support::{Folder, NAMESPACES, needs, skipped, text};

/// After [`NAMESPACES`]: waits for the link, which then is slow. `moves CLIENT` waits until a process has sent 3 MB.
const LINK: &str = r#"until ip link show eth0 | grep -q 'state UP'; do sleep 0.02; done
export IRNIC_RATE=200M
# Bytes that have left.
sent() { ip -j -s link show eth0 | sed 's/.*"tx":{"bytes":\([0-9]*\).*/\1/'; }
moves() { to=$(($(sent) + 3000000)); until [ "$(sent)" -gt $to ]; do kill -0 $1; sleep 0.01; done; }
"#;

/// perftest, for three seconds at least. The link fails for a third of a second while it sends, and once more from the
/// other end.
const PERFTEST: &str = r#"
test="ib_write_bw -d irnic0 -p 18515 -n 20000 -s 4096 -u 16"
there "$IRNIC" run --transport "$TRANSPORT" -- $test >server.txt 2>&1 & server=$!
until there grep -q ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6; do sleep 0.02; done
"$IRNIC" run --transport "$TRANSPORT" -- $test 10.0.0.2 >client.txt 2>&1 & client=$!
for end in '' there; do
    moves $client
    $end ip link set eth0 down
    sleep 0.3
    $end ip link set eth0 up
done
wait $client
wait $server
grep -q '^ 4096  *20000 ' client.txt
echo survived"#;

/// Mooncake's transfer engine. An initiator gives up by itself when it hears that its port has failed; the same target
/// serves the next one once the link is back. A target that hears of it as well, as it does if that takes long, comes
/// back after 30 seconds. A target sleeps when its memory is registered.
const MOONCAKE: &str = r#"
options="run --transport $TRANSPORT -- $PROGRAM -metadata_server=P2PHANDSHAKE -protocol=rdma -device_name=irnic0
    -threads=1 -batch_size=8 -block_size=65536 -buffer_size=16777216"
nsenter --net=/proc/$other/ns/net "$IRNIC" $options -mode=target -local_server_name=10.0.0.2 >server.txt 2>&1 & target=$!
until grep -q 'DRAM is used' server.txt && grep -q '^230 ' /proc/$target/syscall; do kill -0 $target; sleep 0.02; done
segment=$(sed -n 's/.*listening on \([0-9.:]*\).*/\1/p' server.txt | head -n 1)
writes() {
    exec "$IRNIC" $options -mode=initiator -local_server_name=10.0.0.1 -segment_id=$segment -operation=write -duration=$1
}
(writes 60) >client.txt 2>&1 & client=$!
moves $client
ip link set eth0 down
if wait $client; then exit 1; fi
grep -q 'async event port error' client.txt
ip link set eth0 up
until ip link show eth0 | grep -q 'state UP'; do sleep 0.02; done
if grep -q 'async event port error' server.txt; then
    until grep -q 'is now active after recovery delay' server.txt; do kill -0 $target; sleep 0.1; done
fi
(writes 1) >client.txt 2>&1
grep -q 'batch count [1-9]' client.txt
kill $target
echo survived"#;

/// Runs a script in a network namespace of its own. Returns what it prints and what it says on standard error, or skips
/// the test.
fn isolated(folder: &Folder, script: &str, variables: &[(&str, &str)]) -> Option<(String, String)> {
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--net", "sh", "-c", script]).current_dir(folder.path());
    command.env("IRNIC", env!("CARGO_BIN_EXE_irnic")).env("XDG_CONFIG_HOME", folder.path());
    let output = command.envs(variables.iter().copied()).output().expect("unshare starts");
    let err = text(&output.stderr);
    if err.contains("not permitted") {
        skipped("no network namespaces here");
        return None;
    }
    Some((text(&output.stdout), err))
}

/// Runs a script after [`NAMESPACES`] and [`LINK`] with both transports.
fn survives(script: &str, variables: &[(&str, &str)]) {
    for transport in ["irn", "roce"] {
        let folder = Folder::new();
        let variables = [&[("TRANSPORT", transport)], variables].concat();
        let Some((out, err)) = isolated(&folder, &format!("{NAMESPACES}{LINK}{script}"), &variables) else { return };
        let files = ["server.txt", "client.txt"].map(|name| std::fs::read_to_string(folder.path().join(name)));
        assert_eq!(out, "survived\n", "{transport}: {err}{files:?}");
    }
}

#[test]
fn perftest_survives_a_link_that_fails_for_a_while() {
    let Some(()) = needs(&["ib_write_bw", "ip", "unshare", "nsenter"]) else { return };
    survives(PERFTEST, &[]);
}

#[test]
fn mooncake_hears_of_a_link_that_fails_and_goes_on_after_it() {
    let Some(()) = needs(&["python3", "ip", "unshare", "nsenter"]) else { return };
    let wheel = wheel("mooncake-transfer-engine-non-cuda==0.3.13.post1", |line| line.contains("transfer_engine_bench"));
    let Some(program) = wheel.map(|home| home.join("mooncake/transfer_engine_bench")) else { return };
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("permissions");
    survives(MOONCAKE, &[("PROGRAM", program.to_str().expect("a path in UTF-8"))]);
}

/// An interface that gets another address of the link layer, as a bond that fails over, and is then removed.
const CHANGES: &str = r#"set -e
ip link set lo up
ip link add eth0 type veth peer name eth1
ip addr add 10.0.0.1/24 dev eth0
ip link set eth1 up
ip link set eth0 up
"$IRNIC" run -- ./cm_events 10.0.0.1 >events.txt & program=$!
says() { until grep -q "$1" events.txt; do kill -0 $program; sleep 0.02; done; }
says bound
ip link set eth0 address 02:00:00:00:00:77
says ADDR_CHANGE
ip link del eth0
wait $program
cat events.txt"#;

#[test]
fn ids_of_librdmacm_hear_that_their_interface_changes_and_goes() {
    let Some(()) = needs(&["cc", "/usr/include/rdma/rdma_cma.h", "ip", "unshare"]) else { return };
    let folder = Folder::new();
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/cm_events.c");
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Werror", "-o", "cm_events"]).arg(source).args(["-lrdmacm", "-libverbs"]);
    assert!(cc.current_dir(folder.path()).status().expect("cc").success());
    let Some((out, err)) = isolated(&folder, CHANGES, &[]) else { return };
    let events = "bound to irnic0\nown RDMA_CM_EVENT_ADDR_CHANGE\nown RDMA_CM_EVENT_DEVICE_REMOVAL\n";
    assert_eq!(out, events, "{err}");
}
