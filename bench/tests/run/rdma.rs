//! The `rdma` that programs find under `irnic run --sysfs`.

use std::os::unix::fs::PermissionsExt;
use std::process::Output;

use crate::support::{Folder, irnic, needs, text};
use serde_json::{Value, json};

fn rdma(folder: &Folder, args: &[&str]) -> Output {
    let mut command = irnic(folder);
    command.args(["run", "--sysfs", "--address", "127.0.0.1", "--", "rdma"]).args(args);
    command.output().expect("irnic starts")
}

/// The number of the loopback interface.
fn lo() -> u64 {
    let text = std::fs::read_to_string("/sys/class/net/lo/ifindex").expect("a loopback interface");
    text.trim().parse().expect("a number")
}

#[test]
fn links_and_devices_are_printed_as_iproute2_does() {
    let folder = Folder::new();
    let port = "link irnic0/1 state ACTIVE physical_state LINK_UP netdev lo ";
    let guid = "0200:7fff:fe00:0001";
    let version = env!("CARGO_PKG_VERSION");
    let device = format!("0: irnic0: node_type ca protocol roce fw {version} node_guid {guid} sys_image_guid {guid} ");
    for (args, out) in [
        (&["link"][..], format!("{port}\n")),
        (&["link", "show"], format!("{port}\n")),
        (&["link", "show", "irnic0/1"], format!("{port}\n")),
        (&["-d", "link"], format!("{port}netdev_index {} \n", lo())),
        (&["dev"], format!("{device}\n")),
        (&["dev", "show", "irnic0"], format!("{device}\n")),
    ] {
        let output = rdma(&folder, args);
        assert!(output.status.success() && output.stderr.is_empty(), "{args:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), out, "{args:?}");
    }
    let details = text(&rdma(&folder, &["-d", "dev"]).stdout);
    assert!(
        details.starts_with(&format!("{device}\n    caps: <BAD_PKEY_CNTR, ")) && details.ends_with(">\n"),
        "{details}"
    );
}

#[test]
fn json_has_the_keys_that_pyverbs_reads() {
    let folder = Folder::new();
    let link = json!([{
        "ifindex": 0, "ifname": "irnic0", "port": 1, "state": "ACTIVE", "physical_state": "LINK_UP", "netdev": "lo",
        "netdev_index": lo(),
    }]);
    for args in [&["link", "show", "-j"][..], &["-jp", "link"], &["-j", "link", "show", "irnic0"]] {
        let out = text(&rdma(&folder, args).stdout);
        assert_eq!(serde_json::from_str::<Value>(&out).unwrap_or_else(|e| panic!("{e}: {out}")), link, "{args:?}");
    }
    let dev: Value = serde_json::from_slice(&rdma(&folder, &["-j", "-d", "dev"]).stdout).unwrap();
    assert_eq!((&dev[0]["ifname"], &dev[0]["protocol"]), (&json!("irnic0"), &json!("roce")));
    assert!(dev[0]["caps"].as_array().is_some_and(|caps| caps.contains(&json!("SRQ_RESIZE"))), "{dev}");
}

#[test]
fn what_is_not_known_goes_to_the_next_rdma_in_the_path() {
    let folder = Folder::new();
    let path = std::env::var("PATH").unwrap();
    std::fs::create_dir(folder.path().join("other")).unwrap();
    let other = folder.write("other/rdma", "#!/bin/sh\necho other \"$@\"\nexit 7\n");
    std::fs::set_permissions(&other, PermissionsExt::from_mode(0o755)).unwrap();
    let start = |path: &str, args: &[&str]| {
        let mut command = irnic(&folder);
        command.env("PATH", path).args(["run", "--sysfs", "--address", "127.0.0.1", "--", "rdma"]).args(args);
        command.output().expect("irnic starts")
    };
    let with = format!("{}:{path}", folder.path().join("other").display());
    for args in [&["statistic", "show"][..], &["-V"], &["link", "show", "mlx5_0/1"], &["link", "add", "rxe0"]] {
        let output = start(&with, args);
        let expected = format!("other {}\n", args.join(" "));
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(7), expected), "{}", text(&output.stderr));
    }
    assert!(start(&with, &["link"]).status.success());
    // Two launches, one in the other: the inner one's stands before the outer one's, and both before the other.
    let mut command = irnic(&folder);
    let twice = ["run", "--sysfs", "--", env!("CARGO_BIN_EXE_irnic"), "run", "--sysfs", "--", "rdma", "-V"];
    assert_eq!(text(&command.env("PATH", &with).args(twice).output().unwrap().stdout), "other -V\n");
    // There is none.
    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let output = start(empty.to_str().unwrap(), &["statistic"]);
    assert_eq!(output.status.code(), Some(1));
    let error = "irnic: rdma statistic: only link and dev of irnic's devices are known here, and there is no other rdma in PATH\n";
    assert_eq!(text(&output.stderr), error);
}

#[test]
fn without_files_there_is_no_such_program() {
    let folder = Folder::new();
    let Some(()) = needs(&["sh"]) else { return };
    let mut command = irnic(&folder);
    let output = command.args(["run", "--", "sh", "-c", "echo $PATH"]).output().unwrap();
    assert_eq!(text(&output.stdout).trim_end(), std::env::var("PATH").unwrap());
}
