//! Finds devices for the claims of a pod on a node, by a search that tries device after device for request after
//! request, and goes back if a choice leaves a later request without devices.

use super::expression::Expression;
use super::limits::{LimitExceeded, SearchCost, SearchLimits};
use super::searches::SharedSearchState;
use crate::clock::Clock;
use crate::object::Text;
use crate::object::device::{Attribute, Capacity, Device, NodeSelection, Slice};
use crate::object::device_claim::{Allocated, Allocation, Claim, Constraint, MAX_DEVICES, Request, SubRequest};
use crate::object::node::Node;
use crate::object::selector::{Operator, Requirement};
use crate::object::taint_rule::DeviceSelector;
use crate::object::terms::{NodeSelector, NodeTerm, Taint, Toleration, untolerated};
use crate::snapshot::Devices;
use crate::snapshot::devices::in_use::{DeviceId, DevicesInUse};
use crate::snapshot::devices::pools::{NodePool, Pool, PoolFlaw};
use holdfast_core::schema::quantity;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Evaluating an expression counts as one try for each of this many units of CEL cost.
const COST_PER_TRY: u64 = 2;
/// Passing a device's data to an expression counts as this many tries.
const TRIES_PER_DEVICE: u64 = 4;
/// Compiling an expression counts as one try for each of this many bytes of its source.
const SOURCE_PER_TRY: usize = 16;

/// The allocator of a pod: everything that can be computed before a node is checked.
#[derive(Debug)]
pub struct Allocator {
    claims: Vec<Arc<Claim>>,
    /// The selectors that a device must satisfy, by the claim's index, the request's index and the alternative's index.
    selectors: Vec<Vec<Vec<Vec<Selector>>>>,
    /// The taints of DeviceTaintRules, by the devices that the rules select.
    rules: HashMap<DeviceSelector, Vec<Taint>>,
    limits: SearchLimits,
    searches: Arc<SharedSearchState>,
    state: Mutex<AllocatorState>,
}

/// A CEL expression that a device must satisfy.
#[derive(Debug, Clone)]
struct Selector {
    expression: Arc<Expression>,
    /// Whether the expression comes from the DeviceClass. Administrators write classes, so evaluating it is not charged
    /// to the budget of the pod's namespace.
    of_class: bool,
}

/// The state that the searches for one pod on different nodes share.
#[derive(Debug, Default)]
struct AllocatorState {
    /// By the name of the node, the results of long or failed searches, each with the node's object at the time of the
    /// search.
    searched: HashMap<Text, (Arc<Node>, AllocationResult)>,
    cost: SearchCost,
}

/// The result of a search on a node: an allocation for each claim, or `None` if there are not enough devices.
type AllocationResult = Result<Option<Vec<Allocation>>, AllocationError>;

/// If the search on a node needed more tries than this, its result is kept, and used again for the same pod.
const CACHED_TRIES: u64 = 64;

/// Why the search for devices on a node failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllocationError {
    /// The search on this node took longer than the timeout, or needed too many tries.
    Timeout,
    /// The searches for pods of this namespace have used up the namespace's budget of tries.
    BudgetSpent,
    /// No devices were found, and one of the node's pools is invalid, so its devices could not be used.
    InvalidPool,
    /// The claim or its DeviceClass is invalid, for this reason. The search fails on every node.
    InvalidClaim(String),
}

impl From<LimitExceeded> for AllocationError {
    fn from(over: LimitExceeded) -> AllocationError {
        match over {
            LimitExceeded::Timeout => AllocationError::Timeout,
            LimitExceeded::BudgetSpent => AllocationError::BudgetSpent,
        }
    }
}

/// Why no search for devices is possible, on whichever node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllocatorError {
    /// A DeviceClass does not exist, or an expression does not compile; the text is the message.
    Invalid(String),
    /// The searches for pods of this namespace have used up the namespace's budget of tries.
    BudgetSpent,
}

impl Allocator {
    /// An allocator for claims that have no devices yet. Fails if a DeviceClass does not exist, an expression does not
    /// compile, or the budget of the pod's namespace is used up. `timeout` limits the time of the search on one node; 0
    /// means no limit.
    pub fn new(
        devices: &Devices,
        clock: Clock,
        claims: Vec<Arc<Claim>>,
        timeout: Duration,
    ) -> Result<Self, AllocatorError> {
        let searches = devices.searches().clone();
        let namespace = claims.first().map(|claim| claim.key.namespace.clone()).unwrap_or_else(|| "".into());
        let (limits, mut cost) = (SearchLimits::new(clock, timeout, namespace), SearchCost::default());
        cost.next_node(&limits, &searches.budgets);
        let mut compile = |source: &Text, of_class: bool| -> Result<Selector, AllocatorError> {
            if !of_class {
                cost.check_budget().map_err(|_| AllocatorError::BudgetSpent)?;
            }
            let (expression, was_cached) = searches.expressions.get(source).map_err(AllocatorError::Invalid)?;
            if !of_class && !was_cached {
                cost.add_cost((source.len() / SOURCE_PER_TRY) as u64);
            }
            Ok(Selector { expression, of_class })
        };
        let mut selectors = Vec::new();
        for claim in &claims {
            let mut of_claim = Vec::new();
            for request in &claim.requests {
                let mut of_request = Vec::new();
                for sub_request in &request.alternatives {
                    let Some(class) = devices.class(&sub_request.class) else {
                        return Err(AllocatorError::Invalid(no_class(request, sub_request)));
                    };
                    let of_class = class.selectors.iter().map(|source| (source, true));
                    let sources = of_class.chain(sub_request.selectors.iter().map(|source| (source, false)));
                    let mut compiled = sources.map(|(source, of_class)| compile(source, of_class));
                    of_request.push(compiled.by_ref().collect::<Result<Vec<_>, _>>()?);
                }
                of_claim.push(of_request);
            }
            selectors.push(of_claim);
        }
        cost.settle(&limits, &searches.budgets);
        let mut rules: HashMap<DeviceSelector, Vec<Taint>> = HashMap::new();
        for rule in devices.taint_rules().filter(|rule| rule.taint.repels()) {
            if let Some(selected) = &rule.selector {
                rules.entry(selected.clone()).or_default().push(rule.taint.clone());
            }
        }
        let state = Mutex::new(AllocatorState { cost, ..AllocatorState::default() });
        Ok(Allocator { claims, selectors, rules, limits, searches, state })
    }

    /// Searches for devices on a node: returns an allocation for each claim, or `None` if there are not enough devices.
    pub fn allocate(&self, devices: &Devices, node: &Arc<Node>) -> AllocationResult {
        if self.claims.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, outcome)) = state.searched.get(&node.name).filter(|(then, _)| Arc::ptr_eq(then, node)) {
            return outcome.clone();
        }
        state.cost.next_node(&self.limits, &self.searches.budgets);
        let outcome = self.search(devices, node, &mut state);
        let tried = state.cost.settle(&self.limits, &self.searches.budgets);
        self.searches.tries.fetch_add(tried, Ordering::Relaxed);
        if tried > CACHED_TRIES || outcome.is_err() {
            state.searched.insert(node.name.clone(), (node.clone(), outcome.clone()));
        }
        outcome
    }

    fn search(&self, devices: &Devices, node: &Node, state: &mut AllocatorState) -> AllocationResult {
        let pools = devices.pools().on_node(node);
        let mut search = Search {
            allocator: self,
            candidates: candidates(node, &pools),
            in_use: devices.in_use(),
            chosen_devices: DevicesInUse::default(),
            consumed: HashMap::new(),
            chosen: vec![Vec::new(); self.claims.len()],
            all: HashMap::new(),
            state,
        };
        search.count_devices(&pools)?;
        if !search.allocate_claim(0)? {
            let contradicts = pools.iter().any(|pool| pool.flaw == Some(PoolFlaw::Invalid));
            return if contradicts { Err(AllocationError::InvalidPool) } else { Ok(None) };
        }
        let Search { chosen, candidates, .. } = search;
        Ok(Some(chosen.into_iter().map(|picks| allocation(node, &candidates, picks)).collect()))
    }

    /// Whether a device has a taint that the request does not tolerate. The device's driver or a DeviceTaintRule sets
    /// taints.
    fn is_tainted(&self, candidate: Candidate<'_>, id: &DeviceId, tolerations: &[Toleration]) -> bool {
        let by_rule = || {
            let (driver, pool, device) = id;
            let either = |one: &Text| [None, Some(one.clone())];
            either(driver).into_iter().any(|driver| {
                either(pool).into_iter().any(|pool| {
                    either(device).into_iter().any(|device| {
                        let rules = self.rules.get(&(driver.clone(), pool.clone(), device));
                        rules.is_some_and(|taints| untolerated(taints, tolerations).is_some())
                    })
                })
            })
        };
        untolerated(&candidate.device.taints, tolerations).is_some() || (!self.rules.is_empty() && by_rule())
    }

    /// The score of the alternatives that were chosen for requests: eight for each first alternative, and one less for
    /// each later alternative.
    pub fn first_available_score(&self, allocations: &[Allocation]) -> i64 {
        let mut sum = 0;
        for (claim, allocation) in self.claims.iter().zip(allocations) {
            for request in claim.requests.iter().filter(|request| request.prioritized) {
                let chosen = request.alternatives.iter().position(|sub_request| {
                    allocation.devices.iter().any(|one| one.request == result_name(request, sub_request))
                });
                sum += chosen.and_then(|at| i64::try_from(at).ok()).map_or(0, |at| 8 - at);
            }
        }
        sum
    }
}

/// The message for a request whose DeviceClass does not exist.
pub fn no_class(request: &Request, sub_request: &SubRequest) -> String {
    format!("request {}: device class {} does not exist", result_name(request, sub_request), sub_request.class)
}

/// The devices of these pools that can be used on a node, in the order of pools and slices.
fn candidates<'a>(node: &Node, pools: &[NodePool<'a>]) -> Vec<Candidate<'a>> {
    let mut candidates = Vec::new();
    for node_pool in pools.iter().filter(|node_pool| node_pool.flaw.is_none()) {
        for slice in node_pool.slices() {
            for (number, device) in slice.devices.iter().enumerate() {
                let candidate = Candidate { pool: node_pool.pool, slice, device, number };
                if candidate.node_selection().includes(&node.name, &node.labels) {
                    candidates.push(candidate);
                }
            }
        }
    }
    candidates
}

#[derive(Clone, Copy)]
struct Candidate<'a> {
    pool: &'a Pool,
    slice: &'a Arc<Slice>,
    device: &'a Device,
    /// The index of the device in its slice.
    number: usize,
}

impl<'a> Candidate<'a> {
    /// On which nodes the device can be used.
    fn node_selection(&self) -> &'a NodeSelection {
        self.slice.node_selection_of(self.device)
    }

    /// The address of the pool in memory, which identifies the pool as long as the snapshot does not change.
    fn pool_number(&self) -> usize {
        std::ptr::from_ref(self.pool).addr()
    }

    fn id(&self) -> DeviceId {
        (self.slice.driver.clone(), self.slice.pool.clone(), self.device.name.clone())
    }
}

/// A device that the search has chosen for a request, by the indexes of the candidate, the request and the alternative.
#[derive(Clone)]
struct Pick {
    candidate: usize,
    request: usize,
    alternative: usize,
    result: Allocated,
}

struct Search<'a> {
    allocator: &'a Allocator,
    candidates: Vec<Candidate<'a>>,
    /// The devices that are allocated to claims in the snapshot.
    in_use: &'a DevicesInUse,
    /// The devices that this search has chosen so far.
    chosen_devices: DevicesInUse,
    /// How much of the counters of each pool is used by allocated devices and by the devices chosen so far, by
    /// [`Candidate::pool_number`].
    consumed: HashMap<usize, Consumed>,
    /// The devices chosen so far for each claim.
    chosen: Vec<Vec<Pick>>,
    /// For each request for all matching devices, the indexes of these devices.
    all: HashMap<RequestPath, Vec<usize>>,
    state: &'a mut AllocatorState,
}

/// Why a device was not chosen for a request.
enum PickError {
    /// The device is in use or tainted, or it lacks a property that the request names.
    Unfit,
    /// The device and the devices chosen so far together violate a constraint of the claim.
    Constraint,
}

impl Search<'_> {
    /// Checks that each claim requests no more devices than one claim may have.
    fn count_devices(&mut self, pools: &[NodePool]) -> Result<(), AllocationError> {
        let allocator = self.allocator;
        for (number, claim) in allocator.claims.iter().enumerate() {
            let mut fewest_total = 0usize;
            for (request, of) in claim.requests.iter().enumerate() {
                let mut fewest = None;
                for (alternative, sub_request) in of.alternatives.iter().enumerate() {
                    let path = RequestPath { claim: number, request, alternative };
                    let count = match sub_request.count {
                        Some(count) => count,
                        None => self.count_all(path, pools)?,
                    };
                    fewest = Some(fewest.map_or(count, |fewest: usize| fewest.min(count)));
                }
                fewest_total = fewest_total.saturating_add(fewest.unwrap_or(0));
            }
            if fewest_total > MAX_DEVICES {
                let why =
                    format!("number of requested devices {fewest_total} exceeds the claim limit of {MAX_DEVICES}");
                return Err(AllocationError::InvalidClaim(format!("claim {}: {why}", claim.key)));
            }
        }
        Ok(())
    }

    /// Finds the devices for a request for all matching devices; returns how many there are.
    fn count_all(&mut self, path: RequestPath, pools: &[NodePool]) -> Result<usize, AllocationError> {
        let allocator = self.allocator;
        let sub_request = &allocator.claims[path.claim].requests[path.request].alternatives[path.alternative];
        if let Some((node_pool, flaw)) = pools.iter().find_map(|node_pool| Some((node_pool, node_pool.flaw?))) {
            let Pool { driver, name, .. } = node_pool.pool;
            let state = if flaw == PoolFlaw::Invalid { "invalid" } else { "being updated" };
            let why = format!("asks for all devices, but resource pool {driver}/{name} is currently {state}");
            return Err(self.error_of(path, &why));
        }
        let mut all = Vec::new();
        for candidate in 0..self.candidates.len() {
            self.count_try()?;
            if !self.matches_selectors(path, candidate)? {
                continue;
            }
            let one = self.candidates[candidate];
            if consumption(one.device, sub_request).is_some_and(|consumed| self.has_room(one, &one.id(), &consumed)) {
                all.push(candidate);
            }
        }
        let count = all.len();
        self.all.insert(path, all);
        Ok(count)
    }

    /// The error that names this request and the reason `why`.
    fn error_of(&self, path: RequestPath, why: &str) -> AllocationError {
        let claim = &self.allocator.claims[path.claim].key;
        AllocationError::InvalidClaim(format!("claim {claim}, request {}: {why}", self.sub_request(path).1.name))
    }

    fn allocate_claim(&mut self, claim: usize) -> Result<bool, AllocationError> {
        if claim == self.allocator.claims.len() { Ok(true) } else { self.allocate_request(claim, 0) }
    }

    fn allocate_request(&mut self, claim: usize, request: usize) -> Result<bool, AllocationError> {
        let Some(of) = self.allocator.claims[claim].requests.get(request) else {
            return self.allocate_claim(claim + 1);
        };
        for (alternative, sub_request) in of.alternatives.iter().enumerate() {
            let path = RequestPath { claim, request, alternative };
            let found = match sub_request.count {
                Some(count) => self.allocate_count(path, count, 0)?,
                None => self.allocate_all(path)?,
            };
            if found {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Chooses `more` devices for a request among the candidates from index `from` on, and then the devices for all
    /// later requests. Returns whether that succeeded.
    fn allocate_count(&mut self, path: RequestPath, more: usize, from: usize) -> Result<bool, AllocationError> {
        if more == 0 {
            return self.allocate_request(path.claim, path.request + 1);
        }
        if self.chosen[path.claim].len() + more > MAX_DEVICES {
            return Ok(false);
        }
        for candidate in from..self.candidates.len() {
            self.count_try()?;
            // Testing whether a device is free takes less time than evaluating the selectors, so it comes first.
            if self.is_used(path, candidate) || !self.matches_selectors(path, candidate)? {
                continue;
            }
            let Ok(pick) = self.try_pick(path, candidate) else { continue };
            self.choose(path, pick);
            // A shared device may serve several requests, but within one request all devices differ.
            if self.allocate_count(path, more - 1, candidate + 1)? {
                return Ok(true);
            }
            self.undo_choice(path);
        }
        Ok(false)
    }

    /// Chooses all devices that match a request for all matching devices, and then the devices for all later requests;
    /// or fails without choosing any.
    fn allocate_all(&mut self, path: RequestPath) -> Result<bool, AllocationError> {
        let before = self.chosen[path.claim].len();
        let all = self.all.get(&path).cloned().unwrap_or_default();
        let mut possible = !all.is_empty() && before + all.len() <= MAX_DEVICES;
        for candidate in all {
            if !possible {
                break;
            }
            self.count_try()?;
            match self.try_pick(path, candidate) {
                Ok(pick) => self.choose(path, pick),
                Err(PickError::Unfit) => possible = false,
                Err(PickError::Constraint) => {
                    let (driver, pool, device) = self.candidates[candidate].id();
                    let why = "because a claim constraint would not be satisfied";
                    return Err(self.error_of(path, &format!("cannot add device {driver}/{pool}/{device} {why}")));
                }
            }
        }
        if possible && self.allocate_request(path.claim, path.request + 1)? {
            return Ok(true);
        }
        while self.chosen[path.claim].len() > before {
            self.undo_choice(path);
        }
        Ok(false)
    }

    fn sub_request(&self, path: RequestPath) -> (&Request, &SubRequest) {
        let request = &self.allocator.claims[path.claim].requests[path.request];
        (request, &request.alternatives[path.alternative])
    }

    fn count_try(&mut self) -> Result<(), AllocationError> {
        Ok(self.state.cost.count_try(&self.allocator.limits)?)
    }

    /// Whether a device satisfies the selectors of a request.
    fn matches_selectors(&mut self, path: RequestPath, candidate: usize) -> Result<bool, AllocationError> {
        let allocator = self.allocator;
        let expressions = &allocator.searches.expressions;
        let Candidate { slice, number: device, .. } = self.candidates[candidate];
        let selectors = &allocator.selectors[path.claim][path.request][path.alternative];
        for (index, Selector { expression, of_class }) in selectors.iter().enumerate() {
            let holds = match expressions.cached(expression, slice, device) {
                Some(holds) => holds,
                None => {
                    // The cost of an expression is known only after its evaluation, so the evaluation only begins while
                    // some of the budget is left.
                    if !of_class {
                        self.state.cost.check_budget()?;
                    }
                    let (holds, cost) = expressions.evaluate(expression, slice, device);
                    if !of_class {
                        self.state.cost.add_cost(TRIES_PER_DEVICE + cost / COST_PER_TRY);
                    }
                    holds.map_err(|error| {
                        // In the list, the selectors of the class come before the selectors of the request.
                        let of_class = selectors.iter().take_while(|one| one.of_class).count();
                        let (whose, number) = match index.checked_sub(of_class) {
                            None => (format!("class {}", self.sub_request(path).1.class), index),
                            Some(number) => (format!("claim {}", allocator.claims[path.claim].key), number),
                        };
                        AllocationError::InvalidClaim(format!(
                            "{whose}: selector #{number}: CEL runtime error: {error}"
                        ))
                    })?
                }
            };
            if !holds {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a device that is not shared is already allocated or chosen. A request with admin access ignores other
    /// users of the device, but no claim gets one device twice.
    fn is_used(&self, path: RequestPath, index: usize) -> bool {
        let candidate = self.candidates[index];
        let among = |claims: &[Vec<Pick>]| claims.iter().flatten().any(|pick| pick.candidate == index);
        match self.sub_request(path).1.admin {
            true => !candidate.device.shared && among(&self.chosen[path.claim..=path.claim]),
            // For a request without admin access a device is used, too, if it was chosen with admin access in this
            // search.
            false => self.is_whole(&candidate.id()) || (!candidate.device.shared && among(&self.chosen)),
        }
    }

    /// Takes a device for a request, if the device is free and satisfies the claim's constraints together with the
    /// devices chosen so far.
    fn try_pick(&mut self, path: RequestPath, index: usize) -> Result<Pick, PickError> {
        let candidate = self.candidates[index];
        self.sum_consumed(candidate);
        let (request, sub_request) = self.sub_request(path);
        let id = candidate.id();
        let consumed = consumption(candidate.device, sub_request).ok_or(PickError::Unfit)?;
        if self.is_used(path, index) || (!sub_request.admin && !self.is_free(candidate, &id, &consumed)) {
            return Err(PickError::Unfit);
        }
        if self.allocator.is_tainted(candidate, &id, &sub_request.tolerations) {
            return Err(PickError::Unfit);
        }
        let about = |one: &&Constraint| one.is_about(&request.name, request.prioritized.then_some(&sub_request.name));
        let constraints = &self.allocator.claims[path.claim].constraints;
        if !constraints.iter().filter(about).all(|one| self.satisfies_constraint(one, path.claim, candidate)) {
            return Err(PickError::Constraint);
        }
        let result = Allocated {
            request: result_name(request, sub_request),
            driver: id.0,
            pool: id.1,
            device: id.2,
            admin: sub_request.admin,
            shared: candidate.device.shared,
            consumed,
            binding: candidate.device.binding.clone(),
        };
        Ok(Pick { candidate: index, request: path.request, alternative: path.alternative, result })
    }

    /// Whether the whole device belongs to a claim: in the snapshot, or by a choice of this search.
    fn is_whole(&self, id: &DeviceId) -> bool {
        self.in_use.is_whole(id) || self.chosen_devices.is_whole(id)
    }

    fn is_shared(&self, id: &DeviceId) -> bool {
        self.in_use.is_shared(id) || self.chosen_devices.is_shared(id)
    }

    fn is_free(&self, candidate: Candidate<'_>, id: &DeviceId, consumed: &[(Text, i128)]) -> bool {
        if self.is_whole(id) || (!candidate.device.shared && self.is_shared(id)) {
            return false;
        }
        self.has_room(candidate, id, consumed) && self.has_counters(candidate)
    }

    /// Whether enough of a shared device's capacities is free for a claim to consume `consumed`.
    fn has_room(&self, candidate: Candidate<'_>, id: &DeviceId, consumed: &[(Text, i128)]) -> bool {
        let fits = |(name, amount): &(Text, i128)| {
            let named = |one: &&Capacity| one.name == *name;
            let there = candidate.device.capacity.values().find(named).map_or(0, capacity_of);
            let used = self.in_use.amount(id, name).saturating_add(self.chosen_devices.amount(id, name));
            used.saturating_add(*amount) <= there
        };
        consumed.iter().all(fits)
    }

    /// Whether the counters of the pool have enough left for this device.
    fn has_counters(&self, candidate: Candidate<'_>) -> bool {
        let consumed = self.consumed.get(&candidate.pool_number());
        candidate.device.consumes.iter().all(|(set, wanted)| {
            let Some(there) = candidate.pool.counters.get(set) else { return false };
            wanted.iter().all(|(counter, amount)| {
                let used = consumed.and_then(|consumed| consumed.get(&(set.clone(), counter.clone())));
                let used = used.copied().unwrap_or(0);
                used.saturating_add(*amount) <= there.get(counter).copied().unwrap_or(0)
            })
        })
    }

    /// When a device with counters is tried for the first time, computes how much of its pool's counters is in use.
    fn sum_consumed(&mut self, candidate: Candidate<'_>) {
        let number = candidate.pool_number();
        if candidate.device.consumes.is_empty() || self.consumed.contains_key(&number) {
            return;
        }
        let mut consumed = Consumed::new();
        for slice in &candidate.pool.slices {
            for device in slice.devices.iter().filter(|device| !device.consumes.is_empty()) {
                let id = (slice.driver.clone(), slice.pool.clone(), device.name.clone());
                if self.in_use.is_whole(&id) || self.in_use.is_shared(&id) {
                    consume(&mut consumed, device, 1);
                }
            }
        }
        self.consumed.insert(number, consumed);
    }

    /// Whether a device satisfies a constraint of the claim together with the devices chosen so far.
    fn satisfies_constraint(&self, constraint: &Constraint, claim: usize, candidate: Candidate<'_>) -> bool {
        let Some(own) = attribute_of(candidate, &constraint.attribute) else { return false };
        let requests = &self.allocator.claims[claim].requests;
        let under = self.chosen[claim].iter().filter(|pick| {
            let request = &requests[pick.request];
            let sub_request = request.prioritized.then(|| &request.alternatives[pick.alternative].name);
            constraint.is_about(&request.name, sub_request)
        });
        let mut others = under.filter_map(|pick| attribute_of(self.candidates[pick.candidate], &constraint.attribute));
        others.all(|other| (other == own) != constraint.distinct)
    }

    fn choose(&mut self, path: RequestPath, pick: Pick) {
        if !pick.result.admin {
            self.chosen_devices.add(&pick.result);
            self.consume(pick.candidate, 1);
        }
        self.chosen[path.claim].push(pick);
    }

    fn consume(&mut self, candidate: usize, times: i128) {
        let candidate = self.candidates[candidate];
        if let Some(consumed) = self.consumed.get_mut(&candidate.pool_number()) {
            consume(consumed, candidate.device, times);
        }
    }

    fn undo_choice(&mut self, path: RequestPath) {
        self.state.cost.backtrack();
        let Some(pick) = self.chosen[path.claim].pop() else { return };
        if !pick.result.admin {
            self.chosen_devices.remove(&pick.result);
            self.consume(pick.candidate, -1);
        }
    }
}

/// How much of each counter of a pool is in use, by the counter set and the counter's name.
type Consumed = HashMap<(Text, Text), i128>;

fn consume(consumed: &mut Consumed, device: &Device, times: i128) {
    for (set, counters) in &device.consumes {
        for (counter, amount) in counters {
            let used = consumed.entry((set.clone(), counter.clone())).or_default();
            *used = used.saturating_add(amount.saturating_mul(times));
        }
    }
}

/// The index of a claim, the index of one of its requests, and the index of one of the request's alternatives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct RequestPath {
    claim: usize,
    request: usize,
    alternative: usize,
}

fn result_name(request: &Request, sub_request: &SubRequest) -> Text {
    if request.prioritized { format!("{}/{}", request.name, sub_request.name).into() } else { request.name.clone() }
}

fn attribute_of<'a>(candidate: Candidate<'a>, name: &str) -> Option<&'a Attribute> {
    let (domain, id) = name.split_once('/').unwrap_or((&candidate.slice.driver, name));
    candidate
        .device
        .attributes
        .iter()
        .find(|((own, name), _)| **own == *domain && **name == *id)
        .map(|(_, value)| value)
}

fn capacity_of(capacity: &Capacity) -> i128 {
    quantity::whole(&capacity.value).unwrap_or(0)
}

/// How much of each capacity of a shared device a request consumes; empty for a device that is not shared. Returns
/// `None` if the device does not have a requested capacity, or its policy allows no amount that is large enough.
fn consumption(device: &Device, sub_request: &SubRequest) -> Option<Vec<(Text, i128)>> {
    let there = |requested: &Text| device.capacity.values().find(|one| one.name == *requested);
    if !sub_request.capacity.iter().all(|(name, amount)| there(name).is_some_and(|one| *amount <= capacity_of(one))) {
        return None;
    }
    if !device.shared {
        return Some(Vec::new());
    }
    let consumed = device.capacity.values().map(|one| {
        let requested = sub_request.capacity.iter().find(|(name, _)| *name == one.name).map(|(_, amount)| *amount);
        Some((one.name.clone(), granted_amount(one, requested)?))
    });
    consumed.collect()
}

/// The amount of a capacity that a request gets: the smallest sufficient amount that the policy allows; `None` if the
/// policy allows no sufficient amount.
fn granted_amount(capacity: &Capacity, requested: Option<i128>) -> Option<i128> {
    let all = capacity_of(capacity);
    let Some(policy) = &capacity.policy else { return Some(all) };
    let Some(wanted) = requested.or(policy.default) else { return Some(all) };
    if !policy.values.is_empty() {
        return policy.values.iter().copied().filter(|value| *value >= wanted).min();
    }
    let Some((least, most, step)) = policy.range else { return Some(wanted) };
    let step = step.filter(|step| *step > 0).unwrap_or(1);
    let over = wanted.saturating_sub(least).max(0);
    let steps = over / step + i128::from(over % step > 0);
    let amount = least.saturating_add(steps.saturating_mul(step));
    most.is_none_or(|most| amount <= most).then_some(amount)
}

/// The allocation that is written into the claim's status. If a device has `bindsToNode`, the claim can be used only on
/// this node.
fn allocation(node: &Node, candidates: &[Candidate<'_>], picks: Vec<Pick>) -> Allocation {
    let binds = picks.iter().any(|pick| pick.result.binding.to_node);
    let nodes = if binds {
        Some(only_node(node))
    } else {
        common_nodes(node, picks.iter().map(|pick| candidates[pick.candidate].node_selection()))
    };
    Allocation { nodes, since: None, devices: picks.into_iter().map(|pick| pick.result).collect() }
}

fn only_node(node: &Node) -> NodeSelector {
    let name = Requirement { key: "metadata.name".into(), operator: Operator::In, values: vec![node.name.clone()] };
    NodeSelector(vec![NodeTerm { labels: Vec::new(), fields: vec![name] }])
}

/// A node selector for the nodes that all of these selections include; `None` means every node.
fn common_nodes<'a>(node: &Node, selections: impl Iterator<Item = &'a NodeSelection>) -> Option<NodeSelector> {
    let mut common = NodeTerm { labels: Vec::new(), fields: Vec::new() };
    for selection in selections {
        match selection {
            NodeSelection::AllNodes => {}
            NodeSelection::Nodes(Some(NodeSelector(terms))) if terms.len() == 1 => {
                for (all, own) in [(&mut common.labels, &terms[0].labels), (&mut common.fields, &terms[0].fields)] {
                    all.extend(own.iter().filter(|one| !all.contains(one)).cloned().collect::<Vec<_>>());
                }
            }
            _ => return Some(only_node(node)),
        }
    }
    (!common.is_empty()).then(|| NodeSelector(vec![common]))
}
