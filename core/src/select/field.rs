//! Field selectors: `metadata.name=web,spec.nodeName!=`.

use std::fmt;
use std::sync::Arc;

/// A list of requirements on fields, all of which an object must fulfil. A field that the object lacks counts as empty.
/// Clones share the list.
///
/// Invariant: requirements are distinct and sorted by field, then `=` before `!=`, then by value, so that equal
/// selectors compare and print the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FieldSelector {
    requirements: Arc<[FieldRequirement]>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldRequirement {
    pub field: String,
    pub value: String,
    /// Whether the operator is `=` or `==`, and not `!=`.
    pub equal: bool,
}

impl FieldSelector {
    /// Parses the text of the parameter `fieldSelector`. The error is Kubernetes' message. Whether the kind supports
    /// the fields is checked elsewhere.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut requirements = Vec::new();
        let mut terms = terms(text);
        // As in Kubernetes, terms are sorted before parsing. The order decides which error is reported first.
        terms.sort_unstable();
        for term in terms.into_iter().filter(|term| !term.is_empty()) {
            let Some((field, equal, value)) = split(term) else {
                return Err(format!("invalid selector: '{text}'; can't understand '{term}'"));
            };
            requirements.push(FieldRequirement { field: field.to_owned(), value: unescape(value)?, equal });
        }
        // Of the requirements on one field, the requirements with `=` come first.
        requirements.sort_by(|one: &FieldRequirement, other| {
            let by_value = || (other.equal, &one.value).cmp(&(one.equal, &other.value));
            one.field.cmp(&other.field).then_with(by_value)
        });
        requirements.dedup();
        Ok(Self { requirements: requirements.into() })
    }

    pub fn requirements(&self) -> &[FieldRequirement] {
        &self.requirements
    }

    /// Whether the selector matches every object.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether an object matches. `read` returns the value of a field; empty if the object lacks the field.
    pub fn matches<S: AsRef<str>>(&self, read: impl Fn(&str) -> S) -> bool {
        // Each field is read once, and its value is compared with few of the requirements on the field.
        let mut rest = &self.requirements[..];
        while let Some(first) = rest.first() {
            let is_alone = rest.get(1).is_none_or(|next| next.field != first.field);
            let count = if is_alone { 1 } else { rest.partition_point(|wanted| wanted.field <= first.field) };
            let (of_field, others) = rest.split_at(count);
            let (equal, differing) = of_field.split_at(of_field.partition_point(|wanted| wanted.equal));
            let value = read(&first.field);
            let value = value.as_ref();
            let is_equal = match equal {
                [] => true,
                [only] => only.value == value,
                _ => false,
            };
            if !is_equal || differing.binary_search_by(|wanted| wanted.value.as_str().cmp(value)).is_ok() {
                return false;
            }
            rest = others;
        }
        true
    }

    /// The approximate number of bytes that the selector takes in memory.
    pub fn bytes(&self) -> usize {
        let of = |one: &FieldRequirement| size_of::<FieldRequirement>() + one.field.len() + one.value.len();
        self.requirements.iter().map(of).sum()
    }

    /// The only value that a field may have, if the selector has an `=` requirement for it.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.requirements.iter().find(|wanted| wanted.equal && wanted.field == field).map(|wanted| &*wanted.value)
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, FieldRequirement { field, value, equal }) in self.requirements.iter().enumerate() {
            let (comma, operator) = (if at == 0 { "" } else { "," }, if *equal { "=" } else { "!=" });
            write!(f, "{comma}{field}{operator}{}", escape(value))?;
        }
        Ok(())
    }
}

/// Splits a selector into terms, at the commas that are not escaped.
fn terms(text: &str) -> Vec<&str> {
    let mut escaped = false;
    text.split(|c| {
        let separates = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        separates
    })
    .collect()
}

/// Splits a term into field, operator and value, at the first operator. Names of fields contain no escapes.
fn split(term: &str) -> Option<(&str, bool, &str)> {
    let at = term.find('=')?;
    if let Some(field) = term[..at].strip_suffix('!') {
        return Some((field, false, &term[at + 1..]));
    }
    let value = &term[at + 1..];
    Some((&term[..at], true, value.strip_prefix('=').unwrap_or(value)))
}

fn unescape(value: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(c) = characters.next() {
        match c {
            '\\' => match characters.next() {
                Some(c @ ('\\' | ',' | '=')) => plain.push(c),
                Some(c) => return Err(format!("invalid field selector: invalid escape sequence: \\{c}")),
                None => return Err("invalid field selector: invalid escape sequence: \\".to_owned()),
            },
            // Kubernetes' message shows the number of the character's code point.
            ',' | '=' => return Err(format!("invalid field selector: unescaped character in value: {}", u32::from(c))),
            c => plain.push(c),
        }
    }
    Ok(plain)
}

fn escape(value: &str) -> String {
    value.replace('\\', r"\\").replace(',', r"\,").replace('=', r"\=")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn canonical_text_or_refusal() {
        let rows = [
            ("", Ok("")),
            (",,", Ok("")),
            ("b==1,a!=2", Ok("a!=2,b=1")),
            ("a=1,a=1", Ok("a=1")),
            ("spec.nodeName=", Ok("spec.nodeName=")),
            (r"a=x\,y\=z\\", Ok(r"a=x\,y\=z\\")),
            ("!=x", Ok("!=x")),
            ("a", Err("invalid selector: 'a'; can't understand 'a'")),
            ("b=1,a", Err("invalid selector: 'b=1,a'; can't understand 'a'")),
            (r"a=\x", Err(r"invalid field selector: invalid escape sequence: \x")),
            (r"a=x\", Err(r"invalid field selector: invalid escape sequence: \")),
            ("a=b=c", Err("invalid field selector: unescaped character in value: 61")),
        ];
        for (text, expected) in rows {
            let actual = FieldSelector::parse(text).map(|selector| selector.to_string());
            assert_eq!(actual, expected.map(str::to_owned).map_err(str::to_owned), "{text}");
        }
    }

    #[test]
    fn an_absent_field_is_empty() {
        let read = |field: &str| if field == "a" { "1" } else { "" };
        for (text, expected) in
            [("a=1", true), ("a==1,b=", true), ("a!=1", false), ("b!=", false), ("b!=x", true), ("", true)]
        {
            assert_eq!(FieldSelector::parse(text).unwrap().matches(read), expected, "{text}");
        }
        assert_eq!(FieldSelector::parse("a!=2,a=1").unwrap().exact("a"), Some("1"));
        assert_eq!(FieldSelector::parse("a!=2").unwrap().exact("a"), None);
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(
            wanted in prop::collection::vec(("[ab.]{1,2}", "[a,=\\\\é]{0,2}", any::<bool>()), 0..8),
        ) {
            let text = wanted.iter().map(|(field, value, equal)| {
                format!("{field}{}{}", if *equal { "=" } else { "!=" }, escape(value))
            });
            let text = text.collect::<Vec<_>>().join(",");
            let selector = FieldSelector::parse(&text).unwrap();
            prop_assert_eq!(&FieldSelector::parse(&selector.to_string()).unwrap(), &selector);
            let value = &wanted.first().map_or(String::new(), |(_, value, _)| value.clone());
            let naive = wanted.iter().all(|(_, listed, equal)| (listed == value) == *equal);
            prop_assert_eq!(selector.matches(|_| value.as_str()), naive);
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in "[a=!,\\\\é]{0,8}", other in ".*") {
            for text in [text, other] {
                if let Ok(selector) = FieldSelector::parse(&text) {
                    prop_assert_eq!(FieldSelector::parse(&selector.to_string()), Ok(selector));
                }
            }
        }
    }
}
