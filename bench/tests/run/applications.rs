//! `irnic run` as a user runs it: real applications over the shared object that was built with the program.

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{Folder, irnic, needs, text};

/// A value that each option refuses, and what would have done.
const BAD: [(&str, &str, &str); 12] = [
    ("--transport", "tcp", "choose roce, irn"),
    ("--transport", "irn,cap=0", "1 to 65536"),
    ("--impair", "lose 1%", "expected loss"),
    ("--port", "tcp", "expected auto, shm, udp"),
    ("--pcap", "/nonexistent/x.pcapng", "directory that exists"),
    ("--stats", "/nonexistent/x.json", "directory that exists"),
    ("--device", "a/b", "expected 1 to 40 letters"),
    ("--interface", "nosuch0", "there is no such interface; expected"),
    ("--address", "192.0.2.300", "expected IPv4 or IPv6"),
    ("--mtu", "1500", "expected 256, 512"),
    ("--rate", "fast", "such as 40G"),
    ("--seed", "x", "expected a number"),
];

#[test]
fn a_bad_value_is_told_in_one_line_before_anything_starts() {
    let folder = Folder::new();
    for (option, value, part) in BAD {
        let output = irnic(&folder)
            .args(["run", &format!("{option}={value}"), "--", "sh", "-c", "echo started"])
            .output()
            .unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{option}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(error.starts_with(&format!("irnic: {option}: ")) && error.contains(part), "{error}");
        assert!(error.contains(&format!("\"{value}\"")), "{error}");
        assert!(output.stdout.is_empty(), "{option}");
    }
}

#[test]
fn variables_and_files_are_checked_like_options() {
    let folder = Folder::new();
    let output = irnic(&folder).env("IRNIC_MTU", "1").args(["run", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).starts_with("irnic: IRNIC_MTU: mtu \"1\": expected 256"), "{}", text(&output.stderr));
    folder.write("irnic.toml", "\ntransprot = 'irn'\n");
    let output = irnic(&folder).args(["run", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error = text(&output.stderr);
    assert!(error.contains("irnic.toml:2: there is no key \"transprot\"; did you mean \"transport\"?"), "{error}");
    let output = irnic(&folder).args(["run", "--config", "none.toml", "true"]).output().unwrap();
    assert_eq!(text(&output.stderr), "irnic: --config: none.toml: No such file or directory (os error 2)\n");
}

#[test]
fn the_exit_status_is_the_commands_or_what_shells_have_for_those_that_do_not_start() {
    let folder = Folder::new();
    let status = |args: &[&str]| {
        let output = irnic(&folder).arg("run").args(args).output().unwrap();
        (output.status.code().unwrap(), text(&output.stderr))
    };
    assert_eq!(status(&["--", "sh", "-c", "exit 7"]), (7, String::new()));
    assert_eq!(status(&["sh", "-c", "exit 8"]), (8, String::new()));
    let (code, error) = status(&["--", "nosuchcommand"]);
    assert!(code == 127 && error.starts_with("irnic: nosuchcommand: "), "{code} {error}");
    folder.write("plain", "no program");
    let (code, error) = status(&["--", "./plain"]);
    assert!(code == 126 && error.starts_with("irnic: ./plain: "), "{code} {error}");
    let (code, error) = status(&["--no-such-option", "--", "true"]);
    assert!(code == 2 && error.lines().count() == 1, "{code} {error}");
    assert_eq!(status(&[]).0, 2);
}

#[test]
fn the_application_gets_options_as_variables_and_keeps_its_library_path() {
    let folder = Folder::new();
    folder.write("irnic.toml", "mtu = 1024");
    let script = "echo \"$LD_LIBRARY_PATH|$IRNIC_TRANSPORT|$IRNIC_SEED|$IRNIC_CONFIG|$IRNIC_PCAP|$IRNIC_ADDRESSES\"";
    let output = irnic(&folder)
        .env("LD_LIBRARY_PATH", "/kept")
        .env("IRNIC_TRANSPORT", "roce")
        .args(["run", "--transport", "irn", "--pcap", "a-%p.pcapng", "--address", "127.0.0.1,127.0.0.2"])
        .args(["--", "sh", "-c", script])
        .output()
        .unwrap();
    let line = text(&output.stdout);
    let parts: Vec<&str> = line.trim().split('|').collect();
    let (ours, kept) = parts[0].split_once(':').expect("two directories");
    assert!(std::path::Path::new(ours).join("libibverbs.so.1").exists() && kept == "/kept", "{line}");
    assert_eq!(parts[1..3], ["irn", ""]);
    let here = folder.path().canonicalize().unwrap();
    assert_eq!(parts[3], here.join("irnic.toml").to_str().unwrap());
    assert_eq!(parts[4], here.join("a-%p.pcapng").to_str().unwrap());
    assert_eq!(parts[5], "127.0.0.1,127.0.0.2");
}

#[test]
fn options_win_over_variables_and_variables_over_the_file() {
    let Some(()) = needs(&["ibv_devinfo"]) else { return };
    let folder = Folder::new();
    folder.write("irnic.toml", "mtu = 1024\n[[device]]\nname = 'filed'\naddresses = '127.0.0.1'\n");
    let mtu = |option: &[&str], variable: &str| {
        let output =
            irnic(&folder).env("IRNIC_MTU", variable).arg("run").args(option).arg("ibv_devinfo").output().unwrap();
        let out = text(&output.stdout);
        assert!(out.contains("filed"), "{out}{}", text(&output.stderr));
        let line = out.lines().find(|l| l.contains("active_mtu")).unwrap_or_default().to_owned();
        line.split_whitespace().nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(mtu(&[], ""), "1024");
    assert_eq!(mtu(&[], "512"), "512");
    assert_eq!(mtu(&["--mtu", "2048"], "512"), "2048");
}

#[test]
fn the_library_says_what_is_wrong_and_shows_no_devices() {
    let Some(()) = needs(&["ibv_devices"]) else { return };
    let folder = Folder::new();
    // Set after `irnic run` has checked.
    let output = irnic(&folder).args(["run", "--", "env", "IRNIC_PORT=tcp", "ibv_devices"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stderr);
    assert!(
        said.starts_with("irnic: IRNIC_PORT: port \"tcp\": expected auto, ") && said.lines().count() == 1,
        "{said}"
    );
    assert!(!text(&output.stdout).contains("irnic0"));
}

#[test]
fn fifty_launches_at_once_without_a_place_for_links_all_see_the_device() {
    let Some(()) = needs(&["ibv_devices"]) else { return };
    let folder = Folder::new();
    // Without a home directory all of them go to the temporary directory.
    let home = folder.path().join("lib");
    std::fs::create_dir(&home).unwrap();
    let library = crate::support::library();
    std::fs::hard_link(&library, home.join("libirnic_verbs.so"))
        .or_else(|_| std::fs::copy(&library, home.join("libirnic_verbs.so")).map(drop))
        .unwrap();
    std::fs::create_dir(folder.path().join("tmp")).unwrap();
    let children: Vec<_> = (0..50)
        .map(|_| {
            irnic(&folder)
                .env("TMPDIR", folder.path().join("tmp"))
                .env_remove("XDG_RUNTIME_DIR")
                .env_remove("XDG_CACHE_HOME")
                .env_remove("HOME")
                .env("IRNIC_LIBRARY", home.join("libirnic_verbs.so"))
                .args(["run", "ibv_devices"])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let seen = AtomicUsize::new(0);
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(text(&output.stdout).contains("irnic0"), "{}{}", text(&output.stdout), text(&output.stderr));
        seen.fetch_add(1, Ordering::Relaxed);
    }
    assert_eq!(seen.into_inner(), 50);
    // What stays is the user's own and holds nothing but links.
    let own = std::fs::read_dir(folder.path().join("tmp")).unwrap().next().unwrap().unwrap().path();
    assert_eq!(own.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    for entry in std::fs::read_dir(&own).unwrap() {
        for link in std::fs::read_dir(entry.unwrap().path()).unwrap() {
            assert!(link.unwrap().file_type().unwrap().is_symlink());
        }
    }
}

#[test]
fn a_directory_for_links_that_somebody_else_could_have_filled_is_refused() {
    let folder = Folder::new();
    let home = folder.path().join("lib");
    std::fs::create_dir(&home).unwrap();
    std::fs::copy(crate::support::library(), home.join("libirnic_verbs.so")).unwrap();
    let links = home.join("irnic-links");
    std::fs::create_dir(&links).unwrap();
    std::fs::set_permissions(&links, PermissionsExt::from_mode(0o777)).unwrap();
    std::fs::create_dir(folder.path().join("tmp")).unwrap();
    let temporary = folder.path().join("tmp");
    // One that is not absolute would mean another directory after a change of directories.
    for (given, used) in
        [(&*temporary, &*temporary), ("".as_ref(), "/tmp/irnic-".as_ref()), ("tmp".as_ref(), "/tmp/irnic-".as_ref())]
    {
        let output = irnic(&folder)
            .env("TMPDIR", given)
            .env_remove("XDG_RUNTIME_DIR")
            .env_remove("XDG_CACHE_HOME")
            .env_remove("HOME")
            .env("IRNIC_LIBRARY", home.join("libirnic_verbs.so"))
            .args(["run", "sh", "-c", "echo $LD_LIBRARY_PATH"])
            .output()
            .unwrap();
        let path = text(&output.stdout);
        assert!(path.starts_with(used.to_str().unwrap()), "{path}{}", text(&output.stderr));
        assert_eq!(std::fs::read_dir(&links).unwrap().count(), 0);
    }
}

#[test]
fn a_library_that_another_user_could_have_written_is_not_loaded() {
    // Where the library is, from the program, and the modes of its directory and of itself.
    for (place, of_directory, of_file) in [
        ("", 0o777, 0o644),
        ("", 0o1777, 0o644),
        ("deps", 0o777, 0o644),
        ("deps", 0o755, 0o666),
        ("../lib/irnic", 0o775, 0o644),
        ("../lib", 0o755, 0o646),
        ("../lib64/irnic", 0o757, 0o644),
    ] {
        let folder = Folder::new();
        let bin = folder.path().join("bin");
        let home = bin.join(place);
        for directory in [&bin, &home] {
            std::fs::create_dir_all(directory).unwrap();
        }
        let home = home.canonicalize().unwrap();
        std::fs::copy(env!("CARGO_BIN_EXE_irnic"), bin.join("irnic")).unwrap();
        for name in ["libirnic_verbs.so", "libirnic_sysfs.so"] {
            std::fs::copy(crate::support::library().with_file_name(name), home.join(name)).unwrap();
        }
        let chmod = |path: &std::path::Path, mode| {
            std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        };
        let loaded = || {
            let mut command = std::process::Command::new(bin.join("irnic"));
            command.env_remove("IRNIC_LIBRARY").env("HOME", folder.path()).env("XDG_RUNTIME_DIR", folder.path());
            command.env("IRNIC_INTERFACE", "lo").current_dir("/").stdin(Stdio::null());
            command.args(["run", "--sysfs", "sh", "-c", "readlink -f $(echo $LD_PRELOAD | tr : ' ')"]);
            let output = command.output().unwrap();
            (text(&output.stdout), text(&output.stderr))
        };
        for file in ["libirnic_verbs.so", "libirnic_sysfs.so"] {
            chmod(&home.join(file), 0o644);
        }
        chmod(&home, 0o755);
        let (out, err) = loaded();
        assert_eq!(out.matches(home.to_str().unwrap()).count(), 2, "{place}: {out}{err}");
        for file in ["libirnic_verbs.so", "libirnic_sysfs.so"] {
            chmod(&home.join(file), of_file);
        }
        chmod(&home, of_directory);
        let (out, err) = loaded();
        // The program's own copy stands in, where the build has one.
        assert!(!out.contains(home.to_str().unwrap()), "{place}: {out}{err}");
        assert!(!out.is_empty() || err.contains("can be written by others (mode "), "{place}: {out}{err}");
    }
}

/// A statically linked program for x86-64 whose exit status is 7.
#[cfg(target_arch = "x86_64")]
const STATIC: [u8; 132] = {
    let mut file = [0; 132];
    // exit(7): mov edi, 7; mov eax, 60; syscall.
    let parts: [(usize, &[u8]); 10] = [
        (0, b"\x7fELF\x02\x01\x01"),
        (16, &[2, 0, 62, 0, 1]),
        // Entry, program headers; lengths of the headers, and one program header.
        (24, &0x40_0078_u64.to_le_bytes()),
        (32, &[64]),
        (52, &[64, 0, 56, 0, 1]),
        // Loaded whole, readable and executable.
        (64, &[1, 0, 0, 0, 5]),
        (80, &0x40_0000_u64.to_le_bytes()),
        (96, &[132, 0, 0, 0, 0, 0, 0, 0, 132]),
        (112, &[0, 0x10]),
        (120, &[0xbf, 7, 0, 0, 0, 0xb8, 60, 0, 0, 0, 0x0f, 0x05]),
    ];
    let mut part = 0;
    while part < parts.len() {
        let (at, bytes) = parts[part];
        let mut i = 0;
        while i < bytes.len() {
            file[at + i] = bytes[i];
            i += 1;
        }
        part += 1;
    }
    file
};

#[test]
#[cfg(target_arch = "x86_64")]
fn a_program_that_loads_no_library_is_told_of_and_started() {
    let folder = Folder::new();
    let program = folder.path().join("static");
    std::fs::write(&program, STATIC).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", folder.path().display());
    for name in ["./static", "static"] {
        let output = irnic(&folder).env("PATH", &path).args(["run", "--", name]).output().unwrap();
        assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
        let said =
            format!("irnic: {name} does not run on irnic: it is linked statically, so the libibverbs in it stays");
        assert!(text(&output.stderr).starts_with(&said) && text(&output.stderr).lines().count() == 1);
    }
}

#[test]
fn what_is_wrong_with_an_address_is_told_as_it_is() {
    let Some(()) = needs(&["ibv_devinfo", "ip", "unshare"]) else { return };
    let folder = Folder::new();
    // An interface whose other end is down never finds out whether it has its address alone.
    let script = "ip link add v0 type veth peer name v1 && ip link set v0 up && ip addr add 2001:db8::7/64 dev v0 && exec \"$@\"";
    let irnic_in = |address: &str| {
        let mut command = std::process::Command::new("unshare");
        command.args(["-rn", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_irnic"), "run", "--address", address]);
        command.args(["--", "ibv_devinfo"]).current_dir(folder.path()).env("XDG_CONFIG_HOME", folder.path());
        text(&command.output().expect("unshare starts").stderr)
    };
    let said = irnic_in("2001:db8::7");
    if said.contains("not permitted") {
        crate::support::skipped("no network namespaces here");
        return;
    }
    assert!(said.contains("2001:db8::7") && said.contains("tentative") && !said.contains("not an address"), "{said}");
}

#[test]
fn two_users_of_one_address_are_told_that_they_do_not_reach_each_other() {
    let Some(()) = needs(&["ibv_rc_pingpong", "ibv_devinfo", "setpriv"]) else { return };
    let folder = Folder::new();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let as_other = |args: &[&str]| {
        let mut command = std::process::Command::new("setpriv");
        command
            .args(["--reuid", "65530", "--regid", "65530", "--clear-groups", env!("CARGO_BIN_EXE_irnic")])
            .args(args);
        command.current_dir(folder.path()).output().expect("setpriv starts")
    };
    if !as_other(&["config"]).status.success() {
        crate::support::skipped("only root becomes another user, who must reach the program");
        return;
    }
    let address = ["run", "--address", "127.0.0.77", "--"];
    let port = crate::support::free_port();
    let mut server = irnic(&folder);
    let server = server.args(address).args(["ibv_rc_pingpong", "-g", "0", "-p", &port]).stdout(Stdio::null());
    let mut server = server.spawn().unwrap();
    crate::support::await_listener(&port);
    let said = text(&as_other(&[&address[..], &["ibv_devinfo"]].concat()).stderr);
    let who = format!("process {} of user 0 has UDP port 4791 of 127.0.0.77", server.id());
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(said.contains(&who), "{said}");
    assert!(said.contains("neither other hosts nor other users' processes on this one"), "{said}");
}

#[test]
fn a_process_without_descriptors_is_told_so_and_not_that_its_address_is_wrong() {
    let Some(()) = needs(&["ibv_devinfo"]) else { return };
    let folder = Folder::new();
    let mut named = 0;
    for limit in 4..40 {
        let script = format!("ulimit -n {limit}; exec \"$0\" \"$@\"");
        let output = irnic(&folder)
            .args(["run", "--address", "127.0.0.1", "--", "sh", "-c", &script, "ibv_devinfo"])
            .output()
            .unwrap();
        let said = text(&output.stderr);
        assert!(!said.contains("address of this host"), "{limit}: {said}");
        named += usize::from(said.contains("no UDP socket can be opened at 127.0.0.1") && said.contains("ulimit -n"));
    }
    assert!(named > 0, "no limit met the socket");
}
