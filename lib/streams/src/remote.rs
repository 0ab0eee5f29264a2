//! Remote commands: exec and attach, in every version of their protocol, over SPDY or a WebSocket.
//!
//! [`Session`] is the side that runs the command. [`Remote`] is the side that requests it, over SPDY.

use crate::spdy::{Headers, Incoming, Spdy, SpdyStream};
use crate::upgrade::{Agreed, UpgradeProtocol};
use crate::websocket::{MessageForm, Open, channels};
use crate::{ConnectionLimits, Input, Output, Socket};
use serde::Deserialize;
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// The maximum number of bytes of a terminal size in JSON.
const SIZE_BYTES_MAX: usize = 1024;

const STREAM_TYPE: &str = "streamtype";
/// The channels of a WebSocket for a remote command.
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;

/// The streams that a client requests for a command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CommandStreams {
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
    pub tty: bool,
}

/// The version of the protocol for remote commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProtocolVersion {
    V1,
    V2,
    V3,
    V4,
    V5,
}

impl ProtocolVersion {
    /// The version that a protocol name stands for.
    pub fn of(protocol: &str) -> ProtocolVersion {
        match protocol {
            "v5.channel.k8s.io" => ProtocolVersion::V5,
            "v4.channel.k8s.io" | "v4.base64.channel.k8s.io" => ProtocolVersion::V4,
            "v3.channel.k8s.io" => ProtocolVersion::V3,
            "v2.channel.k8s.io" => ProtocolVersion::V2,
            _ => ProtocolVersion::V1,
        }
    }

    /// Whether the outcome is sent as a Status rather than as a line of text.
    fn has_status(self) -> bool {
        self >= ProtocolVersion::V4
    }
}

/// The outcome of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOutcome {
    /// The text of the error, for versions of the protocol before 4; `None` for a success.
    text: Option<String>,
    /// The outcome as a Status in JSON, for version 4 of the protocol and later versions.
    status: String,
}

impl CommandOutcome {
    pub fn success() -> CommandOutcome {
        CommandOutcome { text: None, status: r#"{"metadata":{},"status":"Success"}"#.to_owned() }
    }

    /// The command ended with this exit code; 0 is a success. `why` is a text such as `error executing command [false],
    /// exit code 1`.
    pub fn exit(code: i32, why: &str) -> CommandOutcome {
        if code == 0 {
            return CommandOutcome::success();
        }
        let message = format!("command terminated with non-zero exit code: {why}");
        let status = serde_json::json!({
            "metadata": {}, "status": "Failure", "message": message, "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
        });
        CommandOutcome { text: Some(why.to_owned()), status: status.to_string() }
    }

    /// The outcome of a command that could not be run.
    pub fn failed(why: &str) -> CommandOutcome {
        let status = serde_json::json!({
            "metadata": {}, "status": "Failure", "message": format!("Internal error occurred: {why}"),
            "reason": "InternalError", "details": {"causes": [{"message": why}]}, "code": 500,
        });
        CommandOutcome { text: Some(why.to_owned()), status: status.to_string() }
    }

    /// A Status as received, with a text for versions that have no Status.
    pub fn status(status: String, text: Option<String>) -> CommandOutcome {
        CommandOutcome { text, status }
    }
}

/// A command that a client wants to run, with the streams that it requested.
pub struct Session {
    pub stdin: Option<Input>,
    pub stdout: Option<Output>,
    pub stderr: Option<Output>,
    /// Sizes of the client's terminal, for [`Resizes`].
    pub resize: Option<Input>,
    error: Output,
    version: ProtocolVersion,
    held: KeptOpen,
}

/// Keeps the connection open while this value exists.
enum KeptOpen {
    Spdy(Spdy),
    WebSocket(Open),
}

impl Session {
    /// Accepts an upgraded connection. Over SPDY this waits until the client has opened the streams.
    pub async fn accept<S: Socket>(
        socket: S,
        agreed: &Agreed,
        wanted: CommandStreams,
        limits: ConnectionLimits,
    ) -> io::Result<Session> {
        let version = ProtocolVersion::of(&agreed.protocol);
        let wanted = CommandStreams { stderr: wanted.stderr && !wanted.tty, ..wanted };
        match agreed.wire {
            UpgradeProtocol::Spdy => {
                let patience = limits.reply;
                let (spdy, incoming) = Spdy::server(socket, limits);
                let streams = timeout(patience, Streams::of_client(incoming, wanted, version)).await;
                let late = || io::Error::new(io::ErrorKind::TimedOut, "timed out waiting for client to create streams");
                Session::over_spdy(streams.map_err(|_| late())??, version, spdy)
            }
            UpgradeProtocol::WebSocket => {
                let (mut channels, started) = channels(socket, MessageForm::of(&agreed.protocol), limits).await;
                let stdin = wanted.stdin.then(|| channels.read(STDIN));
                let stdout = wanted.stdout.then(|| channels.write(STDOUT));
                let stderr = wanted.stderr.then(|| channels.write(STDERR));
                let error = channels.write(ERROR);
                let resize = wanted.tty.then(|| channels.read(RESIZE));
                // As in Kubernetes, the lowest channel that the server writes to gets the greeting.
                let lowest = if wanted.stdout {
                    STDOUT
                } else if wanted.stderr {
                    STDERR
                } else {
                    ERROR
                };
                channels.greet(lowest);
                Ok(Session {
                    stdin: stdin.map(|stream| Box::new(stream) as Input),
                    stdout: stdout.map(|stream| Box::new(stream) as Output),
                    stderr: stderr.map(|stream| Box::new(stream) as Output),
                    resize: resize.map(|stream| Box::new(stream) as Input),
                    error: Box::new(error),
                    version,
                    held: KeptOpen::WebSocket(started.run(channels)),
                })
            }
        }
    }

    fn over_spdy(streams: Streams, version: ProtocolVersion, spdy: Spdy) -> io::Result<Session> {
        // Go's clients stop writing when they receive a half-close of a stream that they write. So a stream that is
        // read here is not split, and its other direction stays open.
        let reads = |stream: Option<SpdyStream>| stream.map(|stream| Box::new(stream) as Input);
        let writes = |stream: Option<SpdyStream>| stream.map(|stream| Box::new(stream.split().1) as Output);
        let error = writes(streams.error).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Session {
            stdin: reads(streams.stdin),
            stdout: writes(streams.stdout),
            stderr: writes(streams.stderr),
            resize: reads(streams.resize),
            error,
            version,
            held: KeptOpen::Spdy(spdy),
        })
    }

    /// A token that is cancelled when the client has disconnected.
    pub fn closed(&self) -> CancellationToken {
        match &self.held {
            KeptOpen::Spdy(spdy) => spdy.closed(),
            KeptOpen::WebSocket(open) => open.closed(),
        }
    }

    /// Sends the outcome after all written output, and ends the connection.
    pub async fn finish(mut self, outcome: &CommandOutcome) -> io::Result<()> {
        self.stdout = None;
        self.stderr = None;
        let told = if self.version.has_status() { Some(&outcome.status) } else { outcome.text.as_ref() };
        if let Some(told) = told {
            self.error.write_all(told.as_bytes()).await?;
        }
        self.error.shutdown().await
    }
}

#[derive(Default)]
struct Streams {
    error: Option<SpdyStream>,
    stdin: Option<SpdyStream>,
    stdout: Option<SpdyStream>,
    stderr: Option<SpdyStream>,
    resize: Option<SpdyStream>,
}

impl Streams {
    /// Waits until the client has opened all agreed streams. Streams that were not agreed are refused.
    async fn of_client(
        mut incoming: Incoming,
        wanted: CommandStreams,
        version: ProtocolVersion,
    ) -> io::Result<Streams> {
        let mut streams = Streams::default();
        let resizes = wanted.tty && version >= ProtocolVersion::V3;
        let flags = [wanted.stdin, wanted.stdout, wanted.stderr, resizes];
        let mut missing = 1 + flags.iter().filter(|flag| **flag).count();
        while missing > 0 {
            let gone = || io::Error::new(io::ErrorKind::UnexpectedEof, "the client ended the connection");
            let asked = incoming.next().await.ok_or_else(gone)?;
            let place = match asked.headers().get(STREAM_TYPE).unwrap_or_default() {
                "error" => Some(&mut streams.error),
                "stdin" if wanted.stdin => Some(&mut streams.stdin),
                "stdout" if wanted.stdout => Some(&mut streams.stdout),
                "stderr" if wanted.stderr => Some(&mut streams.stderr),
                "resize" if resizes => Some(&mut streams.resize),
                _ => None,
            };
            if let Some(place @ None) = place {
                *place = Some(asked.accept().await?);
                missing -= 1;
            }
        }
        Ok(streams)
    }
}

/// The size of a terminal in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Size {
    #[serde(default)]
    pub width: u16,
    #[serde(default)]
    pub height: u16,
}

/// Reads terminal sizes, a sequence of JSON objects.
pub struct Resizes {
    input: Input,
    text: Vec<u8>,
}

impl Resizes {
    pub fn new(input: Input) -> Resizes {
        Resizes { input, text: Vec::new() }
    }

    /// The next size; `None` at the end, or after invalid JSON. Cancel-safe.
    pub async fn next(&mut self) -> Option<Size> {
        loop {
            let mut sizes = serde_json::Deserializer::from_slice(&self.text).into_iter::<Size>();
            match sizes.next() {
                Some(Ok(size)) => {
                    let read = sizes.byte_offset();
                    self.text.drain(..read);
                    return Some(size);
                }
                Some(Err(error)) if !error.is_eof() => return None,
                _ if self.text.len() > SIZE_BYTES_MAX => return None,
                _ => {}
            }
            let mut piece = [0; 256];
            let length = self.input.read(&mut piece).await.ok().filter(|length| *length > 0)?;
            self.text.extend_from_slice(&piece[..length]);
        }
    }
}

/// A command that another server runs and to which this process is connected over SPDY.
pub struct Remote {
    pub stdin: Option<Output>,
    pub stdout: Option<Input>,
    pub stderr: Option<Input>,
    /// Accepts the sizes of the client's terminal, as JSON.
    pub resize: Option<Output>,
    /// The outcome of the command, when it has ended.
    pub error: Input,
    spdy: Spdy,
}

impl Remote {
    /// Opens the streams on a connection that was upgraded to `version`.
    pub async fn open<S: Socket>(
        socket: S,
        version: ProtocolVersion,
        wanted: CommandStreams,
        limits: ConnectionLimits,
    ) -> io::Result<Remote> {
        let (spdy, _) = Spdy::client(socket, limits);
        let open = async |kind: &str, is_wanted: bool| -> io::Result<Option<SpdyStream>> {
            if !is_wanted {
                return Ok(None);
            }
            spdy.open(Headers::new().with(STREAM_TYPE, kind)).await.map(Some)
        };
        let error = open("error", true).await?.ok_or(io::ErrorKind::InvalidData)?;
        let stdin = open("stdin", wanted.stdin).await?;
        let stdout = open("stdout", wanted.stdout).await?;
        let stderr = open("stderr", wanted.stderr && !wanted.tty).await?;
        let resize = open("resize", wanted.tty && version >= ProtocolVersion::V3).await?;
        // The server need not stop writing a stream when it receives a half-close, but it would see our side as closed.
        // So a stream that is read here is not split.
        let reads = |stream: Option<SpdyStream>| stream.map(|stream| Box::new(stream) as Input);
        let writes = |stream: Option<SpdyStream>| stream.map(|stream| Box::new(stream.split().1) as Output);
        Ok(Remote {
            stdin: writes(stdin),
            stdout: reads(stdout),
            stderr: reads(stderr),
            resize: writes(resize),
            error: Box::new(error),
            spdy,
        })
    }

    /// A token that is cancelled when the other side has ended the connection.
    pub fn closed(&self) -> CancellationToken {
        self.spdy.closed()
    }

    /// A handle to ping the other side. The connection stays open while it exists.
    pub fn pinger(&self) -> Spdy {
        self.spdy.clone()
    }
}
