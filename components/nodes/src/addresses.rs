//! Assigns IP addresses to pods. A pod keeps its address as long as the pod exists.

use std::collections::HashMap;
use std::net::Ipv4Addr;

/// The range for pods of nodes that have no pod CIDR: the base address and the number of bits of the prefix.
const COMMON: (u32, u32) = (Ipv4Addr::new(10, 64, 0, 0).to_bits(), 10);

#[derive(Debug, Default)]
pub struct Addresses {
    used: HashMap<u32, Box<str>>,
    /// The number of the address at which the next search continues, for each range.
    next: HashMap<(u32, u32), u32>,
}

impl Addresses {
    /// Records that a pod has an address.
    pub fn record(&mut self, address: &str, uid: &str) {
        if let Ok(address) = address.parse::<Ipv4Addr>() {
            self.used.entry(address.to_bits()).or_insert_with(|| uid.into());
        }
    }

    pub fn forget(&mut self, address: &str, uid: &str) {
        if let Ok(address) = address.parse::<Ipv4Addr>()
            && self.used.get(&address.to_bits()).is_some_and(|owner| **owner == *uid)
        {
            self.used.remove(&address.to_bits());
        }
    }

    /// Allocates a free address for a pod: an address of its node's range, or of the common range if the node's range
    /// has no free address.
    pub fn hand_out(&mut self, range: Option<&str>, uid: &str) -> String {
        let own = range.and_then(parse);
        let address = own.and_then(|range| self.free(range, uid)).or_else(|| self.free(COMMON, uid));
        address.map_or_else(String::new, |address| Ipv4Addr::from_bits(address).to_string())
    }

    /// The next free address of a range. The first and the last address of a range are not used.
    fn free(&mut self, (base, bits): (u32, u32), uid: &str) -> Option<u32> {
        let size = 1u32.checked_shl(32 - bits).filter(|size| *size > 2)?;
        let next = self.next.entry((base, bits)).or_insert(1);
        for _ in 0..size - 2 {
            let address = base + *next;
            *next = if *next + 2 >= size { 1 } else { *next + 1 };
            if let std::collections::hash_map::Entry::Vacant(place) = self.used.entry(address) {
                place.insert(uid.into());
                return Some(address);
            }
        }
        None
    }
}

fn parse(range: &str) -> Option<(u32, u32)> {
    let (base, bits) = range.split_once('/')?;
    let bits: u32 = bits.parse().ok().filter(|bits| (8..=30).contains(bits))?;
    let mask = u32::MAX << (32 - bits);
    Some((base.parse::<Ipv4Addr>().ok()?.to_bits() & mask, bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_pods_have_one_address() {
        let mut addresses = Addresses::default();
        addresses.record("10.1.0.1", "before");
        let range = Some("10.1.0.0/29");
        let got: Vec<String> = (0..5).map(|n| addresses.hand_out(range, &n.to_string())).collect();
        assert_eq!(got, ["10.1.0.2", "10.1.0.3", "10.1.0.4", "10.1.0.5", "10.1.0.6"]);
        // The node's range is used up, so the pod gets an address of the common range.
        assert_eq!(addresses.hand_out(range, "more"), "10.64.0.1");
        addresses.forget("10.1.0.3", "somebody else");
        addresses.forget("10.1.0.4", "2");
        assert_eq!(addresses.hand_out(range, "next"), "10.1.0.4");
        assert_eq!(addresses.hand_out(Some("fd00::/64"), "six"), "10.64.0.2");
    }
}
