//! Follows APIServices and the Services behind them, checks their servers, and updates the conditions of the
//! APIServices.
//!
//! Every server is checked periodically, sooner if the last check failed, and at once when its Service, the Service's
//! endpoints or the APIService itself change.

use super::proxy::identify;
use super::{Aggregator, Discovered, Document, Server, Table};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use holdfast_core::apiservices::available::{self, Condition, Finding};
use holdfast_core::apiservices::local::{self, LABEL};
use holdfast_core::apiservices::{self, ApiService, Backend, GroupVersion};
use holdfast_core::authz::{PRIVILEGED_GROUP, User};
use holdfast_core::kinds::known;
use holdfast_core::object::meta;
use holdfast_core::state::{Entry, State};
use holdfast_core::wire::discovery::Aggregated;
use holdfast_core::wire::discovery::documents::ResourceDiscovery;
use holdfast_core::wire::{merged, openapi};
use holdfast_engine::{Delivery, Engine, Fault, WatchStart};
use holdfast_outbound::{CallTarget, TlsTrust};
use holdfast_service::Service;
use holdfast_service::housekeeping::registrar::follow;
use holdfast_value::Value;
use http::header::{ACCEPT, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH};
use http::{HeaderMap, Response};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How often an available server is checked.
const PERIOD: Duration = Duration::from_secs(30);
/// How soon a server is checked again after a first failure. The wait doubles with each failure, up to `PERIOD`.
const RETRY_MIN: Duration = Duration::from_millis(250);
/// How long a server may take to answer a check.
const ASK_MAX: Duration = Duration::from_secs(5);
/// How many requests a check makes at once. Several requests are made, because some of the server's endpoints may
/// answer and others may not.
const ATTEMPTS: usize = 5;
/// The user name under which checks send their requests.
const USER: &str = "system:kube-aggregator";

/// The times at which APIServices are to be checked next.
#[derive(Default)]
struct Agenda {
    due: BTreeMap<String, Instant>,
    failures: BTreeMap<String, u32>,
    /// The APIServices that are being checked. The value is true if something has changed since the check began.
    busy: BTreeMap<String, bool>,
}

impl Agenda {
    fn at_once(&mut self, name: &str) {
        match self.busy.get_mut(name) {
            Some(again) => *again = true,
            None => drop(self.due.insert(name.to_owned(), Instant::now())),
        }
    }

    fn forget(&mut self, name: &str) {
        self.due.remove(name);
        self.failures.remove(name);
    }

    fn take_due(&mut self) -> Vec<String> {
        let now = Instant::now();
        let due: Vec<String> = self.due.iter().filter(|(_, at)| **at <= now).map(|(name, _)| name.clone()).collect();
        for name in &due {
            self.due.remove(name);
            self.busy.insert(name.clone(), false);
        }
        due
    }

    /// Called when a check of an APIService has ended.
    fn done(&mut self, name: &str, outcome: Outcome) {
        let again = self.busy.remove(name).unwrap_or(false);
        let wait = match outcome {
            Outcome::Settled => return if again { self.at_once(name) } else { self.forget(name) },
            Outcome::Well => {
                self.failures.remove(name);
                PERIOD
            }
            Outcome::Ill => {
                let failures = self.failures.entry(name.to_owned()).or_default();
                *failures = (*failures + 1).min(16);
                (RETRY_MIN * 2u32.pow(*failures - 1)).min(PERIOD)
            }
        };
        let wait = if again { Duration::ZERO } else { wait };
        self.due.insert(name.to_owned(), Instant::now() + wait);
    }

    fn next(&self) -> Instant {
        self.due.values().min().copied().unwrap_or_else(|| Instant::now() + PERIOD)
    }
}

enum Outcome {
    /// The APIService need not be checked again until something changes.
    Settled,
    Well,
    Ill,
}

impl Aggregator {
    /// Reads all APIServices and EndpointSlices. This happens before the first request, so that requests find the other
    /// servers, and again when a watch has failed.
    pub fn prime(&self, engine: &Engine) {
        let state = engine.snapshot();
        {
            let mut slices = self.slices.write().unwrap_or_else(PoisonError::into_inner);
            *slices = Default::default();
            if let Some((kind, _)) = state.registry.known(known::ENDPOINT_SLICE) {
                for (key, slice) in state.scan(kind, "", None) {
                    slices.note(key, Some(slice));
                }
            }
        }
        if let Some((kind, _)) = apiservices::kind(&state) {
            let is_gone = |served: &GroupVersion| state.get(kind, &served.name()).is_none();
            let known: Vec<GroupVersion> = self.table.load().servers.keys().cloned().collect();
            known.into_iter().filter(is_gone).for_each(|gone| _ = self.note(&gone.name(), None));
            for (name, entry) in state.scan(kind, "", None) {
                self.note(name, Some(entry));
            }
        }
    }

    /// Runs without end. The state at `start` has been [read](Self::prime).
    pub async fn keep(self: Arc<Self>, service: Arc<Service>, start: WatchStart) {
        let mut start = start;
        loop {
            if let Err(fault) = self.follow(&service, start).await {
                tracing::warn!(%fault, "the watch of APIServices ended and starts again");
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            self.prime(service.engine());
            start = WatchStart::Now;
        }
    }

    async fn follow(self: &Arc<Self>, service: &Arc<Service>, start: WatchStart) -> Result<(), Fault> {
        let engine = service.engine();
        let mut api_services = follow(engine, known::API_SERVICE, start)?;
        let mut services = follow(engine, known::SERVICE, start)?;
        let mut endpoints = follow(engine, known::ENDPOINTS, start)?;
        let mut slices = follow(engine, known::ENDPOINT_SLICE, start)?;
        let mut agenda = Agenda::default();
        for server in self.table.load().servers.keys() {
            agenda.at_once(&server.name());
        }
        let mut checks: JoinSet<(String, Outcome)> = JoinSet::new();
        loop {
            let mut touched = BTreeSet::new();
            tokio::select! {
                event = api_services.next() => {
                    let (key, entry) = newest(&event?);
                    let changed = self.note(&key, entry.as_deref());
                    match entry {
                        None => agenda.forget(&key),
                        Some(_) if changed => agenda.at_once(&key),
                        Some(_) => {}
                    }
                }
                event = services.next() => drop(touched.insert(newest(&event?).0)),
                event = endpoints.next() => drop(touched.insert(newest(&event?).0)),
                event = slices.next() => {
                    let (key, entry) = newest(&event?);
                    touched = self.slices.write().unwrap_or_else(PoisonError::into_inner).note(&key, entry.as_deref());
                }
                Some(checked) = checks.join_next() => {
                    if let Ok((name, outcome)) = checked {
                        agenda.done(&name, outcome);
                    }
                }
                () = tokio::time::sleep_until(agenda.next()) => {
                    for name in agenda.take_due() {
                        let (this, service) = (self.clone(), service.clone());
                        checks.spawn(async move {
                            let outcome = this.check(&service, &name).await;
                            (name, outcome)
                        });
                    }
                }
            }
            // A Service or its endpoints may have become usable, so the APIServices that lead to it are checked at
            // once.
            if !touched.is_empty() {
                for server in self.table.load().servers.values() {
                    let Backend { namespace, name, .. } = &server.backend;
                    if touched.contains(&meta::key(Some(namespace), name)) {
                        agenda.at_once(&server.service.served.name());
                    }
                }
            }
        }
    }

    /// Records an APIService's newest state. Returns whether the APIService is to be checked.
    fn note(&self, name: &str, entry: Option<&Entry>) -> bool {
        let Some(served) = GroupVersion::of_name(name) else { return false };
        let table = self.table.load_full();
        let before = table.servers.get(&served);
        // APIServices that this server keeps for its own APIs need no check.
        let kept = entry.is_some_and(|entry| entry.index.label(LABEL).is_some());
        let service = entry.and_then(|entry| {
            let remote = memchr::memmem::find(&entry.json(), b"\"service\":").is_some();
            (remote || !kept).then(|| ApiService::read(&entry.document())).flatten()
        });
        let own = local::priorities(&served);
        let priorities = service.as_ref().map(|service| (service.group_priority, service.version_priority));
        let priorities = priorities.filter(|priorities| *priorities != own);
        let backend = service.as_ref().and_then(|service| service.backend.clone());
        let same_priorities = table.priorities.get(&served) == priorities.as_ref();
        let same = match (before, &service) {
            (Some(before), Some(service)) => before.service == *service,
            (None, _) => backend.is_none(),
            (Some(_), None) => false,
        };
        let moved = before.map(|before| &before.backend) != backend.as_ref();
        if !same || !same_priorities {
            self.change(|table| {
                match priorities {
                    Some(priorities) => table.priorities.insert(served.clone(), priorities),
                    None => table.priorities.remove(&served),
                };
                match (service, backend.clone()) {
                    (Some(service), Some(backend)) => {
                        let told = table.servers.get(&served).filter(|_| !moved).map(|server| server.told.clone());
                        let server = Server { service, backend, told: told.unwrap_or_default() };
                        table.servers.insert(served.clone(), Arc::new(server));
                    }
                    _ => drop(table.servers.remove(&served)),
                }
                true
            });
        }
        moved || !same_priorities || backend.is_none()
    }

    /// Replaces the table if `edit` returns true, which means that `edit` has changed the table.
    fn change(&self, edit: impl FnOnce(&mut Table) -> bool) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut table = Table::clone(&self.table.load());
        if edit(&mut table) {
            table.generation += 1;
            self.table.store(Arc::new(table));
        }
    }

    /// Checks one APIService, and writes the result into its condition.
    async fn check(self: &Arc<Self>, service: &Arc<Service>, name: &str) -> Outcome {
        let (door, engine) = (service, service.engine());
        let Some(service) = read(&engine.snapshot(), name) else { return Outcome::Settled };
        let finding = {
            let slices = self.slices.read().unwrap_or_else(PoisonError::into_inner);
            match &service.backend {
                Some(Backend { namespace, name, .. }) if self.outbound.is_inside(namespace, name) => Finding::Ask,
                _ => available::check(&engine.snapshot(), &slices, &service),
            }
        };
        let condition = match finding {
            Finding::Known(condition) => condition,
            Finding::Ask => self.ask(&service).await,
        };
        if service.backend.is_some() {
            door.counters().available(name, (!condition.holds).then_some(condition.reason));
        }
        let fresh = service.backend.is_some() && self.refresh(&service, condition.holds).await;
        if let Some(step) = available::report(&engine.snapshot(), name, &condition, engine.stamp())
            && let Err(refusal) = door.act(step.request).await
        {
            tracing::debug!(?refusal, name, "a condition could not be written");
            return Outcome::Ill;
        }
        match (&service.backend, condition.holds && fresh) {
            (None, _) => Outcome::Settled,
            (Some(_), true) => Outcome::Well,
            (Some(_), false) => Outcome::Ill,
        }
    }

    /// Reads the discovery documents of the server behind an APIService, before the APIService becomes available.
    /// Returns whether the server has just answered.
    async fn refresh(&self, service: &ApiService, answers: bool) -> bool {
        let Some(server) = self.table.load().servers.get(&service.served).cloned() else { return false };
        let stale = || Discovered { fresh: false, ..server.told.clone() };
        let told = match answers {
            true => tokio::time::timeout(ASK_MAX, self.listen(&server)).await.unwrap_or_else(|_| stale()),
            false => stale(),
        };
        let fresh = told.fresh;
        self.change(|table| match table.servers.get_mut(&service.served) {
            // The documents count only if the APIService still names the backend that was asked.
            Some(now) if now.backend == server.backend && now.told != told => {
                Arc::make_mut(now).told = told;
                true
            }
            _ => false,
        });
        fresh
    }

    /// Asks the server for the resources of the APIService's group version, without verifying its certificate.
    async fn ask(&self, service: &ApiService) -> Condition {
        let Some(Backend { namespace, name, port, .. }) = &service.backend else { return Condition::local() };
        let trust = TlsTrust { authorities: Vec::new(), insecure: true, identified: true };
        let endpoint = CallTarget::service(namespace, name, *port, &service.served.path(), trust);
        let one = || async {
            let url = self.outbound.shown(&endpoint).map_err(|error| error.to_string())?;
            let failing = |why: String| format!("failing or missing response from {url}: {why}");
            match self.outbound.get(&endpoint, headers("application/json"), ASK_MAX).await {
                Ok(response) if response.status().is_success() => Ok(()),
                Ok(response) => Err(failing(format!("bad status from {url}: {}", response.status().as_u16()))),
                Err(holdfast_outbound::OutboundError::TimedOut) => Err(failing(format!(
                    "Get {url:?}: context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
                ))),
                Err(error) => Err(failing(format!("Get {url:?}: {error}"))),
            }
        };
        let mut attempts: FuturesUnordered<_> = (0..ATTEMPTS).map(|_| one()).collect();
        let mut last = String::new();
        while let Some(answer) = attempts.next().await {
            match answer {
                Ok(()) => return Condition::passed(),
                Err(why) => last = why,
            }
        }
        Condition::unanswered(last)
    }

    /// Reads the discovery documents of the server behind an APIService.
    async fn listen(&self, server: &Server) -> Discovered {
        let stale = || Discovered { fresh: false, ..server.told.clone() };
        let Some(resources) = self.resources(server).await else { return stale() };
        let openapi_v2 = self.openapi_v2(server).await;
        let index = self.fetch(server, "/openapi/v3", headers("application/json")).await;
        let path = server.service.served.path();
        let url = index.and_then(|index| {
            let index: Value = serde_json::from_slice(index.body()).ok()?;
            Some(index["paths"][path.trim_start_matches('/')]["serverRelativeURL"].as_str()?.to_owned())
        });
        let openapi_v3 = url.map(|url| match url.split_once("hash=") {
            Some((_, hash)) => hash.split('&').next().unwrap_or_default().to_owned(),
            None => openapi::etag(url.as_bytes()),
        });
        Discovered { resources, fresh: true, openapi_v2, openapi_v3 }
    }

    async fn resources(&self, server: &Server) -> Option<Vec<ResourceDiscovery>> {
        let served = &server.service.served;
        let forms = [Aggregated::V2, Aggregated::V2beta1].map(Aggregated::content_type).join(",");
        if let Some(response) = self.fetch(server, "/apis", headers(&forms)).await {
            let form = response.headers().get(CONTENT_TYPE).and_then(|form| form.to_str().ok()).unwrap_or("");
            if form.contains("APIGroupDiscoveryList")
                && let Some(resources) = merged::of_aggregated(response.body(), served)
            {
                return Some(resources);
            }
        }
        let response = self.fetch(server, &served.path(), headers("application/json")).await?;
        merged::of_resource_list(response.body())
    }

    async fn openapi_v2(&self, server: &Server) -> Option<Arc<Document>> {
        let known = server.told.openapi_v2.clone();
        let mut headers = headers("application/json");
        if let Some(tag) = known.as_ref().and_then(|known| HeaderValue::from_str(&known.tag).ok()) {
            headers.insert(IF_NONE_MATCH, tag);
        }
        let response = self.outbound.get(&server.endpoint("/openapi/v2"), headers, ASK_MAX).await.ok()?;
        if response.status() == http::StatusCode::NOT_MODIFIED {
            return known;
        }
        let tag = response.headers().get(ETAG).and_then(|tag| tag.to_str().ok()).unwrap_or_default().to_owned();
        let whole: Option<Value> =
            response.status().is_success().then(|| serde_json::from_slice(response.body()).ok()).flatten();
        Some(Arc::new(Document { tag, part: merged::openapi_v2_part(&whole?, &server.service.served) }))
    }

    /// A document of the server, if the server answers with success.
    async fn fetch(&self, server: &Server, path: &str, headers: HeaderMap) -> Option<Response<Bytes>> {
        let answer = self.outbound.get(&server.endpoint(path), headers, ASK_MAX).await;
        answer.ok().filter(|response| response.status().is_success())
    }
}

fn headers(accept: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Ok(accept) = HeaderValue::from_str(accept) {
        headers.insert(ACCEPT, accept);
    }
    identify(&mut headers, &User::new(USER, &[PRIVILEGED_GROUP])).expect("these names fit into headers");
    headers
}

fn read(state: &State, name: &str) -> Option<ApiService> {
    let (kind, _) = apiservices::kind(state)?;
    ApiService::read(&state.get(kind, name)?.document())
}

/// The key of an event's object, and its state unless it was deleted.
fn newest(delivery: &Delivery) -> (String, Option<Arc<Entry>>) {
    let change = &delivery.event.change;
    (change.key.to_string(), (!change.deleted).then(|| change.entry.clone()))
}
