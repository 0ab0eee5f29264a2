//! Logging in klog's format, with the options that all Kubernetes components share.
//!
//! [`init`] sends the events of `tracing` and of `log` through one filter and one formatter to standard error or to
//! files. Spans are not recorded, because no line shows them, and so they cost nothing.
//!
//! Debug lines of this server appear from `-v=4`, and its trace lines from `-v=6`. Libraries log every frame of HTTP/2,
//! so their debug lines appear from 8, and their trace lines from 10. Information, warnings and errors always appear.
//! `--vmodule` raises the level of single source files.

mod choices;
mod line;
mod sink;
#[cfg(test)]
mod tests;

use crate::values::{parse_bool, parse_bytes, parse_duration};
pub use choices::{Format, Modules, Severity, SourceLine};
use clap::ArgAction;
use line::{LineContent, LineFormat};
use sink::Sink;
use std::io::Write;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::{Interest, Subscriber};
use tracing::{Event, Level, Metadata, span};

#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "Logging")]
pub struct LoggingArgs {
    /// Show the directory of the source file before its name in every log line.
    #[arg(long, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    pub add_dir_header: bool,
    /// Log to standard error as well as to files.
    #[arg(long, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    pub alsologtostderr: bool,
    /// Write a stack trace when the log statement at this FILE:LINE is executed.
    #[arg(long, default_value = ":0", value_name = "FILE:LINE")]
    pub log_backtrace_at: SourceLine,
    /// Write log files to this directory; needs --logtostderr=false.
    #[arg(long, value_name = "DIR")]
    pub log_dir: Option<String>,
    /// Write all log lines to this file; needs --logtostderr=false.
    #[arg(long, value_name = "FILE")]
    pub log_file: Option<String>,
    /// Size in megabytes at which the file of --log-file is emptied and started again; 0 for no limit.
    #[arg(long, default_value_t = 1800, value_name = "MEGABYTES")]
    pub log_file_max_size: u64,
    /// Maximum time before a line is written to its file. Errors are written at once.
    #[arg(long, default_value = "5s", value_parser = parse_duration, value_name = "DURATION")]
    pub log_flush_frequency: Duration,
    /// Log to standard error instead of files.
    #[arg(long, default_value = "true", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    pub logtostderr: bool,
    /// Leave severity, time and source position out of lines.
    #[arg(long, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    pub skip_headers: bool,
    /// Leave out the header of log files.
    #[arg(long, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    pub skip_log_headers: bool,
    /// Also write lines of this severity and above to standard error: 0 to 3, or INFO, WARNING, ERROR, FATAL.
    #[arg(long, default_value = "2", value_name = "SEVERITY")]
    pub stderrthreshold: Severity,
    /// Verbosity of the log; higher numbers log more.
    #[arg(short = 'v', long = "v", default_value_t = 0, allow_negative_numbers = true, value_name = "LEVEL")]
    pub v: i32,
    /// Verbosity for single source files, by name with wildcards: `engine=4,wat*=6`.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "PATTERN=N,...")]
    pub vmodule: Modules,
    /// Write each line only to the file of its own severity; needs --logtostderr=false.
    #[arg(long, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    pub one_output: bool,
    /// For text lines: write errors to standard error, and all other lines to standard output.
    #[arg(long, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    pub log_text_split_stream: bool,
    /// Size of the buffer for standard output with --log-text-split-stream; 0 for none.
    #[arg(long, default_value = "0", value_parser = parse_bytes, value_name = "SIZE")]
    pub log_text_info_buffer_size: u64,
    /// The same as --log-text-split-stream for lines of JSON.
    #[arg(long, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    pub log_json_split_stream: bool,
    /// The same as --log-text-info-buffer-size for lines of JSON.
    #[arg(long, default_value = "0", value_parser = parse_bytes, value_name = "SIZE")]
    pub log_json_info_buffer_size: u64,
    /// Format of log lines.
    #[arg(long, default_value = "text", value_enum, value_name = "FORMAT")]
    pub logging_format: Format,
}

impl LoggingArgs {
    /// The size in bytes of the buffer of standard output, if errors are written to standard error and all other lines
    /// to standard output; otherwise `None`.
    fn split(&self) -> Option<u64> {
        let (splits, bytes) = match self.logging_format {
            Format::Text => (self.log_text_split_stream, self.log_text_info_buffer_size),
            Format::Json => (self.log_json_split_stream, self.log_json_info_buffer_size),
        };
        (splits && self.logtostderr).then_some(bytes)
    }
}

/// Starts logging with the options in `args`. A process calls this function once.
pub fn init(args: &LoggingArgs) -> Result<LogGuard, String> {
    let (logger, guard) = build(args, Box::new(std::io::stderr()))?;
    log::set_boxed_logger(Box::new(logger.clone())).map_err(|error| error.to_string())?;
    logger.0.filter.limit_libraries();
    _ = IN_USE.set(logger.clone());
    tracing::subscriber::set_global_default(logger).map_err(|error| error.to_string())?;
    Ok(guard)
}

/// The logger of this process, after [`init`].
static IN_USE: OnceLock<Logger> = OnceLock::new();

/// Changes the verbosity, which `-v` sets at the start, while the process runs.
pub fn set_verbosity(level: i32) {
    let Some(logger) = IN_USE.get() else { return };
    logger.0.filter.verbosity.store(level, Ordering::Relaxed);
    logger.0.filter.limit_libraries();
    tracing::callsite::rebuild_interest_cache();
}

fn build(args: &LoggingArgs, stderr: Box<dyn Write + Send>) -> Result<(Logger, LogGuard), String> {
    let sink = Arc::new(Mutex::new(Sink::open(args, stderr)?));
    // Standard error is not buffered: only files and a buffered standard output need a thread that flushes them.
    let unbuffered = args.logtostderr && args.split().unwrap_or(0) == 0;
    let flusher = match unbuffered || args.log_flush_frequency.is_zero() {
        true => None,
        false => Some(flush_every(args.log_flush_frequency, sink.clone())?),
    };
    let logger = Logger(Arc::new(LoggerState {
        filter: Filter { verbosity: AtomicI32::new(args.v), modules: args.vmodule.clone() },
        shape: LineFormat { format: args.logging_format, headers: !args.skip_headers, directory: args.add_dir_header },
        backtrace_at: args.log_backtrace_at.clone(),
        sink: sink.clone(),
    }));
    Ok((logger, LogGuard { sink, flusher }))
}

/// Flushes the buffers of the log when it is dropped, so the caller must keep it until the process ends.
#[must_use = "lines that are buffered get lost without it"]
pub struct LogGuard {
    sink: Arc<Mutex<Sink>>,
    flusher: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.flusher.take() {
            drop(stop);
            _ = thread.join();
        }
        lock(&self.sink).flush();
    }
}

fn flush_every(period: Duration, sink: Arc<Mutex<Sink>>) -> Result<(Sender<()>, JoinHandle<()>), String> {
    let (stop, stopped) = channel();
    let work = move || {
        while stopped.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
            lock(&sink).flush();
        }
    };
    let thread = std::thread::Builder::new().name("log-flush".into()).spawn(work);
    Ok((stop, thread.map_err(|error| format!("cannot start the thread that flushes log files: {error}"))?))
}

/// Locks the destinations of lines, even if another thread panicked while it wrote a line: the next line can still be
/// written then.
fn lock(sink: &Mutex<Sink>) -> MutexGuard<'_, Sink> {
    sink.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone)]
struct Logger(Arc<LoggerState>);

struct LoggerState {
    filter: Filter,
    shape: LineFormat,
    backtrace_at: SourceLine,
    sink: Arc<Mutex<Sink>>,
}

impl LoggerState {
    fn write(&self, origin: &Origin, fields: LineContent) {
        let backtrace = match self.backtrace_at.is(origin.file, origin.line) {
            true => Some(std::backtrace::Backtrace::force_capture().to_string()),
            false => None,
        };
        let severity = Severity::of(origin.level);
        let now = jiff::Zoned::now();
        let line = self.shape.render(origin, &now, &fields, backtrace.as_deref());
        lock(&self.sink).write(severity, line.as_bytes(), &now);
    }
}

/// Where a line comes from: its level, and its place in the source.
struct Origin<'a> {
    level: Level,
    target: &'a str,
    file: &'a str,
    line: u32,
}

impl<'a> Origin<'a> {
    /// A line whose place in the source is unknown shows `???:1` as its place.
    fn new(level: Level, target: &'a str, file: Option<&'a str>, line: Option<u32>) -> Origin<'a> {
        Origin { level, target, file: file.unwrap_or("???"), line: line.unwrap_or(1) }
    }

    /// The lowest `-v` with which lines of this origin are written; `None` if they are always written.
    fn verbosity(&self) -> Option<i32> {
        let own = self.target.starts_with("holdfast");
        match self.level {
            Level::TRACE if own => Some(6),
            Level::TRACE => Some(10),
            Level::DEBUG if own => Some(4),
            Level::DEBUG => Some(8),
            _ => None,
        }
    }
}

struct Filter {
    verbosity: AtomicI32,
    modules: Modules,
}

impl Filter {
    fn verbosity(&self) -> i32 {
        self.verbosity.load(Ordering::Relaxed)
    }

    fn shows(&self, origin: &Origin) -> bool {
        let Some(needed) = origin.verbosity() else { return true };
        self.verbosity() >= needed || self.modules.level(origin.file).is_some_and(|level| level >= needed)
    }

    /// Sets the highest level at which the crate `log` passes lines on, so that libraries skip lines that would not be
    /// written.
    fn limit_libraries(&self) {
        log::set_max_level(match self.most() {
            LevelFilter::TRACE => log::LevelFilter::Trace,
            LevelFilter::DEBUG => log::LevelFilter::Debug,
            _ => log::LevelFilter::Info,
        });
    }

    /// The highest level at which any line may be written. Lines above this level are skipped before their arguments
    /// are computed.
    fn most(&self) -> LevelFilter {
        match self.modules.highest().max(self.verbosity()) {
            6.. => LevelFilter::TRACE,
            4.. => LevelFilter::DEBUG,
            _ => LevelFilter::INFO,
        }
    }
}

fn origin_of(metadata: &Metadata<'static>) -> Origin<'static> {
    Origin::new(*metadata.level(), metadata.target(), metadata.file(), metadata.line())
}

impl Subscriber for Logger {
    /// Decides once for each place in the source whether its lines are written. After that, a line that is not written
    /// costs one atomic load.
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        match self.0.filter.shows(&origin_of(metadata)) && metadata.is_event() {
            true => Interest::always(),
            false => Interest::never(),
        }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.0.filter.most())
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let origin = Origin::new(*metadata.level(), metadata.target(), metadata.file(), metadata.line());
        metadata.is_event() && self.0.filter.shows(&origin)
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = LineContent::default();
        event.record(&mut fields);
        self.0.write(&origin_of(event.metadata()), fields);
    }

    /// `tracing` never calls this function, since no span is enabled.
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// Receives the lines of libraries that use `log` instead of `tracing`, such as the TLS library.
impl log::Log for Logger {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        self.0.filter.shows(&Origin::new(level_of(metadata.level()), metadata.target(), None, None))
    }

    fn log(&self, record: &log::Record<'_>) {
        let origin = Origin::new(level_of(record.level()), record.target(), record.file(), record.line());
        if self.0.filter.shows(&origin) {
            self.0.write(&origin, LineContent::of_message(record.args()));
        }
    }

    fn flush(&self) {
        lock(&self.0.sink).flush();
    }
}

fn level_of(level: log::Level) -> Level {
    match level {
        log::Level::Error => Level::ERROR,
        log::Level::Warn => Level::WARN,
        log::Level::Info => Level::INFO,
        log::Level::Debug => Level::DEBUG,
        log::Level::Trace => Level::TRACE,
    }
}
