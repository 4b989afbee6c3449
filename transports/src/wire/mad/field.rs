//! Fields of a message by position: the byte, the bit in it counted from the most significant, and the width.

use std::net::Ipv6Addr;

use crate::Psn;

/// Reads `width` bits, 1 to 128, most significant first.
pub(super) fn get(bytes: &[u8], byte: usize, bit: usize, width: usize) -> u128 {
    let (first, end) = (byte, (byte * 8 + bit + width).div_ceil(8));
    let mut value = 0_u128;
    // The accumulator cannot hold a 128-bit field that does not begin at a byte. There is none.
    debug_assert!(bit + width <= 128);
    for &b in &bytes[first..end] {
        value = value << 8 | u128::from(b);
    }
    let below = end * 8 - (byte * 8 + bit + width);
    value >> below & mask(width)
}

/// Writes the low `width` bits of `value`, without changing any others.
pub(super) fn put(bytes: &mut [u8], byte: usize, bit: usize, width: usize, value: u128) {
    let (first, end) = (byte, (byte * 8 + bit + width).div_ceil(8));
    let below = end * 8 - (byte * 8 + bit + width);
    let (mut mask, mut value) = (mask(width) << below, (value & mask(width)) << below);
    for b in bytes[first..end].iter_mut().rev() {
        *b = *b & !(mask as u8) | value as u8;
        (mask, value) = (mask >> 8, value >> 8);
    }
}

const fn mask(width: usize) -> u128 {
    u128::MAX >> (128 - width)
}

/// A type of a field.
pub(super) trait Field {
    fn from_bits(bits: u128) -> Self;
    fn bits(self) -> u128;
}

macro_rules! number {
    ($($t:ty),*) => {$(
        impl Field for $t {
            fn from_bits(bits: u128) -> $t {
                bits as $t
            }
            fn bits(self) -> u128 {
                u128::from(self)
            }
        }
    )*};
}

number!(u8, u16, u32, u64);

impl Field for bool {
    fn from_bits(bits: u128) -> bool {
        bits != 0
    }
    fn bits(self) -> u128 {
        u128::from(self)
    }
}

impl Field for Psn {
    fn from_bits(bits: u128) -> Psn {
        Psn::new(bits as u32)
    }
    fn bits(self) -> u128 {
        u128::from(self.get())
    }
}

/// A GID.
impl Field for Ipv6Addr {
    fn from_bits(bits: u128) -> Ipv6Addr {
        Ipv6Addr::from_bits(bits)
    }
    fn bits(self) -> u128 {
        self.to_bits()
    }
}

/// Declares structs with fields at `(byte, bit, width)`, and byte strings at a byte.
macro_rules! fields {
    ($(
        $(#[$meta:meta])*
        $name:ident {
            $( $(#[$doc:meta])* $field:ident: $t:ty = ($byte:expr, $bit:expr, $width:expr), )*
            $( ; $( $(#[$doc_bytes:meta])* $bytes:ident: $len:expr => $at:expr, )* )?
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Copy, Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $( $(#[$doc])* pub $field: $t, )*
            $($( $(#[$doc_bytes])* pub $bytes: [u8; $len], )*)?
        }

        impl $name {
            fn parse(body: &[u8; $crate::wire::mad::BODY_LEN]) -> $name {
                use $crate::wire::mad::field::{Field, get};
                $name {
                    $( $field: <$t>::from_bits(get(body, $byte, $bit, $width)), )*
                    $($( $bytes: std::array::from_fn(|i| body[$at + i]), )*)?
                }
            }

            fn emit(&self, body: &mut [u8; $crate::wire::mad::BODY_LEN]) {
                use $crate::wire::mad::field::{Field, put};
                $( put(body, $byte, $bit, $width, self.$field.bits()); )*
                $($( body[$at..$at + $len].copy_from_slice(&self.$bytes); )*)?
            }
        }

        impl Default for $name {
            fn default() -> $name {
                $name::parse(&[0; $crate::wire::mad::BODY_LEN])
            }
        }
    )*};
}

pub(super) use fields;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_is_got_and_nothing_else_changes() {
        for fill in [0, 0xff] {
            for bit in 0..8 {
                for width in 1..=64 {
                    let mut bytes = [fill; 16];
                    let value = 0x9876_5432_10fe_dcba_u128 & mask(width);
                    put(&mut bytes, 3, bit, width, value);
                    assert_eq!(get(&bytes, 3, bit, width), value);
                    put(&mut bytes, 3, bit, width, if fill == 0 { 0 } else { u128::MAX });
                    assert_eq!(bytes, [fill; 16], "bit {bit}, width {width}");
                }
            }
        }
        let mut bytes = [0; 18];
        put(&mut bytes, 1, 0, 128, u128::MAX - 5);
        assert_eq!((get(&bytes, 1, 0, 128), bytes[0], bytes[17]), (u128::MAX - 5, 0, 0));
    }

    #[test]
    fn bits_count_from_the_most_significant() {
        let bytes = [0x12, 0x34, 0x56, 0x78];
        assert_eq!(get(&bytes, 0, 0, 4), 1);
        assert_eq!(get(&bytes, 1, 4, 4), 4);
        assert_eq!(get(&bytes, 0, 0, 24), 0x12_3456);
        assert_eq!(get(&bytes, 0, 4, 16), 0x2345);
    }
}
