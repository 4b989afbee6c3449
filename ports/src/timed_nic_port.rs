//! A NIC on a port that has its own clock.

use std::io;

use irnic_nic::frame::receive_frame_with;
use irnic_transports::{Sideband, Time};

use crate::{NicPort, Port, Timed};

/// Frames moved in a turn.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Number of frames that arrived.
    pub received: usize,
    /// Number of packets sent.
    pub sent: usize,
}

/// The driver of a [`NicPort`] whose port has its own clock ([`Timed`]): everything is done by that clock, one item
/// after the other, whenever the caller has time for a turn.
#[derive(Debug)]
pub struct TimedNicPort<'a, P> {
    on: &'a mut NicPort<P>,
}

impl<'a, P: Port> TimedNicPort<'a, P> {
    /// Returns the driver of `on`, whose port has a clock.
    #[inline]
    pub fn new(on: &'a mut NicPort<P>) -> TimedNicPort<'a, P> {
        TimedNicPort { on }
    }

    fn port(&mut self) -> &mut dyn Timed {
        self.on.port.timed().expect("a port with a clock")
    }

    /// Performs due work, each item at its time. `alarm` is the time of the caller's next work that the NIC does not
    /// know of: the clock does not pass it before the next turn. Not inlined: most ports never come here.
    ///
    /// # Errors
    /// The port's error. The NIC and the port remain usable.
    ///
    /// # Panics
    /// If the port has no clock.
    #[inline(never)]
    pub fn turn(&mut self, alarm: Time) -> io::Result<Moved> {
        let mut moved = Moved::default();
        let next = self.next(self.on.busy(), alarm);
        let port = self.port();
        if port.is_idle(next) {
            return Ok(moved);
        }
        let turn = port.begin();
        let (mut at, now) = (turn.done, turn.now);
        // Effects of calls since the last turn take place from here on, unless something has arrived before.
        let mut from = turn.from;
        // The NIC has nothing to send until something else happens, although it seems to.
        let mut idle = false;
        let done = loop {
            let (busy, deadline) = (self.on.busy() && !idle, self.on.nic.next_deadline());
            let port = self.port();
            let arrival = port.next_arrival();
            let free = if busy { port.free_at().max(from) } else { Time::NEVER };
            let deadline = deadline.max(from);
            let next = arrival.min(free).min(deadline);
            if next > now {
                break self.on.port.flush(now);
            }
            at = at.max(next);
            if arrival <= at {
                let telemetry = port.telemetry();
                let NicPort { nic, port, icrc, received_bytes, .. } = &mut *self.on;
                let received = port.receive(at, 1, &mut |frame| {
                    *received_bytes += frame.bytes.len() as u64;
                    let sideband = Sideband { telemetry: telemetry.as_ref(), ..Sideband::NONE };
                    receive_frame_with(nic, at, &frame, *icrc, sideband);
                });
                match received {
                    Ok(received) => moved.received += received,
                    Err(e) => break Err(e),
                }
                let paused = self.port().paused();
                self.on.nic.set_stopped(paused);
                (idle, from) = (false, at);
            } else if deadline <= at {
                let NicPort { nic, port, .. } = &mut *self.on;
                nic.on_deadline_knowing(at, |path, qpn| port.peer_process(path, qpn));
                (idle, from) = (false, at);
            } else {
                match self.on.queue_some(at, 1) {
                    Ok(sent) => {
                        moved.sent += sent;
                        idle = sent == 0;
                    }
                    Err(e) => break Err(e),
                }
            }
        };
        let next = self.next(self.on.busy() && !idle, alarm);
        self.port().end(at, next);
        done.map(|()| moved)
    }

    /// Returns the earliest time at which the NIC, or the caller, will do something on its own.
    fn next(&mut self, busy: bool, alarm: Time) -> Time {
        let deadline = self.on.nic.next_deadline().min(alarm);
        if busy { deadline.min(self.port().free_at()) } else { deadline }
    }
}
