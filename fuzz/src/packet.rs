//! Bytes from the wire, as IP packets and as frames.

use irnic_transports::wire::ip::{parse_ethernet, parse_ip};
use irnic_transports::wire::{Headers, RateNotice, Syndrome, icrc_check, icrc_of_headers, parse, parse_trimmed};

/// Never a panic, never a read past the end, and whatever parses is emitted back to the same meaning.
pub fn packet_parser(data: &[u8]) {
    frame(data);
    if let Ok(notice) = RateNotice::parse(data) {
        assert_eq!(RateNotice::parse(&notice.emit()), Ok(notice));
    }
    for datagram in [parse_ethernet(data), parse_ip(data)].into_iter().flatten() {
        icrc_check(&datagram.path, datagram.ip_id, datagram.frame);
        assert!(icrc_of_headers(datagram.headers, datagram.frame).is_some());
        frame(datagram.frame);
    }
}

fn frame(bytes: &[u8]) {
    if let Ok(headers) = parse_trimmed(bytes) {
        assert!(headers.is_consistent() && headers.ndp.is_some() && headers.len() <= bytes.len());
    }
    let Ok((headers, payload)) = parse(bytes) else { return };
    assert!(headers.is_consistent());
    assert!(headers.len() <= Headers::MAX_LEN);
    assert_eq!(headers.frame_len(payload.len()), bytes.len());
    if let Some(syndrome) = headers.aeth.and_then(|aeth| Syndrome::from_u8(aeth.syndrome)) {
        _ = syndrome.to_string();
    }
    let mut again = vec![0; bytes.len()];
    let len = headers.emit(&mut again);
    again[len..len + payload.len()].copy_from_slice(payload);
    assert_eq!(parse(&again), Ok((headers, payload)));
}
