//! The destinations of lines: standard error, one file, or one file for each severity.
//!
//! Files are buffered; a line of severity error is flushed at once. A line that cannot be written to a file goes to
//! standard error, because a full disk must not stop the server.

use super::LoggingArgs;
use super::choices::Severity;
use holdfast_files::file::{open_growing, open_private};
use holdfast_files::resolve::is_shared;
use jiff::Zoned;
use std::fs::File;
use std::io::{self, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};

/// The size in bytes at which a log file in a directory is followed by the next file. The option `--log-file-max-size`
/// applies only to the file of `--log-file`.
const DIRECTORY_BYTES_MAX: u64 = 1800 << 20;
const BUFFER_BYTES: usize = 256 << 10;
/// The largest buffer of standard output, in bytes.
const GATHERED_MAX: usize = 64 << 20;

pub struct Sink {
    stderr: Box<dyn Write + Send>,
    /// Lines of this severity and above are also written to standard error. Without files, all lines are written there.
    threshold: Severity,
    /// The buffered standard output. It gets all lines but errors, if the options split the lines between standard
    /// output and standard error.
    split: Option<BufWriter<Box<dyn Write + Send>>>,
    files: Option<LogFiles>,
}

impl Sink {
    pub fn open(args: &LoggingArgs, stderr: Box<dyn Write + Send>) -> Result<Sink, String> {
        let threshold = if args.alsologtostderr { Severity::Info } else { args.stderrthreshold };
        if args.logtostderr {
            let buffer = |bytes: u64| usize::try_from(bytes).unwrap_or(GATHERED_MAX).min(GATHERED_MAX);
            let stdout = || -> Box<dyn Write + Send> { Box::new(io::stdout()) };
            let split = args.split().map(|bytes| BufWriter::with_capacity(buffer(bytes), stdout()));
            return Ok(Sink { stderr, threshold, split, files: None });
        }
        let single = args.log_file.as_deref().filter(|path| !path.is_empty()).map(PathBuf::from);
        let mut files = LogFiles {
            // If the options name no folder, the system's folder for temporary files is used.
            directories: args
                .log_dir
                .iter()
                .filter(|path| !path.is_empty())
                .map(PathBuf::from)
                .chain([std::env::temp_dir()])
                .collect(),
            bytes_max: match (&single, args.log_file_max_size) {
                (None, _) => DIRECTORY_BYTES_MAX,
                (Some(_), 0) => u64::MAX,
                (Some(_), megabytes) => megabytes.saturating_mul(1 << 20),
            },
            single,
            heading: !args.skip_log_headers,
            one: args.one_output,
            open: [const { None }; 4],
        };
        // The file is opened at once, so that an unwritable path is reported before the server starts.
        files.open(Severity::Info, &Zoned::now(), true)?;
        Ok(Sink { stderr, threshold, split: None, files: Some(files) })
    }

    pub fn write(&mut self, severity: Severity, line: &[u8], now: &Zoned) {
        let Some(files) = &mut self.files else {
            match &mut self.split {
                Some(stdout) if severity < Severity::Error => _ = stdout.write_all(line),
                _ => _ = self.stderr.write_all(line),
            }
            return;
        };
        let written = files.write(severity, line, now);
        if severity >= self.threshold || written.is_err() {
            _ = self.stderr.write_all(line);
        }
        if let Err(error) = written {
            _ = writeln!(self.stderr, "log: {error}");
        }
    }

    pub fn flush(&mut self) {
        let open = self.files.iter_mut().flat_map(|files| &mut files.open).flatten();
        for file in open {
            _ = file.writer.flush();
        }
        if let Some(stdout) = &mut self.split {
            _ = stdout.flush();
        }
        _ = self.stderr.flush();
    }
}

struct LogFiles {
    /// The one file for all severities; `None` if there are several files. Several files are made in the first folder
    /// of `directories` that can be written to.
    single: Option<PathBuf>,
    directories: Vec<PathBuf>,
    bytes_max: u64,
    heading: bool,
    /// Whether a line is written only to the file of its own severity.
    one: bool,
    /// The open files by severity. A single file for all severities is in the slot of the severity information.
    open: [Option<Open>; 4],
}

struct Open {
    writer: BufWriter<File>,
    bytes: u64,
}

impl LogFiles {
    /// Writes to the file of the severity and to the files of all lower severities, so that each file is complete.
    fn write(&mut self, severity: Severity, line: &[u8], now: &Zoned) -> Result<(), String> {
        let (of_single, one) = (self.single.is_some(), self.one);
        let takes = |each: &Severity| match (of_single, one) {
            (true, _) => *each == Severity::Info,
            (false, true) => *each == severity,
            (false, false) => *each <= severity,
        };
        for each in Severity::ALL.into_iter().filter(takes) {
            match &self.open[each as usize] {
                None => self.open(each, now, true)?,
                Some(file) if file.bytes + line.len() as u64 >= self.bytes_max => self.open(each, now, false)?,
                Some(_) => (),
            }
            let Some(file) = &mut self.open[each as usize] else { continue };
            file.bytes += line.len() as u64;
            let written = file.writer.write_all(line);
            let written =
                if severity >= Severity::Error { written.and_then(|()| file.writer.flush()) } else { written };
            written.map_err(|error| format!("cannot write the log file of severity {}: {error}", each.name()))?;
        }
        Ok(())
    }

    /// Opens a new file for a severity. With `first`, the lines of an earlier process in an existing file are kept.
    /// Without `first`, an existing file is emptied.
    fn open(&mut self, severity: Severity, now: &Zoned, first: bool) -> Result<(), String> {
        if let Some(mut file) = self.open[severity as usize].take() {
            _ = file.writer.flush();
        }
        let file = match &self.single {
            Some(path) => {
                open_growing(path, first).map_err(|error| format!("cannot open {}: {error}", path.display()))?
            }
            None => self.create_in_directory(severity, now, first)?,
        };
        let bytes = file.metadata().map_or(0, |metadata| metadata.len());
        let mut file = Open { writer: BufWriter::with_capacity(BUFFER_BYTES, file), bytes };
        if self.heading {
            let heading = format!(
                "Log file created at: {}\nRunning on machine: {}\nBinary: Built with rustc for {}/{}\n\
                 Log line format: [IWEF]mmdd hh:mm:ss.uuuuuu threadid file:line] msg\n",
                now.strftime("%Y/%m/%d %H:%M:%S"),
                host(),
                std::env::consts::OS,
                std::env::consts::ARCH,
            );
            file.bytes += heading.len() as u64;
            file.writer.write_all(heading.as_bytes()).map_err(|error| format!("cannot write a log file: {error}"))?;
        }
        self.open[severity as usize] = Some(file);
        Ok(())
    }

    fn create_in_directory(&self, severity: Severity, now: &Zoned, first: bool) -> Result<File, String> {
        let program = program();
        let name = format!(
            "{program}.{}.{}.log.{}.{}.{}",
            host(),
            user(),
            severity.name(),
            now.strftime("%Y%m%d-%H%M%S"),
            std::process::id()
        );
        let mut errors = Vec::new();
        for directory in &self.directories {
            // In a folder where all users may make files, the name must not be predictable.
            let is_shared = is_shared(directory);
            let path = match is_shared {
                true => directory.join(format!("{name}.{:08x}", rand::random::<u32>())),
                false => directory.join(&name),
            };
            if !first {
                // A second file that is made within one second has the same name, so it replaces the older file.
                _ = std::fs::remove_file(&path);
            }
            match create(&path) {
                Ok(file) if is_shared => return Ok(file),
                Ok(file) => {
                    link(&name, &directory.join(format!("{program}.{}", severity.name())));
                    return Ok(file);
                }
                Err(error) => errors.push(format!("{}: {error}", directory.display())),
            }
        }
        Err(format!("cannot create a log file in {}", errors.join(", ")))
    }
}

/// Makes a file in a directory that other users may also write to. An existing file of an earlier process is continued;
/// a file of another user is refused.
fn create(path: &Path) -> io::Result<File> {
    match open_private(path, true) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let mut file = open_private(path, false)?;
            file.seek(io::SeekFrom::End(0))?;
            Ok(file)
        }
        made => made,
    }
}

/// Makes a link with a constant name to the newest file. A failure is ignored, since nothing is lost without the link.
fn link(name: &str, at: &Path) {
    _ = std::fs::remove_file(at);
    #[cfg(unix)]
    {
        _ = std::os::unix::fs::symlink(name, at);
    }
    #[cfg(not(unix))]
    let _ = name;
}

fn program() -> String {
    let path = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    path.file_name().map_or_else(|| "holdfast".into(), |name| name.to_string_lossy().into_owned())
}

/// The name of the machine without its domain.
fn host() -> String {
    let known =
        std::fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| std::fs::read_to_string("/etc/hostname"));
    let name = known.unwrap_or_default();
    match name.trim().split('.').next() {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => "unknownhost".into(),
    }
}

fn user() -> String {
    let name = std::env::var("USER").ok().filter(|name| !name.is_empty()).or_else(user_by_number);
    name.map_or_else(|| "unknownuser".into(), |name| name.replace(['\\', '/'], "_"))
}

/// The user by number, since containers often have no `USER`.
fn user_by_number() -> Option<String> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let number = std::fs::metadata("/proc/self").ok()?.uid().to_string();
        let users = std::fs::read_to_string("/etc/passwd").ok()?;
        let line = users.lines().find(|line| line.split(':').nth(2) == Some(&number))?;
        line.split(':').next().map(str::to_owned)
    }
    #[cfg(not(unix))]
    None
}
