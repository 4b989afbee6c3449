//! The services that queue pairs may have.

use super::attr::QpState;
use super::context::{QpContext, QpFailure};
use super::counters::QpCounts;
use super::host::{Host, PeerProcess, PullTurn, TxSlot};
use super::recv_queue::RecvQueue;
use super::send_queue::{PostError, SendQueue};
use super::service::TransportService;
use super::stats::RttHistogram;
use super::work::{SendWr, WcStatus};
use crate::congestion::{ControllerMetrics, Point};
use crate::footprint::{Ledger, Parts, Setup};
use crate::packet::{PacketClass, Path, RxPacket};
use crate::psn::Psn;
use crate::rc::Rc;
use crate::time::Time;
use crate::uc::Uc;
use crate::ud::Ud;
use crate::wire::{Bth, Cnp};

/// Generates the enum of all services, which dispatches calls without a vtable.
macro_rules! services {
    ($($name:ident),+ $(,)?) => {
        /// The service of a queue pair.
        #[derive(Clone, Debug)]
        #[allow(clippy::large_enum_variant)] // boxed with its queue pair, and most are reliable
        pub(super) enum AnyService {
            $($name($name)),+
        }

        /// Calls the same method of each variant.
        macro_rules! each {
            ($any:expr, $service:ident => $call:expr) => {
                match $any { $(AnyService::$name($service) => $call),+ }
            };
        }
    };
}

services!(Rc, Uc, Ud);

impl TransportService for AnyService {
    #[inline]
    fn tx_path<'a>(&'a self, c: &'a QpContext, class: PacketClass) -> Option<&'a Path> {
        each!(self, s => s.tx_path(c, class))
    }

    irnic_units::delegate!(each:
        fn send_queue(&self) -> &SendQueue;
        #[inline]
        fn in_flight(&self) -> u32;
        #[inline]
        fn send_queue_mut(&mut self) -> &mut SendQueue;
        fn recv_queue(&self) -> &RecvQueue;
        #[inline]
        fn recv_queue_mut(&mut self) -> &mut RecvQueue;
        fn next_psns(&self) -> (Option<Psn>, Psn);
        fn start_receiving(&mut self, c: &QpContext, psn: Psn);
        fn start_sending(&mut self, c: &QpContext, psn: Psn);
        fn repeat_ack(&mut self);
        fn reset(&mut self);
        fn set_rd_atomic(&mut self, requester: Option<u8>, responder: Option<u8>);
        #[inline]
        fn check(&self, wr: &SendWr<'_>, c: &QpContext) -> Result<(), PostError>;
        #[inline]
        fn recv_posted(&mut self) -> bool;
        #[inline]
        fn admits(&mut self, state: QpState, bth: &Bth) -> bool;
        #[inline]
        fn receive(
            &mut self,
            now: Time,
            c: &mut QpContext,
            packet: &RxPacket<'_>,
            host: &mut impl Host,
        ) -> Result<(), QpFailure>;
        fn receive_trimmed(&mut self, now: Time, c: &QpContext, packet: &RxPacket<'_>, host: &mut impl Host);
        fn receive_returned(&mut self, now: Time, packet: &RxPacket<'_>) -> bool;
        fn grant_pull(&mut self) -> Option<PullTurn>;
        fn wants_feedback(&self) -> bool;
        fn poll_feedback(&mut self, c: &QpContext, host: &mut impl Host, out: &mut TxSlot) -> bool;
        fn low_priority(&self, state: QpState, c: &QpContext) -> Option<u8>;
        fn poll_low(
            &mut self,
            state: QpState,
            c: &QpContext,
            host: &mut impl Host,
            out: &mut TxSlot,
        ) -> Result<Option<u8>, QpFailure>;
        fn on_cnp(&mut self, state: QpState, at: Time, cnp: &Cnp, host: &mut impl Host) -> bool;
        fn on_fair_rate(&mut self, state: QpState, now: Time, point: Point, rate: u64, host: &mut impl Host) -> bool;
        #[inline]
        fn copy_waiting(&mut self, c: &QpContext, host: &mut impl Host);
        #[inline]
        fn wants_tx(&self, state: QpState) -> bool;
        #[inline]
        fn poll_transmit(
            &mut self,
            now: Time,
            state: QpState,
            c: &QpContext,
            host: &mut impl Host,
            out: &mut TxSlot,
        ) -> Result<bool, QpFailure>;
        #[inline]
        fn next_deadline(&self, state: QpState) -> Time;
        fn on_deadline(
            &mut self,
            now: Time,
            state: QpState,
            c: &QpContext,
            host: &mut impl Host,
            process: impl FnMut() -> PeerProcess,
        ) -> Result<(), QpFailure>;
        fn busy(&self) -> bool;
        fn flush_send(&mut self, c: &QpContext, status: WcStatus, host: &mut impl Host);
        fn refuse_own(&mut self, c: &QpContext, host: &mut impl Host) -> Option<WcStatus>;
        fn silence(&mut self);
        fn add_counts(&self, counts: &mut QpCounts);
        fn rtt(&self) -> Option<&RttHistogram>;
        fn smoothed_rtt(&self) -> u64;
        fn speaks_irn(&self) -> bool;
        fn controller_metrics(&self) -> Option<ControllerMetrics>;
    );
}

impl Parts for AnyService {
    fn list(&self, at: &Setup, ledger: &mut Ledger) {
        match self {
            AnyService::Rc(rc) => rc.list(at, ledger),
            // Neither recovers losses.
            AnyService::Uc(_) | AnyService::Ud(_) => {}
        }
    }
}
