//! Mechanisms that select and mark the packets of a reliable connection, in addition to loss recovery. A connection has
//! one at most.

use std::fmt;

use irnic_units::keys::{Key, Value, ValueError};
use irnic_units::{MAX_NS, Nanoseconds};

use super::text::{ConfigError, TransportKey, needs, on, set, window, word};
use super::{Timer, TransportConfig, WireFormat};
use crate::congestion::CongestionConfig;
use crate::footprint::{Ledger, Parts, Setup, bits, instant, why};
use crate::recovery::{Penalty, Recovery};

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

    /// Returns the number of priorities below a stream's that it sends at.
    pub fn low_levels(&self) -> u8 {
        self.rc3().map_or(0, |rc3| rc3.levels)
    }

    /// Returns whether packets carry marks, which switches may change.
    pub(crate) fn has_marks(&self) -> bool {
        matches!(self, Discipline::Tlt(_) | Discipline::Pull(_))
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
    /// How paths that lose a disproportionate share of packets are avoided (§3.2.3).
    pub penalty: Penalty,
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

impl TransportConfig {
    /// Returns the minimum time to a tail loss probe of the retransmission timer, ns, 0 without probes. With TLT by the
    /// rules for windows, RC3 or pulls, which handle tails, it has none.
    pub(crate) fn timer_probe(&self) -> u64 {
        match (self.timer, self.discipline) {
            (Timer::Estimated { .. }, Discipline::Pull(_) | Discipline::Rc3(_)) => 0,
            (Timer::Estimated { .. }, Discipline::Tlt(_)) if self.has_tlt_window() => 0,
            (Timer::Estimated { probe, .. }, _) => probe,
            _ => 0,
        }
    }

    /// Returns whether there are tail loss probes, of the retransmission timer or besides it.
    pub fn has_probes(&self) -> bool {
        match (self.timer, self.discipline) {
            (_, Discipline::Tlp(_)) => true,
            (Timer::Estimated { probe, .. }, _) => probe > 0,
            _ => false,
        }
    }

    /// Returns whether TLT marks packets by the rules for windows.
    pub fn has_tlt_window(&self) -> bool {
        let windows = self.wire == WireFormat::Irn && self.recovery == Recovery::Selective;
        self.discipline.tlt().is_some_and(|tlt| tlt.mode == TltMode::Window || tlt.mode == TltMode::On && windows)
    }

    /// Returns whether TLT marks packets by the rules for rates.
    pub fn has_tlt_rate(&self) -> bool {
        self.discipline.tlt().is_some() && !self.has_tlt_window()
    }

    /// Returns whether acknowledgements echo marks.
    pub(crate) fn echoes(&self) -> bool {
        self.has_tlt_window()
    }

    /// Returns the name of the discipline if it takes packets that are overtaken for lost, so that all packets must go
    /// one way.
    pub fn needs_one_way(&self) -> Option<&'static str> {
        self.discipline.name().filter(|_| self.has_tlt_window())
    }

    /// Returns the number of packets from the first missing one that both ends of a request stream track.
    pub fn tracked(&self) -> u32 {
        self.discipline.rc3().map_or(self.window, |rc3| self.window.max(rc3.reach))
    }

    /// Checks that the discipline is compatible with the other choices.
    pub(super) fn check_discipline(&self) -> Result<(), ConfigError> {
        let selective = self.wire == WireFormat::Irn && self.recovery == Recovery::Selective;
        match self.discipline {
            Discipline::None => return Ok(()),
            Discipline::Pull(_) if self.wire != WireFormat::Irn => return Err(ConfigError::Wire("ndp")),
            Discipline::Pull(_) if self.congestion != CongestionConfig::None => {
                return Err(ConfigError::PulledCongestion("ndp"));
            }
            Discipline::Tlt(_) if self.wire == WireFormat::Auto => return Err(ConfigError::AutoFormat("tlt")),
            // The rules for rates retransmit nothing.
            Discipline::Tlt(_) if !self.has_tlt_window() => return Ok(()),
            Discipline::Tlt(_) if !selective => return Err(ConfigError::Selective("tlt=window")),
            Discipline::Tlp(_) if self.has_estimated_timer() => return Err(ConfigError::Exclusive("rto-min", "tlp")),
            Discipline::Tlp(_) if !selective => return Err(ConfigError::Selective("tlp")),
            Discipline::Rc3(_) if !selective => return Err(ConfigError::Selective("rc3")),
            _ => {}
        }
        let delayed = self.discipline.name().filter(|_| self.retransmit_delay != 0);
        delayed.map_or(Ok(()), |name| Err(ConfigError::Delay(name)))
    }

    /// Formats the discipline, and the probes of the timer.
    pub(super) fn fmt_discipline(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Discipline::Pull(PullConfig { window, paths, penalty, returns, rate, class }) = self.discipline {
            write!(f, ",iw={window},paths=")?;
            match paths {
                0 => f.write_str("auto")?,
                paths => write!(f, "{paths}")?,
            }
            write!(f, ",penalty={},rts={}", word(&PENALTIES, penalty), on(returns))?;
            write!(f, ",pull-rate={},pull-class={class}", f64::from(rate) / f64::from(PullConfig::FULL_RATE))?;
            return write!(f, ",line-rate={}bit", self.line_rate);
        }
        if let Discipline::Tlt(TltConfig { mode, clock, first, every }) = self.discipline {
            write!(f, ",tlt={}", word(&TLT_MODES, Some(mode)))?;
            write!(f, ",tlt-clock={},tlt-first={}", word(&TLT_CLOCKS, clock), word(&TLT_FIRSTS, first))?;
            match every {
                0 => f.write_str(",tlt-every=none")?,
                every => write!(f, ",tlt-every={every}")?,
            }
        }
        match (self.timer, self.discipline) {
            (Timer::Estimated { probe: 0, .. }, _) => f.write_str(",tlp=off")?,
            (Timer::Estimated { probe: least, .. }, _) | (_, Discipline::Tlp(least)) => {
                write!(f, ",tlp={}", Nanoseconds(least))?;
            }
            _ => {}
        }
        if let Discipline::Rc3(Rc3Config { slots, levels, reach }) = self.discipline {
            write!(f, ",rc3={slots},rc3-levels={levels},rc3-reach={reach}")?;
        }
        Ok(())
    }
}

impl Parts for Discipline {
    fn list(&self, at: &Setup, ledger: &mut Ledger) {
        ledger.enter_sibling(at, "pull", bits(16 + 16 + 10).when(self.pull().is_some(), why::OFF));
        ledger.enter_sibling(at, "tlt", bits(16).when(self.tlt().is_some(), why::OFF));
        ledger.enter_sibling(at, "tlp", instant().when(at.probes, why::OFF));
        // Packets of the first priority, number of priorities, reach.
        ledger.enter_sibling(at, "rc3", bits(17 + 3 + 17).when(self.rc3().is_some(), why::OFF));
    }
}

const PENALTIES: [(&str, Penalty); 3] = [("on", Penalty::Skip), ("exclude", Penalty::Exclude), ("off", Penalty::Off)];

/// Parameters of disciplines in text form.
pub(super) static KEYS: [TransportKey; 14] = [
    Key::new("iw", |t, v| set(&mut pull(t, v)?.window, v.number(1..=4096, "1 to 4096 packets"))),
    Key::new("paths", |t, v| set(&mut pull(t, v)?.paths, paths(v))),
    Key::new("penalty", |t, v| set(&mut pull(t, v)?.penalty, v.word(&PENALTIES))),
    Key::new("rts", |t, v| set(&mut pull(t, v)?.returns, v.switch())),
    Key::new("pull-rate", |t, v| set(&mut pull(t, v)?.rate, pull_rate(v))),
    Key::new("pull-class", |t, v| set(&mut pull(t, v)?.class, v.number(0..=7, "a class, 0 to 7"))),
    Key::new("tlt", tlt),
    Key::new("tlt-clock", |t, v| set(&mut tlt_of(t, v)?.clock, v.word(&TLT_CLOCKS))),
    Key::new("tlt-first", |t, v| set(&mut tlt_of(t, v)?.first, v.word(&TLT_FIRSTS))),
    Key::new("tlt-every", |t, v| set(&mut tlt_of(t, v)?.every, tlt_every(v))),
    Key::new("tlp", tlp),
    Key::new("rc3", rc3),
    Key::new("rc3-levels", |t, v| set(&mut rc3_of(t, v)?.levels, v.number(1..=7, "1 to 7 priorities"))),
    Key::new("rc3-reach", |t, v| set(&mut rc3_of(t, v)?.reach, window(v))),
];

const TLT_MODES: [(&str, Option<TltMode>); 4] =
    [("off", None), ("on", Some(TltMode::On)), ("window", Some(TltMode::Window)), ("rate", Some(TltMode::Rate))];
const TLT_CLOCKS: [(&str, TltClock); 3] =
    [("adaptive", TltClock::Adaptive), ("mtu", TltClock::Mtu), ("probe", TltClock::Probe)];
const TLT_FIRSTS: [(&str, TltFirst); 2] = [("window", TltFirst::Window), ("packet", TltFirst::Packet)];

/// Number of [steps](step) in which a text is read.
pub(super) const STEPS: u8 = 3;

/// Returns the step in which a parameter is read: disciplines before their parameters, and timers before probes.
pub(super) fn step(key: &str) -> u8 {
    match key {
        "tlp" => 2,
        _ if key.starts_with("tlt-") || key.starts_with("rc3-") => 1,
        _ => 0,
    }
}

/// Returns the parameters of pulls, an error if the transport has no pulls.
fn pull<'a>(config: &'a mut TransportConfig, value: &Value<'_>) -> Result<&'a mut PullConfig, ConfigError> {
    config.discipline.pull_mut().ok_or_else(|| needs(value, "ndp"))
}

/// Returns the parameters of TLT, an error if it is off.
fn tlt_of<'a>(config: &'a mut TransportConfig, value: &Value<'_>) -> Result<&'a mut TltConfig, ConfigError> {
    config.discipline.tlt_mut().ok_or_else(|| needs(value, "tlt=on"))
}

/// Returns the parameters of RC3, an error if it is off.
fn rc3_of<'a>(config: &'a mut TransportConfig, value: &Value<'_>) -> Result<&'a mut Rc3Config, ConfigError> {
    config.discipline.rc3_mut().ok_or_else(|| needs(value, "rc3=on"))
}

fn tlt(config: &mut TransportConfig, value: &Value<'_>) -> Result<(), ConfigError> {
    let Some(mode) = value.word(&TLT_MODES)? else {
        config.discipline.switch_off("tlt");
        return Ok(());
    };
    config.discipline.check_free("tlt")?;
    let before = config.discipline.tlt().copied().unwrap_or(TltConfig::DEFAULT);
    config.discipline = Discipline::Tlt(TltConfig { mode, ..before });
    Ok(())
}

fn rc3(config: &mut TransportConfig, value: &Value<'_>) -> Result<(), ConfigError> {
    let slots = match value.text {
        "off" => {
            config.discipline.switch_off("rc3");
            return Ok(());
        }
        "on" => Rc3Config::DEFAULT.slots,
        _ => value.number(1..=65_536, "off, on, or 1 to 65536 packets of the first low priority")?,
    };
    config.discipline.check_free("rc3")?;
    let before = config.discipline.rc3().copied().unwrap_or(Rc3Config::DEFAULT);
    config.discipline = Discipline::Rc3(Rc3Config { slots, ..before });
    Ok(())
}

/// Sets the minimum time to a tail loss probe: of the timer if it has probes, otherwise beside it.
fn tlp(config: &mut TransportConfig, value: &Value<'_>) -> Result<(), ConfigError> {
    let least = match value.text {
        "off" => 0,
        _ => value.time(1..=MAX_NS, "off, or a time such as 10us")?,
    };
    let pulled = config.discipline.pull().is_some();
    match &mut config.timer {
        Timer::Estimated { probe, .. } if !pulled => *probe = least,
        _ if least == 0 => config.discipline.switch_off("tlp"),
        _ => {
            config.discipline.check_free("tlp")?;
            config.discipline = Discipline::Tlp(least);
        }
    }
    Ok(())
}

fn paths(value: &Value<'_>) -> Result<u16, ValueError> {
    match value.text {
        "auto" => Ok(0),
        _ => value.number(1..=256, "auto, or 1 to 256 ways"),
    }
}

fn tlt_every(value: &Value<'_>) -> Result<u32, ValueError> {
    match value.text {
        "none" => Ok(0),
        _ => value.number(1..=65_536, "none, or 1 to 65536 packets"),
    }
}

fn pull_rate(value: &Value<'_>) -> Result<u32, ValueError> {
    let thousandths = |text: &str| {
        let rate: f64 = text.parse().ok()?;
        let thousandths = (rate * f64::from(PullConfig::FULL_RATE)).round();
        (1.0..=2000.0).contains(&thousandths).then_some(thousandths as u32)
    };
    value.read(thousandths, "a part of the line's rate, 0.001 to 2")
}
