//! Samples of the network's ports over the lab's time, at the interval of `--sample`.

use std::io::{self, Write};

use irnic_fabric::lab::Lab;
use irnic_fabric::network::PortId;
use irnic_fabric::topology::Topology;
use irnic_report::origin::Origin;
use irnic_sim::series::rate;

/// Default sampling interval, ns.
pub const SAMPLE: u64 = 1_000_000;
/// Maximum number of moments, and of port samples in all of them: beyond that, every second moment is discarded.
const MOMENTS: usize = 100_000;
const ROWS: usize = 1_000_000;

/// The network at a moment.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// The lab's time, ns.
    pub at: u64,
    /// Bytes in all switches, and those of the port with the longest queue.
    pub buffered: u64,
    pub longest: u64,
    /// Ports paused by PFC.
    pub stopped: u32,
    /// Payload bytes that have reached hosts, including duplicates, and those that reached them for the first time.
    pub delivered: u64,
    pub goodput: u64,
}

/// Counters of a port at a moment.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct PortSample {
    pub packets: u64,
    /// Bytes on the wire.
    pub bytes: u64,
    /// Bytes queued.
    pub queued: u64,
    /// Packets that arrived by the port and were dropped at its node, and that were lost on its link.
    pub dropped: u64,
    pub lost: u64,
    pub marked: u64,
    /// XOFF frames sent, and time paused, ns.
    pub pauses: u64,
    pub paused: u64,
}

/// Samples of a network.
pub struct Samples {
    from: u64,
    every: u64,
    due: u64,
    ports: usize,
    most: usize,
    moments: Vec<Moment>,
    /// All ports at the first moment, then all at the second, and so on.
    rows: Vec<PortSample>,
}

impl Samples {
    /// Samples of a network with this many ports, at an interval of `every` ns from the time `from` on.
    pub fn new(from: u64, every: u64, ports: usize) -> Samples {
        let most = (ROWS / ports.max(1)).clamp(64, MOMENTS);
        Samples { from, every, due: from + every, ports, most, moments: Vec::new(), rows: Vec::new() }
    }

    /// Returns the time of the next sample, ns.
    #[inline]
    pub fn due(&self) -> u64 {
        self.due
    }

    /// Samples the network.
    #[cold]
    pub fn sample(&mut self, lab: &Lab) {
        let network = lab.network();
        let (delivered, goodput) = (network.totals().payload_bytes, lab.goodput());
        // Before its first event, the network's time may precede the lab's beginning.
        let mut moment = Moment { at: lab.now().max(self.from), delivered, goodput, ..Moment::default() };
        for (id, port) in network.ports().iter().enumerate() {
            let (c, queued) = (port.counters_at(moment.at), network.backlog_of(id as PortId));
            moment.buffered += queued;
            moment.longest = moment.longest.max(queued);
            moment.stopped += u32::from(!port.paused().is_empty());
            self.rows.push(PortSample {
                packets: c.packets,
                bytes: c.bytes,
                queued,
                dropped: c.dropped,
                lost: c.lost,
                marked: c.marked,
                pauses: c.pauses,
                paused: c.paused,
            });
        }
        self.note(moment);
    }

    /// Adds a moment whose rows have been added.
    fn note(&mut self, moment: Moment) {
        self.moments.push(moment);
        if self.moments.len() >= self.most {
            self.thin();
        }
        // Multiples of the interval since the beginning: when the interval doubles, the remaining moments are at the
        // same distance as the following ones.
        self.due = self.from + ((moment.at.saturating_sub(self.from)) / self.every + 1) * self.every;
    }

    /// Discards every second moment.
    fn thin(&mut self) {
        let ports = self.ports;
        for (to, from) in (1..self.moments.len()).step_by(2).enumerate() {
            self.moments[to] = self.moments[from];
            self.rows.copy_within(from * ports..(from + 1) * ports, to * ports);
        }
        self.moments.truncate(self.moments.len() / 2);
        self.rows.truncate(self.moments.len() * ports);
        self.every *= 2;
    }

    /// Takes the last sample of the network.
    pub fn finish(&mut self, lab: &Lab) {
        if self.moments.last().is_none_or(|last| last.at < lab.now()) {
            self.sample(lab);
        }
    }

    /// Returns the start of the first interval, ns.
    pub fn from(&self) -> u64 {
        self.from
    }

    /// Returns the number of ports.
    pub fn ports(&self) -> usize {
        self.ports
    }

    /// Returns the moments, in order.
    pub fn moments(&self) -> &[Moment] {
        &self.moments
    }

    /// Returns the samples of a port, by moment.
    pub fn of_port(&self, port: usize) -> impl Iterator<Item = &PortSample> {
        self.rows.iter().skip(port).step_by(self.ports)
    }

    /// Returns the samples from the last moment before the first transmission to the first one after the last.
    pub fn busy(&self) -> Samples {
        let rows = |at: usize| &self.rows[at * self.ports..(at + 1) * self.ports];
        let all = self.moments.len();
        let silent = |at: usize| rows(at).iter().all(|port| *port == PortSample::default());
        let begin = (0..all).find(|at| !silent(*at)).unwrap_or(0);
        let end = (begin..all).rev().find(|at| rows(*at) != rows(all - 1)).map_or(begin + 1, |at| at + 2).min(all);
        Samples {
            from: begin.checked_sub(1).map_or(self.from, |before| self.moments[before].at),
            moments: self.moments[begin..end].to_vec(),
            rows: self.rows[begin * self.ports..end * self.ports].to_vec(),
            ..*self
        }
    }

    /// Writes the samples of the whole network, with the columns of `irnic sim --series`.
    pub fn write(&self, out: &mut impl Write, origin: &Origin) -> io::Result<()> {
        out.write_all(origin.comment().as_bytes())?;
        writeln!(
            out,
            "at_ns,buffered_bytes,longest_queue_bytes,paused_ports,delivered_bytes,delivered_bps,dropped,lost,marked,\
             pauses,goodput_bytes,goodput_bps"
        )?;
        let mut before = Moment { at: self.from, ..Moment::default() };
        for (m, rows) in self.moments.iter().zip(self.rows.chunks(self.ports)) {
            let rate = |of: fn(&Moment) -> u64| rate((before.at, of(&before)), (m.at, of(m)));
            let (delivered, goodput) = (rate(|m| m.delivered), rate(|m| m.goodput));
            before = *m;
            let sum = |of: fn(&PortSample) -> u64| rows.iter().map(of).sum::<u64>();
            writeln!(
                out,
                "{},{},{},{},{},{delivered:.0},{},{},{},{},{},{goodput:.0}",
                m.at,
                m.buffered,
                m.longest,
                m.stopped,
                m.delivered,
                sum(|p| p.dropped),
                sum(|p| p.lost),
                sum(|p| p.marked),
                sum(|p| p.pauses),
                m.goodput
            )?;
        }
        Ok(())
    }

    /// Writes the samples of each port, except for ports that were never active.
    pub fn write_ports(&self, out: &mut impl Write, origin: &Origin, lab: &Lab, topology: &Topology) -> io::Result<()> {
        out.write_all(origin.comment().as_bytes())?;
        writeln!(out, "at_ns,from,to,bytes,sent_bps,packets,queue_bytes,dropped,lost,marked,pauses,paused_ns")?;
        let active: Vec<bool> = (0..self.ports)
            .map(|port| self.of_port(port).last().is_some_and(|p| *p != PortSample::default()))
            .collect();
        let names: Vec<(String, String)> =
            lab.network().links().map(|link| (topology.label(link.from), topology.label(link.to))).collect();
        let mut before = vec![(self.from, 0); self.ports];
        for (m, rows) in self.moments.iter().zip(self.rows.chunks(self.ports)) {
            for (port, p) in rows.iter().enumerate().filter(|(port, _)| active[*port]) {
                let rate = rate(before[port], (m.at, p.bytes));
                before[port] = (m.at, p.bytes);
                let (from, to) = &names[port];
                writeln!(
                    out,
                    "{},{from},{to},{},{rate:.0},{},{},{},{},{},{},{}",
                    m.at, p.bytes, p.packets, p.queued, p.dropped, p.lost, p.marked, p.pauses, p.paused
                )?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use irnic_fabric::network::NetworkConfig;
    use irnic_fabric::switch::{InputQueuedConfig, SwitchConfig};

    use super::*;

    #[test]
    fn moments_stay_few_and_as_far_apart_from_each_other() {
        let mut samples = Samples::new(1_000, 10, 2);
        samples.most = 8;
        for n in 0..100 {
            let at = samples.due();
            samples.rows.extend([1, 2].map(|port| PortSample { packets: port * at, ..PortSample::default() }));
            samples.note(Moment { at, ..Moment::default() });
            assert!(samples.moments().len() < 8 && samples.due() > at, "{n}");
        }
        let at: Vec<u64> = samples.moments().iter().map(|m| m.at - 1_000).collect();
        let step = samples.every;
        assert!(step > 10 && at.iter().zip(1..).all(|(at, n)| *at == n * step), "{step}: {at:?}");
        let second: Vec<u64> = samples.of_port(1).map(|p| p.packets / 2 - 1_000).collect();
        assert_eq!(second, at);
    }

    #[test]
    fn a_lab_that_ends_before_its_first_event_has_a_sample_of_its_beginning() {
        let switch = SwitchConfig::InputQueued(InputQueuedConfig::new(1 << 20));
        let config = NetworkConfig::new(Topology::star(2, 40_000_000_000, 1_000), switch);
        let lab = Lab::new(config, false).expect("a network");
        let mut samples = Samples::new(5_000, 1_000, lab.network().ports().len());
        samples.finish(&lab);
        assert!(lab.now() < 5_000);
        assert_eq!(samples.busy().moments(), [Moment { at: 5_000, ..Moment::default() }]);
    }

    #[test]
    fn the_silence_before_and_after_is_left_out() {
        let mut samples = Samples::new(0, 10, 1);
        for packets in [0, 0, 0, 2, 2, 5, 5, 5, 5] {
            let at = samples.due();
            samples.rows.push(PortSample { packets, ..PortSample::default() });
            samples.note(Moment { at, ..Moment::default() });
        }
        let busy = samples.busy();
        let at: Vec<u64> = busy.moments().iter().map(|m| m.at).collect();
        let packets: Vec<u64> = busy.of_port(0).map(|p| p.packets).collect();
        assert_eq!((busy.from(), at, packets), (30, vec![40, 50, 60], vec![2, 2, 5]));
        assert_eq!(Samples::new(0, 10, 1).busy().moments().len(), 0);
        samples.rows.iter_mut().for_each(|p| p.packets = 1);
        assert_eq!((samples.busy().from(), samples.busy().moments().len()), (0, 1));
    }
}
