//! The library of semantic versions, such as `1.2.3-beta.1`.

use super::{Cost, Overload, READS_TEXT, own, quoted, text};
use crate::cel::functions::overload;
use crate::cel::value::{EvalError, Opaque, Value};
use std::any::Any;
use std::cmp::Ordering;

pub static TABLE: &[Overload] = &[
    overload("semver(string) -> kubernetes.Semver", semver, READS_TEXT),
    overload("semver(string, bool) -> kubernetes.Semver", semver, READS_TEXT),
    overload("isSemver(string) -> bool", |arguments| Ok(Value::Bool(read(arguments)?.is_ok())), READS_TEXT),
    overload("isSemver(string, bool) -> bool", |arguments| Ok(Value::Bool(read(arguments)?.is_ok())), READS_TEXT),
    overload("<kubernetes.Semver>.major() -> int", |arguments| number(arguments, 0), Cost::One),
    overload("<kubernetes.Semver>.minor() -> int", |arguments| number(arguments, 1), Cost::One),
    overload("<kubernetes.Semver>.patch() -> int", |arguments| number(arguments, 2), Cost::One),
    overload(
        "<kubernetes.Semver>.isLessThan(kubernetes.Semver) -> bool",
        |arguments| Ok(Value::Bool(compare(arguments)?.is_lt())),
        Cost::One,
    ),
    overload(
        "<kubernetes.Semver>.isGreaterThan(kubernetes.Semver) -> bool",
        |arguments| Ok(Value::Bool(compare(arguments)?.is_gt())),
        Cost::One,
    ),
    overload(
        "<kubernetes.Semver>.compareTo(kubernetes.Semver) -> int",
        |arguments| Ok(Value::Int(compare(arguments)? as i64)),
        Cost::One,
    ),
];

fn read(arguments: &[Value]) -> Result<Result<Semver, String>, EvalError> {
    let text = text(arguments)?;
    match arguments.get(1) {
        Some(Value::Bool(true)) => Ok(normalized(text).and_then(|text| Semver::parse(&text))),
        None | Some(Value::Bool(false)) => Ok(Semver::parse(text)),
        Some(_) => super::no_overload(),
    }
}

fn semver<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    read(arguments)?.map(Value::opaque).map_err(EvalError::new)
}

fn number<'a>(arguments: &[Value<'a>], index: usize) -> Result<Value<'a>, EvalError> {
    Ok(Value::Int(own::<Semver>(arguments, 0)?.numbers[index] as i64))
}

fn compare(arguments: &[Value]) -> Result<Ordering, EvalError> {
    Ok(own::<Semver>(arguments, 0)?.compare(own(arguments, 1)?))
}

#[derive(Debug, Clone)]
struct Semver {
    /// The major, the minor and the patch number.
    numbers: [u64; 3],
    before: Vec<Identifier>,
}

/// One part of a pre-release: in `1.0.0-beta.2`, the word `beta` or the number 2. Numbers sort before words.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    Number(u64),
    Word(String),
}

impl Semver {
    fn parse(text: &str) -> Result<Semver, String> {
        if text.is_empty() {
            return Err("Version string empty".into());
        }
        let parts: Vec<&str> = text.splitn(3, '.').collect();
        let [major, minor, rest] = parts[..] else { return Err("No Major.Minor.Patch elements found".into()) };
        let (rest, build) = rest.split_once('+').map_or((rest, None), |(rest, build)| (rest, Some(build)));
        let (patch, before) = rest.split_once('-').map_or((rest, None), |(rest, before)| (rest, Some(before)));
        let numbers = [read_number(major, "Major")?, read_number(minor, "Minor")?, read_number(patch, "Patch")?];
        let before = before.map_or(Ok(Vec::new()), |before| before.split('.').map(identifier).collect())?;
        for word in build.into_iter().flat_map(|build| build.split('.')) {
            if word.is_empty() {
                return Err("Build meta data is empty".into());
            }
            if !word.bytes().all(is_word_byte) {
                return Err(format!("Invalid character(s) found in build meta data {}", quoted(word)));
            }
        }
        Ok(Semver { numbers, before })
    }

    /// Compares two versions. A pre-release is less than its release; build metadata is ignored.
    fn compare(&self, other: &Semver) -> Ordering {
        let is_release = |version: &Semver| version.before.is_empty();
        self.numbers
            .cmp(&other.numbers)
            .then(is_release(self).cmp(&is_release(other)))
            .then_with(|| self.before.cmp(&other.before))
    }
}

impl Opaque for Semver {
    fn type_name(&self) -> &'static str {
        "kubernetes.Semver"
    }

    fn equals(&self, other: &dyn Opaque) -> bool {
        other.as_any().downcast_ref::<Semver>().is_some_and(|other| self.compare(other).is_eq())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

fn read_number(text: &str, name: &str) -> Result<u64, String> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        let name = name.to_lowercase();
        return Err(format!("Invalid character(s) found in {name} number {}", quoted(text)));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(format!("{name} number must not contain leading zeroes {}", quoted(text)));
    }
    text.parse().map_err(|_| {
        let reason = if text.is_empty() { "invalid syntax" } else { "value out of range" };
        format!("strconv.ParseUint: parsing {}: {reason}", quoted(text))
    })
}

fn identifier(text: &str) -> Result<Identifier, String> {
    if text.is_empty() {
        return Err("Prerelease is empty".into());
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        if text.len() > 1 && text.starts_with('0') {
            return Err(format!("Numeric PreRelease version must not contain leading zeroes {}", quoted(text)));
        }
        let out_of_range = |_| format!("strconv.ParseUint: parsing {}: value out of range", quoted(text));
        return text.parse().map(Identifier::Number).map_err(out_of_range);
    }
    if !text.bytes().all(is_word_byte) {
        return Err(format!("Invalid character(s) found in prerelease {}", quoted(text)));
    }
    Ok(Identifier::Word(text.to_owned()))
}

/// The text of a version without a leading `v` and without leading zeros. Missing minor and patch numbers become 0.
fn normalized(text: &str) -> Result<String, String> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text.splitn(3, '.').map(str::to_owned).collect();
    for part in parts.iter_mut().filter(|part| part.len() > 1) {
        let trimmed = part.trim_start_matches('0');
        *part =
            if trimmed.starts_with(|c: char| c.is_ascii_digit()) { trimmed.to_owned() } else { format!("0{trimmed}") };
    }
    if parts.len() < 3 && parts.last().is_some_and(|last| last.contains(['+', '-'])) {
        return Err("short version cannot contain PreRelease/Build meta data".into());
    }
    parts.resize(3, "0".to_owned());
    Ok(parts.join("."))
}

#[cfg(test)]
mod tests {
    use super::{Semver, normalized};

    #[test]
    fn what_versions_are() {
        for (text, expected) in [
            ("1.0.0", ""),
            ("0.1.0-alpha.1+build.05", ""),
            ("", "Version string empty"),
            ("200K", "No Major.Minor.Patch elements found"),
            ("v1.0.0", "Invalid character(s) found in major number \"v1\""),
            ("1.01.0", "Minor number must not contain leading zeroes \"01\""),
            ("1.0.0-01", "Numeric PreRelease version must not contain leading zeroes \"01\""),
            ("1.0.0-a..b", "Prerelease is empty"),
            ("1.0.0+a_b", "Invalid character(s) found in build meta data \"a_b\""),
        ] {
            assert_eq!(Semver::parse(text).err().unwrap_or_default(), expected, "{text}");
        }
    }

    #[test]
    fn order() {
        let sorted = [
            "1.0.0-alpha",
            "1.0.0-alpha.1",
            "1.0.0-alpha.beta",
            "1.0.0-beta.2",
            "1.0.0-beta.11",
            "1.0.0",
            "1.2.0",
            "1.10.0",
        ];
        for pair in sorted.windows(2) {
            let [less, more] = [pair[0], pair[1]].map(|text| Semver::parse(text).expect("a version"));
            assert!(less.compare(&more).is_lt(), "{pair:?}");
        }
    }

    #[test]
    fn normal_forms() {
        for (text, expected) in [
            ("v1.0.0", "1.0.0"),
            ("1", "1.0.0"),
            ("1.2", "1.2.0"),
            ("01.01.01", "1.1.1"),
            ("1.00.0-x", "1.0.0-x"),
            ("1.2.00-x", "1.2.0-x"),
        ] {
            assert_eq!(normalized(text).expect("a version"), expected);
        }
        assert!(normalized("1.2-x").is_err());
    }
}
