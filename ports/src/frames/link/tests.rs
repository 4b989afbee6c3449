use irnic_transports::wire::icrc_append;
use proptest::prelude::*;

use super::*;

const OWN: Mac = Mac([2, 0, 10, 0, 0, 2]);
const PEER: Mac = Mac([2, 0, 10, 0, 0, 1]);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn station(vlan: Option<u16>) -> Link {
    Link::new(OWN, vec![ip("10.0.0.2"), ip("fd00::2"), ip("fe80::2")], vlan, 0)
}

fn peer(vlan: Option<u16>) -> Link {
    Link::new(PEER, vec![ip("10.0.0.1"), ip("fd00::1"), ip("fe80::1")], vlan, 0)
}

/// Returns the paths from the peer to the station.
fn paths() -> [Path; 2] {
    [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")].map(|(src, dst)| Path {
        src: ip(src),
        dst: ip(dst),
        udp_src: 0xc000,
        traffic_class: 0x0a,
        hop_limit: 64,
    })
}

/// Returns a RoCE packet of the peer with a frame of 40 bytes.
fn roce(path: &Path, vlan: Option<u16>) -> Vec<u8> {
    let peer = peer(vlan);
    let headers = peer.headers_len(path);
    let mut packet = vec![0x11; headers + 40];
    assert_eq!(peer.emit(path, OWN, 40, &mut packet), headers);
    icrc_append(path, 0, &mut packet[headers..]);
    packet
}

/// Returns a request of the peer for the station's address.
fn request(address: &str) -> Vec<u8> {
    let mut peer = peer(None);
    assert_eq!(peer.way(Time::ZERO, ip(address)), (Way::Pending, None));
    let mut sent = Vec::new();
    peer.poll(Time::ZERO, &mut |packet| sent.push(packet.to_vec()), &mut |_| panic!("given up at once"));
    assert_eq!(sent.len(), 1);
    sent.remove(0)
}

/// Returns the station's reaction to a packet: frames, answers, counters.
fn take(link: &mut Link, packet: &[u8]) -> (Option<Path>, Vec<Vec<u8>>, FrameCounters) {
    let mut answers = Vec::new();
    let arrival = link.receive(Time::ZERO, packet, None, &mut |answer| answers.push(answer.to_vec()));
    let path = if let Arrival::Frame { datagram, .. } = arrival { Some(datagram.path) } else { None };
    (path, answers, link.counters())
}

fn counted(set: impl Fn(&mut FrameCounters)) -> FrameCounters {
    let mut counters = FrameCounters::default();
    set(&mut counters);
    counters
}

#[test]
fn a_frame_for_the_station_is_taken_with_its_header() {
    for path in paths() {
        for vlan in [None, Some(9)] {
            let mut packet = roce(&path, vlan);
            let mut link = station(vlan);
            let arrival = link.receive(Time::ZERO, &packet, None, &mut |_| panic!("an answer"));
            let Arrival::Frame { datagram, dont_fragment: true } = arrival else { panic!("{arrival:?}") };
            assert_eq!((datagram.path, datagram.frame.len(), datagram.ip_id), (path, 40, 0));
            if path.src.is_ipv6() {
                continue;
            }
            // Identification and DF as they arrive.
            let at = packet.len() - 40 - 28;
            packet[at + 4..at + 8].copy_from_slice(&[0x12, 0x34, 0, 0]);
            packet[at + 10..at + 12].fill(0);
            let sum = ipv4_checksum(&packet[at..at + 20]);
            packet[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
            let arrival = link.receive(Time::ZERO, &packet, None, &mut |_| panic!("an answer"));
            let Arrival::Frame { datagram, dont_fragment: false } = arrival else { panic!("{arrival:?}") };
            assert_eq!(datagram.ip_id, 0x1234);
        }
    }
}

#[test]
fn what_is_not_for_the_nic_is_dropped_and_counted() {
    let [v4, v6] = paths();
    type Change = (&'static str, Path, fn(&mut Vec<u8>), fn(&mut FrameCounters));
    let changes: [Change; 22] = [
        ("another station's", v4, |p| p[5] ^= 4, |c| c.rx_other_mac = 1),
        ("this station's own", v4, |p| p[6..12].copy_from_slice(&OWN.0), |c| c.rx_other_mac = 1),
        ("to a group's station, not a group", v4, |p| p[..6].fill(0xff), |c| c.rx_other_address = 1),
        ("of a VLAN", v4, |p| drop(p.splice(12..12, [0x81, 0, 0, 7])), |c| c.rx_other_vlan = 1),
        ("a tag in a tag", v4, |p| drop(p.splice(12..12, [0x81, 0, 0, 0, 0x81, 0, 0, 0])), |c| c.rx_foreign = 1),
        ("another protocol", v4, |p| p[12] = 0x88, |c| c.rx_foreign = 1),
        ("TCP", v4, |p| p[14 + 9] = 6, |c| c.rx_foreign = 1),
        ("another UDP port", v4, |p| p[14 + 23] = 1, |c| c.rx_foreign = 1),
        ("another UDP port", v6, |p| p[14 + 43] = 1, |c| c.rx_foreign = 1),
        ("an extension header", v6, |p| p[14 + 6] = 44, |c| c.rx_foreign = 1),
        ("options", v4, |p| p[14] = 0x46, |c| c.rx_foreign = 1),
        (
            "options before the right port",
            v4,
            |p| {
                p[14] = 0x46;
                p.splice(34..34, [1; 4]);
            },
            |c| c.rx_options = 1,
        ),
        ("a first fragment", v4, |p| p[14 + 6] = 0x20, |c| c.rx_fragments = 1),
        ("a later fragment", v4, |p| p[14 + 7] = 9, |c| c.rx_fragments = 1),
        ("a flipped bit in the header", v4, |p| p[14 + 8] ^= 1, |c| c.rx_checksum = 1),
        ("another address", v6, |p| p[14 + 39] = 9, |c| c.rx_other_address = 1),
        ("from this station's address", v6, |p| p[14 + 23] = 2, |c| c.rx_malformed = 1),
        ("from nobody", v6, |p| p[14 + 8..14 + 24].fill(0), |c| c.rx_malformed = 1),
        ("from a group", v6, |p| p[14 + 8] = 0xff, |c| c.rx_malformed = 1),
        ("cut short", v6, |p| p.truncate(80), |c| c.rx_malformed = 1),
        ("IPv6 that says IPv4", v6, |p| p[12..14].copy_from_slice(&[8, 0]), |c| c.rx_malformed = 1),
        ("nothing but addresses", v4, |p| p.truncate(13), |c| c.rx_malformed = 1),
    ];
    for (what, path, change, set) in changes {
        let mut packet = roce(&path, None);
        change(&mut packet);
        let (frame, answers, counters) = take(&mut station(None), &packet);
        assert_eq!((frame, counters), (None, counted(set)), "{what}");
        assert!(answers.is_empty(), "{what}");
    }
}

#[test]
fn a_station_of_a_vlan_hears_nothing_else() {
    for path in paths() {
        let other = counted(|c| c.rx_other_vlan = 1);
        assert_eq!(take(&mut station(Some(5)), &roce(&path, None)), (None, vec![], other));
        assert_eq!(take(&mut station(Some(5)), &roce(&path, Some(6))), (None, vec![], other));
        assert_eq!(take(&mut station(Some(5)), &roce(&path, Some(5))).0, Some(path));
        // A priority tag belongs to no VLAN.
        let mut packet = roce(&path, None);
        packet.splice(12..12, [0x81, 0, 0xe0, 0]);
        assert_eq!(take(&mut station(None), &packet).0, Some(path));
        // A tag stripped by the carrier counts as present.
        let packet = roce(&path, None);
        let arrival = station(Some(5)).receive(Time::ZERO, &packet, Some(0xe005), &mut |_| panic!("an answer"));
        assert!(matches!(arrival, Arrival::Frame { .. }));
    }
}

#[test]
fn groups_are_the_stations_while_it_is_a_member() {
    for (src, group) in [("10.0.0.1", "239.1.2.3"), ("fd00::1", "ff0e::5")] {
        let path = Path { src: ip(src), dst: ip(group), ..paths()[0] };
        let mut packet = roce(&path, None);
        let mut link = station(None);
        packet[..6].copy_from_slice(&Mac::of_group(ip(group)).0);
        assert_eq!(take(&mut link, &packet).0, None);
        assert!(link.join(ip(group)) && link.join(ip(group)));
        assert_eq!(take(&mut link, &packet).0, Some(path));
        let mut to_another = packet.clone();
        to_another[5] ^= 1;
        assert_eq!(take(&mut link, &to_another).0, None, "the link-layer address is another group's");
        link.leave(ip(group));
        assert_eq!(take(&mut link, &packet).0, None);
        assert_eq!(link.counters().rx_other_address, 3);
        assert_eq!(link.way(Time::ZERO, ip(group)).0, Way::Send(Mac::of_group(ip(group))));
    }
    let mut link = station(None);
    assert!((0..MAX_GROUPS).all(|i| link.join(IpAddr::from([239, 0, 0, i as u8]))));
    assert!(!link.join(ip("239.9.9.9")), "there is a limit");
}

/// Two stations, no carrier: each request is answered, and the answer is taken.
#[test]
fn stations_find_each_other() {
    for (vlan, address, source) in [
        (None, "10.0.0.2", "10.0.0.1"),
        (Some(3), "10.0.0.2", "10.0.0.1"),
        (None, "fd00::2", "fd00::1"),
        (Some(4), "fe80::2", "fe80::1"),
    ] {
        let (mut a, mut b) = (peer(vlan), station(vlan));
        assert_eq!(a.way(Time::ZERO, ip(address)), (Way::Pending, None));
        let mut wire = Vec::new();
        a.poll(Time::ZERO, &mut |packet| wire.push(packet.to_vec()), &mut |_| panic!("given up"));
        let (_, answers, counters) = take(&mut b, &wire[0]);
        assert_eq!((answers.len(), counters), (1, counted(|c| c.neighbour_replies = 1)));
        assert_eq!(answers[0][..6], PEER.0);
        let arrival = a.receive(Time::ZERO, &answers[0], None, &mut |_| panic!("an answer to an answer"));
        let Arrival::Neighbour(who, OWN) = arrival else { panic!("{arrival:?}") };
        assert_eq!(who, ip(address));
        assert_eq!(a.way(Time::ZERO, ip(address)).0, Way::Send(OWN));
        // The station that was asked knows the address of the asking one.
        assert_eq!(b.way(Time::ZERO, ip(source)).0, Way::Send(PEER), "{source}");
        // After half a minute only the station with the address is asked.
        let later = Time(40_000_000_000);
        assert_eq!(a.way(later, ip(address)).0, Way::Send(OWN));
        wire.clear();
        a.poll(later, &mut |packet| wire.push(packet.to_vec()), &mut |_| panic!("given up"));
        assert_eq!(wire[0][..6], OWN.0);
        assert_eq!(take(&mut b, &wire[0]).1.len(), 1);
    }
}

#[test]
fn a_probe_for_a_duplicate_is_answered_and_teaches_nothing() {
    let mut link = station(None);
    let mut arp = request("10.0.0.2");
    arp[14 + 14..14 + 18].fill(0);
    let (_, answers, _) = take(&mut link, &arp);
    assert_eq!(answers.len(), 1);
    let probe = Nd {
        src: Ipv6Addr::UNSPECIFIED,
        dst: nd::solicited_node("fd00::2".parse().unwrap()),
        target: "fd00::2".parse().unwrap(),
        mac: None,
        kind: Kind::Solicitation,
    };
    let mut packet = [0; 128];
    let at = ethernet::emit(Mac::of_group(probe.dst.into()), PEER, None, 0, ETHERTYPE_IPV6, &mut packet);
    let mut message = [0; nd::MAX_LEN];
    let len = probe.emit(&mut message);
    packet[at..at + len].copy_from_slice(&message[..len]);
    let (_, answers, _) = take(&mut link, &packet[..at + len]);
    assert_eq!(answers[0][..6], [0x33, 0x33, 0, 0, 0, 1], "to all nodes");
    let answer = Nd::parse(&answers[0][14..]).unwrap();
    assert_eq!((answer.dst, answer.kind), (nd::ALL_NODES, Kind::Advertisement { solicited: false, replaces: true }));
}

#[test]
fn nonsense_in_arp_is_refused() {
    let good = request("10.0.0.2");
    for (what, at, bytes) in [
        ("a group as the sender's station", 14 + 8, &[1, 0, 0, 0, 0, 1][..]),
        ("nobody as the sender's station", 14 + 8, &[0; 6]),
        ("a group as sender", 14 + 14, &[239, 0, 0, 1]),
        ("this station as sender", 14 + 14, &[10, 0, 0, 2]),
        ("another kind", 14 + 7, &[9]),
    ] {
        let mut packet = good.clone();
        packet[at..at + bytes.len()].copy_from_slice(bytes);
        let mut link = station(None);
        let seen = take(&mut link, &packet);
        assert_eq!(seen, (None, vec![], counted(|c| c.rx_malformed = 1)), "{what}");
    }
    // A request for another station is not answered, and does not fill the table.
    let mut link = station(None);
    assert_eq!(take(&mut link, &request("10.0.0.3")), (None, vec![], FrameCounters::default()));
    assert_eq!(link.way(Time::ZERO, ip("10.0.0.1")).0, Way::Pending);
}

/// Returns packets of every kind for a station, to be damaged.
fn samples() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = paths().iter().flat_map(|p| [roce(p, None), roce(p, Some(5))]).collect();
    all.extend(["10.0.0.2", "fd00::2", "fe80::2", "10.0.0.3"].map(request));
    let mut link = station(None);
    for address in ["10.0.0.2", "fd00::2"] {
        all.extend(take(&mut link, &request(address)).1);
    }
    all
}

proptest! {
    /// Never panics; every packet is a frame, a neighbour, an answer, or counted, or for another station.
    #[test]
    fn damaged_packets_do_no_harm(
        which: prop::sample::Index,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
        tag: Option<u16>,
        vlan in prop::option::of(1..4095_u16),
    ) {
        let samples = samples();
        let mut packet = which.get(&samples).clone();
        for (at, value) in damage {
            let at = at.index(packet.len());
            packet[at] = value;
        }
        if let Some(cut) = cut {
            packet.truncate(cut.index(packet.len()));
        }
        let mut link = station(vlan);
        let mut answers = 0;
        let arrival = link.receive(Time::ZERO, &packet, tag, &mut |answer| {
            assert!((MIN_PACKET..=MAX_CONTROL).contains(&answer.len()));
            answers += 1;
        });
        if let Arrival::Frame { datagram, .. } = &arrival {
            prop_assert!(link.is_own(datagram.path.dst) && !link.is_own(datagram.path.src));
        }
        prop_assert!(answers <= 1);
        prop_assert_eq!(link.counters().neighbour_replies, answers);
        prop_assert!(!matches!(arrival, Arrival::Neighbour(..)), "nobody was asked");
    }
}
