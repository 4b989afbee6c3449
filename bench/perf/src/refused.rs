//! perftest's flags that make no sense here. Each is recognized, and rejected in a line with the reason, unless it asks
//! for what is the case anyway.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

/// A flag.
struct Flag {
    short: Option<char>,
    long: &'static str,
    /// Value that is accepted; `None`: the flag takes no value.
    value: Option<&'static str>,
    why: &'static str,
}

const fn flag(short: Option<char>, long: &'static str, value: Option<&'static str>, why: &'static str) -> Flag {
    Flag { short, long, value, why }
}

/// No value of the flag is accepted.
const NONE: Option<&str> = Some("");
const OTHER_SERVICES: &str = "perf counts and verifies every byte, which takes a reliable connection; irnic run -- ib_send_bw -c runs \
                              perftest itself over UC, UD or XRC";
const CRYPTOGRAPHY: &str = "it is about encryption in a ConnectX NIC; irnic's NIC has none";
const DC: &str = "dynamically connected transport is NVIDIA's own; irnic's NIC has none";
const MULTICAST: &str = "multicast is for datagrams; irnic run -- ib_send_bw -c UD -g runs perftest itself over them";
const TWO_PORTS: &str = "irnic's NIC has one port";
const MEMORY: &str = "the firmware allocates memory regions itself, from ordinary pages";

/// All of perftest 4.5's that are not in [`PerfArgs`](super::PerfArgs).
const FLAGS: [Flag; 33] = [
    flag(Some('c'), "connection", Some("RC"), OTHER_SERVICES),
    flag(None, "ib-port", Some("1"), TWO_PORTS),
    flag(Some('O'), "dualport", None, TWO_PORTS),
    flag(None, "report-per-port", None, TWO_PORTS),
    flag(Some('S'), "sl", Some("0"), "a service level is a priority in a VLAN tag, and perf's packets have no tag"),
    flag(None, "pkey_index", Some("0"), "RoCE has the default partition only, at index 0"),
    flag(None, "dlid", NONE, "LIDs are InfiniBand's; RoCE addresses are IP addresses: -x or --bind"),
    flag(None, "force-link", Some("Ethernet"), "the link is Ethernet"),
    flag(Some('X'), "vector", Some("0"), "one thread takes all completions, by one completion vector"),
    flag(Some('z'), "com_rdma_cm", None, "the ends agree over TCP; -R connects the queue pairs by rdma_cm"),
    flag(None, "dont_xchg_versions", None, "both ends must be irnic perf of the same version"),
    flag(Some('g'), "mcg", None, MULTICAST),
    flag(Some('M'), "MGID", NONE, MULTICAST),
    flag(None, "log_dci_streams", NONE, DC),
    flag(None, "log_active_dci_streams", NONE, DC),
    flag(None, "aes_xts", None, CRYPTOGRAPHY),
    flag(None, "encrypt_on_tx", None, CRYPTOGRAPHY),
    flag(None, "sig_before", None, CRYPTOGRAPHY),
    flag(None, "aes_block_size", NONE, CRYPTOGRAPHY),
    flag(None, "data_enc_keys_number", NONE, CRYPTOGRAPHY),
    flag(None, "kek_path", NONE, CRYPTOGRAPHY),
    flag(None, "credentials_path", NONE, CRYPTOGRAPHY),
    flag(None, "data_enc_key_app_path", NONE, CRYPTOGRAPHY),
    flag(None, "mmap", NONE, MEMORY),
    flag(None, "mmap-offset", NONE, MEMORY),
    flag(None, "use_hugepages", None, MEMORY),
    flag(None, "odp", None, "a NIC in software pins no memory: all of it is paged on demand"),
    flag(None, "disable_pcie_relaxed", None, "there is no PCIe between this NIC and memory"),
    flag(
        None,
        "inline_recv",
        Some("0"),
        "what arrives is placed in the receive buffer at once; completions hold no data",
    ),
    flag(None, "use_old_post_send", None, "there is one way to post"),
    flag(None, "typical_pkt_size", NONE, "it is for packet pacing of ConnectX NICs; irnic's knows each packet's size"),
    flag(None, "rate_limit_type", Some("HW"), "the NIC paces queue pairs, which perftest calls HW"),
    flag(Some('C'), "report-cycles", None, "perf's clock counts nanoseconds, not cycles"),
];

/// Nothing, or why the command line is rejected.
#[derive(Clone, Debug, Default)]
pub struct Refused(pub Option<String>);

impl Flag {
    fn arg(&self) -> Arg {
        let arg = Arg::new(self.long).long(self.long).hide(true);
        let arg = if let Some(short) = self.short { arg.short(short) } else { arg };
        arg.action(if self.value.is_some() { ArgAction::Set } else { ArgAction::SetTrue })
    }

    /// Why the flag is rejected as given, if it is.
    fn refuse(&self, matches: &ArgMatches) -> Option<String> {
        let Flag { long, why, .. } = self;
        match self.value {
            None => matches.get_flag(long).then(|| format!("--{long}: {why}")),
            Some(fine) => {
                let value = matches.get_one::<String>(long).filter(|value| !value.eq_ignore_ascii_case(fine))?;
                Some(format!("--{long} {value}: {why}"))
            }
        }
    }
}

impl FromArgMatches for Refused {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Refused, clap::Error> {
        Ok(Refused(FLAGS.iter().find_map(|flag| flag.refuse(matches))))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Refused::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Refused {
    fn augment_args(command: Command) -> Command {
        command.args(FLAGS.iter().map(Flag::arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Refused::augment_args(command)
    }
}
