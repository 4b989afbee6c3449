//! `irnic launch` as a user runs it.

use std::collections::BTreeSet;

use crate::support::{Folder, irnic, needs, text};

/// The lines that `irnic launch` with these options and a shell script prints, in order, and its exit status.
fn launch(options: &[&str], script: &str) -> (BTreeSet<String>, Option<i32>, String) {
    let folder = Folder::new();
    let mut command = irnic(&folder);
    command.arg("launch").args(options).args(["--", "sh", "-c", script]);
    for name in ["RANK", "MASTER_ADDR", "MASTER_PORT", "NCCL_NET", "NCCL_IB_HCA", "NCCL_HOSTID"] {
        command.env_remove(name);
    }
    let output = command.env("NCCL_SOCKET_IFNAME", "eth7").output().expect("irnic runs");
    (text(&output.stdout).lines().map(str::to_owned).collect(), output.status.code(), text(&output.stderr))
}

#[test]
fn ranks_have_the_variables_of_torchrun_and_nccl() {
    let print = "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $NCCL_HOSTID $NCCL_IB_HCA \
                 $NCCL_SOCKET_IFNAME $IRNIC_ADDRESSES ${MASTER_PORT:+port}";
    let (lines, status, err) = launch(&["-n", "3", "--per-host", "2"], print);
    let expected = [
        "0 3 0 2 127.0.0.1 h0 irnic eth7 127.0.0.1 port",
        "1 3 1 2 127.0.0.1 h0 irnic eth7 127.0.0.1 port",
        "2 3 0 1 127.0.0.1 h1 irnic eth7 127.0.0.2 port",
    ];
    assert_eq!((lines, status), (expected.map(str::to_owned).into(), Some(0)), "{err}");
    let (lines, ..) =
        launch(&["-n", "1", "--master-port", "4321", "--address", "127.0.0.9"], "echo $MASTER_PORT $IRNIC_ADDRESSES");
    assert_eq!(lines, BTreeSet::from(["4321 127.0.0.9".to_owned()]));
}

#[test]
fn an_invalid_master_port_is_refused() {
    for port in ["0", "65536", "http"] {
        let folder = Folder::new();
        let output = irnic(&folder).args(["launch", "-n", "1", "--", "true"]).env("MASTER_PORT", port).output();
        let output = output.expect("irnic runs");
        let said = text(&output.stderr);
        let expected = format!("MASTER_PORT={port}: expected a port, 1 to 65535");
        assert!(output.status.code() == Some(2) && said.contains(&expected), "{said}");
    }
}

#[test]
fn a_rank_that_fails_ends_the_others() {
    let script = "if [ $RANK = 1 ]; then until [ -e ready ]; do sleep 0.01; done; exit 3; fi; \
                  trap 'echo ended; exit 0' TERM; touch ready; while :; do sleep 0.1; done";
    let (lines, status, err) = launch(&["-n", "2"], script);
    assert_eq!((lines, status), (BTreeSet::from(["ended".to_owned()]), Some(3)), "{err}");
    assert_eq!(err, "irnic: rank 1: exit status 3\n");
    let (_, status, err) = launch(&["-n", "0"], "true");
    assert!(status == Some(2) && err.contains("0 is not in 1..=1000"), "{err}");
}

/// What a rank has started ends with the job, also if that rank is gone: otherwise what reads the output waits for it.
#[test]
fn a_rank_that_fails_leaves_nothing_behind() {
    let script = "sleep 1000 & (sleep 1000 & touch there$RANK; wait) & \
                  until [ -e there0 -a -e there1 ]; do sleep 0.01; done; [ $RANK = 0 ] || exit 5; sleep 1000";
    let (_, status, err) = launch(&["-n", "2"], script);
    assert_eq!(status, Some(5), "{err}");
    let (_, status, err) = launch(&["-n", "2", "--master-port", "0"], "true");
    assert_eq!(status, Some(2), "{err}");
}

#[test]
fn ranks_talk_by_rdma_also_in_a_lab() {
    if needs(&["ib_write_bw"]).is_none() {
        return;
    }
    let pair = "if [ $RANK = 0 ]; then ib_write_bw -d irnic0 -p $MASTER_PORT -n 20 > /dev/null; else \
                until ib_write_bw -d irnic0 -p $MASTER_PORT -n 20 $MASTER_ADDR > out.txt 2> err.txt; do \
                grep -q \"Couldn't connect\" err.txt || { cat err.txt; exit 1; }; sleep 0.1; done; grep -c '^ 65536' out.txt; fi";
    let (lines, status, err) = launch(&["-n", "2", "--transport", "irn", "--impair", "loss 1%"], pair);
    assert_eq!((lines, status), (BTreeSet::from(["1".to_owned()]), Some(0)), "{err}");
    let folder = Folder::new();
    let mut lab = irnic(&folder);
    lab.args(["lab", "--topology", "star:hosts=2", "--json", "lab.json", "--"]).arg(env!("CARGO_BIN_EXE_irnic"));
    let output = lab.args(["launch", "-n", "2", "--", "sh", "-c", pair]).output().expect("irnic runs");
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let json = std::fs::read_to_string(folder.path().join("lab.json")).expect("a file");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let from: BTreeSet<_> =
        json["pairs"].as_array().expect("pairs").iter().filter_map(|pair| pair["from"].as_u64()).collect();
    assert_eq!(from, BTreeSet::from([0, 1]), "{json}");
}
