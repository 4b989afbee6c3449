//! `rdma`: a replacement of iproute2's program for irnic's devices.
//!
//! The original asks the kernel by netlink, which cannot be redirected. `irnic run --sysfs` puts this one, a link to
//! this program, first in PATH. It answers `rdma link` and `rdma dev` as iproute2 does and passes everything else to
//! the next `rdma` in PATH. (iproute2: rdma/rdma.c, link.c, dev.c, lib/json_writer.c.)

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use irnic_verbs::config::{Config, Variables};
use irnic_verbs::device::{self, DeviceInfo, device_attr};

use irnic_report::output::print;

/// The program name that selects this command.
pub const NAME: &str = "rdma";

const LINK_HELP: &str = "Usage: rdma link show [DEV/PORT_INDEX]\n";
const DEV_HELP: &str = "Usage: rdma dev show [DEV]\n";
const HELP: &str = "\
Usage: rdma [ OPTIONS ] OBJECT { COMMAND | help }
where  OBJECT := { dev | link | help }
       OPTIONS := { -V[ersion] | -d[etails] | -j[son] | -p[retty] }
";

/// Capabilities of a device, by the bit in device_cap_flags.
const CAPABILITIES: [(u32, &str); 30] = [
    (0, "RESIZE_MAX_WR"),
    (1, "BAD_PKEY_CNTR"),
    (2, "BAD_QKEY_CNTR"),
    (3, "RAW_MULTI"),
    (4, "AUTO_PATH_MIG"),
    (5, "CHANGE_PHY_PORT"),
    (6, "UD_AV_PORT_ENFORCE_PORT_ENFORCE"),
    (7, "CURR_QP_STATE_MOD"),
    (8, "SHUTDOWN_PORT"),
    (9, "INIT_TYPE"),
    (10, "PORT_ACTIVE_EVENT"),
    (11, "SYS_IMAGE_GUID"),
    (12, "RC_RNR_NAK_GEN"),
    (13, "SRQ_RESIZE"),
    (14, "N_NOTIFY_CQ"),
    (15, "LOCAL_DMA_LKEY"),
    (17, "MEM_WINDOW"),
    (18, "UD_IP_CSUM"),
    (19, "UD_TSO"),
    (20, "XRC"),
    (21, "MEM_MGT_EXTENSIONS"),
    (22, "BLOCK_MULTICAST_LOOPBACK"),
    (23, "MEM_WINDOW_TYPE_2A"),
    (24, "MEM_WINDOW_TYPE_2B"),
    (25, "RC_IP_CSUM"),
    (26, "RAW_IP_CSUM"),
    (27, "CROSS_CHANNEL"),
    (29, "MANAGED_FLOW_STEERING"),
    (30, "SIGNATURE_HANDOVER"),
    (31, "ON_DEMAND_PAGING"),
];

/// Options that change the output.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct Style {
    json: bool,
    pretty: bool,
    details: bool,
}

/// The request of a command line.
#[derive(Debug, PartialEq, Eq)]
enum Request<'a> {
    /// Ports of all devices, or of one; all ports, or one.
    Links(Option<(&'a str, Option<u32>)>),
    /// All devices, or one.
    Devices(Option<&'a str>),
    /// This text.
    Help(&'static str),
    /// Not supported here.
    Other,
}

/// A value in a line or object of the output.
enum Field {
    Number(u64),
    Text(String),
    List(Vec<&'static str>),
}

/// Key, value, and format as text: `{}` stands for the value; an empty format prints nothing.
type Fields = Vec<(&'static str, Field, &'static str)>;

/// Returns whether `word` is `name` or a prefix of it.
fn abbreviates(word: &str, name: &str) -> bool {
    !word.is_empty() && name.starts_with(word)
}

/// Removes the options from a command line; `None` if there is an unsupported one.
fn options<'a>(arguments: &[&'a str]) -> Option<(Style, Vec<&'a str>)> {
    let (mut style, mut rest) = (Style::default(), Vec::new());
    let mut arguments = arguments.iter();
    while let Some(word) = arguments.next() {
        if *word == "--" {
            rest.extend(arguments);
            break;
        }
        let flags: Vec<char> = match word.strip_prefix("--") {
            Some("json") => vec!['j'],
            Some("pretty") => vec!['p'],
            Some("details") => vec!['d'],
            Some(_) => return None,
            None => match word.strip_prefix('-') {
                Some(letters) if !letters.is_empty() => letters.chars().collect(),
                _ => {
                    rest.push(*word);
                    continue;
                }
            },
        };
        for flag in flags {
            match flag {
                'j' => style.json = true,
                'p' => style.pretty = true,
                'd' => style.details = true,
                _ => return None,
            }
        }
    }
    Some((style, rest))
}

/// Parses the arguments after the options.
fn request<'a>(arguments: &[&'a str]) -> Request<'a> {
    let Some((object, arguments)) = arguments.split_first() else { return Request::Help(HELP) };
    let (link, dev) = (abbreviates(object, "link"), abbreviates(object, "dev"));
    if !link && !dev {
        return if abbreviates(object, "help") { Request::Help(HELP) } else { Request::Other };
    }
    let name = match arguments {
        [] => None,
        [verb, rest @ ..] if ["show", "list"].iter().any(|name| abbreviates(verb, name)) => match rest {
            [] => None,
            [name] => Some(*name),
            _ => return Request::Other,
        },
        [verb] if abbreviates(verb, "help") => return Request::Help(if link { LINK_HELP } else { DEV_HELP }),
        _ => return Request::Other,
    };
    match name {
        _ if dev => Request::Devices(name),
        None => Request::Links(None),
        Some(name) => match name.split_once('/') {
            None | Some((_, "")) => Request::Links(Some((name.trim_end_matches('/'), None))),
            Some((name, port)) => port.parse().map_or(Request::Other, |port| Request::Links(Some((name, Some(port))))),
        },
    }
}

fn guid(guid: u64) -> String {
    format!("{:04x}:{:04x}:{:04x}:{:04x}", guid >> 48, guid >> 32 & 0xffff, guid >> 16 & 0xffff, guid & 0xffff)
}

/// Returns the output of `rdma link` for a device's port.
fn link(index: usize, info: &DeviceInfo, style: Style) -> Fields {
    let text = |text: &str| Field::Text(text.to_owned());
    let (state, physical) = if info.up { ("ACTIVE", "LINK_UP") } else { ("DOWN", "DISABLED") };
    vec![
        ("ifindex", Field::Number(index as u64), ""),
        ("ifname", text(&info.name), "link {}/"),
        ("port", Field::Number(1), "{} "),
        ("state", text(state), "state {} "),
        ("physical_state", text(physical), "physical_state {} "),
        ("netdev", text(&info.interface.name), "netdev {} "),
        (
            "netdev_index",
            Field::Number(info.interface.index.into()),
            if style.details { "netdev_index {} " } else { "" },
        ),
    ]
}

/// Returns the output of `rdma dev` for a device.
fn dev(index: usize, info: &DeviceInfo, style: Style) -> Fields {
    let attr = device_attr(info);
    let firmware: String =
        attr.fw_ver.iter().take_while(|c| **c != 0).map(|c| char::from(c.to_ne_bytes()[0])).collect();
    let mut fields = vec![
        ("ifindex", Field::Number(index as u64), "{}: "),
        ("ifname", Field::Text(info.name.clone()), "{}: "),
        ("node_type", Field::Text("ca".into()), "node_type {} "),
        ("protocol", Field::Text("roce".into()), "protocol {} "),
        ("fw", Field::Text(firmware), "fw {} "),
        ("node_guid", Field::Text(guid(info.guid)), "node_guid {} "),
        ("sys_image_guid", Field::Text(guid(info.guid)), "sys_image_guid {} "),
    ];
    if style.details {
        let has = |bit: u32| attr.device_cap_flags >> bit & 1 != 0;
        let all = CAPABILITIES.iter().filter(|(bit, _)| has(*bit)).map(|(_, name)| *name);
        fields.push(("caps", Field::List(all.collect()), "\n    caps: <{}>"));
    }
    fields
}

fn text(all: &[Fields]) -> String {
    let mut out = String::new();
    for fields in all {
        for (_, field, format) in fields {
            let value = match field {
                Field::Number(number) => number.to_string(),
                Field::Text(text) => text.clone(),
                Field::List(names) => names.join(", "),
            };
            out += &format.replace("{}", &value);
        }
        out.push('\n');
    }
    out
}

/// Formats JSON with the layout of iproute2's writer.
fn json(all: &[Fields], pretty: bool) -> String {
    let (open, close, next) = if pretty { ("[ ", " ]", "\n        ") } else { ("[", "]", "") };
    let objects = all.iter().map(|fields| {
        let mut object = String::from("{");
        for (index, (key, field, _)) in fields.iter().enumerate() {
            let value = match field {
                Field::Number(number) => number.to_string(),
                Field::Text(text) => serde_json::Value::from(text.as_str()).to_string(),
                Field::List(names) => {
                    let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
                    format!("{open}{}{close}", quoted.join(","))
                }
            };
            let (comma, colon) = (if index > 0 { "," } else { "" }, if pretty { ": " } else { ":" });
            let _ = write!(object, "{comma}{next}\"{key}\"{colon}{value}");
        }
        object + if pretty { "\n    }" } else { "}" }
    });
    format!("{open}{}{close}\n", objects.collect::<Vec<_>>().join(","))
}

/// Returns the devices of the configuration, as libibverbs would list them.
fn infos() -> Result<Vec<DeviceInfo>, String> {
    let config = Config::load(&Variables::from_environment().map_err(|e| e.to_string())?).map_err(|e| e.to_string())?;
    device::infos(&config)
}

/// Answers a request; `None` if it names a device that is not irnic's.
fn answer(request: &Request<'_>, infos: &[DeviceInfo], style: Style) -> Option<String> {
    let chosen = |name: Option<&str>| {
        let all = infos.iter().enumerate().filter(move |(_, info)| name.is_none_or(|name| info.name == name));
        all.collect::<Vec<_>>()
    };
    let all: Vec<Fields> = match *request {
        Request::Help(text) => return Some(text.into()),
        Request::Other | Request::Links(Some((_, Some(0 | 2..)))) => return None,
        Request::Links(which) => chosen(which.map(|(name, _)| name)).iter().map(|(i, d)| link(*i, d, style)).collect(),
        Request::Devices(name) => chosen(name).iter().map(|(i, d)| dev(*i, d, style)).collect(),
    };
    let named = !matches!(request, Request::Links(None) | Request::Devices(None));
    (!all.is_empty() || !named).then(|| if style.json { json(&all, style.pretty) } else { text(&all) })
}

/// Executes the next `rdma` in PATH, if there is one. Only those after this one are considered: another irnic's may be
/// there as well, and must not pass the request back.
fn pass_on(arguments: &[OsString]) -> ExitCode {
    let own = std::env::current_exe().and_then(|path| path.canonicalize()).ok();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places: Vec<PathBuf> = std::env::split_paths(&path).map(|place| place.join(NAME)).collect();
    let is_own = |place: &PathBuf| own.is_some() && place.canonicalize().ok() == own;
    let after = places.iter().rposition(is_own).map_or(0, |at| at + 1);
    if let Some(next) = places[after..].iter().find(|place| place.is_file()) {
        let error = Command::new(next).args(arguments).exec();
        eprintln!("irnic: {}: {error}", next.display());
    } else {
        let command_line = arguments.join(OsStr::new(" "));
        eprintln!(
            "irnic: rdma {}: only link and dev of irnic's devices are known here, and there is no other rdma in PATH",
            command_line.display()
        );
    }
    ExitCode::FAILURE
}

/// Returns whether the program was started as `rdma`.
pub fn is_called(program: &OsStr) -> bool {
    Path::new(program).file_name().is_some_and(|name| name.as_bytes() == NAME.as_bytes())
}

/// Runs `rdma` with these arguments.
pub fn main(arguments: &[OsString]) -> ExitCode {
    let utf8: Option<Vec<&str>> = arguments.iter().map(|word| word.to_str()).collect();
    let Some((style, rest)) = utf8.as_deref().and_then(options) else { return pass_on(arguments) };
    let request = request(&rest);
    let infos = match infos() {
        Ok(infos) => infos,
        Err(e) => {
            eprintln!("irnic: {e}");
            return ExitCode::FAILURE;
        }
    };
    match answer(&request, &infos, style) {
        Some(out) => {
            print(&out);
            ExitCode::SUCCESS
        }
        None => pass_on(arguments),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_stand_anywhere_and_together() {
        let style = |json, pretty, details| Style { json, pretty, details };
        for (arguments, found, rest) in [
            (&["-j", "link"][..], style(true, false, false), &["link"][..]),
            (&["link", "show", "-jp"], style(true, true, false), &["link", "show"]),
            (&["--details", "dev", "--json", "--pretty"], style(true, true, true), &["dev"]),
            (&["-d", "--", "-j"], style(false, false, true), &["-j"]),
        ] {
            assert_eq!(options(arguments), Some((found, rest.to_vec())), "{arguments:?}");
        }
        for arguments in [["-V"], ["--version"], ["-b"], ["-jx"], ["-r"]] {
            assert_eq!(options(&arguments), None, "{arguments:?}");
        }
    }

    #[test]
    fn objects_and_commands_may_be_abbreviated() {
        for (arguments, wanted) in [
            (&[][..], Request::Help(HELP)),
            (&["help"], Request::Help(HELP)),
            (&["link"], Request::Links(None)),
            (&["l", "s"], Request::Links(None)),
            (&["link", "list"], Request::Links(None)),
            (&["link", "show", "irnic0"], Request::Links(Some(("irnic0", None)))),
            (&["link", "show", "irnic0/"], Request::Links(Some(("irnic0", None)))),
            (&["link", "show", "irnic0/1"], Request::Links(Some(("irnic0", Some(1))))),
            (&["link", "show", "irnic0/-"], Request::Other),
            (&["link", "help"], Request::Help(LINK_HELP)),
            (&["dev"], Request::Devices(None)),
            (&["d", "sh", "irnic0"], Request::Devices(Some("irnic0"))),
            (&["link", "add", "rxe0", "type", "rxe", "netdev", "eth0"], Request::Other),
            (&["link", "irnic0"], Request::Other),
            (&["dev", "set", "irnic0", "name", "x"], Request::Other),
            (&["statistic"], Request::Other),
        ] {
            assert_eq!(request(arguments), wanted, "{arguments:?}");
        }
    }

    #[test]
    fn json_is_laid_out_as_iproute2_does() {
        let all = || -> Vec<Fields> {
            let caps = Field::List(vec!["A", "B"]);
            vec![vec![("n", Field::Number(1), ""), ("t", Field::Text("x\"".into()), ""), ("caps", caps, "")], vec![]]
        };
        assert_eq!(json(&all(), false), "[{\"n\":1,\"t\":\"x\\\"\",\"caps\":[\"A\",\"B\"]},{}]\n");
        let object = "{\n        \"n\": 1,\n        \"t\": \"x\\\"\",\n        \"caps\": [ \"A\",\"B\" ]\n    }";
        assert_eq!(json(&all()[..1], true), format!("[ {object} ]\n"));
        assert_eq!(json(&[], false), "[]\n");
    }
}
