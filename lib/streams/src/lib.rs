//! The streams of upgraded HTTP connections, as `kubectl exec`, `attach`, `port-forward` and `logs` use them.
//!
//! [`spdy`] is the older protocol, [`websocket`] the newer one. [`remote`] (exec and attach) and [`forward`] (port
//! forwarding) are the same over both protocols, so a server need not know which protocol the client has chosen.
//! [`upgrade`] reads the requested protocol from a request, and makes the response that switches protocols. This crate
//! opens no socket, and has no code for pods. The memory for data in both directions is bounded, and every wait for the
//! other side has a deadline.
//!
//! A kubelet's server, over any HTTP library that hands out the connection after the answer:
//!
//! ```ignore
//! use holdfast_streams::{ConnectionLimits, forward, remote, upgrade};
//!
//! // POST or GET /exec/NAMESPACE/POD/CONTAINER?command=sh&input=1&output=1&error=1&tty=0
//! let (answer, agreed) = match upgrade::remote_command(request.headers()) {
//!     Ok(agreed) => agreed,
//!     Err(refusal) => return refusal.into_response(),
//! };
//! let wanted = remote::CommandStreams { stdin: true, stdout: true, stderr: true, tty: false };
//! let upgraded = hyper::upgrade::on(&mut request);
//! tokio::spawn(async move {
//!     let socket = TokioIo::new(upgraded.await?);
//!     let mut session = remote::Session::accept(socket, &agreed, wanted, ConnectionLimits::default()).await?;
//!     // Each stream is `Some` if it was wanted, and implements AsyncRead or AsyncWrite of tokio.
//!     let (stdin, stdout) = (session.stdin.take(), session.stdout.take());
//!     let resizes = session.resize.take().map(remote::Resizes::new); // next().await: Option<Size>
//!     // ... run the command until it ends, or until session.closed().cancelled() returns: the client has left ...
//!     drop(stdout); // written output is sent before the outcome
//!     session.finish(&remote::CommandOutcome::exit(1, "error executing command [false], exit code 1")).await
//! });
//! return answer; // 101 with its headers, and no body
//!
//! // POST or GET /portForward/NAMESPACE/POD?port=80
//! let (answer, agreed) = upgrade::port_forward(request.headers())?;
//! let mut forwards = forward::Forwards::accept(socket, &agreed, &ports, ConnectionLimits::default()).await?;
//! while let Some(forward) = forwards.next().await {
//!     tokio::spawn(async move {
//!         match connect(forward.port).await {
//!             Ok(mut backend) => _ = copy_bidirectional(&mut forward.data, &mut backend).await,
//!             Err(why) => forward.fail(&why.to_string()).await,
//!         }
//!     });
//! }
//! ```

mod deaf;
pub mod forward;
pub mod pipe;
pub mod remote;
pub mod spdy;
pub mod upgrade;
pub mod websocket;

pub use spdy::ConnectionLimits;

use tokio::io::{AsyncRead, AsyncWrite};

/// A connection that was upgraded from HTTP, as a stream of bytes.
pub trait Socket: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Socket for S {}

/// Data that one side reads, over SPDY or a WebSocket.
pub type Input = Box<dyn AsyncRead + Send + Unpin>;
/// Data that one side writes, over SPDY or a WebSocket. The stream ends when this value is dropped.
pub type Output = Box<dyn AsyncWrite + Send + Unpin>;
