//! Applications whose link fails and returns, between two network namespaces.

use std::process::Command;

use crate::support::{Folder, needs, skipped, text};

/// Two namespaces, joined by a link of which either end is `eth0`, and perftest between them, for three seconds at
/// least. The link fails for a third of a second while they send, and once more from the other end.
const SCRIPT: &str = r#"set -e
ip link set lo up
unshare --net sleep 600 & other=$!
trap 'kill $other' EXIT
until [ "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.02; done
there() { nsenter --net=/proc/$other/ns/net "$@"; }
ip link add eth0 type veth peer name eth0 netns $other
ip addr add 10.0.0.1/24 dev eth0
ip link set eth0 up
there ip link set lo up
there ip addr add 10.0.0.2/24 dev eth0
there ip link set eth0 up
until ip link show eth0 | grep -q 'state UP'; do sleep 0.02; done
export IRNIC_RATE=200M
test="ib_write_bw -d irnic0 -p 18515 -n 20000 -s 4096 -u 16"
there "$IRNIC" run --transport "$TRANSPORT" -- $test >server.txt 2>&1 & server=$!
until there grep -q ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6; do sleep 0.02; done
"$IRNIC" run --transport "$TRANSPORT" -- $test 10.0.0.2 >client.txt 2>&1 & client=$!
# Bytes that have left.
sent() { ip -j -s link show eth0 | sed 's/.*"tx":{"bytes":\([0-9]*\).*/\1/'; }
moves() { to=$(($(sent) + 3000000)); until [ "$(sent)" -gt $to ]; do kill -0 $client; sleep 0.01; done; }
for end in '' there; do
    moves
    $end ip link set eth0 down
    sleep 0.3
    $end ip link set eth0 up
done
wait $client
wait $server
grep -q '^ 4096  *20000 ' client.txt
echo survived"#;

#[test]
fn perftest_survives_a_link_that_fails_for_a_while() {
    let Some(()) = needs(&["ib_write_bw", "ip", "unshare", "nsenter"]) else { return };
    for transport in ["irn", "roce"] {
        let folder = Folder::new();
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--net", "sh", "-c", SCRIPT]).current_dir(folder.path());
        command.envs([("IRNIC", env!("CARGO_BIN_EXE_irnic")), ("TRANSPORT", transport)]);
        let output = command.env("XDG_CONFIG_HOME", folder.path()).output().expect("unshare starts");
        let err = text(&output.stderr);
        if err.contains("not permitted") {
            return skipped("no network namespaces here");
        }
        let files = ["server.txt", "client.txt"].map(|name| std::fs::read_to_string(folder.path().join(name)));
        assert_eq!(text(&output.stdout), "survived\n", "{transport}: {err}{files:?}");
    }
}
