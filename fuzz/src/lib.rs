//! What is fuzzed, apart from who chooses the bytes: the fuzz targets hand over what libFuzzer finds, the tests of
//! `make test` the committed corpus and seeded random bytes. Each function panics if a rule is broken and returns
//! otherwise.

mod arena;
mod forge;
mod frames;
mod impairments;
mod mad;
mod nic;
mod packet;

pub use frames::frame_link;
pub use impairments::impairment_grammar;
pub use mad::mad_parser;
pub use nic::nic_receive;
pub use packet::packet_parser;
