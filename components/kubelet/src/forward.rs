//! `/portForward`: the answers of a pod's ports. No program listens on the ports, so each port gives a fixed answer.

use crate::answers::{KubeletResponse, fault, plain};
use crate::remote::{Sessions, full, refused, switched};
use crate::request::Query;
use holdfast_nodes::course::REFUSED;
use holdfast_nodes::{Behaviour, BehaviourSettings, environment};
use holdfast_streams::forward::{Forward, Forwards, PORTS_MAX};
use holdfast_streams::{ConnectionLimits, upgrade};
use holdfast_value::Value;
use http::{Request, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;

/// The maximum number of open connections of one client.
const CONNECTIONS_MAX: usize = 256;
/// The longest head of an HTTP request that is answered, in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;
const METHODS: [&str; 8] = ["GET ", "HEAD ", "POST ", "PUT ", "PATCH ", "DELETE ", "OPTIONS ", "CONNECT "];

/// The answers of a pod's ports.
struct Ports {
    namespace: String,
    name: String,
    uid: String,
    /// The ports in the pod's spec, each with the answer of its container. If the spec names no port, every port number
    /// gives the answer `usual`.
    named: Vec<(u16, PortAnswer)>,
    usual: PortAnswer,
}

/// The text that a container's ports answer, and the status of their HTTP responses.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PortAnswer {
    text: Option<String>,
    code: StatusCode,
}

impl PortAnswer {
    fn of(behaviour: Behaviour) -> PortAnswer {
        let code = behaviour.answer_code.and_then(|code| StatusCode::from_u16(code).ok());
        PortAnswer { text: behaviour.answer, code: code.unwrap_or(StatusCode::OK) }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl Ports {
    fn of(pod: &Value, told: &BehaviourSettings) -> Ports {
        let own = BehaviourSettings::of(pod);
        let mut named = Vec::new();
        for (_, container) in environment::containers(pod) {
            let answer = PortAnswer::of(Behaviour::of(container["name"].as_str().unwrap_or_default(), told, &own));
            for port in container["ports"].as_array().into_iter().flatten() {
                named.extend(
                    port["containerPort"]
                        .as_u64()
                        .and_then(|port| u16::try_from(port).ok())
                        .map(|port| (port, answer.clone())),
                );
            }
        }
        let meta = &pod["metadata"];
        let usual = PortAnswer::of(Behaviour::of("", told, &own));
        Ports { namespace: text(&meta["namespace"]), name: text(&meta["name"]), uid: text(&meta["uid"]), named, usual }
    }

    fn find(&self, port: u16) -> Result<&PortAnswer, String> {
        let named = self.named.iter().find(|(named, _)| *named == port).map(|(_, said)| said);
        let said = if self.named.is_empty() { Some(&self.usual) } else { named };
        said.filter(|said| said.text.as_deref() != Some(REFUSED)).ok_or_else(|| {
            format!(
                "error forwarding port {port} to pod {}, uid : failed to execute portforward in network namespace \
                 \"simulated\": failed to connect to localhost:{port} inside namespace \"{}\", IPv4: dial tcp4 \
                 127.0.0.1:{port}: connect: connection refused",
                self.uid, self.uid
            )
        })
    }
}

pub async fn answer(
    sessions: &Sessions,
    told: &BehaviourSettings,
    pod: &Value,
    mut request: Request<Incoming>,
) -> KubeletResponse {
    let query = Query::of(request.uri().query());
    let given: Vec<&str> = query.all("port").iter().flat_map(|ports| ports.split(',')).collect();
    let ports: Option<Vec<u16>> = given.iter().map(|port| port.parse().ok().filter(|port| *port > 0)).collect();
    let Some(ports) = ports.filter(|ports| ports.len() <= PORTS_MAX) else {
        return plain(StatusCode::BAD_REQUEST, "invalid query parameter \"port\"");
    };
    let (answer, agreed) = match upgrade::port_forward(request.headers()) {
        Ok(agreed) => agreed,
        Err(refusal) => return refused(refusal),
    };
    let has_channels =
        agreed.wire == upgrade::UpgradeProtocol::WebSocket && !agreed.protocol.starts_with(upgrade::TUNNEL);
    if has_channels && ports.is_empty() {
        return plain(StatusCode::BAD_REQUEST, "query parameter \"port\" is required");
    }
    if pod["status"]["phase"] != "Running" {
        return fault(StatusCode::INTERNAL_SERVER_ERROR, "pod is not running");
    }
    let Some(place) = sessions.enter() else { return full() };
    let upgraded = hyper::upgrade::on(&mut request);
    let serving = Arc::new(Ports::of(pod, told));
    tokio::spawn(async move {
        let _place = place;
        let forwards = match upgraded.await {
            Ok(socket) => Forwards::accept(TokioIo::new(socket), &agreed, &ports, ConnectionLimits::default()).await,
            Err(error) => return tracing::debug!(%error, "a connection was not upgraded"),
        };
        let mut forwards = match forwards {
            Ok(forwards) => forwards,
            Err(error) => return tracing::debug!(%error, "ports are not forwarded"),
        };
        let closed = forwards.closed();
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        while let Some(forward) = forwards.next().await {
            let Ok(place) = places.clone().acquire_owned().await else { return };
            let (serving, closed) = (serving.clone(), closed.clone());
            tokio::spawn(async move {
                let _place = place;
                tokio::select! {
                    () = serve(forward, &serving) => {}
                    () = closed.cancelled() => {}
                }
            });
        }
    });
    switched(answer)
}

/// Answers on one connection. An HTTP request gets a response, and all other input is echoed.
async fn serve(mut forward: Forward, ports: &Ports) {
    let port = forward.port;
    let said = match ports.find(port) {
        Ok(said) => said,
        Err(why) => return forward.fail(&why).await,
    };
    let usual = || {
        let Ports { namespace, name, .. } = ports;
        format!("simulated by Holdfast: no container runs behind port {port} of pod {namespace}/{name}\n")
    };
    let body = match said.text.as_deref() {
        Some("echo") => None,
        Some(text) => Some(text.to_owned()),
        None => Some(usual()),
    };
    let done = exchange(&mut forward, said.code, body).await;
    if done.is_ok() {
        _ = forward.data.shutdown().await;
    }
}

async fn exchange(forward: &mut Forward, code: StatusCode, body: Option<String>) -> std::io::Result<()> {
    let mut held: Vec<u8> = Vec::new();
    let mut piece = vec![0; 16 << 10];
    loop {
        // Whether the bytes that have arrived so far can be the start of an HTTP request.
        let may_be_http = METHODS.iter().any(|method| {
            let length = held.len().min(method.len());
            held[..length] == method.as_bytes()[..length]
        });
        let Some(body) = body.as_ref().filter(|_| may_be_http && held.len() <= HEAD_BYTES_MAX) else {
            forward.data.write_all(&std::mem::take(&mut held)).await?;
            let count = forward.data.read(&mut piece).await?;
            if count == 0 {
                return Ok(());
            }
            held.extend_from_slice(&piece[..count]);
            if body.is_some() {
                // The input is not HTTP, so all of it is echoed.
                return echo(forward, held, piece).await;
            }
            continue;
        };
        if let Some(end) = held.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&held[..end]).to_ascii_lowercase();
            let length: usize = field(&head, "content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
            let mut left = length.saturating_sub(held.len() - end - 4);
            held.drain(..(end + 4 + length).min(held.len()));
            while left > 0 {
                let room = piece.len().min(left);
                let count = forward.data.read(&mut piece[..room]).await?;
                if count == 0 {
                    return Ok(());
                }
                left -= count;
            }
            let closes = field(&head, "connection").is_some_and(|value| value.contains("close"))
                || head.contains(" http/1.0\r\n");
            let shown = if head.starts_with("head ") { "" } else { body };
            let connection = if closes { "close" } else { "keep-alive" };
            let answer = format!(
                "HTTP/1.1 {} {}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: \
                 {connection}\r\nServer: holdfast-simulated\r\n\r\n{shown}",
                code.as_u16(),
                code.canonical_reason().unwrap_or_default(),
                body.len()
            );
            forward.data.write_all(answer.as_bytes()).await?;
            if closes {
                return Ok(());
            }
            continue;
        }
        let count = forward.data.read(&mut piece).await?;
        if count == 0 {
            return Ok(());
        }
        held.extend_from_slice(&piece[..count]);
    }
}

async fn echo(forward: &mut Forward, held: Vec<u8>, mut piece: Vec<u8>) -> std::io::Result<()> {
    forward.data.write_all(&held).await?;
    loop {
        let count = forward.data.read(&mut piece).await?;
        if count == 0 {
            return Ok(());
        }
        forward.data.write_all(&piece[..count]).await?;
    }
}

fn field<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.split("\r\n")
        .skip(1)
        .find_map(|line| line.split_once(':').filter(|(known, _)| *known == name))
        .map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    #[test]
    fn ports_that_are_not_named_are_refused() {
        let pod = json!({"metadata": {"namespace": "n", "name": "p", "uid": "u", "annotations": {
            "simulate.holdfast.dev/answer": "hello", "simulate.holdfast.dev/answer.b": "echo",
            "simulate.holdfast.dev/answer.d": "refused", "simulate.holdfast.dev/answer-code": "503"}},
            "spec": {"containers": [{"name": "a", "ports": [{"containerPort": 80}]},
                {"name": "b", "ports": [{"containerPort": 81}]}, {"name": "d", "ports": [{"containerPort": 83}]}]}});
        let ports = Ports::of(&pod, &BehaviourSettings::default());
        let said = |ports: &Ports, port| ports.find(port).map(|said| (said.text.clone(), said.code.as_u16()));
        assert_eq!(said(&ports, 80), Ok((Some("hello".into()), 503)));
        assert_eq!(said(&ports, 81), Ok((Some("echo".into()), 503)));
        for refused in [82, 83] {
            assert!(said(&ports, refused).is_err_and(|why| why.contains("connection refused")));
        }
        let none =
            Ports::of(&json!({"metadata": {}, "spec": {"containers": [{"name": "a"}]}}), &BehaviourSettings::default());
        assert_eq!(said(&none, 82), Ok((None, 200)));
    }
}
