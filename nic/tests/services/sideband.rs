//! Out-of-band data of packets.

use irnic_nic::Nic;
use irnic_transports::qp::{QpState, SendData, SendWr, Service, Sge, Wc, WcStatus};
use irnic_transports::{Payload, RxPacket, Sideband, Time};

use crate::common::{Connection, End, Network, pair, region};

const LEN: usize = 20_000;

/// Passes everything that one NIC sends to the other. The payload of the packets in `cut`, numbered among those with a
/// payload, is cut off on the way.
fn carry(net: &mut Network, ends: [End; 2], from: usize, sent: &mut usize, cut: &[usize]) {
    let now = net.now;
    let [a, b] = &mut net.nics[..] else { panic!("two NICs") };
    let (tx, rx): (&mut Nic, &mut Nic) = if from == 0 { (a, b) } else { (b, a) };
    tx.poll_transmit(now, usize::MAX, |packet| {
        assert_eq!(packet.sideband.src_qp, ends[from].qpn);
        let data = !packet.payload.is_empty();
        let trimmed = data && cut.contains(sent);
        *sent += usize::from(data);
        rx.receive(
            now,
            &RxPacket {
                headers: packet.headers,
                path: packet.path,
                payload: if trimmed { Payload::EMPTY } else { packet.payload },
                arrived: now,
                sideband: Sideband { trimmed, ..packet.sideband },
            },
        );
        true
    });
}

/// Runs a WRITE of which the packets `cut` are trimmed; returns its status, if it has ended, and the network.
fn write(preset: &str, service: Service, cut: &[usize]) -> (Option<WcStatus>, Network, [End; 2]) {
    let transport = preset.parse().unwrap();
    let c = Connection { transport: [transport; 2], service, ..Connection::default() };
    let (mut net, ends) = pair("", 1, &c);
    let (a, b) = (region(&mut net, ends[0], LEN, |i| i as u8), region(&mut net, ends[1], LEN, |_| 0));
    let sges = [Sge { addr: a.addr, len: LEN as u32, lkey: a.lkey }];
    let wr = SendWr::write(0, SendData::Sges(&sges), b.addr, b.rkey);
    net.nics[0].post_send(ends[0].qpn, &wr).unwrap();
    let mut sent = 0;
    for _ in 0..100 {
        for from in [0, 1] {
            carry(&mut net, ends, from, &mut sent, cut);
        }
        let deadline = net.nics.iter().map(Nic::next_deadline).min().unwrap();
        if deadline != Time::NEVER {
            net.now = net.now.max(deadline);
        }
        let now = net.now;
        net.nics.iter_mut().for_each(|nic| nic.on_deadline(now));
    }
    let mut wcs = [Wc::EMPTY; 2];
    let n = net.nics[0].poll_cq(ends[0].cq, &mut wcs).unwrap();
    let whole = net.nics[1].bytes(&b).unwrap().iter().enumerate().all(|(i, &byte)| byte == i as u8);
    assert_eq!(whole, service == Service::Rc || cut.is_empty(), "{preset}");
    (wcs[..n].first().map(|wc| wc.status), net, ends)
}

#[test]
fn a_trimmed_packet_is_counted_and_sent_again_as_if_it_were_lost() {
    for preset in ["irn", "irn-go-back-n", "irn-no-sack", "roce,rto=1ms"] {
        // The first, one in the middle, the last, and a retransmission.
        for cut in [&[0][..], &[3], &[19], &[0, 7, 19], &[3, 20]] {
            let (status, net, ends) = write(preset, Service::Rc, cut);
            assert_eq!(status, Some(WcStatus::Success), "{preset} {cut:?}");
            for end in ends {
                assert_eq!(net.nics[end.nic].qp(end.qpn).unwrap().state(), QpState::Rts, "{preset} {cut:?}");
            }
            let stats = |end: End| net.nics[end.nic].qp(end.qpn).unwrap().counts();
            assert_eq!(stats(ends[1]).rx_trimmed, cut.len() as u64, "{preset} {cut:?}");
            assert!(stats(ends[0]).retransmitted >= cut.len() as u64, "{preset} {cut:?}");
        }
    }
}

#[test]
fn a_trimmed_packet_of_an_unreliable_connection_loses_its_message() {
    let (status, net, ends) = write("roce", Service::Uc, &[3]);
    assert_eq!(status, Some(WcStatus::Success));
    let qp = net.nics[1].qp(ends[1].qpn).unwrap();
    assert_eq!((qp.state(), qp.counts().rx_trimmed), (QpState::Rts, 1));
    assert_eq!(net.nics[1].counters().rx_dropped_messages, 1);
}
