//! A congestion controller from outside the crates, in a NIC.

use irnic_transports::config::TransportConfig;
use irnic_transports::congestion::{
    Ack, CongestionConfig, Controller, ControllerFactory, ControllerMetrics, CustomController, Line,
};
use irnic_transports::qp::{Qp, SendData, SendWr, Sge, Wc, WcStatus};
use irnic_transports::wire::{Bth, Cnp, Headers, Opcode};
use irnic_transports::{Payload, Psn, RxPacket, Sideband, Time};

use crate::common::{Connection, End, Network, pair, path, region};

const LEN: usize = 1_000_000;
const GBIT: u64 = 1_000_000_000;

/// Sends at the rate, in Gbit/s, of the latest notification.
#[derive(Clone, Debug)]
struct NotifiedRate(u64);

impl Controller for NotifiedRate {
    fn on_ack(&mut self, _: Time, _: &Ack) {}

    fn on_cnp(&mut self, _: Time, cnp: &Cnp) {
        self.0 = u64::from(cnp.0[0]) * GBIT;
    }

    fn rate(&self) -> u64 {
        self.0
    }
}

/// The rate before the first notification, Gbit/s, and whether packets are ECN-capable.
#[derive(Debug)]
struct Factory(u64, bool);

impl ControllerFactory for Factory {
    fn name(&self) -> &'static str {
        "notified"
    }

    fn build(&self, _: &Line) -> Box<dyn CustomController> {
        Box::new(NotifiedRate(self.0 * GBIT))
    }

    fn uses_ecn(&self) -> bool {
        self.1
    }
}

static FOUR: Factory = Factory(4, false);
static TEN: Factory = Factory(10, true);

fn transport(factory: &'static Factory) -> TransportConfig {
    let mut config: TransportConfig = "irn".parse().unwrap();
    config.congestion = CongestionConfig::Custom(factory);
    (config.line_rate, config.base_rtt) = (40 * GBIT, 4_000);
    config
}

fn qp(net: &Network, end: End) -> &Qp {
    net.nics[end.nic].qp(end.qpn).unwrap()
}

/// Returns the time of a WRITE of [`LEN`] bytes, ns. A rate notification of `notified` Gbit/s precedes it.
fn time(factory: &'static Factory, notified: Option<u8>) -> u64 {
    let c = Connection { transport: [transport(factory); 2], ..Connection::default() };
    let (mut net, ends) = pair("delay 1us", 1, &c);
    let (a, b) = (region(&mut net, ends[0], LEN, |_| 1), region(&mut net, ends[1], LEN, |_| 2));
    if let Some(gbit) = notified {
        let mut headers = Headers::new(Bth::new(Opcode::Cnp, ends[0].qpn, Psn::new(0)));
        headers.cnp = Some(Cnp([gbit; Cnp::LEN]));
        let path = path(1, 0);
        let (payload, arrived, sideband) = (Payload::EMPTY, net.now, Sideband::NONE);
        net.nics[0].receive(net.now, &RxPacket { headers: &headers, path: &path, payload, arrived, sideband });
        let expected = u64::from(gbit) * GBIT;
        assert_eq!(qp(&net, ends[0]).controller_metrics().unwrap().rate, expected);
        assert_eq!(net.nics[0].counters().rp_cnp_handled, 1);
    }
    let sges = [Sge { addr: a.addr, len: LEN as u32, lkey: a.lkey }];
    let wr = SendWr::write(0, SendData::Sges(&sges), b.addr, b.rkey);
    let start = net.now;
    net.nics[0].post_send(ends[0].qpn, &wr).unwrap();
    let mut wcs = [Wc::EMPTY; 1];
    while net.nics[0].poll_cq(ends[0].cq, &mut wcs).unwrap() == 0 {
        assert!(net.step());
    }
    assert_eq!(wcs[0].status, WcStatus::Success);
    net.now.since(start)
}

#[test]
fn a_controller_from_outside_sets_the_rate_and_hears_what_notifications_say() {
    // 8 Mbit at this many Gbit/s.
    for (factory, gbit, expected) in [(&FOUR, None, 2_000_000), (&TEN, None, 800_000), (&FOUR, Some(2), 4_000_000)] {
        let took = time(factory, gbit);
        assert!(took.abs_diff(expected) < expected / 20, "{factory:?} {gbit:?}: {took} ns");
    }
}

#[test]
fn a_configuration_with_a_controller_from_outside_is_a_value() {
    let [four, ten] = [transport(&FOUR), transport(&TEN)];
    assert_eq!(four, four.clone());
    assert_ne!(four, ten);
    assert_eq!(four.congestion.to_string(), "notified");
    assert_eq!((four.congestion.uses_ecn(), ten.congestion.uses_ecn()), (false, true));
    assert!(four.congestion.get("initial").is_none());
    let c = Connection { transport: [four, transport(&TEN)], ..Connection::default() };
    let (net, ends) = pair("", 1, &c);
    assert_eq!(qp(&net, ends[1]).controller_metrics().map(|m: ControllerMetrics| m.rate), Some(10 * GBIT));
    // RFC 3168: ECT(0), for those that request it.
    let ecn = ends.map(|end| qp(&net, end).path().unwrap().traffic_class & 3);
    assert_eq!(ecn, [0, 2]);
}
