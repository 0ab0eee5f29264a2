//! The state that the processes of one container share: the table of processes, the files, the time, and the steps of a
//! turn.

use crate::files::FileSystem;
use crate::pipe::PipeWriter;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The maximum number of processes at a time.
const PROCESSES_MAX: usize = 32;

pub type Pid = u32;
pub type Life = Pin<Box<dyn Future<Output = i32> + Send>>;

/// The main process of a container. When it ends, the container ends.
pub const MAIN: Pid = 1;

/// The initial state of a container.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    pub files: FileSystem,
    pub environment: BTreeMap<String, String>,
    /// The working directory of the container's processes.
    pub folder: String,
    pub hostname: String,
    pub user: u32,
    pub group: u32,
}

/// The signals that the shell knows by name.
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

    /// Parses a signal: `TERM`, `SIGTERM` or `15`.
    pub fn parse(text: &str) -> Option<Signal> {
        let name = text.strip_prefix("SIG").unwrap_or(text);
        let is_it = |(signal, known): &&(Signal, &str)| *known == name || (*signal as i32).to_string() == text;
        Signal::ALL.iter().find(is_it).map(|(signal, _)| *signal)
    }

    pub fn name(self) -> &'static str {
        Signal::ALL.iter().find(|(signal, _)| *signal == self).map_or("", |(_, name)| name)
    }
}

/// The state that all processes of a container share.
pub struct System {
    pub now_ms: i64,
    /// How many steps are left of the running process's turn.
    pub slice: u64,
    pub steps: u64,
    /// The earliest time at which a sleeping process wakes; `None` if no process waits for a time.
    pub wake_ms: Option<i64>,
    pub files: FileSystem,
    pub processes: BTreeMap<Pid, Process>,
    pub starting: Vec<(Pid, Life)>,
    next_pid: Pid,
    /// The first program that the container's own command has called and that the shell does not know.
    pub unknown: Option<String>,
    /// The pipes that get the standard output and the error output of the container's own command.
    pub log: Option<(PipeWriter, PipeWriter)>,
}

/// The part of a process that other processes see.
pub struct Process {
    pub parent: Pid,
    pub signals: Vec<Signal>,
    pub exit_code: Option<i32>,
    /// Whether the process belongs to the container's own command, and not to a command that a client executes.
    pub is_own: bool,
    pub words: String,
}

/// A reference to the shared state. Each process has one.
#[derive(Clone)]
pub struct SharedSystem(Arc<Mutex<System>>);

impl SharedSystem {
    pub fn new(files: FileSystem, now_ms: i64) -> SharedSystem {
        SharedSystem(Arc::new(Mutex::new(System {
            now_ms,
            slice: 0,
            steps: 0,
            wake_ms: None,
            files,
            processes: BTreeMap::new(),
            starting: Vec::new(),
            next_pid: MAIN,
            unknown: None,
            log: None,
        })))
    }

    pub fn lock(&self) -> MutexGuard<'_, System> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the time at which a sleeping process wakes.
    pub fn wakes_at(&self, time_ms: i64) {
        let mut system = self.lock();
        system.wake_ms = Some(system.wake_ms.map_or(time_ms, |known| known.min(time_ms)));
    }

    /// Deducts `count` steps from the running process's turn. Returns false if the turn has no steps left.
    pub fn step(&self, count: u64) -> bool {
        let mut system = self.lock();
        if system.slice == 0 {
            return false;
        }
        system.slice = system.slice.saturating_sub(count);
        system.steps += count;
        true
    }

    /// Starts a process; `None` if the container has too many processes.
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
        self.lock().starting.push((pid, life));
        Some(pid)
    }

    /// The exit code of a process that has ended. The process is forgotten.
    pub fn reap(&self, pid: Pid) -> Option<i32> {
        let mut system = self.lock();
        let code = system.processes.get(&pid)?.exit_code?;
        system.processes.remove(&pid);
        Some(code)
    }

    /// Whether calling an unknown program fails with an error. A call in the container's own command does not fail:
    /// nobody knows what the program would do, so the process sleeps forever.
    pub fn fails_unknown(&self, pid: Pid, program: &str) -> bool {
        let mut system = self.lock();
        let is_own = system.processes.get(&pid).is_some_and(|process| process.is_own);
        if is_own {
            system.unknown.get_or_insert_with(|| program.chars().take(200).collect());
        }
        !is_own
    }
}
