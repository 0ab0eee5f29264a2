//! InterPodAffinity: some pods must or should run near other pods, or away from other pods.

use super::topology_domains::TopologyDomains;
use crate::object::labels::Labels;
use crate::object::pod::{Pod, Template};
use crate::object::terms::{PodAffinity, PodTerm};
use crate::object::{Key, Kind, Text};
use crate::plugin::{
    EqualNodes, Filter, MAX_SCORE, Plugin, PreFilterResult, QueueingHint, SchedulingCycle, Score, extremes,
    replace_each, unique_mark,
};
use crate::snapshot::node_info::{NodeId, NodeInfo};
use crate::snapshot::{ClusterEvent, ObjectChange, Snapshot};
use crate::status::Rejection;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub const NAME: &str = "InterPodAffinity";

#[derive(Debug)]
pub struct InterPodAffinity {
    /// `hardPodAffinityWeight`: if a bound pod has a required affinity term that selects the pod to be scheduled, nodes
    /// near the bound pod get this weight.
    pub hard_weight: i64,
    /// `ignorePreferredTermsOfExistingPods`: whether a pod without preferred terms of its own is scored without regard
    /// to the preferred terms of other pods.
    pub own_preferences_only: bool,
}

impl Default for InterPodAffinity {
    fn default() -> Self {
        InterPodAffinity { hard_weight: 1, own_preferences_only: false }
    }
}

impl Plugin for InterPodAffinity {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pre_filter(&self, cycle: SchedulingCycle<'_>) -> PreFilterResult {
        PreFilterResult::filter(RequiredTerms::new(cycle))
    }

    fn score(&self, cycle: SchedulingCycle<'_>) -> Option<Box<dyn Score>> {
        let affinity = &cycle.pod.template.pod_affinity;
        let prefers = !affinity.preferred.is_empty() || !affinity.preferred_anti.is_empty();
        if self.own_preferences_only && !prefers {
            return None;
        }
        Some(Box::new(PreferredTerms::new(self, cycle)))
    }

    fn depends_on(&self, _: SchedulingCycle<'_>, kind: Kind, _: &Key) -> bool {
        kind == Kind::Namespace
    }

    fn concerns_other_pods(&self, event: &ClusterEvent) -> bool {
        event.concerns_nodes()
    }

    fn queueing_hint(&self, cycle: SchedulingCycle<'_>, event: &ClusterEvent) -> QueueingHint {
        let own = &cycle.pod.template.pod_affinity;
        QueueingHint::queue_if(match &event.change {
            ObjectChange::Pod(Some(before), Some(after)) if after.uid == cycle.pod.uid => {
                before.template.labels != after.template.labels
            }
            ObjectChange::Pod(before, after) => {
                let assigned = |pod: &&Arc<Pod>| pod.node_name.is_some();
                let (before, after) = (before.as_ref().filter(assigned), after.as_ref().filter(assigned));
                // A waiting pod may have thousands of terms. So they are tested only against pods in the namespaces
                // that the terms may select.
                let in_scope = |pod: &Pod| own.scope.includes(&pod.key.namespace);
                let selects = |term: &PodTerm, pod: &Pod| term_selects(cycle.snapshot, term, pod);
                let near = |pod: &Arc<Pod>| {
                    in_scope(pod) && !own.required.is_empty() && own.required.iter().all(|term| selects(term, pod))
                };
                let far = |pod: &Arc<Pod>| in_scope(pod) && own.required_anti.iter().any(|term| selects(term, pod));
                let repels = |pod: &Arc<Pod>| {
                    let theirs = &pod.template.pod_affinity;
                    theirs.scope.includes(cycle.pod.namespace())
                        && theirs.required_anti.iter().any(|term| selects(term, cycle.pod))
                };
                let arrives = after.is_some_and(near) && !before.is_some_and(near);
                // If the last pod that matches the terms is deleted, the waiting pod may become schedulable if it
                // matches its own terms, because it is then the first pod of its group.
                let is_first = || own.required.iter().all(|term| selects(term, cycle.pod));
                let is_first = before.is_some_and(near) && after.is_none() && is_first();
                let leaves =
                    before.is_some_and(|pod| far(pod) || (after.is_none() && repels(pod))) && !after.is_some_and(far);
                arrives || leaves || is_first
            }
            ObjectChange::Node(before, Some(after)) => {
                let keys = own.required.iter().chain(&own.required_anti).map(|term| &term.topology_key);
                let has_key = |term: &PodTerm| after.labels.get(&term.topology_key).is_some();
                match before {
                    // A new node without the topology key is in no topology domain, so a pod on it is near no other
                    // pod.
                    None => {
                        own.required.is_empty() || !own.required_anti.is_empty() || own.required.iter().any(has_key)
                    }
                    Some(before) => {
                        let mut keys = keys.peekable();
                        keys.peek().is_none() || keys.any(|key| before.labels.get(key) != after.labels.get(key))
                    }
                }
            }
            _ => false,
        })
    }
}

/// Whether a term selects a pod.
fn term_selects(snapshot: &Snapshot, term: &PodTerm, pod: &Pod) -> bool {
    let selector = &term.namespace_selector;
    // Kubernetes resolves the namespace selector to names, but then still evaluates it, on an empty set of labels: a
    // selector that matches no labels at all selects every namespace.
    let selected = || {
        selector.matches(&Labels::default())
            || (!selector.is_nothing() && selector.matches(&snapshot.selectors().namespace_labels(pod.namespace())))
    };
    (term.namespaces.contains(pod.namespace()) || selected()) && term.selector.matches(&pod.template.labels)
}

/// The properties of the pod to be scheduled with which the terms of other pods are compared.
#[derive(Debug, Clone)]
struct IncomingPod {
    template: Arc<Template>,
    namespace_labels: Arc<Labels>,
}

impl IncomingPod {
    fn new(cycle: SchedulingCycle<'_>) -> Self {
        let template = cycle.pod.template.clone();
        IncomingPod { namespace_labels: cycle.snapshot.selectors().namespace_labels(&template.namespace), template }
    }

    fn affinity(&self) -> &PodAffinity {
        &self.template.pod_affinity
    }

    fn all_required_match(&self, snapshot: &Snapshot, pod: &Pod) -> bool {
        let required = &self.affinity().required;
        !required.is_empty() && required.iter().all(|term| term_selects(snapshot, term, pod))
    }

    /// Whether another pod's term selects the pod to be scheduled.
    fn is_selected_by(&self, term: &PodTerm) -> bool {
        term.matches(&self.template.namespace, &self.namespace_labels, &self.template.labels)
    }

    /// Those of the own terms of the pod to be scheduled that select another pod.
    fn own_terms_selecting<'a>(
        &self,
        snapshot: &'a Snapshot,
        terms: &'a [PodTerm],
        pod: &'a Pod,
    ) -> impl Iterator<Item = &'a PodTerm> {
        let in_scope = self.affinity().scope.includes(&pod.key.namespace);
        terms.iter().filter(move |term| in_scope && term_selects(snapshot, term, pod))
    }

    /// Those terms of another pod that select the pod to be scheduled.
    fn terms_selecting_it<'a>(&'a self, terms: &'a [PodTerm], pod: &Pod) -> impl Iterator<Item = &'a PodTerm> {
        let in_scope = pod.template.pod_affinity.scope.includes(&self.template.namespace);
        terms.iter().filter(move |term| in_scope && self.is_selected_by(term))
    }
}

/// How much one pod counts in its topology domain, for each topology key.
type KeyWeights = Vec<(Text, i64)>;

/// How much several pods count together, for each topology key.
type Totals = BTreeMap<Text, i64>;

fn add_to(totals: &mut Totals, sums: &KeyWeights) {
    for (key, sum) in sums {
        let total = totals.entry(key.clone()).or_default();
        *total = total.saturating_add(*sum);
    }
}

/// A value for each template of pods. The value is computed once for each template and not for each pod, because there
/// are far more pods than templates, and a template may have many terms.
#[derive(Debug)]
struct TemplateResults<T>(Arc<Mutex<TemplateResultsState<T>>>);

#[derive(Debug)]
struct TemplateResultsState<T> {
    by_template: HashMap<u64, Arc<T>>,
    missing_keys: MissingKeys,
}

/// The topology keys that terms name and no node has. If a node gets a label with one of these keys, everything must be
/// computed again.
#[derive(Debug, Default)]
struct MissingKeys {
    keys: HashSet<Text>,
    /// Whether some missing keys are not in `keys` because `keys` was full.
    more: bool,
}

/// For how many templates results are cached.
const TEMPLATES_MAX: usize = 4096;
/// How many missing topology keys are kept.
const MISSING_KEYS_MAX: usize = 4096;

impl MissingKeys {
    /// For each topology key, the sum of the weights with that key. Keys that no node has are kept as missing instead.
    fn sums<'a>(&mut self, snapshot: &Snapshot, weights: impl Iterator<Item = (&'a Text, i64)>) -> KeyWeights {
        let mut sums: BTreeMap<&Text, i64> = BTreeMap::new();
        for (key, weight) in weights {
            // Terms may name any number of keys that no node has. Such a key gets no counter.
            if !snapshot.is_label_of_nodes(key) {
                self.add(key);
                continue;
            }
            let sum = sums.entry(key).or_default();
            *sum = sum.saturating_add(weight);
        }
        sums.into_iter().map(|(key, sum)| (key.clone(), sum)).collect()
    }

    fn add(&mut self, key: &Text) {
        if self.keys.len() < MISSING_KEYS_MAX {
            self.keys.insert(key.clone());
        } else {
            self.more |= !self.keys.contains(key);
        }
    }

    fn matches_node(&self, node: &NodeInfo) -> bool {
        self.more || node.node.labels.iter().any(|(key, _)| self.keys.contains(key))
    }
}

impl<T> TemplateResults<T> {
    fn new() -> Self {
        let state = TemplateResultsState { by_template: HashMap::new(), missing_keys: MissingKeys::default() };
        TemplateResults(Arc::new(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, TemplateResultsState<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, pod: &Pod, compute: impl FnOnce(&mut MissingKeys) -> T) -> Arc<T> {
        let mut state = self.state();
        if let Some(results) = state.by_template.get(&pod.template_id) {
            return results.clone();
        }
        if state.by_template.len() >= TEMPLATES_MAX {
            state.by_template.clear();
        }
        let results = Arc::new(compute(&mut state.missing_keys));
        state.by_template.insert(pod.template_id, results.clone());
        results
    }

    /// Whether a node has a topology key that was kept as missing because no node had it.
    fn has_missing_key(&self, node: &NodeInfo) -> bool {
        self.state().missing_keys.matches_node(node)
    }
}

impl<T> Clone for TemplateResults<T> {
    fn clone(&self) -> Self {
        TemplateResults(self.0.clone())
    }
}

/// For one topology key, a count for each topology domain.
#[derive(Debug, Clone)]
struct DomainCounter {
    domains: Arc<TopologyDomains>,
    counts: Vec<i64>,
}

/// Counters for several topology keys.
#[derive(Debug, Clone, Default)]
struct DomainCounters {
    by_key: Vec<DomainCounter>,
    /// By topology key, the index of the key's counter in `by_key`.
    numbers: HashMap<Text, usize>,
    /// How many topology domains of all keys have a count that is not 0.
    domains_counted: usize,
}

impl DomainCounters {
    /// Adds `by` to the count of the node's topology domain of a key. Returns whether the node has such a domain.
    fn count(&mut self, snapshot: &Snapshot, key: &Text, node: NodeId, by: i64) -> bool {
        let at = self.number(snapshot, key);
        let domain = self.by_key[at].domains.domain_of(node);
        domain.into_iter().for_each(|domain| self.add(at, domain, by));
        domain.is_some()
    }

    fn add(&mut self, at: usize, domain: usize, by: i64) {
        let count = &mut self.by_key[at].counts[domain];
        let was = *count != 0;
        *count = count.saturating_add(by);
        match (was, *count != 0) {
            (false, true) => self.domains_counted += 1,
            (true, false) => self.domains_counted -= 1,
            _ => {}
        }
    }

    /// Adds the counts of one pod on a node. Returns whether the node is in any of the topology domains, even if only 0
    /// was added.
    fn count_all(&mut self, snapshot: &Snapshot, sums: &KeyWeights, node: NodeId, by: i64) -> bool {
        let mut any = false;
        for (key, sum) in sums {
            any |= self.count(snapshot, key, node, by.saturating_mul(*sum));
        }
        any
    }

    /// Moves a node to the topology domains that its labels name now. `sums` is how much the node's pods count, for
    /// each key.
    fn update_topology(&mut self, snapshot: &Snapshot, node: NodeId, sums: &Totals, touched: &mut Vec<NodeId>) {
        for at in 0..self.by_key.len() {
            let sum = sums.get(self.by_key[at].domains.key()).copied().unwrap_or(0);
            if let Some(domain) = self.by_key[at].domains.domain_of(node) {
                self.add(at, domain, sum.saturating_neg());
            }
            let counter = &mut self.by_key[at];
            Arc::make_mut(&mut counter.domains).move_node(snapshot, node, touched);
            counter.counts.resize(counter.domains.bound(), 0);
            if let Some(domain) = counter.domains.domain_of(node) {
                self.add(at, domain, sum);
            }
        }
    }

    /// The index of the counter for a topology key; if there is no such counter, it is created.
    fn number(&mut self, snapshot: &Snapshot, key: &Text) -> usize {
        if let Some(number) = self.numbers.get(key) {
            return *number;
        }
        let domains = Arc::new(TopologyDomains::new(snapshot, key));
        self.by_key.push(DomainCounter { counts: vec![0; domains.bound()], domains });
        self.numbers.insert(key.clone(), self.by_key.len() - 1);
        self.by_key.len() - 1
    }

    /// The sum of the counts of all domains that a node is in.
    fn sum(&self, node: NodeId) -> i64 {
        self.by_key.iter().fold(0, |sum, counter| sum.saturating_add(counter.count_at(node)))
    }

    fn is_empty(&self) -> bool {
        self.domains_counted == 0
    }

    /// Appends a mark for each key: whether the count of the node's topology domain is above 0.
    fn mark(&self, node: NodeId, marks: &mut Vec<i64>) {
        let mark = |one: &DomainCounter| one.domains.mark(node, |domain| i64::from(one.counts[domain] > 0));
        marks.extend(self.by_key.iter().map(mark));
    }

    /// Appends marks from which the sum of the counts in all of the node's topology domains follows.
    fn mark_sum(&self, node: NodeId, marks: &mut Vec<i64>) {
        let mut single_sum = 0i64;
        for one in &self.by_key {
            match one.domains.domain_of(node) {
                Some(domain) if one.domains.is_single(domain) => {
                    single_sum = single_sum.saturating_add(one.counts[domain])
                }
                Some(_) => {
                    marks.push(one.domains.mark(node, |domain| one.counts[domain]));
                    continue;
                }
                None => {}
            }
            marks.push(SINGLE_NODE);
        }
        if !self.by_key.is_empty() {
            marks.push(single_sum);
        }
    }
}

/// The mark of a node that is the only node of its topology domain.
const SINGLE_NODE: i64 = 0;

impl DomainCounter {
    fn count_at(&self, node: NodeId) -> i64 {
        self.domains.domain_of(node).map_or(0, |domain| self.counts[domain])
    }
}

/// The filter by required affinity and anti-affinity terms.
#[derive(Clone)]
struct RequiredTerms {
    incoming: Arc<IncomingPod>,
    pod_counts: TemplateResults<PodCounts>,
    /// The counts of pods that match all required affinity terms of the pod to be scheduled.
    near: DomainCounters,
    /// The counts of pods that match a required anti-affinity term of the pod to be scheduled.
    far: DomainCounters,
    /// The counts of pods with a required anti-affinity term that selects the pod to be scheduled.
    repelling: DomainCounters,
}

/// How much one pod adds to each kind of count of [`RequiredTerms`], by topology key.
#[derive(Debug)]
struct PodCounts {
    near: KeyWeights,
    far: KeyWeights,
    repelling: KeyWeights,
}

impl RequiredTerms {
    fn new(cycle: SchedulingCycle<'_>) -> Self {
        let incoming = Arc::new(IncomingPod::new(cycle));
        let own = !incoming.affinity().required.is_empty() || !incoming.affinity().required_anti.is_empty();
        let mut near = DomainCounters::default();
        for term in &incoming.affinity().required {
            near.number(cycle.snapshot, &term.topology_key);
        }
        let (far, repelling) = (DomainCounters::default(), DomainCounters::default());
        let mut required_terms = RequiredTerms { incoming, pod_counts: TemplateResults::new(), near, far, repelling };
        for_each_pod(cycle, own, |pod, node| required_terms.count(cycle.snapshot, pod, node, 1));
        required_terms
    }

    fn count(&mut self, snapshot: &Snapshot, pod: &Pod, node: NodeId, by: i64) {
        let pod_counts = self.pod_counts(snapshot, pod);
        self.near.count_all(snapshot, &pod_counts.near, node, by);
        self.far.count_all(snapshot, &pod_counts.far, node, by);
        self.repelling.count_all(snapshot, &pod_counts.repelling, node, by);
    }

    fn pod_counts(&self, snapshot: &Snapshot, pod: &Pod) -> Arc<PodCounts> {
        let incoming = &self.incoming;
        self.pod_counts.of(pod, |missing_keys| {
            let own = incoming.affinity();
            let in_scope = own.scope.includes(&pod.key.namespace);
            let near = if in_scope && incoming.all_required_match(snapshot, pod) { &own.required[..] } else { &[] };
            let far = incoming.own_terms_selecting(snapshot, &own.required_anti, pod);
            let repelling = incoming.terms_selecting_it(&pod.template.pod_affinity.required_anti, pod);
            PodCounts {
                near: missing_keys.sums(snapshot, near.iter().map(|term| (&term.topology_key, 1))),
                far: missing_keys.sums(snapshot, far.map(|term| (&term.topology_key, 1))),
                repelling: missing_keys.sums(snapshot, repelling.map(|term| (&term.topology_key, 1))),
            }
        })
    }

    /// How much several pods together add to the counts `near`, `far` and `repelling`.
    fn totals<'a>(&self, snapshot: &Snapshot, pods: impl Iterator<Item = &'a Arc<Pod>>) -> [Totals; 3] {
        let mut totals = [(); 3].map(|()| Totals::new());
        for pod in pods {
            let pod_counts = self.pod_counts(snapshot, pod);
            for (totals, sums) in totals.iter_mut().zip([&pod_counts.near, &pod_counts.far, &pod_counts.repelling]) {
                add_to(totals, sums);
            }
        }
        totals
    }

    fn counters(&self) -> [&DomainCounters; 3] {
        [&self.near, &self.far, &self.repelling]
    }

    /// Whether all required affinity terms are satisfied on a node, or the pod is the first of a group whose pods
    /// require each other.
    fn satisfies_affinity(&self, cycle: SchedulingCycle<'_>, node: NodeId) -> bool {
        // There is one counter for each topology key of a term.
        let counters = &self.near.by_key;
        counters.iter().all(|one| one.domains.domain_of(node).is_some())
            && (counters.iter().all(|one| one.count_at(node) > 0)
                || (self.near.is_empty() && self.incoming.all_required_match(cycle.snapshot, cycle.pod)))
    }
}

/// Calls `visit` with all pods on nodes if `all` is true, otherwise only with the pods whose affinity terms may select
/// the pod to be scheduled.
fn for_each_pod(cycle: SchedulingCycle<'_>, all: bool, mut visit: impl FnMut(&Pod, NodeId)) {
    match all {
        true => cycle.snapshot.nodes().for_each(|node| node.pods.iter().for_each(|pod| visit(pod, node.id))),
        false => cycle.snapshot.pods_with_affinity(cycle.pod.namespace()).for_each(|(node, pod)| visit(pod, node)),
    }
}

enum ViolatedRule {
    Near,
    Far,
    Repelled,
}

impl RequiredTerms {
    /// The first rule that a node violates; `None` if it violates none.
    fn violated_rule(&self, cycle: SchedulingCycle<'_>, node: NodeId) -> Option<ViolatedRule> {
        if !self.incoming.affinity().required.is_empty() && !self.satisfies_affinity(cycle, node) {
            Some(ViolatedRule::Near)
        } else if self.far.by_key.iter().any(|counter| counter.count_at(node) > 0) {
            Some(ViolatedRule::Far)
        } else if self.repelling.by_key.iter().any(|counter| counter.count_at(node) > 0) {
            Some(ViolatedRule::Repelled)
        } else {
            None
        }
    }
}

impl Filter for RequiredTerms {
    fn check(&self, cycle: SchedulingCycle<'_>, node: &NodeInfo) -> Result<(), Rejection> {
        match self.violated_rule(cycle, node.id) {
            None => Ok(()),
            Some(ViolatedRule::Near) => Err(Rejection::unresolvable(NAME, "node(s) didn't match pod affinity rules")),
            Some(ViolatedRule::Far) => {
                Err(Rejection::unschedulable(NAME, "node(s) didn't match pod anti-affinity rules"))
            }
            Some(ViolatedRule::Repelled) => {
                Err(Rejection::unschedulable(NAME, "node(s) didn't satisfy existing pods anti-affinity rules"))
            }
        }
    }

    fn passes(&self, cycle: SchedulingCycle<'_>, node: NodeId) -> bool {
        self.violated_rule(cycle, node).is_none()
    }

    fn is_local(&self) -> bool {
        false
    }

    fn is_idle(&self) -> bool {
        let own = self.incoming.affinity();
        own.required.is_empty() && own.required_anti.is_empty() && self.repelling.is_empty()
    }

    fn add_pod(&mut self, cycle: SchedulingCycle<'_>, pod: &Pod, node: NodeId) {
        self.count(cycle.snapshot, pod, node, 1);
    }

    fn remove_pod(&mut self, cycle: SchedulingCycle<'_>, pod: &Pod, node: NodeId) {
        self.count(cycle.snapshot, pod, node, -1);
    }

    fn update_topology(&mut self, cycle: SchedulingCycle<'_>, id: NodeId, touched: &mut Vec<NodeId>) -> bool {
        let node = cycle.snapshot.node(id);
        if node.is_some_and(|node| self.pod_counts.has_missing_key(node)) {
            return false;
        }
        let [near, far, repelling] = self.totals(cycle.snapshot, node.iter().flat_map(|node| &node.pods));
        self.near.update_topology(cycle.snapshot, id, &near, touched);
        self.far.update_topology(cycle.snapshot, id, &far, touched);
        self.repelling.update_topology(cycle.snapshot, id, &repelling, touched);
        true
    }

    fn mark_count(&self) -> usize {
        self.counters().iter().map(|counters| counters.by_key.len()).sum()
    }

    fn mark(&self, node: &NodeInfo, marks: &mut Vec<i64>) {
        self.counters().iter().for_each(|counters| counters.mark(node.id, marks));
    }

    fn mark_nominated(&self, cycle: SchedulingCycle<'_>, node: &NodeInfo, pods: &[&Arc<Pod>], marks: &mut Vec<i64>) {
        let pod_counts = self.totals(cycle.snapshot, pods.iter().copied());
        for (which, (counters, totals)) in (0..).zip(self.counters().into_iter().zip(&pod_counts)) {
            for (key, total) in totals {
                // If no pod was counted for this key yet, the mark is unique. Once a pod is counted for the key, the
                // number of marks changes, and the marks of all nodes are computed again.
                let number = counters.numbers.get(key).map_or_else(|| unique_mark(node.id), |number| *number as i64);
                marks.extend([which, number, *total]);
            }
        }
    }

    fn clone_box(&self) -> Box<dyn Filter> {
        Box::new(self.clone())
    }
}

/// The score by preferred terms: the sum of the weights in the node's topology domains.
struct PreferredTerms {
    incoming: IncomingPod,
    hard_weight: i64,
    /// How much a counted pod weighs, by topology key; `None` if no term of the pod to be scheduled selects the counted
    /// pod, and no term of the counted pod selects the pod to be scheduled.
    pod_weights: TemplateResults<Option<KeyWeights>>,
    weights: DomainCounters,
    /// Whether any weight was ever added to `weights`.
    has_counts: bool,
}

impl PreferredTerms {
    fn new(plugin: &InterPodAffinity, cycle: SchedulingCycle<'_>) -> Self {
        let mut preferred_terms = PreferredTerms {
            incoming: IncomingPod::new(cycle),
            hard_weight: plugin.hard_weight,
            pod_weights: TemplateResults::new(),
            weights: DomainCounters::default(),
            has_counts: false,
        };
        let own = preferred_terms.incoming.affinity();
        let all = !own.preferred.is_empty() || !own.preferred_anti.is_empty();
        for_each_pod(cycle, all, |pod, node| preferred_terms.count(cycle.snapshot, pod, node, 1));
        preferred_terms
    }

    fn count(&mut self, snapshot: &Snapshot, pod: &Pod, node: NodeId, by: i64) {
        if let Some(weights) = &*self.pod_weights(snapshot, pod) {
            self.has_counts |= self.weights.count_all(snapshot, weights, node, by);
        }
    }

    fn pod_weights(&self, snapshot: &Snapshot, pod: &Pod) -> Arc<Option<KeyWeights>> {
        let (incoming, hard_weight) = (&self.incoming, self.hard_weight);
        self.pod_weights.of(pod, |missing_keys| {
            let (own, theirs) = (incoming.affinity(), &pod.template.pod_affinity);
            let near = incoming
                .own_terms_selecting(snapshot, &own.preferred, pod)
                .map(|term| (&term.topology_key, term.weight));
            let far = incoming
                .own_terms_selecting(snapshot, &own.preferred_anti, pod)
                .map(|term| (&term.topology_key, -term.weight));
            let required = incoming.terms_selecting_it(&theirs.required, pod).filter(|_| hard_weight > 0);
            let required = required.map(|term| (&term.topology_key, hard_weight));
            let preferred =
                incoming.terms_selecting_it(&theirs.preferred, pod).map(|term| (&term.topology_key, term.weight));
            let anti =
                incoming.terms_selecting_it(&theirs.preferred_anti, pod).map(|term| (&term.topology_key, -term.weight));
            let mut all = near.chain(far).chain(required).chain(preferred).chain(anti).peekable();
            all.peek().is_some().then(|| missing_keys.sums(snapshot, all))
        })
    }
}

impl Score for PreferredTerms {
    fn score(&self, _: SchedulingCycle<'_>, node: &NodeInfo) -> i64 {
        self.weights.sum(node.id)
    }

    fn scores(&self, _: SchedulingCycle<'_>, nodes: &[EqualNodes]) -> Vec<i64> {
        nodes.iter().map(|group| self.weights.sum(group.node)).collect()
    }

    fn normalize(&self, _: SchedulingCycle<'_>, _: &[EqualNodes], scores: &mut [i64]) {
        let Some((least, most)) = extremes(scores.iter().copied()) else { return };
        replace_each(scores, least, most, |score| {
            let part = score.saturating_sub(least) as f64 / most.saturating_sub(least) as f64;
            if most > least { (MAX_SCORE as f64 * part) as i64 } else { 0 }
        });
    }

    fn is_local(&self) -> bool {
        false
    }

    fn is_idle(&self) -> bool {
        !self.has_counts
    }

    fn add_pod(&mut self, cycle: SchedulingCycle<'_>, pod: &Pod, node: NodeId) {
        self.count(cycle.snapshot, pod, node, 1);
    }

    fn remove_pod(&mut self, cycle: SchedulingCycle<'_>, pod: &Pod, node: NodeId) {
        self.count(cycle.snapshot, pod, node, -1);
    }

    fn update_topology(&mut self, cycle: SchedulingCycle<'_>, id: NodeId, touched: &mut Vec<NodeId>) -> bool {
        let node = cycle.snapshot.node(id);
        if node.is_some_and(|node| self.pod_weights.has_missing_key(node)) {
            return false;
        }
        let mut totals = Totals::new();
        for pod in node.iter().flat_map(|node| &node.pods) {
            if let Some(weights) = &*self.pod_weights(cycle.snapshot, pod) {
                add_to(&mut totals, weights);
            }
        }
        self.weights.update_topology(cycle.snapshot, id, &totals, touched);
        self.has_counts |= node.is_some_and(|node| totals.keys().any(|key| node.node.labels.get(key).is_some()));
        true
    }

    fn mark_count(&self) -> usize {
        self.weights.by_key.len()
    }

    fn mark(&self, node: &NodeInfo, marks: &mut Vec<i64>) {
        self.weights.mark_sum(node.id, marks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    #[test]
    fn pods_of_one_template_are_compared_with_terms_once() {
        let mut snapshot = Snapshot::new();
        let node =
            json!({"metadata": {"name": "n", "labels": {"host": "n"}}, "status": {"allocatable": {"pods": "9"}}});
        snapshot.apply(Kind::Node, &Key::cluster("n"), Some(&node));
        let mut apply = |name: &str, app: &str, more: holdfast_value::Value| {
            let mut spec = json!({"nodeName": "n", "containers": [{"name": "c"}]});
            spec.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
            let meta = json!({"name": name, "namespace": "a", "uid": name, "labels": {"app": app}});
            snapshot.apply(Kind::Pod, &Key::new("a", name), Some(&json!({"metadata": meta, "spec": spec})));
        };
        for (name, app) in [("p", "x"), ("q", "x"), ("r", "x"), ("s", "y")] {
            apply(name, app, json!({}));
        }
        let term = json!({"topologyKey": "host", "labelSelector": {"matchLabels": {"app": "x"}}});
        let nowhere = json!({"topologyKey": "nowhere", "labelSelector": {"matchLabels": {"app": "x"}}});
        let anti =
            json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term, term, nowhere]}});
        apply("own", "z", json!({"affinity": anti, "nodeName": null}));
        let pod = |name: &str| snapshot.pod(&Key::new("a", name)).unwrap().clone();
        let own = pod("own");
        let required_terms = RequiredTerms::new(SchedulingCycle { snapshot: &snapshot, pod: &own });
        let results = &required_terms.pod_counts.state().by_template;
        assert_eq!(results.len(), 2, "there are four pods of two templates");
        assert_eq!(results[&pod("p").template_id].far, [("host".into(), 2)], "no node has the other label");
        assert!(results[&pod("s").template_id].far.is_empty());
        assert_eq!(required_terms.far.by_key[0].counts, [6]);
    }

    #[test]
    fn preferred_terms_are_idle_unless_a_node_with_a_selected_pod_has_the_topology_key() {
        let mut snapshot = Snapshot::new();
        for (name, label) in [("n", "host"), ("m", "rack")] {
            let meta = json!({"name": name, "labels": {label: name}});
            let node = json!({"metadata": meta, "status": {"allocatable": {"pods": "9"}}});
            snapshot.apply(Kind::Node, &Key::cluster(name), Some(&node));
        }
        for key in ["nowhere", "rack", "host"] {
            let term = json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": "x"}}});
            let preferred = json!([{"weight": 1, "podAffinityTerm": term}]);
            let affinity = json!({"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}});
            for (name, node, affinity) in [("there", json!("n"), affinity), ("own", json!(null), json!({}))] {
                let meta = json!({"name": name, "namespace": "a", "uid": name, "labels": {"app": "x"}});
                let spec = json!({"nodeName": node, "containers": [{"name": "c"}], "affinity": affinity});
                let pod = json!({"metadata": meta, "spec": spec});
                snapshot.apply(Kind::Pod, &Key::new("a", name), Some(&pod));
            }
            let own = snapshot.pod(&Key::new("a", "own")).unwrap().clone();
            let score = InterPodAffinity::default().score(SchedulingCycle { snapshot: &snapshot, pod: &own }).unwrap();
            assert_eq!(score.is_idle(), key != "host", "{key}");
        }
    }
}
