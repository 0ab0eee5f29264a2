//! One test for each option: its effect on the lines, on standard error and in files.

use super::*;
use clap::Parser;
use std::path::Path;

#[derive(Parser)]
#[command(args_override_self = true)]
struct Cli {
    #[command(flatten)]
    logging: LoggingArgs,
}

fn parse(options: &[&str]) -> Result<LoggingArgs, String> {
    let arguments = ["holdfast"].iter().chain(options);
    Cli::try_parse_from(arguments).map(|cli| cli.logging).map_err(|error| error.to_string())
}

#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl Captured {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Logs what `work` logs with these options, and returns the text on standard error.
fn logged(options: &[&str], work: impl FnOnce()) -> String {
    let stderr = Captured::default();
    let (logger, guard) = build(&parse(options).unwrap(), Box::new(stderr.clone())).unwrap();
    tracing::subscriber::with_default(logger, work);
    drop(guard);
    stderr.text()
}

/// The messages of log lines, without the headers of the lines.
fn messages(lines: &str) -> Vec<&str> {
    lines.lines().filter_map(|line| line.split_once("] ")).map(|(_, message)| message).collect()
}

fn one_of_each() {
    tracing::info!("info");
    tracing::warn!("warning");
    tracing::error!("error");
    tracing::debug!("debug");
    tracing::trace!("trace");
    tracing::debug!(target: "h2", "library debug");
    tracing::trace!(target: "h2", "library trace");
}

fn files_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let regular = entries.filter(|entry| entry.file_type().unwrap().is_file());
    let mut names: Vec<String> = regular.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn the_level_decides_what_appears() {
    let always = ["info", "warning", "error"];
    for (option, more) in [
        ("-v=-1", vec![]),
        ("-v0", vec![]),
        ("-v=3", vec![]),
        ("--v=4", vec!["debug"]),
        ("-v5", vec!["debug"]),
        ("-v=6", vec!["debug", "trace"]),
        ("--v=8", vec!["debug", "trace", "library debug"]),
        ("--v=10", vec!["debug", "trace", "library debug", "library trace"]),
    ] {
        let expected: Vec<&str> = always.into_iter().chain(more).collect();
        assert_eq!(messages(&logged(&[option], one_of_each)), expected, "{option}");
    }
}

#[test]
fn vmodule_raises_the_level_of_files_it_names() {
    let always = vec!["info", "warning", "error"];
    let debug = vec!["info", "warning", "error", "debug"];
    for (options, expected) in [
        (vec!["--vmodule=tests=4"], &debug),
        (vec!["--vmodule=te*=5,x=1"], &debug),
        (vec!["--vmodule=other=9"], &always),
        (vec!["-v=4", "--vmodule=tests=1"], &debug),
    ] {
        assert_eq!(messages(&logged(&options, one_of_each)), *expected, "{options:?}");
    }
}

/// The arguments of a line that is not written are not computed, because the filter reports its highest level to
/// `tracing`.
#[test]
fn what_does_not_appear_is_not_computed() {
    fn costly(calls: &std::cell::Cell<u32>) -> u32 {
        calls.set(calls.get() + 1);
        calls.get()
    }
    let calls = std::cell::Cell::new(0);
    logged(&["--v=3"], || tracing::debug!(cost = costly(&calls), "debug"));
    assert_eq!(calls.get(), 0);
    let shown = logged(&["--v=4"], || tracing::debug!(cost = costly(&calls), "debug"));
    assert_eq!(messages(&shown), ["debug cost=1"]);
    for (options, expected) in [
        (vec![], LevelFilter::INFO),
        (vec!["-v4"], LevelFilter::DEBUG),
        (vec!["-v6"], LevelFilter::TRACE),
        (vec!["--vmodule=a=4,b=7"], LevelFilter::TRACE),
    ] {
        let (logger, _guard) = build(&parse(&options).unwrap(), Box::new(std::io::sink())).unwrap();
        assert_eq!(logger.max_level_hint(), Some(expected), "{options:?}");
    }
}

#[test]
fn headers_show_the_directory_or_nothing() {
    let work = || tracing::info!(name = "a b", count = 2, ok = true, "said");
    assert!(logged(&[], work).contains(" tests.rs:"));
    assert!(logged(&["--add-dir-header"], work).contains(" logging/tests.rs:"));
    assert!(logged(&["--add-dir-header=false"], work).contains(" tests.rs:"));
    assert_eq!(logged(&["--skip-headers"], work), "said name=\"a b\" count=2 ok=true\n");
}

#[test]
fn a_trace_of_the_stack_follows_the_line_that_is_asked_for() {
    let line = line!() + 1;
    let work = || tracing::info!("here");
    let here = format!("--log-backtrace-at=tests.rs:{line}");
    let with = logged(&[&here], work);
    // Without debug information an inlined function has no frame in a stack trace. `logged` has a frame, because
    // `logged` calls a function argument.
    let own_frame = "logging::tests::logged";
    assert!(with.lines().count() > 5 && with.contains(own_frame), "{with}");
    assert_eq!(logged(&["--log-backtrace-at=tests.rs:1"], work).lines().count(), 1);
    assert_eq!(logged(&["--log-backtrace-at=:0"], work).lines().count(), 1);
    let json = logged(&[&here, "--logging-format=json"], work);
    let json: holdfast_value::Value = serde_json::from_str(&json).unwrap();
    assert!(json["stacktrace"].as_str().unwrap().contains(own_frame));
}

#[test]
fn one_file_takes_every_severity_and_keeps_what_it_had() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.log");
    let file = format!("--log-file={}", path.display());
    std::fs::write(&path, "before\n").unwrap();
    let stderr = logged(&["--logtostderr=false", "--skip-log-headers", &file], one_of_each);
    assert_eq!(messages(&stderr), ["error"]);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("before\n"), "{text}");
    assert_eq!(messages(&text), ["info", "warning", "error"]);
    assert_eq!(files_in(folder.path()), ["all.log"]);
}

#[test]
fn files_are_left_alone_while_standard_error_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = format!("--log-file={}", folder.path().join("all.log").display());
    let directory = format!("--log-dir={}", folder.path().display());
    let stderr = logged(&[&file, &directory, "--stderrthreshold=FATAL"], one_of_each);
    assert_eq!(messages(&stderr), ["info", "warning", "error"]);
    assert!(files_in(folder.path()).is_empty());
}

#[test]
fn a_directory_gets_a_file_for_each_severity() {
    let folder = tempfile::tempdir().unwrap();
    let directory = format!("--log-dir={}", folder.path().display());
    logged(&["--logtostderr=false", "--skip-log-headers", &directory], one_of_each);
    let names = files_in(folder.path());
    for (name, (tag, expected)) in names.iter().zip([
        ("ERROR", vec!["error"]),
        ("INFO", vec!["info", "warning", "error"]),
        ("WARNING", vec!["warning", "error"]),
    ]) {
        let ending = format!(".{}", std::process::id());
        assert!(name.contains(&format!(".log.{tag}.")) && name.ends_with(&ending), "{name}");
        let text = std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!(messages(&text), expected, "{name}");
        let link = format!("{}.{tag}", name.split('.').next().unwrap());
        assert_eq!(std::fs::read_to_string(folder.path().join(link)).unwrap(), text);
    }
    assert_eq!(names.len(), 3);
}

#[test]
fn the_threshold_decides_what_standard_error_gets_beside_files() {
    let folder = tempfile::tempdir().unwrap();
    let directory = format!("--log-dir={}", folder.path().display());
    for (option, expected) in [
        ("--stderrthreshold=0", vec!["info", "warning", "error"]),
        ("--stderrthreshold=WARNING", vec!["warning", "error"]),
        ("--stderrthreshold=error", vec!["error"]),
        ("--stderrthreshold=3", vec![]),
        ("--alsologtostderr", vec!["info", "warning", "error"]),
        ("--alsologtostderr=false", vec!["error"]),
    ] {
        let stderr = logged(&["--logtostderr=false", &directory, option], one_of_each);
        assert_eq!(messages(&stderr), expected, "{option}");
    }
}

#[test]
fn log_files_begin_with_a_heading() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.log");
    let file = format!("--log-file={}", path.display());
    logged(&["--logtostderr=false", &file], || tracing::info!("said"));
    let text = std::fs::read_to_string(&path).unwrap();
    let starts =
        ["Log file created at: 2", "Running on machine: ", "Binary: Built with ", "Log line format: [IWEF]", "I"];
    for (line, start) in text.lines().zip(starts) {
        assert!(line.starts_with(start), "{line}");
    }
    assert_eq!(text.lines().count(), starts.len());
}

#[test]
fn a_file_that_got_too_large_starts_anew() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.log");
    let file = format!("--log-file={}", path.display());
    let long = "x".repeat(1 << 19);
    let work = || {
        for number in 0..3 {
            tracing::info!("{number} {long}");
        }
    };
    let firsts = |text: &str| messages(text).iter().map(|message| message[..1].to_owned()).collect::<Vec<_>>();
    // Two of these lines are a little more than a megabyte, so with a limit of one megabyte the file is emptied before
    // the third line.
    for (option, expected) in [
        ("--log-file-max-size=1", vec!["2"]),
        ("--log-file-max-size=2", vec!["0", "1", "2"]),
        ("--log-file-max-size=0", vec!["0", "1", "2"]),
    ] {
        _ = std::fs::remove_file(&path);
        logged(&["--logtostderr=false", "--skip-log-headers", &file, option], work);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(firsts(&text), expected, "{option}");
    }
}

#[test]
fn lines_reach_the_file_in_time_and_errors_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.log");
    let file = format!("--log-file={}", path.display());
    let start = |frequency: &str| {
        let options = ["--logtostderr=false", "--skip-log-headers", &file, frequency];
        build(&parse(&options).unwrap(), Box::new(std::io::sink())).unwrap()
    };
    let text = || std::fs::read_to_string(&path).unwrap();

    let (logger, guard) = start("--log-flush-frequency=1h");
    tracing::subscriber::with_default(logger, || {
        tracing::info!("waits");
        assert_eq!(text(), "");
        tracing::error!("hurries");
        assert_eq!(messages(&text()), ["waits", "hurries"]);
        tracing::info!("is flushed by the guard");
        assert_eq!(messages(&text()).len(), 2);
    });
    drop(guard);
    assert_eq!(messages(&text()).len(), 3);

    let (logger, _guard) = start("--log-flush-frequency=10ms");
    tracing::subscriber::with_default(logger, || tracing::info!("comes in time"));
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while messages(&text()).len() < 4 && std::time::Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(messages(&text()).last(), Some(&"comes in time"));
}

#[test]
fn json_lines_carry_the_values() {
    let line = logged(&["--logging-format=json"], || tracing::warn!(name = "a", count = 2u64, "said"));
    let line: holdfast_value::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["msg"], "said");
    assert_eq!(line["name"], "a");
    assert_eq!(line["count"], 2);
    assert_eq!(line["v"], 0);
    assert!(line["caller"].as_str().unwrap().starts_with("logging/tests.rs:"));
}

#[test]
fn records_of_the_log_crate_take_the_same_way() {
    let stderr = Captured::default();
    let (logger, _guard) = build(&parse(&["-v=4"]).unwrap(), Box::new(stderr.clone())).unwrap();
    for (level, target) in
        [(log::Level::Warn, "rustls"), (log::Level::Debug, "rustls"), (log::Level::Debug, "holdfast")]
    {
        let message = format_args!("{level} of {target}");
        let record =
            log::Record::builder().level(level).target(target).file(Some("a/b.rs")).line(Some(7)).args(message).build();
        log::Log::log(&logger, &record);
    }
    assert_eq!(messages(&stderr.text()), ["WARN of rustls", "DEBUG of holdfast"]);
    assert!(stderr.text().contains(" b.rs:7] WARN"));
}

#[test]
fn errors_show_their_causes() {
    #[derive(Debug, thiserror::Error)]
    #[error("cannot store")]
    struct Outer(#[source] std::io::Error);
    let error = Outer(std::io::Error::other("disk full"));
    let text = logged(&["--skip-headers"], || tracing::error!(error = &error as &dyn std::error::Error, "no"));
    assert_eq!(text, "no error=\"cannot store: disk full\"\n");
}

#[test]
fn wrong_values_are_refused_with_the_reason() {
    for (option, reason) in [
        ("--logtostderr=maybe", "strconv.ParseBool: parsing \"maybe\": invalid syntax"),
        ("--log-backtrace-at=nowhere", "syntax error: expect file.rs:234"),
        ("--vmodule=engine", "syntax error: expect comma-separated list of filename=N"),
        ("--stderrthreshold=LOUD", "not a severity"),
        ("--log-flush-frequency=5", "missing unit in duration"),
        ("--log-file-max-size=-1", "--log-file-max-size"),
        ("-v=x", "invalid digit"),
        ("--logging-format=xml", "possible values: text, json"),
    ] {
        let error = parse(&[option]).unwrap_err();
        assert!(error.contains(reason), "{option}: {error}");
    }
    let options = ["--logtostderr=false", "--log-file=/dev/null/x"];
    let error = build(&parse(&options).unwrap(), Box::new(std::io::sink())).err().unwrap();
    assert!(error.starts_with("cannot open /dev/null/x: "), "{error}");
}

#[test]
fn the_last_of_a_repeated_option_counts() {
    let args = parse(&["-v=2", "--v=5", "--logtostderr", "--logtostderr=0", "--log-dir="]).unwrap();
    assert_eq!((args.v, args.logtostderr, args.log_dir.as_deref()), (5, false, Some("")));
}
