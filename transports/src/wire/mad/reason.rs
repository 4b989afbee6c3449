//! Reasons for rejection.

use std::fmt;

/// Reason of a REJ (`enum ib_cm_rej_reason` in the kernel's `include/rdma/ib_cm.h`).
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
    /// The service id has no listener.
    INVALID_SERVICE_ID = 8 "invalid service ID",
    /// A transport service other than requested.
    INVALID_TRANSPORT_TYPE = 9 "invalid transport type",
    /// The queue pair is already connected, by a connection unknown to its owner.
    STALE_CONN = 10 "stale conn",
    /// No reliable datagram channel.
    RDC_NOT_EXIST = 11 "RDC not exist",
    /// An unusable GID.
    INVALID_GID = 12 "invalid GID",
    /// An unusable LID.
    INVALID_LID = 13 "invalid LID",
    /// An unusable service level.
    INVALID_SL = 14 "invalid SL",
    /// An unusable traffic class.
    INVALID_TRAFFIC_CLASS = 15 "invalid traffic class",
    /// An unusable hop limit.
    INVALID_HOP_LIMIT = 16 "invalid hop limit",
    /// An unusable packet rate.
    INVALID_PACKET_RATE = 17 "invalid packet rate",
    /// As 12, for the alternate path.
    INVALID_ALT_GID = 18 "invalid alt GID",
    /// As 13, for the alternate path.
    INVALID_ALT_LID = 19 "invalid alt LID",
    /// As 14, for the alternate path.
    INVALID_ALT_SL = 20 "invalid alt SL",
    /// As 15, for the alternate path.
    INVALID_ALT_TRAFFIC_CLASS = 21 "invalid alt traffic class",
    /// As 16, for the alternate path.
    INVALID_ALT_HOP_LIMIT = 22 "invalid alt hop limit",
    /// As 17, for the alternate path.
    INVALID_ALT_PACKET_RATE = 23 "invalid alt packet rate",
    /// Use another manager of the port.
    PORT_CM_REDIRECT = 24 "port CM redirect",
    /// Use another port.
    PORT_REDIRECT = 25 "port redirect",
    /// An unusable path MTU.
    INVALID_MTU = 26 "invalid MTU",
    /// Too few responder resources.
    INSUFFICIENT_RESP_RESOURCES = 27 "insufficient resp resources",
    /// The application rejects; its reason is in the private data.
    CONSUMER_DEFINED = 28 "consumer defined",
    /// An unusable RNR retry count.
    INVALID_RNR_RETRY = 29 "invalid RNR retry",
    /// The communication id is in use.
    DUPLICATE_LOCAL_COMM_ID = 30 "duplicate local comm ID",
    /// An unsupported class version.
    INVALID_CLASS_VERSION = 31 "invalid class version",
    /// An unusable flow label.
    INVALID_FLOW_LABEL = 32 "invalid flow label",
    /// As 32, for the alternate path.
    INVALID_ALT_FLOW_LABEL = 33 "invalid alt flow label",
    /// The vendor's options (ECE) are not accepted: `rdma_reject_ece`.
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

/// Status of a SIDR_REP (`enum ib_cm_sidr_status` in the kernel's `include/rdma/ib_cm.h`).
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SidrStatus(pub u8);

impl SidrStatus {
    /// Queue pair number and Q_Key are valid.
    pub const SUCCESS: SidrStatus = SidrStatus(0);
    /// The service id is not served.
    pub const UNSUPPORTED: SidrStatus = SidrStatus(1);
    /// The application rejects.
    pub const REJECT: SidrStatus = SidrStatus(2);
    /// There is no queue pair.
    pub const NO_QP: SidrStatus = SidrStatus(3);
}
