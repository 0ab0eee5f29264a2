//! Validating and mutating admission policies in CEL, which bindings activate.

mod mutating;
mod patches;
mod validating;

pub(super) use mutating::mutate;
pub(super) use validating::validate;

use super::Attributes;
use super::asked::Documents;
use super::expressions::{ANY, Expression, Fault, Known, Scope, variable};
use super::registered::{Binding, Policy};
use crate::cel::value::{Failure, Key};
use crate::cel::{Budget, Type, Value as CelValue};
use crate::kinds::{Kind, KindId};
use crate::pipeline::effect::Stop;
use crate::select::LabelSelector;
use crate::state::Entry;
use holdfast_value::Value;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// The cost limit for the expressions of one policy with one binding and parameter, and for one mutation.
const COST_MAX: u64 = 10_000_000;

/// The cost limit for all policies and match conditions in one half of a write. Users whom a policy restricts may be
/// able to create any number of parameters, so a limit per parameter is not enough.
const COST_OF_ALL_MAX: u64 = 10 * COST_MAX;

/// A policy with a binding, and with a parameter if the policy has parameters.
struct Invocation<'a> {
    binding: Arc<Binding>,
    parameter: Option<Parameter<'a>>,
}

/// A stored parameter. Its document is parsed only while it is evaluated.
struct Parameter<'a> {
    key: Arc<str>,
    entry: Arc<Entry>,
    kind: &'a Kind,
    version: usize,
}

/// The cost of finding a parameter and of starting its evaluation, in addition to one unit for each of its bytes.
const PARAMETER_COST: u64 = 1_000;

impl Parameter<'_> {
    /// Parsing takes time, as evaluating expressions does, and the authors of parameters choose their size. Therefore
    /// each byte counts as one unit of cost.
    fn document(&self, attributes: &Attributes) -> Result<Value, Stop> {
        attributes.spend(PARAMETER_COST.saturating_add(self.entry.size() as u64), &Budget::new(0))?;
        Ok(self.entry.document_in(self.kind, self.version))
    }
}

impl Attributes<'_> {
    /// Adds the used part of a budget to the total. Above the total limit the write is refused, even if the failure
    /// policy is to ignore faults: otherwise many parameters of one policy could make the server skip another policy.
    pub(super) fn spend(&self, whole: u64, rest: &Budget) -> Result<(), Stop> {
        self.spent.set(self.spent.get().saturating_add(whole.saturating_sub(rest.left)));
        match self.spent.get() > COST_OF_ALL_MAX {
            true => Err(self
                .forbidden("the expressions of all its policies and webhooks together cost too much for one request")),
            false => Ok(()),
        }
    }
}

/// The reason why a policy or one of its bindings cannot be evaluated.
struct Misconfigured {
    binding: Option<Arc<str>>,
    message: String,
}

/// Policies do not apply to policies and bindings, so that a policy cannot lock all users out. They do not apply to the
/// server's own requests either.
fn is_exempt(attributes: &Attributes) -> bool {
    attributes.kind.influence.registers_policies() || attributes.is_upkeep()
}

/// The combinations of bindings and parameters for a policy that matches the write.
fn invocations<'a>(
    attributes: &Attributes<'a>,
    policy: &Policy,
    bindings: Vec<Arc<Binding>>,
) -> (Vec<Invocation<'a>>, Vec<Misconfigured>) {
    let (mut invocations, mut faults) = (Vec::new(), Vec::new());
    if let Some((api_version, kind)) = &policy.parameters
        && parameter_kind(attributes, api_version, kind).is_none()
    {
        let shown = if api_version.contains('/') { api_version.clone() } else { format!("/{api_version}") };
        let shown = shown.trim_start_matches('/');
        let why = format!("failed to find resource referenced by paramKind: '{shown}, Kind={kind}'");
        faults.push(Misconfigured { binding: None, message: format!("failed to configure policy: {why}") });
        return (invocations, faults);
    }
    for binding in bindings {
        if binding.matching.as_ref().is_some_and(|matching| attributes.matches(matching).is_none()) {
            continue;
        }
        match parameters(attributes, policy, &binding) {
            Ok(found) => {
                let invocation = |parameter| Invocation { binding: binding.clone(), parameter };
                invocations.extend(found.into_iter().map(invocation));
            }
            Err(why) => faults.push(Misconfigured {
                binding: Some(binding.name.clone()),
                message: format!("failed to configure binding: {why}"),
            }),
        }
    }
    (invocations, faults)
}

/// The evaluation of a policy's expressions for one write.
struct Evaluation<'v> {
    policy: &'v Policy,
    scope: Scope<'v>,
    /// The variables computed so far. The map is shared only during the evaluation of an expression.
    computed: Rc<BTreeMap<Key<'v>, CelValue<'v>>>,
    budget: Budget,
}

impl<'v> Evaluation<'v> {
    fn new(
        attributes: &Attributes,
        policy: &'v Policy,
        documents: &'v Documents,
        parameter: Option<&'v Value>,
    ) -> Evaluation<'v> {
        let mut scope = attributes.scope(documents);
        scope.parameters = shown_parameter(policy, parameter);
        Evaluation { policy, scope, computed: Rc::default(), budget: Budget::new(COST_MAX) }
    }

    fn eval(&mut self, expression: &'v Expression) -> Result<CelValue<'v>, Fault> {
        self.eval_before(expression, self.policy.variables.len(), false)
    }

    /// Evaluates an expression that may construct changes.
    fn eval_change(&mut self, expression: &'v Expression) -> Result<CelValue<'v>, Fault> {
        self.eval_before(expression, self.policy.variables.len(), true)
    }

    /// Evaluates an expression that can use the first `count` variables.
    fn eval_before(
        &mut self,
        expression: &'v Expression,
        count: usize,
        makes_changes: bool,
    ) -> Result<CelValue<'v>, Fault> {
        let policy = self.policy;
        for (at, (name, of)) in policy.variables[..count].iter().enumerate() {
            if !expression.text.contains(name.as_str()) || self.computed.contains_key(&key(name)) {
                continue;
            }
            let value = self.eval_before(of, at, false).unwrap_or_else(|fault| {
                // If a variable fails, only the expressions that use it fail.
                CelValue::opaque(Failure(format!(
                    "composited variable \"{name}\" fails to evaluate: {}",
                    fault.cause()
                )))
            });
            Rc::make_mut(&mut self.computed).insert(key(name), value);
        }
        let mut scope = self.scope.clone();
        scope.variables = Some(CelValue::Map(self.computed.clone()));
        expression.eval(|| Known { makes_changes, ..known(policy, count) }, &scope, &mut self.budget)
    }
}

/// The value of the variable `params`; `None` if the policy has no parameters.
pub(super) fn shown_parameter<'v>(policy: &Policy, parameter: Option<&'v Value>) -> Option<CelValue<'v>> {
    let shown = parameter.map(|parameter| CelValue::json(parameter, &ANY).unwrap_or(CelValue::Null));
    policy.parameters.is_some().then(|| shown.unwrap_or(CelValue::Null))
}

fn key<'v>(name: &'v str) -> Key<'v> {
    Key::String(name.into())
}

/// The declarations for an expression that can use the first `count` variables.
fn known(policy: &Policy, count: usize) -> Known {
    let typed = policy.variables[..count].iter().enumerate().filter_map(|(at, (name, expression))| {
        let program = expression.program(|| known(policy, at));
        variable(name, program.map_or(Type::Dyn, |program| program.result().clone()))
    });
    Known { has_parameters: policy.parameters.is_some(), variables: Some(typed.collect()), ..Known::default() }
}

fn parameter_kind(attributes: &Attributes, api_version: &str, kind: &str) -> Option<(KindId, usize)> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    attributes.state.registry.find_kind(group, version, kind)
}

/// The parameters that a binding selects; the only item is `None` if the policy has no parameters or the binding refers
/// to none. If the selected parameters do not exist and the binding allows this, the list is empty.
fn parameters<'a>(
    attributes: &Attributes<'a>,
    policy: &Policy,
    binding: &Binding,
) -> Result<Vec<Option<Parameter<'a>>>, String> {
    let reference = &binding.parameters;
    let Some((api_version, kind)) = policy.parameters.as_ref().filter(|_| reference.is_object()) else {
        return Ok(vec![None]);
    };
    let Some((id, version)) = parameter_kind(attributes, api_version, kind) else {
        return Err(format!("paramKind kind `{api_version}, Kind={kind}` not known"));
    };
    let (state, shape) = (attributes.state, attributes.state.kind(id));
    let own = reference["namespace"].as_str().unwrap_or("");
    let namespace = match (shape.is_namespaced(), own, attributes.told_namespace()) {
        (false, "", _) => "",
        (false, ..) => return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".into()),
        (true, "", "") => {
            return Err("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources".into());
        }
        (true, "", of_request) => of_request,
        (true, own, _) => own,
    };
    let of = |key: Arc<str>, entry: &Arc<Entry>| Some(Parameter { key, entry: entry.clone(), kind: shape, version });
    let name = reference["name"].as_str().unwrap_or("");
    let found: Vec<_> = if name.is_empty() {
        let selector = LabelSelector::from_object(&reference["selector"])?;
        let prefix = crate::state::prefix(Some(namespace));
        let all = state.scan(id, &prefix, None);
        let selected = all.filter(|(_, entry)| selector.matches_by(|key| entry.index.label(key)));
        selected.map(|(key, entry)| of(key.clone(), entry)).collect()
    } else {
        let key = crate::object::meta::key(Some(namespace), name);
        state.get(id, &key).map(|entry| of(key.as_str().into(), entry)).into_iter().collect()
    };
    if found.is_empty() && reference["parameterNotFoundAction"] == "Deny" {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".into());
    }
    Ok(found)
}
