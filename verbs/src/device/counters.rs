//! A port's counters under their driver names in /sys/class/infiniband/DEVICE/ports/1.
//!
//! `counters` has IBA's port counters (kernel: drivers/infiniband/core/sysfs.c), `hw_counters` irnic's own and those of
//! rxe (rxe_hw_counters.c) and mlx5 (counters.c) that irnic can provide. Counters that need a physical link, such as
//! symbol errors, are zero. What irnic does not count has no file, as in drivers that do not count it.

use irnic_ports::PortCounters;
use irnic_ports::host::domain;
use irnic_transports::qp::Counters;

use super::DeviceInfo;
use crate::config::PortKind;

/// Bytes in a unit of port_xmit_data and port_rcv_data (IBA 16.1.3.5).
const WORD: u64 = 4;

/// Counters of a device of one process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counted {
    /// The device's own counters.
    pub(crate) nic: Counters,
    /// Counters of its port.
    pub(crate) port: PortCounters,
}

type Value = fn(&Counted) -> u64;

/// Names in `counters`.
const PORT: [(&str, Value); 21] = [
    ("VL15_dropped", |_| 0),
    ("excessive_buffer_overrun_errors", |_| 0),
    ("link_downed", |_| 0),
    ("link_error_recovery", |_| 0),
    ("local_link_integrity_errors", |_| 0),
    // Multicast packets are not counted separately.
    ("multicast_rcv_packets", |_| 0),
    ("multicast_xmit_packets", |_| 0),
    ("port_rcv_constraint_errors", |_| 0),
    ("port_rcv_data", |c| c.nic.rcvd_bytes / WORD),
    ("port_rcv_errors", |c| c.nic.rx_icrc_encapsulated + c.nic.rx_malformed),
    ("port_rcv_packets", |c| c.nic.rcvd_pkts),
    ("port_rcv_remote_physical_errors", |_| 0),
    ("port_rcv_switch_relay_errors", |_| 0),
    ("port_xmit_constraint_errors", |_| 0),
    ("port_xmit_data", |c| c.nic.sent_bytes / WORD),
    ("port_xmit_discards", |c| c.port.tx_dropped),
    ("port_xmit_packets", |c| c.nic.sent_pkts),
    ("port_xmit_wait", |_| 0),
    ("symbol_error", |_| 0),
    ("unicast_rcv_packets", |c| c.nic.rcvd_pkts),
    ("unicast_xmit_packets", |c| c.nic.sent_pkts),
];

/// Names in `hw_counters` that [`Counters`] does not have.
const HARDWARE: [(&str, Value); 14] = [
    // rxe. Its "ack_deferred" counts how often its tasks were deferred; there are none here.
    ("ack_deferred", |_| 0),
    ("completer_retry_err", |c| {
        c.nic.packet_seq_err + c.nic.implied_nak_seq_err + c.nic.local_ack_timeout_err + c.nic.irn_read_timeouts
    }),
    ("link_downed", |_| 0),
    ("rcvd_rnr_err", |c| c.nic.rnr_nak_retry_err),
    ("rcvd_seq_err", |c| c.nic.packet_seq_err),
    ("retry_rnr_exceeded_err", |c| c.nic.rnr_retry_exceeded_err),
    ("send_err", |c| c.port.tx_dropped),
    ("send_rnr_err", |c| c.nic.out_of_buffer),
    // mlx5. ConnectX's adaptive retransmission and slow restart are not implemented.
    ("out_of_sequence", |c| c.nic.out_of_seq_request),
    ("roce_adp_retrans", |_| 0),
    ("roce_adp_retrans_to", |_| 0),
    ("roce_slow_restart", |_| 0),
    ("roce_slow_restart_cnps", |_| 0),
    ("roce_slow_restart_trans", |_| 0),
];

/// Returns the paths of a port's counters below /sys/class/infiniband/DEVICE/ports/1.
pub fn counter_files() -> Vec<String> {
    let port = PORT.iter().map(|(name, _)| format!("counters/{name}"));
    let own = Counters::default().iter().map(|(name, ..)| name);
    let hardware = HARDWARE.iter().map(|(name, _)| *name).chain(own).map(|name| format!("hw_counters/{name}"));
    port.chain(hardware).collect()
}

/// Returns the value of the counter in this file below /sys/class/infiniband/DEVICE/ports/1; `None` if there is none.
pub(crate) fn counter_value(file: &str, counted: &Counted) -> Option<u64> {
    let (folder, name) = file.split_once('/')?;
    let listed = |names: &[(&str, Value)]| names.iter().find(|(n, _)| *n == name).map(|(_, value)| value(counted));
    match folder {
        "counters" => listed(&PORT),
        "hw_counters" => {
            listed(&HARDWARE).or_else(|| counted.nic.named().find(|(n, _)| *n == name).map(|(_, value)| value))
        }
        _ => None,
    }
}

/// Returns the prefix of the abstract socket name at which a process of this user serves the counters of this device;
/// the number of the process's slot follows.
pub fn counter_socket(info: &DeviceInfo) -> String {
    let domain = match &info.config.port {
        // Several labs may have such a host.
        PortKind::Lab(spec) => {
            domain(&format!("{}@{}", info.config.name, spec.socket.display()), &info.config.addresses)
        }
        _ => info.domain(),
    };
    // SAFETY: has no precondition.
    let user = unsafe { libc::geteuid() };
    format!("irnic/1/{domain}/counters/{user}/")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_file_has_a_value_and_a_name_of_its_own() {
        let files = counter_files();
        assert_eq!(files.iter().collect::<BTreeSet<_>>().len(), files.len());
        assert!(files.iter().all(|file| counter_value(file, &Counted::default()) == Some(0)));
        for none in ["counters/none", "hw_counters/symbol_error", "counters", "sent_pkts", "/", "gids/0"] {
            assert_eq!(counter_value(none, &Counted::default()), None, "{none}");
        }
    }

    #[test]
    fn drivers_names_stand_for_irnics_counters() {
        let nic =
            Counters { sent_bytes: 4098, rcvd_pkts: 7, out_of_buffer: 3, packet_seq_err: 2, ..Counters::default() };
        let counted = Counted { nic, port: PortCounters { tx_dropped: 5, ..PortCounters::default() } };
        for (file, value) in [
            ("counters/port_xmit_data", 1024),
            ("counters/port_rcv_packets", 7),
            ("counters/port_xmit_discards", 5),
            ("hw_counters/rcvd_pkts", 7),
            ("hw_counters/send_rnr_err", 3),
            ("hw_counters/out_of_buffer", 3),
            ("hw_counters/rcvd_seq_err", 2),
            ("hw_counters/completer_retry_err", 2),
            ("hw_counters/send_err", 5),
        ] {
            assert_eq!(counter_value(file, &counted), Some(value), "{file}");
        }
    }
}
