//! Finds devices for claims on a node: a backtracking search, request by request and device by device.

use super::effort::{Effort, Over, Spent};
use super::expression::Expression;
use super::pools::{Flaw, Near, Pool};
use super::searches::Searches;
use super::taken::{Id, Taken};
use crate::object::Text;
use crate::object::device::{
    Allocated, Allocation, SubRequest, Attribute, Capacity, Claim, Constraint, Device, MAX_DEVICES, NodeSelection, Request, Slice,
};
use crate::object::node::Node;
use crate::object::selector::{Operator, Requirement};
use crate::object::taint_rule::DeviceSelector;
use crate::object::terms::{NodeSelector, NodeTerm, Taint, Toleration, untolerated};
use crate::snapshot::Snapshot;
use holdfast_core::schema::quantity;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The cost of an expression that counts as one try.
const COST_OF_A_TRY: u64 = 2;
/// The cost of handing a device to an expression, in tries.
const SHOWN: u64 = 4;
/// The length of a source whose compilation counts as one try.
const SOURCE_OF_A_TRY: usize = 16;

/// The allocator of a pod: everything that is known before a node is looked at.
#[derive(Debug)]
pub struct Allocator {
    claims: Vec<Arc<Claim>>,
    /// For each claim, request and alternative, the selectors of devices.
    selectors: Vec<Vec<Vec<Vec<Selector>>>>,
    /// Taints from DeviceTaintRules.
    rules: HashMap<DeviceSelector, Vec<Taint>>,
    effort: Effort,
    searches: Arc<Searches>,
    known: Mutex<Known>,
}

/// A condition on devices.
#[derive(Debug, Clone)]
struct Selector {
    expression: Arc<Expression>,
    /// Whether it comes from the class: administrators write classes, so their expressions cost the namespace nothing.
    of_class: bool,
}

/// What is kept from node to node.
#[derive(Debug, Default)]
struct Known {
    /// The outcomes of nodes with long searches, with the node's state at that time.
    searched: HashMap<Text, (Arc<Node>, AllocationResult)>,
    spent: Spent,
}

/// An allocation for each claim; `None`: there are not enough devices.
type AllocationResult = Result<Option<Vec<Allocation>>, Fault>;

/// A search of a node with more tries than this is not repeated for the same pod.
const LONG: u64 = 64;

/// Why the search of a node failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The search took too long.
    Late,
    /// Searches for pods of the namespace have used up its budget.
    Spent,
    /// No devices were found, and a pool is invalid.
    Invalid,
    /// The claim or its class is invalid, on every node alike.
    Error(String),
}

impl From<Over> for Fault {
    fn from(over: Over) -> Fault {
        match over {
            Over::Late => Fault::Late,
            Over::Spent => Fault::Spent,
        }
    }
}

/// Why devices cannot be searched for on any node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unusable {
    /// A class is missing, or an expression does not compile.
    Wrong(String),
    /// Searches for pods of the namespace have used up its budget.
    Spent,
}

impl Allocator {
    /// An allocator for claims without devices. Fails if a class is missing or an expression does not compile.
    /// `timeout`: how long the search of a node may take; 0: no limit.
    pub fn new(snapshot: &Snapshot, claims: Vec<Arc<Claim>>, timeout: Duration) -> Result<Self, Unusable> {
        let searches = snapshot.searches.clone();
        let namespace = claims.first().map(|claim| claim.key.namespace.clone()).unwrap_or_else(|| "".into());
        let (effort, mut spent) = (Effort::new(snapshot.clock, timeout, namespace), Spent::default());
        spent.next_node(&effort, &searches.purses);
        let mut compile = |source: &Text, of_class: bool| -> Result<Selector, Unusable> {
            if !of_class {
                spent.may_pay().map_err(|_| Unusable::Spent)?;
            }
            let (expression, was_known) = searches.expressions.get(source).map_err(Unusable::Wrong)?;
            if !of_class && !was_known {
                spent.owe((source.len() / SOURCE_OF_A_TRY) as u64);
            }
            Ok(Selector { expression, of_class })
        };
        let mut selectors = Vec::new();
        for claim in &claims {
            let mut of_claim = Vec::new();
            for request in &claim.requests {
                let mut of_request = Vec::new();
                for sub_request in &request.alternatives {
                    let key = crate::object::Key { namespace: "".into(), name: sub_request.class.clone() };
                    let Some(class) = snapshot.device_classes.get(&key) else {
                        return Err(Unusable::Wrong(no_class(request, sub_request)));
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
        spent.settle(&effort, &searches.purses);
        let mut rules: HashMap<DeviceSelector, Vec<Taint>> = HashMap::new();
        for rule in snapshot.device_taint_rules.values().filter(|rule| rule.taint.repels()) {
            if let Some(selected) = &rule.selector {
                rules.entry(selected.clone()).or_default().push(rule.taint.clone());
            }
        }
        let known = Mutex::new(Known { spent, ..Known::default() });
        Ok(Allocator { claims, selectors, rules, effort, searches, known })
    }

    /// An allocation for each claim on a node; `None`: there are not enough devices.
    pub fn allocate(&self, snapshot: &Snapshot, node: &Arc<Node>) -> AllocationResult {
        if self.claims.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, outcome)) = known.searched.get(&node.name).filter(|(then, _)| Arc::ptr_eq(then, node)) {
            return outcome.clone();
        }
        known.spent.next_node(&self.effort, &self.searches.purses);
        let outcome = self.search(snapshot, node, &mut known);
        let tried = known.spent.settle(&self.effort, &self.searches.purses);
        self.searches.tried.fetch_add(tried, Ordering::Relaxed);
        if tried > LONG || outcome.is_err() {
            known.searched.insert(node.name.clone(), (node.clone(), outcome.clone()));
        }
        outcome
    }

    fn search(&self, snapshot: &Snapshot, node: &Node, known: &mut Known) -> AllocationResult {
        let pools = snapshot.device_pools.near(node);
        let mut search = Search {
            allocator: self,
            candidates: candidates(node, &pools),
            in_use: &snapshot.devices_taken,
            taken: Taken::default(),
            consumed: HashMap::new(),
            chosen: vec![Vec::new(); self.claims.len()],
            all: HashMap::new(),
            known,
        };
        search.count_devices(&pools)?;
        if !search.claim(0)? {
            let contradicts = pools.iter().any(|pool| pool.flaw == Some(Flaw::Invalid));
            return if contradicts { Err(Fault::Invalid) } else { Ok(None) };
        }
        let Search { chosen, candidates, .. } = search;
        Ok(Some(chosen.into_iter().map(|picks| allocation(node, &candidates, picks)).collect()))
    }

    /// Whether a device has a taint that is not tolerated, from its driver or from a DeviceTaintRule.
    fn is_tainted(&self, candidate: Candidate<'_>, id: &Id, tolerations: &[Toleration]) -> bool {
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

    /// The score of the chosen alternatives: eight for a first choice, one less for each later one.
    pub fn liking(&self, allocations: &[Allocation]) -> i64 {
        let mut sum = 0;
        for (claim, allocation) in self.claims.iter().zip(allocations) {
            for request in claim.requests.iter().filter(|request| request.prioritized) {
                let chosen = request
                    .alternatives
                    .iter()
                    .position(|sub_request| allocation.devices.iter().any(|one| one.request == result_name(request, sub_request)));
                sum += chosen.and_then(|at| i64::try_from(at).ok()).map_or(0, |at| 8 - at);
            }
        }
        sum
    }
}

/// The message if the class of a request is missing.
pub fn no_class(request: &Request, sub_request: &SubRequest) -> String {
    format!("request {}: device class {} does not exist", result_name(request, sub_request), sub_request.class)
}

/// The devices that can be used on a node, in the order of pools and slices.
fn candidates<'a>(node: &Node, pools: &[Near<'a>]) -> Vec<Candidate<'a>> {
    let mut candidates = Vec::new();
    for near in pools.iter().filter(|near| near.flaw.is_none()) {
        for slice in near.slices() {
            for (number, device) in slice.devices.iter().enumerate() {
                let candidate = Candidate { pool: near.pool, slice, device, number };
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
    /// The device's index in the slice.
    number: usize,
}

impl<'a> Candidate<'a> {
    /// Where the device can be used.
    fn node_selection(&self) -> &'a NodeSelection {
        self.slice.node_selection_of(self.device)
    }

    /// Identifies the pool while the snapshot does not change: its address.
    fn pool_number(&self) -> usize {
        std::ptr::from_ref(self.pool).addr()
    }

    fn id(&self) -> Id {
        (self.slice.driver.clone(), self.slice.pool.clone(), self.device.name.clone())
    }
}

/// A device chosen for a request.
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
    /// The devices that claims have.
    in_use: &'a Taken,
    /// The devices chosen in this search.
    taken: Taken,
    /// What both consume of the counters of pools, by [`Candidate::pool_number`].
    consumed: HashMap<usize, Consumed>,
    chosen: Vec<Vec<Pick>>,
    /// The matching devices of each request for all devices.
    all: HashMap<Which, Vec<usize>>,
    known: &'a mut Known,
}

/// Why a device cannot be chosen for a request.
enum No {
    /// It is in use, is tainted, or lacks what is requested.
    Unfit,
    /// It violates a constraint with the devices chosen so far.
    Apart,
}

impl Search<'_> {
    /// Checks how many devices the claims request. Fails if a claim can never be satisfied because of its own number.
    fn count_devices(&mut self, pools: &[Near]) -> Result<(), Fault> {
        let allocator = self.allocator;
        for (number, claim) in allocator.claims.iter().enumerate() {
            let mut least = 0usize;
            for (request, of) in claim.requests.iter().enumerate() {
                let mut fewest = None;
                for (alternative, sub_request) in of.alternatives.iter().enumerate() {
                    let place = Which { claim: number, request, alternative };
                    let count = match sub_request.count {
                        Some(count) => count,
                        None => self.count_all(place, pools)?,
                    };
                    fewest = Some(fewest.map_or(count, |fewest: usize| fewest.min(count)));
                }
                least = least.saturating_add(fewest.unwrap_or(0));
            }
            if least > MAX_DEVICES {
                let why = format!("number of requested devices {least} exceeds the claim limit of {MAX_DEVICES}");
                return Err(Fault::Error(format!("claim {}: {why}", claim.key)));
            }
        }
        Ok(())
    }

    /// Finds the devices of a request for all matching devices.
    fn count_all(&mut self, place: Which, pools: &[Near]) -> Result<usize, Fault> {
        let allocator = self.allocator;
        let sub_request = &allocator.claims[place.claim].requests[place.request].alternatives[place.alternative];
        if let Some((near, flaw)) = pools.iter().find_map(|near| Some((near, near.flaw?))) {
            let Pool { driver, name, .. } = near.pool;
            let state = if flaw == Flaw::Invalid { "invalid" } else { "being updated" };
            let why = format!("asks for all devices, but resource pool {driver}/{name} is currently {state}");
            return Err(self.fault(place, &why));
        }
        let mut all = Vec::new();
        for candidate in 0..self.candidates.len() {
            self.try_one()?;
            if !self.selected(place, candidate)? {
                continue;
            }
            let one = self.candidates[candidate];
            if consumption(one.device, sub_request).is_some_and(|consumed| self.has_room(one, &one.id(), &consumed)) {
                all.push(candidate);
            }
        }
        let count = all.len();
        self.all.insert(place, all);
        Ok(count)
    }

    /// The error of a request.
    fn fault(&self, place: Which, why: &str) -> Fault {
        let claim = &self.allocator.claims[place.claim].key;
        Fault::Error(format!("claim {claim}, request {}: {why}", self.sub_request(place).1.name))
    }

    fn claim(&mut self, claim: usize) -> Result<bool, Fault> {
        if claim == self.allocator.claims.len() { Ok(true) } else { self.request(claim, 0) }
    }

    fn request(&mut self, claim: usize, request: usize) -> Result<bool, Fault> {
        let Some(of) = self.allocator.claims[claim].requests.get(request) else {
            return self.claim(claim + 1);
        };
        for (alternative, sub_request) in of.alternatives.iter().enumerate() {
            let place = Which { claim, request, alternative };
            let found = match sub_request.count {
                Some(count) => self.some(place, count, 0)?,
                None => self.all(place)?,
            };
            if found {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Chooses `more` devices for a request, from candidate `from` on, and then those of the requests behind it.
    fn some(&mut self, place: Which, more: usize, from: usize) -> Result<bool, Fault> {
        if more == 0 {
            return self.request(place.claim, place.request + 1);
        }
        if self.chosen[place.claim].len() + more > MAX_DEVICES {
            return Ok(false);
        }
        for candidate in from..self.candidates.len() {
            self.try_one()?;
            // Whether the device is free is cheaper to check than the selectors.
            if self.is_used(place, candidate) || !self.selected(place, candidate)? {
                continue;
            }
            let Ok(pick) = self.pick(place, candidate) else { continue };
            self.take(place, pick);
            // A shared device may serve several requests, but within one request all devices differ.
            if self.some(place, more - 1, candidate + 1)? {
                return Ok(true);
            }
            self.give_back(place);
        }
        Ok(false)
    }

    /// Chooses every matching device, or none.
    fn all(&mut self, place: Which) -> Result<bool, Fault> {
        let before = self.chosen[place.claim].len();
        let all = self.all.get(&place).cloned().unwrap_or_default();
        let mut possible = !all.is_empty() && before + all.len() <= MAX_DEVICES;
        for candidate in all {
            if !possible {
                break;
            }
            self.try_one()?;
            match self.pick(place, candidate) {
                Ok(pick) => self.take(place, pick),
                Err(No::Unfit) => possible = false,
                Err(No::Apart) => {
                    let (driver, pool, device) = self.candidates[candidate].id();
                    let why = "because a claim constraint would not be satisfied";
                    return Err(self.fault(place, &format!("cannot add device {driver}/{pool}/{device} {why}")));
                }
            }
        }
        if possible && self.request(place.claim, place.request + 1)? {
            return Ok(true);
        }
        while self.chosen[place.claim].len() > before {
            self.give_back(place);
        }
        Ok(false)
    }

    fn sub_request(&self, place: Which) -> (&Request, &SubRequest) {
        let request = &self.allocator.claims[place.claim].requests[place.request];
        (request, &request.alternatives[place.alternative])
    }

    fn try_one(&mut self) -> Result<(), Fault> {
        Ok(self.known.spent.may_try(&self.allocator.effort)?)
    }

    /// Whether a device satisfies the selectors of a request.
    fn selected(&mut self, place: Which, candidate: usize) -> Result<bool, Fault> {
        let allocator = self.allocator;
        let expressions = &allocator.searches.expressions;
        let Candidate { slice, number: device, .. } = self.candidates[candidate];
        let selectors = &allocator.selectors[place.claim][place.request][place.alternative];
        for (index, Selector { expression, of_class }) in selectors.iter().enumerate() {
            let holds = match expressions.remembered(expression, slice, device) {
                Some(holds) => holds,
                None => {
                    // An expression's cost is known only after its evaluation, so there must be something left in the
                    // budget before.
                    if !of_class {
                        self.known.spent.may_pay()?;
                    }
                    let (holds, cost) = expressions.evaluate(expression, slice, device);
                    if !of_class {
                        self.known.spent.owe(SHOWN + cost / COST_OF_A_TRY);
                    }
                    holds.map_err(|error| {
                        // The selectors of the class come first.
                        let of_class = selectors.iter().take_while(|one| one.of_class).count();
                        let (whose, number) = match index.checked_sub(of_class) {
                            None => (format!("class {}", self.sub_request(place).1.class), index),
                            Some(number) => (format!("claim {}", allocator.claims[place.claim].key), number),
                        };
                        Fault::Error(format!("{whose}: selector #{number}: CEL runtime error: {error}"))
                    })?
                }
            };
            if !holds {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether an unshared device is allocated or chosen already. Admin access ignores other users of the device, but a
    /// claim gets a device only once.
    fn is_used(&self, place: Which, index: usize) -> bool {
        let candidate = self.candidates[index];
        let among = |claims: &[Vec<Pick>]| claims.iter().flatten().any(|pick| pick.candidate == index);
        match self.sub_request(place).1.admin {
            true => !candidate.device.shared && among(&self.chosen[place.claim..=place.claim]),
            // A device that was chosen with admin access counts as used as well.
            false => self.is_whole(&candidate.id()) || (!candidate.device.shared && among(&self.chosen)),
        }
    }

    /// The device for the request, if it is free and satisfies the constraints with the devices chosen so far.
    fn pick(&mut self, place: Which, index: usize) -> Result<Pick, No> {
        let candidate = self.candidates[index];
        self.learn_consumed(candidate);
        let (request, sub_request) = self.sub_request(place);
        let id = candidate.id();
        let consumed = consumption(candidate.device, sub_request).ok_or(No::Unfit)?;
        if self.is_used(place, index) || (!sub_request.admin && !self.is_free(candidate, &id, &consumed)) {
            return Err(No::Unfit);
        }
        if self.allocator.is_tainted(candidate, &id, &sub_request.tolerations) {
            return Err(No::Unfit);
        }
        let about = |one: &&Constraint| one.is_about(&request.name, request.prioritized.then_some(&sub_request.name));
        let constraints = &self.allocator.claims[place.claim].constraints;
        if !constraints.iter().filter(about).all(|one| self.goes_with(one, place.claim, candidate)) {
            return Err(No::Apart);
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
        Ok(Pick { candidate: index, request: place.request, alternative: place.alternative, result })
    }

    /// Whether one claim has the whole device: an earlier claim, or one of these.
    fn is_whole(&self, id: &Id) -> bool {
        self.in_use.is_whole(id) || self.taken.is_whole(id)
    }

    fn is_shared(&self, id: &Id) -> bool {
        self.in_use.is_shared(id) || self.taken.is_shared(id)
    }

    fn is_free(&self, candidate: Candidate<'_>, id: &Id, consumed: &[(Text, i128)]) -> bool {
        if self.is_whole(id) || (!candidate.device.shared && self.is_shared(id)) {
            return false;
        }
        self.has_room(candidate, id, consumed) && self.counters_suffice(candidate)
    }

    /// Whether a shared device has so much capacity left.
    fn has_room(&self, candidate: Candidate<'_>, id: &Id, consumed: &[(Text, i128)]) -> bool {
        let fits = |(name, amount): &(Text, i128)| {
            let named = |one: &&Capacity| one.name == *name;
            let there = candidate.device.capacity.values().find(named).map_or(0, whole);
            let used = self.in_use.amount(id, name).saturating_add(self.taken.amount(id, name));
            used.saturating_add(*amount) <= there
        };
        consumed.iter().all(fits)
    }

    /// Whether the shared counters of the pool have enough left for one more device.
    fn counters_suffice(&self, candidate: Candidate<'_>) -> bool {
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

    /// Sums what allocated devices consume of a pool's counters, the first time that a device with counters is looked
    /// at.
    fn learn_consumed(&mut self, candidate: Candidate<'_>) {
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

    /// Whether a device satisfies a constraint together with the devices chosen so far.
    fn goes_with(&self, constraint: &Constraint, claim: usize, candidate: Candidate<'_>) -> bool {
        let Some(own) = attribute(candidate, &constraint.attribute) else { return false };
        let requests = &self.allocator.claims[claim].requests;
        let under = self.chosen[claim].iter().filter(|pick| {
            let request = &requests[pick.request];
            let sub_request = request.prioritized.then(|| &request.alternatives[pick.alternative].name);
            constraint.is_about(&request.name, sub_request)
        });
        let mut others = under.filter_map(|pick| attribute(self.candidates[pick.candidate], &constraint.attribute));
        others.all(|other| (other == own) != constraint.distinct)
    }

    fn take(&mut self, place: Which, pick: Pick) {
        if !pick.result.admin {
            self.taken.take(&pick.result);
            self.consume(pick.candidate, 1);
        }
        self.chosen[place.claim].push(pick);
    }

    fn consume(&mut self, candidate: usize, times: i128) {
        let candidate = self.candidates[candidate];
        if let Some(consumed) = self.consumed.get_mut(&candidate.pool_number()) {
            consume(consumed, candidate.device, times);
        }
    }

    fn give_back(&mut self, place: Which) {
        self.known.spent.gave_back();
        let Some(pick) = self.chosen[place.claim].pop() else { return };
        if !pick.result.admin {
            self.taken.give_back(&pick.result);
            self.consume(pick.candidate, -1);
        }
    }
}

/// How much of the counters of a pool is in use, by set and name.
type Consumed = HashMap<(Text, Text), i128>;

fn consume(consumed: &mut Consumed, device: &Device, times: i128) {
    for (set, counters) in &device.consumes {
        for (counter, amount) in counters {
            let used = consumed.entry((set.clone(), counter.clone())).or_default();
            *used = used.saturating_add(amount.saturating_mul(times));
        }
    }
}

/// The indexes of a claim, of its request, and of that request's alternative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Which {
    claim: usize,
    request: usize,
    alternative: usize,
}

fn result_name(request: &Request, sub_request: &SubRequest) -> Text {
    if request.prioritized { format!("{}/{}", request.name, sub_request.name).into() } else { request.name.clone() }
}

fn attribute<'a>(candidate: Candidate<'a>, name: &str) -> Option<&'a Attribute> {
    let (domain, id) = name.split_once('/').unwrap_or((&candidate.slice.driver, name));
    candidate
        .device
        .attributes
        .iter()
        .find(|((own, name), _)| **own == *domain && **name == *id)
        .map(|(_, value)| value)
}

fn whole(capacity: &Capacity) -> i128 {
    quantity::whole(&capacity.value).unwrap_or(0)
}

/// The capacity that a request consumes of a shared device; nothing of an unshared one. `None`: the device lacks the
/// capacity, or does not give it out in such parts.
fn consumption(device: &Device, sub_request: &SubRequest) -> Option<Vec<(Text, i128)>> {
    let there = |asked: &Text| device.capacity.values().find(|one| one.name == *asked);
    if !sub_request.capacity.iter().all(|(name, amount)| there(name).is_some_and(|one| *amount <= whole(one))) {
        return None;
    }
    if !device.shared {
        return Some(Vec::new());
    }
    let consumed = device.capacity.values().map(|one| {
        let asked = sub_request.capacity.iter().find(|(name, _)| *name == one.name).map(|(_, amount)| *amount);
        Some((one.name.clone(), part(one, asked)?))
    });
    consumed.collect()
}

/// The part of a capacity that a request gets: the smallest that the policy allows; `None`: there is none.
fn part(capacity: &Capacity, asked: Option<i128>) -> Option<i128> {
    let all = whole(capacity);
    let Some(policy) = &capacity.policy else { return Some(all) };
    let Some(wanted) = asked.or(policy.default) else { return Some(all) };
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

/// The allocation to be written into the claim. A device with `bindsToNode` restricts the claim to the node.
fn allocation(node: &Node, candidates: &[Candidate<'_>], picks: Vec<Pick>) -> Allocation {
    let binds = picks.iter().any(|pick| pick.result.binding.to_node);
    let nodes = if binds {
        Some(this_node(node))
    } else {
        reach(node, picks.iter().map(|pick| candidates[pick.candidate].node_selection()))
    };
    Allocation { nodes, since: None, devices: picks.into_iter().map(|pick| pick.result).collect() }
}

fn this_node(node: &Node) -> NodeSelector {
    let name = Requirement { key: "metadata.name".into(), operator: Operator::In, values: vec![node.name.clone()] };
    NodeSelector(vec![NodeTerm { labels: Vec::new(), fields: vec![name] }])
}

/// The nodes on which the devices in all of these places can be used; `None`: every node.
fn reach<'a>(node: &Node, places: impl Iterator<Item = &'a NodeSelection>) -> Option<NodeSelector> {
    let mut common = NodeTerm { labels: Vec::new(), fields: Vec::new() };
    for place in places {
        match place {
            NodeSelection::AllNodes => {}
            NodeSelection::Nodes(Some(NodeSelector(terms))) if terms.len() == 1 => {
                for (all, own) in [(&mut common.labels, &terms[0].labels), (&mut common.fields, &terms[0].fields)] {
                    all.extend(own.iter().filter(|one| !all.contains(one)).cloned().collect::<Vec<_>>());
                }
            }
            _ => return Some(this_node(node)),
        }
    }
    (!common.is_empty()).then(|| NodeSelector(vec![common]))
}
