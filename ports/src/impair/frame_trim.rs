//! Trimming the bytes of frames by a line: docs/wire.md, "NDP's extension".

use irnic_transports::wire::{ICRC_LEN, icrc_append, parse, parse_trimmed};
use irnic_transports::{Mark, Path};

use super::trimming::Kind;
use crate::RxIcrc;

/// Returns what a line may do with a frame, BTH to ICRC.
pub(super) fn kind(path: &Path, frame: &[u8]) -> Kind {
    // Only a trimmed frame is too short for its pad count, and only one of a pulled stream can be trimmed.
    match path.mark() {
        Mark::Trimmed if parse_trimmed(frame).is_ok() => return Kind::Trimmed,
        Mark::Returned if parse_trimmed(frame).is_ok() => return Kind::Headers,
        _ => {}
    }
    match parse(frame) {
        Ok((_, [])) => Kind::Headers,
        Ok((headers, _)) if headers.ndp.is_some() && path.may_be_trimmed() => Kind::Trimmable,
        _ => Kind::Whole,
    }
}

/// Cuts the payload off a frame that arrived on `path` or will leave on it, marks it, and recomputes its ICRC if it has
/// one. Returns false for a frame with a wrong ICRC, and for one that cannot be trimmed.
pub(super) fn trim(path: &mut Path, icrc: &mut RxIcrc, frame: &mut Vec<u8>) -> bool {
    let Ok(headers) = parse_trimmed(frame) else { return false };
    if !icrc.is_right(path, frame) {
        return false;
    }
    frame.truncate(headers.len() + ICRC_LEN);
    *path = path.with_mark(Mark::Trimmed);
    if *icrc == RxIcrc::Absent {
        let end = frame.len() - ICRC_LEN;
        frame[end..].fill(0);
    } else {
        icrc_append(path, 0, frame);
        *icrc = RxIcrc::Exact;
    }
    true
}

/// Returns the return path of a trimmed frame. Its UDP source port stays: it identifies the full path.
pub(super) fn way_back(path: &Path) -> Path {
    Path { src: path.dst, dst: path.src, ..path.with_mark(Mark::Returned) }
}

/// Returns the destination queue pair number of a frame that arrived on `path`: the one in its BTH; for a returned
/// frame, whose BTH has its original destination, that of its sender. `None` if the frame has no BTH.
#[inline]
pub(crate) fn receiver_qp(path: &Path, frame: &[u8]) -> Option<u32> {
    // The destination queue pair follows opcode, flags, P_Key and a reserved byte (IBA 9.2).
    let dest_qp = frame.get(5..8).map(|b| u32::from_be_bytes([0, b[0], b[1], b[2]]))?;
    let source = if path.mark() == Mark::Returned { source_qp(frame) } else { None };
    Some(source.unwrap_or(dest_qp))
}

/// Returns the number of the queue pair that sent a frame of a pulled stream, trimmed or not.
pub(super) fn source_qp(frame: &[u8]) -> Option<u32> {
    Some(parse_trimmed(frame).ok()?.ndp?.source())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use irnic_transports::wire::icrc_check;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn whatever_comes_is_trimmed_to_its_headers_or_not_at_all(
            opcode in prop_oneof![any::<u8>(), 0..0x20u8], pad in 0..4u8, flags: u8, traffic_class: u8, absent: bool,
            rest in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let mut frame = vec![opcode, pad << 4 | 1, 0xff, 0xff, 0, 0, 1, 2, flags | 0x40];
            frame.extend(rest);
            let mut path = Path {
                src: [10, 0, 0, 1].into(),
                dst: [10, 0, 0, 2].into(),
                udp_src: 0xc000,
                traffic_class,
                hop_limit: 64,
            };
            let mut icrc = if absent { RxIcrc::Absent } else { RxIcrc::Exact };
            icrc_append(&path, 0, &mut frame);
            receiver_qp(&path, &frame);
            let (before, whole) = (kind(&path, &frame), frame.clone());
            let trimmed = trim(&mut path, &mut icrc, &mut frame);
            prop_assert!(trimmed || !matches!(before, Kind::Trimmable | Kind::Trimmed));
            if trimmed {
                prop_assert_eq!(parse_trimmed(&frame), parse_trimmed(&whole));
                prop_assert!(frame.len() <= whole.len() && whole.starts_with(&frame[..frame.len() - ICRC_LEN]));
                prop_assert!(absent || icrc_check(&path, 0, &frame));
                prop_assert_eq!(kind(&path, &frame), Kind::Trimmed);
                prop_assert_eq!(kind(&way_back(&path), &frame), Kind::Headers);
            } else {
                prop_assert_eq!(frame, whole);
            }
        }
    }
}
