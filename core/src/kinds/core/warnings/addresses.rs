//! Addresses and networks that are accepted although they are not in the standard form.

use crate::object::address::{address, network};
use crate::refusal::Texts;
use std::net::IpAddr;

/// Warns of leading zeros, IPv4-mapped IPv6 addresses, and IPv6 addresses that are not in their shortest form.
pub(crate) fn of_address(text: &str, at: &str, warnings: &mut Texts) {
    let Some(found) = address(text) else { return };
    if text.parse::<IpAddr>().ok() != Some(found) {
        warnings.push(format!(
            "{at}: non-standard IP address \"{text}\" will be considered invalid in a future Kubernetes release: use \
             \"{found}\""
        ));
    } else if found.is_ipv6() && found.to_string() != text {
        warnings.push(format!("{at}: IPv6 address \"{text}\" should be in RFC 5952 canonical format (\"{found}\")"));
    }
}

/// Warns of bits after the prefix, because the text may mean the network or the address, and of non-standard spellings.
pub(crate) fn of_network(text: &str, at: &str, warnings: &mut Texts) {
    let Some((address, bits)) = network(text) else { return };
    let begin = masked(address, bits);
    let shown = shown(begin, bits);
    let before = warnings.len();
    if begin != address {
        let all_bits = if address.is_ipv4() { 32 } else { 128 };
        let plain = address.to_canonical();
        warnings.push(format!(
            "{at}: CIDR value \"{text}\" is ambiguous in this context (should be \"{shown}\" or \
             \"{plain}/{all_bits}\"?)"
        ));
    }
    let has_zeros = text
        .split_once('/')
        .is_none_or(|(begin, length)| begin.parse::<IpAddr>().is_err() || length != bits.to_string());
    if has_zeros || address != address.to_canonical() {
        warnings.push(format!(
            "{at}: non-standard CIDR value \"{text}\" will be considered invalid in a future Kubernetes release: use \
             \"{shown}\""
        ));
    }
    let canonical = format!("{address}/{bits}");
    if warnings.len() == before && address.is_ipv6() && canonical != text {
        warnings
            .push(format!("{at}: IPv6 CIDR value \"{text}\" should be in RFC 5952 canonical format (\"{canonical}\")"));
    }
}

/// The first address of the network that contains the address and has a prefix of `bits` bits.
fn masked(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            (u32::from(v4) & u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0)).to_be_bytes().into()
        }
        IpAddr::V6(v6) => {
            (u128::from(v6) & u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0)).to_be_bytes().into()
        }
    }
}

/// The text of a network. An IPv4-mapped network is shown as IPv4.
fn shown(begin: IpAddr, bits: u8) -> String {
    match begin.to_canonical() {
        plain if plain != begin && bits >= 96 => format!("{plain}/{}", bits - 96),
        _ => format!("{begin}/{bits}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(of: fn(&str, &str, &mut Texts), text: &str) -> Vec<String> {
        let mut warnings = Texts::default();
        of(text, "f", &mut warnings);
        warnings.into_vec()
    }

    #[test]
    fn addresses() {
        let odd = "will be considered invalid in a future Kubernetes release: use";
        for (text, expected) in [
            ("1.2.3.4", None),
            ("fd00::1", None),
            ("x", None),
            ("", None),
            ("01.02.03.04", Some(format!("f: non-standard IP address \"01.02.03.04\" {odd} \"1.2.3.4\""))),
            ("::ffff:1.2.3.4", Some(format!("f: non-standard IP address \"::ffff:1.2.3.4\" {odd} \"1.2.3.4\""))),
            (
                "FD00:0::1",
                Some("f: IPv6 address \"FD00:0::1\" should be in RFC 5952 canonical format (\"fd00::1\")".to_owned()),
            ),
        ] {
            assert_eq!(told(of_address, text), Vec::from_iter(expected), "{text}");
        }
    }

    #[test]
    fn networks() {
        let odd = "will be considered invalid in a future Kubernetes release: use";
        for (text, expected) in [
            ("10.0.0.0/8", vec![]),
            ("0.0.0.0/0", vec![]),
            ("fd00::/64", vec![]),
            ("x", vec![]),
            (
                "10.1.2.3/8",
                vec![
                    "f: CIDR value \"10.1.2.3/8\" is ambiguous in this context (should be \"10.0.0.0/8\" or \
                     \"10.1.2.3/32\"?)"
                        .to_owned(),
                ],
            ),
            ("010.0.0.0/8", vec![format!("f: non-standard CIDR value \"010.0.0.0/8\" {odd} \"10.0.0.0/8\"")]),
            ("10.0.0.0/08", vec![format!("f: non-standard CIDR value \"10.0.0.0/08\" {odd} \"10.0.0.0/8\"")]),
            (
                "::ffff:10.0.0.0/104",
                vec![format!("f: non-standard CIDR value \"::ffff:10.0.0.0/104\" {odd} \"10.0.0.0/8\"")],
            ),
            (
                "FD00::/64",
                vec![
                    "f: IPv6 CIDR value \"FD00::/64\" should be in RFC 5952 canonical format (\"fd00::/64\")"
                        .to_owned(),
                ],
            ),
        ] {
            assert_eq!(told(of_network, text), expected, "{text}");
        }
    }
}
