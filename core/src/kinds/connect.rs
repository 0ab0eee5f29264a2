//! Requests to subresources that lead to a node: what a kind is told of them, and the document that stands for one.

use super::known::{self, Known};
use super::layouts::layout_of;
use super::{Kind, Registry, body_message};
use crate::refusal::{Internal, Refusal};
use crate::schema::layout::Layout;
use crate::schema::{Field, Shape, Type, schema};
use holdfast_value::{Map, Value};

/// What such a request says beside its path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConnectOptions {
    pub container: Option<String>,
    pub limit_bytes: Option<i64>,
    pub since_seconds: Option<i64>,
    pub since_time: Option<String>,
    pub tail_lines: Option<i64>,
    /// All parameters, as they were sent, where the way leads to a node.
    pub parameters: Vec<(String, String)>,
}

/// A rule on these options: `(object's name, subresource, options)`.
pub type CheckConnect = fn(&str, &str, &ConnectOptions) -> Result<(), Refusal>;

/// The subresources that connect the client to something behind the API.
const WAYS: [&str; 4] = ["attach", "exec", "portforward", "proxy"];
/// Where the options of such requests are described.
const PACKAGE: &str = "io.k8s.api.core.v1";

/// Whether a subresource, as paths name it, connects the client to something behind the API.
pub fn leads_to_node(subresource: &str) -> bool {
    WAYS.contains(&way(subresource).0)
}

/// The subresource's own name, and the path behind it.
fn way(subresource: &str) -> (&str, &str) {
    subresource.split_once('/').unwrap_or((subresource, ""))
}

/// What stands for such a request where others have an object: the options that its parameters and its path say.
pub(crate) fn connect_document(
    kind: &Kind,
    version: usize,
    subresource: &str,
    options: &ConnectOptions,
) -> Result<(Known, Value), Refusal> {
    let (name, path) = way(subresource);
    let body = kind.subresource(version, name).and_then(|served| served.body.as_ref());
    let known = body.and_then(|(_, _, kind)| known::options(kind)).ok_or(Refusal::NoSuchPath)?;
    let message = format!("{PACKAGE}.{}", known.kind);
    let id = schema().id(&message).ok_or(Refusal::Internal(Internal::NoMessage { message }))?;
    let mut document = Map::new();
    document.insert("kind", known.kind.into());
    document.insert("apiVersion", known.api_version().into());
    for field in &schema().message(id).fields {
        let said: Vec<&str> = match (&*field.json, path) {
            ("path", path) if !path.is_empty() => vec![path],
            (name, _) => {
                options.parameters.iter().filter(|(known, _)| known == name).map(|(_, text)| &**text).collect()
            }
        };
        if let Some(value) = value_of(field, &said) {
            document.insert(field.json.to_string(), value);
        }
    }
    if let Some(Value::String(path)) = document.get_mut("path")
        && !path.starts_with('/')
    {
        path.insert(0, '/');
    }
    Ok((known, Value::Object(document)))
}

/// What parameters of one name come to. As in Kubernetes anything but `false` and `0` is true.
fn value_of(field: &Field, said: &[&str]) -> Option<Value> {
    let one = |text: &str| match field.ty {
        Type::Bool => Some(Value::Bool(!matches!(text.to_ascii_lowercase().as_str(), "false" | "0"))),
        Type::Int32 | Type::Int64 => text.parse::<i32>().ok().map(Value::from),
        _ => Some(Value::from(text)),
    };
    let first = one(said.first()?)?;
    match field.shape {
        Shape::List => Some(said.iter().filter_map(|text| one(text)).collect()),
        _ => Some(first).filter(|value| *value != Value::Bool(false) && value.as_str() != Some("")),
    }
}

/// How a document looks that a subresource takes: one of a kind of its own, of a message, or options.
pub(crate) fn part_layout(registry: &Registry, part: Known) -> Result<Layout<'static>, Refusal> {
    let served = registry.find_kind(part.group, part.version, part.kind);
    let message = match served {
        Some((id, version)) => registry.get(id).versions[version].message.clone(),
        None => match body_message(part.group, part.version, part.kind) {
            Some(message) => message.to_owned(),
            None => format!("{PACKAGE}.{}", part.kind),
        },
    };
    layout_of(&message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::registry;
    use holdfast_value::json;

    #[test]
    fn parameters_become_options() {
        let sent = |pairs: &[(&str, &str)]| {
            let parameters = pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
            ConnectOptions { parameters, ..ConnectOptions::default() }
        };
        let of = |kind, subresource: &str, pairs: &[(&str, &str)]| {
            let kind = registry().get(registry().known(kind).expect("a kind of every cluster").0);
            connect_document(kind, 0, subresource, &sent(pairs)).expect("a way").1
        };
        let exec = of(
            known::POD,
            "exec",
            &[("command", "ls"), ("command", "-l"), ("tty", "true"), ("stdin", "0"), ("x", "y")],
        );
        let wanted = json!({"kind": "PodExecOptions", "apiVersion": "v1", "command": ["ls", "-l"], "tty": true});
        assert_eq!(exec, wanted);
        let proxy = of(known::SERVICE, "proxy/a/b", &[("path", "c")]);
        assert_eq!(proxy, json!({"kind": "ServiceProxyOptions", "apiVersion": "v1", "path": "/a/b"}));
        let ports = of(known::POD, "portforward", &[("ports", "80"), ("ports", "x")]);
        assert_eq!(ports, json!({"kind": "PodPortForwardOptions", "apiVersion": "v1", "ports": [80]}));
    }
}
