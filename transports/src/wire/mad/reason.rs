//! Why a peer refuses.

use std::fmt;

/// Why a REJ was sent (`enum ib_cm_rej_reason` in the kernel's `include/rdma/ib_cm.h`).
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RejReason(pub u16);

macro_rules! reasons {
    ($( $(#[$doc:meta])* $name:ident = $code:literal $text:literal, )*) => {
        impl RejReason {
            $( $(#[$doc])* pub const $name: RejReason = RejReason($code); )*

            /// Returns the kernel's word for the reason, `None` if it has none.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $( $code => Some($text), )*
                    _ => None,
                }
            }
        }
    };
}

reasons! {
    /// The queue pair does not exist.
    NO_QP = 1 "no QP",
    /// The end-to-end context does not exist.
    NO_EEC = 2 "no EEC",
    /// No resources.
    NO_RESOURCES = 3 "no resources",
    /// The other side did not answer in time, or no longer wants an answer. The additional information is the sender's
    /// CA GUID.
    TIMEOUT = 4 "timeout",
    /// The message is not supported.
    UNSUPPORTED = 5 "unsupported",
    /// No such communication id.
    INVALID_COMM_ID = 6 "invalid comm ID",
    /// The communication ids do not belong together.
    INVALID_COMM_INSTANCE = 7 "invalid comm instance",
    /// Nobody listens at the service id.
    INVALID_SERVICE_ID = 8 "invalid service ID",
    /// Another transport service than asked for.
    INVALID_TRANSPORT_TYPE = 9 "invalid transport type",
    /// The queue pair is connected already, by a connection that its owner no longer knows.
    STALE_CONN = 10 "stale conn",
    /// No reliable datagram channel.
    RDC_NOT_EXIST = 11 "RDC not exist",
    /// A GID that cannot be used.
    INVALID_GID = 12 "invalid GID",
    /// A LID that cannot be used.
    INVALID_LID = 13 "invalid LID",
    /// A service level that cannot be used.
    INVALID_SL = 14 "invalid SL",
    /// A traffic class that cannot be used.
    INVALID_TRAFFIC_CLASS = 15 "invalid traffic class",
    /// A hop limit that cannot be used.
    INVALID_HOP_LIMIT = 16 "invalid hop limit",
    /// A packet rate that cannot be used.
    INVALID_PACKET_RATE = 17 "invalid packet rate",
    /// As 12, of the alternate path.
    INVALID_ALT_GID = 18 "invalid alt GID",
    /// As 13, of the alternate path.
    INVALID_ALT_LID = 19 "invalid alt LID",
    /// As 14, of the alternate path.
    INVALID_ALT_SL = 20 "invalid alt SL",
    /// As 15, of the alternate path.
    INVALID_ALT_TRAFFIC_CLASS = 21 "invalid alt traffic class",
    /// As 16, of the alternate path.
    INVALID_ALT_HOP_LIMIT = 22 "invalid alt hop limit",
    /// As 17, of the alternate path.
    INVALID_ALT_PACKET_RATE = 23 "invalid alt packet rate",
    /// Ask another manager of the port.
    PORT_CM_REDIRECT = 24 "port CM redirect",
    /// Ask another port.
    PORT_REDIRECT = 25 "port redirect",
    /// A path MTU that cannot be used.
    INVALID_MTU = 26 "invalid MTU",
    /// Too few responder resources.
    INSUFFICIENT_RESP_RESOURCES = 27 "insufficient resp resources",
    /// The application refuses; what for is in the private data.
    CONSUMER_DEFINED = 28 "consumer defined",
    /// An RNR retry count that cannot be used.
    INVALID_RNR_RETRY = 29 "invalid RNR retry",
    /// The communication id is in use.
    DUPLICATE_LOCAL_COMM_ID = 30 "duplicate local comm ID",
    /// A class version that is not supported.
    INVALID_CLASS_VERSION = 31 "invalid class version",
    /// A flow label that cannot be used.
    INVALID_FLOW_LABEL = 32 "invalid flow label",
    /// As 32, of the alternate path.
    INVALID_ALT_FLOW_LABEL = 33 "invalid alt flow label",
    /// The vendor's options (ECE) do not fit: `rdma_reject_ece`.
    VENDOR_OPTION_NOT_SUPPORTED = 35 "vendor option is not supported",
}

impl fmt::Display for RejReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{} ({name})", self.0),
            None => write!(f, "{}", self.0),
        }
    }
}

/// What a SIDR_REP says (`enum ib_cm_sidr_status` in the kernel's `include/rdma/ib_cm.h`).
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SidrStatus(pub u8);

impl SidrStatus {
    /// Queue pair number and Q_Key are there.
    pub const SUCCESS: SidrStatus = SidrStatus(0);
    /// Nobody serves the service id.
    pub const UNSUPPORTED: SidrStatus = SidrStatus(1);
    /// The application refuses.
    pub const REJECT: SidrStatus = SidrStatus(2);
    /// There is no queue pair.
    pub const NO_QP: SidrStatus = SidrStatus(3);
}
