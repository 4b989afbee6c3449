//! Packets from an Ethernet, as a station takes them.

use std::net::IpAddr;

use irnic_ports::frames::link::{Arrival, Link, Way};
use irnic_ports::frames::{FrameCounters, Mac};
use irnic_transports::Time;

/// Bytes of the shortest and the longest packet that a station sends by itself: padded ARP, and an advertisement with a
/// VLAN tag.
const OWN_PACKETS: std::ops::RangeInclusive<usize> = 60..=18 + 40 + 24 + 8;

/// What a station may have been asked to reach.
const DESTINATIONS: [&str; 4] = ["10.0.0.1", "10.0.0.3", "fd00::1", "fe80::1"];

/// The station of the tests of `ports`: 02:00:0a:00:00:02, 10.0.0.2, fd00::2, fe80::2.
fn station(vlan: Option<u16>) -> Link {
    let addresses = ["10.0.0.2", "fd00::2", "fe80::2"].map(|a| a.parse().expect("an address"));
    Link::new(Mac::derived(addresses[0]), addresses.to_vec(), vlan, 0)
}

/// What an input has led to.
#[derive(Copy, Clone, Debug, Default)]
pub struct Reached {
    /// Frames for the NIC.
    pub frames: u64,
    /// Neighbours whose address was asked for and told.
    pub neighbours: u64,
    /// Everything else.
    pub counters: FrameCounters,
}

/// Never a panic. Frames are for the station and not from it; answers and requests have sane lengths and come from it;
/// whoever was asked answers or is given up; a deadline that has been kept is over.
///
/// The input is a byte of settings, then steps: a byte that chooses what to do, one for how much, and for packets so
/// many bytes.
pub fn frame_link(data: &[u8]) -> Reached {
    let mut reached = Reached::default();
    let Some((&settings, mut rest)) = data.split_first() else { return reached };
    let vlan = (settings & 1 == 1).then_some(5);
    let mut link = station(vlan);
    let group: IpAddr = "239.1.2.3".parse().expect("an address");
    if settings & 2 == 2 {
        assert!(link.join(group));
    }
    let mut now = Time::ZERO;
    while let [what, much, after @ ..] = rest {
        rest = after;
        match what % 4 {
            0 => now += u64::from(*much) * 100_000_000,
            1 => {
                let dst = DESTINATIONS[usize::from(*much) % DESTINATIONS.len()].parse().expect("an address");
                let (way, forgotten) = link.way(now, dst);
                assert!(forgotten.is_none(), "there is room");
                assert!(!matches!(way, Way::Send(mac) if !mac.is_unicast()));
            }
            _ => {
                let (packet, after) = rest.split_at(usize::from(*much).min(rest.len()));
                rest = after;
                match receive(&mut link, now, packet, (what & 0x80 != 0).then_some(u16::from(*what))) {
                    Arrival::Frame { .. } => reached.frames += 1,
                    Arrival::Neighbour(..) => reached.neighbours += 1,
                    Arrival::Nothing => {}
                }
            }
        }
        let mac = link.mac();
        link.poll(now, &mut |packet| check_own(mac, packet), &mut |address| assert!(!address.is_multicast()));
        assert!(link.next_deadline() > now);
    }
    reached.counters = link.counters();
    reached
}

fn receive<'a>(link: &mut Link, now: Time, packet: &'a [u8], tag: Option<u16>) -> Arrival<'a> {
    let mac = link.mac();
    let before = link.counters();
    let mut answers = 0;
    let arrival = link.receive(now, packet, tag, &mut |answer| {
        check_own(mac, answer);
        answers += 1;
    });
    if let Arrival::Frame { datagram, .. } = &arrival {
        let path = datagram.path;
        assert!(link.is_own(path.dst) || link.is_member(path.dst));
        assert!(!link.is_own(path.src) && !path.src.is_multicast() && !path.src.is_unspecified());
        assert!(datagram.frame.len() < packet.len());
        assert_eq!(link.counters(), before);
    }
    if let Arrival::Neighbour(address, mac) = &arrival {
        assert!(!link.is_own(*address) && mac.is_unicast());
        assert_eq!(link.way(now, *address).0, Way::Send(*mac));
    }
    assert!(answers <= 1);
    assert_eq!(link.counters().neighbour_replies, before.neighbour_replies + answers);
    arrival
}

fn check_own(mac: Mac, packet: &[u8]) {
    assert!(OWN_PACKETS.contains(&packet.len()), "{} bytes", packet.len());
    assert_eq!(packet[6..12], mac.0);
}
