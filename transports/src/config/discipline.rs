//! Mechanisms that select and mark the packets of a reliable connection, in addition to loss recovery. A connection has
//! one at most.

use super::ConfigError;

/// The mechanism that selects and marks the packets of reliable connections.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Discipline {
    /// Loss recovery alone.
    None,
    /// Receivers request each packet, as in NDP. Loss recovery, cap and NACKs then apply to the other packets.
    Pull(PullConfig),
    /// Packets are marked as important and unimportant (TLT).
    Tlt(TltConfig),
    /// Tail loss probes (RFC 8985 §7) of requests, for timers other than [`Timer::Estimated`](super::Timer::Estimated),
    /// which has its own. Minimum time from the last packet received to a probe, 1 ns or more.
    Tlp(u64),
    /// Packets held back by the window are sent at lower priorities (RC3).
    Rc3(Rc3Config),
}

impl Discipline {
    /// Returns its name in error messages, that of its parameter or preset; `None` for none.
    pub fn name(&self) -> Option<&'static str> {
        match self {
            Discipline::None => None,
            Discipline::Pull(_) => Some("ndp"),
            Discipline::Tlt(_) => Some("tlt"),
            Discipline::Tlp(_) => Some("tlp"),
            Discipline::Rc3(_) => Some("rc3"),
        }
    }

    /// Returns the configuration of pulls.
    #[inline]
    pub fn pull(&self) -> Option<&PullConfig> {
        if let Discipline::Pull(pull) = self { Some(pull) } else { None }
    }

    /// Returns the configuration of pulls, to change it.
    pub fn pull_mut(&mut self) -> Option<&mut PullConfig> {
        if let Discipline::Pull(pull) = self { Some(pull) } else { None }
    }

    /// Returns the configuration of TLT.
    #[inline]
    pub fn tlt(&self) -> Option<&TltConfig> {
        if let Discipline::Tlt(tlt) = self { Some(tlt) } else { None }
    }

    /// Returns the configuration of TLT, to change it.
    pub fn tlt_mut(&mut self) -> Option<&mut TltConfig> {
        if let Discipline::Tlt(tlt) = self { Some(tlt) } else { None }
    }

    /// Returns the configuration of RC3.
    #[inline]
    pub fn rc3(&self) -> Option<&Rc3Config> {
        if let Discipline::Rc3(rc3) = self { Some(rc3) } else { None }
    }

    /// Returns the configuration of RC3, to change it.
    pub fn rc3_mut(&mut self) -> Option<&mut Rc3Config> {
        if let Discipline::Rc3(rc3) = self { Some(rc3) } else { None }
    }

    /// Checks that none but that of this name is selected.
    ///
    /// # Errors
    /// [`ConfigError::Exclusive`] if another one is.
    pub(super) fn check_free(&self, name: &'static str) -> Result<(), ConfigError> {
        self.name().filter(|one| *one != name).map_or(Ok(()), |one| Err(ConfigError::Exclusive(one, name)))
    }

    /// Switches the discipline of this name off, if it is selected.
    pub(super) fn switch_off(&mut self, name: &str) {
        if self.name() == Some(name) {
            *self = Discipline::None;
        }
    }
}

/// A stream whose receiver requests each packet (NDP §3.2).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PullConfig {
    /// Packets sent without a request: NDP's initial window, 1 to 4,096.
    pub window: u32,
    /// Paths to choose from, 1 to 256: UDP source ports from 0xc000 on. 0 for the number of paths in the simulated
    /// network, and 1 in a real one, which does not report it.
    pub paths: u16,
    /// Whether paths that lose a disproportionate share of packets are temporarily excluded (§3.2.3).
    pub penalty: bool,
    /// Whether returned packets are handled (§3.2.4).
    pub returns: bool,
    /// Rate of this end's pulls, in thousandths of the rate that fills
    /// [`line_rate`](super::TransportConfig::line_rate) with full packets.
    pub rate: u32,
    /// Class of this end's pulls, 0 to 7: those of lower classes go first.
    pub class: u8,
}

impl PullConfig {
    /// [`Self::rate`] that fills the line.
    pub const FULL_RATE: u32 = 1000;
    /// The paper's initial window (§6.2; most of its authors' scripts have 23).
    pub const WINDOW: u32 = 30;
}

/// Rules by which TLT (EuroSys 2021) marks packets as important.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum TltMode {
    /// The rules for windows with selective recovery in the IRN format, otherwise those for rates.
    On,
    /// One packet of each stream at a time, which is echoed (§5.1).
    Window,
    /// The last packet, the first and the last of each round of retransmissions, and every Nth; no echo (§5.2).
    Rate,
}

/// Packet that keeps the ACK clock of a stream with a window running when its echo has arrived and nothing may be sent
/// (§5.1).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum TltClock {
    /// The first lost packet if any, else a packet without payload.
    Adaptive,
    /// The first lost packet, or else the first unacknowledged one.
    Mtu,
    /// A packet without payload in either case; losses are left to the recovery.
    Probe,
}

/// The first important packet of a stream.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum TltFirst {
    /// The last of the initial window (§5.1).
    Window,
    /// The first, as in the authors' RDMA simulator.
    Packet,
}

/// Configuration of TLT.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TltConfig {
    /// Rules.
    pub mode: TltMode,
    /// For windows.
    pub clock: TltClock,
    /// For windows.
    pub first: TltFirst,
    /// For rates: one packet in this many is important, 0 for none.
    pub every: u32,
}

impl TltConfig {
    /// The defaults.
    pub const DEFAULT: TltConfig =
        TltConfig { mode: TltMode::On, clock: TltClock::Adaptive, first: TltFirst::Window, every: 96 };
}

/// RC3 (NSDI 2014; dissertation chapter 2): a second loop sends packets that the window holds back, from the last one
/// backwards, at lower priorities.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Rc3Config {
    /// Packets sent at the first of the low priorities, 1 to 65,536; each further one takes ten times as many as the
    /// one before it (§2.1.1).
    pub slots: u32,
    /// Low priorities, 1 to 7. The rest goes at the last.
    pub levels: u8,
    /// Packets beyond the first unacknowledged one up to which low priority sends; both ends track at least this many.
    /// A power of two from 64 to 65,536.
    pub reach: u32,
}

impl Rc3Config {
    /// The defaults: 40 packets at the first of three priorities (§2.1.1), of which the last begins at the 441st packet
    /// from the end, and a reach of the largest bandwidth-delay product of §2.4.
    pub const DEFAULT: Rc3Config = Rc3Config { slots: 40, levels: 3, reach: 8192 };

    /// Returns how many priorities below its stream's the `k`-th packet from the end is sent, counted from 1: the first
    /// for the last `slots` packets, the second for ten times as many before those, and so on.
    pub fn level(&self, k: u32) -> u8 {
        let (mut level, mut size, mut end) = (1, u64::from(self.slots), u64::from(self.slots));
        while u64::from(k) > end && level < self.levels {
            level += 1;
            size *= 10;
            end += size;
        }
        level
    }
}
