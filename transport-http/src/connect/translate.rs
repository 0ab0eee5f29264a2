//! Exec and attach over a WebSocket of protocol version 5, for kubelets that speak only SPDY.

use super::client::upgraded;
use super::relay::DRAIN_MAX;
use super::switch::{spawn, spdy_headers, switched};
use super::{Answered, Connections, Outing, beginning, failed, not_upgraded, request, unreached};
use crate::connect::paced::Paced;
use crate::status::Status;
use holdfast_core::Refusal;
use holdfast_core::kinds::Machine;
use holdfast_outbound::kubelets::send;
use holdfast_streams::remote::{CommandOutcome, CommandStreams, ProtocolVersion, Remote, Session};
use holdfast_streams::upgrade::{self, Agreed, REMOTE_COMMAND_SPDY, STREAM_PROTOCOL, UpgradeProtocol};
use holdfast_streams::{ConnectionLimits, Input, Output};
use http::{Method, StatusCode};
use hyper_util::rt::TokioIo;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::time::timeout;

/// How often a kubelet is pinged. Pings keep proxies from dropping the connection, and show that a kubelet has
/// vanished.
const PING_PERIOD: Duration = Duration::from_secs(30);
/// The maximum length of the outcome of a command, which a kubelet sends.
const OUTCOME_BYTES_MAX: u64 = 1 << 20;
/// The maximum number of bytes of a refusal's text that are passed on.
const WORDS_BYTES_MAX: usize = 50_000;

/// Answers exec or attach. The WebSocket is accepted first, so later errors are sent on the WebSocket.
pub async fn answer(mut outing: Outing<'_>, machine: &Machine, target: &str) -> Result<Answered, Refusal> {
    let protocol = "v5.channel.k8s.io";
    let answer = match upgrade::websocket_answer(&outing.head.headers, protocol) {
        Ok(answer) => answer,
        Err(refusal) => return Ok(Answered::now(not_upgraded(refusal))),
    };
    let client = outing.head.upgrade.take();
    let client = client.ok_or_else(|| failed("unable to upgrade: the connection cannot be taken over"))?;
    let options = &outing.way.options;
    let [stdin, stdout, stderr, tty] = ["stdin", "stdout", "stderr", "tty"].map(|name| options.flag(name));
    let wanted = CommandStreams { stdin, stdout, stderr, tty };
    let way = Behind { machine: machine.clone(), target: target.to_owned(), connections: outing.connections.clone() };
    let (ends, kept) = outing.keep();
    spawn(&outing, kept, async move {
        let client = match upgraded(client).await {
            Ok(client) => client,
            Err(error) => return tracing::debug!(%error, "a WebSocket was not opened"),
        };
        let agreed = Agreed { wire: UpgradeProtocol::WebSocket, protocol: protocol.to_owned() };
        let Ok(session) = Session::accept(client, &agreed, wanted, ConnectionLimits::default()).await else { return };
        let gone = session.closed();
        let mut running = pin!(run(session, way, wanted));
        tokio::select! {
            () = &mut running => {}
            // The node still gets the input that the client sent before it disconnected.
            () = gone.cancelled() => if stdin {
                _ = timeout(DRAIN_MAX, running).await;
            }
        }
    });
    Ok(Answered { response: switched(answer), ends: Some(ends) })
}

/// The kubelet to which the streams are joined, and the values for the connection to the kubelet.
struct Behind {
    machine: Machine,
    target: String,
    connections: Arc<Connections>,
}

impl Behind {
    async fn open(&self, wanted: CommandStreams) -> Result<(Remote, ProtocolVersion), Refusal> {
        let kubelet = self.connections.kubelets.find(&self.machine).map_err(unreached)?;
        let link = kubelet.dial(false).await.map_err(unreached)?;
        let asked = request(Method::POST, &self.target, spdy_headers(REMOTE_COMMAND_SPDY.iter()))?;
        let mut response = send(link, Some(&kubelet.authority()), asked, false).await.map_err(unreached)?;
        self.connections.counts.translated(response.status().as_u16());
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            let words = beginning(response.into_body(), WORDS_BYTES_MAX).await;
            return Err(failed(format!("unable to upgrade connection: {}", String::from_utf8_lossy(&words))));
        }
        let chosen = response.headers().get(STREAM_PROTOCOL).and_then(|chosen| chosen.to_str().ok());
        let version = ProtocolVersion::of(chosen.unwrap_or_default());
        let server = hyper::upgrade::on(&mut response).await;
        let server = server.map_err(|error| failed(format!("unable to upgrade connection: {error}")))?;
        let server = Paced::new(TokioIo::new(server), self.connections.bytes_a_second);
        let remote = Remote::open(server, version, wanted, ConnectionLimits::default()).await;
        remote.map(|remote| (remote, version)).map_err(|error| failed(format!("error sending request: {error}")))
    }
}

/// Passes the data of all streams on, and sends the outcome of the command after all output.
async fn run(mut session: Session, behind: Behind, wanted: CommandStreams) {
    let (remote, version) = match behind.open(wanted).await {
        Ok(opened) => opened,
        Err(refusal) => return finish(session, &refused(&refusal)).await,
    };
    let pinger = remote.pinger();
    let Remote { stdin, stdout, stderr, resize, error, .. } = remote;
    let (own_stdin, own_resize) = (session.stdin.take(), session.resize.take());
    let (own_stdout, own_stderr) = (session.stdout.take(), session.stderr.take());
    let into = async {
        tokio::join!(pass(own_stdin, stdin), pass(own_resize, resize));
        std::future::pending::<()>().await;
    };
    let outcome = async {
        let mut text = String::new();
        // A stream may be reset after its end, so an error after the text does not matter.
        _ = error.take(OUTCOME_BYTES_MAX).read_to_string(&mut text).await;
        text
    };
    let out = async {
        let (outcome, (), ()) = tokio::join!(outcome, pass(stdout, own_stdout), pass(stderr, own_stderr));
        outcome
    };
    let pings = async {
        loop {
            tokio::time::sleep(PING_PERIOD).await;
            pinger.ping();
        }
    };
    let text = tokio::select! {
        text = out => text,
        () = into => return,
        () = pings => return,
    };
    let outcome = match (version >= ProtocolVersion::V4, text.is_empty()) {
        (true, false) => CommandOutcome::status(text, None),
        (false, false) => CommandOutcome::failed(&format!("error executing remote command: {text}")),
        (_, true) if version >= ProtocolVersion::V4 => {
            CommandOutcome::failed("the kubelet ended the connection without an outcome")
        }
        (_, true) => CommandOutcome::success(),
    };
    finish(session, &outcome).await;
}

async fn finish(session: Session, outcome: &CommandOutcome) {
    if let Err(error) = session.finish(outcome).await {
        tracing::debug!(%error, "the outcome of a command could not be sent to the client");
    }
}

fn refused(refusal: &Refusal) -> CommandOutcome {
    CommandOutcome::status(Status::from(refusal).document.to_string(), None)
}

/// Copies the data of one stream until the stream ends.
async fn pass(source: Option<Input>, sink: Option<Output>) {
    let (Some(mut source), Some(mut sink)) = (source, sink) else { return };
    // A stream has ended if it is reset or if its reader was dropped.
    _ = copy(&mut source, &mut sink).await;
    _ = sink.shutdown().await;
}
