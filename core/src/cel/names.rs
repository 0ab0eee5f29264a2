//! Escaping of field names that are not identifiers of CEL.

/// The reserved words of CEL: variables cannot have these names, and a field with such a name is escaped.
pub const RESERVED: &[&str] = &[
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];

/// The name by which expressions select the field `name`; `None` if expressions cannot select it.
pub fn escape(name: &str) -> Option<String> {
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let first = name.bytes().next()?;
    if !(first.is_ascii_alphabetic() || first == b'_' || first == b'.' || first == b'-' || first == b'/') {
        return None;
    }
    let mut escaped = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(character) = rest.chars().next() {
        match character {
            '_' if rest.starts_with("__") => {
                escaped.push_str("__underscores__");
                rest = &rest[2..];
                continue;
            }
            '.' => escaped.push_str("__dot__"),
            '-' => escaped.push_str("__dash__"),
            '/' => escaped.push_str("__slash__"),
            character if character.is_ascii_alphanumeric() || character == '_' => escaped.push(character),
            _ => return None,
        }
        rest = &rest[character.len_utf8()..];
    }
    Some(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_as_kubernetes_escapes_them() {
        for (name, expected) in [
            ("replicas", Some("replicas")),
            ("a_b", Some("a_b")),
            ("_", Some("_")),
            ("a__b", Some("a__underscores__b")),
            ("___", Some("__underscores___")),
            ("a.b-c/d", Some("a__dot__b__dash__c__slash__d")),
            ("-x", Some("__dash__x")),
            ("if", Some("__if__")),
            ("namespace", Some("__namespace__")),
            ("iff", Some("iff")),
            ("1a", None),
            ("a b", None),
            ("a$", None),
            ("", None),
            ("é", None),
        ] {
            assert_eq!(escape(name).as_deref(), expected, "{name}");
        }
    }
}
