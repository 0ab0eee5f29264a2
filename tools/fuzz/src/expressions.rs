//! Targets for CEL expressions, such as the rules of custom kinds, and for structural schemas.

use super::edges::{DURATIONS, NUMBERS, PATTERNS, QUANTITIES, TEXTS, TIMES};
use super::input::{Choices, document, line, text};
use super::world::{self, World};
use holdfast_core::cel::functions::{Compiled, LIBRARY};
use holdfast_core::cel::{Budget, Environment, Type, Value as Seen, compile};
use holdfast_core::request::Request;
use holdfast_core::schema::structural::Structural;
use holdfast_value::{Value, json};

/// The type of `self` in generated expressions.
fn seen() -> Type {
    let text = || Type::String.sized(50);
    let fields = [
        ("int", Type::Int),
        ("double", Type::Double),
        ("text", text()),
        ("time", Type::Timestamp),
        ("duration", Type::Duration),
        ("ints", Type::list(Type::Int).sized(9)),
        ("texts", Type::list(text()).sized(9)),
        ("labels", Type::map(Type::String, text()).sized(9)),
        ("anything", Type::Dyn),
    ];
    Type::object("self", fields)
}

/// Evaluates the expression in the first line of the input over the document in the rest.
pub fn cel(bytes: &[u8]) {
    let (source, rest) = line(bytes);
    evaluate(&text(source), &document(rest).unwrap_or_else(|| json!({})));
}

/// Evaluates a generated, mostly valid expression over a document of edge values.
pub fn cel_made(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let ty = choices.pick(&[Type::Bool, Type::String, Type::Int, Type::Double, Type::Dyn, Type::Timestamp]);
    let source = Maker { choices: &mut choices, locals: 0 }.expression(&ty, 0);
    let number = |choices: &mut Choices| choices.pick(&NUMBERS);
    let document = json!({
        "int": number(&mut choices),
        "double": choices.pick(&[1e308, -0.0, 1.5, 5e-324]),
        "text": choices.pick(&TEXTS),
        "time": choices.pick(&TIMES),
        "duration": choices.pick(&DURATIONS),
        "ints": [number(&mut choices), number(&mut choices)],
        "texts": [choices.pick(&TEXTS), choices.pick(&QUANTITIES)],
        "labels": {(choices.pick(&TEXTS)): choices.pick(&TEXTS)},
        "anything": choices.anything(8),
    });
    evaluate(&source, &document);
}

fn evaluate(source: &str, document: &Value) {
    const BUDGET: u64 = 100_000;
    let ty = seen();
    let environment = Environment::kubernetes().variable("self", ty.clone());
    let program = match compile(source, &environment) {
        Ok(program) => program,
        Err(faults) => return faults.iter().for_each(|fault| drop(fault.to_string())),
    };
    let estimate = program.estimate();
    assert!(estimate.min <= estimate.max, "an estimate is a range: {source}");
    let Ok(this) = Seen::json(document, &ty) else { return };
    let mut budget = Budget::new(BUDGET);
    let result = program.eval(std::slice::from_ref(&this), &mut budget);
    assert!(budget.left <= BUDGET, "nothing is given back: {source}");
    match result {
        Ok(value) => drop(holdfast_core::cel::functions::as_text(&value)),
        Err(error) => drop(error.to_string()),
    }
}

/// Generates expressions of a given type, using the functions of the language.
struct Maker<'c, 'b> {
    choices: &'c mut Choices<'b>,
    /// The number of variables of enclosing macros; all are integers.
    locals: usize,
}

/// The deepest nesting of generated expressions.
const DEPTH_MAX: usize = 4;

impl Maker<'_, '_> {
    fn expression(&mut self, ty: &Type, depth: usize) -> String {
        if depth >= DEPTH_MAX || self.choices.is_empty() || self.choices.one_in(4) {
            return self.leaf(ty);
        }
        if self.choices.one_in(6) {
            return self.shape(ty, depth + 1);
        }
        let fitting: Vec<&Compiled> = LIBRARY.functions.values().flatten().filter(|row| gives(row, ty)).collect();
        if fitting.is_empty() {
            return self.leaf(ty);
        }
        let number = self.choices.below(fitting.len());
        self.call(fitting[number], ty, depth + 1)
    }

    fn call(&mut self, row: &Compiled, ty: &Type, depth: usize) -> String {
        let open = if matches!(row.result, Type::Param(_)) { ty.clone() } else { Type::Int };
        let arguments: Vec<String> =
            row.parameters.iter().map(|parameter| self.expression(&closed(parameter, &open), depth)).collect();
        match (row.name, arguments.as_slice()) {
            ("-_", [only]) => format!("-({only})"),
            ("!_", [only]) => format!("!({only})"),
            ("_[_]", [list, at]) => format!("({list})[{at}]"),
            ("_[?_]", [list, at]) => format!("({list})[?{at}]"),
            ("@in", [one, many]) => format!("(({one}) in ({many}))"),
            (name, [left, right]) if name.starts_with('_') => {
                format!("(({left}) {} ({right}))", name.trim_matches('_'))
            }
            (name, [this, rest @ ..]) if row.member => format!("({this}).{name}({})", rest.join(", ")),
            (name, all) => format!("{name}({})", all.join(", ")),
        }
    }

    /// Expressions other than function calls: conditions, macros, paths.
    fn shape(&mut self, ty: &Type, depth: usize) -> String {
        let list = self.expression(&Type::list(Type::Int), depth);
        let name = format!("x{}", self.locals);
        self.locals += 1;
        let body = self.expression(if matches!(ty, Type::List(_)) { &Type::Int } else { &Type::Bool }, depth);
        self.locals -= 1;
        match ty {
            Type::Bool => {
                let macros = ["all", "exists", "exists_one"];
                format!("({list}).{}({name}, {body})", self.choices.pick(&macros))
            }
            Type::List(_) => format!("({list}).map({name}, {body})"),
            _ => {
                let condition = self.expression(&Type::Bool, depth);
                let (yes, no) = (self.expression(ty, depth), self.expression(ty, depth));
                format!("(({condition}) ? ({yes}) : ({no}))")
            }
        }
    }

    fn leaf(&mut self, ty: &Type) -> String {
        let choices = &mut *self.choices;
        let quoted = |text: &str| Value::from(text).to_string();
        match ty {
            Type::Int if self.locals > 0 && choices.one_in(2) => format!("x{}", choices.below(self.locals)),
            Type::Int if choices.one_in(3) => "self.int".into(),
            Type::Int => choices.pick(&NUMBERS).to_string(),
            Type::Uint => format!("{}u", choices.pick(&[0, 1, 255, u64::MAX])),
            Type::Double => choices.pick(&["self.double", "1e308", "-0.0", "1.5", "double('NaN')"]).into(),
            Type::Bool => choices.pick(&["true", "false"]).into(),
            Type::String => match choices.below(8) {
                0 => "self.text".into(),
                1 => quoted(choices.pick(&QUANTITIES)),
                2 => quoted(choices.pick(&PATTERNS)),
                3 => quoted(choices.pick(&["%s", "%.1000f", "%.99999999999d", "%d%x%b%%", "%", "é%é"])),
                4 => quoted(choices.pick(&TIMES)),
                _ => quoted(choices.pick(&TEXTS)),
            },
            Type::Bytes => choices.pick(&["b''", "b'a'", "b'\\xff'"]).into(),
            Type::Duration => match choices.one_in(3) {
                true => "self.duration".into(),
                false => format!("duration({})", quoted(choices.pick(&DURATIONS))),
            },
            Type::Timestamp => match choices.below(3) {
                0 => "self.time".into(),
                1 => format!("timestamp({})", choices.pick(&NUMBERS)),
                _ => format!("timestamp({})", quoted(choices.pick(&TIMES))),
            },
            Type::List(item) => {
                let (one, other) = (self.leaf(item), self.leaf(item));
                format!("[{one}, {other}]")
            }
            Type::Map(entry) => {
                let (key, value) = (self.leaf(&entry.0), self.leaf(&entry.1));
                format!("{{{key}: {value}}}")
            }
            Type::Optional(inner) => match choices.one_in(3) {
                true => "optional.none()".into(),
                false => format!("optional.of({})", self.leaf(inner)),
            },
            Type::TypeOf(inner) => format!("type({})", self.leaf(inner)),
            Type::Opaque(name) => match *name {
                "kubernetes.Quantity" => format!("quantity({})", quoted(choices.pick(&QUANTITIES))),
                "kubernetes.Semver" => {
                    format!("semver({})", quoted(choices.pick(&["1.2.3", "0.0.18446744073709551615-a.1", "1"])))
                }
                "kubernetes.URL" => format!("url({})", quoted(choices.pick(&["https://é@h:99999/%C3%A9?a=%", "/a"]))),
                "kubernetes.NamedFormat" => "format.dns1123Label()".into(),
                "net.CIDR" => format!("cidr({})", quoted(choices.pick(&TEXTS))),
                _ => format!("ip({})", quoted(choices.pick(&TEXTS))),
            },
            Type::Null => "null".into(),
            _ => "self.anything".into(),
        }
    }
}

/// Whether a function can return a value of the type.
fn gives(row: &Compiled, ty: &Type) -> bool {
    matches!(row.result, Type::Param(_)) || row.result.to_string() == ty.to_string()
}

/// Replaces the type parameters in `parameter` by the type `open`.
fn closed(parameter: &Type, open: &Type) -> Type {
    match parameter {
        Type::Param(_) => open.clone(),
        Type::List(item) => Type::list(closed(item, open)),
        Type::Map(entry) => Type::map(Type::String, closed(&entry.1, open)),
        Type::Optional(inner) => Type::optional(closed(inner, open)),
        other => other.clone(),
    }
}

/// Reads a schema from the first line of the input, an object from the second line, and the object's old version from
/// the rest.
pub fn structural(bytes: &[u8]) {
    let (schema, rest) = line(bytes);
    let (object, old) = line(rest);
    let (Some(schema), Some(object)) = (document(schema), document(object)) else { return };
    if let Ok(schema) = Structural::parse(&schema) {
        admit(&schema, object.clone(), document(old).as_ref());
    }
    define(&schema, &[object]);
}

/// Uses a generated schema with edge limits and rules, and objects that mostly do not fit it.
pub fn structural_made(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let schema = json!({"type": "object", "properties": {
        "spec": made_schema(&mut choices, 0), "status": made_schema(&mut choices, 3),
    }});
    let objects: Vec<Value> = (0..3)
        .map(|_| json!({"spec": fitting(&mut choices, &schema["properties"]["spec"]), "status": choices.anything(8)}))
        .collect();
    if let Ok(schema) = Structural::parse(&schema) {
        admit(&schema, objects[0].clone(), Some(&objects[1]));
    }
    define(&schema, &objects);
}

fn admit(schema: &Structural, mut object: Value, old: Option<&Value>) {
    schema.validate(&object, old);
    schema.prune(&mut object);
    if schema.apply_defaults(&mut object).is_err() {
        return;
    }
    let mut again = object.clone();
    schema.apply_defaults(&mut again).expect("nothing more is added");
    assert_eq!(again, object, "defaulting twice changes nothing more");
    // Defaults that do not fit the schema are refused when the kind is defined. This function does not check the
    // definition, so the result of `validate` does not matter.
    schema.prune(&mut again);
    schema.validate(&again, old);
}

/// Defines a kind with the schema, and creates the objects one after another.
fn define(schema: &Value, objects: &[Value]) {
    let mut world = world::world();
    let definition = json!({
        "metadata": {"name": "gadgets.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"plural": "gadgets", "kind": "Gadget"},
            "scope": "Namespaced",
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}},
            }],
        },
    });
    let create = "create json apiextensions.k8s.io/v1 customresourcedefinitions -";
    if submit(&mut world, create, &definition).is_none() {
        return;
    }
    for (number, object) in objects.iter().enumerate() {
        let mut object = object.clone();
        if let Value::Object(fields) = &mut object {
            fields.insert("apiVersion", "example.com/v1".into());
            fields.insert("kind", "Gadget".into());
            fields.insert("metadata", json!({"name": "web"}));
        }
        let verb = if number == 0 { "create" } else { "update" };
        submit(&mut world, &format!("{verb} json example.com/v1 gadgets default web"), &object);
        submit(&mut world, "update json example.com/v1 gadgets/status default web", &object);
        submit(&mut world, "patch merge example.com/v1 gadgets default web", &object);
    }
}

fn submit(world: &mut World, line: &str, body: &Value) -> Option<()> {
    let request: Request = world::request(&world.state, line, body.to_string().as_bytes());
    world.submit(&request).ok()
}

fn made_schema(choices: &mut Choices, depth: usize) -> Value {
    let number = |choices: &mut Choices| Value::from(choices.pick(&NUMBERS));
    let mut schema = match choices.below(if depth < 3 { 8 } else { 5 }) {
        0 => {
            let (low, high) = (number(choices), number(choices));
            let factor = choices.pick(&[json!(1), json!(0.1), json!(-1), json!(i64::MIN), json!(1e-300), json!(1e300)]);
            json!({"type": "integer", "minimum": low, "maximum": high, "multipleOf": factor})
        }
        1 => json!({"type": "number", "minimum": -1e308, "exclusiveMinimum": true, "multipleOf": 5e-324}),
        2 => {
            let (low, high) = (number(choices), number(choices));
            json!({"type": "string", "minLength": low, "maxLength": high, "pattern": choices.pick(&PATTERNS)})
        }
        3 => {
            let formats =
                ["byte", "date", "date-time", "duration", "quantity", "ipv4", "cidr", "uuid", "isbn", "creditcard"];
            json!({"type": "string", "format": choices.pick(&formats)})
        }
        4 => json!({"x-kubernetes-int-or-string": true, "maxLength": number(choices)}),
        5 => {
            let (low, high) = (number(choices), number(choices));
            json!({"type": "array", "minItems": low, "maxItems": high, "items": made_schema(choices, depth + 1)})
        }
        6 => {
            json!({"type": "object", "additionalProperties": made_schema(choices, depth + 1), "maxProperties": number(choices)})
        }
        _ => json!({"type": "object", "required": ["é"], "properties": {
            "é": made_schema(choices, depth + 1), "b": made_schema(choices, depth + 1),
        }}),
    };
    if choices.one_in(3) {
        let rule = Maker { choices, locals: 0 }.expression(&Type::Bool, 1).replace("self.", "self.?");
        let rule = choices
            .pick(&[rule.as_str(), "self == oldSelf", "quantity(string(self)).asInteger() > 0", "size(self) < 5"])
            .to_owned();
        schema["x-kubernetes-validations"] = json!([{"rule": rule, "messageExpression": "string(self)"}]);
    }
    if choices.one_in(4) {
        let sample = fitting(choices, &schema);
        schema["default"] = sample;
    }
    schema
}

/// A value of the schema's type. The value may violate the schema's limits.
fn fitting(choices: &mut Choices, schema: &Value) -> Value {
    match schema["type"].as_str() {
        Some("integer") => choices.pick(&NUMBERS).into(),
        Some("number") => choices.pick(&[1e308, -0.0, 1.5, 5e-324, -9.3e18]).into(),
        Some("string") => match choices.below(4) {
            0 => choices.pick(&QUANTITIES).into(),
            1 => choices.pick(&TIMES).into(),
            2 => choices.pick(&DURATIONS).into(),
            _ => choices.text().into(),
        },
        Some("array") => vec![fitting(choices, &schema["items"]), fitting(choices, &schema["items"])].into(),
        Some("object") if schema["properties"].is_object() => {
            let each = &schema["properties"];
            json!({"é": fitting(choices, &each["é"]), "b": fitting(choices, &each["b"])})
        }
        Some("object") => json!({(choices.text()): fitting(choices, &schema["additionalProperties"])}),
        _ => choices.anything(8),
    }
}
