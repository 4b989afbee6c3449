//! Many to one: data striped over hosts that all send at once (IRN §4.3.4, "Incast").

use super::random::{Purpose, Random};
use super::{Flow, Setting, sort};
use crate::input::Error;

/// An incast, once or repeatedly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incast {
    /// How many hosts send, drawn anew for each repetition; 1 or more.
    pub senders: u32,
    /// What they send together, bytes, at least one each. The first take what an even division leaves over.
    pub bytes: u64,
    /// Who receives; `None` draws it anew for each repetition.
    pub to: Option<u32>,
    /// When the first begins, ns.
    pub start: u64,
    /// From the beginning of one to the beginning of the next, ns.
    pub every: u64,
    /// How many times; 1 or more.
    pub repeat: u32,
}

impl Default for Incast {
    /// 150 MB from 30 hosts (IRN §4.3.4) to host 0, once; repeated, every 100 ms, which at 10 Gbit/s is not yet enough.
    fn default() -> Incast {
        Incast { senders: 30, bytes: 150_000_000, to: Some(0), start: 0, every: 100_000_000, repeat: 1 }
    }
}

/// Draws who sends to whom.
pub fn generate(incast: &Incast, setting: &Setting<'_>, class: u8) -> Result<Vec<Flow>, Error> {
    let wrong = |key: &str, value: u64, expected: String| {
        Err(Error::Value { of: "incast".to_owned(), key: key.to_owned(), value: value.to_string(), expected })
    };
    setting.needs_two_hosts("incast")?;
    let hosts = setting.topology.hosts;
    if !(1..hosts).contains(&incast.senders) {
        return wrong("senders", incast.senders.into(), format!("1 to {}, all hosts but the receiver", hosts - 1));
    }
    if incast.bytes < incast.senders.into() {
        return wrong("bytes", incast.bytes, format!("at least one for each of {} senders", incast.senders));
    }
    if let Some(to) = incast.to.filter(|to| *to >= hosts) {
        return wrong("to", to.into(), format!("a host, 0 to {}", hosts - 1));
    }

    let mut flows = Vec::new();
    for repetition in 0..incast.repeat {
        let mut random = Random::new(setting.seed, Purpose::Incast, class, repetition);
        let dst = incast.to.unwrap_or_else(|| random.below(hosts.into()) as u32);
        let mut others: Vec<u32> = (0..hosts).filter(|host| *host != dst).collect();
        let senders = u64::from(incast.senders);
        for chosen in 0..incast.senders {
            let at = chosen as usize;
            let with = at + random.below((others.len() - at) as u64) as usize;
            others.swap(at, with);
            let bytes = incast.bytes / senders + u64::from(u64::from(chosen) < incast.bytes % senders);
            let start = incast.start + u64::from(repetition) * incast.every;
            flows.push(Flow { src: others[at], dst, bytes, start, priority: setting.priority, class });
        }
    }
    sort(&mut flows);
    Ok(flows)
}
