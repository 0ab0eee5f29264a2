//! `POST /holdfast/v1/forks`: has the server make a fork of its own log, in a folder on its machine.
//!
//! A fork holds everything that was ever stored, so only who may `post` to the path and read everything can use it:
//! cluster-admin may. The body says where, and from which moment on: `{"folder": "/abs/path", "at": "-15m"}`. Without
//! `at` it is now.

use crate::respond::{self, Response, Shape};
use crate::transport::Transport;
use bytes::Bytes;
use holdfast_core::Refusal;
use holdfast_core::event::Offset;
use holdfast_core::history::moment::{self, Moment};
use holdfast_core::refusal::{BadRequest, Expired, ForkFault, Internal, MethodNotAllowed};
use holdfast_engine::moment::Unknown;
use http::Method;
use serde::Deserialize;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Where forks are asked for.
pub const PATH: &str = crate::route::FORKS;

/// Makes forks of the log that the engine runs on. It may take as long as the log's files need to be linked.
pub trait Forker: Send + Sync + 'static {
    /// Makes one in a folder that is new or empty; of what is newest when no moment is named.
    fn fork(&self, at: Option<Moment>, folder: &Path) -> Result<Forked, Unmade>;
}

/// A fork that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forked {
    /// The new log's own.
    pub id: String,
    /// The last event that the two have in common.
    pub version: Offset,
}

/// Why none was made. Nothing is left of it.
#[derive(Debug)]
pub enum Unmade {
    Moment(Unknown),
    /// What the caller can put right.
    Folder(String),
    Failed(String),
}

impl From<Unmade> for Refusal {
    fn from(unmade: Unmade) -> Refusal {
        match unmade {
            Unmade::Moment(unknown @ Unknown::LetGo { .. }) => {
                Refusal::Expired(Expired::Forgotten(unknown.to_string()))
            }
            Unmade::Moment(Unknown::Fault(fault)) => Refusal::fault(fault),
            Unmade::Moment(unknown @ Unknown::Future { .. }) => {
                Refusal::BadRequest(BadRequest::Undecodable(unknown.to_string()))
            }
            Unmade::Folder(why) => Refusal::BadRequest(BadRequest::Fork(ForkFault::Folder(why))),
            Unmade::Failed(why) => Refusal::Internal(Internal::Fault(why)),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    folder: PathBuf,
    at: Option<String>,
}

/// Answers the path.
pub(crate) async fn answer(transport: &Transport, method: &Method, body: Bytes, shape: Shape) -> Response {
    match make(transport, method, body).await {
        Ok(made) => respond::bytes(201, made, shape),
        Err(refusal) => respond::refusal(&refusal, shape),
    }
}

async fn make(transport: &Transport, method: &Method, body: Bytes) -> Result<Bytes, Refusal> {
    if *method != Method::POST {
        return Err(Refusal::MethodNotAllowed(MethodNotAllowed::OnResource));
    }
    let forker = transport.forker.clone().ok_or(Refusal::NoSuchPath)?;
    let Wanted { folder, at } = serde_json::from_slice(&body)
        .map_err(|error| Refusal::BadRequest(BadRequest::Fork(ForkFault::Undecodable(error.to_string()))))?;
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
    Ok(json!({"folder": shown, "id": id, "version": version.0}).to_string().into())
}
