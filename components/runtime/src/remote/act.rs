//! Carries out actions on a remote cluster, if requested with separate credentials for each controller.

use super::http::{JSON, PartialObject, collection, fault, get, object, read, send};
use crate::{Act, ActionDone};
use ::http::Method;
use async_trait::async_trait;
use holdfast_value::{Value, json};
use holdfast_world::{Action, Actor, Key, Propagation, Refusal, Resource, Text, Verb, WriteResult};
use kube::Client;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// The namespace of the controllers' service accounts. `TOKEN` is how long a token of such an account is valid; it is
/// renewed after four fifths of this time.
const NAMESPACE: &str = "kube-system";
const TOKEN: Duration = Duration::from_secs(3600);

/// Creates the clients through which actions are carried out.
#[async_trait]
pub trait Connect: Send + Sync + 'static {
    /// A client for a controller. The client uses the token, or the credentials of the process if there is no token.
    /// The client's user agent contains `account`.
    async fn client(&self, account: &str, token: Option<&str>) -> Result<Client, String>;
}

pub struct RemoteAct {
    connect: Arc<dyn Connect>,
    /// The client that creates the service accounts and their tokens.
    root: Client,
    /// Whether each controller acts as its own service account.
    own_credentials: bool,
    clients: Mutex<HashMap<String, Arc<Mutex<Option<Connected>>>>>,
}

struct Connected {
    client: Client,
    renew: Option<Instant>,
}

impl RemoteAct {
    pub fn new(connect: Arc<dyn Connect>, root: Client, own_credentials: bool) -> RemoteAct {
        RemoteAct { connect, root, own_credentials, clients: Mutex::default() }
    }

    async fn client(&self, actor: &Actor) -> Result<Client, Refusal> {
        let place = self.clients.lock().await.entry(agent(actor).to_owned()).or_default().clone();
        // If the client must be renewed, the task that has the lock renews it, and the other tasks wait for the lock.
        let mut place = place.lock().await;
        match &*place {
            Some(Connected { client, renew }) if renew.is_none_or(|renew| Instant::now() < renew) => Ok(client.clone()),
            _ => {
                let connected = self.connect(actor).await?;
                Ok(place.insert(connected).client.clone())
            }
        }
    }

    async fn connect(&self, actor: &Actor) -> Result<Connected, Refusal> {
        let account = actor.account();
        if !self.own_credentials || !actor.has_account() {
            let client = self.connect.client(agent(actor), None).await.map_err(fault)?;
            return Ok(Connected { client, renew: None });
        }
        let accounts = Resource::new("", "v1", "serviceaccounts", "ServiceAccount", true);
        let path = object(&accounts, &Key::new(NAMESPACE, account));
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN.as_secs()},
        });
        let ask = async || self.post(&format!("{path}/token"), &review).await;
        let answer = match ask().await {
            Err(refusal) if refusal.is_not_found() => {
                let named = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}});
                match self.post(&collection(&accounts, NAMESPACE), &named).await {
                    Err(refusal) if !refusal.is("AlreadyExists") => return Err(refusal),
                    _ => ask().await?,
                }
            }
            answer => answer?,
        };
        let token = answer["status"]["token"].as_str().ok_or_else(|| fault("the server gave no token"))?;
        let client = self.connect.client(agent(actor), Some(token)).await.map_err(fault)?;
        Ok(Connected { client, renew: Some(Instant::now() + TOKEN * 4 / 5) })
    }

    async fn post(&self, path: &str, body: &Value) -> Result<Value, Refusal> {
        let answer = send(&self.root, (Method::POST, path), JSON, Some((JSON, body.to_string().into_bytes()))).await?;
        serde_json::from_slice(&read(answer).await?).map_err(fault)
    }

    /// Whether an object exists on the server. An object that cannot be read counts as absent.
    pub async fn is_there(&self, actor: &Actor, resource: &Resource, key: &Key) -> Result<bool, Refusal> {
        let client = self.client(actor).await?;
        Ok(get(&client, &object(resource, key), JSON).await.is_ok())
    }

    /// Drops the client whose token the server no longer accepts, so that the next action requests a new token.
    async fn forget(&self, actor: &Actor) {
        if self.own_credentials {
            self.clients.lock().await.remove(agent(actor));
        }
    }

    async fn check_absent(client: &Client, absent: &[(Resource, Key, Text)]) -> Result<(), Refusal> {
        for (resource, key, uid) in absent {
            match get(client, &object(resource, key), JSON).await {
                Err(refusal) if refusal.is_not_found() => {}
                Err(refusal) => return Err(refusal),
                Ok(bytes) => {
                    let there: PartialObject = serde_json::from_slice(&bytes).map_err(fault)?;
                    if there.metadata.uid == **uid {
                        return Err(Refusal::stale(format!("{resource} {key} is there")));
                    }
                }
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Act for RemoteAct {
    async fn act(&self, actor: &Actor, action: &Action) -> Result<ActionDone, Refusal> {
        let client = self.client(actor).await?;
        RemoteAct::check_absent(&client, &action.absent).await?;
        let (method, content_type, body) = content(&action.verb);
        let path = path(actor, action, &method);
        let sent = send(&client, (method, &path), JSON, Some((content_type, body))).await;
        if matches!(&sent, Err(refusal) if refusal.is("Unauthorized")) {
            self.forget(actor).await;
        }
        let bytes = read(sent?).await?;
        let answered: PartialObject = serde_json::from_slice(&bytes).map_err(fault)?;
        let result = match (&*answered.kind, &action.verb) {
            ("Status", Verb::Delete { .. }) => {
                WriteResult::Gone(answered.details.unwrap_or_default().uid.as_str().into())
            }
            ("Status", _) => WriteResult::Nothing,
            _ => WriteResult::Version(answered.metadata.version()),
        };
        let name = match action.key.name.is_empty() {
            true => answered.metadata.name,
            false => action.key.name.to_string(),
        };
        let bytes = if matches!(result, WriteResult::Version(_)) { bytes.len() } else { 0 };
        Ok(ActionDone { name, result, bytes })
    }

    async fn get(&self, actor: &Actor, path: &str) -> Result<Value, Refusal> {
        let client = self.client(actor).await?;
        serde_json::from_slice(&get(&client, path, JSON).await?).map_err(fault)
    }

    async fn review(&self, actor: &Actor, review: &Value) -> Result<Value, Refusal> {
        let client = self.client(actor).await?;
        let sent = send(&client, (Method::POST, REVIEWS), JSON, Some((JSON, review.to_string().into_bytes()))).await;
        serde_json::from_slice(&read(sent?).await?).map_err(fault)
    }
}

/// The name of an actor in the user agent of its client: its field manager, if it has a service account and a field
/// manager of its own; otherwise the name of its account.
fn agent(actor: &Actor) -> &str {
    match actor.field_manager {
        own if actor.has_account() && own != SHARED => own,
        _ => actor.account(),
    }
}

/// The field manager that most controllers share.
const SHARED: &str = "kube-controller-manager";

/// The path to which reviews of access are posted.
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// The HTTP method, the content type and the body for a verb.
fn content(verb: &Verb) -> (Method, &'static str, Vec<u8>) {
    let bytes = |body: &Value| body.to_string().into_bytes();
    match verb {
        Verb::Create(body) => (Method::POST, JSON, bytes(body)),
        Verb::Update(body) => (Method::PUT, JSON, bytes(body)),
        Verb::UpdateStatus(restated) => (Method::PUT, JSON, bytes(&restated.document())),
        Verb::MergePatch(body) => (Method::PATCH, "application/merge-patch+json", bytes(body)),
        Verb::StrategicPatch(body) => (Method::PATCH, "application/strategic-merge-patch+json", bytes(body)),
        Verb::JsonPatch(body) => (Method::PATCH, "application/json-patch+json", bytes(body)),
        Verb::Apply(body) => (Method::PATCH, "application/apply-patch+yaml", bytes(body)),
        Verb::Delete { uid, version, propagation, grace_seconds } => {
            (Method::DELETE, JSON, bytes(&delete_options(uid, version, *propagation, *grace_seconds)))
        }
    }
}

fn delete_options(
    uid: &Option<Text>,
    version: &Option<Text>,
    propagation: Option<Propagation>,
    grace_seconds: Option<i64>,
) -> Value {
    let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
    for (field, value) in [("uid", uid), ("resourceVersion", version)] {
        if let Some(value) = value {
            options["preconditions"][field] = (**value).into();
        }
    }
    if let Some(propagation) = propagation {
        options["propagationPolicy"] = propagation.as_str().into();
    }
    if let Some(seconds) = grace_seconds {
        options["gracePeriodSeconds"] = seconds.into();
    }
    options
}

fn path(actor: &Actor, action: &Action, method: &Method) -> String {
    let Action { resource, key, subresource, .. } = action;
    let mut path = collection(resource, &key.namespace);
    if *method != Method::POST || !subresource.is_empty() {
        path = format!("{path}/{}", key.name);
    }
    if !subresource.is_empty() {
        path = format!("{path}/{subresource}");
    }
    if *method == Method::DELETE {
        return path;
    }
    let manager = action.manager.unwrap_or(actor.field_manager);
    let force = if matches!(action.verb, Verb::Apply(_)) { "&force=true" } else { "" };
    format!("{path}?fieldManager={manager}{force}")
}
