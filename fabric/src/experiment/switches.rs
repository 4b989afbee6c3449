//! Switches of an experiment: the papers' buffers, and what is derived from the network for PFC.

use irnic_transports::congestion::{CongestionConfig, FairRateConfig};
use irnic_units::keys::ValueError;
use irnic_units::{BitRate, Nanoseconds};

use super::{Experiment, GfcGiven, LinkFlowControl, NamedSwitch};
use crate::network::CreditConfig;
use crate::sim::{QpSetup, SimConfig};
use crate::switch::{
    Cut, Discipline, Ecn, GfcConfig, InputQueuedConfig, OutputQueuedConfig, RoccConfig, SharedBufferConfig, SharedPfc,
    SwitchConfig, Thresholds, TrimmingConfig, headroom,
};

/// Buffer of an input, bytes: IRN §4.3.1.
const INPUT_BUFFER: u64 = 240_000;
/// Buffer of an output, bytes: RC3's and UPS's (UCB/EECS-2018-103, §5.2), the bandwidth-delay product of a wide area.
const OUTPUT_BUFFER: u64 = 5_000_000;
/// Shared buffer, bytes: ConWeave's.
const SHARED_BUFFER: u64 = 9_000_000;
/// α of outputs, ConWeave's and TLT's.
const ALPHA: f64 = 1.0;
/// α of inputs with PFC, ConWeave's.
const PFC_ALPHA: f64 = 1.0 / 16.0;
/// Reserve of an input and priority, bytes: HPCC's.
const PFC_RESERVE: u64 = 4_096;
/// Bytes below the threshold at which a paused neighbour is resumed: HPCC's.
pub(super) const PFC_RESUME: u64 = 3_072;

/// Limit on credits, bytes: half the range of their counters.
const MAX_CREDIT: u64 = 1 << 31;

/// Orders with preemption, for messages.
const RANKED: &str = "--scheduling priority, rank, lstf or edf";

/// Full packets that an output holds: NDP §3.1.
const DATA_PACKETS: u64 = 8;

/// Type of the switches' buffers.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Buffers {
    /// Each input has its own.
    InputQueued(InputBuffers),
    /// All ports share one.
    Shared(SharedBuffers),
    /// Each output has two short queues, and packets that do not fit the first are trimmed.
    Trimming(TrimmingBuffers),
    /// Each output has its own, and a scheduling order.
    OutputQueued(Discipline),
    /// Whatever a switch from outside does.
    Custom(NamedSwitch),
}

/// The length of a queue.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum QueueLength {
    /// A number of full packets, including headers.
    Packets(u64),
    /// Bytes on the wire.
    Bytes(u64),
}

/// Queues of switches that trim.
#[derive(Copy, Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TrimmingBuffers {
    /// Room for packets with payload. Default: for eight (NDP §3.1).
    pub data: Option<QueueLength>,
    /// Bytes for packets without payload. Default: as many as for those with payload.
    pub headers: Option<u64>,
    /// Packets without payload sent for each one with payload, while both wait.
    pub ratio: u32,
    /// The packet that is trimmed.
    pub cut: Cut,
    /// Whether headers that do not fit are returned to their sender.
    pub returns: bool,
}

impl Default for TrimmingBuffers {
    /// Returns NDP's switch (§3.1).
    fn default() -> TrimmingBuffers {
        let TrimmingConfig { ratio, cut, returns, .. } = TrimmingConfig::new(0);
        TrimmingBuffers { data: None, headers: None, ratio, cut, returns }
    }
}

/// Buffers of inputs. `None` stands for a value derived from the network.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct InputBuffers {
    /// Outputs that an input can send to at a time, 1 or more; `None` for any number.
    pub speedup: Option<u16>,
    /// Bytes of an input above which PFC pauses its neighbour. Default: the buffer less headroom.
    pub xoff: Option<u64>,
    /// Bytes of an input at which the neighbour is resumed. Default: 3 KiB less than `xoff`.
    pub xon: Option<u64>,
}

/// A buffer that all ports share.
#[derive(Copy, Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SharedBuffers {
    /// A queue holds at most this multiple of the free bytes, above 0.
    pub alpha: f64,
    /// PFC pauses the neighbour of an input that holds more than this multiple of the free bytes, above 0.
    pub pfc_alpha: f64,
    /// Bytes reserved for each input and priority, before it draws on the shared part.
    pub reserve: u64,
    /// Bytes below the threshold at which the neighbour is resumed.
    pub resume: u64,
    /// Fixed bytes of an input and priority above which PFC pauses its neighbour. Default: by `pfc_alpha`.
    pub xoff: Option<u64>,
    /// With `xoff`: bytes at which the neighbour is resumed, at most `xoff`. Default: `resume` less.
    pub xon: Option<u64>,
    /// Limit on the bytes of red packets in a queue; `None`: colours are ignored.
    pub colour: Option<u64>,
}

impl Default for SharedBuffers {
    /// Returns the thresholds of ConWeave and HPCC.
    fn default() -> SharedBuffers {
        SharedBuffers {
            alpha: ALPHA,
            pfc_alpha: PFC_ALPHA,
            reserve: PFC_RESERVE,
            resume: PFC_RESUME,
            xoff: None,
            xon: None,
            colour: None,
        }
    }
}

impl Buffers {
    /// Returns whether a program set the value of a key.
    pub(super) fn is_given(&self, key: &str) -> bool {
        match (self, key) {
            (Buffers::InputQueued(InputBuffers { xoff, .. }), "pfc-threshold") => xoff.is_some(),
            (Buffers::Shared(SharedBuffers { xoff, .. }), "pfc-threshold") => xoff.is_some(),
            (Buffers::Shared(shared), "alpha") => shared.alpha != ALPHA,
            (Buffers::Shared(shared), "colour-threshold") => shared.colour.is_some(),
            (Buffers::Shared(shared), "pfc-reserve") => shared.reserve != PFC_RESERVE,
            _ => false,
        }
    }

    /// Returns the value of a key in text form.
    pub(super) fn text(&self, key: &str) -> Option<String> {
        match (self, key) {
            (Buffers::InputQueued(input), "pfc-threshold") => input.xoff.map(|bytes| bytes.to_string()),
            (Buffers::InputQueued(input), "xon") => input.xon.map(|bytes| bytes.to_string()),
            (Buffers::Shared(shared), "pfc-threshold") => shared.xoff.map(|bytes| bytes.to_string()),
            (Buffers::Shared(shared), "xon") => shared.xon.map(|bytes| bytes.to_string()),
            (Buffers::Shared(shared), "alpha") => Some(shared.alpha.to_string()),
            (Buffers::Shared(shared), "colour-threshold") => shared.colour.map(|bytes| bytes.to_string()),
            _ => None,
        }
    }
}

impl Experiment {
    /// Returns XOFF's threshold of an input, bytes. `longest` is the length of the longest packet on the wire, bytes.
    pub(super) fn xoff(&self, longest: u32) -> Result<u64, ValueError> {
        let buffer = self.buffer.unwrap_or(INPUT_BUFFER);
        if let Buffers::InputQueued(InputBuffers { xoff: Some(xoff), .. }) = self.buffers {
            return Ok(xoff);
        }
        let links = self.topology.links.iter();
        let needed = || links.map(|l| headroom(l.rate, l.delay, longest)).max().unwrap_or(0);
        let room = self.headroom.unwrap_or_else(needed) + self.margin(longest);
        if buffer > room {
            return Ok(buffer - room);
        }
        let why = format!(
            "{buffer} bytes of buffer leave no room for {room} bytes of headroom; enlarge --buffer, or \
             choose --pfc-threshold"
        );
        Err(self.refuse("pfc", why))
    }

    /// Returns the parameters of GFC: all stages together have twice the headroom of PFC beyond XOFF, since a neighbour
    /// that has been sent the first stage may send at half its rate for as long again; plus a packet for each of the
    /// first ones.
    fn gfc(&self, given: GfcGiven, xoff: Option<u64>, longest: u32) -> Result<GfcConfig, ValueError> {
        let Some(first) = given.first.or(xoff) else {
            return Err(self.refuse("flow-control", "gfc needs b1=SIZE, or --pfc-threshold"));
        };
        let links = self.topology.links.iter();
        let room = || links.map(|l| headroom(l.rate, l.delay, longest)).max().unwrap_or(0);
        let levels = given.levels.unwrap_or(GfcConfig::LEVELS);
        let whole = 10 * u64::from(longest);
        let enough = || first.saturating_add(2 * self.headroom.unwrap_or_else(room) + whole);
        let most = given.most.unwrap_or_else(enough);
        if most <= first {
            return Err(self.refuse("flow-control", format_args!("bm is {most} bytes, expected more than b1, {first}")));
        }
        let mut config = GfcConfig::new(first, most, longest);
        config.levels = levels;
        Ok(config)
    }

    /// Returns the bytes that an input needs in addition to its headroom, for what arrives in spite of XOFF.
    fn margin(&self, longest: u32) -> u64 {
        self.hol.as_ref().filter(|_| self.pfc).map_or(0, |hol| hol.margin(longest))
    }

    /// Returns the configuration of the switches. `longest` is the maximum length of packets on the wire, `full` that
    /// of the flows' full packets, bytes.
    pub(super) fn switch(&self, ecn: Ecn, longest: u32, full: u64) -> Result<SwitchConfig, ValueError> {
        self.counts()?;
        self.interrupts()?;
        if let Some(policy) = &self.policy {
            return self.policy_switch(policy, ecn, longest);
        }
        if !self.policy_changes.is_empty() {
            let why = "goes with a policy for --switch, such as input-queued.oq: there is none to change from";
            return Err(self.refuse("policy-event", why));
        }
        match &self.buffers {
            &Buffers::InputQueued(input) => self.input_queued(input, ecn, longest),
            Buffers::OutputQueued(discipline) => self.output_queued(discipline, ecn),
            &Buffers::Trimming(trimming) => self.trimming(trimming, ecn, full),
            &Buffers::Shared(shared) => self.shared_buffer(shared, ecn, longest),
            Buffers::Custom(own) => Ok(SwitchConfig::Custom(own.switch.clone())),
        }
    }

    /// Returns the configuration of switches with a buffer for each input.
    fn input_queued(&self, input: InputBuffers, ecn: Ecn, longest: u32) -> Result<SwitchConfig, ValueError> {
        if self.pfc && matches!(self.flow_control, LinkFlowControl::Gfc(_)) {
            return Err(self.refuse("flow-control", "gfc goes with --switch shared-buffer only"));
        }
        let InputBuffers { speedup, xon, .. } = input;
        let (buffer, scheduling) = (self.buffer.unwrap_or(INPUT_BUFFER), self.scheduling);
        let credits = self.pfc && self.flow_control == LinkFlowControl::Credits;
        // The priorities in use, which share the buffer, are counted once the flows are known.
        let each = buffer.min(MAX_CREDIT) as u32;
        let credits = credits.then_some(CreditConfig { each, longest });
        for key in ["pfc-threshold", "xon", "pfc-headroom"] {
            if credits.is_some() && self.is_given(key) {
                let why = "credits have no threshold and no headroom: an input is granted all it has";
                return Err(self.refuse(key, why));
            }
        }
        let pfc = if self.pfc && credits.is_none() { Some(self.thresholds(xon, longest)?) } else { None };
        Ok(SwitchConfig::InputQueued(InputQueuedConfig { buffer, pfc, credits, ecn, scheduling, speedup }))
    }

    /// Returns PFC's thresholds of an input, with this one for XON if it was given.
    fn thresholds(&self, xon: Option<u64>, longest: u32) -> Result<Thresholds, ValueError> {
        let xoff = self.xoff(longest)?;
        let xon = xon.unwrap_or_else(|| xoff.saturating_sub(PFC_RESUME));
        if xon > xoff {
            return Err(self.wrong("xon", format_args!("at most the threshold, {xoff} bytes")));
        }
        Ok(Thresholds { xoff, xon })
    }

    /// Returns the configuration of switches with a buffer and a scheduling order for each output.
    fn output_queued(&self, discipline: &Discipline, ecn: Ecn) -> Result<SwitchConfig, ValueError> {
        if self.pfc {
            return Err(self.refuse("pfc", "switches with queues of outputs alone pause nobody"));
        }
        let buffer = self.buffer.unwrap_or(OUTPUT_BUFFER);
        let mut config = OutputQueuedConfig::new(buffer, discipline.clone());
        (config.ecn, config.preempts, config.packets) = (ecn, self.preempt, self.queue_limit);
        Ok(SwitchConfig::OutputQueued(config))
    }

    /// Returns the configuration of switches that trim; `full` is the length of the flows' full packets, bytes.
    fn trimming(&self, trimming: TrimmingBuffers, ecn: Ecn, full: u64) -> Result<SwitchConfig, ValueError> {
        let TrimmingBuffers { data, headers, ratio, cut, returns } = trimming;
        self.trims_alone(ecn)?;
        let data = match data.unwrap_or(QueueLength::Packets(DATA_PACKETS)) {
            QueueLength::Packets(n) => n * full,
            QueueLength::Bytes(bytes) => bytes,
        };
        let headers = headers.unwrap_or(data);
        Ok(SwitchConfig::Trimming(TrimmingConfig { data, headers, ratio, cut, returns }))
    }

    /// Returns the configuration of switches with a buffer that all ports share.
    fn shared_buffer(&self, shared: SharedBuffers, ecn: Ecn, longest: u32) -> Result<SwitchConfig, ValueError> {
        if self.pfc && self.flow_control == LinkFlowControl::Credits {
            return Err(self.refuse("flow-control", "credits go with --switch input-queued only"));
        }
        let SharedBuffers { alpha: of_outputs, pfc_alpha, reserve, resume, xoff, xon, colour } = shared;
        let fixed = match xoff {
            Some(xoff) if xon.is_some_and(|xon| xon > xoff) => {
                return Err(self.wrong("xon", format_args!("at most the threshold, {xoff} bytes")));
            }
            Some(xoff) => Some(Thresholds { xoff, xon: xon.unwrap_or_else(|| xoff.saturating_sub(resume)) }),
            None => None,
        };
        let gfc = match self.flow_control {
            LinkFlowControl::Gfc(given) if self.pfc => Some(self.gfc(given, xoff, longest)?),
            _ => None,
        };
        // The priorities in use are counted once the flows are known.
        let (alpha, headroom, margin) = (pfc_alpha, self.headroom, self.margin(longest));
        let pfc = SharedPfc { alpha, fixed, reserve, resume, headroom, margin, priorities: 1 };
        Ok(SwitchConfig::SharedBuffer(SharedBufferConfig {
            buffer: self.buffer.unwrap_or(SHARED_BUFFER),
            alpha: of_outputs,
            pfc: self.pfc.then_some(pfc).filter(|_| gfc.is_none()),
            gfc,
            longest,
            colour,
            ecn,
            scheduling: self.scheduling,
            scheduler: None,
        }))
    }
}

impl Experiment {
    /// Rejects a packet limit where switches do not support it.
    fn counts(&self) -> Result<(), ValueError> {
        match &self.buffers {
            _ if self.queue_limit.is_none() => Ok(()),
            Buffers::OutputQueued(_) if self.policy.is_none() => Ok(()),
            _ => Err(self.refuse("queue-limit", "goes with --switch output-queued only")),
        }
    }

    /// Rejects preemption where no order supports it.
    fn interrupts(&self) -> Result<(), ValueError> {
        if !self.preempt {
            return Ok(());
        }
        match &self.buffers {
            Buffers::OutputQueued(discipline) if self.policy.is_none() => self.has_ranks(discipline),
            _ => Err(self.refuse("preempt", "goes with --switch output-queued only")),
        }
    }

    /// Rejects preemption with an order without ranks.
    pub(super) fn has_ranks(&self, discipline: &Discipline) -> Result<(), ValueError> {
        if discipline.has_ranks() {
            return Ok(());
        }
        let named = Discipline::NAMES.iter().find(|(_, named)| named == discipline).map_or("", |(name, _)| name);
        let why = format!("{named} has no ranks by which one packet interrupts another; expected {RANKED}");
        Err(self.refuse("preempt", why))
    }

    /// Returns the congestion points of the switches, if one of the setups uses them.
    pub(super) fn points(&self, setups: &[QpSetup]) -> Result<Option<RoccConfig>, ValueError> {
        let heeding = setups.iter().map(|setup| &setup.transport.congestion).filter(|c| c.uses_fair_rate());
        let slowest = heeding.clone().filter_map(|congestion| match congestion {
            CongestionConfig::Rocc(rocc) => Some(rocc.recovery),
            _ => None,
        });
        let slowest = slowest.min();
        if heeding.count() == 0 {
            let why = "no transport heeds notices; with --cc rocc it does";
            return if self.is_given("rocc") { Err(self.refuse("rocc", why)) } else { Ok(None) };
        }
        let key = |key| if self.is_given(key) { key } else { "transport" };
        if self.pfc && self.flow_control == LinkFlowControl::Credits {
            return Err(self.refuse("flow-control", "nobody has credit for the notices of rocc"));
        }
        if matches!(self.buffers, Buffers::Trimming(_)) {
            return Err(self.refuse("switch", "switches that trim have no congestion points of rocc"));
        }
        if self.preempt {
            return Err(self.refuse("preempt", "switches that interrupt packets have no congestion points of rocc"));
        }
        let points = self.rocc.unwrap_or_default();
        let period = points.period();
        if let Some(recovery) = slowest.filter(|recovery| *recovery <= period) {
            let (recovery, least) = (Nanoseconds(recovery), Nanoseconds(period / 8 * 11));
            let period = Nanoseconds(period);
            let why = format!(
                "recovery={recovery} is not longer than the period t={period} of the switches: rates never settle; \
                 --cc rocc,recovery={least} would do"
            );
            return Err(self.refuse(if self.is_given("rocc") { "rocc" } else { key("cc") }, why));
        }
        for link in &self.topology.links {
            let FairRateConfig { qref, qmid, qmax, .. } = points.of_link(link.rate);
            if !(qref < qmid && qmid < qmax) {
                let rate = BitRate(link.rate);
                let why = format!(
                    "qref, qmid and qmax of a link of {rate} are {qref}, {qmid} and {qmax} bytes: expected each larger \
                     than the one before"
                );
                return Err(self.refuse("rocc", why));
            }
        }
        Ok(Some(points))
    }

    /// Rejects options that trimming switches do not support.
    fn trims_alone(&self, ecn: Ecn) -> Result<(), ValueError> {
        if self.pfc {
            return Err(self.refuse("pfc", "switches that trim pause nobody"));
        }
        if ecn != Ecn::Off {
            let key = if self.is_given("ecn") { "ecn" } else { "transport" };
            return Err(self.refuse(key, "switches that trim do not mark"));
        }
        for (key, why) in [
            ("buffer", "switches that trim have --data-queue and --header-queue for each output"),
            ("scheduling", "switches that trim do not look at priorities"),
        ] {
            if self.is_given(key) {
                return Err(self.refuse(key, why));
            }
        }
        Ok(())
    }
}

/// Counts the priorities in use, for which PFC reserves room and among which credits are divided: those of the flows
/// and of acknowledgements.
pub(super) fn count_priorities(config: &mut SimConfig) {
    let acks = config.setups.iter().filter_map(|setup| setup.transport.ack_priority);
    let low = config.flows.iter().flat_map(|flow| {
        let setup = config.setups.get(usize::from(flow.setup));
        let levels = setup.map_or(0, |setup| setup.transport.discipline.low_levels());
        (1..=levels).map(|level| flow.priority.saturating_sub(level))
    });
    let used = config
        .flows
        .iter()
        .map(|flow| flow.priority)
        .chain(config.loops.iter().map(|l| l.priority))
        .chain(acks)
        .chain(low)
        .fold(0u8, |used, priority| used | 1 << priority);
    if let SwitchConfig::SharedBuffer(SharedBufferConfig { pfc: Some(pfc), .. }) = &mut config.switch {
        pfc.priorities = used.count_ones() as u8;
    }
    if let SwitchConfig::InputQueued(InputQueuedConfig { credits: Some(credits), .. }) = &mut config.switch {
        credits.each /= used.count_ones().max(1);
    }
    for switch in [&mut config.switch].into_iter().chain(config.differing.iter_mut().map(|(_, switch)| switch)) {
        if let SwitchConfig::Policy(policy) = switch {
            policy.set_priorities(used.count_ones() as u8);
        }
    }
}
