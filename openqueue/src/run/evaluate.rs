//! The evaluation of conditions.

use super::items::Packet;
use super::state::{Scene, World, account};
use super::weigh::{BUFFER, BUFFER_SIZE, FREE, HEADROOM, INGRESS, PACKET, PORT, QUEUE, QUEUE_SIZE, SENDING, Sum, Test};

impl World {
    /// Returns whether a sum is above 0.
    #[inline]
    fn is_above_0(&self, sum: &Sum, queue: usize, packet: &Packet) -> bool {
        let weights = &sum.weights;
        let state = &self.queues[queue];
        let mut total = sum.constant
            + weights[PACKET] * i64::from(packet.size)
            + weights[QUEUE] * state.bytes as i64
            + weights[QUEUE_SIZE] * state.size as i64;
        if weights[PORT] != 0 {
            total += weights[PORT] * self.ports[state.port as usize].bytes as i64;
        }
        if weights[BUFFER] | weights[BUFFER_SIZE] | weights[FREE] | weights[HEADROOM] != 0
            && let Some(buffer) = self.buffers.get(state.buffer as usize)
        {
            total += weights[BUFFER] * buffer.bytes as i64 + weights[BUFFER_SIZE] * buffer.size as i64;
            match &buffer.ledger {
                Some(ledger) if weights[FREE] | weights[HEADROOM] != 0 => {
                    let headroom = ledger.in_headroom(account(packet.input, packet.priority));
                    total += weights[FREE] * ledger.free() as i64 + weights[HEADROOM] * headroom as i64;
                }
                Some(_) => {}
                None => total += weights[FREE] * (buffer.size as i64 - buffer.bytes as i64),
            }
        }
        if weights[INGRESS] | weights[SENDING] != 0 {
            let bytes = self.ingress.get(account(packet.input, packet.priority)).copied().unwrap_or(0);
            total += weights[INGRESS] * bytes as i64 + weights[SENDING] * i64::from(self.sending(queue));
        }
        total > 0
    }

    /// Returns whether the test of a case holds for a queue and a packet.
    #[inline]
    pub fn holds(&self, test: &Test, queue: usize, packet: &Packet) -> bool {
        match test {
            Test::Above(sum) => self.is_above_0(sum, queue, packet),
            Test::AnyAbove(sums) => sums.iter().any(|sum| self.is_above_0(sum, queue, packet)),
            Test::Always => true,
            Test::Never => false,
            Test::Holds(program) => {
                let scene = Scene { queue, packet };
                program.run(|source| self.load(scene, source)) != 0
            }
        }
    }
}
