//! `/exec`, `/attach` and `/run`: commands in containers, and the live output of containers.

use crate::answers::{KubeletResponse, fault, plain, whole};
use crate::containers::{ContainerRun, ContainerUse, Containers, Executed};
use crate::request::{ContainerTarget, Query};
use holdfast_nodes::environment;
use holdfast_shell::{MAIN, OutputStream, Pid};
use holdfast_streams::remote::{CommandOutcome, CommandStreams, Resizes, Session};
use holdfast_streams::{ConnectionLimits, upgrade};
use holdfast_value::Value;
use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The maximum number of sessions at a time: commands, attachments and forwarded ports together.
pub const SESSIONS_MAX: usize = 1000;
/// The maximum number of words of a command.
const WORDS_MAX: usize = 1000;
/// The maximum number of bytes of all words of a command together.
const WORDS_BYTES_MAX: usize = 256 << 10;
/// How long a command that reads input may continue after its client has disconnected.
const ALONE_MAX: Duration = Duration::from_secs(10);
/// How many bytes of a command's output are read at once.
const PIECE_BYTES: usize = 32 << 10;
/// How long a command of `/run` may take.
const RUN_MAX: Duration = Duration::from_secs(60);
/// The maximum number of bytes that `/run` returns.
const RUN_BYTES_MAX: usize = 1 << 20;

/// Limits the number of sessions.
#[derive(Clone)]
pub struct Sessions(Arc<Semaphore>);

impl Default for Sessions {
    fn default() -> Sessions {
        Sessions(Arc::new(Semaphore::new(SESSIONS_MAX)))
    }
}

impl Sessions {
    /// A permit for a session; `None` if there are too many sessions, which the caller answers with [`full`].
    pub fn enter(&self) -> Option<OwnedSemaphorePermit> {
        self.0.clone().try_acquire_owned().ok()
    }
}

/// The answer to a request for a session when there are too many sessions.
pub fn full() -> KubeletResponse {
    let mut answer = plain(StatusCode::TOO_MANY_REQUESTS, "too many requests in flight");
    answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("60"));
    answer
}

/// The answer after which the connection carries streams instead of HTTP.
pub fn switched(answer: Response<()>) -> KubeletResponse {
    answer.map(|()| whole(""))
}

/// The answer to a client whose upgrade the `streams` crate refuses.
pub fn refused(refusal: upgrade::Refusal) -> KubeletResponse {
    refusal.into_response().map(whole)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The container that a request names, if it runs. The error is the answer to the client.
async fn find(containers: &Containers, pod: &Value, target: &ContainerTarget) -> Result<ContainerUse, KubeletResponse> {
    let Some(spec) = environment::container(pod, &target.container) else {
        let why = format!("container not found ({:?})", target.container);
        return Err(fault(StatusCode::INTERNAL_SERVER_ERROR, &why));
    };
    let look = containers.acquire(pod, spec).await;
    look.map_err(|_| {
        let why = format!("container not found ({:?})", target.container);
        fault(StatusCode::INTERNAL_SERVER_ERROR, &why)
    })
}

/// The streams that a query requests; `None` if it requests no stream.
fn requested_streams(query: &Query) -> Option<CommandStreams> {
    let wanted = CommandStreams {
        stdin: query.is_set("input") || query.is_set("stdin"),
        stdout: query.is_set("output") || query.is_set("stdout"),
        stderr: query.is_set("error") || query.is_set("stderr"),
        tty: query.is_set("tty"),
    };
    (wanted.stdin || wanted.stdout || wanted.stderr).then_some(wanted)
}

/// Answers `/exec` if the request has a command, and otherwise `/attach`.
pub async fn answer(
    containers: &Containers,
    sessions: &Sessions,
    pod: &Value,
    target: &ContainerTarget,
    command: Option<Vec<String>>,
    mut request: Request<Incoming>,
) -> KubeletResponse {
    let query = Query::of(request.uri().query());
    let Some(wanted) = requested_streams(&query) else {
        return plain(StatusCode::BAD_REQUEST, "you must specify at least 1 of stdin, stdout, stderr");
    };
    if let Some(words) = &command {
        let bytes: usize = words.iter().map(String::len).sum();
        if words.is_empty() || words.len() > WORDS_MAX || bytes > WORDS_BYTES_MAX {
            let why = if words.is_empty() { "no command was given" } else { "argument list too long" };
            return fault(StatusCode::INTERNAL_SERVER_ERROR, why);
        }
    }
    let Some(place) = sessions.enter() else { return full() };
    let look = match find(containers, pod, target).await {
        Ok(look) => look,
        Err(answer) => return answer,
    };
    let (answer, agreed) = match upgrade::remote_command(request.headers()) {
        Ok(agreed) => agreed,
        Err(refusal) => return refused(refusal),
    };
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let _place = place;
        let session = match upgraded.await {
            Ok(socket) => Session::accept(TokioIo::new(socket), &agreed, wanted, ConnectionLimits::default()).await,
            Err(error) => return tracing::debug!(%error, "a connection was not upgraded"),
        };
        match session {
            Ok(session) => talk(session, &look.0, command, wanted).await,
            Err(error) => tracing::debug!(%error, "a session did not begin"),
        }
    });
    switched(answer)
}

async fn talk(mut session: Session, container: &ContainerRun, command: Option<Vec<String>>, wanted: CommandStreams) {
    // The terminal sizes that the client sends have no effect. They are read so that the client is not blocked.
    let resizes = session.resize.take().map(Resizes::new);
    let resizing = tokio::spawn(async move {
        let Some(mut resizes) = resizes else { return };
        while resizes.next().await.is_some() {}
    });
    let closed = session.closed();
    let outcome = {
        let mut running = pin!(run(&mut session, container, command, wanted));
        tokio::select! {
            outcome = &mut running => Some(outcome),
            // The client has disconnected. Input that has reached the node is still delivered, because clients that
            // cannot close a stream send a file's bytes to `cat` and disconnect.
            () = closed.cancelled() => {
                if wanted.stdin {
                    _ = tokio::time::timeout(ALONE_MAX, running).await;
                }
                None
            }
        }
    };
    resizing.abort();
    if let Some(outcome) = outcome
        && let Err(error) = session.finish(&outcome).await
    {
        tracing::debug!(%error, "the outcome of a command could not be sent to the client");
    }
}

async fn run(
    session: &mut Session,
    container: &ContainerRun,
    command: Option<Vec<String>>,
    wanted: CommandStreams,
) -> CommandOutcome {
    let Some(words) = command else {
        attached(session, container).await;
        return CommandOutcome::success();
    };
    let Some(executed) = container.execute(&words, wanted.stdin, wanted.tty) else {
        return CommandOutcome::failed("error executing command in container: too many processes");
    };
    let is_shell = words.len() == 1 && holdfast_nodes::course::is_shell(&words[0]);
    if wanted.tty
        && is_shell
        && let Some(output) = &mut session.stdout
    {
        let word = "simulated by Holdfast: no container runs here; this is a shell of its own, see `docs/NODES.md`\r\n";
        _ = output.write_all(word.as_bytes()).await;
    }
    let code = pump_streams(session, container, executed.pid, Some(&executed)).await;
    CommandOutcome::exit(code, &format!("error executing command [{}], exit code {code}", words.join(" ")))
}

async fn attached(session: &mut Session, container: &ContainerRun) {
    pump_streams(session, container, MAIN, None).await;
}

/// Passes input and output between the client and the command until the command ends.
async fn pump_streams(
    session: &mut Session,
    container: &ContainerRun,
    pid: Pid,
    executed: Option<&Executed<'_>>,
) -> i32 {
    let mut happened = container.follow();
    let mut seen = container.lock().recent.next();
    let (mut stdout, mut stderr) = (session.stdout.take(), session.stderr.take());
    let mut stdin = session.stdin.take();
    let mut pending: Vec<u8> = Vec::new();
    let mut piece = vec![0; PIECE_BYTES];
    let code = loop {
        if !pending.is_empty() {
            let taken = container.write(pid, &pending);
            pending.drain(..taken);
        }
        let (output, errors, ended) = {
            let mut state = container.lock();
            match executed {
                Some(_) => {
                    // The end is checked before the output is read, so that all output before the end is included.
                    let ended = state.machine.exit_code(pid).or(state.ended.map(|_| 137));
                    let output = state.machine.read(pid, OutputStream::Output, PIECE_BYTES);
                    let errors = state.machine.read(pid, OutputStream::Errors, PIECE_BYTES);
                    (output, errors, ended)
                }
                None => {
                    let ended = state.ended;
                    let (mut output, mut errors) = (Vec::new(), Vec::new());
                    for (is_error, bytes) in state.recent.since(seen) {
                        if is_error { errors.extend(bytes) } else { output.extend(bytes) }
                    }
                    seen = state.recent.next();
                    (output, errors, ended)
                }
            }
        };
        let is_empty = output.is_empty() && errors.is_empty();
        if !is_empty {
            // After output was read, the machine has room for more output, so it is woken.
            container.nudge();
        }
        for (to, bytes) in [(&mut stdout, output), (&mut stderr, errors)] {
            if let Some(stream) = to.as_mut().filter(|_| !bytes.is_empty())
                && stream.write_all(&bytes).await.is_err()
            {
                *to = None;
            }
        }
        match ended {
            Some(code) if is_empty => break code,
            Some(_) => continue,
            None if !is_empty => continue,
            None => {}
        }
        let reads = pending.is_empty();
        tokio::select! {
            told = happened.changed() => if told.is_err() { break 137 },
            read = async {
                match &mut stdin {
                    Some(stream) if reads => stream.read(&mut piece).await,
                    _ => std::future::pending().await,
                }
            } => match read {
                Ok(count) if count > 0 => pending.extend_from_slice(&piece[..count]),
                _ => {
                    stdin = None;
                    if executed.is_some() || container.spec["stdinOnce"] == true {
                        container.end_input(pid);
                    }
                }
            },
        }
    };
    // Dropping the streams first sends all output to the client before the exit status.
    drop((stdout, stderr));
    code
}

/// Answers `/run`: runs a command to its end and returns its output.
pub async fn run_whole(
    containers: &Containers,
    sessions: &Sessions,
    pod: &Value,
    target: &ContainerTarget,
    query: &Query,
) -> KubeletResponse {
    let words: Vec<String> =
        query.first("cmd").unwrap_or_default().split_whitespace().take(WORDS_MAX).map(str::to_owned).collect();
    let Some(_place) = sessions.enter() else { return full() };
    let look = match find(containers, pod, target).await {
        Ok(look) => look,
        Err(answer) => return answer,
    };
    let container = &look.0;
    let Some(executed) = container.execute(&words, false, false) else {
        return fault(StatusCode::INTERNAL_SERVER_ERROR, "too many processes");
    };
    let mut happened = container.follow();
    let mut put_out = Vec::new();
    let running = async {
        loop {
            let (more, ended) = {
                let mut state = container.lock();
                let ended = state.machine.exit_code(executed.pid).or(state.ended.map(|_| 137));
                let mut more = state.machine.read(executed.pid, OutputStream::Output, PIECE_BYTES);
                more.extend(state.machine.read(executed.pid, OutputStream::Errors, PIECE_BYTES));
                (more, ended)
            };
            let is_empty = more.is_empty();
            put_out.extend(more);
            put_out.truncate(RUN_BYTES_MAX);
            match ended {
                Some(code) if is_empty => return code,
                _ if !is_empty => container.nudge(),
                _ => {}
            }
            if is_empty && happened.changed().await.is_err() {
                return 137;
            }
        }
    };
    match tokio::time::timeout(RUN_MAX, running).await {
        Ok(0) => {
            let mut answer = plain(StatusCode::OK, "");
            *answer.body_mut() = whole(put_out);
            answer
        }
        Ok(code) => {
            let command = text(&Value::from(words.join(" "))).to_owned();
            let put_out = String::from_utf8_lossy(&put_out);
            fault(StatusCode::INTERNAL_SERVER_ERROR, &format!("command '{command}' exited with {code}: {put_out}"))
        }
        Err(_) => fault(StatusCode::INTERNAL_SERVER_ERROR, "context deadline exceeded"),
    }
}
