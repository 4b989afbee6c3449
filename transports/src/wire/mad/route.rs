//! The addressee of a MAD, without parsing all of it.

use super::MAD_LEN;

/// The addressee of a message of the communication manager.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Destination {
    /// The owner of this communication id or SIDR request id: the addressee's own, as it was given to its peer. 0 in a
    /// REJ of a requester that gave up before it knew its peer's.
    Comm(u32),
    /// The listener at this service id (REQ, SIDR_REQ).
    Service(u64),
}

/// Returns the addressee of a MAD; `None` if it is not a message of the communication manager. Accepts any bytes, and
/// reads only the length and 20 bytes.
pub fn destination(mad: &[u8]) -> Option<Destination> {
    let mad: &[u8; MAD_LEN] = mad.try_into().ok()?;
    let word = |at: usize| u32::from_be_bytes([mad[at], mad[at + 1], mad[at + 2], mad[at + 3]]);
    // Base version 1, class 7 (communication management), class version 2, method 3 (Send).
    if mad[..4] != [1, 7, 2, 3] {
        return None;
    }
    match u16::from_be_bytes([mad[16], mad[17]]) {
        // REQ, SIDR_REQ: the service id.
        0x10 | 0x17 => Some(Destination::Service(u64::from(word(32)) << 32 | u64::from(word(36)))),
        // MRA, REJ, REP, RTU, DREQ, DREP, LAP, APR: the remote communication id.
        0x11..=0x16 | 0x19 | 0x1a => Some(Destination::Comm(word(28))),
        // SIDR_REP: the request id.
        0x18 => Some(Destination::Comm(word(24))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_classes_other_than_the_managers_are_nobodys() {
        let mut mad = [0; MAD_LEN];
        mad[..4].copy_from_slice(&[1, 7, 2, 3]);
        mad[17] = 0x13;
        mad[28..32].copy_from_slice(&[1, 2, 3, 4]);
        assert_eq!(destination(&mad), Some(Destination::Comm(0x0102_0304)));
        for len in 0..MAD_LEN {
            assert_eq!(destination(&mad[..len]), None);
        }
        for (at, value) in [(0, 2), (1, 3), (2, 1), (3, 1), (17, 0x0f), (17, 0x1b), (16, 1)] {
            let mut other = mad;
            other[at] = value;
            assert_eq!(destination(&other), None, "byte {at} = {value}");
        }
    }

    #[test]
    fn each_message_names_its_addressee() {
        for attribute in 0x10..=0x1a {
            let mut mad = [0; MAD_LEN];
            mad[..4].copy_from_slice(&[1, 7, 2, 3]);
            mad[17] = attribute;
            (24..40).for_each(|at| mad[at as usize] = at);
            let expected = match attribute {
                0x10 | 0x17 => Destination::Service(0x2021_2223_2425_2627),
                0x18 => Destination::Comm(0x1819_1a1b),
                _ => Destination::Comm(0x1c1d_1e1f),
            };
            assert_eq!(destination(&mad), Some(expected), "{attribute:#x}");
        }
    }
}
