//! The service interface: the part of a queue pair that differs between RC, UC and UD.

use super::attr::QpState;
use super::context::{QpContext, QpFailure};
use super::counters::QpCounts;
use super::host::{Host, PeerProcess, PullTurn, TxSlot};
use super::recv_queue::RecvQueue;
use super::send_queue::{PostError, SendQueue};
use super::stats::RttHistogram;
use super::work::{SendWr, WcStatus};
use crate::congestion::{ControllerMetrics, Point};
use crate::packet::{PacketClass, Path, RxPacket};
use crate::psn::Psn;
use crate::time::Time;
use crate::wire::{Bth, Cnp};

/// The protocol of a transport service, as used by its queue pair. The queue pair keeps the state machine and the
/// attributes; the service owns both queues and all packet handling.
///
/// A service is one type that implements this trait, and one line in `any_service`.
pub(crate) trait TransportService {
    fn send_queue(&self) -> &SendQueue;
    fn send_queue_mut(&mut self) -> &mut SendQueue;
    fn recv_queue(&self) -> &RecvQueue;
    fn recv_queue_mut(&mut self) -> &mut RecvQueue;

    /// Returns the number of unacknowledged request packets.
    fn in_flight(&self) -> u32 {
        0
    }

    /// Returns the PSNs of the next packet expected, if packets are ordered, and of the next new packet sent.
    fn next_psns(&self) -> (Option<Psn>, Psn);

    /// Handles INIT to RTR.
    fn start_receiving(&mut self, _c: &QpContext, _psn: Psn) {}

    /// Handles RTR to RTS.
    fn start_sending(&mut self, c: &QpContext, psn: Psn);

    /// Repeats the last acknowledgement, if the service has acknowledgements: see
    /// [`Qp::repeat_ack`](crate::qp::Qp::repeat_ack).
    fn repeat_ack(&mut self) {}

    /// Resets the service (RESET).
    fn reset(&mut self);

    /// Sets new limits on outstanding READs and atomics, of the requester and of the responder (SQD).
    fn set_rd_atomic(&mut self, _requester: Option<u8>, _responder: Option<u8>) {}

    /// Checks whether the service supports a work request.
    fn check(&self, wr: &SendWr<'_>, c: &QpContext) -> Result<(), PostError>;

    /// Handles the posting of a receive work request. Returns whether there is something to send for it.
    fn recv_posted(&mut self) -> bool {
        false
    }

    /// Returns whether a packet of the service is received in a state. Others are counted as dropped.
    fn admits(&mut self, state: QpState, bth: &Bth) -> bool;

    /// Receives a packet of the service.
    fn receive(
        &mut self,
        now: Time,
        c: &mut QpContext,
        packet: &RxPacket<'_>,
        host: &mut impl Host,
    ) -> Result<(), QpFailure>;

    /// Receives the headers of a packet of the service that has lost its payload.
    fn receive_trimmed(&mut self, _now: Time, _c: &QpContext, _packet: &RxPacket<'_>, _host: &mut impl Host) {}

    /// Receives the headers of one of its own packets that a switch has returned. Returns whether they were used.
    fn receive_returned(&mut self, _now: Time, _packet: &RxPacket<'_>) -> bool {
        false
    }

    /// Sends one of the pulls requested through [`Host::owes_pulls`]. `None` if none is owed any more.
    fn grant_pull(&mut self) -> Option<PullTurn> {
        None
    }

    /// Returns whether [`TransportService::poll_feedback`] has a packet.
    fn wants_feedback(&self) -> bool {
        false
    }

    /// Builds the next packet that goes ahead of all data; returns false if there is none.
    fn poll_feedback(&mut self, _c: &QpContext, _host: &mut impl Host, _out: &mut TxSlot) -> bool {
        false
    }

    /// Returns the priority of the next packet of [`TransportService::poll_low`], 0 to 7, if there may be one.
    fn low_priority(&self, _state: QpState, _c: &QpContext) -> Option<u8> {
        None
    }

    /// Builds the next packet that goes after all others, and returns its priority; `None` if there is none.
    fn poll_low(
        &mut self,
        _state: QpState,
        _c: &QpContext,
        _host: &mut impl Host,
        _out: &mut TxSlot,
    ) -> Result<Option<u8>, QpFailure> {
        Ok(None)
    }

    /// Receives a congestion notification packet. Returns whether the service uses it in this state.
    fn on_cnp(&mut self, _state: QpState, _at: Time, _cnp: &Cnp, _host: &mut impl Host) -> bool {
        false
    }

    /// Receives the fair rate of a port of a switch, bit/s. Returns whether the service uses it in this state.
    fn on_fair_rate(&mut self, _state: QpState, _now: Time, _point: Point, _rate: u64, _host: &mut impl Host) -> bool {
        false
    }

    /// Copies the data of waiting datagrams.
    fn copy_waiting(&mut self, _c: &QpContext, _host: &mut impl Host) {}

    /// Returns whether [`TransportService::poll_transmit`] may have a packet.
    fn wants_tx(&self, state: QpState) -> bool;

    /// Builds the next packet; returns false if there is none.
    fn poll_transmit(
        &mut self,
        now: Time,
        state: QpState,
        c: &QpContext,
        host: &mut impl Host,
        out: &mut TxSlot,
    ) -> Result<bool, QpFailure>;

    /// Returns the path of the last packet built.
    fn tx_path<'a>(&'a self, c: &'a QpContext, class: PacketClass) -> Option<&'a Path> {
        c.paths.as_ref().map(|paths| paths.of(class))
    }

    /// Returns when [`TransportService::on_deadline`] is due.
    fn next_deadline(&self, _state: QpState) -> Time {
        Time::NEVER
    }

    /// Runs timers that are due; `process` returns what is known of the peer's process.
    fn on_deadline(
        &mut self,
        _now: Time,
        _state: QpState,
        _c: &QpContext,
        _host: &mut impl Host,
        _process: impl FnMut() -> PeerProcess,
    ) -> Result<(), QpFailure> {
        Ok(())
    }

    /// Returns whether a send work request is in progress.
    fn busy(&self) -> bool;

    /// Ends every send work request: the oldest with `status`, the others flushed.
    fn flush_send(&mut self, c: &QpContext, status: WcStatus, host: &mut impl Host);

    /// Passes the responder's NAK to the requester of a queue pair that is its own peer, which would receive it too
    /// late. Returns the status of its oldest work request.
    fn refuse_own(&mut self, _c: &QpContext, _host: &mut impl Host) -> Option<WcStatus> {
        None
    }

    /// Sends nothing more except the reason (ERR).
    fn silence(&mut self) {}

    /// Adds the counters of the service.
    fn add_counts(&self, _counts: &mut QpCounts) {}

    /// Returns the round trips of requests, if they are acknowledged.
    fn rtt(&self) -> Option<&RttHistogram> {
        None
    }

    /// Returns the smoothed round trip of requests in ns, 0 if it is not known.
    fn smoothed_rtt(&self) -> u64 {
        0
    }

    /// Returns whether requests now have the IRN format.
    fn speaks_irn(&self) -> bool {
        false
    }

    /// Returns the state of the congestion controller, if there is one.
    fn controller_metrics(&self) -> Option<ControllerMetrics> {
        None
    }
}
