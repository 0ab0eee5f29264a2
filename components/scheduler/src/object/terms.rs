//! Requirements of pods on nodes and other pods: affinity, tolerations, topology spread.

use super::labels::Labels;
use super::selector::{Operator, Requirement, Selector};
use super::{StringPool, Text, items, text};
use holdfast_value::{Value, json};

/// The terms of a node selector. A node matches if at least one term matches.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeSelector(pub Vec<NodeTerm>);

/// The requirements of one term, on a node's labels and on the node's name. A node matches if all requirements hold. A
/// term without requirements matches no node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeTerm {
    pub labels: Vec<Requirement>,
    pub fields: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PreferredNodeTerm {
    pub weight: i64,
    pub term: NodeTerm,
}

/// The weight of a preferred term, which the API keeps between 1 and 100.
fn weight(term: &Value) -> i64 {
    term["weight"].as_i64().unwrap_or(0).clamp(0, 100)
}

impl NodeSelector {
    pub fn decode(pool: &mut StringPool, value: &Value) -> Option<Self> {
        value.is_object().then(|| {
            NodeSelector(items(&value["nodeSelectorTerms"]).map(|term| NodeTerm::decode(pool, term)).collect())
        })
    }

    pub fn encode(&self) -> Value {
        let terms: Vec<Value> = self.0.iter().map(NodeTerm::encode).collect();
        json!({"nodeSelectorTerms": terms})
    }

    pub fn matches(&self, name: &Text, labels: &Labels) -> bool {
        self.0.iter().any(|term| term.matches(name, labels))
    }
}

impl NodeTerm {
    pub fn decode(pool: &mut StringPool, value: &Value) -> Self {
        let mut list = |name: &str| items(&value[name]).map(|one| Requirement::decode(pool, one)).collect();
        NodeTerm { labels: list("matchExpressions"), fields: list("matchFields") }
    }

    fn encode(&self) -> Value {
        let mut term = json!({});
        for (name, list) in [("matchExpressions", &self.labels), ("matchFields", &self.fields)] {
            if !list.is_empty() {
                term[name] = list.iter().map(Requirement::encode).collect();
            }
        }
        term
    }

    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub fn matches(&self, name: &Text, labels: &Labels) -> bool {
        !self.is_empty()
            && self.labels.iter().all(|one| one.matches(labels.get(&one.key)))
            && self.fields.iter().all(|one| one.is_on_node_name() && one.matches(Some(name)))
    }
}

impl Requirement {
    /// Whether the requirement is on the node's name in the form that the API allows: the field `metadata.name`, the
    /// operator `In` or `NotIn`, and one value.
    fn is_on_node_name(&self) -> bool {
        &*self.key == "metadata.name"
            && self.values.len() == 1
            && matches!(self.operator, Operator::In | Operator::NotIn)
    }
}

impl PreferredNodeTerm {
    pub fn decode_all(pool: &mut StringPool, value: &Value) -> Vec<Self> {
        items(value)
            .map(|one| PreferredNodeTerm { weight: weight(one), term: NodeTerm::decode(pool, &one["preference"]) })
            .collect()
    }

    /// Whether the term can change a score: its weight is not 0, and it has requirements.
    pub fn affects_score(&self) -> bool {
        self.weight != 0 && !self.term.is_empty()
    }

    /// The errors in those terms that can change a score, each with its path.
    pub fn faults(all: &[PreferredNodeTerm]) -> Vec<String> {
        let counting = all.iter().enumerate().filter(|(_, one)| one.affects_score());
        let requirements = counting.flat_map(|(at, one)| {
            let requirements = one.term.labels.iter().enumerate();
            requirements.map(move |(index, requirement)| (format!("[{at}].matchExpressions[{index}]"), requirement))
        });
        let faults = requirements.flat_map(|(path, requirement)| {
            requirement.faults().map(move |(value, message)| format!("{path}.{value}: {message}"))
        });
        faults.take(ERRORS_MAX).collect()
    }
}

/// How many errors in terms are reported for one pod at most.
const ERRORS_MAX: usize = 32;

/// An affinity term about other pods: pods in some namespaces with some labels, on nodes of the same topology domain.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodTerm {
    pub selector: Selector,
    pub namespaces: Vec<Text>,
    pub namespace_selector: Selector,
    pub topology_key: Text,
    /// The weight of a preferred term, from 1 to 100; 0 in a required term.
    pub weight: i64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodAffinity {
    pub required: Vec<PodTerm>,
    pub required_anti: Vec<PodTerm>,
    pub preferred: Vec<PodTerm>,
    pub preferred_anti: Vec<PodTerm>,
    pub scope: NamespaceScope,
}

/// The namespaces whose pods the terms of one pod may select.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NamespaceScope {
    // The namespaces that terms name, sorted, each once.
    namespaces: Vec<Text>,
    /// Whether a term selects namespaces by their labels. Then the terms may select pods of any namespace.
    by_labels: bool,
}

impl NamespaceScope {
    fn of<'a>(terms: impl Iterator<Item = &'a PodTerm>) -> Self {
        let mut scope = NamespaceScope::default();
        for term in terms {
            scope.by_labels |= !term.namespace_selector.is_nothing();
            scope.namespaces.extend(term.namespaces.iter().cloned());
        }
        scope.namespaces.sort_unstable();
        scope.namespaces.dedup();
        scope
    }

    pub fn includes(&self, namespace: &Text) -> bool {
        self.by_labels || self.namespaces.binary_search(namespace).is_ok()
    }

    /// The keys under which the snapshot's index contains the pod: each namespace that its terms name, or only `None`
    /// if the terms may select any namespace.
    pub fn index_keys(&self) -> Vec<Option<Text>> {
        if self.by_labels { vec![None] } else { self.namespaces.iter().cloned().map(Some).collect() }
    }
}

impl PodAffinity {
    pub fn decode(pool: &mut StringPool, affinity: &Value, namespace: &Text) -> Self {
        let mut terms = |side: &str| {
            let side = &affinity[side];
            let required = items(&side["requiredDuringSchedulingIgnoredDuringExecution"])
                .map(|term| PodTerm::decode(pool, term, namespace, 0))
                .collect();
            let preferred = items(&side["preferredDuringSchedulingIgnoredDuringExecution"])
                .map(|one| PodTerm::decode(pool, &one["podAffinityTerm"], namespace, weight(one)))
                .collect();
            (required, preferred)
        };
        let (required, preferred) = terms("podAffinity");
        let (required_anti, preferred_anti) = terms("podAntiAffinity");
        let all = [&required, &required_anti, &preferred, &preferred_anti];
        let scope = NamespaceScope::of(all.into_iter().flat_map(|terms: &Vec<PodTerm>| terms.iter()));
        PodAffinity { required, required_anti, preferred, preferred_anti, scope }
    }

    pub fn is_empty(&self) -> bool {
        self.required.is_empty()
            && self.required_anti.is_empty()
            && self.preferred.is_empty()
            && self.preferred_anti.is_empty()
    }
}

impl PodTerm {
    fn decode(pool: &mut StringPool, term: &Value, own_namespace: &Text, weight: i64) -> Self {
        let mut namespaces = pool.list(&term["namespaces"]);
        let namespace_selector = Selector::decode(pool, &term["namespaceSelector"]);
        if namespaces.is_empty() && namespace_selector.is_nothing() {
            namespaces.push(own_namespace.clone());
        }
        PodTerm {
            selector: Selector::decode(pool, &term["labelSelector"]),
            namespaces,
            namespace_selector,
            topology_key: pool.field(&term["topologyKey"]),
            weight,
        }
    }

    /// Whether the term selects a pod with these labels in this namespace, which has `namespace_labels`.
    pub fn matches(&self, namespace: &Text, namespace_labels: &Labels, labels: &Labels) -> bool {
        (self.namespaces.contains(namespace) || self.namespace_selector.matches(namespace_labels))
            && self.selector.matches(labels)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Taint {
    pub key: Text,
    pub value: Text,
    pub effect: Text,
}

impl Taint {
    pub fn decode(pool: &mut StringPool, taint: &Value) -> Self {
        Taint {
            key: pool.field(&taint["key"]),
            value: pool.field(&taint["value"]),
            effect: pool.field(&taint["effect"]),
        }
    }

    pub fn decode_all(pool: &mut StringPool, value: &Value) -> Vec<Self> {
        items(value).map(|taint| Taint::decode(pool, taint)).collect()
    }

    /// Whether the taint keeps away pods that do not tolerate it, and is not only a preference.
    pub fn repels(&self) -> bool {
        matches!(&*self.effect, "NoSchedule" | "NoExecute")
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Toleration {
    pub key: Text,
    pub value: Text,
    pub effect: Text,
    /// Whether the operator is `Exists`, with which any value of the taint is tolerated.
    pub exists: bool,
    /// Whether the operator is known; a toleration with an unknown operator tolerates no taint.
    pub known: bool,
}

impl Toleration {
    pub fn decode_all(pool: &mut StringPool, value: &Value) -> Vec<Self> {
        items(value)
            .map(|one| Toleration {
                key: pool.field(&one["key"]),
                value: pool.field(&one["value"]),
                effect: pool.field(&one["effect"]),
                exists: text(&one["operator"]) == "Exists",
                known: matches!(text(&one["operator"]), "" | "Equal" | "Exists"),
            })
            .collect()
    }

    pub fn tolerates(&self, taint: &Taint) -> bool {
        (self.effect.is_empty() || self.effect == taint.effect)
            && (self.key.is_empty() || self.key == taint.key)
            && self.known
            && (self.exists || self.value == taint.value)
    }
}

/// Whether one of `tolerations` tolerates `taint`.
pub fn tolerated(taint: &Taint, tolerations: &[Toleration]) -> bool {
    tolerations.iter().any(|one| one.tolerates(taint))
}

/// The first taint that keeps a pod with these tolerations away; `None` if there is none.
pub fn untolerated<'a>(taints: &'a [Taint], tolerations: &[Toleration]) -> Option<&'a Taint> {
    taints.iter().find(|taint| taint.repels() && !tolerated(taint, tolerations))
}

/// A topology spread constraint: how evenly pods must, or should, be spread over the values of a key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpreadConstraint {
    pub max_skew: i64,
    pub topology_key: Text,
    /// Whether the constraint must hold (`DoNotSchedule`); otherwise it is a preference (`ScheduleAnyway`).
    pub hard: bool,
    pub selector: Selector,
    pub min_domains: i64,
    /// Whether only nodes that the pod's node affinity allows are counted.
    pub honor_affinity: bool,
    /// Whether only nodes whose taints the pod tolerates are counted.
    pub honor_taints: bool,
}

impl SpreadConstraint {
    pub fn decode_all(pool: &mut StringPool, value: &Value, own_labels: &Labels) -> Vec<Self> {
        items(value).map(|one| SpreadConstraint::decode(pool, one, own_labels)).collect()
    }

    pub fn decode(pool: &mut StringPool, one: &Value, own_labels: &Labels) -> Self {
        let mut selector = Selector::decode(pool, &one["labelSelector"]);
        for key in pool.list(&one["matchLabelKeys"]) {
            if let Some(value) = own_labels.get(&key) {
                // The API server merges `matchLabelKeys` into the selector, too. So a requirement that the selector has
                // already is not added again.
                selector = selector.with(Requirement { key, operator: Operator::In, values: vec![value.clone()] });
            }
        }
        SpreadConstraint {
            max_skew: one["maxSkew"].as_i64().unwrap_or(1).clamp(1, i32::MAX.into()),
            topology_key: pool.field(&one["topologyKey"]),
            hard: text(&one["whenUnsatisfiable"]) != "ScheduleAnyway",
            selector,
            min_domains: one["minDomains"].as_i64().unwrap_or(1),
            honor_affinity: text(&one["nodeAffinityPolicy"]) != "Ignore",
            honor_taints: text(&one["nodeTaintsPolicy"]) == "Honor",
        }
    }
}
