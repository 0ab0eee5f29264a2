//! IP addresses and networks. Only their canonical form is accepted. Zones and IPv4-mapped IPv6 addresses are refused.

use super::{Cost, CustomCost, Overload, READS_TEXT, no_overload, own, quoted, text};
use crate::cel::cost::{Arguments, CallEstimate, Range, STRING_FACTOR, scaled, traversal};
use crate::cel::functions::overload;
use crate::cel::value::{EvalError, Opaque, Value};
use std::any::Any;
use std::net::IpAddr;

pub static TABLE: &[Overload] = &[
    overload("ip(string) -> net.IP", |arguments| parse_ip(text(arguments)?).map(Value::opaque), READS_TEXT),
    overload("isIP(string) -> bool", |arguments| Ok(Value::Bool(parse_ip(text(arguments)?).is_ok())), READS_TEXT),
    overload(
        "ip.isCanonical(string) -> bool",
        |arguments| {
            let text = text(arguments)?;
            Ok(Value::Bool(parse_ip(text)?.0.to_string() == text))
        },
        Cost::Custom(CustomCost {
            actual: |arguments, _| scaled(arguments[0].size(), 2.0 * STRING_FACTOR),
            estimate: |arguments| CallEstimate { cost: arguments.size(0).scaled(2.0 * STRING_FACTOR), result: None },
        }),
    ),
    overload(
        "string(net.IP) -> string",
        |arguments| Ok(Value::text(own::<Ip>(arguments, 0)?.0.to_string())),
        Cost::One,
    ),
    overload(
        "<net.IP>.family() -> int",
        |arguments| Ok(Value::Int(if own::<Ip>(arguments, 0)?.0.is_ipv4() { 4 } else { 6 })),
        Cost::One,
    ),
    overload("<net.IP>.isUnspecified() -> bool", |arguments| is(arguments, |ip| ip.is_unspecified()), Cost::One),
    overload("<net.IP>.isLoopback() -> bool", |arguments| is(arguments, |ip| ip.is_loopback()), Cost::One),
    overload("<net.IP>.isLinkLocalMulticast() -> bool", |arguments| is(arguments, is_link_local_multicast), Cost::One),
    overload("<net.IP>.isLinkLocalUnicast() -> bool", |arguments| is(arguments, is_link_local_unicast), Cost::One),
    overload("<net.IP>.isGlobalUnicast() -> bool", |arguments| is(arguments, is_global_unicast), Cost::One),
    overload("cidr(string) -> net.CIDR", |arguments| parse_cidr(text(arguments)?).map(Value::opaque), READS_TEXT),
    overload("isCIDR(string) -> bool", |arguments| Ok(Value::Bool(parse_cidr(text(arguments)?).is_ok())), READS_TEXT),
    overload(
        "string(net.CIDR) -> string",
        |arguments| {
            let Cidr { address, bits } = own(arguments, 0)?;
            Ok(Value::text(format!("{address}/{bits}")))
        },
        Cost::One,
    ),
    overload(
        "<net.CIDR>.ip() -> net.IP",
        |arguments| Ok(Value::opaque(Ip(own::<Cidr>(arguments, 0)?.address))),
        Cost::One,
    ),
    overload(
        "<net.CIDR>.masked() -> net.CIDR",
        |arguments| Ok(Value::opaque(own::<Cidr>(arguments, 0)?.masked())),
        Cost::One,
    ),
    overload(
        "<net.CIDR>.prefixLength() -> int",
        |arguments| Ok(Value::Int(own::<Cidr>(arguments, 0)?.bits.into())),
        Cost::One,
    ),
    overload("<net.CIDR>.containsIP(net.IP) -> bool", contains_ip, CONTAINS_IP),
    overload("<net.CIDR>.containsIP(string) -> bool", contains_ip, CONTAINS_IP),
    overload("<net.CIDR>.containsCIDR(net.CIDR) -> bool", contains_cidr, CONTAINS_CIDR),
    overload("<net.CIDR>.containsCIDR(string) -> bool", contains_cidr, CONTAINS_CIDR),
];

/// The cost of testing whether a network contains an address. Both addresses are read up to the prefix length. An
/// address given as text must be parsed first, which also costs.
const CONTAINS_IP: Cost = Cost::Custom(CustomCost {
    actual: |arguments, _| traversal(2 * prefix_bytes(&arguments[0])).saturating_add(reading(&arguments[1])),
    estimate: |arguments| CallEstimate { cost: BOTH_ADDRESSES.add(reading_estimate(arguments)), result: None },
});

/// The cost of testing whether a network contains another network. It also covers masking one address.
const CONTAINS_CIDR: Cost = Cost::Custom(CustomCost {
    actual: |arguments, _| {
        let bytes = prefix_bytes(&arguments[0]);
        let masking = traversal(bytes) + 1;
        traversal(2 * bytes).saturating_add(masking).saturating_add(reading(&arguments[1]))
    },
    estimate: |arguments| {
        let masking = ADDRESS_BYTES.traversal().add(Range::ONE);
        CallEstimate { cost: BOTH_ADDRESSES.add(masking).add(reading_estimate(arguments)), result: None }
    },
});

const ADDRESS_BYTES: Range = Range { min: 4, max: 16 };
/// The range of costs for reading two addresses, each of which has four or sixteen bytes.
const BOTH_ADDRESSES: Range = Range { min: 1, max: 4 };

fn prefix_bytes(cidr: &Value) -> u64 {
    cidr.downcast::<Cidr>().map_or(1, |cidr| u64::from(cidr.bits).div_ceil(8))
}

fn reading(other: &Value) -> u64 {
    if other.as_str().is_some() { traversal(other.size()) } else { 0 }
}

fn reading_estimate(arguments: &Arguments) -> Range {
    let is_text = arguments.arguments.get(1).is_some_and(|other| *other.ty == crate::cel::Type::String);
    if is_text { arguments.size(1).traversal() } else { Range::ZERO }
}

fn is<'a>(arguments: &[Value<'a>], test: fn(&IpAddr) -> bool) -> Result<Value<'a>, EvalError> {
    Ok(Value::Bool(test(&own::<Ip>(arguments, 0)?.0)))
}

fn contains_ip<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let cidr = own::<Cidr>(arguments, 0)?;
    let ip = match arguments.get(1) {
        Some(Value::String(text)) => parse_ip(text)?,
        _ => Ip(own::<Ip>(arguments, 1)?.0),
    };
    Ok(Value::Bool(cidr.contains(&ip.0)))
}

fn contains_cidr<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let cidr = own::<Cidr>(arguments, 0)?;
    let other = match arguments.get(1) {
        Some(Value::String(text)) => parse_cidr(text)?,
        Some(_) => own::<Cidr>(arguments, 1)?.clone(),
        None => return no_overload(),
    };
    Ok(Value::Bool(cidr.bits <= other.bits && cidr.contains(&other.address)))
}

#[derive(Debug, PartialEq, Eq)]
struct Ip(IpAddr);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Cidr {
    address: IpAddr,
    bits: u8,
}

impl Cidr {
    fn masked(&self) -> Cidr {
        Cidr { address: mask(&self.address, self.bits), bits: self.bits }
    }

    fn contains(&self, address: &IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4() && mask(address, self.bits) == mask(&self.address, self.bits)
    }
}

fn mask(address: &IpAddr, bits: u8) -> IpAddr {
    let bits = u32::from(bits);
    match address {
        IpAddr::V4(address) => {
            IpAddr::V4((address.to_bits() & u32::MAX.checked_shl(32_u32.saturating_sub(bits)).unwrap_or(0)).into())
        }
        IpAddr::V6(address) => {
            IpAddr::V6((address.to_bits() & u128::MAX.checked_shl(128_u32.saturating_sub(bits)).unwrap_or(0)).into())
        }
    }
}

fn is_link_local_multicast(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.octets()[..3] == [224, 0, 0],
        IpAddr::V6(ip) => ip.segments()[0] & 0xff0f == 0xff02,
    }
}

fn is_link_local_unicast(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

fn is_global_unicast(ip: &IpAddr) -> bool {
    let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    !(ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || is_broadcast || is_link_local_unicast(ip))
}

fn parse_ip(text: &str) -> Result<Ip, EvalError> {
    match parse_address(text) {
        Ok((_, true)) => Err(EvalError::new(format!("IP address {} with zone value is not allowed", quoted(text)))),
        Ok((address, _)) if is_mapped(&address) => Err(mapped(text)),
        Ok((address, _)) => Ok(Ip(address)),
        Err(error) => Err(EvalError::new(format!(
            "IP Address {} parse error during conversion from string: {error}",
            quoted(text)
        ))),
    }
}

fn parse_cidr(text: &str) -> Result<Cidr, EvalError> {
    let fail = |error: String| {
        // Kubernetes' error contains this prefix twice.
        const HEAD: &str = "network address parse error during conversion from string: ";
        EvalError::new(format!("{HEAD}{HEAD}netip.ParsePrefix({}): {error}", quoted(text)))
    };
    let Some((address, bits)) = text.rsplit_once('/') else { return Err(fail("no '/'".into())) };
    let address = match parse_address(address) {
        Ok((_, true)) => return Err(fail("IPv6 zones cannot be present in a prefix".into())),
        Ok((address, _)) => address,
        Err(error) => return Err(fail(error)),
    };
    let is_number = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || (bits.len() > 1 && bits.starts_with('0')) {
        return Err(fail(format!("bad bits after slash: {}", quoted(bits))));
    }
    let bits_max = if address.is_ipv4() { 32 } else { 128 };
    let Ok(length) = bits.parse::<i64>() else {
        return Err(fail(format!("bad bits after slash: {}", quoted(bits))));
    };
    let Some(bits) = u8::try_from(length).ok().filter(|bits| *bits <= bits_max) else {
        return Err(fail("prefix length out of range".into()));
    };
    if is_mapped(&address) {
        let EvalError::Message(message) = mapped(text) else { return no_overload() };
        return Err(EvalError::new(format!("network address parse error during conversion from string: {message}")));
    }
    Ok(Cidr { address, bits })
}

fn is_mapped(address: &IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some())
}

fn mapped(text: &str) -> EvalError {
    EvalError::new(format!("IPv4-mapped IPv6 address {} is not allowed", quoted(text)))
}

/// Parses an address. Also returns whether the text has a zone, such as `%eth0`. The error has the text of Go's error.
pub(super) fn parse_address(text: &str) -> Result<(IpAddr, bool), String> {
    let read = match text.find(['.', ':', '%']).map(|at| text.as_bytes()[at]) {
        Some(b'.') => read_v4(text).map(|address| (IpAddr::V4(address.into()), false)),
        Some(b':') => read_v6(text).map(|(address, zoned)| (IpAddr::V6(address.into()), zoned)),
        Some(_) => Err("missing IPv6 address".into()),
        None => Err("unable to parse IP".into()),
    };
    read.map_err(|reason| format!("ParseAddr({}): {reason}", quoted(text)))
}

fn at(reason: &str, rest: &str) -> String {
    format!("{reason} (at {})", quoted(rest))
}

fn read_v4(text: &str) -> Result<[u8; 4], String> {
    let (mut octets, mut dots, mut value, mut digits) = ([0; 4], 0, 0, 0);
    for (index, c) in text.char_indices() {
        let rest = &text[index..];
        if let Some(digit) = c.to_digit(10) {
            if digits == 1 && value == 0 {
                return Err("IPv4 field has octet with leading zero".into());
            }
            value = value * 10 + digit;
            digits += 1;
            octets[dots] = u8::try_from(value).map_err(|_| "IPv4 field has value >255")?;
        } else if c != '.' {
            return Err(at("unexpected character", rest));
        } else if digits == 0 || rest.len() == 1 {
            return Err(at("IPv4 field must have at least one digit", rest));
        } else if dots == 3 {
            return Err("IPv4 address too long".into());
        } else {
            (dots, value, digits) = (dots + 1, 0, 0);
        }
    }
    if dots < 3 { Err("IPv4 address too short".into()) } else { Ok(octets) }
}

fn read_v6(text: &str) -> Result<([u8; 16], bool), String> {
    let (mut rest, zone) = text.split_once('%').map_or((text, None), |(plain, zone)| (plain, Some(zone)));
    if zone == Some("") {
        return Err("zone must be a non-empty string".into());
    }
    let mut bytes = Vec::with_capacity(16);
    // The number of bytes before `::`; `None` without `::`.
    let mut gap = None;
    if let Some(after) = rest.strip_prefix("::") {
        (gap, rest) = (Some(0), after);
    }
    while bytes.len() < 16 && !(rest.is_empty() && gap == Some(bytes.len())) {
        let digits = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        if digits > 4 {
            return Err(at("each group must have 4 or less digits", rest));
        }
        let group = u16::from_str_radix(&rest[..digits], 16)
            .map_err(|_| at("each colon-separated field must have at least one digit", rest))?;
        let after = &rest[digits..];
        if after.starts_with('.') {
            if gap.is_none() && bytes.len() != 12 {
                return Err(at("embedded IPv4 address must replace the final 2 fields of the address", rest));
            }
            if bytes.len() > 12 {
                return Err(at("too many hex fields to fit an embedded IPv4 at the end of the address", rest));
            }
            bytes.extend(read_v4(rest)?);
            rest = "";
            break;
        }
        bytes.extend(group.to_be_bytes());
        rest = after;
        if rest.is_empty() {
            break;
        }
        match rest.strip_prefix(':') {
            None => return Err(at("unexpected character, want colon", rest)),
            Some("") => return Err(at("colon must be followed by more characters", rest)),
            Some(after) => rest = after,
        }
        if let Some(after) = rest.strip_prefix(':') {
            if gap.is_some() {
                return Err(at("multiple :: in address", rest));
            }
            (gap, rest) = (Some(bytes.len()), after);
        }
    }
    if !rest.is_empty() {
        return Err(at("trailing garbage after address", rest));
    }
    match gap {
        None if bytes.len() < 16 => return Err("address string too short".into()),
        Some(_) if bytes.len() == 16 => return Err("the :: must expand to at least one field of zeros".into()),
        Some(gap) => {
            let zeros = 16 - bytes.len();
            bytes.splice(gap..gap, std::iter::repeat_n(0, zeros));
        }
        None => {}
    }
    let bytes = bytes.try_into().map_err(|_| "unable to parse IP")?;
    Ok((bytes, zone.is_some()))
}

impl Opaque for Ip {
    fn type_name(&self) -> &'static str {
        "net.IP"
    }

    fn equals(&self, other: &dyn Opaque) -> bool {
        other.as_any().downcast_ref() == Some(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Opaque for Cidr {
    fn type_name(&self) -> &'static str {
        "net.CIDR"
    }

    fn equals(&self, other: &dyn Opaque) -> bool {
        other.as_any().downcast_ref() == Some(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (text, expected) in [
            ("127.0.0.1", ""),
            ("2001:DB8::1", ""),
            (
                "127.0.0.256",
                "IP Address \"127.0.0.256\" parse error during conversion from string: ParseAddr(\"127.0.0.256\"): IPv4 field has value >255",
            ),
            ("x", "IP Address \"x\" parse error during conversion from string: ParseAddr(\"x\"): unable to parse IP"),
            ("fe80::1%eth0", "IP address \"fe80::1%eth0\" with zone value is not allowed"),
            ("::ffff:1.2.3.4", "IPv4-mapped IPv6 address \"::ffff:1.2.3.4\" is not allowed"),
        ] {
            assert_eq!(parse_ip(text).err().map(|error| error.to_string()).unwrap_or_default(), expected);
        }
    }

    #[test]
    fn what_is_no_address() {
        for (text, expected) in [
            ("1.2.3", "IPv4 address too short"),
            ("1.2.3.4.5", "IPv4 address too long"),
            ("1.2.3.4.x", "IPv4 address too long"),
            ("1.2.3.04", "IPv4 field has octet with leading zero"),
            ("1.2.3.x", "unexpected character (at \"x\")"),
            ("1.2.3.256x", "IPv4 field has value >255"),
            ("1.2.3.4%eth0", "unexpected character (at \"%eth0\")"),
            (".1.2.3", "IPv4 field must have at least one digit (at \".1.2.3\")"),
            ("1..2", "IPv4 field must have at least one digit (at \".2\")"),
            ("1.2.3.", "IPv4 field must have at least one digit (at \".\")"),
            ("%eth0", "missing IPv6 address"),
            ("fe80::1%", "zone must be a non-empty string"),
            ("::g", "each colon-separated field must have at least one digit (at \"g\")"),
            (":1:2", "each colon-separated field must have at least one digit (at \":1:2\")"),
            ("1:00002::", "each group must have 4 or less digits (at \"00002::\")"),
            ("1:2-3", "unexpected character, want colon (at \"-3\")"),
            ("1:2:", "colon must be followed by more characters (at \":\")"),
            ("1::2::3", "multiple :: in address (at \":3\")"),
            ("1:2:3:4:5:6:7:8:9", "trailing garbage after address (at \"9\")"),
            ("1:2:3", "address string too short"),
            ("1:2:3:4::5:6:7:8", "the :: must expand to at least one field of zeros"),
            ("1:2:3:1.2.3.4", "embedded IPv4 address must replace the final 2 fields of the address (at \"1.2.3.4\")"),
            (
                "::1:2:3:4:5:6:7:1.2.3.4",
                "too many hex fields to fit an embedded IPv4 at the end of the address (at \"1.2.3.4\")",
            ),
            ("::1.2.3", "IPv4 address too short"),
        ] {
            let reason = parse_address(text).expect_err(text);
            assert_eq!(reason, format!("ParseAddr(\"{text}\"): {expected}"));
        }
        for (text, expected) in [
            ("1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8"),
            ("1:2:3:4:5:6:7::", "1:2:3:4:5:6:7:0"),
            ("::2:3:4:5:6:7:8", "0:2:3:4:5:6:7:8"),
            ("::", "::"),
            ("64:FF9B::1.2.3.4", "64:ff9b::102:304"),
            ("1:2:3:4:5:6:1.2.3.4", "1:2:3:4:5:6:102:304"),
        ] {
            assert_eq!(parse_address(text).map(|(address, _)| address.to_string()), Ok(expected.to_owned()));
        }
    }

    #[test]
    fn networks() {
        let of = |text| parse_cidr(text).expect("a network");
        for (network, other, contains) in [
            ("192.168.0.0/16", "192.168.10.0/24", true),
            ("192.168.1.0/24", "192.168.2.0/24", false),
            ("192.168.1.0/24", "192.168.0.0/16", false),
            ("0.0.0.0/0", "1.2.3.4/32", true),
            ("::/0", "1.2.3.4/32", false),
            ("2001:db8::/32", "2001:db8:1::/48", true),
        ] {
            let arguments = [Value::opaque(of(network)), Value::text(other)];
            let found = contains_cidr(&arguments).expect("two networks");
            assert!(matches!(found, Value::Bool(found) if found == contains), "{network} {other}");
        }
        assert_eq!(of("192.168.0.1/24").masked(), of("192.168.0.0/24"));
        for (text, expected) in [
            ("1.2.3.4", "no '/'"),
            ("1.2.3.4/33", "prefix length out of range"),
            ("1.2.3.4/08", "bad bits after slash: \"08\""),
            ("1.2.3.4/99999999999999999999", "bad bits after slash: \"99999999999999999999\""),
        ] {
            let error = parse_cidr(text).expect_err("no network").to_string();
            assert!(error.ends_with(&format!("netip.ParsePrefix(\"{text}\"): {expected}")), "{error}");
        }
    }

    #[test]
    fn kinds_of_addresses() {
        type Test = fn(&IpAddr) -> bool;
        let tests: [(&str, Test); 3] = [
            ("link-local multicast", is_link_local_multicast),
            ("link-local unicast", is_link_local_unicast),
            ("global unicast", is_global_unicast),
        ];
        for (text, expected) in [
            ("224.0.0.1", "link-local multicast"),
            ("224.0.1.1", ""),
            ("ff02::1", "link-local multicast"),
            ("fd00::1", "global unicast"),
            ("169.254.169.254", "link-local unicast"),
            ("fe80::1", "link-local unicast"),
            ("192.168.0.1", "global unicast"),
            ("255.255.255.255", ""),
            ("127.0.0.1", ""),
            ("::", ""),
        ] {
            let ip = text.parse().expect("an address");
            let found: Vec<&str> = tests.iter().filter(|(_, test)| test(&ip)).map(|(name, _)| *name).collect();
            assert_eq!(found.join(","), expected, "{text}");
        }
    }
}
