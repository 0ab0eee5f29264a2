//! One process, which is a shell or a program that a shell has started: its state, signals, waiting and variables. The
//! module `open` has its input and output, `lists` runs scripts, and `run` runs single commands.

mod lists;
mod open;
mod run;

use crate::files::absolute;
use crate::pipe::{PipeReader, PipeWriter};
use crate::syntax::Command;
use crate::system::{MAIN, Pid, Setup, SharedSystem, Signal};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;

/// The maximum depth of functions, substitutions and commands within each other.
const DEPTH_MAX: u32 = 24;
/// The maximum number of bytes of a shell's variables.
const VARIABLES_BYTES_MAX: usize = 256 << 10;
/// The maximum number of bytes of the output of a command substitution, and of a file that is read as a whole.
pub const WHOLE_BYTES_MAX: usize = 512 << 10;
/// How many bytes a command reads at once.
const CHUNK_BYTES: usize = 8 << 10;

/// The reason why the next command of a script does not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    Exit(i32),
    Killed(Signal),
    Break(u32),
    Continue(u32),
    Return,
}

/// The exit code of a process that ends for this reason.
pub fn code_of(stop: &Stop) -> i32 {
    match stop {
        Stop::Exit(code) => *code,
        Stop::Killed(signal) => 128 + *signal as i32,
        Stop::Break(_) | Stop::Continue(_) | Stop::Return => 0,
    }
}

pub type ShellResult<T> = Result<T, Stop>;
pub type ShellFuture<'a, T> = Pin<Box<dyn Future<Output = ShellResult<T>> + Send + 'a>>;

/// Where the input of a new process comes from.
pub enum Input {
    Nothing,
    Reader(PipeReader),
}

/// What an open file number of a process stands for.
#[derive(Debug, Clone)]
pub enum Open {
    Nothing,
    Content(Arc<Mutex<(Arc<Vec<u8>>, usize)>>),
    Reader(PipeReader),
    Writer(PipeWriter),
    /// A file at this path. Everything that is written is appended to the file.
    File(String),
}

#[derive(Debug, Clone)]
pub struct Variable {
    pub value: String,
    pub is_exported: bool,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct ShellOptions {
    pub ends_at_error: bool,
    pub needs_values: bool,
    pub shows_commands: bool,
    pub whole_pipes: bool,
    pub no_patterns: bool,
}

#[derive(Clone)]
pub struct Shell {
    pub shared: SharedSystem,
    pub pid: Pid,
    pub variables: BTreeMap<String, Variable>,
    variable_bytes: usize,
    functions: BTreeMap<String, Arc<Command>>,
    pub name: String,
    pub arguments: Vec<String>,
    pub folder: String,
    pub status: i32,
    pub open: BTreeMap<u8, Open>,
    pub options: ShellOptions,
    pub traps: BTreeMap<String, String>,
    /// Signals that have arrived and whose traps still have to run.
    caught: Vec<Signal>,
    /// How many conditions contain the present command. In a condition, `set -e` has no effect.
    tested: u32,
    pub depth: u32,
    pub background: Vec<Pid>,
    pub last_background: Pid,
    is_terminal: bool,
    is_interactive: bool,
    pub hostname: Arc<str>,
    pub user: u32,
    pub group: u32,
    /// For each running function, the outer values of the variables that it has made local. They are restored when the
    /// function ends.
    hidden: Vec<Vec<(String, Option<Variable>)>>,
}

impl Shell {
    pub fn new(
        shared: SharedSystem,
        setup: &Setup,
        pid: Pid,
        input: Input,
        output: PipeWriter,
        errors: PipeWriter,
        is_terminal: bool,
    ) -> Shell {
        if pid == MAIN {
            shared.lock().log = Some((output.clone(), errors.clone()));
        }
        let input = match input {
            Input::Nothing => Open::Nothing,
            Input::Reader(reader) => Open::Reader(reader),
        };
        let open = BTreeMap::from([(0, input), (1, Open::Writer(output)), (2, Open::Writer(errors))]);
        let mut shell = Shell {
            shared,
            pid,
            variables: BTreeMap::new(),
            variable_bytes: 0,
            functions: BTreeMap::new(),
            name: "sh".into(),
            arguments: Vec::new(),
            folder: absolute("/", &setup.folder),
            status: 0,
            open,
            options: ShellOptions::default(),
            traps: BTreeMap::new(),
            caught: Vec::new(),
            tested: 0,
            depth: 0,
            background: Vec::new(),
            last_background: 0,
            is_terminal,
            is_interactive: false,
            hostname: setup.hostname.as_str().into(),
            user: setup.user,
            group: setup.group,
            hidden: Vec::new(),
        };
        for (name, value) in &setup.environment {
            // The variables of the container are not limited, because its environment may exceed the limit for scripts.
            shell.variables.insert(name.clone(), Variable { value: value.clone(), is_exported: true });
        }
        shell
    }

    /// Runs one command to its end: the container's own command, or a command that is executed in the container.
    pub async fn command(mut self, words: Vec<String>) -> i32 {
        let done = self.invoke(words).await;
        let done = match done {
            Ok(()) => Ok(()),
            Err(stop) => {
                self.status = code_of(&stop);
                Err(stop)
            }
        };
        if !matches!(done, Err(Stop::Killed(_))) {
            self.at_exit().await;
        }
        self.status
    }

    /// Runs the command of the trap EXIT, if there is one.
    async fn at_exit(&mut self) {
        if let Some(action) = self.traps.remove("EXIT") {
            let status = self.status;
            match self.text(&action).await {
                Err(stop @ Stop::Exit(_)) => self.status = code_of(&stop),
                _ => self.status = status,
            }
        }
    }

    // ---- Steps, signals and waiting ----

    /// Counts steps, waits until the process has its turn, and handles signals.
    pub async fn step(&mut self, count: u64) -> ShellResult<()> {
        let shared = self.shared.clone();
        poll_fn(|_| if shared.step(count) { Poll::Ready(()) } else { Poll::Pending }).await;
        self.heed()
    }

    /// Handles the signals that have arrived. A signal with a trap waits for the end of the command; all other signals
    /// end the process.
    fn heed(&mut self) -> ShellResult<()> {
        let signals = {
            let mut system = self.shared.lock();
            system.processes.get_mut(&self.pid).map(|process| std::mem::take(&mut process.signals)).unwrap_or_default()
        };
        for signal in signals {
            match self.traps.get(signal.name()) {
                Some(_) if signal != Signal::Kill => self.caught.push(signal),
                // As in Linux, signals without a trap do not end the first process of a container.
                _ if self.pid == MAIN => {}
                _ if self.is_interactive && signal != Signal::Kill && signal != Signal::Int => {}
                _ => return Err(Stop::Killed(signal)),
            }
        }
        Ok(())
    }

    fn has_signals(&self) -> bool {
        !self.caught.is_empty()
            || self.shared.lock().processes.get(&self.pid).is_some_and(|process| !process.signals.is_empty())
    }

    async fn run_traps(&mut self) -> ShellResult<()> {
        while let Some(signal) = (!self.caught.is_empty()).then(|| self.caught.remove(0)) {
            if let Some(action) = self.traps.get(signal.name()).cloned() {
                let status = self.status;
                self.text(&action).await?;
                self.status = status;
            }
        }
        Ok(())
    }

    /// Waits until `found` returns a value, or a signal arrives.
    pub async fn wait_for<T>(&mut self, mut found: impl FnMut(&Shell) -> Option<T> + Send) -> ShellResult<Option<T>> {
        loop {
            let got = {
                let (shell, found) = (&*self, &mut found);
                poll_fn(move |_| match found(shell) {
                    Some(got) => Poll::Ready(Some(got)),
                    None if shell.has_signals() => Poll::Ready(None),
                    None => Poll::Pending,
                })
                .await
            };
            // After the wait, other processes get their turn first.
            self.step(1).await?;
            // If the signal is ignored, the wait goes on.
            if got.is_some() || !self.caught.is_empty() {
                return Ok(got);
            }
        }
    }

    /// Sleeps until `time_ms`. Returns false if a signal has ended the sleep.
    pub async fn sleep_until(&mut self, time_ms: i64) -> ShellResult<bool> {
        let woken = self.wait_for(|shell| {
            let has_come = shell.shared.lock().now_ms >= time_ms;
            if !has_come {
                shell.shared.wakes_at(time_ms);
            }
            has_come.then_some(())
        });
        Ok(woken.await?.is_some())
    }

    pub fn now_ms(&self) -> i64 {
        self.shared.lock().now_ms
    }

    /// Waits for the end of a child process, and returns its exit code.
    pub async fn wait_child(&mut self, pid: Pid) -> ShellResult<i32> {
        loop {
            if let Some(code) = self.wait_for(|shell| shell.shared.reap(pid)).await? {
                return Ok(code);
            }
            if !self.caught.is_empty() {
                return Ok(128 + self.caught[0] as i32);
            }
        }
    }

    pub fn value(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(|variable| variable.value.as_str())
    }

    pub async fn set(&mut self, name: &str, value: String) -> ShellResult<()> {
        let old = self.variables.get(name);
        let is_exported = old.is_some_and(|old| old.is_exported);
        let before = old.map_or(0, |old| old.value.len());
        let bytes = (self.variable_bytes + value.len() + name.len()).saturating_sub(before);
        if bytes > VARIABLES_BYTES_MAX {
            self.complain("sh: variables are too long").await?;
            return Err(Stop::Exit(2));
        }
        self.variable_bytes = bytes;
        self.variables.insert(name.to_owned(), Variable { value, is_exported });
        Ok(())
    }

    pub fn unset(&mut self, name: &str) {
        if let Some(old) = self.variables.remove(name) {
            self.variable_bytes = self.variable_bytes.saturating_sub(old.value.len() + name.len());
        }
    }

    pub fn unset_function(&mut self, name: &str) {
        self.functions.remove(name);
    }

    /// Makes a variable local to the running function. Returns false if no function runs.
    pub fn hide(&mut self, name: &str) -> bool {
        let known = self.variables.get(name).cloned();
        match self.hidden.last_mut() {
            Some(hidden) => {
                hidden.push((name.to_owned(), known));
                true
            }
            None => false,
        }
    }

    pub fn has_function(&self, name: &str) -> bool {
        self.functions.contains_key(name)
    }
}
