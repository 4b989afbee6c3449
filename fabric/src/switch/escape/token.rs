//! Tokens on the wire: MAC control frames (§4.5.1).

use super::flows::FlowId;
use crate::network::Control;

/// The opcode of an Escape token frame (§4.5.1).
const TOKEN: u16 = 0x0102;
/// The opcode of the answer to a token that found nothing, which the authors' prototype sends.
const NACK: u16 = 0x0103;
/// Protocol and destination port of RoCEv2 in the 5-tuple.
const UDP: u32 = 17;
const ROCE: u32 = 4791;

/// Messages among Escape's switches.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// A slot is reserved for a frame of the flow in this many escape queues downstream.
    Token(FlowId, u16),
    /// The token that had travelled this many hops upstream found nothing, or could not be forwarded.
    Nack(FlowId, u16),
}

impl From<Message> for Control {
    /// 13 bytes of 5-tuple, 2 of hops, and 1 of priority.
    fn from(message: Message) -> Control {
        let (opcode, flow, hops) = match message {
            Message::Token(flow, hops) => (TOKEN, flow, hops),
            Message::Nack(flow, hops) => (NACK, flow, hops),
        };
        let ports = u32::from(flow.udp_src) << 16 | ROCE;
        let rest = UDP << 24 | u32::from(hops) << 8 | u32::from(flow.priority);
        Control::Mac { opcode, parameters: [flow.src, flow.dst, ports, rest] }
    }
}

impl Message {
    /// Decodes a control frame, if it is one of these.
    pub(super) fn read(control: Control) -> Option<Message> {
        let Control::Mac { opcode, parameters: [src, dst, ports, rest] } = control else { return None };
        let flow = FlowId { src, dst, udp_src: (ports >> 16) as u16, priority: rest as u8 };
        let hops = (rest >> 8) as u16;
        match opcode {
            TOKEN => Some(Message::Token(flow, hops)),
            NACK => Some(Message::Nack(flow, hops)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let flow = FlowId { src: 0x0a00_0001, dst: 0x0a00_00ff, udp_src: 0xc0de, priority: 5 };
        for message in [Message::Token(flow, 0xfffe), Message::Nack(flow, 1)] {
            assert_eq!(Message::read(message.into()), Some(message));
        }
        assert_eq!(Message::read(Control::Mac { opcode: 0x0101, parameters: [0; 4] }), None);
        assert_eq!(Message::read(Control::Credit { queue: 0, bytes: 0 }), None);
    }
}
