//! Expressions over devices.

use crate::object::Text;
use crate::object::device::{Attribute, Device};
use holdfast_core::cel::value::{Key, Value};
use holdfast_core::cel::{self, Budget, Environment, Program, Type};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::LazyLock;

/// What one expression may cost for one device.
const COST: u64 = 1_000_000;

/// An expression that selects devices.
#[derive(Debug)]
pub struct Expression {
    program: Program,
    /// What might be the domain of an attribute: looking into a domain that a device does not know is no error.
    domains: Vec<Text>,
}

impl Expression {
    pub fn compile(source: &str) -> Result<Self, String> {
        let environment = Environment::kubernetes().variable("device", Type::map(Type::String, Type::Dyn));
        let faults = |faults: Vec<cel::Fault>| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let program = cel::compile(source, &environment).map_err(faults)?;
        Ok(Expression { program, domains: literals(source) })
    }

    /// Whether the expression holds for a device of a driver, and what it cost to find out.
    pub fn holds(&self, driver: &str, device: &Device) -> (Result<bool, String>, u64) {
        let mut budget = Budget::new(COST);
        let holds = self.evaluate(driver, device, &mut budget);
        (holds, COST - budget.left)
    }

    fn evaluate(&self, driver: &str, device: &Device, budget: &mut Budget) -> Result<bool, String> {
        let mut fields = BTreeMap::new();
        fields.insert(key("driver"), Value::text(driver));
        fields.insert(key("allowMultipleAllocations"), Value::Bool(device.shared));
        let mut attributes = self.empty_domains();
        for ((domain, name), value) in &device.attributes {
            attributes.entry(domain).or_default().insert(key(name), attribute(value)?);
        }
        let mut capacity = self.empty_domains();
        for ((domain, name), amount) in &device.capacity {
            capacity.entry(domain).or_default().insert(key(name), run(&QUANTITY, &amount.value)?);
        }
        fields.insert(key("attributes"), nested(attributes));
        fields.insert(key("capacity"), nested(capacity));
        let device = Value::Map(Rc::new(fields));
        match self.program.eval(&[device], budget) {
            Ok(Value::Bool(holds)) => Ok(holds),
            Ok(_) => Err("the expression is neither true nor false".into()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn empty_domains(&self) -> BTreeMap<&str, BTreeMap<Key<'_>, Value<'_>>> {
        self.domains.iter().map(|domain| (&**domain, BTreeMap::new())).collect()
    }
}

fn key(name: &str) -> Key<'_> {
    Key::String(name.into())
}

fn nested<'a>(domains: BTreeMap<&'a str, BTreeMap<Key<'a>, Value<'a>>>) -> Value<'a> {
    let domains = domains.into_iter().map(|(domain, names)| (key(domain), Value::Map(Rc::new(names))));
    Value::Map(Rc::new(domains.collect()))
}

fn attribute(value: &Attribute) -> Result<Value<'_>, String> {
    Ok(match value {
        Attribute::Text(text) => Value::text(&**text),
        Attribute::Int(number) => Value::Int(*number),
        Attribute::Bool(flag) => Value::Bool(*flag),
        Attribute::Version(version) => run(&SEMVER, version)?,
    })
}

static QUANTITY: LazyLock<Option<Program>> = LazyLock::new(|| function("quantity(text)"));
static SEMVER: LazyLock<Option<Program>> = LazyLock::new(|| function("semver(text)"));

fn function(source: &str) -> Option<Program> {
    cel::compile(source, &Environment::kubernetes().variable("text", Type::String)).ok()
}

/// What a function of expressions makes of a text.
fn run<'a>(program: &'a Option<Program>, text: &'a str) -> Result<Value<'a>, String> {
    let program = program.as_ref().ok_or("no such function")?;
    program.eval(&[Value::text(text)], &mut Budget::new(COST)).map_err(|error| error.to_string())
}

/// The plain strings in an expression.
fn literals(source: &str) -> Vec<Text> {
    let mut found: Vec<Text> = Vec::new();
    let mut rest = source;
    while let Some(start) = rest.find(['\'', '"']) {
        let quote = &rest[start..=start];
        let inner = &rest[start + 1..];
        let Some(end) = inner.find(quote) else { break };
        found.push(inner[..end].into());
        rest = &inner[end + 1..];
    }
    found
}
