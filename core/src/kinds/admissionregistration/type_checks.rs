//! Whether the expressions of a policy fit the objects that it is about: warnings for its status, which forbid nothing.

use super::policies::VARIABLES_MAX;
use crate::cel::Type;
use crate::cel::names;
use crate::cel::types::{Field, ObjectType};
use crate::kinds::expressions::Admission;
use crate::kinds::rules::At;
use crate::kinds::{KindId, Registry, Version};
use crate::schema::{self, MessageId, Shape, schema};
use holdfast_value::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

/// As many kinds as one policy is checked against.
const KINDS_MAX: usize = 10;

const METADATA: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// What is wrong with one expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// `spec.validations[0].expression`
    pub field: String,
    /// A part for each kind that it does not fit.
    pub text: String,
}

/// The groups whose kinds a policy names, in its rules or by its parameters.
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
            // Between two kinds there is an empty line.
            let text = told.collect::<Vec<_>>().join("\n");
            if !text.is_empty() {
                warnings.push(Warning { field: at.path(), text });
            }
        }
    }
    warnings
}

/// What the parameters of a policy are.
fn parameters(kind: &Value, registry: &Registry) -> Option<Type> {
    let text = |field: &str| kind[field].as_str().unwrap_or("");
    kind.as_object()?;
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    let found = registry.find_kind(group, version, text("kind"));
    Some(found.map_or(Type::Dyn, |(id, index)| type_of(&registry.get(id).versions[index])))
}

fn seen(spec: At, object: Type, parameters: Option<Type>) -> Admission {
    let mut seen = Admission::of_types(object, parameters);
    for variable in spec.get("variables").items().take(VARIABLES_MAX) {
        // What is wrong with a variable shows where it is used.
        seen.variable(variable.get("name").text(), variable.get("expression"), &mut Vec::new());
    }
    seen
}

/// The kinds that rules name without placeholders, as people write them, and their types.
fn kinds(constraints: &Value, registry: &Registry) -> Vec<(String, Type)> {
    let texts = |rule: &Value, list: &str| -> Vec<String> {
        rule[list].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut named = BTreeSet::new();
    for rule in constraints["resourceRules"].as_array().into_iter().flatten() {
        let [groups, versions, resources] = ["apiGroups", "apiVersions", "resources"].map(|list| texts(rule, list));
        let is_open = |list: &[String]| list.iter().any(|text| text.contains('*'));
        if is_open(&groups) || is_open(&versions) || is_open(&resources) {
            continue;
        }
        for group in &groups {
            for version in &versions {
                named.extend(resources.iter().filter_map(|resource| {
                    let (id, index) = registry.find(group, version, resource)?;
                    Some(((group.clone(), version.clone(), registry.get(id).kind.clone()), (id, index)))
                }));
            }
        }
    }
    let known = |((group, version, kind), (id, index)): ((String, String, _), (KindId, usize))| {
        (format!("{group}/{version}, Kind={kind}"), type_of(&registry.get(id).versions[index]))
    };
    named.into_iter().take(KINDS_MAX).map(known).collect()
}

/// What is known of the objects of a version; anything where nothing is.
fn type_of(version: &Version) -> Type {
    let message = |name: &str| schema().by_name.get(name).map(|id| object(*id, &mut Vec::new()));
    let Some(custom) = &version.custom else { return message(&version.message).unwrap_or(Type::Dyn) };
    match custom.schema().declared().as_ref().map(Type::plain) {
        // Rules of a schema see no more of metadata than names; policies see all of it.
        Some(Type::Object(declared)) => {
            let (name, ty) = ("metadata".to_owned(), message(METADATA).unwrap_or(Type::Dyn));
            Type::Object(Arc::new(declared.with(Field { json: name.clone(), name, ty })))
        }
        _ => Type::Dyn,
    }
}

/// `within` are the messages that it is a part of: of one that has parts of its own type, anything goes there.
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

    /// Schemas have parts that are schemas.
    #[test]
    fn types_that_hold_themselves_have_an_end() {
        let rules = json!([{"apiGroups": ["apiextensions.k8s.io"], "apiVersions": ["v1"], "resources": ["customresourcedefinitions"]}]);
        let deep = "object.spec.versions.all(v, v.schema.openAPIV3Schema.properties['a'].properties['b'].type == 'x')";
        assert_eq!(check(&policy(rules, deep), registry()), []);
    }
}
