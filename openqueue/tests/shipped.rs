//! Policies that come with irnic, packet by packet.

use irnic_openqueue::{Engine, Host, Packet, Policy, Seen, Shipped, Surroundings, Verdict, Waiting};

/// A host that cuts everything to 64 bytes, and whose link may be sending.
#[derive(Default)]
struct Link {
    links: Vec<u32>,
    packets: Vec<Packet>,
    sending: bool,
    /// What a coin says.
    heads: bool,
    returned: Vec<u32>,
}

impl Waiting for Link {
    fn next(&self, id: u32) -> u32 {
        self.links[id as usize]
    }

    fn seen(&self, id: u32) -> Seen {
        let Packet { size, input, priority, red, .. } = self.packets[id as usize];
        Seen { size, input, priority, red }
    }
}

impl Host for Link {
    fn set_next(&mut self, id: u32, next: u32) {
        self.links[id as usize] = next;
    }

    fn random(&mut self) -> u64 {
        0
    }

    fn mark(&mut self, _id: u32) {}

    fn pause(&mut self, _input: u16, _priority: u8, _stop: bool) {}

    fn is_sending(&self, _output: u16) -> bool {
        self.sending
    }

    fn push_out(&mut self, _id: u32) {}

    fn coin(&mut self) -> bool {
        self.heads
    }

    fn can_trim(&self, id: u32) -> bool {
        !self.packets[id as usize].control
    }

    fn trim(&mut self, id: u32) -> Option<u32> {
        let packet = &mut self.packets[id as usize];
        let cut = packet.size - 64;
        (packet.size, packet.control) = (64, true);
        Some(cut)
    }

    fn turn_back(&mut self, id: u32) -> bool {
        self.returned.push(id);
        true
    }
}

/// A packet arrives, with the next number.
fn arrive(engine: &mut Engine, host: &mut Link, packet: Packet) -> Verdict {
    host.packets.push(packet);
    host.links.push(0);
    engine.arrive(host, host.packets.len() as u32 - 1, packet)
}

fn engine(name: &str, parameters: &[(&str, &str)]) -> Engine {
    let mut policy: Policy = Shipped::named(name).unwrap().text.parse().unwrap();
    parameters.iter().for_each(|(name, value)| policy.set(name, value).unwrap());
    Engine::new(&policy.plan(1).unwrap(), &Surroundings::default())
}

const FULL: Packet = Packet { size: 1_000, ..EMPTY };
const HEADER: Packet = Packet { size: 64, control: true, ..EMPTY };
const EMPTY: Packet = Packet {
    arrival: 0,
    size: 0,
    value: 0,
    processing: 1,
    slack: 0,
    flow: 0,
    input: 0,
    output: 0,
    priority: 0,
    dscp: 0,
    control: false,
    red: false,
};

#[test]
fn trimming_sends_so_many_headers_for_each_payload_while_both_wait() {
    let (mut engine, mut host) = (engine("trimming", &[("ratio", "3")]), Link::default());
    // Alone, neither counts.
    for packet in [HEADER, FULL, HEADER, FULL] {
        arrive(&mut engine, &mut host, packet);
        engine.depart(&mut host, 0, 0).unwrap();
    }
    (0..10).for_each(|_| assert_eq!(arrive(&mut engine, &mut host, HEADER), Verdict::Queued));
    (0..4).for_each(|_| assert_eq!(arrive(&mut engine, &mut host, FULL), Verdict::Queued));
    let went: String =
        std::iter::from_fn(|| engine.depart(&mut host, 0, 0)).map(|id| if is_header(id) { 'h' } else { 'p' }).collect();
    assert_eq!(went, "hhhphhhphhhphp");
}

/// The first four were alone, ten headers came next.
fn is_header(id: u32) -> bool {
    id < 14
}

#[test]
fn trimming_counts_what_is_being_sent() {
    let sizes = [("data", "3000"), ("headers", "192"), ("returns", "off")];
    let (mut engine, mut host) = (engine("trimming", &sizes), Link::default());
    (0..3).for_each(|_| assert_eq!(arrive(&mut engine, &mut host, FULL), Verdict::Queued));
    assert_eq!(engine.depart(&mut host, 0, 0), Some(0));
    host.sending = true;
    // It takes room of its kind until it has left.
    assert_eq!(arrive(&mut engine, &mut host, FULL), Verdict::Trimmed(936));
    (0..2).for_each(|_| assert_eq!(arrive(&mut engine, &mut host, HEADER), Verdict::Queued));
    assert_eq!(arrive(&mut engine, &mut host, HEADER), Verdict::Dropped);
    host.sending = false;
    assert_eq!(arrive(&mut engine, &mut host, FULL), Verdict::Queued);
}

#[test]
fn a_coin_cuts_the_last_that_waits_and_its_header_joins_the_others() {
    let (mut engine, mut host) = (engine("trimming", &[("data", "3000"), ("headers", "128")]), Link::default());
    (0..3).for_each(|_| assert_eq!(arrive(&mut engine, &mut host, FULL), Verdict::Queued));
    assert_eq!(arrive(&mut engine, &mut host, FULL), Verdict::Trimmed(936));
    host.heads = true;
    // The third gives way, then the fifth; the header of the latter finds no room.
    assert_eq!(arrive(&mut engine, &mut host, FULL), Verdict::Queued);
    assert_eq!(arrive(&mut engine, &mut host, FULL), Verdict::Queued);
    assert_eq!(host.returned, [4]);
    let went: Vec<u32> = std::iter::from_fn(|| engine.depart(&mut host, 0, 0)).collect();
    assert_eq!(went, [3, 2, 0, 1, 5]);
    let counters = engine.counters();
    assert_eq!((counters.trimmed, counters.returned, counters.pushed_out), ((3, 3 * 936), (1, 64), (0, 0)));
}

#[test]
fn colours_drop_red_packets_beyond_their_threshold_and_no_green_ones() {
    let parameters = [("colours", "on"), ("threshold", "2000"), ("buffer", "100KB")];
    let (mut engine, mut host) = (engine("shared-buffer", &parameters), Link::default());
    let red = Packet { red: true, ..FULL };
    let verdicts = [red, FULL, red, red, FULL].map(|packet| arrive(&mut engine, &mut host, packet));
    let [queued, dropped] = [Verdict::Queued, Verdict::Dropped];
    assert_eq!(verdicts, [queued, queued, queued, dropped, queued]);
    assert_eq!(engine.red_peak(0), Some(2_000));
    // A green one goes as well as a red one; room is only where a red one has gone.
    engine.depart(&mut host, 0, 0).unwrap();
    assert_eq!(arrive(&mut engine, &mut host, red), queued);
    engine.depart(&mut host, 0, 0).unwrap();
    assert_eq!(arrive(&mut engine, &mut host, red), dropped);
}
