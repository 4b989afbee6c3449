//! The network over the lab's time: what its ports had done at moments that lie as far apart as `--sample` says.

use std::io::{self, Write};

use irnic_fabric::lab::Lab;
use irnic_fabric::network::PortId;
use irnic_fabric::topology::Topology;

use irnic_sim::series::rate;

/// How often the network is looked at, if nobody says, ns.
pub const SAMPLE: u64 = 1_000_000;
/// The most moments, and the most samples of ports in all of them: beyond, every second moment is forgotten.
const MOMENTS: usize = 100_000;
const ROWS: usize = 1_000_000;

/// The network at a moment.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// The lab's time, ns.
    pub at: u64,
    /// Bytes in all switches, and those that wait for the port for which most wait.
    pub buffered: u64,
    pub longest: u64,
    /// Ports that PFC has stopped.
    pub stopped: u32,
    /// Payload bytes that have reached hosts, repetitions included.
    pub delivered: u64,
}

/// What a port had done by a moment.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct PortSample {
    pub packets: u64,
    /// On the wire.
    pub bytes: u64,
    /// Bytes that wait for it.
    pub queued: u64,
    /// Packets that arrived by the port and were dropped at its node, and that were lost on its link.
    pub dropped: u64,
    pub lost: u64,
    pub marked: u64,
    /// XOFF frames that it has sent, and ns for which it was stopped.
    pub pauses: u64,
    pub paused: u64,
}

/// Moments of a network.
pub struct Samples {
    from: u64,
    every: u64,
    due: u64,
    ports: usize,
    most: usize,
    moments: Vec<Moment>,
    /// Those of all ports at the first moment, then those at the second.
    rows: Vec<PortSample>,
}

impl Samples {
    /// Moments of a network with so many ports, each `every` ns from the time `from` on.
    pub fn new(from: u64, every: u64, ports: usize) -> Samples {
        let most = (ROWS / ports.max(1)).clamp(64, MOMENTS);
        Samples { from, every, due: from + every, ports, most, moments: Vec::new(), rows: Vec::new() }
    }

    /// Returns when the network is to be looked at next, ns.
    #[inline]
    pub fn due(&self) -> u64 {
        self.due
    }

    /// Looks at the network as it is.
    #[cold]
    pub fn look(&mut self, lab: &Lab) {
        let network = lab.network();
        let mut moment = Moment { at: lab.now(), delivered: network.totals().payload_bytes, ..Moment::default() };
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

    /// Notes a moment whose rows are there.
    fn note(&mut self, moment: Moment) {
        self.moments.push(moment);
        if self.moments.len() >= self.most {
            self.thin();
        }
        // Multiples of the interval since the beginning: what is left when it doubles is as far apart as what follows.
        self.due = self.from + ((moment.at.saturating_sub(self.from)) / self.every + 1) * self.every;
    }

    /// Forgets every second moment.
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

    /// Looks at the network a last time.
    pub fn finish(&mut self, lab: &Lab) {
        if self.moments.last().is_none_or(|last| last.at < lab.now()) {
            self.look(lab);
        }
    }

    /// Returns when the first interval began, ns.
    pub fn from(&self) -> u64 {
        self.from
    }

    /// Returns how many ports there are.
    pub fn ports(&self) -> usize {
        self.ports
    }

    /// Returns the moments, in their order.
    pub fn moments(&self) -> &[Moment] {
        &self.moments
    }

    /// Returns what a port had done at each moment.
    pub fn of_port(&self, port: usize) -> impl Iterator<Item = &PortSample> {
        self.rows.iter().skip(port).step_by(self.ports)
    }

    /// Returns the moments from the last one before anything was sent to the first one after everything was.
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

    /// Writes the whole network over time, with the columns that `irnic sim --series` has.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(
            out,
            "at_ns,buffered_bytes,longest_queue_bytes,paused_ports,delivered_bytes,delivered_bps,dropped,lost,marked,\
             pauses"
        )?;
        let mut before = (self.from, 0);
        for (m, rows) in self.moments.iter().zip(self.rows.chunks(self.ports)) {
            let rate = rate(before, (m.at, m.delivered));
            before = (m.at, m.delivered);
            let sum = |of: fn(&PortSample) -> u64| rows.iter().map(of).sum::<u64>();
            writeln!(
                out,
                "{},{},{},{},{},{rate:.0},{},{},{},{}",
                m.at,
                m.buffered,
                m.longest,
                m.stopped,
                m.delivered,
                sum(|p| p.dropped),
                sum(|p| p.lost),
                sum(|p| p.marked),
                sum(|p| p.pauses)
            )?;
        }
        Ok(())
    }

    /// Writes each port over time, without those that never did anything.
    pub fn write_ports(&self, out: &mut impl Write, lab: &Lab, topology: &Topology) -> io::Result<()> {
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
