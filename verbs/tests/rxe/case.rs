//! What is run.

use crate::connecting::{self, Connecting};

/// Which part irnic plays; the driver plays the other.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Role {
    Client,
    Server,
}

/// What a case adds to a plain connection over IPv4.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    None,
    /// IPv6 addresses.
    Ipv6,
    /// Another process of irnic's host owns UDP port 4791, and passes on what is not its own.
    SecondProcess,
    /// What irnic's port loses, in the words of `IRNIC_IMPAIR`.
    Impaired(&'static str),
    /// irnic is a station of its own on the guest's Ethernet, with an IPv4 address.
    Frames(Carrier),
    /// irnic is a station of its own on the guest's Ethernet, with an IPv6 address.
    FramesIpv6(Carrier),
}

/// What carries a station's packets.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// A packet socket on the TAP device.
    Packet,
    /// A datagram socket that the virtual machine's emulator has the peer of.
    Dgram,
}

/// One program on both sides.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// Program and options, the same on both sides: `{mtu}` is the path MTU, `{datagram}` a size that fits one packet.
    template: &'static str,
    /// Instead of that, a program that connects by rdma_cm.
    pub connecting: Option<Connecting>,
    pub role: Role,
    /// Bytes.
    pub path_mtu: u32,
    pub condition: Condition,
}

/// Where a program finds its device.
#[derive(Clone, Debug)]
pub struct Device {
    pub name: &'static str,
    pub gid_index: usize,
}

/// At both path MTUs: every operation and service. Sizes end in a short packet and need padding, but for the large
/// ones. perftest does not look at what it receives; `-c` of the ping-pongs and `integrity` do.
const EVERYWHERE: [&str; 11] = [
    "integrity",
    "ibv_rc_pingpong -c -m {mtu} -n 100 -s 4099",
    "ibv_rc_pingpong -c -m {mtu} -n 50 -s 40001 -e",
    "ibv_uc_pingpong -c -m {mtu} -n 50 -s 4099",
    "ibv_ud_pingpong -c -n 50 -s {datagram}",
    "ibv_srq_pingpong -c -m {mtu} -n 50 -s 4099",
    "ib_send_bw -s 5000 -n 200",
    "ib_send_lat -s 13 -n 50",
    // More than the receiver has room for, if the sender puts all of it on the wire at once.
    "ib_write_bw -s 65536 -n 100",
    "ib_read_bw -s 65536 -n 50",
    "ib_atomic_bw -n 200",
];

/// At both path MTUs: the operations of [`EVERYWHERE`] at other sizes, in turns, both ways, on several queue pairs.
const IN_OTHER_WAYS: [&str; 9] = [
    "ib_send_bw -b -s 5000 -n 100",
    "ib_send_bw -c UD -s {datagram} -n 100",
    "ib_send_lat -s 5000 -n 50",
    "ib_write_bw -s 5000 -n 200",
    "ib_write_bw -q 4 -s 5000 -n 50",
    "ib_write_lat -s 5000 -n 50",
    "ib_read_bw -s 5000 -n 200",
    "ib_read_lat -s 5000 -n 50",
    "ib_atomic_lat -n 50",
];

/// With loss, on path MTU 1024: more packets. Programs that part by agreement: of a ping-pong, who ends first may leave
/// the other without the last acknowledgement, and the driver repeats its last message for ever.
const LOSSY: [&str; 5] = [
    "integrity",
    "ib_send_bw -s 16001 -n 100",
    "ib_write_bw -s 65536 -n 30",
    "ib_read_bw -s 65536 -n 30",
    "ib_atomic_lat -n 100",
];

const OVER_IPV6: [&str; 2] = ["integrity", "ibv_rc_pingpong -c -n 100 -s 4099"];

const AS_SECOND: [&str; 4] = [
    "integrity",
    "ibv_rc_pingpong -c -n 100 -s 4099",
    "ibv_ud_pingpong -c -n 50 -s {datagram}",
    "ib_read_bw -s 65536 -n 30",
];

/// Of [`EVERYWHERE`], at path MTU 4096 in the short form: messages of several packets, and the longest datagram.
const IN_PACKETS: [&str; 5] = [EVERYWHERE[0], EVERYWHERE[1], EVERYWHERE[4], EVERYWHERE[8], EVERYWHERE[9]];

/// Over frame ports. The guest asks for irnic's link-layer address and irnic for the guest's.
const OVER_FRAMES: [&str; 5] = [
    "integrity",
    "ibv_rc_pingpong -c -m {mtu} -n 100 -s 4099",
    "ibv_ud_pingpong -c -n 50 -s {datagram}",
    "ib_write_bw -s 65536 -n 100",
    "ib_read_bw -s 65536 -n 50",
];

/// The cases that IRNIC_APPLICATIONS asks for: without it the short form, `long` what that leaves out, `all` both.
pub fn wanted() -> Vec<Case> {
    match std::env::var("IRNIC_APPLICATIONS").as_deref() {
        Ok("all") => cases(true),
        Ok("long") => {
            let short = cases(false);
            cases(true).into_iter().filter(|case| !short.contains(case)).collect()
        }
        _ => cases(false),
    }
}

/// Whether a program, the n-th of its table, is run with irnic in this role: in the short form in one of them, the next
/// program in the other. Integrity is checked in both.
fn has_role(long: bool, program: &str, n: usize, role: Role) -> bool {
    long || program == "integrity" || (role == Role::Client) == n.is_multiple_of(2)
}

/// The cases of the long form or the short one, those of one path MTU after the other. The short form has every
/// operation and every kind of service once at path MTU 1024, and at 4096 what is cut into packets.
fn cases(long: bool) -> Vec<Case> {
    let mut cases = programs(long);
    let mut add = |programs: &[Connecting], condition| {
        for role in [Role::Client, Role::Server] {
            let case = |(n, connecting): (usize, &Connecting)| {
                let (template, connecting) = (connecting.server, Some(*connecting));
                has_role(long, template, n, role).then_some(Case {
                    template,
                    connecting,
                    role,
                    path_mtu: 1024,
                    condition,
                })
            };
            cases.extend(programs.iter().enumerate().filter_map(case));
        }
    };
    if !long {
        use connecting::{MCKEY, RPING, SEND_BW, UCMATOSE, UDADDY};
        add(&[RPING, UCMATOSE, UDADDY, MCKEY, SEND_BW], Condition::None);
        add(&[RPING, UDADDY], Condition::Frames(Carrier::Dgram));
        return cases;
    }
    add(&connecting::OVER_UDP, Condition::None);
    add(&connecting::OVER_IPV6, Condition::Ipv6);
    add(&connecting::OVER_FRAMES, Condition::Frames(Carrier::Dgram));
    add(&connecting::OVER_IPV6, Condition::FramesIpv6(Carrier::Dgram));
    add(&connecting::OVER_IPV6, Condition::Frames(Carrier::Packet));
    cases
}

/// The cases whose programs exchange queue pair numbers by themselves.
fn programs(long: bool) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |templates: &[&'static str], path_mtu, condition| {
        for role in [Role::Client, Role::Server] {
            let case = |(n, template): (usize, &&'static str)| {
                let case = Case { template, connecting: None, role, path_mtu, condition };
                has_role(long, template, n, role).then_some(case)
            };
            cases.extend(templates.iter().enumerate().filter_map(case));
        }
    };
    add(&EVERYWHERE, 1024, Condition::None);
    add(&OVER_IPV6, 1024, Condition::Ipv6);
    add(&AS_SECOND, 1024, Condition::SecondProcess);
    add(&LOSSY, 1024, Condition::Impaired("loss 1%"));
    add(&OVER_FRAMES, 1024, Condition::Frames(Carrier::Dgram));
    add(&OVER_IPV6, 1024, Condition::FramesIpv6(Carrier::Dgram));
    add(&OVER_FRAMES[..1], 1024, Condition::Frames(Carrier::Packet));
    add(&OVER_IPV6[..1], 1024, Condition::FramesIpv6(Carrier::Packet));
    if long {
        add(&IN_OTHER_WAYS, 1024, Condition::None);
        add(&IN_OTHER_WAYS, 4096, Condition::None);
    }
    add(if long { &EVERYWHERE } else { &IN_PACKETS }, 4096, Condition::None);
    add(&OVER_FRAMES[..1], 4096, Condition::Frames(Carrier::Packet));
    add(&OVER_FRAMES[..1], 4096, Condition::Frames(Carrier::Dgram));
    cases
}

impl Case {
    pub fn program(&self) -> &'static str {
        self.template.split(' ').next().unwrap_or_default()
    }

    fn options(&self) -> String {
        let options = &self.template[self.program().len()..];
        // Of a datagram some are not there yet: odd, and near the path MTU.
        options.replace("{mtu}", &self.path_mtu.to_string()).replace("{datagram}", &(self.path_mtu - 25).to_string())
    }

    /// What an interface needs to carry packets of this path MTU.
    pub fn interface_mtu(&self) -> u32 {
        if self.path_mtu == 1024 { 1500 } else { 9000 }
    }

    pub fn is_over_ipv6(&self) -> bool {
        matches!(self.condition, Condition::Ipv6 | Condition::FramesIpv6(_))
    }

    pub fn name(&self) -> String {
        let role = if self.role == Role::Client { "client" } else { "server" };
        let condition = match self.condition {
            Condition::None => String::new(),
            Condition::Ipv6 => ", IPv6".into(),
            Condition::SecondProcess => ", irnic's second process".into(),
            Condition::Impaired(how) => format!(", {how}"),
            Condition::Frames(carrier) => format!(", {carrier:?} frames"),
            Condition::FramesIpv6(carrier) => format!(", {carrier:?} frames, IPv6"),
        };
        match self.connecting {
            Some(program) => format!("rdma_cm: {}, irnic as {role}{condition}", program.name()),
            None => {
                format!("{}{}, irnic as {role}, path MTU {}{condition}", self.program(), self.options(), self.path_mtu)
            }
        }
    }

    /// The command line, with the server's address for a client.
    pub fn command(&self, device: &Device, port: u16, server: Option<&str>) -> String {
        let (program, options) = (self.program(), self.options());
        let Device { name, gid_index } = device;
        let mtu = self.path_mtu;
        let line = match program {
            "integrity" => {
                let network = if matches!(self.condition, Condition::Impaired(_)) { "lossy" } else { "calm" };
                format!("integrity {name} {gid_index} {mtu} {port} {network}")
            }
            // -F: what perftest finds out about the processor's clock does not matter here. -u: retries for two
            // seconds. With its default, half a second, first requests now and then ran out of retries on a host with a
            // load of four to eight on two cores.
            p if p.starts_with("ib_") => format!("{p}{options} -F -u 16 -d {name} -x {gid_index} -p {port}"),
            p => format!("{p}{options} -d {name} -g {gid_index} -p {port}"),
        };
        server.map_or(line.clone(), |server| format!("{line} {server}"))
    }
}
