//! Validation rules for values that many kinds have: names, paths, URLs, versions, counts and conditions. These rules
//! are for the groups other than core; [`super::rules`] has the rules that the core group uses too.

use crate::kinds::rules::{At, Seen, named, need, need_name, one_of};
use crate::object::address::network;
use crate::object::names;
use crate::refusal::{Cause, CauseReason, Causes};
use holdfast_value::Value;
use std::collections::BTreeSet;
use std::net::IpAddr;

pub(super) const TRUE_FALSE_UNKNOWN: &[&str] = &["False", "True", "Unknown"];
const LABEL_BYTES_MAX: usize = 63;
const SUBDOMAIN_BYTES_MAX: usize = 253;
const CONDITION_REASON_BYTES_MAX: usize = 1024;
const CONDITION_MESSAGE_BYTES_MAX: usize = 32 * 1024;
const ENTRIES_MAX: usize = 512;
const ENTRIES_BYTES_MAX: usize = 256 * 1024;

/// A fault whose message does not show the value.
pub(super) fn without_value(at: At, detail: &str) -> Cause {
    Cause::told(CauseReason::Invalid, at.path(), format!("Invalid value: {detail}"))
}

/// Reports a value that is missing, or that an enum does not support.
pub(super) fn need_one_of(at: At, supported: &[&str], causes: &mut Causes) {
    need(at, causes);
    one_of(at, supported, causes);
}

/// Like [`need_one_of`], but an empty value is reported as unsupported and not as missing.
pub(super) fn exactly_one_of(at: At, supported: &[&str], causes: &mut Causes) {
    if !supported.contains(&at.text()) {
        causes.push(at.not_supported(supported));
    }
}

pub(super) fn qualified(at: At, causes: &mut Causes) {
    named(at, names::qualified_name, causes);
}

pub(super) fn count(at: At) -> usize {
    match at.value {
        Value::Array(list) => list.len(),
        Value::Object(map) => map.len(),
        _ => 0,
    }
}

/// Limits a list's length. Returns false if the list is too long, so that the caller does not check its items.
pub(super) fn at_most(at: At, count_max: usize, causes: &mut Causes) -> bool {
    let fits = count(at) <= count_max;
    if !fits {
        causes.push(Cause::too_many(at.path(), count(at), count_max));
    }
    fits
}

pub(super) fn not_longer(at: At, bytes_max: usize, causes: &mut Causes) {
    if at.text().len() > bytes_max {
        causes.push(Cause::too_long(at.path(), bytes_max));
    }
}

/// Reports a number below the lower bound, if set.
pub(super) fn at_least(at: At, least: i64, detail: &str, causes: &mut Causes) {
    if at.number().is_some_and(|number| number < least) {
        causes.push(at.invalid(detail));
    }
}

/// Reports a number above the upper bound, if set.
pub(super) fn no_more_than(at: At, most: i64, detail: &str, causes: &mut Causes) {
    if at.number().is_some_and(|number| number > most) {
        causes.push(at.invalid(detail));
    }
}

/// Reports a number that is not positive. An absent number counts as zero.
pub(super) fn positive(at: At, detail: &str, causes: &mut Causes) {
    let number = at.number().unwrap_or(0);
    if number <= 0 {
        causes.push(Cause::invalid(at.path(), &Value::from(number), detail));
    }
}

/// Reports repeated texts in a list.
pub(super) fn distinct_items(list: At, causes: &mut Causes) {
    let mut seen = Seen::default();
    for item in list.items() {
        if seen.again(item.value) {
            causes.push(item.duplicate());
        }
    }
}

/// Reports counters of a status that exceed the counter `whole`, which includes them.
pub(super) fn parts_of(status: At, whole: &str, parts: &[&str], detail: &str, causes: &mut Causes) {
    let total = status.get(whole).number().unwrap_or(0);
    for part in parts {
        let part = status.get(part);
        if part.number_or_zero() > total {
            causes.push(part.invalid_as(part.number_or_zero(), detail));
        }
    }
}

/// Reports a counter that was decreased or removed.
pub(super) fn not_decremented(at: At, old: &Value, causes: &mut Causes) {
    let number = at.number().unwrap_or(0);
    if old.as_i64().is_some_and(|old| number < old) {
        causes.push(Cause::invalid(at.path(), &Value::from(number), "cannot be decremented"));
    }
}

/// Validates the required kind or name of a referenced object.
pub(super) fn need_segment(at: At, causes: &mut Causes) {
    need_name(at, names::path_segment, causes);
}

/// Validates group, kind and name of a referenced object; the group is optional.
pub(super) fn local_reference(at: At, causes: &mut Causes) {
    if at.get("apiGroup").is_set() {
        named(at.get("apiGroup"), names::subdomain, causes);
    }
    for (field, missing) in [("kind", "kind is required"), ("name", "name is required")] {
        let field = at.get(field);
        if field.is_empty() { causes.push(field.required(missing)) } else { named(field, names::path_segment, causes) }
    }
}

/// Validates the name of a storage or device driver.
pub(super) fn driver_name(at: At, causes: &mut Causes) {
    if at.is_empty() {
        causes.push(at.required(""));
        return;
    }
    not_longer(at, LABEL_BYTES_MAX, causes);
    causes.extend(names::subdomain(&at.text().to_lowercase()).iter().map(|message| at.invalid(message)));
}

/// Validates a domain-prefixed path: `acme.io/foo`.
pub(super) fn domain_prefixed_path(at: At, causes: &mut Causes) {
    if at.is_empty() {
        causes.push(at.required(""));
        return;
    }
    let faults = names::domain_prefixed_path(at.text());
    causes.extend(faults.into_iter().map(|(part, why)| Cause::invalid(at.path(), &Value::from(part), &why)));
}

/// Validates a name of at least three labels: `policy.example.com`.
pub(super) fn fully_qualified_name(at: At, causes: &mut Causes) {
    if at.is_empty() {
        causes.push(at.required(""));
        return;
    }
    let messages = names::subdomain(at.text());
    if !messages.is_empty() {
        causes.push(at.invalid(&messages.join(",")));
    } else if at.text().split('.').count() < 3 {
        causes.push(at.invalid("should be a domain with at least three segments separated by dots"));
    }
}

/// Validates a domain name of at least two labels, possibly with a trailing dot.
pub(super) fn domain_name(at: At, causes: &mut Causes) {
    let name = at.text().strip_suffix('.').unwrap_or(at.text());
    if at.is_empty() {
        causes.push(at.required(""));
        return;
    }
    let messages = names::subdomain(name);
    if !messages.is_empty() {
        causes.push(at.invalid(&messages.join(",")));
    } else if !name.contains('.') {
        causes.push(at.invalid("should be a domain with at least two segments separated by dots"));
    } else {
        let labels = name.split('.').map(|label| (label, names::label(label)));
        for (label, messages) in labels.filter(|(_, messages)| !messages.is_empty()) {
            causes.push(Cause::invalid(at.path(), &Value::from(label), &messages.join(",")));
        }
    }
}

/// Validates a host, or a wildcard for a domain: `*.example.com`.
pub(super) fn host(at: At, causes: &mut Causes) {
    if at.text().contains('*') { named(at, wildcard, causes) } else { named(at, names::subdomain, causes) }
}

fn wildcard(name: &str) -> Vec<String> {
    const RULE: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which \
                        must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric \
                        character";
    const PATTERN: &str = r"\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
    let mut messages = Vec::new();
    if name.len() > SUBDOMAIN_BYTES_MAX {
        messages.push(names::too_long(SUBDOMAIN_BYTES_MAX));
    }
    let rest: String = name.strip_prefix("*.").unwrap_or("").chars().take(SUBDOMAIN_BYTES_MAX).collect();
    if !names::subdomain(&rest).is_empty() {
        messages.push(names::pattern(RULE, &["*.example.com"], PATTERN));
    }
    messages
}

/// Validates a signer's name: a domain, a slash and a path.
pub(super) fn signer_name(at: At, causes: &mut Causes) {
    let name = at.text();
    if name.is_empty() {
        causes.push(at.required(""));
        return;
    }
    let parts: Vec<&str> = name.split('/').collect();
    let [domain, path] = parts[..] else {
        causes.push(at.invalid("must be a fully qualified domain and path of the form 'example.com/signer-name'"));
        return;
    };
    let wrong = |part: &str, message: &str| Cause::invalid(at.path(), &Value::from(part), message);
    // Only the first invalid label is reported.
    let labels = |part: &str, check: fn(&str) -> Vec<String>, causes: &mut Causes| {
        let found = part.split('.').map(|label| (label, check(label))).find(|(_, messages)| !messages.is_empty());
        for (label, message) in found.iter().flat_map(|(label, messages)| messages.iter().map(move |m| (label, m))) {
            causes.push(wrong(part, &format!("validating label {}: {message}", Value::from(*label))));
        }
    };
    if domain.len() > SUBDOMAIN_BYTES_MAX {
        causes.push(Cause::too_long(at.path(), SUBDOMAIN_BYTES_MAX));
    }
    labels(domain, names::label, causes);
    if !domain.contains('.') {
        causes.push(wrong(domain, "should be a domain with at least two segments separated by dots"));
    }
    labels(path, names::subdomain, causes);
    not_longer(at, 2 * SUBDOMAIN_BYTES_MAX + LABEL_BYTES_MAX + 2, causes);
}

/// Validates standard status conditions.
pub(super) fn conditions(list: At, causes: &mut Causes) {
    super::rules::distinct(list, "type", causes);
    for condition in list.items() {
        let number = condition.get("observedGeneration");
        at_least(number, 0, "must be greater than or equal to zero", causes);
        qualified(condition.get("type"), causes);
        exactly_one_of(condition.get("status"), TRUE_FALSE_UNKNOWN, causes);
        for field in ["lastTransitionTime", "reason"] {
            if condition.get(field).is_empty() {
                causes.push(condition.get(field).required(""));
            }
        }
        let reason = condition.get("reason");
        if !reason.is_empty() {
            named(reason, condition_reason, causes);
        }
        not_longer(reason, CONDITION_REASON_BYTES_MAX, causes);
        not_longer(condition.get("message"), CONDITION_MESSAGE_BYTES_MAX, causes);
    }
}

fn condition_reason(text: &str) -> Vec<String> {
    let bytes = text.as_bytes();
    let starts = bytes.first().is_some_and(u8::is_ascii_alphabetic);
    let ends = bytes.last().is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    if starts && ends && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"_,:".contains(byte)) {
        return Vec::new();
    }
    let rule = "a condition reason must start with alphabetic character, optionally followed by a string of \
                alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'";
    let examples = ["my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB"];
    vec![names::pattern(rule, &examples, "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")]
}

/// Whether the condition of this type is true.
pub(super) fn is_condition_true(status: At, ty: &str) -> bool {
    let conditions = status.get("conditions");
    let mut found = conditions.items().filter(|condition| condition.get("type").text() == ty);
    found.any(|condition| condition.get("status").text() == "True")
}

/// Validates a driver's parameters, a map of strings.
pub(super) fn parameters(at: At, causes: &mut Causes) {
    if count(at) > ENTRIES_MAX {
        causes.push(Cause::too_long(at.path(), ENTRIES_MAX));
        return;
    }
    if at.value.get("").is_some() {
        causes.push(Cause::invalid(at.path(), &Value::from(""), "field can not be empty."));
    }
    entries_fit(at, causes);
}

/// Limits the total length of a map's keys and values.
pub(super) fn entries_fit(at: At, causes: &mut Causes) {
    if at.entries().map(|(key, value)| key.len() + value.text().len()).sum::<usize>() > ENTRIES_BYTES_MAX {
        causes.push(Cause::too_long(at.path(), ENTRIES_BYTES_MAX));
    }
}

/// Validates a network, which must be in canonical form.
pub(super) fn canonical_cidr(at: At, causes: &mut Causes) {
    let is_plain = at.text().split_once('/').is_some_and(|(begin, _)| begin.parse::<IpAddr>().is_ok());
    let Some((address, bits)) = network(at.text()).filter(|_| is_plain) else {
        causes.push(at.invalid("must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"));
        return;
    };
    let first = first_of(address, bits);
    if first != address {
        causes.push(at.invalid("must not have bits set beyond the prefix length"));
        return;
    }
    let canonical = format!("{first}/{bits}");
    if canonical != at.text() {
        causes.push(at.invalid(&format!("must be in canonical form (\"{canonical}\")")));
    }
}

/// The first address of the network to which an address belongs.
pub(super) fn first_of(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0);
            IpAddr::V4((u32::from(address) & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0);
            IpAddr::V6((u128::from(address) & mask).into())
        }
    }
}

/// Parses a semantic version. Returns the major, minor and patch numbers for comparison.
pub(crate) fn semantic_version(text: &str) -> Option<[u64; 3]> {
    let (rest, build) = text.split_once('+').map_or((text, None), |(rest, build)| (rest, Some(build)));
    let (numbers, pre) = rest.split_once('-').map_or((rest, None), |(numbers, pre)| (numbers, Some(pre)));
    let word = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let plain = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()) && (part == "0" || !part.starts_with('0'))
    };
    let identifier = |part: &str| word(part) && (plain(part) || !part.bytes().all(|b| b.is_ascii_digit()));
    if !build.is_none_or(|build| build.split('.').all(word)) || !pre.is_none_or(|pre| pre.split('.').all(identifier)) {
        return None;
    }
    let parts: Vec<&str> = numbers.split('.').collect();
    let [major, minor, patch] = parts[..] else { return None };
    if ![major, minor, patch].into_iter().all(plain) {
        return None;
    }
    Some([major.parse().ok()?, minor.parse().ok()?, patch.parse().ok()?])
}

/// The violations of a name that must be an identifier as in programming languages.
pub(super) fn identifier(text: &str) -> Vec<String> {
    let starts = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    if starts && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return Vec::new();
    }
    let rule = "a valid C identifier must start with alphabetic character or '_', followed by a string of \
                alphanumeric characters or '_'";
    vec![names::pattern(rule, &["my_name", "MY_NAME", "MyName"], "[A-Za-z_][A-Za-z0-9_]*")]
}

/// Validates a webhook's URL.
pub(super) fn webhook_url(at: At, causes: &mut Causes) {
    const FORM: &str = "; desired format: https://host[/path]";
    let text = at.text();
    let wrong = |part: &str, detail: String| Cause::invalid(at.path(), &Value::from(part), &detail);
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    let mut unreadable = |why: &str| {
        let why = format!("parse {}: {why}", Value::from(text));
        causes.push(at.required(&format!("url must be a valid URL: {why}{FORM}")));
    };
    if text.bytes().any(|byte| byte.is_ascii_control()) {
        return unreadable("net/url: invalid control character in URL");
    }
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = if scheme.is_empty() { "" } else { rest.split('/').next().unwrap_or("") };
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if host.contains(' ') {
        return unreadable("invalid character \" \" in host name");
    }
    if !scheme.eq_ignore_ascii_case("https") {
        causes.push(wrong(&scheme.to_lowercase(), format!("'https' is the only allowed URL scheme{FORM}")));
    }
    if host.is_empty() {
        causes.push(wrong("", format!("host must be specified{FORM}")));
    }
    if !user.is_empty() {
        causes.push(wrong(user, "user information is not permitted in the URL".into()));
    }
    if !fragment.is_empty() {
        causes.push(wrong(fragment, "fragments are not permitted in the URL".into()));
    }
    if !query.is_empty() {
        causes.push(wrong(query, "query parameters are not permitted in the URL".into()));
    }
}

pub(super) fn webhook_service(at: At, causes: &mut Causes) {
    for (field, missing) in [("name", "service name is required"), ("namespace", "service namespace is required")] {
        if at.get(field).is_empty() {
            causes.push(at.get(field).required(missing));
        }
    }
    service_port(at.get("port"), causes);
    let path = at.get("path");
    let text = path.text();
    if text.is_empty() || text == "/" {
        return;
    }
    if text == "//" {
        causes.push(path.invalid("segment[0] may not be empty"));
        return;
    }
    if !text.starts_with('/') {
        causes.push(path.invalid("must start with a '/'"));
    }
    // The first character is the required slash, so the steps begin after it.
    let inner: String = text.chars().skip(1).collect();
    for (index, step) in inner.strip_suffix('/').unwrap_or(&inner).split('/').enumerate() {
        if step.is_empty() {
            causes.push(path.invalid(&format!("segment[{index}] may not be empty")));
        } else {
            let messages = names::subdomain(step);
            causes.extend(
                messages.iter().map(|message| Cause::from(path.invalid(&format!("segment[{index}]: {message}")))),
            );
        }
    }
}

pub(super) fn service_port(at: At, causes: &mut Causes) {
    if at.number().is_some_and(|number| !(1..=65535).contains(&number)) {
        causes.push(at.invalid("port is not valid: must be between 1 and 65535, inclusive"));
    }
}

/// The texts in a list.
pub(super) fn texts<'a>(list: At<'a>) -> BTreeSet<&'a str> {
    list.value.as_array().map_or(&[][..], Vec::as_slice).iter().filter_map(Value::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    fn faults(value: &Value, rule: fn(At, &mut Causes)) -> Vec<String> {
        let mut causes = Causes::default();
        let root = json!({ "f": value });
        rule(At::root(&root).get("f"), &mut causes);
        causes.iter().map(Cause::to_string).collect()
    }

    #[test]
    fn what_is_wrong_with_each_shape() {
        type Rule = fn(At, &mut Causes);
        let rows: &[(Rule, &str, &str)] = &[
            (driver_name, "csi.Example.com", ""),
            (driver_name, "", "f: Required value"),
            (driver_name, "a_b", "f: Invalid value: \"a_b\": a lowercase RFC 1123 subdomain"),
            (domain_prefixed_path, "acme.io/foo/Bar", ""),
            (domain_prefixed_path, "acme.io", "f: Invalid value: \"acme.io\": must be a domain-prefixed path (such"),
            (domain_prefixed_path, "a b/c", "f: Invalid value: \"a b\": a lowercase RFC 1123 subdomain"),
            (domain_prefixed_path, "a/b c", "f: Invalid value: \"b c\": Invalid path (regex used for validation is"),
            (fully_qualified_name, "a.example.com", ""),
            (fully_qualified_name, "example.com", "f: Invalid value: \"example.com\": should be a domain with at lea"),
            (domain_name, "example.com.", ""),
            (domain_name, "example", "f: Invalid value: \"example\": should be a domain with at least two segments"),
            (host, "*.example.com", ""),
            (host, "a.*.com", "f: Invalid value: \"a.*.com\": a wildcard DNS-1123 subdomain must start with '*.'"),
            (signer_name, "example.com/a.b", ""),
            (signer_name, "example.com", "f: Invalid value: \"example.com\": must be a fully qualified domain and"),
            (signer_name, "example/a", "f: Invalid value: \"example\": should be a domain with at least two segments"),
            (signer_name, "e_x.com/a", "f: Invalid value: \"e_x.com\": validating label \"e_x\": a lowercase RFC"),
            (canonical_cidr, "10.0.0.0/8", ""),
            (canonical_cidr, "10.0.0.1/8", "f: Invalid value: \"10.0.0.1/8\": must not have bits set beyond the pre"),
            (canonical_cidr, "FD00::/64", "f: Invalid value: \"FD00::/64\": must be in canonical form (\"fd00::/64\")"),
            (canonical_cidr, "ten", "f: Invalid value: \"ten\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or "),
            (webhook_url, "https://example.com:443/path", ""),
            (webhook_url, "http://example.com", "f: Invalid value: \"http\": 'https' is the only allowed URL scheme"),
            (webhook_url, "https://", "f: Invalid value: \"\": host must be specified; desired format: https://host"),
            (webhook_url, "https://me@h", "f: Invalid value: \"me\": user information is not permitted in the URL"),
            (webhook_url, "A b/c", "f: Invalid value: \"\": 'https' is the only allowed URL scheme"),
            (
                webhook_url,
                "https://a b/c",
                "f: Required value: url must be a valid URL: parse \"https://a b/c\": invalid",
            ),
            (webhook_url, "https://h#f", "f: Invalid value: \"f\": fragments are not permitted in the URL"),
            (webhook_url, "https://h?a=b", "f: Invalid value: \"a=b\": query parameters are not permitted in the URL"),
        ];
        for (rule, text, expected) in rows {
            let found = faults(&json!(text), *rule);
            match expected.is_empty() {
                true => assert_eq!(found, [""; 0], "{text}"),
                false => assert!(found.iter().any(|fault| fault.starts_with(expected)), "{text}: {found:?}"),
            }
        }
    }

    #[test]
    fn services_and_conditions() {
        let service = json!({"name": "", "namespace": "n", "port": 0, "path": "/a//B/"});
        assert_eq!(
            faults(&service, webhook_service).iter().map(|fault| &fault[..40]).collect::<Vec<_>>(),
            [
                "f.name: Required value: service name is ",
                "f.port: Invalid value: 0: port is not va",
                "f.path: Invalid value: \"/a//B/\": segment",
                "f.path: Invalid value: \"/a//B/\": segment",
            ]
        );
        let good = json!({"type": "Ready", "status": "True", "reason": "R", "lastTransitionTime": "t"});
        assert_eq!(faults(&json!([good]), conditions), [""; 0]);
        let bad = json!({"type": "Ready", "status": "Yes", "reason": "-"});
        assert_eq!(faults(&json!([good, bad]), conditions).len(), 4);
    }

    #[test]
    fn semantic_versions() {
        for (text, expected) in [
            ("1.2.3", Some([1, 2, 3])),
            ("0.0.0", Some([0, 0, 0])),
            ("1.2.3-alpha.1+build.7", Some([1, 2, 3])),
            ("1.2.3-01", None),
            ("1.2", None),
            ("01.2.3", None),
            ("v1.2.3", None),
            ("1.2.3+", None),
        ] {
            assert_eq!(semantic_version(text), expected, "{text}");
        }
    }
}
