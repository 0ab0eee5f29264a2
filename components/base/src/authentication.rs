//! Authentication of a component's clients: by certificates, or by tokens that the API server reviews.
//!
//! If a component's own options do not configure the certificate authorities of clients and of proxies, the component
//! uses the authorities in the ConfigMap that the API server publishes. [`follow`] reads the changes of this ConfigMap.

use crate::api::{Api, ApiError};
use arc_swap::ArcSwap;
use holdfast_core::authz::User;
use holdfast_edge::Cache;
use holdfast_tls::bearer::Bearer;
use holdfast_tls::front_proxy::RequestHeaders;
use holdfast_tls::peer::{Peer, anonymous, authenticated};
use holdfast_tls::server::{LiveTls, Pem};
use holdfast_value::{Value, json};
use http::HeaderMap;
use sha2::{Digest, Sha256};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// The path of the ConfigMap in which the API server publishes the certificate authorities of clients and of
/// authenticating proxies.
const TRUST: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
/// How often the ConfigMap is read again.
const TRUST_PERIOD: Duration = Duration::from_secs(10);

/// Authenticates the users of requests.
pub struct Authenticator {
    /// The client of the API server that reviews tokens. Without this client, no token is accepted.
    pub api: Option<Arc<Api>>,
    pub cache_time: Duration,
    pub headers: Arc<ArcSwap<RequestHeaders>>,
    reviews: Cache<[u8; 32], Option<Arc<User>>>,
}

impl Authenticator {
    pub fn new(api: Option<Arc<Api>>, cache_time: Duration, headers: RequestHeaders) -> Authenticator {
        let headers = Arc::new(ArcSwap::from_pointee(headers));
        Authenticator { api, cache_time, headers, reviews: Cache::default() }
    }

    /// The user of a request; `None` if a credential is invalid.
    pub async fn authenticate(&self, peer: &Peer, headers: &HeaderMap) -> Option<Arc<User>> {
        let mut peer = peer;
        while let Peer::FrontProxy(proxy) = peer {
            if let Some(user) = self.headers.load().user(headers) {
                return Some(Arc::new(user));
            }
            peer = proxy;
        }
        if let Peer::Certificate(user) | Peer::Internal(user) = peer {
            return Some(user.clone());
        }
        if let (Some(token), Some(api)) = (Bearer::of(headers).token(), &self.api) {
            return self.review(api, token).await;
        }
        match peer {
            Peer::Untrusted(_) => None,
            _ => Some(Arc::new(anonymous())),
        }
    }

    async fn review(&self, api: &Api, token: &str) -> Option<Arc<User>> {
        let key: [u8; 32] = Sha256::digest(token).into();
        if let Some(reviewed) = self.reviews.get(&key, Instant::now()) {
            return reviewed;
        }
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "metadata": {},
            "spec": {"token": token},
        });
        let answer = api.post("/apis/authentication.k8s.io/v1/tokenreviews", &review).await;
        let answer = answer.inspect_err(|error| tracing::error!(%error, "a token could not be reviewed")).ok()?;
        let status = &answer["status"];
        if let Some(error) = status["error"].as_str().filter(|error| !error.is_empty()) {
            tracing::warn!(error, "a token was refused");
        }
        let user = (status["authenticated"] == true).then(|| Arc::new(user_of(&status["user"])));
        let name = user.as_ref().map_or("", |user| user.name.as_str());
        self.reviews.put(key, name, user.clone(), Instant::now(), self.cache_time);
        user
    }
}

/// The user that the status of a TokenReview names.
pub fn user_of(told: &Value) -> User {
    let text = |field: &str| told[field].as_str().unwrap_or("").to_owned();
    let mut user = User::new(text("username"), &[]);
    user.uid = text("uid");
    user.groups = texts(&told["groups"]);
    let extra = told["extra"].as_object().into_iter().flatten();
    user.extra = extra.map(|(key, values)| (key.to_string(), texts(values))).collect();
    authenticated(user)
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The certificate authorities of clients and of authenticating proxies that the API server publishes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trust {
    client_authorities: Option<String>,
    front_proxy_authorities: Option<String>,
    front_proxy_names: Vec<String>,
    usernames: Vec<String>,
    uids: Vec<String>,
    groups: Vec<String>,
    extra_prefixes: Vec<String>,
}

impl Trust {
    pub async fn read(api: &Api) -> Result<Trust, ApiError> {
        let map = api.get(TRUST).await?;
        let data = &map["data"];
        let pem = |key: &str| data[key].as_str().filter(|text| !text.trim().is_empty()).map(str::to_owned);
        let list = |key: &str| -> Result<Vec<String>, ApiError> {
            let Some(text) = data[key].as_str() else { return Ok(Vec::new()) };
            serde_json::from_str(text).map_err(|error| ApiError::local(format!("data.{key} is not a list: {error}")))
        };
        Ok(Trust {
            client_authorities: pem("client-ca-file"),
            front_proxy_authorities: pem("requestheader-client-ca-file"),
            front_proxy_names: list("requestheader-allowed-names")?,
            usernames: list("requestheader-username-headers")?,
            uids: list("requestheader-uid-headers")?,
            groups: list("requestheader-group-headers")?,
            extra_prefixes: list("requestheader-extra-headers-prefix")?,
        })
    }
}

/// Reads the published authorities that the options do not configure, and follows their changes. If the authorities
/// cannot be read, the options decide whether that is an error.
pub async fn look_up(
    api: Arc<Api>,
    wanted: NeededTrust,
    tls: &Arc<LiveTls>,
    headers: &Arc<ArcSwap<RequestHeaders>>,
    tolerates: bool,
) -> Result<(), String> {
    let read = Trust::read(&api).await.map_err(|error| error.to_string());
    let taken = read.and_then(|trust| wanted.take(&trust, tls, headers).map(|()| trust));
    let first = match taken {
        Ok(trust) => Some(trust),
        Err(why) if tolerates => {
            tracing::warn!(
                why,
                "the CA certificates could not be read from the API server: client certificates may not work"
            );
            None
        }
        Err(why) => return Err(format!("unable to load configmap based request-header-client-ca-file: {why}")),
    };
    tokio::spawn(follow(api, wanted, Arc::downgrade(tls), headers.clone(), first));
    Ok(())
}

/// The published authorities that a component uses, because its own options do not configure them.
#[derive(Debug, Clone, Copy)]
pub struct NeededTrust {
    pub client_authorities: bool,
    pub front_proxies: bool,
}

impl NeededTrust {
    pub fn take(self, trust: &Trust, tls: &LiveTls, headers: &ArcSwap<RequestHeaders>) -> Result<(), String> {
        tls.change(|options| {
            let pems = |text: &Option<String>| text.iter().cloned().map(Pem::Text).collect();
            if self.client_authorities {
                options.client_authorities = pems(&trust.client_authorities);
            }
            if self.front_proxies {
                options.front_proxy_authorities = pems(&trust.front_proxy_authorities);
                options.front_proxy_names = trust.front_proxy_names.clone();
            }
        })?;
        if self.front_proxies {
            headers.store(Arc::new(RequestHeaders {
                usernames: trust.usernames.clone(),
                uids: trust.uids.clone(),
                groups: trust.groups.clone(),
                extra_prefixes: trust.extra_prefixes.clone(),
            }));
        }
        Ok(())
    }
}

/// Follows the published authorities while a server uses them.
async fn follow(
    api: Arc<Api>,
    wanted: NeededTrust,
    tls: Weak<LiveTls>,
    headers: Arc<ArcSwap<RequestHeaders>>,
    first: Option<Trust>,
) {
    let mut known = first;
    loop {
        tokio::time::sleep(TRUST_PERIOD).await;
        let Some(tls) = tls.upgrade() else { return };
        match Trust::read(&api).await {
            Ok(trust) if known.as_ref() == Some(&trust) => {}
            Ok(trust) => {
                if let Err(why) = wanted.take(&trust, &tls, &headers) {
                    tracing::error!(why, "the published CA certificates cannot be used: the old ones stay in use");
                }
                known = Some(trust);
            }
            Err(error) => tracing::debug!(%error, "the published authorities could not be read"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_an_api_server_only_certificates_have_names() {
        let headers = RequestHeaders {
            usernames: vec!["X-Remote-User".into()],
            uids: Vec::new(),
            groups: vec!["X-Remote-Group".into()],
            extra_prefixes: Vec::new(),
        };
        let authenticator = Authenticator::new(None, Duration::from_secs(10), headers);
        let mut said = HeaderMap::new();
        said.insert("x-remote-user", "jane".parse().unwrap());
        said.insert("authorization", "Bearer t".parse().unwrap());
        let jane = Peer::Certificate(Arc::new(User::new("joe", &[])));
        let proxy = |inner: Peer| Peer::FrontProxy(Arc::new(inner));
        for (peer, expected) in [
            (Peer::Unknown, Some("system:anonymous")),
            (jane.clone(), Some("joe")),
            (Peer::Untrusted("expired".into()), None),
            (proxy(Peer::Unknown), Some("jane")),
            (proxy(jane), Some("jane")),
        ] {
            let user = authenticator.authenticate(&peer, &said).await;
            assert_eq!(user.as_ref().map(|user| user.name.as_str()), expected);
        }
    }

    #[test]
    fn a_review_tells_of_a_user() {
        let told = json!({"username": "u", "uid": "1", "groups": ["a"], "extra": {"k": ["v", "w"]}});
        let user = user_of(&told);
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("u", "1"));
        assert_eq!(user.groups, ["a", "system:authenticated"]);
        assert_eq!(user.extra["k"], ["v", "w"]);
    }
}
