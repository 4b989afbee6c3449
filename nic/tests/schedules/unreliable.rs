//! Sums over schedules of the unreliable services.

use crate::common::Network;

/// Sums over schedules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub steps: u64,
    pub virtual_ns: u64,
    /// CRC-32 of all frames, with their senders and times.
    pub crc: u64,
    pub messages: u64,
    pub delivered: u64,
    pub out_of_order: u64,
    pub late: u64,
    pub dropped: u64,
    pub no_buffer: u64,
    pub bad_qkey: u64,
    pub bad_icrc: u64,
}

impl Outcome {
    /// Returns the counters of the NICs.
    pub fn of(net: &Network) -> Outcome {
        let mut o =
            Outcome { steps: net.steps, virtual_ns: net.now.0, crc: u64::from(net.crc()), ..Outcome::default() };
        for nic in &net.nics {
            let c = nic.counters();
            o.out_of_order += c.out_of_seq_request;
            o.late += c.duplicate_request;
            o.dropped += c.rx_dropped_messages;
            o.no_buffer += c.out_of_buffer;
            o.bad_qkey += c.bad_qkey;
            o.bad_icrc += c.rx_icrc_encapsulated;
        }
        o
    }

    pub fn add(&mut self, o: &Outcome) {
        self.steps += o.steps;
        self.virtual_ns += o.virtual_ns;
        self.crc += o.crc;
        self.messages += o.messages;
        self.delivered += o.delivered;
        self.out_of_order += o.out_of_order;
        self.late += o.late;
        self.dropped += o.dropped;
        self.no_buffer += o.no_buffer;
        self.bad_qkey += o.bad_qkey;
        self.bad_icrc += o.bad_icrc;
    }
}
