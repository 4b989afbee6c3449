//! The blocks of a pcapng file that a capture needs (draft-ietf-opsawg-pcapng).

/// Direction of a frame, with its value in `epb_flags`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Received.
    Inbound = 1,
    /// Transmitted.
    Outbound = 2,
}

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const LINKTYPE_ETHERNET: u16 = 1;

const OPT_END: u16 = 0;
const SHB_USERAPPL: u16 = 4;
const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;
const EPB_FLAGS: u16 = 2;
/// Timestamp resolution: the negative power of ten of a second.
const NANOSECONDS: u8 = 9;

/// Bytes of framing: block type and length before the body, the length again after it.
const FRAMING: usize = 12;

/// Appends a section header block that names `application` as the writer.
pub(crate) fn section_header(out: &mut Vec<u8>, application: &str) {
    block(out, SECTION_HEADER, |out| {
        out.extend(BYTE_ORDER_MAGIC.to_le_bytes());
        out.extend(1u16.to_le_bytes());
        out.extend(0u16.to_le_bytes());
        // The section's length is not known yet.
        out.extend((-1i64).to_le_bytes());
        option(out, SHB_USERAPPL, application.as_bytes());
        option(out, OPT_END, &[]);
    });
}

/// Appends an interface description block: Ethernet, timestamps in nanoseconds.
pub(crate) fn interface(out: &mut Vec<u8>, name: &str) {
    block(out, INTERFACE_DESCRIPTION, |out| {
        out.extend(LINKTYPE_ETHERNET.to_le_bytes());
        out.extend(0u16.to_le_bytes());
        // No snapshot length: frames are not truncated.
        out.extend(0u32.to_le_bytes());
        option(out, IF_NAME, name.as_bytes());
        option(out, IF_TSRESOL, &[NANOSECONDS]);
        option(out, OPT_END, &[]);
    });
}

/// Metadata of a packet in an enhanced packet block.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Number of the interface, in the order of their blocks.
    pub interface: u32,
    /// Nanoseconds since 1970.
    pub at: u64,
    /// Which way it went.
    pub direction: Direction,
}

/// Appends an enhanced packet block, whose data are `headers` followed by `rest`.
pub(crate) fn packet(out: &mut Vec<u8>, seen: Seen, headers: &[u8], rest: &[u8]) {
    let Seen { interface, at, direction } = seen;
    block(out, ENHANCED_PACKET, |out| {
        let len = headers.len() + rest.len();
        out.extend(interface.to_le_bytes());
        out.extend(((at >> 32) as u32).to_le_bytes());
        out.extend((at as u32).to_le_bytes());
        // Captured and original length are the same.
        out.extend((len as u32).to_le_bytes());
        out.extend((len as u32).to_le_bytes());
        out.extend_from_slice(headers);
        out.extend_from_slice(rest);
        pad(out, len);
        option(out, EPB_FLAGS, &(direction as u32).to_le_bytes());
        option(out, OPT_END, &[]);
    });
}

fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend(kind.to_le_bytes());
    out.extend([0; 4]);
    body(out);
    let len = (out.len() - start + FRAMING - 8) as u32;
    out.extend(len.to_le_bytes());
    out[start + 4..start + 8].copy_from_slice(&len.to_le_bytes());
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    // A value that does not fit is truncated; in practice none is that long.
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    out.extend(code.to_le_bytes());
    out.extend((value.len() as u16).to_le_bytes());
    out.extend_from_slice(value);
    pad(out, value.len());
}

/// Pads `out` so that `len` bytes become a multiple of four.
fn pad(out: &mut Vec<u8>, len: usize) {
    out.resize(out.len() + len.next_multiple_of(4) - len, 0);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_the_layout_of_the_draft() {
        let mut out = Vec::new();
        section_header(&mut out, "irnic");
        assert_eq!(out.len(), 44);
        assert_eq!(out[..12], [0x0a, 0x0d, 0x0d, 0x0a, 44, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a]);
        assert_eq!(out[12..24], [1, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255]);
        assert_eq!(out[24..], *b"\x04\0\x05\0irnic\0\0\0\0\0\0\0\x2c\0\0\0");

        out.clear();
        interface(&mut out, "q0");
        assert_eq!(
            out,
            *b"\x01\0\0\0\x28\0\0\0\x01\0\0\0\0\0\0\0\x02\0\x02\0q0\0\0\x09\0\x01\0\x09\0\0\0\0\0\0\0\x28\0\0\0"
        );

        out.clear();
        let seen = Seen { interface: 2, at: 0x0102_0304_0506_0708, direction: Direction::Outbound };
        packet(&mut out, seen, b"abc", b"de");
        let header = b"\x06\0\0\0\x34\0\0\0\x02\0\0\0\x04\x03\x02\x01\x08\x07\x06\x05\x05\0\0\0\x05\0\0\0";
        assert_eq!(out[..28], *header);
        assert_eq!(out[28..], *b"abcde\0\0\0\x02\0\x04\0\x02\0\0\0\0\0\0\0\x34\0\0\0");
    }
}
