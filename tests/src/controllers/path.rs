//! Paths in objects, as scenarios write them, and tests of values.

use serde_json::Value;

/// The value at a path such as `status.conditions[type=Ready].status`, or at a list of names.
pub fn get<'v>(object: &'v Value, path: &Value) -> &'v Value {
    match path {
        Value::String(path) => at(object, path),
        Value::Array(parts) => parts.iter().filter_map(Value::as_str).fold(object, |value, name| &value[name]),
        _ => &Value::Null,
    }
}

pub fn at<'v>(object: &'v Value, path: &str) -> &'v Value {
    let mut value = object;
    let mut rest = path;
    while !rest.is_empty() {
        rest = rest.trim_start_matches('.');
        let end = if rest.starts_with('[') {
            rest.find(']').map_or(rest.len(), |end| end + 1)
        } else {
            rest.find(['.', '[']).unwrap_or(rest.len())
        };
        let (part, after) = rest.split_at(end);
        rest = after;
        value = match part.strip_prefix('[').map(|part| part.trim_end_matches(']')) {
            None => &value[part],
            Some(index) => match index.split_once('=') {
                None => &value[index.parse::<usize>().unwrap_or(usize::MAX)],
                Some((name, wanted)) => {
                    let items = value.as_array().into_iter().flatten();
                    items.into_iter().find(|item| item[name] == wanted).unwrap_or(&Value::Null)
                }
            },
        };
    }
    value
}

/// Whether all tests `[path, test, value]` hold.
pub fn holds(object: &Value, tests: &Value) -> bool {
    tests.as_array().into_iter().flatten().all(|test| {
        let (have, wanted) = (get(object, &test[0]), &test[2]);
        let number = |value: &Value| value.as_f64().unwrap_or(0.0);
        let absent = match have {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            _ => false,
        };
        match test[1].as_str().unwrap_or_default() {
            "=" => have == wanted,
            "!=" => have != wanted,
            "absent" => absent,
            "present" => !absent,
            "current" => have == &object["metadata"]["generation"],
            "has" => have.as_array().is_some_and(|items| items.contains(wanted)),
            "len" => have.as_array().map_or(0, Vec::len) as f64 == number(wanted),
            ">" => number(have) > number(wanted),
            ">=" => number(have) >= number(wanted),
            "<" => number(have) < number(wanted),
            "<=" => number(have) <= number(wanted),
            other => panic!("the test {other} is not known"),
        }
    })
}

/// The value as text with sorted fields, so that equal values give equal texts.
pub fn sorted(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(sorted).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => {
            let mut names: Vec<&String> = fields.keys().collect();
            names.sort();
            let field = |name: &String| format!("{}: {}", Value::from(name.as_str()), sorted(&fields[name]));
            format!("{{{}}}", names.into_iter().map(field).collect::<Vec<_>>().join(", "))
        }
        scalar => scalar.to_string(),
    }
}
