//! Ports whose frames have times on a clock of their own.

use irnic_transports::Time;
use irnic_transports::telemetry::Int;

use crate::Port;

/// Times of a turn of a NIC on a [`Timed`] port.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// When something last happened, in an earlier turn.
    pub done: Time,
    /// The earliest time at which the NIC may send what nothing but its application has caused since.
    pub from: Time,
    /// Up to here it goes.
    pub now: Time,
}

/// What an application does.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Application {
    /// It has called something, and may call more at once.
    Acts,
    /// It polls completion queues, all in vain, until there is a completion.
    Polls,
    /// It sleeps until it hears of something.
    Sleeps,
}

/// A port by whose clock a NIC does what is due when it is due, not when its process gets a core.
///
/// The NIC takes *turns*: [`Timed::begin`] says up to which time everything is known that happens to it. The NIC goes
/// through arrivals, deadlines and the times at which the link is free in their order, and calls the port with the time
/// of each. [`Timed::end`] tells when it is going to do something of its own accord. [`crate::NicPort`] does all this;
/// the `now` of its callers does not count then.
pub trait Timed: Port {
    /// Begins a turn.
    fn begin(&mut self) -> Turn;

    /// Returns when the first frame, or notice of the link, has arrived that [`Port::receive`] has not yet passed on;
    /// [`Time::NEVER`] if none is there.
    fn next_arrival(&mut self) -> Time;

    /// Returns the telemetry of the frame that [`Timed::next_arrival`] has announced, if it has any.
    fn telemetry(&self) -> Option<Int>;

    /// Gives the next frame that is transmitted telemetry for switches to write on.
    fn attach(&mut self, telemetry: &Int);

    /// Returns when the link can take a frame.
    fn free_at(&self) -> Time;

    /// Returns the priorities that the other end of the link has paused, a bit each.
    fn paused(&self) -> u8;

    /// Ends a turn, in which something last happened at `done`. Unless something arrives or is posted the NIC does
    /// nothing before `next`.
    fn end(&mut self, done: Time, next: Time);

    /// Returns the time of the port's clock.
    fn clock(&self) -> Time;

    /// Returns whether the clock stands still until all applications wait, and then goes on to what happens next. The
    /// port has to be told what its application does then: [`Timed::note`], [`Timed::settle`].
    fn awaits_applications(&self) -> bool {
        false
    }

    /// Notes what the application does from now on.
    fn note(&mut self, _application: Application) {}

    /// Notes what turns have come to: the application has `heard` of something, or there are completions. It does what
    /// it did before, unless it waited for that.
    fn settle(&mut self, _heard: bool, _completions: bool) {}

    /// Returns whether an application that polls polls in vain before time has gone on.
    fn stands_still(&mut self) -> bool {
        false
    }
}
