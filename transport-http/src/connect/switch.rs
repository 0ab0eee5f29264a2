//! Switches a connection from HTTP to another protocol: the functions that `upgrade` and `translate` share.

use super::{Kept, Outing};
use crate::respond::Response;
use bytes::Bytes;
use holdfast_streams::upgrade::{self, STREAM_PROTOCOL};
use http::HeaderMap;
use http::header::{CONNECTION, HeaderValue, UPGRADE};

/// Runs work on connections that are no longer HTTP, until it ends or the server stops.
pub fn spawn(outing: &Outing<'_>, kept: Kept, work: impl Future<Output = ()> + Send + 'static) {
    let stopped = outing.lifecycle.stopped();
    outing.lifecycle.spawn_upgraded(async move {
        let _kept = kept;
        tokio::select! {
            () = work => {}
            () = stopped => {}
        }
    });
}

/// Headers of a request to a kubelet to upgrade to SPDY, with one of these protocols.
pub fn spdy_headers(protocols: impl Iterator<Item = impl AsRef<str>>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(upgrade::SPDY));
    for protocol in protocols {
        if let Ok(protocol) = HeaderValue::from_str(protocol.as_ref()) {
            headers.append(STREAM_PROTOCOL, protocol);
        }
    }
    headers
}

/// The answer that tells the client that the connection switches protocols.
pub fn switched(answer: http::Response<()>) -> Response {
    let (parts, ()) = answer.into_parts();
    Response::from_parts(parts, Bytes::new().into())
}
