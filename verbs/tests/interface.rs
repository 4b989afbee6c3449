//! A device follows its network interface: down and up, its carrier, its MTU, its addresses, and its end.

mod kit;

use std::process::Command;

use irnic_testkit::skip::skipped;
use irnic_verbs::abi::consts::*;
use irnic_verbs::abi::structs::*;
use irnic_verbs::calls::*;
use kit::{Ctx, QpSpec, Recv, Send, Watchdog, connect_with, wait_for, zeroed};

/// Set where a test runs in a network namespace of its own.
const INSIDE: &str = "TESTS_INSIDE_NAMESPACE";

/// Runs a test again in a network namespace of its own. Returns whether this is there.
fn is_inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--net"]);
        command
    };
    match unshare().args(["ip", "link"]).output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            skipped(&format!("there are no namespaces: {}", String::from_utf8_lossy(&output.stderr).trim()));
            return false;
        }
        Err(e) => {
            skipped(&format!("no unshare: {e}"));
            return false;
        }
    }
    let program = std::env::current_exe().unwrap();
    let output = unshare().arg(program).args(["--exact", test, "--nocapture"]).env(INSIDE, "1").output().unwrap();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", said(&output.stdout), said(&output.stderr));
    false
}

/// Runs ip(8) and returns what it says.
#[track_caller]
fn ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The state of the port and its active MTU.
fn port(ctx: &Ctx) -> (u32, u32) {
    let mut attr: ibv_port_attr = zeroed();
    // SAFETY: open; may be written.
    assert_eq!(unsafe { ibv_query_port(ctx.0, 1, &raw mut attr) }, 0);
    (attr.state, attr.active_mtu)
}

/// The IPv4 addresses in the GID table, with their indices.
fn gids(ctx: &Ctx) -> Vec<(u32, [u8; 4])> {
    let mut table: [ibv_gid_entry; 16] = [zeroed(); 16];
    let size = size_of::<ibv_gid_entry>();
    // SAFETY: open; as many entries as are said.
    let n = unsafe { _ibv_query_gid_table(ctx.0, table.as_mut_ptr(), table.len(), 0, size) };
    // SAFETY: any bits are a GID.
    let address = |entry: &ibv_gid_entry| unsafe { *entry.gid.raw.last_chunk().unwrap() };
    table[..n as usize].iter().map(|entry| (entry.gid_index, address(entry))).collect()
}

#[track_caller]
fn no_event(ctx: &Ctx) {
    assert!(ctx.event_now().is_none());
}

#[test]
fn a_device_follows_its_interface() {
    if !is_inside("a_device_follows_its_interface") {
        return;
    }
    let _watchdog = Watchdog::start("a device on an interface that changes");
    for arguments in [
        "link set lo up",
        "link add eth0 type veth peer name eth1",
        "link set eth0 addrgenmode none",
        "link set eth1 up",
        "link set eth0 up",
        "addr add 10.0.0.1/24 dev eth0",
    ] {
        ip(arguments);
    }
    wait_for("the carrier", || ip("link show eth0").contains("state UP").then_some(()));
    // SAFETY: nobody reads the environment yet.
    unsafe {
        for (name, value) in [("IRNIC_DEVICE", "interface0"), ("IRNIC_INTERFACE", "eth0"), ("IRNIC_PORT", "udp")] {
            std::env::set_var(name, value);
        }
    }
    let ctx = Ctx::open();
    ctx.never_block();
    assert_eq!(port(&ctx), (IBV_PORT_ACTIVE, IBV_MTU_1024));

    // Down and up, itself or at the other end.
    for interface in ["eth0", "eth1"] {
        ip(&format!("link set {interface} down"));
        assert_eq!(ctx.event().0, IBV_EVENT_PORT_ERR);
        assert_eq!(port(&ctx).0, IBV_PORT_DOWN);
        ip(&format!("link set {interface} up"));
        assert_eq!(ctx.event().0, IBV_EVENT_PORT_ACTIVE);
        assert_eq!(port(&ctx).0, IBV_PORT_ACTIVE);
    }

    ip("link set eth0 mtu 5000");
    wait_for("the MTU", || (port(&ctx).1 == IBV_MTU_4096).then_some(()));
    no_event(&ctx);

    // A queue pair whose address is going to go, to a host that there is not.
    let (pd, cq) = (ctx.pd(), ctx.cq(16));
    let mr = pd.mr(64);
    let lost = pd.qp(&cq, QpSpec::rc());
    connect_with(&lost, &lost, |attr| attr.ah_attr.grh.dgid.raw = mapped([10, 0, 0, 9]));

    ip("addr add 10.0.1.1/24 dev eth0");
    assert_eq!(ctx.event().0, IBV_EVENT_GID_CHANGE);
    assert_eq!(gids(&ctx), [(0, [10, 0, 0, 1]), (1, [10, 0, 1, 1])]);
    ip("addr del 10.0.0.1/24 dev eth0");
    assert_eq!(ctx.event().0, IBV_EVENT_GID_CHANGE);
    assert_eq!(gids(&ctx), [(1, [10, 0, 1, 1])]);
    ip("addr add 10.0.2.1/24 dev eth0");
    assert_eq!(ctx.event().0, IBV_EVENT_GID_CHANGE);
    assert_eq!(gids(&ctx), [(0, [10, 0, 2, 1]), (1, [10, 0, 1, 1])]);

    // Other hosts and other processes reach the new address, whose bytes are written backwards there.
    wait_for("the UDP port", || {
        std::fs::read_to_string("/proc/net/udp").unwrap().contains("0101000A:12B7").then_some(())
    });
    let qp = pd.qp(&cq, QpSpec::rc());
    connect_with(&qp, &qp, |attr| {
        (attr.ah_attr.grh.sgid_index, attr.path_mtu) = (1, IBV_MTU_4096);
        attr.ah_attr.grh.dgid.raw = mapped([10, 0, 1, 1]);
    });
    assert_eq!(qp.recv(Recv::new(1).sge(mr.sge(0, 8))), 0);
    assert_eq!(qp.post(Send::message(2).sge(mr.sge(8, 8))), 0);
    let mut done = [cq.wait(), cq.wait()].map(|wc| (wc.wr_id, wc.status));
    done.sort_unstable();
    assert_eq!(done, [(1, IBV_WC_SUCCESS), (2, IBV_WC_SUCCESS)]);
    // What leaves from the old one is lost.
    assert_eq!(lost.post(Send::message(3).sge(mr.sge(8, 8))), 0);
    let wc = cq.wait();
    assert_eq!((wc.wr_id, wc.status), (3, IBV_WC_RETRY_EXC_ERR));
    drop((lost, qp));
    no_event(&ctx);

    ip("link del eth0");
    let mut events = Vec::new();
    while events.last() != Some(&IBV_EVENT_DEVICE_FATAL) {
        events.push(ctx.event().0);
    }
    assert!(events.contains(&IBV_EVENT_PORT_ERR) && events.contains(&IBV_EVENT_GID_CHANGE), "{events:?}");
    assert_eq!((port(&ctx).0, gids(&ctx)), (IBV_PORT_DOWN, vec![]));
}

/// The GID of an IPv4 address.
fn mapped(address: [u8; 4]) -> [u8; 16] {
    std::net::Ipv4Addr::from(address).to_ipv6_mapped().octets()
}
