//! Handles subresources that a server behind the API answers, such as logs, commands in containers and proxies.
//! Admission judges the request first. Then the kind determines the destination, and the transport connects to the
//! destination.

use super::stages::Resolved;
use super::{Layer, Next, Outcome, RequestContext, authorization};
use crate::lookup::Found;
use crate::reply::Connecting;
use crate::{Reply, Service};
use futures_util::future::BoxFuture;
use holdfast_core::Refusal;
use holdfast_core::admission::Told;
use holdfast_core::kinds::{Leading, Named, known::Known, leads_away, leads_to_node};
use holdfast_core::refusal::{BadRequest, MethodNotAllowed};
use holdfast_core::request::{Request, Verb};
use holdfast_core::state::State;
use holdfast_value::Value;
use std::sync::Arc;

pub struct Connect {
    /// Whether a GET to a pod's `exec`, `attach` or `portforward` also requires permission for the verb `create` on the
    /// subresource.
    pub upgrades_need_create: bool,
}

/// Kubelet paths for which permission to read is not enough, because they run commands or forward ports.
const COMMANDS: [&str; 4] = ["attach", "exec", "portforward", "run"];

impl Layer for Connect {
    type Takes = Resolved;
    type Gives = Resolved;

    fn call<'a>(
        &'a self,
        context: &'a mut RequestContext,
        found: Resolved,
        next: Next<'a, Resolved>,
    ) -> BoxFuture<'a, Outcome> {
        if !is_way(&found) {
            return next.call(context, found);
        }
        Box::pin(async move {
            let service = next.service();
            found.scene.writable(service.engine())?;
            let part = found.request.target.subresource.as_deref().unwrap_or_default();
            if leads_to_node(part) {
                let dry_run = found.request.options.connect.all("dryRun").any(|stages| !stages.is_empty());
                if dry_run {
                    return Err(Refusal::BadRequest(BadRequest::NoDryRun));
                }
                let mut told = Told::default();
                let state = found.admitting(service.engine()).await?;
                let admitted = service.engine().admit(&state, &found.request, &mut told).await;
                context.tell(told);
                admitted?;
            }
            let is_judged = self.upgrades_need_create || !found.kind.is_namespaced();
            if found.request.verb != Verb::Create && is_judged && runs_something(&found) {
                may_create(service, &found.request).await?;
            }
            lead(service, &found).map(|connecting| Reply::Connect(Box::new(connecting)))
        })
    }
}

/// Whether the kind has the requested subresource, with the requested verb.
fn is_way(found: &Found) -> bool {
    let target = &found.request.target;
    let Some(name) = target.subresource.as_deref().filter(|name| leads_away(name)) else { return false };
    let served = found.kind.subresource(target.version, first(name));
    found.kind.connect.is_possible() && served.is_some_and(|served| served.verbs.contains(&found.request.verb.as_str()))
}

fn first(subresource: &str) -> &str {
    subresource.split('/').next().unwrap_or_default()
}

/// Whether permission to read is not enough for the request, because the request runs a command or forwards ports. Such
/// requests include requests to a node's kubelet for the paths in [`COMMANDS`], in any spelling.
fn runs_something(found: &Found) -> bool {
    let subresource = found.request.target.subresource.as_deref().unwrap_or_default();
    let (name, rest) = subresource.split_once('/').unwrap_or((subresource, ""));
    if name != "proxy" {
        return name != "log";
    }
    if found.kind.is_namespaced() {
        return false;
    }
    let mut names: Vec<String> = Vec::new();
    for part in rest.split('/') {
        match part {
            "" | "." => {}
            ".." => _ = names.pop(),
            part => names.push(part.to_ascii_lowercase()),
        }
    }
    names.first().is_some_and(|first| COMMANDS.contains(&first.as_str()))
}

/// Refuses the request unless the user may also `create` the subresource, in addition to the verb that was authorized.
async fn may_create(service: &Arc<Service>, request: &Request) -> Result<(), Refusal> {
    let state = service.engine().snapshot();
    let mut asked = request.clone();
    asked.verb = Verb::Create;
    // Authorization uses only the first path segment of a subresource.
    asked.target.subresource = asked.target.subresource.as_deref().map(|name| first(name).to_owned());
    service.judged(&state, |authorizer| authorization::may_request(authorizer, &state, &asked)).await
}

/// Determines the destination of the request by its kind.
fn lead(service: &Service, found: &Found) -> Result<Connecting, Refusal> {
    let state = service.engine().snapshot();
    let request = &found.request;
    let (name, subresource) = (request.name(), request.target.subresource.as_deref().unwrap_or_default());
    let (part, rest) = subresource.split_once('/').unwrap_or((subresource, ""));
    let resource = found.kind.kind.to_ascii_lowercase();
    let bad = || Refusal::BadRequest(BadRequest::BadWay { resource, name: name.to_owned() });
    // Only for `proxy` may the path's name contain a scheme and a port besides the object's name. They are separated by
    // colons, because an object's name contains no colon.
    let way = match part {
        "proxy" => Named::parse(name).ok_or_else(bad)?,
        _ => Named { is_secure: false, name, port: "" },
    };
    let options = &request.options.connect;
    found.kind.connect.check_options(name, part, options, &service.engine().settings().gates_off)?;
    let leads = found.kind.connect.leads.ok_or(Refusal::MethodNotAllowed(MethodNotAllowed::OnResource))?;
    let mut named = request.clone();
    named.target.name = Some(way.name.to_owned());
    let named = named.retarget(&state.registry, &found.kind)?;
    let entry = state.get(named.target.kind, &named.key()).cloned();
    let object = entry.ok_or_else(|| holdfast_core::list::missing(&state, &named))?.document();
    let find = |known: Known, key: &str| find(&state, known, key);
    let draw = service.engine().stamp().seed;
    let destination = leads(&object, &Leading { part, way: &way, options, find: &find, draw })?;
    Ok(Connecting {
        user: request.user.clone(),
        destination,
        part: part.to_owned(),
        rest: rest.to_owned(),
        resource: found.kind.resource.clone(),
        name: name.to_owned(),
        is_namespaced: found.kind.is_namespaced(),
        options: options.clone(),
        trail: None,
    })
}

fn find(state: &State, known: Known, key: &str) -> Option<Value> {
    let (kind, _) = state.registry.known(known)?;
    state.get(kind, key).map(|entry| entry.document())
}
