//! Loss recovery: the four packet-processing modules of IRN (§4.5.2) and their go-back-N counterparts.
//!
//! A *stream* is a sequence of numbered packets in one direction: a queue pair's requests (sPSN), or the responses to
//! its READs and ATOMICs (rPSN). [`Sender`] is one end of a stream (txFree, receiveAck, timeout), [`Receiver`] the
//! other (receiveData). Both know only sequence numbers and the time of a call: no headers, no work requests, no clock.
//!
//! A sender is a `stream` and one of three schemes over it: `go_back_n`, `irn`, which has the rules of IRN's reference
//! modules, and `rack`, which goes by transmission times. The latter two share a `scoreboard`, and the record of
//! acknowledgements at low priority, `low_acks` (RC3).
//!
//! [`Pulled`] is another kind of sender, whose receiver requests each packet (NDP). [`Paths`] are the paths that it
//! chooses from.

mod bitmap;
mod go_back_n;
mod irn;
mod low_acks;
mod paths;
mod pulled;
mod rack;
mod receiver;
mod scoreboard;
mod sender;
mod stream;

pub use bitmap::Bitmap;
pub use paths::{Paths, Penalty};
pub use pulled::{Answer, Feedback, Pulled, Turn, Unexpected};
pub use receiver::{Arrival, Class, Receiver};
pub use sender::{Recovery, Sack, Sender, SenderState};
