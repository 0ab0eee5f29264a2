//! The Table format: the rows and columns that `kubectl get` prints, computed by the server.
//!
//! Each object becomes a row, with a cell for each column of the object's kind. Start at [`table`]. [`Rows`] makes the
//! rows one by one.

use super::jsonpath::{JsonPath, spend};
use super::openapi::descriptions;
use crate::kinds::cells::{self, epoch_seconds};
use crate::kinds::{Cell, Column, Description, Shown};
use crate::object::glance::{Glance, Seen};
use crate::object::meta::Document;
use bytes::Bytes;
use holdfast_value::{Number, Value};
use serde::Serialize;
use std::sync::LazyLock;

/// The form of the Table that a client requests.
#[derive(Debug, Clone, Copy)]
pub struct Form {
    pub version: MetaVersion,
    pub include: IncludeObject,
    /// Whether the Table describes its columns. In a watch only the first Table does.
    pub headers: bool,
}

/// The version of the group `meta.k8s.io` that the client requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetaVersion {
    V1,
    V1Beta1,
}

/// What each row includes of the object, in addition to the cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IncludeObject {
    None,
    #[default]
    Metadata,
    Object,
}

/// The metadata of the Table. The Table of a list has the metadata of the list, and the Table of a single object has
/// only its `resourceVersion`.
#[derive(Debug, Clone, Copy, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListMeta<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    pub resource_version: &'a str,
    #[serde(rename = "continue", skip_serializing_if = "str::is_empty")]
    pub continue_token: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining_item_count: Option<i64>,
}

/// An object in two forms, both canonical JSON: as it is stored, and in the version that the client requests.
#[derive(Debug, Clone)]
pub struct Source {
    pub hub: Bytes,
    pub served: Bytes,
}

/// Writes a whole Table for a list, for one object, or for an event of a watch.
pub fn table(
    shown: &Shown,
    objects: impl IntoIterator<Item = Source>,
    now_seconds: i64,
    form: Form,
    list: &ListMeta,
) -> Vec<u8> {
    let (mut rows, mut out) = Rows::begin(shown, now_seconds, form, list);
    for object in objects {
        rows.put(&mut out, shown, &object);
    }
    out.extend_from_slice(END);
    out
}

/// Writes the rows of a Table one after another.
pub struct Rows {
    readers: Vec<Reader>,
    now_seconds: i64,
    form: Form,
    /// The work for the cells of all rows so far: the number of visited values, plus the number of bytes of the cells.
    pub looked: usize,
    is_first: bool,
}

/// The bytes of a Table after its last row.
pub const END: &[u8] = b"]}";

/// The limit on the work for the cells of one row: the number of visited values of the object, plus the number of bytes
/// of the cells.
///
/// The limit grows with the object's size and with the number of columns, so that the cost of a row is proportional to
/// both. Each step of a path counts as one visited value. A path through the whole object counts each of its values.
const LOOKS_A_BYTE: usize = 4;
const LOOKS_A_COLUMN: usize = 8;

impl Rows {
    /// Begins a Table. Returns the writer of the rows, and the bytes of the Table before its first row.
    pub fn begin(shown: &Shown, now_seconds: i64, form: Form, list: &ListMeta) -> (Rows, Vec<u8>) {
        let mut out = Vec::with_capacity(4096);
        out.extend_from_slice(br#"{"kind":"Table","apiVersion":"#);
        put(&mut out, form.version.api_version());
        out.extend_from_slice(br#","metadata":"#);
        put(&mut out, list);
        out.extend_from_slice(br#","columnDefinitions":"#);
        let columns = or_default(&shown.columns);
        if form.headers {
            out.extend_from_slice(column_definitions(shown));
        } else {
            out.extend_from_slice(b"null");
        }
        out.extend_from_slice(br#","rows":["#);
        (Rows { readers: readers(columns), now_seconds, form, looked: 0, is_first: true }, out)
    }

    /// Appends the row of one object to `out`.
    pub fn put(&mut self, out: &mut Vec<u8>, shown: &Shown, object: &Source) {
        if !std::mem::take(&mut self.is_first) {
            out.push(b',');
        }
        let Seen { document: hub, metadata } = shown.glance.look(&object.hub);
        out.extend_from_slice(br#"{"cells":["#);
        self.put_cells(out, &hub, object.hub.len());
        out.push(b']');
        if let Some((reason, message)) = shown.completed.and_then(|completed| completed(&hub)) {
            let condition = RowCondition { ty: "Completed", status: "True", reason, message };
            out.extend_from_slice(br#","conditions":"#);
            self::put(out, &[condition]);
        }
        out.extend_from_slice(br#","object":"#);
        let version = self.form.version;
        match self.form.include {
            IncludeObject::None => out.extend_from_slice(b"null"),
            IncludeObject::Metadata if object.hub == object.served => {
                put_partial(out, metadata, shown.left_out, version);
            }
            IncludeObject::Metadata => {
                put_partial(out, Glance::at(&[]).look(&object.served).metadata, shown.left_out, version);
            }
            IncludeObject::Object => out.extend_from_slice(object.served.trim_ascii_end()),
        }
        out.push(b'}');
    }

    fn put_cells(&mut self, out: &mut Vec<u8>, hub: &Value, bytes: usize) {
        let mut looks = looks(&self.readers, bytes);
        let before = looks;
        for (index, reader) in self.readers.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            put(out, &reader.cell(hub, self.now_seconds, &mut looks));
        }
        self.looked += before - looks;
    }
}

fn looks(readers: &[Reader], bytes: usize) -> usize {
    LOOKS_A_BYTE.saturating_mul(bytes).saturating_add(LOOKS_A_COLUMN.saturating_mul(readers.len()))
}

/// The cells of the row for one object.
pub fn cells(columns: &[Column], hub: &Value, now_seconds: i64) -> Vec<Value> {
    let readers = readers(or_default(columns));
    let mut looks = looks(&readers, hub.to_string().len());
    readers.iter().map(|reader| reader.cell(hub, now_seconds, &mut looks)).collect()
}

/// Writes an object, given as canonical JSON, in the form `PartialObjectMetadata`.
pub fn partial_object_metadata(json: &[u8], left_out: Option<&str>, version: MetaVersion) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len());
    put_partial(&mut out, Glance::at(&[]).look(json).metadata, left_out, version);
    out
}

impl MetaVersion {
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// The columns of a kind that declares none.
static DEFAULT: LazyLock<Vec<Column>> = LazyLock::new(default_columns);

fn or_default(columns: &[Column]) -> &[Column] {
    if columns.is_empty() { &DEFAULT } else { columns }
}

fn default_columns() -> Vec<Column> {
    let description = cells::field("metadata.creationTimestamp");
    vec![
        cells::name(),
        cells::column("Created At", "date", 0, description, |doc, _| {
            // If the time is unset, Kubernetes shows the first second of the year 1.
            cells::text_or(doc, "metadata.creationTimestamp", "0001-01-01T00:00:00Z")
        }),
    ]
}

#[derive(Serialize)]
struct Definition<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    ty: &'a str,
    format: &'a str,
    description: String,
    priority: i32,
}

/// The column definitions of a Table, as JSON.
pub fn column_definitions(shown: &Shown) -> &[u8] {
    shown.definitions.get_or_init(|| definitions(or_default(&shown.columns), &shown.message))
}

fn definitions(columns: &[Column], message: &str) -> Vec<u8> {
    const METADATA: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    let described = |description: &'_ Description| match description {
        Description::Words(words) => words.clone(),
        Description::Field(path) => match path.strip_prefix("metadata.") {
            Some(field) => descriptions::of_field(METADATA, field).into_owned(),
            None => descriptions::at(message, path).into_owned(),
        },
    };
    let named = columns.iter().filter(|column| !column.name.is_empty());
    let definitions = named.map(|Column { name, ty, format, description, priority, .. }| Definition {
        name,
        ty,
        format,
        description: described(description),
        priority: *priority,
    });
    let mut out = Vec::new();
    put(&mut out, &definitions.collect::<Vec<_>>());
    out
}

/// A column that is prepared for many objects: its path has been parsed.
enum Reader {
    Field {
        path: &'static str,
        show: fn(&Value, &str) -> Value,
    },
    Function(fn(&Value, i64) -> Value),
    Path {
        /// The parsed path; `None` if the path is not valid. The cells of the column are then empty.
        path: Option<JsonPath>,
        ty: &'static str,
    },
}

fn readers(columns: &[Column]) -> Vec<Reader> {
    let reader = |column: &Column| match &column.cell {
        Cell::Field { path, show } => Reader::Field { path, show: *show },
        Cell::Read(read) => Reader::Function(*read),
        Cell::Path(path) => Reader::Path { path: JsonPath::parse(path).ok(), ty: column.ty },
    };
    columns.iter().map(reader).collect()
}

impl Reader {
    fn cell(&self, hub: &Value, now_seconds: i64, looks: &mut usize) -> Value {
        match self {
            Self::Field { path, show } => show(hub, path),
            Self::Function(read) => read(hub, now_seconds),
            Self::Path { path, ty } => {
                let found = path.as_ref().and_then(|path| path.find(hub, looks).into_iter().next());
                let cell = found.map_or(Value::Null, |value| typed(ty, value, now_seconds));
                // Several columns may show the same long text, so the bytes of the cells count too.
                let shown = cell.as_str().map_or(0, str::len);
                spend(looks, shown).map_or(Value::Null, |()| cell)
            }
        }
    }
}

/// The value in the form of a cell of the column's type; null if the value is of another type.
fn typed(ty: &str, value: &Value, now_seconds: i64) -> Value {
    match (ty, value) {
        ("string", Value::Null) => "<no value>".into(),
        ("string", Value::Number(number)) => shown_number(number).into(),
        ("string", Value::Array(_) | Value::Object(_)) => {
            let mut shown = String::new();
            put_sorted(&mut shown, value);
            shown.into()
        }
        ("string", scalar) => cells::plain(scalar).into(),
        ("integer", Value::Number(number)) => match number.as_i64() {
            Some(number) => number.into(),
            None => number.as_f64().map_or(Value::Null, |number| (number as i64).into()),
        },
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        ("date", Value::String(time)) => match epoch_seconds(time) {
            Some(then) => cells::age(now_seconds - then).into(),
            None if time.is_empty() => cells::UNKNOWN.into(),
            None => "<invalid>".into(),
        },
        _ => Value::Null,
    }
}

/// The number in the form in which Go prints it. Only a very large or very small number has an exponent, with a sign
/// and at least two digits.
fn shown_number(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() => {
            let size = float.abs();
            if size == 0.0 || (1e-4..1e21).contains(&size) {
                return float.to_string();
            }
            let shown = format!("{float:e}");
            let (digits, exponent) = shown.split_once('e').unwrap_or((&shown, "0"));
            let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
            format!("{digits}e{sign}{exponent:0>2}")
        }
        _ => number.to_string(),
    }
}

/// Appends a value to `out` as JSON with sorted keys and with Go's escapes.
fn put_sorted(out: &mut String, value: &Value) {
    let escaped = |text: &str| {
        Value::from(text).to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
    };
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            for (index, (key, value)) in entries.into_iter().enumerate() {
                out.push(if index == 0 { '{' } else { ',' });
                out.push_str(&escaped(key));
                out.push(':');
                put_sorted(out, value);
            }
            out.push_str(if map.is_empty() { "{}" } else { "}" });
        }
        Value::Array(list) => {
            for (index, item) in list.iter().enumerate() {
                out.push(if index == 0 { '[' } else { ',' });
                put_sorted(out, item);
            }
            out.push_str(if list.is_empty() { "[]" } else { "]" });
        }
        Value::String(text) => out.push_str(&escaped(text)),
        Value::Number(number) => out.push_str(&shown_number(number)),
        Value::Null | Value::Bool(_) => out.push_str(&value.to_string()),
    }
}

#[derive(Serialize)]
struct RowCondition<'a> {
    #[serde(rename = "type")]
    ty: &'a str,
    status: &'a str,
    reason: &'a str,
    message: &'a str,
}

fn put_partial(out: &mut Vec<u8>, metadata: &[u8], left_out: Option<&str>, version: MetaVersion) {
    out.extend_from_slice(br#"{"kind":"PartialObjectMetadata","apiVersion":"#);
    put(out, version.api_version());
    out.extend_from_slice(br#","metadata":"#);
    match left_out.and_then(|annotation| without(metadata, annotation)) {
        Some(metadata) => put(out, &metadata),
        None => out.extend_from_slice(metadata),
    }
    out.push(b'}');
}

/// The metadata without the annotation; `None` if the metadata does not have it.
fn without(metadata: &[u8], annotation: &str) -> Option<Document> {
    let mut metadata: Document = serde_json::from_slice(metadata).ok()?;
    let annotations = metadata.get_mut("annotations")?.as_object_mut()?;
    annotations.remove(annotation)?;
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    Some(metadata)
}

fn put<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value).expect("memory takes all that is written, and every key is a string");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::cells::tests::NOW;
    use holdfast_value::json;

    const FORM: Form = Form { version: MetaVersion::V1, include: IncludeObject::Metadata, headers: true };

    fn pod() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web", "resourceVersion": "7", "creationTimestamp": "2026-01-09T23:55:00Z"},
            "spec": {"containers": [{"name": "app"}]},
            "status": {"phase": "Failed"},
        })
    }

    fn source(hub: &Value, served: &Value) -> Source {
        let json = |value: &Value| value.as_object().map(crate::object::encode::document).unwrap_or_default().into();
        Source { hub: json(hub), served: json(served) }
    }

    fn read(table: &[u8]) -> Value {
        serde_json::from_slice(table).unwrap()
    }

    #[test]
    fn pods() {
        let (pods, _) = crate::kinds::registry().known(crate::kinds::known::POD).expect("pods");
        let shown = &crate::kinds::registry().get(pods).shown;
        let list = ListMeta { resource_version: "9", continue_token: "more", remaining_item_count: Some(3) };
        let document = read(&table(shown, [source(&pod(), &pod())], NOW, FORM, &list));
        assert_eq!(document["kind"], "Table");
        assert_eq!(document["apiVersion"], "meta.k8s.io/v1");
        assert_eq!(document["metadata"], json!({"resourceVersion": "9", "continue": "more", "remainingItemCount": 3}));
        let names: Vec<_> = document["columnDefinitions"].as_array().unwrap().iter().map(|c| &c["name"]).collect();
        let expected =
            ["Name", "Ready", "Status", "Restarts", "Age", "IP", "Node", "Nominated Node", "Readiness Gates"];
        assert_eq!(json!(names), json!(expected));
        let first = &document["columnDefinitions"][0];
        assert_eq!(
            (&first["type"], &first["format"], &first["priority"]),
            (&json!("string"), &json!("name"), &json!(0))
        );
        assert_eq!(document["columnDefinitions"][5]["priority"], 1);
        let none = "<none>";
        assert_eq!(
            document["rows"],
            json!([{
                "cells": ["web", "0/1", "Failed", "0", "5m", none, none, none, none],
                "conditions": [
                    {"type": "Completed", "status": "True", "reason": "Failed", "message": "The pod failed."},
                ],
                "object": {
                    "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": pod()["metadata"],
                },
            }])
        );
    }

    #[test]
    fn columns_are_described() {
        let mut shown: Vec<&Shown> = crate::kinds::registry().iter().map(|(_, kind)| &kind.shown).collect();
        shown.push(&crate::kinds::autoscaling::scale::SHOWN);
        for shown in shown {
            let definitions = read(&definitions(or_default(&shown.columns), &shown.message));
            for definition in definitions.as_array().unwrap() {
                assert_ne!(definition["description"], "", "{} {}", shown.message, definition["name"]);
            }
        }
        let (maps, _) = crate::kinds::registry().known(crate::kinds::known::CONFIG_MAP).expect("config maps");
        let table = read(&table(&crate::kinds::registry().get(maps).shown, [], NOW, FORM, &ListMeta::default()));
        let words = |column: usize| table["columnDefinitions"][column]["description"].as_str().unwrap();
        assert!(words(0).starts_with("Name must be unique"), "{}", words(0));
        assert!(words(1).starts_with("Data contains the configuration data"), "{}", words(1));
    }

    #[test]
    fn kinds_without_columns() {
        let object = json!({"metadata": {"name": "x", "creationTimestamp": "2026-01-09T23:55:00Z"}});
        let document = read(&table(
            &Shown::default(),
            [source(&object, &object), source(&json!({}), &json!({}))],
            NOW,
            FORM,
            &ListMeta::default(),
        ));
        assert_eq!(document["metadata"], json!({}));
        let headers: Vec<_> =
            document["columnDefinitions"].as_array().unwrap().iter().map(|c| (&c["name"], &c["type"])).collect();
        assert_eq!(json!(headers), json!([["Name", "string"], ["Created At", "date"]]));
        assert_eq!(document["rows"][0]["cells"], json!(["x", "2026-01-09T23:55:00Z"]));
        assert_eq!(document["rows"][1]["cells"], json!(["", "0001-01-01T00:00:00Z"]));
        assert_eq!(cells(&[], &object, NOW), [json!("x"), json!("2026-01-09T23:55:00Z")]);
    }

    #[test]
    fn forms() {
        let hub = pod();
        let served = json!({"kind": "Older", "metadata": {"name": "web"}});
        let object = |include, version| {
            let form = Form { include, version, headers: false };
            let document = read(&table(&Shown::default(), [source(&hub, &served)], NOW, form, &ListMeta::default()));
            assert_eq!(document["columnDefinitions"], Value::Null);
            assert_eq!(document["apiVersion"], version.api_version());
            document["rows"][0]["object"].clone()
        };
        assert_eq!(object(IncludeObject::None, MetaVersion::V1), Value::Null);
        assert_eq!(object(IncludeObject::Object, MetaVersion::V1), served);
        let partial = json!({
            "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1beta1", "metadata": {"name": "web"},
        });
        assert_eq!(object(IncludeObject::Metadata, MetaVersion::V1Beta1), partial);
        assert_eq!(read(&partial_object_metadata(&source(&hub, &served).served, None, MetaVersion::V1Beta1)), partial);
    }

    #[test]
    fn an_empty_list_has_rows() {
        assert_eq!(read(&table(&Shown::default(), [], NOW, FORM, &ListMeta::default()))["rows"], json!([]));
    }

    #[test]
    fn path_cells() {
        let object = json!({"a": {
            "text": "t", "int": 3, "float": 2.5, "whole": 3.0, "huge": 1e21, "tiny": 0.00001, "yes": true, "null": null,
            "map": {"z": 1, "b": "<&>"}, "list": [1, "x", []], "empty": {}, "when": "2026-01-09T23:55:00Z",
            "many": [{"n": 1}, {"n": 2}],
        }});
        let cases = [
            ("string", ".a.text", json!("t")),
            ("string", ".a.int", json!("3")),
            ("string", ".a.float", json!("2.5")),
            ("string", ".a.whole", json!("3")),
            ("string", ".a.huge", json!("1e+21")),
            ("string", ".a.tiny", json!("1e-05")),
            ("string", ".a.yes", json!("true")),
            ("string", ".a.null", json!("<no value>")),
            ("string", ".a.map", json!(r#"{"b":"\u003c\u0026\u003e","z":1}"#)),
            ("string", ".a.list", json!(r#"[1,"x",[]]"#)),
            ("string", ".a.empty", json!("{}")),
            ("string", ".a.many[*].n", json!("1")),
            ("string", ".a.missing", json!(null)),
            ("string", "no path", json!(null)),
            ("integer", ".a.int", json!(3)),
            ("integer", ".a.float", json!(2)),
            ("integer", ".a.text", json!(null)),
            ("number", ".a.float", json!(2.5)),
            ("boolean", ".a.yes", json!(true)),
            ("boolean", ".a.text", json!(null)),
            ("date", ".a.when", json!("5m")),
            ("date", ".a.text", json!("<invalid>")),
            ("date", ".a.int", json!(null)),
        ];
        for (ty, path, expected) in cases {
            let column = Column { cell: Cell::Path(path.into()), ..cells::column("C", ty, 0, "", |_, _| Value::Null) };
            assert_eq!(cells(&[column], &object, NOW), [expected], "{ty} {path}");
        }
    }

    #[test]
    fn a_row_costs_no_more_than_what_it_is_made_of() {
        let column = |path: &str| Column {
            cell: Cell::Path(path.into()),
            ..cells::column("C", "string", 0, "", |_, _| Value::Null)
        };
        let large = json!({"a": (0..10_000).map(|number| json!({"n": number})).collect::<Value>(), "text": "x".repeat(100_000)});
        let cheap_and_dear = |path: &str| {
            let columns = (0..1000).flat_map(|_| [column(".missing"), column(path)]);
            let shown = Shown { columns: columns.collect(), ..Shown::default() };
            let (mut rows, mut out) = Rows::begin(&shown, NOW, Form { headers: false, ..FORM }, &ListMeta::default());
            let object = source(&large, &large);
            rows.put(&mut out, &shown, &object);
            assert!(rows.looked <= 8 * 2000 + 4 * object.hub.len(), "{path}");
            (out.len(), object.hub.len())
        };
        for path in ["..b", ".a[*].b", ".a[?(@.n<0)]", ".a[0:10000].b", "..n"] {
            let (row, _) = cheap_and_dear(path);
            assert!(row < 20_000, "{path}: {row}");
        }
        for path in [".text", ".", ".a"] {
            let (row, object) = cheap_and_dear(path);
            assert!(row < 6 * object, "{path}: {row}");
        }
        // A few columns of a small object must stay within the limit.
        let few = vec![column("..c"), column(".a[*].b[?(@.c==1)].c"), column(".")];
        let small = json!({"a": [{"b": [{"c": 1}, {"c": 2}]}]});
        assert_eq!(cells(&few, &small, NOW), [json!("1"), json!("1"), json!(small.to_string())]);
    }
}
