//! Programs that connect by rdma_cm.

use std::path::Path;
use std::process::Command;

use crate::support;

/// A program whose ends find each other by rdma_cm. In its lines, `{port}` is a port, `{own}` an address of the end
/// that the line is for, and `{to}` the server's.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Connecting {
    pub server: &'static str,
    pub client: &'static str,
    /// How it is known that the server is there.
    pub ready: Ready,
    /// The port that it always has.
    pub port: Option<u16>,
    /// It connects twice and does not wait for the server in between.
    twice: bool,
}

/// What shows that a server is ready.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Ready {
    /// It listens.
    Listens,
    /// It has joined this multicast group.
    Joined(&'static str),
}

/// In the guest: has a byte for each time that the server has listened.
pub const LISTENS: &str = "/tmp/listens";
/// In the guest: lets its client connect a second time.
pub const GRANTED: &str = "/tmp/granted";

const fn connecting(server: &'static str, client: &'static str) -> Connecting {
    Connecting { server, client, ready: Ready::Listens, port: None, twice: false }
}

/// perftest's tools: a connection by which they tell each other their parameters, and then one that is measured.
const fn perftest(server: &'static str, client: &'static str) -> Connecting {
    Connecting { server, client, ready: Ready::Listens, port: None, twice: true }
}

pub const RPING: Connecting =
    connecting("rping -s -a {own} -p {port} -C 10 -S 1000 -v", "rping -c -a {to} -p {port} -C 10 -S 1000 -v");
pub const UCMATOSE: Connecting = connecting("ucmatose -p {port} -c 4 -C 5", "ucmatose -s {to} -p {port} -c 4 -C 5");
/// Datagrams, and SIDR.
pub const UDADDY: Connecting =
    Connecting { port: Some(7174), ..connecting("udaddy -c 4 -C 5", "udaddy -s {to} -c 4 -C 5") };
pub const RDMA_CLIENT: Connecting = connecting("rdma_server -p {port}", "rdma_client -s {to} -p {port}");
pub const RSTREAM: Connecting =
    connecting("rstream -p {port} -S 1000 -C 100 -T v", "rstream -s {to} -p {port} -S 1000 -C 100 -T v");
/// The server receives. The driver knows IPv4 groups only: of others rdma_join_multicast says ENOTSUPP.
pub const MCKEY: Connecting = Connecting {
    server: "mckey -m 239.1.2.3 -b {own} -C 20",
    client: "mckey -m 239.1.2.3 -b {own} -C 20 -s",
    ready: Ready::Joined("239.1.2.3"),
    port: None,
    twice: false,
};
pub const SEND_BW: Connecting =
    perftest("ib_send_bw -R -s 5000 -n 100 -p {port} -F", "ib_send_bw -R -s 5000 -n 100 -p {port} -F {to}");
pub const READ_BW: Connecting =
    perftest("ib_read_bw -R -s 5000 -n 100 -p {port} -F", "ib_read_bw -R -s 5000 -n 100 -p {port} -F {to}");

/// Over the UDP port.
pub const OVER_UDP: [Connecting; 13] = [
    RPING,
    UCMATOSE,
    UDADDY,
    RDMA_CLIENT,
    RSTREAM,
    MCKEY,
    SEND_BW,
    READ_BW,
    perftest("ib_send_lat -R -s 13 -n 50 -p {port} -F", "ib_send_lat -R -s 13 -n 50 -p {port} -F {to}"),
    perftest("ib_write_bw -R -s 5000 -n 100 -p {port} -F", "ib_write_bw -R -s 5000 -n 100 -p {port} -F {to}"),
    perftest("ib_write_lat -R -s 5000 -n 50 -p {port} -F", "ib_write_lat -R -s 5000 -n 50 -p {port} -F {to}"),
    perftest("ib_read_lat -R -s 5000 -n 50 -p {port} -F", "ib_read_lat -R -s 5000 -n 50 -p {port} -F {to}"),
    perftest("ib_atomic_bw -R -n 100 -p {port} -F", "ib_atomic_bw -R -n 100 -p {port} -F {to}"),
];

/// Over frame ports.
pub const OVER_FRAMES: [Connecting; 8] = [RPING, UCMATOSE, UDADDY, RDMA_CLIENT, RSTREAM, MCKEY, SEND_BW, READ_BW];

/// Over IPv6.
pub const OVER_IPV6: [Connecting; 1] = [RPING];

impl Connecting {
    /// The command line of an end that has the address `own`; a client's if it is given its server's.
    pub fn command(&self, port: u16, own: &str, to: Option<&str>) -> String {
        let line = if to.is_some() { self.client } else { self.server };
        line.replace("{port}", &port.to_string()).replace("{own}", own).replace("{to}", to.unwrap_or_default())
    }

    /// What the guest's end needs before its command line.
    pub fn environment_in_the_guest(&self, serves: bool) -> String {
        let (library, variable) = match (serves, self.twice) {
            (false, false) if self.is_hasty() => ("drain", String::new()),
            (false, true) => ("patience", format!("GRANTED={GRANTED} ")),
            (true, true) => ("listens", format!("LISTENS={LISTENS} ")),
            _ => return String::new(),
        };
        format!("env LD_PRELOAD=/usr/lib/{library}.so {variable}")
    }

    /// Program and options, without what depends on the case.
    pub fn name(&self) -> String {
        let variable = [" -p {port}", " -b {own}", " -a {to}", " -s {to}", " {to}"];
        variable.into_iter().fold(self.client.to_owned(), |line, word| line.replace(word, ""))
    }

    /// Whether its client has to be held back until the server listens again.
    pub fn is_impatient(&self) -> bool {
        self.twice
    }

    /// Whether its client destroys its queue pair before the driver has sent what was posted.
    pub fn is_hasty(&self) -> bool {
        self.ready != Ready::Listens
    }
}

/// Wireshark reads every management datagram that came from `own`, and there are `some` if the ends connect.
pub fn read_capture(capture: &Path, own: &str, some: bool) -> Result<(), String> {
    const FIELDS: [&str; 5] =
        ["infiniband.mad.mgmtclass", "infiniband.mad.attributeid", "infiniband.mad.method", "_ws.malformed", "ip.src"];
    let mut command = Command::new("tshark");
    command.arg("-r").arg(capture).args(["-Y", "infiniband.mad", "-T", "fields", "-e", "ipv6.src"]);
    for field in FIELDS {
        command.args(["-e", field]);
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let _ = support::skipped::<()>("Wireshark's reading of management datagrams: there is no tshark");
            return Ok(());
        }
        Err(e) => return Err(format!("tshark: {e}")),
    };
    if !output.status.success() {
        return Err(format!("tshark: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let mut sent = 0;
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let [v6, class, attribute, method, malformed, v4] = line.split('\t').collect::<Vec<_>>()[..] else {
            return Err(format!("tshark: {line}"));
        };
        if ![v4, v6].contains(&own) {
            continue;
        }
        sent += 1;
        let attribute = attribute.strip_prefix("0x").and_then(|digits| u16::from_str_radix(digits, 16).ok());
        // The communication manager's class; Send; ConnectRequest to AlternatePathResponse (IBA 16.7.2).
        let known = class == "0x07" && method == "0x03" && attribute.is_some_and(|a| (0x10..=0x1a).contains(&a));
        if !known || !malformed.is_empty() {
            return Err(format!("Wireshark reads {line:?}"));
        }
    }
    if some && sent == 0 {
        Err("Wireshark sees no message of a communication manager of irnic's".into())
    } else {
        Ok(())
    }
}
