//! One process: a shell, or a program that one has begun.

use crate::commands;
use crate::files::{self, Trouble, absolute};
use crate::machine::{MAIN, Pid, Setup, Shared, Signal, code_of};
use crate::parse::{self, Fault};
use crate::pipe::{Found, Reader, Writer, pipe};
use crate::syntax::{Chain, Command, List, Pipeline, Redirection, Target, What, Word};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
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

    // ---- Input and output ----

    pub async fn put(&mut self, number: u8, bytes: &[u8]) -> Done<()> {
        self.step(1 + bytes.len() as u64 / 512).await?;
        match self.open.get(&number).cloned() {
            Some(Open::Writer(writer)) => {
                let mut rest = bytes;
                while !rest.is_empty() {
                    let put = self
                        .wait_for(|_| writer.put(rest).map_or(Some(None), |count| (count > 0).then_some(Some(count))));
                    match put.await? {
                        Some(Some(count)) => rest = &rest[count..],
                        Some(None) => return Err(Stop::Killed(Signal::Pipe)),
                        // A signal with a trap: what is written counts first.
                        None => self.caught.truncate(1),
                    }
                    if !self.caught.is_empty() && !rest.is_empty() {
                        return Ok(());
                    }
                }
            }
            Some(Open::File(path)) => {
                let wrote = {
                    let mut system = self.shared.lock();
                    let now_ms = system.now_ms;
                    system.files.append(&path, bytes, now_ms)
                };
                if let Err(Trouble(why)) = wrote {
                    self.status = 1;
                    if number != 2 {
                        let text = format!("sh: write error: {why}\n");
                        return Box::pin(self.put(2, text.as_bytes())).await;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    pub async fn say(&mut self, text: &str) -> Done<()> {
        self.put(1, text.as_bytes()).await
    }

    pub async fn complain(&mut self, text: &str) -> Done<()> {
        self.put(2, format!("{text}\n").as_bytes()).await
    }

    pub fn input(&self) -> Open {
        self.open.get(&0).cloned().unwrap_or(Open::Nothing)
    }

    /// Some more of a file; nothing at its end.
    pub async fn take(&mut self, from: &Open, line: bool) -> Done<Option<Vec<u8>>> {
        let taken = match from {
            Open::Content(content) => {
                let mut content = content.lock().unwrap_or_else(PoisonError::into_inner);
                let (bytes, at) = &mut *content;
                let mut end = bytes.len().min(*at + CHUNK_BYTES);
                if line && let Some(length) = bytes[*at..end].iter().position(|byte| *byte == b'\n') {
                    end = *at + length + 1;
                }
                let chunk = bytes[*at..end].to_vec();
                *at = end;
                (!chunk.is_empty()).then_some(chunk)
            }
            Open::Reader(reader) => {
                let found = self.wait_for(|_| match reader.take(CHUNK_BYTES, line) {
                    Found::NothingYet => None,
                    Found::End => Some(None),
                    Found::Bytes(bytes) => Some(Some(bytes)),
                });
                found.await?.flatten()
            }
            _ => None,
        };
        self.step(1 + taken.as_ref().map_or(0, |bytes| bytes.len() as u64 / 512)).await?;
        Ok(taken)
    }

    /// One line with its end, or the rest.
    pub async fn line(&mut self, from: &Open) -> Done<Option<Vec<u8>>> {
        let mut line: Vec<u8> = Vec::new();
        while let Some(more) = self.take(from, true).await? {
            line.extend(more);
            if line.last() == Some(&b'\n') || line.len() > WHOLE_BYTES_MAX {
                break;
            }
        }
        Ok((!line.is_empty()).then_some(line))
    }

    /// All of a file; what is more than may be held is left.
    pub async fn whole(&mut self, from: &Open) -> Done<Vec<u8>> {
        let mut whole: Vec<u8> = Vec::new();
        while let Some(more) = self.take(from, false).await? {
            whole.extend(more);
            if whole.len() > WHOLE_BYTES_MAX {
                self.complain("sh: input is too long").await?;
                return Err(Stop::Exit(2));
            }
        }
        Ok(whole)
    }

    /// Opens a file for reading; `-` is the input.
    pub fn open_to_read(&self, name: &str) -> Result<Open, Trouble> {
        let device = |number: u8| self.open.get(&number).cloned().unwrap_or(Open::Nothing);
        match name {
            "-" | "/dev/stdin" => return Ok(self.input()),
            "/dev/null" | "/dev/tty" => return Ok(Open::Nothing),
            "/dev/stdout" => return Ok(device(1)),
            _ => {}
        }
        let content = self.shared.lock().files.read(&absolute(&self.folder, name))?;
        Ok(Open::Content(Arc::new(Mutex::new((content, 0)))))
    }

    pub fn open_to_write(&self, name: &str, appends: bool) -> Result<Open, Trouble> {
        let device = |number: u8| self.open.get(&number).cloned().unwrap_or(Open::Nothing);
        let log = || self.shared.lock().log.clone();
        match name {
            "/dev/null" => return Ok(Open::Nothing),
            "/dev/stdout" | "/dev/fd/1" | "/proc/self/fd/1" | "/dev/tty" => return Ok(device(1)),
            "/dev/stderr" | "/dev/fd/2" | "/proc/self/fd/2" => return Ok(device(2)),
            "/proc/1/fd/1" => return Ok(log().map_or(Open::Nothing, |(output, _)| Open::Writer(output))),
            "/proc/1/fd/2" => return Ok(log().map_or(Open::Nothing, |(_, errors)| Open::Writer(errors))),
            _ => {}
        }
        let path = absolute(&self.folder, name);
        let mut system = self.shared.lock();
        let now_ms = system.now_ms;
        if appends {
            system.files.append(&path, b"", now_ms)?;
        } else {
            system.files.write(&path, Vec::new(), now_ms)?;
        }
        Ok(Open::File(path))
    }

    // ---- Variables ----

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

    // ---- Scripts ----

    /// Runs the text of a script in this shell.
    pub fn text<'a>(&'a mut self, text: &'a str) -> Later<'a, ()> {
        Box::pin(async move {
            match parse::script(text) {
                Ok(list) => self.list(&list).await,
                Err(fault) => {
                    let why = match fault {
                        Fault::Incomplete => "syntax error: unexpected end of file".to_owned(),
                        Fault::Syntax(why) => why,
                    };
                    let name = self.name.clone();
                    self.complain(&format!("{name}: {why}")).await?;
                    self.status = 2;
                    Err(Stop::Exit(2))
                }
            }
        })
    }

    /// Runs what comes as input, as soon as it is whole.
    pub async fn typed(&mut self) -> Done<()> {
        let input = self.input();
        self.is_interactive = self.is_terminal;
        let mut text = String::new();
        loop {
            if self.is_interactive {
                let (folder, sign) = (self.folder.clone(), if self.user == 0 { '#' } else { '$' });
                let prompt = if text.is_empty() { format!("{folder} {sign} ") } else { "> ".to_owned() };
                self.put(2, prompt.as_bytes()).await?;
            }
            let line = match self.line(&input).await {
                Err(Stop::Killed(Signal::Int)) if self.is_interactive => {
                    text.clear();
                    continue;
                }
                line => line?,
            };
            let is_end = line.is_none();
            text.push_str(&String::from_utf8_lossy(&line.unwrap_or_default()));
            match parse::script(&text) {
                Err(Fault::Incomplete) if !is_end => continue,
                Ok(list) => {
                    text.clear();
                    match self.list(&list).await {
                        Err(Stop::Killed(Signal::Int)) if self.is_interactive => self.status = 130,
                        done => done?,
                    }
                }
                Err(_) if self.is_interactive => {
                    let wrong = std::mem::take(&mut text);
                    let _ = self.text(&wrong).await;
                }
                Err(_) => return self.text(&text).await,
            }
            if is_end {
                return Ok(());
            }
        }
    }

    pub fn list<'a>(&'a mut self, list: &'a List) -> Later<'a, ()> {
        Box::pin(async move {
            if self.depth >= DEPTH_MAX {
                self.complain("sh: commands run too deeply in each other").await?;
                return Err(Stop::Exit(2));
            }
            let (depth, tested) = (self.depth, self.tested);
            self.depth += 1;
            let mut done = Ok(());
            for chain in list.iter() {
                done = self.chain(chain).await;
                if done.is_ok() {
                    done = self.run_traps().await;
                }
                if done.is_err() {
                    break;
                }
            }
            (self.depth, self.tested) = (depth, tested);
            done
        })
    }

    async fn chain(&mut self, chain: &Chain) -> Done<()> {
        if chain.in_background {
            let chain = Chain { in_background: false, ..chain.clone() };
            let mut child = self.child();
            child.open.insert(0, Open::Nothing);
            if let Some(pid) = self
                .spawn("sh", child, move |mut child| {
                    Box::pin(async move {
                        let list = Arc::new(vec![chain]);
                        let done = child.list(&list).await;
                        child.ended(done).await
                    })
                })
                .await?
            {
                self.background.push(pid);
                self.last_background = pid;
            }
            return Ok(());
        }
        let last = chain.rest.len();
        let mut is_last = last == 0;
        self.tested += u32::from(last > 0);
        self.pipeline(&chain.first).await?;
        self.tested -= u32::from(last > 0);
        for (at, (and, pipeline)) in chain.rest.iter().enumerate() {
            if (self.status == 0) == *and {
                is_last = at + 1 == last;
                self.tested += u32::from(!is_last);
                self.pipeline(pipeline).await?;
                self.tested -= u32::from(!is_last);
            } else {
                is_last = false;
            }
        }
        let negated = match chain.rest.last() {
            Some((_, pipeline)) => pipeline.is_negated,
            None => chain.first.is_negated,
        };
        if self.status != 0 && self.options.ends_at_error && self.tested == 0 && is_last && !negated {
            return Err(Stop::Exit(self.status));
        }
        Ok(())
    }

    async fn pipeline(&mut self, pipeline: &Pipeline) -> Done<()> {
        self.tested += u32::from(pipeline.is_negated);
        match &pipeline.commands[..] {
            [command] => self.one(command).await?,
            commands => self.piped(commands).await?,
        }
        if pipeline.is_negated {
            self.tested -= 1;
            self.status = i32::from(self.status == 0);
        }
        Ok(())
    }

    async fn piped(&mut self, commands: &[Arc<Command>]) -> Done<()> {
        let mut input: Option<Reader> = None;
        let mut pids = Vec::new();
        for (at, command) in commands.iter().enumerate() {
            let mut child = self.child();
            if let Some(input) = input.take() {
                child.open.insert(0, Open::Reader(input));
            }
            if at + 1 < commands.len() {
                let (writer, reader) = pipe();
                child.open.insert(1, Open::Writer(writer));
                input = Some(reader);
            }
            let command = command.clone();
            let begun = self.spawn("sh", child, move |mut child| {
                Box::pin(async move {
                    let done = child.one(&command).await;
                    child.ended(done).await
                })
            });
            pids.extend(begun.await?);
        }
        let mut status = 0;
        for pid in pids {
            let code = self.wait_child(pid).await?;
            status = if self.options.whole_pipes && code == 0 { status } else { code };
        }
        self.status = status;
        Ok(())
    }

    /// A shell that goes its own way from here.
    pub fn child(&self) -> Shell {
        let mut child = self.clone();
        child.traps.clear();
        child.caught.clear();
        child.background.clear();
        child.is_interactive = false;
        child.hidden.clear();
        child
    }

    /// Has a child run as a process of its own.
    pub async fn spawn(
        &mut self,
        words: &str,
        mut child: Shell,
        life: impl FnOnce(Shell) -> Pin<Box<dyn Future<Output = i32> + Send>>,
    ) -> Done<Option<Pid>> {
        self.step(1).await?;
        let begun = self.shared.clone().begin(self.pid, words, |pid| {
            child.pid = pid;
            life(child)
        });
        if begun.is_none() {
            self.complain("sh: can't fork: Resource temporarily unavailable").await?;
            self.status = 2;
        }
        Ok(begun)
    }

    /// What a child ends with.
    pub async fn ended(&mut self, done: Done<()>) -> i32 {
        if let Err(stop) = &done {
            match stop {
                Stop::Exit(_) | Stop::Killed(_) => self.status = code_of(stop),
                _ => {}
            }
        }
        if !matches!(done, Err(Stop::Killed(_))) {
            self.at_exit().await;
        }
        self.status
    }

    /// The output of a command, without the line ends at its end.
    pub async fn output_of(&mut self, script: &List) -> Done<String> {
        let (writer, reader) = pipe();
        let mut child = self.child();
        child.open.insert(1, Open::Writer(writer));
        let script = script.clone();
        let begun = self.spawn("sh", child, move |mut child| {
            Box::pin(async move {
                let done = child.list(&script).await;
                child.ended(done).await
            })
        });
        let Some(pid) = begun.await? else { return Ok(String::new()) };
        let whole = self.whole(&Open::Reader(reader)).await?;
        self.status = self.wait_child(pid).await?;
        let text = String::from_utf8_lossy(&whole);
        Ok(text.trim_end_matches('\n').replace('\0', ""))
    }

    fn one<'a>(&'a mut self, command: &'a Command) -> Later<'a, ()> {
        Box::pin(async move {
            self.step(1).await?;
            if let What::Simple { assignments, words } = &command.what {
                return self.simple(assignments, words, &command.redirections).await;
            }
            if command.redirections.is_empty() {
                return self.compound(&command.what).await;
            }
            let before = self.open.clone();
            let mut done = Ok(());
            if self.redirect(&command.redirections).await? {
                done = self.compound(&command.what).await;
            }
            self.open = before;
            done
        })
    }

    async fn compound(&mut self, what: &What) -> Done<()> {
        match what {
            What::Simple { .. } => Ok(()),
            What::Group(list) => self.list(list).await,
            What::Subshell(list) => {
                let child = self.child();
                let list = list.clone();
                let begun = self.spawn("sh", child, move |mut child| {
                    Box::pin(async move {
                        let done = child.list(&list).await;
                        child.ended(done).await
                    })
                });
                if let Some(pid) = begun.await? {
                    self.status = self.wait_child(pid).await?;
                }
                Ok(())
            }
            What::If(conditions, otherwise) => {
                for (condition, then) in conditions {
                    if self.holds(condition).await? {
                        return self.list(then).await;
                    }
                }
                self.status = 0;
                match otherwise {
                    Some(otherwise) => self.list(otherwise).await,
                    None => Ok(()),
                }
            }
            What::While { until, condition, body } => {
                let mut status = 0;
                while self.holds(condition).await? != *until {
                    let done = self.list(body).await;
                    status = self.status;
                    if self.breaks(done)? {
                        break;
                    }
                    self.step(1).await?;
                }
                self.status = status;
                Ok(())
            }
            What::For { name, words, body } => {
                let words = match words {
                    Some(words) => self.words(words).await?,
                    None => self.arguments.clone(),
                };
                self.status = 0;
                for word in words {
                    self.set(name, word).await?;
                    let done = self.list(body).await;
                    if self.breaks(done)? {
                        break;
                    }
                    self.step(1).await?;
                }
                Ok(())
            }
            What::Case { word, arms } => {
                let word = self.single(word).await?;
                self.status = 0;
                for (patterns, body) in arms {
                    for pattern in patterns {
                        self.step(1).await?;
                        let pattern = self.pattern(pattern).await?;
                        if crate::pattern::matches(&pattern, &word) {
                            return self.list(body).await;
                        }
                    }
                }
                Ok(())
            }
            What::Function { name, body } => {
                if self.functions.len() < 256 {
                    self.functions.insert(name.clone(), body.clone());
                }
                self.status = 0;
                Ok(())
            }
        }
    }

    async fn holds(&mut self, condition: &List) -> Done<bool> {
        self.tested += 1;
        self.list(condition).await?;
        self.tested -= 1;
        Ok(self.status == 0)
    }

    /// Whether the loop ends.
    fn breaks(&mut self, done: Done<()>) -> Done<bool> {
        match done {
            Ok(()) => Ok(false),
            Err(stop) => {
                let (is_break, count) = match stop {
                    Stop::Break(count) => (true, count),
                    Stop::Continue(count) => (false, count),
                    other => return Err(other),
                };
                match count {
                    0 | 1 => Ok(is_break),
                    count if is_break => Err(Stop::Break(count - 1)),
                    count => Err(Stop::Continue(count - 1)),
                }
            }
        }
    }

    /// Opens what redirections name; says whether all could be opened.
    async fn redirect(&mut self, redirections: &[Redirection]) -> Done<bool> {
        for Redirection { number, what } in redirections {
            let opened = match what {
                Target::Read(word) => {
                    let name = self.single(word).await?;
                    self.open_to_read(&name).map_err(|Trouble(why)| format!("can't open {name}: {}", plain(why)))
                }
                Target::Write(word) | Target::Append(word) => {
                    let name = self.single(word).await?;
                    let opened = self.open_to_write(&name, matches!(what, Target::Append(_)));
                    opened.map_err(|Trouble(why)| format!("can't create {name}: {why}"))
                }
                Target::Same(word) => match self.single(word).await?.as_str() {
                    "-" => Ok(Open::Nothing),
                    other => {
                        let open = other.parse().ok().and_then(|number: u8| self.open.get(&number).cloned());
                        open.ok_or_else(|| format!("{other}: Bad file descriptor"))
                    }
                },
                Target::Text(word) => {
                    let text = self.single(word).await?;
                    Ok(Open::Content(Arc::new(Mutex::new((Arc::new(text.into_bytes()), 0)))))
                }
            };
            match opened {
                Ok(open) => _ = self.open.insert(*number, open),
                Err(why) => {
                    let name = self.name.clone();
                    self.complain(&format!("{name}: {why}")).await?;
                    self.status = 1;
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    async fn simple(
        &mut self,
        assignments: &[(String, Word)],
        words: &[Word],
        redirections: &[Redirection],
    ) -> Done<()> {
        let status = self.status;
        self.status = 0;
        let words = {
            // `$?` in a command is that of the one before.
            self.status = status;
            let words = self.words(words).await?;
            if words.is_empty() {
                self.status = 0;
            }
            words
        };
        let before = (!redirections.is_empty()).then(|| self.open.clone());
        if !self.redirect(redirections).await? {
            self.open = before.unwrap_or_default();
            return Ok(());
        }
        let mut hidden = Vec::new();
        for (name, word) in assignments {
            let value = self.single(word).await?;
            if words.is_empty() {
                self.set(name, value).await?;
            } else {
                hidden.push((name.clone(), self.variables.get(name).cloned()));
                self.set(name, value).await?;
                if let Some(variable) = self.variables.get_mut(name) {
                    variable.is_exported = true;
                }
            }
        }
        let mut keeps_open = false;
        let mut done = Ok(());
        if let Some(first) = words.first() {
            keeps_open = first == "exec" && words.len() == 1;
            if self.options.shows_commands {
                self.complain(&format!("+ {}", words.join(" "))).await?;
            }
            done = self.invoke(words).await;
        }
        for (name, known) in hidden {
            match known {
                Some(known) => _ = self.variables.insert(name, known),
                None => self.unset(&name),
            }
        }
        if let Some(before) = before.filter(|_| !keeps_open) {
            self.open = before;
        }
        done
    }

    /// Runs a function, a command of the shell, or a program.
    pub fn invoke(&mut self, words: Vec<String>) -> Later<'_, ()> {
        Box::pin(async move {
            self.step(1).await?;
            let Some(first) = words.first() else { return Ok(()) };
            if let Some(function) = self.functions.get(first).cloned() {
                return self.call(&function, words).await;
            }
            self.program(words).await
        })
    }

    /// Runs what is no function.
    pub async fn program(&mut self, words: Vec<String>) -> Done<()> {
        let Some(first) = words.first().cloned() else { return Ok(()) };
        let name = commands::name_of(&first);
        if commands::is_known(name) {
            self.status = commands::run(self, name, &words).await?;
            return Ok(());
        }
        if first.contains('/') {
            let path = absolute(&self.folder, &first);
            let found = self.shared.lock().files.entry(&path).cloned();
            if let Some(files::Entry { content: Some(content), mode, .. }) = found {
                if mode & 0o111 == 0 {
                    self.complain(&format!("sh: {first}: Permission denied")).await?;
                    self.status = 126;
                    return Ok(());
                }
                if !content.starts_with(b"\x7fELF") {
                    let text = String::from_utf8_lossy(&content).into_owned();
                    let arguments = words[1..].to_vec();
                    self.status = self.as_program(first, arguments, &text).await?;
                    return Ok(());
                }
            }
        }
        if !self.shared.knows_not(self.pid, &first) {
            // Only a signal that nothing survives ends it.
            return std::future::pending().await;
        }
        self.complain(&format!("sh: {first}: not found")).await?;
        self.status = 127;
        Ok(())
    }

    /// Runs a script as a program of its own, with what is exported alone.
    pub async fn as_program(&mut self, name: String, arguments: Vec<String>, text: &str) -> Done<i32> {
        let mut child = self.program_shell(name, arguments);
        let done = child.text(text).await;
        self.finish(child, done).await
    }

    pub fn program_shell(&self, name: String, arguments: Vec<String>) -> Shell {
        let mut child = self.clone();
        child.variables.retain(|_, variable| variable.is_exported);
        child.functions.clear();
        child.traps.clear();
        child.caught.clear();
        child.hidden.clear();
        child.background.clear();
        child.options = Options::default();
        child.tested = 0;
        child.status = 0;
        child.is_interactive = false;
        (child.name, child.arguments) = (name, arguments);
        child
    }

    /// What a program that ran in this process comes to.
    pub async fn finish(&mut self, mut child: Shell, done: Done<()>) -> Done<i32> {
        if let Err(stop @ Stop::Killed(_)) = done {
            return Err(stop);
        }
        let code = child.ended(done).await;
        Ok(code)
    }

    async fn call(&mut self, function: &Arc<Command>, words: Vec<String>) -> Done<()> {
        let arguments = std::mem::replace(&mut self.arguments, words[1..].to_vec());
        self.hidden.push(Vec::new());
        let done = self.one(function).await;
        for (name, known) in self.hidden.pop().unwrap_or_default().into_iter().rev() {
            match known {
                Some(known) => _ = self.variables.insert(name, known),
                None => self.unset(&name),
            }
        }
        self.arguments = arguments;
        match done {
            Err(Stop::Return) => Ok(()),
            done => done,
        }
    }
}

/// As shells put it.
fn plain(why: &str) -> &str {
    match why {
        "No such file or directory" => "no such file",
        why => why,
    }
}
