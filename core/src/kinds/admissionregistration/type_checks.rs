//! Type checking of a policy's expressions against the kinds that the policy matches. Faults become warnings in the
//! policy's status; they refuse no write.

use super::policies::VARIABLES_MAX;
use crate::cel::Type;
use crate::cel::names;
use crate::cel::types::{Field, ObjectType};
use crate::kinds::expressions::Admission;
use crate::kinds::rules::At;
use crate::kinds::{KindId, Registry, Version};
use crate::refusal::Causes;
use crate::schema::{self, MessageId, Shape, schema};
use holdfast_value::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The maximum number of kinds that a policy is checked against.
const KINDS_MAX: usize = 10;
/// The maximum number of look-ups of kinds for a policy. Its rules may multiply three long lists.
const LOOKUPS_MAX: usize = 10_000;

const METADATA: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The faults of one expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The path of the expression: `spec.validations[0].expression`.
    pub field: String,
    /// The text has one part for each kind that the expression does not fit.
    pub text: String,
}

/// The groups of the kinds in a policy's rules and parameters.
pub fn groups(policy: &Value) -> BTreeSet<String> {
    let rules = policy["spec"]["matchConstraints"]["resourceRules"].as_array().into_iter().flatten();
    let named = rules.filter_map(|rule| rule["apiGroups"].as_array()).flatten().filter_map(Value::as_str);
    let of_parameters = policy["spec"]["paramKind"]["apiVersion"].as_str().and_then(|text| text.split_once('/'));
    named.chain(of_parameters.map(|(group, _)| group)).map(str::to_owned).collect()
}

/// The warnings about a ValidatingAdmissionPolicy.
pub fn check(policy: &Value, registry: &Registry) -> Vec<Warning> {
    let root = At::root(policy);
    let spec = root.get("spec");
    let kinds = kinds(&policy["spec"]["matchConstraints"], registry);
    let parameters = parameters(&policy["spec"]["paramKind"], registry);
    let environments: Vec<(&String, Admission)> =
        kinds.iter().map(|(name, ty)| (name, seen(spec, ty.clone(), parameters.clone()))).collect();
    let mut warnings = Vec::new();
    let validations = spec.get("validations");
    for entry in validations.items() {
        for field in ["expression", "messageExpression"] {
            let at = entry.get(field);
            let faults = environments.iter().map(|(name, seen)| (name, seen.faults(at)));
            let told =
                faults.filter(|(_, faults)| !faults.is_empty()).map(|(name, faults)| format!("{name}: {faults}\n"));
            // An empty line separates the texts of two kinds.
            let text = told.collect::<Vec<_>>().join("\n");
            if !text.is_empty() {
                warnings.push(Warning { field: at.path(), text });
            }
        }
    }
    warnings
}

/// The type of a policy's parameters; `None` if the policy has no parameters, or if their kind does not exist.
fn parameters(kind: &Value, registry: &Registry) -> Option<Type> {
    let text = |field: &str| kind[field].as_str().unwrap_or("");
    kind.as_object()?;
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    let (id, index) = registry.find_kind(group, version, text("kind"))?;
    Some(type_of(&registry.get(id).versions[index]))
}

fn seen(spec: At, object: Type, parameters: Option<Type>) -> Admission {
    let mut seen = Admission::of_types(object, parameters);
    for variable in spec.get("variables").items().take(VARIABLES_MAX) {
        // A fault in a variable is reported by the expressions that use the variable.
        seen.variable(variable.get("name").text(), variable.get("expression"), &mut Causes::default());
    }
    seen
}

/// The kinds that rules name without wildcards, as shown to users, and their types.
fn kinds(constraints: &Value, registry: &Registry) -> Vec<(String, Type)> {
    let (mut named, mut lookups) = (BTreeMap::new(), LOOKUPS_MAX);
    for rule in constraints["resourceRules"].as_array().into_iter().flatten() {
        let kinds = kinds_of(rule, registry, &mut lookups);
        let is_enough = kinds.len() >= KINDS_MAX;
        named.extend(kinds.into_iter().take(KINDS_MAX));
        // The policy names enough kinds, so its further rules are not examined.
        if is_enough {
            break;
        }
    }
    let known = |((group, version, kind), (id, index)): ((String, String, _), (KindId, usize))| {
        (format!("{group}/{version}, Kind={kind}"), type_of(&registry.get(id).versions[index]))
    };
    named.into_iter().map(known).collect()
}

/// A kind with its group, version and name, for ordering.
type NamedKind = ((String, String, String), (KindId, usize));

/// The kinds that one rule names, ordered by group, version and resource. A rule with a wildcard for group or version
/// names no kinds; wildcard resources and subresources are skipped.
fn kinds_of(rule: &Value, registry: &Registry, lookups: &mut usize) -> Vec<NamedKind> {
    let texts = |list: &str| -> Vec<&str> {
        let mut texts: Vec<&str> = rule[list].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        texts.sort_unstable();
        texts
    };
    let [groups, versions, resources] = ["apiGroups", "apiVersions", "resources"].map(texts);
    if groups.iter().chain(&versions).any(|text| text.contains('*')) {
        return Vec::new();
    }
    let mut kinds = Vec::new();
    for group in groups {
        // As in Kubernetes' look-up of kinds, the empty group name means any group.
        let within = match group {
            "" => registry.groups().into_iter().map(|served| served.group).collect(),
            _ => vec![group.to_owned()],
        };
        for version in &versions {
            for resource in resources.iter().filter(|resource| !resource.contains(['*', '/'])) {
                if kinds.len() >= KINDS_MAX || *lookups < within.len() {
                    return kinds;
                }
                *lookups -= within.len();
                kinds.extend(within.iter().filter_map(|group| {
                    let (id, index) = registry.find(group, version, resource)?;
                    Some(((group.clone(), (*version).to_owned(), registry.get(id).kind.clone()), (id, index)))
                }));
            }
        }
    }
    kinds
}

/// The type of a version's objects; dynamic if unknown.
fn type_of(version: &Version) -> Type {
    let message = |name: &str| schema().by_name.get(name).map(|id| object(*id, &mut Vec::new()));
    let Some(custom) = &version.custom else { return message(&version.message).unwrap_or(Type::Dyn) };
    match custom.schema().declared().as_ref().map(Type::plain) {
        // The custom resource's own rules can use only `name` and `generateName` of the metadata. Policies can use all
        // of the metadata, so the whole type replaces the declared type.
        Some(Type::Object(declared)) => {
            let (name, ty) = ("metadata".to_owned(), message(METADATA).unwrap_or(Type::Dyn));
            Type::Object(Arc::new(declared.with(Field { json: name.clone(), name, ty })))
        }
        _ => Type::Dyn,
    }
}

/// The type of a message. `within` has the enclosing messages: a message inside itself is dynamic.
fn object(id: MessageId, within: &mut Vec<MessageId>) -> Type {
    if within.contains(&id) {
        return Type::Dyn;
    }
    within.push(id);
    let message = schema().message(id);
    let field = |json: &str, ty: Type| Some(Field { name: names::escape(json)?, json: json.to_owned(), ty });
    let mut fields: Vec<Field> =
        message.fields.iter().filter_map(|known| field(&known.json, shaped(known, within))).collect();
    if message.typed {
        fields.extend(["apiVersion", "kind"].into_iter().filter_map(|json| field(json, Type::String)));
    }
    within.pop();
    Type::Object(Arc::new(ObjectType::new(&message.name, fields)))
}

fn shaped(field: &schema::Field, within: &mut Vec<MessageId>) -> Type {
    let item = match field.ty {
        schema::Type::String | schema::Type::Duration => Type::String,
        schema::Type::Bool => Type::Bool,
        schema::Type::Int32 | schema::Type::Int64 => Type::Int,
        schema::Type::Double => Type::Double,
        schema::Type::Bytes => Type::Bytes,
        schema::Type::Time | schema::Type::MicroTime => Type::Timestamp,
        schema::Type::StringList => Type::list(Type::String),
        schema::Type::Message(id) => object(id, within),
        _ => Type::Dyn,
    };
    match field.shape {
        Shape::Single => item,
        Shape::List => Type::list(item),
        Shape::Map => Type::map(Type::String, item),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::registry;
    use holdfast_value::json;

    fn policy(rules: Value, expression: &str) -> Value {
        json!({"spec": {"matchConstraints": {"resourceRules": rules}, "validations": [
            {"expression": "true"}, {"expression": expression, "messageExpression": "'x'"}],
            "variables": [{"name": "r", "expression": "object.spec.replicas"}]}})
    }

    fn deployments() -> Value {
        json!([{"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"], "operations": ["CREATE"]}])
    }

    #[test]
    fn fields_that_objects_have_not_are_told() {
        let found = check(&policy(deployments(), "object.spec.nothing > 1"), registry());
        let text = "apps/v1, Kind=Deployment: ERROR: <input>:1:12: undefined field 'nothing'\n | object.spec.nothing > 1\n | ...........^\n";
        assert_eq!(found, [Warning { field: "spec.validations[1].expression".into(), text: text.into() }]);
    }

    #[test]
    fn each_kind_that_an_expression_does_not_fit_is_named() {
        let rules = json!([
            {"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]},
            {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods", "configmaps"]}
        ]);
        let found = check(&policy(rules, "object.spec.replicas > 1"), registry());
        let fault = |kind: &str, column: usize, field: &str| {
            let mark = ".".repeat(column - 1) + "^";
            let head = format!("ERROR: <input>:1:{column}: undefined field '{field}'");
            format!("{kind}: {head}\n | object.spec.replicas > 1\n | {}\n", &mark[..])
        };
        let texts: Vec<&str> = found.iter().map(|warning| warning.text.as_str()).collect();
        let [of_maps, of_pods] = [fault("/v1, Kind=ConfigMap", 7, "spec"), fault("/v1, Kind=Pod", 12, "replicas")];
        assert_eq!(texts, [format!("{of_maps}\n{of_pods}")]);
    }

    #[test]
    fn what_fits_is_told_nothing_of() {
        for expression in [
            "object.spec.replicas > 1",
            "variables.r < 3",
            "object.metadata.labels['a'] == 'b'",
            "object.spec.template.spec.containers.all(c, c.image != '')",
            "has(object.metadata.creationTimestamp)",
            "authorizer.path('/x').check('get').allowed()",
        ] {
            assert_eq!(check(&policy(deployments(), expression), registry()), [], "{expression}");
        }
        let open = json!([{"apiGroups": ["*"], "apiVersions": ["v1"], "resources": ["deployments"]}]);
        assert_eq!(check(&policy(open, "object.nothing"), registry()), []);
    }

    /// The kinds that a policy with these rules is checked against.
    fn checked(rules: Value) -> Vec<String> {
        let rules = json!({"resourceRules": rules});
        kinds(&rules, registry()).into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn a_placeholder_among_resources_hides_only_itself() {
        let rule = |group: &str, resources: Value| json!([{"apiGroups": [group], "apiVersions": ["v1"], "resources": resources}]);
        let open = json!(["deployments", "deployments/scale", "*/status", "*"]);
        assert_eq!(checked(rule("apps", open)), ["apps/v1, Kind=Deployment"]);
        assert_eq!(checked(rule("*", json!(["deployments"]))), [""; 0]);
        assert_eq!(checked(rule("", json!(["events"]))), ["/v1, Kind=Event", "events.k8s.io/v1, Kind=Event"]);
    }

    #[test]
    fn one_rule_that_names_many_kinds_is_the_last_that_is_looked_at() {
        let many = json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps", "endpoints",
            "limitranges", "namespaces", "nodes", "persistentvolumeclaims", "persistentvolumes", "pods", "podtemplates",
            "secrets", "services"]});
        let few = deployments()[0].clone();
        let names = checked(json!([few, many, {"apiGroups": ["batch"], "apiVersions": ["v1"], "resources": ["jobs"]}]));
        assert_eq!((names.len(), &*names[9], &*names[10]), (11, "/v1, Kind=Secret", "apps/v1, Kind=Deployment"));
    }

    #[test]
    fn long_lists_of_what_is_not_there_end() {
        let names = |what: &str| (0..3_000).map(|number| format!("{what}{number}")).collect::<Vec<_>>();
        let rule = json!({"apiGroups": names("g"), "apiVersions": names("v"), "resources": names("r")});
        assert_eq!(checked(json!([rule.clone(), rule])), [""; 0]);
    }

    #[test]
    fn parameters_of_a_kind_that_is_not_there_are_not_declared() {
        let mut policy = policy(deployments(), "params.spec.most > 1");
        policy["spec"]["paramKind"] = json!({"apiVersion": "x.example.com/v1", "kind": "Nothing"});
        let [found] = &check(&policy, registry())[..] else { panic!("a warning") };
        let fault = "ERROR: <input>:1:1: undeclared reference to 'params' (in container '')";
        assert!(found.text.contains(fault), "{found:?}");
    }

    /// Objects and authorizers in variables are dynamic, so their fields are not checked. Scalars keep their types.
    #[test]
    fn nothing_is_known_of_an_object_in_a_variable() {
        let mut policy =
            policy(deployments(), "variables.s.nothing > 1 && variables.l[0].nothing && variables.a.nothing");
        policy["spec"]["variables"] = json!([
            {"name": "s", "expression": "object.spec"},
            {"name": "l", "expression": "object.spec.template.spec.containers"},
            {"name": "a", "expression": "authorizer.path('/x')"},
            {"name": "n", "expression": "object.spec.replicas"},
        ]);
        assert_eq!(check(&policy, registry()), []);
        policy["spec"]["validations"][1]["expression"] = json!("variables.n == ''");
        assert_eq!(check(&policy, registry()).len(), 1);
    }

    /// The message JSONSchemaProps contains itself, so its type must be cut.
    #[test]
    fn types_that_hold_themselves_have_an_end() {
        let rules = json!([{"apiGroups": ["apiextensions.k8s.io"], "apiVersions": ["v1"], "resources": ["customresourcedefinitions"]}]);
        let deep = "object.spec.versions.all(v, v.schema.openAPIV3Schema.properties['a'].properties['b'].type == 'x')";
        assert_eq!(check(&policy(rules, deep), registry()), []);
    }
}
