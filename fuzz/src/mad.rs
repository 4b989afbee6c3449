//! Bytes from the wire, as messages of the communication manager.

use irnic_transports::wire::mad::{Mad, destination};

/// Never a panic; what parses has a destination, and is emitted back to the same meaning.
pub fn mad_parser(data: &[u8]) {
    let mad = Mad::parse(data);
    assert_eq!(destination(data).is_some(), mad.is_ok());
    let Ok(mad) = mad else { return };
    let again = mad.to_bytes();
    assert_eq!(Mad::parse(&again), Ok(mad));
    assert_eq!(destination(&again), destination(data));
}
