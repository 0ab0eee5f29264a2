//! CEL expressions that select devices. Compiled expressions and their results are cached.

use crate::object::Text;
use crate::object::device::{Attribute, Device, Slice};
use holdfast_core::cel::value::{Key, Value};
use holdfast_core::cel::{self, Budget, Environment, Program, Type};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

/// The largest CEL cost of one evaluation; an evaluation that would cost more fails.
const COST: u64 = 1_000_000;

/// How many bytes the sources of all cached expressions may have together.
const SOURCES_MAX: usize = 1 << 20;

/// A cache of the compiled expressions that were used recently.
#[derive(Debug, Default)]
pub(super) struct Expressions {
    cache: Mutex<ExpressionCache>,
    evaluated: AtomicU64,
}

#[derive(Debug, Default)]
struct ExpressionCache {
    /// Each expression by its source, with the number of its last use.
    by_source: HashMap<Text, (Arc<Expression>, u64)>,
    use_number: u64,
    /// The length of all sources in the cache together, in bytes.
    length: usize,
}

impl Expressions {
    /// The compiled expression with this source, and whether it was in the cache.
    pub fn get(&self, source: &Text) -> Result<(Arc<Expression>, bool), String> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.use_number += 1;
        let use_number = cache.use_number;
        if let Some((expression, used)) = cache.by_source.get_mut(source) {
            *used = use_number;
            return Ok((expression.clone(), true));
        }
        let expression = Arc::new(Expression::compile(source)?);
        cache.length += source.len();
        cache.by_source.insert(source.clone(), (expression.clone(), use_number));
        if cache.length > SOURCES_MAX {
            cache.drop_half();
        }
        Ok((expression, false))
    }

    /// The result of an expression for a device of a slice, if the result is cached.
    pub fn cached(&self, expression: &Expression, slice: &Arc<Slice>, device: usize) -> Option<bool> {
        let results = expression.results.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, results) = results.by_slice.get(&Arc::as_ptr(slice).addr())?;
        *results.get(device)?
    }

    /// Evaluates an expression for a device of a slice; returns the result, and the CEL cost of the evaluation. The
    /// result is cached as long as the slice does not change.
    pub fn evaluate(&self, expression: &Expression, slice: &Arc<Slice>, device: usize) -> (Result<bool, String>, u64) {
        self.evaluated.fetch_add(1, Ordering::Relaxed);
        let (holds, cost) = expression.holds(&slice.driver, &slice.devices[device]);
        if let Ok(holds) = holds {
            let mut results = expression.results.lock().unwrap_or_else(PoisonError::into_inner);
            results.put(slice, device, holds);
        }
        (holds, cost)
    }

    /// Like [`Expressions::evaluate`], but the result comes from the cache if possible, and the cost is not returned.
    /// Returns `None` if the evaluation failed.
    pub fn holds(&self, expression: &Expression, slice: &Arc<Slice>, device: usize) -> Option<bool> {
        self.cached(expression, slice, device).or_else(|| self.evaluate(expression, slice, device).0.ok())
    }

    /// How many times expressions were evaluated for devices.
    pub fn evaluated(&self) -> u64 {
        self.evaluated.load(Ordering::Relaxed)
    }
}

impl ExpressionCache {
    /// Drops the least recently used half of the expressions.
    fn drop_half(&mut self) {
        let mut turns: Vec<u64> = self.by_source.values().map(|(_, used)| *used).collect();
        turns.sort_unstable();
        let middle = turns[turns.len() / 2];
        self.by_source.retain(|_, (_, used)| *used > middle);
        self.length = self.by_source.keys().map(|source| source.len()).sum();
    }
}

/// A compiled CEL expression that selects devices.
#[derive(Debug)]
pub struct Expression {
    program: Program,
    /// The string literals in the expression that may be domains of attributes. If a device has no attribute in such a
    /// domain, the expression sees an empty map for the domain, so that an index with the domain is no error.
    domains: Vec<Text>,
    results: Mutex<ResultCache>,
}

/// The cached results of an expression, for each device of each slice.
#[derive(Debug, Default)]
struct ResultCache {
    /// By the address of a slice in memory, the results for the slice's devices. The `Weak` prevents the address from
    /// being used for another slice.
    by_slice: HashMap<usize, (Weak<Slice>, Vec<Option<bool>>)>,
    sweep_at: usize,
}

impl ResultCache {
    fn put(&mut self, slice: &Arc<Slice>, device: usize, holds: bool) {
        if self.by_slice.len() >= self.sweep_at {
            self.by_slice.retain(|_, (slice, _)| slice.strong_count() > 0);
            self.sweep_at = (self.by_slice.len() * 2).max(64);
        }
        let unknown = || (Arc::downgrade(slice), vec![None; slice.devices.len()]);
        let (_, results) = self.by_slice.entry(Arc::as_ptr(slice).addr()).or_insert_with(unknown);
        results[device] = Some(holds);
    }
}

impl Expression {
    fn compile(source: &str) -> Result<Self, String> {
        let environment = Environment::kubernetes().variable("device", Type::map(Type::String, Type::Dyn));
        let faults = |faults: Vec<cel::Fault>| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let program = cel::compile(source, &environment).map_err(faults)?;
        Ok(Expression { program, domains: indexed_domains(source), results: Mutex::default() })
    }

    /// The result of the expression for a device of a driver, and the CEL cost of the evaluation.
    fn holds(&self, driver: &str, device: &Device) -> (Result<bool, String>, u64) {
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
            capacity.entry(domain).or_default().insert(key(name), apply_function(&QUANTITY, &amount.value)?);
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
        Attribute::Version(version) => apply_function(&SEMVER, version)?,
    })
}

static QUANTITY: LazyLock<Option<Program>> = LazyLock::new(|| cel_function("quantity(text)"));
static SEMVER: LazyLock<Option<Program>> = LazyLock::new(|| cel_function("semver(text)"));

fn cel_function(source: &str) -> Option<Program> {
    cel::compile(source, &Environment::kubernetes().variable("text", Type::String)).ok()
}

/// Calls a function of CEL with a string.
fn apply_function<'a>(program: &'a Option<Program>, text: &'a str) -> Result<Value<'a>, String> {
    let program = program.as_ref().ok_or("no such function")?;
    program.eval(&[Value::text(text)], &mut Budget::new(COST)).map_err(|error| error.to_string())
}

/// The string literals that the source uses as an index: `['name']`. Any other use of a domain can only test whether
/// the device has the domain, so a domain that the device does not have must then be absent.
fn indexed_domains(source: &str) -> Vec<Text> {
    let mut found: Vec<Text> = Vec::new();
    let mut rest = source;
    while let Some(start) = rest.find(['\'', '"']) {
        let (before, quote) = (rest[..start].trim_end(), &rest[start..=start]);
        let inner = &rest[start + 1..];
        let Some(end) = inner.find(quote) else { break };
        rest = &inner[end + 1..];
        let opens = before.strip_suffix('?').unwrap_or(before).trim_end().ends_with('[');
        if opens && rest.trim_start().starts_with(']') {
            found.push(inner[..end].into());
        }
    }
    found
}
