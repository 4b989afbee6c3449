//! The application's events: polling completions from NICs, starting and aborting flows.

use irnic_transports::qp::{Wc, WcOpcode};

use super::endpoint::succeeded;
use super::outcome::invariant;
use super::{ABORT, LOOP, QpPolicy, Quit, START, SimError, Site};
use crate::network::{Agenda, Step};

impl<A: Agenda> Site<A> {
    /// Carries out what a step of the network asks for. Returns whether there was anything.
    #[inline(always)]
    pub(super) fn answer(&mut self, step: Step) -> Result<bool, SimError> {
        if self.follows_sends {
            self.follow_sends()?;
        }
        match step {
            Step::Done => {}
            Step::Announced(flow) => self.flows.announced(flow, &mut self.net),
            Step::Endpoint(host) => self.after_host(host)?,
            Step::Call(START) => self.start_flows()?,
            Step::Call(ABORT) => self.quit_flows()?,
            Step::Call(LOOP) => self.start_loops()?,
            Step::Call(_) => self.sample(),
            Step::Standstill | Step::Idle => return Ok(false),
        }
        if A::PARTED && !self.flows.answer(&mut self.net) {
            return Err(invariant("a flow is acknowledged by a packet that was not announced".into()));
        }
        Ok(true)
    }

    /// Handles flows that have left their senders: others follow them, or the NIC is done with them.
    fn follow_sends(&mut self) -> Result<(), SimError> {
        // More may be added meanwhile.
        let mut at = 0;
        while let Some(&flow) = self.net.shared().sent.as_ref().and_then(|sent| sent.get(at)) {
            at += 1;
            self.flows.sent(flow, self.net.now(), &mut self.net);
            let of = *self.flows.flow(flow as usize);
            if self.config.setup_of(&of).is_open_loop() {
                self.after_host(of.src)?;
            }
        }
        self.net.shared_mut().sent.iter_mut().for_each(Vec::clear);
        Ok(())
    }

    /// Handles a NIC that may have completions, something to send, and a new deadline.
    #[inline]
    pub(super) fn after_host(&mut self, host: u32) -> Result<(), SimError> {
        let mut wcs = [Wc::EMPTY; 8];
        loop {
            let n = self.net.endpoint_mut(host).poll(&mut wcs);
            for wc in &wcs[..n] {
                let flow = wc.wr_id as u32;
                if !succeeded(wc) {
                    return Err(SimError::Failed { flow, status: format!("{:?}", wc.status), at: self.net.now() });
                }
                match wc.opcode {
                    WcOpcode::RecvRdmaWithImm => self.flows.delivered(flow, self.net.now(), &mut self.net)?,
                    _ => self.flows.acknowledged(flow, self.net.now(), &mut self.net)?,
                }
            }
            if n < wcs.len() {
                break;
            }
        }
        self.net.settle(host);
        Ok(())
    }

    /// Posts the flows that are due, and schedules the next.
    pub(super) fn start_flows(&mut self) -> Result<(), SimError> {
        let mut turn = 0;
        while let Some(host) = self.flows.start_next(&self.config, &mut self.net)? {
            turn += 1;
            self.net.turn(turn);
            if self.net.owns(host) {
                self.started(host)?;
            }
        }
        self.net.turn(turn + 1);
        if let Some(at) = self.flows.next_start() {
            self.net.call_at(at, START);
        }
        Ok(())
    }

    /// Posts the flows of closed loops that are due. Each was scheduled when its predecessor ended.
    #[cold]
    pub(super) fn start_loops(&mut self) -> Result<(), SimError> {
        while let Some(host) = self.flows.start_of_loop(&self.config, &mut self.net)? {
            self.started(host)?;
        }
        Ok(())
    }

    /// Handles a flow that was posted at a host.
    fn started(&mut self, host: u32) -> Result<(), SimError> {
        if let (Some(observer), Some((flow, [source, sink]))) =
            (&mut self.net.shared_mut().observer, self.flows.newest())
        {
            let own = self.config.qps == QpPolicy::PerFlow;
            observer.connected(flow, source, sink, own);
        }
        if let (Some(journal), Some((flow, [(src, source), _]))) = (self.net.journal_mut(), self.flows.newest()) {
            journal.connected(src, source, flow);
        }
        self.after_host(host)
    }

    /// Aborts the flows that are due, and schedules the next.
    pub(super) fn quit_flows(&mut self) -> Result<(), SimError> {
        while let Some(&Quit { at, flow }) = self.config.quits.get(self.next_quit) {
            if at > self.net.now() {
                self.net.call_at(at, ABORT);
                break;
            }
            self.next_quit += 1;
            self.flows.quit(flow, &mut self.net)?;
        }
        Ok(())
    }
}
