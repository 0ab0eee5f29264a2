//! `/holdfast/v1/forks`: makes forks of this server's cluster, in memory or in a folder on its machine.
//!
//! `POST` with `{"at": "-15m", "idleSeconds": 60}` makes a fork in memory, which is served below the `path` in the
//! response (see [`live`]); `GET` lists the forks, and `DELETE` of `/holdfast/v1/forks/NAME` ends the fork with this
//! name. With `"folder": "/abs/path"` the fork is made on the disk, for another server. Without `at` the fork begins
//! with the newest version. A fork contains everything that was ever stored. So only users that may use the path and
//! read everything can make a fork, for example cluster-admin.

pub(crate) mod forker;

pub use forker::{Forked, Forker, Unmade};

use crate::respond::{self, Response, Shape};
use crate::status;
use crate::transport::Transport;
use crate::transport::live;
use bytes::Bytes;
use holdfast_core::Refusal;
use holdfast_core::authz::User;
use holdfast_core::history::moment;
use holdfast_core::refusal::{BadRequest, ForkFault, MethodNotAllowed};
use holdfast_value::{Value, json};
use http::Method;
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::Arc;

/// The path at which forks are made, listed and ended.
pub const PATH: &str = crate::route::FORKS;

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct Wanted {
    folder: Option<PathBuf>,
    at: Option<String>,
    idle_seconds: Option<u32>,
}

/// Answers a request for the path of forks or for a path below it.
pub(crate) async fn answer(
    transport: &Arc<Transport>,
    user: &User,
    (method, name): (&Method, &str),
    body: Bytes,
    shape: Shape,
) -> Response {
    match act(transport, user, (method, name), body).await {
        Ok((code, answer)) => respond::bytes(code, answer.to_string().into(), shape),
        Err(refusal) => respond::refusal(&refusal, shape),
    }
}

async fn act(
    transport: &Arc<Transport>,
    user: &User,
    (method, name): (&Method, &str),
    body: Bytes,
) -> Result<(u16, Value), Refusal> {
    match (method, name) {
        (&Method::GET | &Method::HEAD, "") => Ok((200, transport.forks.in_memory.list(transport))),
        (&Method::GET | &Method::HEAD, name) => {
            Ok((200, transport.forks.in_memory.get(transport, name).ok_or(Refusal::NoSuchPath)?))
        }
        (&Method::DELETE, name) if !name.is_empty() => match transport.forks.in_memory.delete(transport, name) {
            true => Ok((200, Value::Object(status::success(200)))),
            false => Err(Refusal::NoSuchPath),
        },
        (&Method::POST, "") => Ok((201, make(transport, user, wanted(&body)?).await?)),
        _ => Err(Refusal::MethodNotAllowed(MethodNotAllowed::OnResource)),
    }
}

/// Reads the options of a request for a fork; an empty body means that all options have their defaults.
fn wanted(body: &[u8]) -> Result<Wanted, Refusal> {
    if body.trim_ascii().is_empty() {
        return Ok(Wanted::default());
    }
    let undecodable = |why: String| Refusal::BadRequest(BadRequest::Fork(ForkFault::Undecodable(why)));
    // The body is parsed as an object first, because serde would also read a struct from a list.
    let object = serde_json::from_slice(body).map(Value::Object);
    object.and_then(holdfast_value::from_value).map_err(|error| undecodable(error.to_string()))
}

async fn make(transport: &Arc<Transport>, user: &User, wanted: Wanted) -> Result<Value, Refusal> {
    let Wanted { folder, at, idle_seconds } = wanted;
    match folder {
        Some(folder) => in_folder(transport, folder, at).await,
        None => {
            let at = match at {
                Some(at) => Some(transport.engine().moment(&at).await?),
                None => None,
            };
            transport.forks.in_memory.make(transport, user, live::Wanted { at, idle_seconds }).await
        }
    }
}

async fn in_folder(transport: &Transport, folder: PathBuf, at: Option<String>) -> Result<Value, Refusal> {
    let forker = transport.forks.forker.clone().ok_or(Refusal::NoSuchPath)?;
    if !folder.is_absolute() {
        let fault = ForkFault::RelativeFolder(folder.display().to_string());
        return Err(Refusal::BadRequest(BadRequest::Fork(fault)));
    }
    let now = transport.engine().stamp().time;
    let at = at.map(|at| moment::parse(&at, now)).transpose();
    let at = at.map_err(|unclear| Refusal::BadRequest(BadRequest::Undecodable(unclear.to_string())))?;
    let shown = folder.display().to_string();
    let made = tokio::task::spawn_blocking(move || forker.fork(at, &folder)).await;
    let Forked { id, version } = made.map_err(Refusal::fault)??;
    tracing::info!(%version, folder = shown, id, "a fork was made");
    Ok(json!({"folder": shown, "id": id, "version": version.0}))
}
