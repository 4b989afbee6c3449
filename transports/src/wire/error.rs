//! Parse errors of frames.

use thiserror::Error;

use super::Opcode;

/// Error in a frame.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Error)]
pub enum ParseError {
    /// The frame ends before its headers do.
    #[error("{have} bytes end inside the {header}, which needs {need}")]
    TooShort {
        /// The truncated header, `"BTH"` or one required by the opcode.
        header: &'static str,
        /// Minimum number of bytes from BTH to ICRC with that header included.
        need: usize,
        /// Bytes of the frame.
        have: usize,
    },
    /// The opcode is neither one of IBA's that irnic supports, nor irnic's own.
    #[error("unknown opcode {0:#04x}")]
    UnknownOpcode(u8),
    /// The transport version is not 0, or with the IRN extension not 1.
    #[error("transport version {tver} {} the IRN extension bit", if *.irn { "with" } else { "without" })]
    Version {
        /// The BTH's TVer field.
        tver: u8,
        /// The IRN extension bit.
        irn: bool,
    },
    /// The IRN extension bit on an opcode that has no extension.
    #[error("IRN extension on {0}, which has none")]
    NoExtension(Opcode),
    /// An opcode that exists only with the IRN extension, without it.
    #[error("{0} without the IRN extension")]
    NeedsExtension(Opcode),
    /// NDP's word on an opcode that has none.
    #[error("NDP's word on {0}, which has none")]
    NoPulledStream(Opcode),
    /// NDP's word names queue pair 0 as its source, which has no stream.
    #[error("NDP's word names queue pair 0")]
    NoSource,
    /// More padding than bytes after the headers.
    #[error("{pad} bytes of padding in {len} bytes of payload")]
    Pad {
        /// Pad count.
        pad: u8,
        /// Bytes between headers and ICRC.
        len: usize,
    },
    /// A payload whose length with padding is not a multiple of four (IBA 9.2.4).
    #[error("payload and padding of {0} bytes, not a multiple of 4")]
    Unaligned(usize),
    /// A payload on an opcode that carries none.
    #[error("{len} bytes of payload on {opcode}, which carries none")]
    UnexpectedPayload {
        /// The opcode.
        opcode: Opcode,
        /// Bytes between headers and ICRC.
        len: usize,
    },
}
