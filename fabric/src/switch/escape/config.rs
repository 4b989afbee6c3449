//! Parameters of Escape.

/// Whether escaping frames stay behind earlier frames of their flow.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// A frame that arrives by an escape queue while earlier ones of its flow wait in the regular queue swaps places
    /// with the first of them.
    #[default]
    Strict,
    /// The frame goes first, as the algorithm was published.
    Printed,
}

/// Interval at which a switch sends tokens by an input that has its neighbour paused (Δ^esc).
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Period {
    /// A multiple of the delay of the input's link.
    Delays(f64),
    /// ns.
    Fixed(u64),
}

/// Parameters of Escape (dissertation §4.3). The dissertation gives a value for Δ^esc only; the defaults are explained
/// in docs/escape.md.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct EscapeConfig {
    /// Tokens of each output, equal to the capacity of its escape queue in frames; 1 or more.
    pub pool: u16,
    /// Number of the most recent flows that an input remembers; 1 or more.
    pub flows: u16,
    /// Δ^esc.
    pub period: Period,
    /// Time without a change after which an output reclaims a token, ns. Default: the most that a token and its frame
    /// take through the network (§4.3.3.5).
    pub reclaim: Option<u64>,
    /// Whether a token that finds nothing is answered, so that the switches that reserved a slot for it reclaim it at
    /// once, as in the authors' prototype.
    pub nack: bool,
    /// Order of a flow's frames.
    pub order: Order,
    /// Length of the header that escaping frames carry between UDP and BTH, bytes.
    pub tag: u32,
}

impl Default for EscapeConfig {
    /// Eight tokens; 1024 flows (§4.5.2); Δ^esc of twice the link's delay (§4.3.2); answers, as in the prototype;
    /// strict order; a tag of two bytes.
    fn default() -> EscapeConfig {
        EscapeConfig {
            pool: 8,
            flows: 1024,
            period: Period::Delays(2.0),
            reclaim: None,
            nack: true,
            order: Order::Strict,
            tag: 2,
        }
    }
}

impl EscapeConfig {
    /// Length of frames that [`Self::reclaim`] assumes, bytes: that of the largest MTU of InfiniBand.
    const FRAME: u64 = 4_096 + 128;

    /// Bytes that the neighbour of an output needs in addition to the headroom of PFC, for frames of at most `longest`
    /// bytes on the wire: what an escape queue holds when the neighbour pauses the output is sent all the same (§4.4.3,
    /// case 2).
    pub fn margin(&self, longest: u32) -> u64 {
        u64::from(self.pool) * u64::from(longest + self.tag)
    }

    /// Token interval of an input whose link has this delay, ns: not less than a control frame takes at 5 Gbit/s.
    pub(super) fn period(&self, delay: u64) -> u64 {
        let ns = match self.period {
            Period::Delays(times) => (delay as f64 * times) as u64,
            Period::Fixed(ns) => ns,
        };
        ns.max(100)
    }

    /// Default of [`Self::reclaim`] in a network with this many switches, at most this link delay, ns, and at least
    /// this link rate, bit/s: a token goes up past all switches but at most eight, and a frame comes down behind all
    /// that can be in the escape queues.
    pub(crate) fn reclaim_in(&self, switches: u32, delay: u64, rate: u64) -> u64 {
        let frame = u128::from(Self::FRAME) * 8_000_000_000 / u128::from(rate.max(1));
        let hop =
            delay.saturating_add((u128::from(self.pool) + 2).saturating_mul(frame).min(u128::from(u64::MAX)) as u64);
        self.reclaim.unwrap_or_else(|| hop.saturating_mul(2 * u64::from(switches.clamp(1, 8)))).max(1)
    }
}
