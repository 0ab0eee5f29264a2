//! Reads the answers of extenders, whose fields may have names in any case.

use crate::configuration::extender::Extender;
use crate::object::Text;
use crate::plan::ExtenderResults;
use crate::plugins::default_preemption::Candidate;
use crate::snapshot::Snapshot;
use crate::status::{Code, EXTENDER, Rejection};
use holdfast_value::Value;
use std::collections::BTreeSet;

/// Extenders give scores from 0 to 10, and plug-ins give scores from 0 to 100, so an extender's score is multiplied by
/// this factor.
const SCALE: i64 = 10;
/// The highest score that an extender can give.
const SCORE_MAX: i64 = 10;

/// The value of a field whose name may have any case, as Go's JSON decoder finds it.
fn field<'a>(object: &'a Value, name: &str) -> &'a Value {
    let found = object.as_object().and_then(|fields| fields.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)));
    found.map_or(&Value::Null, |(_, value)| value)
}

/// The error that an extender's answer contains; `None` if the answer contains no error.
pub(super) fn error(body: &Value) -> Option<&str> {
    field(body, "error").as_str().filter(|error| !error.is_empty())
}

/// The fields of an answer; `null` counts as an empty object.
fn fields<'a>(body: &'a Value, what: &str) -> Result<&'a Value, String> {
    let kind = match body {
        Value::Null | Value::Object(_) => return Ok(body),
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
    };
    Err(format!("json: cannot unmarshal {kind} into Go value of type v1.{what}"))
}

/// Reads the answer to a filter request: the nodes that the extender left feasible, in their order.
pub(super) fn filter_result(
    extender: &Extender,
    nodes: &[Text],
    body: &Value,
    extender_results: &mut ExtenderResults,
) -> Result<Vec<Text>, String> {
    let body = fields(body, "ExtenderFilterResult")?;
    if let Some(error) = error(body) {
        return Err(error.to_owned());
    }
    let mut reject = |list: &str, code: Code| {
        for (name, reason) in field(body, list).as_object().into_iter().flatten() {
            let reason = reason.as_str().unwrap_or_default().to_owned();
            extender_results.rejected.insert(name.as_str().into(), Rejection::new(code, EXTENDER, reason));
        }
    };
    reject("failedNodes", Code::Unschedulable);
    reject("failedAndUnresolvableNodes", Code::UnschedulableAndUnresolvable);
    // Only an extender with `nodeCacheCapable`, which is sent only the names of nodes, may answer with names.
    let names = match field(body, "nodeNames") {
        Value::Array(names) if extender.node_cache_capable => names.iter().collect::<Vec<_>>(),
        _ => {
            let items = field(field(body, "nodes"), "items").as_array().into_iter().flatten();
            items.map(|one| &one["metadata"]["name"]).collect()
        }
    };
    let names: BTreeSet<&str> = names.into_iter().map(|name| name.as_str().unwrap_or_default()).collect();
    let left: Vec<Text> = nodes.iter().filter(|name| names.contains(&***name)).cloned().collect();
    match names.into_iter().find(|name| !left.iter().any(|own| **own == **name)) {
        Some(unknown) => {
            let url = &extender.url_prefix;
            let why = "which is not found in the input node list";
            Err(format!("extender \"{url}\" claims a filtered node \"{unknown}\" {why}"))
        }
        None => Ok(left),
    }
}

pub(super) fn score_result(extender: &Extender, body: &Value, extender_results: &mut ExtenderResults) {
    for one in body.as_array().into_iter().flatten() {
        let (Some(node), Some(score)) = (field(one, "host").as_str(), field(one, "score").as_i64()) else { continue };
        let score = score.clamp(0, SCORE_MAX).saturating_mul(SCALE).saturating_mul(extender.weight);
        let sum = extender_results.scores.entry(node.into()).or_default();
        *sum = sum.saturating_add(score);
    }
}

/// The candidates in an extender's answer, each with the victims that the extender names. The extender may add nodes
/// and victims that the request did not contain.
pub(super) fn preempt_result(extender: &Extender, snapshot: &Snapshot, body: &Value) -> Result<Vec<Candidate>, String> {
    let body = fields(body, "ExtenderPreemptionResult")?;
    let mut result = Vec::new();
    for (node, victims) in field(body, "nodeNameToMetaVictims").as_object().into_iter().flatten() {
        let Some(found) = snapshot.node_named(node) else {
            return Err(format!("nodeinfo not found for node name \"{node}\""));
        };
        let mut pods = Vec::new();
        for uid in field(victims, "pods").as_array().into_iter().flatten().filter_map(|one| field(one, "uid").as_str())
        {
            let victim = found.pods.iter().find(|pod| *pod.uid == *uid).ok_or_else(|| {
                let claims = format!("extender: {} claims to preempt pod (UID: {uid})", extender.url_prefix);
                format!("{claims} on node: {node}, but the pod is not found on that node")
            })?;
            pods.push(victim.clone());
        }
        match pods.is_empty() {
            true if extender.ignorable => continue,
            true => return Err(format!("expected at least one victim pod on node \"{node}\"")),
            false => {}
        }
        let violations = field(victims, "numPDBViolations").as_u64().and_then(|count| usize::try_from(count).ok());
        let violations = violations.unwrap_or(0);
        result.push(Candidate { node: found.node.name.clone(), victims: pods, violations });
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Key, Kind};
    use holdfast_value::json;

    #[test]
    fn field_names_of_extender_answers_may_have_any_case() {
        let nodes: Vec<Text> = ["a", "b", "c"].map(Text::from).into();
        let mut extender_results = ExtenderResults::default();
        let extender = Extender { weight: 2, node_cache_capable: true, ..Extender::default() };
        let body = json!({"nodenames": ["c", "a"], "FailedNodes": {"b": "no"}});
        assert_eq!(filter_result(&extender, &nodes, &body, &mut extender_results).unwrap(), ["a".into(), "c".into()]);
        assert_eq!(extender_results.rejected["b"].reasons, ["no"]);
        score_result(&extender, &json!([{"Host": "a", "Score": 3}, {"host": "a", "score": 99}]), &mut extender_results);
        assert_eq!(extender_results.scores["a"], 60 + 200);
        assert_eq!(
            filter_result(&extender, &nodes, &json!({"Error": "down"}), &mut extender_results),
            Err("down".into())
        );
    }

    #[test]
    fn invalid_extender_answers_are_errors() {
        let nodes: Vec<Text> = ["a", "b"].map(Text::from).into();
        let by_name = Extender { url_prefix: "http://e".into(), node_cache_capable: true, ..Extender::default() };
        let whole = Extender { url_prefix: "http://e".into(), ..Extender::default() };
        let filtered = |extender: &Extender, body: Value| {
            filter_result(extender, &nodes, &body, &mut ExtenderResults::default()).map(|left| left.join(" "))
        };
        let unknown = "extender \"http://e\" claims a filtered node \"x\" which is not found in the input node list";
        assert_eq!(filtered(&by_name, json!({"nodeNames": ["a", "x"]})), Err(unknown.into()));
        assert_eq!(filtered(&whole, json!({"nodes": {"items": [{"metadata": {"name": "x"}}]}})), Err(unknown.into()));
        assert_eq!(filtered(&whole, json!({"nodes": {"items": [{"metadata": {"name": "b"}}]}})), Ok("b".into()));
        // An extender without `nodeCacheCapable` is sent whole nodes and must answer with whole nodes.
        assert_eq!(filtered(&whole, json!({"nodeNames": ["a"]})), Ok(String::new()));
        let array = "json: cannot unmarshal array into Go value of type v1.ExtenderFilterResult";
        assert_eq!(filtered(&by_name, json!([1])), Err(array.into()));
        let mut snapshot = Snapshot::new();
        snapshot.apply(Kind::Node, &Key::cluster("a"), Some(&json!({"metadata": {"name": "a"}})));
        let trimmed =
            |extender: &Extender, body: Value| preempt_result(extender, &snapshot, &body).map(|left| left.len());
        let victims = |node: &str, pods: Value| json!({"nodeNameToMetaVictims": {node: {"pods": pods}}});
        let nobody = "expected at least one victim pod on node \"a\"";
        assert_eq!(trimmed(&whole, victims("a", json!([]))), Err(nobody.into()));
        assert_eq!(trimmed(&Extender { ignorable: true, ..whole.clone() }, victims("a", json!([]))), Ok(0));
        assert_eq!(trimmed(&whole, victims("x", json!([]))), Err("nodeinfo not found for node name \"x\"".into()));
        let result = trimmed(&whole, victims("a", json!([{"uid": "u"}]))).unwrap_err();
        assert!(result.ends_with("(UID: u) on node: a, but the pod is not found on that node"), "{result}");
    }
}
