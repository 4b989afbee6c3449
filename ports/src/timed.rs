//! Ports that keep the times of frames on a clock of their own.

use irnic_transports::Time;
use irnic_transports::telemetry::Int;

use crate::Port;

/// Times of a turn of a NIC on a [`Timed`] port.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Time of the last event of an earlier turn.
    pub done: Time,
    /// The earliest time at which the NIC may send what only its application has caused since.
    pub from: Time,
    /// End of the turn.
    pub now: Time,
}

/// Activity of an application.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Application {
    /// It has made a call, and may make more at once.
    Acts,
    /// It polls completion queues in vain, until there is a completion.
    Polls,
    /// It sleeps until it is notified.
    Sleeps,
}

/// A port by whose clock a NIC performs its work when it is due, not when its process gets a core.
///
/// The NIC takes *turns*: [`Timed::begin`] returns the time up to which everything that affects it is known. The NIC
/// processes arrivals, deadlines and the times at which the link is free in order, and calls the port with the time of
/// each. [`Timed::end`] reports when it will next do something on its own. [`crate::NicPort`] does all this; the `now`
/// of its callers is then ignored.
pub trait Timed: Port {
    /// Returns whether a turn would find nothing to do and change nothing: nothing has arrived or is due, and `next`,
    /// the earliest time at which the NIC will do something on its own, is that of the last turn.
    fn is_idle(&mut self, next: Time) -> bool;

    /// Begins a turn.
    fn begin(&mut self) -> Turn;

    /// Returns the arrival time of the first frame, or notice of the link, that [`Port::receive`] has not yet
    /// delivered; [`Time::NEVER`] if there is none.
    fn next_arrival(&mut self) -> Time;

    /// Returns the telemetry of the frame announced by [`Timed::next_arrival`], if it has any.
    fn telemetry(&self) -> Option<Int>;

    /// Attaches telemetry, for switches to add to, to the next transmitted frame.
    fn attach(&mut self, telemetry: &Int);

    /// Returns when the link can accept a frame.
    fn free_at(&self) -> Time;

    /// Returns the priorities paused by the other end of the link, one bit each.
    fn paused(&self) -> u8;

    /// Ends a turn whose last event was at `done`. Unless something arrives or is posted, the NIC does nothing before
    /// `next`.
    fn end(&mut self, done: Time, next: Time);

    /// Returns the time of the port's clock.
    fn clock(&self) -> Time;

    /// Returns whether the clock stops until all applications wait, and then advances to the next event. The
    /// application's activity must then be reported by [`Timed::note`] and [`Timed::settle`].
    fn awaits_applications(&self) -> bool {
        false
    }

    /// Records the application's activity from now on.
    fn note(&mut self, _application: Application) {}

    /// Records the result of turns: the application was notified (`heard`), or there are completions. It continues its
    /// previous activity, unless it waited for that.
    fn settle(&mut self, _heard: bool, _completions: bool) {}

    /// Returns whether an application that polls does so in vain until time advances.
    fn stands_still(&mut self) -> bool {
        false
    }
}
