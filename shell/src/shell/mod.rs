//! One process: a shell, or a program that one has begun: its state, signals, waiting and variables. `open` is what it
//! reads from and writes to, `lists` goes through scripts, `run` through one command.

mod lists;
mod open;
mod run;

use crate::files::absolute;
use crate::machine::{MAIN, Pid, Setup, Shared, Signal, code_of};
use crate::pipe::{Reader, Writer};
use crate::syntax::Command;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;

/// How deep functions, substitutions and commands may run in each other.
const DEPTH_MAX: u32 = 24;
/// How many bytes the variables of a shell may have.
const VARIABLES_BYTES_MAX: usize = 256 << 10;
/// How much a command's output may be that a word is made of, and a file that is read whole.
pub const WHOLE_BYTES_MAX: usize = 512 << 10;
/// How many bytes are read at once.
const CHUNK_BYTES: usize = 8 << 10;

/// Why a command is not followed by the next one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    Exit(i32),
    Killed(Signal),
    Break(u32),
    Continue(u32),
    Return,
}

pub type Done<T> = Result<T, Stop>;
pub type Later<'a, T> = Pin<Box<dyn Future<Output = Done<T>> + Send + 'a>>;

/// Where input comes from.
pub enum Input {
    Nothing,
    Reader(Reader),
}

/// What a number of an open file stands for.
#[derive(Debug, Clone)]
pub enum Open {
    Nothing,
    Content(Arc<Mutex<(Arc<Vec<u8>>, usize)>>),
    Reader(Reader),
    Writer(Writer),
    /// Written at its end.
    File(String),
}

#[derive(Debug, Clone)]
pub struct Variable {
    pub value: String,
    pub is_exported: bool,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    pub ends_at_error: bool,
    pub needs_values: bool,
    pub shows_commands: bool,
    pub whole_pipes: bool,
    pub no_patterns: bool,
}

#[derive(Clone)]
pub struct Shell {
    pub shared: Shared,
    pub pid: Pid,
    pub variables: BTreeMap<String, Variable>,
    variable_bytes: usize,
    functions: BTreeMap<String, Arc<Command>>,
    pub name: String,
    pub arguments: Vec<String>,
    pub folder: String,
    pub status: i32,
    pub open: BTreeMap<u8, Open>,
    pub options: Options,
    pub traps: BTreeMap<String, String>,
    /// Signals whose traps are to run.
    caught: Vec<Signal>,
    /// Where an error ends nothing: in conditions.
    tested: u32,
    pub depth: u32,
    pub background: Vec<Pid>,
    pub last_background: Pid,
    is_terminal: bool,
    is_interactive: bool,
    pub hostname: Arc<str>,
    pub user: u32,
    pub group: u32,
    /// Variables that functions have hidden, to be put back.
    hidden: Vec<Vec<(String, Option<Variable>)>>,
}

impl Shell {
    pub fn new(
        shared: Shared,
        setup: &Setup,
        pid: Pid,
        input: Input,
        output: Writer,
        errors: Writer,
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
            options: Options::default(),
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
            // What a container is given may be more than a script may make.
            shell.variables.insert(name.clone(), Variable { value: value.clone(), is_exported: true });
        }
        shell
    }

    /// Runs one command to its end, as a container's or as one that is executed in it.
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

    /// What a process does when it ends.
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

    /// Counts steps, waits for its turn, and sees whether the process is to end.
    pub async fn step(&mut self, count: u64) -> Done<()> {
        let shared = self.shared.clone();
        poll_fn(|_| if shared.step(count) { Poll::Ready(()) } else { Poll::Pending }).await;
        self.heed()
    }

    /// Takes signals: those with a trap wait for the end of the command, others end the process.
    fn heed(&mut self) -> Done<()> {
        let signals = {
            let mut system = self.shared.lock();
            system.processes.get_mut(&self.pid).map(|process| std::mem::take(&mut process.signals)).unwrap_or_default()
        };
        for signal in signals {
            match self.traps.get(signal.name()) {
                Some(_) if signal != Signal::Kill => self.caught.push(signal),
                // The system protects the first process of a container.
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

    async fn run_traps(&mut self) -> Done<()> {
        while let Some(signal) = (!self.caught.is_empty()).then(|| self.caught.remove(0)) {
            if let Some(action) = self.traps.get(signal.name()).cloned() {
                let status = self.status;
                self.text(&action).await?;
                self.status = status;
            }
        }
        Ok(())
    }

    /// Waits until `found` gives something, or a signal comes.
    pub async fn wait_for<T>(&mut self, mut found: impl FnMut(&Shell) -> Option<T> + Send) -> Done<Option<T>> {
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
            // Something happened: others may go on, too.
            self.step(1).await?;
            // A signal that changes nothing wakes nobody.
            if got.is_some() || !self.caught.is_empty() {
                return Ok(got);
            }
        }
    }

    /// Sleeps; says whether it slept to the end.
    pub async fn sleep_until(&mut self, time_ms: i64) -> Done<bool> {
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

    /// Waits for the end of a process that this one has begun.
    pub async fn wait_child(&mut self, pid: Pid) -> Done<i32> {
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

    pub async fn set(&mut self, name: &str, value: String) -> Done<()> {
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

    /// Hides a variable until the function ends; nothing outside of one.
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
