//! The structures and constants are those of the headers that this machine has, as the C compiler sees them.
//!
//! A generated C program prints them; `CC` names another compiler than `cc`. Headers may be older than ours: what they
//! lack has to be in `NEWER`.

mod fields;
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::Command;

use fields::structures;
use support::skipped;

/// Structures without a name in C: a member of which structure they are.
const UNNAMED: [(&str, &str, &str); 12] = [
    ("ibv_gid_global", "union ibv_gid", "global"),
    ("ibv_odp_transport_caps", "struct ibv_odp_caps", "per_transport_caps"),
    ("ibv_wr_rdma", "struct ibv_send_wr", "wr.rdma"),
    ("ibv_wr_atomic", "struct ibv_send_wr", "wr.atomic"),
    ("ibv_wr_ud", "struct ibv_send_wr", "wr.ud"),
    ("ibv_wr_xrc", "struct ibv_send_wr", "qp_type.xrc"),
    ("ibv_wr_bind_mw", "struct ibv_send_wr", "bind_mw"),
    ("ibv_wr_tso", "struct ibv_send_wr", "tso"),
    ("ibv_send_wr_remote", "struct ibv_send_wr", "wr"),
    ("ibv_send_wr_xrc", "struct ibv_send_wr", "qp_type"),
    ("ibv_async_event_element", "struct ibv_async_event", "element"),
    ("ibv_gid", "union ibv_gid", ""),
];

/// Unions without a name or a place of their own in C; the structures around them are checked.
const WITHIN_OTHERS: [&str; 3] = ["ibv_wc_data", "ibv_send_wr_data", "ibv_send_wr_extra"];

/// Members whose name in C is another: keywords of Rust, and the first member of a union without a name.
const RENAMED: [(&str, &str, &str); 6] = [
    ("ibv_mw", "type_", "type"),
    ("verbs_context", "priv_", "priv"),
    ("ibv_wc_tm_info", "priv_", "priv"),
    ("ibv_wc", "data", "imm_data"),
    ("ibv_send_wr", "data", "imm_data"),
    ("ibv_send_wr", "extra", "bind_mw"),
];

/// What came after rdma-core 44: a structure, a member or a constant. A structure that got members got longer.
const NEWER: [&str; 31] = [
    "ibv_mr_init_attr",
    "ibv_port_attr.active_speed_ex",
    "ibv_qp_ex.wr_flush",
    "verbs_context.alloc_buf",
    "verbs_context.alloc_dmah",
    "verbs_context.dealloc_dmah",
    "verbs_context.dm_export_dmabuf_fd",
    "verbs_context.free_buf",
    "verbs_context.reg_mr_ex",
    "IBV_ACCESS_FLUSH_GLOBAL",
    "IBV_ACCESS_FLUSH_PERSISTENT",
    "IBV_DEVICE_CC_DMA_BOUNCE",
    "IBV_EVENT_DEVICE_SPEED_CHANGE",
    "IBV_FLUSH_GLOBAL",
    "IBV_FLUSH_MR",
    "IBV_FLUSH_PERSISTENT",
    "IBV_FLUSH_RANGE",
    "IBV_PORT_LINK_SPEED_XDR_SUP",
    "IBV_QP_EX_WITH_FLUSH",
    "IBV_QUERY_QP_DATA_IN_ORDER_ALIGNED_128_BYTES",
    "IBV_QUERY_QP_DATA_IN_ORDER_DEVICE_ONLY",
    "IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS",
    "IBV_QUERY_QP_DATA_IN_ORDER_WHOLE_MSG",
    "IBV_REG_MR_MASK_ADDR",
    "IBV_REG_MR_MASK_BUF",
    "IBV_REG_MR_MASK_DMAH",
    "IBV_REG_MR_MASK_FD",
    "IBV_REG_MR_MASK_FD_OFFSET",
    "IBV_REG_MR_MASK_IOVA",
    "IBV_WC_FLUSH",
    "IBV_WR_FLUSH",
];

/// One line of the program: a question to the compiler and the answer that Rust has.
struct Probe {
    /// `struct.member`, `struct` or the constant.
    name: String,
    expression: String,
    value: i128,
}

/// The headers' answers, or `None` after saying why there are none. Expressions that do not compile are left out.
fn header_values(probes: &[Probe]) -> Option<BTreeMap<String, i128>> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let source = dir.path().join("layout.c");
    let program = dir.path().join("layout");
    let cc = || {
        let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
        cc.env("LC_ALL", "C").arg("-w").arg(&source);
        cc
    };
    let write = |leave_out: &[usize]| {
        let mut text = String::from(
            "#include <stddef.h>\n#include <stdio.h>\n#include <infiniband/verbs.h>\n#include <infiniband/sa.h>\n\
             #include <rdma/ib_user_verbs.h>\n#include <rdma/ib_user_sa.h>\nint main(void) {\n",
        );
        let first = text.lines().count() + 1;
        for (i, probe) in probes.iter().enumerate() {
            if leave_out.contains(&i) {
                text.push('\n');
            } else {
                writeln!(text, "printf(\"{} %lld\\n\", (long long)({}));", probe.name, probe.expression)
                    .expect("memory");
            }
        }
        text.push_str("return 0;\n}\n");
        std::fs::write(&source, text).expect("room for the program");
        first
    };
    let first = write(&(0..probes.len()).collect::<Vec<_>>());
    match cc().arg("-fsyntax-only").output() {
        Err(e) => return skipped(&format!("the C compiler does not start: {e}")),
        Ok(o) if !o.status.success() => return skipped("libibverbs' headers are not installed"),
        Ok(_) => {}
    }
    write(&[]);
    let output = cc().arg("-fsyntax-only").arg("-fmax-errors=0").output().expect("it started before");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let unknown: Vec<usize> = errors
        .lines()
        .filter(|line| line.contains(": error:"))
        .map(|line| {
            let at = line.strip_prefix(&*source.to_string_lossy()).expect("an error in the program, not in a header");
            let number: usize = at.split(':').nth(1).and_then(|n| n.parse().ok()).expect("a line number");
            number - first
        })
        .collect();
    write(&unknown);
    let built = cc().arg("-o").arg(&program).output().expect("it started before");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let output = Command::new(&program).output().expect("the program starts");
    let text = String::from_utf8(output.stdout).expect("text");
    let answers = text.lines().map(|line| {
        let (name, value) = line.split_once(' ').expect("two words");
        (name.to_owned(), value.parse().expect("a number"))
    });
    Some(answers.collect())
}

/// Compares, and fails with all differences at once.
fn compare(probes: &[Probe]) {
    let Some(answers) = header_values(probes) else { return };
    let mut wrong = String::new();
    for probe in probes {
        match answers.get(&probe.name) {
            Some(&value) if value == probe.value => {}
            Some(&value) if value < probe.value && NEWER.iter().any(|n| n.split('.').next() == Some(&probe.name)) => {}
            Some(value) => {
                writeln!(wrong, "{}: {} here, {value} in the headers", probe.name, probe.value).expect("memory")
            }
            None if NEWER.iter().any(|n| *n == probe.name || probe.name.split('.').next() == Some(n)) => {}
            None => writeln!(wrong, "{}: the headers have none", probe.name).expect("memory"),
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
    eprintln!("{} of {} compared", answers.len(), probes.len());
}

#[test]
fn structures_have_the_layout_of_the_headers() {
    let mut probes = Vec::new();
    for structure in structures() {
        let name = structure.name;
        if WITHIN_OTHERS.contains(&name) {
            continue;
        }
        let (outer, prefix) = match UNNAMED.iter().find(|u| u.0 == name) {
            Some(&(_, outer, prefix)) => (outer.to_owned(), prefix),
            None => (format!("struct {name}"), ""),
        };
        let member = |field: &str| if prefix.is_empty() { field.to_owned() } else { format!("{prefix}.{field}") };
        let size =
            if prefix.is_empty() { format!("sizeof({outer})") } else { format!("sizeof((({outer} *)0)->{prefix})") };
        let start = if prefix.is_empty() { "0".to_owned() } else { format!("offsetof({outer}, {prefix})") };
        probes.push(Probe { name: name.to_owned(), expression: size, value: structure.size as i128 });
        for (field, offset) in structure.fields {
            let in_c = RENAMED.iter().find(|r| (r.0, r.1) == (name, field)).map_or(field, |r| r.2);
            let at = format!("offsetof({outer}, {})", member(in_c));
            // Programs find what they know of a verbs_context from its end.
            let (expression, value) = match name {
                "verbs_context" => (format!("sizeof({outer}) - {at}"), structure.size - offset),
                _ => (format!("{at} - {start}"), offset),
            };
            probes.push(Probe { name: format!("{name}.{field}"), expression, value: value as i128 });
        }
    }
    compare(&probes);
}

#[test]
fn constants_have_the_values_of_the_headers() {
    let probes: Vec<Probe> = include_str!("../../src/abi/consts.rs")
        .lines()
        .filter_map(|line| line.strip_prefix("pub const "))
        .map(|line| {
            let (name, rest) = line.split_once(':').expect("a type");
            let (_, value) = rest.split_once(" = ").expect("a value");
            Probe {
                name: name.to_owned(),
                expression: name.to_owned(),
                value: value.trim_end_matches(';').parse().expect("a number"),
            }
        })
        .collect();
    assert!(probes.len() > 300);
    compare(&probes);
}

#[test]
fn no_structure_or_field_is_left_out() {
    let listed: Vec<String> = structures()
        .iter()
        .flat_map(|s| [s.name.to_owned()].into_iter().chain(s.fields.iter().map(|f| format!("{}.{}", s.name, f.0))))
        .collect();
    let sources = [
        include_str!("../../src/abi/structs/context.rs"),
        include_str!("../../src/abi/structs/device.rs"),
        include_str!("../../src/abi/structs/objects.rs"),
        include_str!("../../src/abi/structs/work.rs"),
    ];
    let mut structure = "";
    let mut found = Vec::new();
    for line in sources.into_iter().flat_map(str::lines) {
        let word = |text: &'static str| text.split(|c: char| !c.is_alphanumeric() && c != '_').next().expect("a word");
        if let Some(name) = line.strip_prefix("pub struct ").or_else(|| line.strip_prefix("pub union ")) {
            structure = word(name);
            found.push(structure.to_owned());
        } else if let Some(field) = line.strip_prefix("    pub ") {
            found.push(format!("{structure}.{}", word(field)));
        }
    }
    let missing: Vec<&String> = found.iter().filter(|name| !listed.contains(name)).collect();
    assert!(found.len() > 500 && missing.is_empty(), "{missing:?}");
}
