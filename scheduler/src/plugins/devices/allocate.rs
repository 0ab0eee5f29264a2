//! Finds devices for claims on a node: request by request, device by device, taking back what leads nowhere.

use super::effort::{Effort, Over, Spent};
use super::expression::Expression;
use super::pools::{Flaw, Near, Pool, Pools};
use super::searches::Searches;
use crate::object::Text;
use crate::object::device::{
    Allocated, Allocation, Ask, Attribute, Capacity, Claim, Constraint, Device, MAX_DEVICES, Place, Request, Slice,
};
use crate::object::node::Node;
use crate::object::selector::{Operator, Requirement};
use crate::object::taint_rule::Selected;
use crate::object::terms::{NodeSelector, NodeTerm, Taint, Toleration, untolerated};
use crate::snapshot::Snapshot;
use holdfast_core::schema::quantity;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A driver, a pool and a device.
type Id = (Text, Text, Text);

/// What an expression may cost to count as one try.
const COST_OF_A_TRY: u64 = 2;
/// What it takes to show a device to an expression, in tries.
const SHOWN: u64 = 4;
/// How long a source may be to count as one try when it is compiled.
const SOURCE_OF_A_TRY: usize = 16;

/// What is known before a node is looked at.
#[derive(Debug)]
pub struct Allocator {
    claims: Vec<Arc<Claim>>,
    /// For each claim, request and alternative, what devices must be like.
    selectors: Vec<Vec<Vec<Vec<Selector>>>>,
    pools: Pools,
    /// Taints that administrators put on devices.
    rules: HashMap<Selected, Vec<Taint>>,
    taken: Taken,
    effort: Effort,
    searches: Arc<Searches>,
    known: Mutex<Known>,
}

/// What devices must be like.
#[derive(Debug, Clone)]
struct Selector {
    expression: Arc<Expression>,
    /// Whether the class says so: its expressions are those of whoever runs the cluster, and nobody pays for them.
    of_class: bool,
}

/// What is found out once for all nodes.
#[derive(Debug, Default)]
struct Known {
    /// Which devices are selected for which alternative, as far as it was asked.
    selected: HashMap<(Which, Numbers), bool>,
    /// What came of nodes that were searched for long, as they were then.
    searched: HashMap<Text, (Arc<Node>, Outcome)>,
    spent: Spent,
}

/// An allocation for each claim, or `None` where there is not enough.
type Outcome = Result<Option<Vec<Allocation>>, Fault>;

/// More tries than this on a node are not made twice for one pod.
const LONG: u64 = 64;

/// Why nothing can be said about a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The search took too long.
    Late,
    /// Searches for the pods of the namespace have taken too much lately.
    Spent,
    /// Nothing was found, and there is a pool that contradicts itself.
    Invalid,
    /// The claim or its class is at fault: that is no better on any other node.
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

/// Why devices cannot be sought at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unusable {
    /// A class is missing, or an expression is none.
    Wrong(String),
    /// Searches for the pods of the namespace have taken too much lately.
    Spent,
}

/// What is in use already.
#[derive(Debug, Default, Clone)]
struct Taken {
    whole: HashMap<Id, ()>,
    shared: HashMap<Id, Shares>,
}

/// What is taken of a device that several share.
#[derive(Debug, Default, Clone)]
struct Shares {
    count: usize,
    amounts: BTreeMap<Text, i128>,
}

impl Allocator {
    /// For claims that have no devices yet. Fails where a class is missing or an expression is none.
    /// `timeout` is how long the search may take; nought: as long as it takes.
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
                for ask in &request.alternatives {
                    let key = crate::object::Key { namespace: "".into(), name: ask.class.clone() };
                    let Some(class) = snapshot.device_classes.get(&key) else {
                        return Err(Unusable::Wrong(no_class(request, ask)));
                    };
                    let of_class = class.selectors.iter().map(|source| (source, true));
                    let sources = of_class.chain(ask.selectors.iter().map(|source| (source, false)));
                    let mut compiled = sources.map(|(source, of_class)| compile(source, of_class));
                    of_request.push(compiled.by_ref().collect::<Result<Vec<_>, _>>()?);
                }
                of_claim.push(of_request);
            }
            selectors.push(of_claim);
        }
        spent.settle(&effort, &searches.purses);
        let pools = Pools::new(snapshot);
        let mut rules: HashMap<Selected, Vec<Taint>> = HashMap::new();
        for rule in snapshot.device_taint_rules.values().filter(|rule| rule.taint.repels()) {
            if let Some(selected) = &rule.selected {
                rules.entry(selected.clone()).or_default().push(rule.taint.clone());
            }
        }
        let (taken, known) = (Taken::of(snapshot), Known { spent, ..Known::default() });
        Ok(Allocator { claims, selectors, pools, rules, taken, effort, searches, known: Mutex::new(known) })
    }

    /// An allocation for each claim on a node; `None` where there is not enough.
    pub fn allocate(&self, node: &Arc<Node>) -> Outcome {
        if self.claims.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, outcome)) = known.searched.get(&node.name).filter(|(then, _)| Arc::ptr_eq(then, node)) {
            return outcome.clone();
        }
        known.spent.next_node(&self.effort, &self.searches.purses);
        let outcome = self.search(node, &mut known);
        let tried = known.spent.settle(&self.effort, &self.searches.purses);
        self.searches.tried.fetch_add(tried, Ordering::Relaxed);
        if tried > LONG || outcome.is_err() {
            known.searched.insert(node.name.clone(), (node.clone(), outcome.clone()));
        }
        outcome
    }

    fn search(&self, node: &Node, known: &mut Known) -> Outcome {
        let pools = self.pools.near(node);
        let mut search = Search {
            allocator: self,
            candidates: self.candidates(node, &pools),
            taken: self.taken.clone(),
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

    /// The devices that can be used on a node, in the order of their pools and slices.
    fn candidates(&self, node: &Node, pools: &[Near]) -> Vec<Candidate<'_>> {
        let mut candidates = Vec::new();
        for near in pools.iter().filter(|near| near.flaw.is_none()) {
            for number in &near.slices {
                let slice = &*self.pools.slices[*number];
                for (at, device) in slice.devices.iter().enumerate() {
                    let candidate = Candidate { slice, device, number: (*number, at) };
                    if candidate.place().includes(&node.name, &node.labels) {
                        candidates.push(candidate);
                    }
                }
            }
        }
        candidates
    }

    /// Whether a device has a taint that is not tolerated: one that its driver tells of, or an administrator.
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

    /// How much the alternatives that were found are liked: eight for a first choice, one less for each after.
    pub fn liking(&self, allocations: &[Allocation]) -> i64 {
        let mut sum = 0;
        for (claim, allocation) in self.claims.iter().zip(allocations) {
            for request in claim.requests.iter().filter(|request| request.prioritized) {
                let chosen = request
                    .alternatives
                    .iter()
                    .position(|ask| allocation.devices.iter().any(|one| one.request == result_name(request, ask)));
                sum += chosen.and_then(|at| i64::try_from(at).ok()).map_or(0, |at| 8 - at);
            }
        }
        sum
    }
}

/// What is said where the class of a request is missing.
pub fn no_class(request: &Request, ask: &Ask) -> String {
    format!("request {}: device class {} does not exist", result_name(request, ask), ask.class)
}

impl Taken {
    fn of(snapshot: &Snapshot) -> Self {
        let mut taken = Taken::default();
        let allocations = snapshot.device_claims.values().filter_map(|claim| claim.allocation.as_ref());
        for device in allocations.flat_map(|allocation| &allocation.devices).filter(|device| !device.admin) {
            let id = (device.driver.clone(), device.pool.clone(), device.device.clone());
            taken.take(id, device);
        }
        taken
    }

    fn take(&mut self, id: Id, device: &Allocated) {
        if !device.shared {
            self.whole.insert(id, ());
            return;
        }
        let shares = self.shared.entry(id).or_default();
        shares.count += 1;
        for (name, amount) in &device.consumed {
            let sum = shares.amounts.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
    }

    fn give_back(&mut self, id: &Id, device: &Allocated) {
        if !device.shared {
            self.whole.remove(id);
            return;
        }
        let Some(shares) = self.shared.get_mut(id) else { return };
        shares.count -= 1;
        for (name, amount) in &device.consumed {
            let sum = shares.amounts.entry(name.clone()).or_default();
            *sum = sum.saturating_sub(*amount);
        }
        if shares.count == 0 {
            self.shared.remove(id);
        }
    }
}

#[derive(Clone, Copy)]
struct Candidate<'a> {
    slice: &'a Slice,
    device: &'a Device,
    number: Numbers,
}

/// The number of a slice, and of a device in it.
type Numbers = (usize, usize);

impl<'a> Candidate<'a> {
    /// Where the device can be used.
    fn place(&self) -> &'a Place {
        if let Place::PerDevice = self.slice.place { &self.device.place } else { &self.slice.place }
    }

    fn id(&self) -> Id {
        (self.slice.driver.clone(), self.slice.pool.clone(), self.device.name.clone())
    }
}

/// A device for a request.
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
    taken: Taken,
    chosen: Vec<Vec<Pick>>,
    /// The devices that are meant where all are asked for.
    all: HashMap<Which, Vec<usize>>,
    known: &'a mut Known,
}

/// Why a device is not for a request.
enum No {
    /// It is in use, or keeps pods away, or has not what is asked for.
    Unfit,
    /// It does not go with those that were chosen.
    Apart,
}

impl Search<'_> {
    /// Finds out how many devices claims ask for. Fails where that can never be: it is the claim's fault then.
    fn count_devices(&mut self, pools: &[Near]) -> Result<(), Fault> {
        let allocator = self.allocator;
        for (number, claim) in allocator.claims.iter().enumerate() {
            let mut least = 0usize;
            for (request, of) in claim.requests.iter().enumerate() {
                let mut fewest = None;
                for (alternative, ask) in of.alternatives.iter().enumerate() {
                    let place = Which { claim: number, request, alternative };
                    let count = match ask.count {
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

    /// Finds the devices that are meant by all.
    fn count_all(&mut self, place: Which, pools: &[Near]) -> Result<usize, Fault> {
        let allocator = self.allocator;
        let ask = &allocator.claims[place.claim].requests[place.request].alternatives[place.alternative];
        if let Some((near, flaw)) = pools.iter().find_map(|near| Some((near, near.flaw?))) {
            let Pool { driver, name, .. } = &allocator.pools.pools[near.pool];
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
            if consumption(one.device, ask).is_some_and(|consumed| self.has_room(one, &one.id(), &consumed)) {
                all.push(candidate);
            }
        }
        let count = all.len();
        self.all.insert(place, all);
        Ok(count)
    }

    /// What is wrong with a request.
    fn fault(&self, place: Which, why: &str) -> Fault {
        let claim = &self.allocator.claims[place.claim].key;
        Fault::Error(format!("claim {claim}, request {}: {why}", self.ask(place).1.name))
    }

    fn claim(&mut self, claim: usize) -> Result<bool, Fault> {
        if claim == self.allocator.claims.len() { Ok(true) } else { self.request(claim, 0) }
    }

    fn request(&mut self, claim: usize, request: usize) -> Result<bool, Fault> {
        let Some(of) = self.allocator.claims[claim].requests.get(request) else {
            return self.claim(claim + 1);
        };
        for (alternative, ask) in of.alternatives.iter().enumerate() {
            let place = Which { claim, request, alternative };
            let found = match ask.count {
                Some(count) => self.some(place, count, 0)?,
                None => self.all(place)?,
            };
            if found {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// So many more devices, from a candidate on.
    fn some(&mut self, place: Which, more: usize, from: usize) -> Result<bool, Fault> {
        if more == 0 {
            return self.request(place.claim, place.request + 1);
        }
        if self.chosen[place.claim].len() + more > MAX_DEVICES {
            return Ok(false);
        }
        for candidate in from..self.candidates.len() {
            self.try_one()?;
            // Who is not free is not asked whether it would do.
            if self.is_used(place, candidate) || !self.selected(place, candidate)? {
                continue;
            }
            let Ok(pick) = self.pick(place, candidate) else { continue };
            self.take(place, pick);
            // Devices are shared by requests: within one request each is another one.
            if self.some(place, more - 1, candidate + 1)? {
                return Ok(true);
            }
            self.give_back(place);
        }
        Ok(false)
    }

    /// Every device that is meant, or none.
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

    fn ask(&self, place: Which) -> (&Request, &Ask) {
        let request = &self.allocator.claims[place.claim].requests[place.request];
        (request, &request.alternatives[place.alternative])
    }

    fn try_one(&mut self) -> Result<(), Fault> {
        Ok(self.known.spent.may_try(&self.allocator.effort)?)
    }

    fn selected(&mut self, place: Which, candidate: usize) -> Result<bool, Fault> {
        let at = (place, self.candidates[candidate].number);
        if let Some(known) = self.known.selected.get(&at) {
            return Ok(*known);
        }
        let selected = self.select(place, self.candidates[candidate])?;
        self.known.selected.insert(at, selected);
        Ok(selected)
    }

    fn select(&mut self, place: Which, candidate: Candidate<'_>) -> Result<bool, Fault> {
        let allocator = self.allocator;
        let expressions = &allocator.searches.expressions;
        let (slice, device) = (&allocator.pools.slices[candidate.number.0], candidate.number.1);
        let selectors = &allocator.selectors[place.claim][place.request][place.alternative];
        for (index, Selector { expression, of_class }) in selectors.iter().enumerate() {
            let holds = match expressions.remembered(expression, slice, device) {
                Some(holds) => holds,
                None => {
                    // What an expression costs is known when it was evaluated: when all is spent, none is.
                    if !of_class {
                        self.known.spent.may_pay()?;
                    }
                    let (holds, cost) = expressions.evaluate(expression, slice, device);
                    if !of_class {
                        self.known.spent.owe(SHOWN + cost / COST_OF_A_TRY);
                    }
                    holds.map_err(|error| {
                        // Those of the class come first.
                        let of_class = selectors.iter().take_while(|one| one.of_class).count();
                        let (whose, number) = match index.checked_sub(of_class) {
                            None => (format!("class {}", self.ask(place).1.class), index),
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

    /// Whether a device that nobody shares has been given, or chosen. Who looks at devices that others use does not mind
    /// that, but nobody gets one twice for a claim.
    fn is_used(&self, place: Which, index: usize) -> bool {
        let candidate = self.candidates[index];
        let among = |claims: &[Vec<Pick>]| claims.iter().flatten().any(|pick| pick.candidate == index);
        match self.ask(place).1.admin {
            true => !candidate.device.shared && among(&self.chosen[place.claim..=place.claim]),
            // What was chosen to be looked at is in use as well.
            false => {
                self.taken.whole.contains_key(&candidate.id()) || (!candidate.device.shared && among(&self.chosen))
            }
        }
    }

    /// The device for the request, if it is free and goes with what is chosen already.
    fn pick(&self, place: Which, index: usize) -> Result<Pick, No> {
        let candidate = self.candidates[index];
        let (request, ask) = self.ask(place);
        let id = candidate.id();
        let consumed = consumption(candidate.device, ask).ok_or(No::Unfit)?;
        if self.is_used(place, index) || (!ask.admin && !self.is_free(candidate, &id, &consumed)) {
            return Err(No::Unfit);
        }
        if self.allocator.is_tainted(candidate, &id, &ask.tolerations) {
            return Err(No::Unfit);
        }
        let about = |one: &&Constraint| one.is_about(&request.name, request.prioritized.then_some(&ask.name));
        let constraints = &self.allocator.claims[place.claim].constraints;
        if !constraints.iter().filter(about).all(|one| self.goes_with(one, place.claim, candidate)) {
            return Err(No::Apart);
        }
        let result = Allocated {
            request: result_name(request, ask),
            driver: id.0,
            pool: id.1,
            device: id.2,
            admin: ask.admin,
            shared: candidate.device.shared,
            consumed,
            binding: candidate.device.binding.clone(),
        };
        Ok(Pick { candidate: index, request: place.request, alternative: place.alternative, result })
    }

    fn is_free(&self, candidate: Candidate<'_>, id: &Id, consumed: &[(Text, i128)]) -> bool {
        if self.taken.whole.contains_key(id) {
            return false;
        }
        if !candidate.device.shared && self.taken.shared.contains_key(id) {
            return false;
        }
        self.has_room(candidate, id, consumed) && self.counters_suffice(candidate)
    }

    /// Whether a device that is shared has so much left.
    fn has_room(&self, candidate: Candidate<'_>, id: &Id, consumed: &[(Text, i128)]) -> bool {
        let used = self.taken.shared.get(id);
        let fits = |(name, amount): &(Text, i128)| {
            let named = |one: &&Capacity| one.name == *name;
            let there = candidate.device.capacity.values().find(named).map_or(0, whole);
            let used = used.and_then(|used| used.amounts.get(name)).copied().unwrap_or(0);
            used.saturating_add(*amount) <= there
        };
        consumed.iter().all(fits)
    }

    /// Whether the counters that devices of the pool share have enough left for one more.
    fn counters_suffice(&self, candidate: Candidate<'_>) -> bool {
        let same_pool = |one: &Slice| one.driver == candidate.slice.driver && one.pool == candidate.slice.pool;
        candidate.device.consumes.iter().all(|(set, wanted)| {
            let slices = || self.allocator.pools.slices.iter().filter(|slice| same_pool(slice));
            let Some((_, there)) = slices().flat_map(|slice| &slice.counters).find(|(name, _)| name == set) else {
                return false;
            };
            let in_use = |slice: &Slice, device: &Device| {
                let id = (slice.driver.clone(), slice.pool.clone(), device.name.clone());
                self.taken.whole.contains_key(&id) || self.taken.shared.contains_key(&id)
            };
            wanted.iter().all(|(counter, amount)| {
                let devices = slices().flat_map(|slice| slice.devices.iter().map(move |device| (slice, device)));
                let used = devices.filter(|(slice, device)| in_use(slice, device)).flat_map(|(_, device)| {
                    device.consumes.iter().filter(|(name, _)| name == set).filter_map(|(_, all)| all.get(counter))
                });
                used.sum::<i128>() + amount <= there.get(counter).copied().unwrap_or(0)
            })
        })
    }

    /// Whether a device's attribute goes with those of the devices that were chosen under a constraint.
    fn goes_with(&self, constraint: &Constraint, claim: usize, candidate: Candidate<'_>) -> bool {
        let Some(own) = attribute(candidate, &constraint.attribute) else { return false };
        let requests = &self.allocator.claims[claim].requests;
        let under = self.chosen[claim].iter().filter(|pick| {
            let request = &requests[pick.request];
            let ask = request.prioritized.then(|| &request.alternatives[pick.alternative].name);
            constraint.is_about(&request.name, ask)
        });
        let mut others = under.filter_map(|pick| attribute(self.candidates[pick.candidate], &constraint.attribute));
        others.all(|other| (other == own) != constraint.distinct)
    }

    fn take(&mut self, place: Which, pick: Pick) {
        if !pick.result.admin {
            let id = self.candidates[pick.candidate].id();
            self.taken.take(id, &pick.result);
        }
        self.chosen[place.claim].push(pick);
    }

    fn give_back(&mut self, place: Which) {
        self.known.spent.gave_back();
        let Some(pick) = self.chosen[place.claim].pop() else { return };
        if pick.result.admin {
            return;
        }
        let id = self.candidates[pick.candidate].id();
        self.taken.give_back(&id, &pick.result);
    }
}

/// Which alternative of which request of which claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Which {
    claim: usize,
    request: usize,
    alternative: usize,
}

fn result_name(request: &Request, ask: &Ask) -> Text {
    if request.prioritized { format!("{}/{}", request.name, ask.name).into() } else { request.name.clone() }
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

/// What a request takes of a device that is shared: nothing of one that is not; `None` where the device has not what is
/// asked for, or not in such parts.
fn consumption(device: &Device, ask: &Ask) -> Option<Vec<(Text, i128)>> {
    let there = |asked: &Text| device.capacity.values().find(|one| one.name == *asked);
    if !ask.capacity.iter().all(|(name, amount)| there(name).is_some_and(|one| *amount <= whole(one))) {
        return None;
    }
    if !device.shared {
        return Some(Vec::new());
    }
    let consumed = device.capacity.values().map(|one| {
        let asked = ask.capacity.iter().find(|(name, _)| *name == one.name).map(|(_, amount)| *amount);
        Some((one.name.clone(), part(one, asked)?))
    });
    consumed.collect()
}

/// The part of a capacity that a request gets: the smallest in which it can be had; `None`: there is none.
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

/// What is written into the claim. Devices that are bound to a node bind the claim to it.
fn allocation(node: &Node, candidates: &[Candidate<'_>], picks: Vec<Pick>) -> Allocation {
    let binds = picks.iter().any(|pick| pick.result.binding.to_node);
    let nodes = if binds {
        Some(this_node(node))
    } else {
        reach(node, picks.iter().map(|pick| candidates[pick.candidate].place()))
    };
    Allocation { nodes, since: None, devices: picks.into_iter().map(|pick| pick.result).collect() }
}

fn this_node(node: &Node) -> NodeSelector {
    let name = Requirement { key: "metadata.name".into(), operator: Operator::In, values: vec![node.name.clone()] };
    NodeSelector(vec![NodeTerm { labels: Vec::new(), fields: vec![name] }])
}

/// The nodes on which devices in all of these places can be used; `None`: on every node.
fn reach<'a>(node: &Node, places: impl Iterator<Item = &'a Place>) -> Option<NodeSelector> {
    let mut common = NodeTerm { labels: Vec::new(), fields: Vec::new() };
    for place in places {
        match place {
            Place::Everywhere => {}
            Place::Nodes(Some(NodeSelector(terms))) if terms.len() == 1 => {
                for (all, own) in [(&mut common.labels, &terms[0].labels), (&mut common.fields, &terms[0].fields)] {
                    all.extend(own.iter().filter(|one| !all.contains(one)).cloned().collect::<Vec<_>>());
                }
            }
            _ => return Some(this_node(node)),
        }
    }
    (!common.is_empty()).then(|| NodeSelector(vec![common]))
}
