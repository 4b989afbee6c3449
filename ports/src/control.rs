//! Control messages of received packets and datagrams (cmsg(3)).

use libc::c_int;

/// Bytes of a message's header, before its data: CMSG_LEN(0).
const HEADER: usize = size_of::<libc::cmsghdr>().next_multiple_of(size_of::<usize>());

/// One control message.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct ControlMessage<'a> {
    /// Protocol level, for example SOL_SOCKET.
    pub(crate) level: c_int,
    /// Message type within the level, for example SO_RXQ_OVFL.
    pub(crate) kind: c_int,
    data: &'a [u8],
}

impl<'a> ControlMessage<'a> {
    /// Returns the data as consecutive fields of `N` bytes.
    pub(crate) fn fields<const N: usize>(&self) -> impl Iterator<Item = [u8; N]> + use<'a, N> {
        self.data.as_chunks().0.iter().copied()
    }

    /// Returns the `N` bytes at `offset` of the data; `None` if they are shorter.
    pub(crate) fn field<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.data.get(offset..)?.first_chunk().copied()
    }

    /// Returns the data as an `int`; `None` if they are shorter.
    pub(crate) fn int(&self) -> Option<c_int> {
        self.field(0).map(c_int::from_ne_bytes)
    }

    /// Returns the number of packets that the socket has dropped since it was opened, modulo 2^32; `None` unless this
    /// is the SO_RXQ_OVFL message.
    pub(crate) fn lost(&self) -> Option<u32> {
        match (self.level, self.kind) {
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => self.field(0).map(u32::from_ne_bytes),
            _ => None,
        }
    }
}

/// Returns the control messages in a buffer passed to recvmsg(2) or recvmmsg(2). `len` is the number of bytes that the
/// kernel filled (`msg_controllen`). Ends before a message with an invalid length.
pub(crate) fn control_messages(buffer: &[u64], len: usize) -> impl Iterator<Item = ControlMessage<'_>> {
    // SAFETY: views the words of a slice as bytes.
    let bytes = unsafe { std::slice::from_raw_parts(buffer.as_ptr().cast::<u8>(), size_of_val(buffer)) };
    let mut rest = &bytes[..len.min(bytes.len())];
    std::iter::from_fn(move || {
        if rest.len() < HEADER {
            return None;
        }
        // SAFETY: `rest` has the bytes of a header, whose fields are integers: any bytes are valid for them.
        let header = unsafe { rest.as_ptr().cast::<libc::cmsghdr>().read_unaligned() };
        let data = rest.get(HEADER..header.cmsg_len as usize)?;
        rest = rest.get((header.cmsg_len as usize).next_multiple_of(size_of::<usize>())..).unwrap_or_default();
        Some(ControlMessage { level: header.cmsg_level, kind: header.cmsg_type, data })
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Returns a buffer with messages laid out as by libc's macros, and the number of bytes used.
    fn buffer(messages: &[(c_int, c_int, &[u8])]) -> ([u64; 16], usize) {
        let mut buffer = [0; 16];
        let mut used = 0;
        for &(level, kind, data) in messages {
            let len = data.len() as libc::c_uint;
            // SAFETY: pure arithmetic.
            let (cmsg_len, space) = unsafe { (libc::CMSG_LEN(len) as usize, libc::CMSG_SPACE(len) as usize) };
            assert!(used + space <= size_of_val(&buffer));
            // SAFETY: `space` bytes are free at `used`, which is a multiple of 8.
            unsafe {
                let at = buffer.as_mut_ptr().cast::<u8>().add(used).cast::<libc::cmsghdr>();
                let mut header: libc::cmsghdr = std::mem::zeroed();
                (header.cmsg_len, header.cmsg_level, header.cmsg_type) = (cmsg_len as _, level, kind);
                at.write(header);
                libc::CMSG_DATA(at).copy_from_nonoverlapping(data.as_ptr(), data.len());
            }
            used += space;
        }
        (buffer, used)
    }

    #[test]
    fn messages_are_read_as_the_macros_write_them() {
        let messages: [(c_int, c_int, &[u8]); 4] =
            [(1, 2, &[]), (libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &7_u32.to_ne_bytes()), (3, 4, &[9; 13]), (5, 6, &[8])];
        let (buffer, len) = buffer(&messages);
        let seen: Vec<_> = control_messages(&buffer, len).collect();
        assert_eq!(seen.iter().map(|m| (m.level, m.kind, m.data)).collect::<Vec<_>>(), messages);
        assert_eq!(seen.iter().map(ControlMessage::lost).collect::<Vec<_>>(), [None, Some(7), None, None]);
        assert_eq!(seen[1].int(), Some(7));
        assert_eq!((seen[0].int(), seen[3].int(), seen[3].field::<1>(0)), (None, None, Some([8])));
        assert_eq!((seen[2].field::<4>(9), seen[2].field::<4>(10), seen[2].field::<1>(14)), (Some([9; 4]), None, None));
        assert_eq!(seen[2].fields::<4>().count(), 3);
    }

    #[test]
    fn a_message_that_was_cut_short_ends_them() {
        let (buffer, len) = buffer(&[(1, 2, &[3; 4]), (5, 6, &[7; 8])]);
        for filled in 0..=len {
            let whole = usize::from(filled >= HEADER + 4) + usize::from(filled >= len);
            assert_eq!(control_messages(&buffer, filled).count(), whole, "{filled} bytes");
        }
        assert_eq!(control_messages(&buffer[..3], usize::MAX).count(), 1, "no more than the buffer has");
    }

    #[test]
    fn lengths_that_make_no_sense_end_them() {
        for len in [0, 1, HEADER - 1, 25, usize::MAX] {
            let (mut buffer, filled) = buffer(&[(1, 2, &[3; 8])]);
            buffer[0] = len as u64;
            assert_eq!(control_messages(&buffer, filled).count(), 0, "{len}");
        }
    }
}
