//! The processes of one container, and their scheduling. Each step of each process is counted, and processes run only
//! in [`Machine::run`].

use crate::files::FileSystem;
use crate::pipe::{PipeReader, PipeWriter, ReadResult, pipe};
use crate::shell::{Input, Shell};
use crate::system::{Life, Pid, Process, Setup, SharedSystem, Signal, System};
use crate::terminal::Terminal;
use std::collections::BTreeMap;
use std::task::{Context, Poll, Waker};

/// How many steps a process may run before the next process has its turn.
const SLICE_STEPS: u64 = 200;

/// The ends of a command's streams that the caller of the machine uses.
struct Ends {
    input: Option<PipeWriter>,
    output: PipeReader,
    errors: PipeReader,
    terminal: Option<Terminal>,
}

/// The result of a call of [`Machine::run`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunResult {
    /// Further steps can run immediately.
    More,
    /// No step can run before `until_ms`, unless the caller writes input or reads output. `None` means that no process
    /// waits for a time.
    Idle { until_ms: Option<i64> },
}

/// One of the two output streams of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    Output,
    Errors,
}

/// The processes and files of one container.
pub struct Machine {
    shared: SharedSystem,
    lives: BTreeMap<Pid, Life>,
    ends: BTreeMap<Pid, Ends>,
    setup: Setup,
}

impl Machine {
    pub fn new(mut setup: Setup, now_ms: i64) -> Machine {
        let shared = SharedSystem::new(std::mem::take(&mut setup.files), now_ms);
        Machine { shared, lives: BTreeMap::new(), ends: BTreeMap::new(), setup }
    }

    /// Starts a command. The first command that is started is the container's own command. If the shell does not know
    /// the program, the container's own command sleeps, and any other command ends with exit code 127.
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

    /// Writes input to a command. Returns how many bytes were accepted.
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

    /// Does what Ctrl-C does: ends a program, or, if the command is a shell, the program in the foreground of the
    /// shell.
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

    /// Closes the standard input of a command.
    pub fn end_input(&mut self, pid: Pid) {
        if let Some(ends) = self.ends.get_mut(&pid) {
            ends.input = None;
        }
    }

    /// Takes at most `bytes_max` bytes of a command's output.
    pub fn read(&mut self, pid: Pid, stream: OutputStream, bytes_max: usize) -> Vec<u8> {
        let Some(ends) = self.ends.get_mut(&pid) else { return Vec::new() };
        let reader = if stream == OutputStream::Output { &ends.output } else { &ends.errors };
        let mut bytes = match (stream, &mut ends.terminal) {
            (OutputStream::Output, Some(terminal)) => terminal.echo(),
            _ => Vec::new(),
        };
        if let ReadResult::Bytes(more) = reader.take(bytes_max, false) {
            match &ends.terminal {
                Some(_) => bytes.extend(crate::terminal::shown(&more)),
                None => bytes.extend(more),
            }
        }
        bytes
    }

    /// The exit code of a command; `None` if the command still runs. Some of its output may still be unread.
    pub fn exit_code(&self, pid: Pid) -> Option<i32> {
        self.shared.lock().processes.get(&pid).and_then(|process| process.exit_code)
    }

    /// Forgets a command. If the command still runs, it ends with all processes that it has started.
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
            system.starting.retain(|(begun, _)| !gone.contains(begun));
            system.processes.retain(|known, _| !gone.contains(known));
        }
        self.lives.retain(|known, _| !gone.contains(known));
    }

    pub fn signal(&mut self, pid: Pid, signal: Signal) {
        if let Some(process) = self.shared.lock().processes.get_mut(&pid) {
            process.signals.push(signal);
        }
    }

    /// The unknown program that the container's own command has called. Since this call the command sleeps.
    pub fn unknown(&self) -> Option<String> {
        self.shared.lock().unknown.clone()
    }

    /// The number of steps of all processes so far.
    pub fn steps(&self) -> u64 {
        self.shared.lock().steps
    }

    pub fn with_files<T>(&mut self, look: impl FnOnce(&mut FileSystem) -> T) -> T {
        look(&mut self.shared.lock().files)
    }

    /// Runs the processes at the time `now_ms`, for at most `steps_max` steps.
    pub fn run(&mut self, now_ms: i64, steps_max: u64) -> RunResult {
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
                return RunResult::More;
            }
            self.round(steps_max - (before - begin));
            let system = self.shared.lock();
            if system.steps == before && system.starting.is_empty() {
                return RunResult::Idle { until_ms: system.wake_ms };
            }
        }
    }

    /// Gives each process one turn.
    fn round(&mut self, steps_max: u64) {
        let begun = std::mem::take(&mut self.shared.lock().starting);
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
            // Dropping the process closes its streams, so that the readers of these streams see the end.
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
            // The process has ended, so no process waits for its ended children any more.
            system.processes.retain(|_, process| process.parent != pid || process.exit_code.is_none());
        }
    }
}
