//! Opcodes (IBA 9.2.1): three bits of service type, five of operation.

use std::fmt;

/// A BTH opcode byte known to irnic.
#[allow(missing_docs)] // the field's own names
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Opcode {
    RcSendFirst = 0x00,
    RcSendMiddle = 0x01,
    RcSendLast = 0x02,
    RcSendLastImm = 0x03,
    RcSendOnly = 0x04,
    RcSendOnlyImm = 0x05,
    RcWriteFirst = 0x06,
    RcWriteMiddle = 0x07,
    RcWriteLast = 0x08,
    RcWriteLastImm = 0x09,
    RcWriteOnly = 0x0a,
    RcWriteOnlyImm = 0x0b,
    RcReadRequest = 0x0c,
    RcReadResponseFirst = 0x0d,
    RcReadResponseMiddle = 0x0e,
    RcReadResponseLast = 0x0f,
    RcReadResponseOnly = 0x10,
    RcAcknowledge = 0x11,
    RcAtomicAcknowledge = 0x12,
    RcCompareSwap = 0x13,
    RcFetchAdd = 0x14,
    RcSendLastInvalidate = 0x16,
    RcSendOnlyInvalidate = 0x17,
    /// IRN's read (N)ACK (IRN §4.4.2), in one of the RC opcodes unused by IBA.
    RcReadAcknowledge = 0x18,
    /// Feedback on requests from a pulled stream's receiver (NDP §3.2), in another unused one.
    RcFeedback = 0x19,
    /// NDP's feedback on READ and atomic responses.
    RcReadFeedback = 0x1a,
    /// TLT's important clock (EuroSys 2021, §5.1) without payload, which requests the responder's state.
    RcClock = 0x1b,
    RcFlush = 0x1c,
    RcAtomicWrite = 0x1d,
    /// A clock of TLT's that requests the requester's state of READ and atomic responses.
    RcReadClock = 0x1e,
    UcSendFirst = 0x20,
    UcSendMiddle = 0x21,
    UcSendLast = 0x22,
    UcSendLastImm = 0x23,
    UcSendOnly = 0x24,
    UcSendOnlyImm = 0x25,
    UcWriteFirst = 0x26,
    UcWriteMiddle = 0x27,
    UcWriteLast = 0x28,
    UcWriteLastImm = 0x29,
    UcWriteOnly = 0x2a,
    UcWriteOnlyImm = 0x2b,
    UdSendOnly = 0x64,
    UdSendOnlyImm = 0x65,
    /// RoCEv2 congestion notification packet (IBA A17.9.3).
    Cnp = 0x81,
    XrcSendFirst = 0xa0,
    XrcSendMiddle = 0xa1,
    XrcSendLast = 0xa2,
    XrcSendLastImm = 0xa3,
    XrcSendOnly = 0xa4,
    XrcSendOnlyImm = 0xa5,
    XrcWriteFirst = 0xa6,
    XrcWriteMiddle = 0xa7,
    XrcWriteLast = 0xa8,
    XrcWriteLastImm = 0xa9,
    XrcWriteOnly = 0xaa,
    XrcWriteOnlyImm = 0xab,
    XrcReadRequest = 0xac,
    XrcReadResponseFirst = 0xad,
    XrcReadResponseMiddle = 0xae,
    XrcReadResponseLast = 0xaf,
    XrcReadResponseOnly = 0xb0,
    XrcAcknowledge = 0xb1,
    XrcAtomicAcknowledge = 0xb2,
    XrcCompareSwap = 0xb3,
    XrcFetchAdd = 0xb4,
    XrcSendLastInvalidate = 0xb6,
    XrcSendOnlyInvalidate = 0xb7,
    /// IRN's read (N)ACK, as in reliable connections.
    XrcReadAcknowledge = 0xb8,
}

use Opcode::*;

/// Transport service type of a queue pair (IBA 9.7, 9.8).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// Reliable connection: each message arrives once and in order, or the queue pair fails.
    Rc,
    /// Unreliable connection: messages arrive in order, whole or not at all.
    Uc,
    /// Unreliable datagram: messages of one packet, to and from any peer.
    Ud,
    /// Initiator of an extended reliable connection (IBA A14), `IBV_QPT_XRC_SEND`: a requester. Each request names a
    /// shared receive queue of the target.
    XrcInitiator,
    /// Target of an extended reliable connection (IBA A14), `IBV_QPT_XRC_RECV`: a responder without queues of its own.
    XrcTarget,
}

impl Service {
    /// Returns whether messages are acknowledged, and lost packets retransmitted.
    #[inline]
    pub const fn is_reliable(self) -> bool {
        matches!(self, Service::Rc | Service::XrcInitiator | Service::XrcTarget)
    }

    /// Returns whether it is one end of an extended reliable connection.
    #[inline]
    pub const fn is_xrc(self) -> bool {
        matches!(self, Service::XrcInitiator | Service::XrcTarget)
    }
}

/// Operation of a packet, whatever its position in the message.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// SEND, with or without immediate or invalidate.
    Send,
    /// RDMA WRITE, with or without immediate.
    Write,
    /// RDMA READ request.
    ReadRequest,
    /// RDMA READ response.
    ReadResponse,
    /// Acknowledgement (ACK, NAK or RNR NAK).
    Acknowledge,
    /// IRN's read (N)ACK.
    ReadAcknowledge,
    /// NDP's acknowledgement, NACK or PULL for requests.
    Feedback,
    /// NDP's acknowledgement, NACK or PULL for READ and atomic responses.
    ReadFeedback,
    /// TLT's clock for requests.
    Clock,
    /// TLT's clock for READ and atomic responses.
    ReadClock,
    /// Compare-and-swap or fetch-and-add request.
    Atomic,
    /// Response to an atomic request.
    AtomicAcknowledge,
    /// ATOMIC WRITE request (IBA 1.5, A19).
    AtomicWrite,
    /// FLUSH request (IBA 1.5, A19).
    Flush,
    /// Congestion notification.
    Cnp,
}

/// A packet's position in its message. READ and atomic requests and acknowledgements are one packet each:
/// [`Position::Only`].
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    /// First of several.
    First,
    /// Neither first nor last.
    Middle,
    /// Last of several.
    Last,
    /// The whole message.
    Only,
}

static BY_BYTE: [Option<Opcode>; 256] = {
    let mut table = [None; 256];
    let mut i = 0;
    while i < Opcode::ALL.len() {
        table[Opcode::ALL[i] as usize] = Some(Opcode::ALL[i]);
        i += 1;
    }
    table
};

/// Offset of an extended reliable connection's opcode from the corresponding one of a reliable connection.
const XRC: u8 = 0xa0;

/// Precomputed properties of an opcode that every packet needs.
#[derive(Copy, Clone)]
struct Meaning {
    in_rc: Opcode,
    operation: Operation,
    position: Position,
}

impl Meaning {
    const fn of(opcode: Opcode) -> Meaning {
        let in_rc = match BY_BYTE[(opcode as u8).wrapping_sub(XRC) as usize] {
            Some(twin) if opcode.is_xrc() => twin,
            _ => opcode,
        };
        Meaning { in_rc, operation: Meaning::operation_of(in_rc), position: Meaning::position_of(in_rc) }
    }

    /// Returns the operation of a packet of a service other than XRC.
    const fn operation_of(rc: Opcode) -> Operation {
        match rc {
            RcSendFirst | RcSendMiddle | RcSendLast | RcSendLastImm | RcSendOnly | RcSendOnlyImm => Operation::Send,
            RcSendLastInvalidate | RcSendOnlyInvalidate | UdSendOnly | UdSendOnlyImm => Operation::Send,
            UcSendFirst | UcSendMiddle | UcSendLast | UcSendLastImm | UcSendOnly | UcSendOnlyImm => Operation::Send,
            RcWriteFirst | RcWriteMiddle | RcWriteLast | RcWriteLastImm | RcWriteOnly | RcWriteOnlyImm => {
                Operation::Write
            }
            UcWriteFirst | UcWriteMiddle | UcWriteLast | UcWriteLastImm | UcWriteOnly | UcWriteOnlyImm => {
                Operation::Write
            }
            RcReadRequest => Operation::ReadRequest,
            RcReadResponseFirst | RcReadResponseMiddle | RcReadResponseLast | RcReadResponseOnly => {
                Operation::ReadResponse
            }
            RcAcknowledge => Operation::Acknowledge,
            RcReadAcknowledge => Operation::ReadAcknowledge,
            RcFeedback => Operation::Feedback,
            RcReadFeedback => Operation::ReadFeedback,
            RcClock => Operation::Clock,
            RcReadClock => Operation::ReadClock,
            RcCompareSwap | RcFetchAdd => Operation::Atomic,
            RcAtomicAcknowledge => Operation::AtomicAcknowledge,
            RcFlush => Operation::Flush,
            RcAtomicWrite => Operation::AtomicWrite,
            _ => Operation::Cnp,
        }
    }

    /// Returns the position of a packet of a service other than XRC in its message.
    const fn position_of(rc: Opcode) -> Position {
        match rc {
            RcSendFirst | RcWriteFirst | RcReadResponseFirst | UcSendFirst | UcWriteFirst => Position::First,
            RcSendMiddle | RcWriteMiddle | RcReadResponseMiddle | UcSendMiddle | UcWriteMiddle => Position::Middle,
            RcSendLast | RcSendLastImm | RcSendLastInvalidate | RcWriteLast | RcWriteLastImm => Position::Last,
            RcReadResponseLast | UcSendLast | UcSendLastImm | UcWriteLast | UcWriteLastImm => Position::Last,
            _ => Position::Only,
        }
    }
}

/// Indexed by opcode byte. Bytes that are not opcodes are never looked up.
static MEANINGS: [Meaning; 256] = {
    let mut table = [Meaning::of(Opcode::Cnp); 256];
    let mut i = 0;
    while i < Opcode::ALL.len() {
        table[Opcode::ALL[i] as usize] = Meaning::of(Opcode::ALL[i]);
        i += 1;
    }
    table
};

impl Opcode {
    /// Every opcode, in numerical order.
    pub const ALL: [Opcode; 69] = [
        RcSendFirst,
        RcSendMiddle,
        RcSendLast,
        RcSendLastImm,
        RcSendOnly,
        RcSendOnlyImm,
        RcWriteFirst,
        RcWriteMiddle,
        RcWriteLast,
        RcWriteLastImm,
        RcWriteOnly,
        RcWriteOnlyImm,
        RcReadRequest,
        RcReadResponseFirst,
        RcReadResponseMiddle,
        RcReadResponseLast,
        RcReadResponseOnly,
        RcAcknowledge,
        RcAtomicAcknowledge,
        RcCompareSwap,
        RcFetchAdd,
        RcSendLastInvalidate,
        RcSendOnlyInvalidate,
        RcReadAcknowledge,
        RcFeedback,
        RcReadFeedback,
        RcClock,
        RcFlush,
        RcAtomicWrite,
        RcReadClock,
        UcSendFirst,
        UcSendMiddle,
        UcSendLast,
        UcSendLastImm,
        UcSendOnly,
        UcSendOnlyImm,
        UcWriteFirst,
        UcWriteMiddle,
        UcWriteLast,
        UcWriteLastImm,
        UcWriteOnly,
        UcWriteOnlyImm,
        UdSendOnly,
        UdSendOnlyImm,
        Cnp,
        XrcSendFirst,
        XrcSendMiddle,
        XrcSendLast,
        XrcSendLastImm,
        XrcSendOnly,
        XrcSendOnlyImm,
        XrcWriteFirst,
        XrcWriteMiddle,
        XrcWriteLast,
        XrcWriteLastImm,
        XrcWriteOnly,
        XrcWriteOnlyImm,
        XrcReadRequest,
        XrcReadResponseFirst,
        XrcReadResponseMiddle,
        XrcReadResponseLast,
        XrcReadResponseOnly,
        XrcAcknowledge,
        XrcAtomicAcknowledge,
        XrcCompareSwap,
        XrcFetchAdd,
        XrcSendLastInvalidate,
        XrcSendOnlyInvalidate,
        XrcReadAcknowledge,
    ];

    /// Returns the opcode with this number, `None` if irnic does not know it.
    #[inline]
    pub fn from_u8(byte: u8) -> Option<Opcode> {
        BY_BYTE[byte as usize]
    }

    /// Returns the name shown by Wireshark.
    pub const fn name(self) -> &'static str {
        match self {
            RcSendFirst => "RC Send First",
            RcSendMiddle => "RC Send Middle",
            RcSendLast => "RC Send Last",
            RcSendLastImm => "RC Send Last Immediate",
            RcSendOnly => "RC Send Only",
            RcSendOnlyImm => "RC Send Only Immediate",
            RcWriteFirst => "RC RDMA Write First",
            RcWriteMiddle => "RC RDMA Write Middle",
            RcWriteLast => "RC RDMA Write Last",
            RcWriteLastImm => "RC RDMA Write Last Immediate",
            RcWriteOnly => "RC RDMA Write Only",
            RcWriteOnlyImm => "RC RDMA Write Only Immediate",
            RcReadRequest => "RC RDMA Read Request",
            RcReadResponseFirst => "RC RDMA Read Response First",
            RcReadResponseMiddle => "RC RDMA Read Response Middle",
            RcReadResponseLast => "RC RDMA Read Response Last",
            RcReadResponseOnly => "RC RDMA Read Response Only",
            RcAcknowledge => "RC Acknowledge",
            RcAtomicAcknowledge => "RC Atomic Acknowledge",
            RcCompareSwap => "RC Compare Swap",
            RcFetchAdd => "RC Fetch Add",
            RcSendLastInvalidate => "RC Send Last Invalidate",
            RcSendOnlyInvalidate => "RC Send Only Invalidate",
            RcReadAcknowledge => "RC Read Acknowledge",
            RcFeedback => "RC Feedback",
            RcReadFeedback => "RC Read Feedback",
            RcClock => "RC Clock",
            RcReadClock => "RC Read Clock",
            RcFlush => "RC Flush",
            RcAtomicWrite => "RC Atomic Write",
            UcSendFirst => "UC Send First",
            UcSendMiddle => "UC Send Middle",
            UcSendLast => "UC Send Last",
            UcSendLastImm => "UC Send Last Immediate",
            UcSendOnly => "UC Send Only",
            UcSendOnlyImm => "UC Send Only Immediate",
            UcWriteFirst => "UC RDMA Write First",
            UcWriteMiddle => "UC RDMA Write Middle",
            UcWriteLast => "UC RDMA Write Last",
            UcWriteLastImm => "UC RDMA Write Last Immediate",
            UcWriteOnly => "UC RDMA Write Only",
            UcWriteOnlyImm => "UC RDMA Write Only Immediate",
            UdSendOnly => "UD Send Only",
            UdSendOnlyImm => "UD Send Only Immediate",
            Cnp => "CNP",
            XrcSendFirst => "XRC Send First",
            XrcSendMiddle => "XRC Send Middle",
            XrcSendLast => "XRC Send Last",
            XrcSendLastImm => "XRC Send Last Immediate",
            XrcSendOnly => "XRC Send Only",
            XrcSendOnlyImm => "XRC Send Only Immediate",
            XrcWriteFirst => "XRC RDMA Write First",
            XrcWriteMiddle => "XRC RDMA Write Middle",
            XrcWriteLast => "XRC RDMA Write Last",
            XrcWriteLastImm => "XRC RDMA Write Last Immediate",
            XrcWriteOnly => "XRC RDMA Write Only",
            XrcWriteOnlyImm => "XRC RDMA Write Only Immediate",
            XrcReadRequest => "XRC RDMA Read Request",
            XrcReadResponseFirst => "XRC RDMA Read Response First",
            XrcReadResponseMiddle => "XRC RDMA Read Response Middle",
            XrcReadResponseLast => "XRC RDMA Read Response Last",
            XrcReadResponseOnly => "XRC RDMA Read Response Only",
            XrcAcknowledge => "XRC Acknowledge",
            XrcAtomicAcknowledge => "XRC Atomic Acknowledge",
            XrcCompareSwap => "XRC Compare Swap",
            XrcFetchAdd => "XRC Fetch Add",
            XrcSendLastInvalidate => "XRC Send Last Invalidate",
            XrcSendOnlyInvalidate => "XRC Send Only Invalidate",
            XrcReadAcknowledge => "XRC Read Acknowledge",
        }
    }

    /// Returns the service of the queue pair that receives the packet, by the opcode's upper three bits and, for an
    /// extended reliable connection, its direction; `None` for congestion notifications, which belong to none.
    #[inline]
    pub const fn service(self) -> Option<Service> {
        match self as u8 >> 5 {
            0 => Some(Service::Rc),
            1 => Some(Service::Uc),
            3 => Some(Service::Ud),
            5 if self.is_response() => Some(Service::XrcInitiator),
            5 => Some(Service::XrcTarget),
            _ => None,
        }
    }

    /// Returns whether the packet belongs to a reliable connection.
    #[inline]
    pub const fn is_rc(self) -> bool {
        self as u8 >> 5 == 0
    }

    /// Returns whether the service is a reliable one, RC or XRC. Only these have an IRN extension.
    #[inline]
    pub const fn is_reliable(self) -> bool {
        matches!(self as u8 >> 5, 0 | 5)
    }

    /// Returns whether the packet belongs to an extended reliable connection.
    #[inline]
    pub const fn is_xrc(self) -> bool {
        self as u8 >> 5 == 5
    }

    /// Returns the corresponding opcode of a reliable connection; opcodes of services other than XRC are unchanged.
    #[inline]
    pub const fn in_rc(self) -> Opcode {
        MEANINGS[self as usize].in_rc
    }

    /// Returns the corresponding opcode of an extended reliable connection; opcodes of services other than RC are
    /// unchanged, and so are FLUSH, ATOMIC WRITE, NDP's feedback and TLT's clocks, which only RC has here.
    #[inline]
    pub const fn in_xrc(self) -> Opcode {
        match BY_BYTE[(self as u8).wrapping_add(XRC) as usize] {
            Some(twin) if self.is_rc() => twin,
            _ => self,
        }
    }

    /// Returns the packet's operation.
    #[inline]
    pub const fn operation(self) -> Operation {
        MEANINGS[self as usize].operation
    }

    /// Returns the packet's position in its message.
    #[inline]
    pub const fn position(self) -> Position {
        MEANINGS[self as usize].position
    }

    /// Returns whether it travels from requester to responder and takes a sequence number of its own there.
    #[inline]
    pub const fn is_request(self) -> bool {
        matches!(self.operation(), Operation::Send | Operation::Write) || self.is_answered()
    }

    /// Returns whether it is a request with a response of its own: READ, atomic, ATOMIC WRITE, FLUSH.
    #[inline]
    pub const fn is_answered(self) -> bool {
        use Operation::{Atomic, AtomicWrite, Flush, ReadRequest};
        matches!(self.operation(), ReadRequest | Atomic | AtomicWrite | Flush)
    }

    /// Returns whether it travels from responder to requester. IRN's read (N)ACK and NDP's read feedback do not: the
    /// requester sends them.
    #[inline]
    pub const fn is_response(self) -> bool {
        use Operation::{Acknowledge, AtomicAcknowledge, Feedback, ReadClock, ReadResponse};
        matches!(self.operation(), ReadResponse | Acknowledge | AtomicAcknowledge | Feedback | ReadClock)
    }

    /// Returns whether it exists only with the IRN extension.
    #[inline]
    pub const fn needs_irn(self) -> bool {
        use Operation::{Clock, Feedback, ReadAcknowledge, ReadClock, ReadFeedback};
        matches!(self.operation(), ReadAcknowledge | Feedback | ReadFeedback | Clock | ReadClock)
    }

    /// Returns whether it may belong to a pulled stream (NDP) and name the queue pair that sent it: packets with a
    /// sequence number of their own, on a reliable connection.
    #[inline]
    pub const fn may_be_pulled(self) -> bool {
        use Operation::{AtomicAcknowledge, ReadResponse};
        self.is_rc() && (self.is_request() || matches!(self.operation(), ReadResponse | AtomicAcknowledge))
    }

    /// Returns whether it is the first packet of several of a message.
    #[inline]
    pub const fn is_first(self) -> bool {
        matches!(self.position(), Position::First)
    }

    /// Returns whether it is neither first nor last packet of its message.
    #[inline]
    pub const fn is_middle(self) -> bool {
        matches!(self.position(), Position::Middle)
    }

    /// Returns whether it is the last packet of several of a message.
    #[inline]
    pub const fn is_last(self) -> bool {
        matches!(self.position(), Position::Last)
    }

    /// Returns whether it is the whole message.
    #[inline]
    pub const fn is_only(self) -> bool {
        matches!(self.position(), Position::Only)
    }

    /// Returns whether a message begins with this packet: first or only.
    #[inline]
    pub const fn starts_message(self) -> bool {
        matches!(self.position(), Position::First | Position::Only)
    }

    /// Returns whether a message ends with this packet: last or only.
    #[inline]
    pub const fn ends_message(self) -> bool {
        matches!(self.position(), Position::Last | Position::Only)
    }

    /// Returns whether it is a SEND of any service.
    #[inline]
    pub const fn is_send(self) -> bool {
        matches!(self.operation(), Operation::Send)
    }

    /// Returns whether it is an RDMA WRITE of any service.
    #[inline]
    pub const fn is_write(self) -> bool {
        matches!(self.operation(), Operation::Write)
    }

    /// Returns whether it is an RDMA READ response.
    #[inline]
    pub const fn is_read_response(self) -> bool {
        matches!(self.operation(), Operation::ReadResponse)
    }

    /// Returns whether it is a compare-and-swap or fetch-and-add request.
    #[inline]
    pub const fn is_atomic(self) -> bool {
        matches!(self.operation(), Operation::Atomic)
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_opcodes_map_both_ways() {
        let known: Vec<u8> = (0..=255).filter(|&b| Opcode::from_u8(b).is_some()).collect();
        assert_eq!(known.len(), Opcode::ALL.len());
        for (byte, op) in known.into_iter().zip(Opcode::ALL) {
            assert_eq!(Opcode::from_u8(byte), Some(op));
            assert_eq!(op as u8, byte);
        }
    }

    #[test]
    fn names_agree_with_predicates() {
        for op in Opcode::ALL {
            let name = op.name();
            assert_eq!(op.is_first(), name.contains("First"), "{name}");
            assert_eq!(op.is_middle(), name.contains("Middle"), "{name}");
            assert_eq!(op.is_last(), name.contains("Last"), "{name}");
            assert_eq!(op.has_imm(), name.contains("Immediate"), "{name}");
            assert_eq!(op.has_ieth(), name.contains("Invalidate"), "{name}");
            assert_eq!(op.is_send(), name.contains(" Send "), "{name}");
            assert_eq!(op.is_write(), name.contains(" RDMA Write "), "{name}");
            assert!(!(op.is_request() && op.is_response()), "{name}");
            assert_eq!(op.is_xrc(), name.starts_with("XRC "), "{name}");
        }
    }

    #[test]
    fn every_opcode_of_rc_has_a_twin_of_xrc_that_does_the_same() {
        let newer = [RcFlush, RcAtomicWrite, RcFeedback, RcReadFeedback, RcClock, RcReadClock];
        assert_eq!(newer.map(Opcode::in_xrc), newer);
        for op in Opcode::ALL.into_iter().filter(|op| op.is_rc() && !newer.contains(op)) {
            let twin = op.in_xrc();
            assert_eq!((twin as u8, twin.in_rc()), (op as u8 + 0xa0, op));
            assert_eq!(twin.name(), format!("X{}", op.name()));
            assert_eq!((twin.operation(), twin.position()), (op.operation(), op.position()), "{twin}");
            let receiver = if op.is_response() { Service::XrcInitiator } else { Service::XrcTarget };
            assert_eq!(twin.service(), Some(receiver), "{twin}");
        }
    }
}
