//! Maintains the objects that describe this server: the APIServices of the APIs that it serves, and the ConfigMap from
//! which other servers read which client certificates to trust.
//!
//! The core makes the plans. All objects are compared at the start. Later only the objects that an event concerns are
//! compared.

use crate::Service;
use holdfast_core::Refusal;
use holdfast_core::apiservices::local::{self, Custom};
use holdfast_core::apiservices::trust::{self, Trust};
use holdfast_core::apiservices::{self, GroupVersion};
use holdfast_core::authz::{PRIVILEGED_GROUP, User};
use holdfast_core::event::Offset;
use holdfast_core::kinds::{Known, known};
use holdfast_core::list::Selection;
use holdfast_core::namespace::Step;
use holdfast_core::request::{Options, Request, Target, Verb};
use holdfast_core::state::State;
use holdfast_engine::{Delivery, Engine, Fault, Watch, WatchStart};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The time after which a refused write is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// The interval at which the ConfigMap is compared even if no event arrives.
const TRUST_PERIOD: Duration = Duration::from_secs(60);

/// The APIs that this server serves, according to the events that the registrar has read.
pub struct Registrar {
    /// `None` until it is needed, because creating it requires reading all CustomResourceDefinitions.
    custom: Option<Custom>,
    followed: Offset,
}

/// Creates the missing APIServices of the served APIs, and removes the APIServices of APIs that are no longer served.
pub async fn ensure(service: &Arc<Service>) -> Result<Registrar, Refusal> {
    let state = service.engine().snapshot();
    let custom = custom(&state);
    // The requests run concurrently, so that they share a few fsyncs.
    let mut writes = tokio::task::JoinSet::new();
    for Step { request } in local::plan_all(&state, &custom) {
        let service = service.clone();
        writes.spawn(async move { service.act(request).await.map(|_| ()) });
    }
    for written in writes.join_all().await {
        match written {
            // Another server has written the object first. The event of that write causes another check.
            Ok(()) | Err(Refusal::AlreadyExists { .. } | Refusal::Conflict { .. } | Refusal::NotFound(_)) => {}
            Err(refusal) => return Err(refusal),
        }
    }
    Ok(Registrar { custom: Some(custom), followed: state.offset })
}

fn custom(state: &State) -> Custom {
    let mut custom = Custom::default();
    if let Some(kind) = state.registry.definitions() {
        for (name, entry) in state.scan(kind, "", None) {
            custom.note(name, Some(&entry.document()));
        }
    }
    custom
}

impl Registrar {
    /// The registrar of a fork. The original server has already done the work up to the version at which the fork
    /// begins.
    pub fn beside(begin: Offset) -> Registrar {
        Registrar { custom: None, followed: begin }
    }

    /// Maintains the APIServices of the served APIs, without end.
    pub async fn run(mut self, service: Arc<Service>) {
        loop {
            if let Err(fault) = self.follow(&service).await {
                tracing::warn!(%fault, "the watch of CustomResourceDefinitions ended and starts again");
            }
            tokio::time::sleep(RETRY).await;
            match ensure(&service).await {
                Ok(anew) => self = anew,
                Err(refusal) => tracing::debug!(?refusal, "APIServices could not be made"),
            }
        }
    }

    async fn follow(&mut self, service: &Arc<Service>) -> Result<(), Fault> {
        let engine = service.engine();
        let start = WatchStart::After(self.followed);
        let mut definitions = follow(engine, known::CUSTOM_RESOURCE_DEFINITION, start)?;
        let mut services = follow(engine, known::API_SERVICE, start)?;
        // The APIServices whose write was refused and must be tried again.
        let mut open: BTreeSet<GroupVersion> = BTreeSet::new();
        loop {
            let mut touched = Vec::new();
            tokio::select! {
                event = definitions.next() => {
                    let Delivery { event, .. } = event?;
                    let change = &event.change;
                    let definition = (!change.deleted).then(|| change.entry.document());
                    touched = match &mut self.custom {
                        Some(custom) => custom.note(&change.key, definition.as_ref()),
                        // The versions that the definition served before are unknown, so any APIService may be
                        // affected.
                        None => {
                            let state = engine.snapshot();
                            local::all(&state, self.custom.insert(custom(&state)))
                        }
                    };
                }
                event = services.next() => touched.extend(GroupVersion::of_name(&event?.event.change.key)),
                () = tokio::time::sleep(RETRY), if !open.is_empty() => touched.extend(std::mem::take(&mut open)),
            }
            for served in touched {
                let state = engine.snapshot();
                let custom = self.custom.get_or_insert_with(|| custom(&state));
                let step = local::plan(&state, custom, &served, false);
                if let Some(Step { request }) = step
                    && let Err(refusal) = service.act(request).await
                {
                    tracing::debug!(?refusal, "an APIService could not be written");
                    open.insert(served);
                }
            }
        }
    }
}

/// Maintains the ConfigMap from which other servers read which client certificates to trust, without end.
pub async fn keep_trust(service: Arc<Service>, trust: Trust) {
    let engine = service.engine();
    loop {
        let followed = engine.snapshot();
        let selection = select(engine, known::CONFIG_MAP, Some((trust::NAMESPACE, trust::NAME)));
        let mut maps = match selection {
            Ok(selection) => {
                let followed = followed.offset_of(selection.kind);
                engine.of(selection.kind).watch(selection, WatchStart::After(followed))
            }
            Err(fault) => {
                return tracing::warn!(%fault, "the ConfigMap extension-apiserver-authentication is not kept up to date");
            }
        };
        loop {
            if let Some(Step { request }) = trust::plan(&engine.snapshot(), &trust)
                && let Err(refusal) = service.act(request).await
            {
                tracing::debug!(
                    ?refusal,
                    "the ConfigMap extension-apiserver-authentication could not be written; it is tried again"
                );
                tokio::time::sleep(RETRY).await;
                continue;
            }
            match tokio::time::timeout(TRUST_PERIOD, maps.next()).await {
                Ok(Ok(_)) | Err(_) => {}
                Ok(Err(_)) => break,
            }
        }
    }
}

/// Watches the objects of a kind in all namespaces.
pub fn follow(engine: &Arc<Engine>, known: Known, start: WatchStart) -> Result<Watch, Fault> {
    let selection = select(engine, known, None)?;
    let of_kind = engine.of(selection.kind);
    // The versions of another log do not correspond to this log's versions, so the watch begins with all objects.
    let start = if Arc::ptr_eq(of_kind, engine) { start } else { WatchStart::Now };
    Ok(of_kind.watch(selection, start))
}

fn select(engine: &Engine, known: Known, object: Option<(&str, &str)>) -> Result<Selection, Fault> {
    let state = engine.snapshot();
    let unknown = || Fault::Unreadable { what: format!("{} are not served", known.resource) };
    let (kind, version) = state.registry.known(known).ok_or_else(unknown)?;
    let request = Request {
        user: Arc::new(User::new(apiservices::USER, &[PRIVILEGED_GROUP])),
        verb: Verb::Watch,
        target: Target {
            kind,
            version,
            namespace: object.map(|(namespace, _)| namespace.to_owned()),
            name: object.map(|(_, name)| name.to_owned()),
            subresource: None,
        },
        options: Options::default(),
        body: Default::default(),
        id: apiservices::USER.into(),
    };
    Selection::new(&state, &request).map_err(|_| unknown())
}
