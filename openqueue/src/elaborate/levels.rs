//! Ports that lead to queues: their rates and targets, and a check for cycles.

use super::{Elaborator, error};
use crate::ast::{Expr, ObjectKind};
use crate::compile::{About, Compiler, Constant};
use crate::error::Result;
use crate::number::{Dimension, Ratio};
use crate::plan::{Pace, Target, Way};

/// State of a node in the search.
#[derive(Copy, Clone, PartialEq)]
enum Seen {
    Not,
    OnTheWay,
    Done,
}

impl Elaborator<'_> {
    /// Number of ports with a link.
    pub(super) fn linked(&self) -> usize {
        self.ways.iter().filter(|way| way.is_none()).count()
    }

    /// The rate of a port that leads to queues.
    pub(super) fn pace(&self, rate: Option<&Expr>) -> Result<Pace> {
        let Some(expr) = rate else { return Ok(Pace::Share(Ratio::ONE)) };
        match Compiler::new(&self.constants, About::Nothing).constant(expr)? {
            Constant::Number(share, Dimension::Plain) if share.above > 0 => Ok(Pace::Share(share)),
            Constant::Number(rate, Dimension::Rate) if rate.as_whole().is_some_and(|rate| rate > 0) => {
                Ok(Pace::Rate(rate.above.unsigned_abs()))
            }
            _ => error(expr.at, "expected a share of the fastest link, such as 100%, or a rate such as 40Gbps"),
        }
    }

    /// Renumbers the ports so that those with links come first, as in the switch.
    pub(super) fn links_first(&mut self) {
        let mut order: Vec<usize> = (0..self.ways.len()).collect();
        order.sort_by_key(|port| self.ways[*port].is_some());
        let mut places = vec![0; order.len()];
        order.iter().enumerate().for_each(|(place, port)| places[*port] = place as u32);
        let mut ports: Vec<_> = std::mem::take(&mut self.port_specs).into_iter().zip(&places).collect();
        ports.sort_by_key(|(_, place)| **place);
        self.port_specs = ports.into_iter().map(|(port, _)| port).collect();
        self.ways.sort_by_key(Option::is_some);
        self.queues.iter_mut().for_each(|queue| queue.spec.port = places[queue.spec.port as usize]);
        let of_arrays = self.arrays.values_mut().filter(|array| array.kind == ObjectKind::Port);
        let of_arrays = of_arrays.flat_map(|array| array.objects.values_mut());
        let of_attributes = self.attributes.iter_mut().filter(|(kind, ..)| *kind == ObjectKind::Port);
        of_arrays.chain(of_attributes.flat_map(|(_, ports, ..)| ports)).for_each(|port| *port = places[*port as usize]);
    }

    /// Resolves the queues to which ports lead, and rejects cycles.
    pub(super) fn levels(&mut self, copies: usize) -> Result<()> {
        for (port, leads) in std::mem::take(&mut self.ways).into_iter().enumerate() {
            let Some((pace, to, constants)) = &leads else {
                self.ways.push(None);
                continue;
            };
            // Whether earlier ports have links is queried while the later ones are resolved.
            self.ways.push(leads.clone());
            let target = self.target(to, constants, copies)?;
            for queue in queues(&target) {
                let Some(buffer) = self.queues[queue as usize].spec.buffer else { continue };
                if self.buffers[buffer as usize].accounts.is_some() {
                    let name = &self.queues[queue as usize].spec.name;
                    let what = format!(
                        "{name} is in a buffer with reserve, headroom or ingressLimit: those are for packets that come \
                         from neighbours"
                    );
                    return error(to.at, what);
                }
            }
            self.port_specs[port].0.way = Some(Way { pace: *pace, target });
        }
        self.no_circles()
    }

    fn no_circles(&self) -> Result<()> {
        // Many ports share a target.
        let mut ways: Vec<(&Target, Vec<u32>)> = Vec::new();
        let mut of_ports = vec![None; self.port_specs.len()];
        for (port, (spec, _)) in self.port_specs.iter().enumerate() {
            let Some(Way { target, .. }) = &spec.way else { continue };
            let place = ways.iter().position(|(known, _)| *known == target).unwrap_or_else(|| {
                let mut ports: Vec<u32> = queues(target).map(|queue| self.queues[queue as usize].spec.port).collect();
                ports.sort_unstable();
                ports.dedup();
                ways.push((target, ports));
                ways.len() - 1
            });
            of_ports[port] = Some(place);
        }
        // Nodes are ports, followed by targets: edges lead from a port to its target, and from a target to the ports of
        // its queues.
        let first_way = of_ports.len();
        let next_of = |node: usize, step: usize| match node.checked_sub(first_way) {
            None => of_ports[node].filter(|_| step == 0).map(|way| first_way + way),
            Some(way) => ways[way].1.get(step).map(|port| *port as usize),
        };
        let mut seen = vec![Seen::Not; first_way + ways.len()];
        let mut steps = vec![0; seen.len()];
        for first in 0..first_way {
            if seen[first] != Seen::Not {
                continue;
            }
            let mut path = vec![first];
            seen[first] = Seen::OnTheWay;
            while let Some(&node) = path.last() {
                let Some(next) = next_of(node, steps[node]) else {
                    seen[node] = Seen::Done;
                    path.pop();
                    continue;
                };
                steps[node] += 1;
                match seen[next] {
                    Seen::OnTheWay => {
                        // A target is only reached from a port.
                        let port = if next < first_way { next } else { node };
                        let (spec, at) = &self.port_specs[port];
                        let what = format!(
                            "packets would go in circles: {} leads to a queue from which they come back to it",
                            spec.name
                        );
                        return error(*at, what);
                    }
                    Seen::Not => {
                        seen[next] = Seen::OnTheWay;
                        path.push(next);
                    }
                    Seen::Done => {}
                }
            }
        }
        Ok(())
    }
}

/// All queues to which a packet may go, in one copy.
fn queues(target: &Target) -> impl Iterator<Item = u32> {
    let mut queues = vec![target.base];
    for term in &target.terms {
        let all = 0..i64::from(term.count);
        let indices = match term.index.as_constant() {
            Some(index) => {
                let index = index.rem_euclid(i64::from(term.count));
                index..index + 1
            }
            None => all,
        };
        let each = |queue: u32| indices.clone().map(move |index| queue + index as u32 * term.stride);
        queues = queues.into_iter().flat_map(each).collect();
    }
    queues.into_iter()
}
