//! Reads the input of targets: as lines of text that people can write, or as a sequence of choices.

use super::edges::{DURATIONS, NUMBERS, QUANTITIES, TEXTS, TIMES};
use holdfast_core::kinds::{Kind, KindId, Registry};
use holdfast_core::schema::{Field, MessageId, Schema, Shape, Type};
use holdfast_value::{Map, Value, json};

/// Splits the input into its first line and the rest.
pub fn line(bytes: &[u8]) -> (&[u8], &[u8]) {
    match bytes.iter().position(|byte| *byte == b'\n') {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (bytes, &[]),
    }
}

/// The parts of the input, which lines `---` separate.
pub fn parts(bytes: &[u8]) -> Vec<&[u8]> {
    const BETWEEN: &[u8] = b"\n---\n";
    let mut parts = Vec::new();
    let mut rest = bytes;
    while let Some(at) = rest.windows(BETWEEN.len()).position(|window| window == BETWEEN) {
        parts.push(&rest[..at]);
        rest = &rest[at + BETWEEN.len()..];
    }
    parts.push(rest);
    parts
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A document as in a request's body; `None` if it is not JSON.
pub fn document(bytes: &[u8]) -> Option<Value> {
    holdfast_core::object::decode::json(bytes).ok().map(|decoded| decoded.value)
}

/// The kind and version of a text such as `apps/v1 Deployment`. For any other text, a kind that its bytes choose.
pub fn kind<'r>(registry: &'r Registry, named: &str) -> (KindId, &'r Kind, usize) {
    let (api_version, kind) = named.split_once(' ').unwrap_or((named, ""));
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    if let Some((id, version)) = registry.find_kind(group, version, kind.trim()) {
        return (id, registry.get(id), version);
    }
    let number = named.bytes().fold(0usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    nth_kind(registry, number)
}

/// The kind and version with this number, of all versions of all kinds.
pub fn nth_kind(registry: &Registry, number: usize) -> (KindId, &Kind, usize) {
    let all: Vec<_> = registry.iter().flat_map(|(id, kind)| (0..kind.versions.len()).map(move |v| (id, v))).collect();
    let (id, version) = all[number % all.len()];
    (id, registry.get(id), version)
}

/// Input as a sequence of choices. After the end of the input every choice is the first option, so that generation
/// ends.
pub struct Choices<'a> {
    bytes: &'a [u8],
}

/// The deepest nesting of generated documents.
const DEPTH_MAX: usize = 12;

impl<'a> Choices<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        *first
    }

    pub fn below(&mut self, limit: usize) -> usize {
        let wide = if limit > 256 { usize::from(self.byte()) << 8 } else { 0 };
        (wide | usize::from(self.byte())) % limit.max(1)
    }

    pub fn one_in(&mut self, of: usize) -> bool {
        self.below(of) == of - 1
    }

    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    pub fn text(&mut self) -> String {
        if self.one_in(8) {
            let length = self.below(12).min(self.bytes.len());
            let (own, rest) = self.bytes.split_at(length);
            self.bytes = rest;
            return text(own);
        }
        self.pick(&TEXTS).to_owned()
    }

    fn number(&mut self) -> i64 {
        self.pick(&NUMBERS)
    }

    /// Generates any JSON value.
    pub fn anything(&mut self, depth: usize) -> Value {
        match self.below(if depth < DEPTH_MAX { 9 } else { 6 }) {
            0 => Value::Null,
            1 => Value::Bool(true),
            2 => self.number().into(),
            3 => u64::MAX.into(),
            4 => self.pick(&[json!(1.5e300), json!(-0.0), json!(5e-324), json!(-1e308), json!(0.5)]),
            5 => self.text().into(),
            6 | 7 => {
                let fields = self.below(4);
                Value::Object((0..fields).map(|_| (self.text(), self.anything(depth + 1))).collect())
            }
            _ => {
                let items = self.below(4);
                (0..items).map(|_| self.anything(depth + 1)).collect::<Vec<_>>().into()
            }
        }
    }

    /// Generates a mostly valid document of the type `message`.
    pub fn document(&mut self, schema: &Schema, message: MessageId) -> Map {
        self.fields(schema, message, 0)
    }

    fn fields(&mut self, schema: &Schema, message: MessageId, depth: usize) -> Map {
        let message = schema.message(message);
        let mut map = Map::new();
        let count = if self.is_empty() || depth >= DEPTH_MAX { 0 } else { self.below(6) };
        // In alphabetical order these fields would come late, but most rules are about them.
        if depth == 0 {
            for name in ["metadata", "spec"] {
                if let Some(field) = message.field(name) {
                    map.insert(name, self.field(schema, field, 1));
                }
            }
        }
        for _ in 0..count {
            if message.fields.is_empty() || self.one_in(24) {
                map.insert(self.text(), self.anything(depth + 1));
                continue;
            }
            let field = &message.fields[self.below(message.fields.len())];
            let value = if self.one_in(32) { self.anything(depth + 1) } else { self.field(schema, field, depth + 1) };
            map.insert(field.json.clone(), value);
        }
        map
    }

    fn field(&mut self, schema: &Schema, field: &Field, depth: usize) -> Value {
        match field.shape {
            Shape::Single => self.single(schema, field.ty, depth),
            Shape::List => {
                let items = self.below(4);
                (0..items).map(|_| self.single(schema, field.ty, depth + 1)).collect::<Vec<_>>().into()
            }
            Shape::Map => {
                let items = self.below(4);
                let names = ["cpu", "memory", "hugepages-2Mi", "hugepages-1Gi"];
                let name = |choices: &mut Self| match field.ty {
                    // In real objects, the keys of a map of quantities are mostly names of resources.
                    Type::Quantity if !choices.one_in(4) => choices.pick(&names).to_owned(),
                    _ => choices.text(),
                };
                Value::Object((0..items).map(|_| (name(self), self.single(schema, field.ty, depth + 1))).collect())
            }
        }
    }

    fn single(&mut self, schema: &Schema, ty: Type, depth: usize) -> Value {
        match ty {
            Type::Quantity | Type::Time | Type::MicroTime | Type::Duration if self.one_in(16) => self.text().into(),
            Type::Quantity => self.pick(&QUANTITIES).into(),
            Type::Time | Type::MicroTime => self.pick(&TIMES).into(),
            Type::Duration => self.pick(&DURATIONS).into(),
            Type::String => self.text().into(),
            Type::Bool => self.one_in(2).into(),
            Type::Int32 | Type::Int64 | Type::Double => self.number().into(),
            Type::IntOrString if self.one_in(2) => self.text().into(),
            Type::IntOrString => self.number().into(),
            Type::Bytes => "aGVsbG8=".into(),
            Type::Message(id) => Value::Object(self.fields(schema, id, depth)),
            Type::StringList => json!([self.text()]),
            Type::FieldsV1 => self.field_set(0),
            Type::RawExtension
            | Type::Json
            | Type::JsonSchemaPropsOrArray
            | Type::JsonSchemaPropsOrBool
            | Type::JsonSchemaPropsOrStringArray => self.anything(depth),
        }
    }

    fn field_set(&mut self, depth: usize) -> Value {
        const ELEMENTS: [&str; 14] = [
            "f:metadata",
            "f:labels",
            "f:spec",
            "f:template",
            "f:containers",
            "f:ports",
            "f:app",
            "k:{\"name\":\"a\"}",
            "k:{\"protocol\":\"TCP\",\"port\":80}",
            "v:\"x\"",
            "i:0",
            ".",
            "k:{",
            "x:y",
        ];
        let count = if depth >= DEPTH_MAX { 0 } else { self.below(4) };
        let fields = (0..count).map(|_| {
            let element = self.pick(&ELEMENTS).to_owned();
            (element, self.field_set(depth + 1))
        });
        Value::Object(fields.collect())
    }
}
