//! The library of named formats, such as `format.dns1123Label()`, against which expressions check texts.

use super::{Cost, CustomCost, Overload, no_overload, own, text, url};
use crate::cel::cost::{CallEstimate, REGEX_FACTOR, scaled, traversal};
use crate::cel::functions::overload;
use crate::cel::value::{EvalError, Opaque, Value};
use crate::object::names;
use crate::schema::structural::formats;
use std::any::Any;

pub static TABLE: &[Overload] = &[
    overload("<kubernetes.NamedFormat>.validate(string) -> optional(list(string))", validate, VALIDATE),
    overload(
        "format.named(string) -> optional(kubernetes.NamedFormat)",
        |arguments| {
            let name = text(arguments)?;
            let found = FORMATS.iter().find(|format| format.name == name);
            Ok(found.map_or(Value::Optional(None), |format| Value::some(Value::opaque(Named(format)))))
        },
        Cost::One,
    ),
    overload("format.dns1123Label() -> kubernetes.NamedFormat", |_| named(0), Cost::One),
    overload("format.dns1123Subdomain() -> kubernetes.NamedFormat", |_| named(1), Cost::One),
    overload("format.dns1035Label() -> kubernetes.NamedFormat", |_| named(2), Cost::One),
    overload("format.qualifiedName() -> kubernetes.NamedFormat", |_| named(3), Cost::One),
    overload("format.dns1123LabelPrefix() -> kubernetes.NamedFormat", |_| named(4), Cost::One),
    overload("format.dns1123SubdomainPrefix() -> kubernetes.NamedFormat", |_| named(5), Cost::One),
    overload("format.dns1035LabelPrefix() -> kubernetes.NamedFormat", |_| named(6), Cost::One),
    overload("format.labelValue() -> kubernetes.NamedFormat", |_| named(7), Cost::One),
    overload("format.uri() -> kubernetes.NamedFormat", |_| named(8), Cost::One),
    overload("format.uuid() -> kubernetes.NamedFormat", |_| named(9), Cost::One),
    overload("format.byte() -> kubernetes.NamedFormat", |_| named(10), Cost::One),
    overload("format.date() -> kubernetes.NamedFormat", |_| named(11), Cost::One),
    overload("format.datetime() -> kubernetes.NamedFormat", |_| named(12), Cost::One),
];

#[derive(Debug)]
struct Format {
    name: &'static str,
    /// Returns the violations of the format in a text.
    check: fn(&str) -> Vec<String>,
    /// The length of the regular expression of this format, as Kubernetes assumes it to compute the cost of a check.
    expression: u64,
}

static FORMATS: [Format; 13] = [
    Format { name: "dns1123Label", check: names::label, expression: 30 },
    Format { name: "dns1123Subdomain", check: names::subdomain, expression: 60 },
    Format { name: "dns1035Label", check: names::label_1035, expression: 30 },
    Format { name: "qualifiedName", check: names::qualified_name, expression: 60 },
    Format { name: "dns1123LabelPrefix", check: |text| names::label(&as_name(text)), expression: 30 },
    Format { name: "dns1123SubdomainPrefix", check: |text| names::subdomain(&as_name(text)), expression: 60 },
    Format { name: "dns1035LabelPrefix", check: |text| names::label_1035(&as_name(text)), expression: 30 },
    Format { name: "labelValue", check: names::label_value, expression: 40 },
    Format { name: "uri", check: |text| url::check_request_uri(text).err().into_iter().collect(), expression: 956 },
    Format { name: "uuid", check: |text| known("uuid", text, "does not match the UUID format"), expression: 70 },
    Format { name: "byte", check: |text| known("byte", text, "invalid base64"), expression: 90 },
    Format { name: "date", check: |text| known("date", text, "invalid date"), expression: 71 },
    Format { name: "datetime", check: |text| known("datetime", text, "invalid datetime"), expression: 71 },
];

/// The length of a regular expression that the estimate assumes if the format is not known before evaluation.
const EXPRESSION_MAX: f64 = 128.0;

const VALIDATE: Cost = Cost::Custom(CustomCost {
    actual: |arguments, _| {
        let expression = arguments[0].downcast::<Named>().map_or(0, |Named(format)| format.expression);
        traversal(arguments[1].size().saturating_add(1)).saturating_mul(scaled(expression, REGEX_FACTOR))
    },
    estimate: |arguments| CallEstimate {
        cost: arguments.size(1).traversal().scaled(EXPRESSION_MAX * REGEX_FACTOR),
        result: None,
    },
});

/// Turns a name prefix into a name that can be checked. A dash at the end of the prefix is legal before a generated
/// suffix, so the dash and the character before it become one letter.
fn as_name(prefix: &str) -> String {
    match prefix.strip_suffix('-') {
        Some(start) if start.chars().count() > 0 => {
            let mut name: String = start.to_owned();
            name.pop();
            name + "a"
        }
        _ => prefix.to_owned(),
    }
}

fn known(name: &str, text: &str, message: &str) -> Vec<String> {
    let format = formats::Format::of("string", name);
    if format.is_none_or(|format| format.accepts(text)) { Vec::new() } else { vec![message.to_owned()] }
}

fn named<'a>(index: usize) -> Result<Value<'a>, EvalError> {
    Ok(Value::opaque(Named(&FORMATS[index])))
}

fn validate<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let Named(format) = own(arguments, 0)?;
    let Some(text) = arguments.get(1).and_then(Value::as_str) else { return no_overload() };
    let messages = (format.check)(text);
    if messages.is_empty() {
        return Ok(Value::Optional(None));
    }
    Ok(Value::some(Value::list(messages.into_iter().map(Value::text).collect())))
}

#[derive(Debug)]
struct Named(&'static Format);

impl Opaque for Named {
    fn type_name(&self) -> &'static str {
        "kubernetes.NamedFormat"
    }

    fn equals(&self, other: &dyn Opaque) -> bool {
        other.as_any().downcast_ref::<Named>().is_some_and(|other| other.0.name == self.0.name)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::{FORMATS, TABLE};

    #[test]
    fn each_format_has_its_function() {
        let functions: Vec<&str> =
            TABLE[2..].iter().filter_map(|row| row.signature.strip_prefix("format.")?.split('(').next()).collect();
        assert_eq!(functions, FORMATS.each_ref().map(|format| format.name));
    }

    #[test]
    fn good_and_bad_texts() {
        for (name, good, bad) in [
            ("dns1123Label", "a-b", "a.b"),
            ("dns1123Subdomain", "a.b", "a_b"),
            ("dns1035Label", "a1", "1a"),
            ("qualifiedName", "a.b/c", "a/b/c"),
            ("dns1123LabelPrefix", "a-", "_a-"),
            ("dns1123SubdomainPrefix", "a.b-", "_a-"),
            ("dns1035LabelPrefix", "a-", "1a-"),
            ("labelValue", "A.b", "-"),
            ("uri", "http://example.com", "a b"),
            ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123"),
            ("byte", "aGVsbG8=", "a"),
            ("date", "2021-01-01", "2021-13-01"),
            ("datetime", "2021-01-01T00:00:00Z", "2021-01-01"),
        ] {
            let format = FORMATS.iter().find(|format| format.name == name).expect("a known format");
            assert_eq!((format.check)(good), [""; 0], "{name}");
            assert!(!(format.check)(bad).is_empty(), "{name}");
        }
    }
}
