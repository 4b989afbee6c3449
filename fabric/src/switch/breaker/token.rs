//! Tokens on the wire: MAC control frames.

use crate::network::Control;

/// Opcodes next to Escape's, unassigned.
const PROBE: u16 = 0x0104;
const GRANT: u16 = 0x0105;

/// A port that originates tokens. The lowest of a loop is its master.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Origin {
    pub node: u32,
    pub port: u16,
}

/// Messages among the switches of a loop.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// Travels with the frames: the port waits for the receiver. The number of the probe keeps it from being forwarded
    /// twice.
    Probe { origin: Origin, priority: u8, number: u32 },
    /// Travels against the frames: there is room for one of the loop, of at most `bytes`.
    Grant { origin: Origin, priority: u8, bytes: u32 },
}

impl From<Token> for Control {
    fn from(token: Token) -> Control {
        let (opcode, origin, priority, number) = match token {
            Token::Probe { origin, priority, number } => (PROBE, origin, priority, number),
            Token::Grant { origin, priority, bytes } => (GRANT, origin, priority, bytes),
        };
        let Origin { node, port } = origin;
        Control::Mac { opcode, parameters: [node, u32::from(port) << 8 | u32::from(priority), number, 0] }
    }
}

impl Token {
    /// Decodes a control frame, if it is one of these.
    pub(super) fn read(control: Control) -> Option<Token> {
        let Control::Mac { opcode, parameters: [node, place, number, _] } = control else { return None };
        let (origin, priority) = (Origin { node, port: (place >> 8) as u16 }, place as u8);
        match opcode {
            PROBE => Some(Token::Probe { origin, priority, number }),
            GRANT => Some(Token::Grant { origin, priority, bytes: number }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let origin = Origin { node: 70_000, port: 0xfffe };
        let probe = Token::Probe { origin, priority: 7, number: 9 };
        for token in [probe, Token::Grant { origin, priority: 0, bytes: 4_224 }] {
            assert_eq!(Token::read(token.into()), Some(token));
        }
        assert_eq!(Token::read(Control::Mac { opcode: 0x0102, parameters: [0; 4] }), None);
        assert_eq!(Token::read(Control::Credit { queue: 0, bytes: 0 }), None);
    }

    #[test]
    fn the_lowest_is_that_of_the_lowest_node() {
        let [low, high] = [Origin { node: 3, port: 9 }, Origin { node: 4, port: 0 }];
        assert!(low < high && Origin { port: 8, ..low } < low);
    }
}
