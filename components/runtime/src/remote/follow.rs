//! Lists the objects of one resource, and then watches them.

use super::http::{JSON, ObjectIdentity, PartialObject, StatusBody, collection, fault, get, send};
use crate::News;
use ::http::Method;
use bytes::{Buf, Bytes, BytesMut};
use holdfast_core::object;
use holdfast_world::{Key, Refusal, Resource};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::Sender;

/// The number of objects in a page of a list.
const PAGE: usize = 500;
/// After how many seconds the server ends a watch.
const WATCH_SECONDS: u64 = 480;
/// The first wait after a failure. `WAIT_MAX` is the longest wait.
const WAIT_MIN: Duration = Duration::from_millis(800);
const WAIT_MAX: Duration = Duration::from_secs(30);
/// The interval at which a resource that the server does not serve is tried again.
const UNSERVED: Duration = Duration::from_secs(30);
/// The longest watch event that is read, in bytes.
const LINE_BYTES_MAX: usize = 64 << 20;
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// Follows the changes of one resource.
pub(super) struct Follower {
    pub client: Client,
    pub resource: Resource,
    /// Whether only the metadata of objects is needed.
    pub metadata: bool,
    pub news: Sender<News>,
}

/// Why a watch ended.
enum WatchEnd {
    /// The server or the connection has ended the watch. The next watch continues at this version.
    Here(u64),
    /// The version is too old for the server, so all objects must be listed again.
    Expired,
    /// The receiver of the news is gone.
    Unwanted,
}

impl Follower {
    /// Lists and watches the resource until the receiver of the news is gone.
    pub async fn run(self) {
        let mut wait = WAIT_MIN;
        let mut from: Option<u64> = None;
        loop {
            let began = Instant::now();
            let failed = match self.watch_from(from).await {
                Ok(WatchEnd::Unwanted) => return,
                Ok(WatchEnd::Expired) => {
                    from = None;
                    continue;
                }
                Ok(WatchEnd::Here(version)) => {
                    // A watch that ends at once without any event counts as a failure, so the next watch waits.
                    let is_well = from != Some(version) || began.elapsed() > WAIT_MAX;
                    from = Some(version);
                    if is_well {
                        wait = WAIT_MIN;
                        continue;
                    }
                    None
                }
                Err(refusal) => Some(refusal),
            };
            if let Some(refusal) = failed {
                from = from.filter(|_| !refusal.is_expired());
                if (refusal.is_not_found() || refusal.is("MethodNotAllowed")) && from.is_none() {
                    // The resource is not served, or cannot be listed, so it counts as having no objects.
                    let none = News::Replaced { resource: self.resource.clone(), objects: Vec::new(), version: 0 };
                    if self.news.send(none).await.is_err() {
                        return;
                    }
                    tokio::time::sleep(UNSERVED).await;
                    continue;
                }
                tracing::warn!(resource = %self.resource, why = refusal.message, "failed to list or watch");
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(WAIT_MAX);
        }
    }

    async fn watch_from(&self, from: Option<u64>) -> Result<WatchEnd, Refusal> {
        let version = match from {
            Some(version) => version,
            None => match self.list().await? {
                Some(version) => version,
                None => return Ok(WatchEnd::Unwanted),
            },
        };
        self.watch(version).await
    }

    /// Lists all objects, page by page, and returns the version of the list; `None` if the receiver of the news is
    /// gone.
    async fn list(&self) -> Result<Option<u64>, Refusal> {
        let path = collection(&self.resource, "");
        let (mut objects, mut token) = (Vec::new(), String::new());
        loop {
            let query = match token.is_empty() {
                true => format!("{path}?limit={PAGE}"),
                false => format!("{path}?limit={PAGE}&continue={}", escaped(&token)),
            };
            let accept = if self.metadata { METADATA_LIST } else { JSON };
            let bytes = get(&self.client, &query, accept).await?;
            let page: ListBody = serde_json::from_slice(&bytes).map_err(fault)?;
            for item in page.items.into_iter().flatten() {
                let (key, version) = named(item.get().as_bytes())?;
                objects.push((key, self.complete(item.get()), version));
            }
            token = page.metadata.token;
            if token.is_empty() {
                let version = page.metadata.resource_version.parse().unwrap_or_default();
                let news = News::Replaced { resource: self.resource.clone(), objects, version };
                return Ok(self.news.send(news).await.is_ok().then_some(version));
            }
        }
    }

    /// The body of an object in a list. The items of lists lack `apiVersion` and `kind`, so this function adds them.
    fn complete(&self, item: &str) -> object::Body {
        if item.starts_with("{\"metadata\"") && !self.metadata {
            let (version, kind) = (self.resource.api_version(), self.resource.kind());
            return format!("{{\"apiVersion\":\"{version}\",\"kind\":\"{kind}\",{}", &item[1..]).into();
        }
        item.to_owned().into()
    }

    async fn watch(&self, from: u64) -> Result<WatchEnd, Refusal> {
        let path = collection(&self.resource, "");
        // The time limits of watches differ by resource, so that watches that began together do not all end together.
        let seconds = WATCH_SECONDS - u64::try_from(self.resource.plural().len() * 7).unwrap_or(0).min(180);
        let query = format!("{path}?watch=1&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={from}");
        let accept = if self.metadata { METADATA } else { JSON };
        let answer = send(&self.client, (Method::GET, &query), accept, None).await?;
        let mut lines = BodyLines { body: answer.into_body(), read: BytesMut::new() };
        let mut version = from;
        loop {
            let line = match lines.next().await {
                Ok(Some(line)) => line,
                // If the connection breaks, the watch has ended, and the next watch continues at this version.
                Ok(None) | Err(_) => return Ok(WatchEnd::Here(version)),
            };
            let event: WatchEvent = serde_json::from_slice(&line).map_err(fault)?;
            let object = event.object.get();
            if event.kind == "ERROR" {
                let status: StatusBody = serde_json::from_str(object).unwrap_or_default();
                let refusal = Refusal::of_status(&status.reason, status.code, status.message, Vec::new());
                return if refusal.is_expired() { Ok(WatchEnd::Expired) } else { Err(refusal) };
            }
            let (key, at) = named(object.as_bytes())?;
            version = version.max(at);
            let resource = self.resource.clone();
            let news = match &*event.kind {
                "BOOKMARK" => News::Reached(resource, at),
                "DELETED" => News::Changed { resource, key, body: None, version: at },
                _ => News::Changed { resource, key, body: Some(object.to_owned().into()), version: at },
            };
            if self.news.send(news).await.is_err() {
                return Ok(WatchEnd::Unwanted);
            }
        }
    }
}

fn named(json: &[u8]) -> Result<(Key, u64), Refusal> {
    let PartialObject { metadata, .. } = serde_json::from_slice::<PartialObject>(json).map_err(fault)?;
    let key = ObjectIdentity::key(&metadata);
    Ok((key, metadata.version()))
}

/// Escapes a continue token for a query. A token consists of letters, digits and a few signs.
fn escaped(token: &str) -> String {
    token.bytes().fold(String::new(), |mut out, byte| {
        match byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            true => out.push(byte.into()),
            false => out.push_str(&format!("%{byte:02X}")),
        }
        out
    })
}

#[derive(Deserialize)]
struct ListBody<'a> {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListMeta {
    resource_version: String,
    #[serde(rename = "continue")]
    token: String,
}

#[derive(Deserialize)]
struct WatchEvent<'a> {
    #[serde(rename = "type")]
    kind: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// Reads the body of a watch line by line.
struct BodyLines {
    body: Body,
    read: BytesMut,
}

impl BodyLines {
    async fn next(&mut self) -> Result<Option<Bytes>, Refusal> {
        let mut searched = 0;
        loop {
            if let Some(end) = self.read[searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.read.split_to(searched + end).freeze();
                self.read.advance(1);
                return Ok(Some(line));
            }
            searched = self.read.len();
            if searched > LINE_BYTES_MAX {
                return Err(fault("an event is too long"));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.read.extend_from_slice(&data);
                    }
                }
                Some(Err(error)) => return Err(fault(error)),
                None => return Ok(None),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_escaped() {
        assert_eq!(escaped("aZ0-_.~"), "aZ0-_.~");
        assert_eq!(escaped("a+b/c=="), "a%2Bb%2Fc%3D%3D");
    }

    #[tokio::test]
    async fn lines_are_split_wherever_the_frames_end() {
        let mut lines = BodyLines { body: Body::from(b"{\"a\":1}\n{\"b\":2}\n{\"c\"".to_vec()), read: BytesMut::new() };
        assert_eq!(lines.next().await.expect("a line").as_deref(), Some(&b"{\"a\":1}"[..]));
        assert_eq!(lines.next().await.expect("a line").as_deref(), Some(&b"{\"b\":2}"[..]));
        assert_eq!(lines.next().await.expect("the end"), None);
    }

    #[test]
    fn lists_and_events_are_read() {
        let list: ListBody =
            serde_json::from_str(r#"{"metadata":{"resourceVersion":"7","continue":"x"},"items":null}"#)
                .expect("a list");
        assert_eq!((list.metadata.token.as_str(), list.items.is_none()), ("x", true));
        let event: WatchEvent = serde_json::from_str(
            r#"{"type":"ADDED","object":{"metadata":{"name":"a","namespace":"b","resourceVersion":"9"}}}"#,
        )
        .expect("an event");
        assert_eq!(named(event.object.get().as_bytes()).expect("a name"), (Key::new("b", "a"), 9));
    }
}
