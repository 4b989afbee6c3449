//! Acknowledgements: when they leave, or wait for the application's reply.

use irnic_transports::Time;

use super::state::State;

impl State {
    /// Receives and sends like [`State::progress`], but leaves acknowledgements to an application that is about to
    /// reply, and unless it polls lets them wait for further packets in a stream. Returns the number of packets moved,
    /// and whether acknowledgements wait for packets.
    #[inline]
    pub(super) fn progress_in_background(&mut self, now: Time, polled: bool) -> (usize, bool) {
        let before = self.nic_port.received_bytes();
        let received = self.receive(now);
        if received > 0 {
            self.model.memory_watch.arrived(now);
        }
        if self.model.may_leave_acks(received, self.unanswered, now) && self.nic_port.busy() {
            self.defer_acks(now);
            return (received, false);
        }
        let bytes = (self.nic_port.received_bytes() - before) as usize;
        if !polled && self.model.batches_acks(received, bytes, self.unanswered, now) {
            self.dispatch();
            return (received, true);
        }
        (received + self.answer(received, now), false)
    }

    /// Acknowledges `received` packets, or leaves that to the reply of the application, which is about to get `taken`
    /// completions.
    #[inline]
    pub(super) fn answer_or_wait(&mut self, received: usize, taken: usize, now: Time) {
        if taken > 0 && self.model.may_defer_acks(received, self.unanswered, now) && self.nic_port.busy() {
            self.defer_acks(now);
        } else {
            self.await_answer(received, now);
            self.answer(received, now);
        }
    }

    /// Makes acknowledgements wait for the application's reply.
    #[inline]
    fn defer_acks(&mut self, now: Time) {
        self.ack_deferred = true;
        self.model.answers.expect(now);
        self.dispatch();
    }

    /// Records that the acknowledgements of `received` packets leave before the reply, to learn whether one comes in
    /// time.
    #[inline]
    fn await_answer(&mut self, received: usize, now: Time) {
        if received > 0 && self.nic_port.busy() {
            self.model.answers.expect(now);
        }
    }

    /// Sends deferred acknowledgements, and packets that wait to leave with others.
    #[inline]
    pub(super) fn send_deferred(&mut self) {
        if self.ack_deferred || self.waits.is_some() {
            self.transmit(super::now());
        }
    }

    /// Sends acknowledgements for which no reply came in time.
    pub(super) fn give_up_answer(&mut self, now: Time) {
        self.model.give_up_answer(now);
        self.send_deferred();
    }
}
