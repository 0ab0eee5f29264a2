//! The ConfigMap by which other API servers can trust this server: the CAs of client certificates, and the request
//! headers in which this server names the user of a forwarded request.

use super::write;
use crate::kinds::known;
use crate::namespace::Step;
use crate::object::meta;
use crate::request::{Target, Verb};
use crate::state::State;
use holdfast_value::{Map, Value, json};

pub const NAMESPACE: &str = "kube-system";
pub const NAME: &str = "extension-apiserver-authentication";

/// The data that the server publishes in the ConfigMap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trust {
    /// PEM certificates of the CAs for client certificates; empty if there are none.
    pub client_authorities: String,
    pub front_proxy: Option<FrontProxy>,
}

/// How a proxy in front of a server authenticates itself and names the user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FrontProxy {
    /// PEM certificates of the CAs for proxies' certificates.
    pub authorities: String,
    /// Allowed common names of proxies; an empty list allows any name.
    pub allowed_names: Vec<String>,
    pub username_headers: Vec<String>,
    pub uid_headers: Vec<String>,
    pub group_headers: Vec<String>,
    pub extra_header_prefixes: Vec<String>,
}

const CLIENT_AUTHORITIES: &str = "client-ca-file";
const PROXY_AUTHORITIES: &str = "requestheader-client-ca-file";

/// The step that writes the ConfigMap; `None` if the ConfigMap is up to date. Certificates that other servers wrote
/// stay.
pub fn plan(state: &State, trust: &Trust) -> Option<Step> {
    let (kind, version) = state.registry.known(known::CONFIG_MAP)?;
    let target =
        |name: Option<String>| Target { kind, version, namespace: Some(NAMESPACE.into()), name, subresource: None };
    let existing = state.get(kind, &meta::key(Some(NAMESPACE), NAME)).map(|entry| entry.document());
    let Some(Value::Object(mut document)) = existing else {
        let data = told(trust, &Map::new());
        let document = json!({
            "apiVersion": known::CONFIG_MAP.api_version(),
            "kind": known::CONFIG_MAP.kind,
            "metadata": {"name": NAME, "namespace": NAMESPACE},
            "data": data,
        });
        return document.as_object().map(|document| write(target(None), Verb::Create, Some(document)));
    };
    let old = document.get("data").and_then(Value::as_object).cloned().unwrap_or_default();
    let new = told(trust, &old);
    if new == old {
        return None;
    }
    document.insert("data", new.into());
    Some(write(target(Some(NAME.into())), Verb::Update, Some(&document)))
}

fn told(trust: &Trust, old: &Map) -> Map {
    let mut data = old.clone();
    let text = |key: &str| old.get(key).and_then(Value::as_str).unwrap_or_default();
    let authorities = joined(text(CLIENT_AUTHORITIES), &trust.client_authorities);
    if !authorities.is_empty() {
        data.insert(CLIENT_AUTHORITIES, authorities.into());
    }
    let Some(proxy) = &trust.front_proxy else { return data };
    data.insert(PROXY_AUTHORITIES, joined(text(PROXY_AUTHORITIES), &proxy.authorities).into());
    for (key, own) in [
        ("requestheader-allowed-names", &proxy.allowed_names),
        ("requestheader-extra-headers-prefix", &proxy.extra_header_prefixes),
        ("requestheader-group-headers", &proxy.group_headers),
        ("requestheader-uid-headers", &proxy.uid_headers),
        ("requestheader-username-headers", &proxy.username_headers),
    ] {
        let mut all: Vec<String> = serde_json::from_str(text(key)).unwrap_or_default();
        for name in own {
            if !all.contains(name) {
                all.push(name.clone());
            }
        }
        data.insert(key, json!(all).to_string().into());
    }
    data
}

/// The certificates of both PEM texts, without duplicates.
fn joined(old: &str, own: &str) -> String {
    let mut all: Vec<&str> = Vec::new();
    for certificate in certificates(old).chain(certificates(own)) {
        if !all.contains(&certificate) {
            all.push(certificate);
        }
    }
    all.iter().map(|certificate| format!("{certificate}\n")).collect()
}

/// The PEM blocks of a text. Text between them is skipped.
fn certificates(text: &str) -> impl Iterator<Item = &str> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    let mut rest = text;
    std::iter::from_fn(move || {
        let start = rest.find(BEGIN)?;
        let end = start + rest[start..].find(END)? + END.len();
        let found = &rest[start..end];
        rest = &rest[end..];
        Some(found)
    })
}
