//! The formats of names, label keys and label values. The definition of a kind selects the rule for its names.
//!
//! Each check first runs a test without allocations. Messages are made only if the test fails.

/// The format of an object's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// A DNS-1123 label: no dots, at most 63 bytes.
    Label,
    /// A DNS-1123 subdomain: labels joined by dots, at most 253 bytes.
    Subdomain,
    /// A DNS-1035 label: it starts with a letter.
    Label1035,
    /// Any text that can be one segment of a URL path.
    PathSegment,
    /// An IP address in canonical form.
    IpAddress,
}

const LABEL_BYTES_MAX: usize = 63;
const SUBDOMAIN_BYTES_MAX: usize = 253;

const LABEL_PATTERN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN_PATTERN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const LABEL_1035_PATTERN: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const QUALIFIED_PATTERN: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_VALUE_PATTERN: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";

const LABEL_RULE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end \
     with an alphanumeric character";
const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start \
     and end with an alphanumeric character";
const LABEL_1035_RULE: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
     character, and end with an alphanumeric character";
const QUALIFIED_RULE: &str =
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const LABEL_VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start \
     and end with an alphanumeric character";

/// The violations of the rule by a name; empty if the name is valid.
pub fn name(rule: NameRule, name: &str) -> Vec<String> {
    match rule {
        NameRule::Label => label(name),
        NameRule::Subdomain => subdomain(name),
        NameRule::Label1035 => label_1035(name),
        NameRule::PathSegment => path_segment(name),
        NameRule::IpAddress => ip_address(name),
    }
}

/// The violations of a `generateName`. A suffix follows the `generateName`, so the `generateName` may end in a dash, or
/// be `..`.
pub fn generate_name(rule: NameRule, prefix: &str) -> Vec<String> {
    match rule {
        NameRule::PathSegment => path_segment_characters(prefix),
        NameRule::IpAddress => ip_address(prefix),
        NameRule::Label | NameRule::Subdomain | NameRule::Label1035 => match prefix.strip_suffix('-') {
            // As in Kubernetes, the dash and the character before it are replaced by a letter, so that character is not
            // checked.
            Some(kept) if !kept.is_empty() => {
                let end = kept.char_indices().next_back().map_or(0, |(at, _)| at);
                name(rule, &format!("{}a", &kept[..end]))
            }
            _ => name(rule, prefix),
        },
    }
}

pub fn label(value: &str) -> Vec<String> {
    let shaped = is_label_shaped(value.as_bytes());
    if shaped && value.len() <= LABEL_BYTES_MAX {
        return Vec::new();
    }
    let mut messages = Vec::new();
    if value.len() > LABEL_BYTES_MAX {
        messages.push(too_long(LABEL_BYTES_MAX));
    }
    if !shaped {
        messages.push(if is_subdomain_shaped(value) {
            "must not contain dots".to_owned()
        } else {
            pattern(LABEL_RULE, &["my-name", "123-abc"], LABEL_PATTERN)
        });
    }
    messages
}

pub fn subdomain(value: &str) -> Vec<String> {
    let shaped = is_subdomain_shaped(value);
    if shaped && value.len() <= SUBDOMAIN_BYTES_MAX {
        return Vec::new();
    }
    let mut messages = Vec::new();
    if value.len() > SUBDOMAIN_BYTES_MAX {
        messages.push(too_long(SUBDOMAIN_BYTES_MAX));
    }
    if !shaped {
        messages.push(pattern(SUBDOMAIN_RULE, &["example.com"], SUBDOMAIN_PATTERN));
    }
    messages
}

pub fn label_1035(value: &str) -> Vec<String> {
    let shaped = is_label_shaped(value.as_bytes()) && value.as_bytes()[0].is_ascii_lowercase();
    let mut messages = Vec::new();
    if value.len() > LABEL_BYTES_MAX {
        messages.push(too_long(LABEL_BYTES_MAX));
    }
    if !shaped {
        messages.push(pattern(LABEL_1035_RULE, &["my-name", "abc-123"], LABEL_1035_PATTERN));
    }
    messages
}

pub fn path_segment(value: &str) -> Vec<String> {
    if value == "." || value == ".." {
        return vec![format!("may not be '{value}'")];
    }
    path_segment_characters(value)
}

/// Checks a path with a domain as its prefix, such as `acme.io/foo`. Returns the invalid parts, each with the reason.
pub fn domain_prefixed_path(value: &str) -> Vec<(&str, String)> {
    const MARKS: &[u8] = b"/-._~%!$&'()*+,;=:";
    let (host, path) = value.split_once('/').unwrap_or((value, ""));
    if host.is_empty() || path.is_empty() {
        return vec![(value, "must be a domain-prefixed path (such as \"acme.io/foo\")".into())];
    }
    let mut faults: Vec<(&str, String)> = subdomain(host).into_iter().map(|message| (host, message)).collect();
    if !path.bytes().all(|byte| byte.is_ascii_alphanumeric() || MARKS.contains(&byte)) {
        faults.push((path, "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')".into()));
    }
    faults
}

/// The violations in a label key, annotation key or finalizer. It is a name, possibly after a DNS subdomain and a
/// slash.
pub fn qualified_name(value: &str) -> Vec<String> {
    if is_qualified_name(value) {
        return Vec::new();
    }
    let shape = || pattern(QUALIFIED_RULE, &["MyName", "my.name", "123-abc"], QUALIFIED_PATTERN);
    let mut parts = value.split('/');
    let (name, prefix) = match (parts.next().unwrap_or_default(), parts.next(), parts.next()) {
        (name, None, _) => (name, None),
        (prefix, Some(name), None) => (name, Some(prefix)),
        _ => {
            let suffix = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {} {suffix}", shape())];
        }
    };
    let mut messages = Vec::new();
    match prefix {
        Some("") => messages.push("prefix part must be non-empty".to_owned()),
        Some(prefix) => {
            if prefix.len() > SUBDOMAIN_BYTES_MAX {
                messages.push(format!("prefix part {}", too_long_for_label(SUBDOMAIN_BYTES_MAX)));
            }
            if !is_subdomain_shaped(prefix) {
                messages.push(format!("prefix part {}", pattern(SUBDOMAIN_RULE, &["example.com"], SUBDOMAIN_PATTERN)));
            }
        }
        None => {}
    }
    if name.is_empty() {
        messages.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_BYTES_MAX {
        messages.push(format!("name part {}", too_long_for_label(LABEL_BYTES_MAX)));
    }
    if !is_value_shaped(name.as_bytes()) {
        messages.push(format!("name part {}", shape()));
    }
    messages
}

pub fn label_value(value: &str) -> Vec<String> {
    if value.is_empty() {
        return Vec::new();
    }
    let mut messages = Vec::new();
    if value.len() > LABEL_BYTES_MAX {
        messages.push(too_long_for_label(LABEL_BYTES_MAX));
    }
    if !is_value_shaped(value.as_bytes()) {
        messages.push(pattern(LABEL_VALUE_RULE, &["MyValue", "my_value", "12345"], LABEL_VALUE_PATTERN));
    }
    messages
}

fn is_qualified_name(value: &str) -> bool {
    let name = match value.split_once('/') {
        None => value,
        Some((prefix, name)) => {
            if prefix.len() > SUBDOMAIN_BYTES_MAX || !is_subdomain_shaped(prefix) {
                return false;
            }
            name
        }
    };
    name.len() <= LABEL_BYTES_MAX && is_value_shaped(name.as_bytes())
}

fn is_label_shaped(bytes: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    match bytes {
        [] => false,
        [first, .., last] if !plain(first) || !plain(last) => false,
        _ => bytes.iter().all(|byte| plain(byte) || *byte == b'-') && plain(&bytes[0]),
    }
}

fn is_subdomain_shaped(value: &str) -> bool {
    value.split('.').all(|label| is_label_shaped(label.as_bytes()))
}

fn is_value_shaped(bytes: &[u8]) -> bool {
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return false };
    first.is_ascii_alphanumeric()
        && last.is_ascii_alphanumeric()
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

fn path_segment_characters(value: &str) -> Vec<String> {
    ['/', '%'].iter().filter(|c| value.contains(**c)).map(|c| format!("may not contain '{c}'")).collect()
}

fn ip_address(value: &str) -> Vec<String> {
    match value.parse::<std::net::IpAddr>() {
        Err(_) => vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()],
        Ok(std::net::IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => {
            vec!["must not be an IPv4-mapped IPv6 address".to_owned()]
        }
        Ok(address) if address.to_string() != value => vec![format!("must be in canonical form (\"{address}\")")],
        Ok(_) => Vec::new(),
    }
}

/// Kubernetes writes "characters" for names and "bytes" for labels. Both words mean bytes.
pub(crate) fn too_long(bytes_max: usize) -> String {
    format!("must be no more than {bytes_max} characters")
}

fn too_long_for_label(bytes_max: usize) -> String {
    format!("must be no more than {bytes_max} bytes")
}

/// The message for a rule with a pattern. Kubernetes writes two spaces before `or`; this text is identical, for clients
/// that compare messages.
pub(crate) fn pattern(rule: &str, examples: &[&str], pattern: &str) -> String {
    let examples = examples.iter().map(|example| format!("'{example}', ")).collect::<Vec<_>>().join(" or ");
    format!("{rule} (e.g. {examples}regex used for validation is '{pattern}')")
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use proptest::prelude::*;

    #[test]
    fn names_obey_their_rule() {
        let long = "a".repeat(64);
        let longer = "a".repeat(254);
        use NameRule::{IpAddress, Label, Label1035, PathSegment, Subdomain};
        let rows = [
            (Subdomain, "web-0.x", true),
            (Subdomain, "0", true),
            (Subdomain, "Web", false),
            (Subdomain, "web-", false),
            (Subdomain, "-", false),
            (Subdomain, "a..b", false),
            (Subdomain, "", false),
            (Subdomain, &long, true),
            (Subdomain, &longer, false),
            (Label, "kube-system", true),
            (Label, "a.b", false),
            (Label, &long, false),
            (Label1035, "a1", true),
            (Label1035, "1a", false),
            (PathSegment, "system:Node_1", true),
            (PathSegment, "a/b", false),
            (PathSegment, "..", false),
            (IpAddress, "2001:db8::1", true),
            (IpAddress, "2001:DB8::1", false),
            (IpAddress, "::ffff:1.2.3.4", false),
        ];
        for (rule, value, good) in rows {
            assert_eq!(name(rule, value).is_empty(), good, "{rule:?} {value:?}");
        }
    }

    #[test]
    fn a_generated_name_may_end_in_a_dash() {
        assert!(generate_name(NameRule::Subdomain, "web-").is_empty());
        assert!(!generate_name(NameRule::Subdomain, "-").is_empty());
        assert!(!generate_name(NameRule::Subdomain, "web.").is_empty());
        assert!(generate_name(NameRule::PathSegment, "..").is_empty());
        assert!(!generate_name(NameRule::PathSegment, "a/").is_empty());
    }

    #[test]
    fn messages() {
        expect![[r#"must be no more than 63 characters"#]].assert_eq(&label(&"a".repeat(64)).join("; "));
        expect![[r#"must not contain dots"#]].assert_eq(&label("a.b").join("; "));
        expect![[r#"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"#]]
            .assert_eq(&label("A").join("; "));
        expect![[r#"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#]]
            .assert_eq(&subdomain("A").join("; "));
        expect![[r#"a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"#]]
            .assert_eq(&label_1035("1").join("; "));
        expect![[r#"a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"#]]
            .assert_eq(&label_value("a b").join("; "));
        expect![[r#"a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"#]]
            .assert_eq(&qualified_name("a/b/c").join("; "));
        expect![[r#"prefix part must be non-empty; name part must be non-empty; name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#]]
            .assert_eq(&qualified_name("/").join("; "));
        expect![[r#"may not contain '/'; may not contain '%'"#]].assert_eq(&path_segment("%a/").join("; "));
    }

    proptest! {
        #[test]
        fn the_quick_test_agrees_with_the_messages(value in "[a-zA-Z.\\-_/é]{0,6}") {
            let slow = {
                let parts: Vec<&str> = value.split('/').collect();
                let last = parts[parts.len() - 1];
                let edges = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
                parts.len() <= 2
                    && (parts.len() == 1 || subdomain(parts[0]).is_empty())
                    && edges(last.chars().next())
                    && edges(last.chars().last())
                    && last.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
            };
            prop_assert_eq!(qualified_name(&value).is_empty(), slow);
        }

        #[test]
        fn nothing_panics(value in ".*") {
            use NameRule::{IpAddress, Label, Label1035, PathSegment, Subdomain};
            for rule in [Label, Subdomain, Label1035, PathSegment, IpAddress] {
                name(rule, &value);
                generate_name(rule, &value);
            }
            label_value(&value);
            qualified_name(&value);
        }
    }
}
