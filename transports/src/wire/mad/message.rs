//! The messages and the positions of their fields.

use super::BODY_LEN;
use super::field::fields;
use super::path::PathRecord;
use crate::Psn;
use crate::wire::Mtu;

/// Messages that MRA and REJ answer: values of `message_mraed` and `message_rejected`.
pub mod rejected {
    /// A REQ.
    pub const REQ: u8 = 0;
    /// A REP.
    pub const REP: u8 = 1;
    /// Anything else.
    pub const OTHER: u8 = 2;
}

/// The service of a connection: a REQ's transport service type and extended transport type.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum TransportType {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Extended reliable connection; the sender of the REQ is the initiator.
    Xrc,
}

macro_rules! messages {
    ($( $(#[$meta:meta])* $name:ident = $attribute:literal, )*) => {
        /// A message by its kind.
        #[derive(Copy, Clone, Debug, PartialEq, Eq)]
        #[allow(clippy::large_enum_variant)] // all are 232 bytes on the wire
        pub enum Message {
            $( $(#[$meta])* $name($name), )*
        }

        impl Message {
            pub(super) fn parse(attribute: u16, body: &[u8; BODY_LEN]) -> Option<Message> {
                Some(match attribute {
                    $( $attribute => Message::$name($name::parse(body)), )*
                    _ => return None,
                })
            }

            pub(super) fn emit(&self, body: &mut [u8; BODY_LEN]) {
                match self {
                    $( Message::$name(message) => message.emit(body), )*
                }
            }

            /// Returns the attribute id.
            pub fn attribute(&self) -> u16 {
                match self {
                    $( Message::$name(_) => $attribute, )*
                }
            }
        }

        $(
            impl From<$name> for Message {
                fn from(message: $name) -> Message {
                    Message::$name(message)
                }
            }
        )*
    };
}

messages! {
    /// Request for a connection.
    Req = 0x10,
    /// More time is needed: message receipt acknowledgement.
    Mra = 0x11,
    /// Refusal.
    Rej = 0x12,
    /// Acceptance.
    Rep = 0x13,
    /// Ready to use: confirms a REP.
    Rtu = 0x14,
    /// Request for the end of a connection.
    Dreq = 0x15,
    /// Confirms a DREQ.
    Drep = 0x16,
    /// Request for a queue pair and Q_Key (service id resolution).
    SidrReq = 0x17,
    /// Answer to a SIDR_REQ.
    SidrRep = 0x18,
    /// Offer of an alternate path.
    Lap = 0x19,
    /// Answer to a LAP.
    Apr = 0x1a,
}

impl Message {
    /// Returns the name in IBA's spelling.
    pub fn name(&self) -> &'static str {
        match self {
            Message::Req(_) => "REQ",
            Message::Mra(_) => "MRA",
            Message::Rej(_) => "REJ",
            Message::Rep(_) => "REP",
            Message::Rtu(_) => "RTU",
            Message::Dreq(_) => "DREQ",
            Message::Drep(_) => "DREP",
            Message::SidrReq(_) => "SIDR_REQ",
            Message::SidrRep(_) => "SIDR_REP",
            Message::Lap(_) => "LAP",
            Message::Apr(_) => "APR",
        }
    }
}

/// Request for a connection (IBA table 106).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Req {
    /// All fields except the paths and the private data.
    pub fields: ReqFields,
    /// The path to use.
    pub primary: PathRecord,
    /// The path to migrate to, [`PathRecord::NONE`] for none.
    pub alternate: PathRecord,
    /// Private data. With the IP connection manager, the first 36 bytes are the IP header (`struct cma_hdr` in the
    /// kernel).
    pub private_data: [u8; Req::PRIVATE_DATA],
}

fields! {
    /// A REQ without its paths and its private data. "Local" is the sender.
    ReqFields {
        /// The sender's communication id.
        local_comm_id: u32 = (0, 0, 32),
        /// The service requested.
        service_id: u64 = (8, 0, 64),
        /// GUID of the sender's channel adapter.
        local_ca_guid: u64 = (16, 0, 64),
        /// The sender's Q_Key (reliable datagrams).
        local_qkey: u32 = (28, 0, 32),
        /// The sender's queue pair number, 24 bits.
        local_qpn: u32 = (32, 0, 24),
        /// READs and atomics that the receiver may have outstanding at the sender.
        responder_resources: u8 = (35, 0, 8),
        /// The sender's end-to-end context, 24 bits.
        local_eecn: u32 = (36, 0, 24),
        /// READs and atomics that the sender wants to have outstanding at the receiver.
        initiator_depth: u8 = (39, 0, 8),
        /// The receiver's end-to-end context, 24 bits.
        remote_eecn: u32 = (40, 0, 24),
        /// Code of the time within which the receiver is to answer, 5 bits.
        remote_response_timeout: u8 = (43, 0, 5),
        /// Transport service type, 2 bits: 0 RC, 1 UC, 2 RD, 3 see `extended_transport_type`.
        transport_service: u8 = (43, 5, 2),
        /// The sender has end-to-end flow control.
        flow_control: bool = (43, 7, 1),
        /// Initial PSN for the receiver to send: the sender's receive PSN.
        starting_psn: Psn = (44, 0, 24),
        /// Code of the time within which the sender will answer, 5 bits.
        local_response_timeout: u8 = (47, 0, 5),
        /// Retries after a timeout, 0 to 7.
        retry_count: u8 = (47, 5, 3),
        /// P_Key.
        pkey: u16 = (48, 0, 16),
        /// Path MTU code, 4 bits: see [`Mtu::from_code`].
        path_mtu: u8 = (50, 0, 4),
        /// A reliable datagram channel exists.
        rdc_exists: bool = (50, 4, 1),
        /// Retries after an RNR NAK, 0 to 7.
        rnr_retry_count: u8 = (50, 5, 3),
        /// Retries of the receiver's messages, 4 bits.
        max_cm_retries: u8 = (51, 0, 4),
        /// The sender receives from a shared receive queue.
        srq: bool = (51, 4, 1),
        /// With transport service type 3, 3 bits: 1 XRC.
        extended_transport_type: u8 = (51, 5, 3),
    }
}

impl Req {
    /// Bytes of private data.
    pub const PRIVATE_DATA: usize = 92;
    const PRIMARY: usize = 52;
    const ALTERNATE: usize = 96;
    const DATA: usize = 140;

    fn parse(body: &[u8; BODY_LEN]) -> Req {
        Req {
            fields: ReqFields::parse(body),
            primary: PathRecord::parse(body, Req::PRIMARY),
            alternate: PathRecord::parse(body, Req::ALTERNATE),
            private_data: std::array::from_fn(|i| body[Req::DATA + i]),
        }
    }

    fn emit(&self, body: &mut [u8; BODY_LEN]) {
        self.fields.emit(body);
        self.primary.emit(body, Req::PRIMARY);
        self.alternate.emit(body, Req::ALTERNATE);
        body[Req::DATA..].copy_from_slice(&self.private_data);
    }

    /// Returns the service, `None` for one that does not exist (or no longer: RD).
    pub fn transport(&self) -> Option<TransportType> {
        match (self.fields.transport_service, self.fields.extended_transport_type) {
            (0, _) => Some(TransportType::Rc),
            (1, _) => Some(TransportType::Uc),
            (3, 1) => Some(TransportType::Xrc),
            _ => None,
        }
    }

    /// Sets the service.
    pub fn set_transport(&mut self, transport: TransportType) {
        (self.fields.transport_service, self.fields.extended_transport_type) = match transport {
            TransportType::Rc => (0, 0),
            TransportType::Uc => (1, 0),
            TransportType::Xrc => (3, 1),
        };
    }

    /// Returns the path MTU, `None` for a code that does not exist.
    pub fn path_mtu(&self) -> Option<Mtu> {
        Mtu::from_code(self.fields.path_mtu)
    }
}

impl Default for Req {
    fn default() -> Req {
        Req::parse(&[0; BODY_LEN])
    }
}

fields! {
    /// Message receipt acknowledgement (IBA table 107): the answer to a REQ, REP or LAP takes longer.
    Mra {
        /// The sender's communication id.
        local_comm_id: u32 = (0, 0, 32),
        /// The receiver's communication id.
        remote_comm_id: u32 = (4, 0, 32),
        /// The message acknowledged: see [`rejected`].
        message_mraed: u8 = (8, 0, 2),
        /// Code of the time that the answer may take, 5 bits: 4.096 µs · 2ⁿ.
        service_timeout: u8 = (9, 0, 5),
        ;
        /// Private data.
        private_data: 222 => 10,
    }

    /// Refusal (IBA table 108).
    Rej {
        /// The sender's communication id, 0 if it made none.
        local_comm_id: u32 = (0, 0, 32),
        /// The receiver's communication id, 0 if not known.
        remote_comm_id: u32 = (4, 0, 32),
        /// The message rejected: see [`rejected`].
        message_rejected: u8 = (8, 0, 2),
        /// Number of valid bytes of `info`, 7 bits.
        info_len: u8 = (9, 0, 7),
        /// Reason: see [`RejReason`](super::RejReason).
        reason: u16 = (10, 0, 16),
        ;
        /// Additional rejection information.
        info: 72 => 12,
        /// Private data.
        private_data: 148 => 84,
    }

    /// Acceptance of a REQ (IBA table 110).
    Rep {
        /// The sender's communication id.
        local_comm_id: u32 = (0, 0, 32),
        /// The receiver's communication id.
        remote_comm_id: u32 = (4, 0, 32),
        /// The sender's Q_Key (reliable datagrams).
        local_qkey: u32 = (8, 0, 32),
        /// The sender's queue pair number, 24 bits.
        local_qpn: u32 = (12, 0, 24),
        /// The sender's end-to-end context, 24 bits. For a receiving XRC queue pair, its number.
        local_eecn: u32 = (16, 0, 24),
        /// Initial PSN for the receiver to send: the sender's receive PSN.
        starting_psn: Psn = (20, 0, 24),
        /// READs and atomics that the receiver may have outstanding at the sender.
        responder_resources: u8 = (24, 0, 8),
        /// READs and atomics that the sender will have outstanding at the receiver.
        initiator_depth: u8 = (25, 0, 8),
        /// Code of the sender's ACK delay, 5 bits.
        target_ack_delay: u8 = (26, 0, 5),
        /// Whether the alternate path was taken, 2 bits.
        failover_accepted: u8 = (26, 5, 2),
        /// The sender has end-to-end flow control.
        flow_control: bool = (26, 7, 1),
        /// Retries after an RNR NAK, 0 to 7.
        rnr_retry_count: u8 = (27, 0, 3),
        /// The sender receives from a shared receive queue.
        srq: bool = (27, 3, 1),
        /// GUID of the sender's channel adapter.
        local_ca_guid: u64 = (28, 0, 64),
        ;
        /// Private data.
        private_data: 196 => 36,
    }

    /// Ready to use (IBA table 111): confirms a REP.
    Rtu {
        /// The sender's communication id.
        local_comm_id: u32 = (0, 0, 32),
        /// The receiver's communication id.
        remote_comm_id: u32 = (4, 0, 32),
        ;
        /// Private data.
        private_data: 224 => 8,
    }

    /// Request for the end of a connection (IBA table 112).
    Dreq {
        /// The sender's communication id.
        local_comm_id: u32 = (0, 0, 32),
        /// The receiver's communication id.
        remote_comm_id: u32 = (4, 0, 32),
        /// The receiver's queue pair number, 24 bits.
        remote_qpn: u32 = (8, 0, 24),
        ;
        /// Private data.
        private_data: 220 => 12,
    }

    /// Confirms a DREQ (IBA table 113).
    Drep {
        /// The sender's communication id.
        local_comm_id: u32 = (0, 0, 32),
        /// The receiver's communication id.
        remote_comm_id: u32 = (4, 0, 32),
        ;
        /// Private data.
        private_data: 224 => 8,
    }

    /// Request for the queue pair number and the Q_Key of a datagram service (IBA table 119).
    SidrReq {
        /// The sender's number for the request.
        request_id: u32 = (0, 0, 32),
        /// P_Key.
        pkey: u16 = (4, 0, 16),
        /// The service requested.
        service_id: u64 = (8, 0, 64),
        ;
        /// Private data. With the IP connection manager, the first 36 bytes are the IP header (`struct cma_hdr` in the
        /// kernel).
        private_data: 216 => 16,
    }

    /// Answer to a SIDR_REQ (IBA table 120).
    SidrRep {
        /// The number of the request.
        request_id: u32 = (0, 0, 32),
        /// See [`SidrStatus`](super::SidrStatus).
        status: u8 = (4, 0, 8),
        /// Number of valid bytes of `info`.
        info_len: u8 = (5, 0, 8),
        /// The service's queue pair number, 24 bits.
        qpn: u32 = (8, 0, 24),
        /// The service requested.
        service_id: u64 = (12, 0, 64),
        /// The service's Q_Key.
        qkey: u32 = (20, 0, 32),
        ;
        /// Additional information.
        info: 72 => 24,
        /// Private data.
        private_data: 136 => 96,
    }

    /// Offer of an alternate path (IBA table 115).
    Lap {
        /// The sender's communication id.
        local_comm_id: u32 = (0, 0, 32),
        /// The receiver's communication id.
        remote_comm_id: u32 = (4, 0, 32),
        /// The receiver's queue pair number, 24 bits.
        remote_qpn: u32 = (12, 0, 24),
        /// Code of the time within which the receiver is to answer, 5 bits.
        remote_response_timeout: u8 = (15, 0, 5),
        /// LID of the sender.
        local_lid: u16 = (20, 0, 16),
        /// LID of the receiver.
        remote_lid: u16 = (22, 0, 16),
        /// GID of the sender.
        local_gid: std::net::Ipv6Addr = (24, 0, 128),
        /// GID of the receiver.
        remote_gid: std::net::Ipv6Addr = (40, 0, 128),
        /// Flow label, 20 bits.
        flow_label: u32 = (56, 0, 20),
        /// Traffic class.
        traffic_class: u8 = (59, 0, 8),
        /// Hop limit.
        hop_limit: u8 = (60, 0, 8),
        /// Packet rate, 6 bits.
        packet_rate: u8 = (61, 2, 6),
        /// Service level, 4 bits.
        service_level: u8 = (62, 0, 4),
        /// Both ports are in one subnet.
        subnet_local: bool = (62, 4, 1),
        /// Local ACK Timeout code, 5 bits.
        local_ack_timeout: u8 = (63, 0, 5),
        ;
        /// Private data.
        private_data: 168 => 64,
    }

    /// Answer to a LAP (IBA table 116).
    Apr {
        /// The sender's communication id.
        local_comm_id: u32 = (0, 0, 32),
        /// The receiver's communication id.
        remote_comm_id: u32 = (4, 0, 32),
        /// Number of valid bytes of `info`.
        info_len: u8 = (8, 0, 8),
        /// 0 if the path was taken, 2 if alternate paths are not supported (`enum ib_cm_apr_status` in the kernel).
        status: u8 = (9, 0, 8),
        ;
        /// Additional information.
        info: 72 => 12,
        /// Private data.
        private_data: 148 => 84,
    }
}
