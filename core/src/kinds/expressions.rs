//! CEL expressions in admission and device objects: their environments, and their compile errors.
//!
//! Expressions are compiled when an object is validated, so that its author sees the errors. Admission evaluates them.

use super::rules::At;
use crate::cel::functions::kubernetes::authorizer::{AUTHORIZER, RESOURCE_CHECK};
use crate::cel::types::{Field, ObjectType};
use crate::cel::{Environment, Program, Type, compile, names};
use crate::refusal::Causes;
use std::sync::Arc;

/// The environment of expressions about a request, with a policy's variables.
pub(super) struct Admission {
    has_parameters: bool,
    /// The type of `object`, as far as it is checked.
    object: Type,
    /// The fields of `variables`; `None` if `variables` itself is not declared.
    variables: Option<Vec<Field>>,
    /// The type of the variable `params`, if the policy has parameters.
    parameters: Type,
}

impl Admission {
    pub fn new(has_parameters: bool) -> Self {
        Self { has_parameters, object: Type::Dyn, variables: None, parameters: Type::Dyn }
    }

    /// Declares `variables`, which has no fields at first.
    pub fn with_variables(self) -> Self {
        Self { variables: Some(Vec::new()), ..self }
    }

    /// The environment for objects of one type, with parameters of one type.
    pub fn of_types(object: Type, parameters: Option<Type>) -> Self {
        let has_parameters = parameters.is_some();
        let parameters = parameters.unwrap_or(Type::Dyn);
        Self { has_parameters, object, variables: Some(Vec::new()), parameters }
    }

    /// The compile errors of an expression in cel-go's words.
    pub fn faults(&self, at: At) -> String {
        if at.text().trim().is_empty() {
            return String::new();
        }
        let faults = compile(at.text(), &self.environment(true, false)).err().unwrap_or_default();
        faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    /// Adds a variable, which later expressions may use.
    pub fn variable(&mut self, name: &str, expression: At, causes: &mut Causes) {
        let ty = self
            .compile(expression, || self.environment(true, false), causes)
            .map_or(Type::Dyn, |program| kept(program.result()));
        let Some(escaped) = names::escape(name) else { return };
        let variables = self.variables.get_or_insert_default();
        variables.push(Field { name: escaped, json: name.to_owned(), ty });
    }

    /// Checks an expression that must have one of these types.
    pub fn expression(&self, at: At, types: &[Type], causes: &mut Causes) {
        // Only validations may use `authorizer`; message expressions may not.
        self.giving(at, types, || self.environment(types == [Type::Bool], false), causes);
    }

    /// Checks an expression that constructs changes, whose result must have this type.
    pub fn change(&self, at: At, ty: Type, causes: &mut Causes) {
        self.giving(at, &[ty], || self.environment(true, true), causes);
    }

    fn giving(&self, at: At, types: &[Type], environment: impl FnOnce() -> Environment, causes: &mut Causes) {
        let Some(program) = self.compile(at, environment, causes) else { return };
        let found = program.result();
        if types.contains(found) {
            return;
        }
        let wanted = match types {
            [one] => declared_name(one),
            all => format!("one of [{}]", all.iter().map(declared_name).collect::<Vec<_>>().join(" ")),
        };
        causes.push(at.invalid(&format!("must evaluate to {wanted} but got {}", declared_name(found))));
    }

    /// Compiles an expression. `environment` builds the environment only if the expression is not empty, because
    /// building the environment takes long.
    fn compile(&self, at: At, environment: impl FnOnce() -> Environment, causes: &mut Causes) -> Option<Program> {
        if at.text().trim().is_empty() {
            return None;
        }
        compiled(at, &environment(), causes)
    }

    fn environment(&self, may_ask: bool, makes_changes: bool) -> Environment {
        let environment = Environment::kubernetes()
            .variable("object", self.object.clone())
            .variable("oldObject", self.object.clone())
            .variable("request", request())
            .variable("namespaceObject", namespace());
        let environment = match self.has_parameters {
            true => environment.variable("params", self.parameters.clone()),
            false => environment,
        };
        let environment = match may_ask {
            true => environment
                .variable("authorizer", Type::Opaque(AUTHORIZER))
                .variable("authorizer.requestResource", Type::Opaque(RESOURCE_CHECK)),
            false => environment,
        };
        let environment = if makes_changes { environment.with_changes() } else { environment };
        let Some(variables) = &self.variables else { return environment };
        let variables = ObjectType::new("kubernetes.variables", variables.clone());
        environment.variable("variables", Type::Object(Arc::new(variables)))
    }
}

/// The type of a variable for expressions that use the variable. Types of objects and opaque types become dynamic.
fn kept(ty: &Type) -> Type {
    match ty.plain() {
        Type::List(item) => Type::list(kept(item)),
        Type::Map(entry) => Type::map(kept(&entry.0), kept(&entry.1)),
        Type::Null
        | Type::Bool
        | Type::Int
        | Type::Uint
        | Type::Double
        | Type::String
        | Type::Bytes
        | Type::Duration
        | Type::Timestamp => ty.plain().clone(),
        _ => Type::Dyn,
    }
}

/// The full name of a type with its parameters.
fn declared_name(ty: &Type) -> String {
    let name = ty.value_name();
    match ty.plain() {
        Type::List(inner) | Type::Optional(inner) | Type::TypeOf(inner) => format!("{name}({})", declared_name(inner)),
        Type::Map(entry) => format!("{name}({}, {})", declared_name(&entry.0), declared_name(&entry.1)),
        _ => name.to_owned(),
    }
}

/// Checks a CEL expression that selects devices.
pub(super) fn device_selector(at: At, causes: &mut Causes) {
    let by_domain = |ty: Type| Type::map(Type::String, Type::map(Type::String, ty));
    let device = Type::object(
        "kubernetes.DRADevice",
        [
            ("driver", Type::String),
            ("attributes", by_domain(Type::Dyn)),
            ("capacity", by_domain(Type::Opaque("kubernetes.Quantity"))),
            ("allowMultipleAllocations", Type::Bool),
        ],
    );
    let environment = Environment::kubernetes().variable("device", device);
    let Some(program) = compiled(at, &environment, causes) else { return };
    let found = program.result();
    if found != &Type::Bool && !found.is_dyn() {
        causes.push(at.invalid(&format!("must evaluate to bool or the unknown type, not {found}")));
    }
    if program.estimate().max > DEVICE_COST_MAX {
        causes.push(at.forbidden("too complex, exceeds cost limit"));
    }
}

/// The cost limit for one evaluation of a device selector.
const DEVICE_COST_MAX: u64 = 1_000_000;

fn compiled(at: At, environment: &Environment, causes: &mut Causes) -> Option<Program> {
    match compile(at.text(), environment) {
        Ok(program) => Some(program),
        Err(faults) => {
            let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
            causes.push(at.invalid_as(at.text(), &format!("compilation failed: {}", faults.join("\n"))));
            None
        }
    }
}

/// The type of the variable `request`.
pub(crate) fn request() -> Type {
    let texts = |name: &str, fields: [&'static str; 3]| Type::object(name, fields.map(|field| (field, Type::String)));
    let kind = texts("kubernetes.GroupVersionKind", ["group", "version", "kind"]);
    let resource = texts("kubernetes.GroupVersionResource", ["group", "version", "resource"]);
    let user = Type::object(
        "kubernetes.UserInfo",
        [
            ("username", Type::String),
            ("uid", Type::String),
            ("groups", Type::list(Type::String)),
            ("extra", Type::map(Type::String, Type::list(Type::String))),
        ],
    );
    Type::object(
        "kubernetes.AdmissionRequest",
        [
            ("kind", kind.clone()),
            ("resource", resource.clone()),
            ("subResource", Type::String),
            ("requestKind", kind),
            ("requestResource", resource),
            ("requestSubResource", Type::String),
            ("name", Type::String),
            ("namespace", Type::String),
            ("operation", Type::String),
            ("userInfo", user),
            ("dryRun", Type::Bool),
            ("options", Type::Dyn),
        ],
    )
}

/// The type of the variable `namespaceObject`.
pub(crate) fn namespace() -> Type {
    let texts = || Type::map(Type::String, Type::String);
    let metadata = Type::object(
        "kubernetes.NamespaceMetadata",
        [
            ("name", Type::String),
            ("generateName", Type::String),
            ("namespace", Type::String),
            ("labels", texts()),
            ("annotations", texts()),
            ("UID", Type::String),
            ("creationTimestamp", Type::Timestamp),
            ("deletionGracePeriodSeconds", Type::Int),
            ("deletionTimestamp", Type::Timestamp),
            ("generation", Type::Int),
            ("resourceVersion", Type::String),
            ("finalizers", Type::list(Type::String)),
        ],
    );
    let spec = Type::object("kubernetes.NamespaceSpec", [("finalizers", Type::list(Type::String))]);
    let status = Type::object("kubernetes.NamespaceStatus", [("phase", Type::String)]);
    Type::object("kubernetes.Namespace", [("metadata", metadata), ("spec", spec), ("status", status)])
}
