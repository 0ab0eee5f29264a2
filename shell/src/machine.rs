//! The processes of one container and their scheduling. Each step of each process is counted, and processes run only in
//! [`Machine::run`].

use crate::files::Files;
use crate::pipe::{Found, Reader, Writer, pipe};
use crate::shell::{Input, Shell, Stop};
use crate::terminal::Terminal;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The most processes at a time.
const PROCESSES_MAX: usize = 32;
/// How many steps a process runs before the next one's turn.
const SLICE_STEPS: u64 = 200;

pub type Pid = u32;
pub type Life = Pin<Box<dyn Future<Output = i32> + Send>>;

/// The container's main process; the container ends with it.
pub const MAIN: Pid = 1;

/// The initial state of a container.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    pub files: Files,
    pub environment: BTreeMap<String, String>,
    /// The working directory.
    pub folder: String,
    pub hostname: String,
    pub user: u32,
    pub group: u32,
}

/// The signals that are known by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    Hup = 1,
    Int = 2,
    Quit = 3,
    Kill = 9,
    Usr1 = 10,
    Usr2 = 12,
    Pipe = 13,
    Alrm = 14,
    Term = 15,
}

impl Signal {
    const ALL: [(Signal, &'static str); 9] = [
        (Signal::Hup, "HUP"),
        (Signal::Int, "INT"),
        (Signal::Quit, "QUIT"),
        (Signal::Kill, "KILL"),
        (Signal::Usr1, "USR1"),
        (Signal::Usr2, "USR2"),
        (Signal::Pipe, "PIPE"),
        (Signal::Alrm, "ALRM"),
        (Signal::Term, "TERM"),
    ];

    /// Parses `TERM`, `SIGTERM` or `15`.
    pub fn parse(text: &str) -> Option<Signal> {
        let name = text.strip_prefix("SIG").unwrap_or(text);
        let is_it = |(signal, known): &&(Signal, &str)| *known == name || (*signal as i32).to_string() == text;
        Signal::ALL.iter().find(is_it).map(|(signal, _)| *signal)
    }

    pub fn name(self) -> &'static str {
        Signal::ALL.iter().find(|(signal, _)| *signal == self).map_or("", |(_, name)| name)
    }
}

/// The state that all processes share.
pub struct System {
    pub now_ms: i64,
    /// The remaining steps of the running process's turn.
    slice: u64,
    steps: u64,
    /// When the next sleeping process wakes.
    wake_ms: Option<i64>,
    pub files: Files,
    pub processes: BTreeMap<Pid, Process>,
    begun: Vec<(Pid, Life)>,
    next_pid: Pid,
    /// A program that the container's own command called and that is unknown.
    unknown: Option<String>,
    /// The output and error streams of the container's own command.
    pub log: Option<(Writer, Writer)>,
}

/// The part of a process that other processes see.
pub struct Process {
    pub parent: Pid,
    pub signals: Vec<Signal>,
    pub exit_code: Option<i32>,
    /// Belongs to the container's own command.
    pub is_own: bool,
    pub words: String,
}

/// The shared state, as processes hold it.
#[derive(Clone)]
pub struct Shared(Arc<Mutex<System>>);

impl Shared {
    pub fn lock(&self) -> MutexGuard<'_, System> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records when a sleeping process wakes.
    pub fn wakes_at(&self, time_ms: i64) {
        let mut system = self.lock();
        system.wake_ms = Some(system.wake_ms.map_or(time_ms, |known| known.min(time_ms)));
    }

    /// Takes steps from the turn; returns false if too few are left.
    pub fn step(&self, count: u64) -> bool {
        let mut system = self.lock();
        if system.slice == 0 {
            return false;
        }
        system.slice = system.slice.saturating_sub(count);
        system.steps += count;
        true
    }

    /// Starts a process; `None` if there are too many.
    pub fn begin(&self, parent: Pid, words: &str, life: impl FnOnce(Pid) -> Life) -> Option<Pid> {
        let pid = {
            let mut system = self.lock();
            if system.processes.values().filter(|process| process.exit_code.is_none()).count() >= PROCESSES_MAX {
                return None;
            }
            let is_own = match system.processes.get(&parent) {
                Some(parent) => parent.is_own,
                None => system.next_pid == MAIN,
            };
            let pid = system.next_pid;
            system.next_pid += 1;
            let words = words.chars().take(200).collect();
            system.processes.insert(pid, Process { parent, signals: Vec::new(), exit_code: None, is_own, words });
            pid
        };
        let life = life(pid);
        self.lock().begun.push((pid, life));
        Some(pid)
    }

    /// The exit code of an ended process, which is forgotten then.
    pub fn reap(&self, pid: Pid) -> Option<i32> {
        let mut system = self.lock();
        let code = system.processes.get(&pid)?.exit_code?;
        system.processes.remove(&pid);
        Some(code)
    }

    /// Whether calling an unknown program fails with an error. In the container's own command it does not: nobody knows
    /// what the program would do, so the process sleeps forever.
    pub fn knows_not(&self, pid: Pid, program: &str) -> bool {
        let mut system = self.lock();
        let is_own = system.processes.get(&pid).is_some_and(|process| process.is_own);
        if is_own {
            system.unknown.get_or_insert_with(|| program.chars().take(200).collect());
        }
        !is_own
    }
}

/// The caller's ends of a command's streams.
struct Ends {
    input: Option<Writer>,
    output: Reader,
    errors: Reader,
    terminal: Option<Terminal>,
}

/// The result of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// There is more to do at once.
    More,
    /// Nothing to do before that time, or before input is written or output read.
    Idle { until_ms: Option<i64> },
}

/// An output stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Output,
    Errors,
}

/// The processes and files of one container.
pub struct Machine {
    shared: Shared,
    lives: BTreeMap<Pid, Life>,
    ends: BTreeMap<Pid, Ends>,
    setup: Setup,
}

impl Machine {
    pub fn new(mut setup: Setup, now_ms: i64) -> Machine {
        let system = System {
            now_ms,
            slice: 0,
            steps: 0,
            wake_ms: None,
            files: std::mem::take(&mut setup.files),
            processes: BTreeMap::new(),
            begun: Vec::new(),
            next_pid: MAIN,
            unknown: None,
            log: None,
        };
        Machine { shared: Shared(Arc::new(Mutex::new(system))), lives: BTreeMap::new(), ends: BTreeMap::new(), setup }
    }

    /// Starts a command; the first one is the container's own. An unknown program ends with 127.
    pub fn start(&mut self, words: &[String], with_input: bool, is_terminal: bool) -> Option<Pid> {
        let ((input, in_reader), (out_writer, output), (err_writer, errors)) = (pipe(), pipe(), pipe());
        let err_writer = if is_terminal { out_writer.clone() } else { err_writer };
        let inputs = if with_input { Input::Reader(in_reader) } else { Input::Nothing };
        let (shared, setup, own) = (self.shared.clone(), self.setup.clone(), words.to_vec());
        let pid = self.shared.begin(0, &words.join(" "), move |pid| {
            let shell = Shell::new(shared, &setup, pid, inputs, out_writer, err_writer, is_terminal);
            Box::pin(shell.command(own))
        })?;
        let terminal = is_terminal.then(Terminal::default);
        self.ends.insert(pid, Ends { input: with_input.then_some(input), output, errors, terminal });
        Some(pid)
    }

    /// Writes input to a command; returns how much was accepted.
    pub fn write(&mut self, pid: Pid, bytes: &[u8]) -> usize {
        let Some(ends) = self.ends.get_mut(&pid) else { return bytes.len() };
        let Some(input) = &ends.input else { return bytes.len() };
        let Some(terminal) = &mut ends.terminal else { return input.put(bytes).unwrap_or(bytes.len()) };
        let bytes = &bytes[..bytes.len().min(input.room())];
        let typed = terminal.typed(bytes);
        let _ = input.put(&typed.line);
        let (ends_input, interrupts) = (typed.ends, typed.interrupts);
        if ends_input {
            ends.input = None;
        }
        if interrupts {
            self.interrupt(pid);
        }
        bytes.len()
    }

    /// Acts as Ctrl-C: ends a program, or whatever runs in the foreground of a shell.
    fn interrupt(&mut self, pid: Pid) {
        let mut system = self.shared.lock();
        let mut of = vec![pid];
        for (child, process) in &system.processes {
            if of.contains(&process.parent) {
                of.push(*child);
            }
        }
        for pid in of {
            if let Some(process) = system.processes.get_mut(&pid) {
                process.signals.push(Signal::Int);
            }
        }
    }

    /// Closes the input.
    pub fn end_input(&mut self, pid: Pid) {
        if let Some(ends) = self.ends.get_mut(&pid) {
            ends.input = None;
        }
    }

    /// Takes at most `bytes_max` bytes of a command's output.
    pub fn read(&mut self, pid: Pid, stream: Stream, bytes_max: usize) -> Vec<u8> {
        let Some(ends) = self.ends.get_mut(&pid) else { return Vec::new() };
        let reader = if stream == Stream::Output { &ends.output } else { &ends.errors };
        let mut bytes = match (stream, &mut ends.terminal) {
            (Stream::Output, Some(terminal)) => terminal.echo(),
            _ => Vec::new(),
        };
        if let Found::Bytes(more) = reader.take(bytes_max, false) {
            match &ends.terminal {
                Some(_) => bytes.extend(crate::terminal::shown(&more)),
                None => bytes.extend(more),
            }
        }
        bytes
    }

    /// A command's exit code. Its output may not have been read completely.
    pub fn exit_code(&self, pid: Pid) -> Option<i32> {
        self.shared.lock().processes.get(&pid).and_then(|process| process.exit_code)
    }

    /// Drops a command. If it is still running, it ends with all processes that it has started.
    pub fn forget(&mut self, pid: Pid) {
        self.ends.remove(&pid);
        let mut gone = vec![pid];
        {
            let mut system = self.shared.lock();
            if system.processes.get(&pid).is_some_and(|process| process.exit_code.is_none()) {
                for (child, process) in &system.processes {
                    if gone.contains(&process.parent) {
                        gone.push(*child);
                    }
                }
            }
            system.begun.retain(|(begun, _)| !gone.contains(begun));
            system.processes.retain(|known, _| !gone.contains(known));
        }
        self.lives.retain(|known, _| !gone.contains(known));
    }

    pub fn signal(&mut self, pid: Pid, signal: Signal) {
        if let Some(process) = self.shared.lock().processes.get_mut(&pid) {
            process.signals.push(signal);
        }
    }

    /// The unknown program that the container's own command has called; it sleeps since.
    pub fn unknown(&self) -> Option<String> {
        self.shared.lock().unknown.clone()
    }

    /// The number of steps so far.
    pub fn steps(&self) -> u64 {
        self.shared.lock().steps
    }

    pub fn with_files<T>(&mut self, look: impl FnOnce(&mut Files) -> T) -> T {
        look(&mut self.shared.lock().files)
    }

    /// Runs the processes at this time, for at most `steps_max` steps.
    pub fn run(&mut self, now_ms: i64, steps_max: u64) -> Turn {
        let begin = {
            let mut system = self.shared.lock();
            system.now_ms = system.now_ms.max(now_ms);
            system.steps
        };
        loop {
            let before = {
                let mut system = self.shared.lock();
                system.wake_ms = None;
                system.steps
            };
            if before - begin >= steps_max {
                return Turn::More;
            }
            self.round(steps_max - (before - begin));
            let system = self.shared.lock();
            if system.steps == before && system.begun.is_empty() {
                return Turn::Idle { until_ms: system.wake_ms };
            }
        }
    }

    /// Gives each process a turn.
    fn round(&mut self, steps_max: u64) {
        let begun = std::mem::take(&mut self.shared.lock().begun);
        self.lives.extend(begun);
        let mut context = Context::from_waker(Waker::noop());
        let mut ended = Vec::new();
        for (pid, life) in &mut self.lives {
            self.shared.lock().slice = SLICE_STEPS.min(steps_max);
            if let Poll::Ready(code) = life.as_mut().poll(&mut context) {
                ended.push((*pid, code));
            }
        }
        for (pid, code) in ended {
            // Dropping the process closes its streams, so that their readers see the end.
            self.lives.remove(&pid);
            let mut system = self.shared.lock();
            system.steps += 1;
            let orphaned = |process: &Process, system: &System| {
                process.parent != 0 && !system.processes.contains_key(&process.parent)
            };
            let is_orphan = system.processes.get(&pid).is_some_and(|process| orphaned(process, &system));
            if is_orphan {
                system.processes.remove(&pid);
            } else if let Some(process) = system.processes.get_mut(&pid) {
                process.exit_code = Some(code);
            }
            // Its ended children are not waited for any more.
            system.processes.retain(|_, process| process.parent != pid || process.exit_code.is_none());
        }
    }
}

/// The exit code of a process that was stopped.
pub fn code_of(stop: &Stop) -> i32 {
    match stop {
        Stop::Exit(code) => *code,
        Stop::Killed(signal) => 128 + *signal as i32,
        Stop::Break(_) | Stop::Continue(_) | Stop::Return => 0,
    }
}
