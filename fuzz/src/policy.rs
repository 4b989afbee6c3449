//! Policies of switches.

use irnic_openqueue::{Engine, Host, Packet, Policy, Seen, Surroundings, Verdict, Waiting};

/// What a policy asks for is taken note of by nobody.
struct Nothing {
    random: u64,
    links: [u32; 40],
    packets: [Packet; 40],
}

impl Waiting for Nothing {
    fn next(&self, id: u32) -> u32 {
        self.links[id as usize]
    }

    fn seen(&self, id: u32) -> Seen {
        let Packet { size, input, priority, red, .. } = self.packets[id as usize];
        Seen { size, input, priority, red }
    }
}

impl Host for Nothing {
    fn set_next(&mut self, id: u32, next: u32) {
        self.links[id as usize] = next;
    }

    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        self.random
    }

    fn mark(&mut self, _id: u32) {}

    fn pause(&mut self, _input: u16, _priority: u8, _stop: bool) {}

    fn is_sending(&self, _output: u16) -> bool {
        false
    }

    fn push_out(&mut self, _id: u32) {}

    fn can_trim(&self, id: u32) -> bool {
        !self.packets[id as usize].control
    }

    fn trim(&mut self, id: u32) -> Option<u32> {
        let packet = &mut self.packets[id as usize];
        let cut = packet.size - 60;
        (packet.size, packet.control) = (60, true);
        // Some are damaged.
        (!cut.is_multiple_of(7)).then_some(cut)
    }

    fn turn_back(&mut self, id: u32) -> bool {
        self.packets[id as usize].control && id.is_multiple_of(2)
    }
}

/// Any text is a policy that runs, or is refused in one line that says where; what comes to a policy leaves it, waits
/// in it or is dropped.
pub fn policy_parser(text: &str) {
    let policy: Policy = match text.parse() {
        Ok(policy) => policy,
        Err(error) => {
            let lines = text.lines().count().max(1) + 1;
            assert!((1..=lines).contains(&(error.at.line as usize)), "{text:?}: {error}");
            return assert!(!error.to_string().contains('\n'), "{error:?} has several lines");
        }
    };
    let ports = policy.fixed_ports().unwrap_or(2);
    let Ok(plan) = policy.plan(ports) else { return };
    _ = plan.to_string();
    let mut engine = Engine::new(
        &plan,
        &Surroundings { rates: vec![1_000_000_000; ports], headroom: vec![3_000; ports], priorities: 8 },
    );
    let mut host = Nothing { random: 1, links: [0; 40], packets: [Packet::default(); 40] };
    for id in 0..40 {
        let random = host.random();
        let packet = Packet {
            arrival: id.into(),
            size: 60 + (random >> 40) as u32 % 1_500,
            value: (random >> 20) as i64 & 0xff,
            processing: 1 + (random >> 30) as i64 % 5,
            slack: (random >> 8) as i64 & 0xfff,
            flow: random >> 60,
            input: (id as usize % ports) as u16,
            output: ((random >> 33) as usize % ports) as u16,
            priority: (random >> 50) as u8 % 8,
            ..Packet::default()
        };
        host.packets[id as usize] = packet;
        if engine.arrive(&mut host, id, packet) == Verdict::Dropped || id % 3 == 0 {
            engine.depart(&mut host, packet.output, 0);
        }
        engine.advance(&mut host, u64::from(id) * 500);
    }
    // Time goes on as long as packets are on their way to queues, from which they then leave.
    let mut now = 40 * 500;
    loop {
        for output in 0..ports as u16 {
            while engine.depart(&mut host, output, 0).is_some() {}
        }
        match engine.advance(&mut host, now) {
            Some(next) => now = next,
            None if (0..ports as u16).all(|output| engine.backlog(output) == 0) => break,
            None => assert!((0..ports as u16).any(|output| engine.next_of(&host, output).is_some()), "{text:?}"),
        }
    }
    let counters = engine.counters();
    assert_eq!(
        counters.arrived.0,
        counters.refused.0 + counters.pushed_out.0 + counters.returned.0 + counters.sent.0,
        "{text:?}"
    );
}
