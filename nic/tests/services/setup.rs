//! Two queue pairs of an unreliable service, on a network without faults.

use irnic_nic::NicConfig;
use irnic_transports::Path;
use irnic_transports::qp::{Address, RecvWr, SendData, SendOp, SendWr, Service, Sge, Wc};
use irnic_transports::wire::Mtu;

use crate::common::{Connection, End, Network, QKEY, create, path};
use crate::kit::Duo;

/// Bytes of a packet in these cases.
pub const MTU: u32 = 256;

/// Queue pairs 0 and 1 of `service`; `srq`: receives of end 1 are shared.
pub fn duo(service: Service, srq: bool) -> Duo {
    let c = Connection { service, mtu: Mtu::B256, ..Connection::default() };
    let config = NicConfig { mtu: Mtu::B256, ..NicConfig::default() };
    Duo::on(Network::new(2, "delay 5us limit 10000", 1, &config), c, srq)
}

/// Loses the frames from end 0, counted from now, that `lost` selects.
pub fn lose(d: &mut Duo, lost: impl Fn(usize) -> bool + 'static) {
    let mut n = 0;
    d.net.tamper = Some(Box::new(move |from, _| {
        let keep = from != 0 || !lost(n);
        n += usize::from(from == 0);
        keep
    }));
}

/// Returns the address of end `to`, for a datagram from end `from`.
pub fn to(from: End, to: End) -> Address {
    Address { path: path(from.nic, to.nic), qpn: to.qpn, qkey: QKEY }
}

/// Posts a datagram of `len` bytes at the start of end 0's region.
pub fn post(d: &mut Duo, id: u64, op: SendOp, len: u32, to: Address) {
    d.post_with(id, op, len, |wr| wr.to = Some(to));
}

/// Returns the completions at `end` so far.
pub fn wcs(d: &mut Duo, end: usize) -> Vec<Wc> {
    d.poll();
    std::mem::take(&mut d.wcs[end])
}

/// Creates another datagram queue pair, in RTS, on `nic`.
pub fn another(d: &mut Duo, nic: usize) -> End {
    let end = create(&mut d.net, nic, &Connection { srq: [None; 2], ..d.connection.clone() }, 0, None);
    for attr in crate::common::attributes(&d.connection, end, end, 0) {
        d.net.nics[nic].modify_qp(end.qpn, &attr).unwrap();
    }
    end
}

/// Returns an empty send work request without a destination.
pub fn empty(op: SendOp) -> SendWr<'static> {
    SendWr::new(0, op, SendData::Sges(&[]))
}

/// Posts a receive at any end.
pub fn recv_at(d: &mut Duo, end: End, id: u64, sges: &[Sge]) {
    d.net.nics[end.nic].post_recv(end.qpn, &RecvWr { wr_id: id, sges }).unwrap();
}

/// Returns the path to another address, otherwise the same.
pub fn redirect(path: Path, dst: std::net::IpAddr) -> Path {
    Path { dst, ..path }
}
