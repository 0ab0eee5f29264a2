//! The invariants of writes that pass admission.
//!
//! If a webhook or policy was registered during the whole request, it must have been called. If it was not registered
//! at any time during the request, it must not have been called. If it was registered or removed during the request, it
//! may have been called or not.

use super::hooks::{Hooks, Said};
use super::{BAD, CALM, Order, ROOM, WATCHED, WEBHOOKS, Want};
use crate::oracle::{CheckResult, ensure};
use holdfast_core::Refusal;
use holdfast_core::event::{Offset, Record};
use holdfast_core::state::{Entry, State};
use holdfast_engine::{LogRead, Reply};
use holdfast_value::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The history of the registered webhooks and policies, and of objects.
#[derive(Default)]
pub struct Past {
    last: Offset,
    /// The times at which each webhook (by name), the policy and the binding (by kind) were registered. Each time says
    /// whether a failure of the webhook or policy denies the request.
    registered: BTreeMap<String, Vec<Registration>>,
    /// The times at which each object of the clients existed, by the object's key.
    objects: BTreeMap<String, Vec<(Offset, Option<Offset>)>>,
    /// The usage of each quota, each time with the version from which on the quota had this usage.
    used: BTreeMap<&'static str, Vec<(Offset, u64)>>,
}

struct Registration {
    from: Offset,
    /// The version that ended the registration; `None` if it has not ended.
    to: Option<Offset>,
    fails: bool,
}

impl Past {
    /// Reads the records that were appended since the last call.
    pub fn learn(&mut self, log: &dyn LogRead, state: &State) -> CheckResult {
        let fresh = log.scan(None, self.last, usize::MAX).map_err(|fault| fault.to_string())?;
        for record in fresh {
            self.last = Offset(record.offset);
            self.take(&record)?;
        }
        ensure(self.last == state.offset, || format!("{} is served, and {} is there", state.offset, self.last))
    }

    fn take(&mut self, record: &Record) -> CheckResult {
        let object: Value = serde_json::from_slice(&record.object).map_err(|error| error.to_string())?;
        let (at, kind) = (Offset(record.offset), object["kind"].as_str().unwrap_or_default());
        match kind {
            "ConfigMap" => {
                let lives = self.objects.entry(record.key.clone()).or_default();
                match (record.is_delete(), record.replaces) {
                    (true, _) => lives.iter_mut().for_each(|(_, to)| _ = to.get_or_insert(at)),
                    (false, 0) => lives.push((at, None)),
                    (false, _) => {}
                }
            }
            "ResourceQuota" => {
                let used = object["status"]["used"]["count/configmaps"].as_str().and_then(|used| used.parse().ok());
                let namespace = if record.key.starts_with(WATCHED) { WATCHED } else { CALM };
                self.used.entry(namespace).or_default().extend(used.map(|used| (at, used)));
            }
            "Namespace" => {}
            _ => {
                let own = object["metadata"]["name"].as_str().unwrap_or_default();
                let name = if WEBHOOKS.contains(&own) { own } else { kind };
                let times = self.registered.entry(name.to_owned()).or_default();
                if let Some(last) = times.last_mut() {
                    last.to.get_or_insert(at);
                }
                if !record.is_delete() {
                    let fails = object["webhooks"][0]["failurePolicy"] == "Fail";
                    times.push(Registration { from: at, to: None, fails });
                }
            }
        }
        Ok(())
    }

    pub fn is_registered(&self, name: &str) -> bool {
        self.registered.get(name).and_then(|times| times.last()).is_some_and(|last| last.to.is_none())
    }

    /// All registrations of a name that existed at some time between two versions.
    fn meanwhile(&self, name: &str, from: Offset, to: Offset) -> impl Iterator<Item = &Registration> {
        let times = self.registered.get(name).into_iter().flatten();
        times.filter(move |time| time.from <= to && time.to.is_none_or(|end| end > from))
    }

    /// The registration of a name that existed during the whole time between two versions.
    fn all_the_while(&self, name: &str, from: Offset, to: Offset) -> Option<&Registration> {
        self.meanwhile(name, from, to).find(|time| time.from <= from && time.to.is_none_or(|end| end > to))
    }

    fn policy_all_the_while(&self, from: Offset, to: Offset) -> bool {
        POLICY.iter().all(|kind| self.all_the_while(kind, from, to).is_some())
    }

    fn policy_meanwhile(&self, from: Offset, to: Offset) -> bool {
        POLICY.iter().all(|kind| self.meanwhile(kind, from, to).next().is_some())
    }

    fn existed(&self, place: &str, from: Offset, to: Offset) -> bool {
        let lives = self.objects.get(place).into_iter().flatten();
        lives.into_iter().any(|(begin, end)| *begin <= to && end.is_none_or(|end| end > from))
    }

    fn existed_all_the_while(&self, place: &str, from: Offset, to: Offset) -> bool {
        let lives = self.objects.get(place).into_iter().flatten();
        lives.into_iter().any(|(begin, end)| *begin <= from && end.is_none_or(|end| end > to))
    }

    /// Whether a quota was full at some time between two versions.
    fn was_full(&self, namespace: &str, from: Offset, to: Offset) -> bool {
        let used = self.used.get(namespace).map(Vec::as_slice).unwrap_or_default();
        let first = used.iter().rposition(|(at, _)| *at <= from).unwrap_or(0);
        used[first..].iter().take_while(|(at, _)| *at <= to).any(|(_, used)| *used >= ROOM)
    }
}

const POLICY: [&str; 2] = ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"];

/// Checks the answer to a write that was accepted. All webhooks and policies that apply to the write must have allowed
/// the object that was stored, and no other webhook or policy may have changed the object.
pub fn check_reply(past: &Past, hooks: &Hooks, log: &dyn LogRead, order: &Order, reply: &Reply) -> CheckResult {
    let entry: &Entry = match (order.want, reply) {
        (Want::Create | Want::Replace, Reply::Object { entry, .. }) => entry,
        (Want::Create | Want::Replace, _) => return Err("it is answered without an object".into()),
        _ => return Ok(()),
    };
    let object = entry.document();
    let record = log.read(entry.offset).map_err(|fault| fault.to_string())?.ok_or("there is no such event")?;
    ensure(record.actor.request_id == order.id, || format!("version {} is another's", entry.offset))?;
    ensure(object["data"]["v"] == order.value.as_str(), || format!("it says {}", object["data"]["v"]))?;
    // The request was judged at a version before the version of the event that it made.
    let (from, to) = (order.from, Offset(entry.offset.0 - 1));
    let is_bad = order.value.starts_with(BAD);
    ensure(!(is_bad && past.policy_all_the_while(from, to)), || "the policy was passed by".into())?;
    hooks.of_request(&order.id, |said| {
        ensure(order.namespace == WATCHED || said.is_empty(), || "a webhook was asked that is not concerned".into())?;
        for name in WEBHOOKS {
            check_webhook(past, order, said, name, &object, (from, to))?;
        }
        let marked: BTreeSet<String> = WEBHOOKS.iter().filter(|name| !mark(&object, name).is_empty()).map(by).collect();
        let blamed: BTreeSet<String> = record.actor.changes.iter().map(|change| change.by.clone()).collect();
        ensure(marked == blamed, || format!("{marked:?} have changed it, and {blamed:?} are told of"))
    })
}

fn by(name: &&str) -> String {
    format!("webhook {name} of {name}")
}

fn mark<'a>(object: &'a Value, name: &str) -> &'a str {
    object["metadata"]["annotations"][name].as_str().unwrap_or_default()
}

fn check_webhook(
    past: &Past,
    order: &Order,
    said: &[&Said],
    name: &str,
    object: &Value,
    (from, to): (Offset, Offset),
) -> CheckResult {
    let own: Vec<&&Said> = said.iter().filter(|said| said.webhook == name).collect();
    let mark = mark(object, name);
    let is_its_mark = own.iter().any(|said| said.mark == mark && !said.temper.is_failure());
    ensure(mark.is_empty() || is_its_mark, || format!("the mark {mark} of {name} is from elsewhere"))?;
    let is_asked = own.is_empty() || past.meanwhile(name, from, to).next().is_some();
    ensure(is_asked, || format!("{name} was asked, and was not there"))?;
    let Some(registration) = past.all_the_while(name, from, to).filter(|_| order.namespace == WATCHED) else {
        return Ok(());
    };
    let is_forgiven = !registration.fails && own.iter().any(|said| said.temper.is_failure());
    let has_agreed = match name.starts_with('m') {
        true => !mark.is_empty(),
        // The call to a validating webhook must contain the object that was stored. A state that a mutating webhook
        // changed after the call is not enough.
        false => own.iter().any(|said| {
            !said.temper.is_failure() && ["data", "metadata"].iter().all(|part| alike(&said.object, object, part))
        }),
    };
    ensure(has_agreed || is_forgiven, || format!("{name} was there all the while, and has not agreed"))
}

/// Whether two objects have equal values in the fields that clients and webhooks set. Versions and managed fields,
/// which the server sets, may differ.
fn alike(one: &Value, other: &Value, part: &str) -> bool {
    match part {
        "metadata" => one[part]["annotations"] == other[part]["annotations"],
        part => one[part] == other[part],
    }
}

/// Checks the answer to a write that was refused. A webhook, policy or quota that existed during the request must
/// explain the refusal.
pub fn check_refusal(past: &Past, hooks: &Hooks, order: &Order, to: Offset, refusal: &Refusal) -> CheckResult {
    let (from, message) = (order.from, refusal.message());
    let place = format!("{}/{}", order.namespace, order.name);
    let has_reason = match refusal {
        Refusal::NotFound(_) => {
            matches!(order.want, Want::Delete | Want::Replace) && !past.existed_all_the_while(&place, from, to)
        }
        Refusal::AlreadyExists { .. } => order.want == Want::Create && past.existed(&place, from, to),
        Refusal::Conflict { .. } => order.want == Want::Count,
        _ if order.want == Want::Configure => false,
        _ if message.contains("exceeded quota: q") => past.was_full(order.namespace, from, to),
        _ if message.contains("ValidatingAdmissionPolicy 'p'") => {
            order.value.starts_with(BAD) && past.policy_meanwhile(from, to)
        }
        _ => hooks.of_request(&order.id, |said| {
            said.iter().any(|said| {
                let named = |text: &str| message.contains(&format!("{text} \"{}\"", said.webhook));
                let fails = past.meanwhile(&said.webhook, from, to).any(|registration| registration.fails);
                match said.temper.is_failure() {
                    true => fails && named("failed calling webhook"),
                    false => named("admission webhook") && message.contains("denied the request"),
                }
            })
        }),
    };
    ensure(has_reason, || format!("it is refused without a reason: {message}"))
}
