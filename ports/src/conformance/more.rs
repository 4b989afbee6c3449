//! Checks and helpers of this crate's tests in addition to the suite.

use std::io;
use std::time::Duration;

use irnic_transports::Time;

use super::{Pair, frame, write_frame};
use crate::{Port, RxFrame, TxFrame, forward_rest, host_now};

pub(crate) const V4_A: &str = "127.0.0.1";
pub(crate) const V4_B: &str = "127.0.0.2";

/// A port whose frames all go to one queue pair.
pub(crate) struct To<P>(pub(crate) P, pub(crate) u32);

impl<P: Port> Port for To<P> {
    fn transmit(&mut self, now: Time, frame: &TxFrame<'_>, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        self.0.transmit(now, &TxFrame { dest_qp: self.1, ..*frame }, fill)
    }

    fn flush(&mut self, now: Time) -> io::Result<()> {
        self.0.flush(now)
    }

    fn receive(&mut self, now: Time, budget: usize, each: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        self.0.receive(now, budget, each)
    }

    forward_rest!(self => self.0);
}

/// Checks, for ports whose writers stamp frames, that the stamps are the times of sending. Each end has its own clock,
/// and the reader polls late. Not part of the suite.
pub(crate) fn frames_bear_the_time_of_their_sending(mut pair: Pair) {
    // Offsets by which the clocks of the two ends lag behind the host's.
    let [own, other] = [host_now().0, host_now().0 / 2];
    for round in 0..4 {
        pair.b.receive(host_now() - other, 8, &mut |_| panic!("a frame that nobody sent")).unwrap();
        let before = host_now();
        let now = before - own;
        assert!(pair.a.transmit(now, &frame(&pair.path, 64), &mut |b| write_frame(round, b)));
        pair.a.flush(now).unwrap();
        let after = host_now();
        std::thread::sleep(Duration::from_millis(20));
        let polled = host_now();
        let mut arrived = None;
        pair.b.receive(polled - other, 8, &mut |f| arrived = Some(f.arrived)).unwrap();
        let unsure = host_now().since(polled);
        check_arrival(arrived.unwrap() + other, before, after, unsure);
    }
}

/// Checks that a frame sent between `before` and `after` has an arrival time in that range, within `unsure` ns plus the
/// uncertainty of the sender's clock and of the receiver's. All times are on the host's clock.
pub(crate) fn check_arrival(arrived: Time, before: Time, after: Time, unsure: u64) {
    let unsure = unsure + after.since(before);
    assert!(
        arrived >= before - unsure && arrived <= after + unsure,
        "{before:?} to {after:?}: {arrived:?}, {unsure} ns"
    );
}
