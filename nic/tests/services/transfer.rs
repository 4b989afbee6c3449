//! One transfer of whole packets, checked byte by byte.

use irnic_nic::Mr;
use irnic_transports::qp::{SendData, SendOp, SendWr, Sge, Wc, WcStatus};

use crate::common::{End, Network, region};

const MTU: usize = 1024;

/// Posts a WRITE of `packets` packets from a region of one end into one of the other, or a READ the other way.
pub fn post(net: &mut Network, ends: [End; 2], packets: usize, read: bool) -> [Mr; 2] {
    let len = packets * MTU;
    let [local, remote] =
        [0, 1].map(|i| region(net, ends[i], len, |at| if (i == 0) != read { (at / 7) as u8 } else { 0 }));
    let sges = [Sge { addr: local.addr, len: len as u32, lkey: local.lkey }];
    let op = if read { SendOp::Read } else { SendOp::Write };
    let mut wr = SendWr::new(0, op, SendData::Sges(&sges));
    (wr.remote_addr, wr.rkey) = (remote.addr, remote.rkey);
    net.nics[ends[0].nic].post_send(ends[0].qpn, &wr).unwrap();
    [local, remote]
}

/// Checks that a work request has succeeded, and has transferred the right bytes.
pub fn check(net: &mut Network, ends: [End; 2], [local, remote]: &[Mr; 2]) {
    let mut wcs = [Wc::EMPTY; 2];
    assert_eq!(net.nics[ends[0].nic].poll_cq(ends[0].cq, &mut wcs).unwrap(), 1);
    assert_eq!(wcs[0].status, WcStatus::Success);
    let ours = net.nics[ends[0].nic].bytes(local).unwrap();
    assert_eq!(ours, net.nics[ends[1].nic].bytes(remote).unwrap());
    assert!(ours.iter().enumerate().all(|(at, &byte)| byte == (at / 7) as u8));
}
