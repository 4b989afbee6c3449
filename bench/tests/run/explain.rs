//! `irnic run --explain`: why a call was refused.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::{Folder, await_listener, free_port, irnic, needs, text};

/// Server and client of ibv_rc_pingpong fail, both with these options of `irnic run` and these words. What irnic says
/// at the server, which is the first to connect its queue pair; the client sees the server go.
fn pingpong(folder: &Folder, options: &[&str], args: &[&str]) -> Vec<String> {
    let port = free_port();
    let start = |host: &[&str]| {
        let mut command = irnic(folder);
        command.args(["run", "--address", "127.0.0.1"]).args(options).args(["--", "ibv_rc_pingpong", "-p", &port]);
        command.args(args).args(host).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("irnic starts")
    };
    let server = start(&[]);
    await_listener(&port);
    let client = start(&["127.0.0.1"]);
    let [_, server] = [client, server].map(|child| {
        let output = child.wait_with_output().expect("an end");
        assert!(!output.status.success());
        output
    });
    messages(&server)
}

fn messages(output: &Output) -> Vec<String> {
    text(&output.stderr).lines().filter(|l| l.starts_with("irnic: ")).map(str::to_owned).collect()
}

#[test]
fn whoever_forgets_the_gid_index_is_told_of_it_without_asking() {
    let Some(()) = needs(&["ibv_rc_pingpong"]) else { return };
    let folder = Folder::new();
    for options in [&[][..], &["--explain"]] {
        let messages = pingpong(&folder, options, &[]);
        let [line] = &messages[..] else { panic!("{messages:?}") };
        assert!(line.starts_with("irnic: ibv_modify_qp fails with EINVAL: the address has no GRH"), "{line}");
        assert!(line.contains("-g 0 of ibv_*_pingpong") && line.ends_with("(127.0.0.1)"), "{line}");
    }

    // Any other reason is told to who asks.
    let args = ["-g", "0", "-m", "4096"];
    for (options, line) in [
        (&["--mtu", "1024"][..], None),
        (&["--mtu", "1024", "--explain"], Some("path MTU 4096 is above the active MTU 1024 of irnic0")),
    ] {
        let messages = pingpong(&folder, options, &args);
        assert_eq!(messages.len(), usize::from(line.is_some()), "{messages:?}");
        assert!(line.is_none_or(|line| messages[0].contains(line)), "{messages:?}");
    }
}

/// Makes calls that are refused, each twice: the second time it is not told again.
const REFUSED: &str = r#"
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <string.h>

static struct ibv_qp *make(struct ibv_pd *pd, struct ibv_cq *cq, enum ibv_qp_type type)
{
    struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .cap = { 8, 8, 1, 1, 0 }, .qp_type = type };
    return ibv_create_qp(pd, &init);
}

int main(void)
{
    struct ibv_context *context = ibv_open_device(*ibv_get_device_list(NULL));
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    struct ibv_qp *qp = make(pd, cq, IBV_QPT_RC);
    struct ibv_ah_attr far = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = 0 } };
    memcpy(far.grh.dgid.raw, "\0\0\0\0\0\0\0\0\0\0\xff\xff\x7f\0\0\1", 16);
    struct ibv_ah_attr nowhere = { .is_global = 1, .port_num = 1 };
    struct ibv_ah_attr index = far, port = far;
    index.grh.sgid_index = 9;
    port.port_num = 2;
    int to_rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                 IBV_QP_MIN_RNR_TIMER;
    int to_rts = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
    struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad;
    void *memory = calloc(1, 4096);
    for (int round = 0; round < 2; round++) {
        struct ibv_qp_attr a = { .qp_state = IBV_QPS_RESET };
        ibv_modify_qp(qp, &a, IBV_QP_STATE);
        ibv_create_cq(context, 0, NULL, NULL, 0);
        make(pd, cq, 99);
        ibv_reg_mr(pd, memory, 4096, IBV_ACCESS_REMOTE_WRITE);
        ibv_reg_mr(pd, NULL, 4096, IBV_ACCESS_LOCAL_WRITE);
        ibv_create_ah(pd, &port);
        ibv_create_ah(pd, &index);
        ibv_create_ah(pd, &nowhere);
        ibv_post_send(qp, &wr, &bad);
        a.qp_state = IBV_QPS_RTS;
        ibv_modify_qp(qp, &a, IBV_QP_STATE);
        a.qp_state = IBV_QPS_INIT;
        ibv_modify_qp(qp, &a, IBV_QP_STATE);
        a.port_num = 1;
        ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
        a.qp_state = IBV_QPS_RTR;
        a.path_mtu = 9;
        a.ah_attr = far;
        ibv_modify_qp(qp, &a, to_rtr);
        a.path_mtu = IBV_MTU_256;
        if (ibv_modify_qp(qp, &a, to_rtr))
            return 1;
        a.qp_state = IBV_QPS_RTS;
        a.rnr_retry = 8;
        ibv_modify_qp(qp, &a, to_rts);
        ibv_dealloc_pd(pd);
    }
    return 0;
}
"#;

/// What is told of them, in this order.
const REASONS: [(&str, &str); 13] = [
    ("ibv_create_cq fails with EINVAL: ", "cqe = 0: expected 1 to "),
    ("ibv_create_qp fails with EINVAL: ", "qp_type 99 does not exist: expected RC, UC, UD or XRC"),
    ("ibv_reg_mr fails with EINVAL: ", "remote write and atomic access need local write access"),
    ("ibv_reg_mr fails with EFAULT: ", "are not all there to be written"),
    ("ibv_create_ah fails with EINVAL: ", "port 2: the device has port 1"),
    ("ibv_create_ah fails with EINVAL: ", "GID index 9: irnic0 has GIDs at 0"),
    ("ibv_create_ah fails with EINVAL: ", "the destination's GID is ::"),
    ("ibv_post_send fails with EINVAL: ", "work requests cannot be posted in state Reset"),
    ("ibv_modify_qp fails with EINVAL: ", "a QP cannot go from Reset to Rts"),
    ("ibv_modify_qp fails with EINVAL: ", "Reset to Init needs access flags"),
    ("ibv_modify_qp fails with EINVAL: ", "path_mtu 9: expected 1 (256 bytes) to 5 (4096 bytes)"),
    ("ibv_modify_qp fails with EINVAL: ", "RNR retry count = 8: expected"),
    ("ibv_dealloc_pd fails with EBUSY: ", "other objects still name the protection domain"),
];

#[test]
fn every_refusal_has_its_reason_once() {
    let Some(()) = needs(&["cc"]) else { return };
    if !Path::new("/usr/include/infiniband/verbs.h").exists() {
        crate::support::skipped("libibverbs-dev is not installed");
        return;
    }
    let folder = Folder::new();
    folder.write("app.c", REFUSED);
    let built =
        Command::new("cc").args(["-o", "app", "app.c", "-libverbs"]).current_dir(folder.path()).status().unwrap();
    assert!(built.success());
    let run = |options: &[&str]| {
        let output =
            irnic(&folder).args(["run", "--address", "127.0.0.1"]).args(options).arg("./app").output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        output
    };
    let messages = messages(&run(&["--explain"]));
    for (message, (call, why)) in messages.iter().zip(REASONS) {
        assert!(message.starts_with(&format!("irnic: {call}")) && message.contains(why), "{message}\n{why}");
    }
    assert_eq!(messages.len(), REASONS.len(), "{messages:#?}");
    assert_eq!(text(&run(&[]).stderr), "");
    // As any other setting.
    folder.write("irnic.toml", "explain = true\n");
    assert_eq!(self::messages(&run(&[])).len(), messages.len());
}

/// What the ends of ibv_rc_pingpong say, server and client, each with a transport. One fails; the other waits for it.
fn both_ends(folder: &Folder, transports: [&str; 2], fails: usize) -> [Vec<String>; 2] {
    let port = free_port();
    let start = |transport: &str, host: &[&str]| {
        let mut command = irnic(folder);
        command.args(["run", "--address", "127.0.0.1", "--explain", "--transport", transport]);
        command.args(["--", "ibv_rc_pingpong", "-g", "0", "-n", "4", "-p", &port]).args(host);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("irnic starts")
    };
    let server = start(transports[0], &[]);
    await_listener(&port);
    let mut ends = [server, start(transports[1], &["127.0.0.1"])];
    ends[fails].wait().expect("an end");
    ends[1 - fails].kill().expect("a process");
    ends.map(|end| messages(&end.wait_with_output().expect("an end")))
}

#[test]
fn ends_of_different_transports_say_so() {
    let Some(()) = needs(&["ibv_rc_pingpong"]) else { return };
    let folder = Folder::new();
    // An end with IRN takes plain requests; what it sends itself is for IRN only.
    for (transports, irn) in [(["irn", "roce"], 0), (["roce", "irn"], 1)] {
        let said = both_ends(&folder, transports, irn);
        let line = |end: usize, part: &str| said[end].iter().any(|line| line.contains(part));
        assert!(line(irn, "IBV_WC_RETRY_EXC_ERR (12)") && line(irn, "here it is irn"), "{said:?}");
        let dropped = "sender's wire format is irn, and roce here; give both ends the same transport";
        assert!(line(1 - irn, dropped), "{said:?}");
    }
}

#[test]
fn a_device_that_a_program_asks_for_is_told_with_those_that_there_are() {
    let Some(()) = needs(&["ibv_devinfo"]) else { return };
    let folder = Folder::new();
    let run = |options: &[&str], name: &str| {
        let mut command = irnic(&folder);
        command.args(["run", "--address", "127.0.0.1"]).args(options).args(["--", "ibv_devinfo", "-d", name]);
        command.output().expect("irnic runs")
    };
    let asked = |output: &Output| -> Vec<String> {
        messages(output).into_iter().filter(|line| line.contains("asks for device")).collect()
    };
    let said = asked(&run(&["--explain"], "mlx5_0"));
    let [line] = &said[..] else { panic!("{said:?}") };
    assert!(line.contains("asks for device mlx5_0 (its arguments), and there is irnic0"), "{line}");
    assert!(line.contains("[[device]] name = \"mlx5_0\""), "{line}");
    for (options, name) in [(&[][..], "mlx5_0"), (&["--explain"], "irnic0")] {
        assert!(asked(&run(options, name)).is_empty(), "{name}");
    }
    // The recipe of docs/ci.md.
    folder.write("irnic.toml", "[[device]]\nname = \"mlx5_0\"\n");
    let output = run(&["--explain"], "mlx5_0");
    assert!(output.status.success() && text(&output.stdout).contains("mlx5_0"), "{}", text(&output.stderr));
    assert!(asked(&output).is_empty(), "{}", text(&output.stderr));
}
