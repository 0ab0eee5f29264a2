//! CIDR ranges of addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A range of addresses: `10.0.0.0/16`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range {
    first: u128,
    /// The length of the range's prefix, in bits: from 0 to 32 for IPv4, and to 128 for IPv6.
    pub bits: u32,
    pub is_v6: bool,
}

impl Range {
    /// Parses a range. The address before the slash may be any address of the range.
    pub fn parse(text: &str) -> Option<Range> {
        let (address, bits) = text.split_once('/')?;
        let (number, is_v6) = number(address.parse().ok()?);
        let bits: u32 = bits.parse().ok()?;
        let width = width(is_v6);
        (bits <= width).then(|| Range { first: number & !low(width - bits), bits, is_v6 })
    }

    pub fn holds(&self, address: IpAddr) -> bool {
        let (number, is_v6) = number(address);
        is_v6 == self.is_v6 && number & !low(width(is_v6) - self.bits) == self.first
    }

    pub fn covers(&self, other: &Range) -> bool {
        self.is_v6 == other.is_v6
            && self.bits <= other.bits
            && other.first & !low(width(self.is_v6) - self.bits) == self.first
    }

    pub fn overlaps(&self, other: &Range) -> bool {
        self.covers(other) || other.covers(self)
    }

    /// How many ranges with a prefix of `bits` fit into this range, as an exponent of two: 3 means eight ranges. `None`
    /// if this range is smaller than one such range.
    pub fn doublings(&self, bits: u32) -> Option<u32> {
        bits.checked_sub(self.bits).filter(|_| bits <= width(self.is_v6))
    }

    /// Divides this range into ranges with a prefix of `bits` bits. Returns the range number `index`, counted from 0.
    pub fn nth(&self, bits: u32, index: u128) -> Range {
        let first = self.first | index.checked_shl(width(self.is_v6) - bits).unwrap_or(0);
        Range { first, bits, is_v6: self.is_v6 }
    }

    /// Divides this range into ranges with a prefix of `bits` bits. Returns the number, counted from 0, of the range
    /// that contains the first address of `other`.
    pub fn index_of(&self, bits: u32, other: &Range) -> u128 {
        (other.first & low(width(self.is_v6) - self.bits)).checked_shr(width(self.is_v6) - bits).unwrap_or(0)
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_v6 {
            write!(f, "{}/{}", Ipv6Addr::from(self.first), self.bits)
        } else {
            write!(f, "{}/{}", Ipv4Addr::from(self.first as u32), self.bits)
        }
    }
}

fn number(address: IpAddr) -> (u128, bool) {
    match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)), false),
        IpAddr::V6(address) => (u128::from(address), true),
    }
}

fn width(is_v6: bool) -> u32 {
    if is_v6 { 128 } else { 32 }
}

/// A number whose lowest `bits` bits are ones.
fn low(bits: u32) -> u128 {
    1u128.checked_shl(bits).map_or(u128::MAX, |power| power - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> Range {
        Range::parse(text).expect(text)
    }

    #[test]
    fn ranges_in_ranges() {
        let whole = range("10.1.2.3/16");
        assert_eq!(whole.to_string(), "10.1.0.0/16");
        assert_eq!(whole.nth(24, 5).to_string(), "10.1.5.0/24");
        assert_eq!(whole.index_of(24, &range("10.1.5.0/24")), 5);
        assert!(whole.covers(&range("10.1.255.0/24")) && !whole.covers(&range("10.0.0.0/8")));
        assert!(whole.overlaps(&range("10.0.0.0/8")) && !whole.overlaps(&range("10.2.0.0/16")));
        assert!(
            whole.holds("10.1.9.9".parse().expect("an address")) && !whole.holds("::1".parse().expect("an address"))
        );
        assert_eq!(range("fd00::/48").nth(64, 1).to_string(), "fd00:0:0:1::/64");
        assert_eq!(range("0.0.0.0/0").nth(32, 7).to_string(), "0.0.0.7/32");
        assert!(range("::/0").holds("ffff::".parse().expect("an address")));
        for text in ["10.0.0.0", "10.0.0.0/33", "x/8", "::/129", "1.2.3.4/-1"] {
            assert_eq!(Range::parse(text), None, "{text}");
        }
    }
}
