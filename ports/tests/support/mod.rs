//! What tests of ports have in common.

use std::io;
use std::time::Duration;

use irnic_ports::{Port, RxFrame, TxFrame};
use irnic_transports::Time;

/// A port that takes every frame, and has none. It takes no memory.
pub struct Sink;

impl Port for Sink {
    fn max_frame(&self) -> usize {
        4200
    }

    fn transmit(&mut self, _: Time, frame: &TxFrame<'_>, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        let mut bytes = [0; 4200];
        fill(&mut bytes[..frame.len]);
        true
    }

    fn flush(&mut self, _: Time) -> io::Result<()> {
        Ok(())
    }

    fn receive(&mut self, _: Time, _: usize, _: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        Ok(0)
    }

    fn wait(&mut self, _: Duration) -> io::Result<()> {
        Ok(())
    }
}
