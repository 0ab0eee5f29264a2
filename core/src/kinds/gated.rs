//! Fields and rules that depend on feature gates. While a field's gate is off, the field cannot be newly set, but
//! objects that use the field keep it. A gated rule adds causes to the causes of the kind or removes some of them.

use super::core::{POD_GATED, POD_RULES};
use super::{Kind, registry};
use crate::object::meta::Document;
use crate::refusal::Causes;
use holdfast_value::Value;
use std::collections::BTreeSet;

/// Sets or removes an object's `observedGeneration`.
pub type Observe = fn(&mut Document, Option<i64>);

/// A feature gate, and the fields that depend on the gate.
#[derive(Clone, Copy)]
pub struct Gated {
    pub gate: &'static str,
    fields: Fields,
}

#[derive(Clone, Copy)]
enum Fields {
    /// Several fields, each removed or kept independently of the other fields: `spec.ports[].appProtocol`.
    At(&'static [&'static str]),
    /// Several fields. An object that already uses one of these fields keeps all of them.
    Together(&'static [&'static str]),
    /// Like [`Fields::Together`], but an object that becomes empty is removed with its last field.
    Wholly(&'static [&'static str]),
    /// A function that removes the fields which a new object sets. Its arguments are the new and the old object.
    By(fn(&mut Value, Option<&Value>)),
}

impl Gated {
    /// Declares the fields at these paths, each removed or kept independently of the other fields. `[]` means every
    /// item of a list, `{}` every value of a map.
    pub const fn fields(gate: &'static str, at: &'static [&'static str]) -> Gated {
        Gated { gate, fields: Fields::At(at) }
    }

    /// Declares fields that have a meaning only together.
    pub const fn together(gate: &'static str, at: &'static [&'static str]) -> Gated {
        Gated { gate, fields: Fields::Together(at) }
    }

    /// Declares fields that may be an object's only content. If they are removed and the object is empty then, the
    /// object is removed as well.
    pub const fn wholly(gate: &'static str, at: &'static [&'static str]) -> Gated {
        Gated { gate, fields: Fields::Wholly(at) }
    }

    pub const fn by(gate: &'static str, drop: fn(&mut Value, Option<&Value>)) -> Gated {
        Gated { gate, fields: Fields::By(drop) }
    }

    fn drop(&self, new: &mut Value, old: Option<&Value>) {
        match self.fields {
            Fields::By(drop) => drop(new, old),
            Fields::At(places) => {
                let is_used = |place: &str| old.is_some_and(|old| is_set(old, place));
                places.iter().filter(|place| !is_used(place)).for_each(|place| _ = remove(new, place, false));
            }
            Fields::Together(places) | Fields::Wholly(places) => {
                let wholly = matches!(self.fields, Fields::Wholly(_));
                if !old.is_some_and(|old| places.iter().any(|place| is_set(old, place))) {
                    places.iter().for_each(|place| _ = remove(new, place, wholly));
                }
            }
        }
    }

    /// Whether the object contains a field that may have to be removed.
    fn concerns(&self, new: &Value) -> bool {
        let places = self.places();
        places.is_empty() || places.iter().any(|place| is_there(new, place))
    }

    /// The paths of the fields; empty if a function removes the fields.
    fn places(&self) -> &'static [&'static str] {
        match self.fields {
            Fields::At(places) | Fields::Together(places) | Fields::Wholly(places) => places,
            Fields::By(_) => &[],
        }
    }
}

/// A rule that depends on feature gates.
#[derive(Clone, Copy)]
pub struct GatedRule {
    pub gates: &'static [&'static str],
    pub judge: fn(&Judging<'_>, &mut Causes),
}

/// The object that a gated rule judges, and the gates that are off.
pub struct Judging<'a> {
    pub new: &'a Value,
    pub old: Option<&'a Value>,
    /// The path of the value: empty for the whole object, `spec.template.spec` for a pod spec.
    path: String,
    off: &'a BTreeSet<&'static str>,
}

impl Judging<'_> {
    pub fn is_on(&self, gate: &str) -> bool {
        !self.off.contains(gate)
    }

    /// The path of a field, as causes show it.
    pub fn at(&self, field: &str) -> String {
        if self.path.is_empty() { field.to_owned() } else { format!("{}.{field}", self.path) }
    }
}

impl Kind {
    /// Removes fields whose gates are off, unless the old object uses them.
    pub fn drop_gated(&self, new: &mut Value, old: Option<&Value>, off: &BTreeSet<&'static str>) {
        // Most objects contain no gated field. Leaving them unchanged lets them share parts with the stored object.
        for gated in self.writes.gated.iter().filter(|gated| off.contains(gated.gate)) {
            if gated.concerns(new) {
                gated.drop(new, old);
            }
        }
        let Some(at) = self.content.pods_at else { return };
        let old = old.and_then(|old| old.pointer(at));
        // Pods have many gates and few of them are off, so the loop goes over the gates that are off.
        for gate in off {
            if let Ok(found) = POD_GATED.binary_search_by_key(gate, |gated| gated.gate)
                && new.pointer(at).is_some_and(|spec| POD_GATED[found].concerns(spec))
                && let Some(spec) = new.pointer_mut(at)
            {
                POD_GATED[found].drop(spec, old);
            }
        }
    }
}

impl Kind {
    /// Lets the gated rules add causes or remove some of them.
    pub fn judge_gated(&self, new: &Value, old: Option<&Value>, off: &BTreeSet<&'static str>, causes: &mut Causes) {
        let whole = Judging { new, old, path: String::new(), off };
        self.rules.gated.iter().for_each(|rule| (rule.judge)(&whole, causes));
        let Some(at) = self.content.pods_at else { return };
        let Some(spec) = new.pointer(at) else { return };
        let path = at.trim_start_matches('/').replace('/', ".");
        let pod = Judging { new: spec, old: old.and_then(|old| old.pointer(at)), path, off };
        POD_RULES.iter().for_each(|rule| (rule.judge)(&pod, causes));
    }
}

/// Feature gates that the core checks elsewhere than in gated fields and gated rules.
pub const SERVER_GATES: &[&str] = &[
    "ClearingNominatedNodeNameAfterBinding",
    "PodLogsQuerySplitStreams",
    "ServiceAccountNodeAudienceRestriction",
    "TokenRequestServiceAccountUIDValidation",
];

/// The feature gates on which fields and rules of built-in kinds depend, and [`SERVER_GATES`].
pub fn field_gates() -> BTreeSet<&'static str> {
    let of_kinds = registry().iter().flat_map(|(_, kind)| kind.writes.gated);
    let observed = registry().iter().filter_map(|(_, kind)| kind.writes.observe);
    let rules = registry().iter().flat_map(|(_, kind)| kind.rules.gated).chain(POD_RULES);
    let fields = of_kinds.chain(POD_GATED).map(|gated| gated.gate);
    let others = observed.map(|(gate, _)| gate).chain(rules.flat_map(|rule| rule.gates).copied());
    fields.chain(others).chain(SERVER_GATES.iter().copied()).collect()
}

/// The first step of a path, and the rest of it.
fn split(path: &str) -> (&str, Option<&str>) {
    path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)))
}

/// Whether a non-null value is at a path.
fn is_set(value: &Value, path: &str) -> bool {
    any(value, path, |found| !found.is_null())
}

/// Whether any value, null included, is at a path.
fn is_there(value: &Value, path: &str) -> bool {
    any(value, path, |_| true)
}

/// Whether a value at the path satisfies `is_wanted`.
fn any(value: &Value, path: &str, is_wanted: fn(&Value) -> bool) -> bool {
    let (step, rest) = split(path);
    let deeper = |value: &Value| rest.map_or_else(|| is_wanted(value), |rest| any(value, rest, is_wanted));
    match (step.strip_suffix("[]"), step.strip_suffix("{}")) {
        (Some(list), _) => value[list].as_array().is_some_and(|items| items.iter().any(deeper)),
        (_, Some(map)) => value[map].as_object().is_some_and(|fields| fields.values().any(deeper)),
        _ => value.get(step).is_some_and(deeper),
    }
}

/// Removes the value at a path; returns whether there was one. `wholly` also removes objects that become empty.
fn remove(value: &mut Value, path: &str, wholly: bool) -> bool {
    let (step, rest) = split(path);
    let Some(rest) = rest else {
        return value.as_object_mut().is_some_and(|fields| fields.remove(step).is_some());
    };
    let below = |value: &mut Value| remove(value, rest, wholly);
    if let Some(list) = step.strip_suffix("[]") {
        let items = value.get_mut(list).and_then(Value::as_array_mut);
        return items.into_iter().flatten().map(below).filter(|removed| *removed).count() > 0;
    }
    if let Some(map) = step.strip_suffix("{}") {
        let fields = value.get_mut(map).and_then(Value::as_object_mut);
        let values = fields.into_iter().flat_map(|fields| fields.values_mut());
        return values.map(below).filter(|removed| *removed).count() > 0;
    }
    let Some(found) = value.get_mut(step) else { return false };
    let any = below(found);
    if any && wholly && found.as_object().is_some_and(|fields| fields.is_empty()) {
        value.as_object_mut().map(|fields| fields.remove(step));
    }
    any
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{MessageId, Shape, Type, schema};
    use holdfast_value::json;

    #[test]
    fn gates_of_pods_are_found_by_their_names() {
        assert!(POD_GATED.is_sorted_by(|a, b| a.gate < b.gate));
    }

    #[test]
    fn fields_go_where_nobody_uses_them_yet() {
        let gated = Gated::fields("G", &["spec.ports[].appProtocol", "spec.one"]);
        let service = |protocol: Value, one: Value| {
            let mut service = json!({"spec": {"ports": [{"port": 1}, {"port": 2}], "two": 2}});
            if !protocol.is_null() {
                service["spec"]["ports"][1]["appProtocol"] = protocol;
            }
            if !one.is_null() {
                service["spec"]["one"] = one;
            }
            service
        };
        let after = |old: Option<&Value>| {
            let mut new = service(json!("http"), json!(1));
            gated.drop(&mut new, old);
            new
        };
        assert_eq!(after(None), service(Value::Null, Value::Null));
        assert_eq!(after(Some(&service(Value::Null, json!(3)))), service(Value::Null, json!(1)));
        assert_eq!(after(Some(&service(json!("h2"), Value::Null))), service(json!("http"), Value::Null));
        let gated = Gated::together("G", &["spec.ports[].appProtocol", "spec.one", "spec.map{}.deep"]);
        let mut new = service(json!("http"), json!(1));
        new["spec"]["map"] = json!({"a": {"deep": 1, "other": 2}});
        let kept = new.clone();
        gated.drop(&mut new, Some(&json!({"spec": {"map": {"b": {"deep": 3}}}})));
        assert_eq!(new, kept);
        gated.drop(&mut new, Some(&json!({"spec": {"map": {"b": {"other": 3}}}})));
        let mut bare = service(Value::Null, Value::Null);
        bare["spec"]["map"] = json!({"a": {"other": 2}});
        assert_eq!(new, bare);
    }

    #[test]
    fn what_held_nothing_else_goes_with_it() {
        let gated = Gated::wholly("G", &["list[].outer.inner", "other[].outer.inner"]);
        let new = json!({"list": [{"outer": {"inner": 1}}, {"outer": {"inner": 1, "kept": 2}}, {"outer": {}}]});
        let mut dropped = new.clone();
        gated.drop(&mut dropped, None);
        assert_eq!(dropped, json!({"list": [{}, {"outer": {"kept": 2}}, {"outer": {}}]}));
        let mut kept = new.clone();
        gated.drop(&mut kept, Some(&json!({"other": [{"outer": {"inner": 3}}]})));
        assert_eq!(kept, new);
    }

    #[test]
    fn what_holds_no_such_field_goes_on_sharing() {
        let spec = json!({"containers": [{"name": "a", "lifecycle": {"preStop": {}}}], "volumes": [{"projected": {}}]});
        let gates = field_gates();
        for (kind, path) in [("Pod", "/spec"), ("Deployment", "/spec/template/spec")] {
            let (_, kind) = registry().iter().find(|(_, found)| found.kind == kind).expect(kind);
            let old = match path {
                "/spec" => json!({"spec": spec}),
                _ => json!({"spec": {"template": {"spec": spec}}}),
            };
            let mut new = old.clone();
            kind.drop_gated(&mut new, Some(&old), &gates);
            let fields = |document: &Value| document.as_object().cloned().unwrap_or_default();
            assert!(fields(&new).is_same(&fields(&old)), "{}", kind.kind);
        }
    }

    fn leads(message: MessageId, path: &str) -> bool {
        let (step, rest) = split(path);
        let of = |suffix: &str, shape: Shape| step.strip_suffix(suffix).map(|name| (name, shape));
        let (name, shape) = of("[]", Shape::List).or_else(|| of("{}", Shape::Map)).unwrap_or((step, Shape::Single));
        let Some(field) = schema().message(message).field(name) else { return false };
        match (rest, field.ty) {
            (None, _) => true,
            (Some(rest), Type::Message(message)) => field.shape == shape && leads(message, rest),
            (Some(_), _) => false,
        }
    }

    /// Checks that each path leads to a field, because a wrong path would remove nothing.
    #[test]
    fn every_path_leads_to_a_field() {
        for (_, kind) in registry().iter() {
            let message = schema().id(&kind.hub().message);
            for gated in kind.writes.gated {
                for place in gated.places() {
                    let message = message.expect("built-in kinds have a type");
                    assert!(leads(message, place), "{} {place}", kind.kind);
                }
            }
        }
        let pod = schema().id("io.k8s.api.core.v1.PodSpec").expect("pods");
        for gated in POD_GATED {
            for place in gated.places() {
                assert!(leads(pod, place), "pod {place}");
            }
        }
    }

    /// The causes for an object while some gates are off.
    fn held(kind: &str, off: &[&'static str], new: &Value, old: Option<&Value>) -> Vec<String> {
        let (_, kind) = registry().iter().find(|(_, found)| found.kind == kind).expect("a kind");
        let mut causes = kind.judge_metadata(new.as_object().expect("an object"), None);
        causes.append(kind.rules.validate.map(|rule| rule(new, old)).unwrap_or_default());
        kind.judge_gated(new, old, &off.iter().copied().collect(), &mut causes);
        causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
    }

    #[test]
    fn rules_hang_on_gates() {
        let metadata = || json!({"name": "a", "namespace": "n"});
        let autoscaler = |least: i64, metrics: Value| {
            let target = json!({"kind": "Deployment", "name": "a", "apiVersion": "apps/v1"});
            json!({"metadata": metadata(), "spec": {"minReplicas": least, "maxReplicas": 2, "scaleTargetRef": target,
                "metrics": metrics}})
        };
        let external = || {
            let target = json!({"type": "Value", "value": "1"});
            json!([{"type": "External", "external": {"metric": {"name": "m"}, "target": target}}])
        };
        let service = |name: &str, protocol: &str| {
            json!({"metadata": {"name": name, "namespace": "n"}, "spec": {"type": "ClusterIP", "sessionAffinity": "None",
                "internalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
                "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"],
                "ports": [{"port": 1, "targetPort": 1, "protocol": protocol}]}})
        };
        let too_few = "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1";
        let of_what = "spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to \
                       zero replicas";
        let (zero, name, sctp) = ("HPAScaleToZero", "RelaxedServiceNameValidation", "SCTPSupport");
        let hpa = "HorizontalPodAutoscaler";
        assert_eq!(held(hpa, &[zero], &autoscaler(0, external()), None), [too_few]);
        assert_eq!(held(hpa, &[], &autoscaler(0, external()), None), [""; 0]);
        assert_eq!(held(hpa, &[], &autoscaler(0, json!([])), None), [of_what]);
        let below = "spec.minReplicas: Invalid value: -1: must be greater than or equal to 0";
        assert_eq!(held(hpa, &[], &autoscaler(-1, json!([])), None), [below]);

        assert!(held("Service", &[name], &service("1a", "TCP"), None)[0].contains("a DNS-1035 label must"));
        assert_eq!(held("Service", &[], &service("1a", "TCP"), None), [""; 0]);
        assert!(held("Service", &[], &service("1-", "TCP"), None)[0].contains("a lowercase RFC 1123 label must"));
        let unknown = "spec.ports[0].protocol: Unsupported value: \"SCTP\": supported values: \"TCP\", \"UDP\"";
        assert_eq!(held("Service", &[sctp], &service("a", "SCTP"), None), [unknown]);
        assert_eq!(held("Service", &[sctp], &service("a", "SCTP"), Some(&service("a", "SCTP"))), [""; 0]);
    }

    #[test]
    fn rules_of_pods_hold_wherever_pods_are() {
        let rules = json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}]);
        let container = json!({"name": "c", "image": "i", "restartPolicy": "Never", "restartPolicyRules": rules,
            "terminationMessagePolicy": "File", "imagePullPolicy": "Always"});
        let spec = json!({"containers": [container], "restartPolicy": "Always", "dnsPolicy": "Default", "hostUsers": false,
            "hostNetwork": true, "terminationGracePeriodSeconds": 30});
        let template = json!({"metadata": {"name": "a", "namespace": "n"},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": spec}});
        let (all, network) = ("RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport");
        assert_eq!(held("PodTemplate", &[], &template, None), [""; 0]);
        let expected = [
            "template.spec.hostNetwork: Forbidden: when `hostUsers` is false",
            "template.spec.containers[0].restartPolicyRules[0].action: Unsupported value: \"RestartAllContainers\": \
             supported values: \"Restart\"",
        ];
        assert_eq!(held("PodTemplate", &[all, network], &template, None), expected);
        assert_eq!(held("PodTemplate", &[all], &template, Some(&template)), [""; 0]);
    }

    #[test]
    fn suspended_jobs_change_more() {
        let template = |cpu: &str, node: &str| {
            let container = json!({"name": "c", "image": "i", "resources": {"limits": {"cpu": cpu}},
                "terminationMessagePolicy": "File", "imagePullPolicy": "Always"});
            json!({"metadata": {"labels": {"job-name": "a"}}, "spec": {"containers": [container], "dnsPolicy": "Default",
                "restartPolicy": "Never", "terminationGracePeriodSeconds": 30, "nodeSelector": {"n": node}}})
        };
        let job = |template: Value| {
            let conditions = json!([{"type": "Suspended", "status": "True"}]);
            json!({"metadata": {"name": "a", "namespace": "n"},
                "spec": {"suspend": true, "template": template, "parallelism": 1, "completions": 1, "backoffLimit": 1,
                    "completionMode": "NonIndexed", "selector": {"matchLabels": {"job-name": "a"}}, "manualSelector": true},
                "status": {"startTime": "2026-01-01T00:00:00Z", "conditions": conditions}})
        };
        let old = job(template("1", "x"));
        let (resources, placement) =
            ("MutablePodResourcesForSuspendedJobs", "MutableSchedulingDirectivesForSuspendedJobs");
        for (cpu, node, off, is_held) in [
            ("1", "y", &[resources, placement][..], true),
            ("1", "y", &[resources], false),
            ("2", "x", &[resources], true),
            ("2", "x", &[placement], false),
            ("2", "y", &[placement], true),
            ("2", "y", &[], false),
        ] {
            let found = held("Job", off, &job(template(cpu, node)), Some(&old));
            assert_eq!(!found.is_empty(), is_held, "{cpu} {node} {off:?}: {found:?}");
        }
        let mut running = old.clone();
        running["status"]["active"] = 1.into();
        assert!(!held("Job", &[], &job(template("2", "x")), Some(&running)).is_empty());
    }
}
