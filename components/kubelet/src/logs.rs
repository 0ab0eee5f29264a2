//! `/containerLogs`: the log of a container.

use crate::answers::{KubeletResponse, fault, stream};
use crate::cluster::now_ms;
use crate::containers::{ContainerUse, Containers, status, time_ms};
use crate::journal::LogLine;
use crate::request::{ContainerTarget, Query};
use bytes::Bytes;
use holdfast_nodes::environment;
use holdfast_nodes::{Behaviour, BehaviourSettings, Span};
use holdfast_value::Value;
use holdfast_world::Time;
use http::StatusCode;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::sync::mpsc;

/// The maximum number of lines that one request gets from a log template.
const TEMPLATE_LINES_MAX: i64 = 100_000;
/// How many pieces of a log may wait until the reader takes them.
const PIECES_MAX: usize = 16;
/// The size of a piece, in bytes.
const PIECE_BYTES: usize = 32 << 10;
/// How long a reader may read nothing before the request ends.
const READER_PATIENCE: Duration = Duration::from_secs(4 * 3600);
/// The longest template of a log line, in bytes.
const TEMPLATE_BYTES_MAX: usize = 4096;

/// The parameters of a log request.
#[derive(Debug, Clone, Default)]
pub struct LogOptions {
    follow: bool,
    previous: bool,
    timestamps: bool,
    since_ms: Option<i64>,
    tail: Option<usize>,
    limit: Option<u64>,
    /// Whether to send only stderr (`true`) or only stdout (`false`); `None` means stdout and stderr.
    only_errors: Option<bool>,
}

impl LogOptions {
    /// Parses the query of a log request. The error is the response to send.
    pub fn of(query: &Query) -> Result<LogOptions, (StatusCode, &'static str)> {
        let invalid = (StatusCode::UNPROCESSABLE_ENTITY, "{\"message\": \"Invalid request.\"}\n");
        let undecoded = (StatusCode::BAD_REQUEST, "{\"message\": \"Unable to decode query.\"}\n");
        let number = |name: &str| match query.first(name) {
            None => Ok(None),
            Some(text) => text.parse::<i64>().map(Some).map_err(|_| undecoded),
        };
        let tail = match query.first("tailLines") {
            Some(_) => number("tailLines")?,
            // `tail` is the former name of the parameter `tailLines`.
            None => query
                .first("tail")
                .filter(|text| *text != "all")
                .map(|text| text.parse().map_err(|_| undecoded))
                .transpose()?,
        };
        let (limit, seconds) = (number("limitBytes")?, number("sinceSeconds")?);
        let time = query.first("sinceTime").map(|text| Time::parse(text).ok_or(undecoded)).transpose()?;
        let stream = match query.first("stream") {
            None | Some("All") => Some(None),
            Some("Stdout") => Some(Some(false)),
            Some("Stderr") => Some(Some(true)),
            Some(_) => None,
        };
        let is_wrong = tail.is_some_and(|tail| tail < 0)
            || limit.is_some_and(|limit| limit < 1)
            || seconds.is_some_and(|seconds| seconds < 1)
            || seconds.is_some() && time.is_some()
            || stream.is_none()
            || stream.flatten().is_some() && tail.is_some();
        if is_wrong {
            return Err(invalid);
        }
        let since_ms = seconds.map(|seconds| now_ms().saturating_sub(seconds.saturating_mul(1000)));
        Ok(LogOptions {
            follow: query.is_set("follow"),
            previous: query.is_set("previous"),
            timestamps: query.is_set("timestamps"),
            since_ms: since_ms.or(time.map(Time::millis)),
            tail: tail.and_then(|tail| usize::try_from(tail).ok()),
            limit: limit.and_then(|limit| u64::try_from(limit).ok()),
            only_errors: stream.flatten(),
        })
    }

    fn chosen(&self, lines: Vec<LogLine>) -> VecDeque<LogLine> {
        let mut lines: VecDeque<LogLine> =
            lines.into_iter().filter(|line| self.since_ms.is_none_or(|since| line.time_ms >= since)).collect();
        while self.tail.is_some_and(|tail| lines.len() > tail) {
            lines.pop_front();
        }
        lines
    }
}

/// Sends lines of the selected streams to the reader, up to the byte limit.
struct LogWriter {
    to: mpsc::Sender<Bytes>,
    timestamps: bool,
    left: Option<u64>,
    only_errors: Option<bool>,
}

impl LogWriter {
    /// Sends lines to the reader. Returns whether more lines may follow: the reader still reads, and the byte limit is
    /// not reached.
    async fn write(&mut self, lines: impl IntoIterator<Item = LogLine>) -> bool {
        let mut piece = Vec::new();
        let only = self.only_errors;
        for line in lines.into_iter().filter(|line| only.is_none_or(|only| line.is_error == only)) {
            if self.timestamps {
                piece.extend(stamp(line.time_ms).bytes());
                piece.push(b' ');
            }
            piece.extend(line.bytes);
            if piece.len() >= PIECE_BYTES && !self.send(std::mem::take(&mut piece)).await {
                return false;
            }
        }
        piece.is_empty() || self.send(piece).await
    }

    async fn send(&mut self, mut piece: Vec<u8>) -> bool {
        if let Some(left) = &mut self.left {
            piece.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= piece.len() as u64;
        }
        let sent = tokio::time::timeout(READER_PATIENCE, self.to.send(piece.into())).await;
        matches!(sent, Ok(Ok(()))) && self.left != Some(0)
    }
}

/// A time in a log line: `2026-11-29T20:54:44.000000000Z`.
fn stamp(time_ms: i64) -> String {
    let time = jiff::Timestamp::from_millisecond(time_ms).unwrap_or_default();
    time.strftime("%Y-%m-%dT%H:%M:%S.%9fZ").to_string()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The log lines that a pod's annotations describe: a template that is written again and again.
struct LogTemplate {
    line: String,
    every_ms: i64,
    lines_max: i64,
    begin_ms: i64,
    end_ms: Option<i64>,
    names: [(&'static str, String); 4],
}

impl LogTemplate {
    fn of(
        behaviour: &Behaviour,
        pod: &Value,
        container: &str,
        begin_ms: i64,
        end_ms: Option<i64>,
    ) -> Option<LogTemplate> {
        let mut line = behaviour.log.clone()?;
        if line.len() > TEMPLATE_BYTES_MAX {
            let end = (0..=TEMPLATE_BYTES_MAX).rev().find(|at| line.is_char_boundary(*at)).unwrap_or(0);
            line.truncate(end);
        }
        let every_ms = match behaviour.log_every {
            Span::Millis(millis) => millis.max(1),
            Span::Forever => i64::MAX,
        };
        let lines_max = behaviour.log_lines.map_or(i64::MAX, |lines| i64::try_from(lines).unwrap_or(i64::MAX));
        let names = [
            ("{pod}", text(&pod["metadata"]["name"]).to_owned()),
            ("{namespace}", text(&pod["metadata"]["namespace"]).to_owned()),
            ("{container}", container.to_owned()),
            ("{node}", text(&pod["spec"]["nodeName"]).to_owned()),
        ];
        Some(LogTemplate { line, every_ms, lines_max, begin_ms, end_ms, names })
    }

    fn time_ms(&self, number: i64) -> i64 {
        self.begin_ms.saturating_add(number.saturating_mul(self.every_ms))
    }

    fn line(&self, number: i64) -> LogLine {
        let time_ms = self.time_ms(number);
        let mut line = self.line.replace("{n}", &(number + 1).to_string()).replace("{time}", &stamp(time_ms));
        for (name, value) in &self.names {
            line = line.replace(name, value);
        }
        line.push('\n');
        LogLine { time_ms, is_error: false, bytes: line.into_bytes() }
    }

    /// How many lines the template has written up to now, or up to the end of the container.
    fn count(&self) -> i64 {
        let until = self.end_ms.unwrap_or_else(now_ms).saturating_sub(self.begin_ms);
        if until < 0 { 0 } else { (until / self.every_ms).saturating_add(1).min(self.lines_max) }
    }
}

/// Answers a request for a container's log.
pub async fn answer(
    containers: &Containers,
    told: &BehaviourSettings,
    pod: &Value,
    target: &ContainerTarget,
    options: LogOptions,
) -> KubeletResponse {
    let name = &target.container;
    let Some(spec) = environment::container(pod, name) else {
        let why = format!("container {name:?} not found in pod {:?}", target.pod);
        return fault(StatusCode::NOT_FOUND, &why);
    };
    let bad = |why: String| fault(StatusCode::BAD_REQUEST, &why);
    let status = status(pod, name);
    let (state, last) = (&status["state"], &status["lastState"]["terminated"]);
    let is_previous = options.previous || state["waiting"].is_object() && last.is_object();
    let shown = format!("container {name:?} in pod {:?}", target.pod);
    let (begin, end) = match () {
        () if is_previous && last.is_object() => (&last["startedAt"], Some(&last["finishedAt"])),
        () if options.previous => {
            return bad(format!("previous terminated container {name:?} in pod {:?} not found", target.pod));
        }
        () if state["running"].is_object() => (&state["running"]["startedAt"], None),
        () if state["terminated"].is_object() => {
            (&state["terminated"]["startedAt"], Some(&state["terminated"]["finishedAt"]))
        }
        () if state["waiting"].is_object() => {
            return bad(format!("{shown} is waiting to start: {}", text(&state["waiting"]["reason"])));
        }
        () => return bad(format!("{shown} is not available")),
    };
    let Some(begin_ms) = time_ms(begin) else { return bad(format!("{shown} is not available")) };
    // Times in a status are whole seconds, so the container may have ended up to 999 ms after the written time.
    let end_ms = end.map(|end| time_ms(end).unwrap_or(begin_ms).saturating_add(999));
    let (to, pieces) = mpsc::channel(PIECES_MAX);
    let LogOptions { timestamps, limit: left, only_errors, .. } = options;
    let writer = LogWriter { to, timestamps, left, only_errors };
    let behaviour = Behaviour::of(name, told, &BehaviourSettings::of(pod));
    if let Some(template) = LogTemplate::of(&behaviour, pod, name, begin_ms, end_ms) {
        // A request that follows the log ends when the container ends.
        let look = match template.end_ms {
            None if options.follow => containers.acquire(pod, spec).await.ok(),
            _ => None,
        };
        tokio::spawn(write_template(writer, template, options, look));
    } else if let Some(end_ms) = end_ms {
        let count = status["restartCount"].as_i64().unwrap_or(0);
        let is_older = is_previous && !state["waiting"].is_object();
        let lines = match containers.ended_run(pod, name, if is_older { count - 1 } else { count }) {
            Some(look) => all_lines(&look.0, begin_ms),
            None => match containers.past(pod, spec, begin_ms, end_ms).await {
                Ok(past) => all_lines(&past, begin_ms),
                Err(why) => return fault(StatusCode::INTERNAL_SERVER_ERROR, &why),
            },
        };
        tokio::spawn(async move {
            let mut writer = writer;
            writer.write(options.chosen(lines)).await
        });
    } else {
        match containers.acquire(pod, spec).await {
            Ok(look) => _ = tokio::spawn(write_log(writer, look, begin_ms, options)),
            Err(why) => return fault(StatusCode::INTERNAL_SERVER_ERROR, &why),
        }
    }
    stream(futures_util::stream::unfold(pieces, async |mut pieces| pieces.recv().await.map(|piece| (piece, pieces))))
}

/// A log line which says that no program ran in the container.
fn note(container: &crate::containers::ContainerRun, unknown: Option<&str>, begin_ms: i64) -> LogLine {
    let image = text(&container.spec["image"]);
    let what = match unknown {
        Some(program) => format!("the program {program:?} of image {image:?}"),
        None => format!("what image {image:?} starts"),
    };
    let line = format!("simulated by Holdfast: no container runs here, and {what} is not run\n");
    LogLine { time_ms: begin_ms, is_error: true, bytes: line.into_bytes() }
}

/// All lines of a container's log. If no program ran, an additional line says so.
fn all_lines(container: &crate::containers::ContainerRun, begin_ms: i64) -> Vec<LogLine> {
    let state = container.lock();
    let mut lines = state.journal.since(0).0;
    if !state.runs || state.unknown.is_some() {
        lines.push(note(container, state.unknown.as_deref(), begin_ms));
    }
    lines
}

async fn write_log(mut writer: LogWriter, look: ContainerUse, begin_ms: i64, options: LogOptions) {
    let container = &look.0;
    let mut happened = container.follow();
    let mut next = container.lock().journal.since(0).1;
    if !writer.write(options.chosen(all_lines(container, begin_ms))).await || !options.follow {
        return;
    }
    loop {
        let (lines, ended) = {
            let state = container.lock();
            let (lines, after) = state.journal.since(next);
            next = after;
            (lines, state.ended.is_some())
        };
        if !lines.is_empty() && !writer.write(lines).await || ended {
            return;
        }
        tokio::select! {
            told = happened.changed() => if told.is_err() { return },
            // The reader has ended the request.
            () = writer.to.closed() => return,
        }
    }
}

async fn write_template(mut writer: LogWriter, template: LogTemplate, options: LogOptions, look: Option<ContainerUse>) {
    let count = template.count();
    let first = match (options.tail, options.since_ms) {
        (Some(tail), _) => count.saturating_sub(i64::try_from(tail).unwrap_or(i64::MAX)),
        (None, Some(since)) => (since.saturating_sub(template.begin_ms) / template.every_ms).clamp(0, count),
        (None, None) => 0,
    };
    // If the log has more lines than one request may get, only the newest lines are sent.
    let mut next = first.max(count.saturating_sub(TEMPLATE_LINES_MAX)).max(0);
    while next < count {
        let until = count.min(next + 256);
        let lines = (next..until).map(|number| template.line(number));
        if !writer.write(lines.filter(|line| options.since_ms.is_none_or(|since| line.time_ms >= since))).await {
            return;
        }
        next = until;
    }
    let Some(look) = look else { return };
    let mut happened = look.0.follow();
    while look.0.lock().ended.is_none() {
        let wait = template.time_ms(next).saturating_sub(now_ms()).max(0);
        let wait = if next >= template.lines_max { i64::MAX } else { wait };
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(u64::try_from(wait).unwrap_or(0).min(86_400_000))) => {}
            told = happened.changed() => if told.is_err() { return },
            () = writer.to.closed() => return,
        }
        let count = template.count().min(next + 1000);
        if next < count && !writer.write((next..count).map(|number| template.line(number))).await {
            return;
        }
        next = next.max(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    #[test]
    fn options_are_read() {
        let of = |query: &str| LogOptions::of(&Query::of(Some(query)));
        let options = of("follow=true&tailLines=5&timestamps=true&limitBytes=10").expect("options");
        assert!(options.follow && options.timestamps && options.tail == Some(5) && options.limit == Some(10));
        assert_eq!(of("stream=Stderr").expect("options").only_errors, Some(true));
        assert_eq!(of("stream=All&tailLines=1").expect("options").only_errors, None);
        for (query, code) in [
            ("tailLines=-1", 422),
            ("limitBytes=0", 422),
            ("tailLines=x", 400),
            ("sinceSeconds=0", 422),
            ("stream=stdout", 422),
            ("stream=Stdout&tailLines=1", 422),
        ] {
            assert_eq!(of(query).map(|_| 200).unwrap_or_else(|(code, _)| code.as_u16()), code, "{query}");
        }
    }

    #[tokio::test]
    async fn a_template_without_end_is_an_answer_with_an_end() {
        let behaviour = Behaviour { log: Some("{n}".into()), log_every: Span::Millis(1), ..Behaviour::default() };
        // The template has written one line each millisecond since 1970, which is more than one request may get.
        let template = LogTemplate::of(&behaviour, &Value::Null, "c", 0, None).expect("a template");
        let (to, mut pieces) = mpsc::channel(PIECES_MAX);
        let writer = LogWriter { to, timestamps: false, left: None, only_errors: None };
        let writing = tokio::spawn(write_template(writer, template, LogOptions::default(), None));
        let mut lines = 0;
        while let Some(piece) = pieces.recv().await {
            lines += piece.iter().filter(|byte| **byte == b'\n').count();
        }
        writing.await.expect("no panic");
        assert_eq!(i64::try_from(lines), Ok(TEMPLATE_LINES_MAX));
    }

    #[test]
    fn lines_are_made_of_templates() {
        let behaviour = Behaviour { log: Some("{n} {pod} {time}".into()), log_lines: Some(3), ..Behaviour::default() };
        let pod = json!({"metadata": {"name": "p"}});
        let template = LogTemplate::of(&behaviour, &pod, "c", 1000, Some(60_000)).expect("a template");
        assert_eq!(template.count(), 3);
        assert_eq!(template.line(1).bytes, b"2 p 1970-01-01T00:00:02.000000000Z\n");
    }
}
