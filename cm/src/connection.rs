//! One connection, or one resolution of a datagram service: its state, learned attributes and repeated message.

use irnic_transports::time::MS;
use irnic_transports::wire::Mtu;
use irnic_transports::wire::mad::MAD_LEN;
use irnic_transports::{Path, Psn, Time};

use crate::param::{CmId, QpKind};

/// States of a connection, those of the kernel's `enum ib_cm_state` except for listeners and alternate paths.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Active: the REQ has been sent.
    ReqSent,
    /// Active: the peer has asked for more time (MRA).
    MraReqReceived,
    /// Passive: the application has not answered yet.
    ReqReceived,
    /// Passive: the REP has been sent.
    RepSent,
    /// Passive: the peer has asked for more time (MRA).
    MraRepReceived,
    /// Active: the application has not confirmed yet.
    RepReceived,
    /// The connection is established.
    Established,
    /// The DREQ has been sent.
    DreqSent,
    /// Ended; packets may still be in flight.
    Timewait,
    /// Active: the SIDR_REQ has been sent.
    SidrReqSent,
    /// Passive: the application has not answered yet.
    SidrReqReceived,
    /// Rejected, given up, or resolved: further messages get the same answer.
    Ended,
}

impl State {
    /// Returns the state's name for errors.
    pub(crate) fn name(self) -> &'static str {
        match self {
            State::ReqSent | State::MraReqReceived => "waiting for the peer's answer",
            State::ReqReceived => "asked for a connection",
            State::RepSent | State::MraRepReceived => "waiting for the peer's confirmation",
            State::RepReceived => "accepted by the peer",
            State::Established => "connected",
            State::DreqSent => "disconnecting",
            State::Timewait => "disconnected",
            State::SidrReqSent => "resolving",
            State::SidrReqReceived => "asked for its datagram service",
            State::Ended => "closed",
        }
    }

    /// Returns whether the peer's queue pair is known in this state.
    pub(crate) fn knows_peer(self) -> bool {
        matches!(
            self,
            State::ReqReceived
                | State::RepSent
                | State::MraRepReceived
                | State::RepReceived
                | State::Established
                | State::DreqSent
        )
    }
}

/// A message that is repeated until answered.
#[derive(Clone, Debug)]
pub(crate) struct Repeat {
    pub(crate) mad: [u8; MAD_LEN],
    /// Time of the next repeat.
    next: Time,
    /// Interval between the previous repeat and the next, ns.
    wait: u64,
    /// Longest such interval, ns, as agreed between the peers.
    longest: u64,
    /// Time at which the peer is considered unreachable.
    end: Time,
    /// Number of repeats so far.
    pub(crate) count: u32,
}

impl Repeat {
    /// Returns the state of a message sent at `now`. It is repeated after `first` ns, then at intervals that double up
    /// to `interval` ns; it is given up 1 + `retries` intervals after `now`. `jitter` is random.
    pub(crate) fn new(now: Time, mad: [u8; MAD_LEN], first: u64, interval: u64, retries: u8, jitter: u32) -> Repeat {
        let wait = first.clamp(1, interval);
        let end = now + interval * (1 + u64::from(retries));
        let next = now + spread(wait, interval, jitter);
        Repeat { mad, next, wait, longest: interval, end, count: 0 }
    }

    /// Grants the peer up to `wait` ns, from now and for each further repeat (MRA).
    pub(crate) fn postpone(&mut self, now: Time, wait: u64, retries: u8) {
        (self.wait, self.longest) = (wait, wait);
        self.next = now + wait;
        self.end = now + wait * (1 + u64::from(retries));
    }

    /// Returns the time of the next action.
    pub(crate) fn due(&self) -> Time {
        self.next.min(self.end)
    }

    /// Returns whether to send the message again now; `None` if it is given up. `jitter` is random.
    pub(crate) fn poll(&mut self, now: Time, jitter: u32) -> Option<bool> {
        if now >= self.end {
            return None;
        }
        let due = now >= self.next;
        if due {
            self.wait = (self.wait * 2).min(self.longest);
            self.next = now + spread(self.wait, self.longest, jitter);
            self.count += 1;
        }
        Some(due)
    }
}

/// Returns an interval of `wait` to 1.5 `wait` ns, at most `longest`, so that clients whose messages were lost at the
/// same moment do not all repeat at the same moment.
fn spread(wait: u64, longest: u64, jitter: u32) -> u64 {
    let more = (u128::from(wait / 2) * u128::from(jitter)) >> 32;
    wait.saturating_add(more as u64).min(longest)
}

/// A connection, or the resolution of a datagram service.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    /// This side's communication id or request id.
    pub(crate) comm_id: u32,
    /// The peer's, 0 while unknown.
    pub(crate) remote_id: u32,
    /// The peer's id in its MRA, 0 without one. An accepting REP may have another: that of the id listening by then.
    pub(crate) mra_id: u32,
    /// Transaction id of messages about the request.
    pub(crate) tid: u64,
    pub(crate) state: State,
    /// The id that owns it, `None` once that is destroyed.
    pub(crate) owner: Option<CmId>,
    /// Whether this is the passive side.
    pub(crate) passive: bool,
    pub(crate) kind: QpKind,
    /// Path of MADs and of the queue pair's packets.
    pub(crate) path: Path,
    pub(crate) flow_label: u32,
    pub(crate) service_id: u64,
    pub(crate) remote_guid: u64,
    pub(crate) remote_qpn: u32,
    pub(crate) local_qpn: u32,
    /// First PSN expected: the one sent to the peer.
    pub(crate) rq_psn: Psn,
    /// First PSN sent: the one received from the peer.
    pub(crate) sq_psn: Psn,
    pub(crate) mtu: Mtu,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    /// Local ACK Timeout code; also the duration of timewait.
    pub(crate) ack_timeout: u8,
    /// Time in which the peer has to answer, ns.
    pub(crate) interval: u64,
    pub(crate) max_retries: u8,
    /// The message being repeated.
    pub(crate) repeat: Option<Repeat>,
    /// An MRA was sent; the peer stays silent for a minute.
    pub(crate) mra_sent: bool,
    /// Answer to repeated messages of the peer.
    pub(crate) answer: Option<[u8; MAD_LEN]>,
    /// The listener that counts it as unconfirmed, and its number there.
    pub(crate) unconfirmed: Option<(CmId, u64)>,
    /// Its user was notified of its end, and will be notified of the end of timewait.
    pub(crate) disconnected: bool,
    /// Time of the next action, maintained by [`Connections`](crate::connections::Connections).
    pub(crate) due: Time,
}

impl Connection {
    /// Creates a connection of which only the path is known.
    pub(crate) fn new(state: State, owner: CmId, kind: QpKind, path: Path) -> Connection {
        Connection {
            comm_id: 0,
            remote_id: 0,
            mra_id: 0,
            tid: 0,
            state,
            owner: Some(owner),
            passive: false,
            kind,
            path,
            flow_label: 0,
            service_id: 0,
            remote_guid: 0,
            remote_qpn: 0,
            local_qpn: 0,
            rq_psn: Psn::default(),
            sq_psn: Psn::default(),
            mtu: Mtu::B1024,
            responder_resources: 0,
            initiator_depth: 0,
            retry_count: 0,
            rnr_retry_count: 0,
            ack_timeout: 0,
            interval: 0,
            max_retries: 0,
            repeat: None,
            mra_sent: false,
            answer: None,
            unconfirmed: None,
            disconnected: false,
            due: Time::NEVER,
        }
    }

    /// Returns the transaction id of messages that begin a new exchange, unique by the communication id.
    pub(crate) fn own_tid(&self) -> u64 {
        1 << 32 | u64::from(self.comm_id)
    }
}

/// Returns the nanoseconds of an IBA time code, as the kernel rounds them: 2ⁿ⁻⁸ ms, at least 1 (`cm_convert_to_ms`).
/// Codes above 24 (65 s) are treated as 24, to avoid waiting for hours.
pub(crate) fn nanos(code: u8) -> u64 {
    MS << code.min(24).saturating_sub(8)
}

/// Returns the Local ACK Timeout for a peer's ACK delay and a packet lifetime (`cm_ack_timeout` in the kernel).
pub(crate) fn ack_timeout(ack_delay: u8, packet_lifetime: u8) -> u8 {
    let timeout = packet_lifetime.saturating_add(1);
    let sum = if timeout >= ack_delay {
        timeout.saturating_add(u8::from(ack_delay >= timeout - 1))
    } else {
        ack_delay + u8::from(timeout >= ack_delay - 1)
    };
    sum.min(31)
}

#[cfg(test)]
mod tests {
    use irnic_transports::time::SEC;

    use super::*;

    #[test]
    fn ack_timeouts_are_the_kernels() {
        // (ACK delay, packet lifetime): the captures' 17, and the rounding around equality.
        for (delay, lifetime, timeout) in
            [(15, 16, 17), (0, 16, 17), (16, 16, 18), (17, 16, 18), (18, 16, 19), (20, 16, 20), (31, 40, 31)]
        {
            assert_eq!(ack_timeout(delay, lifetime), timeout, "{delay} {lifetime}");
        }
    }

    #[test]
    fn repeats_double_up_to_the_interval_and_end_when_the_kernels_would() {
        let (interval, retries) = (nanos(16) * 2 + nanos(20), 15);
        let mut repeat = Repeat::new(Time::ZERO, [0; MAD_LEN], 50 * MS, interval, retries, 0);
        let mut times = Vec::new();
        let end = loop {
            let now = repeat.due();
            match repeat.poll(now, 0) {
                Some(true) => times.push(now.0 / MS),
                Some(false) => unreachable!("due and not due"),
                None => break now.0 / MS,
            }
        };
        assert_eq!(times[..8], [50, 150, 350, 750, 1550, 3150, 6350, 6350 + 4608]);
        assert_eq!((times.len(), end), (21, 16 * 4608), "74 s");
    }

    #[test]
    fn repeats_are_spread_up_to_half_as_long_again() {
        for (jitter, ms) in [(0, 100), (1 << 31, 125), (u32::MAX, 149)] {
            assert_eq!(spread(100 * MS, SEC, jitter) / MS, ms);
        }
        assert_eq!(spread(SEC, SEC, u32::MAX), SEC);
        assert_eq!(spread(nanos(31), u64::MAX, u32::MAX) / SEC, 98, "the longest wait does not overflow");
    }

    #[test]
    fn an_mra_postpones_repeats() {
        let mut repeat = Repeat::new(Time::ZERO, [0; MAD_LEN], 50 * MS, nanos(20), 15, 0);
        repeat.postpone(Time(10 * MS), nanos(24), 2);
        assert_eq!(repeat.due(), Time(10 * MS + nanos(24)));
        assert_eq!(repeat.poll(repeat.due(), 0), Some(true));
        assert_eq!(repeat.poll(repeat.due(), 0), Some(true));
        assert_eq!(repeat.poll(repeat.due(), 0), None);
    }
}
