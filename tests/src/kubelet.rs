//! A kubelet without a node, for requests that the API server proxies. The kubelet speaks the protocols of real
//! kubelets, and misbehaves if the path of a request demands this.

use crate::authority::Authority;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use holdfast_streams::forward::Forwards;
use holdfast_streams::remote::{CommandOutcome, CommandStreams, Resizes, Session};
use holdfast_streams::{ConnectionLimits, upgrade};
use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// A running kubelet. When dropped, it stops and closes its connections.
pub struct Kubelet {
    pub address: SocketAddr,
    shared: Arc<KubeletState>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct KubeletState {
    seen: Mutex<Vec<(String, HeaderMap)>>,
    connections: Mutex<Vec<JoinHandle<()>>>,
    /// When this token is cancelled, the work on upgraded connections stops.
    upgraded: CancellationToken,
    /// The number of open connections, without upgraded connections.
    open: watch::Sender<usize>,
    /// The number of bytes that each `count` command has read.
    counted: watch::Sender<Vec<usize>>,
}

trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Socket for S {}

impl KubeletState {
    /// Runs work until the kubelet stops.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let ended = self.upgraded.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = work => {}
                () = ended.cancelled() => {}
            }
        });
    }
}

type ResponseBody = UnsyncBoxBody<Bytes, Infallible>;

/// An address of this machine other than loopback, to which the API server refuses to proxy. Returns `None` if there is
/// none.
pub fn address() -> Option<IpAddr> {
    // Nothing is sent: the system says from which address it would send.
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("198.51.100.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_loopback() && !address.is_unspecified())
}

impl Kubelet {
    /// A server without TLS, as in a container.
    pub async fn plain(address: IpAddr) -> Kubelet {
        Kubelet::serve(address, None).await
    }

    /// A server with a certificate of this authority for `name`; it serves only clients with a certificate of the
    /// authority.
    pub async fn start(address: IpAddr, authority: &Authority, name: &str) -> Kubelet {
        Kubelet::serve(address, Some(authority.acceptor(name, &[]))).await
    }

    async fn serve(address: IpAddr, acceptor: Option<TlsAcceptor>) -> Kubelet {
        let listener = TcpListener::bind((address, 0)).await.expect("a port");
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(KubeletState::default());
        let serving = shared.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, shared) = (acceptor.clone(), serving.clone());
                let connection = tokio::spawn(async move {
                    let stream: Box<dyn Socket> = match acceptor {
                        None => Box::new(stream),
                        Some(acceptor) => match acceptor.accept(stream).await {
                            Ok(stream) => Box::new(stream),
                            Err(_) => return,
                        },
                    };
                    shared.open.send_modify(|open| *open += 1);
                    let own = shared.clone();
                    let service = service_fn(move |request| answer(own.clone(), request));
                    let connection = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .with_upgrades();
                    let _ = connection.await;
                    shared.open.send_modify(|open| *open -= 1);
                });
                serving.connections.lock().unwrap().push(connection);
            }
        });
        Kubelet { address, shared, task }
    }

    /// The requests that the kubelet has received so far, each with its path, query and headers.
    pub fn seen(&self) -> Vec<(String, HeaderMap)> {
        self.shared.seen.lock().unwrap().clone()
    }

    /// Waits until this many `count` commands have ended. Returns the number of bytes that each of them has read.
    pub async fn counted(&self, commands: usize) -> Vec<usize> {
        let mut counted = self.shared.counted.subscribe();
        counted.wait_for(|counted| counted.len() >= commands).await.expect("the kubelet runs").clone()
    }

    /// Waits until no connection is open, except upgraded connections.
    pub async fn is_left(&self) {
        let mut open = self.shared.open.subscribe();
        _ = open.wait_for(|open| *open == 0).await;
    }
}

impl Kubelet {
    /// Stops the kubelet in the middle of its work.
    pub fn stop(&self) {
        self.task.abort();
        self.shared.connections.lock().unwrap().iter().for_each(JoinHandle::abort);
        self.shared.upgraded.cancel();
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.stop();
    }
}

fn full(status: u16, text: impl Into<Bytes>) -> Response<ResponseBody> {
    let mut response = Response::new(Full::new(text.into()).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

async fn answer(
    shared: Arc<KubeletState>,
    mut request: Request<Incoming>,
) -> Result<Response<ResponseBody>, Infallible> {
    let path = request.uri().path_and_query().map(|path| path.to_string()).unwrap_or_default();
    shared.seen.lock().unwrap().push((path, request.headers().clone()));
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    Ok(match parts[..] {
        ["containerLogs", _, "moved", _] => {
            let mut response = full(302, "");
            response.headers_mut().insert(LOCATION, "https://127.0.0.1:1/".parse().unwrap());
            response
        }
        ["containerLogs", _, "waiting", _] => full(400, "container \"c\" in pod \"waiting\" is waiting to start: x"),
        ["containerLogs", _, "broken", _] => full(500, "it is broken"),
        ["containerLogs", _, "gone", _] => full(404, "pod \"gone\" does not exist"),
        [_, _, "endless", ..] => {
            let mut response = Response::new(
                StreamBody::new(stream::repeat_with(|| {
                    Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[b'x'; 1000])))
                }))
                .boxed_unsync(),
            );
            *response.status_mut() = StatusCode::IM_A_TEAPOT;
            response
        }
        [_, _, "headers", ..] => {
            let mut response = full(200, "");
            response.headers_mut().insert("x-long", "x".repeat(2 << 20).parse().unwrap());
            response
        }
        ["containerLogs", _, "quiet", _] => {
            let line = stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"a line\n")))]);
            Response::new(StreamBody::new(line.chain(stream::pending())).boxed_unsync())
        }
        ["containerLogs", ..] if query.contains("follow=true") => {
            let lines = stream::unfold(0u64, |line| async move {
                if line > 1 {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                let frame = Frame::data(Bytes::from(format!("line {line}\n")));
                Some((Ok::<_, Infallible>(frame), line + 1))
            });
            Response::new(StreamBody::new(lines).boxed_unsync())
        }
        ["containerLogs", ..] => full(200, format!("a line\n{query}\n")),
        ["exec" | "attach", _, "moved", _] => {
            let mut response = full(302, "");
            response.headers_mut().insert(LOCATION, "https://127.0.0.1:1/".parse().unwrap());
            response
        }
        ["exec" | "attach", _, "gone", _] => full(404, "pod does not exist"),
        ["exec" | "attach", _, "rubbish", _] => rubbish(&shared, &mut request),
        ["exec" | "attach", ..] => command(&shared, &mut request, &query),
        ["portForward", ..] => forward(&shared, &mut request),
        ["page"] => {
            let mut response = full(200, "<p>/x</p><a href=\"/x\">x</a>");
            response.headers_mut().insert(CONTENT_TYPE, "text/html; charset=utf-8".parse().unwrap());
            response
        }
        _ => {
            let method = request.method().clone();
            let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
            full(200, format!("{method} {path}?{query} {}", String::from_utf8_lossy(&body)))
        }
    })
}

fn switched(answer: Response<()>) -> Response<ResponseBody> {
    answer.map(|()| Full::new(Bytes::new()).boxed_unsync())
}

fn refused(refusal: upgrade::Refusal) -> Response<ResponseBody> {
    refusal.into_response().map(|text| Full::new(Bytes::from(text)).boxed_unsync())
}

/// Accepts the upgrade of a connection, and then sends malformed frames on it.
fn rubbish(shared: &KubeletState, request: &mut Request<Incoming>) -> Response<ResponseBody> {
    let answer = match upgrade::remote_command(request.headers()) {
        Ok((answer, _)) => answer,
        Err(refusal) => return refused(refusal),
    };
    let upgraded = hyper::upgrade::on(request);
    shared.spawn(async move {
        let mut socket = TokioIo::new(upgraded.await.expect("upgraded"));
        _ = socket.write_all(&[0xff; 4096]).await;
        tokio::time::sleep(Duration::from_secs(600)).await;
    });
    switched(answer)
}

/// Serves a command: `cat` echoes its input, `size` prints the first size of the terminal, `flood N` writes N bytes,
/// `count` writes some bytes and then reads all input, and `fail` ends with the exit code 3. Any other command is
/// printed.
fn command(shared: &Arc<KubeletState>, request: &mut Request<Incoming>, query: &str) -> Response<ResponseBody> {
    let pairs: Vec<(String, String)> = query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, text)| (name.to_owned(), text.replace('+', " ")))
        .collect();
    let has = |name: &str| pairs.iter().any(|(own, text)| own == name && text == "1");
    let wanted = CommandStreams { stdin: has("input"), stdout: has("output"), stderr: has("error"), tty: has("tty") };
    let words: Vec<String> = pairs.iter().filter(|(name, _)| name == "command").map(|(_, word)| word.clone()).collect();
    let (answer, agreed) = match upgrade::remote_command(request.headers()) {
        Ok(agreed) => agreed,
        Err(refusal) => return refused(refusal),
    };
    let upgraded = hyper::upgrade::on(request);
    let own = shared.clone();
    shared.spawn(async move {
        let socket = TokioIo::new(upgraded.await.expect("upgraded"));
        let Ok(mut session) = Session::accept(socket, &agreed, wanted, ConnectionLimits::default()).await else {
            return;
        };
        let (stdin, stdout, stderr) = (session.stdin.take(), session.stdout.take(), session.stderr.take());
        let mut stdout = stdout.unwrap_or_else(|| Box::new(tokio::io::sink()));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let outcome = match words[..] {
            ["cat"] | [] => {
                let mut stdin = stdin.unwrap_or_else(|| Box::new(tokio::io::empty()));
                _ = tokio::io::copy(&mut stdin, &mut stdout).await;
                CommandOutcome::success()
            }
            ["size"] => {
                let size = Resizes::new(session.resize.take().expect("a terminal")).next().await;
                _ = stdout.write_all(format!("{size:?}").as_bytes()).await;
                CommandOutcome::success()
            }
            ["flood", bytes] => {
                let mut left: usize = bytes.parse().expect("a number");
                while left > 0 {
                    let piece = left.min(30_000);
                    if stdout.write_all(&vec![b'x'; piece]).await.is_err() {
                        break;
                    }
                    left -= piece;
                }
                CommandOutcome::success()
            }
            ["count"] => {
                let mut stdin = stdin.unwrap_or_else(|| Box::new(tokio::io::empty()));
                // The client may have disconnected by now.
                _ = stdout.write_all(&[b'x'; 200_000]).await;
                let mut all = Vec::new();
                _ = stdin.read_to_end(&mut all).await;
                own.counted.send_modify(|counted| counted.push(all.len()));
                CommandOutcome::success()
            }
            ["fail"] => {
                if let Some(mut stderr) = stderr {
                    _ = stderr.write_all(b"it fails\n").await;
                }
                CommandOutcome::exit(3, "error executing command [fail], exit code 3")
            }
            ref words => {
                _ = stdout.write_all(format!("{words:?}\n").as_bytes()).await;
                CommandOutcome::success()
            }
        };
        drop(stdout);
        _ = session.finish(&outcome).await;
    });
    switched(answer)
}

/// Serves a port forwarding: port 7 echoes its input in upper case, and nothing listens on other ports.
fn forward(shared: &KubeletState, request: &mut Request<Incoming>) -> Response<ResponseBody> {
    let ports = request.uri().query().and_then(|query| query.strip_prefix("port=")).unwrap_or_default();
    let ports: Vec<u16> = ports.split("%2C").filter_map(|port| port.parse().ok()).collect();
    let (answer, agreed) = match upgrade::port_forward(request.headers()) {
        Ok(agreed) => agreed,
        Err(refusal) => return refused(refusal),
    };
    let upgraded = hyper::upgrade::on(request);
    shared.spawn(async move {
        let socket = TokioIo::new(upgraded.await.expect("upgraded"));
        let Ok(mut forwards) = Forwards::accept(socket, &agreed, &ports, ConnectionLimits::default()).await else {
            return;
        };
        while let Some(mut forward) = forwards.next().await {
            tokio::spawn(async move {
                if forward.port != 7 {
                    let why = format!("error forwarding port {}: nobody listens", forward.port);
                    return forward.fail(&why).await;
                }
                let mut piece = [0; 4096];
                while let Ok(length @ 1..) = forward.data.read(&mut piece).await {
                    piece[..length].make_ascii_uppercase();
                    if forward.data.write_all(&piece[..length]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    switched(answer)
}
