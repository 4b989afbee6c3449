//! The invariant CRC (IBA 7.8.1 and A17.3.3): CRC-32 over eight bytes of ones in place of an LRH, the IP and UDP
//! headers, and the frame up to the ICRC, where fields that a router may change are replaced by ones: TOS, TTL and
//! checksum of IPv4; traffic class, flow label and hop limit of IPv6; the UDP checksum; and the BTH's byte 4 (FECN,
//! BECN, Resv6). It is sent with its least significant byte first.
//!
//! Lengths are covered, and in IPv4 also identification and flags, so a sender must know the values that its socket
//! will set: a Linux UDP socket that sets DF sends identification 0.

use std::net::IpAddr;

use crc32fast::Hasher;

use super::{Bth, Headers, ICRC_LEN, ROCE_PORT, ip};
use crate::packet::Path;

/// `crc32fast` processes whole blocks of this many bytes at once, the rest in smaller steps.
const BLOCK: usize = 16;

/// Words of the masked headers, ones in front: 4 bytes of ones with IPv4, zeros and ones with IPv6 (see
/// [`masked_crc`]).
const V4_WORDS: usize = (4 + ip::IPV4_LEN + ip::UDP_LEN) / 8;
const V6_WORDS: usize = (8 + ip::IPV6_LEN + ip::UDP_LEN) / 8;

/// Masked headers, followed by the frame's own.
const HEAD: usize = (V6_WORDS * 8 + Headers::MAX_LEN).next_multiple_of(BLOCK);

const _: () = assert!(Bth::LEN + BLOCK <= Headers::MAX_LEN);

/// Returns the ICRC of `body`, a frame without its ICRC, on `path`. `ip_id` is the IPv4 identification; IPv6 has none.
/// IPv4 is assumed to have DF set and no options, as RoCEv2 requires (IBA A17.3).
#[inline]
pub fn icrc(path: &Path, ip_id: u16, body: &[u8]) -> u32 {
    let (start, rest) = whole_blocks(body);
    icrc_of_parts(path, ip_id, start, std::iter::once(rest))
}

/// Returns the ICRC of a frame on `path` as [`icrc`] does, for a frame in several parts: `start`, which is its BTH with
/// at most [`Headers::MAX_LEN`] bytes in total, and the parts of the `rest`. Fastest if all parts but the last are
/// multiples of 16 bytes.
///
/// # Panics
/// If `start` is longer.
#[inline]
pub fn icrc_of_parts<'a>(path: &Path, ip_id: u16, start: &[u8], rest: impl Iterator<Item = &'a [u8]> + Clone) -> u32 {
    let len = start.len() + rest.clone().map(<[u8]>::len).sum::<usize>();
    let udp_len = (ip::UDP_LEN + len + ICRC_LEN) as u16;
    let udp = u64::from(path.udp_src) << 48 | u64::from(ROCE_PORT) << 32 | u64::from(udp_len) << 16 | 0xffff;
    // Whole words, because the CRC reads them back at once: a load that spans several recent stores has to wait for
    // them.
    if let (IpAddr::V4(src), IpAddr::V4(dst)) = (path.src, path.dst) {
        let total = u64::from(udp_len.wrapping_add(ip::IPV4_LEN as u16));
        let words = [
            0xffff_ffff_45ff_0000 | total,
            u64::from(ip_id) << 48 | 0x4000_ff11_ffff,
            u64::from(src.to_bits()) << 32 | u64::from(dst.to_bits()),
            udp,
        ];
        masked_crc(&words, start, rest)
    } else {
        let halves = |ip: u128| [(ip >> 64) as u64, ip as u64];
        let [s0, s1] = halves(ip::to_ipv6(path.src).to_bits());
        let [d0, d1] = halves(ip::to_ipv6(path.dst).to_bits());
        let second = 0x6fff_ffff_0000_11ff | u64::from(udp_len) << 16;
        masked_crc(&[0xffff_ffff, second, s0, s1, d0, d1, udp], start, rest)
    }
}

/// Returns the ICRC of `body`, a frame without its ICRC, behind these captured bytes of IP and UDP header: 28 bytes for
/// IPv4 without options, 48 for IPv6 without extension headers, otherwise `None`.
pub fn icrc_of_headers(ip_and_udp: &[u8], body: &[u8]) -> Option<u32> {
    let (start, rest) = whole_blocks(body);
    let rest = std::iter::once(rest);
    // The leading ones, the headers behind them, and the offsets of masked bytes in those.
    let mut h = [0xff; 8 * V6_WORDS];
    let words = |h: &[u8], i: usize| u64::from_be_bytes(std::array::from_fn(|byte| h[i * 8 + byte]));
    match (ip_and_udp.first()? >> 4, ip_and_udp.len()) {
        (4, 28) => {
            h[4..32].copy_from_slice(ip_and_udp);
            for masked in [5, 12, 14, 15, 30, 31] {
                h[masked] = 0xff;
            }
            Some(masked_crc::<V4_WORDS>(&std::array::from_fn(|i| words(&h, i)), start, rest))
        }
        (6, 48) => {
            h[..4].fill(0);
            h[8..].copy_from_slice(ip_and_udp);
            h[8] |= 0x0f;
            for masked in [9, 10, 11, 15, 54, 55] {
                h[masked] = 0xff;
            }
            Some(masked_crc::<V6_WORDS>(&std::array::from_fn(|i| words(&h, i)), start, rest))
        }
        _ => None,
    }
}

/// Writes the ICRC into the last four bytes of `frame`, whose other bytes are complete. A frame shorter than an ICRC is
/// left unchanged.
#[inline]
pub fn icrc_append(path: &Path, ip_id: u16, frame: &mut [u8]) {
    if let Some((body, tail)) = frame.split_last_chunk_mut::<ICRC_LEN>() {
        *tail = icrc(path, ip_id, body).to_le_bytes();
    }
}

/// Returns whether the last four bytes of `frame` are its ICRC.
#[inline]
pub fn icrc_check(path: &Path, ip_id: u16, frame: &[u8]) -> bool {
    frame.split_last_chunk::<ICRC_LEN>().is_some_and(|(body, tail)| *tail == icrc(path, ip_id, body).to_le_bytes())
}

/// Returns whether the last four bytes of `frame` are its ICRC, for a frame received over IPv4 without DF. RoCEv2 sets
/// it (IBA A17.3), but the ICRC covers the flag as it was sent.
#[cold]
pub fn icrc_check_fragmentable(path: &Path, ip_id: u16, frame: &[u8]) -> bool {
    /// Offset of the flags in the IPv4 header.
    const FLAGS: usize = 6;
    let mut headers = [0; ip::MAX_HEADERS_LEN];
    let len = ip::emit(path, ip_id, frame.len(), &mut headers);
    if headers[0] >> 4 == 4 {
        headers[FLAGS] = 0;
    }
    frame.split_last_chunk::<ICRC_LEN>().is_some_and(|(body, tail)| {
        icrc_of_headers(&headers[..len], body).is_some_and(|icrc| *tail == icrc.to_le_bytes())
    })
}

/// Returns the IPv4 identification for which the last four bytes of `frame` are its ICRC, if there is one: for a
/// receiver that cannot see the identification, which UDP sockets hide. `None` with IPv6, which has none.
///
/// Any of 2^16 identifications is accepted, so of randomly corrupted frames one in 2^16 passes, instead of one in 2^32:
/// try [`icrc_check`] first where the sender is known to use one identification.
pub fn icrc_identification(path: &Path, frame: &[u8]) -> Option<u16> {
    if !(path.src.is_ipv4() && path.dst.is_ipv4()) {
        return None;
    }
    let (body, tail) = frame.split_last_chunk::<ICRC_LEN>()?;
    // CRCs are linear: the two differ by the CRC, from zero, of the identification and of zeros for everything after
    // it.
    let difference = u32::from_le_bytes(*tail) ^ icrc(path, 0, body);
    let behind = ip::IPV4_LEN - IDENTIFICATION_END + ip::UDP_LEN + body.len();
    let register = take_back_zeros(difference, behind + 2);
    // The effect of the identification's two bytes on the register before they were shifted through it.
    u16::try_from(register).ok().map(u16::swap_bytes)
}

/// Bytes of the IPv4 header up to the end of the identification.
const IDENTIFICATION_END: usize = 6;

/// The CRC-32 polynomial without its x^32, the coefficient of x^31 in the lowest bit.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// x^-8, then each the square of the previous one: undoes 1, 2, 4, ... bytes of zeros.
const TAKE_BACK: [u32; 16] = {
    let mut powers = [0; 16];
    // 1, divided by x eight times.
    let mut inverse = 1_u32 << 31;
    let mut bits = 0;
    while bits < 8 {
        inverse = if inverse >> 31 == 1 { (inverse ^ POLYNOMIAL) << 1 | 1 } else { inverse << 1 };
        bits += 1;
    }
    let mut i = 0;
    while i < powers.len() {
        powers[i] = inverse;
        inverse = multiply(inverse, inverse);
        i += 1;
    }
    powers
};

/// Returns the product of two polynomials modulo the CRC's.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = 31;
    loop {
        if a >> bit & 1 == 1 {
            product ^= b;
        }
        if bit == 0 {
            return product;
        }
        bit -= 1;
        b = b >> 1 ^ if b & 1 == 1 { POLYNOMIAL } else { 0 };
    }
}

/// Returns the register as it was before `bytes` zero bytes, fewer than 2^16.
fn take_back_zeros(register: u32, bytes: usize) -> u32 {
    let factors = TAKE_BACK.iter().enumerate().filter(|(i, _)| bytes >> i & 1 == 1);
    factors.fold(register, |register, (_, factor)| multiply(register, *factor))
}

/// Splits a frame behind its BTH so that the rest is a multiple of the block size.
#[inline]
fn whole_blocks(body: &[u8]) -> (&[u8], &[u8]) {
    let rest = body.len().saturating_sub(Bth::LEN) / BLOCK * BLOCK;
    body.split_at(body.len() - rest)
}

/// Returns the CRC over ones, masked headers, and a frame.
///
/// CRC-32 starts with its register all ones, which is the same as starting from zero with the first four bytes
/// inverted. Those bytes are the LRH's ones, so they become zeros, and leading zeros do not change a register of zero:
/// they are omitted, or inserted where that completes a block, so that no byte takes a slow path.
#[inline]
fn masked_crc<'a, const N: usize>(headers: &[u64; N], start: &[u8], rest: impl Iterator<Item = &'a [u8]>) -> u32 {
    let mut head = [0; HEAD];
    let body_at = HEAD - start.len();
    let headers_at = body_at - N * 8;
    for (i, word) in headers.iter().enumerate() {
        head[headers_at + i * 8..][..8].copy_from_slice(&word.to_be_bytes());
    }
    head[body_at..].copy_from_slice(start);
    if let Some(congestion) = head[body_at..].get_mut(4) {
        *congestion = 0xff;
    }
    let mut crc = Hasher::new_with_initial(!0);
    crc.update(&head[headers_at / BLOCK * BLOCK..]);
    for part in rest.filter(|part| !part.is_empty()) {
        crc.update(part);
    }
    crc.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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

    /// Byte by byte, directly from the definition.
    fn by_definition(ip_and_udp: &[u8], body: &[u8]) -> u32 {
        let (mut headers, mut body) = (ip_and_udp.to_vec(), body.to_vec());
        let masked: &[usize] = if headers[0] >> 4 == 4 { &[1, 8, 10, 11, 26, 27] } else { &[1, 2, 3, 7, 46, 47] };
        masked.iter().for_each(|&at| headers[at] = 0xff);
        headers[0] |= if headers[0] >> 4 == 6 { 0x0f } else { 0 };
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
    fn df_is_covered_as_it_was_sent() {
        for path in paths() {
            let mut frame = body(80);
            let mut headers = [0; ip::MAX_HEADERS_LEN];
            let n = ip::emit(&path, 7, frame.len(), &mut headers);
            if path.src.is_ipv4() {
                headers[6] = 0;
            }
            let icrc = by_definition(&headers[..n], &frame[..76]);
            frame[76..].copy_from_slice(&icrc.to_le_bytes());
            assert!(icrc_check_fragmentable(&path, 7, &frame));
            assert_eq!(icrc_check_fragmentable(&path, 8, &frame), path.src.is_ipv6());
            assert_eq!(icrc_check(&path, 7, &frame), path.src.is_ipv6(), "IPv6 has no such flag");
            frame[20] ^= 1;
            assert!(!icrc_check_fragmentable(&path, 7, &frame));
        }
        assert!(!icrc_check_fragmentable(&paths()[0], 0, &[0; 3]));
    }

    #[test]
    fn a_forgotten_identification_is_found() {
        let [v4, v6] = paths();
        for id in (0..=u16::MAX).step_by(251).chain([1, 0x00ff, 0xff00, 0xffff]) {
            let mut frame = body(4 + usize::from(id) % 4200);
            icrc_append(&v4, id, &mut frame);
            assert_eq!(icrc_identification(&v4, &frame), Some(id));
            icrc_append(&v6, id, &mut frame);
            assert_eq!(icrc_identification(&v6, &frame), None);
        }
        assert_eq!(icrc_identification(&v4, &[0; 3]), None);
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

    proptest! {
        /// For any division of a frame, including empty parts.
        #[test]
        fn parts_give_the_icrc_of_the_whole(
            id: u16, v6: bool, len in 0..4300_usize, start in Bth::LEN..=Headers::MAX_LEN, cuts: [u16; 2]
        ) {
            let path = paths()[usize::from(v6)];
            let whole = body(len);
            let (start, rest) = whole.split_at(start.min(len));
            let (first, rest) = rest.split_at(usize::from(cuts[0]) % (rest.len() + 1));
            let (second, third) = rest.split_at(usize::from(cuts[1]) % (rest.len() + 1));
            let parts = icrc_of_parts(&path, id, start, [first, second, third].into_iter());
            prop_assert_eq!(parts, icrc(&path, id, &whole));
        }

        /// An identification that is found makes the exact check pass, for any changes to the frame; in an unchanged
        /// frame it is found.
        #[test]
        fn an_identification_is_found_exactly_where_one_fits(
            id: u16, v6_mapped: bool, len in 0..4300_usize, flips in prop::collection::vec(any::<u32>(), 0..4)
        ) {
            let path = if v6_mapped { path("10.0.0.1", "::ffff:10.0.0.2") } else { path("10.0.0.1", "10.0.0.2") };
            let mut frame = body(len);
            icrc_append(&path, id, &mut frame);
            let untouched = frame.clone();
            for flip in flips {
                let bit = flip as usize % (len * 8).max(1);
                // Fields that a router may change are not covered.
                if let Some(byte) = frame.get_mut(bit / 8).filter(|_| bit / 8 != 4) {
                    *byte ^= 1 << (bit % 8);
                }
            }
            match icrc_identification(&path, &frame) {
                Some(found) => {
                    prop_assert!(icrc_check(&path, found, &frame));
                    prop_assert!(found == id || frame != untouched);
                }
                None => prop_assert!(v6_mapped || len < ICRC_LEN || frame != untouched),
            }
        }
    }

    #[test]
    fn no_identification_is_overlooked_in_a_corrupt_frame() {
        let [v4, _] = paths();
        for flipped in 0..4 {
            let mut frame = body(28);
            icrc_append(&v4, 9, &mut frame);
            frame[13] ^= 1 << flipped;
            let fits = (0..=u16::MAX).find(|&id| icrc_check(&v4, id, &frame));
            assert_eq!(icrc_identification(&v4, &frame), fits);
        }
    }
}
