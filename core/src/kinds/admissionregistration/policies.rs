//! Validation of admission policies and their bindings.

use super::matching::{conditions, need_expression, parameter, parameter_kind, resources};
use super::validate::{FAILURE_POLICIES, REINVOCATION_POLICIES};
use crate::cel::Type;
use crate::kinds::expressions::Admission;
use crate::kinds::rules::{At, distinct, named, same};
use crate::kinds::shapes::{conditions as status_conditions, count, distinct_items, exactly_one_of, texts};
use crate::object::names;
use crate::refusal::{Cause, Causes};
use holdfast_value::Value;

const REASONS: &[&str] = &["Forbidden", "Invalid", "RequestEntityTooLarge"];
const ACTIONS: &[&str] = &["Audit", "Deny", "Warn"];
const MUTABLE: &[&str] = &["*", "CONNECT", "CREATE", "UPDATE"];
/// The maximum number of variables of a policy. Each variable is type-checked together with all variables before it,
/// and its evaluation may depend on them.
pub(super) const VARIABLES_MAX: usize = 256;
const ANNOTATIONS_MAX: usize = 20;
const ANNOTATION_BYTES_MAX: usize = 5 * 1024;
/// Reserved words of CEL, which cannot be names of variables.
const RESERVED: &[&str] = &[
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

pub fn validating(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let spec = root.get("spec");
    common(spec, old, &mut causes);
    let (validations, annotations) = (spec.get("validations"), spec.get("auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        for list in [validations, annotations] {
            causes.push(list.required("validations or auditAnnotations must contain at least one item"));
        }
    }
    for entry in validations.items() {
        validation(entry, &mut causes);
    }
    // An unchanged spec is not validated again, so that metadata can still be changed.
    if old.is_none_or(|old| !same(&old["spec"], &new["spec"])) {
        let parameters = spec.get("paramKind").is_set();
        let seen = match spec.get("variables").is_empty() {
            true => Admission::new(parameters),
            false => seen(spec, &mut causes),
        };
        for entry in validations.items() {
            seen.expression(entry.get("expression"), &[Type::Bool], &mut causes);
            seen.expression(entry.get("messageExpression"), &[Type::String], &mut causes);
        }
        for entry in annotations.items() {
            seen.expression(entry.get("valueExpression"), &[Type::String, Type::Null], &mut causes);
        }
    }
    if count(annotations) > ANNOTATIONS_MAX {
        causes.push(annotations.invalid(&format!("must not have more than {ANNOTATIONS_MAX} auditAnnotations")));
    }
    distinct(annotations, "key", &mut causes);
    for annotation in annotations.items() {
        let (key, value) = (annotation.get("key"), annotation.get("valueExpression"));
        let whole = Value::from(format!("{}/{}", new["metadata"]["name"].as_str().unwrap_or(""), key.text()));
        named(key.holding(&whole), names::qualified_name, &mut causes);
        need_expression(value, "valueExpression is not specified", &mut causes);
        if value.text().trim().len() > ANNOTATION_BYTES_MAX {
            causes.push(value.required(&format!("must not exceed {ANNOTATION_BYTES_MAX} bytes in length")));
        }
    }
    in_order(&mut causes);
    causes
}

/// As in Kubernetes, faults are sorted by entry, with rules and expressions of an entry together.
fn in_order(causes: &mut [Cause]) {
    const SECTIONS: [&str; 4] = ["spec.variables[", "spec.validations[", "spec.auditAnnotations[", "spec.mutations["];
    causes.sort_by_key(|cause| {
        let entry = SECTIONS.iter().enumerate().find_map(|(section, start)| {
            let rest = cause.field.strip_prefix(start)?;
            Some((section + 1, rest.split(']').next()?.parse::<usize>().ok()?))
        });
        entry.unwrap_or_default()
    });
}

pub fn mutating(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let spec = root.get("spec");
    common(spec, old, &mut causes);
    operations(spec.get("matchConstraints"), &mut causes);
    let mutations = spec.get("mutations");
    if mutations.is_empty() {
        causes.push(mutations.required("mutations must contain at least one item"));
    }
    for mutation in mutations.items() {
        change(mutation, &mut causes);
    }
    if old.is_none_or(|old| !same(&old["spec"], &new["spec"])) {
        // Unlike in a validating policy, `variables` is declared even if the policy has none.
        let seen = seen(spec, &mut causes);
        for mutation in mutations.items() {
            for form in FORMS.iter().filter(|form| form.name == mutation.get("patchType").text()) {
                seen.change(mutation.get(form.field).get("expression"), (form.gives)(), &mut causes);
            }
        }
    }
    let policy = spec.get("reinvocationPolicy");
    if policy.is_empty() {
        causes.push(policy.required(""));
    } else {
        exactly_one_of(policy, REINVOCATION_POLICIES, &mut causes);
    }
    causes
}

/// Validates the fields that both kinds of policies have.
fn common(spec: At, old: Option<&Value>, causes: &mut Causes) {
    let (failure, kind, constraints) = (spec.get("failurePolicy"), spec.get("paramKind"), spec.get("matchConstraints"));
    if failure.is_set() {
        exactly_one_of(failure, FAILURE_POLICIES, causes);
    } else {
        causes.push(failure.required(""));
    }
    if kind.is_set() {
        parameter_kind(kind, causes);
    }
    if constraints.is_set() {
        resources(constraints, causes);
        let rules = constraints.get("resourceRules");
        if rules.is_empty() {
            causes.push(rules.required(""));
        }
    } else {
        causes.push(constraints.required(""));
    }
    let matching = spec.get("matchConditions");
    let unchanged =
        |old: &Value| &old["spec"]["matchConditions"] == matching.value && &old["spec"]["paramKind"] == kind.value;
    if !old.is_some_and(unchanged) {
        conditions(matching, &Admission::new(kind.is_set()), causes);
    }
    let variables = spec.get("variables");
    if count(variables) > VARIABLES_MAX && old.is_none_or(|old| &old["spec"]["variables"] != variables.value) {
        causes.push(Cause::too_many(variables.path(), count(variables), VARIABLES_MAX));
    }
    for variable in variables.items() {
        let name = variable.get("name");
        if name.text().trim().is_empty() {
            causes.push(name.required("name is not specified"));
        } else if !is_identifier(name.text()) {
            causes.push(name.invalid("must be a valid CEL identifier"));
        }
        need_expression(variable.get("expression"), "expression is not specified", causes);
    }
}

/// Compiles a policy's variables. Returns the environment of the policy's expressions.
fn seen(spec: At, causes: &mut Causes) -> Admission {
    let mut seen = Admission::new(spec.get("paramKind").is_set()).with_variables();
    for variable in spec.get("variables").items().take(VARIABLES_MAX) {
        seen.variable(variable.get("name").text(), variable.get("expression"), causes);
    }
    seen
}

fn is_identifier(name: &str) -> bool {
    crate::kinds::shapes::identifier(name).is_empty() && !RESERVED.contains(&name)
}

fn validation(entry: At, causes: &mut Causes) {
    need_expression(entry.get("expression"), "expression is not specified", causes);
    let (built, message) = (entry.get("messageExpression"), entry.get("message"));
    if !built.is_empty() && built.text().trim().is_empty() {
        causes.push(built.invalid("must be non-empty if specified"));
    }
    if !message.is_empty() && message.text().trim().is_empty() {
        causes.push(message.invalid("must be non-empty if specified"));
    } else if message.text().trim().contains(['\n', '\r']) {
        causes.push(message.invalid("must not contain line breaks"));
    }
    let reason = entry.get("reason");
    if reason.is_set() {
        exactly_one_of(reason, REASONS, causes);
    }
}

/// A form of mutation, as `patchType` names it.
struct Form {
    name: &'static str,
    field: &'static str,
    /// The type that the mutation's expression must return.
    gives: fn() -> Type,
}

const FORMS: &[Form] = &[
    Form { name: "ApplyConfiguration", field: "applyConfiguration", gives: || Type::object("Object", []) },
    Form { name: "JSONPatch", field: "jsonPatch", gives: || Type::list(Type::object("JSONPatch", [])) },
];

/// Reports operations that a mutating policy cannot match, such as DELETE.
fn operations(constraints: At, causes: &mut Causes) {
    let rules = constraints.get("resourceRules");
    for rule in rules.items() {
        for operation in rule.get("operations").items().filter(|operation| !MUTABLE.contains(&operation.text())) {
            causes.push(Cause::not_supported(rules.get("operations").path(), operation.value, MUTABLE));
        }
    }
}

fn change(mutation: At, causes: &mut Causes) {
    let ty = mutation.get("patchType");
    if ty.is_empty() {
        causes.push(ty.required(""));
        return;
    }
    exactly_one_of(ty, &["ApplyConfiguration", "JSONPatch"], causes);
    for Form { name, field, .. } in FORMS {
        let form = mutation.get(field);
        match (ty.text() == *name, form.is_set()) {
            (true, true) => need_expression(form.get("expression"), "", causes),
            (true, false) => {
                causes.push(form.required(&format!("must be specified when patchType is {name}")));
            }
            (false, true) if FORMS.iter().any(|known| known.name == ty.text()) => {
                causes.push(form.invalid(&format!("must not be specified when patchType is {}", ty.text())));
            }
            _ => {}
        }
    }
}

pub fn validating_binding(new: &Value, _: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let spec = root.get("spec");
    binding(spec, &mut causes);
    let actions = spec.get("validationActions");
    for action in actions.items() {
        exactly_one_of(action, ACTIONS, &mut causes);
    }
    distinct_items(actions, &mut causes);
    let wanted = texts(actions);
    if wanted.contains("Deny") && wanted.contains("Warn") {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the API \
                      response and headers serves no purpose)";
        causes.push(actions.invalid(detail));
    }
    if actions.is_empty() {
        causes.push(actions.required("at least one validation action is required"));
    }
    causes
}

pub fn mutating_binding(new: &Value, _: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    binding(root.get("spec"), &mut causes);
    operations(root.get("spec").get("matchResources"), &mut causes);
    causes
}

fn binding(spec: At, causes: &mut Causes) {
    let name = spec.get("policyName");
    if name.is_empty() {
        causes.push(name.required(""));
    } else {
        named(name, names::subdomain, causes);
    }
    if spec.get("paramRef").is_set() {
        parameter(spec.get("paramRef"), causes);
    }
    if spec.get("matchResources").is_set() {
        resources(spec.get("matchResources"), causes);
    }
}

pub fn status(new: &Value, _: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let status = root.get("status");
    let checking = status.get("typeChecking");
    for warning in checking.get("expressionWarnings").items() {
        for field in ["warning", "fieldRef"] {
            let at = warning.get(field);
            if at.text().trim().is_empty() {
                causes.push(at.required(""));
            }
        }
    }
    status_conditions(status.get("conditions"), &mut causes);
    causes
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::{check_part, check_rows, faults};
    use holdfast_value::{Value, json};

    fn constraints() -> Value {
        json!({"resourceRules": [
            {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]})
    }

    #[test]
    fn validating_policies() {
        let good = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": "a"},
            "spec": {
                "matchConstraints": constraints(), "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
                "variables": [{"name": "v", "expression": "1"}],
                "validations": [{"expression": "true", "message": "m"}],
            },
        });
        check_rows(
            &good,
            &[
                (
                    "/spec/failurePolicy",
                    json!("Retry"),
                    "spec.failurePolicy: Unsupported value: \"Retry\": supported val",
                ),
                ("/spec/matchConstraints", Value::Null, "spec.matchConstraints: Required value"),
                (
                    "/spec/matchConstraints/resourceRules",
                    json!([]),
                    "spec.matchConstraints.resourceRules: Required value",
                ),
                ("/spec/matchConstraints/matchPolicy", json!("Near"), "spec.matchConstraints.matchPolicy: Unsupported"),
                (
                    "/spec/matchConstraints/resourceRules/0/resourceNames",
                    json!(["a", "a"]),
                    "spec.matchConstraints.resourceRules[0].resourceNames[1]: Duplicate value: \"a\"",
                ),
                ("/spec/paramKind/apiVersion", json!(""), "spec.paramKind.apiVersion: Required value"),
                (
                    "/spec/paramKind/apiVersion",
                    json!("a/b/c"),
                    "spec.paramKind.apiVersion: Invalid value: \"a/b/c\": une",
                ),
                (
                    "/spec/paramKind/apiVersion",
                    json!("A/v1"),
                    "spec.paramKind.apiVersion: Invalid value: \"A\": a lowerc",
                ),
                (
                    "/spec/paramKind/kind",
                    json!("A b"),
                    "spec.paramKind.kind: Invalid value: \"A b\": may have mixed case",
                ),
                (
                    "/spec/variables/0/name",
                    json!("in"),
                    "spec.variables[0].name: Invalid value: \"in\": must be a valid CEL",
                ),
                ("/spec/variables/0/name", json!(""), "spec.variables[0].name: Required value: name is not specified"),
                (
                    "/spec/variables/0/expression",
                    json!(""),
                    "spec.variables[0].expression: Required value: expression is",
                ),
                (
                    "/spec/validations",
                    json!([]),
                    "spec.validations: Required value: validations or auditAnnotations mus",
                ),
                (
                    "/spec/validations",
                    json!([]),
                    "spec.auditAnnotations: Required value: validations or auditAnnotation",
                ),
                (
                    "/spec/validations/0/expression",
                    json!(" "),
                    "spec.validations[0].expression: Required value: express",
                ),
                (
                    "/spec/validations/0/expression",
                    json!("object.a == nosuch"),
                    "spec.validations[0].expression: Invalid value: \"object.a == nosuch\": compilation failed: ERROR",
                ),
                (
                    "/spec/validations/0/expression",
                    json!("variables.v"),
                    "spec.validations[0].expression: Invalid value: \"variables.v\": must evaluate to bool but got int",
                ),
                ("/spec/validations/0/expression", json!("variables.v == params.data.v"), ""),
                ("/spec/validations/0/expression", json!("authorizer.path('/').check('get').allowed()"), ""),
                (
                    "/spec/validations/0/message",
                    json!(" "),
                    "spec.validations[0].message: Invalid value: \" \": must be",
                ),
                (
                    "/spec/validations/0/message",
                    json!("a\nb"),
                    "spec.validations[0].message: Invalid value: \"a\\nb\": must",
                ),
                (
                    "/spec/validations/0/reason",
                    json!("Gone"),
                    "spec.validations[0].reason: Unsupported value: \"Gone\"",
                ),
                (
                    "/spec/auditAnnotations",
                    json!([{"key": "k", "valueExpression": "1"}, {"key": "k", "valueExpression": "1"}]),
                    "spec.auditAnnotations[1].key: Duplicate value: \"k\"",
                ),
                (
                    "/spec/auditAnnotations",
                    json!([{"key": "k k", "valueExpression": "1"}]),
                    "spec.auditAnnotations[0].key: Invalid value: \"a/k k\": name part must consist of",
                ),
                (
                    "/spec/auditAnnotations",
                    json!([{"key": "k"}]),
                    "spec.auditAnnotations[0].valueExpression: Required value: valueExpression is not specified",
                ),
                (
                    "/spec/matchConditions",
                    json!([{"name": "c", "expression": "true"}, {"name": "c", "expression": "true"}]),
                    "spec.matchConditions[1].name: Duplicate value: \"c\"",
                ),
            ],
        );
        check_part(
            &good,
            "status",
            &[(
                "/status/typeChecking/expressionWarnings",
                json!([{"fieldRef": "spec"}]),
                "status.typeChecking.expressionWarnings[0].warning: Required value",
            )],
        );
    }

    /// `variables` is declared in a mutating policy without variables, but not in a validating policy without
    /// variables.
    #[test]
    fn policies_without_variables() {
        let undeclared = "1:1: undeclared reference to 'variables' (in container '')\n | variables.x\n | ^";
        let unknown = "1:10: undefined field 'x'\n | variables.x\n | .........^";
        let fault = |field: &str, why: &str| {
            format!("spec.{field}: Invalid value: \"variables.x\": compilation failed: ERROR: <input>:{why}")
        };
        for (variables, why) in
            [(Value::Null, undeclared), (json!([]), undeclared), (json!([{"name": "v", "expression": "1"}]), unknown)]
        {
            let mut policy = json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
                "metadata": {"name": "a"},
                "spec": {
                    "matchConstraints": constraints(), "variables": variables,
                    "validations": [{"expression": "variables.x", "messageExpression": "variables.x"}],
                    "auditAnnotations": [{"key": "k", "valueExpression": "variables.x"}],
                },
            });
            let judging = [
                "validations[0].expression",
                "validations[0].messageExpression",
                "auditAnnotations[0].valueExpression",
            ];
            assert_eq!(faults(&policy), judging.map(|field| fault(field, why)), "{variables}");

            policy["apiVersion"] = "admissionregistration.k8s.io/v1beta1".into();
            policy["kind"] = "MutatingAdmissionPolicy".into();
            policy["spec"] = json!({"matchConstraints": constraints(), "reinvocationPolicy": "Never",
                "variables": variables,
                "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "variables.x"}}]});
            assert_eq!(faults(&policy), [fault("mutations[0].jsonPatch.expression", unknown)], "{variables}");
        }
        // The first variable cannot use other variables.
        let policy = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": "a"},
            "spec": {
                "matchConstraints": constraints(), "validations": [{"expression": "true"}],
                "variables": [{"name": "v", "expression": "variables.x"}],
            },
        });
        assert_eq!(faults(&policy), [fault("variables[0].expression", unknown)]);
    }

    #[test]
    fn variables_are_bounded() {
        for (count, faults) in [(super::VARIABLES_MAX, 0), (super::VARIABLES_MAX + 1, 1)] {
            let chain = (1..count)
                .map(|at| json!({"name": format!("v{at}"), "expression": format!("[variables.v{}]", at - 1)}));
            let variables: Vec<Value> = [json!({"name": "v0", "expression": "1"})].into_iter().chain(chain).collect();
            let mut spec = json!({"matchConstraints": constraints(), "failurePolicy": "Fail", "reinvocationPolicy": "Never",
                "variables": variables, "validations": [{"expression": "true"}], "mutations": [
                {"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'remove', path: '/x'}]"}}]});
            spec["matchConstraints"]["matchPolicy"] = "Equivalent".into();
            let policy = json!({"metadata": {"name": "a"}, "spec": spec});
            for rules in [super::validating, super::mutating] {
                let of_variables = |old| {
                    let causes = rules(&policy, old);
                    causes.iter().filter(|cause| cause.field.starts_with("spec.variables")).count()
                };
                assert_eq!((of_variables(None), of_variables(Some(&policy))), (faults, 0), "{count}");
            }
        }
    }

    #[test]
    fn mutating_policies() {
        let good = json!({
            "apiVersion": "admissionregistration.k8s.io/v1beta1", "kind": "MutatingAdmissionPolicy",
            "metadata": {"name": "a"},
            "spec": {
                "matchConstraints": constraints(), "reinvocationPolicy": "Never",
                "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'remove', path: '/x'}]"}}],
            },
        });
        check_rows(
            &good,
            &[
                (
                    "/spec/mutations/0/jsonPatch/expression",
                    json!(" "),
                    "spec.mutations[0].jsonPatch.expression: Required value",
                ),
                (
                    "/spec/mutations/0/jsonPatch/expression",
                    json!("[]"),
                    "spec.mutations[0].jsonPatch.expression: Invalid value: \"[]\": must evaluate to list(JSONPatch) but got list(dyn)",
                ),
                (
                    "/spec/mutations/0/jsonPatch/expression",
                    json!("[JSONPatch{op: 1}]"),
                    "spec.mutations[0].jsonPatch.expression: Invalid value: \"[JSONPatch{op: 1}]\": compilation failed: ERROR",
                ),
                (
                    "/spec/mutations/0/jsonPatch/expression",
                    json!("[JSONPatch{?value: object.?x, path: '/' + jsonpatch.escapeKey('a/b')}]"),
                    "",
                ),
                (
                    "/spec/matchConstraints/resourceRules/0/operations",
                    json!(["CREATE", "DELETE"]),
                    "spec.matchConstraints.resourceRules.operations: Unsupported value: \"DELETE\": supported values: \"*\"",
                ),
                ("/spec/reinvocationPolicy", json!(""), "spec.reinvocationPolicy: Required value"),
                ("/spec/reinvocationPolicy", json!("Always"), "spec.reinvocationPolicy: Unsupported value: \"Always\""),
                (
                    "/spec/mutations",
                    json!([]),
                    "spec.mutations: Required value: mutations must contain at least one item",
                ),
                (
                    "/spec/mutations/0/patchType",
                    json!("Merge"),
                    "spec.mutations[0].patchType: Unsupported value: \"Merge",
                ),
                (
                    "/spec/mutations/0/jsonPatch",
                    Value::Null,
                    "spec.mutations[0].jsonPatch: Required value: must be spec",
                ),
                (
                    "/spec/mutations/0/applyConfiguration",
                    json!({"expression": "1"}),
                    "spec.mutations[0].applyConfiguration: Invalid value: {\"expression\":\"1\"}: must not be specified",
                ),
            ],
        );
    }

    #[test]
    fn bindings() {
        let good = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": "a"},
            "spec": {
                "policyName": "p", "validationActions": ["Deny"],
                "paramRef": {"name": "q", "parameterNotFoundAction": "Deny"},
            },
        });
        check_rows(
            &good,
            &[
                ("/spec/policyName", json!(""), "spec.policyName: Required value"),
                (
                    "/spec/validationActions",
                    json!([]),
                    "spec.validationActions: Required value: at least one validation",
                ),
                (
                    "/spec/validationActions",
                    json!(["Deny", "Warn"]),
                    "spec.validationActions: Invalid value: [\"Deny\",\"W",
                ),
                (
                    "/spec/validationActions",
                    json!(["Deny", "Deny"]),
                    "spec.validationActions[1]: Duplicate value: \"Den",
                ),
                (
                    "/spec/validationActions/0",
                    json!("Log"),
                    "spec.validationActions[0]: Unsupported value: \"Log\": supp",
                ),
                (
                    "/spec/paramRef/selector",
                    json!({}),
                    "spec.paramRef.name: Forbidden: name and selector are mutually e",
                ),
                (
                    "/spec/paramRef/name",
                    json!(""),
                    "spec.paramRef: Required value: one of name or selector must be spec",
                ),
                (
                    "/spec/paramRef/parameterNotFoundAction",
                    Value::Null,
                    "spec.paramRef.parameterNotFoundAction: Require",
                ),
                (
                    "/spec/paramRef/parameterNotFoundAction",
                    json!("Go"),
                    "spec.paramRef.parameterNotFoundAction: Unsuppo",
                ),
                ("/spec/matchResources", constraints(), ""),
            ],
        );
        let mut mutating = good;
        mutating["apiVersion"] = json!("admissionregistration.k8s.io/v1beta1");
        mutating["kind"] = json!("MutatingAdmissionPolicyBinding");
        mutating["spec"].as_object_mut().expect("a spec").remove("validationActions");
        check_rows(
            &mutating,
            &[("/spec/policyName", json!("A"), "spec.policyName: Invalid value: \"A\": a lowercase RF")],
        );
    }
}
