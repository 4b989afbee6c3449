//! The invariant CRC (IBA 7.8.1 and A17.3.3): CRC-32 over eight bytes of ones in place of an LRH, the IP and UDP headers,
//! and the frame up to the ICRC, where everything that a router may change counts as ones: TOS, TTL and checksum of
//! IPv4; traffic class, flow label and hop limit of IPv6; the UDP checksum; and the BTH's byte 4 (FECN, BECN, Resv6).
//! It is sent with its least significant byte first.
//!
//! Lengths are covered, and of IPv4 also identification and flags, so a sender must know what its socket will put there:
//! a Linux UDP socket that sets DF sends identification 0.

use crc32fast::Hasher;

use super::{Bth, ICRC_LEN, ip};
use crate::packet::Path;

/// What CRC-32 is computed over before the frame, at the most: LRH, IPv6 header and UDP header.
const MAX_PREFIX: usize = 8 + ip::MAX_HEADERS_LEN;

/// `crc32fast` takes whole blocks of so many bytes at once, the rest in smaller steps.
const BLOCK: usize = 16;

/// Prefix, BTH, and as much of the rest as leaves whole blocks.
const HEAD: usize = 80;

const _: () = assert!(MAX_PREFIX + Bth::LEN + BLOCK - 1 - 4 <= HEAD);

/// The ICRC of `body`, a frame without its ICRC, on `path`. `ip_id` is the IPv4 identification; IPv6 has none. IPv4 is
/// taken to have DF set and no options, as RoCEv2 requires (IBA A17.3).
#[inline]
pub fn icrc(path: &Path, ip_id: u16, body: &[u8]) -> u32 {
    let mut headers = [0; ip::MAX_HEADERS_LEN];
    let len = ip::lay_out(path, ip_id, body.len() + ICRC_LEN, &mut headers);
    masked_crc(&mut headers[..len], body)
}

/// The ICRC of `body`, a frame without its ICRC, behind these bytes of IP and UDP header as they were captured:
/// 28 bytes for IPv4 without options, 48 for IPv6 without extension headers, otherwise `None`.
pub fn icrc_of_headers(ip_and_udp: &[u8], body: &[u8]) -> Option<u32> {
    let mut headers = [0; ip::MAX_HEADERS_LEN];
    let expected = match ip_and_udp.first()? >> 4 {
        4 => ip::IPV4_LEN + ip::UDP_LEN,
        6 => ip::MAX_HEADERS_LEN,
        _ => return None,
    };
    if ip_and_udp.len() != expected {
        return None;
    }
    headers[..expected].copy_from_slice(ip_and_udp);
    Some(masked_crc(&mut headers[..expected], body))
}

/// Writes the ICRC into the last four bytes of `frame`, whose other bytes are complete. A frame shorter than an ICRC
/// stays as it is.
#[inline]
pub fn icrc_append(path: &Path, ip_id: u16, frame: &mut [u8]) {
    if let Some((body, tail)) = frame.split_last_chunk_mut::<ICRC_LEN>() {
        *tail = icrc(path, ip_id, body).to_le_bytes();
    }
}

/// Whether the last four bytes of `frame` are its ICRC.
#[inline]
pub fn icrc_check(path: &Path, ip_id: u16, frame: &[u8]) -> bool {
    frame.split_last_chunk::<ICRC_LEN>().is_some_and(|(body, tail)| *tail == icrc(path, ip_id, body).to_le_bytes())
}

/// Masks the headers and computes the CRC over them and `body`.
///
/// CRC-32 starts with its register full of ones, which is the same as starting from zero with the first four bytes
/// inverted. Those bytes are the LRH's ones, so they become zeros, and zeros in front of a register of zero change
/// nothing: the head can be padded in front to whole blocks, and no byte takes the slow path.
#[inline]
fn masked_crc(headers: &mut [u8], body: &[u8]) -> u32 {
    mask(headers);
    let tail_len = body.len().saturating_sub(Bth::LEN) / BLOCK * BLOCK;
    let (start, tail) = body.split_at(body.len() - tail_len);
    let mut head = [0; HEAD];
    let body_at = HEAD - start.len();
    let headers_at = body_at - headers.len();
    head[body_at..].copy_from_slice(start);
    if let Some(congestion) = head[body_at..].get_mut(4) {
        *congestion = 0xff;
    }
    head[headers_at..body_at].copy_from_slice(headers);
    head[headers_at - 4..headers_at].fill(0xff);
    let used = HEAD - headers_at + 4;
    let mut crc = Hasher::new_with_initial(!0);
    crc.update(&head[HEAD - used.next_multiple_of(BLOCK)..]);
    crc.update(tail);
    crc.finalize()
}

/// Sets what a router may change in IP and UDP headers to ones.
#[inline]
fn mask(headers: &mut [u8]) {
    let udp = headers.len() - ip::UDP_LEN;
    if udp == ip::IPV4_LEN {
        headers[1] = 0xff;
        headers[8] = 0xff;
        headers[10..12].fill(0xff);
    } else {
        headers[0] |= 0x0f;
        headers[1..4].fill(0xff);
        headers[7] = 0xff;
    }
    headers[udp + 6..].fill(0xff);
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn path(src: &str, dst: &str) -> Path {
        let parse = |s: &str| s.parse::<IpAddr>().expect("address");
        Path { src: parse(src), dst: parse(dst), udp_src: 0xc123, traffic_class: 0x68, hop_limit: 17 }
    }

    fn paths() -> [Path; 2] {
        [path("10.77.0.11", "10.77.0.12"), path("fe80::1", "2001:db8::7")]
    }

    fn body(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 37 + 11) as u8).collect()
    }

    /// Byte by byte, straight from the definition.
    fn by_definition(ip_and_udp: &[u8], body: &[u8]) -> u32 {
        let (mut headers, mut body) = (ip_and_udp.to_vec(), body.to_vec());
        mask(&mut headers);
        body[4] = 0xff;
        let mut register = !0_u32;
        for byte in [0xff; 8].into_iter().chain(headers).chain(body) {
            register ^= u32::from(byte);
            for _ in 0..8 {
                register = register >> 1 ^ if register & 1 == 1 { 0xedb8_8320 } else { 0 };
            }
        }
        !register
    }

    #[test]
    fn every_length_agrees_with_the_definition() {
        for path in paths() {
            for len in (12..400).chain([1040, 4124]) {
                let mut headers = [0; ip::MAX_HEADERS_LEN];
                let n = ip::emit(&path, 0x1234, len + ICRC_LEN, &mut headers);
                let expected = by_definition(&headers[..n], &body(len));
                assert_eq!(icrc(&path, 0x1234, &body(len)), expected, "{path:?} {len}");
                assert_eq!(icrc_of_headers(&headers[..n], &body(len)), Some(expected), "{path:?} {len}");
            }
        }
    }

    #[test]
    fn what_a_router_may_change_is_not_covered() {
        for path in paths() {
            let mut frame = body(80);
            icrc_append(&path, 7, &mut frame);
            let rerouted = Path { traffic_class: 3, hop_limit: 1, ..path };
            frame[4] ^= 0xff;
            assert!(icrc_check(&rerouted, 7, &frame));
        }
    }

    #[test]
    fn everything_else_is_covered() {
        for path in paths() {
            let mut frame = body(80);
            icrc_append(&path, 7, &mut frame);
            assert!(icrc_check(&path, 7, &frame));
            assert!(!icrc_check(&Path { udp_src: 1, ..path }, 7, &frame));
            assert!(!icrc_check(&Path { src: path.dst, ..path }, 7, &frame));
            assert_eq!(icrc_check(&path, 8, &frame), path.src.is_ipv6(), "only IPv4 has an identification");
            for bit in 0..frame.len() * 8 {
                if bit / 8 != 4 {
                    frame[bit / 8] ^= 1 << (bit % 8);
                    assert!(!icrc_check(&path, 7, &frame), "bit {bit}");
                    frame[bit / 8] ^= 1 << (bit % 8);
                }
            }
        }
    }

    #[test]
    fn short_frames_are_refused_not_read() {
        let [path, _] = paths();
        for len in 0..ICRC_LEN {
            assert!(!icrc_check(&path, 0, &body(len)));
            icrc_append(&path, 0, &mut body(len));
        }
        for len in ICRC_LEN..16 {
            let mut frame = body(len);
            icrc_append(&path, 0, &mut frame);
            assert!(icrc_check(&path, 0, &frame));
        }
    }

    #[test]
    fn captured_headers_of_other_lengths_have_no_icrc() {
        assert_eq!(icrc_of_headers(&[], &body(20)), None);
        assert_eq!(icrc_of_headers(&[0x46; 32], &body(20)), None);
        assert_eq!(icrc_of_headers(&[0x60; 28], &body(20)), None);
        assert_eq!(icrc_of_headers(&[0x50; 28], &body(20)), None);
    }
}
