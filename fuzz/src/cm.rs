//! Messages from anywhere and calls of an application, against a communication manager.

use std::net::SocketAddr;

use irnic_cm::{Cm, CmConfig, CmId, ConnParam, EventKind, PortSpace, PrivateData, QpKind, Route};
use irnic_transports::qp::QpState;
use irnic_transports::wire::Mtu;
use irnic_transports::wire::mad::{MAD_LEN, Mad};
use irnic_transports::{Path, Time};

/// Bytes, as choices; zeros at the end.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((&byte, rest)) => {
                self.0 = rest;
                byte
            }
            None => 0,
        }
    }

    /// One of some.
    fn of<T: Copy>(&mut self, some: &[T]) -> Option<T> {
        let byte = usize::from(self.byte());
        if some.is_empty() { None } else { Some(some[byte % some.len()]) }
    }
}

const SELF: [u8; 4] = [10, 0, 0, 1];
const PEER: [u8; 4] = [10, 0, 0, 2];

fn path(src: [u8; 4], dst: [u8; 4]) -> Path {
    Path { src: src.into(), dst: dst.into(), udp_src: 0xc000, traffic_class: 0, hop_limit: 64 }
}

/// Never a panic, never more ids and connections than configured, no event of an id that is gone; and when all ids are
/// destroyed nothing is left, after a while.
///
/// Returns the kinds of events that there were.
pub fn cm_receive(data: &[u8]) -> Vec<EventKind> {
    let mut choices = Choices(data);
    let mut config = CmConfig::new([1; 32], 7, 0, 64);
    (config.max_ids, config.max_ended, config.max_mads, config.max_backlog) = (24, 8, 16, 4);
    let mut cm = Cm::new(config);
    let (mut now, mut ids) = (Time(1), Vec::<CmId>::new());
    // Communication ids that have been seen in messages of the manager's.
    let mut seen = vec![0_u32];
    let mut kinds = Vec::new();
    while !choices.0.is_empty() {
        match choices.byte() % 4 {
            0 | 1 => {
                let mad = mad(&mut choices, &seen);
                cm.receive(now, &path(PEER, SELF), &mad);
            }
            2 => call(&mut cm, now, &mut choices, &mut ids),
            _ => {
                now += u64::from(choices.byte()) << 22;
                cm.on_deadline(now);
                assert!(cm.next_deadline() > now);
            }
        }
        while let Some((_, mad)) = cm.poll_mad() {
            Mad::parse(&mad).expect("what a manager sends parses");
            let id = u32::from_be_bytes([mad[24], mad[25], mad[26], mad[27]]);
            if seen.len() < 64 && !seen.contains(&id) {
                seen.push(id);
            }
        }
        while let Some(event) = cm.poll_event() {
            kinds.push(event.kind);
            if event.listener.is_some() {
                ids.push(event.id);
            }
            assert!(ids.contains(&event.id), "{event:?} of an id that is gone");
        }
        assert!(cm.id_count() == ids.len() && ids.len() <= 24);
        // With their owners there are those without.
        assert!(cm.connection_count() <= 24 + 8 + 1, "{}", cm.connection_count());
    }
    for id in ids {
        cm.destroy(now, id).expect("an id");
    }
    for _ in 0..10_000 {
        let next = cm.next_deadline();
        if next == Time::NEVER {
            break;
        }
        cm.on_deadline(next);
        assert!(cm.poll_event().is_none());
    }
    assert_eq!((cm.id_count(), cm.connection_count(), cm.next_deadline()), (0, 0, Time::NEVER));
    kinds
}

/// A message of any kind, with communication ids that mean something.
fn mad(choices: &mut Choices<'_>, seen: &[u32]) -> [u8; MAD_LEN] {
    let mut mad = [0; MAD_LEN];
    mad[..4].copy_from_slice(&[1, 7, 2, 3]);
    mad[17] = 0x10 + choices.byte() % 11;
    let service = matches!(mad[17], 0x10 | 0x17);
    if let Some(id) = choices.of(seen) {
        mad[24..28].copy_from_slice(&id.to_be_bytes());
    }
    if let Some(id) = choices.of(seen).filter(|_| !service) {
        mad[28..32].copy_from_slice(&id.to_be_bytes());
    }
    if service {
        mad[36..40].copy_from_slice(&[1, 6 + choices.byte() % 2 * 11, 0, 7]);
        mad[24] ^= choices.byte();
    }
    // A few bytes anywhere behind.
    for _ in 0..choices.byte() % 8 {
        let at = 40 + usize::from(choices.byte()) % (MAD_LEN - 40);
        mad[at] = choices.byte();
    }
    mad
}

fn call(cm: &mut Cm, now: Time, choices: &mut Choices<'_>, ids: &mut Vec<CmId>) {
    let param = ConnParam::new(u32::from(choices.byte()));
    let (what, id) = (choices.byte() % 11, choices.of(ids));
    let (space, kind) =
        if choices.byte().is_multiple_of(4) { (PortSpace::Udp, QpKind::Ud) } else { (PortSpace::Tcp, QpKind::Rc) };
    let addr = |ip: [u8; 4]| SocketAddr::from((ip, 7));
    if what < 2 {
        ids.extend(cm.create(space, kind).ok());
        return;
    }
    let Some(id) = id else { return };
    // Refusals are answers, too.
    _ = match what {
        2 => cm.bind(id, SocketAddr::from(([0, 0, 0, 0], 7)), true).and_then(|()| cm.listen(id, 3)),
        3 => cm.bind_service(id, 0x0106_0007, !0xf),
        4 => cm.resolve(id, Route::new(addr(SELF), addr(PEER), path(SELF, PEER), Mtu::B1024)),
        5 => cm.connect(now, id, &param),
        6 => cm.accept(now, id, Some(&param)),
        7 => cm.accept(now, id, None),
        8 => cm.reject(now, id, 28, &PrivateData::EMPTY),
        9 => cm.disconnect(now, id),
        _ => cm.establish(now, id),
    };
    for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
        _ = cm.qp_attr(id, state);
    }
    if choices.byte().is_multiple_of(8) {
        cm.destroy(now, id).expect("an id");
        ids.retain(|&other| other != id);
    }
}
