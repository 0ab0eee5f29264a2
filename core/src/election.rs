//! Coordinated leader election: plans the requests that choose one of a lease's LeaseCandidates and write the choice
//! into the Lease.
//!
//! This module stores nothing between two plans: the progress of an election is in the candidates. The server pings
//! each candidate (`pingTime`); a candidate answers by renewing itself. Of the candidates that answered in time, the
//! one with the oldest emulation version is elected. A holder that is not the best candidate releases the lease when it
//! reads `preferredHolder`.

use crate::apiservices::write;
use crate::event::Offset;
use crate::kinds::coordination::OLDEST_EMULATION_VERSION;
use crate::kinds::known;
use crate::kinds::semantic_version;
use crate::namespace::Step;
use crate::object::meta;
use crate::presence::{LEASES_NAMESPACE, made, micros, read};
use crate::request::{Target, Verb};
use crate::stamp::Stamp;
use crate::state::State;
use holdfast_value::{Value, json};
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::time::Duration;

/// The name of the Lease that the API server which coordinates elections holds.
const LEADER: &str = "leader-election-controller";
/// How long after a ping a candidate must answer. An answer counts in elections for the same time.
const ELECTION: SignedDuration = SignedDuration::from_secs(5);
/// The duration, in seconds, after which the lease of an elected holder ends if the holder does not renew it.
const LEASE_SECONDS: i64 = 5;
/// A candidate that has not renewed itself for this long is deleted. All candidates are pinged when one of them has not
/// renewed itself for half of this time.
const CANDIDATE: SignedDuration = SignedDuration::from_mins(30);
/// The interval, in milliseconds, at which leases with candidates are planned again, even if nothing was written.
const AGAIN_MS: i64 = 5_000;

/// The requests to make now for all elections, and the time of the next plan.
#[derive(Debug, Default)]
pub struct Plan {
    pub steps: Vec<Step>,
    /// The time of the next plan, in milliseconds since 1970. `None` means that the next plan is made when something is
    /// written.
    pub again_ms: Option<i64>,
    /// The reasons why some leases cannot have an election.
    pub stuck: Vec<String>,
}

/// The name and the durations with which this server holds the lease for coordinating elections.
#[derive(Debug, Clone)]
pub struct Term {
    /// The name that distinguishes this server from others.
    pub holder: String,
    /// How long after a renewal other servers regard this server as the holder.
    pub lease: Duration,
    /// How long after a renewal this server itself acts as the holder.
    pub renew_deadline: Duration,
}

impl Term {
    /// Takes the lease for coordinating elections if it is free, or renews it if this server holds it.
    pub fn renew(&self, state: &State, stamp: Stamp) -> Option<Step> {
        let now = micros(stamp);
        let spec = json!({
            "holderIdentity": self.holder,
            "leaseDurationSeconds": self.lease.as_secs().max(1),
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": 0,
        });
        let wanted = json!({
            "apiVersion": known::LEASE.api_version(),
            "kind": known::LEASE.kind,
            "metadata": {"name": LEADER, "namespace": LEASES_NAMESPACE},
            "spec": spec,
        });
        made(state, known::LEASE, &wanted, |old| {
            let is_own = old["spec"]["holderIdentity"] == *self.holder;
            if !is_own && !is_free(old, stamp.time) {
                return None;
            }
            let mut new = old.clone();
            new["spec"] = wanted["spec"].clone();
            let terms = old["spec"]["leaseTransitions"].as_i64().unwrap_or_default();
            new["spec"]["leaseTransitions"] = terms.saturating_add(i64::from(!is_own)).into();
            if is_own {
                new["spec"]["acquireTime"] = old["spec"]["acquireTime"].clone();
            }
            Some(new)
        })
    }

    /// Whether this server holds the lease for coordinating elections.
    pub fn leads(&self, state: &State, stamp: Stamp) -> bool {
        let Some(lease) = read(state, known::LEASE, LEASES_NAMESPACE, LEADER) else { return false };
        let renewed = time(&lease["spec"]["renewTime"]);
        let deadline = SignedDuration::try_from(self.renew_deadline).unwrap_or(SignedDuration::MAX);
        lease["spec"]["holderIdentity"] == *self.holder
            && renewed.is_some_and(|renewed| stamp.time.duration_since(renewed) < deadline)
    }
}

/// Whether a lease has no holder, or its holder did not renew the lease in time.
fn is_free(lease: &Value, now: Timestamp) -> bool {
    let seconds = lease["spec"]["leaseDurationSeconds"].as_i64();
    let is_renewed = time(&lease["spec"]["renewTime"])
        .zip(seconds)
        .is_some_and(|(renewed, seconds)| now.duration_since(renewed) <= SignedDuration::from_secs(seconds));
    holder(lease).is_none() || !is_renewed
}

fn holder(lease: &Value) -> Option<&str> {
    lease["spec"]["holderIdentity"].as_str().filter(|holder| !holder.is_empty())
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

/// One LeaseCandidate.
struct Candidate {
    namespace: String,
    name: String,
    document: Value,
    version: Offset,
}

type SemanticVersion = [u64; 3];

impl Candidate {
    fn renewed(&self) -> Option<Timestamp> {
        time(&self.document["spec"]["renewTime"])
    }

    fn pinged(&self) -> Option<Timestamp> {
        time(&self.document["spec"]["pingTime"])
    }

    /// Whether the candidate renewed itself at most this long before `now`.
    fn is_fresh(&self, within: SignedDuration, now: Timestamp) -> bool {
        self.renewed().is_some_and(|renewed| now.duration_since(renewed) <= within)
    }

    /// Whether the candidate was pinged and has not answered yet.
    fn owes_an_answer(&self) -> bool {
        self.pinged().is_some_and(|pinged| self.renewed().is_none_or(|renewed| renewed < pinged))
    }

    fn was_asked_lately(&self, now: Timestamp) -> bool {
        self.pinged().is_some_and(|pinged| now.duration_since(pinged) < ELECTION)
    }

    fn strategy(&self) -> &str {
        self.document["spec"]["strategy"].as_str().unwrap_or_default()
    }

    fn version(&self, field: &str) -> Option<SemanticVersion> {
        semantic_version(self.document["spec"][field].as_str()?)
    }

    /// The candidate with the lowest rank is elected: the oldest emulation version, then the oldest binary version,
    /// then the oldest candidate, then the first name.
    fn rank(&self) -> Option<(SemanticVersion, SemanticVersion, &str, &str)> {
        let created = self.document["metadata"]["creationTimestamp"].as_str().unwrap_or_default();
        Some((self.version("emulationVersion")?, self.version("binaryVersion")?, created, &self.name))
    }
}

/// The candidates by namespace and lease name.
fn candidates(state: &State) -> BTreeMap<(String, String), Vec<Candidate>> {
    let mut all: BTreeMap<_, Vec<Candidate>> = BTreeMap::new();
    let Some((kind, _)) = state.registry.known(known::LEASE_CANDIDATE) else { return all };
    for (key, entry) in state.scan(kind, "", None) {
        let (Some(namespace), name) = meta::split_key(key) else { continue };
        let document = entry.document();
        let lease = document["spec"]["leaseName"].as_str().unwrap_or_default().to_owned();
        let candidate =
            Candidate { namespace: namespace.to_owned(), name: name.to_owned(), document, version: entry.offset };
        all.entry((namespace.to_owned(), lease)).or_default().push(candidate);
    }
    all
}

/// Plans the next requests of the election for each lease that has candidates.
pub fn plan(state: &State, stamp: Stamp) -> Plan {
    let mut plan = Plan::default();
    for ((namespace, name), mut candidates) in candidates(state) {
        candidates.retain(|candidate| candidate.is_fresh(CANDIDATE, stamp.time));
        if candidates.is_empty() {
            continue;
        }
        plan.again_ms = Some(stamp.time.as_millisecond() + AGAIN_MS);
        let election = Election { state, stamp, namespace: &namespace, name: &name, candidates: &candidates };
        match election.step() {
            Ok(steps) => plan.steps.extend(steps),
            Err(why) => plan.stuck.push(format!("{namespace}/{name}: {why}")),
        }
    }
    plan
}

/// Deletes candidates that did not renew themselves within [`CANDIDATE`].
pub fn collect(state: &State, stamp: Stamp) -> Vec<Step> {
    let all = candidates(state).into_values().flatten();
    let over = all.filter(|candidate| !candidate.is_fresh(CANDIDATE, stamp.time));
    over.filter_map(|candidate| {
        let mut step = write(target(state, &candidate)?, Verb::Delete, None);
        // With the precondition, a candidate that renews itself in the meantime is not deleted.
        step.request.options.delete.precondition_resource_version = Some(candidate.version.to_string());
        Some(step)
    })
    .collect()
}

fn target(state: &State, candidate: &Candidate) -> Option<Target> {
    let (kind, version) = state.registry.known(known::LEASE_CANDIDATE)?;
    let (namespace, name) = (Some(candidate.namespace.clone()), Some(candidate.name.clone()));
    Some(Target { kind, version, namespace, name, subresource: None })
}

/// The election for one lease.
struct Election<'a> {
    state: &'a State,
    stamp: Stamp,
    namespace: &'a str,
    name: &'a str,
    /// The candidates for the lease that renewed themselves within [`CANDIDATE`].
    candidates: &'a [Candidate],
}

impl Election<'_> {
    fn step(&self) -> Result<Vec<Step>, String> {
        let lease = read(self.state, known::LEASE, self.namespace, self.name);
        if !self.is_due(lease.as_ref())? {
            return Ok(Vec::new());
        }
        let now = self.stamp.time;
        let asked: Vec<Step> = self.candidates.iter().filter_map(|candidate| self.ask(candidate)).collect();
        let is_awaited = |candidate: &Candidate| candidate.owes_an_answer() && candidate.was_asked_lately(now);
        if !asked.is_empty() || self.candidates.iter().any(is_awaited) {
            return Ok(asked);
        }
        let there: Vec<&Candidate> =
            self.candidates.iter().filter(|candidate| candidate.is_fresh(ELECTION, now)).collect();
        if there.is_empty() {
            return Err("no candidate answers".into());
        }
        let strategy = strategy(&there)?;
        let elected = (strategy == OLDEST_EMULATION_VERSION).then(|| best(&there)).flatten();
        Ok(self.elect(strategy, elected.map(|candidate| candidate.name.as_str())).into_iter().collect())
    }

    /// Whether an election is due: the lease is free, its holder is not the best candidate, or a candidate has not
    /// renewed itself for long.
    fn is_due(&self, lease: Option<&Value>) -> Result<bool, String> {
        let now = self.stamp.time;
        let Some(lease) = lease.filter(|lease| !is_free(lease, now)) else { return Ok(true) };
        if self.candidates.iter().any(|candidate| !candidate.is_fresh(CANDIDATE / 2, now)) {
            return Ok(true);
        }
        let all: Vec<&Candidate> = self.candidates.iter().collect();
        if strategy(&all)? != OLDEST_EMULATION_VERSION {
            return Ok(false);
        }
        Ok(best(&all).is_some_and(|best| holder(lease) != Some(&best.name)))
    }

    /// Pings a candidate, unless the candidate renewed itself just now or owes an answer to an earlier ping.
    fn ask(&self, candidate: &Candidate) -> Option<Step> {
        let now = self.stamp.time;
        if candidate.is_fresh(ELECTION, now) || candidate.owes_an_answer() {
            return None;
        }
        let mut document = candidate.document.clone();
        document["spec"]["pingTime"] = micros(self.stamp).into();
        Some(write(target(self.state, candidate)?, Verb::Update, document.as_object()))
    }

    /// Writes the elected candidate into the Lease: as holder if the lease is free, otherwise as preferred holder.
    fn elect(&self, strategy: &str, elected: Option<&str>) -> Option<Step> {
        let term = json!({
            "holderIdentity": elected,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": micros(self.stamp),
            "strategy": strategy,
        });
        let wanted = json!({
            "apiVersion": known::LEASE.api_version(),
            "kind": known::LEASE.kind,
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": term,
        });
        made(self.state, known::LEASE, &wanted, |old| {
            let mut new = old.clone();
            let spec = new["spec"].as_object_mut()?;
            spec.insert("strategy", strategy.into());
            if let Some(elected) = elected.filter(|elected| holder(old) != Some(elected)) {
                if is_free(old, self.stamp.time) {
                    spec.retain(|field, _| !matches!(field.as_str(), "preferredHolder" | "acquireTime"));
                    for field in ["holderIdentity", "leaseDurationSeconds", "renewTime"] {
                        spec.insert(field, term[field].clone());
                    }
                } else {
                    spec.insert("preferredHolder", elected.into());
                }
            }
            Some(new)
        })
    }
}

/// The strategy that the candidates with the newest binary version name. It is an error if these candidates name
/// different strategies.
fn strategy<'a>(candidates: &[&'a Candidate]) -> Result<&'a str, String> {
    let newest = candidates.iter().map(|candidate| candidate.version("binaryVersion").unwrap_or_default()).max();
    let mut newest =
        candidates.iter().filter(|candidate| candidate.version("binaryVersion").or(Some([0; 3])) == newest);
    let Some(first) = newest.next() else { return Ok("") };
    match newest.find(|other| other.strategy() != first.strategy()) {
        None => Ok(first.strategy()),
        Some(other) => Err(format!(
            "candidates {:?} and {:?} of one version have the strategies {} and {}",
            first.name,
            other.name,
            first.strategy(),
            other.strategy()
        )),
    }
}

fn best<'a>(candidates: &[&'a Candidate]) -> Option<&'a Candidate> {
    candidates.iter().filter(|candidate| candidate.rank().is_some()).min_by_key(|candidate| candidate.rank()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-11-21T10:00:30.000000Z";

    fn candidate(name: &str, spec: Value) -> Candidate {
        let document = json!({"metadata": {"creationTimestamp": "2026-11-21T10:00:00Z"}, "spec": spec});
        Candidate { namespace: "n".into(), name: name.into(), document, version: Offset::ZERO }
    }

    fn of(name: &str, emulated: &str, binary: &str, strategy: &str) -> Candidate {
        candidate(name, json!({"emulationVersion": emulated, "binaryVersion": binary, "strategy": strategy}))
    }

    #[test]
    fn the_oldest_release_wins() {
        let all = [
            of("c", "1.34.0", "1.35.0", "x"),
            of("b", "1.34.0", "1.34.1", "x"),
            of("a", "1.34.0", "1.34.1", "x"),
            of("d", "1.33.0", "", "x"),
        ];
        let names = |count: usize| best(&all.iter().take(count).collect::<Vec<_>>()).map(|best| best.name.clone());
        assert_eq!(
            [names(0), names(1), names(2), names(4)],
            [None, Some("c".into()), Some("b".into()), Some("a".into())]
        );
    }

    #[test]
    fn the_newest_programs_say_how_and_must_agree() {
        let all =
            [of("a", "1.34.0", "1.34.0", "x"), of("b", "1.34.0", "1.35.0", "y"), of("c", "1.34.0", "1.35.0", "z")];
        let said = |range: std::ops::Range<usize>| strategy(&all[range].iter().collect::<Vec<_>>()).map(str::to_owned);
        assert_eq!(said(0..0), Ok(String::new()));
        assert_eq!(said(0..1), Ok("x".into()));
        assert_eq!(said(0..2), Ok("y".into()));
        assert!(said(0..3).unwrap_err().contains("\"b\" and \"c\""));
    }

    #[test]
    fn a_lease_is_free_when_its_time_is_over() {
        let now = NOW.parse().unwrap();
        let lease = |holder: &str, renewed: &str| json!({"spec": {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15}});
        assert!(!is_free(&lease("a", "2026-11-21T10:00:15.000000Z"), now));
        assert!(is_free(&lease("a", "2026-11-21T10:00:14.999999Z"), now));
        assert!(is_free(&lease("", NOW), now) && is_free(&json!({"spec": {"holderIdentity": "a"}}), now));
    }

    #[test]
    fn a_candidate_is_asked_once_and_has_time_to_answer() {
        let now = NOW.parse().unwrap();
        let (early, late) = ("2026-11-21T10:00:10.000000Z", "2026-11-21T10:00:28.000000Z");
        for (spec, owes, is_asked, is_fresh) in [
            (json!({}), false, false, false),
            (json!({"renewTime": late}), false, false, true),
            (json!({"pingTime": late, "renewTime": early}), true, true, false),
            (json!({"pingTime": early}), true, false, false),
            (json!({"pingTime": early, "renewTime": late}), false, false, true),
        ] {
            let candidate = candidate("a", spec.clone());
            let found =
                (candidate.owes_an_answer(), candidate.was_asked_lately(now), candidate.is_fresh(ELECTION, now));
            assert_eq!(found, (owes, is_asked, is_fresh), "{spec}");
        }
    }
}
