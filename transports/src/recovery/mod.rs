//! Loss recovery: the four packet-processing modules of IRN (§4.5.2) and their go-back-N counterparts.
//!
//! A *stream* is a run of packets one way with a sequence number each: a queue pair's requests (sPSN), or the responses to
//! its READs and ATOMICs (rPSN). [`Sender`] is one end of a stream (txFree, receiveAck, timeout), [`Receiver`] the other
//! (receiveData). Both know sequence numbers only: no headers, no work requests, no clock.

mod bitmap;
mod receiver;
mod sender;

pub use bitmap::Bitmap;
pub use receiver::{Arrival, Class, Receiver};
pub use sender::{Recovery, Sack, Sender, SenderState};
