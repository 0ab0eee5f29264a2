//! The address ranges of services.

use crate::object::address::network;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// One range of addresses from which services get addresses: `10.0.0.0/24`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceRange {
    base: IpAddr,
    prefix_bits: u8,
}

const IPV6_PREFIX_BITS_MIN: u8 = 64;
/// A range of at most this many addresses has no part that is reserved for named addresses.
const UNDIVIDED_MAX: u128 = 16;
/// The reserved part of a range is the range's size divided by this number, but at least `NAMED_MIN` and at most
/// `NAMED_MAX` addresses.
const NAMED_PART: u128 = 16;
const NAMED_MIN: u128 = 16;
const NAMED_MAX: u128 = 256;

impl Default for ServiceRange {
    fn default() -> Self {
        Self { base: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 0)), prefix_bits: 24 }
    }
}

impl std::str::FromStr for ServiceRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || format!("{text:?} is not a valid CIDR, such as 10.0.0.0/24");
        let (address, bits) = text.split_once('/').ok_or_else(invalid)?;
        let base: IpAddr = address.parse().map_err(|_| invalid())?;
        let prefix_bits: u8 = bits.parse().map_err(|_| invalid())?;
        let width = if base.is_ipv4() { 32 } else { 128 };
        if prefix_bits > width || width - prefix_bits < 3 {
            return Err(format!("the service range {text} must hold at least 8 addresses"));
        }
        if base.is_ipv6() && prefix_bits < IPV6_PREFIX_BITS_MIN {
            return Err(format!(
                "the service range {text} is too large; for 128-bit addresses, the mask must be >= {IPV6_PREFIX_BITS_MIN}"
            ));
        }
        let range = Self { base, prefix_bits };
        if number(base) != number(base) >> range.host_bits() << range.host_bits() {
            return Err(format!("{text:?} is not a network address: bits are set behind the prefix"));
        }
        Ok(range)
    }
}

impl std::fmt::Display for ServiceRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix_bits)
    }
}

impl ServiceRange {
    /// The `nth` address after the network's own address. The API server's service has the first of these addresses.
    pub fn address(&self, nth: u128) -> IpAddr {
        let value = number(self.base) + nth;
        match self.base {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from(value as u32)),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from(value)),
        }
    }

    /// Parses a CIDR of a ServiceCIDR, which may be smaller than the ranges of `--service-cluster-ip-range`. Returns
    /// `None` if nothing can be allocated from the CIDR: it has no usable address, or it is larger than Kubernetes
    /// supports.
    pub(super) fn listed(text: &str) -> Option<Self> {
        let (base, prefix_bits) = network(text)?;
        let range = Self { base, prefix_bits };
        let is_too_large = base.is_ipv6() && prefix_bits < IPV6_PREFIX_BITS_MIN;
        (!is_too_large && range.usable() > 0).then_some(range)
    }

    /// Whether a service can have the address: it is in the range, and is neither the network's own address nor the
    /// broadcast address.
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.base.is_ipv4()
            && number(address).checked_sub(number(self.base)).is_some_and(|nth| (1..=self.usable()).contains(&nth))
    }

    /// The number of usable addresses: without the network's own and, for IPv4, the broadcast address.
    pub(super) fn usable(&self) -> u128 {
        self.size().saturating_sub(if self.base.is_ipv4() { 2 } else { 1 })
    }

    /// The number of addresses at the start of the range that are reserved for services for which the client names an
    /// address. Other services get reserved addresses only when no other address is free.
    pub(super) fn named(&self) -> u128 {
        match self.size() {
            size if size <= UNDIVIDED_MAX => 0,
            size => (size / NAMED_PART).clamp(NAMED_MIN, NAMED_MAX),
        }
    }

    fn size(&self) -> u128 {
        1u128 << self.host_bits().min(64)
    }

    fn host_bits(&self) -> u8 {
        (if self.base.is_ipv4() { 32 } else { 128 }) - self.prefix_bits
    }

    pub(super) fn family(&self) -> &'static str {
        if self.base.is_ipv4() { "IPv4" } else { "IPv6" }
    }
}

/// The ranges of a cluster: one range, or one of each family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServiceRanges {
    /// The range for services that choose no family.
    pub first: ServiceRange,
    pub second: Option<ServiceRange>,
}

impl std::str::FromStr for ServiceRanges {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
        let (first, second) = match parts[..] {
            [] => return Err(format!("{text:?} is not a valid CIDR, such as 10.0.0.0/24")),
            [first] => (first.parse()?, None),
            [first, second] => (first.parse::<ServiceRange>()?, Some(second.parse::<ServiceRange>()?)),
            _ => return Err("--service-cluster-ip-range must not contain more than two entries".into()),
        };
        if second.is_some_and(|second| second.family() == first.family()) {
            return Err("the two entries of --service-cluster-ip-range must be of different IP families".into());
        }
        Ok(Self { first, second })
    }
}

impl std::fmt::Display for ServiceRanges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.second {
            None => write!(f, "{}", self.first),
            Some(second) => write!(f, "{},{second}", self.first),
        }
    }
}

impl ServiceRanges {
    pub fn iter(&self) -> impl Iterator<Item = &ServiceRange> {
        std::iter::once(&self.first).chain(&self.second)
    }

    /// The range of a family, if the cluster has one.
    pub(super) fn of(&self, family: &str) -> Option<&ServiceRange> {
        self.iter().find(|range| range.family() == family)
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)),
        IpAddr::V6(v6) => u128::from(v6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_ranges_are_of_two_families() {
        let cases = [
            ("10.0.0.0/24", Ok("10.0.0.0/24")),
            ("10.0.0.0/24,fd00::/112", Ok("10.0.0.0/24,fd00::/112")),
            ("fd00::/112, 10.0.0.0/24", Ok("fd00::/112,10.0.0.0/24")),
            ("10.0.0.0/24,10.1.0.0/24", Err("different IP families")),
            ("10.0.0.0/24,fd00::/112,fd01::/112", Err("more than two")),
            ("10.0.0.0/24,x", Err("not a valid CIDR")),
            ("", Err("not a valid CIDR")),
        ];
        for (text, expected) in cases {
            match (text.parse::<ServiceRanges>(), expected) {
                (Ok(ranges), Ok(shown)) => assert_eq!(ranges.to_string(), shown),
                (Err(found), Err(part)) => assert!(found.contains(part), "{found}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }

    #[test]
    fn services_get_neither_the_first_address_nor_the_broadcast_one() {
        for (text, usable, named, within, without) in [
            ("10.0.0.0/16", 65534, 256, ["10.0.0.1", "10.0.255.254"], ["10.0.0.0", "10.0.255.255"]),
            ("10.0.0.0/24", 254, 16, ["10.0.0.1", "10.0.0.254"], ["10.0.0.0", "10.0.0.255"]),
            ("10.0.0.32/27", 30, 16, ["10.0.0.33", "10.0.0.62"], ["10.0.0.32", "10.0.0.63"]),
            ("10.0.0.0/28", 14, 0, ["10.0.0.1", "10.0.0.14"], ["10.0.0.15", "10.0.1.1"]),
            ("10.0.0.0/30", 2, 0, ["10.0.0.1", "10.0.0.2"], ["10.0.0.3", "::10.0.0.1"]),
            ("fd00::/112", 65535, 256, ["fd00::1", "fd00::ffff"], ["fd00::", "fd00::1:0"]),
            ("fd00::/64", u64::MAX.into(), 256, ["fd00::1", "fd00::ffff:ffff:ffff:ffff"], ["fd00::", "fd00:0:0:1::"]),
        ] {
            let range = ServiceRange::listed(text).expect("a range");
            assert_eq!((range.usable(), range.named()), (usable, named), "{text}");
            let holds = |address: &str| range.contains(address.parse().expect("an address"));
            assert_eq!((within.map(holds), without.map(holds)), ([true; 2], [false; 2]), "{text}");
        }
        for nothing in ["10.0.0.0/31", "10.0.0.0/32", "fd00::/128", "fd00::/63", "x/24", ""] {
            assert_eq!(ServiceRange::listed(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn ranges_parse_or_say_why() {
        let cases = [
            ("10.96.0.0/12", Ok("10.96.0.1")),
            ("fd00::/112", Ok("fd00::1")),
            ("0.0.0.0/0", Ok("0.0.0.1")),
            ("::/0", Err("too large")),
            ("10.0.0.1/24", Err("not a network address")),
            ("10.0.0.0/31", Err("at least 8")),
            ("10.0.0.0", Err("not a valid CIDR")),
            ("x/8", Err("not a valid CIDR")),
        ];
        for (text, expected) in cases {
            match (text.parse::<ServiceRange>(), expected) {
                (Ok(range), Ok(first)) => assert_eq!(range.address(1).to_string(), first),
                (Err(found), Err(part)) => assert!(found.contains(part), "{found}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }
}
