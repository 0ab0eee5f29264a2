//! Parses IP addresses and networks as Kubernetes does. It accepts more forms than the canonical form that is printed.

use std::net::IpAddr;

/// Parses an address whose decimal numbers may have leading zeros. An IPv4-mapped IPv6 address (`::ffff:10.0.0.1`)
/// counts as IPv4.
pub(crate) fn address(text: &str) -> Option<IpAddr> {
    Some(as_written(text)?.to_canonical())
}

/// The address and prefix length of a network such as `10.0.0.0/8`. Bits after the prefix are ignored. An IPv4-mapped
/// network stays IPv6, because its prefix length counts the bits of an IPv6 address.
pub(crate) fn network(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = text.split_once('/')?;
    let address = as_written(address)?;
    let bits: u8 = bits.parse().ok().filter(|_| is_decimal(bits))?;
    (bits <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, bits))
}

fn as_written(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let (before, decimal) = text.split_at(text.rfind(':').map_or(0, |colon| colon + 1));
    let parts: Vec<&str> = decimal.split('.').take(5).collect();
    if parts.len() != 4 || !parts.iter().all(|part| is_decimal(part)) {
        return None;
    }
    let significant = |part: &&str| match part.trim_start_matches('0') {
        "" => "0".to_owned(),
        digits => digits.to_owned(),
    };
    format!("{before}{}", parts.iter().map(significant).collect::<Vec<_>>().join(".")).parse().ok()
}

fn is_decimal(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_leniently() {
        for (text, expected) in [
            ("10.0.0.1", Some("10.0.0.1")),
            ("010.000.0.01", Some("10.0.0.1")),
            ("::ffff:10.0.0.1", Some("10.0.0.1")),
            ("::ffff:010.0.0.1", Some("10.0.0.1")),
            ("FD00:0::1", Some("fd00::1")),
            ("10.0.0", None),
            ("10.0.0.1.", None),
            ("10.0.0.256", None),
            ("10.0.0.+1", None),
            ("10.0.0.1%eth0", None),
            ("fe80::1%eth0", None),
            ("", None),
        ] {
            assert_eq!(address(text), expected.map(|text| text.parse().expect("an address")), "{text}");
        }
    }

    #[test]
    fn networks_are_read_leniently() {
        for (text, expected) in [
            ("10.0.0.0/8", Some(("10.0.0.0", 8))),
            ("010.1.0.0/08", Some(("10.1.0.0", 8))),
            ("::ffff:10.0.0.0/104", Some(("::ffff:10.0.0.0", 104))),
            ("fd00::/64", Some(("fd00::", 64))),
            ("10.0.0.0/33", None),
            ("10.0.0.0/+8", None),
            ("10.0.0.0/", None),
            ("10.0.0.0", None),
            ("10.0.0.0/8/8", None),
        ] {
            let expected = expected.map(|(text, bits)| (text.parse().expect("an address"), bits));
            assert_eq!(network(text), expected, "{text}");
        }
    }
}
